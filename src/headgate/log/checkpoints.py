"""Checkpoint files in all their forms, read into Arrow columns and written from them.

Classic, multi-part and V2 (Parquet or JSON head, sidecars) come out alike: the few actions about
the table as objects, the many about files as one Arrow table, in which no file is an object of its
own. A checkpoint that cannot be read whole is worth nothing and says so by `UnusableError`.
"""

from __future__ import annotations

import json
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import HeadgateError, MalformedError, UnavailableError
from headgate.protocol.actions import (
    AddFile,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Format,
    Metadata,
    Protocol,
    SetTransaction,
    Version,
    decode,
)
from headgate.protocol.paths import SIDECARS, UuidCheckpoint
from headgate.protocol.segment import CheckpointFiles
from headgate.storage.objects import ObjectStore

_MAP: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline_dv", pa.string()),
        ("offset", pa.int32()),
        ("size_in_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
# What every file is known by. Statistics are a column of their own, read when they are asked for.
FILES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", _MAP),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("tags", _MAP),
        ("deletion_vector", _VECTOR),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("clustering_provider", pa.string()),
    ]
)
_CAMEL: Final = {
    "partition_values": "partitionValues",
    "modification_time": "modificationTime",
    "deletion_vector": "deletionVector",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
    "storage_type": "storageType",
    "path_or_inline_dv": "pathOrInlineDv",
    "size_in_bytes": "sizeInBytes",
}
_FEW: Final = ("protocol", "metaData", "txn", "domainMetadata", "checkpointMetadata", "sidecar")
_READERS: Final = 8
_SCANS_BEFORE_INDEX: Final = 12  # an index costs about as much as this many scans


class UnusableError(MalformedError):
    """A checkpoint that is torn, incomplete or not one at all; an older one may do."""

    code = "checkpoint-unusable"
    remedy = "Nothing to do: an older checkpoint or the commits themselves are read instead."


