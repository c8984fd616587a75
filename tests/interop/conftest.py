"""Engines of others, each in an environment of its own, as clients of a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate
from headgate.client.session import Session
from headgate.protocol.catalog_port import Severity
from tests.kit.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-interop"
DRIVERS = Path(__file__).parent / "drivers"


def interpreter(engine: str) -> Path:
    """Give the Python that has an engine, or say what is missing."""
    python = ENVIRONMENTS / engine / "bin" / "python"
    if not python.exists():
        pytest.skip(f"not run: {engine} is not installed; `make interop` does that")
    return python


class RefusedByEngine(Exception):  # noqa: N818 - an answer of the engine's, not an error of ours
    """What an engine said when it did not do what it was told."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Engine:
    """An engine behind a pipe, told one thing after another."""

    def __init__(self, engine: str, driver: str, python: str) -> None:
        self._process = subprocess.Popen(
            [interpreter(engine), DRIVERS / driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self.ask(python=python)
        except BaseException:
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

    def ask(self, **what: str) -> list[list[Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the engine died"
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedByEngine(answer["error"], answer["message"])
        return list(answer["rows"])

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.ask(sql=text)]


class DuckDB(Engine):
    """DuckDB, attached to a server as the page of engines says."""

    def __init__(self, address: str) -> None:
        python = documented("DuckDB")[0].replace("http://127.0.0.1:8750", address)
        super().__init__("duckdb", "duckdb_driver.py", python)

    def look_again(self) -> None:
        """See what others wrote since, as the page says."""
        self.ask(continued=documented("DuckDB")[2])


class Sail(Engine):
    """Sail, with a server as its catalog as the page of engines says."""

    def __init__(self, address: str) -> None:
        python = documented("Sail")[0].replace("http://127.0.0.1:8750", address)
        super().__init__("sail", "sail_driver.py", python)


def ours(session: Session, name: str = "t") -> list[tuple[Any, ...]]:
    """Give the rows as we read them."""
    table = session.table(name).to_arrow()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def append(session: Session, *rows: tuple[Any, ...], name: str = "t") -> None:
    """Append rows as our own clients do."""
    names = session.table(name).to_arrow().column_names
    columns = zip(*rows, strict=True)
    session.table(name).append(
        pa.table({n: list(values) for n, values in zip(names, columns, strict=True)})
    )


def is_whole(server: RunningServer) -> bool:
    """Hold the catalog against every log."""
    with headgate.connect(server.store) as session:
        found = session.fsck()
    return not [finding for finding in found if finding.severity is Severity.ERROR]


def documented(engine: str) -> list[str]:
    """Give the pieces of Python that the page of engines shows for one."""
    page = (ROOT / "docs" / "engines.md").read_text()
    section = page.partition(f"\n## {engine}")[2].partition("\n## ")[0]
    pieces = section.split("```python\n")[1:]
    assert pieces, f"docs/engines.md shows no Python for {engine}"
    return [piece.partition("```")[0] for piece in pieces]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(str(tmp_path / "lake")) as running:
        yield running


@pytest.fixture
def session(server: RunningServer) -> Iterator[Session]:
    session = headgate.connect(server.address)
    yield session
    session.close()
