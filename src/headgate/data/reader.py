"""Data files of a table -> rows in the table's own columns.

A file's columns are found by name or by id, brought to the table's types, and filled with nulls
where the file is older than the column; partition values come from the log, and deleted rows are
left out by their position. Knows one file at a time; which files there are is the snapshot's.
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
from headgate.storage.locations import DataPath, PathKind, data_path, decode, path_within, store_for
from headgate.storage.port import ObjectStore

BATCH_ROWS: Final = 65_536
_RESTORE: Final = (
    "Restore the file from a backup, or read a version that does not need it; `headgate fsck` lists"
    " all that is damaged or missing."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table lies and how its columns are found in its files."""

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
    """Read the rows of one file that were not deleted and satisfy `where`, in these columns."""
    wanted = _with_filtered(layout.schema, columns, where)
    with _Source(layout, add) as source:
        for rows in source.rows(wanted):
            chosen = rows if where is None else rows.filter(_chosen(where, rows, layout.schema))
            yield (
                chosen.select(range(len(columns))) if columns else _without_columns(chosen.num_rows)
            )


def open_data(layout: Layout, raw: str) -> tuple[ObjectStore, str]:
    """Give the store and the path within it of a file as the log names it."""
    try:
        return _locate(layout, data_path(raw))
    except InvalidArgumentError as error:
        raise MalformedError(
            f"{layout.label}: the log names the file {raw!r}, which cannot be opened:"
            f" {error.message}",
            remedy=_RESTORE,
        ) from error


def _locate(layout: Layout, path: DataPath) -> tuple[ObjectStore, str]:
    if path.kind is PathKind.RELATIVE:
        return layout.store, path.value
    if (within := path_within(layout.location, path.value)) is not None:
        return layout.store, within
    folder, _, name = path.value.rpartition("/")
    return store_for(folder), decode(name)


# One file


class _Source:
    """A data file, open."""

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

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._input.close()

    def rows(self, columns: Sequence[StructField]) -> Iterator[pa.RecordBatch]:
        fit = _Fit(self._layout.by_id, f"{self._add.path} of {self._layout.label}")
        fields = list(self._file.schema_arrow)
        if self._layout.by_id and fields and not any(_id_of(field) for field in fields):
            raise MalformedError(
                f"{self._layout.label}: the data file {self._add.path} has no field ids, by which"
                " the table finds its columns.",
                remedy=_RESTORE,
            )
        stored = [item for item in columns if item.name not in self._layout.partition_columns]
        found = {item.name: fit.find(item, fields) for item in stored}
        constants = {
            item.name: self._partition_value(item)
            for item in columns
            if item.name in self._layout.partition_columns
        }
        schema = pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in columns])
        names = list({fields[index].name for index in found.values() if index is not None})
        for raw in self._live_rows(names):
            at = {name: index for index, name in enumerate(raw.schema.names)}
            arrays: list[pa.Array] = []
            for item, field in zip(columns, schema, strict=True):
                index = found.get(item.name)
                if item.name in constants:
                    arrays.append(pa.repeat(constants[item.name], raw.num_rows))
                elif index is None:
                    arrays.append(pa.nulls(raw.num_rows, field.type))
                else:
                    values = raw.column(at[fields[index].name])
                    arrays.append(fit.fit(values, item.type, (item.name,)))
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
        if not names:  # nothing but constants and nulls is wanted: only the number of rows counts
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
            remedy="Read a version without the file, or have the file added again with a value"
            " that the Delta protocol allows.",
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
    """Say of each row whether it satisfies a predicate; where that is unknown, null."""
    match where:
        case Compare(column, operator, value):
            values, data_type = _column(rows, schema, column)
            return compare(_OPERATORS[operator], values, _literal(value, data_type))
        case In(column, choices):
            values, data_type = _column(rows, schema, column)
            answer = pa.repeat(pa.scalar(False), rows.num_rows)
            for choice in choices:
                found = compare("equal", values, _literal(choice, data_type))
                answer = pc.or_kleene(answer, found)
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
        wanted = arrow_type(data_type)
        if pa.types.is_string(wanted):
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
        raise UnsupportedFeatureError("A predicate on what lies within an array or map.")
    return within.fields.index(item)


def _with_filtered(
    schema: StructType, columns: Sequence[StructField], where: Predicate | Filter | None
) -> list[StructField]:
    """Add the columns a predicate looks at behind those that are wanted."""
    wanted = list(columns)
    if where is None:
        return wanted
    paths = where.columns if isinstance(where, Filter) else columns_of(where)
    for path in sorted(paths):
        fields = find_all(schema, path)
        if not fields:
            hint = did_you_mean(path[0], [item.name for item in schema.fields])
            raise InvalidArgumentError(
                f"The table has no column {'.'.join(path)!r} to filter by.{hint}"
            )
        if all(item.name != fields[0].name for item in wanted):
            wanted.append(fields[0])
    return wanted


# Deleted rows


