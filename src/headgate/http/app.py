"""The server's application: routes every request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus

from headgate.api import bodies, problems
from headgate.errors import HeadgateError, InvalidArgumentError, NotFoundError
from headgate.http import openapi, routes
from headgate.http.asgi import Receive, Scope, Send
from headgate.http.endpoint import Endpoint, respond, response_start, unexpected
from headgate.http.metrics import CONTENT_TYPE, Gauge, state_gauges
from headgate.http.operations import Pool
from headgate.http.routing import Routes
from headgate.http.server import Server
from headgate.http.unity import preview, rest, v1
from headgate.http.unity import problems as dialects
from headgate.protocol.encoding import replaced
from headgate.release import version
from headgate.storage import local

_log = logging.getLogger("headgate.http")


class Application:
    """Answers requests for operations, and for the pages that operators need."""

    def __init__(self, server: Server, on_stop: Callable[[], None] = lambda: None) -> None:
        """Create the application; `on_stop` is called after the last request is answered."""
        self._server = server
        self._on_stop = on_stop
        self._routes = Routes()
        known = (*routes.operations, *rest.operations, *v1.operations, *preview.operations)
        for operation in known:
            self._routes.add(operation.method, operation.path, Endpoint(server, operation))
        # Each returns the body and its type. They need no token.
        self.pages: dict[str, Callable[[], Awaitable[tuple[bytes, str]]]] = {
            "/openapi.json": self._openapi,
            "/metrics": self._metrics,
            "/health": self._health,
            "/health/ready": self._readiness,
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._server.start()
        watching = asyncio.create_task(self._server.budget.watch())
        try:
            yield
        finally:
            watching.cancel()
            self._server.stop()
            self._on_stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoints, parts = self._routes.find(scope["raw_path"].decode("latin-1"))
        if (endpoint := endpoints.get(scope["method"])) is not None:
            await endpoint(scope, parts, receive, send)
        else:
            await self._answer_page(scope, sorted(endpoints), send)

    async def _answer_page(self, scope: Scope, methods: list[str], send: Send) -> None:
        """Answer a request for a page, or one that no operation matches."""
        headers, method, path = dict(scope["headers"]), scope["method"], scope["path"]
        request_id = self._server.request_id(headers)
        page = self.pages.get(path)
        if page is not None:
            methods = ["GET", "HEAD"]
        extra: tuple[tuple[bytes, bytes], ...] = ()
        try:
            self._server.origins.check(headers.get(b"host"), headers.get(b"origin"))
            if page is not None and method in methods:
                status, (content, kind) = 200, await page()
            else:
                status, content, kind = _unrouted(method, path, request_id, is_path=bool(methods))
                if methods:
                    extra = ((b"allow", ", ".join(methods).encode()),)
        except HeadgateError as refusal:
            _log.warning("%s: %s", path, refusal, extra={"request_id": request_id})
            status, content, kind = _failed(refusal, request_id)
        except Exception:
            _log.exception("a request failed", extra={"request_id": request_id})
            status, content, kind = _failed(unexpected(request_id), request_id)
        await respond(send, response_start(status, content, kind, request_id, extra), content)

    async def _openapi(self) -> tuple[bytes, str]:
        return await self._server.run(Pool.READS, _document), bodies.JSON

    async def _health(self) -> tuple[bytes, str]:
        await self._server.run(Pool.READS, self._ping)
        return _healthy("ok")

    async def _readiness(self) -> tuple[bytes, str]:
        def check() -> None:
            self._ping()
            self._server.catalog.check_ready()

        # Concurrent requests share one change of the store.
        pool = self._server.pools[Pool.CHANGES]
        await self._server.shared_work.done("ready", pool, check)
        return _healthy("ready")

    def _ping(self) -> None:
        local.DISK.refuse_if_failed()
        self._server.catalog.ping()

    async def _metrics(self) -> tuple[bytes, str]:
        server = self._server
        gauges = state_gauges(await server.run(Pool.READS, server.catalog.status))
        gauges["bodies_bytes"] = Gauge(
            "Bytes of request and response bodies in memory.", server.budget.used, is_own=True
        )
        return server.metrics.text(gauges).encode(), CONTENT_TYPE


@cache  # slow to create, and seldom read
def _document() -> bytes:
    return json.dumps(openapi.document(routes.operations, version()), indent=1).encode()


def _healthy(status: str) -> tuple[bytes, str]:
    return bodies.encode(bodies.Health(status=status, version=version())), bodies.JSON


def _unrouted(method: str, path: str, request_id: str, *, is_path: bool) -> tuple[int, bytes, str]:
    """Return the answer to a request that no operation matches: 405 for a known path, or 404."""
    error: HeadgateError
    remedy = "See /openapi.json."
    if is_path:
        status = 405
        error = InvalidArgumentError(f"{path[:200]} does not support {method}.", remedy=remedy)
    else:
        status, error = (
            404,
            NotFoundError(f"No route matches {method} {path[:200]}.", remedy=remedy),
        )
    if (content := dialects.unrouted(error, status, path)) is not None:
        return status, content, bodies.JSON
    problem = problems.from_error(error, request_id)
    problem = replaced(problem, status=status, title=HTTPStatus(status).phrase)
    return status, bodies.encode(problem), bodies.PROBLEM


def _failed(error: HeadgateError, request_id: str) -> tuple[int, bytes, str]:
    problem = problems.from_error(error, request_id)
    return problem.status, bodies.encode(problem), bodies.PROBLEM
