"""Turn figures into ratios and verdicts, and write them to a JSON file and a page.

A ratio is the result. A missed target stays in the table, in red, with the factor and the reason.
A block whose floor moved gives no verdict. No claim is made for a durable side against one that is
not durable.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from bench.curves import slope
from bench.harness import MOVED, Figures, Measured
from bench.scenario import Claim, Counts, Scenario, Sense, Sizes, floor_of

FALLEN = 0.25  # a ratio may fall by so much against the stored one


class Verdict(enum.Enum):
    """The outcome of a claim."""

    MET = "met"
    MISSED = "MISSED"
    SHOWN = ""  # no target
    NOT_DURABLE = "not claimed"
    NONE = "no verdict"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A claim and its value."""

    claim: Claim
    value: float | None
    verdict: Verdict
    reason: str = ""

    @property
    def grows(self) -> bool:
        """Return True if a larger value is better."""
        return self.claim.sense is Sense.FASTER


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a scenario."""

    scenario: Scenario
    sizes: Sizes
    measured: Sequence[Measured]
    counts: Counts
    uncounted: str | None
    ratios: Sequence[Ratio]
    lacking: Sequence[str] = ()  # what was not run, and why

    @property
    def title(self) -> str:
        return self.scenario.title.format(**self.sizes)


def result_of(
    scenario: Scenario, sizes: Sizes, measured: Sequence[Measured], counts: Counts | str
) -> Result:
    """Compare the claims of a scenario with what was measured and counted.

    Targets for times apply to full sizes only; at other sizes ratios are shown without a verdict.
    """
    uncounted = counts if isinstance(counts, str) else None
    counted: Counts = {} if isinstance(counts, str) else counts
    claims = [
        claim
        if sizes == scenario.full or claim.sense in (Sense.COUNT, Sense.FACT)
        else dataclasses.replace(claim, limit=None)
        for claim in scenario.claims(sizes)
    ]
    ratios = [judge(claim, measured, counted, uncounted) for claim in claims]
    lacking = (*scenario.not_yet, *scenario.not_run())
    return Result(scenario, sizes, measured, counted, uncounted, ratios, lacking)


def judge(
    claim: Claim, measured: Sequence[Measured], counts: Counts, uncounted: str | None = None
) -> Ratio:
    """Compare one claim with the figures."""
    if claim.sense is Sense.COUNT:
        found = counts.get(claim.side, {}).get(claim.lap or "")
        if found is None:
            return Ratio(claim, None, Verdict.NONE, uncounted or "it was not counted")
        return _judged(claim, found, "")
    pair = [claim.side] if claim.against is None else [claim.side, claim.against]
    names = [*claim.points] or pair
    blocks = [_block_of(name, measured) for name in names]
    for block in blocks:
        if block is None:
            return Ratio(claim, None, Verdict.NONE, "it was not measured")
        if block.failure is not None:
            return Ratio(claim, None, Verdict.NONE, block.failure)
    ours = _figures(names[0], measured)
    theirs = None if claim.against is None else _figures(claim.against, measured)
    if claim.sense is Sense.SLOPE:
        value = slope(curve(claim, measured))
    elif (found := _value(claim, ours, theirs)) is not None:
        value = found
    else:
        return Ratio(claim, None, Verdict.NONE, "one of the two is 0")
    unsteady = [block for block in blocks if block is not None and not block.is_steady]
    if unsteady:
        worst = max(block.floor_moved for block in unsteady)
        tries = 1 + max(len(block.thrown_away) for block in unsteady)
        reason = f"discarded: the floor moved by {worst:.0%}, tried {tries} times"
        return Ratio(claim, value, Verdict.NONE, reason)
    if theirs is not None and ours.is_durable and not theirs.is_durable:
        return Ratio(claim, value, Verdict.NOT_DURABLE, f"{claim.against} is not durable")
    share = "" if claim.lap in ours.facts else _share_of_floor(ours, blocks[0])
    return _judged(claim, value, share)


def curve(claim: Claim, measured: Sequence[Measured]) -> dict[float, float]:
    """Return the points of a curve: size -> seconds."""
    return {
        size: _seconds(_figures(name, measured), claim.lap) for name, size in claim.points.items()
    }


def fallen(
    now: Mapping[str, float], stored: Mapping[str, float], grows: Mapping[str, bool]
) -> list[str]:
    """Return a line for each ratio that is worse than the stored one by more than `FALLEN`."""
    lines = []
    for name, before in stored.items():
        if name not in now or not before or not now[name]:
            continue
        lost = 1 - now[name] / before if grows[name] else 1 - before / now[name]
        if lost > FALLEN:
            lines.append(f"{name}: {now[name]:.3g} after {before:.3g}, {lost:.0%} worse")
    return lines


def ratios_of(results: Iterable[Result]) -> dict[str, Ratio]:
    """Return the ratios of two times by name; they are compared between runs."""
    return {
        f"{result.scenario.number}: {ratio.claim.says}": ratio
        for result in results
        for ratio in result.ratios
        if ratio.claim.sense in (Sense.FASTER, Sense.SHARE)
        and ratio.value is not None
        and ratio.verdict is not Verdict.NONE
    }


# Judging


def _judged(claim: Claim, value: float, share: str) -> Ratio:
    if claim.limit is None:
        return Ratio(claim, value, Verdict.SHOWN)
    match claim.sense:
        case Sense.FASTER:
            is_met, short = value >= claim.limit, claim.limit / value if value else 0.0
        case Sense.FLAT:
            is_met, short = abs(value - 1) <= claim.limit, value
        case Sense.SLOPE:
            is_met, short, share = abs(value) <= claim.limit, 0.0, ""
        case Sense.SHARE | Sense.SECONDS | Sense.BYTES | Sense.COUNT | Sense.FACT:
            is_met = value <= claim.limit
            short = value / claim.limit if claim.limit else value
        case _:
            assert_never(claim.sense)
    if is_met:
        return Ratio(claim, value, Verdict.MET)
    by = f"missed by a factor of {short:.2f}" if claim.limit and short else "missed"
    return Ratio(claim, value, Verdict.MISSED, ". ".join(filter(None, [by + share, claim.why])))


def _share_of_floor(ours: Figures, block: Measured | None) -> str:
    if block is None or block.floor is None:
        return ""
    return f"; the floor alone is {block.floor.median / ours.median:.0%} of our time"


def _value(claim: Claim, ours: Figures, theirs: Figures | None) -> float | None:
    """Compute the value of a claim; None for a ratio with 0."""
    if claim.sense is Sense.FACT:
        assert claim.lap is not None
        return ours.facts[claim.lap]
    mine = _seconds(ours, claim.lap)
    match claim.sense:
        case Sense.SECONDS:
            return mine
        case Sense.BYTES:
            return ours.peak_rss
        case Sense.FASTER | Sense.SHARE | Sense.FLAT:
            assert theirs is not None
            their = _seconds(theirs, claim.against_lap)
            if not mine or not their:
                return None
            return their / mine if claim.sense is Sense.FASTER else mine / their
        case Sense.COUNT | Sense.SLOPE:
            raise AssertionError("needs other figures")
        case _:
            assert_never(claim.sense)


def _seconds(figures: Figures, lap: str | None) -> float:
    """Return a time: the whole, a part of it, or a fact that the side measured."""
    if lap is None:
        return figures.median
    return figures.laps[lap] if lap in figures.laps else figures.facts[lap]


def _block_of(name: str, measured: Sequence[Measured]) -> Measured | None:
    for block in measured:
        if name in block.names or name == floor_of(block.name):
            return block
    return None


def _figures(name: str, measured: Sequence[Measured]) -> Figures:
    for block in measured:
        if name in block.sides:
            return block.sides[name]
        if name == floor_of(block.name) and block.floor is not None:
            return block.floor
    raise KeyError(name)


# Text


def table(results: Sequence[Result], *, red: str = "{}") -> list[str]:
    """Return the one table of ratios, as lines of Markdown."""
    lines = [
        "| # | scenario | ratio | target | verdict |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        title = result.title
        for ratio in result.ratios:
            lines.append(
                f"| {result.scenario.number} | {title}: {ratio.claim.says} "
                f"| {value_text(ratio)} | {target_text(ratio.claim)} | {verdict_text(ratio, red)} |"
            )
            title = "..."
        lines.extend(
            f"| {result.scenario.number} | {title} | | | {reason} |" for reason in result.lacking
        )
    return lines


def value_text(ratio: Ratio) -> str:
    """Format a value in the unit of its claim."""
    if ratio.value is None:
        return ""
    match ratio.claim.sense:
        case Sense.FASTER | Sense.SHARE | Sense.FLAT:
            text = f"{_figure(ratio.value)} {ratio.claim.sense.value}"
        case Sense.SECONDS:
            text = time_text(ratio.value)
        case Sense.BYTES:
            text = bytes_text(ratio.value)
        case Sense.COUNT:
            text = f"{_figure(ratio.value)} calls"
        case Sense.FACT:
            text = _figure(ratio.value)
        case Sense.SLOPE:
            text = f"slope {ratio.value:+.2f}"
        case _:
            assert_never(ratio.claim.sense)
    return f"({text})" if ratio.verdict is Verdict.NONE else text


def target_text(claim: Claim) -> str:
    """Format a target."""
    if claim.limit is None:
        return ""
    match claim.sense:
        case Sense.FASTER:
            return f">= {_figure(claim.limit)}x"
        case Sense.SHARE:
            return f"<= {_figure(claim.limit)}x"
        case Sense.FLAT:
            return f"1 ± {claim.limit:.0%}"
        case Sense.SECONDS:
            return f"<= {time_text(claim.limit)}"
        case Sense.BYTES:
            return f"< {bytes_text(claim.limit)}"
        case Sense.COUNT | Sense.FACT:
            return f"<= {_figure(claim.limit)}"
        case Sense.SLOPE:
            return f"0 ± {claim.limit:g}"
        case _:
            assert_never(claim.sense)


def verdict_text(ratio: Ratio, red: str = "{}") -> str:
    """Format a verdict with its reason; a miss in red."""
    text = ratio.verdict.value
    if ratio.verdict is Verdict.MISSED:
        text = red.format(text)
    return f"{text}: {ratio.reason}" if ratio.reason else text


def time_text(seconds: float) -> str:
    """Format a time."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def bytes_text(size: float) -> str:
    """Format a size in bytes."""
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.2f} GB"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def details(result: Result) -> list[str]:
    """Return all figures of a scenario, as lines of Markdown."""
    lines = [f"### {result.scenario.number}. {result.title}", "", _how(result), ""]
    for block in result.measured:
        lines += [*block_lines(block), ""]
    return lines + other_lines(result)


