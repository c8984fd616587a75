"""How the client reads the bytes of a server, and handles connections that break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headgate.client.http_connections import Connections, LostError, Reply
from headgate.errors import InvalidArgumentError, UnavailableError

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Scripted:
    """A server that sends prepared answers, one to each request, and notes what it was sent."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.answers: list[bytes | None] = []  # None: close the connection
        self.requests: list[bytes] = []
        self.lines: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread in `accept`
        self._listening.close()
        for line in self.lines:
            line.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                self.lines.append(line)
                threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    def _talk(self, line: socket.socket) -> None:
        with suppress(OSError):
            while request := line.recv(1 << 16):
                self.requests.append(request)
                answer = self.answers.pop(0)
                if answer is not None:
                    line.sendall(answer)
                if answer is None or not _is_kept(answer):
                    line.close()


def _is_kept(answer: bytes) -> bool:
    lowered = answer.lower()
    has_end = b"content-length" in lowered or b"chunked" in lowered or b" 204 " in lowered
    return has_end and b"close" not in lowered and b"cut" not in lowered


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()


@pytest.fixture
def sender(server: Scripted) -> Iterator[Connections]:
    connections = Connections(f"http://127.0.0.1:{server.port}/under/", connect_s=5, answer_s=5)
    yield connections
    connections.close()


def test_a_request_is_sent_in_one_piece(server: Scripted, sender: Connections) -> None:
    server.answers = [OK]
    assert sender.send("POST", "/v1/x?a=b", {"k": "v"}, b"body") == Reply(200, b"ok")
    [request] = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b"body"
    assert head.split(b"\r\n") == [
        b"POST /under/v1/x?a=b HTTP/1.1",
        f"host: 127.0.0.1:{server.port}".encode(),
        b"accept-encoding: identity",
        b"k: v",
        b"content-length: 4",
    ]


def test_a_post_without_a_body_has_a_length_and_a_get_has_none(
    server: Scripted, sender: Connections
) -> None:
    server.answers = [OK, OK]
    sender.send("DELETE", "/v1/x", {}, None)
    sender.send("GET", "/v1/x", {}, None)
    assert [b"content-length: 0" in request for request in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("answer", "reply", "lines"),
    [
        (OK, Reply(200, b"ok"), 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Reply(204, b""), 1),
        (
            b"HTTP/1.1 429 \r\nRetry-After:  7\r\nContent-Length: 0\r\n\r\n",
            Reply(429, b"", "7"),
            1,
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3;name=x\r\nabc\r\nA\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\n",
            Reply(200, b"abc0123456789"),
            1,
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Reply(200, b"ok"), 1),
        (b"HTTP/1.1 200 OK\r\n\r\nall there is", Reply(200, b"all there is"), 2),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: Close\r\n\r\nok",
            Reply(200, b"ok"),
            2,
        ),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", Reply(200, b"ok"), 2),
    ],
)
def test_an_answer_is_read_to_its_end_and_the_connection_is_reused_if_possible(
    server: Scripted, sender: Connections, answer: bytes, reply: Reply, lines: int
) -> None:
    server.answers = [answer, OK]
    assert sender.send("GET", "/", {}, None) == reply
    assert sender.send("GET", "/", {}, None) == Reply(200, b"ok")
    assert len(server.lines) == lines


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"cut",
        b"HTTP/1.1 200 OK\r\ncut",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\ncontent-length: nine\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ncut",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\ncut",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\ncut",
        b"HTTP/2 200\r\n\r\ncut",
        b"SSH-2.0-cut\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\ncut",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\ncut",
    ],
)
def test_an_incomplete_answer_is_lost_and_its_connection_is_closed(
    server: Scripted, sender: Connections, answer: bytes | None
) -> None:
    server.answers = [answer, OK]
    with pytest.raises(LostError):
        sender.send("POST", "/", {}, b"x")
    assert len(server.requests) == 1  # it was not sent again
    assert sender.send("GET", "/", {}, None) == Reply(200, b"ok")


def test_an_answer_that_takes_too_long_is_lost(server: Scripted) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nkept"]
    impatient = Connections(f"http://127.0.0.1:{server.port}", connect_s=5, answer_s=0.05)
    with pytest.raises(LostError):
        impatient.send("GET", "/", {}, None)


def test_a_connection_that_the_server_closed_is_not_used(
    server: Scripted, sender: Connections
) -> None:
    server.answers = [OK, OK]
    sender.send("GET", "/", {}, None)
    server.lines[0].shutdown(socket.SHUT_RDWR)
    assert sender.send("POST", "/", {}, b"x") == Reply(200, b"ok")
    assert len(server.lines) == 2


def test_a_port_without_a_server_is_unavailable() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        sender = Connections(f"http://127.0.0.1:{silent.getsockname()[1]}", connect_s=5, answer_s=5)
        with pytest.raises(UnavailableError):
            sender.send("POST", "/", {}, b"x")


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nx: y", "a\rb", "\u20ac"])
def test_a_header_with_a_line_break_is_refused(
    server: Scripted, sender: Connections, value: str
) -> None:
    with pytest.raises(InvalidArgumentError):
        sender.send("GET", "/", {"authorization": value}, None)
    assert not server.lines


@pytest.mark.parametrize(
    "address", ["http://", "http://u:p@host", "http://host?a=b", "http://host#x", "http://host:x"]
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Connections(address, connect_s=1, answer_s=1)
