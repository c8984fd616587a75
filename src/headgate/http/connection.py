"""HTTP/1.1 on sockets, for an ASGI application: httptools parses, uvloop reads and writes.

A connection answers one request at a time, in the order in which they came. It does not read on
while a body waits to be taken, or while another request waits for its turn, so a client that
sends faster than it is served fills its own socket and not this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools

from headgate.http.asgi import Handler, Message, Scope

_log = logging.getLogger("headgate.http")
_HEAD_BYTES: Final = 64 << 10  # of a request's line and headers
_BODY_BYTES: Final = 64 << 10  # of a body that were read and not taken yet
_LINGER_S: Final = 2.0  # for a client to read a response before it has sent its whole request
_LINGER_BYTES: Final = 1 << 20  # of that request which are read, to no purpose
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take."""

    connections: int = 16_384
    headers_s: float = 10.0  # for the headers of a request, from when the one before was answered


class HttpListener:
    """The connections of one server, and its application."""

    def __init__(self, app: Handler, limits: Limits, scheme: str = "http") -> None:
        self.app = app
        self.limits = limits
        self.scheme = scheme
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()  # requests that are being answered
        self.is_closing = False
        self.date = b""
        self._tick()

    def connect(self) -> Connection:
        return Connection(self)

    def _tick(self) -> None:
        """Renew the date of responses, and close connections whose time is over."""
        self.date = b"date: " + formatdate(usegmt=True).encode() + b"\r\n"
        now = self.loop.time()
        for connection in [one for one in self.connections if one.deadline < now]:
            connection.expire()
        self._timer = self.loop.call_later(1.0, self._tick)

    async def close(self, within_s: float) -> None:
        """Close every connection when its request is answered, or after a time."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_if_idle()
        deadline = self.loop.time() + within_s
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self.deadline = listener.loop.time() + listener.limits.headers_s
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None  # under way
        self._early: deque[Exchange] = deque()  # came before the one under way was answered
        self._incoming: Exchange | None = None  # its body is being read
        self._head_bytes = 0  # read of a request whose headers are incomplete
        self._is_paused = False
        self._discards = False  # the rest of a request that was answered early
        self._discarded = 0
        self._drained: asyncio.Future[None] | None = None  # while the client takes nothing
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast("asyncio.Transport", transport)
        listener = self._listener
        listener.connections.add(self)
        if len(listener.connections) > listener.limits.connections:
            self._refuse(503, b"The server has too many connections.\n")
        elif listener.is_closing:
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.connections.discard(self)
        for exchange in (self._exchange, *self._early):
            if exchange is not None:
                exchange.lose()
        self._exchange = self._incoming = None
        self._early.clear()
        self.resume_writing()

    def eof_received(self) -> bool:
        exchange = self._exchange
        if exchange is None or not exchange.is_whole:
            return False
        exchange.is_last = True  # the client sends nothing more, and waits for its response
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        self._drained = self._listener.loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._discards:
            self._discarded += len(data)
            if self._discarded > _LINGER_BYTES:
                self.pause_reading()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, b"The request is not valid HTTP/1.1.\n")
        if self._incoming is None and not self._discards:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self._refuse(431, b"The headers of the request are too long.\n")

    # Called by the parser

    def on_message_begin(self) -> None:
        self._target, self._fields = b"", []

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            return
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(505, b"The server speaks HTTP/1.1.\n")
            return
        self._head_bytes = 0
        exchange = Exchange(
            self,
            _scope(self._listener.scheme, parser.get_method(), self._target, self._fields, version),
            is_last=version == "1.0" or not parser.should_keep_alive(),
        )
        self._incoming = exchange
        if self._exchange is None:
            self._begin(exchange)
        else:
            self._early.append(exchange)
            self.pause_reading()

    def on_body(self, chunk: bytes) -> None:
        if self._incoming is not None:
            self._incoming.add(chunk)

    def on_message_complete(self) -> None:
        if self._incoming is not None:
            self._head_bytes = 0
            exchange, self._incoming = self._incoming, None
            exchange.end()

    def _decline_upgrade(self, rest: bytes) -> None:
        """Go on with HTTP/1.1 after a request to upgrade, at which the parser stops.

        Java's client sends one with its first request.
        """
        target, fields, method = self._target, self._fields, self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, b"The server is not a proxy.\n")
            return
        kept = b"".join(
            b"%b: %b\r\n" % field
            for field in fields
            if field[0] not in (b"upgrade", b"connection", b"http2-settings")
        )
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, kept, rest))

    # Called by exchanges

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self._early:
            self._is_paused = False
            self.transport.resume_reading()

    async def drain(self) -> None:
        """Wait until the client has taken what was written, or is gone."""
        while self._drained is not None:
            await asyncio.shield(self._drained)

    def head(self, status: int, headers: list[tuple[bytes, bytes]], *, is_last: bool) -> bytes:
        fields = [b"%b: %b\r\n" % field for field in headers]
        if is_last:
            fields.append(b"connection: close\r\n")
        return b"".join((_LINES[status], self._listener.date, *fields, b"\r\n"))

    @property
    def is_closing(self) -> bool:
        return self._listener.is_closing

    def finish(self, exchange: Exchange) -> None:
        """Go on with the next request, if there may be one, now that this one is answered."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        if not exchange.is_whole:
            self._linger()
        elif exchange.is_last or (self.is_closing and not self._early):
            self.transport.close()
        else:
            self.deadline = self._listener.loop.time() + self._listener.limits.headers_s
            if self._early:
                self._begin(self._early.popleft())
            self.resume_reading()

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.deadline = float("inf")  # the application limits the time of a body
        task = self._listener.loop.create_task(exchange.run(self._listener.app))
        self._listener.tasks.add(task)
        task.add_done_callback(self._listener.tasks.discard)

    # The end of a connection

    def _refuse(self, status: int, reason: bytes) -> None:
        """Answer what cannot be understood as a request, and close the connection."""
        if self._exchange is not None and self._exchange.is_whole:
            self._exchange.is_last = True  # nothing may precede its response
            self._early.clear()
            self._discards = True
            return
        if self._exchange is not None:  # its body is not HTTP
            if self._exchange.is_begun:
                self.abort()
                return
            self._exchange.lose()
            self._exchange = None
        headers = [(b"content-length", b"%d" % len(reason)), (b"content-type", b"text/plain")]
        self.transport.write(self.head(status, headers, is_last=True) + reason)
        self._linger()

    def _linger(self) -> None:
        """Close when the client has read the response.

        To close while it still sends would reset the connection, and could lose the response.
        """
        self._discards = True
        self.deadline = self._listener.loop.time() + _LINGER_S
        self._early.clear()
        self.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def expire(self) -> None:
        """End a connection whose request did not come in time."""
        if self._discards:
            self.abort()
        elif self._head_bytes:
            self._refuse(408, b"The headers of the request did not arrive in time.\n")
        else:
            self.transport.close()

    def close_if_idle(self) -> None:
        if self._exchange is None:
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()


