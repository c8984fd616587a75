"""Delta schema types, their JSON, and queries over a schema: fields, NOT NULL, constraints.

Which schemas are allowed is in `checks`, the names of columns in files in `column_mapping`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import msgspec

from headgate.errors import MalformedError, UnsupportedFeatureError
from headgate.names import fold

INVARIANTS = "delta.invariants"
GENERATION = "delta.generationExpression"
IDENTITY = "delta.identity."
DEFAULT = "CURRENT_DEFAULT"
COMMENT = "comment"
CONSTRAINTS = "delta.constraints."

DEEPEST = 100  # levels of nesting; deeper schemas are refused before they exhaust the stack
_MOST_DIGITS = 38

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type that is only a name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    @property
    def is_possible(self) -> bool:
        """Whether a number can have these digits."""
        return 1 <= self.precision <= _MOST_DIGITS and self.scale <= self.precision

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a struct, or a column of the schema."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields, in order. A table's schema is one."""

    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{item.name}:{item.type}' for item in self.fields)}>"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array of values of one type."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys to values."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


DataType = Primitive | DecimalType | StructType | ArrayType | MapType
Kind = TypeVar("Kind", bound=DataType)

STRING = Primitive("string")
LONG = Primitive("long")
INTEGER = Primitive("integer")
SHORT = Primitive("short")
BYTE = Primitive("byte")
FLOAT = Primitive("float")
DOUBLE = Primitive("double")
BOOLEAN = Primitive("boolean")
BINARY = Primitive("binary")
DATE = Primitive("date")
TIMESTAMP = Primitive("timestamp")
TIMESTAMP_NTZ = Primitive("timestamp_ntz")
VARIANT = Primitive("variant")
VOID = Primitive("void")

PRIMITIVES: Mapping[str, Primitive] = {
    primitive.name: primitive
    for primitive in (
        *(STRING, LONG, INTEGER, SHORT, BYTE, FLOAT, DOUBLE, BOOLEAN, BINARY),
        *(DATE, TIMESTAMP, TIMESTAMP_NTZ, VARIANT, VOID),
    )
}

BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}  # of whole numbers


# From and to JSON


@functools.lru_cache(maxsize=256)  # every commit to a table has the same schema
def from_json(text: str) -> StructType:
    """Parse a `schemaString`."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedError(f"The schema is not JSON: {error}.") from error
    parsed = type_from_object(value)
    if not isinstance(parsed, StructType):
        raise MalformedError(f"The schema is a {parsed}, not a struct.")
    return parsed


def to_json(schema: StructType) -> str:
    """Format a schema as a `schemaString`."""
    return msgspec.json.encode(type_to_object(schema)).decode()


def type_to_object(data_type: DataType) -> object:
    """Convert a type to plain values for JSON."""
    match data_type:
        case Primitive() | DecimalType():
            return str(data_type)
        case StructType(fields):
            members = [
                {
                    "name": item.name,
                    "type": type_to_object(item.type),
                    "nullable": item.nullable,
                    "metadata": dict(item.metadata),
                }
                for item in fields
            ]
            return {"type": "struct", "fields": members}
        case ArrayType(element, contains_null):
            return {
                "type": "array",
                "elementType": type_to_object(element),
                "containsNull": contains_null,
            }
        case MapType(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": type_to_object(key),
                "valueType": type_to_object(value),
                "valueContainsNull": value_contains_null,
            }


_DECIMAL = re.compile(r"decimal(?:\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\))?", re.ASCII)


def type_from_object(value: object, path: Path = (), depth: int = 0) -> DataType:
    """Convert a type from decoded JSON; `path` is its place in the schema, for messages."""
    if depth > DEEPEST:
        raise MalformedError(f"The schema nests deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        return _named_type(value, path)
    shape = _members(value, path)
    match shape.get("type"):
        case "struct":
            fields = shape.get("fields")
            if not isinstance(fields, list):
                raise MalformedError(f"The struct {place(path)} has no fields.")
            return StructType(tuple(_field(item, path, depth) for item in fields))
        case "array":
            return ArrayType(
                type_from_object(shape.get("elementType"), (*path, "element"), depth + 1),
                _flag(shape, "containsNull", path),
            )
        case "map":
            return MapType(
                type_from_object(shape.get("keyType"), (*path, "key"), depth + 1),
                type_from_object(shape.get("valueType"), (*path, "value"), depth + 1),
                _flag(shape, "valueContainsNull", path),
            )
        case str(name):
            raise UnsupportedFeatureError(f"The type {name!r} {place(path)} is not supported.")
        case _:
            raise MalformedError(f"The type {place(path)} has no name.")


def _named_type(name: str, path: Path) -> DataType:
    if (primitive := PRIMITIVES.get(name)) is not None:
        return primitive
    if name == "null":  # an old spelling of `void`
        return VOID
    if (found := _DECIMAL.fullmatch(name)) is not None:
        precision, scale = (
            int(digits or default) for digits, default in zip(found.groups(), (10, 0), strict=True)
        )
        decimal = DecimalType(precision, scale)
        if not decimal.is_possible:
            raise MalformedError(f"The type {name!r} {place(path)} is out of range.")
        return decimal
    raise UnsupportedFeatureError(f"The type {name!r} {place(path)} is not supported.")


def _field(value: object, path: Path, depth: int) -> StructField:
    members = _members(value, path)
    name = members.get("name")
    if not isinstance(name, str):
        raise MalformedError(f"A field {place(path)} has no name.")
    metadata = members.get("metadata")
    if metadata is None:
        metadata = {}
    return StructField(
        name,
        type_from_object(members.get("type"), (*path, name), depth + 1),
        _flag(members, "nullable", (*path, name)),
        _members(metadata, (*path, name)),
    )


def _members(value: object, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise MalformedError(f"An object is missing {place(path)}.")
    return value


def _flag(members: Mapping[str, object], key: str, path: Path) -> bool:
    value = members.get(key, True)
    if not isinstance(value, bool):
        raise MalformedError(f"{key!r} {place(path)} is neither true nor false.")
    return value


def place(path: Path) -> str:
    """Describe a place in a schema, for messages."""
    return f"at column {'.'.join(path)!r}" if path else "of the schema"


# Queries


def find(schema: StructType, path: Sequence[str]) -> StructField | None:
    """Find a field by its path; an exact name comes before one in another case.

    `element`, `key` and `value` lead into arrays and maps, as in the protocol's field paths.
    """
    fields = find_all(schema, path)
    return fields[-1] if fields else None


def find_all(schema: StructType, path: Sequence[str]) -> list[StructField]:
    """Find a field and the struct fields around it, outermost first; empty if there is none."""
    found: list[StructField] = []
    within: DataType | None = schema
    for name in path:
        if isinstance(within, StructType):
            item = _named(within, name)
            if item is None:
                return []
            found.append(item)
            within = item.type
        else:
            within = dict(parts(within)).get(name) if within is not None else None
    # An element, key or value is not a field.
    return found if found and found[-1].type is within else []


def _named(schema: StructType, name: str) -> StructField | None:
    for item in schema.fields:
        if item.name == name:
            return item
    folded = fold(name)
    return next((item for item in schema.fields if fold(item.name) == folded), None)


def parts(data_type: DataType) -> list[tuple[str, DataType]]:
    """List the types directly within a type, with their names: `element`, `key` and `value`."""
    match data_type:
        case StructType(fields):
            return [(item.name, item.type) for item in fields]
        case ArrayType(element):
            return [("element", element)]
        case MapType(key, value):
            return [("key", key), ("value", value)]
        case _:
            return []


def with_parts(data_type: DataType, change: Callable[[str, DataType], DataType]) -> DataType:
    """Change the types directly within a type, given with their names."""
    match data_type:
        case StructType(fields):
            items = [replace(item, type=change(item.name, item.type)) for item in fields]
            return StructType(tuple(items))
        case ArrayType(element):
            return replace(data_type, element=change("element", element))
        case MapType(key, value):
            return replace(data_type, key=change("key", key), value=change("value", value))
        case _:
            return data_type


def each_field(data_type: Kind, change: Callable[[StructField], StructField]) -> Kind:
    """Change every field within a type, each before those within it."""
    changed: DataType = data_type
    if isinstance(changed, StructType):
        changed = StructType(tuple(map(change, changed.fields)))
    return cast("Kind", with_parts(changed, lambda _, part: each_field(part, change)))


def all_types(data_type: DataType, path: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield a type and all types within it, with their paths."""
    yield path, data_type
    for name, part in parts(data_type):
        yield from all_types(part, (*path, name))


