"""Texts of a declared length in rows of Spark: brought to it, refused where too long."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.protocol.expressions.char_lengths import CharLengths
from headgate.protocol.schema.types import ArrayType, DataType, MapType, StructType
from headgate.spark.nested_conditions import Holds, Path, parts_within


def fitted(column: Column, data_type: DataType, said: CharLengths) -> Column:
    """Cut spaces that are too many, and fill up; what is too long stays as it is."""
    if not said.is_limited:
        return column
    if said.length is not None:
        fits = F.char_length(F.rtrim(column)) <= said.length
        if said.is_char:
            return F.when(fits, F.rpad(column, said.length, " ")).otherwise(column)
        return F.when(fits, F.substring(column, 1, said.length)).otherwise(column)

    def inner(value: Column, part: DataType, name: str) -> Column:
        return fitted(value, part, said.at(name))

    match data_type:
        case StructType(fields):
            parts = [inner(column.getField(f.name), f.type, f.name).alias(f.name) for f in fields]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(column, lambda item: inner(item, element, "element"))
        case MapType(key, value):
            keyed = F.transform_keys(column, lambda item, _: inner(item, key, "key"))
            return F.transform_values(keyed, lambda _, item: inner(item, value, "value"))
        case _:
            return column


def lengths(data_type: DataType, said: CharLengths, path: Path) -> Iterator[tuple[Holds, str]]:
    """Give a condition for each text of a declared length, and the place of the text."""
    if not said.is_limited:
        return
    if (length := said.length) is not None:
        yield (
            lambda column: column.isNull() | (F.char_length(column) <= length),
            f"{'.'.join(path)}, which is {said.type}",
        )
    for name, part, _, around in parts_within(data_type):
        for holds, what in lengths(part, said.at(name), (*path, name)):
            yield around(holds), what
