"""A stock client of `delta/v1` that costs little: it makes tables, and commits in a closed loop.

It writes every staged file itself, and copies it into the log when the commit is answered, as
engines do; files of data are there, and all are one. Nothing of ours is asked for: any server of
the dialect will do.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import percentile
from bench.server import ask

API = "/api/2.1/unity-catalog"
_COLUMNS = [("id", "long"), ("day", "string"), ("amount", "double"), ("name", "string")]
_TAKEN = b"409"
_ONE_FILE = "one.parquet"
_DATA = bytes(1_000)


@dataclass(frozen=True, slots=True)
class Place:
    """A schema on a server."""

    port: int
    catalog: str
    schema: str = "default"

    @property
    def path(self) -> str:
        return f"{API}/delta/v1/catalogs/{self.catalog}/schemas/{self.schema}"

    @classmethod
    def at(cls, url: str, catalog: str) -> Place:
        """Read an address such as http://127.0.0.1:8080."""
        return cls(urllib.parse.urlsplit(url).port or 80, catalog)


@dataclass(slots=True)
class StockTable:
    """A table that a stock client made, and how far it is."""

    place: Place
    name: str
    id: str
    log: Path
    base_ms: int  # of version 0; each version is a millisecond later
    head: int = 0  # the newest version known to be taken
    published: int = 0  # up to there all are in the log
    _ahead: set[int] = field(default_factory=set)

    def publish(self, version: int, staged: Path) -> None:
        """Copy a commit into the log; answers may come in another order than versions have."""
        _publish(staged, self.log / f"{version:020d}.json")
        self._ahead.add(version)
        while self.published + 1 in self._ahead:
            self.published += 1
            self._ahead.remove(self.published)

    @property
    def path(self) -> str:
        return f"{self.place.path}/tables/{self.name}"


def create(place: Place, name: str) -> StockTable:
    """Make a table as engines do: ask for a place, write version 0, create it."""
    staged = ask(place.port, "POST", f"{place.path}/staging-tables", {"name": name}, _JSON)
    needed = staged["required-protocol"]
    properties = {key: value for key, value in staged["required-properties"].items() if value}
    log = Path(urllib.parse.urlsplit(staged["location"]).path) / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True, exist_ok=True)
    (log.parent / _ONE_FILE).write_bytes(_DATA)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _COLUMNS]
    columns = {"type": "struct", "fields": fields}
    base_ms = time.time_ns() // 1_000_000 - 3_600_000  # so that no version is ahead of the clock
    protocol = {
        "minReaderVersion": needed["min-reader-version"],
        "minWriterVersion": needed["min-writer-version"],
        "readerFeatures": needed["reader-features"],
        "writerFeatures": needed["writer-features"],
    }
    metadata = {
        "id": staged["table-id"],
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": ["day"],
        "configuration": properties,
        "createdTime": base_ms,
    }
    _write(log / f"{0:020d}.json", _content(base_ms, {"protocol": protocol, "metaData": metadata}))
    ask(
        place.port,
        "POST",
        f"{place.path}/tables",
        {
            "name": name,
            "location": staged["location"],
            "table-type": "MANAGED",
            "columns": columns,
            "protocol": needed,
            "properties": properties,
            "partition-columns": ["day"],
            "last-commit-timestamp-ms": base_ms,
        },
        _JSON,
    )
    return StockTable(place, name, staged["table-id"], log, base_ms)


def load_request(table: StockTable) -> bytes:
    """Give the request that loads a table."""
    return f"GET {table.path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


