"""Rows compared exactly: not a number is itself, and nought has a sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa


def exactly(value: object) -> str:
    """Give a value in a spelling that is the same only for the same value."""
    match value:
        case float():
            return f"float {value!r}"
        case datetime():
            zoned = value.tzinfo is not None
            return f"{value.astimezone(UTC) if zoned else value} {'UTC' if zoned else 'local'}"
        case Mapping():
            return "{" + ", ".join(f"{k}: {exactly(v)}" for k, v in value.items()) + "}"
        case list() if value and all(isinstance(item, tuple) for item in value):  # a map
            return "map " + ", ".join(sorted(f"{exactly(k)}: {exactly(v)}" for k, v in value))
        case list():
            return "[" + ", ".join(map(exactly, value)) + "]"
        case _:
            return f"{type(value).__name__} {value!r}"


def rows_of(table: pa.Table) -> list[str]:
    """Give rows whatever their order, each in a spelling of its own."""
    columns = [column.to_pylist() for column in table.columns]
    return sorted(" | ".join(map(exactly, row)) for row in zip(*columns, strict=True))


def types_of(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(field.name, _bare(field.type)) for field in table.schema]


def _bare(of: pa.DataType) -> pa.DataType:
    """Forget what fields within may hold, and what each library calls the items of lists."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(f.name, _bare(f.type)) for f in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return pa.list_(_bare(of.value_type))
    if pa.types.is_map(of):
        return pa.map_(_bare(of.key_type), _bare(of.item_type))
    if pa.types.is_large_string(of) or of == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(of) or of == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(of):
        return pa.timestamp("us", None if of.tz is None else "UTC")
    return of


def difference(ours: pa.Table, theirs: pa.Table) -> str | None:
    """Say in what two tables differ, if in anything."""
    if types_of(ours) != types_of(theirs):
        return f"types: {types_of(ours)}\n  against {types_of(theirs)}"
    one, other = Counter(rows_of(ours)), Counter(rows_of(theirs))
    if one == other:
        return None
    return f"rows: only here {list(one - other)}\n  only there {list(other - one)}"
