"""A process with delta-spark in it: requests come in as lines of JSON, and answers go out so.

Started by delta_spark.py. Spark resolves Delta's packages itself when it starts, and what it says
meanwhile goes to standard error: standard output is for answers alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

TABLES = Path(__file__).parents[2] / "table" / "tables"
sys.path.insert(0, str(TABLES))

import write_tables  # noqa: E402, F401 - it fills CASES
from spark_table import CASES, PACKAGES, Table  # noqa: E402


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, Spark's launcher among them, must not speak between answers
    spark = session(Path(sys.argv[1]))
    worker = Worker(spark)
    reply(answers, {"done": [spark.version]})
    for line in sys.stdin:
        reply(answers, worker.answer(json.loads(line)))
    spark.stop()


def reply(answers: Any, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def session(scratch: Path) -> SparkSession:
    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1"
        f" -XX:+UseSerialGC -Dderby.system.home={scratch / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder.appName("delta-spark").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Worker:
    """What can be asked for; each request is a list of steps, done until one fails."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._does: Mapping[str, Callable[..., Any]] = {
            "sql": self.sql,
            "view": self.view,
            "write": self.write,
            "read": self.read,
            "table": self.table,
            "case": self.case,
            "checkpoint": self.checkpoint,
        }

    def answer(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        done: list[Any] = []
        for step in steps:
            try:
                done.append(self._does[step.pop("do")](**step))
            except Exception as error:
                return {"done": done, "error": f"{type(error).__name__}: {shortened(error)}"}
        return {"done": done}

    def sql(self, text: str, to: str | None = None) -> list[dict[str, Any]] | None:
        """Run a statement; keep its rows in a file, or give what it counted."""
        found = self._spark.sql(text)
        if to is not None:
            return keep(found, to)
        return [row.asDict() for row in found.collect()] if is_count(found) else None

    def view(self, name: str, path: str) -> None:
        self._spark.read.parquet(path).createOrReplaceTempView(name)

    def write(self, path: str, view: str, mode: str, options: dict[str, str]) -> None:
        self._spark.table(view).write.format("delta").mode(mode).options(**options).save(path)

    def read(self, path: str, to: str, version: int | None = None) -> None:
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        keep(reader.load(path), to)

    def table(self, path: str) -> int:
        """Give a table's latest version."""
        return Table(self._spark, Path(path), Path(path)).latest()

    def checkpoint(self, path: str) -> None:
        Table(self._spark, Path(path), Path(path)).checkpoint()

    def case(self, name: str, path: str, work: str) -> None:
        """Write a table as one of the kept ones was written."""
        CASES[name].write(Table(self._spark, Path(path), Path(work)))


def keep(found: DataFrame, to: str) -> None:
    pq.write_table(found.toArrow(), to)


def shortened(error: Exception) -> str:
    """Leave the trace out, and keep what caused it."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("\tat ")]
    return "\n".join(lines)[:1500]


def is_count(found: DataFrame) -> bool:
    return bool(found.columns) and all(name.startswith("num_") for name in found.columns)


if __name__ == "__main__":
    main()
