"""Convert schemas between Spark and Delta: one JSON format, with a few differences."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import types as spark_types

from headgate import errors
from headgate.names import fold
from headgate.protocol.schema import types as schemas
from headgate.protocol.schema.column_mapping import field_id, physical_name
from headgate.sql.rewrite import quoted as quoted

_RESERVED: Final = "\u27e6headgate\u27e7"  # begins the names of our helper columns
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def to_spark(data_type: schemas.DataType) -> spark_types.DataType:
    """Convert a type to Spark's: everything nullable, without the log's metadata."""
    # Files may contain nulls in spite of the schema, and Spark would interpret some metadata, such
    # as defaults.
    return _spark_type(data_type, _comment)


def to_stored(data_type: schemas.DataType) -> spark_types.DataType:
    """Return the type of a column in data files, with its field ids."""
    return _spark_type(physical(data_type), id_of)


def id_of(item: schemas.StructField) -> dict[str, Any]:
    """Return the metadata that makes Spark write a field's id."""
    number = field_id(item)
    return {} if number is None else {"parquet.field.id": number}


def _spark_type(
    data_type: schemas.DataType, metadata: Callable[[schemas.StructField], dict[str, Any]]
) -> spark_types.DataType:
    match data_type:
        case schemas.StructType(fields):
            return spark_types.StructType(
                [
                    spark_types.StructField(
                        item.name, _spark_type(item.type, metadata), True, metadata(item)
                    )
                    for item in fields
                ]
            )
        case schemas.ArrayType(element):
            return spark_types.ArrayType(_spark_type(element, metadata), True)
        case schemas.MapType(key, value):
            return spark_types.MapType(
                _spark_type(key, metadata), _spark_type(value, metadata), True
            )
        case _:
            field = {"name": "value", "type": str(data_type), "nullable": True, "metadata": {}}
            converted = spark_types.StructType.fromJson({"type": "struct", "fields": [field]})
            return converted.fields[0].dataType


def spark_schema(schema: schemas.StructType) -> spark_types.StructType:
    """Convert a table's schema to Spark's."""
    found = to_spark(schema)
    assert isinstance(found, spark_types.StructType)
    return found


def from_spark(schema: spark_types.StructType) -> schemas.StructType:
    """Convert a DataFrame's schema to Delta's; raise for a type that no table can have."""
    try:
        return schemas.from_json(schema.json())
    except (errors.MalformedError, errors.UnsupportedFeatureError) as error:
        raise errors.InvalidSchemaError(
            f"A column has a type that no table can have: {error.message}",
            remedy="Cast the column to a type Delta knows.",
        ) from error


def all_nullable(schema: schemas.StructType) -> schemas.StructType:
    """Make every column nullable, for a table created from a query, as delta-spark does."""
    # The expressions of the query say nothing about rows that are added later.
    return schemas.each_field(schema, lambda f: replace(f, nullable=True, type=_nullable(f.type)))


def _nullable(data_type: schemas.DataType) -> schemas.DataType:
    match data_type:
        case schemas.ArrayType(element):
            return schemas.ArrayType(_nullable(element))
        case schemas.MapType(key, value):
            return schemas.MapType(_nullable(key), _nullable(value))
        case _:
            return data_type


def physical(data_type: schemas.Kind) -> schemas.Kind:
    """Rename the fields of a type to what they are called in data files."""
    return schemas.each_field(data_type, lambda item: replace(item, name=physical_name(item)))


def helper_column(name: str) -> str:
    """Return the name of a column that is put beside a table's or a DataFrame's own for a while."""
    return f"{_RESERVED}{name}"


def refuse_reserved_names(schema: schemas.StructType, label: str) -> None:
    """Refuse columns that have the name of a helper column: one would be taken for the other."""
    for item in schema.fields:
        if fold(item.name).startswith(_RESERVED):
            raise errors.UnsupportedFeatureError(
                f"{label}: column {item.name!r} cannot be used, names that begin with"
                f" {_RESERVED!r} are reserved.",
                remedy="Rename the column.",
            )


def parts_of(text: str) -> tuple[str, ...] | None:
    """Read the name of a column, or of a field within one; None if a text is something else."""
    parts, at = [], 0
    while (found := _PART.match(text, at)) is not None:
        parts.append(found[2] or found[1].replace("``", "`"))
        if found.end() == len(text):
            return tuple(parts)
        if text[found.end()] != ".":
            break
        at = found.end() + 1
    return None


def path_of(column: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a column, or of a field within one: `s.a`, `` `a.b` `` for odd names."""
    if isinstance(column, tuple):
        return column
    if (parts := parts_of(column)) is not None:
        return parts
    raise errors.InvalidArgumentError(
        f"{column!r} is not a valid column name.", remedy="Put odd names in backquotes: `a.b`."
    )


def _comment(item: schemas.StructField) -> dict[str, Any]:
    comment = item.metadata.get(schemas.COMMENT)
    return {} if comment is None else {schemas.COMMENT: comment}
