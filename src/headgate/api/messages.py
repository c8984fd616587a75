"""The messages between a client and a catalog: one type for each thing.

A proposal is for one table or many; a commit to a single table is the case of one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from headgate.names import TableName
from headgate.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    Sequence,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.conflicts import Conflict, Isolation, Scan
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.table_states import TableKind, TableStatus


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a proposal wants of one table: this content as this version."""

    table_id: TableId
    version: Version
    content: Inline | Staged | Put


class Proposal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A wish for the next version of one table, or of several at once. Spec: MT-01."""

    txn_id: TxnId
    parts: tuple[Part, ...]
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE


class RatifiedCommit(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A commit that won its version, with its place or its content. Spec: CM-20, CM-48."""

    version: Version
    way: Way
    txn_id: TxnId
    sequence: Sequence | None = None  # of catalogs that have one over all tables
    timestamp_ms: int  # the in-commit timestamp
    size: int
    sha256: str
    file_name: str | None = None  # staged: the name under `_staged_commits`
    modified_ms: int | None = None  # staged: the file's own time
    content: bytes | None = None  # as long as the catalog holds it
    published_ms: int | None = None  # when the catalog saw it in the log

    @property
    def is_published(self) -> bool:
        """Whether the catalog has seen the commit in the log."""
        return self.published_ms is not None


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Ratified(_Message, frozen=True, kw_only=True, tag="ratified"):
    """It won, in every table it names. Spec: CM-48."""

    txn_id: TxnId
    sequence: Sequence | None = None
    timestamp_ms: int
    commits: dict[TableId, RatifiedCommit]


class Rejected(_Message, frozen=True, kw_only=True, tag="rejected"):
    """It lost for good: conflicts with winners, or content that breaks the protocol."""

    txn_id: TxnId
    conflicts: tuple[Conflict, ...] = ()
    violations: tuple[Violation, ...] = ()
    winners: dict[TableId, tuple[RatifiedCommit, ...]] = {}


class VersionTaken(_Message, frozen=True, kw_only=True, tag="version-taken"):
    """The version is gone, nothing else stands in the way: come again above `latest`.

    Not an outcome: the same txnId may be proposed again with a new file. Spec: CM-14.
    """

    txn_id: TxnId
    latest: dict[TableId, Version]
    winners: dict[TableId, tuple[RatifiedCommit, ...]] = {}


Answer = Ratified | Rejected | VersionTaken


class Resolved(_Message, frozen=True, kw_only=True):
    """All a client needs to read the table, from one instant. Spec: CM-21, CM-22."""

    table_id: TableId
    location: str
    name: str | None = None
    catalog_managed: bool = True
    format: str = "delta"  # of a table that is not managed it may be another
    ways: tuple[Way, ...] = ()
    latest: Version  # -1 of a table that is not managed: its log must be asked
    timestamp_ms: int  # of the latest commit
    sequence: Sequence | None = None  # the cut this was answered from: the one asked for, if any
    clock_ms: int | None = None  # the catalog's time: what is later has not come yet
    commits: tuple[RatifiedCommit, ...] = ()  # ascending, contiguous, up to latest; may be empty
    # From this version on `ratified_commits` gives a content or a staged place: no LIST is needed
    # above it. None: the catalog keeps nothing of the past.
    held_from: Version | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    checkpoint: KnownFile | None = None
    compactions: tuple[KnownFile, ...] = ()
    checksum: VersionChecksum | None = None
    checksum_file: KnownFile | None = None  # of the latest version, if the catalog did not count


class RatifiedCommits(_Message, frozen=True, kw_only=True):
    """A suffix of the range asked for, ascending and contiguous. Spec: CM-20."""

    latest: Version
    commits: tuple[RatifiedCommit, ...] = ()


class StagingTable(_Message, frozen=True, kw_only=True):
    """A place and an id, and no name yet. Spec: CM-39."""

    table_id: TableId
    location: str


class TableEntry(_Message, frozen=True, kw_only=True):
    """A table as a listing shows it."""

    table_id: TableId
    name: str | None
    kind: TableKind = TableKind.MANAGED
    state: TableStatus
    location: str
    latest: Version | None = None
    published: Version | None = None
    created_ms: int
    dropped_ms: int | None = None


class TimelineEntry(_Message, frozen=True, kw_only=True):
    """One commit's life: proposed, ratified, published."""

    commit: RatifiedCommit
    proposed_ms: int
    ratified_ms: int


class Severity(enum.Enum):
    """How much a finding matters."""

    ERROR = "error"  # an invariant is broken
    WARNING = "warning"  # nothing is lost, and somebody should look
    NOTE = "note"  # how things are


class Finding(_Message, frozen=True, kw_only=True):
    """What a check of catalog against log found, and what to do about it."""

    rule: str
    severity: Severity
    table: str
    says: str
    remedy: str = ""
    version: Version | None = None
    path: str | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class TableInfo:
    """All that a catalog knows of a table, but for the content of its commits."""

    table_id: TableId
    name: TableName
    kind: TableKind
    location: str
    created_ms: int
    metadata: Metadata
    metadata_version: Version  # where protocol or metadata changed last
    changed_ms: int  # the timestamp of that version
    latest: Version  # -1 of a table that is not managed
    published: Version
    protocol: Protocol | None = None  # None: the table is not managed
    domains: tuple[DomainMetadata, ...] = ()
    diverged: str | None = None  # why publishing stopped
    described_ms: int = 0
    # Commits up to this sequence were ratified before this catalog was opened: it has not seen
    # their staged files, which may not be synced.
    unseen: int = 0
    # Ascending and contiguous up to the latest version, without content.
    commits: tuple[RatifiedCommit, ...] = ()

    def commit_at(self, version: Version) -> RatifiedCommit | None:
        """Return the commit of a version, if it is listed."""
        place = version - self.latest - 1  # from the end
        return self.commits[place] if -len(self.commits) <= place < 0 else None

    @property
    def last_without_file(self) -> Version | None:
        """The last version that may be had from nowhere but the catalog."""
        return next(
            (
                commit.version
                for commit in reversed(self.commits)
                if not commit.is_published
                and (commit.way is Way.INLINE or (commit.sequence or 0) <= self.unseen)
            ),
            None,
        )
