"""In-commit timestamps: choose the next one, validate staged ones, and find versions by time.

All times are milliseconds in UTC. Nothing here reads a clock: the present is the argument `now_ms`.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.errors import MalformedError, VersionGoneError
from headgate.protocol.actions import Version

DRIFT_MS = 1_000  # how far a table's timestamps may move the catalog's clock ahead of the present
MAX_AHEAD_MS = 300_000  # how far a staged commit's own timestamp may be ahead of the present
ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def next_timestamp(now_ms: int, clock_ms: int, newest: Iterable[int] = ()) -> int:
    """Choose a transaction's timestamp, after the newest of every table it writes. Spec: CM-36."""
    return max(now_ms, clock_ms, *(1 + timestamp_ms for timestamp_ms in newest))


def next_clock(clock_ms: int, timestamp_ms: int, now_ms: int, drift_ms: int = DRIFT_MS) -> int:
    """Move the catalog's clock with a ratification: never back, never far ahead of the present."""
    return max(clock_ms, min(timestamp_ms, now_ms + drift_ms))


@dataclass(frozen=True, slots=True)
class Enablement:
    """The version at which an existing table got in-commit timestamps."""

    version: Version
    timestamp_ms: int


def enablement(configuration: Mapping[str, str]) -> Enablement | None:
    """Read the enablement from a table's properties; None if every commit has a timestamp."""
    version, timestamp = (configuration.get(k) for k in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP))
    if version is None or timestamp is None:
        return None
    try:
        return Enablement(Version(int(version)), int(timestamp))
    except ValueError:
        raise MalformedError(
            f"{ENABLEMENT_VERSION} is {version!r} and {ENABLEMENT_TIMESTAMP} is {timestamp!r}:"
            " both must be integers."
        ) from None


def moment(timestamp_ms: int) -> str:
    """Format a time as ISO 8601 in UTC."""
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # beyond the years that Python supports
        return f"{timestamp_ms} ms since 1970"
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def rising(timestamps: Iterable[tuple[Version, int]]) -> list[tuple[Version, int]]:
    """Raise file times until they increase strictly: copies and restores disturb them."""
    risen: list[tuple[Version, int]] = []
    for version, timestamp_ms in timestamps:
        least = risen[-1][1] + 1 if risen else timestamp_ms
        risen.append((version, max(timestamp_ms, least)))
    return risen


def version_at(timestamps: Sequence[tuple[Version, int]], timestamp_ms: int) -> Version:
    """Find the version a table had at a time, among existing versions, ascending. Spec: CM-38.

    A time between two commits belongs to the earlier one.
    """
    if not timestamps:
        raise VersionGoneError("No version exists any more.")
    position = bisect.bisect_right(timestamps, timestamp_ms, key=lambda entry: entry[1])
    if position == 0:
        first, first_ms = timestamps[0]
        raise VersionGoneError(
            f"{moment(timestamp_ms)} is before {moment(first_ms)}, the time of version {first}, the"
            " first that still exists."
        )
    return timestamps[position - 1][0]
