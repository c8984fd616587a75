"""Checkpoint files in all their forms, read into Arrow columns and written from them.

Classic, multi-part and V2 (Parquet or JSON head, sidecars) come out alike: the few actions about
the table as objects, the many about files as one Arrow table, in which no file is an object of its
own. A checkpoint that cannot be read whole is worth nothing and says so by `UnusableError`.
Writing goes from columns to columns as well, and only for a version that is in the log.
"""

from __future__ import annotations

import enum
import io
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
from itertools import pairwise
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import (
    HeadgateError,
    InvariantError,
    MalformedError,
    NotPublishedError,
    UnavailableError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.failpoints import fail_point
from headgate.log.files import DeltaLog
from headgate.protocol import features
from headgate.protocol.actions import (
    AddFile,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    Version,
    decode,
    encode,
    join,
)
from headgate.protocol.catalog_port import FileKind, KnownFile
from headgate.protocol.checksums import VersionChecksum
from headgate.protocol.encoding import to_json
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    SIDECARS,
    Checkpoint,
    Checksum,
    ClassicCheckpoint,
    PublishedCommit,
    UuidCheckpoint,
)
from headgate.protocol.replay import TableState, tombstones_kept_ms
from headgate.protocol.segment import CheckpointFiles
from headgate.storage.objects import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


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
TOMBSTONES: Final = pa.schema(
    [
        ("path", pa.string()),
        ("deletion_timestamp", pa.int64()),
        ("extended_file_metadata", pa.bool_()),
        ("partition_values", _MAP),
        ("size", pa.int64()),
        ("deletion_vector", _VECTOR),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
    ]
)
_WRITTEN_VECTOR: Final = pa.struct([(_camel(field.name), field.type) for field in _VECTOR])
_ADD: Final = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _MAP),
        ("deletionVector", _WRITTEN_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)
_REMOVE: Final = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("deletionVector", _WRITTEN_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
_STRINGS: Final = pa.list_(pa.string())
_METADATA: Final = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _STRINGS),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL: Final = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _STRINGS),
        ("writerFeatures", _STRINGS),
    ]
)
_TXN: Final = pa.struct(
    [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
)
_DOMAIN: Final = pa.struct(
    [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
)
_SIDECAR_ROW: Final = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", _MAP),
    ]
)
_SIDECAR: Final = pa.schema([("add", _ADD), ("remove", _REMOVE)])
_CLASSIC: Final = pa.schema(
    [
        ("txn", _TXN),
        *_SIDECAR,
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
        ("domainMetadata", _DOMAIN),
    ]
)
_HEAD: Final = pa.schema(
    [
        *_CLASSIC,
        ("checkpointMetadata", pa.struct([("version", pa.int64()), ("tags", _MAP)])),
        ("sidecar", _SIDECAR_ROW),
    ]
)
# Few values repeated many times: elsewhere a dictionary would only be built and thrown away.
_DICTIONARIES: Final = [
    f"{action}.partitionValues.key_value.{side}"
    for action in ("add", "remove")
    for side in ("key", "value")
]
_BATCH: Final = 64 * 1024
_WHOLE: Final = 8 << 20  # smaller objects are fetched at once
_ROW_GROUP: Final = 128 * 1024
_V2_FEATURE: Final = "v2Checkpoint"
_FEW: Final = ("protocol", "metaData", "txn", "domainMetadata", "checkpointMetadata", "sidecar")
_WORKERS: Final = 8
_CUT_OUT: Final = 1000  # up to so many removed files are cut out of the columns without a copy
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
        read_tombstones: Callable[[], pa.Table],
    ) -> None:
        self.table = table
        self._read_stats = read_stats
        self._read_tombstones = read_tombstones
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
                self._stats = _still_there(self._read_stats)
            return self._stats

    def tombstones(self) -> pa.Table:
        """Give the removed files, for who writes a checkpoint."""
        return _still_there(self._read_tombstones)

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
    except _BROKEN as error:
        raise UnusableError(f"Checkpoint {checkpoint.paths[0]} cannot be used: {error}") from error


