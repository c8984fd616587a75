"""Data files of a table's latest version that are missing, and file counts that are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headgate.api.messages import Finding, Severity
from headgate.catalog.fsck.log_folder import RESTORE
from headgate.catalog.stores.rows import TableRow
from headgate.storage import locations

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_LISTED: Final = 20  # missing files that are listed one by one


def missing_data_files(
    name: str, snapshot: Snapshot, listed: Mapping[str, int]
) -> Iterator[Finding]:
    """Report data files of a snapshot that are not listed, or have another size."""
    missing = 0
    for file in snapshot.files():
        data = locations.data_path(file.path)
        if not data.is_relative or listed.get(data.value) == file.size:
            continue
        missing += 1
        if missing <= _LISTED:
            is_listed = data.value in listed
            says = f"has another size than {file.size} bytes" if is_listed else "is missing"
            yield Finding(
                "data-file", Severity.ERROR, name, says, RESTORE, snapshot.version, file.path
            )
    if missing > _LISTED:
        says = f"lacks {missing} data files in all"
        yield Finding("data-file", Severity.ERROR, name, says, RESTORE, snapshot.version)


def wrong_counts(name: str, snapshot: Snapshot, row: TableRow) -> Iterator[Finding]:
    """Report the catalog's count and total size of data files if the snapshot has others."""
    recorded = (row.num_files, row.size_bytes)
    if None not in recorded and recorded != (snapshot.num_files, snapshot.size_in_bytes):
        says = (
            f"has {snapshot.num_files} files of {snapshot.size_in_bytes} bytes, and the catalog "
            f"recorded {recorded[0]} files of {recorded[1]} bytes"
        )
        remedy = "Run `headgate fsck --repair` to correct the counts."
        yield Finding("RD-03", Severity.WARNING, name, says, remedy, snapshot.version)
