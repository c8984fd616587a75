"""The files of a table's log: list, read, stage and publish them.

Names come from `protocol.paths`. `_staged_commits` is never listed: a staged file is read only by
the name that the catalog gives. Spec: CM-03.
"""

import json
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate import errors
from headgate.protocol import paths
from headgate.protocol.actions import Version
from headgate.storage.object_store import ObjectStore

_log = logging.getLogger(__name__)


class UnfinishedError(errors.LogDivergedError):
    """A published file holds a prefix of the ratified bytes: another client may be writing it.

    Not every client puts a file atomically; DuckDB writes it in place.
    """


@dataclass(frozen=True, slots=True)
class Listed:
    """A log file in a listing."""

    file: paths.LogFile
    size: int
    modified_ms: int


class DeltaLog:
    """The log of one table on its store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def list(self, first: Version | None = None) -> list[Listed]:
        """List the files of the log, from a version on, in no particular order."""
        # Every name of a version begins with its digits, so the bare digits sort before them all.
        after = f"{paths.LOG}/{first:020d}" if first else None
        parsed = (
            (paths.parse(item.path), item)
            for item in self.store.list(paths.LOG, after, recursive=False)
        )
        return [
            Listed(file, item.size, item.modified_ms)
            for file, item in parsed
            if not isinstance(file, paths.Stray | paths.StagedCommit)
        ]

    def strays(self) -> Sequence[str]:
        """List what is in the log's folder and is not a log file."""
        return [
            item.path
            for item in self.store.list(paths.LOG, recursive=True)
            if isinstance(paths.parse(item.path), paths.Stray)
            and not item.path.startswith(f"{paths.STAGED}/")
        ]

    def read(self, path: str) -> bytes:
        """Read a log file by its path within the table."""
        return self.store.get(path)

    def read_published(self, version: Version) -> bytes | None:
        """Read `<v>.json`; None if it does not exist."""
        try:
            return self.store.get(paths.PublishedCommit(version).path)
        except errors.NotFoundError:
            return None

    def is_published(self, version: Version) -> bool:
        """Return True if `<v>.json` exists."""
        return self.store.head(paths.PublishedCommit(version).path) is not None

    def stage(self, commit: paths.StagedCommit, content: bytes) -> None:
        """Put a staged commit under a name that was never used before. Spec: CM-02."""
        if not self.store.put_if_absent(commit.path, content):
            raise errors.InvariantError(f"A staged commit {commit.path} exists already.")

    def publish_many(self, commits: Sequence[tuple[Version, bytes]]) -> None:
        """Copy ratified bytes into the log, in order. Repeating it is safe. Spec: CM-23, CM-24.

        A file that exists with the same bytes counts as published; one with other bytes raises
        `LogDivergedError`. A folder or link that cannot be read as a commit is set aside.
        """
        items: Sequence[tuple[str, bytes]] = [
            (paths.PublishedCommit(version).path, content) for version, content in commits
        ]
        while items:
            try:
                items = self._publish_some(items)
            except (errors.InvalidArgumentError, errors.NotFoundError):
                if not any(self._set_obstacle_aside(path) for path, _ in items):
                    raise

    def _publish_some(self, items: Sequence[tuple[str, bytes]]) -> Sequence[tuple[str, bytes]]:
        """Publish the first of the items, at least one; return the rest."""
        # No version is put above a file with other bytes, so existing files are compared first.
        existing: list[str] = []
        while len(existing) < len(items) and self.store.head(items[len(existing)][0]) is not None:
            self._refuse_unless_same(*items[len(existing)])
            existing.append(items[len(existing)][0])
        if existing:  # the client that put them may not have synced them
            self.store.sync(existing)
        items = items[len(existing) :]
        done = self.store.put_many_if_absent(items) if items else []
        if done and not done[-1]:
            self._refuse_unless_same(*items[len(done) - 1])
        return items[len(done) :]

    def put_back(self, commit: paths.StagedCommit, content: bytes) -> None:
        """Restore a staged file that is missing or damaged; set aside what is in its way."""
        try:
            self.store.put(commit.path, content)  # replaces a file or a link
        except errors.InvalidArgumentError:
            for path in (paths.STAGED, commit.path):
                if self._set_obstacle_aside(path, is_folder=path == paths.STAGED):
                    break
            self.store.put(commit.path, content)

    def _set_obstacle_aside(self, path: str, *, is_folder: bool = False) -> bool:
        """Set aside a folder under the name of a file, or a file under the name of a folder."""
        try:
            is_file = self.store.head(path) is not None
        except errors.InvalidArgumentError:  # a link to a place outside of the store
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

    def _refuse_unless_same(self, path: str, content: bytes) -> None:
        existing = self.store.get(path)
        if existing != content:
            kind = UnfinishedError if content.startswith(existing) else errors.LogDivergedError
            raise kind(f"{path} in {self.store.url} does not hold the ratified bytes.")

    def last_checkpoint(self) -> Version | None:
        """Read which checkpoint is the newest; None if the hint is missing or malformed."""
        try:
            version = json.loads(self.store.get(paths.LAST_CHECKPOINT))["version"]
        except (errors.HeadgateError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if type(version) is not int or not 0 <= version < 2**63:
            return None
        return Version(version)


def log_files(listed: Iterable[Listed]) -> list[paths.LogFile]:
    """Return the files of a listing that are not empty."""
    return [item.file for item in listed if item.size]
