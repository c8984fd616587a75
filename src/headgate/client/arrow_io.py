"""Read and write rows with pyarrow, for small tables."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeAlias
from uuid import UUID

import pyarrow as pa

from headgate import errors
from headgate.arguments import shown
from headgate.data.arrow_types import arrow_schema, arrow_type, delta_schema, delta_type
from headgate.data.constraints import Constraint, Filter, parse_constraint, parse_filter
from headgate.data.file_reader import Layout, read_rows
from headgate.data.file_writer import DataFiles
from headgate.data.row_conversion import check_rows, conform, constraints_of
from headgate.names import did_you_mean, fold
from headgate.protocol.actions import AddFile
from headgate.protocol.expressions.implied import implied_predicate
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.features import is_supported, mapping_mode, unwritable
from headgate.protocol.schema.checks import void_problems
from headgate.protocol.schema.column_mapping import without_mapping
from headgate.protocol.schema.type_widening import TypeChange, is_readable, type_changes
from headgate.protocol.schema.types import VOID, DataType, StructField, StructType, find
from headgate.storage.object_store import ObjectStore
from headgate.table.snapshot import Snapshot

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

_BATCH_ROWS: Final = 131_072
_THREADS: Final = min(8, (os.cpu_count() or 1) + 1)


def schema_of(value: object) -> StructType | None:
    """Convert a schema of Arrow; return None for another value."""
    return delta_schema(value) if isinstance(value, pa.Schema) else None


def type_of(value: object) -> DataType | None:
    """Convert a type of Arrow; return None for another value."""
    return delta_type(value) if isinstance(value, pa.DataType) else None


# Reading


def to_arrow(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Read the rows of a snapshot that satisfy `where`, at most `limit` of them."""
    batches = list(to_batches(snapshot, columns, where, limit))
    schema = arrow_schema(StructType(tuple(_chosen(snapshot.schema, columns))))
    return pa.Table.from_batches(batches, schema=schema)


