"""A real PostgreSQL from the distribution's packages, for as long as the tests run.

It listens on a loopback port of its own, syncs as in earnest, and orders text by a language, so
that nothing can rely on the order of bytes unless it asks for it. It stops when the process that
started it ends.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

MISSING = "PostgreSQL is missing: install Debian's package postgresql (`make test` does)."
USER = "headgate"
_START_SECONDS = 60

# Waits for the end of its input, which comes when the tests end in whatever way, and cleans up.
_WATCH = """
read -r _
kill -QUIT "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    test -e "$1/data/postmaster.pid" || break
    sleep 0.2
done
rm -rf "$1"
"""


class Postgres:
    """One server with a directory of its own."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._owner = _owner()
        self._numbers = itertools.count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
        self.port = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what interrupts the tests does not interrupt it
        )
        try:
            if self._owner is not None:
                shutil.chown(self.folder, self._owner, self._owner)
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """Make an empty database; give its address."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} {options}".encode())
        return self.address(name)

    @contextmanager
    def schema(self) -> Iterator[str]:
        """Give a name that no schema has; what was made under it goes at the end."""
        name = f"test_{next(self._numbers)}"
        yield name
        with self.connect() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())

    def connect(self, address: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(address or self.address(), autocommit=True)

    def tool(self, name: str, *arguments: str | Path) -> None:
        """Run one of the programs that come with it."""
        subprocess.run([self._programs / name, *arguments], check=True)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        is_new, deadline = self.port == 0, time.monotonic() + _START_SECONDS
        while True:
            self.port = _free_port() if is_new else self.port
            self._server = self._launch()
            while self._server.poll() is None:
                with suppress(psycopg.OperationalError):
                    self.connect().close()
                    return
                self._refuse_if_late(deadline)
                time.sleep(0.02)
            # Somebody took the port, or what was killed has not let go of its memory yet.
            self._refuse_if_late(deadline)
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill all of its processes at once, as the end of its machine would."""
        assert self._server is not None
        for pid in (self._server.pid, *_children(self._server.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.wait()

    def close(self) -> None:
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        if self._server is not None:
            with suppress(ProcessLookupError):
                self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
        self._watch.wait()

    def _launch(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    str(self._programs / "postgres"),
                    *("-D", str(self.folder / "data")),
                    *("-c", f"port={self.port}"),
                ],
                stdout=log,
                stderr=log,
                user=self._owner,
                group=self._owner,
                cwd=self.folder,
                start_new_session=True,
            )

    def _refuse_if_late(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError((self.folder / "log").read_text())

    def _initialize(self) -> None:
        number = int(re.sub(r"\D.*", "", self._programs.parent.name) or 0)
        by_language = ("--locale-provider=icu", "--icu-locale=en") if number >= 15 else ()
        subprocess.run(
            [
                str(self._programs / "initdb"),
                *("-D", str(self.folder / "data"), "-U", USER, "--auth=trust", "--no-sync"),
                *("--encoding=UTF8", "--locale=C", *by_language),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._owner,
            group=self._owner,
            cwd=self.folder,
        )
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(
                "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
                "fsync = on\nshared_buffers = 32MB\nmax_connections = 60\n"
            )


def start() -> Postgres:
    """Start a server; skip the test where there is none, and fail it where there must be one."""
    programs = _programs()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return Postgres(programs)


def _programs() -> Path | None:
    """Find the newest version; the distribution does not put these programs on the path."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)])
    elsewhere = shutil.which("initdb")
    return None if elsewhere is None else Path(elsewhere).resolve().parent


def _owner() -> str | None:
    """Name whom the server runs as; it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, rest = status.parent.name, status.read_text().rpartition(")")[2].split()
            if int(rest[1]) == parent:
                found.append(int(pid))
    return found
