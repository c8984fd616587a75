"""A proposal that is ready to be decided, and the facts and rules that its decision depends on."""

import hashlib
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from headgate.protocol import actions
from headgate.protocol.commit.conflicts import Conflict, Isolation, Scan, Winner
from headgate.protocol.commit.content import Way
from headgate.protocol.commit.examination import Examined
from headgate.protocol.log.checksums import FileTotals
from headgate.protocol.table_states import TableKind, TableStatus

# Named tuples: every commit makes some, and a frozen dataclass takes several times as long.

# What is proposed


class ExaminedPart(NamedTuple):
    """One table's part of a proposal, with its content parsed."""

    table_id: actions.TableId
    version: actions.Version
    way: Way
    examined: Examined
    file_name: str | None = None  # of a staged commit
    size: int = 0  # of content that is a file already, with its hash and time
    sha256: bytes = b""
    modified_ms: int | None = None
    content: bytes | None = None  # of a file, if the catalog keeps it until it is published

    @property
    def is_movable(self) -> bool:
        """Whether the catalog may move the part to another version by itself. Spec: IN-02."""
        examined = self.examined
        return (
            self.way is Way.INLINE
            and examined.metadata is None
            and examined.protocol is None
            and not any(isinstance(line.action, actions.Unknown) for line in examined.lines)
        )


class ExaminedProposal(NamedTuple):
    """A proposal, ready to be decided."""

    txn_id: actions.TxnId
    parts: tuple[ExaminedPart, ...]
    proposed_ms: int
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    names: Mapping[str, actions.TableId] = MappingProxyType({})  # used, and their tables then
    # Only a taken version can prevent it: its sender checks for conflicts itself.
    by_version: bool = False

    @property
    def staged_timestamp_ms(self) -> int | None:
        """The timestamp that its staged parts have; None without staged parts."""
        stamps = (part.examined.timestamp_ms for part in self.parts)
        return next((stamp for stamp in stamps if stamp is not None), None)

    @property
    def intent(self) -> bytes:
        """A hash of the proposal's content, which does not depend on its versions."""
        digest = hashlib.sha256()
        for part in sorted(self.parts, key=lambda part: part.table_id):
            digest.update(part.table_id.encode())
            digest.update(part.examined.intent.encode())
        return digest.digest()


# What deciding depends on


class Turn(NamedTuple):
    """The right of one transaction to commit to a table next, for a moment."""

    txn_id: actions.TxnId
    until_ms: int


class Head(NamedTuple):
    """A managed table at its latest version."""

    table_id: actions.TableId
    version: actions.Version
    timestamp_ms: int
    protocol: actions.Protocol
    metadata: actions.Metadata
    metadata_version: actions.Version = actions.Version(
        0
    )  # where protocol or metadata changed last
    published: actions.Version = actions.Version(-1)
    domains: tuple[actions.DomainMetadata, ...] = ()
    row_id_high_water: int | None = None
    files: FileTotals | None = None  # None: their number is not known
    turn: Turn | None = None


class Closed(NamedTuple):
    """A table that accepts no commits: external, or not active."""

    table_id: actions.TableId
    kind: TableKind
    status: TableStatus
    version: actions.Version


class RatifiedPart(NamedTuple):
    """What became of one table's part of a ratified proposal."""

    intent: bytes
    version: actions.Version
    file_name: str | None


class Ratification(NamedTuple):
    """A txnId was ratified: with these parts."""

    parts: Mapping[actions.TableId, RatifiedPart]


class Rejection(NamedTuple):
    """A txnId was rejected: with this intent for the whole proposal."""

    intent: bytes


class Gathered(NamedTuple):
    """Facts that are loaded outside of the database transaction that decides."""

    # Winners up to these versions were compared; their conflicts are final.
    compared: Mapping[actions.TableId, actions.Version] = MappingProxyType({})
    conflicts: tuple[Conflict, ...] = ()
    # Tables whose old files are all removed by the proposal; None: not looked up yet.
    replaced: frozenset[actions.TableId] | None = None
    is_past_backlog: bool = False  # waiting for the publisher did not help, or is over


class Facts(NamedTuple):
    """All that deciding depends on, from one instant."""

    now_ms: int
    sequence: actions.Sequence  # the catalog's last
    clock_ms: int
    recorded: Ratification | Rejection | None  # the earlier decision on the txnId
    tables: Mapping[actions.TableId, Head | Closed]
    names: Mapping[str, actions.TableId | None] = MappingProxyType({})  # of the proposal, now
    abandoned: Collection[str] = ()  # names of proposed staged files that were abandoned
    lost: int = 0  # how often in a row the proposal found its version taken
    gathered: Gathered = Gathered()
    winners: Mapping[actions.TableId, Many[Winner]] = MappingProxyType({})  # loaded so far


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that deciding depends on."""

    rejections_kept_ms: int
    max_ahead_ms: int
    drift_ms: int
    turn_after: int
    turn_ms: int
    backlog_soft: int
    backlog_hard: int
    required: tuple[str, ...] = ()  # features that tables must have
