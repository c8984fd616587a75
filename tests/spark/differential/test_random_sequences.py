"""Random tables and random operations: the lake, delta-spark and DuckDB end with the same rows.

Each seed is one table and what is done to it, the same each time. A failure prints the seed and
all that was done. `HEADGATE_LONG=1` runs many seeds, `HEADGATE_SEED=n` those from n on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.kit.other_readers import deltalake_reads, duckdb_scans, plain_copy, rows
from tests.spark.conftest import Water
from tests.spark.differential.delta_spark import DeltaSpark
from tests.spark.differential.engines import Rivals
from tests.spark.differential.operations import Plan
from tests.spark.differential.tables import random_table

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
FIRST = int(os.environ.get("HEADGATE_SEED", "1"))
SEEDS = range(FIRST, FIRST + (100 if IS_LONG else 2))
STEPS = 10 if IS_LONG else 6


@pytest.fixture
def rivals(
    request: pytest.FixtureRequest, water: Water, delta: DeltaSpark, tmp_path: Path
) -> Iterator[Rivals]:
    made = Rivals(water, delta, tmp_path, request.getfixturevalue("seed"))
    yield made
    made.duck.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_end_in_the_same_rows(rivals: Rivals, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    plan = Plan(chance, random_table(chance))
    rivals.create(plan.table)
    for number in range(STEPS + 1):
        operation = plan.next() if number else plan.first()
        if rivals.run(operation):
            plan.table = operation.after
    for then in chance.sample(rivals.then[:-1], min(2, len(rivals.then) - 1)):
        rivals.compare_earlier(then)
    table = rivals.table
    rivals.compare_with("our Arrow reader", table.to_arrow())
    table.publish()
    if chance.random() < 0.5:
        table.checkpoint()
    copy = plain_copy(table.location, tmp_path / "copy")
    ours = rows(rivals.then[-1].rows)
    # Under column mapping DuckDB's extension gives NULL for every value of a partition column.
    if plan.table.mapping == "none" or not plan.table.partition_by:
        assert duckdb_scans(copy) == ours
    if plan.table.mapping == "none":
        assert deltalake_reads(copy) == ours
    for whose, found in rivals.read_plain(rivals.path).items():
        rivals.compare_with(f"{whose} of delta-spark's table", found)
    rivals.compare_with("delta-spark, of our table", rivals.delta.read(copy))
