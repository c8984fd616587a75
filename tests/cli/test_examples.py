"""The examples run and print what they should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import java

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        cwd=where,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demonstration_runs_all_its_parts(tmp_path: Path) -> None:
    java.require()
    (tmp_path / "lake-demo").mkdir()
    (tmp_path / "lake-demo" / "made-by-the-demo").touch()  # so the demonstration may replace it
    done = run("demo.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "300,500 orders in silver",
        "Bea appended 500 orders with Arrow: version 7, staged",
        "a violation of the constraint is refused",
        "MERGE: num_affected_rows 20,000, num_updated_rows 5,000, num_inserted_rows 15,000",
        "files have a deletion vector, 0 were rewritten",
        "Bea was refused: The commit to main.gold.daily conflicts",
        "proposed twice, ratified once",
        "before the MERGE, at version 2: 300,500 orders",
        "put-if-absent  published",
        "checks passed",
    ):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_the_demonstration_fails_if_a_result_is_wrong(tmp_path: Path) -> None:
    java.require()
    program = (
        "from shop import orders; truth = orders.sales;"
        " orders.sales = lambda rows: truth(rows.slice(1));"
        " import demo; demo.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "WRONG: gold is the sum of all deliveries" in done.stdout
    assert "failed its own check" in done.stderr


@pytest.mark.slow
def test_the_demonstration_deletes_no_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "lake-demo").mkdir()
    (tmp_path / "lake-demo" / "thesis.txt").write_text("all my work")
    done = run("demo.py", tmp_path)
    assert done.returncode == 1
    assert "move it away first" in done.stderr
    assert (tmp_path / "lake-demo" / "thesis.txt").read_text() == "all my work"


@pytest.mark.slow
def test_two_processes_append_and_nothing_is_lost(tmp_path: Path) -> None:
    done = run("append_from_two_processes.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "versions 0 to 40, none missing: True",
        "ann has 20 rows of 20",
        "bea has 20 rows of 20",
    ]


@pytest.mark.slow
def test_a_plain_table_is_read_by_path(tmp_path: Path) -> None:
    done = run("read_a_plain_table.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "{'id': 2, 'item': 'nut'}"


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in here] == []
