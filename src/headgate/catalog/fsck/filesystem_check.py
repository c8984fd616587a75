"""Checks of filesystem catalogs, which have no database: of each log by itself, and of folders.

Every commit in the log of a table is ratified, so there is nothing to compare it with. What
can be checked is that the versions form one history: no gap, every commit complete and of this
table, no transaction twice, timestamps that rise. A repair renames damaged checkpoints,
compactions and checksums, and finishes purges that were interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from headgate.api.messages import Finding, Severity
from headgate.api.port import Progress
from headgate.catalog.filesystem_folders import Folders, folder_of, tombstone_of
from headgate.catalog.fsck.data_files import missing_data_files
from headgate.catalog.fsck.derived_files import (
    DerivedFiles,
    inspect_derived_files,
    repair_derived_files,
)
from headgate.catalog.fsck.leftovers import is_fresh, unknown_folder
from headgate.catalog.fsck.log_folder import (
    REPAIR,
    RESTORE,
    unexpected_files,
    unpublished_versions,
)
from headgate.errors import HeadgateError, MalformedError
from headgate.names import TableName
from headgate.protocol import features
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.examination import Examined
from headgate.protocol.encoding import replaced
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import PublishedCommit
from headgate.storage import locations
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot

_NONE = Version(-1)
_VIOLATIONS_LISTED = 3
_GAP = (
    "is missing, but version {} exists: readers stop before it, and the next commit takes its place"
)
_STOP_WRITERS = f"Stop all writers of the table. {RESTORE}"


@dataclass(frozen=True, slots=True)
class FilesystemCheck:
    """Checks and repairs the tables of a filesystem catalog."""

    folders: Folders
    snapshot_of: Callable[[TableName, Version], Snapshot]
    purge: Callable[[TableId], object]
    now_ms: int
    repair: bool

    def everything(self, progress: Progress | None) -> Iterator[Finding]:
        for name in self.folders.tombstones():
            yield from self._tombstone(name)
        names = list(self.folders.names(self.folders.namespaces()))
        for done, name in enumerate(names, start=1):
            if self.folders.files.head(tombstone_of(name)) is None:
                yield from self.table(name)
            if progress is not None:
                progress(done, len(names))
        yield from self._unknown_folders()

    def table(self, name: TableName) -> Iterator[Finding]:
        log = self.folders.log(name)
        check = _LogCheck(str(name), log, self.now_ms, self.repair)
        yield from check.findings()
        listed = {item.path: item.size for item in log.store.list("", recursive=True)}
        if check.latest < 0:
            if listed:
                says = f"has {len(listed)} files but no version 0: it is not a table"
                remedy = "Find out what wrote them; delete them if they are not needed."
                yield Finding("LC-01", Severity.WARNING, str(name), says, remedy)
            return
        try:
            snapshot = self.snapshot_of(name, check.latest)
            yield from missing_data_files(str(name), snapshot, listed)
        except HeadgateError as error:
            says = f"cannot be read: {error.message}"
            yield Finding("RD-06", Severity.ERROR, str(name), says, error.remedy, check.latest)

    def _tombstone(self, name: TableName) -> Iterator[Finding]:
        """Report a dropped table, or a tombstone whose table is gone."""
        says, remedy = "is dropped, and its files are still there", "Run `headgate purge`."
        path = tombstone_of(name)
        finding = Finding("CM-40", Severity.NOTE, str(name), says, remedy, path=path)
        try:
            table_id = self.folders.dropped_table(name)
        except MalformedError as error:
            remedy = "Delete it, and drop the table again if it is to go."
            yield replaced(finding, severity=Severity.ERROR, says=error.message, remedy=remedy)
            return
        if table_id is None:  # purged meanwhile
            return
        try:
            is_whole = self.folders.table_id(name) == table_id
        except MalformedError:
            is_whole = False
        if is_whole:
            yield finding
            return
        if self.repair:
            self.purge(table_id)
        yield replaced(
            finding,
            severity=Severity.WARNING,
            says="is the tombstone of a table that no longer exists: a purge was interrupted",
            remedy=REPAIR,
            repaired=self.repair,
        )

    def _unknown_folders(self) -> Iterator[Finding]:
        """Report tables in folders that are not namespaces, where no reader finds them."""
        store, version_zero = self.folders.files, PublishedCommit(Version(0)).path
        spaces = {folder_of(space) for space in self.folders.namespaces()}
        for catalog in sorted(store.folders("")):
            for schema in sorted(set(store.folders(catalog)) - spaces):
                space = ".".join(map(unquote, schema.split("/")))
                remedy = (
                    f"Run `headgate create-namespace {space}` to make it a table of this catalog, "
                    "or move it elsewhere."
                )
                for folder in sorted(store.folders(schema)):
                    if store.head(f"{folder}/{version_zero}") is not None:
                        files = list(store.list(folder, recursive=True))
                        if not is_fresh(files, self.now_ms):
                            location = locations.join(self.folders.root, folder)
                            yield replaced(unknown_folder(location, files), remedy=remedy)


@dataclass(slots=True)
class _LogCheck:
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
