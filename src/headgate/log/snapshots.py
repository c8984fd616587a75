"""Snapshots: one version of one table, asked for, gathered, replayed.

The catalog is asked first and its answer bounds everything: the log is listed only when what the
catalog gave and the names that can be computed do not suffice. A snapshot is a value; the next one
is made from it and costs what the new commits hold. Spec: RD-01, CM-15 to CM-18.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import (
    InTheFutureError,
    InvariantError,
    LogDivergedError,
    MalformedError,
    NotFoundError,
    PathAccessError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.log.checkpoints import UnusableError, read_checkpoint
from headgate.log.file_columns import add_files, ground_files, live_files
from headgate.log.files import DeltaLog, Listed, log_files
from headgate.protocol import features, replay, timestamps
from headgate.protocol import schema as schemas
from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    TableId,
    Version,
    decode,
)
from headgate.protocol.actions import Sequence as CatalogSequence
from headgate.protocol.catalog_port import KnownFile, ManagingCatalog, Ref, Resolved
from headgate.protocol.checksums import VersionChecksum
from headgate.protocol.column_mapping import physical_path, without_mapping
from headgate.protocol.commits import RatifiedCommit, Way
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    STAGED,
    Compaction,
    PublishedCommit,
    parse_staged_name,
)
from headgate.protocol.predicates import Predicate
from headgate.protocol.predicates import columns as columns_of
from headgate.protocol.pruning import Pruner
from headgate.protocol.replay import TableState
from headgate.protocol.segment import Entry, Gap, Segment, newest_checkpoint, plan
from headgate.protocol.statistics import parse_statistics
from headgate.protocol.tables import TABLE_ID_PROPERTY
from headgate.storage.locations import store_for as default_store_for
from headgate.storage.objects import ObjectStore

StoreFor = Callable[[str], ObjectStore]

_GREATEST: Final = Version(2**63 - 1)
_BY_NAME: Final = 64  # so many commits are read by their computed names before a LIST is tried
_READERS: Final = 16
_SHARE: Final = 32
_JUDGED: Final = 64 * 1024  # statistics turned into objects at a time
_JOINED_BYTES: Final = 32 << 20  # decoded at a time, which bounds the objects alive at once


class Snapshot:
    """One version of one table. Never changes; safe for many threads."""

    def __init__(
        self,
        *,
        location: str,
        store: ObjectStore,
        state: TableState,
        table_id: TableId | None = None,
        name: str | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        assert state.protocol is not None
        assert state.metadata is not None
        self.location = location
        self.store = store
        self.state = state
        self.table_id = table_id
        self.name = name
        self.version = state.version
        self.protocol: Protocol = state.protocol
        self.metadata: Metadata = state.metadata
        self._timestamp_ms = timestamp_ms

    @property
    def label(self) -> str:
        """What to call the table in messages."""
        return self.name or self.location

    @cached_property
    def timestamp_ms(self) -> int | None:
        """When the version was committed: in-commit, or by the file's time where that is law."""
        if self._timestamp_ms is not None:
            return self._timestamp_ms
        if not features.has_in_commit_timestamps(self.protocol, self.metadata):
            found = self.store.head(PublishedCommit(self.version).path)
            return None if found is None else found.modified_ms
        if self.state.timestamp_ms is not None:
            return self.state.timestamp_ms
        content = DeltaLog(self.store).read_published(self.version)
        return None if content is None else _in_commit_timestamp(content)

    @cached_property
    def schema(self) -> schemas.StructType:
        return schemas.from_json(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.metadata.partition_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.configuration

    @property
    def num_files(self) -> int:
        return self.state.num_files

    @property
    def size_in_bytes(self) -> int:
        return self.state.size_in_bytes

    @cached_property
    def set_transactions(self) -> Mapping[str, SetTransaction]:
        return self.state.transactions.merged()

    @cached_property
    def domains(self) -> Mapping[str, DomainMetadata]:
        return self.state.domains

    def files(self, where: Predicate | None = None) -> list[AddFile]:
        """Give the live files that may hold matching rows, by partition values and statistics."""
        ground, added = ground_files(self.state, stats=True), self.state.added()
        if where is None:
            return [*add_files(ground), *added]
        schema = self.schema
        if features.mapping_mode(self.protocol, self.metadata) == "none":
            schema = without_mapping(schema)
        pruner = Pruner(where, schema)
        wanted = {physical_path(schema, column[:1]) for column in columns_of(where)}
        partitions = {physical_path(schema, (name,)) for name in self.partition_columns}
        partitioning = sorted(path[0] for path in wanted & partitions if path is not None)
        ground = _by_partitions(ground, partitioning, pruner)
        if wanted - partitions:
            ground = _by_statistics(ground, pruner, with_partitions=bool(wanted & partitions))
        return [*add_files(ground), *(add for add in added if _may_match(pruner, add))]

    def file_columns(self, *, stats: bool = False) -> pa.Table:
        """Give all live files as Arrow columns, in no particular order."""
        return live_files(self.state, stats=True) if stats else self._columns

    @cached_property
    def _columns(self) -> pa.Table:
        return live_files(self.state)


class SnapshotCache:
    """Snapshots by table id and version; those not used for longest go first."""

    def __init__(self, max_files: int = 4_000_000, max_snapshots: int = 256) -> None:
        self._max_files = max_files
        self._max_snapshots = max_snapshots
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[TableId, Version], Snapshot] = OrderedDict()

    def get(self, table_id: TableId, version: Version) -> Snapshot | None:
        """Give the snapshot of this very version."""
        with self._lock:
            found = self._held.get((table_id, version))
            if found is not None:
                self._held.move_to_end((table_id, version))
            return found

    def newest(self, table_id: TableId, version: Version) -> Snapshot | None:
        """Give the newest snapshot not above a version, to go on from."""
        with self._lock:
            held = [v for table, v in self._held if table == table_id and v <= version]
            return self._held[table_id, max(held)] if held else None

    def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of a catalog's table."""
        if snapshot.table_id is None:
            return
        with self._lock:
            self._held[snapshot.table_id, snapshot.version] = snapshot
            self._held.move_to_end((snapshot.table_id, snapshot.version))
            files = sum(held.num_files for held in self._held.values())
            while len(self._held) > 1 and (
                files > self._max_files or len(self._held) > self._max_snapshots
            ):
                files -= self._held.popitem(last=False)[1].num_files


