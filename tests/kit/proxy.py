"""TCP proxies that lose, duplicate, cut and delay.

`HttpProxy` reads whole requests and asks a plan, a function of the request, what to do with each.
`ByteProxy` passes bytes on and can cut a connection when it sees a pattern, before or after passing
it on.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.kit.conditions import PATIENCE_S


class Fault(enum.Enum):
    """What may happen to a request."""

    PASS = "pass"
    DROP_BEFORE = "drop before"  # the server never sees it
    DROP_AFTER = "drop after"  # done, and the answer is lost
    CUT_BODY = "cut body"  # the server sees half of it
    CUT_ANSWER = "cut answer"  # the client sees half of it
    DOUBLE = "double"  # two copies at the same time; one answer comes back
    DELAY = "delay"
    ANSWER_500 = "answer 500"  # by the proxy itself: the server never sees it
    ANSWER_503 = "answer 503"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as received."""

    number: int  # from 1
    method: str
    path: str
    raw: bytes
    head: int  # how many of the bytes are its head


Plan = Callable[[Request], Fault]


def passing(_: Request) -> Fault:
    return Fault.PASS


class _Proxy:
    """Handles each connection in a thread of its own."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):  # type: ignore[no-untyped-def]  # the kind it is called on
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        _end(self._listening)  # a shutdown wakes the thread in `accept`; a close does not
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection, now."""
        with self._lock:
            for connection in self._open:
                _end(connection)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._keep(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                self._handle(client)
        finally:
            self._forget(client)

    def _handle(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _connect(self) -> socket.socket:
        server = socket.create_connection(self.target, timeout=60)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._keep(server)
        return server

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        _end(connection)


class HttpProxy(_Proxy):
    """Treats each request as its plan says."""

    def __init__(self, target: tuple[str, int], plan: Plan = passing, delay_s: float = 0.2) -> None:
        self.plan = plan
        self.seen: list[tuple[Request, Fault]] = []
        self.answered: list[tuple[Request, int]] = []  # statuses, lost answers included
        self._delay_s = delay_s
        super().__init__(target)

    def _handle(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            while True:
                got = _message(client)
                if got is None:
                    return
                request, fault = self._planned(*got)
                if server is None:
                    server = self._connect()
                answer = self._carried_out(request, fault, server)
                if answer is None:
                    return
                client.sendall(answer)
                if fault is Fault.CUT_ANSWER:
                    return
        finally:
            if server is not None:
                self._forget(server)

    def statuses(self, method: str, ending: str) -> list[int]:
        """Return what the server answered to one kind of request, in order."""
        return [
            status
            for request, status in self.answered
            if request.method == method and request.path.endswith(ending)
        ]

    def _planned(self, raw: bytes, head: int) -> tuple[Request, Fault]:
        method, path, *_ = raw.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        with self._lock:
            request = Request(len(self.seen) + 1, method, path, raw, head)
            fault = self.plan(request)
            self.seen.append((request, fault))
        return request, fault

    def _carried_out(self, request: Request, fault: Fault, server: socket.socket) -> bytes | None:
        """Return the answer for the client; None ends the connection."""
        match fault:
            case Fault.DROP_BEFORE:
                return None
            case Fault.CUT_BODY:
                server.sendall(request.raw[: (request.head + len(request.raw)) // 2])
                return None
            case Fault.ANSWER_500 | Fault.ANSWER_503:
                status = fault.value.partition(" ")[2]
                return f"HTTP/1.1 {status} Proxy\r\ncontent-length: 0\r\n\r\n".encode()
            case Fault.DELAY:
                time.sleep(self._delay_s)
            case Fault.DOUBLE:
                twin = threading.Thread(target=self._twin, args=(request.raw,), daemon=True)
                twin.start()
            case _:
                pass
        server.sendall(request.raw)
        answer = _message(server)
        if answer is None:
            return None
        self.answered.append((request, int(answer[0].split(b" ", 2)[1])))
        if fault is Fault.DROP_AFTER:
            return None
        return answer[0][: len(answer[0]) // 2] if fault is Fault.CUT_ANSWER else answer[0]

    def _twin(self, raw: bytes) -> None:
        with contextlib.suppress(OSError):
            server = self._connect()
            try:
                server.sendall(raw)
                _message(server)
            finally:
                self._forget(server)


@dataclass(slots=True)
class Cut:
    """Cut a connection when the client sends these bytes."""

    pattern: bytes
    is_passed_on: bool  # the server still gets them; its answer is lost
    waits_for_answer: bool = False  # the client's connection ends only when the server answered
    times: int = 1
    done: int = 0


class ByteProxy(_Proxy):
    """Passes bytes both ways, and cuts a connection on request."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.cut: Cut | None = None
        super().__init__(target)

    def _handle(self, client: socket.socket) -> None:
        server = self._connect()
        is_cut, has_answered = threading.Event(), threading.Event()
        back = threading.Thread(
            target=self._pass_back, args=(server, client, is_cut, has_answered), daemon=True
        )
        back.start()
        try:
            while data := client.recv(1 << 16):
                cut = self.cut
                if cut is not None and cut.done < cut.times and cut.pattern in data:
                    cut.done += 1
                    if cut.is_passed_on:
                        is_cut.set()  # the answer must not reach the client
                        if not cut.waits_for_answer:
                            _end(client)
                        server.sendall(data)
                        has_answered.wait(PATIENCE_S)
                    return
                server.sendall(data)
        finally:
            self._forget(server)

    def _pass_back(
        self,
        server: socket.socket,
        client: socket.socket,
        is_cut: threading.Event,
        has_answered: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if is_cut.is_set():
                    break
                client.sendall(data)
        has_answered.set()
        _end(client)


def _message(connection: socket.socket) -> tuple[bytes, int] | None:
    """Read one request or answer whole; None when the other side ended."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        data = connection.recv(1 << 16)
        if not data:
            return None
        raw += data
    head = raw.index(b"\r\n\r\n") + 4
    length = 0
    for line in raw[:head].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(raw) < head + length:
        data = connection.recv(1 << 16)
        if not data:
            return None
        raw += data
    return raw, head


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()
