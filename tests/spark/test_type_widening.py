"""Writes that evolve the schema widen types where type widening is on."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from headgate.errors import InvalidDataError
from headgate.protocol.schema.type_widening import type_changes
from headgate.spark.merge import Clause, Do, When
from tests.spark.conftest import Water

BIG = 5_000_000_000


@pytest.fixture
def narrow(water: Water) -> Water:
    water.make(
        "t",
        "id int, small tinyint, f float, e decimal(4,2), d date, st struct<a: int, xs array<int>>",
        delta__enableTypeWidening="true",
    )
    water.lake.append(
        "t",
        water.frame(
            "SELECT 1 id, tinyint(1) small, float(1.5) f, 1.25BD e, date'2020-01-01' d,"
            " struct(1 AS a, array(1) AS xs) st"
        ),
    )
    return water


WIDE = (
    f"SELECT {BIG} id, 70000 small, 1e300D f, 123456.789BD e, timestamp_ntz'2020-01-01 12:00:00' d,"
    f" struct({BIG} AS a, array({BIG}) AS xs) st"
)
TYPES = ["long", "integer", "double", "decimal(9,3)", "timestamp_ntz"]
OLD = (1, 1, 1.5, Decimal("1.250"), datetime.fromisoformat("2020-01-01"), (1, [1]))
NEW = (
    BIG,
    70000,
    1e300,
    Decimal("123456.789"),
    datetime.fromisoformat("2020-01-01T12:00"),
    (BIG, [BIG]),
)


def test_an_append_that_merges_the_schema_widens_types(narrow: Water) -> None:
    narrow.lake.append("t", narrow.frame(WIDE), merge_schema=True)
    schema = narrow.session.table("t").snapshot().schema
    assert [str(item.type) for item in schema.fields[:5]] == TYPES
    changed = [(".".join(c.path), c.within) for c in type_changes(schema)]
    assert changed == [
        ("id", None),
        ("small", None),
        ("f", None),
        ("e", None),
        ("d", None),
        ("st.a", None),
        ("st.xs", "element"),
    ]
    assert narrow.rows() == [OLD, NEW]
    assert narrow.session.table("t").to_arrow().num_rows == 2


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT {big} id",
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT {big} id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT *",
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT {big} id) s ON t.id = 1"
        " WHEN MATCHED THEN UPDATE SET id = s.id",
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT {big} id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    ],
)
def test_statements_that_evolve_the_schema_widen_types(narrow: Water, statement: str) -> None:
    narrow.sql(statement.format(big=BIG))
    schema = narrow.session.table("t").snapshot().schema
    assert [str(item.type) for item in schema.fields[:2]] == ["long", "byte"]
    assert (BIG,) in narrow.sql("SELECT id FROM t")


def test_a_method_that_evolves_the_schema_widens_types(narrow: Water) -> None:
    narrow.lake.merge(
        "t",
        narrow.frame(WIDE),
        "target.id = source.id",
        [Clause(When.MATCHED, Do.UPDATE), Clause(When.NOT_MATCHED, Do.INSERT)],
        merge_schema=True,
    )
    assert narrow.rows() == [OLD, NEW]
    narrow.lake.overwrite("t", narrow.frame(WIDE), merge_schema=True)
    assert narrow.rows() == [NEW]


def test_types_stay_without_the_feature_or_without_evolution(water: Water, narrow: Water) -> None:
    with pytest.raises(InvalidDataError, match="does not fit"):
        narrow.lake.append("t", narrow.frame(f"SELECT {BIG} id"))
    water.make("u", "id int")
    with pytest.raises(InvalidDataError, match="does not fit"):
        water.lake.append("u", water.frame(f"SELECT {BIG} id"), merge_schema=True)
    water.lake.append("u", water.frame("SELECT 7L id"), merge_schema=True)
    assert str(water.session.table("u").snapshot().schema.fields[0].type) == "integer"


def test_types_that_cannot_change_stay_and_values_must_fit(water: Water) -> None:
    """A partition column, one that others depend on, and a change to another kind of number."""
    water.lake.sql(
        "CREATE TABLE t (id INT, p INT, n INT, twice INT GENERATED ALWAYS AS (id * 2),"
        " CONSTRAINT few CHECK (id < 10)) PARTITIONED BY (p)"
        " TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    rows = water.frame("SELECT 1L id, 2L p, 3.0D n")
    water.lake.append("t", rows, merge_schema=True)
    schema = water.session.table("t").snapshot().schema
    assert [str(item.type) for item in schema.fields] == ["integer"] * 4
    for column in ("id", "p", "n"):
        big = rows.withColumn(column, rows.id * BIG)
        with pytest.raises(InvalidDataError, match="does not fit"):
            water.lake.append("t", big, merge_schema=column != "n")
    assert water.rows() == [(1, 2, 3, 2)]
