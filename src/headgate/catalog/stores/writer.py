"""Every write of a unit, with SQL that SQLite and PostgreSQL both run.

Statements are executed at once. Placeholders are as in `reader`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from headgate.catalog.stores.reader import ReadUnit, Row, table_values
from headgate.catalog.stores.rows import (
    AnswerRow,
    Batch,
    CatalogClock,
    CommitRow,
    Epoch,
    ListenerRow,
    LocationRow,
    RejectionRow,
    StoreConstraintError,
    TableRow,
    TokenRow,
)
from headgate.errors import HeadgateError, UnavailableError
from headgate.names import SchemaName, TableName, fold
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.log.known_files import KnownFile


def _insert(table: str, count: int, rest: str = "") -> str:
    return f"INSERT INTO {table} VALUES ({_places(count)}){rest}"


def _places(count: int) -> str:
    return ", ".join(f"${number}" for number in range(1, count + 1))


_COLUMNS: Final = TableRow._fields[1:]
_INSERT_TABLE: Final = (
    f"INSERT INTO tables ({', '.join(_COLUMNS)}) VALUES ({_places(len(_COLUMNS))}) RETURNING key"
)
_UPDATE_TABLE: Final = (
    f"UPDATE tables SET {', '.join(f'{column} = ${n}' for n, column in enumerate(_COLUMNS, 1))} "
    f"WHERE key = ${len(_COLUMNS) + 1}"
)
_INSERT_COMMIT: Final = _insert("commits", 1 + len(CommitRow._fields))
# A published staged commit is in two files and needs no content here; inline content stays.
_PUBLISH_COMMITS: Final = (
    "UPDATE commits SET published_ms = $1, content = CASE way WHEN 'staged' THEN NULL "
    "ELSE content END WHERE table_key = $2 AND version BETWEEN $3 AND $4 AND published_ms IS NULL"
)
_PUBLISH_TABLE: Final = "UPDATE tables SET published = $1 WHERE key = $2 AND published < $1"
_DELETE_CONTENT: Final = (
    "UPDATE commits SET content = NULL WHERE table_key = $1 AND version "
    "BETWEEN (SELECT held_from FROM tables WHERE key = $1) AND $2"
)
_INSERT_FILE: Final = _insert(
    "files", 5, " ON CONFLICT (table_key, kind, last, first) DO UPDATE SET paths = excluded.paths"
)
_ACQUIRE_LEASE: Final = _insert(
    "leases",
    3,
    " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms "
    "WHERE leases.holder = excluded.holder OR leases.until_ms <= $4 RETURNING 1",
)
_ACQUIRE_LEASES: Final = (
    "WITH names AS (SELECT value FROM {texts}) "
    "INSERT INTO leases SELECT value, CAST($2 AS text), CAST($3 AS bigint) FROM names WHERE true "
    "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms "
    "WHERE leases.holder = excluded.holder OR leases.until_ms <= $4 RETURNING name"
)
_PUT_LISTENER: Final = _insert(
    "listeners",
    6,
    " ON CONFLICT (name) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in ListenerRow._fields[1:]),
)
_ADVANCE_LISTENER: Final = (
    "UPDATE listeners SET position = CASE WHEN position < $1 THEN $1 ELSE position END, "
    "failing = $2 WHERE name = $3"
)


class WriteUnit(ReadUnit):
    """A unit that changes the catalog: all of it is applied, or nothing.

    It has the lock of all writers. It increments the epoch if it changed anything but leases,
    tokens, answers, listeners and settings, or deleted old events and rejections.
    """

    # Takes a sequence: its number, the catalog's time, and the txnId
    tick: ClassVar[str]
    # Counts a change that took no sequence
    count_change: ClassVar[str]

    def __init__(self) -> None:
        self.has_written = False
        self.sequence: Sequence | None = None  # the last one that this unit took
        self._has_changed = False  # something that deciding may depend on

    @abstractmethod
    def _run(self, sql: str, *values: object) -> tuple[int, list[Row]]:
        """Execute a change; return how many rows it changed, and the rows that it returns."""

    @abstractmethod
    def lost(self) -> HeadgateError | None:
        """Return the reason if the database has rolled back the whole unit."""

    def refuse_if_lost(self) -> None:
        """Raise if the database has rolled back the whole unit."""
        if (reason := self.lost()) is not None:
            raise reason

    def finish(self) -> None:
        """Count the unit, as its last action."""
        self.refuse_if_lost()
        if self._is_counted():
            self._run(self.count_change)

    def _is_counted(self) -> bool:
        return self._has_changed and self.sequence is None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Begin a part of the unit that is undone by itself if it raises."""
        before = self.sequence, self._has_changed
        self._run("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self.sequence, self._has_changed = before
            if self.lost() is None:
                self._run("ROLLBACK TO SAVEPOINT part")
                self._run("RELEASE SAVEPOINT part")
            raise
        self._run("RELEASE SAVEPOINT part")

    def _change(self, sql: str, *values: object) -> list[Row]:
        """Run a statement; what it changes, deciding may depend on."""
        count, rows = self._run(sql, *values)
        if count:
            self.has_written = self._has_changed = True
        return rows

    def _write(self, sql: str, *values: object) -> list[Row]:
        """Run a statement whose changes are of no interest to decisions."""
        count, rows = self._run(sql, *values)
        if count:
            self.has_written = True
        return rows

    # Clock and events

    def epoch(self) -> Epoch:
        sequence, changes = super().epoch()
        return Epoch(sequence, changes + self._is_counted())

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None:
        """Take the next sequence, on behalf of a transaction if there is one."""
        self._write(self.tick, *clock, txn_id)
        self.sequence = clock.sequence

    def delete_events(self, last: Sequence) -> None:
        """Delete the events up to a sequence, except for the newest of all."""
        self._write(
            "DELETE FROM sequences WHERE sequence <= $1 "
            "AND sequence < (SELECT max(sequence) FROM sequences)",
            last,
        )

    # Namespaces and names

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None:
        """Create a namespace."""
        self._change(_insert("namespaces", 5), *name.key, name.catalog, name.schema, now_ms)

    def delete_namespace(self, name: SchemaName) -> None:
        """Delete a namespace."""
        self._change("DELETE FROM namespaces WHERE catalog_key = $1 AND schema_key = $2", *name.key)

    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        """Give a name to a table, from a sequence on."""
        parts = (name.catalog, name.schema, name.table)
        self._change(_insert("names", 9), *map(fold, parts), *parts, table_id, since, None)

    def release_name(self, table_id: TableId, until: Sequence) -> None:
        """End the use of a table's name at a sequence."""
        self._change(
            "UPDATE names SET to_sequence = $1 WHERE table_id = $2 AND to_sequence IS NULL",
            until,
            table_id,
        )

    # Tables

    def insert_table(self, row: TableRow) -> TableRow:
        """Insert a table; return it with the key that the store gave it."""
        [[key]] = self._change(_INSERT_TABLE, *table_values(row)[1:])
        return row._replace(key=key)

    def update_table(self, row: TableRow) -> None:
        """Replace a table's row."""
        self._change(_UPDATE_TABLE, *table_values(row)[1:], row.key)

    def set_diverged(self, key: int, message: str | None) -> None:
        """Record why publishing a table stopped, or that it may go on."""
        self._change("UPDATE tables SET diverged = $1 WHERE key = $2", message, key)

    # Commits, rejections and files

    def insert_commit(self, key: int, row: CommitRow) -> None:
        """Insert a ratified commit."""
        self._change(_INSERT_COMMIT, *commit_values(key, row))

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        """Record that versions are published, and delete the content of staged commits."""
        self._write(_PUBLISH_COMMITS, now_ms, key, first, last)
        self._change(_PUBLISH_TABLE, last, key)

    def delete_content(self, key: int, upto: Version) -> None:
        """Delete the content of commits up to a version: only the log has it from then on."""
        self._change(_DELETE_CONTENT, key, upto)
        self._change(
            "UPDATE tables SET held_from = $1 WHERE key = $2 AND held_from < $1", upto + 1, key
        )

    def insert_rejection(self, row: RejectionRow) -> None:
        """Record a rejection."""
        self._change(_insert("rejections", 4), *row)

    def delete_rejections(self, before_ms: int) -> None:
        """Delete the rejections decided before a time."""
        self._write("DELETE FROM rejections WHERE decided_ms < $1", before_ms)

    def insert_file(self, key: int, file: KnownFile) -> None:
        """Record a checkpoint, compaction or checksum, in place of one for the same versions."""
        self._change(_INSERT_FILE, *_file_values(key, file))

    def delete_file(self, key: int, file: KnownFile) -> None:
        """Delete the record of a file, unless another one was recorded in its place."""
        self._change(
            "DELETE FROM files WHERE table_key = $1 AND kind = $2 AND first = $3 AND last = $4 "
            "AND paths = $5",
            *_file_values(key, file),
        )

    @abstractmethod
    def write_batch(self, batch: Batch) -> None:
        """Write what was decided on rows that this unit read."""

    # Leases, and what a server stores for its clients

    def acquire_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool:
        """Take or renew a lease; return False if another holder has it."""
        return bool(self._write(_ACQUIRE_LEASE, name, holder, until_ms, now_ms))

    def acquire_leases(
        self, names: Collection[str], holder: str, now_ms: int, until_ms: int
    ) -> set[str]:
        """Take or renew many leases; return those that no other holder has."""
        sql = _ACQUIRE_LEASES.format(texts=self.texts)
        return {row[0] for row in self._write(sql, self._texts(names), holder, until_ms, now_ms)}

    def release_lease(self, name: str, holder: str) -> None:
        """End a lease, if this holder has it."""
        self.release_leases([name], holder)

    def release_leases(self, names: Collection[str], holder: str) -> None:
        """End those of many leases that this holder has."""
        sql = f"DELETE FROM leases WHERE name {self.among} AND holder = $2"
        self._write(sql, self._texts(names), holder)

    def set_setting(self, key: str, value: str) -> None:
        """Change a setting of the catalog."""
        sql = _insert("settings", 2, " ON CONFLICT (key) DO UPDATE SET value = excluded.value")
        self._write(sql, key, value)

    def insert_token(self, row: TokenRow) -> None:
        """Insert an access token."""
        self._write(_insert("tokens", 5), *row)

    def revoke_token(self, name: str, now_ms: int) -> None:
        """Revoke an access token, unless it is revoked already."""
        self._write(
            "UPDATE tokens SET revoked_ms = $1 WHERE name = $2 AND revoked_ms IS NULL", now_ms, name
        )

    def insert_answer(self, row: AnswerRow) -> None:
        """Record the answer to a request."""
        self._write(_insert("answers", 4), *row)

    def delete_answers(self, before_ms: int) -> None:
        """Delete the answers given before a time."""
        self._write("DELETE FROM answers WHERE decided_ms < $1", before_ms)

    def put_listener(self, row: ListenerRow) -> None:
        """Insert or replace a listener."""
        self._write(_PUT_LISTENER, *row)

    def delete_listener(self, name: str) -> None:
        """Delete a listener."""
        self._write("DELETE FROM listeners WHERE name = $1", name)

    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None:
        """Record what was delivered to a listener, and why delivery stopped if it did."""
        self._write(_ADVANCE_LISTENER, position, failing, name)

    def insert_location(self, row: LocationRow) -> None:
        """Allow a location outside of the lake's root."""
        self._change(_insert("locations", 2), *row)

    def delete_location(self, url: str) -> None:
        """Stop allowing a location."""
        self._change("DELETE FROM locations WHERE url = $1", url)


@contextmanager
def consistent() -> Iterator[None]:
    """Translate the violation of a constraint by rows that were decided on the stored ones."""
    try:
        yield
    except StoreConstraintError as error:
        raise UnavailableError(
            f"The catalog's database is inconsistent ({error}); nothing was written.",
            remedy="Run `headgate fsck` and report what it finds.",
        ) from error


def commit_values(key: int, row: CommitRow) -> tuple[object, ...]:
    """Return the columns of a commit."""
    return (key, *row[:4], row.way.value, *row[5:])


def decided_values(batch: Batch) -> list[tuple[object, ...]]:
    """Return the key and the decided columns of each table of a batch, with None for "unchanged".

    Protocol and metadata, which may be large, change only with a commit that says so.
    """
    versions = {(key, row.version) for key, row in batch.commits}
    return [
        (
            row.key,
            row.head,
            row.timestamp_ms,
            *((row.protocol, row.metadata) if is_changed else (None, None)),
            row.metadata_version,
            row.domains,
            row.row_id_high_water,
            row.num_files,
            row.size_bytes,
            row.ticket,
            row.ticket_until_ms,
        )
        for row in batch.tables
        for is_changed in ((row.key, row.metadata_version) in versions,)
    ]


def _file_values(key: int, file: KnownFile) -> tuple[object, ...]:
    return (key, file.kind.value, file.first, file.last, json.dumps(file.paths))
