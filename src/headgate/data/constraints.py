"""CHECK constraints, invariants and filters: Spark SQL that can be evaluated exactly on Arrow.

Knows comparisons, logic with NULL, arithmetic and a few functions, with Spark's own meaning: NaN
equals itself and is the greatest, names ignore case, division of integers is not integer. What is
not known exactly is refused by name, never guessed: a row is let in only when Spark would agree.
A text compared with a timestamp is read in UTC.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from headgate.names import did_you_mean

# A column of values, or one value that stands for a column of it.
_Values = Any


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named rule every row must satisfy: only TRUE will do, NULL is a violation."""

    name: str
    text: str
    evaluate: Callable[[pa.RecordBatch], _Values]
    columns: tuple[tuple[str, ...], ...]

    def violations(self, rows: pa.RecordBatch) -> pa.Array:
        """Say of each row whether it breaks the rule."""
        try:
            holds = self.evaluate(rows)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                f"The constraint {self.name} ({self.text}) cannot be computed for these rows:"
                f" {error}."
            ) from error
        if isinstance(holds, pa.Scalar):
            return pa.repeat(pa.scalar(holds.as_py() is not True), rows.num_rows)
        return pc.invert(pc.fill_null(holds, False))


def parse_constraint(name: str, text: str, schema: pa.Schema) -> Constraint:
    """Read a constraint on rows of a schema; refuse what cannot be evaluated exactly."""
    columns: list[tuple[str, ...]] = []
    try:
        evaluate = _Parser(text, schema, columns).parse()
        found = evaluate(pa.RecordBatch.from_pylist([], schema=schema))
        if not pa.types.is_boolean(found.type):
            raise _Unknown(f"its type is {found.type}, not boolean")
    except (_Unknown, pa.ArrowException) as error:
        raise UnsupportedFeatureError(
            f"The constraint {name} ({text}) cannot be checked here: {_sentence(error)}",
            remedy="Write with a client that can evaluate it, or drop the constraint.",
        ) from error
    return Constraint(name, text, evaluate, tuple(columns))


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that chooses rows: those for which it is TRUE."""

    text: str
    columns: tuple[tuple[str, ...], ...]

    def matching(self, rows: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it is chosen; rows have at least the columns used."""
        try:
            chosen = _filter(self.text, rows.schema)[0](rows)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                f"The filter {self.text!r} cannot be computed for a row: {error}.",
                remedy="Change the filter, or read without it.",
            ) from error
        if isinstance(chosen, pa.Scalar):
            return pa.repeat(pa.scalar(chosen.as_py() is True), rows.num_rows)
        return chosen


def parse_filter(text: str, schema: pa.Schema) -> Filter:
    """Parse a filter on rows of a schema; refuse what cannot be evaluated exactly."""
    return Filter(text, _filter(text, schema)[1])


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith((".", "?")) else f"{text}."


@functools.lru_cache(maxsize=256)
def _filter(text: str, schema: pa.Schema) -> tuple[_Evaluate, tuple[tuple[str, ...], ...]]:
    columns: list[tuple[str, ...]] = []
    try:
        evaluate = _Parser(text, schema, columns).parse()
        found = evaluate(pa.RecordBatch.from_pylist([], schema=schema))
        if not pa.types.is_boolean(found.type):
            raise _Unknown(f"its type is {found.type}, not boolean")
    except (_Unknown, pa.ArrowException) as error:
        at = getattr(error, "at", None)
        where = "" if at is None else f" at character {at + 1}"
        raise InvalidArgumentError(
            f"The filter {text!r} cannot be evaluated{where}: {_sentence(error)}",
            remedy="Compare columns with literals as in SQL, or read through Spark.",
        ) from error
    return evaluate, tuple(columns)


