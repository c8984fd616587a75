"""Predicates over a table's columns, and their evaluation on a row.

NULL follows SQL's three-valued logic; NaN equals itself and is greater than every number.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import assert_never

import msgspec

from headgate.protocol.scalars import Comparable, count, parse_count, parse_number
from headgate.protocol.schema.types import DATE, TIMESTAMP

Literal = bool | int | float | str  # dates, timestamps and decimals in Delta's text format
Column = tuple[str, ...]  # a path into nested structs, by logical names


class Operator(enum.Enum):
    """How a column is compared with a literal."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class _Node(msgspec.Struct, frozen=True, tag_field="is"):
    pass


class Compare(_Node, frozen=True, tag="compare"):
    """A column compared with a literal."""

    column: Column
    operator: Operator
    value: Literal


class In(_Node, frozen=True, tag="in"):
    """A column equal to one of several literals."""

    column: Column
    values: tuple[Literal, ...]


class IsNull(_Node, frozen=True, tag="null"):
    """A column that is null."""

    column: Column


class And(_Node, frozen=True, tag="and"):
    """All of several predicates."""

    items: tuple[Predicate, ...]


class Or(_Node, frozen=True, tag="or"):
    """Any of several predicates."""

    items: tuple[Predicate, ...]


class Not(_Node, frozen=True, tag="not"):
    """The negation of a predicate."""

    item: Predicate


Predicate = Compare | In | IsNull | And | Or | Not


def columns(predicate: Predicate) -> frozenset[Column]:
    """Return all columns that a predicate uses."""
    used: set[Column] = set()
    pending = [predicate]
    while pending:
        match pending.pop():
            case Compare(column=column) | In(column=column) | IsNull(column=column):
                used.add(column)
            case And(items=items) | Or(items=items):
                pending.extend(items)
            case Not(item=item):
                pending.append(item)
    return frozenset(used)


def matches(predicate: Predicate, row: Mapping[str, object]) -> bool:
    """Return True if a row matches. Rows are nested by logical names, with Python values.

    Slow; it defines what file pruning must agree with.
    """
    return _truth(predicate, row) is True


def value_at(values: Mapping[str, object], path: Sequence[str]) -> object:
    """Return the value at a path of nested names, or None."""
    found: object = values
    for name in path:
        if not isinstance(found, dict) and not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


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
