"""Derive the statistics of data files of other writers from their Parquet footers.

A footer holds less than the rows do: a bound or count that is uncertain is left out, which only
costs file pruning. What is uncertain depends on the type of the column:

- Floats. Delta orders NaN above all other values; Parquet writers differ. parquet-mr (Spark's
  writer) 1.10 to 1.17 orders NaN as Delta does, so the upper bound is NaN if the column has one.
  Earlier versions mostly drop NaN, 1.18 counts it separately, and Arrow and others exclude it:
  their bounds are the same with and without NaN. So bounds of floats are used only from those
  versions, and neither bound of a column that has NaN, as when statistics are computed from rows.
- Strings, decimals stored as bytes, unsigned integers. Old writers compared bytes as signed, and
  Arrow does not show which of the two pairs of bounds in the footer it read. So bounds are used
  only from writers that order bytes correctly. A string that was truncated is still a bound, and
  one that is too long for the footer is missing.
- Dates and timestamps. Spark can write them in the Julian calendar and marks that in the footer;
  readers convert the values, but would not convert the bounds.
- Arrays, maps and variants. Their Parquet columns count the nulls of the elements.
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

from headgate.data.statistics_builder import ColumnStatistics, StatisticsBuilder
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import Leaf

_JAVA: Final = re.compile(r"parquet-mr version (\d+)\.(\d+)\.")
_ARROW: Final = "parquet-cpp-arrow version "
_ORDERED: Final = (1, 10)  # the first of parquet-mr to order bytes and NaN as Delta does
_COUNTING_NAN: Final = (1, 18)  # the first of parquet-mr to leave NaN out of the bounds

_SPARK: Final = b"org.apache.spark.version"
_OLD_CALENDAR: Final = b"org.apache.spark.legacyDateTime"

_EXACT: Final = Context(prec=100)

_Reader = Callable[[Any, Any], tuple[Any, Any] | None]


def footer_statistics(
    metadata: pq.FileMetaData,
    leaves: Sequence[Leaf],
    properties: Mapping[str, str],
    *,
    tight: bool = False,
) -> str:
    """Return the statistics of a data file, derived from its footer."""
    statistics = StatisticsBuilder(leaves, properties, tight=tight)
    statistics.num_records = metadata.num_rows
    writer = _Writer.of(metadata)
    places = dict(_places(metadata.schema.to_arrow_schema(), (), count()))
    groups = [
        group
        for i in range(metadata.num_row_groups)
        if (group := metadata.row_group(i)).num_rows  # an empty one may have misleading bounds
    ]
    for column in statistics.columns:
        place = places.get(column.leaf.physical)
        if place is None:
            column.count(None)
            continue
        read = _reader(column.leaf.type, metadata.schema.column(place), writer)
        for group in groups:
            _add(column, group.num_rows, group.column(place).statistics, read)
    return statistics.to_json()


def _add(
    column: ColumnStatistics, rows: int, footer: pq.Statistics | None, read: _Reader | None
) -> None:
    """Add the footer's statistics of a column in one row group."""
    nulls = None if footer is None else footer.null_count
    column.count(nulls)
    if nulls == rows:
        return
    bounds = None
    if footer is not None and footer.has_min_max and read is not None:
        bounds = read(footer.min_raw, footer.max_raw)
    if bounds is None:
        column.is_unbounded = True
    else:
        column.widen(*bounds)


# The writer


@dataclass(frozen=True, slots=True)
class _Writer:
    """Properties of a file that follow from which program wrote it."""

    shows_nan: bool
    orders_bytes: bool
    may_be_julian: bool

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> _Writer:
        by = metadata.created_by or ""
        java = _JAVA.match(by)
        version = (int(java[1]), int(java[2])) if java else (0, 0)
        pairs = metadata.metadata or {}
        return cls(
            shows_nan=_ORDERED <= version < _COUNTING_NAN,
            orders_bytes=version >= _ORDERED or by.startswith(_ARROW),
            may_be_julian=_OLD_CALENDAR in pairs or pairs.get(_SPARK, b"").startswith(b"2."),
        )


# Column numbers


def _places(
    fields: Iterable[pa.Field], above: delta.Path, numbers: Iterator[int]
) -> Iterator[tuple[delta.Path, int]]:
    """Yield each column's number in the file; columns within arrays and maps are only counted."""
    for field in fields:
        path, of = (*above, field.name), _plain(field.type)
        if pa.types.is_struct(of):
            yield from _places(of.fields, path, numbers)
        elif of.num_fields:
            _skip(of, numbers)
        else:
            yield path, next(numbers)


def _skip(of: pa.DataType, numbers: Iterator[int]) -> None:
    of = _plain(of)
    for i in range(of.num_fields):
        _skip(of.field(i).type, numbers)
    if not of.num_fields:
        next(numbers)


def _plain(of: pa.DataType) -> pa.DataType:
    return of.storage_type if isinstance(of, pa.BaseExtensionType) else of


# Conversion of bounds


def _reader(of: delta.DataType, column: pq.ColumnSchema, writer: _Writer) -> _Reader | None:
    """Return the function that converts a column's bounds; None if they cannot be used."""
    if of in (delta.DATE, delta.TIMESTAMP, delta.TIMESTAMP_NTZ) and writer.may_be_julian:
        return None
    match of, column.physical_type, json.loads(column.logical_type.to_json()):
        case delta.Primitive(name), "INT32" | "INT64", {"Type": "None"} if name in delta.BITS:
            return _same
        case delta.Primitive(name), _, {"Type": "Int", "isSigned": True} if name in delta.BITS:
            return _same
        case delta.Primitive(name), _, {"Type": "Int", "bitWidth": own} if own < delta.BITS.get(
            name, 0
        ):
            return _unsigned if writer.orders_bytes else None
        case (delta.Primitive("float"), "FLOAT", _) | (
            delta.Primitive("double"),
            "FLOAT" | "DOUBLE",
            _,
        ):
            return _floats if writer.shows_nan else None
        case delta.Primitive("string"), "BYTE_ARRAY", {"Type": "String"}:
            return _texts if writer.orders_bytes else None
        case delta.Primitive("date"), "INT32", {"Type": "Date"}:
            return _same
        case delta.Primitive("timestamp" | "timestamp_ntz"), "INT64", {
            "Type": "Timestamp",
            "isAdjustedToUTC": adjusted,
            "timeUnit": unit,
        } if adjusted == (of == delta.TIMESTAMP):
            return _MOMENTS[unit]
        case delta.DecimalType(scale=most), _, {"Type": "Decimal", "scale": scale} if scale <= most:
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
    except UnicodeDecodeError:  # truncated within a character
        return None


def _decimals(scale: int, low: int | bytes, high: int | bytes) -> tuple[Decimal, Decimal]:
    return _decimal(low, scale), _decimal(high, scale)


def _decimal(stored: int | bytes, scale: int) -> Decimal:
    if isinstance(stored, bytes):
        stored = int.from_bytes(stored, "big", signed=True)
    return Decimal(stored).scaleb(-scale, _EXACT)


_MOMENTS: Final[Mapping[str, _Reader]] = {
    "milliseconds": lambda low, high: (low * 1000, high * 1000),
    "microseconds": _same,
    "nanoseconds": lambda low, high: (low // 1000, -(-high // 1000)),
}
