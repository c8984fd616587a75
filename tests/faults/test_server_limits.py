"""Slow, huge and many: a server answers 408 and 413, stays small, and serves the others."""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.faults.server_harness import Writer, appending, serving, session_at
from tests.kit import shows
from tests.kit.builders import new_txn_id
from tests.kit.conditions import eventually
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]

MANY = 10_000
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server, which has a second for a body to come."""
    lake = tmp_path_factory.mktemp("limits") / "lake"
    with serving(lake, environment={"HEADGATE_REQUEST_BODY_MS": "1000"}) as running:
        with session_at(running.address) as session:
            session.create_table("t", "value long")
        yield running


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        missing = f"{wanted} open files are needed, and {hard} are allowed."
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def somebody_else(server: RunningServer) -> Iterator[Writer]:
    """Have another client write all the while, and see that it got on."""
    first = time.time_ns() // 1000
    writer = appending(server.address, "t", first)
    writer.wait_for(2)
    try:
        yield writer
        writer.wait_for(len(writer.acknowledged) + 5)
    finally:
        writer.end()


def memory_of(server: RunningServer) -> int:
    """Return how much memory the worker has, in bytes."""
    [worker] = server.workers
    status = Path(f"/proc/{worker}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def connected(server: RunningServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def head(length: int | None, path: str = "/v1/namespaces") -> bytes:
    body = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    named = "host: localhost\r\ncontent-type: application/json"
    return f"POST {path} HTTP/1.1\r\n{named}\r\n{body}\r\n\r\n".encode()


def answered(connection: socket.socket) -> int | None:
    """Read an answer's status; None when the connection ended without one."""
    status = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n" not in status:
            data = connection.recv(1 << 16)
            if not data:
                break
            status += data
    return int(status.split(b" ", 2)[1]) if status else None


def drip(connection: socket.socket, content: bytes, pause_s: float) -> int:
    """Send byte by byte until the other side has enough; say how many went."""
    connection.settimeout(pause_s)
    for sent, byte in enumerate(content):
        try:
            connection.send(bytes([byte]))
            connection.recv(1, socket.MSG_PEEK)
            return sent  # an answer, or the end, before all was sent
        except TimeoutError:
            continue
        except ConnectionError:
            return sent
    return len(content)


@shows("FS5", "L1")
def test_headers_sent_byte_by_byte_end_in_a_closed_connection(server: RunningServer) -> None:
    with somebody_else(server), connected(server) as slow:
        slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        began = time.monotonic()
        sent = drip(slow, b"x" * 500, 0.2)
        assert sent < 500
        assert time.monotonic() - began < 90
        slow.settimeout(60)
        assert answered(slow) in (None, 408)


@shows("FS5", "L1")
def test_a_body_sent_byte_by_byte_is_408_and_changes_nothing(server: RunningServer) -> None:
    body = b'{"name": "slow"}' + b" " * 984
    with somebody_else(server), connected(server) as slow:
        slow.sendall(head(len(body)))
        sent = drip(slow, body, 0.1)
        assert sent < len(body)
        slow.settimeout(60)
        assert answered(slow) == 408
    with httpx.Client(base_url=server.address) as http:
        assert "main.slow" not in http.get("/v1/namespaces").json()["namespaces"]


@shows("FS5")
def test_a_body_of_100_megabytes_is_413_before_it_is_read(server: RunningServer) -> None:
    before = memory_of(server)
    with somebody_else(server):
        for _ in range(3):
            with connected(server) as huge:
                huge.sendall(head(100 * MEGABYTE))
                huge.sendall(b"{" * 1000)
                assert answered(huge) == 413
        assert memory_of(server) - before < 48 * MEGABYTE


