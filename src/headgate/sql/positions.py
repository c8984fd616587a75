"""Positions in the user's text, and errors that point at them."""

from headgate.errors import SyntaxRefusedError
from headgate.protocol.expressions.lexer import Token, UnclosedError, lex

_WIDEST = 100  # of a line shown; longer ones are cut around the place


def place_at(text: str, offset: int) -> tuple[int, int]:
    """Convert an offset to a line and a column, both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def pointed(text: str, offset: int) -> str:
    """Name the place of an offset, and show its line with a caret under the place."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    shown = max(begin, offset - _WIDEST // 2)
    shown_line = text[shown : min(end, shown + _WIDEST)].rstrip("\r")
    before = "".join("\t" if character == "\t" else " " for character in text[shown:offset])
    line, column = place_at(text, offset)
    return f"at line {line}, column {column}:\n  {shown_line}\n  {before}^\n"


def refused(text: str, offset: int, why: str, remedy: str | None = None) -> SyntaxRefusedError:
    """Return an error that points at an offset; `why` has no full stop."""
    line, column = place_at(text, offset)
    message = f"{why[:1].upper()}{why[1:]}, {pointed(text, offset)}"
    return SyntaxRefusedError(message, remedy=remedy, line=line, column=column)


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Split a text, or a part of it, into tokens; refuse what is never closed."""
    try:
        return lex(text, start, end)
    except UnclosedError as error:
        raise refused(text, error.at, error.why) from None
