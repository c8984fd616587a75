"""Proposing: a change built on a snapshot becomes a commit, or the reason why not is raised.

Chooses how content travels, moves an attempt past winners it does not conflict with, and settles
what came of a proposal whose answer was lost. Data files are written before and never again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from headgate.api.messages import (
    Answer,
    Part,
    Proposal,
    Ratified,
    RatifiedCommit,
    Rejected,
    VersionTaken,
)
from headgate.api.port import ManagingCatalog
from headgate.clock import Clock, Ids
from headgate.errors import (
    BusyError,
    ConflictError,
    HeadgateError,
    InvalidCommitError,
    InvariantError,
    NotFoundError,
    OutcomeUnknownError,
    TooLargeError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.failpoints import fail_point
from headgate.protocol import features
from headgate.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    TableId,
    TxnId,
    Version,
    encode,
    join,
)
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.commit import conflicts, examination, inline_content, row_ids
from headgate.protocol.commit.conflicts import Conflict, Isolation, Scan, Winner
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.examination import Examined
from headgate.protocol.encoding import replaced, to_json
from headgate.protocol.log import checksums
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot

Answered = TypeVar("Answered")

_ISOLATION = {
    Isolation.SNAPSHOT: "SnapshotIsolation",
    Isolation.WRITE_SERIALIZABLE: "WriteSerializable",
    Isolation.SERIALIZABLE: "Serializable",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How much is sent inline, how often a race is run, how long an answer is waited for."""

    inline_bytes: int = 1 << 20  # of one table; above it the commit is staged
    tries: int = 100  # lost races in a row
    unknown_wait_s: float = 60.0  # then the outcome is reported as unknown
    busy_wait_s: float = 300.0  # then the catalog's own refusal is passed on


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit says of itself, in Delta's own words."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction does to one table, built on a snapshot of it."""

    table_id: TableId
    base: Snapshot
    ways: tuple[Way, ...]  # in which the table's catalog takes commits
    actions: tuple[Action, ...]
    operation: Operation
    scans: tuple[Scan, ...] = ()

    @property
    def only_adds(self) -> bool:
        return all(isinstance(action, AddFile) and action.data_change for action in self.actions)


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that was ratified."""

    txn_id: TxnId
    sequence: SequenceNumber | None  # in catalogs that have one over all tables
    timestamp_ms: int
    commits: Mapping[TableId, RatifiedCommit]
    # The tables as they are now, of those whose every commit since the base went by here.
    snapshots: Mapping[TableId, Snapshot]

    @property
    def version(self) -> Version:
        """Which version the one table of this transaction got."""
        [commit] = self.commits.values()
        return commit.version

    @property
    def versions(self) -> dict[TableId, Version]:
        """Which version each table got."""
        return {table_id: commit.version for table_id, commit in self.commits.items()}


class Committer:
    """Takes changes to a catalog until they are ratified or refused."""

    def __init__(
        self, catalog: ManagingCatalog, clock: Clock, ids: Ids, patience: Patience | None = None
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.ids = ids
        self.patience = patience or Patience()
        self._is_closed = False

    def close(self) -> None:
        """Send nothing more: there is nobody left to answer."""
        self._is_closed = True

    def commit(
        self,
        changes: Sequence[Change],
        isolation: Isolation = Isolation.WRITE_SERIALIZABLE,
        *,
        txn_id: TxnId | None = None,
    ) -> Committed:
        """Make one commit of each change, all or none. Spec: CM-02, CM-43, CM-44."""
        txn_id = txn_id or self.new_txn_id()
        attempts = _attempts(changes, isolation)
        for race in range(self.patience.tries):
            try:
                answer = self._propose(self._proposal(txn_id, attempts, isolation))
            except TooLargeError:
                inline = [a for a in attempts if a.way(self.patience.inline_bytes) is Way.INLINE]
                if not any(attempt.may_stage for attempt in inline):
                    raise
                for attempt in inline:
                    attempt.is_too_large_for_inline = True
                continue
            match answer:
                case Ratified() as ratified:
                    return self._committed(ratified, attempts)
                case Rejected() as rejected:
                    raise _refusal(rejected, attempts)
                case VersionTaken(latest=latest, winners=winners):
                    for attempt in attempts:
                        told = winners.get(attempt.table_id, ())
                        self._rebase(attempt, told, latest.get(attempt.table_id, attempt.version))
                    self._pause(race)
        raise _gave_up(attempts, self.patience.tries)

    def new_txn_id(self) -> TxnId:
        """Make the id of a transaction, before its files are written."""
        return TxnId(str(self.ids.ordered()))

    def settle(self, txn_id: TxnId, ask: Callable[[], Answered]) -> Answered:
        """Send the same until an answer is heard, or raise that nobody knows. Spec: CM-43.

        It may have taken effect each time. Nothing is deleted, moved or reported as failed: the
        same again under the same txnId gets the first answer.
        """
        if self._is_closed:
            raise UnavailableError("This session is closed.", remedy="Connect again.")
        pause_s = 0.02
        busy_since: float | None = None
        lost_since: float | None = None
        while True:
            try:
                return ask()
            except BusyError as busy:
                now = self.clock.monotonic()
                busy_since = now if busy_since is None else busy_since
                if now - busy_since >= self.patience.busy_wait_s:
                    if lost_since is None:
                        raise
                    raise OutcomeUnknownError(txn_id, _why(busy)) from busy
            except (UnavailableError, OutcomeUnknownError) as lost:
                now = self.clock.monotonic()
                lost_since = now if lost_since is None else lost_since
                if now - lost_since >= self.patience.unknown_wait_s:
                    raise OutcomeUnknownError(txn_id, _why(lost)) from lost
            except HeadgateError as refusal:
                # Of an earlier try nobody knows what became: a refusal now says nothing of it.
                if lost_since is None:
                    raise
                raise OutcomeUnknownError(txn_id, _why(refusal)) from refusal
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    # Proposing

    def _propose(self, proposal: Proposal) -> Answer:
        fail_point("client.before_propose")
        answer = self.settle(proposal.txn_id, lambda: self.catalog.propose(proposal))
        fail_point("client.after_propose")
        return answer

    def _proposal(
        self, txn_id: TxnId, attempts: Sequence[_Attempt], isolation: Isolation
    ) -> Proposal:
        # One value for all tables of a transaction, later than anything any of them holds.
        timestamp_ms = max(self.clock.now_ms(), *(a.timestamp_ms + 1 for a in attempts))
        return Proposal(
            txn_id=txn_id,
            parts=tuple(self._part(txn_id, attempt, timestamp_ms) for attempt in attempts),
            scans=tuple(scan for attempt in attempts for scan in attempt.change.scans),
            isolation=isolation,
        )

    def _part(self, txn_id: TxnId, attempt: _Attempt, timestamp_ms: int) -> Part:
        version = Version(attempt.version + 1)
        way = attempt.way(self.patience.inline_bytes)
        if way is Way.INLINE:  # the catalog writes what depends on version and time
            return Part(table_id=attempt.table_id, version=version, content=attempt.inline)
        content = attempt.compose(txn_id, version, timestamp_ms)
        if way is Way.PUT_IF_ABSENT:
            return Part(table_id=attempt.table_id, version=version, content=Put(content=content))
        # The version in its name is the only one it can be ratified at: every try a new file.
        staged = StagedCommit(version, self.ids.random())
        fail_point("client.before_stage")
        DeltaLog(attempt.change.base.store).stage(staged, content)
        fail_point("client.after_stage")
        return Part(
            table_id=attempt.table_id,
            version=version,
            content=Staged(file_name=staged.name, size=len(content)),
        )

    def _pause(self, race: int) -> None:
        # Chance keeps two losers from meeting again and again.
        longest_s = min(0.001 * 2 ** min(race, 10), 0.25)
        self.clock.sleep(longest_s * (self.ids.random().int % 1000) / 1000)

    # Moving past winners

    def _rebase(self, attempt: _Attempt, told: Iterable[RatifiedCommit], latest: Version) -> None:
        """Move an attempt past the winners, or raise what stands in the way. Spec: CM-44."""
        if latest <= attempt.version:
            return  # another table stood in the way, or the catalog knows less than we do
        found = attempt.pass_by(self._winners(attempt, told, latest))
        if found:
            raise ConflictError(attempt.label, found)

    def _winners(
        self, attempt: _Attempt, told: Iterable[RatifiedCommit], latest: Version
    ) -> list[_Passed]:
        """Give every commit above the attempt's version with its content. Spec: CM-14."""
        wanted = [Version(version) for version in range(attempt.version + 1, latest + 1)]
        known = {commit.version: commit for commit in told}
        if any(version not in known for version in wanted):
            held = self.catalog.ratified_commits(attempt.table_id, wanted[0], latest)
            known |= {commit.version: commit for commit in held.commits}
        # The catalog was asked before the log is read: what it no longer holds is published.
        store = DeltaLog(attempt.change.base.store)
        return [_passed(attempt.label, version, known.get(version), store) for version in wanted]

    def _committed(self, ratified: Ratified, attempts: Sequence[_Attempt]) -> Committed:
        after = {}
        for attempt in attempts:
            # Whatever is wrong with the snapshot, the commit is ratified: the next look will tell.
            with contextlib.suppress(HeadgateError):
                snapshot = attempt.snapshot_after(ratified.commits[attempt.table_id], self.catalog)
                if snapshot is not None:
                    after[attempt.table_id] = snapshot
        return Committed(
            txn_id=ratified.txn_id,
            sequence=ratified.sequence,
            timestamp_ms=ratified.timestamp_ms,
            commits=ratified.commits,
            snapshots=after,
        )


