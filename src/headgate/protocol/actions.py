"""Log actions, and their encoding as lines of JSON.

A line keeps its raw bytes and is written back from them, so unknown actions and fields survive.
`metaData` and `protocol` are rewritten with some fields changed, so these carry their unknown
fields.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, NewType, TypeVar, get_args

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.data_paths import normal_path

Version = NewType("Version", int)
TableId = NewType("TableId", str)
TxnId = NewType("TxnId", str)
Sequence = NewType("Sequence", int)


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One change to one aspect of a table."""


class DeletionVector(Action, frozen=True, kw_only=True, gc=False):
    """Where a deletion vector is stored, and how many rows it marks as deleted."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int

    @property
    def unique_id(self) -> str:
        """Identify the vector among those of one data file."""
        at = "" if self.offset is None else f"@{self.offset}"
        where = self.path_or_inline_dv
        if self.storage_type == "p":  # an absolute path: one file, many spellings
            where = normal_path(where)
        return f"{self.storage_type}{where}{at}"


class AddFile(Action, frozen=True, kw_only=True, gc=False):
    """A data file becomes part of the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @property
    def key(self) -> FileKey:
        """Identify the file by its path, in normal form, and its deletion vector."""
        vector = self.deletion_vector
        return (normal_path(self.path), None if vector is None else vector.unique_id)


class RemoveFile(Action, frozen=True, kw_only=True, gc=False):
    """A data file is no longer part of the table."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def key(self) -> FileKey:
        """Identify the file by its path, in normal form, and its deletion vector."""
        vector = self.deletion_vector
        return (normal_path(self.path), None if vector is None else vector.unique_id)


class Rewritten(Action, frozen=True, kw_only=True):
    """An action that is rewritten with some fields changed, without losing unknown fields.

    In a log unknown fields are among the known ones; in messages they are in a field of their own.
    """

    unknown: dict[str, object] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="headgate.unknown"
    )


class Format(Rewritten, frozen=True, kw_only=True, omit_defaults=False):
    """How data files are encoded: always Parquet."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(Rewritten, frozen=True, kw_only=True, omit_defaults=False):
    """Schema, partitioning and properties; empty fields are written, since clients expect them."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    schema_string: str = ""  # may be missing if a later metaData has it
    partition_columns: list[str] = []
    configuration: dict[str, str] = {}
    created_time: int | None = None


class Protocol(Rewritten, frozen=True, kw_only=True):
    """What a client must support to read and to write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class SetTransaction(Action, frozen=True, kw_only=True):
    """The last transaction of an application."""

    app_id: str
    version: int
    last_updated: int | None = None


class DomainMetadata(Action, frozen=True, kw_only=True):
    """A named configuration that a feature or a user keeps in the log."""

    domain: str
    configuration: str
    removed: bool


class CommitInfo(Action, frozen=True, kw_only=True, gc=False):
    """Provenance of a commit, as far as the protocol relies on it. Spec: CM-04, CM-36."""

    in_commit_timestamp: int | None = None
    txn_id: str | None = None
    # The protocol leaves the rest to the writer, so it may have any type.
    operation: object = None
    is_blind_append: object = None
    timestamp: object = None


class AddCdcFile(Action, frozen=True, kw_only=True):
    """A file of change data."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    data_change: bool
    tags: dict[str, str | None] | None = None


class SidecarFile(Action, frozen=True, kw_only=True):
    """A part of a V2 checkpoint."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: dict[str, str | None] | None = None


