"""A load generator that costs little: raw sockets, requests made beforehand, a closed loop.

Each connection sends its next request when its last was answered. A process serves several
connections by one `epoll`, so that sixteen clients do not mean sixteen interpreters that compete
with the server for the cores. What it reaches against `bench.empty` is its ceiling.
"""

from __future__ import annotations

import base64
import collections
import json
import multiprocessing
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.harness import percentile

PROCESSES = 2

_WIDTH = 12  # of a version, so that another can be put in its place
_AGAIN = (b"429", b"503")
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Plan:
    """The commits of one connection: files of its own, to one table."""

    table_id: str
    version: int  # of the first
    count: int
    first_file: int
    follows: bool = False  # aims at what the last answer says: others write to the table, too


@dataclass(slots=True)
class Loaded:
    """The results of all connections."""

    seconds: float  # from the first request to the last answer
    latencies: list[float]
    acknowledged: list[str]  # txnIds
    failed: int
    again: int  # sent once more because the server asked for it
    newest_ms: int  # the greatest timestamp in an answer
    ended_ms: int  # the clock when the last answer came
    versions: list[int] = field(default_factory=list)  # the last of each connection

    @property
    def good(self) -> int:
        return len(self.acknowledged)

    def facts(self) -> dict[str, float]:
        """Return the rate and the latencies."""
        return {
            "commits/s": self.good / self.seconds,
            "p50 ms": percentile(self.latencies, 0.5) * 1e3,
            "p99 ms": percentile(self.latencies, 0.99) * 1e3,
        }


class Generator:
    """Connections that are ready to go, in processes of their own."""

    def __init__(self, port: int, plans: Sequence[Plan], processes: int = PROCESSES) -> None:
        shares = [plans[number::processes] for number in range(min(processes, len(plans)))]
        self._running = [_start(port, share) for share in shares]
        for pipe, _ in self._running:
            assert pipe.recv() == "ready"

    def go(self) -> None:
        """Begin."""
        for pipe, _ in self._running:
            pipe.send("go")

    def wait(self) -> Loaded:
        """Wait until all requests are answered, or the server has ended."""
        found = [pipe.recv() for pipe, _ in self._running]
        for _, process in self._running:
            process.join()
        return Loaded(
            seconds=max(f["ended"] for f in found) - min(f["began"] for f in found),
            latencies=[latency for f in found for latency in f["latencies"]],
            acknowledged=[txn_id for f in found for txn_id in f["acknowledged"]],
            failed=sum(f["failed"] for f in found),
            again=sum(f["again"] for f in found),
            newest_ms=max(f["newest_ms"] for f in found),
            ended_ms=max(f["ended_ms"] for f in found),
            versions=[version for f in found for version in f["versions"]],
        )


def load(port: int, plans: Sequence[Plan], processes: int = PROCESSES) -> Loaded:
    """Prepare all commits, then send them."""
    generator = Generator(port, plans, processes)
    generator.go()
    return generator.wait()


