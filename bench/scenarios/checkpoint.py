"""10: write a checkpoint of many commits, and one of very many files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.watch import Seen, Watch, checkpoint_seen

_HERE = "bench.scenarios.checkpoint"


def ours(watch: Watch, place: str) -> Seen:
    """Open, write a checkpoint of the latest version."""
    from bench.ours import NAME, connect, local

    with connect(place, publisher=False) as session:
        with watch.measure():
            table = session.table(NAME)
            _ = table.snapshot().state  # read now, as the peer does: the checkpoint is made of it
            watch.lap("open")
            version = table.checkpoint()
            watch.lap("write")
        return checkpoint_seen(local(table.location) / "_delta_log", version)


def deltalake(watch: Watch, place: str, synced: bool) -> Seen:
    """Open, write a checkpoint of the latest version; `synced` makes it survive a power loss."""
    from bench.peers.delta_rs import DeltaTable, sync_checkpoint

    log = Path(place) / "_delta_log"
    with watch.measure():
        table = DeltaTable(place)
        watch.lap("open")
        table.create_checkpoint()
        if synced:
            sync_checkpoint(log, table.version())
        watch.lap("write")
    return checkpoint_seen(log, table.version())


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure both kinds of table."""
    from bench.prepared import WORK, Prepared, narrow, wide

    def block(name: str, prepared: Prepared, files: int) -> Block:
        plain = str(prepared.plain)

        def theirs(title: str, *, synced: bool) -> Side:
            return Side(
                f"{title}, {name}",
                f"{_HERE}:deltalake",
                {"place": plain, "synced": synced},
                is_durable=synced,
                reset=prepared.put_back,
            )

        return Block(
            name=name,
            per="checkpoint",
            sides=(
                Side(
                    f"headgate, {name}",
                    f"{_HERE}:ours",
                    {"place": str(prepared.lake)},
                    reset=prepared.put_back,
                ),
                theirs("deltalake", synced=False),
                theirs("deltalake synced", synced=True),
            ),
            floor=Side(
                "write as many files to Parquet with pyarrow, durable",
                "bench.floors:write_parquet",
                {"place": str(WORK / f"floor-10-{files}"), "files": files},
                stays=True,
            ),
        )

    commits, files = sizes["commits"], sizes["files"]
    return [
        block(f"{commits:,} commits", narrow(commits, "inline"), commits),
        block(f"{files:,} files", wide(files), files),
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    why = {
        "commits": "Encoding the Parquet file and syncing it remain.",
        "files": "Both sides encode every file again; neither carries over what the last "
        "checkpoint has already.",
    }
    return [
        claim
        for kind in ("commits", "files")
        for name in [f"{sizes[kind]:,} {kind}"]
        for claim in (
            Claim(
                f"{name}, against deltalake's create_checkpoint, synced",
                f"headgate, {name}",
                Sense.FASTER,
                5,
                f"deltalake synced, {name}",
                lap="write",
                against_lap="write",
                why=why[kind],
            ),
            Claim(
                f"{name}, as it comes",
                f"headgate, {name}",
                Sense.FASTER,
                None,
                f"deltalake, {name}",
                lap="write",
                against_lap="write",
            ),
            Claim(
                f"{name}, opening the table included, synced",
                f"headgate, {name}",
                Sense.FASTER,
                None,
                f"deltalake synced, {name}",
            ),
        )
    ]


SCENARIO = Scenario(
    number=10,
    title="write a checkpoint of {commits:,} commits; of {files:,} files",
    how="A new process with a warm page cache. Opening the table and writing the checkpoint are "
    "shown separately; the target applies to the writing. The result is read back and compared. "
    "deltalake syncs nothing, so it runs twice: as it comes, marked as not durable, and with its "
    "checkpoint synced afterwards.",
    full={"commits": 10_000, "files": 1_000_000},
    quick={"commits": 1_000, "files": 50_000},
    blocks=blocks,
    claims=claims,
)
