"""Evaluate CHECK constraints, invariants and filters on Arrow, exactly as Spark would.

Comparisons, logic with NULL, arithmetic and a few functions have Spark's meaning: NaN equals itself
and is the greatest value, names ignore case, division of integers is not integer. Anything whose
meaning is uncertain is refused: a row is let in only if Spark would agree. A string compared with a
timestamp is read in UTC.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from headgate.names import did_you_mean
from headgate.protocol.expressions.lexer import unquote
from headgate.protocol.expressions.parser import parse_expression
from headgate.protocol.expressions.tree import (
    ColumnReference,
    Constant,
    Expression,
    FunctionCall,
    Opaque,
    OperatorCall,
    levels,
    nodes,
)
from headgate.protocol.scalars import PLAIN_TIMESTAMP

# A column of values, or one value that stands for a column of it.
_Values = Any

_UTC_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_MOST_LEVELS: Final = 200  # of an expression; evaluating more could exhaust the stack


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that chooses the rows for which it is TRUE."""

    text: str
    tree: Expression

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns that the condition uses."""
        found = (node for node in nodes(self.tree) if isinstance(node, ColumnReference))
        return tuple(node.path for node in found)

    def matching(self, rows: pa.RecordBatch) -> pa.Array:
        """Evaluate the condition on each row; rows have at least the columns used."""
        try:
            found = _evaluate(self.tree, rows)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                f"The filter {self.text!r} cannot be computed for a row: {error}.",
                remedy="Change the filter, or read without it.",
            ) from error
        return pa.repeat(found, rows.num_rows) if isinstance(found, pa.Scalar) else found


@dataclass(frozen=True, slots=True)
class Constraint(Filter):
    """A named condition that must be TRUE for every row; NULL is a violation."""

    name: str

    def violations(self, rows: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it violates the constraint."""
        try:
            return pc.invert(pc.fill_null(self.matching(rows), False))
        except InvalidDataError as error:
            raise InvalidDataError(
                f"The constraint {self.name} ({self.text}) cannot be computed for these rows:"
                f" {error.__cause__}."
            ) from error


def parse_filter(text: str, schema: pa.Schema) -> Filter:
    """Parse a filter on rows of a schema; refuse one that cannot be evaluated exactly."""
    try:
        return Filter(text, _checked(text, schema))
    except (_Unknown, pa.ArrowException) as error:
        at = getattr(error, "at", None)
        where = "" if at is None else f" at character {at + 1}"
        raise InvalidArgumentError(
            f"The filter {text!r} cannot be evaluated{where}: {_sentence(error)}",
            remedy="Compare columns with literals as in SQL, or read through Spark.",
        ) from error


def parse_constraint(name: str, text: str, schema: pa.Schema) -> Constraint:
    """Parse a constraint on rows of a schema; refuse one that cannot be evaluated exactly."""
    try:
        return Constraint(text, _checked(text, schema), name)
    except (_Unknown, pa.ArrowException) as error:
        raise UnsupportedFeatureError(
            f"The constraint {name} ({text}) cannot be checked here: {_sentence(error)}",
            remedy="Write with a client that can evaluate it, or drop the constraint.",
        ) from error


def _checked(text: str, schema: pa.Schema) -> Expression:
    """Parse a condition, and check it by evaluating it on no rows."""
    tree = parse_expression(text)
    for node in nodes(tree):
        if isinstance(node, Opaque):
            raise _Unknown(node.why, node.at)
    if levels(tree) > _MOST_LEVELS:  # evaluating calls itself for each
        raise _Unknown("it is nested too deeply")
    of = _evaluate(tree, pa.RecordBatch.from_pylist([], schema=schema)).type
    if not pa.types.is_boolean(of):
        raise _Unknown(f"its type is {of}, not boolean")
    return tree


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."


def compare(operator: str, left: _Values, right: _Values) -> _Values:
    """Compare as Spark does."""
    try:
        return _OPERATIONS[operator](left, right)
    except _Unknown as error:
        raise UnsupportedFeatureError(
            f"This comparison is not supported: {error}.", remedy="Compare values of one type."
        ) from error


