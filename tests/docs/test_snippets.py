"""Every snippet of the README and the docs runs as written, in an empty directory, and twice."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit import java
from tests.kit.conditions import eventually

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8750"
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_RUN = {"python", "sh"}
_SHOWN = {"http", "text"}  # output, diagrams, requests
# Pages whose snippets other tests run.
_ELSEWHERE = {"tutorial.md": "tests/cli/test_tutorial.py", "engines.md": "tests/interop"}
_NOT_RUN = {
    ("README.md", "tests/docs/test_wheel.py builds and installs the package"),
    ("README.md", "the gate runs both"),
    ("operating.md", "needs a PostgreSQL server and a bucket"),
    ("operating.md", "needs a bucket"),
    ("operating.md", "needs a certificate"),
}


class Snippet(NamedTuple):
    page: str
    section: int
    kind: str
    text: str
    reason: str | None

    @property
    def needs_spark(self) -> bool:
        return "headgate.spark" in self.text or "headgate sql" in self.text


def snippets(page: Path) -> list[Snippet]:
    written = page.read_text()
    return [
        Snippet(
            page.name,
            written.count("\n## ", 0, found.start()),
            found["kind"],
            found["text"],
            found["reason"],
        )
        for found in _BLOCK.finditer(written)
    ]


ALL = [snippet for page in PAGES for snippet in snippets(page)]
RUN = [
    snippet
    for snippet in ALL
    if snippet.kind in _RUN and snippet.reason is None and snippet.page not in _ELSEWHERE
]


def test_every_block_says_what_it_is() -> None:
    assert [snippet for snippet in ALL if snippet.kind not in _RUN | _SHOWN] == []


def test_what_is_not_run_is_known_with_its_reason() -> None:
    left_out = {(snippet.page, snippet.reason) for snippet in ALL if snippet.reason is not None}
    assert left_out == _NOT_RUN


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Reader:
    """Copies the snippets of a page into a terminal, one after the other.

    A server that is started in a section runs until the next one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._section = 0
        self._servers: list[subprocess.Popen[bytes]] = []
        commands = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        }
        self._environment.pop("HEADGATE_LAKE", None)

    def copy(self, snippet: Snippet) -> None:
        if snippet.section != self._section:
            self.leave()
            self._section = snippet.section
        text = snippet.text.replace(ADDRESS, f"http://127.0.0.1:{self.port}")
        if snippet.kind == "python":
            # In one interpreter, so that the second run finds what the first left there as well.
            self._run(
                [sys.executable, "-c", f"source = {text!r}\nfor _ in 1, 2: exec(source, {{}})"]
            )
            return
        *before, last = text.rstrip("\n").splitlines()
        serves = last.startswith("headgate serve")
        script = "\n".join(before) if serves else text
        self._run(["bash", "-euo", "pipefail", "-c", script])
        if serves:
            self._serve(shlex.split(last))

    def leave(self) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.wait(60)
        self._servers.clear()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"

    def _serve(self, command: list[str]) -> None:
        server = subprocess.Popen(
            [*command, "--port", str(self.port)], cwd=self.folder, env=self._environment
        )
        self._servers.append(server)

        def answers() -> bool:
            assert server.poll() is None, f"{shlex.join(command)} ended"
            with contextlib.suppress(OSError):
                url = f"http://127.0.0.1:{self.port}/health"
                return bool(urllib.request.urlopen(url, timeout=5).status == 200)
            return False

        eventually(answers)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    copying = Reader(tmp_path)
    yield copying
    copying.leave()


def pages(*, on_spark: bool) -> list[str]:
    return sorted({snippet.page for snippet in RUN if snippet.needs_spark == on_spark})


@pytest.mark.slow
@pytest.mark.timeout(600)  # many processes, on a machine that may be busy
@pytest.mark.parametrize("page", pages(on_spark=False))
def test_the_snippets_of_a_page_run_in_an_empty_directory_and_again(
    reader: Reader, page: str
) -> None:
    for _ in "first", "again":
        for snippet in RUN:
            if snippet.page == page and not snippet.needs_spark:
                reader.copy(snippet)
        reader.leave()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(on_spark=True))
def test_the_snippets_on_spark_run_in_an_empty_directory_and_again(
    reader: Reader, page: str
) -> None:
    java.require()
    for snippet in RUN:
        if snippet.page == page and snippet.needs_spark:
            for _ in range(1 if snippet.kind == "python" else 2):
                reader.copy(snippet)
