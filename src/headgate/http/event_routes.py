"""Events over HTTP: the feed by long poll, listeners, and how the catalog stands.

Whoever waits for an event holds no thread: the answer is a future of the catalog's feed.
"""

from __future__ import annotations

from concurrent.futures import Future

from headgate.api.bodies import EventPage, ListenerList, NewListener
from headgate.api.events import Event
from headgate.api.status import ListenerEntry, Status
from headgate.catalog.event_feed import MAX_PAGE
from headgate.http.async_answers import Coming
from headgate.http.metrics import Gauge
from headgate.http.operations import Call, Operation, Parameter, Pool
from headgate.settings import Settings


def operations(settings: Settings) -> list[Operation]:
    """List what can be asked of events, listeners and the catalog itself."""
    longest_s = settings.longest_wait_ms // 1000

    def soon(call: Call, coming: Coming) -> bool:
        wait_s = min(call.number("wait") or 0, longest_s)
        if not wait_s:
            return False
        events = call.catalog.events_soon(call.sequence("after"), _limit(call), wait_s)
        events.add_done_callback(lambda done: _hand_on(done, coming))
        return True

    return [
        Operation(
            "GET",
            "/v1/events",
            "events",
            "Return events after a sequence in order, and wait for the next one on request.",
            lambda call: EventPage(
                events=call.catalog.events(call.sequence("after"), _limit(call))
            ),
            answer=EventPage,
            query=(
                Parameter(
                    "after", "The last sequence seen; else the oldest event kept is the first."
                ),
                Parameter("wait", f"Seconds to wait while there is nothing, up to {longest_s}."),
                Parameter("limit", f"At most so many; {MAX_PAGE} if not said."),
            ),
            soon=soon,
            problems=("in-the-future", "version-gone"),
        ),
        Operation(
            "GET",
            "/v1/listeners",
            "listeners",
            "List listeners and their positions.",
            lambda call: ListenerList(listeners=call.catalog.listeners()),
            answer=ListenerList,
        ),
        Operation(
            "PUT",
            "/v1/listeners/{name}",
            "put_listener",
            "Register a URL that receives every event, in order and at least once.",
            lambda call: call.catalog.put_listener(
                call.path["name"], call.body.url, call.body.after, key=call.key
            ),
            body=NewListener,
            answer=ListenerEntry,
            pool=Pool.CHANGES,
            problems=("invalid-name", "in-the-future", "version-gone"),
        ),
        Operation(
            "DELETE",
            "/v1/listeners/{name}",
            "delete_listener",
            "Delete a listener and its position.",
            lambda call: call.catalog.delete_listener(call.path["name"], key=call.key),
            pool=Pool.CHANGES,
        ),
        Operation(
            "GET",
            "/v1/status",
            "status",
            "Return the state of the catalog.",
            lambda call: call.catalog.status(),
            answer=Status,
        ),
    ]


def gauges(status: Status) -> dict[str, Gauge]:
    """Say a status in numbers, for whoever keeps an eye on them."""
    stopped = sum(trouble.is_stopped for trouble in status.troubles)
    failing = sum(listener.failing is not None for listener in status.listeners)
    return {
        "sequence": Gauge("The last sequence.", status.sequence),
        "tables_active": Gauge("Tables that can be used.", status.tables.get("active", 0)),
        "tables_dropped": Gauge("Tables that can be undropped.", status.tables.get("dropped", 0)),
        "unpublished_commits": Gauge("Ratified and not yet published.", status.unpublished),
        "publisher_lag_seconds": Gauge(
            "How long the oldest unpublished commit has been waiting.",
            status.publisher_lag_ms / 1000,
        ),
        "publishing_stopped_tables": Gauge(
            "Tables whose publishing stopped until mended.", stopped
        ),
        "publishing_failing_tables": Gauge(
            "Tables whose publishing fails and is tried again.",
            len(status.troubles) - stopped,
            is_own=True,
        ),
        "listeners": Gauge("Registered listeners.", len(status.listeners)),
        "listeners_failing": Gauge("Listeners that could not be told at the last try.", failing),
        "listeners_behind_events": Gauge(
            "Events that the listener farthest behind is still to be told.",
            max((listener.behind for listener in status.listeners), default=0),
        ),
    }


def _limit(call: Call) -> int:
    limit = call.number("limit")
    return MAX_PAGE if limit is None else min(limit, MAX_PAGE)


def _hand_on(done: Future[tuple[Event, ...]], coming: Coming) -> None:
    error = done.exception()
    if error is not None:
        coming.set_exception(error)
    else:
        coming.set_result(EventPage(events=done.result()))
    coming.call()
