"""The pages that show where things are name modules, files, folders and tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headgate"
TESTS = ROOT / "tests"

MODULE = re.compile(r"\b[a-z][a-z_]*(?:\.[a-z][a-z_]*)+\b")
ROW = re.compile(r"\| \d+ \| \w+ \| `([\w/]+\.py)` \| `(test_\w+)")


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text()


def test_modules_in_the_architecture_page_exist() -> None:
    named = [name for name in MODULE.findall(architecture()) if is_in_the_package(name)]
    assert len(named) > 40
    missing = [
        name
        for name in named
        if not (path := PACKAGE / name.replace(".", "/")).is_dir()
        and not path.with_suffix(".py").is_file()
    ]
    assert missing == []


def is_in_the_package(name: str) -> bool:
    first, _, last = name.partition(".")
    return (PACKAGE / first).is_dir() and last not in {"py", "schema.table"}


def test_files_in_the_architecture_page_exist() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", architecture())
    assert len(named) > 20
    missing = [
        name for name in named if not any((base / name).exists() for base in (PACKAGE, ROOT))
    ]
    assert missing == []


def test_files_and_folders_in_the_readme_of_the_tests_exist() -> None:
    readme = (TESTS / "README.md").read_text()
    kit = readme.partition("## What the kit offers")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+\.py)`", kit))
    assert {path.name for path in (TESTS / "kit").glob("[a-z]*.py")} == named
    where = readme.partition("## Where a test goes")[2].partition("\n## ")[0]
    folders = re.findall(r"^\| `(\w+)/`(?:, `(\w+)/`)?", where, re.MULTILINE)
    listed = {name for names in folders for name in names if name}
    assert {path.parent.name for path in TESTS.glob("*/test_*.py")} == listed


def test_slow_tests_in_the_readme_exist() -> None:
    rows = ROW.findall((TESTS / "README.md").read_text())
    assert len(rows) > 40
    missing = [
        (file, name)
        for file, name in rows
        # It runs the tests of other files.
        if file != "spark/test_adaptive_execution.py"
        and not ((TESTS / file).is_file() and f"def {name}(" in (TESTS / file).read_text())
    ]
    assert missing == []
