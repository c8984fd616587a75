"""Validate the schema of a new table, and of one that rows are written to; not for reading."""

from collections.abc import Iterator, Sequence

from headgate.errors import InvalidSchemaError
from headgate.names import did_you_mean, fold
from headgate.protocol.schema import types as delta

_FORBIDDEN = frozenset(" ,;{}()\n\t=")  # some Parquet readers cannot handle them


def problems(
    schema: delta.StructType, partition_columns: Sequence[str] = (), *, column_mapping: bool = False
) -> list[str]:
    """List all reasons why a new table cannot have this schema."""
    if not schema.fields:
        return ["there are no columns"]
    if _depth(schema) > delta.DEEPEST:
        return [f"it nests deeper than {delta.DEEPEST} levels"]
    found = list(_name_problems(schema, column_mapping=column_mapping))
    found.extend(_partition_problems(schema, partition_columns))
    return found


def check(
    schema: delta.StructType, partition_columns: Sequence[str] = (), *, column_mapping: bool = False
) -> None:
    """Refuse a schema that a new table cannot have."""
    if found := problems(schema, partition_columns, column_mapping=column_mapping):
        text = "; ".join(found)
        raise InvalidSchemaError(
            f"The schema cannot be used: {text if text.endswith('?') else f'{text}.'}"
        )


def void_problems(schema: delta.StructType) -> list[str]:
    """List the uses of `void` that make it impossible to write rows: it is never stored."""
    found = [
        f"column {'.'.join(path)!r} has void within an array or map"
        for path, item in delta.all_fields(schema)
        if isinstance(item.type, delta.ArrayType | delta.MapType)
        and delta.contains(item.type, delta.VOID)
    ]
    found.extend(
        f"every field of struct {'.'.join(path)!r} is void"
        for path, item in delta.all_fields(schema)
        if isinstance(item.type, delta.StructType) and _is_all_void(item.type)
    )
    if _is_all_void(schema):
        found.append("every column is void")
    return found


def _depth(data_type: delta.DataType) -> int:
    deepest, level = 0, delta.parts(data_type)
    while level and deepest <= delta.DEEPEST:
        deepest += 1
        level = [inner for _, outer in level for inner in delta.parts(outer)]
    return deepest


def _name_problems(schema: delta.StructType, *, column_mapping: bool) -> Iterator[str]:
    for where, struct in delta.all_types(schema):
        if not isinstance(struct, delta.StructType):
            continue
        seen: dict[str, str] = {}
        for item in struct.fields:
            name = ".".join((*where, item.name))
            if not item.name:
                yield f"a column {delta.place(where)} has an empty name"
            elif (twin := seen.setdefault(fold(item.name), item.name)) is not item.name:
                yield f"column {name!r} is given twice, ignoring case ({twin!r})"
            if not column_mapping and (bad := sorted(_FORBIDDEN.intersection(item.name))):
                yield f"column {name!r} contains {bad[0]!r}, which needs column mapping"
        if where and not struct.fields:
            yield f"the struct {delta.place(where)} has no fields"


def _partition_problems(
    schema: delta.StructType, partition_columns: Sequence[str]
) -> Iterator[str]:
    columns = {item.name: item for item in schema.fields}
    for position, name in enumerate(partition_columns):
        item = columns.get(name)
        if item is None:
            hint = did_you_mean(name, [item.name for item in schema.fields])
            yield f"there is no column {name!r} to partition by.{hint}".removesuffix(".")
        elif name in partition_columns[:position]:
            yield f"column {name!r} is named twice to partition by"
        elif item.type in (delta.VARIANT, delta.VOID) or not isinstance(
            item.type, delta.Primitive | delta.DecimalType
        ):
            yield f"column {name!r} is a {item.type}, which cannot be partitioned by"
    if partition_columns and columns.keys() <= set(partition_columns):
        yield "every column is a partition column, so none is left for the files"


def _is_all_void(schema: delta.StructType) -> bool:
    return bool(schema.fields) and all(item.type == delta.VOID for item in schema.fields)
