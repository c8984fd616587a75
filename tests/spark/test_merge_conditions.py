"""MERGE: every kind of clause with every kind of ON condition, compared with a plain evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa
import pytest

from tests.spark.conftest import Water, ordered


class Row(NamedTuple):
    """A row of the table, or of the source."""

    k: int | None
    p: str
    v: str


Condition = Callable[[Row, Row], bool | None]
TARGET = [Row(1, "a", "x"), Row(2, "b", "x"), Row(3, "a", "y"), Row(None, "b", "n")]
SOURCE = [Row(1, "a", "u"), Row(3, "b", "d"), Row(5, "a", "u"), Row(None, "b", "u")]
ONE = [Row(1, "a", "u")]  # for conditions that would match a row of the table twice


def equal(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left == right


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def shifted(key: int | None, by: int) -> int | None:
    return None if key is None else key + by


ON: dict[str, tuple[list[Row], Condition]] = {
    "t.k = s.k": (SOURCE, lambda t, s: equal(t.k, s.k)),
    "t.k <=> s.k": (SOURCE, lambda t, s: t.k == s.k),
    "t.k = s.k AND t.p = 'a'": (SOURCE, lambda t, s: both(equal(t.k, s.k), t.p == "a")),
    "t.k = s.k AND s.v = 'u'": (SOURCE, lambda t, s: both(equal(t.k, s.k), s.v == "u")),
    "t.k = s.k AND t.p = s.p": (SOURCE, lambda t, s: both(equal(t.k, s.k), t.p == s.p)),
    "t.p = s.p": (ONE, lambda t, s: t.p == s.p),
    "t.k + 2 = s.k": (SOURCE, lambda t, s: equal(shifted(t.k, 2), s.k)),
    "t.k = s.k OR t.k = s.k - 3": (
        SOURCE,
        lambda t, s: equal(t.k, s.k) or equal(t.k, shifted(s.k, -3)),
    ),
    "t.k IN (s.k, 2)": (ONE, lambda t, s: equal(t.k, s.k) or equal(t.k, 2)),
    "t.k > s.k": (ONE, lambda t, s: None if None in (t.k, s.k) else (t.k or 0) > (s.k or 0)),
    "coalesce(t.k, 5) = s.k": (SOURCE, lambda t, s: equal(5 if t.k is None else t.k, s.k)),
    "t.k = 2": (ONE, lambda t, s: equal(t.k, 2)),
    "s.k = 1": (ONE, lambda t, s: equal(s.k, 1)),
    "1 = 1": (ONE, lambda t, s: True),
    "1 = 0": (SOURCE, lambda t, s: False),
}

# What a clause makes of a matched pair, of a row of the source and of one of the table; None takes
# it out.
Matched = Callable[[Row, Row], Row | None]
Alone = Callable[[Row], Row | None]
stays: Alone = lambda t: t  # noqa: E731
CLAUSES: dict[str, tuple[Matched, Alone, Alone]] = {
    "WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v)": (
        lambda t, s: t._replace(v=t.v + s.v),
        lambda s: None,
        stays,
    ),
    "WHEN MATCHED THEN DELETE": (lambda t, s: None, lambda s: None, stays),
    "WHEN NOT MATCHED THEN INSERT *": (lambda t, s: t, lambda s: s, stays),
    "WHEN NOT MATCHED BY SOURCE THEN DELETE": (lambda t, s: t, lambda s: None, lambda t: None),
    "WHEN MATCHED AND s.v = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED AND s.k IS NOT NULL THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.p = 'b' THEN UPDATE SET v = 'gone'": (
        lambda t, s: None if s.v == "d" else s,
        lambda s: None if s.k is None else s,
        lambda t: t._replace(v="gone") if t.p == "b" else t,
    ),
}


def merged(
    source: Iterable[Row], on: Condition, matched: Matched, new: Alone, left: Alone
) -> list[Row | None]:
    """Say plainly what a MERGE makes of the table."""
    source = list(source)
    found: list[Row | None] = []
    for t in TARGET:
        pairs = [s for s in source if on(t, s)]
        assert len(pairs) < 2, "a row of the table is matched twice"
        found.append(matched(t, pairs[0]) if pairs else left(t))
    return found + [new(s) for s in source if not any(on(t, s) for t in TARGET)]


@pytest.mark.parametrize("on", ON)
def test_every_clause_does_what_it_says_under_every_condition(water: Water, on: str) -> None:
    source, condition = ON[on]
    frame = water.spark.createDataFrame(source, "k long, p string, v string")
    frame.createOrReplaceTempView("changes")
    rows = pa.Table.from_pylist([row._asdict() for row in TARGET])
    for number, (clauses, makes) in enumerate(CLAUSES.items()):
        # By copies, and with vectors in partitions: each in turn, so that each meets every clause.
        is_partitioned = (number + list(ON).index(on)) % 2 == 1
        table = water.make(
            f"t{number}",
            "k long, p string, v string",
            ["p"] if is_partitioned else [],
            delta__enableDeletionVectors=str(is_partitioned).lower(),
        )
        table.append(rows)  # and read back by Arrow: only the MERGE is of interest here
        water.sql(f"MERGE INTO t{number} t USING changes s ON {on} {clauses}")
        expected = [row for row in merged(source, condition, *makes) if row is not None]
        merged_rows = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
        assert ordered(merged_rows) == ordered(expected), clauses
