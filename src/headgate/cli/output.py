"""Output of commands: aligned text for people, JSON for programs, progress.

Colours and lines are used on a terminal only; elsewhere the text suits `grep` and `cut`. Times are
ISO 8601 in UTC. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from headgate.errors import HeadgateError, Retry

if TYPE_CHECKING:  # slow to load
    from headgate.api.port import Progress

Record = Mapping[str, object]

REFUSED, USAGE, TRY_AGAIN, BUG, CLOSED_PIPE = 1, 2, 3, 70, 141  # exit codes
_LONGEST_CELL = 60
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as Delta spells them


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command, as text or as JSON."""

    as_json: bool

    def result(self, value: Mapping[str, object], text: str) -> None:
        """Write the result of a command: `value` as JSON, or `text`."""
        write(to_json(value) if self.as_json else text)

    def note(self, text: str) -> None:
        """Write a remark to stderr; nothing with JSON."""
        if not self.as_json:
            print(text, file=sys.stderr)

    def confirm(self, question: str) -> bool:
        """Ask a question on stderr and return whether the answer was yes; False with JSON."""
        if self.as_json:
            return False
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not sys.stdin.isatty():
            print(file=sys.stderr)
        return answer.strip().lower() in ("y", "yes")

    def error(self, error: Exception) -> int:
        """Report an error with its remedy and its code; return the exit code."""
        match error:
            case HeadgateError():
                more: dict[str, object] = {}
                if (txn_id := getattr(error, "txn_id", None)) is not None:
                    more["txnId"] = txn_id
                for name in ("conflicts", "violations"):
                    if items := getattr(error, name, ()):
                        more[name] = [str(item) for item in items]
                self._fail(error.code, error.message, error.remedy, error.retry, more)
                return REFUSED if error.retry is Retry.NEVER else TRY_AGAIN
            case OSError():  # its text comes from the operating system
                path = f": {error.filename}" if error.filename else ""
                self._fail(
                    "system",
                    f"{error.strerror or error}{path}.",
                    "Fix the cause and try again. Ratified commits are kept, nothing else was "
                    "changed.",
                )
                return REFUSED
            case _:
                message = f"This is a bug in Headgate: {type(error).__name__}: {error}"
                self._fail(
                    "bug", message, "Please report it. HEADGATE_DEBUG=1 shows the traceback."
                )
                return BUG

    def usage_error(self, message: str, command: str = "") -> int:
        """Report wrong usage as JSON, and return the exit code; as text, typer does."""
        remedy = f"See `{' '.join(filter(None, ('headgate', command, '--help')))}`."
        self._fail("usage", message, remedy)
        return USAGE

    @contextmanager
    def progress(self, description: str, unit: str = "") -> Iterator[Progress]:
        """Show progress on a terminal after one second; yield a function that updates it."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from headgate.cli import terminal  # slow to load

        with terminal.progress(description, partial(_amount, unit)) as progress:
            yield progress

    def _fail(
        self,
        code: str,
        message: str,
        remedy: str,
        retry: Retry = Retry.NEVER,
        more: Mapping[str, object] | None = None,
    ) -> None:
        text = f"{message}\n{remedy}\n[{code}]"
        if self.as_json:
            fields = {"code": code, "message": message, "remedy": remedy, "retry": retry.value}
            text = to_json({"error": {**fields, **(more or {})}})
        print(text, file=sys.stderr)


def write(text: str) -> None:
    """Write a result to stdout; exit without an error if the pipe is closed."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would fail at exit when it flushes what it still buffers for the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CLOSED_PIPE) from None


# Text


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str = "",
    shorten: Collection[str] | None = None,
    truncate: bool = False,
) -> str:
    """Align rows under the names of their columns, numbers to the right.

    If a terminal is too narrow, values are folded within their columns. With `shorten` the values
    of the named columns are shortened instead, and each row stays on one line. With `truncate` any
    value may be shortened and the last columns may be left out; the heading is written without
    rows, too.
    """
    if not rows and not truncate:
        return empty
    from headgate.cli import terminal  # slow to load

    names = [_printable(name) for name in columns]
    cells = [[None if value is None else _cell(value) for value in row] for row in rows]
    numbers = {
        name
        for name, column in zip(names, zip(*rows, strict=True), strict=False)
        if all(isinstance(value, int | float | Decimal | None) for value in column)
    }
    return terminal.table(names, cells, numbers, shorten, truncate=truncate)


def listing(
    columns: Sequence[str],
    records: Sequence[Record],
    *,
    empty: str = "",
    shorten: Collection[str] | None = None,
) -> str:
    """Align these fields of records as `table` does; `-` stands for a missing value."""
    rows = [["-" if (v := item.get(name)) is None else v for name in columns] for item in records]
    return table(columns, rows, empty=empty, shorten=shorten)


def record(entry: Any, **names: str) -> dict[str, object]:
    """Return the fields of an entry as in JSON: camel case or `names`, times in ISO 8601."""
    fields: dict[str, object] = {}
    for field in entry.__struct_fields__:
        value = getattr(entry, field)
        first, *rest = field.removesuffix("_ms").split("_")
        name = names.get(field, first + "".join(map(str.title, rest)))
        if field.endswith("_ms"):
            value = iso_time(value)
        fields[name] = value.value if isinstance(value, enum.Enum) else value
    return fields


def key_values(pairs: Sequence[tuple[str, object]]) -> str:
    """Align pairs of a name and a value, one per line."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {_printable(str(value))}" for name, value in pairs)


def iso_time(milliseconds: int | None) -> str | None:
    """Format a time as ISO 8601 in UTC."""
    from headgate.protocol.log import timestamps  # slow to load, and loaded already with any time

    return None if milliseconds is None else timestamps.moment(milliseconds)


def delay(milliseconds: int | None, since_ms: int) -> str:
    """Format the time that passed since another one."""
    if milliseconds is None:
        return "-"
    passed = milliseconds - since_ms
    return f"{passed:+d} ms" if abs(passed) < 10_000 else f"{passed / 1000:+,.0f} s"


def byte_size(count: int) -> str:
    """Format a number of bytes with a suitable unit."""
    from rich.filesize import decimal  # slow to load

    return decimal(count)


def counted(count: int, noun: str) -> str:
    """Format a number of things: `1 row`, `2 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _amount(unit: str, done: int, total: int) -> str:
    if unit == "bytes":
        return f"{byte_size(done)} of {byte_size(total)}"
    return f"{done:,} of {total:,} {unit}"


def _cell(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        text = json.dumps(json_value(value), ensure_ascii=False)
    else:
        text = str(json_value(value))
    text = _printable(text)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _printable(text: str) -> str:
    """Escape characters that would move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# JSON


def to_json(value: object) -> str:
    """Format a value as JSON; see `json_value`."""
    return json.dumps(json_value(value), indent=2, ensure_ascii=False, allow_nan=False)


def json_value(value: object) -> object:
    """Convert a value to one that JSON has; others become text that `append` can read."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NON_FINITE.get(str(value))
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            zoned = value.tzinfo is not None
            text = (value.astimezone(UTC) if zoned else value).replace(tzinfo=None).isoformat()
            return f"{text}Z" if zoned else text
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)
