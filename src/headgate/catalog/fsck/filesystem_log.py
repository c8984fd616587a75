"""Checks of a log by itself, for filesystem catalogs, which have no database.

Every commit in the log of such a table is ratified, so there is nothing to compare it with. What
can be checked is that the versions form one history: no gap, every commit complete and of this
table, no transaction twice, timestamps that rise. A repair only renames damaged checkpoints,
compactions and checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.api.messages import Finding, Severity
from headgate.catalog.fsck.derived_files import (
    DerivedFiles,
    inspect_derived_files,
    repair_derived_files,
)
from headgate.catalog.fsck.log_folder import RESTORE, unexpected_files, unpublished_versions
from headgate.errors import MalformedError
from headgate.protocol import features
from headgate.protocol.actions import TxnId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.examination import Examined
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import PublishedCommit
from headgate.table.log_files import DeltaLog

_NONE = Version(-1)
_VIOLATIONS_LISTED = 3
_GAP = (
    "is missing, but version {} exists: readers stop before it, and the next commit takes its place"
)
_STOP_WRITERS = f"Stop all writers of the table. {RESTORE}"


@dataclass(slots=True)
class FilesystemLogCheck:
    """Checks one table's versions in order."""

    name: str
    log: DeltaLog
    now_ms: int
    repair: bool = False
    latest: Version = _NONE  # the highest version that has every other before it
    _readable: set[Version] = field(default_factory=set)
    _table_id: str | None = None
    _timestamp_ms: int | None = None
    _txn_ids: dict[TxnId, Version] = field(default_factory=dict)

    def findings(self) -> Iterator[Finding]:
        listed = [item.file for item in self.log.list()]
        following = Version(0)
        for version in sorted(f.version for f in listed if isinstance(f, PublishedCommit)):
            while following <= version:
                content = self.log.read_published(following)  # the listing may be stale
                if content is None:
                    yield self._error("S1", following, _GAP.format(version), _STOP_WRITERS)
                    following = version if following < version else Version(version + 1)
                    continue
                if self.latest == following - 1:
                    self.latest = following
                yield from self._commit(following, content)
                following = Version(following + 1)
        others = [file for file in listed if not isinstance(file, PublishedCommit)]
        yield from unpublished_versions(self.name, others, published=self.latest, head=self.latest)
        if self.repair:
            yield from repair_derived_files(self.name, self.log, self._derived_files, _forget)
        yield from self._derived_files().findings(self.name)
        yield from unexpected_files(self.name, self.log.strays())

    def _derived_files(self) -> DerivedFiles:
        return inspect_derived_files(self.log, (), self.latest, lambda: self._readable, self.now_ms)

    def _commit(self, version: Version, content: bytes) -> Iterator[Finding]:
        try:
            examined = examination.examine_file(content)
        except MalformedError as error:
            yield self._error("S20", version, f"cannot be read: {error.message}")
            return
        self._readable.add(version)
        if examined.violations:
            violations = "; ".join(map(str, examined.violations[:_VIOLATIONS_LISTED]))
            yield self._error("S20", version, f"is not a valid commit: {violations}")
        yield from self._identity(version, examined)
        if examined.txn_id is not None:
            first = self._txn_ids.setdefault(examined.txn_id, version)
            if first != version:
                says = f"has the txnId of version {first}, but a transaction is ratified once"
                yield self._error("S3", version, says)
        if examined.timestamp_ms is not None:
            if self._timestamp_ms is not None and examined.timestamp_ms <= self._timestamp_ms:
                yield self._error("S19", version, "is not later than the version before it")
            self._timestamp_ms = examined.timestamp_ms

    def _identity(self, version: Version, examined: Examined) -> Iterator[Finding]:
        if version == 0 and (examined.metadata is None or examined.protocol is None):
            yield self._error("LC-01", version, "lacks metaData or protocol")
        if examined.protocol is not None and not features.is_catalog_managed(examined.protocol):
            yield self._error("S20", version, "makes the table no longer catalog-managed")
        if examined.metadata is not None:
            if self._table_id is None:
                self._table_id = examined.metadata.id
            if examined.metadata.id != self._table_id:
                says = f"is of table {examined.metadata.id}, not of {self._table_id}"
                yield self._error("S25", version, says)

    def _error(self, rule: str, version: Version, says: str, remedy: str = RESTORE) -> Finding:
        path = PublishedCommit(version).path
        return Finding(rule, Severity.ERROR, self.name, says, remedy, version, path)


def _forget(_: KnownFile) -> None:
    """Do nothing: filesystem catalogs do not record such files."""