def commit_request(
    table_id: str, txn_id: str, version: int, actions: bytes, commit_info: dict[str, object]
) -> tuple[bytearray, int]:
    """Return a request as a client sends it, and where its version stands."""
    encoded = base64.b64encode(actions).decode()
    content = {"way": "inline", "commitInfo": commit_info, "actions": encoded}
    request = json.dumps({"txnId": txn_id, "content": content}, separators=(",", ":"))
    body = f'{{"version":{version:>{_WIDTH}},{request[1:]}'.encode()
    head = (
        f"POST /v1/tables/{table_id}/commits HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\nidempotency-key: {txn_id}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    return bytearray(head + body), len(head) + len(b'{"version":')


class Line:
    """One kept connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes | bytearray) -> bytes:
        """Send a request; give the whole answer, its first line included."""
        self._socket.sendall(request)
        answer = b""
        while not is_whole(answer):
            more = self._socket.recv(1 << 20)
            if not more:
                raise ConnectionError("the server hung up")
            answer += more
        return answer

    def close(self) -> None:
        self._socket.close()


def get_request(path: str) -> bytes:
    """Return a request for reading."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def is_good(answer: bytes) -> bool:
    """Return True if an answer is a success."""
    return answer[9:12] == b"200"


def is_whole(received: bytes) -> bool:
    """Return True if an answer is complete, however its server marks the end."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return False
    headers = head.lower()
    if b"transfer-encoding: chunked" in headers:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= _number(headers, b"content-length: ")


@dataclass(slots=True)
class _Connection:
    line: socket.socket
    plan: Plan
    requests: collections.deque[tuple[bytearray, int, str]]
    sent: float = 0.0
    version: int = 0
    received: bytes = b""

    def send(self) -> None:
        request, place, _ = self.requests[0]
        if self.plan.follows and self.version:
            request[place : place + _WIDTH] = b"%*d" % (_WIDTH, self.version + 1)
        self.sent = time.perf_counter()
        self.line.send(request)


def _start(port: int, plans: Sequence[Plan]) -> tuple[Any, Any]:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=_drive, args=(port, plans, theirs), daemon=True)
    process.start()
    return ours, process


def _drive(port: int, plans: Sequence[Plan], pipe: Any) -> None:
    connections = {}
    for plan in plans:
        line = socket.create_connection(("127.0.0.1", port))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[line.fileno()] = _Connection(line, plan, _requests(plan))
    poll = select.epoll()
    for number in connections:
        poll.register(number, select.EPOLLIN)
    pipe.send("ready")
    pipe.recv()
    pipe.send(_loop(connections, poll))
    os._exit(0)  # it shares all else with its parent, and must not close it


def _loop(connections: dict[int, _Connection], poll: select.epoll) -> dict[str, Any]:
    latencies: list[float] = []
    acknowledged: list[str] = []
    failed = again = newest_ms = 0
    clock = time.perf_counter
    began = time.monotonic()
    for connection in connections.values():
        connection.send()
    left = len(connections)
    while left:
        for number, _ in poll.poll():
            connection = connections[number]
            try:
                received = connection.line.recv(65_536)
            except ConnectionError:
                received = b""
            if not received:  # the server is gone: what was under way is not known
                poll.unregister(number)
                left -= 1
                continue
            if connection.received:
                received = connection.received + received
            if not is_whole(received):
                connection.received = received
                continue
            connection.received = b""
            status = received[9:12]
            if status in _AGAIN:
                again += 1
                connection.send()
                continue
            _, _, txn_id = connection.requests.popleft()
            if status == b"200":
                latencies.append(clock() - connection.sent)
                acknowledged.append(txn_id)
                connection.version = _number(received, b'"version":')
                newest_ms = max(newest_ms, _number(received, b'"timestampMs":'))
            else:
                failed += 1
            if connection.requests:
                connection.send()
            else:
                poll.unregister(number)
                left -= 1
    return {
        "began": began,
        "ended": time.monotonic(),
        "ended_ms": time.time_ns() // 1_000_000,
        "latencies": latencies,
        "acknowledged": acknowledged,
        "failed": failed,
        "again": again,
        "newest_ms": newest_ms,
        "versions": [connection.version for connection in connections.values()],
    }


def _number(received: bytes, after: bytes) -> int:
    start = received.find(after)
    if start < 0:
        return 0
    start += len(after)
    end = start
    while received[end : end + 1].isdigit():
        end += 1
    return int(received[start:end])


def _requests(plan: Plan) -> collections.deque[tuple[bytearray, int, str]]:
    from bench.prepared import add_file, inline
    from headgate.clock import RandomIds
    from headgate.protocol.actions import encode

    ids = RandomIds()
    info = dict(inline(b"").commit_info)
    made: collections.deque[tuple[bytearray, int, str]] = collections.deque()
    for number in range(plan.count):
        txn_id = str(ids.ordered())
        actions = encode(add_file(plan.first_file + number)) + b"\n"
        request, place = commit_request(plan.table_id, txn_id, plan.version + number, actions, info)
        made.append((request, place, txn_id))
    return made
