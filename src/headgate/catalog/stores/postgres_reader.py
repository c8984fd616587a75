"""What is read of a catalog on PostgreSQL, each question in one round trip.

Knows PostgreSQL's SQL, and nothing of connections: those are behind a `Line`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final, Protocol

from headgate.api.messages import RatifiedCommit
from headgate.api.port import Ref
from headgate.api.table_states import TableStatus
from headgate.catalog.stores import assembly
from headgate.catalog.stores.assembly import (
    NAMED,
    TABLE,
    TOLD,
    Row,
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
from headgate.catalog.stores.postgres_bulk import Statement, Values, array
from headgate.errors import InvalidArgumentError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile

_LARGEST: Final = 2**63
_COMMIT: Final = ", ".join(f"commits.{field}" for field in CommitRow._fields[:-2])
_FILES: Final = (
    "(SELECT kind, first, last, paths FROM files WHERE table_key = $1 "
    "AND kind = 'checkpoint' AND last <= $2 ORDER BY last DESC LIMIT 1) "
    "UNION ALL SELECT kind, first, last, paths FROM files WHERE table_key = $1 "
    "AND kind = 'compaction' AND last <= $2 AND first > coalesce((SELECT max(last) FROM files "
    "WHERE table_key = $1 AND kind = 'checkpoint' AND last <= $2), -1) "
    "UNION ALL SELECT kind, first, last, paths FROM files WHERE table_key = $1 "
    "AND kind = 'checksum' AND last = $2"
)
# Sequences rise with versions, so the tree over versions serves both; halving it in the server
# is one round trip.
_FITTING: Final = (
    "SELECT {}(version) FROM (SELECT version, sum(coalesce(octet_length(content), 0)) OVER "
    "(ORDER BY version {}) AS total FROM commits WHERE table_key = $1 "
    "AND version BETWEEN $2 AND $3) fitted WHERE total <= $4"
)
_VERSION_AT: Final = (
    "WITH RECURSIVE search (low, high) AS ("
    "SELECT -1::bigint, coalesce((SELECT max(version) FROM commits WHERE table_key = $1), -1) "
    "UNION ALL SELECT CASE WHEN coalesce(sequence, 0) <= $2 THEN middle ELSE low END, "
    "CASE WHEN coalesce(sequence, 0) <= $2 THEN high ELSE middle - 1 END "
    "FROM (SELECT low, high, (low + high + 1) / 2 AS middle FROM search WHERE low < high) halves "
    "LEFT JOIN commits ON table_key = $1 AND version = middle) "
    "SELECT low FROM search WHERE low = high"
)
# By the index over txnIds: one over sequences would cost every ratification.
_EVENT_COMMITS: Final = (
    f"SELECT id, {_COMMIT}, NULL, NULL FROM sequences JOIN commits "
    "ON commits.txn_id = sequences.txn_id AND commits.sequence = sequences.sequence "
    "JOIN tables ON key = table_key WHERE sequences.sequence > $1 AND sequences.sequence <= $2 "
    "ORDER BY sequences.sequence, table_key"
)
_TAILS: Final = (
    "SELECT id, head - published, ratified_ms FROM tables "
    "LEFT JOIN commits ON table_key = key AND version = published + 1 "
    "WHERE published < head AND state = 'active'"
)
_TOKENS: Final = "SELECT name, secret_sha256, created_ms, expires_ms, revoked_ms FROM tokens"
_REJECTIONS: Final = "SELECT txn_id, intent, answer, decided_ms FROM rejections"
_RATIFIED_UNDER: Final = (
    f"SELECT id, {_COMMIT}, summary, content FROM commits JOIN tables ON table_key = key"
)


class Line(Protocol):
    """A connection inside a transaction."""

    def ask(self, told: list[Statement], asked: list[Statement]) -> list[list[Row]]:
        """Execute all of it in few round trips, and give the rows of what was asked."""
        ...

    def attempt(self, sql: str, values: Values, savepoint: str) -> list[Row]:
        """Execute a statement; roll back to the savepoint when a constraint rejects it.

        Raises `StoreConstraintError` in that case.
        """
        ...

    def take_back(self, savepoint: str) -> None:
        """Undo all since a savepoint, and end it."""
        ...


class ReadingUnit:
    """One instant of the catalog."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def clock(self) -> CatalogClock:
        [[sequence, clock_ms]] = self._all("SELECT sequence, clock_ms FROM clock")
        return CatalogClock(sequence, clock_ms)

    def clock_at(self, timestamp_ms: int) -> CatalogClock | None:
        row = self._one(
            "SELECT sequence, clock_ms FROM sequences WHERE clock_ms <= $1 "
            "ORDER BY clock_ms DESC, sequence DESC LIMIT 1",
            timestamp_ms,
        )
        return None if row is None else CatalogClock(*row)

    def oldest_event(self) -> CatalogClock | None:
        row = self._one("SELECT sequence, clock_ms FROM sequences ORDER BY sequence LIMIT 1")
        return None if row is None else CatalogClock(*row)

    def setting(self, key: str) -> str | None:
        row = self._one("SELECT value FROM settings WHERE key = $1", key)
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
        sql = (
            "SELECT table_id FROM names WHERE catalog_key = $1 AND schema_key = $2 "
            "AND name_key = $3 AND "
        )
        if at is None:
            row = self._one(f"{sql}to_sequence IS NULL", *name.key)
        else:
            row = self._one(
                f"{sql}from_sequence <= $4 AND (to_sequence IS NULL OR to_sequence > $4) "
                "ORDER BY from_sequence DESC LIMIT 1",
                *name.key,
                at,
            )
        return None if row is None else row[0]

    def named_table(self, ref: Ref) -> NamedTableRow | None:
        if isinstance(ref, TableName):
            where = "AND catalog_key = $1 AND schema_key = $2 AND name_key = $3"
            row = self._one(f"{NAMED}{where}", *ref.key)
        else:
            row = self._one(f"{NAMED}AND table_id = $1", ref)
        return None if row is None else as_named(row)

    def name_of(self, table_id: TableId, at: Sequence | None = None) -> TableName | None:
        sql = "SELECT catalog, schema, name FROM names WHERE table_id = $1 AND "
        if at is None:
            row = self._one(f"{sql}to_sequence IS NULL", table_id)
        else:
            row = self._one(
                f"{sql}from_sequence <= $2 AND (to_sequence IS NULL OR to_sequence > $2)",
                table_id,
                at,
            )
        return None if row is None else TableName(*row)

    def last_name_of(self, table_id: TableId) -> TableName | None:
        row = self._one(
            "SELECT catalog, schema, name FROM names WHERE table_id = $1 "
            "ORDER BY from_sequence DESC LIMIT 1",
            table_id,
        )
        return None if row is None else TableName(*row)

    def names_of(self, table_id: TableId) -> list[TableName]:
        rows = self._all(
            "SELECT catalog, schema, name FROM names WHERE table_id = $1 ORDER BY from_sequence",
            table_id,
        )
        return [TableName(*row) for row in rows]

    def table(self, table_id: TableId) -> TableRow | None:
        row = self._one(f"SELECT {TABLE} FROM tables WHERE id = $1", table_id)
        return None if row is None else as_table(row)

    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[NamedTableRow]:
        sql = NAMED
        values: list[object] = [limit]
        if namespace is not None:
            sql += f"AND catalog_key = ${len(values) + 1} AND schema_key = ${len(values) + 2} "
            values += namespace.key
        if after is not None:
            places = ", ".join(f"${len(values) + number}" for number in (1, 2, 3))
            sql += f"AND (catalog_key, schema_key, name_key) > ({places}) "
            values += after.key
        sql += "ORDER BY catalog_key, schema_key, name_key LIMIT $1"
        rows = self._all(sql, *values)
        return [as_named(row) for row in rows]

    def tables_in_state(self, state: TableStatus) -> list[TableRow]:
        rows = self._all(f"SELECT {TABLE} FROM tables WHERE state = $1 ORDER BY key", state.value)
        return [as_table(row) for row in rows]

    def unpublished_tables(self) -> list[TableRow]:
        rows = self._all(
            f"SELECT {TABLE} FROM tables WHERE published < head AND state = 'active' ORDER BY key"
        )
        return [as_table(row) for row in rows]

    def overlapping_table(self, location: str) -> TableRow | None:
        above = assembly.and_above(location)
        row = self._one(
            # A table keeps its place until a purge has ended: the last step forgets what was held.
            f"SELECT {TABLE} FROM tables WHERE purged_ms IS NULL AND "
            "(location = ANY ($1::text[]) OR (location > $2 AND location < $3)) LIMIT 1",
            array(above),
            above[0] + "/",
            above[0] + "0",  # the character after the slash
        )
        return None if row is None else as_table(row)

    def commits(
        self, key: int, first: Version, last: Version, *, content: bool, summary: bool = False
    ) -> list[CommitRow]:
        wanted = f"{'summary' if summary else 'NULL'}, {'content' if content else 'NULL'}"
        rows = self._all(
            f"SELECT {_COMMIT}, {wanted} FROM commits WHERE table_key = $1 "
            "AND version BETWEEN $2 AND $3 ORDER BY version",
            key,
            first,
            last,
        )
        return [as_commit(row) for row in rows]

    def ratified_commits(
        self, key: int, first: Version, last: Version
    ) -> tuple[RatifiedCommit, ...]:
        where = "$1 AND version BETWEEN $2 AND $3 ORDER BY version"
        return as_ratified(self._all(f"{assembly.RATIFIED}{where}", key, first, last))

    def commit_headers(self, key: int, first: Version, last: Version) -> list[CommitHeader]:
        where = "$1 AND version BETWEEN $2 AND $3 ORDER BY version"
        return as_told(self._all(f"{TOLD}{where}", key, first, last))

    def last_version_within(
        self, key: int, first: Version, last: Version, most_bytes: int
    ) -> Version:
        sql = _FITTING.format(*(("max", "ASC") if first <= last else ("min", "DESC")))
        [found] = self._one(sql, key, *sorted((first, last)), most_bytes) or (None,)
        return first if found is None else found

    def version_at(self, key: int, at: Sequence) -> Version | None:
        row = self._one(_VERSION_AT, key, at)
        return None if row is None or row[0] < 0 else Version(row[0])

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        rows = self._all(f"{_RATIFIED_UNDER} WHERE txn_id = $1", txn_id)
        return [(row[0], as_commit(row[1:])) for row in rows]

    def inconsistent_transactions(self) -> list[TxnId]:
        return [txn_id for [txn_id] in self._all(assembly.TORN)]

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        row = self._one(f"{_REJECTIONS} WHERE txn_id = $1", txn_id)
        return None if row is None else RejectionRow(*row)

    def files(self, key: int, last: Version) -> list[KnownFile]:
        return self._known_files(_FILES, key, last)

    def all_files(self, key: int) -> list[KnownFile]:
        return self._known_files(
            "SELECT kind, first, last, paths FROM files WHERE table_key = $1 "
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
            "SELECT sequence, clock_ms, txn_id FROM sequences WHERE sequence > $1 "
            "ORDER BY sequence LIMIT $2",
            after,
            max(limit, 0),
        )
        if not ticks:
            return []
        within = (after, ticks[-1][0])
        commits, begun, ended = self._each(
            (_EVENT_COMMITS, within),
            *(
                (
                    f"SELECT {end}, catalog, schema, name, table_id FROM names "
                    f"WHERE {end} > $1 AND {end} <= $2 ORDER BY {end}, table_id",
                    within,
                )
                for end in ("from_sequence", "to_sequence")
            ),
        )
        return assembly.events(
            ticks, [(row[0], as_commit(row[1:])) for row in commits], begun, ended
        )

    def lease_holder(self, lease: str) -> str | None:
        row = self._one("SELECT holder FROM leases WHERE name = $1", lease)
        return None if row is None else row[0]

    def token(self, secret_sha256: bytes) -> TokenRow | None:
        row = self._one(f"{_TOKENS} WHERE secret_sha256 = $1", secret_sha256)
        return None if row is None else TokenRow(*row)

    def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in self._all(f"{_TOKENS} ORDER BY name")]

    def answer(self, key: str) -> AnswerRow | None:
        row = self._one("SELECT key, request, answer, decided_ms FROM answers WHERE key = $1", key)
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
        states, tails, [[external]], [[rejections]], [[listeners]], [[tokens]] = self._each(
            ("SELECT state, count(*) FROM tables GROUP BY state", ()),
            (_TAILS, ()),
            ("SELECT count(*) FROM tables WHERE kind = 'external' AND state = 'active'", ()),
            ("SELECT count(*) FROM rejections", ()),
            ("SELECT count(*) FROM listeners", ()),
            ("SELECT count(*) FROM tokens WHERE revoked_ms IS NULL", ()),
        )
        return assembly.counts(
            states,
            tails,
            external=external,
            rejections=rejections,
            listeners=listeners,
            tokens=tokens,
        )

    def _one(self, sql: str, *values: object) -> Row | None:
        rows = self._all(sql, *values)
        return rows[0] if rows else None

    def _all(self, sql: str, *values: object) -> list[Row]:
        return self._each((sql, values))[0]

    def _each(self, *asked: Statement) -> list[list[Row]]:
        """Ask all of it in one round trip."""
        for _, values in asked:
            refuse_unless_storable(values)
        return self._line.ask([], list(asked))


def is_storable(value: object) -> bool:
    """Say whether PostgreSQL can keep a value: no NUL in text, no number of over 64 bits."""
    # By type and not by match: a batch has thousands of them.
    if type(value) is str:
        return "\0" not in value and (value.isascii() or _is_unicode(value))
    return type(value) is not int or -_LARGEST <= value < _LARGEST


def refuse_unless_storable(values: Collection[object]) -> None:
    """Refuse what PostgreSQL cannot keep, before it refuses all that goes with it."""
    if all(map(is_storable, values)):
        return
    said = next(repr(value) for value in values if not is_storable(value))
    raise InvalidArgumentError(
        f"PostgreSQL cannot keep {said if len(said) < 80 else said[:77] + '...'}.",
        remedy="Leave NUL characters and lone surrogates out, and numbers within 64 bits.",
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
