"""Repair of a log that holds other files than were ratified.

What was ratified is known by its hash. Where the log has other bytes under a version's name, or
something that is not a file, that is set aside: renamed within the log's folder, never deleted.
The ratified bytes take its place, if the catalog or the storage still has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from headgate.api.messages import Finding, Severity
from headgate.catalog import lookup
from headgate.catalog.fsck import (
    RESTORE,
    Checker,
    LogListing,
    list_log,
    published_hash,
    read_or_none,
)
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore, CommitRow, TableRow
from headgate.failpoints import fail_point
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.protocol.table_states import TableStatus
from headgate.table.log_files import DeltaLog


class LogRepair:
    """Puts one table's log right, while no publisher works on it."""

    def __init__(
        self,
        store: CatalogStore,
        ratifier: Ratifier,
        checker: Checker,
        exclusive: Callable[[TableId], AbstractContextManager[TableRow]],
    ) -> None:
        self._store = store
        self._ratifier = ratifier
        self._checker = checker
        self._exclusive = exclusive

    def repair(self, table_id: TableId, name: str, log: DeltaLog) -> list[Finding]:
        """Restore the ratified bytes of every version; return what was wrong. Spec: PB-02."""
        if self._is_right(table_id, log):
            return []
        with self._exclusive(table_id) as row:
            files = list_log(log)
            with self._store.read() as unit:
                row = unit.table(table_id) or row
                commits = unit.commits(row.key, Version(0), row.head, content=True)
            found: list[Finding] = []
            is_right = True
            for commit in commits:
                finding = self._restore(row, name, log, commit, files)
                if finding is not None:
                    found.append(finding)
                    is_right = is_right and finding.repaired
            found += self._beyond(row, name, log, files)
            if row.diverged is not None and is_right:
                self._ratifier.submit(
                    row.id, lambda unit: unit.set_diverged(row.key, None)
                ).result()
                found.append(
                    Finding(
                        rule="PB-02",
                        severity=Severity.WARNING,
                        table=name,
                        says=f"was not published any more: {row.diverged}",
                        repaired=True,
                    )
                )
        return found

    def _is_right(self, table_id: TableId, log: DeltaLog) -> bool:
        """Return True if nothing has to be repaired, without keeping publishers away."""
        files = list_log(log)
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
            commits = unit.commits(row.key, Version(0), row.head, content=False)
        if row.diverged is not None or row.published < row.head:
            return False
        known = {commit.version: commit.sha256.hex() for commit in commits}
        least = files.newest_checkpoint + 1
        return files.published.items() <= known.items() and all(
            version in files.published for version in range(least, row.head + 1)
        )

    def _restore(
        self, row: TableRow, name: str, log: DeltaLog, commit: CommitRow, files: LogListing
    ) -> Finding | None:
        version, path = commit.version, PublishedCommit(commit.version).path
        if files.published.get(version) == commit.sha256.hex():
            return None
        found = published_hash(log, version)  # the listing may be older than the rows
        is_there = found is not None
        if found == commit.sha256.hex():
            return None
        is_due = version <= row.published
        if not is_there and version <= files.newest_checkpoint:
            return None  # cleaned away: a checkpoint stands for it
        if not is_there and not is_due:
            return None  # still to be published
        content = ratified_bytes(log, commit)
        if content is None:
            return self._unproven(name, commit, is_there=is_there) if is_due else None
        fail_point("fsck.before_set_aside")
        aside = log.set_aside(path)
        fail_point("fsck.after_set_aside")
        if is_due:  # others are published in order, by the publisher
            log.publish_many([(version, content)])
        what = "was published and is gone" if aside is None else "held other bytes than ratified"
        kept = "" if aside is None else f"; what was there is kept as {aside}"
        return Finding(
            rule="S11" if aside is None else "S10",
            severity=Severity.WARNING,
            table=name,
            version=version,
            path=path,
            says=what + kept,
            repaired=True,
        )

    def _unproven(self, name: str, commit: CommitRow, *, is_there: bool) -> Finding:
        return Finding(
            rule="S10" if is_there else "S11",
            severity=Severity.ERROR,
            table=name,
            version=commit.version,
            path=PublishedCommit(commit.version).path,
            says="holds other bytes than were ratified, which are nowhere to be found"
            if is_there
            else "was published and is gone",
            remedy=RESTORE,
        )

    def _beyond(
        self, row: TableRow, name: str, log: DeltaLog, files: LogListing
    ) -> Iterator[Finding]:
        """Set aside what lies above the latest version and cannot be the catalog's.

        What could be is left: the catalog may be an older copy, and then it is a commit.
        """
        if row.state is not TableStatus.ACTIVE:
            return
        for version in sorted(version for version in files.published if version > row.head):
            content = read_or_none(log, version)
            if content is not None and self._checker.is_next(row, content):
                continue
            with self._store.read() as unit:
                now = unit.table(row.id)
            if now is None or now.head != row.head:
                return  # ratified and published meanwhile
            path = PublishedCommit(version).path
            aside = log.set_aside(path)
            if aside is not None:
                yield Finding(
                    rule="AU-01",
                    severity=Severity.WARNING,
                    table=name,
                    version=version,
                    path=path,
                    says=f"was not ratified; it is kept as {aside}",
                    repaired=True,
                )


def ratified_bytes(log: DeltaLog, commit: CommitRow) -> bytes | None:
    """Find the bytes that were ratified: in the catalog, or by their hash anywhere in the log."""
    if commit.content is not None and _is_ratified(commit.content, commit):
        return commit.content
    for item in log.store.list(LOG, recursive=True):
        if item.size == commit.size:
            content = log.read(item.path)
            if _is_ratified(content, commit):
                return content
    return None


def _is_ratified(content: bytes, commit: CommitRow) -> bool:
    return hashlib.sha256(content).digest() == commit.sha256
