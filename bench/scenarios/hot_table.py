"""3: many writers append to one table at once, blindly."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.hot_table"
_OURS, _SYNCED, _AS_IT_COMES, _DUCKLAKE = "headgate", "deltalake, synced", "deltalake", "DuckLake"
_FAILED = "failed appends"
_AHEAD = "timestamps ahead of the clock, ms"


def ours(watch: Watch, place: str, writers: int, count: int) -> Iterator[Seen]:
    """Append through our server, which rebases appends itself."""
    from bench.load import Generator, Plan
    from bench.server import publish_all, serving_tables

    with serving_tables(place, 1) as (server, [table_id]):
        head = 0
        while True:
            plans = [
                Plan(table_id, head + 1, count, head + number * count, follows=True)
                for number in range(writers)
            ]
            generator = Generator(server.port, plans)
            with watch.together():
                began = time.monotonic()
                generator.go()
                found = generator.wait()
                watch.record(found.seconds, found.good)
            publish_all(server.port, [table_id])
            whole = time.monotonic() - began
            watch.facts |= found.facts() | {"commits/s until all is published": found.good / whole}
            watch.worst |= {
                _FAILED: found.failed,
                "asked to come again": found.again,
                _AHEAD: max(0, found.newest_ms - found.ended_ms),
            }
            yield Seen(rows=head + found.good - max(found.versions))
            head = max(found.versions)


def deltalake(watch: Watch, place: str, writers: int, count: int, synced: bool) -> Iterator[Seen]:
    """Append by path from several processes, with deltalake's own retries."""
    context = multiprocessing.get_context("spawn")  # its threads do not survive a fork
    running = []
    for number in range(writers):
        mine, theirs = context.Pipe()
        process = context.Process(target=_write, args=(number, count, synced, theirs), daemon=True)
        process.start()
        running.append((mine, process))
    for turn in itertools.count():
        root = f"{place}/{turn}"
        _make_plain(root)
        for pipe, _ in running:
            pipe.send(root)
        for pipe, _ in running:
            assert pipe.recv() == "ready"
        with watch.together():
            began = time.monotonic()
            for pipe, _ in running:
                pipe.send("go")
            good = sum(pipe.recv() for pipe, _ in running)
            seconds = time.monotonic() - began
            watch.record(seconds, good)
        watch.facts["commits/s"] = good / seconds
        watch.worst[_FAILED] = writers * count - good
        yield Seen(rows=good - _newest(root))


def _make_plain(place: str) -> None:
    from bench.peers.delta_rs import DeltaTable

    DeltaTable.create(place, _schema())


def _newest(place: str) -> int:
    from bench.peers.delta_rs import DeltaTable

    version: int = DeltaTable(place).version()
    return version


def _write(number: int, count: int, synced: bool, pipe: Any) -> None:
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction

    from bench.peers.delta_rs import DeltaTable, sync_commit

    schema = _schema()
    stats = '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":999},"nullCount":{"id":0}}'
    while True:
        place = pipe.recv()
        table = DeltaTable(place)
        pipe.send("ready")
        pipe.recv()
        good = 0
        for turn in range(count):
            path = f"part-{number:05d}-{turn:05d}.c000.snappy.parquet"
            try:
                added = AddAction(path, 100_000, {}, 1_700_000_000_000, True, stats)
                table.create_write_transaction([added], "append", schema)
            except DeltaError:
                continue
            if synced:
                sync_commit(Path(place), table.version())
            good += 1
        pipe.send(good)


def _schema() -> Any:
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    return Schema([Field("id", PrimitiveType("long")), Field("name", PrimitiveType("string"))])


def ducklake(watch: Watch, place: str, writers: int, count: int) -> Seen:
    """Register prepared files over several connections to one lake."""
    from duckdb import Error

    from bench.peers.ducklake import append, connect, prepare, rows

    connection = connect(place)
    good: list[int] = []

    def write(number: int) -> None:
        cursor = connection.cursor()
        for _ in range(count):
            try:
                append(cursor, paths[number])
            except Error:
                continue
            good.append(number)

    paths = [prepare(connection, place, number) for number in range(writers)]
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    with watch.together():
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        watch.record(seconds, len(good))
    watch.facts["commits/s"] = len(good) / seconds
    watch.worst[_FAILED] = writers * count - len(good)
    missing = len(good) - rows(connection)
    connection.close()
    return Seen(rows=missing)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our server, deltalake, as it comes and made durable, and DuckLake."""
    from bench.prepared import WORK, fresh

    def side(name: str, function: str, place: str, count: int, **more: object) -> Side:
        folder = WORK / place
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "writers": sizes["writers"], "count": count, **more},
            is_durable=more.get("synced", True) is True,
            stays=function != "ducklake",
            reset=lambda: fresh(folder),
        )

    return [
        Block(
            name="hot table",
            per="good commit",
            sides=(
                side(_OURS, "ours", "hot-a", sizes["appends"]),
                side(_SYNCED, "deltalake", "hot-b", sizes["theirs"], synced=True),
                side(_AS_IT_COMES, "deltalake", "hot-c", sizes["theirs"], synced=False),
                side(_DUCKLAKE, "ducklake", "hot-d", sizes["theirs"]),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set; one client",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-3"), "count": 2_000, "size": 700},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim(
            "good commits, against deltalake made as durable, its commits synced",
            _OURS,
            Sense.FASTER,
            20,
            _SYNCED,
            why="One interpreter reads, judges and writes every commit; see scenario 2.",
        ),
        Claim("failed appends", _OURS, Sense.FACT, 0, lap=_FAILED),
        Claim("against deltalake as it comes", _OURS, Sense.FASTER, None, _AS_IT_COMES),
        Claim("against DuckLake", _OURS, Sense.FASTER, 20, _DUCKLAKE),
        Claim("timestamps ahead of the clock, ms", _OURS, Sense.FACT, None, lap=_AHEAD),
    ]


SCENARIO = Scenario(
    number=3,
    title="{writers} writers, one hot table, blind appends",
    how="Files are prepared in advance or only named: the commit is measured, and only commits "
    "that end up in the log count. Ours: {appends} appends on each of {writers} connections over "
    "HTTP, by the load generator of scenario 2, each for the version after the newest one that "
    "its connection knows. deltalake: {writers} processes with {theirs} appends each, on a table "
    "made for the turn, with its own retries. It syncs nothing, so it runs twice: as it comes, "
    "marked as not durable, and with each commit and the log's folder synced. DuckLake: {writers} "
    "connections of one process to a lake whose metadata is a DuckDB file. In-commit timestamps "
    "of a table rise by at least 1 ms per commit, so above 1,000/s they run ahead of the clock; "
    "the table shows by how much.",
    full={"writers": 16, "appends": 250, "theirs": 10},
    quick={"writers": 16, "appends": 30, "theirs": 2},
    blocks=blocks,
    claims=claims,
    is_quick=True,
)
