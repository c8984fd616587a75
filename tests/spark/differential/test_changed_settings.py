"""Random operations under random settings leave the rows they leave in an unchanged session.

Two lakes get the same operations. Before each one the session of the second gets other settings,
and its own back afterwards. `HEADGATE_LONG=1` runs many seeds, `HEADGATE_SEED=n` those from n on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from headgate._connect import embedded_catalog
from headgate.clock import RandomIds, SystemClock
from headgate.errors import HeadgateError
from headgate.settings import Settings
from tests.spark.conftest import Water
from tests.spark.differential.operations import SOURCE, Operation, Plan
from tests.spark.differential.row_comparison import difference
from tests.spark.differential.tables import random_table
from tests.spark.test_changed_settings import HELD, IGNORED

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
FIRST = int(os.environ.get("HEADGATE_SEED", "1"))
SEEDS = range(FIRST, FIRST + (100 if IS_LONG else 2))
STEPS = 10 if IS_LONG else 5
CHANGED = {**IGNORED, **HELD}
# Settings that change what the user's own expressions mean.
MEANING = {"spark.sql.session.timeZone", "spark.sql.timestampType", "spark.sql.ansi.enabled"}


@pytest.fixture
def waters(water: Water, tmp_path: Path) -> Iterator[tuple[Water, Water]]:
    clock = SystemClock()
    catalog = embedded_catalog(
        str(tmp_path / "other"),
        settings=Settings(),
        publisher=False,
        clock=clock,
        ids=RandomIds(clock),
    )
    yield water, Water(water.spark, catalog)
    catalog.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_settings_do_not_change_what_operations_leave(
    waters: tuple[Water, Water], seed: int
) -> None:
    unchanged, changed = waters
    chance = Random(seed)
    plan = Plan(chance, random_table(chance))
    done = [plan.table.created().spark]
    for water in waters:
        water.lake.sql(done[0].replace("{t}", "t"))
        for check in plan.table.checks:
            water.lake.sql(
                f"ALTER TABLE t ADD CONSTRAINT {check.name} CHECK ({check.condition.spark})"
            )
    for number in range(STEPS + 1):
        operation = plan.next() if number else plan.first()
        source = _source(unchanged, operation)
        settings = _settings(chance, operation)
        done.append(f"{operation}\n    under {settings}")
        expected = _run(unchanged, operation, source)
        with _changed(changed, settings):
            found = _run(changed, operation, source)
            rows = changed.lake.read("t").toArrow()
        context = f"seed {seed}\n" + "\n".join(done)
        assert (found is None) == (expected is None), f"{expected}\n{found}\n{context}"
        differs = difference(rows, unchanged.lake.read("t").toArrow())
        assert differs is None, f"{differs}\n{context}"
        if expected is None:
            plan.table = operation.after


def _settings(chance: Random, operation: Operation) -> dict[str, str]:
    keys = sorted(CHANGED)
    if operation.written is None:
        keys = [key for key in keys if key not in MEANING]
    return {key: CHANGED[key] for key in chance.sample(keys, chance.randint(3, 12))}


def _run(water: Water, operation: Operation, source: DataFrame | None) -> HeadgateError | None:
    """Run an operation; return why it was refused, if it was."""
    lake = water.lake
    try:
        if operation.written is not None:
            assert source is not None
            how = operation.written
            if how.mode == "append":
                lake.append("t", source, merge_schema=how.merges_schema)
            else:
                lake.overwrite(
                    "t",
                    source,
                    where=how.where,
                    dynamic=how.dynamic,
                    merge_schema=how.merges_schema,
                )
        else:
            assert operation.sql is not None
            lake.sql(operation.sql.replace("{t}", "t"))
    except HeadgateError as error:
        return error
    return None


def _source(water: Water, operation: Operation) -> DataFrame | None:
    """Give an operation's rows as a DataFrame, and as a view, that settings do not change."""
    if operation.source is None:
        return None
    # A local timestamp taken for an instant here would be cast back in the changed zone.
    schema = from_arrow_schema(operation.source.schema, prefer_timestamp_ntz=True)
    frame = water.spark.createDataFrame(operation.source, schema)
    frame.createOrReplaceTempView(SOURCE)
    return frame


@contextmanager
def _changed(water: Water, settings: dict[str, str]) -> Iterator[None]:
    before = dict(water.spark.conf.getAll)
    for key, value in settings.items():
        water.spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            if key in before:
                water.spark.conf.set(key, before[key])
            else:
                water.spark.conf.unset(key)
