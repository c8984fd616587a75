"""A stock client of `delta/v1` that costs little: it makes tables, and commits in a closed loop.

Staged files are written, synced and described in requests before the clock starts; what is left in
the loop is what the protocol asks of a client between two commits: to put the last one into the
log. Files of data are there, and all are one. Nothing of ours is asked for: any server of the
dialect will do. What it reaches against `bench.empty` is its ceiling.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
import urllib.parse
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import SAMPLES_FOR_P99, SideError, percentile
from bench.load import Line, get_request, is_good, is_whole
from bench.server import ask

API = "/api/2.1/unity-catalog"
_COLUMNS = (("id", "long"), ("day", "string"), ("amount", "double"), ("name", "string"))
_TAKEN = b"409"
_PATIENCE = 100  # answers in a row that are neither success nor 409, before giving up
_SILENCE_S = 60.0
_ONE_FILE = "one.parquet"
_DATA = bytes(1_000)
_WIDTH = 12  # of a version, so that another can be put in its place


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


@dataclass(frozen=True, slots=True)
class Try:
    """A prepared commit: its file is staged and its request made."""

    staged: Path
    request: bytearray
    place: int  # where the request says how far the log is published

    def claim(self, published: int) -> bytearray:
        """Set the published version in the request and return it."""
        self.request[self.place : self.place + _WIDTH] = b"%*d" % (_WIDTH, published)
        return self.request


@dataclass(slots=True)
class StockTable:
    """A table that a stock client created, and its latest version."""

    place: Place
    name: str
    id: str
    log: Path
    base_ms: int  # of version 0; each version is a millisecond later
    head: int = 0  # the newest version known to be taken
    published: int = 0  # all up to this one are in the log
    _ahead: set[int] = field(default_factory=set)

    @property
    def path(self) -> str:
        return f"{self.place.path}/tables/{self.name}"

    def stage(self, version: int) -> Try:
        """Write a commit of one file that may become a version, and the request for it."""
        timestamp_ms = self.base_ms + version
        name = f"{version:020d}.{uuid.uuid4()}.json"
        staged = self.log / "_staged_commits" / name
        added = _added(self.id, version)
        with suppress(FileExistsError):  # of all that try for a version one will have it
            os.link(self.log.parent / _ONE_FILE, self.log.parent / added["path"])
        content = _content(timestamp_ms, {"add": added})
        staged.write_bytes(content)
        commit = {
            "version": version,
            "timestamp": timestamp_ms,
            "file-name": name,
            "file-size": len(content),
            "file-modification-timestamp": timestamp_ms,
        }
        return Try(staged, *_commit_request(self, commit))

    def publish(self, version: int, staged: Path) -> None:
        """Publish a commit; answers may arrive in another order than versions."""
        with suppress(FileExistsError):  # the server may have been quicker
            os.link(staged, self.log / f"{version:020d}.json")
        if version > self.published:
            self._ahead.add(version)
        while self.published + 1 in self._ahead:
            self.published += 1
            self._ahead.remove(self.published)


def create(
    place: Place,
    name: str,
    columns: Sequence[tuple[str, str]] = _COLUMNS,
    partitioned_by: Sequence[str] = ("day",),
) -> StockTable:
    """Create a table as engines do: request a staging table, write version 0, create it."""
    staged = ask(place.port, "POST", f"{place.path}/staging-tables", {"name": name})
    needed = staged["required-protocol"]
    properties = {key: value for key, value in staged["required-properties"].items() if value}
    log = Path(urllib.parse.urlsplit(staged["location"]).path) / "_delta_log"
    _furnish(log)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    schema = {"type": "struct", "fields": fields}
    base_ms = _base_ms()
    protocol = {
        "minReaderVersion": needed["min-reader-version"],
        "minWriterVersion": needed["min-writer-version"],
        "readerFeatures": needed["reader-features"],
        "writerFeatures": needed["writer-features"],
    }
    metadata = {
        "id": staged["table-id"],
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partitioned_by),
        "configuration": properties,
        "createdTime": base_ms,
    }
    first = _content(base_ms, {"protocol": protocol, "metaData": metadata})
    (log / f"{0:020d}.json").write_bytes(first)
    ask(
        place.port,
        "POST",
        f"{place.path}/tables",
        {
            "name": name,
            "location": staged["location"],
            "table-type": "MANAGED",
            "columns": schema,
            "protocol": needed,
            "properties": properties,
            "partition-columns": list(partitioned_by),
            "last-commit-timestamp-ms": base_ms,
        },
    )
    return StockTable(place, name, staged["table-id"], log, base_ms)


def pretend(place: Place, name: str, folder: Path) -> StockTable:
    """Create the files of a table, for a server that accepts everything."""
    log = folder / name / "_delta_log"
    _furnish(log)
    return StockTable(place, name, str(uuid.uuid4()), log, _base_ms())


def drop(table: StockTable) -> None:
    """Drop a table, so that clients that list tables, such as DuckDB, do not see it."""
    ask(table.place.port, "DELETE", table.path)


def load_request(table: StockTable) -> bytes:
    """Return the request that loads a table."""
    return get_request(table.path)


def listed(table: StockTable) -> int:
    """Count the commits that a server lists as not published."""
    return len(ask(table.place.port, "GET", table.path)["commits"])


def warm_up(make: Callable[[], StockTable], clients: int, requests: int) -> None:
    """Send requests, half commits and half loads: a JVM compiles what it runs often.

    The tables are dropped: those that are measured afterwards are others.
    """
    tables = [make() for _ in range(clients)]
    with Turn(tables, clients, max(1, requests // 2 // clients)) as turn:
        turn.go()
    line, request = Line(tables[0].place.port), load_request(tables[0])
    for _ in range(requests // 2):
        answer = line.ask(request)
        if not is_good(answer):
            raise SideError(f"GET {tables[0].path}: {answer[:300]!r}")
    line.close()
    for table in tables:
        drop(table)


@dataclass(slots=True)
class Committed:
    """The outcome of a turn."""

    seconds: float = 0.0
    latencies: list[float] = field(
        default_factory=list
    )  # until it was ratified, lost tries included
    taken: int = 0  # answers 409: another client was first
    failed: list[bytes] = field(default_factory=list)  # answers that are neither success nor 409
    in_vain: int = 0  # of these the last ones, after the last commit

    @property
    def requests(self) -> int:
        return len(self.latencies) + self.taken + len(self.failed)

    def facts(self) -> dict[str, float]:
        """Return the rates, the latencies and the share of tries that others won."""
        facts = {
            "commits/s": len(self.latencies) / self.seconds,
            "requests/s": self.requests / self.seconds,
            "p50 ms": percentile(self.latencies, 0.5) * 1e3,
        }
        if len(self.latencies) >= SAMPLES_FOR_P99:
            facts["p99 ms"] = percentile(self.latencies, 0.99) * 1e3
        return facts | {"409 in 100 answers": 100 * self.taken / self.requests}


class Turn:
    """A number of commits on each table, prepared; use it in a `with`, which cleans up.

    Clients share the tables in turn. Who shares one tries for each of its versions, until all are
    taken; so each has a file staged for each.
    """

    def __init__(
        self, tables: Sequence[StockTable], clients: int, count: int, *, publishes: bool = True
    ) -> None:
        upto = {table.id: table.head + count for table in tables}
        shared = [tables[number % len(tables)] for number in range(clients)]
        self._clients = [_Client(table, upto[table.id], publishes=publishes) for table in shared]
        os.sync()  # what is written in the turn is then what the turn is about

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.end()

    def go(self) -> Committed:
        """Commit all of it."""
        clients = {client.line.fileno(): client for client in self._clients if not client.is_done}
        poll = select.epoll()
        for number in clients:
            poll.register(number, select.EPOLLIN)
        found = Committed()
        began = time.perf_counter()
        for client in clients.values():
            client.send()
        left = len(clients)
        while left:
            ready = poll.poll(_SILENCE_S)
            if not ready:
                raise SideError(f"{left} requests were not answered in {_SILENCE_S:.0f} s")
            for number, _ in ready:
                client = clients[number]
                if not client.receive():
                    continue
                client.settle(found)
                if not client.is_done:
                    client.send()
                else:
                    poll.unregister(number)
                    left -= 1
        found.seconds = time.perf_counter() - began
        poll.close()
        return found


class _Client:
    """One connection: its next request goes out when the last one was answered."""

    def __init__(self, table: StockTable, upto: int, *, publishes: bool) -> None:
        self._table = table
        self._upto = upto
        self._publishes = publishes
        self._tries = {version: table.stage(version) for version in range(table.head + 1, upto + 1)}
        self._received = b""
        self._version = 0  # that it tries for
        self._began: float | None = None  # when it tried for the first time since its last commit
        self.line = socket.create_connection(("127.0.0.1", table.place.port))
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_done(self) -> bool:
        return self._table.head >= self._upto

    def send(self) -> None:
        """Propose the version after the newest one known."""
        self._version = self._table.head + 1
        request = self._tries[self._version].claim(self._table.published)
        if self._began is None:
            self._began = time.perf_counter()
        self.line.sendall(request)

    def receive(self) -> bool:
        """Read what arrived; return True if the answer is complete."""
        more = self.line.recv(1 << 20)
        if not more:
            raise SideError("the server hung up")
        self._received += more
        return is_whole(self._received)

    def settle(self, found: Committed) -> None:
        """Publish ratified commits; propose again where another client was first."""
        answer, self._received = self._received, b""
        table = self._table
        if is_good(answer):
            assert self._began is not None
            found.latencies.append(time.perf_counter() - self._began)
            self._began, found.in_vain = None, 0
            staged = self._tries.pop(self._version).staged
            if self._publishes:
                table.publish(self._version, staged)
        elif answer[9:12] == _TAKEN:
            found.taken += 1
        else:
            found.failed.append(answer)
            found.in_vain += 1
            if found.in_vain > _PATIENCE:
                raise SideError(f"POST {table.path}: {answer[:300]!r}")
            return
        table.head = max(table.head, self._version)

    def end(self) -> None:
        """Close the connections, and remove what was staged and not ratified."""
        self.line.close()
        for left in self._tries.values():
            left.staged.unlink()


def _furnish(log: Path) -> None:
    (log / "_staged_commits").mkdir(parents=True, exist_ok=True)
    (log.parent / _ONE_FILE).write_bytes(_DATA)


def _base_ms() -> int:
    return time.time_ns() // 1_000_000 - 3_600_000  # so that no version is ahead of the clock


def _commit_request(table: StockTable, commit: Mapping[str, object]) -> tuple[bytearray, int]:
    """Return a request as engines send it, and the position of its published version."""
    unknown = int("9" * _WIDTH)
    body = _body(
        {
            "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
            "updates": [
                {"action": "add-commit", "commit": commit},
                {"action": "set-latest-backfilled-version", "latest-published-version": unknown},
            ],
        }
    )
    head = (
        f"POST {table.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    return bytearray(head + body), len(head) + body.rindex(b"%d" % unknown)


def _content(timestamp_ms: int, actions: Mapping[str, Any]) -> bytes:
    commit_info = {
        "inCommitTimestamp": timestamp_ms,
        "timestamp": timestamp_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": True,
        "engineInfo": "bench",
        "txnId": str(uuid.uuid4()),
    }
    lines = [{"commitInfo": commit_info}, *({kind: action} for kind, action in actions.items())]
    return b"".join(_body(line) + b"\n" for line in lines)


def _added(table_id: str, number: int) -> dict[str, Any]:
    return {
        "path": f"part-{number:05d}-{table_id}.c000.snappy.parquet",
        "partitionValues": {"day": f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}"},
        "size": len(_DATA),
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": '{"numRecords":1000}',
    }


def _body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
