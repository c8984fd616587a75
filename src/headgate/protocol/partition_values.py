"""Parse and format partition values. Null and the empty string are None."""

import datetime as dt
import math
import re
from decimal import Decimal

from headgate.errors import InvalidDataError, MalformedError
from headgate.protocol.scalars import (
    DIGITS,
    DistantDate,
    DistantMoment,
    moment_at,
    parse_date,
    parse_moment,
    parse_number,
    without_zone,
)
from headgate.protocol.schema import types as delta

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ESCAPED_BYTES = re.compile(r"(?:\\u00[0-9a-fA-F]{2})+", re.ASCII)


def parse_partition_value(text: str | None, data_type: delta.DataType) -> object:
    """Parse a partition value; the empty string is null, whatever the type."""
    if not text:
        return None
    try:
        return _parse_value(text, data_type)
    except (ValueError, ArithmeticError):
        raise MalformedError(f"The partition value {text!r} is not a {data_type}.") from None


def _parse_value(text: str, data_type: delta.DataType) -> object:
    match data_type:
        case delta.Primitive("string"):
            return text
        case delta.Primitive("boolean"):
            if text.lower() not in {"true", "false"}:
                raise ValueError(text)
            return text.lower() == "true"
        case delta.Primitive("date"):
            return parse_date(text)
        case delta.Primitive("timestamp"):
            return moment_at(_ranged(parse_moment(text)[0], delta.LONG), is_utc=True)
        case delta.Primitive("timestamp_ntz"):
            return moment_at(_ranged(parse_moment(text)[0], delta.LONG), is_utc=False)
        case delta.Primitive("float" | "double"):
            if (number := math.nan if text == "NaN" else parse_number(text)) is None:
                raise ValueError(text)
            return float(number)
        case delta.Primitive("binary"):
            if _ESCAPED_BYTES.fullmatch(text):
                return bytes(int(code, 16) for code in text.split(r"\u")[1:])
            return text.encode()
        case delta.DecimalType():
            return _fitted(parse_number(text), data_type)
        case _ if delta.is_whole(data_type) and re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII):
            return _ranged(int(text), data_type)
        case _:
            raise ValueError(f"a partition value cannot be a {data_type}")


def format_partition_value(value: object, data_type: delta.DataType) -> str | None:
    """Format a partition value; null and the empty string are None."""
    if value is None or value == "" or data_type == delta.VOID:
        return None
    try:
        return _format_value(value, data_type)
    except (ValueError, ArithmeticError):
        raise InvalidDataError(f"{value!r} is not a {data_type} to partition by.") from None


def _format_value(value: object, data_type: delta.DataType) -> str:
    match data_type, value:
        case delta.Primitive("string"), str():
            return value
        case delta.Primitive("boolean"), bool():
            return "true" if value else "false"
        case delta.Primitive("date"), DistantDate():
            return value.isoformat()
        case delta.Primitive("timestamp"), DistantMoment(is_utc=True):
            return f"{value.isoformat().removesuffix('+00:00')}Z"
        case delta.Primitive("timestamp_ntz"), DistantMoment(is_utc=False):
            return value.isoformat(sep=" ")
        case delta.Primitive("date"), dt.date() if not isinstance(value, dt.datetime):
            return value.isoformat()
        case delta.Primitive("timestamp"), dt.datetime():
            return f"{without_zone(value).isoformat(timespec='microseconds')}Z"
        case delta.Primitive("timestamp_ntz"), dt.datetime() if value.tzinfo is None:
            return value.isoformat(sep=" ")
        case delta.Primitive("float" | "double"), float() | int() if not isinstance(value, bool):
            return _SPECIAL.get(repr(float(value)), repr(float(value)))
        case delta.Primitive("binary"), bytes():
            return value.decode()
        case delta.DecimalType(), Decimal() | int() if not isinstance(value, bool):
            return format(_fitted(Decimal(value), data_type), "f")
        case delta.Primitive(), int() if delta.is_whole(data_type) and not isinstance(value, bool):
            return str(_ranged(value, data_type))
        case _:
            raise ValueError(f"not a {data_type}")


def _fitted(number: Decimal | None, data_type: delta.DecimalType) -> Decimal:
    if number is None or not number.is_finite():
        raise ValueError("not a number")
    fitted = number.quantize(Decimal((0, (1,), -data_type.scale)), context=DIGITS)
    if fitted != number or len(fitted.as_tuple().digits) > data_type.precision:
        raise ValueError("too many digits")
    return fitted


def _ranged(number: int, data_type: delta.DataType) -> int:
    bits = delta.BITS[str(data_type)]
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError("out of range")
    return number
