"""An operation as an ASGI application.

For each request it checks origin and token, limits the body in size and time, decodes it, carries
out the operation, and responds with a body or a problem document. Asynchronous code ends here:
operations run in threads, or are answered through a future.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qs

from headgate.api import bodies, problems
from headgate.api.bodies import EventPage
from headgate.catalog.idempotency import AnsweredError, RequestKey
from headgate.errors import (
    BusyError,
    HeadgateError,
    InvalidArgumentError,
    OutcomeUnknownError,
    TooLargeError,
    TooSlowError,
    UnavailableError,
    UnsupportedMediaTypeError,
)
from headgate.failpoints import fail_point
from headgate.http.asgi import Message, Receive, Scope, Send
from headgate.http.budget import SMALL, Share
from headgate.http.operations import Call, NeedsMemoryError, Operation, Pool
from headgate.http.server import REQUEST_HEADER, Server
from headgate.protocol.commit.decide import NEEDS, NeedPublishing
from headgate.protocol.commit.facts import Head

Headers = dict[bytes, bytes]
Encoded = tuple[int, bytes, problems.Problem | None]  # status, body, and the problem in the body

_log = logging.getLogger("headgate.http")
_JSON_TYPES = frozenset({b"application/json", b"application/json; charset=utf-8"})
_JSON_TYPE = re.compile(
    rb"\s*application/(?:[\w.-]+\+)?json\s*(?:;\s*[\w-]+\s*=\s*\"?[\w-]+\"?\s*)*;?\s*",
    re.IGNORECASE,
)
_EXTRA_HEADERS = {
    401: ((b"www-authenticate", b"Bearer"),),
    429: ((b"retry-after", b"1"),),
    503: ((b"retry-after", b"1"),),
}
_CHUNK = 128 << 10  # bytes of a large response that are sent at once
_ENTRY_BYTES = 512  # of an event, and of each table in it
_WEIGHT = 2  # of a large request: its bytes, and what is decoded from them or answered
_MAKING = 4  # a large response while it is made: what is read, its text, and a copy of that
_LENGTH_DIGITS = 18
_NO_MEMORY = "There is no memory free for the response."
_KEY_HEADER = bodies.KEY_HEADER.encode()


class Endpoint:
    """Serves requests for one operation."""

    def __init__(self, server: Server, operation: Operation) -> None:
        self._server = server
        self._operation = operation
        self._limit = server.settings.request_limit_bytes
        self._body_s = server.settings.request_body_ms / 1000

    async def __call__(
        self, scope: Scope, parts: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        share = Share(self._server.budget)
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
        request_id = server.request_id(headers)
        server.metrics.under_way += 1
        problem: problems.Problem | None = None
        refusal: HeadgateError | None = None
        status, content = 500, b""
        try:
            server.origins.check(headers.get(b"host"), headers.get(b"origin"))
            await self._authenticate(headers)
            call = Call(
                catalog=server.catalog,
                settings=server.settings,
                path=parts,
                query=_query(scope["query_string"]) if scope["query_string"] else {},
                request_id=request_id,
                agent=headers.get(b"user-agent", b"").decode("latin-1"),
                reserved=SMALL,
            )
            if operation.is_changing or operation.reads_body:
                call.raw = await self._body(receive, headers, share)
            status, content, problem = await self._answer(call, scope, headers, share)
        except AnsweredError as answered:
            status, content = (200, answered.answer) if answered.answer else (204, b"")
        except HeadgateError as error:
            # Its traceback refers to this frame: a cycle, which would keep the body until the
            # garbage collector runs.
            refusal = error.with_traceback(None)
        except Exception:
            _log.exception("%s failed", operation.name, extra={"request_id": request_id})
            refusal = unexpected(request_id)
        finally:
            server.metrics.under_way -= 1
        if not share.resize(len(content)):
            refusal = BusyError(_NO_MEMORY)
        if refusal is not None and operation.encode_error is not None:
            status, content = operation.encode_error(refusal)
        elif refusal is not None:
            status, content, problem = encoded(problems.from_error(refusal, request_id))
        took_s = server.clock.monotonic() - began
        server.metrics.record(operation.name, status, took_s)
        _log_request(operation.name, status, refusal or problem, took_s, request_id)
        fail_point("server.before_answer")
        if operation.method == "HEAD":
            content = b""
        kind = bodies.JSON if problem is None else bodies.PROBLEM
        start = response_start(status, content, kind, request_id, _EXTRA_HEADERS.get(status, ()))
        if len(content) <= SMALL:
            await respond(send, start, content)
        else:
            await self._stream(send, start, content, share)

    async def _stream(self, send: Send, start: Message, content: bytes, share: Share) -> None:
        """Send a large response in pieces, as the client reads it.

        If the client stops reading, the connection is closed before the announced length is sent.
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

    async def _authenticate(self, headers: Headers) -> None:
        server = self._server
        if server.tokens is not None:
            header = headers.get(b"authorization", b"").decode("latin-1")
            if not server.tokens.is_cached(header):
                await server.run(Pool.READS, server.tokens.check, header)

    async def _answer(self, call: Call, scope: Scope, headers: Headers, share: Share) -> Encoded:
        """Decode a request and carry it out: in this thread only what is small."""
        server, operation = self._server, self._operation

        def decode() -> None:
            if operation.is_changing:
                call.key = self._key(scope, headers, call.raw)
            if operation.body is not None:
                call.body = bodies.decode(call.raw, operation.body)
                call.raw = b""  # a large body must not be in memory twice

        is_decoded = len(call.raw) <= SMALL
        if is_decoded:
            decode()
            answer = await self._queued_answer(call, share)
            if answer is not None:
                return answer

        def carry_out() -> Encoded | NeedsMemoryError:
            nonlocal is_decoded
            if not is_decoded:
                decode()
                is_decoded = True
            try:
                return encoded(operation.carry_out(call))
            except NeedsMemoryError as needed:
                return needed.with_traceback(None)

        while True:
            # The thread is held until the memory of its response is reserved, or the response is
            # refused: otherwise finished responses would pile up here.
            async with server.slots[operation.pool]:
                made = await server.run(operation.pool, carry_out)
                if not isinstance(made, NeedsMemoryError):
                    self._hold(share, made)
                    return made
            # Nothing large was read yet, and other requests use the thread while this one waits.
            await self._reserve(share, made.size)
            call.reserved = made.size

    async def _queued_answer(self, call: Call, share: Share) -> Encoded | None:
        """Queue a request for another thread and await its answer.

        Returns None if the request must be carried out in the operation's pool instead.
        """
        server, operation = self._server, self._operation
        while operation.enqueue is not None:
            pending = server.answers.expect()
            finish = operation.enqueue(call, pending)
            if finish is None:
                return None
            try:
                answer = await pending.future
            except OutcomeUnknownError:
                if operation.asks_again:
                    return None
                raise
            if isinstance(answer, NeedPublishing):
                if await self._is_past_backlog(answer.head):
                    return None
                continue
            if isinstance(answer, NEEDS):
                return None
            body = finish(answer)
            if body is None and operation.asks_again:
                return None
            size = _size(body)
            if size <= SMALL:
                return encoded(body)
            await self._reserve(share, size)
            async with server.slots[Pool.READS]:
                made = await server.run(Pool.READS, encoded, body)
                self._hold(share, made)
                return made
        return None

    async def _reserve(self, share: Share, size: int) -> None:
        """Reserve the memory in which a response of a size is made."""
        with share.transfer(size, self._body_s):
            await share.reserve(_MAKING * size)

    @staticmethod
    def _hold(share: Share, made: Encoded) -> None:
        """Hold the memory of a finished response, and no more."""
        if not share.resize(len(made[1])):
            raise BusyError(_NO_MEMORY)

    async def _is_past_backlog(self, head: Head) -> bool:
        """Wait until a table's writers may go on; return True if waiting cannot help."""
        server = self._server
        hold_back = partial(server.catalog.hold_back, head)
        return await server.shared_work.done(head.table_id, server.pools[Pool.PROPOSALS], hold_back)

    def _key(self, scope: Scope, headers: Headers, raw: bytes) -> RequestKey | None:
        text = headers.get(_KEY_HEADER)
        if text is None:
            return None
        if self._operation.pool is Pool.PROPOSALS:  # the catalog hashes the content of proposals
            return RequestKey(text.decode("latin-1"), b"")
        request = hashlib.sha256()
        for part in (scope["method"].encode(), scope["raw_path"], scope["query_string"], raw):
            request.update(len(part).to_bytes(8, "big") + part)
        return RequestKey(text.decode("latin-1"), request.digest())

    async def _body(self, receive: Receive, headers: Headers, share: Share) -> bytes:
        declared, kind = _declared_length(headers), headers.get(b"content-type")
        if kind is not None and kind not in _JSON_TYPES and not _JSON_TYPE.fullmatch(kind):
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
                    raise UnavailableError("The client disconnected before the end of its request.")
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
                # The end is a message of its own, from another thread: not awaited once all of
                # the declared bytes are here.
                more = message.get("more_body", False) and size != declared
        if kind is None and first:
            raise UnsupportedMediaTypeError("The request does not declare the type of its body.")
        return first + rest if rest else first

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"A request has at most {self._limit} bytes.")


