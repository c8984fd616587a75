"""Read checkpoints of every layout as states of a table.

Classic, multi-part and V2 checkpoints (Parquet or JSON head, sidecars) give the same result: the
few actions about the table as objects, the many about files as Arrow columns. A checkpoint that
cannot be read completely raises `UnusableError`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headgate import errors
from headgate.protocol import actions
from headgate.protocol.encoding import from_object
from headgate.protocol.log import replay
from headgate.protocol.log.replay import TableState
from headgate.protocol.log.segment import CheckpointFiles
from headgate.protocol.paths import SIDECARS
from headgate.storage.object_store import ObjectStore
from headgate.table.file_columns import (
    FILES,
    TOMBSTONES,
    VECTOR,
    FileColumns,
    camel,
)
from headgate.table.parallel import in_parallel
from headgate.table.structured_statistics import instants_of, to_json

T = TypeVar("T")

_BATCH: Final = 64 * 1024
_OPTIONS: Final = {"coerce_int96_timestamp_unit": "us"}  # nanoseconds overflow in 1677 and 2262
_WHOLE: Final = 8 << 20  # smaller objects are fetched in one request
# Actions that are not about files, and a field that each of them has.
_FEW: Final = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
}
# Raised by Arrow and our parsers for a file that is truncated, missing or not Parquet.
_BROKEN: Final = (
    pa.ArrowException,
    errors.HeadgateError,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class UnusableError(errors.MalformedError):
    """A checkpoint is truncated, incomplete or malformed; an older one may be read instead."""

    code = "checkpoint-unusable"
    remedy = "Nothing to do: an older checkpoint or the commits themselves are read instead."

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"Checkpoint {path} cannot be used: {why}")


def read_checkpoint(store: ObjectStore, checkpoint: CheckpointFiles) -> TableState:
    """Read a checkpoint without its statistics, or raise `UnusableError`. Spec: CM-16."""
    with _unusable(checkpoint.paths[0]):
        return _read(store, checkpoint)


def verify_checkpoint(store: ObjectStore, checkpoint: CheckpointFiles) -> None:
    """Raise `UnusableError` if a file of a checkpoint is missing or cut short."""
    # Reads the actions that are not about files, and only the Parquet footers of the rest.
    with _unusable(checkpoint.paths[0]):
        _, opened = _open(store, checkpoint)
        for file in opened:
            with file.errors():
                file.file()


@contextmanager
def _unusable(path: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise `UnusableError` if reading a file fails."""
    try:
        yield
    except _BROKEN as error:
        if isinstance(error, (errors.UnavailableError, UnusableError, *but)):
            raise
        raise UnusableError(path, _why(error)) from error


def _why(error: BaseException) -> str:
    if isinstance(error, errors.HeadgateError):
        return error.message
    return f"{error}." if str(error) else f"{type(error).__name__}."


def _read(store: ObjectStore, checkpoint: CheckpointFiles) -> TableState:
    lines, opened = _open(store, checkpoint)
    adds = pa.concat_tables([*in_parallel(_Opened.adds, opened), FILES.empty_table()])

    def read_stats() -> pa.ChunkedArray:
        columns = in_parallel(_Opened.stats, opened)
        stats = pa.chunked_array([c for column in columns for c in column.chunks], pa.string())
        if len(stats) != adds.num_rows:
            raise UnusableError(checkpoint.paths[0], "it changed while it was read.")
        return stats

    def read_tombstones() -> pa.Table:
        return pa.concat_tables(
            [*in_parallel(_Opened.tombstones, opened), TOMBSTONES.empty_table()]
        )

    files = FileColumns(
        adds,
        lambda: _read_more(store, checkpoint, read_stats),
        lambda: _read_more(store, checkpoint, read_tombstones),
    )
    # The lines of a JSON head may also have actions about files.
    state = replay.apply(replay.on_ground(checkpoint.version, files), checkpoint.version, lines)
    return replace(state, metadata_file=checkpoint.paths[0])


