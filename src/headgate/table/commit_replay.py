"""Decode the content of log entries and apply it to a table's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.api.messages import RatifiedCommit
from headgate.errors import MalformedError
from headgate.protocol.actions import Version, decode
from headgate.protocol.log import replay
from headgate.protocol.log.replay import TableState
from headgate.protocol.paths import Compaction, PublishedCommit
from headgate.table.time_travel import in_commit_timestamp

Entry = RatifiedCommit | PublishedCommit | Compaction

RESTORE: Final = "Restore the files of the log from a backup, or read another version."
_JOINED_BYTES: Final = 32 << 20  # decoded together, which bounds the objects alive at one time


class UnusableEntryError(Exception):
    """A log file is missing, or does not hold what its name promises."""

    def __init__(self, entry: PublishedCommit | Compaction, why: str) -> None:
        self.path = entry.path
        self.why = why
        super().__init__(entry.path)


def apply_entries(
    label: str, state: TableState, entries: Sequence[Entry], contents: Sequence[bytes]
) -> TableState:
    """Apply log entries to a state, decoding many commits together.

    Raises `UnusableEntryError` for a compaction that cannot be used, and `MalformedError` for a
    commit that cannot be decoded.
    """
    at = 0
    while at < len(entries):
        stop = _batch_end(entries, contents, at)
        try:
            actions = decode(b"\n".join(contents[at:stop]))
        except MalformedError:
            _raise_for_entry(label, entries[at:stop], contents[at:stop])
            raise
        first = entries[at]
        if isinstance(first, Compaction) and (why := replay.contradiction(actions)) is not None:
            raise UnusableEntryError(first, f"it {why}.")
        before = state.metadata
        state = replay.apply(state, _last(entries[stop - 1]), actions)
        if state.metadata is not before:
            file = _file_with_metadata(entries[at:stop], contents[at:stop])
            state = replace(state, metadata_file=file)
        at = stop
    if not entries:
        return state
    # The timestamp of the last commit: without one, the state must not get an earlier commit's.
    own = None if isinstance(entries[-1], Compaction) else in_commit_timestamp(contents[-1])
    return replace(state, timestamp_ms=own)


def _batch_end(entries: Sequence[Entry], contents: Sequence[bytes], at: int) -> int:
    """Return where the entries that are decoded together end; a compaction is decoded alone."""
    stop, size = at + 1, len(contents[at])
    if isinstance(entries[at], Compaction):
        return stop
    while (
        stop < len(entries) and size < _JOINED_BYTES and not isinstance(entries[stop], Compaction)
    ):
        size += len(contents[stop])
        stop += 1
    return stop


def _file_with_metadata(entries: Sequence[Entry], contents: Sequence[bytes]) -> str:
    """Return the path of the entry that has the newest metadata."""
    newest_first = zip(reversed(entries), reversed(contents), strict=True)
    entry = next((entry for entry, content in newest_first if b"metaData" in content), entries[-1])
    return _path(entry)


def _path(entry: Entry) -> str:
    return PublishedCommit(entry.version).path if isinstance(entry, RatifiedCommit) else entry.path


def _raise_for_entry(label: str, entries: Sequence[Entry], contents: Sequence[bytes]) -> None:
    """Raise an error that names the entry that cannot be decoded."""
    for entry, content in zip(entries, contents, strict=True):
        try:
            decode(content)
        except MalformedError as error:
            if isinstance(entry, Compaction):  # the commits themselves may exist
                raise UnusableEntryError(entry, error.message) from error
            raise MalformedError(
                f"{label} version {entry.version}: {_path(entry)} cannot be read: {error.message}",
                remedy=RESTORE,
            ) from error


def _last(entry: Entry) -> Version:
    return entry.last if isinstance(entry, Compaction) else entry.version
