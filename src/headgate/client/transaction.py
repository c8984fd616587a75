"""Commit changes that are built on snapshots.

This module chooses whether a commit is sent inline or staged, rebases it past winners that it does
not conflict with, and repeats a proposal whose answer was lost. Data files are written before.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from headgate import errors, release
from headgate.api.messages import Part, Proposal, Ratified, RatifiedCommit, Rejected, VersionTaken
from headgate.api.port import ManagingCatalog
from headgate.clock import Clock, Ids
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
from headgate.protocol.paths import StagedCommit
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import ratified_content
from headgate.table.snapshot import Snapshot

Result = TypeVar("Result")

_TRANSACTION_TAG = "delta.multiTableTransaction.transactionId"  # as in the open RFC

_ISOLATION = {
    Isolation.SNAPSHOT: "SnapshotIsolation",
    Isolation.WRITE_SERIALIZABLE: "WriteSerializable",
    Isolation.SERIALIZABLE: "Serializable",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of a commit: its size inline, its attempts, and how long to wait for an answer."""

    inline_bytes: int = 1 << 20  # for each table; a larger commit is staged
    tries: int = 100  # versions that other commits took, in a row
    unknown_wait_s: float = 60.0  # after that the outcome is reported as unknown
    busy_wait_s: float = 300.0  # after that the catalog's own error is raised


@dataclass(frozen=True, slots=True)
class OperationInfo:
    """The operation that a commit records in its `commitInfo`, in Delta's words."""

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """The part of a transaction on one table, built on a snapshot of it."""

    table_id: TableId
    base: Snapshot
    ways: tuple[Way, ...]  # in which the catalog accepts commits of the table
    actions: tuple[Action, ...]
    operation: OperationInfo
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
    # The tables after the commit, where all commits since the base are known.
    snapshots: Mapping[TableId, Snapshot]

    @property
    def version(self) -> Version:
        """The version of the only table of this transaction."""
        [commit] = self.commits.values()
        return commit.version

    @property
    def versions(self) -> dict[TableId, Version]:
        """The version of each table."""
        return {table_id: commit.version for table_id, commit in self.commits.items()}


