"""The short spelling of a schema, as people write it: `id long not null, day date`.

Knows the words, among them SQL's names of types, and says at which character a text goes wrong.
Whether a table can have such columns is for `schema_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.errors import InvalidSchemaError
from headgate.protocol.schema.types import (
    BOOLEAN,
    BYTE,
    COMMENT,
    DEEPEST,
    FLOAT,
    INTEGER,
    LONG,
    PRIMITIVES,
    SHORT,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Primitive,
    StructField,
    StructType,
)

_ALIASES: Mapping[str, Primitive] = {
    **PRIMITIVES,
    "int": INTEGER,
    "bigint": LONG,
    "smallint": SHORT,
    "tinyint": BYTE,
    "real": FLOAT,
    "bool": BOOLEAN,
    "timestamp_ltz": TIMESTAMP,
    "null": VOID,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<word>\w+)"
    r"|(?P<mark>[,:<>()]))",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)|''|\"\"", re.DOTALL)


def parse_schema(text: str) -> StructType:
    """Read columns as people write them: `id long not null, s struct<a: int> comment 'why'`."""
    return _Spelling(text).schema()


def parse_type(text: str) -> DataType:
    """Read a type as people write it: `decimal(10, 2)`, `array<int>`."""
    return _Spelling(text).data_type()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Spelling:
    """A text being read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0

    def schema(self) -> StructType:
        fields = self._fields(depth=0)
        if self._peek().kind != "end":
            raise self._unexpected("`,` or the end")
        if not fields:
            raise InvalidSchemaError("The schema has no columns.")
        return StructType(fields)

    def data_type(self) -> DataType:
        found = self._type(depth=0)
        if self._peek().kind != "end":
            raise self._unexpected("the end")
        return found

    def _split(self) -> Iterator[_Token]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            found = _TOKEN.match(self._text, position)
            if found is None:
                raise self._refused(position, f"{self._text[position:].split()[0][:20]!r}")
            kind = str(found.lastgroup)
            yield _Token(kind, found[kind], found.start(kind))
            position = found.end()
        yield _Token("end", "", len(self._text))

    def _fields(self, depth: int) -> tuple[StructField, ...]:
        fields: list[StructField] = []
        while self._peek().kind in {"word", "quoted"}:
            fields.append(self._field(depth))
            if not self._took(","):
                break
            if self._peek().kind not in {"word", "quoted"}:
                raise self._unexpected("a column")
        return tuple(fields)

    def _field(self, depth: int) -> StructField:
        token = self._take()
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        self._took(":")
        data_type = self._type(depth + 1)
        nullable, metadata = True, dict[str, object]()
        while True:
            if self._took("not"):
                if not self._took("null"):
                    raise self._unexpected("NULL")
                nullable = False
            elif self._took("comment"):
                if self._peek().kind != "text":
                    raise self._unexpected("a comment in quotes")
                metadata[COMMENT] = _ESCAPED.sub(_unescape, self._take().text[1:-1])
            else:
                return StructField(name, data_type, nullable, metadata)

    def _type(self, depth: int) -> DataType:
        if depth > DEEPEST:
            raise InvalidSchemaError(f"The schema nests deeper than {DEEPEST} levels.")
        if self._peek().kind != "word":
            raise self._unexpected("a type")
        token = self._take()
        match token.text.lower():
            case "array":
                self._expect("<")
                element = self._type(depth + 1)
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                value = self._type(depth + 1)
                self._expect(">")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self._fields(depth)
                self._expect(">")
                return StructType(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal(token)
            case "char" | "varchar":
                raise self._refused(token.start, f"{token.text!r}: use string")
            case name if name in _ALIASES:
                return _ALIASES[name]
            case _:
                raise self._refused(token.start, f"{token.text!r} is not a type")

    def _decimal(self, token: _Token) -> DecimalType:
        precision, scale = 10, 0
        if self._took("("):
            precision = self._number()
            if self._took(","):
                scale = self._number()
            self._expect(")")
        decimal = DecimalType(precision, scale)
        if not decimal.is_possible:
            raise self._refused(token.start, f"{decimal} has impossible digits")
        return decimal

    def _number(self) -> int:
        token = self._take()
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 4):
            raise self._refused(token.start, f"{token.text!r} is not a number of digits")
        return int(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _took(self, expected: str) -> bool:
        token = self._peek()
        if token.kind in {"word", "mark"} and token.text.lower() == expected:
            self._take()
            return True
        return False

    def _expect(self, expected: str) -> None:
        if not self._took(expected):
            raise self._unexpected(f"`{expected}`")

    def _unexpected(self, wanted: str) -> InvalidSchemaError:
        token = self._peek()
        found = f"{token.text!r}" if token.kind != "end" else "the end"
        return self._refused(token.start, f"{wanted} was expected, not {found}")

    def _refused(self, position: int, why: str) -> InvalidSchemaError:
        return InvalidSchemaError(f"The schema cannot be read at character {position + 1}: {why}.")


def _unescape(found: re.Match[str]) -> str:
    return found[1] or found[0][0]
