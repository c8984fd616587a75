"""Queries of every shape give the same rows as over the same data in plain Parquet files.

The tables are partitioned, column-mapped and have deletion vectors, so a relation stands for
several scans: its shape must not disturb Spark's optimizer. Each shape runs on one of two kinds of
table, in turn; `HEADGATE_LONG=1` runs each on all kinds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate._connect import embedded_catalog
from headgate.clock import RandomIds, SystemClock
from headgate.settings import Settings
from tests.spark.conftest import Water, rows

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
KINDS = ("partitioned", "all", "mapped", "vectored") if IS_LONG else ("partitioned", "all")
SHAPES = [
    block
    for block in Path(__file__).with_name("query_shapes.sql").read_text().split("\n\n")
    if not block.startswith("--")
]


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Water, Path]]:
    """The same rows in each kind of table, and as plain Parquet files."""
    folder = tmp_path_factory.mktemp("shapes")
    clock = SystemClock()
    catalog = embedded_catalog(
        str(folder / "lake"),
        settings=Settings(),
        publisher=False,
        clock=clock,
        ids=RandomIds(clock),
    )
    water = Water(spark, catalog)
    t = spark.sql(
        "SELECT id, CASE WHEN id % 4 > 0 THEN int(id % 4) END p, id % 3 k, id % 7 v,"
        " concat('n', id % 5) s FROM range(24)"
    )
    u = spark.sql(
        "SELECT CASE WHEN id <> 5 THEN id % 9 + 1 END id,"
        " CASE WHEN id % 3 > 0 THEN int(id % 3) END p, concat('n', id % 4) name FROM range(12)"
    )
    for name, frame in (("t", t), ("u", u)):
        frame.coalesce(1).write.parquet(str(folder / name))
        for kind in KINDS:
            vectored = str(kind in ("vectored", "all")).lower()
            mapping = "name" if kind in ("mapped", "all") else "none"
            columns = {"t": "id long, p int, k long, v long, s string"}
            water.make(
                f"{name}_{kind}",
                columns.get(name, "id long, p int, name string"),
                () if kind == "vectored" else ("p",),
                delta__enableDeletionVectors=vectored,
                delta__columnMapping__mode=mapping,
                headgate__dml="deletion-vectors" if vectored == "true" else "copy-on-write",
            )
            # Rows that go again leave vectors in some files, and none in others.
            last = frame.columns[-1]
            gone = frame.where("id < 4 AND p > 1").withColumn(last, F.lit("gone"))
            water.lake.append(f"{name}_{kind}", frame.union(gone).coalesce(1))
            water.lake.delete(f"{name}_{kind}", f"{last} = 'gone'")
    yield water, folder
    catalog.close()


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_a_query_gives_the_rows_it_gives_over_plain_files(
    tables: tuple[Water, Path], number: int
) -> None:
    water, folder = tables
    shape = SHAPES[number]
    plain = {name: f"parquet.`{folder / name}`" for name in ("t", "u")}
    expected = rows(water.spark.sql(shape.format(**plain)))
    for kind in KINDS if IS_LONG else [KINDS[number % len(KINDS)]]:
        found = water.sql(shape.format(t=f"t_{kind}", u=f"u_{kind}"))
        assert found == expected, (kind, shape)
