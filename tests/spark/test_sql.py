"""SQL on the lake: the user's own words, tables pinned to one moment, errors at their place."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import LongType

from headgate.errors import (
    ConflictError,
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    SyntaxRefusedError,
    UnsupportedFeatureError,
)
from tests.spark.conftest import Water, listed, rows

MERGE = "MERGE INTO orders USING sales.customers s ON orders.id = s.id"


@pytest.fixture
def shop(water: Water) -> Water:
    return filled(water)


@pytest.fixture
def any_shop(any_water: Water) -> Water:
    """The same behind a server, too."""
    return filled(any_water)


def filled(water: Water) -> Water:
    """Two tables, one in a namespace of its own."""
    water.make("orders", "id long, customer long, amount decimal(10,2), day date", ["day"])
    water.session.create_namespace("sales")
    water.make("sales.customers", "id long, name string")
    water.lake.sql(
        """
        INSERT INTO orders VALUES
            (1, 10, 5.00, DATE'2026-01-01'), (2, 10, 7.50, DATE'2026-01-02'),
            (3, 11, 1.25, DATE'2026-01-02'), (4, 99, 2.00, NULL);
        INSERT INTO sales.customers VALUES (10, 'O''Brien; {x}'), (11, "Zoë -- no comment")
        """
    )
    return water


def test_queries_join_tables_nest_and_name_what_they_find(shop: Water) -> None:
    spent = shop.sql(
        """
        WITH spent AS (
            SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
        )
        SELECT c.id, string(s.total) FROM sales.customers c LEFT JOIN spent s ON c.id = s.customer
        WHERE c.id IN (SELECT customer FROM main.default.orders)
        """
    )
    assert spent == [(10, "12.50"), (11, "1.25")]
    assert shop.sql("SELECT count(*) FROM `orders` AS o, `sales`.`customers`") == [(8,)]
    assert shop.sql("SELECT orders.id FROM orders WHERE orders.day = '2026-01-02'") == [(2,), (3,)]
    assert shop.sql("FROM orders SELECT max(id)") == [(4,)]
    assert shop.sql("SELECT 1 UNION ALL SELECT count(*) FROM orders") == [(1,), (4,)]
    assert shop.sql("VALUES (1), (2)") == [(1,), (2,)]
    assert shop.sql("SELECT id FROM orders EXCEPT SELECT customer - 9 FROM orders") == [(3,), (4,)]
    assert shop.sql(
        "SELECT window.start, count(*) FROM (SELECT timestamp(day) ts FROM orders WHERE day IS NOT"
        " NULL) GROUP BY window(ts, '1 day')"
    ) == [(datetime(2026, 1, 1), 1), (datetime(2026, 1, 2), 2)]  # noqa: DTZ001 - as Spark gives it


def test_braces_quotes_and_comments_in_texts_stay_as_written(shop: Water) -> None:
    found = shop.sql(
        """SELECT '{orders}', "{{t0}}", 'it''s', r'\\d{2}', '-- orders', /* {x} orders */ name
           FROM sales.customers -- FROM orders {
           WHERE name LIKE '%{x}%'"""
    )
    assert found == [("{orders}", "{{t0}}", "it's", "\\d{2}", "-- orders", "O'Brien; {x}")]
    shop.sql("UPDATE sales.customers SET name = '{t0} ''' WHERE name = 'O''Brien; {x}'")
    shop.sql("DELETE FROM sales.customers WHERE name LIKE '%--%' AND id IN (SELECT 11 FROM orders)")
    assert shop.sql("SELECT * FROM sales.customers") == [(10, "{t0} '")]
    shop.sql(
        "MERGE INTO sales.customers USING (SELECT 12L id, '{}' name) s ON customers.id = s.id"
        " WHEN NOT MATCHED AND s.name = '{}' THEN INSERT (id, name) VALUES (s.id, '{' || s.name)"
    )
    assert shop.sql("SELECT name FROM sales.customers WHERE id = 12") == [("{{}",)]


def test_views_functions_and_tables_of_the_session_stand_beside_ours(shop: Water) -> None:
    spark = shop.spark
    spark.range(3).createOrReplaceTempView("numbers")
    spark.udf.register("plus_one", lambda n: n + 1, LongType())
    assert shop.sql("SELECT count(*) FROM orders JOIN numbers ON orders.id = numbers.id") == [(2,)]
    assert shop.sql("SELECT plus_one(id) FROM orders WHERE id = 1") == [(2,)]
    shop.sql("DELETE FROM orders WHERE id IN (SELECT id FROM numbers)")
    assert shop.sql("SELECT id FROM orders") == [(3,), (4,)]
    shop.sql("INSERT INTO orders (id) SELECT id + 100 FROM numbers")
    assert shop.sql("SELECT count(*) FROM orders") == [(5,)]
    # A view hides a table of ours that has its name, as it would one of Spark's.
    spark.range(7).createOrReplaceTempView("orders")
    assert shop.sql("SELECT count(*) FROM orders") == [(7,)]
    assert shop.sql("SELECT count(*) FROM default.orders") == [(5,)]
    for name in ("orders", "numbers"):
        spark.catalog.dropTempView(name)
    # Other statements go to Spark.
    shop.sql("CREATE TEMPORARY VIEW totals AS SELECT sum(amount) total FROM orders")
    assert spark.table("totals").count() == 1
    assert shop.sql("SELECT count(*) FROM totals CROSS JOIN orders") == [(5,)]
    spark.catalog.dropTempView("totals")
    shop.sql("SET spark.sql.shuffle.partitions = 3")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"


def test_rows_come_by_values_queries_names_and_partitions(any_shop: Water) -> None:
    shop = any_shop
    sql = shop.sql
    assert sql("INSERT INTO orders (amount, id) VALUES (9, 5), (DEFAULT, 6)") == [(2, 2)]
    assert sql("INSERT INTO orders BY NAME SELECT 7L AS id, DATE'2026-02-01' AS day") == [(1, 1)]
    assert sql("INSERT INTO orders SELECT id + 10, customer, amount, day FROM orders WHERE id = 1")
    assert sql("SELECT id, string(amount), string(day) FROM orders WHERE id > 4") == [
        (5, "9.00", None), (6, None, None), (7, None, "2026-02-01"), (11, "5.00", "2026-01-01"),
    ]  # fmt: skip
    sql("INSERT INTO orders PARTITION (day = DATE'2026-03-01') SELECT 12, 1, 1.5")
    assert sql("SELECT string(day) FROM orders WHERE id = 12") == [("2026-03-01",)]
    sql("INSERT OVERWRITE orders PARTITION (day = DATE'2026-01-02') VALUES (20, 20, 20)")
    assert sql("SELECT id FROM orders WHERE day = '2026-01-02'") == [(20,)]
    assert sql("SELECT count(*) FROM orders") == [(8,)]
    sql("INSERT INTO orders REPLACE WHERE id >= 11 SELECT 30, 3, 3, DATE'2026-01-05'")
    assert sql("SELECT id FROM orders WHERE id >= 11") == [(30,)]
    sql("INSERT OVERWRITE orders VALUES (1, 2, 3, NULL)")
    assert sql("SELECT * FROM orders") == sql("TABLE orders")
    assert sql("SELECT id, customer FROM orders") == [(1, 2)]
    assert sql("INSERT WITH SCHEMA EVOLUTION INTO orders BY NAME SELECT 2L id, 'new' note")
    assert sql("SELECT id, note FROM orders") == [(1, None), (2, "new")]
    evolving = "INSERT INTO orders WITH SCHEMA EVOLUTION SELECT 3, 1, 2, NULL, 'by place', 7"
    assert sql(f"{evolving} AS stars")  # columns after the table's are new ones
    assert sql("SELECT note, stars FROM orders WHERE id = 3") == [("by place", 7)]
    with pytest.raises(InvalidDataError, match="'id' is given twice"):
        sql(f"{evolving}, 8 AS id")


def test_an_overwrite_of_the_partition_of_nulls_replaces_it_and_no_other(shop: Water) -> None:
    sql = shop.sql
    before = sql("SELECT count(*) FROM orders WHERE day IS NOT NULL")
    sql("INSERT INTO orders VALUES (40, 1, 1, NULL)")
    for id_ in (41, 42):
        sql(f"INSERT OVERWRITE orders PARTITION (day = NULL) SELECT {id_}, 1, 1")
        assert sql("SELECT id FROM orders WHERE day IS NULL") == [(id_,)]
    assert sql("SELECT count(*) FROM orders WHERE day IS NOT NULL") == before


def test_an_overwrite_is_of_partitions_where_spark_is_set_so(shop: Water) -> None:
    brought = "INSERT OVERWRITE orders PARTITION (day) SELECT 30, 1, 1, DATE'2026-01-02'"
    shop.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        shop.lake.sql(brought)
    finally:
        shop.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert shop.sql("SELECT id FROM orders") == [(1,), (4,), (30,)]
    shop.lake.sql(brought)
    assert shop.sql("SELECT id FROM orders") == [(30,)]


def test_results_are_named_and_counted_as_people_know_them(shop: Water) -> None:
    lake = shop.lake
    inserted = lake.sql("INSERT INTO orders (id) VALUES (5)")
    assert inserted.columns == ["num_affected_rows", "num_inserted_rows"]
    assert lake.sql("DELETE FROM orders WHERE id > 3").first() == (2,)
    assert lake.sql("UPDATE orders SET amount = 0").columns == ["num_affected_rows"]
    merged = lake.sql("MERGE INTO orders o USING orders s ON o.id = s.id WHEN MATCHED THEN DELETE")
    assert merged.columns == [
        "num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows",
    ]  # fmt: skip
    assert merged.first() == (3, 0, 3, 0)
    assert lake.sql("SELECT 1; SELECT 2 AS two; ").columns == ["two"]
    with pytest.raises(InvalidArgumentError, match="no statement"):
        lake.sql(" -- nothing\n ; ")


def test_the_past_is_asked_by_version_and_by_time(any_shop: Water) -> None:
    shop = any_shop
    table = shop.session.table("orders")
    at = table.history(1)[0].timestamp_ms
    assert at is not None
    shop.sql("DELETE FROM orders WHERE id = 1")
    shop.sql("INSERT INTO sales.customers VALUES (12, 'later')")
    assert shop.sql("SELECT count(*) FROM orders VERSION AS OF 1") == [(4,)]
    assert shop.sql("SELECT count(*) FROM orders FOR VERSION AS OF 0") == [(0,)]
    moment = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert shop.sql(f"SELECT count(*) FROM orders TIMESTAMP AS OF '{moment}'") == [(4,)]
    assert shop.sql("SELECT count(*) FROM orders TIMESTAMP AS OF current_timestamp()") == [(3,)]
    assert shop.sql(
        "SELECT o.id FROM orders VERSION AS OF 1 AS o LEFT ANTI JOIN orders n ON o.id = n.id"
    ) == [(1,)]
    # Of several tables a moment is one cut: the order was there, the customer was not yet filled.
    assert shop.sql(
        f"SELECT count(*) FROM orders TIMESTAMP AS OF '{moment}'"
        f" UNION ALL SELECT count(*) + 100 FROM sales.customers TIMESTAMP AS OF '{moment}'"
    ) == [(4,), (100,)]
    # Whatever the time zone of the session.
    shop.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    there = datetime.fromtimestamp(at / 1000 + 9 * 3600, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert shop.sql(f"SELECT count(*) FROM orders TIMESTAMP AS OF '{there}'") == [(4,)]
    with pytest.raises(SyntaxRefusedError, match="not a valid time"):
        shop.sql("SELECT 1 FROM orders TIMESTAMP AS OF NULL")
    with pytest.raises(HeadgateError):
        shop.sql("SELECT 1 FROM orders VERSION AS OF 70")


def test_tables_of_one_statement_are_of_one_moment_and_stay_so(any_shop: Water) -> None:
    shop = any_shop
    frame = shop.lake.sql("SELECT id FROM orders UNION ALL SELECT id FROM sales.customers")
    past = shop.lake.sql("SELECT count(*) FROM orders")
    other = shop.other()
    other.append("orders", shop.frame("SELECT 50L id"))
    other.delete("sales.customers")
    first = rows(frame)
    assert first == [(1,), (2,), (3,), (4,), (10,), (11,)]
    other.overwrite("orders", shop.frame("SELECT 51L id"))
    assert rows(frame) == first
    assert rows(past) == [(4,)]
    assert shop.sql("SELECT id FROM orders") == [(51,)]


def test_the_time_is_one_for_the_whole_of_a_statement(shop: Water) -> None:
    shop.make("stamps", "id long, at timestamp, day date")
    shop.sql("INSERT INTO stamps VALUES (1, NULL, NULL), (2, NULL, NULL)")
    shop.sql("UPDATE stamps SET at = current_timestamp(), day = current_date")
    assert shop.sql("SELECT count(DISTINCT at), count(at), count(day) FROM stamps") == [(1, 2, 2)]
    frame = shop.lake.sql("SELECT now() AS t FROM stamps")
    assert frame.collect() == frame.collect()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue"])
def test_today_is_the_day_of_the_sessions_zone(water: Water, zone: str) -> None:
    """Of these two at least one has another day than UTC, whatever the time."""
    water.spark.conf.set("spark.sql.session.timeZone", zone)
    asked = "SELECT current_date(), date_trunc('HOUR', localtimestamp()), string(now())"
    [(day, hour, now)] = water.sql(asked)
    [(today, this_hour, at)] = rows(water.frame(asked))
    assert (day, hour) == (today, this_hour)
    assert now[:13] == at[:13]


@pytest.mark.parametrize("moment", ["'2026-01-02'", "TIMESTAMP'2026-01-02 00:00:00'"])
@pytest.mark.parametrize(("zone", "meant"), [("UTC", 1), ("Asia/Tokyo", 2), ("Etc/GMT+5", 3)])
def test_a_time_without_a_zone_is_one_of_the_sessions_zone_also_where_files_are_skipped(
    water: Water, zone: str, meant: int, moment: str
) -> None:
    water.make("moments", "id long, at timestamp")
    for id_, hour in ((1, "02 00"), (2, "01 15"), (3, "02 05")):  # each in a file of its own
        water.sql(f"INSERT INTO moments VALUES ({id_}, TIMESTAMP'2026-01-{hour}:00:00Z')")
    water.spark.conf.set("spark.sql.session.timeZone", zone)
    where = f"at = {moment}"
    assert water.sql(f"SELECT id FROM moments WHERE {where}") == [(meant,)]
    assert rows(water.lake.read("moments", where=where).select("id")) == [(meant,)]
    assert water.sql(f"UPDATE moments SET id = id + 10 WHERE {where}") == [(1,)]
    merge = (
        f"MERGE INTO moments USING (SELECT 1) ON {where} WHEN MATCHED THEN UPDATE SET id = id + 10"
    )
    assert water.sql(merge) == [(1, 1, 0, 0)]
    water.sql(f"INSERT INTO moments REPLACE WHERE {where} SELECT {meant}, {moment}")
    assert water.sql("SELECT id FROM moments") == [(1,), (2,), (3,)]
    assert water.sql(f"DELETE FROM moments WHERE {where}") == [(1,)]
    assert water.sql("SELECT id FROM moments") == [(id_,) for id_ in (1, 2, 3) if id_ != meant]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("SELEC 1", 1, 1, ""),
        ("SELECT id\nFROM orders\nWHERE nothing = 1", 3, 7, "nothing"),
        ("SELECT id FROM orders WHERE", 1, None, ""),
        ("SELECT no_such(id) FROM orders", 1, 8, "no_such"),
        ("SELECT 1;\n  DELETE FROM orders WHERE (id = 1", 2, None, ""),
        ("INSERT INTO orders (id) VALUES (1, 2)", 1, 33, "1 values are wanted"),
        ("INSERT INTO orders SELECT 1", 1, 13, "Table orders takes 4 columns"),
        ("INSERT INTO orders SELECT 1, 2, 3, NULL, 5", 1, 13, "Table orders takes 4 columns"),
        ("INSERT WITH SCHEMA EVOLUTION INTO orders SELECT 1", 1, 35, "Table orders takes 4"),
        ("SELECT * FROM orders, sales.customers WHERE name = broken", 1, 52, "broken"),
        ("UPDATE orders SET amount = nothing + 1", 1, 28, "nothing"),
        ("DELETE FROM orders\nWHERE nothing = 1", 2, 7, "nothing"),
        ("DELETE FROM orders WHERE id IN (SELECT x FROM sales.customers)", 1, 40, "x"),
        ("UPDATE orders SET id = (SELECT max(x) FROM sales.customers)", 1, 36, "x"),
        ("SELECT count(*) FROM orders@v1", 1, None, ""),
        ("INSERT INTO orders (id, customer) VALUES\n(DEFAULT, 1), (nothing, 2)", 2, 16, "nothing"),
        (f"{MERGE}\nWHEN MATCHED AND nothing = 1 THEN DELETE", 2, 18, "nothing"),
        (f"{MERGE} WHEN MATCHED THEN UPDATE SET\nid = 1,\namount = s.x + 1", 3, 10, "x"),
        (f"{MERGE}\nWHEN NOT MATCHED THEN INSERT (id) VALUES (orders.id)", 2, 43, "orders"),
        (f"{MERGE}\nWHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = s.id", 2, 49, "s"),
        (
            "MERGE INTO orders USING sales.customers s\nON s.x = orders.id WHEN MATCHED THEN"
            " DELETE",
            2,
            4,
            "x",
        ),
    ],
)
def test_errors_point_at_their_place_in_the_text(
    shop: Water, text: str, line: int, column: int | None, says: str
) -> None:
    with pytest.raises(SyntaxRefusedError) as raised:
        shop.lake.sql(text).collect()
    assert raised.value.line == line
    if column is not None:
        assert raised.value.column == column
    assert says in raised.value.message
    assert "^" in raised.value.message
    assert " pos " not in raised.value.message
    assert shop.session.table("orders").version == 1


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM absent",
        "UPDATE absent SET id = 1",
        "INSERT INTO absent VALUES (1)",
        "MERGE INTO absent USING orders ON true WHEN MATCHED THEN DELETE",
        "DESCRIBE absent",
        "ALTER TABLE absent SET TBLPROPERTIES ('a' = 'b')",
        "DROP TABLE absent",
    ],
)
def test_a_table_that_is_not_there_is_told(water: Water, text: str) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        water.lake.sql(text)
    with pytest.raises(SyntaxRefusedError, match="absent"):
        water.lake.sql("SELECT * FROM absent")


def test_a_namespace_that_does_not_exist_is_named(water: Water) -> None:
    with pytest.raises(NotFoundError, match=r"namespace main\.shop"):
        water.lake.sql("INSERT INTO shop.orders VALUES (1)")


def test_a_script_stops_where_it_fails_and_keeps_what_was_done(shop: Water) -> None:
    kept = listed(shop.session.table("sales.customers"))
    with pytest.raises(InvalidDataError):
        shop.sql(
            "DELETE FROM orders WHERE id = 1; INSERT INTO sales.customers VALUES ('x', 'y');"
            " DELETE FROM orders"
        )
    assert shop.sql("SELECT id FROM orders") == [(2,), (3,), (4,)]
    assert listed(shop.session.table("sales.customers")) == kept


def test_statements_that_cannot_be_done_yet_say_so(shop: Water) -> None:
    restore = "RESTORE orders TO VERSION AS OF 0"
    cluster = "ALTER TABLE orders CLUSTER BY (id)"
    drop = "ALTER TABLE orders DROP FEATURE deletionVectors"
    texts = ("OPTIMIZE orders", "VACUUM orders", restore)
    for text in (*texts, cluster, drop, "CREATE TABLE more (a int) CLUSTER BY (a)"):
        with pytest.raises(UnsupportedFeatureError, match="is not supported"):
            shop.lake.sql(text)
    assert shop.session.table("orders").version == 1


def test_conditions_prune_files_and_never_rows(water: Water) -> None:
    water.make("a", "id long, p int, s string", ["p"])
    water.make("b", "id long, p int")
    for p in range(4):
        water.lake.append(
            "a", water.frame(f"SELECT id + {10 * p} id, {p} p, '0{p}' s FROM range(0, 3, 1, 1)")
        )
    water.lake.append("b", water.frame("SELECT 11L id, 1 p UNION ALL SELECT 99, 7"))

    def files(text: str) -> int:
        return len(water.lake.sql(text).inputFiles())

    everything = {"a": water.lake.read("a"), "b": water.lake.read("b")}

    def found_without_skipping(text: str) -> list[tuple[object, ...]]:
        for name in everything:
            text = text.replace(f" {name} AS", f" {{{name}}} AS")
        return rows(water.spark.sql(text, **everything))

    assert files("SELECT * FROM a WHERE p = 1") == 1
    assert files("SELECT * FROM a WHERE id BETWEEN 10 AND 12 OR p = 3") == 2
    assert files("SELECT * FROM a WHERE s = 2") == 4
    for text in (
        "SELECT a.id, b.id FROM a AS a LEFT JOIN b AS b ON a.id = b.id WHERE a.p = 1",
        "SELECT a.id, b.id FROM a AS a LEFT JOIN b AS b ON a.id = b.id AND a.p = 1",
        "SELECT a.id, b.id FROM b AS b LEFT JOIN a AS a ON a.id = b.id AND a.p = 1",
        "SELECT a.id, b.id FROM b AS b LEFT JOIN a AS a ON a.id = b.id WHERE a.p IS NULL",
        "SELECT a.id, b.id FROM a AS a FULL JOIN b AS b ON a.id = b.id AND a.p = 1",
        "SELECT a.id, b.id FROM a AS a RIGHT JOIN b AS b ON a.id = b.id WHERE a.p = 1 OR b.p = 7",
        "SELECT b.id FROM b AS b LEFT ANTI JOIN a AS a ON a.id = b.id AND a.p > 1",
        "SELECT b.id FROM b AS b WHERE NOT EXISTS"
        " (SELECT 1 FROM a AS a WHERE a.id = b.id AND a.p = 1)",
        "SELECT b.id FROM b AS b WHERE b.p NOT IN (SELECT p FROM a AS a WHERE s = '01')",
        "SELECT a.id FROM a AS a WHERE s = 1 AND p = '1'",
        "SELECT p, count(*) FROM a AS a GROUP BY p HAVING p = 2 OR count(*) = 3",
        "SELECT * FROM (SELECT *, row_number() OVER (ORDER BY id) r FROM a AS a) WHERE p = 3",
        "SELECT * FROM (SELECT * FROM a AS a ORDER BY id LIMIT 4) WHERE p = 1",
        "SELECT id FROM a AS a WHERE NOT (p = 1 OR id < 5)",
        "SELECT id FROM a AS a WHERE p <=> NULL OR s > '02'",
    ):
        assert water.sql(text) == found_without_skipping(text), text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM orders",
        "select COUNT(1) as n from main.default.orders o",
        "SELECT count(*) `n n` FROM orders VERSION AS OF 1 AS o",
    ],
)
def test_rows_are_counted_from_the_log_as_spark_counts_them(any_shop: Water, text: str) -> None:
    any_shop.lake.sql("ALTER TABLE orders SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    any_shop.lake.sql("DELETE FROM orders WHERE id = 2")
    shown = any_shop.lake.sql(text)
    # A condition that is true of every row keeps Spark at counting.
    counted = any_shop.lake.sql(f"{text} WHERE id IS NOT NULL")
    assert rows(shown) == rows(counted)
    assert rows(shown) == [(4 if "VERSION" in text else 3,)]
    assert [(f.name, f.dataType, f.nullable) for f in shown.schema] == [
        (f.name, f.dataType, f.nullable) for f in counted.schema
    ]
    assert len(shown.inputFiles()) == 1 < len(counted.inputFiles())


def test_rows_are_counted_from_the_log_though_every_file_has_deleted_ones(water: Water) -> None:
    water.make("t", "id long")
    water.lake.append("t", water.frame("SELECT id FROM range(0, 6, 1, 3)"))
    water.lake.sql("ALTER TABLE t SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    water.lake.sql("DELETE FROM t WHERE id IN (0, 2, 5)")
    shown = water.lake.sql("SELECT count(*) FROM t")
    assert rows(shown) == water.sql("SELECT count(*) FROM t WHERE id >= 0") == [(3,)]
    assert len(shown.inputFiles()) == 1
    water.lake.sql("DELETE FROM t WHERE id IN (1, 4)")
    assert water.sql("SELECT count(*) FROM t") == [(1,)]


def test_rows_are_counted_in_files_where_the_log_does_not_tell(water: Water) -> None:
    water.make("t", "id long")
    assert water.sql("SELECT count(*) FROM t") == [(0,)]
    water.lake.append("t", water.frame("SELECT id FROM range(0, 5, 1, 2)"))
    assert water.sql("SELECT count(*) FROM t") == [(5,)]
    water.spark.sql("SELECT 1 AS id").createOrReplaceTempView("t")
    try:
        assert water.sql("SELECT count(*) FROM t") == [(1,)]
    finally:
        water.spark.catalog.dropTempView("t")


def test_who_writes_a_count_has_read_the_table(water: Water) -> None:
    water.make("t", "id long")
    water.lake.append("t", water.frame("SELECT 7L AS id"))
    counted = water.lake.sql("SELECT count(*) AS id FROM t")
    water.lake.append("t", counted)
    assert not water.session.table("t").history(1)[0].is_blind_append
    counted = water.lake.sql("SELECT count(*) AS id FROM t")
    water.other().delete("t", "id = 7")
    with pytest.raises(ConflictError):
        water.lake.overwrite("t", counted)
    assert water.sql("SELECT id FROM t") == [(1,)]


def test_other_tables_are_read_as_of_now_however_long_the_target_stayed_as_it_is(
    any_water: Water,
) -> None:
    """A session remembers what it saw of a table; not when."""
    water = any_water
    water.make("raw", "id long")
    water.make("fine", "id long")
    assert water.rows("fine") == []
    water.lake.append("raw", water.frame("SELECT 1L AS id"))
    water.other().append("raw", water.frame("SELECT 2L AS id"))
    water.lake.sql("INSERT INTO fine SELECT id FROM raw")
    assert water.rows("fine") == [(1,), (2,)]
    water.other().append("raw", water.frame("SELECT 3L AS id"))
    water.lake.sql("DELETE FROM fine WHERE id + 1 IN (SELECT id FROM raw)")
    assert water.rows("fine") == []
