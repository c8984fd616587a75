"""5: append one row with its Parquet file, by a plain Python client on an open table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.append"
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


def deltalake(watch: Watch, place: str, count: int, synced: bool) -> Seen:
    """Append by path; `synced` adds what it takes for a commit to outlive a power loss."""
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
    """Put ourselves beside deltalake, as it comes and made durable."""
    from bench.prepared import WORK, fresh

    count = sizes["appends"]
    ours_at, theirs_at, synced_at = (WORK / f"append-{name}" for name in ("a", "b", "c"))
    return [
        Block(
            name="append",
            per="append",
            sides=(
                Side(
                    "headgate",
                    f"{_HERE}:ours",
                    {"place": str(ours_at), "count": count},
                    reset=lambda: fresh(ours_at),
                ),
                Side(
                    "deltalake",
                    f"{_HERE}:deltalake",
                    {"place": str(theirs_at), "count": count, "synced": False},
                    is_durable=False,
                    reset=lambda: fresh(theirs_at),
                ),
                Side(
                    "deltalake, synced",
                    f"{_HERE}:deltalake",
                    {"place": str(synced_at), "count": count, "synced": True},
                    reset=lambda: fresh(synced_at),
                ),
            ),
            floor=Side(
                "durable put-if-absent and SQLite commit",
                "bench.floors:put_and_commit",
                {"place": str(WORK / "floor-5"), "count": max(100, count // 2), "size": 1_000},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Say what this must come to."""
    return [
        Claim(
            "against deltalake made as durable, its files and folders synced after each write",
            "headgate",
            Sense.FASTER,
            4,
            "deltalake, synced",
            why="Three syncs, of data file, folder and catalog, are the floor; Parquet, "
            "statistics and judging the commit, all in Python, come on top.",
        ),
        Claim("against deltalake as it comes", "headgate", Sense.FASTER, None, "deltalake"),
        Claim("against the floor", "headgate", Sense.SHARE, None, floor_of("append")),
    ]


SCENARIO = Scenario(
    number=5,
    title="append 1 row with its Parquet file, plain Python client",
    how="Table open and warm; Parquet through pyarrow on our side, by deltalake on theirs. "
    "deltalake syncs nothing (scenario 13 counts it), so it is run as it comes, marked, and once "
    "more with the files and folders it wrote synced after each write.",
    full={"appends": 200},
    quick={"appends": 50},
    blocks=blocks,
    claims=claims,
    not_yet=("DuckDB through the Unity API: not yet, needs the server",),
)
