"""Time travel: find the last version committed at or before a time. Spec: CM-38.

In-commit timestamps are used from the version that enabled them, file times before it.
"""

from bisect import bisect_left
from collections.abc import Callable

from headgate.errors import VersionGoneError
from headgate.protocol.actions import Metadata, Version, decode
from headgate.protocol.log import timestamps
from headgate.protocol.paths import PublishedCommit
from headgate.table.log_files import DeltaLog


def version_at(
    label: str,
    log: DeltaLog,
    timestamp_of: Callable[[Version], int | None],
    at_ms: int,
    latest: Version,
    metadata: Metadata,
) -> Version:
    """Find the last version at a time; `timestamp_of` returns None for one that is gone."""
    enabled = timestamps.enablement(metadata.configuration)
    if metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
        return _version_by_file_time(log, at_ms, latest)
    if enabled is not None and at_ms < enabled.timestamp_ms:
        return _version_by_file_time(log, at_ms, Version(enabled.version - 1))
    # Timestamps rise strictly, and only the oldest can be missing.
    first = Version(0) if enabled is None else enabled.version

    def is_after(version: int) -> bool:
        timestamp_ms = timestamp_of(Version(version))
        return timestamp_ms is not None and timestamp_ms > at_ms

    found = Version(bisect_left(range(first, latest + 1), True, key=is_after) + first - 1)
    if found < first or timestamp_of(found) is None:
        raise VersionGoneError(
            f"{label} no longer has a version as old as {timestamps.moment(at_ms)}.",
            remedy="Ask for a later time.",
        )
    return found


def _version_by_file_time(log: DeltaLog, at_ms: int, last: Version) -> Version:
    times = timestamps.rising(
        sorted(
            (item.file.version, item.modified_ms)
            for item in log.list()
            if isinstance(item.file, PublishedCommit) and item.file.version <= last
        )
    )
    return timestamps.version_at(times, at_ms)


def in_commit_timestamp(content: bytes) -> int | None:
    """Read the in-commit timestamp of a commit, if it has one."""
    # `commitInfo` is the first action where in-commit timestamps are active.
    line = next(iter(decode(content.partition(b"\n")[0])), None)
    return (
        None if line is None or line.commit_info is None else line.commit_info.in_commit_timestamp
    )
