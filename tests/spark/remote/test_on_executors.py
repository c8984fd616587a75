"""The lake where rows are computed by others, who have no Python and nothing of ours."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import InvalidDataError, SyntaxRefusedError
from tests.spark.conftest import Water, listed

# Each catalog and each mode once: all four pairs are tested on the Spark in this process.
CATALOGS_AND_MODES = [("embedded", "copy-on-write"), ("server", "deletion-vectors")]


def test_there_is_no_python_there(spark: SparkSession) -> None:
    """Else the rest would show nothing."""
    plus_one = F.udf(lambda n: n + 1, "long")
    with pytest.raises(Exception, match="no-python"):
        spark.range(2).select(plus_one("id")).collect()


@pytest.mark.parametrize(("any_water", "mode"), CATALOGS_AND_MODES, indirect=["any_water"])
def test_rows_come_change_and_go(any_water: Water, mode: str) -> None:
    water = any_water
    water.make(
        schema="id long, p int, v string",
        by=["p"],
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
        delta__columnMapping__mode="name",
    )
    lake = water.lake
    lake.append("t", water.frame("SELECT id, int(id % 20) p, 'a' v FROM range(0, 1000, 1, 4)"))
    assert len({file.partition_values[key] for file in water.files()
                for key in file.partition_values}) == 20  # fmt: skip
    lake.delete("t", "id % 100 = 1")
    lake.update("t", {"v": "'b'"}, "id % 100 = 2")
    lake.sql(
        "MERGE INTO t USING (SELECT id * 3 AS id FROM t WHERE id < 400) s ON t.id = s.id"
        " WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm'"
        " WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 0, 'n')"
    )
    expected = {n: "b" if n % 100 == 2 else "a" for n in range(1000) if n % 100 != 1}
    for n in [3 * n for n in list(expected) if n < 400]:
        if n not in expected:
            expected[n] = "n"
        elif n % 2 == 0:
            del expected[n]
        else:
            expected[n] = "m"
    assert {row[0]: row[2] for row in lake.read("t").collect()} == expected
    assert any(file.deletion_vector for file in water.files()) is (mode == "deletion-vectors")
    assert lake.sql("SELECT count(*) FROM t WHERE p IN (SELECT p FROM t WHERE id = 5)").collect()
    lake.overwrite("t", water.frame("SELECT id, int(id) p, 'z' v FROM range(20)"), dynamic=True)
    assert lake.read("t").count() == 20


def test_a_row_that_breaks_a_rule_is_told_and_nothing_stays(water: Water) -> None:
    table = water.make(schema="id long, v string")
    table.add_constraint("small", "id < 90")
    with pytest.raises(InvalidDataError, match=r'constraint small.*"id":9\d'):
        water.lake.append("t", water.frame("SELECT id, 'x' v FROM range(0, 100, 1, 4)"))
    with pytest.raises(SyntaxRefusedError, match="nothing"):
        water.lake.sql("DELETE FROM t WHERE nothing = 1")
    assert listed(table) == []


def test_a_task_that_is_tried_again_leaves_its_rows_once(water: Water) -> None:
    """The first task of an executor fails when it has written half of its rows."""
    table = water.make(schema="id long, p int, v string", by=["p"])
    once = "reflect('java.lang.System', 'setProperty', 'headgate.tried', 'yes') IS NULL"
    water.lake.append(
        "t",
        water.frame(
            f"SELECT if(id % 250 = 125 AND {once}, raise_error('the disk is gone'), id) id,"
            " int(id % 2) p, 'x' v FROM range(0, 1000, 1, 4)"
        ),
    )
    assert [row[0] for row in water.rows()] == list(range(1000))
    assert sorted(file.path for file in water.files()) == listed(table)
    failed = "SELECT reflect('java.lang.System', 'getProperty', 'headgate.tried') value"
    values = {row[0] for row in water.frame(f"{failed} FROM range(0, 8, 1, 8)").collect()}
    assert "yes" in values
