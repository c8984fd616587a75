"""Access tokens. The catalog stores a hash; the secret is shown once.

A secret has 256 random bits, so a plain hash is enough: it cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib

from headgate.api.status import TokenEntry
from headgate.catalog.component import Component
from headgate.catalog.stores.rows import StoreConstraintError, TokenRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from headgate.names import plain_name

_MARK = "hg_"  # so that secret scanners can recognise a leaked token


class TokenService(Component):
    """Creates, verifies, lists and revokes tokens."""

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

        self._change(f"token {name}", create)
        return secret

    def entries(self) -> tuple[TokenEntry, ...]:
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
        now_ms = self._clock.now_ms()

        def revoke(unit: WriteUnit) -> None:
            if all(row.name != name for row in unit.tokens()):
                raise NotFoundError(
                    f"There is no token {name}.", remedy="See `headgate token list`."
                )
            unit.revoke_token(name, now_ms)

        self._change(f"token {name}", revoke)


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
