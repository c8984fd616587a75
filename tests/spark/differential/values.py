"""Types of columns, values of each, awkward ones above all, and both dialects' words for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Text:
    """An expression in Spark's SQL, and in DuckDB's where it can be expressed there."""

    spark: str
    duck: str | None


def text(template: str, *parts: Text, duck: str | None = "") -> Text:
    """Put expressions into a template; `duck` is DuckDB's where it differs, None for none."""
    ducks = [part.duck for part in parts]
    other = template if duck == "" else duck
    known = [part for part in ducks if part is not None]
    return Text(
        template.format(*[part.spark for part in parts]),
        None if other is None or len(known) < len(ducks) else other.format(*known),
    )


def name_of(*path: str) -> Text:
    """Name a column, or a field within one."""
    return Text(
        ".".join("`" + part.replace("`", "``") + "`" for part in path),
        ".".join('"' + part.replace('"', '""') + '"' for part in path),
    )


@dataclass(frozen=True)
class Kind:
    """A type of columns."""

    spark: str
    duck: str
    arrow: pa.DataType
    pool: Sequence[Any] = ()
    make: Callable[[Random], Any] | None = None
    literal: Callable[[Any], Text] | None = None  # None: its values are not written out

    def value(self, chance: Random) -> Any:
        return self.make(chance) if self.make is not None else chance.choice(self.pool)

    @property
    def is_plain(self) -> bool:
        return self.literal is not None


# Words for values


def _number(value: Any) -> Text:
    return Text(str(value), str(value))


def _long(value: int) -> Text:
    # DuckDB reads the least of them as a negated number that is too large.
    return Text(f"{value}L", f"CAST('{value}' AS BIGINT)")


def _floating(name: str) -> Callable[[float], Text]:
    def literal(value: float) -> Text:
        digits = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(
            repr(value), repr(value)
        )
        cast = f"CAST('{digits}' AS {name})"
        # Set in all rows of a table, a zero loses its sign in DuckDB.
        return Text(cast, None if digits == "-0.0" else cast)

    return literal


def _decimal(value: Decimal) -> Text:
    # Its digits make the literal's type in both.
    return Text(f"{value:f}BD", f"CAST('{value:f}' AS DECIMAL({_digits(value)}))")


def _digits(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return f"{max(len(digits), scale + 1)},{scale}"


def _string(value: str) -> Text:
    spark = value.replace("\\", "\\\\").replace("'", "\\'")
    return Text(f"'{spark}'", "'" + value.replace("'", "''") + "'")


def _binary(value: bytes) -> Text:
    return Text(f"X'{value.hex().upper()}'", f"from_hex('{value.hex()}')")


def _boolean(value: bool) -> Text:
    return Text(str(value).upper(), str(value).upper())


def _date(value: date) -> Text:
    return Text(f"DATE'{value.isoformat()}'", f"DATE '{value.isoformat()}'")


def _timestamp(value: datetime) -> Text:
    literal = value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return Text(f"TIMESTAMP'{literal}Z'", f"TIMESTAMPTZ '{literal}+00'")


def _ntz(value: datetime) -> Text:
    literal = value.isoformat(" ", "microseconds")
    return Text(f"TIMESTAMP_NTZ'{literal}'", f"TIMESTAMP '{literal}'")


# Values

STRINGS = (
    "",
    " ",
    "a",
    "A",
    "ab",
    "abc",
    "it's",
    'say "x"',
    "back\\slash",
    "50%",
    "%20",
    "a_b",
    "a/b:c=d?e#f",
    "[x]{y}*",
    "naïve",
    "日本語",
    "😀",
    "e\u0301",
    "tab\tnew\nline",
    "NULL",
    "5",
    "x" * 40,
    "😀" * 33,
    "\U0010ffff" * 33,
)
WORDS = ("a", "b", "two words", "50%", "a=b/c", "naïve 日本語 😀", "it's", "x" * 40)
DATES = (
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 15),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(2026, 3, 1),
    date(9999, 12, 31),
)
MOMENTS = tuple(
    datetime.fromisoformat(moment)
    for moment in (
        "0001-01-01",
        "1582-10-04T01:02:03",
        "1900-01-01T00:00:00.000001",
        "1969-12-31T23:59:59.999999",
        "1970-01-01",
        "2024-02-29T12:34:56.789012",
        "2024-02-29T12:34:56.789999",
        "2026-03-01",
        "9999-12-31T23:59:59.999999",
    )
)
DOUBLES = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 5e-324, 1.7976931348623157e308)
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 0.10000000149011612)

