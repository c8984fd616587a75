"""The write unit of the SQLite store, which buffers rows where that is safe."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import apsw

from headgate.catalog.stores.port import (
    AnswerRow,
    CatalogClock,
    CommitRow,
    ListenerRow,
    LocationRow,
    RejectionRow,
    StoreConstraintError,
    TableRow,
    TokenRow,
)
from headgate.catalog.stores.reader import TABLE_COLUMNS, Row, as_table, table_values
from headgate.catalog.stores.row_batches import Batches, Values
from headgate.catalog.stores.sqlite_reader import SQLiteReadUnit
from headgate.errors import (
    DamagedError,
    HeadgateError,
    InvalidArgumentError,
    UnavailableError,
)
from headgate.names import SchemaName, TableName, fold
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.log.known_files import KnownFile

_RECORDED: Final = (
    "SELECT txn_id FROM commits WHERE txn_id IN (SELECT value FROM json_each(?)) "
    "UNION SELECT txn_id FROM rejections WHERE txn_id IN (SELECT value FROM json_each(?))"
)
_RECORDED_ONE: Final = (
    "SELECT txn_id FROM commits WHERE txn_id = ? UNION ALL "
    "SELECT txn_id FROM rejections WHERE txn_id = ?"
)
_TABLES_BY_ID: Final = (
    f"SELECT {TABLE_COLUMNS} FROM tables WHERE id IN (SELECT value FROM json_each(?))"
)
_INSERT_COMMIT: Final = f"INSERT INTO commits VALUES ({', '.join('?' * 16)})"
_UNKNOWN: Final = -9  # not even version 0 follows it
_NO_TABLE: Final = TableId("")
_INSERT_TABLE: Final = (
    f"INSERT INTO tables VALUES (NULL, {', '.join('?' * (len(TableRow._fields) - 1))})"
)
_INSERT_SEQUENCES: Final = "INSERT INTO sequences VALUES {}"
_DELETE_EVENTS: Final = (
    "DELETE FROM sequences WHERE sequence <= ? AND sequence < (SELECT max(sequence) FROM sequences)"
)
_INSERT_COMMITS: Final = "INSERT INTO commits VALUES {}"
# Columns that a buffered update never changes are not set: SQLite rewrites the indexes of those
# that are.
_CONSTANT: Final = frozenset({"key", "id", "state", "location", "created_ms", "purged_ms", "kind"})
_UPDATE_TABLES: Final = "INSERT INTO tables VALUES {} ON CONFLICT (key) DO UPDATE SET " + ", ".join(
    f"{field} = excluded.{field}" for field in TableRow._fields if field not in _CONSTANT
)
_RECORD_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = ? WHERE table_key = ? AND version BETWEEN ? AND ? "
    "AND published_ms IS NULL AND way <> 'staged'"
)
_RECORD_STAGED_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = ?, content = NULL WHERE table_key = ? "
    "AND version BETWEEN ? AND ? AND published_ms IS NULL AND way = 'staged'"
)
_ACQUIRE_LEASES: Final = (
    "INSERT INTO leases VALUES {} ON CONFLICT (name) DO UPDATE "
    "SET holder = excluded.holder, until_ms = excluded.until_ms"
)
_LEASE: Final = "SELECT holder, until_ms FROM leases WHERE name = ?"
_RELEASE_LEASE: Final = "DELETE FROM leases WHERE name = ? AND holder = ?"
_UPDATE_TABLE: Final = (
    f"UPDATE tables SET {', '.join(f'{field} = ?' for field in TableRow._fields[1:])} WHERE key = ?"
)


@dataclass(slots=True)
class WriterCache:
    """What a unit has read and written, for the next unit.

    Valid as long as no other connection has written; each unit checks that once it has the lock.
    """

    data_version: int | None = None  # SQLite's count of commits, after the last one of ours
    clock: CatalogClock | None = None
    tables: dict[TableId, TableRow] = field(default_factory=dict)
    ids: dict[int, TableId] = field(default_factory=dict)  # by a table's key
    versions: dict[int, Version] = field(default_factory=dict)  # by a table's key: the last one


class SQLiteWriteUnit(SQLiteReadUnit):
    """A unit that has the write lock: what it read stays valid until it changes it itself."""

    def __init__(self, connection: apsw.Connection, cache: WriterCache) -> None:
        super().__init__(connection)
        self._cache = cache
        self._clock = cache.clock  # with the changes of this unit
        self._tables, self._ids, self._versions = cache.tables, cache.ids, cache.versions
        self._new: set[TxnId] = set()  # prefetched, and not recorded before this unit
        self._unrecorded: set[TxnId] = set()  # those of them that are still not recorded
        self._leases: set[str] = set()  # that this unit acquired or released
        self._inserted: dict[int, Version] = {}  # by a table's key: the first buffered commit
        self._batches = Batches(self._run)
        self._mark: int | None = None  # how many rows were buffered when the savepoint began
        self._is_saved = False  # the database has the savepoint
        self.damage: str | None = None  # found within a savepoint, and raised from it

    def savepoint(self) -> _Savepoint:
        return _Savepoint(self)

    def begin_part(self) -> tuple[CatalogClock | None, bool]:
        """Begin a savepoint; return what `end_part` needs."""
        self.refuse_if_lost()
        if self._mark is not None:  # an enclosing savepoint must be in the database first
            self._send()
        outer = self._mark is not None
        self._mark, self._is_saved = len(self._batches), False
        return self._clock, outer

    def end_part(
        self, began: tuple[CatalogClock | None, bool], error: BaseException | None
    ) -> HeadgateError | None:
        """End a savepoint, or undo it after an error; return that error's translation, if any."""
        clock, outer = began
        try:
            if error is not None:
                self._undo(clock)
                translation = translated(error)
                if isinstance(translation, DamagedError):
                    self.damage = str(error)
                return translation
            if self._is_saved:
                self._connection.execute("RELEASE one")
            return None
        finally:
            self._mark, self._is_saved = (0, True) if outer else (None, False)

    def _undo(self, clock: CatalogClock | None) -> None:
        """Undo what was done since the savepoint, and drop everything cached."""
        mark = self._mark or 0
        if self._is_saved:  # all earlier rows were sent, so every buffered row is later
            mark = 0
        self._batches.drop_after(mark)
        self._mark, self._clock = None, clock
        for cached in (self._tables, self._ids, self._versions, self._new, self._unrecorded):
            cached.clear()
        if self._connection.in_transaction:
            if self._is_saved:
                self._connection.execute("ROLLBACK TO one; RELEASE one")
            self._batches.send()

    def prefetch(self, txn_ids: Collection[TxnId], table_ids: Collection[TableId]) -> None:
        unknown = [txn_id for txn_id in txn_ids if txn_id not in self._new]
        if unknown:
            is_one = len(unknown) == 1  # from a single client; takes half the time
            ids = unknown[0] if is_one else json.dumps(unknown)
            sql = _RECORDED_ONE if is_one else _RECORDED
            recorded = {row[0] for row in self._fetch_unbuffered(sql, ids, ids)}
            new = {txn_id for txn_id in unknown if txn_id not in recorded}
            self._new |= new
            self._unrecorded |= new
        missing = [table_id for table_id in table_ids if table_id not in self._tables]
        if len(missing) == 1:
            self.table(missing[0])
        elif missing:
            for row in self._fetch_unbuffered(_TABLES_BY_ID, json.dumps(missing)):
                self._remember(as_table(row))

    def finish(self) -> None:
        """Write the buffered rows."""
        try:
            self._batches.send()
            self._cache.clock = self._clock
        except StoreConstraintError as error:
            raise UnavailableError(
                f"The catalog's database is inconsistent ({error}); nothing was written.",
                remedy="Run `headgate fsck` and report what it finds.",
            ) from error

    def clock(self) -> CatalogClock:
        if self._clock is None:
            self._clock = super().clock()
        return self._clock

    def table(self, table_id: TableId) -> TableRow | None:
        if table_id not in self._tables:
            rows = self._fetch_unbuffered(
                f"SELECT {TABLE_COLUMNS} FROM tables WHERE id = ?", table_id
            )
            if not rows:
                return None
            self._remember(as_table(rows[0]))
        return self._tables[table_id]

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        return [] if txn_id in self._unrecorded else super().transaction_commits(txn_id)

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        return None if txn_id in self._unrecorded else super().rejection(txn_id)

    def _evict(self, key: int) -> None:
        self._tables.pop(self._ids.pop(key, _NO_TABLE), None)

    def _remember(self, row: TableRow) -> None:
        self._tables[row.id] = row
        self._ids[row.key] = row.id
        self._versions.setdefault(row.key, row.head)

    def _fetch_unbuffered(self, sql: str, *values: object) -> list[Row]:
        """Return rows that no buffered row can have changed."""
        return super()._fetch(sql, *values)

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        self._send()
        return super()._fetch(sql, *values)

    def _fetch_one(self, sql: str, *values: object) -> Row | None:
        self._send()
        return super()._fetch_one(sql, *values)

    def _send(self) -> None:
        """Write the buffered rows: those before the open savepoint, then those within it."""
        if self._mark is None:
            self._batches.send()
            return
        if not self._is_saved:
            self._batches.send(self._mark)
            self._connection.execute("SAVEPOINT one")
            self._is_saved = True
        self._batches.send()

    def refuse_if_lost(self) -> None:
        """Raise if SQLite rolled back the whole unit, as it does on a full disk."""
        if not self._connection.in_transaction:
            raise UnavailableError(
                "The catalog's disk is full or failed: SQLite rolled back the whole unit of work.",
                remedy="Free space, then try again.",
            )

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None:
        values = (*clock, txn_id)
        if self._clock is not None and clock.sequence == self._clock.sequence + 1:
            self._batches.add(_INSERT_SEQUENCES, values)
        else:
            self._write("INSERT INTO sequences VALUES (?, ?, ?)", *values)
        self._clock = clock

    def delete_events(self, last: Sequence) -> None:
        self._write(_DELETE_EVENTS, last)

    def set_setting(self, key: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", key, value)

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None:
        self._write(
            "INSERT INTO namespaces VALUES (?, ?, ?, ?, ?)",
            *name.key,
            name.catalog,
            name.schema,
            now_ms,
        )

    def delete_namespace(self, name: SchemaName) -> None:
        self._write("DELETE FROM namespaces WHERE catalog_key = ? AND schema_key = ?", *name.key)

    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        self._write(
            "INSERT INTO names VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            *(fold(part) for part in (name.catalog, name.schema, name.table)),
            name.catalog,
            name.schema,
            name.table,
            table_id,
            since,
        )

    def release_name(self, table_id: TableId, until: Sequence) -> None:
        self._write(
            "UPDATE names SET to_sequence = ? WHERE table_id = ? AND to_sequence IS NULL",
            until,
            table_id,
        )

    def insert_table(self, row: TableRow) -> TableRow:
        self._write(_INSERT_TABLE, *table_values(row)[1:])
        row = row._replace(key=self._connection.last_insert_rowid())
        self._remember(row)
        return row

    def update_table(self, row: TableRow) -> None:
        known = self._tables.get(row.id)
        if known is not None and _is_conflict_free(row, known) and row.published <= row.head:
            self._batches.add(_UPDATE_TABLES, table_values(row), row.key)
        else:
            self._write(_UPDATE_TABLE, *table_values(row)[1:], row.key)
        self._tables[row.id], self._ids[row.key] = row, row.id

    def insert_commit(self, key: int, row: CommitRow) -> None:
        values = (key, *row[:4], row.way.value, *row[5:])
        is_next = self._versions.get(key, _UNKNOWN) + 1 == row.version
        if is_next and row.txn_id in self._new:
            # A transaction has one commit in a table, so the next version is its first here.
            self._batches.add(_INSERT_COMMITS, values)
            self._inserted.setdefault(key, row.version)
        else:
            self._write(_INSERT_COMMIT, *values)
        self._versions[key] = max(row.version, self._versions.get(key, row.version))
        self._unrecorded.discard(row.txn_id)

    def insert_rejection(self, row: RejectionRow) -> None:
        self._unrecorded.discard(row.txn_id)
        self._write("INSERT INTO rejections VALUES (?, ?, ?, ?)", *row)

    def delete_rejections(self, before_ms: int) -> None:
        self._write("DELETE FROM rejections WHERE decided_ms < ?", before_ms)

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        # Rows of these versions may be buffered: they must be inserted before they are updated.
        if last >= self._inserted.get(key, Version(last + 1)):
            self._send()
        # A published staged commit is in two files and needs no content here; inline content stays.
        for statement in (_RECORD_PUBLISHED, _RECORD_STAGED_PUBLISHED):
            self._batches.add(statement, (now_ms, key, first, last))
        row = self._tables.get(self._ids.get(key, _NO_TABLE))
        if row is None:
            self._write(
                "UPDATE tables SET published = ? WHERE key = ? AND published < ?", last, key, last
            )
        elif row.published < last:
            self.update_table(row._replace(published=last))

    def set_diverged(self, key: int, message: str | None) -> None:
        self._evict(key)
        self._write("UPDATE tables SET diverged = ? WHERE key = ?", message, key)

    def delete_content(self, key: int, upto: Version) -> None:
        self._evict(key)
        self._write(
            "UPDATE commits SET content = NULL WHERE table_key = ? AND version "
            "BETWEEN (SELECT held_from FROM tables WHERE key = ?) AND ?",
            key,
            key,
            upto,
        )
        self._write(
            "UPDATE tables SET held_from = ? WHERE key = ? AND held_from <= ?", upto + 1, key, upto
        )

    def insert_file(self, key: int, file: KnownFile) -> None:
        self._write(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)",
            key,
            file.kind.value,
            file.first,
            file.last,
            json.dumps(file.paths),
        )

    def delete_file(self, key: int, file: KnownFile) -> None:
        self._write(
            "DELETE FROM files WHERE table_key = ? AND kind = ? AND first = ? AND last = ? "
            "AND paths = ?",
            key,
            file.kind.value,
            file.first,
            file.last,
            json.dumps(file.paths),
        )

    def acquire_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool:
        self._send_lease(name)
        for other, other_until_ms in self._fetch_unbuffered(_LEASE, name):
            if other != holder and other_until_ms > now_ms:
                return False
        self._batches.add(_ACQUIRE_LEASES, (name, holder, until_ms))
        return True

    def release_lease(self, name: str, holder: str) -> None:
        self._send_lease(name)
        self._batches.add(_RELEASE_LEASE, (name, holder))

    def _send_lease(self, name: str) -> None:
        """Write earlier changes of a lease before the next one: their order matters."""
        if name in self._leases:
            self._send()
        self._leases.add(name)

    def insert_token(self, row: TokenRow) -> None:
        self._write("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", *row)

    def revoke_token(self, name: str, now_ms: int) -> None:
        self._write(
            "UPDATE tokens SET revoked_ms = ? WHERE name = ? AND revoked_ms IS NULL", now_ms, name
        )

    def insert_answer(self, row: AnswerRow) -> None:
        self._write("INSERT INTO answers VALUES (?, ?, ?, ?)", *row)

    def delete_answers(self, before_ms: int) -> None:
        self._write("DELETE FROM answers WHERE decided_ms < ?", before_ms)

    def put_listener(self, row: ListenerRow) -> None:
        self._write("INSERT OR REPLACE INTO listeners VALUES (?, ?, ?, ?, ?, ?)", *row)

    def delete_listener(self, name: str) -> None:
        self._write("DELETE FROM listeners WHERE name = ?", name)

    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None:
        self._write(
            "UPDATE listeners SET position = max(position, ?), failing = ? WHERE name = ?",
            position,
            failing,
            name,
        )

    def insert_location(self, row: LocationRow) -> None:
        self._write("INSERT INTO locations VALUES (?, ?)", *row)

    def delete_location(self, url: str) -> None:
        self._write("DELETE FROM locations WHERE url = ?", url)

    def _write(self, sql: str, *values: object) -> None:
        self._send()
        self._run(sql, values)

    def _run(self, sql: str, values: Values) -> None:
        self.refuse_if_lost()  # outside of a transaction each statement would commit by itself
        try:
            self._connection.execute(sql, values)
        except apsw.ConstraintError as error:
            raise StoreConstraintError(str(error)) from error
        except (OverflowError, UnicodeError) as error:
            raise InvalidArgumentError(
                f"SQLite cannot store a value: {error}.",
                remedy="Remove lone surrogates, and keep numbers within 64 bits.",
            ) from error


