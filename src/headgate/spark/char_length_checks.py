"""Texts of a declared length in rows of Spark: brought to it, refused where too long."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.names import fold
from headgate.protocol.expressions.char_lengths import CharLengths
from headgate.protocol.schema.types import ArrayType, DataType, MapType, StructType
from headgate.spark.nested_conditions import Holds, Path, in_elements, in_field, in_keys, in_values


def fitted(column: Column, data_type: DataType, limits: CharLengths) -> Column:
    """Cut trailing spaces to the declared length and pad CHAR; leave longer texts as they are."""
    if not limits.is_limited:
        return column
    if limits.length is not None:
        fits = F.char_length(F.rtrim(column)) <= limits.length
        if limits.is_char:
            return F.when(fits, F.rpad(column, limits.length, " ")).otherwise(column)
        return F.when(fits, F.substring(column, 1, limits.length)).otherwise(column)
    match data_type:
        case StructType(fields):
            parts = [
                fitted(
                    column.getField(item.name),
                    item.type,
                    limits.fields.get(fold(item.name), CharLengths()),
                ).alias(item.name)
                for item in fields
            ]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(column, lambda item: fitted(item, element, limits.within[0]))
        case MapType(key, value):
            keyed = F.transform_keys(column, lambda item, _: fitted(item, key, limits.within[0]))
            return F.transform_values(keyed, lambda _, item: fitted(item, value, limits.within[1]))
        case _:
            return column


def lengths(data_type: DataType, limits: CharLengths, path: Path) -> Iterator[tuple[Holds, str]]:
    """Yield a condition for each text with a declared length, and its path."""
    if not limits.is_limited:
        return
    if (length := limits.length) is not None:
        yield (
            lambda column: column.isNull() | (F.char_length(column) <= length),
            f"{'.'.join(path)}, which is {limits.type}",
        )
    match data_type:
        case StructType(fields):
            for item in fields:
                inner = limits.fields.get(fold(item.name), CharLengths())
                for holds, what in lengths(item.type, inner, (*path, item.name)):
                    yield in_field(item.name, holds), what
        case ArrayType(element):
            for holds, what in lengths(element, limits.within[0], (*path, "element")):
                yield in_elements(holds), what
        case MapType(key, value):
            for holds, what in lengths(key, limits.within[0], (*path, "key")):
                yield in_keys(holds), what
            for holds, what in lengths(value, limits.within[1], (*path, "value")):
                yield in_values(holds), what
        case _:
            return
