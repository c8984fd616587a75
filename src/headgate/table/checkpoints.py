"""Read checkpoints of every layout into Arrow columns.

Classic, multi-part and V2 checkpoints (Parquet or JSON head, sidecars) give the same result: the
few actions about the table as objects, the many about files as one Arrow table. A checkpoint that
cannot be read completely raises `UnusableError`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import (
    HeadgateError,
    MalformedError,
    NotFoundError,
    UnavailableError,
    VersionGoneError,
)
from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Version,
    decode,
)
from headgate.protocol.encoding import from_object
from headgate.protocol.log.segment import CheckpointFiles
from headgate.protocol.paths import SIDECARS
from headgate.storage.object_store import ObjectStore
from headgate.table.file_columns import (
    FILES,
    TOMBSTONES,
    VECTOR,
    FileColumns,
    camel,
    file_table,
    tombstone_table,
)
from headgate.table.parallel import in_parallel

T = TypeVar("T")

_BATCH: Final = 64 * 1024
_WHOLE: Final = 8 << 20  # smaller objects are fetched in one request
_NO_TABLE: Final = "it has no protocol or no metaData."
_FEW: Final = ("protocol", "metaData", "txn", "domainMetadata", "checkpointMetadata", "sidecar")
# Raised by Arrow and our parsers for a file that is truncated, missing or not Parquet.
_BROKEN: Final = (
    pa.ArrowException,
    HeadgateError,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class UnusableError(MalformedError):
    """A checkpoint is truncated, incomplete or malformed; an older one may be read instead."""

    code = "checkpoint-unusable"
    remedy = "Nothing to do: an older checkpoint or the commits themselves are read instead."

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"Checkpoint {path} cannot be used: {why}")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The content of a checkpoint."""

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
    except UnusableError:
        raise
    except _BROKEN as error:
        raise UnusableError(checkpoint.paths[0], _why(error)) from error


def verify_checkpoint(store: ObjectStore, checkpoint: CheckpointFiles) -> None:
    """Raise `UnusableError` if a file of a checkpoint is missing or cut short.

    Reads the actions that are not about files, and only the Parquet footers of the rest.
    """
    try:
        few = _Few()
        if checkpoint.paths[0].endswith(".json"):
            few.take_json(store.get(checkpoint.paths[0]))
        else:
            for path in checkpoint.paths:
                few.take(_Opened(store, path))
        for named in few.sidecars:
            sidecar = _Opened(store, _sidecar_path(named))
            sidecar.named(sidecar.file)
    except (UnavailableError, UnusableError):
        raise
    except _BROKEN as error:
        raise UnusableError(checkpoint.paths[0], _why(error)) from error
    if few.protocol is None or few.metadata is None:
        raise UnusableError(checkpoint.paths[0], _NO_TABLE)


def _why(error: BaseException) -> str:
    if isinstance(error, HeadgateError):
        return error.message
    return f"{error}." if str(error) else f"{type(error).__name__}."


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
        raise UnusableError(checkpoint.paths[0], _NO_TABLE)
    opened = [_Opened(store, path) for path in parts]
    adds = pa.concat_tables([*in_parallel(_Opened.adds, opened), file_table(json_adds)])

    def read_stats() -> pa.ChunkedArray:
        columns = in_parallel(_Opened.stats, opened)
        chunks = [chunk for column in columns for chunk in column.chunks]
        of_json = pa.array([add.stats for add in json_adds], pa.string())
        stats = pa.chunked_array([*chunks, of_json], pa.string())
        if len(stats) != adds.num_rows:
            raise UnusableError(checkpoint.paths[0], "it changed while it was read.")
        return stats

    def read_tombstones() -> pa.Table:
        tables = [*in_parallel(_Opened.tombstones, opened), tombstone_table(json_removes)]
        return pa.concat_tables(tables)

    return CheckpointState(
        checkpoint.version,
        few.protocol,
        few.metadata,
        tuple(few.transactions),
        tuple(few.domains),
        FileColumns(
            adds,
            lambda: _read_more(store, checkpoint, read_stats),
            lambda: _read_more(store, checkpoint, read_tombstones),
        ),
    )


def _read_more(store: ObjectStore, checkpoint: CheckpointFiles, read: Callable[[], T]) -> T:
    """Read more columns of a checkpoint; it may have been cleaned up since the first read."""
    label = f"{store.url} version {checkpoint.version}: checkpoint {checkpoint.paths[0]}"
    try:
        return read()
    except UnavailableError:
        raise
    except (FileNotFoundError, NotFoundError, _ReplacedError) as error:
        raise VersionGoneError(f"{label} was replaced or deleted while it was in use.") from error
    except _BROKEN as error:
        raise MalformedError(
            f"{label} is damaged: {_why(error)}", remedy="Delete it, then open the table again."
        ) from error


class _ReplacedError(UnusableError):
    """A checkpoint file was replaced since it was first read."""


