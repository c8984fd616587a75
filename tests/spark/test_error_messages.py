"""What users are shown when a statement is wrong: where, what is meant, and no Java."""

import subprocess
import sys
from pathlib import Path

import polars
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    SyntaxRefusedError,
    UnsupportedFeatureError,
)
from tests.kit import java
from tests.spark.conftest import Water

# The place that is wrong stands between the marks.
WRONG_SYNTAX = [
    "SELECT 1;\n\nSELECT id FORM «t»",
    "SELECT 1,\n  «,» 2",
    "SELECT id\nFROM t\nWHERE id = «=» 1",
    "SELECT id +\n  * «3» FROM t o JOIN t p ON o.id = p.id",
    "SELECT /* é */ '😀', x.id\nFROM t x JOIN t y ON x.id < «=» y.id",
    "DELETE FROM t WHERE id = «=» 1",
    "DELETE FROM t WHERE v = 'a' AND\n id IN (SELECT id FROM t WHERE id = «=» 1)",
    "UPDATE t SET v =\n 'a' || «|» 'b'",
    "INSERT INTO t SELECT id,\n v FROM t WHERE id = «=» 1",
    "INSERT INTO t VALUES (1, 'a'),\n (2, + «)»",
    "MERGE INTO t USING (SELECT 1 id) s\nON t.id = «=» s.id WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING (SELECT 1 id) s ON t.id = s.id\nWHEN MATCHED AND s.id = «=» 1 THEN DELETE",
    "MERGE INTO t USING (SELECT 1 id «FORM» t) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "CREATE TABLE u AS\nSELECT id id2 FROM t WHERE «=» 1",
    "CREATE TEMPORARY VIEW v AS SELECT id\nFROM t WHERE id = «=» 1",
]


@pytest.mark.parametrize("marked", WRONG_SYNTAX)
def test_a_parse_error_points_at_the_place_in_the_users_text(water: Water, marked: str) -> None:
    water.make()
    text, at = marked.replace("«", "").replace("»", ""), marked.index("«")
    with pytest.raises(SyntaxRefusedError) as refused:
        water.lake.sql(text)
    before = text[:at]
    place = (before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)
    assert (refused.value.line, refused.value.column) == place, refused.value


def test_a_parse_error_in_an_argument_points_at_the_place_in_it(water: Water) -> None:
    water.make()
    for ask in (
        lambda: water.lake.read("t", where="v = 'a' AND\n id = = 1"),
        lambda: water.lake.delete("t", where="v = 'a' AND\n id = = 1"),
    ):
        with pytest.raises(SyntaxRefusedError, match=r"at line 2, column \d:\n.*\n +\^") as refused:
            ask()
        assert refused.value.line == 2


@pytest.mark.parametrize(
    ("text", "error", "meant"),
    [
        ("SELECT * FROM ordres", SyntaxRefusedError, "Did you mean 'orders'?"),
        ("SELECT * FROM main.Default.ordres", SyntaxRefusedError, "Did you mean 'orders'?"),
        (
            "MERGE INTO orders USING main.default.ordres s ON true WHEN MATCHED THEN DELETE",
            SyntaxRefusedError,
            "Did you mean 'orders'?",
        ),
        ("SELECT * FROM defualt.orders", SyntaxRefusedError, "There is no namespace main.defualt."),
        ("INSERT INTO ordres VALUES (1, 2)", NotFoundError, "Did you mean 'orders'?"),
        ("DROP TABLE ordres", NotFoundError, "Did you mean 'orders'?"),
        ("DESCRIBE HISTORY ordres", NotFoundError, "Did you mean 'orders'?"),
        ("USE defualt", NotFoundError, "Did you mean 'default'?"),
        ("SELECT amuont FROM orders", SyntaxRefusedError, "`amount`"),
        ("UPDATE orders SET amuont = 1", InvalidArgumentError, "Did you mean 'amount'?"),
        ("INSERT INTO orders (amuont) VALUES (1)", InvalidArgumentError, "Did you mean 'amount'?"),
        (
            "INSERT INTO orders BY NAME SELECT 1 amuont",
            InvalidDataError,
            "Did you mean 'amount'?",
        ),
        (
            "ALTER TABLE orders ALTER COLUMN amuont COMMENT 'x'",
            NotFoundError,
            "Did you mean 'amount'?",
        ),
        (
            "CREATE TABLE u (id long) TBLPROPERTIES (delta.appendOnyl = 'true')",
            InvalidArgumentError,
            "Did you mean 'delta.appendOnly'?",
        ),
        (
            "ALTER TABLE orders SET TBLPROPERTIES (delta.enableDeletionVector = 'true')",
            InvalidArgumentError,
            "Did you mean 'delta.enableDeletionVectors'?",
        ),
    ],
)
def test_a_misspelled_name_is_refused_and_the_right_one_named(
    water: Water, text: str, error: type[HeadgateError], meant: str
) -> None:
    water.make("orders", "id long, amount double")
    with pytest.raises(error) as refused:
        water.lake.sql(text)
    assert meant in str(refused.value)


