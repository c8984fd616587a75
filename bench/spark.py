"""Spark for the sides of one process: started once, set alike for all, asked in the same words."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it
from pyspark.sql.types import StructField, StructType

import headgate.spark
from bench.ours import connect
from bench.peers import delta_spark
from bench.prepared import CACHE
from headgate.spark import Lake

PROCESS = "one Spark"
MEMORY = "4g"
_PHYSICAL = "delta.columnMapping.physicalName"


@functools.cache
def session() -> SparkSession:
    """Return the Spark of this process, with Delta in it."""
    config = {**quiet(), **delta_spark.CONFIG, "spark.driver.memory": MEMORY}
    return headgate.spark.session("bench", config=config)


def quiet() -> dict[str, str]:
    """Return settings that keep what Spark leaves behind in one place."""
    return {
        "spark.local.dir": str(CACHE / "spark"),
        "spark.sql.warehouse.dir": str(CACHE / "spark" / "warehouse"),
        "spark.log.level": "OFF",
    }


@functools.cache
def lake(place: str, *, sync_data: bool = True) -> Lake:
    """Return the lake at a place, open, published in the background as always."""
    # Delta's extension turns it on for the whole session. We read by names whatever it says; tables
    # mapped by name, as here, are to be read alike on every side, Spark's own reader included.
    session().conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    return Lake(session(), connect(place), sync_data=sync_data)


# Three readers of the same files. Each runs the query again each time and returns its result.

Ask = Callable[[str], DataFrame]


def headgate_reader(place: Path, table: str) -> Ask:
    """Ask our tables; the text names them."""
    ours = lake(str(place / "lake"))
    return lambda text: ours.sql(text.format(t=table, items="items"))


def delta_reader(place: Path, table: str) -> Ask:
    """Ask delta-spark, on plain copies of the logs over the same files."""
    spark, plain = session(), place / "plain"

    def ask(text: str) -> DataFrame:
        tables: dict[str, Any] = {
            name: delta_spark.read(spark, plain / at) for name, at in _named(text, table)
        }
        return spark.sql(text, **tables)

    return ask


def parquet_reader(place: Path, table: str) -> Ask:
    """Query with Spark's own reader, given the folders of the files and their columns."""
    spark, plain = session(), place / "plain"

    def ask(text: str) -> DataFrame:
        tables: dict[str, Any] = {
            name: parquet(spark, plain / at) for name, at in _named(text, table)
        }
        return spark.sql(text, **tables)

    return ask


READERS: Mapping[str, Callable[[Path, str], Ask]] = {
    "headgate": headgate_reader,
    "delta-spark": delta_reader,
    "Parquet": parquet_reader,
}


def parquet(spark: SparkSession, root: Path, share: float = 1.0) -> DataFrame:
    """Read the data files of a plain table, or some of them, as folders of Parquet."""
    fields = _schema(root).fields
    physical = [field.metadata.get(_PHYSICAL, field.name) for field in fields]
    named = zip(physical, fields, strict=True)
    schema = StructType([StructField(name, field.dataType) for name, field in named])
    folders = sorted(
        path for path in root.glob("*/*") if path.is_dir() and path.parent.name != "_delta_log"
    )
    reader = spark.read.schema(schema)
    if share < 1:
        files = sorted(path for folder in folders for path in folder.rglob("*.parquet"))
        paths = files[: round(len(files) * share)]
    else:
        paths = folders
    if len(folders) == 1:
        reader = reader.option("basePath", str(folders[0]))
    rows = reader.parquet(*map(str, paths))
    columns = zip(physical, fields, strict=True)
    return rows.select(*[F.col(name).alias(field.name) for name, field in columns])


def _named(text: str, table: str) -> list[tuple[str, str]]:
    return [(name, at) for name, at in (("t", table), ("items", "items")) if f"{{{name}}}" in text]


def _schema(root: Path) -> StructType:
    for path in sorted((root / "_delta_log").glob("[0-9]*.json"), reverse=True):
        for line in path.read_bytes().splitlines():
            if b'"metaData"' in line:
                metadata = json.loads(line).get("metaData")
                if metadata is not None:
                    return StructType.fromJson(json.loads(metadata["schemaString"]))
    raise ValueError(f"{root} has no metaData action")


# Plans


def plan(frame: DataFrame) -> Any:
    """Let Spark plan a query and return the plan; running it later does not plan again."""
    return frame._jdf.queryExecution().executedPlan()


def plan_files(frame: DataFrame) -> int:
    """Let Spark plan a query down to the splits that its tasks read; return their number."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def slow_ways(planned: Any, *, filtered: bool) -> dict[str, float]:
    """Count the parts of a plan that are slower than they could be."""
    text = planned.toString()
    counts = {"scans not vectorised": float(text.count("Batched: false"))}
    if filtered:
        counts["scans without the filter"] = float(text.count("PushedFilters: []"))
    return counts
