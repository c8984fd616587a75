"""Find conflicts between a transaction and its winners; without any, it may be rebased.

`Changes` sums up a commit, and a `Scan` describes what a transaction read. That a table was renamed
or dropped is not a conflict here: the catalog checks it.
"""

import enum
from collections.abc import Iterable, Iterator, Set
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from headgate.protocol import actions
from headgate.protocol.commit.row_ids import DOMAIN as ROW_TRACKING
from headgate.protocol.data_paths import normal_path
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.schema.types import StructType
from headgate.protocol.statistics import (
    NOT_GIVEN,
    Bounds,
    Statistics,
    bounds_of,
    parse_values,
)

MOST_FILES = 10_000  # that a summary lists; with more, any file may match
# Domains that two commits may both change: the catalog merges them.
MERGEABLE_DOMAINS = frozenset({ROW_TRACKING})

# Properties that affect neither the meaning of rows nor how they are written.
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
    """What a statement read from a table; without a predicate, all of it."""

    table_id: actions.TableId
    version: actions.Version
    predicate: Predicate | None = None
    files: tuple[str, ...] | None = None  # paths left after pruning; None: see the predicate
    fed: bool = True  # the read fed a write
    validating: bool = False  # it checked existing rows against a new constraint


class FileSummary(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """An added file, with what a predicate can be evaluated on."""

    path: str
    partition_values: dict[str, str | None] = {}
    min_values: msgspec.Raw = NOT_GIVEN  # by physical names, as in the statistics
    max_values: msgspec.Raw = NOT_GIVEN


class Changes(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """What a commit changed, as far as other transactions may conflict with it."""

    protocol: bool = False
    metadata: bool = False
    neutral: bool = False  # of a metadata change: it does not affect rows
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    added: tuple[FileSummary, ...] | None = ()  # None: too many to list, so any may match
    removed: tuple[actions.FileKey, ...] | None = ()
    data_change: bool = False
    blind: bool = False

    @property
    def has_files(self) -> bool:
        """Whether any file was added or removed."""
        return self.added != () or self.removed != ()

    @property
    def rearranges(self) -> bool:
        """Whether it changed files but no rows, as compaction and clustering do."""
        return self.has_files and not self.data_change


class Conflict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A conflict rule, and the winner that it applies to."""

    rule: str
    table_id: actions.TableId
    version: actions.Version
    says: str
    txn_id: actions.TxnId | None = None
    sequence: actions.Sequence | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: version {self.version} {self.says}"


UNCHANGED = Changes()


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit ratified after the attempt's base."""

    version: actions.Version
    changes: Changes
    txn_id: actions.TxnId | None = None
    sequence: actions.Sequence | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a transaction did to one table since its base: it wrote it, read it, or both."""

    table_id: actions.TableId
    base: actions.Version
    changes: Changes = UNCHANGED
    removed: frozenset[str] = frozenset()  # all paths it removes or adds a deletion vector to
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE  # as returned by `level`
    is_written: bool = True
    # To evaluate predicates, with physical names if column mapping is active. None: any may match.
    schema: StructType | None = None


# Changes


def summarize(
    *,
    adds: Many[actions.AddFile] = (),
    removes: Many[actions.RemoveFile] = (),
    txns: Many[actions.SetTransaction] = (),
    domains: Many[actions.DomainMetadata] = (),
    metadata: actions.Metadata | None = None,
    protocol: actions.Protocol | None = None,
    bounds: Many[Bounds] | None = None,
    only_these: bool = True,
    says_blind: bool = True,
) -> Changes:
    """Sum up a commit.

    `says_blind` is the writer's own flag; `is_blind` also takes into account what the transaction
    read. `bounds` are those of the adds, if they were parsed already. `only_these` means that the
    only other action is `commitInfo`.
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


def _summary(file: actions.AddFile, bounds: Bounds) -> FileSummary:
    return FileSummary(
        path=file.path,
        partition_values=file.partition_values,
        min_values=bounds.min_values,
        max_values=bounds.max_values,
    )


def is_blind(parts: Iterable[Changes], scans: Iterable[Scan]) -> bool:
    """Return True if a transaction only appends, and what it read was not used for that."""
    return all(part.blind for part in parts) and not any(scan.fed for scan in scans)


def is_neutral(before: actions.Metadata, after: actions.Metadata) -> bool:
    """Return True if a change of metadata does not affect how rows are read or written."""
    return (
        before.id == after.id
        and before.format == after.format
        and before.partition_columns == after.partition_columns
        and before.schema_string == after.schema_string
        and _relevant(before) == _relevant(after)
    )


def _relevant(metadata: actions.Metadata) -> dict[str, str]:
    return {
        key: value
        for key, value in metadata.configuration.items()
        if key not in NEUTRAL_PROPERTIES and not key.startswith(NEUTRAL_PREFIX)
    }


# Conflicts


def level(isolation: Isolation, metadata: actions.Metadata | None) -> Isolation:
    """Return the isolation level for a table: the stronger of the transaction's and its own."""
    own = "" if metadata is None else metadata.configuration.get("delta.isolationLevel", "")
    return Isolation.SERIALIZABLE if own.strip().lower() == "serializable" else isolation


def conflicts(attempt: Attempt, winners: Iterable[Winner]) -> list[Conflict]:
    """List the conflicts of an attempt with its winners; without any, it can be rebased.

    Scans of other tables are ignored. A write conflicts with winners after its base, a scan with
    winners after the version it read.
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
        hits = list(_read_conflicts(attempt, ran_before, winner))
        if ran_before or (attempt.is_written and attempt.base < winner.version):
            hits.extend(_definition_conflicts(attempt, theirs))
        if attempt.base < winner.version:
            hits.extend(_write_conflicts(attempt, theirs))
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


class _Hit(NamedTuple):
    rule: str
    says: str
    files: Set[str] = frozenset()


def _definition_conflicts(attempt: Attempt, theirs: Changes) -> Iterator[_Hit]:
    if theirs.protocol:
        yield _Hit("R1", "changed the protocol")
    if theirs.metadata and (attempt.changes.metadata or not theirs.neutral):
        yield _Hit("R2", "changed the table's metadata")


def _write_conflicts(attempt: Attempt, theirs: Changes) -> Iterator[_Hit]:
    if ids := set(attempt.changes.app_ids).intersection(theirs.app_ids):
        yield _Hit("R3", f"updated application {_listed(ids)}")
    domains = set(attempt.changes.domains).intersection(theirs.domains)
    if domains := domains - MERGEABLE_DOMAINS:
        yield _Hit("R4", f"changed domain {_listed(domains)}")
    if attempt.removed and theirs.removed is None:
        yield _Hit("R6", "removed too many files to list, perhaps some that we remove")
    elif gone := _paths_removed(theirs).intersection(map(normal_path, attempt.removed)):
        yield _Hit("R6", "removed files that we remove", gone)


def _read_conflicts(attempt: Attempt, scans: Many[Scan], winner: Winner) -> Iterator[_Hit]:
    theirs = winner.changes
    if attempt.changes.rearranges or not theirs.data_change:
        return  # one side changes no rows, so what was read is still true
    reading = [scan for scan in scans if scan.files != ()]
    if reading and theirs.removed is None:
        yield _Hit("R5", "removed too many files to list, perhaps some that we read")
    elif gone := {path for scan in reading for path in _read_and_gone(scan, theirs)}:
        yield _Hit("R5", "removed files that we read", gone)
    is_removed = winner.version <= attempt.base and _removes_new_files(attempt, theirs)
    seeing = [scan for scan in scans if is_removed or _counts_new_files(scan, attempt, theirs)]
    if seeing and theirs.added is None:
        yield _Hit("R7", "added too many files to list, perhaps some that we would have read")
    elif added := {
        path for scan in seeing for path in _may_match(scan, theirs.added or (), attempt.schema)
    }:
        yield _Hit("R7", "added files that we would have read", added)


def _is_checked(scan: Scan, isolation: Isolation) -> bool:
    """Return True if the result of a scan must still be valid when the transaction is decided."""
    if isolation is Isolation.WRITE_SERIALIZABLE:
        return scan.fed or scan.validating
    return scan.validating or isolation is Isolation.SERIALIZABLE


def _counts_new_files(scan: Scan, attempt: Attempt, theirs: Changes) -> bool:
    """Return True if files that the winner added matter for a scan that is checked."""
    # A blind append can be ordered after the attempt since it read nothing, unless the attempt
    # validated every row or changes the meaning of rows.
    return (
        not theirs.blind
        or scan.validating
        or attempt.changes.metadata
        or attempt.isolation is Isolation.SERIALIZABLE
    )


def _removes_new_files(attempt: Attempt, theirs: Changes) -> bool:
    """Return True if the attempt removes a file that the winner added."""
    # Such an attempt is based on the winner but uses older reads, as an overwrite with rows that
    # were computed before the winner.
    if theirs.added is None:
        return bool(attempt.removed)
    removed = set(map(normal_path, attempt.removed))
    return any(normal_path(file.path) in removed for file in theirs.added)


def _read_and_gone(scan: Scan, theirs: Changes) -> set[str]:
    gone = _paths_removed(theirs)
    # Without a list any file may have been read: the bounds of removed files are not kept.
    return gone if scan.files is None else gone.intersection(map(normal_path, scan.files))


def _paths_removed(theirs: Changes) -> set[str]:
    # By path only, since a new deletion vector removes the file with the old one. Summaries of
    # older releases do not have normal paths.
    return {normal_path(path) for path, _ in theirs.removed or ()}


def _may_match(scan: Scan, files: Many[FileSummary], schema: StructType | None) -> Iterator[str]:
    """Yield the paths of the files that may have a row the scan would have read."""
    if scan.predicate is None or schema is None:
        yield from [file.path for file in files]
        return
    pruner = Pruner(scan.predicate, schema)
    for file in files:
        bounds = Statistics(
            min_values=parse_values(file.min_values), max_values=parse_values(file.max_values)
        )
        if pruner.may_match(file.partition_values, bounds):
            yield file.path


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
