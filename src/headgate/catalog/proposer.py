"""A proposal's way to its answer: made ready outside of any lock, decided in its turn.

What a proposal needs of storage is read and judged before it waits for its turn. What only the
decider can find to be missing is fetched then, and the proposal gets in line again.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from headgate.api.messages import Answer, Part, Proposal, Ratified, TableInfo, VersionTaken
from headgate.catalog import descriptions, lookup
from headgate.catalog.decider import Decider, keys_of, recorded_answer
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.fsck.table_check import TableChecker
from headgate.catalog.publisher import Publisher
from headgate.catalog.ratifier import Later, Ratifier, Waiter
from headgate.catalog.stores.port import CatalogStore, TableRow, WriteUnit
from headgate.catalog.tables import Judge, nothing_more
from headgate.catalog.writer_limit import WriterLimit
from headgate.clock import Clock
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
from headgate.protocol.commit.admission import Head
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.commit.decide import (
    ExaminedPart,
    ExaminedProposal,
    Gathered,
    Need,
    NeedPublishing,
    NeedReplaced,
    NeedWinners,
    concerned,
)
from headgate.protocol.commit.examination import Violation
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES, Settings
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_DOUBT_PAUSE_S: Final = 0.1
_VERIFY_ABOVE_BYTES: Final = 64 << 20  # added files of this size are always checked
_STAGED_FILE_MISSING: Final = "staged-file-missing"

_log = logging.getLogger(__name__)


Result = TypeVar("Result")


class Decided(NamedTuple):
    """An answer, and the table as it was when it was given."""

    answer: Answer
    after: TableInfo


class Proposer:
    """Brings proposals before the decider, and wakes who follows on what was ratified."""

    def __init__(
        self,
        store: CatalogStore,
        ratifier: Ratifier,
        decider: Decider,
        publisher: Publisher,
        feed: EventFeed,
        checker: TableChecker,
        *,
        store_for: Callable[[str], ObjectStore],
        snapshot_of: Callable[[TableId], Snapshot],
        clock: Clock,
        settings: Settings,
        proposers: int | None,
    ) -> None:
        self._store = store
        self._ratifier = ratifier
        self._decider = decider
        self._publisher = publisher
        self._feed = feed
        self._checker = checker
        self._store_for = store_for
        self._snapshot_of = snapshot_of
        self._clock = clock
        self._settings = settings
        self._looked_ahead: set[TableId] = set()
        self._writer_limit = WriterLimit(None if proposers is None else max(1, proposers // 2))
        self._waiting_limit = WriterLimit(None if proposers is None else max(1, proposers // 8))
        self._noted: set[TableId] = set()  # with a commit that nobody was woken for yet

    def look_again(self, table_id: TableId) -> None:
        """Look at a table's log before its next commit: it may have been mended or meddled with."""
        self._looked_ahead.discard(table_id)

    def propose(self, proposal: Proposal) -> Answer:
        """Do what `Catalog.propose` says."""
        self._refuse_if_too_large(proposal)
        with self._writer_limit.admit(part.table_id for part in proposal.parts):
            return self._propose(proposal)

    def _propose(self, proposal: Proposal) -> Answer:
        proposed_ms = self._clock.now_ms()
        try:
            attempts = tuple(self._attempt(part) for part in proposal.parts)
            for part in proposal.parts:
                self._look_ahead(part.table_id)
            for attempt in attempts:
                self._verify_files(attempt)
        except _FileError as missing:
            return self._lost_long_ago(proposal, missing) or self._refused(proposal, missing)
        except HeadgateError:
            # What was ratified is answered, also when its staged file or its table is gone
            # meanwhile, or an intruder's file lies ahead.
            replayed = self._replayed(proposal)
            if replayed is None:
                raise
            return replayed
        examined = _examined(proposal, attempts, proposed_ms)
        answer = self._decide(examined)
        self._wake(answer)
        return answer

    def propose_soon(
        self, proposal: Proposal, waiter: Waiter[Answer | Need], afterwards: Callable[[], None]
    ) -> bool:
        """Do what `Catalog.propose_soon` says."""
        if not self._looked_ahead.issuperset(part.table_id for part in proposal.parts):
            return False
        if not all(isinstance(part.content, Inline) for part in proposal.parts):
            return False
        proposed_ms = self._clock.now_ms()
        self._refuse_if_too_large(proposal)
        attempts = tuple(self._attempt(part) for part in proposal.parts)
        if any(self._files_to_verify(attempt) for attempt in attempts):
            return False
        examined = _examined(proposal, attempts, proposed_ms)
        self._ratifier.submit_for(
            waiter,
            proposal.txn_id,
            partial(self._decide_and_note, proposal=examined),
            txn_ids=keys_of(examined),
            table_ids=set(concerned(examined)),
            afterwards=(afterwards, self._wake_noted),
        )
        return True

    def _decide_and_note(
        self, unit: WriteUnit, proposal: ExaminedProposal
    ) -> Answer | Need | Later:
        answer = self._decider.decide(unit, proposal, Gathered())
        if isinstance(answer, Ratified):
            self._noted.update(answer.commits)
        return answer

    def _wake_noted(self) -> None:
        """Wake who follows on commits, after everybody who waits for one was told."""
        if self._noted:
            noted, self._noted = self._noted, set()
            for table_id in noted:
                self._publisher.wake(table_id)
            self._feed.notify()

    def _lost_long_ago(self, proposal: Proposal, missing: _FileError) -> VersionTaken | None:
        """Tell who comes so late that its staged file was swept that its version is taken."""
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
        is_lost = missing.violation.rule == _STAGED_FILE_MISSING and any(
            isinstance(part.content, Staged) and part.version <= latest.get(part.table_id, -1)
            for part in proposal.parts
        )
        if not is_lost or latest.keys() != rows.keys():
            return None
        return VersionTaken(txn_id=proposal.txn_id, latest=latest)

    def _refused(self, proposal: Proposal, missing: _FileError) -> Answer:
        # For good: who is told so may delete its files, and a copy of the request that comes when
        # the file is there at last must find the same answer.
        refused: Future[Answer] = self._ratifier.submit(
            proposal.txn_id,
            partial(self._decider.refuse, txn_id=proposal.txn_id, violation=missing.violation),
        )
        return refused.result()

    def _wake(self, answer: Answer) -> None:
        if isinstance(answer, Ratified):
            for table_id in answer.commits:
                self._publisher.wake(table_id)
            self._feed.notify()

    def propose_staged(
        self, before: TableInfo, version: Version, staged: Staged, judge: Judge = nothing_more
    ) -> Decided:
        """Do what `Catalog.propose_staged` says."""
        if before.kind is TableKind.EXTERNAL:
            raise lookup.not_managed(before.table_id)
        with self._writer_limit.admit((before.table_id,)):
            return self._propose_staged(before, version, staged, judge)

    def _propose_staged(
        self, before: TableInfo, version: Version, staged: Staged, judge: Judge
    ) -> Decided:
        proposed_ms, table_id = self._clock.now_ms(), before.table_id
        is_taken = version <= before.latest
        if version > 0 and is_taken and (first := self._answered(before, version, staged)):
            return Decided(first, before)
        part = Part(table_id=table_id, version=version, content=staged)
        try:
            attempt = self._attempt(part, before.location)
        except _FileError as missing:
            if is_taken:
                taken = VersionTaken(txn_id=TxnId(""), latest={table_id: before.latest})
                return Decided(taken, before)
            raise InvalidCommitError(table_id, [missing.violation]) from None
        if version > 0 and is_taken and (first := self._answered_by_bytes(attempt)):
            return Decided(first, before)
        examined = attempt.examined
        txn_id = examined.txn_id
        if is_taken and txn_id is not None and self._decider.loses(txn_id):
            return Decided(VersionTaken(txn_id=txn_id, latest={table_id: before.latest}), before)
        if found := [*(examined.violations if txn_id is None else ()), *judge(examined)]:
            raise InvalidCommitError(table_id, found)
        assert txn_id is not None  # else it would be a violation
        proposal = Proposal(txn_id=txn_id, parts=(part,))
        self._refuse_if_too_large(proposal)
        self._look_ahead(table_id)
        try:
            self._verify_files(attempt, before.location)
        except _FileError as missing:
            return Decided(self._refused(proposal, missing), before)
        rows: dict[TableId, TableRow] = {}
        answer = self._decide_surely(
            ExaminedProposal(txn_id, (attempt,), proposed_ms, by_version=True), rows
        )
        after = descriptions.describe_after(before, rows[table_id], proposed_ms)
        if isinstance(answer, Ratified):
            won = answer.commits[table_id]
            if won.version != version:
                raise TxnIdReusedError(
                    f"Transaction {txn_id} is already committed as version {won.version} of table "
                    f"{table_id}."
                )
            if won.file_name != staged.file_name:
                return Decided(VersionTaken(txn_id=txn_id, latest={table_id: won.version}), after)
        self._wake(answer)
        return Decided(answer, after)

    def _answered(self, before: TableInfo, version: Version, staged: Staged) -> Ratified | None:
        """Give the first answer to who proposes the very file that became the version."""
        told = before.commit_at(version)
        if told is not None and told.file_name != staged.file_name:
            return None
        with self._store.read_latest() as unit:
            row = lookup.known(unit, before.table_id)
            [taken] = unit.commits(row.key, version, version, content=False)
            if taken.file_name != staged.file_name:
                return None
            ratified = recorded_answer(unit, taken.txn_id)
        assert isinstance(ratified, Ratified)  # there is its commit
        return ratified

    def _answered_by_bytes(self, attempt: ExaminedPart) -> Ratified | None:
        """Give the first answer for a file whose bytes became the version under no known name.

        So it is with what a repair found in the log while the staged file could not be read.
        """
        with self._store.read_latest() as unit:
            row = lookup.known(unit, attempt.table_id)
            [taken] = unit.commits(row.key, attempt.version, attempt.version, content=False)
            if taken.file_name is not None or taken.sha256 != attempt.sha256:
                return None
            ratified = recorded_answer(unit, taken.txn_id)
        return ratified if isinstance(ratified, Ratified) else None

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

    def _attempt(self, part: Part, location: str | None = None) -> ExaminedPart:
        if part.version < 1:
            raise _invalid(part, "version", f"{part.version} is no version to propose")
        match part.content:
            case Inline() as inline:
                examined = examination.examine(inline)
                return ExaminedPart(part.table_id, part.version, Way.INLINE, examined)
            case Staged() as staged:
                return self._staged_attempt(part, staged, location)
            case Put():
                raise UnsupportedByCatalogError("This catalog does not commit by put-if-absent.")

    def _staged_attempt(self, part: Part, staged: Staged, location: str | None) -> ExaminedPart:
        """Read a staged file and judge it, not the client's word for it. Spec: AU-02, CM-02."""
        commit = staged.commit
        if commit is None:
            raise _invalid(part, "staged-name", f"{staged.file_name!r} is no staged commit's name")
        if commit.version != part.version:
            raise _invalid(
                part,
                "staged-version",
                f"{staged.file_name} can only become version {commit.version}, not {part.version}",
            )
        if staged.size > self._settings.commit_limit_bytes:
            raise TooLargeError(f"{staged.file_name} has {staged.size} bytes.")
        if location is None:
            location = lookup.managed(self._row(part.table_id)).location
        store = self._store_for(location)
        meta = store.head(commit.path)
        if meta is None:
            raise _FileError(_STAGED_FILE_MISSING, f"{commit.path} is not there")
        if meta.size != staged.size:
            raise _FileError(
                "staged-size",
                f"{commit.path} has {meta.size} bytes, not the {staged.size} declared",
            )
        # Seen is not yet safe: whoever wrote the file may not have synced it. Bytes that are few
        # are kept with the commit until it is published, which costs less than a sync.
        is_kept = meta.size <= self._settings.inline_limit_bytes
        if not is_kept:
            store.sync([commit.path])
        content = store.get(commit.path)
        return ExaminedPart(
            part.table_id,
            part.version,
            Way.STAGED,
            examination.examine_file(content, staged.size),
            file_name=staged.file_name,
            size=len(content),
            sha256=hashlib.sha256(content).digest(),
            modified_ms=meta.modified_ms,
            content=content if is_kept else None,
        )

    def _row(self, table_id: TableId) -> TableRow:
        with self._store.read_latest() as unit:
            return lookup.known(unit, table_id)

    def _files_to_verify(self, attempt: ExaminedPart) -> dict[str, AddFile]:
        """Return the added files that must exist before the commit is ratified."""
        adds = attempt.examined.adds
        count = self._settings.verify_staged if attempt.way is Way.STAGED else 0
        largest = heapq.nlargest(count, adds, key=lambda add: add.size) if count else []
        files = {add.path: add for add in largest}
        files |= {add.path: add for add in adds if add.size >= _VERIFY_ABOVE_BYTES}
        return files

    def _verify_files(self, attempt: ExaminedPart, location: str | None = None) -> None:
        """Check that added files exist with the declared size. Spec: AU-02."""
        wanted = self._files_to_verify(attempt)
        if not wanted:
            return
        store = self._store_for(location or self._row(attempt.table_id).location)
        for path, add in wanted.items():
            data = locations.data_path(path)
            if not data.is_relative or attempt.examined.violations:
                continue  # refused for what it is, and not for what is there
            meta = store.head(data.value)
            if meta is None:
                raise _FileError("file-missing", f"{path} is not there")
            if meta.size != add.size:
                raise _FileError(
                    "file-size", f"{path} has {meta.size} bytes, not the {add.size} declared"
                )

    def _replayed(self, proposal: Proposal) -> Ratified | None:
        with self._store.read() as unit:
            intents = {id: row.intent for id, row in unit.transaction_commits(proposal.txn_id)}
            answer = recorded_answer(unit, proposal.txn_id)
        if not isinstance(answer, Ratified):
            return None
        # A staged file is known by its transaction; what came inline is there to be compared.
        wanted = {
            part.table_id: bytes.fromhex(examination.examine(part.content).intent)
            if isinstance(part.content, Inline)
            else intents.get(part.table_id)
            for part in proposal.parts
        }
        return answer if wanted == intents else None

    def _decide(
        self, proposal: ExaminedProposal, rows: dict[TableId, TableRow] | None = None
    ) -> Answer:
        """Have a proposal decided, and satisfy what deciding it needs outside of the unit.

        `rows` gets the tables of its parts as the decision left them.
        """
        gathered = Gathered()

        def decide(unit: WriteUnit) -> Answer | Need | Later:
            answer = self._decider.decide(unit, proposal, gathered)
            if rows is not None:
                rows.update({p.table_id: lookup.known(unit, p.table_id) for p in proposal.parts})
            return answer

        while True:
            decided: Future[Answer | Need] = self._ratifier.submit(
                proposal.txn_id,
                decide,
                txn_ids=keys_of(proposal),
                table_ids=set(concerned(proposal)),
            )
            match answer := decided.result():
                case NeedPublishing(head):
                    is_past = self.hold_back(head)
                    gathered = gathered._replace(is_past_backlog=is_past)
                case NeedWinners():
                    with self._store.read() as unit:
                        gathered = self._decider.compare(unit, proposal, gathered)
                case NeedReplaced():
                    gathered = gathered._replace(replaced=self._replaced(proposal.parts))
                case _:
                    return answer

    def _decide_surely(self, proposal: ExaminedProposal, rows: dict[TableId, TableRow]) -> Answer:
        """Decide, and find out what became of it if the database did not answer.

        A client that gets an unknown outcome a few times may take it for a failure, and delete its
        files.
        """
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        doubt: OutcomeUnknownError | None = None
        while True:
            try:
                return self._decide(proposal, rows)
            except OutcomeUnknownError as error:
                doubt = error
            except HeadgateError as error:
                if doubt is None:  # nothing happened
                    raise
                if error.retry is Retry.NEVER:  # nor will it be known by asking again
                    raise doubt from error
            if self._clock.monotonic() > deadline:
                raise doubt
            self._clock.sleep(_DOUBT_PAUSE_S)

    def hold_back(self, head: Head) -> bool:
        """Slow a writer down to what the publisher can do; return True if waiting cannot help.

        While storage cannot be written, or the table's log diverged, commits go on up to the hard
        limit: a publisher in trouble is no reason to lose writes. Spec: CM-25.
        """
        wanted = Version(head.version - self._settings.unpublished_soft // 2)
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        with self._waiting_limit.admit((head.table_id,)):
            try:
                published = self._publisher.publish(head.table_id, wanted, deadline)
            except HeadgateError:
                return True
        if published < wanted:
            unpublished = head.version - published
            raise BusyError(f"Table {head.table_id} has {unpublished} unpublished commits.")
        return False

    def _look_ahead(self, table_id: TableId) -> None:
        """Look once whether the log is ahead of the catalog, as after restoring an old copy.

        A file that could be the next version means the catalog forgot; anything else there was
        put by an intruder, and the publisher will stop at it.
        """
        if table_id in self._looked_ahead:
            return
        while True:
            with self._store.read() as unit:
                row = lookup.managed(lookup.known(unit, table_id))
            if row.state is not TableStatus.ACTIVE:
                return  # the decider will say so
            content = DeltaLog(self._store_for(row.location)).read_published(Version(row.head + 1))
            if content is None:
                break
            with self._store.read() as unit:
                moved = lookup.known(unit, table_id).head != row.head
            if moved:
                continue  # another process committed and published meanwhile: look again
            if self._checker.is_next(row, content):
                raise LogAheadError(
                    f"The log of table {table_id} has version {row.head + 1}, the catalog only "
                    f"{row.head}: the catalog is an older copy."
                )
            _log.error("table %s: version %d in the log is an intruder's", row.id, row.head + 1)
            break
        self._looked_ahead.add(table_id)

    def _replaced(self, attempts: Iterable[ExaminedPart]) -> frozenset[TableId]:
        """Name the tables whose partitioning changes while every old file goes. Spec: FI5."""
        replaced: set[TableId] = set()
        for attempt in attempts:
            table_id = attempt.table_id
            if attempt.examined.metadata is None:
                continue
            with self._store.read() as unit:
                row = lookup.known(unit, table_id)
            if row.state is not TableStatus.ACTIVE:
                continue
            snapshot = self._snapshot_of(table_id)
            gone = {file.key for file in attempt.examined.removes}
            if all(file.key in gone for file in snapshot.files()):
                replaced.add(table_id)
        return frozenset(replaced)


class _FileError(Exception):
    """A file that a proposal names is not there, or not as it was declared."""

    def __init__(self, rule: str, says: str) -> None:
        super().__init__(says)
        self.violation = Violation(rule=rule, says=says)


def _examined(
    proposal: Proposal, parts: tuple[ExaminedPart, ...], proposed_ms: int
) -> ExaminedProposal:
    return ExaminedProposal(proposal.txn_id, parts, proposed_ms, proposal.scans, proposal.isolation)


def _invalid(part: Part, rule: str, says: str) -> InvalidCommitError:
    return InvalidCommitError(part.table_id, [Violation(rule=rule, says=says)])
