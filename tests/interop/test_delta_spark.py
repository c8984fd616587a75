"""delta-spark with the Unity Catalog connector, unmodified, beside clients of our own."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import headgate
from headgate.client.session import Session
from tests.interop.conftest import (
    CONNECTOR,
    ROOT,
    DeltaSpark,
    RefusedByEngine,
    append,
    documented,
    is_whole,
    local,
    ours,
)
from tests.kit import req, shows
from tests.kit.proxy import Fault, HttpProxy, Request
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]
ROWS = "SELECT * FROM default.t ORDER BY id"


@pytest.fixture
def spark(delta_spark: DeltaSpark, server: RunningServer) -> DeltaSpark:
    return delta_spark.use(server.address)


# The page


def test_the_page_is_run_as_it_stands(spark: DeltaSpark, session: Session) -> None:
    session.create_table("orders", "id long, item string")
    spark.ask(python=documented("delta-spark")[1].replace(".show()", ".collect()"))
    assert ours(session, "orders") == [(1, "chair")]


def test_the_page_names_what_is_tested() -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    assert f"pip install pyspark=={pyspark.__version__}\n" in page
    assert CONNECTOR in documented("delta-spark")[0]


# Statements


def test_a_table_is_made_filled_across_a_checkpoint_and_changed(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta")
    rows: list[tuple[Any, ...]] = []
    for number in range(12):
        spark.sql(f"INSERT INTO default.t VALUES ({number}, 'spark')")
        rows.append((number, "spark"))
        assert ours(session) == rows
    assert session.table("t").version == 12
    assert list(local(session, "t").glob("_delta_log/*.checkpoint*"))
    append(session, (12, "us"))
    assert spark.sql(ROWS) == [*rows, (12, "us")]
    spark.sql("UPDATE default.t SET who = 'changed' WHERE id = 3")
    spark.sql("DELETE FROM default.t WHERE id > 3 AND id < 12")
    spark.sql(
        "MERGE INTO default.t AS old USING (SELECT * FROM VALUES (12L, 'merged'), (13L, 'new')"
        " AS v(id, who)) AS new ON old.id = new.id WHEN MATCHED THEN UPDATE SET who = new.who"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    rows = [
        *((number, "spark") for number in range(3)),
        (3, "changed"),
        (12, "merged"),
        (13, "new"),
    ]
    assert spark.sql(ROWS) == rows
    assert ours(session) == rows
    assert session.table("t").version == 16
    assert is_whole(server)


def test_what_a_query_gives_becomes_a_table_with_a_history(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql(
        "CREATE TABLE default.t USING delta PARTITIONED BY (day)"
        " AS SELECT id, CAST(id % 2 AS STRING) AS day FROM range(4)"
    )
    assert ours(session) == [(0, "0"), (1, "1"), (2, "0"), (3, "1")]
    append(session, (4, "0"))
    spark.sql("DELETE FROM default.t WHERE day = '1'")
    assert spark.sql(ROWS) == [(0, "0"), (2, "0"), (4, "0")]
    history = spark.sql("DESCRIBE HISTORY default.t")
    assert [(row[0], row[4]) for row in history] == [
        (2, "DELETE"),
        (1, "WRITE"),
        (0, "CREATE TABLE AS SELECT"),
    ]
    assert spark.sql("SELECT count(*) FROM default.t VERSION AS OF 0") == [(4,)]
    assert spark.sql("SELECT count(*) FROM default.t VERSION AS OF 1") == [(5,)]
    [(_, when)] = [(row[0], row[1]) for row in history if row[0] == 1]
    [(count,)] = spark.sql(f"SELECT count(*) FROM default.t TIMESTAMP AS OF '{when}'")
    assert count == 5
    versions = [entry.version for entry in session.table("t").history()]
    assert sorted(versions) == [0, 1, 2]
    assert is_whole(server)


def test_schemas_and_tables_are_made_shown_and_dropped(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql("CREATE SCHEMA main.sales")
    spark.sql("CREATE SCHEMA IF NOT EXISTS main.sales")
    assert ("sales",) in spark.sql("SHOW SCHEMAS IN main")
    spark.sql("CREATE TABLE main.sales.t (id BIGINT) USING delta")
    session.create_table("sales.u", "id long")
    shown = spark.sql("SHOW TABLES IN main.sales")
    assert sorted(row[:2] for row in shown) == [("sales", "t"), ("sales", "u")]
    details = spark.sql("DESCRIBE DETAIL main.sales.t")
    assert details[0][0] == "delta"
    spark.sql("DROP TABLE main.sales.t")
    spark.sql("DROP TABLE main.sales.u")
    assert spark.sql("SHOW TABLES IN main.sales") == []
    assert session.tables("sales") == ()
    with pytest.raises(RefusedByEngine, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM main.sales.t")
    spark.sql("DROP SCHEMA main.sales")
    assert ("sales",) not in spark.sql("SHOW SCHEMAS IN main")
    assert is_whole(server)


def test_columns_properties_comments_and_rules_are_altered(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta COMMENT 'first'")
    spark.sql("INSERT INTO default.t VALUES (1, 'a')")
    spark.sql("ALTER TABLE default.t ADD COLUMN more INT COMMENT 'later'")
    spark.sql("INSERT INTO default.t VALUES (2, 'b', 7)")
    assert ours(session)[1] == (2, "b", 7)
    spark.sql("ALTER TABLE default.t SET TBLPROPERTIES ('gone' = 'soon', 'kept' = 'yes')")
    spark.sql("ALTER TABLE default.t UNSET TBLPROPERTIES ('gone')")
    configuration = session.table("t").snapshot().metadata.configuration
    assert (configuration.get("gone"), configuration.get("kept")) == (None, "yes")
    spark.sql("COMMENT ON TABLE default.t IS 'second'")
    assert session.table("t").snapshot().metadata.description == "second"
    spark.sql("COMMENT ON TABLE default.t IS NULL")
    assert not session.table("t").snapshot().metadata.description
    spark.sql("ALTER TABLE default.t ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(RefusedByEngine, match="positive"):
        spark.sql("INSERT INTO default.t VALUES (-1, 'c', 7)")
    with pytest.raises(headgate.errors.HeadgateError):
        session.table("t").append(pa.table({"id": [-2], "who": ["us"], "more": [1]}))
    spark.sql("ALTER TABLE default.t DROP CONSTRAINT positive")
    spark.sql("INSERT INTO default.t VALUES (-1, 'c', 7)")
    assert ours(session)[0] == (-1, "c", 7)
    assert is_whole(server)


def test_columns_are_dropped_where_they_are_mapped(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql(
        "CREATE TABLE default.t (id BIGINT, gone STRING, who STRING) USING delta"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql("INSERT INTO default.t VALUES (1, 'x', 'spark')")
    spark.sql("ALTER TABLE default.t DROP COLUMN gone")
    append(session, (2, "us"))
    spark.sql("INSERT INTO default.t VALUES (3, 'spark')")
    rows = [(1, "spark"), (2, "us"), (3, "spark")]
    assert spark.sql(ROWS) == rows
    assert ours(session) == rows
    assert is_whole(server)


@pytest.mark.parametrize("maker", ["spark", "us"])
def test_a_table_is_replaced_and_stays_the_same_one(
    spark: DeltaSpark, server: RunningServer, session: Session, maker: str
) -> None:
    if maker == "spark":
        spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta COMMENT 'first'")
    else:
        session.create_table("t", "id long, who string", comment="first")
    spark.sql("INSERT INTO default.t VALUES (1, 'a')")
    before = session.table("t")
    metadata = before.snapshot().metadata
    # delta-spark gives the log an id of its own choosing; it may not change later.
    assert (metadata.id == before.id) is (maker == "us")
    spark.sql("CREATE OR REPLACE TABLE default.t (id BIGINT, other DOUBLE) USING delta")
    assert spark.sql(ROWS) == []
    spark.sql(
        "CREATE OR REPLACE TABLE default.t USING delta COMMENT 'again'"
        " AS SELECT id, id / 2 AS other, 'x' AS third FROM range(3)"
    )
    rows = [(0, 0.0, "x"), (1, 0.5, "x"), (2, 1.0, "x")]
    assert spark.sql(ROWS) == rows
    assert ours(session) == rows
    after = session.table("t")
    assert (after.id, after.location, after.version) == (before.id, before.location, 3)
    assert after.snapshot().metadata.description == "again"
    assert after.snapshot().metadata.id == metadata.id
    append(session, (3, 1.5, "us"))
    assert spark.sql(ROWS) == [*rows, (3, 1.5, "us")]
    assert spark.sql("SELECT * FROM default.t VERSION AS OF 1") == [(1, "a")]
    assert is_whole(server)


def test_rows_as_they_were_are_restored(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta")
    spark.sql("INSERT INTO default.t VALUES (1, 'a'), (2, 'b')")
    spark.sql("DELETE FROM default.t WHERE id = 1")
    append(session, (3, "us"))
    spark.sql("RESTORE TABLE default.t TO VERSION AS OF 1")
    assert spark.sql(ROWS) == [(1, "a"), (2, "b")]
    assert ours(session) == [(1, "a"), (2, "b")]
    assert is_whole(server)


NOT_FOR_CATALOGS = "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("OPTIMIZE default.t", NOT_FOR_CATALOGS),
        ("VACUUM default.t", NOT_FOR_CATALOGS),
        ("REORG TABLE default.t APPLY (PURGE)", NOT_FOR_CATALOGS),
        ("ALTER TABLE default.t RENAME TO default.other", "not supported"),
    ],
)
def test_what_it_does_itself_not_do_leaves_the_table_as_it_was(
    delta_spark: DeltaSpark, server: RunningServer, session: Session, statement: str, says: str
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    with HttpProxy(("127.0.0.1", server.port)) as proxy:
        spark = delta_spark.use(proxy.address)
        with pytest.raises(RefusedByEngine, match=says):
            spark.sql(statement)
        assert proxy.statuses("POST", "/tables/t") == []
        assert (session.table("t").version, spark.sql(ROWS)) == (1, [(1, "us")])
    assert is_whole(server)


ID, TIMES = "io.unitycatalog.tableId", "delta.enableInCommitTimestamps"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (f"SET TBLPROPERTIES ('{ID}' = '00000000-0000-0000-0000-000000000000')", ID),
        (f"UNSET TBLPROPERTIES ('{ID}')", ID),
        (
            f"SET TBLPROPERTIES ('{TIMES}' = 'false')",
            f"DELTA_CANNOT_MODIFY_CATALOG_MANAGED_DEPENDENCIES|{TIMES}",
        ),
    ],
)
def test_what_makes_it_this_table_cannot_be_altered(
    delta_spark: DeltaSpark, server: RunningServer, session: Session, change: str, says: str
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    with HttpProxy(("127.0.0.1", server.port)) as proxy:
        spark = delta_spark.use(proxy.address)
        with pytest.raises(RefusedByEngine, match=says):
            spark.sql(f"ALTER TABLE default.t {change}")
        # It refuses by itself, or is refused once and for all.
        assert proxy.statuses("POST", "/tables/t") in ([], [400])
        spark.sql("INSERT INTO default.t VALUES (2, 'spark')")
        assert ours(session) == spark.sql(ROWS) == [(1, "us"), (2, "spark")]
    assert is_whole(server)


def test_an_external_table_is_named_and_written_where_it_lies(
    spark: DeltaSpark, server: RunningServer, session: Session, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    with pytest.raises(RefusedByEngine, match="registered location"):
        spark.sql(f"CREATE TABLE default.t (id BIGINT) USING delta LOCATION '{place}'")
    with headgate.connect(server.store, publisher=False) as store:
        store.add_location(place)
    spark.sql(f"CREATE TABLE default.t (id BIGINT, who STRING) USING delta LOCATION '{place}'")
    spark.sql("INSERT INTO default.t VALUES (1, 'spark')")
    assert spark.sql(ROWS) == [(1, "spark")]
    assert headgate.open(str(place)).to_arrow().to_pylist() == [{"id": 1, "who": "spark"}]
    spark.sql("DROP TABLE default.t")
    assert (place / "_delta_log").is_dir()
    assert is_whole(server)


# Many at once


def test_writers_at_once_lose_no_row(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")

    def us() -> None:
        with headgate.connect(server.address) as own:
            for turn in range(20):
                append(own, (300 + turn, "us"))

    thread = threading.Thread(target=us)
    thread.start()
    spark.ask(
        python="""
