"""Checkpoints, compactions and checksums that a catalog knows about."""

import enum

import msgspec

from headgate.protocol.actions import Version


class FileKind(enum.Enum):
    """The kinds of log files, other than commits, that a catalog can return. Spec: RD-04."""

    CHECKPOINT = "checkpoint"
    COMPACTION = "compaction"
    CHECKSUM = "checksum"


class KnownFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A checkpoint, compaction or checksum; a checkpoint names its head or all its parts."""

    kind: FileKind
    first: Version  # of a compaction; elsewhere the version itself
    last: Version
    paths: tuple[str, ...]  # relative to the table's root
