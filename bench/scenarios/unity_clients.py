"""14: DuckDB through the Unity API, on our server and on one that answers from memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Block, Side
from bench.peers import duck_unity, unity_server
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.unity import Place, StockTable, create, drop, warm_up
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.unity_clients"
_OURS, _EMPTY, _STOCK = "headgate", "empty server", unity_server.NAME
_INSERT, _SELECT = "INSERT", "SELECT"
_SERVER_CPU = "server CPU, µs a statement"
_COLUMNS = (("id", "long"), ("name", "string"))
_CLIENTS = 16  # that warm a server up
_WARM_UP = 5


def ours(watch: Watch, place: str, count: int, requests: int) -> Iterator[Seen]:
    """Write and read with DuckDB through our server."""
    from bench.server import headgate

    with headgate(f"{place}/lake") as server:
        at = Place(server.port, "main")
        warm_up(lambda: create(at, unity_server.new_name()), _CLIENTS, requests)
        yield from _turns(watch, server.address, _made(at), lambda: server.cpu, count)


def empty(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Do the same with a server that has the answers in memory."""
    from bench.server import Server, ask, headgate

    with headgate(f"{place}/lake") as server:
        table = _made(Place(server.port, "main"))
        paths = duck_unity.paths("main", table.name)
        answers = {path: ask(server.port, "GET", path) for path in paths}
    answers_path = Path(place) / "answers.json"
    answers_path.write_text(json.dumps(answers))
    with Server("-m", "bench.empty_unity", str(answers_path)) as server:
        yield from _turns(watch, server.address, table, lambda: server.cpu, count)


def stock(watch: Watch, count: int, requests: int) -> Iterator[Seen]:
    """Do the same with the server of Unity Catalog."""
    at = Place.at(unity_server.address(), unity_server.CATALOG)
    warm_up(lambda: create(at, unity_server.new_name()), _CLIENTS, requests)
    table = _made(at)
    try:
        yield from _turns(watch, unity_server.address(), table, unity_server.cpu, count)
    finally:
        drop(table)


def _made(at: Place) -> StockTable:
    """Create a table through the API that all sides have, so that it is the same on all."""
    return create(at, unity_server.new_name(), _COLUMNS, partitioned_by=())


def _turns(
    watch: Watch, address: str, table: StockTable, cpu: Callable[[], float | None], count: int
) -> Iterator[Seen]:
    """Insert a row and read all rows, a number of times."""
    connection = duck_unity.attach(address, table.place.catalog)
    name = f"lake.default.{table.name}"
    number = 0

    def once(*, measured: bool) -> None:
        nonlocal number
        number += 1
        with ExitStack() as stack:
            if measured:
                stack.enter_context(watch.sample())
            connection.execute(f"INSERT INTO {name} VALUES ({number}, 'n')")
            if measured:
                watch.lap(_INSERT)
            [(rows,)] = connection.execute(f"SELECT count(*) FROM {name}").fetchall()
            if measured:
                watch.lap(_SELECT)
        assert rows == number, (rows, number)

    for _ in range(_WARM_UP):
        once(measured=False)
    while True:
        before = cpu()
        with watch.together():
            for _ in range(count):
                once(measured=True)
        if before is not None and (after := cpu()) is not None:
            watch.facts[_SERVER_CPU] = (after - before) / (2 * count) * 1e6
        yield Seen(rows=number)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our server, the empty one and, if it runs, Unity Catalog's own."""
    from bench.prepared import WORK, fresh

    if duck_unity.lacking():
        return []
    asked = {"count": sizes["statements"]}
    warmed = {**asked, "requests": sizes["warm_up"]}
    ours_at, empty_at = WORK / "duckdb-a", WORK / "duckdb-b"
    return [
        Block(
            name="DuckDB",
            per="INSERT and SELECT",
            sides=(
                Side(
                    _OURS,
                    f"{_HERE}:ours",
                    {"place": str(ours_at), **warmed},
                    stays=True,
                    reset=lambda: fresh(ours_at),
                ),
                Side(
                    _EMPTY,
                    f"{_HERE}:empty",
                    {"place": str(empty_at), **asked},
                    stays=True,
                    reset=lambda: fresh(empty_at),
                ),
                *(() if unity_server.lacking() else (_theirs(warmed),)),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-14"), "count": 2_000, "size": 700},
            ),
        )
    ]


def _theirs(warmed: Mapping[str, object]) -> Side:
    is_durable = unity_server.is_durable()
    return Side(_STOCK, f"{_HERE}:stock", warmed, is_durable=is_durable, stays=True)


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
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
    if unity_server.lacking():
        return found
    found.append(Claim("against Unity Catalog's own server", _OURS, Sense.SHARE, None, _STOCK))
    if not unity_server.unmeasured():
        found.append(
            Claim(
                "server CPU, against Unity Catalog's own server",
                _OURS,
                Sense.FASTER,
                3,
                _STOCK,
                lap=_SERVER_CPU,
                against_lap=_SERVER_CPU,
                why=f"{why} All of it in Python, and SQLite is within the process.",
            )
        )
    return found


def _not_run() -> Sequence[str]:
    return [*duck_unity.lacking(), *unity_server.lacking(), *unity_server.unmeasured()]


SCENARIO = Scenario(
    number=14,
    title="DuckDB through the Unity API: INSERT of a row, SELECT of all",
    how="DuckDB, attached to a server by its extension, on a table of its own that was created "
    "through the API: in each turn {statements} times an INSERT of one row and a SELECT that "
    "counts all rows. The empty server has the same answers in memory, does not sync or check "
    "anything, and runs on the same HTTP server. DuckDB writes the files on all sides and "
    "syncs none of them. Our server, on SQLite, and that of Unity Catalog are warmed up in the "
    "same way by {warm_up:,} requests, half commits and half loads. Server CPU is that of the "
    "server's own processes: it includes the database of ours, but not that of a server on "
    "PostgreSQL.",
    full={"statements": 50, "warm_up": 5_000},
    quick={"statements": 10, "warm_up": 128},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
