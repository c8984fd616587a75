"""Derive the predicate that a condition implies, for file pruning.

The predicate is true for every row the condition is true for, however Spark evaluates it. So only
forms whose meaning is certain count: a plain column compared with literals of its own family of
types. Everything else implies nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headgate.names import fold
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
)
from headgate.protocol.expressions.tree import ColumnReference, Constant, Expression, OperatorCall
from headgate.protocol.scalars import PLAIN_TIMESTAMP, parse_date, parse_moment
from headgate.protocol.schema import types as delta

_SWAPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
_OPERATORS = {operator.value: operator for operator in Operator}


def implied_predicate(
    tree: Expression,
    schema: delta.StructType,
    *,
    labels: Collection[tuple[str, ...]] = (),
    others: Collection[str] = (),
    is_utc: bool = False,
) -> Predicate | None:
    """Return what a condition on rows of one table implies; None for nothing.

    `labels` are the names that may qualify its columns, in parts; `others` are the folded names of
    other tables in scope. Timestamps without a zone are used only if the session's zone is UTC.
    """
    folded = [tuple(fold(part) for part in label) for label in labels]
    columns = _Columns(schema, sorted(folded, key=len, reverse=True), others, is_utc)
    return _implied(tree, columns, is_negated=False)


def all_of(items: Sequence[Predicate]) -> Predicate | None:
    """Join predicates with AND; None if there are none."""
    return None if not items else items[0] if len(items) == 1 else And(tuple(items))


def _implied(node: Expression, columns: _Columns, *, is_negated: bool) -> Predicate | None:
    """Drop what is unknown, such that the rest is true wherever the whole is true."""
    match node:
        case OperatorCall("NOT", (item,)):
            return _implied(item, columns, is_negated=not is_negated)
        case OperatorCall("AND" | "OR" as operator, items):
            parts = [_implied(item, columns, is_negated=is_negated) for item in items]
            return _joined(parts, is_all=(operator == "AND") is not is_negated)
        case OperatorCall("BETWEEN", (item, low, high)):
            if _certain(low) is None or _certain(high) is None:
                return None
            sides = ((Operator.GE, low), (Operator.LE, high))
            parts = [columns.compare(item, operator, value) for operator, value in sides]
            negated = [Not(part) if is_negated and part is not None else part for part in parts]
            return _joined(negated, is_all=not is_negated)
        case _:
            found = _atom(node, columns)
            return Not(found) if is_negated and found is not None else found


def _joined(parts: Sequence[Predicate | None], *, is_all: bool) -> Predicate | None:
    known = [part for part in parts if part is not None]
    if is_all:
        return all_of(known)
    if len(known) < len(parts):
        return None
    return known[0] if len(known) == 1 else Or(tuple(known))


def _atom(node: Expression, columns: _Columns) -> Predicate | None:
    match node:
        case ColumnReference():
            fields = columns.find(node)
            is_flag = bool(fields) and fields[-1].type == delta.BOOLEAN
            return Compare(_path(fields), Operator.EQ, True) if is_flag else None
        case OperatorCall("IS NULL", (item,)) | OperatorCall("<=>", (item, Constant("NULL"))):
            return columns.is_null(item)
        case OperatorCall("<=>", (left, right)):
            equal, is_null = columns.compare(left, Operator.EQ, right), columns.is_null(left)
            # Never null: its negation holds for nulls.
            return None if equal is None or is_null is None else And((equal, Not(is_null)))
        case OperatorCall(sign, (left, right)) if operator := _OPERATORS.get(sign):
            if isinstance(right, ColumnReference):
                left, right, operator = right, left, _SWAPPED.get(operator, operator)
            return columns.compare(left, operator, right)
        case OperatorCall("IN", (item, *choices)):
            return _in(item, choices, columns)
        case _:
            return None


def _in(item: Expression, choices: Sequence[Expression], columns: _Columns) -> Predicate | None:
    fields, constants = columns.find(item), [_certain(choice) for choice in choices]
    # A list has one type; timestamps written as strings may be compared as strings.
    kinds = {None if constant is None else constant.kind for constant in constants}
    if not fields or len(kinds) > 1 or fields[-1].type in (delta.TIMESTAMP, delta.TIMESTAMP_NTZ):
        return None
    literals = [_literal(constant, fields[-1], columns) for constant in constants]
    known = [literal for literal in literals if literal is not None]
    return In(_path(fields), tuple(known)) if len(known) == len(literals) else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that a condition may use."""

    schema: delta.StructType
    labels: Sequence[tuple[str, ...]]  # folded, the longest first
    others: Collection[str]
    is_utc: bool

    def find(self, node: Expression) -> list[delta.StructField]:
        """Find the field of a column reference; empty if it is not a column of this table."""
        if not isinstance(node, ColumnReference):
            return []
        path = node.path
        folded = tuple(fold(part) for part in path)
        for label in self.labels:
            if len(path) > len(label) and folded[: len(label)] == label:
                return self._fields(path[len(label) :])
        if len(path) > 1 and folded[0] in self.others:
            return []
        return self._fields(path)

    def _fields(self, path: tuple[str, ...]) -> list[delta.StructField]:
        found = delta.find_all(self.schema, path)
        return found if len(found) == len(path) else []

    def is_null(self, column: Expression) -> Predicate | None:
        fields = self.find(column)
        return IsNull(_path(fields)) if fields else None

    def compare(self, column: Expression, operator: Operator, to: Expression) -> Predicate | None:
        fields = self.find(column)
        literal = _literal(_certain(to), fields[-1], self) if fields else None
        return None if literal is None else Compare(_path(fields), operator, literal)


