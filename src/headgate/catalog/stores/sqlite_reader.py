"""What is asked of the SQLite store: one read transaction, everything in it from one instant."""

from __future__ import annotations

import json
from typing import Final

import apsw

from headgate.api.messages import RatifiedCommit
from headgate.api.port import Ref
from headgate.api.table_states import TableStatus
from headgate.catalog.stores import assembly
from headgate.catalog.stores.assembly import (
    NAMED,
    TABLE,
    TOLD,
    as_commit,
    as_named,
    as_ratified,
    as_table,
    as_told,
)
from headgate.catalog.stores.port import (
    AnswerRow,
    CatalogClock,
    CommitHeader,
    CommitRow,
    Counts,
    EventRow,
    ListenerRow,
    LocationRow,
    NamedTableRow,
    RejectionRow,
    TableRow,
    TokenRow,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile

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
_RATIFIED: Final = f"{assembly.RATIFIED}? AND version BETWEEN ? AND ? ORDER BY version"
_FITTING: Final = (
    "SELECT {}(version) FROM (SELECT version, sum(ifnull(length(content), 0)) OVER "
    "(ORDER BY version {}) AS total FROM commits WHERE table_key = ? AND version BETWEEN ? AND ?) "
    "WHERE total <= ?"
)
RATIFIED_UNDER: Final = (
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
CLOCK: Final = "SELECT sequence, clock_ms FROM sequences ORDER BY sequence DESC LIMIT 1"
_OLDEST: Final = "SELECT sequence, clock_ms FROM sequences ORDER BY sequence LIMIT 1"
_CLOCK_UPTO: Final = (
    "SELECT sequence, clock_ms FROM sequences WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1"
)
_UNPUBLISHED: Final = (
    f"SELECT {TABLE} FROM behind CROSS JOIN tables ON key = table_key WHERE state = 'active'"
)
_TAILS: Final = (
    "SELECT id, head - published, ratified_ms FROM behind CROSS JOIN tables "
    "ON key = behind.table_key LEFT JOIN commits ON commits.table_key = key "
    "AND version = published + 1 WHERE state = 'active'"
)
_TOKENS: Final = "SELECT name, secret_sha256, created_ms, expires_ms, revoked_ms FROM tokens"


class ReadingUnit:
    """One read transaction on a connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def clock(self) -> CatalogClock:
        return as_clock(self._all(CLOCK))

    def clock_at(self, timestamp_ms: int) -> CatalogClock | None:
        # Times rise with sequences, so the tree over sequences serves both.
        found: CatalogClock | None = None
        low, high = 0, self.clock().sequence
        while low < high:
            middle = (low + high + 1) // 2
            row = self._one(_CLOCK_UPTO, middle)
            if row is not None and row[1] > timestamp_ms:
                high = row[0] - 1
            else:
                low, found = middle, found if row is None else CatalogClock(*row)
        return found

    def oldest_event(self) -> CatalogClock | None:
        row = self._one(_OLDEST)
        return None if row is None else CatalogClock(*row)

    def setting(self, key: str) -> str | None:
        row = self._one("SELECT value FROM settings WHERE key = ?", key)
        return None if row is None else row[0]

    def namespaces(self) -> list[SchemaName]:
        rows = self._all("SELECT catalog, schema FROM namespaces ORDER BY catalog_key, schema_key")
        return [SchemaName(*row) for row in rows]

    def namespace_creation_times(self) -> dict[SchemaName, int]:
        rows = self._all(
            "SELECT catalog, schema, created_ms FROM namespaces ORDER BY catalog_key, schema_key"
        )
        return {SchemaName(catalog, schema): made_ms for catalog, schema, made_ms in rows}

    def table_id_of(self, name: TableName, at: Sequence | None = None) -> TableId | None:
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

    def named_table(self, ref: Ref) -> NamedTableRow | None:
        if isinstance(ref, TableName):
            where = "AND catalog_key = ? AND schema_key = ? AND name_key = ?"
            row = self._one(f"{NAMED}{where}", *ref.key)
        else:
            row = self._one(f"{NAMED}AND table_id = ?", ref)
        return None if row is None else as_named(row)

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
        row = self._one(f"SELECT {TABLE} FROM tables WHERE id = ?", table_id)
        return None if row is None else as_table(row)

    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[NamedTableRow]:
        sql = NAMED
        values: list[object] = []
        if namespace is not None:
            sql += "AND catalog_key = ? AND schema_key = ? "
            values += namespace.key
        if after is not None:
            sql += "AND (catalog_key, schema_key, name_key) > (?, ?, ?) "
            values += after.key
        sql += "ORDER BY catalog_key, schema_key, name_key LIMIT ?"
        rows = self._all(sql, *values, -1 if limit is None else limit)
        return [as_named(row) for row in rows]

    def tables_in_state(self, state: TableStatus) -> list[TableRow]:
        rows = self._all(f"SELECT {TABLE} FROM tables WHERE state = ? ORDER BY key", state.value)
        return [as_table(row) for row in rows]

    def unpublished_tables(self) -> list[TableRow]:
        return [as_table(row) for row in self._all(_UNPUBLISHED)]

    def overlapping_table(self, location: str) -> TableRow | None:
        above = assembly.and_above(location)
        row = self._one(
            f"SELECT {TABLE} FROM tables WHERE {_HAS_PLACE} AND "
            f"(location IN ({', '.join('?' * len(above))}) "
            "OR (location > ? AND location < ?)) LIMIT 1",
            *above,
            above[0] + "/",
            above[0] + "0",  # the character after the slash
        )
        return None if row is None else as_table(row)

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
        return [as_commit(row) for row in rows]

    def ratified_commits(
        self, key: int, first: Version, last: Version
    ) -> tuple[RatifiedCommit, ...]:
        return as_ratified(self._connection.execute(_RATIFIED, (key, first, last)))

    def commit_headers(self, key: int, first: Version, last: Version) -> list[CommitHeader]:
        where = "? AND version BETWEEN ? AND ? ORDER BY version"
        return as_told(self._all(f"{TOLD}{where}", key, first, last))

    def last_version_within(
        self, key: int, first: Version, last: Version, most_bytes: int
    ) -> Version:
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

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        rows = self._all(RATIFIED_UNDER, txn_id)
        return [(row[0], as_commit(row[1:])) for row in rows]

    def inconsistent_transactions(self) -> list[TxnId]:
        return [txn_id for (txn_id,) in self._all(assembly.TORN)]

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        row = self._one(
            "SELECT txn_id, intent, answer, decided_ms FROM rejections WHERE txn_id = ?", txn_id
        )
        return None if row is None else RejectionRow(*row)

    def files(self, key: int, last: Version) -> list[KnownFile]:
        return self._known_files(_FILES, *(key, last) * 4)

    def all_files(self, key: int) -> list[KnownFile]:
        return self._known_files(
            "SELECT kind, first, last, paths FROM files WHERE table_key = ? "
            "ORDER BY kind, last, first",
            key,
        )

    def _known_files(self, sql: str, *values: int) -> list[KnownFile]:
        return [
            KnownFile(kind=FileKind(kind), first=first, last=last, paths=tuple(json.loads(paths)))
            for kind, first, last, paths in self._all(sql, *values)
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
        return assembly.events(
            ticks, [(row[0], as_commit(row[1:])) for row in commits], begun, ended
        )

    def lease_holder(self, lease: str) -> str | None:
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

    def locations(self) -> list[LocationRow]:
        rows = self._all("SELECT url, created_ms FROM locations ORDER BY url")
        return [LocationRow(*row) for row in rows]

    def counts(self) -> Counts:
        return assembly.counts(
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


def as_clock(newest: list[tuple]) -> CatalogClock:  # type: ignore[type-arg]
    """Give where the catalog is, of its newest sequence if there is one."""
    return CatalogClock(*newest[0]) if newest else CatalogClock(Sequence(0), 0)
