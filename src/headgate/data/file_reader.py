"""Read the rows of data files in the columns and types of the table.

A file's columns are found by name or by id and cast to the table's types; a column that is newer
than the file is null. Partition values come from the log, and deleted rows are dropped by their
position.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate import errors
from headgate.data.arrow_types import FIELD_ID, arrow_type, is_bytes, is_list
from headgate.data.constraints import Filter, compare
from headgate.data.nested_arrays import list_array, map_array, struct_array, variant_array
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
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import field_id, physical_name
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
    schema: delta.StructType
    partition_columns: frozenset[str]
    by_id: bool = False  # else by physical name


def read_rows(
    layout: Layout,
    add: AddFile,
    columns: Sequence[delta.StructField],
    where: Predicate | Filter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the live rows of one file that satisfy `where`, in these columns."""
    read = _with_filtered(layout.schema, columns, where)
    with _file_errors(layout, add):
        store, path = _locate(layout, data_path(add.path))
        file = pq.ParquetFile(
            store.local_path(path) or pa.BufferReader(store.get(path)),
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
        )
    with file:
        for rows in _rows(layout, add, file, read):
            if isinstance(where, Filter):
                rows = rows.filter(where.matching(rows))
            elif where is not None:
                rows = rows.filter(matching(where, rows, layout.schema))
            yield rows.select(range(len(columns))) if columns else _without_columns(rows.num_rows)


@contextmanager
def _file_errors(layout: Layout, add: AddFile) -> Iterator[None]:
    """Convert the errors of opening and reading a data file to ours."""
    file = f"{layout.label}: the data file {add.path}"
    try:
        yield
    except (FileNotFoundError, errors.NotFoundError) as error:
        raise errors.InvariantError(f"{file} is missing.", remedy=_RESTORE) from error
    except errors.UnavailableError as error:
        raise errors.UnavailableError(f"{file} cannot be reached: {error.message}") from error
    except errors.InvalidArgumentError as error:
        raise errors.MalformedError(
            f"{layout.label}: the log names the file {add.path!r}, which cannot be opened:"
            f" {error.message}",
            remedy=_RESTORE,
        ) from error
    except (pa.ArrowException, OSError) as error:
        why = str(error).rstrip(".")
        raise errors.MalformedError(f"{file} cannot be read: {why}.", remedy=_RESTORE) from error


def _locate(layout: Layout, path: DataPath) -> tuple[ObjectStore, str]:
    if path.is_relative:
        return layout.store, path.value
    if (within := path_within(layout.location, path.value)) is not None:
        return layout.store, within
    folder, _, name = path.value.rpartition("/")
    return store_for(folder), decode(name)


def _rows(
    layout: Layout, add: AddFile, file: pq.ParquetFile, columns: Sequence[delta.StructField]
) -> Iterator[pa.RecordBatch]:
    """Read the live rows of a file in the table's types."""
    conversion = _Conversion(layout.by_id, f"{add.path} of {layout.label}")
    fields = list(file.schema_arrow)
    if layout.by_id and fields and not any(_id_of(field) for field in fields):
        raise errors.MalformedError(
            f"{layout.label}: the data file {add.path} has no field ids, which the table's column"
            " mapping requires.",
            remedy=_RESTORE,
        )
    constants = {
        item.name: _scalar(partition_value(layout.label, add, item), item.type)
        for item in columns
        if item.name in layout.partition_columns
    }
    stored = {
        item.name: fields[index].name
        for item in columns
        if item.name not in constants and (index := conversion.find(item, fields)) is not None
    }
    schema = pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in columns])
    all_rows = _all_rows(layout, add, file, list(set(stored.values())))
    for rows in _live_rows(layout, add, all_rows, file.metadata.num_rows):
        arrays: list[pa.Array] = []
        for item, field in zip(columns, schema, strict=True):
            if item.name in constants:
                arrays.append(pa.repeat(constants[item.name], rows.num_rows))
            elif item.name in stored:
                values = rows.column(stored[item.name])
                arrays.append(conversion.convert(values, item.type, (item.name,)))
            else:
                arrays.append(pa.nulls(rows.num_rows, field.type))
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield _without_columns(rows.num_rows)


