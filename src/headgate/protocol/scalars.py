"""Parse dates, timestamps and numbers in Delta's text format, and make them comparable.

Partition values, the bounds of statistics and the literals of predicates use this format. A
timestamp without a zone is UTC.
"""

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TypeVar

from headgate.protocol.schema.types import DATE, TIMESTAMP_NTZ, DataType

Comparable = TypeVar("Comparable", int, Decimal, str)

DIGITS = Context(prec=100)  # independent of the precision that the process has set
_MOST_DIGITS = 500

_NUMBER = re.compile(
    r"[+-]?(?:(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?|Inf(?:inity)?)",
    re.ASCII,
)
_DATE = re.compile(r"([+-]?\d{4,6})(-\d{2}-\d{2})", re.ASCII)
_MOMENT = re.compile(
    r"([+-]?\d{4,6}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?"
    r"(Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
# A timestamp that every engine reads alike.
PLAIN_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?P<zone>Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_DAY_ONE = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (used with UTC times without their zone)
_DAY_ONE_ORDINAL = _DAY_ONE.toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_MICROSECONDS_A_DAY = 86_400_000_000
_CYCLE_YEARS = 400  # after which the Gregorian calendar repeats
_CYCLE_DAYS = 146_097


@dataclass(frozen=True, slots=True)
class DistantDate:
    """A date outside of the years 1 to 9999, which `datetime.date` cannot hold."""

    since_1970: int  # days

    def isoformat(self) -> str:
        day = self.since_1970 + _DAY_ONE_ORDINAL
        cycles = (day - 1) // _CYCLE_DAYS
        within = dt.date.fromordinal(day - cycles * _CYCLE_DAYS)
        year = within.year + cycles * _CYCLE_YEARS
        return f"{'-' if year < 0 else ''}{abs(year):04d}{within.isoformat()[4:]}"


@dataclass(frozen=True, slots=True)
class DistantMoment:
    """A timestamp outside of the years 1 to 9999, which `datetime.datetime` cannot hold."""

    since_1970: int  # microseconds, in UTC if it has a zone
    is_utc: bool

    def isoformat(self, sep: str = "T", timespec: str = "microseconds") -> str:
        days, rest = divmod(self.since_1970, _MICROSECONDS_A_DAY)
        clock = (_DAY_ONE + rest * _MICROSECOND).time().isoformat(timespec)
        return f"{DistantDate(days).isoformat()}{sep}{clock}{'+00:00' if self.is_utc else ''}"


def parse_number(value: object) -> Decimal | None:
    """Convert a number or its text to a decimal, exactly; None for others, or over 500 digits."""
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    number = Decimal(value)
    if number.is_nan() or (number.is_finite() and abs(number.adjusted()) > _MOST_DIGITS):
        return None
    return number


def parse_date(text: str) -> dt.date | DistantDate:
    """Parse a date; raise ValueError if it is malformed."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    cycles, within = _in_cycle(int(found[1]))
    day = dt.date.fromisoformat(f"{within:04d}{found[2]}").toordinal() + cycles * _CYCLE_DAYS
    return date_at(day - _DAY_ONE_ORDINAL)


def date_at(since_1970: int) -> dt.date | DistantDate:
    """Convert days since 1970 to a date."""
    day = since_1970 + _DAY_ONE_ORDINAL
    if 1 <= day <= dt.date.max.toordinal():
        return dt.date.fromordinal(day)
    return DistantDate(since_1970)


def parse_moment(text: str) -> tuple[int, dt.timedelta | None]:
    """Parse a timestamp: microseconds since 1970 in UTC, and the offset; or raise ValueError."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, clock, fraction, zone = found.groups()
    zone = {"UTC": "+00:00", "Z": "+00:00", None: ""}.get(zone, zone)
    micros = f".{fraction[1:7]:0<6}" if fraction else ""
    if clock is not None and len(clock) == 5:
        clock += ":00"
    year, month_and_day = day[:-6], day[-6:]
    cycles, within = _in_cycle(int(year))
    moment = dt.datetime.fromisoformat(
        f"{within:04d}{month_and_day}T{clock or '00:00:00'}{micros}{zone}"
    )
    counted = (without_zone(moment) - _DAY_ONE) // _MICROSECOND
    return counted + cycles * _CYCLE_DAYS * _MICROSECONDS_A_DAY, moment.utcoffset()


def moment_at(since_1970: int, *, is_utc: bool) -> dt.datetime | DistantMoment:
    """Convert microseconds since 1970 to a timestamp in UTC or without a zone."""
    try:
        moment = _DAY_ONE + since_1970 * _MICROSECOND
    except OverflowError:
        return DistantMoment(since_1970, is_utc)
    return moment.replace(tzinfo=dt.UTC) if is_utc else moment


def _in_cycle(year: int) -> tuple[int, int]:
    """Split a year into cycles of the calendar and a year that `datetime` can hold."""
    cycles, within = divmod(year, _CYCLE_YEARS)
    return cycles - 5, within + 5 * _CYCLE_YEARS


def without_zone(moment: dt.datetime) -> dt.datetime:
    """Convert a timestamp to UTC and drop its zone."""
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def count(value: object) -> int | None:
    """Convert a boolean, date (days) or timestamp (microseconds) to an integer, or None."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dt.datetime):
        return (without_zone(value) - _DAY_ONE) // _MICROSECOND
    if isinstance(value, dt.date):
        return value.toordinal() - _DAY_ONE_ORDINAL
    if isinstance(value, DistantDate | DistantMoment):
        return value.since_1970
    return None


def parse_count(value: object, data_type: DataType) -> tuple[int | None, bool]:
    """Parse a date or timestamp to an integer, or None; also return whether its zone is known."""
    if not isinstance(value, str):
        return None, False
    try:
        if data_type == DATE:
            return count(parse_date(value)), True
        since_1970, zone = parse_moment(value)
    except (ValueError, OverflowError):
        return None, False
    if data_type == TIMESTAMP_NTZ and zone:
        return None, False  # a wall clock has no offset from UTC
    return since_1970, zone is not None
