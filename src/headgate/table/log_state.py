"""What the log of a table comes to at one version: gathered, read, replayed.

The catalog's answer bounds everything where there is one: the log is listed only when what the
catalog gave and the names that can be computed do not suffice. The state of an earlier version is
gone on from, and then only the new commits are read. Spec: CM-15 to CM-18.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote

from headgate.api.messages import RatifiedCommit, Resolved
from headgate.api.port import ManagingCatalog
from headgate.errors import (
    HeadgateError,
    InTheFutureError,
    InvariantError,
    LogDivergedError,
    MalformedError,
    NotFoundError,
    PathAccessError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName
from headgate.protocol import features
from headgate.protocol.actions import Metadata, Protocol, Version, decode
from headgate.protocol.commit.content import Way
from headgate.protocol.log import checksums, replay
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.log.replay import TableState
from headgate.protocol.log.segment import Gap, Segment, newest_checkpoint, plan
from headgate.protocol.log.timestamps import moment
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    STAGED,
    Checksum,
    Compaction,
    PublishedCommit,
    parse_staged_name,
)
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.storage import locations
from headgate.table.checkpoints import UnusableError, read_checkpoint
from headgate.table.gc_pause import uncollected
from headgate.table.log_files import DeltaLog, Listed, log_files
from headgate.table.time_travel import TimeTravel, in_commit_timestamp

Entry = RatifiedCommit | PublishedCommit | Compaction

_NAMESPACE: Final = "namespace.json"  # by which a catalog without a database knows its namespaces
_GREATEST: Final = Version(2**63 - 1)
_BY_NAME: Final = 64  # so many commits are read by their computed names before a LIST is tried
_READERS: Final = 16
_SHARE: Final = 32
_RESTORE: Final = "Restore the files of the log from a backup, or read another version."
_JOINED_BYTES: Final = 32 << 20  # decoded at a time, which bounds the objects alive at once


class _UnusableEntryError(Exception):
    """A file that the plan relied on is not there, or not what its name says."""

    def __init__(self, entry: PublishedCommit | Compaction, why: str) -> None:
        self.path = entry.path
        self.why = why
        super().__init__(entry.path)


class _NowhereError(InvariantError):
    """A commit that was published, and is in the log no more."""

    def __init__(self, message: str, commit: RatifiedCommit) -> None:
        self.commit = commit
        super().__init__(message)


class Source(ABC):
    """What managed and plain tables have in common: a segment is planned, read, replayed."""

    def __init__(self, label: str, log: DeltaLog) -> None:
        self.label = label
        self.log = log
        self.listing: list[Listed] | None = None
        self.held: dict[Version, RatifiedCommit] = {}
        self.known: list[KnownFile] = []
        self.named: set[Version] = set()  # commits taken to be published under their names
        self.without: dict[str, str] = {}  # files that turned out to be unusable, and why
        self.nowhere: set[Version] = set()  # commits that were published and are gone

    @abstractmethod
    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        """Look for what is missing; say whether there was still somewhere to look."""

    @abstractmethod
    def missing(self, version: Version, gap: Gap) -> Exception:
        """Say that a version cannot be read."""

    def is_cleaned(self, gap: Gap, version: Version, latest: Version) -> bool:
        """Say whether what is missing may go, since later versions are read without it.

        An old commit that was put back, by a slow publisher or a repair, makes no hole of it.
        """
        if version >= latest:
            return False
        later = newest_checkpoint(latest, listed=log_files(self.listing or ()))
        return gap.first == 0 or (later is not None and later.version > gap.last)

    @uncollected()
    def state(self, version: Version, base: TableState | None) -> TableState:
        """Plan, read and replay; what turns out to be unusable is planned without. Spec: RD-06."""
        while True:
            segment = plan(
                version,
                ratified=[c for c in self.held.values() if c.version not in self.nowhere],
                known=self.known,
                listed=[*log_files(self.listing or ()), *map(PublishedCommit, self.named)],
                base=None if base is None else base.version,
                without=self.without,
            )
            try:
                if not isinstance(segment, Gap):
                    return self.read(segment, base)
                if not self.fill(segment, from_base=base is not None):
                    if base is None:
                        raise self.missing(version, segment)
                    base = None  # a checkpoint may lie beyond what is missing
            except UnusableError as error:
                assert isinstance(segment, Segment)
                assert segment.checkpoint is not None
                self.without |= dict.fromkeys(segment.checkpoint.paths, "")
                self.without[error.path] = error.why
            except _UnusableEntryError as error:
                self.without[error.path] = error.why
            except _NowhereError as error:
                # Cleaned away while the catalog still lists it: a checkpoint holds what it made.
                self.nowhere.add(error.commit.version)

    def unusable(self) -> str:
        """Describe the files that could not be used, for the error that results from it."""
        found = [f"{path} cannot be used: {why}" for path, why in self.without.items() if why]
        return "".join(f" {text}" for text in found)

    def read(self, segment: Segment[RatifiedCommit], base: TableState | None) -> TableState:
        if segment.base is not None:
            assert base is not None
            state = base
        elif segment.checkpoint is not None:
            found = read_checkpoint(self.log.store, segment.checkpoint)
            state = replay.on_ground(
                found.version,
                found.files,
                found.protocol,
                found.metadata,
                found.transactions,
                found.domains,
            )
            state = replace(state, metadata_file=segment.checkpoint.paths[0])
        else:
            state = replay.EMPTY
        contents = self.contents(segment.entries)
        state = _replayed(self.label, state, segment.entries, contents)
        checkpoint = segment.checkpoint
        if checkpoint is not None and state.metadata_file == checkpoint.paths[0]:
            assert state.metadata is not None
            if not state.metadata.schema_string:  # the commits may have what it lost
                raise UnusableError(checkpoint.paths[0], "its metaData has no schemaString.")
        return state

    def contents(self, entries: Sequence[Entry]) -> list[bytes]:
        """Give the content of every entry; what lies on storage is read side by side."""
        contents = [e.content if isinstance(e, RatifiedCommit) else None for e in entries]
        places = [place for place, content in enumerate(contents) if content is None]

        def read(some: Sequence[int]) -> None:
            for place in some:
                contents[place] = self.content(entries[place])

        if len(places) < 3 or self.log.store.local_path(LAST_CHECKPOINT) is not None:
            read(places)  # threads only wait for each other where nothing else is waited for
        else:
            # Handing a thread one file at a time would cost more than reading it.
            share = max(1, min(_SHARE, len(places) // _READERS))
            shares = [places[at : at + share] for at in range(0, len(places), share)]
            with ThreadPoolExecutor(_READERS) as pool:
                list(pool.map(read, shares))
        return cast("list[bytes]", contents)  # every None was filled

    def content(self, entry: Entry) -> bytes:
        if isinstance(entry, RatifiedCommit):
            return self._ratified_content(entry)
        try:
            return self.log.read(entry.path)
        except NotFoundError:
            raise _UnusableEntryError(entry, "") from None

    def _ratified_content(self, commit: RatifiedCommit) -> bytes:
        """Read what the catalog ratified, known by its hash wherever it lies. Spec: CM-46."""
        if commit.way is Way.STAGED:
            content, where = self._staged_content(commit)
            if content is not None and _is_ratified(content, commit):
                return content
        else:
            content, where = None, PublishedCommit(commit.version).path
        published = self.log.read_published(commit.version)
        if published is not None and _is_ratified(published, commit):
            return published
        said = f"{self.label} version {commit.version} was ratified, but"
        if content is not None or (commit.way is not Way.STAGED and published is not None):
            raise LogDivergedError(f"{said} {where} holds other bytes.")
        said = f"{said} {where} is gone and no published file holds its bytes."
        if commit.published_ms is not None and published is None:
            raise _NowhereError(said, commit)
        raise InvariantError(said)

    def _staged_content(self, commit: RatifiedCommit) -> tuple[bytes | None, str]:
        staged = parse_staged_name(commit.file_name or "")
        if staged is None or staged.version != commit.version:
            raise InvariantError(
                f"{self.label} version {commit.version} cannot lie in {commit.file_name!r}."
            )
        where = f"{STAGED}/{commit.file_name}"
        try:
            return self.log.read(where), where
        except NotFoundError:
            return None, where

    def checksum(self, version: Version) -> VersionChecksum | None:
        """Read `<v>.crc` if it was seen; whatever is wrong with it, there is none."""
        file = Checksum(version)
        told = any(file.path in known.paths for known in self.known)
        if not told and file not in log_files(self.listing or ()):
            return None
        try:
            return checksums.parse(self.log.read(file.path))
        except HeadgateError:
            return None

    def version_at(self, at_ms: int, latest: Version, metadata: Metadata) -> Version:
        """Find the last version committed not after a time. Spec: CM-38."""
        travel = TimeTravel(self.label, self.log, self.in_commit_timestamp)
        return travel.version_at(at_ms, latest, metadata)

    def in_commit_timestamp(self, version: Version) -> int | None:
        """Say when a commit was made; None if nobody holds it any more."""
        content = self.log.read_published(version)
        return None if content is None else in_commit_timestamp(content)


class ManagedSource(Source):
    """A table whose catalog says what its versions are."""

    def __init__(self, catalog: ManagingCatalog, resolved: Resolved, log: DeltaLog) -> None:
        super().__init__(resolved.name or resolved.table_id, log)
        self._catalog = catalog
        self._resolved = resolved
        self._has_asked = False
        self.held = {commit.version: commit for commit in resolved.commits}
        told = (resolved.checkpoint, *resolved.compactions, resolved.checksum_file)
        self.known = [file for file in told if file is not None]

    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        """Ask the catalog, then go by names, then list. Spec: CM-16, RD-04."""
        resolved = self._resolved
        if resolved.held_from is not None and not self._has_asked:
            first = max(gap.first, resolved.held_from)
            if first <= gap.last:
                self._has_asked = True
                more = self._catalog.ratified_commits(resolved.table_id, first, gap.last)
                self.held = {commit.version: commit for commit in more.commits} | self.held
                return True
        # Every version up to the latest is ratified, so what the catalog does not hold is
        # published, and its name is known.
        nameless = set(map(Version, range(gap.first, gap.last + 1))) - self.named - self.nowhere
        if nameless and (len(nameless) <= _BY_NAME or self.listing is not None):
            self.named |= nameless
            return True
        if from_base or self.listing is not None:
            return False
        self.listing = self.log.list()
        return True

    def missing(self, version: Version, gap: Gap) -> Exception:
        # The answer may be old by now: what was the latest then can have been cleaned away since.
        latest = self._catalog.ratified_commits(self._resolved.table_id, version, version).latest
        if self.is_cleaned(gap, version, max(latest, self._resolved.latest)):
            return _gone(self.label, version, gap, self.unusable())
        return InvariantError(
            f"{self.label} version {version} cannot be read: of {gap} neither the catalog nor the"
            f" log has the content.{self.unusable()}"
        )

    def at(self, at_ms: int) -> Version:
        latest = self._resolved.latest
        clock_ms = self._resolved.clock_ms
        # Timestamps may run ahead of the clock: what was committed has come.
        if clock_ms is not None and at_ms > max(clock_ms, self._resolved.timestamp_ms):
            raise InTheFutureError(
                f"{self.label}: the catalog has not come to {moment(at_ms)} yet."
            )
        if at_ms >= self._resolved.timestamp_ms:
            return latest
        metadata = self._resolved.metadata
        if metadata is None:
            metadata = cast("Metadata", known(self.state(latest, None), self.label).metadata)
        return self.version_at(at_ms, latest, metadata)

    def in_commit_timestamp(self, version: Version) -> int | None:
        if version == self._resolved.latest:
            return self._resolved.timestamp_ms
        commit = self.held.get(version)
        held_from = self._resolved.held_from
        if commit is None and held_from is not None and version >= held_from:
            answer = self._catalog.ratified_commits(self._resolved.table_id, version, version)
            commit = next(iter(answer.commits), None)
        return super().in_commit_timestamp(version) if commit is None else commit.timestamp_ms


class PlainSource(Source):
    """A table that is what its log says."""

    def __init__(self, location: str, log: DeltaLog) -> None:
        super().__init__(location, log)
        self._is_whole = False

    @cached_property
    def latest(self) -> Version:
        hint = self.log.last_checkpoint()
        if hint is not None:
            self.listing = self.log.list(hint.version)
            if newest_checkpoint(hint.version, listed=log_files(self.listing)) is None:
                self.listing = None  # the hint leads nowhere
        if self.listing is None:
            self._list_all()
        return self._newest()

    def latest_since(self, version: Version) -> Version:
        """Find the latest version, listing no more than what is newer than one that is known."""
        self.listing = self.log.list(Version(version + 1))
        self.latest = self._newest(version)
        return self.latest

    def latest_or_damaged(self, above: Version) -> TableState:
        """Read the latest state, or what is left of it where the log above a version is damaged.

        Then it has the protocol and the metadata of those commits that can be read.
        """
        try:
            return self.state(self.latest, None)
        except (MalformedError, VersionGoneError):
            state = replay.EMPTY
        for item in sorted(self.log.list(above), key=lambda item: str(item.file.path)):
            if isinstance(item.file, PublishedCommit) and item.file.version > above:
                with suppress(MalformedError, NotFoundError):
                    lines = decode(self.log.read(item.file.path))
                    kept = [line for line in lines if line.protocol or line.meta_data]
                    state = replay.apply(state, item.file.version, kept)
        return state

    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        if not self._is_whole:
            self._list_all()
            return True
        nameless = set(map(Version, range(gap.first, gap.last + 1))) - self.named
        if nameless and len(nameless) <= _BY_NAME:  # a listing may lag behind what was written
            self.named |= nameless
            return True
        return False

    def missing(self, version: Version, gap: Gap) -> Exception:
        if self.is_cleaned(gap, version, self.latest):
            return _gone(self.label, version, gap, self.unusable())
        return MalformedError(
            f"The log of {self.label} has a gap: version {version} cannot be read without "
            f"{gap}.{self.unusable()}",
            remedy=_RESTORE,
        )

    def _list_all(self) -> None:
        self.listing = self.log.list()
        self._is_whole = True

    def _newest(self, at_least: Version | None = None) -> Version:
        files = log_files(self.listing or ())
        found = [file.version for file in files if isinstance(file, PublishedCommit)]
        checkpoint = newest_checkpoint(_GREATEST, listed=files)
        if checkpoint is not None:
            found.append(checkpoint.version)
        if at_least is not None:
            found.append(at_least)
        if not found:
            raise NotFoundError(
                f"There is no Delta table at {self.label}.", remedy="Check the path."
            )
        latest = max(found)
        while self.log.is_published(Version(latest + 1)):
            latest = Version(latest + 1)
            self.named.add(latest)  # a listing may lag behind what was written
        return latest

    def refuse_managed(self, state: TableState) -> None:
        """Refuse a table that has a catalog: its log alone does not tell its versions."""
        if state.protocol is None or not features.is_catalog_managed(state.protocol):
            return
        metadata = state.metadata
        table_id = metadata and metadata.configuration.get(TABLE_ID_PROPERTY, metadata.id)
        lake, name = self._lake() or self._filesystem_lake() or (None, None)
        within = "" if lake is None else f" of the lake at {lake}"
        address = "ADDRESS" if lake is None else repr(lake)
        called = "NAME" if name is None else repr(name)
        raise PathAccessError(
            f"{self.label} is catalog-managed: it is table {table_id}{within}.",
            remedy=f"Open it through its catalog: headgate.connect({address}).table({called}).",
        )

    def _lake(self) -> tuple[str, None] | None:
        """Find the lake with a database that the table lies in; only that tells its name."""
        local = self.log.store.local_path(LAST_CHECKPOINT)
        if local is None:
            return None
        lakes = (p for p in Path(local).parents if (p / "headgate.db").is_file())
        return next(((str(lake), None) for lake in lakes), None)

    def _filesystem_lake(self) -> tuple[str, str] | None:
        """Find the lake without a database that the table lies in; there its path is its name."""
        root, *folders = self.log.store.url.rsplit("/", 3)
        if "://" not in root:
            return None
        with suppress(HeadgateError):  # what cannot be looked at, or be a name, is no lake
            name = ".".join(unquote(locations.decode(folder)) for folder in folders)
            is_default = TableName.parse(name).namespace.key == (DEFAULT_CATALOG, DEFAULT_SCHEMA)
            place = "/".join((root, *folders[:-1]))
            if is_default or locations.store_for(place).head(_NAMESPACE) is not None:
                root += "/" * root.endswith("/")  # of the whole disk only the slash is left
                return f"{root}?catalog=filesystem", name
        return None


def _replayed(
    label: str, state: TableState, entries: Sequence[Entry], contents: Sequence[bytes]
) -> TableState:
    """Decode many commits in one go: which of them an action came with makes no difference."""
    at = 0
    while at < len(entries):
        stop = _batch_end(entries, contents, at)
        try:
            actions = decode(b"\n".join(contents[at:stop]))
        except MalformedError:
            _blame(label, entries[at:stop], contents[at:stop])
            raise
        first = entries[at]
        if isinstance(first, Compaction) and (why := replay.contradiction(actions)) is not None:
            raise _UnusableEntryError(first, f"it {why}.")
        before = state.metadata
        state = replay.apply(state, _last(entries[stop - 1]), actions)
        if state.metadata is not before:
            file = _file_with_metadata(entries[at:stop], contents[at:stop])
            state = replace(state, metadata_file=file)
        at = stop
    if not entries:
        return state
    # The timestamp is the last commit's own; one without must not be given an earlier one's.
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
    """Name the file that the newest metadata of some entries came from."""
    named = zip(reversed(entries), reversed(contents), strict=True)
    entry = next((entry for entry, content in named if b"metaData" in content), entries[-1])
    return _path(entry)


def _path(entry: Entry) -> str:
    return PublishedCommit(entry.version).path if isinstance(entry, RatifiedCommit) else entry.path


def _blame(label: str, entries: Sequence[Entry], contents: Sequence[bytes]) -> None:
    """Name the entry that cannot be decoded."""
    for entry, content in zip(entries, contents, strict=True):
        try:
            decode(content)
        except MalformedError as error:
            if isinstance(entry, Compaction):  # the commits themselves may be there
                raise _UnusableEntryError(entry, error.message) from error
            raise MalformedError(
                f"{label} version {entry.version}: {_path(entry)} cannot be read: {error.message}",
                remedy=_RESTORE,
            ) from error


def _last(entry: Entry) -> Version:
    return entry.last if isinstance(entry, Compaction) else entry.version


def _is_ratified(content: bytes, commit: RatifiedCommit) -> bool:
    return len(content) == commit.size and (hashlib.sha256(content).hexdigest() == commit.sha256)


def known(state: TableState, label: str) -> TableState:
    """Refuse a state that lacks the protocol, the metadata or the schema of its table."""
    if state.protocol is None or state.metadata is None:
        lacks = "protocol" if state.protocol is None else "metaData"
        raise MalformedError(
            f"{label} version {state.version}: its log has no {lacks} action.", remedy=_RESTORE
        )
    if not state.metadata.schema_string:
        raise MalformedError(
            f"{label} version {state.version}: the metaData in {state.metadata_file} has no"
            " schemaString.",
            remedy=_RESTORE,
        )
    return state


def readable(state: TableState, label: str) -> TableState:
    """Refuse a state that asks more of its readers than we know, at that version."""
    refuse_unreadable(cast("Protocol", known(state, label).protocol), label, state.version)
    return state


def refuse_unreadable(protocol: Protocol, label: str, version: Version) -> None:
    """Refuse a protocol that asks more of its readers than we know."""
    if unknown := features.unreadable(protocol):
        raise UnsupportedFeatureError(
            f"{label} version {version} needs {', '.join(unknown)} of its readers."
        )


def _gone(label: str, version: Version, gap: Gap, unusable: str) -> VersionGoneError:
    was = "was" if gap.first == gap.last else "were"
    return VersionGoneError(
        f"{label} version {version} can no longer be read: {gap} {was} cleaned out of its log."
        f"{unusable}"
    )
