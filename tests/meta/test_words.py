"""Plain words, one word per thing, asynchronous code in HTTP only, no notes for later."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Words of other projects for things that have a word in docs/glossary.md.
FOREIGN = re.compile(
    r"""(?ix)
      uuid[ _-]?commit | (?:un)?backfill | commit[ _-]?owner | commit[ _-]?coordinator | metastore
    | catalog[ _-]?owned | \bmanaged_?commit | coordinated[ _-]?commit | multi[ _-]?commit
    | soft[ _-]?delet | hard[ _-]?delet | \bcsid\b | \bsfn\b
    """
)
LATER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")

# Wording that needs a second reading. Write what a caller, a reader or the catalog does instead.
UNCLEAR = re.compile(
    r"""(?x)
      \b(?:told|tells?(?!\()|telling|said|mend(?:s|ed|ing)?|anew|(?<!")nobody|somebody|hearsay|kin|shall)\b
    | \b(?:who|whom)ever\b | \b[Ss]ay[ ]whether\b | \bto[ ]who\b
    | (?<!here[ ])\b(?:is|are)[ ]no[ ](?!longer\b)[a-z]+\b
    | \b[Ww]ho[ ](?:comes|asks|wants|reads|lost|proposed|says)\b
    | \bfor[ ](?:ever|good)\b | \bheld[ ]against\b | \bholds?[ ]\w+[ ]against\b | \blooked[ ]for\b
    """
)

# A dialect's words are right in its folder. The ledgers, and the page generated from them, quote
# the titles of their sources. Classes of other projects keep their names.
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


def test_wording_is_plain() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    found = [
        (place, line)
        for place, line in lines("src", "docs", "tests", "bench", "examples")
        if UNCLEAR.search(line) and not place.startswith(here)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_unclear"),
    [
        ("a listener is told of it", True),
        ("said = str(error)", True),
        ("This is no column.", True),
        ("There is no column.", False),
        ("It is no longer used.", False),
        ("kept for ever", True),
        ("Return True if the file exists.", False),
    ],
)
def test_unclear_wording_is_found(line: str, is_unclear: bool) -> None:
    assert bool(UNCLEAR.search(line)) is is_unclear


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