class _Unknown(Exception):  # noqa: N818 - never leaves this module
    """A part of an expression cannot be evaluated exactly; `at` is its offset in the text."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


def _evaluate(node: Expression, rows: pa.RecordBatch) -> _Values:
    match node:
        case Constant():
            return _constant(node)
        case ColumnReference():
            return _column(node, rows)
        case OperatorCall("LIKE", (item, Constant() as pattern)):
            return pc.match_substring_regex(_text(_evaluate(item, rows)), _like(pattern))
        case OperatorCall(operator, operands):
            return _OPERATIONS[operator](*(_evaluate(operand, rows) for operand in operands))
        case FunctionCall(name, operands, at):
            function = _FUNCTIONS.get(name.upper())
            if function is None or not (len(operands) == 1 or (function is _coalesce and operands)):
                raise _Unknown(f"the function {name} with {len(operands)} arguments", at)
            return function(*(_evaluate(operand, rows) for operand in operands))
        case Opaque(why, at):
            raise _Unknown(why, at)
        case _:
            assert_never(node)


def _column(node: ColumnReference, rows: pa.RecordBatch) -> _Values:
    """Read a column by its path; names ignore case."""
    indices: list[int] = []
    fields: Sequence[pa.Field] = list(rows.schema)
    for name in node.path:
        found = [i for i, field in enumerate(fields) if field.name.lower() == name.lower()]
        if len(found) != 1:
            hint = did_you_mean(name, [field.name for field in fields])
            raise _Unknown(f"there is no column {'.'.join(node.path)}.{hint}", node.at)
        indices += found
        inner = fields[found[0]].type
        is_struct = pa.types.is_struct(inner)
        fields = [inner.field(i) for i in range(inner.num_fields)] if is_struct else []
    values = rows.column(indices[0])
    return pc.struct_field(values, indices[1:]) if len(indices) > 1 else values


# Literals

# With escapes that mean the same in every version of Spark.
_STRING: Final = re.compile(
    r"""'(?:[^'\\]|\\[bnrtZ\\'"])*'|"(?:[^"\\]|\\[bnrtZ\\'"])*\"""", re.DOTALL
)


def _constant(node: Constant) -> pa.Scalar:
    try:
        match node.kind:
            case "NULL":
                return pa.scalar(None)
            case "BOOLEAN":
                return pa.scalar(node.text == "TRUE")
            case "NUMBER":
                return _number(node.text)
            case _ if not _STRING.fullmatch(node.text):
                raise _Unknown(f"the text {node.text}")
            case "STRING":
                return pa.scalar(unquote(node.text))
            case word:
                return _typed_literal(word, unquote(node.text))
    except _Unknown as error:
        error.at = node.at
        raise


def _number(text: str) -> pa.Scalar:
    suffix = re.search(r"(?:BD|[LSYDF])$", text.upper())
    digits = text[: suffix.start()] if suffix else text
    match suffix[0] if suffix else "":
        case "L" | "S" | "Y" as size if digits.isdigit():
            return pa.scalar(int(digits), {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8()}[size])
        case "D":
            return pa.scalar(float(digits), pa.float64())
        case "" if digits.isdigit():
            whole = int(digits)
            if whole < 2**31:
                return pa.scalar(whole, pa.int32())
            return pa.scalar(whole, pa.int64()) if whole < 2**63 else pa.scalar(Decimal(digits))
        case "" if "e" in digits.lower():
            return pa.scalar(float(digits), pa.float64())
        case "" | "BD":
            return pa.scalar(Decimal(digits))
        case _:
            raise _Unknown(f"the number {text}")


def _typed_literal(word: str, text: str) -> pa.Scalar:
    is_date, is_timestamp = re.fullmatch(r"\d{4}-\d\d-\d\d", text), PLAIN_TIMESTAMP.fullmatch(text)
    with suppress(ValueError):  # the shape of a date that does not exist
        match word:
            case "DATE" if is_date:
                return pa.scalar(date.fromisoformat(text), pa.date32())
            case "TIMESTAMP" if is_timestamp:
                moment = datetime.fromisoformat(text)
                return pa.scalar(moment.replace(tzinfo=moment.tzinfo or UTC), _UTC_TIMESTAMP)
            case "TIMESTAMP_NTZ" if is_timestamp:
                moment = datetime.fromisoformat(text)
                return pa.scalar(moment.replace(tzinfo=None), pa.timestamp("us"))
            case "X" if re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", text):
                return pa.scalar(bytes.fromhex(text))
    raise _Unknown(f"the literal {word}'{text}'")