def test_a_suggestion_names_no_column_of_ours(water: Water) -> None:
    """The expressions are resolved where the rows have their positions beside them."""
    water.make("orders", "id long, amount double")
    for statement in (
        lambda: water.lake.delete("orders", F.col("amuont") > 1),
        lambda: water.lake.delete("orders", "amuont > 1"),
        lambda: water.lake.update("orders", {"amount": F.col("amuont") + 1}),
        lambda: water.lake.update("orders", {"amount": "amuont + 1"}, "id = 1"),
    ):
        with pytest.raises(HeadgateError, match=r"Did you mean .*`amount`") as refused:
            statement()
        assert "headgate" not in str(refused.value)


def test_a_wrong_name_of_three_parts_is_pointed_at(water: Water) -> None:
    water.make("orders", "id long")
    for text in (
        "SELECT id\nFROM orders NATURAL JOIN main.default.ordres",
        "DELETE FROM orders\nWHERE id IN (SELECT id FROM main.default.ordres)",
    ):
        with pytest.raises(SyntaxRefusedError, match=r"no table main\.default\.ordres") as refused:
            water.lake.sql(text)
        at = text.index("main") - text.index("\n")
        assert (refused.value.line, refused.value.column) == (2, at)


def test_show_catalogs_lists_the_catalogs_of_the_lake(water: Water) -> None:
    water.session.create_namespace("archive.sales")
    assert water.sql("SHOW CATALOGS") == [("archive",), ("main",)]
    assert water.sql("SHOW CATALOGS LIKE 'm*'") == [("main",)]
    assert water.sql("SHOW SCHEMAS IN archive") == [("sales",)]


def test_a_table_of_the_catalog_is_not_cached_and_a_query_is(water: Water) -> None:
    water.make()
    for text in ("CACHE TABLE t", "CACHE LAZY TABLE main.default.t", "UNCACHE TABLE IF EXISTS t"):
        with pytest.raises(SyntaxRefusedError, match="CACHE TABLE cached AS SELECT"):
            water.lake.sql(text)
    water.lake.sql("CACHE TABLE cached AS SELECT * FROM t; UNCACHE TABLE cached")


@pytest.fixture
def external(water: Water, tmp_path: Path) -> str:
    polars.DataFrame({"id": [1, 2]}).write_delta(tmp_path / "lake" / "external")
    polars.DataFrame({"id": [3]}).write_delta(tmp_path / "lake" / "external", mode="append")
    water.session.register_external("e", f"file://{tmp_path / 'lake' / 'external'}")
    return "e"


def test_an_external_table_is_read_in_sql(water: Water, external: str) -> None:
    assert water.sql("SELECT * FROM e") == [(1,), (2,), (3,)]
    assert water.sql("SELECT count(*) FROM e") == [(3,)]
    assert water.sql("SELECT id FROM e VERSION AS OF 0 WHERE id > 1") == [(2,)]
    water.make()
    water.lake.sql("INSERT INTO t SELECT id, 'x' FROM main.default.e")
    assert water.sql("SELECT t.id FROM t JOIN e ON t.id = e.id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO e VALUES (4)",
        "DELETE FROM e",
        "UPDATE e SET id = 1",
        "MERGE INTO e USING (SELECT 1 id) s ON e.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE e ADD COLUMNS (x int)",
        "DESCRIBE DETAIL e",
    ],
)
def test_other_statements_on_an_external_table_are_refused_as_such(
    water: Water, external: str, text: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match="e is an external delta table at file:"):
        water.lake.sql(text)


def test_an_external_table_is_dropped_and_its_files_stay(
    water: Water, external: str, tmp_path: Path
) -> None:
    water.lake.sql("DROP TABLE e")
    assert water.session.find("e") is None
    assert list((tmp_path / "lake" / "external").glob("*.parquet"))


def test_an_error_of_spark_is_shown_without_a_java_stack_trace(water: Water) -> None:
    water.make().add_constraint("small", "id < 5")
    with pytest.raises(InvalidDataError) as refused:
        water.lake.sql("INSERT INTO t VALUES (9, 'x')")
    assert refused.value.__suppress_context__
    assert "at org.apache" not in str(refused.value)


def test_a_session_of_ours_logs_no_java_stack_trace(spark: SparkSession, tmp_path: Path) -> None:
    java.require()
    program = """
import sys
from headgate.spark import session
spark = session(master="local[1]", config={"spark.driver.memory": "512m"})
numbers = spark.range(1)
for query in (
    spark.sql("SELECT raise_error('boom')"),
    spark.sql("SELECT 1 / 0"),  # Spark knows the place in the text, and PySpark logs it
    numbers.select(1 / numbers.id),
):
    try:
        query.collect()
    except Exception:
        print("raised")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["raised"] * 3
    assert "\tat " not in done.stderr
    assert "DIVIDE_BY_ZERO" not in done.stderr
