"""6: load the latest of many commits without a checkpoint, in a new process.

The clock starts after the imports and stops when all files are there as Arrow columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness import Block, Side
from bench.scenario import Claim, Counts, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.cold_load"


def ours(watch: Watch, place: str) -> Seen:
    """Connect, load, return the files."""
    from bench.ours import NAME, connect, seen

    with watch.measure():
        session = connect(place)
        snapshot = session.table(NAME).snapshot()
        watch.lap("load")
        files = snapshot.file_columns()
        watch.lap("columns")
    found = seen(files)
    session.close()
    return found


def served(watch: Watch, place: str) -> Seen:
    """Connect to a running server, load, return the files."""
    from bench.ours import NAME, connect, seen
    from bench.server import headgate

    with headgate(place) as server:
        with watch.measure():
            session = connect(server.address)
            snapshot = session.table(NAME).snapshot()
            watch.lap("load")
            files = snapshot.file_columns()
            watch.lap("columns")
        found = seen(files)
        session.close()
    return found


def deltalake(watch: Watch, place: str) -> Seen:
    """Open by path, return the files."""
    from bench.peers.delta_rs import DeltaTable, seen

    with watch.measure():
        table = DeltaTable(place)
        watch.lap("load")
        files = table.get_add_actions()
        watch.lap("columns")
    return seen(files)


def duckdb(watch: Watch, place: str) -> Seen:
    """Plan a scan, which is less work than returning the files; those are compared afterwards."""
    from bench.peers.duck import connect, list_files, plan, seen

    connection = connect()
    with watch.measure():
        planned = plan(connection, place)
    assert "DELTA_SCAN" in planned
    found = seen(list_files(connection, place), place)
    connection.close()
    return found


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure inline and staged commits and both peers."""
    from bench.prepared import WORK

    commits = sizes["commits"]
    return [
        Block(
            name="cold load",
            per="load",
            sides=tuple(_sides(commits, with_server=True)),
            floor=Side(
                "read as many contents from SQLite",
                "bench.floors:read_rows",
                {"place": str(WORK / "floor-6"), "count": commits, "size": 700},
            ),
        )
    ]


def _sides(commits: int, *, with_server: bool = False) -> Sequence[Side]:
    from bench.prepared import narrow

    inline, staged = narrow(commits, "inline"), narrow(commits, "staged")
    for prepared in (inline, staged):
        prepared.put_back()
    plain = {"place": str(inline.plain)}
    through = Side(
        "headgate, inline, through a server", f"{_HERE}:served", {"place": str(inline.lake)}
    )
    return [
        Side("headgate, inline", f"{_HERE}:ours", {"place": str(inline.lake)}),
        *((through,) if with_server else ()),
        Side("headgate, staged", f"{_HERE}:ours", {"place": str(staged.lake)}),
        Side("deltalake", f"{_HERE}:deltalake", plain),
        Side("DuckDB delta", f"{_HERE}:duckdb", plain),
    ]


def counts(sizes: Sizes) -> Counts | str:
    """Count the calls of one load each, on a smaller log: a trace makes calls slow."""
    from bench import counting

    if not counting.is_available():
        return counting.MISSING
    places = [(side, Path(str(side.arguments["place"]))) for side in _sides(sizes["counted"])]
    return {
        f"load, {side.name}": counting.count(
            side, place / "tables" if place.name == "lake" else place
        )
        for side, place in places
    }


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim(
            "inline against deltalake",
            "headgate, inline",
            Sense.FASTER,
            30,
            "deltalake",
            why="A row of SQLite, two objects and a decoded line for each commit remain.",
        ),
        Claim(
            "inline against deltalake's load alone, without giving the files",
            "headgate, inline",
            Sense.FASTER,
            None,
            "deltalake",
            against_lap="load",
        ),
        Claim(
            "inline, through a server, against deltalake",
            "headgate, inline, through a server",
            Sense.FASTER,
            None,
            "deltalake",
        ),
        Claim("inline, in time", "headgate, inline", Sense.SECONDS, 0.100),
        Claim(
            "inline, LISTs of the log",
            "load, headgate, inline",
            Sense.COUNT,
            0,
            lap="LIST",
        ),
        Claim(
            "inline against DuckDB's plan of a scan",
            "headgate, inline",
            Sense.FASTER,
            None,
            "DuckDB delta",
        ),
        Claim(
            "staged against deltalake",
            "headgate, staged",
            Sense.FASTER,
            8,
            "deltalake",
            why="A staged commit is a file of its own, and opening each takes most of the time.",
        ),
    ]


SCENARIO = Scenario(
    number=6,
    title="load the latest of {commits:,} commits, no checkpoint, cold process",
    how="A new process with a warm page cache. The clock runs from the end of the imports until "
    "all files are Arrow columns. All commits are published; peers read a plain copy of the log, "
    "with catalogManaged and vacuumProtocolCheck removed from both protocol lists. DuckDB plans a "
    "scan of all rows, which is less work than returning the files. The catalog runs once in the "
    "process and once behind a server that is already running.",
    full={"commits": 10_000, "counted": 300},
    quick={"commits": 1_000, "counted": 100},
    blocks=blocks,
    claims=claims,
    counts=counts,
    is_quick=True,
)