def load(
    catalog: ManagingCatalog,
    ref: Ref,
    *,
    version: Version | None = None,
    as_of_ms: int | None = None,
    sequence: CatalogSequence | None = None,
    base: Snapshot | None = None,
    cache: SnapshotCache | None = None,
    store_for: StoreFor = default_store_for,
) -> Snapshot:
    """Load a table through its catalog: at latest, a version, a time or a sequence.

    `base` is an earlier snapshot to go on from, `cache` where others lie. Spec: RD-01, RD-04.
    """
    resolved = catalog.resolve(ref, sequence)
    return load_resolved(
        catalog,
        resolved,
        version=version,
        as_of_ms=as_of_ms,
        base=base,
        cache=cache,
        store_for=store_for,
    )


def load_resolved(
    catalog: ManagingCatalog,
    resolved: Resolved,
    *,
    version: Version | None = None,
    as_of_ms: int | None = None,
    base: Snapshot | None = None,
    cache: SnapshotCache | None = None,
    store_for: StoreFor = default_store_for,
) -> Snapshot:
    """Load a table whose name was resolved already, alone or in a cut over several."""
    if not resolved.catalog_managed:
        return load_path(resolved.location, version=version, as_of_ms=as_of_ms, store_for=store_for)
    source = _Managed(catalog, resolved, DeltaLog(store_for(resolved.location)))
    if as_of_ms is not None:
        version = source.at(as_of_ms)
    elif version is None:
        version = resolved.latest
    if version > resolved.latest:
        raise InTheFutureError(
            f"{source.label} has no version {version}: its latest is {resolved.latest}."
        )
    if version < 0:
        raise NotFoundError(
            f"{source.label} has no version {version}.", remedy="Versions begin at 0."
        )
    known = [base, None if cache is None else cache.newest(resolved.table_id, version)]
    usable = [
        snapshot
        for snapshot in known
        if snapshot is not None
        and snapshot.table_id == resolved.table_id
        and snapshot.version <= version
    ]
    base = max(usable, key=lambda snapshot: snapshot.version, default=None)
    snapshot = source.snapshot(version, base)
    if cache is not None:
        cache.put(snapshot)
    return snapshot


