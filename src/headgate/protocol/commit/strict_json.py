"""Parse the lines of a commit more strictly than msgspec does.

msgspec accepts duplicate keys, huge integers and malformed text in fields it skips; two readers
could then understand two things. Every line of every commit is checked here, so it has to be fast.
"""

import json
import re
from dataclasses import dataclass

import msgspec

from headgate.errors import MalformedError
from headgate.protocol import actions


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """The size of content that is accepted."""

    max_bytes: int = 64 << 20
    max_line_bytes: int = 16 << 20
    max_lines: int = 1_000_000
    max_depth: int = 64


DEFAULT_LIMITS = ParseLimits()


class Line(msgspec.Struct, frozen=True, gc=False):
    """One action with the bytes it was read from."""

    number: int
    name: str
    raw: bytes
    action: actions.Known | actions.Unknown
    body: dict[str, object] | None = None  # decoded; kept only for `commitInfo`


_generic = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class UnreadableError(Exception):
    """Why a line cannot be parsed; the caller adds its number."""


def read(content: bytes, limits: ParseLimits = DEFAULT_LIMITS) -> list[Line]:
    """Parse every line of a commit."""
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
    parsed: list[Line] = []
    for number, raw in enumerate(lines, start=1):
        try:
            value = _decode(raw, limits)
            check(raw, value, limits.max_depth)
            parsed.append(_line(number, raw, value))
        except UnreadableError as error:
            raise MalformedError(f"Line {number} of the commit cannot be read: {error}.") from None
    return parsed


def _decode(raw: bytes, limits: ParseLimits) -> dict[str, object]:
    if len(raw) > limits.max_line_bytes:
        raise UnreadableError(f"it has {len(raw)} bytes, over the limit of {limits.max_line_bytes}")
    if b"\r" in raw:
        raise UnreadableError("it has a carriage return; lines must end with a newline only")
    try:
        value: object = _generic.decode(raw)
    except RecursionError:
        raise UnreadableError(f"it is nested deeper than {limits.max_depth} levels") from None
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


_SHAPE = bytes.maketrans(b"012345678[", b"999999999{")  # every digit as 9, every bracket as {
_LONG_RUN = b"9" * 19  # the fewest digits an integer beyond 64 bits can have


def check(raw: bytes, value: dict[str, object], room: int) -> None:
    """Refuse duplicate keys, nesting deeper than `room` and integers beyond 64 bits."""
    # For speed, a line is only searched for them if counting characters shows that it may have one.
    shape = raw.translate(_SHAPE)
    if shape.count(b"{") > room or _LONG_RUN in shape:
        _walk(value, room)
    # Decoding drops one of two equal keys, and a colon with it. An escaped colon would hide that.
    if raw.count(b":") != _encode(value).count(b":") or b"\\u003" in raw:
        _refuse_duplicates(raw)


def _walk(value: dict[str, object] | list[object], room: int) -> None:
    if not room:
        raise UnreadableError("it is nested too deeply")
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
                raise UnreadableError(f"it has the key {key[:100]!r} twice")
            seen.add(key)

    json.loads(raw, object_pairs_hook=check)


def _line(number: int, raw: bytes, value: dict[str, object]) -> Line:
    ((name, body),) = value.items()
    kind = actions.KINDS.get(name)
    if kind is None:
        return Line(number, name, raw, actions.Unknown(name))
    try:
        action: actions.Known = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{name} is malformed: {error}") from None
    if isinstance(body, dict):  # always, once it is converted
        if isinstance(action, (actions.Metadata, actions.Protocol)):
            action = actions.with_unknown(action, body)
        if kind is actions.CommitInfo:
            return Line(number, name, raw, action, body)
    return Line(number, name, raw, action)
