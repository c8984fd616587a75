"""A tour of Headgate, and what `make run` does: a pipeline on Spark over a lake in ./lake-demo.

A few hundred thousand orders go from bronze to silver to gold; some come late, a customer asks to
be forgotten, two people write at once. Every total is computed once more without Spark, and the
tour ends with an error if one differs. Its parts are in `shop/`.
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
from shop.report import report
from shop.telling import step, tell, title

import headgate
import headgate.spark
from headgate.errors import UnavailableError
from headgate.settings import Settings

LAKE = Path("lake-demo")
MARK = LAKE / "made-by-the-demo"  # only what the demo made, the demo removes


def main() -> None:
    """Tell the whole story."""
    make_room()
    title("Spark, and a week of deliveries")
    with step("making up a week of orders"):
        files = orders.deliver(LAKE / "deliveries")
    with step("starting Spark"), java_speaks_into(LAKE / "spark.log"):
        spark = start_spark()
    tell(f"{len(files)} deliveries, and Spark {spark.version}")
    with (
        headgate.connect(LAKE) as ann,
        # Bea's commits are too large to travel inline, or so she says: hers are staged.
        headgate.connect(LAKE, settings=Settings(inline_limit_bytes=0)) as bea,
    ):
        lake = headgate.spark.Lake(spark, ann)
        pipeline.make_tables(lake)
        pipeline.load_the_week(lake, bea, files)
        pipeline.clean(lake, files)
        pipeline.merge_late_ones(lake, files)
        pipeline.forget(lake, files)
        catalogs.conflict(lake, bea, files)
        catalogs.the_same_again(ann)
        pipeline.travel(lake, files)
    spark.stop()
    catalogs.no_database(LAKE / "filesystem-catalog")
    report(LAKE)


def start_spark() -> SparkSession:
    """Start Spark, or say what is missing."""
    own = {"spark.sql.warehouse.dir": str(LAKE.resolve() / "spark-warehouse")}
    try:
        return headgate.spark.session("demo", config=own)
    except UnavailableError as error:
        sys.exit(f"{error.message} {error.remedy}")


def make_room() -> None:
    """Remove what an earlier run left, and nothing else; make the lake anew."""
    if LAKE.exists() and not MARK.exists():
        sys.exit(f"{LAKE} is there and was not made by this demo: move it away first.")
    shutil.rmtree(LAKE, ignore_errors=True)
    headgate.connect(LAKE).close()  # a lake is made in a folder that is empty
    MARK.touch()


@contextmanager
def java_speaks_into(log: Path) -> Iterator[None]:
    """Give the process that is started inside a file for what it says on stderr."""
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