class Exchange:
    """One request and its response."""

    def __init__(self, connection: Connection, scope: Scope, *, is_last: bool) -> None:
        self._connection = connection
        self._scope = scope
        self.is_last = is_last  # the connection ends after it
        self.is_whole = False  # the body has come to its end
        self._body = b""  # read, and not taken yet
        self._expects_continue = (b"expect", b"100-continue") in scope["headers"]
        self._arrival: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._is_answered = False
        self._is_lost = False

    async def run(self, app: Handler) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            _log.exception("a request failed")
        if self._is_answered or self._is_lost:
            return
        if self._head is None:
            await self._send({"type": "http.response.start", "status": 500, "headers": []})
            await self._send({"type": "http.response.body"})
        else:  # the client must not take what it has for the whole
            self._connection.abort()

    @property
    def is_begun(self) -> bool:
        return self._head == b""

    # The request

    def add(self, chunk: bytes) -> None:
        self._body = self._body + chunk if self._body else chunk
        if len(self._body) > _BODY_BYTES:
            self._connection.pause_reading()
        self._arrive()

    def end(self) -> None:
        self.is_whole = True
        self._arrive()

    def lose(self) -> None:
        self._is_lost = True
        self._arrive()

    def _arrive(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    async def _receive(self) -> Message:
        if self._expects_continue and not self.is_whole and not self._body:
            self._expects_continue = False
            self._connection.transport.write(_CONTINUE)
        while not (self._body or self.is_whole or self._is_lost):
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        if self._is_lost:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        if not self.is_whole:
            self._connection.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    # The response

    async def _send(self, message: Message) -> None:
        if self._is_lost:
            return
        connection = self._connection
        if message["type"] == "http.response.start":
            self._head = self._response_head(message)
            return
        content: bytes = message.get("body", b"")
        if self._scope["method"] == "HEAD":
            content = b""
        if self._head:
            content, self._head = self._head + content, b""
        connection.transport.write(content)
        await connection.drain()
        if not message.get("more_body", False):
            self._is_answered = True
            connection.finish(self)

    def _response_head(self, message: Message) -> bytes:
        status: int = message["status"]
        headers = list(message.get("headers", ()))
        has_length = any(name == b"content-length" for name, _ in headers)
        if status == HTTPStatus.NO_CONTENT:
            headers = [field for field in headers if field[0] != b"content-length"]
        elif not has_length:  # the end of the connection is the end of the response
            self.is_last = True
        self.is_last = self.is_last or self._connection.is_closing or not self.is_whole
        return self._connection.head(status, headers, is_last=self.is_last)


def _scope(
    scheme: str, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]], version: str
) -> Scope:
    if not target.startswith(b"/") and method != b"CONNECT":  # a whole URL, as to a proxy
        with suppress(httptools.HttpParserInvalidURLError):
            target = _relative(target)
    path, _, query = target.partition(b"#")[0].partition(b"?")
    text = path.decode("latin-1")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": method.decode("ascii"),
        "scheme": scheme,
        "path": unquote(text) if "%" in text else text,
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": fields,
        "client": None,
        "server": None,
    }
    return scope


def _relative(target: bytes) -> bytes:
    url = httptools.parse_url(target)
    query = b"" if url.query is None else b"?" + url.query
    return (url.path or b"/") + query