def _all_rows(
    layout: Layout, add: AddFile, file: pq.ParquetFile, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if names:
        with _file_errors(layout, add):
            yield from file.iter_batches(BATCH_ROWS, columns=names)
        return
    # Every column is constant or null: only the number of rows is needed.
    for first in range(0, file.metadata.num_rows, BATCH_ROWS):
        yield _without_columns(min(BATCH_ROWS, file.metadata.num_rows - first))


def _without_columns(num_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), num_rows, [None]))


# Partition values and literals


def partition_value(label: str, add: AddFile, item: delta.StructField) -> object:
    """Read a file's value of a partition column; `label` names the table and its version."""
    name = physical_name(item)
    values: Mapping[str, str | None] = add.partition_values
    if name not in values:
        values, name = {fold(key): value for key, value in values.items()}, fold(name)
    try:
        return parse_partition_value(values.get(name), item.type)
    except errors.MalformedError as error:
        raise errors.MalformedError(
            f"{label}: column {item.name!r} of the data file {add.path}: {error.message}",
            remedy="Read a version without the file, or add the file again with a value that the"
            " Delta protocol allows.",
        ) from error


def _scalar(value: object, data_type: delta.DataType) -> pa.Scalar:
    if isinstance(value, DistantDate | DistantMoment):
        value = value.since_1970
    return pa.scalar(value, arrow_type(data_type))


def matching(where: Predicate, rows: pa.RecordBatch, schema: delta.StructType) -> pa.Array:
    """Evaluate a predicate on each row: true, false, or null if that is unknown."""
    match where:
        case Compare(column, operator, value):
            return _compared(rows, schema, column, operator, value)
        case In(column, choices):
            equal = (_compared(rows, schema, column, Operator.EQ, value) for value in choices)
            return reduce(pc.or_kleene, equal, pa.repeat(pa.scalar(False), rows.num_rows))
        case IsNull(column):
            return pc.is_null(_column(rows, schema, column)[0])
        case And(items):
            parts = (matching(item, rows, schema) for item in items)
            return reduce(pc.and_kleene, parts, pa.repeat(pa.scalar(True), rows.num_rows))
        case Or(items):
            parts = (matching(item, rows, schema) for item in items)
            return reduce(pc.or_kleene, parts, pa.repeat(pa.scalar(False), rows.num_rows))
        case Not(item):
            return pc.invert(matching(item, rows, schema))


def _compared(
    rows: pa.RecordBatch,
    schema: delta.StructType,
    column: Sequence[str],
    operator: Operator,
    value: Literal,
) -> pa.Array:
    values, data_type = _column(rows, schema, column)
    return compare(operator.value, values, _literal(value, data_type))


def _literal(value: Literal, data_type: delta.DataType) -> pa.Scalar:
    if isinstance(value, str):
        if pa.types.is_string(arrow_type(data_type)):
            return pa.scalar(value)
        return _scalar(parse_partition_value(value, data_type), data_type)
    return pa.scalar(value)


def _column(
    rows: pa.RecordBatch, schema: delta.StructType, path: Sequence[str]
) -> tuple[pa.Array, delta.DataType]:
    fields = delta.find_all(schema, path)
    values = rows.column(fields[0].name)
    for outer, inner in pairwise(fields):
        if not isinstance(outer.type, delta.StructType):
            raise errors.UnsupportedFeatureError(
                "A predicate on a field within an array or map is not supported."
            )
        values = pc.struct_field(values, [outer.type.fields.index(inner)])
    return values, fields[-1].type


def _with_filtered(
    schema: delta.StructType, columns: Sequence[delta.StructField], where: Predicate | Filter | None
) -> list[delta.StructField]:
    """Append the columns that a predicate uses to the columns to return."""
    read = list(columns)
    if where is None:
        return read
    paths = where.columns if isinstance(where, Filter) else columns_of(where)
    for path in sorted(paths):
        fields = delta.find_all(schema, path)
        if not fields:
            hint = did_you_mean(path[0], [item.name for item in schema.fields])
            raise errors.InvalidArgumentError(
                f"The table has no column {'.'.join(path)!r} to filter by.{hint}"
            )
        if all(item.name != fields[0].name for item in read):
            read.append(fields[0])
    return read


# Deleted rows


