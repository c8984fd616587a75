"""Every read of a catalog's database, with SQL that SQLite and PostgreSQL both run.

The dialects differ in few places, class variables of `ReadUnit`. Placeholders are `$1`, `$2` …:
numbers to PostgreSQL, and names to SQLite, which numbers them by their first appearance. So in
every statement they first appear in order.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from operator import itemgetter
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from headgate.api.messages import RatifiedCommit
from headgate.api.port import Ref
from headgate.catalog.stores.rows import (
    AnswerRow,
    CatalogClock,
    CommitRow,
    Counts,
    Epoch,
    EventRow,
    ListenerRow,
    LocationRow,
    NamedTableRow,
    RejectionRow,
    TableRow,
    TokenRow,
)
from headgate.errors import DamagedError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.table_states import TableKind, TableStatus

Value = TypeVar("Value")
Row: TypeAlias = tuple[Any, ...]  # the types are those of the schema
Values: TypeAlias = tuple[object, ...]
Statement: TypeAlias = tuple[str, Values]

_FIRST: Final[Callable[[Row], Any]] = itemgetter(0)  # the only column of a row
_WAYS: Final = {way.value: way for way in Way}


def _columns(fields: Iterable[str], table: str = "") -> str:
    return ", ".join(f"{table}.{field}" if table else field for field in fields)


TABLE_COLUMNS: Final = _columns(TableRow._fields)
_COMMIT_COLUMNS: Final = _columns(CommitRow._fields[:-2], "commits")  # less summary and content

_CLOCK: Final = "SELECT sequence, clock_ms FROM sequences ORDER BY sequence DESC LIMIT 1"
_OLDEST_EVENT: Final = "SELECT sequence, clock_ms FROM sequences ORDER BY sequence LIMIT 1"
# Times and sequences rise together, so the index over sequences serves both: a binary search.
_CLOCK_AT: Final = """
    WITH RECURSIVE search (low, high) AS (
        SELECT CAST(0 AS bigint), coalesce((SELECT max(sequence) FROM sequences), 0)
        UNION ALL
        SELECT CASE WHEN coalesce(clock_ms, 0) <= $1 THEN (low + high + 1) / 2 ELSE low END,
               CASE WHEN coalesce(clock_ms, 0) <= $1 THEN high ELSE (low + high - 1) / 2 END
        FROM search LEFT JOIN sequences ON sequence =
            (SELECT max(earlier.sequence) FROM sequences AS earlier
             WHERE earlier.sequence <= (low + high + 1) / 2)
        WHERE low < high)
    SELECT sequence, clock_ms FROM search JOIN sequences ON sequence =
        (SELECT max(earlier.sequence) FROM sequences AS earlier WHERE earlier.sequence <= low)
    WHERE low = high"""
_EVENTS: Final = (
    "SELECT sequence, clock_ms, txn_id FROM sequences WHERE sequence > $1 "
    "ORDER BY sequence LIMIT $2"
)
# From the sequences to their commits by the index over txnIds: one over sequences would cost
# every ratification a page. SQLite keeps the order of a CROSS JOIN.
EVENT_COMMITS: Final = (
    f"SELECT id, {_COMMIT_COLUMNS}, NULL, NULL "
    "FROM sequences CROSS JOIN commits JOIN tables ON key = table_key "
    "WHERE commits.txn_id = sequences.txn_id AND commits.sequence = sequences.sequence "
    "AND sequences.sequence > $1 AND sequences.sequence <= $2 "
    "ORDER BY sequences.sequence, table_key"
)
_NAME_CHANGES: Final = (
    "SELECT {column}, catalog, schema, name, table_id FROM names "
    "WHERE {column} > $1 AND {column} <= $2 ORDER BY {column}, table_id"
)

_NAMED_TABLE: Final = (
    f"SELECT catalog, schema, name, commits.timestamp_ms, {_columns(TableRow._fields, 'tables')} "
    "FROM names JOIN tables ON table_id = id "
    "LEFT JOIN commits ON table_key = key AND version = metadata_version "
    "WHERE to_sequence IS NULL "
)
_TABLE_ID: Final = (
    "SELECT table_id FROM names WHERE catalog_key = $1 AND schema_key = $2 AND name_key = $3 "
)
_NAME: Final = "SELECT catalog, schema, name FROM names WHERE table_id = $1 "
_TABLES: Final = f"SELECT {TABLE_COLUMNS} FROM tables "

_COMMITS: Final = " FROM commits WHERE table_key = $1 AND version BETWEEN $2 AND $3 "
_RATIFIED_COMMITS: Final = (
    "SELECT version, way, txn_id, sequence, timestamp_ms, size, sha256, file_name, modified_ms, "
    f"{{content}}, published_ms{_COMMITS}ORDER BY version"
)
_WITH_CONTENT: Final = _RATIFIED_COMMITS.format(content="content")
_WITHOUT_CONTENT: Final = _RATIFIED_COMMITS.format(content="NULL")
_CONTENT_BYTES: Final = f"SELECT coalesce(sum(length(content)), 0){_COMMITS}"
_VERSION_WITHIN: Final = (
    "SELECT {end}(version) FROM (SELECT version, sum(coalesce(length(content), 0)) OVER "
    f"(ORDER BY version {{order}}) AS total{_COMMITS}) sizes WHERE total <= $4"
)
# Sequences rise with versions, so the index over versions serves both: a binary search.
_VERSION_AT: Final = """
    WITH RECURSIVE search (low, high) AS (
        SELECT CAST(-1 AS bigint),
               coalesce((SELECT max(version) FROM commits WHERE table_key = $1), -1)
        UNION ALL
        SELECT CASE WHEN coalesce(sequence, 0) <= $2 THEN (low + high + 1) / 2 ELSE low END,
               CASE WHEN coalesce(sequence, 0) <= $2 THEN high ELSE (low + high + 1) / 2 - 1 END
        FROM search LEFT JOIN commits ON table_key = $1 AND version = (low + high + 1) / 2
        WHERE low < high)
    SELECT low FROM search WHERE low = high"""
_TRANSACTION_COMMITS: Final = (
    f"SELECT id, {_COMMIT_COLUMNS}, summary, content "
    "FROM commits JOIN tables ON table_key = key WHERE txn_id = $1"
)
_DECIDED: Final = (
    "SELECT txn_id FROM commits WHERE txn_id {among} "
    "UNION ALL SELECT txn_id FROM rejections WHERE txn_id {among}"
)
_INCONSISTENT_TRANSACTIONS: Final = (
    "SELECT txn_id FROM commits GROUP BY txn_id HAVING min(sequence) < max(sequence) "
    "OR min(timestamp_ms) < max(timestamp_ms) ORDER BY txn_id"
)
_FILES: Final = "SELECT kind, first, last, paths FROM files WHERE table_key = $1 "
_FILES_FOR: Final = (
    f"SELECT * FROM ({_FILES}AND kind = 'checkpoint' AND last <= $2 "
    "ORDER BY last DESC LIMIT 1) newest "
    f"UNION ALL {_FILES}AND kind = 'compaction' AND last <= $2 AND first > "
    "coalesce((SELECT max(last) FROM files WHERE table_key = $1 AND kind = 'checkpoint' "
    "AND last <= $2), -1) "
    f"UNION ALL {_FILES}AND kind = 'checksum' AND last = $2"
)

# Of each active table with unpublished commits: its id, their number, and when the first of
# them was ratified.
UNPUBLISHED_TAILS: Final = (
    "SELECT id, head - published, ratified_ms FROM {source} "
    "LEFT JOIN commits ON commits.table_key = key AND version = published + 1 "
    "WHERE published < head AND state = 'active'"
)
_ROW_COUNTS: Final = (
    "SELECT (SELECT count(*) FROM tables WHERE kind = 'external' AND state = 'active'), "
    "(SELECT count(*) FROM rejections), (SELECT count(*) FROM listeners), "
    "(SELECT count(*) FROM tokens WHERE revoked_ms IS NULL)"
)
_TOKENS: Final = f"SELECT {_columns(TokenRow._fields)} FROM tokens "
_REJECTION: Final = f"SELECT {_columns(RejectionRow._fields)} FROM rejections WHERE txn_id = $1"
_ANSWER: Final = f"SELECT {_columns(AnswerRow._fields)} FROM answers WHERE key = $1"
_LISTENERS: Final = f"SELECT {_columns(ListenerRow._fields)} FROM listeners ORDER BY name"
_LOCATIONS: Final = f"SELECT {_columns(LocationRow._fields)} FROM locations ORDER BY url"


class ReadUnit(ABC):
    """A unit that reads the catalog, on whatever runs a statement."""

    # Which tables to search for unpublished commits; SQLite keeps a list of them.
    unpublished_source: ClassVar[str] = "tables"
    # The last sequence, and the number of changes that took none
    epoch_query: ClassVar[str]
    # The texts that `_texts` returned for the first value of a statement, as rows, and as a
    # condition, which an index is always used for
    texts: ClassVar[str]
    among: ClassVar[str]

    @abstractmethod
    def _fetch(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of one statement."""

    @abstractmethod
    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        """Return the rows of each statement, in one round trip where there are round trips."""

    @abstractmethod
    def _texts(self, values: Collection[str]) -> object:
        """Return many texts as one value."""

    def _one(self, make: Callable[[Row], Value], sql: str, *values: object) -> Value | None:
        """Return what is made of the first row of a statement; None without rows."""
        rows = self._fetch(sql, *values)
        return make(rows[0]) if rows else None

    # Clock and events

    def clock(self) -> CatalogClock:
        """Return the catalog's clock."""
        return self._one(CatalogClock._make, _CLOCK) or CatalogClock(Sequence(0), 0)

    def clock_at(self, timestamp_ms: int) -> CatalogClock | None:
        """Return the clock at the last event not later than a time; None before the first."""
        return self._one(CatalogClock._make, _CLOCK_AT, timestamp_ms)

    def epoch(self) -> Epoch:
        """Return the epoch as of this unit, which a unit that changed something ends with."""
        rows = self._fetch(self.epoch_query)
        if not rows:
            raise no_clock()
        return Epoch(*rows[0])

    def oldest_event(self) -> CatalogClock | None:
        """Return the clock at the first event that is kept; None if there are none."""
        return self._one(CatalogClock._make, _OLDEST_EVENT)

    def events(self, after: Sequence, limit: int) -> list[EventRow]:
        """Return the events from sequence `after` + 1 on, in order and without a gap.

        Starts at the oldest event that is kept, if that one is later. Commits are found by the
        txnId that took their sequence.
        """
        ticks = self._fetch(_EVENTS, after, max(limit, 0))
        if not ticks:
            return []
        bounds = (after, ticks[-1][0])
        commits, assigned, released = self._fetch_each(
            (EVENT_COMMITS, bounds),
            (_NAME_CHANGES.format(column="from_sequence"), bounds),
            (_NAME_CHANGES.format(column="to_sequence"), bounds),
        )
        commits_at = _by_sequence(
            (commit.sequence, (table_id, commit)) for table_id, commit in map(_as_part, commits)
        )
        assigned_at, released_at = _names_by_sequence(assigned), _names_by_sequence(released)
        return [
            EventRow(
                sequence=sequence,
                clock_ms=clock_ms,
                txn_id=txn_id,
                commits=tuple(commits_at[sequence]),
                names_assigned=tuple(assigned_at[sequence]),
                names_released=tuple(released_at[sequence]),
            )
            for sequence, clock_ms, txn_id in ticks
        ]

    # Namespaces and names

    def namespaces(self) -> list[SchemaName]:
        """Return all namespaces, in order."""
        return list(self.namespace_creation_times())

    def namespace_creation_times(self) -> dict[SchemaName, int]:
        """Return when each namespace was created."""
        rows = self._fetch(
            "SELECT catalog, schema, created_ms FROM namespaces ORDER BY catalog_key, schema_key"
        )
        return {SchemaName(catalog, schema): created_ms for catalog, schema, created_ms in rows}

    def table_id_of(self, name: TableName, at: Sequence | None = None) -> TableId | None:
        """Return the table that has a name, now or as of a sequence."""
        if at is None:
            return self._one(_FIRST, f"{_TABLE_ID}AND to_sequence IS NULL", *name.key)
        sql = (
            f"{_TABLE_ID}AND from_sequence <= $4 AND (to_sequence IS NULL OR to_sequence > $4) "
            "ORDER BY from_sequence DESC LIMIT 1"
        )
        return self._one(_FIRST, sql, *name.key, at)

    def name_of(self, table_id: TableId, at: Sequence | None = None) -> TableName | None:
        """Return the name of a table, now or as of a sequence."""
        if at is None:
            return self._one(_as_name, f"{_NAME}AND to_sequence IS NULL", table_id)
        sql = f"{_NAME}AND from_sequence <= $2 AND (to_sequence IS NULL OR to_sequence > $2)"
        return self._one(_as_name, sql, table_id, at)

    def last_name_of(self, table_id: TableId) -> TableName | None:
        """Return the name that a table has, or had last."""
        return self._one(_as_name, f"{_NAME}ORDER BY from_sequence DESC LIMIT 1", table_id)

    def names_of(self, table_id: TableId) -> list[TableName]:
        """Return all names that a table ever had, in order."""
        return list(map(_as_name, self._fetch(f"{_NAME}ORDER BY from_sequence", table_id)))

    # Tables

    def table(self, table_id: TableId) -> TableRow | None:
        """Return a table in whatever state."""
        return self._one(as_table, f"{_TABLES}WHERE id = $1", table_id)

    def tables_by_id(self, table_ids: Collection[TableId]) -> list[TableRow]:
        """Return those of some tables that exist, in whatever state."""
        sql = f"{_TABLES}WHERE id {self.among}"
        return [as_table(row) for row in self._fetch(sql, self._texts(table_ids))]

    def names_by_id(self, table_ids: Collection[TableId]) -> dict[TableId, TableName]:
        """Return the names of those of some tables that have one now."""
        sql = (
            "SELECT table_id, catalog, schema, name FROM names WHERE to_sequence IS NULL "
            f"AND table_id {self.among}"
        )
        found = self._fetch(sql, self._texts(table_ids))
        return {table_id: TableName(*parts) for table_id, *parts in found}

    def named_table(self, ref: Ref) -> NamedTableRow | None:
        """Return a table that has a name now, in one query."""
        if not isinstance(ref, TableName):
            return self._one(_as_named_table, f"{_NAMED_TABLE}AND table_id = $1", ref)
        sql = f"{_NAMED_TABLE}AND catalog_key = $1 AND schema_key = $2 AND name_key = $3"
        return self._one(_as_named_table, sql, *ref.key)

    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[NamedTableRow]:
        """Return the tables that have a name now, of one namespace or all, in order of names."""
        sql = _NAMED_TABLE
        values: list[object] = []

        def place(value: object) -> str:
            values.append(value)
            return f"${len(values)}"

        if namespace is not None:
            catalog, schema = map(place, namespace.key)
            sql += f"AND catalog_key = {catalog} AND schema_key = {schema} "
        if after is not None:
            key = ", ".join(map(place, after.key))
            sql += f"AND (catalog_key, schema_key, name_key) > ({key}) "
        sql += "ORDER BY catalog_key, schema_key, name_key"
        if limit is not None:
            sql += f" LIMIT {place(limit)}"
        return [_as_named_table(row) for row in self._fetch(sql, *values)]

    def tables_in_state(self, state: TableStatus) -> list[TableRow]:
        """Return the tables in a state, named or not."""
        rows = self._fetch(f"{_TABLES}WHERE state = $1 ORDER BY key", state.value)
        return [as_table(row) for row in rows]

    def unpublished_tables(self) -> list[TableRow]:
        """Return the active tables that have unpublished commits."""
        rows = self._fetch(
            f"SELECT {TABLE_COLUMNS} FROM {self.unpublished_source} "
            "WHERE published < head AND state = 'active' ORDER BY key"
        )
        return [as_table(row) for row in rows]

    def overlapping_table(self, location: str) -> TableRow | None:
        """Return a table whose location is, contains or is inside a location."""
        enclosing = _enclosing_locations(location)
        places = ", ".join(f"${number}" for number in range(1, len(enclosing) + 1))
        after, before = f"${len(enclosing) + 1}", f"${len(enclosing) + 2}"
        return self._one(
            as_table,
            # A purged table keeps its location until the last of its files is deleted.
            f"{_TABLES}WHERE purged_ms IS NULL AND "
            f"(location IN ({places}) OR (location > {after} AND location < {before})) LIMIT 1",
            *enclosing,
            enclosing[0] + "/",
            enclosing[0] + "0",  # the character after the slash
        )

    # Commits and transactions

    def commits(
        self, key: int, first: Version, last: Version, *, content: bool, summary: bool = False
    ) -> list[CommitRow]:
        """Return a range of commits, with content and summary only where asked for."""
        optional = f"{'summary' if summary else 'NULL'}, {'content' if content else 'NULL'}"
        sql = f"SELECT {_COMMIT_COLUMNS}, {optional}{_COMMITS}ORDER BY version"
        return [_as_commit(row) for row in self._fetch(sql, key, first, last)]

    def ratified_commits(
        self, key: int, first: Version, last: Version, *, with_content: bool = True
    ) -> tuple[RatifiedCommit, ...]:
        """Return a range of commits as clients get them."""
        # Built directly: a client that opens a table for the first time may read thousands.
        return tuple(
            [
                RatifiedCommit(
                    version=version,
                    way=_WAYS[way],
                    txn_id=txn_id,
                    sequence=sequence,
                    timestamp_ms=timestamp_ms,
                    size=size,
                    sha256=sha256.hex(),
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
                ) in self._fetch(
                    _WITH_CONTENT if with_content else _WITHOUT_CONTENT, key, first, last
                )
            ]
        )

    def content_bytes(self, key: int, first: Version, last: Version) -> int:
        """Return the size of the content that is held of a range of commits."""
        [[size]] = self._fetch(_CONTENT_BYTES, key, first, last)
        return int(size)

    def last_version_within(
        self, key: int, first: Version, last: Version, max_bytes: int
    ) -> Version:
        """Return the last version up to which contents add up to no more than `max_bytes`.

        At least `first`. With `first` above `last`, counts down and returns the lowest version.
        """
        end, order = ("max", "ASC") if first <= last else ("min", "DESC")
        sql = _VERSION_WITHIN.format(end=end, order=order)
        found: Version | None = self._one(_FIRST, sql, key, *sorted((first, last)), max_bytes)
        return first if found is None else found

    def version_at(self, key: int, at: Sequence) -> Version | None:
        """Return the latest version of a table as of a sequence."""
        found: Version | None = self._one(_FIRST, _VERSION_AT, key, at)
        return None if found is None or found < 0 else found

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        """Return the commits that a transaction made, one for each of its tables."""
        return [_as_part(row) for row in self._fetch(_TRANSACTION_COMMITS, txn_id)]

    def decided(self, txn_ids: Collection[TxnId]) -> set[TxnId]:
        """Return those of some keys that have a commit or a rejection."""
        sql = _DECIDED.format(among=self.among)
        return {txn_id for (txn_id,) in self._fetch(sql, self._texts(txn_ids))}

    def inconsistent_transactions(self) -> list[TxnId]:
        """Return the transactions whose commits differ in sequence or timestamp: none, if whole."""
        return [txn_id for (txn_id,) in self._fetch(_INCONSISTENT_TRANSACTIONS)]

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        """Return the rejection of a transaction."""
        return self._one(RejectionRow._make, _REJECTION, txn_id)

    def answer(self, key: str) -> AnswerRow | None:
        """Return the answer to the request with an idempotency key."""
        return self._one(AnswerRow._make, _ANSWER, key)

    def files(self, key: int, last: Version) -> list[KnownFile]:
        """Return the files that help to read a version: the newest checkpoint and what follows."""
        return self._known_files(_FILES_FOR, key, last)

    def all_files(self, key: int) -> list[KnownFile]:
        """Return all checkpoints, compactions and checksums recorded of a table."""
        return self._known_files(f"{_FILES}ORDER BY kind, last, first", key)

    def _known_files(self, sql: str, *values: int) -> list[KnownFile]:
        return [
            KnownFile(kind=FileKind(kind), first=first, last=last, paths=tuple(json.loads(paths)))
            for kind, first, last, paths in self._fetch(sql, *values)
        ]

    # The catalog itself

    def setting(self, key: str) -> str | None:
        """Return a setting of the catalog."""
        return self._one(_FIRST, "SELECT value FROM settings WHERE key = $1", key)

    def lease_holder(self, lease: str) -> str | None:
        """Return the last holder of a lease, expired or not."""
        return self._one(_FIRST, "SELECT holder FROM leases WHERE name = $1", lease)

    def token(self, secret_sha256: bytes) -> TokenRow | None:
        """Return the access token with a secret."""
        return self._one(TokenRow._make, f"{_TOKENS}WHERE secret_sha256 = $1", secret_sha256)

    def tokens(self) -> list[TokenRow]:
        """Return all access tokens, by name."""
        return [TokenRow(*row) for row in self._fetch(f"{_TOKENS}ORDER BY name")]

    def listeners(self) -> list[ListenerRow]:
        """Return all listeners, by name."""
        return [ListenerRow(*row) for row in self._fetch(_LISTENERS)]

    def locations(self) -> list[LocationRow]:
        """Return the locations outside of the lake's root that are allowed."""
        return [LocationRow(*row) for row in self._fetch(_LOCATIONS)]

    def counts(self) -> Counts:
        """Return the numbers of rows."""
        states, tails, [[external, rejections, listeners, tokens]] = self._fetch_each(
            ("SELECT state, count(*) FROM tables GROUP BY state", ()),
            (UNPUBLISHED_TAILS.format(source=self.unpublished_source), ()),
            (_ROW_COUNTS, ()),
        )
        longest = max(tails, key=lambda tail: (tail[1], tail[0]), default=None)
        return Counts(
            tables={TableStatus(state): count for state, count in states},
            external=external,
            unpublished=sum(length for _, length, _ in tails),
            longest_tail=None if longest is None else (longest[0], longest[1]),
            oldest_unpublished_ms=min((ms for *_, ms in tails if ms is not None), default=None),
            rejections=rejections,
            listeners=listeners,
            tokens=tokens,
        )


