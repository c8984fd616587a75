"""Run commands in this process."""

import io
import re
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.cli.main import main

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout without ids and times, with two spaces between columns."""
        text = _ID.sub("<id>", _TIME.sub("<time>", self.out))
        text = re.sub(r"\+\d+ ms", "<later>", text)
        return [re.sub(r" {3,}", "  ", line).strip() for line in text.splitlines()]


Run = Callable[..., Ran]


def runner(where: Path) -> Run:
    """Run commands in a directory."""

    def run(*arguments: str | Path, stdin: str = "") -> Ran:
        out, err = io.StringIO(), io.StringIO()
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()))
        try:
            with chdir(where), redirect_stdout(out), redirect_stderr(err):
                code = main([str(argument) for argument in arguments])
        finally:
            sys.stdin = before
        return Ran(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(autouse=True)
def no_lake_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_LAKE", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run commands in an empty directory."""
    return runner(tmp_path)


@pytest.fixture
def orders(run: Run) -> Run:
    """Run commands beside a lake with a table of three rows in two commits."""
    done = [
        run("init"),
        run("create", "orders", "id long not null, item string, price decimal(10,2)"),
        run(
            "append", "orders", "-", "--format", "csv", stdin="id,item,price\n1,bolt,1.5\n2,nut,\n"
        ),
        run("append", "orders", "-", "--format", "json", stdin='{"id": 3, "item": "gear"}\n'),
    ]
    assert [ran.code for ran in done] == [0, 0, 0, 0]
    return run
