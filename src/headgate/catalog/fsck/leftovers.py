"""Files and folders that belong to no table of a catalog.

Unknown folders are left by a catalog that was restored from a backup older than the table, by
copies, or by programs that wrote to a location after its table was purged. Nothing deletes them:
only an operator can decide whether their data is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.catalog import namespace_details
from headgate.catalog.allowed_locations import TABLES
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import TableRow
from headgate.errors import HeadgateError
from headgate.protocol.log.timestamps import moment
from headgate.protocol.table_states import TableStatus
from headgate.storage import locations
from headgate.storage.object_store import ObjectMeta, ObjectStore

_FRESH_MS: Final = 3_600_000  # the table of a younger folder may still be being created


def unknown_folders(
    store: CatalogStore, root: str, store_for: Callable[[str], ObjectStore], now_ms: int
) -> Iterator[Finding]:
    """Report folders below the root and the schemas' own locations that belong to no table."""
    with store.read() as unit:
        own = (
            namespace_details.storage_location(unit, namespace) for namespace in unit.namespaces()
        )
        roots = sorted({root, *(location for location in own if location is not None)})
    for parent in roots:
        files = store_for(parent)
        try:
            # List folders before reading the catalog: a table is recorded before it is written.
            folders = sorted(files.folders(TABLES))
        except HeadgateError as error:
            folder, says = locations.join(parent, TABLES), f"cannot be listed: {error.message}"
            yield Finding("unknown-folder", Severity.WARNING, folder, says, error.remedy)
            continue
        with store.read() as unit:
            purged = {row.location for row in unit.tables_in_state(TableStatus.PURGED)}
            unknown = [
                folder
                for folder in folders
                if (location := locations.join(parent, folder)) not in purged
                and unit.overlapping_table(location) is None
            ]
        for folder in unknown:
            content = list(files.list(folder, recursive=True))
            if not is_fresh(content, now_ms):
                yield unknown_folder(locations.join(parent, folder), content)


def is_fresh(files: Iterable[ObjectMeta], now_ms: int) -> bool:
    """Return True if no file is older than it takes to create a table."""
    return all(file.modified_ms >= now_ms - _FRESH_MS for file in files)


def unknown_folder(location: str, files: list[ObjectMeta]) -> Finding:
    """Report a folder that belongs to no table of the catalog."""
    size = sum(file.size for file in files)
    return Finding(
        "unknown-folder",
        Severity.WARNING,
        location,
        f"belongs to no table of this catalog, and has {len(files)} files of {size} bytes",
        "Find out where it comes from: a table created after the backup that this catalog was "
        "restored from, another catalog, or a copy. Move it elsewhere, or delete it if it is not "
        "needed.",
    )


def never_registered(row: TableRow, *, repaired: bool) -> Finding:
    """Report a table that was staged long ago and never registered."""
    return Finding(
        "MN-02",
        Severity.WARNING,
        row.id,
        f"was staged at {moment(row.created_ms)} and never registered; its location is "
        f"{row.location}",
        "Register it, or run `headgate fsck --repair`, which deletes its files unless they are "
        "still being written. A process that keeps the lake open deletes them by itself.",
        repaired=repaired,
    )


def files_of_purged_table(row: TableRow, store: ObjectStore) -> Iterator[Finding]:
    """Report files that were written to the location of a table after it was purged."""
    files = list(store.list("", recursive=True))
    if files:
        size = sum(item.size for item in files)
        yield Finding(
            "CM-40",
            Severity.WARNING,
            row.id,
            f"is purged, but {len(files)} files of {size} bytes were written to its location "
            "afterwards",
            f"Find out what wrote them, then delete the files below {row.location}.",
            path=min(item.path for item in files),
        )