BOOLEAN = Kind("BOOLEAN", "BOOLEAN", pa.bool_(), (True, False), literal=_boolean)
BYTE = Kind("TINYINT", "TINYINT", pa.int8(), (-128, -1, 0, 1, 5, 127), literal=_number)
SHORT = Kind("SMALLINT", "SMALLINT", pa.int16(), (-32768, -1, 0, 2, 300, 32767), literal=_number)
INT = Kind("INT", "INTEGER", pa.int32(), (-(2**31), -1, 0, 3, 7, 2**31 - 1), literal=_number)
LONG = Kind("BIGINT", "BIGINT", pa.int64(), (-(2**63), -1, 0, 4, 2**53 + 1, 2**63 - 1), None, _long)
FLOAT = Kind("FLOAT", "FLOAT", pa.float32(), FLOATS, literal=_floating("FLOAT"))
DOUBLE = Kind("DOUBLE", "DOUBLE", pa.float64(), DOUBLES, literal=_floating("DOUBLE"))
STRING = Kind("STRING", "VARCHAR", pa.string(), STRINGS, literal=_string)
BINARY = Kind(
    "BINARY", "BLOB", pa.binary(), (b"", b"\0", b"\xff\0", b"abc", b"\xff" * 40), literal=_binary
)
DATE = Kind("DATE", "DATE", pa.date32(), DATES, literal=_date)
TIMESTAMP = Kind(
    "TIMESTAMP",
    "TIMESTAMPTZ",
    pa.timestamp("us", "UTC"),
    tuple(moment.replace(tzinfo=UTC) for moment in MOMENTS),
    literal=_timestamp,
)
NTZ = Kind("TIMESTAMP_NTZ", "TIMESTAMP", pa.timestamp("us"), MOMENTS, literal=_ntz)


def decimal(precision: int, scale: int, *values: str) -> Kind:
    name = f"DECIMAL({precision},{scale})"
    exact = Context(prec=38)
    pool = tuple(
        Decimal(value).quantize(Decimal(1).scaleb(-scale), None, exact) for value in values
    )
    return Kind(name, name, pa.decimal128(precision, scale), pool, literal=_decimal)


def maybe(make: Callable[[Random], Any]) -> Callable[[Random], Any]:
    return lambda chance: None if chance.random() < 0.2 else make(chance)


def struct(**fields: Kind) -> Kind:
    return Kind(
        f"STRUCT<{', '.join(f'{name}: {kind.spark}' for name, kind in fields.items())}>",
        f"STRUCT({', '.join(f'{name} {kind.duck}' for name, kind in fields.items())})",
        pa.struct([(name, kind.arrow) for name, kind in fields.items()]),
        make=lambda chance: {name: maybe(kind.value)(chance) for name, kind in fields.items()},
    )


def array(of: Kind) -> Kind:
    def make(chance: Random) -> list[Any]:
        return [maybe(of.value)(chance) for _ in range(chance.randrange(4))]

    return Kind(f"ARRAY<{of.spark}>", f"{of.duck}[]", pa.list_(of.arrow), make=make)


def mapping(key: Kind, of: Kind) -> Kind:
    def make(chance: Random) -> list[tuple[Any, Any]]:
        keys = {key.value(chance) for _ in range(chance.randrange(3))}
        return [(name, maybe(of.value)(chance)) for name in sorted(keys)]

    return Kind(
        f"MAP<{key.spark}, {of.spark}>",
        f"MAP({key.duck}, {of.duck})",
        pa.map_(key.arrow, of.arrow),
        make=make,
    )


SMALL = decimal(5, 2, "-999.99", "-0.01", "0", "1.25", "999.99")
MEDIUM = decimal(18, 4, "-12345678901234.5678", "0", "0.0001", "7.5", "99999999999999.9999")
LARGE = decimal(38, 10, f"-{'9' * 28}.{'9' * 10}", "0", "0.0000000001", "2.5", "1e20")
PLAIN = (
    BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, SMALL, MEDIUM, LARGE, STRING, BINARY, DATE,
    TIMESTAMP, NTZ,
)  # fmt: skip
POINT = struct(a=INT, b=STRING)
GROWN_POINT = struct(a=INT, b=STRING, c=struct(d=DOUBLE))
NESTED = (
    POINT,
    struct(x=struct(y=SMALL, z=array(INT)), n=DATE),
    array(INT),
    array(struct(e=STRING, f=DOUBLE)),
    array(array(NTZ)),
    mapping(STRING, INT),
    mapping(INT, array(STRING)),
    mapping(DATE, struct(g=FLOAT, h=TIMESTAMP)),
)