def other_lines(result: Result) -> list[str]:
    """Return what a scenario has beside its blocks: curves, counts, and what was not run."""
    lines: list[str] = []
    if curves := [line for ratio in result.ratios for line in _curve_lines(ratio, result.measured)]:
        lines += [*curves, ""]
    if result.counts:
        lines += [*_count_lines(result.counts, result.scenario.counted), ""]
    if result.uncounted is not None:
        lines += [f"{result.scenario.counted.capitalize()}: {result.uncounted}.", ""]
    lines += [f"- {reason}" for reason in result.lacking]
    return lines + ([""] if result.lacking else [])


def _how(result: Result) -> str:
    return result.scenario.how.format(**result.sizes)


def block_lines(block: Measured) -> list[str]:
    """Return the figures of one block, as lines of Markdown."""
    if block.failure is not None:
        return [f"**{block.name}**: not measured: {block.failure}."]
    assert block.floor is not None
    steadiness = f"floor moved by {block.floor_moved:.0%}"
    if block.thrown_away:
        gone = ", ".join(f"{moved:.0%}" for moved in block.thrown_away)
        steadiness += f"; discarded before because its floor moved: {gone}"
    if not block.is_steady:
        steadiness += f"; more than {MOVED:.0%}, so none of it counts"
    lines = [
        f"**{block.name}**, for one {block.per} ({steadiness}):",
        "",
        "| side | median | spread | p99 | CPU | peak RSS | x floor |",
        "|---|---|---|---|---|---|---|",
    ]
    sides = {**block.sides, f"floor: {block.floor_name}": block.floor}
    for name, found in sides.items():
        laps = ", ".join(f"{lap} {time_text(seconds)}" for lap, seconds in found.laps.items())
        lines.append(
            f"| {name}{'' if found.is_durable else ' (not durable)'} "
            f"| {time_text(found.median)}{f' ({laps})' if laps else ''} "
            f"| {time_text(found.low)} to {time_text(found.high)} "
            f"| {'' if found.p99 is None else time_text(found.p99)} "
            f"| {time_text(found.cpu)} | {bytes_text(found.peak_rss)} "
            f"| {_figure(found.median / block.floor.median)} |"
        )
    return lines + _fact_lines(block.sides)


