"""delta-spark reads a plain copy of each kind of table we write, and goes on writing to it.

It finds the same rows, history and detail as our reader, appends and deletes; what it wrote we
read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.client.table import Table
from headgate.spark import scan
from tests.kit.other_readers import KEEPING_OUT, plain_copy
from tests.spark.conftest import Water
from tests.spark.differential import delta_spark, values
from tests.spark.differential.delta_spark import DeltaSpark, DeltaSparkError
from tests.spark.differential.row_comparison import difference
from tests.spark.differential.tables import KEY, Column, random_rows

Writes = Callable[[Water], None]


@dataclass(frozen=True)
class Case:
    """A kind of table: how it is written, and what is looked at besides."""

    write: Writes
    checkpoint: str | None = None  # the form of the checkpoint that has to be read
    refused: str | None = None  # a statement the table's rules refuse
    query: str = "SELECT * FROM {t}"
    features: frozenset[str] = frozenset()


CASES: dict[str, Case] = {}


def case(**how: Any) -> Callable[[Writes], Writes]:
    def register(write: Writes) -> Writes:
        CASES[write.__name__] = Case(write, **how)
        return write

    return register


def fill(water: Water, columns: list[Column], keys: range, seed: int = 1) -> None:
    """Append rows of chance, in one file for each partition."""
    rows = random_rows(Random(seed), columns, list(keys))
    water.lake.append("t", water.spark.createDataFrame(rows).coalesce(1))


def columns_of(kinds: dict[str, values.Kind]) -> list[Column]:
    return [Column(KEY, values.INT), *(Column(name, kind) for name, kind in kinds.items())]


def create(water: Water, columns: list[Column], by: str = "", **properties: str) -> None:
    """Make the table `t`; `__` in a property's name stands for a dot."""
    listed = ", ".join(column.defined().spark for column in columns)
    clause = ", ".join(f"'{k.replace('__', '.')}' = '{v}'" for k, v in properties.items())
    water.lake.sql(
        f"CREATE TABLE t ({listed}) {f'PARTITIONED BY ({by})' if by else ''}"
        + (f" TBLPROPERTIES ({clause})" if clause else "")
    )


# Kinds of tables


@case(features=frozenset({"timestampNtz"}))
def partitioned_by_every_type(water: Water) -> None:
    kinds = {f"p{n}": kind for n, kind in enumerate(values.PLAIN) if kind is not values.BINARY}
    columns = columns_of({**kinds, "word": values.STRING})
    create(water, columns, ", ".join(kinds))
    fill(water, columns, range(10))
    water.lake.sql("DELETE FROM t WHERE p0 AND id > 4")


@case(features=frozenset({"timestampNtz"}))
def every_type(water: Water) -> None:
    kinds = {f"c{n}": kind for n, kind in enumerate([*values.PLAIN, *values.NESTED])}
    columns = columns_of(kinds)
    create(water, columns)
    fill(water, columns, range(12))
    fill(water, columns, range(12, 20), seed=2)
    water.lake.sql("UPDATE t SET c0 = NULL WHERE id = 13")


@case(checkpoint="classic", features=frozenset({"deletionVectors"}))
def with_deletion_vectors(water: Water) -> None:
    columns = columns_of({"word": values.STRING, "number": values.DOUBLE, "part": values.BYTE})
    on = {"delta__enableDeletionVectors": "true", "headgate__dml": "deletion-vectors"}
    create(water, columns, "part", **on)
    fill(water, columns, range(20))
    water.lake.delete("t", "id % 5 = 1")
    water.lake.delete("t", "id IN (2, 7)")
    water.lake.update("t", {"word": "'changed'"}, "id IN (3, 8)")
    water.frame(
        "SELECT 4 AS id, 'merged' AS word UNION ALL SELECT 50, 'new'"
    ).createOrReplaceTempView("changes")
    water.lake.sql(
        "MERGE INTO t USING changes AS c ON t.id = c.id WHEN MATCHED THEN UPDATE SET word = c.word"
        " WHEN NOT MATCHED THEN INSERT (id, word, part) VALUES (c.id, c.word, 1)"
    )


