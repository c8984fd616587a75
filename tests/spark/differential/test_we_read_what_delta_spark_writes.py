"""What delta-spark writes at this moment is read by us with the rows it reads itself."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import headgate
from headgate.spark import scan
from tests.spark.differential import delta_spark
from tests.spark.differential.delta_spark import DeltaSpark
from tests.spark.differential.row_comparison import difference

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
NUMBERS = "SELECT INT(id) AS id, concat('w', id) AS word FROM range({}, {})"

# Each kind: statements with `{t}` for the table, and whether a checkpoint comes before the last.
KINDS: dict[str, tuple[bool, list[str]]] = {
    "deletion_vectors_in_a_v2_checkpoint": (
        True,
        [
            "CREATE TABLE {t} (id INT, word STRING) USING delta TBLPROPERTIES"
            " (delta.enableDeletionVectors = true, delta.checkpointPolicy = 'v2')",
            f"INSERT INTO {{t}} {NUMBERS.format(0, 40)}",
            "DELETE FROM {t} WHERE id % 7 = 0",
            "UPDATE {t} SET word = 'changed' WHERE id % 11 = 1",
        ],
    ),
    "columns_mapped_renamed_and_dropped": (
        False,
        [
            "CREATE TABLE {t} (id INT, gone STRING, s STRUCT<x: INT, y: STRING>, part STRING)"
            " USING delta PARTITIONED BY (part)"
            " TBLPROPERTIES (delta.columnMapping.mode = 'name')",
            "INSERT INTO {t} VALUES (1, 'g', struct(1, 'y'), 'a b'), (2, NULL, NULL, NULL)",
            "ALTER TABLE {t} RENAME COLUMN part TO section",
            "ALTER TABLE {t} RENAME COLUMN s.x TO `x y`",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} ADD COLUMNS (gone INT)",
            "INSERT INTO {t} VALUES (3, struct(3, 'z'), 'a/b', 33)",
        ],
    ),
    "widened_types": (
        True,
        [
            "CREATE TABLE {t} (id INT, n TINYINT, d DATE, m MAP<INT, FLOAT>, x DECIMAL(5,2))"
            " USING delta TBLPROPERTIES (delta.enableTypeWidening = true,"
            " 'delta.feature.timestampNtz' = 'supported')",
            "INSERT INTO {t} VALUES (1, -128, DATE'1969-12-31', map(1, FLOAT(0.1)), 1.25)",
            "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT, d TYPE TIMESTAMP_NTZ, m.key TYPE BIGINT,"
            " m.value TYPE DOUBLE, x TYPE DECIMAL(12,4)",
            "INSERT INTO {t} VALUES (2, 5000000000, TIMESTAMP_NTZ'2024-02-29 12:34:56',"
            " map(5000000000, 1e300D), 1234567.8901)",
        ],
    ),
    "generated_and_identity_columns": (
        False,
        [
            "CREATE TABLE {t} (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10),"
            " at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), word STRING)"
            " USING delta PARTITIONED BY (day)",
            "INSERT INTO {t} (at, word) VALUES (TIMESTAMP'2024-02-29 12:00:00Z', 'a'), (NULL, 'b')",
            "INSERT INTO {t} (at, word) VALUES (TIMESTAMP'2024-03-01 00:00:00Z', 'c')",
        ],
    ),
    "clustered_with_row_tracking": (
        True,
        [
            "CREATE TABLE {t} (id INT, word STRING) USING delta CLUSTER BY (word) TBLPROPERTIES"
            " (delta.enableRowTracking = true, delta.enableDeletionVectors = true)",
            f"INSERT INTO {{t}} {NUMBERS.format(0, 10)}",
            "UPDATE {t} SET word = 'changed' WHERE id IN (1, 8)",
            "OPTIMIZE {t}",
            "DELETE FROM {t} WHERE id = 2",
        ],
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_delta_spark_reads(
    kind: str, delta: DeltaSpark, spark: SparkSession, tmp_path: Path
) -> None:
    has_checkpoint, statements = KINDS[kind]
    path = tmp_path / "table"
    steps = [delta_spark.sql(text.replace("{t}", f"delta.`{path}`")) for text in statements]
    if has_checkpoint:
        steps.insert(-1, {"do": "checkpoint", "path": str(path)})
    delta.ask(*steps)
    if has_checkpoint:
        assert list(path.glob("_delta_log/*.checkpoint*"))
    assert_same_rows(path, delta, spark, older=1)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not IS_LONG, reason="HEADGATE_LONG=1 writes every kept table again")
@pytest.mark.parametrize(
    "name",
    ["dv_relative", "dv_in_checkpoint_v2", "mapping_name", "mapping_id", "mapping_upgraded",
     "v2_json", "v2_parquet", "multipart", "widening", "types", "schema_evolution",
     "partitions_special", "partitions_types", "partitions_numbers", "row_tracking",
     "row_tracking_later", "generated_identity", "clustered", "ict", "cdf", "txn_domain",
     "many_features", "replaced", "restored", "statistics"],
)  # fmt: skip
def test_kept_tables_written_anew_have_the_rows_delta_spark_reads(
    name: str, delta: DeltaSpark, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    delta.ask({"do": "case", "name": name, "path": str(path), "work": str(tmp_path)})
    assert_same_rows(path, delta, spark, older=1)


def assert_same_rows(path: Path, delta: DeltaSpark, spark: SparkSession, *, older: int) -> None:
    """Compare the latest version and an older one, by Spark and by Arrow."""
    for version in (None, older):
        read = delta.new_file()
        delta.begin(delta_spark.read(path, read, version))
        plain = headgate.open(str(path), version=version)
        snapshot = plain.snapshot()
        found = scan.dataframe(spark, snapshot, snapshot.files()).toArrow()
        answer = delta.end()
        assert answer.error is None
        theirs = pq.read_table(read)
        assert difference(found, theirs) is None
        assert difference(plain.to_arrow(), theirs) is None
