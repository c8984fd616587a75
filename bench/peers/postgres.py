"""PostgreSQL from the distribution's packages, in a directory of its own, syncing as in earnest.

Its own way to do what a catalog does: read a table's head, insert the commit, compare and set the
head. There is no sequence over all tables, as ours has: its one row would have all clients queue.
"""

from __future__ import annotations

import multiprocessing
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from bench.harness import percentile
from bench.server import die_with_parent, free_port
from bench.watch import descendants

NAME = "PostgreSQL"
MISSING = "PostgreSQL: not run, its programs are missing (Debian's package postgresql)"
TRANSACTION = "transaction"  # statement by statement, as an application does it
STATEMENT = "statement"  # all in one statement: the least there can be
PSYCOPG = "psycopg"  # the transaction by psycopg's everyday calls, a process for each connection

_USER = "bench"
_START_S = 60.0
_fork = multiprocessing.get_context("fork")

_TABLES = """
CREATE TABLE heads (
    id TEXT COLLATE "C" PRIMARY KEY, head BIGINT NOT NULL, timestamp_ms BIGINT NOT NULL,
    num_files BIGINT NOT NULL, size_bytes BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE commits (
    table_id TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, txn_id TEXT COLLATE "C" NOT NULL,
    timestamp_ms BIGINT NOT NULL, sha256 BYTEA NOT NULL, summary BYTEA NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (table_id, version), UNIQUE (txn_id, table_id)
);
"""
_READ = b"SELECT head FROM heads WHERE id = $1"
_INSERT = b"INSERT INTO commits VALUES ($1, $2, $3, $4, $5, $6, $7)"
_MOVE = (
    b"UPDATE heads SET head = $2, timestamp_ms = $3, num_files = num_files + 1, "
    b"size_bytes = size_bytes + 700 WHERE id = $1 AND head = $2 - 1"
)
_ALL = (
    b"WITH moved AS (UPDATE heads SET head = $2, timestamp_ms = $4, num_files = num_files + 1, "
    b"size_bytes = size_bytes + 700 WHERE id = $1 AND head = $2 - 1 RETURNING id) "
    b"INSERT INTO commits SELECT id, $2, $3, $4, $5, $6, $7 FROM moved"
)


def programs() -> Path | None:
    """Find the newest version; the distribution does not put these programs on the path."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
    elsewhere = shutil.which("initdb")
    return None if elsewhere is None else Path(elsewhere).resolve().parent


def lacking() -> list[str]:
    """Say that it is missing, if it is."""
    return [] if programs() is not None else [MISSING]


class Postgres:
    """One server; use it in a `with`, which stops it and removes what it wrote."""

    def __init__(self, place: str) -> None:
        self._folder = _folder(Path(place))
        self.port = free_port()
        self._owner = _owner()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Postgres:
        found = programs()
        assert found is not None
        self._programs = found
        if self._owner is not None:
            shutil.chown(self._folder, self._owner)
        self._run("initdb", "-D", self._data, "-U", _USER, "--auth=trust", "--encoding=UTF8")
        with Path(self._data, "postgresql.conf").open("a") as settings:
            settings.write(
                "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
                "fsync = on\nsynchronous_commit = on\nfull_page_writes = on\n"
                "shared_buffers = 256MB\nmax_connections = 60\n"
            )
        self.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection; everything is its own transaction."""
        return psycopg.connect(self.address, autocommit=True)

    def start(self) -> None:
        """Start it and wait for nothing."""
        self._process = subprocess.Popen(
            [str(self._programs / "postgres"), "-D", self._data, "-c", f"port={self.port}"],
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("ab"),
            user=self._owner,
            group=self._group,
            cwd=self._folder,
            preexec_fn=die_with_parent,
        )

    def wait(self) -> None:
        """Wait until it accepts connections; restart it while the port or memory is in use."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                self.connect().close()
                return
            self.start_if_dead()
            time.sleep(0.002)
        raise RuntimeError((self._folder / "log").read_text()[-500:])

    def start_if_dead(self) -> None:
        """Restart it if it gave up, as it does while killed processes still use its memory."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Kill all its processes at once, as the end of its machine would."""
        process, self._process = self._process, None
        if process is None:
            return
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def prepare(self, tables: int) -> list[str]:
        """Make the tables of a catalog, and some tables in it; give their ids."""
        ids = [f"table-{number:04d}" for number in range(tables)]
        with self.connect() as connection:
            connection.execute(_TABLES)
            for table_id in ids:
                connection.execute("INSERT INTO heads VALUES (%s, 0, 0, 0, 0)", (table_id,))
        return ids

    def fill(self, table_id: str, commits: int) -> None:
        """Put a long history there at once, and have it checkpointed."""
        with self.connect() as connection:
            with connection.transaction():
                with connection.cursor().copy("COPY commits FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types(["text", "int8", "text", "int8", "bytea", "bytea", "bytea"])
                    for version in range(1, commits + 1):
                        copy.write_row((table_id, version, f"old-{version:032d}", 0, *_blobs()))
                connection.execute(
                    "UPDATE heads SET head = %s, num_files = %s WHERE id = %s",
                    (commits, commits, table_id),
                )
            connection.execute("VACUUM ANALYZE commits")
            connection.execute("CHECKPOINT")

    def commit_once(self, table_id: str, txn_id: str) -> None:
        """Connect, and commit one row as the clients do."""
        with self.connect() as connection:
            _commit(connection, table_id, txn_id)

    def checkpoint(self) -> None:
        """Leave nothing to be recovered."""
        with self.connect() as connection:
            connection.execute("CHECKPOINT")

    def each_head(self) -> list[tuple[str, int]]:
        """Return each table with its head."""
        with self.connect() as connection:
            return connection.execute("SELECT id, head FROM heads ORDER BY id").fetchall()

    def heads(self) -> int:
        """Sum up the heads of all tables."""
        with self.connect() as connection:
            [[total]] = connection.execute("SELECT sum(head) FROM heads").fetchall()
        return int(total)

    def held(self) -> set[str]:
        """Return all txnIds there are."""
        with self.connect() as connection:
            return {row[0] for row in connection.execute("SELECT txn_id FROM commits")}

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    @property
    def _group(self) -> int | None:
        return None if self._owner is None else pwd.getpwnam(self._owner).pw_gid

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._owner,
            group=self._group,
            cwd=self._folder,
        )


