"""Make literals, partition values and the bounds of a file comparable, by their type.

Writers truncate and round bounds in different ways. Here they are widened until every value of the
file is between them. A value that cannot be parsed is None, which means unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic

from headgate.protocol.expressions.predicates import Literal
from headgate.protocol.scalars import DIGITS, Comparable, count, parse_count, parse_number
from headgate.protocol.schema import types as delta

# The direction of a bound: not above the least value, or not below the greatest value.
LOWER, UPPER = -1, +1


@dataclass(frozen=True, slots=True)
class Order(Generic[Comparable]):
    """How values of some types are parsed so that they can be compared."""

    literal: Callable[[Literal, delta.DataType], Comparable | None]
    partition: Callable[
        [int, object, delta.DataType], Comparable | None
    ]  # bound of a partition value
    bound: Callable[[int, object, delta.DataType], Comparable | None]  # bound in statistics
    is_open: bool = False  # the upper bound itself is not a value


# Strings: bounds may be prefixes, with or without a last character that breaks ties.

_TIE_BREAKERS = "\ufffd\U0010ffff"


def _string(value: object, data_type: delta.DataType) -> str | None:
    return value if isinstance(value, str) else None


def _string_bound(direction: int, value: object, data_type: delta.DataType) -> str | None:
    if not isinstance(value, str):
        return None
    if direction == LOWER:
        # A replacement character may stand for a character that was truncated.
        return value.rstrip("\ufffd")
    prefix = value.rstrip(_TIE_BREAKERS)
    if not prefix:
        return None
    # The first string above all strings that begin with the prefix.
    following = ord(prefix[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:
        following = 0xE000  # surrogates are not characters
    return prefix[:-1] + chr(following)


STRINGS = Order(
    _string, lambda _, value, data_type: _string(value, data_type), _string_bound, is_open=True
)


# Booleans, dates and timestamps: counted from a fixed point.

_MILLISECOND = 1_000
_WIDEST_ZONE = 18 * 3600 * 1_000_000
# Before this day some writers mean days of the Julian calendar. The two differ by less than a year.
_GREGORIAN_DAYS = -141_427  # 1582-10-15
_YEAR_DAYS = 366
_DAY = 24 * 3600 * 1_000_000


def _counted(value: object, data_type: delta.DataType) -> int | None:
    return _counted_bound(0, value, data_type)


def _counted_bound(direction: int, value: object, data_type: delta.DataType) -> int | None:
    if data_type == delta.BOOLEAN:
        return int(value) if isinstance(value, bool) else None
    number, is_zoned = parse_count(value, data_type)
    if number is None:
        return None
    if data_type == delta.DATE:
        return number + direction * (_YEAR_DAYS if number < _GREGORIAN_DAYS else 0)
    # Bounds of timestamps are truncated to milliseconds. Without a zone any zone may be meant.
    slack = _MILLISECOND if is_zoned or data_type == delta.TIMESTAMP_NTZ else _WIDEST_ZONE
    if number < _GREGORIAN_DAYS * _DAY:
        slack += _YEAR_DAYS * _DAY
    return number + direction * slack


COUNTED = Order(_counted, lambda _, value, data_type: count(value), _counted_bound)


# Numbers: compared as decimals, which are exact for integers and floats.

_FLOAT_SLACK = Decimal(2.0**-23)  # floats are written with the fewest digits that identify them
_FLOAT_LEAST = Decimal(2.0**-149)
_DECIMAL_SLACK = Decimal(2.0**-51)  # some writers compute bounds of decimals as doubles
_DIGITS_OF_A_DOUBLE = 15


def _number(value: Literal, data_type: delta.DataType) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if (
        isinstance(value, float)
        and not delta.is_whole(data_type)
        and data_type not in (delta.FLOAT, delta.DOUBLE)
    ):
        return None  # as a decimal or as a double: the results may differ
    return parse_number(value)


def _number_partition(direction: int, value: object, data_type: delta.DataType) -> Decimal | None:
    if data_type in (delta.FLOAT, delta.DOUBLE):
        return _number_bound(direction, value, data_type)
    return parse_number(value)


def _number_bound(direction: int, value: object, data_type: delta.DataType) -> Decimal | None:
    if isinstance(value, float) and isinstance(data_type, delta.DecimalType):
        value = repr(value)  # its shortest representation is the decimal it was converted from
    bound = parse_number(value)
    if bound is None or not bound.is_finite():
        return bound
    size, slack = abs(bound), Decimal(0)
    if isinstance(data_type, delta.DecimalType) and data_type.precision > _DIGITS_OF_A_DOUBLE:
        slack = DIGITS.multiply(size, _DECIMAL_SLACK)
    elif data_type in (delta.FLOAT, delta.DOUBLE):
        # A double may have been a float when the file was written.
        slack = DIGITS.fma(size, _FLOAT_SLACK, _FLOAT_LEAST)
    return DIGITS.add(bound, slack) if direction == UPPER else DIGITS.subtract(bound, slack)


NUMBERS = Order(_number, _number_partition, _number_bound)


# Integers compared with integers: no decimals are needed.


def _whole(value: object, data_type: delta.DataType) -> int | None:
    return value if type(value) is int else None


def _whole_bound(direction: int, value: object, data_type: delta.DataType) -> int | None:
    return value if type(value) is int else None


WHOLES = Order(_whole, _whole_bound, _whole_bound)
