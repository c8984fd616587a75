"""HTTP/1.1 on real sockets: what a client may send, and what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from headgate.http.connection import HttpListener, Limits
from tests.kit.conditions import eventually

pytestmark = pytest.mark.slow

JSON = (b"content-type", b"application/json")


class Server:
    """A listener in a thread, with an application that does what a request's path asks for."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._started = threading.Event()
        self.bodies: list[bytes] = []
        self.scopes: list[dict[str, Any]] = []
        self.disconnects = 0
        self.released = threading.Event()
        self._thread = threading.Thread(
            target=lambda: uvloop.new_event_loop().run_until_complete(self._run()), daemon=True
        )

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.listener = HttpListener(self._app, self._limits)
        server = await self._loop.create_server(self.listener.connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        await self.listener.close(5.0)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        path = scope["path"]
        if path == "/fails":
            raise RuntimeError("on purpose")
        if path == "/early":  # the body is not asked for
            await _respond(send, 413, b"too large")
            return
        body, is_more = b"", True
        if path == "/held":
            await asyncio.to_thread(self.released.wait, 20)
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            body += message["body"]
            is_more = message["more_body"]
        self.bodies.append(body)
        if path == "/breaks":
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", b"10")],
                }
            )
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise RuntimeError("on purpose")
        if path == "/large":
            body = b"x" * (4 << 20)
        if path == "/empty":
            await _respond(send, 204, b"")
            return
        await _respond(send, 200, path.encode() + b":" + body)


async def _respond(send: Any, status: int, content: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(content)), JSON]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(Limits(connections=8, headers_s=30.0)) as running:
        yield running


