"""Callers decide on an error's code and retry, never on its words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.kit import shows

SOURCES = sorted(Path("src").rglob("*.py"))


# What asks a text for its words.
SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "__contains__"}


def texts_of_errors(tree: ast.AST) -> set[int]:
    """Find the lines that compare or search the text of a caught error."""
    caught = {
        handler.name
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and handler.name
    }

    def is_text(part: ast.AST) -> bool:
        return (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id in ("str", "repr")
            and any(isinstance(arg, ast.Name) and arg.id in caught for arg in part.args)
        ) or (
            isinstance(part, ast.Attribute)
            and part.attr in ("message", "args")
            and isinstance(part.value, ast.Name)
            and part.value.id in caught
        )

    found: set[int] = set()
    for node in ast.walk(tree):
        asked: tuple[ast.AST, ...] = ()
        if isinstance(node, ast.Compare):
            asked = (node.left, *node.comparators)
        elif isinstance(node, ast.Match):
            asked = (node.subject,)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = (node.func.value,) if node.func.attr in SEARCHES else ()
        if any(is_text(part) for side in asked for part in ast.walk(side)):
            found.add(node.lineno)
    return found


@shows("FX21")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_decision_depends_on_the_text_of_an_error(source: Path) -> None:
    assert texts_of_errors(ast.parse(source.read_text())) == set()


@pytest.mark.parametrize(
    "decision",
    [
        "if 'conflict' in str(e):",
        "if e.message == 'conflict':",
        "if e.message.startswith(('a', 'b')):",
        "if str(e).lower().find('conflict') >= 0:",
        "while e.args[0].endswith('!'):",
        "if repr(e).count('x'):",
    ],
)
def test_such_a_decision_would_be_found(decision: str) -> None:
    planted = f"try:\n    f()\nexcept E as e:\n    {decision}\n        g()\n"
    assert texts_of_errors(ast.parse(planted)) == {4}


def test_a_match_on_the_text_of_an_error_would_be_found() -> None:
    planted = "try:\n  f()\nexcept E as e:\n  match e.message:\n    case 'x':\n      g()\n"
    assert texts_of_errors(ast.parse(planted)) == {4}
