"""The files in a table's log folder: what is there, and what does not belong there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.errors import InvalidArgumentError
from headgate.protocol import paths
from headgate.protocol.actions import Version
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.table.log_files import DeltaLog

REPAIR: Final = "Run `headgate fsck --repair`."
RESTORE: Final = "Restore the file from a backup of the storage."
RESTORE_CATALOG: Final = "Restore the catalog from a backup."
MOVE_OUT: Final = "Move the file out of the log: it was never ratified."
_LISTED: Final = 20  # unexpected files that are listed one by one
_UNREADABLE: Final = ""  # in place of a hash


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log's folder."""

    published: dict[Version, str]  # version -> sha256; empty if the file cannot be read
    staged: dict[str, int]  # name -> size
    others: list[paths.LogFile]
    strays: Sequence[str]

    @property
    def newest_checkpoint(self) -> Version:
        """The version up to which commits may be deleted: a checkpoint has their content."""
        versions = (file.version for file in self.others if isinstance(file, paths.Checkpoint))
        return max(versions, default=Version(-1))


def list_log(log: DeltaLog) -> LogListing:
    """List a log's folder, and hash the published commits in it."""
    published: dict[Version, str] = {}
    others: list[paths.LogFile] = []
    for item in log.list():
        if isinstance(item.file, PublishedCommit):
            digest = published_hash(log, item.file.version)
            if digest is not None:
                published[item.file.version] = digest
        else:
            others.append(item.file)
    staged = {item.path.removeprefix(f"{STAGED}/"): item.size for item in log.store.list(STAGED)}
    return LogListing(published, staged, others, log.strays())


def published_hash(log: DeltaLog, version: Version) -> str | None:
    """Return the hash of a published commit; None if nothing has its name."""
    try:
        content = log.read_published(version)
    except InvalidArgumentError:  # not a file, such as a link
        return _UNREADABLE
    return None if content is None else hashlib.sha256(content).hexdigest()


def read_or_none(log: DeltaLog, version: Version) -> bytes | None:
    """Return a published commit's content; None if no file has its name."""
    try:
        return log.read_published(version)
    except InvalidArgumentError:
        return None


def unpublished_versions(
    name: str, others: Iterable[paths.LogFile], *, published: Version, head: Version
) -> Iterator[Finding]:
    """Report checkpoints and compactions of versions that are not published. Spec: S14."""
    for file in others:
        last: Version | None
        match file:
            case paths.ClassicCheckpoint() | paths.MultipartCheckpoint() | paths.UuidCheckpoint():
                last = file.version
            case paths.Compaction():
                last = file.last
            case _:
                last = None
        if last is not None and last > published:
            severity = Severity.WARNING if last > head else Severity.ERROR
            says = "is of a version that is not published"
            remedy = "Move the file out of the log, or publish the version."
            yield Finding("S14", severity, name, says, remedy, last, file.path)


def unexpected_files(name: str, file_paths: Iterable[str]) -> Iterator[Finding]:
    """Report files that are not part of a log, the first of them by path; readers ignore them."""
    unexpected = sorted(file_paths)
    for path in unexpected[:_LISTED]:
        says = "is not a file of a log; readers ignore it"
        yield Finding("stray", Severity.NOTE, name, says, path=path)
    if len(unexpected) > _LISTED:
        says = f"has {len(unexpected)} files in its log's folder that are not part of a log"
        yield Finding("stray", Severity.NOTE, name, says)
