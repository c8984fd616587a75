"""Upkeep of a table's log by its client: checkpoints and version checksums.

A checkpoint stands only on a published version; a checksum may come before. The catalog is told of
both, so that readers need not look for them. Neither needs the catalog's permission.
"""

from __future__ import annotations

from headgate.api.port import ManagingCatalog, Publishing
from headgate.client.transaction import content_of
from headgate.clock import Clock, Ids
from headgate.errors import InvalidArgumentError, NotPublishedError
from headgate.protocol.actions import TableId
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import Checksum
from headgate.table.checkpoint_writer import Form, write_checkpoint
from headgate.table.checkpoint_writer import write_checksum as put_checksum
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot


def checkpoint(
    catalog: ManagingCatalog,
    table_id: TableId,
    snapshot: Snapshot,
    kind: str | None,
    clock: Clock,
    ids: Ids,
) -> KnownFile:
    """Write a checkpoint of a published version and tell the catalog. Spec: CM-27, RD-04."""
    form = None if kind is None else _form(kind)
    refuse_if_unpublished(catalog, table_id, snapshot)
    written = write_checkpoint(
        snapshot.store,
        snapshot.state,
        table=snapshot.label,
        now_ms=clock.now_ms(),
        new_uuid=ids.random,
        form=form,
    )
    _tell(catalog, table_id, written)
    return written


def write_checksum(catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot) -> None:
    """Write `<v>.crc`, of a version published or not, and tell the catalog. Spec: CM-29."""
    version = snapshot.version
    # Who comes second would write the same: a version never changes.
    put_checksum(snapshot.store, version, checksum_of(snapshot))
    path = Checksum(version).path
    _tell(
        catalog,
        table_id,
        KnownFile(kind=FileKind.CHECKSUM, first=version, last=version, paths=(path,)),
    )


def checksum_of(snapshot: Snapshot) -> VersionChecksum:
    """Sum a snapshot up, by what its log holds and not by what the catalog counted."""
    state = snapshot.state
    return VersionChecksum(
        table_size_bytes=state.size_in_bytes,
        num_files=state.num_files,
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


def _form(kind: str) -> Form:
    try:
        return Form(kind)
    except ValueError:
        raise InvalidArgumentError(
            f"There is no checkpoint of kind {kind!r}.",
            remedy=f"Name one of {', '.join(form.value for form in Form)}.",
        ) from None


def _tell(catalog: ManagingCatalog, table_id: TableId, file: KnownFile) -> None:
    if isinstance(catalog, Publishing):  # in others readers find it by listing
        catalog.add_file(table_id, file)
