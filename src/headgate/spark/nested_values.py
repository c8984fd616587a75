"""Values within a column: fields of structs, elements of arrays, keys and values of maps."""

from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.protocol.expressions.char_lengths import CharLengths
from headgate.protocol.schema.types import ArrayType, DataType, MapType, Path, StructType

Holds = Callable[[Column], Column]  # a condition on a value, never NULL


def rebuilt(
    column: Column, data_type: DataType, change: Callable[[Column, str, DataType], Column]
) -> Column:
    """Change the values directly within a column, each given with its name and type."""
    match data_type:
        case StructType(fields):
            parts = [change(column.getField(f.name), f.name, f.type).alias(f.name) for f in fields]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(column, lambda item: change(item, "element", element))
        case MapType(key, value):
            keyed = F.transform_keys(column, lambda item, _: change(item, "key", key))
            return F.transform_values(keyed, lambda _, item: change(item, "value", value))
        case _:
            return column


def fitted(column: Column, data_type: DataType, limits: CharLengths) -> Column:
    """Cut trailing spaces to the declared length and pad CHAR; leave longer texts as they are."""
    if not limits.is_limited:
        return column
    if (length := limits.length) is None:
        return rebuilt(column, data_type, lambda v, name, part: fitted(v, part, limits.at(name)))
    text = F.rpad(column, length, " ") if limits.is_char else F.substring(column, 1, length)
    return F.when(F.char_length(F.rtrim(column)) <= length, text).otherwise(column)


def checks(
    data_type: DataType, path: Path, limits: CharLengths, *, nullable: bool
) -> Iterator[tuple[Holds, str]]:
    """Yield the conditions of NOT NULL and declared lengths, each with what is wrong otherwise.

    They are built from the innermost value outwards, and true if an outer value is NULL.
    """
    place = ".".join(path)
    if not nullable:
        yield F.isnotnull, f"has NULL in column {place}, which may not be null"
    if (length := limits.length) is not None:
        what = f"has a text too long for column {place}, which is {limits.type}"
        yield lambda column: column.isNull() | (F.char_length(column) <= length), what
    for name, part, may_be_null, around in _parts(data_type):
        inner = checks(part, (*path, name), limits.at(name), nullable=may_be_null)
        yield from ((around(holds), what) for holds, what in inner)


def _parts(data_type: DataType) -> list[tuple[str, DataType, bool, Callable[[Holds], Holds]]]:
    """List the types within a type: name, type, nullable, and how a condition on one is put."""
    match data_type:
        case StructType(fields):
            return [(f.name, f.type, f.nullable, partial(_in_field, f.name)) for f in fields]
        case ArrayType(element, contains_null):
            return [("element", element, contains_null, partial(_in_all, lambda column: column))]
        case MapType(key, value, contains_null):
            keys, values = partial(_in_all, F.map_keys), partial(_in_all, F.map_values)
            return [("key", key, True, keys), ("value", value, contains_null, values)]
        case _:
            return []


def _in_field(name: str, holds: Holds) -> Holds:
    return lambda column: column.isNull() | holds(column.getField(name))


def _in_all(items: Callable[[Column], Column], holds: Holds) -> Holds:
    return lambda column: column.isNull() | ~F.exists(items(column), lambda item: ~holds(item))
