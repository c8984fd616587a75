"""What people and programs see: aligned text, progress, JSON.

Colours and lines only on a terminal; elsewhere plain text that `grep` and `cut` can use. Times are
ISO 8601 in UTC. Results go to stdout, everything said about them to stderr.
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
from typing import TYPE_CHECKING

import typer

from headgate.errors import HeadgateError

if TYPE_CHECKING:  # slow to load
    from headgate.api.port import Progress

CLOSED_PIPE = 141
_LONGEST_CELL = 60
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_BEYOND = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as Delta spells them


class Format(enum.StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's answer goes, and in which form."""

    as_json: bool

    def result(self, value: Mapping[str, object], text: str) -> None:
        """Give the result of a command: the value to programs, the text to people."""
        write(as_json(value) if self.as_json else text)

    def say(self, text: str) -> None:
        """Tell people something that is no result."""
        if not self.as_json:
            print(text, file=sys.stderr)

    def confirm(self, question: str) -> bool:
        """Ask people; stdout is for results, so it is left alone. Programs are not asked: no."""
        if self.as_json:
            return False
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not sys.stdin.isatty():
            print(file=sys.stderr)
        return answer.strip().lower() in ("y", "yes")

    def error(self, error: HeadgateError) -> None:
        """Tell what was refused, what to do about it, and its code."""
        said: dict[str, object] = {
            "code": error.code,
            "message": error.message,
            "remedy": error.remedy,
            "retry": error.retry.value,
        }
        if (txn_id := getattr(error, "txn_id", None)) is not None:
            said["txnId"] = txn_id
        for several in ("conflicts", "violations"):
            if found := getattr(error, several, ()):
                said[several] = [str(one) for one in found]
        self._fail(said, f"{error.message}\n{error.remedy}\n[{error.code}]")

    def usage(self, message: str, command: str = "") -> None:
        """Tell a program that it called a command wrongly; people are told by typer."""
        remedy = f"See `{' '.join(filter(None, ('headgate', command, '--help')))}`."
        said = {"code": "usage", "message": message, "remedy": remedy, "retry": "never"}
        self._fail(said, f"{message}\n{remedy}\n[usage]")

    def refusal(self, error: OSError) -> None:
        """Tell what the operating system refused."""
        where = f": {error.filename}" if error.filename else ""
        message = f"{error.strerror or error}{where}."
        remedy = "Mend it, then try again: what was ratified stays, nothing else was done."
        said = {"code": "system", "message": message, "remedy": remedy, "retry": "never"}
        self._fail(said, f"{message}\n{remedy}\n[system]")

    def bug(self, error: Exception) -> None:
        """Own up to what was not foreseen."""
        message = f"This is a bug in Headgate: {type(error).__name__}: {error}"
        remedy = "Please report it. HEADGATE_DEBUG=1 shows where it happened."
        said = {"code": "bug", "message": message, "remedy": remedy, "retry": "never"}
        self._fail(said, f"{message}\n{remedy}")

    @contextmanager
    def progress(self, doing: str, unit: str = "") -> Iterator[Progress]:
        """Show that work goes on once it takes over a second; call what is given to say how far."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from headgate.cli import rich_output  # slow to load

        with rich_output.progress(doing, partial(_counted, unit)) as progress:
            yield progress

    def _fail(self, said: Mapping[str, object], prose: str) -> None:
        print(as_json({"error": said}) if self.as_json else prose, file=sys.stderr)


def write(text: str) -> None:
    """Put a result on stdout; when nobody reads any more, end quietly."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What Python still holds for the pipe would be complained about at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CLOSED_PIPE) from None


# Text


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str = "",
    short: Collection[str] | None = None,
    cut: bool = False,
) -> str:
    """Align rows under the names of their columns; numbers to the right.

    Where a terminal is too narrow, values are folded within their columns. If some columns are
    named that may be cut short, that is done instead, and each row stays one line. With `cut` any
    column may be, and the last ones may be left out; the heading is there without rows, too.
    """
    if not rows and not cut:
        return empty
    from headgate.cli import rich_output  # slow to load

    names = [_printable(name) for name in columns]
    cells = [[None if value is None else _cell(value) for value in row] for row in rows]
    numbers = {
        name
        for name, column in zip(names, zip(*rows, strict=True), strict=False)
        if all(isinstance(value, int | float | Decimal | None) for value in column)
    }
    return rich_output.table(names, cells, numbers, short, cut=cut)


def facts(known: Sequence[tuple[str, object]]) -> str:
    """Align what is known of one thing, one line each."""
    width = max(len(name) for name, _ in known)
    return "\n".join(f"{name:<{width}}  {_printable(str(value))}" for name, value in known)


def moment(milliseconds: int | None) -> str | None:
    """Write a time as ISO 8601 in UTC."""
    from headgate.protocol.log import timestamps  # slow to load, and there already with any time

    return None if milliseconds is None else timestamps.moment(milliseconds)


def later(milliseconds: int | None, since_ms: int) -> str:
    """Write how much later something happened."""
    if milliseconds is None:
        return "-"
    passed = milliseconds - since_ms
    return f"{passed:+d} ms" if abs(passed) < 10_000 else f"{passed / 1000:+,.0f} s"


def size(count: int) -> str:
    """Write a number of bytes as people say it."""
    power = min(int(math.log10(count)) // 3 if count else 0, len(_UNITS) - 1)
    return f"{count / 1000**power:,.1f} {_UNITS[power]}" if power else f"{count} bytes"


def _counted(unit: str, done: int, total: int) -> str:
    if unit == "bytes":
        return f"{size(done)} of {size(total)}"
    return f"{done:,} of {total:,} {unit}"


def many(count: int, thing: str) -> str:
    """Write a number of things."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _cell(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        text = json.dumps(plain(value), ensure_ascii=False)
    else:
        text = str(plain(value))
    text = _printable(text)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _printable(text: str) -> str:
    """Keep values from moving the cursor or breaking the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# JSON


def as_json(value: object) -> str:
    """Write a value as JSON; what JSON cannot hold becomes text as `append` reads it."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: object) -> object:
    """Give what JSON can hold of a value."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _BEYOND.get(str(value))
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
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
