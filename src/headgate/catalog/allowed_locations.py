"""The locations that clients may choose for tables: under the lake's root or a registered one.

The process of a server writes and deletes where its tables are, with rights that its clients do
not have. So a location from a client must be under the root, or under a location that an
administrator registered with `headgate location add`, which works on the catalog's own store. A
process that has the store to itself may choose any location: it could register it as well.
"""

from __future__ import annotations

from typing import Final

from headgate.api.status import LocationEntry
from headgate.catalog.component import Component, Shared
from headgate.catalog.stores.rows import LocationRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from headgate.protocol.paths import LOG
from headgate.storage import locations

TABLES: Final = "tables"  # the folder of the root that holds the tables whose location we choose
_LONGEST: Final = 2_000  # of a URL; indexes of PostgreSQL hold no longer ones for certain


class AllowedLocations(Component):
    """Registers locations, and checks those that clients choose."""

    def __init__(self, shared: Shared, *, any_location: bool) -> None:
        super().__init__(shared)
        self._any_location = any_location

    def entries(self) -> tuple[LocationEntry, ...]:
        with self._store.read() as unit:
            return tuple(map(_entry, unit.locations()))

    def add(self, location: str) -> LocationEntry:
        url = self._usable(location)
        self._store_for(url)  # raises if nothing in the environment says how to open it
        now_ms = self._clock.now_ms()

        def add(unit: WriteUnit) -> LocationEntry:
            row = next((row for row in unit.locations() if row.url == url), None)
            if row is None:
                row = LocationRow(url, now_ms)
                unit.insert_location(row)
            return _entry(row)

        return self._change(f"location {url}", add)

    def remove(self, location: str) -> None:
        url = locations.without_links(location)

        def remove(unit: WriteUnit) -> None:
            if all(row.url != url for row in unit.locations()):
                raise NotFoundError(
                    f"No location {url} is registered.", remedy="See `headgate location list`."
                )
            unit.delete_location(url)

        self._change(f"location {url}", remove)

    def check(self, location: str) -> str:
        """Return a client's location in its one spelling, or refuse it.

        On a disk every link on its way is followed, so that two spellings of one folder are one
        location and a link cannot lead out of an allowed one. Whether it overlaps another table is
        for the caller to check, in the unit of work that takes the location.
        """
        url = self._usable(location)
        self._refuse_if_own(url)
        self._refuse_unless_allowed(location, url)
        return url

    def refuse_unless_allowed(self, location: str) -> None:
        """Refuse a location that a client may not read or write by its path."""
        if not self._any_location:
            self._refuse_unless_allowed(location, self._usable(location))

    def refuse_if_linked(self, location: str) -> None:
        """Refuse a new table's location if a link was put on its way since it was chosen.

        Links above an allowed location are the administrator's, and are followed.
        """
        allowed = (self._root, *(entry.url for entry in self.entries()))
        expected = {location} | {
            locations.join(locations.without_links(outer), within)
            for outer in allowed
            if (within := locations.path_within(outer, location))
        }
        real = locations.without_links(location)
        if real not in expected:
            raise PermissionDeniedError(
                f"A link leads from {location} to {real}.", remedy="Remove the link."
            )

    def refuse_inside_table(self, url: str) -> None:
        """Refuse a location inside a Delta table that this catalog may not know.

        Only what is under the root or a registered location is read, and any folder of a disk.
        """
        allowed = self._allowed_urls()
        for parent in locations.parents(url):
            is_read = url.startswith("file:") or any(
                locations.contains(outer, parent) for outer in allowed
            )
            if is_read and any(True for _ in self._store_for(parent).list(LOG)):
                raise AlreadyExistsError(
                    f"{url} is inside the Delta table at {parent}.",
                    remedy="Choose a location that is not inside another table.",
                )

    def _usable(self, location: str) -> str:
        url = locations.without_links(location)
        if len(url) > _LONGEST:
            raise InvalidArgumentError(
                f"The location {url[:80]}... has {len(url):,} characters.",
                remedy=f"Use at most {_LONGEST:,} characters.",
            )
        if url.startswith("memory:") and not self._root.startswith("memory:"):
            raise InvalidArgumentError(
                f"The location {url} is lost when this process ends.",
                remedy="Use a file://, s3://, gs://, az:// or abfss:// URL.",
            )
        return url

    def _refuse_unless_allowed(self, location: str, url: str) -> None:
        if self._any_location:
            return
        if "://" not in location and not location.startswith(("/", "file:")):
            raise InvalidArgumentError(
                f"The location {location[:200]!r} is not absolute.",
                remedy="Use a URL or an absolute path.",
            )
        if any(locations.contains(outer, url) for outer in self._allowed_urls()):
            return
        raise PermissionDeniedError(
            f"{url} is not under the lake's root or a registered location.",
            remedy="Choose another location, or have an administrator register it on the "
            "catalog's own store: `headgate location add URL`.",
        )

    def _refuse_if_own(self, url: str) -> None:
        """Refuse the root, its folder of tables, the database, and whatever contains one of them.

        Beside the database also names that begin with its own: SQLite keeps its log there.
        """
        root = locations.without_links(self._root)
        tables = locations.join(root, TABLES)
        is_own = locations.contains(url, root) or locations.contains(tables, url)
        file = self._store.local_file()
        if file is not None and not is_own:
            database = locations.without_links(str(file))
            is_own = locations.contains(url, database) or url.startswith(database)
        if is_own:
            raise AlreadyExistsError(
                f"{url} holds files of this catalog.", remedy="Choose another location."
            )

    def _allowed_urls(self) -> list[str]:
        return [locations.without_links(self._root), *(entry.url for entry in self.entries())]


def _entry(row: LocationRow) -> LocationEntry:
    return LocationEntry(url=row.url, created_ms=row.created_ms)
