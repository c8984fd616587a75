"""The write unit of the PostgreSQL store, in few round trips.

It locks the clock row, so no other process changes anything meanwhile and what it read stays
valid. So it caches what it reads, buffers what it writes, and sends the buffer with the next
query or at its end. Rows are buffered only if what was read shows that no constraint can reject
them; others are sent at once, so that the violation is raised where it belongs. A savepoint that
fails discards what it buffered, and reaches the server only if something was sent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from headgate.catalog.stores import postgres_bulk as bulk
from headgate.catalog.stores.port import (
    AnswerRow,
    CatalogClock,
    CommitRow,
    ListenerRow,
    LocationRow,
    RejectionRow,
    TableRow,
    TokenRow,
)
from headgate.catalog.stores.postgres_reader import (
    PostgresReadUnit,
    Transaction,
    is_storable,
    refuse_unless_storable,
)
from headgate.catalog.stores.reader import (
    TABLE_COLUMNS,
    Row,
    Statement,
    Values,
    as_table,
    table_values,
)
from headgate.errors import HeadgateError
from headgate.names import SchemaName, TableName, fold
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import KnownFile

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Decided = TypeVar("Decided", RejectionRow, AnswerRow)

_MISSING: Final = object()
_ATTEMPT: Final = "attempt"  # the savepoint before a statement that a constraint may reject


def _insert(table: str, count: int, rest: str = "") -> str:
    return f"INSERT INTO {table} VALUES ({_placeholders(count)}){rest}"


def _placeholders(count: int, first: int = 1) -> str:
    return ", ".join(f"${number}" for number in range(first, first + count))


_INSERT_SEQUENCE: Final = _insert("sequences", 3)
_INSERT_COMMIT: Final = _insert("commits", 1 + len(CommitRow._fields))
_INSERT_REJECTION: Final = _insert("rejections", 4)
_INSERT_ANSWER: Final = _insert("answers", 4)
_UPDATE_CLOCK: Final = "UPDATE clock SET sequence = $1, clock_ms = $2"
_INSERT_TABLE: Final = (
    f"INSERT INTO tables ({', '.join(TableRow._fields[1:])}) "
    f"VALUES ({_placeholders(len(TableRow._fields) - 1)}) RETURNING key"
)
_RECORDED: Final = (
    "SELECT txn_id FROM commits WHERE txn_id = ANY ($1::text[]) "
    "UNION ALL SELECT txn_id FROM rejections WHERE txn_id = ANY ($1::text[])"
)
# Whether any of the txnIds is recorded, beside each of the tables, or beside none.
_PREFETCH: Final = (
    f"SELECT EXISTS ({_RECORDED}), {', '.join(f'tables.{field}' for field in TableRow._fields)} "
    "FROM (SELECT) nothing LEFT JOIN tables ON id = ANY ($2::text[])"
)
_ACQUIRE_LEASE: Final = (
    "INSERT INTO leases VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE "
    "SET holder = excluded.holder, until_ms = excluded.until_ms "
    "WHERE leases.holder = excluded.holder OR leases.until_ms <= $4 RETURNING 1"
)
_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = $1 WHERE table_key = $2 "
    "AND version BETWEEN $3 AND $4 AND published_ms IS NULL AND way <> 'staged'"
)
_STAGED_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = $1, content = NULL WHERE table_key = $2 "
    "AND version BETWEEN $3 AND $4 AND published_ms IS NULL AND way = 'staged'"
)
# Statements whose rows are sent together, up to a statement of another kind.
_BULK: Final = {
    _INSERT_SEQUENCE: ("sequences", ("sequence", "clock_ms", "txn_id")),
    _INSERT_COMMIT: ("commits", ("table_key", *CommitRow._fields)),
}
_MERGEABLE: Final = ("INSERT INTO sequences SELECT ", "INSERT INTO commits SELECT ")
_LARGE: Final = 1 << 20  # bytes of rows that are sent one by one: array literals double them


@dataclass(slots=True)
class _Savepoint:
    undo: int  # the length of the undo log when it began
    pending: int  # and the number of buffered statements
    name: str
    is_sent: bool = False  # the server has this savepoint


class PostgresWriteUnit(PostgresReadUnit):
    """A unit that has locked the clock row."""

    def __init__(self, transaction: Transaction, clock: CatalogClock) -> None:
        super().__init__(transaction)
        self.has_written = False  # whether there is anything to commit
        self._lost: HeadgateError | None = None
        self._clock = {0: clock}
        # The cache: rows as this unit has changed them, sent or not.
        self._tables: dict[TableId, TableRow | None] = {}
        self._ids: dict[int, TableId] = {}
        self._next: dict[int, int] = {}  # by a table's key: the version after those inserted here
        self._ratified: dict[TxnId, list[tuple[TableId, CommitRow]]] = {}
        self._rejections: dict[TxnId, RejectionRow | None] = {}
        self._answers: dict[str, AnswerRow | None] = {}
        # The buffer: statements in order, then rows that differ from what was sent last.
        self._pending: list[Statement] = []
        self._sent: dict[int, TableRow] = {}
        self._sent_clock = {0: clock}
        self._dirty: dict[int, None] = {}
        self._undo: list[tuple[dict[object, object], object, object]] = []
        self._savepoints: list[_Savepoint] = []

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.refuse_if_lost()
        mark = _Savepoint(len(self._undo), len(self._pending), f"at_{len(self._savepoints)}")
        self._savepoints.append(mark)
        try:
            yield
        except BaseException:
            self._savepoints.pop()
            self._roll_back_to(mark)
            raise
        self._savepoints.pop()
        if mark.is_sent:
            self._pending.append((f"RELEASE SAVEPOINT {mark.name}", ()))
        if not self._savepoints:
            self._undo.clear()

    def _roll_back_to(self, mark: _Savepoint) -> None:
        del self._pending[mark.pending :]
        while len(self._undo) > mark.undo:
            cached, key, before = self._undo.pop()
            if before is _MISSING:
                cached.pop(key, None)
            else:
                cached[key] = before
        if mark.is_sent and self._lost is None:
            with self._watched():
                self._transaction.roll_back_to(mark.name)

    def prefetch(self, txn_ids: Collection[TxnId], table_ids: Collection[TableId]) -> None:
        # Values that cannot be stored are rejected when used, not for the whole batch here.
        txns = [txn for txn in set(txn_ids) - self._ratified.keys() if is_storable(txn)]
        tables = [table for table in set(table_ids) - self._tables.keys() if is_storable(table)]
        if not txns and not tables:
            return
        # No buffered statement concerns them: rows are cached before they are changed.
        [rows] = self._fetch_unbuffered((_PREFETCH, (bulk.array(txns), bulk.array(tables))))
        by_id = {row[2]: as_table(row[1:]) for row in rows if row[1] is not None}
        for table_id in tables:
            self._remember(table_id, by_id.get(table_id))
        recorded: set[TxnId] = set()  # retries are few, and their rows are read when needed
        if rows[0][0]:
            [retried] = self._fetch_unbuffered((_RECORDED, (bulk.array(txns),)))
            recorded.update(txn for [txn] in retried)
        for txn in txns:
            if txn not in recorded:
                self._set(self._ratified, txn, [])
                self._set(self._rejections, txn, None)

    # Reads

    def clock(self) -> CatalogClock:
        return self._clock[0]

    def table(self, table_id: TableId) -> TableRow | None:
        if table_id not in self._tables:
            refuse_unless_storable((table_id,))
            sql = f"SELECT {TABLE_COLUMNS} FROM tables WHERE id = $1"
            [rows] = self._fetch_unbuffered((sql, (table_id,)))
            self._remember(table_id, as_table(rows[0]) if rows else None)
        return self._tables[table_id]

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        if txn_id not in self._ratified:
            self._set(self._ratified, txn_id, super().transaction_commits(txn_id))
        return list(self._ratified[txn_id])

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        if txn_id not in self._rejections:
            self._set(self._rejections, txn_id, super().rejection(txn_id))
        return self._rejections[txn_id]

    def answer(self, key: str) -> AnswerRow | None:
        if key not in self._answers:
            self._set(self._answers, key, super().answer(key))
        return self._answers[key]

    # Writes

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None:
        is_free = clock.sequence > self._clock[0].sequence
        self._change(_INSERT_SEQUENCE, (*clock, txn_id), is_free=is_free)
        self._set(self._clock, 0, clock)

    def delete_events(self, last: Sequence) -> None:
        newest = self.clock().sequence
        self._change("DELETE FROM sequences WHERE sequence <= $1", (min(last, newest - 1),))

    def set_setting(self, key: str, value: str) -> None:
        sql = _insert("settings", 2, " ON CONFLICT (key) DO UPDATE SET value = excluded.value")
        self._change(sql, (key, value))

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None:
        values = (*name.key, name.catalog, name.schema, now_ms)
        self._change(_insert("namespaces", 5), values, is_free=False)

    def delete_namespace(self, name: SchemaName) -> None:
        self._change("DELETE FROM namespaces WHERE catalog_key = $1 AND schema_key = $2", name.key)

    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        parts = (name.catalog, name.schema, name.table)
        values = (*map(fold, parts), *parts, table_id, since, None)
        self._change(_insert("names", 9), values, is_free=False)

    def release_name(self, table_id: TableId, until: Sequence) -> None:
        sql = "UPDATE names SET to_sequence = $1 WHERE table_id = $2 AND to_sequence IS NULL"
        self._change(sql, (until, table_id))

    def insert_table(self, row: TableRow) -> TableRow:
        [[key]] = self._change(_INSERT_TABLE, table_values(row)[1:], is_free=False)
        row = row._replace(key=key)
        self._set(self._tables, row.id, row)
        self._set(self._ids, key, row.id)
        self._set(self._sent, key, row)
        return row

    def update_table(self, row: TableRow) -> None:
        known = self._table_of(row.key)
        if known is None:
            return
        refuse_unless_storable([row[field] for field in _differing(known, row)])
        if _may_be_rejected(known, row):
            self._flush()  # so that the statement below changes only this row
            fields = _differing(self._sent[row.key], row)
            columns = ", ".join(f"{TableRow._fields[n]} = ${p}" for p, n in enumerate(fields, 2))
            values = (row.key, *(table_values(row)[field] for field in fields))
            self._change(f"UPDATE tables SET {columns} WHERE key = $1", values, is_free=False)
            self._set(self._sent, row.key, row)
            if known.id != row.id:
                self._set(self._tables, known.id, None)
                self._set(self._ids, row.key, row.id)
        else:
            self._set(self._dirty, row.key, None)
        self._set(self._tables, row.id, row)

    def insert_commit(self, key: int, row: CommitRow) -> None:
        known = self._tables.get(self._ids[key]) if key in self._ids else None
        before = self._ratified.get(row.txn_id)
        is_free = (
            known is not None
            and before is not None
            and row.version == max(known.head + 1, self._next.get(key, 0))
            and all(table_id != known.id for table_id, _ in before)
        )
        values = (key, *row[:4], row.way.value, *row[5:])
        self._change(_INSERT_COMMIT, values, is_free=is_free)
        self._set(self._next, key, max(row.version + 1, self._next.get(key, 0)))
        if known is not None and before is not None:
            self._set(self._ratified, row.txn_id, [*before, (known.id, row)])
        else:
            self._drop(self._ratified, row.txn_id)

    def insert_rejection(self, row: RejectionRow) -> None:
        is_free = self._rejections.get(row.txn_id, _MISSING) is None
        self._change(_INSERT_REJECTION, row, is_free=is_free)
        self._set(self._rejections, row.txn_id, row)

    def delete_rejections(self, before_ms: int) -> None:
        self._change("DELETE FROM rejections WHERE decided_ms < $1", (before_ms,))
        self._evict_old(self._rejections, before_ms)

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        known = self._table_of(key)
        if known is None:
            return
        if known.published < last:
            self.update_table(known._replace(published=last))
        # A published staged commit is in two files and needs no content here; inline content stays.
        for statement in (_PUBLISHED, _STAGED_PUBLISHED):
            self._change(statement, (now_ms, key, first, last))
        for commit in self._cached_commits(known.id, first, last):
            if commit.published_ms is None:
                content = None if commit.way is Way.STAGED else commit.content
                self._replace_commit(
                    known.id, commit._replace(published_ms=now_ms, content=content)
                )

    def set_diverged(self, key: int, message: str | None) -> None:
        known = self._table_of(key)
        if known is not None:
            self.update_table(known._replace(diverged=message))

    def delete_content(self, key: int, upto: Version) -> None:
        known = self._table_of(key)
        if known is None or known.held_from > upto:
            return
        self._change(
            "UPDATE commits SET content = NULL WHERE table_key = $1 AND version BETWEEN $2 AND $3",
            (key, known.held_from, upto),
        )
        self.update_table(known._replace(held_from=Version(upto + 1)))
        for commit in self._cached_commits(known.id, known.held_from, upto):
            self._replace_commit(known.id, commit._replace(content=None))

    def insert_file(self, key: int, file: KnownFile) -> None:
        sql = _insert(
            "files",
            5,
            " ON CONFLICT (table_key, kind, last, first) DO UPDATE SET paths = excluded.paths",
        )
        values = (key, file.kind.value, file.first, file.last, json.dumps(file.paths))
        self._change(sql, values, is_free=self._table_of(key) is not None)

    def delete_file(self, key: int, file: KnownFile) -> None:
        self._change(
            "DELETE FROM files WHERE table_key = $1 AND kind = $2 AND first = $3 AND last = $4 "
            "AND paths = $5",
            (key, file.kind.value, file.first, file.last, json.dumps(file.paths)),
        )

    def acquire_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool:
        values = (name, holder, until_ms, now_ms)
        refuse_unless_storable(values)
        return bool(self._run([(_ACQUIRE_LEASE, values)], is_change=True)[0])

    def release_lease(self, name: str, holder: str) -> None:
        self._change("DELETE FROM leases WHERE name = $1 AND holder = $2", (name, holder))

    def insert_token(self, row: TokenRow) -> None:
        self._change(_insert("tokens", 5), row, is_free=False)

    def revoke_token(self, name: str, now_ms: int) -> None:
        sql = "UPDATE tokens SET revoked_ms = $1 WHERE name = $2 AND revoked_ms IS NULL"
        self._change(sql, (now_ms, name))

    def insert_answer(self, row: AnswerRow) -> None:
        is_free = self._answers.get(row.key, _MISSING) is None
        self._change(_INSERT_ANSWER, row, is_free=is_free)
        self._set(self._answers, row.key, row)

    def delete_answers(self, before_ms: int) -> None:
        self._change("DELETE FROM answers WHERE decided_ms < $1", (before_ms,))
        self._evict_old(self._answers, before_ms)

    def put_listener(self, row: ListenerRow) -> None:
        columns = ", ".join(f"{field} = excluded.{field}" for field in ListenerRow._fields[1:])
        self._change(_insert("listeners", 6, f" ON CONFLICT (name) DO UPDATE SET {columns}"), row)

    def delete_listener(self, name: str) -> None:
        self._change("DELETE FROM listeners WHERE name = $1", (name,))

    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None:
        sql = "UPDATE listeners SET position = greatest(position, $1), failing = $2 WHERE name = $3"
        self._change(sql, (position, failing, name))

    def insert_location(self, row: LocationRow) -> None:
        self._change(_insert("locations", 2), row, is_free=False)

    def delete_location(self, url: str) -> None:
        self._change("DELETE FROM locations WHERE url = $1", (url,))

    # Buffering

    def finish(self) -> None:
        """Send the rest of the buffer, as the unit's last action."""
        self.refuse_if_lost()
        # The end of the transaction is the end of its savepoints.
        self._pending = [change for change in self._pending if not change[0].startswith("RELEASE ")]
        self._flush()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def refuse_if_lost(self) -> None:
        """Raise if the server has rolled back the whole unit."""
        if self._lost is not None:
            raise self._lost

    def _remember(self, table_id: TableId, row: TableRow | None) -> None:
        self._tables[table_id] = row
        if row is not None:
            self._ids[row.key] = row.id
            self._sent[row.key] = row

    def _table_of(self, key: int) -> TableRow | None:
        if key not in self._ids:
            sql = f"SELECT {TABLE_COLUMNS} FROM tables WHERE key = $1"
            [rows] = self._fetch_unbuffered((sql, (key,)))
            if not rows:
                return None
            self._remember(rows[0][1], as_table(rows[0]))
        return self._tables[self._ids[key]]

    def _change(self, sql: str, values: Values, *, is_free: bool = True) -> list[Row]:
        """Run a change: later with the rest of the buffer, unless a constraint may reject it."""
        self.refuse_if_lost()
        refuse_unless_storable(values)
        if is_free:
            self._pending.append((sql, values))
            return []
        self._run([], is_change=True, savepoint=_ATTEMPT)
        with self._watched():
            rows = self._transaction.attempt(sql, values, _ATTEMPT)
        self._pending.append((f"RELEASE SAVEPOINT {_ATTEMPT}", ()))
        return rows

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        for _, values in statements:
            refuse_unless_storable(values)
        return self._run(list(statements))

    def _fetch_unbuffered(self, *statements: Statement) -> list[list[Row]]:
        """Return rows that no buffered statement can have changed."""
        self.refuse_if_lost()
        return self._send([], list(statements))

    def _flush(self) -> None:
        if self._has_unsent():
            self._run([])

    def _run(
        self,
        queries: list[Statement],
        *,
        is_change: bool = False,
        savepoint: str | None = None,
    ) -> list[list[Row]]:
        """Send the buffer and the queries in one round trip."""
        self.refuse_if_lost()
        changes: list[Statement] = []
        if self._has_unsent() or is_change:
            changes = self._statements()
        if savepoint is not None:
            changes.append((f"SAVEPOINT {savepoint}", ()))
        self.has_written = self.has_written or bool(changes) or is_change
        return self._send(changes, queries)

    def _has_unsent(self) -> bool:
        """Return whether the server lacks some of the changes."""
        return bool(self._pending or self._dirty) or self._clock[0] != self._sent_clock[0]

    def _statements(self) -> list[Statement]:
        """Return and empty the buffer, with each savepoint before the changes made in it."""
        changes: list[Statement] = []
        done = 0
        for mark in self._savepoints:
            if not mark.is_sent:
                changes += _grouped(self._pending[done : mark.pending])
                changes.append((f"SAVEPOINT {mark.name}", ()))
                done, mark.is_sent = mark.pending, True
            mark.pending = 0
        last = _grouped(self._pending[done:])
        self._pending.clear()
        # Table rows follow all savepoints: after a rollback they are sent again.
        changed = self._changed_rows()
        while last and last[-1][0].startswith(_MERGEABLE):
            changed.insert(0, last.pop())
        return [*changes, *last, *([bulk.merged(changed)] if changed else [])]

    def _changed_rows(self) -> list[Statement]:
        """Return updates of the columns that differ, which large ones seldom do."""
        rows: dict[tuple[str, ...], list[Values]] = {}
        for key in list(self._dirty):
            row = self._tables[self._ids[key]]
            assert row is not None  # only existing rows are updated
            fields = _differing(self._sent[key], row)
            values = table_values(row)
            if fields:
                columns = ("key", *(TableRow._fields[field] for field in fields))
                rows.setdefault(columns, []).append((key, *(values[field] for field in fields)))
                self._set(self._sent, key, row)
            self._drop(self._dirty, key)
        changed = [bulk.updated("tables", columns, many) for columns, many in rows.items()]
        if self._clock[0] != self._sent_clock[0]:
            changed.append((_UPDATE_CLOCK, self._clock[0]))
            self._set(self._sent_clock, 0, self._clock[0])
        return changed

    def _send(self, changes: list[Statement], queries: list[Statement]) -> list[list[Row]]:
        with self._watched():
            return self._transaction.run(changes, queries)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except HeadgateError as error:
            self._lost = error
            raise

    def _set(self, cached: dict[Key, Value], key: Key, value: Value) -> None:
        if self._savepoints:
            self._undo.append((cached, key, cached.get(key, _MISSING)))  # type: ignore[arg-type]
        cached[key] = value

    def _drop(self, cached: dict[Key, Value], key: Key) -> None:
        if key in cached:
            if self._savepoints:
                self._undo.append((cached, key, cached[key]))  # type: ignore[arg-type]
            del cached[key]

    def _cached_commits(self, table_id: TableId, first: Version, last: Version) -> list[CommitRow]:
        return [
            commit
            for commits in self._ratified.values()
            for other_id, commit in commits
            if other_id == table_id and first <= commit.version <= last
        ]

    def _replace_commit(self, table_id: TableId, commit: CommitRow) -> None:
        """Replace a commit in the cache."""
        commits = self._ratified[commit.txn_id]
        replaced = [(of, commit if of == table_id else other) for of, other in commits]
        self._set(self._ratified, commit.txn_id, replaced)

    def _evict_old(self, cached: dict[Key, Decided | None], before_ms: int) -> None:
        for key, row in list(cached.items()):
            if row is not None and row.decided_ms < before_ms:
                self._set(cached, key, None)


def _grouped(pending: list[Statement]) -> list[Statement]:
    """Combine rows of one kind into bulk statements, where the order does not matter."""
    groups: list[tuple[str, list[Values]]] = []
    open_groups: dict[str, list[Values]] = {}
    for sql, values in pending:
        if sql in open_groups:
            open_groups[sql].append(values)
            continue
        groups.append((sql, [values]))
        if sql in _BULK:
            open_groups[sql] = groups[-1][1]
        else:
            open_groups.clear()
    grouped: list[Statement] = []
    for sql, many in groups:
        size = sum(len(value) for row in many for value in row if isinstance(value, bytes))
        if sql in _BULK and size < _LARGE:
            grouped.append(bulk.inserted(*_BULK[sql], many))
        else:
            grouped += [(sql, values) for values in many]
    return grouped


def _may_be_rejected(known: TableRow, row: TableRow) -> bool:
    """Return whether a constraint might reject the change."""
    return (
        row.published > row.head
        or row.id != known.id
        or row.location != known.location
        or (row.purged_ms is None and known.purged_ms is not None)
    )


def _differing(sent: TableRow, row: TableRow) -> list[int]:
    return [n for n in range(1, len(row)) if sent[n] != row[n]]
