"""16: commits and loads through `delta/v1`, on our server and on Unity Catalog's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Block, Side
from bench.peers import postgres, unity_server
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.unity import Place, StockTable
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.unity_commits"
_ON_SQLITE, _ON_POSTGRES = "headgate on SQLite", "headgate on PostgreSQL"
_STOCK = unity_server.NAME
_CEILING = "empty handler: the generator's ceiling"
_LONE, _MANY, _HOT = "1 client, 1 table", "{clients} clients, {clients} tables", "{clients} on 1"
_LOAD = "load, {tail} unpublished"
_TAILS = (0, 1, 9)
_P50, _SERVER_CPU = "p50 ms", "server CPU, µs a request"
# What is to be loaded as unpublished must stay so.
_NOT_PUBLISHING = {
    "HEADGATE_PUBLISH_EVERY_MS": "3600000",
    "HEADGATE_PUBLISH_LINGER_MS": "3600000",
}


@dataclass(frozen=True, slots=True)
class _Served:
    """A running server."""

    port: int
    make: Callable[[], StockTable]
    cpu: Callable[[], float | None]  # processor time it took; None: not known


def commits(
    watch: Watch, server: str, place: str, clients: int, tables: int, count: int, requests: int
) -> Iterator[Seen]:
    """Commit in a closed loop; staged files are there before, the client publishes them."""
    from bench import unity

    with ExitStack() as stack:
        served = _serve(stack, server, place)
        unity.warm_up(served.make, clients, requests)
        made = [served.make() for _ in range(tables)]
        for table in made:
            stack.callback(unity.drop, table)
        while True:
            before = sum(table.head for table in made)
            with unity.Turn(made, clients, count) as turn:
                cpu = served.cpu()
                with watch.together():
                    found = turn.go()
                    watch.record(found.seconds, len(found.latencies))
                _tell_cpu(watch, cpu, served.cpu(), found.requests)
            watch.facts |= found.facts()
            watch.worst["failed"] = len(found.failed)
            yield Seen(rows=sum(table.head for table in made) - before)


def loads(
    watch: Watch, server: str, place: str, clients: int, tail: int, count: int, requests: int
) -> Iterator[Seen]:
    """Load a table with a number of unpublished commits."""
    from bench import unity
    from bench.load import Line, is_good

    with ExitStack() as stack:
        served = _serve(stack, server, place, _NOT_PUBLISHING)
        unity.warm_up(served.make, clients, requests)
        table = served.make()
        stack.callback(unity.drop, table)
        if tail:
            with unity.Turn([table], 1, tail, publishes=False) as turn:
                turn.go()
        request = unity.load_request(table)
        while True:
            line = Line(served.port)
            cpu = served.cpu()
            with watch.together():
                for _ in range(count):
                    with watch.sample():
                        answer = line.ask(request)
                    assert is_good(answer), answer
            _tell_cpu(watch, cpu, served.cpu(), count)
            line.close()
            # An empty handler lists nothing, whatever it is asked for.
            yield Seen(rows=None if server == _CEILING else unity.listed(table))


def _serve(
    stack: ExitStack, server: str, place: str, environment: Mapping[str, str] | None = None
) -> _Served:
    """Start ours or the empty one, or use their running server."""
    from bench import unity
    from bench.peers.postgres import Postgres
    from bench.server import empty, headgate
    from headgate._connect import init

    if server == _CEILING:
        running = stack.enter_context(empty())
        at = Place(running.port, "main")
        return _Served(
            at.port,
            lambda: unity.pretend(at, unity_server.new_name(), Path(place)),
            lambda: running.cpu,
        )
    if server == _STOCK:
        at, cpu = Place.at(unity_server.address(), unity_server.CATALOG), unity_server.cpu
        return _Served(at.port, lambda: unity.create(at, unity_server.new_name()), cpu)
    store = f"{place}/lake"
    if server == _ON_POSTGRES:
        store = stack.enter_context(Postgres(f"{place}-pg")).address
        init(store, root=f"file://{place}/lake")
    ours = stack.enter_context(headgate(store, environment))
    at = Place(ours.port, "main")
    return _Served(at.port, lambda: unity.create(at, unity_server.new_name()), lambda: ours.cpu)


def _tell_cpu(watch: Watch, before: float | None, after: float | None, requests: int) -> None:
    if before is not None and after is not None:
        watch.facts[_SERVER_CPU] = (after - before) / requests * 1e6


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Send the same requests to all servers, ours on both stores, and measure the ceiling."""
    clients, requests = sizes["clients"], sizes["warm_up"]
    cases = {
        _LONE: (1, 1, sizes["commits"]),
        _MANY: (clients, clients, sizes["each"]),
        _HOT: (clients, 1, sizes["commits"]),
    }
    found = []
    for case, (with_clients, tables, count) in cases.items():
        arguments = {
            "clients": with_clients,
            "tables": tables,
            "count": count,
            "requests": requests,
        }
        found.append(_block(case.format(clients=clients), "commit", "commits", arguments))
    for tail in _TAILS:
        arguments = {
            "clients": clients,
            "tail": tail,
            "count": sizes["loads"],
            "requests": requests,
        }
        found.append(_block(_LOAD.format(tail=tail), "load", "loads", arguments))
    return found


