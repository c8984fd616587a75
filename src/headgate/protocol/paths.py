"""Parse the names of log files.

A path is relative to the table's root. Anything that is not a log file of a known kind is `Stray`,
never an error, since a log folder may hold anything.
"""

import re
from uuid import UUID

import msgspec

from headgate.protocol.actions import Version

LOG = "_delta_log"
STAGED = f"{LOG}/_staged_commits"
SIDECARS = f"{LOG}/_sidecars"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


class PublishedCommit(msgspec.Struct, frozen=True):
    """`<v>.json`: a published commit. Spec: CM-09."""

    version: Version

    @property
    def path(self) -> str:
        return f"{LOG}/{self.version:020d}.json"


class StagedCommit(msgspec.Struct, frozen=True):
    """`_staged_commits/<v>.<uuid>.json`: a staged commit. Spec: CM-01."""

    version: Version
    uuid: UUID

    @property
    def name(self) -> str:
        return f"{self.version:020d}.{self.uuid}.json"

    @property
    def path(self) -> str:
        return f"{STAGED}/{self.name}"


class ClassicCheckpoint(msgspec.Struct, frozen=True):
    """`<v>.checkpoint.parquet`: a complete checkpoint in one file, classic or V2."""

    version: Version

    @property
    def path(self) -> str:
        return f"{LOG}/{self.version:020d}.checkpoint.parquet"


class MultipartCheckpoint(msgspec.Struct, frozen=True):
    """`<v>.checkpoint.<part>.<parts>.parquet`: usable only with all its parts."""

    version: Version
    part: int
    parts: int

    @property
    def path(self) -> str:
        return f"{LOG}/{self.version:020d}.checkpoint.{self.part:010d}.{self.parts:010d}.parquet"


class UuidCheckpoint(msgspec.Struct, frozen=True):
    """`<v>.checkpoint.<uuid>.{json,parquet}`: the head of a V2 checkpoint."""

    version: Version
    uuid: UUID
    extension: str

    @property
    def path(self) -> str:
        return f"{LOG}/{self.version:020d}.checkpoint.{self.uuid}.{self.extension}"


class Sidecar(msgspec.Struct, frozen=True):
    """A file of adds and removes that V2 checkpoints refer to."""

    name: str

    @property
    def path(self) -> str:
        return f"{SIDECARS}/{self.name}"


class Compaction(msgspec.Struct, frozen=True):
    """`<first>.<last>.compacted.json`: the net actions of a range, both ends included."""

    first: Version
    last: Version

    @property
    def path(self) -> str:
        return f"{LOG}/{self.first:020d}.{self.last:020d}.compacted.json"


class Checksum(msgspec.Struct, frozen=True):
    """`<v>.crc`: the checksum of version v."""

    version: Version

    @property
    def path(self) -> str:
        return f"{LOG}/{self.version:020d}.crc"


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The hint to the newest checkpoint; it may be out of date."""

    @property
    def path(self) -> str:
        return LAST_CHECKPOINT


class Stray(msgspec.Struct, frozen=True):
    """Anything else."""

    path: str


Checkpoint = ClassicCheckpoint | MultipartCheckpoint | UuidCheckpoint
LogFile = (
    PublishedCommit | StagedCommit | Checkpoint | Sidecar | Compaction | Checksum | LastCheckpoint
)

_VERSION = r"(\d{20})"
_UUID = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
_FORMS = re.compile(
    rf"{LOG}/(?:"
    rf"(?P<published>{_VERSION}\.json)"
    rf"|(?P<staged>_staged_commits/{_VERSION}\.{_UUID}\.json)"
    rf"|(?P<classic>{_VERSION}\.checkpoint\.parquet)"
    rf"|(?P<multipart>{_VERSION}\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet)"
    rf"|(?P<v2>{_VERSION}\.checkpoint\.{_UUID}\.(json|parquet))"
    rf"|(?P<compacted>{_VERSION}\.{_VERSION}\.compacted\.json)"
    rf"|(?P<checksum>{_VERSION}\.crc)"
    rf"|(?P<sidecar>_sidecars/([^/]+\.parquet))"
    rf"|(?P<hint>_last_checkpoint))",
    re.ASCII,
)
_STAGED_NAME = re.compile(rf"{_VERSION}\.{_UUID}\.json", re.ASCII)
_GREATEST = 2**63 - 1


def parse(path: str) -> LogFile | Stray:
    """Parse the path of a log file."""
    found = _FORMS.fullmatch(path)
    if found is None:
        return Stray(path)
    kind = found.lastgroup
    values = [value for value in found.groups() if value is not None][1:]
    if kind == "sidecar":
        return Sidecar(values[0])
    if kind == "hint":
        return LastCheckpoint()
    version = Version(int(values[0]))
    if version > _GREATEST:  # 20 digits can be more than 64 bits
        return Stray(path)
    match kind:
        case "published":
            return PublishedCommit(version)
        case "staged":
            return StagedCommit(version, UUID(values[1]))
        case "classic":
            return ClassicCheckpoint(version)
        case "multipart":
            part, parts = int(values[1]), int(values[2])
            if 1 <= part <= parts:
                return MultipartCheckpoint(version, part, parts)
            return Stray(path)
        case "v2":
            return UuidCheckpoint(version, UUID(values[1]), values[2])
        case "compacted":
            last = Version(int(values[1]))
            return Compaction(version, last) if version <= last <= _GREATEST else Stray(path)
        case _:
            return Checksum(version)


def parse_staged_name(name: str) -> StagedCommit | None:
    """Parse the name of a staged file, without its folder; None for any other name."""
    if _STAGED_NAME.fullmatch(name) is None:
        return None
    parsed = parse(f"{STAGED}/{name}")
    return parsed if isinstance(parsed, StagedCommit) else None
