"""The files of a table's log: list, read, stage and publish them.

Names come from `protocol.paths`. `_staged_commits` is never listed: a staged file is read only by
the name that the catalog gives. Spec: CM-03.
"""

import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    LogDivergedError,
    NotFoundError,
)
from headgate.protocol.actions import Version
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    LOG,
    STAGED,
    LogFile,
    PublishedCommit,
    StagedCommit,
    Stray,
    parse,
)
from headgate.storage.local import LocalStore, put_together
from headgate.storage.object_store import ObjectStore

_log = logging.getLogger(__name__)


class UnfinishedError(LogDivergedError):
    """A published file holds a prefix of the ratified bytes: another client may be writing it.

    Not every client puts a file atomically; DuckDB writes it in place.
    """


@dataclass(frozen=True, slots=True)
class Listed:
    """A log file in a listing."""

    file: LogFile
    size: int
    modified_ms: int


class DeltaLog:
    """The log of one table on its store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def list(self, first: Version | None = None) -> list[Listed]:
        """List the files of the log, from a version on, in no particular order."""
        # Every name of a version begins with its digits, so the bare digits sort before them all.
        after = f"{LOG}/{first:020d}" if first else None
        parsed = ((parse(item.path), item) for item in self.store.list(LOG, after, recursive=False))
        return [
            Listed(file, item.size, item.modified_ms)
            for file, item in parsed
            if not isinstance(file, Stray | StagedCommit)
        ]

    def strays(self) -> Sequence[str]:
        """List what is in the log's folder and is not a log file."""
        return [
            item.path
            for item in self.store.list(LOG, recursive=True)
            if isinstance(parse(item.path), Stray) and not item.path.startswith(f"{STAGED}/")
        ]

    def read(self, path: str) -> bytes:
        """Read a log file by its path within the table."""
        return self.store.get(path)

    def read_published(self, version: Version) -> bytes | None:
        """Read `<v>.json`; None if it does not exist."""
        try:
            return self.store.get(PublishedCommit(version).path)
        except NotFoundError:
            return None

    def is_published(self, version: Version) -> bool:
        """Return True if `<v>.json` exists."""
        return self.store.head(PublishedCommit(version).path) is not None

    def stage(self, commit: StagedCommit, content: bytes) -> None:
        """Put a staged commit under a name that was never used before. Spec: CM-02."""
        if not self.store.put_if_absent(commit.path, content):
            raise InvariantError(f"A staged commit {commit.path} exists already.")

    def publish_many(self, commits: Sequence[tuple[Version, bytes]]) -> None:
        """Copy ratified bytes into the log, in order. Repeating it is safe. Spec: CM-23, CM-24.

        A file that exists with the same bytes counts as published; one with other bytes raises
        `LogDivergedError`. A folder or link that cannot be read as a commit is set aside.
        """
        [error] = publish_together([(self, commits)])
        if error is not None:
            raise error

    def put_back(self, commit: StagedCommit, content: bytes) -> None:
        """Restore a staged file that is missing or damaged; set aside what is in its way."""
        try:
            self.store.put(commit.path, content)  # replaces a file or a link
        except InvalidArgumentError:
            for path in (STAGED, commit.path):
                if self.set_obstacle_aside(path, is_folder=path == STAGED):
                    break
            self.store.put(commit.path, content)

    def set_obstacle_aside(self, path: str, *, is_folder: bool = False) -> bool:
        """Set aside a folder under the name of a file, or a file under the name of a folder."""
        try:
            is_file = self.store.head(path) is not None
        except InvalidArgumentError:  # a link to a place outside of the store
            is_file = is_folder
        if is_file is not is_folder:
            return False
        return self.set_aside(path) is not None

    def set_aside(self, path: str) -> str | None:
        """Rename whatever is at a path; return its new path, or None if nothing is there."""
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/_set_aside-{name}-{secrets.token_hex(4)}"  # readers ignore such a name
        if not self.store.set_aside(path, aside):
            return None
        _log.error("%s in %s was set aside and is kept as %s", path, self.store.url, aside)
        return aside

    def last_checkpoint(self) -> Version | None:
        """Read which checkpoint is the newest; None if the hint is missing or malformed."""
        try:
            version = json.loads(self.store.get(LAST_CHECKPOINT))["version"]
        except (HeadgateError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if type(version) is not int or not 0 <= version < 2**63:
            return None
        return Version(version)


def publish_together(
    batches: Sequence[tuple[DeltaLog, Sequence[tuple[Version, bytes]]]],
) -> Sequence[Exception | None]:
    """Do what `DeltaLog.publish_many` does for several logs; those on a disk are synced together.

    Returns for each log the error that it would raise.
    """
    parts = [_Publication(log, commits) for log, commits in batches]
    while True:
        for part in parts:
            part.skip_existing()
        left = [part for part in parts if part.items]
        if not left:
            return [part.error for part in parts]
        for part, done in zip(left, _put_all(left), strict=True):
            part.take(done)


class _Publication:
    """The publishing of commits in one log; it ends with the first error."""

    def __init__(self, log: DeltaLog, commits: Sequence[tuple[Version, bytes]]) -> None:
        self.log = log
        self.items: Sequence[tuple[str, bytes]] = [  # what is left to do
            (PublishedCommit(version).path, content) for version, content in commits
        ]
        self.error: Exception | None = None

    def skip_existing(self) -> None:
        """Compare the first files that exist: no version is put above one with other bytes."""
        with self._step():
            existing: list[str] = []
            for path, content in self.items:
                if self.log.store.head(path) is None:
                    break
                self._refuse_unless_same(path, content)
                existing.append(path)
            if existing:  # the client that put them may not have synced them
                self.log.store.sync(existing)
            self.items = self.items[len(existing) :]

    def take(self, done: Sequence[bool] | Exception) -> None:
        """Take the result of putting what was left."""
        with self._step():
            if isinstance(done, Exception):
                raise done
            if not done[-1]:
                self._refuse_unless_same(*self.items[len(done) - 1])
            self.items = self.items[len(done) :]

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Keep an error, unless it was an obstacle that is set aside."""
        try:
            yield
        except Exception as error:
            try:
                if isinstance(error, InvalidArgumentError | NotFoundError) and any(
                    self.log.set_obstacle_aside(path) for path, _ in self.items
                ):
                    return
            except Exception as another:
                error = another
            self.error, self.items = error, ()

    def _refuse_unless_same(self, path: str, content: bytes) -> None:
        existing = self.log.store.get(path)
        if existing != content:
            kind = UnfinishedError if content.startswith(existing) else LogDivergedError
            raise kind(f"{path} in {self.log.store.url} does not hold the ratified bytes.")


def _put_all(parts: Sequence[_Publication]) -> Sequence[Sequence[bool] | Exception]:
    """Put what is left of each log; return how far each got, or its error."""
    local = [
        (part.log.store, part.items) for part in parts if isinstance(part.log.store, LocalStore)
    ]
    if len(local) == len(parts) > 1:
        return put_together(local)
    results: list[Sequence[bool] | Exception] = []
    for part in parts:
        try:
            results.append(part.log.store.put_many_if_absent(part.items))
        except Exception as error:
            results.append(error)
    return results


def log_files(listed: Iterable[Listed]) -> list[LogFile]:
    """Return the files of a listing that are not empty."""
    return [item.file for item in listed if item.size]
