"""Reading a commit's lines more strictly than msgspec does.

msgspec lets duplicate keys, huge integers and bad text in skipped fields pass; two readers would
then understand two things. Every line of every commit comes by here, so it has to be quick.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.actions import (
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Known,
    Line,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    Unknown,
    with_unknown,
)

COMMIT_INFO = "commitInfo"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much content is looked at before it is refused."""

    max_bytes: int = 64 << 20
    max_line_bytes: int = 16 << 20
    max_lines: int = 1_000_000
    max_depth: int = 64


DEFAULT_LIMITS = Limits()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A line as far as everybody reads it alike."""

    number: int
    name: str
    line: Line
    body: dict[str, object] | None = None  # decoded; kept of `commitInfo` alone


_KINDS: Mapping[str, type[Known]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": SetTransaction,
    "domainMetadata": DomainMetadata,
    COMMIT_INFO: CommitInfo,
    "cdc": AddCdcFile,
    "sidecar": SidecarFile,
    "checkpointMetadata": CheckpointMetadata,
}


_generic = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class UnreadableError(Exception):
    """Why a line cannot be read; whoever knows its number says it."""


def read(content: bytes, limits: Limits) -> list[Row]:
    """Read every line, or say which one cannot be read and why."""
    if len(content) > limits.max_bytes:
        raise MalformedError(
            f"The commit has {len(content)} bytes, over the limit of {limits.max_bytes}."
        )
    if content.startswith(b"\xef\xbb\xbf"):
        raise MalformedError("Line 1 of the commit begins with a byte order mark.")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) > limits.max_lines:
        raise MalformedError(
            f"The commit has {len(lines)} lines, over the limit of {limits.max_lines}."
        )
    rows: list[Row] = []
    for number, raw in enumerate(lines, start=1):
        try:
            value = _decode(raw, limits)
            check(raw, value, limits.max_depth)
            rows.append(_row(number, raw, value))
        except UnreadableError as error:
            raise MalformedError(f"Line {number} of the commit cannot be read: {error}.") from None
    return rows


def _decode(raw: bytes, limits: Limits) -> dict[str, object]:
    if len(raw) > limits.max_line_bytes:
        raise UnreadableError(f"it has {len(raw)} bytes, over the limit of {limits.max_line_bytes}")
    if b"\r" in raw:
        raise UnreadableError("it has a carriage return; lines end with a newline alone")
    try:
        value: object = _generic.decode(raw)
    except RecursionError:
        raise UnreadableError(f"it nests deeper than {limits.max_depth} levels") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UnreadableError(_reason(raw, error)) from None
    if not isinstance(value, dict) or len(value) != 1:
        raise UnreadableError("it is not an object with exactly one key")
    return value


def _reason(raw: bytes, error: Exception) -> str:
    if not raw.strip():
        return "it is blank"
    try:
        raw.decode()
    except UnicodeDecodeError as where:
        return f"byte {where.start + 1} is not UTF-8"
    if _LONE_SURROGATE.search(raw) is not None:
        return "it has half of a surrogate pair"
    return str(error).rstrip(".")


_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)


_SHAPE = bytes.maketrans(b"012345678[", b"999999999{")  # digits alike, and what opens a level
_LONG_RUN = b"9" * 19  # the fewest digits an integer beyond 64 bits can have


def check(raw: bytes, value: dict[str, object], room: int) -> None:
    """Refuse keys that stand twice, nesting deeper than `room` and integers beyond 64 bits.

    Every line of every commit comes by here, so first counting tells whether it can be at fault.
    """
    shape = raw.translate(_SHAPE)
    if shape.count(b"{") > room or _LONG_RUN in shape:
        _walk(value, room)
    # Decoding kept one of two equal keys, and with it one of two colons. An escaped colon would be
    # one more that is not in the text.
    if raw.count(b":") != _encode(value).count(b":") or b"\\u003" in raw:
        _refuse_duplicates(raw)


def _walk(value: dict[str, object] | list[object], room: int) -> None:
    if not room:
        raise UnreadableError("it nests too deep")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            _walk(item, room - 1)
        elif isinstance(item, int) and not _LEAST <= item <= _GREATEST:
            raise UnreadableError("an integer has more than 64 bits")


def _refuse_duplicates(raw: bytes) -> None:
    def check(members: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in members:
            if key in seen:
                raise UnreadableError(f"key {key[:100]!r} is there twice")
            seen.add(key)

    json.loads(raw, object_pairs_hook=check)


def _row(number: int, raw: bytes, value: dict[str, object]) -> Row:
    ((name, body),) = value.items()
    kind = _KINDS.get(name)
    if kind is None:
        return Row(number, name, Line(raw, Unknown(name)))
    try:
        action: Known = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{name} is not as the protocol says: {error}") from None
    if isinstance(action, (Metadata, Protocol)) and isinstance(body, dict):
        action = with_unknown(action, body)
    if kind is CommitInfo and isinstance(body, dict):
        return Row(number, name, Line(raw, action), body)
    return Row(number, name, Line(raw, action))
