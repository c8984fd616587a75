"""MERGE: every clause, several of each, matched by NULL's logic, by copies and by vectors."""

from typing import Any

import pytest

from headgate.client.table import Table
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    SyntaxRefusedError,
)
from headgate.spark.merge import Clause, Do, When
from tests.spark.conftest import Water, listed, rows

MODES = ["copy-on-write", "deletion-vectors"]


def orders(water: Water, mode: str = "auto", **how: Any) -> Table:
    """Two files of five rows each."""
    table = water.make(
        schema="id long, v string, n int",
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
        **how,
    )
    for low in (0, 5):
        water.lake.append(
            "t",
            water.frame(
                f"SELECT id, concat('v', id) v, int(id) n FROM range({low}, {low + 5}, 1, 1)"
            ),
        )
    return table


@pytest.mark.parametrize("mode", MODES)
def test_clauses_of_every_kind_in_one_statement(any_water: Water, mode: str) -> None:
    water = any_water
    table = orders(water, mode)
    water.spark.createDataFrame(
        [(1, "one", 1), (2, "two", 2), (3, "three", 3), (20, "new", 20), (21, "other", 21),
         (22, "left out", 22), (None, "null", 0)],
        "id long, v string, n int",
    ).createOrReplaceTempView("changes")  # fmt: skip
    counts = water.sql(
        """
        MERGE INTO t AS target USING changes AS s ON target.id = s.id
        WHEN MATCHED AND s.v = 'one' THEN UPDATE SET target.v = concat(target.v, '+', s.v), n = -1
        WHEN MATCHED AND s.v = 'two' THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED AND s.id = 20 THEN INSERT *
        WHEN NOT MATCHED AND s.id = 21 THEN INSERT (n, id) VALUES (s.n * 2, s.id)
        WHEN NOT MATCHED AND s.v = 'null' THEN INSERT (v) VALUES (s.v)
        WHEN NOT MATCHED BY SOURCE AND target.id = 9 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND target.id > 6 THEN UPDATE SET v = upper(v)
        """
    )
    assert counts == [(2 + 2 + 2 + 3, 4, 2, 3)]
    assert water.rows() == [
        (None, "null", None), (0, "v0", 0), (1, "v1+one", -1), (3, "three", 3), (4, "v4", 4),
        (5, "v5", 5), (6, "v6", 6), (7, "V7", 7), (8, "V8", 8), (20, "new", 20), (21, None, 42),
    ]  # fmt: skip
    entry = table.history(1)[0]
    assert entry.operation == "MERGE"
    metrics = {key: int(str(value)) for key, value in entry.metrics.items()}
    assert metrics["numSourceRows"] == 7
    assert metrics["numTargetRowsInserted"] == 3
    assert metrics["numTargetRowsUpdated"] == 4
    assert metrics["numTargetRowsDeleted"] == 2
    assert metrics["numTargetRowsMatchedUpdated"] == 2
    assert metrics["numTargetRowsMatchedDeleted"] == 1
    assert metrics["numTargetRowsNotMatchedBySourceUpdated"] == 2
    assert metrics["numTargetRowsNotMatchedBySourceDeleted"] == 1
    spent = metrics["scanTimeMs"] + metrics["rewriteTimeMs"]
    assert metrics["executionTimeMs"] == spent
    assert metrics["rewriteTimeMs"] > 0
    assert metrics["numTargetRowsCopied"] == (4 if mode == "copy-on-write" else 0)
    assert "matchedPredicates" in entry.parameters
    assert table.to_arrow().num_rows == 11
    water.spark.catalog.dropTempView("changes")


def upsert(water: Water, source: str, *clauses: Clause, on: str = "t.id = s.id") -> Any:
    return water.lake.merge(
        "t", water.frame(source), on, clauses, target_alias="t", source_alias="s"
    )


UPDATE_ALL = Clause(When.MATCHED, Do.UPDATE)
INSERT_ALL = Clause(When.NOT_MATCHED, Do.INSERT)
DELETE = Clause(When.MATCHED, Do.DELETE)


