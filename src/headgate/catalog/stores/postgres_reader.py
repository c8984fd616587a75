"""The read unit of the PostgreSQL store: each question is one round trip."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from headgate.catalog.stores.reader import Row, SQLReadUnit, Statement, Values
from headgate.errors import InvalidArgumentError

_LARGEST: Final = 2**63


class Line(Protocol):
    """A connection inside a transaction."""

    def ask(self, told: list[Statement], asked: list[Statement]) -> list[list[Row]]:
        """Execute all of it in few round trips, and give the rows of what was asked."""
        ...

    def attempt(self, sql: str, values: Values, savepoint: str) -> list[Row]:
        """Execute a statement; roll back to the savepoint when a constraint rejects it.

        Raises `StoreConstraintError` in that case.
        """
        ...

    def take_back(self, savepoint: str) -> None:
        """Undo all since a savepoint, and end it."""
        ...


class PostgresReadUnit(SQLReadUnit):
    """Reads on one connection, within its transaction if it has begun one."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        return self._fetch_each((sql, values))[0]

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        for _, values in statements:
            refuse_unless_storable(values)
        return self._line.ask([], list(statements))


def is_storable(value: object) -> bool:
    """Say whether PostgreSQL can keep a value: no NUL in text, no number of over 64 bits."""
    # By type and not by match: a batch has thousands of them.
    if type(value) is str:
        return "\0" not in value and (value.isascii() or _is_unicode(value))
    return type(value) is not int or -_LARGEST <= value < _LARGEST


def refuse_unless_storable(values: Collection[object]) -> None:
    """Refuse what PostgreSQL cannot keep, before it refuses all that goes with it."""
    if all(map(is_storable, values)):
        return
    said = next(repr(value) for value in values if not is_storable(value))
    raise InvalidArgumentError(
        f"PostgreSQL cannot keep {said if len(said) < 80 else said[:77] + '...'}.",
        remedy="Leave NUL characters and lone surrogates out, and numbers within 64 bits.",
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
