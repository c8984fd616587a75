"""Live files as Arrow columns: those of a checkpoint, and those of a state on top of it.

A file becomes a Python object only when it is asked for by name. Statistics and tombstones are
read on first use.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    FileKey,
    Protocol,
    RemoveFile,
    fields,
)
from headgate.protocol.data_paths import UNUSUAL, normal_path
from headgate.protocol.log.replay import TableState

_MAP: Final = pa.map_(pa.string(), pa.string())
_ARROW_TYPES: Final = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.string()),
    dict[str, str]: _MAP,
    dict[str, str | None]: _MAP,
}
_INT32: Final = {  # as other writers of checkpoints have them
    DeletionVector: ("offset", "size_in_bytes"),
    Protocol: ("min_reader_version", "min_writer_version"),
}


def arrow_fields(
    kind: type[Action], without: Collection[str] = (), *, in_log: bool = False
) -> list[pa.Field]:
    """Return the Arrow fields of an action, optionally with the names they have in a log."""
    return [
        pa.field(
            name_in_log if in_log else name,
            pa.int32()
            if name in _INT32.get(kind, ())
            else _ARROW_TYPES.get(of) or pa.struct(arrow_fields(of, in_log=in_log)),
        )
        for name, name_in_log, of in fields(kind)
        if name not in without
    ]


VECTOR: Final = pa.struct(arrow_fields(DeletionVector))
# Every field of a file but its statistics, which are a column of their own, read on first use.
FILES: Final = pa.schema(arrow_fields(AddFile, without=("data_change", "stats")))
FILES_AND_STATS: Final = FILES.append(pa.field("stats", pa.string()))
TOMBSTONES: Final = pa.schema(arrow_fields(RemoveFile, without=("data_change", "stats", "tags")))
_MAX_SLICES: Final = 1000  # up to so many removed files are sliced out of the columns, not copied
_SCANS_BEFORE_INDEX: Final = 12  # a reader that looks up more often gets an index, far faster


class FileColumns:
    """The live files of a checkpoint. Satisfies `protocol.log.replay.Ground`."""

    def __init__(
        self,
        table: pa.Table,
        read_stats: Callable[[], pa.ChunkedArray],
        read_tombstones: Callable[[], pa.Table],
    ) -> None:
        self.table = table
        self._read_stats = read_stats
        self.tombstones = read_tombstones  # the removed files, for the next checkpoint
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
        """Statistics as JSON, one for each file; read once, on first use."""
        with self._lock:
            if self._stats is None:
                self._stats = self._read_stats()
            return self._stats

    @cached_property
    def keys(self) -> pa.ChunkedArray:
        """The key of each file as one string: see `key_text`."""
        return key_column(self.table)

    def sizes(self, keys: Collection[FileKey]) -> Mapping[FileKey, int]:
        """Look up files by their keys: by a scan, or by an index once that pays."""
        if not self.num_files or not keys:
            return {}
        by_text = {key_text(key): key for key in keys}
        with self._lock:
            self._scans += 1
            if self._index is None and self._scans > _SCANS_BEFORE_INDEX:
                self._index = self._make_index()
        size = self.table["size"]
        if self._index is not None:
            rows = {text: self._row(text, *self._index) for text in by_text}
            return {by_text[text]: size[row].as_py() for text, row in rows.items() if row >= 0}
        found = pc.indices_nonzero(pc.is_in(self.keys, value_set=pa.array(by_text, pa.string())))
        texts = self.keys.take(found).to_pylist()
        sizes = size.take(found).to_pylist()
        return {by_text[text]: size for text, size in zip(texts, sizes, strict=True)}

    def _row(self, text: str, hashes: array[int], order: pa.Array) -> int:
        """Look up the row of a key in the index; -1 if there is none."""
        at = bisect_left(hashes, hash(text))
        while at < len(hashes) and hashes[at] == hash(text):
            row: int = order[at].as_py()
            if self.keys[row].as_py() == text:
                return row
            at += 1
        return -1

    def _make_index(self) -> tuple[array[int], pa.Array]:
        hashes = array("q")
        for chunk in self.keys.chunks:
            hashes.extend(map(hash, chunk.to_pylist()))
        column = pa.Array.from_buffers(pa.int64(), len(hashes), [None, pa.py_buffer(hashes)])
        order = pc.sort_indices(column)
        sorted_hashes = array("q")
        sorted_hashes.frombytes(column.take(order).buffers()[1])
        return sorted_hashes, order


def live_files(state: TableState, *, stats: bool = False) -> pa.Table:
    """Return all live files of a state, in no particular order."""
    added = file_table(list(state.added()), stats=stats)
    return pa.concat_tables([ground_files(state, stats=stats), added])


def ground_files(state: TableState, *, stats: bool = False) -> pa.Table:
    """Return the files of a state's checkpoint that are still live."""
    ground = ground_of(state)
    if ground is None:
        return file_table([], stats=stats)
    table = ground.table.append_column("stats", ground.stats) if stats else ground.table
    return without_overlaid(table, ground.keys, state)