@dataclass(frozen=True, slots=True)
class _Passed:
    """A winner, understood; published ones the catalog no longer holds have no commit."""

    version: Version
    commit: RatifiedCommit | None
    content: bytes
    examined: Examined


class _Done(NamedTuple):
    """What a commit did, as far as it shows in what is known of a table without its log."""

    protocol: Protocol | None
    metadata: Metadata | None
    adds: Sequence[AddFile]
    removes: Sequence[RemoveFile]
    domains: Sequence[DomainMetadata]


class _Attempt:
    """A change on its way: where it stands now, and the winners it was moved past."""

    def __init__(self, change: Change, inline: Inline, isolation: Isolation) -> None:
        self.change = change
        self.table_id = change.table_id
        self.label = change.base.label
        self.inline = inline
        self.version = change.base.version
        self.timestamp_ms = change.base.timestamp_ms or 0
        self._isolation = isolation
        self._metadata = change.base.metadata
        self._domains: list[DomainMetadata] = []  # of the winners
        self._passed: list[_Passed] = []
        self._composed: bytes | None = None
        self.is_too_large_for_inline = False

    def way(self, inline_bytes: int) -> Way:
        """Say how the content travels: inline if it may and is small. Spec: IN-01."""
        ways = self.change.ways
        is_small = len(self.inline.actions) <= inline_bytes and not self.is_too_large_for_inline
        if Way.INLINE in ways and (is_small or not self.may_stage):
            return Way.INLINE
        for way in (Way.STAGED, Way.PUT_IF_ABSENT):
            if way in ways:
                return way
        raise UnsupportedByCatalogError(f"The catalog of {self.label} takes no commits.")

    @property
    def may_stage(self) -> bool:
        return Way.STAGED in self.change.ways

    @functools.cached_property
    def _examined(self) -> Examined:
        """The change as the catalog will read it: only who races or stages needs to know."""
        return examination.examine(self.inline)

    def compose(self, txn_id: TxnId, version: Version, timestamp_ms: int) -> bytes:
        """Write the whole content for one version and one time. Spec: CM-36, CM-41."""
        is_tracked = features.is_supported(self.change.base.protocol, "rowTracking")
        high_water = None
        if is_tracked:
            high_water = _high_water([*self.change.base.domains.values(), *self._domains])
        self._composed, _ = inline_content.compose(
            self._examined,
            txn_id=txn_id,
            timestamp_ms=timestamp_ms,
            version=version,
            row_id_high_water=high_water,
        )
        return self._composed

    def pass_by(self, winners: Sequence[_Passed]) -> list[Conflict]:
        """Move to the last of the winners; or stay, and say why."""
        base = self.change.base
        attempt = conflicts.Attempt(
            table_id=self.table_id,
            base=base.version,
            changes=self._examined.changes,
            removed=frozenset(remove.path for remove in self._examined.removes),
            scans=self.change.scans,
            isolation=conflicts.level(self._isolation, base.metadata),
            schema=base.schema,
        )
        found = conflicts.conflicts(attempt, [self._winner(winner) for winner in winners])
        if not found:
            self._passed.extend(winners)
            self.version = winners[-1].version
            self.timestamp_ms = winners[-1].examined.timestamp_ms or self.timestamp_ms
            for winner in winners:
                self._domains.extend(winner.examined.domains)
        return found

    def _winner(self, winner: _Passed) -> Winner:
        changes, metadata = winner.examined.changes, winner.examined.metadata
        if metadata is not None:
            is_neutral = conflicts.is_neutral(self._metadata, metadata)
            changes = replaced(changes, neutral=is_neutral)
            self._metadata = metadata
        commit = winner.commit
        return Winner(
            version=winner.version,
            changes=changes,
            txn_id=winner.examined.txn_id,
            sequence=None if commit is None else commit.sequence,
        )

    def snapshot_after(self, commit: RatifiedCommit, catalog: ManagingCatalog) -> Snapshot | None:
        """Give the table with the commit in it, if nothing unseen lies between."""
        if commit.version != self.version + 1:
            return None  # the catalog itself moved it past others
        if commit.content is None and commit.way is not Way.INLINE:
            commit = replaced(commit, content=self._composed)
        if commit.content is None:
            return None  # an answer given again after the content was forgotten
        base = self.change.base
        protocol, metadata = base.protocol, base.metadata
        checksum = None if base.answer is None else base.answer.checksum
        for done in (
            *(_of_content(winner.examined) for winner in self._passed),
            self._done(commit),
        ):
            protocol, metadata = done.protocol or protocol, done.metadata or metadata
            if checksum is not None:
                checksum = checksums.advance(
                    checksum,
                    adds=done.adds,
                    removes=done.removes,
                    metadata=metadata,
                    protocol=protocol,
                    domains=done.domains,
                )
        between = [winner.commit for winner in self._passed if winner.commit is not None]
        return snapshot_loader.follow(
            catalog,
            base,
            [*between, commit],
            protocol=protocol,
            metadata=metadata,
            checksum=checksum,
        )

    def _done(self, commit: RatifiedCommit) -> _Done:
        """Give what was committed; where rows have ids, with those that they were given."""
        is_tracked = features.is_supported(self.change.base.protocol, "rowTracking")
        if commit.content is None or not is_tracked:
            return _of_actions(self.change.actions)
        return _of_content(examination.examine_file(commit.content))


