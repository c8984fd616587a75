"""What looking at other engines' tables and answers found or put in doubt, each by itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.spark.conftest import Water, commit, put_file


def test_columns_that_a_query_never_gives_as_null_may_be_null_in_the_table_made_from_it(
    water: Water,
) -> None:
    rows = water.frame("SELECT id, named_struct('a', 1) AS s, array(1) AS l FROM range(2)")
    water.lake.create("made", rows)
    water.lake.sql("CREATE TABLE asked AS SELECT id, named_struct('a', 1) AS s FROM range(2)")
    water.make("grown", "id long")
    water.lake.append("grown", rows, merge_schema=True)
    water.make("replaced", "id long")
    water.lake.overwrite("replaced", rows, overwrite_schema=True)
    for name in ("made", "asked", "grown", "replaced"):
        table = water.session.table(name)
        assert '"nullable":false' not in table.snapshot().metadata.schema_string.replace(" ", "")
        assert "invariants" not in (table.snapshot().protocol.writer_features or ())


def test_an_update_computes_its_values_for_the_rows_it_is_about_alone(water: Water) -> None:
    water.make(schema="id long, n int, s struct<a: int, b: string>", headgate__dml="copy-on-write")
    water.lake.sql(
        "INSERT INTO t VALUES (1, 1, NULL), (2, 2147483647, named_struct('a', 0, 'b', 'old'))"
    )
    # The fields come in another order, so the value is taken apart before it is put in place.
    water.lake.sql("UPDATE t SET s = named_struct('b', 'new', 'a', n + 1) WHERE id = 1")
    assert water.rows() == [(1, 1, (2, "new")), (2, 2147483647, (0, "old"))]


@pytest.mark.parametrize("mode", ["copy-on-write", "deletion-vectors"])
def test_a_merge_computes_its_values_for_the_rows_it_is_about_alone(
    water: Water, mode: str
) -> None:
    water.make(
        schema="id long, s struct<a: int, b: string>",
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    water.lake.sql("INSERT INTO t VALUES (1, NULL), (2, NULL)")
    water.frame(
        "SELECT * FROM VALUES (1L, 1), (2L, 2147483647) AS v(id, n)"
    ).createOrReplaceTempView("changes")
    water.lake.sql(
        "MERGE INTO t USING changes AS c ON t.id = c.id"
        " WHEN MATCHED AND c.id = 1 THEN UPDATE SET s = named_struct('b', 'new', 'a', c.n + 1)"
        " WHEN MATCHED THEN UPDATE SET s = named_struct('b', 'as it is', 'a', c.n)"
    )
    assert water.rows() == [(1, (2, "new")), (2, (2147483647, "as it is"))]


@pytest.mark.parametrize(
    ("data_type", "spelled", "value"),
    [
        ("timestamp", "2024-02-29T12:34:56.789000Z", "TIMESTAMP'2024-02-29 12:34:56.789Z'"),
        ("timestamp", "2024-02-29 12:34:56.789", "TIMESTAMP'2024-02-29 12:34:56.789Z'"),
        ("decimal(5,2)", "1.5", "1.50BD"),
        ("double", "NaN", "DOUBLE('NaN')"),
        ("string", "", "CAST(NULL AS STRING)"),
    ],
)
def test_a_dynamic_overwrite_finds_partitions_however_another_writer_spelled_them(
    water: Water, data_type: str, spelled: str, value: str
) -> None:
    table = water.make(schema=f"id long, p {data_type}", by=["p"])
    commit(table, put_file(table, "theirs.parquet", pa.table({"id": [1]}), {"p": spelled}))
    assert [row[0] for row in water.rows()] == [1]
    rows = water.frame(f"SELECT 2L AS id, {value} AS p")
    water.lake.overwrite("t", rows, dynamic=True)
    assert [row[0] for row in water.rows()] == [2]
