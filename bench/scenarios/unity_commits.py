"""16: commits and loads through `delta/v1`, on our server and on Unity Catalog's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from bench.harness import Block, Side
from bench.peers import postgres, unity_server
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.unity import Place
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.unity_commits"
_OURS, _OURS_ON_SQLITE, _STOCK = "headgate on PostgreSQL", "headgate on SQLite", "Unity Catalog OSS"
_LONE, _MANY, _HOT = "1 client, 1 table", "{clients} clients, {clients} tables", "{clients} on 1"
_LOAD = "load, {tail} unpublished"
_TAILS = (0, 1, 9)
_SERVER_CPU = "server CPU, µs a request"
_WARM_UP = 100


def commits(
    watch: Watch, server: str, place: str, clients: int, tables: int, count: int
) -> Iterator[Seen]:
    """Commit in a closed loop; every staged file is written and published by the client."""
    from bench import unity

    with ExitStack() as stack:
        at, cpu = _served(stack, server, place)
        made = [unity.create(at, unity_server.new_name()) for _ in range(tables)]
        unity.commit_all(made, clients, max(1, _WARM_UP // clients))
        while True:
            before = cpu()
            with watch.together():
                found = unity.commit_all(made, clients, count)
                watch.record(found.seconds, len(found.latencies))
            assert not found.failed, found.failed[0]
            watch.facts |= found.facts()
            watch.facts[_SERVER_CPU] = (cpu() - before) / len(found.latencies) * 1e6
            yield Seen(rows=len(found.latencies))


def loads(watch: Watch, server: str, place: str, tail: int, count: int) -> Iterator[Seen]:
    """Load a table with so many unpublished commits."""
    from bench import unity
    from bench.load import Line, is_good

    with ExitStack() as stack:
        at, cpu = _served(stack, server, place)
        table = unity.create(at, unity_server.new_name())
        unity.commit_all([table], 1, 20)
        unity.commit_all([table], 1, tail, publishes=False)
        assert table.head == 20 + tail
        request = unity.load_request(table)
        line = Line(at.port)
        while True:
            before = cpu()
            with watch.together():
                for _ in range(count):
                    with watch.sample():
                        answer = line.ask(request)
                    assert is_good(answer), answer
            watch.facts[_SERVER_CPU] = (cpu() - before) / count * 1e6
            yield Seen(rows=table.head)


def _served(stack: ExitStack, server: str, place: str) -> tuple[Place, Callable[[], float]]:
    """Start ours, or find theirs; give where to ask, and how to tell the processor time it took."""
    from bench.peers.postgres import Postgres
    from bench.server import headgate
    from headgate.connecting import init

    if server == _STOCK:
        at = Place.at(unity_server.address(), unity_server.CATALOG)
        return at, unity_server.cpu
    store = f"{place}/lake"
    if server == _OURS:
        store = stack.enter_context(Postgres(f"{place}-pg")).address
        init(store, root=f"file://{place}/lake")
    running = stack.enter_context(headgate(store))
    return Place(running.port, "main"), lambda: running.cpu


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Ask both servers the same, and ours on either store."""
    clients, count = sizes["clients"], sizes["commits"]
    cases = {_LONE: (1, 1, count), _MANY: (clients, clients, count), _HOT: (clients, 1, count // 8)}
    found = [
        _block(
            case.format(clients=clients),
            "commit",
            "commits",
            {"clients": with_clients, "tables": tables, "count": each},
        )
        for case, (with_clients, tables, each) in cases.items()
    ]
    for tail in _TAILS:
        told = {"tail": tail, "count": sizes["loads"]}
        found.append(_block(_LOAD.format(tail=tail), "load", "loads", told))
    return found


def _block(name: str, per: str, function: str, told: Mapping[str, object]) -> Block:
    from bench.prepared import WORK, fresh

    def side(server: str, number: int) -> Side:
        folder = WORK / f"unity-{number}"
        return Side(
            f"{server}, {name}",
            f"{_HERE}:{function}",
            {"server": server, "place": str(folder), **told},
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


def _servers() -> list[str]:
    ours = [_OURS_ON_SQLITE, *([] if postgres.lacking() else [_OURS])]
    return ours if unity_server.lacking() else [*ours, _STOCK]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Say what this must come to, where their server is there."""
    if unity_server.lacking() or postgres.lacking():
        return []
    many, lone, hot = (case.format(clients=sizes["clients"]) for case in (_MANY, _LONE, _HOT))

    def faster(case: str, limit: float) -> Claim:
        return Claim(
            f"{case}: commits",
            f"{_OURS}, {case}",
            Sense.FASTER,
            limit,
            f"{_STOCK}, {case}",
            why="One interpreter reads, judges and writes every commit.",
        )

    return [
        faster(many, 5),
        faster(hot, 5),
        Claim(f"{lone}: p50", f"{_OURS}, {lone}", Sense.SHARE, 0.4, f"{_STOCK}, {lone}"),
        *(
            Claim(f"{case}: p50", f"{_OURS}, {case}", Sense.SHARE, None, f"{_STOCK}, {case}")
            for case in (_LOAD.format(tail=tail) for tail in _TAILS)
        ),
    ]


def _not_run() -> Sequence[str]:
    return [*unity_server.lacking(), *postgres.lacking()]


SCENARIO = Scenario(
    number=16,
    title="commits and loads through delta/v1, beside the server of Unity Catalog",
    how="One closed loop on raw sockets speaks the dialect to every server: tables made in three "
    "phases; for each commit a staged file, a POST that adds it and tells what is published, and "
    "the file copied into the log, all by the client, which syncs none of it. {clients} clients on "
    "one table are told 409 when another was first, and try the next version. Loads are of a table "
    "with 0, 1 and 9 unpublished commits, over one kept connection.",
    full={"clients": 16, "commits": 200, "loads": 1_000},
    quick={"clients": 16, "commits": 16, "loads": 50},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
