"""9: publish a backlog of staged commits, durably."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from bench.harness import Block, Side
from bench.scenario import Claim, Counts, Scenario, Sense, Sizes, floor_of
from bench.watch import Seen, Watch

_HERE = "bench.scenarios.publish"


def ours(watch: Watch, place: str, commits: int) -> Seen:
    """Publish all that is ratified."""
    from bench.ours import NAME, connect, local

    with connect(place, publisher=False) as session:
        table = session.table(NAME)
        log = local(table.location) / "_delta_log"
        with watch.measure():
            last = table.publish()
    staged = {path.name[:20]: path for path in (log / "_staged_commits").iterdir()}
    checksum = 0
    for version in range(1, last + 1):
        content = (log / f"{version:020d}.json").read_bytes()
        assert content == staged[f"{version:020d}"].read_bytes()
        checksum += zlib.crc32(content)
    assert last == commits
    return Seen(rows=last, checksum=checksum)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure our publisher; here the floor is the peer as well."""
    from bench.prepared import WORK

    return [
        Block(
            name="publish",
            per="file",
            sides=(_side(sizes["commits"]),),
            floor=Side(
                "put-if-absent, one thread",
                "bench.floors:put_if_absent",
                {"place": str(WORK / "floor-9"), "count": sizes["floor"], "size": 700},
                units=sizes["floor"],
            ),
        )
    ]


def _side(commits: int) -> Side:
    from bench.prepared import narrow

    prepared = narrow(commits, "staged", published=False)
    return Side(
        "headgate",
        f"{_HERE}:ours",
        {"place": str(prepared.lake), "commits": commits},
        units=commits,
        reset=prepared.put_back,
    )


def counts(sizes: Sizes) -> Counts | str:
    """Count the syncs of a smaller backlog."""
    from bench import counting
    from bench.prepared import WORK

    if not counting.is_available():
        return counting.MISSING
    commits = sizes["counted"]
    side = _side(commits)
    tables = WORK / f"narrow-{commits}-staged-backlog" / "lake" / "tables"
    return {"publish, for one file": counting.count(side, tables, per=commits)}


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    return [
        Claim(
            "against put-if-absent in one thread",
            "headgate",
            Sense.FASTER,
            3,
            floor_of("publish"),
            why="Every file is still created, synced and linked; only folders are synced once.",
        ),
        Claim(
            "syncs of folders for one file",
            "publish, for one file",
            Sense.COUNT,
            0.1,
            lap="sync folder",
        ),
        Claim("LISTs for one file", "publish, for one file", Sense.COUNT, 0, lap="LIST"),
    ]


SCENARIO = Scenario(
    number=9,
    title="publish a backlog of {commits:,} staged commits of 700 bytes, durable",
    how="Every published file is synced and then linked, in order; the folder is synced once in "
    "each batch. The floor is one thread that writes files of the same size: temporary file, "
    "sync, link, unlink, sync of the folder. Times are for one file.",
    full={"commits": 10_000, "floor": 1_000, "counted": 1_000},
    quick={"commits": 1_000, "floor": 300, "counted": 200},
    blocks=blocks,
    claims=claims,
    counts=counts,
)
