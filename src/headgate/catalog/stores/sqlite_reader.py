"""The read unit of the SQLite store."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

import apsw

from headgate.catalog.stores.reader import Row, SQLReadUnit, Statement
from headgate.errors import InvalidArgumentError

UNSTORABLE: Final = (OverflowError, UnicodeError)  # of a value that a statement is run with


def unstorable(error: Exception) -> InvalidArgumentError:
    """Describe a value that SQLite can neither store nor look up."""
    return InvalidArgumentError(
        f"SQLite cannot store a value: {error}.",
        remedy="Remove lone surrogates, and keep numbers within 64 bits.",
    )


class SQLiteReadUnit(SQLReadUnit):
    """Reads on one connection, within its transaction if it has begun one."""

    # Triggers keep the keys of unpublished tables in a table of their own: an index over versions
    # would be written with every commit.
    unpublished_source = "behind CROSS JOIN tables ON key = behind.table_key"
    epoch_query = "SELECT coalesce((SELECT max(sequence) FROM sequences), 0), changes FROM epoch"
    texts = "json_each($1)"
    among = "IN (SELECT value FROM json_each($1))"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except UNSTORABLE as error:
            raise unstorable(error) from error

    def _fetch_one(self, sql: str, *values: object) -> Row | None:
        try:
            return self._connection.execute(sql, values).fetchone()
        except UNSTORABLE as error:
            raise unstorable(error) from error

    def _texts(self, values: Collection[str]) -> str:
        return json.dumps([*values])

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        return [self._fetch(sql, *values) for sql, values in statements]
