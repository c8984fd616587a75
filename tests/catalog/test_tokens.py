"""Tokens: who may come in, and for how long."""

from __future__ import annotations

import hashlib

import pytest

from headgate.api.status import TokenEntry
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidNameError,
    NotFoundError,
)
from tests.catalog.conftest import House
from tests.kit.builders import START_MS


def test_a_secret_is_known_again_and_only_its_hash_is_kept(inline_lake: House) -> None:
    catalog = inline_lake.database
    secret = catalog.create_token("nightly")
    assert catalog.principal_of(secret) == "nightly"
    assert catalog.principal_of(secret[:-1]) is None
    assert catalog.principal_of("") is None
    with catalog._store.read() as unit:
        [row] = unit.tokens()
    assert row.secret_sha256 == hashlib.sha256(secret.encode()).digest()
    inline_lake.restart()
    assert inline_lake.database.principal_of(secret) == "nightly"
    inline_lake.close()
    assert secret.encode() not in (inline_lake.root / "headgate.db").read_bytes()


def test_two_secrets_differ(inline_lake: House) -> None:
    secrets = [inline_lake.database.create_token(name) for name in ("a", "b")]
    assert len(set(secrets)) == 2
    assert [inline_lake.database.principal_of(secret) for secret in secrets] == ["a", "b"]


def test_a_revoked_token_opens_nothing_and_keeps_its_name(inline_lake: House) -> None:
    catalog = inline_lake.database
    secret, other = catalog.create_token("a"), catalog.create_token("b")
    catalog.revoke_token("a")
    catalog.revoke_token("a")
    assert catalog.principal_of(secret) is None
    assert catalog.principal_of(other) == "b"
    with pytest.raises(AlreadyExistsError):
        catalog.create_token("a")
    with pytest.raises(NotFoundError):
        catalog.revoke_token("nobody")
    assert catalog.tokens() == (
        TokenEntry(name="a", created_ms=START_MS, revoked_ms=START_MS),
        TokenEntry(name="b", created_ms=START_MS),
    )


def test_a_token_expires_to_the_millisecond(inline_lake: House) -> None:
    catalog = inline_lake.database
    secret = catalog.create_token("a", START_MS + 10)
    inline_lake.clock.ms = START_MS + 9
    assert catalog.principal_of(secret) == "a"
    inline_lake.clock.ms = START_MS + 10
    assert catalog.principal_of(secret) is None
    with pytest.raises(InvalidArgumentError):
        catalog.create_token("b", START_MS + 10)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 256])
def test_a_name_that_is_none_is_refused(inline_lake: House, name: str) -> None:
    with pytest.raises(InvalidNameError):
        inline_lake.database.create_token(name)
