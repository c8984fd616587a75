"""Parquet footers -> the statistics of data files that somebody else wrote, without their rows.

A footer tells less than the rows do: where it leaves a doubt, the bound or the count is left out,
which only costs skipping. What makes a doubt, by the kind of column:

- Floats. Delta orders NaN above all else, and Parquet's writers do as they please with it. Of
  parquet-mr (Spark's writer) 1.10 to 1.17 order it above all else too, so that the greatest value
  is NaN once there is one. The ones before compare so that NaN mostly drops out, 1.18 counts it
  apart, and Arrow and the others leave it out by design: their bounds look the same with and
  without NaN. So the bounds of floats are taken from those versions alone, and none of a column
  that has NaN, neither the upper nor the lower, as when rows are looked at.
- Texts, decimals in bytes, unsigned numbers. Old writers ordered bytes as if they had signs, and
  a footer read by Arrow does not show which of its two pairs of bounds were given. So bounds are
  taken from writers known to order them rightly. A text that a writer cut short is a bound still,
  and one that is too long for the footer is missing there.
- Dates and timestamps. Spark can write them in the calendar that was used before 1582, and then
  says so in the footer; readers move the values, and nobody would move the bounds.
- Arrays, maps and variants. The columns in which they lie count the nulls of their elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from itertools import count
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.data.statistics import Column, Statistics
from headgate.protocol.schema.column_mapping import Leaf
from headgate.protocol.schema.types import (
    BITS,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Path,
    Primitive,
)

_JAVA: Final = re.compile(r"parquet-mr version (\d+)\.(\d+)\.")
_ARROW: Final = "parquet-cpp-arrow version "
_ORDERED: Final = (1, 10)  # the first of parquet-mr to order bytes and NaN as it should
_COUNTING_NAN: Final = (1, 18)  # the first of parquet-mr to leave NaN out of the bounds

_SPARK: Final = b"org.apache.spark.version"
_OLD_CALENDAR: Final = b"org.apache.spark.legacyDateTime"

_EXACT: Final = Context(prec=100)

_Reading = Callable[[Any, Any], tuple[Any, Any] | None]


def footer_statistics(
    metadata: pq.FileMetaData,
    leaves: Sequence[Leaf],
    properties: Mapping[str, str],
    *,
    tight: bool = False,
) -> str:
    """Give the statistics of a data file out of its footer."""
    statistics = Statistics(leaves, properties, tight=tight)
    statistics.num_records = metadata.num_rows
    writer = _Writer.of(metadata)
    places = dict(_places(metadata.schema.to_arrow_schema(), (), count()))
    groups = [
        group
        for i in range(metadata.num_row_groups)
        if (group := metadata.row_group(i)).num_rows  # an empty one tells nothing, and may say so
    ]
    for column in statistics.columns:
        place = places.get(column.leaf.physical)
        if place is None:
            column.count(None)
            continue
        read = _reading(column.leaf.type, metadata.schema.column(place), writer)
        for group in groups:
            _add(column, group.num_rows, group.column(place).statistics, read)
    return statistics.to_json()


def _add(column: Column, rows: int, found: pq.Statistics | None, read: _Reading | None) -> None:
    """Take in what the footer says of a column in one row group."""
    nulls = None if found is None else found.null_count
    column.count(nulls)
    if nulls == rows:
        return
    bounds = None
    if found is not None and found.has_min_max and read is not None:
        bounds = read(found.min_raw, found.max_raw)
    if bounds is None:
        column.is_unbounded = True
    else:
        column.widen(*bounds)


# Who wrote it


@dataclass(frozen=True, slots=True)
class _Writer:
    """What is known of a file by who wrote it."""

    shows_nan: bool
    orders_bytes: bool
    may_move_days: bool

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> _Writer:
        by = metadata.created_by or ""
        java = _JAVA.match(by)
        version = (int(java[1]), int(java[2])) if java else (0, 0)
        told = metadata.metadata or {}
        return cls(
            shows_nan=_ORDERED <= version < _COUNTING_NAN,
            orders_bytes=version >= _ORDERED or by.startswith(_ARROW),
            may_move_days=_OLD_CALENDAR in told or told.get(_SPARK, b"").startswith(b"2."),
        )


# Where a column lies


def _places(
    fields: Iterable[pa.Field], above: Path, numbers: Iterator[int]
) -> Iterator[tuple[Path, int]]:
    """Tell each column's number in the file; what lies within arrays and maps only counts."""
    for field in fields:
        path, of = (*above, field.name), _plain(field.type)
        if pa.types.is_struct(of):
            yield from _places(of.fields, path, numbers)
        elif of.num_fields:
            _pass_over(of, numbers)
        else:
            yield path, next(numbers)


