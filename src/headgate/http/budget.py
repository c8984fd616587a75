"""A bound on the bytes of request and response bodies in memory, over all requests.

Each request has a `Share`. A small body is counted as it arrives; a large one reserves memory for
all of it before it is read, and waits for that while its bytes stay in the sender's socket. Small
and large bodies have separate pools, so large ones never keep small ones waiting.

While others wait, a transfer that is too slow to end in its time gives way: stalled clients cannot
hold the memory that working ones need. Only the event loop's thread uses this module.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Final

from headgate.clock import Clock
from headgate.errors import BusyError, TooSlowError

SMALL: Final = 64 << 10  # bytes; a larger body counts against the pool for large ones
_FOR_SMALL: Final = 8  # one part in so many of the limit
_CHECK_EVERY_S: Final = 0.25
_GRACE_S: Final = 1.0  # before a transfer can be called slow


class Budget:
    """Divides the limit among the requests, in the order in which they ask."""

    def __init__(self, limit_bytes: int, clock: Clock) -> None:
        self.now = clock.monotonic
        self._small = _Pool(limit_bytes // _FOR_SMALL)
        self._large = _Pool(limit_bytes - limit_bytes // _FOR_SMALL)
        self.transfers: dict[Share, None] = {}  # in the order in which they began

    @property
    def used(self) -> int:
        """Bytes that are reserved now."""
        return self._small.used + self._large.used

    async def watch(self) -> None:
        """End transfers that are out of time, or in the way of others; runs until cancelled.

        One pass over all of them: a timer for each would cost more than reading a small body.
        """
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            self.check()

    def check(self) -> None:
        """End the transfers that have to end now."""
        now = self.now()
        for share in [share for share in self.transfers if share.deadline < now]:
            share.end(BusyError(_FULL) if share.is_waiting else TooSlowError(share.late))
        for pool in (self._small, self._large):
            self._make_room(pool, now)

    def _make_room(self, pool: _Pool, now: float) -> None:
        missing = pool.missing()
        if missing <= 0:
            return
        slow = [share for share in self.transfers if share.pool is pool and share.is_slow(now)]
        for share in sorted(slow, key=lambda share: share.pace(now)):
            if missing <= 0:
                return
            missing -= share.size
            share.end(BusyError(_FULL))

    def pool_for(self, size: int) -> _Pool:
        return self._small if size <= SMALL else self._large


_FULL: Final = "The server holds as many bytes of requests and responses as it may."


class _Pool:
    """A number of bytes, and the requests that wait for some."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Reserve bytes if enough are free; a body larger than the pool may have all of it."""
        if self.used and self.used + size > self._limit:
            return False
        self.used += size
        return True

    async def wait(self, size: int) -> None:
        """Reserve bytes when it is this request's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self.waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came in the same moment
                self.give_back(size)
            with suppress(ValueError):
                self.waiting.remove(entry)
            self._advance()
            raise

    def give_back(self, size: int) -> None:
        """Free bytes, and let those go on that have room now."""
        self.used -= size
        if self.waiting:
            self._advance()

    def missing(self) -> int:
        """Return how many bytes the first waiting request lacks; 0 if none waits."""
        if not self.waiting:
            return 0
        return self.used + self.waiting[0][0] - self._limit

    def _advance(self) -> None:
        while self.waiting:
            size, turn = self.waiting[0]
            if not turn.cancelled():
                if not self.take(size):
                    return
                turn.set_result(None)
            self.waiting.popleft()


class Share:
    """The bytes that one request holds, and the transfer that it is in."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._task: asyncio.Task[Any] | None = None
        self._began = self.deadline = self._allowed_s = 0.0
        self._expected = 0
        self.pool = budget.pool_for(0)
        self.size = 0
        self.moved = 0  # bytes of the transfer that have come or gone
        self.is_waiting = False
        self.ended_by: BusyError | TooSlowError | None = None

    def resize(self, size: int) -> bool:
        """Hold so many bytes instead; return False, and hold none, if too few are free."""
        pool = self._budget.pool_for(size)
        if pool is self.pool and size <= self.size:
            pool.give_back(self.size - size)
            self.size = size
            return True
        self.release()
        self.pool = pool
        self.size = size if pool.take(size) else 0
        return self.size == size

    async def reserve(self, size: int) -> None:
        """Hold so many bytes instead; wait until they are free. Called in a transfer."""
        if not self._budget.pool_for(size).waiting and self.resize(size):
            return
        self.release()
        self.pool = self._budget.pool_for(size)
        self.is_waiting = True
        try:
            await self.pool.wait(size)
        finally:
            self.is_waiting = False
            self._began = self._budget.now()  # it could not be quick while it waited
        self.size = size

    def release(self) -> None:
        self.pool.give_back(self.size)
        self.size = 0

    def transfer(self, expected: int, allowed_s: float) -> Share:
        """Begin to receive or to send so many bytes, in a `with` block, within a time.

        When the time is over the block ends with `TooSlowError`, and with `BusyError` where others
        need its bytes.
        """
        self._task = asyncio.current_task()
        self._expected, self._allowed_s, self.moved = expected, allowed_s, 0
        return self

    def extend(self) -> None:
        """Restart the time of the transfer."""
        self.deadline = self._budget.now() + self._allowed_s

    def __enter__(self) -> Share:
        self._budget.transfers[self] = None
        self._began = self._budget.now()
        self.deadline = self._began + self._allowed_s
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._budget.transfers.pop(self, None)
        if isinstance(error, asyncio.CancelledError) and self.ended_by is not None:
            assert self._task is not None
            self._task.uncancel()
            raise self.ended_by from None

    def end(self, why: BusyError | TooSlowError) -> None:
        """End the transfer, for a reason."""
        self._budget.transfers.pop(self, None)
        self.ended_by = why
        assert self._task is not None
        self._task.cancel()

    def pace(self, now: float) -> float:
        """Return its speed, as a part of the speed that it needs to end in time."""
        return self.moved * self._allowed_s / (self._expected * (now - self._began) or 1)

    def is_slow(self, now: float) -> bool:
        """Return True if it holds bytes and will not end in time at its present speed."""
        is_begun = self.size > 0 and not self.is_waiting and now - self._began > _GRACE_S
        return is_begun and self.pace(now) < 1

    @property
    def late(self) -> str:
        return f"The body was not transferred within {self._allowed_s:g} s."
