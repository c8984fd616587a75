"""All that is known of tables held against what lies in storage: logs, data, places left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.api.messages import Finding, Severity
from headgate.api.port import Progress
from headgate.catalog import lookup
from headgate.catalog.adoption import Adoption, NamedTable
from headgate.catalog.decider import Decider
from headgate.catalog.derived_files import DerivedFileCheck
from headgate.catalog.fsck import Checker, counts, data_files, left_behind, never_registered
from headgate.catalog.housekeeping import Housekeeper
from headgate.catalog.integrity_watch import damage_finding
from headgate.catalog.log_repair import LogRepair
from headgate.catalog.publisher import Publisher
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore, WriteUnit
from headgate.catalog.tables import Registry, is_unfinished
from headgate.catalog.unknown_folders import unknown_folders
from headgate.clock import Clock
from headgate.errors import DamagedError, HeadgateError
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.protocol.encoding import replaced
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.settings import Settings
from headgate.storage.port import ObjectStore
from headgate.table.log_files import DeltaLog

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_LEFTOVERS_KEPT_MS: Final = 24 * 3600 * 1000  # of writers that died


class Inspector:
    """Goes through one table or all of them."""

    def __init__(
        self,
        store: CatalogStore,
        ratifier: Ratifier,
        decider: Decider,
        checker: Checker,
        publisher: Publisher,
        registry: Registry,
        housekeeper: Housekeeper,
        root: str,
        *,
        store_for: Callable[[str], ObjectStore],
        snapshot_of: Callable[[TableId, Version, Sequence | None], Snapshot],
        look_again: Callable[[TableId], None],
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._store = store
        self._ratifier = ratifier
        self._checker = checker
        self._publisher = publisher
        self._registry = registry
        self._housekeeper = housekeeper
        self._root = root
        self._store_for = store_for
        self._snapshot_of = snapshot_of
        self._look_again = look_again
        self._clock = clock
        self._settings = settings
        self._derived_files = DerivedFileCheck(store, ratifier, clock)
        self._log_repair = LogRepair(store, ratifier, checker, publisher.exclusive)
        self._adoption = Adoption(
            store,
            ratifier,
            decider,
            checker,
            self._publish,
            lambda location: DeltaLog(store_for(location)),
            clock,
        )

    def inspect(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Check one table or all against their logs; repair what can be repaired if asked.

        A damaged database is a finding, and then nothing else is checked or repaired.
        """
        try:
            self._refuse_if_damaged()
            return self._inspect(table_id, repair=repair, progress=progress)
        except DamagedError as error:
            return (damage_finding(error),)

    def _refuse_if_damaged(self) -> None:
        if self._store.check_integrity():
            with self._store.read():  # raises, with the reason and the remedy
                pass

    def _inspect(
        self, table_id: TableId | None, *, repair: bool, progress: Progress | None
    ) -> tuple[Finding, ...]:
        with self._store.read() as unit:
            if table_id is None:
                tables = [(row, str(name)) for row, name, _ in unit.tables(None)]
                # By their ids: the name may be another's by now.
                tables += [(row, row.id) for row in unit.tables_in_state(TableStatus.DROPPED)]
                tables = [(row, name) for row, name in tables if row.kind is TableKind.MANAGED]
            else:
                row = lookup.managed(lookup.active(unit, table_id))
                tables = [(row, str(unit.name_of(table_id)))]
            purged = unit.tables_in_state(TableStatus.PURGED) if table_id is None else []
            purging = [row for row in purged if is_unfinished(row)]
            # Where another table lies by now, what is there is that table's.
            free = [
                row
                for row in purged
                if row.kind is TableKind.MANAGED
                and not is_unfinished(row)
                and unit.overlapping_table(row.location) is None
            ]
        found = self._stale(repair=repair) if table_id is None else []
        for row in free:
            found += left_behind(row, self._store_for(row.location))
        for row in purging:
            if repair:
                self._registry.purge(row.id)
            found.append(
                Finding(
                    rule="CM-40",
                    severity=Severity.WARNING,
                    table=row.id,
                    says="is purged, and some of its files are still there",
                    remedy="Run `headgate purge` with its id, or `headgate fsck --repair`.",
                    repaired=repair,
                )
            )
        repaired = self._repair([NamedTable(row, name) for row, name in tables]) if repair else []
        found += repaired
        known = {(finding.table, finding.rule, finding.version) for finding in repaired}
        for done, (row, name) in enumerate(tables, start=1):
            log = DeltaLog(self._store_for(row.location))
            checked = self._checker.check(row, name, log)
            checked += self._derived_files.check(row.id, name, log)
            found += [
                finding
                for finding in checked
                if (finding.table, finding.rule, finding.version) not in known
            ]
            found += self._data_findings(row.id, name, repair=repair)
            self._look_again(row.id)
            if progress is not None:
                progress(done, len(tables))
        if table_id is None:
            found += unknown_folders(self._store, self._root, self._store_for, self._clock.now_ms())
        found += self._checker.torn({row.id: name for row, name in tables})
        return tuple(found)

    def _repair(self, tables: list[NamedTable]) -> list[Finding]:
        """Put the logs right first: what is ratified again must follow on what is published."""
        found: list[Finding] = []
        for table in tables:
            log = DeltaLog(self._store_for(table.row.location))
            self._publish(table.row.id)
            found += self._log_repair.repair(table.row.id, table.name, log)
            self._publish(table.row.id)
        with self._store.read() as unit:
            others = [
                NamedTable(row, str(name))
                for row, name, _ in unit.tables(None)
                if row.kind is TableKind.MANAGED
            ]
        found += self._adoption.adopt(tables, others)
        for table in tables:
            log = DeltaLog(self._store_for(table.row.location))
            found += self._derived_files.repair(table.row.id, table.name, log)
        return found

    def _publish(self, table_id: TableId) -> None:
        with suppress(HeadgateError):  # what stands in the way is found by the check
            self._publisher.publish(table_id)

    def _stale(self, *, repair: bool) -> list[Finding]:
        """Look for places that were staged and never registered; keep house if asked to mend."""
        before_ms = self._clock.now_ms() - self._settings.staging_kept_ms
        stale = self._registry.stale_staging(before_ms)
        if repair:
            with suppress(HeadgateError):  # what is left is told
                self._housekeeper.keep_anyway()
        left = {row.id for row in self._registry.stale_staging(before_ms)}
        return [never_registered(row, repaired=row.id not in left) for row in stale]

    def _data_findings(self, table_id: TableId, name: str, *, repair: bool) -> list[Finding]:
        """Look at the data of the latest version, and at what was counted of it."""
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
            # A dropped one is looked at as of now: without a sequence nobody is told of it.
            at = unit.clock().sequence if row.state is TableStatus.DROPPED else None
        store = self._store_for(row.location)
        try:
            snapshot = self._snapshot_of(table_id, row.head, at)
            state = snapshot.state  # read now: what the catalog counted is what is looked at
        except HeadgateError as error:
            return [
                Finding(
                    rule="RD-06",
                    severity=Severity.ERROR,
                    table=name,
                    version=row.head,
                    says=f"cannot be read: {error.message}",
                    remedy=error.remedy,
                )
            ]
        if repair:
            store.sweep(self._clock.now_ms() - _LEFTOVERS_KEPT_MS)
        listed = {item.path: item.size for item in store.list("", recursive=True)}
        found = [*data_files(name, snapshot, listed), *counts(name, snapshot, row)]
        if repair and any(finding.rule == "RD-03" for finding in found):

            def recount(unit: WriteUnit) -> None:
                now = lookup.known(unit, table_id)
                if now.head == snapshot.version:
                    unit.update_table(
                        now._replace(num_files=state.num_files, size_bytes=state.size_in_bytes)
                    )

            self._ratifier.submit(table_id, recount).result()
            found = [replaced(f, repaired=f.rule == "RD-03") for f in found]
        return found
