"""DuckDB with its `unity_catalog` extension from PyPI, as a client of a catalog's server."""

from __future__ import annotations

import importlib.util

import duckdb
from duckdb_extensions import import_extension  # type: ignore[import-untyped]  # it has none

REQUIRES = "duckdb==1.5.5, duckdb-extension-unity-catalog==1.5.5, duckdb-extension-httpfs==1.5.5"
API = "/api/2.1/unity-catalog"

_EXTENSIONS = ("httpfs", "delta", "unity_catalog")


def lacking() -> list[str]:
    """Return what is not installed."""
    missing = [
        name for name in _EXTENSIONS if importlib.util.find_spec(f"duckdb_extension_{name}") is None
    ]
    return [f"DuckDB through the Unity API: not run, no {name} extension" for name in missing]


def attach(address: str, catalog: str) -> duckdb.DuckDBPyConnection:
    """Connect, with a catalog of a server attached as `lake`."""
    for name in _EXTENSIONS:
        import_extension(name)
    connection = duckdb.connect()
    for name in _EXTENSIONS:
        connection.load_extension(name)
    connection.execute(
        f"CREATE SECRET (TYPE unity_catalog, TOKEN 'none', ENDPOINT '{address}', AWS_REGION 'none')"
    )
    connection.execute(f"ATTACH '{catalog}' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 'default')")
    return connection


def paths(catalog: str, table: str) -> list[str]:
    """Return what DuckDB asks for when it opens a table."""
    tables = f"{API}/tables?catalog_name={catalog}&schema_name=default"
    return [f"{API}/schemas?catalog_name={catalog}", tables, table_path(catalog, table)]


def table_path(catalog: str, table: str) -> str:
    """Return where a table is loaded, and committed to."""
    return f"{API}/delta/v1/catalogs/{catalog}/schemas/default/tables/{table}"
