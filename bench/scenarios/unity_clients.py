"""14: DuckDB through the Unity API, on our server and on one that answers from memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Block, Side
from bench.peers import duck_unity, unity_server
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.server import Server
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.unity_clients"
_OURS, _EMPTY, _STOCK = "headgate", "empty server", "Unity Catalog OSS"
_INSERT, _SELECT = "INSERT", "SELECT"
_SERVER_CPU = "server CPU, µs a statement"
_WARM_UP = 5


def ours(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Let DuckDB write and read through our server."""
    from bench.ours import NAME, connect
    from bench.server import headgate

    with headgate(f"{place}/lake") as server:
        with connect(server.address) as session:
            session.create_table(NAME, "id long, name string")
        yield from _turns(watch, server, server.address, "main", NAME, count)


def empty(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Let it do the same where the answers are made beforehand."""
    from bench.ours import NAME, connect
    from bench.server import ask, headgate

    with headgate(f"{place}/lake") as server:
        with connect(server.address) as session:
            session.create_table(NAME, "id long, name string").publish()
        paths = duck_unity.paths("main", NAME)
        answers = {path: ask(server.port, "GET", path) for path in paths}
    told = Path(place) / "answers.json"
    told.write_text(json.dumps(answers))
    with Server("-m", "bench.empty_unity", str(told)) as server:
        yield from _turns(watch, server, server.address, "main", NAME, count)


def stock(watch: Watch, count: int) -> Iterator[Seen]:
    """Let it do the same on the server of Unity Catalog."""
    from bench import unity

    place = unity.Place.at(unity_server.address(), unity_server.CATALOG)
    table = unity.create(place, unity_server.new_name())
    yield from _turns(watch, None, unity_server.address(), place.catalog, table.name, count)


def _turns(
    watch: Watch, server: Server | None, address: str, catalog: str, table: str, count: int
) -> Iterator[Seen]:
    """Insert a row and read all, so often in a turn."""
    connection = duck_unity.attach(address, catalog)
    number = 0

    def once(*, measured: bool) -> None:
        nonlocal number
        number += 1
        with ExitStack() as stack:
            if measured:
                stack.enter_context(watch.sample())
            connection.execute(f"INSERT INTO lake.default.{table} VALUES ({number}, 'n')")
            if measured:
                watch.lap(_INSERT)
            [(rows,)] = connection.execute(f"SELECT count(*) FROM lake.default.{table}").fetchall()
            if measured:
                watch.lap(_SELECT)
        assert rows == number, (rows, number)

    for _ in range(_WARM_UP):
        once(measured=False)
    while True:
        cpu = 0.0 if server is None else server.cpu
        with watch.together():
            for _ in range(count):
                once(measured=True)
        if server is not None:
            watch.facts[_SERVER_CPU] = (server.cpu - cpu) / (2 * count) * 1e6
        yield Seen(rows=number)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Put both servers side by side, and Unity Catalog's own where there is one."""
    from bench.prepared import WORK, fresh

    if duck_unity.lacking():
        return []
    count = sizes["statements"]

    def side(name: str, function: str, folder: Path) -> Side:
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "count": count},
            stays=True,
            reset=lambda: fresh(folder),
        )

    theirs = Side(_STOCK, f"{_HERE}:stock", {"count": count}, is_durable=False, stays=True)
    return [
        Block(
            name="DuckDB",
            per="INSERT and SELECT",
            sides=(
                side(_OURS, "ours", WORK / "duckdb-a"),
                side(_EMPTY, "empty", WORK / "duckdb-b"),
                *(() if unity_server.lacking() else (theirs,)),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-14"), "count": 2_000, "size": 700},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Say what this must come to."""
    if duck_unity.lacking():
        return []
    why = "A commit is read, judged, synced and counted before it is answered."
    found = [
        Claim(
            f"{statement}, against a server that answers from memory",
            _OURS,
            Sense.SHARE,
            1.1,
            _EMPTY,
            lap=statement,
            against_lap=statement,
            why=why,
        )
        for statement in (_INSERT, _SELECT)
    ]
    if not unity_server.lacking():
        found.append(Claim("against Unity Catalog's own server", _OURS, Sense.SHARE, None, _STOCK))
    return found


def _not_run() -> Sequence[str]:
    return [*duck_unity.lacking(), *unity_server.lacking()]


SCENARIO = Scenario(
    number=14,
    title="DuckDB through the Unity API: INSERT of a row, SELECT of all",
    how="DuckDB attached to a server by its extension, on a table of its own, {statements} times a "
    "turn an INSERT of one row and a SELECT that counts all. The empty server has the same "
    "answers in memory, syncs and judges nothing, and runs on the same granian; files are written "
    "by DuckDB on both sides, which syncs none of them.",
    full={"statements": 50},
    quick={"statements": 10},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
