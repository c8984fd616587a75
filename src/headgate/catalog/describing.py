"""A table as the catalog knows it, from one instant: its row, what that means, and its tail.

For those who have to tell of a table in other words than the native API's: they need more of the
row than a Delta client asks for, and less of the content.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.decision import Decider, as_commit
from headgate.catalog.stores.port import Reading, TableRow
from headgate.names import TableName
from headgate.protocol.actions import DomainMetadata, Metadata, Protocol, Version
from headgate.protocol.commits import RatifiedCommit, State, Way
from headgate.protocol.encoding import from_json
from headgate.protocol.tables import Kind

_LISTED = 100  # published commits still told of, at the most


@dataclass(frozen=True, slots=True)
class Described:
    """All that the catalog knows of a table, but for the content of its commits."""

    name: TableName
    row: TableRow
    metadata: Metadata
    protocol: Protocol | None = None  # None: the table is not managed
    domains: tuple[DomainMetadata, ...] = ()
    changed_ms: int = 0  # when protocol or metadata changed last: that commit's timestamp
    asked_ms: int = 0  # when this was told
    # Ascending and contiguous up to the latest version: those asked for, all that are not
    # published, and some of those published last.
    commits: tuple[RatifiedCommit, ...] = ()

    @property
    def last_inline(self) -> Version | None:
        """The last version that can be had from nowhere but the catalog."""
        return next(
            (
                commit.version
                for commit in reversed(self.commits)
                if commit.way is Way.INLINE and commit.state is State.RATIFIED
            ),
            None,
        )


def describe(
    unit: Reading,
    decider: Decider,
    row: TableRow,
    name: TableName,
    first: Version | None,
    now_ms: int,
) -> Described:
    """Tell of a table, and of its commits from a version on."""
    if row.kind is Kind.EXTERNAL:
        return _external(row, name)
    protocol, metadata = decider.protocol_and_metadata(row)
    start = max(0, row.published - _LISTED + 1)
    if first is not None:
        start = min(first, row.published + 1)
    commits = unit.commits(row.key, Version(start), row.head, content=False)
    return Described(
        name=name,
        row=row,
        metadata=metadata,
        protocol=protocol,
        domains=tuple(from_json(row.domains, list[DomainMetadata])),
        changed_ms=_changed_ms(unit, row),
        asked_ms=now_ms,
        commits=tuple(map(as_commit, commits)),
    )


def describe_briefly(unit: Reading, decider: Decider, row: TableRow, name: TableName) -> Described:
    """Tell of a table without its commits, as a listing needs it."""
    if row.kind is Kind.EXTERNAL:
        return _external(row, name)
    protocol, metadata = decider.protocol_and_metadata(row)
    return Described(
        name=name,
        row=row,
        metadata=metadata,
        protocol=protocol,
        domains=tuple(from_json(row.domains, list[DomainMetadata])),
        changed_ms=_changed_ms(unit, row),
    )


def _external(row: TableRow, name: TableName) -> Described:
    changed_ms = row.timestamp_ms or row.created_ms
    return Described(name, row, from_json(row.metadata, Metadata), changed_ms=changed_ms)


def _changed_ms(unit: Reading, row: TableRow) -> int:
    changed = row.metadata_version
    [commit] = unit.commits(row.key, changed, changed, content=False)
    return commit.timestamp_ms
