"""Create long histories and many tables cheaply: rows are inserted through the store's port.

A few commits and tables are real, made by the catalog; the others are copies of them. Their files
are never read: a checkpoint covers them, or no one opens those tables.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from bench.prepared import NAME, SCHEMA, Prepared, add_file, append_inline, kept
from headgate._connect import connect, open_store
from headgate.catalog.stores.rows import CatalogClock, CommitRow, TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.clock import RandomIds, SystemClock
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName
from headgate.protocol.actions import RemoveFile, Sequence, TableId, TxnId, Version, encode
from headgate.settings import Settings

TAIL = 5  # real commits above the checkpoint

_UNIT = 5_000  # rows in one unit of work
_AGO_MS = 3600 * 1000  # so that the newest timestamp of a long history is not ahead of the clock


class PastClock(SystemClock):
    """A clock that is an hour slow."""

    def now_ms(self) -> int:
        return super().now_ms() - _AGO_MS


def history(commits: int, *, in_log: bool = False) -> Prepared:
    """Return a table of many commits with one live file, a checkpoint and a few commits above it.

    The log has the files of the newest commits only, or with `in_log` of all.
    """

    def build(place: Path) -> None:
        lake = str(place / "lake")
        with _session(lake) as session:
            table = session.create_table(NAME, SCHEMA, partition_by=["day"])
            append_inline(session, table, range(1))
            table_id = table.id
        _extend(lake, table_id, commits - TAIL, in_log=in_log)
        with _session(lake) as session:
            table = session.table(NAME)
            table.publish()
            table.checkpoint()
            _grow(session, table)
            table.publish()

    name = f"log-{commits}" if in_log else f"history-{commits}"
    return kept(name, build, Path(__file__))


def tables(count: int) -> Prepared:
    """Return a lake of many tables, of which the first is real."""

    def build(place: Path) -> None:
        lake = str(place / "lake")
        with _session(lake) as session:
            table_id = session.create_table(NAME, SCHEMA, partition_by=["day"]).id
            session.table(NAME).publish()
        _multiply(lake, table_id, count)

    return kept(f"tables-{count}", build, Path(__file__))


def name_of(number: int) -> str:
    """Return the name of a table in a lake of many."""
    return NAME if number == 0 else f"{NAME}{number}"


def _session(lake: str) -> Session:
    Path(lake).parent.mkdir(parents=True, exist_ok=True)
    settings = Settings(verify_staged=0, unpublished_hard=10**9)
    return connect(lake, publisher=False, settings=settings, clock=PastClock())


def _grow(session: Session, table: Table) -> None:
    """Commit a few times as a client does; each commit adds another file."""
    for number in range(TAIL):
        append_inline(session, table, range(10**6 + number, 10**6 + number + 1))


def _extend(lake: str, table_id: TableId, last: int, *, in_log: bool) -> None:
    """Clone a table's first append up to a version: a file comes, and the one before goes."""
    clock = PastClock()
    store, _ = open_store(lake, clock)
    ids = RandomIds(clock)
    try:
        for first in range(2, last + 1, _UNIT):
            with store.write() as unit:
                row = unit.table(table_id)
                assert row is not None
                [model] = unit.commits(row.key, Version(1), Version(1), content=True, summary=True)
                for version in range(first, min(last + 1, first + _UNIT)):
                    row = _clone(unit, row, model, version, TxnId(str(ids.ordered())))
                unit.update_table(row)
        if in_log:
            return
        with store.write() as unit:
            row = unit.table(table_id)
            assert row is not None
            # The last one is really published: a checkpoint needs its version in the log.
            last_likeness = Version(row.head - 1)
            unit.record_published(row.key, Version(0), last_likeness, clock.now_ms())
    finally:
        store.close()


def _clone(
    unit: WriteUnit, row: TableRow, model: CommitRow, version: int, txn_id: TxnId
) -> TableRow:
    timestamp_ms = row.timestamp_ms + 1
    before = add_file(version - 2)
    gone = RemoveFile(
        path=before.path,
        deletion_timestamp=timestamp_ms,
        data_change=True,
        extended_file_metadata=True,
        partition_values=before.partition_values,
        size=before.size,
    )
    assert model.content is not None
    info = model.content.splitlines()[0]
    info = info.replace(str(model.timestamp_ms).encode(), str(timestamp_ms).encode())
    info = info.replace(model.txn_id.encode(), txn_id.encode())
    content = b"\n".join([info, encode(gone), encode(add_file(version - 1)), b""])
    sequence = Sequence(unit.clock().sequence + 1)
    unit.insert_commit(
        row.key,
        model._replace(
            version=Version(version),
            sequence=sequence,
            timestamp_ms=timestamp_ms,
            txn_id=txn_id,
            size=len(content),
            sha256=hashlib.sha256(content).digest(),
            content=content,
        ),
    )
    unit.advance_clock(CatalogClock(sequence, timestamp_ms), txn_id)
    return row._replace(
        head=Version(version),
        timestamp_ms=timestamp_ms,
        num_files=1,
        size_bytes=add_file(version - 1).size,
    )


def _multiply(lake: str, table_id: TableId, count: int) -> None:
    """Clone a table with its version 0 under other names."""
    clock = PastClock()
    store, _ = open_store(lake, clock)
    ids = RandomIds(clock)
    try:
        for first in range(1, count, _UNIT):
            with store.write() as unit:
                model = unit.table(table_id)
                assert model is not None
                [zero] = unit.commits(model.key, Version(0), Version(0), content=True, summary=True)
                for number in range(first, min(count, first + _UNIT)):
                    other, txn_id = TableId(str(ids.random())), TxnId(str(ids.ordered()))
                    sequence = Sequence(unit.clock().sequence + 1)
                    row = unit.insert_table(
                        model._replace(
                            id=other,
                            location=model.location.replace(table_id, other),
                            metadata=model.metadata.replace(table_id.encode(), other.encode()),
                        )
                    )
                    name = TableName(DEFAULT_CATALOG, DEFAULT_SCHEMA, name_of(number))
                    unit.assign_name(name, other, sequence)
                    unit.insert_commit(row.key, zero._replace(sequence=sequence, txn_id=txn_id))
                    unit.advance_clock(CatalogClock(sequence, unit.clock().clock_ms), txn_id)
    finally:
        store.close()
