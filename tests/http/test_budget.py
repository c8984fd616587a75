"""The memory budget: who gets bytes at once, who waits, and who gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headgate.errors import BusyError, TooSlowError
from headgate.http.budget import SMALL, Budget, Share
from tests.kit.builders import ManualClock

MEGABYTE = 1 << 20
LIMIT = 8 * MEGABYTE  # one of them is for small bodies
BODY_S = 30.0


class Room:
    """A budget, a clock set by hand, and requests that hold their bytes until released."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.budget = Budget(LIMIT, self.clock)

    def request(self, size: int) -> Request:
        return Request(self, size)

    async def later(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.budget.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Request:
    """A request that reserves its size and then stays in its transfer."""

    def __init__(self, room: Room, size: int) -> None:
        self.share = Share(room.budget)
        self._size = size
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(self.share))

    async def _run(self, share: Share) -> None:
        try:
            with share.transfer(self._size, BODY_S):
                await share.reserve(self._size)
                await self._end.wait()
        finally:
            share.release()

    async def finish(self) -> None:
        self._end.set()
        await self.task

    @property
    def is_served(self) -> bool:
        return self.share.size == self._size


def in_a_loop(test: Callable[[Room], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        await test(Room())

    def wrapped() -> None:
        asyncio.run(run())

    wrapped.__name__ = getattr(test, "__name__", "")
    return wrapped


@in_a_loop
async def test_large_bodies_above_the_limit_wait_in_their_order(room: Room) -> None:
    first, second, third = (room.request(4 * MEGABYTE) for _ in range(3))
    await asyncio.sleep(0)
    assert (first.is_served, second.is_served, third.is_served) == (True, False, False)
    await first.finish()
    await asyncio.sleep(0)
    assert (second.is_served, third.is_served) == (True, False)
    await second.finish()
    await third.finish()
    assert room.budget.used == 0


@in_a_loop
async def test_a_later_body_that_would_fit_does_not_overtake_one_that_waits(room: Room) -> None:
    first, second, third = (room.request(size * MEGABYTE) for size in (4, 4, 1))
    await asyncio.sleep(0)
    assert not third.is_served
    for one in (first, second, third):
        await one.finish()


@in_a_loop
async def test_small_bodies_do_not_wait_for_large_ones(room: Room) -> None:
    large = [room.request(7 * MEGABYTE) for _ in range(5)]
    small = room.request(SMALL)
    await asyncio.sleep(0)
    assert small.is_served
    for one in (*large, small):
        await one.finish()


@in_a_loop
async def test_a_body_larger_than_the_whole_limit_is_served_alone(room: Room) -> None:
    first, second = room.request(20 * MEGABYTE), room.request(20 * MEGABYTE)
    await asyncio.sleep(0)
    assert (first.is_served, second.is_served) == (True, False)
    await first.finish()
    await second.finish()


@in_a_loop
async def test_the_slowest_transfer_gives_way_to_one_that_waits(room: Room) -> None:
    stalled, slow = room.request(3 * MEGABYTE), room.request(3 * MEGABYTE)
    waiting = room.request(3 * MEGABYTE)
    await asyncio.sleep(0)
    slow.share.moved = 1000
    await room.later(2)
    with pytest.raises(BusyError):
        await stalled.task
    await asyncio.sleep(0)
    assert (slow.is_served, waiting.is_served) == (True, True)
    await slow.finish()
    await waiting.finish()
    assert room.budget.used == 0


@in_a_loop
async def test_a_transfer_that_keeps_its_pace_is_not_ended_for_others(room: Room) -> None:
    busy = room.request(7 * MEGABYTE)
    waiting = room.request(7 * MEGABYTE)
    await asyncio.sleep(0)
    busy.share.moved = MEGABYTE
    await room.later(2)
    assert busy.is_served
    await busy.finish()
    await waiting.finish()


@in_a_loop
async def test_a_stalled_transfer_that_nobody_waits_for_has_its_whole_time(room: Room) -> None:
    stalled = room.request(7 * MEGABYTE)
    await asyncio.sleep(0)
    await room.later(BODY_S - 1)
    assert stalled.is_served
    await room.later(2)
    with pytest.raises(TooSlowError):
        await stalled.task
    assert room.budget.used == 0


@in_a_loop
async def test_waiting_for_memory_in_vain_ends_as_busy(room: Room) -> None:
    processing = Share(room.budget)
    assert processing.resize(7 * MEGABYTE)
    waiting = room.request(MEGABYTE)
    await asyncio.sleep(0)
    await room.later(BODY_S + 1)
    with pytest.raises(BusyError):
        await waiting.task
    assert room.budget.used == processing.size


@in_a_loop
async def test_one_that_leaves_the_queue_lets_the_next_one_go_on(room: Room) -> None:
    first, second, third = (room.request(size * MEGABYTE) for size in (4, 4, 1))
    await asyncio.sleep(0)
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    await asyncio.sleep(0)
    assert third.is_served
    await first.finish()
    await third.finish()
    assert room.budget.used == 0


@in_a_loop
async def test_a_response_takes_over_the_bytes_of_its_request(room: Room) -> None:
    share = Share(room.budget)
    assert share.resize(7 * MEGABYTE)
    assert share.resize(5 * MEGABYTE)
    other = Share(room.budget)
    assert other.resize(2 * MEGABYTE)
    assert not Share(room.budget).resize(2 * MEGABYTE)
    share.release()
    other.release()
    assert room.budget.used == 0