def live_files(state: TableState, *, stats: bool = False) -> pa.Table:
    """Give all live files of a state, in no particular order."""
    added = file_table(list(state.added()), stats=stats)
    return pa.concat_tables([ground_files(state, stats=stats), added])


def ground_files(state: TableState, *, stats: bool = False) -> pa.Table:
    """Give the files of a state's checkpoint that are still live."""
    ground = _ground(state)
    if ground is None:
        return file_table([], stats=stats)
    table = ground.table.append_column("stats", ground.stats) if stats else ground.table
    return _without_overlaid(table, ground.keys, state)


def _ground(state: TableState) -> FileColumns | None:
    return cast("FileColumns | None", state.ground)  # the only kind there is


def _without_overlaid(table: pa.Table, keys: pa.ChunkedArray, state: TableState) -> pa.Table:
    """Leave out the rows of which a newer action has the last word."""
    overlaid = state.overlaid()
    if not overlaid or not table.num_rows:
        return table
    gone = pc.is_in(keys, value_set=pa.array(map(key_text, overlaid), pa.string()))
    rows = pc.indices_nonzero(gone)
    if len(rows) > _CUT_OUT:
        return table.filter(pc.invert(gone))
    edges = [-1, *rows.to_pylist(), table.num_rows]
    return pa.concat_tables(
        [table.slice(before + 1, after - before - 1) for before, after in pairwise(edges)]
    )


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


def tombstone_table(removes: Sequence[RemoveFile]) -> pa.Table:
    """Make columns of removed files."""
    return pa.table(
        {
            "path": pa.array([r.path for r in removes], pa.string()),
            "deletion_timestamp": pa.array([r.deletion_timestamp for r in removes], pa.int64()),
            "extended_file_metadata": pa.array(
                [r.extended_file_metadata for r in removes], pa.bool_()
            ),
            "partition_values": _map_array([r.partition_values for r in removes]),
            "size": pa.array([r.size for r in removes], pa.int64()),
            "deletion_vector": _vector_array([r.deletion_vector for r in removes]),
            "base_row_id": pa.array([r.base_row_id for r in removes], pa.int64()),
            "default_row_commit_version": pa.array(
                [r.default_row_commit_version for r in removes], pa.int64()
            ),
        },
        schema=TOMBSTONES,
    )


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
    table = pa.table(columns, schema=FILES)
    return table.append_column("stats", _stats_column(adds)) if stats else table


def _stats_column(adds: Sequence[AddFile]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([add.stats for add in adds], pa.string())])


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

# What a file that is torn, gone or not Parquet at all makes the readers raise.
_BROKEN: Final = (pa.ArrowException, OSError, HeadgateError, KeyError, TypeError, ValueError)


def _still_there(read: Callable[[], T]) -> T:
    """Read more of a checkpoint that was read before; it may have been cleaned up since."""
    try:
        return read()
    except UnavailableError:
        raise
    except _BROKEN as error:
        raise VersionGoneError(
            f"The checkpoint that was read is no longer there: {error}"
        ) from error


