"""Compose the stored content of an inline commit, once its version and timestamp are known."""

import msgspec

from headgate.errors import InvariantError
from headgate.protocol.actions import AddFile, DomainMetadata, TxnId, Version, encode, join
from headgate.protocol.commit import row_ids
from headgate.protocol.commit.examination import Examined


def compose(
    examined: Examined,
    *,
    txn_id: TxnId,
    timestamp_ms: int,
    version: Version,
    row_id_high_water: int | None,
) -> tuple[bytes, int | None]:
    """Compose the content of an inline commit for a version; also return the new high-water mark.

    The catalog writes the `commitInfo` line; all others are stored byte for byte. On a table with
    row tracking (`row_id_high_water` is given, -1 if there are no ids yet) new files get row ids.
    Spec: CM-41.
    """
    if not examined.is_inline:
        raise InvariantError("Only the content of an inline commit is composed.")
    first = _info_line(examined, txn_id, timestamp_ms)
    if row_id_high_water is None:
        return join([first, *[line.raw for line in examined.lines]]), None
    lines, mark = _with_row_ids(examined, version, row_id_high_water)
    return join([first, *lines]), mark


def _info_line(examined: Examined, txn_id: TxnId, timestamp_ms: int) -> bytes:
    own: dict[str, object] = {"inCommitTimestamp": timestamp_ms, "txnId": txn_id}
    if "timestamp" not in examined.commit_info:
        own["timestamp"] = timestamp_ms
    head, rest = msgspec.json.encode(own), examined.commit_info_rest
    # Both are objects without a common key, so their members can be joined.
    return b'{"commitInfo":%b%b%b}' % (head[:-1], b"," if len(rest) > len(b"{}") else b"", rest[1:])


def _with_row_ids(examined: Examined, version: Version, mark: int) -> tuple[list[bytes], int]:
    bounds = iter(examined.bounds)
    lines: list[bytes] = []
    is_marked = False
    for line in examined.lines:
        match line.action:
            case AddFile() as add:
                records = next(bounds).num_records
                if add.base_row_id is not None:
                    lines.append(line.raw)
                    continue
                if records is None:
                    raise InvariantError(f"{add.path!r} has no numRecords and needs row ids.")
                lines.append(_with_fields(line.raw, mark + 1, version))
                mark += records
                is_marked = True
            case DomainMetadata(domain=domain) if domain == row_ids.DOMAIN:
                is_marked = True  # replaced below
            case _:
                lines.append(line.raw)
    if is_marked:
        lines.append(encode(row_ids.domain_for(mark)))
    return lines, mark


def _with_fields(raw: bytes, base_row_id: int, version: Version) -> bytes:
    body = _line_of_raws.decode(raw)
    # Values keep their spelling; only blanks between the members may be lost.
    body["add"]["baseRowId"] = msgspec.Raw(b"%d" % base_row_id)
    body["add"]["defaultRowCommitVersion"] = msgspec.Raw(b"%d" % version)
    return msgspec.json.encode(body)


_line_of_raws = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
