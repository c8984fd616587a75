"""The Starlette application: every operation behind the same gate.

The gate gives each request an id, asks for its token, bounds its body in size and time, decodes
it, has it carried out, and answers with a body or a problem document. Asynchronous code stops
here: what is behind runs in threads, or answers by a future.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api import bodies, problems
from headgate.api.bodies import EventPage
from headgate.catalog.idempotency import AnsweredError, RequestKey
from headgate.catalog.service import Catalog
from headgate.clock import Clock, Ids
from headgate.errors import (
    BusyError,
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    TooLargeError,
    TooSlowError,
    UnavailableError,
    UnsupportedMediaTypeError,
)
from headgate.failpoints import fail_point
from headgate.http import openapi
from headgate.http.async_answers import Answers, Together
from headgate.http.auth import Tokens
from headgate.http.budget import SMALL, Budget, Share
from headgate.http.metrics import CONTENT_TYPE, Gauge, Metrics
from headgate.http.operations import Call, NeedsMemoryError, Operation, Pool
from headgate.http.origins import Origins
from headgate.http.routing import Routes
from headgate.http.unity import preview, rest, v1
from headgate.http.unity import problems as dialects
from headgate.protocol.commit.decide import NEEDS, Head, NeedPublishing
from headgate.protocol.encoding import replaced
from headgate.release import version
from headgate.settings import Settings

Application = ASGIApp
_Written = tuple[int, bytes, problems.Problem | None]

_log = logging.getLogger("headgate.http")
_JSON_KINDS = frozenset({b"application/json", b"application/json; charset=utf-8"})
_JSON_KIND = re.compile(
    rb"\s*application/(?:[\w.-]+\+)?json\s*(?:;\s*[\w-]+\s*=\s*\"?[\w-]+\"?\s*)*;?\s*",
    re.IGNORECASE,
)
_ID = re.compile(r"[\w.:-]{1,128}")
_RETRY_AFTER = b"1"
_CHUNK = 128 << 10  # bytes of a large response that are handed over at once
_ENTRY_BYTES = 512  # of an event, and of each table in it
_WEIGHT = 2  # of a large request: its bytes, and what is decoded from them or answered
_MAKING = 4  # a large response while it is made: what is read, its text, and a copy of that
_LENGTH_DIGITS = 18
_NO_MEMORY = "There is no memory free for the response."
PROPOSERS = 64  # threads for proposals that have to wait for something
_KEY_HEADER = bodies.KEY_HEADER.encode()
_REQUEST_HEADER = bodies.REQUEST_HEADER.encode()
_REQUEST_ID = "headgate.request_id"  # where Starlette's part finds it, in the scope


@dataclass(slots=True)
class Server:
    """What every request finds: the catalog, the limits, the workers, the counts."""

    catalog: Catalog
    settings: Settings
    clock: Clock
    ids: Ids
    tokens: Tokens | None = None  # None: whoever can reach the server may use it
    origins: Origins = field(default_factory=lambda: Origins(None, ()))
    metrics: Metrics = field(default_factory=lambda: Metrics(str(os.getpid())))
    answers: Answers = field(default_factory=Answers)
    held_back: Together = field(default_factory=Together)
    budget: Budget = field(init=False)
    name: str = field(init=False)  # begins the ids of requests, which are then counted
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    gauges: Callable[[], dict[str, Gauge]] = dict
    ping: Callable[[], None] | None = None  # raises if it is of no use; None: the catalog's own
    pools: dict[Pool, ThreadPoolExecutor] = field(default_factory=dict)
    slots: dict[Pool, asyncio.Semaphore] = field(default_factory=dict)  # one for each thread

    def __post_init__(self) -> None:
        self.name = self.ids.random().hex[:16]
        self.budget = Budget(self.settings.bodies_limit_bytes, self.clock)

    def start(self) -> None:
        """Have threads ready."""
        sizes = {Pool.READS: 8, Pool.CHANGES: 16, Pool.PROPOSALS: PROPOSERS}
        self.pools = {
            pool: ThreadPoolExecutor(size, thread_name_prefix=f"headgate-{pool.value}")
            for pool, size in sizes.items()
        }
        self.slots = {pool: asyncio.Semaphore(size) for pool, size in sizes.items()}

    def stop(self) -> None:
        """Let go of the threads; what runs in them ends by itself."""
        for pool in self.pools.values():
            pool.shutdown(wait=True, cancel_futures=False)


def create(
    server: Server,
    operations: Sequence[Operation],
    on_stop: Callable[[], None] = lambda: None,
) -> Application:
    """Make the application; `on_stop` is called when the last request is answered."""

    @cache  # made when somebody reads it: that takes as long as the rest of this
    def document() -> bytes:
        return json.dumps(openapi.document(operations, version()), indent=1).encode()

    async def described(_: Request) -> Response:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(server.pools[Pool.READS], document)
        return Response(found, media_type=bodies.JSON)

    async def healthy(_: Request) -> Response:
        loop = asyncio.get_running_loop()
        ping = server.ping or server.catalog.ping
        await loop.run_in_executor(server.pools[Pool.READS], ping)
        body = bodies.Health(status="ok", version=version())
        return Response(bodies.encode(body), media_type=bodies.JSON)

    async def ready(_: Request) -> Response:
        def check() -> None:
            if server.ping is not None:
                server.ping()
            server.catalog.check_ready()

        # Many that ask at once share one change of the store.
        await server.held_back.done("ready", server.pools[Pool.CHANGES], check)
        body = bodies.Health(status="ready", version=version())
        return Response(bodies.encode(body), media_type=bodies.JSON)

    async def metrics(_: Request) -> Response:
        loop = asyncio.get_running_loop()
        gauges = await loop.run_in_executor(server.pools[Pool.READS], server.gauges)
        gauges["bodies_bytes"] = Gauge(
            "Bytes of request and response bodies in memory.", server.budget.used, is_own=True
        )
        return Response(server.metrics.text(gauges), media_type=CONTENT_TYPE)

    routes: Routes[_Endpoint] = Routes()
    dialects = (rest, v1, preview)
    spoken = (row for dialect in dialects for row in dialect.operations(server.settings))
    for operation in (*operations, *spoken):
        routes.add(operation.method, operation.path, _Endpoint(server, operation))

    @asynccontextmanager
    async def whole(_: Starlette) -> AsyncIterator[None]:
        server.start()
        watching = asyncio.create_task(server.budget.watch())
        try:
            yield
        finally:
            watching.cancel()
            server.stop()
            on_stop()

    others = Starlette(
        routes=[
            Route("/openapi.json", described),
            Route("/metrics", metrics),
            Route("/health", healthy),
            Route("/health/ready", ready),
        ],
        lifespan=whole,
        exception_handlers={
            HTTPException: _unknown_route,
            HeadgateError: _refused,
            Exception: _broken,
        },
    )
    return _Application(server, routes, others)


class _Application:
    """Operations by the shortest way; everything else by Starlette's."""

    def __init__(self, server: Server, routes: Routes[_Endpoint], others: Starlette) -> None:
        self._server = server
        self._routes = routes
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        found = self._routes.find(scope["raw_path"].decode("latin-1"))
        endpoint = None if found is None else found.methods.get(scope["method"])
        if found is not None and endpoint is not None:
            await endpoint(scope, found.parts, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers, self._server)
        if found is not None:
            await _wrong_method(scope, send, found.methods, request_id)
            return
        try:
            self._server.origins.check(headers.get(b"host"), headers.get(b"origin"))
        except PermissionDeniedError as error:
            status, content, _ = _written(problems.from_error(error, request_id))
            await _respond(send, _head(status, content, bodies.PROBLEM, request_id), content)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((_REQUEST_HEADER, request_id.encode()))
            await send(message)

        scope[_REQUEST_ID] = request_id
        await self._others(scope, receive, sending)