def _read(store: ObjectStore, checkpoint: CheckpointFiles) -> CheckpointState:
    few, json_adds, json_removes = _Few(), list[AddFile](), list[RemoveFile]()
    parts = checkpoint.paths
    if parts[0].endswith(".json"):
        json_adds, json_removes = few.take_json(store.get(parts[0]))
        parts = ()
    for path in parts:
        few.take(_Opened(store, path))
    parts += tuple(_sidecar_path(path) for path in few.sidecars)
    if few.protocol is None or few.metadata is None:
        raise UnusableError(f"{checkpoint.paths[0]} lacks a protocol or metadata.")
    opened = [_Opened(store, path) for path in parts]
    adds = pa.concat_tables([*_in_parallel(_Opened.adds, opened), file_table(json_adds)])

    def read_stats() -> pa.ChunkedArray:
        columns = [*_in_parallel(_Opened.stats, opened), _stats_column(json_adds)]
        stats = pa.chunked_array([c for column in columns for c in column.chunks], pa.string())
        if len(stats) != adds.num_rows:
            raise UnusableError(f"{checkpoint.paths[0]} changed while it was read.")
        return stats

    def read_tombstones() -> pa.Table:
        tables = [*_in_parallel(_Opened.tombstones, opened), tombstone_table(json_removes)]
        return pa.concat_tables(tables)

    return CheckpointState(
        checkpoint.version,
        few.protocol,
        few.metadata,
        tuple(few.transactions),
        tuple(few.domains),
        FileColumns(adds, read_stats, read_tombstones),
    )


class _Opened:
    """A Parquet file of a checkpoint, and the columns wanted of it."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.path = path
        self._store = store
        # Some names are used again. What is read later must belong to what was read first.
        self._seen = None if path.startswith(SIDECARS) else store.head(path)

    def file(self) -> pq.ParquetFile:
        if self._seen is not None and self._store.head(self.path) != self._seen:
            raise UnusableError(f"{self.path} was written again while it was in use.")
        return open_parquet(self._store, self.path)

    def adds(self) -> pa.Table:
        """Read the live files, without statistics."""
        return _read_rows(self.file(), "add", FILES)

    def tombstones(self) -> pa.Table:
        """Read the removed files."""
        return _read_rows(self.file(), "remove", TOMBSTONES)

    def stats(self) -> pa.ChunkedArray:
        """Read statistics as JSON, row by row those of the live files."""
        return _read_stats(self.file())


def open_parquet(store: ObjectStore, path: str) -> pq.ParquetFile:
    """Open a Parquet file of a store: in place, whole, or only the ranges that are read."""
    local = store.local_path(path)
    if local is not None:
        return pq.ParquetFile(local, memory_map=True)
    found = store.head(path)
    if found is None or found.size <= _WHOLE:
        return pq.ParquetFile(pa.BufferReader(store.get(path)))
    return pq.ParquetFile(pa.PythonFile(_Ranges(store, path, found.size)), pre_buffer=True)


class _Ranges(io.RawIOBase):
    """A large object as a file, of which only what is read is fetched."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        found = self._store.get_range(self._path, self._at, length)
        self._at += len(found)
        return found


