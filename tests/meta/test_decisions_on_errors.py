"""Callers decide on an error's code and retry, never on its words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.kit import shows

SOURCES = sorted(Path("src").rglob("*.py"))


def texts_of_errors(tree: ast.AST) -> set[int]:
    """Find the lines that compare or search the text of a caught error."""
    caught = {
        handler.name
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and handler.name
    }
    found: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        for side in (node.left, *node.comparators):
            for part in ast.walk(side):
                is_text = (
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
                if is_text:
                    found.add(node.lineno)
    return found


@shows("FX21")
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_decision_hangs_on_the_words_of_an_error(source: Path) -> None:
    assert texts_of_errors(ast.parse(source.read_text())) == set()


def test_such_a_decision_would_be_found() -> None:
    planted = "try:\n    f()\nexcept E as e:\n    if 'conflict' in str(e):\n        g()\n"
    assert texts_of_errors(ast.parse(planted)) == {4}
