"""Convert the structured statistics of checkpoints to JSON, the form that commits have."""

import math
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.protocol.scalars import date_at, moment_at
from headgate.protocol.statistics import statistics_text

_Plain: TypeAlias = Callable[[Any], object]

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def instants_of(file: pq.ParquetFile) -> frozenset[str]:
    """Return the paths of timestamps of type INT96: instants, but Arrow gives them no zone."""
    leaves = (file.schema.column(place) for place in range(len(file.schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def to_json(column: pa.Array, path: str, instants: Collection[str]) -> pa.Array:
    """Convert the structs of a column at `path` to JSON texts."""
    plain = _plain(column.type, path, instants)
    # Python cannot hold dates and timestamps outside of the years 1 to 9999.
    values = column.cast(_countable(column.type)).to_pylist()
    texts = [None if value is None else statistics_text(plain(value)) for value in values]
    return pa.array(texts, pa.string())


def _countable(kind: pa.DataType) -> pa.DataType:
    """Replace dates and timestamps in a type by integers."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_countable(field.type)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _plain(kind: pa.DataType, path: str, instants: Collection[str]) -> _Plain:
    """Return a function that converts values of a type to those of JSON statistics."""
    if pa.types.is_struct(kind):
        fields = {item.name: _plain(item.type, f"{path}.{item.name}", instants) for item in kind}
        return lambda values: {
            name: fields[name](value) for name, value in values.items() if value is not None
        }
    if pa.types.is_timestamp(kind):
        is_utc, per_second = kind.tz is not None or path in instants, _PER_SECOND[kind.unit]
        return lambda count: _moment(count * 10**6 // per_second, is_utc=is_utc)
    if pa.types.is_date32(kind):
        return lambda days: date_at(days).isoformat()
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_binary(kind):
        return lambda value: value.decode("latin-1")
    return lambda value: value


def _moment(since_1970: int, *, is_utc: bool) -> str:
    text = moment_at(since_1970, is_utc=is_utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _float(value: float) -> float | str:
    """Convert a float; JSON has no numbers for NaN and infinity, so Delta writes strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
