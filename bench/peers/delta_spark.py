"""delta-spark, on a plain log, in the Spark that all sides of a block share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.disk import sync

NAME = "delta-spark"
REQUIRES = "io.delta:delta-spark_4.2_2.13:4.4.0"

# Options of a Spark with Delta. Sides that do not need it pay for it, too.
CONFIG = {
    "spark.jars.packages": REQUIRES,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Its own choice, 50 tasks whenever it looks into its log, is for clusters: here it would lose.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def read(spark: SparkSession, root: Path) -> DataFrame:
    """Read a table at its newest version."""
    return spark.read.format("delta").load(str(root))


def create_like(rows: DataFrame, root: Path, partition_by: Iterable[str] = ()) -> None:
    """Make an empty table for rows."""
    empty = rows.sparkSession.createDataFrame([], rows.schema)
    empty.write.format("delta").partitionBy(*partition_by).save(str(root))


def version(root: Path) -> int:
    """Return the newest version."""
    return max(int(path.stem) for path in (root / "_delta_log").glob("[0-9]*.json"))


def restore(spark: SparkSession, root: Path, to: int) -> None:
    """Make a table what it was."""
    spark.sql(f"RESTORE TABLE delta.`{root}` TO VERSION AS OF {to}")


def sync_written(root: Path) -> None:
    """Make the newest commit and all it names outlive a power loss, which is left to chance."""
    log = root / "_delta_log"
    commit = log / f"{version(root):020d}.json"
    actions = map(json.loads, commit.read_bytes().splitlines())
    added = [action["add"] for action in actions if "add" in action]
    files = {root / add["path"] for add in added}
    if any(add.get("deletionVector") for add in added):
        files.update(root.glob("deletion_vector_*.bin"))
    sync([*files, *{path.parent for path in files}, commit, log])
