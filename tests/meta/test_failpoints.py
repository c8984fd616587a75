"""Every place where a process may be killed is there, and some test kills it there."""

import ast
from pathlib import Path

import pytest

from headgate.failpoints import POINTS

ROOT = Path(__file__).resolve().parents[2]


def strings(folder: Path) -> list[str]:
    return [
        node.value
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def places_in_the_package() -> set[str]:
    return {
        argument.value
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "fail_point"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


PLACES = places_in_the_package()
CROSSED = strings(ROOT / "tests" / "faults")


def test_the_registry_has_exactly_the_fail_points_of_the_package() -> None:
    assert set(POINTS) == PLACES


@pytest.mark.parametrize("point", sorted(POINTS))
def test_a_fail_point_is_crossed_by_a_test(point: str) -> None:
    assert any(point in text for text in CROSSED)
