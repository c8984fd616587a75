"""Counts and times of requests, in the text format that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.api.status import Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


class Gauge(NamedTuple):
    """A number that goes up and down; of the catalog, or of this process alone."""

    says: str
    value: float
    is_own: bool = False


class Metrics:
    """What a server counts. Only the event loop's thread touches it.

    Each worker counts for itself, and a request for the metrics reaches one of them: so values of
    one worker carry a label with its name.
    """

    def __init__(self, worker: str) -> None:
        self._worker = f'worker="{worker}"'
        self._requests: dict[tuple[str, int], int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self.under_way = 0

    def record(self, operation: str, status: int, seconds: float) -> None:
        key = (operation, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        buckets = self._buckets.get(operation)
        if buckets is None:
            buckets = self._buckets[operation] = [0] * (len(_BOUNDS) + 1)
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds

    def text(self, gauges: Mapping[str, Gauge]) -> str:
        """Return all metrics, with the given gauges."""
        own = self._worker
        lines = [
            "# HELP headgate_requests_total Requests answered.",
            "# TYPE headgate_requests_total counter",
        ]
        for (operation, status), count in sorted(self._requests.items()):
            labels = f'{own},operation="{operation}",status="{status}"'
            lines.append(f"headgate_requests_total{{{labels}}} {count}")
        lines += [
            "# HELP headgate_request_seconds Time from the request to its answer.",
            "# TYPE headgate_request_seconds histogram",
        ]
        for operation, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                total += count
                labels = f'{own},operation="{operation}",le="{bound}"'
                lines.append(f"headgate_request_seconds_bucket{{{labels}}} {total}")
            labels = f'{own},operation="{operation}"'
            lines.append(f"headgate_request_seconds_sum{{{labels}}} {self._seconds[operation]:.6f}")
            lines.append(f"headgate_request_seconds_count{{{labels}}} {total}")
        under_way = Gauge("Requests not yet answered.", self.under_way, is_own=True)
        for name, gauge in {"requests_under_way": under_way, **gauges}.items():
            lines += [
                f"# HELP headgate_{name} {gauge.says}",
                f"# TYPE headgate_{name} gauge",
                f"headgate_{name}{f'{{{own}}}' if gauge.is_own else ''} {gauge.value:.15g}",
            ]
        return "\n".join(lines) + "\n"


def state_gauges(status: Status) -> dict[str, Gauge]:
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
