"""A batch as one statement for PostgreSQL: one round trip, and no lock is held over it.

The statement moves the clock if the epoch is as expected, and everything else in it is joined to
the row that this returns: when the epoch is another, nothing is written. Rows are sent as one
array for each column, in PostgreSQL's binary format.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from functools import cache
from typing import ClassVar, Final, TypeAlias

from headgate.catalog.stores.reader import Statement
from headgate.catalog.stores.rows import DECIDED_COLUMNS, Batch, CommitRow, Epoch, TableRow
from headgate.catalog.stores.writer import commit_values, decided_values
from headgate.errors import InvalidArgumentError
from headgate.names import is_unicode

_LARGEST: Final = 2**63


class Array(bytes):
    """An array in PostgreSQL's binary format."""

    __slots__ = ()
    name: ClassVar[str]  # of the type of its elements
    element: ClassVar[int]  # the id of that type
    oid: ClassVar[int]  # the id of its own type


class BigintArray(Array):
    """A `bigint[]`."""

    name, element, oid = "bigint", 20, 1016


class TextArray(Array):
    """A `text[]`."""

    name, element, oid = "text", 25, 1009


class ByteaArray(Array):
    """A `bytea[]`."""

    name, element, oid = "bytea", 17, 1001


Column: TypeAlias = tuple[str, type[Array]]

_TEXT: Final = frozenset({"txn_id", "way", "file_name", "ticket"})
_BYTEA: Final = frozenset(
    {"sha256", "intent", "summary", "content", "protocol", "metadata", "domains", "answer"}
)
_NULL: Final = struct.pack(">i", -1)


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(
        (name, TextArray if name in _TEXT else ByteaArray if name in _BYTEA else BigintArray)
        for name in names
    )


_DECIDED: Final = ", ".join(
    {
        "protocol": "protocol = coalesce(new.protocol, tables.protocol)",
        "metadata": "metadata = coalesce(new.metadata, tables.metadata)",
        # The stored value is kept where it is if it is the same, which large ones mostly are.
        "domains": "domains = CASE tables.domains WHEN new.domains THEN tables.domains "
        "ELSE new.domains END",
    }.get(column, f"{column} = new.{column}")
    for column in DECIDED_COLUMNS
)
# By name: a part of the statement, and the columns of its rows
_PARTS: Final[dict[str, tuple[str, tuple[Column, ...]]]] = {
    "sequences": (
        "INSERT INTO sequences SELECT new.* FROM moved, {rows}",
        _columns("sequence", "clock_ms", "txn_id"),
    ),
    "commits": (
        "INSERT INTO commits SELECT new.* FROM moved, {rows}",
        _columns("table_key", *CommitRow._fields),
    ),
    # A statement may change a row once, so this does what the next part would do for its tables.
    "decided": (
        f"UPDATE tables SET {_DECIDED}, published = greatest(tables.published, new.published) "
        "FROM moved, {rows} WHERE tables.key = new.key",
        _columns("key", *DECIDED_COLUMNS, "published"),
    ),
    "published": (
        "UPDATE tables SET published = new.last FROM moved, {rows} "
        "WHERE tables.key = new.key AND tables.published < new.last",
        _columns("key", "last"),
    ),
    # A published staged commit is in two files and needs no content here; inline content stays.
    "publications": (
        "UPDATE commits SET published_ms = new.now_ms, "
        "content = CASE way WHEN 'staged' THEN NULL ELSE content END FROM moved, {rows} "
        "WHERE table_key = new.key AND version BETWEEN new.first AND new.last "
        "AND published_ms IS NULL",
        _columns("key", "first", "last", "now_ms"),
    ),
    "rejections": (
        "INSERT INTO rejections SELECT new.* FROM moved, {rows}",
        _columns("txn_id", "intent", "answer", "decided_ms"),
    ),
}
# The publications known already change nothing, and are not counted.
_IS_NEWS: Final = (
    "EXISTS (SELECT FROM {rows} JOIN tables USING (key) WHERE tables.published < new.last)"
)
_MOVED: Final = (
    "UPDATE clock SET sequence = $3, clock_ms = greatest(clock_ms, $4), "
    "changes = changes + {count} WHERE sequence = $1 AND changes = $2 "
    "AND NOT EXISTS (SELECT FROM commits WHERE txn_id = ANY ($5::text[])) "
    "AND NOT EXISTS (SELECT FROM rejections WHERE txn_id = ANY ($5::text[])) "
    "RETURNING sequence, changes"
)


