"""Build structs, lists, maps and variants from the converted values of others."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.data.arrow_types import VARIANT

Convert = Callable[[pa.Array], pa.Array]


def struct_array(values: pa.Array, fields: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    """Build structs of other fields, null where `values` are."""
    if not fields:
        return pa.nulls(len(values), target)
    return pa.StructArray.from_arrays(fields, fields=list(target), mask=_nulls(values))


def list_array(values: pa.Array, element: Convert, target: pa.DataType) -> pa.Array:
    """Convert the elements of lists."""
    return pa.ListArray.from_arrays(
        _offsets(values), element(values.flatten()), type=target, mask=_nulls(values)
    )


def map_array(values: pa.Array, key: Convert, value: Convert, target: pa.DataType) -> pa.Array:
    """Convert the keys and values of maps."""
    entries = map_entries(values)
    return pa.MapArray.from_arrays(
        _offsets(values),
        key(entries.field(0)),
        value(entries.field(1)),
        type=target,
        mask=_nulls(values),
    )


def variant_array(values: pa.Array) -> pa.Array | None:
    """Convert structs of metadata and value to variants; None if they have other fields."""
    names = [field.name for field in values.type] if pa.types.is_struct(values.type) else []
    if sorted(names) != ["metadata", "value"]:
        return None
    fields = [values.field(names.index(field.name)).cast(field.type) for field in VARIANT]
    return struct_array(values, fields, VARIANT)


def map_entries(maps: pa.Array) -> pa.StructArray:
    """Return the entries of all maps that are not null, as structs of key and value."""
    return _as_lists(maps).flatten()


def _as_lists(maps: pa.Array) -> pa.Array:
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(maps),
        maps.buffers()[:2],
        offset=maps.offset,
        children=[entries],
    )


def _offsets(lists: pa.Array) -> pa.Array:
    """Return offsets into the flattened values, which leave out those of null lists."""
    if pa.types.is_map(lists.type):
        lists = _as_lists(lists)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
