"""The examples run, and do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        cwd=where,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_demonstration_tells_the_whole_story(tmp_path: Path) -> None:
    for _ in range(2):  # what it made, it makes anew
        told = run("demo.py", tmp_path)
        assert (told.returncode, told.stderr) == (0, "")
    for part in (
        "version 1, inline",
        "version 2, staged",
        "Bea was refused: The commit to main.sales.totals conflicts",
        "asked twice, ratified once",
        "published up to version 2, as asked",
        "version 1 had 3 orders",
        "sales.orders version 3, sales.totals version 1",
        "put-if-absent  published",
        "main.sales.orders: version 4, published up to 4",
        "2026-03-01     90.00",
    ):
        assert part in told.stdout
    assert "\x1b" not in told.stdout


@pytest.mark.slow
def test_the_demonstration_removes_nothing_of_yours(tmp_path: Path) -> None:
    (tmp_path / "lake-demo").mkdir()
    (tmp_path / "lake-demo" / "thesis.txt").write_text("all my work")
    told = run("demo.py", tmp_path)
    assert told.returncode == 1
    assert "move it away first" in told.stderr
    assert (tmp_path / "lake-demo" / "thesis.txt").read_text() == "all my work"


@pytest.mark.slow
def test_two_processes_append_and_nothing_is_lost(tmp_path: Path) -> None:
    told = run("append_from_two_processes.py", tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "versions 0 to 40, none missing: True",
        "ann has 20 rows of 20",
        "bea has 20 rows of 20",
    ]


@pytest.mark.slow
def test_a_plain_table_is_read_by_path(tmp_path: Path) -> None:
    told = run("read_a_plain_table.py", tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines()[-1] == "{'id': 2, 'item': 'nut'}"


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in here] == []
