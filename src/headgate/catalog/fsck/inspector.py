"""The run of `fsck` over one table or all: check everything, and repair it if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.api.messages import Finding, Severity
from headgate.api.port import Progress
from headgate.catalog import lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.decider import Decider
from headgate.catalog.fsck.adoption import Adoption, NamedTable
from headgate.catalog.fsck.data_files import missing_data_files, wrong_counts
from headgate.catalog.fsck.derived_files import DerivedFileChecker
from headgate.catalog.fsck.leftovers import (
    files_of_purged_table,
    never_registered,
    unknown_folders,
)
from headgate.catalog.fsck.log_repair import LogRepair
from headgate.catalog.fsck.table_check import check_table, inconsistent_transactions
from headgate.catalog.housekeeping import Housekeeper
from headgate.catalog.integrity_watch import damage_finding
from headgate.catalog.publisher import Publisher
from headgate.catalog.purge import Purger, unfinished_purges
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import (
    DamagedError,
    HeadgateError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.protocol.encoding import replaced
from headgate.protocol.table_states import TableKind, TableStatus

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_TEMPORARY_FILES_KEPT_MS: Final = 24 * 3600 * 1000  # those of writers that died
# What storage says of a folder that is a link elsewhere, or that this process may not read.
_CLOSED: Final = (InvalidArgumentError, PermissionDeniedError)


class Inspector(Component):
    """Checks and repairs the tables of a catalog."""

    def __init__(
        self,
        shared: Shared,
        decider: Decider,
        publisher: Publisher,
        purger: Purger,
        housekeeper: Housekeeper,
        *,
        snapshot_of: Callable[[TableId, Version, Sequence | None], Snapshot],
        look_again: Callable[[TableId], None],
    ) -> None:
        super().__init__(shared)
        self._publisher = publisher
        self._purger = purger
        self._housekeeper = housekeeper
        self._snapshot_of = snapshot_of
        self._look_again = look_again
        self._derived_files = DerivedFileChecker(shared)
        self._log_repair = LogRepair(shared, publisher)
        self._adoption = Adoption(shared, decider, self._publish)

    def inspect(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Check one table or all; repair what can be repaired if asked.

        If the catalog's database is damaged, report that and check nothing else.
        """
        try:
            self._store.check_integrity()  # from now on a damaged store refuses to be read
            return self._inspect(table_id, repair=repair, progress=progress)
        except DamagedError as error:
            return (damage_finding(error),)

    def _inspect(
        self, table_id: TableId | None, *, repair: bool, progress: Progress | None
    ) -> tuple[Finding, ...]:
        with self._store.read() as unit:
            if table_id is None:
                # Named by their ids: another table may have the name by now.
                dropped = [NamedTable(r, r.id) for r in unit.tables_in_state(TableStatus.DROPPED)]
                tables = [t for t in (*_named(unit), *dropped) if t.row.kind is TableKind.MANAGED]
            else:
                row = lookup.managed(lookup.active(unit, table_id))
                tables = [NamedTable(row, str(unit.name_of(table_id)))]
        findings: list[Finding] = []
        if table_id is None:
            # Before housekeeping, which would finish the purges that are reported.
            findings += self._purged_tables(repair=repair)
            findings += self._stale_staging(repair=repair)
        repaired = self._repair(tables) if repair else []
        findings += repaired
        reported = {(f.table, f.rule, f.version) for f in repaired}
        for done, table in enumerate(tables, start=1):
            row, name = table.row, table.name
            try:
                log = self._log_of(row.location)
                checked = [
                    *check_table(self._store, row, name, log),
                    *self._derived_files.check(row.id, name, log),
                ]
                findings += [f for f in checked if (f.table, f.rule, f.version) not in reported]
                findings += self._data_findings(row.id, name, repair=repair)
                self._look_again(row.id)
            except _CLOSED as error:
                findings.append(_unchecked(name, error))
            if progress is not None:
                progress(done, len(tables))
        if table_id is None:
            findings += unknown_folders(
                self._store, self._root, self._store_for, self._clock.now_ms()
            )
        findings += inconsistent_transactions(self._store, {t.row.id: t.name for t in tables})
        return tuple(findings)

    def _repair(self, tables: list[NamedTable]) -> list[Finding]:
        """Repair the logs, then ratify missing commits, which must follow published ones."""
        findings: list[Finding] = []
        closed: set[TableId] = set()  # the check reports them
        for table in tables:
            self._publish(table.row.id)
            try:
                log = self._log_of(table.row.location)
                findings += self._log_repair.repair(table.row.id, table.name, log)
            except _CLOSED:
                closed.add(table.row.id)
            self._publish(table.row.id)
        tables = [table for table in tables if table.row.id not in closed]
        with self._store.read() as unit:
            others = [table for table in _named(unit) if table.row.id not in closed]
        findings += self._adoption.adopt(tables, others)
        for table in tables:
            log = self._log_of(table.row.location)
            findings += self._derived_files.repair(table.row.id, table.name, log)
        return findings

    def _publish(self, table_id: TableId) -> None:
        with suppress(HeadgateError):  # the check reports what prevents it
            self._publisher.publish(table_id)

    def _purged_tables(self, *, repair: bool) -> Iterator[Finding]:
        """Report unfinished purges, and finish them if asked; report files written afterwards."""
        with self._store.read() as unit:
            unfinished = unfinished_purges(unit)
            purged = unit.tables_in_state(TableStatus.PURGED)
            # If another table is at the location by now, its files belong to that table.
            free = [
                row
                for row in purged
                if row.kind is TableKind.MANAGED
                and row.purged_ms is not None
                and unit.overlapping_table(row.location) is None
            ]
        for row in free:
            yield from files_of_purged_table(row, self._store_for(row.location))
        for row in unfinished:
            if repair:
                self._purger.purge(row.id)
            says = "is purged, but some of its files are not deleted yet"
            remedy = "Run `headgate purge` with its id, or `headgate fsck --repair`."
            yield Finding("CM-40", Severity.WARNING, row.id, says, remedy, repaired=repair)

    def _stale_staging(self, *, repair: bool) -> list[Finding]:
        """Report tables that were staged long ago and not registered; run housekeeping if asked."""
        before_ms = self._clock.now_ms() - self._settings.staging_kept_ms
        stale = self._purger.stale_staging(before_ms)
        if repair:
            with suppress(HeadgateError):  # what could not be deleted is reported
                self._housekeeper.run_now()
        left = {row.id for row in self._purger.stale_staging(before_ms)}
        return [never_registered(row, repaired=row.id not in left) for row in stale]

    def _data_findings(self, table_id: TableId, name: str, *, repair: bool) -> list[Finding]:
        """Check the data files of the latest version, and the recorded counts."""
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
            # Dropped tables are only resolved as of a sequence.
            at = unit.clock().sequence if row.state is TableStatus.DROPPED else None
        store = self._store_for(row.location)
        try:
            snapshot = self._snapshot_of(table_id, row.head, at)
            state = snapshot.state  # loaded here, so that its errors are reported below
        except HeadgateError as error:
            says = f"cannot be read: {error.message}"
            return [Finding("RD-06", Severity.ERROR, name, says, error.remedy, row.head)]
        if repair:
            store.sweep(self._clock.now_ms() - _TEMPORARY_FILES_KEPT_MS)
        listed = {item.path: item.size for item in store.list("", recursive=True)}
        missing = list(missing_data_files(name, snapshot, listed))
        wrong = list(wrong_counts(name, snapshot, row))
        if not repair or not wrong:
            return missing + wrong

        def correct_counts(unit: WriteUnit) -> None:
            now = lookup.known(unit, table_id)
            if now.head == snapshot.version:
                unit.update_table(
                    now._replace(num_files=state.num_files, size_bytes=state.size_in_bytes)
                )

        self._change(table_id, correct_counts)
        return missing + [replaced(finding, repaired=True) for finding in wrong]


def _named(unit: ReadUnit) -> list[NamedTable]:
    """Return the managed tables that have a name."""
    rows = unit.tables(None)
    return [NamedTable(row, str(name)) for row, name, _ in rows if row.kind is TableKind.MANAGED]


def _unchecked(name: str, error: HeadgateError) -> Finding:
    """Report a table whose storage refuses access; the other tables are checked all the same."""
    says = f"cannot be checked: {error.message}"
    remedy = "Remove what stands in the place of the folder, or give this process access to it."
    return Finding("storage", Severity.ERROR, name, says, remedy)
