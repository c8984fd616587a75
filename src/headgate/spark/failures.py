"""Convert errors of Spark to ours.

Rules are checked where the rows are computed, so the error of a violated rule comes out of a task
as text: it is marked there and recognized here.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from pyspark.errors import AnalysisException, ParseException, QueryContextType
from pyspark.logger import PySparkLogger
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import HeadgateError, InvalidArgumentError, InvalidDataError, UnavailableError
from headgate.sql import positions

_BEGIN: Final = "\u27e6headgate\u27e7"
_END: Final = "\u27e6/headgate\u27e7"
_MARKED: Final = re.compile(f"{_BEGIN}(.*?){_END}", re.DOTALL)
# Spark's error conditions for a value that does not fit, or is not valid for the type.
_VALUES: Final = re.compile(
    r"\[(ARITHMETIC_OVERFLOW|CAST_OVERFLOW\w*|CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE"
    r"|INVALID_ARRAY_INDEX\w*|DIVIDE_BY_ZERO|DATETIME_OVERFLOW|INVALID_FRACTION_OF_SECOND"
    r"|BINARY_ARITHMETIC_OVERFLOW)[.\w]*\]\s*([^\n]*)"
)


def refusal(*message: Column) -> Column:
    """Mark a message that a task raises, so that `translated` finds all of it."""
    return F.concat(F.lit(_BEGIN), *message, F.lit(_END))


@contextmanager
def translated(*, writes: bool = True) -> Iterator[None]:
    """Raise errors of Spark as our own errors.

    Errors of a statement that `writes` add that nothing was committed.
    """
    kept = " Nothing was committed." if writes else ""
    try:
        with quietly():
            yield
    except HeadgateError:
        raise
    except AnalysisException as error:
        remedy = f"Correct the expression or the columns.{kept}"
        fault = _faulty(str(error)) if isinstance(error, ParseException) else None
        if fault is not None:
            raise positions.refused(*fault, first_line(error).rstrip("."), remedy) from error
        raise InvalidArgumentError(
            f"Spark cannot resolve this: {first_line(error)}", remedy=remedy
        ) from error
    except Exception as error:  # Spark has many kinds of errors, and its gateway others
        text = str(error)
        if (marked := _MARKED.search(text)) is not None:
            raise InvalidDataError(f"{marked[1]}.") from None
        if (found := _VALUES.search(text)) is not None:
            raise InvalidDataError(f"A value does not fit: {found[2]}") from None
        raise UnavailableError(
            f"Spark failed: {first_line(error)}", remedy=f"See Spark's log.{kept}"
        ) from None  # whose text is a Java stack trace; `__context__` still has it


@contextmanager
def quietly() -> Iterator[None]:
    """Keep PySpark from printing an error that is going to be raised, in this thread."""
    for name in _LOGGERS:
        # Created by PySpark's own class: PySpark passes arguments that other loggers do not accept.
        PySparkLogger.getLogger(name).addFilter(_is_logged)  # twice is once
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def log_queries(on: bool) -> None:
    """Let PySpark print the errors of queries with their Java stack traces, or not at all."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = not on


_quiet: Final = ContextVar("quiet", default=False)


def _is_logged(record: logging.LogRecord) -> bool:
    return not _quiet.get()


_CALLING: Final = "An error occurred while calling"
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: ([^\n]+)", re.MULTILINE)
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Columns of ours among those that Spark suggests: with the comma after them, or before the last.
_HELPER: Final = rf"(?:`[^`]*`\.)*`{_BEGIN}[^`]*`"
_HELPERS: Final = re.compile(f"{_HELPER}, |(?:, )?{_HELPER}")
# A position in the text that Spark parsed, which is not the user's text.
_POSITION: Final = re.compile(r";? ?\(?line \d+,? pos \d+\)?;?")


def first_line(error: Exception) -> str:
    """Return the message of an error of Spark, without its trace."""
    text = str(error).strip()
    if text.startswith(_CALLING) and (causes := _CAUSE.findall(text)):
        text = causes[-1]  # the gateway's own line only reports that something failed
    line = _HELPERS.sub("", _POSITION.sub("", text.split("\n", 1)[0]))
    return line.rstrip(".") + "." if text else type(error).__name__


def offset_of(error: AnalysisException) -> int | None:
    """Return the offset of the fault in the text that Spark was given, if Spark reports it."""
    if isinstance(error, ParseException):
        found = _faulty(str(error))
        return None if found is None else found[1]
    for context in error.getQueryContext() or ():
        # For a call in Python the context has the line of the call, not a position in a text.
        if context.contextType() is QueryContextType.SQL and context.startIndex() >= 0:
            return int(context.startIndex())
    return None


_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_TEXT: Final = "\n== SQL ==\n"


def _faulty(message: str) -> tuple[str, int] | None:
    """Return the text that Spark could not parse, and the offset of the fault in it."""
    # Spark names the place by a line and a position, and shows the text with carets below that
    # line.
    place, (_, _, shown) = _PLACE.search(message), message.partition(_TEXT)
    if place is None:
        return None
    line, position = int(place[1]), int(place[2])
    lines = shown.split("\n")
    before, after = lines[:line], lines[line + 1 :]
    return "\n".join([*before, *after]), sum(len(text) + 1 for text in before[:-1]) + position
