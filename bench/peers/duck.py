"""DuckDB with its `delta` extension from PyPI, as it comes: opened by path, on a plain log."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb_extensions import import_extension  # type: ignore[import-untyped]  # it has none

from bench.watch import Seen, fingerprint

NAME = "DuckDB delta"
REQUIRES = "duckdb==1.5.5, duckdb-extension-delta==1.5.5"


def connect() -> duckdb.DuckDBPyConnection:
    """Connect with the extension loaded, which stands for its import."""
    import_extension("delta")
    connection = duckdb.connect()
    connection.load_extension("delta")
    return connection


def plan(connection: duckdb.DuckDBPyConnection, root: str) -> str:
    """Plan a scan of the whole table, for which DuckDB loads the log and every file's entry."""
    [(_, plan)] = connection.execute("EXPLAIN FROM delta_scan($root)", {"root": root}).fetchall()
    return str(plan)


def list_files(connection: duckdb.DuckDBPyConnection, root: str) -> pa.Table:
    """Return the files that a scan of the table would read."""
    return connection.execute("FROM delta_list_files(?)", [root]).to_arrow_table()


def seen(files: pa.Table, root: str) -> Seen:
    """Sum up the files found."""
    prefix = f"{root.rstrip('/')}/"
    return Seen(
        rows=files.num_rows,
        checksum=fingerprint(path.removeprefix(prefix) for path in files["data_file"].to_pylist()),
        records=pc.sum(files["cardinality"]).as_py(),
    )