def _like(string: Constant) -> str:
    """Convert a LIKE pattern to a regular expression."""
    pattern = string.text[1:-1]
    if "\\" in pattern or not _STRING.fullmatch(string.text):
        # Patterns have escapes of their own, which differ between Spark's versions.
        raise _Unknown(f"the pattern {pattern!r}", string.at)
    regex = "".join({"%": ".*", "_": "."}.get(c) or re.escape(c) for c in pattern)
    return rf"(?s)\A{regex}\z"


# Operations


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def _compared(how: str, left: _Values, right: _Values) -> _Values:
    left, right = _alike(left, right)
    if how == "same":
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both_null, pc.fill_null(_ordered("equal", left, right), False))
    return _ordered(how, left, right)


def _ordered(how: str, left: _Values, right: _Values) -> _Values:
    plain = getattr(pc, how)(left, right)
    if not pa.types.is_floating(left.type):
        return plain
    # NaN equals NaN and is greater than all else, as True is among truth values; in Arrow every
    # comparison with it is false.
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    by_nan = getattr(pc, how)(left_nan, right_nan)
    return pc.if_else(pc.or_(left_nan, right_nan), by_nan, plain)


def _alike(left: _Values, right: _Values) -> tuple[_Values, _Values]:
    """Cast both sides to one type, as Spark would; refuse pairs whose rule is uncertain."""
    one, other = left.type, right.type
    if pa.types.is_null(one) and pa.types.is_null(other):
        return pa.scalar(None, pa.bool_()), pa.scalar(None, pa.bool_())
    if pa.types.is_null(one):
        return pa.scalar(None, other), right
    if pa.types.is_null(other):
        return left, pa.scalar(None, one)
    if _is_number(one) and _is_number(other):
        common = _common_number(one, other)
        return _cast(left, common), _cast(right, common)
    if one == other and not pa.types.is_nested(one):
        return left, right
    if isinstance(right, pa.Scalar) and pa.types.is_string(other):
        return left, _text_as(right, one)
    if isinstance(left, pa.Scalar) and pa.types.is_string(one):
        return _text_as(left, other), right
    raise _Unknown(f"{one} compared with {other}")


def _text_as(text: pa.Scalar, of: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(of):
        return _typed_literal("DATE", text.as_py())
    if pa.types.is_timestamp(of):
        return _typed_literal("TIMESTAMP" if of.tz else "TIMESTAMP_NTZ", text.as_py())
    raise _Unknown(f"a text compared with {of}")


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        both_single = pa.types.is_float32(one) and pa.types.is_float32(other)
        return pa.float32() if both_single else pa.float64()
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        # Wide enough for any two columns, so that no value is rounded.
        return pa.decimal256(76, max(getattr(one, "scale", 0), getattr(other, "scale", 0)))
    return one if one.bit_width >= other.bit_width else other


def _cast(values: _Values, to: pa.DataType) -> _Values:
    return pc.cast(values, to, safe=not pa.types.is_floating(to))


def _arithmetic(how: str, left: _Values, right: _Values) -> _Values:
    checked = getattr(pc, f"{how}_checked")
    one, other = left.type, right.type
    if not (_is_number(one) and _is_number(other)):
        raise _Unknown(f"{how} of {one} and {other}")
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        if pa.types.is_floating(one) or pa.types.is_floating(other):
            return checked(_cast(left, pa.float64()), _cast(right, pa.float64()))
        return checked(_as_decimal(left), _as_decimal(right))
    common = _common_number(one, other)
    return checked(_cast(left, common), _cast(right, common))


_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def _as_decimal(values: _Values) -> _Values:
    of = values.type
    if pa.types.is_decimal(of):
        return values
    return _cast(values, pa.decimal128(_DIGITS[of.bit_width], 0))


def _divide(left: _Values, right: _Values) -> _Values:
    for side in (left.type, right.type):
        if not _is_number(side) or pa.types.is_decimal(side):
            raise _Unknown(f"division of {side}")
    below = _cast(right, pa.float64())
    return pc.divide(_cast(left, pa.float64()), _without_zero(below))


def _remainder(left: _Values, right: _Values) -> _Values:
    if not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        raise _Unknown(f"the remainder of {left.type} and {right.type}")
    common = _common_number(left.type, right.type)
    above, below = _cast(left, pa.int64()), _without_zero(_cast(right, pa.int64()))
    # Only the least long by -1 overflows, and every remainder by -1 is 0.
    below = pc.if_else(pc.equal(below, -1), 1, below)
    return _cast(pc.subtract(above, pc.multiply(pc.divide(above, below), below)), common)


def _without_zero(values: _Values) -> _Values:
    # Division by zero is NULL or an error, by Spark's settings; neither lets a row in.
    return pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)


