"""All engines on one table: each writes in turn, and all read the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.client.session import Session
from headgate.spark import Lake
from tests.interop.conftest import (
    DeltaSpark,
    DuckDB,
    Sail,
    append,
    is_whole,
    ours,
)
from tests.interop.kernel import Kernel
from tests.kit import req
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]


class Crew:
    """Everybody who can write a row and read them all."""

    def __init__(
        self,
        server: RunningServer,
        session: Session,
        spark: SparkSession,
        folder: Path,
        engines: tuple[DuckDB, Sail],
        delta_spark: DeltaSpark | None,
    ) -> None:
        self.session = session
        self.lake = Lake(spark, session)
        self.kernel = Kernel(spark, server.address)
        self.older_kernel = Kernel(spark, server.address, older=True)
        self.folder = folder
        self.duckdb, self.sail = engines
        self.delta_spark = delta_spark

    @property
    def members(self) -> list[str]:
        members = ["us", "lake", "kernel", "older_kernel", "duckdb", "sail"]
        return members + (["delta_spark"] if self.delta_spark is not None else [])

    def write(self, who: str, number: int) -> None:
        match who:
            case "us":
                append(self.session, (number, who))
            case "lake":
                row = self.lake.spark.createDataFrame([(number, who)], "id long, who string")
                self.lake.append("t", row)
            case "kernel" | "older_kernel":
                kernel: Kernel = getattr(self, who)
                snapshot = kernel.load(self.session.table("t"))
                kernel.append(snapshot, self.folder, {"id": number, "who": who})
            case "duckdb":
                self.duckdb.look_again()
                self.duckdb.sql(f"INSERT INTO lake.default.t VALUES ({number}, '{who}')")
            case "sail" | "delta_spark":
                getattr(self, who).sql(f"INSERT INTO default.t VALUES ({number}, '{who}')")

    def read(self, who: str) -> list[tuple[Any, ...]]:
        match who:
            case "us":
                return ours(self.session)
            case "lake":
                return sorted(tuple(row) for row in self.lake.read("t").collect())
            case "kernel" | "older_kernel":
                kernel: Kernel = getattr(self, who)
                return kernel.rows(kernel.load(self.session.table("t")))
            case "duckdb":
                self.duckdb.look_again()
                return sorted(self.duckdb.sql("SELECT * FROM lake.default.t"))
            case _:
                return sorted(getattr(self, who).sql("SELECT * FROM default.t"))


@pytest.fixture
def connector(request: pytest.FixtureRequest, server: RunningServer) -> DeltaSpark | None:
    """delta-spark, where it is to take part: without its connector that run says it did not."""
    if not request.param:
        return None
    started: DeltaSpark = request.getfixturevalue("delta_spark")
    return started.use(server.address)


@pytest.fixture
def crew(
    server: RunningServer,
    session: Session,
    released_spark: SparkSession,
    connector: DeltaSpark | None,
    tmp_path: Path,
) -> Iterator[Crew]:
    with DuckDB(server.address) as duckdb, Sail(server.address) as sail:
        yield Crew(server, session, released_spark, tmp_path, (duckdb, sail), connector)


@req("CA-04")
@pytest.mark.parametrize(
    "connector", [False, True], indirect=True, ids=["all but delta-spark", "all"]
)
def test_each_writes_in_turn_and_all_read_the_same_rows(
    crew: Crew,
    server: RunningServer,
    session: Session,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("engines", ", ".join(crew.members))
    session.create_table("t", "id long, who string")
    rows: list[tuple[Any, ...]] = []
    for _ in range(3 if crew.delta_spark is None else 2):
        for who in crew.members:
            crew.write(who, len(rows))
            rows.append((len(rows), who))
        found = {who: crew.read(who) for who in crew.members}
        assert found == dict.fromkeys(crew.members, rows)
    assert session.table("t").version == len(rows)
    assert is_whole(server)
