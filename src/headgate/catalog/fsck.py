"""Catalog against log: findings, each with its remedy.

Every file of a table's log is named for what it is: of the RFC's kinds of commit, or beside them.
Checking changes nothing. Repairing ratifies what stands in the log and the catalog forgot, in
order and with bytes and txnIds kept, and lets publishing go on where the log is right again.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.api.messages import Finding, Severity
from headgate.catalog.decider import protocol_and_metadata
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore, CommitRow, TableRow
from headgate.clock import Clock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    MalformedError,
)
from headgate.protocol import features, paths
from headgate.protocol.actions import Metadata, TableId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Way
from headgate.protocol.log.timestamps import moment
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.table_states import TableStatus
from headgate.storage import locations
from headgate.storage.port import ObjectStore
from headgate.table.log_files import DeltaLog

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

RESTORE = "Restore the file from a backup of the storage."
_FILES_TOLD = 20
_UNREADABLE = ""  # in place of a hash


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log's folder."""

    published: dict[Version, str]  # version -> sha256; empty for what cannot be read
    staged: dict[str, int]  # name -> size
    others: list[paths.LogFile]
    strays: Sequence[str]

    @property
    def newest_checkpoint(self) -> Version:
        """The version up to which commits may be gone: a checkpoint stands for them."""
        found = [file.version for file in self.others if isinstance(file, paths.Checkpoint)]
        return max(found, default=Version(-1))


class Checker:
    """Holds one table after the other against its log."""

    def __init__(self, store: CatalogStore, ratifier: Ratifier, clock: Clock) -> None:
        self._store = store
        self._ratifier = ratifier
        self._clock = clock

    def check(self, row: TableRow, name: str, log: DeltaLog) -> list[Finding]:
        """Check a table; change nothing."""
        found: list[Finding] = []
        # The log before the catalog: what is published was ratified, so whatever is seen of it is
        # known here afterwards, also while others commit.
        files = list_log(log)
        with self._store.read() as unit:
            row = unit.table(row.id) or row
            commits = unit.commits(row.key, Version(0), row.head, content=True)
        found += _rows(row, name, commits)
        found += _held(row, name, log, commits, files)
        found += self._beyond(row, name, log, files)
        found += beside(name, files.others, published=row.published, head=row.head)
        found += _staged(name, commits, files)
        found += strays(name, files.strays)
        found += self._state(row, name)
        return found

    def torn(self, tables: Mapping[TableId, str]) -> Iterator[Finding]:
        """S7: what is of one transaction has one sequence and one timestamp in every table."""
        with self._store.read() as unit:
            torn = {
                txn_id: unit.transaction_commits(txn_id)
                for txn_id in unit.inconsistent_transactions()
            }
        for txn_id, commits in torn.items():
            # Found in the logs by a repair and ratified anew, a table after the other.
            is_anew = any(row.way is Way.PUT_IF_ABSENT and row.version > 0 for _, row in commits)
            for table_id, row in commits:
                if table_id in tables:
                    yield Finding(
                        rule="S7",
                        severity=Severity.NOTE if is_anew else Severity.ERROR,
                        table=tables[table_id],
                        version=row.version,
                        says=f"is of transaction {txn_id}, whose {len(commits)} commits have "
                        "different sequences or timestamps: a cut between them has a part of it",
                        remedy="Read these tables as of a later sequence: a repair ratified them "
                        "anew, one after the other."
                        if is_anew
                        else "Restore the catalog from a backup.",
                    )

    def _beyond(
        self, row: TableRow, name: str, log: DeltaLog, files: LogListing
    ) -> Iterator[Finding]:
        following, timestamp_ms = row.head + 1, row.timestamp_ms
        for version in sorted(version for version in files.published if version > row.head):
            path = PublishedCommit(version).path
            content = log.read_published(version) if version == following else None
            later_ms = None if content is None else self.follows(row, content, timestamp_ms)
            if later_ms is not None:
                following, timestamp_ms = version + 1, later_ms
                yield Finding(
                    rule="FS3",
                    severity=Severity.ERROR,
                    table=name,
                    version=version,
                    path=path,
                    says=f"is in the log, and the catalog knows versions up to {row.head}: "
                    "the catalog is an older copy",
                    remedy="Run `headgate fsck --repair` to ratify what the log has."
                    if row.state is TableStatus.ACTIVE
                    else "Undrop it, then run `headgate fsck --repair`.",
                )
            else:
                yield Finding(
                    rule="AU-01",
                    severity=Severity.WARNING,
                    table=name,
                    version=version,
                    path=path,
                    says="was put behind the catalog's back; no reader of the catalog sees it",
                    remedy="Move the file out of the log: it was never ratified.",
                )

    def is_next(self, row: TableRow, content: bytes) -> bool:
        """Say whether content could have been ratified as the table's next version."""
        return self.follows(row, content, row.timestamp_ms) is not None

    def follows(self, row: TableRow, content: bytes, timestamp_ms: int) -> int | None:
        """Return the timestamp of a commit that could follow one of another; None if it cannot."""
        try:
            examined = examination.examine_file(content)
        except MalformedError:
            return None
        if examined.violations or examined.txn_id is None:
            return None
        with self._store.read() as unit:
            if any(table == row.id for table, _ in unit.transaction_commits(examined.txn_id)):
                return None
        # Whose it is decides, and not what it does: what was ratified once was judged then.
        stamp, metadata = examined.timestamp_ms, examined.metadata
        if stamp is None or stamp <= timestamp_ms:
            return None
        return stamp if metadata is None or _names(metadata, row) else None

    def _state(self, row: TableRow, name: str) -> Iterator[Finding]:
        protocol, metadata = protocol_and_metadata(row)
        if not features.is_catalog_managed(protocol) or not _names(metadata, row):
            yield Finding(
                rule="S20",
                severity=Severity.ERROR,
                table=name,
                says=f"is not the catalog-managed table {row.id} any more",
                remedy="Restore the catalog from a backup.",
            )
        if row.diverged is not None:
            yield Finding(
                rule="PB-02",
                severity=Severity.ERROR,
                table=name,
                says=f"is not published any more: {row.diverged}",
                remedy="Run `headgate fsck --repair`.",
            )