class CheckpointMetadata(Action, frozen=True, kw_only=True):
    """The head of a V2 checkpoint."""

    version: int
    tags: dict[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown action: kept, not interpreted."""

    name: str


FileKey = tuple[str, str | None]  # the path in normal form, and the vector's unique id

Kept = TypeVar("Kept", bound=Rewritten)

_OfTable = Metadata | Protocol | SetTransaction | DomainMetadata | CommitInfo
_OfCheckpoint = SidecarFile | CheckpointMetadata
Known = AddFile | RemoveFile | AddCdcFile | _OfTable | _OfCheckpoint


class Wrapped(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A line of a log: an object with one key, the action's name."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    commit_info: CommitInfo | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    txn: SetTransaction | None = None
    domain_metadata: DomainMetadata | None = None
    cdc: AddCdcFile | None = None
    sidecar: SidecarFile | None = None
    checkpoint_metadata: CheckpointMetadata | None = None

    def action(self) -> Known | None:
        """Return the action; None if it is unknown."""
        found: Known | None = next(filter(None, msgspec.structs.astuple(self)), None)
        return found


class _Bodies(msgspec.Struct, rename="camel", gc=False):
    """All fields of an action that may be rewritten."""

    meta_data: dict[str, object] = {}
    protocol: dict[str, object] = {}


def fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """List the known fields of an action: name, name in a log, and type if it is not null."""
    return [
        (field.name, field.encode_name, _of_optional(field.type))
        for field in msgspec.structs.fields(kind)
        if field.name != "unknown"
    ]


def _of_optional(of: Any) -> Any:
    return get_args(of)[0] if isinstance(of, UnionType) else of


KINDS: Mapping[str, type[Known]] = {name: kind for _, name, kind in fields(Wrapped)}
_NAMES: dict[type[Action], str] = {kind: name for name, kind in KINDS.items()}

_wrapped = msgspec.json.Decoder(Wrapped)
_generic = msgspec.json.Decoder(dict[str, object])
_bodies = msgspec.json.Decoder(_Bodies)
_encoder = msgspec.json.Encoder()


def decode(content: bytes) -> list[Wrapped]:
    """Decode all lines of a commit, without their bytes; unknown actions are empty."""
    try:
        lines = _wrapped.decode_lines(content)
        if any(line.meta_data or line.protocol for line in lines):
            for line, bodies in zip(lines, _bodies.decode_lines(content), strict=True):
                _keep_unknown(line, bodies)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        try:
            return _decode_nulls(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise MalformedError(f"A commit's content cannot be read: {error}.") from error
    return lines


def _decode_nulls(content: bytes) -> list[Wrapped]:
    """Decode lines of a writer that writes fields without a value as null."""
    lines: list[Wrapped] = []
    for body in _generic.decode_lines(content):
        given = {name: _without_nulls(fields) for name, fields in body.items()}
        line = msgspec.convert(given, Wrapped)
        _keep_unknown(line, msgspec.convert(given, _Bodies))
        lines.append(line)
    return lines


def _without_nulls(fields: object) -> object:
    if not isinstance(fields, dict):
        return fields
    return {key: value for key, value in fields.items() if value is not None}


def _keep_unknown(line: Wrapped, bodies: _Bodies) -> None:
    if line.meta_data is not None:
        line.meta_data = with_unknown(line.meta_data, bodies.meta_data)
    if line.protocol is not None:
        line.protocol = with_unknown(line.protocol, bodies.protocol)


def with_unknown(action: Kept, body: Mapping[str, object]) -> Kept:
    """Add the unknown fields of its body to a decoded action."""
    kept: dict[str, object] = {}
    unknown = {key: body[key] for key in body.keys() - _names_in_log(type(action))}
    if unknown:
        kept["unknown"] = unknown
    if isinstance(action, Metadata) and isinstance(form := body.get("format"), dict):
        inner = with_unknown(action.format, form)
        if inner is not action.format:
            kept["format"] = inner
    return msgspec.structs.replace(action, **kept) if kept else action


@functools.cache
def _names_in_log(kind: type[Rewritten]) -> frozenset[str]:
    return frozenset(name for _, name, _ in fields(kind))


def encode(action: Action) -> bytes:
    """Encode an action as a line, without its newline."""
    name = _NAMES[type(action)]
    if isinstance(action, Rewritten):
        return _encoder.encode({name: _spread(action)})
    return _encoder.encode({name: action})


def _spread(action: Rewritten) -> dict[str, object]:
    """Merge the unknown fields into the known ones, as in a log."""
    merged: dict[str, object] = {} if action.unknown is msgspec.UNSET else {**action.unknown}
    for field in msgspec.structs.fields(action):
        value = getattr(action, field.name)
        is_left_out = action.__struct_config__.omit_defaults and value == field.default
        if field.name != "unknown" and not is_left_out:
            merged[field.encode_name] = _spread(value) if isinstance(value, Rewritten) else value
    return merged


def removals(files: Iterable[AddFile], now_ms: int) -> tuple[RemoveFile, ...]:
    """Return the actions that remove live files and their rows."""
    return tuple(
        RemoveFile(
            path=file.path,
            deletion_timestamp=now_ms,
            data_change=True,
            extended_file_metadata=True,
            partition_values=file.partition_values,
            size=file.size,
            tags=file.tags,
            deletion_vector=file.deletion_vector,
            base_row_id=file.base_row_id,
            default_row_commit_version=file.default_row_commit_version,
        )
        for file in files
    )


def join(lines: Iterable[bytes]) -> bytes:
    """Join lines to the content of a commit; each ends with a newline."""
    return b"".join(line + b"\n" for line in lines)
