"""The package, built and installed as a user does, runs the first program of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "headgate"
IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
EXPECTED = "3 rows in version 2\n2 rows in version 1\n[{'id': 3}]\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, where: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def first_program() -> str:
    block = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = block.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1]


def new_environment(folder: Path) -> Path:
    run(sys.executable, "-m", "venv", "--without-pip", folder, where=folder.parent)
    return folder / "bin"


def use(commands: Path, where: Path) -> None:
    """Do what the README does first, with an installed package."""
    home = run(commands / "python", "-c", "import headgate; print(headgate.__file__)", where=where)
    assert Path(home.strip()).is_relative_to(commands.parent)
    assert run(commands / "python", "-c", first_program(), where=where) == EXPECTED
    assert "main.sales.orders" in run(commands / "headgate", "show", where=where)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("hatchling") is None:
        pytest.skip("not run: hatchling is not installed; `make test` does that")
    folder = tmp_path_factory.mktemp("dist")
    how = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", ROOT, *how, where=folder)
    [built] = folder.glob("headgate-*.whl")
    return built


def test_the_wheel_contains_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("headgate/")}
    files = (path for path in SOURCES.rglob("*") if path.is_file())
    there = {
        path.relative_to(SOURCES.parent).as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }
    assert packed == there


def test_the_first_program_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Only the package itself is new: its dependencies are those of this environment."""
    commands = new_environment(tmp_path / "environment")
    how = ("--no-deps", "--no-index", "--quiet")
    python = commands / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", *how, wheel, where=tmp_path)
    [packages] = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    use(commands, tmp_path)


@pytest.mark.skipif(not IS_LONG, reason="downloads every dependency: HEADGATE_LONG=1")
def test_the_installation_of_the_readme_works_in_a_fresh_environment(tmp_path: Path) -> None:
    commands = new_environment(tmp_path / "environment")
    how = ("--python", commands / "python", "install", "--quiet")
    assert "pip install '.[spark]'" in (ROOT / "README.md").read_text()
    run(sys.executable, "-m", "pip", *how, f"{ROOT}[spark]", where=tmp_path)
    use(commands, tmp_path)
    run(commands / "python", "-c", "import headgate.spark", where=tmp_path)