def mapped(water: Water, mode: str, **properties: str) -> None:
    columns = columns_of(
        {"two words": values.POINT, "gone": values.STRING, "list": values.NESTED[3]}
    )
    columns.append(Column("part", values.DATE, pool=values.DATES[3:5]))
    on = {"delta__columnMapping__mode": mode, "delta__enableDeletionVectors": "true"}
    create(water, columns, "part", **on, **properties)
    fill(water, columns, range(8))
    water.lake.sql("ALTER TABLE t RENAME COLUMN `two words` TO `a.b`")
    water.lake.sql("ALTER TABLE t RENAME COLUMN part TO `the part`")
    water.lake.sql("ALTER TABLE t DROP COLUMN gone")
    water.lake.sql("ALTER TABLE t ADD COLUMNS (gone INT, `a.b`.c DOUBLE)")
    water.lake.sql(
        "INSERT INTO t (id, `the part`, gone, `a.b`) VALUES"
        " (100, DATE'2024-02-29', 7, named_struct('a', 1, 'b', 'x', 'c', 0.5D))"
    )
    water.lake.sql("DELETE FROM t WHERE id = 2")


@case(checkpoint="v2", features=frozenset({"columnMapping", "deletionVectors", "v2Checkpoint"}))
def mapped_by_name(water: Water) -> None:
    mapped(water, "name", delta__checkpointPolicy="v2")


@case(features=frozenset({"columnMapping", "deletionVectors"}))
def mapped_by_id(water: Water) -> None:
    mapped(water, "id")


@case(
    refused="INSERT INTO {t} (id, at) VALUES (-1, TIMESTAMP'2024-02-29 12:00:00Z')",
    features=frozenset(
        {"generatedColumns", "allowColumnDefaults", "checkConstraints", "invariants"}
    ),
)
def with_rules(water: Water) -> None:
    water.lake.sql(
        "CREATE TABLE t (id INT NOT NULL, at TIMESTAMP, word STRING DEFAULT 'none',"
        " day DATE GENERATED ALWAYS AS (CAST(at AS DATE)),"
        " CONSTRAINT positive CHECK (id >= 0)) PARTITIONED BY (day)"
    )
    water.lake.sql("INSERT INTO t (id, at) VALUES (1, TIMESTAMP'2024-02-29 12:00:00Z'), (2, NULL)")
    water.lake.sql("INSERT INTO t (id, at, word) VALUES (3, TIMESTAMP'2024-03-01 00:00:00Z', 'w')")
    water.lake.sql("UPDATE t SET at = TIMESTAMP'2024-04-01 00:00:00Z', word = DEFAULT WHERE id = 3")


@case(
    query="SELECT *, _metadata.row_id, _metadata.row_commit_version FROM {t}",
    features=frozenset({"rowTracking", "domainMetadata"}),
)
def with_row_tracking(water: Water) -> None:
    columns = columns_of({"word": values.STRING})
    create(water, columns, delta__enableRowTracking="true")
    for seed, keys in enumerate((range(5), range(5, 12), range(12, 13)), 1):
        fill(water, columns, keys, seed)


@case(checkpoint="v2-json", features=frozenset({"v2Checkpoint", "typeWidening", "timestampNtz"}))
def widened_and_evolved(water: Water) -> None:
    water.lake.sql(
        "CREATE TABLE t (id INT, n SMALLINT, f FLOAT, d DECIMAL(5,2), s STRUCT<a: BYTE>,"
        " l ARRAY<STRUCT<a: INT>>) TBLPROPERTIES (delta.enableTypeWidening = true,"
        " delta.checkpointPolicy = 'v2')"
    )
    water.lake.sql(
        "INSERT INTO t VALUES (1, 1, 1.5, 1.25, named_struct('a', 1), array(named_struct('a', 1))),"
        " (2, NULL, NULL, NULL, NULL, NULL)"
    )
    for change in ("n TYPE BIGINT", "f TYPE DOUBLE", "d TYPE DECIMAL(10,4)", "s.a TYPE INT"):
        water.lake.sql(f"ALTER TABLE t ALTER COLUMN {change}")
    water.lake.sql(
        "INSERT INTO t VALUES (3, 5000000000, 1e300, 123456.7891, named_struct('a', 70000), NULL)"
    )
    rows = water.frame(
        "SELECT 4 AS id, named_struct('a', 4, 'b', DATE'2024-02-29') AS s,"
        " array(named_struct('a', 4, 'b', TIMESTAMP_NTZ'2024-02-29 12:34:56.789')) AS l, 'new' AS w"
    )
    water.lake.append("t", rows, merge_schema=True)


@case(checkpoint="classic")
def made_of_a_query_and_replaced(water: Water) -> None:
    rows = water.frame("SELECT id, id % 3 AS part FROM range(10)")
    water.lake.create("t", rows, partition_by=["part"])
    water.lake.overwrite("t", rows.where("part = 1"), where="part = 1")
    other = water.frame("SELECT INT(id) AS id, concat('w', id) AS word FROM range(6)")
    water.lake.overwrite("t", other, overwrite_schema=True, partition_by=[])
    water.lake.sql("INSERT INTO t VALUES (10, NULL)")  # what a query never gives may come later


