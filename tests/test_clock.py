"""Time and chance: the one door to both."""

from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clock import RandomIds, SystemClock, uuid7
from tests.kit.builders import ManualClock

TIMES = st.integers(0, 2**48 - 1)
CHANCE = st.binary(min_size=10, max_size=10)


@given(TIMES, CHANCE)
def test_a_uuid7_is_one_by_version_and_variant_and_begins_with_its_time(
    now_ms: int, chance: bytes
) -> None:
    made = uuid7(now_ms, chance)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now_ms
    assert int(str(made).replace("-", "")[:12], 16) == now_ms
    assert uuid.UUID(str(made)) == made


@given(TIMES, CHANCE, CHANCE)
def test_all_chance_but_the_six_bits_of_version_and_variant_is_kept(
    now_ms: int, one: bytes, two: bytes
) -> None:
    kept = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)
    for chance in (one, two):
        assert uuid7(now_ms, chance).int & kept == int.from_bytes(chance, "big") & kept
    differ = (int.from_bytes(one, "big") ^ int.from_bytes(two, "big")) & kept
    assert (uuid7(now_ms, one) != uuid7(now_ms, two)) is bool(differ)


@given(TIMES, TIMES, CHANCE, CHANCE)
def test_ids_sort_by_time_whatever_chance_says(
    earlier: int, later: int, one: bytes, two: bytes
) -> None:
    earlier, later = sorted((earlier, later))
    if earlier < later:
        assert uuid7(earlier, one) < uuid7(later, two)
        assert str(uuid7(earlier, one)) < str(uuid7(later, two))


def test_the_example_of_the_rfc_comes_out() -> None:
    # RFC 9562, appendix A.6: 2022-02-22 14:22:22 -05:00
    chance = (0xCC3 << 64 | 0x18C4DC0C0C07398F).to_bytes(10, "big")
    assert str(uuid7(0x017F22E279B0, chance)) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def test_ordered_ids_take_their_time_from_the_clock_they_were_given() -> None:
    clock = ManualClock()
    ids = RandomIds(clock)
    one, two = ids.ordered(), ids.ordered()
    assert one.int >> 80 == two.int >> 80 == clock.ms
    assert one != two
    clock.ms -= 3_600_000
    assert ids.ordered() < one


def test_random_ids_are_of_pure_chance_and_never_twice() -> None:
    ids = RandomIds()
    made = {ids.random() for _ in range(1000)}
    assert len(made) == 1000
    assert {one.version for one in made} == {4}
    assert len({ids.ordered() for _ in range(1000)}) == 1000


def test_the_machines_clock_is_in_whole_milliseconds_and_its_waiting_in_seconds() -> None:
    clock = SystemClock()
    assert type(clock.now_ms()) is int
    assert clock.now_ms() == pytest.approx(time.time() * 1000, abs=5_000)
    before = clock.monotonic()
    clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.009
