"""Strings of a declared length: columns that Spark created as `char(n)` or `varchar(n)`.

In a table they are strings; the declared type of the whole column is in its metadata. That text is
not SQL: it has names with any characters unquoted, so it has a tokenizer of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import UnsupportedFeatureError
from headgate.names import fold
from headgate.protocol.schema.types import StructField

DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)*`|[^\s:<>,()`]+)\s*(?P<colon>:)?|(?P<mark>[<>,()]))"
)


@dataclass(frozen=True, slots=True)
class CharLengths:
    """The declared length of a string type, or the lengths within a nested type."""

    length: int | None = None
    is_char: bool = False
    fields: Mapping[str, CharLengths] = field(default_factory=dict)  # by folded names
    within: tuple[CharLengths, ...] = ()  # of an array its element, of a map key and value

    @property
    def type(self) -> str:
        """The declared type, as Spark spells it."""
        return f"{'char' if self.is_char else 'varchar'}({self.length})"

    @property
    def is_limited(self) -> bool:
        """Whether a length is declared anywhere in the type."""
        inner = (*self.fields.values(), *self.within)
        return self.length is not None or any(item.is_limited for item in inner)


UNLIMITED: Final = CharLengths()


def char_lengths(item: StructField) -> CharLengths:
    """Parse the lengths in a column's metadata."""
    text = item.metadata.get(DECLARED)
    if text is None:
        return CharLengths()
    try:
        return _LengthParser(str(text)).parse()
    except ValueError:
        raise UnsupportedFeatureError(
            f"Column {item.name!r} is declared as {text!r}, which cannot be read."
        ) from None


class _LengthParser:
    """Recursive descent over the tokens of a type."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, bool]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            if (found := _TOKEN.match(text, at)) is None:
                raise ValueError(text)
            word = found["name"] or found["mark"]
            self._tokens.append((word, found["colon"] is not None))
            at = found.end()
        self._tokens.append(("", False))
        self._next = 0

    def parse(self) -> CharLengths:
        lengths = self._type()
        self._expect("")
        return lengths

    def _type(self) -> CharLengths:
        match self._take()[0].lower():
            case "struct":
                return CharLengths(fields=dict(self._fields()))
            case "array" | "map":
                self._expect("<")
                within = [self._type()]
                while self._took(","):
                    within.append(self._type())
                self._expect(">")
                return CharLengths(within=tuple(within))
            case "char" | "varchar" as word:
                self._expect("(")
                length = int(self._take()[0])
                self._expect(")")
                return CharLengths(length, is_char=word == "char")
            case "":
                raise ValueError
            case _:
                if self._took("("):
                    while not self._took(")"):
                        self._take()
                return CharLengths()

    def _fields(self) -> Iterator[tuple[str, CharLengths]]:
        self._expect("<")
        while not self._took(">"):
            name, has_colon = self._take()
            if not has_colon:
                raise ValueError(name)
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            yield fold(name), self._type()
            self._took(",")

    def _take(self) -> tuple[str, bool]:
        if self._next >= len(self._tokens):
            raise ValueError
        self._next += 1
        return self._tokens[self._next - 1]

    def _took(self, word: str) -> bool:
        if self._tokens[min(self._next, len(self._tokens) - 1)][0] != word:
            return False
        self._next += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise ValueError(word)
