"""The harness and the report of `make bench` keep its rules: no ratio without a steady floor."""

import dataclasses
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from bench.counting import tally
from bench.curves import slope
from bench.harness import Block, Figures, Measured, Side, measure, moved
from bench.load import commit_request, is_good, is_whole
from bench.peers import postgres, unity_server
from bench.report import (
    Verdict,
    as_json,
    details,
    fallen,
    judge,
    page,
    ratios_of,
    result_of,
    stored_ratios,
    table,
)
from bench.scenario import Claim, Scenario, Sense, floor_of
from bench.scenarios import append, unity_clients, unity_commits
from bench.server import Server, ask, empty, headgate
from bench.unity import API, Place, Turn, create, pretend
from bench.watch import Seen, Watch

# Sides and floors, which run in processes of their own and return the times that they are given.


def side(watch: Watch, seconds: float, rows: int, samples: int = 1) -> Iterator[Seen]:
    while True:
        watch.samples.extend([seconds] * samples)
        watch.cpu.append(seconds)
        yield Seen(rows=rows)


def reporting(watch: Watch, failed: list[int]) -> Iterator[Seen]:
    for number in failed:
        watch.samples.append(0.010)
        watch.cpu.append(0.010)
        watch.facts["commits/s"] = 100.0 * number
        watch.worst["failed"] = number
        yield Seen(rows=0)


def restless(watch: Watch, seconds: float) -> Iterator[Seen]:
    while True:
        watch.samples.append(seconds)
        watch.cpu.append(seconds)
        seconds *= 1.5
        yield Seen(rows=0)


def whoami(watch: Watch) -> Iterator[Seen]:
    turn = 0
    while True:
        turn += 1
        watch.samples.append(0.010)
        watch.cpu.append(0.010)
        watch.worst["turn"] = turn
        yield Seen(rows=os.getpid())


def broken(watch: Watch) -> Seen:
    raise ValueError("no such lake")


def a_side(name: str, seconds: float, rows: int = 3, **more: object) -> Side:
    arguments = {"seconds": seconds, "rows": rows, **more}
    return Side(name, "tests.meta.test_bench:side", arguments, stays=True)


def a_block(*sides: Side, floor: Side | None = None) -> Block:
    return Block("block", "thing", sides, floor or a_side("floor", 0.001, rows=0))


def figures(median: float, *, is_durable: bool = True) -> Figures:
    return Figures(median, median, median, None, {}, median, 10**6, 5, is_durable)


def measured(floor_moved: float = 0.1, **medians: float) -> Measured:
    sides = {name: figures(median) for name, median in medians.items()}
    floor = figures(0.001)
    return Measured("block", "thing", "floor", floor, floor_moved, (), sides, tuple(sides))


def curve_of(*seconds: float) -> Measured:
    sides = {f"{10**number} tables": figures(each) for number, each in enumerate(seconds)}
    return Measured("block", "thing", "floor", figures(0.001), 0.1, (), sides, tuple(sides))


CURVE = Claim(
    "resolve, by tables",
    "1 tables",
    Sense.SLOPE,
    0.1,
    points={"1 tables": 1, "10 tables": 10, "100 tables": 100},
    why="Something is done for every table.",
)
FASTER = Claim("ours against theirs", "ours", Sense.FASTER, 5, "theirs", why="Syncing takes long.")
SCENARIO = Scenario(
    number=99,
    title="do {things:,} things",
    how="At once.",
    full={"things": 1_000},
    quick={"things": 10},
    blocks=lambda sizes: [],
    claims=lambda sizes: [FASTER],
    not_yet=("through a server: not yet",),
)


@pytest.mark.slow
def test_sides_take_turns_and_their_medians_become_a_ratio() -> None:
    block = a_block(a_side("ours", 0.010), a_side("theirs", 0.070, samples=500))
    found = measure(block, alternations=2)
    assert found.is_steady
    assert found.sides["ours"].samples == 2  # the warm-up counts for nothing
    assert found.sides["ours"].p99 is None
    assert found.sides["theirs"].p99 == 0.070  # a thousand samples are enough
    ratio = judge(FASTER, [found], {})
    assert (ratio.value, ratio.verdict) == (pytest.approx(7), Verdict.MET)


