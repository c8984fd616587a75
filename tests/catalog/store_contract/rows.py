"""Rows of every kind, and short ways to write and read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import CommitRow, TableRow
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.table_states import TableStatus
from tests.kit.builders import START_MS

OpenStore = Callable[[str], CatalogStore]  # the same name, the same rows
SCHEMA = SchemaName("main", "default")


class UndoneError(Exception):
    """Raised to have a unit or a savepoint rolled back."""


def table_id(number: int) -> TableId:
    return TableId(str(UUID(int=number)))


def table_row(number: int = 1, **changed: Any) -> TableRow:
    """Return a table without commits; the store assigns its `key`."""
    row = TableRow(
        key=0,
        id=table_id(number),
        state=TableStatus.ACTIVE,
        location=f"file:///lake/tables/{number}",
        head=Version(-1),
        timestamp_ms=0,
        published=Version(-1),
        held_from=Version(0),
        protocol=b"{}",
        metadata=b"{}",
        metadata_version=Version(-1),
        domains=b"[]",
        row_id_high_water=None,
        num_files=None,
        size_bytes=None,
        diverged=None,
        ticket=None,
        ticket_until_ms=0,
        created_ms=START_MS,
        dropped_ms=None,
    )
    return row._replace(**changed)


def commit_row(version: int, sequence: int = 0, txn: str = "", **changed: Any) -> CommitRow:
    row = CommitRow(
        version=Version(version),
        sequence=Sequence(sequence or version + 1),
        timestamp_ms=START_MS + version,
        txn_id=TxnId(txn or f"txn-{version}"),
        way=Way.INLINE,
        file_name=None,
        size=7,
        sha256=bytes(32),
        modified_ms=None,
        intent=b"intent",
        proposed_ms=START_MS + version,
        ratified_ms=START_MS + version + 1,
        published_ms=None,
        summary=b"summary %d" % version,
        content=b"content %d" % version,
    )
    return row._replace(**changed)


def name(text: str) -> TableName:
    return TableName.parse(text)


def insert(store: CatalogStore, *numbers: int) -> list[TableRow]:
    with store.write() as unit:
        return [unit.insert_table(table_row(number)) for number in numbers]


def insert_commits(
    store: CatalogStore, row: TableRow, *commits: CommitRow, published: int = -1
) -> TableRow:
    """Insert commits and update the table's head."""
    with store.write() as unit:
        for commit in commits:
            unit.insert_commit(row.key, commit)
        last = commits[-1]
        row = row._replace(
            head=last.version, timestamp_ms=last.timestamp_ms, published=Version(published)
        )
        unit.update_table(row)
    return row


def found(store: CatalogStore, number: int = 1) -> TableRow:
    with store.read() as unit:
        row = unit.table(table_id(number))
    assert row is not None
    return row