class _Endpoint:
    """One operation as an ASGI application."""

    def __init__(self, server: Server, operation: Operation) -> None:
        self._server = server
        self._operation = operation
        self._limit = server.settings.request_limit_bytes
        self._body_s = server.settings.request_body_ms / 1000

    async def __call__(
        self, scope: Scope, parts: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        share = self._server.budget.share()
        try:
            await self._serve(scope, parts, receive, send, share)
        finally:
            share.release()

    async def _serve(
        self, scope: Scope, parts: Mapping[str, str], receive: Receive, send: Send, share: Share
    ) -> None:
        server, operation = self._server, self._operation
        began = server.clock.monotonic()
        headers = dict(scope["headers"])
        request_id = _request_id(headers, server)
        server.metrics.under_way += 1
        extra: tuple[tuple[bytes, bytes], ...] = ()
        problem: problems.Problem | None = None
        refusal: HeadgateError | None = None
        status, content, kind = 500, b"", bodies.JSON
        try:
            status, content, problem = await self._answered(
                scope, parts, receive, headers, request_id, share
            )
        except AnsweredError as answered:
            status, content = (200, answered.answer) if answered.answer else (204, b"")
        except HeadgateError as error:
            # Its traceback refers to this frame: a cycle, which would keep the body until the
            # garbage collector runs.
            refusal = error.with_traceback(None)
        except Exception:
            _log.exception("%s failed", operation.name, extra={"request_id": request_id})
            refusal = _unexpected(request_id)
        finally:
            server.metrics.under_way -= 1
        if not share.resize(len(content)):
            refusal = BusyError(_NO_MEMORY)
        if refusal is not None and operation.refused is not None:
            status, content = operation.refused(refusal)
        elif refusal is not None:
            status, content, problem = _written(problems.from_error(refusal, request_id))
        if problem is not None:
            kind = bodies.PROBLEM
        if status in (429, 503):
            extra = ((b"retry-after", _RETRY_AFTER),)
        if status == 401:
            extra = ((b"www-authenticate", b"Bearer"),)
        took_s = server.clock.monotonic() - began
        server.metrics.record(operation.name, status, took_s)
        _tell(operation.name, status, refusal or problem, took_s, request_id)
        fail_point("server.before_answer")
        if operation.method == "HEAD":
            content = b""
        start = _head(status, content, kind, request_id, extra)
        if len(content) <= SMALL:
            await _respond(send, start, content)
        else:
            await self._stream(send, start, content, share)

    async def _stream(self, send: Send, start: Message, content: bytes, share: Share) -> None:
        """Send a large response piece by piece, as its receiver takes it.

        One that takes nothing for long is cut off: the connection ends before the announced length.
        """
        try:
            with share.transfer(len(content), self._body_s):
                await send(start)
                for first in range(0, len(content), _CHUNK):
                    piece = content[first : first + _CHUNK]
                    share.moved = first + len(piece)
                    is_last = share.moved == len(content)
                    await send(
                        {"type": "http.response.body", "body": piece, "more_body": not is_last}
                    )
                    share.extend()
        except (BusyError, TooSlowError) as error:
            _log.info("%s: the response was cut off: %s", self._operation.name, error.message)

    async def _answered(
        self,
        scope: Scope,
        parts: Mapping[str, str],
        receive: Receive,
        headers: dict[bytes, bytes],
        request_id: str,
        share: Share,
    ) -> _Written:
        server, operation = self._server, self._operation
        loop = asyncio.get_running_loop()
        server.origins.check(headers.get(b"host"), headers.get(b"origin"))
        principal: str | None = None
        if server.tokens is not None:
            header = headers.get(b"authorization", b"").decode("latin-1")
            principal = server.tokens.remembered(header)
            if principal is None:
                principal = await loop.run_in_executor(
                    server.pools[Pool.READS], server.tokens.principal, header
                )
        call = Call(
            catalog=server.catalog,
            path=parts,
            query=_query(scope["query_string"]) if scope["query_string"] else {},
            principal=principal,
            request_id=request_id,
            agent=headers.get(b"user-agent", b"").decode("latin-1"),
            reserved=SMALL,
        )
        if operation.is_changing or operation.reads_body:
            call.raw = await self._body(receive, headers, share)

        def understand() -> None:
            if operation.is_changing:
                call.key = self._key(scope, headers, call.raw)
            if operation.body is not None:
                call.body = bodies.decode(call.raw, operation.body)
                call.raw = b""  # large ones are not kept twice

        # What is large takes long to read, to judge and to write, and the loop is everybody's.
        is_small = len(call.raw) <= SMALL
        if is_small:
            understand()
        while operation.soon is not None and is_small:
            coming = server.answers.expected()
            if not operation.soon(call, coming):
                break
            came = await coming.here
            if isinstance(came, NeedPublishing):
                if await self._is_past_backlog(came.head):
                    break
                continue
            if isinstance(came, NEEDS):
                break  # something has to be done first, and is done in a thread
            answer = came if operation.then is None else operation.then(call, came)
            size = _size(answer)
            if size <= SMALL:
                return _written(answer)
            await self._reserve(share, size)
            async with server.slots[Pool.READS]:
                pool = server.pools[Pool.READS]
                written = await loop.run_in_executor(pool, _written, answer)
                self._hold(share, written)
                return written

        is_decoded = is_small

        def carry_out() -> _Written | NeedsMemoryError:
            nonlocal is_decoded
            if not is_decoded:
                understand()
                is_decoded = True
            try:
                return _written(operation.do(call))
            except NeedsMemoryError as needed:
                return needed.with_traceback(None)

        while True:
            # A thread goes on when the memory for its response is held, or the response is
            # refused: otherwise finished responses would pile up here.
            async with server.slots[operation.pool]:
                made = await loop.run_in_executor(server.pools[operation.pool], carry_out)
                if not isinstance(made, NeedsMemoryError):
                    self._hold(share, made)
                    return made
            # Nothing large was read yet, and others use the thread while this one waits.
            await self._reserve(share, made.size)
            call.reserved = made.size

    async def _reserve(self, share: Share, size: int) -> None:
        """Reserve the memory in which a response of a size is made."""
        with share.transfer(size, self._body_s):
            await share.reserve(_MAKING * size)

    @staticmethod
    def _hold(share: Share, written: _Written) -> None:
        """Hold the memory of a finished response, and no more."""
        if not share.resize(len(written[1])):
            raise BusyError(_NO_MEMORY)

    async def _is_past_backlog(self, head: Head) -> bool:
        """Wait until a table's writers may go on; return True if waiting cannot help."""
        server, pool = self._server, self._server.pools[Pool.PROPOSALS]
        hold_back = partial(server.catalog.hold_back, head)
        return await server.held_back.done(head.table_id, pool, hold_back)

    def _key(self, scope: Scope, headers: dict[bytes, bytes], raw: bytes) -> RequestKey | None:
        text = headers.get(_KEY_HEADER)
        if text is None:
            return None
        if self._operation.pool is Pool.PROPOSALS:  # known by its intent, which the catalog hashes
            return RequestKey(text.decode("latin-1"), b"")
        asked = hashlib.sha256()
        for part in (scope["method"].encode(), scope["raw_path"], scope["query_string"], raw):
            asked.update(len(part).to_bytes(8, "big") + part)
        return RequestKey(text.decode("latin-1"), asked.digest())

    async def _body(self, receive: Receive, headers: dict[bytes, bytes], share: Share) -> bytes:
        declared, kind = _declared_length(headers), headers.get(b"content-type")
        if kind is not None and kind not in _JSON_KINDS and not _JSON_KIND.fullmatch(kind):
            raise UnsupportedMediaTypeError(
                f"The body is {kind[:80].decode('latin-1')!r}, not JSON."
            )
        expected = self._limit if declared is None else declared
        if expected > self._limit:
            raise self._too_large()
        if declared == 0:
            return b""
        first, rest = b"", bytearray()
        size, more = 0, True
        with share.transfer(expected, self._body_s):
            if declared is not None and declared > SMALL:
                await share.reserve(_WEIGHT * declared)
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise UnavailableError("The sender left in the middle of the request.")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > self._limit:
                    raise self._too_large()
                if size > share.size:
                    await share.reserve(size if size <= SMALL else _WEIGHT * expected)
                share.moved = size
                # Not a list of chunks: those of a few bytes each would take many times their size.
                if first:
                    rest += chunk
                else:
                    first = chunk
                # The end comes as a message of its own, from another thread: not waited for where
                # everything is here.
                more = message.get("more_body", False) and size != declared
        if kind is None and first:
            raise UnsupportedMediaTypeError("The request does not declare the type of its body.")
        return first + rest if rest else first

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"A request has at most {self._limit} bytes.")