@dataclass(slots=True)
class Committed:
    """What came of a turn."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    taken: int = 0  # answers that said another was first
    failed: list[bytes] = field(default_factory=list)

    def facts(self) -> dict[str, float]:
        """Tell the rate, the latencies and how many tries were lost to others."""
        good = len(self.latencies)
        return {
            "commits/s": good / self.seconds,
            "p50 ms": percentile(self.latencies, 0.5) * 1e3,
            "p99 ms": percentile(self.latencies, 0.99) * 1e3,
            "409 in 100 answers": 100 * self.taken / max(1, good + self.taken),
        }


def commit_all(
    tables: Sequence[StockTable], clients: int, count: int, *, publishes: bool = True
) -> Committed:
    """Commit so often on each of so many connections, which share the tables in turn."""
    connections = {}
    for number in range(clients if count else 0):
        connection = _Connection(tables[number % len(tables)], count, publishes=publishes)
        connections[connection.line.fileno()] = connection
    poll = select.epoll()
    for number in connections:
        poll.register(number, select.EPOLLIN)
    found = Committed(0.0)
    began = time.perf_counter()
    for connection in connections.values():
        connection.send()
    left = len(connections)
    while left:
        for number, _ in poll.poll():
            connection = connections[number]
            if not connection.receive():
                continue
            connection.settle(found)
            if connection.left:
                connection.send()
            else:
                poll.unregister(number)
                connection.line.close()
                left -= 1
    found.seconds = time.perf_counter() - began
    return found


class _Connection:
    """One client: its next commit goes out when the last one was answered."""

    def __init__(self, table: StockTable, count: int, *, publishes: bool) -> None:
        self.line = socket.create_connection(("127.0.0.1", table.place.port))
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = count
        self._publishes = publishes
        self._table = table
        self._received = b""
        self._sent = 0.0
        self._version = 0
        self._staged = Path()

    def send(self) -> None:
        """Stage the version after the newest one known, and propose it."""
        table = self._table
        self._version = table.head + 1
        timestamp_ms = table.base_ms + self._version
        name = f"{self._version:020d}.{uuid.uuid4()}.json"
        self._staged = table.log / "_staged_commits" / name
        added = _added(self._version)
        os.link(table.log.parent / _ONE_FILE, table.log.parent / added["path"])
        content = _content(timestamp_ms, {"add": added})
        _write(self._staged, content)
        body = _body(
            {
                "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
                "updates": [
                    {
                        "action": "add-commit",
                        "commit": {
                            "version": self._version,
                            "timestamp": timestamp_ms,
                            "file-name": name,
                            "file-size": len(content),
                            "file-modification-timestamp": timestamp_ms,
                        },
                    },
                    {
                        "action": "set-latest-backfilled-version",
                        "latest-published-version": table.published,
                    },
                ],
            }
        )
        head = (
            f"POST {table.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._sent = time.perf_counter()
        self.line.sendall(head.encode() + body)

    def receive(self) -> bool:
        """Take what came; say whether the answer is whole."""
        more = self.line.recv(1 << 20)
        if not more:
            raise ConnectionError("the server hung up")
        self._received += more
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return False
        headers = head.lower()
        if b"transfer-encoding: chunked" in headers:
            return body.endswith(b"0\r\n\r\n")
        length = headers.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        return len(body) >= int(length or 0)

    def settle(self, found: Committed) -> None:
        """Publish what was ratified; try again what another was quicker with."""
        status, answer, self._received = self._received[9:12], self._received, b""
        table = self._table
        if status == b"200":
            found.latencies.append(time.perf_counter() - self._sent)
            if self._publishes:
                table.publish(self._version, self._staged)
            table.head = max(table.head, self._version)
            self.left -= 1
        elif status == _TAKEN:
            found.taken += 1
            self._staged.unlink()
            table.head = max(table.head, self._version)
        else:
            found.failed.append(answer)
            self.left = 0


_JSON: Mapping[str, str] = {"content-type": "application/json"}


def _content(timestamp_ms: int, actions: Mapping[str, Any]) -> bytes:
    said = {
        "inCommitTimestamp": timestamp_ms,
        "timestamp": timestamp_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": True,
        "engineInfo": "bench",
        "txnId": str(uuid.uuid4()),
    }
    lines = [{"commitInfo": said}, *({kind: action} for kind, action in actions.items())]
    return b"".join(_body(line) + b"\n" for line in lines)


def _added(number: int) -> dict[str, Any]:
    return {
        "path": f"part-{number % 200:05d}-{uuid.uuid4()}.c000.snappy.parquet",
        "partitionValues": {"day": f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}"},
        "size": len(_DATA),
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": '{"numRecords":1000}',
    }


def _body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _publish(staged: Path, published: Path) -> None:
    """Copy a commit into the log; the server may have been quicker."""
    temporary = staged.with_suffix(".tmp")
    temporary.write_bytes(staged.read_bytes())
    try:
        os.link(temporary, published)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
