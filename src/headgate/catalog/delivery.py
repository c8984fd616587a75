"""Delivery of events to one listener: in order, at least once, in a thread of its own.

A lease lets one process at a time deliver to a listener. The position is recorded after the
delivery, never before, so a crash between the two repeats events and loses none; a repeated event
has the same sequence. Failed deliveries are retried after growing pauses. A listener that hangs
does not hold up others. Spec: EV-01.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from concurrent.futures import CancelledError, Future
from typing import Final

from headgate.api.events import Event, Listener
from headgate.catalog.component import Component, Shared
from headgate.catalog.event_feed import EventFeed, EventPage
from headgate.catalog.stores.rows import ListenerRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import HeadgateError, VersionGoneError
from headgate.failpoints import fail_point
from headgate.names import TableName
from headgate.protocol.actions import Sequence

_PAGE: Final = 256
_RECORD_SKIPPED: Final = 1_000  # record the position after this many events were filtered out
_WAIT_S: Final = 60.0  # for the next event, repeatedly
_RECORD_EVERY_S: Final = 0.1  # while events arrive without a pause
_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 60.0
_RETRY_LEASE_S: Final = 1.0  # while another process has the lease
_MAX_REASON: Final = 500

_log = logging.getLogger(__name__)


class EventFilter:
    """Selects a listener's events: all, those of some tables, or one after all of them changed.

    With `together`, an event is selected once each of the tables had a commit since the last one.
    """

    def __init__(
        self, tables: Collection[TableName] | None = None, *, together: bool = False
    ) -> None:
        self._keys = None if tables is None else frozenset(table.key for table in tables)
        self._together = together
        self._changed: set[tuple[str, str, str]] = set()

    @property
    def is_partial(self) -> bool:
        """Whether some tables changed and others did not yet: the position stays before them."""
        return bool(self._changed)

    def matches(self, event: Event) -> bool:
        """Return True if an event is to be delivered. Spec: EV-02."""
        if self._keys is None:
            return True
        changed = {
            key
            for commit in event.commits
            if commit.name is not None and (key := TableName.parse(commit.name).key) in self._keys
        }
        if not self._together:
            return bool(changed)
        self._changed |= changed
        return self._changed == self._keys

    def reset(self) -> None:
        self._changed.clear()


class Delivery(Component):
    """Delivers events to one listener, from its recorded position."""

    def __init__(
        self,
        shared: Shared,
        feed: EventFeed,
        name: str,
        listener: Listener,
        event_filter: EventFilter,
    ) -> None:
        super().__init__(shared)
        self.name = name
        self._listener = listener
        self._filter = event_filter
        self._feed = feed
        self._lease = f"listen:{name}"
        self.recorded = Sequence(0)  # as far as this process knows
        self._failures = 0  # in a row
        self._holds_lease = False
        self._lease_lost = False  # another process has the lease
        self._renewed_at = 0.0
        self._lease_lock = threading.Lock()  # otherwise it might be renewed after its release
        self._stopping = threading.Event()
        self._deadline: float | None = None  # while stopping: present events are delivered until it
        self._waiting: Future[EventPage] | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"headgate-listener-{name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline: float | None = None) -> None:
        """Stop; with a deadline, deliver the events that exist already until then."""
        self._deadline = deadline
        self._stopping.set()
        waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; return True if it did."""
        if threading.current_thread() is self._thread:  # a listener that closes its session
            return True
        self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def renew(self) -> None:
        """Renew the lease while a listener is slow; called at intervals."""
        with self._lease_lock:
            is_due = self._clock.monotonic() - self._renewed_at > self._settings.lease_ms / 3000
            if self._holds_lease and is_due and not self._stopping.is_set() and not self._acquire():
                self._lease_lost = True

    def _run(self) -> None:
        while True:
            try:
                if not self._deliver_from_position():
                    return
            except HeadgateError as error:  # from the catalog's store, not from the listener
                if self._stopping.is_set():
                    return
                _log.warning("cannot deliver events to listener %s: %s", self.name, error)
                self._holds_lease = False  # even if it is held, it expires
                self._stopping.wait(_RETRY_LEASE_S)

    def _deliver_from_position(self) -> bool:
        """Deliver events after the recorded position; return False when there is nothing left."""
        row = self._row()
        if row is None:
            return False
        self.recorded = seen = delivered = row.position
        self._filter.reset()
        self._lease_lost = False
        since = self._clock.monotonic()
        while True:
            try:
                events = self._next(seen)
            except VersionGoneError as error:
                self._fail(error, seen, delivered)
                return not self._stopping.is_set()
            for event in events:
                if self._is_past_deadline():
                    break
                if self._filter.matches(event):
                    if not self._holds_lease and not self._acquire_or_wait():
                        return not self._stopping.is_set()
                    if not self._deliver(event, delivered):
                        return not self._stopping.is_set()
                    self._filter.reset()
                seen = event.sequence
                if not self._filter.is_partial:
                    delivered = seen
                if self._holds_lease and self._clock.monotonic() - since > _RECORD_EVERY_S:
                    self._record(delivered)
                    since = self._clock.monotonic()
                if self._lease_lost:
                    break
            skipped = delivered - self.recorded
            is_pause = self._stopping.is_set() or not events
            if self._holds_lease or skipped >= _RECORD_SKIPPED or (skipped and is_pause):
                is_idle = (
                    self._is_past_deadline() or self._lease_lost or not self._feed.read(seen, 1)
                )
                self._record(delivered, release=is_idle)
                since = self._clock.monotonic()
            if self._stopping.is_set() and (self._is_past_deadline() or not events):
                return False
            if self._lease_lost:
                return True

    def _next(self, seen: Sequence) -> EventPage:
        if not self._stopping.is_set():
            self._waiting = waiting = self._feed.wait_for_page(seen, _PAGE, _WAIT_S)
            if self._stopping.is_set():  # stopped since the check above
                waiting.cancel()
            try:
                return waiting.result()
            except CancelledError:
                pass
            finally:
                self._waiting = None
        return () if self._is_past_deadline() else self._feed.read(seen, _PAGE)

    def _is_past_deadline(self) -> bool:
        if not self._stopping.is_set():
            return False
        return self._deadline is None or self._clock.monotonic() >= self._deadline

    def _acquire_or_wait(self) -> bool:
        """Acquire the lease, unless another process has it or has delivered events meanwhile."""
        with self._lease_lock:
            self._holds_lease = self._acquire()
        if not self._holds_lease:
            self._stopping.wait(_RETRY_LEASE_S)
            return False
        row = self._row()
        if row is None or row.position != self.recorded:
            self._record(self.recorded, release=True)
            return False
        return True

    def _deliver(self, event: Event, delivered: Sequence) -> bool:
        """Call the listener with an event; if it fails, release the lease, pause, return False."""
        fail_point("listener.before_tell")
        try:
            self._listener(event)
        except Exception as error:
            self._fail(error, event.sequence, delivered)
            return False
        fail_point("listener.after_tell")
        self._failures = 0
        return True

    def _fail(self, error: Exception, sequence: Sequence, delivered: Sequence) -> None:
        """Record why a delivery failed, and pause, longer after each failure."""
        if self._failures == 0:
            _log.warning("listener %s failed at sequence %d: %s", self.name, sequence, error)
        reason = getattr(error, "message", str(error)) or type(error).__name__
        self._record(delivered, failing=reason[:_MAX_REASON], release=True)
        pause_s = min(_PAUSE_S * 2 ** min(self._failures, 20), _MAX_PAUSE_S)
        self._failures += 1
        self._stopping.wait(pause_s)

    def _record(
        self, delivered: Sequence, *, failing: str | None = None, release: bool = False
    ) -> None:
        """Record the listener's position; release the lease if asked."""

        def record(unit: WriteUnit) -> None:
            unit.advance_listener(self.name, delivered, failing)
            if release:
                unit.release_lease(self._lease, self._holder)

        with self._lease_lock:
            self._change(self._lease, record)
            self._holds_lease = self._holds_lease and not release
        self.recorded = max(self.recorded, delivered)
        fail_point("listener.after_record")

    def _acquire(self) -> bool:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._settings.lease_ms
        self._renewed_at = self._clock.monotonic()
        return self._change(
            self._lease,
            lambda unit: unit.acquire_lease(self._lease, self._holder, now_ms, until_ms),
        )

    def _row(self) -> ListenerRow | None:
        with self._store.read() as unit:
            return next((row for row in unit.listeners() if row.name == self.name), None)
