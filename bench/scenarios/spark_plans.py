"""17, planning: very many files, and a snapshot of a million."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Block, Side
from bench.scenario import Claim, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HERE = "bench.scenarios.spark_plans"
_SMALL, _WIDE = "(e) small files", "wide snapshot"
_SECONDS = 3.0
_GIGABYTES = 2e9
_ROWS_PER_FILE = 1_000  # by the statistics of a wide table


def small(watch: Watch, reader: str, place: str, text: str) -> Iterator[Seen]:
    """Plan a scan of many small files, down to the splits that tasks would read."""
    from bench.spark import READERS, plan_files

    ask = READERS[reader](Path(place), "e")
    plan_files(ask(text))
    count = len(ask(text).inputFiles())
    while True:
        with watch.together(), watch.sample():
            plan_files(ask(text))
        yield Seen(rows=count)


def wide(watch: Watch, place: str, where: str) -> Seen:
    """Open a table of very many files in a new Spark, and plan a scan of a few."""
    import headgate.spark
    from bench.ours import NAME, connect
    from bench.spark import quiet

    spark = headgate.spark.session("bench", config=quiet())
    spark.range(10).count()
    with connect(place, publisher=False) as session:
        lake = headgate.spark.Lake(spark, session)
        return _wide(watch, lambda: lake.read(NAME, where=where))


def wide_delta(watch: Watch, place: str, where: str) -> Seen:
    """Do the same with delta-spark, with much more memory: with 4 GB of heap it fails."""
    import headgate.spark
    from bench.peers import delta_spark
    from bench.spark import quiet

    config = {**quiet(), **delta_spark.CONFIG, "spark.driver.memory": "10g"}
    spark = headgate.spark.session("bench", config=config)
    spark.range(10).count()
    return _wide(watch, lambda: delta_spark.read(spark, Path(place)).where(where))


def _wide(watch: Watch, read: Callable[[], DataFrame]) -> Seen:
    from bench.spark import plan_files

    with watch.together(), watch.sample():
        frame = read()
        plan_files(frame)
    return Seen(rows=len(frame.inputFiles()))


def blocks(sizes: Sizes, place: Path) -> list[Block]:
    """Plan few and all of many small files, and few of a million."""
    return [_small_block(sizes, place), _wide_block(sizes)]


def _small_block(sizes: Sizes, place: Path) -> Block:
    from bench.spark import PROCESS

    rows = sizes["rows"] // sizes["small"] * sizes["planned"]
    everything = "SELECT id, cents FROM {t}"
    texts = {
        sizes["planned"]: f"{everything} WHERE id < {rows}",
        sizes["small"]: everything,
    }

    def side(reader: str, text: str, name: str) -> Side:
        arguments = {"reader": reader, "place": str(place), "text": text}
        return Side(name, f"{_HERE}:small", arguments, within=PROCESS, task=text)

    return Block(
        name=_SMALL,
        per="plan",
        sides=tuple(
            side(reader, text, _name(reader, count))
            for count, text in texts.items()
            for reader in ("headgate", "delta-spark")
        ),
        floor=side("Parquet", everything, "Spark's own listing of the folder"),
    )


def _wide_block(sizes: Sizes) -> Block:
    from bench import prepared
    from bench.ours import NAME, connect

    made = prepared.wide(sizes["wide"])
    made.put_back()
    kept = sizes["kept"]
    with connect(made.lake, publisher=False) as session:
        root = prepared.local(session.table(NAME).location)
    _put_files(root, kept)
    where = f"id < {kept * _ROWS_PER_FILE}"
    [checkpoint] = Path(made.plain).glob("_delta_log/*.checkpoint.parquet")
    return Block(
        name=_WIDE,
        per="plan",
        sides=(
            Side("headgate, wide", f"{_HERE}:wide", {"place": str(made.lake), "where": where}),
            Side(
                "delta-spark, wide",
                f"{_HERE}:wide_delta",
                {"place": str(made.plain), "where": where},
            ),
        ),
        floor=Side(
            "read the checkpoint's columns with pyarrow",
            "bench.floors:read_parquet",
            {"path": str(checkpoint), "stats": True},
        ),
    )


def _put_files(root: Path, count: int) -> None:
    """Write the first files of a wide table: Spark looks up each of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bench.prepared import WORK, add_file

    one = WORK / "one.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), one)
    for number in range(count):
        path = root / add_file(number).path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(one, path)
    one.unlink()


def _name(reader: str, count: int) -> str:
    return f"{reader}, {count:,} files"


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims about planning."""
    planned, small = sizes["planned"], sizes["small"]
    return [
        Claim(
            f"plan {planned:,} files of {small:,}, warm",
            _name("headgate", planned),
            Sense.SECONDS,
            _SECONDS,
            why="Every file is named to Spark, which looks each up, one after the other.",
        ),
        *(
            Claim(
                f"plan {count:,} files, x of delta-spark",
                _name("headgate", count),
                Sense.SHARE,
                None,
                _name("delta-spark", count),
            )
            for count in (planned, small)
        ),
        Claim(
            f"plan {small:,} files, x of Spark's own listing",
            _name("headgate", small),
            Sense.SHARE,
            None,
            floor_of(_SMALL),
        ),
        Claim(
            f"plan at most {sizes['kept']:,} files of {sizes['wide']:,}, Python and JVM together",
            "headgate, wide",
            Sense.BYTES,
            _GIGABYTES,
            why="Statistics of all files are held as text while files are chosen.",
        ),
        Claim(
            f"plan at most {sizes['kept']:,} files of {sizes['wide']:,}, cold, x of delta-spark",
            "headgate, wide",
            Sense.SHARE,
            None,
            "delta-spark, wide",
        ),
    ]
