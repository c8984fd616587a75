"""Conditions on values within a column: fields of structs, elements, keys and values.

A condition is built from the innermost value outwards; it is true if an outer value is NULL.
"""

from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.protocol.schema.types import ArrayType, DataType, MapType, StructType

Path = tuple[str, ...]
Holds = Callable[[Column], Column]  # never NULL


def _in_elements(holds: Holds) -> Holds:
    return lambda column: column.isNull() | ~F.exists(column, lambda item: ~holds(item))


def _in_field(name: str, holds: Holds) -> Holds:
    return lambda column: column.isNull() | holds(column.getField(name))


def parts_within(data_type: DataType) -> list[tuple[str, DataType, bool, Callable[[Holds], Holds]]]:
    """List the types within a type: name, type, nullable, and how a condition on one is put."""
    match data_type:
        case StructType(fields):
            return [(f.name, f.type, f.nullable, partial(_in_field, f.name)) for f in fields]
        case ArrayType(element, contains_null):
            return [("element", element, contains_null, _in_elements)]
        case MapType(key, value, contains_null):
            return [
                ("key", key, True, lambda holds: lambda c: _in_elements(holds)(F.map_keys(c))),
                (
                    "value",
                    value,
                    contains_null,
                    lambda holds: lambda c: _in_elements(holds)(F.map_values(c)),
                ),
            ]
        case _:
            return []


def not_null(data_type: DataType, path: Path, *, nullable: bool) -> Iterator[tuple[Holds, str]]:
    """Yield a condition for each value that may not be NULL inside a value that is not NULL."""
    if not nullable:
        yield lambda column: column.isNotNull(), ".".join(path)
    for name, part, may_be_null, around in parts_within(data_type):
        for holds, what in not_null(part, (*path, name), nullable=may_be_null):
            yield around(holds), what
