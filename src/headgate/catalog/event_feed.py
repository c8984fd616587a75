"""The feed of events: pages by sequence, at once or as soon as there are events.

One thread serves all waiters. It is woken by this process's ratifications, and polls the store
while there are waiters, since other processes ratify too. Without waiters, a ratification only
costs a look at an empty list. Spec: EV-01.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from headgate.api.events import Event, NameChange, TableCommit
from headgate.catalog.component import Component, Shared
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import CommitRow, EventRow
from headgate.errors import (
    HeadgateError,
    InTheFutureError,
    InvalidArgumentError,
    VersionGoneError,
)
from headgate.protocol.actions import Sequence, TableId

MAX_PAGE: Final = 1_000
_POLL_S: Final = 0.25  # to see what other processes ratified
_BATCH_S: Final = 0.005  # ratifications within this time are read together

_log = logging.getLogger(__name__)

EventPage = tuple[Event, ...]


@dataclass(slots=True, eq=False)
class _Waiter:
    after: Sequence | None
    limit: int
    deadline: float
    answer: Future[EventPage] = field(default_factory=Future)


class EventFeed(Component):
    """Reads events after a sequence; without a sequence, from the oldest event that is kept."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._changes = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._has_ratified = False  # this process ratified something since the last read
        self._has_new_waiter = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def read(
        self, after: Sequence | None = None, limit: int = MAX_PAGE, wait_s: float = 0.0
    ) -> EventPage:
        if wait_s > 0:
            return self.wait_for_page(after, limit, wait_s).result()
        _refuse_if_invalid(after, limit)
        with self._store.read() as unit:
            return page(unit, after, limit)

    def wait_for_page(self, after: Sequence | None, limit: int, wait_s: float) -> Future[EventPage]:
        """Return a future of the next events; it resolves to no events when the time is over."""
        _refuse_if_invalid(after, limit)
        waiter = _Waiter(after, limit, self._clock.monotonic() + wait_s)
        with self._changes:
            if self._is_closed:
                waiter.answer.set_result(())
                return waiter.answer
            self._waiting.append(waiter)
            self._has_new_waiter = True  # its events may exist already
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headgate-feed", daemon=True)
                self._thread.start()
            self._changes.notify()
        return waiter.answer

    def notify(self) -> None:
        """Wake the waiters after a ratification in this process; cheap without waiters.

        The unlocked check is safe: a later waiter reads the store first, and finds the event.
        """
        if self._waiting and not self._has_ratified:
            with self._changes:
                self._has_ratified = True
                self._changes.notify()

    def close(self) -> None:
        """Answer all waiters with no events, and stop."""
        if os.getpid() != self._process:  # threads do not cross a fork
            return
        with self._changes:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
            self._changes.notify()
        for waiter in waiting:
            _answer(waiter, ())
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changes:
                while not self._waiting and not self._is_closed:
                    self._changes.wait()
                if not (self._has_ratified or self._has_new_waiter or self._is_closed):
                    nearest = min(waiter.deadline for waiter in self._waiting)
                    left_s = max(nearest - self._clock.monotonic(), 0.0)
                    self._changes.wait(min(left_s, _POLL_S))
                if self._has_ratified:
                    # Many ratifications in a row cost one read.
                    self._changes.wait_for(
                        lambda: self._has_new_waiter or self._is_closed, _BATCH_S
                    )
                if self._is_closed:
                    return
                self._has_ratified = self._has_new_waiter = False
                waiting = list(self._waiting)
            try:
                done = self._read_for(waiting)
            except Exception as error:  # the thread must survive, or all waiters hang
                done = dict.fromkeys(waiting, error)
                if not isinstance(error, HeadgateError):
                    _log.exception("reading events failed")
            with self._changes:
                # Waiters that are no longer in the list were answered by close().
                done = {waiter: done[waiter] for waiter in self._waiting if waiter in done}
                self._waiting = [waiter for waiter in self._waiting if waiter not in done]
            for waiter, result in done.items():
                _answer(waiter, result)

    def _read_for(self, waiting: list[_Waiter]) -> dict[_Waiter, EventPage | Exception]:
        """Return the results of the waiters that are done, from one instant of the store."""
        now = self._clock.monotonic()
        done: dict[_Waiter, EventPage | Exception] = {}
        pages: dict[tuple[Sequence, int], EventPage | Exception] = {}
        with self._store.read() as unit:
            latest = unit.clock().sequence
            for waiter in waiting:
                request = (_start(unit, waiter.after), waiter.limit)
                if waiter.answer.cancelled():
                    done[waiter] = ()
                elif request[0] != latest or waiter.deadline <= now:
                    if request not in pages:  # many waiters have the same request
                        try:
                            pages[request] = page(unit, *request)
                        except (VersionGoneError, InTheFutureError) as error:
                            pages[request] = error  # must not affect other waiters
                    done[waiter] = pages[request]
        return done


