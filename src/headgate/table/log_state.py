"""Build the state of a table at one version: plan which log files to read, read and replay them.

For a managed table the catalog's answer comes first: the log is listed only if that answer and the
file names that can be computed do not suffice. From the state of an earlier version only the new
commits are read. Spec: CM-15 to CM-18.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from headgate import errors
from headgate.api.messages import RatifiedCommit, Resolved
from headgate.api.port import ManagingCatalog
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName
from headgate.protocol import features, paths
from headgate.protocol.actions import Metadata, Protocol, Version, decode
from headgate.protocol.commit.content import Way
from headgate.protocol.log import checksums, replay, timestamps
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.log.replay import TableState
from headgate.protocol.log.segment import Gap, Segment, newest_checkpoint, plan
from headgate.protocol.log.timestamps import moment
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.storage import locations
from headgate.table.checkpoints import UnusableError, read_checkpoint
from headgate.table.log_files import DeltaLog, Listed, log_files
from headgate.table.parallel import in_parallel
from headgate.table.ratified_content import find_content

_NAMESPACE: Final = "namespace.json"  # marks a namespace of a filesystem catalog
_GREATEST: Final = Version(2**63 - 1)
_BY_NAME: Final = 64  # up to so many commits are read by their computed names before a LIST
_RESTORE: Final = "Restore the files of the log from a backup, or read another version."

Entry = RatifiedCommit | paths.PublishedCommit | paths.Compaction


class UnusableEntryError(Exception):
    """A log file is missing, or does not hold what its name promises."""

    def __init__(self, entry: paths.PublishedCommit | paths.Compaction, why: str) -> None:
        self.path = entry.path
        self.why = why
        super().__init__(entry.path)


class _VanishedError(errors.InvariantError):
    """A commit was published and is no longer in the log."""

    def __init__(self, message: str, commit: RatifiedCommit) -> None:
        self.commit = commit
        super().__init__(message)


class Source(ABC):
    """Where the versions of a table come from: its catalog, or its log alone."""

    def __init__(self, label: str, log: DeltaLog) -> None:
        self.label = label
        self.log = log
        self.listing: list[Listed] | None = None
        self.ratified: dict[Version, RatifiedCommit] = {}
        self.known: list[KnownFile] = []
        self.named: set[Version] = set()  # commits assumed to be published under their names
        self.unusable: dict[str, str] = {}  # files that turned out to be unusable, and why
        self.vanished: set[Version] = set()  # commits that were published and are gone

    @abstractmethod
    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        """Look for missing versions in one more place; return False if none was left."""

    @abstractmethod
    def missing(self, version: Version, gap: Gap) -> Exception:
        """Return the error for a version that cannot be read."""

    def is_cleaned(self, gap: Gap, version: Version, latest: Version) -> bool:
        """Return True if a gap is the result of log cleanup: later versions do not need it."""
        # A slow publisher or a repair may put an old commit back: the versions around it are still
        # cleaned up, not missing.
        if version >= latest:
            return False
        later = newest_checkpoint(latest, listed=log_files(self.listing or ()))
        return gap.first == 0 or (later is not None and later.version > gap.last)

    def state(self, version: Version, base: TableState | None) -> TableState:
        """Plan, read and replay; plan again without files that are unusable. Spec: RD-06."""
        while True:
            segment = plan(
                version,
                ratified=[c for c in self.ratified.values() if c.version not in self.vanished],
                known=self.known,
                listed=[*log_files(self.listing or ()), *map(paths.PublishedCommit, self.named)],
                base=None if base is None else base.version,
                without=self.unusable,
            )
            try:
                if not isinstance(segment, Gap):
                    return self.read(segment, base)
                if not self.fill(segment, from_base=base is not None):
                    if base is None:
                        raise self.missing(version, segment)
                    base = None  # a checkpoint may be newer than the gap
            except UnusableError as error:
                assert isinstance(segment, Segment)
                assert segment.checkpoint is not None
                self.unusable |= dict.fromkeys(segment.checkpoint.paths, "")
                self.unusable[error.path] = error.why
            except UnusableEntryError as error:
                self.unusable[error.path] = error.why
            except _VanishedError as error:
                # Cleaned up while the catalog still lists it: a checkpoint covers it.
                self.vanished.add(error.commit.version)

    def describe_unusable(self) -> str:
        """Describe the files that could not be used, for an error message."""
        empty = {item.file.path: "it is empty." for item in self.listing or () if not item.size}
        unusable = (empty | self.unusable).items()
        return "".join(f" {path} cannot be used: {why}" for path, why in unusable if why)

    def read(self, segment: Segment[RatifiedCommit], base: TableState | None) -> TableState:
        if segment.base is not None:
            assert base is not None
            state = base
        elif segment.checkpoint is not None:
            state = read_checkpoint(self.log.store, segment.checkpoint)
        else:
            state = replay.EMPTY
        for entry, content in zip(segment.entries, self.contents(segment.entries), strict=True):
            state = self.applied(state, entry, content)
        checkpoint = segment.checkpoint
        if checkpoint is not None and state.metadata_file == checkpoint.paths[0]:
            assert state.metadata is not None
            if not state.metadata.schema_string:  # the commits may have it
                raise UnusableError(checkpoint.paths[0], "its metaData has no schemaString.")
        return state

    def contents(self, entries: Sequence[Entry]) -> list[bytes]:
        """Return the content of every entry; several files are read in parallel."""
        inline = [e.content if isinstance(e, RatifiedCommit) else None for e in entries]
        missing = [entry for entry, content in zip(entries, inline, strict=True) if content is None]
        # On a local disk threads would only wait for each other.
        is_local = self.log.store.local_path(paths.LAST_CHECKPOINT) is not None
        read = iter(map(self.content, missing) if is_local else in_parallel(self.content, missing))
        return [next(read) if content is None else content for content in inline]

    def applied(self, state: TableState, entry: Entry, content: bytes) -> TableState:
        """Decode the content of a log entry and apply it to the state before it."""
        try:
            actions = decode(content)
        except errors.MalformedError as error:
            if isinstance(entry, paths.Compaction):  # the commits themselves may exist
                raise UnusableEntryError(entry, error.message) from error
            raise errors.MalformedError(
                f"{self.label} version {entry.version}: {_path(entry)} cannot be read:"
                f" {error.message}",
                remedy=_RESTORE,
            ) from error
        if (
            isinstance(entry, paths.Compaction)
            and (why := replay.contradiction(actions)) is not None
        ):
            raise UnusableEntryError(entry, f"it {why}.")
        version = entry.last if isinstance(entry, paths.Compaction) else entry.version
        after = replay.apply(state, version, actions)
        if after.metadata is not state.metadata:
            after = replace(after, metadata_file=_path(entry))
        return after

    def content(self, entry: Entry) -> bytes:
        if isinstance(entry, RatifiedCommit):
            return self._ratified_content(entry)
        try:
            return self.log.read(entry.path)
        except errors.NotFoundError:
            raise UnusableEntryError(entry, "") from None

    def _ratified_content(self, commit: RatifiedCommit) -> bytes:
        """Read a ratified commit from storage, wherever its bytes are. Spec: CM-46."""
        if commit.way is Way.STAGED:
            staged = paths.parse_staged_name(commit.file_name or "")
            if staged is None or staged.version != commit.version:
                raise errors.InvariantError(
                    f"{self.label} version {commit.version} cannot be in the staged file"
                    f" {commit.file_name!r}."
                )
        found = find_content(self.log, commit)
        if found.content is not None:
            return found.content
        if found.unreadable is not None:
            raise found.unreadable
        where = paths.PublishedCommit(commit.version).path
        if commit.way is Way.STAGED:
            where = f"{paths.STAGED}/{commit.file_name}"
        problem = f"{self.label} version {commit.version} was ratified, but"
        if where in found.altered:
            raise errors.LogDivergedError(f"{problem} {where} does not hold the ratified bytes.")
        problem = f"{problem} {where} is missing and no published file holds its bytes."
        if commit.published_ms is not None and not found.is_published:
            raise _VanishedError(problem, commit)
        raise errors.InvariantError(problem)

    def checksum(self, version: Version) -> VersionChecksum | None:
        """Read `<v>.crc` if it is known to exist; None if it is missing or malformed."""
        file = paths.Checksum(version)
        is_known = any(file.path in known.paths for known in self.known)
        if not is_known and file not in log_files(self.listing or ()):
            return None
        try:
            return checksums.parse(self.log.read(file.path))
        except errors.HeadgateError:
            return None

    def version_at(self, at_ms: int, latest: Version, metadata: Metadata) -> Version:
        """Find the last version committed at or before a time. Spec: CM-38.

        In-commit timestamps are used from the version that enabled them, file times before it.
        """
        enabled = timestamps.enablement(metadata.configuration)
        if metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
            return self._version_by_file_time(at_ms, latest)
        if enabled is not None and at_ms < enabled.timestamp_ms:
            return self._version_by_file_time(at_ms, Version(enabled.version - 1))
        # Timestamps rise strictly, and only the oldest can be missing.
        first = Version(0) if enabled is None else enabled.version

        def is_after(version: int) -> bool:
            timestamp_ms = self.in_commit_timestamp(Version(version))
            return timestamp_ms is not None and timestamp_ms > at_ms

        found = Version(bisect_left(range(first, latest + 1), True, key=is_after) + first - 1)
        if found < first or self.in_commit_timestamp(found) is None:
            raise errors.VersionGoneError(
                f"{self.label} no longer has a version as old as {moment(at_ms)}.",
                remedy="Ask for a later time.",
            )
        return found

    def _version_by_file_time(self, at_ms: int, last: Version) -> Version:
        times = sorted(
            (item.file.version, item.modified_ms)
            for item in self.log.list()
            if isinstance(item.file, paths.PublishedCommit) and item.file.version <= last
        )
        return timestamps.version_at(timestamps.rising(times), at_ms)

    def in_commit_timestamp(self, version: Version) -> int | None:
        """Return the in-commit timestamp of a version; None if its commit no longer exists."""
        content = self.log.read_published(version)
        return None if content is None else in_commit_timestamp(content)


class ManagedSource(Source):
    """A catalog-managed table: the catalog determines its versions."""

    def __init__(self, catalog: ManagingCatalog, resolved: Resolved, log: DeltaLog) -> None:
        super().__init__(resolved.name or resolved.table_id, log)
        self._catalog = catalog
        self._resolved = resolved
        self._has_requested = False
        self.ratified = {commit.version: commit for commit in resolved.commits}
        files = (resolved.checkpoint, *resolved.compactions, resolved.checksum_file)
        self.known = [file for file in files if file is not None]

    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        """Ask the catalog, then try computed names, then list. Spec: CM-16, RD-04."""
        resolved = self._resolved
        if resolved.held_from is not None and not self._has_requested:
            first = max(gap.first, resolved.held_from)
            if first <= gap.last:
                self._has_requested = True
                more = self._catalog.ratified_commits(resolved.table_id, first, gap.last)
                self.ratified = {commit.version: commit for commit in more.commits} | self.ratified
                return True
        # Every version up to the latest is ratified, so one that the catalog does not hold is
        # published under a known name.
        unnamed = set(map(Version, range(gap.first, gap.last + 1))) - self.named - self.vanished
        if unnamed and (len(unnamed) <= _BY_NAME or self.listing is not None):
            self.named |= unnamed
            return True
        if from_base or self.listing is not None:
            return False
        self.listing = self.log.list()
        return True

    def missing(self, version: Version, gap: Gap) -> Exception:
        # The resolve may be old by now: its latest version may have been cleaned up since.
        latest = self._catalog.ratified_commits(self._resolved.table_id, version, version).latest
        if self.is_cleaned(gap, version, max(latest, self._resolved.latest)):
            return _gone(self.label, version, gap, self.describe_unusable())
        return errors.InvariantError(
            f"{self.label} version {version} cannot be read: neither the catalog nor the log has"
            f" the content of {gap}.{self.describe_unusable()}"
        )

    def at(self, at_ms: int) -> Version:
        latest = self._resolved.latest
        clock_ms = self._resolved.clock_ms
        # Timestamps may be ahead of the clock: times up to the latest commit are always answered.
        if clock_ms is not None and at_ms > max(clock_ms, self._resolved.timestamp_ms):
            raise errors.InTheFutureError(
                f"{self.label}: the catalog's clock has not reached {moment(at_ms)} yet."
            )
        if at_ms >= self._resolved.timestamp_ms:
            return latest
        metadata = self._resolved.metadata
        if metadata is None:
            _, metadata = complete(self.state(latest, None), self.label)
        return self.version_at(at_ms, latest, metadata)

    def in_commit_timestamp(self, version: Version) -> int | None:
        if version == self._resolved.latest:
            return self._resolved.timestamp_ms
        commit = self.ratified.get(version)
        held_from = self._resolved.held_from
        if commit is None and held_from is not None and version >= held_from:
            answer = self._catalog.ratified_commits(self._resolved.table_id, version, version)
            commit = next(iter(answer.commits), None)
        return super().in_commit_timestamp(version) if commit is None else commit.timestamp_ms


class PlainSource(Source):
    """A plain table: its log alone determines its versions."""

    def __init__(self, location: str, log: DeltaLog) -> None:
        super().__init__(location, log)
        self._is_whole = False

    @cached_property
    def latest(self) -> Version:
        hint = self.log.last_checkpoint()
        if hint is not None:
            self.listing = self.log.list(hint)
            if newest_checkpoint(hint, listed=log_files(self.listing)) is None:
                self.listing = None  # the hint names no checkpoint that exists
        if self.listing is None:
            self._list_all()
        return self._newest()

    def damaged_latest(self, above: Version) -> TableState:
        """Read the protocol and metadata of the readable commits above a version."""
        state = replay.EMPTY
        for item in sorted(self.log.list(above), key=lambda item: str(item.file.path)):
            if isinstance(item.file, paths.PublishedCommit) and item.file.version > above:
                with suppress(errors.MalformedError, errors.NotFoundError):
                    lines = decode(self.log.read(item.file.path))
                    kept = [line for line in lines if line.protocol or line.meta_data]
                    state = replay.apply(state, item.file.version, kept)
        return state

    def version_below_damage(self, at_ms: int) -> Version | None:
        """Find the version at a time if the log is damaged later; None if that may matter."""
        listed = log_files(self.log.list())
        checkpoint = newest_checkpoint(_GREATEST, listed=listed)
        first = 0 if checkpoint is None else checkpoint.version
        versions = sorted(
            file.version
            for file in listed
            if isinstance(file, paths.PublishedCommit) and file.version >= first
        )

        def is_damaged(version: Version) -> bool:
            try:
                self.state(version, None)
            except (errors.MalformedError, errors.VersionGoneError):
                return True
            return False

        num_sound = bisect_left(versions, True, key=is_damaged)
        if num_sound == 0:
            return None
        sound = versions[num_sound - 1]
        _, metadata = complete(self.state(sound, None), self.label)
        found = self.version_at(at_ms, sound, metadata)
        return found if found < sound else None

    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        if not self._is_whole:
            self._list_all()
            return True
        unnamed = set(map(Version, range(gap.first, gap.last + 1))) - self.named
        if unnamed and len(unnamed) <= _BY_NAME:  # a listing may be out of date
            self.named |= unnamed
            return True
        return False

    def missing(self, version: Version, gap: Gap) -> Exception:
        if self.is_cleaned(gap, version, self.latest):
            return _gone(self.label, version, gap, self.describe_unusable())
        return errors.MalformedError(
            f"The log of {self.label} has a gap: version {version} cannot be read without "
            f"{gap}.{self.describe_unusable()}",
            remedy=_RESTORE,
        )

    def _list_all(self) -> None:
        self.listing = self.log.list()
        self._is_whole = True

    def _newest(self) -> Version:
        files = log_files(self.listing or ())
        versions = [file.version for file in files if isinstance(file, paths.PublishedCommit)]
        checkpoint = newest_checkpoint(_GREATEST, listed=files)
        if checkpoint is not None:
            versions.append(checkpoint.version)
        if not versions:
            raise errors.NotFoundError(
                f"There is no Delta table at {self.label}.{self.describe_unusable()}",
                remedy="Check the path.",
            )
        latest = max(versions)
        while self.log.is_published(Version(latest + 1)):
            latest = Version(latest + 1)
            self.named.add(latest)  # a listing may be out of date
        return latest

    def refuse_managed(self, state: TableState) -> None:
        """Refuse a catalog-managed table: its log alone does not determine its versions."""
        if state.protocol is None or not features.is_catalog_managed(state.protocol):
            return
        metadata = state.metadata
        table_id = metadata and metadata.configuration.get(TABLE_ID_PROPERTY, metadata.id)
        lake, name = self._lake() or self._filesystem_lake() or (None, None)
        within = "" if lake is None else f" of the lake at {lake}"
        address = "ADDRESS" if lake is None else repr(lake)
        argument = "NAME" if name is None else repr(name)
        raise errors.PathAccessError(
            f"{self.label} is catalog-managed: it is table {table_id}{within}.",
            remedy=f"Open it through its catalog: headgate.connect({address}).table({argument}).",
        )

    def _lake(self) -> tuple[str, None] | None:
        """Find the lake with a database that contains the table; the name is in the database."""
        local = self.log.store.local_path(paths.LAST_CHECKPOINT)
        if local is None:
            return None
        lakes = (p for p in Path(local).parents if (p / "headgate.db").is_file())
        return next(((str(lake), None) for lake in lakes), None)

    def _filesystem_lake(self) -> tuple[str, str] | None:
        """Find the filesystem lake that contains the table; the path there gives the name."""
        root, *folders = self.log.store.url.rsplit("/", 3)
        if "://" not in root:
            return None
        with suppress(
            errors.HeadgateError
        ):  # a path that cannot be read, or be a name, is not a lake
            name = ".".join(unquote(locations.decode(folder)) for folder in folders)
            is_default = TableName.parse(name).namespace.key == (DEFAULT_CATALOG, DEFAULT_SCHEMA)
            place = "/".join((root, *folders[:-1]))
            if is_default or locations.store_for(place).head(_NAMESPACE) is not None:
                root += "/" * root.endswith("/")  # the root of the disk is only a slash
                return f"{root}?catalog=filesystem", name
        return None


def _path(entry: Entry) -> str:
    return (
        paths.PublishedCommit(entry.version).path
        if isinstance(entry, RatifiedCommit)
        else entry.path
    )


def complete(state: TableState, label: str) -> tuple[Protocol, Metadata]:
    """Return protocol and metadata of a state; refuse one without them, or without schema."""
    if state.protocol is None or state.metadata is None:
        lacks = "protocol" if state.protocol is None else "metaData"
        raise errors.MalformedError(
            f"{label} version {state.version}: its log has no {lacks} action.", remedy=_RESTORE
        )
    if not state.metadata.schema_string:
        raise errors.MalformedError(
            f"{label} version {state.version}: the metaData in {state.metadata_file} has no"
            " schemaString.",
            remedy=_RESTORE,
        )
    return state.protocol, state.metadata


def readable(state: TableState, label: str) -> tuple[Protocol, Metadata]:
    """Refuse a state that is incomplete or needs reader features we do not support."""
    protocol, metadata = complete(state, label)
    refuse_unreadable(protocol, label, state.version)
    return protocol, metadata


def refuse_unreadable(protocol: Protocol, label: str, version: Version) -> None:
    """Refuse a protocol that needs reader features we do not support."""
    if unsupported := features.unreadable(protocol):
        raise errors.UnsupportedFeatureError(
            f"{label} version {version} requires reader features that are not supported:"
            f" {', '.join(unsupported)}."
        )


def _gone(label: str, version: Version, gap: Gap, unusable: str) -> errors.VersionGoneError:
    return errors.VersionGoneError(
        f"{label} version {version} can no longer be read: the log no longer has {gap}.{unusable}"
    )


def in_commit_timestamp(content: bytes) -> int | None:
    """Read the in-commit timestamp of a commit, if it has one."""
    # `commitInfo` is the first action where in-commit timestamps are active.
    line = next(iter(decode(content.partition(b"\n")[0])), None)
    return (
        None if line is None or line.commit_info is None else line.commit_info.in_commit_timestamp
    )
