"""Files in columns against a predicate: which of them may hold a matching row.

Partition values are judged once for each combination, statistics file by file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.protocol.actions import AddFile
from headgate.protocol.pruning import Pruner
from headgate.protocol.statistics import parse_statistics

_JUDGED: Final = 64 * 1024  # statistics turned into objects at a time


def by_partitions(files: pa.Table, names: Sequence[str], pruner: Pruner) -> pa.Table:
    """Leave out files by their partition values, judging each combination of values once."""
    if not names or not files.num_rows:
        return files
    columns = [_partition_column(files["partition_values"], name) for name in names]
    values = pa.table(columns, list(names))
    distinct = values.group_by(list(names)).aggregate([])
    kept = [combination for combination in distinct.to_pylist() if pruner.may_match(combination)]
    if len(kept) == distinct.num_rows:
        return files
    return files.filter(_is_among(values, kept))


def _partition_column(maps: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    chunks = [_mapped(chunk, name) for chunk in maps.chunks]
    return pa.chunked_array(chunks, pa.string())


def _mapped(maps: pa.MapArray, name: str) -> pa.Array:
    """Look a key up in every map; nearly always all have the same keys in the same order."""
    width = len(maps[0]) if len(maps) and maps[0].is_valid else 0
    start, stop = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    if width and not maps.null_count and stop - start == width * len(maps):
        keys = pa.FixedSizeListArray.from_arrays(maps.keys.slice(start, stop - start), width)
        place = next((i for i, key in enumerate(keys[0].as_py()) if key == name), None)
        if place is not None and pc.all(pc.equal(pc.list_element(keys, place), name)).as_py():
            items = pa.FixedSizeListArray.from_arrays(maps.items.slice(start, stop - start), width)
            return pc.list_element(items, place)
    return pc.map_lookup(maps, name, "first")


def _is_among(values: pa.Table, kept: Sequence[Mapping[str, str | None]]) -> pa.ChunkedArray:
    # Lengths before values and a mark for null: two combinations never come to one text.
    def spelled(value: str | None) -> str:
        return "-" if value is None else f"{len(value.encode())}:{value}"

    texts = [
        pc.if_else(
            pc.is_null(column),
            "-",
            pc.binary_join_element_wise(pc.binary_length(column).cast(pa.string()), column, ":"),
        )
        for column in values.columns
    ]
    wanted = ["".join(map(spelled, combination.values())) for combination in kept]
    joined = pc.binary_join_element_wise(*texts, "")
    return pc.is_in(joined, value_set=pa.array(wanted, pa.string()))


def by_statistics(files: pa.Table, pruner: Pruner, *, with_partitions: bool) -> pa.Table:
    """Leave out files by their statistics, some at a time."""
    kept: list[int] = []
    for at in range(0, files.num_rows, _JUDGED):
        some = files.slice(at, _JUDGED)
        texts = some["stats"].to_pylist()
        maps = some["partition_values"].to_pylist() if with_partitions else [()] * len(texts)
        kept.extend(
            at + row
            for row, (values, text) in enumerate(zip(maps, texts, strict=True))
            if _may_match_file(pruner, dict(values or ()), text)
        )
    return files if len(kept) == files.num_rows else files.take(pa.array(kept, pa.int64()))


def may_match(pruner: Pruner, add: AddFile) -> bool:
    """Say whether one file may hold a matching row."""
    return _may_match_file(pruner, add.partition_values, add.stats)


def _may_match_file(
    pruner: Pruner, partition_values: Mapping[str, str | None], stats: str | None
) -> bool:
    found = parse_statistics(stats)
    return pruner.may_match(
        partition_values, found.min_values, found.max_values, found.null_count, found.num_records
    )
