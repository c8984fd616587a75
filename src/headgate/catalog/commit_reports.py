"""What writers report of their commits, added up for each table.

It is their word, kept for whoever decides on maintenance; nothing else hangs on it.
"""

from __future__ import annotations

from headgate.api.status import FileSizes, Reported
from headgate.catalog.stores.port import ReadUnit, WriteUnit
from headgate.protocol.actions import TableId
from headgate.protocol.encoding import from_json, to_json


def read(unit: ReadUnit, table_id: TableId) -> Reported:
    """Give what was reported of a table so far."""
    kept = unit.setting(_key(table_id))
    return Reported() if kept is None else from_json(kept.encode(), Reported)


def write(unit: WriteUnit, table_id: TableId, told: Reported) -> None:
    """Keep what was reported of a table."""
    unit.set_setting(_key(table_id), to_json(told).decode())


def added(told: Reported, report: Reported, now_ms: int) -> Reported:
    """Add a report to those before it."""
    return Reported(
        commits=told.commits + report.commits,
        files_added=told.files_added + report.files_added,
        bytes_added=told.bytes_added + report.bytes_added,
        files_removed=told.files_removed + report.files_removed,
        bytes_removed=told.bytes_removed + report.bytes_removed,
        rows_inserted=told.rows_inserted + report.rows_inserted,
        rows_removed=told.rows_removed + report.rows_removed,
        rows_updated=told.rows_updated + report.rows_updated,
        file_sizes=_newer(told.file_sizes, report.file_sizes),
        last_ms=now_ms,
    )


def _newer(told: FileSizes | None, report: FileSizes | None) -> FileSizes | None:
    """Choose what tells of the newer version: reports come in any order."""
    if told is None or report is None:
        return report or told
    if told.commit_version is None or report.commit_version is None:
        return report
    return report if report.commit_version >= told.commit_version else told


def _key(table_id: TableId) -> str:
    return f"reported:{table_id}"
