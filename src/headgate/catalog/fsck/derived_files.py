"""Checks of derived files: that checkpoints, compactions and checksums exist and can be read.

Readers skip a damaged file and use older checkpoints and commits, so nothing else reports it:
reads only become slow, and fail once those commits are deleted from the log. Stock readers that
open a table by its path may fail at once.

A repair removes a damaged file from the catalog and renames what is left of it, provided that its
version can be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.api.messages import Finding, Severity
from headgate.catalog import lookup
from headgate.catalog.component import Component
from headgate.catalog.fsck.log_folder import REPAIR, RESTORE, list_log, read_or_none
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import HeadgateError, MalformedError, NotFoundError, UnavailableError
from headgate.protocol.actions import FileKey, TableId, Version, Wrapped, decode, join
from headgate.protocol.encoding import replaced
from headgate.protocol.log import checksums, replay
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.log.segment import Gap, complete_checkpoints, plan
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    Checksum,
    Compaction,
    LogFile,
    PublishedCommit,
    parse,
)
from headgate.table.log_files import DeltaLog

_FRESH_MS: Final = 3_600_000  # a younger unrecorded file may still be being written
_DIFFERS: Final = "has other files than its commits, so that readers get wrong rows"
_DANGLING: Final = "names a checkpoint that is missing or cannot be read"


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A checkpoint, compaction or checksum that is missing or cannot be read."""

    file: KnownFile
    says: str
    is_known: bool  # recorded by the catalog, and not only found in the log
    is_needed: bool  # its version cannot be read without it

    def finding(self, name: str) -> Finding:
        kind, version, path = self.file.kind, self.file.last, self.file.paths[0]
        if self.is_needed:
            says = f"{self.says}, and the commits that it covers are not all in the log"
            return Finding(kind.value, Severity.ERROR, name, says, RESTORE, version, path)
        says, remedy = f"{self.says}; the log can be read without it", REPAIR
        if kind is FileKind.CHECKPOINT:
            remedy += " Then write another with `headgate checkpoint`."
        severity = Severity.ERROR if self.says == _DIFFERS else Severity.WARNING
        return Finding(kind.value, severity, name, says, remedy, version, path)


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """The damage among the derived files of one log."""

    damaged: Sequence[DamagedFile]
    dangling: Version | None  # `_last_checkpoint`, if it names a checkpoint that cannot be used

    def findings(self, name: str) -> Iterator[Finding]:
        for damaged in self.damaged:
            yield damaged.finding(name)
        if self.dangling is not None:
            yield _dangling(name, self.dangling)


def inspect_derived_files(
    log: DeltaLog,
    known: Sequence[KnownFile],
    latest: Version,
    readable: Callable[[], Collection[Version]],
    now_ms: int,
) -> DerivedFiles:
    """Check the derived files of a log up to a version, and those recorded by the catalog.

    `readable` returns the versions whose published commits have their ratified content.
    """
    hint = log.last_checkpoint()  # read before listing: it is written after its checkpoint
    listed = log.list()
    recorded = {path for file in known for path in file.paths}
    others = [
        file
        for file in _derived(item.file for item in listed)
        if file.last <= latest and recorded.isdisjoint(file.paths)
    ]
    problems = {
        file: problem for file in (*known, *others) if (problem := _problem(log, file)) is not None
    }
    usable = [file for file in (*known, *others) if file not in problems]
    checkpoints = {file.last for file in usable if file.kind is FileKind.CHECKPOINT}
    commits = [PublishedCommit(version) for version in readable()] if problems else []
    published = {item.file.version for item in listed if isinstance(item.file, PublishedCommit)}
    fresh = {item.file.path for item in listed if item.modified_ms >= now_ms - _FRESH_MS}
    damaged: list[DamagedFile] = []
    broken: set[Version] = set()
    for file, problem in problems.items():
        is_known = file in known
        if _is_cleaned(log, file, published, checkpoints):
            continue
        if file.kind is FileKind.CHECKPOINT:
            broken.add(file.last)
        if not is_known and not fresh.isdisjoint(file.paths):
            continue
        is_needed = file.kind is not FileKind.CHECKSUM and isinstance(
            plan(file.last, known=usable, listed=commits), Gap
        )
        damaged.append(DamagedFile(file, problem, is_known, is_needed))
    is_dangling = (
        hint is not None
        and hint <= latest
        and hint not in checkpoints | broken
        and log.last_checkpoint() == hint  # otherwise another checkpoint was just written
    )
    return DerivedFiles(damaged, hint if is_dangling else None)


def repair_derived_files(
    name: str,
    log: DeltaLog,
    inspect: Callable[[], DerivedFiles],
    forget: Callable[[KnownFile], None],
) -> Iterator[Finding]:
    """Forget and rename the damaged files that no version needs; report them."""
    inspected = inspect()
    for damaged in inspected.damaged:
        if damaged.is_needed:
            continue
        file = damaged.file
        if damaged.is_known:
            forget(file)
        kept = [aside for path in file.paths if (aside := log.set_aside(path)) is not None]
        yield replaced(
            damaged.finding(name),
            severity=Severity.WARNING,
            says=damaged.says + (f"; it is kept as {', '.join(kept)}" if kept else ""),
            remedy="",
            repaired=True,
        )
    if inspected.damaged:  # the hint may name one of these files
        inspected = inspect()
    if inspected.dangling is not None:
        aside = log.set_aside(LAST_CHECKPOINT)
        yield replaced(
            _dangling(name, inspected.dangling),
            says=_DANGLING + (f"; it is kept as {aside}" if aside is not None else ""),
            repaired=True,
        )


