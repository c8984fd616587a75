"""Write rows to data files, and return their `add` actions.

Splits rows by partition values, fills files up to a size, collects statistics, and puts each file
atomically. Rows must have been checked before, by `row_conversion`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.data.arrow_types import file_schema
from headgate.data.nested_arrays import list_array, map_array, struct_array
from headgate.data.statistics_builder import StatisticsBuilder, indexed_columns, number
from headgate.errors import HeadgateError, InvalidDataError
from headgate.protocol.actions import AddFile
from headgate.protocol.partition_values import format_partition_value
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.schema.types import VOID, ArrayType, DataType, MapType, StructType
from headgate.storage.object_store import ObjectStore, encode

TARGET_FILE_SIZE: Final = 128 << 20
_ROW_GROUP_BYTES: Final = 64 << 20  # of rows in memory; compressed they are less
_HELD_BYTES: Final = 256 << 20  # of rows and of unfinished files, all partitions together
_PUTTING: Final = 4
_LONGEST_FOLDER: Final = 200  # bytes; file systems stop at 255

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + " !$&()+,-.;<>@_`|}~")

Key = tuple[str | None, ...]


class DataFiles:
    """Data files being written. A block that ends without `finish` deletes them."""

    def __init__(
        self,
        *,
        schema: StructType,
        partition_columns: Sequence[str],
        properties: Mapping[str, str],
        tight: bool,
        mapped: bool,
        store: ObjectStore,
        new_id: Callable[[], UUID],
        now_ms: int,
    ) -> None:
        by_name = {item.name: item for item in schema.fields}
        self._partitioned_by = [by_name[name] for name in partition_columns]
        self._stored = [item for item in schema.fields if item.name not in partition_columns]
        self._leaves = indexed_columns(schema, partition_columns, properties)
        self._schema = file_schema(schema, frozenset(partition_columns))
        self._properties = properties
        self._tight = tight
        self._random = mapped or properties.get("delta.randomizeFilePrefixes") == "true"
        self._prefix_length = number(properties, "delta.randomPrefixLength", 2)
        self._store = store
        self._new_id = new_id
        self._now_ms = now_ms
        self._target = TARGET_FILE_SIZE
        self._open: dict[Key, _OpenFile] = {}
        self._paths: list[str] = []
        self._puts: list[Future[AddFile]] = []
        self._pool = ThreadPoolExecutor(_PUTTING, thread_name_prefix="headgate-write")
        self._finished = False

    def __enter__(self) -> DataFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        if self._finished:
            return
        for path in self._paths:
            with suppress(HeadgateError):  # vacuum deletes a file that is left
                self._store.delete(path)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, in the table's columns."""
        for part in _slices(rows):
            for key, chosen in self._split(part):
                self._add(key, self._physical(chosen))
        while sum(held := [file.held for file in self._open.values()]) > _HELD_BYTES:
            self._close(list(self._open)[held.index(max(held))])

    def finish(self) -> list[AddFile]:
        """Put the files that are still open; return the `add` actions in the order of writing."""
        keys = list(self._open)
        for key in keys[:-1]:
            self._close(key)
        # The last one is put by this thread: a small append is one file, and needs no other.
        last = [self._put(self._closed(key)) for key in keys[-1:]]
        added = [put.result() for put in self._puts] + last
        self._finished = True
        return added

    def _add(self, key: Key, rows: pa.RecordBatch) -> None:
        file = self._open.get(key)
        if file is None:
            path = self._new_path(key)
            statistics = StatisticsBuilder(self._leaves, self._properties, tight=self._tight)
            file = self._open[key] = _OpenFile(path, key, self._schema, statistics)
        file.add(rows)
        if file.written >= self._target:
            self._close(key)

    def _closed(self, key: Key) -> _OpenFile:
        file = self._open.pop(key)
        self._paths.append(file.path)
        return file

    def _close(self, key: Key) -> None:
        self._puts.append(self._pool.submit(self._put, self._closed(key)))
        # At most as many files wait as are being put: more would only fill memory.
        pending = [put for put in self._puts if not put.done()]
        if len(pending) > _PUTTING:
            pending[0].exception()

    def _put(self, file: _OpenFile) -> AddFile:
        content = file.finish()
        self._store.put(file.path, content)
        names = [physical_name(item) for item in self._partitioned_by]
        return AddFile(
            path=encode(file.path),
            partition_values=dict(zip(names, file.key, strict=True)),
            size=len(content),
            modification_time=self._now_ms,
            data_change=True,
            stats=file.statistics.to_json(),
        )

    def _new_path(self, key: Key) -> str:
        name = self._new_id()
        file = f"part-{len(self._paths) + len(self._open):05d}-{name}.c000.snappy.parquet"
        folders = [
            f"{_escaped(item.name)}={_escaped(value) if value is not None else NULL_FOLDER}"
            for item, value in zip(self._partitioned_by, key, strict=True)
        ]
        # Folder names add nothing to the log, and a disk refuses long ones.
        if self._random or any(len(folder.encode()) > _LONGEST_FOLDER for folder in folders):
            folders = [self._new_id().hex[: self._prefix_length]] if key or self._random else []
        return "/".join([*folders, file])

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """Split rows by their partition values."""
        if not self._partitioned_by:
            yield (), rows
            return
        codes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for item in self._partitioned_by:
            values = rows.column(item.name)
            encoded = pc.dictionary_encode(values, null_encoding="encode")
            size = pa.scalar(max(1, len(encoded.dictionary)), pa.int64())
            codes = pc.add(pc.multiply(codes, size), encoded.indices.cast(pa.int64()))
            # Keeps the codes small, however many columns there are.
            codes = pc.dictionary_encode(codes).indices.cast(pa.int64())
        order = pc.array_sort_indices(codes)
        ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
        ordered = rows if len(ends) == 1 else rows.take(order)
        first = 0
        for end in ends:
            part = ordered.slice(first, end - first)
            yield self._key(part), part
            first = end

    def _key(self, part: pa.RecordBatch) -> Key:
        texts: list[str | None] = []
        for item in self._partitioned_by:
            try:
                value = part.column(item.name)[0].as_py()
            except (OverflowError, ValueError) as error:
                raise InvalidDataError(
                    f"A value of partition column {item.name!r} cannot be written: {error}."
                ) from error
            text = format_partition_value(value, item.type)
            if text is None and not item.nullable:  # the empty string is read as null
                raise InvalidDataError(
                    f"Column {item.name!r} may not be null, and the partition value {value!r} is"
                    " read as null."
                )
            texts.append(text)
        return tuple(texts)

    def _physical(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        stored = [item for item in self._stored if item.type != VOID]
        arrays = [
            _stored_values(rows.column(item.name), item.type, field.type)
            for item, field in zip(stored, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@dataclass(slots=True)
class _OpenFile:
    """A Parquet file that grows in memory."""

    path: str
    key: Key
    schema: pa.Schema
    statistics: StatisticsBuilder
    sink: Any = field(default_factory=pa.BufferOutputStream)
    writer: Any = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0

    @property
    def written(self) -> int:
        """Bytes of the file so far, without the rows that wait."""
        return int(self.sink.tell())

    @property
    def held(self) -> int:
        """Bytes of memory it takes."""
        return self.written + self.waiting_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= _ROW_GROUP_BYTES:
            self._write()

    def finish(self) -> bytes:
        self._write()
        self.writer.close()
        content: bytes = self.sink.getvalue().to_pybytes()
        return content

    def _write(self) -> None:
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.sink,
                self.schema,
                compression="snappy",
                store_schema=False,
                store_decimal_as_integer=True,
            )
        if self.waiting:
            rows = pa.Table.from_batches(self.waiting, schema=self.schema)
            self.waiting, self.waiting_bytes = [], 0
            for batch in rows.to_batches():
                self.statistics.add(batch)
            self.writer.write_table(rows, row_group_size=max(1, rows.num_rows))


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices of at most one row group."""
    pieces = max(1, -(-rows.nbytes // _ROW_GROUP_BYTES))
    size = max(1, -(-rows.num_rows // pieces))
    for first in range(0, rows.num_rows, size):
        yield rows.slice(first, size)


def _stored_values(values: pa.Array, of: DataType, target: pa.DataType) -> pa.Array:
    """Return the values under physical names and without void fields."""
    if values.type == target:
        return values
    match of:
        case StructType(fields):
            kept = [i for i, item in enumerate(fields) if item.type != VOID]
            arrays = [
                _stored_values(values.field(i), fields[i].type, field.type)
                for i, field in zip(kept, target, strict=True)
            ]
            return struct_array(values, arrays, target)
        case ArrayType():
            element = partial(_stored_values, of=of.element, target=target.value_type)
            return list_array(values, element, target)
        case MapType():
            key = partial(_stored_values, of=of.key, target=target.key_type)
            value = partial(_stored_values, of=of.value, target=target.item_type)
            return map_array(values, key, value, target)
        case _:
            return values


def _escaped(text: str) -> str:
    """Write a name or value as part of a folder's name, as Hive and Spark do."""
    return "".join(c if c in _PLAIN or not c.isascii() else f"%{ord(c):02X}" for c in text)
