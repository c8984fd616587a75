"""Parse SQL expressions: conditions, CHECK constraints and generated columns.

Understands logic, comparisons, arithmetic, literals and calls of functions. Any other part becomes
an `Opaque` node that ends at the next AND, OR, comma or closing bracket around it.
"""

from collections.abc import Sequence
from typing import Final

from headgate.protocol.expressions.lexer import Token, TokenKind, UnclosedError, lex
from headgate.protocol.expressions.token_reader import TokenReader
from headgate.protocol.expressions.tree import (
    ColumnReference,
    Constant,
    Expression,
    FunctionCall,
    Opaque,
    OperatorCall,
)

_COMPARISONS: Final = {key: key for key in ("=", "!=", "<", "<=", ">", ">=", "<=>")} | {
    "==": "=",
    "<>": "!=",
}
# Unquoted, these words are never columns here. Spark accepts some of them as such.
_RESERVED: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "LIKE", "RLIKE", "DIV"})
_DEEPEST: Final = 100
QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def parse_expression(text: str) -> Expression:
    """Parse an expression; a string or comment that is never closed makes all of it opaque."""
    try:
        return parse_tokens(lex(text))
    except UnclosedError as error:
        return Opaque(error.why, error.at)


def parse_tokens(tokens: Sequence[Token]) -> Expression:
    """Parse an expression that was split into tokens; the last token is END."""
    try:
        return _ExpressionParser(tokens).parse()
    except RecursionError:
        return Opaque("it is nested too deeply")


def begins_query(first: Token, second: Token) -> bool:
    """Return True if two tokens begin a query and not an expression."""
    if first.kind is not TokenKind.WORD or first.key not in QUERY_STARTS:
        return False
    is_operand = second.kind in (TokenKind.NUMBER, TokenKind.STRING) or second.is_key("(")
    return first.key == "SELECT" or second.is_name or is_operand


class _NotUnderstood(Exception):  # noqa: N818 - never leaves this module
    """A part of the text that is not understood, and its offset."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


def _closing_places(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the closing parenthesis for each opening one."""
    places: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.is_key("("):
            opened.append(index)
        elif token.is_key(")") and opened:
            places[opened.pop()] = index
    return places


