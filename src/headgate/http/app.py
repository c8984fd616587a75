"""The server's ASGI application: routes every request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api import bodies, problems
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from headgate.http import openapi
from headgate.http.endpoint import Endpoint, encoded, respond, response_start, unexpected
from headgate.http.metrics import CONTENT_TYPE, Gauge
from headgate.http.operations import Operation, Pool
from headgate.http.routing import Routes
from headgate.http.server import REQUEST_HEADER, Server
from headgate.http.unity import preview, rest, v1
from headgate.http.unity import problems as dialects
from headgate.protocol.encoding import replaced
from headgate.release import version

Application = ASGIApp

_log = logging.getLogger("headgate.http")
_REQUEST_ID = "headgate.request_id"  # the key in the scope, for requests that Starlette handles


def create(
    server: Server,
    operations: Sequence[Operation],
    on_stop: Callable[[], None] = lambda: None,
) -> Application:
    """Create the application; `on_stop` is called after the last request is answered."""

    @cache  # slow to create, and seldom read
    def document() -> bytes:
        return json.dumps(openapi.document(operations, version()), indent=1).encode()

    async def describe(_: Request) -> Response:
        return Response(await server.run(Pool.READS, document), media_type=bodies.JSON)

    async def health(_: Request) -> Response:
        await server.run(Pool.READS, server.ping or server.catalog.ping)
        return _healthy("ok")

    async def readiness(_: Request) -> Response:
        def check() -> None:
            if server.ping is not None:
                server.ping()
            server.catalog.check_ready()

        # Concurrent requests share one change of the store.
        await server.shared_work.done("ready", server.pools[Pool.CHANGES], check)
        return _healthy("ready")

    async def metrics(_: Request) -> Response:
        gauges = await server.run(Pool.READS, server.gauges)
        gauges["bodies_bytes"] = Gauge(
            "Bytes of request and response bodies in memory.", server.budget.used, is_own=True
        )
        return Response(server.metrics.text(gauges), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        server.start()
        watching = asyncio.create_task(server.budget.watch())
        try:
            yield
        finally:
            watching.cancel()
            server.stop()
            on_stop()

    routes: Routes[Endpoint] = Routes()
    for operation in (*operations, *rest.operations, *v1.operations, *preview.operations):
        routes.add(operation.method, operation.path, Endpoint(server, operation))
    others = Starlette(
        routes=[
            Route("/openapi.json", describe),
            Route("/metrics", metrics),
            Route("/health", health),
            Route("/health/ready", readiness),
        ],
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _unknown_route,
            HeadgateError: _failed,
            Exception: _failed,
        },
    )
    return _Application(server, routes, others)


class _Application:
    """Routes operations directly, and other requests through Starlette, which is slower."""

    def __init__(self, server: Server, routes: Routes[Endpoint], others: Starlette) -> None:
        self._server = server
        self._routes = routes
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        route = self._routes.find(scope["raw_path"].decode("latin-1"))
        if route is not None and (endpoint := route.methods.get(scope["method"])) is not None:
            await endpoint(scope, route.parts, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = self._server.request_id(headers)
        if route is not None:
            error = InvalidArgumentError(
                f"{scope['path'][:200]} does not support {scope['method']}.",
                remedy="See /openapi.json.",
            )
            content, kind = _unrouted(error, 405, scope["path"], request_id)
            allowed = (b"allow", ", ".join(sorted(route.methods)).encode())
            await respond(send, response_start(405, content, kind, request_id, (allowed,)), content)
            return
        try:
            self._server.origins.check(headers.get(b"host"), headers.get(b"origin"))
        except PermissionDeniedError as refusal:
            status, content, _ = encoded(problems.from_error(refusal, request_id))
            start = response_start(status, content, bodies.PROBLEM, request_id)
            await respond(send, start, content)
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((REQUEST_HEADER, request_id.encode()))
            await send(message)

        scope[_REQUEST_ID] = request_id
        await self._others(scope, receive, send_with_id)


def _healthy(status: str) -> Response:
    body = bodies.Health(status=status, version=version())
    return Response(bodies.encode(body), media_type=bodies.JSON)


def _unrouted(error: HeadgateError, status: int, path: str, request_id: str) -> tuple[bytes, str]:
    """Return the body and its type for a request that no operation matches."""
    if (content := dialects.unrouted(error, status, path)) is not None:
        return content, bodies.JSON
    problem = problems.from_error(error, request_id)
    problem = replaced(problem, status=status, title=HTTPStatus(status).phrase)
    return bodies.encode(problem), bodies.PROBLEM


async def _unknown_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    refusal = NotFoundError(
        f"No route matches {request.method} {path[:200]}.", remedy="See /openapi.json."
    )
    content, kind = _unrouted(refusal, error.status_code, path, request.scope[_REQUEST_ID])
    return Response(content, error.status_code, dict(error.headers or {}), kind)


async def _failed(request: Request, error: Exception) -> Response:
    request_id = request.scope[_REQUEST_ID]
    if isinstance(error, HeadgateError):
        refusal = error
        _log.warning("%s: %s", request.url.path, error, extra={"request_id": request_id})
    else:
        refusal = unexpected(request_id)
        _log.error("a request failed", exc_info=error, extra={"request_id": request_id})
    problem = problems.from_error(refusal, request_id)
    return Response(bodies.encode(problem), problem.status, media_type=bodies.PROBLEM)
