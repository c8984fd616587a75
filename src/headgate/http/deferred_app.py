"""An application that is built in the background, so that a worker lives without its store.

The worker answers 503 with the reason, and builds the application again until that succeeds:
clients see the reason instead of a refused connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api import bodies, problems
from headgate.errors import HeadgateError, UnavailableError

_log = logging.getLogger("headgate.http")
_AGAIN_S: Final = 1.0
# For which requests wait for the application instead of being refused: it is usually ready at once.
_STARTUP_S: Final = 5.0


class Starting:
    """Refuses every request until the application is built, then serves it."""

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._app: ASGIApp | None = None
        self._is_decided = asyncio.Event()  # the application is up, or could not be built once
        self._error: HeadgateError | None = None
        self._messages: asyncio.Queue[Message] = asyncio.Queue()  # of the application's lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._refuse(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        running = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_decided.wait(), _STARTUP_S)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._app is None:
            running.cancel()
        await self._messages.put({"type": "lifespan.shutdown"})
        with suppress(asyncio.CancelledError):
            await running
        await send({"type": "lifespan.shutdown.complete"})

    async def _run(self) -> None:
        app = await self._built()

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._app = app
                self._is_decided.set()

        await self._messages.put({"type": "lifespan.startup"})
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._messages.get, send)

    async def _built(self) -> ASGIApp:
        while True:
            try:
                return await asyncio.to_thread(self._build)
            except HeadgateError as error:
                if self._error is None or error.code != self._error.code:
                    _log.error("not ready: %s", error)
                self._error = error
            self._is_decided.set()
            await asyncio.sleep(_AGAIN_S)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._error or UnavailableError("Its store does not answer.")
        unavailable = UnavailableError(
            f"The server is not ready: {error.message}", remedy=error.remedy
        )
        problem = problems.from_error(unavailable)
        response = Response(
            bodies.encode(problem),
            problem.status,
            media_type=bodies.PROBLEM,
            headers={"retry-after": str(round(_AGAIN_S))},
        )
        await response(scope, receive, send)