class _Opened:
    """A Parquet file of a checkpoint."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.path = path
        self._store = store
        # Classic names are reused. Columns that are read later must come from the same file.
        self._seen = None if path.startswith(SIDECARS) else store.head(path)

    def file(self) -> pq.ParquetFile:
        if self._seen is not None and self._store.head(self.path) != self._seen:
            raise _ReplacedError(self.path, "it was written again while it was in use.")
        return open_parquet(self._store, self.path)

    def adds(self) -> pa.Table:
        """Read the live files, without statistics."""
        return self.named(lambda: _read_rows(self.file(), "add", FILES))

    def tombstones(self) -> pa.Table:
        """Read the removed files."""
        return self.named(lambda: _read_rows(self.file(), "remove", TOMBSTONES))

    def stats(self) -> pa.ChunkedArray:
        """Read the statistics of the live files as JSON, in the same order."""
        return self.named(lambda: _read_stats(self.file()))

    def named(self, read: Callable[[], T]) -> T:
        """Read from this file, and name it in the error if that fails."""
        try:
            return read()
        except (UnavailableError, UnusableError, NotFoundError, FileNotFoundError):
            raise
        except _BROKEN as error:
            raise UnusableError(self.path, _why(error)) from error


def open_parquet(store: ObjectStore, path: str) -> pq.ParquetFile:
    """Open a Parquet file of a store: memory-mapped, fetched whole, or fetched in ranges."""
    local = store.local_path(path)
    if local is not None:
        return pq.ParquetFile(local, memory_map=True)
    meta = store.head(path)
    if meta is None or meta.size <= _WHOLE:
        return pq.ParquetFile(pa.BufferReader(store.get(path)))
    return pq.ParquetFile(pa.PythonFile(_Ranges(store, path, meta.size)), pre_buffer=True)


class _Ranges(io.RawIOBase):
    """A large object as a file that fetches only the ranges that are read."""

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
        content = self._store.get_range(self._path, self._at, length)
        self._at += len(content)
        return content


class _Few:
    """The actions of a checkpoint that are not about files."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.transactions: list[SetTransaction] = []
        self.domains: list[DomainMetadata] = []
        self.sidecars: list[str] = []

    def take(self, opened: _Opened) -> None:
        """Read them from a Parquet file, skipping row groups that have none."""
        opened.named(lambda: self._take(opened.file()))

    def _take(self, file: pq.ParquetFile) -> None:
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
            rows = column.filter(pc.is_valid(column))
            for fields in rows.to_pylist(maps_as_pydicts="strict"):
                self._add(name, fields)

    def take_json(self, content: bytes) -> tuple[list[AddFile], list[RemoveFile]]:
        """Read them from a JSON head; return the actions about files that it holds as well."""
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

    def _add(self, name: str, fields: dict[str, Any]) -> None:
        given = {key: value for key, value in fields.items() if value is not None}
        match name:
            case "protocol" if "minReaderVersion" in given:
                self.protocol = from_object(given, Protocol)
            case "metaData" if "id" in given:
                form = given.get("format") or {}
                given["format"] = {key: form[key] for key in form if form[key] is not None}
                self.metadata = from_object(given, Metadata)
            case "txn" if "appId" in given:
                self.transactions.append(from_object(given, SetTransaction))
            case "domainMetadata" if "domain" in given:
                given.setdefault("removed", False)
                self.domains.append(from_object(given, DomainMetadata))
            case "sidecar" if "path" in given:
                self.sidecars.append(given["path"])


def _may_hold(group: pq.RowGroupMetaData, *names: str) -> bool:
    """Return False if a row group has only nulls in these columns and their fields."""
    for chunk in map(group.column, range(group.num_columns)):
        path = chunk.path_in_schema
        if not any(path == name or path.startswith(f"{name}.") for name in names):
            continue
        stats = chunk.statistics
        if stats is None or not stats.has_null_count or stats.null_count < chunk.num_values:
            return True
    return False


def _sidecar_path(named: str) -> str:
    # Sidecars are always in one folder, so the path that a writer put before the name (relative
    # or absolute) adds nothing.
    return f"{SIDECARS}/{unquote(named.rpartition('/')[2])}"


def _read_rows(file: pq.ParquetFile, action: str, schema: pa.Schema) -> pa.Table:
    """Read the rows of one action about files; columns that the file lacks are null."""
    existing = _children(file, action)
    names = [camel(name) for name in schema.names if camel(name) in existing]
    if "path" not in names:
        return schema.empty_table()
    batches = [
        pa.record_batch(
            [
                _as_type(columns[camel(field.name)], field.type)
                if camel(field.name) in columns
                else pa.nulls(len(columns["path"]), field.type)
                for field in schema
            ],
            schema=schema,
        )
        for columns in _batches(file, action, names)
    ]
    table = pa.Table.from_batches(batches, schema)
    if table["path"].null_count:
        raise MalformedError(f"it holds {action} actions without a path.")
    return table


def _batches(
    file: pq.ParquetFile, action: str, names: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Yield columns of the rows that hold an action, one batch at a time.

    Batches are small, since growing one long column of strings takes longer than reading it.
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
    if kind != VECTOR:
        return column.cast(kind)
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    by_name = {field.name: column.field(place) for place, field in enumerate(column.type)}
    fields = [by_name[camel(field.name)].cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())


def _read_stats(file: pq.ParquetFile) -> pa.ChunkedArray:
    existing = _children(file, "add")
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    # Structured statistics alone, if the table has `delta.checkpoint.writeStatsAsJson=false`.
    is_text = "stats" in existing and any(_may_hold(group, "add.stats") for group in groups)
    name = "stats" if is_text or "stats_parsed" not in existing else "stats_parsed"
    if name not in existing:
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
    """Convert a value of structured statistics to the form of JSON statistics."""
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
