"""Column mapping: the physical names and ids of columns in data files and statistics.

Without it a column's physical name is its name. With it the physical name and id are in the
column's metadata, and the name may change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from headgate.protocol.schema import types as delta

# Properties of a table
_PREFIX = "delta.columnMapping."
MODE = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
# Metadata of a field
MAPPING_ID = "delta.columnMapping.id"
MAPPING_NAME = "delta.columnMapping.physicalName"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column, or a field within structs, that is not a struct itself."""

    path: delta.Path
    physical: delta.Path  # the names in data files, partition values and statistics
    type: delta.DataType
    nullable: bool  # it, or a struct around it, may be null


def physical_name(item: delta.StructField) -> str:
    """Return the name of a field in files and statistics."""
    name = item.metadata.get(MAPPING_NAME)
    return name if isinstance(name, str) else item.name


def field_id(item: delta.StructField) -> int | None:
    """Return the column mapping id of a field."""
    number = item.metadata.get(MAPPING_ID)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def physical_path(schema: delta.StructType, path: Sequence[str]) -> delta.Path | None:
    """Convert a path within structs to physical names."""
    fields = delta.find_all(schema, path)
    return tuple(physical_name(item) for item in fields) if len(fields) == len(path) else None


def leaf_columns(
    schema: delta.StructType,
    path: delta.Path = (),
    physical: delta.Path = (),
    *,
    nullable: bool = False,
) -> Iterator[Leaf]:
    """Yield the columns that have statistics: fields within structs; a whole array or map."""
    for item in schema.fields:
        below, beneath = (*path, item.name), (*physical, physical_name(item))
        if isinstance(item.type, delta.StructType):
            yield from leaf_columns(item.type, below, beneath, nullable=nullable or item.nullable)
        else:
            yield Leaf(below, beneath, item.type, nullable or item.nullable)


def without_mapping(schema: delta.StructType) -> delta.StructType:
    """Drop the metadata of column mapping: in mode `none` it has no effect."""

    def unmapped(item: delta.StructField) -> delta.StructField:
        metadata = {k: v for k, v in item.metadata.items() if not k.startswith(_PREFIX)}
        return replace(item, metadata=metadata)

    return delta.each_field(schema, unmapped)


def with_mapping(
    schema: delta.StructType, new_name: Callable[[], str], last_id: int = 0
) -> tuple[delta.StructType, int]:
    """Add missing ids and physical names to all fields; also return the last id."""
    used = [
        number for _, item in delta.all_fields(schema) if (number := field_id(item)) is not None
    ]
    last = max([last_id, *used])

    def mapped(item: delta.StructField) -> delta.StructField:
        nonlocal last
        metadata = dict(item.metadata)
        if field_id(item) is None:
            last += 1
            metadata[MAPPING_ID] = last
        metadata.setdefault(MAPPING_NAME, new_name())
        return replace(item, metadata=metadata)

    return delta.each_field(schema, mapped), last
