"""Folders among the tables of a lake that belong to no table of its catalog.

They are left by a catalog that was restored from a backup older than the table, by copies, or by
programs that wrote to a location after its table was purged. Nothing deletes them: only people can
tell whether their data is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.catalog import namespace_details
from headgate.catalog.allowed_locations import TABLES
from headgate.catalog.stores.port import CatalogStore
from headgate.errors import HeadgateError
from headgate.protocol.table_states import TableStatus
from headgate.storage import locations
from headgate.storage.port import ObjectMeta, ObjectStore

_FRESH_MS: Final = 3_600_000  # a folder whose table may still be being created


def unknown_folders(
    store: CatalogStore, root: str, store_for: Callable[[str], ObjectStore], now_ms: int
) -> Iterator[Finding]:
    """Find the folders below the root and the schemas' own locations that no table has."""
    with store.read() as unit:
        own = (
            namespace_details.storage_location(unit, namespace) for namespace in unit.namespaces()
        )
        roots = sorted({root, *(place for place in own if place is not None)})
    for place in roots:
        files = store_for(place)
        try:
            # The folders before the catalog: a table is recorded before anything is written.
            folders = sorted(files.folders(TABLES))
        except HeadgateError as error:
            yield Finding(
                rule="unknown-folder",
                severity=Severity.WARNING,
                table=locations.join(place, TABLES),
                says=f"cannot be listed: {error.message}",
                remedy=error.remedy,
            )
            continue
        with store.read() as unit:
            purged = {row.location for row in unit.tables_in_state(TableStatus.PURGED)}
            unknown = [
                folder
                for folder in folders
                if (location := locations.join(place, folder)) not in purged
                and unit.overlapping_table(location) is None
            ]
        for folder in unknown:
            found = list(files.list(folder, recursive=True))
            if not is_fresh(found, now_ms):
                yield unknown_folder(locations.join(place, folder), found)


def is_fresh(files: Iterable[ObjectMeta], now_ms: int) -> bool:
    """Return True if a folder has no file that is older than it takes to create a table."""
    return all(file.modified_ms >= now_ms - _FRESH_MS for file in files)


def unknown_folder(location: str, files: list[ObjectMeta]) -> Finding:
    """Report a folder that no table of the catalog has."""
    return Finding(
        rule="unknown-folder",
        severity=Severity.WARNING,
        table=location,
        says=f"is the folder of no table of this catalog, and holds {len(files)} files of "
        f"{sum(file.size for file in files)} bytes",
        remedy="Find out where it comes from: a table created after the backup that this catalog "
        "was restored from, another catalog, or a copy. Move it elsewhere, or delete it if nobody "
        "needs it.",
    )