def _live_rows(
    layout: Layout, add: AddFile, batches: Iterator[pa.RecordBatch], num_rows: int
) -> Iterator[pa.RecordBatch]:
    """Drop the rows that a file's deletion vector marks."""
    deleted = deleted_rows(layout, add)
    if deleted and deleted[-1] >= num_rows:
        raise errors.MalformedError(
            f"{layout.label}: the deletion vector of the data file {add.path} marks row"
            f" {deleted[-1]}, and the file has {num_rows}.",
            remedy=_RESTORE,
        )
    first = done = 0
    for rows in batches:
        upto = bisect_left(deleted, first + rows.num_rows, done)
        if upto == done:
            yield rows
        else:
            bits = bytearray(b"\xff" * ((rows.num_rows + 7) // 8))
            for position in deleted[done:upto]:
                bits[position - first >> 3] ^= 1 << (position - first & 7)
            buffers = [None, pa.py_buffer(bits)]
            yield rows.filter(pa.Array.from_buffers(pa.bool_(), rows.num_rows, buffers))
        first, done = first + rows.num_rows, upto


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
    except errors.NotFoundError as error:
        raise errors.InvariantError(
            f"{layout.label}: the deletion vector {where} of the data file {add.path} is missing.",
            remedy=_RESTORE,
        ) from error
    except errors.UnavailableError as error:
        raise errors.UnavailableError(
            f"{layout.label}: the deletion vector {where} of the data file {add.path} cannot be"
            f" reached: {error.message}"
        ) from error
    except (errors.MalformedError, errors.InvalidArgumentError) as error:
        raise errors.MalformedError(
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

    def find(self, item: delta.StructField, fields: Sequence[pa.Field]) -> int | None:
        """Find the field of a file that holds a column; an exact name comes before any case."""
        if item.type == delta.VOID:
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

    def convert(self, values: pa.Array, to: delta.DataType, path: tuple[str, ...]) -> pa.Array:
        """Return the values in the table's type."""
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), arrow_type(to))
        if values.type == arrow_type(to) == arrow_type(to, in_files=True) and not self.by_id:
            return values
        match to:
            case delta.StructType():
                self._check(pa.types.is_struct(values.type), values, to, path)
                return self._struct(values, to, path)
            case delta.ArrayType():
                self._check(is_list(values.type), values, to, path)
                element = partial(self.convert, to=to.element, path=(*path, "element"))
                return list_array(values, element, arrow_type(to))
            case delta.MapType():
                self._check(pa.types.is_map(values.type), values, to, path)
                key = partial(self.convert, to=to.key, path=(*path, "key"))
                value = partial(self.convert, to=to.value, path=(*path, "value"))
                return map_array(values, key, value, arrow_type(to))
            case _ if to == delta.VARIANT:
                self._check(pa.types.is_struct(values.type), values, to, path)
                if (variants := variant_array(values)) is None:
                    raise errors.UnsupportedFeatureError(
                        f"Column {'.'.join(path)} of {self.file} is a shredded variant"
                        " (variantShredding)."
                    )
                return variants
            case _:
                return self._leaf(values, to, path)

    def _struct(self, values: pa.Array, to: delta.StructType, path: tuple[str, ...]) -> pa.Array:
        fields = list(values.type)
        arrays: list[pa.Array] = []
        for item in to.fields:
            index = self.find(item, fields)
            if index is None:
                arrays.append(pa.nulls(len(values), arrow_type(item.type)))
            else:
                arrays.append(self.convert(values.field(index), item.type, (*path, item.name)))
        return struct_array(values, arrays, arrow_type(to))

    def _leaf(self, values: pa.Array, to: delta.DataType, path: tuple[str, ...]) -> pa.Array:
        target = arrow_type(to)
        if values.type == target:
            return values
        self._check(_is_readable_as(values.type, target), values, to, path)
        try:
            # Units finer than microseconds are truncated; all other casts must keep the value.
            return values.cast(target, safe=not pa.types.is_timestamp(target))
        except pa.ArrowInvalid as error:
            raise errors.MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} does not fit {to}: {error}."
            ) from error

    def _check(
        self, fits: bool, values: pa.Array, to: delta.DataType, path: tuple[str, ...]
    ) -> None:
        if not fits:
            raise errors.MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} is {values.type}, but in"
                f" the table's schema it is {to}."
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
    return is_bytes(stored) and is_bytes(to)
