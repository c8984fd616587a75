"""Tables for Spark, written by Spark: a lake, and plain copies of the logs over the same files.

`python -m bench.tables PLACE SIZES` writes them, in a process of its own that takes its JVM away.
The letters are those of scenario 17.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headgate.spark
from bench import prepared
from bench.harness import ROOT
from bench.ours import connect
from bench.prepared import Prepared, copy_plain, kept, local
from bench.scenario import Sizes
from headgate.client.table import Table
from headgate.client.transaction import OperationInfo
from headgate.protocol.actions import AddFile
from headgate.spark import Lake

FIRST_DAY = "2026-01-01"
SCHEMA = "id long, day date, units int, cents long, price double, name string"
COLUMNS = (
    "id",
    "date_add(DATE'{first_day}', int(id div {per_day})) AS day",
    "int(id * 7919 % 1000) AS units",
    "id * 104729 % 100003 AS cents",
    "(id % 4000) / 4.0D AS price",
    "concat('name-', hex(id * 2654435761 % 4294967296)) AS name",
)
ITEMS = 1_000  # one for each number of units
VECTORED = "delta.enableDeletionVectors"
_DELETED = 20  # one row of so many is deleted in (c)
CHANGED = 100  # one row of so many is changed by DML
_FILES_PER_COMMIT = 10_000
_SMALL_FOLDER = "small/0"


def tables(sizes: Sizes) -> Prepared:
    """Return a lake with all tables, built once for each set of sizes."""

    def build(place: Path) -> None:
        command = [sys.executable, "-m", "bench.tables", str(place), json.dumps(dict(sizes))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the tables could not be written: {done.stderr}")

    name = "-".join(str(sizes[key]) for key in ("rows", "files", "small"))
    found = kept(f"spark-{name}", build, Path(__file__))
    found.put_back()
    return found


def copy_table(root: Path, plain: Path) -> None:
    """Copy a table aside as a plain one: its log rewritten, its files by links."""
    copy_plain(root, plain)
    for path in root.iterdir():
        if path.name != "_delta_log":
            subprocess.run(["cp", "-al", str(path), str(plain)], check=True)


def main(place: Path, sizes: Sizes) -> None:
    """Write all tables."""
    from bench.spark import quiet

    spark = headgate.spark.session("bench-tables", config=quiet())
    place.mkdir(parents=True, exist_ok=True)
    with connect(place / "lake", publisher=False) as session:
        _Writing(Lake(spark, session, sync_data=False), sizes, place).all()
    spark.stop()


class _Writing:
    """The lake being filled."""

    def __init__(self, lake: Lake, sizes: Sizes, place: Path) -> None:
        self._lake = lake
        self._session = lake.session
        self._sizes = sizes
        self._place = place
        per_day = max(1, sizes["rows"] // sizes["days"])
        self._columns = [c.format(first_day=FIRST_DAY, per_day=per_day) for c in COLUMNS]

    def all(self) -> None:
        rows, files = self._sizes["rows"], self._sizes["files"]
        self._fill("a", 0, rows, files)
        self._fill("b", 0, rows, self._sizes["partition_files"], by=["day"])
        vectors = {VECTORED: "true", "headgate.dml": "deletion-vectors"}
        self._fill("c", 0, rows, files, properties=vectors)
        self._lake.delete("c", f"id % {_DELETED} = 7")
        self._fill("d", 0, rows // 2, files // 2, properties={"delta.columnMapping.mode": "name"})
        self._session.table("d").add_columns("extra long")
        self._append("d", rows // 2, rows, files // 2, "id * 3 AS extra")
        self._small()
        self._items()
        changed = self._sizes["changed"]
        self._fill("copied", 0, changed, files)
        self._fill("vectored", 0, changed, files, properties={VECTORED: "true"})
        self._changes(changed)
        for entry in self._session.tables():
            assert entry.name is not None
            table = self._session.table(entry.name)
            table.publish()
            short = entry.name.rpartition(".")[2]
            copy_table(local(table.location), self._place / "plain" / short)

    def _fill(
        self,
        name: str,
        first: int,
        end: int,
        files: int,
        *,
        by: list[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        # As many files as are asked for, however small.
        settings = {"delta.autoOptimize.optimizeWrite": "false", **(properties or {})}
        self._session.create_table(name, SCHEMA, by or (), settings)
        self._append(name, first, end, files)

    def _append(self, name: str, first: int, end: int, files: int, *more: str) -> None:
        numbers = self._lake.spark.range(first, end, 1, files)
        self._lake.append(name, numbers.selectExpr(*self._columns, *more))

    def _items(self) -> None:
        self._session.create_table("items", "units int, kind string")
        rows = self._lake.spark.range(0, ITEMS, 1, 1)
        self._lake.append(
            "items", rows.selectExpr("int(id) AS units", "char(65 + id % 20) AS kind")
        )

    def _changes(self, rows: int) -> None:
        """Write the source of a MERGE: rows that are there, and a tenth as many that are not."""
        self._session.create_table("changes", SCHEMA)
        there = self._lake.spark.range(3, rows, CHANGED, 1)
        new = self._lake.spark.range(rows, rows + rows // CHANGED // 10, 1, 1)
        numbers = there.union(new).coalesce(1)
        changed = numbers.selectExpr(*self._columns).selectExpr(
            "id", "day", "units", "cents + 1 AS cents", "price", "name"
        )
        self._lake.append("changes", changed)

    def _small(self) -> None:
        """Write very many small files, with statistics, in a few commits."""
        table = self._session.create_table("e", SCHEMA)
        count = self._sizes["small"]
        rows = max(1, self._sizes["rows"] // count)
        first = self._lake.spark.range(0, rows, 1, 1).selectExpr(*self._columns).toArrow()
        folder = local(table.location) / _SMALL_FOLDER
        folder.mkdir(parents=True)
        for start in range(0, count, _FILES_PER_COMMIT):
            numbers = range(start, min(count, start + _FILES_PER_COMMIT))
            added = [_small_file(folder, number, first) for number in numbers]
            _commit(table, added)


def _small_file(folder: Path, number: int, rows: pa.Table) -> AddFile:
    least = number * rows.num_rows
    ids = pc.add(rows["id"], least).cast(pa.int64())
    name = f"part-{number:05d}.parquet"
    pq.write_table(rows.set_column(0, "id", ids), folder / name)
    bounds = f'"minValues":{{"id":{least}}},"maxValues":{{"id":{least + rows.num_rows - 1}}}'
    return AddFile(
        path=f"{_SMALL_FOLDER}/{name}",
        partition_values={},
        size=(folder / name).stat().st_size,
        modification_time=prepared.MODIFIED_MS,
        data_change=True,
        stats=f'{{"numRecords":{rows.num_rows},{bounds},"nullCount":{{"id":0}}}}',
    )


def _commit(table: Table, added: list[AddFile]) -> None:
    table.commit(table.snapshot(), added, OperationInfo("WRITE", {"mode": "Append"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