def _path(fields: Sequence[delta.StructField]) -> tuple[str, ...]:
    return tuple(item.name for item in fields)


# Literals of the column's own family


def _certain(node: Expression) -> Constant | None:
    """Return a constant whose meaning is the same under all of Spark's settings, unquoted."""
    match node:
        case OperatorCall("NEGATE", (Constant("NUMBER", text),)):
            return Constant("NUMBER", f"-{text}")
        case Constant("NUMBER" | "BOOLEAN"):
            return node
        case Constant(kind, raw) if kind != "NULL" and raw[0] in "'rR" and raw[-1] == "'":
            text = raw.lstrip("rR")[1:-1]
            return None if "\\" in text or "''" in text else Constant(kind, text)
        case _:
            return None


def _literal(
    constant: Constant | None, column: delta.StructField, columns: _Columns
) -> Literal | None:
    """Convert a constant for a comparison with a column; None if Spark would cast either side."""
    if constant is None or any(key.startswith("__CHAR_VARCHAR") for key in column.metadata):
        return None  # Spark pads strings of a declared length with blanks before it compares
    text, of = constant.text, column.type
    match constant.kind, of:
        case "NUMBER", _:
            return _number(text, of)
        case "BOOLEAN", delta.Primitive("boolean"):
            return text == "TRUE"
        case "STRING", delta.Primitive("string"):
            return text
        case "STRING" | "DATE", delta.Primitive("date"):
            return text if _is_date(text) else None
        case "STRING" | "TIMESTAMP", delta.Primitive("timestamp"):
            zone = _zone(text)
            return text if zone or (zone == "" and columns.is_utc) else None
        case "STRING" | "TIMESTAMP_NTZ", delta.Primitive("timestamp_ntz"):
            return text if _zone(text) == "" else None
        case _:
            return None


def _number(text: str, of: delta.DataType) -> Literal | None:
    whole = re.fullmatch(r"(-?\d{1,38})[lLsSyY]?", text)
    if delta.is_whole(of):
        return int(whole[1]) if whole else None
    plain = re.fullmatch(r"-?(\d{0,38})(?:\.(\d{0,38}))?", text)
    if isinstance(of, delta.DecimalType):
        if plain is None:
            return None
        digits, places = plain[1].lstrip("0"), plain[2] or ""
        # Spark rounds what is beyond the precision of a decimal.
        most = max(len(digits), of.precision - of.scale) + max(len(places), of.scale)
        return f"{Decimal(text):f}" if most <= 38 else None
    if of == delta.FLOAT:
        return int(whole[1]) if whole and abs(int(whole[1])) <= 2**24 else None
    if of == delta.DOUBLE:
        if whole:
            return int(whole[1]) if abs(int(whole[1])) <= 2**53 else None
        number = float(text) if re.fullmatch(r"-?[\d.]+(?:[eE][+-]?\d+)?", text) else math.inf
        return number if math.isfinite(number) else None
    return None


def _is_date(text: str) -> bool:
    try:
        parse_date(text)
    except ValueError:
        return False
    return True


def _zone(text: str) -> str | None:
    """Return the zone of a timestamp, empty if it has none; None if it is malformed."""
    found = PLAIN_TIMESTAMP.fullmatch(text)
    try:
        parse_moment(text)
    except ValueError:
        return None
    return None if found is None else found["zone"] or ""
