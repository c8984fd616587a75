"""Proposals: what they need from storage is read first, then they are queued to be decided.

If deciding needs more, it is loaded by the proposing thread, and the proposal is queued again.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from headgate.api.messages import Answer, Part, Proposal, Ratified, TableInfo, VersionTaken
from headgate.catalog import descriptions, lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.decider import Decided, Decider, recorded_answer
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.first_version import Judge, nothing_more
from headgate.catalog.fsck.table_check import is_next
from headgate.catalog.heads import Premise
from headgate.catalog.publisher import Publisher
from headgate.catalog.ratifier import Step, Waiter
from headgate.catalog.stores.port import CommitRow, TableRow
from headgate.catalog.writer_limit import WriterLimit
from headgate.errors import (
    BusyError,
    HeadgateError,
    InvalidArgumentError,
    InvalidCommitError,
    LogAheadError,
    OutcomeUnknownError,
    Retry,
    TooLargeError,
    TxnIdReusedError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import AddFile, TableId, TxnId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Inline, Put, Staged, Way
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
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES
from headgate.storage import locations

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_UNKNOWN_PAUSE_S: Final = 0.1
_VERIFY_ABOVE_BYTES: Final = 64 << 20  # added files of this size are always checked
_STAGED_FILE_MISSING: Final = "staged-file-missing"
_PEEKED_BYTES: Final = 64 << 10  # a larger staged file is not read in the event loop
_STILL_NEW_MS: Final = 1_000  # age of a description that shows which versions are taken
_NOTHING: Final = Gathered()

_log = logging.getLogger(__name__)


class StagedProposal(NamedTuple):
    """A staged file of a client that looks for conflicts itself."""

    before: TableInfo  # the table that it was staged for
    version: Version
    staged: Staged
    judge: Judge = nothing_more  # compares the content with what its client declared


class StagedAnswer(NamedTuple):
    """An answer, and the table as it was when it was given."""

    answer: Answer
    after: TableInfo


class Proposer(Component):
    """Examines proposals, queues them, and wakes the publisher and the event feed."""

    def __init__(
        self,
        shared: Shared,
        decider: Decider,
        publisher: Publisher,
        feed: EventFeed,
        *,
        snapshot_of: Callable[[TableId], Snapshot],
        proposers: int | None,
    ) -> None:
        super().__init__(shared)
        self._decider = decider
        self._publisher = publisher
        self._feed = feed
        self._snapshot_of = snapshot_of
        self._looked_ahead: dict[TableId, str] = {}  # tables, and their locations
        self._writer_limit = WriterLimit(None if proposers is None else max(1, proposers // 2))
        self._waiting_limit = WriterLimit(None if proposers is None else max(1, proposers // 8))
        self._ratifier.on_ratified = self._wake

    def look_again(self, table_id: TableId) -> None:
        """Read a table's log again before its next commit: it may have been repaired or altered."""
        self._looked_ahead.pop(table_id, None)

    # Ways to propose

    def propose(self, proposal: Proposal) -> Answer:
        self._refuse_if_too_large(proposal)
        with self._writer_limit.admit(part.table_id for part in proposal.parts):
            proposed_ms = self._clock.now_ms()
            try:
                parts = self._examined_parts(proposal)
            except HeadgateError:
                # What was ratified is answered, even if its staged file or its table is gone by
                # now, or the log has a file that the catalog did not ratify.
                replayed = self._replayed(proposal)
                if replayed is None:
                    raise
                return replayed
            if isinstance(parts, Violation):
                return self._lost_long_ago(proposal, parts) or self._reject(proposal.txn_id, parts)
            return self._decide(_examined(proposal, parts, proposed_ms)).answer

    def propose_soon(
        self, proposal: Proposal, waiter: Waiter[Decided | Need], afterwards: Step
    ) -> bool:
        """Queue a proposal without blocking; return False if it needs anything from storage.

        The waiter gets its answer in the ratifier's thread, and `afterwards` is called once for all
        proposals answered together. A `Need` instead of an answer means: call `propose`.
        """
        proposed_ms = self._clock.now_ms()
        self._refuse_if_too_large(proposal)
        parts: list[ExaminedPart] = []
        for part in proposal.parts:
            examined_part = self._peeked_part(part)
            if examined_part is None:
                return False
            parts.append(examined_part)
        examined = _examined(proposal, tuple(parts), proposed_ms)
        self._ratifier.decide(examined, _NOTHING, waiter, afterwards)
        return True

    def propose_staged(self, proposed: StagedProposal) -> StagedAnswer:
        """Propose a staged file by its name, under the txnId in it.

        If another commit has the version, the answer is `VersionTaken`. The same file at the same
        version always gets the first answer. The table may have changed since it was described.
        """
        table_id = proposed.before.table_id
        if proposed.before.kind is TableKind.EXTERNAL:
            raise lookup.not_managed(table_id)
        with self._writer_limit.admit((table_id,)):
            return self._propose_staged(proposed)

    def propose_staged_soon(
        self, proposed: StagedProposal, waiter: Waiter[Decided | Need], afterwards: Step
    ) -> bool:
        """Queue a staged file without blocking, as `propose_soon` does.

        The decision counts only if the table is as it was described, apart from later versions;
        `staged_answer` turns it into an answer. Whatever is unusual is left to `propose_staged`.
        """
        before, version, staged, judge = proposed
        if before.diverged is not None:
            return False
        proposed_ms = self._clock.now_ms()
        is_taken = version <= before.latest
        if is_taken:
            listed = before.commit_at(version)
            if listed is None or listed.file_name in (None, staged.file_name):
                return False  # it may be the same as the proposed
            if proposed_ms - before.described_ms > _STILL_NEW_MS:
                return False
        elif version > before.latest + 1:
            return False
        part = Part(table_id=before.table_id, version=version, content=staged)
        read = self._peeked_part(part)
        txn_id = None if read is None else read.examined.txn_id
        if read is None or txn_id is None:
            return False
        if is_taken:
            if not self._decider.loses(txn_id):
                return False
            taken = VersionTaken(txn_id=txn_id, latest={before.table_id: before.latest})
            waiter.set_result(Decided(taken, {}))
            afterwards()
            return True
        if read.examined.violations or any(judge(read.examined)):
            return False
        self._refuse_if_too_large(Proposal(txn_id=txn_id, parts=(part,)))
        examined = ExaminedProposal(txn_id, (read,), proposed_ms, by_version=True)
        premise = Premise(before.table_id, before.name, before.metadata_version)
        self._ratifier.decide(examined, _NOTHING, waiter, afterwards, premise)
        return True

    def staged_answer(self, proposed: StagedProposal, decided: Decided) -> StagedAnswer:
        """Return the answer to a staged file as its client sees it."""
        before, version, staged, _ = proposed
        answer, tables, _ = decided
        if before.table_id not in tables:  # not decided, since the version is taken
            return StagedAnswer(answer, before)
        now_ms = self._clock.now_ms()
        after = descriptions.describe_after(before, tables[before.table_id], now_ms)
        if isinstance(answer, Ratified):
            won = answer.commits[before.table_id]
            if won.version != version:
                raise TxnIdReusedError(
                    f"Transaction {answer.txn_id} is already committed as version {won.version} of "
                    f"table {before.table_id}."
                )
            if won.file_name != staged.file_name:
                latest = {before.table_id: won.version}
                return StagedAnswer(VersionTaken(txn_id=answer.txn_id, latest=latest), after)
        return StagedAnswer(answer, after)

    def _propose_staged(self, proposed: StagedProposal) -> StagedAnswer:
        before, version, staged, judge = proposed
        proposed_ms, table_id = self._clock.now_ms(), before.table_id
        is_taken = version <= before.latest
        listed = before.commit_at(version)
        if listed is None or listed.file_name == staged.file_name:
            first = self._answered(before, version, lambda won: won.file_name == staged.file_name)
            if first is not None:
                return StagedAnswer(first, before)
        taken = VersionTaken(txn_id=TxnId(""), latest={table_id: before.latest})
        part = Part(table_id=table_id, version=version, content=staged)
        read = self._read_staged(part, staged, before.location)
        if isinstance(read, Violation):
            if is_taken:
                return StagedAnswer(taken, before)
            raise InvalidCommitError(table_id, [read])
        # A repair records a version without a file name if it cannot read the staged file.
        first = self._answered(
            before, version, lambda won: won.file_name is None and won.sha256 == read.sha256
        )
        if first is not None:
            return StagedAnswer(first, before)
        examined = read.examined
        txn_id = examined.txn_id
        if is_taken and txn_id is not None and self._decider.loses(txn_id):
            return StagedAnswer(VersionTaken(txn_id=txn_id, latest=taken.latest), before)
        if found := [*(examined.violations if txn_id is None else ()), *judge(examined)]:
            raise InvalidCommitError(table_id, found)
        assert txn_id is not None  # else it would be a violation
        proposal = Proposal(txn_id=txn_id, parts=(part,))
        self._refuse_if_too_large(proposal)
        self._look_ahead(table_id)
        if (violation := self._file_violation(read, before.location)) is not None:
            return StagedAnswer(self._reject(txn_id, violation), before)
        decided = self._decide_surely(
            ExaminedProposal(txn_id, (read,), proposed_ms, by_version=True)
        )
        return self.staged_answer(proposed, decided)

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
                    gathered = gathered._replace(replaced=self._replaced(proposal.parts))
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

    def _reject(self, txn_id: TxnId, violation: Violation) -> Answer:
        # Recorded: its client may delete the files now, and a copy of the request that arrives
        # when the file is there at last must get the same answer.
        work = partial(self._decider.refuse, txn_id=txn_id, violation=violation)
        rejected: Future[Answer] = self._ratifier.submit(txn_id, work)
        return rejected.result()

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

    def _lost_long_ago(self, proposal: Proposal, violation: Violation) -> VersionTaken | None:
        """Answer a proposal so late that its staged file was deleted: its version is taken."""
        with self._store.read() as unit:
            if (
                unit.transaction_commits(proposal.txn_id)
                or unit.rejection(proposal.txn_id) is not None
            ):
                return None  # there is an answer already
            rows = {part.table_id: unit.table(part.table_id) for part in proposal.parts}
        latest = {
            table_id: row.head
            for table_id, row in rows.items()
            if row is not None and row.state is TableStatus.ACTIVE
        }
        is_lost = violation.rule == _STAGED_FILE_MISSING and any(
            isinstance(part.content, Staged) and part.version <= latest.get(part.table_id, -1)
            for part in proposal.parts
        )
        if not is_lost or latest.keys() != rows.keys():
            return None
        return VersionTaken(txn_id=proposal.txn_id, latest=latest)

    def _answered(
        self, before: TableInfo, version: Version, is_same: Callable[[CommitRow], bool]
    ) -> Ratified | None:
        """Return the answer to the commit that has a version, if it is the same as the proposed."""
        if not 0 < version <= before.latest:
            return None
        with self._store.read_latest() as unit:
            row = lookup.known(unit, before.table_id)
            [won] = unit.commits(row.key, version, version, content=False)
            answer = recorded_answer(unit, won.txn_id) if is_same(won) else None
        return answer if isinstance(answer, Ratified) else None

    # Content and files

    def _refuse_if_too_large(self, proposal: Proposal) -> None:
        settings = self._settings
        if not proposal.parts:
            raise InvalidArgumentError(f"Transaction {proposal.txn_id} proposes nothing.")
        if not proposal.txn_id or len(proposal.txn_id) > 255:
            raise InvalidArgumentError("A txnId has 1 to 255 characters.")
        if len(proposal.parts) > TRANSACTION_TABLES:
            raise TooLargeError(
                f"Transaction {proposal.txn_id} writes {len(proposal.parts)} tables; "
                f"{TRANSACTION_TABLES} are the limit."
            )
        if len({part.table_id for part in proposal.parts}) < len(proposal.parts):
            raise InvalidArgumentError(
                f"Transaction {proposal.txn_id} has two parts for one table.",
                remedy="Fold them into one commit.",
            )
        sizes = [
            len(part.content.actions) for part in proposal.parts if isinstance(part.content, Inline)
        ]
        if max(sizes, default=0) > settings.inline_limit_bytes:
            raise TooLargeError(
                f"An inline commit of {max(sizes)} bytes; {settings.inline_limit_bytes} are the "
                "limit."
            )
        if sum(sizes) > TRANSACTION_LIMIT_BYTES:
            raise TooLargeError(
                f"{sum(sizes)} bytes of inline commits; {TRANSACTION_LIMIT_BYTES} are "
                "the limit for a transaction."
            )

    def _examined_parts(self, proposal: Proposal) -> tuple[ExaminedPart, ...] | Violation:
        """Read and examine all parts; return the violation if a file is not as declared."""
        parts: list[ExaminedPart] = []
        for part in proposal.parts:
            match part.content:
                case Inline():
                    parts.append(self._inline_part(part))
                case Staged() as staged:
                    read = self._read_staged(part, staged)
                    if isinstance(read, Violation):
                        return read
                    parts.append(read)
                case Put():
                    raise UnsupportedByCatalogError(
                        "This catalog does not commit by put-if-absent."
                    )
        for part in proposal.parts:
            self._look_ahead(part.table_id)
        violations = (self._file_violation(part) for part in parts)
        return next((found for found in violations if found is not None), tuple(parts))

    def _peeked_part(self, part: Part) -> ExaminedPart | None:
        """Examine a part without blocking; None if anything is unusual or has to be waited for."""
        location = self._looked_ahead.get(part.table_id)
        if location is None:
            return None
        store = self._store_for(location)
        most = min(_PEEKED_BYTES, self._settings.inline_limit_bytes)  # larger ones are synced
        match part.content:
            case Inline():
                examined = self._inline_part(part)
            case Staged(size=size) as staged if size <= most:
                try:
                    found = store.peek(self._staged_path(part, staged), most)
                    if found is None or found.size != size:
                        return None
                    examined = _staged_part(
                        part, staged, found.content, found.modified_ms, is_kept=True
                    )
                except HeadgateError:
                    return None  # it may be a replay all the same
            case _:
                return None
        for path, add in self._files_to_verify(examined).items():
            data = locations.data_path(path)
            seen = store.peek(data.value) if data.is_relative else None
            if seen is None or seen.size != add.size:
                return None
        return examined

    def _inline_part(self, part: Part) -> ExaminedPart:
        assert isinstance(part.content, Inline)
        _refuse_version_zero(part)
        examined = examination.examine(part.content)
        return ExaminedPart(part.table_id, part.version, Way.INLINE, examined)

    def _staged_path(self, part: Part, staged: Staged) -> str:
        """Return the path of a staged file; raise if it cannot be what is proposed."""
        _refuse_version_zero(part)
        commit = staged.commit
        if commit is None:
            raise _invalid(
                part, "staged-name", f"{staged.file_name!r} is not the name of a staged commit"
            )
        if commit.version != part.version:
            raise _invalid(
                part,
                "staged-version",
                f"{staged.file_name} can only become version {commit.version}, not {part.version}",
            )
        if staged.size > self._settings.commit_limit_bytes:
            raise TooLargeError(f"{staged.file_name} has {staged.size} bytes.")
        return commit.path

    def _read_staged(
        self, part: Part, staged: Staged, location: str | None = None
    ) -> ExaminedPart | Violation:
        """Read and examine a staged file. Spec: AU-02, CM-02."""
        path = self._staged_path(part, staged)
        if location is None:
            location = lookup.managed(self._row(part.table_id)).location
        store = self._store_for(location)
        meta = store.head(path)
        if meta is None:
            return Violation(rule=_STAGED_FILE_MISSING, says=f"{path} is not there")
        if meta.size != staged.size:
            says = f"{path} has {meta.size} bytes, not the {staged.size} declared"
            return Violation(rule="staged-size", says=says)
        # The file may not be synced. Small content is kept with the commit until it is published,
        # which costs less than a sync.
        is_kept = meta.size <= self._settings.inline_limit_bytes
        if not is_kept:
            store.sync([path])
        return _staged_part(part, staged, store.get(path), meta.modified_ms, is_kept=is_kept)

    def _row(self, table_id: TableId) -> TableRow:
        with self._store.read_latest() as unit:
            return lookup.known(unit, table_id)

    def _files_to_verify(self, part: ExaminedPart) -> dict[str, AddFile]:
        """Return the added files that must exist before the commit is ratified."""
        adds = part.examined.adds
        count = self._settings.verify_staged if part.way is Way.STAGED else 0
        largest = heapq.nlargest(count, adds, key=lambda add: add.size) if count else []
        files = {add.path: add for add in largest}
        files |= {add.path: add for add in adds if add.size >= _VERIFY_ABOVE_BYTES}
        return files

    def _file_violation(self, part: ExaminedPart, location: str | None = None) -> Violation | None:
        """Check that added files exist with the declared size. Spec: AU-02."""
        expected = self._files_to_verify(part)
        if not expected:
            return None
        store = self._store_for(location or self._row(part.table_id).location)
        for path, add in expected.items():
            data = locations.data_path(path)
            if not data.is_relative or part.examined.violations:
                continue  # rejected for its content in any case
            meta = store.head(data.value)
            if meta is None:
                return Violation(rule="file-missing", says=f"{path} is not there")
            if meta.size != add.size:
                says = f"{path} has {meta.size} bytes, not the {add.size} declared"
                return Violation(rule="file-size", says=says)
        return None

    def _look_ahead(self, table_id: TableId) -> None:
        """Check once that the log is not ahead of the catalog, as after restoring an old copy.

        A file that could be the next version means that the catalog is an older copy. Any other
        file there was written without the catalog, and the publisher will stop at it.
        """
        if table_id in self._looked_ahead:
            return
        while True:
            with self._store.read() as unit:
                row = lookup.managed(lookup.known(unit, table_id))
            if row.state is not TableStatus.ACTIVE:
                return  # the decision refuses it
            content = self._log_of(row.location).read_published(Version(row.head + 1))
            if content is None:
                break
            with self._store.read() as unit:
                moved = lookup.known(unit, table_id).head != row.head
            if moved:
                continue  # another process committed and published meanwhile
            if is_next(self._store, row, content):
                raise LogAheadError(
                    f"The log of table {table_id} has version {row.head + 1}, the catalog only "
                    f"{row.head}: the catalog is an older copy."
                )
            _log.error(
                "table %s: version %d in the log was written without the catalog",
                row.id,
                row.head + 1,
            )
            break
        self._looked_ahead[table_id] = row.location

    def _replaced(self, parts: Iterable[ExaminedPart]) -> frozenset[TableId]:
        """Return the tables whose metadata changes while all old files are removed. Spec: FI5."""
        found: set[TableId] = set()
        for part in parts:
            table_id = part.table_id
            if part.examined.metadata is None:
                continue
            with self._store.read() as unit:
                row = lookup.known(unit, table_id)
            if row.state is not TableStatus.ACTIVE:
                continue
            snapshot = self._snapshot_of(table_id)
            removed = {file.key for file in part.examined.removes}
            if all(file.key in removed for file in snapshot.files()):
                found.add(table_id)
        return frozenset(found)


def _staged_part(
    part: Part, staged: Staged, content: bytes, modified_ms: int, *, is_kept: bool
) -> ExaminedPart:
    return ExaminedPart(
        part.table_id,
        part.version,
        Way.STAGED,
        examination.examine_file(content, staged.size),
        file_name=staged.file_name,
        size=len(content),
        sha256=hashlib.sha256(content).digest(),
        modified_ms=modified_ms,
        content=content if is_kept else None,
    )


def _refuse_version_zero(part: Part) -> None:
    if part.version < 1:
        raise _invalid(part, "version", f"version {part.version} cannot be proposed")


def _examined(
    proposal: Proposal, parts: tuple[ExaminedPart, ...], proposed_ms: int
) -> ExaminedProposal:
    return ExaminedProposal(proposal.txn_id, parts, proposed_ms, proposal.scans, proposal.isolation)


def _invalid(part: Part, rule: str, says: str) -> InvalidCommitError:
    return InvalidCommitError(part.table_id, [Violation(rule=rule, says=says)])
