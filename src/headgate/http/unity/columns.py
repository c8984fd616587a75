"""Columns in the dialects: a StructType with nested types in kebab-case, or a flat list."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.http.unity import bodies
from headgate.protocol.actions import Metadata
from headgate.protocol.expressions import schema_text
from headgate.protocol.schema import types as schemas

_KEBAB: Final = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_CAMEL: Final = {kebab: camel for camel, kebab in _KEBAB.items()}
_FIELD: Final = frozenset({"name", "type", "nullable", "metadata"})
_EMPTY: Final[dict[str, Any]] = {"type": "struct", "fields": []}


@functools.lru_cache(maxsize=256)
def to_kebab(schema_string: str) -> msgspec.Raw:
    """Return a `schemaString` in the form of `delta/v1`, encoded: every commit's answer has it."""
    columns = _renamed(msgspec.json.decode(schema_string), _KEBAB) if schema_string else _EMPTY
    return msgspec.Raw(msgspec.json.encode(columns))


def from_kebab(columns: Mapping[str, Any]) -> schemas.StructType:
    """Parse columns in the form of `delta/v1`; every field must have all four keys."""
    try:
        for field in _fields(columns):
            if missing := _FIELD - field.keys():
                raise InvalidArgumentError(f"A column lacks {sorted(missing)}.")
        read = schemas.type_from_object(_renamed(dict(columns), _CAMEL))
    except (RecursionError, TypeError, AttributeError):
        raise InvalidArgumentError("The columns are not a StructType.") from None
    if not isinstance(read, schemas.StructType):
        raise InvalidArgumentError("The columns are not a StructType.")
    return read


def _renamed(data_type: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(data_type, dict):
        return data_type
    if isinstance(data_type.get("fields"), list):
        fields = [
            {**field, "type": _renamed(field.get("type"), names)}
            if isinstance(field, dict)
            else field
            for field in data_type["fields"]
        ]
        return {**data_type, "fields": fields}
    return {
        names.get(key, key): _renamed(value, names) if key.endswith(("Type", "-type")) else value
        for key, value in data_type.items()
    }


def _fields(data_type: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(data_type, Mapping):
        return
    for field in data_type.get("fields") or ():
        yield field
        yield from _fields(field.get("type"))
    for key in ("element-type", "key-type", "value-type"):
        yield from _fields(data_type.get(key))


def same(one: schemas.DataType, other: schemas.DataType) -> bool:
    """Return whether two types are equal, apart from the metadata of their fields."""
    return _without_metadata(one) == _without_metadata(other)


def _without_metadata(data_type: schemas.DataType) -> schemas.DataType:
    return schemas.each_field(data_type, lambda field: replace(field, metadata={}))


# The older REST


_TEXTS: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_NAMES: Final = {"integer": "INT", "void": "NULL"}


def flat(metadata: Metadata) -> tuple[bodies.ColumnInfo, ...]:
    """Return the columns in the form of the older REST."""
    if not metadata.schema_string:
        return ()
    raw = msgspec.json.decode(metadata.schema_string)["fields"]
    fields = schemas.from_json(metadata.schema_string).fields
    return tuple(
        _column(position, field, msgspec.json.encode(raw[position]).decode(), metadata)
        for position, field in enumerate(fields)
    )


def _column(
    position: int, field: schemas.StructField, raw: str, metadata: Metadata
) -> bodies.ColumnInfo:
    decimal = field.type if isinstance(field.type, schemas.DecimalType) else None
    comment = field.metadata.get(schemas.COMMENT)
    partitions = metadata.partition_columns
    return bodies.ColumnInfo(
        name=field.name,
        type_text=text(field.type),
        type_json=raw,
        type_name=_type_name(field.type),
        type_precision=decimal.precision if decimal else 0,
        type_scale=decimal.scale if decimal else 0,
        position=position,
        nullable=field.nullable,
        comment=comment if isinstance(comment, str) else msgspec.UNSET,
        partition_index=partitions.index(field.name) if field.name in partitions else msgspec.UNSET,
    )


def text(data_type: schemas.DataType) -> str:
    """Return a type as DDL."""
    match data_type:
        case schemas.Primitive(name):
            return _TEXTS.get(name, name)
        case schemas.DecimalType():
            return str(data_type)
        case schemas.StructType(fields):
            return f"struct<{','.join(f'{field.name}:{text(field.type)}' for field in fields)}>"
        case schemas.ArrayType(element):
            return f"array<{text(element)}>"
        case schemas.MapType(key, value):
            return f"map<{text(key)},{text(value)}>"


def _type_name(data_type: schemas.DataType) -> str:
    if isinstance(data_type, schemas.Primitive):
        return _NAMES.get(data_type.name, data_type.name.upper())
    return type(data_type).__name__.removesuffix("Type").upper()


def declared(columns: Iterable[bodies.DeclaredColumn]) -> schemas.StructType:
    """Return the columns that a client declares in the older REST."""
    return schemas.StructType(tuple(map(_field, columns)))


def partitions(columns: Iterable[bodies.DeclaredColumn]) -> list[str]:
    """Return the names of the declared partition columns, in their order."""
    found = [(c.partition_index, c.name) for c in columns if c.partition_index is not None]
    return [name for _, name in sorted(found)]


def _field(column: bodies.DeclaredColumn) -> schemas.StructField:
    field = _declared(column)
    if not column.comment or schemas.COMMENT in field.metadata:
        return field
    return replace(field, metadata={**field.metadata, schemas.COMMENT: column.comment})


def _declared(column: bodies.DeclaredColumn) -> schemas.StructField:
    try:
        if column.type_json is not None:
            given = msgspec.json.decode(column.type_json)
            if isinstance(given, dict) and "name" in given:  # the whole field
                [field] = _struct_of({**given, "name": column.name}).fields
                return field
            return schemas.StructField(
                column.name, schemas.type_from_object(given), column.nullable
            )
        if column.type_text is not None:
            found = schema_text.parse_type(column.type_text)
            return schemas.StructField(column.name, found, column.nullable)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgumentError(f"The column {column.name!r}: {error}.") from None
    except HeadgateError as error:
        raise InvalidArgumentError(f"The column {column.name!r}: {error.message}") from None
    raise InvalidArgumentError(f"The column {column.name!r} has no type.")


def _struct_of(field: dict[str, Any]) -> schemas.StructType:
    found = schemas.type_from_object({"type": "struct", "fields": [field]})
    assert isinstance(found, schemas.StructType)
    return found
