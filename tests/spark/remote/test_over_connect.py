"""The lake over Spark Connect, where nothing of Spark is in this process."""

import pytest
from pyspark.sql import SparkSession

from headgate.errors import InvalidArgumentError, InvalidDataError, SyntaxRefusedError
from headgate.spark import Lake, sessions
from headgate.spark.merge import Clause, Do, When
from tests.spark.conftest import Water, listed

# Each catalog and each mode once: all four pairs are tested on the Spark in this process.
CATALOGS_AND_MODES = [("embedded", "copy-on-write"), ("server", "deletion-vectors")]


def test_the_session_is_one_of_a_server(spark: SparkSession) -> None:
    assert sessions.is_remote(spark)
    assert not hasattr(spark, "_jvm")
    for setting in sessions.SETTINGS:
        assert spark.conf.get(setting.key) == setting.value


def test_a_session_of_somebody_elses_is_checked(water: Water) -> None:
    water.spark.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(InvalidArgumentError, match=r"spark\.sql\.caseSensitive is not false"):
        Lake(water.spark, water.session)


def test_values_that_do_not_fit_are_refused_outside_ansi_mode(water: Water) -> None:
    water.make("t", "id int, p int", ["p"])
    water.lake.sql("CREATE TABLE c (id INT, CONSTRAINT few CHECK (id < 10))")
    water.spark.conf.set("spark.sql.ansi.enabled", "false")
    water.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    water.lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    for statement in ("INSERT INTO t VALUES (5000000000, 1)", "UPDATE t SET id = 5000000000"):
        with pytest.raises(InvalidDataError, match="does not fit column 'id'"):
            water.lake.sql(statement)
    # Spark Connect resolves constraints together with the rows of the user.
    with pytest.raises(InvalidArgumentError, match="computed in ANSI mode"):
        water.lake.sql("INSERT INTO c VALUES (1)")
    assert water.rows() == [(1, 1), (2, 2)]
    assert water.spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_correlated_subqueries_work_over_several_partitions(water: Water) -> None:
    water.make("t", "id int, p int", ["p"])
    water.lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    found = water.sql("SELECT id, (SELECT count(*) FROM t u WHERE u.p <= t.p) FROM t")
    assert found == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("any_water", "mode"), CATALOGS_AND_MODES, indirect=["any_water"])
def test_rows_come_change_and_go(any_water: Water, mode: str) -> None:
    water = any_water
    water.make(
        schema="id long, p int, v string",
        by=["p"],
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    lake = water.lake
    lake.append("t", water.frame("SELECT id, int(id % 2) p, 'a' v FROM range(0, 10, 1, 1)"))
    lake.delete("t", "id = 1")
    lake.update("t", {"v": "'b'"}, "id = 2")
    source = water.frame("SELECT * FROM VALUES (3L, 'c'), (100L, 'd') AS s(id, v)")
    lake.merge(
        "t",
        source,
        "target.id = source.id",
        [
            Clause(When.MATCHED, Do.UPDATE, values={("v",): "source.v"}),
            Clause(When.NOT_MATCHED, Do.INSERT, values={("id",): "id", ("v",): "v"}),
        ],
    )
    assert [(row[0], row[2]) for row in water.rows(where="id < 4 OR id > 99")] == [
        (0, "a"), (2, "b"), (3, "c"), (100, "d"),
    ]  # fmt: skip
    vectors = [file for file in water.files() if file.deletion_vector is not None]
    assert bool(vectors) is (mode == "deletion-vectors")
    lake.overwrite("t", water.frame("SELECT 50L id, 0 p, 'e' v"), where="p = 0")
    lake.overwrite("t", water.frame("SELECT 51L id, 1 p, 'f' v"), dynamic=True)
    assert water.rows() == [(50, 0, "e"), (51, 1, "f"), (100, None, "d")]
    assert water.rows(version=1) == [(n, n % 2, "a") for n in range(10)]
    lake.overwrite("t", water.frame("SELECT 1L id, 1 p, 'g' v"))
    assert water.rows() == [(1, 1, "g")]


def test_what_was_read_stays_as_it_was(water: Water) -> None:
    """Over Spark Connect a query runs again each time its rows are read."""
    water.make(schema="id long")
    water.lake.append("t", water.frame("SELECT id FROM range(3)"))
    read, asked = water.lake.read("t"), water.lake.sql("SELECT count(*) FROM t")
    water.lake.append("t", water.frame("SELECT id FROM range(7)"))
    assert read.count() == 3
    assert asked.collect()[0][0] == 3
    assert water.lake.read("t").count() == 10


def test_many_files_are_named_to_a_server_too(water: Water) -> None:
    water.make(schema="id long, p int", by=["p"])
    some = water.frame("SELECT id, int(id) p FROM range(0, 40, 1, 1)")
    water.lake.append("t", some)
    assert len(water.files()) == 40
    assert water.lake.read("t").count() == 40
    assert water.rows(where="p = 7") == [(7, 7)]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("SELECT a.id\nFROM t AS a JOIN t AS b\nWHERE nothing = 1", 3, 7, "nothing"),
        ("DELETE FROM t WHERE id IN (SELECT x FROM t)", 1, 35, "x"),
        ("UPDATE t SET id = nothing", 1, 19, "nothing"),
        ("INSERT INTO t SELECT nothing FROM t", 1, 22, "nothing"),
        ("MERGE INTO t USING t AS s ON t.id = s.id\nWHEN MATCHED THEN UPDATE SET id = x",
         2, 35, "x"),
    ],
)  # fmt: skip
def test_errors_point_at_their_place(
    water: Water, text: str, line: int, column: int, says: str
) -> None:
    water.make(schema="id long")
    with pytest.raises(SyntaxRefusedError, match=says) as refusal:
        water.lake.sql(text)
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert water.session.table("t").version == 0


def test_a_row_that_breaks_a_rule_is_told_and_nothing_stays(water: Water) -> None:
    table = water.make(schema="id long, v string")
    table.add_constraint("small", "id < 3")
    with pytest.raises(InvalidDataError, match=r'constraint small.*"id":3'):
        water.lake.append("t", water.frame("SELECT id, 'x' v FROM range(4)"))
    with pytest.raises(InvalidDataError, match="does not fit"):
        water.lake.append("t", water.frame("SELECT 1e30 id"))
    assert listed(table) == []
