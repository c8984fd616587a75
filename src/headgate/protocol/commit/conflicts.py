"""Our changes against the winners': conflicts, or none and then the attempt may be rebased.

Everything is compared as values: `Changes` sums up a commit, `Scan` says what a transaction read.
A name that came to mean another table, and a table that is gone, are the registry's to see.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Set
from collections.abc import Sequence as Many
from dataclasses import dataclass

import msgspec

from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    Sequence,
    SetTransaction,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.data_paths import normal_path
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.schema.types import StructType
from headgate.protocol.statistics import NOT_GIVEN, Bounds, bounds_of, parse_values

MOST_FILES = 10_000  # files a summary keeps by name; of more than these any may match
# Domains two commits may both change: the catalog takes the maximum and numbers again.
MERGEABLE_DOMAINS = frozenset({ROW_TRACKING})

# Properties that change neither what rows mean nor how they are written.
NEUTRAL_PROPERTIES = frozenset(
    {
        "comment",
        "delta.checkpointInterval",
        "delta.deletedFileRetentionDuration",
        "delta.logRetentionDuration",
        "delta.setTransactionRetentionDuration",
        "delta.requireCheckpointProtectionBeforeVersion",
    }
)
NEUTRAL_PREFIX = "headgate."


class Isolation(enum.Enum):
    """Which reads are checked when a transaction is decided."""

    SNAPSHOT = "snapshot"
    WRITE_SERIALIZABLE = "write_serializable"
    SERIALIZABLE = "serializable"


class Scan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a statement read of one table. No predicate means all of it."""

    table_id: TableId
    version: Version
    predicate: Predicate | None = None
    files: tuple[str, ...] | None = None  # paths kept after pruning; None: derive by the predicate
    fed: bool = True  # the read fed a write
    validating: bool = False  # it checked existing rows for a new constraint


