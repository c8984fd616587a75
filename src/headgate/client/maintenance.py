"""Write checkpoints and version checksums, and report them to the catalog for its readers."""

from headgate.api.port import ManagingCatalog, Publishing
from headgate.clock import Clock, Ids
from headgate.errors import InvalidArgumentError, NotPublishedError
from headgate.protocol.actions import TableId
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import Checksum
from headgate.table.checkpoint_writer import CheckpointForm, write_checkpoint
from headgate.table.checkpoint_writer import write_checksum as put_checksum
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import ratified_content
from headgate.table.snapshot import Snapshot


def checkpoint(
    catalog: ManagingCatalog,
    table_id: TableId,
    snapshot: Snapshot,
    kind: str | None,
    clock: Clock,
    ids: Ids,
) -> KnownFile:
    """Write a checkpoint of a published version and report it. Spec: CM-27, RD-04."""
    form = None if kind is None else _form(kind)
    _require_published(catalog, table_id, snapshot)
    written = write_checkpoint(
        snapshot.store,
        snapshot.state,
        table=snapshot.label,
        now_ms=clock.now_ms(),
        new_uuid=ids.random,
        form=form,
    )
    _report(catalog, table_id, written)
    return written


def write_checksum(catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot) -> None:
    """Write `<v>.crc` of a version, published or not, and report it. Spec: CM-29."""
    version = snapshot.version
    # A second writer would write the same: a version never changes.
    put_checksum(snapshot.store, version, checksum_of(snapshot))
    path = Checksum(version).path
    _report(
        catalog,
        table_id,
        KnownFile(kind=FileKind.CHECKSUM, first=version, last=version, paths=(path,)),
    )


def checksum_of(snapshot: Snapshot) -> VersionChecksum:
    """Compute the checksum of a snapshot from its log, not from the catalog's counts."""
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


def _require_published(catalog: ManagingCatalog, table_id: TableId, snapshot: Snapshot) -> None:
    """Require `<v>.json` in the log, with the ratified bytes. Spec: CM-27."""
    version = snapshot.version
    log = DeltaLog(snapshot.store)
    published = log.read_published(version)
    held = catalog.ratified_commits(table_id, version, version).commits
    if published is None or any(ratified_content(log, commit) != published for commit in held):
        raise NotPublishedError(snapshot.label, version)


def _form(kind: str) -> CheckpointForm:
    try:
        return CheckpointForm(kind)
    except ValueError:
        raise InvalidArgumentError(
            f"{kind!r} is not a kind of checkpoint.",
            remedy=f"Use one of {', '.join(form.value for form in CheckpointForm)}.",
        ) from None


def _report(catalog: ManagingCatalog, table_id: TableId, file: KnownFile) -> None:
    if isinstance(catalog, Publishing):  # with other catalogs readers list the log
        catalog.add_file(table_id, file)
