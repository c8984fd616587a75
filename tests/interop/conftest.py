"""Engines of others, each in an environment of its own, as clients of a real server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import headgate
from headgate.api.messages import Severity
from headgate.client.session import Session
from headgate.spark import session as spark_session
from tests.kit import java
from tests.kit.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-interop"
DRIVERS = Path(__file__).parent / "drivers"
RELEASED = "io.delta:delta-spark_4.2_2.13:4.4.0"
CONNECTOR = "io.unitycatalog:unitycatalog-spark_4.2_2.13:0.6.0"
CONNECTOR_VARIABLE = "HEADGATE_UC_SPARK_JAR"  # where it lies, for those whose Maven has none
NO_CONNECTOR = "not run: Unity Catalog connector jar not available"
# Tests have few rows and few cores; results are the same.
SMALL = """
import os
os.environ["PYSPARK_SUBMIT_ARGS"] = (
    "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false"
    " --conf spark.sql.shuffle.partitions=2 --conf spark.default.parallelism=2"
    " --conf spark.driver.extraJavaOptions=-XX:+UseSerialGC"
    " --conf spark.databricks.delta.snapshotPartitions=2 pyspark-shell"
)
"""


def interpreter(engine: str) -> Path:
    """Return the Python that has an engine, or say what is missing."""
    python = ENVIRONMENTS / engine / "bin" / "python"
    if not python.exists():
        pytest.skip(f"not run: {engine} is not installed; `make interop` does that")
    return python


class RefusedByEngine(Exception):  # noqa: N818 - an answer of the engine's, not an error of ours
    """What an engine answered when it refused a request."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


def is_unresolved(package: str, output: str) -> bool:
    """Return True if Spark left because a package of these coordinates cannot be had."""
    group, name, version = package.split(":")
    return f"unresolved dependency: {group}#{name};{version}: not found" in output


@contextlib.contextmanager
def overheard() -> Iterator[Callable[[], str]]:
    """Keep what this process, and those that it starts, write to standard error."""
    with tempfile.TemporaryFile() as output:
        before = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            yield lambda: os.pread(output.fileno(), 1 << 24, 0).decode(errors="replace")
        finally:
            os.dup2(before, 2)
            os.close(before)


def _is_frame(line: str) -> bool:
    """Return True if a line of a Java message is a stack frame."""
    return line.lstrip().startswith(("at ", "... "))


