"""Leases, tokens, answers, locations, listeners and settings."""

from __future__ import annotations

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import (
    AnswerRow,
    ListenerRow,
    LocationRow,
    StoreConstraintError,
    TokenRow,
)
from headgate.protocol.actions import Sequence
from tests.kit import shows
from tests.kit.builders import START_MS


class ServerContract:
    @shows("FP3")
    def test_a_lease_is_held_until_it_expires_or_is_released(self, store: CatalogStore) -> None:
        def acquire(holder: str, now_ms: int, lease: str = "a") -> bool:
            with store.write() as unit:
                return unit.acquire_lease(lease, holder, now_ms, now_ms + 10)

        def holder(lease: str) -> str | None:
            with store.read() as unit:
                return unit.lease_holder(lease)

        assert holder("a") is None
        assert acquire("me", 100)
        assert not acquire("you", 100)
        assert holder("a") == "me"
        assert not acquire("you", 109)
        assert acquire("you", 109, "b")  # another lease
        assert acquire("me", 105)  # renewed: until 115
        assert not acquire("you", 110)
        assert not acquire("you", 114)
        assert acquire("you", 115)  # expired
        assert not acquire("me", 116)
        with store.write() as unit:
            unit.release_lease("a", "me")  # held by another
        assert not acquire("me", 117)
        with store.write() as unit:
            unit.release_lease("a", "you")
            unit.release_lease("never", "you")
        assert holder("a") is None
        assert acquire("me", 117)

    def test_a_refused_lease_changes_nothing(self, store: CatalogStore) -> None:
        with store.write() as unit:
            assert unit.acquire_lease("a", "me", 100, 110)
            assert not unit.acquire_lease("a", "you", 105, 10**9)
            assert not unit.acquire_lease("a", "you", 109, 10**9)
            assert unit.acquire_lease("a", "you", 110, 120)

    def test_many_leases_are_acquired_and_released_each_by_its_holder(
        self, store: CatalogStore
    ) -> None:
        with store.write() as unit:
            assert unit.acquire_lease("b", "you", 100, 110)
            assert unit.acquire_leases(["a", "b", "c"], "me", 105, 200) == {"a", "c"}
            assert unit.acquire_leases([], "me", 105, 200) == set()
        with store.write() as unit:
            assert unit.acquire_leases(["a", "b"], "me", 110, 210) == {"a", "b"}  # b is expired
            assert unit.acquire_leases(["a", "c", "d"], "you", 199, 300) == {"d"}
            assert unit.acquire_leases(["a", "c"], "you", 200, 300) == {"c"}  # a is renewed
            unit.release_leases(["a", "c", "d", "never"], "you")
        with store.read() as unit:
            holders = {name: unit.lease_holder(name) for name in "abcd"}
        assert holders == {"a": "me", "b": "me", "c": None, "d": None}

    def test_a_token_is_found_by_the_hash_of_its_secret_and_can_be_revoked(
        self, store: CatalogStore
    ) -> None:
        one = TokenRow("b", b"1" * 32, START_MS, expires_ms=START_MS + 5)
        two = TokenRow("a", b"2" * 32, START_MS)
        with store.write() as unit:
            unit.insert_token(one)
            unit.insert_token(two)
            assert unit.token(b"1" * 32) == one
            assert unit.token(b"3" * 32) is None
            assert unit.tokens() == [two, one]
        with store.write() as unit:
            unit.revoke_token("b", 7)
            unit.revoke_token("b", 9)  # the first time counts
            unit.revoke_token("unknown", 9)
            assert unit.counts().tokens == 1
        with store.read() as unit:
            assert unit.tokens() == [two, one._replace(revoked_ms=7)]
            assert unit.token(b"1" * 32) == one._replace(revoked_ms=7)

    @pytest.mark.parametrize("taken", [TokenRow("a", b"2", 2), TokenRow("b", b"1", 2)])
    def test_a_tokens_name_and_secret_are_unique(
        self, store: CatalogStore, taken: TokenRow
    ) -> None:
        with store.write() as unit:
            unit.insert_token(TokenRow("a", b"1", 1))
            with pytest.raises(StoreConstraintError), unit.savepoint():
                unit.insert_token(taken)
            unit.insert_token(TokenRow("c", b"3", 3))
        with store.read() as unit:
            assert unit.tokens() == [TokenRow("a", b"1", 1), TokenRow("c", b"3", 3)]

    def test_an_answer_is_kept_until_it_is_old_and_is_not_replaced(
        self, store: CatalogStore
    ) -> None:
        old = AnswerRow("old", b"asked", b"answered", START_MS)
        new = AnswerRow("new", b"\x00", b"", START_MS + 1)
        with store.write() as unit:
            assert unit.answer("old") is None
            unit.insert_answer(old)
            assert unit.answer("old") == old
            unit.insert_answer(new)
            unit.delete_answers(START_MS)
            assert unit.answer("old") == old
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_answer(old._replace(answer=b"another"))
        with pytest.raises(StoreConstraintError), store.write() as unit:  # noqa: PT012
            assert unit.answer("old") == old
            unit.insert_answer(old._replace(answer=b"another"))
        with store.write() as unit:
            assert unit.answer("old") == old
            unit.delete_answers(START_MS + 1)
            assert unit.answer("old") is None
            assert unit.answer("new") == new
        with store.read() as unit:
            assert unit.answer("old") is None

    def test_registered_locations_are_kept_by_url(self, store: CatalogStore) -> None:
        rows = [LocationRow("file:///b", 2), LocationRow("s3://bucket/é", 1)]
        with store.write() as unit:
            for row in reversed(rows):
                unit.insert_location(row)
        with store.read() as unit:
            assert unit.locations() == rows
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_location(rows[0])
        with store.write() as unit:
            unit.delete_location("file:///b")
            unit.delete_location("file:///unknown")
            assert unit.locations() == rows[1:]

    def test_a_listener_only_moves_forward_unless_it_is_replaced(self, store: CatalogStore) -> None:
        row = ListenerRow("b", "webhook", "https://here", Sequence(3), START_MS, "it is down")
        other = ListenerRow("a", "pointer", "", Sequence(0), START_MS)

        def stored() -> ListenerRow:
            with store.read() as unit:
                [first, second] = unit.listeners()
            assert first == other
            return second

        with store.write() as unit:
            unit.put_listener(row)
            unit.put_listener(other)
        assert stored() == row
        for position, failing in ((5, None), (4, "again"), (4, None)):
            with store.write() as unit:
                unit.advance_listener("b", Sequence(position), failing)
                unit.advance_listener("unknown", Sequence(9), None)
            assert stored() == row._replace(position=5, failing=failing)
        replacement = ListenerRow("b", "webhook", "https://there", Sequence(1), START_MS + 1)
        with store.write() as unit:
            unit.put_listener(replacement)
        assert stored() == replacement
        with store.write() as unit:
            unit.delete_listener("b")
            unit.delete_listener("unknown")
            assert unit.listeners() == [other]

    def test_settings_are_kept_and_replaced(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.set_setting("root", "here")
            unit.set_setting("root", "there")
            assert unit.setting("root") == "there"
            assert unit.setting("Root") is None