def to_batches(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a snapshot in batches; times without a zone in `where` are UTC."""
    if limit is not None and limit < 0:
        raise errors.InvalidArgumentError(f"The limit is {limit} rows; it cannot be negative.")
    layout = layout_of(snapshot)
    chosen = _chosen(layout.schema, columns)
    rows = parse_filter(where, arrow_schema(snapshot.schema)) if isinstance(where, str) else where
    files = snapshot.files(skipping_predicate(snapshot, where)) if limit != 0 else []
    return _limited(_read_all(layout, files, chosen, rows), limit)


def skipping_predicate(snapshot: Snapshot, where: Predicate | str | None) -> Predicate | None:
    """Return the part of a condition that decides which files are read."""
    if not isinstance(where, str):
        return where
    parsed = parse_filter(where, arrow_schema(snapshot.schema))
    return implied_predicate(parsed.tree, snapshot.schema, is_utc=True)


def layout_of(snapshot: Snapshot) -> Layout:
    """Return where the files of a snapshot are stored and how their columns are found."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata)
    for change in _type_changes(snapshot):
        if not is_readable(change.before, change.after) and change.before != VOID:
            raise errors.UnsupportedFeatureError(
                f"{snapshot.label} version {snapshot.version}: column {'.'.join(change.path)} was"
                f" changed from {change.before} to {change.after}, which typeWidening does not"
                " allow."
            )
    return Layout(
        store=snapshot.store,
        location=snapshot.location,
        label=f"{snapshot.label} version {snapshot.version}",
        schema=snapshot.schema if mode != "none" else without_mapping(snapshot.schema),
        partition_columns=frozenset(snapshot.partition_columns),
        by_id=mode == "id",
    )


def _type_changes(snapshot: Snapshot) -> list[TypeChange]:
    schema = snapshot.schema  # outside of `try`: its errors name the table already
    try:
        return type_changes(schema)
    except (errors.MalformedError, errors.UnsupportedFeatureError) as error:
        raise type(error)(
            f"{snapshot.label} version {snapshot.version}: {error.message}", remedy=error.remedy
        ) from error


def _chosen(schema: StructType, columns: Sequence[str] | None) -> list[StructField]:
    if columns is None:
        return list(schema.fields)
    found: list[StructField] = []
    for name in columns:
        item = find(schema, [name])
        if item is None:
            known = [item.name for item in schema.fields]
            raise errors.InvalidArgumentError(
                f"The table has no column {name!r}.{did_you_mean(name, known)}",
                remedy=f"Use columns of the table: {', '.join(known)}.",
            )
        found.append(item)
    if len({item.name for item in found}) < len(found):
        raise errors.InvalidArgumentError(f"A column is listed twice: {', '.join(columns)}.")
    return found


def _read_all(
    layout: Layout,
    files: Sequence[AddFile],
    columns: Sequence[StructField],
    where: Predicate | Filter | None,
) -> Iterator[pa.RecordBatch]:
    if len(files) == 1:
        yield from read_rows(layout, files[0], columns, where)
        return

    def read_whole(file: AddFile) -> list[pa.RecordBatch]:
        return list(read_rows(layout, file, columns, where))

    waiting = deque(files)
    reading: deque[Future[list[pa.RecordBatch]]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="headgate-read") as pool:
        try:
            while waiting or reading:
                while waiting and len(reading) <= _THREADS:
                    reading.append(pool.submit(read_whole, waiting.popleft()))
                yield from reading.popleft().result()
        finally:
            for future in reading:
                future.cancel()


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        if left is not None:
            left -= batch.num_rows
        yield batch


# Checking existing rows against a new rule


def check_condition(snapshot: Snapshot, name: str, condition: str) -> None:
    """Raise an error if a row breaks a condition, or if it cannot be evaluated exactly."""
    schema = snapshot.schema
    parsed = parse_constraint(name, condition, arrow_schema(schema))
    used = {fold(path[0]) for path in parsed.columns}
    # A condition without columns is evaluated once for each row of the first column.
    columns = [item for item in schema.fields if fold(item.name) in used] or [schema.fields[0]]
    chosen = arrow_schema(StructType(tuple(columns)))
    _check_all(snapshot, columns, [parse_constraint(name, condition, chosen)])


def check_nulls(snapshot: Snapshot, column: StructField) -> None:
    """Raise an error if a column has a null where its new type allows none."""
    _check_all(snapshot, [column], [])


def _check_all(
    snapshot: Snapshot, columns: Sequence[StructField], constraints: Sequence[Constraint]
) -> None:
    for batch in to_batches(snapshot, [item.name for item in columns]):
        check_rows(batch, StructType(tuple(columns)), constraints)


# Writing


def rows_of(rows: object, schema: StructType) -> Rows:
    """Convert rows from pandas, polars or a list of dicts, whose values get the schema's types."""
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return rows
    try:
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "index"):
            # An index with a name is a column; the default index is not.
            is_named = any(name is not None for name in rows.index.names)
            return pa.Table.from_pandas(rows, preserve_index=is_named)
        if hasattr(rows, "__arrow_c_stream__"):
            return _without_views(pa.table(rows))
        if isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
            return _table_of(rows, schema)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise errors.InvalidDataError(f"The rows cannot be converted to Arrow: {error}.") from error
    raise errors.InvalidArgumentError(
        f"Rows cannot be given as {shown(rows)}.",
        remedy="Pass a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars "
        "DataFrame, or a list of dicts.",
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Convert categorical columns of polars to a type that Arrow can decode."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and field.type.value_type == pa.string_view():
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
                for chunk in table.column(index).chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(index, field.name, pa.chunked_array(chunks, kind))
    return table


def as_table(rows: object, schema: StructType) -> pa.Table:
    """Convert rows to a table with Delta's types; a void column gets that of the schema."""
    found = rows_of(rows, schema)
    table = found if isinstance(found, pa.Table) else pa.Table.from_batches(_batches(found))
    types = {fold(item.name): arrow_type(item.type) for item in schema.fields}
    fields = []
    for field in table.schema:
        known = types.get(fold(field.name))
        is_void = pa.types.is_null(field.type) and known is not None
        plain = known if is_void else arrow_type(delta_type(field.type, (field.name,)))
        fields.append(pa.field(field.name, plain))
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:
        raise errors.InvalidDataError(f"A value does not fit: {error}.") from error


def _table_of(rows: Sequence[Mapping[str, object]], schema: StructType) -> pa.Table:
    types = {fold(item.name): arrow_type(item.type) for item in schema.fields}
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not all(isinstance(name, str) for name in names):
        raise TypeError("the keys of a row must be names of columns")
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows], types.get(fold(name)))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise errors.InvalidDataError(f"Column {name!r}: {error}.") from error
    return pa.table(columns)


def write_files(
    table: Snapshot, rows: Rows, *, store: ObjectStore, new_id: Callable[[], UUID], now_ms: int
) -> list[AddFile]:
    """Write rows as data files of a table; return the actions that add them.

    Each batch is checked before it is written; if one is refused, the files are deleted. When this
    returns, the files are durable. Readers see them once they are committed.
    """
    if found := unwritable(table.protocol, table.metadata):
        raise errors.UnsupportedFeatureError(f"Rows cannot be written: {', '.join(found)}.")
    mapped = mapping_mode(table.protocol, table.metadata) != "none"
    schema = table.schema if mapped else without_mapping(table.schema)
    if problems := void_problems(schema):
        raise errors.InvalidSchemaError(f"Rows cannot be written: {'; '.join(problems)}.")
    constraints = constraints_of(schema, table.metadata.configuration)
    files = DataFiles(
        schema=schema,
        partition_columns=table.metadata.partition_columns,
        properties=table.metadata.configuration,
        tight=is_supported(table.protocol, "deletionVectors"),
        mapped=mapped,
        store=store,
        new_id=new_id,
        now_ms=now_ms,
    )
    with files:
        for batch in _batches(rows):
            fitted = conform(batch, schema)
            check_rows(fitted, schema, constraints)
            files.add(fitted)
        return files.finish()


def _batches(rows: Rows) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, pa.Table):
        yield from rows.to_batches(_BATCH_ROWS)
    elif isinstance(rows, pa.RecordBatch):
        yield rows
    else:
        yield from rows