# Clients: psycopg's connections, asked through its own lowest calls, so that they cost as little
# as our generator's do.


class Clients:
    """Connections that are ready to commit, several to a process."""

    def __init__(
        self,
        postgres: Postgres,
        tables: Sequence[tuple[str, int]],  # with their heads
        count: int,
        way: str,
        turn: int,
        processes: int,
    ) -> None:
        processes = len(tables) if way == PSYCOPG else min(processes, len(tables))
        shares = [tables[number::processes] for number in range(processes)]
        self._running = []
        for share in shares:
            ours, theirs = _fork.Pipe()
            process = _fork.Process(
                target=_drive_plainly if way == PSYCOPG else _drive,
                args=(postgres.address, share, count, way, turn, theirs),
                daemon=True,
            )
            process.start()
            self._running.append((ours, process))
        for pipe, _ in self._running:
            assert pipe.recv() == "ready"

    def go(self) -> None:
        """Begin."""
        for pipe, _ in self._running:
            pipe.send("go")

    def wait(self) -> dict[str, Any]:
        """Wait until all is committed, or the server is gone."""
        found = [pipe.recv() for pipe, _ in self._running]
        for _, process in self._running:
            process.join()
        seconds = max(f["ended"] for f in found) - min(f["began"] for f in found)
        latencies = [latency for f in found for latency in f["latencies"]]
        return {
            "seconds": seconds,
            "acknowledged": [txn_id for f in found for txn_id in f["acknowledged"]],
            "facts": {
                "commits/s": len(latencies) / seconds,
                "p50 ms": percentile(latencies, 0.5) * 1e3,
                "p99 ms": percentile(latencies, 0.99) * 1e3,
            },
        }


