"""7: load a snapshot of very many files from a checkpoint into Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.scenarios.cold_load import deltalake, duckdb
from bench.watch import Seen, Watch

__all__ = ["cached", "deltalake", "duckdb", "ours"]

_HERE = "bench.scenarios.wide_snapshot"
_GIGABYTE = 1e9


def ours(watch: Watch, place: str, stats: bool) -> Seen:
    """Connect, load, return the files, with their statistics or without."""
    from bench.ours import NAME, connect, seen

    with watch.measure():
        session = connect(place)
        snapshot = session.table(NAME).snapshot()
        watch.lap("load")
        files = snapshot.file_columns(stats=stats)
        watch.lap("columns")
    found = seen(files)
    session.close()
    return found


def cached(watch: Watch, place: str) -> Seen:
    """Load from a snapshot at the checkpoint that is in the cache, and was read."""
    from bench.ours import NAME, connect, seen
    from headgate.protocol.actions import Version
    from headgate.table import snapshot_loader
    from headgate.table.snapshot_cache import SnapshotCache

    with connect(place) as session:
        table_id = session.table(NAME).id
        checkpoint = session.catalog.resolve(table_id).checkpoint
        assert checkpoint is not None
        cache = SnapshotCache()
        base = Version(checkpoint.last)
        snapshot_loader.load(session.catalog, table_id, version=base, cache=cache).file_columns()
        with watch.measure():
            files = snapshot_loader.load(session.catalog, table_id, cache=cache).file_columns()
        return seen(files)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our three ways and both peers."""
    from bench.prepared import wide

    prepared = wide(sizes["files"])
    prepared.put_back()
    lake, plain = str(prepared.lake), {"place": str(prepared.plain)}
    [checkpoint] = Path(prepared.plain).glob("_delta_log/*.checkpoint.parquet")
    return [
        Block(
            name="wide snapshot",
            per="load",
            sides=(
                Side("headgate", f"{_HERE}:ours", {"place": lake, "stats": False}),
                Side("headgate, statistics too", f"{_HERE}:ours", {"place": lake, "stats": True}),
                Side("headgate, base cached", f"{_HERE}:cached", {"place": lake}),
                Side("deltalake", f"{_HERE}:deltalake", plain),
                Side("DuckDB delta", f"{_HERE}:duckdb", plain),
            ),
            floor=Side(
                "read the checkpoint's columns with pyarrow",
                "bench.floors:read_parquet",
                {"path": str(checkpoint), "stats": True},
            ),
        )
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim(
            "without statistics, against deltalake, which cannot leave them out",
            "headgate",
            Sense.SHARE,
            1.0,
            "deltalake",
            why="Decoding the paths and partition values of the checkpoint takes nearly all.",
        ),
        Claim(
            "with statistics, against deltalake",
            "headgate, statistics too",
            Sense.SHARE,
            1.0,
            "deltalake",
            why="The checkpoint is read twice, once for the files and once for the statistics.",
        ),
        Claim(
            "with statistics, against deltalake's load alone, without giving the files",
            "headgate, statistics too",
            Sense.SHARE,
            None,
            "deltalake",
            against_lap="load",
        ),
        Claim(
            "with a cached base, against deltalake",
            "headgate, base cached",
            Sense.SHARE,
            0.1,
            "deltalake",
            why="Files removed since are looked up among all paths of the base.",
        ),
        Claim("without statistics, peak RSS", "headgate", Sense.BYTES, _GIGABYTE),
        Claim("with statistics, peak RSS", "headgate, statistics too", Sense.BYTES),
        Claim("against DuckDB's plan of a scan", "headgate", Sense.SHARE, None, "DuckDB delta"),
    ]


SCENARIO = Scenario(
    number=7,
    title="load a snapshot of {files:,} files from a checkpoint into Arrow",
    how="All read the same checkpoint, with pyarrow's default layout, JSON statistics and a "
    "partition map, and 10 commits above it that each add ten files and remove one. A new process "
    "with a warm page cache; the clock starts after the imports. deltalake always reads and "
    "parses statistics; we return them as JSON. DuckDB plans a scan of all rows, which is less "
    "work than returning the files.",
    full={"files": 1_000_000},
    quick={"files": 50_000},
    blocks=blocks,
    claims=claims,
)
