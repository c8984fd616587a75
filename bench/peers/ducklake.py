"""DuckLake, DuckDB's own lake format: its metadata in a file that DuckDB syncs, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import duckdb
from duckdb_extensions import import_extension  # type: ignore[import-untyped]  # it has none

NAME = "DuckLake"
REQUIRES = "duckdb==1.5.5, duckdb-extension-ducklake==1.5.5"
TABLE = "lake.bench"


def connect(place: str) -> duckdb.DuckDBPyConnection:
    """Make a lake with one empty table; others connect by cursors."""
    import_extension("ducklake")
    root = Path(place)
    (root / "data").mkdir(parents=True)
    connection = duckdb.connect()
    connection.load_extension("ducklake")
    connection.execute(
        f"ATTACH 'ducklake:{root}/metadata.ducklake' AS lake (DATA_PATH '{root}/data')"
    )
    connection.execute(f"CREATE TABLE {TABLE} (id BIGINT, name VARCHAR)")
    return connection


def connect_postgres(place: str, address: str, *, inlines: bool) -> duckdb.DuckDBPyConnection:
    """Make a lake whose metadata is in PostgreSQL, and with `inlines` small inserts, too."""
    import_extension("ducklake")
    import_extension("postgres_scanner")
    connection = duckdb.connect()
    connection.load_extension("ducklake")
    connection.load_extension("postgres_scanner")
    more = "" if inlines else ", DATA_INLINING_ROW_LIMIT 0"
    connection.execute(
        f"ATTACH 'ducklake:postgres:{address}' AS lake (DATA_PATH '{place}/data'{more})"
    )
    connection.execute(f"CREATE TABLE {TABLE} (id BIGINT, name VARCHAR, amount DOUBLE)")
    return connection


def insert(connection: duckdb.DuckDBPyConnection, first: int, count: int) -> None:
    """Insert rows of consecutive numbers."""
    connection.execute(
        f"INSERT INTO {TABLE} SELECT range, 'name ' || range, range / 4 FROM range(?, ?)",
        [first, first + count],
    )


def prepare(connection: duckdb.DuckDBPyConnection, place: str, number: int) -> str:
    """Write a file of one row, to be registered."""
    path = f"{place}/data/prepared-{number}.parquet"
    connection.execute(f"COPY (SELECT {number}::BIGINT AS id, 'x' AS name) TO '{path}'")
    return path


def append(connection: duckdb.DuckDBPyConnection, path: str, table: str = "bench") -> None:
    """Register a file that is there already."""
    connection.execute("CALL ducklake_add_data_files('lake', ?, ?)", [table, path])


def rows(connection: duckdb.DuckDBPyConnection) -> int:
    """Count the rows."""
    [[count]] = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchall()
    return int(count)
