"""DELETE and UPDATE with subqueries leave the rows that DuckDB leaves.

delta-spark takes no subquery in a DELETE, so it cannot be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from tests.spark.conftest import Water
from tests.spark.differential import values
from tests.spark.differential.engines import Duck
from tests.spark.differential.operations import Plan
from tests.spark.differential.row_comparison import difference
from tests.spark.differential.tables import (
    KEY,
    Column,
    Table,
    random_rows,
    random_table,
    without_rules,
)
from tests.spark.differential.values import Text, name_of, text

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
FIRST = int(os.environ.get("HEADGATE_SEED", "1"))
SEEDS = range(FIRST, FIRST + (100 if IS_LONG else 1))
STEPS = 6


@pytest.fixture
def duck() -> Iterator[Duck]:
    made = Duck()
    yield made
    made.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_those_duckdb_leaves(seed: int, water: Water, duck: Duck, tmp_path: Path) -> None:
    chance = Random(seed)
    table = without_rules(random_table(chance))
    plan = Plan(chance, table)
    plan.keys = list(range(24))
    value = chance.choice([c for c in table.plain if c.name != KEY and c.generated is None])
    other = Table((Column("k", values.INT), Column("v", value.kind, pool=value.pool)))
    made, others = table.created(), other.created()
    water.lake.sql(made.spark.replace("{t}", "t"))
    water.lake.sql(others.spark.replace("{t}", "other"))
    duck.run(made.duck or "")
    duck.run((others.duck or "").replace("TABLE t", "TABLE other", 1))
    for number in range(3):
        rows = random_rows(chance, table.given, list(range(8 * number, 8 * number + 8)))
        water.lake.append("t", _frame(water, rows, tmp_path / f"{number}.in"))
        duck.put("source", rows)
        names = ", ".join(c.quoted.duck or "" for c in table.given)
        duck.run(f"INSERT INTO t ({names}) SELECT {names} FROM source")
    duck.complete(table)
    keys = [chance.choice([None, chance.randrange(30)]) for _ in range(6)]
    met = random_rows(chance, [Column("v", value.kind, pool=value.pool)], keys)
    met = met.append_column("k", pa.array(keys, pa.int32())).select(["k", "v"])
    water.lake.append("other", _frame(water, met, tmp_path / "other.in"))
    duck.put("met", met)
    duck.run("INSERT INTO other SELECT * FROM met")
    statements = [made.spark]
    for _ in range(STEPS):
        where = _condition(plan, chance, value)
        start = Text("DELETE FROM t", "DELETE FROM t")
        if chance.random() < 0.5:
            start = text("UPDATE t SET {} = {}", value.quoted, _value(chance, value))
        statement = text("{} WHERE {}", start, where)
        if statement.duck is None:
            continue
        statements.append(statement.spark)
        counted = water.lake.sql(statement.spark).collect()[0]["num_affected_rows"]
        [changed] = duck.run(statement.duck) or [None]
        duck.complete(table)
        found = difference(water.lake.read("t").toArrow(), duck.rows())
        assert found is None, (seed, statements, found)
        assert counted == changed, (seed, statements)
    assert difference(water.session.table("t").to_arrow(), duck.rows()) is None
    assert len(statements) > 1


def _frame(water: Water, rows: pa.Table, path: Path) -> DataFrame:
    pq.write_table(rows, path)
    return water.spark.read.parquet(str(path))


def _condition(plan: Plan, chance: Random, value: Column) -> Text:
    """Make a condition that asks another table, or the table itself."""
    key = name_of("t", KEY)
    asked = chance.choice(
        [
            text("{} IN (SELECT k FROM other)", key),
            text("{} NOT IN (SELECT k FROM other)", key),
            text("{} NOT IN (SELECT k FROM other WHERE k IS NOT NULL)", key),
            text("EXISTS (SELECT 1 FROM other AS o WHERE o.k = {})", key),
            text("NOT EXISTS (SELECT 1 FROM other AS o WHERE o.k = {})", key),
            text("EXISTS (SELECT 1 FROM other AS o WHERE o.v = {})", name_of("t", value.name)),
            text("{} > (SELECT max(k) FROM other WHERE k < 20)", key),
            text("{} = (SELECT min(id) FROM t)", key),
            text("{} < (SELECT avg(k) FROM other)", key),
            text("{} = (SELECT max(k) FROM other WHERE k > 1000)", key),
            text("{} IN (SELECT v FROM other)", name_of("t", value.name)),
        ]
    )
    if chance.random() < 0.5:
        return asked
    also = plan.condition(plan.table.columns, "t", depth=1)
    return text(chance.choice(["{} AND {}", "{} OR {}", "NOT ({} AND {})"]), asked, also)


def _value(chance: Random, value: Column) -> Text:
    literal = value.literal(chance.choice(value.pool or value.kind.pool))
    return chance.choice(
        [
            literal,
            text("(SELECT max(v) FROM other)"),
            text("(SELECT max(o.v) FROM other AS o WHERE o.k = {})", name_of("t", KEY)),
        ]
    )
