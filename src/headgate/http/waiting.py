"""How the loop waits: for answers of other threads, and for bodies that are slow to come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from headgate.clock import Clock
from headgate.errors import TooSlowError


class Answers:
    """Brings what other threads found into the loop, many at one call.

    A batch of commits is answered in one moment: to wake the loop for each would cost more than
    deciding them.
    """

    def __init__(self) -> None:
        self._came: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_called = False

    def awaited(self, soon: Future[Any]) -> asyncio.Future[Any]:
        """Give a future of the loop for one of a thread."""
        loop = asyncio.get_running_loop()
        here: asyncio.Future[Any] = loop.create_future()

        def tell(done: Future[Any]) -> None:
            self._came.append((here, done))
            if not self._is_called:
                self._is_called = True
                with suppress(RuntimeError):  # the loop is gone, and with it who asked
                    loop.call_soon_threadsafe(self._tell)

        soon.add_done_callback(tell)
        return here

    def _tell(self) -> None:
        # In this order: what comes after the flag is down calls again.
        self._is_called = False
        while self._came:
            here, done = self._came.popleft()
            if here.done():
                continue  # who asked has left
            error = done.exception()
            if error is None:
                here.set_result(done.result())
            else:
                here.set_exception(error)


class Slowness:
    """Ends requests whose body does not come in time.

    One look at all of them now and then: a timer for each would cost more than reading it.
    """

    _EVERY_S = 0.25

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[asyncio.Task[Any], float] = {}

    @contextmanager
    def watched(self, seconds: float) -> Iterator[None]:
        """Let the request of this task take so long, and no longer."""
        task = asyncio.current_task()
        assert task is not None
        self._deadlines[task] = self._clock.monotonic() + seconds
        try:
            yield
        except asyncio.CancelledError:
            if task in self._deadlines:  # not for slowness
                raise
            task.uncancel()
            raise TooSlowError(f"The body did not come within {seconds:g} s.") from None
        finally:
            self._deadlines.pop(task, None)

    async def watch(self) -> None:
        """Look at all of them, for ever."""
        while True:
            await asyncio.sleep(self._EVERY_S)
            now = self._clock.monotonic()
            for task in [task for task, end in self._deadlines.items() if end < now]:
                del self._deadlines[task]
                task.cancel()
