"""Single values as Delta spells them: dates, moments and numbers, read and made comparable.

Partition values, the bounds of statistics and the literals of predicates are all spelled like this.
A moment spelled without a zone is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Context, Decimal
from typing import TypeVar

from headgate.protocol.schema import DATE, TIMESTAMP_NTZ, DataType

Comparable = TypeVar("Comparable", int, Decimal, str)

DIGITS = Context(prec=100)  # whatever precision the process has chosen for itself
_MOST_DIGITS = 500

_NUMBER = re.compile(
    r"[+-]?(?:(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?|Inf(?:inity)?)",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?"
    r"(Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
_DAY_ONE = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (every zone is taken off first)
_MICROSECOND = dt.timedelta(microseconds=1)


def parse_number(value: object) -> Decimal | None:
    """Give a number, spelled or not, as a decimal, which holds integers and floats exactly.

    None for what is no number, and for sizes beyond reason.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    number = Decimal(value)
    if number.is_nan() or (number.is_finite() and abs(number.adjusted()) > _MOST_DIGITS):
        return None
    return number


def parse_date(text: str) -> dt.date:
    """Read a date; raise ValueError for what is none."""
    if _DATE.fullmatch(text) is None:
        raise ValueError(text)
    return dt.date.fromisoformat(text)


def parse_moment(text: str) -> dt.datetime:
    """Read a moment, with the zone it is spelled with; raise ValueError for what is none."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, clock, fraction, zone = found.groups()
    zone = {"UTC": "+00:00", "Z": "+00:00", None: ""}.get(zone, zone)
    micros = f".{fraction[1:7]:0<6}" if fraction else ""
    if clock is not None and len(clock) == 5:
        clock += ":00"
    return dt.datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{micros}{zone}")


def without_zone(moment: dt.datetime) -> dt.datetime:
    """Give a moment as UTC has it, its zone taken off."""
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def count(value: object) -> int | None:
    """Count a boolean, the days to a date or the microseconds to a moment; None for others."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dt.datetime):
        return (without_zone(value) - _DAY_ONE) // _MICROSECOND
    if isinstance(value, dt.date):
        return value.toordinal()
    return None


def parse_count(value: object, data_type: DataType) -> tuple[int | None, bool]:
    """Count what a date or moment spells, None if it spells none; say whether its zone is known."""
    if not isinstance(value, str):
        return None, False
    try:
        if data_type == DATE:
            return count(parse_date(value)), True
        moment = parse_moment(value)
    except ValueError:
        return None, False
    if data_type == TIMESTAMP_NTZ and moment.utcoffset():
        return None, False  # a wall clock somewhere: no telling which
    return count(moment), moment.tzinfo is not None
