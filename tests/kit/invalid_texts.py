"""Puts a text that is not valid Unicode into every place of a value, one place after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec

INVALID = "x\ud800"  # half of a surrogate pair; in JSON it can be written as an escape

Path = tuple[Any, ...]  # attributes, keys and indexes; a `_Key` at the end for a key itself


class _Key(str):
    """The key of a dictionary that is to be replaced, and not its value."""


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """List where texts are in a message, a dataclass or plain values."""
    match value:
        case str():
            yield path
        case dict():
            for key, item in value.items():
                if isinstance(key, str):
                    yield (*path, _Key(key))
                yield from places(item, (*path, key))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from places(item, (*path, index))
        case msgspec.Struct() | _ if _names(value):
            for name in _names(value):
                yield from places(getattr(value, name), (*path, name))


def spoiled(value: Any, path: Path) -> Any:
    """Return a copy with an invalid text in one place."""
    if not path:
        return INVALID
    first, *rest = path
    if isinstance(first, _Key):
        return {(INVALID if key == first else key): item for key, item in value.items()}
    match value:
        case dict():
            return {**value, first: spoiled(value[first], tuple(rest))}
        case list() | tuple():
            items = [*value]
            items[first] = spoiled(items[first], tuple(rest))
            return type(value)(items)
        case msgspec.Struct():
            changed = {first: spoiled(getattr(value, first), tuple(rest))}
            return msgspec.structs.replace(value, **changed)
        case _:
            return replace(value, **{first: spoiled(getattr(value, first), tuple(rest))})


def _names(value: Any) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    return [field.name for field in fields(value)] if is_dataclass(value) else []