@pytest.mark.parametrize("mode", MODES)
def test_several_rows_of_the_source_for_one_of_the_table(water: Water, mode: str) -> None:
    table = orders(water, mode)
    twice = "SELECT 1L id, x v, 5 n FROM VALUES ('a'), ('b') AS s(x)"
    kept = listed(table)
    for clauses in (
        (UPDATE_ALL,),
        (Clause(When.MATCHED, Do.DELETE, "s.v = 'a'"), UPDATE_ALL),
        (Clause(When.MATCHED, Do.DELETE, "s.n = 5"),),
        (Clause(When.MATCHED, Do.DELETE, "s.v = 'q'"), DELETE),
    ):
        with pytest.raises(InvalidDataError, match="Several rows of the source"):
            upsert(water, twice, *clauses)
    assert listed(table) == kept
    assert water.session.table("t").version == 2
    # Only one of the two is asked for: no question who is the master.
    upsert(water, twice, Clause(When.MATCHED, Do.UPDATE, "s.v = 'b'"))
    assert (1, "b", 5) in water.rows()
    # All of them would delete the row: it is deleted, once.
    counts = upsert(water, twice, DELETE, INSERT_ALL).counts
    assert (counts["num_deleted_rows"], counts["num_inserted_rows"]) == (1, 0)
    assert [row[0] for row in water.rows()] == [0, *range(2, 10)]
    # Nothing in the table matches: each is inserted.
    upsert(water, twice, INSERT_ALL)
    assert [row for row in water.rows() if row[0] == 1] == [(1, "a", 5), (1, "b", 5)]


@pytest.mark.parametrize("mode", MODES)
def test_null_matches_nothing_unless_asked_to(water: Water, mode: str) -> None:
    orders(water, mode)
    water.lake.append("t", water.frame("SELECT null id, 'no one' v, 0 n"))
    source = "SELECT bigint(null) id, 'source' v, 1 n"
    upsert(water, source, UPDATE_ALL, INSERT_ALL)
    assert [row for row in water.rows() if row[0] is None] == [
        (None, "no one", 0),
        (None, "source", 1),
    ]
    upsert(water, source, Clause(When.MATCHED, Do.DELETE, "t.n = 1"), on="t.id <=> s.id")
    assert [row for row in water.rows() if row[0] is None] == [(None, "no one", 0)]
    # A condition that is null chooses no clause.
    upsert(
        water, source, Clause(When.MATCHED, Do.DELETE, "t.id = 1"), INSERT_ALL, on="t.id <=> s.id"
    )
    assert len(water.rows()) == 11
    upsert(water, "SELECT 1L id", Clause(When.NOT_MATCHED_BY_SOURCE, Do.DELETE, "NOT (id > 3)"))
    assert [row[0] for row in water.rows()] == [None, 1, *range(4, 10)]


def test_a_merge_that_only_inserts_touches_no_file(water: Water) -> None:
    table = orders(water)
    before = {file.path for file in water.files()}
    counts = upsert(water, "SELECT id, 'n' v, 1 n FROM range(8, 12)", INSERT_ALL).counts
    assert counts["num_inserted_rows"] == counts["num_affected_rows"] == 2
    assert before <= {file.path for file in water.files()}
    assert [row[0] for row in water.rows()] == list(range(12))
    assert upsert(water, "SELECT 1L id, 'n' v, 1 n WHERE false", INSERT_ALL).committed is None
    assert upsert(water, "SELECT 77L id, 'n' v, 1 n", UPDATE_ALL).committed is None
    assert water.session.table("t").version == 3
    assert len(listed(table)) == len(water.files())  # what was written down aside is gone


