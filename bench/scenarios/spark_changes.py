"""17, changing: DELETE, UPDATE and MERGE of 1 % in one Spark, and deltalake beside it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.spark_changes"
_WHERE = "id % 100 = 3"  # in every file
_SET = {"cents": "cents + 1"}
_ON = "t.id = s.id"
_DELETE, _UPDATE, _MERGE = "DELETE", "UPDATE", "MERGE"
STATEMENTS = {
    _DELETE: f"DELETE FROM {{t}} WHERE {_WHERE}",
    _UPDATE: f"UPDATE {{t}} SET cents = cents + 1 WHERE {_WHERE}",
    _MERGE: f"MERGE INTO {{t}} AS t USING {{s}} AS s ON {_ON}"
    " WHEN MATCHED THEN UPDATE SET cents = s.cents WHEN NOT MATCHED THEN INSERT *",
}
TABLES = {"copied": "copy on write", "vectored": "deletion vectors"}
_SUMS = ("count(*)", "sum(cents)", "sum(id)")
_LIMIT = 1.0


def change(
    watch: Watch, changer: str, statement: str, place: str, table: str, synced: bool
) -> Iterator[Seen]:
    """Run one statement, each turn on the same rows."""
    from bench.disk import data_files, sweep

    made = _CHANGERS[changer](Path(place), table, statement, synced=synced)
    kept = data_files(made.root)
    while True:
        os.sync()  # what others left to be written later is not this side's to wait for
        with watch.together(), watch.sample():
            made.run()
        rows, cents, ids = made.sums()
        made.restore()
        sweep(made.root, kept)
        yield Seen(rows=rows, checksum=cents + ids)


class _Changer(ABC):
    """A reader and writer that changes a table and can restore it."""

    root: Path

    @abstractmethod
    def __init__(self, place: Path, table: str, statement: str, *, synced: bool) -> None:
        """Open the table."""

    @abstractmethod
    def run(self) -> None:
        """Change rows, durably if asked."""

    @abstractmethod
    def sums(self) -> tuple[int, int, int]:
        """Return a summary of the table's rows."""

    @abstractmethod
    def restore(self) -> None:
        """Restore the table."""


class _Headgate(_Changer):
    def __init__(self, place: Path, table: str, statement: str, *, synced: bool) -> None:
        from bench.prepared import local
        from bench.spark import lake

        self._lake = lake(str(place / "lake"), sync_data=synced)
        self._name = table
        self._text = STATEMENTS[statement].format(t=table, s="changes")
        self._table = self._lake.session.table(table)
        self.root = local(self._table.location)
        self._files = {_key(file): file for file in self._table.snapshot().files()}

    def run(self) -> None:
        self._lake.sql(self._text)

    def sums(self) -> tuple[int, int, int]:
        [row] = self._lake.read(self._name).selectExpr(*_SUMS).collect()
        return tuple(row)

    def restore(self) -> None:
        from headgate.client.transaction import OperationInfo
        from headgate.clock import SystemClock
        from headgate.protocol.actions import removals

        now = self._table.snapshot()
        there = {_key(file): file for file in now.files()}
        gone = [file for key, file in there.items() if key not in self._files]
        back = [file for key, file in self._files.items() if key not in there]
        actions = [*removals(gone, SystemClock().now_ms()), *back]
        self._table.commit(now, actions, OperationInfo("RESTORE"))


def _key(file: Any) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return file.path, None if vector is None else vector.path_or_inline_dv


class _DeltaSpark(_Changer):
    def __init__(self, place: Path, table: str, statement: str, *, synced: bool) -> None:
        from bench.peers.delta_spark import version
        from bench.spark import session

        self._spark = session()
        self.root = place / "plain" / table
        source = place / "plain" / "changes"
        names = {"t": f"delta.`{self.root}`", "s": f"delta.`{source}`"}
        self._text = STATEMENTS[statement].format(**names)
        self._synced = synced
        self._version = version(self.root)

    def run(self) -> None:
        from bench.peers.delta_spark import sync_written

        self._spark.sql(self._text)
        if self._synced:
            sync_written(self.root)

    def sums(self) -> tuple[int, int, int]:
        from bench.peers.delta_spark import read

        [row] = read(self._spark, self.root).selectExpr(*_SUMS).collect()
        return tuple(row)

    def restore(self) -> None:
        from bench.peers.delta_spark import restore

        restore(self._spark, self.root, self._version)