@case(query="SELECT id, to_json(v) AS v FROM {t}", features=frozenset({"variantType"}))
def with_variants(water: Water) -> None:
    water.lake.sql("CREATE TABLE t (id INT, v VARIANT)")
    water.lake.sql(
        "INSERT INTO t VALUES (1, parse_json('{\"a\": [1, null]}')), (2, NULL),"
        " (3, CAST(DATE'2024-02-29' AS VARIANT))"
    )


# What is seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_delta_spark_reads_and_writes_a_copy_of(
    name: str, water: Water, delta: DeltaSpark, tmp_path: Path
) -> None:
    how = CASES[name]
    how.write(water)
    table = water.session.table("t")
    table.publish()
    if how.checkpoint is not None:
        table.checkpoint(kind=how.checkpoint)
    # delta-spark wants the newest commit, whatever checkpoint there is.
    only_after = None if how.checkpoint is None else table.version - 1
    copy = plain_copy(table.location, tmp_path / "copy", only_after=only_after)
    named = f"delta.`{copy}`"
    read, detail, history, again = (delta.new_file() for _ in range(4))
    newest = max(row["id"] for row in table.to_arrow(columns=["id"]).to_pylist())
    delta.begin(
        delta_spark.sql(how.query.replace("{t}", named), read),
        delta_spark.sql(f"DESCRIBE DETAIL {named}", detail),
        delta_spark.sql(f"DESCRIBE HISTORY {named}", history),
        delta_spark.sql(f"INSERT INTO {named} SELECT * FROM {named} WHERE id <= 2"),
        delta_spark.sql(f"DELETE FROM {named} WHERE id = {newest}"),
        delta_spark.sql(how.query.replace("{t}", named), again),
    )
    ours = our_rows(water, table.snapshot(), how)
    answer = delta.end()
    assert answer.error is None
    assert difference(ours, without_row_ids(pq.read_table(read))) is None
    assert_row_ids(table, pq.read_table(read))
    assert_detail(table, pq.read_table(detail).to_pylist()[0], how)
    if only_after is None:
        assert_history(table, pq.read_table(history))
    if how.refused is not None:
        with pytest.raises(DeltaSparkError, match="CHECK"):
            delta.ask(delta_spark.sql(how.refused.replace("{t}", named)))
    assert_reads_what_was_written(water, copy, how, pq.read_table(again))


def our_rows(water: Water, snapshot: Any, how: Case) -> pa.Table:
    frame = scan.dataframe(water.spark, snapshot, snapshot.files())
    if "to_json" in how.query:
        frame = frame.selectExpr("id", "to_json(v) AS v")
    return frame.toArrow()


def without_row_ids(rows: pa.Table) -> pa.Table:
    return rows.drop([n for n in ("row_id", "row_commit_version") if n in rows.column_names])


def assert_row_ids(table: Table, rows: pa.Table) -> None:
    """Row ids are all different, and of the version that added them."""
    if "row_id" not in rows.column_names:
        return
    ids = rows["row_id"].to_pylist()
    assert sorted(ids) == list(range(len(ids)))
    assert set(rows["row_commit_version"].to_pylist()) == {1, 2, 3}


def assert_detail(table: Table, detail: dict[str, Any], how: Case) -> None:
    files = table.snapshot().files()
    assert detail["format"] == "delta"
    assert detail["numFiles"] == len(files)
    assert detail["sizeInBytes"] == sum(file.size for file in files)
    assert tuple(detail["partitionColumns"]) == table.partition_columns
    protocol = table.snapshot().protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    assert set(detail["tableFeatures"]) == features - KEEPING_OUT
    assert how.features <= features


def assert_history(table: Table, history: pa.Table) -> None:
    entries = {entry.version: entry for entry in table.history()}
    assert {row["version"]: row["operation"] for row in history.to_pylist()} == {
        version: entry.operation for version, entry in entries.items()
    }
    for row in history.to_pylist():
        entry = entries[row["version"]]
        assert row["timestamp"].timestamp() * 1000 == entry.timestamp_ms
        metrics = {key: str(value) for key, value in entry.metrics.items()}
        assert dict(row["operationMetrics"] or []) == metrics
        json.dumps(dict(row["operationParameters"] or []))


def assert_reads_what_was_written(water: Water, copy: Path, how: Case, theirs: pa.Table) -> None:
    wanted = without_row_ids(theirs)
    assert wanted.num_rows
    plain = headgate.open(str(copy))
    assert difference(our_rows(water, plain.snapshot(), how), wanted) is None
    if "to_json" not in how.query:
        assert difference(plain.to_arrow(), wanted) is None
