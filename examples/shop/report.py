"""The final report: tables, commits, some rows, times."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import headgate
from headgate.client.table import HistoryEntry
from shop.output import console, draw, log, note, passed, started, timings, title
from shop.pipeline import TABLES

_METRICS = (
    ("numTargetRowsInserted", "inserted"),
    ("numTargetRowsUpdated", "updated"),
    ("numDeletedRows", "deleted"),
    ("numOutputRows", "rows"),
)


def report(lake: Path) -> None:
    """Open the lake again and show what it contains."""
    title("Result")
    opened = perf_counter()
    with headgate.connect(lake) as session:
        tables = [session.table(name) for name in TABLES]
        for table in tables:
            table.publish()
        rows = []
        for table in tables:
            snapshot = table.snapshot()
            counted = table.to_arrow(columns=[table.schema.fields[0].name]).num_rows
            size = f"{snapshot.size_in_bytes / 1000:,.0f} kB"
            rows.append((table.name, table.version, counted, snapshot.num_files, size))
        log(f"opened and counted in {1000 * (perf_counter() - opened):.0f} ms, without Spark:")
        draw(("table", "version", "rows", "files", "size"), rows)

        title("Every commit: proposed, ratified, published")
        draw(
            ("table", "version", "way", "proposed", "ratified", "published", "operation"),
            [row for table in tables for row in _timeline(table)],
        )

        title("gold.daily")
        daily = session.table("gold.daily").to_arrow().sort_by("day")
        draw(daily.column_names, [tuple(row.values()) for row in daily.to_pylist()])

    title("Times")
    draw(("step", "seconds"), [(step, f"{seconds:.1f}") for step, seconds in timings])
    console.print(f"\n{len(passed)} checks passed in {perf_counter() - started:.1f} s.")

    title("Try next")
    command = Path(sys.executable).with_name("headgate")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    for words in ("sql", "show", "log silver.orders", "show gold.daily --version 1", "fsck"):
        note(f"{command} --lake {lake} {words}")


def _timeline(table: headgate.Table) -> list[tuple[object, ...]]:
    history = {entry.version: entry for entry in table.history()}
    return [
        (
            table.name.partition(".")[2],
            entry.commit.version,
            entry.commit.way.value,
            _moment(entry.proposed_ms),
            _later(entry.ratified_ms, entry.proposed_ms),
            _later(entry.commit.published_ms, entry.proposed_ms),
            _summary(history[entry.commit.version]),
        )
        for entry in table.log()
    ]


def _summary(entry: HistoryEntry) -> str:
    metrics = [
        f"{int(entry.metrics[metric]):,} {word}"
        for metric, word in _METRICS
        if entry.metrics.get(metric, "0") != "0"
    ]
    return " ".join([entry.operation or "-", *metrics[:2]])


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _later(milliseconds: int | None, since: int) -> str:
    return "-" if milliseconds is None else f"+{milliseconds - since} ms"