class _Client:
    def __init__(self, address: str, table_id: str, head: int, count: int, way: str, turn: int):
        self._connection = psycopg.connect(address, autocommit=True)
        self._line = self._connection.pgconn
        for name, text in (("read", _READ), ("insert", _INSERT), ("move", _MOVE), ("all", _ALL)):
            self._line.prepare(name.encode(), text)
        self._table_id = table_id.encode()
        self._version = head
        self._left = count
        self._turn = turn
        self._is_whole = way == STATEMENT
        self._step = 0
        self.sent = 0.0
        self.txn_id = ""

    @property
    def socket(self) -> int:
        return self._line.socket

    def begin(self) -> bool:
        """Send the next transaction's first statement; return False if there is none."""
        if not self._left:
            return False
        self._left -= 1
        self._version += 1
        self.txn_id = f"{self._turn:04d}-{self._table_id.decode()}-{self._version:018d}"
        self._step = 0
        self.sent = time.perf_counter()
        self._send()
        return True

    def is_done(self) -> bool:
        """Read results; send the next statement, or return True after the last one."""
        self._line.consume_input()
        while not self._line.is_busy():
            result = self._line.get_result()
            if result is None:
                self._step += 1
                if self._step == (1 if self._is_whole else 5):
                    return True
                self._send()
                return False
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise RuntimeError(result.error_message.decode())
            if result.command_status in (b"UPDATE 0", b"INSERT 0 0"):
                raise RuntimeError("the version was taken")
        return False

    def _send(self) -> None:
        version, now_ms = b"%d" % self._version, b"%d" % (time.time_ns() // 1_000_000)
        row = [self._table_id, version, self.txn_id.encode(), now_ms, *_blobs()]
        formats = [pq.Format.TEXT] * 4 + [pq.Format.BINARY] * 3
        if self._is_whole:
            self._line.send_query_prepared(b"all", row, formats)
        elif self._step == 0:
            self._line.send_query(b"BEGIN")
        elif self._step == 1:
            self._line.send_query_prepared(b"read", [self._table_id])
        elif self._step == 2:
            self._line.send_query_prepared(b"insert", row, formats)
        elif self._step == 3:
            self._line.send_query_prepared(b"move", [self._table_id, version, now_ms])
        else:
            self._line.send_query(b"COMMIT")
        self._line.flush()


def _drive(
    address: str, tables: Sequence[tuple[str, int]], count: int, way: str, turn: int, pipe: Any
) -> None:
    made = [_Client(address, table_id, head, count, way, turn) for table_id, head in tables]
    clients = {client.socket: client for client in made}
    poll = select.epoll()
    for number in clients:
        poll.register(number, select.EPOLLIN)
    pipe.send("ready")
    pipe.recv()
    pipe.send(_loop(clients, poll))
    os._exit(0)  # it shares all else with its parent, and must not close it


def _drive_plainly(
    address: str, tables: Sequence[tuple[str, int]], count: int, way: str, turn: int, pipe: Any
) -> None:
    [(table_id, head)] = tables
    connection = psycopg.connect(address, autocommit=True)
    pipe.send("ready")
    pipe.recv()
    latencies: list[float] = []
    acknowledged: list[str] = []
    began = time.monotonic()
    for version in range(head + 1, head + count + 1):
        txn_id = f"{turn:04d}-{table_id}-{version:018d}"
        sent = time.perf_counter()
        _commit(connection, table_id, txn_id)
        latencies.append(time.perf_counter() - sent)
        acknowledged.append(txn_id)
    pipe.send(
        {
            "began": began,
            "ended": time.monotonic(),
            "latencies": latencies,
            "acknowledged": acknowledged,
        }
    )
    os._exit(0)  # it shares all else with its parent, and must not close it


def _commit(connection: psycopg.Connection[Any], table_id: str, txn_id: str) -> None:
    with connection.transaction():
        [[head]] = connection.execute("SELECT head FROM heads WHERE id = %s", (table_id,))
        connection.execute(
            "INSERT INTO commits VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (table_id, head + 1, txn_id, time.time_ns() // 1_000_000, *_blobs()),
        )
        moved = connection.execute(
            "UPDATE heads SET head = %s, timestamp_ms = %s, num_files = num_files + 1, "
            "size_bytes = size_bytes + 700 WHERE id = %s AND head = %s",
            (head + 1, time.time_ns() // 1_000_000, table_id, head),
        )
        assert moved.rowcount == 1


def _loop(clients: dict[int, _Client], poll: select.epoll) -> dict[str, Any]:
    latencies: list[float] = []
    acknowledged: list[str] = []
    began = time.monotonic()
    left = sum(client.begin() for client in clients.values())
    while left:
        for number, _ in poll.poll():
            client = clients[number]
            try:
                if not client.is_done():
                    continue
                latencies.append(time.perf_counter() - client.sent)
                acknowledged.append(client.txn_id)
                if client.begin():
                    continue
            except (psycopg.OperationalError, psycopg.InterfaceError, RuntimeError):
                if not acknowledged:
                    raise
            with suppress(OSError):  # libpq may have closed it by itself
                poll.unregister(number)
            left -= 1  # done, or the server is gone
    return {
        "began": began,
        "ended": time.monotonic(),
        "latencies": latencies,
        "acknowledged": acknowledged,
    }


def _blobs() -> tuple[bytes, bytes, bytes]:
    """Return a hash, a summary and a content of the sizes that a commit of one file has."""
    return b"h" * 32, b"s" * 160, b"c" * 700


def _folder(place: Path) -> Path:
    """Create the directory at `place`, or elsewhere if the server's user cannot reach that."""
    place.parent.mkdir(parents=True, exist_ok=True)
    is_open = all(parent.stat().st_mode & 0o001 for parent in place.resolve().parents)
    if not is_open and os.geteuid() == 0:
        return Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _owner() -> str | None:
    """Return the user to run the server as, if this one is root: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"
