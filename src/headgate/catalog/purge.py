"""Purge: delete the files of dropped tables, and of staged tables that were never registered."""

from __future__ import annotations

import logging

from headgate.api.port import Progress
from headgate.catalog import lookup
from headgate.catalog.allowed_locations import TABLES
from headgate.catalog.component import Component
from headgate.catalog.idempotency import RequestKey, refuse_if_answered, refuse_unless_usable
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.catalog.tails import lease_of
from headgate.errors import HeadgateError, RefusedError
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import LOG
from headgate.protocol.table_states import TableKind, TableStatus, TableTransition
from headgate.storage import locations

_log = logging.getLogger(__name__)
_PAUSE_S = 0.005  # between two attempts to take a lease


class Purger(Component):
    """Purges tables; a purge that was interrupted continues when it is called again."""

    def purge(
        self,
        table_id: TableId,
        key: RequestKey | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete a dropped table's files and return how many were deleted. Spec: CM-40.

        The table is marked as purged in the catalog first, so that a table whose files are partly
        deleted can never be undropped. The answer is recorded under the key at the end.
        """
        deadline = self._clock.monotonic() + self._settings.lease_ms / 1000
        if key is not None:  # before anything is deleted
            refuse_unless_usable(key, self._clock.now_ms(), self._settings.rejections_kept_ms)

        def purge(unit: WriteUnit) -> TableRow | None:
            if key is not None:
                refuse_if_answered(unit, key)
            row = lookup.known(unit, table_id)
            if row.state is not TableStatus.PURGED:
                purged = lookup.after(row, TableTransition.PURGE)
                lease, now_ms = lease_of(table_id), self._clock.now_ms()
                until_ms = now_ms + self._settings.lease_ms
                is_free = unit.acquire_lease(lease, "purge", now_ms, until_ms)
                if not is_free and self._clock.monotonic() < deadline:
                    return None  # a file that its publisher writes now would be left behind
                unit.release_lease(lease, "purge")
                unit.update_table(purged)
                return purged
            return row

        while (row := self._change(table_id, purge)) is None:
            self._clock.sleep(_PAUSE_S)
        if row.purged_ms is not None:  # a repeated request: another table may be there by now
            return 0
        if row.kind is TableKind.EXTERNAL:  # its files are not managed by this catalog
            return self._change(table_id, lambda unit: self._finish(unit, table_id, 0), key)
        self._refuse_if_linked(row.location)
        files = self._log_of(row.location).store
        if files.remove_link():
            _log.warning("%s was a link: the files in its target are kept", row.location)
        paths = sorted(item.path for item in files.list("", recursive=True))
        # Data before the log: what an interrupted purge leaves is still recognised as a table.
        paths.sort(key=lambda path: path.startswith(f"{LOG}/"))
        for done, path in enumerate(paths, start=1):
            fail_point("registry.purge_between_files")
            files.delete(path)
            if progress is not None:
                progress(done, len(paths))
        files.sync(paths)
        files.remove_folders()
        fail_point("registry.before_forget_purged")
        return self._change(table_id, lambda unit: self._finish(unit, table_id, len(paths)), key)

    def purge_or_log(self, table_id: TableId) -> None:
        """Purge a table; log a failure instead of raising, since housekeeping tries again."""
        try:
            self.purge(table_id)
        except HeadgateError as error:  # other tables must not wait for this one's storage
            _log.warning("table %s is not purged yet: %s", table_id, error)

    def unfinished(self) -> list[TableId]:
        with self._store.read() as unit:
            return [row.id for row in unfinished_purges(unit)]

    def stale_staging(self, before_ms: int) -> list[TableRow]:
        """Return the tables that were staged before a time and are not registered."""
        with self._store.read() as unit:
            staging = unit.tables_in_state(TableStatus.STAGING)
        return [row for row in staging if row.created_ms < before_ms]

    def expire_staging(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Purge old staging tables that are not written to any more; return their ids."""
        before_ms = self._clock.now_ms() - older_than_ms
        abandoned = {
            row.id for row in self.stale_staging(before_ms) if self._is_abandoned(row, before_ms)
        }
        if not abandoned:
            return ()

        def expire(unit: WriteUnit) -> list[TableRow]:
            staging = unit.tables_in_state(TableStatus.STAGING)
            expired = [row for row in staging if row.id in abandoned]
            for row in expired:
                unit.update_table(lookup.after(row, TableTransition.EXPIRE))
            return expired

        expired = self._change("staging", expire)
        for row in expired:
            self.purge_or_log(row.id)
        return tuple(row.id for row in expired)

    def _is_abandoned(self, row: TableRow, before_ms: int) -> bool:
        """Return True if no file was written to a staging table since a time.

        A long first write is still running while files appear. A version after the first belongs
        to a table that was registered: a catalog that does not know it is an older copy.
        """
        log = self._log_of(row.location)
        if log.is_published(Version(1)):
            return False
        return all(item.modified_ms < before_ms for item in log.store.list("", recursive=True))

    def _refuse_if_linked(self, location: str) -> None:
        """Refuse to delete below a folder that became a link after a client chose the location.

        When the location was chosen, none of its parent folders was a link.
        """
        if locations.contains(locations.join(self._root, TABLES), location):
            return  # chosen by the catalog, and only its operator can put links above it
        parent = location.rpartition("/")[0]
        if locations.without_links(parent) != locations.normalize(parent):
            raise RefusedError(
                f"{location} now leads through a link: nothing is deleted there.",
                remedy="Remove the link, then purge the table again.",
            )

    def _finish(self, unit: WriteUnit, table_id: TableId, deleted: int) -> int:
        row = lookup.known(unit, table_id)
        unit.delete_content(row.key, row.head)
        unit.update_table(row._replace(purged_ms=self._clock.now_ms()))
        return deleted


def unfinished_purges(unit: ReadUnit) -> list[TableRow]:
    """Return the tables whose purge was begun and is not finished."""
    return [row for row in unit.tables_in_state(TableStatus.PURGED) if row.purged_ms is None]
