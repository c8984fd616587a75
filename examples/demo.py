"""A tour of Headgate, and what `make run` does: a pipeline on Spark over a lake in ./lake-demo.

A few hundred thousand orders go from bronze to silver to gold. Some arrive late, a customer's data
is deleted from two tables in one transaction, two writers conflict. Every total is computed again
without Spark, and the demo fails if one differs. Its parts are in `shop/`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from shop import catalogs, orders, pipeline
from shop.output import log, step, title
from shop.report import report

import headgate
import headgate.spark
from headgate.errors import UnavailableError
from headgate.settings import Settings

LAKE = Path("lake-demo")
MARK = LAKE / "made-by-the-demo"  # the demo deletes only a folder with this file


def main() -> None:
    """Run all parts."""
    create_lake()
    title("Spark, and a week of deliveries")
    with step("generating a week of orders"):
        files = orders.deliver(LAKE / "deliveries")
    with step("starting Spark"), stderr_to(LAKE / "spark.log"):
        spark = start_spark()
    log(f"{len(files)} deliveries, and Spark {spark.version}")
    with (
        headgate.connect(LAKE) as ann,
        # With a limit of 0 bytes all commits of Bea are staged.
        headgate.connect(LAKE, settings=Settings(inline_limit_bytes=0)) as bea,
    ):
        lake = headgate.spark.Lake(spark, ann)
        pipeline.create_tables(lake)
        pipeline.load_the_week(lake, bea, files)
        pipeline.fill_silver_and_gold(lake, files)
        pipeline.merge_late_orders(lake, files)
        pipeline.delete_customer(lake, files)
        catalogs.conflict(lake, bea, files)
        catalogs.transactions(lake, bea)
        catalogs.repeat_a_proposal(ann)
        pipeline.time_travel(lake, files)
    spark.stop()
    catalogs.filesystem_catalog(LAKE / "filesystem-catalog")
    report(LAKE)


def start_spark() -> SparkSession:
    """Start Spark, or exit with the reason why it cannot start."""
    config = {"spark.sql.warehouse.dir": str(LAKE.resolve() / "spark-warehouse")}
    try:
        return headgate.spark.session("demo", config=config)
    except UnavailableError as error:
        sys.exit(f"{error.message} {error.remedy}")


def create_lake() -> None:
    """Delete the lake of an earlier run and create a new one."""
    if LAKE.exists() and not MARK.exists():
        sys.exit(f"{LAKE} exists and was not created by this demo: move it away first.")
    shutil.rmtree(LAKE, ignore_errors=True)
    headgate.connect(LAKE).close()  # before the mark: a new lake needs an empty folder
    MARK.touch()


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Redirect stderr of processes that are started inside to a file."""
    before = os.dup(2)
    with log.open("w") as sink:
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


if __name__ == "__main__":
    main()