from concurrent.futures import ThreadPoolExecutor
def write(writer):
    own = spark.newSession()
    for key in ("uri", "token"):
        key = "spark.sql.catalog.main." + key
        own.conf.set(key, spark.conf.get(key))
    for turn in range(6):
        own.sql(f"INSERT INTO default.t VALUES ({writer * 100 + turn}, 'spark')")
with ThreadPoolExecutor(2) as pool:
    list(pool.map(write, (1, 2)))
"""
    )
    thread.join()
    rows: list[tuple[Any, ...]] = [
        (writer * 100 + turn, "spark") for writer in (1, 2) for turn in range(6)
    ]
    rows += [(300 + turn, "us") for turn in range(20)]
    assert spark.sql(ROWS) == rows
    assert ours(session) == rows
    assert session.table("t").version == len(rows)
    assert is_whole(server)


STREAM = """
from pyspark.sql.types import LongType, StringType, StructType
wanted = StructType().add("id", LongType()).add("who", StringType())
(
    spark.readStream.schema(wanted).option("maxFilesPerTrigger", 1).json({source!r})
    .writeStream.format("delta").option("checkpointLocation", {checkpoint!r})
    .trigger(availableNow=True).toTable("default.t").awaitTermination()
)
"""
FOLLOW = """
(
    spark.readStream.option("maxFilesPerTrigger", 1).table("default.t")
    .writeStream.format("delta").option("checkpointLocation", {checkpoint!r})
    .trigger(availableNow=True).toTable("default.copy").awaitTermination()
)
"""


def test_streams_write_and_read_each_row_once(
    spark: DeltaSpark, server: RunningServer, session: Session, tmp_path: Path
) -> None:
    session.create_table("t", "id long, who string")
    session.create_table("copy", "id long, who string")
    source = tmp_path / "source"
    source.mkdir()
    out = STREAM.format(source=str(source), checkpoint=str(tmp_path / "out"))
    back = FOLLOW.format(checkpoint=str(tmp_path / "back"))
    rows: list[tuple[Any, ...]] = []
    for batch in range(3):
        (source / f"{batch}.json").write_text(f'{{"id": {batch * 10}, "who": "stream"}}\n')
        spark.ask(python=out)
        append(session, (batch * 10 + 1, "us"))
        rows += [(batch * 10, "stream"), (batch * 10 + 1, "us")]
        spark.ask(python=back)
        assert ours(session) == rows
        assert ours(session, "copy") == rows
    spark.ask(python=out)
    spark.ask(python=back)
    assert ours(session, "copy") == rows
    assert is_whole(server)


# Lost answers


@shows("FC9")
@pytest.mark.parametrize("place", ["ratifier.after_commit", "server.before_answer"])
def test_a_server_killed_between_ratifying_and_answering_gives_no_row_twice(
    delta_spark: DeltaSpark, tmp_path: Path, place: str
) -> None:
    hit: list[Request] = []
    with RunningServer(str(tmp_path / "lake")) as server:
        armed = threading.Event()

        def watch(request: Request) -> Fault:
            if request.method == "POST" and request.path.endswith("/tables/t"):
                hit.append(request)
                if len(hit) == 1:
                    server.kill()
                    server.start({"HEADGATE_FAIL": f"{place}:kill"})
                    armed.set()
            return Fault.PASS

        with headgate.connect(server.address) as session:
            session.create_table("t", "id long, who string")
            append(session, (0, "us"))
        with HttpProxy(("127.0.0.1", server.port), watch) as proxy:
            spark = delta_spark.use(proxy.address)
            ratified: list[int] = []
            killed = threading.Thread(target=_heal, args=(server, armed, ratified))
            killed.start()
            spark.sql("INSERT INTO default.t VALUES (1, 'spark')")
            killed.join()
            assert ratified == [2]  # before the one that answers was there
            spark.sql("INSERT INTO default.t VALUES (2, 'spark')")
            rows = [(0, "us"), (1, "spark"), (2, "spark")]
            assert spark.sql(ROWS) == rows
        assert len(hit) >= 3  # the one that was lost came again
        with headgate.connect(server.address) as session:
            assert ours(session) == rows
            assert session.table("t").version == 3
        assert is_whole(server)


def _heal(server: RunningServer, armed: threading.Event, ratified: list[int]) -> None:
    """Wait until the server died at its fail point, check, and start it again."""
    assert armed.wait(60)
    first = server.workers
    deadline = time.monotonic() + 60
    while server.workers == first and time.monotonic() < deadline:
        time.sleep(0.01)
    server.kill()
    with headgate.connect(server.store, publisher=False) as session:
        ratified.append(session.table("t").version)
    server.start()


@req("CA-04")
@shows("FC4", "FC7", "FX4")
@pytest.mark.parametrize(
    "fault", [Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.CUT_ANSWER, Fault.DOUBLE, Fault.ANSWER_503]
)
def test_a_commit_whose_request_or_answer_is_lost_is_there_once(
    delta_spark: DeltaSpark, server: RunningServer, session: Session, fault: Fault
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (0, "us"))
    hit: list[str] = []

    def once(request: Request) -> Fault:
        if request.method == "POST" and request.path.endswith("/tables/t") and not hit:
            hit.append(request.path)
            return fault
        return Fault.PASS

    with HttpProxy(("127.0.0.1", server.port), once) as proxy:
        spark = delta_spark.use(proxy.address)
        spark.sql("INSERT INTO default.t VALUES (1, 'spark')")
        assert hit
        assert spark.sql(ROWS) == [(0, "us"), (1, "spark")]
    assert ours(session) == [(0, "us"), (1, "spark")]
    assert session.table("t").version == 2
    assert is_whole(server)


def test_a_table_whose_creation_was_answered_to_nobody_is_there_whole(
    delta_spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    hit: list[str] = []

    def once(request: Request) -> Fault:
        if request.method == "POST" and request.path.endswith("/tables") and not hit:
            hit.append(request.path)
            return Fault.DROP_AFTER
        return Fault.PASS

    made = "CREATE TABLE default.t USING delta AS SELECT id, 'spark' AS who FROM range(2)"
    with HttpProxy(("127.0.0.1", server.port), once) as proxy:
        spark = delta_spark.use(proxy.address)
        with pytest.raises(RefusedByEngine, match="Failed to create table"):
            spark.sql(made)  # it does not send it again, and does not know
        assert hit
        with pytest.raises(RefusedByEngine, match="ALREADY_EXISTS"):
            spark.sql(made)
        spark.sql("INSERT INTO default.t VALUES (2, 'spark')")
    assert ours(session) == [(0, "spark"), (1, "spark"), (2, "spark")]
    assert is_whole(server)


# The older dialect


@req("CA-04")
def test_the_older_dialect_serves_it_too(
    delta_spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    spark = delta_spark.use(server.address, **{"deltaRestApi.enabled": "false"})
    spark.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta")
    rows: list[tuple[Any, ...]] = []
    for number in range(12):
        spark.sql(f"INSERT INTO default.t VALUES ({number}, 'spark')")
        rows.append((number, "spark"))
    append(session, (12, "us"))
    assert spark.sql(ROWS) == [*rows, (12, "us")]
    spark.sql("UPDATE default.t SET who = 'changed' WHERE id = 0")
    spark.sql("DELETE FROM default.t WHERE id > 0 AND id < 12")
    spark.sql("ALTER TABLE default.t ADD COLUMN more INT")
    spark.sql("INSERT INTO default.t VALUES (13, 'spark', 7)")
    rows = [(0, "changed", None), (12, "us", None), (13, "spark", 7)]
    assert spark.sql(ROWS) == rows
    assert ours(session) == rows
    spark.sql("RESTORE TABLE default.t TO VERSION AS OF 12")
    assert len(ours(session)) == 12
    spark.sql("DROP TABLE default.t")
    assert session.tables("default") == ()
    assert is_whole(server)


# By path


def test_by_its_path_it_refuses_the_table(
    spark: DeltaSpark, server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    session.table("t").publish()
    location = session.table("t").location
    before = sorted(path.name for path in local(session, "t").glob("_delta_log/*.json"))
    for statement in (
        f"SELECT * FROM delta.`{location}`",
        f"INSERT INTO delta.`{location}` VALUES (2, 'spark')",
    ):
        with pytest.raises(RefusedByEngine, match=re.compile("catalog.?managed", re.IGNORECASE)):
            spark.sql(statement)
    assert sorted(path.name for path in local(session, "t").glob("_delta_log/*.json")) == before
    assert is_whole(server)