def page(unit: ReadUnit, after: Sequence | None, limit: int) -> EventPage:
    """Return the events after a sequence."""
    after = _start(unit, after)
    rows = unit.events(after, limit)
    if not rows:
        latest = unit.clock().sequence
        if after > latest:
            raise InTheFutureError(
                f"The catalog is at sequence {latest} and has not reached {after} yet.",
                remedy="Read after the last sequence you received. If this is that sequence, the "
                f"catalog is an older copy: continue after {latest}.",
            )
        return ()
    oldest = rows[0].sequence
    if oldest > after + 1:
        raise VersionGoneError(
            f"Events before sequence {oldest} are past their retention and deleted.",
            remedy=f"Read events after {oldest - 1}, and earlier changes from the tables.",
        )
    # A table's name is read once; later changes of it are in the rows.
    names: dict[TableId, str | None] = {}
    return tuple(_event(unit, row, names) for row in rows)


def _start(unit: ReadUnit, after: Sequence | None) -> Sequence:
    """Return the sequence to read after; by default, the one before the oldest event kept."""
    if after is not None:
        return after
    oldest = unit.oldest_event()
    return Sequence(0) if oldest is None else Sequence(oldest.sequence - 1)


def _event(unit: ReadUnit, row: EventRow, names: dict[TableId, str | None]) -> Event:
    assigned = {table_id: str(name) for name, table_id in row.names_assigned}
    released = {table_id: str(name) for name, table_id in row.names_released}
    names |= dict.fromkeys(released) | assigned

    def commit(table_id: TableId, of: CommitRow) -> TableCommit:
        if table_id not in names:
            name = unit.name_of(table_id, row.sequence)
            names[table_id] = None if name is None else str(name)
        return TableCommit(
            table_id=table_id,
            name=names[table_id],
            version=of.version,
            way=of.way,
            size=of.size,
            timestamp_ms=of.timestamp_ms,
        )

    return Event(
        sequence=row.sequence,
        timestamp_ms=row.clock_ms,
        txn_id=row.txn_id,
        commits=tuple(commit(table_id, of) for table_id, of in row.commits),
        names=tuple(
            NameChange(
                table_id=table_id, before=released.get(table_id), after=assigned.get(table_id)
            )
            for table_id in released | assigned
        ),
    )


def _refuse_if_invalid(after: Sequence | None, limit: int) -> None:
    if (after is not None and after < 0) or not 1 <= limit <= MAX_PAGE:
        raise InvalidArgumentError(
            f"Invalid request for at most {limit} events after sequence {after}.",
            remedy=f"Request 1 to {MAX_PAGE} events after a sequence that is not negative.",
        )


def _answer(waiter: _Waiter, result: EventPage | Exception) -> None:
    if not waiter.answer.set_running_or_notify_cancel():
        return  # cancelled
    if isinstance(result, Exception):
        waiter.answer.set_exception(result)
    else:
        waiter.answer.set_result(result)
