"""Snapshots: one version of one table, asked for by a name or a path, at latest or in the past.

A snapshot is a value; the next one is made from it and costs what the new commits hold. The
catalog is asked first; how its answer and the log come to a state is for `gathering`. A catalog
that says what the table is spares its log until files are asked for. Spec: RD-01, CM-22.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.api.messages import RatifiedCommit, Resolved
from headgate.api.port import ManagingCatalog, Ref
from headgate.errors import (
    InTheFutureError,
    InvariantError,
    MalformedError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.protocol import features
from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    TableId,
    Version,
)
from headgate.protocol.actions import Sequence as CatalogSequence
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.file_pruning import Pruner
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.expressions.predicates import columns as columns_of
from headgate.protocol.log import checksums
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.replay import TableState
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as schemas
from headgate.protocol.schema.column_mapping import physical_path, without_mapping
from headgate.protocol.statistics import num_records
from headgate.storage.locations import store_for as default_store_for
from headgate.storage.port import ObjectStore
from headgate.table import column_pruning
from headgate.table.file_columns import add_files, ground_files, live_files
from headgate.table.log_files import DeltaLog
from headgate.table.log_state import (
    ManagedSource,
    PlainSource,
    Source,
    known,
    readable,
    refuse_unreadable,
)
from headgate.table.statistics_columns import count_rows
from headgate.table.time_travel import in_commit_timestamp

_log = logging.getLogger(__name__)

StoreFor = Callable[[str], ObjectStore]

_IN_HAND: Final = 32  # commits kept for who reads the log at last; the others are asked for then
_NEAR: Final = 64  # commits read to go on from a snapshot where a checkpoint lies between


@dataclass(frozen=True, slots=True)
class Unread:
    """A version whose catalog said what it is, and whose log is still to be read."""

    version: Version
    protocol: Protocol
    metadata: Metadata
    checksum: VersionChecksum | None  # what the catalog counted, if it did
    before: TableState | None  # an earlier version, read already
    gather: Callable[[], TableState]


class Snapshot:
    """One version of one table. Never changes; safe for many threads.

    What the catalog told is there at once. The log is read when more is asked for, once, at the
    version that was told, however late that is; then, and not before, it may fail. Spec: CM-22.
    """

    def __init__(
        self,
        *,
        location: str,
        store: ObjectStore,
        state: TableState | Unread,
        table_id: TableId | None = None,
        name: str | None = None,
        timestamp_ms: int | None = None,
        answer: Resolved | None = None,
    ) -> None:
        assert state.protocol is not None
        assert state.metadata is not None
        self.location = location
        self.store = store
        self.table_id = table_id
        self.name = name
        self.version = state.version
        self.protocol: Protocol = state.protocol
        self.metadata: Metadata = state.metadata
        self.answer = answer  # the catalog's, without the commits that were read
        # As of which the table was seen to be so: it rises while the same version is found again.
        self.sequence = None if answer is None else answer.sequence
        self._timestamp_ms = timestamp_ms
        self._held = state
        self._gathering = threading.Lock()

    @property
    def state(self) -> TableState:
        """The table as its log tells it."""
        held = self._held
        if isinstance(held, Unread):
            with self._gathering:
                held = self._held
                if isinstance(held, Unread):
                    held = self._held = held.gather()
                    assert self.answer is not None
                    self.answer = replaced(self.answer, commits=())
        return held

    @property
    def in_hand(self) -> TableState | None:
        """What was read already: this version, or an earlier one to go on from, or nothing."""
        held = self._held
        return held.before if isinstance(held, Unread) else held

    @property
    def is_gathered(self) -> bool:
        """Whether the log was read."""
        return not isinstance(self._held, Unread)

    @property
    def label(self) -> str:
        """What to call the table in messages."""
        return self.name or self.location

    @property
    def read_timestamp_ms(self) -> int | None:
        """When the version was committed, as far as that was told or read with it."""
        if self._timestamp_ms is not None or isinstance(self._held, Unread):
            return self._timestamp_ms
        return self._held.timestamp_ms

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
        return None if content is None else in_commit_timestamp(content)

    @cached_property
    def schema(self) -> schemas.StructType:
        try:
            return schemas.from_json(self.metadata.schema_string)
        except (MalformedError, UnsupportedFeatureError) as error:
            held = self._held
            file = held.metadata_file if isinstance(held, TableState) else None
            where = "as its catalog has it" if file is None else f"in {file}"
            raise type(error)(
                f"{self.label} version {self.version}: the schema {where} cannot be read:"
                f" {error.message}",
                remedy=error.remedy
                if isinstance(error, UnsupportedFeatureError)
                else "Restore the file from a backup, or read another version.",
            ) from error

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.metadata.partition_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.configuration

    @property
    def num_files(self) -> int:
        counted = self._counted
        return self.state.num_files if counted is None else counted.num_files

    @property
    def size_in_bytes(self) -> int:
        counted = self._counted
        return self.state.size_in_bytes if counted is None else counted.table_size_bytes

    @cached_property
    def set_transactions(self) -> Mapping[str, SetTransaction]:
        return self.state.transactions.merged()

    @cached_property
    def domains(self) -> Mapping[str, DomainMetadata]:
        counted = self._counted
        if counted is None or counted.domain_metadata is None:
            return self.state.domains
        return {domain.domain: domain for domain in counted.domain_metadata if not domain.removed}

    @property
    def _counted(self) -> VersionChecksum | None:
        """What the catalog counted, as long as nobody counted here."""
        held = self._held
        return held.checksum if isinstance(held, Unread) else None

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
        ground = column_pruning.by_partitions(ground, partitioning, pruner)
        if wanted - partitions:
            names = {path[0] for path in partitions if path is not None}
            ground = column_pruning.by_whole_numbers(ground, where, schema, names)
            ground = column_pruning.by_statistics(
                ground, pruner, with_partitions=bool(wanted & partitions)
            )
        return [
            *add_files(ground),
            *(add for add in added if column_pruning.may_match(pruner, add)),
        ]

    def file_columns(self, *, stats: bool = False) -> pa.Table:
        """Give all live files as Arrow columns, in no particular order."""
        return live_files(self.state, stats=True) if stats else self._columns

    @cached_property
    def num_rows(self) -> int | None:
        """The number of live rows as statistics tell it; None if those of one file do not."""
        return count_rows(self.file_columns(stats=True))

    def some_file(self) -> AddFile | None:
        """Give a file that has rows, one without deleted ones if there is; None if none has."""
        files = self.file_columns(stats=True)
        is_whole = pc.is_null(files["deletion_vector"])
        for some in (files.filter(is_whole), files.filter(pc.invert(is_whole))):
            for at in range(some.num_rows):
                [file] = add_files(some.slice(at, 1))
                deleted = file.deletion_vector.cardinality if file.deletion_vector else 0
                if (num_records(file) or 0) > deleted:
                    return file
        return None

    @cached_property
    def _columns(self) -> pa.Table:
        return live_files(self.state)


class SnapshotCache:
    """Snapshots by table id and version; those not used for longest go first."""

    def __init__(self, max_files: int = 1_000_000, max_snapshots: int = 64) -> None:
        self._max_files = max_files
        self._max_snapshots = max_snapshots
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[TableId, Version], Snapshot] = OrderedDict()

    def newest(self, table_id: TableId, version: Version) -> Snapshot | None:
        """Give the newest snapshot not above a version, to go on from."""
        with self._lock:
            held = [v for table, v in self._held if table == table_id and v <= version]
            return self._held[table_id, max(held)] if held else None

    def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of a catalog's table."""
        if snapshot.table_id is None:
            return
        key = (snapshot.table_id, snapshot.version)
        with self._lock:
            if not snapshot.is_gathered:
                # Of those that nobody read one is enough: each keeps the commits it was told of.
                for other, held in list(self._held.items()):
                    if other[0] == key[0] and not held.is_gathered:
                        del self._held[other]
            self._held[key] = snapshot
            self._held.move_to_end(key)
            files = sum(map(_files_in_hand, self._held.values()))
            while len(self._held) > 1 and (
                files > self._max_files or len(self._held) > self._max_snapshots
            ):
                files -= _files_in_hand(self._held.popitem(last=False)[1])


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
    source = ManagedSource(catalog, resolved, DeltaLog(store_for(resolved.location)))
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
    if base is not None and (base.table_id != resolved.table_id or base.version > version):
        base = None
    if cache is None:
        return _managed(catalog, source, resolved, version, base)
    found = cache.newest(resolved.table_id, version)
    if (
        found is not None
        and (base is None or found.version > base.version)
        and _is_near(found, version, resolved)
        and _is_still_there(found, source)
    ):
        base = found
    snapshot = _managed(catalog, source, resolved, version, base)
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
    source = PlainSource(location, DeltaLog(store_for(location)))
    last = source.latest
    if version is not None and 0 <= version < last:
        latest = source.latest_or_damaged(version)  # what is above it need not be sound
    else:
        latest = source.state(last, None)
    source.refuse_managed(latest)
    if as_of_ms is not None:
        metadata = known(latest, location).metadata
        version = source.version_at(as_of_ms, last, cast("Metadata", metadata))
    if version is None or version == last:
        return _plain(source, latest)
    if version > last:
        raise InTheFutureError(f"{location} has no version {version}: its latest is {last}.")
    if version < 0:
        raise NotFoundError(f"{location} has no version {version}.", remedy="Versions begin at 0.")
    return _plain(source, source.state(version, None))


