"""Decide whether a file may hold a row that matches a predicate; if uncertain, it may."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, assert_never

from headgate.errors import MalformedError
from headgate.protocol.expressions import bounds
from headgate.protocol.expressions.predicates import (
    And,
    Column,
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
from headgate.protocol.partition_values import parse_partition_value
from headgate.protocol.scalars import Comparable
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.statistics import NO_STATISTICS, Statistics


class Pruner:
    """A predicate prepared for many files of one schema.

    Partition values and statistics have physical names: pass the schema with its column mapping, or
    without it if the mode is `none`.
    """

    def __init__(self, predicate: Predicate, schema: delta.StructType) -> None:
        self._evaluator = _evaluator(predicate, schema)

    def may_match(
        self,
        partition_values: Mapping[str, str | None],
        statistics: Statistics = NO_STATISTICS,
    ) -> bool:
        """Return False if a file certainly has no row that matches."""
        return bool(self._evaluator(_File(partition_values, statistics)) & _TRUE)


class _File(NamedTuple):
    partition_values: Mapping[str, str | None]
    stats: Statistics


# The possible values of a predicate on the rows of a file: a set of SQL's three truth values.
_TRUE, _FALSE, _NULL = 1, 2, 4
_ANYTHING = _TRUE | _FALSE | _NULL

_Evaluator = Callable[[_File], int]
_DEEPEST = 100  # predicates may come from a client; deeper parts are not evaluated


def _evaluator(predicate: Predicate, schema: delta.StructType, depth: int = 0) -> _Evaluator:
    if depth > _DEEPEST:
        return _anything
    match predicate:
        case And(items=items):
            return _all_of([_evaluator(item, schema, depth + 1) for item in items])
        case Or(items=items):
            # By De Morgan, which holds in three-valued logic too.
            return _negated(_all_of([_negated(_evaluator(i, schema, depth + 1)) for i in items]))
        case Not(item=item):
            return _negated(_evaluator(item, schema, depth + 1))
        case IsNull(column=column):
            found = _locate(column, schema)
            return _anything if found is None else partial(_is_null, physical=found[0])
        case Compare(column=column, operator=operator, value=value):
            return _value_evaluator(column, schema, operator, (value,))
        case In(column=column, values=values):
            return _value_evaluator(column, schema, Operator.EQ, values)
        case _:
            assert_never(predicate)


def _negated(evaluate: _Evaluator) -> _Evaluator:
    def swapped(file: _File) -> int:
        truth = evaluate(file)
        return (truth & _NULL) | (_FALSE if truth & _TRUE else 0) | (_TRUE if truth & _FALSE else 0)

    return swapped


def _all_of(evaluators: list[_Evaluator]) -> _Evaluator:
    def conjunction(file: _File) -> int:
        # Which values occur on one row together is not known: every combination is possible.
        every, some = _TRUE, 0
        for evaluate in evaluators:
            truth = evaluate(file)
            if truth == _FALSE:
                return _FALSE
            every &= truth
            some |= truth & (_FALSE | _NULL)
        return every | some

    return conjunction


def _value_evaluator(
    column: Column, schema: delta.StructType, operator: Operator, literals: tuple[Literal, ...]
) -> _Evaluator:
    found = _locate(column, schema)
    if found is None:
        return _anything
    physical, data_type = found
    order = _order_of(data_type, literals)
    values = [] if order is None else [order.literal(literal, data_type) for literal in literals]
    if order is None or None in values:
        return _nulls_only(physical)
    return _ordered_evaluator(order, data_type, physical, operator, values)


def _order_of(data_type: delta.DataType, literals: Sequence[Literal]) -> bounds.Order[Any] | None:
    """Choose how a column is compared with literals; None if its type has no order."""
    if data_type == delta.STRING:
        return bounds.STRINGS
    if data_type in (delta.DATE, delta.TIMESTAMP, delta.TIMESTAMP_NTZ, delta.BOOLEAN):
        return bounds.COUNTED
    if delta.is_whole(data_type):
        are_whole = all(type(literal) is int for literal in literals)
        return bounds.WHOLES if are_whole else bounds.NUMBERS
    is_number = data_type in (delta.FLOAT, delta.DOUBLE) or isinstance(data_type, delta.DecimalType)
    return bounds.NUMBERS if is_number else None


def _anything(file: _File) -> int:
    return _ANYTHING


def _nulls_only(physical: delta.Path) -> _Evaluator:
    """Evaluate a column without an order: all that is known is whether it is null."""
    return lambda file: _NULL if _is_null(file, physical) == _TRUE else _ANYTHING


def _locate(column: Column, schema: delta.StructType) -> tuple[delta.Path, delta.DataType] | None:
    fields = delta.find_all(schema, column)
    if len(fields) != len(column) or not fields:
        return None
    if any("__COLLATIONS" in field.metadata for field in fields):
        return None  # rows are compared by a collation, bounds are not
    return tuple(physical_name(field) for field in fields), fields[-1].type


def _is_null(file: _File, physical: delta.Path) -> int:
    """Return the possible values of IS NULL for a column on the rows of a file."""
    if len(physical) == 1 and physical[0] in file.partition_values:
        return _FALSE if file.partition_values[physical[0]] else _TRUE
    count = value_at(file.stats.null_count, physical)
    if not isinstance(count, int):
        return _TRUE | _FALSE
    # Any other count proves nothing: with deletion vectors it may be out of date.
    if count == file.stats.num_records:
        return _TRUE
    return _FALSE if count == 0 else _TRUE | _FALSE


def _ordered_evaluator(
    order: bounds.Order[Any],
    data_type: delta.DataType,
    physical: delta.Path,
    operator: Operator,
    values: Sequence[Any],
) -> _Evaluator:
    has_nan = data_type in (delta.FLOAT, delta.DOUBLE)
    name = physical[0] if len(physical) == 1 else None

    def evaluate(file: _File) -> int:
        is_null = _is_null(file, physical)
        if is_null == _TRUE:
            return _NULL
        may_be_null = _NULL if is_null & _TRUE else 0
        if name is not None and name in file.partition_values:
            try:
                exact = parse_partition_value(file.partition_values[name], data_type)
            except MalformedError:
                return _ANYTHING
            low = order.partition(bounds.LOWER, exact, data_type)
            high = order.partition(bounds.UPPER, exact, data_type)
            is_nan_possible, is_open = isinstance(exact, float) and math.isnan(exact), False
        else:
            low = order.bound(bounds.LOWER, value_at(file.stats.min_values, physical), data_type)
            high = order.bound(bounds.UPPER, value_at(file.stats.max_values, physical), data_type)
            # Many writers leave NaN out of their bounds.
            is_nan_possible, is_open = has_nan, order.is_open
        if low is not None and high is not None and low > high:
            low = high = None  # a writer's mistake: treated as unknown
        truth = 0 if values else _FALSE
        for value in values:
            truth |= _compared(
                operator, low, high, value, is_open=is_open, is_nan_possible=is_nan_possible
            )
        if len(values) > 1 and low is not None and low == high and low in values:
            truth = _TRUE  # one value in the whole file, and it is one of the literals
        return truth | may_be_null

    return evaluate


def _compared(
    operator: Operator,
    low: Comparable | None,
    high: Comparable | None,
    value: Comparable,
    *,
    is_open: bool,
    is_nan_possible: bool,
) -> int:
    """Return how values from `low` to `high`, None if unknown, may compare with a value."""
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
