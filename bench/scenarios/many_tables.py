"""2: many clients, each on a table of its own, durable commits over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from bench.harness import Block, Side
from bench.scenario import Claim, Counts, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.many_tables"
_OURS, _OURS_ON_POSTGRES = "headgate on SQLite", "headgate on PostgreSQL"
_TRANSACTION, _STATEMENT = "PostgreSQL, transaction", "PostgreSQL, one statement"
_PSYCOPG = "PostgreSQL, transaction by psycopg's everyday calls"
_CEILING = "empty handler: the generator's ceiling"


def ours(watch: Watch, place: str, tables: int, count: int, on_postgres: bool) -> Iterator[Seen]:
    """Commit through our server; what is left to publish is published after the turn."""
    from bench.load import Generator, Plan
    from bench.server import publish_all, serving_tables

    with ExitStack() as stack:
        store = f"{place}/lake"
        if on_postgres:
            from bench.peers.postgres import Postgres
            from headgate._connect import init

            store = stack.enter_context(Postgres(f"{place}-pg")).address
            init(store, root=f"file://{place}/lake")
        server, ids = stack.enter_context(serving_tables(store, tables))
        done = 0
        while True:
            plans = [Plan(table_id, done + 1, count, done) for table_id in ids]
            generator = Generator(server.port, plans)
            cpu = server.cpu
            with watch.together():
                began = time.monotonic()
                generator.go()
                found = generator.wait()
                watch.samples.append(found.seconds)
            cpu = server.cpu - cpu
            publish_all(server.port, ids)
            whole = time.monotonic() - began
            watch.facts |= found.facts() | {
                "server CPU, µs a commit": cpu / found.good * 1e6,
                "commits/s until all is published": found.good / whole,
            }
            watch.worst |= {"failed": found.failed, "asked to come again": found.again}
            yield Seen(rows=sum(found.versions) - done * tables)
            done += count


def postgres(watch: Watch, place: str, tables: int, count: int, way: str) -> Iterator[Seen]:
    """Compare and set with clients of PostgreSQL."""
    from bench.load import PROCESSES
    from bench.peers.postgres import Clients, Postgres

    with Postgres(place) as server:
        ids = server.prepare(tables)
        done = turn = 0
        while True:
            heads = [(table_id, done) for table_id in ids]
            clients = Clients(server, heads, count, way, turn, PROCESSES)
            before = server.heads()
            with watch.together():
                clients.go()
                found = clients.wait()
                watch.samples.append(found["seconds"])
            watch.facts |= found["facts"]
            yield Seen(rows=server.heads() - before)
            done, turn = done + count, turn + 1


def nothing(watch: Watch, tables: int, count: int) -> Iterator[Seen]:
    """Run the same load generator with a server that does nothing."""
    from bench.load import Generator, Plan
    from bench.server import empty

    with empty() as server:
        while True:
            plans = [Plan(f"table-{number}", 1, count, 0) for number in range(tables)]
            generator = Generator(server.port, plans)
            cpu = server.cpu
            with watch.together():
                generator.go()
                found = generator.wait()
                watch.samples.append(found.seconds)
            watch.facts |= found.facts()
            watch.facts["server CPU, µs a commit"] = (server.cpu - cpu) / found.good * 1e6
            yield Seen(rows=found.good)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our server on both stores, PostgreSQL alone and the generator's ceiling."""
    from bench.peers.postgres import PSYCOPG, STATEMENT, TRANSACTION, programs
    from bench.prepared import WORK, fresh

    tables, count = sizes["tables"], sizes["commits"]

    def side(name: str, function: str, place: str, **arguments: object) -> Side:
        folder = WORK / place
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "tables": tables, "count": count, **arguments},
            units=tables * count,
            stays=True,
            reset=lambda: fresh(folder),
        )

    ceiling = Side(
        _CEILING,
        f"{_HERE}:nothing",
        {"tables": tables, "count": count},
        units=tables * count,
        stays=True,
    )
    theirs = [
        side(_OURS_ON_POSTGRES, "ours", "many-b", on_postgres=True),
        side(_TRANSACTION, "postgres", "many-c", way=TRANSACTION),
        side(_PSYCOPG, "postgres", "many-d", way=PSYCOPG),
        side(_STATEMENT, "postgres", "many-e", way=STATEMENT),
    ]
    return [
        Block(
            name="many tables",
            per="commit",
            sides=(
                side(_OURS, "ours", "many-a", on_postgres=False),
                *(theirs if programs() is not None else ()),
                ceiling,
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set; one client",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-2"), "count": 2_000, "size": 700},
            ),
        )
    ]


def counts(sizes: Sizes) -> Counts | str:
    """Return the time of each step of a request."""
    from bench.laps import laps

    return laps(sizes["tables"], sizes["lapped"])


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim(
            "on SQLite, with HTTP, against PostgreSQL's transaction without",
            _OURS,
            Sense.FASTER,
            2,
            _TRANSACTION,
            why="One interpreter reads, judges and writes every commit; see the laps below.",
        ),
        Claim(
            "on PostgreSQL, with HTTP, against PostgreSQL's transaction without",
            _OURS_ON_POSTGRES,
            Sense.FASTER,
            1,
            _TRANSACTION,
            why="One interpreter reads, judges and writes every commit; see the laps below.",
        ),
        Claim("on SQLite, failed commits", _OURS, Sense.FACT, 0, lap="failed"),
        Claim(
            "on SQLite, against the transaction by psycopg's everyday calls, 16 processes",
            _OURS,
            Sense.FASTER,
            None,
            _PSYCOPG,
        ),
        Claim(
            "on SQLite, against PostgreSQL's one statement, the least it can do",
            _OURS,
            Sense.FASTER,
            None,
            _STATEMENT,
        ),
        Claim("on SQLite, against the generator's ceiling", _OURS, Sense.SHARE, None, _CEILING),
    ]


def _not_run() -> Sequence[str]:
    from bench.peers.postgres import lacking

    return lacking()


SCENARIO = Scenario(
    number=2,
    title="{tables} clients on {tables} tables, durable",
    how="Inline commits of one file, about 700 bytes each, by a closed loop on raw sockets with "
    "requests made in advance. Two processes serve all clients, so that sixteen interpreters do "
    "not compete with the server for two cores. The ceiling is the same generator with a "
    "Starlette application on the same HTTP server that only reads and answers. Our server "
    "publishes in the background as always; the rest is published after the turn, and the rate "
    "that includes this is shown, too. On PostgreSQL our server has one worker for each core. "
    "PostgreSQL itself runs with fsync and synchronous_commit on, with the same kind of loop "
    "over psycopg's connections and its lowest-level calls, so that its clients are not the "
    "limit either: BEGIN, read the head, insert the commit, set the head if it is unchanged, "
    "COMMIT. Two more rows show the same with psycopg's usual calls from one process for each "
    "connection, and with all of it in one statement. Unlike ours, this PostgreSQL keeps no "
    "sequence over all tables.",
    full={"tables": 16, "commits": 500, "lapped": 200},
    quick={"tables": 16, "commits": 100, "lapped": 40},
    blocks=blocks,
    claims=claims,
    counts=counts,
    counted="µs a commit",
    not_run=_not_run,
    is_quick=True,
)
