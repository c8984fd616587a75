"""`python -m bench`: run scenarios, print one table of ratios, write it down.

A complete run at full size writes `docs/benchmarks.md` and `bench/results/latest.json`. Results of
some of the scenarios are only printed, or written to a page of their own with `--page`, since a
table has the numbers of one run. `--quick` is a short run: it fails if a ratio is lower than in
`bench/results/quick.json`, and writes that file if it does not exist or `--store` is given.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench import machine, prepared, report
from bench.harness import ALTERNATIONS, ROOT, TRIES, Shared, SideError, measure
from bench.report import Result
from bench.scenario import Counts, Scenario, Sizes
from bench.scenarios import (
    append,
    calls,
    checkpoint,
    cold_load,
    growth,
    hot_table,
    many_tables,
    metadata_commit,
    publish,
    refresh,
    restart,
    small_batches,
    spark_tables,
    transactions,
    unity_clients,
    unity_commits,
    wide_snapshot,
)

SCENARIOS: tuple[Scenario, ...] = (
    metadata_commit.SCENARIO,
    many_tables.SCENARIO,
    hot_table.SCENARIO,
    transactions.SCENARIO,
    append.SCENARIO,
    cold_load.SCENARIO,
    wide_snapshot.SCENARIO,
    refresh.SCENARIO,
    publish.SCENARIO,
    checkpoint.SCENARIO,
    restart.SCENARIO,
    calls.SCENARIO,
    unity_clients.SCENARIO,
    unity_commits.SCENARIO,
    spark_tables.SCENARIO,
    growth.SCENARIO,
    small_batches.SCENARIO,
)
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
_RED = "\x1b[31m{}\x1b[0m"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a ratio fell or a side failed, 2 if nothing was run."""
    options = _parser().parse_args(arguments)
    if options.list:
        for scenario in SCENARIOS:
            sizes = scenario.quick if options.quick else scenario.full
            mark = "quick" if scenario.is_quick else ""
            print(f"{scenario.number:>3}  {scenario.title.format(**sizes)}  {mark}")
        return 0
    prepared.CACHE.mkdir(parents=True, exist_ok=True)
    with (prepared.CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another run is under way, and two would only measure each other")
            return 2
        return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    if options.clean:
        prepared.clear_kept()
    chosen = [s for s in SCENARIOS if _is_chosen(s, options)]
    started = time.monotonic()
    busy = machine.load()
    try:
        results = [_run(s, s.quick if options.quick else s.full, options) for s in chosen]
    finally:
        prepared.clear_work()
    minutes = (time.monotonic() - started) / 60
    about = machine.describe(prepared.CACHE) | {"load before, 1 5 15 minutes": busy}
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    _show("")
    print("\n".join(report.table(results, red=_RED if sys.stdout.isatty() else "{}")))
    print(f"\n{minutes:.1f} minutes on {about['cores']} cores, load before {busy}")
    for result in results:
        for block in result.measured:
            if block.failure is not None:
                print(f"{result.scenario.number}: {block.name}: {block.failure}")
    run = {"when": when, "minutes": round(minutes, 1), "machine": about, "quick": options.quick}
    written = report.as_json(results, run)
    if options.quick:
        return _compare_with_stored(results, written, options)
    if options.only is None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "latest.json").write_text(written)
        _write(PAGE, results, about, when, minutes)
        print(f"written to {PAGE.relative_to(ROOT)} and bench/results/latest.json")
    elif options.page is not None:
        page = PAGE.with_name(f"{options.page}.md")
        (RESULTS / f"{options.page}.json").write_text(written)
        _write(page, results, about, when, minutes)
        print(f"written to {page.relative_to(ROOT)} and bench/results/{options.page}.json")
    else:
        (prepared.CACHE / "partial.json").write_text(written)
        print("a part of the scenarios: docs/benchmarks.md stays as it is")
    return int(_has_failed(results))