@pytest.mark.slow
def test_a_block_whose_floor_moves_is_repeated_and_finally_gives_no_verdict() -> None:
    floor = Side("floor", "tests.meta.test_bench:restless", {"seconds": 0.001}, stays=True)
    found = measure(a_block(a_side("ours", 0.010), floor=floor), alternations=1)
    assert not found.is_steady
    assert found.thrown_away == (pytest.approx(0.5), pytest.approx(0.5))
    ratio = judge(Claim("in time", "ours", Sense.SECONDS, 1.0), [found], {})
    assert ratio.verdict is Verdict.NONE
    assert ratio.reason == "discarded: the floor moved by 50%, tried 3 times"


@pytest.mark.slow
def test_no_time_counts_if_results_differ_or_a_side_died() -> None:
    differing = measure(a_block(a_side("ours", 0.01, rows=3), a_side("theirs", 0.07, rows=4)))
    assert differing.failure == "ours and theirs found different rows: 3 and 4"
    dead = measure(a_block(Side("theirs", "tests.meta.test_bench:broken", {})))
    assert dead.failure == "theirs died: ValueError: no such lake"
    assert judge(FASTER, [differing], {}).verdict is Verdict.NONE


@pytest.mark.slow
def test_sides_within_one_process_share_it_and_keep_their_own_turns() -> None:
    one, other = (
        Side(name, "tests.meta.test_bench:whoami", {}, within="one process") for name in "ab"
    )
    found = measure(a_block(one, other), alternations=2)
    assert found.failure is None  # both saw the same process
    assert found.sides["a"].facts == found.sides["b"].facts == {"turn": 3}
    apart = dataclasses.replace(other, within=None, stays=True)
    failure = measure(a_block(one, apart)).failure
    assert failure is not None
    assert failure.startswith("a and b found different rows")
    assert measure(a_block(one, dataclasses.replace(apart, task="else"))).failure is None


def test_a_floor_moves_by_the_difference_of_its_readings() -> None:
    assert moved([0.10, 0.13, 0.11]) == pytest.approx(0.3)


def test_a_missed_target_stays_in_the_table_in_red_with_factor_and_reason() -> None:
    result = result_of(SCENARIO, SCENARIO.full, [measured(ours=0.010, theirs=0.040)], {})
    [ratio] = result.ratios
    assert ratio.verdict is Verdict.MISSED
    reason = "missed by a factor of 1.25; the floor alone is 10% of our time. Syncing takes long."
    assert ratio.reason == reason
    lines = table([result], red="<red>{}</red>")
    assert lines[2:] == [
        "| 99 | do 1,000 things: ours against theirs | 4 x as fast | >= 5x | "
        f"<red>MISSED</red>: {reason} |",
        "| 99 | ... | | | through a server: not yet |",
    ]
    whole = page([result], {"kernel": "Linux 6"}, when="today", minutes=3)
    assert 'style="color:red">**MISSED**' in whole
    assert "Targets missed: 1." in whole
    assert "| kernel | Linux 6 |" in whole


def test_targets_are_for_full_sizes() -> None:
    result = result_of(SCENARIO, SCENARIO.quick, [measured(ours=0.010, theirs=0.040)], {})
    assert [ratio.verdict for ratio in result.ratios] == [Verdict.SHOWN]


def test_nothing_is_claimed_against_a_side_that_is_not_durable() -> None:
    found = measured(ours=0.010, theirs=0.080)
    found = Measured(
        *("block", "thing", "floor", found.floor, 0.1, ()),
        {**found.sides, "theirs": figures(0.080, is_durable=False)},
        found.names,
    )
    ratio = judge(FASTER, [found], {})
    assert (ratio.value, ratio.verdict) == (pytest.approx(8), Verdict.NOT_DURABLE)
    sides = {name: figures(found.sides[name].median, is_durable=False) for name in found.sides}
    assert judge(FASTER, [dataclasses.replace(found, sides=sides)], {}).verdict is Verdict.MET


