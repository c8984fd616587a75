"""Which test shows what, read from the sources of the tests.

Reads and does not import, so the answer is the same under `-k`, and where a test cannot run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("req", "shows")


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """One id that one test, suite or file claims to show."""

    kind: str
    id: str
    file: str
    test: str

    @property
    def where(self) -> str:
        return f"{self.file}::{self.test}" if self.test else self.file


def marks_under(root: Path) -> list[Mark]:
    """Return every mark in the Python files of `root`/tests, in order."""
    found: list[Mark] = []
    for path in sorted((root / "tests").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        found.extend(marks_in(path.read_text(), file))
    return found


def marks_in(source: str, file: str) -> Iterator[Mark]:
    """Return the marks of one source: on tests, on suites, on parameters and in `pytestmark`."""
    yield from _marks(ast.parse(source, file), file, ())


def _marks(node: ast.AST, file: str, owner: tuple[str, ...]) -> Iterator[Mark]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        owner = (*owner, node.name)
    if isinstance(node, ast.Call) and _name(node.func) in KINDS:
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"{file}:{node.lineno}: ids are written out, not computed.")
            yield Mark(_name(node.func), argument.value, file, "::".join(owner))
    for child in ast.iter_child_nodes(node):
        yield from _marks(child, file, owner)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Attribute(attr="mark"), attr=name):
            return name
        case _:
            return ""
