"""Conditions -> predicates that may skip files, and what else a condition is made of.

A predicate given here is true for every row the condition is true for, however Spark evaluates it.
So only forms whose meaning is beyond doubt count: a plain column, by itself, against literals of
its own family of types. Whatever is not such a form says nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
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
from headgate.protocol.scalars import parse_date, parse_moment
from headgate.protocol.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
    find_all,
    is_whole,
)
from headgate.sql.keywords import CALLING_NOTHING, CHOOSING, CLOCKS, NONDETERMINISTIC, ROWWISE
from headgate.sql.lexer import Kind, Token, tokenize, unquote
from headgate.sql.queries import begins_query
from headgate.sql.rewrite import StandIn

_OPERATORS = {
    "=": Operator.EQ,
    "==": Operator.EQ,
    "!=": Operator.NE,
    "<>": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
}
_SWAPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
SUBSTITUTION = "${"  # `${name}`: Spark puts the text of a setting there, which is not known here
_DEEPEST = 100  # levels of AND, OR, NOT; deeper ones say nothing


@dataclass(frozen=True, slots=True)
class Contents:
    """What a condition or query is made of, beside columns and literals."""

    nondeterministic: tuple[str, ...]  # functions with another answer the next time
    clocks: tuple[str, ...]  # functions that tell the time
    has_subquery: bool
    is_rowwise: bool  # every function is known to look at one row and at nothing else
    is_choosing: bool  # a query that may choose other rows the next time


def contents(text: str) -> Contents:
    """Describe what a condition or query is made of."""
    tokens = tokenize(text)
    wary: list[str] = []
    clocks: list[str] = []
    has_subquery = False
    is_choosing = SUBSTITUTION in text
    is_rowwise = not is_choosing
    for at, token in enumerate(tokens[:-1]):
        following = tokens[at + 1]
        calls = token.is_name and following.kind is Kind.SIGN and following.key == "("
        if calls and (token.kind is Kind.QUOTED or token.key not in CALLING_NOTHING):
            is_rowwise &= token.kind is Kind.WORD and token.key in ROWWISE
        if calls and token.name.upper() in NONDETERMINISTIC:
            wary.append(token.name)
        is_choosing |= token.kind in (Kind.WORD, Kind.SIGN) and token.key in CHOOSING
        has_subquery |= (
            token.key == "(" and at + 2 < len(tokens) and begins_query(following, tokens[at + 2])
        )
        if token.kind is not Kind.WORD or (at and tokens[at - 1].key == "."):
            continue
        if token.key in CLOCKS:
            clocks.append(token.text)
    return Contents(tuple(wary), tuple(clocks), has_subquery, is_rowwise, is_choosing)


def condition_predicate(
    condition: str,
    schema: StructType,
    *,
    labels: Collection[tuple[str, ...]] = (),
    others: Collection[str] = (),
    is_utc: bool = False,
) -> Predicate | None:
    """Give what a condition on rows of one table says about its files; None if nothing.

    `labels` are the names its columns may be qualified with, in parts; `others` those of whatever
    else is in sight, folded. Moments without a zone say something only if the session's is UTC.
    """
    if SUBSTITUTION in condition:
        return None
    columns = _Columns(schema, [tuple(fold(p) for p in label) for label in labels], others, is_utc)
    tokens = tokenize(condition)[:-1]
    return _weakened(_parsed(tokens, columns, 0), is_negated=False)


def table_predicate(
    stand_in: StandIn, schema: StructType, *, is_utc: bool = False
) -> Predicate | None:
    """Give what a query says about the files of one of its tables; None if nothing."""
    reference, name = stand_in.reference, stand_in.table
    labels: list[tuple[str, ...]] = [(reference.label,)]
    if reference.alias is None:
        labels += [(name.schema, name.table), (name.catalog, name.schema, name.table)]
    found = [
        condition_predicate(
            condition.text, schema, labels=labels, others=reference.others, is_utc=is_utc
        )
        for condition in reference.conditions
    ]
    return _all([predicate for predicate in found if predicate is not None])


# The tree of a condition


@dataclass(frozen=True, slots=True)
class _Every:
    items: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Some:
    items: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Negation:
    item: _Tree


_Tree = _Every | _Some | _Negation | Predicate | None  # None: not understood


def _weakened(tree: _Tree, *, is_negated: bool) -> Predicate | None:
    """Drop what is not understood, so that what is left is true wherever the whole is true."""
    match tree:
        case None:
            return None
        case _Negation(item):
            return _weakened(item, is_negated=not is_negated)
        case _Every(items) | _Some(items):
            parts = [_weakened(item, is_negated=is_negated) for item in items]
            known = [part for part in parts if part is not None]
            if isinstance(tree, _Every) is not is_negated:
                return _all(known)
            return _any(known) if len(known) == len(parts) else None
        case _:
            return Not(tree) if is_negated else tree


def _all(items: list[Predicate]) -> Predicate | None:
    return None if not items else items[0] if len(items) == 1 else And(tuple(items))


def _any(items: list[Predicate]) -> Predicate:
    return items[0] if len(items) == 1 else Or(tuple(items))


def _parsed(tokens: Sequence[Token], columns: _Columns, depth: int) -> _Tree:
    if not tokens or depth > _DEEPEST:
        return None
    for word, node in (("OR", _Some), ("AND", _Every)):
        parts = list(_divided(tokens, word))
        if len(parts) > 1:
            return node(tuple(_parsed(part, columns, depth + 1) for part in parts))
    if tokens[0].key in ("NOT", "!") and tokens[0].kind is not Kind.QUOTED:
        return _Negation(_parsed(tokens[1:], columns, depth + 1))
    if tokens[0].key == "(" and _closing(tokens) == len(tokens) - 1:
        return _parsed(tokens[1:-1], columns, depth + 1)
    return _Atom(tokens, columns).read()


def _divided(tokens: Sequence[Token], word: str) -> Iterator[Sequence[Token]]:
    """Cut at a word that is neither in brackets, nor in a CASE, nor the AND of a BETWEEN."""
    start = depth = cases = ranges = 0
    for at, token in enumerate(tokens):
        if token.kind is Kind.SIGN:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.key, 0)
        if token.kind is not Kind.WORD or depth or (at and tokens[at - 1].key == "."):
            continue
        cases += {"CASE": 1, "END": -1}.get(token.key, 0)
        if cases > 0:
            continue
        if token.key == "BETWEEN":
            ranges += 1
        elif token.key == "AND" and ranges:
            ranges -= 1
        elif token.key == word:
            yield tokens[start:at]
            start = at + 1
    yield tokens[start:]


def _closing(tokens: Sequence[Token]) -> int:
    """Find the parenthesis that closes the first one."""
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind is Kind.SIGN:
            depth += {"(": 1, ")": -1}.get(token.key, 0)
            if depth == 0:
                return at
    return -1


# A single comparison


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns a condition may name."""

    schema: StructType
    labels: Sequence[tuple[str, ...]]
    others: Collection[str]
    is_utc: bool

    def find(self, parts: tuple[str, ...]) -> list[StructField]:
        """Find a column by what was written; empty if it is none of this table's."""
        folded = tuple(fold(part) for part in parts)
        for label in sorted(self.labels, key=len, reverse=True):
            if len(parts) > len(label) and folded[: len(label)] == label:
                return self._path(parts[len(label) :])
        if len(parts) > 1 and folded[0] in self.others:
            return []
        return self._path(parts)

    def _path(self, parts: tuple[str, ...]) -> list[StructField]:
        found = find_all(self.schema, parts)
        return found if len(found) == len(parts) else []


