"""Version checksums (`<v>.crc`), computed from the checksum of the version before."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from headgate.errors import MalformedError
from headgate.protocol import actions
from headgate.protocol.data_paths import normal_path
from headgate.protocol.log.replay import TableState


def _one() -> int:
    return 1


class VersionChecksum(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The content of `<v>.crc`."""

    table_size_bytes: int
    num_files: int
    # By a factory, since a plain default would be left out when written, and both are required.
    num_metadata: int = msgspec.field(default_factory=_one)
    num_protocol: int = msgspec.field(default_factory=_one)
    metadata: actions.Metadata
    protocol: actions.Protocol
    txn_id: str | None = None
    in_commit_timestamp_opt: int | None = None
    set_transactions: tuple[actions.SetTransaction, ...] | None = None
    domain_metadata: tuple[actions.DomainMetadata, ...] | None = None


_decoder = msgspec.json.Decoder(VersionChecksum)


def parse(content: bytes) -> VersionChecksum:
    """Read a `.crc` file."""
    try:
        checksum = _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"A version checksum cannot be read: {error}.") from error
    if checksum.num_metadata != 1 or checksum.num_protocol != 1:
        raise MalformedError("A version checksum must count one metaData and one protocol.")
    return checksum


def advance(
    before: VersionChecksum,
    *,
    adds: Sequence[actions.AddFile] = (),
    removes: Sequence[actions.RemoveFile] = (),
    metadata: actions.Metadata,
    protocol: actions.Protocol,
    domains: Iterable[actions.DomainMetadata] = (),
) -> VersionChecksum | None:
    """Compute a version's checksum from the one before; None if that needs the whole table."""
    files = files_after(FileTotals(before.num_files, before.table_size_bytes), adds, removes)
    if files is None:
        return None
    listed = before.domain_metadata
    return VersionChecksum(
        table_size_bytes=files.size_bytes,
        num_files=files.num_files,
        metadata=metadata,
        protocol=protocol,
        domain_metadata=None if listed is None else merged_domains(listed, domains),
    )


def mismatches(checksum: VersionChecksum, state: TableState) -> list[str]:
    """List the differences between a state and its version's checksum."""
    found = []
    if checksum.num_files != state.num_files:
        found.append(f"{state.num_files} files, not {checksum.num_files}")
    if checksum.table_size_bytes != state.size_in_bytes:
        found.append(f"{state.size_in_bytes} bytes, not {checksum.table_size_bytes}")
    return found + differences(checksum.protocol, checksum.metadata, state)


def differences(
    protocol: actions.Protocol, metadata: actions.Metadata, state: TableState
) -> list[str]:
    """List which of protocol and metadata differ, ignoring fields that are unknown here."""
    assert state.protocol is not None
    assert state.metadata is not None
    found = ["another metaData"] if _known(metadata) != _known(state.metadata) else []
    if _unordered(protocol) != _unordered(state.protocol):
        found.append("another protocol")
    return found


def _known(metadata: actions.Metadata) -> actions.Metadata:
    # Checkpoints have no columns for unknown fields, so a state read from one lacks them.
    plain = msgspec.structs.replace(metadata.format, unknown=msgspec.UNSET)
    return msgspec.structs.replace(metadata, format=plain, unknown=msgspec.UNSET)


def _unordered(protocol: actions.Protocol) -> tuple[int, int, frozenset[str], frozenset[str]]:
    # The order of features has no meaning.
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


_GREATEST = 2**63 - 1  # other readers use signed numbers


class FileTotals(NamedTuple):
    """The number of files of a table, and their total size."""

    num_files: int
    size_bytes: int


def files_after(
    before: FileTotals | None,
    adds: Sequence[actions.AddFile],
    removes: Sequence[actions.RemoveFile],
) -> FileTotals | None:
    """Count a table's files after a commit; None if that needs more than this commit."""
    count, size_bytes = (0, 0) if before is None else before
    added = {normal_path(add.path): add.size for add in adds}
    if len(added) < len(adds):
        return None  # one path twice: which of the files is live needs the whole table
    if not removes:
        if before is not None and not all(add.data_change for add in adds):
            return None  # existing files may be added again with better statistics or ids
        return _totals(count + len(added), size_bytes + sum(added.values()))
    removed = {normal_path(remove.path): remove.size for remove in removes}
    if before is None or len(removed) < len(removes):
        return None
    # The same path on both sides is the same file with another deletion vector.
    for path in added.keys() & removed.keys():
        del added[path], removed[path]
    gone = [size for size in removed.values() if size is not None]
    if len(gone) < len(removed):
        return None
    count += len(added) - len(gone)
    size_bytes += sum(added.values()) - sum(gone)
    return _totals(count, size_bytes)


def _totals(count: int, size_bytes: int) -> FileTotals | None:
    """Return None for impossible totals: not all removed files existed, or sizes are wrong."""
    is_possible = count >= 0 and 0 <= size_bytes <= _GREATEST
    return FileTotals(count, size_bytes) if is_possible else None


def merged_domains(
    before: tuple[actions.DomainMetadata, ...], written: Iterable[actions.DomainMetadata]
) -> tuple[actions.DomainMetadata, ...]:
    """Return a table's metadata domains after a commit that wrote some."""
    merged = {domain.domain: domain for domain in (*before, *written)}
    return tuple(domain for domain in merged.values() if not domain.removed)
