"""13: file-system calls of one commit and of one read, ours and deltalake's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.harness import Block, Side
from bench.scenario import Claim, Counts, Scenario, Sense, Sizes
from bench.scenarios.cold_load import deltalake as read_deltalake
from bench.scenarios.cold_load import ours as read_ours
from bench.watch import Seen, Watch

__all__ = ["commit_deltalake", "commit_ours", "read_deltalake", "read_ours"]

_HERE = "bench.scenarios.calls"


def commit_ours(watch: Watch, place: str, staged: bool, count: int) -> Seen:
    """Change a property: a commit without data files."""
    from bench.ours import NAME, connect, staging_session

    session = staging_session(place) if staged else connect(place, publisher=False)
    with session:
        table = session.table(NAME)
        table.set_properties({"bench": 0})  # the first looks once whether the log is ahead
        for number in range(count):
            with watch.measure():
                table.set_properties({"bench": number + 1})
        return Seen(rows=table.version)


def commit_deltalake(watch: Watch, place: str, count: int) -> Seen:
    """Change a property: a commit without data files."""
    from bench.peers.delta_rs import DeltaTable

    # Of its own: deltalake does not write to tables with in-commit timestamps.
    table = DeltaTable.create(place, _columns())
    table.alter.set_table_properties({"bench": "0"}, raise_if_not_exists=False)
    for number in range(count):
        with watch.measure():
            table.alter.set_table_properties({"bench": str(number + 1)}, raise_if_not_exists=False)
    return Seen(rows=table.version())


def _columns() -> Any:
    import pyarrow as pa

    return pa.schema([("id", pa.int64()), ("name", pa.string())])


def counts(sizes: Sizes) -> Counts | str:
    """Count calls in the table's folder; the catalog's database is counted separately."""
    from bench import counting
    from bench.prepared import WORK, fresh, narrow

    if not counting.is_available():
        return counting.MISSING
    commits, times = sizes["commits"], sizes["times"]
    prepared = narrow(commits, "inline")
    lake, plain = prepared.lake, prepared.plain
    tables = lake / "tables"

    def counted(function: str, place: str, **arguments: object) -> Side:
        return Side(
            function,
            f"{_HERE}:{function}",
            {"place": place, **arguments},
            reset=prepared.put_back,
        )

    inline = counted("commit_ours", str(lake), staged=False, count=times)
    staged = counted("commit_ours", str(lake), staged=True, count=times)
    own = WORK / "calls"
    theirs = Side(
        "commit_deltalake",
        f"{_HERE}:commit_deltalake",
        {"place": str(own), "count": times},
        reset=lambda: fresh(own),
    )
    return {
        "commit, headgate inline": counting.count(inline, tables, times),
        "commit, headgate inline, its database": counting.count(
            inline, lake / "headgate.db-wal", times
        ),
        "commit, headgate staged": counting.count(staged, tables, times),
        "commit, deltalake": counting.count(theirs, own, times),
        "read, headgate": counting.count(counted("read_ours", str(lake)), tables),
        "read, deltalake": counting.count(counted("read_deltalake", str(plain)), plain),
    }


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Measure no time."""
    return []


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims."""
    inline, staged, read = (
        "commit, headgate inline",
        "commit, headgate staged",
        "read, headgate",
    )
    return [
        Claim("inline commit, files created", inline, Sense.COUNT, 0, lap="create"),
        Claim("inline commit, LISTs", inline, Sense.COUNT, 0, lap="LIST"),
        Claim("staged commit, files created", staged, Sense.COUNT, 1, lap="create"),
        Claim("staged commit, LISTs", staged, Sense.COUNT, 0, lap="LIST"),
        Claim("read, LISTs", read, Sense.COUNT, 0, lap="LIST"),
    ]


SCENARIO = Scenario(
    number=13,
    title="file-system calls of one commit and of one read",
    how="Counted by strace between marks around the samples, in the table's folder. A commit "
    "changes one property; a read loads {commits:,} inline commits that are all published. The "
    "catalog publishes afterwards: scenario 9 counts that.",
    full={"commits": 300, "times": 20},
    quick={"commits": 100, "times": 10},
    blocks=blocks,
    claims=claims,
    counts=counts,
)
