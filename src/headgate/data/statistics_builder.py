"""Build the `stats` of an `add` action, from rows or from other sources of bounds and counts.

Every value is between its bounds, also where those are truncated. A bound that cannot be written
exactly (NaN, infinity, years beyond 9999) is left out, which only costs file pruning. Names are
physical names, as in the data files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import copysign, isinf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import InvalidArgumentError
from headgate.names import fold
from headgate.protocol.schema.column_mapping import Leaf, leaf_columns
from headgate.protocol.schema.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID, StructType

_INDEXED: Final = "delta.dataSkippingNumIndexedCols"
_NAMED: Final = "delta.dataSkippingStatsColumns"
_PREFIX: Final = "delta.dataSkippingStringPrefixLength"
_DEFAULT_INDEXED: Final = 32
_DEFAULT_PREFIX: Final = 32

_LAST_CHARACTER: Final = "\U0010ffff"
_LAST_ASCII: Final = "\x7f"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic on what is UTC already


def indexed_columns(
    schema: StructType, partition_columns: Sequence[str], properties: Mapping[str, str]
) -> list[Leaf]:
    """Choose the columns that get statistics, by the table's properties."""
    stored = StructType(tuple(f for f in schema.fields if f.name not in partition_columns))
    leaves = [leaf for leaf in leaf_columns(stored) if leaf.type != VOID]
    if (named := properties.get(_NAMED)) is not None:
        chosen = [[fold(part) for part in path] for path in _names(named)]
        return [
            leaf
            for leaf in leaves
            if any(list(map(fold, leaf.path[: len(path)])) == path for path in chosen)
        ]
    most = number(properties, _INDEXED, _DEFAULT_INDEXED)
    return leaves if most < 0 else leaves[:most]


