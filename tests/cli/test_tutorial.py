"""The tutorial prints what it shows, block by block, in an empty directory and twice."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "tutorial", "exec"), names)
    return output.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(600)  # a score of processes, on a machine that may be busy
def test_the_tutorial_prints_what_it_shows_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in "first", "again":
        names: dict[str, object] = {"__name__": "tutorial"}
        printed = ""
        for kind, text in blocks(ROOT / "docs" / "tutorial.md"):
            if kind == "text":
                assert alike(printed) == alike(text)
            elif kind == "sh":
                printed = shell(text, tmp_path)
            else:
                assert kind == "python"
                printed = python(text, names)
        assert list(tmp_path.iterdir()) == []