class Engine:
    """An engine behind a pipe, which gets one request after another."""

    def __init__(self, engine: Path, driver: str, python: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [engine, DRIVERS / driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        try:
            self.ask(python=python)
        except BaseException as error:
            error.add_note(self.output[-20_000:])
            self.__exit__()
            raise

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    @property
    def output(self) -> str:
        """All that it wrote besides its answers."""
        return os.pread(self._output.fileno(), 1 << 24, 0).decode(errors="replace")

    def ask(self, **what: str) -> list[list[Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the engine died"
        answer = json.loads(line)
        if "error" in answer:
            message = [line for line in answer["message"].splitlines() if not _is_frame(line)]
            raise RefusedByEngine(answer["error"], "\n".join(message))
        return list(answer["rows"])

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.ask(sql=text)]


class DuckDB(Engine):
    """DuckDB, attached to a server as the page of engines says."""

    def __init__(self, address: str, token: str = "none") -> None:
        python = documented("DuckDB")[0].replace("http://127.0.0.1:8750", address)
        assert "TOKEN 'none'" in python
        python = python.replace("TOKEN 'none'", f"TOKEN '{token}'")
        super().__init__(interpreter("duckdb"), "duckdb_driver.py", python)

    def look_again(self) -> None:
        """See what others wrote since, as the page says."""
        self.ask(continued=documented("DuckDB")[2])


class Sail(Engine):
    """Sail, with a server as its catalog as the page of engines says."""

    def __init__(self, address: str) -> None:
        python = documented("Sail")[0].replace("http://127.0.0.1:8750", address)
        super().__init__(interpreter("sail"), "sail_driver.py", python)


class DeltaSpark(Engine):
    """delta-spark with the Unity Catalog connector, as the page of engines says.

    Spark starts once for many tests: each brings a server of its own and gets a session for it.
    """

    def __init__(self, address: str) -> None:
        python = documented("delta-spark")[0].replace("http://127.0.0.1:8750", address)
        if jar := os.environ.get(CONNECTOR_VARIABLE):
            assert CONNECTOR in python
            python = python.replace(f",{CONNECTOR}", "").replace(
                ".getOrCreate()", f'.config("spark.jars", "{jar}").getOrCreate()'
            )
        super().__init__(Path(sys.executable), "spark_driver.py", SMALL + python)

    def use(self, address: str, **options: str) -> DeltaSpark:
        """Go on with another server, in a session that knows nothing of the one before."""
        settings = {"uri": address, "token": "none", **options}
        lines = ["spark = spark.newSession()"]
        for key, value in settings.items():
            lines.append(f"spark.conf.set('spark.sql.catalog.main.{key}', '{value}')")
        # Streams take the session that is active, whichever they were made from.
        lines.append("java = spark._jvm.org.apache.spark.sql.classic.SparkSession")
        lines.append("java.setActiveSession(spark._jsparkSession)")
        self.ask(python="\n".join(lines))
        return self


def ours(session: Session, name: str = "t") -> list[tuple[Any, ...]]:
    """Return the rows as we read them."""
    table = session.table(name).to_arrow()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def append(session: Session, *rows: tuple[Any, ...], name: str = "t") -> None:
    """Append rows as our own clients do."""
    names = session.table(name).to_arrow().column_names
    columns = zip(*rows, strict=True)
    session.table(name).append(
        pa.table({n: list(values) for n, values in zip(names, columns, strict=True)})
    )


def local(session: Session, name: str) -> Path:
    """Return the folder a table lies in."""
    return Path(session.table(name).location.removeprefix("file://"))


def is_whole(server: RunningServer) -> bool:
    """Hold the catalog against every log."""
    with headgate.connect(server.store) as session:
        found = session.fsck()
    return not [finding for finding in found if finding.severity is Severity.ERROR]


def documented(engine: str) -> list[str]:
    """Return the pieces of Python that the page of engines shows for one."""
    page = (ROOT / "docs" / "engines.md").read_text()
    section = page.partition(f"\n## {engine}")[2].partition("\n## ")[0]
    pieces = section.split("```python\n")[1:]
    assert pieces, f"docs/engines.md shows no Python for {engine}"
    return [piece.partition("```")[0] for piece in pieces]


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSpark]:
    """delta-spark with its connector, once for all: it names its server when it is used."""
    java.require()
    try:
        started = DeltaSpark("http://127.0.0.1:8750")
    except RefusedByEngine as error:
        if is_unresolved(CONNECTOR, "".join(error.__notes__)):
            pytest.skip(NO_CONNECTOR)
        raise
    with started:
        yield started


@pytest.fixture(scope="session")
def released_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process with Delta's released jars and without the connector."""
    java.require()
    folder = tmp_path_factory.mktemp("spark")
    with overheard() as output:
        try:
            started = spark_session(
                "headgate-interop",
                master="local[2]",
                config={
                    "spark.jars.packages": RELEASED,
                    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                    "spark.sql.catalog.spark_catalog": (
                        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
                    ),
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                    "spark.sql.shuffle.partitions": "2",
                    "spark.driver.memory": "1g",
                    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
                    "spark.log.level": "OFF",
                },
            )
        except PySparkRuntimeError as error:
            if is_unresolved(RELEASED, output()):
                pytest.skip(f"not run: {RELEASED} cannot be had")
            error.add_note(output()[-20_000:])  # do not skip for a JVM that does not start
            raise
    yield started
    started.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(str(tmp_path / "lake")) as running:
        yield running


@pytest.fixture
def session(server: RunningServer) -> Iterator[Session]:
    session = headgate.connect(server.address)
    yield session
    session.close()