def encoded(answer: object) -> Encoded:
    """Encode an answer."""
    if answer is None:
        return 204, b"", None
    if isinstance(answer, problems.Problem):
        return answer.status, bodies.encode(answer), answer
    return 200, bodies.encode(answer), None


def response_start(
    status: int,
    content: bytes,
    kind: str,
    request_id: str,
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> Message:
    """Return the message with the status and headers of a response."""
    headers = [
        (b"content-length", b"%d" % len(content)),
        (REQUEST_HEADER, request_id.encode()),
        *extra,
    ]
    if content:
        headers.append((b"content-type", kind.encode()))
    return {"type": "http.response.start", "status": status, "headers": headers}


async def respond(send: Send, start: Message, content: bytes) -> None:
    """Send a whole response."""
    await send(start)
    await send({"type": "http.response.body", "body": content})


def unexpected(request_id: str) -> HeadgateError:
    """Return the error for a defect of the server; the log has the cause."""
    return HeadgateError(
        "The server failed unexpectedly.",
        remedy=f"Report request {request_id}; the server's log has more.",
    )


def _size(answer: object) -> int:
    """Estimate the size of an answer that may be large: many events, or many winners."""
    if isinstance(answer, EventPage):
        entries = sum(1 + len(event.commits) + len(event.names) for event in answer.events)
        return entries * _ENTRY_BYTES
    if not isinstance(answer, problems.Problem) or answer.answer is None:
        return 0
    winners = answer.answer.winners.values()
    return sum(len(commit.content or b"") for commits in winners for commit in commits)


def _declared_length(headers: Headers) -> int | None:
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > _LENGTH_DIGITS:
        raise InvalidArgumentError("The Content-Length of the request is not a valid number.")
    return int(text)


def _query(raw: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidArgumentError(f"The query cannot be read: {error}.") from None


def _log_request(
    name: str,
    status: int,
    problem: HeadgateError | problems.Problem | None,
    took_s: float,
    request_id: str,
) -> None:
    """Log a request under its id, so that an operator can find why it was refused."""
    level = logging.WARNING if status >= 500 else logging.INFO if status >= 400 else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    reason = ""
    if problem is not None:
        detail = problem.detail if isinstance(problem, problems.Problem) else problem.message
        reason = f", {problem.code}: {detail}"
    _log.log(
        level,
        "%s: %d in %.1f ms%s",
        *(name, status, took_s * 1000, reason),
        extra={"request_id": request_id},
    )
