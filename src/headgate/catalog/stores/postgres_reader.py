"""The read unit of the PostgreSQL store: each query is one round trip."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from headgate.catalog.stores.reader import Row, SQLReadUnit, Statement
from headgate.errors import InvalidArgumentError
from headgate.names import is_unicode

_LARGEST: Final = 2**63


class Transaction(Protocol):
    """A transaction on one connection."""

    def fetch(self, statements: list[Statement]) -> list[list[Row]]:
        """Execute queries in few round trips; return the rows of each."""
        ...


class PostgresReadUnit(SQLReadUnit):
    """Reads on one connection, within its transaction if it has begun one."""

    epoch_query = "SELECT sequence, changes FROM clock"
    texts = "unnest($1::text[]) AS texts (value)"
    among = "= ANY ($1::text[])"

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        return self._fetch_each((sql, values))[0]

    def _texts(self, values: Collection[str]) -> list[str]:
        return [value for value in values if is_storable(value)]

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        for _, values in statements:
            refuse_unless_storable(values)
        return self._transaction.fetch(list(statements))


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