def ground_of(state: TableState) -> FileColumns | None:
    """Return the files of a state's checkpoint, overlaid or not."""
    return cast("FileColumns | None", state.ground)  # the only class used as ground


def without_overlaid(table: pa.Table, keys: pa.ChunkedArray, state: TableState) -> pa.Table:
    """Drop the rows that newer actions replace."""
    overlaid = state.overlaid()
    if not overlaid or not table.num_rows:
        return table
    gone = pc.is_in(keys, value_set=pa.array(map(key_text, overlaid), pa.string()))
    rows = pc.indices_nonzero(gone)
    if len(rows) > _MAX_SLICES:
        return table.filter(pc.invert(gone))
    edges = [-1, *rows.to_pylist(), table.num_rows]
    return pa.concat_tables(
        [table.slice(before + 1, after - before - 1) for before, after in pairwise(edges)]
    )


def key_text(key: FileKey) -> str:
    """Write the key of a file as one string."""
    path, vector = key
    return path if vector is None else f"{path}\0{vector}"


def key_column(files: pa.Table) -> pa.ChunkedArray:
    """Write the key of each file as one string."""
    path, vectors = _normal_paths(files["path"]), files["deletion_vector"]
    if vectors.null_count == len(vectors):
        return path
    field = {
        name: pc.struct_field(vectors, name)
        for name in ("storage_type", "path_or_inline_dv", "offset")
    }
    is_path = pc.equal(field["storage_type"], "p")
    where = pc.if_else(
        is_path, _normal_paths(field["path_or_inline_dv"]), field["path_or_inline_dv"]
    )
    offset = pc.cast(field["offset"], pa.string())
    at = pc.if_else(pc.is_null(offset), "", pc.binary_join_element_wise("@", offset, ""))
    unique = pc.binary_join_element_wise(path, "\0", field["storage_type"], where, at, "")
    return pc.if_else(pc.is_null(field["storage_type"]), path, unique)


def _normal_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normalize every path; nearly all columns are normal already."""
    return pa.chunked_array(map(_normal_chunk, paths.chunks), pa.string())


def _normal_chunk(paths: pa.Array) -> pa.Array:
    is_unusual = pc.match_substring_regex(paths, UNUSUAL)
    if not pc.any(is_unusual).as_py():
        return paths
    normal = pa.array(map(normal_path, paths.filter(is_unusual).to_pylist()), pa.string())
    return pc.replace_with_mask(paths, is_unusual, normal)


def camel(name: str) -> str:
    """Convert the name of a column to the camel case of the protocol."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def add_files(files: pa.Table) -> list[AddFile]:
    """Convert a table of files to actions, with statistics if it has them."""
    # Filling the fields by name instead would take half as long again.
    columns = {name: files[name].to_pylist() for name in files.column_names}
    no_stats = [None] * files.num_rows
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
        for path, values, size, modified, tags, vector, row_id, row_version, provider, stats in zip(
            *(columns[name] for name in FILES.names), columns.get("stats", no_stats), strict=True
        )
    ]


def tombstone_table(removes: Sequence[RemoveFile]) -> pa.Table:
    """Convert removed files to columns."""
    return _action_table(removes, TOMBSTONES)


def file_table(adds: Sequence[AddFile], *, stats: bool = False) -> pa.Table:
    """Convert added files to columns."""
    return _action_table(adds, FILES_AND_STATS if stats else FILES)


def _action_table(actions: Sequence[AddFile | RemoveFile], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = list(map(attrgetter(field.name), actions))
        if field.type == VECTOR:
            values = [v and {f.name: getattr(v, f.name) for f in VECTOR} for v in values]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
