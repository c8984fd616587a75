"""17, writing: the same rows by Spark's own writer, by delta-spark and by us, in one Spark."""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Block, Side
from bench.scenario import Claim, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.spark import Lake

_HERE = "bench.scenarios.spark_writes"
_APPEND, _PARTITIONED, _OVERWRITE = "append", "partitioned append", "overwrite"
KINDS = (_APPEND, _PARTITIONED, _OVERWRITE)
_OF_PARQUET, _OF_DELTA = 1.15, 1.0


def write(
    watch: Watch, writer: str, kind: str, place: str, target: str, synced: bool, share: float
) -> Iterator[Seen]:
    """Write rows that are read from Parquet files, the same ones in each turn."""
    from bench.spark import parquet, session

    spark = session()
    source = parquet(spark, Path(place) / "plain" / "a", share)
    by = ["day"] if kind == _PARTITIONED else []
    made = _WRITERS[writer](source, Path(target), by, synced=synced)
    made.begin()
    if kind == _OVERWRITE:
        made.write("append")
    while True:
        if kind != _OVERWRITE:
            made.begin()
        os.sync()  # what others left to be written later is not this side's to wait for
        with watch.together(), watch.sample():
            made.write("overwrite" if kind == _OVERWRITE else "append")
        [found] = made.read().selectExpr("count(*)", "sum(cents) + sum(id)").collect()
        made.sweep()
        yield Seen(rows=found[0], checksum=found[1])


class _Writer(ABC):
    """A writer of tables in a folder."""

    def __init__(self, rows: DataFrame, folder: Path, by: list[str], *, synced: bool) -> None:
        self._rows = rows
        self._folder = folder
        self._by = by
        self._synced = synced
        self._numbers = itertools.count()
        self._root = folder

    @abstractmethod
    def begin(self) -> None:
        """Create an empty table and remove the previous one."""

    @abstractmethod
    def write(self, mode: str) -> None:
        """Write the rows, durably if asked."""

    @abstractmethod
    def read(self) -> DataFrame:
        """Return what was written."""

    def sweep(self) -> None:
        """Remove files that are no longer read."""
        from bench.disk import sweep
        from headgate.storage import locations

        named = self.read().inputFiles()
        sweep(self._root, {Path(locations.decode(name.partition(":")[2])) for name in named})

    def _fresh(self) -> Path:
        shutil.rmtree(self._root, ignore_errors=True)
        self._root = self._folder / str(next(self._numbers))
        self._root.parent.mkdir(parents=True, exist_ok=True)
        return self._root


class _Parquet(_Writer):
    def begin(self) -> None:
        self._fresh()

    def write(self, mode: str) -> None:
        from bench.disk import data_files, sync

        self._rows.write.mode(mode).partitionBy(*self._by).parquet(str(self._root))
        if self._synced:
            files = data_files(self._root)
            sync([*files, *{path.parent for path in files}])

    def read(self) -> DataFrame:
        return self._rows.sparkSession.read.parquet(str(self._root))


class _DeltaSpark(_Writer):
    def begin(self) -> None:
        from bench.peers.delta_spark import create_like

        create_like(self._rows, self._fresh(), self._by)

    def write(self, mode: str) -> None:
        from bench.peers.delta_spark import sync_written

        self._rows.write.format("delta").mode(mode).save(str(self._root))
        if self._synced:
            sync_written(self._root)

    def read(self) -> DataFrame:
        from bench.peers.delta_spark import read

        return read(self._rows.sparkSession, self._root)


class _Headgate(_Writer):
    _name = ""

    def begin(self) -> None:
        from bench.prepared import local
        from bench.tables import SCHEMA

        session = self._lake().session
        if self._name:
            session.drop(self._name)
            shutil.rmtree(self._root, ignore_errors=True)
        self._name = f"t{uuid.uuid4().hex}"  # a run that was cut off may have left others
        self._root = local(session.create_table(self._name, SCHEMA, self._by).location)

    def write(self, mode: str) -> None:
        if mode == "overwrite":
            self._lake().overwrite(self._name, self._rows)
        else:
            self._lake().append(self._name, self._rows)

    def read(self) -> DataFrame:
        return self._lake().read(self._name)

    def _lake(self) -> Lake:
        from bench.spark import lake

        return lake(str(self._folder), sync_data=self._synced)


_WRITERS: dict[str, type[_Writer]] = {
    "headgate": _Headgate,
    "delta-spark": _DeltaSpark,
    "Parquet": _Parquet,
}


def blocks(sizes: Sizes, place: Path) -> list[Block]:
    """Measure three writers, synced and not."""
    return [_block(sizes, place, kind) for kind in KINDS]


def _block(sizes: Sizes, place: Path, kind: str) -> Block:
    from bench.prepared import WORK
    from bench.spark import PROCESS

    share = sizes["written"] / sizes["rows"]

    def side(writer: str, *, synced: bool, name: str | None = None) -> Side:
        at = WORK / "spark-writes" / f"{kind}-{name or writer}-{synced}".replace(" ", "-")
        arguments = {"writer": writer, "kind": kind, "place": str(place), "target": str(at)}
        return Side(
            name or _name(writer, kind, synced=synced),
            f"{_HERE}:write",
            {**arguments, "synced": synced, "share": share},
            is_durable=synced,
            within=PROCESS,
        )

    return Block(
        name=kind,
        per="write",
        sides=tuple(
            side(writer, synced=synced)
            for synced in (True, False)
            for writer in _WRITERS
            if synced or writer != "Parquet"  # that is the floor
        ),
        floor=side("Parquet", synced=False, name=f"Spark's own writer, {kind}"),
    )


def _name(writer: str, kind: str, *, synced: bool) -> str:
    return f"{writer}, {kind}, {'synced' if synced else 'not synced'}"


def claims() -> Sequence[Claim]:
    """Return the claims about writing."""
    found = []
    for kind in KINDS:
        for synced in (True, False):
            case = f"{kind}, {'synced on both sides' if synced else 'synced on no side'}"
            parquet = _name("Parquet", kind, synced=True) if synced else floor_of(kind)
            found += [
                Claim(
                    f"{case}, x of Parquet",
                    _name("headgate", kind, synced=synced),
                    Sense.SHARE,
                    _OF_PARQUET,
                    parquet,
                    why="Footers are read for statistics, files listed, and a commit made.",
                ),
                Claim(
                    f"{case}, x of delta-spark",
                    _name("headgate", kind, synced=synced),
                    Sense.SHARE,
                    _OF_DELTA,
                    _name("delta-spark", kind, synced=synced),
                    why="Both write by Spark's own writer; delta-spark gathers statistics while "
                    "it writes, we read footers afterwards.",
                ),
            ]
    return found
