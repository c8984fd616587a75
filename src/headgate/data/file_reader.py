"""Read the rows of data files in the columns and types of the table.

A file's columns are found by name or by id and cast to the table's types; a column that is newer
than the file is null. Partition values come from the log, and deleted rows are dropped by their
position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.data.arrow_types import FIELD_ID, arrow_type, is_list, stored_type
from headgate.data.constraints import Filter, compare
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    MalformedError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.names import did_you_mean, fold
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import AddFile
from headgate.protocol.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
)
from headgate.protocol.expressions.predicates import columns as columns_of
from headgate.protocol.partition_values import parse_partition_value
from headgate.protocol.scalars import DistantDate, DistantMoment
from headgate.protocol.schema.column_mapping import field_id, physical_name
from headgate.protocol.schema.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    find_all,
)
from headgate.storage.locations import DataPath, data_path, decode, path_within, store_for
from headgate.storage.object_store import ObjectStore

BATCH_ROWS: Final = 65_536
_RESTORE: Final = (
    "Restore the file from a backup, or read a version that does not need it; `headgate fsck` lists"
    " all damaged and missing files."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table is stored and how its columns are found in its files."""

    store: ObjectStore
    location: str
    label: str  # the table and its version, for messages
    schema: StructType
    partition_columns: frozenset[str]
    by_id: bool = False  # else by physical name