def load_path(
    location: str,
    *,
    version: Version | None = None,
    as_of_ms: int | None = None,
    store_for: StoreFor = default_store_for,
) -> Snapshot:
    """Load a plain table by its path; a catalog-managed one is refused. Spec: RD-02."""
    source = _Plain(location, DeltaLog(store_for(location)))
    latest = source.state(source.latest, None)
    source.refuse_managed(latest)
    if as_of_ms is not None:
        metadata = _known(latest, location).metadata
        version = source.version_at(as_of_ms, latest.version, cast("Metadata", metadata))
    if version is None or version == latest.version:
        return source.snapshot_of(latest)
    if version > latest.version:
        raise InTheFutureError(
            f"{location} has no version {version}: its latest is {latest.version}."
        )
    if version < 0:
        raise NotFoundError(f"{location} has no version {version}.", remedy="Versions begin at 0.")
    return source.snapshot_of(source.state(version, None))


def refresh(snapshot: Snapshot, catalog: ManagingCatalog | None = None) -> Snapshot:
    """Give the latest version, made from this one; the same object if nothing is new.

    The catalog is asked each time: that nothing was unpublished before says nothing now.
    """
    if snapshot.table_id is None or catalog is None:
        return _Plain(snapshot.location, DeltaLog(snapshot.store)).refreshed(snapshot)
    resolved = catalog.resolve(snapshot.table_id)
    if resolved.latest == snapshot.version:
        return snapshot
    source = _Managed(catalog, resolved, DeltaLog(snapshot.store))
    if resolved.latest < snapshot.version:
        raise InvariantError(
            f"{source.label} went back from version {snapshot.version} to {resolved.latest}."
        )
    return source.snapshot(resolved.latest, snapshot)


class _UnusableEntryError(Exception):
    """A file that the plan relied on is not there, or not what its name says."""

    def __init__(self, entry: PublishedCommit | Compaction) -> None:
        self.path = entry.path
        super().__init__(entry.path)


