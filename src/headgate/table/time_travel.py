"""Time travel: find the last version committed at or before a time. Spec: CM-38.

In-commit timestamps are used from the version that enabled them, file times before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import VersionGoneError
from headgate.protocol.actions import Metadata, Version, decode
from headgate.protocol.log import timestamps
from headgate.protocol.paths import PublishedCommit
from headgate.table.log_files import DeltaLog


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """Finds versions of one table by time."""

    label: str
    log: DeltaLog
    in_commit_timestamp: Callable[[Version], int | None]  # None: the commit no longer exists

    def version_at(self, at_ms: int, latest: Version, metadata: Metadata) -> Version:
        """Find the last version committed at or before a time."""
        enabled = timestamps.enablement(metadata.configuration)
        if metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
            return self._version_by_file_time(at_ms, latest)
        if enabled is None:
            return self._version_by_commit_time(at_ms, Version(0), latest)
        if at_ms < enabled.timestamp_ms:
            return self._version_by_file_time(at_ms, Version(enabled.version - 1))
        return self._version_by_commit_time(at_ms, enabled.version, latest)

    def _version_by_commit_time(self, at_ms: int, first: Version, last: Version) -> Version:
        """Use binary search: timestamps rise strictly, and only the oldest can be missing."""

        def is_after(version: int) -> bool:
            timestamp_ms = self.in_commit_timestamp(Version(version))
            return timestamp_ms is not None and timestamp_ms > at_ms

        found = Version(bisect_left(range(first, last + 1), True, key=is_after) + first - 1)
        if found < first or self.in_commit_timestamp(found) is None:
            raise VersionGoneError(
                f"{self.label} no longer has a version as old as {timestamps.moment(at_ms)}.",
                remedy="Ask for a later time.",
            )
        return found

    def _version_by_file_time(self, at_ms: int, last: Version) -> Version:
        times = timestamps.rising(
            sorted(
                (item.file.version, item.modified_ms)
                for item in self.log.list()
                if isinstance(item.file, PublishedCommit) and item.file.version <= last
            )
        )
        return timestamps.version_at(times, at_ms, clock_ms=at_ms)


def in_commit_timestamp(content: bytes) -> int | None:
    """Read the in-commit timestamp of a commit, if it has one."""
    # `commitInfo` is the first action where in-commit timestamps are active.
    line = next(iter(decode(content.partition(b"\n")[0])), None)
    return (
        None if line is None or line.commit_info is None else line.commit_info.in_commit_timestamp
    )
