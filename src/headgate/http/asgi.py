"""The interface between the listener and an application: ASGI, without its lifespan messages."""

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Handler: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Application(Protocol):
    """Answers HTTP requests."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which it answers requests; leaving it stops the application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
