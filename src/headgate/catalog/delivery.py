"""One listener is told: in order, at least once, in a thread of its own.

A lease lets one process tell a listener at a time. What was told is recorded after it was heard,
never before, so a crash between the two repeats events and loses none; a repetition has the
sequence it had. A listener that fails is told again after a pause that grows; one that hangs holds
up itself and nobody else. Spec: EV-01.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from concurrent.futures import CancelledError, Future
from typing import Final

from headgate.api.events import Event, Listener
from headgate.catalog.event_feed import Events, Feed
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore, ListenerRow, WriteUnit
from headgate.clock import Clock
from headgate.errors import HeadgateError, VersionGoneError
from headgate.failpoints import fail_point
from headgate.names import TableName
from headgate.protocol.actions import Sequence

_PAGE: Final = 256
_SKIPPED: Final = 1_000  # events nobody wanted, until that is recorded
_WAIT_S: Final = 60.0  # for the next event, then the same again
_RECORD_EVERY_S: Final = 0.1  # while one event follows the other
_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 60.0
_OTHERS_S: Final = 1.0  # until another process is looked after again
_LONGEST_REASON: Final = 500

_log = logging.getLogger(__name__)


class Choice:
    """Which events a listener wants: all, those of some tables, or one after all of them moved."""

    def __init__(
        self, tables: Collection[TableName] | None = None, *, together: bool = False
    ) -> None:
        self._keys = None if tables is None else frozenset(table.key for table in tables)
        self._together = together
        self._moved: set[tuple[str, str, str]] = set()

    @property
    def is_gathering(self) -> bool:
        """Whether some tables moved and others are waited for: what came meanwhile is not done."""
        return bool(self._moved)

    def wants(self, event: Event) -> bool:
        """Say whether to tell of an event. Spec: EV-02."""
        if self._keys is None:
            return True
        moved = {
            key
            for commit in event.commits
            if commit.name is not None and (key := TableName.parse(commit.name).key) in self._keys
        }
        if not self._together:
            return bool(moved)
        self._moved |= moved
        return self._moved == self._keys

    def begin_again(self) -> None:
        """Forget what has moved."""
        self._moved.clear()


class Teller:
    """Tells one listener, from where it stands."""

    def __init__(
        self,
        name: str,
        listener: Listener,
        choice: Choice,
        *,
        store: CatalogStore,
        ratifier: Ratifier,
        feed: Feed,
        clock: Clock,
        lease_ms: int,
        holder: str,
    ) -> None:
        self.name = name
        self._listener = listener
        self._choice = choice
        self._store = store
        self._ratifier = ratifier
        self._feed = feed
        self._clock = clock
        self._lease = f"listen:{name}"
        self._lease_ms = lease_ms
        self._holder = holder
        self.recorded = Sequence(0)  # as far as this process knows
        self._failures = 0  # in a row
        self._is_holding = False
        self._is_lost = False  # the lease went to another
        self._taken_at = 0.0
        self._leasing = threading.Lock()  # else it might be renewed after it was given up
        self._stopping = threading.Event()
        self._last_until: float | None = None  # while stopping: what is there is told until then
        self._waiting: Future[Events] | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"headgate-listener-{name}", daemon=True
        )

    def start(self) -> None:
        """Tell from now on."""
        self._thread.start()

    def stop(self, last_until: float | None = None) -> None:
        """Tell no more; if a time is given, what is there already is told until then."""
        self._last_until = last_until
        self._stopping.set()
        waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def join(self, seconds: float) -> bool:
        """Wait for the listener to return; say whether it did."""
        if threading.current_thread() is self._thread:  # a listener that closes its session
            return True
        self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def renew(self) -> None:
        """Keep the lease of a listener that takes its time; called again and again."""
        with self._leasing:
            is_due = self._clock.monotonic() - self._taken_at > self._lease_ms / 3000
            if self._is_holding and is_due and not self._stopping.is_set() and not self._take():
                self._is_lost = True

    def _run(self) -> None:
        while True:
            try:
                if not self._follow():
                    return
            except HeadgateError as error:  # of the catalog's store, and not of the listener
                if self._stopping.is_set():
                    return
                _log.warning("listener %s cannot be told: %s", self.name, error)
                self._is_holding = False  # whether or not: it lapses
                self._stopping.wait(_OTHERS_S)

    def _follow(self) -> bool:
        """Tell from where the catalog says it stands; give whether there is a reason to go on."""
        row = self._row()
        if row is None:
            return False
        self.recorded = seen = heard = row.position
        self._choice.begin_again()
        self._is_lost = False
        since = self._clock.monotonic()
        while True:
            try:
                events = self._next(seen)
            except VersionGoneError as error:
                self._fail(error, seen, heard)
                return not self._stopping.is_set()
            for event in events:
                if self._is_over():
                    break
                if self._choice.wants(event):
                    if not self._is_holding and not self._begin():
                        return not self._stopping.is_set()
                    if not self._tell(event, heard):
                        return not self._stopping.is_set()
                    self._choice.begin_again()
                seen = event.sequence
                if not self._choice.is_gathering:
                    heard = seen
                if self._is_holding and self._clock.monotonic() - since > _RECORD_EVERY_S:
                    self._record(heard)
                    since = self._clock.monotonic()
                if self._is_lost:
                    break
            skipped = heard - self.recorded
            is_pause = self._stopping.is_set() or not events
            if self._is_holding or skipped >= _SKIPPED or (skipped and is_pause):
                is_idle = self._is_over() or self._is_lost or not self._feed.read(seen, 1)
                self._record(heard, is_last=is_idle)
                since = self._clock.monotonic()
            if self._stopping.is_set() and (self._is_over() or not events):
                return False
            if self._is_lost:
                return True

    def _next(self, seen: Sequence) -> Events:
        if self._stopping.is_set():
            return () if self._is_over() else self._feed.read(seen, _PAGE)
        self._waiting = waiting = self._feed.soon(seen, _PAGE, _WAIT_S)
        if self._stopping.is_set():  # between the look and the wait
            waiting.cancel()
        try:
            return waiting.result()
        except CancelledError:
            return () if self._is_over() else self._feed.read(seen, _PAGE)
        finally:
            self._waiting = None

    def _is_over(self) -> bool:
        if not self._stopping.is_set():
            return False
        return self._last_until is None or self._clock.monotonic() >= self._last_until

    def _begin(self) -> bool:
        """Take the lease, unless another process has it or has told something meanwhile."""
        with self._leasing:
            self._is_holding = self._take()
        if not self._is_holding:
            self._stopping.wait(_OTHERS_S)
            return False
        row = self._row()
        if row is None or row.position != self.recorded:
            self._record(self.recorded, is_last=True)
            return False
        return True

    def _tell(self, event: Event, heard: Sequence) -> bool:
        """Tell of an event; when that fails give the lease up, pause, and begin again."""
        fail_point("listener.before_tell")
        try:
            self._listener(event)
        except Exception as error:
            self._fail(error, event.sequence, heard)
            return False
        fail_point("listener.after_tell")
        self._failures = 0
        return True

    def _fail(self, error: Exception, sequence: Sequence, heard: Sequence) -> None:
        """Record why the listener gets no further, and pause, longer each time."""
        if self._failures == 0:
            _log.warning("listener %s failed at sequence %d: %s", self.name, sequence, error)
        said = getattr(error, "message", str(error)) or type(error).__name__
        self._record(heard, failing=said[:_LONGEST_REASON], is_last=True)
        pause_s = min(_PAUSE_S * 2 ** min(self._failures, 20), _LONGEST_PAUSE_S)
        self._failures += 1
        self._stopping.wait(pause_s)

    def _record(
        self, heard: Sequence, *, failing: str | None = None, is_last: bool = False
    ) -> None:
        """Remember how far the listener is; with the last record goes the lease."""

        def record(unit: WriteUnit) -> None:
            unit.advance_listener(self.name, heard, failing)
            if is_last:
                unit.release_lease(self._lease, self._holder)

        with self._leasing:
            self._ratifier.submit(self._lease, record).result()
            self._is_holding = self._is_holding and not is_last
        self.recorded = max(self.recorded, heard)
        fail_point("listener.after_record")

    def _take(self) -> bool:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._lease_ms
        self._taken_at = self._clock.monotonic()
        return self._ratifier.submit(
            self._lease,
            lambda unit: unit.acquire_lease(self._lease, self._holder, now_ms, until_ms),
        ).result()

    def _row(self) -> ListenerRow | None:
        with self._store.read() as unit:
            return next((row for row in unit.listeners() if row.name == self.name), None)
