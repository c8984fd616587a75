"""Type widening: which types may follow which, and what a schema records of it.

Older files keep the older type. Reading them as the wider one is the reader's work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.schema.types import (
    LONG,
    DataType,
    DecimalType,
    Path,
    Primitive,
    StructField,
    StructType,
    all_fields,
    is_whole,
    place,
    type_from_object,
    type_to_object,
)

TYPE_CHANGES = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One change of a column's type, as `delta.typeChanges` records it."""

    path: Path
    before: DataType
    after: DataType
    within: str | None = None  # `element`, `key`, `value`, or several of them with dots


class _Change(msgspec.Struct, frozen=True, rename="camel"):
    from_type: object
    to_type: object
    field_path: str | None = None


def type_changes(schema: StructType) -> list[TypeChange]:
    """List the changes of type that fields went through, oldest first for each."""
    found: list[TypeChange] = []
    for path, item in all_fields(schema):
        if TYPE_CHANGES in item.metadata:
            try:
                changes = msgspec.convert(item.metadata[TYPE_CHANGES], list[_Change])
            except msgspec.ValidationError as error:
                raise MalformedError(f"The type changes {place(path)}: {error}.") from error
            found.extend(
                TypeChange(
                    path,
                    type_from_object(change.from_type, path),
                    type_from_object(change.to_type, path),
                    change.field_path,
                )
                for change in changes
            )
    return found


def recorded(item: StructField, changes: Sequence[TypeChange]) -> StructField:
    """Write changes of a field's type, or of a type within it, behind those that it records."""
    if not changes:
        return item
    before = item.metadata.get(TYPE_CHANGES)
    told: list[object] = list(before) if isinstance(before, list) else []
    for change in changes:
        one = {
            "fromType": type_to_object(change.before),
            "toType": type_to_object(change.after),
        }
        told.append(one if change.within is None else {**one, "fieldPath": change.within})
    return replace(item, metadata={**item.metadata, TYPE_CHANGES: told})


def is_widening(before: DataType, after: DataType) -> bool:
    """Say whether the protocol lets one type widen to another."""
    match before, after:
        case DecimalType(), DecimalType():
            more = after.scale - before.scale
            return after.precision - before.precision >= more >= 0
        case Primitive(), DecimalType(precision, scale) if is_whole(before):
            digits = 20 if before == LONG else 10
            return precision - digits >= scale >= 0
        case Primitive(name), Primitive():
            return after.name in _WIDER.get(name, ())
        case _:
            return False


def is_widening_within_family(before: DataType, after: DataType) -> bool:
    """Return True for a widening that a write may make without being told to.

    As in delta-spark, whole numbers become floating point or decimal only by ALTER TABLE: a single
    write with a column of another kind should not change what the table's column is.
    """
    crosses = is_whole(before) and not is_whole(after)
    return before != after and is_widening(before, after) and not crosses


def is_readable(before: DataType, after: DataType) -> bool:
    """Return whether every value of the older type has its like in the newer one.

    The preview of type widening let whole numbers become decimals of just enough digits.
    """
    match before, after:
        case Primitive(name), DecimalType(precision, scale) if name in _DIGITS:
            return precision - scale >= _DIGITS[name]
        case _:
            return is_widening(before, after)


_DIGITS: Mapping[str, int] = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_WIDER: Mapping[str, tuple[str, ...]] = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    # Any type may follow `void`, which no file ever holds; it needs no widening.
}
