"""DELETE and UPDATE: by copies and by vectors, with NULL's own logic, and their metrics."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType

from headgate.client.table import Table
from headgate.errors import (
    InvalidArgumentError,
    InvalidDataError,
    InvariantError,
    SyntaxRefusedError,
)
from headgate.spark import dml, statement
from headgate.spark.conditions import Condition
from headgate.spark.merge import Clause, Do, When
from tests.spark.conftest import Water, commit, listed, local, put_file, rows

MODES = ["copy-on-write", "deletion-vectors", "auto"]


def vectored(water: Water, mode: str, schema: str = "id long, v string", **how: Any) -> Table:
    return water.make(schema=schema, delta__enableDeletionVectors="true", headgate__dml=mode, **how)


def fill(water: Water, count: int = 10) -> None:
    """Two files: the lower half of the numbers, and the upper."""
    for low in (0, count // 2):
        water.lake.append(
            "t",
            water.frame(
                f"SELECT id, concat('v', id) v FROM range({low}, {low + count // 2}, 1, 1)"
            ),
        )


def metrics_of(table: Table) -> dict[str, int]:
    return {key: int(str(value)) for key, value in table.history(1)[0].metrics.items()}


def test_a_column_with_a_dot_in_its_name_is_named_in_backquotes(water: Water) -> None:
    water.make(
        schema="`a.b` long, s struct<`c.d`: long, e: long>, `x``y z` long",
        delta__columnMapping__mode="name",
    )
    water.lake.append(
        "t", water.frame("SELECT 1 `a.b`, named_struct('c.d', 2L, 'e', 3L) s, 4 `x``y z`")
    )
    water.lake.update("t", {"`a.b`": "10", "s.`c.d`": "20", "s.e": "30", "`x``y z`": "40"})
    shown = water.lake.read("t").selectExpr("`a.b`", "s.`c.d`", "s.e", "`x``y z`")
    assert rows(shown) == [(10, 20, 30, 40)]
    for name in ("a.b", "", "a.", ".a", "`a", "`a`b", "a``b"):
        with pytest.raises(InvalidArgumentError):
            water.lake.update("t", {name: "1"})


@pytest.mark.parametrize("mode", MODES)
def test_a_delete_takes_matching_rows_and_no_others(any_water: Water, mode: str) -> None:
    water = any_water
    table = vectored(water, mode)
    fill(water)
    before = {file.path for file in water.files()}
    outcome = water.lake.delete("t", "id IN (1, 2)")
    assert outcome.counts == {"num_affected_rows": 2}
    assert [row[0] for row in water.rows()] == [0, *range(3, 10)]
    by_vector = mode != "copy-on-write"
    assert sum(1 for file in water.files() if file.deletion_vector) == by_vector
    for file in water.files():  # what bounds of a file with deleted rows say is no longer exact
        is_tight = json.loads(file.stats or "")["tightBounds"]
        assert is_tight is (file.deletion_vector is None)
        assert file.data_change
    # The other file was not touched.
    assert len(before & {file.path for file in water.files()}) == 1 + by_vector
    entry = table.history(1)[0]
    assert entry.operation == "DELETE"
    assert entry.parameters["predicate"] == '["(id IN (1, 2))"]'
    metrics = metrics_of(table)
    assert metrics["numDeletedRows"] == 2
    assert metrics["executionTimeMs"] >= metrics["scanTimeMs"] > 0
    assert (metrics["rewriteTimeMs"] > 0) is not by_vector
    if by_vector:
        assert metrics["numDeletionVectorsAdded"] == 1
        assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == (0, 0)
    else:
        assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == (1, 1)
        assert metrics["numCopiedRows"] == 3
    # More rows of the same file; then the last of it, and the file is gone whole.
    water.lake.delete("t", "id = 0")
    water.lake.delete("t", "id < 5")
    assert [row[0] for row in water.rows()] == list(range(5, 10))
    assert len(water.files()) == 1
    assert water.lake.delete("t", "id = 77").committed is None
    water.lake.delete("t", "id = 5")
    assert water.lake.delete("t").counts == {"num_affected_rows": 4}
    assert water.rows() == []
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("mode", MODES)
def test_what_arrow_reads_after_changes_is_what_spark_reads(water: Water, mode: str) -> None:
    table = vectored(water, mode)
    fill(water, 40)
    water.lake.delete("t", "id % 7 = 0")
    water.lake.update("t", {"v": "concat(v, '!')", "id": "id + 1000"}, "id % 5 = 0")
    water.lake.delete("t", "id % 11 = 0")
    wanted = []
    for n in range(40):
        row = (n + 1000, f"v{n}!") if n % 5 == 0 else (n, f"v{n}")
        if n % 7 and row[0] % 11:
            wanted.append(row)
    assert water.rows() == sorted(wanted)
    arrow = table.to_arrow().to_pydict()
    assert sorted(zip(arrow["id"], arrow["v"], strict=True)) == sorted(wanted)


@pytest.mark.parametrize("mode", MODES)
def test_an_update_changes_matching_rows_and_keeps_the_others(any_water: Water, mode: str) -> None:
    water = any_water
    table = vectored(water, mode)
    fill(water)
    outcome = water.lake.update("t", {"V": "concat(v, '-', id)"}, "id IN (1, 2)")
    assert outcome.counts == {"num_affected_rows": 2}
    wanted = [(n, f"v{n}-{n}" if n in (1, 2) else f"v{n}") for n in range(10)]
    assert water.rows() == wanted
    entry, metrics = table.history(1)[0], metrics_of(table)
    assert (entry.operation, metrics["numUpdatedRows"]) == ("UPDATE", 2)
    assert metrics["numCopiedRows"] == (3 if mode == "copy-on-write" else 0)
    # Values are computed from the rows as they were, all at once.
    water.lake.update("t", {"id": "length(v)", "v": "string(id)"}, "id = 3")
    assert (2, "3") in water.rows()
    assert water.lake.update("t", {"v": "null"}).counts == {"num_affected_rows": 10}
    assert {row[1] for row in water.rows()} == {None}
    assert water.lake.update("t", {"v": "'x'"}, "id = 77").committed is None


def test_only_rows_that_match_are_computed(water: Water) -> None:
    """A value that would fail for a row that stays as it is does not fail."""
    water.make(schema="id long, q double")
    water.lake.append("t", water.frame("SELECT id, double(id) q FROM range(0, 4, 1, 1)"))
    water.lake.update("t", {"q": "12 / id"}, "id <> 0")
    assert water.rows() == [(0, 0.0), (1, 12.0), (2, 6.0), (3, 4.0)]
    with pytest.raises(InvalidDataError, match="zero"):
        water.lake.update("t", {"q": "12 / id"})
    water.lake.sql(
        "MERGE INTO t USING (SELECT 0L k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET q = -1"
        " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET q = 24 / id"
    )
    assert water.rows() == [(0, -1.0), (1, 24.0), (2, 12.0), (3, 8.0)]


@pytest.mark.parametrize("is_empty", [True, False])
def test_values_that_no_row_could_be_given_are_refused_though_no_row_matches(
    water: Water, *, is_empty: bool
) -> None:
    water.make(schema="id long, v string")
    if not is_empty:
        water.lake.append("t", water.frame("SELECT 1 id, 'x' v"))
    for column, value in (("v", "nothing"), ("v", "sum(id)"), ("id", "'text'"), ("id.x", "1")):
        with pytest.raises((InvalidArgumentError, InvalidDataError)):
            water.lake.update("t", {column: value}, "id = 77")
        path = tuple(column.split("."))
        values = {path: value.replace("nothing", "s.nothing")}
        with pytest.raises((InvalidArgumentError, InvalidDataError)):
            water.lake.merge(
                "t",
                water.frame("SELECT 77L id"),
                "t.id = s.id",
                [Clause(When.MATCHED, Do.UPDATE, values=values)],
                target_alias="t",
                source_alias="s",
            )
    assert water.lake.update("t", {"v": "'y'"}, "id = 77").committed is None


@pytest.mark.parametrize("mode", MODES)
def test_a_condition_that_is_null_is_not_true(water: Water, mode: str) -> None:
    vectored(water, mode)
    some = "VALUES (1L, 'a'), (2L, null), (null, 'c'), (4L, 'd'), (null, null) AS t(id, v)"
    water.lake.append("t", water.frame(f"SELECT * FROM {some}").coalesce(1))
    water.lake.delete("t", "id = 1 OR v = 'c'")
    assert water.rows() == [(None, None), (2, None), (4, "d")]
    water.lake.update("t", {"v": "'new'"}, "NOT (id = 4)")
    assert water.rows() == [(None, None), (2, "new"), (4, "d")]
    water.lake.update("t", {"v": "'none'"}, "id IS NULL")
    water.lake.delete("t", "NOT (id > 2)")
    assert water.rows() == [(None, "none"), (4, "d")]


@pytest.mark.parametrize("mode", MODES)
def test_subqueries_over_other_tables_choose_rows(water: Water, mode: str) -> None:
    vectored(water, mode)
    water.make("u", "id long")
    some = "VALUES (1L, 'a'), (2L, 'b'), (null, 'c'), (4L, 'd'), (5L, 'e') AS t(id, v)"
    water.lake.append("t", water.frame(f"SELECT * FROM {some}").coalesce(1))
    water.lake.append("u", water.frame("SELECT 1L id UNION ALL SELECT null"))
    # NOT IN of a list with a NULL is never true, and what is not true stays.
    assert water.sql("DELETE FROM t WHERE id NOT IN (SELECT id FROM u)") == [(0,)]
    assert water.sql("DELETE FROM t WHERE id IN (SELECT id FROM u)") == [(1,)]
    assert [row[0] for row in water.rows()] == [None, 2, 4, 5]
    assert water.sql(
        "UPDATE t AS x SET v = (SELECT max(id) FROM u) WHERE EXISTS"
        " (SELECT 1 FROM u WHERE u.id + 1 = x.id)"
    ) == [(1,)]
    assert water.rows() == [(None, "c"), (2, "1"), (4, "d"), (5, "e")]
    # The table itself may be asked, as it was before the statement.
    water.sql("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
    assert [row[0] for row in water.rows()] == [None, 2, 4]
    water.sql("UPDATE t SET id = id + (SELECT count(*) FROM t) WHERE v IN (SELECT v FROM t)")
    assert [row[0] for row in water.rows()] == [None, 5, 7]


def test_a_delete_by_partition_values_reads_no_data(water: Water) -> None:
    table = water.make(schema="id long, p int, q string", by=["p", "q"])
    water.lake.append(
        "t", water.frame("SELECT id, int(id % 3) p, if(id % 2 = 0, 'x', null) q FROM range(12)")
    )
    for path in listed(table):  # a read of one fails now
        (local(table) / path).write_bytes(b"")
    outcome = water.lake.delete("t", "p + 1 = 2 AND upper(q) = 'X'")
    assert outcome.counts == {"num_affected_rows": 2}
    assert {(f.partition_values["p"], f.partition_values["q"]) for f in water.files()} == {
        ("0", "x"), ("0", None), ("1", None), ("2", "x"), ("2", None),
    }  # fmt: skip
    water.lake.delete("t", "q IS NULL OR p = 0")
    assert {(f.partition_values["p"], f.partition_values["q"]) for f in water.files()} == {
        ("2", "x")
    }
    assert metrics_of(table)["numAddedFiles"] == 0
    assert water.lake.delete("t").committed is not None
    assert water.files() == []


def test_a_delete_rewrites_whole_files_though_it_reads_row_groups(water: Water) -> None:
    """Row groups that cannot match hold rows that must stay."""
    water.make(schema="id long, pad string")
    lake = water.other(options={"parquet.block.size": "2048", "parquet.page.size": "512"})
    lake.append("t", water.frame("SELECT id, repeat(string(id), 40) pad FROM range(0, 4000, 1, 1)"))
    assert len(water.files()) == 1
    lake.delete("t", "id = 1234")
    lake.update("t", {"id": "-1"}, "id = 2345")
    found = water.lake.read("t").selectExpr("count(*)", "sum(id)", "min(id)").first()
    assert found == (3999, sum(range(4000)) - 1234 - 2345 - 1, -1)
    # Where the condition selects no files, only those that hold a hit are replaced.
    lake.append("t", water.frame("SELECT id, 'x' pad FROM range(5000, 5010)").coalesce(1))
    lake.delete("t", "abs(id) + 0 = 5003")
    lake.update("t", {"id": "-2"}, "abs(id) + 0 = 5004")
    assert water.lake.read("t").count() == 4008


def test_fields_within_a_struct_are_set_alone(water: Water) -> None:
    vectored(water, "copy-on-write", "id long, s struct<a: int, b: struct<c: string, d: int>>")
    row = "named_struct('a', 1, 'b', named_struct('c', 'x', 'd', 2))"
    water.lake.append("t", water.frame(f"SELECT id, {row} s FROM range(0, 3, 1, 1)"))
    water.lake.update("t", {"s.b.c": "'new'", "S.A": "s.a + 10"}, "id = 1")
    water.lake.sql("UPDATE t SET t.s.b = named_struct('d', 9, 'c', 'q') WHERE id = 2")
    shown = water.lake.read("t").select("id", "s.a", "s.b.c", "s.b.d")
    assert rows(shown) == [(0, 1, "x", 2), (1, 11, "new", 2), (2, 1, "q", 9)]
    for wrong in ({"s.z": "1"}, {"id.a": "1"}, {"nothing": "1"}, {"s": "null", "s.a": "1"}):
        with pytest.raises(InvalidArgumentError):
            water.lake.update("t", wrong)


def test_a_field_of_a_struct_that_was_null_is_set_too(water: Water) -> None:
    vectored(water, "copy-on-write", "id long, s struct<a: int, `b.b`: struct<c: string, d: int>>")
    typed = "struct<a: int, `b.b`: struct<c: string, d: int>>"
    water.lake.append("t", water.frame(f"SELECT id, CAST(NULL AS {typed}) s FROM range(4)"))
    water.lake.sql("UPDATE t SET s.a = 1 WHERE id = 1")
    water.lake.sql("UPDATE t SET s.`b.b`.d = 2, s.a = 3 WHERE id = 2")
    water.lake.sql(
        "MERGE INTO t USING (SELECT 3L id) AS o ON t.id = o.id"
        " WHEN MATCHED THEN UPDATE SET t.s.`b.b`.c = 'x'"
    )
    assert water.rows() == [
        (0, None), (1, (1, None)), (2, (3, (None, 2))), (3, (None, ("x", None)))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "where",
    ["rand() < 0.5", "id = uuid()", "id = (SELECT 1)", "id =", "nothing = 1", "sum(id) = 1"],
)
def test_conditions_that_are_none_are_refused_and_nothing_happens(water: Water, where: str) -> None:
    table = vectored(water, "auto")
    fill(water, 4)
    kept, version = listed(table), water.session.table("t").version
    for attempt in (
        lambda: water.lake.delete("t", where),
        lambda: water.lake.update("t", {"v": "'x'"}, where),
        lambda: water.lake.overwrite("t", water.frame("SELECT 1 id"), where=where),
    ):
        with pytest.raises((InvalidArgumentError, SyntaxRefusedError)):
            attempt()
    assert listed(table) == kept
    assert water.session.table("t").version == version


def test_the_property_that_forces_a_way_is_held_to(water: Water) -> None:
    table = water.make(headgate__dml="deletion-vectors")
    water.lake.append("t", water.frame("SELECT id, 'x' v FROM range(3)"))
    with pytest.raises(InvalidArgumentError, match="enableDeletionVectors"):
        water.lake.delete("t", "id = 1")
    table.set_properties({"headgate.dml": "sometimes"})
    with pytest.raises(InvalidArgumentError, match="copy-on-write"):
        water.lake.delete("t", "id = 1")
    table.set_properties({"headgate.dml": "auto"})
    water.lake.delete("t", "id = 1")  # no vectors on this table: by copy
    assert not any(file.deletion_vector for file in water.files())


def test_by_cost_few_rows_are_marked_and_many_are_written_anew(water: Water) -> None:
    vectored(water, "auto")
    fill(water, 20)
    water.lake.delete("t", "id = 1 OR (id >= 10 AND id < 18)")
    assert [bool(f.deletion_vector) for f in water.files()].count(True) == 1
    assert [row[0] for row in water.rows()] == [0, *range(2, 10), 18, 19]


def test_a_file_with_deleted_rows_is_written_anew_without_them(water: Water) -> None:
    table = vectored(water, "deletion-vectors")
    fill(water)
    water.lake.delete("t", "id IN (1, 6)")
    table.set_properties({"headgate.dml": "copy-on-write"})
    water.sql("MERGE INTO t USING (SELECT 2L id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    water.sql("DELETE FROM t WHERE id IN (SELECT 7L)")
    assert not any(file.deletion_vector for file in water.files())
    assert water.rows() == [(n, f"v{n}") for n in (0, 3, 4, 5, 8, 9)]
    table.set_properties({"headgate.dml": "deletion-vectors"})
    water.lake.delete("t", "id = 3")
    table.set_properties({"headgate.dml": "copy-on-write"})
    water.sql("UPDATE t SET v = 'new' WHERE id IN (SELECT 4L)")
    assert water.rows() == [(n, "new" if n == 4 else f"v{n}") for n in (0, 4, 5, 8, 9)]


def test_a_file_without_the_number_of_its_rows_is_written_anew(water: Water) -> None:
    table = vectored(water, "auto")
    content = pa.table({"id": pa.array(range(10), pa.int64()), "v": ["a"] * 10})
    commit(table, put_file(table, "x.parquet", content, stats="{}"))
    water.lake.delete("t", "id = 4")
    assert [row[0] for row in water.rows()] == [0, 1, 2, 3, *range(5, 10)]
    assert not any(file.deletion_vector for file in water.files())


def test_rows_of_long_files_are_marked_where_they_lie(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark counts them in bitmaps of 32,768 rows, and each file of vectors is for one file."""
    monkeypatch.setattr(statement, "_VECTORS_PER_FILE", 1)
    vectored(water, "deletion-vectors")
    fill(water, 200_000)
    ends = [0, 32_767, 32_768, 65_535, 65_536, 99_999]
    changed = [row for end in ends for row in (end, end + 100_000)]
    changed.append(150_000)  # so that the vectors differ
    water.lake.update("t", {"v": "'new'"}, f"id IN ({', '.join(map(str, changed))})")
    merged = [row + by for row in (1, 32_766, 32_770) for by in (0, 100_000)]
    water.sql(
        f"MERGE INTO t USING (SELECT explode(array({', '.join(map(str, merged))})) id) s"
        " ON t.id = s.id WHEN MATCHED AND t.id % 2 = 0 THEN UPDATE SET v = 'merged'"
        " WHEN MATCHED THEN DELETE"
    )
    gone = [row for row in merged if row % 2]
    read = water.lake.read("t")
    found = {v: [id for id, _ in rows(read.where(f"v = '{v}'"))] for v in ("new", "merged")}
    assert found == {"new": sorted(changed), "merged": sorted(set(merged) - set(gone))}
    assert read.selectExpr("count(*)", "count(distinct id)", "sum(id)").first() == (
        200_000 - len(gone),
        200_000 - len(gone),
        sum(range(200_000)) - sum(gone),
    )


