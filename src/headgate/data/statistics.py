"""Rows, or what else tells of them -> the statistics of a data file, as its `add` carries them.

Bounds always hold: every value lies between them, also where they are cut short. A bound that
cannot be told exactly (NaN, infinity, years beyond 9999) is left out, which only costs skipping.
Names are physical ones, as the files have them.
"""

from __future__ import annotations

import json
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
    """Choose the columns to keep statistics of, as the table's properties say."""
    stored = StructType(tuple(f for f in schema.fields if f.name not in partition_columns))
    leaves = [leaf for leaf in leaf_columns(stored) if leaf.type != VOID]
    if (named := properties.get(_NAMED)) is not None:
        wanted = [tuple(fold(part) for part in path) for path in _names(named)]
        return [leaf for leaf in leaves if any(_is_below(leaf.path, path) for path in wanted)]
    most = number(properties, _INDEXED, _DEFAULT_INDEXED)
    return leaves if most < 0 else leaves[:most]


class Statistics:
    """Gathered over the rows of one file, batch by batch, or put in by who knows them."""

    def __init__(
        self, leaves: Sequence[Leaf], properties: Mapping[str, str], *, tight: bool = False
    ) -> None:
        self.columns = [Column(leaf) for leaf in leaves]
        self.num_records = 0
        self._tight = tight
        self._prefix = number(properties, _PREFIX, _DEFAULT_PREFIX)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take more rows in, in columns of physical names."""
        self.num_records += rows.num_rows
        for column in self.columns:
            column.add(rows)

    def to_json(self) -> str:
        """Write what was gathered as `stats`."""
        lowest: dict[str, Any] = {}
        highest: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for column in self.columns:
            path = column.leaf.physical
            if column.nulls is not None:
                _put(nulls, path, str(column.nulls))
            if (bound := column.lower_bound(self._prefix)) is not None:
                _put(lowest, path, bound)
            if (bound := column.upper_bound(self._prefix)) is not None:
                _put(highest, path, bound)
        gathered: dict[str, Any] = {"numRecords": str(self.num_records)}
        gathered |= {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
        if self._tight:
            gathered["tightBounds"] = "true"
        return _written(gathered)


@dataclass(slots=True)
class Column:
    """What is known of one column so far.

    Bounds of dates are in days, those of timestamps in microseconds.
    """

    leaf: Leaf
    nulls: int | None = 0  # none: nobody has counted them
    low: Any = None
    high: Any = None
    is_unbounded: bool = False  # holds what no bound can be told of

    def add(self, rows: pa.RecordBatch) -> None:
        """Take more rows in."""
        values = rows.column(self.leaf.physical[0])
        for name in self.leaf.physical[1:]:
            values = pc.struct_field(values, [values.type.get_field_index(name)])
        self.count(values.null_count)
        if values.null_count == len(values) or self.is_unbounded or not _has_bounds(values.type):
            return
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            # NaN is the greatest for some readers and out of order for others.
            self.is_unbounded = True
            return
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        elif pa.types.is_date(values.type):  # years beyond 9999 are no dates to Python
            values = values.cast(pa.int32())
        found = pc.min_max(values)
        self.widen(found["min"].as_py(), found["max"].as_py())

    def count(self, nulls: int | None) -> None:
        """Take the nulls of more rows in."""
        self.nulls = None if self.nulls is None or nulls is None else self.nulls + nulls

    def widen(self, low: Any, high: Any) -> None:
        """Take the bounds of more rows in."""
        self.low = low if self.low is None else min(self.low, low, key=_order)
        self.high = high if self.high is None else max(self.high, high, key=_order)

    def lower_bound(self, prefix: int) -> str | None:
        """Write the lower bound as JSON, where there is one to tell."""
        if self.low is None or self.is_unbounded:
            return None
        if isinstance(self.low, str):
            return json.dumps(truncated_min(self.low, prefix), ensure_ascii=False)
        if self.leaf.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return self._moment(self.low // 1000)
        if self.leaf.type == DATE:
            return _day(self.low)
        return _exact(-0.0 if self.low == 0 and isinstance(self.low, float) else self.low)

    def upper_bound(self, prefix: int) -> str | None:
        """Write the upper bound as JSON, where there is one to tell."""
        if self.high is None or self.is_unbounded:
            return None
        if isinstance(self.high, str):
            bound = truncated_max(self.high, prefix)
            return None if bound is None else json.dumps(bound, ensure_ascii=False)
        if self.leaf.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return self._moment(-(-self.high // 1000))
        if self.leaf.type == DATE:
            return _day(self.high)
        return _exact(0.0 if self.high == 0 and isinstance(self.high, float) else self.high)

    def _moment(self, milliseconds: int) -> str | None:
        try:
            at = _EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            return None
        zone = "Z" if self.leaf.type == TIMESTAMP else ""
        return f'"{at.isoformat(timespec="milliseconds")}{zone}"'


# Cutting texts short


def truncated_min(text: str, length: int) -> str:
    """Cut a lower bound short: a beginning sorts before all that begins with it."""
    return text[:length] if length > 0 else ""


def truncated_max(text: str, length: int) -> str | None:
    """Cut an upper bound short and raise it, so that it still sorts after the whole text.

    The character put at the end must sort after the one it replaces; where the text itself has
    the last character there is, the beginning is kept longer.
    """
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
    return bool(
        pa.types.is_integer(of)
        or pa.types.is_floating(of)
        or pa.types.is_decimal(of)
        or pa.types.is_date(of)
        or pa.types.is_timestamp(of)
        or pa.types.is_string(of)
    )


def _order(value: Any) -> Any:
    # Texts sort by their bytes, as readers compare them; surrogates aside this is by code point,
    # and Arrow's texts have none. Of zeros the negative one is the smaller.
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


def _written(tree: dict[str, Any]) -> str:
    # Leaves are JSON already: a decimal has more digits than a float could carry.
    members = (
        f"{json.dumps(name, ensure_ascii=False)}:"
        f"{_written(value) if isinstance(value, dict) else value}"
        for name, value in tree.items()
    )
    return "{" + ",".join(members) + "}"


# Properties


def number(properties: Mapping[str, str], key: str, default: int) -> int:
    """Read a table's property that is a number."""
    try:
        return int(properties.get(key, default))
    except ValueError:
        raise InvalidArgumentError(f"{key} is {properties[key]!r}, not a number.") from None


def _is_below(path: Sequence[str], top: Sequence[str]) -> bool:
    return [fold(part) for part in path[: len(top)]] == list(top)


def _names(text: str) -> list[list[str]]:
    """Read a list of columns: names with commas between, dots within, backticks around odd ones."""
    paths: list[list[str]] = [[""]]
    is_quoted = False
    for character in text:
        if character == "`":
            is_quoted = not is_quoted
        elif is_quoted or character not in ",.":
            paths[-1][-1] += character
        elif character == ".":
            paths[-1].append("")
        else:
            paths.append([""])
    return [[part.strip() for part in path] for path in paths if any(part.strip() for part in path)]
