"""Rows buffered during a unit and written with few statements.

Every statement on SQLite releases the GIL and must acquire it again, so one statement for each
row costs many times the row itself. Only rows that no constraint can reject are buffered; others
are written at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

Values = Sequence[object]

# Rows of one statement; fewer are sent in powers of two, so that there are few distinct texts.
_MAX_ROWS: Final = 64


class Batches:
    """Rows for several tables of the database, in order of arrival."""

    def __init__(self, run: Callable[[str, Values], object]) -> None:
        self._run = run
        self._rows: list[tuple[str, Values, int | None]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, statement: str, values: Values, key: int | None = None) -> None:
        """Buffer a row for `statement`; a later row with the same key replaces it.

        A `{}` in the statement stands for many rows; without one it is run for each row.
        """
        self._rows.append((statement, values, key))

    def drop_after(self, mark: int) -> None:
        """Discard all rows but the first `mark`."""
        del self._rows[mark:]

    def send(self, upto: int | None = None) -> None:
        """Write the buffered rows, or the first `upto` of them."""
        rows = self._rows if upto is None else self._rows[:upto]
        by_statement: dict[str, dict[object, Values]] = {}
        for number, (statement, values, key) in enumerate(rows):
            by_statement.setdefault(statement, {})[f"#{number}" if key is None else key] = values
        self._rows = [] if upto is None else self._rows[upto:]
        for statement, values_by_key in by_statement.items():
            waiting = list(values_by_key.values())
            if "{}" not in statement:
                for values in waiting:
                    self._run(statement, values)
                continue
            while waiting:
                count = min(_MAX_ROWS, 1 << (len(waiting).bit_length() - 1))
                sent, waiting = waiting[:count], waiting[count:]
                text = _text(statement, count, len(sent[0]))
                self._run(text, [value for row in sent for value in row])


@cache
def _text(statement: str, count: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * count))
