"""Many rows in one PostgreSQL statement, and many statements in one.

Rows are sent as one array literal for each column, so that the cost of a parameter is paid once
for each column and not for each value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

from headgate.catalog.stores.reader import Statement, Values

_TEXT: Final = frozenset(
    {"id", "state", "location", "diverged", "ticket", "kind", "txn_id", "way", "file_name"}
)
_BYTES: Final = frozenset(
    {"protocol", "metadata", "domains", "sha256", "intent", "summary", "content"}
)
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


def inserted(table: str, columns: tuple[str, ...], rows: Sequence[Values]) -> Statement:
    """Return a statement that inserts rows with values for all columns, in order."""
    return _insert(table, columns), tuple(map(array, zip(*rows, strict=True)))


def updated(table: str, columns: tuple[str, ...], rows: Sequence[Values]) -> Statement:
    """Return a statement that updates rows, each identified by the first column."""
    return _update(table, columns), tuple(map(array, zip(*rows, strict=True)))


def merged(statements: Sequence[Statement]) -> Statement:
    """Return one statement for several; none may read or change what another one changes."""
    texts, values = zip(*statements, strict=True)
    return _merge(texts, tuple(map(len, values))), tuple(v for many in values for v in many)


def array(values: Collection[object]) -> str:
    """Return an array literal."""
    convert = str if set(map(type, values)) == {int} else _element  # most columns are numbers
    return "{" + ",".join(map(convert, values)) + "}"


def _element(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case _:
            return str(value)


def _type(column: str) -> str:
    return "text" if column in _TEXT else "bytea" if column in _BYTES else "bigint"


def _arrays(columns: tuple[str, ...]) -> str:
    return ", ".join(f"${n}::{_type(column)}[]" for n, column in enumerate(columns, 1))


@lru_cache
def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} SELECT * FROM unnest({_arrays(columns)})"


@lru_cache
def _update(table: str, columns: tuple[str, ...]) -> str:
    changes = ", ".join(f"{column} = new.{column}" for column in columns[1:])
    return (
        f"UPDATE {table} SET {changes} FROM unnest({_arrays(columns)}) "
        f"AS new ({', '.join(columns)}) WHERE {table}.{columns[0]} = new.{columns[0]}"
    )


@lru_cache
def _merge(texts: tuple[str, ...], counts: tuple[int, ...]) -> str:
    renumbered: list[str] = []
    before = 0
    for text, count in zip(texts, counts, strict=True):
        pieces = _PLACEHOLDER.split(text)  # every other piece is a placeholder's number
        pieces[1::2] = [f"${int(number) + before}" for number in pieces[1::2]]
        renumbered.append("".join(pieces))
        before += count
    *parts, last = renumbered
    if not parts:
        return last
    return f"WITH {', '.join(f'part_{n} AS ({part})' for n, part in enumerate(parts))} {last}"