def told(
    operation: Operation, isolation: Isolation, base: Version | None, *, is_blind: bool
) -> dict[str, object]:
    """Give what a commit says of itself, all but time and transaction."""
    said: dict[str, object] = {
        "operation": operation.name,
        "operationParameters": dict(operation.parameters),
    }
    if base is not None:
        said["readVersion"] = base
    said |= {
        "isolationLevel": _ISOLATION[isolation],
        "isBlindAppend": is_blind,
        "operationMetrics": {key: str(value) for key, value in operation.metrics.items()},
        "engineInfo": engine(),
    }
    return said


def as_text(value: object) -> str:
    """Give a parameter of an operation as Delta writes it: JSON within a string."""
    return to_json(value).decode()


@functools.cache
def engine() -> str:
    """Name this client and its version."""
    return f"Headgate/{importlib.metadata.version('headgate')}"


def content_of(log: DeltaLog, commit: RatifiedCommit) -> bytes | None:
    """Read what was ratified, wherever it lies, known by its hash; None if it is nowhere."""
    if commit.content is not None:
        return commit.content
    found: list[bytes | None] = []
    if commit.file_name is not None:
        with contextlib.suppress(NotFoundError):  # then its published twin takes its place
            found.append(log.read(f"{STAGED}/{commit.file_name}"))
    found.append(log.read_published(commit.version))
    for content in found:
        if content is not None and hashlib.sha256(content).hexdigest() == commit.sha256:
            return content
    return None