def _block(name: str, per: str, function: str, arguments: Mapping[str, object]) -> Block:
    from bench.prepared import WORK, fresh

    def side(server: str, number: int) -> Side:
        folder = WORK / f"unity-{number}"
        return Side(
            f"{server}, {name}",
            f"{_HERE}:{function}",
            {"server": server, "place": str(folder), **arguments},
            is_durable=server != _STOCK or unity_server.is_durable(),
            stays=True,
            reset=lambda: fresh(folder),
        )

    return Block(
        name=name,
        per=per,
        sides=tuple(side(server, number) for number, server in enumerate(_servers())),
        floor=Side(
            "SQLite: read the head, insert, compare and set; one client",
            "bench.floors:compare_and_set",
            {"place": str(WORK / "floor-16"), "count": 2_000, "size": 700},
        ),
    )


def _ours() -> list[str]:
    return [_ON_SQLITE, *([] if postgres.lacking() else [_ON_POSTGRES])]


def _servers() -> list[str]:
    return [*_ours(), *([] if unity_server.lacking() else [_STOCK]), _CEILING]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims against their server, if it runs, and against the ceiling."""
    cases = _LONE, _MANY, _HOT, *(_LOAD.format(tail=tail) for tail in _TAILS)
    found: list[Claim] = []
    for case in (case.format(clients=sizes["clients"]) for case in cases):
        for ours in _ours():
            if not unity_server.lacking():
                found += _against_stock(case, ours, sizes["clients"])
            if case != _HOT.format(clients=sizes["clients"]):  # there the ceiling has no 409
                says = f"{case}: {ours}, against the generator's ceiling"
                against = f"{_CEILING}, {case}"
                found.append(Claim(says, f"{ours}, {case}", Sense.SHARE, None, against))
    return found


def _against_stock(case: str, ours: str, clients: int) -> Iterator[Claim]:
    """Return the claim of one of our servers against theirs.

    Targets apply to the same store on both sides.
    """
    many, hot = _MANY.format(clients=clients), _HOT.format(clients=clients)
    is_claimed = ours == _ON_POSTGRES
    side, against = f"{ours}, {case}", f"{_STOCK}, {case}"
    why = "One interpreter reads, judges and writes every commit."
    if case in (_LONE, many, hot):
        rate = 5 if is_claimed and case != _LONE else None
        yield Claim(f"{case}: {ours}, good commits", side, Sense.FASTER, rate, against, why=why)
        yield Claim(
            f"{case}: {ours}, p50",
            side,
            Sense.SHARE,
            0.4 if is_claimed and case != hot else None,
            against,
            lap=_P50,
            against_lap=_P50,
            why=why,
        )
    else:
        yield Claim(f"{case}: {ours}, p50", side, Sense.SHARE, None, against)
    if not unity_server.unmeasured():
        yield Claim(
            f"{case}: {ours}, server CPU a request",
            side,
            Sense.FASTER,
            None,
            against,
            lap=_SERVER_CPU,
            against_lap=_SERVER_CPU,
        )


def _not_run() -> Sequence[str]:
    return [*unity_server.lacking(), *unity_server.unmeasured(), *postgres.lacking()]


SCENARIO = Scenario(
    number=16,
    title="commits and loads through delta/v1, beside the server of Unity Catalog",
    how="One closed loop on raw sockets speaks the dialect to every server. Tables are created in "
    "three phases. Each commit is a staged file and a request, both made and synced before the "
    "clock starts; a POST that adds the commit and reports what is published; and a link of the "
    "file into the log, the cheapest possible copy. Of {clients} clients on one table, those that "
    "are too late get 409 and try the next version, for which each has a file, too; their "
    "latencies last until the commit is ratified, lost tries included. Loads use one connection "
    "that stays open, on tables with 0, 1 and 9 unpublished commits, which our server is "
    "configured not to publish. Every server is warmed up by {warm_up:,} requests, half commits "
    "and half loads. On PostgreSQL our server has one worker for each core; requests to theirs go "
    "directly to its service, not through the proxy that it starts in front, which would only "
    "slow it down. The ceiling is the same generator with a Starlette application on the same "
    "HTTP server that only reads and answers. Server CPU is that of the server's own processes "
    "on all sides, without those of PostgreSQL. Unity Catalog keeps its tables in H2 unless it "
    "is configured to use PostgreSQL; H2 syncs late.",
    full={"clients": 16, "commits": 1_000, "each": 200, "loads": 1_000, "warm_up": 5_000},
    quick={"clients": 16, "commits": 32, "each": 4, "loads": 50, "warm_up": 128},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
