"""SQLite, the embedded default: one file, safe and fair for several processes.

Readers see one instant and never wait (WAL). Writers take turns: SQLite's own waiting starves
some of them, so a writer tries for the lock at short, even intervals and lets go after each unit.
Whatever is answered was synced (`synchronous=FULL`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

import apsw

from headgate.catalog.stores import gathering
from headgate.catalog.stores.batches import Batches, Values
from headgate.catalog.stores.port import (
    AnswerRow,
    Clock,
    CommitRow,
    Counts,
    DoubtError,
    EventRow,
    ListenerRow,
    Reading,
    RejectionRow,
    TableRow,
    TakenError,
    TokenRow,
    Writing,
)
from headgate.clock import Clock as WallClock
from headgate.errors import (
    AlreadyExistsError,
    DamagedError,
    HeadgateError,
    RefusedError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.names import SchemaName, TableName, fold
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.catalog_port import FileKind, KnownFile
from headgate.protocol.commits import RatifiedCommit, Way
from headgate.protocol.tables import Kind, State

_TRY_EVERY: Final = 0.0005
_PATIENCE: Final = 30.0
_WAYS: Final = {way.value: way for way in Way}
_TABLE: Final = ", ".join(TableRow._fields)
# A table keeps its place until a purge has ended: the last step forgets what was held.
_HAS_PLACE: Final = "purged_ms IS NULL"
_COMMIT: Final = (
    "version, sequence, timestamp_ms, txn_id, way, file_name, size, sha256, modified_ms, intent, "
    "proposed_ms, ratified_ms, published_ms, "
)
_FILES: Final = (
    "SELECT * FROM (SELECT kind, first, last, paths FROM files WHERE table_key = ? "
    "AND kind = 'checkpoint' AND last <= ? ORDER BY last DESC LIMIT 1) "
    "UNION ALL SELECT kind, first, last, paths FROM files WHERE table_key = ? "
    "AND kind = 'compaction' AND last <= ? AND first > ifnull((SELECT max(last) FROM files "
    "WHERE table_key = ? AND kind = 'checkpoint' AND last <= ?), -1) "
    "UNION ALL SELECT kind, first, last, paths FROM files WHERE table_key = ? "
    "AND kind = 'checksum' AND last = ?"
)
_RATIFIED: Final = (
    "SELECT version, way, txn_id, sequence, timestamp_ms, size, lower(hex(sha256)), file_name, "
    "modified_ms, content, published_ms FROM commits "
    "WHERE table_key = ? AND version BETWEEN ? AND ? ORDER BY version"
)
_FITTING: Final = (
    "SELECT {}(version) FROM (SELECT version, sum(ifnull(length(content), 0)) OVER "
    "(ORDER BY version {}) AS total FROM commits WHERE table_key = ? AND version BETWEEN ? AND ?) "
    "WHERE total <= ?"
)
_RATIFIED_UNDER: Final = (
    f"SELECT id, {_COMMIT.replace('timestamp_ms', 'commits.timestamp_ms')}summary, content "
    "FROM commits JOIN tables ON table_key = key WHERE txn_id = ?"
)
# From the sequences to their commits by the index over txnIds: one over sequences would cost
# every ratification a page. The order of a CROSS JOIN is SQLite's to keep.
_EVENT_COMMITS: Final = (
    f"SELECT id, {', '.join(f'commits.{field}' for field in CommitRow._fields[:-2])}, NULL, NULL "
    "FROM sequences CROSS JOIN commits ON commits.txn_id = sequences.txn_id "
    "AND commits.sequence = sequences.sequence JOIN tables ON table_key = key "
    "WHERE sequences.sequence > ? AND sequences.sequence <= ? "
    "ORDER BY sequences.sequence, table_key"
)
_CLOCK: Final = "SELECT sequence, clock_ms FROM sequences ORDER BY sequence DESC LIMIT 1"
_CLOCK_UPTO: Final = (
    "SELECT sequence, clock_ms FROM sequences WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1"
)
_UNPUBLISHED: Final = (
    f"SELECT {_TABLE} FROM behind CROSS JOIN tables ON key = table_key WHERE state = 'active'"
)
_TAILS: Final = (
    "SELECT id, head - published, ratified_ms FROM behind CROSS JOIN tables "
    "ON key = behind.table_key LEFT JOIN commits ON commits.table_key = key "
    "AND version = published + 1 WHERE state = 'active'"
)
_TOKENS: Final = "SELECT name, secret_sha256, created_ms, expires_ms, revoked_ms FROM tokens"
_HEARD_OF: Final = (
    "SELECT txn_id FROM commits WHERE txn_id IN (SELECT value FROM json_each(?)) "
    "UNION SELECT txn_id FROM rejections WHERE txn_id IN (SELECT value FROM json_each(?))"
)
_HEARD_OF_ONE: Final = (
    "SELECT txn_id FROM commits WHERE txn_id = ? UNION ALL "
    "SELECT txn_id FROM rejections WHERE txn_id = ?"
)
_TABLES_BY_ID: Final = f"SELECT {_TABLE} FROM tables WHERE id IN (SELECT value FROM json_each(?))"
_INSERT_COMMIT: Final = f"INSERT INTO commits VALUES ({', '.join('?' * 16)})"
_MOST_KNOWN: Final = 1_000  # tables whose rows are kept from one unit to the next
_UNKNOWN: Final = -9  # no version follows it
_NOBODY: Final = TableId("")
_INSERT_TABLE: Final = (
    f"INSERT INTO tables VALUES (NULL, {', '.join('?' * (len(TableRow._fields) - 1))})"
)
_INSERT_SEQUENCES: Final = "INSERT INTO sequences VALUES {}"
_INSERT_COMMITS: Final = "INSERT INTO commits VALUES {}"
# What never changes with it is not set: for a column that is, SQLite writes its indexes anew.
_STEADY: Final = frozenset({"key", "id", "state", "location", "created_ms", "purged_ms", "kind"})
_UPDATE_TABLES: Final = "INSERT INTO tables VALUES {} ON CONFLICT (key) DO UPDATE SET " + ", ".join(
    f"{field} = excluded.{field}" for field in TableRow._fields if field not in _STEADY
)
_RECORD_PUBLISHED: Final = (
    "UPDATE commits SET published_ms = ? WHERE table_key = ? AND version BETWEEN ? AND ? "
    "AND published_ms IS NULL"
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


class SQLiteStore:
    """A catalog's store in one SQLite file."""

    def __init__(
        self, path: str, clock: WallClock, *, vfs: str | None = None, patience: float = _PATIENCE
    ) -> None:
        self._path = path
        self._vfs = vfs
        self._clock = clock
        self._patience = patience
        self._connections: list[apsw.Connection] = []
        self._idle: list[apsw.Connection] = []  # of readers that are done
        self._lent: list[apsw.Connection] = []  # to readers that are not
        self._registering = threading.Lock()
        self._writing = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False
        self._known = _Known()
        try:
            with _translated():
                self._writer = self._open()
                # A commit of a process that died before its sync is found and not yet durable:
                # it is made so before anybody is told of it.
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._writer.set_busy_timeout(0)  # it waits in its own way
            self._migrate()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """One read transaction: everything in it is from one instant."""
        with _translated():
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield _Reading(connection)
            finally:
                self._give_back(connection)

    @contextmanager
    def write(self) -> Iterator[Writing]:
        """One write transaction; durable once the block is left without an error."""
        with self._writing, _translated():
            self._refuse_if_closed()
            self._begin()
            known, self._known = self._known, _Known()  # given back once it is committed
            try:
                if known.data_version != self._writer.data_version() or (
                    len(known.tables) > _MOST_KNOWN
                ):
                    known = _Known()
                unit = _Writing(self._writer, known)
                yield unit
                unit.finish()
                unit.refuse_if_lost()
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            self._commit()
            # It counts our own commits too, so it is asked after each of them; those of others it
            # does not see before the next unit begins.
            known.data_version = self._writer.data_version()
            self._known = known

    def describe(self) -> str:
        """Say what the rows lie in."""
        return f"SQLite {apsw.sqlite_lib_version()} at {self._path}, schema {self._schema}"

    def backup(self, target: Path) -> None:
        """Write one instant of everything to a new file, synced, while others go on."""
        if target.exists():
            raise AlreadyExistsError(f"{target} is there already.", remedy="Name a new file.")
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
        try:
            unfinished.touch()
            with _translated():
                self._copy_to(unfinished)
            _sync(unfinished)
            unfinished.rename(target)
            _sync(target.parent)
        except OSError as error:
            raise UnavailableError(
                f"{target} cannot be written: {error}.", remedy="Name a place that can be written."
            ) from error
        finally:
            unfinished.unlink(missing_ok=True)

    def _copy_to(self, target: Path) -> None:
        source, copy = self._reader(), apsw.Connection(str(target))
        try:
            # In one step, which is one read transaction: in several, each write by another
            # process would make it begin anew.
            with copy.backup("main", source, "main") as copying:
                copying.step()
        finally:
            copy.close()
            self._give_back(source)

    def close(self) -> None:
        """Let go of every connection; one that is read from goes when its reader is done."""
        with self._registering:
            self._is_closed = True
            for connection in self._connections:
                if connection not in self._lent:
                    connection.close()
            self._connections = list(self._lent)
            self._idle.clear()

    def _open(self, *, is_lent: bool = False) -> apsw.Connection:
        connection = apsw.Connection(self._path, vfs=self._vfs)
        try:
            connection.set_busy_timeout(10_000)  # two processes may be making the file at once
            self._refuse_if_foreign(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -16000")
            with self._registering:
                self._refuse_if_closed()
                self._connections.append(connection)
                if is_lent:
                    self._lent.append(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reader(self) -> apsw.Connection:
        # Not one for each thread: threads come and go, and nobody would close theirs.
        with self._registering:
            self._refuse_if_closed()
            connection = self._idle.pop() if self._idle else None
            if connection is not None:
                self._lent.append(connection)
                return connection
        return self._open(is_lent=True)

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")
        with self._registering:
            self._lent.remove(connection)
            if self._is_closed:
                connection.close()
                self._connections.remove(connection)
            else:
                self._idle.append(connection)

    def _refuse_if_closed(self) -> None:
        if os.getpid() != self._process:  # SQLite's handles must not cross a fork
            raise UnavailableError(
                "This process was forked from one that had the catalog open.",
                remedy="Connect again in the new process.",
            )
        if self._is_closed:
            raise UnavailableError("This catalog is closed.", remedy="Connect again.")

    def _refuse_if_foreign(self, connection: apsw.Connection) -> None:
        names = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master")}
        if names and "names_current" not in names:
            raise RefusedError(
                f"{self._path} is the database of another program.",
                remedy="Name a directory, or a file that is not there yet.",
            )

    def _begin(self) -> None:
        """Take the write lock, trying at even intervals so that no process starves."""
        deadline: float | None = None
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except apsw.BusyError:
                now = self._clock.monotonic()
                deadline = now + self._patience if deadline is None else deadline
                if now > deadline:
                    raise UnavailableError(
                        f"Other processes held {self._path} for {self._patience:g} s.",
                        remedy="Send the same again; if it stays, find out who holds it.",
                    ) from None
                self._clock.sleep(_TRY_EVERY)

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except apsw.Error as error:
            with suppress(apsw.Error):
                self._writer.execute("ROLLBACK")
            if isinstance(error, apsw.FullError):
                raise  # nothing was made durable, and the rollback took it back
            # A sync that failed leaves it open what reached the disk: nobody may guess.
            raise DoubtError(str(error)) from error

    def _migrate(self) -> None:
        """Bring the schema up to date: the old one or the new one, never between."""
        folder = resources.files("headgate.catalog.stores.migrations") / "sqlite"
        scripts = {int(script.name[:4]): script for script in folder.iterdir()}
        newest = self._schema = max(scripts)
        with self._writing, _translated():
            if self._schema_version() == newest:
                return
            self._begin()
            try:
                found = self._schema_version()
                if found > newest:
                    raise RefusedError(
                        f"{self._path} has schema {found}; this Headgate knows up to {newest}.",
                        remedy="Use a newer Headgate.",
                    )
                for number in sorted(scripts):
                    if number > found:
                        self._writer.execute(scripts[number].read_text("utf-8"))
                self._writer.execute(f"PRAGMA user_version = {newest}")
                fail_point("store.migrate_before_commit")
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._commit()

    def _schema_version(self) -> int:
        [[version]] = self._writer.execute("PRAGMA user_version")
        return int(str(version))


class _Reading:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def clock(self) -> Clock:
        return _clock(self._all(_CLOCK))

    def clock_at(self, timestamp_ms: int) -> Clock | None:
        # Times rise with sequences, so the tree over sequences serves both.
        found: Clock | None = None
        low, high = 0, self.clock().sequence
        while low < high:
            middle = (low + high + 1) // 2
            row = self._one(_CLOCK_UPTO, middle)
            if row is not None and row[1] > timestamp_ms:
                high = row[0] - 1
            else:
                low, found = middle, found if row is None else Clock(*row)
        return found

    def setting(self, key: str) -> str | None:
        row = self._one("SELECT value FROM settings WHERE key = ?", key)
        return None if row is None else row[0]

    def namespaces(self) -> list[SchemaName]:
        rows = self._all("SELECT catalog, schema FROM namespaces ORDER BY catalog_key, schema_key")
        return [SchemaName(*row) for row in rows]

    def namespaces_made_ms(self) -> dict[SchemaName, int]:
        rows = self._all(
            "SELECT catalog, schema, created_ms FROM namespaces ORDER BY catalog_key, schema_key"
        )
        return {SchemaName(catalog, schema): made_ms for catalog, schema, made_ms in rows}

    def named(self, name: TableName, at: Sequence | None = None) -> TableId | None:
        if at is None:
            row = self._one(
                "SELECT table_id FROM names WHERE catalog_key = ? AND schema_key = ? "
                "AND name_key = ? AND to_sequence IS NULL",
                *name.key,
            )
        else:
            row = self._one(
                "SELECT table_id FROM names WHERE catalog_key = ? AND schema_key = ? "
                "AND name_key = ? AND from_sequence <= ? AND ifnull(to_sequence, ?) > ? "
                "ORDER BY from_sequence DESC LIMIT 1",
                *name.key,
                at,
                at + 1,
                at,
            )
        return None if row is None else row[0]

    def name_of(self, table_id: TableId, at: Sequence | None = None) -> TableName | None:
        if at is None:
            row = self._one(
                "SELECT catalog, schema, name FROM names WHERE table_id = ? "
                "AND to_sequence IS NULL",
                table_id,
            )
        else:
            row = self._one(
                "SELECT catalog, schema, name FROM names WHERE table_id = ? "
                "AND from_sequence <= ? AND ifnull(to_sequence, ?) > ?",
                table_id,
                at,
                at + 1,
                at,
            )
        return None if row is None else TableName(*row)

    def last_name_of(self, table_id: TableId) -> TableName | None:
        row = self._one(
            "SELECT catalog, schema, name FROM names WHERE table_id = ? "
            "ORDER BY from_sequence DESC LIMIT 1",
            table_id,
        )
        return None if row is None else TableName(*row)

    def names_of(self, table_id: TableId) -> list[TableName]:
        rows = self._all(
            "SELECT catalog, schema, name FROM names WHERE table_id = ? ORDER BY from_sequence",
            table_id,
        )
        return [TableName(*row) for row in rows]

    def table(self, table_id: TableId) -> TableRow | None:
        row = self._one(f"SELECT {_TABLE} FROM tables WHERE id = ?", table_id)
        return None if row is None else _table(row)

    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[tuple[TableRow, TableName]]:
        columns = ", ".join(f"tables.{field}" for field in TableRow._fields)
        sql = f"SELECT catalog, schema, name, {columns} FROM names JOIN tables ON table_id = id "
        sql += "WHERE to_sequence IS NULL "
        values: list[object] = []
        if namespace is not None:
            sql += "AND catalog_key = ? AND schema_key = ? "
            values += namespace.key
        if after is not None:
            sql += "AND (catalog_key, schema_key, name_key) > (?, ?, ?) "
            values += after.key
        sql += "ORDER BY catalog_key, schema_key, name_key LIMIT ?"
        rows = self._all(sql, *values, -1 if limit is None else limit)
        return [(_table(row[3:]), TableName(*row[:3])) for row in rows]

    def nameless(self, state: State) -> list[TableRow]:
        rows = self._all(f"SELECT {_TABLE} FROM tables WHERE state = ? ORDER BY key", state.value)
        return [_table(row) for row in rows]

    def unpublished(self) -> list[TableRow]:
        return [_table(row) for row in self._all(_UNPUBLISHED)]

    def overlapping(self, location: str) -> TableRow | None:
        above = [location.removesuffix("/")]
        while "/" in above[-1].partition("://")[2]:
            above.append(above[-1].rpartition("/")[0])
        above.append(f"{above[-1]}/")  # a whole disk is spelled with its slash
        row = self._one(
            f"SELECT {_TABLE} FROM tables WHERE {_HAS_PLACE} AND "
            f"(location IN ({', '.join('?' * len(above))}) "
            "OR (location > ? AND location < ?)) LIMIT 1",
            *above,
            above[0] + "/",
            above[0] + "0",  # the character after the slash
        )
        return None if row is None else _table(row)

    def commits(
        self, key: int, first: Version, last: Version, *, content: bool, summary: bool = False
    ) -> list[CommitRow]:
        wanted = f"{'summary' if summary else 'NULL'}, {'content' if content else 'NULL'}"
        rows = self._all(
            f"SELECT {_COMMIT}{wanted} FROM commits WHERE table_key = ? AND version BETWEEN ? AND ?"
            " ORDER BY version",
            key,
            first,
            last,
        )
        return [_commit(row) for row in rows]

    def ratified(self, key: int, first: Version, last: Version) -> tuple[RatifiedCommit, ...]:
        # A cold read takes thousands of them, so they are made from the rows with no step between.
        rows = self._connection.execute(_RATIFIED, (key, first, last))
        return tuple(
            [
                RatifiedCommit(
                    version=version,
                    way=_WAYS[way],
                    txn_id=txn_id,
                    sequence=sequence,
                    timestamp_ms=timestamp_ms,
                    size=size,
                    sha256=sha256,
                    file_name=file_name,
                    modified_ms=modified_ms,
                    content=content,
                    published_ms=published_ms,
                )
                for (
                    version,
                    way,
                    txn_id,
                    sequence,
                    timestamp_ms,
                    size,
                    sha256,
                    file_name,
                    modified_ms,
                    content,
                    published_ms,
                ) in rows
            ]
        )

    def fitting(self, key: int, first: Version, last: Version, most_bytes: int) -> Version:
        sql = _FITTING.format(*(("max", "ASC") if first <= last else ("min", "DESC")))
        [found] = self._one(sql, key, *sorted((first, last)), most_bytes) or (None,)
        return first if found is None else found

    def version_at(self, key: int, at: Sequence) -> Version | None:
        # Sequences rise with versions, so the tree over versions serves both.
        row = self._one("SELECT max(version) FROM commits WHERE table_key = ?", key)
        low, high = -1, -1 if row is None or row[0] is None else row[0]
        while low < high:
            middle = (low + high + 1) // 2
            [sequence] = self._one(
                "SELECT sequence FROM commits WHERE table_key = ? AND version = ?", key, middle
            ) or (0,)
            low, high = (middle, high) if sequence <= at else (low, middle - 1)
        return None if low < 0 else Version(low)

    def ratified_under(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        rows = self._all(_RATIFIED_UNDER, txn_id)
        return [(row[0], _commit(row[1:])) for row in rows]

    def torn(self) -> list[TxnId]:
        return [txn_id for (txn_id,) in self._all(gathering.TORN)]

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        row = self._one(
            "SELECT txn_id, intent, answer, decided_ms FROM rejections WHERE txn_id = ?", txn_id
        )
        return None if row is None else RejectionRow(*row)

    def files(self, key: int, last: Version) -> list[KnownFile]:
        rows = self._all(_FILES, *(key, last) * 4)
        return [
            KnownFile(kind=FileKind(kind), first=first, last=last, paths=tuple(json.loads(paths)))
            for kind, first, last, paths in rows
        ]

    def events(self, after: Sequence, limit: int) -> list[EventRow]:
        ticks = self._all(
            "SELECT sequence, clock_ms, txn_id FROM sequences WHERE sequence > ? "
            "ORDER BY sequence LIMIT ?",
            after,
            max(limit, 0),
        )
        if not ticks:
            return []
        last = ticks[-1][0]
        commits = self._all(_EVENT_COMMITS, after, last)
        begun, ended = (
            self._all(
                f"SELECT {end}, catalog, schema, name, table_id FROM names "
                f"WHERE {end} > ? AND {end} <= ? ORDER BY {end}, table_id",
                after,
                last,
            )
            for end in ("from_sequence", "to_sequence")
        )
        return gathering.events(
            ticks, [(row[0], _commit(row[1:])) for row in commits], begun, ended
        )

    def holder_of(self, lease: str) -> str | None:
        row = self._one("SELECT holder FROM leases WHERE name = ?", lease)
        return None if row is None else row[0]

    def token(self, secret_sha256: bytes) -> TokenRow | None:
        row = self._one(f"{_TOKENS} WHERE secret_sha256 = ?", secret_sha256)
        return None if row is None else TokenRow(*row)

    def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in self._all(f"{_TOKENS} ORDER BY name")]

    def answer(self, key: str) -> AnswerRow | None:
        row = self._one("SELECT key, request, answer, decided_ms FROM answers WHERE key = ?", key)
        return None if row is None else AnswerRow(*row)

    def listeners(self) -> list[ListenerRow]:
        rows = self._all(
            "SELECT name, kind, target, position, created_ms, failing FROM listeners ORDER BY name"
        )
        return [ListenerRow(*row) for row in rows]

    def counts(self) -> Counts:
        return gathering.counts(
            states=self._all("SELECT state, count(*) FROM tables GROUP BY state"),
            tails=self._all(_TAILS),
            external=self._count("tables WHERE kind = 'external' AND state = 'active'"),
            rejections=self._count("rejections"),
            listeners=self._count("listeners"),
            tokens=self._count("tokens WHERE revoked_ms IS NULL"),
        )

    def _count(self, what: str) -> int:
        [[count]] = self._all(f"SELECT count(*) FROM {what}")
        return int(count)

    # SQLite gives what the STRICT schema says; the callers name the types.
    def _all(self, sql: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        return self._connection.execute(sql, values).fetchall()

    def _one(self, sql: str, *values: object) -> tuple | None:  # type: ignore[type-arg]
        return self._connection.execute(sql, values).fetchone()


@dataclass(slots=True)
class _Known:
    """What a unit left behind, and the next one need not ask for.

    It holds as long as SQLite says that no other connection has written, which is asked under the
    lock of every unit.
    """

    data_version: int | None = None  # SQLite's count of commits seen, after the last of ours
    clock: Clock | None = None
    tables: dict[TableId, TableRow] = field(default_factory=dict)
    ids: dict[int, TableId] = field(default_factory=dict)  # by a table's key
    taken: dict[int, Version] = field(default_factory=dict)  # by a table's key: the last one


class _Writing(_Reading):
    """While it lasts nobody else writes: what it read stays true until it changes it itself."""

    def __init__(self, connection: apsw.Connection, known: _Known) -> None:
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

    def savepoint(self) -> _Savepoint:
        return _Savepoint(self)

    def begin_part(self) -> tuple[Clock | None, bool]:
        """Begin what may be undone by itself; give what it takes to end it."""
        self.refuse_if_lost()
        if self._mark is not None:  # within another, which then has to stand first
            self._send()
        outer = self._mark is not None
        self._mark, self._is_saved = len(self._batches), False
        return self._clock, outer

    def end_part(
        self, began: tuple[Clock | None, bool], error: BaseException | None
    ) -> HeadgateError | None:
        """End it, or undo it for an error; give that error in our words, if it needs any."""
        clock, outer = began
        try:
            if error is not None:
                self._undo(clock)
                return _translation(error)
            if self._is_saved:
                self._connection.execute("RELEASE one")
            return None
        finally:
            self._mark, self._is_saved = (0, True) if outer else (None, False)

    def _undo(self, clock: Clock | None) -> None:
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

    def expect(self, txn_ids: Collection[TxnId], table_ids: Collection[TableId]) -> None:
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
                self._know(_table(row))

    def finish(self) -> None:
        """Write what was gathered."""
        try:
            self._batches.send()
            self._known.clock = self._clock
        except TakenError as error:
            raise UnavailableError(
                f"The catalog's database contradicts itself ({error}); nothing was written.",
                remedy="Run `headgate fsck` and report what it finds.",
            ) from error

    def clock(self) -> Clock:
        if self._clock is None:
            self._clock = _clock(self._ask(_CLOCK))
        return self._clock

    def table(self, table_id: TableId) -> TableRow | None:
        if table_id not in self._tables:
            found = self._ask(f"SELECT {_TABLE} FROM tables WHERE id = ?", table_id)
            if not found:
                return None
            self._know(_table(found[0]))
        return self._tables[table_id]

    def ratified_under(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        return [] if txn_id in self._unheard_of else super().ratified_under(txn_id)

    def ratified(self, key: int, first: Version, last: Version) -> tuple[RatifiedCommit, ...]:
        self._send()
        return super().ratified(key, first, last)

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        return None if txn_id in self._unheard_of else super().rejection(txn_id)

    def _forget(self, key: int) -> None:
        self._tables.pop(self._ids.pop(key, _NOBODY), None)

    def _know(self, row: TableRow) -> None:
        self._tables[row.id] = row
        self._ids[row.key] = row.id
        self._taken.setdefault(row.key, row.head)

    def _ask(self, sql: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        """Read what nothing gathered can have changed."""
        return self._connection.execute(sql, values).fetchall()

    def _all(self, sql: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        self._send()
        return super()._all(sql, *values)

    def _one(self, sql: str, *values: object) -> tuple | None:  # type: ignore[type-arg]
        self._send()
        return super()._one(sql, *values)

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

    def advance_clock(self, clock: Clock, txn_id: TxnId | None) -> None:
        values = (*clock, txn_id)
        if self._clock is not None and clock.sequence == self._clock.sequence + 1:
            self._batches.add(_INSERT_SEQUENCES, values)
        else:
            self._do("INSERT INTO sequences VALUES (?, ?, ?)", *values)
        self._clock = clock

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

    def begin_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        self._do(
            "INSERT INTO names VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            *(fold(part) for part in (name.catalog, name.schema, name.table)),
            name.catalog,
            name.schema,
            name.table,
            table_id,
            since,
        )

    def end_name(self, table_id: TableId, until: Sequence) -> None:
        self._do(
            "UPDATE names SET to_sequence = ? WHERE table_id = ? AND to_sequence IS NULL",
            until,
            table_id,
        )

    def insert_table(self, row: TableRow) -> TableRow:
        self._do(_INSERT_TABLE, *_values(row)[1:])
        row = row._replace(key=self._connection.last_insert_rowid())
        self._know(row)
        return row

    def update_table(self, row: TableRow) -> None:
        known = self._tables.get(row.id)
        if known is not None and _has_same_place(row, known) and row.published <= row.head:
            self._batches.add(_UPDATE_TABLES, _values(row), row.key)
        else:
            self._do(_UPDATE_TABLE, *_values(row)[1:], row.key)
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

    def forget_rejections(self, before_ms: int) -> None:
        self._do("DELETE FROM rejections WHERE decided_ms < ?", before_ms)

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        if last >= self._inserted.get(key, Version(last + 1)):  # they must be there first
            self._send()
        self._batches.add(_RECORD_PUBLISHED, (now_ms, key, first, last))
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

    def forget_content(self, key: int, upto: Version) -> None:
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

    def take_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool:
        self._send_lease(name)
        for other, other_until_ms in self._ask(_LEASE, name):
            if other != holder and other_until_ms > now_ms:
                return False
        self._batches.add(_TAKE_LEASES, (name, holder, until_ms))
        return True

    def end_lease(self, name: str, holder: str) -> None:
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

    def forget_answers(self, before_ms: int) -> None:
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

    def _do(self, sql: str, *values: object) -> None:
        self._send()
        self._run(sql, values)

    def _run(self, sql: str, values: Values) -> None:
        self.refuse_if_lost()  # outside of a transaction each statement would be one of its own
        try:
            self._connection.execute(sql, values)
        except apsw.ConstraintError as error:
            raise TakenError(str(error)) from error


class _Savepoint:
    """Part of a unit. No generator, which would take longer than all that is decided in it."""

    __slots__ = ("_began", "_unit")

    def __init__(self, unit: _Writing) -> None:
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


def _clock(newest: list[tuple]) -> Clock:  # type: ignore[type-arg]
    return Clock(*newest[0]) if newest else Clock(Sequence(0), 0)


def _values(row: TableRow) -> tuple[object, ...]:
    return (*row[:2], row.state.value, *row[3:-1], row.kind.value)


def _table(row: tuple) -> TableRow:  # type: ignore[type-arg]
    return TableRow._make((*row[:2], State(row[2]), *row[3:-1], Kind(row[-1])))


def _commit(row: tuple) -> CommitRow:  # type: ignore[type-arg]
    return CommitRow._make((*row[:4], _WAYS[row[4]], *row[5:]))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translated() -> Iterator[None]:
    """Say in our words what SQLite cannot do."""
    try:
        yield
    except apsw.Error as error:
        if (translation := _translation(error)) is not None:
            raise translation from error
        raise


def _translation(error: BaseException) -> HeadgateError | None:
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