def _names(metadata: Metadata, row: TableRow) -> bool:
    """Say whether metadata is of this very table."""
    return metadata.configuration.get(TABLE_ID_PROPERTY) == row.id


def list_log(log: DeltaLog) -> LogListing:
    """List a log's folder, and hash what is published in it."""
    published: dict[Version, str] = {}
    others: list[paths.LogFile] = []
    for item in log.list():
        if isinstance(item.file, PublishedCommit):
            found = published_hash(log, item.file.version)
            if found is not None:
                published[item.file.version] = found
        else:
            others.append(item.file)
    staged = {item.path.removeprefix(f"{STAGED}/"): item.size for item in log.store.list(STAGED)}
    return LogListing(published, staged, others, log.strays())


def _rows(row: TableRow, name: str, commits: list[CommitRow]) -> Iterator[Finding]:
    """S1 and S19: versions without a gap, timestamps and sequences that rise."""
    versions = [commit.version for commit in commits]
    if versions != list(range(row.head + 1)):
        yield Finding(
            rule="S1",
            severity=Severity.ERROR,
            table=name,
            says=f"has versions {versions[:5]}… recorded for a head of {row.head}",
            remedy="Restore the catalog from a backup.",
        )
    for before, after in itertools.pairwise(commits):
        if before.timestamp_ms >= after.timestamp_ms or before.sequence >= after.sequence:
            yield Finding(
                rule="S19",
                severity=Severity.ERROR,
                table=name,
                version=after.version,
                says="is not later than the version before it",
                remedy="Report this: no commit of this kind can be ratified.",
            )


