"""What clients of other languages do to HTTP, sent to a real server as bytes."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.http.unity.conftest import BASE, Stock, add_commit, make
from tests.kit import req, shows
from tests.kit.builders import add
from tests.kit.server import RunningServer

pytestmark = pytest.mark.slow
COMMITS = f"{BASE}/delta/preview/commits"
# What the JDK's client sends with every request while it hopes for HTTP/2.
UPGRADE = (
    "Connection: Upgrade, HTTP2-Settings\r\n"
    "Upgrade: h2c\r\n"
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    lake = tmp_path_factory.mktemp("served") / "lake"
    environment = {"HEADGATE_VERIFY_STAGED": "0"}
    with RunningServer(str(lake), environment=environment) as running:
        yield running


@pytest.fixture
def table(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Stock]:
    with httpx.Client(base_url=server.address, timeout=30) as http:
        yield make(http, request.node.name.replace("[", "_").replace("]", "_")[:100])


def exchanged(server: RunningServer, raw: bytes) -> tuple[int, bytes]:
    """Send bytes, and read one answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        line.sendall(raw)
        received = b""
        while b"\r\n\r\n" not in received:
            received += line.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        [length] = [
            int(row.partition(b":")[2])
            for row in head.split(b"\r\n")
            if row.lower().startswith(b"content-length")
        ]
        while len(body) < length:
            body += line.recv(65536)
    return int(head.split(b" ")[1]), body


def request(method: str, path: str, body: Any, more: str = "", *, chunked: bool = False) -> bytes:
    raw = json.dumps(body).encode()
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(raw)}"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer \r\n{more}{length}\r\n\r\n"
    )
    if chunked:
        half = len(raw) // 2
        pieces = [raw[:half], raw[half:], b""]
        return head.encode() + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)
    return head.encode() + raw


def test_a_body_sent_with_an_upgrade_to_http_2_is_read(server: RunningServer, table: Stock) -> None:
    body = table.change(add_commit(table.put(1)))
    status, answer = exchanged(server, request("POST", table.url, body, UPGRADE))
    assert (status, json.loads(answer)["latest-table-version"]) == (200, 1)
    older = {
        "table_id": table.table_id,
        "table_uri": table.location,
        "commit_info": {key.replace("-", "_"): v for key, v in table.put(2).items()},
    }
    assert exchanged(server, request("POST", COMMITS, older, UPGRADE)) == (200, b"200")


@pytest.mark.parametrize("more", ["", UPGRADE], ids=["plain", "upgrade"])
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
def test_the_body_of_a_get_is_read(
    server: RunningServer, table: Stock, more: str, chunked: bool
) -> None:
    assert table.commit(1).status_code == 200
    body = {"table_id": table.table_id, "table_uri": table.location, "start_version": 1}
    status, answer = exchanged(server, request("GET", COMMITS, body, more, chunked=chunked))
    assert status == 200
    assert [commit["version"] for commit in json.loads(answer)["commits"]] == [1]


def test_every_letter_of_a_path_may_be_escaped(server: RunningServer, table: Stock) -> None:
    escaped = "".join(f"%{ord(letter):02X}" for letter in table.name)
    path = table.url.replace(table.name, escaped)
    assert urllib.parse.unquote(path) == table.url
    status, answer = exchanged(server, request("GET", path, None))
    assert status == 200
    assert json.loads(answer)["metadata"]["table-uuid"] == table.table_id
    older = f"{BASE}/tables/main%2Edefault%2E{escaped}"
    assert exchanged(server, request("GET", older, None))[0] == 200


def test_head_has_no_body_and_the_connection_goes_on(server: RunningServer, table: Stock) -> None:
    with httpx.Client(base_url=server.address) as http:
        assert http.head(table.url).status_code == 204
        assert http.head(f"{table.url}-none").status_code == 404
        assert http.get(table.url).status_code == 200


@req("CM-12")
@shows("FX23")
@pytest.mark.faults
@pytest.mark.parametrize("dialect", ["v1", "preview"])
def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(
    server: RunningServer, table: Stock, dialect: str
) -> None:
    def sent(version: int) -> httpx.Response:
        put = table.put(version)
        if dialect == "v1":
            return table.send(table.change(add_commit(put)))
        snake = {key.replace("-", "_"): value for key, value in put.items()}
        body = {"table_id": table.table_id, "table_uri": table.location, "commit_info": snake}
        return table.http.post(COMMITS, json=body)

    acknowledged = 0
    for round_number in range(4):
        stop = threading.Timer(0.1 + 0.1 * round_number, server.kill)
        stop.start()
        version = acknowledged + 1
        with contextlib.suppress(httpx.TransportError):
            while True:
                answer = sent(version)
                assert answer.status_code == 200, answer.text
                acknowledged = version
                version += 1
        stop.join()
        server.start()
        latest = table.load()["latest-table-version"]
        # What was under way may have been committed; its answer is all that was lost.
        assert acknowledged <= latest <= acknowledged + 1
        acknowledged = latest
    assert acknowledged > 0
    assert sent(acknowledged + 1).status_code == 200


@req("CM-10", "CM-11")
def test_sixteen_writers_of_one_table_are_told_at_once_and_none_is_left_behind(
    server: RunningServer, table: Stock
) -> None:
    """Each try writes a new file under the same transaction id, as stock clients do."""
    writers, commits = 16, 4

    def write(number: int) -> list[int]:
        """Return how many tries each commit took."""
        tries_of = []
        with httpx.Client(base_url=server.address, timeout=30) as http:
            mine = replace(table, http=http)
            version = 1
            for turn in range(commits):
                action, txn_id = add(f"{number}-{turn}.parquet"), str(uuid.uuid4())
                tries_of.append(1)
                while (answer := mine.commit(version, action, txn_id=txn_id)).status_code != 200:
                    tries_of[-1] += 1
                    assert answer.status_code == 409, answer.text
                    loaded = mine.load()
                    assert loaded["latest-table-version"] >= version  # it was taken
                    version = loaded["latest-table-version"] + 1
                    mine.timestamp_ms = max(mine.timestamp_ms, loaded["commits"][0]["timestamp"])
                version += 1
        return tries_of

    with ThreadPoolExecutor(writers) as pool:
        tries = [count for tries_of in pool.map(write, range(writers)) for count in tries_of]
    assert table.load()["latest-table-version"] == writers * commits
    # A writer that lost three times has its turn after those before it, and loses to none twice.
    assert max(tries) <= 3 + writers
    assert max(tries) > 1
