"""What both stores make of the rows they read, where it takes more than one look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, TypeVar

from headgate.api.messages import RatifiedCommit
from headgate.api.table_states import TableKind, TableStatus
from headgate.catalog.stores.port import (
    CommitHeader,
    CommitRow,
    Counts,
    EventRow,
    NamedTableRow,
    TableRow,
)
from headgate.names import TableName
from headgate.protocol.actions import Sequence, TableId, TxnId
from headgate.protocol.commit.content import Way

Value = TypeVar("Value")
# Both give what their schema says; the callers name the types.
Row: TypeAlias = tuple[Any, ...]

_WAYS: Final = {way.value: way for way in Way}

# Both speak this much SQL.
TABLE: Final = ", ".join(TableRow._fields)
NAMED: Final = (
    "SELECT catalog, schema, name, commits.timestamp_ms, "
    f"{', '.join(f'tables.{field}' for field in TableRow._fields)} "
    "FROM names JOIN tables ON table_id = id "
    "LEFT JOIN commits ON table_key = key AND version = metadata_version "
    "WHERE to_sequence IS NULL "
)
RATIFIED: Final = (
    "SELECT version, way, txn_id, sequence, timestamp_ms, size, sha256, file_name, modified_ms, "
    "content, published_ms FROM commits WHERE table_key = "
)
TOLD: Final = f"SELECT {', '.join(CommitHeader._fields)} FROM commits WHERE table_key = "
TORN: Final = (
    "SELECT txn_id FROM commits GROUP BY txn_id HAVING min(sequence) < max(sequence) "
    "OR min(timestamp_ms) < max(timestamp_ms) ORDER BY txn_id"
)

Tick = tuple[Sequence, int, TxnId | None]
Named = tuple[Sequence, str, str, str, TableId]  # at which sequence, and which name


def as_table(row: Row) -> TableRow:
    """Make a table of its columns."""
    return TableRow._make((*row[:2], TableStatus(row[2]), *row[3:-1], TableKind(row[-1])))


def as_named(row: Row) -> NamedTableRow:
    """Make a table with its name of the columns of both."""
    return NamedTableRow(as_table(row[4:]), TableName(*row[:3]), row[3])


def as_commit(row: Row) -> CommitRow:
    """Make a commit of its columns."""
    return CommitRow._make((*row[:4], _WAYS[row[4]], *row[5:]))


def as_ratified(rows: Iterable[Row]) -> tuple[RatifiedCommit, ...]:
    """Make commits as clients have them, with no step between: a cold read takes thousands."""
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
            ) in rows
        ]
    )


def as_told(rows: Iterable[Row]) -> list[CommitHeader]:
    """Make commits as they are told."""
    return [CommitHeader(version, _WAYS[way], *others) for version, way, *others in rows]


def and_above(location: str) -> list[str]:
    """Give a location and all that it lies in."""
    above = [location.removesuffix("/")]
    while "/" in above[-1].partition("://")[2]:
        above.append(above[-1].rpartition("/")[0])
    return [*above, f"{above[-1]}/"]  # a whole disk is spelled with its slash


def events(
    ticks: Iterable[Tick],
    commits: Iterable[tuple[TableId, CommitRow]],
    begun: Iterable[Named],
    ended: Iterable[Named],
) -> list[EventRow]:
    """Put to every sequence what took it."""
    commits_at = _by_sequence((row.sequence, (table_id, row)) for table_id, row in commits)
    begun_at, ended_at = (
        _by_sequence((at, (TableName(*parts), table_id)) for at, *parts, table_id in names)
        for names in (begun, ended)
    )
    return [
        EventRow(
            sequence=sequence,
            clock_ms=clock_ms,
            txn_id=txn_id,
            commits=tuple(commits_at[sequence]),
            names_assigned=tuple(begun_at[sequence]),
            names_released=tuple(ended_at[sequence]),
        )
        for sequence, clock_ms, txn_id in ticks
    ]


def counts(
    states: Iterable[tuple[str, int]],
    tails: Iterable[tuple[TableId, int, int | None]],
    *,
    external: int,
    rejections: int,
    listeners: int,
    tokens: int,
) -> Counts:
    """Add up tails: of each table its id, how long it is, and when its first was ratified."""
    tails = list(tails)
    longest = max(tails, key=lambda tail: (tail[1], tail[0]), default=None)
    return Counts(
        tables={TableStatus(state): count for state, count in states},
        external=external,
        unpublished=sum(length for _, length, _ in tails),
        longest_tail=None if longest is None else longest[:2],
        oldest_unpublished_ms=min((ms for *_, ms in tails if ms is not None), default=None),
        rejections=rejections,
        listeners=listeners,
        tokens=tokens,
    )


def _by_sequence(
    pairs: Iterable[tuple[Sequence, Value]],
) -> defaultdict[Sequence, list[Value]]:
    found: defaultdict[Sequence, list[Value]] = defaultdict(list)
    for sequence, value in pairs:
        found[sequence].append(value)
    return found
