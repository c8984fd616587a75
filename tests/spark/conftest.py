"""One Spark for the whole run, and a fresh lake for each test, in process or behind a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate._connect import embedded_catalog
from headgate.api.port import ManagingCatalog
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Committed, OperationInfo
from headgate.clock import RandomIds, SystemClock
from headgate.protocol.actions import Action, AddFile
from headgate.settings import Settings
from headgate.spark import Lake, session
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore, encode
from tests.http.conftest import serving
from tests.kit import java
from tests.kit.faulty_stores import CountingStore

HERE = Path(__file__).parent
WHERE = "HEADGATE_TEST_SPARK"  # a master, or the address of a server of Spark Connect
# What is shown of a Spark that is elsewhere is run there, by tests of this folder.
collect_ignore_glob = [] if WHERE in os.environ else ["remote/*"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here: all that share the one Spark go to one worker, and start one JVM."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.spark)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    java.require()
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "local")
    where = os.environ.get(WHERE, "local[2]")
    if where.startswith("sc://"):
        started = session(remote=where)
    else:
        started = session("headgate-tests", master=where, config=settings(folder))
    yield started
    started.stop()


def settings(folder: Path) -> dict[str, str]:
    """Give what a Spark for tests is started with; what it keeps goes into a folder."""
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java.QUICK_START}"
        f" -Dderby.system.home={folder / 'derby'}",
        "spark.executor.extraJavaOptions": java.QUICK_START,
        "spark.log.level": "OFF",
        "spark.sql.adaptive.enabled": "false",
    }


@pytest.fixture(autouse=True)
def unchanged_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the next test the session as this one found it."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    before = dict(spark.conf.getAll)
    yield
    after = dict(spark.conf.getAll)
    for key in after.keys() - before.keys():
        spark.conf.unset(key)
    for key, value in before.items():
        # What only the start of a driver can set is recorded in a session, without effect.
        if after.get(key) != value and spark.conf.isModifiable(key):
            spark.conf.set(key, value)


@dataclass
class Water:
    """A lake, those who write to it, and what its stores were asked for."""

    spark: SparkSession
    catalog: ManagingCatalog
    lake: Lake = field(init=False)
    session: Session = field(init=False)
    stores: dict[str, CountingStore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = self.new_session()
        self.lake = Lake(self.spark, self.session)

    def new_session(self) -> Session:
        clock = SystemClock()
        return Session(self.catalog, clock=clock, ids=RandomIds(clock), store_for=self.store_for)

    def store_for(self, location: str) -> ObjectStore:
        if location not in self.stores:
            self.stores[location] = CountingStore(locations.store_for(location))
        return self.stores[location]

    def other(self, **how: Any) -> Lake:
        """Return a lake of another client, with empty caches."""
        return Lake(self.spark, self.new_session(), **how)

    def make(
        self,
        name: str = "t",
        schema: str = "id long, v string",
        by: Sequence[str] = (),
        **properties: str,
    ) -> Table:
        dotted = {key.replace("__", "."): value for key, value in properties.items()}
        return self.session.create_table(name, schema, by, dotted)

    def rows(self, name: str = "t", **how: Any) -> list[tuple[Any, ...]]:
        return rows(self.lake.read(name, **how))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return rows(self.lake.sql(text))

    def files(self, name: str = "t") -> list[AddFile]:
        return self.session.table(name).snapshot().files()

    def frame(self, text: str) -> DataFrame:
        """Give the rows of a VALUES list or a query."""
        return self.spark.sql(text)


@pytest.fixture
def water(spark: SparkSession, tmp_path: Path) -> Iterator[Water]:
    clock = SystemClock()
    catalog = embedded_catalog(
        str(tmp_path / "lake"),
        settings=Settings(),
        publisher=False,
        clock=clock,
        ids=RandomIds(clock),
    )
    yield Water(spark, catalog)
    catalog.close()


@pytest.fixture(params=["embedded", "server"])
def any_water(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[Water]:
    """A lake whose catalog runs in this process, and again one behind a server."""
    if request.param == "embedded":
        yield request.getfixturevalue("water")
        return
    for served in serving(tmp_path / "served", Settings()):
        remote = served.remote()
        yield Water(spark, remote)
        remote.close()


# Rows


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Collect rows as sorted tuples."""
    return ordered(tuple(row) for row in frame.collect())


def ordered(found: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: [_place(value) for value in row])


def _place(value: object) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    return (2, str(value))


# Files put beside the lake's own


def put_file(
    table: Table,
    path: str,
    content: pa.Table,
    partition_values: Mapping[str, str | None] | None = None,
    *,
    absolute: bool = False,
    stats: str | None = None,
) -> AddFile:
    """Write a data file at a decoded path inside a table; give the action that would add it."""
    target = local(table) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, str(target))
    encoded = encode(path)
    if absolute:
        encoded = f"{table.location}/{encoded}"
    return AddFile(
        path=encoded,
        partition_values=dict(partition_values or {}),
        size=target.stat().st_size,
        modification_time=1_772_000_000_000,
        data_change=True,
        stats=stats or f'{{"numRecords":{content.num_rows}}}',
    )


def commit(table: Table, *actions: Action) -> Committed:
    return table.commit(table.snapshot(), actions, OperationInfo("WRITE", {"mode": "Append"}))


def local(table: Table) -> Path:
    """Give the folder a table lies in."""
    return Path(locations.decode(table.location.removeprefix("file://")))


def listed(table: Table) -> list[str]:
    """List every file in a table's folder that is not of its log."""
    base = local(table)
    return sorted(
        str(path.relative_to(base))
        for path in base.rglob("*")
        if path.is_file() and "_delta_log" not in path.relative_to(base).parts
    )


Listed = Callable[[Table], list[str]]
