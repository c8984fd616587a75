"""Every pair of operations on the same rows, in both orders and by both ways of writing.

What comes out is what one of the two serial orders gives: no row lost, none alive again. Whether
the one that came late had to be run again is what the table of pairs says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headgate.api.messages import Resolved
from headgate.errors import ConflictError
from headgate.spark import Lake
from headgate.spark.merge import Clause, Do, When
from headgate.spark.statement import Statement
from tests.kit import shows
from tests.spark.conftest import Water

Rows = list[tuple[int, str]]
COPIES, VECTORS = "copy-on-write", "deletion-vectors"
BEFORE: Rows = [(id, "old") for id in range(8)]


@dataclass(frozen=True)
class Did:
    """An operation: how a lake does it, and what it makes of rows."""

    name: str
    do: Callable[[Lake, Water], object]
    then: Callable[[Rows], Rows]
    looks: bool = True  # where others change rows


def upserted(rows: Rows) -> Rows:
    there = {id for id, _ in rows}
    changed = [(id, "merged" if id in (2, 3, 20) else v) for id, v in rows]
    return changed + [(id, "merged") for id in (2, 3, 20) if id not in there]


CLAUSES = [
    Clause(When.MATCHED, Do.UPDATE, values={("v",): "source.v"}),
    Clause(When.NOT_MATCHED, Do.INSERT),
]
OPERATIONS = [
    Did(
        "append",
        lambda lake, water: lake.append("t", water.frame("SELECT 2L id, 'new' v")),
        lambda rows: [*rows, (2, "new")],
        looks=False,
    ),
    Did(
        "delete",
        lambda lake, _: lake.delete("t", "id IN (2, 4)"),
        lambda rows: [row for row in rows if row[0] not in (2, 4)],
    ),
    Did(
        "update",
        lambda lake, _: lake.update("t", {"v": "concat(v, '+')"}, "id IN (2, 5)"),
        lambda rows: [(id, v + "+" if id in (2, 5) else v) for id, v in rows],
    ),
    Did(
        "merge",
        lambda lake, water: lake.merge(
            "t",
            water.frame("SELECT id, 'merged' v FROM VALUES (2L), (3L), (20L) AS s(id)"),
            "target.id = source.id",
            CLAUSES,
        ),
        upserted,
    ),
    Did(
        "overwrite",
        lambda lake, water: lake.overwrite(
            "t", water.frame("SELECT 3L id, 'over' v"), where="id < 4"
        ),
        lambda rows: [*(row for row in rows if row[0] >= 4), (3, "over")],
    ),
]


def named(did: Did) -> str:
    return did.name


@shows("FX22")
@pytest.mark.parametrize(("late_by", "first_by"), [(COPIES, VECTORS), (VECTORS, COPIES)])
@pytest.mark.parametrize("first", OPERATIONS, ids=named)
@pytest.mark.parametrize("late", OPERATIONS, ids=named)
def test_what_comes_out_is_one_order_or_the_other(
    water: Water, late: Did, first: Did, late_by: str, first_by: str
) -> None:
    water.make(delta__enableDeletionVectors="true", headgate__dml=late_by)
    water.lake.append("t", water.frame("SELECT id, 'old' v FROM range(0, 8, 1, 1)"))
    begun = overtaken(water, first, first_by)
    try:
        late.do(water.lake, water)
        was_refused = len(begun) > 1  # and run again, on what was there then
    except ConflictError:
        was_refused = True
        assert sorted(water.rows()) == sorted(first.then(BEFORE))
        late.do(water.lake, water)
    found = sorted(water.rows())
    after = sorted(late.then(first.then(BEFORE)))
    if was_refused:
        assert found == after
    else:
        assert found in (after, sorted(first.then(late.then(BEFORE))))
    # At this level an operation that only adds conflicts with none.
    assert was_refused == (late.looks and first.looks)


def overtaken(water: Water, first: Did, by: str) -> list[Statement]:
    """Have another come in right after the next statement has begun; give what was begun."""
    begin, other = water.lake._engine.statement, water.other()
    begun: list[Statement] = []

    def beginning(name: str, resolved: Resolved | None = None) -> Statement:
        begun.append(begin(name, resolved))
        if len(begun) == 1:
            water.session.table(name).set_properties({"headgate.dml": by})
            first.do(other, water)
        return begun[-1]

    water.lake._engine.statement = beginning  # type: ignore[method-assign]
    return begun
