"""The rules of honesty of `make bench` are kept by its harness and its report."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.counting import tally
from bench.curves import slope
from bench.harness import Block, Figures, Measured, Side, measure, moved
from bench.load import commit_request, is_good
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
from bench.watch import Seen, Watch

# Sides and floors: they run in processes of their own and say what times they took.


def side(watch: Watch, seconds: float, rows: int, samples: int = 1) -> Iterator[Seen]:
    while True:
        watch.samples.extend([seconds] * samples)
        watch.cpu.append(seconds)
        yield Seen(rows=rows)


def telling(watch: Watch, failed: list[int]) -> Iterator[Seen]:
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
def test_a_block_whose_floor_moves_is_tried_again_and_in_the_end_gives_no_verdict() -> None:
    floor = Side("floor", "tests.meta.test_bench:restless", {"seconds": 0.001}, stays=True)
    found = measure(a_block(a_side("ours", 0.010), floor=floor), alternations=1)
    assert not found.is_steady
    assert found.thrown_away == (pytest.approx(0.5), pytest.approx(0.5))
    ratio = judge(Claim("in time", "ours", Sense.SECONDS, 1.0), [found], {})
    assert ratio.verdict is Verdict.NONE
    assert ratio.reason == "thrown away: the floor moved by 50%, tried 3 times"


@pytest.mark.slow
def test_no_time_counts_when_sides_found_different_things_or_died() -> None:
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


def test_a_floor_moves_by_what_its_readings_differ() -> None:
    assert moved([0.10, 0.13, 0.11]) == pytest.approx(0.3)


def test_a_missed_target_stays_in_the_table_in_red_with_by_how_much_and_why() -> None:
    result = result_of(SCENARIO, SCENARIO.full, [measured(ours=0.010, theirs=0.040)], {})
    [ratio] = result.ratios
    assert ratio.verdict is Verdict.MISSED
    said = "missed by a factor of 1.25; the floor alone is 10% of our time. Syncing takes long."
    assert ratio.reason == said
    lines = table([result], red="<red>{}</red>")
    assert lines[2:] == [
        "| 99 | do 1,000 things: ours against theirs | 4 x as fast | >= 5x | "
        f"<red>MISSED</red>: {said} |",
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
        (Claim("", "nobody", Sense.SECONDS, 1), None, Verdict.NONE),
    ],
)
def test_each_claim_is_held_against_its_limit(
    claim: Claim, value: float | None, verdict: Verdict
) -> None:
    counts = {"a read": {"LIST": 0.0, "open": 2.0}}
    ratio = judge(claim, [measured(ours=0.010, theirs=0.040)], counts)
    assert ratio.value == (None if value is None else pytest.approx(value))
    assert ratio.verdict is verdict


def test_a_ratio_that_fell_by_more_than_a_quarter_against_the_stored_one_is_told(
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


def test_a_slope_is_that_of_the_line_nearest_to_the_points_on_logarithmic_axes() -> None:
    assert slope({1: 0.5, 10: 0.5, 100: 0.5}) == pytest.approx(0)
    assert slope({1: 0.5, 10: 5, 100: 50}) == pytest.approx(1)
    assert slope({2: 1, 4: 4, 8: 16}) == pytest.approx(2)
    assert slope({1: 1, 10: 2, 100: 1}) == pytest.approx(0)
    with pytest.raises(ValueError, match="two points"):
        slope({10: 1})


def test_a_curve_that_grows_misses_its_target_and_is_told_with_its_points() -> None:
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
    told = "resolve, by tables: slope +0.301 (1: 10 ms, 10: 20 ms, 100: 40 ms)"
    assert f"- {told}" in details(growing)
    assert "| slope +0.30 | 0 ± 0.1 | MISSED: missed." in table([growing])[2]


def test_a_curve_without_one_of_its_points_gives_no_verdict() -> None:
    ratio = judge(CURVE, [curve_of(0.010, 0.020)], {})
    assert (ratio.value, ratio.verdict) == (None, Verdict.NONE)


@pytest.mark.slow
def test_facts_are_told_as_medians_and_failures_as_the_most_there_were() -> None:
    side = Side("ours", "tests.meta.test_bench:telling", {"failed": [9, 0, 2, 1]}, stays=True)
    found = measure(a_block(side), alternations=3)
    assert found.sides["ours"].facts == {"commits/s": 100.0, "failed": 2}
    claim = Claim("failed", "ours", Sense.FACT, 0, lap="failed")
    ratio = judge(claim, [found], {})
    assert (ratio.value, ratio.verdict) == (2, Verdict.MISSED)


def test_what_a_machine_lacks_is_told_in_the_table() -> None:
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