def as_table(row: Row) -> TableRow:
    """Convert the columns of a table."""
    return TableRow._make((*row[:2], TableStatus(row[2]), *row[3:-1], TableKind(row[-1])))


def table_values(row: TableRow) -> Values:
    """Return the columns of a table."""
    return (*row[:2], row.state.value, *row[3:-1], row.kind.value)


def no_clock() -> DamagedError:
    """Return the error for a database in which the row of the clock is missing."""
    return DamagedError("The catalog's database is damaged: its clock is missing.")


def _as_commit(row: Row) -> CommitRow:
    return CommitRow._make((*row[:4], _WAYS[row[4]], *row[5:]))


def _as_part(row: Row) -> tuple[TableId, CommitRow]:
    return row[0], _as_commit(row[1:])


def _as_name(row: Row) -> TableName:
    return TableName(*row)


def _as_named_table(row: Row) -> NamedTableRow:
    return NamedTableRow(as_table(row[4:]), TableName(*row[:3]), row[3])


def _enclosing_locations(location: str) -> list[str]:
    """Return a location and every folder that contains it."""
    found = [location.removesuffix("/")]
    while "/" in found[-1].partition("://")[2]:
        found.append(found[-1].rpartition("/")[0])
    return [*found, f"{found[-1]}/"]  # the root of a disk ends with a slash


def _names_by_sequence(
    changes: Iterable[Row],
) -> defaultdict[Sequence, list[tuple[TableName, TableId]]]:
    return _by_sequence(
        (sequence, (TableName(*parts), table_id)) for sequence, *parts, table_id in changes
    )


def _by_sequence(
    pairs: Iterable[tuple[Sequence, Value]],
) -> defaultdict[Sequence, list[Value]]:
    grouped: defaultdict[Sequence, list[Value]] = defaultdict(list)
    for sequence, value in pairs:
        grouped[sequence].append(value)
    return grouped
