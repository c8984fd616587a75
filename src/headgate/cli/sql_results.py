"""Results of SQL statements, written as a table, JSON or CSV."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from itertools import chain
from time import perf_counter
from typing import Any

from headgate.cli.options import RowFormat
from headgate.cli.output import Output, counted, json_value, table, write
from headgate.cli.spark_engine import SparkRunner
from headgate.sql.script import parse, split

_MOST = 1_000  # rows of a table, without --all-rows
_PAGE = 1_000  # rows fetched and written at once
_CAST_TO_STRING = {"yearmonthinterval", "daytimeinterval", "interval", "variant"}

Frame = Any  # a DataFrame; only headgate.spark imports PySpark
Convert = Callable[[Any], object]


class Results:
    """Runs statements one by one and writes the result of each."""

    def __init__(
        self, engine: SparkRunner, output: Output, format: RowFormat, *, all_rows: bool
    ) -> None:
        self._engine = engine
        self._output = output
        self._format = format
        self._most = _MOST if format == "table" and not all_rows else None
        self._shown = 0

    def run(self, script: str) -> None:
        """Run the statements of a script; none if one of them is invalid."""
        parse(script)
        for piece in split(script):
            # Padded to its position in the script, so that errors name the right line and column.
            before = "".join(c if c in "\r\n" else " " for c in script[: piece.start])
            self._run(before + piece.text)

    @property
    def is_in_transaction(self) -> bool:
        """Whether the next statement is part of a transaction."""
        return self._engine.is_in_transaction

    def finish(self) -> None:
        """Refuse to end inside a transaction, which is rolled back."""
        self._engine.run(lambda connection: connection.refuse_open())

    def _run(self, text: str) -> None:
        """Run one statement; write its rows, then their number and the time taken."""
        began = perf_counter()
        with self._output.progress("Running"):
            frame = self._engine.run(lambda connection: _convertible(connection.run(text)))
            most = None if self._most is None else self._most + 1  # to know if there are more
            pages = self._engine.rows(frame, most, _PAGE if self._most is None else _PAGE + 1)
            first = next(pages, [])
        if not first and frame.columns in ([], ["result"]):
            self._output.note(f"Done in {perf_counter() - began:.2f} s.")
            return
        count = self._write(frame, chain([first], pages))
        took = f"in {perf_counter() - began:.2f} s"
        if self._most is not None and count > self._most:
            self._output.note(f"The first {self._most:,} rows, {took}. Use --all-rows for all.")
        else:
            self._output.note(f"{counted(count, 'row')} {took}.")

    def _write(self, frame: Frame, pages: Iterator[Sequence[Any]]) -> int:
        """Write all pages and return the number of rows."""
        names = _unique(frame.columns)
        converters = [_converter(field.dataType) for field in frame.schema.fields]
        if self._format != "json" and self._shown:
            write("")  # an empty line between results
        self._shown += 1
        count = 0
        for page in pages:
            count += len(page)
            rows = [
                [
                    value if convert is None else convert(value)
                    for convert, value in zip(converters, row, strict=True)
                ]
                for row in page[: self._most]
            ]
            match self._format:
                case "table":
                    write(table(names, rows, truncate=True))
                case "json" if rows:
                    write("\n".join(_json_line(names, row) for row in rows))
                case "csv":
                    heading = [] if count > len(page) else [_csv_line(names)]
                    write("\n".join([*heading, *map(_csv_line, rows)]))
        return count


def _unique(names: Sequence[str]) -> list[str]:
    """Add numbers to repeated names: in JSON one value would hide the other."""
    unique: list[str] = []
    for name in names:
        number, new = 1, name
        while new in unique or (number > 1 and new in names):
            number += 1
            new = f"{name}_{number}"
        unique.append(new)
    return unique


# Values


def _convertible(frame: Frame) -> Frame:
    """Cast columns to string whose values Python cannot represent."""
    texts = [field.dataType.typeName() in _CAST_TO_STRING for field in frame.schema.fields]
    if not any(texts):
        return frame
    names = [f"`column {index}`" for index in range(len(texts))]  # column names may repeat
    columns = [
        f"CAST({name} AS STRING)" if is_text else name
        for name, is_text in zip(names, texts, strict=True)
    ]
    return frame.toDF(*[n.strip("`") for n in names]).selectExpr(*columns).toDF(*frame.columns)


def _converter(kind: Any) -> Convert | None:
    """Return a function that converts values of a Spark type; None if they need no conversion."""
    match kind.typeName():
        case "timestamp":
            # PySpark returns timestamps in local time without a zone.
            return _unless_null(lambda v: v.astimezone(UTC))
        case "array":
            item = _converter(kind.elementType)
            return None if item is None else _unless_null(lambda v: [item(x) for x in v])
        case "map":
            key, value = _converter(kind.keyType) or _same, _converter(kind.valueType) or _same
            return _unless_null(lambda v: {str(json_value(key(k))): value(v[k]) for k in v})
        case "struct":
            names = _unique([field.name for field in kind.fields])
            converters = [
                (name, _converter(field.dataType) or _same)
                for name, field in zip(names, kind.fields, strict=True)
            ]
            return _unless_null(
                lambda v: {
                    name: convert(x) for (name, convert), x in zip(converters, v, strict=True)
                }
            )
        case _:
            return None


def _unless_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: object) -> object:
    return value


# Lines


def _json_line(names: Sequence[str], row: Sequence[object]) -> str:
    return json.dumps(
        dict(zip(names, map(json_value, row), strict=True)), ensure_ascii=False, allow_nan=False
    )


def _csv_line(row: Sequence[object]) -> str:
    return ",".join(map(_csv_cell, row))


def _csv_cell(value: object) -> str:
    """Format a value; NULL is nothing, an empty text is a pair of quotes."""
    if value is None:
        return ""
    converted = json_value(value)
    if isinstance(converted, bool | dict | list):
        text = json.dumps(converted, ensure_ascii=False)
    else:
        text = str(converted)
    if text and text.strip() == text and not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
