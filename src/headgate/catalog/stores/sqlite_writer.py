"""What changes the SQLite store: one write transaction, statements gathered where that is safe."""

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
    UnavailableError,
)
from headgate.names import SchemaName, TableName, fold
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.log.known_files import KnownFile

_HEARD_OF: Final = (
    "SELECT txn_id FROM commits WHERE txn_id IN (SELECT value FROM json_each(?)) "
    "UNION SELECT txn_id FROM rejections WHERE txn_id IN (SELECT value FROM json_each(?))"
)
_HEARD_OF_ONE: Final = (
    "SELECT txn_id FROM commits WHERE txn_id = ? UNION ALL "
    "SELECT txn_id FROM rejections WHERE txn_id = ?"
)
_TABLES_BY_ID: Final = (
    f"SELECT {TABLE_COLUMNS} FROM tables WHERE id IN (SELECT value FROM json_each(?))"
)
_INSERT_COMMIT: Final = f"INSERT INTO commits VALUES ({', '.join('?' * 16)})"
_UNKNOWN: Final = -9  # no version follows it
_NOBODY: Final = TableId("")
_INSERT_TABLE: Final = (
    f"INSERT INTO tables VALUES (NULL, {', '.join('?' * (len(TableRow._fields) - 1))})"
)
_INSERT_SEQUENCES: Final = "INSERT INTO sequences VALUES {}"
_FORGET_EVENTS: Final = (
    "DELETE FROM sequences WHERE sequence <= ? AND sequence < (SELECT max(sequence) FROM sequences)"
)
_INSERT_COMMITS: Final = "INSERT INTO commits VALUES {}"
# What never changes with it is not set: for a column that is, SQLite writes its indexes anew.
_STEADY: Final = frozenset({"key", "id", "state", "location", "created_ms", "purged_ms", "kind"})
_UPDATE_TABLES: Final = "INSERT INTO tables VALUES {} ON CONFLICT (key) DO UPDATE SET " + ", ".join(
    f"{field} = excluded.{field}" for field in TableRow._fields if field not in _STEADY
)
_RECORD_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = ? WHERE table_key = ? AND version BETWEEN ? AND ? "
    "AND published_ms IS NULL AND way <> 'staged'"
)
_RECORD_STAGED_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = ?, content = NULL WHERE table_key = ? "
    "AND version BETWEEN ? AND ? AND published_ms IS NULL AND way = 'staged'"
)
_TAKE_LEASES: Final = (
    "INSERT INTO leases VALUES {} ON CONFLICT (name) DO UPDATE "
    "SET holder = excluded.holder, until_ms = excluded.until_ms"
)
_LEASE: Final = "SELECT holder, until_ms FROM leases WHERE name = ?"
_END_LEASE: Final = "DELETE FROM leases WHERE name = ? AND holder = ?"
_UPDATE_TABLE: Final = (
    f"UPDATE tables SET {', '.join(f'{field} = ?' for field in TableRow._fields[1:])} WHERE key = ?"
)


@dataclass(slots=True)
class Known:
    """What a unit left behind, and the next one need not ask for.

    It holds as long as SQLite says that no other connection has written, which is asked under the
    lock of every unit.
    """

    data_version: int | None = None  # SQLite's count of commits seen, after the last of ours
    clock: CatalogClock | None = None
    tables: dict[TableId, TableRow] = field(default_factory=dict)
    ids: dict[int, TableId] = field(default_factory=dict)  # by a table's key
    taken: dict[int, Version] = field(default_factory=dict)  # by a table's key: the last one


