"""The tree of a SQL expression: one closed union of nodes for every use of an expression.

A part that the parser does not understand is an `Opaque` node, so that each use decides what that
means: file pruning ignores it, a CHECK constraint is refused. `at` is an offset in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal as written: what it means may depend on Spark's settings.

    `kind` is NUMBER, STRING, BOOLEAN or NULL, or the word before a string as in `DATE'2026-01-31'`.
    The text of a string has its quotes and escapes.
    """

    kind: str
    text: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A column or a nested field, perhaps qualified with the name of a table."""

    path: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator with its operands, in the order of the text.

    AND, OR (two operands or more); NOT, IS NULL, IS TRUE, IS FALSE, NEGATE (`-x`); the comparisons
    `=`, `!=`, `<`, `<=`, `>`, `>=`, `<=>`; IN (a value, then the choices), BETWEEN (three), LIKE;
    `+`, `-`, `*`, `/`, `%`, `||`.
    """

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function by its plain name."""

    name: str
    operands: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part that is not understood, and why."""

    why: str
    at: int | None = field(default=None, compare=False)


Expression: TypeAlias = Constant | ColumnReference | OperatorCall | FunctionCall | Opaque


def nodes(tree: Expression) -> Iterator[Expression]:
    """Yield a node and all nodes below it, in the order of the text."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, OperatorCall | FunctionCall):
            pending.extend(reversed(node.operands))


def levels(tree: Expression) -> int:
    """Count the levels of a tree; a chain such as `a + b + c` has one for each operator."""
    count, level = 0, [tree]
    while level:
        count += 1
        level = [
            operand
            for node in level
            if isinstance(node, OperatorCall | FunctionCall)
            for operand in node.operands
        ]
    return count
