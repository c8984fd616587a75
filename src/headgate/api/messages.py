"""The messages between a client and a catalog: one type for each thing."""

import enum
from dataclasses import dataclass

import msgspec

from headgate.errors import InvalidArgumentError
from headgate.names import TableName, is_unicode
from headgate.protocol import actions
from headgate.protocol.commit.conflicts import Conflict, Isolation, Scan
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.table_states import TableKind, TableStatus


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of what travels between a client and a catalog."""


class Part(Message, frozen=True, kw_only=True):
    """One table's part of a proposal: content for a version of the table."""

    table_id: actions.TableId
    version: actions.Version
    content: Inline | Staged | Put


class Proposal(Message, frozen=True, kw_only=True):
    """A proposal of the next version of one table, or of several at once. Spec: MT-01."""

    txn_id: actions.TxnId
    parts: tuple[Part, ...]
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    names: dict[str, actions.TableId] = {}  # full names that statements used, and their tables

    def __post_init__(self) -> None:
        # The txnId is written into the commit, in a batch with proposals of others.
        if not is_unicode(self.txn_id):
            raise InvalidArgumentError(
                f"The txnId {self.txn_id!r} is not valid Unicode.", remedy="Use a UUIDv7."
            )


class RatifiedCommit(Message, frozen=True, kw_only=True, gc=False):
    """A ratified commit, with its file name or its content. Spec: CM-20, CM-48."""

    version: actions.Version
    way: Way
    txn_id: actions.TxnId
    sequence: actions.Sequence | None = None  # None: the catalog has no sequence over all tables
    timestamp_ms: int  # the in-commit timestamp
    size: int
    sha256: str
    file_name: str | None = None  # staged: the name under `_staged_commits`
    modified_ms: int | None = None  # staged: when the file was modified
    content: bytes | None = None  # while the catalog holds it
    published_ms: int | None = None  # when the catalog recorded it as published

    @property
    def is_published(self) -> bool:
        return self.published_ms is not None


class Ratified(Message, frozen=True, kw_only=True, tag="ratified"):
    """The proposal was ratified, in all of its tables. Spec: CM-48."""

    txn_id: actions.TxnId
    sequence: actions.Sequence | None = None
    timestamp_ms: int
    commits: dict[actions.TableId, RatifiedCommit]


class Rejected(Message, frozen=True, kw_only=True, tag="rejected"):
    """The proposal was rejected: it conflicts with winners, or violates the protocol."""

    txn_id: actions.TxnId
    conflicts: tuple[Conflict, ...] = ()
    violations: tuple[Violation, ...] = ()
    winners: dict[actions.TableId, tuple[RatifiedCommit, ...]] = {}


class VersionTaken(Message, frozen=True, kw_only=True, tag="version-taken"):
    """Another commit has the version, and nothing else is wrong: propose above `latest`.

    Not an outcome: the same txnId may be proposed again, with a new file. Spec: CM-14.
    """

    txn_id: actions.TxnId
    latest: dict[actions.TableId, actions.Version]
    winners: dict[actions.TableId, tuple[RatifiedCommit, ...]] = {}


Answer = Ratified | Rejected | VersionTaken


class Resolved(Message, frozen=True, kw_only=True):
    """Everything that a client needs to read a table, as of one instant. Spec: CM-21, CM-22."""

    table_id: actions.TableId
    location: str
    name: str | None = None
    catalog_managed: bool = True
    format: str = "delta"  # an external table may have another
    ways: tuple[Way, ...] = ()
    latest: actions.Version  # -1 for an external table: its log has the versions
    timestamp_ms: int  # of the latest commit
    sequence: actions.Sequence | None = None  # the sequence as of which the table was resolved
    clock_ms: int | None = None  # the catalog's time
    commits: tuple[RatifiedCommit, ...] = ()  # ascending, contiguous, up to latest; may be empty
    # From this version on `ratified_commits` returns contents or staged files, so that the log need
    # not be listed above it. None: the catalog holds no commits.
    held_from: actions.Version | None = None
    protocol: actions.Protocol | None = None
    metadata: actions.Metadata | None = None
    checkpoint: KnownFile | None = None
    compactions: tuple[KnownFile, ...] = ()
    checksum: VersionChecksum | None = None
    checksum_file: KnownFile | None = None  # of the latest version, if there is no `checksum`


class RatifiedCommits(Message, frozen=True, kw_only=True):
    """The end of a range of commits, ascending and contiguous. Spec: CM-20."""

    latest: actions.Version
    commits: tuple[RatifiedCommit, ...] = ()


class StagingTable(Message, frozen=True, kw_only=True):
    """A table with an id and a location, but without a name yet. Spec: CM-39."""

    table_id: actions.TableId
    location: str


class TableEntry(Message, frozen=True, kw_only=True):
    """A table in a listing."""

    table_id: actions.TableId
    name: str | None
    kind: TableKind = TableKind.MANAGED
    state: TableStatus
    location: str
    latest: actions.Version | None = None
    published: actions.Version | None = None
    created_ms: int
    dropped_ms: int | None = None


class TimelineEntry(Message, frozen=True, kw_only=True):
    """A commit, and when it was proposed, ratified and published."""

    commit: RatifiedCommit
    proposed_ms: int
    ratified_ms: int


class Severity(enum.Enum):
    """How serious a finding is."""

    ERROR = "error"  # an invariant is broken
    WARNING = "warning"  # nothing is lost, but an operator should act
    NOTE = "note"  # for information


class Finding(Message, frozen=True):
    """A result of comparing the catalog with a log, and what to do about it."""

    rule: str
    severity: Severity
    table: str
    says: str
    remedy: str = ""
    version: actions.Version | None = None
    path: str | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Everything that a catalog knows of a table, except for the content of its commits."""

    table_id: actions.TableId
    name: TableName
    kind: TableKind
    location: str
    created_ms: int
    metadata: actions.Metadata
    metadata_version: actions.Version  # the last version that changed protocol or metadata
    changed_ms: int  # the timestamp of that version
    latest: actions.Version  # -1 for an external table
    published: actions.Version
    protocol: actions.Protocol | None = None  # None for an external table
    domains: tuple[actions.DomainMetadata, ...] = ()
    diverged: str | None = None  # why publishing stopped
    described_ms: int = 0
    # Commits up to this sequence were ratified before this catalog was opened: their staged files
    # may not be synced.
    unseen: int = 0
    # Ascending and contiguous up to the latest version, without content.
    commits: tuple[RatifiedCommit, ...] = ()

    def commit_at(self, version: actions.Version) -> RatifiedCommit | None:
        """Return the commit of a version, if it is listed."""
        place = version - self.latest - 1  # from the end
        return self.commits[place] if -len(self.commits) <= place < 0 else None

    @property
    def last_without_file(self) -> actions.Version | None:
        """The last version whose content may be nowhere but in the catalog."""
        return next(
            (
                commit.version
                for commit in reversed(self.commits)
                if not commit.is_published
                and (commit.way is Way.INLINE or (commit.sequence or 0) <= self.unseen)
            ),
            None,
        )