def read_rows(
    layout: Layout,
    add: AddFile,
    columns: Sequence[StructField],
    where: Predicate | Filter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the live rows of one file that satisfy `where`, in these columns."""
    read = _with_filtered(layout.schema, columns, where)
    with _DataFile(layout, add) as file:
        for rows in file.rows(read):
            chosen = rows if where is None else rows.filter(_chosen(where, rows, layout.schema))
            yield (
                chosen.select(range(len(columns))) if columns else _without_columns(chosen.num_rows)
            )


def open_data(layout: Layout, raw: str) -> tuple[ObjectStore, str]:
    """Return the store, and the path within it, of a file named in the log."""
    try:
        return _locate(layout, data_path(raw))
    except InvalidArgumentError as error:
        raise MalformedError(
            f"{layout.label}: the log names the file {raw!r}, which cannot be opened:"
            f" {error.message}",
            remedy=_RESTORE,
        ) from error


def _locate(layout: Layout, path: DataPath) -> tuple[ObjectStore, str]:
    if path.is_relative:
        return layout.store, path.value
    if (within := path_within(layout.location, path.value)) is not None:
        return layout.store, within
    folder, _, name = path.value.rpartition("/")
    return store_for(folder), decode(name)


# One file


class _DataFile:
    """An open data file."""

    def __init__(self, layout: Layout, add: AddFile) -> None:
        self._layout = layout
        self._add = add
        self._input = self._open()
        try:
            self._file = pq.ParquetFile(
                self._input, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False
            )
        except (pa.ArrowException, OSError) as error:
            self._input.close()
            raise self._unreadable(error) from error

    def __enter__(self) -> _DataFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._input.close()

    def rows(self, columns: Sequence[StructField]) -> Iterator[pa.RecordBatch]:
        conversion = _Conversion(self._layout.by_id, f"{self._add.path} of {self._layout.label}")
        fields = list(self._file.schema_arrow)
        if self._layout.by_id and fields and not any(_id_of(field) for field in fields):
            raise MalformedError(
                f"{self._layout.label}: the data file {self._add.path} has no field ids, which"
                " the table's column mapping requires.",
                remedy=_RESTORE,
            )
        stored = [item for item in columns if item.name not in self._layout.partition_columns]
        indices = {item.name: conversion.find(item, fields) for item in stored}
        constants = {
            item.name: self._partition_value(item)
            for item in columns
            if item.name in self._layout.partition_columns
        }
        schema = pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in columns])
        names = list({fields[index].name for index in indices.values() if index is not None})
        for raw in self._live_rows(names):
            at = {name: index for index, name in enumerate(raw.schema.names)}
            arrays: list[pa.Array] = []
            for item, field in zip(columns, schema, strict=True):
                index = indices.get(item.name)
                if item.name in constants:
                    arrays.append(pa.repeat(constants[item.name], raw.num_rows))
                elif index is None:
                    arrays.append(pa.nulls(raw.num_rows, field.type))
                else:
                    values = raw.column(at[fields[index].name])
                    arrays.append(conversion.convert(values, item.type, (item.name,)))
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            else:
                yield _without_columns(raw.num_rows)

    def _live_rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        deleted = _Deleted(self._layout, self._add, self._file.metadata.num_rows)
        first = 0
        for rows in self._all_rows(names):
            yield deleted.without(rows, first)
            first += rows.num_rows

    def _all_rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not names:  # every column is constant or null: only the number of rows is needed
            rest = self._file.metadata.num_rows
            while rest > 0:
                count = min(rest, BATCH_ROWS)
                yield _without_columns(count)
                rest -= count
            return
        try:
            yield from self._file.iter_batches(BATCH_ROWS, columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    def _open(self) -> Any:
        store, path = open_data(self._layout, self._add.path)
        try:
            if (local := store.local_path(path)) is not None:
                return pa.OSFile(local, "rb")
            return pa.BufferReader(store.get(path))
        except (FileNotFoundError, NotFoundError) as error:
            raise InvariantError(
                f"{self._layout.label}: the data file {self._add.path} is missing.",
                remedy=_RESTORE,
            ) from error
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> HeadgateError:
        return MalformedError(
            f"{self._layout.label}: the data file {self._add.path} cannot be read: {error}.",
            remedy=_RESTORE,
        )

    def _partition_value(self, item: StructField) -> pa.Scalar:
        value = partition_value(self._layout.label, self._add, item)
        return _scalar(value, item.type)


def _without_columns(num_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), num_rows, [None]))


# Partition values and literals


def partition_value(label: str, add: AddFile, item: StructField) -> object:
    """Read a file's value of a partition column; `label` names the table and its version."""
    name = physical_name(item)
    values: Mapping[str, str | None] = add.partition_values
    if name not in values:
        values, name = {fold(key): value for key, value in values.items()}, fold(name)
    try:
        return parse_partition_value(values.get(name), item.type)
    except MalformedError as error:
        raise MalformedError(
            f"{label}: column {item.name!r} of the data file {add.path}: {error.message}",
            remedy="Read a version without the file, or add the file again with a value that the"
            " Delta protocol allows.",
        ) from error


def _scalar(value: object, data_type: DataType) -> pa.Scalar:
    if isinstance(value, DistantDate | DistantMoment):
        value = value.since_1970
    return pa.scalar(value, arrow_type(data_type))


def _chosen(where: Predicate | Filter, rows: pa.RecordBatch, schema: StructType) -> pa.Array:
    if isinstance(where, Filter):
        return where.matching(rows)
    return matching(where, rows, schema)


def matching(where: Predicate, rows: pa.RecordBatch, schema: StructType) -> pa.Array:
    """Evaluate a predicate on each row: true, false, or null if that is unknown."""
    match where:
        case Compare(column, operator, value):
            values, data_type = _column(rows, schema, column)
            return compare(_OPERATORS[operator], values, _literal(value, data_type))
        case In(column, choices):
            values, data_type = _column(rows, schema, column)
            answer = pa.repeat(pa.scalar(False), rows.num_rows)
            for choice in choices:
                is_equal = compare("equal", values, _literal(choice, data_type))
                answer = pc.or_kleene(answer, is_equal)
            return answer
        case IsNull(column):
            return pc.is_null(_column(rows, schema, column)[0])
        case And(items):
            answer = pa.repeat(pa.scalar(True), rows.num_rows)
            for item in items:
                answer = pc.and_kleene(answer, matching(item, rows, schema))
            return answer
        case Or(items):
            answer = pa.repeat(pa.scalar(False), rows.num_rows)
            for item in items:
                answer = pc.or_kleene(answer, matching(item, rows, schema))
            return answer
        case Not(item):
            return pc.invert(matching(item, rows, schema))


_OPERATORS: Final = {
    Operator.EQ: "equal",
    Operator.NE: "not_equal",
    Operator.LT: "less",
    Operator.LE: "less_equal",
    Operator.GT: "greater",
    Operator.GE: "greater_equal",
}


def _literal(value: Literal, data_type: DataType) -> pa.Scalar:
    if isinstance(value, str):
        if pa.types.is_string(arrow_type(data_type)):
            return pa.scalar(value)
        return _scalar(parse_partition_value(value, data_type), data_type)
    return pa.scalar(value)


def _column(
    rows: pa.RecordBatch, schema: StructType, path: Sequence[str]
) -> tuple[pa.Array, DataType]:
    fields = find_all(schema, path)
    values = rows.column(fields[0].name)
    for outer, inner in pairwise(fields):
        values = pc.struct_field(values, [_position(outer.type, inner)])
    return values, fields[-1].type


def _position(within: DataType, item: StructField) -> int:
    if not isinstance(within, StructType):
        raise UnsupportedFeatureError(
            "A predicate on a field within an array or map is not supported."
        )
    return within.fields.index(item)


def _with_filtered(
    schema: StructType, columns: Sequence[StructField], where: Predicate | Filter | None
) -> list[StructField]:
    """Append the columns that a predicate uses to the columns to return."""
    read = list(columns)
    if where is None:
        return read
    paths = where.columns if isinstance(where, Filter) else columns_of(where)
    for path in sorted(paths):
        fields = find_all(schema, path)
        if not fields:
            hint = did_you_mean(path[0], [item.name for item in schema.fields])
            raise InvalidArgumentError(
                f"The table has no column {'.'.join(path)!r} to filter by.{hint}"
            )
        if all(item.name != fields[0].name for item in read):
            read.append(fields[0])
    return read


# Deleted rows


class _Deleted:
    """The positions that a file's deletion vector marks, for one pass over the file in order."""

    def __init__(self, layout: Layout, add: AddFile, num_rows: int) -> None:
        self._positions: Sequence[int] = ()
        self._next = 0
        if add.deletion_vector is not None:
            self._positions = deleted_rows(layout, add)
        if self._positions and self._positions[-1] >= num_rows:
            raise MalformedError(
                f"{layout.label}: the deletion vector of the data file {add.path} marks row"
                f" {self._positions[-1]}, and the file has {num_rows}.",
                remedy=_RESTORE,
            )

    def without(self, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Drop deleted rows from consecutive rows that begin at position `first`."""
        positions, at = self._positions, self._next
        self._next = bisect_left(positions, first + rows.num_rows, at)
        if self._next == at:
            return rows
        bits = bytearray(b"\xff" * ((rows.num_rows + 7) // 8))
        for position in positions[at : self._next]:
            bits[position - first >> 3] ^= 1 << (position - first & 7)
        live = pa.Array.from_buffers(pa.bool_(), rows.num_rows, [None, pa.py_buffer(bits)])
        return rows.filter(live)


def deleted_rows(layout: Layout, add: AddFile) -> Sequence[int]:
    """Read the positions that a file's deletion vector marks, ascending."""
    vector = add.deletion_vector
    if vector is None:
        return ()
    where = "inline"
    try:
        if deletion_vectors.is_inline(vector):
            return deletion_vectors.read_inline(vector).to_array()
        if vector.storage_type == deletion_vectors.ABSOLUTE:
            where = vector.path_or_inline_dv
            store, where = _locate(layout, data_path(where))
        else:
            store, where = layout.store, deletion_vectors.path_of(vector, layout.location)
        part = store.get_range(where, *deletion_vectors.byte_range(vector))
        return deletion_vectors.read_stored(vector, part).to_array()
    except NotFoundError as error:
        raise InvariantError(
            f"{layout.label}: the deletion vector {where} of the data file {add.path} is missing.",
            remedy=_RESTORE,
        ) from error
    except (MalformedError, InvalidArgumentError) as error:
        raise MalformedError(
            f"{layout.label}: the deletion vector ({where}) of the data file {add.path} is damaged:"
            f" {error.message}",
            remedy=_RESTORE,
        ) from error


# Conversion to the table's types


def _id_of(field: pa.Field) -> str | None:
    number = (field.metadata or {}).get(FIELD_ID)
    return None if number is None else number.decode()


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Converts arrays of a file to the types of the table."""

    by_id: bool
    file: str

    def find(self, item: StructField, fields: Sequence[pa.Field]) -> int | None:
        """Find the field of a file that holds a column; an exact name comes before any case."""
        if item.type == VOID:
            return None
        if self.by_id:
            number = str(field_id(item))
            return next((i for i, field in enumerate(fields) if _id_of(field) == number), None)
        name = physical_name(item)
        for index, field in enumerate(fields):
            if field.name == name:
                return index
        folded = fold(name)
        return next((i for i, field in enumerate(fields) if fold(field.name) == folded), None)

    def convert(self, values: pa.Array, to: DataType, path: tuple[str, ...]) -> pa.Array:
        """Return the values in the table's type."""
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), arrow_type(to))
        if values.type == arrow_type(to) == stored_type(to) and not self.by_id:
            return values
        match to:
            case StructType():
                self._check(pa.types.is_struct(values.type), values, to, path)
                return self._struct(values, to, path)
            case ArrayType(element):
                self._check(is_list(values.type), values, to, path)
                offsets = list_offsets(values)
                inner = self.convert(values.flatten(), element, (*path, "element"))
                mask = values.is_null() if values.null_count else None
                return pa.ListArray.from_arrays(offsets, inner, type=arrow_type(to), mask=mask)
            case MapType():
                self._check(pa.types.is_map(values.type), values, to, path)
                return self._map(values, to, path)
            case _ if to == VARIANT:
                return self._variant(values, path)
            case _:
                return self._leaf(values, to, path)

    def _struct(self, values: pa.Array, to: StructType, path: tuple[str, ...]) -> pa.Array:
        fields = [values.type.field(i) for i in range(values.type.num_fields)]
        arrays: list[pa.Array] = []
        for item in to.fields:
            index = self.find(item, fields)
            if index is None:
                arrays.append(pa.nulls(len(values), arrow_type(item.type)))
            else:
                arrays.append(self.convert(values.field(index), item.type, (*path, item.name)))
        if not arrays:
            return pa.nulls(len(values), pa.struct([]))
        mask = values.is_null() if values.null_count else None
        target = arrow_type(to)
        names = [target.field(i) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=names, mask=mask)

    def _map(self, values: pa.Array, to: MapType, path: tuple[str, ...]) -> pa.Array:
        listed = as_list(values)
        flat = listed.flatten()
        return pa.MapArray.from_arrays(
            list_offsets(listed),
            self.convert(flat.field(0), to.key, (*path, "key")),
            self.convert(flat.field(1), to.value, (*path, "value")),
            type=arrow_type(to),
            mask=values.is_null() if values.null_count else None,
        )

    def _variant(self, values: pa.Array, path: tuple[str, ...]) -> pa.Array:
        target = arrow_type(VARIANT)
        self._check(pa.types.is_struct(values.type), values, VARIANT, path)
        names = {values.type.field(i).name: i for i in range(values.type.num_fields)}
        if names.keys() != {"metadata", "value"}:
            raise UnsupportedFeatureError(
                f"Column {'.'.join(path)} of {self.file} is a shredded variant (variantShredding)."
            )
        return pa.StructArray.from_arrays(
            [values.field(names[key]).cast(pa.binary()) for key in ("metadata", "value")],
            fields=[target.field(i) for i in range(2)],
            mask=values.is_null() if values.null_count else None,
        )

    def _leaf(self, values: pa.Array, to: DataType, path: tuple[str, ...]) -> pa.Array:
        target = arrow_type(to)
        if values.type == target:
            return values
        self._check(_is_readable_as(values.type, target), values, to, path)
        try:
            # Units finer than microseconds are truncated; all other casts must keep the value.
            return values.cast(target, safe=not pa.types.is_timestamp(target))
        except pa.ArrowInvalid as error:
            raise MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} does not fit {to}: {error}."
            ) from error

    def _check(self, fits: bool, values: pa.Array, to: DataType, path: tuple[str, ...]) -> None:
        if not fits:
            raise MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} is {values.type}, but in"
                f" the table's schema it is {to}."
            )