@dataclass(frozen=True, slots=True)
class _Value:
    """A literal as written: `family` is NUMBER, STRING, BOOLEAN, or the word before its string."""

    family: str
    text: str


class _Atom:
    """A condition without AND, OR and NOT around it: understood as a whole, or not at all."""

    def __init__(self, tokens: Sequence[Token], columns: _Columns) -> None:
        self._tokens = tokens
        self._columns = columns
        self._at = 0

    def read(self) -> _Tree:
        value = self._value()
        if value is not None:
            operator = self._operator()
            fields = self._column()
            if operator is None or not fields or not self._is_done:
                return None
            return _compared(self._columns, fields, _SWAPPED.get(operator, operator), value)
        fields = self._column()
        if not fields:
            return None
        if self._is_done:
            is_flag = fields[-1].type == BOOLEAN
            return Compare(_names(fields), Operator.EQ, True) if is_flag else None
        if self._took("IS"):
            is_not = self._took("NOT")
            if not self._took("NULL") or not self._is_done:
                return None
            return _Negation(IsNull(_names(fields))) if is_not else IsNull(_names(fields))
        if self._took("<=>"):
            return self._same(fields)
        is_not = self._took("NOT")
        found: _Tree = None
        if self._took("BETWEEN"):
            found = self._between(fields)
        elif self._took("IN"):
            found = self._in(fields)
        elif not is_not and (operator := self._operator()) is not None:
            value = self._value()
            if value is not None and self._is_done:
                found = _compared(self._columns, fields, operator, value)
        return _Negation(found) if is_not and found is not None else found

    def _same(self, fields: list[StructField]) -> _Tree:
        if self._took("NULL"):
            return IsNull(_names(fields)) if self._is_done else None
        value = self._value()
        if value is None or not self._is_done:
            return None
        equal = _compared(self._columns, fields, Operator.EQ, value)
        # Never null: its negation holds for nulls.
        return None if equal is None else And((equal, Not(IsNull(_names(fields)))))

    def _between(self, fields: list[StructField]) -> _Tree:
        low = self._value()
        if low is None or not self._took("AND"):
            return None
        high = self._value()
        if high is None or not self._is_done:
            return None
        return _Every(
            (
                _compared(self._columns, fields, Operator.GE, low),
                _compared(self._columns, fields, Operator.LE, high),
            )
        )

    def _in(self, fields: list[StructField]) -> _Tree:
        values: list[_Value] = []
        if not self._took("("):
            return None
        while True:
            value = self._value()
            if value is None:
                return None
            values.append(value)
            if not self._took(","):
                break
        if not self._took(")") or not self._is_done:
            return None
        # One list has one type; moments written as strings may be compared as strings.
        if len({value.family for value in values}) > 1 or fields[-1].type in _MOMENTS:
            return None
        literals = [_literal(value, fields[-1], self._columns) for value in values]
        known = [literal for literal in literals if literal is not None]
        return In(_names(fields), tuple(known)) if len(known) == len(literals) else None

    # Tokens

    @property
    def _is_done(self) -> bool:
        return self._at == len(self._tokens)

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _took(self, key: str) -> bool:
        token = self._peek()
        if token is None or token.kind not in (Kind.WORD, Kind.SIGN) or token.key != key:
            return False
        self._at += 1
        return True

    def _operator(self) -> Operator | None:
        token = self._peek()
        if token is None or token.kind is not Kind.SIGN or token.key not in _OPERATORS:
            return None
        self._at += 1
        return _OPERATORS[token.key]

    def _column(self) -> list[StructField]:
        parts: list[str] = []
        while (token := self._peek()) is not None and token.is_name:
            parts.append(token.name)
            self._at += 1
            if not self._took("."):
                return self._columns.find(tuple(parts))
        return []

    def _value(self) -> _Value | None:
        """Take a literal; None, and nothing taken, if there is none that is plain."""
        start = self._at
        token = self._peek()
        if token is None:
            return None
        if token.kind is Kind.WORD and token.key in ("TRUE", "FALSE"):
            self._at += 1
            return _Value("BOOLEAN", token.key)
        if token.kind is Kind.WORD and token.key in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            self._at += 1
            text = self._string()
            if text is not None:
                return _Value(token.key, text)
            self._at = start
            return None
        if token.kind is Kind.STRING:
            text = self._string()
            return None if text is None else _Value("STRING", text)
        sign = "-" if self._took("-") else ""
        number = self._peek()
        if number is not None and number.kind is Kind.NUMBER:
            self._at += 1
            return _Value("NUMBER", sign + number.text)
        self._at = start
        return None

    def _string(self) -> str | None:
        """Take a string whose meaning is the same under every setting of Spark's."""
        token = self._peek()
        if token is None or token.kind is not Kind.STRING:
            return None
        is_plain = token.text[0] in "'rR" and token.text[-1] == "'"
        if not is_plain or "\\" in token.text or "''" in token.text[1:-1]:
            return None
        self._at += 1
        following = self._peek()
        is_alone = following is None or following.kind is not Kind.STRING
        return unquote(token) if is_alone else None


