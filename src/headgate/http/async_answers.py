"""How the loop waits for answers of other threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class Coming:
    """An answer that another thread will give, awaited in the loop."""

    __slots__ = ("_answers", "error", "here", "result")

    def __init__(self, answers: Answers, here: asyncio.Future[Any]) -> None:
        self._answers = answers
        self.here = here
        self.result: Any = None
        self.error: BaseException | None = None

    def set_result(self, result: Any, /) -> None:
        """Give it; the loop sees it when it is called."""
        self.result = result
        self._answers.came.append(self)

    def set_exception(self, error: BaseException, /) -> None:
        """Say why there is none."""
        self.error = error
        self._answers.came.append(self)

    @property
    def call(self) -> Callable[[], None]:
        """What has the loop look: equal for all, so once is enough for many."""
        return self._answers.call


class Answers:
    """Brings what other threads found into the loop, many at one call.

    A batch of commits is answered in one moment: to wake the loop for each would cost more than
    deciding them.
    """

    def __init__(self) -> None:
        self.came: deque[Coming] = deque()
        self._is_called = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def expected(self) -> Coming:
        """Expect one, in the loop that will await it."""
        self._loop = asyncio.get_running_loop()
        return Coming(self, self._loop.create_future())

    def call(self) -> None:
        """Have the loop look at what came."""
        if not self._is_called and self._loop is not None:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is gone, and with it who asked
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        # In this order: what comes after the flag is down calls again.
        self._is_called = False
        while self.came:
            coming = self.came.popleft()
            if coming.here.done():
                continue  # who asked has left
            if coming.error is None:
                coming.here.set_result(coming.result)
            else:
                coming.here.set_exception(coming.error)


class Together:
    """Has one thread do what many requests wait for; they need none of their own for it."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[Any]] = {}

    async def done(self, key: str, pool: ThreadPoolExecutor, do: Callable[[], Result]) -> Result:
        """Wait for what is done under a key; begin it if nobody has."""
        under_way: asyncio.Future[Result] | None = self._under_way.get(key)
        if under_way is None:
            under_way = asyncio.get_running_loop().run_in_executor(pool, do)
            self._under_way[key] = under_way
            under_way.add_done_callback(partial(self._end, key))
        return await asyncio.shield(under_way)  # who leaves must not end it for the others

    def _end(self, key: str, ended: asyncio.Future[Any]) -> None:
        del self._under_way[key]
        if not ended.cancelled():
            ended.exception()  # seen, also when everybody has left
