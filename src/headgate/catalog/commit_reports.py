"""Sums of what writers report of their commits, for each table.

Reports are not verified. They are stored for maintenance decisions and used for nothing else.
"""

from __future__ import annotations

from typing import Final

from headgate.api.status import CommitReports, FileSizes
from headgate.catalog import lookup
from headgate.catalog.component import Component
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.writer import WriteUnit
from headgate.protocol.actions import TableId
from headgate.protocol.encoding import from_json, to_json

_COUNTS: Final = (
    "commits",
    "files_added",
    "bytes_added",
    "files_removed",
    "bytes_removed",
    "rows_inserted",
    "rows_removed",
    "rows_updated",
)


class CommitReportSums(Component):
    """Adds up reports, and returns the sums."""

    def add(self, table_id: TableId, report: CommitReports) -> None:
        """Add a writer's report of a commit to the table's reports."""

        def add(unit: WriteUnit) -> None:
            lookup.active(unit, table_id)
            before = _read(unit, table_id)
            counts = {name: getattr(before, name) + getattr(report, name) for name in _COUNTS}
            after = CommitReports(
                **counts,
                file_sizes=_newer(before.file_sizes, report.file_sizes),
                last_ms=self._clock.now_ms(),
            )
            unit.set_setting(_key(table_id), to_json(after).decode())

        self._change(table_id, add)

    def total(self, table_id: TableId) -> CommitReports:
        """Return the sum of a table's reports."""
        with self._store.read() as unit:
            lookup.known(unit, table_id)
            return _read(unit, table_id)


def _read(unit: ReadUnit, table_id: TableId) -> CommitReports:
    stored = unit.setting(_key(table_id))
    return CommitReports() if stored is None else from_json(stored.encode(), CommitReports)


def _newer(before: FileSizes | None, report: FileSizes | None) -> FileSizes | None:
    """Return the sizes of the newer version, since reports arrive in any order."""
    if before is None or report is None:
        return report or before
    if before.commit_version is None or report.commit_version is None:
        return report
    return report if report.commit_version >= before.commit_version else before


def _key(table_id: TableId) -> str:
    return f"reported:{table_id}"
