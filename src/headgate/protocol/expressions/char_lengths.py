"""Strings of a declared length: columns that Spark created as `char(n)` or `varchar(n)`.

In a table they are strings; the declared type of the whole column is in its metadata. That text is
not SQL: it has names with any characters unquoted, so it has a tokenizer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import InvalidSchemaError, UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol.expressions.lexer import Token, TokenKind
from headgate.protocol.expressions.schema_text import take_type
from headgate.protocol.expressions.token_reader import TokenReader
from headgate.protocol.schema.types import DataType, StructField, parts

_LIMITED: Final = re.compile(r"(char|varchar)\((\d+)\)")
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
        return UNLIMITED
    try:
        reader = _reader(str(text))
        declared = take_type(reader, has_lengths=True)
        if not reader.is_at_end:
            raise ValueError(text)
    except (ValueError, InvalidSchemaError):
        raise UnsupportedFeatureError(
            f"Column {item.name!r} is declared as {text!r}, which cannot be read."
        ) from None
    return _lengths(declared)


def _lengths(declared: DataType) -> CharLengths:
    if (found := _LIMITED.fullmatch(str(declared))) is not None:
        return CharLengths(int(found[2]), is_char=found[1] == "char")
    return CharLengths(parts={fold(name): _lengths(part) for name, part in parts(declared)})


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
