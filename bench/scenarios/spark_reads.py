"""17, reading: the same files by Spark's own reader, by delta-spark and by us, in one Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Block, Side
from bench.scenario import Claim, Sense, Sizes
from bench.watch import Seen, Watch, fingerprint

_HERE = "bench.scenarios.spark_reads"
PLAN, RUN = "plan", "run"
_WARM_UP = 2  # times before the first turn: a JVM is slow at first


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a table, `{t}`, perhaps for the rows with ids from `{low}` to `{high}`."""

    name: str
    text: str
    filtered: bool = False
    only: str = "abcd"  # the tables it is asked of


COUNT = Query("count", "SELECT count(*) FROM {t}")
SUM = Query("sum of two columns", "SELECT sum(units), sum(cents) FROM {t}")
ALL = Query(
    "all columns",
    "SELECT sum(id), sum(units), sum(cents), sum(price), sum(length(name)),"
    " sum(datediff(day, DATE'2026-01-01')) FROM {t}",
)
QUERIES = (
    COUNT,
    SUM,
    ALL,
    Query("one day", "SELECT count(*), sum(cents) FROM {t} WHERE day = DATE'2026-01-03'", only="b"),
    Query(
        "range of ids",
        "SELECT count(*), sum(cents) FROM {t} WHERE id >= {low} AND id < {high}",
        filtered=True,
    ),
    Query(
        "join",
        "SELECT i.kind, sum(t.cents) FROM {t} AS t JOIN {items} AS i ON t.units = i.units"
        " GROUP BY i.kind",
    ),
)

TABLES = {
    "a": "(a) flat",
    "b": "(b) partitioned",
    "c": "(c) deletion vectors",
    "d": "(d) column mapping",
}
# x of Parquet: (c) by whether all columns are read. x of delta-spark.
_OF_PARQUET = {"a": 1.10, "b": 1.35, "c": 3.5, "d": 1.15}
_OF_PARQUET_ALL_COLUMNS = {**_OF_PARQUET, "c": 1.5}
_OF_DELTA = {"a": 1.1, "b": 1.1, "c": 1.4, "d": 1.1}
_READERS = ("headgate", "delta-spark", "Parquet")


def query(
    watch: Watch, reader: str, place: str, table: str, text: str, filtered: bool
) -> Iterator[Seen]:
    """Run one query on one table; measure planning and execution separately."""
    from bench.spark import READERS, plan, slow_ways

    ask = READERS[reader](Path(place), table)
    for _ in range(_WARM_UP):
        ask(text).collect()
    while True:
        with watch.together(), watch.sample():
            frame = ask(text)
            planned = plan(frame)
            watch.lap(PLAN)
            rows = frame.collect()
            watch.lap(RUN)
        watch.worst.update(slow_ways(planned, filtered=filtered))
        # Spark's own reader knows nothing of deleted rows.
        if reader == "Parquet" and table == "c":
            yield Seen(rows=None)
        else:
            yield Seen(rows=len(rows), checksum=fingerprint(str(tuple(row)) for row in rows))


def blocks(sizes: Sizes, place: Path) -> list[Block]:
    """Run every query on every table with three readers."""
    return [_block(sizes, place, table) for table in TABLES]


def _block(sizes: Sizes, place: Path, table: str) -> Block:
    from bench.spark import PROCESS

    def side(reader: str, query: Query, name: str) -> Side:
        arguments = {
            "reader": reader,
            "place": str(place),
            "table": table,
            "filtered": query.filtered,
        }
        text = _text(query, sizes)
        return Side(
            name, f"{_HERE}:query", {**arguments, "text": text}, within=PROCESS, task=query.name
        )

    return Block(
        name=TABLES[table],
        per="query",
        sides=tuple(
            side(reader, query, _name(reader, table, query))
            for query in _asked(table)
            for reader in _READERS
        ),
        floor=side("Parquet", ALL, f"Spark's own reader, {ALL.name}"),
    )


def _text(query: Query, sizes: Sizes) -> str:
    # A hundredth of the rows, in the middle: statistics show in which files.
    low = sizes["rows"] // 2
    bounds = {"{low}": str(low), "{high}": str(low + sizes["rows"] // 100)}
    text = query.text
    for mark, value in bounds.items():
        text = text.replace(mark, value)
    return text


def _asked(table: str) -> list[Query]:
    return [query for query in QUERIES if table in query.only]


def _name(reader: str, table: str, query: Query) -> str:
    return f"{reader}, {TABLES[table]}: {query.name}"


def claims() -> Sequence[Claim]:
    """Return the claims about reading."""
    return [claim for table in TABLES for query in _asked(table) for claim in _claims(table, query)]


def _claims(table: str, query: Query) -> Iterator[Claim]:
    ours = _name("headgate", table, query)
    limits = _OF_PARQUET_ALL_COLUMNS if query is ALL else _OF_PARQUET
    yield Claim(
        f"{TABLES[table]}: {query.name}, x of Parquet",
        ours,
        Sense.SHARE,
        limits[table],
        _name("Parquet", table, query),
        why=_why_parquet(table),
    )
    yield Claim(
        f"{TABLES[table]}: {query.name}, x of delta-spark",
        ours,
        Sense.SHARE,
        _OF_DELTA[table],
        _name("delta-spark", table, query),
        why=_why_delta(table, query),
    )
    yield Claim(
        f"{TABLES[table]}: {query.name}, scans not vectorised",
        ours,
        Sense.FACT,
        0,
        lap="scans not vectorised",
    )
    if query.filtered:
        yield Claim(
            f"{TABLES[table]}: {query.name}, scans without the filter",
            ours,
            Sense.FACT,
            0,
            lap="scans without the filter",
        )


def _why_parquet(table: str) -> str:
    if table == "c":
        return "Every row's file and place are looked up among bits, outside the reader."
    return "Every file is named to Spark, which looks each up before it reads."


def _why_delta(table: str, query: Query) -> str:
    if query is COUNT:
        return "Both answer it from the log's statistics; we have Spark read a row of one file."
    if table == "c":
        return "delta-spark leaves deleted rows out within the reader, in the JVM."
    return "delta-spark's file index lives in the JVM; ours names every file to Spark."