def compare(how: str, left: _Values, right: _Values) -> _Values:
    """Compare as Spark does: `equal`, `not_equal`, `less`, `less_equal`, `greater`, …, `same`."""
    try:
        return _compared(how)(left, right)
    except _Unknown as error:
        raise UnsupportedFeatureError(
            f"This comparison cannot be made here: {error}.", remedy="Compare like with like."
        ) from error


class _Unknown(Exception):  # noqa: N818 - never leaves this module
    """A part of the expression that is not known here, and where in the text it is."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


# Words

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LlSsYyDdFf])?)(?![\w`])
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign><=>|<=|>=|<>|!=|==|\|\||[-+*/%=<>!(),.])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {
    "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a",
    "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def key(self) -> str:
        """What is compared with: words regardless of case."""
        return self.text.upper() if self.kind == "word" else self.text


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            rest = text[at:].lstrip()
            raise _Unknown(f"{rest[:20].rstrip()!r} is not understood", len(text) - len(rest))
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    return found


def _unquote(token: str) -> str:
    def meant(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise _Unknown(f"the escape {match[0]!r} in a text")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", meant, token[1:-1], flags=re.DOTALL)


# Grammar

_Evaluate = Callable[[pa.RecordBatch], _Values]
_COMPARISONS: Final = {"=": "equal", "==": "equal", "!=": "not_equal", "<>": "not_equal",
                       "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
                       "<=>": "same"}  # fmt: skip
_RESERVED: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "LIKE", "RLIKE", "DIV"})


class _Parser:
    """Recursive descent, loosest binding first: OR, AND, NOT, predicates, sums, products, signs."""

    def __init__(self, text: str, schema: pa.Schema, columns: list[tuple[str, ...]]) -> None:
        self._end = len(text.rstrip())
        self._tokens = _tokens(text)
        self._at = 0
        self._schema = schema
        self._columns = columns

    def parse(self) -> _Evaluate:
        try:
            whole = self._any()
            if self._at < len(self._tokens):
                raise _Unknown(f"{self._next().text!r} is not understood")
        except _Unknown as error:
            if error.at is None and self._at:
                error.at = self._tokens[self._at - 1].start
            raise
        return whole

    def _any(self) -> _Evaluate:
        left = self._all()
        while self._take("OR"):
            left = _call(pc.or_kleene, left, self._all())
        return left

    def _all(self) -> _Evaluate:
        left = self._negation()
        while self._take("AND"):
            left = _call(pc.and_kleene, left, self._negation())
        return left

    def _negation(self) -> _Evaluate:
        if self._take("NOT") or self._take("!"):
            return _call(pc.invert, self._negation())
        return self._predicate()

    def _predicate(self) -> _Evaluate:
        left = self._sum()
        while True:
            if operator := self._take(*_COMPARISONS):
                left = _call(_compared(_COMPARISONS[operator]), left, self._sum())
                continue
            if self._take("IS"):
                left = self._is(left)
                continue
            mark = self._at
            negated = bool(self._take("NOT"))
            found = self._range(left)
            if found is None:
                self._at = mark
                return left
            left = _call(pc.invert, found) if negated else found

    def _is(self, left: _Evaluate) -> _Evaluate:
        negated = bool(self._take("NOT"))
        if self._take("NULL"):
            found = _call(pc.is_null, left)
        elif word := self._take("TRUE", "FALSE"):
            wanted = pa.scalar(word == "TRUE")
            found = _call(lambda values: _compared("same")(values, wanted), left)
        else:
            raise _Unknown("IS without NULL, TRUE or FALSE")
        return _call(pc.invert, found) if negated else found

    def _range(self, left: _Evaluate) -> _Evaluate | None:
        if self._take("IN"):
            self._expect("(")
            choices = [self._sum()]
            while self._take(","):
                choices.append(self._sum())
            self._expect(")")
            found = _call(_compared("equal"), left, choices[0])
            for choice in choices[1:]:
                found = _call(pc.or_kleene, found, _call(_compared("equal"), left, choice))
            return found
        if self._take("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            from_low = _call(_compared("greater_equal"), left, low)
            to_high = _call(_compared("less_equal"), left, self._sum())
            return _call(pc.and_kleene, from_low, to_high)
        if self._take("LIKE"):
            token = self._next()
            if token.kind != "text":
                raise _Unknown("LIKE with a pattern that is not a text")
            pattern = _like(token.text[1:-1])
            return _call(lambda values: _matches(values, pattern), left)
        return None

    def _sum(self) -> _Evaluate:
        left = self._product()
        while operator := self._take("+", "-", "||"):
            right = self._product()
            if operator == "||":
                left = _call(_concatenate, left, right)
            else:
                left = _call(_arithmetic("add" if operator == "+" else "subtract"), left, right)
        return left

    def _product(self) -> _Evaluate:
        left = self._signed()
        while operator := self._take("*", "/", "%"):
            function = {"*": _arithmetic("multiply"), "/": _divide, "%": _remainder}[operator]
            left = _call(function, left, self._signed())
        return left

    def _signed(self) -> _Evaluate:
        if self._take("-"):
            return _call(_negate, self._signed())
        if self._take("+"):
            return self._signed()
        return self._atom()

    def _atom(self) -> _Evaluate:
        if self._take("("):
            inner = self._any()
            self._expect(")")
            return inner
        token = self._next()
        if token.kind == "number":
            return _constant(_number(token.text))
        if token.kind == "text":
            if self._peek_kind() == "text":
                raise _Unknown("two texts beside each other")
            return _constant(pa.scalar(_unquote(token.text)))
        if token.kind == "word":
            if token.key in ("TRUE", "FALSE"):
                return _constant(pa.scalar(token.key == "TRUE"))
            if token.key == "NULL":
                return _constant(pa.scalar(None))
            if token.key in _RESERVED:
                raise _Unknown(f"{token.text!r} is not understood")
            if self._peek_kind() == "text":
                return _constant(_typed_literal(token.key, _unquote(self._next().text)))
            if self._take("("):
                return self._function(token)
        if token.kind in ("word", "quoted"):
            return self._column(token)
        raise _Unknown(f"{token.text!r} is not understood")

    def _function(self, token: _Token) -> _Evaluate:
        arguments: list[_Evaluate] = []
        if not self._take(")"):
            arguments.append(self._any())
            while self._take(","):
                arguments.append(self._any())
            self._expect(")")
        known = _FUNCTIONS.get(token.key)
        if known is None or not (len(arguments) == 1 or token.key == "COALESCE"):
            raise _Unknown(f"the function {token.text} with {len(arguments)} arguments")
        return _call(known, *arguments)

    def _column(self, token: _Token) -> _Evaluate:
        path = [_name(token)]
        while self._take("."):
            token = self._next()
            if token.kind not in ("word", "quoted"):
                raise _Unknown(f"{token.text!r} after a dot")
            path.append(_name(token))
        if self._peek_kind() == "sign" and self._tokens[self._at].text == "(":
            raise _Unknown(f"the function {'.'.join(path)}")
        indices = _resolve(self._schema, path)
        self._columns.append(tuple(path))

        def evaluate(rows: pa.RecordBatch) -> _Values:
            values = rows.column(indices[0])
            return pc.struct_field(values, indices[1:]) if len(indices) > 1 else values

        return evaluate

    def _take(self, *keys: str) -> str:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in ("word", "sign") and token.key in keys:
                self._at += 1
                return token.key
        return ""

    def _expect(self, key: str) -> None:
        if not self._take(key):
            rest = self._tokens[self._at :]
            raise _Unknown(f"{key!r} is missing", rest[0].start if rest else self._end)

    def _next(self) -> _Token:
        if self._at == len(self._tokens):
            raise _Unknown("it ends too early", self._end)
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek_kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""


def _name(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _resolve(schema: pa.Schema, path: Sequence[str]) -> list[int]:
    """Find a column by its path, names regardless of case."""
    indices: list[int] = []
    fields: Sequence[pa.Field] = list(schema)
    for name in path:
        found = [i for i, field in enumerate(fields) if field.name.lower() == name.lower()]
        if len(found) != 1:
            hint = did_you_mean(name, [field.name for field in fields])
            raise _Unknown(f"there is no column {'.'.join(path)}.{hint}")
        indices += found
        inner = fields[found[0]].type
        fields = [inner.field(i) for i in range(inner.num_fields)] if _is_struct(inner) else []
    return indices


def _call(function: Callable[..., _Values], *arguments: _Evaluate) -> _Evaluate:
    return lambda rows: function(*(argument(rows) for argument in arguments))


def _constant(value: pa.Scalar) -> _Evaluate:
    return lambda _rows: value


# Literals


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
    match word:
        case "DATE":
            return pa.scalar(_date(text), pa.date32())
        case "TIMESTAMP":
            return pa.scalar(_timestamp(text), pa.timestamp("us", "UTC"))
        case "TIMESTAMP_NTZ":
            return pa.scalar(_timestamp(text).replace(tzinfo=None), pa.timestamp("us"))
        case "X" if re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", text):
            return pa.scalar(bytes.fromhex(text))
        case _:
            raise _Unknown(f"the literal {word}'{text}'")


def _date(text: str) -> date:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise _Unknown(f"the date {text!r}")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _Unknown(f"the date {text!r}") from None


def _timestamp(text: str) -> datetime:
    shape = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?)?"
    if not re.fullmatch(shape, text):
        raise _Unknown(f"the timestamp {text!r}")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _Unknown(f"the timestamp {text!r}") from None
    return found.replace(tzinfo=found.tzinfo or UTC)


def _like(pattern: str) -> str:
    """Turn a LIKE pattern into a regular expression."""
    if "\\" in pattern:  # one more round of escapes, which differs between Spark's versions
        raise _Unknown(f"the pattern {pattern!r}")
    meant = "".join({"%": ".*", "_": "."}.get(c) or re.escape(c) for c in pattern)
    return rf"(?s)\A{meant}\z"


# Meaning


def _is_struct(of: pa.DataType) -> bool:
    return bool(pa.types.is_struct(of))


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def _compared(how: str) -> Callable[[_Values, _Values], _Values]:
    def compare(left: _Values, right: _Values) -> _Values:
        left, right = _alike(left, right)
        if how == "same":
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.or_(both_null, pc.fill_null(_ordered("equal", left, right), False))
        return _ordered(how, left, right)

    return compare


def _ordered(how: str, left: _Values, right: _Values) -> _Values:
    plain = getattr(pc, how)(left, right)
    if not pa.types.is_floating(left.type):
        return plain
    # NaN equals NaN and is greater than all else; Arrow says no to every comparison with it.
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    either = pc.or_(left_nan, right_nan)
    answer = {
        "equal": lambda: pc.and_(left_nan, right_nan),
        "not_equal": lambda: pc.xor(left_nan, right_nan),
        "less": lambda: pc.and_(pc.invert(left_nan), right_nan),
        "less_equal": lambda: right_nan,
        "greater": lambda: pc.and_(left_nan, pc.invert(right_nan)),
        "greater_equal": lambda: left_nan,
    }[how]()
    return pc.if_else(either, answer, plain)


def _alike(left: _Values, right: _Values) -> tuple[_Values, _Values]:
    """Bring two sides to one type, as Spark would; refuse pairs whose rule is not plain."""
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


def _text_as(text: pa.Scalar, wanted: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(wanted):
        return _typed_literal("DATE", text.as_py())
    if pa.types.is_timestamp(wanted):
        return _typed_literal("TIMESTAMP" if wanted.tz else "TIMESTAMP_NTZ", text.as_py())
    raise _Unknown(f"a text compared with {wanted}")


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        both_single = pa.types.is_float32(one) and pa.types.is_float32(other)
        return pa.float32() if both_single else pa.float64()
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        # Wide enough for any two columns, so that nothing is rounded.
        return pa.decimal256(76, max(getattr(one, "scale", 0), getattr(other, "scale", 0)))
    return one if one.bit_width >= other.bit_width else other


def _cast(values: _Values, wanted: pa.DataType) -> _Values:
    return pc.cast(values, wanted, safe=not pa.types.is_floating(wanted))


def _arithmetic(how: str) -> Callable[[_Values, _Values], _Values]:
    checked = getattr(pc, f"{how}_checked")

    def compute(left: _Values, right: _Values) -> _Values:
        one, other = left.type, right.type
        if not (_is_number(one) and _is_number(other)):
            raise _Unknown(f"{how} of {one} and {other}")
        if pa.types.is_decimal(one) or pa.types.is_decimal(other):
            if pa.types.is_floating(one) or pa.types.is_floating(other):
                return checked(_cast(left, pa.float64()), _cast(right, pa.float64()))
            return checked(_as_decimal(left), _as_decimal(right))
        common = _common_number(one, other)
        return checked(_cast(left, common), _cast(right, common))

    return compute


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
    # Only the smallest long by -1 overflows, and its remainder is 0 like any other's by -1.
    below = pc.if_else(pc.equal(below, -1), 1, below)
    return _cast(pc.subtract(above, pc.multiply(pc.divide(above, below), below)), common)


def _without_zero(values: _Values) -> _Values:
    # Division by zero is NULL or an error, by a setting of Spark's; neither lets a row in.
    return pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)


def _negate(values: _Values) -> _Values:
    if not _is_number(values.type):
        raise _Unknown(f"minus {values.type}")
    return pc.negate(values) if pa.types.is_decimal(values.type) else pc.negate_checked(values)


def _absolute(values: _Values) -> _Values:
    if not _is_number(values.type):
        raise _Unknown(f"abs of {values.type}")
    return pc.abs(values) if pa.types.is_decimal(values.type) else pc.abs_checked(values)


def _text(values: _Values) -> _Values:
    if not pa.types.is_string(values.type):
        raise _Unknown(f"{values.type} where a text is needed")
    return values


def _matches(values: _Values, pattern: str) -> _Values:
    return pc.match_substring_regex(_text(values), pattern)


def _concatenate(left: _Values, right: _Values) -> _Values:
    return pc.binary_join_element_wise(_text(left), _text(right), "", null_handling="emit_null")


def _length(values: _Values) -> _Values:
    if pa.types.is_binary(values.type):
        return pc.binary_length(values)
    return pc.utf8_length(_text(values))


def _cased(how: str) -> Callable[[_Values], _Values]:
    def change(values: _Values) -> _Values:
        # Beyond ASCII, the case of letters is a matter of Unicode's version and of locale.
        if pc.all(pc.string_is_ascii(_text(values))).as_py() is False:
            raise UnsupportedFeatureError(f"{how} of letters beyond ASCII cannot be checked here.")
        return getattr(pc, f"ascii_{how}")(values)

    return change


def _coalesce(*values: _Values) -> _Values:
    if len({value.type for value in values if not pa.types.is_null(value.type)}) != 1:
        raise _Unknown("coalesce of several types")
    return pc.coalesce(*values)


_FUNCTIONS: Final[dict[str, Callable[..., _Values]]] = {
    "ABS": _absolute,
    "LENGTH": _length,
    "LEN": _length,
    "CHAR_LENGTH": _length,
    "CHARACTER_LENGTH": _length,
    "UPPER": _cased("upper"),
    "LOWER": _cased("lower"),
    "TRIM": lambda values: pc.utf8_trim(_text(values), " "),
    "ISNULL": pc.is_null,
    "ISNOTNULL": pc.is_valid,
    "ISNAN": lambda values: pc.fill_null(pc.is_nan(values), False),
    "COALESCE": _coalesce,
}
