"""Positions in the user's text, and errors that point at them."""

from dataclasses import dataclass

from headgate.errors import SyntaxRefusedError
from headgate.protocol.expressions.lexer import Token, UnclosedError, lex

_WIDEST = 100  # of a line shown; longer ones are cut around the place


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def place_at(text: str, offset: int) -> Place:
    """Convert an offset to a line and a column."""
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def pointed(text: str, offset: int) -> str:
    """Return the line of an offset, with a caret under the place."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    shown = max(begin, offset - _WIDEST // 2)
    line = text[shown : min(end, shown + _WIDEST)].rstrip("\r")
    before = "".join("\t" if character == "\t" else " " for character in text[shown:offset])
    return f"  {line}\n  {before}^"


def refused(text: str, offset: int, why: str, remedy: str | None = None) -> SyntaxRefusedError:
    """Return an error that points at an offset; `why` has no full stop."""
    place = place_at(text, offset)
    return SyntaxRefusedError(
        f"{why[:1].upper()}{why[1:]}, at {place}:\n{pointed(text, offset)}\n",
        remedy=remedy,
        line=place.line,
        column=place.column,
    )


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Split a text, or a part of it, into tokens; refuse what is never closed."""
    try:
        return lex(text, start, end)
    except UnclosedError as error:
        raise refused(text, error.at, error.why) from None