class _Deleted:
    """The positions a file's deletion vector takes away, passed through once, in order."""

    def __init__(self, layout: Layout, add: AddFile, num_rows: int) -> None:
        self._positions: Sequence[int] = ()
        self._next = 0
        if add.deletion_vector is not None:
            self._positions = deleted_rows(layout, add)
        if self._positions and self._positions[-1] >= num_rows:
            raise MalformedError(
                f"{layout.label}: the deletion vector of the data file {add.path} names row"
                f" {self._positions[-1]}, and the file has {num_rows}.",
                remedy=_RESTORE,
            )

    def without(self, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Leave the deleted ones out of consecutive rows that begin at position `first`."""
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
    """Read the positions that a file's deletion vector takes away, ascending."""
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


# From a file's types to the table's


def _id_of(field: pa.Field) -> str | None:
    number = (field.metadata or {}).get(FIELD_ID)
    return None if number is None else number.decode()


@dataclass(frozen=True, slots=True)
class _Fit:
    """Brings arrays of a file to the types of the table."""

    by_id: bool
    file: str

    def find(self, item: StructField, fields: Sequence[pa.Field]) -> int | None:
        """Find the field of a file that holds a column; exactly spelled before otherwise."""
        if item.type == VOID:
            return None
        if self.by_id:
            wanted = str(field_id(item))
            return next((i for i, field in enumerate(fields) if _id_of(field) == wanted), None)
        name = physical_name(item)
        for index, field in enumerate(fields):
            if field.name == name:
                return index
        folded = fold(name)
        return next((i for i, field in enumerate(fields) if fold(field.name) == folded), None)

    def fit(self, values: pa.Array, wanted: DataType, path: tuple[str, ...]) -> pa.Array:
        """Give the same values in the table's type."""
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), arrow_type(wanted))
        if values.type == arrow_type(wanted) == stored_type(wanted) and not self.by_id:
            return values
        match wanted:
            case StructType():
                self._check(pa.types.is_struct(values.type), values, wanted, path)
                return self._struct(values, wanted, path)
            case ArrayType(element):
                self._check(is_list(values.type), values, wanted, path)
                offsets = list_offsets(values)
                inner = self.fit(values.flatten(), element, (*path, "element"))
                mask = values.is_null() if values.null_count else None
                return pa.ListArray.from_arrays(offsets, inner, type=arrow_type(wanted), mask=mask)
            case MapType():
                self._check(pa.types.is_map(values.type), values, wanted, path)
                return self._map(values, wanted, path)
            case _ if wanted == VARIANT:
                return self._variant(values, path)
            case _:
                return self._leaf(values, wanted, path)

    def _struct(self, values: pa.Array, wanted: StructType, path: tuple[str, ...]) -> pa.Array:
        fields = [values.type.field(i) for i in range(values.type.num_fields)]
        arrays: list[pa.Array] = []
        for item in wanted.fields:
            index = self.find(item, fields)
            if index is None:
                arrays.append(pa.nulls(len(values), arrow_type(item.type)))
            else:
                arrays.append(self.fit(values.field(index), item.type, (*path, item.name)))
        if not arrays:
            return pa.nulls(len(values), pa.struct([]))
        mask = values.is_null() if values.null_count else None
        target = arrow_type(wanted)
        names = [target.field(i) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=names, mask=mask)

    def _map(self, values: pa.Array, wanted: MapType, path: tuple[str, ...]) -> pa.Array:
        listed = as_list(values)
        flat = listed.flatten()
        return pa.MapArray.from_arrays(
            list_offsets(listed),
            self.fit(flat.field(0), wanted.key, (*path, "key")),
            self.fit(flat.field(1), wanted.value, (*path, "value")),
            type=arrow_type(wanted),
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

    def _leaf(self, values: pa.Array, wanted: DataType, path: tuple[str, ...]) -> pa.Array:
        target = arrow_type(wanted)
        if values.type == target:
            return values
        self._check(_may_become(values.type, target), values, wanted, path)
        try:
            # Finer units than Delta's are cut, everything else must keep its value.
            return values.cast(target, safe=not pa.types.is_timestamp(target))
        except pa.ArrowInvalid as error:
            raise MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} does not fit {wanted}:"
                f" {error}."
            ) from error

    def _check(self, fits: bool, values: pa.Array, wanted: DataType, path: tuple[str, ...]) -> None:
        if not fits:
            raise MalformedError(
                f"Column {'.'.join(path)} of the data file {self.file} is {values.type}, and the"
                f" table says {wanted}."
            )


def list_offsets(lists: pa.Array) -> pa.Array:
    """Give offsets that go with the flattened values: null lists hold none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def as_list(maps: pa.Array) -> pa.Array:
    """Give maps as lists of entries; as such they can be taken apart."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(maps),
        maps.buffers()[:2],
        offset=maps.offset,
        children=[entries],
    )


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether values of a file's type can be read as the table's: widened, never parsed."""
    types = pa.types
    if types.is_dictionary(found):
        return _may_become(found.value_type, wanted) or found.value_type == wanted
    if types.is_integer(found):
        return bool(
            types.is_integer(wanted) or types.is_float64(wanted) or types.is_decimal(wanted)
        )
    if types.is_floating(found):
        return bool(types.is_floating(wanted) and found.bit_width <= wanted.bit_width)
    if types.is_decimal(found):
        return bool(types.is_decimal(wanted))
    if types.is_date(found):
        return bool(types.is_date(wanted) or (types.is_timestamp(wanted) and wanted.tz is None))
    if types.is_timestamp(found):
        return bool(types.is_timestamp(wanted))
    # Old writers left the annotation of strings out.
    return _is_bytes(found) and _is_bytes(wanted)


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
