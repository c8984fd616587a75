"""An application in this process, spoken to by synchronous clients, without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from headgate.client.http_connections import Reply
from headgate.http.asgi import Application, Message


class AsgiTransport(httpx.BaseTransport):
    """Hands requests to an application that runs in a loop of its own thread."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.received = 0  # messages of the last request that the application asked for

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Carry a request of a remote catalog."""
        request = httpx.Request(
            method, f"http://testserver{path}", headers=dict(headers), content=content
        )
        response = self.handle_request(request)
        return Reply(response.status_code, response.content, response.headers.get("retry-after"))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        return asyncio.run_coroutine_threadsafe(self._answer(request, body), self._loop).result()

    async def _answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
        }
        sent: list[Message] = []
        # The end of a body may be a message of its own.
        messages = [{"type": "http.request", "body": body, "more_body": True}]
        messages += [{"type": "http.request", "body": b"", "more_body": False}]
        self.received = 0

        async def receive() -> dict[str, Any]:
            if messages:
                self.received += 1
                return messages.pop(0)
            await asyncio.Event().wait()  # the sender stays
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return httpx.Response(
            sent[0]["status"], headers=sent[0].get("headers", []), content=content
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the application and its loop."""
        self._thread.start()
        life = self._app.running()
        self._run(life.__aenter__())
        try:
            yield
        finally:
            self._run(life.__aexit__(None, None, None))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, step: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result()
