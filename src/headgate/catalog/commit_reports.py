"""Sums of what writers report of their commits, for each table.

Reports are not verified. They are stored for maintenance decisions and used for nothing else.
"""

from __future__ import annotations

from headgate.api.status import CommitReports, FileSizes
from headgate.catalog.stores.port import ReadUnit, WriteUnit
from headgate.protocol.actions import TableId
from headgate.protocol.encoding import from_json, to_json


def read(unit: ReadUnit, table_id: TableId) -> CommitReports:
    """Return the sum of a table's reports."""
    stored = unit.setting(_key(table_id))
    return CommitReports() if stored is None else from_json(stored.encode(), CommitReports)


def write(unit: WriteUnit, table_id: TableId, reports: CommitReports) -> None:
    """Store the sum of a table's reports."""
    unit.set_setting(_key(table_id), to_json(reports).decode())


def total(before: CommitReports, report: CommitReports, now_ms: int) -> CommitReports:
    """Return the sum of earlier reports and a new one."""
    return CommitReports(
        commits=before.commits + report.commits,
        files_added=before.files_added + report.files_added,
        bytes_added=before.bytes_added + report.bytes_added,
        files_removed=before.files_removed + report.files_removed,
        bytes_removed=before.bytes_removed + report.bytes_removed,
        rows_inserted=before.rows_inserted + report.rows_inserted,
        rows_removed=before.rows_removed + report.rows_removed,
        rows_updated=before.rows_updated + report.rows_updated,
        file_sizes=_newer(before.file_sizes, report.file_sizes),
        last_ms=now_ms,
    )


def _newer(before: FileSizes | None, report: FileSizes | None) -> FileSizes | None:
    """Return the sizes of the newer version, since reports arrive in any order."""
    if before is None or report is None:
        return report or before
    if before.commit_version is None or report.commit_version is None:
        return report
    return report if report.commit_version >= before.commit_version else before


def _key(table_id: TableId) -> str:
    return f"reported:{table_id}"