def refresh(snapshot: Snapshot, catalog: ManagingCatalog | None = None) -> Snapshot:
    """Give the latest version, made from this one; the same object if nothing is new.

    The catalog is asked each time: that nothing was unpublished before says nothing now.
    """
    if snapshot.table_id is None or catalog is None:
        return _refreshed_plain(snapshot)
    resolved = catalog.resolve(snapshot.table_id)
    if resolved.latest == snapshot.version:
        return snapshot
    source = ManagedSource(catalog, resolved, DeltaLog(snapshot.store))
    if resolved.latest < snapshot.version:
        raise InvariantError(
            f"{source.label} went back from version {snapshot.version} to {resolved.latest}."
        )
    return _managed(catalog, source, resolved, resolved.latest, snapshot)


def follow(
    catalog: ManagingCatalog,
    base: Snapshot,
    commits: Sequence[RatifiedCommit],
    *,
    protocol: Protocol,
    metadata: Metadata,
    checksum: VersionChecksum | None,
) -> Snapshot:
    """Give what these commits, the next ones after a snapshot of a catalog's table, make of it."""
    assert base.answer is not None
    told, held_from = (*base.answer.commits, *commits), base.answer.held_from
    resolved = replaced(
        base.answer,
        latest=told[-1].version,
        timestamp_ms=told[-1].timestamp_ms,
        # Not all of them for ever: a handle may commit for days without a look at the table.
        commits=told[-_IN_HAND:],
        held_from=told[0].version if held_from is None else held_from,
        protocol=protocol,
        metadata=metadata,
        checksum=checksum,
        checksum_file=None,
    )
    return _unread(catalog, resolved, protocol, metadata, DeltaLog(base.store), base.in_hand)


