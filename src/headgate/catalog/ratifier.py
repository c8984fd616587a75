"""The only thread that changes the catalog, and its queue.

Queued proposals are decided in batches on heads kept in memory, and a batch is written if the
epoch is still the one it was decided on; if not, it is decided once more under the store's lock.
Other changes run in a unit of work, each in a savepoint, so that its failure undoes nothing else.
While other processes write, proposals are decided in units as well, together with changes: all
processes queue for the lock, and what arrives meanwhile makes the batch larger.
Either way one transaction of the database, and so one sync, serves all of it, and answers are sent
after it is committed. If the outcome of that is unknown, all answers of the batch report it, and
the ratifier stops unless the store can continue: a lost connection can be replaced, but a failed
sync cannot be repeated. A transaction that the store rolled back is run again for a limited time.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from headgate.api.messages import Ratified
from headgate.catalog.decider import POSTPONED, Decided, Decider, Draft, keys_of, with_winners
from headgate.catalog.heads import Heads, Premise
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import InDoubtError, Publication, RolledBackError
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import Clock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    OutcomeUnknownError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId
from headgate.protocol.commit.decide import Need, NeedDescription, concerned
from headgate.protocol.commit.facts import ExaminedProposal, Gathered
from headgate.settings import Settings

_log = logging.getLogger(__name__)
_BATCH = 256  # pieces of work in one transaction of the database
_BATCH_S = 0.02  # after which a batch of changes ends
_CONTENDED = 16  # units between which no other process wrote, until heads are relied on again

Result = TypeVar("Result")
Given = TypeVar("Given", contravariant=True)
Step = Callable[[], None]


class Waiter(Protocol[Given]):
    """Receives a result in the ratifier's thread, so it must be quick. A future is one."""

    def set_result(self, result: Given, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


@dataclass(slots=True, eq=False)
class _UnitWork(Generic[Result]):
    """Work in a unit."""

    name: str  # for the error if the outcome is unknown
    do: Callable[[WriteUnit], Result]
    waiter: Waiter[Result]
    result: Result | None = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Proposal:
    """A proposal to decide."""

    proposal: ExaminedProposal
    gathered: Gathered
    waiter: Waiter[Any]
    afterwards: Step | None
    premise: Premise | None
    result: Decided | Need | None = None
    error: BaseException | None = None

    @property
    def name(self) -> str:
        return self.proposal.txn_id


@dataclass(slots=True, eq=False)
class _Record:
    """Versions of tables that are in their logs now."""

    publications: Mapping[TableId, Publication]
    waiter: Waiter[Any]
    result: None = None
    error: BaseException | None = None

    name: ClassVar = "publishing"


_Decision: TypeAlias = _Proposal | _Record
_Work: TypeAlias = _UnitWork[Any] | _Decision


class Ratifier:
    """The one place where a catalog changes."""

    def __init__(
        self,
        store: CatalogStore,
        decider: Decider,
        clock: Clock,
        settings: Settings,
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._store = store
        self._decider = decider
        self._clock = clock
        self._settings = settings
        self._on_stopped = on_stopped  # called with the reason, unless it was closed
        # Called with the tables of each batch that got commits, after all answers.
        self.on_ratified: Callable[[Collection[TableId]], None] = lambda table_ids: None
        self._heads = Heads()
        self._undone_since: float | None = None
        self._contended = 0  # how many batches to decide in units at once
        self._singly = 0  # how many proposals to decide in batches of their own
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._taken: deque[_Work] = deque()  # from the queue, and not begun yet
        self._stopped: str | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="headgate-ratifier", daemon=True)
        self._thread.start()

    def submit(self, name: str, do: Callable[[WriteUnit], Result]) -> Future[Result]:
        """Queue `do` for the next unit of work; return a future of its result."""
        answer = Future[Result]()
        self._put(_UnitWork(name, do, answer))
        return answer

    def decide(
        self,
        proposal: ExaminedProposal,
        gathered: Gathered,
        waiter: Waiter[Decided | Need],
        afterwards: Step | None = None,
        premise: Premise | None = None,
    ) -> None:
        """Queue a proposal to be decided: every proposal enters the catalog here.

        The waiter need not be a future, which costs as much as deciding. `afterwards` is called
        once after a batch with such proposals. If `premise` does not hold, the result is
        `NeedDescription`.
        """
        self._put(_Proposal(proposal, gathered, waiter, afterwards, premise))

    def record(self, publications: Mapping[TableId, Publication]) -> Future[None]:
        """Queue the record of versions of tables that are in their logs now."""
        done = Future[None]()
        self._put(_Record(publications, done))
        return done

    def _put(self, work: _Work) -> None:
        if os.getpid() != self._process:
            raise UnavailableError(
                "This process was forked, and the catalog's writer stayed behind.",
                remedy="Connect again in the new process.",
            )
        self.refuse_if_stopped()
        self._queue.put(work)
        if self._stopped is not None:  # it may have stopped between the check and the put
            self._drain()

    def refuse_if_stopped(self) -> None:
        if self._stopped is not None:
            raise self._refusal()

    def close(self) -> None:
        """Answer all queued work, then stop; return when the thread has ended."""
        if self._stopped is None:
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._taken or self._wait():
                self._batch()
            self._stopped = "it was closed"
        except InDoubtError as doubt:
            self._fail(f"its database left an outcome unknown ({doubt})")
        except BaseException as error:
            self._fail(repr(error))
            raise
        finally:
            self._drain()

    def _fail(self, why: str) -> None:
        self._stopped = why
        self._drain()
        self._on_stopped(why)

    # Batches

    def _batch(self) -> None:
        """Do the first work of the queue, and what follows it and can be done with it."""
        begun: list[_Work] = [self._taken[0]]
        postponed: list[_Work] = []
        try:
            fail_point("ratifier.before_begin")
            postponed = self._do_all(begun)
            fail_point("ratifier.after_commit")
            fail_point("ratifier.before_answer")
        except HeadgateError as error:  # nothing was written, for example because the disk is full
            self._heads.forget()
            if isinstance(error, RolledBackError) and self._has_time():
                self._clock.sleep(0.001)
                return
            if isinstance(error, InvalidArgumentError) and len(begun) > 1:
                self._singly = len(begun)  # one has a value that the store cannot hold
                return
            for work in begun:
                work.error = error
        except BaseException as error:
            self._heads.forget()
            for work in begun:
                work.error = OutcomeUnknownError(work.name, f"the database reported: {error}")
            self._answer(begun)
            if isinstance(error, InDoubtError) and error.is_store_usable:
                return
            raise
        self._undone_since = None
        self._answer(begun, postponed)

    def _do_all(self, begun: list[_Work]) -> list[_Work]:
        """Do queued work; return the proposals that a later batch has to decide."""
        most = 1 if self._singly else _BATCH
        self._singly = max(0, self._singly - 1)
        postponed = None
        if not self._contended and not isinstance(begun[0], _UnitWork):
            postponed = self._decide_on_heads(begun, most)
        if postponed is None:
            postponed = self._do_in_unit(begun, most)
        with suppress(HeadgateError):  # a client that is not sent them asks for them
            self._add_winners(begun)
        return postponed

    def _add_winners(self, decisions: Iterable[_Work]) -> None:
        behind = [
            (work, work.result)
            for work in decisions
            if isinstance(work, _Proposal)
            and isinstance(work.result, Decided)
            and work.result.behind
        ]
        if behind:
            with self._store.read_latest() as unit:
                for work, decided in behind:
                    work.result = with_winners(unit, decided)

    def _decide_on_heads(self, begun: list[_Work], most: int) -> list[_Work] | None:
        """Decide on kept heads, and write the batch if the epoch is theirs.

        None if it is not, because of another process, or if a key has an outcome already.
        """
        heads = self._heads
        self._take_queued()
        decisions: list[_Decision] = []
        for work in islice(self._taken, most):
            if isinstance(work, _UnitWork):
                break
            decisions.append(work)
        begun[:] = decisions
        concerned_tables = _tables_of(decisions)
        if heads.epoch is None or heads.missing(concerned_tables):
            with self._store.read() as unit:
                heads.load(unit, concerned_tables)
        assert heads.epoch is not None  # it is loaded
        draft = Draft(heads, self._store)
        postponed = self._decide_each(draft, decisions)
        fail_point("ratifier.before_commit")
        if draft.is_stale:
            return None
        epoch = heads.epoch
        if not draft.is_empty:
            written = self._store.write_batch(epoch, draft.batch())
            if written is None:
                return None
            draft.keep(written)
        elif draft.relies_on_heads:
            with self._store.read() as unit:
                if unit.epoch() != epoch or unit.decided(draft.undecided):
                    return None
        return postponed

    def _do_in_unit(self, begun: list[_Work], most: int) -> list[_Work]:
        """Do queued work under the store's lock, changes before decisions.

        Nothing else can change meanwhile, so it always ends.
        """
        with self._store.write() as unit:
            deadline = self._clock.monotonic() + _BATCH_S
            is_alone = self._heads.epoch in (None, unit.epoch())
            self._contended = max(0, self._contended - 1) if is_alone else _CONTENDED
            is_mixed = bool(self._contended) or not isinstance(begun[0], _UnitWork)
            begun.clear()  # more has arrived while others had the lock
            while len(begun) < most and self._clock.monotonic() <= deadline:
                self._take_queued()
                if len(begun) == len(self._taken):
                    break
                work = self._taken[len(begun)]
                if not (is_mixed or isinstance(work, _UnitWork)):
                    break  # it is better decided on heads
                begun.append(work)
                if isinstance(work, _UnitWork):
                    self._change(unit, work)
            decisions = [work for work in begun if not isinstance(work, _UnitWork)]
            postponed, draft = self._decide_in(unit, decisions)
            fail_point("ratifier.before_commit")
            epoch = unit.epoch()
        draft.keep(epoch)
        return postponed

    def _change(self, unit: WriteUnit, change: _UnitWork[Any]) -> None:
        change.error = None
        try:
            with unit.savepoint():
                change.result = change.do(unit)
                fail_point("ratifier.after_decide")
        except Exception as error:
            change.error = error

    def _decide_in(
        self, unit: WriteUnit, decisions: Iterable[_Decision]
    ) -> tuple[list[_Work], Draft]:
        heads = self._heads
        heads.load(unit, _tables_of(decisions))
        proposals = [work.proposal for work in decisions if isinstance(work, _Proposal)]
        keys = {key for proposal in proposals for key in keys_of(proposal)}
        if keys:
            heads.decided.update(dict.fromkeys(unit.decided(keys)))
        draft = Draft(heads, unit=unit)
        postponed = self._decide_each(draft, decisions)
        if not draft.is_empty:
            unit.write_batch(draft.batch())
        return postponed, draft

    def _decide_each(self, draft: Draft, decisions: Iterable[_Decision]) -> list[_Work]:
        postponed: list[_Work] = []
        for work in decisions:
            work.result = work.error = None
            if isinstance(work, _Record):
                for table_id, publication in work.publications.items():
                    draft.publish(table_id, publication)
                continue
            if work.premise is not None and not draft.holds(work.premise):
                work.result = NeedDescription()
                continue
            try:
                decided = self._decider.decide(draft, work.proposal, work.gathered)
                fail_point("ratifier.after_decide")
            except Exception as error:
                work.error = error
                continue
            if decided is POSTPONED:
                postponed.append(work)
            else:
                work.result = decided
        return postponed

    def _answer(self, begun: list[_Work], postponed: Collection[_Work] = ()) -> None:
        """Send all answers, then call the steps, which wake threads that compete with receivers."""
        for _ in begun:  # the first ones of those taken
            self._taken.popleft()
        steps: dict[Step, None] = {}
        ratified: set[TableId] = set()
        for work in begun:
            if postponed and work in postponed:
                self._queue.put(work)
                continue
            if isinstance(work, _Proposal):
                if work.afterwards is not None:
                    steps[work.afterwards] = None
                if isinstance(work.result, Decided) and isinstance(work.result.answer, Ratified):
                    ratified.update(work.result.answer.commits)
            _give(work)
        for step in steps:
            _run_safely(step)
        if ratified:
            _run_safely(lambda: self.on_ratified(ratified))
        if len(postponed) == len(begun):
            self._clock.sleep(0.001)

    # The queue

    def _has_time(self) -> bool:
        """Return True if rolled-back work may still be run again."""
        now = self._clock.monotonic()
        if self._undone_since is None:
            self._undone_since = now
        return now - self._undone_since < self._settings.store_patience_ms / 1000

    def _wait(self) -> bool:
        """Wait for work; return False if the ratifier is to stop."""
        work = self._queue.get()
        if work is not None:
            self._taken.append(work)
        return work is not None

    def _take_queued(self) -> None:
        while len(self._taken) < _BATCH:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                return
            if work is None:  # stop, but only after the batch is answered
                self._queue.put(None)
                return
            self._taken.append(work)

    def _drain(self) -> None:
        for take in (self._taken.popleft, self._queue.get_nowait):
            with suppress(IndexError, queue.Empty):
                while True:
                    work = take()
                    if work is not None:
                        work.error = self._refusal()
                        _give(work)

    def _refusal(self) -> UnavailableError:
        return UnavailableError(
            f"The catalog has stopped: {self._stopped}.", remedy="Connect again."
        )


def _tables_of(decisions: Iterable[_Decision]) -> set[TableId]:
    return {
        table_id
        for work in decisions
        if isinstance(work, _Proposal)
        for table_id in concerned(work.proposal)
    }


def _give(work: _Work) -> None:
    try:
        if work.error is not None:
            work.waiter.set_exception(work.error)
        else:
            work.waiter.set_result(work.result)
    except InvalidStateError:  # its waiter cancelled it
        assert isinstance(work.waiter, Future)
        work.waiter.set_running_or_notify_cancel()


def _run_safely(step: Step) -> None:
    try:
        step()
    except Exception:  # the thread must survive
        _log.exception("a step after a batch failed")