@shows("FS5")
def test_a_body_without_an_end_is_cut_off_at_the_limit(server: RunningServer) -> None:
    before, sent = memory_of(server), 0
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with somebody_else(server), connected(server) as huge:
        huge.sendall(head(None))
        status: int | None = None
        try:
            while sent < 200 * MEGABYTE:
                huge.sendall(chunk)
                sent += 0x10000
        except (ConnectionError, TimeoutError):
            status = answered(huge)
        # What lies in the buffers of both sides' systems was sent, and never read.
        assert sent < 100 * MEGABYTE
        assert status in (None, 413, 408)
        assert memory_of(server) - before < 96 * MEGABYTE


@shows("FS5")
def test_a_million_actions_are_refused_at_the_limit_and_the_limit_is_named(
    server: RunningServer,
) -> None:
    with httpx.Client(base_url=server.address, timeout=60) as http:
        table_id = http.get("/v1/names/t").json()["tableId"]
        latest = http.get("/v1/names/t").json()["latest"]
        lines = b'{"txn":{}}\n' * 1_000_000
        body = {
            "txnId": new_txn_id(now_ms=time.time_ns() // 1_000_000),
            "version": latest + 1,
            "content": {
                "way": "inline",
                "commitInfo": {"operation": "WRITE"},
                "actions": base64.b64encode(lines).decode(),
            },
        }
        before = memory_of(server)
        for _ in range(3):
            answer = http.post(f"/v1/tables/{table_id}/commits", json=body)
            assert answer.status_code == 413
            problem = answer.json()
            assert problem["code"] == "too-large"
            assert str(http.get("/v1/config").json()["inlineLimitBytes"]) in problem["detail"]
        assert memory_of(server) - before < 160 * MEGABYTE
        assert http.get("/v1/names/t").json()["latest"] == latest


@shows("FS5", "L1")
def test_many_idle_connections_leave_the_others_unaffected(server: RunningServer) -> None:
    _allow_files(MANY)
    before = memory_of(server)
    idle: list[socket.socket] = []
    try:
        for number in range(MANY):
            connection = connected(server)
            idle.append(connection)
            if number % 2:  # half of them have begun to say something
                connection.sendall(b"GET /health HT")
        # Who had to wait until idle ones are given up would wait for longer than this.
        with somebody_else(server), httpx.Client(base_url=server.address, timeout=8) as http:
            for _ in range(20):
                assert http.get("/v1/names/t").status_code == 200
        assert memory_of(server) - before < 256 * MEGABYTE
    finally:
        for connection in idle:
            connection.close()


STALLED = 100
BUDGET = 64 * MEGABYTE


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that may hold 64 MiB of bodies, and gives each three seconds."""
    environment = {
        "HEADGATE_BODIES_LIMIT_BYTES": str(BUDGET),
        "HEADGATE_REQUEST_BODY_MS": "3000",
    }
    with serving(tmp_path / "lake", environment=environment) as running:
        with session_at(running.address) as session:
            session.create_table("t", "value long")
        yield running


def peak_memory_of(server: RunningServer) -> int:
    """Return the most memory that the worker ever had, in bytes."""
    [worker] = server.workers
    status = Path(f"/proc/{worker}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def put_commit(http: httpx.Client, table_id: str, version: int, size: int) -> None:
    """Commit so many bytes inline."""
    lines = b'{"txn":{"appId":"%d","version":1}}\n' % version
    unknown = b'{"padding":"' + b"x" * size + b'"}\n'
    content = {
        "way": "inline",
        "commitInfo": {"operation": "WRITE"},
        "actions": base64.b64encode(lines + unknown).decode(),
    }
    body = {
        "txnId": new_txn_id(now_ms=time.time_ns() // 1_000_000),
        "version": version,
        "content": content,
    }
    assert http.post(f"/v1/tables/{table_id}/commits", json=body).status_code == 200


def push(connection: socket.socket, left: int) -> int:
    """Send what the other side takes at once; return what is left."""
    try:
        while left:
            left -= connection.send(b" " * min(left, MEGABYTE))
    except BlockingIOError:
        pass
    except ConnectionError:
        return 0
    return left


@shows("FS5", "L1")
def test_a_hundred_stalled_bodies_stay_within_the_budget_and_others_are_served(
    bounded: RunningServer,
) -> None:
    before = memory_of(bounded)
    with contextlib.ExitStack() as opened, httpx.Client(base_url=bounded.address) as http:
        stalled = [opened.enter_context(connected(bounded)) for _ in range(STALLED)]
        for connection in stalled:
            connection.sendall(head(16 * MEGABYTE))
            connection.setblocking(False)
        left = [15 * MEGABYTE] * STALLED  # the last megabyte never comes
        with somebody_else(bounded):
            statuses: dict[int, int | None] = {}
            while len(statuses) < STALLED:
                left = [push(*each) for each in zip(stalled, left, strict=True)]
                assert http.get("/v1/names/t").status_code == 200
                ready, _, _ = select.select(
                    [one for one in stalled if one.fileno() not in statuses], [], [], 0.1
                )
                for connection in ready:
                    statuses[connection.fileno()] = answered(connection)
        assert set(statuses.values()) <= {408, 429, None}
        assert 429 in statuses.values()
    assert peak_memory_of(bounded) - before < BUDGET + 32 * MEGABYTE


CLIENTS = 60


@shows("FS5", "L1")
@pytest.mark.parametrize("count", [14, 60])
def test_many_large_responses_at_once_are_made_within_the_budget_and_none_is_refused(
    bounded: RunningServer, count: int
) -> None:
    with httpx.Client(base_url=bounded.address, timeout=60) as http:
        table_id = http.get("/v1/names/t").json()["tableId"]
        for version in range(1, count + 1):
            put_commit(http, table_id, version, MEGABYTE - 1000)
        for path in (f"/v1/tables/{table_id}/commits", f"/v1/tables/{table_id}"):
            before = memory_of(bounded)
            with contextlib.ExitStack() as opened:
                readers = [opened.enter_context(connected(bounded)) for _ in range(CLIENTS)]
                for reader in readers:
                    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
                    reader.sendall(request.encode())
                with ThreadPoolExecutor(CLIENTS) as readings:
                    received = list(readings.map(received_of, readers))
                assert http.get("/v1/names/t").status_code == 200
            assert {status for status, _ in received} == {200}
            assert min(size for _, size in received) > 4 * MEGABYTE
            assert peak_memory_of(bounded) - before < BUDGET + 56 * MEGABYTE


def received_of(reader: socket.socket) -> tuple[int, int]:
    """Read a response to its end; return its status and its size."""
    first, size = b"", 0
    while data := reader.recv(1 << 16):
        first = first or data
        size += len(data)
    return int(first.split(b" ", 2)[1]), size


@shows("FS5", "L1")
def test_readers_that_take_nothing_stay_within_the_budget_and_are_cut_off(
    bounded: RunningServer,
) -> None:
    with httpx.Client(base_url=bounded.address, timeout=60) as http:
        table_id = http.get("/v1/names/t").json()["tableId"]
        for version in range(1, 6):
            put_commit(http, table_id, version, MEGABYTE - 1000)
        path = f"/v1/tables/{table_id}/commits"
        assert len(http.get(path).content) > 4 * MEGABYTE
        before = memory_of(bounded)
        with contextlib.ExitStack() as opened, somebody_else(bounded):
            readers = [opened.enter_context(connected(bounded)) for _ in range(STALLED)]
            for reader in readers:
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                reader.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
            for reader in readers:
                select.select([reader], [], [], 60)  # something came, and is left there
            eventually(lambda: "the response was cut off" in bounded.log())
            assert http.get("/v1/names/t").status_code == 200
            statuses = [answered(reader) for reader in readers]
        assert set(statuses) == {200, 429}
        assert peak_memory_of(bounded) - before < BUDGET + 56 * MEGABYTE
