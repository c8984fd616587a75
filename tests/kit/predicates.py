"""What a predicate means for a row: the reference that file pruning is compared with."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import assert_never

from headgate.protocol.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    value_at,
)
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.scalars import Comparable, count, parse_count, parse_number
from headgate.protocol.schema.types import DATE, TIMESTAMP, StructType
from headgate.protocol.statistics import Statistics


def may_match(
    predicate: Predicate,
    schema: StructType,
    partition_values: Mapping[str, str | None],
    min_values: dict[str, object] | None = None,
    max_values: dict[str, object] | None = None,
    null_count: dict[str, object] | None = None,
    num_records: int | None = None,
) -> bool:
    """Return False if a file certainly has no row that matches."""
    statistics = Statistics(
        min_values=min_values,
        max_values=max_values,
        null_count=null_count,
        num_records=num_records,
    )
    return Pruner(predicate, schema).may_match(partition_values, statistics)


def matches(predicate: Predicate, row: Mapping[str, object]) -> bool:
    """Return True if a row matches. Rows are nested by logical names, with Python values."""
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
            return value_at(row, column) is None
        case Compare(column=column, operator=operator, value=literal):
            value = value_at(row, column)
            return None if value is None else _holds(operator, _sign(value, literal))
        case In(column=column, values=literals):
            value = value_at(row, column)
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
    """Compare a value with a literal: -1, 0 or 1; None if they cannot be compared."""
    match value:
        case bool():
            return value - literal if isinstance(literal, bool) else None
        case str():
            return _ordered(value, literal) if isinstance(literal, str) else None
        case dt.datetime() | dt.date():
            is_timestamp = isinstance(value, dt.datetime)
            left = count(value)
            right, _ = parse_count(literal, TIMESTAMP if is_timestamp else DATE)
            return None if left is None or right is None else _ordered(left, right)
        case float() if math.isnan(value):
            return 0 if isinstance(literal, float) and math.isnan(literal) else 1
        case int() | float() | Decimal():
            if isinstance(literal, float) and math.isnan(literal):
                return -1
            number = None if isinstance(literal, bool) else parse_number(literal)
            return None if number is None else _ordered(Decimal(value), number)
        case _:
            return None


def _ordered(left: Comparable, right: Comparable) -> int:
    return (left > right) - (left < right)