def test_names_without_a_table_mean_the_one_that_has_the_row(water: Water) -> None:
    orders(water)
    water.sql(
        """
        MERGE INTO t USING (SELECT id + 8 id, 'it''s n' v, 7 n FROM range(4)) s ON t.id = s.id
        WHEN NOT MATCHED AND id > 10 AND n = 7 THEN INSERT (id, v) VALUES (id, concat(v, string(n)))
        WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (id, v, -n)
        WHEN NOT MATCHED BY SOURCE AND id < 2 THEN UPDATE SET n = n + id * 10, v = upper(v)
        """
    )
    assert [row for row in water.rows() if row[0] < 3 or row[0] > 8] == [
        (0, "V0", 0), (1, "V1", 11), (2, "v2", 2), (9, "v9", 9), (10, "it's n", -7),
        (11, "it's n7", None),
    ]  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="mbiguous"):
        upsert(water, "SELECT 1L id, 'x' v, 2 n", Clause(When.MATCHED, Do.DELETE, "n = 1"))


def test_a_merge_into_an_empty_table_inserts(water: Water) -> None:
    water.make(schema="id long, v string")
    water.lake.merge(
        "t",
        water.frame("SELECT id, 'x' v FROM range(3)"),
        "target.id = source.id",
        [UPDATE_ALL, INSERT_ALL, Clause(When.NOT_MATCHED_BY_SOURCE, Do.DELETE)],
    )
    assert water.rows() == [(0, "x"), (1, "x"), (2, "x")]


def test_the_condition_on_the_table_keeps_files_from_being_touched(water: Water) -> None:
    orders(water, "copy-on-write")
    before = {file.path for file in water.files()}
    water.sql(
        "MERGE INTO t USING (SELECT 1L id, 'x' v UNION ALL SELECT 7L, 'x') s"
        " ON t.id = s.id AND t.n < 5 WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    assert len(before & {file.path for file in water.files()}) == 1
    assert [row for row in water.rows() if row[1] == "x"] == [(1, "x", 1), (7, "x", None)]
    assert len(water.rows()) == 11


def test_columns_that_only_the_source_has_are_added_when_asked(water: Water) -> None:
    orders(water, "copy-on-write")
    source = "SELECT 1L id, 'one' v, 1 n, 'more' extra UNION ALL SELECT 30L, 'x', 3, 'new'"
    with pytest.raises(HeadgateError):
        water.lake.merge(
            "t", water.frame(source), "target.id = source.id",
            [Clause(When.MATCHED, Do.UPDATE, values={("extra",): "source.extra"})],
        )  # fmt: skip
    water.lake.merge(
        "t", water.frame(source), "target.id = source.id", [UPDATE_ALL, INSERT_ALL],
        merge_schema=True,
    )  # fmt: skip
    read = water.lake.read("t")
    assert read.columns == ["id", "v", "n", "extra"]
    assert rows(read.where("extra IS NOT NULL").select("id", "extra")) == [(1, "more"), (30, "new")]
    assert read.count() == 11
    water.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 2L id, DATE'2020-01-01' day) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    kept = water.lake.read("t", where="id = 2").selectExpr("v", "n", "extra", "string(day)")
    assert rows(kept) == [("v2", 2, None, "2020-01-01")]


def test_columns_of_the_source_that_are_named_are_added_and_no_others(water: Water) -> None:
    orders(water, "copy-on-write")
    source = "(SELECT * FROM VALUES (1L, 'one', 7, 8), (30L, 'x', 9, 10) AS s(id, v, more, `a.b`))"
    merging = f"MERGE WITH SCHEMA EVOLUTION INTO t USING {source} AS s ON t.id = s.id"
    water.sql(
        f"{merging} WHEN MATCHED THEN UPDATE SET MORE = s.more, v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, `a.b`) VALUES (id, `s`.`a.b`)"
    )
    read = water.lake.read("t")
    assert read.columns == ["id", "v", "n", "more", "a.b"]
    assert rows(read.where("id IN (1, 2, 30)")) == [
        (1, "one", 1, 7, None), (2, "v2", 2, None, None), (30, None, None, None, 10)
    ]  # fmt: skip
    for value in ("s.more + 1", "1", "t.n"):
        with pytest.raises(InvalidArgumentError, match="no column 'other'"):
            water.sql(f"{merging} WHEN MATCHED THEN UPDATE SET other = {value}")


