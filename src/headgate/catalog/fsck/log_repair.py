"""Repair of a log whose files differ from what was ratified.

The catalog knows the hash of every ratified commit. If the log has other bytes under a version's
name, or something that is not a file, that is renamed within the log's folder, never deleted. The
ratified bytes take its place, if the catalog or the storage still has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.api.messages import Finding, Severity
from headgate.catalog import lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.fsck.log_folder import (
    RESTORE,
    LogListing,
    list_log,
    published_hash,
    read_or_none,
)
from headgate.catalog.fsck.table_check import is_next
from headgate.catalog.publisher import Publisher
from headgate.catalog.stores.rows import CommitRow, TableRow
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.protocol.table_states import TableStatus
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import is_ratified


class LogRepair(Component):
    """Repairs one table's log while no publisher works on it."""

    def __init__(self, shared: Shared, publisher: Publisher) -> None:
        super().__init__(shared)
        self._publisher = publisher

    def repair(self, table_id: TableId, name: str, log: DeltaLog) -> list[Finding]:
        """Restore the ratified bytes of every version; return the findings. Spec: PB-02."""
        if self._is_intact(table_id, log):
            return []
        with self._publisher.exclusive(table_id) as row:
            files = list_log(log)
            with self._store.read() as unit:
                row = unit.table(table_id) or row
                commits = unit.commits(row.key, Version(0), row.head, content=True)
            restored = [self._restore(row, name, log, commit, files) for commit in commits]
            findings = [finding for finding in restored if finding is not None]
            is_intact = all(finding.repaired for finding in findings)
            findings += self._set_aside_unratified(row, name, log, files)
            if row.diverged is not None and is_intact:
                self._change(row.id, lambda unit: unit.set_diverged(row.key, None))
                says = f"was no longer published: {row.diverged}"
                findings.append(Finding("PB-02", Severity.WARNING, name, says, repaired=True))
        return findings

    def _is_intact(self, table_id: TableId, log: DeltaLog) -> bool:
        """Return True if nothing has to be repaired; publishers may go on meanwhile."""
        files = list_log(log)
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
            commits = unit.commits(row.key, Version(0), row.head, content=False)
        if row.diverged is not None or row.published < row.head:
            return False
        known = {commit.version: commit.sha256.hex() for commit in commits}
        first = files.newest_checkpoint + 1
        return files.published.items() <= known.items() and all(
            version in files.published for version in range(first, row.head + 1)
        )

    def _restore(
        self, row: TableRow, name: str, log: DeltaLog, commit: CommitRow, files: LogListing
    ) -> Finding | None:
        version, path = commit.version, PublishedCommit(commit.version).path
        if files.published.get(version) == commit.sha256.hex():
            return None
        current_hash = published_hash(log, version)  # the listing may be older than the rows
        is_present = current_hash is not None
        if current_hash == commit.sha256.hex():
            return None
        is_recorded = version <= row.published
        if not is_present and (version <= files.newest_checkpoint or not is_recorded):
            return None  # deleted by a log cleanup, or not published yet
        content = ratified_bytes(log, commit)
        if content is None:
            if not is_recorded:
                return None
            rule, says = "S11", "was published and is missing"
            if is_present:
                rule = "S10"
                says = "has other bytes than were ratified, and the ratified bytes cannot be found"
            return Finding(rule, Severity.ERROR, name, says, RESTORE, version, path)
        fail_point("fsck.before_set_aside")
        aside = log.set_aside(path)
        fail_point("fsck.after_set_aside")
        if is_recorded:  # other versions are published in order by the publisher
            log.publish_many([(version, content)])
        rule, says = "S11", "was published and is missing"
        if aside is not None:
            rule, says = "S10", f"had other bytes than ratified; these are kept as {aside}"
        return Finding(rule, Severity.WARNING, name, says, "", version, path, repaired=True)

    def _set_aside_unratified(
        self, row: TableRow, name: str, log: DeltaLog, files: LogListing
    ) -> Iterator[Finding]:
        """Rename files above the latest version that this catalog cannot have ratified.

        A file that it could have ratified is left: the catalog may be an older copy.
        """
        if row.state is not TableStatus.ACTIVE:
            return
        for version in sorted(version for version in files.published if version > row.head):
            content = read_or_none(log, version)
            if content is not None and is_next(self._store, row, content):
                continue
            with self._store.read() as unit:
                now = unit.table(row.id)
            if now is None or now.head != row.head:
                return  # another commit was ratified and published in the meantime
            path = PublishedCommit(version).path
            aside = log.set_aside(path)
            if aside is not None:
                says = f"was never ratified; it is kept as {aside}"
                yield Finding(
                    "AU-01", Severity.WARNING, name, says, "", version, path, repaired=True
                )


def ratified_bytes(log: DeltaLog, commit: CommitRow) -> bytes | None:
    """Return a commit's ratified bytes, from the catalog or from any file in the log's folder."""
    if commit.content is not None and is_ratified(commit.content, commit):
        return commit.content
    for item in log.store.list(LOG, recursive=True):
        if item.size == commit.size:
            content = log.read(item.path)
            if is_ratified(content, commit):
                return content
    return None
