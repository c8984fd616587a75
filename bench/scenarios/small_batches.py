"""19: many rows in small batches, each a durable transaction of its own, by one client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.small_batches"
_OURS, _OURS_ON_SQLITE = "headgate on PostgreSQL", "headgate on SQLite"
_INLINED, _IN_FILES = "DuckLake on PostgreSQL", "DuckLake on PostgreSQL, rows in Parquet files"
_RATE = "rows/s"


def ours(watch: Watch, place: str, batches: int, rows: int, on_postgres: bool) -> Iterator[Seen]:
    """Append through a session on our server; each batch is a Parquet file and a commit."""
    import pyarrow as pa

    from bench.ours import NAME, connect
    from bench.server import headgate

    def batch(first: int) -> Any:
        numbers = range(first, first + rows)
        names, amounts = [f"name {n}" for n in numbers], [n / 4 for n in numbers]
        return pa.table({"id": list(numbers), "name": names, "amount": amounts})

    with ExitStack() as stack:
        store = f"{place}/lake"
        if on_postgres:
            from bench.peers.postgres import Postgres
            from headgate._connect import init

            store = stack.enter_context(Postgres(f"{place}-pg")).address
            init(store, root=f"file://{place}/lake")
        server = stack.enter_context(headgate(store))
        session = stack.enter_context(connect(server.address))
        table = session.create_table(NAME, "id long, name string, amount double")
        yield from _loaded(
            watch,
            batches,
            rows,
            lambda first: table.append(batch(first)),
            lambda: table.to_arrow().num_rows,
        )


def ducklake(watch: Watch, place: str, batches: int, rows: int, inlines: bool) -> Iterator[Seen]:
    """Insert by DuckDB, a transaction for each batch."""
    from bench.peers import ducklake as peer
    from bench.peers.postgres import Postgres

    with Postgres(f"{place}-pg") as postgres:
        connection = peer.connect_postgres(place, postgres.address, inlines=inlines)
        yield from _loaded(
            watch,
            batches,
            rows,
            lambda first: peer.insert(connection, first, rows),
            lambda: peer.rows(connection),
        )


def _loaded(
    watch: Watch,
    batches: int,
    rows: int,
    load: Callable[[int], object],
    count: Callable[[], int],
) -> Iterator[Seen]:
    done = 0
    while True:
        with watch.together():
            for number in range(batches):
                with watch.sample():
                    load(done + number * rows)
        done += batches * rows
        watch.facts[_RATE] = batches * rows / sum(watch.samples[-batches:])
        yield Seen(rows=done - count())


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our server on both stores, and DuckLake on PostgreSQL in two ways."""
    from bench.peers.postgres import programs
    from bench.prepared import WORK, fresh

    batches, rows = sizes["batches"], sizes["rows"]

    def side(name: str, function: str, place: str, **more: object) -> Side:
        folder = WORK / place
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "batches": batches, "rows": rows, **more},
            stays=True,
            reset=lambda: fresh(folder),
        )

    on_postgres = [
        side(_OURS, "ours", "small-b", on_postgres=True),
        side(_INLINED, "ducklake", "small-c", inlines=True),
        side(_IN_FILES, "ducklake", "small-d", inlines=False),
    ]
    return [
        Block(
            name="small batches",
            per="batch",
            sides=(
                side(_OURS_ON_SQLITE, "ours", "small-a", on_postgres=False),
                *(on_postgres if programs() is not None else ()),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set; one client",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-19"), "count": 2_000, "size": 700},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim("against DuckLake on PostgreSQL", _OURS, Sense.FASTER, None, _INLINED),
        Claim("against DuckLake, rows in Parquet files", _OURS, Sense.FASTER, None, _IN_FILES),
        Claim("on PostgreSQL, rows a second", _OURS, Sense.FACT, None, lap=_RATE),
        Claim("on SQLite, rows a second", _OURS_ON_SQLITE, Sense.FACT, None, lap=_RATE),
    ]


def _not_run() -> Sequence[str]:
    from bench.peers.postgres import lacking

    return lacking()


SCENARIO = Scenario(
    number=19,
    title="rows in batches of {rows}, each a transaction",
    how="One client loads {batches} batches a turn into the same table, so that a run of six turns "
    "loads 300,000 rows. Ours: `Table.append` through a server: a Parquet file and a commit for "
    "each batch. DuckLake: INSERT by DuckDB with its metadata in PostgreSQL, as it comes, which "
    "keeps such small inserts in PostgreSQL, and with a Parquet file for each, as ours. The rows "
    "are counted after each turn.",
    full={"batches": 5_000, "rows": 10},
    quick={"batches": 40, "rows": 10},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