def _attempts(changes: Sequence[Change], isolation: Isolation) -> list[_Attempt]:
    # Of the transaction, not of a table: who read one table to append to another is not blind.
    reads = any(scan.fed for change in changes for scan in change.scans)
    is_blind = not reads and all(change.only_adds for change in changes)
    attempts = []
    for change in changes:
        said = told(change.operation, isolation, change.base.version, is_blind=is_blind)
        lines = join(encode(action) for action in change.actions)
        attempts.append(_Attempt(change, Inline(commit_info=said, actions=lines), isolation))
    return attempts


def _high_water(domains: Iterable[DomainMetadata]) -> int:
    """Give the greatest row id used so far; -1 before there was any."""
    mark = row_ids.newest_mark(None, domains)
    return -1 if mark is None else mark


def _of_content(examined: Examined) -> _Done:
    return _Done(
        examined.protocol, examined.metadata, examined.adds, examined.removes, examined.domains
    )


def _of_actions(actions: Sequence[Action]) -> _Done:
    return _Done(
        next((action for action in actions if isinstance(action, Protocol)), None),
        next((action for action in actions if isinstance(action, Metadata)), None),
        [action for action in actions if isinstance(action, AddFile)],
        [action for action in actions if isinstance(action, RemoveFile)],
        [action for action in actions if isinstance(action, DomainMetadata)],
    )