def _fact_lines(sides: Mapping[str, Figures]) -> list[str]:
    """Return the facts of the sides as a table; a fact that a side does not have stays empty."""
    kinds = list(dict.fromkeys(kind for found in sides.values() for kind in found.facts))
    if not kinds:
        return []
    return [
        "",
        f"| side | {' | '.join(kinds)} |",
        f"|---|{'---|' * len(kinds)}",
        *(
            f"| {name} | "
            + " | ".join(
                _figure(found.facts[kind]) if kind in found.facts else "" for kind in kinds
            )
            + " |"
            for name, found in sides.items()
            if found.facts
        ),
    ]


def _curve_lines(ratio: Ratio, measured: Sequence[Measured]) -> list[str]:
    if ratio.claim.sense is not Sense.SLOPE or ratio.value is None:
        return []
    points = curve(ratio.claim, measured)
    costs = ", ".join(f"{size:,.0f}: {time_text(cost)}" for size, cost in points.items())
    return [f"- {ratio.claim.says}: slope {ratio.value:+.3f} ({costs})"]


def _count_lines(counts: Counts, counted: str) -> list[str]:
    kinds = list(dict.fromkeys(kind for found in counts.values() for kind in found))
    return [
        f"| {counted} | {' | '.join(kinds)} |",
        f"|---|{'---|' * len(kinds)}",
        *(f"| {name} | {_cells(found, kinds)} |" for name, found in counts.items()),
    ]


