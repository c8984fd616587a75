"""The native API: events, listeners and the state of the catalog.

A request that waits for an event occupies no thread: its answer is a future of the event feed.
"""

from __future__ import annotations

from concurrent.futures import Future

from headgate.api.bodies import EventPage, ListenerList, NewListener
from headgate.api.events import Event
from headgate.api.status import ListenerEntry, Status
from headgate.catalog.event_feed import MAX_PAGE
from headgate.http.async_answers import PendingAnswer
from headgate.http.metrics import Gauge
from headgate.http.operations import Call, Finish, Operations, Parameter

operations = Operations("/v1")


def _wait(call: Call, pending: PendingAnswer) -> Finish | None:
    wait_s = min(call.number("wait") or 0, call.settings.longest_wait_ms // 1000)
    if not wait_s:
        return None
    events = call.catalog.events_soon(call.sequence("after"), _limit(call), wait_s)

    def hand_over(done: Future[tuple[Event, ...]]) -> None:
        error = done.exception()
        if error is not None:
            pending.set_exception(error)
        else:
            pending.set_result(done.result())
        pending.wake()

    events.add_done_callback(hand_over)
    return lambda found: EventPage(events=found)


@operations.add(
    "GET",
    "/events",
    query=(
        Parameter("after", "The last sequence received; by default, start at the oldest event."),
        Parameter("wait", "Seconds to wait for an event, up to the server's `longestWaitS`."),
        Parameter("limit", f"The most events to return; by default {MAX_PAGE}."),
    ),
    enqueue=_wait,
    problems=("in-the-future", "version-gone"),
)
def events(call: Call) -> EventPage:
    """Return events after a sequence in order, and wait for the next one on request."""
    return EventPage(events=call.catalog.events(call.sequence("after"), _limit(call)))


def _limit(call: Call) -> int:
    limit = call.number("limit")
    return MAX_PAGE if limit is None else min(limit, MAX_PAGE)


@operations.add("GET", "/listeners")
def listeners(call: Call) -> ListenerList:
    """List listeners and their positions."""
    return ListenerList(listeners=call.catalog.listeners())


@operations.add(
    "PUT", "/listeners/{name}", problems=("invalid-name", "in-the-future", "version-gone")
)
def put_listener(call: Call, body: NewListener) -> ListenerEntry:
    """Register a URL that receives every event, in order and at least once."""
    return call.catalog.put_listener(call.path["name"], body.url, body.after, key=call.key)


@operations.add("DELETE", "/listeners/{name}")
def delete_listener(call: Call) -> None:
    """Delete a listener and its position."""
    call.catalog.delete_listener(call.path["name"], key=call.key)


@operations.add("GET", "/status")
def status(call: Call) -> Status:
    """Return the state of the catalog."""
    return call.catalog.status()


def gauges(status: Status) -> dict[str, Gauge]:
    """Return the metrics of a catalog's state."""
    stopped = sum(trouble.is_stopped for trouble in status.troubles)
    failing = sum(listener.failing is not None for listener in status.listeners)
    return {
        "sequence": Gauge("The last sequence.", status.sequence),
        "tables_active": Gauge("Active tables.", status.tables.get("active", 0)),
        "tables_dropped": Gauge("Tables that can be undropped.", status.tables.get("dropped", 0)),
        "unpublished_commits": Gauge("Ratified and not yet published.", status.unpublished),
        "publisher_lag_seconds": Gauge(
            "How long the oldest unpublished commit has been waiting.",
            status.publisher_lag_ms / 1000,
        ),
        "publishing_stopped_tables": Gauge(
            "Tables whose publishing stopped until they are repaired.", stopped
        ),
        "publishing_failing_tables": Gauge(
            "Tables whose publishing fails and is tried again.",
            len(status.troubles) - stopped,
            is_own=True,
        ),
        "listeners": Gauge("Registered listeners.", len(status.listeners)),
        "listeners_failing": Gauge("Listeners whose last delivery failed.", failing),
        "listeners_behind_events": Gauge(
            "Events not yet delivered to the slowest listener.",
            max((listener.behind for listener in status.listeners), default=0),
        ),
    }
