"""8: refresh an open table by one commit of another writer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.refresh"


def ours(watch: Watch, place: str, count: int) -> Iterator[Seen]:
    """Keep a table open; another session commits; refresh."""
    from bench.ours import NAME, connect, version_seen
    from bench.prepared import append_inline

    # Publishing goes on between the samples, so that the unpublished tail stays short.
    with connect(place, publisher=False) as reader, connect(place, publisher=False) as writer:
        table, theirs = reader.table(NAME), writer.table(NAME)
        snapshot = table.snapshot()
        index = snapshot.num_files
        while True:
            for _ in range(count):
                append_inline(writer, theirs, range(index, index + 1))
                index += 1
                with watch.measure():
                    snapshot = table.snapshot()
                if index % 10 == 0:
                    theirs.publish()
            yield version_seen(snapshot)


def deltalake(watch: Watch, place: str, count: int, measured: int) -> Iterator[Seen]:
    """Keep a table open; add a file to its log; refresh. The last files are added at once."""
    from bench.peers.delta_rs import DeltaTable
    from bench.prepared import add_file
    from headgate.protocol.actions import encode

    table = DeltaTable(place)
    log = Path(place) / "_delta_log"
    version = table.version()
    template = (log / f"{version:020d}.json").read_bytes().splitlines()[0]
    lines = json.loads(template)
    index = version
    while True:
        for number in range(count):
            version += 1
            lines["commitInfo"]["inCommitTimestamp"] += 1
            content = json.dumps(lines).encode() + b"\n" + encode(add_file(index)) + b"\n"
            index += 1
            (log / f"{version:020d}.json").write_bytes(content)
            if number < measured:
                with watch.measure():
                    table.update_incremental()
        if measured < count:
            table.update_incremental()
        yield Seen(rows=table.get_add_actions().num_rows, checksum=table.version())


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure both sides at both sizes."""
    return [_block(sizes["small"], sizes["refreshes"]), _block(sizes["large"], sizes["refreshes"])]


def _block(commits: int, refreshes: int) -> Block:
    from bench.prepared import WORK, narrow

    prepared = narrow(commits, "inline")
    prepared.put_back()
    return Block(
        name=_at(commits),
        per="refresh",
        sides=(
            Side(
                f"headgate {_at(commits)}",
                f"{_HERE}:ours",
                {"place": str(prepared.lake), "count": refreshes},
                stays=True,
                reset=prepared.put_back,
            ),
            Side(
                f"deltalake {_at(commits)}",
                f"{_HERE}:deltalake",
                {
                    "place": str(prepared.plain),
                    "count": refreshes,
                    # Its refresh grows with the table: a few samples of a long one will do.
                    "measured": min(refreshes, max(1, 20_000 // commits)),
                },
                stays=True,
            ),
        ),
        floor=Side(
            "read the newest content from SQLite",
            "bench.floors:read_newest",
            {"place": str(WORK / "floor-8"), "count": commits, "size": 700, "times": 1_000},
        ),
    )


def _at(commits: int) -> str:
    return f"at {commits:,} commits"


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    small, large = _at(sizes["small"]), _at(sizes["large"])
    return [
        *(
            Claim(
                f"{at}, against deltalake's update_incremental",
                f"headgate {at}",
                Sense.FASTER,
                10,
                f"deltalake {at}",
                why="One resolve and one commit's decoding remain.",
            )
            for at in (small, large)
        ),
        Claim(
            f"{large}, against {small}",
            f"headgate {large}",
            Sense.FLAT,
            0.2,
            f"headgate {small}",
            why="Something still grows with the number of commits.",
        ),
        Claim("against the floor", f"headgate {large}", Sense.SHARE, None, floor_of(large)),
    ]


SCENARIO = Scenario(
    number=8,
    title="refresh by one commit at {small:,} and at {large:,} commits",
    how="Each side has an open table. Another writer makes one commit with one file, then the "
    "refresh is measured. deltalake reads a plain copy of the log, into which the file is copied.",
    full={"small": 10_000, "large": 100_000, "refreshes": 50},
    quick={"small": 1_000, "large": 4_000, "refreshes": 20},
    blocks=blocks,
    claims=claims,
    is_quick=True,
)
