"""4: transactions that add a prepared file to each of several tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.transactions"
_TABLES = (1, 2, 8, 64)
_DUCKLAKE = "DuckLake, 2 tables"


def ours(watch: Watch, place: str, tables: int, count: int) -> Iterator[Seen]:
    """Commit through a session; the files are as if they had been written before."""
    from bench.ours import connect
    from bench.prepared import add_file
    from headgate.client.transaction import OperationInfo
    from headgate.settings import Settings

    operation = OperationInfo("WRITE", {"mode": "Append"})
    # The files that these commits name do not exist, and are not read.
    with connect(place, settings=Settings(verify_staged=0)) as session:
        names = [f"t{number}" for number in range(tables)]
        for name in names:
            session.create_table(name, "id long, day string, amount double, name string", ["day"])
        done = 0
        while True:
            with watch.together():
                for number in range(done, done + count):
                    file = add_file(number)
                    with watch.sample(), session.transaction() as txn:
                        for name in names:
                            table = txn.table(name)
                            table.commit(table.newest_seen, [file], operation)
            done += count
            found = {session.table(name).snapshot().num_files for name in names}
            yield Seen(rows=done - min(found), checksum=len(found))


def ducklake(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Register a prepared file in each of two tables in one transaction."""
    from bench.peers import ducklake as peer

    connection = peer.connect(place)
    connection.execute("CREATE TABLE lake.other (id BIGINT, name VARCHAR)")
    done = 0
    while True:
        files = [peer.prepare(connection, place, done + number) for number in range(count)]
        with watch.together():
            for path in files:
                with watch.sample():
                    connection.execute("BEGIN")
                    for table in ("bench", "other"):
                        peer.append(connection, path, table)
                    connection.execute("COMMIT")
        done += count
        yield Seen(rows=done - peer.rows(connection), checksum=1)


def _side(tables: int) -> str:
    return f"headgate, {tables} {'table' if tables == 1 else 'tables'}"


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure transactions over more and more tables, and DuckLake's over two."""
    from bench.prepared import WORK, fresh

    def side(name: str, function: str, place: str, **more: object) -> Side:
        folder = WORK / place
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "count": sizes["count"], **more},
            stays=True,
            reset=lambda: fresh(folder),
        )

    return [
        Block(
            name="transactions",
            per="transaction",
            sides=(
                *(
                    side(_side(tables), "ours", f"transactions-{tables}", tables=tables)
                    for tables in _TABLES
                ),
                side(_DUCKLAKE, "ducklake", "transactions-ducklake"),
            ),
            floor=Side(
                "SQLite: read the head, insert, compare and set; one client",
                "bench.floors:compare_and_set",
                {"place": str(WORK / "floor-4"), "count": 2_000, "size": 700},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim("2 tables, against DuckLake", _side(2), Sense.FASTER, 20.0, _DUCKLAKE),
        Claim("8 tables, against one", _side(8), Sense.SHARE, 2.0, _side(1)),
        Claim("64 tables, against one", _side(64), Sense.SHARE, None, _side(1)),
    ]


SCENARIO = Scenario(
    number=4,
    title="transactions over several tables",
    how="Each transaction adds a file of one row to every table. The files are prepared on both "
    "sides. Ours: a session in the process, `session.transaction()`, one statement for each "
    "table, all durable in SQLite. DuckLake: BEGIN, `ducklake_add_data_files` for each table, "
    "COMMIT, with its metadata in a file that DuckDB syncs.",
    full={"count": 200},
    quick={"count": 20},
    blocks=blocks,
    claims=claims,
)
