"""Parse and format the paths of log files.

A path is relative to the table's root. Anything that is not a log file of a known kind is `Stray`,
never an error, since a log folder may hold anything.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from string import Formatter
from typing import ClassVar, Final
from uuid import UUID

import msgspec

from headgate.protocol.actions import Version

LOG = "_delta_log"
STAGED = f"{LOG}/_staged_commits"
SIDECARS = f"{LOG}/_sidecars"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


class LogFile(msgspec.Struct, frozen=True):
    """A file of a log; `form` is its path with the names of its fields."""

    form: ClassVar[str]

    @property
    def path(self) -> str:
        return self.form.format_map(msgspec.structs.asdict(self))


class PublishedCommit(LogFile, frozen=True):
    """A published commit. Spec: CM-09."""

    form = "_delta_log/{version:020d}.json"
    version: Version


class StagedCommit(LogFile, frozen=True):
    """A staged commit. Spec: CM-01."""

    form = "_delta_log/_staged_commits/{version:020d}.{uuid}.json"
    version: Version
    uuid: UUID

    @property
    def name(self) -> str:
        return self.path.removeprefix(f"{STAGED}/")


class ClassicCheckpoint(LogFile, frozen=True):
    """A complete checkpoint in one file, classic or V2."""

    form = "_delta_log/{version:020d}.checkpoint.parquet"
    version: Version


class MultipartCheckpoint(LogFile, frozen=True):
    """A part of a checkpoint that is usable only with all its parts."""

    form = "_delta_log/{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"
    version: Version
    part: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.part <= self.parts:
            raise ValueError(self.part)


class UuidCheckpoint(LogFile, frozen=True):
    """The head of a V2 checkpoint."""

    form = "_delta_log/{version:020d}.checkpoint.{uuid}.{extension}"
    version: Version
    uuid: UUID
    extension: str


class Sidecar(LogFile, frozen=True):
    """A file of adds and removes that V2 checkpoints refer to."""

    form = "_delta_log/_sidecars/{name}"
    name: str


class Compaction(LogFile, frozen=True):
    """The net actions of a range, both ends included."""

    form = "_delta_log/{first:020d}.{last:020d}.compacted.json"
    first: Version
    last: Version

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError(self.first)


class Checksum(LogFile, frozen=True):
    """The checksum of a version."""

    form = "_delta_log/{version:020d}.crc"
    version: Version


class LastCheckpoint(LogFile, frozen=True):
    """The hint to the newest checkpoint; it may be out of date."""

    form = LAST_CHECKPOINT


class Stray(msgspec.Struct, frozen=True):
    """Anything else."""

    path: str


Checkpoint = ClassicCheckpoint | MultipartCheckpoint | UuidCheckpoint

_KINDS: Final[tuple[type[LogFile], ...]] = (
    *(PublishedCommit, StagedCommit, Checksum, ClassicCheckpoint, MultipartCheckpoint),
    *(UuidCheckpoint, Sidecar, Compaction, LastCheckpoint),
)


def _int64(text: str) -> int:
    if (number := int(text)) >= 2**63:  # 20 digits can be more
        raise ValueError(text)
    return number


# How fields are matched and read, by their format or their name.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "020d": (r"(\d{20})", _int64),
    "010d": (r"(\d{10})", int),
    "uuid": ("([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", UUID),
    "extension": ("(json|parquet)", str),
    "name": (r"([^/]+\.parquet)", str),
}


def _compiled(form: str) -> tuple[re.Pattern[str], list[Callable[[str], object]]]:
    parts = [
        (text, _FIELDS.get(spec or name or "")) for text, name, spec, _ in Formatter().parse(form)
    ]
    pattern = "".join(re.escape(text) + (field[0] if field else "") for text, field in parts)
    return re.compile(pattern, re.ASCII), [field[1] for _, field in parts if field]


_FORMS: Final = [(kind, *_compiled(kind.form)) for kind in _KINDS]


def parse(path: str) -> LogFile | Stray:
    """Parse the path of a log file."""
    for kind, pattern, readers in _FORMS:
        if found := pattern.fullmatch(path):
            with suppress(ValueError):
                return kind(
                    *(read(text) for read, text in zip(readers, found.groups(), strict=True))
                )
    return Stray(path)


def parse_staged_name(name: str) -> StagedCommit | None:
    """Parse the name of a staged file, without its folder; None for any other name."""
    parsed = parse(f"{STAGED}/{name}")
    return parsed if isinstance(parsed, StagedCommit) else None
