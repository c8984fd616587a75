"""Tables with Delta's features, made by one side and read and written by the other.

delta-spark writes through the catalog; `Lake` runs on a Spark without the connector.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.client.session import Session
from headgate.protocol.features import effective
from headgate.spark import Lake
from tests.interop.conftest import DeltaSpark, append, is_whole, local, ours
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]
ROWS = "SELECT * FROM default.t ORDER BY id"
FEATURES = {
    "columnMapping": {"delta.columnMapping.mode": "name"},
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "rowTracking": {"delta.enableRowTracking": "true"},
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "typeWidening": {"delta.enableTypeWidening": "true"},
}
ALL = {key: value for properties in FEATURES.values() for key, value in properties.items()}
# delta-spark tracks rows unless it is switched off. `Lake` appends to tables with these, and does
# not change their rows.
APPENDED = {"rowTracking", "changeDataFeed"}
UNTRACKED = {"delta.enableRowTracking": "false"}


def tblproperties(properties: dict[str, str]) -> str:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"TBLPROPERTIES ({listed})"


@pytest.fixture
def spark(delta_spark: DeltaSpark, server: RunningServer) -> DeltaSpark:
    return delta_spark.use(server.address)


@pytest.fixture
def lake(released_spark: SparkSession, session: Session) -> Lake:
    return Lake(released_spark, session)


def rows_of(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.read("t").collect())


@pytest.mark.parametrize("feature", FEATURES)
def test_what_delta_spark_made_is_read_and_written_by_us(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake, feature: str
) -> None:
    properties = tblproperties({**UNTRACKED, **FEATURES[feature]})
    spark.sql(f"CREATE TABLE default.t (id BIGINT, who STRING) USING delta {properties}")
    assert feature in effective(session.table("t").snapshot().protocol)
    spark.sql("INSERT INTO default.t SELECT id, 'spark' FROM range(6)")
    spark.sql("DELETE FROM default.t WHERE id = 1")
    spark.sql("UPDATE default.t SET who = 'changed' WHERE id = 2")
    rows: list[tuple[Any, ...]] = [(0, "spark"), (2, "changed"), (3, "spark"), (4, "spark")]
    rows += [(5, "spark")]
    assert rows_of(lake) == ours(session) == rows
    append(session, (6, "us"))
    lake.append("t", lake.spark.createDataFrame([(7, "lake")], "id long, who string"))
    rows += [(6, "us"), (7, "lake")]
    if feature not in APPENDED:
        lake.delete("t", "id = 3")
        lake.update("t", {"who": "'lake'"}, "id = 4")
        rows = [(0, "spark"), (2, "changed"), (4, "lake"), (5, "spark"), (6, "us"), (7, "lake")]
    assert spark.sql(ROWS) == rows
    spark.sql("DELETE FROM default.t WHERE id = 5")
    rows.remove((5, "spark"))
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == rows
    session.table("t").publish()
    session.table("t").checkpoint()
    spark.sql("INSERT INTO default.t VALUES (8, 'spark')")
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == [*rows, (8, "spark")]
    assert is_whole(server)


@pytest.mark.parametrize("feature", FEATURES)
def test_what_we_made_is_read_and_written_by_delta_spark(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake, feature: str
) -> None:
    session.create_table("t", "id long, who string", properties=FEATURES[feature])
    assert feature in effective(session.table("t").snapshot().protocol)
    append(session, *((number, "us") for number in range(4)))
    spark.sql("DELETE FROM default.t WHERE id = 1")
    spark.sql("UPDATE default.t SET who = 'spark' WHERE id = 2")
    lake.append("t", lake.spark.createDataFrame([(4, "lake")], "id long, who string"))
    spark.sql(
        "MERGE INTO default.t AS old USING (SELECT * FROM VALUES (4L, 'merged'), (5L, 'new')"
        " AS v(id, who)) AS new ON old.id = new.id WHEN MATCHED THEN UPDATE SET who = new.who"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    rows = [(0, "us"), (2, "spark"), (3, "us"), (4, "merged"), (5, "new")]
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == rows
    assert is_whole(server)


def test_all_of_them_at_once_across_a_checkpoint(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake
) -> None:
    spark.sql(f"CREATE TABLE default.t (id BIGINT, who STRING) USING delta {tblproperties(ALL)}")
    for number in range(6):
        append(session, (number + 100, "us"))
        spark.sql(f"INSERT INTO default.t VALUES ({number}, 'spark')")
    spark.sql("DELETE FROM default.t WHERE id IN (3, 103)")
    assert list(local(session, "t").glob("_delta_log/*10.checkpoint.*"))
    kept = [number for number in range(6) if number != 3]
    rows = [*((n, "spark") for n in kept), *((n + 100, "us") for n in kept)]
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == rows
    assert is_whole(server)


def test_a_clustered_table_keeps_its_columns_of_clustering(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake
) -> None:
    spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta CLUSTER BY (who)")
    spark.sql("INSERT INTO default.t VALUES (1, 'spark')")
    append(session, (2, "us"))
    lake.append("t", lake.spark.createDataFrame([(3, "lake")], "id long, who string"))
    rows = [(1, "spark"), (2, "us"), (3, "lake")]
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == rows
    assert "delta.clustering" in session.table("t").snapshot().domains
    spark.sql("ALTER TABLE default.t CLUSTER BY (id)")
    spark.sql("INSERT INTO default.t VALUES (4, 'spark')")
    detail = spark.ask(
        python="rows = spark.sql('DESCRIBE DETAIL default.t').select('clusteringColumns').collect()"
    )
    assert detail == [[["id"]]]
    assert spark.sql(ROWS) == rows_of(lake) == ours(session) == [*rows, (4, "spark")]
    spark.sql("ALTER TABLE default.t CLUSTER BY NONE")
    assert is_whole(server)


def test_columns_that_we_renamed_are_read_by_delta_spark(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake
) -> None:
    spark.sql(
        "CREATE TABLE default.t (id BIGINT, inner STRUCT<a: INT, b: STRING>, list ARRAY<INT>)"
        f" USING delta {tblproperties(FEATURES['columnMapping'])}"
    )
    spark.sql("INSERT INTO default.t VALUES (1, named_struct('a', 1, 'b', 'x'), array(1, 2))")
    session.table("t").rename_column("list", "numbers")
    session.table("t").rename_column(["inner", "a"], "first")
    spark.sql("INSERT INTO default.t VALUES (2, named_struct('first', 2, 'b', 'y'), array(3))")
    found = spark.sql("SELECT id, inner.first, numbers FROM default.t ORDER BY id")
    assert found == [(1, 1, [1, 2]), (2, 2, [3])]
    read = lake.read("t").selectExpr("id", "inner.first", "numbers").orderBy("id").collect()
    assert [tuple(row) for row in read] == found
    assert is_whole(server)


def test_types_come_and_go_as_they_are(
    spark: DeltaSpark, server: RunningServer, session: Session, lake: Lake
) -> None:
    spark.sql(
        "CREATE TABLE default.t (id BIGINT, i INT, s SMALLINT, f FLOAT, g DOUBLE, b BOOLEAN,"
        " d DECIMAL(10, 2), t STRING, y DATE, z TIMESTAMP, n TIMESTAMP_NTZ, x BINARY,"
        " a ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<x: INT, y: STRING>) USING delta"
    )
    spark.sql(
        "INSERT INTO default.t VALUES (1, 7, CAST(-3 AS SMALLINT), CAST(1.5 AS FLOAT), 2.25, true,"
        " 12.34, 'grün', DATE'2026-03-01', TIMESTAMP'2026-03-01 12:30:00',"
        " TIMESTAMP_NTZ'2026-03-01 12:30:00', X'00FF', array(1, 2, NULL), map('k', 1),"
        " named_struct('x', 5, 'y', 'in'))"
    )
    lake.append("t", lake.read("t").selectExpr("id + 1 AS id", "* EXCEPT (id)"))
    spark.sql("INSERT INTO default.t SELECT id + 2, * EXCEPT (id) FROM default.t")
    texts = "to_json(struct(* EXCEPT (id, x))), hex(x)"
    found = spark.sql(f"SELECT {texts} FROM default.t")
    assert len(found) == 4
    assert len(set(found)) == 1
    read = lake.read("t").selectExpr("to_json(struct(* EXCEPT (id, x)))", "hex(x)").collect()
    assert {tuple(row) for row in read} == set(found)
    arrow = session.table("t").to_arrow().drop(["id"]).to_pylist()
    assert all(row == arrow[0] for row in arrow)
    assert is_whole(server)
