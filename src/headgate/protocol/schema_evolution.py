"""A schema that grows: columns and fields that come, where nothing that was there changes.

Whether the table's features allow the outcome is the features' to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headgate.names import fold
from headgate.protocol.actions import Metadata
from headgate.protocol.column_mapping import MAX_COLUMN_ID, with_mapping
from headgate.protocol.encoding import replaced
from headgate.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    to_json,
)


def merged(schema: StructType, given: StructType) -> StructType:
    """Add the columns, and fields within columns, that a schema lacks; each may be null."""
    by_name = {fold(item.name): item for item in given.fields}
    kept = [
        replace(item, type=_merged_type(item.type, by_name[fold(item.name)].type))
        if fold(item.name) in by_name
        else item
        for item in schema.fields
    ]
    known = {fold(item.name) for item in schema.fields}
    new = [_new(item) for item in given.fields if fold(item.name) not in known]
    return StructType((*kept, *new))


def _merged_type(before: DataType, given: DataType) -> DataType:
    match before, given:
        case StructType(), StructType():
            return merged(before, given)
        case ArrayType(element), ArrayType(other):
            return replace(before, element=_merged_type(element, other))
        case MapType(key, value), MapType(other_key, other):
            return replace(
                before, key=_merged_type(key, other_key), value=_merged_type(value, other)
            )
        case _:
            return before


def _new(item: StructField) -> StructField:
    # Rows that are there have no value for it. What else its metadata says belongs to its source.
    return StructField(item.name, item.type)


def with_schema(
    metadata: Metadata, schema: StructType, *, mapped: bool, new_name: Callable[[], str]
) -> Metadata:
    """Give a table's metadata another schema; under column mapping new fields get their names."""
    configuration = dict(metadata.configuration)
    if mapped:
        last = configuration.get(MAX_COLUMN_ID, "0")
        schema, highest = with_mapping(schema, new_name, int(last) if last.isdigit() else 0)
        configuration[MAX_COLUMN_ID] = str(highest)
    return replaced(metadata, schema_string=to_json(schema), configuration=configuration)