_MOMENTS = (TIMESTAMP, TIMESTAMP_NTZ)


def _names(fields: Sequence[StructField]) -> tuple[str, ...]:
    return tuple(item.name for item in fields)


def _compared(
    columns: _Columns, fields: Sequence[StructField], operator: Operator, value: _Value
) -> Predicate | None:
    literal = _literal(value, fields[-1], columns)
    return None if literal is None else Compare(_names(fields), operator, literal)


# Literals of the column's own family


def _literal(value: _Value, column: StructField, columns: _Columns) -> Literal | None:
    """Give a literal for comparing with a column; None if types would have to be changed."""
    if any(key.startswith("__CHAR_VARCHAR") for key in column.metadata):
        return None  # padded with blanks when compared
    read = _READERS.get(value.family)
    return None if read is None else read(value.text, column.type, columns)


def _number(text: str, of: DataType, columns: _Columns) -> Literal | None:
    whole = re.fullmatch(r"(-?\d{1,38})[lLsSyY]?", text)
    if is_whole(of):
        return int(whole[1]) if whole else None
    plain = re.fullmatch(r"-?(\d{0,38})(?:\.(\d{0,38}))?", text)
    if isinstance(of, DecimalType):
        if plain is None:
            return None
        digits, places = plain[1].lstrip("0"), plain[2] or ""
        # Beyond what one decimal type can hold, Spark rounds.
        most = max(len(digits), of.precision - of.scale) + max(len(places), of.scale)
        return f"{Decimal(text):f}" if most <= 38 else None
    if of == FLOAT:
        return int(whole[1]) if whole and abs(int(whole[1])) <= 2**24 else None
    if of == DOUBLE:
        if whole:
            return int(whole[1]) if abs(int(whole[1])) <= 2**53 else None
        found = float(text) if re.fullmatch(r"-?[\d.]+(?:[eE][+-]?\d+)?", text) else math.inf
        return found if math.isfinite(found) else None
    return None


