"""A table as the catalog knows it, from one instant: its row, what that means, and its tail.

For those who have to tell of a table in other words than the native API's: they need more of the
row than a Delta client asks for, and less of the content.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.api.messages import RatifiedCommit
from headgate.catalog.decider import protocol_and_metadata
from headgate.catalog.stores.port import CommitHeader, NamedTableRow, ReadUnit, TableRow
from headgate.names import TableName
from headgate.protocol.actions import DomainMetadata, Metadata, Protocol, Sequence, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import from_json
from headgate.protocol.table_states import TableKind

LISTED = 100  # published commits still told of, at the most


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
    # Up to here commits were ratified before this catalog was opened. Nobody had synced their
    # staged files, and nobody has seen since whether they are there.
    unseen: int = 0
    # Ascending and contiguous up to the latest version: those asked for, all that are not
    # published, and some of those published last.
    commits: tuple[CommitHeader, ...] = ()

    def commit_at(self, version: Version) -> CommitHeader | None:
        """Give what is told of one version, if it is."""
        place = version - self.row.head - 1  # from the end
        return self.commits[place] if -len(self.commits) <= place < 0 else None

    @property
    def last_without_file(self) -> Version | None:
        """The last version that may be had from nowhere but the catalog."""
        return next(
            (
                commit.version
                for commit in reversed(self.commits)
                if commit.published_ms is None
                and (commit.way is Way.INLINE or commit.sequence <= self.unseen)
            ),
            None,
        )


def describe(
    unit: ReadUnit,
    named: NamedTableRow,
    first: Version | None,
    now_ms: int,
    unseen: Sequence,
) -> Described:
    """Tell of a table, and of its commits from a version on."""
    described = describe_briefly(named)
    row = named.row
    if row.kind is TableKind.EXTERNAL:
        return described
    start = max(0, row.published - LISTED + 1)
    if first is not None:
        start = min(first, row.published + 1)
    commits = unit.commit_headers(row.key, Version(start), row.head) if start <= row.head else ()
    return replace(described, asked_ms=now_ms, unseen=unseen, commits=tuple(commits))


def describe_after(
    before: Described, row: TableRow, commit: RatifiedCommit, now_ms: int
) -> Described:
    """Tell of a table as its newest commit left it, by what was told just before that."""
    is_changed = row.metadata_version == commit.version
    changed_ms = commit.timestamp_ms if is_changed else before.changed_ms
    described = describe_briefly(NamedTableRow(row, before.name, changed_ms))
    told = CommitHeader(*(getattr(commit, field) for field in CommitHeader._fields))
    commits = (*before.commits, told)
    return replace(described, asked_ms=now_ms, unseen=before.unseen, commits=commits)


def describe_briefly(named: NamedTableRow) -> Described:
    """Tell of a table without its commits, as a listing needs it."""
    row, name, changed_ms = named
    if row.kind is TableKind.EXTERNAL:
        changed_ms = row.timestamp_ms or row.created_ms
        return Described(name, row, from_json(row.metadata, Metadata), changed_ms=changed_ms)
    assert changed_ms is not None  # version 0 is a commit too
    protocol, metadata = protocol_and_metadata(row)
    return Described(
        name=name,
        row=row,
        metadata=metadata,
        protocol=protocol,
        domains=tuple(from_json(row.domains, list[DomainMetadata])),
        changed_ms=changed_ms,
    )
