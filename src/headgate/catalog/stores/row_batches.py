"""Rows gathered while a unit decides, written with few statements at its end.

Every statement of SQLite lets other threads of the process run and waits for its turn afterwards,
so one for each row costs many times what the row does. Only rows shown to be free are gathered:
a constraint that has something to say is asked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

Values = Sequence[object]

_MOST: Final = 64  # rows of one statement; fewer come in powers of two, so that texts are few


class Batches:
    """Rows for several tables of the store, in the order they came."""

    def __init__(self, run: Callable[[str, Values], object]) -> None:
        self._run = run
        self._rows: list[tuple[str, Values, int | None]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, statement: str, values: Values, key: int | None = None) -> None:
        """Gather a row for `statement`; of one key only the last counts.

        Where a statement has `{}` that takes rows, many at once; else it is run for each.
        """
        self._rows.append((statement, values, key))

    def drop_after(self, mark: int) -> None:
        """Forget what was gathered since there were so many."""
        del self._rows[mark:]

    def send(self, upto: int | None = None) -> None:
        """Write what was gathered, or the first so many of it."""
        rows = self._rows if upto is None else self._rows[:upto]
        by_statement: dict[str, dict[object, Values]] = {}
        for place, (statement, values, key) in enumerate(rows):
            by_statement.setdefault(statement, {})[f"#{place}" if key is None else key] = values
        self._rows = [] if upto is None else self._rows[upto:]
        for statement, found in by_statement.items():
            waiting = list(found.values())
            if "{}" not in statement:
                for values in waiting:
                    self._run(statement, values)
                continue
            while waiting:
                count = min(_MOST, 1 << (len(waiting).bit_length() - 1))
                now, waiting = waiting[:count], waiting[count:]
                text = _text(statement, count, len(now[0]))
                self._run(text, [value for row in now for value in row])


@cache
def _text(statement: str, count: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * count))