class Committer:
    """Proposes changes to a catalog until they are ratified or rejected."""

    def __init__(
        self,
        catalog: ManagingCatalog,
        clock: Clock,
        ids: Ids,
        patience: Patience | None = None,
        *,
        within: TxnId | None = None,
    ) -> None:
        """Propose to a catalog, or statements to the transaction that has the id `within`."""
        self.catalog = catalog
        self.clock = clock
        self.ids = ids
        self.patience = patience or Patience()
        self._within = within
        self._is_closed = False

    def close(self) -> None:
        """Refuse further requests: the catalog is about to be closed."""
        self._is_closed = True

    def commit(
        self,
        changes: Sequence[Change],
        isolation: Isolation = Isolation.WRITE_SERIALIZABLE,
        *,
        txn_id: TxnId | None = None,
        names: Mapping[str, TableId] | None = None,
    ) -> Committed:
        """Commit every change, or none; `names` must still mean the same tables.

        Spec: CM-02, CM-43, CM-44.
        """
        txn_id = txn_id or self.new_txn_id()
        attempts = _attempts(changes, isolation, txn_id)
        for race in range(self.patience.tries):
            try:
                proposal = self._proposal(txn_id, attempts, isolation, names or {})
                fail_point("client.before_propose")
                answer = self.settle(txn_id, functools.partial(self.catalog.propose, proposal))
                fail_point("client.after_propose")
            except errors.TooLargeError:
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
                        known = winners.get(attempt.table_id, ())
                        self._rebase(attempt, known, latest.get(attempt.table_id, attempt.version))
                    self.pause(race)
        raise _out_of_tries(attempts, self.patience.tries)

    def new_txn_id(self) -> TxnId:
        if self._within is not None:  # files of a statement lie in the folder of its transaction
            return TxnId(f"{self._within}/{self.ids.random()}")
        return TxnId(str(self.ids.ordered()))

    def settle(self, txn_id: TxnId, send: Callable[[], Result]) -> Result:
        """Repeat a request until an answer comes. Spec: CM-43.

        Raises `OutcomeUnknownError` if none comes: the request may have taken effect, so nothing is
        deleted or reported as failed. Repeating it under the same txnId returns the first answer.
        """
        if self._is_closed:
            raise errors.UnavailableError("This session is closed.", remedy="Connect again.")
        pause_s = 0.02
        waits_s = {"busy": self.patience.busy_wait_s, "lost": self.patience.unknown_wait_s}
        since: dict[str, float] = {}  # when the catalog was busy first, or an answer was lost
        while True:
            try:
                return send()
            except errors.HeadgateError as error:
                now = self.clock.monotonic()
                state = "busy" if isinstance(error, errors.BusyError) else "lost"
                may_pass = isinstance(error, errors.UnavailableError | errors.OutcomeUnknownError)
                if may_pass:
                    since.setdefault(state, now)
                if not may_pass or now - since[state] >= waits_s[state]:
                    # After a lost answer no error reveals the outcome of the earlier request.
                    if "lost" not in since:
                        raise
                    why = f"no answer came, and the last error was: {error.message.rstrip('.')}"
                    raise errors.OutcomeUnknownError(txn_id, why) from error
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    def _proposal(
        self,
        txn_id: TxnId,
        attempts: Sequence[_Attempt],
        isolation: Isolation,
        names: Mapping[str, TableId],
    ) -> Proposal:
        # One value for all tables of a transaction, later than every commit in any of them.
        timestamp_ms = max(self.clock.now_ms(), *(a.timestamp_ms + 1 for a in attempts))
        return Proposal(
            txn_id=txn_id,
            parts=tuple(self._part(txn_id, attempt, timestamp_ms) for attempt in attempts),
            scans=tuple(scan for attempt in attempts for scan in attempt.change.scans),
            isolation=isolation,
            names=dict(names),
        )

    def _part(self, txn_id: TxnId, attempt: _Attempt, timestamp_ms: int) -> Part:
        version = Version(attempt.version + 1)
        way = attempt.way(self.patience.inline_bytes)
        content: Inline | Put | Staged = attempt.inline  # the catalog adds version and time
        if way is not Way.INLINE:
            composed = attempt.compose(txn_id, version, timestamp_ms)
            content = Put(content=composed)
        if way is Way.STAGED:
            # It can only be ratified at the version in its name: each try needs a file.
            staged = StagedCommit(version, self.ids.random())
            fail_point("client.before_stage")
            DeltaLog(attempt.change.base.store).stage(staged, composed)
            fail_point("client.after_stage")
            content = Staged(file_name=staged.name, size=len(composed))
        return Part(table_id=attempt.table_id, version=version, content=content)

    def pause(self, race: int) -> None:
        """Wait before another try, longer after each lost race."""
        # A random pause keeps two clients from colliding again and again.
        longest_s = min(0.001 * 2 ** min(race, 10), 0.25)
        self.clock.sleep(longest_s * (self.ids.random().int % 1000) / 1000)

    def _rebase(self, attempt: _Attempt, known: Iterable[RatifiedCommit], latest: Version) -> None:
        """Move an attempt past all winners, or raise `ConflictError`. Spec: CM-14, CM-44."""
        if latest <= attempt.version:
            return  # the version of another table was taken, or the catalog's answer is older
        versions = [Version(version) for version in range(attempt.version + 1, latest + 1)]
        commits = {commit.version: commit for commit in known}
        if any(version not in commits for version in versions):
            held = self.catalog.ratified_commits(attempt.table_id, versions[0], latest)
            commits |= {commit.version: commit for commit in held.commits}
        # The log is read after the catalog: a commit that the catalog no longer holds is published.
        log = DeltaLog(attempt.change.base.store)
        winners = [_winner(attempt.label, v, commits.get(v), log) for v in versions]
        if conflicting := attempt.rebase(winners):
            raise errors.ConflictError(attempt.label, conflicting)

    def _committed(self, ratified: Ratified, attempts: Sequence[_Attempt]) -> Committed:
        after = {}
        for attempt in attempts:
            # The commit is ratified whatever is wrong with the snapshot: the next read shows it.
            with contextlib.suppress(errors.HeadgateError):
                snapshot = attempt.snapshot_after(ratified.commits[attempt.table_id], self.catalog)
                if snapshot is not None:
                    after[attempt.table_id] = snapshot
        return Committed(
            ratified.txn_id, ratified.sequence, ratified.timestamp_ms, ratified.commits, after
        )


@dataclass(frozen=True, slots=True)
class _Winner:
    """A winner and its content."""

    version: Version
    commit: RatifiedCommit | None  # None if it is published and no longer held by the catalog
    examined: Examined