class _ExpressionParser(TokenReader):
    """Recursive descent, loosest binding first: OR, AND, NOT, predicates, sums, products, signs."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self._depth = 0  # of parentheses around the next token
        self._closing = _closing_places(tokens)

    def parse(self) -> Expression:
        operands = [self._conjunction()]
        while self.took_any("OR"):
            operands.append(self._conjunction())
        return operands[0] if len(operands) == 1 else OperatorCall("OR", tuple(operands))

    def _conjunction(self) -> Expression:
        operands = [self._negation()]
        while self.took_any("AND"):
            operands.append(self._negation())
        return operands[0] if len(operands) == 1 else OperatorCall("AND", tuple(operands))

    def _negation(self) -> Expression:
        if self.took_any("NOT", "!"):
            return OperatorCall("NOT", (self._negation(),))
        start, depth = self._next, self._depth
        try:
            # Directly, as it saves most of the stack where conditions are deeply nested.
            is_group = self._is_boundary(self._closing.get(start, start - 1) + 1)
            found = self._group() if is_group else self._predicate()
            if not self._is_boundary(self._next):
                raise self._unexpected()
        except _NotUnderstood as error:
            self._next, self._depth = start, depth
            self._skip()
            return Opaque(str(error), error.at)
        return found

    def _is_boundary(self, index: int) -> bool:
        token = self._tokens[index]
        is_closing = self._depth > 0 and token.is_key(")", ",")
        return token.kind is TokenKind.END or token.is_key("AND", "OR") or is_closing

    def _skip(self) -> None:
        """Skip to the next boundary outside of brackets, CASE and BETWEEN."""
        depth = cases = ranges = 0
        while not self.is_at_end:
            token = self.peek()
            if token.kind is TokenKind.SIGN:
                if depth == 0 and self._depth > 0 and token.key in (")", ","):
                    return
                depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.key, 0)
            elif (
                token.kind is TokenKind.WORD
                and depth == 0
                and not (self.last and self.last.is_key("."))
            ):
                cases += {"CASE": 1, "END": -1}.get(token.key, 0)
                if cases <= 0 and token.key == "BETWEEN":
                    ranges += 1
                elif cases <= 0 and token.key == "AND" and ranges:
                    ranges -= 1
                elif cases <= 0 and token.key in ("AND", "OR"):
                    return
            self._next += 1

    def _predicate(self) -> Expression:
        left = self._sum()
        while True:
            if operator := self.took_any(*_COMPARISONS):
                left = OperatorCall(_COMPARISONS[operator], (left, self._sum()))
            elif self.took_any("IS"):
                is_negated = self.took_any("NOT")
                keyword = self.took_any("NULL", "TRUE", "FALSE")
                if not keyword:
                    raise self._error("IS without NULL, TRUE or FALSE")
                left = OperatorCall(f"IS {keyword}", (left,))
                left = OperatorCall("NOT", (left,)) if is_negated else left
            else:
                start = self._next
                is_negated = self.took_any("NOT")
                found = self._range(left)
                if found is None:
                    self._next = start
                    return left
                left = OperatorCall("NOT", (found,)) if is_negated else found

    def _range(self, left: Expression) -> Expression | None:
        if self.took_any("IN"):
            self._expect("(")
            operands = [left, self._sum()]
            while self.took_any(","):
                operands.append(self._sum())
            self._expect(")")
            return OperatorCall("IN", tuple(operands))
        if self.took_any("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            return OperatorCall("BETWEEN", (left, low, self._sum()))
        if self.took_any("LIKE"):
            token = self._advance()
            if token.kind is not TokenKind.STRING:
                raise _NotUnderstood("LIKE with a pattern that is not a text", token.start)
            return OperatorCall("LIKE", (left, Constant("STRING", token.text, token.start)))
        return None

    def _sum(self) -> Expression:
        left = self._product()
        while operator := self.took_any("+", "-", "||"):
            left = OperatorCall(operator, (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._signed()
        while operator := self.took_any("*", "/", "%"):
            left = OperatorCall(operator, (left, self._signed()))
        return left

    def _signed(self) -> Expression:
        if self.took_any("-"):
            return OperatorCall("NEGATE", (self._signed(),))
        if self.took_any("+"):
            return self._signed()
        return self._operand()

    def _operand(self) -> Expression:
        token = self.peek()
        if token.is_key("("):
            return self._group()
        self._advance()
        match token.kind:
            case TokenKind.NUMBER:
                return Constant("NUMBER", token.text, token.start)
            case TokenKind.STRING:
                return self._string("STRING", token)
            case TokenKind.QUOTED:
                return self._column(token)
            case TokenKind.WORD if token.key in ("TRUE", "FALSE"):
                return Constant("BOOLEAN", token.key, token.start)
            case TokenKind.WORD if token.key == "NULL":
                return Constant("NULL", token.key, token.start)
            case TokenKind.WORD if token.key not in _RESERVED and token.key != "CASE":
                if self.peek().kind is TokenKind.STRING:
                    return self._string(token.key, self._advance())
                if self.peek().is_key("("):
                    return self._call(token)
                return self._column(token)
            case _:
                raise _NotUnderstood(f"{token.text!r} is not understood", token.start)

    def _string(self, kind: str, token: Token) -> Constant:
        if self.peek().kind is TokenKind.STRING:
            raise self._error("two texts beside each other")
        return Constant(kind, token.text, token.start)

    def _group(self) -> Expression:
        opened = self._advance()
        if begins_query(self.peek(), self.peek(1)):
            raise _NotUnderstood("a subquery", opened.start)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotUnderstood("it is nested too deeply", opened.start)
        inner = self.parse()
        self._expect(")")
        self._depth -= 1
        return inner

    def _call(self, name: Token) -> Expression:
        self._advance()
        arguments: list[Expression] = []
        self._depth += 1
        if not self.peek().is_key(")"):
            arguments.append(self.parse())
            while self.took_any(","):
                arguments.append(self.parse())
        self._expect(")")
        self._depth -= 1
        return FunctionCall(name.text, tuple(arguments), name.start)

    def _column(self, token: Token) -> Expression:
        path = [token.name]
        while self.took_any("."):
            token = self._advance()
            if not token.is_name:
                raise _NotUnderstood(f"{token.text!r} after a dot", token.start)
            path.append(token.name)
        if self.peek().is_key("("):
            raise _NotUnderstood(f"the function {'.'.join(path)}", token.start)
        return ColumnReference(tuple(path), token.start)

    # Tokens

    def _advance(self) -> Token:
        if self.is_at_end:
            raise self._unexpected()
        return self.take()

    def _expect(self, key: str) -> None:
        if not self.took_any(key):
            raise self._error(f"{key!r} is missing")

    def _unexpected(self) -> _NotUnderstood:
        why = "it ends too early" if self.is_at_end else f"{self.peek().text!r} is not understood"
        return self._error(why)

    def _error(self, why: str) -> _NotUnderstood:
        """Return an error at the next token; at the end of the text, after the last token."""
        token = self.peek()
        at = self.last.end if self.is_at_end and self.last is not None else token.start
        return _NotUnderstood(why, at)