class _Few:
    """The actions of a checkpoint that are not about files."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.transactions: list[SetTransaction] = []
        self.domains: list[DomainMetadata] = []
        self.sidecars: list[str] = []

    def take(self, opened: _Opened) -> None:
        """Take them out of a Parquet file, passing over row groups that have none."""
        file = opened.file()
        columns = [name for name in _FEW if name in file.schema_arrow.names]
        groups = [
            group
            for group in range(file.metadata.num_row_groups)
            if _may_hold(file.metadata.row_group(group), *columns)
        ]
        if not groups:
            return
        table = file.read_row_groups(groups, columns=columns)
        for name in columns:
            column = table[name]
            for found in column.filter(pc.is_valid(column)).to_pylist():
                self._add(name, found)

    def take_json(self, content: bytes) -> tuple[list[AddFile], list[RemoveFile]]:
        """Take them out of a JSON head; give the actions about files that lie there too."""
        lines = decode(content)
        for line in lines:
            self.protocol = line.protocol or self.protocol
            self.metadata = line.meta_data or self.metadata
            if line.txn is not None:
                self.transactions.append(line.txn)
            elif line.domain_metadata is not None:
                self.domains.append(line.domain_metadata)
            elif line.sidecar is not None:
                self.sidecars.append(line.sidecar.path)
        adds = [line.add for line in lines if line.add is not None]
        return adds, [line.remove for line in lines if line.remove is not None]

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


def _may_hold(group: pq.RowGroupMetaData, *names: str) -> bool:
    """Say whether a row group may hold one of these columns or parts of them; nulls are counted."""
    for chunk in map(group.column, range(group.num_columns)):
        path = chunk.path_in_schema
        if not any(path == name or path.startswith(f"{name}.") for name in names):
            continue
        found = chunk.statistics
        if found is None or not found.has_null_count or found.null_count < chunk.num_values:
            return True
    return False


def _sidecar_path(named: str) -> str:
    # A sidecar always lies in its one folder, so whatever else a writer put before the name (a
    # relative or a full path) says nothing new.
    return f"{SIDECARS}/{unquote(named.rpartition('/')[2])}"


def _in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return list(pool.map(work, items))


def _read_rows(file: pq.ParquetFile, action: str, schema: pa.Schema) -> pa.Table:
    """Read the rows of one action about files; columns the file lacks come out empty."""
    there = _children(file, action)
    wanted = [_camel(name) for name in schema.names if _camel(name) in there]
    if "path" not in wanted:
        return schema.empty_table()
    batches = [
        pa.record_batch(
            [
                _as_type(columns[_camel(field.name)], field.type)
                if _camel(field.name) in columns
                else pa.nulls(len(columns["path"]), field.type)
                for field in schema
            ],
            schema=schema,
        )
        for columns in _batches(file, action, wanted)
    ]
    table = pa.Table.from_batches(batches, schema)
    if table["path"].null_count:
        raise UnusableError(f"It holds {action} actions without a path.")
    return table


def _batches(
    file: pq.ParquetFile, action: str, names: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Yield columns of the rows that hold an action, some at a time.

    In small batches, since growing one long column of strings takes longer than reading it.
    """
    if not names:
        return
    groups = [
        group
        for group in range(file.metadata.num_row_groups)
        if _may_hold(file.metadata.row_group(group), f"{action}.path")
    ]
    columns = [f"{action}.{name}" for name in names]
    for batch in file.iter_batches(_BATCH, groups, columns, use_threads=False):
        rows = batch.column(action)
        if rows.null_count:
            rows = rows.drop_null()
        yield dict(zip([field.name for field in rows.type], rows.flatten(), strict=True))


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind != _VECTOR:
        return column.cast(kind)
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    there = {field.name: column.field(place) for place, field in enumerate(column.type)}
    fields = [there[_camel(field.name)].cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())


def _read_stats(file: pq.ParquetFile) -> pa.ChunkedArray:
    there = _children(file, "add")
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    # Only structured where the table says `delta.checkpoint.writeStatsAsJson=false`.
    is_text = "stats" in there and any(_may_hold(group, "add.stats") for group in groups)
    name = "stats" if is_text or "stats_parsed" not in there else "stats_parsed"
    if name not in there:
        name = "path"
    chunks = []
    for columns in _batches(file, "add", [name]):
        column = columns[name]
        if name == "path":
            chunks.append(pa.nulls(len(column), pa.string()))
        elif is_text:
            chunks.append(column.cast(pa.string()))
        else:
            chunks.append(pa.array(map(_stats_text, column.to_pylist()), pa.string()))
    return pa.chunked_array(chunks, pa.string())


def _children(file: pq.ParquetFile, name: str) -> list[str]:
    schema = file.schema_arrow
    if name not in schema.names:
        return []
    return [field.name for field in schema.field(name).type]


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


# Writing


class Form(enum.Enum):
    """How a checkpoint is laid out."""

    CLASSIC = "classic"  # one file
    V2 = "v2"  # a Parquet head, and sidecars
    V2_JSON = "v2-json"  # a JSON head, and sidecars


def form_for(protocol: Protocol, metadata: Metadata) -> Form:
    """Give the form that the table's own policy asks for."""
    wants_v2 = metadata.configuration.get("delta.checkpointPolicy") == "v2"
    return Form.V2 if wants_v2 and features.is_supported(protocol, _V2_FEATURE) else Form.CLASSIC


