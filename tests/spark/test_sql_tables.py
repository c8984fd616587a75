"""CREATE, ALTER, DROP, DESCRIBE and SHOW through SQL."""

import pytest

from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidDataError,
    NotEmptyError,
    NotFoundError,
    UnsupportedFeatureError,
)
from tests.spark.conftest import Water, listed


def test_a_table_is_made_as_told_and_tells_so(any_water: Water) -> None:
    water = any_water
    water.lake.sql(
        """
        CREATE SCHEMA IF NOT EXISTS sales;
        CREATE TABLE sales.orders (
            id BIGINT NOT NULL COMMENT 'who',
            amount DECIMAL(10, 2) DEFAULT 1.5,
            day DATE,
            year INT GENERATED ALWAYS AS (year(day)),
            s STRUCT<a: INT, b: ARRAY<STRING>>
        ) USING delta PARTITIONED BY (year) COMMENT 'what it''s for'
        TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', 'mine' = 'yes')
        """
    )
    water.sql("INSERT INTO sales.orders (id, day) VALUES (1, DATE'2026-05-05')")
    found = water.sql("SELECT id, string(amount), year FROM sales.orders")
    assert found == [(1, "1.50", 2026)]
    columns = {row[0]: row[1:] for row in water.lake.sql("DESCRIBE sales.orders").collect()}
    assert columns["id"] == ("bigint", "who")
    assert columns["s"][0] == "struct<a:int,b:array<string>>"
    assert "# Partition Information" in columns
    [detail] = water.lake.sql("DESCRIBE DETAIL sales.orders").collect()
    assert (detail["format"], detail["description"]) == ("delta", "what it's for")
    assert (detail["numFiles"], detail["partitionColumns"]) == (1, ["year"])
    assert detail["properties"]["mine"] == "yes"
    history = water.lake.sql("DESCRIBE HISTORY sales.orders").collect()
    assert [row["operation"] for row in history] == ["WRITE", "CREATE TABLE"]
    assert history[0]["operationMetrics"]["numOutputRows"] == "1"
    assert [row["readVersion"] for row in history] == [0, None]
    assert history[0]["isolationLevel"] == "WriteSerializable"
    assert len(water.lake.sql("DESCRIBE HISTORY sales.orders LIMIT 1").collect()) == 1
    assert ("mine", "yes") in water.sql("SHOW TBLPROPERTIES sales.orders")
    assert water.sql("SHOW COLUMNS IN sales.orders")[0] == ("amount",)
    [(text,)] = water.sql("SHOW CREATE TABLE sales.orders")
    # What it says makes the same table again.
    water.lake.sql("DROP TABLE sales.orders")
    water.lake.sql(text)
    [(again,)] = water.sql("SHOW CREATE TABLE sales.orders")
    assert again == text
    with pytest.raises(InvalidDataError):
        water.lake.sql("INSERT INTO sales.orders (day) VALUES (DATE'2026-05-05')")


def test_tables_are_made_from_queries_replaced_and_dropped(any_water: Water) -> None:
    water = any_water
    water.lake.sql("CREATE TABLE a AS SELECT id, id % 2 AS p FROM range(4)")
    assert len(water.sql("SELECT * FROM a")) == 4
    assert water.session.table("a").version == 0
    with pytest.raises(AlreadyExistsError):
        water.lake.sql("CREATE TABLE a AS SELECT 1 AS x")
    water.lake.sql("CREATE TABLE IF NOT EXISTS a AS SELECT 1 AS x")
    assert len(water.sql("SELECT id FROM a")) == 4
    before = water.session.table("a").id
    water.lake.sql(
        "CREATE OR REPLACE TABLE a PARTITIONED BY (p) AS SELECT id, 'x' p FROM a WHERE id > 1"
    )
    assert water.sql("SELECT * FROM a") == [(2, "x"), (3, "x")]
    assert water.session.table("a").id == before
    assert water.session.table("a").partition_columns == ("p",)
    assert len(water.sql("SELECT * FROM a VERSION AS OF 0")) == 4
    with pytest.raises(NotFoundError):
        water.lake.sql("REPLACE TABLE absent AS SELECT 1 x")
    with pytest.raises(InvalidDataError):
        water.lake.sql("CREATE TABLE bad AS SELECT 1 / (id - 1) x FROM range(3)")
    assert water.session.find("bad") is None
    water.lake.sql("DROP TABLE a; DROP TABLE IF EXISTS a")
    assert water.sql("SHOW TABLES") == []
    water.lake.sql("UNDROP TABLE a")
    assert water.sql("SHOW TABLES") == [("default", "a", False)]
    with pytest.raises(UnsupportedFeatureError):
        water.lake.sql("CREATE TABLE elsewhere (id INT) LOCATION '/tmp/elsewhere'")


