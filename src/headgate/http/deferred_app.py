"""An application that is built in the background, so that a worker lives without its store.

The worker answers 503 with the reason, and builds the application again until that succeeds:
clients see the reason instead of a refused connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from headgate.api import bodies, problems
from headgate.errors import HeadgateError, UnavailableError
from headgate.http.asgi import Application, Receive, Scope, Send
from headgate.http.endpoint import respond

_log = logging.getLogger("headgate.http")
_AGAIN_S: Final = 1.0
# For which requests wait for the application instead of being refused: it is usually ready at once.
_STARTUP_S: Final = 5.0


class Starting:
    """Refuses every request until the application is built, then serves it."""

    def __init__(self, build: Callable[[], Application]) -> None:
        self._build = build
        self._app: Application | None = None
        self._is_decided = asyncio.Event()  # the application is up, or could not be built once
        self._error: HeadgateError | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as applications:
            starting = asyncio.create_task(self._start(applications))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_decided.wait(), _STARTUP_S)
            try:
                yield
            finally:
                starting.cancel()
                with suppress(asyncio.CancelledError):
                    await starting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        else:
            await self._refuse(send)

    async def _start(self, applications: AsyncExitStack) -> None:
        while self._app is None:
            try:
                app = await asyncio.to_thread(self._build)
                await applications.enter_async_context(app.running())
                self._app = app
                self._is_decided.set()
            except HeadgateError as error:
                if self._error is None or error.code != self._error.code:
                    _log.error("not ready: %s", error)
                self._error = error
                self._is_decided.set()
                await asyncio.sleep(_AGAIN_S)

    async def _refuse(self, send: Send) -> None:
        error = self._error or UnavailableError("Its store does not answer.")
        problem = problems.from_error(
            UnavailableError(f"The server is not ready: {error.message}", remedy=error.remedy)
        )
        content = bodies.encode(problem)
        headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", bodies.PROBLEM.encode()),
            (b"retry-after", b"%d" % _AGAIN_S),
        ]
        start = {"type": "http.response.start", "status": problem.status, "headers": headers}
        await respond(send, start, content)