def write_checkpoint(
    store: ObjectStore,
    state: TableState,
    *,
    table: str,
    now_ms: int,
    new_uuid: Callable[[], UUID],
    form: Form | None = None,
    files_per_sidecar: int = 250_000,
) -> KnownFile:
    """Write a checkpoint of a published version and the hint at it. Spec: CM-27.

    Whoever dies in between leaves sidecars nobody names, or a checkpoint nobody hints at: both are
    harmless. A checkpoint that is there already and can be read is left as it is.
    """
    if store.head(PublishedCommit(state.version).path) is None:
        raise NotPublishedError(table, state.version)
    assert state.protocol is not None
    assert state.metadata is not None
    form = form or form_for(state.protocol, state.metadata)
    if form is not Form.CLASSIC and not features.is_supported(state.protocol, _V2_FEATURE):
        raise UnsupportedFeatureError(f"{table} does not support {_V2_FEATURE}.")
    adds, removes = live_files(state, stats=True), _tombstones(state, now_ms)
    few = _few_lines(state, state.protocol, state.metadata)
    fail_point("checkpoint.before_put")
    if form is Form.CLASSIC:
        head: Checkpoint = ClassicCheckpoint(state.version)
        sidecars: list[SidecarFile] = []
        content = _parquet(_CLASSIC, few, adds, removes)
    else:
        sidecars = _put_sidecars(store, adds, removes, files_per_sidecar, new_uuid, now_ms)
        few = [encode(CheckpointMetadata(version=state.version)), *few, *map(encode, sidecars)]
        head = UuidCheckpoint(
            state.version, new_uuid(), "json" if form is Form.V2_JSON else "parquet"
        )
        content = join(few) if form is Form.V2_JSON else _parquet(_HEAD, few)
    _put_head(store, head, content)
    fail_point("checkpoint.after_put")
    said: dict[str, object] = {
        "version": state.version,
        "size": len(few) + adds.num_rows + removes.num_rows,
        "sizeInBytes": len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars),
        "numOfAddFiles": adds.num_rows,
    }
    if isinstance(head, UuidCheckpoint):
        name = head.path.rpartition("/")[2]
        said["v2Checkpoint"] = {
            "path": name,
            "sizeInBytes": len(content),
            "modificationTime": now_ms,
        }
    hint = DeltaLog(store).last_checkpoint()
    fail_point("checkpoint.before_hint")
    if hint is None or hint.version <= state.version:
        store.put(LAST_CHECKPOINT, json.dumps(said, separators=(",", ":")).encode())
    return KnownFile(
        kind=FileKind.CHECKPOINT, first=state.version, last=state.version, paths=(head.path,)
    )


def write_checksum(store: ObjectStore, version: Version, checksum: VersionChecksum) -> bool:
    """Put `<v>.crc`, also of a version not yet published; never over another. Spec: CM-29."""
    return store.put_if_absent(Checksum(version).path, to_json(checksum) + b"\n")


def _put_head(store: ObjectStore, head: Checkpoint, content: bytes) -> None:
    if store.put_if_absent(head.path, content):
        return
    try:
        read_checkpoint(store, CheckpointFiles(head.version, (head,)))
    except UnusableError:
        store.put(head.path, content)  # in place of one that nobody can read