class _Source:
    """What managed and plain tables have in common: a segment is planned, read, replayed."""

    def __init__(self, label: str, log: DeltaLog) -> None:
        self.label = label
        self.log = log
        self.listing: list[Listed] | None = None
        self.held: dict[Version, RatifiedCommit] = {}
        self.known: list[KnownFile] = []
        self.named: set[Version] = set()  # commits taken to be published under their names
        self.without: set[str] = set()  # files that turned out to be unusable

    def fill(self, gap: Gap, *, from_base: bool) -> bool:
        """Look for what is missing; say whether there was still somewhere to look."""
        raise NotImplementedError

    def missing(self, version: Version, gap: Gap) -> Exception:
        """Say that a version cannot be read."""
        raise NotImplementedError

    def state(self, version: Version, base: Snapshot | None) -> TableState:
        """Plan, read and replay; what turns out to be unusable is planned without. Spec: RD-06."""
        while True:
            segment = plan(
                version,
                ratified=self.held.values(),
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
            except UnusableError:
                assert isinstance(segment, Segment)
                assert segment.checkpoint is not None
                self.without.update(segment.checkpoint.paths)
            except _UnusableEntryError as error:
                self.without.add(error.path)

    def read(self, segment: Segment, base: Snapshot | None) -> TableState:
        if segment.base is not None:
            assert base is not None
            state = base.state
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
        else:
            state = replay.EMPTY
        contents = self.contents(segment.entries)
        return _replayed(self.label, state, segment.entries, contents)

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
            raise _UnusableEntryError(entry) from None

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
        raise InvariantError(f"{said} {where} is gone and no published file holds its bytes.")

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

    def version_at(self, at_ms: int, latest: Version, metadata: Metadata) -> Version:
        """Find the last version committed not after a time. Spec: CM-38."""
        enabled = timestamps.enablement(metadata.configuration)
        if metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
            return self._version_by_file_time(at_ms, latest)
        if enabled is None:
            return self._version_by_commit_time(at_ms, Version(0), latest)
        if at_ms < enabled.timestamp_ms:
            return self._version_by_file_time(at_ms, Version(enabled.version - 1))
        return self._version_by_commit_time(at_ms, enabled.version, latest)

    def in_commit_timestamp(self, version: Version) -> int | None:
        """Say when a commit was made; None if nobody holds it any more."""
        content = self.log.read_published(version)
        return None if content is None else _in_commit_timestamp(content)

    def _version_by_commit_time(self, at_ms: int, first: Version, last: Version) -> Version:
        """Search by halves: timestamps rise strictly, and only the oldest can be gone."""

        def is_after(version: int) -> bool:
            timestamp_ms = self.in_commit_timestamp(Version(version))
            return timestamp_ms is not None and timestamp_ms > at_ms

        found = Version(bisect_left(range(first, last + 1), True, key=is_after) + first - 1)
        if found < first or self.in_commit_timestamp(found) is None:
            raise VersionGoneError(
                f"{self.label} has no version left that is as old as {at_ms} ms.",
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


class _Managed(_Source):
    """A table whose catalog says what its versions are."""

    def __init__(self, catalog: ManagingCatalog, resolved: Resolved, log: DeltaLog) -> None:
        super().__init__(resolved.name or resolved.table_id, log)
        self._catalog = catalog
        self._resolved = resolved
        self._has_asked = False
        self.held = {commit.version: commit for commit in resolved.commits}
        self.known = [f for f in (resolved.checkpoint, *resolved.compactions) if f is not None]

    def snapshot(self, version: Version, base: Snapshot | None = None) -> Snapshot:
        if base is not None and base.version == version:
            return base
        resolved = self._resolved
        state = _readable(_known(self.state(version, base), self.label), self.label)
        named = cast("Metadata", state.metadata).configuration.get(TABLE_ID_PROPERTY)
        if named not in (None, resolved.table_id):
            raise InvariantError(
                f"The log of {self.label} is that of table {named}, not of {resolved.table_id}."
            )
        commit = self.held.get(version)
        timestamp_ms = None if commit is None else commit.timestamp_ms
        if version == resolved.latest:
            _hold_against(resolved.checksum, state, self.label)
            timestamp_ms = resolved.timestamp_ms
        return Snapshot(
            location=resolved.location,
            store=self.log.store,
            state=state,
            table_id=resolved.table_id,
            name=resolved.name,
            timestamp_ms=timestamp_ms,
        )

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
        nameless = set(map(Version, range(gap.first, gap.last + 1))) - self.named
        if nameless and (len(nameless) <= _BY_NAME or self.listing is not None):
            self.named |= nameless
            return True
        if from_base or self.listing is not None:
            return False
        self.listing = self.log.list()
        return True

    def missing(self, version: Version, gap: Gap) -> Exception:
        if gap.first == 0 and version < self._resolved.latest:
            return _gone(self.label, version, gap)
        return InvariantError(
            f"{self.label} version {version} cannot be read: of versions {gap.first} to "
            f"{gap.last} neither the catalog nor the log has the content."
        )

    def at(self, at_ms: int) -> Version:
        latest = self._resolved.latest
        if at_ms >= self._resolved.timestamp_ms:
            return latest
        metadata = self._resolved.metadata
        if metadata is None:
            metadata = cast("Metadata", _known(self.state(latest, None), self.label).metadata)
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


class _Plain(_Source):
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

    def snapshot_of(self, state: TableState) -> Snapshot:
        state = _readable(_known(state, self.label), self.label)
        return Snapshot(location=self.label, store=self.log.store, state=state)

    def refreshed(self, snapshot: Snapshot) -> Snapshot:
        self.listing = self.log.list(Version(snapshot.version + 1))
        latest = self.latest = self._newest(snapshot.version)
        if latest == snapshot.version:
            return snapshot
        state = self.state(latest, snapshot)
        self.refuse_managed(state)
        return self.snapshot_of(state)

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
        if gap.first == 0 and version < self.latest:
            return _gone(self.label, version, gap)
        return MalformedError(
            f"The log of {self.label} has a gap: version {version} cannot be read without "
            f"versions {gap.first} to {gap.last}."
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
        lake = self._lake()
        within = "" if lake is None else f" of the lake at {lake}"
        address = "ADDRESS" if lake is None else repr(str(lake))
        raise PathAccessError(
            f"{self.label} is catalog-managed: it is table {table_id}{within}.",
            remedy=f"Open it through its catalog: headgate.connect({address}).table(NAME).",
        )

    def _lake(self) -> Path | None:
        local = self.log.store.local_path(LAST_CHECKPOINT)
        if local is None:
            return None
        return next((p for p in Path(local).parents if (p / "headgate.db").is_file()), None)


def _replayed(
    label: str, state: TableState, entries: Sequence[Entry], contents: Sequence[bytes]
) -> TableState:
    """Decode many commits in one go: which of them an action came with makes no difference."""
    at = 0
    while at < len(entries):
        stop, size = at, 0
        while stop < len(entries) and size < _JOINED_BYTES:
            size += len(contents[stop])
            stop += 1
        try:
            actions = decode(b"\n".join(contents[at:stop]))
        except MalformedError:
            _blame(label, entries[at:stop], contents[at:stop])
            raise
        state = replay.apply(state, _last(entries[stop - 1]), actions)
        at = stop
    if not entries:
        return state
    # The timestamp is the last commit's own; one without must not be given an earlier one's.
    own = None if isinstance(entries[-1], Compaction) else _in_commit_timestamp(contents[-1])
    return replace(state, timestamp_ms=own)


def _blame(label: str, entries: Sequence[Entry], contents: Sequence[bytes]) -> None:
    """Say which of several entries cannot be decoded."""
    for entry, content in zip(entries, contents, strict=True):
        try:
            decode(content)
        except MalformedError as error:
            if isinstance(entry, Compaction):  # the commits themselves are there
                raise _UnusableEntryError(entry) from error
            raise MalformedError(
                f"{label} version {entry.version} cannot be read: {error.message}",
                remedy="Run `headgate fsck` and report what it finds.",
            ) from error


def _by_partitions(files: pa.Table, names: Sequence[str], pruner: Pruner) -> pa.Table:
    """Leave out files by their partition values, judging each combination of values once."""
    if not names or not files.num_rows:
        return files
    columns = [_partition_column(files["partition_values"], name) for name in names]
    values = pa.table(columns, list(names))
    distinct = values.group_by(list(names)).aggregate([])
    kept = [combination for combination in distinct.to_pylist() if pruner.may_match(combination)]
    if len(kept) == distinct.num_rows:
        return files
    return files.filter(_is_among(values, kept))


def _partition_column(maps: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    chunks = [_mapped(chunk, name) for chunk in maps.chunks]
    return pa.chunked_array(chunks, pa.string())


def _mapped(maps: pa.MapArray, name: str) -> pa.Array:
    """Look a key up in every map; nearly always all have the same keys in the same order."""
    width = len(maps[0]) if len(maps) and maps[0].is_valid else 0
    start, stop = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    if width and not maps.null_count and stop - start == width * len(maps):
        keys = pa.FixedSizeListArray.from_arrays(maps.keys.slice(start, stop - start), width)
        place = next((i for i, key in enumerate(keys[0].as_py()) if key == name), None)
        if place is not None and pc.all(pc.equal(pc.list_element(keys, place), name)).as_py():
            items = pa.FixedSizeListArray.from_arrays(maps.items.slice(start, stop - start), width)
            return pc.list_element(items, place)
    return pc.map_lookup(maps, name, "first")


def _is_among(values: pa.Table, kept: Sequence[Mapping[str, str | None]]) -> pa.ChunkedArray:
    # Lengths before values and a mark for null: two combinations never come to one text.
    def spelled(value: str | None) -> str:
        return "-" if value is None else f"{len(value.encode())}:{value}"

    texts = [
        pc.if_else(
            pc.is_null(column),
            "-",
            pc.binary_join_element_wise(pc.binary_length(column).cast(pa.string()), column, ":"),
        )
        for column in values.columns
    ]
    wanted = ["".join(map(spelled, combination.values())) for combination in kept]
    joined = pc.binary_join_element_wise(*texts, "")
    return pc.is_in(joined, value_set=pa.array(wanted, pa.string()))


def _by_statistics(files: pa.Table, pruner: Pruner, *, with_partitions: bool) -> pa.Table:
    """Leave out files by their statistics, some at a time."""
    kept: list[int] = []
    for at in range(0, files.num_rows, _JUDGED):
        some = files.slice(at, _JUDGED)
        texts = some["stats"].to_pylist()
        maps = some["partition_values"].to_pylist() if with_partitions else [()] * len(texts)
        kept.extend(
            at + row
            for row, (values, text) in enumerate(zip(maps, texts, strict=True))
            if _may_match_file(pruner, dict(values or ()), text)
        )
    return files if len(kept) == files.num_rows else files.take(pa.array(kept, pa.int64()))


def _may_match(pruner: Pruner, add: AddFile) -> bool:
    return _may_match_file(pruner, add.partition_values, add.stats)


def _may_match_file(
    pruner: Pruner, partition_values: Mapping[str, str | None], stats: str | None
) -> bool:
    found = parse_statistics(stats)
    return pruner.may_match(
        partition_values, found.min_values, found.max_values, found.null_count, found.num_records
    )


def _last(entry: Entry) -> Version:
    return entry.last if isinstance(entry, Compaction) else entry.version


def _is_ratified(content: bytes, commit: RatifiedCommit) -> bool:
    return len(content) == commit.size and (hashlib.sha256(content).hexdigest() == commit.sha256)


def _in_commit_timestamp(content: bytes) -> int | None:
    # `commitInfo` is the first action where in-commit timestamps are active.
    line = next(iter(decode(content.partition(b"\n")[0])), None)
    return (
        None if line is None or line.commit_info is None else line.commit_info.in_commit_timestamp
    )


def _known(state: TableState, label: str) -> TableState:
    """Refuse a state that does not say what table it is."""
    if state.protocol is None or state.metadata is None:
        raise MalformedError(f"The log of {label} has no protocol or no metadata.")
    return state


def _readable(state: TableState, label: str) -> TableState:
    """Refuse a state that asks more of its readers than we know, at that version."""
    if unknown := features.unreadable(cast("Protocol", state.protocol)):
        raise UnsupportedFeatureError(
            f"{label} version {state.version} needs {', '.join(unknown)} of its readers."
        )
    return state


def _hold_against(checksum: VersionChecksum | None, state: TableState, label: str) -> None:
    """Hold a snapshot against what the catalog says it must come to. Spec: RD-03."""
    if checksum is None:
        return
    said = (checksum.num_files, checksum.table_size_bytes)
    if (state.num_files, state.size_in_bytes) != said:
        raise InvariantError(
            f"{label} version {state.version} came to {state.num_files} files of "
            f"{state.size_in_bytes} bytes; its checksum says {said[0]} of {said[1]}."
        )


def _gone(label: str, version: Version, gap: Gap) -> VersionGoneError:
    return VersionGoneError(
        f"{label} version {version} can no longer be read: versions {gap.first} to {gap.last} "
        "were cleaned out of its log."
    )
