"""Parse schemas and types written as text: `id long not null, day date`.

Accepts SQL's names of types as well. Errors name the character. Whether a table can have such
columns is checked in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from headgate.errors import InvalidSchemaError
from headgate.protocol.expressions.lexer import Token, TokenKind, UnclosedError, lex, unquote
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


def parse_schema(text: str) -> StructType:
    """Parse columns: `id long not null, s struct<a: int> comment 'why'`."""
    return _SchemaParser(_tokens(text)).schema()


def parse_type(text: str) -> DataType:
    """Parse a type: `decimal(10, 2)`, `array<int>`."""
    return _SchemaParser(_tokens(text)).data_type()


def read_type(tokens: Sequence[Token]) -> tuple[DataType, int]:
    """Parse the type that some tokens begin with; also return the offset where it ends."""
    parser = _SchemaParser(tokens)
    return parser.type(), parser.end


def _tokens(text: str) -> list[Token]:
    try:
        return lex(text)
    except UnclosedError as error:
        raise _refused(error.at, error.why) from None


class _SchemaParser:
    """Recursive descent over the tokens of a schema."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = list(_split(tokens))
        self._next = 0

    @property
    def end(self) -> int:
        """The offset after the token that was taken last."""
        return self._tokens[self._next - 1].end

    def schema(self) -> StructType:
        fields = self._fields(depth=0)
        if self._peek().kind is not TokenKind.END:
            raise self._unexpected("`,` or the end")
        if not fields:
            raise InvalidSchemaError("The schema has no columns.")
        return StructType(fields)

    def data_type(self) -> DataType:
        data_type = self.type()
        if self._peek().kind is not TokenKind.END:
            raise self._unexpected("the end")
        return data_type

    def _fields(self, depth: int) -> tuple[StructField, ...]:
        fields: list[StructField] = []
        while self._peek().is_name:
            fields.append(self._field(depth))
            if not self._took(","):
                break
            if not self._peek().is_name:
                raise self._unexpected("a column")
        return tuple(fields)

    def _field(self, depth: int) -> StructField:
        name = self._take().name
        self._took(":")
        data_type = self.type(depth + 1)
        nullable, metadata = True, dict[str, object]()
        while True:
            if self._took("NOT"):
                if not self._took("NULL"):
                    raise self._unexpected("NULL")
                nullable = False
            elif self._took("COMMENT"):
                if self._peek().kind is not TokenKind.STRING:
                    raise self._unexpected("a comment in quotes")
                metadata[COMMENT] = unquote(self._take().text)
            else:
                return StructField(name, data_type, nullable, metadata)

    def type(self, depth: int = 0) -> DataType:
        if depth > DEEPEST:
            raise InvalidSchemaError(f"The schema nests deeper than {DEEPEST} levels.")
        if self._peek().kind is not TokenKind.WORD:
            raise self._unexpected("a type")
        token = self._take()
        match token.text.lower():
            case "array":
                self._expect("<")
                element = self.type(depth + 1)
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self.type(depth + 1)
                self._expect(",")
                value = self.type(depth + 1)
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
                raise _refused(token.start, f"{token.text!r}: use string")
            case name if name in _ALIASES:
                return _ALIASES[name]
            case _:
                raise _refused(token.start, f"{token.text!r} is not a type")

    def _decimal(self, token: Token) -> DecimalType:
        precision, scale = 10, 0
        if self._took("("):
            precision = self._number()
            if self._took(","):
                scale = self._number()
            self._expect(")")
        decimal = DecimalType(precision, scale)
        if not decimal.is_possible:
            raise _refused(token.start, f"{decimal} is out of range")
        return decimal

    def _number(self) -> int:
        token = self._take()
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 4):
            raise _refused(token.start, f"{token.text!r} is not a number of digits")
        return int(token.text)

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _took(self, key: str) -> bool:
        if not self._peek().is_key(key):
            return False
        self._take()
        return True

    def _expect(self, key: str) -> None:
        if not self._took(key):
            raise self._unexpected(f"`{key}`")

    def _unexpected(self, expected: str) -> InvalidSchemaError:
        token = self._peek()
        given = "the end" if token.kind is TokenKind.END else repr(token.text[:20])
        return _refused(token.start, f"{expected} was expected, not {given}")


def _split(tokens: Sequence[Token]) -> Iterator[Token]:
    """Split signs such as `<>` into characters; a number may be a name here, as in `1a int`."""
    for token in tokens:
        if token.kind is TokenKind.SIGN:
            for at, sign in enumerate(token.text, start=token.start):
                yield Token(TokenKind.SIGN, sign, at, sign)
        elif token.kind is TokenKind.NUMBER and re.fullmatch(r"\w+", token.text):
            yield Token(TokenKind.WORD, token.text, token.start, token.text.upper())
        else:
            yield token


def _refused(position: int, why: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"The schema cannot be read at character {position + 1}: {why}.")
