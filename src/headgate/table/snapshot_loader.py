"""Load snapshots: by name through a catalog or by path, the latest version or an earlier one.

A later snapshot is built from an earlier one and costs what the new commits hold. If the catalog's
answer has protocol and metadata, the log is read only when files are asked for. Spec: RD-01, CM-22.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from headgate import errors
from headgate.api.messages import RatifiedCommit, Resolved
from headgate.api.port import ManagingCatalog, Ref
from headgate.protocol.actions import Metadata, Protocol, Version
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.encoding import replaced
from headgate.protocol.log import checksums
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.replay import TableState
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.storage.locations import store_for as default_store_for
from headgate.storage.object_store import ObjectStore
from headgate.table import log_state
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import LazyState, Snapshot, Unread
from headgate.table.snapshot_cache import SnapshotCache

_log = logging.getLogger(__name__)

StoreFor = Callable[[str], ObjectStore]

_MAX_UNREAD: Final = 32  # commits kept by an unread snapshot; the catalog is asked for others
_NEAR: Final = 64  # up to so many commits are read rather than a checkpoint above the base


def resolve(catalog: ManagingCatalog, ref: Ref, sequence: SequenceNumber | None = None) -> Resolved:
    """Resolve a table, now or as of a sequence."""
    resolved = catalog.resolve(ref, sequence)
    if sequence is not None and resolved.sequence != sequence:  # it would be another moment
        raise errors.UnsupportedByCatalogError("This catalog has no sequences.")
    return resolved


def load(
    catalog: ManagingCatalog,
    table: Ref | Resolved,
    *,
    version: Version | None = None,
    as_of_ms: int | None = None,
    sequence: SequenceNumber | None = None,
    base: Snapshot | None = None,
    cache: SnapshotCache | None = None,
    store_for: StoreFor = default_store_for,
) -> Snapshot:
    """Load a table through its catalog: the latest version, or as of a version, time or sequence.

    A table that was resolved already, such as in a cut over several tables, is not resolved again.
    `base` and the snapshots in `cache` are earlier versions to start from. Spec: RD-01, RD-04.
    """
    resolved = table if isinstance(table, Resolved) else resolve(catalog, table, sequence)
    if not resolved.catalog_managed:
        return load_path(resolved.location, version=version, as_of_ms=as_of_ms, store_for=store_for)
    source = log_state.ManagedSource(catalog, resolved, DeltaLog(store_for(resolved.location)))
    if as_of_ms is not None:
        version = source.at(as_of_ms)
    elif version is None:
        version = resolved.latest
    _refuse_missing_version(source.label, version, resolved.latest)
    if base is not None and (base.table_id != resolved.table_id or base.version > version):
        base = None
    if cache is None:
        return _managed(catalog, source, resolved, version, base)
    cached = cache.newest(resolved.table_id, version)
    if (
        cached is not None
        and (base is None or cached.version > base.version)
        and _is_near(cached, version, resolved)
        and _is_still_valid(cached, source)
    ):
        base = cached
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
    """Load a plain table by its path; refuse a catalog-managed one. Spec: RD-02."""
    source = log_state.PlainSource(location, DeltaLog(store_for(location)))
    last = source.latest
    try:
        latest = source.state(last, None)
    except (errors.MalformedError, errors.VersionGoneError):
        if as_of_ms is not None:
            version = source.version_below_damage(as_of_ms)
        if version is None or not 0 <= version < last:
            raise
        source.refuse_managed(source.damaged_latest(version))
    else:
        source.refuse_managed(latest)
        if as_of_ms is not None:
            _, metadata = log_state.complete(latest, location)
            version = source.version_at(as_of_ms, last, metadata)
        if version is None or version == last:
            return _plain(source, latest)
    _refuse_missing_version(location, version, last)
    return _plain(source, source.state(version, None))


def _refuse_missing_version(label: str, version: Version, latest: Version) -> None:
    if version > latest:
        raise errors.InTheFutureError(f"{label} has no version {version}: its latest is {latest}.")
    if version < 0:
        raise errors.NotFoundError(
            f"{label} has no version {version}.", remedy="Versions begin at 0."
        )


def follow(
    catalog: ManagingCatalog,
    base: Snapshot,
    commits: Sequence[RatifiedCommit],
    *,
    protocol: Protocol,
    metadata: Metadata,
    checksum: VersionChecksum | None,
) -> Snapshot:
    """Return the snapshot of a managed table after the commits that follow another snapshot."""
    assert base.answer is not None
    unread, held_from = (*base.unread_commits, *commits), base.answer.held_from
    resolved = replaced(
        base.answer,
        latest=unread[-1].version,
        timestamp_ms=unread[-1].timestamp_ms,
        # A bounded number: a client may commit for days without reading the table.
        commits=unread[-_MAX_UNREAD:],
        held_from=unread[0].version if held_from is None else held_from,
        protocol=protocol,
        metadata=metadata,
        checksum=checksum,
        checksum_file=None,
    )
    return _unread(
        catalog, resolved, protocol, metadata, DeltaLog(base.store), base.state_in_memory
    )


def _managed(
    catalog: ManagingCatalog,
    source: log_state.ManagedSource,
    resolved: Resolved,
    version: Version,
    base: Snapshot | None,
) -> Snapshot:
    if base is not None and (base.version, base.name) == (version, resolved.name):
        seen = resolved.sequence if version == resolved.latest else None
        is_later = seen is not None and base.sequence is not None and base.sequence < seen
        return base.at_sequence(seen) if seen is not None and is_later else base
    before = None if base is None else base.state_in_memory
    if (
        version == resolved.latest
        and resolved.protocol is not None
        and resolved.metadata is not None
    ):
        return _unread(catalog, resolved, resolved.protocol, resolved.metadata, source.log, before)
    state, protocol, metadata = _read(source, resolved, version, before)
    return _snapshot(resolved, source.log, version, protocol, metadata, state)


def _unread(
    catalog: ManagingCatalog,
    resolved: Resolved,
    protocol: Protocol,
    metadata: Metadata,
    log: DeltaLog,
    before: TableState | None,
) -> Snapshot:
    """Return the latest version as the catalog answered it, without reading its log."""
    label, version = resolved.name or resolved.table_id, resolved.latest
    log_state.refuse_unreadable(protocol, label, version)
    _refuse_other_table(metadata, resolved, label)

    def read() -> TableState:
        # A new source for each attempt: a file that was missing once may exist the next time.
        return _read(log_state.ManagedSource(catalog, resolved, log), resolved, version, before)[0]

    unread = Unread(resolved.checksum, resolved.commits, before, read)
    return _snapshot(resolved, log, version, protocol, metadata, unread)


def _snapshot(
    resolved: Resolved,
    log: DeltaLog,
    version: Version,
    protocol: Protocol,
    metadata: Metadata,
    held: TableState | Unread,
) -> Snapshot:
    is_latest = version == resolved.latest
    checksum = resolved.checksum if is_latest else None
    timestamps = {commit.version: commit.timestamp_ms for commit in resolved.commits}
    return Snapshot(
        location=resolved.location,
        store=log.store,
        version=version,
        protocol=protocol,
        metadata=metadata,
        lazy_state=LazyState(held),
        table_id=resolved.table_id,
        name=resolved.name,
        committed_ms=resolved.timestamp_ms if is_latest else timestamps.get(version),
        answer=replaced(resolved, latest=version, commits=(), checksum=checksum),
        sequence=resolved.sequence,
    )


def _read(
    source: log_state.ManagedSource, resolved: Resolved, version: Version, before: TableState | None
) -> tuple[TableState, Protocol, Metadata]:
    state = source.state(version, before)
    protocol, metadata = log_state.readable(state, source.label)
    _refuse_other_table(metadata, resolved, source.label)
    is_latest = version == resolved.latest
    if is_latest:
        _check_against_catalog(resolved, state, source.label)
    if not is_latest or resolved.checksum is None:  # else the catalog's count makes it superfluous
        _check_against_file(source.checksum(state.version), state, source.label)
    return state, protocol, metadata


def _refuse_other_table(metadata: Metadata, resolved: Resolved, label: str) -> None:
    found_id = metadata.configuration.get(TABLE_ID_PROPERTY)
    if found_id not in (None, resolved.table_id):
        raise errors.InvariantError(
            f"The log of {label} belongs to table {found_id}, not to {resolved.table_id}."
        )


def _plain(source: log_state.PlainSource, state: TableState) -> Snapshot:
    protocol, metadata = log_state.readable(state, source.label)
    _check_against_file(source.checksum(state.version), state, source.label)
    return Snapshot(
        location=source.label,
        store=source.log.store,
        version=state.version,
        protocol=protocol,
        metadata=metadata,
        lazy_state=LazyState(state),
    )


def _is_near(snapshot: Snapshot, version: Version, resolved: Resolved) -> bool:
    """Return True if starting from a snapshot reads less than starting at the newest checkpoint."""
    checkpoint = resolved.checkpoint
    if checkpoint is None or checkpoint.last > version:
        return True
    return snapshot.version >= checkpoint.last or version - snapshot.version <= _NEAR


def _is_still_valid(snapshot: Snapshot, source: log_state.ManagedSource) -> bool:
    """Return True if a snapshot's version is still the same commit."""
    # A catalog that was restored from a backup gives the versions it lost to other, later commits.
    # A version that was cleaned up since is gone, even if it is in memory.
    timestamp_ms = snapshot.known_timestamp_ms
    return timestamp_ms is not None and source.in_commit_timestamp(snapshot.version) == timestamp_ms