@pytest.mark.parametrize(
    ("clauses", "says"),
    [
        ([], "needs a WHEN"),
        ([Clause(When.MATCHED, Do.INSERT)], "MATCHED cannot insert"),
        ([Clause(When.NOT_MATCHED, Do.DELETE)], "cannot delete"),
        ([UPDATE_ALL, UPDATE_ALL], "Only the last"),
        ([Clause(When.NOT_MATCHED_BY_SOURCE, Do.UPDATE)], "nothing to take"),
        ([Clause(When.MATCHED, Do.UPDATE, values={("nothing",): "1"})], "no column 'nothing'"),
        ([Clause(When.MATCHED, Do.UPDATE, values={("n",): "s.v"})], "'n' is integer"),
        ([Clause(When.MATCHED, Do.UPDATE, values={("n",): "s.nothing"})], "nothing"),
        ([Clause(When.MATCHED, Do.DELETE, "no_such(1)")], "no_such"),
    ],
)
def test_clauses_that_are_none_are_refused_and_nothing_stays(
    water: Water, clauses: list[Clause], says: str
) -> None:
    table = orders(water)
    kept = listed(table)
    with pytest.raises((InvalidArgumentError, InvalidDataError), match=says) as raised:
        upsert(water, "SELECT 1L id, 'x' v, 2 n", *clauses)
    assert raised.value.message
    assert listed(table) == kept
    assert water.session.table("t").version == 2


def test_a_source_that_lacks_a_column_cannot_be_taken_whole(water: Water) -> None:
    orders(water)
    with pytest.raises(InvalidArgumentError, match="no column 'n'"):
        upsert(water, "SELECT 1L id, 'x' v", UPDATE_ALL)