def _held(
    row: TableRow, name: str, log: DeltaLog, commits: list[CommitRow], files: LogListing
) -> Iterator[Finding]:
    """S9 to S12: every version is there, and what is published is what was ratified, in order."""
    covered = files.newest_checkpoint
    for commit in commits:
        version, path = commit.version, PublishedCommit(commit.version).path
        published = files.published.get(version)
        if published is None and version > covered:  # or published since the log was listed
            published = published_hash(log, version)
        if published is not None and published != commit.sha256.hex():
            yield Finding(
                rule="S10",
                severity=Severity.ERROR,
                table=name,
                version=version,
                path=path,
                says="holds other bytes than were ratified",
                remedy="Run `headgate fsck --repair`, which keeps the file under another name and "
                "publishes the ratified bytes if they can be found; else restore the file.",
            )
        if published is None and commit.published_ms is not None and version > covered:
            yield Finding(
                rule="S11",
                severity=Severity.ERROR,
                table=name,
                version=version,
                path=path,
                says="was published and is gone",
                remedy=f"Run `headgate fsck --repair`; if that cannot find its bytes: {RESTORE}",
            )
        if (
            published is None
            and version > row.published
            and any(later > version for later in files.published if later <= row.head)
        ):
            yield Finding(
                rule="S11",
                severity=Severity.WARNING,
                table=name,
                version=version,
                path=path,
                says="is not published, and a later version is",
                remedy="Run `headgate publish`.",
            )
        if published is None and commit.published_ms is None:
            if commit.content is None and _staged_content(log, commit) is None:
                yield Finding(
                    rule="S9",
                    severity=Severity.ERROR,
                    table=name,
                    version=version,
                    path=f"{STAGED}/{commit.file_name}",
                    says="is ratified, and its content is gone or altered",
                    remedy=RESTORE,
                )
            elif commit.content is not None:
                held = hashlib.sha256(commit.content).digest()
                if held != commit.sha256:
                    yield Finding(
                        rule="S9",
                        severity=Severity.ERROR,
                        table=name,
                        version=version,
                        says="is held with other bytes than were ratified",
                        remedy="Restore the catalog from a backup.",
                    )
                elif commit.file_name is not None and _staged_content(log, commit) is None:
                    yield Finding(
                        rule="S9",
                        severity=Severity.WARNING,
                        table=name,
                        version=version,
                        path=f"{STAGED}/{commit.file_name}",
                        says="is gone or altered; what was ratified is held by the catalog",
                        remedy="Run `headgate publish`, which puts it back.",
                    )


def published_hash(log: DeltaLog, version: Version) -> str | None:
    """Hash a published commit; None if nothing has its name."""
    try:
        content = log.read_published(version)
    except InvalidArgumentError:  # something else has its name, such as a link
        return _UNREADABLE
    return None if content is None else hashlib.sha256(content).hexdigest()


def read_or_none(log: DeltaLog, version: Version) -> bytes | None:
    """Read a published commit; None if no file has its name."""
    try:
        return log.read_published(version)
    except InvalidArgumentError:
        return None


def _staged_content(log: DeltaLog, commit: CommitRow) -> bytes | None:
    """Give what was ratified as it lies where it was staged; None if it does not."""
    try:
        content = log.read(f"{STAGED}/{commit.file_name}")
    except HeadgateError:
        return None
    return content if hashlib.sha256(content).digest() == commit.sha256 else None


def beside(
    name: str, others: Iterable[paths.LogFile], *, published: Version, head: Version
) -> Iterator[Finding]:
    """S14: checkpoints and compactions stand for published versions alone."""
    for file in others:
        last: Version | None
        match file:
            case paths.ClassicCheckpoint() | paths.MultipartCheckpoint() | paths.UuidCheckpoint():
                last = file.version
            case paths.Compaction():
                last = file.last
            case _:
                last = None
        if last is not None and last > published:
            yield Finding(
                rule="S14",
                severity=Severity.WARNING if last > head else Severity.ERROR,
                table=name,
                version=last,
                path=file.path,
                says="stands for a version that is not published",
                remedy="Move the file out of the log, or publish the version.",
            )


