"""Predicates against partition values and min/max: what was read, what may be skipped.

Skipping is sound: a file that holds a matching row is never skipped, whatever its statistics leave
out, cut off or round. NULL follows SQL's three-valued logic, NaN equals itself and lies above every
number. A timestamp spelled without a zone is UTC.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Generic, TypeVar, assert_never

import msgspec

from headgate.errors import InvalidDataError, MalformedError
from headgate.protocol.column_mapping import physical_name
from headgate.protocol.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    Path,
    Primitive,
    StructType,
    find_all,
)

T = TypeVar("T", int, Decimal, str)

Literal = bool | int | float | str  # dates, timestamps and decimals in Delta's own spelling
Column = tuple[str, ...]  # a path into nested structs, by logical names


class Operator(enum.Enum):
    """How a column is held against a value."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class _Node(msgspec.Struct, frozen=True, tag_field="is"):
    pass


class Compare(_Node, frozen=True, tag="compare"):
    """A column against a literal."""

    column: Column
    operator: Operator
    value: Literal


class In(_Node, frozen=True, tag="in"):
    """A column against several literals."""

    column: Column
    values: tuple[Literal, ...]


class IsNull(_Node, frozen=True, tag="null"):
    """A column without a value."""

    column: Column


class And(_Node, frozen=True, tag="and"):
    """All of them."""

    items: tuple[Predicate, ...]


class Or(_Node, frozen=True, tag="or"):
    """Any of them."""

    items: tuple[Predicate, ...]


class Not(_Node, frozen=True, tag="not"):
    """The other rows."""

    item: Predicate


Predicate = Compare | In | IsNull | And | Or | Not

Values = Mapping[str, object]  # statistics as JSON has them, nested like the schema
_NONE: Values = {}


def columns(predicate: Predicate) -> frozenset[Column]:
    """Give every column a predicate looks at."""
    found: set[Column] = set()
    waiting = [predicate]
    while waiting:
        match waiting.pop():
            case Compare(column=column) | In(column=column) | IsNull(column=column):
                found.add(column)
            case And(items=items) | Or(items=items):
                waiting.extend(items)
            case Not(item=item):
                waiting.append(item)
    return frozenset(found)


