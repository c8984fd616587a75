"""Servers in processes of their own, to be asked and to be killed: ours, and one that does nothing.

A server ends with the process that started it, in whatever way that ends.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from bench.harness import PATHS, ROOT, SideError
from bench.watch import children, descendants, process_cpu
from headgate.http.asgi import Application

HOST = "127.0.0.1"
_START_S = 60.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
# Compiled once and kept, as in an installation, also where the environment says otherwise.
_COMPILED = {
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bench" / "bytecode"),
}
_libc = ctypes.CDLL(None)


class Server:
    """A program that listens on a port; use it in a `with`, which kills it."""

    def __init__(self, *program: str, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._program = program
        self._environment = dict(environment or {})
        self._said: IO[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Server:
        self.start()
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def cpu(self) -> float:
        """Processor time of all its processes so far, in seconds."""
        assert self._process is not None
        pid = self._process.pid
        return sum(map(process_cpu, [pid, *descendants(pid)]))

    def start(self) -> None:
        """Start it and wait for nothing."""
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *self._program, "--port", str(self.port)],
            cwd=ROOT,
            env={**os.environ, **_COMPILED, "PYTHONPATH": PATHS, **self._environment},
            stdout=self._said,
            stderr=self._said,
            text=True,
            preexec_fn=die_with_parent,
        )

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _START_S
        while True:
            with suppress(OSError, http.client.HTTPException):
                ask(self.port, "GET", "/health")
                return
            self.refuse_if_dead()
            if time.monotonic() > deadline:
                raise SideError(f"it does not answer: {self._last_words()}")
            time.sleep(0.002)

    def refuse_if_dead(self) -> None:
        """Raise when the program has ended by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise SideError(f"the server ended: {self._last_words()}")

    def kill(self) -> None:
        """Kill all its processes at once; again is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        assert self._said is not None
        self._said.close()

    @property
    def workers(self) -> list[int]:
        """The processes that its first one started, which may have started others."""
        assert self._process is not None
        return children(self._process.pid)

    def _last_words(self) -> str:
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return " / ".join(lines[-3:]) or "no output"


def headgate(store: str, environment: Mapping[str, str] | None = None) -> Server:
    """Return our server on a store, as `headgate serve` runs it."""
    return Server(
        *("-m", "headgate.cli.main", "serve", "--store", store, "--log-level", "warning"),
        environment=environment,
    )


def empty() -> Server:
    """Return a server of the same make that answers everything at once, from memory."""
    return Server("-m", "bench.empty")


def serve(create: Callable[[], Application], port: int) -> None:
    """Serve an application as a worker of `headgate serve` does, until killed."""
    from headgate.http import worker
    from headgate.http.connection import Limits

    die_with_parent()
    with socket.create_server((HOST, port), backlog=worker.BACKLOG) as listening:
        listening.setblocking(False)
        worker.run(listening, create, Limits(), stop_s=1.0)


def ask(
    port: int, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Any:
    """Send a request on a connection of its own; raise if the answer is not a success."""
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    try:
        if body is None:
            connection.request(method, path, headers=dict(headers or {}))
        else:
            kind = {"content-type": "application/json"}
            connection.request(method, path, json.dumps(body), {**kind, **(headers or {})})
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        raise SideError(f"{method} {path}: {answer.status} {raw[:300]!r}")
    return json.loads(raw) if raw else None


def publish_all(port: int, tables: Sequence[str]) -> None:
    """Have everything published, so that nothing of one turn goes on in the next."""
    for table_id in tables:
        ask(port, "POST", f"/v1/tables/{table_id}/publication", {})


@contextmanager
def serving_tables(store: str, count: int) -> Iterator[tuple[Server, list[str]]]:
    """Run our server with so many tables; give it with the tables' ids."""
    from bench.ours import NAME, connect
    from bench.prepared import SCHEMA

    with headgate(store) as server:
        with connect(server.address) as session:
            made = [
                session.create_table(f"{NAME}{number}", SCHEMA, partition_by=["day"])
                for number in range(count)
            ]
            tables: list[str] = [table.id for table in made]
        publish_all(server.port, tables)
        yield server, tables


def free_port() -> int:
    """Find a free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Have this process killed when the one that started it is gone."""
    _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
