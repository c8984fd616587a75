"""Upkeep of a table's log by its client: checkpoints and version checksums.

A checkpoint stands only on a published version; a checksum may come before. The catalog is told of
both, so that readers need not look for them. Both are among the jobs that need no permission.
"""

from __future__ import annotations

from headgate.client.transaction import content_of
from headgate.clock import Ids
from headgate.errors import InvalidArgumentError, NotPublishedError
from headgate.log import checkpoints
from headgate.log.files import DeltaLog
from headgate.log.snapshots import Snapshot
from headgate.protocol import checksums
from headgate.protocol.actions import TableId
from headgate.protocol.catalog_port import FileKind, KnownFile, ManagingCatalog, Publishing
from headgate.protocol.checksums import VersionChecksum
from headgate.protocol.paths import Checksum

KINDS = ("classic", "v2")


def checkpoint(
    catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot, kind: str, ids: Ids
) -> None:
    """Write a checkpoint of a published version and tell the catalog. Spec: CM-27, RD-04."""
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"There is no checkpoint of kind {kind!r}.", remedy=f"Name one of {', '.join(KINDS)}."
        )
    refuse_if_unpublished(catalog, table_id, snapshot)
    paths = checkpoints.write_checkpoint(snapshot, kind, ids)
    _tell(catalog, table_id, snapshot, FileKind.CHECKPOINT, paths)


def write_checksum(catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot) -> None:
    """Write `<v>.crc`, of a version published or not, and tell the catalog. Spec: CM-29."""
    path = Checksum(snapshot.version).path
    # Who comes second would write the same: a version never changes.
    snapshot.store.put_if_absent(path, checksums.to_bytes(checksum_of(snapshot)))
    _tell(catalog, table_id, snapshot, FileKind.CHECKSUM, (path,))


def checksum_of(snapshot: Snapshot) -> VersionChecksum:
    """Sum a snapshot up."""
    return VersionChecksum(
        table_size_bytes=snapshot.size_in_bytes,
        num_files=snapshot.num_files,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        in_commit_timestamp_opt=snapshot.timestamp_ms,
        set_transactions=tuple(snapshot.set_transactions.values()),
        domain_metadata=tuple(snapshot.domains.values()),
    )


def refuse_if_unpublished(catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot) -> None:
    """Refuse what needs `<v>.json` in the log, with the bytes that were ratified. Spec: CM-27."""
    version = snapshot.version
    log = DeltaLog(snapshot.store)
    published = log.read_published(version)
    held = catalog.ratified_commits(table_id, version, version).commits
    if published is None or any(content_of(log, commit) != published for commit in held):
        raise NotPublishedError(snapshot.label, version)


def _tell(
    catalog: ManagingCatalog,
    table_id: TableId,
    snapshot: Snapshot,
    kind: FileKind,
    paths: tuple[str, ...],
) -> None:
    if isinstance(catalog, Publishing):  # others find it by listing
        version = snapshot.version
        catalog.add_file(table_id, KnownFile(kind=kind, first=version, last=version, paths=paths))
