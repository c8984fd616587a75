"""Answers that other threads give and the event loop awaits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class PendingAnswer:
    """An answer that another thread will give, awaited in the loop."""

    def __init__(self, answers: Answers, future: asyncio.Future[Any]) -> None:
        self._answers = answers
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def set_result(self, result: Any, /) -> None:
        """Give the answer; the loop sees it after `wake`."""
        self.result = result
        self._answers.given.append(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Give an error instead."""
        self.error = error
        self._answers.given.append(self)

    @property
    def wake(self) -> Callable[[], None]:
        """The function that wakes the loop: equal for all, so one call is enough for many."""
        return self._answers.wake


class Answers:
    """Passes answers of other threads to the loop, many with one call.

    The commits of a batch are answered together: waking the loop for each of them would cost more
    than deciding them.
    """

    def __init__(self) -> None:
        self.given: deque[PendingAnswer] = deque()
        self._is_waking = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def expect(self) -> PendingAnswer:
        """Return a new pending answer; called in the loop that will await it."""
        self._loop = asyncio.get_running_loop()
        return PendingAnswer(self, self._loop.create_future())

    def wake(self) -> None:
        """Make the loop look at the answers given."""
        if not self._is_waking and self._loop is not None:
            self._is_waking = True
            with suppress(RuntimeError):  # the loop is closed, and nothing awaits the answers
                self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        # Reset first: an answer given after this wakes the loop again.
        self._is_waking = False
        while self.given:
            pending = self.given.popleft()
            if pending.future.done():
                continue  # the client disconnected
            if pending.error is None:
                pending.future.set_result(pending.result)
            else:
                pending.future.set_exception(pending.error)


class SharedWork:
    """Runs a function once for all requests that wait for it at the same time."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[Any]] = {}

    async def done(self, key: str, pool: ThreadPoolExecutor, do: Callable[[], Result]) -> Result:
        """Wait for the work under a key, which is begun if it is not under way."""
        under_way: asyncio.Future[Result] | None = self._under_way.get(key)
        if under_way is None:
            under_way = asyncio.get_running_loop().run_in_executor(pool, do)
            self._under_way[key] = under_way
            under_way.add_done_callback(partial(self._end, key))
        return await asyncio.shield(under_way)  # a client that disconnects must not end it

    def _end(self, key: str, ended: asyncio.Future[Any]) -> None:
        del self._under_way[key]
        if not ended.cancelled():
            ended.exception()  # retrieved, even if every client disconnected
