"""18: how costs grow with the commits of a log, the files of a table, the tables of a catalog."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from bench.harness import Block, Side
from bench.scenario import Claim, Scenario, Sense, Sizes
from bench.watch import Seen, Watch

if TYPE_CHECKING:
    from bench.prepared import Prepared

_HERE = "bench.scenarios.growth"
_FLAT = 0.1  # a slope that far from 0 is flat
_COMMITS = (10, 100, 1_000, 10_000, 30_000, 100_000)
_LOGS = (10, 100, 1_000, 3_000, 10_000, 30_000)
_FILES = (100, 1_000, 10_000, 100_000, 300_000, 1_000_000)
_TABLES = (1, 10, 100, 1_000, 10_000, 30_000, 100_000)
_COMMIT, _RESOLVE, _REFRESH, _PAGE = "commit", "resolve", "refresh", "list a page"
_TRAVEL, _CHECKPOINT = "time travel", "checkpoint"
_LISTED = 10  # tables on a page: a catalog with fewer is not on its curve


def with_commits(watch: Watch, place: str, times: int) -> Iterator[Seen]:
    """Commit, resolve, refresh: with the catalog in the process, on a table that is open."""
    from bench.ours import NAME, connect
    from bench.prepared import append_inline
    from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, TableName

    name = TableName(DEFAULT_CATALOG, DEFAULT_SCHEMA, NAME)
    with connect(place, publisher=False) as writer, connect(place, publisher=False) as reader:
        table, theirs = reader.table(NAME), writer.table(NAME)
        table.snapshot()
        index = 2 * 10**6
        while True:
            for _ in range(times):
                with watch.measure():
                    append_inline(writer, theirs, range(index, index + 1), threads=1)
                    watch.lap(_COMMIT)
                    reader.catalog.resolve(name)
                    watch.lap(_RESOLVE)
                    table.snapshot()
                    watch.lap(_REFRESH)
                index += 1
            theirs.publish()
            yield Seen(rows=0)


def with_checkpoints(watch: Watch, place: str, times: int) -> Iterator[Seen]:
    """Set the clock back and write a checkpoint, one commit later each time."""
    from bench.ours import NAME, connect
    from bench.prepared import append_inline

    with connect(place, publisher=False) as session:
        table = session.table(NAME)
        index = 3 * 10**6
        while True:
            for _ in range(times):
                before = session.catalog.resolve(table.id).timestamp_ms
                append_inline(session, table, range(index, index + 1), threads=1)
                table.publish()
                with watch.measure():
                    gone_back = session.table(NAME).snapshot(as_of=before)
                    watch.lap(_TRAVEL)
                    version = table.checkpoint()
                    watch.lap(_CHECKPOINT)
                assert gone_back.version == version - 1, (gone_back.version, version)
                index += 1
            yield Seen(rows=0)


def check(watch: Watch, place: str) -> Seen:
    """Check every commit of a table against its log."""
    from bench.ours import NAME, connect

    with connect(place, publisher=False) as session, watch.measure():
        findings = session.fsck(NAME)
    # The files of data that these commits name are nowhere.
    assert {finding.rule for finding in findings} <= {"data-file"}, findings
    return Seen(rows=0)


def load_cold(watch: Watch, place: str) -> Seen:
    """Load the latest version in a new process, from after the imports."""
    from bench.ours import NAME, connect

    with watch.measure():
        session = connect(place, publisher=False)
        snapshot = session.table(NAME).snapshot()
        files = snapshot.file_columns()
    session.close()
    return Seen(rows=files.num_rows)


def with_tables(watch: Watch, place: str, count: int, times: int) -> Iterator[Seen]:
    """Resolve by name, list a page, commit: requests to a server, on one connection a turn."""
    from bench.history import name_of
    from bench.load import Line, commit_request, get_request, is_good
    from bench.ours import NAME, connect
    from bench.prepared import add_file, inline
    from bench.server import headgate, publish_all
    from headgate.clock import RandomIds
    from headgate.protocol.actions import encode

    ids = RandomIds()
    info = dict(inline(b"").commit_info)
    page = get_request(f"/v1/tables?limit={_LISTED}")
    with headgate(place) as server:
        with connect(server.address) as session:
            table = session.table(NAME)
            table_id, head = table.id, int(table.version)
        for turn in itertools.count():
            line = Line(server.port)
            for number in range(times):
                head += 1
                chosen = (turn * times + number) * 7_919 % count  # spread over all of them
                named = get_request(f"/v1/names/main.default.{name_of(chosen)}")
                actions = encode(add_file(head)) + b"\n"
                commit, _ = commit_request(table_id, str(ids.ordered()), head, actions, info)
                with watch.measure():
                    resolved = line.ask(named)
                    watch.lap(_RESOLVE)
                    listed = line.ask(page)
                    watch.lap(_PAGE)
                    committed = line.ask(commit)
                    watch.lap(_COMMIT)
                assert is_good(resolved), resolved
                assert is_good(listed), listed
                assert is_good(committed), committed
            line.close()
            publish_all(server.port, [table_id])
            yield Seen(rows=0)


def start(watch: Watch, place: str) -> Seen:
    """Start the server, to its first answer."""
    from bench.server import headgate

    server = headgate(place)
    with watch.together(), watch.sample():
        server.start()
        server.wait()
    server.kill()
    return Seen(rows=0)


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Let all sizes take turns, so that a disturbance affects all of them."""
    from bench.history import history, tables
    from bench.prepared import WORK, wide

    times = sizes["times"]
    commits = {count: history(count) for count in _up_to(_COMMITS, sizes["commits"])}
    logs = {count: history(count, in_log=True) for count in _up_to(_LOGS, sizes["commits"])}
    files = {count: wide(count) for count in _up_to(_FILES, sizes["files"])}
    many = {count: tables(count) for count in _up_to(_TABLES, sizes["tables"])}
    for prepared in (*commits.values(), *logs.values(), *files.values(), *many.values()):
        prepared.put_back()
    floor = Side(
        "SQLite: read the head, insert, compare and set",
        "bench.floors:compare_and_set",
        {"place": str(WORK / "floor-18"), "count": 2_000, "size": 700},
    )

    def side(name: str, function: str, prepared: Prepared, **arguments: object) -> Side:
        stays = "times" in arguments  # what is measured often is measured in one process
        place = {"place": str(prepared.lake)}
        return Side(name, f"{_HERE}:{function}", {**place, **arguments}, stays=stays)

    def block(name: str, per: str, sides: Iterable[Side], floor: Side = floor) -> Block:
        return Block(name=name, per=per, sides=tuple(sides), floor=floor)

    few = sizes["checkpoints"]
    return [
        block(
            "commits in the log",
            "commit, resolve and refresh",
            (side(_of(n, "commits"), "with_commits", p, times=times) for n, p in commits.items()),
        ),
        block(
            "commits in the log, cold",
            "load",
            (side(_cold(n), "load_cold", p) for n, p in commits.items()),
        ),
        block(
            "commits in the log, kept",
            "time travel and checkpoint",
            (side(_kept(n), "with_checkpoints", p, times=few) for n, p in commits.items()),
        ),
        block(
            "commits in the log, checked",
            "fsck",
            (side(_checked(n), "check", p) for n, p in logs.items()),
        ),
        block(
            "files in the table",
            "commit, resolve and refresh",
            (side(_of(n, "files"), "with_commits", p, times=times) for n, p in files.items()),
        ),
        block(
            "tables in the catalog",
            "resolve, page and commit",
            (
                side(_of(n, "tables"), "with_tables", p, count=n, times=times)
                for n, p in many.items()
            ),
        ),
        block(
            "tables in the catalog, start",
            "start of the server",
            (side(_started(n), "start", p) for n, p in many.items()),
            Side(
                "start an empty application, to its first answer",
                "bench.scenarios.restart:nothing",
                {"times": 3},
            ),
        ),
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims about growth."""
    commits, tables = _up_to(_COMMITS, sizes["commits"]), _up_to(_TABLES, sizes["tables"])
    warm = {_of(count, "commits"): float(count) for count in commits}
    cold = {_cold(count): float(count) for count in commits}
    kept = {_kept(count): float(count) for count in commits}
    checked = {_checked(count): float(count) for count in _up_to(_LOGS, sizes["commits"])}
    files = {_of(count, "files"): float(count) for count in _up_to(_FILES, sizes["files"])}
    many = {_of(count, "tables"): float(count) for count in tables}
    pages = {name: count for name, count in many.items() if count >= _LISTED}
    starts = {_started(count): float(count) for count in tables}

    def curve(says: str, points: dict[str, float]) -> Claim:
        return Claim(says, next(iter(points)), Sense.SLOPE, points=points)

    def flat(says: str, points: dict[str, float], lap: str | None, why: str) -> Claim:
        return Claim(says, next(iter(points)), Sense.SLOPE, _FLAT, lap=lap, points=points, why=why)

    log = "Something is done for every commit of the log."
    tombstones = (
        "Files that are gone stay in checkpoints for a week, and every commit here has one."
    )
    table = "Something is done for every file of the table."
    catalog = "Something is done for every table of the catalog."
    return [
        flat("commit, by commits in the log", warm, _COMMIT, log),
        flat("resolve, by commits in the log", warm, _RESOLVE, log),
        flat("refresh, by commits in the log", warm, _REFRESH, log),
        flat("load latest, cold, by commits in the log", cold, None, log),
        flat("time travel, by commits in the log", kept, _TRAVEL, log),
        flat("checkpoint, by commits in the log", kept, _CHECKPOINT, tombstones),
        curve("fsck, which reads every commit, by commits in the log", checked),
        flat("commit, by files in the table", files, _COMMIT, table),
        flat("resolve, by files in the table", files, _RESOLVE, table),
        flat("refresh, by files in the table", files, _REFRESH, table),
        flat("resolve by name, by tables", many, _RESOLVE, catalog),
        flat(f"list a page of {_LISTED}, by tables", pages, _PAGE, catalog),
        flat("commit, by tables", many, _COMMIT, catalog),
        flat("start of the server, by tables", starts, None, catalog),
    ]


def _up_to(counts: Sequence[int], largest: int) -> list[int]:
    return [count for count in counts if count <= largest]


def _of(count: int, what: str) -> str:
    return f"{count:,} {what}"


def _cold(count: int) -> str:
    return f"{count:,} commits, cold"


def _kept(count: int) -> str:
    return f"{count:,} commits, kept"


def _checked(count: int) -> str:
    return f"{count:,} commits, checked"


def _started(count: int) -> str:
    return f"{count:,} tables, start"


SCENARIO = Scenario(
    number=18,
    title="growth with commits (to {commits:,}), files (to {files:,}) and tables (to {tables:,})",
    how="All sizes take turns. Commits: the table has one live file, whatever the length of the "
    "log, and a checkpoint five commits before its end; the catalog runs in the process. A cold "
    "load is a new process, measured from the end of the imports. Files: a checkpoint of all of "
    "them, ten commits before the end. Tables: requests to a server over one connection that "
    "stays open. A slope of 0 ± 0.1 on log-log axes (10,000 times the size costs at most 2.5 "
    "times as much) counts as flat.",
    full={
        "commits": 100_000,
        "files": 1_000_000,
        "tables": 100_000,
        "times": 50,
        "checkpoints": 10,
    },
    quick={"commits": 1_000, "files": 10_000, "tables": 1_000, "times": 10, "checkpoints": 3},
    blocks=blocks,
    claims=claims,
    not_yet=("files; tables and statements of a transaction; the unpublished tail: not yet",),
)