class FileSummary(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """An added file as far as a predicate can judge it."""

    path: str
    partition_values: dict[str, str | None] = {}
    min_values: msgspec.Raw = NOT_GIVEN  # by physical names, as the statistics have them
    max_values: msgspec.Raw = NOT_GIVEN


class Changes(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """What a commit did, as far as others can collide with it."""

    protocol: bool = False
    metadata: bool = False
    neutral: bool = False  # of a metadata change: nobody's rows depend on it
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    added: tuple[FileSummary, ...] | None = ()  # None: too many to keep, so any may match
    removed: tuple[FileKey, ...] | None = ()
    data_change: bool = False
    blind: bool = False

    @property
    def has_files(self) -> bool:
        """Whether any file came or went."""
        return self.added != () or self.removed != ()

    @property
    def rearranges(self) -> bool:
        """Whether files came and went and no row did: compaction, clustering."""
        return self.has_files and not self.data_change


class Conflict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A rule, and the winner that broke it."""

    rule: str
    table_id: TableId
    version: Version
    says: str
    txn_id: TxnId | None = None
    sequence: Sequence | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: version {self.version} {self.says}"


UNCHANGED = Changes()


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit ratified after the attempt's base."""

    version: Version
    changes: Changes
    txn_id: TxnId | None = None
    sequence: Sequence | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a transaction did with one table since its base: wrote it, read it, or both."""

    table_id: TableId
    base: Version
    changes: Changes = UNCHANGED
    removed: frozenset[str] = frozenset()  # paths it removes or puts a deletion vector on, all
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE  # as `level` gives it
    is_written: bool = True
    looked_up: frozenset[str] = frozenset()  # application ids whose progress it asked for
    # To read predicates by, with column mapping's names where it is on. None: any file may match.
    schema: StructType | None = None


# What a commit did


def summarize(
    *,
    adds: Many[AddFile] = (),
    removes: Many[RemoveFile] = (),
    txns: Many[SetTransaction] = (),
    domains: Many[DomainMetadata] = (),
    metadata: Metadata | None = None,
    protocol: Protocol | None = None,
    bounds: Many[Bounds] | None = None,
    only_these: bool = True,
    says_blind: bool = True,
) -> Changes:
    """Sum up a commit.

    `blind` is what the content allows and the writer says; what the transaction read in this and
    other tables is not in a commit: `is_blind` adds it. `bounds` are those of the adds, where they
    have been read already; `only_these`: there are no other actions, `commitInfo` aside.
    """
    if len(adds) > MOST_FILES:
        added = None
    else:
        read = [bounds_of(file) for file in adds] if bounds is None else bounds
        added = tuple(map(_summary, adds, read))
    changing = [file for file in adds if file.data_change]
    only_appends = (
        only_these
        and not removes
        and metadata is None
        and protocol is None
        and len(changing) == len(adds)
        and MERGEABLE_DOMAINS.issuperset([domain.domain for domain in domains])
    )
    return Changes(
        protocol=protocol is not None,
        metadata=metadata is not None,
        app_ids=tuple([txn.app_id for txn in txns]),
        domains=tuple([domain.domain for domain in domains]),
        added=added,
        removed=tuple([file.key for file in removes]) if len(removes) <= MOST_FILES else None,
        data_change=bool(changing) or any(file.data_change for file in removes),
        blind=only_appends and says_blind,
    )


def _summary(file: AddFile, bounds: Bounds) -> FileSummary:
    return FileSummary(
        path=file.path,
        partition_values=file.partition_values,
        min_values=bounds.min_values,
        max_values=bounds.max_values,
    )


def is_blind(parts: Iterable[Changes], scans: Iterable[Scan]) -> bool:
    """Say whether a transaction only appends and read nothing that fed it, in any table."""
    return all(part.blind for part in parts) and not any(scan.fed for scan in scans)


def is_neutral(before: Metadata, after: Metadata) -> bool:
    """Say whether a change of metadata leaves schema, partitioning, id and meaning as they were."""
    return (
        before.id == after.id
        and before.format == after.format
        and before.partition_columns == after.partition_columns
        and before.schema_string == after.schema_string
        and _weighty(before) == _weighty(after)
    )


def _weighty(metadata: Metadata) -> dict[str, str]:
    return {
        key: value
        for key, value in metadata.configuration.items()
        if key not in NEUTRAL_PROPERTIES and not key.startswith(NEUTRAL_PREFIX)
    }


# How it stands to the winners


def level(isolation: Isolation, metadata: Metadata | None) -> Isolation:
    """Give the level that holds for a table: the transaction's or the table's, if stronger."""
    asked = "" if metadata is None else metadata.configuration.get("delta.isolationLevel", "")
    return Isolation.SERIALIZABLE if asked.strip().lower() == "serializable" else isolation


def conflicts(attempt: Attempt, winners: Iterable[Winner]) -> list[Conflict]:
    """List every reason why the attempt cannot be moved past the winners; none means it can.

    Scans of other tables are passed over. A winner counts for a write from the base on, for a scan
    from the version it read.
    """
    scans = [
        scan
        for scan in attempt.scans
        if scan.table_id == attempt.table_id and _is_checked(scan, attempt.isolation)
    ]
    found: list[Conflict] = []
    for winner in winners:
        theirs = winner.changes
        ran_before = [scan for scan in scans if scan.version < winner.version]
        hits = list(_reads_disturbed(attempt, ran_before, winner))
        if ran_before or (attempt.is_written and attempt.base < winner.version):
            hits.extend(_ground_moved(attempt, theirs))
        if attempt.base < winner.version:
            hits.extend(_writes_collide(attempt, theirs))
        found.extend(
            Conflict(
                rule=hit.rule,
                table_id=attempt.table_id,
                version=winner.version,
                says=hit.says,
                txn_id=winner.txn_id,
                sequence=winner.sequence,
                files=tuple(sorted(hit.files)),
            )
            for hit in sorted(hits, key=lambda hit: hit.rule)
        )
    return found


@dataclass(frozen=True, slots=True)
class _Hit:
    rule: str
    says: str
    files: Set[str] = frozenset()


def _ground_moved(attempt: Attempt, theirs: Changes) -> Iterator[_Hit]:
    if theirs.protocol:
        yield _Hit("R1", "changed the protocol")
    if theirs.metadata and (attempt.changes.metadata or not theirs.neutral):
        yield _Hit("R2", "changed the table's metadata")


def _writes_collide(attempt: Attempt, theirs: Changes) -> Iterator[_Hit]:
    if ids := attempt.looked_up.union(attempt.changes.app_ids).intersection(theirs.app_ids):
        yield _Hit("R3", f"moved application {_listed(ids)} on")
    domains = set(attempt.changes.domains).intersection(theirs.domains)
    if domains := domains - MERGEABLE_DOMAINS:
        yield _Hit("R4", f"changed domain {_listed(domains)}")
    if attempt.removed and theirs.removed is None:
        yield _Hit("R6", "removed so many files that ours may be among them")
    elif gone := _paths_removed(theirs).intersection(map(normal_path, attempt.removed)):
        yield _Hit("R6", "removed files that we remove", gone)


def _reads_disturbed(attempt: Attempt, scans: Many[Scan], winner: Winner) -> Iterator[_Hit]:
    theirs = winner.changes
    if attempt.changes.rearranges or not theirs.data_change:
        return  # no row changes on one side: what was read still holds
    reading = [scan for scan in scans if scan.files != ()]
    if reading and theirs.removed is None:
        yield _Hit("R5", "removed so many files that some we read may be among them")
    elif gone := {path for scan in reading for path in _read_and_gone(scan, theirs)}:
        yield _Hit("R5", "removed files that we read", gone)
    is_taken_out = winner.version <= attempt.base and _removes_new_files(attempt, theirs)
    seeing = [scan for scan in scans if is_taken_out or _counts_new_files(scan, attempt, theirs)]
    if seeing and theirs.added is None:
        yield _Hit("R7", "added so many files that we would have read some")
    elif came := {
        path for scan in seeing for path in _may_match(scan, theirs.added or (), attempt.schema)
    }:
        yield _Hit("R7", "added files that we would have read", came)


def _is_checked(scan: Scan, isolation: Isolation) -> bool:
    """Say whether a scan must still hold when the transaction is decided."""
    match isolation:
        case Isolation.SERIALIZABLE:
            return True
        case Isolation.WRITE_SERIALIZABLE:
            return scan.fed or scan.validating
        case Isolation.SNAPSHOT:
            return scan.validating


def _counts_new_files(scan: Scan, attempt: Attempt, theirs: Changes) -> bool:
    """Say whether files the winner added count for a scan that is checked.

    A blind append may be put after the attempt: it read nothing of it. Not so when the attempt
    validated every row, or changes what rows mean.
    """
    return (
        not theirs.blind
        or scan.validating
        or attempt.changes.metadata
        or attempt.isolation is Isolation.SERIALIZABLE
    )


def _removes_new_files(attempt: Attempt, theirs: Changes) -> bool:
    """Say whether the attempt takes out a file that the winner added, and so came after it.

    It is built on the winner, and reads of before the winner feed it: an overwrite with rows that
    were computed meanwhile.
    """
    if theirs.added is None:
        return bool(attempt.removed)
    removed = set(map(normal_path, attempt.removed))
    return any(normal_path(file.path) in removed for file in theirs.added)


def _read_and_gone(scan: Scan, theirs: Changes) -> set[str]:
    gone = _paths_removed(theirs)
    # A list too long to send names no file, and nobody keeps the bounds of one that is gone: each
    # may have been read.
    return gone if scan.files is None else gone.intersection(map(normal_path, scan.files))


def _paths_removed(theirs: Changes) -> set[str]:
    # By path alone: a new deletion vector removes the file with the old one.
    # In normal form, which summaries of older releases do not have.
    return {normal_path(path) for path, _ in theirs.removed or ()}


def _may_match(scan: Scan, files: Many[FileSummary], schema: StructType | None) -> Iterator[str]:
    """Give the paths of the files in which a row may be that the scan would have read."""
    if scan.predicate is None or schema is None:
        yield from [file.path for file in files]
        return
    pruner = Pruner(scan.predicate, schema)
    for file in files:
        bounds = parse_values(file.min_values), parse_values(file.max_values)
        if pruner.may_match(file.partition_values, *bounds):
            yield file.path


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
