"""Write a DataFrame as data files of a table, and return the actions that add them.

Spark writes the files into the transaction's folder inside the table, where they stay. Partition
values are passed as text, as the log has them; statistics are read from the footers. When this
returns, the files are durable, and not visible until a commit adds them.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it
from pyspark.sql import types as spark_types

from headgate import errors
from headgate.data.file_writer import NULL_FOLDER, TARGET_FILE_SIZE
from headgate.data.parquet_footers import footer_statistics
from headgate.data.statistics_builder import indexed_columns
from headgate.names import fold
from headgate.protocol.actions import AddFile, Metadata, Protocol
from headgate.protocol.features import is_supported, mapping_mode, unwritable
from headgate.protocol.partition_values import format_partition_value, parse_partition_value
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import physical_name, without_mapping
from headgate.spark.failures import refusal, translated
from headgate.spark.file_names import OPTIONS, hadoop, pattern, read_named
from headgate.spark.schema_conversion import id_of, quoted, to_spark, to_stored
from headgate.spark.sessions import writing_files
from headgate.spark.store_assignment import conformed
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore, encode

# Features that a SQL engine can write and an Arrow writer cannot.
HANDLED: Final = frozenset(
    {"generatedColumns", "allowColumnDefaults", "variantType", "variantType-preview"}
)
_READING: Final = 8
_OPTIMIZE_WRITE: Final = "delta.autoOptimize.optimizeWrite"
_MANY: Final = 16  # files of a partition
_TINY: Final = 16  # of them make at most one of the target size
_UNFINISHED: Final = "_temporary"  # where Spark's tasks write what is not committed yet
_TAIL: Final = 64 << 10  # bytes read of a file on an object store: most footers fit
_LONGEST_FOLDER: Final = 255  # bytes
_UNESCAPED: Final = r"""[^\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""  # what Spark leaves in a folder's name
_EPOCH: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


@dataclass(frozen=True)
class Target:
    """The table to write to, as it is or as the commit will change it."""

    label: str
    location: str
    store: ObjectStore
    protocol: Protocol
    metadata: Metadata

    @property
    def schema(self) -> delta.StructType:
        """The table's columns, under the names that files have for them where those differ."""
        schema = delta.from_json(self.metadata.schema_string)
        mapped = mapping_mode(self.protocol, self.metadata) != "none"
        return schema if mapped else without_mapping(schema)

    @property
    def partitioned(self) -> list[delta.StructField]:
        by_name = {fold(item.name): item for item in self.schema.fields}
        return [by_name[fold(name)] for name in self.metadata.partition_columns]


@dataclass(frozen=True)
class Staging:
    """The folder for a statement's files, and how to write them."""

    folder: str  # inside the table; the transaction's id is its first part
    now_ms: int
    sync: bool = True
    options: Mapping[str, str] = field(default_factory=dict)


def conformed_to(frame: DataFrame, target: Target) -> DataFrame:
    """Convert rows to the table's columns, and add the checks of its rules."""
    refuse_unwritable(target)
    with translated():
        return conformed(frame, target.schema, target.metadata.configuration, table=target.label)


def refuse_unwritable(target: Target) -> None:
    """Refuse a table that rows cannot be written to by Spark."""
    if found := unwritable(target.protocol, target.metadata, handled=HANDLED):
        raise errors.UnsupportedFeatureError(
            f"{target.label} cannot be written: {', '.join(found)}."
        )
    if len(target.partitioned) == len(target.schema.fields):
        raise errors.UnsupportedFeatureError(
            f"All columns of {target.label} are partition columns, and Spark writes no such file.",
            remedy="Write it with table.append().",
        )


def stage_conformed(rows: DataFrame, target: Target, staging: Staging) -> list[AddFile]:
    """Write rows that are already converted to the table's columns and checked."""
    files = _Writing(rows, target, staging)
    try:
        files.write()
        return files.added()
    except BaseException:
        take_away(target.store, staging.folder)
        raise


def take_away(store: ObjectStore, folder: str) -> None:
    """Delete the files of a folder that no commit will add."""
    with contextlib.suppress(errors.HeadgateError):  # vacuum deletes what remains
        for item in list(store.list(folder, recursive=True)):
            store.delete(item.path)


class _Writing:
    """The files of one statement."""

    def __init__(self, rows: DataFrame, target: Target, staging: Staging) -> None:
        self._target = target
        self._staging = staging
        self._schema = target.schema
        self._partitioned = target.partitioned
        self._names = _folder_names(self._schema, self._partitioned)
        properties = target.metadata.configuration
        partitioned = [item.name for item in self._partitioned]
        self._leaves = indexed_columns(self._schema, partitioned, properties)
        self._target_size = _target_size(properties)
        self._spark = rows.sparkSession
        with translated():
            self._rows = self._in_files_columns(rows)
            fields = self._rows.schema.fields
        self._stored = spark_types.StructType([f for f in fields if f.name not in self._names])

    def write(self) -> None:
        self._put(self._rows, self._staging.folder, self._names, {})

    def added(self) -> list[AddFile]:
        """Return the actions; many small files are merged before, and large ones split."""
        found = self._footers(self._staging.folder)
        if "maxRecordsPerFile" not in self._staging.options:
            if small := self._small(found):
                self._gather(small)
                found = self._footers(self._staging.folder)
            large = [item for item in found if item.size > self._target_size * 3 // 2]
            for at, item in enumerate(large):
                self._cut(item, at)
            if large:
                found = self._footers(self._staging.folder)
        kept = [item for item in found if item.metadata.num_rows]
        for item in found:
            if not item.metadata.num_rows:
                self._target.store.delete(item.path)
        if self._staging.sync:
            self._target.store.sync([item.path for item in kept])
        return [self._add(item) for item in kept]

    # Writing

    def _in_files_columns(self, rows: DataFrame) -> DataFrame:
        columns = []
        folders = dict(zip(self._partitioned, self._names, strict=True))
        for item in self._schema.fields:
            column = F.col(quoted(item.name))
            if (folder := folders.get(item)) is not None:
                columns.append(_partition_column(column, item, folder).alias(folder))
            elif item.type != delta.VOID:
                stored = to_stored(item.type)
                renamed = column if stored == to_spark(item.type) else column.cast(stored)
                columns.append(renamed.alias(physical_name(item), metadata=id_of(item)))
        return rows.select(*columns)

    def _put(
        self, rows: DataFrame, folder: str, names: Sequence[str], options: Mapping[str, str]
    ) -> None:
        settings = {
            # Nothing but data files: the folder's name is enough to know their transaction.
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
            "parquet.summary.metadata.level": "NONE",
            **self._staging.options,
            **options,
        }
        writer = rows.write.mode("append").options(**settings)
        if names:
            writer = writer.partitionBy(*names)
        with translated(), writing_files(self._spark):
            writer.parquet(hadoop(locations.join(self._target.location, folder)))

    def _cut(self, item: _Written, at: int) -> None:
        """Rewrite a file that is too large as several of the target size."""
        rows = max(1, item.metadata.num_rows * self._target_size // item.size)
        frame = self._again([item], self._stored).coalesce(1)
        folder = self._within(f"cut-{at}", item.folder)
        self._put(frame, folder, (), {"maxRecordsPerFile": str(rows)})
        self._target.store.delete(item.path)

    def _small(self, found: Sequence[_Written]) -> dict[str, list[_Written]]:
        """Choose small files to merge, by folder."""
        # By default only many tiny files, where merging costs little beside the write itself.
        # `delta.autoOptimize.optimizeWrite` selects all files that are too small, or none.
        match self._target.metadata.configuration.get(_OPTIMIZE_WRITE, "").lower():
            case "true":
                many, below = 2, self._target_size // 2
            case "false":
                return {}
            case _:
                many, below = _MANY, self._target_size // _TINY
        folders: dict[str, list[_Written]] = {}
        for item in found:
            if item.size < below and item.metadata.num_rows:
                folders.setdefault(item.folder, []).append(item)
        return {folder: items for folder, items in folders.items() if len(items) >= many}

    def _gather(self, small: Mapping[str, Sequence[_Written]]) -> None:
        """Merge small files into files of the target size, in each folder."""
        numbers = {
            folder: -(-sum(item.size for item in items) // self._target_size)
            for folder, items in small.items()
        }
        ones = [folder for folder in small if numbers[folder] == 1 and self._names]
        if ones:  # each is one file: all in one go
            schema = spark_types.StructType(list(self._stored.fields))
            for name in self._names:
                schema = schema.add(name, "string")
            base = hadoop(locations.join(self._target.location, self._staging.folder))
            items = [item for folder in ones for item in small[folder]]
            rows = self._again(items, schema, basePath=base)
            rows = rows.repartition(*[F.col(quoted(name)) for name in self._names])
            self._put(rows, self._within("gathered", ""), self._names, {})
        for at, folder in enumerate(folder for folder in small if folder not in ones):
            rows = self._again(small[folder], self._stored).coalesce(numbers[folder])
            self._put(rows, self._within(f"gathered-{at}", folder), (), {})
        for item in itertools.chain(*small.values()):
            self._target.store.delete(item.path)

    def _again(
        self, items: Sequence[_Written], schema: spark_types.StructType, **options: str
    ) -> DataFrame:
        """Read files that were just written."""
        reader = self._spark.read.schema(schema).options(**OPTIONS, **options)
        urls = [locations.join(self._target.location, item.path) for item in items]
        return read_named(reader, [pattern(hadoop(url)) for url in urls])

    def _within(self, part: str, folder: str) -> str:
        """Return a path in the statement's folder, with the same partition folders."""
        inner = folder.removeprefix(self._staging.folder).strip("/")
        return "/".join(name for name in (self._staging.folder, part, inner) if name)

    # Footers of what Spark wrote

    def _footers(self, folder: str) -> list[_Written]:
        store = self._target.store
        found = []
        for item in store.list(folder, recursive=True):
            name = item.path.rpartition("/")[2]
            if _UNFINISHED in item.path.split("/"):  # of a task that was given up and goes on
                continue
            if name.startswith("."):  # the checksums Hadoop keeps beside local files
                store.delete(item.path)
            elif not name.startswith("_"):
                found.append(item)
        found.sort(key=lambda item: item.path)
        with ThreadPoolExecutor(_READING, thread_name_prefix="headgate-footer") as pool:
            metadata = pool.map(lambda item: _footer(store, item.path, item.size), found)
            return [
                _Written(item.path, item.size, read)
                for item, read in zip(found, metadata, strict=True)
            ]

    def _add(self, item: _Written) -> AddFile:
        return AddFile(
            path=encode(item.path),
            partition_values=self._partition_values(item.path),
            size=item.size,
            modification_time=self._staging.now_ms,
            data_change=True,
            stats=footer_statistics(
                item.metadata,
                self._leaves,
                self._target.metadata.configuration,
                tight=is_supported(self._target.protocol, "deletionVectors"),
            ),
        )

    def _partition_values(self, path: str) -> dict[str, str | None]:
        folders = path.split("/")[-1 - len(self._partitioned) : -1]
        values: dict[str, str | None] = {}
        for item, folder in zip(self._partitioned, folders, strict=True):
            text = folder.partition("=")[2]
            if "?" in text:  # Spark writes one as %3F: this stands for what Java could not spell
                raise errors.UnavailableError(
                    f"Java cannot name a folder for a value of {item.name!r}: it got {folder!r}.",
                    remedy="Start Spark where the locale is one of UTF-8, such as LC_ALL=C.UTF-8.",
                )
            decoded = None if text == NULL_FOLDER else locations.decode(text)
            if decoded is None:
                values[physical_name(item)] = None
                continue
            read = (
                bytes.fromhex(decoded)
                if item.type == delta.BINARY
                else parse_partition_value(decoded, item.type)
            )
            values[physical_name(item)] = format_partition_value(read, item.type)
        return values


@dataclass(frozen=True, slots=True)
class _Written:
    """A file that Spark wrote, and its footer."""

    path: str
    size: int
    metadata: pq.FileMetaData

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


def _target_size(properties: Mapping[str, str]) -> int:
    text = properties.get("delta.targetFileSize")
    if text is None:
        return TARGET_FILE_SIZE
    match = re.fullmatch(r"\s*(\d+)\s*(b|kb?|mb?|gb?|tb?)?\s*", text, re.IGNORECASE)
    size = 0 if match is None else int(match[1]) * _UNITS[(match[2] or "b")[0].lower()]
    if size <= 0:
        raise errors.InvalidArgumentError(
            f"delta.targetFileSize is {text!r}, not a size like 128mb."
        )
    return size


_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _folder_names(schema: delta.StructType, partitioned: Sequence[delta.StructField]) -> list[str]:
    """Choose the columns by which Spark makes folders, apart from all that are in files."""
    stored = {fold(physical_name(item)) for item in schema.fields if item not in partitioned}
    if any(fold(item.name) in stored for item in partitioned):  # after a change of names
        return [physical_name(item) for item in partitioned]
    return [item.name for item in partitioned]


def _partition_column(column: Column, item: delta.StructField, folder: str) -> Column:
    """Convert partition values to text, independent of the session's time zone."""
    text = _partition_text(column, item.type)
    name = f"column {item.name!r}"
    refused = [(text == NULL_FOLDER, f"{NULL_FOLDER!r} cannot be a partition value")]
    if item.type == delta.TIMESTAMP:  # intervals overflow to NULL outside ANSI mode
        lost = column.isNotNull() & text.isNull()
        refused.append((lost, f"A value of {name} is out of range for a partition value"))
    if item.type in (delta.STRING, delta.BINARY):  # what is written of other types is short
        length = F.octet_length(text) + 2 * F.length(F.regexp_replace(text, _UNESCAPED, ""))
        room = _LONGEST_FOLDER - len(f"{folder}=".encode())
        long = (3 * F.octet_length(text) > room) & (length > room)
        refused.append((long, f"A value of {name} is too long for the name of a folder"))
    if not item.nullable:  # the empty text reads as null
        message = f"Column {item.name!r} may not be null, and as a partition value '' is"
        refused.append((text == "", message))
    guarded = text
    for is_refused, why in reversed(refused):
        guarded = F.when(is_refused, F.raise_error(refusal(F.lit(why)))).otherwise(guarded)
    return guarded


def _partition_text(column: Column, data_type: delta.DataType) -> Column:
    match data_type:
        case delta.Primitive("string"):
            return column
        case delta.Primitive("binary"):
            return F.hex(column)
        case delta.Primitive("timestamp"):
            seconds = F.unix_micros(column).cast("decimal(24,0)") / F.lit(1_000_000)
            since = F.make_dt_interval(secs=seconds.cast("decimal(18,6)"))
            return (F.expr(_EPOCH) + since).cast("string")
        case _:
            return column.try_cast("string")  # a plain cast spells decimals by the session's mode


def _footer(store: ObjectStore, path: str, size: int) -> pq.FileMetaData:
    local = store.local_path(path)
    if local is not None:
        return pq.read_metadata(local)
    # The file ends with the footer, its length in four bytes, and four bytes more.
    tail = store.get_range(path, max(0, size - _TAIL), min(size, _TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = store.get_range(path, size - length, length)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + tail))