class _Effects(NamedTuple):
    """The actions of a commit, as in `Examined`, that change what is known of a table."""

    protocol: Protocol | None
    metadata: Metadata | None
    adds: Sequence[AddFile]
    removes: Sequence[RemoveFile]
    domains: Sequence[DomainMetadata]


class _Attempt:
    """A change that is proposed: the version it is rebased to, and the winners before it."""

    def __init__(self, change: Change, inline: Inline, isolation: Isolation) -> None:
        self.change = change
        self.table_id = change.table_id
        self.label = change.base.label
        self.inline = inline
        self.version = change.base.version
        self.timestamp_ms = change.base.timestamp_ms or 0
        self._isolation = isolation
        self._winners: list[_Winner] = []
        self._composed: bytes | None = None
        self.is_too_large_for_inline = False

    def way(self, inline_bytes: int) -> Way:
        """Choose how to send the content: inline if it is small and may be. Spec: IN-01."""
        ways = self.change.ways
        is_small = len(self.inline.actions) <= inline_bytes and not self.is_too_large_for_inline
        if Way.INLINE in ways and (is_small or not self.may_stage):
            return Way.INLINE
        for way in (Way.STAGED, Way.PUT_IF_ABSENT):
            if way in ways:
                return way
        raise errors.UnsupportedByCatalogError(f"The catalog of {self.label} accepts no commits.")

    @property
    def may_stage(self) -> bool:
        return Way.STAGED in self.change.ways

    @functools.cached_property
    def _examined(self) -> Examined:
        """The change as the catalog reads it, computed only to rebase or stage it."""
        return examination.examine(self.inline)

    def compose(self, txn_id: TxnId, version: Version, timestamp_ms: int) -> bytes:
        """Compose the content for one version and time. Spec: CM-36, CM-41."""
        high_water = None
        if self._has_row_tracking:
            domains = [domain for winner in self._winners for domain in winner.examined.domains]
            newest = row_ids.newest_mark(None, [*self.change.base.domains.values(), *domains])
            high_water = -1 if newest is None else newest
        self._composed, _ = inline_content.compose(
            self._examined,
            txn_id=txn_id,
            timestamp_ms=timestamp_ms,
            version=version,
            row_id_high_water=high_water,
        )
        return self._composed

    def rebase(self, winners: Sequence[_Winner]) -> list[Conflict]:
        """Move to the version of the last winner, unless there are conflicts; return those."""
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
        found = conflicts.conflicts(attempt, [self._compared(winner) for winner in winners])
        if not found:
            self._winners.extend(winners)
            self.version = winners[-1].version
            self.timestamp_ms = winners[-1].examined.timestamp_ms or self.timestamp_ms
        return found

    def _compared(self, winner: _Winner) -> Winner:
        changes, metadata = winner.examined.changes, winner.examined.metadata
        if metadata is not None:
            # Winners before it were neutral too, or there is a conflict already.
            is_neutral = conflicts.is_neutral(self.change.base.metadata, metadata)
            changes = replaced(changes, neutral=is_neutral)
        commit = winner.commit
        return Winner(
            version=winner.version,
            changes=changes,
            txn_id=winner.examined.txn_id,
            sequence=None if commit is None else commit.sequence,
        )

    def snapshot_after(self, commit: RatifiedCommit, catalog: ManagingCatalog) -> Snapshot | None:
        """Return the table after the commit, or None if a commit before it is unknown."""
        if commit.version != self.version + 1:
            return None  # the catalog rebased it
        if commit.content is None and commit.way is not Way.INLINE:
            commit = replaced(commit, content=self._composed)
        if commit.content is None:
            return None  # a repeated answer, after the content was deleted
        base = self.change.base
        protocol, metadata = base.protocol, base.metadata
        checksum = None if base.answer is None else base.answer.checksum
        for effects in (*(winner.examined for winner in self._winners), self._effects(commit)):
            protocol, metadata = effects.protocol or protocol, effects.metadata or metadata
            if checksum is not None:
                checksum = checksums.advance(
                    checksum,
                    adds=effects.adds,
                    removes=effects.removes,
                    metadata=metadata,
                    protocol=protocol,
                    domains=effects.domains,
                )
        between = [winner.commit for winner in self._winners if winner.commit is not None]
        return snapshot_loader.follow(
            catalog,
            base,
            [*between, commit],
            protocol=protocol,
            metadata=metadata,
            checksum=checksum,
        )

    def _effects(self, commit: RatifiedCommit) -> _Effects | Examined:
        """Return what was committed, with the row ids that the catalog assigned."""
        if commit.content is not None and self._has_row_tracking:
            return examination.examine_file(commit.content)
        actions = self.change.actions
        return _Effects(
            next((action for action in actions if isinstance(action, Protocol)), None),
            next((action for action in actions if isinstance(action, Metadata)), None),
            [action for action in actions if isinstance(action, AddFile)],
            [action for action in actions if isinstance(action, RemoveFile)],
            [action for action in actions if isinstance(action, DomainMetadata)],
        )

    @property
    def _has_row_tracking(self) -> bool:
        return features.is_supported(self.change.base.protocol, "rowTracking")


