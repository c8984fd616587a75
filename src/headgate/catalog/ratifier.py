"""The only thread that changes the catalog, and its queue.

Queued work is done in batches: one transaction of the database, and so one sync, for all of it.
Each piece runs in a savepoint, so that its failure undoes nothing else. Answers are sent after the
transaction is committed. If the outcome of that is unknown, all answers of the batch report it, and
the ratifier stops unless the store can continue: a lost connection can be replaced, but a failed
sync cannot be repeated. A transaction that the store rolled back is run again for a limited time.
"""

from __future__ import annotations

import enum
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from headgate.catalog.stores.port import CatalogStore, InDoubtError, RolledBackError, WriteUnit
from headgate.clock import Clock
from headgate.errors import HeadgateError, OutcomeUnknownError, UnavailableError
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, TxnId
from headgate.settings import Settings

_log = logging.getLogger(__name__)
_BATCH_PROPOSALS = 256  # decided in one transaction of the database
_BATCH_S = 0.02  # after which a batch ends

Result = TypeVar("Result")
Told = TypeVar("Told", contravariant=True)
Step = Callable[[], None]


class Later(enum.Enum):
    """Returned by work that must let others go first: it is run again a moment later."""

    LATER = enum.auto()


LATER: Final = Later.LATER


class _UndoError(Exception):
    """Rolls back the savepoint of work that waits."""


class Waiter(Protocol[Told]):
    """Receives a result in the writer's thread, so it must be quick. A future is one."""

    def set_result(self, result: Told, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


@dataclass(slots=True, eq=False)
class _Work(Generic[Result]):
    name: str  # a txnId or another name, for the error if the outcome is unknown
    do: Callable[[WriteUnit], Result | Later]
    waiter: Waiter[Result]
    txn_ids: Collection[TxnId] = ()  # of rows that it will read
    table_ids: Collection[TableId] = ()
    afterwards: tuple[Step, ...] = ()  # called once for a batch, after all answers
    result: Result | Later | None = None
    error: BaseException | None = None


class Ratifier:
    """The one place where a catalog changes."""

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        settings: Settings,
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._on_stopped = on_stopped  # called with the reason, unless it was closed
        self._undone_since: float | None = None
        self._queue: queue.SimpleQueue[_Work[object] | None] = queue.SimpleQueue()
        self._taken: deque[_Work[object]] = deque()  # from the queue, and not begun yet
        self._stopped: str | None = None
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="headgate-ratifier", daemon=True)
        self._thread.start()

    def submit(
        self,
        name: str,
        do: Callable[[WriteUnit], Result | Later],
        *,
        txn_ids: Collection[TxnId] = (),
        table_ids: Collection[TableId] = (),
    ) -> Future[Result]:
        """Queue `do` for the next unit of work; return a future of its result.

        The ids of the rows that it reads allow prefetching, which saves round trips.
        """
        answer = Future[Result]()
        self.submit_for(answer, name, do, txn_ids=txn_ids, table_ids=table_ids)
        return answer

    def submit_for(
        self,
        waiter: Waiter[Result],
        name: str,
        do: Callable[[WriteUnit], Result | Later],
        *,
        txn_ids: Collection[TxnId],
        table_ids: Collection[TableId],
        afterwards: tuple[Step, ...] = (),
    ) -> None:
        """Queue `do` for a waiter that needs no future, since one costs as much as deciding.

        `afterwards` runs once for all work answered together, in this order.
        """
        if os.getpid() != self._process:
            raise UnavailableError(
                "This process was forked, and the catalog's writer stayed behind.",
                remedy="Connect again in the new process.",
            )
        self.refuse_if_stopped()
        work = _Work(name, do, waiter, txn_ids, table_ids, afterwards)
        self._queue.put(work)  # type: ignore[arg-type]  # the queue does not look at results
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
                self._batch(self._taken.popleft())
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

    def _batch(self, first: _Work[object]) -> None:
        batch: list[_Work[object]] = []
        waiting: list[_Work[object]] = []
        try:
            fail_point("ratifier.before_begin")
            with self._store.write() as unit:
                deadline = self._clock.monotonic() + _BATCH_S
                self._look_ahead(unit, first)
                work: _Work[object] | None = first
                while work is not None:
                    batch.append(work)
                    work.error = None
                    try:
                        with unit.savepoint():
                            work.result = work.do(unit)
                            if work.result is LATER:
                                raise _UndoError
                            fail_point("ratifier.after_decide")
                    except _UndoError:
                        waiting.append(work)
                    except Exception as error:
                        work.error = error
                    full = len(batch) >= _BATCH_PROPOSALS
                    if full or self._clock.monotonic() > deadline:
                        break
                    work = self._next(unit)
                fail_point("ratifier.before_commit")
            fail_point("ratifier.after_commit")
            fail_point("ratifier.before_answer")
        except HeadgateError as error:  # nothing was written, for example because the disk is full
            batch, waiting = batch or [first], []
            if isinstance(error, RolledBackError) and self._has_time():
                self._taken.extendleft(reversed(batch))
                self._clock.sleep(0.001)
                return
            for work in batch:
                work.error = error
        except BaseException as error:
            for work in batch or [first]:
                work.error = OutcomeUnknownError(work.name, f"the database reported: {error}")
            _answer(batch or [first])
            if isinstance(error, InDoubtError) and error.is_store_usable:
                return
            raise
        self._undone_since = None
        _answer([work for work in batch if work not in waiting] if waiting else batch)
        for work in waiting:
            self._queue.put(work)
        if len(waiting) == len(batch):
            self._clock.sleep(0.001)

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

    def _next(self, unit: WriteUnit) -> _Work[object] | None:
        if not self._taken:
            self._look_ahead(unit)
        return self._taken.popleft() if self._taken else None

    def _look_ahead(self, unit: WriteUnit, first: _Work[object] | None = None) -> None:
        """Take all queued work, and prefetch the rows that it will read."""
        while len(self._taken) < _BATCH_PROPOSALS:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                break
            if work is None:  # stop, but only after the batch is answered
                self._queue.put(None)
                break
            self._taken.append(work)
        ahead = [*self._taken] if first is None else [first, *self._taken]
        if any(work.txn_ids or work.table_ids for work in ahead):
            unit.prefetch(
                {txn_id for work in ahead for txn_id in work.txn_ids},
                {table_id for work in ahead for table_id in work.table_ids},
            )

    def _drain(self) -> None:
        for take in (self._taken.popleft, self._queue.get_nowait):
            with suppress(IndexError, queue.Empty):
                while True:
                    work = take()
                    if work is not None:
                        work.error = self._refusal()
                        _answer([work])

    def _refusal(self) -> UnavailableError:
        return UnavailableError(
            f"The catalog has stopped: {self._stopped}.", remedy="Connect again."
        )


def _answer(batch: Collection[_Work[object]]) -> None:
    """Send all answers, then call the steps, which wake threads that compete with receivers."""
    for work in batch:
        try:
            if work.error is not None:
                work.waiter.set_exception(work.error)
            else:
                work.waiter.set_result(work.result)
        except InvalidStateError:  # its waiter cancelled it
            assert isinstance(work.waiter, Future)
            work.waiter.set_running_or_notify_cancel()
    for step in dict.fromkeys([step for work in batch for step in work.afterwards]):
        try:
            step()
        except Exception:  # the thread must survive
            _log.exception("a step after a batch failed")
