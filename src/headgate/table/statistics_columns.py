"""Statistics of many files at once, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headgate.table.parallel import in_parallel

_AT_ONCE: Final = 64 * 1024  # texts read as one: Arrow takes less than 2 GB


def read_columns(stats: pa.Array, fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table | None:
    """Read some fields of statistics, those of each file in its row; None if that goes wrong.

    It does where one text is not the JSON expected, or a value not of its type.
    """
    texts = pc.if_else(pc.greater(pc.binary_length(stats), 0), stats, "{}")
    texts = pc.fill_null(texts, "{}")
    # Each then is one object at least, and one at most if there are as many as texts.
    are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not len(texts) or not pc.all(are_objects).as_py():
        return None
    try:
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")
        lines = joined[0].as_buffer()
        found = pj.read_json(
            pa.BufferReader(lines),
            pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, OverflowError):
        return None
    return found if found.num_rows == len(texts) else None


def count_rows(files: pa.Table) -> int | None:
    """Add up the live rows of files in columns; None if of one file they are not told."""
    if not files.num_rows:
        return 0
    some = [files.slice(first, _AT_ONCE) for first in range(0, files.num_rows, _AT_ONCE)]
    counts = in_parallel(_count_some, some)
    told = [count for count in counts if count is not None]
    return sum(told) if len(told) == len(counts) else None


def _count_some(files: pa.Table) -> int | None:
    found = read_columns(files["stats"].combine_chunks(), [("numRecords", pa.int64())])
    if found is None:
        return None
    deleted = pc.struct_field(files["deletion_vector"].combine_chunks(), "cardinality")
    live = pc.subtract(found["numRecords"].combine_chunks(), pc.fill_null(deleted, 0))
    if live.null_count or pc.min(live).as_py() < 0:
        return None
    return int(pc.sum(live).as_py())
