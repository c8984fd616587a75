"""Spark that runs elsewhere, a server of Spark Connect or a cluster; and tests, run there.

A process has one kind of Spark, so what is tested elsewhere runs in a process of its own:
the tests that are here already, with another Spark behind them, and those under `remote`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.kit import java
from tests.spark.conftest import HERE, WHERE, settings

ROOT = HERE.parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
STARTING = 90.0  # seconds
RUNNING = 900.0


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a server of Spark Connect, and give its address."""
    port = free_port()
    configuration = {
        **settings(folder),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": str(port),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    options = [
        word for key, value in configuration.items() for word in ("--conf", f"{key}={value}")
    ]
    command = ["spark-submit", "--class", server, "--master", "local[2]", *options]
    with started(command, folder, port):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start a master and workers, and give the master's address."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--port", str(port)]
    with ExitStack() as stack:
        command = ["spark-class", *master, "--host", "127.0.0.1", "--webui-port", "0"]
        stack.enter_context(started(command, folder / "master", port))
        for number in range(workers):
            listening = free_port()
            command = [
                "spark-class", "org.apache.spark.deploy.worker.Worker", address,
                "--host", "127.0.0.1", "--port", str(listening), "--webui-port", "0",
                "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"),
            ]  # fmt: skip
            stack.enter_context(started(command, folder / f"worker-{number}", listening))
        yield address


@contextmanager
def started(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    """Start a program of Spark's own, which knows nothing of us, and wait until it listens."""
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(pyspark.__file__).parent / "bin" / command[0]
    environment = {
        **without_us(os.environ),
        "SPARK_HOME": str(program.parents[1]),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    java.start_quickly(environment)
    log = folder / "spark.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), *command[1:]],
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(process, port, log)
            yield
        finally:
            process.terminate()
            process.wait(30)


def without_us(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out our own variables, and those that point Spark to this process."""
    ours = ("HEADGATE", "PYTEST", "PYSPARK", "SPARK", "PYTHON")
    return {key: value for key, value in environment.items() if not key.startswith(ours)}


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"{process.args!r} did not come up: {log.read_text()[-3000:]}")


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


def begin_tests(where: str, folder: Path, tests: Sequence[str], **more: str) -> Tests:
    """Begin to run tests of this folder on a Spark that is elsewhere."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    paths = [str(HERE / test) for test in tests]
    output = folder / "tests.txt"
    with output.open("wb") as written:
        process = subprocess.Popen(
            [*PYTEST, f"--basetemp={folder / 'tests'}", *paths],
            env={**environment, WHERE: where, **more},
            cwd=ROOT,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    return Tests(process, output)


class Tests:
    """Tests that run in another process."""

    __test__ = False

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def are_running(self) -> bool:
        return self._process.poll() is None

    def must_pass(self) -> int:
        """Wait for the end, and give how many there were: all passed, and none was left out."""
        try:
            self._process.wait(RUNNING)
        finally:
            self._process.kill()
        output = self._output.read_text()
        assert self._process.returncode == 0, output[-6000:]
        ended = re.search(r"^(\d+) passed(?:, \d+ warnings?)? in ", output, re.MULTILINE)
        assert ended is not None, output[-2000:]
        return int(ended[1])
