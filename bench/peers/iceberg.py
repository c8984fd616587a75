"""pyiceberg with its SQL catalog on SQLite, as it comes, and made as durable as we are."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import text

NAME = "pyiceberg"
REQUIRES = "pyiceberg[sql-sqlite]==0.12.0"

_FULL = 2


def new_table(place: str) -> tuple[SqlCatalog, Table]:
    """Make a catalog and a table in it; SQLite must sync each commit."""
    warnings.simplefilter("ignore")
    root = Path(place)
    root.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    with catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == _FULL
    catalog.create_namespace("bench")
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "name", StringType(), required=False),
    )
    return catalog, catalog.create_table("bench.bench", schema)


def set_property(table: Table, key: str, value: str) -> None:
    """Commit a change of metadata and nothing else."""
    with table.transaction() as transaction:
        transaction.set_properties({key: value})


def sync_metadata(table: Table) -> None:
    """Make the metadata file it wrote outlive a power loss, which it leaves to chance."""
    path = Path(table.metadata_location.removeprefix("file://"))
    for found in (path, path.parent):
        descriptor = os.open(found, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def property_of(catalog: SqlCatalog, key: str) -> Any:
    """Read a property back, from the catalog and the file it names."""
    return catalog.load_table("bench.bench").properties.get(key)