# A difference between the state read from a log and what the catalog or the log's checksum declares
# is logged and does not stop readers: every commit was verified by its hash, so it is the declared
# sum that is wrong, and a writer who declared one must not lock out all readers.


def _check_against_catalog(resolved: Resolved, state: TableState, label: str) -> None:
    """Log an error if a state differs from the catalog's answer. Spec: RD-03, CM-22."""
    checksum = resolved.checksum
    if checksum is not None:
        declared = (checksum.num_files, checksum.table_size_bytes)
        if (state.num_files, state.size_in_bytes) != declared:
            _log.error(
                "%s version %d has %d files of %d bytes, but its checksum declares %d of %d: "
                "run `headgate fsck --repair`",
                label,
                state.version,
                state.num_files,
                state.size_in_bytes,
                *declared,
            )
    if resolved.protocol is None or resolved.metadata is None:
        return
    if found := checksums.differences(resolved.protocol, resolved.metadata, state):
        _log.error(
            "the log of %s has %s at version %d than its catalog: run `headgate fsck`",
            label,
            " and ".join(found),
            state.version,
        )


def _check_against_file(checksum: VersionChecksum | None, state: TableState, label: str) -> None:
    """Log a warning if a state differs from the `<v>.crc` of its version."""
    if checksum is not None and (found := checksums.mismatches(checksum, state)):
        _log.warning(
            "%s version %d does not agree with its .crc: %s",
            label,
            state.version,
            " and ".join(found),
        )
