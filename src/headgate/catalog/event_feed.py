"""The feed of events: read by sequence, and waited for without asking the store for each waiter.

One thread waits for all. It is woken by this process's own ratifications, and looks at the store
now and then while somebody waits, since other processes ratify too. While nobody waits there is
nothing to wake, and a ratification pays one look at an empty list. Spec: EV-01.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from headgate.api.events import Event, NameChange, TableCommit
from headgate.catalog.stores.port import CatalogStore, CommitRow, EventRow, ReadUnit
from headgate.clock import Clock
from headgate.errors import (
    HeadgateError,
    InTheFutureError,
    InvalidArgumentError,
    VersionGoneError,
)
from headgate.protocol.actions import Sequence, TableId

LARGEST_PAGE: Final = 1_000
_LOOK_EVERY_S: Final = 0.25  # for what other processes ratified
_GATHER_S: Final = 0.005  # many ratifications in a row are one look

_log = logging.getLogger(__name__)

Events = tuple[Event, ...]


@dataclass(slots=True, eq=False)
class _Waiter:
    after: Sequence | None
    limit: int
    deadline: float
    answer: Future[Events] = field(default_factory=Future)


class Feed:
    """Events after a sequence, at once or as soon as there are some.

    Without a sequence they begin at the oldest event that is kept.
    """

    def __init__(self, store: CatalogStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changes = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._is_told = False  # something was ratified here
        self._is_new = False  # somebody began to wait
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def read(self, after: Sequence | None, limit: int = LARGEST_PAGE) -> Events:
        """Give the events after a sequence that are there now, in order and without a gap."""
        _refuse_if_wrong(after, limit)
        with self._store.read() as unit:
            return page(unit, after, limit)

    def soon(self, after: Sequence | None, limit: int, wait_s: float) -> Future[Events]:
        """Give a future of the next events; it ends with none when the time is over."""
        _refuse_if_wrong(after, limit)
        waiter = _Waiter(after, limit, self._clock.monotonic() + wait_s)
        with self._changes:
            if self._is_closed:
                waiter.answer.set_result(())
                return waiter.answer
            self._waiting.append(waiter)
            self._is_new = True  # what it waits for may be there already
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headgate-feed", daemon=True)
                self._thread.start()
            self._changes.notify()
        return waiter.answer

    def tell(self) -> None:
        """Say that something was ratified here: cheap, since every ratification says so.

        Who begins to wait after this look at the list is answered from the store, and it is there.
        """
        if self._waiting and not self._is_told:
            with self._changes:
                self._is_told = True
                self._changes.notify()

    def close(self) -> None:
        """Send everybody away who waits."""
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
                if not (self._is_told or self._is_new or self._is_closed):
                    self._changes.wait(self._pause_s())
                if self._is_told:
                    # Whoever ratifies much is not slowed down by a look for each.
                    self._changes.wait_for(lambda: self._is_new or self._is_closed, _GATHER_S)
                if self._is_closed:
                    return
                self._is_told = self._is_new = False
                waiting = list(self._waiting)
            try:
                done = self._look(waiting)
            except Exception as error:  # a thread that dies leaves everybody waiting
                done = dict.fromkeys(waiting, error)
                if not isinstance(error, HeadgateError):
                    _log.exception("reading events failed")
            with self._changes:
                # Those that are gone from the list were sent away meanwhile.
                done = {waiter: done[waiter] for waiter in self._waiting if waiter in done}
                self._waiting = [waiter for waiter in self._waiting if waiter not in done]
            for waiter, found in done.items():
                _answer(waiter, found)

    def _pause_s(self) -> float:
        now = self._clock.monotonic()
        nearest = min(waiter.deadline for waiter in self._waiting)
        return min(max(nearest - now, 0.0), _LOOK_EVERY_S)

    def _look(self, waiting: list[_Waiter]) -> dict[_Waiter, Events | Exception]:
        """Find out whose waiting is over, from one instant of the store."""
        now = self._clock.monotonic()
        done: dict[_Waiter, Events | Exception] = {}
        pages: dict[tuple[Sequence, int], Events | Exception] = {}
        with self._store.read() as unit:
            latest = unit.clock().sequence
            for waiter in waiting:
                if waiter.answer.cancelled():
                    done[waiter] = ()
                    continue
                after = _start(unit, waiter.after)
                asked = (after, waiter.limit)
                if after > latest:
                    done[waiter] = _not_yet(after, latest)
                elif after < latest:
                    if asked not in pages:  # many wait for the same
                        pages[asked] = _page_or_error(unit, *asked)
                    done[waiter] = pages[asked]
                elif waiter.deadline <= now:
                    done[waiter] = ()
        return done


def page(unit: ReadUnit, after: Sequence | None, limit: int) -> Events:
    """Make events of what took the sequences after one."""
    after = _start(unit, after)
    rows = unit.events(after, limit)
    if not rows:
        latest = unit.clock().sequence
        if after > latest:
            raise _not_yet(after, latest)
        return ()
    if rows[0].sequence > after + 1:
        raise _gone(rows[0].sequence)
    # A table is asked for its name once; what happens to it from there on the rows tell.
    names: dict[TableId, str | None] = {}
    return tuple(_event(unit, row, names) for row in rows)


def _page_or_error(unit: ReadUnit, after: Sequence, limit: int) -> Events | Exception:
    """Return a page, or why it cannot be read: other waiters are not affected."""
    try:
        return page(unit, after, limit)
    except VersionGoneError as error:
        return error


def _start(unit: ReadUnit, after: Sequence | None) -> Sequence:
    """Return the sequence to read after: without one, that before the oldest event kept."""
    if after is not None:
        return after
    oldest = unit.oldest_event()
    return Sequence(0) if oldest is None else Sequence(oldest.sequence - 1)


def _gone(oldest: Sequence) -> VersionGoneError:
    return VersionGoneError(
        f"Events before sequence {oldest} are past their retention and deleted.",
        remedy=f"Ask for events after {oldest - 1}, and read from the tables what changed before.",
    )


def _event(unit: ReadUnit, row: EventRow, names: dict[TableId, str | None]) -> Event:
    begun = {table_id: str(name) for name, table_id in row.names_assigned}
    ended = {table_id: str(name) for name, table_id in row.names_released}
    for table_id in begun.keys() | ended.keys():
        names[table_id] = begun.get(table_id)

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
            NameChange(table_id=table_id, before=ended.get(table_id), after=begun.get(table_id))
            for table_id in dict.fromkeys([*ended, *begun])
        ),
    )


def _refuse_if_wrong(after: Sequence | None, limit: int) -> None:
    if (after is not None and after < 0) or not 1 <= limit <= LARGEST_PAGE:
        raise InvalidArgumentError(
            f"Events after {after}, at most {limit}.",
            remedy=f"Ask for 1 to {LARGEST_PAGE} events after a sequence from 0 on.",
        )


def _not_yet(after: Sequence, latest: Sequence) -> InTheFutureError:
    return InTheFutureError(
        f"The catalog is at sequence {latest} and has not come to {after} yet.",
        remedy="Ask after the last sequence you have seen. If this was it, the catalog is an older "
        "copy: begin again at what it says.",
    )


def _answer(waiter: _Waiter, found: Events | Exception) -> None:
    if not waiter.answer.set_running_or_notify_cancel():
        return  # nobody waits for it any more
    if isinstance(found, Exception):
        waiter.answer.set_exception(found)
    else:
        waiter.answer.set_result(found)