def _passed(label: str, version: Version, commit: RatifiedCommit | None, log: DeltaLog) -> _Passed:
    content = log.read_published(version) if commit is None else content_of(log, commit)
    if content is None:
        was_published = commit is None or commit.published_ms is not None
        if was_published and log.read_published(version) is None:
            # Built on a version so old that the log no longer tells what came after it.
            raise ConflictError(label, [f"version {version} came after it and was cleaned away"])
        raise InvariantError(f"Version {version} was ratified, and its content is nowhere.")
    return _Passed(version, commit, content, examination.examine_file(content))


def _why(error: HeadgateError) -> str:
    return f"no answer came, and the last thing heard was: {error.message.rstrip('.')}"


def _refusal(rejected: Rejected, attempts: Collection[_Attempt]) -> HeadgateError:
    label = ", ".join(attempt.label for attempt in attempts)
    if rejected.violations:
        return InvalidCommitError(label, rejected.violations)
    gone = [conflict.table_id for conflict in rejected.conflicts if conflict.rule == "R9"]
    if gone:
        return NotFoundError(f"{label} ({', '.join(gone)}) was dropped: nothing was committed.")
    return ConflictError(label, rejected.conflicts)


def _gave_up(attempts: Collection[_Attempt], tries: int) -> ConflictError:
    lost = [
        Conflict(
            rule="race",
            table_id=attempt.table_id,
            version=attempt.version,
            says=f"and others took every version tried, {tries} times in a row",
        )
        for attempt in attempts
    ]
    return ConflictError(", ".join(attempt.label for attempt in attempts), lost)
