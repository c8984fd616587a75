"""Which rows of which files match a statement, found by Spark and collected as bitmaps.

One bit per row, so the executors need neither this package nor the catalog. How a file is changed
depends on how many of its rows match.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import InvalidArgumentError
from headgate.protocol.actions import AddFile
from headgate.protocol.features import is_active
from headgate.protocol.statistics import num_records
from headgate.spark.failures import translated
from headgate.spark.scan import FILE, ROW, Files, deleted_in
from headgate.table.snapshot import Snapshot

MODE: Final = "headgate.dml"
_BUCKET: Final = 32_768  # rows that one of Spark's bitmaps covers
_REWRITTEN_FROM: Final = 0.5  # of a file's rows: the remaining ones are then rewritten


class Mode(enum.Enum):
    """How rows leave a file."""

    BY_COST = "auto"
    COPY_ON_WRITE = "copy-on-write"
    DELETION_VECTORS = "deletion-vectors"


@dataclass(frozen=True)
class Hit:
    """A file, and the ascending positions of its rows that match."""

    file: AddFile
    rows: Sequence[int]

    @property
    def live(self) -> int:
        """How many rows the file has that are not deleted by its deletion vector."""
        vector = self.file.deletion_vector
        return (num_records(self.file) or 0) - (0 if vector is None else vector.cardinality)


@dataclass(frozen=True)
class Split:
    """How the files with matching rows are changed."""

    whole: Sequence[Hit]  # every row is deleted
    vectored: Sequence[Hit]  # rows are marked as deleted
    rewritten: Sequence[Hit]  # the remaining rows are written to new files

    @property
    def num_rows(self) -> int:
        return sum(len(hit.rows) for hit in (*self.whole, *self.vectored, *self.rewritten))


def find_hits(found: DataFrame, files: Files) -> list[Hit]:
    """Collect the positions of rows: a DataFrame with `FILE` and `ROW`, without duplicates."""
    place = F.col(ROW) + 1  # the functions count from one
    bits = found.groupBy(FILE, F.bitmap_bucket_number(place).alias("bucket")).agg(
        F.bitmap_construct_agg(F.bitmap_bit_position(place)).alias("bits")
    )
    with translated():
        return hits_of(bits.collect(), "bits", files)


def hits_of(rows: Iterable[Row], bits: str, files: Files) -> list[Hit]:
    """Read Spark's bitmaps, each with its file and bucket; a file without any bit is left out."""
    by_file: dict[str, list[tuple[int, bytes]]] = {}
    for row in rows:
        by_file.setdefault(row[FILE], []).append((row["bucket"], bytes(row[bits])))
    hits = [Hit(files.find(named), positions(parts)) for named, parts in by_file.items()]
    return sorted((hit for hit in hits if hit.rows), key=lambda hit: hit.file.path)


def positions(parts: Iterable[tuple[int, bytes]]) -> list[int]:
    """Convert Spark's bitmaps, each with its bucket number, to positions in a file."""
    rows: list[int] = []
    for bucket, bits in sorted(parts):
        flags = pa.Array.from_buffers(pa.bool_(), 8 * len(bits), [None, pa.py_buffer(bits)])
        places = pc.indices_nonzero(flags).cast(pa.int64())
        rows.extend(pc.add(places, (bucket - 1) * _BUCKET).to_pylist())
    return rows


def split(snapshot: Snapshot, hits: Sequence[Hit]) -> Split:
    """Decide how to change each file, by the table's property or by how many rows match."""
    mode = _mode(snapshot)
    whole, vectored, rewritten = [], [], []
    for hit in hits:
        live = None if num_records(hit.file) is None else hit.live
        if live is not None and len(hit.rows) >= live:
            whole.append(hit)
        elif _is_rewritten(mode, len(hit.rows), live):
            rewritten.append(hit)
        else:
            vectored.append(hit)
    return Split(whole, vectored, rewritten)


def _is_rewritten(mode: Mode, num_hit: int, live: int | None) -> bool:
    if mode is Mode.COPY_ON_WRITE or live is None:  # a vector needs the number of records
        return True
    return mode is Mode.BY_COST and num_hit >= live * _REWRITTEN_FROM


def vectors(snapshot: Snapshot, hits: Sequence[Hit]) -> list[tuple[AddFile, list[int]]]:
    """Return all deleted rows of each file: those deleted before, and the matching ones."""
    return [(hit.file, [*deleted_in(snapshot, hit.file), *hit.rows]) for hit in hits]


def _mode(snapshot: Snapshot) -> Mode:
    value = snapshot.properties.get(MODE, Mode.BY_COST.value)
    try:
        mode = Mode(value)
    except ValueError:
        known = ", ".join(mode.value for mode in Mode)
        raise InvalidArgumentError(f"{MODE} is {value!r}, not one of {known}.") from None
    if is_active(snapshot.protocol, snapshot.metadata, "deletionVectors"):
        return mode
    if mode is Mode.DELETION_VECTORS:
        raise InvalidArgumentError(
            f"{MODE} asks for deletion vectors, and {snapshot.label} has none.",
            remedy="Set delta.enableDeletionVectors to true.",
        )
    return Mode.COPY_ON_WRITE
