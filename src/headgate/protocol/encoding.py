"""Convert structs to JSON and back."""

from typing import TypeVar

import msgspec

from headgate.errors import MalformedError

Value = TypeVar("Value")

_encoder = msgspec.json.Encoder()


def to_json(value: object) -> bytes:
    """Encode a message, an action or a plain value."""
    return _encoder.encode(value)


def from_json(raw: bytes, kind: type[Value]) -> Value:
    """Decode the output of `to_json`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise MalformedError(f"This is not a {kind.__name__}: {error}.") from error


def from_object(value: object, kind: type[Value]) -> Value:
    """Convert plain values to a struct, by its names in JSON."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:
        raise MalformedError(f"This is not a {kind.__name__}: {error}.") from error


def replaced(value: Value, **fields: object) -> Value:
    """Return a copy of a struct with some fields changed."""
    return msgspec.structs.replace(value, **fields)  # type: ignore[type-var]  # any struct will do
