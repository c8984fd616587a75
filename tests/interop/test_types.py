"""Values of many types, written by each side and read by the other."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headgate.client.session import Session
from tests.interop.conftest import DuckDB, Sail, is_whole
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop
SCHEMA = (
    "id long, i int, s smallint, f float, g double, b boolean, d decimal(10,2), t string, "
    "y date, z timestamp, a array<int>, r struct<x: int, y: string>"
)
OURS = {
    "id": 1,
    "i": 7,
    "s": -3,
    "f": 1.5,
    "g": 2.25,
    "b": True,
    "d": Decimal("12.34"),
    "t": "grün",
    "y": date(2026, 3, 1),
    "z": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    "a": [1, 2, None],
    "r": {"x": 5, "y": "in"},
}
NULLS = {name: 2 if name == "id" else None for name in OURS}
TEXT = "SELECT CAST(id AS {s}), CAST(i AS {s}), CAST(d AS {s}), t, CAST(y AS {s}) FROM {t} "
EXPECTED = [("1", "7", "12.34", "grün", "2026-03-01"), ("2", None, None, None, None)]


def fill(session: Session) -> None:
    session.create_table("t", SCHEMA)
    table = session.table("t")
    schema = table.to_arrow().schema
    table.append(pa.Table.from_pylist([OURS, NULLS], schema=schema))


def test_duckdb_reads_what_we_wrote_and_we_read_what_it_copies(
    server: RunningServer, session: Session
) -> None:
    fill(session)
    with DuckDB(server.address) as duckdb:
        types = duckdb.sql(TEXT.format(s="VARCHAR", t="lake.default.t") + "ORDER BY 1")
        assert types == EXPECTED
        duckdb.sql("CREATE TABLE kept AS SELECT * REPLACE (id + 10 AS id) FROM lake.default.t")
        duckdb.sql("INSERT INTO lake.default.t SELECT * FROM kept")
    rows = session.table("t").to_arrow().sort_by("id").to_pylist()
    assert rows == [OURS, NULLS, {**OURS, "id": 11}, {**NULLS, "id": 12}]
    assert is_whole(server)


def test_sail_reads_what_we_wrote_and_we_read_what_it_copies(
    server: RunningServer, session: Session
) -> None:
    fill(session)
    columns = ", ".join(name for name in OURS if name != "id")
    with Sail(server.address) as sail:
        assert sail.sql(TEXT.format(s="STRING", t="default.t") + "ORDER BY 1") == EXPECTED
        sail.sql(f"INSERT INTO default.t SELECT id + 10, {columns} FROM default.t")
    rows = session.table("t").to_arrow().sort_by("id").to_pylist()
    assert rows == [OURS, NULLS, {**OURS, "id": 11}, {**NULLS, "id": 12}]
    assert is_whole(server)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_by_both(
    server: RunningServer, session: Session, mode: str
) -> None:
    session.create_table("t", "id long, who string", properties={"delta.columnMapping.mode": mode})
    session.table("t").append(pa.table({"id": [1], "who": ["us"]}))
    with DuckDB(server.address) as duckdb, Sail(server.address) as sail:
        assert duckdb.sql("SELECT * FROM lake.default.t") == [(1, "us")]
        assert sail.sql("SELECT * FROM default.t") == [(1, "us")]
