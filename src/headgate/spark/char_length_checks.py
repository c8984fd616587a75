"""Texts of a declared length in rows of Spark: brought to it, refused where too long."""

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.protocol.expressions.char_lengths import CharLengths
from headgate.protocol.schema.types import ArrayType, DataType, MapType, StructType
from headgate.spark.nested_conditions import Holds, Path, parts_within


def fitted(column: Column, data_type: DataType, limits: CharLengths) -> Column:
    """Cut trailing spaces to the declared length and pad CHAR; leave longer texts as they are."""
    if not limits.is_limited:
        return column
    if limits.length is not None:
        fits = F.char_length(F.rtrim(column)) <= limits.length
        if limits.is_char:
            return F.when(fits, F.rpad(column, limits.length, " ")).otherwise(column)
        return F.when(fits, F.substring(column, 1, limits.length)).otherwise(column)

    def inner(value: Column, part: DataType, name: str) -> Column:
        return fitted(value, part, limits.at(name))

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


def lengths(data_type: DataType, limits: CharLengths, path: Path) -> Iterator[tuple[Holds, str]]:
    """Yield a condition for each text with a declared length, and its path."""
    if not limits.is_limited:
        return
    if (length := limits.length) is not None:
        yield (
            lambda column: column.isNull() | (F.char_length(column) <= length),
            f"{'.'.join(path)}, which is {limits.type}",
        )
    for name, part, _, around in parts_within(data_type):
        for holds, what in lengths(part, limits.at(name), (*path, name)):
            yield around(holds), what