def _written(answer: object) -> _Written:
    """Write an answer: its status, its body, and the problem that it tells of."""
    if answer is None:
        return 204, b"", None
    if isinstance(answer, problems.Problem):
        return answer.status, bodies.encode(answer), answer
    return 200, bodies.encode(answer), None


def _size(answer: object) -> int:
    """Estimate the size of an answer that may be large: many events, or many winners."""
    if isinstance(answer, EventPage):
        entries = sum(1 + len(event.commits) + len(event.names) for event in answer.events)
        return entries * _ENTRY_BYTES
    if not isinstance(answer, problems.Problem) or answer.answer is None:
        return 0
    winners = answer.answer.winners.values()
    return sum(len(commit.content or b"") for commits in winners for commit in commits)


def _declared_length(headers: Mapping[bytes, bytes]) -> int | None:
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > _LENGTH_DIGITS:
        raise InvalidArgumentError("The Content-Length of the request is not a valid number.")
    return int(text)


def _head(
    status: int,
    content: bytes,
    kind: str,
    request_id: str,
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> Message:
    headers = [
        (b"content-length", b"%d" % len(content)),
        (_REQUEST_HEADER, request_id.encode()),
        *extra,
    ]
    if content:
        headers.append((b"content-type", kind.encode()))
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _respond(send: Send, start: Message, content: bytes) -> None:
    await send(start)
    await send({"type": "http.response.body", "body": content})


def _query(raw: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidArgumentError(f"The query cannot be read: {error}.") from None


def _request_id(headers: dict[bytes, bytes], server: Server) -> str:
    given = headers.get(_REQUEST_HEADER)
    if given is not None:
        text = given.decode("latin-1")
        if _ID.fullmatch(text):
            return text
    return f"{server.name}-{next(server.numbers):x}"


def _unexpected(request_id: str) -> HeadgateError:
    return HeadgateError(
        "The server made a mistake.",
        remedy=f"Report request {request_id}; the server's log has more.",
    )


def _tell(
    name: str,
    status: int,
    why: HeadgateError | problems.Problem | None,
    took_s: float,
    request_id: str,
) -> None:
    """Keep a line of a request: by its id whoever was refused can be told why."""
    level = logging.WARNING if status >= 500 else logging.INFO if status >= 400 else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    said = ""
    if isinstance(why, problems.Problem):
        said = f", {why.code}: {why.detail}"
    elif why is not None:
        said = f", {why.code}: {why.message}"
    _log.log(
        level,
        "%s: %d in %.1f ms%s",
        *(name, status, took_s * 1000, said),
        extra={"request_id": request_id},
    )


async def _wrong_method(scope: Scope, send: Send, methods: Iterable[str], request_id: str) -> None:
    says = f"{scope['method']} is not for {scope['path'][:200]}."
    allowed = (b"allow", ", ".join(sorted(methods)).encode())
    other = dialects.SaidError(dialects.Case.OTHER_METHOD, says)
    if (told := dialects.leads_nowhere(other, scope["path"])) is not None:
        await _respond(send, _head(*told, bodies.JSON, request_id, (allowed,)), told[1])
        return
    said = InvalidArgumentError(says, remedy="See /openapi.json.")
    problem = problems.from_error(said, request_id)
    problem = replaced(problem, status=405, title="Method Not Allowed")
    content = bodies.encode(problem)
    await _respond(send, _head(405, content, bodies.PROBLEM, request_id, (allowed,)), content)


async def _unknown_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    says = f"{request.method} {request.url.path[:200]} leads nowhere."
    told = dialects.leads_nowhere(NotFoundError(says, remedy=""), request.scope["path"])
    if told is not None:
        return Response(told[1], status_code=told[0], media_type=bodies.JSON)
    said = NotFoundError(says, remedy="See /openapi.json.")
    problem = problems.from_error(said, request.scope[_REQUEST_ID])
    problem = replaced(problem, status=error.status_code)
    return Response(
        bodies.encode(problem),
        status_code=error.status_code,
        media_type=bodies.PROBLEM,
        headers=dict(error.headers or {}),
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadgateError)
    request_id = request.scope[_REQUEST_ID]
    problem = problems.from_error(error, request_id)
    _log.warning("%s: %s", request.url.path, error, extra={"request_id": request_id})
    return Response(bodies.encode(problem), problem.status, media_type=bodies.PROBLEM)


async def _broken(request: Request, error: Exception) -> Response:
    request_id = request.scope[_REQUEST_ID]
    _log.error("a request failed", exc_info=error, extra={"request_id": request_id})
    problem = problems.from_error(_unexpected(request_id), request_id)
    return Response(bodies.encode(problem), status_code=500, media_type=bodies.PROBLEM)
