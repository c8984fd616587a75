"""Conditions on values within a column: fields of structs, elements, keys and values.

A condition is built from the innermost value outwards; it is true if an outer value is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.protocol.schema.types import ArrayType, DataType, MapType, StructType

Path = tuple[str, ...]
Holds = Callable[[Column], Column]  # never NULL


def in_field(name: str, holds: Holds) -> Holds:
    """Have it hold for a field of a struct."""
    return lambda column: column.isNull() | holds(column.getField(name))


def in_elements(holds: Holds) -> Holds:
    """Have it hold for every element of an array."""
    return lambda column: column.isNull() | ~F.exists(column, lambda item: ~holds(item))


def in_keys(holds: Holds) -> Holds:
    """Have it hold for every key of a map."""
    return lambda column: in_elements(holds)(F.map_keys(column))


def in_values(holds: Holds) -> Holds:
    """Have it hold for every value of a map."""
    return lambda column: in_elements(holds)(F.map_values(column))


def not_null(data_type: DataType, path: Path, *, nullable: bool) -> Iterator[tuple[Holds, str]]:
    """Yield a condition for each value that may not be NULL inside a value that is not NULL."""
    if not nullable:
        yield lambda column: column.isNotNull(), ".".join(path)
    match data_type:
        case StructType(fields):
            for item in fields:
                inner = (*path, item.name)
                for holds, what in not_null(item.type, inner, nullable=item.nullable):
                    yield in_field(item.name, holds), what
        case ArrayType(element, contains_null):
            for holds, what in not_null(element, (*path, "element"), nullable=contains_null):
                yield in_elements(holds), what
        case MapType(key, value, value_contains_null):
            for holds, what in not_null(key, (*path, "key"), nullable=True):
                yield in_keys(holds), what
            for holds, what in not_null(value, (*path, "value"), nullable=value_contains_null):
                yield in_values(holds), what
        case _:
            return