def strays(name: str, found: Iterable[str]) -> Iterator[Finding]:
    """Name what does not belong into a log, up to a number of it: no reader looks at it."""
    told = sorted(found)
    for path in told[:_FILES_TOLD]:
        yield Finding(
            rule="stray",
            severity=Severity.NOTE,
            table=name,
            path=path,
            says="is no file of a log; nobody reads it",
        )
    if len(told) > _FILES_TOLD:
        says = f"has {len(told)} files in its log's folder that are none of a log, in all"
        yield Finding(rule="stray", severity=Severity.NOTE, table=name, says=says)


def never_registered(row: TableRow, *, repaired: bool) -> Finding:
    """Name a place that was staged long ago and never became a table."""
    return Finding(
        rule="MN-02",
        severity=Severity.WARNING,
        table=row.id,
        says=f"was staged at {moment(row.created_ms)} and never registered; it lies at "
        f"{row.location}",
        remedy="Register it, or run `headgate fsck --repair`, which deletes what lies there unless "
        "somebody still writes to it. A process that has the lake open for long does so by itself.",
        repaired=repaired,
    )


def left_behind(row: TableRow, store: ObjectStore) -> Iterator[Finding]:
    """Name what lies where a table was that is purged: somebody put it there afterwards."""
    left = list(store.list("", recursive=True))
    if left:
        yield Finding(
            rule="CM-40",
            severity=Severity.WARNING,
            table=row.id,
            path=min(item.path for item in left),
            says=f"is purged, and where it was lie {len(left)} files of "
            f"{sum(item.size for item in left)} bytes that came later",
            remedy=f"See who wrote them, then delete what is below {row.location}.",
        )


def data_files(name: str, snapshot: Snapshot, listed: Mapping[str, int]) -> Iterator[Finding]:
    """Look for every data file of the latest version."""
    missing = 0
    for file in snapshot.files():
        data = locations.data_path(file.path)
        if data.kind is not locations.PathKind.RELATIVE or listed.get(data.value) == file.size:
            continue
        missing += 1
        if missing <= _FILES_TOLD:
            is_there = data.value in listed
            yield Finding(
                rule="data-file",
                severity=Severity.ERROR,
                table=name,
                version=snapshot.version,
                path=file.path,
                says=f"has another size than {file.size} bytes" if is_there else "is gone",
                remedy=RESTORE,
            )
    if missing > _FILES_TOLD:
        yield Finding(
            rule="data-file",
            severity=Severity.ERROR,
            table=name,
            version=snapshot.version,
            says=f"lacks {missing} data files in all",
            remedy=RESTORE,
        )


def counts(name: str, snapshot: Snapshot, row: TableRow) -> Iterator[Finding]:
    """Count what the catalog counted."""
    counted = (row.num_files, row.size_bytes)
    if None not in counted and counted != (snapshot.num_files, snapshot.size_in_bytes):
        yield Finding(
            rule="RD-03",
            severity=Severity.WARNING,
            table=name,
            version=snapshot.version,
            says=f"has {snapshot.num_files} files of {snapshot.size_in_bytes} bytes, and the "
            f"catalog counted {counted[0]} of {counted[1]}",
            remedy="Run `headgate fsck --repair` to count anew.",
        )


def _staged(name: str, commits: list[CommitRow], files: LogListing) -> Iterator[Finding]:
    """Say of every staged file whether it is ratified, published too, or means nothing."""
    ratified = {commit.file_name: commit for commit in commits if commit.file_name is not None}
    for file_name, size in sorted(files.staged.items()):
        commit = ratified.get(file_name)
        known = paths.parse_staged_name(file_name)
        if commit is not None:
            is_published = commit.published_ms is not None
            says = "is ratified and published" if is_published else "is ratified"
            if size != commit.size:
                says = "is ratified and was altered"
        elif known is None:
            says = "is no commit"
        elif known.version < len(commits):
            says = "was not ratified: another commit has its version"
        else:
            says = "was not ratified, so far"
        yield Finding(
            rule="CM-05",
            severity=Severity.NOTE,
            table=name,
            version=None if known is None else known.version,
            path=f"{LOG}/_staged_commits/{file_name}",
            says=says,
        )
