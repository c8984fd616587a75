"""Make literals, partition values and the bounds of a file comparable, by their type.

Writers truncate and round bounds in different ways. Here they are widened until every value of the
file is between them. A value that cannot be parsed is None, which means unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Generic

from headgate.protocol.expressions.predicates import Literal
from headgate.protocol.scalars import DIGITS, Comparable, count, parse_count, parse_number
from headgate.protocol.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    is_whole,
)


@dataclass(frozen=True, slots=True)
class Order(Generic[Comparable]):
    """How values of some types are parsed so that they can be compared."""

    literal: Callable[[Literal, DataType], Comparable | None]
    # Both bounds of a partition value.
    exact: Callable[[object, DataType], tuple[Comparable | None, Comparable | None]]
    lower: Callable[[object, DataType], Comparable | None]  # not above the least value
    upper: Callable[[object, DataType], Comparable | None]  # not below the greatest value
    is_open: bool = False  # the upper bound itself is not a value


# Strings: bounds may be prefixes, with or without a last character that breaks ties.


def _string_literal(value: Literal, data_type: DataType) -> str | None:
    return value if isinstance(value, str) else None


def _string_exact(value: object, data_type: DataType) -> tuple[str | None, str | None]:
    text = value if isinstance(value, str) else None
    return text, text


_TIE_BREAKERS = "\ufffd\U0010ffff"


def _string_lower(value: object, data_type: DataType) -> str | None:
    # A replacement character may stand for a character that was truncated.
    return value.rstrip("\ufffd") if isinstance(value, str) else None


def _string_upper(value: object, data_type: DataType) -> str | None:
    """Return the first string above all strings that begin with the bound."""
    if not isinstance(value, str):
        return None
    prefix = value.rstrip(_TIE_BREAKERS)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:
        following = 0xE000  # surrogates are not characters
    return prefix[:-1] + chr(following)


STRINGS = Order(_string_literal, _string_exact, _string_lower, _string_upper, is_open=True)


# Booleans, dates and timestamps: counted from a fixed point.

_MILLISECOND = 1_000
_WIDEST_ZONE = 18 * 3600 * 1_000_000


def _counted_literal(value: Literal, data_type: DataType) -> int | None:
    if data_type == BOOLEAN:
        return int(value) if isinstance(value, bool) else None
    return parse_count(value, data_type)[0]


def _counted_exact(value: object, data_type: DataType) -> tuple[int | None, int | None]:
    number = count(value)
    return number, number


def _counted_bound(direction: int, value: object, data_type: DataType) -> int | None:
    if data_type == BOOLEAN:
        return int(value) if isinstance(value, bool) else None
    number, is_zoned = parse_count(value, data_type)
    if number is None or data_type == DATE:
        return number
    # Bounds of timestamps are truncated to milliseconds. Without a zone any zone may be meant.
    slack = _MILLISECOND if is_zoned or data_type == TIMESTAMP_NTZ else _WIDEST_ZONE
    return number + direction * slack


COUNTED = Order(
    _counted_literal, _counted_exact, partial(_counted_bound, -1), partial(_counted_bound, +1)
)


# Numbers: compared as decimals, which are exact for integers and floats.

_FLOAT_SLACK = Decimal(2.0**-23)  # floats are written with the fewest digits that identify them
_FLOAT_LEAST = Decimal(2.0**-149)
_DECIMAL_SLACK = Decimal(2.0**-51)  # some writers compute bounds of decimals as doubles
_DIGITS_OF_A_DOUBLE = 15


def _number_literal(value: Literal, data_type: DataType) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not is_whole(data_type) and data_type not in (FLOAT, DOUBLE):
        return None  # as a decimal or as a double: the results may differ
    return parse_number(value)


def _number_exact(value: object, data_type: DataType) -> tuple[Decimal | None, Decimal | None]:
    if data_type in (FLOAT, DOUBLE):
        return _number_bound(-1, value, data_type), _number_bound(+1, value, data_type)
    number = parse_number(value)
    return number, number


def _number_bound(direction: int, value: object, data_type: DataType) -> Decimal | None:
    if isinstance(value, float) and isinstance(data_type, DecimalType):
        value = repr(value)  # its shortest representation is the decimal it was converted from
    bound = parse_number(value)
    if bound is None or not bound.is_finite():
        return bound
    size, slack = abs(bound), Decimal(0)
    if isinstance(data_type, DecimalType) and data_type.precision > _DIGITS_OF_A_DOUBLE:
        slack = DIGITS.multiply(size, _DECIMAL_SLACK)
    elif data_type in (FLOAT, DOUBLE):
        # A double may have been a float when the file was written.
        slack = DIGITS.fma(size, _FLOAT_SLACK, _FLOAT_LEAST)
    return DIGITS.add(bound, slack) if direction > 0 else DIGITS.subtract(bound, slack)


NUMBERS = Order(
    _number_literal, _number_exact, partial(_number_bound, -1), partial(_number_bound, +1)
)


# Integers compared with integers: no decimals are needed.


def _whole_literal(value: Literal, data_type: DataType) -> int | None:
    return value if type(value) is int else None


def _whole_exact(value: object, data_type: DataType) -> tuple[int | None, int | None]:
    number = value if type(value) is int else None
    return number, number


def _whole_bound(value: object, data_type: DataType) -> int | None:
    return value if type(value) is int else None


WHOLES = Order(_whole_literal, _whole_exact, _whole_bound, _whole_bound)