def _managed(
    catalog: ManagingCatalog,
    source: ManagedSource,
    resolved: Resolved,
    version: Version,
    base: Snapshot | None,
) -> Snapshot:
    if base is not None and (base.version, base.name) == (version, resolved.name):
        seen = resolved.sequence if version == resolved.latest else None
        if seen is not None and base.sequence is not None:
            base.sequence = max(base.sequence, seen)
        return base
    before = None if base is None else base.in_hand
    is_latest = version == resolved.latest
    if is_latest and resolved.protocol is not None and resolved.metadata is not None:
        told = (resolved.protocol, resolved.metadata)
        return _unread(catalog, resolved, *told, source.log, before)
    commit = source.held.get(version)
    timestamp_ms = None if commit is None else commit.timestamp_ms
    checksum = None if not is_latest else resolved.checksum
    return Snapshot(
        location=resolved.location,
        store=source.log.store,
        state=_read(source, resolved, version, before),
        table_id=resolved.table_id,
        name=resolved.name,
        timestamp_ms=resolved.timestamp_ms if is_latest else timestamp_ms,
        answer=replaced(resolved, latest=version, commits=(), checksum=checksum),
    )


def _unread(
    catalog: ManagingCatalog,
    resolved: Resolved,
    protocol: Protocol,
    metadata: Metadata,
    log: DeltaLog,
    before: TableState | None,
) -> Snapshot:
    """Give the latest version as its catalog told it; nothing of its log is looked at yet."""
    label, version = resolved.name or resolved.table_id, resolved.latest
    refuse_unreadable(protocol, label, version)
    _refuse_another(metadata, resolved, label)
    gather = partial(_gathered, catalog, resolved, log, version, before)
    return Snapshot(
        location=resolved.location,
        store=log.store,
        state=Unread(version, protocol, metadata, resolved.checksum, before, gather),
        table_id=resolved.table_id,
        name=resolved.name,
        timestamp_ms=resolved.timestamp_ms,
        answer=resolved,
    )


