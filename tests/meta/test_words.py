"""One word per thing, no second colour of function, nothing left for later."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Other people's words for things that have one of ours.
FOREIGN = re.compile(
    r"""(?ix)
      uuid[ _-]?commit | (?:un)?backfill | commit[ _-]?owner | commit[ _-]?coordinator | metastore
    | catalog[ _-]?owned | \bmanaged_?commit | coordinated[ _-]?commit | multi[ _-]?commit
    | soft[ _-]?delet | hard[ _-]?delet | \bcsid\b | \bsfn\b
    """
)
LATER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")

# A dialect's words are right in its folder. The ledgers, and the page made from them, quote the
# titles of their sources. Classes of others are called as they are where they are to be named.
QUOTING = {"docs/requirements.toml", "docs/faults.toml", "docs/conformance.md"}
DIALECTS = "src/headgate/http/unity/"


def lines(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".toml", ".sql", ".html", ".js", ".css", ".json"}:
                name = path.relative_to(ROOT).as_posix()
                for number, line in enumerate(path.read_text().splitlines(), start=1):
                    yield f"{name}:{number}", line


def is_exempt(place: str, line: str) -> bool:
    name = place.rpartition(":")[0]
    is_quotation = name.startswith("docs/decisions/") and line.startswith(">")
    is_class = name == "docs/engines.md" and "org.apache.spark.sql.delta." in line
    return name in QUOTING or name.startswith(DIALECTS) or is_quotation or is_class


def test_each_thing_has_one_word() -> None:
    found = [
        (place, line)
        for place, line in lines("src", "docs")
        if FOREIGN.search(line) and not is_exempt(place, line)
    ]
    assert found == []


def test_only_http_is_asynchronous() -> None:
    package = ROOT / "src" / "headgate"
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        if not path.is_relative_to(package / "http")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert found == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        (place, line)
        for place, line in lines("src", "docs", "tests", "bench", "examples", "model")
        if LATER.search(line) and not place.startswith(here)
    ]
    assert found == []
