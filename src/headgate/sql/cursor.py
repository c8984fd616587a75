"""A cursor over the tokens of a statement; of an expression it only finds the end."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from headgate.errors import InvalidSchemaError, SyntaxRefusedError
from headgate.protocol.expressions.lexer import Token, TokenKind, unquote
from headgate.protocol.expressions.schema_text import take_type
from headgate.protocol.expressions.token_reader import TokenReader
from headgate.protocol.schema.types import DataType, Path
from headgate.sql import statements
from headgate.sql.keywords import AWAITING, BEFORE_BY, BEFORE_MORE, CLAUSES, NOT_AN_ALIAS
from headgate.sql.positions import refused

Item = TypeVar("Item")

_OPENING = {"(": ")", "[": "]"}
_CLOSING = frozenset(_OPENING.values())
_AFTER_NAME = frozenset({",", ")", ".", "FROM", "AS"})


class Cursor(TokenReader):
    """The tokens of a statement, and the position of the next one."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self.text = text

    def took_keyword(self, *keys: str) -> str:
        """Take one of these words, unless it is the name of a table: the last word."""
        following = self.peek(1)
        is_name = following.kind is TokenKind.END or following.key == "."
        return "" if is_name else self.took_any(*keys)

    def took_before_name(self, key: str) -> bool:
        """Take a word if a name follows it."""
        return self.peek(1).is_name and self.took(key)

    def expect(self, *keys: str) -> None:
        for key in keys:
            if not self.took(key):
                raise self.unexpected(f"`{key}`")

    def identifier(self, what: str = "a name") -> str:
        if not self.peek().is_name:
            raise self.unexpected(what)
        return self.take().name

    def name(self, what: str = "a name") -> statements.Name:
        """Take a name of one or more parts."""
        first = self.peek()
        if self.sees("IDENTIFIER", "("):
            raise self.refused("IDENTIFIER(…) hides a name", "Write the name itself.")
        parts = [self.identifier(what)]
        while self.sees(".") and self.peek(1).is_name:
            self.take()
            parts.append(self.identifier(what))
        end = self.end
        if self.sees("@") and self.peek().start == end:
            raise self.refused(
                "a version cannot be written with `@`",
                "Write VERSION AS OF n, or TIMESTAMP AS OF '…', after the name.",
            )
        if self.sees("-") and self.peek().start == end:
            raise self.refused("`-` cannot be part of a plain name", "Put it in backquotes.")
        return statements.Name(tuple(parts), self.piece(first.start, end))

    def table_reference(self, what: str = "a table") -> statements.TableReference:
        """Take the name of a table that is read, perhaps with AS OF."""
        name, as_of = self.name(what), self.as_of()
        return statements.TableReference(name, as_of, self.piece(name.piece.start, self.end))

    def path(self) -> Path:
        """Take a column, or a field inside one."""
        return self.name("a column").parts

    def string(self, what: str = "a string") -> str:
        if self.peek().kind is not TokenKind.STRING:
            raise self.unexpected(what)
        return unquote(self.take().text)

    def integer(self) -> int:
        sign = -1 if self.took("-") else 1
        if self.peek().kind is not TokenKind.NUMBER or not self.peek().text.isdecimal():
            raise self.unexpected("a whole number")
        return sign * int(self.take().text)

    def enclosed(self, item: Callable[[], Item]) -> Item:
        """Take an item between parentheses."""
        self.expect("(")
        found = item()
        self.expect(")")
        return found

    def listed(self, item: Callable[[], Item]) -> list[Item]:
        """Take items between parentheses, separated by commas."""
        return self.enclosed(lambda: self.several(item))

    def several(self, item: Callable[[], Item]) -> list[Item]:
        """Take items separated by commas."""
        found = [item()]
        while self.took(","):
            found.append(item())
        return found

    def listed_or_several(self, item: Callable[[], Item]) -> list[Item]:
        """Take items separated by commas, with or without parentheses around them."""
        return self.listed(item) if self.sees("(") else self.several(item)

    def as_of(self) -> statements.AsOf | None:
        """Take VERSION AS OF, TIMESTAMP AS OF, with or without FOR."""
        for word in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME"):
            if self.took(word, "AS", "OF") or self.took("FOR", word, "AS", "OF"):
                break
        else:
            return None
        if word in ("TIMESTAMP", "SYSTEM_TIME"):
            return self.expression(*NOT_AN_ALIAS, is_operand=True)
        if self.peek().kind is TokenKind.STRING:
            token = self.take()
            if not unquote(token.text).isdecimal():
                raise refused(self.text, token.start, "a version is a whole number")
            return int(unquote(token.text))
        return self.integer()

    def alias(self, *, may_be_clause: bool = True) -> str | None:
        """Take the alias of a table, if there is one.

        Without `may_be_clause` a word that can begin a clause is never an alias, so that an
        incomplete statement does not change every row.
        """
        if self.took("AS"):
            return self.identifier("an alias")
        token = self.peek()
        is_free = token.kind is TokenKind.QUOTED or token.key not in NOT_AN_ALIAS
        if may_be_clause and token.key in CLAUSES and not self.sees_clause:
            is_free = True
        return self.take().name if token.is_name and is_free else None

    @property
    def sees_clause(self) -> bool:
        """Whether the next word begins a clause: a word like it may also be a name."""
        token, following = self.peek(), self.peek(1)
        if token.kind is not TokenKind.WORD or token.key not in CLAUSES:
            return False
        if token.key in BEFORE_BY:
            return following.key == "BY"
        if token.key not in BEFORE_MORE:
            return True
        return following.kind is not TokenKind.END and following.key not in _AFTER_NAME

    def data_type(self) -> DataType:
        """Take a type, as in any schema text."""
        start = self.peek().start
        if self.peek().kind is not TokenKind.WORD:
            raise self.unexpected("a type")
        try:
            return take_type(self)
        except InvalidSchemaError as error:
            why = error.message.partition(": ")[2].rstrip(".") or error.message.rstrip(".")
            why = f"the type cannot be read: {why}"
            raise refused(self.text, start, why, error.remedy) from error

    # Expressions

    def expression(self, *stops: str, is_operand: bool = False) -> statements.Piece:
        """Take an expression: up to a comma, a closing bracket, one of the words, or the end.

        A stop counts only where an operand has ended, so columns may be named like keywords. With
        `is_operand` it also ends before a name that cannot belong to it: an alias.
        """
        start = self.peek().start
        self._scan(frozenset(stops), is_operand=is_operand)
        if self.end <= start:
            raise self.unexpected("an expression")
        return self.piece(start, self.end)

    def condition(self, *stops: str) -> statements.Piece:
        """Take a condition: an expression that a comma may not follow."""
        found = self.expression(*stops)
        if self.sees(","):
            raise self.unexpected("a condition")
        return found

    def skip_group(self) -> None:
        """Take a bracket and everything up to its closing bracket."""
        if not self.sees_any(*_OPENING):
            raise self.unexpected("`(`")
        opened = self.take()
        closing = [_OPENING[opened.key]]
        while closing:
            token = self.take()
            if token.kind is TokenKind.END:
                raise refused(self.text, opened.start, f"the `{opened.key}` is never closed")
            if token.kind is not TokenKind.SIGN:
                continue
            if token.key in _OPENING:
                closing.append(_OPENING[token.key])
            elif token.key in _CLOSING and token.key != closing.pop():
                raise refused(self.text, token.start, f"`{token.key}` closes nothing")

    def skip(self) -> None:
        """Take a token, or a parenthesis with everything in it."""
        if self.sees("("):
            self.skip_group()
        else:
            self.take()

    def _scan(self, stops: Collection[str], *, is_operand: bool) -> None:
        cases = 0
        begun = False
        while not self.is_at_end:
            token = self.peek()
            ends = begun and self.has_operand
            begun = True
            if token.is_key(*_OPENING):
                self.skip_group()
                continue
            if cases == 0 and token.is_key(*_CLOSING, ",", ";"):
                return
            if token.is_name and not self.is_after_dot:
                if token.is_key("CASE"):
                    cases += 1
                elif cases and token.is_key("END"):
                    cases -= 1
                elif ends and cases == 0:
                    if is_operand or token.is_key(*stops):
                        return
                elif is_operand and token.is_key("INTERVAL"):
                    self._skip_interval()
                    continue
            self.take()

    @property
    def has_operand(self) -> bool:
        """Whether an operand ends before the next token."""
        return self._ends_operand(self._next - 1)

    @property
    def is_after_dot(self) -> bool:
        return self._is_dot(self._next - 1)

    def _ends_operand(self, index: int) -> bool:
        if index < 0:
            return False
        token = self._tokens[index]
        if token.kind is TokenKind.SIGN:
            if token.key == "*":  # all columns, or times
                before = self._tokens[index - 1] if index else token
                return before.key == "*" or not self._ends_operand(index - 1)
            return token.key in (")", "]", "}", "?")
        return (
            token.kind is not TokenKind.WORD or token.key not in AWAITING or self._is_dot(index - 1)
        )

    def _is_dot(self, index: int) -> bool:
        return index >= 0 and self._tokens[index].is_key(".")

    def _skip_interval(self) -> None:
        """Take INTERVAL 1 DAY and the like: a unit after a number looks like an alias."""
        self.take()
        while self.sees_any("+", "-") or self.peek().kind in (TokenKind.NUMBER, TokenKind.STRING):
            self.took_any("+", "-")
            self.take()
            if self.peek().is_name:
                self.take()
            if self.took("TO"):
                self.take()

    # Pieces and errors

    @property
    def whole(self) -> statements.Piece:
        """The whole statement."""
        return self.piece(self._tokens[0].start, self._tokens[-1].start)

    @property
    def end(self) -> int:
        """The offset after the token that was taken last."""
        return 0 if self.last is None else self.last.end

    def piece(self, start: int, end: int) -> statements.Piece:
        return statements.Piece(self.text[start:end], start)

    def rest(self, what: str = "a query") -> statements.Piece:
        """Take everything that is left."""
        if self.is_at_end:
            raise self.unexpected(what)
        start = self.peek().start
        self.skip_rest()
        return self.piece(start, self.end)

    def skip_rest(self) -> None:
        self._next = len(self._tokens) - 1

    def refused(self, why: str, remedy: str | None = None) -> SyntaxRefusedError:
        return refused(self.text, self.peek().start, why, remedy)

    def unsupported(self, what: str, remedy: str) -> SyntaxRefusedError:
        return self.refused(f"{what} is not supported", remedy)

    def unexpected(self, wanted: str) -> SyntaxRefusedError:
        token = self.peek()
        found = f"`{token.text[:40]}`" if token.kind is not TokenKind.END else "the end"
        return self.refused(f"{wanted} was expected, not {found}")
