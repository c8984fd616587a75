"""17: Spark on our tables: reading, writing, changing and planning, beside Parquet and Delta."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import Block
from bench.scenario import Claim, Scenario, Sizes
from bench.scenarios import spark_changes, spark_plans, spark_reads, spark_writes


def blocks(sizes: Sizes) -> Sequence[Block]:
    """Return the blocks of all parts, on one set of tables."""
    from bench.tables import tables

    if _missing():
        return []
    place = tables(sizes).place
    return [
        *spark_reads.blocks(sizes, place),
        *spark_writes.blocks(sizes, place),
        *spark_changes.blocks(sizes, place),
        *spark_plans.blocks(sizes, place),
    ]


def claims(sizes: Sizes) -> Sequence[Claim]:
    """Return the claims of all parts."""
    return [
        *spark_reads.claims(),
        *spark_writes.claims(),
        *spark_changes.claims(),
        *spark_plans.claims(sizes),
    ]


def _missing() -> list[str]:
    from headgate.errors import UnavailableError
    from headgate.spark.sessions import refuse_without_java

    try:
        refuse_without_java()
    except UnavailableError as error:
        return [f"Spark: not run, {error.message}"]
    return []


SCENARIO = Scenario(
    number=17,
    title="Spark on tables of {rows:,} rows, beside plain Parquet and delta-spark",
    how="One Spark process for all sides of a block, with the same settings and Delta's "
    "extension, which reads its log with 2 tasks instead of its default 50. All three readers "
    "read the same Parquet files; delta-spark reads a copy of the log without the features of a "
    "catalog. (a) {files:,} files; (b) {partition_files:,} files in {days:,} days; (c) as (a), "
    "with one row in 20 deleted by vectors; (d) as (a), with columns mapped by name, one of them "
    "added half way; (e) {small:,} small files. Spark's own reader returns the deleted rows of "
    "(c): its time counts, its result is not compared. Planning and execution are shown "
    "separately. Writes are of {written:,} rows from the files of (a), changes of tables with "
    "{changed:,} rows in {files:,} files, fewer than for reads, to keep the run short. One row in "
    "a hundred is changed, in every file. The source of MERGE is a table; it also has new rows, a "
    "tenth as many. Before each write all unwritten data of the machine is synced, and after it "
    "the table is restored; neither is measured. Synced means data files, their folders and the "
    "commit: on our side by Headgate, for the others after the write. The wide snapshot is "
    "planned in a new process with Spark's default memory, by delta-spark with 4 GB; of its "
    "files, those that are planned exist.",
    full={
        "rows": 10_000_000,
        "files": 200,
        "partition_files": 1_000,
        "days": 250,
        "small": 50_000,
        "planned": 10_000,
        "written": 4_000_000,
        "changed": 4_000_000,
        "wide": 1_000_000,
        "kept": 10_000,
    },
    quick={
        "rows": 20_000,
        "files": 8,
        "partition_files": 40,
        "days": 10,
        "small": 200,
        "planned": 50,
        "written": 10_000,
        "changed": 20_000,
        "wide": 50_000,
        "kept": 500,
    },
    blocks=blocks,
    claims=claims,
    not_run=_missing,
)