def _cells(found: Mapping[str, float], kinds: Sequence[str]) -> str:
    return " | ".join(_figure(found[kind]) if kind in found else "" for kind in kinds)


def page(
    results: Sequence[Result],
    about: Mapping[str, str],
    *,
    when: str,
    minutes: float,
    others: Sequence[str] = (),
) -> str:
    """Return the whole page; `others` are pages with the scenarios of other runs."""
    missed = sum(r.verdict is Verdict.MISSED for result in results for r in result.ratios)
    none = sum(r.verdict is Verdict.NONE for result in results for r in result.ratios)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. The results are ratios: each side is compared with its peer and",
        "its floor, measured in the same run, in turns, each in a process of its own on the same",
        "disk, after their results were found equal. Times only give an idea of the scale.",
        "",
        f"Measured {when}, in {minutes:.0f} minutes. Targets missed: {missed}. "
        f"Without a verdict: {none}.",
        "",
        *_elsewhere(others),
        *table(results, red='<span style="color:red">**{}**</span>'),
        "",
        "*x as fast*: their time divided by ours. *x the time*: ours divided by theirs. A value in",
        f"brackets was discarded, because its floor moved by more than {MOVED:.0%} in every try.",
        "*Not claimed*: the peer does not make its commits durable, and we do.",
        "",
        "## Measured on",
        "",
        "| what | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in about.items()),
        "",
        "## In detail",
        "",
        "Median of the alternations' medians and their spread; p99 of all samples where there are",
        "a thousand or more; CPU is user and system time, peak RSS that of the side's process,",
        "both with the servers and load generators that it started.",
        "",
    ]
    for result in results:
        lines += details(result)
    return "\n".join(lines).rstrip() + "\n"


def _elsewhere(others: Sequence[str]) -> list[str]:
    """Link the pages of other runs: a table has the numbers of one run only."""
    if not others:
        return []
    links = ", ".join(f"[{name}]({name}.md)" for name in others)
    return [f"A table has the numbers of one run. Other scenarios: {links}.", ""]


def as_json(results: Sequence[Result], about: Mapping[str, Any]) -> str:
    """Return all results as JSON."""
    content = {
        **about,
        "scenarios": [
            {
                "number": result.scenario.number,
                "title": result.title,
                "sizes": dict(result.sizes),
                "ratios": [
                    {
                        "says": ratio.claim.says,
                        "sense": ratio.claim.sense.name.lower(),
                        "side": ratio.claim.side,
                        "against": ratio.claim.against,
                        "value": ratio.value,
                        "limit": ratio.claim.limit,
                        "verdict": ratio.verdict.name.lower().replace("_", "-"),
                        "reason": ratio.reason,
                    }
                    for ratio in result.ratios
                ],
                "blocks": [dataclasses.asdict(block) for block in result.measured],
                "counts": result.counts,
                "uncounted": result.uncounted,
                "notYet": list(result.lacking),
            }
            for result in results
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def stored_ratios(path: Path, results: Sequence[Result]) -> dict[str, float] | None:
    """Read the ratios of a stored run of the same sizes; None if there is none."""
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    sizes = {result.scenario.number: dict(result.sizes) for result in results}
    return {
        f"{scenario['number']}: {ratio['says']}": ratio["value"]
        for scenario in stored["scenarios"]
        if scenario["sizes"] == sizes.get(scenario["number"])
        for ratio in scenario["ratios"]
        if ratio["sense"] in ("faster", "share")
        and ratio["value"] is not None
        and ratio["verdict"] != "none"
    }