def commit_info(
    operation: OperationInfo, isolation: Isolation, base: Version | None, *, is_blind: bool
) -> dict[str, object]:
    """Return the `commitInfo` of a commit, without time and transaction."""
    info: dict[str, object] = {
        "operation": operation.name,
        "operationParameters": dict(operation.parameters),
    }
    if base is not None:
        info["readVersion"] = base
    info |= {
        "isolationLevel": _ISOLATION[isolation],
        "isBlindAppend": is_blind,
        "operationMetrics": {key: str(value) for key, value in operation.metrics.items()},
        "engineInfo": f"Headgate/{release.version()}",
    }
    return info


def isolation_level(given: Isolation | str) -> Isolation:
    """Parse an isolation level."""
    if isinstance(given, Isolation):
        return given
    try:
        return Isolation("_".join(given.lower().replace("_", " ").split()))
    except ValueError:
        levels = ", ".join(level.value for level in Isolation)
        raise errors.InvalidArgumentError(
            f"{given!r} is not an isolation level.", remedy=f"Use one of {levels}."
        ) from None


def as_text(value: object) -> str:
    """Encode a parameter of an operation as Delta does: JSON in a string."""
    return to_json(value).decode()


def _attempts(changes: Sequence[Change], isolation: Isolation, txn_id: TxnId) -> list[_Attempt]:
    # Of the transaction, not of a table: it is not blind if it read one table to append to another.
    reads = any(scan.fed for change in changes for scan in change.scans)
    is_blind = not reads and all(change.only_adds for change in changes)
    attempts = []
    for change in changes:
        info = commit_info(change.operation, isolation, change.base.version, is_blind=is_blind)
        if len(changes) > 1:
            info |= _provenance(txn_id, [other.table_id for other in changes])
        lines = join(encode(action) for action in change.actions)
        attempts.append(_Attempt(change, Inline(commit_info=info, actions=lines), isolation))
    return attempts


def _provenance(txn_id: TxnId, tables: Sequence[TableId]) -> dict[str, object]:
    """Return what each commit of a transaction over several tables records. Spec: MT-05."""
    return {"tags": {_TRANSACTION_TAG: txn_id}, "headgate": {"tables": list(tables)}}


def _winner(label: str, version: Version, commit: RatifiedCommit | None, log: DeltaLog) -> _Winner:
    content = log.read_published(version) if commit is None else ratified_content(log, commit)
    if content is None:
        was_published = commit is None or commit.published_ms is not None
        if was_published and log.read_published(version) is None:
            # The base is so old that the commits after it are no longer in the log.
            raise errors.ConflictError(
                label, [f"version {version} came after it and was cleaned up"]
            )
        raise errors.InvariantError(
            f"{label}: version {version} is ratified, but its content is missing."
        )
    return _Winner(version, commit, examination.examine_file(content))


def _refusal(rejected: Rejected, attempts: Collection[_Attempt]) -> errors.HeadgateError:
    label = ", ".join(attempt.label for attempt in attempts)
    if rejected.violations:
        return errors.InvalidCommitError(label, rejected.violations)
    gone = [conflict.table_id for conflict in rejected.conflicts if conflict.rule == "R9"]
    if gone:
        return errors.NotFoundError(
            f"{label} ({', '.join(gone)}) was dropped. Nothing was committed."
        )
    return errors.ConflictError(label, rejected.conflicts)


def _out_of_tries(attempts: Collection[_Attempt], tries: int) -> errors.ConflictError:
    lost = [
        Conflict(
            rule="race",
            table_id=attempt.table_id,
            version=attempt.version,
            says=f"and other commits took every version, {tries} times in a row",
        )
        for attempt in attempts
    ]
    return errors.ConflictError(", ".join(attempt.label for attempt in attempts), lost)
