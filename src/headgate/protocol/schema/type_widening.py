"""Type widening: which changes of a type are allowed, and how a schema records them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.schema import types as delta

TYPE_CHANGES = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A change of a column's type in `delta.typeChanges`."""

    path: delta.Path
    before: delta.DataType
    after: delta.DataType
    within: str | None = None  # `element`, `key`, `value`, or several of them with dots


class _Change(msgspec.Struct, frozen=True, rename="camel"):
    from_type: object
    to_type: object
    field_path: str | None = None


def type_changes(schema: delta.StructType) -> list[TypeChange]:
    """List the recorded type changes of all fields, oldest first for each."""
    found: list[TypeChange] = []
    for path, item in delta.all_fields(schema):
        if TYPE_CHANGES in item.metadata:
            try:
                changes = msgspec.convert(item.metadata[TYPE_CHANGES], list[_Change])
            except msgspec.ValidationError as error:
                raise MalformedError(f"The type changes {delta.place(path)}: {error}.") from error
            found.extend(
                TypeChange(
                    path,
                    delta.type_from_object(change.from_type, path),
                    delta.type_from_object(change.to_type, path),
                    change.field_path,
                )
                for change in changes
            )
    return found


# Changes a type to another one; the third argument is its path within the field's type.
ChangeType = Callable[[delta.DataType, delta.DataType, delta.Path], delta.DataType | None]


def retyped_field(
    item: delta.StructField, new_type: delta.DataType, change: ChangeType
) -> delta.StructField:
    """Change a field's type, or the types within its arrays and maps, and record every change.

    `change` is called for each other type with the new one at its place. It returns the type
    without a record, or None if it becomes the new one and is recorded.
    """
    changes: list[dict[str, object]] = []

    def changed(
        before: delta.DataType, after: delta.DataType, within: delta.Path
    ) -> delta.DataType:
        if isinstance(before, delta.ArrayType | delta.MapType) and type(before) is type(after):
            others = dict(delta.parts(after))
            return delta.with_parts(
                before, lambda name, t: changed(t, others[name], (*within, name))
            )
        kept = change(before, after, within)
        if kept is not None:
            return kept
        types = {"fromType": delta.type_to_object(before), "toType": delta.type_to_object(after)}
        changes.append(types | ({"fieldPath": ".".join(within)} if within else {}))
        return after

    item = replace(item, type=changed(item.type, new_type, ()))
    if not changes:
        return item
    recorded = item.metadata.get(TYPE_CHANGES)
    earlier = recorded if isinstance(recorded, list) else []
    return replace(item, metadata={**item.metadata, TYPE_CHANGES: [*earlier, *changes]})


def is_widening(before: delta.DataType, after: delta.DataType) -> bool:
    """Return True if the protocol allows widening one type to another."""
    match before, after:
        case delta.DecimalType(), delta.DecimalType():
            more = after.scale - before.scale
            return after.precision - before.precision >= more >= 0
        case delta.Primitive(), delta.DecimalType(precision, scale) if delta.is_whole(before):
            digits = 20 if before == delta.LONG else 10
            return precision - digits >= scale >= 0
        case delta.Primitive(name), delta.Primitive():
            return after.name in _WIDER.get(name, ())
        case _:
            return False


def is_widening_within_family(before: delta.DataType, after: delta.DataType) -> bool:
    """Return True for a widening that schema evolution may make on its own."""
    # As in delta-spark, integers become floating point or decimal only by ALTER TABLE: one write
    # with another kind of number should not change the table's column.
    crosses = delta.is_whole(before) and not delta.is_whole(after)
    return before != after and is_widening(before, after) and not crosses


def is_readable(before: delta.DataType, after: delta.DataType) -> bool:
    """Return True if files with the old type can be read as the new one."""
    # The preview of type widening allowed integers to become decimals of just enough digits.
    match before, after:
        case delta.Primitive(name), delta.DecimalType(precision, scale) if name in _DIGITS:
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
    # `void` may become any type without widening: it is never stored.
}
