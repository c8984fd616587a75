"""Read tokens one after the other: what all parsers of SQL text have in common."""

from collections.abc import Sequence

from headgate.protocol.expressions.lexer import Token, TokenKind


class TokenReader:
    """Tokens, and the position of the next one. The last token is END, which is never passed."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    @property
    def last(self) -> Token | None:
        """The token that was taken last."""
        return self._tokens[self._next - 1] if self._next else None

    @property
    def is_at_end(self) -> bool:
        return self.peek().kind is TokenKind.END

    def sees(self, *keys: str) -> bool:
        """Return True if these words and signs are next, in this order."""
        return all(self.peek(ahead).is_key(key) for ahead, key in enumerate(keys))

    def sees_any(self, *keys: str) -> bool:
        """Return True if one of these words and signs is next."""
        return self.peek().is_key(*keys)

    def take(self) -> Token:
        token = self.peek()
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def took(self, *keys: str) -> bool:
        """Take these words and signs if all of them are next."""
        if not self.sees(*keys):
            return False
        self._next += len(keys)
        return True

    def took_any(self, *keys: str) -> str:
        """Take one of these if it is next; return an empty string if none is."""
        return self.take().key if self.sees_any(*keys) else ""
