"""A table's log as files: list, read, stage, publish.

Names come from `protocol.paths`; what a file means is for others to say. `_staged_commits` is
never listed: a staged file is found by the name the catalog gives, or not at all. Spec: CM-03.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Sequence
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
from headgate.storage.port import ObjectStore

_log = logging.getLogger(__name__)


class UnfinishedError(LogDivergedError):
    """A beginning of what was ratified: another may be copying it at this moment.

    Not every client puts a file whole; DuckDB writes it where it will lie.
    """


@dataclass(frozen=True, slots=True)
class Listed:
    """A log file as a listing shows it."""

    file: LogFile
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Hint:
    """What `_last_checkpoint` says, as far as it helps to find the checkpoint."""

    version: Version
    parts: int | None = None


class DeltaLog:
    """The log of one table on its store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def list(self, first: Version | None = None) -> list[Listed]:
        """List the files of the log from a version on, in no particular order."""
        # Every name of a version begins with its digits, so the bare digits sort before them all.
        after = f"{LOG}/{first:020d}" if first else None
        found = ((parse(item.path), item) for item in self.store.list(LOG, after, recursive=False))
        return [
            Listed(file, item.size, item.modified_ms)
            for file, item in found
            if not isinstance(file, Stray | StagedCommit)
        ]

    def strays(self) -> Sequence[str]:
        """List what lies in the log's folder and is no file of a log."""
        return [
            item.path
            for item in self.store.list(LOG, recursive=True)
            if isinstance(parse(item.path), Stray) and not item.path.startswith(f"{STAGED}/")
        ]

    def read(self, path: str) -> bytes:
        """Read a file of the log by its path within the table."""
        return self.store.get(path)

    def read_published(self, version: Version) -> bytes | None:
        """Read `<v>.json`; None if it is not there."""
        try:
            return self.store.get(PublishedCommit(version).path)
        except NotFoundError:
            return None

    def is_published(self, version: Version) -> bool:
        """Say whether `<v>.json` is there."""
        return self.store.head(PublishedCommit(version).path) is not None

    def stage(self, commit: StagedCommit, content: bytes) -> None:
        """Put a staged commit; its name is fresh, so that it serves one attempt. Spec: CM-02."""
        if not self.store.put_if_absent(commit.path, content):
            raise InvariantError(f"There is a staged commit {commit.path} already.")

    def publish_many(self, commits: Sequence[tuple[Version, bytes]]) -> None:
        """Copy ratified bytes into the log, in order; again is fine. Spec: CM-23, CM-24.

        Another publisher is welcome, another content is not: it raises `LogDivergedError`. A folder
        or a link that cannot be read as a commit is nobody's content and is set aside.
        """
        items: Sequence[tuple[str, bytes]] = [
            (PublishedCommit(version).path, content) for version, content in commits
        ]
        while items:
            try:
                items = self._publish_some(items)
            except (InvalidArgumentError, NotFoundError):
                if not any(self._set_obstacle_aside(path) for path, _ in items):
                    raise

    def _publish_some(self, items: Sequence[tuple[str, bytes]]) -> Sequence[tuple[str, bytes]]:
        """Publish from the first on, at least one; return the rest."""
        # Nothing is put above a file that is not ours, so what is there is looked at first.
        there: list[str] = []
        while len(there) < len(items) and self.store.head(items[len(there)][0]) is not None:
            self._refuse_unless_same(*items[len(there)])
            there.append(items[len(there)][0])
        if there:  # whoever put them may not have synced them
            self.store.sync(there)
        items = items[len(there) :]
        done = self.store.put_many_if_absent(items) if items else []
        if done and not done[-1]:
            self._refuse_unless_same(*items[len(done) - 1])
        return items[len(done) :]

    def put_back(self, commit: StagedCommit, content: bytes) -> None:
        """Put a staged commit where its file is missing or damaged, setting aside what else is."""
        try:
            self.store.put(commit.path, content)  # in place of a file or a link
        except InvalidArgumentError:
            for path in (STAGED, commit.path):
                if self._set_obstacle_aside(path, is_folder=path == STAGED):
                    break
            self.store.put(commit.path, content)

    def _set_obstacle_aside(self, path: str, *, is_folder: bool = False) -> bool:
        """Set aside what has the name of a file and is none, or of a folder and is none."""
        try:
            is_file = self.store.head(path) is not None
        except InvalidArgumentError:  # a link that leads out of the store
            is_file = is_folder
        if is_file is not is_folder:
            return False
        return self.set_aside(path) is not None

    def set_aside(self, path: str) -> str | None:
        """Keep whatever has a name under another one; return that, or None if nothing has it."""
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/_set_aside-{name}-{secrets.token_hex(4)}"  # no reader takes such a name
        if not self.store.set_aside(path, aside):
            return None
        _log.error("%s in %s was set aside and is kept as %s", path, self.store.url, aside)
        return aside

    def _refuse_unless_same(self, path: str, content: bytes) -> None:
        found = self.store.get(path)
        if found != content:
            kind = UnfinishedError if content.startswith(found) else LogDivergedError
            raise kind(f"{path} in {self.store.url} holds other bytes than ratified.")

    def last_checkpoint(self) -> Hint | None:
        """Read the hint at the newest checkpoint; whatever is wrong with it, there is none."""
        try:
            said = json.loads(self.store.get(LAST_CHECKPOINT))
            version, parts = said["version"], said.get("parts")
        except (HeadgateError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if type(version) is not int or not 0 <= version < 2**63:
            return None
        return Hint(Version(version), parts if type(parts) is int else None)


def log_files(listed: Iterable[Listed]) -> list[LogFile]:
    """Give the files of a listing that can hold anything: an empty one cannot."""
    return [item.file for item in listed if item.size]