def _pass_over(of: pa.DataType, numbers: Iterator[int]) -> None:
    of = _plain(of)
    for i in range(of.num_fields):
        _pass_over(of.field(i).type, numbers)
    if not of.num_fields:
        next(numbers)


def _plain(of: pa.DataType) -> pa.DataType:
    return of.storage_type if isinstance(of, pa.BaseExtensionType) else of


# How bounds are read


def _reading(of: DataType, column: pq.ColumnSchema, writer: _Writer) -> _Reading | None:
    """Tell how a column's bounds are to be read; not at all where they are none of its type."""
    if of in (DATE, TIMESTAMP, TIMESTAMP_NTZ) and writer.may_move_days:
        return None
    match of, column.physical_type, json.loads(column.logical_type.to_json()):
        case Primitive(name), "INT32" | "INT64", {"Type": "None"} if name in BITS:
            return _same
        case Primitive(name), _, {"Type": "Int", "isSigned": True} if name in BITS:
            return _same
        case Primitive(name), _, {"Type": "Int", "bitWidth": own} if own < BITS.get(name, 0):
            return _unsigned if writer.orders_bytes else None
        case (Primitive("float"), "FLOAT", _) | (Primitive("double"), "FLOAT" | "DOUBLE", _):
            return _floats if writer.shows_nan else None
        case Primitive("string"), "BYTE_ARRAY", {"Type": "String"}:
            return _texts if writer.orders_bytes else None
        case Primitive("date"), "INT32", {"Type": "Date"}:
            return _same
        case Primitive("timestamp" | "timestamp_ntz"), "INT64", {
            "Type": "Timestamp",
            "isAdjustedToUTC": adjusted,
            "timeUnit": unit,
        } if adjusted == (of == TIMESTAMP):
            return _MOMENTS[unit]
        case DecimalType(scale=most), _, {"Type": "Decimal", "scale": scale} if scale <= most:
            if column.physical_type in ("INT32", "INT64") or writer.orders_bytes:
                return partial(_decimals, scale)
    return None


def _same(low: Any, high: Any) -> tuple[Any, Any]:
    return low, high


def _unsigned(low: int, high: int) -> tuple[int, int]:
    return low & 0xFFFFFFFF, high & 0xFFFFFFFF


def _floats(low: float, high: float) -> tuple[float, float] | None:
    return None if isnan(low) or isnan(high) else (low, high)


def _texts(low: bytes, high: bytes) -> tuple[str, str] | None:
    try:
        return low.decode(), high.decode()
    except UnicodeDecodeError:  # cut short within a character
        return None


def _milliseconds(low: int, high: int) -> tuple[int, int]:
    return low * 1000, high * 1000


def _nanoseconds(low: int, high: int) -> tuple[int, int]:
    return low // 1000, -(-high // 1000)


def _decimals(scale: int, low: int | bytes, high: int | bytes) -> tuple[Decimal, Decimal]:
    return _decimal(low, scale), _decimal(high, scale)


def _decimal(stored: int | bytes, scale: int) -> Decimal:
    if isinstance(stored, bytes):
        stored = int.from_bytes(stored, "big", signed=True)
    return Decimal(stored).scaleb(-scale, _EXACT)


_MOMENTS: Final[Mapping[str, _Reading]] = {
    "milliseconds": _milliseconds,
    "microseconds": _same,
    "nanoseconds": _nanoseconds,
}