def _open(
    store: ObjectStore, checkpoint: CheckpointFiles
) -> tuple[Sequence[actions.Wrapped], Sequence[_Opened]]:
    """Read the actions that are not about files; also return the Parquet files with the others."""
    lines: list[actions.Wrapped] = []
    opened: list[_Opened] = []
    if checkpoint.paths[0].endswith(".json"):
        lines = actions.decode(store.get(checkpoint.paths[0]))
    else:
        opened = [_Opened(store, path) for path in checkpoint.paths]
        for file in opened:
            with file.errors():
                lines += _few(file.file())
    if not any(line.protocol for line in lines) or not any(line.meta_data for line in lines):
        raise UnusableError(checkpoint.paths[0], "it has no protocol or no metaData.")
    # Sidecars are always in one folder, so the path that a writer put before the name (relative or
    # absolute) adds nothing.
    names = [unquote(line.sidecar.path.rpartition("/")[2]) for line in lines if line.sidecar]
    return lines, [*opened, *(_Opened(store, f"{SIDECARS}/{name}") for name in names)]


def _read_more(store: ObjectStore, checkpoint: CheckpointFiles, read: Callable[[], T]) -> T:
    """Read more columns of a checkpoint; it may have been cleaned up since the first read."""
    label = f"{store.url} version {checkpoint.version}: checkpoint {checkpoint.paths[0]}"
    try:
        return read()
    except errors.UnavailableError:
        raise
    except (FileNotFoundError, errors.NotFoundError, _ReplacedError) as error:
        raise errors.VersionGoneError(
            f"{label} was replaced or deleted while it was in use."
        ) from error
    except _BROKEN as error:
        raise errors.MalformedError(
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
        with self.errors():
            return _read_rows(self.file(), "add", FILES)

    def tombstones(self) -> pa.Table:
        """Read the removed files."""
        with self.errors():
            return _read_rows(self.file(), "remove", TOMBSTONES)

    def stats(self) -> pa.ChunkedArray:
        """Read the statistics of the live files as JSON, in the same order."""
        with self.errors():
            return _read_stats(self.file())

    def errors(self) -> AbstractContextManager[None]:
        """Name this file in errors, except for one that is missing."""
        return _unusable(self.path, but=(errors.NotFoundError, FileNotFoundError))


def open_parquet(store: ObjectStore, path: str) -> pq.ParquetFile:
    """Open a Parquet file of a store: memory-mapped, fetched whole, or fetched in ranges."""
    local = store.local_path(path)
    if local is not None:
        return pq.ParquetFile(local, memory_map=True, **_OPTIONS)
    meta = store.head(path)
    if meta is None or meta.size <= _WHOLE:
        return pq.ParquetFile(pa.BufferReader(store.get(path)), **_OPTIONS)
    file = pa.PythonFile(_Ranges(store, path, meta.size))
    return pq.ParquetFile(file, pre_buffer=True, **_OPTIONS)


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


def _few(file: pq.ParquetFile) -> Iterator[actions.Wrapped]:
    """Read the actions that are not about files, skipping row groups that have none."""
    columns = [name for name in _FEW if name in file.schema_arrow.names]
    groups = [
        group
        for group in range(file.metadata.num_row_groups)
        if _may_hold(file.metadata.row_group(group), *columns)
    ]
    table = file.read_row_groups(groups, columns=columns)
    for name in columns:
        for fields in table[name].drop_null().to_pylist(maps_as_pydicts="strict"):
            given = {key: value for key, value in fields.items() if value is not None}
            if _FEW[name] in given:
                if form := given.get("format"):
                    given["format"] = {k: v for k, v in form.items() if v is not None}
                if name == "domainMetadata":
                    given.setdefault("removed", False)
                yield from_object({name: given}, actions.Wrapped)


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
        raise errors.MalformedError(f"it holds {action} actions without a path.")
    return table


def _batches(
    file: pq.ParquetFile, action: str, names: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Yield columns of the rows that hold an action, one batch at a time."""
    # Batches are small, since growing one long column of strings takes longer than reading it.
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
    instants = instants_of(file)
    chunks = []
    for columns in _batches(file, "add", [name]):
        column = columns[name]
        if name == "path":
            chunks.append(pa.nulls(len(column), pa.string()))
        elif is_text:
            chunks.append(column.cast(pa.string()))
        else:
            chunks.append(to_json(column, f"add.{name}", instants))
    return pa.chunked_array(chunks, pa.string())


def _children(file: pq.ParquetFile, name: str) -> list[str]:
    schema = file.schema_arrow
    if name not in schema.names:
        return []
    return [field.name for field in schema.field(name).type]