def _text(text: str, of: DataType, columns: _Columns) -> Literal | None:
    if of == STRING:
        return text
    if of == DATE:
        return _date(text, of, columns)
    if of == TIMESTAMP:
        return _timestamp(text, of, columns)
    return _timestamp_ntz(text, of, columns) if of == TIMESTAMP_NTZ else None


def _flag(text: str, of: DataType, columns: _Columns) -> Literal | None:
    return text == "TRUE" if of == BOOLEAN else None


def _date(text: str, of: DataType, columns: _Columns) -> Literal | None:
    if of != DATE:
        return None
    try:
        parse_date(text)
    except ValueError:
        return None
    return text


_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?P<zone>Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def _timestamp(text: str, of: DataType, columns: _Columns) -> Literal | None:
    if of != TIMESTAMP:
        return None
    zone = _zone(text)
    return text if zone or (zone == "" and columns.is_utc) else None


def _timestamp_ntz(text: str, of: DataType, columns: _Columns) -> Literal | None:
    return text if of == TIMESTAMP_NTZ and _zone(text) == "" else None


def _zone(text: str) -> str | None:
    """Give the zone a moment is written with, empty if without one; None for what is no moment."""
    found = _MOMENT.fullmatch(text)
    try:
        parse_moment(text)
    except ValueError:
        return None
    return None if found is None else found["zone"] or ""


_READERS: dict[str, Callable[[str, DataType, _Columns], Literal | None]] = {
    "NUMBER": _number,
    "STRING": _text,
    "BOOLEAN": _flag,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_NTZ": _timestamp_ntz,
}