def all_fields(data_type: DataType, path: Path = ()) -> Iterator[tuple[Path, StructField]]:
    """Yield all fields with their paths, each before those within it, also in arrays and maps."""
    fields = data_type.fields if isinstance(data_type, StructType) else ()
    for position, (name, part) in enumerate(parts(data_type)):
        within = (*path, name)
        if fields:
            yield within, fields[position]
        yield from all_fields(part, within)


def is_whole(data_type: DataType) -> bool:
    """Return True for integer types."""
    return isinstance(data_type, Primitive) and data_type.name in BITS


def contains(data_type: DataType, inner: Primitive) -> bool:
    """Return True if a type occurs anywhere within another."""
    return any(found == inner for _, found in all_types(data_type))


def columns_with(schema: StructType, key: str) -> list[Path]:
    """List the fields whose metadata has a key, or a key with that prefix if it ends in a dot."""

    def matches(given: str) -> bool:
        return given.startswith(key) if key.endswith(".") else given == key

    return [path for path, item in all_fields(schema) if any(map(matches, item.metadata))]


def check_constraints(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the CHECK constraints of a table: SQL expressions by name."""
    return {
        key.removeprefix(CONSTRAINTS): expression
        for key, expression in configuration.items()
        if key.startswith(CONSTRAINTS)
    }


class _Expression(msgspec.Struct, frozen=True):
    expression: str


class _Invariant(msgspec.Struct, frozen=True):
    expression: _Expression


def invariants(schema: StructType) -> dict[Path, str]:
    """Return the SQL expressions in the columns' `delta.invariants`."""
    found: dict[Path, str] = {}
    for path, item in all_fields(schema):
        if INVARIANTS in item.metadata:
            try:
                text = msgspec.convert(item.metadata[INVARIANTS], str)
                decoded = msgspec.json.decode(text, type=_Invariant)
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise MalformedError(
                    f"The invariant {place(path)} cannot be read: {error}."
                ) from error
            found[path] = decoded.expression.expression
    return found


def rules(schema: StructType, properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """List the CHECK constraints and invariants of a table: names and SQL expressions."""
    of_columns = [(f"on column {'.'.join(path)}", sql) for path, sql in invariants(schema).items()]
    return [*sorted(check_constraints(properties).items()), *of_columns]


def comment_of(item: StructField) -> str | None:
    """Return a field's comment."""
    comment = item.metadata.get(COMMENT)
    return comment if isinstance(comment, str) else None