class SQLiteWriteUnit(SQLiteReadUnit):
    """While it lasts nobody else writes: what it read stays true until it changes it itself."""

    def __init__(self, connection: apsw.Connection, known: Known) -> None:
        super().__init__(connection)
        self._known = known
        self._clock = known.clock  # as this unit will leave it
        self._tables, self._ids, self._taken = known.tables, known.ids, known.taken
        self._fresh: set[TxnId] = set()  # expected, and nothing was recorded of them
        self._unheard_of: set[TxnId] = set()  # of these nothing is, to this moment
        self._leases: set[str] = set()  # that this unit took or ended
        self._inserted: dict[int, Version] = {}  # by a table's key: the first commit gathered
        self._batches = Batches(self._run)
        self._mark: int | None = None  # how much was gathered when the savepoint began
        self._is_saved = False  # the savepoint stands in the database
        self.damage: str | None = None  # met by a part of the unit, whose caller was told

    def savepoint(self) -> _Savepoint:
        return _Savepoint(self)

    def begin_part(self) -> tuple[CatalogClock | None, bool]:
        """Begin what may be undone by itself; give what it takes to end it."""
        self.refuse_if_lost()
        if self._mark is not None:  # within another, which then has to stand first
            self._send()
        outer = self._mark is not None
        self._mark, self._is_saved = len(self._batches), False
        return self._clock, outer

    def end_part(
        self, began: tuple[CatalogClock | None, bool], error: BaseException | None
    ) -> HeadgateError | None:
        """End it, or undo it for an error; give that error in our words, if it needs any."""
        clock, outer = began
        try:
            if error is not None:
                self._undo(clock)
                said = translated(error)
                if isinstance(said, DamagedError):
                    self.damage = str(error)
                return said
            if self._is_saved:
                self._connection.execute("RELEASE one")
            return None
        finally:
            self._mark, self._is_saved = (0, True) if outer else (None, False)

    def _undo(self, clock: CatalogClock | None) -> None:
        """Take back what was done since the savepoint, and look at everything anew."""
        mark = self._mark or 0
        if self._is_saved:  # then what came before it was sent, and all that is left came since
            mark = 0
        self._batches.drop_after(mark)
        self._mark, self._clock = None, clock
        for known in (self._tables, self._ids, self._taken, self._fresh, self._unheard_of):
            known.clear()
        if self._connection.in_transaction:
            if self._is_saved:
                self._connection.execute("ROLLBACK TO one; RELEASE one")
            self._batches.send()

    def prefetch(self, txn_ids: Collection[TxnId], table_ids: Collection[TableId]) -> None:
        """Learn with one question each what is known of the transactions and tables to come."""
        unknown = [txn_id for txn_id in txn_ids if txn_id not in self._fresh]
        if unknown:
            is_one = len(unknown) == 1  # of a client that is alone; asked for in half the time
            wanted = unknown[0] if is_one else json.dumps(unknown)
            sql = _HEARD_OF_ONE if is_one else _HEARD_OF
            heard_of = {row[0] for row in self._ask(sql, wanted, wanted)}
            fresh = {txn_id for txn_id in unknown if txn_id not in heard_of}
            self._fresh |= fresh
            self._unheard_of |= fresh
        missing = [table_id for table_id in table_ids if table_id not in self._tables]
        if len(missing) == 1:
            self.table(missing[0])
        elif missing:
            for row in self._ask(_TABLES_BY_ID, json.dumps(missing)):
                self._know(as_table(row))

    def finish(self) -> None:
        """Write what was gathered."""
        try:
            self._batches.send()
            self._known.clock = self._clock
        except StoreConstraintError as error:
            raise UnavailableError(
                f"The catalog's database contradicts itself ({error}); nothing was written.",
                remedy="Run `headgate fsck` and report what it finds.",
            ) from error

    def clock(self) -> CatalogClock:
        if self._clock is None:
            self._clock = super().clock()
        return self._clock

    def table(self, table_id: TableId) -> TableRow | None:
        if table_id not in self._tables:
            found = self._ask(f"SELECT {TABLE_COLUMNS} FROM tables WHERE id = ?", table_id)
            if not found:
                return None
            self._know(as_table(found[0]))
        return self._tables[table_id]

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        return [] if txn_id in self._unheard_of else super().transaction_commits(txn_id)

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        return None if txn_id in self._unheard_of else super().rejection(txn_id)

    def _forget(self, key: int) -> None:
        self._tables.pop(self._ids.pop(key, _NOBODY), None)

    def _know(self, row: TableRow) -> None:
        self._tables[row.id] = row
        self._ids[row.key] = row.id
        self._taken.setdefault(row.key, row.head)

    def _ask(self, sql: str, *values: object) -> list[Row]:
        """Read what nothing gathered can have changed."""
        return super()._fetch(sql, *values)

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        self._send()
        return super()._fetch(sql, *values)

    def _fetch_one(self, sql: str, *values: object) -> Row | None:
        self._send()
        return super()._fetch_one(sql, *values)

    def _send(self) -> None:
        """Write what was gathered: before the savepoint that is open, then within it."""
        if self._mark is None:
            self._batches.send()
            return
        if not self._is_saved:
            self._batches.send(self._mark)
            self._connection.execute("SAVEPOINT one")
            self._is_saved = True
        self._batches.send()

    def refuse_if_lost(self) -> None:
        """Refuse to go on in a unit that SQLite took back whole, as it does on a full disk."""
        if not self._connection.in_transaction:
            raise UnavailableError(
                "The catalog's disk is full, or failed: everything begun with it was undone.",
                remedy="Free space, then try again.",
            )

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None:
        values = (*clock, txn_id)
        if self._clock is not None and clock.sequence == self._clock.sequence + 1:
            self._batches.add(_INSERT_SEQUENCES, values)
        else:
            self._do("INSERT INTO sequences VALUES (?, ?, ?)", *values)
        self._clock = clock

    def delete_events(self, last: Sequence) -> None:
        self._do(_FORGET_EVENTS, last)

    def set_setting(self, key: str, value: str) -> None:
        self._do("INSERT OR REPLACE INTO settings VALUES (?, ?)", key, value)

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None:
        self._do(
            "INSERT INTO namespaces VALUES (?, ?, ?, ?, ?)",
            *name.key,
            name.catalog,
            name.schema,
            now_ms,
        )

    def delete_namespace(self, name: SchemaName) -> None:
        self._do("DELETE FROM namespaces WHERE catalog_key = ? AND schema_key = ?", *name.key)

    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        self._do(
            "INSERT INTO names VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            *(fold(part) for part in (name.catalog, name.schema, name.table)),
            name.catalog,
            name.schema,
            name.table,
            table_id,
            since,
        )

    def release_name(self, table_id: TableId, until: Sequence) -> None:
        self._do(
            "UPDATE names SET to_sequence = ? WHERE table_id = ? AND to_sequence IS NULL",
            until,
            table_id,
        )

    def insert_table(self, row: TableRow) -> TableRow:
        self._do(_INSERT_TABLE, *table_values(row)[1:])
        row = row._replace(key=self._connection.last_insert_rowid())
        self._know(row)
        return row

    def update_table(self, row: TableRow) -> None:
        known = self._tables.get(row.id)
        if known is not None and _has_same_place(row, known) and row.published <= row.head:
            self._batches.add(_UPDATE_TABLES, table_values(row), row.key)
        else:
            self._do(_UPDATE_TABLE, *table_values(row)[1:], row.key)
        self._tables[row.id], self._ids[row.key] = row, row.id

    def insert_commit(self, key: int, row: CommitRow) -> None:
        values = (key, *row[:4], row.way.value, *row[5:])
        is_next = self._taken.get(key, _UNKNOWN) + 1 == row.version
        if is_next and row.txn_id in self._fresh:
            # A transaction has one commit in a table, so the next version is its first here.
            self._batches.add(_INSERT_COMMITS, values)
            self._inserted.setdefault(key, row.version)
        else:
            self._do(_INSERT_COMMIT, *values)
        self._taken[key] = max(row.version, self._taken.get(key, row.version))
        self._unheard_of.discard(row.txn_id)

    def insert_rejection(self, row: RejectionRow) -> None:
        self._unheard_of.discard(row.txn_id)
        self._do("INSERT INTO rejections VALUES (?, ?, ?, ?)", *row)

    def delete_rejections(self, before_ms: int) -> None:
        self._do("DELETE FROM rejections WHERE decided_ms < ?", before_ms)

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        if last >= self._inserted.get(key, Version(last + 1)):  # they must be there first
            self._send()
        # What was staged is in two files now; what came inline is held on, and not touched.
        for statement in (_RECORD_PUBLISHED, _RECORD_STAGED_PUBLISHED):
            self._batches.add(statement, (now_ms, key, first, last))
        row = self._tables.get(self._ids.get(key, _NOBODY))
        if row is None:
            self._do(
                "UPDATE tables SET published = ? WHERE key = ? AND published < ?", last, key, last
            )
        elif row.published < last:
            self.update_table(row._replace(published=last))

    def set_diverged(self, key: int, message: str | None) -> None:
        self._forget(key)
        self._do("UPDATE tables SET diverged = ? WHERE key = ?", message, key)

    def delete_content(self, key: int, upto: Version) -> None:
        self._forget(key)
        self._do(
            "UPDATE commits SET content = NULL WHERE table_key = ? AND version "
            "BETWEEN (SELECT held_from FROM tables WHERE key = ?) AND ?",
            key,
            key,
            upto,
        )
        self._do(
            "UPDATE tables SET held_from = ? WHERE key = ? AND held_from <= ?", upto + 1, key, upto
        )

    def insert_file(self, key: int, file: KnownFile) -> None:
        self._do(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)",
            key,
            file.kind.value,
            file.first,
            file.last,
            json.dumps(file.paths),
        )

    def delete_file(self, key: int, file: KnownFile) -> None:
        self._do(
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
        for other, other_until_ms in self._ask(_LEASE, name):
            if other != holder and other_until_ms > now_ms:
                return False
        self._batches.add(_TAKE_LEASES, (name, holder, until_ms))
        return True

    def release_lease(self, name: str, holder: str) -> None:
        self._send_lease(name)
        self._batches.add(_END_LEASE, (name, holder))

    def _send_lease(self, name: str) -> None:
        """Write what was gathered of a lease before there is more of it: the order counts."""
        if name in self._leases:
            self._send()
        self._leases.add(name)

    def insert_token(self, row: TokenRow) -> None:
        self._do("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", *row)

    def revoke_token(self, name: str, now_ms: int) -> None:
        self._do(
            "UPDATE tokens SET revoked_ms = ? WHERE name = ? AND revoked_ms IS NULL", now_ms, name
        )

    def insert_answer(self, row: AnswerRow) -> None:
        self._do("INSERT INTO answers VALUES (?, ?, ?, ?)", *row)

    def delete_answers(self, before_ms: int) -> None:
        self._do("DELETE FROM answers WHERE decided_ms < ?", before_ms)

    def put_listener(self, row: ListenerRow) -> None:
        self._do("INSERT OR REPLACE INTO listeners VALUES (?, ?, ?, ?, ?, ?)", *row)

    def delete_listener(self, name: str) -> None:
        self._do("DELETE FROM listeners WHERE name = ?", name)

    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None:
        self._do(
            "UPDATE listeners SET position = max(position, ?), failing = ? WHERE name = ?",
            position,
            failing,
            name,
        )

    def insert_location(self, row: LocationRow) -> None:
        self._do("INSERT INTO locations VALUES (?, ?)", *row)

    def delete_location(self, url: str) -> None:
        self._do("DELETE FROM locations WHERE url = ?", url)

    def _do(self, sql: str, *values: object) -> None:
        self._send()
        self._run(sql, values)

    def _run(self, sql: str, values: Values) -> None:
        self.refuse_if_lost()  # outside of a transaction each statement would be one of its own
        try:
            self._connection.execute(sql, values)
        except apsw.ConstraintError as error:
            raise StoreConstraintError(str(error)) from error


class _Savepoint:
    """Part of a unit. No generator, which would take longer than all that is decided in it."""

    __slots__ = ("_began", "_unit")

    def __init__(self, unit: SQLiteWriteUnit) -> None:
        self._unit = unit

    def __enter__(self) -> None:
        self._began = self._unit.begin_part()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        translation = self._unit.end_part(self._began, error)
        if translation is not None:
            raise translation from error


def _has_same_place(row: TableRow, known: TableRow) -> bool:
    """Say whether no constraint but those of versions could speak against the change."""
    return (
        row.key == known.key
        and row.location == known.location
        and row.state is known.state
        and row.purged_ms == known.purged_ms
        and row.created_ms == known.created_ms
        and row.kind is known.kind
    )


def translated(error: BaseException) -> HeadgateError | None:
    """Say in our words what SQLite cannot do; None: it is about what was asked of it."""
    match error:
        case apsw.FullError():
            return UnavailableError(
                f"The catalog's disk is full: {error}.", remedy="Free space, then try again."
            )
        case apsw.BusyError():
            return UnavailableError(f"The catalog's file is held by others: {error}.")
        case apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.AuthError():
            return UnavailableError(f"The catalog's file cannot be used: {error}.")
        case apsw.CorruptError() | apsw.NotADBError():
            return DamagedError(f"The catalog's file is damaged: {error}.")
        case _:
            return None
