"""What a statement of SQL answered: a table for people, JSON or CSV for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from headgate.cli.render import Format, Output, many, plain, table, write
from headgate.cli.spark_engine import Engine
from headgate.sql.script import parse, split

_MOST = 1_000  # rows of a table that people look at
_PAGE = 1_000  # rows fetched, and written, at once
_WRITTEN_OUT = {"yearmonthinterval", "daytimeinterval", "interval", "variant"}  # by Spark

Frame = Any  # a DataFrame; what is of Spark is imported in headgate.spark alone
Read = Callable[[Any], object]


class Results:
    """Runs statements one by one and shows what each has to tell."""

    def __init__(self, engine: Engine, output: Output, format: Format, *, all_rows: bool) -> None:
        self._engine = engine
        self._output = output
        self._format = format
        self._most = _MOST if format is Format.TABLE and not all_rows else None
        self._shown = 0

    def run(self, script: str) -> None:
        """Run every statement of a script, and none where one of them cannot be read."""
        parse(script)
        for piece in split(script):
            # It stays at its place: what is wrong with it is told by line and column.
            before = "".join(sign if sign in "\r\n" else " " for sign in script[: piece.start])
            self._run(before + piece.text)

    def _run(self, text: str) -> None:
        """Run one statement and show its rows, how many there are, and how long it took."""
        began = perf_counter()
        with self._output.progress("Running"):
            frame = self._engine.run(lambda lake: _shown_by_python(lake.sql(text)))
            most = None if self._most is None else self._most + 1  # one more tells there are more
            pages = self._engine.rows(frame, most, _PAGE if self._most is None else _PAGE + 1)
            first = next(pages, [])
        if not first and frame.columns in ([], ["result"]):
            self._output.say(f"Done in {perf_counter() - began:.2f} s.")
            return
        count = self._write(frame, _from(first, pages))
        took = f"in {perf_counter() - began:.2f} s"
        if self._most is not None and count > self._most:
            self._output.say(f"The first {self._most:,} rows, {took}. All of them: --all-rows.")
        else:
            self._output.say(f"{many(count, 'row')} {took}.")

    def _write(self, frame: Frame, pages: Iterator[Sequence[Any]]) -> int:
        """Write all pages, and give how many rows there were."""
        names = _told_apart(frame.columns)
        readers = [_reader(field.dataType) for field in frame.schema.fields]
        if self._format is not Format.JSON and self._shown:
            write("")  # results are parted by an empty line
        self._shown += 1
        count = 0
        for page in pages:
            count += len(page)
            rows = [
                [
                    value if read is None else read(value)
                    for read, value in zip(readers, row, strict=True)
                ]
                for row in page[: self._most]
            ]
            match self._format:
                case Format.TABLE:
                    write(table(names, rows, cut=True))
                case Format.JSON if rows:
                    write("\n".join(_json_line(names, row) for row in rows))
                case Format.CSV:
                    heading = [] if count > len(page) else [_csv_line(names)]
                    write("\n".join([*heading, *map(_csv_line, rows)]))
        return count


def _from(first: Sequence[Any], rest: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    yield first
    yield from rest


def _told_apart(names: Sequence[str]) -> list[str]:
    """Give a name that was there before a number: in JSON one would hide the other."""
    told: list[str] = []
    for name in names:
        number, new = 1, name
        while new in told or (number > 1 and new in names):
            number += 1
            new = f"{name}_{number}"
        told.append(new)
    return told


# Values


def _shown_by_python(frame: Frame) -> Frame:
    """Have Spark write out what Python has no values for."""
    texts = [field.dataType.typeName() in _WRITTEN_OUT for field in frame.schema.fields]
    if not any(texts):
        return frame
    names = [f"`column {place}`" for place in range(len(texts))]  # the user's may be there twice
    columns = [
        f"CAST({name} AS STRING)" if is_text else name
        for name, is_text in zip(names, texts, strict=True)
    ]
    return frame.toDF(*[n.strip("`") for n in names]).selectExpr(*columns).toDF(*frame.columns)


def _reader(kind: Any) -> Read | None:
    """Give what turns a value of Spark's type into one of ours; None where it is one already."""
    match kind.typeName():
        case "timestamp":
            return _in_utc
        case "array":
            item = _reader(kind.elementType)
            return None if item is None else _unless_null(lambda v: [item(one) for one in v])
        case "map":
            key, value = _reader(kind.keyType) or _same, _reader(kind.valueType) or _same
            return _unless_null(lambda v: {str(plain(key(k))): value(v[k]) for k in v})
        case "struct":
            names = _told_apart([field.name for field in kind.fields])
            reads = [
                (name, _reader(field.dataType) or _same)
                for name, field in zip(names, kind.fields, strict=True)
            ]
            return _unless_null(
                lambda v: {name: read(one) for (name, read), one in zip(reads, v, strict=True)}
            )
        case _:
            return None


def _unless_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _same(value: object) -> object:
    return value


def _in_utc(value: datetime | None) -> datetime | None:
    """Say of which zone a timestamp is: PySpark gives it in the machine's, without a word."""
    return None if value is None else value.astimezone(UTC)


# Lines


def _json_line(names: Sequence[str], row: Sequence[object]) -> str:
    return json.dumps(
        dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False, allow_nan=False
    )


def _csv_line(row: Sequence[object]) -> str:
    return ",".join(map(_csv_cell, row))


def _csv_cell(value: object) -> str:
    """Write a value; NULL is nothing at all, an empty text a pair of quotes."""
    if value is None:
        return ""
    known = plain(value)
    if isinstance(known, bool | dict | list):
        text = json.dumps(known, ensure_ascii=False)
    else:
        text = str(known)
    if text and text.strip() == text and not any(sign in text for sign in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
