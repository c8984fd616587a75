"""The statistics of many files at once, as Arrow columns."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headgate.table.parallel import in_parallel

_BATCH: Final = 64 * 1024  # JSON texts joined into one: Arrow takes less than 2 GB


def read_columns(stats: pa.Array, fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table | None:
    """Parse some fields of statistics, one row a file; None if one is not as expected."""
    texts = pc.if_else(pc.greater(pc.binary_length(stats), 0), stats, "{}")
    texts = pc.fill_null(texts, "{}")
    # Each text is then at least one object, and exactly one if Arrow parses as many as texts.
    are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    if not len(texts) or not pc.all(are_objects).as_py():
        return None
    try:
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")
        lines = joined[0].as_buffer()
        parsed = pj.read_json(
            pa.BufferReader(lines),
            pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, OverflowError):
        return None
    return parsed if parsed.num_rows == len(texts) else None


def count_rows(files: pa.Table) -> int | None:
    """Return the number of live rows in a table of files; None if a file has no row count."""
    if not files.num_rows:
        return 0
    batches = [files.slice(first, _BATCH) for first in range(0, files.num_rows, _BATCH)]
    counts = in_parallel(_count_batch, batches)
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count_batch(files: pa.Table) -> int | None:
    parsed = read_columns(files["stats"].combine_chunks(), [("numRecords", pa.int64())])
    if parsed is None:
        return None
    deleted = pc.struct_field(files["deletion_vector"].combine_chunks(), "cardinality")
    live = pc.subtract(parsed["numRecords"].combine_chunks(), pc.fill_null(deleted, 0))
    if live.null_count or pc.min(live).as_py() < 0:
        return None
    return int(pc.sum(live).as_py())
