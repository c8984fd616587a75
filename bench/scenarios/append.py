"""5: append one row with its Parquet file, by a plain Python client on an open table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.append"
_SERVED = "headgate, through a server"
_DUCKDB, _DUCKDB_SYNCED = "DuckDB through the Unity API", "DuckDB through the Unity API, synced"
_WARM_UP = 20


def ours(watch: Watch, place: str, count: int) -> Seen:
    """Append through the catalog, which publishes in the background as always."""
    from bench.ours import NAME, connect

    with connect(place) as session:
        table = session.create_table(NAME, _arrow_schema())
        for number in range(_WARM_UP):
            table.append(_row(number))
        for number in range(_WARM_UP, _WARM_UP + count):
            row = _row(number)
            with watch.measure():
                table.append(row)
        return _seen(table.to_arrow())


def served(watch: Watch, place: str, count: int) -> Seen:
    """Append through a server, as DuckDB does."""
    from bench.ours import NAME, connect
    from bench.server import headgate

    with headgate(f"{place}/lake") as server, connect(server.address) as session:
        table = session.create_table(NAME, _arrow_schema())
        for number in range(_WARM_UP):
            table.append(_row(number))
        rows = [_row(number) for number in range(_WARM_UP, _WARM_UP + count)]
        with watch.together():
            for row in rows:
                with watch.sample():
                    table.append(row)
        return _seen(table.to_arrow())


def duckdb(watch: Watch, place: str, count: int, synced: bool) -> Seen:
    """Insert through our server's Unity API, which syncs the commit; `synced` adds the data."""
    from bench.ours import NAME, connect, local
    from bench.peers.duck_unity import attach
    from bench.server import headgate

    with headgate(f"{place}/lake") as server, connect(server.address) as session:
        table = session.create_table(NAME, _arrow_schema())
        root = local(table.location)
        connection = attach(server.address, "main")

        def insert(number: int) -> None:
            connection.execute(
                f"INSERT INTO lake.default.{NAME} VALUES ({number}, 'name {number}', {number / 4})"
            )

        for number in range(_WARM_UP):
            insert(number)
        known = _names(root)
        with watch.together():
            for number in range(_WARM_UP, _WARM_UP + count):
                with watch.sample():
                    insert(number)
                    if synced:
                        known |= _sync_new(root, known)
        connection.close()
        return _seen(session.table(NAME).to_arrow())


def deltalake(watch: Watch, place: str, count: int, synced: bool) -> Seen:
    """Append by path; `synced` also makes the commit survive a power loss."""
    from bench.peers.delta_rs import DeltaTable, sync_written, write_deltalake

    root = Path(place)
    table = DeltaTable.create(place, _arrow_schema())
    for number in range(_WARM_UP):
        write_deltalake(table, _row(number), mode="append")
    for number in range(_WARM_UP, _WARM_UP + count):
        row = _row(number)
        with watch.measure():
            write_deltalake(table, row, mode="append")
            if synced:
                sync_written(root, table.version())
    return _seen(DeltaTable(place).to_pyarrow_table())


def _sync_new(root: Path, known: set[str]) -> set[str]:
    """Sync new files of a folder and the folder; return their names."""
    from bench.disk import sync

    new = _names(root) - known
    assert new, f"no file came into {root}"
    sync([*(root / name for name in new), root])
    return new


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _arrow_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])


def _row(number: int) -> Any:
    import pyarrow as pa

    row = {"id": [number], "name": [f"name {number}"], "amount": [number / 4]}
    return pa.table(row, schema=_arrow_schema())


def _seen(rows: Any) -> Seen:
    import pyarrow.compute as pc

    return Seen(rows=rows.num_rows, checksum=pc.sum(rows["id"]).as_py())


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our client, deltalake and DuckDB, as they come and made durable."""
    from bench.prepared import WORK, fresh

    count = sizes["appends"]

    def side(name: str, function: str, **arguments: object) -> Side:
        folder = WORK / f"append-{name.replace(' ', '-').replace(',', '')}"
        return Side(
            name,
            f"{_HERE}:{function}",
            {"place": str(folder), "count": count, **arguments},
            is_durable=arguments.get("synced") is not False,
            reset=lambda: fresh(folder),
        )

    through_unity = [
        side(_DUCKDB, "duckdb", synced=False),
        side(_DUCKDB_SYNCED, "duckdb", synced=True),
    ]
    return [
        Block(
            name="append",
            per="append",
            sides=(
                side("headgate", "ours"),
                side(_SERVED, "served"),
                side("deltalake", "deltalake", synced=False),
                side("deltalake, synced", "deltalake", synced=True),
                *(() if _not_run() else through_unity),
            ),
            floor=Side(
                "durable put-if-absent and SQLite commit",
                "bench.floors:put_and_commit",
                {"place": str(WORK / "floor-5"), "count": max(100, count // 2), "size": 1_000},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    why = (
        "Three syncs, of data file, folder and catalog, are the floor; Parquet, "
        "statistics and judging the commit, all in Python, come on top."
    )
    found = [
        Claim(
            "against deltalake made as durable, its files and folders synced after each write",
            "headgate",
            Sense.FASTER,
            4,
            "deltalake, synced",
            why=why,
        ),
        Claim("against deltalake as it comes", "headgate", Sense.FASTER, None, "deltalake"),
        Claim("against the floor", "headgate", Sense.SHARE, None, floor_of("append")),
    ]
    if _not_run():
        return found
    as_durable = "DuckDB through the Unity API made as durable, its file and folder synced"
    return [
        *found,
        Claim(f"against {as_durable}", "headgate", Sense.FASTER, 4, _DUCKDB_SYNCED, why=why),
        Claim(
            f"through a server, against {as_durable}",
            _SERVED,
            Sense.FASTER,
            4,
            _DUCKDB_SYNCED,
            why=f"{why} The server's work is in their time, too.",
        ),
        Claim(
            "against DuckDB through the Unity API as it comes",
            "headgate",
            Sense.FASTER,
            None,
            _DUCKDB,
        ),
    ]


def _not_run() -> Sequence[str]:
    from bench.peers.duck_unity import lacking

    return lacking()


SCENARIO = Scenario(
    number=5,
    title="append 1 row with its Parquet file, plain Python client",
    how="The table is open and warm. Our side writes Parquet through pyarrow, deltalake and "
    "DuckDB write it themselves. deltalake syncs nothing (scenario 13 counts it), so it runs "
    "twice: as it comes, marked as not durable, and with its files and folders synced after each "
    "write. DuckDB inserts through the Unity API of our server. The server syncs the commit that "
    "DuckDB staged, but the data file is not synced, so DuckDB runs both ways, too. Our own "
    "client runs once with the catalog in its process and once through the same server.",
    full={"appends": 200},
    quick={"appends": 50},
    blocks=blocks,
    claims=claims,
    not_run=_not_run,
)