def _dangling(name: str, hint: Version) -> Finding:
    remedy = "Run `headgate fsck --repair`, or write another checkpoint with `headgate checkpoint`."
    return Finding(
        "last-checkpoint", Severity.WARNING, name, _DANGLING, remedy, hint, LAST_CHECKPOINT
    )


def _derived(files: Iterable[LogFile]) -> Iterator[KnownFile]:
    """Yield the derived files of a listing, without incomplete checkpoints."""
    files = list(files)
    for checkpoint in complete_checkpoints(files):
        version = checkpoint.version
        yield KnownFile(
            kind=FileKind.CHECKPOINT, first=version, last=version, paths=checkpoint.paths
        )
    for file in files:
        match file:
            case Compaction():
                kind, first, last = FileKind.COMPACTION, file.first, file.last
            case Checksum():
                kind, first, last = FileKind.CHECKSUM, file.version, file.version
            case _:
                continue
        yield KnownFile(kind=kind, first=first, last=last, paths=(file.path,))


def _problem(log: DeltaLog, file: KnownFile) -> str | None:
    """Return what is wrong with a file; None if it can be used."""
    # Imported late: it needs pyarrow, whose import takes as long as starting a server.
    from headgate.table.checkpoints import UnusableError, verify_checkpoint

    try:
        if any(log.store.head(path) is None for path in file.paths):
            return "is missing" if len(file.paths) == 1 else "lacks some of its parts"
        match file.kind:
            case FileKind.CHECKPOINT:
                checkpoints = list(complete_checkpoints(map(parse, file.paths)))
                if not checkpoints:
                    return "lacks some of its parts"
                for checkpoint in checkpoints:
                    verify_checkpoint(log.store, checkpoint)
            case FileKind.COMPACTION:
                return _compaction_problem(log, file)
            case FileKind.CHECKSUM:
                checksums.parse(log.read(file.paths[0]))
    except UnavailableError:
        raise
    except NotFoundError:
        return "is missing"
    except UnusableError as error:
        return f"cannot be read: {error.why.rstrip('.')}"
    except HeadgateError as error:
        return f"cannot be read: {error.message.rstrip('.')}"
    return None


def _compaction_problem(log: DeltaLog, file: KnownFile) -> str | None:
    """Check a compaction by itself, and against its commits if all of them are in the log.

    A compaction truncated at the end of a line can be read, but lacks files.
    """
    actions = decode(log.read(file.paths[0]))
    if (contradiction := replay.contradiction(actions)) is not None:
        return f"cannot be used: it {contradiction}"
    versions = map(Version, range(file.first, file.last + 1))
    contents = [read_or_none(log, version) for version in versions]
    commits = [content for content in contents if content is not None]
    if len(commits) < len(contents):
        return None
    try:
        expected = _added(file.last, decode(join(commits)))
    except MalformedError:  # the damaged commit is reported elsewhere
        return None
    return None if _added(file.last, actions) == expected else _DIFFERS


def _added(version: Version, actions: Iterable[Wrapped]) -> set[FileKey]:
    return {file.key for file in replay.apply(replay.EMPTY, version, actions).added()}


def _is_cleaned(
    log: DeltaLog,
    file: KnownFile,
    published: Collection[Version],
    checkpoints: Collection[Version],
) -> bool:
    """Return True if a missing file was deleted by a log cleanup, after its commit."""
    return (
        file.last not in published
        and any(version >= file.last for version in checkpoints)
        and all(log.store.head(path) is None for path in file.paths)
    )


class DerivedFileChecker(Component):
    """Checks the derived files of a catalog's tables, and repairs damaged ones."""

    def check(self, table_id: TableId, name: str, log: DeltaLog) -> list[Finding]:
        return list(self._inspect(table_id, log).findings(name))

    def repair(self, table_id: TableId, name: str, log: DeltaLog) -> list[Finding]:
        return list(
            repair_derived_files(
                name,
                log,
                lambda: self._inspect(table_id, log),
                lambda file: self._forget(table_id, file),
            )
        )

    def _inspect(self, table_id: TableId, log: DeltaLog) -> DerivedFiles:
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
            known = unit.all_files(row.key)

        def readable() -> set[Version]:
            published = list_log(log).published
            with self._store.read() as unit:
                commits = unit.commits(row.key, Version(0), row.head, content=False)
            return {c.version for c in commits if published.get(c.version) == c.sha256.hex()}

        return inspect_derived_files(log, known, row.head, readable, self._clock.now_ms())

    def _forget(self, table_id: TableId, file: KnownFile) -> None:
        def forget(unit: WriteUnit) -> None:
            unit.delete_file(lookup.known(unit, table_id).key, file)

        self._change(table_id, forget)