def list_offsets(lists: pa.Array) -> pa.Array:
    """Return offsets into the flattened values, which leave out those of null lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def as_list(maps: pa.Array) -> pa.Array:
    """Return maps as lists of entries, which can be flattened."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(maps),
        maps.buffers()[:2],
        offset=maps.offset,
        children=[entries],
    )


def _is_readable_as(stored: pa.DataType, to: pa.DataType) -> bool:
    """Return True if values of a file's type can be read as the table's: widened, never parsed."""
    types = pa.types
    if types.is_dictionary(stored):
        return _is_readable_as(stored.value_type, to) or stored.value_type == to
    if types.is_integer(stored):
        return bool(types.is_integer(to) or types.is_float64(to) or types.is_decimal(to))
    if types.is_floating(stored):
        return bool(types.is_floating(to) and stored.bit_width <= to.bit_width)
    if types.is_decimal(stored):
        return bool(types.is_decimal(to))
    if types.is_date(stored):
        return bool(types.is_date(to) or (types.is_timestamp(to) and to.tz is None))
    if types.is_timestamp(stored):
        return bool(types.is_timestamp(to))
    # Old writers did not annotate strings as such.
    return _is_bytes(stored) and _is_bytes(to)


def _is_bytes(of: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(of)
        or types.is_large_string(of)
        or types.is_string_view(of)
        or types.is_binary(of)
        or types.is_large_binary(of)
        or types.is_binary_view(of)
        or types.is_fixed_size_binary(of)
    )