# Statistics


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `add.stats` says of a file. Numbers with a point are kept to their last digit."""

    num_records: int | None = None
    tight_bounds: bool | None = None
    min_values: dict[str, object] | None = None
    max_values: dict[str, object] | None = None
    null_count: dict[str, object] | None = None


# Decimals would lose digits as floats.
_statistics = msgspec.json.Decoder(Statistics, float_hook=Decimal, strict=False)
_values = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


def parse_statistics(text: str | None) -> Statistics:
    """Read `add.stats`; statistics that cannot be read are none."""
    if not text:
        return Statistics()
    try:
        return _statistics.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation):
        return Statistics()


def parse_values(raw: msgspec.Raw | bytes | None) -> Values | None:
    """Read `minValues` or `maxValues` alone; None if they cannot be read."""
    if raw is None:
        return None
    try:
        return _values.decode(bytes(raw))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation):
        return None


# What a predicate means


def matches(predicate: Predicate, row: Mapping[str, object]) -> bool:
    """Say whether a row matches. Rows are nested by logical names, values are Python's own.

    For one row at a time: it says what skipping must be true to.
    """
    return _truth(predicate, row) is True


def _truth(predicate: Predicate, row: Mapping[str, object]) -> bool | None:
    match predicate:
        case And(items=items):
            truths = [_truth(item, row) for item in items]
            return False if False in truths else None if None in truths else True
        case Or(items=items):
            truths = [_truth(item, row) for item in items]
            return True if True in truths else None if None in truths else False
        case Not(item=item):
            truth = _truth(item, row)
            return None if truth is None else not truth
        case IsNull(column=column):
            return _at(row, column) is None
        case Compare(column=column, operator=operator, value=literal):
            value = _at(row, column)
            return None if value is None else _holds(operator, _sign(value, literal))
        case In(column=column, values=literals):
            value = _at(row, column)
            if value is None:
                return None
            signs = [_sign(value, literal) for literal in literals]
            return True if 0 in signs else None if None in signs else False
        case _:
            assert_never(predicate)


def _holds(operator: Operator, sign: int | None) -> bool | None:
    if sign is None:
        return None
    match operator:
        case Operator.EQ:
            return sign == 0
        case Operator.NE:
            return sign != 0
        case Operator.LT:
            return sign < 0
        case Operator.LE:
            return sign <= 0
        case Operator.GT:
            return sign > 0
        case Operator.GE:
            return sign >= 0
        case _:
            assert_never(operator)


def _sign(value: object, literal: Literal) -> int | None:
    """Compare a value with a literal: -1, 0 or 1; None if the two cannot be compared."""
    match value:
        case bool():
            return value - literal if isinstance(literal, bool) else None
        case str():
            return _ordered(value, literal) if isinstance(literal, str) else None
        case dt.datetime() | dt.date():
            is_moment = isinstance(value, dt.datetime)
            own, _ = _counted_exact(value, DATE)
            theirs, _ = _count(literal, TIMESTAMP if is_moment else DATE)
            return None if own is None or theirs is None else _ordered(own, theirs)
        case float() if math.isnan(value):
            return 0 if isinstance(literal, float) and math.isnan(literal) else 1
        case int() | float() | Decimal():
            if isinstance(literal, float) and math.isnan(literal):
                return -1
            number = None if isinstance(literal, bool) else _decimal(literal)
            return None if number is None else _ordered(Decimal(value), number)
        case _:
            return None


def _ordered(left: T, right: T) -> int:
    return (left > right) - (left < right)


# Which files may hold a matching row


def may_match(
    predicate: Predicate,
    schema: StructType,
    partition_values: Mapping[str, str | None],
    min_values: Values | None = None,
    max_values: Values | None = None,
    null_count: Values | None = None,
    num_records: int | None = None,
) -> bool:
    """Say whether a file may hold a row that matches; False is certain."""
    return Pruner(predicate, schema).may_match(
        partition_values, min_values, max_values, null_count, num_records
    )


class Pruner:
    """A predicate made ready for many files of one schema.

    Partition values and statistics go by physical names: give the schema with its column mapping,
    or without where the mode is `none`.
    """

    def __init__(self, predicate: Predicate, schema: StructType) -> None:
        self._judge = _judge(predicate, schema)

    def may_match(
        self,
        partition_values: Mapping[str, str | None],
        min_values: Values | None = None,
        max_values: Values | None = None,
        null_count: Values | None = None,
        num_records: int | None = None,
    ) -> bool:
        """Say whether a file may hold a row that matches; False is certain."""
        file = _File(
            partition_values,
            min_values or _NONE,
            max_values or _NONE,
            null_count or _NONE,
            num_records,
        )
        return bool(self._judge(file) & _TRUE)


@dataclass(frozen=True, slots=True)
class _File:
    partition_values: Mapping[str, str | None]
    min_values: Values
    max_values: Values
    null_count: Values
    num_records: int | None


# What a predicate may come to on some row of a file: a set of SQL's three truth values.
_TRUE, _FALSE, _NULL = 1, 2, 4
_ANYTHING = _TRUE | _FALSE | _NULL

_Judge = Callable[[_File], int]


_DEEPEST = 100  # predicates come from anywhere; below this level they say nothing


def _judge(predicate: Predicate, schema: StructType, depth: int = 0) -> _Judge:
    if depth > _DEEPEST:
        return _anything
    match predicate:
        case And(items=items):
            return _all_of([_judge(item, schema, depth + 1) for item in items])
        case Or(items=items):
            # By De Morgan, which holds in three-valued logic too.
            return _negated(_all_of([_negated(_judge(i, schema, depth + 1)) for i in items]))
        case Not(item=item):
            return _negated(_judge(item, schema, depth + 1))
        case IsNull(column=column):
            return _null_judge(column, schema)
        case Compare(column=column, operator=operator, value=value):
            return _value_judge(column, schema, operator, (value,))
        case In(column=column, values=values):
            return _value_judge(column, schema, Operator.EQ, values)
        case _:
            assert_never(predicate)


def _negated(judge: _Judge) -> _Judge:
    def swapped(file: _File) -> int:
        truth = judge(file)
        return (truth & _NULL) | (_FALSE if truth & _TRUE else 0) | (_TRUE if truth & _FALSE else 0)

    return swapped


def _all_of(judges: list[_Judge]) -> _Judge:
    def conjunction(file: _File) -> int:
        # How the truths of one row go together is not known: every combination counts as possible.
        every, some = _TRUE, 0
        for judge in judges:
            truth = judge(file)
            if truth == _FALSE:
                return _FALSE
            every &= truth
            some |= truth & (_FALSE | _NULL)
        return every | some

    return conjunction


def _null_judge(column: Column, schema: StructType) -> _Judge:
    found = _locate(column, schema)
    if found is None:
        return _anything
    physical, _ = found

    def judge(file: _File) -> int:
        nulls = _nulls(file, physical)
        return {_Nulls.NONE: _FALSE, _Nulls.ALL: _TRUE, _Nulls.SOME: _TRUE | _FALSE}[nulls]

    return judge


def _value_judge(
    column: Column, schema: StructType, operator: Operator, literals: tuple[Literal, ...]
) -> _Judge:
    found = _locate(column, schema)
    if found is None:
        return _anything
    physical, data_type = found
    if data_type == STRING:
        return _judge_by(_STRINGS, data_type, physical, operator, literals)
    if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ, BOOLEAN):
        return _judge_by(_COUNTED, data_type, physical, operator, literals)
    if _is_whole(data_type) and all(type(literal) is int for literal in literals):
        return _judge_by(_WHOLES, data_type, physical, operator, literals)
    if data_type in (FLOAT, DOUBLE) or isinstance(data_type, DecimalType) or _is_whole(data_type):
        return _judge_by(_NUMBERS, data_type, physical, operator, literals)
    return _judge_nulls(physical)


def _anything(file: _File) -> int:
    return _ANYTHING


def _judge_nulls(physical: Path) -> _Judge:
    """Judge a column without an order of its own: all that can be known is whether it is null."""

    def judge(file: _File) -> int:
        return _NULL if _nulls(file, physical) is _Nulls.ALL else _ANYTHING

    return judge


def _locate(column: Column, schema: StructType) -> tuple[Path, DataType] | None:
    fields = find_all(schema, column)
    if len(fields) != len(column) or not fields:
        return None
    if any("__COLLATIONS" in field.metadata for field in fields):
        return None  # rows compare by a collation, bounds do not
    return tuple(physical_name(field) for field in fields), fields[-1].type


class _Nulls(enum.Enum):
    NONE = enum.auto()
    SOME = enum.auto()  # or it is not known
    ALL = enum.auto()


def _nulls(file: _File, physical: Path) -> _Nulls:
    if len(physical) == 1 and physical[0] in file.partition_values:
        return _Nulls.NONE if file.partition_values[physical[0]] else _Nulls.ALL
    count = _at(file.null_count, physical)
    if not isinstance(count, int):
        return _Nulls.SOME
    # Between the two ends the count says nothing: with deletion vectors it may be out of date.
    if count == file.num_records:
        return _Nulls.ALL
    return _Nulls.NONE if count == 0 else _Nulls.SOME


def _at(values: Values, path: Path) -> object:
    found: object = values
    for name in path:
        if not isinstance(found, dict) and not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


@dataclass(frozen=True, slots=True)
class _Order(Generic[T]):
    """How values of a kind of type are read so that they can be compared.

    Each gives None for what it cannot read, and nothing is concluded from it.
    """

    literal: Callable[[Literal, DataType], T | None]
    exact: Callable[[object, DataType], tuple[T | None, T | None]]  # both, of a partition value
    lower: Callable[[object, DataType], T | None]  # never above the least value of the file
    upper: Callable[[object, DataType], T | None]  # never below the greatest
    is_open: bool = False  # the upper bound itself is not among the values


def _judge_by(
    order: _Order[T],
    data_type: DataType,
    physical: Path,
    operator: Operator,
    literals: tuple[Literal, ...],
) -> _Judge:
    wanted: list[T] = []
    for literal in literals:
        value = order.literal(literal, data_type)
        if value is None:
            return _judge_nulls(physical)
        wanted.append(value)
    has_nan = data_type in (FLOAT, DOUBLE)
    name = physical[0] if len(physical) == 1 else None

    def judge(file: _File) -> int:
        nulls = _nulls(file, physical)
        if nulls is _Nulls.ALL:
            return _NULL
        may_be_null = 0 if nulls is _Nulls.NONE else _NULL
        if name is not None and name in file.partition_values:
            try:
                exact = parse_partition_value(file.partition_values[name], data_type)
            except MalformedError:
                return _ANYTHING
            low, high = order.exact(exact, data_type)
            is_nan_possible, is_open = isinstance(exact, float) and math.isnan(exact), False
        else:
            low = order.lower(_at(file.min_values, physical), data_type)
            high = order.upper(_at(file.max_values, physical), data_type)
            # Many writers leave NaN out of their bounds.
            is_nan_possible, is_open = has_nan, order.is_open
        if low is not None and high is not None and low > high:
            low = high = None  # somebody's mistake: nothing is concluded from it
        truth = 0 if wanted else _FALSE
        for value in wanted:
            truth |= _compared(
                operator, low, high, value, is_open=is_open, is_nan_possible=is_nan_possible
            )
        if len(wanted) > 1 and low is not None and low == high and low in wanted:
            truth = _TRUE  # one value in the whole file, and it is among those wanted
        return truth | may_be_null

    return judge


def _compared(
    operator: Operator,
    low: T | None,
    high: T | None,
    value: T,
    *,
    is_open: bool,
    is_nan_possible: bool,
) -> int:
    """Say how values from `low` to `high`, each None if not known, may compare with a value."""
    below = low is None or low < value
    above = high is None or high > value or is_nan_possible
    equal = (low is None or low <= value) and (
        high is None or high > value or (high == value and not is_open)
    )
    match operator:
        case Operator.EQ:
            truth, other = equal, below or above
        case Operator.NE:
            truth, other = below or above, equal
        case Operator.LT:
            truth, other = below, equal or above
        case Operator.LE:
            truth, other = below or equal, above
        case Operator.GT:
            truth, other = above, below or equal
        case Operator.GE:
            truth, other = above or equal, below
        case _:
            assert_never(operator)
    return (_TRUE if truth else 0) | (_FALSE if other else 0)


# Strings: bounds may be prefixes, with or without a last character that breaks ties.


def _string_literal(value: Literal, data_type: DataType) -> str | None:
    return value if isinstance(value, str) else None


def _string_exact(value: object, data_type: DataType) -> tuple[str | None, str | None]:
    text = value if isinstance(value, str) else None
    return text, text


_TIE_BREAKERS = "\ufffd\U0010ffff"


def _string_lower(value: object, data_type: DataType) -> str | None:
    # A replacement character may stand for a letter that was cut in half.
    return value.rstrip("\ufffd") if isinstance(value, str) else None


def _string_upper(value: object, data_type: DataType) -> str | None:
    """Give the first string above all that begin like the bound."""
    if not isinstance(value, str):
        return None
    prefix = value.rstrip(_TIE_BREAKERS)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:
        following = 0xE000  # surrogates are no characters
    return prefix[:-1] + chr(following)


_STRINGS = _Order(_string_literal, _string_exact, _string_lower, _string_upper, is_open=True)


# Booleans, dates and timestamps: counted from a fixed point.

_DAY_ONE = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (every zone is taken off first)
_MICROSECOND = dt.timedelta(microseconds=1)
_MILLISECOND = 1_000
_WIDEST_ZONE = 18 * 3600 * 1_000_000


def _counted_literal(value: Literal, data_type: DataType) -> int | None:
    if data_type == BOOLEAN:
        return int(value) if isinstance(value, bool) else None
    return _count(value, data_type)[0]


def _counted_exact(value: object, data_type: DataType) -> tuple[int | None, int | None]:
    count = None
    if isinstance(value, bool):
        count = int(value)
    elif isinstance(value, dt.datetime):
        count = (_naive(value) - _DAY_ONE) // _MICROSECOND
    elif isinstance(value, dt.date):
        count = value.toordinal()
    return count, count


def _counted_lower(value: object, data_type: DataType) -> int | None:
    return _counted_bound(value, data_type, -1)


def _counted_upper(value: object, data_type: DataType) -> int | None:
    return _counted_bound(value, data_type, +1)


def _counted_bound(value: object, data_type: DataType, direction: int) -> int | None:
    if data_type == BOOLEAN:
        return int(value) if isinstance(value, bool) else None
    count, is_zoned = _count(value, data_type)
    if count is None or data_type == DATE:
        return count
    # Bounds of timestamps are cut to milliseconds. Without a zone it is anyone's.
    slack = _MILLISECOND if is_zoned or data_type == TIMESTAMP_NTZ else _WIDEST_ZONE
    return count + direction * slack


def _count(value: object, data_type: DataType) -> tuple[int | None, bool]:
    if not isinstance(value, str):
        return None, False
    try:
        if data_type == DATE:
            return _date(value).toordinal(), True
        moment = _moment(value)
    except ValueError:
        return None, False
    if data_type == TIMESTAMP_NTZ and moment.utcoffset():
        return None, False  # a wall clock somewhere: no telling which
    return (_naive(moment) - _DAY_ONE) // _MICROSECOND, moment.tzinfo is not None


_COUNTED = _Order(_counted_literal, _counted_exact, _counted_lower, _counted_upper)


# Numbers: compared as decimals, which hold integers and floats exactly.

_DIGITS = Context(prec=100)  # whatever precision the process has chosen for itself
_FLOAT_SLACK = Decimal(2.0**-23)  # floats are written with the fewest digits that tell them apart
_FLOAT_LEAST = Decimal(2.0**-149)
_DECIMAL_SLACK = Decimal(2.0**-51)  # some writers compute bounds of decimals as doubles
_DIGITS_OF_A_DOUBLE = 15
_MOST_DIGITS = 500


def _number_literal(value: Literal, data_type: DataType) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not _is_whole(data_type) and data_type not in (FLOAT, DOUBLE):
        return None  # as a decimal or as a double: the two may compare differently
    return _decimal(value)


def _number_exact(value: object, data_type: DataType) -> tuple[Decimal | None, Decimal | None]:
    if data_type in (FLOAT, DOUBLE):
        return _number_lower(value, data_type), _number_upper(value, data_type)
    number = _decimal(value)
    return number, number


def _number_lower(value: object, data_type: DataType) -> Decimal | None:
    return _number_bound(value, data_type, -1)


def _number_upper(value: object, data_type: DataType) -> Decimal | None:
    return _number_bound(value, data_type, +1)


def _number_bound(value: object, data_type: DataType, direction: int) -> Decimal | None:
    if isinstance(value, float) and isinstance(data_type, DecimalType):
        value = repr(value)  # its shortest spelling is the decimal it was made from
    bound = _decimal(value)
    if bound is None or not bound.is_finite():
        return bound
    size, slack = abs(bound), Decimal(0)
    if isinstance(data_type, DecimalType) and data_type.precision > _DIGITS_OF_A_DOUBLE:
        slack = _DIGITS.multiply(size, _DECIMAL_SLACK)
    elif data_type in (FLOAT, DOUBLE):
        # A double may have been a float when the file was written.
        slack = _DIGITS.fma(size, _FLOAT_SLACK, _FLOAT_LEAST)
    return _DIGITS.add(bound, slack) if direction > 0 else _DIGITS.subtract(bound, slack)


_NUMBER = re.compile(
    r"[+-]?(?:(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?|Inf(?:inity)?)",
    re.ASCII,
)


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    number = Decimal(value)
    if number.is_nan() or (number.is_finite() and abs(number.adjusted()) > _MOST_DIGITS):
        return None
    return number


def _whole_literal(value: Literal, data_type: DataType) -> int | None:
    return value if type(value) is int else None


def _whole_exact(value: object, data_type: DataType) -> tuple[int | None, int | None]:
    number = value if type(value) is int else None
    return number, number


def _whole_bound(value: object, data_type: DataType) -> int | None:
    return value if type(value) is int else None


_WHOLES = _Order(_whole_literal, _whole_exact, _whole_bound, _whole_bound)
_NUMBERS = _Order(_number_literal, _number_exact, _number_lower, _number_upper)


# Partition values

_WHOLE: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_ESCAPED_BYTES = re.compile(r"(?:\\u00[0-9a-fA-F]{2})+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?"
    r"(Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)


def parse_partition_value(text: str | None, data_type: DataType) -> object:
    """Read a partition value; the empty string is null, whatever the type."""
    if not text:
        return None
    try:
        return _parse_value(text, data_type)
    except (ValueError, ArithmeticError):
        raise MalformedError(f"The partition value {text!r} is not a {data_type}.") from None


def _parse_value(text: str, data_type: DataType) -> object:
    match data_type:
        case Primitive("string"):
            return text
        case Primitive("boolean"):
            if text.lower() not in {"true", "false"}:
                raise ValueError(text)
            return text.lower() == "true"
        case Primitive("date"):
            return _date(text)
        case Primitive("timestamp"):
            moment = _moment(text)
            if moment.tzinfo is None:
                return moment.replace(tzinfo=dt.UTC)
            return moment.astimezone(dt.UTC)
        case Primitive("timestamp_ntz"):
            return _naive(_moment(text))
        case Primitive("float" | "double"):
            return _float(text)
        case Primitive("binary"):
            if _ESCAPED_BYTES.fullmatch(text):
                return bytes(int(code, 16) for code in text.split(r"\u")[1:])
            return text.encode()
        case DecimalType():
            return _fitted(_decimal(text), data_type)
        case _ if _is_whole(data_type) and re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII):
            return _ranged(int(text), data_type)
        case _:
            raise ValueError(f"no partition value can be a {data_type}")


def format_partition_value(value: object, data_type: DataType) -> str | None:
    """Write a partition value; null, and with it the empty string, is None."""
    if value is None or value == "" or data_type == VOID:
        return None
    try:
        return _format_value(value, data_type)
    except (ValueError, ArithmeticError):
        raise InvalidDataError(f"{value!r} is not a {data_type} to partition by.") from None


def _format_value(value: object, data_type: DataType) -> str:
    match data_type, value:
        case Primitive("string"), str():
            return value
        case Primitive("boolean"), bool():
            return "true" if value else "false"
        case Primitive("date"), dt.date() if not isinstance(value, dt.datetime):
            return value.isoformat()
        case Primitive("timestamp"), dt.datetime():
            return f"{_naive(value).isoformat(timespec='microseconds')}Z"
        case Primitive("timestamp_ntz"), dt.datetime() if value.tzinfo is None:
            return value.isoformat(sep=" ")
        case Primitive("float" | "double"), float() | int() if not isinstance(value, bool):
            return _format_float(float(value))
        case Primitive("binary"), bytes():
            return value.decode()
        case DecimalType(), Decimal() | int() if not isinstance(value, bool):
            return format(_fitted(Decimal(value), data_type), "f")
        case Primitive(), int() if _is_whole(data_type) and not isinstance(value, bool):
            return str(_ranged(value, data_type))
        case _:
            raise ValueError(f"no {data_type}")


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _float(text: str) -> float:
    if text == "NaN":
        return math.nan
    number = _decimal(text)
    if number is None:
        raise ValueError(text)
    return float(number)


def _fitted(number: Decimal | None, data_type: DecimalType) -> Decimal:
    if number is None or not number.is_finite():
        raise ValueError("no number")
    fitted = number.quantize(Decimal((0, (1,), -data_type.scale)), context=_DIGITS)
    if fitted != number or len(fitted.as_tuple().digits) > data_type.precision:
        raise ValueError("too many digits")
    return fitted


def _ranged(number: int, data_type: DataType) -> int:
    bits = _WHOLE[str(data_type)]
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError("out of range")
    return number


def _is_whole(data_type: DataType) -> bool:
    return isinstance(data_type, Primitive) and data_type.name in _WHOLE


def _date(text: str) -> dt.date:
    if _DATE.fullmatch(text) is None:
        raise ValueError(text)
    return dt.date.fromisoformat(text)


def _moment(text: str) -> dt.datetime:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, clock, fraction, zone = found.groups()
    zone = {"UTC": "+00:00", "Z": "+00:00", None: ""}.get(zone, zone)
    micros = f".{fraction[1:7]:0<6}" if fraction else ""
    if clock is not None and len(clock) == 5:
        clock += ":00"
    return dt.datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{micros}{zone}")


def _naive(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