def test_a_source_that_changes_each_time_is_read_once(water: Water) -> None:
    """Rows matched in one reading and not in the next would be lost, or be there twice."""
    table = water.make(schema="id long, v string")
    water.lake.append("t", water.frame("SELECT id, 'old' v FROM range(0, 40, 1, 1)"))
    # `rand()` has a seed that stays with a DataFrame; this has none.
    chance = "SELECT if({} < 0.5, id, id + 1000) id, 'new' v FROM range(40)"
    hidden = chance.format("reflect('java.lang.Math', 'random')")
    counts = upsert(water, hidden, UPDATE_ALL, INSERT_ALL).counts
    assert counts["num_updated_rows"] + counts["num_inserted_rows"] == 40
    found = water.rows()
    assert [row[0] for row in found if row[0] < 1000] == list(range(40))
    assert [row[1] for row in found].count("new") == 40
    # In SQL too, also where a view hides the chance.
    water.frame(f"CREATE OR REPLACE TEMPORARY VIEW chances AS {hidden}")
    for source in (f"({chance.format('rand()')})", "chances", "(SELECT * FROM chances)"):
        water.lake.overwrite("t", water.frame("SELECT id, 'old' v FROM range(0, 40, 1, 1)"))
        water.sql(
            f"MERGE INTO t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        )
        found = water.rows()
        assert [row[0] for row in found if row[0] < 1000] == list(range(40)), source
        assert [row[1] for row in found].count("new") == 40, source
    water.spark.catalog.dropTempView("chances")
    assert table.snapshot().version == 8


def test_a_source_may_have_columns_of_nothing_but_null(water: Water) -> None:
    orders(water)
    upsert(water, "SELECT 1L id, null v, 1 n UNION ALL SELECT 30L, null, 3", UPDATE_ALL, INSERT_ALL)
    assert [row for row in water.rows() if row[1] is None] == [(1, None, 1), (30, None, 3)]


def test_conditions_of_chance_and_subqueries_are_refused(water: Water) -> None:
    table = orders(water)
    kept = listed(table)
    for text in (
        "MERGE INTO t USING t AS s ON t.id = s.id AND rand() > 0.5 WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED AND rand() > 0.5 THEN DELETE",
        "MERGE INTO t USING t AS s ON t.id IN (SELECT id FROM t) WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = (SELECT 1)",
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (1)",
    ):
        with pytest.raises((InvalidArgumentError, SyntaxRefusedError)):
            water.lake.sql(text)
    for chance in (Clause(When.MATCHED, Do.DELETE, "rand() > 0.5"), DELETE):
        on = "t.id = s.id" if chance.condition else "t.id = s.id AND rand() > 0.5"
        with pytest.raises(InvalidArgumentError, match="another answer each time"):
            upsert(water, "SELECT 1L id", chance, on=on)
    assert listed(table) == kept
    assert water.session.table("t").version == 2


def test_a_table_is_merged_with_itself_and_its_past(water: Water) -> None:
    orders(water, "copy-on-write")
    water.lake.delete("t", "id < 3")
    water.sql(
        "MERGE INTO t USING (SELECT * FROM t VERSION AS OF 2) old ON t.id = old.id"
        " WHEN NOT MATCHED THEN INSERT * WHEN MATCHED AND old.id = 9 THEN UPDATE SET v = 'seen'"
    )
    assert [row[0] for row in water.rows()] == list(range(10))
    water.sql("MERGE INTO t USING t AS s ON t.id = s.id + 5 WHEN MATCHED THEN DELETE")
    assert [row[0] for row in water.rows()] == list(range(5))


def test_fields_of_one_struct_are_set_together(water: Water) -> None:
    water.make(schema="id long, s struct<a: int, b: int, c: int>")
    water.lake.append("t", water.frame("SELECT 1L id, named_struct('a', 1, 'b', 2, 'c', 3) s"))
    water.sql(
        "MERGE INTO t USING (SELECT 1L id UNION ALL SELECT 2L) o ON t.id = o.id"
        " WHEN MATCHED THEN UPDATE SET s.a = t.s.b + 10, S.B = t.s.a + 20"
        " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (o.id, NULL)"
    )
    assert water.rows() == [(1, (12, 21, 3)), (2, None)]


def test_partitioned_rows_move_between_partitions(water: Water) -> None:
    water.make(schema="id long, p string", by=["p"])
    water.lake.append("t", water.frame("SELECT id, if(id < 3, 'a', 'b') p FROM range(6)"))
    water.sql(
        "MERGE INTO t USING (SELECT 1L id, 'c/d' p UNION ALL SELECT 9L, null) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert water.rows() == [
        (0, "a"), (1, "c/d"), (2, "a"), (3, "b"), (4, "b"), (5, "b"), (9, None),
    ]  # fmt: skip
    assert {file.partition_values["p"] for file in water.files()} == {"a", "b", "c/d", None}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("clauses", "wanted"),
    [
        ("MATCHED THEN UPDATE SET v = 1", [(0, 0, (1, None)), (1, 1, (1, None)), (2, 1, None)]),
        (
            "MATCHED AND s.id = 2 THEN UPDATE SET p.a = 5 WHEN MATCHED THEN UPDATE SET *",
            [(0, 0, (1, None)), (1, 2, (3, "x")), (2, 0, (5, None))],
        ),
        (
            "NOT MATCHED BY SOURCE THEN UPDATE SET v = 9",
            [(0, 9, (1, None)), (1, 0, (1, None)), (2, 0, None)],
        ),
        ("MATCHED AND s.id = 1 THEN DELETE", [(0, 0, (1, None)), (2, 0, None)]),
    ],
)
def test_a_struct_that_grows_grows_in_rows_that_stay(
    water: Water, mode: str, clauses: str, wanted: list[Any]
) -> None:
    water.make(
        schema="id long, v int, p struct<a: int>",
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    shown = "SELECT id, 0 v, if(id = 2, NULL, named_struct('a', 1)) p FROM range(0, 3, 1, 1)"
    water.lake.append("t", water.frame(shown))
    water.lake.sql(
        f"""
        MERGE WITH SCHEMA EVOLUTION INTO t
        USING (SELECT id, 2 v, named_struct('b', 'x', 'a', 3) p FROM range(1, 4)) AS s
        ON t.id = s.id WHEN {clauses} WHEN NOT MATCHED THEN INSERT *
        """
    )
    assert water.rows() == [*wanted, (3, 2, (3, "x"))]
