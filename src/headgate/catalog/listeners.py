"""Listeners: registered receivers of events, each with a position in the feed.

A listener is a row (name, kind, target, position) and, in one process at a time, a thread that
delivers events. Callables are called by the process that registered them; of other kinds, a
process serves those that it has a factory for. Spec: EV-01, EV-02.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from headgate.api.events import Listener
from headgate.api.status import ListenerEntry
from headgate.catalog.component import Component, Shared
from headgate.catalog.delivery import Delivery, EventFilter
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.stores.rows import ListenerRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.catalog.webhook_addresses import WebhookAddresses
from headgate.errors import (
    AlreadyExistsError,
    HeadgateError,
    InTheFutureError,
    InvalidArgumentError,
    NotFoundError,
    VersionGoneError,
)
from headgate.names import TableName, plain_name
from headgate.protocol.actions import Sequence
from headgate.storage import locations

CALLABLE: Final = "callable"
WEBHOOK: Final = "webhook"
_POLL_S: Final = 1.0
_MAX_TARGET: Final = 2_000
_GRACE_S: Final = 1.0  # for a call of a listener that is under way

_log = logging.getLogger(__name__)


class ListenerService(Component):
    """Registers listeners, and runs a delivery for each that this process serves."""

    def __init__(self, shared: Shared, feed: EventFeed) -> None:
        super().__init__(shared)
        self._feed = feed
        self._addresses = WebhookAddresses(self._settings.listener_networks)
        self._holders = (f"{self._holder}:{number}" for number in itertools.count(1))
        self._factories: dict[str, Callable[[str], Listener]] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._targets: dict[str, str] = {}  # of deliveries whose listener a factory created
        self._lock = threading.RLock()
        self._wakeup = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def entries(self) -> tuple[ListenerEntry, ...]:
        with self._store.read() as unit:
            latest = unit.clock().sequence
            return tuple(entry(row, latest) for row in unit.listeners())

    def listen(
        self,
        name: str,
        listener: Listener,
        *,
        tables: Collection[TableName] | None = None,
        together: bool = False,
        after: Sequence | None = None,
    ) -> None:
        name = plain_name(name)
        if tables is not None and not tables:
            raise InvalidArgumentError(f"The list of tables of listener {name} is empty.")
        if together and tables is None:
            raise InvalidArgumentError(
                f"The listener {name} has `together` without tables.", remedy="Pass `tables`."
            )
        function = getattr(listener, "__qualname__", type(listener).__qualname__)
        target = f"{getattr(listener, '__module__', '')}.{function}"
        with self._lock:
            if name in self._deliveries and self._deliveries[name].is_alive:
                raise AlreadyExistsError(
                    f"The listener {name} is already active in this process.",
                    remedy="Choose another name.",
                )
            self._put(name, CALLABLE, target[:_MAX_TARGET], after, keeps_position=True)
            self._start(name, listener, EventFilter(tables, together=together))
            self._watch()

    def deliver(self, kind: str, make: Callable[[str], Listener]) -> None:
        """Serve all listeners of a kind; `make` creates one from its target."""
        with self._lock:
            self._factories[kind] = make
            self._watch()

    def put(
        self,
        name: str,
        target: str,
        after: Sequence | None = None,
        key: RequestKey | None = None,
    ) -> ListenerEntry:
        """Register a webhook; an existing one gets the new target and keeps its position."""
        self._addresses.check_host(_host_of(target))
        put = self._put(plain_name(name), WEBHOOK, target, after, key)
        self._wakeup.set()
        return put

    def delete(self, name: str, key: RequestKey | None = None) -> None:
        """Remove a listener, and stop its delivery in this process."""

        def delete(unit: WriteUnit) -> None:
            if _find(unit.listeners(), name) is None:
                raise NotFoundError(
                    f"There is no listener {name}.", remedy="See `headgate listener list`."
                )
            unit.delete_listener(name)

        self._change(f"listener {name}", delete, key)
        with self._lock:
            delivery = self._deliveries.pop(name, None)
            self._targets.pop(name, None)
        if delivery is not None:
            delivery.stop()

    def close(self) -> None:
        """Deliver the present events for a limited time, then stop, even if a listener hangs."""
        if os.getpid() != self._process:  # threads do not cross a fork
            return
        with self._lock:
            self._is_closed = True
            deliveries = list(self._deliveries.values())
        deadline = self._clock.monotonic() + self._settings.publish_on_close_ms / 1000
        for delivery in deliveries:
            delivery.stop(deadline=deadline)
        for delivery in deliveries:
            if not delivery.join(deadline + _GRACE_S - self._clock.monotonic()):
                _log.warning("listener %s does not return: closing without it", delivery.name)
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join()

    def _put(
        self,
        name: str,
        kind: str,
        target: str,
        after: Sequence | None,
        key: RequestKey | None = None,
        *,
        keeps_position: bool = False,
    ) -> ListenerEntry:
        if after is not None and after < 0:
            raise InvalidArgumentError(
                f"The sequence {after} is negative.",
                remedy="Pass the last sequence received, or 0.",
            )
        now_ms = self._clock.now_ms()

        def put(unit: WriteUnit) -> ListenerEntry:
            latest = unit.clock().sequence
            known = _find(unit.listeners(), name)
            if after is not None and after > latest:
                raise InTheFutureError(
                    f"The catalog is at sequence {latest} and has not reached {after} yet."
                )
            if known is not None and known.kind != kind:
                raise AlreadyExistsError(
                    f"There is a listener {name} already, a {known.kind}.",
                    remedy="Choose another name, or remove that one.",
                )
            if known is None:
                row = ListenerRow(name, kind, target, latest if after is None else after, now_ms)
            elif after is None or keeps_position:
                row = known._replace(target=target)
            else:
                row = known._replace(target=target, position=after, failing=None)
            oldest = unit.oldest_event()
            if oldest is not None and row.position < oldest.sequence - 1:
                raise VersionGoneError(
                    f"Listener {name} would begin after sequence {row.position}: events before "
                    f"sequence {oldest.sequence} are past their retention and deleted.",
                    remedy=f"Begin after {oldest.sequence - 1}. A callable that is registered "
                    "already keeps its position until `headgate listener remove`.",
                )
            if row != known:
                unit.put_listener(row)
            return entry(row, latest)

        return self._change(f"listener {name}", put, key)

    def _start(self, name: str, listener: Listener, event_filter: EventFilter) -> None:
        shared = replace(self._shared, holder=next(self._holders))
        delivery = Delivery(shared, self._feed, name, listener, event_filter)
        self._deliveries[name] = delivery
        delivery.start()

    def _watch(self) -> None:
        self._wakeup.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="headgate-listeners", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        """Renew leases, and follow changes of the registered listeners, until closed."""
        every_s = min(_POLL_S, self._settings.lease_ms / 3000)
        while True:
            self._wakeup.wait(every_s)
            self._wakeup.clear()
            if self._is_closed:
                return
            try:
                for delivery in list(self._deliveries.values()):
                    delivery.renew()
                if self._factories:
                    self._update_deliveries()
            except HeadgateError as error:
                _log.warning("updating listeners failed: %s", error)
            except Exception:  # the thread must survive, or leases expire
                _log.exception("updating listeners failed")

    def _update_deliveries(self) -> None:
        with self._store.read() as unit:
            rows = {row.name: row for row in unit.listeners() if row.kind in self._factories}
        with self._lock:
            if self._is_closed:
                return
            for name, target in list(self._targets.items()):
                row, delivery = rows.get(name), self._deliveries[name]
                is_same = row is not None and row.target == target
                # A smaller position was set by a user, to get these events again.
                if row is None or not is_same or row.position < delivery.recorded:
                    delivery.stop()
                    del self._deliveries[name], self._targets[name]
            for name, row in rows.items():
                if name not in self._deliveries or not self._deliveries[name].is_alive:
                    self._targets[name] = row.target
                    self._start(name, self._factories[row.kind](row.target), EventFilter())


def entry(row: ListenerRow, latest: Sequence) -> ListenerEntry:
    """Describe a listener and its progress."""
    return ListenerEntry(
        name=row.name,
        kind=row.kind,
        target=row.target,
        position=row.position,
        behind=max(0, latest - row.position),
        created_ms=row.created_ms,
        failing=row.failing,
    )


def _host_of(text: str) -> str:
    """Return the host of a URL that events can be posted to; refuse any other text."""
    remedy = "Write http://HOST/… or https://HOST/…, without a user and a password."
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_url = is_url and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:  # unclosed brackets, or a port that is not a number
        is_url = False
    # Targets are listed for every user, so they must not contain a secret.
    if not is_url or len(text) > _MAX_TARGET or not text.isprintable() or " " in text:
        shown = locations.shown(text)[:80]
        raise InvalidArgumentError(f"{shown!r} is not a valid webhook URL.", remedy=remedy)
    return parts.hostname or ""


def _find(rows: list[ListenerRow], name: str) -> ListenerRow | None:
    return next((row for row in rows if row.name == name), None)
