"""A real server in processes of its own, to be used and to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

START_S = 30.0


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunningServer:
    """`headgate serve` on a store; use it in a `with`, which stops it."""

    program: tuple[str, ...] = ("-m", "headgate.cli.main")

    def __init__(
        self,
        store: str,
        *options: str,
        port: int | None = None,
        host: str = "127.0.0.1",  # where clients find it
        environment: Mapping[str, str] | None = None,
        certificates: str | None = None,  # those it is to be trusted by, where it speaks TLS
    ) -> None:
        self.store = store
        self.port = port or free_port()
        self._host = f"[{host}]" if ":" in host else host
        self._options = options
        self._trusted = (
            None if certificates is None else ssl.create_default_context(cafile=certificates)
        )
        self._environment = dict(environment or {})
        self._log = Path(tempfile.mkstemp(prefix="headgate-server-", suffix=".log")[1])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{'http' if self._trusted is None else 'https'}://{self._host}:{self.port}"

    def __enter__(self) -> RunningServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.unlink(missing_ok=True)

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it answers; `environment` is for this start alone."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *self.program, "serve", "--store", self.store),
                    *("--port", str(self.port), *self._options),
                ],
                env={**os.environ, **self._environment, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_until_ready()

    def wait_until_ready(self, within_s: float = START_S) -> None:
        deadline = time.monotonic() + within_s
        while not self.is_ready():
            assert self.process is not None
            code = self.process.poll()
            if code is not None or time.monotonic() > deadline:
                raise AssertionError(f"The server did not start ({code}):\n{self.log()[-4000:]}")
            time.sleep(0.01)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"{self.address}/health", timeout=2, context=self._trusted
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def log(self) -> str:
        """All that it has written."""
        return self._log.read_text(errors="replace")

    @property
    def workers(self) -> list[int]:
        """The processes that serve; their parent only watches over them."""
        assert self.process is not None
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            return []
        return [int(child) for child in children]

    @property
    def publishers(self) -> list[int]:
        """The publisher processes of the workers, which any of their threads may have started."""
        return [
            int(child)
            for worker in self.workers
            for children in Path(f"/proc/{worker}/task").glob("*/children")
            for child in _text(children).split()
            if "publisher_process" in _text(Path(f"/proc/{child}/cmdline"))
        ]

    def kill_worker(self) -> None:
        """Kill the one that serves; its parent starts another."""
        for worker in self.workers:
            _kill(worker, signal.SIGKILL)

    def kill_parent(self) -> None:
        """Kill the one that watches; its workers leave by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, within_s: float = 60.0) -> int:
        """Ask it to stop, and give its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(within_s)

    def kill(self) -> None:
        """Kill all of it at once; again is fine."""
        process, self.process = self.process, None
        if process is None:
            return
        workers = self._children(process.pid)
        _kill(process.pid, signal.SIGKILL)
        for worker in workers:
            _kill(worker, signal.SIGKILL)
        process.wait()

    @staticmethod
    def _children(pid: int) -> list[int]:
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(child) for child in text.split()]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it ended meanwhile


def _kill(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
