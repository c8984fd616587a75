"""Token -> principal.

A token is 256 bits of chance, shown once; the catalog keeps its hash. Here only the answer to
"whose is it" is remembered, for a second: a revoked token opens nothing after that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from headgate.clock import Clock
from headgate.errors import NotAuthenticatedError

_KEPT_S = 1.0
_KEPT = 10_000

Principal = str
Finder = Callable[[str], Principal | None]  # may wait for the store


class Tokens:
    """Knows whose token it is, or that it is nobody's."""

    def __init__(self, find: Finder, clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    def remembered(self, header: str | None) -> Principal | None:
        """Give the principal without asking the store, if it was asked a moment ago."""
        found = self._known.get(_secret(header))
        if found is None or found[1] < self._clock.monotonic():
            return None
        return found[0]

    def principal(self, header: str | None) -> Principal:
        """Give the principal, or refuse."""
        secret = _secret(header)
        name = self._find(secret)
        if name is None:
            self._known.pop(secret, None)
            raise NotAuthenticatedError("The token is unknown, expired or revoked.")
        self._known[secret] = (name, self._clock.monotonic() + _KEPT_S)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return name


def _secret(header: str | None) -> str:
    scheme, _, secret = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticatedError("The request carries no token.")
    return secret.strip()