class Fickle(Condition):
    """A condition that no row fails when it is asked for the others."""

    def others(self, rows: DataFrame) -> DataFrame:
        return rows


def test_rows_that_a_condition_chose_otherwise_the_second_time_are_not_committed(
    water: Water,
) -> None:
    table = vectored(water, "copy-on-write")
    fill(water)
    kept = listed(table)
    with (
        water.lake._engine.statement("t") as mine,
        pytest.raises(InvariantError, match="5 rows were written in the place of 3"),
    ):
        dml.delete(mine, Fickle("id < 2", "id < 2", is_repeatable=True))
    assert listed(table) == kept
    assert water.session.table("t").version == 2


def test_rows_that_a_function_of_the_user_chose_are_changed_whatever_it_chooses_later(
    water: Water, tmp_path: Path
) -> None:
    """It is asked once: the other rows of a file are those at other places."""
    asked = tmp_path / "asked"
    asked.mkdir()

    def chosen(id_: int) -> bool:
        is_first = not (asked / str(id_)).exists()
        (asked / str(id_)).touch()
        return id_ in (0, 1) if is_first else id_ in (2, 3)

    water.spark.udf.register("chosen", chosen, BooleanType())
    table = vectored(water, "copy-on-write")
    content = pa.table({"id": pa.array(range(6), pa.int64()), "v": ["a"] * 6})
    commit(table, put_file(table, "x.parquet", content))
    water.lake.update("t", {"v": "'new'"}, "chosen(id)")
    assert water.rows() == [(id_, "new" if id_ < 2 else "a") for id_ in range(6)]
    for file in asked.iterdir():
        file.unlink()
    water.sql("DELETE FROM t WHERE chosen(id)")
    assert [row[0] for row in water.rows()] == [2, 3, 4, 5]