class StatisticsBuilder:
    """Collects the statistics of one file, batch by batch or column by column."""

    def __init__(
        self, leaves: Sequence[Leaf], properties: Mapping[str, str], *, tight: bool = False
    ) -> None:
        self.columns = [ColumnStatistics(leaf) for leaf in leaves]
        self.num_records = 0
        self._tight = tight
        self._prefix = number(properties, _PREFIX, _DEFAULT_PREFIX)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, whose columns have physical names."""
        self.num_records += rows.num_rows
        for column in self.columns:
            column.add(rows)

    def to_json(self) -> str:
        """Return the JSON for `stats`."""
        lowest: dict[str, Any] = {}
        highest: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for column in self.columns:
            path = column.leaf.physical
            if column.nulls is not None:
                _put(nulls, path, str(column.nulls))
            if (bound := column.bound(self._prefix, is_upper=False)) is not None:
                _put(lowest, path, bound)
            if (bound := column.bound(self._prefix, is_upper=True)) is not None:
                _put(highest, path, bound)
        stats: dict[str, Any] = {"numRecords": str(self.num_records)}
        stats |= {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
        if self._tight:
            stats["tightBounds"] = "true"
        return _json(stats)


@dataclass(slots=True)
class ColumnStatistics:
    """The statistics of a column so far; bounds of dates are days, of timestamps microseconds."""

    leaf: Leaf
    nulls: int | None = 0  # None: not counted
    low: Any = None
    high: Any = None
    is_unbounded: bool = False  # has values that no bound can be written for

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the values of more rows."""
        values = rows.column(self.leaf.physical[0])
        for name in self.leaf.physical[1:]:
            values = pc.struct_field(values, [values.type.get_field_index(name)])
        self.count(values.null_count)
        if values.null_count == len(values) or self.is_unbounded or not _has_bounds(values.type):
            return
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            # NaN is the greatest value for some readers and unordered for others.
            self.is_unbounded = True
            return
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_date(values.type):  # Python has no dates beyond the year 9999
            values = values.cast(pa.int32())
        bounds = pc.min_max(values)
        self.widen(bounds["min"].as_py(), bounds["max"].as_py())

    def count(self, nulls: int | None) -> None:
        """Add the number of nulls of more rows; None if it is unknown."""
        self.nulls = None if self.nulls is None or nulls is None else self.nulls + nulls

    def widen(self, low: Any, high: Any) -> None:
        """Add the bounds of more rows."""
        self.low = low if self.low is None else min(self.low, low, key=_order)
        self.high = high if self.high is None else max(self.high, high, key=_order)

    def bound(self, prefix: int, *, is_upper: bool) -> str | None:
        """Return the lower or the upper bound as JSON; None if there is none."""
        value = self.high if is_upper else self.low
        if value is None or self.is_unbounded:
            return None
        if isinstance(value, str):
            text = truncated_max(value, prefix) if is_upper else truncated_min(value, prefix)
            return None if text is None else json.dumps(text, ensure_ascii=False)
        if self.leaf.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return self._moment(-(-value // 1000) if is_upper else value // 1000)
        if self.leaf.type == DATE:
            return _day(value)
        if isinstance(value, float) and value == 0:
            value = 0.0 if is_upper else -0.0
        return _exact(value)

    def _moment(self, milliseconds: int) -> str | None:
        try:
            at = _EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            return None
        zone = "Z" if self.leaf.type == TIMESTAMP else ""
        return f'"{at.isoformat(timespec="milliseconds")}{zone}"'


# Truncation


def truncated_min(text: str, length: int) -> str:
    """Truncate a lower bound: a prefix sorts before every string that begins with it."""
    return text[:length] if length > 0 else ""


def truncated_max(text: str, length: int) -> str | None:
    """Truncate an upper bound and raise it, so that it still sorts after the whole string."""
    # The character at the end must sort after the one it replaces; if the string has the last
    # character of Unicode there, a longer prefix is kept.
    if len(text) <= length:
        return text
    if length <= 0:
        return None
    end = length
    while end < len(text) and text[end] == _LAST_CHARACTER:
        end += 1
        if end > 2 * length:
            return None
    if end == len(text):
        return text
    return text[:end] + (_LAST_ASCII if text[end] < _LAST_ASCII else _LAST_CHARACTER)


# Values


def _has_bounds(of: pa.DataType) -> bool:
    kinds = ("integer", "floating", "decimal", "date", "timestamp", "string")
    return any(getattr(pa.types, f"is_{kind}")(of) for kind in kinds)


def _order(value: Any) -> Any:
    # Readers compare strings by their UTF-8 bytes, which is the order of code points except for
    # surrogates, and Arrow's strings have none. Negative zero is smaller than zero.
    return (value, copysign(1, value)) if isinstance(value, float) else value


def _day(days: int) -> str | None:
    try:
        return f'"{(_EPOCH + timedelta(days=days)).date().isoformat()}"'
    except OverflowError:
        return None


def _exact(value: int | float | Decimal) -> str | None:
    if isinstance(value, float) and isinf(value):
        return None
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value)


def _put(tree: dict[str, Any], path: Sequence[str], value: str) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _json(tree: dict[str, Any]) -> str:
    # Leaves are JSON already: a decimal has more digits than a float.
    members = (
        f"{json.dumps(name, ensure_ascii=False)}:"
        f"{_json(value) if isinstance(value, dict) else value}"
        for name, value in tree.items()
    )
    return "{" + ",".join(members) + "}"


# Properties


def number(properties: Mapping[str, str], key: str, default: int) -> int:
    """Read a table property that is an integer."""
    try:
        return int(properties.get(key, default))
    except ValueError:
        raise InvalidArgumentError(f"{key} is {properties[key]!r}, not an integer.") from None


def _names(text: str) -> list[list[str]]:
    """Parse a comma-separated list of columns, with dots between nested names and backquotes."""
    return [
        [part.replace("`", "").strip() for part in _PARTS.findall(path)]
        for path in _PATHS.findall(text)
        if path.strip()
    ]


_PATHS: Final = re.compile("(?:`[^`]*`|[^`,])+")
_PARTS: Final = re.compile("(?:`[^`]*`|[^`.])+")
