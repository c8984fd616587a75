"""Comparison of the catalog's rows of a table with its log.

Every file in the log's folder is classified by its name, as a commit of the Delta RFC or another
file. Checking changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.catalog.fsck.log_folder import (
    MOVE_OUT,
    REPAIR,
    RESTORE,
    RESTORE_CATALOG,
    LogListing,
    list_log,
    published_hash,
    unexpected_files,
    unpublished_versions,
)
from headgate.catalog.heads import protocol_and_metadata
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import CommitRow, TableRow
from headgate.errors import MalformedError
from headgate.protocol import features, paths
from headgate.protocol.actions import Metadata, TableId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.table_states import TableStatus
from headgate.table.log_files import DeltaLog
from headgate.table.ratified_content import find_content, is_ratified

_KEEP_ASIDE: Final = (
    "Run `headgate fsck --repair`, which keeps the file under another name and publishes the "
    "ratified bytes if it finds them. Otherwise restore the file."
)
_READ_LATER: Final = (
    "Read these tables as of a later sequence: a repair ratified the commits again, one after the "
    "other."
)


def check_table(store: CatalogStore, row: TableRow, name: str, log: DeltaLog) -> Iterator[Finding]:
    """Check a table; change nothing."""
    # List the log before reading the catalog: a commit is published after it was ratified, so
    # every commit listed here is in the catalog by then, also while others commit.
    files = list_log(log)
    with store.read() as unit:
        row = unit.table(row.id) or row
        commits = unit.commits(row.key, Version(0), row.head, content=True)
    yield from _order_of_versions(row, name, commits)
    yield from _content_of_versions(row, name, log, commits, files)
    yield from _unratified_versions(store, row, name, log, files)
    yield from unpublished_versions(name, files.others, published=row.published, head=row.head)
    yield from _staged_files(name, commits, files)
    yield from unexpected_files(name, files.strays)
    yield from _state(row, name)


def inconsistent_transactions(
    store: CatalogStore, tables: Mapping[TableId, str]
) -> Iterator[Finding]:
    """Report transactions with more than one sequence or timestamp. Spec: S7."""
    with store.read() as unit:
        inconsistent = {
            txn_id: unit.transaction_commits(txn_id) for txn_id in unit.inconsistent_transactions()
        }
    for txn_id, commits in inconsistent.items():
        # A repair found them in the logs and ratified them again, one table after the other.
        is_repaired = any(row.way is Way.PUT_IF_ABSENT and row.version > 0 for _, row in commits)
        severity, remedy = Severity.ERROR, RESTORE_CATALOG
        if is_repaired:
            severity, remedy = Severity.NOTE, _READ_LATER
        says = (
            f"is part of transaction {txn_id}, whose {len(commits)} commits have different "
            "sequences or timestamps: a cut between them has a part of it"
        )
        for table_id, row in commits:
            if table_id in tables:
                yield Finding("S7", severity, tables[table_id], says, remedy, row.version)


def _unratified_versions(
    store: CatalogStore, row: TableRow, name: str, log: DeltaLog, files: LogListing
) -> Iterator[Finding]:
    following, timestamp_ms = row.head + 1, row.timestamp_ms
    for version in sorted(version for version in files.published if version > row.head):
        path = PublishedCommit(version).path
        content = log.read_published(version) if version == following else None
        later_ms = (
            None if content is None else following_timestamp(store, row, content, timestamp_ms)
        )
        if later_ms is not None:
            following, timestamp_ms = version + 1, later_ms
            is_active = row.state is TableStatus.ACTIVE
            yield Finding(
                "FS3",
                Severity.ERROR,
                name,
                f"is in the log, and the catalog knows versions up to {row.head}: "
                "the catalog is an older copy",
                "Run `headgate fsck --repair` to ratify it."
                if is_active
                else "Undrop the table, then run `headgate fsck --repair`.",
                version,
                path,
            )
        else:
            says = "was written without the catalog; readers of the catalog do not see it"
            yield Finding("AU-01", Severity.WARNING, name, says, MOVE_OUT, version, path)


def is_next(store: CatalogStore, row: TableRow, content: bytes) -> bool:
    """Return True if content could have been ratified as the table's next version."""
    return following_timestamp(store, row, content, row.timestamp_ms) is not None


def following_timestamp(
    store: CatalogStore, row: TableRow, content: bytes, timestamp_ms: int
) -> int | None:
    """Return a commit's timestamp; None if it cannot follow a commit of `timestamp_ms`."""
    try:
        examined = examination.examine_file(content)
    except MalformedError:
        return None
    if examined.violations or examined.txn_id is None:
        return None
    with store.read() as unit:
        if any(table == row.id for table, _ in unit.transaction_commits(examined.txn_id)):
            return None
    # Check the table id but not the changes: those were admitted when it was ratified.
    own_ms, metadata = examined.timestamp_ms, examined.metadata
    if own_ms is None or own_ms <= timestamp_ms:
        return None
    return own_ms if metadata is None or _is_of_table(metadata, row) else None