class FileColumns:
    """The live files of a checkpoint. Satisfies `protocol.replay.Ground`."""

    def __init__(
        self,
        table: pa.Table,
        read_stats: Callable[[], pa.ChunkedArray],
        parts: tuple[str, ...] = (),
    ) -> None:
        self.table = table
        self.parts = parts  # paths of every Parquet file that may hold adds and removes
        self._read_stats = read_stats
        self._lock = threading.Lock()
        self._stats: pa.ChunkedArray | None = None
        self._scans = 0
        self._index: tuple[array[int], pa.Array] | None = None

    @property
    def num_files(self) -> int:
        return cast(int, self.table.num_rows)

    @cached_property
    def size_in_bytes(self) -> int:
        return pc.sum(self.table["size"]).as_py() or 0

    @property
    def stats(self) -> pa.ChunkedArray:
        """Statistics as JSON, one for each file; read once, when first asked for."""
        with self._lock:
            if self._stats is None:
                self._stats = self._read_stats()
            return self._stats

    @cached_property
    def keys(self) -> pa.ChunkedArray:
        """What each file is known by, as one string: see `key_text`."""
        return key_column(self.table)

    def sizes(self, keys: Collection[FileKey]) -> Mapping[FileKey, int]:
        """Find files among all: by a scan, or by an index once that pays."""
        wanted = list(keys)
        if not self.num_files or not wanted:
            return {}
        size = self.table["size"]
        return {key: size[row].as_py() for key, row in self._find(wanted) if row is not None}

    def _find(self, wanted: Sequence[FileKey]) -> Iterator[tuple[FileKey, int | None]]:
        texts = [key_text(key) for key in wanted]
        with self._lock:
            self._scans += 1
            if self._index is None and self._scans > _SCANS_BEFORE_INDEX:
                self._index = self._make_index()
        if self._index is None:
            places = pc.index_in(self.keys, value_set=pa.array(texts, pa.string()))
            rows = pc.indices_nonzero(pc.is_valid(places))
            found = dict(zip(places.take(rows).to_pylist(), rows.to_pylist(), strict=True))
            yield from ((key, found.get(place)) for place, key in enumerate(wanted))
            return
        hashes, order = self._index
        for key, text in zip(wanted, texts, strict=True):
            at = bisect_left(hashes, hash(text))
            row = None
            while at < len(hashes) and hashes[at] == hash(text):
                candidate = order[at].as_py()
                if self.keys[candidate].as_py() == text:
                    row = candidate
                    break
                at += 1
            yield key, row

    def _make_index(self) -> tuple[array[int], pa.Array]:
        hashes = array("q")
        for chunk in self.keys.chunks:
            hashes.extend(map(hash, chunk.to_pylist()))
        column = pa.Array.from_buffers(pa.int64(), len(hashes), [None, pa.py_buffer(hashes)])
        order = pc.sort_indices(column)
        taken = array("q")
        taken.frombytes(column.take(order).buffers()[1])
        return taken, order


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What a checkpoint holds."""

    version: Version
    protocol: Protocol
    metadata: Metadata
    transactions: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    files: FileColumns


def read_checkpoint(store: ObjectStore, checkpoint: CheckpointFiles) -> CheckpointState:
    """Read a checkpoint without its statistics, or raise `UnusableError`. Spec: CM-16."""
    try:
        return _read(store, checkpoint)
    except UnavailableError:
        raise
    except (pa.ArrowException, OSError, HeadgateError, KeyError, TypeError, ValueError) as error:
        raise UnusableError(f"Checkpoint {checkpoint.paths[0]} cannot be used: {error}") from error


def key_text(key: FileKey) -> str:
    """Spell what a file is known by as one string."""
    path, vector = key
    return path if vector is None else f"{path}\0{vector}"


def key_column(files: pa.Table) -> pa.ChunkedArray:
    """Spell what each file of a table is known by as one string."""
    path, vectors = files["path"], files["deletion_vector"]
    if vectors.null_count == len(vectors):
        return path
    field = {
        name: pc.struct_field(vectors, name)
        for name in ("storage_type", "path_or_inline_dv", "offset")
    }
    offset = pc.cast(field["offset"], pa.string())
    at = pc.if_else(pc.is_null(offset), "", pc.binary_join_element_wise("@", offset, ""))
    unique = pc.binary_join_element_wise(
        path, "\0", field["storage_type"], field["path_or_inline_dv"], at, ""
    )
    return pc.if_else(pc.is_null(field["storage_type"]), path, unique)


def add_files(files: pa.Table) -> list[AddFile]:
    """Make objects of the rows of a table of files; with statistics if it has them."""
    columns = {name: files[name].to_pylist() for name in files.column_names}
    nothing = [None] * files.num_rows
    return [
        AddFile(
            path=path,
            partition_values=dict(values or ()),
            size=size,
            modification_time=modified,
            data_change=False,
            stats=stats,
            tags=None if tags is None else dict(tags),
            deletion_vector=None if vector is None else DeletionVector(**vector),
            base_row_id=row_id,
            default_row_commit_version=row_version,
            clustering_provider=provider,
        )
        for path, values, size, modified, stats, tags, vector, row_id, row_version, provider in zip(
            columns["path"],
            columns["partition_values"],
            columns["size"],
            columns["modification_time"],
            columns.get("stats", nothing),
            columns["tags"],
            columns["deletion_vector"],
            columns["base_row_id"],
            columns["default_row_commit_version"],
            columns["clustering_provider"],
            strict=True,
        )
    ]


def file_table(adds: Sequence[AddFile], *, stats: bool = False) -> pa.Table:
    """Make columns of added files."""
    vectors = [add.deletion_vector for add in adds]
    columns: dict[str, pa.Array] = {
        "path": pa.array([add.path for add in adds], pa.string()),
        "partition_values": _map_array([add.partition_values for add in adds]),
        "size": pa.array([add.size for add in adds], pa.int64()),
        "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
        "tags": _map_array([add.tags for add in adds]),
        "deletion_vector": _vector_array(vectors),
        "base_row_id": pa.array([add.base_row_id for add in adds], pa.int64()),
        "default_row_commit_version": pa.array(
            [add.default_row_commit_version for add in adds], pa.int64()
        ),
        "clustering_provider": pa.array([add.clustering_provider for add in adds], pa.string()),
    }
    if stats:
        columns["stats"] = pa.array([add.stats for add in adds], pa.string())
    return pa.table(columns)


def _map_array(maps: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    if not any(maps) and None not in maps:  # an unpartitioned table: nothing to convert
        nothing = pa.array([], pa.string())
        return pa.MapArray.from_arrays([0] * (len(maps) + 1), nothing, nothing)
    if not any(maps) and all(item is None for item in maps):
        return pa.nulls(len(maps), _MAP)
    return pa.array([None if item is None else list(item.items()) for item in maps], _MAP)


def _vector_array(vectors: Sequence[DeletionVector | None]) -> pa.Array:
    if not any(vectors):
        return pa.nulls(len(vectors), _VECTOR)
    rows = [
        vector
        and {
            "storage_type": vector.storage_type,
            "path_or_inline_dv": vector.path_or_inline_dv,
            "offset": vector.offset,
            "size_in_bytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
        for vector in vectors
    ]
    return pa.array(rows, _VECTOR)


# Reading


def _read(store: ObjectStore, checkpoint: CheckpointFiles) -> CheckpointState:
    heads = checkpoint.files
    if len(heads) == 1 and isinstance(heads[0], UuidCheckpoint) and heads[0].extension == "json":
        few, table = _read_json_head(store.get(heads[0].path))
        parts: tuple[str, ...] = ()
    else:
        parts = checkpoint.paths
        few = _Few()
        for path in parts:
            few.take(open_parquet(store, path))
        table = None
    parts += tuple(_sidecar_path(path) for path in few.sidecars)
    tables = list(_in_parallel(lambda path: _read_adds(store, path), parts))
    if table is not None and table.num_rows:
        tables.append(table.drop_columns(["stats"]))
    if few.protocol is None or few.metadata is None:
        raise UnusableError(f"{checkpoint.paths[0]} lacks a protocol or metadata.")
    adds = pa.concat_tables(tables) if tables else FILES.empty_table()
    json_adds = table

    def read_stats() -> pa.ChunkedArray:
        columns = list(_in_parallel(lambda path: _read_stats(store, path), parts))
        if json_adds is not None and json_adds.num_rows:
            columns.append(json_adds["stats"])
        chunks = [chunk for column in columns for chunk in column.chunks]
        stats = pa.chunked_array(chunks, pa.string())
        if len(stats) != adds.num_rows:
            raise UnusableError(f"{checkpoint.paths[0]} changed while it was read.")
        return stats

    return CheckpointState(
        checkpoint.version,
        few.protocol,
        few.metadata,
        tuple(few.transactions),
        tuple(few.domains),
        FileColumns(adds, read_stats, parts),
    )


def open_parquet(store: ObjectStore, path: str) -> pq.ParquetFile:
    """Open a Parquet file of a store, in place where it lies on this machine."""
    local = store.local_path(path)
    if local is not None:
        return pq.ParquetFile(local, memory_map=True)
    return pq.ParquetFile(pa.BufferReader(store.get(path)))


class _Few:
    """The actions of a checkpoint that are not about files."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.transactions: list[SetTransaction] = []
        self.domains: list[DomainMetadata] = []
        self.sidecars: list[str] = []

    def take(self, file: pq.ParquetFile) -> None:
        """Take them out of a Parquet file, passing over row groups that have none."""
        columns = [name for name in _FEW if name in file.schema_arrow.names]
        groups = [
            group
            for group in range(file.metadata.num_row_groups)
            if _holds_any(file.metadata.row_group(group), columns)
        ]
        if not groups:
            return
        table = file.read_row_groups(groups, columns=columns)
        for name in columns:
            column = table[name]
            for found in column.filter(pc.is_valid(column)).to_pylist():
                self._add(name, found)

    def _add(self, name: str, found: dict[str, Any]) -> None:
        match name:
            case "protocol" if found["minReaderVersion"] is not None:
                self.protocol = Protocol(
                    min_reader_version=found["minReaderVersion"],
                    min_writer_version=found["minWriterVersion"],
                    reader_features=found.get("readerFeatures"),
                    writer_features=found.get("writerFeatures"),
                )
            case "metaData" if found["id"] is not None:
                form = found.get("format") or {}
                self.metadata = Metadata(
                    id=found["id"],
                    name=found.get("name"),
                    description=found.get("description"),
                    format=Format(
                        provider=form.get("provider") or "parquet",
                        options=dict(form.get("options") or ()),
                    ),
                    schema_string=found["schemaString"],
                    partition_columns=found["partitionColumns"] or [],
                    configuration=dict(found["configuration"] or ()),
                    created_time=found.get("createdTime"),
                )
            case "txn" if found["appId"] is not None:
                self.transactions.append(
                    SetTransaction(
                        app_id=found["appId"],
                        version=found["version"],
                        last_updated=found.get("lastUpdated"),
                    )
                )
            case "domainMetadata" if found["domain"] is not None:
                self.domains.append(
                    DomainMetadata(
                        domain=found["domain"],
                        configuration=found["configuration"],
                        removed=bool(found["removed"]),
                    )
                )
            case "sidecar" if found["path"] is not None:
                self.sidecars.append(found["path"])


