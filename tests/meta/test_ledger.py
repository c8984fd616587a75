"""What is built is shown by a test, and what a test shows is in a ledger."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.marks import Mark, marks_in, marks_under

ROOT = Path(__file__).resolve().parents[2]
MARKS = marks_under(ROOT)


def ledger(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((ROOT / "docs" / name).read_text())


CLAUSES, FAULTS = ledger("requirements.toml"), ledger("faults.toml")
SHOWN_CLAUSES = {mark.id for mark in MARKS if mark.kind == "req"}
SHOWN_FAULTS = {mark.id for mark in MARKS if mark.kind == "shows"}


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_is_either_shown_or_open(clause: str) -> None:
    row = CLAUSES[clause]
    is_open = row.get("planned", False) or "not_done" in row
    assert (clause in SHOWN_CLAUSES) is not is_open, row["says"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_either_shown_or_open(fault: str) -> None:
    row = FAULTS[fault]
    assert (fault in SHOWN_FAULTS) is not ("planned" in row), row["says"]


def test_nothing_unknown_is_cited() -> None:
    cited = {mark for mark in MARKS if mark.id not in (CLAUSES if mark.kind == "req" else FAULTS)}
    assert cited == set()


def test_no_must_is_declined() -> None:
    assert [c for c, row in CLAUSES.items() if row["level"] == "M" and "not_done" in row] == []


def test_every_clause_has_all_its_fields() -> None:
    known = {"level", "who", "source", "says", "shown_by", "planned", "not_done", "deviates"}
    keepers = {"catalog", "client", "reader", "writer", "cleanup", "pointer", "both"}
    for clause, row in CLAUSES.items():
        assert {"level", "who", "source", "says"} <= row.keys() <= known, clause
        assert row["level"] in {"M", "S", "D"}, clause
        assert row["who"] in keepers, clause
        assert row.get("planned", True) is True, clause
        assert len(row.keys() & {"planned", "not_done", "deviates"}) <= 1, clause


def test_every_fault_has_all_its_fields() -> None:
    for fault, row in FAULTS.items():
        assert {"says", "means"} <= row.keys() <= {"says", "means", "planned", "deviates"}, fault
        assert len(row.keys() & {"planned", "deviates"}) <= 1, fault
        assert all(isinstance(value, str) and value for value in row.values()), fault


def test_marks_are_found_in_all_places() -> None:
    source = """
pytestmark = pytest.mark.req("AA-01")

@req(
    "AA-02",
    "AA-03",
)
def test_one(): ...

class Suite:
    @shows("F1")
    @pytest.mark.parametrize("x", [pytest.param(1, marks=shows("F2"))])
    def test_two(self): ...
"""
    assert list(marks_in(source, "t.py")) == [
        Mark("req", "AA-01", "t.py", ""),
        Mark("req", "AA-02", "t.py", "test_one"),
        Mark("req", "AA-03", "t.py", "test_one"),
        Mark("shows", "F1", "t.py", "Suite::test_two"),
        Mark("shows", "F2", "t.py", "Suite::test_two"),
    ]


def test_a_computed_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"t\.py:1: ids are written out"):
        list(marks_in("req(ID)", "t.py"))