class _Savepoint:
    """A savepoint. Not a generator, which would take longer than deciding a proposal."""

    __slots__ = ("_began", "_unit")

    def __init__(self, unit: SQLiteWriteUnit) -> None:
        self._unit = unit

    def __enter__(self) -> None:
        self._began = self._unit.begin_part()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        translation = self._unit.end_part(self._began, error)
        if translation is not None:
            raise translation from error


def _is_conflict_free(row: TableRow, known: TableRow) -> bool:
    """Return whether only the constraints of versions could reject the change."""
    return (
        row.key == known.key
        and row.location == known.location
        and row.state is known.state
        and row.purged_ms == known.purged_ms
        and row.created_ms == known.created_ms
        and row.kind is known.kind
    )


def translated(error: BaseException) -> HeadgateError | None:
    """Translate an error of SQLite; None if the statement itself was wrong."""
    match error:
        case apsw.FullError():
            return UnavailableError(
                f"The catalog's disk is full: {error}.", remedy="Free space, then try again."
            )
        case apsw.BusyError():
            return UnavailableError(f"The catalog's file is locked by another process: {error}.")
        case apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.AuthError():
            return UnavailableError(f"The catalog's file cannot be read or written: {error}.")
        case apsw.CorruptError() | apsw.NotADBError():
            return DamagedError(f"The catalog's file is damaged: {error}.")
        case _:
            return None