def _read_json_head(content: bytes) -> tuple[_Few, pa.Table]:
    few, adds = _Few(), list[AddFile]()
    for line in decode(content):
        few.protocol = line.protocol or few.protocol
        few.metadata = line.meta_data or few.metadata
        if line.txn is not None:
            few.transactions.append(line.txn)
        elif line.domain_metadata is not None:
            few.domains.append(line.domain_metadata)
        elif line.sidecar is not None:
            few.sidecars.append(line.sidecar.path)
        elif line.add is not None:
            adds.append(line.add)
    return few, file_table(adds, stats=True)


def _holds_any(group: pq.RowGroupMetaData, names: Collection[str]) -> bool:
    """Say whether a row group may hold an action of these names; its null counts tell."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.partition(".")[0] not in names:
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return True
        if statistics.null_count < column.num_values:
            return True
    return False


def _sidecar_path(named: str) -> str:
    # A sidecar always lies in its one folder, so whatever else a writer put before the name (a
    # relative or a full path) says nothing new.
    return f"{SIDECARS}/{unquote(named.rpartition('/')[2])}"


def _in_parallel(read: Callable[[str], Any], paths: Sequence[str]) -> Iterator[Any]:
    if len(paths) < 2:
        yield from map(read, paths)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(read, paths)


def _read_adds(store: ObjectStore, path: str) -> pa.Table:
    file = open_parquet(store, path)
    there = _children(file, "add")
    wanted = [name for name in FILES.names if _CAMEL.get(name, name) in there]
    if not wanted:
        return FILES.empty_table()
    table = file.read(columns=[f"add.{_CAMEL.get(name, name)}" for name in wanted])
    columns = _flatten(table["add"])
    valid = pc.is_valid(columns["path"])
    rows = table.num_rows if columns["path"].null_count == 0 else None
    found: dict[str, pa.ChunkedArray] = {}
    for field in FILES:
        column = columns.get(_CAMEL.get(field.name, field.name))
        if column is None:
            continue
        if rows is None:
            column = column.filter(valid)
        found[field.name] = (
            _as_vectors(column) if field.type == _VECTOR else column.cast(field.type)
        )
    count = len(found["path"])
    return pa.table(
        {f.name: found[f.name] if f.name in found else pa.nulls(count, f.type) for f in FILES},
        schema=FILES,
    )


def _read_stats(store: ObjectStore, path: str) -> pa.ChunkedArray:
    """Read statistics as JSON, row by row those of `_read_adds`."""
    file = open_parquet(store, path)
    there = _children(file, "add")
    if "path" not in there:
        return pa.chunked_array([], pa.string())
    names = [name for name in ("stats", "stats_parsed") if name in there]
    columns = _flatten(file.read(columns=["add.path", *(f"add.{name}" for name in names)])["add"])
    valid = pc.is_valid(columns["path"])
    columns = {name: column.filter(valid) for name, column in columns.items()}
    text = columns.get("stats")
    if text is not None and text.null_count < len(text):
        return text.cast(pa.string())
    if "stats_parsed" in columns:
        # Written so when the table says `delta.checkpoint.writeStatsAsJson=false`.
        values = columns["stats_parsed"].to_pylist()
        return pa.chunked_array([pa.array([_stats_text(value) for value in values], pa.string())])
    return pa.chunked_array([pa.nulls(len(columns["path"]), pa.string())])


def _children(file: pq.ParquetFile, name: str) -> list[str]:
    schema = file.schema_arrow
    if name not in schema.names:
        return []
    return [field.name for field in schema.field(name).type]


def _flatten(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    names = [field.name for field in column.type]
    return dict(zip(names, column.flatten(), strict=True))


def _as_vectors(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), _VECTOR)])
    chunks = []
    for chunk in column.chunks:
        there = {field.name: chunk.field(i) for i, field in enumerate(chunk.type)}
        fields = [there[_CAMEL.get(f.name, f.name)].cast(f.type) for f in _VECTOR]
        chunks.append(
            pa.StructArray.from_arrays(fields, fields=list(_VECTOR), mask=pc.is_null(chunk))
        )
    return pa.chunked_array(chunks, _VECTOR)


def _stats_text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """Spell a value of structured statistics as JSON statistics do."""
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items() if item is not None}
        case datetime():
            text = value.isoformat(timespec="milliseconds")
            return text.replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case bytes():
            return value.decode("latin-1")
        case _:
            return value