@pytest.mark.parametrize(
    ("claim", "value", "verdict"),
    [
        (Claim("", "ours", Sense.SHARE, 0.5, "theirs"), 0.25, Verdict.MET),
        (Claim("", "ours", Sense.SHARE, 0.2, "theirs"), 0.25, Verdict.MISSED),
        (Claim("", "ours", Sense.FLAT, 0.2, "theirs"), 0.25, Verdict.MISSED),
        (Claim("", "ours", Sense.FLAT, 0.8, "theirs"), 0.25, Verdict.MET),
        (Claim("", "ours", Sense.SHARE, None, floor_of("block")), 10, Verdict.SHOWN),
        (Claim("", "ours", Sense.SECONDS, 0.010), 0.010, Verdict.MET),
        (Claim("", "ours", Sense.BYTES, 10**5), 10**6, Verdict.MISSED),
        (Claim("", "a read", Sense.COUNT, 0, lap="LIST"), 0, Verdict.MET),
        (Claim("", "a read", Sense.COUNT, 0, lap="open"), 2, Verdict.MISSED),
        (Claim("", "a commit", Sense.COUNT, 0, lap="LIST"), None, Verdict.NONE),
        (Claim("", "absent", Sense.SECONDS, 1), None, Verdict.NONE),
    ],
)
def test_each_claim_is_compared_with_its_limit(
    claim: Claim, value: float | None, verdict: Verdict
) -> None:
    counts = {"a read": {"LIST": 0.0, "open": 2.0}}
    ratio = judge(claim, [measured(ours=0.010, theirs=0.040)], counts)
    assert ratio.value == (None if value is None else pytest.approx(value))
    assert ratio.verdict is verdict


def test_a_ratio_that_fell_by_more_than_a_quarter_is_reported(
    tmp_path: Path,
) -> None:
    before = result_of(SCENARIO, SCENARIO.quick, [measured(ours=0.010, theirs=0.080)], {})
    path = tmp_path / "quick.json"
    path.write_text(as_json([before], {}))
    now = result_of(SCENARIO, SCENARIO.quick, [measured(ours=0.010, theirs=0.050)], {})
    stored = stored_ratios(path, [now])
    assert stored == {"99: ours against theirs": pytest.approx(8)}
    grows = {name: ratio.grows for name, ratio in ratios_of([now]).items()}
    assert fallen({"99: ours against theirs": 6.1}, stored, grows) == []
    assert fallen({"99: ours against theirs": 5.0}, stored, grows) == [
        "99: ours against theirs: 5 after 8, 38% worse"
    ]
    other_size = result_of(SCENARIO, SCENARIO.full, [], {})
    assert stored_ratios(path, [other_size]) == {}


def test_a_slope_is_that_of_a_least_squares_line_on_logarithmic_axes() -> None:
    assert slope({1: 0.5, 10: 0.5, 100: 0.5}) == pytest.approx(0)
    assert slope({1: 0.5, 10: 5, 100: 50}) == pytest.approx(1)
    assert slope({2: 1, 4: 4, 8: 16}) == pytest.approx(2)
    assert slope({1: 1, 10: 2, 100: 1}) == pytest.approx(0)
    with pytest.raises(ValueError, match="two points"):
        slope({10: 1})


def test_a_curve_that_grows_misses_its_target_and_shows_its_points() -> None:
    scenario = Scenario(
        number=98,
        title="growth",
        how="By size.",
        full={},
        quick={"tables": 1},
        blocks=lambda sizes: [],
        claims=lambda sizes: [CURVE],
    )
    flat = result_of(scenario, scenario.full, [curve_of(0.010, 0.011, 0.010)], {})
    assert [ratio.verdict for ratio in flat.ratios] == [Verdict.MET]
    growing = result_of(scenario, scenario.full, [curve_of(0.010, 0.020, 0.040)], {})
    [ratio] = growing.ratios
    assert ratio.verdict is Verdict.MISSED
    assert ratio.reason == "missed. Something is done for every table."
    line = "resolve, by tables: slope +0.301 (1: 10 ms, 10: 20 ms, 100: 40 ms)"
    assert f"- {line}" in details(growing)
    assert "| slope +0.30 | 0 ± 0.1 | MISSED: missed." in table([growing])[2]


def test_a_curve_without_one_of_its_points_gives_no_verdict() -> None:
    ratio = judge(CURVE, [curve_of(0.010, 0.020)], {})
    assert (ratio.value, ratio.verdict) == (None, Verdict.NONE)


@pytest.mark.slow
def test_facts_are_shown_as_medians_and_failures_as_their_maximum() -> None:
    side = Side("ours", "tests.meta.test_bench:reporting", {"failed": [9, 0, 2, 1]}, stays=True)
    found = measure(a_block(side), alternations=3)
    assert found.sides["ours"].facts == {"commits/s": 100.0, "failed": 2}
    claim = Claim("failed", "ours", Sense.FACT, 0, lap="failed")
    ratio = judge(claim, [found], {})
    assert (ratio.value, ratio.verdict) == (2, Verdict.MISSED)