class Client:
    """A connection that is written to byte for byte."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=15)
        self._rest = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def response(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        while b"\r\n\r\n" not in self._rest:
            self._read()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        length = int(headers.get("content-length", "0")) if has_body else 0
        while len(self._rest) < length:
            self._read()
        body, self._rest = self._rest[:length], self._rest[length:]
        return int(line.split()[1]), headers, body

    def is_closed(self) -> bool:
        """Wait for the end of the connection."""
        assert self._rest == b""
        with contextlib.suppress(ConnectionError):
            return self._socket.recv(1) == b""
        return True

    def _read(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise EOFError(self._rest)
        self._rest += data


def post(path: str, body: bytes, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


GET = b"GET /get?x=1 HTTP/1.1\r\nhost: a\r\n\r\n"


def test_one_connection_serves_many_requests(server: Server) -> None:
    with Client(server) as client:
        for number in range(3):
            client.send(post("/echo", b"%d" % number))
            status, headers, body = client.response()
            assert (status, body) == (200, b"/echo:%d" % number)
            assert headers["content-type"] == "application/json"
            assert headers["date"].endswith(" GMT")
            assert "connection" not in headers


def test_a_request_may_arrive_in_pieces_of_one_byte(server: Server) -> None:
    with Client(server) as client:
        for byte in post("/echo", b"body"):
            client.send(bytes([byte]))
        assert client.response()[2] == b"/echo:body"


def test_requests_sent_ahead_are_answered_in_their_order(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/held", b"first") + post("/echo", b"second") + GET)
        time.sleep(0.05)  # the second could be answered by now
        server.released.set()
        bodies = [client.response()[2] for _ in range(3)]
    assert bodies == [b"/held:first", b"/echo:second", b"/get:"]


def test_a_chunked_body_is_whole(server: Server) -> None:
    with Client(server) as client:
        client.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        client.send(b"3\r\nabc\r\n")
        client.send(b"2\r\nde\r\n0\r\n\r\n" + GET)
        assert client.response()[2] == b"/echo:abcde"
        assert client.response()[2] == b"/get:"


def test_the_scope_names_path_query_and_headers(server: Server) -> None:
    with Client(server) as client:
        client.send(b"GET /a%20b/c?x=%31&y HTTP/1.1\r\nHost: a\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n")
        client.response()
        client.send(b"GET http://a:1/whole?z HTTP/1.1\r\nhost: a\r\n\r\n")
        client.response()
    first, second = server.scopes
    assert (first["method"], first["path"], first["raw_path"]) == ("GET", "/a b/c", b"/a%20b/c")
    assert first["query_string"] == b"x=%31&y"
    assert first["headers"] == [(b"host", b"a"), (b"x-twice", b"1"), (b"x-twice", b"2")]
    assert (second["raw_path"], second["query_string"]) == (b"/whole", b"z")


def test_a_response_to_head_has_no_body_and_the_length_of_one(server: Server) -> None:
    with Client(server) as client:
        client.send(b"HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n" + GET)
        status, headers, _ = client.response(has_body=False)
        assert (status, headers["content-length"]) == (200, "6")
        assert client.response()[2] == b"/get:"


def test_a_204_has_no_length(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/empty", b"") + GET)
        status, headers, _ = client.response()
        assert (status, "content-length" in headers) == (204, False)
        assert client.response()[2] == b"/get:"


def test_a_client_that_waits_for_100_is_told_to_go_on(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/echo", b"body", "expect: 100-continue")[: -len(b"body")])
        assert client.response(has_body=False)[0] == 100
        client.send(b"body")
        assert client.response()[2] == b"/echo:body"


@pytest.mark.parametrize("is_split", [False, True])
def test_a_request_to_upgrade_is_served_as_http_1(server: Server, is_split: bool) -> None:
    upgrade = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAA")
    request = post("/echo", b"body", *upgrade)
    with Client(server) as client:
        if is_split:
            client.send(request[:-2])
            time.sleep(0.05)  # so that it arrives by itself
            client.send(request[-2:] + GET)
        else:
            client.send(request + GET)
        assert client.response()[2] == b"/echo:body"
        assert client.response()[2] == b"/get:"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nhost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (70 << 10), 431),
        (b"GET /" + b"y" * (70 << 10), 431),
    ],
    ids=lambda value: str(value[:24]) if isinstance(value, bytes) else None,
)
def test_what_is_no_request_is_refused_and_ends_the_connection(
    server: Server, request_bytes: bytes, status: int
) -> None:
    with Client(server) as client:
        client.send(request_bytes)
        found, headers, body = client.response()
        assert (found, headers["connection"]) == (status, "close")
        assert body.endswith(b".\n")
        client.end()
        assert client.is_closed()
    assert server.scopes == []


def test_rubbish_after_a_request_does_not_hide_its_response(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/held", b"") + b"\x00\x01rubbish")
        time.sleep(0.05)  # until it was read
        server.released.set()
        assert client.response()[2] == b"/held:"
        assert client.is_closed()


def test_a_chunk_that_is_none_ends_the_request(server: Server) -> None:
    with Client(server) as client:
        client.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        client.send(b"zz\r\n")
        assert client.response()[0] == 400
    eventually(lambda: server.disconnects == 1)
    assert server.bodies == []


def test_an_early_response_reaches_a_client_that_still_sends(server: Server) -> None:
    with Client(server) as client:
        client.send(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n")
        client.send(b"x" * 500_000)
        status, headers, body = client.response()
        assert (status, headers["connection"], body) == (413, "close", b"too large")


def test_a_client_that_leaves_in_the_middle_is_noticed(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/echo", b"body")[:-1])
        eventually(lambda: len(server.scopes) == 1)
    eventually(lambda: server.disconnects == 1)
    eventually(lambda: not server.listener.connections)


def test_a_client_that_sends_nothing_more_gets_its_response(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/held", b"body"))
        client.end()
        time.sleep(0.05)  # until the end was read
        server.released.set()
        assert client.response()[2] == b"/held:body"
        assert client.is_closed()


def test_http_1_0_gets_a_response_and_the_end(server: Server) -> None:
    with Client(server) as client:
        client.send(b"GET /old HTTP/1.0\r\n\r\n")
        assert client.response()[2] == b"/old:"
        assert client.is_closed()


def test_an_application_that_fails_is_a_500(server: Server) -> None:
    with Client(server) as client:
        client.send(b"GET /fails HTTP/1.1\r\nhost: a\r\n\r\n")
        assert client.response()[0] == 500


def test_a_response_that_breaks_off_is_not_taken_for_whole(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/breaks", b""))
        with pytest.raises((EOFError, ConnectionError)):
            client.response()


def test_a_large_response_arrives_whole_however_slowly_it_is_read(server: Server) -> None:
    with Client(server) as client:
        client.send(post("/large", b""))
        time.sleep(0.1)  # it does not fit into the buffers of the system
        assert len(client.response()[2]) == len(b"/large:") + (4 << 20)


def test_what_is_not_taken_stays_with_its_sender(server: Server) -> None:
    """The application takes nothing yet: a body must not pile up in the process."""
    sent, size = 0, 64 << 20
    with Client(server) as client:
        client.send(b"POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        client._socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent < size:
                sent += client._socket.send(b"x" * (1 << 20))
        assert sent < 32 << 20
        [connection] = server.listener.connections
        exchange = connection._exchange
        assert exchange is not None
        assert len(exchange._body) < 1 << 20


def test_more_connections_than_allowed_are_refused(server: Server) -> None:
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(Client(server)) for _ in range(8)]
        for client in clients:
            client.send(GET)
            assert client.response()[0] == 200
        with Client(server) as late:
            assert late.response()[0] == 503
        clients[0]._socket.close()
        eventually(lambda: len(server.listener.connections) < 8)
        with Client(server) as next_one:
            next_one.send(GET)
            assert next_one.response()[0] == 200


def test_headers_that_do_not_come_in_time_end_the_connection() -> None:
    with (
        Server(Limits(headers_s=0.3)) as server,
        Client(server) as silent,
        Client(server) as slow,
        Client(server) as held,
    ):
        slow.send(b"GET / HTTP/1.1\r\nhost")
        held.send(post("/held", b"body"))
        assert silent.is_closed()
        assert slow.response()[0] == 408
        server.released.set()  # a request that is here has the application's time
        assert held.response()[2] == b"/held:body"


def test_a_server_that_stops_answers_what_it_received(server: Server) -> None:
    with Client(server) as idle, Client(server) as busy:
        idle.send(GET)
        idle.response()
        busy.send(post("/held", b"body"))
        eventually(lambda: len(server.scopes) == 2)
        server.stop()
        assert idle.is_closed()
        server.released.set()
        status, headers, body = busy.response()
        assert (status, headers["connection"], body) == (200, "close", b"/held:body")
        assert busy.is_closed()
