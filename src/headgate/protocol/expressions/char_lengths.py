"""Strings of a declared length: columns that Spark created as `char(n)` or `varchar(n)`.

In a table they are strings; the declared type of the whole column is in its metadata. That text is
not SQL: it has names with any characters unquoted, so it has a tokenizer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.protocol.expressions.token_reader import TokenReader
from headgate.protocol.schema.types import StructField

DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<QUOTED>`(?:[^`]|``)*`)|(?P<WORD>[^\s:<>,()`]+)|(?P<SIGN>[:<>,()]))"
)


@dataclass(frozen=True, slots=True)
class CharLengths:
    """The declared length of a string type, or the lengths within a nested type."""

    length: int | None = None
    is_char: bool = False
    # By folded names of fields, or `element`, `key` and `value`.
    parts: Mapping[str, CharLengths] = field(default_factory=dict)

    def at(self, name: str) -> CharLengths:
        """Return the lengths of a type directly within this one."""
        return self.parts.get(fold(name), UNLIMITED)

    @property
    def type(self) -> str:
        """The declared type, as Spark spells it."""
        return f"{'char' if self.is_char else 'varchar'}({self.length})"

    @property
    def is_limited(self) -> bool:
        """Whether a length is declared anywhere in the type."""
        return self.length is not None or any(item.is_limited for item in self.parts.values())


UNLIMITED: Final = CharLengths()


def char_lengths(item: StructField) -> CharLengths:
    """Parse the lengths in a column's metadata."""
    text = item.metadata.get(DECLARED)
    if text is None:
        return CharLengths()
    try:
        reader = _reader(str(text))
        lengths = _take_type(reader)
        if not reader.is_at_end:
            raise ValueError(text)
        return lengths
    except ValueError:
        raise UnsupportedFeatureError(
            f"Column {item.name!r} is declared as {text!r}, which cannot be read."
        ) from None


def _reader(text: str) -> TokenReader:
    tokens: list[Token] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        if (found := _TOKEN.match(text, at)) is None:
            raise ValueError(text)
        kind = TokenKind[found.lastgroup or ""]
        tokens.append(Token(kind, found[kind.name], at, found[kind.name].lower()))
        at = found.end()
    return TokenReader([*tokens, Token(TokenKind.END, "", at, "")])


def _take_type(reader: TokenReader) -> CharLengths:
    match reader.take().key:
        case "struct":
            _expect(reader, "<")
            fields: dict[str, CharLengths] = {}
            while not reader.took(">"):
                name = fold(reader.take().name)
                _expect(reader, ":")
                fields[name] = _take_type(reader)
                reader.took(",")
            return CharLengths(parts=fields)
        case "array":
            _expect(reader, "<")
            element = _take_type(reader)
            _expect(reader, ">")
            return CharLengths(parts={"element": element})
        case "map":
            _expect(reader, "<")
            key = _take_type(reader)
            _expect(reader, ",")
            value = _take_type(reader)
            _expect(reader, ">")
            return CharLengths(parts={"key": key, "value": value})
        case "char" | "varchar" as word:
            _expect(reader, "(")
            length = int(reader.take().text)
            _expect(reader, ")")
            return CharLengths(length, is_char=word == "char")
        case "":
            raise ValueError
        case _:
            if reader.took("("):
                while not reader.took(")"):
                    if reader.take().kind is TokenKind.END:
                        raise ValueError
            return CharLengths()


def _expect(reader: TokenReader, key: str) -> None:
    if not reader.took(key):
        raise ValueError(key)