def _state(row: TableRow, name: str) -> Iterator[Finding]:
    protocol, metadata = protocol_and_metadata(row)
    if not features.is_catalog_managed(protocol) or not _is_of_table(metadata, row):
        says = f"is no longer the catalog-managed table {row.id}"
        yield Finding("S20", Severity.ERROR, name, says, RESTORE_CATALOG)
    if row.diverged is not None:
        yield Finding(
            "PB-02", Severity.ERROR, name, f"is no longer published: {row.diverged}", REPAIR
        )


def _is_of_table(metadata: Metadata, row: TableRow) -> bool:
    """Return True if metadata has the id of this table."""
    return metadata.configuration.get(TABLE_ID_PROPERTY) == row.id


def _order_of_versions(row: TableRow, name: str, commits: list[CommitRow]) -> Iterator[Finding]:
    """Check that versions have no gap, and that timestamps and sequences rise. Spec: S1, S19."""
    versions = [commit.version for commit in commits]
    if versions != list(range(row.head + 1)):
        says = f"has versions {versions[:5]}… recorded for a head of {row.head}"
        yield Finding("S1", Severity.ERROR, name, says, RESTORE_CATALOG)
    for before, after in itertools.pairwise(commits):
        if before.timestamp_ms >= after.timestamp_ms or before.sequence >= after.sequence:
            says = "is not later than the version before it"
            remedy = "Report this as a defect: such a commit cannot be ratified."
            yield Finding("S19", Severity.ERROR, name, says, remedy, after.version)


def _content_of_versions(
    row: TableRow, name: str, log: DeltaLog, commits: list[CommitRow], files: LogListing
) -> Iterator[Finding]:
    """Check that every version can be read, and is published as ratified. Spec: S9 to S12."""
    covered = files.newest_checkpoint
    for commit in commits:
        version, path = commit.version, PublishedCommit(commit.version).path
        published = files.published.get(version)
        if published is None and version > covered:  # it may be published since the listing
            published = published_hash(log, version)
        if published is not None:
            if published != commit.sha256.hex():
                says = "has other bytes than were ratified"
                yield Finding("S10", Severity.ERROR, name, says, _KEEP_ASIDE, version, path)
            continue
        if commit.published_ms is None:
            yield from _unpublished_content(name, log, commit)
        elif version > covered:
            says = "was published and is missing"
            remedy = f"Run `headgate fsck --repair`. If that cannot find its bytes: {RESTORE}"
            yield Finding("S11", Severity.ERROR, name, says, remedy, version, path)
        if version > row.published and any(version < v <= row.head for v in files.published):
            says, remedy = "is not published, but a later version is", "Run `headgate publish`."
            yield Finding("S11", Severity.WARNING, name, says, remedy, version, path)


def _unpublished_content(name: str, log: DeltaLog, commit: CommitRow) -> Iterator[Finding]:
    """Check that a commit that has no published file can be read."""
    version, path = commit.version, f"{STAGED}/{commit.file_name}"
    if commit.content is not None and not is_ratified(commit.content, commit):
        says = "is stored by the catalog with other bytes than were ratified"
        yield Finding("S9", Severity.ERROR, name, says, RESTORE_CATALOG, version)
    elif commit.content is not None and commit.file_name is None:
        return
    elif find_content(log, commit._replace(content=None)).content is None:
        if commit.content is None:
            says = (
                f"is ratified, but its content ({commit.size} bytes, SHA-256 "
                f"{commit.sha256.hex()}) is missing or altered"
            )
            remedy = f"{RESTORE} Then run `headgate fsck --repair`."
            yield Finding("S9", Severity.ERROR, name, says, remedy, version, path)
        else:
            says = "is missing or altered; the catalog still has the ratified content"
            remedy = "Run `headgate publish`, which restores it."
            yield Finding("S9", Severity.WARNING, name, says, remedy, version, path)


def _staged_files(name: str, commits: list[CommitRow], files: LogListing) -> Iterator[Finding]:
    """Report of every staged file whether it is ratified and published."""
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
            says = "is not a commit"
        elif known.version < len(commits):
            says = "was not ratified: another commit has its version"
        else:
            says = "is not ratified yet"
        version = None if known is None else known.version
        path = f"{STAGED}/{file_name}"
        yield Finding("CM-05", Severity.NOTE, name, says, version=version, path=path)
