"""The lowest possible cost of each scenario on this disk, measured in the same run.

Floors have the signature of sides, run in processes of their own and do not use Headgate. Here and
in the scenarios a side imports what it needs itself, before the clock starts, so that imports of
other sides do not count as its memory.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from bench.watch import Seen, Watch

_TIMES = 15  # samples of a short floor: the median of one reading must stand still
_FEW_TIMES = 3  # of a long one


def put_if_absent(watch: Watch, place: str, count: int, size: int) -> Seen:
    """Write small files durably, one after the other, in one thread."""
    folder = _fresh(place)
    content = os.urandom(size)
    with watch.measure():
        for number in range(count):
            _put(folder, f"{number:020d}.json", content)
    return Seen(rows=count)


def put_and_commit(watch: Watch, place: str, count: int, size: int) -> Seen:
    """Write a file durably, then commit a row: the minimum of a durable append."""
    folder = _fresh(place)
    database = _database(folder / "floor.db")
    content = os.urandom(size)
    for number in range(count):
        with watch.measure():
            _put(folder, f"{number:020d}.parquet", content)
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO commits VALUES (?, ?)", (number, content))
            database.execute("COMMIT")
    database.close()
    return Seen(rows=count)


def compare_and_set(watch: Watch, place: str, count: int, size: int) -> Seen:
    """Commit as a catalog must: read the head, insert the commit, set the head if unchanged."""
    folder = _fresh(place)
    database = _database(folder / "floor.db")
    database.execute("CREATE TABLE heads (id INTEGER PRIMARY KEY, head INTEGER NOT NULL)")
    database.execute("INSERT INTO heads VALUES (1, 0)")
    content = os.urandom(size)
    with watch.together():
        for _ in range(count):
            with watch.sample():
                database.execute("BEGIN IMMEDIATE")
                [head] = database.execute("SELECT head FROM heads WHERE id = 1").fetchone()
                database.execute("INSERT INTO commits VALUES (?, ?)", (head + 1, content))
                database.execute(
                    "UPDATE heads SET head = ? WHERE id = 1 AND head = ?", (head + 1, head)
                )
                database.execute("COMMIT")
    database.close()
    return Seen(rows=count)


def read_rows(watch: Watch, place: str, count: int, size: int) -> Seen:
    """Read many contents out of a database that was just opened."""
    path = _filled(place, count, size)
    for _ in range(_TIMES):
        with watch.measure():
            database = sqlite3.connect(path)
            rows = database.execute("SELECT content FROM commits ORDER BY version").fetchall()
            database.close()
        assert len(rows) == count
    return Seen(rows=count)


def read_newest(watch: Watch, place: str, count: int, size: int, times: int) -> Seen:
    """Read the newest of many contents, again and again, each time in a transaction of its own."""
    database = sqlite3.connect(_filled(place, count, size), isolation_level=None)
    newest = 0
    for _ in range(times):
        with watch.measure():
            database.execute("BEGIN")
            [newest] = database.execute("SELECT max(version) FROM commits").fetchone()
            database.execute("SELECT content FROM commits WHERE version = ?", (newest,)).fetchone()
            database.execute("COMMIT")
    database.close()
    return Seen(rows=newest)


def read_parquet(watch: Watch, path: str, stats: bool) -> Seen:
    """Read the columns about files of a checkpoint into Arrow."""
    import pyarrow.parquet as pq

    columns = [f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime")]
    wanted = [*columns, *(["add.stats"] if stats else [])]
    for _ in range(_FEW_TIMES):
        with watch.measure():
            table = pq.ParquetFile(path, memory_map=True).read(columns=wanted)
        rows = table.num_rows
        del table
    return Seen(rows=rows)


def write_parquet(watch: Watch, place: str, files: int) -> Iterator[Seen]:
    """Write files that are in memory already as a checkpoint would, durably."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bench.prepared import add_columns

    folder = _fresh(place)
    table = pa.table({"add": add_columns(files)})
    path = folder / "checkpoint.parquet"
    while True:
        for _ in range(_FEW_TIMES):
            with watch.measure():
                with path.open("wb") as file:
                    pq.write_table(table, file)
                    file.flush()
                    os.fsync(file.fileno())
                _sync_folder(folder)
            path.unlink()
        yield Seen(rows=files)


def _put(folder: Path, name: str, content: bytes) -> None:
    """Write one file: temporary file, sync, link, unlink, sync of the folder."""
    temporary = folder / f".{name}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.link(temporary, folder / name)
    temporary.unlink()
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fresh(place: str) -> Path:
    folder = Path(place)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _filled(place: str, count: int, size: int) -> Path:
    path = Path(place) / f"floor-{count}-{size}.db"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        database = _database(path)
        database.execute("BEGIN")
        rows = ((number, os.urandom(size)) for number in range(count))
        database.executemany("INSERT INTO commits VALUES (?, ?)", rows)
        database.execute("COMMIT")
        database.close()
    return path


def _database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE commits (version INTEGER PRIMARY KEY, content BLOB NOT NULL)")
    return database