def _write(
    page: Path, results: list[Result], about: Mapping[str, str], when: str, minutes: float
) -> None:
    pages = sorted(path.stem for path in page.parent.glob(f"{PAGE.stem}*.md"))
    others = [] if page == PAGE and len(results) == len(SCENARIOS) else pages
    others = [name for name in others if name != page.stem]
    page.write_text(report.page(results, about, when=when, minutes=minutes, others=others))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under three minutes")
    parser.add_argument("--only", metavar="6,8", help="these scenarios and no others")
    parser.add_argument("--page", metavar="NAME", help="with --only: write it to docs/NAME.md")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--store", action="store_true", help="with --quick: store the ratios")
    parser.add_argument("--clean", action="store_true", help="rebuild the prepared data")
    parser.add_argument(
        "--tries",
        type=int,
        default=TRIES,
        help=f"how often a block whose floor moved is measured (default {TRIES})",
    )
    parser.add_argument("--alternations", type=int, default=ALTERNATIONS, help=argparse.SUPPRESS)
    return parser


def _is_chosen(scenario: Scenario, options: argparse.Namespace) -> bool:
    if options.only is not None:
        return str(scenario.number) in options.only.split(",")
    return scenario.is_quick or not options.quick


def _run(scenario: Scenario, sizes: Sizes, options: argparse.Namespace) -> Result:
    started = time.monotonic()
    title = f"{scenario.number}. {scenario.title.format(**sizes)}"
    _show(f"{title}: preparing")
    measured = []
    with Shared() as shared:
        for block in scenario.blocks(sizes):
            label = f"{title}: {block.name}"
            found = measure(
                block,
                alternations=options.alternations,
                tries=2 if options.quick else options.tries,  # a short run stays short
                say=partial(_step, label),
                shared=shared,
            )
            measured.append(found)
            outcome = found.failure or f"floor moved by {found.floor_moved:.0%}"
            _show(f"{label}: {outcome}", end="\n")
            # Printed at once, for runs that are interrupted.
            print("\n".join(report.block_lines(found)), file=sys.stderr)
    counts: Counts | str = {}
    if scenario.counts is not None:
        _show(f"{title}: counting")
        try:
            counts = scenario.counts(sizes)
        except SideError as error:
            counts = f"not counted: {error}"
    prepared.put_aside(prepared.WORK)
    _show(f"{title}: {time.monotonic() - started:.0f} s", end="\n")
    result = report.result_of(scenario, sizes, measured, counts)
    _show("", end="")
    print("\n".join(report.other_lines(result)), file=sys.stderr)
    return result


def _compare_with_stored(results: list[Result], written: str, options: argparse.Namespace) -> int:
    stored_at = RESULTS / "quick.json"
    ratios = report.ratios_of(results)
    stored = report.stored_ratios(stored_at, results)
    if options.store or (stored is None and options.only is None):
        RESULTS.mkdir(exist_ok=True)
        stored_at.write_text(written)
        print("stored: bench/results/quick.json")
        return int(_has_failed(results))
    fell = report.fallen(
        {name: ratio.value for name, ratio in ratios.items() if ratio.value is not None},
        stored or {},
        {name: ratio.grows for name, ratio in ratios.items()},
    )
    for ratio_text in fell:
        print(f"fell by more than {report.FALLEN:.0%}: {ratio_text}")
    if not fell:
        compared = len(ratios.keys() & (stored or {}).keys())
        print(f"{compared} ratios compared with bench/results/quick.json: none fell")
    return int(bool(fell) or _has_failed(results))


def _has_failed(results: list[Result]) -> bool:
    return any(block.failure is not None for result in results for block in result.measured)


def _step(label: str, step: str) -> None:
    _show(f"{label}: {step}")


def _show(text: str, end: str = "") -> None:
    """Show the progress of the run; on a terminal, all on one line."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end=end, file=sys.stderr, flush=True)
    elif end:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