def statement(expected: Epoch, batch: Batch, *, is_counted: bool = True) -> Statement:
    """Return a statement that writes a batch and returns the epoch, or no row if it was another.

    It counts the batch if nothing in it takes a sequence.
    """
    published: dict[int, int] = {}
    for key, _, last, _ in batch.published:
        published[key] = max(last, published.get(key, last))
    decided = [(*values, published.pop(row.key, None)) for row, values in _decided(batch)]
    rows: dict[str, Collection[Sequence[object]]] = {
        "sequences": [(*clock, txn_id) for clock, txn_id in batch.clocks],
        "commits": [commit_values(*row) for row in batch.commits],
        "decided": decided,
        "published": list(published.items()),
        "publications": batch.published,
        "rejections": batch.rejections,
    }
    names = tuple(name for name, found in rows.items() if found)
    sequence, clock_ms = expected.sequence, 0
    for clock, _ in batch.clocks:
        sequence, clock_ms = clock
    values: list[object] = [*expected, sequence, clock_ms, _array(TextArray, batch.undecided)]
    for name in names:
        for (_, kind), column in zip(_PARTS[name][1], zip(*rows[name], strict=True), strict=True):
            values.append(_array(kind, column))
    return _text(names, is_counted and not batch.clocks), tuple(values)


def _decided(batch: Batch) -> zip[tuple[TableRow, tuple[object, ...]]]:
    return zip(batch.tables, decided_values(batch), strict=True)


@cache
def _text(names: tuple[str, ...], is_counted: bool) -> str:
    parts: list[str] = []
    first, count = 6, "0"
    for name in names:
        part, columns = _PARTS[name]
        arrays = ", ".join(
            f"${number}::{kind.name}[]" for number, (_, kind) in enumerate(columns, first)
        )
        rows = f"unnest({arrays}) AS new ({', '.join(column for column, _ in columns)})"
        parts.append(f"{name}_part AS ({part.format(rows=rows)})")
        if name == "published":
            count = f"{_IS_NEWS.format(rows=rows)}::int"
        first += len(columns)
    if not is_counted:
        count = "0"
    elif not {*names} <= {"published", "publications"}:
        count = "1"
    moved = _MOVED.format(count=count)
    return f"WITH {', '.join([f'moved AS ({moved})', *parts])} SELECT * FROM moved"


def _array(kind: type[Array], values: Collection[object]) -> Array:
    """Write an array: its dimensions, then the length and the bytes of each element."""
    parts = [struct.pack(">iiiii", 1, None in values, kind.element, len(values), 1)]
    if kind is BigintArray:
        try:
            parts += [_NULL if v is None else struct.pack(">iq", 8, v) for v in values]
        except struct.error:
            refuse_unless_storable(values)
            raise
    else:
        if kind is TextArray:
            refuse_unless_storable(values)
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                raw = value.encode() if isinstance(value, str) else value
                parts += (struct.pack(">i", len(raw)), raw)  # type: ignore[arg-type]
    return kind(b"".join(parts))


def is_storable(value: object) -> bool:
    """Return whether PostgreSQL can store a value: no NUL in text, no number above 64 bits."""
    # Compares types: `match` is slower, and a batch has thousands of values.
    if type(value) is str:
        return "\0" not in value and is_unicode(value)
    return type(value) is not int or -_LARGEST <= value < _LARGEST


def refuse_unless_storable(values: Collection[object]) -> None:
    """Raise for values that PostgreSQL cannot store, before it rejects the whole unit."""
    if all(map(is_storable, values)):
        return
    shown = next(repr(value) for value in values if not is_storable(value))
    raise InvalidArgumentError(
        f"PostgreSQL cannot store {shown if len(shown) < 80 else shown[:77] + '...'}.",
        remedy="Remove NUL characters and lone surrogates, and keep numbers within 64 bits.",
    )