class _Deltalake(_Changer):
    def __init__(self, place: Path, table: str, statement: str, *, synced: bool) -> None:
        from bench.peers.delta_rs import DeltaTable

        self.root = place / "deltalake" / statement
        self._statement = statement
        self._table = DeltaTable(str(self.root))
        self._version = self._table.version()
        self._source = DeltaTable(str(place / "plain" / "changes")).to_pyarrow_table()
        self._synced = synced

    def run(self) -> None:
        from bench.peers.delta_rs import sync_written

        if self._statement == _DELETE:
            self._table.delete(_WHERE)
        elif self._statement == _UPDATE:
            self._table.update(updates=_SET, predicate=_WHERE)
        else:
            merging = self._table.merge(
                self._source, _ON, source_alias="s", target_alias="t"
            ).when_matched_update({"cents": "s.cents"})
            merging.when_not_matched_insert_all().execute()
        if self._synced:
            sync_written(self.root, self._table.version())

    def sums(self) -> tuple[int, int, int]:
        import pyarrow.compute as pc

        rows = self._table.to_pyarrow_table(columns=["id", "cents"])
        return rows.num_rows, pc.sum(rows["cents"]).as_py(), pc.sum(rows["id"]).as_py()

    def restore(self) -> None:
        self._table.restore(self._version)


_CHANGERS: dict[str, type[_Changer]] = {
    "headgate": _Headgate,
    "delta-spark": _DeltaSpark,
    "deltalake": _Deltalake,
}


def blocks(sizes: Sizes, place: Path) -> list[Block]:
    """Measure changes of a table without deletion vectors, and of one with them."""
    from bench.ours import connect
    from bench.peers.delta_rs import forget_timestamps
    from bench.prepared import local
    from bench.tables import copy_table

    with connect(place / "lake", publisher=False) as session:
        copied = local(session.table("copied").location)
    for statement in STATEMENTS:  # a process each, which does not look for what others did
        at = place / "deltalake" / statement
        copy_table(copied, at)
        forget_timestamps(at / "_delta_log")
    return [_block(place, table) for table in TABLES]


def _block(place: Path, table: str) -> Block:
    from bench.spark import PROCESS

    def side(changer: str, statement: str, *, synced: bool) -> Side:
        arguments = {
            "changer": changer,
            "statement": statement,
            "place": str(place),
            "table": table,
        }
        return Side(
            _name(changer, table, statement, synced=synced),
            f"{_HERE}:change",
            {**arguments, "synced": synced},
            is_durable=synced,
            stays=True,
            within=None if changer == "deltalake" else PROCESS,
            task=statement,
        )

    return Block(
        name=f"DML, {TABLES[table]}",
        per="statement",
        sides=tuple(
            side(changer, statement, synced=synced)
            for statement in STATEMENTS
            for changer, synced in _asked(table)
        ),
        floor=Side(
            "Spark's own reader and writer, the whole table",
            f"{_HERE}:rewrite",
            {"place": str(place), "table": table},
            is_durable=False,
            within=PROCESS,
        ),
    )


def _asked(table: str) -> list[tuple[str, bool]]:
    in_spark = [(name, synced) for synced in (True, False) for name in ("headgate", "delta-spark")]
    # deltalake writes no deletion vectors.
    return in_spark if table == "vectored" else [*in_spark, ("deltalake", True)]


def rewrite(watch: Watch, place: str, table: str) -> Iterator[Seen]:
    """Read all rows and write them again: the cost of copying a table with Spark alone."""
    from bench.prepared import WORK
    from bench.spark import parquet, session

    rows = parquet(session(), Path(place) / "plain" / table)
    while True:
        os.sync()
        with watch.together(), watch.sample():
            rows.write.mode("overwrite").parquet(str(WORK / "spark-rewritten"))
        yield Seen(rows=None)


def _name(changer: str, table: str, statement: str, *, synced: bool) -> str:
    return f"{changer}, {TABLES[table]}: {statement}, {'synced' if synced else 'not synced'}"


def claims() -> Sequence[Claim]:
    """Return the claims about changes."""
    found = []
    for table, way in TABLES.items():
        for statement in STATEMENTS:
            for synced in (True, False):
                syncs = "synced on both sides" if synced else "synced on no side"
                found.append(
                    Claim(
                        f"{statement} of 1 %, {way}, {syncs}, x of delta-spark",
                        _name("headgate", table, statement, synced=synced),
                        Sense.SHARE,
                        _LIMIT,
                        _name("delta-spark", table, statement, synced=synced),
                        why=_why(table, statement),
                    )
                )
            if table == "copied":
                found.append(
                    Claim(
                        f"{statement} of 1 %, {way}, synced on both sides, x of deltalake",
                        _name("headgate", table, statement, synced=True),
                        Sense.SHARE,
                        None,
                        _name("deltalake", table, statement, synced=True),
                    )
                )
    return found


def _why(table: str, statement: str) -> str:
    if table == "copied":
        return "Rows that are hit are found in one pass, and files are rewritten in another."
    return "Places of rows that are hit come to the driver as bits, and go to disk from there."