def test_what_a_machine_lacks_is_shown_in_the_table() -> None:
    scenario = dataclasses.replace(SCENARIO, not_run=lambda: ["PostgreSQL: not run"])
    result = result_of(scenario, scenario.full, [measured(ours=0.010, theirs=0.080)], {})
    assert table([result])[-1] == "| 99 | ... | | | PostgreSQL: not run |"


def test_a_request_can_be_given_another_version_in_its_place() -> None:
    request, place = commit_request("t", "x", 7, b"{}\n", {"operation": "WRITE"})
    head, _, body = bytes(request).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["version"] == 7
    request[place : place + 12] = b"%12d" % 123_456
    body = bytes(request).partition(b"\r\n\r\n")[2]
    assert json.loads(body) == {
        "version": 123_456,
        "txnId": "x",
        "content": {"way": "inline", "commitInfo": {"operation": "WRITE"}, "actions": "e30K"},
    }
    assert is_good(b"HTTP/1.1 200 OK\r\n")
    assert not is_good(b"HTTP/1.1 409 Conflict\r\n")


def test_calls_are_counted_between_the_marks_and_below_the_folder(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    lines = [
        f'7 openat(AT_FDCWD, "{log}/early.json", O_RDONLY) = 3',
        '7 newfstatat(AT_FDCWD, "/headgate-bench-begins", 0x7f, 0) = -1 ENOENT',
        f'7 openat(AT_FDCWD, "{log}/.tmp", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3<{log}/.tmp>',
        f"7 fsync(3<{log}/.tmp> <unfinished ...>",
        "8 <... fsync resumed>) = 0",
        f'7 linkat(AT_FDCWD, "{log}/.tmp", AT_FDCWD, "{log}/1.json", 0) = 0',
        f'7 openat(AT_FDCWD, "{log}", O_RDONLY|O_NONBLOCK|O_DIRECTORY) = 4<{log}>',
        f"7 fsync(4<{log}>) = 0",
        '7 openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 5',
        '7 newfstatat(AT_FDCWD, "/headgate-bench-ends", 0x7f, 0) = -1 ENOENT',
        f'7 unlink("{log}/.tmp") = 0',
    ]
    counted = tally(lines, tmp_path)
    assert {kind: number for kind, number in counted.items() if number} == {
        "create": 1,
        "sync file": 1,
        "link": 1,
        "LIST": 1,
        "sync folder": 1,
    }


# Beside the server of Unity Catalog


@pytest.fixture
def without_theirs(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for what in ("URL", "PID", "STORE"):
        monkeypatch.delenv(f"HEADGATE_UC_SERVER_{what}", raising=False)
    return monkeypatch


@pytest.fixture
def with_theirs(without_theirs: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    without_theirs.setenv("HEADGATE_UC_SERVER_URL", "http://127.0.0.1:1")
    return without_theirs


def is_theirs(side: Side) -> bool:
    return side.name.startswith(unity_server.NAME)


def test_a_ratio_of_facts_is_one_of_times_and_none_if_one_is_zero() -> None:
    claim = Claim("CPU", "ours", Sense.FASTER, 3, "theirs", lap="cpu", against_lap="cpu", why="So.")

    def judged(mine: float, their: float) -> tuple[float | None, Verdict, str]:
        found = measured(ours=0.010, theirs=0.010)
        facts = {"ours": {"cpu": mine}, "theirs": {"cpu": their}}
        sides = {
            name: dataclasses.replace(side, facts=facts[name]) for name, side in found.sides.items()
        }
        ratio = judge(claim, [dataclasses.replace(found, sides=sides)], {})
        return ratio.value, ratio.verdict, ratio.reason

    assert judged(100, 400) == (4, Verdict.MET, "")
    assert judged(100, 200) == (2, Verdict.MISSED, "missed by a factor of 1.50. So.")
    assert judged(0, 200) == (None, Verdict.NONE, "one of the two is 0")


@pytest.mark.parametrize(
    ("store", "is_durable"), [(None, False), ("", False), ("h2", False), ("postgresql", True)]
)
def test_their_server_is_durable_if_it_is_configured_for_postgresql(
    with_theirs: pytest.MonkeyPatch, store: str | None, is_durable: bool
) -> None:
    if store is not None:
        with_theirs.setenv("HEADGATE_UC_SERVER_STORE", store)
    for scenario in (unity_clients.SCENARIO, unity_commits.SCENARIO):
        for block in scenario.blocks(scenario.full):
            [theirs] = filter(is_theirs, block.sides)
            assert theirs.is_durable is is_durable
            assert all(side.is_durable for side in block.sides if side is not theirs)
    with_theirs.setenv("HEADGATE_UC_SERVER_STORE", "mysql")
    with pytest.raises(ValueError, match="'mysql'; valid values are h2 and postgresql"):
        unity_server.is_durable()


def test_their_processor_time_is_shown_and_claimed_only_if_their_process_is_known(
    with_theirs: pytest.MonkeyPatch,
) -> None:
    scenarios = unity_clients.SCENARIO, unity_commits.SCENARIO

    def limits() -> list[list[float | None]]:
        return [
            [claim.limit for claim in s.claims(s.full) if "server CPU" in claim.says]
            for s in scenarios
        ]

    unmeasured = (
        "Unity Catalog OSS, server CPU: not measured, HEADGATE_UC_SERVER_PID names no process"
    )
    for pid in ("", str(2**22 + 1)):  # no process has this number
        with_theirs.setenv("HEADGATE_UC_SERVER_PID", pid)
        assert unity_server.cpu() is None
        assert limits() == [[], []]
        assert all(unmeasured in scenario.not_run() for scenario in scenarios)
    with_theirs.setenv("HEADGATE_UC_SERVER_PID", str(os.getpid()))
    assert unity_server.cpu()
    of_clients, of_commits = limits()
    assert of_clients == [3]
    assert of_commits
    assert set(of_commits) == {None}
    assert not any(unmeasured in scenario.not_run() for scenario in scenarios)


def test_targets_against_their_server_are_those_of_the_plan(
    with_theirs: pytest.MonkeyPatch,
) -> None:
    scenario = unity_commits.SCENARIO
    claimed = {
        (claim.side, claim.sense, claim.limit)
        for claim in scenario.claims(scenario.full)
        if claim.limit is not None
    }
    ours = "headgate on PostgreSQL"
    expected = {
        (f"{ours}, 16 clients, 16 tables", Sense.FASTER, 5),
        (f"{ours}, 16 on 1", Sense.FASTER, 5),
        (f"{ours}, 1 client, 1 table", Sense.SHARE, 0.4),
        (f"{ours}, 16 clients, 16 tables", Sense.SHARE, 0.4),
    }
    assert claimed == (set() if postgres.lacking() else expected)


def test_without_their_server_our_sides_run_and_the_reason_is_shown(
    without_theirs: pytest.MonkeyPatch,
) -> None:
    reason = "Unity Catalog OSS: not run, HEADGATE_UC_SERVER_URL names no server"
    for scenario in (unity_clients.SCENARIO, unity_commits.SCENARIO):
        sides = [side for block in scenario.blocks(scenario.quick) for side in block.sides]
        assert not any(map(is_theirs, sides))
        assert reason in scenario.not_run()
        assert not any("Unity" in claim.says for claim in scenario.claims(scenario.quick))
    names = [
        side.name for side in unity_commits.SCENARIO.blocks(unity_commits.SCENARIO.quick)[0].sides
    ]
    servers = [name.partition(",")[0] for name in names]
    expected = [
        "headgate on SQLite",
        "headgate on PostgreSQL",
        "empty handler: the generator's ceiling",
    ]
    assert servers == [name for name in expected if name != expected[1] or not postgres.lacking()]


@pytest.mark.parametrize(
    "scenario", [append.SCENARIO, unity_clients.SCENARIO, unity_commits.SCENARIO]
)
def test_what_is_claimed_is_measured(scenario: Scenario, with_theirs: pytest.MonkeyPatch) -> None:
    with_theirs.setenv("HEADGATE_UC_SERVER_PID", str(os.getpid()))
    blocks = scenario.blocks(scenario.full)
    names = {side.name for block in blocks for side in block.sides} | set(map(floor_of, blocks))
    for claim in scenario.claims(scenario.full):
        assert {claim.side, claim.against} <= names


def test_an_answer_is_complete_however_its_end_is_marked() -> None:
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ):
        assert is_whole(answer)
        assert not any(is_whole(answer[:end]) for end in range(len(answer)))


def rows_of_turns(side: Iterator[Seen], count: int) -> list[int | None]:
    """Let a side take turns as its process would."""
    found = [next(side).rows for _ in range(count)]
    assert isinstance(side, Generator)
    side.close()
    return found


def contents(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_turn_only_writes_names_into_the_log(tmp_path: Path) -> None:
    with empty() as server:
        table = pretend(Place(server.port, "main"), "t", tmp_path)
        with Turn([table], 1, 3) as turn:
            before = contents(tmp_path)
            staged = sorted((table.log / "_staged_commits").iterdir())
            assert len(staged) == 3
            found = turn.go()
            new = sorted(contents(tmp_path) - before)
        assert new == [table.log / f"{version:020d}.json" for version in (1, 2, 3)]
        assert all(path.samefile(at) for path, at in zip(new, staged, strict=True))
    assert (table.head, table.published, len(found.latencies), found.taken) == (3, 3, 3, 0)
    assert "p99 ms" not in found.facts()  # of three samples


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Server]:
    """Our own server in the place of theirs: it speaks the same dialect."""
    with headgate(f"{tmp_path}/lake") as server:
        named = {"name": unity_server.CATALOG}
        ask(server.port, "POST", f"{API}/catalogs", named, {"content-type": "application/json"})
        yield server


@pytest.mark.slow
def test_clients_of_one_table_try_until_all_versions_are_taken(stand_in: Server) -> None:
    table = create(Place(stand_in.port, unity_server.CATALOG), "t")
    with Turn([table], 4, 8) as turn:
        found = turn.go()
    assert (table.head, table.published, len(found.latencies)) == (8, 8, 8)
    assert found.taken >= 3  # who tries for the last version and loses
    assert not found.failed
    assert found.facts()["409 in 100 answers"] == 100 * found.taken / (8 + found.taken)
    assert len(list((table.log / "_staged_commits").iterdir())) == 8  # the losers' are gone


@pytest.mark.slow
@pytest.mark.parametrize("pid", [None, "this"])
def test_scenarios_run_against_the_server_that_is_named_as_theirs(
    with_theirs: pytest.MonkeyPatch, stand_in: Server, tmp_path: Path, pid: str | None
) -> None:
    with_theirs.setenv("HEADGATE_UC_SERVER_URL", stand_in.address)
    if pid is not None:
        with_theirs.setenv("HEADGATE_UC_SERVER_PID", str(os.getpid()))
    turns = []
    for tables in (1, 2):
        watch = Watch()
        side = unity_commits.commits(
            watch, unity_server.NAME, str(tmp_path), clients=2, tables=tables, count=4, requests=8
        )
        assert rows_of_turns(side, 2) == [4 * tables, 4 * tables]
        assert watch.worst == {"failed": 0}
        turns.append(watch.facts)
    watch = Watch()
    assert rows_of_turns(unity_clients.stock(watch, count=2, requests=8), 1) == [5 + 2]
    turns.append(watch.facts)
    for facts in turns:
        assert any("server CPU" in kind for kind in facts) is (pid is not None)
    asked = f"{API}/tables?catalog_name={unity_server.CATALOG}&schema_name=default"
    assert ask(stand_in.port, "GET", asked)["tables"] == []  # theirs is left as it was


@pytest.mark.slow
@pytest.mark.parametrize("tail", [0, 1, 9])
def test_commits_that_are_loaded_as_unpublished_stay_unpublished(tmp_path: Path, tail: int) -> None:
    side = unity_commits.loads(
        Watch(), "headgate on SQLite", str(tmp_path), clients=2, tail=tail, count=5, requests=8
    )
    assert rows_of_turns(side, 2) == [tail, tail]
    [log] = [path for path in tmp_path.rglob("_delta_log") if len(list(path.glob("*.json"))) == 1]
    assert len(list((log / "_staged_commits").iterdir())) == tail


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["headgate, through a server", "DuckDB through the Unity API, synced"]
)
def test_a_row_is_appended_through_a_server_by_us_and_by_duckdb(tmp_path: Path, name: str) -> None:
    [block] = append.SCENARIO.blocks({"appends": 2})
    [found] = [side for side in block.sides if side.name == name]
    arguments = {**found.arguments, "place": str(tmp_path)}
    watch = Watch()
    seen = getattr(append, found.function.partition(":")[2])(watch, **arguments)
    assert seen == Seen(rows=22, checksum=sum(range(22)))
    assert len(watch.samples) == 2


def test_a_side_that_does_not_sync_is_not_durable() -> None:
    [block] = append.SCENARIO.blocks(append.SCENARIO.full)
    assert [side.name for side in block.sides if not side.is_durable] == [
        "deltalake",
        "DuckDB through the Unity API",
    ]