def _put_sidecars(
    store: ObjectStore,
    adds: pa.Table,
    removes: pa.Table,
    files_per_sidecar: int,
    new_uuid: Callable[[], UUID],
    now_ms: int,
) -> list[SidecarFile]:
    starts = range(0, adds.num_rows, files_per_sidecar)
    slices = [(adds.slice(at, files_per_sidecar), removes.slice(0, 0)) for at in starts]
    slices += [
        (adds.slice(0, 0), removes.slice(at, files_per_sidecar))
        for at in range(0, removes.num_rows, files_per_sidecar)
    ]
    names = [f"{new_uuid()}.parquet" for _ in slices]

    def put(part: tuple[str, tuple[pa.Table, pa.Table]]) -> SidecarFile:
        name, (some_adds, some_removes) = part
        content = _parquet(_SIDECAR, [], some_adds, some_removes)
        if not store.put_if_absent(f"{SIDECARS}/{name}", content):
            raise InvariantError(f"There is a sidecar {name} already.")
        fail_point("checkpoint.after_part")
        return SidecarFile(path=name, size_in_bytes=len(content), modification_time=now_ms)

    return _in_parallel(put, list(zip(names, slices, strict=True)))


def _few_lines(state: TableState, protocol: Protocol, metadata: Metadata) -> list[bytes]:
    transactions = state.transactions.merged().values()
    return [encode(a) for a in (protocol, metadata, *transactions, *state.domains.values())]


def _tombstones(state: TableState, now_ms: int) -> pa.Table:
    """Give the removed files that are still remembered."""
    assert state.metadata is not None
    after = now_ms - tombstones_kept_ms(state.metadata.configuration)
    own = [r for r in state.removed() if (r.deletion_timestamp or 0) > after]
    ground = _ground(state)
    if ground is None:
        return tombstone_table(own)
    old = ground.tombstones()
    old = old.filter(pc.greater(old["deletion_timestamp"], after))
    return pa.concat_tables([_without_overlaid(old, key_column(old), state), tombstone_table(own)])


def _parquet(
    schema: pa.Schema,
    few: Sequence[bytes],
    adds: pa.Table | None = None,
    removes: pa.Table | None = None,
) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        use_dictionary=_DICTIONARIES,
        write_statistics=[name for name in _leaves(schema) if name != "add.stats"],
        store_schema=False,
        write_batch_size=_BATCH,
    ) as writer:
        if few:
            rows = [json.loads(line) for line in few]
            writer.write_table(
                pa.table(
                    {
                        f.name: pa.array([_fit(r.get(f.name), f.type) for r in rows], f.type)
                        for f in schema
                    },
                    schema=schema,
                )
            )
        for action, table in (("add", adds), ("remove", removes)):
            if table is not None and table.num_rows:
                writer.write_table(_actions(schema, action, table), row_group_size=_ROW_GROUP)
    return cast(bytes, sink.getvalue().to_pybytes())


def _actions(schema: pa.Schema, action: str, table: pa.Table) -> pa.Table:
    """Put a table of files into the rows of a checkpoint, without copying a column."""
    nothing = {
        field.name: pa.nulls(_ROW_GROUP, field.type) for field in schema if field.name != action
    }
    batches = []
    for batch in table.to_batches(_ROW_GROUP):
        rows = _struct(batch, schema.field(action))
        columns = [
            rows if field.name == action else nothing[field.name].slice(0, len(rows))
            for field in schema
        ]
        batches.append(pa.record_batch(columns, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _struct(batch: pa.RecordBatch, field: pa.Field) -> pa.StructArray:
    there = {_camel(name): batch.column(name) for name in batch.schema.names}
    children = []
    for child in field.type:
        if child.name == "dataChange":  # what a checkpoint holds is no news
            column = pa.repeat(pa.scalar(False), batch.num_rows)
        else:
            column = there[child.name]
        if child.type == _WRITTEN_VECTOR:
            column = pa.StructArray.from_arrays(
                column.flatten(), fields=list(child.type), mask=column.is_null()
            )
        children.append(column)
    return pa.StructArray.from_arrays(children, fields=list(field.type))


def _fit(value: Any, kind: pa.DataType) -> Any:
    """Turn a JSON value into what Arrow takes for a type: maps come as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _fit(value.get(field.name), field.type) for field in kind}
    return value


def _leaves(schema: pa.Schema) -> Iterator[str]:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    for index in range(len(parquet)):
        yield parquet.column(index).path