def _signless(how: str, what: str) -> Callable[[_Values], _Values]:
    def compute(values: _Values) -> _Values:
        if not _is_number(values.type):
            raise _Unknown(f"{what} {values.type}")
        return getattr(pc, how if pa.types.is_decimal(values.type) else f"{how}_checked")(values)

    return compute


def _text(values: _Values) -> _Values:
    if not pa.types.is_string(values.type):
        raise _Unknown(f"{values.type} where a text is needed")
    return values


def _length(values: _Values) -> _Values:
    if pa.types.is_binary(values.type):
        return pc.binary_length(values)
    return pc.utf8_length(_text(values))


def _cased(how: str) -> Callable[[_Values], _Values]:
    def change(values: _Values) -> _Values:
        # Beyond ASCII, the case of letters depends on the version of Unicode and on the locale.
        if pc.all(pc.string_is_ascii(_text(values))).as_py() is False:
            raise UnsupportedFeatureError(f"{how} of letters beyond ASCII is not supported.")
        return getattr(pc, f"ascii_{how}")(values)

    return change


def _coalesce(*values: _Values) -> _Values:
    if len({value.type for value in values if not pa.types.is_null(value.type)}) != 1:
        raise _Unknown("coalesce of several types")
    return pc.coalesce(*values)


_FUNCTIONS: Final[dict[str, Callable[..., _Values]]] = {
    "ABS": _signless("abs", "abs of"),
    **dict.fromkeys(("LENGTH", "LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), _length),
    "UPPER": _cased("upper"),
    "LOWER": _cased("lower"),
    "TRIM": lambda values: pc.utf8_trim(_text(values), " "),
    "ISNULL": pc.is_null,
    "ISNOTNULL": pc.is_valid,
    "ISNAN": lambda values: pc.fill_null(pc.is_nan(values), False),
    "COALESCE": _coalesce,
}


def _is_between(value: _Values, low: _Values, high: _Values) -> _Values:
    is_above = _compared("greater_equal", value, low)
    return pc.and_kleene(is_above, _compared("less_equal", value, high))


_OPERATIONS: Final[dict[str, Callable[..., _Values]]] = {
    "AND": lambda *values: reduce(pc.and_kleene, values),
    "OR": lambda *values: reduce(pc.or_kleene, values),
    "NOT": pc.invert,
    "IS NULL": pc.is_null,
    "IS TRUE": partial(_compared, "same", pa.scalar(True)),
    "IS FALSE": partial(_compared, "same", pa.scalar(False)),
    "IN": lambda value, *choices: reduce(
        pc.or_kleene, (_compared("equal", value, choice) for choice in choices)
    ),
    "BETWEEN": _is_between,
    "=": partial(_compared, "equal"),
    "!=": partial(_compared, "not_equal"),
    "<": partial(_compared, "less"),
    "<=": partial(_compared, "less_equal"),
    ">": partial(_compared, "greater"),
    ">=": partial(_compared, "greater_equal"),
    "<=>": partial(_compared, "same"),
    "+": partial(_arithmetic, "add"),
    "-": partial(_arithmetic, "subtract"),
    "*": partial(_arithmetic, "multiply"),
    "/": _divide,
    "%": _remainder,
    "||": lambda left, right: pc.binary_join_element_wise(
        _text(left), _text(right), "", null_handling="emit_null"
    ),
    "NEGATE": _signless("negate", "minus"),
}
