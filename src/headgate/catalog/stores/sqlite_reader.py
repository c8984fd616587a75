"""The read unit of the SQLite store."""

from __future__ import annotations

import json
from collections.abc import Collection

import apsw

from headgate.catalog.stores.reader import Row, SQLReadUnit, Statement


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
        return self._connection.execute(sql, values).fetchall()

    def _fetch_one(self, sql: str, *values: object) -> Row | None:
        return self._connection.execute(sql, values).fetchone()

    def _texts(self, values: Collection[str]) -> str:
        return json.dumps([*values])

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        return [self._fetch(sql, *values) for sql, values in statements]
