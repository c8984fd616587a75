"""Checks access tokens.

The catalog stores only hashes of tokens. Here a valid token is cached for a second, so that a
revoked token is refused after that.
"""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

from headgate.clock import Clock
from headgate.errors import NotAuthenticatedError

_CACHED_S = 1.0
_MAX_CACHED = 10_000


class Tokens:
    """The valid access tokens; `find` returns the name of a token, and may wait for the store."""

    def __init__(self, find: Callable[[str], str | None], clock: Clock) -> None:
        self._find = find
        self._valid: TTLCache[str, bool] = TTLCache(_MAX_CACHED, _CACHED_S, clock.monotonic)

    def is_cached(self, header: str) -> bool:
        """Return whether the token in an Authorization header was valid a moment ago."""
        return _secret(header) in self._valid

    def check(self, header: str) -> None:
        """Raise unless the token in an Authorization header is valid."""
        secret = _secret(header)
        if self._find(secret) is None:
            raise NotAuthenticatedError("The token is unknown, expired or revoked.")
        self._valid[secret] = True


def _secret(header: str) -> str:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticatedError("The request carries no token.")
    return secret.strip()