def _gathered(
    catalog: ManagingCatalog,
    resolved: Resolved,
    log: DeltaLog,
    version: Version,
    before: TableState | None,
) -> TableState:
    # A source of its own for each try: what was missing once may be there the next time.
    return _read(ManagedSource(catalog, resolved, log), resolved, version, before)


def _read(
    source: ManagedSource, resolved: Resolved, version: Version, before: TableState | None
) -> TableState:
    state = readable(source.state(version, before), source.label)
    _refuse_another(cast("Metadata", state.metadata), resolved, source.label)
    is_latest = version == resolved.latest
    if is_latest:
        _hold_against(resolved, state, source.label)
    if not is_latest or resolved.checksum is None:  # else the catalog has counted: no file is read
        _hold_against_file(source, state)
    return state


def _refuse_another(metadata: Metadata, resolved: Resolved, label: str) -> None:
    named = metadata.configuration.get(TABLE_ID_PROPERTY)
    if named not in (None, resolved.table_id):
        raise InvariantError(
            f"The log of {label} is that of table {named}, not of {resolved.table_id}."
        )


def _plain(source: PlainSource, state: TableState) -> Snapshot:
    state = readable(state, source.label)
    _hold_against_file(source, state)
    return Snapshot(location=source.label, store=source.log.store, state=state)


def _refreshed_plain(snapshot: Snapshot) -> Snapshot:
    source = PlainSource(snapshot.location, DeltaLog(snapshot.store))
    latest = source.latest_since(snapshot.version)
    if latest == snapshot.version:
        return snapshot
    state = source.state(latest, snapshot.state)
    source.refuse_managed(state)
    return _plain(source, state)


def _hold_against(resolved: Resolved, state: TableState, label: str) -> None:
    """Hold a snapshot against what the catalog says it must come to. Spec: RD-03, CM-22.

    Said loudly, and no error: every commit was read by its hash, so it is the sum that is off,
    and a writer who declared a wrong size must not lock all readers out.
    """
    checksum = resolved.checksum
    if checksum is not None:
        said = (checksum.num_files, checksum.table_size_bytes)
        if (state.num_files, state.size_in_bytes) != said:
            _log.error(
                "%s version %d came to %d files of %d bytes; its checksum says %d of %d: "
                "run `headgate fsck --repair`",
                label,
                state.version,
                state.num_files,
                state.size_in_bytes,
                *said,
            )
    if resolved.protocol is None or resolved.metadata is None:
        return
    found = checksums.differences(
        (resolved.protocol, resolved.metadata),
        (cast("Protocol", state.protocol), cast("Metadata", state.metadata)),
    )
    if found:
        _log.error(
            "the log of %s has %s at version %d than its catalog tells: run `headgate fsck`",
            label,
            " and ".join(found),
            state.version,
        )


def _hold_against_file(source: Source, state: TableState) -> None:
    """Hold a snapshot against `<v>.crc` where that was seen: a sum that is off stops no reader."""
    checksum = source.checksum(state.version)
    if checksum is None:
        return
    found = checksums.mismatches(
        checksum,
        state.size_in_bytes,
        state.num_files,
        cast("Metadata", state.metadata),
        cast("Protocol", state.protocol),
    )
    if found:
        _log.warning(
            "%s version %d is not what its .crc says: %s",
            source.label,
            state.version,
            " and ".join(found),
        )


def _is_near(snapshot: Snapshot, version: Version, resolved: Resolved) -> bool:
    """Say whether going on from a snapshot reads less than beginning at the newest checkpoint."""
    checkpoint = resolved.checkpoint
    if checkpoint is None or checkpoint.last > version:
        return True
    return snapshot.version >= checkpoint.last or version - snapshot.version <= _NEAR


def _is_still_there(snapshot: Snapshot, source: ManagedSource) -> bool:
    """Say whether the version a snapshot was read at is still the same commit.

    A catalog that was restored from a backup gives the versions it lost to other commits, later
    ones. And what was cleaned away is gone, though it may be in memory.
    """
    read_ms = snapshot.read_timestamp_ms
    return read_ms is not None and source.in_commit_timestamp(snapshot.version) == read_ms


def _files_in_hand(snapshot: Snapshot) -> int:
    return snapshot.num_files if snapshot.is_gathered else 0