def test_columns_rules_and_properties_are_altered(any_water: Water) -> None:
    water = any_water
    sql = water.lake.sql
    sql("CREATE TABLE t (id BIGINT, v STRING) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    sql("ALTER TABLE t ADD COLUMNS (more INT COMMENT 'c' FIRST, s STRUCT<x: INT>)")
    assert water.lake.read("t").columns == ["more", "id", "v", "s"]
    sql("ALTER TABLE t ADD COLUMN s.y STRING; ALTER TABLE t RENAME COLUMN v TO w")
    assert water.sql("SELECT id, w, s.y FROM t") == [(1, "a", None), (2, None, None)]
    sql("ALTER TABLE t DROP COLUMN more")
    with pytest.raises(InvalidDataError, match=r"(?i)null"):
        sql("ALTER TABLE t ALTER COLUMN w SET NOT NULL")
    with pytest.raises(InvalidDataError):
        sql("ALTER TABLE t ADD CONSTRAINT big CHECK (id > 1)")
    sql("ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0 AND upper(string(id)) <> 'X')")
    with pytest.raises(InvalidDataError, match="positive"):
        sql("INSERT INTO t (id) VALUES (0)")
    sql("ALTER TABLE t DROP CONSTRAINT positive; INSERT INTO t (id) VALUES (0)")
    sql("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b'); ALTER TABLE t UNSET TBLPROPERTIES ('a')")
    assert "a" not in water.session.table("t").properties
    sql("COMMENT ON TABLE t IS 'changed'; ALTER TABLE t RENAME TO u")
    assert water.sql("SELECT count(*) FROM u") == [(3,)]
    with pytest.raises(NotFoundError):
        sql("DELETE FROM t")


def test_schemas_are_made_used_and_dropped(any_water: Water) -> None:
    water = any_water
    sql = water.lake.sql
    sql("CREATE SCHEMA s; USE s; CREATE TABLE t AS SELECT 1 AS id")
    assert water.sql("SELECT * FROM s.t") == water.sql("SELECT * FROM t") == [(1,)]
    assert ("s",) in water.sql("SHOW SCHEMAS")
    with pytest.raises(AlreadyExistsError):
        sql("CREATE SCHEMA s")
    for asked, word in {
        "COMMENT 'c'": "COMMENT",
        "WITH DBPROPERTIES (a = 'b')": "DBPROPERTIES",
    }.items():
        with pytest.raises(UnsupportedFeatureError, match=word):
            sql(f"CREATE SCHEMA IF NOT EXISTS more {asked}")
    assert ("more",) not in water.sql("SHOW SCHEMAS")
    with pytest.raises(NotEmptyError):
        sql("DROP SCHEMA s")
    sql("ALTER SCHEMA s RENAME TO r")
    assert water.sql("SELECT * FROM r.t") == water.sql("SELECT * FROM t") == [(1,)]
    with pytest.raises(InvalidArgumentError, match="cannot be renamed"):
        sql("ALTER CATALOG main RENAME TO other")
    sql("DROP SCHEMA r CASCADE; DROP SCHEMA IF EXISTS r")
    with pytest.raises(NotFoundError):
        sql("DROP SCHEMA r")
    assert water.sql("SHOW SCHEMAS LIKE 'r'") == []


def test_a_table_whose_query_fails_leaves_nothing_behind(water: Water) -> None:
    water.lake.sql("CREATE TABLE kept AS SELECT id FROM range(3)")
    table = water.session.table("kept")
    files = listed(table)
    with pytest.raises(InvalidDataError):
        water.lake.sql("CREATE OR REPLACE TABLE kept AS SELECT 1 / (id - 1) x FROM kept")
    assert listed(table) == files
    assert water.sql("SELECT * FROM kept") == [(0,), (1,), (2,)]
