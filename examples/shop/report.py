"""What came of it: tables, every commit's life, some rows, how long all took."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import headgate
from headgate.client.table import HistoryEntry
from shop.pipeline import TABLES
from shop.telling import began, console, draw, held, note, tell, timings, title

_METRICS = (
    ("numTargetRowsInserted", "inserted"),
    ("numTargetRowsUpdated", "updated"),
    ("numDeletedRows", "deleted"),
    ("numOutputRows", "rows"),
)


def report(lake: Path) -> None:
    """Open the lake anew, as anyone would tomorrow, and look."""
    title("What came of it")
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
        tell(f"opened and counted in {1000 * (perf_counter() - opened):.0f} ms, without Spark:")
        draw(("table", "version", "rows", "files", "size"), rows)

        title("Every commit: proposed, ratified, published")
        draw(
            ("table", "version", "way", "proposed", "ratified", "published", "what"),
            [row for table in tables for row in _timeline(table)],
        )

        title("gold.daily")
        daily = session.table("gold.daily").to_arrow().sort_by("day")
        draw(daily.column_names, [tuple(row.values()) for row in daily.to_pylist()])

    title("How long it took")
    draw(("step", "seconds"), [(doing, f"{took:.1f}") for doing, took in timings])
    console.print(f"\n{len(held)} checks held; all of it took {perf_counter() - began:.1f} s.")

    title("Try next")
    command = Path(sys.executable).with_name("headgate")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    for words in ("sql", "show", "log silver.orders", "show gold.daily --version 1", "fsck"):
        note(f"{command} --lake {lake} {words}")


def _timeline(table: headgate.Table) -> list[tuple[object, ...]]:
    told = {entry.version: entry for entry in table.history()}
    return [
        (
            table.name.partition(".")[2],
            entry.commit.version,
            entry.commit.way.value,
            _moment(entry.proposed_ms),
            _later(entry.ratified_ms, entry.proposed_ms),
            _later(entry.commit.published_ms, entry.proposed_ms),
            _what(told[entry.commit.version]),
        )
        for entry in table.log()
    ]


def _what(told: HistoryEntry) -> str:
    metrics = [
        f"{int(told.metrics[metric]):,} {word}"
        for metric, word in _METRICS
        if told.metrics.get(metric, "0") != "0"
    ]
    return " ".join([told.operation or "-", *metrics[:2]])


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _later(milliseconds: int | None, since: int) -> str:
    return "-" if milliseconds is None else f"+{milliseconds - since} ms"
