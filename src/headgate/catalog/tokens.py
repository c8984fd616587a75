"""Access tokens. The catalog stores a hash; the secret is shown once.

A secret has 256 random bits, so a plain hash is enough: it cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib

from headgate.api.status import TokenEntry
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore, StoreConstraintError, TokenRow, WriteUnit
from headgate.clock import Clock, Ids
from headgate.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from headgate.names import plain_name

_MARK = "hg_"  # so that secret scanners can recognise a leaked token


class TokenService:
    """Creates, verifies, lists and revokes tokens."""

    def __init__(self, store: CatalogStore, ratifier: Ratifier, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._ratifier = ratifier
        self._clock = clock
        self._ids = ids

    def principal_of(self, secret: str) -> str | None:
        """Return the principal of a secret; None if it is unknown, expired or revoked."""
        with self._store.read() as unit:
            row = unit.token(_hashed(secret))
        if row is None or row.revoked_ms is not None:
            return None
        if row.expires_ms is not None and row.expires_ms <= self._clock.now_ms():
            return None
        return row.name

    def create(self, name: str, expires_ms: int | None = None) -> str:
        """Create a token and return its secret, which cannot be shown again."""
        name, now_ms = plain_name(name), self._clock.now_ms()
        if expires_ms is not None and expires_ms <= now_ms:
            raise InvalidArgumentError(
                f"The token {name} would have expired already.",
                remedy="Choose an expiry time in the future.",
            )
        chance = base64.urlsafe_b64encode(self._ids.secret()).decode().rstrip("=")
        secret = f"{_MARK}{chance}"
        row = TokenRow(name, _hashed(secret), now_ms, expires_ms)

        def create(unit: WriteUnit) -> None:
            try:
                unit.insert_token(row)
            except StoreConstraintError:
                raise AlreadyExistsError(
                    f"There is a token {name} already.",
                    remedy="Choose another name; names of revoked tokens stay taken.",
                ) from None

        self._ratifier.submit(f"token {name}", create).result()
        return secret

    def entries(self) -> tuple[TokenEntry, ...]:
        """List all tokens, including expired and revoked ones."""
        with self._store.read() as unit:
            rows = unit.tokens()
        return tuple(
            TokenEntry(
                name=row.name,
                created_ms=row.created_ms,
                expires_ms=row.expires_ms,
                revoked_ms=row.revoked_ms,
            )
            for row in rows
        )

    def revoke(self, name: str) -> None:
        """Revoke a token; revoking it again has no effect."""
        now_ms = self._clock.now_ms()

        def revoke(unit: WriteUnit) -> None:
            if all(row.name != name for row in unit.tokens()):
                raise NotFoundError(
                    f"There is no token {name}.", remedy="See `headgate token list`."
                )
            unit.revoke_token(name, now_ms)

        self._ratifier.submit(f"token {name}", revoke).result()


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
