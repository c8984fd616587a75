"""Plan what to read for one version: a checkpoint, compactions and commits without a gap.

The catalog is authoritative: its commit of a version is read instead of the published file, and
files above the requested version are ignored. Nothing here opens a file or relies on the order of
names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from headgate.protocol.actions import Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import (
    Checkpoint,
    ClassicCheckpoint,
    Compaction,
    LogFile,
    MultipartCheckpoint,
    PublishedCommit,
    UuidCheckpoint,
    parse,
)


class VersionedCommit(Protocol):
    """A commit that the catalog holds."""

    @property
    def version(self) -> Version: ...


Held = TypeVar("Held", bound=VersionedCommit)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint: one file, or all its parts."""

    version: Version
    files: tuple[Checkpoint, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)


@dataclass(frozen=True, slots=True)
class Segment(Generic[Held]):
    """What to read for `version`: a base state, a checkpoint or nothing, and then the entries."""

    version: Version
    base: Version | None
    checkpoint: CheckpointFiles | None
    entries: tuple[Held | PublishedCommit | Compaction, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of versions, both ends included, for which no file is known."""

    first: Version
    last: Version

    def __str__(self) -> str:
        if self.first == self.last:
            return f"version {self.first}"
        return f"versions {self.first} to {self.last}"


def plan(
    version: Version,
    *,
    ratified: Iterable[Held] = (),
    known: Iterable[KnownFile] = (),
    listed: Iterable[LogFile] = (),
    base: Version | None = None,
    without: Collection[str] = (),
) -> Segment[Held] | Gap:
    """Plan what to read for `version`, or return the first gap.

    `known` are the files in the catalog's answer, `base` is the version of a state in memory,
    `without` are paths that turned out to be unusable. Spec: CM-17, CM-18, RD-05, RD-06.
    """
    listed, known = list(listed), list(known)
    commits: dict[Version, Held | PublishedCommit] = {
        file.version: file
        for file in listed
        if isinstance(file, PublishedCommit)
        and file.version <= version
        and file.path not in without
    }
    held = {commit.version: commit for commit in ratified if commit.version <= version}
    commits |= held  # the catalog is authoritative
    compactions = _compactions(version, known, listed, held, without)

    checkpoint = None if base is not None else newest_checkpoint(version, known, listed, without)
    start = Version(-1) if checkpoint is None else checkpoint.version
    start = start if base is None else base
    entries = _join(start, version, commits, compactions)
    return entries if isinstance(entries, Gap) else Segment(version, base, checkpoint, entries)


def newest_checkpoint(
    version: Version,
    known: Iterable[KnownFile] = (),
    listed: Iterable[LogFile] = (),
    without: Collection[str] = (),
) -> CheckpointFiles | None:
    """Return the newest complete checkpoint up to `version`; the catalog's own is preferred."""
    of_catalog = [path for file in known if file.kind is FileKind.CHECKPOINT for path in file.paths]
    found = [
        (checkpoint.version, trust, checkpoint)
        for trust, files in enumerate((listed, map(parse, of_catalog)))
        for checkpoint in complete_checkpoints(files)
        if checkpoint.version <= version and not any(path in without for path in checkpoint.paths)
    ]
    return max(found, key=lambda item: (*item[:2], item[2].paths))[2] if found else None


def complete_checkpoints(files: Iterable[object]) -> Iterator[CheckpointFiles]:
    """Yield the complete checkpoints among some files."""
    parts: defaultdict[tuple[Version, int], dict[int, MultipartCheckpoint]] = defaultdict(dict)
    for file in files:
        match file:
            case ClassicCheckpoint() | UuidCheckpoint():
                yield CheckpointFiles(file.version, (file,))
            case MultipartCheckpoint():
                parts[file.version, file.parts][file.part] = file
    for (version, count), found in parts.items():
        if len(found) == count:
            yield CheckpointFiles(version, tuple(found[part] for part in sorted(found)))


def _compactions(
    version: Version,
    known: Iterable[KnownFile],
    listed: Iterable[LogFile],
    held: Collection[Version],
    without: Collection[str],
) -> dict[Version, Compaction]:
    """Return the longest usable compaction from each version on."""
    from_catalog = {
        parsed
        for file in known
        if file.kind is FileKind.COMPACTION
        for parsed in map(parse, file.paths)
        if isinstance(parsed, Compaction)
    }
    longest: dict[Version, Compaction] = {}
    lowest, highest = min(held, default=version + 1), max(held, default=-1)
    for file in (*from_catalog, *(file for file in listed if isinstance(file, Compaction))):
        if file.last > version or file.path in without:
            continue
        # A listed compaction must not replace commits that the catalog holds, as a published file
        # must not replace one of them.
        if file not in from_catalog and file.first <= highest and lowest <= file.last:
            continue
        if file.first not in longest or longest[file.first].last < file.last:
            longest[file.first] = file
    return longest


def _join(
    start: Version,
    version: Version,
    commits: dict[Version, Held | PublishedCommit],
    compactions: dict[Version, Compaction],
) -> tuple[Held | PublishedCommit | Compaction, ...] | Gap:
    if not compactions:  # the usual case, and there may be many commits
        straight = tuple(map(commits.get, map(Version, range(start + 1, version + 1))))
        if None not in straight:
            return cast("tuple[Held, ...]", straight)
    entries: list[Held | PublishedCommit | Compaction] = []
    at = start + 1
    while at <= version:
        compaction = compactions.get(Version(at))
        if compaction is not None:
            entries.append(compaction)
            at = compaction.last + 1
            continue
        commit = commits.get(Version(at))
        if commit is None:
            known = (v for v in (*commits, *compactions) if v > at)
            last = min(known, default=version + 1) - 1
            return Gap(Version(at), Version(last))
        entries.append(commit)
        at += 1
    return tuple(entries)
