"""Proposals: what they need from storage is read first, then they are queued to be decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, assert_never

from headgate.api.messages import Answer, Part, Proposal, Ratified, TableInfo, VersionTaken
from headgate.catalog import descriptions, lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.decider import Decided, Decider, recorded_answer
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.first_version import Judge, nothing_more
from headgate.catalog.heads import Premise
from headgate.catalog.part_reader import STAGED_FILE_MISSING, PartReader, refuse_if_too_large
from headgate.catalog.publisher import Publisher
from headgate.catalog.ratifier import Step, Waiter
from headgate.catalog.stores.rows import CommitRow
from headgate.catalog.writer_limit import WriterLimit
from headgate.errors import (
    BusyError,
    HeadgateError,
    InvalidCommitError,
    OutcomeUnknownError,
    Retry,
)
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Inline, Staged
from headgate.protocol.commit.decide import (
    Need,
    NeedDescription,
    NeedPublishing,
    NeedReplaced,
    NeedWinners,
)
from headgate.protocol.commit.examination import Violation
from headgate.protocol.commit.facts import ExaminedPart, ExaminedProposal, Gathered, Head
from headgate.protocol.table_states import TableKind, TableStatus

_UNKNOWN_PAUSE_S: Final = 0.1
_STILL_NEW_MS: Final = 1_000  # age of a description that shows which versions are taken
_NOTHING: Final = Gathered()


class StagedProposal(NamedTuple):
    """A staged file of a client that looks for conflicts itself, under the txnId in the file.

    If another commit has the version, the answer is `VersionTaken`. The same file at the same
    version always gets the first answer.
    """

    before: TableInfo  # the table that it was staged for
    version: Version
    staged: Staged
    judge: Judge = nothing_more  # compares the content with what its client declared

    @property
    def part(self) -> Part:
        return Part(table_id=self.before.table_id, version=self.version, content=self.staged)

    @property
    def is_taken(self) -> bool:
        return self.version <= self.before.latest

    def taken(self, txn_id: TxnId) -> Decided:
        """Return the answer if the version is taken."""
        latest = {self.before.table_id: self.before.latest}
        return Decided(VersionTaken(txn_id=txn_id, latest=latest), {})


class Proposer(Component):
    """Examines proposals, queues them, and wakes the publisher and the event feed."""

    def __init__(
        self,
        shared: Shared,
        decider: Decider,
        reader: PartReader,
        publisher: Publisher,
        feed: EventFeed,
        proposers: int | None,
    ) -> None:
        super().__init__(shared)
        self._decider = decider
        self._reader = reader
        self._publisher = publisher
        self._feed = feed
        self._writer_limit = WriterLimit(None if proposers is None else max(1, proposers // 2))
        self._waiting_limit = WriterLimit(None if proposers is None else max(1, proposers // 8))
        self._ratifier.on_ratified = self._wake

    def enqueue(
        self,
        proposed: Proposal | StagedProposal,
        waiter: Waiter[Decided | Need],
        afterwards: Step,
    ) -> bool:
        """Queue a proposal without blocking; return False if it needs anything from storage.

        The waiter gets the decision in the ratifier's thread, and `afterwards` is called once for
        all proposals answered together. A `Need` instead of a decision, or False, means: call
        `decide`. A staged file is decided only for the table as it was described, apart from
        later versions; whatever else is unusual about it is left to `decide`.
        """
        premise = None
        if isinstance(proposed, StagedProposal):
            ready = self._peek_staged(proposed)
            before = proposed.before
            premise = Premise(before.table_id, before.name, before.metadata_version)
        else:
            ready = self._peek(proposed)
        match ready:
            case None:
                return False
            case Decided():
                waiter.set_result(ready)
                afterwards()
            case _:
                self._ratifier.decide(ready, _NOTHING, waiter, afterwards, premise)
        return True

    def decide(self, proposed: Proposal | StagedProposal) -> Decided:
        """Wait for the decision about a proposal, and for all that it needs.

        The table of a staged file may have changed since it was described.
        """
        if isinstance(proposed, StagedProposal):
            if proposed.before.kind is TableKind.EXTERNAL:
                raise lookup.not_managed(proposed.before.table_id)
            with self._writer_limit.admit((proposed.before.table_id,)):
                ready = self._read_staged(proposed)
                return ready if isinstance(ready, Decided) else self._decide_surely(ready)
        refuse_if_too_large(proposed, self._settings.inline_limit_bytes)
        with self._writer_limit.admit(part.table_id for part in proposed.parts):
            ready = self._read(proposed)
            return ready if isinstance(ready, Decided) else self._decide(ready)

    def propose(self, proposal: Proposal) -> Answer:
        return self.decide(proposal).answer

    def table_after(self, before: TableInfo, decided: Decided) -> TableInfo:
        """Describe a table as a decision left it, without its commits."""
        row = decided.tables.get(before.table_id)
        if row is None:  # not decided, since the answer was known
            return before
        return descriptions.describe_after(before, row, self._clock.now_ms())

    # Reading: what is proposed becomes a proposal to decide, or is answered already

    def _peek(self, proposal: Proposal) -> ExaminedProposal | None:
        proposed_ms = self._clock.now_ms()
        refuse_if_too_large(proposal, self._settings.inline_limit_bytes)
        parts: list[ExaminedPart] = []
        for part in proposal.parts:
            peeked = self._reader.peek(part)
            if peeked is None:
                return None
            parts.append(peeked)
        return _examined(proposal, parts, proposed_ms)

    def _read(self, proposal: Proposal) -> ExaminedProposal | Decided:
        proposed_ms = self._clock.now_ms()
        try:
            parts = self._reader.read_all(proposal.parts)
        except HeadgateError:
            # What was ratified is answered, even if its staged file or its table is gone by
            # now, or the log has a file that the catalog did not ratify.
            replayed = self._replayed(proposal)
            if replayed is None:
                raise
            return Decided(replayed, {})
        if isinstance(parts, Violation):
            return self._lost_long_ago(proposal, parts) or self._reject(proposal.txn_id, parts)
        return _examined(proposal, parts, proposed_ms)

    def _peek_staged(self, proposed: StagedProposal) -> ExaminedProposal | Decided | None:
        before, version, staged, judge = proposed
        if before.diverged is not None:
            return None
        proposed_ms = self._clock.now_ms()
        if proposed.is_taken:
            listed = before.commit_at(version)
            if listed is None or listed.file_name in (None, staged.file_name):
                return None  # it may be the same as the proposed
            if proposed_ms - before.described_ms > _STILL_NEW_MS:
                return None
        elif version > before.latest + 1:
            return None
        read = self._reader.peek(proposed.part)
        txn_id = None if read is None else read.examined.txn_id
        if read is None or txn_id is None:
            return None
        if proposed.is_taken:
            return proposed.taken(txn_id) if self._decider.loses(txn_id) else None
        if read.examined.violations or any(judge(read.examined)):
            return None
        return self._examined_staged(proposed, txn_id, read, proposed_ms)

    def _read_staged(self, proposed: StagedProposal) -> ExaminedProposal | Decided:
        before, version, staged, judge = proposed
        proposed_ms = self._clock.now_ms()
        listed = before.commit_at(version)
        if listed is None or listed.file_name == staged.file_name:
            first = self._answered(proposed, lambda won: won.file_name == staged.file_name)
            if first is not None:
                return first
        read = self._reader.read(proposed.part)
        if isinstance(read, Violation):
            if proposed.is_taken:
                return proposed.taken(TxnId(""))
            raise InvalidCommitError(before.table_id, [read])
        # A repair records a version without a file name if it cannot read the staged file.
        first = self._answered(
            proposed, lambda won: won.file_name is None and won.sha256 == read.sha256
        )
        if first is not None:
            return first
        examined = read.examined
        txn_id = examined.txn_id
        if proposed.is_taken and txn_id is not None and self._decider.loses(txn_id):
            return proposed.taken(txn_id)
        if found := [*(examined.violations if txn_id is None else ()), *judge(examined)]:
            raise InvalidCommitError(before.table_id, found)
        assert txn_id is not None  # else it would be a violation
        ready = self._examined_staged(proposed, txn_id, read, proposed_ms)
        violation = self._reader.verify(ready.parts)
        return ready if violation is None else self._reject(txn_id, violation)

    def _examined_staged(
        self, proposed: StagedProposal, txn_id: TxnId, read: ExaminedPart, proposed_ms: int
    ) -> ExaminedProposal:
        proposal = Proposal(txn_id=txn_id, parts=(proposed.part,))
        refuse_if_too_large(proposal, self._settings.inline_limit_bytes)
        return ExaminedProposal(txn_id, (read,), proposed_ms, by_version=True)

    # Decisions

    def _wake(self, table_ids: Iterable[TableId]) -> None:
        for table_id in table_ids:
            self._publisher.wake(table_id)
        self._feed.notify()

    def _decide(self, proposal: ExaminedProposal) -> Decided:
        """Wait for the decision about a proposal; load what it needs besides heads."""
        gathered = _NOTHING
        while True:
            decided = Future[Decided | Need]()
            self._ratifier.decide(proposal, gathered, decided)
            match found := decided.result():
                case Decided():
                    return found
                case NeedPublishing(head):
                    is_past = self.hold_back(head)
                    gathered = gathered._replace(is_past_backlog=is_past)
                case NeedWinners():
                    with self._store.read() as unit:
                        gathered = self._decider.compare(unit, proposal, gathered)
                case NeedReplaced():
                    gathered = gathered._replace(replaced=self._reader.replaced(proposal.parts))
                case NeedDescription():
                    raise AssertionError("the proposal was made for the table as it is")
                case unreachable:
                    assert_never(unreachable)

    def _decide_surely(self, proposal: ExaminedProposal) -> Decided:
        """Decide; if the outcome is unknown, propose again until it is known, for a limited time.

        A client that gets an unknown outcome several times may take it for a failure, and delete
        its files.
        """
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        unknown: OutcomeUnknownError | None = None
        while True:
            try:
                return self._decide(proposal)
            except OutcomeUnknownError as error:
                unknown = error
            except HeadgateError as error:
                if unknown is None:  # nothing happened
                    raise
                if error.retry is Retry.NEVER:  # proposing again cannot help
                    raise unknown from error
            if self._clock.monotonic() > deadline:
                raise unknown
            self._clock.sleep(_UNKNOWN_PAUSE_S)

    def hold_back(self, head: Head) -> bool:
        """Wait until enough of a table is published; return True if waiting cannot help.

        While storage cannot be written, or the table's log diverged, commits go on up to the hard
        limit: writes must not be lost because the publisher fails. Spec: CM-25.
        """
        upto = Version(head.version - self._settings.unpublished_soft // 2)
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        with self._waiting_limit.admit((head.table_id,)):
            try:
                published = self._publisher.publish(head.table_id, upto, deadline)
            except HeadgateError:
                return True
        if published < upto:
            unpublished = head.version - published
            raise BusyError(f"Table {head.table_id} has {unpublished} unpublished commits.")
        return False

    def _reject(self, txn_id: TxnId, violation: Violation) -> Decided:
        # Recorded: its client may delete the files now, and a copy of the request that arrives
        # when the file is there at last must get the same answer.
        work = partial(self._decider.refuse, txn_id=txn_id, violation=violation)
        return Decided(self._ratifier.submit(txn_id, work).result(), {})

    # Earlier answers

    def _replayed(self, proposal: Proposal) -> Ratified | None:
        with self._store.read() as unit:
            intents = {id: row.intent for id, row in unit.transaction_commits(proposal.txn_id)}
            answer = recorded_answer(unit, proposal.txn_id)
        if not isinstance(answer, Ratified):
            return None
        # A staged file is known by its transaction; inline content can be compared.
        expected = {
            part.table_id: bytes.fromhex(examination.examine(part.content).intent)
            if isinstance(part.content, Inline)
            else intents.get(part.table_id)
            for part in proposal.parts
        }
        return answer if expected == intents else None

    def _lost_long_ago(self, proposal: Proposal, violation: Violation) -> Decided | None:
        """Answer a proposal so late that its staged file was deleted: its version is taken."""
        if violation.rule != STAGED_FILE_MISSING:
            return None
        with self._store.read() as unit:
            if recorded_answer(unit, proposal.txn_id) is not None:
                return None
            rows = {part.table_id: unit.table(part.table_id) for part in proposal.parts}
        latest = {
            table_id: row.head
            for table_id, row in rows.items()
            if row is not None and row.state is TableStatus.ACTIVE
        }
        is_lost = any(
            isinstance(part.content, Staged) and part.version <= latest.get(part.table_id, -1)
            for part in proposal.parts
        )
        if not is_lost or latest.keys() != rows.keys():
            return None
        return Decided(VersionTaken(txn_id=proposal.txn_id, latest=latest), {})

    def _answered(
        self, proposed: StagedProposal, is_same: Callable[[CommitRow], bool]
    ) -> Decided | None:
        """Return the answer to the commit that has a version, if it is the same as the proposed."""
        if not proposed.is_taken or proposed.version < 1:
            return None
        with self._store.read_latest() as unit:
            row = lookup.known(unit, proposed.before.table_id)
            [won] = unit.commits(row.key, proposed.version, proposed.version, content=False)
            answer = recorded_answer(unit, won.txn_id) if is_same(won) else None
        return Decided(answer, {}) if isinstance(answer, Ratified) else None


def _examined(
    proposal: Proposal, parts: Iterable[ExaminedPart], proposed_ms: int
) -> ExaminedProposal:
    return ExaminedProposal(
        proposal.txn_id,
        tuple(parts),
        proposed_ms,
        proposal.scans,
        proposal.isolation,
        proposal.names,
    )
