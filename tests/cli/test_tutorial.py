"""The tutorial and the README's first lines do what they say, block by block."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import java

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIFFERS = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<time>"),
    (re.compile(r"\+\d+ ms"), "<later>"),
    (re.compile(r" {2,}"), "  "),
)


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text())


def alike(text: str) -> list[str]:
    for pattern, word in _DIFFERS:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines()]


def shell(script: str, where: Path) -> str:
    commands = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("HEADGATE_LAKE", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(source: str, names: dict[str, object]) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(source, "tutorial", "exec"), names)
    return told.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(600)  # a score of processes, on a machine that may be busy
def test_the_tutorial_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "tutorial"}
    told = ""
    for kind, text in blocks(ROOT / "docs" / "tutorial.md"):
        if kind == "text":
            assert alike(told) == alike(text)
        elif kind == "sh":
            told = shell(text, tmp_path)
        else:
            assert kind == "python"
            told = python(text, names)


def programs() -> tuple[str, str]:
    """Give the README's programs: the smallest one, and the one on Spark."""
    small, on_spark = [text for kind, text in blocks(ROOT / "README.md") if kind == "python"]
    return small, on_spark


def test_the_smallest_program_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, _ = programs()
    names: dict[str, object] = {"__name__": "smallest"}
    python(program.replace("orders.to_arrow()  #", "rows = orders.to_arrow()  #"), names)
    assert names["rows"].num_rows == 3  # type: ignore[attr-defined]
    names["session"].close()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_program_on_spark_is_true(tmp_path: Path) -> None:
    java.require()
    _, program = programs()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [line.strip("|") for line in done.stdout.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row.split("|")] for row in rows] == [
        ["item", "price"],
        ["gear", "14.90"],
        ["nut", "0.40"],
    ]


@pytest.mark.slow
def test_the_commands_of_the_readme_are_true(tmp_path: Path) -> None:
    (script,) = [text for kind, text in blocks(ROOT / "README.md") if "headgate init" in text]
    (tmp_path / "orders.csv").write_text("id,item\n1,bolt\n")
    assert shell(script, tmp_path).splitlines()[-1] == "Catalog and logs agree."
