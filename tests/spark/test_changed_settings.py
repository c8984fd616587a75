"""Settings of the session that change between statements: results and files stay the same.

What is stored does not depend on the session; a setting that nothing in a plan can override is
refused by the next statement, and named.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headgate.errors import InvalidArgumentError, InvalidDataError
from headgate.spark import Lake, sessions
from headgate.spark.merge import Clause, Do, When
from headgate.spark.sessions import SETTINGS, Use
from headgate.storage.locations import decode
from tests.spark.conftest import Water, local, rows

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
REFUSED = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "true",
}
HELD = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.writeLegacyFormat": "true",
}
# Settings that nothing of ours depends on, at values that would show it.
IGNORED = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.validatePartitionColumns": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.recordLevelFilter.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "false",
    "spark.sql.legacy.nullInEmptyListBehavior": "true",
    "spark.sql.legacy.raiseErrorWithoutErrorClass": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
}

SCHEMA = (
    "id int, small tinyint, exact decimal(10,8), d date, ts timestamp, ntz timestamp_ntz, b binary,"
    " st struct<a: int, t: timestamp>, xs array<int>, m map<string,int>, s string, v variant,"
    " p decimal(9,8), q timestamp"
)
ROW = (
    "SELECT 1L id, 2L small, 0.00000001BD exact, date'1500-02-03' d,"
    " timestamp'1500-02-03 04:05:06.123456Z' ts, timestamp_ntz'1500-02-03 04:05:06.123456' ntz,"
    " X'FF00' b, struct(3L AS a, timestamp'2020-03-29 01:30:00.000001Z' AS t) st, array(4L) xs,"
    " map('k', 5L) m, 0.00000001BD s, parse_json('{\"a\": [1, 2.5]}') v,"
    " 0.00000001BD p, timestamp'2020-11-01 05:30:00.000001Z' q"
)
# As texts, which no zone of this machine changes.
SHOWN = (
    "id, small, exact, string(d), unix_micros(ts), string(ntz), hex(b), st.a, unix_micros(st.t),"
    " xs, m['k'], s, to_json(v), p, unix_micros(q)"
)
STORED = (
    1,
    2,
    Decimal("1E-8"),
    "1500-02-03",
    -14828903693876544,
    "1500-02-03 04:05:06.123456",
    "FF00",
    3,
    1585445400000001,
    [4],
    5,
    "0.00000001",
    '{"a":[1,2.5]}',
    Decimal("1E-8"),
    1604208600000001,
)


def change(water: Water, values: dict[str, str]) -> None:
    for key, value in values.items():
        water.spark.conf.set(key, value)


def restore(water: Water, before: dict[str, str], values: dict[str, str]) -> None:
    for key in values:
        if key in before:
            water.spark.conf.set(key, before[key])
        else:
            water.spark.conf.unset(key)


def every_setting() -> list[dict[str, str]]:
    """Give all settings at once, and when there is time each alone."""
    together = {**IGNORED, **HELD}
    return [together, *({key: value} for key, value in together.items() if IS_LONG)]


@pytest.mark.parametrize("changed", every_setting(), ids=lambda v: next(iter(v)) + f"-{len(v)}")
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_every_type_is_stored_and_read_the_same_under_changed_settings(
    water: Water, changed: dict[str, str], mapping: str
) -> None:
    frame = water.frame(ROW)
    table = water.make("t", SCHEMA, ["p", "q"], delta__columnMapping__mode=mapping)
    water.make("plain", SCHEMA, ["p", "q"], delta__columnMapping__mode=mapping)
    water.lake.append("plain", frame)
    before = dict(water.spark.conf.getAll)
    change(water, changed)
    water.lake.append("t", frame)
    read = water.lake.read("t").selectExpr(*_split(SHOWN))
    found = rows(read)
    restore(water, before, changed)
    assert found == [STORED]
    assert rows(read) == [STORED]  # a plan outlives the settings it was made under
    assert rows(water.lake.read("t").selectExpr(*_split(SHOWN))) == [STORED]
    [ours], [same] = water.files("t"), water.files("plain")
    assert [*ours.partition_values.values()] == [*same.partition_values.values()]
    stored = pq.ParquetFile(local(table) / decode(ours.path))
    expected = pq.ParquetFile(local(water.session.table("plain")) / decode(same.path))
    if mapping == "none":  # physical names are random
        assert stored.schema.equals(expected.schema)
    else:
        assert _ids(stored) == _ids(expected)
    assert not {key for key in stored.metadata.metadata or {} if b"legacy" in key}


def _ids(file: pq.ParquetFile) -> list[int]:
    return [file.schema_arrow.field(n).metadata[b"PARQUET:field_id"] for n in range(12)]


def _split(columns: str) -> list[str]:
    return [column.strip() for column in columns.split(", ") if column.strip()]


def test_settings_are_the_users_own_again_after_a_write(water: Water) -> None:
    table = water.make("t", "id int")
    change(water, HELD)
    water.lake.append("t", water.frame("SELECT 1 id"))
    assert {key: water.spark.conf.get(key) for key in HELD} == HELD
    assert table.snapshot().num_rows == 1


# Assignments


TOO_LARGE: dict[str, Callable[[Lake, Water], Any]] = {
    "insert values": lambda lake, _: lake.sql("INSERT INTO n VALUES (5000000000, 1)"),
    "insert select": lambda lake, _: lake.sql("INSERT INTO n SELECT id * 5000000000, 1 FROM n"),
    "insert by name": lambda lake, _: lake.sql("INSERT INTO n BY NAME SELECT 5000000000 id"),
    "insert overwrite": lambda lake, _: lake.sql("INSERT OVERWRITE n VALUES (5000000000, 1)"),
    "insert partition": lambda lake, _: lake.sql(
        "INSERT INTO n PARTITION (p = 5000000000) VALUES (1)"
    ),
    "overwrite partition": lambda lake, _: lake.sql(
        "INSERT OVERWRITE n PARTITION (p = 5000000000) VALUES (1)"
    ),
    "replace where": lambda lake, _: lake.sql(
        "INSERT INTO n REPLACE WHERE p = 1 VALUES (5000000000, 1)"
    ),
    "update": lambda lake, _: lake.sql("UPDATE n SET id = 5000000000"),
    "update partition": lambda lake, _: lake.update("n", {"p": "5000000000"}, "id = 1"),
    "merge update": lambda lake, _: lake.sql(
        "MERGE INTO n USING (SELECT 1 id) s ON n.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = 5000000000"
    ),
    "merge insert": lambda lake, water: lake.merge(
        "n",
        water.frame("SELECT 5000000000 id, 1 p"),
        "target.id = source.id",
        [Clause(When.NOT_MATCHED, Do.INSERT)],
    ),
    "append": lambda lake, water: lake.append("n", water.frame("SELECT 5000000000 id, 1 p")),
    "overwrite": lambda lake, water: lake.overwrite("n", water.frame("SELECT 1e10D id, 1 p")),
    "overwrite where": lambda lake, water: lake.overwrite(
        "n", water.frame("SELECT 5000000000 id, 1 p"), where="p = 1"
    ),
    "dynamic overwrite": lambda lake, water: lake.overwrite(
        "n", water.frame("SELECT double('NaN') id, 1 p"), dynamic=True
    ),
    "struct": lambda lake, water: lake.append("x", water.frame("SELECT struct(5000000000 a) st")),
    "array": lambda lake, water: lake.append("x", water.frame("SELECT array(1, 5000000000) xs")),
    "map": lambda lake, water: lake.append("x", water.frame("SELECT map(1L, 5000000000) m")),
    "map key": lambda lake, water: lake.append("x", water.frame("SELECT map(5000000000, 1) m")),
    "text": lambda lake, water: lake.append("x", water.frame("SELECT 'soon' d")),
    "decimal": lambda lake, water: lake.append("x", water.frame("SELECT 123.45 e")),
    "default": lambda lake, _: lake.sql("INSERT INTO g (id) VALUES (1)"),
    "generated": lambda lake, _: lake.sql("INSERT INTO g (id, x) VALUES (2000000000, 1)"),
    "merge generated": lambda lake, _: lake.sql("UPDATE g SET id = 2000000000"),
    "constraint": lambda lake, _: lake.sql("INSERT INTO c VALUES (2147483647)"),
}


@pytest.fixture
def numbers(water: Water) -> Water:
    water.lake.sql("CREATE TABLE n (id INT, p INT) PARTITIONED BY (p)")
    water.lake.sql("INSERT INTO n VALUES (1, 1)")
    water.make("x", "st struct<a: int>, xs array<int>, m map<int,int>, d date, e decimal(4,2)")
    water.lake.sql(
        "CREATE TABLE g (id INT, x TINYINT DEFAULT 300, twice INT GENERATED ALWAYS AS (id * 2))"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    water.lake.sql("INSERT INTO g (id, x) VALUES (1, 1)")
    water.lake.sql("CREATE TABLE c (id INT, CONSTRAINT more CHECK (id + 1 < 0 OR id < 10))")
    return water


def test_values_that_do_not_fit_are_refused_outside_ansi_mode(numbers: Water) -> None:
    change(
        numbers,
        {
            "spark.sql.ansi.enabled": "false",
            "spark.sql.storeAssignmentPolicy": "LEGACY",
        },
    )
    for write in TOO_LARGE.values():
        with pytest.raises(InvalidDataError, match=r"fit|overflow"):
            write(numbers.lake, numbers)
    assert numbers.spark.conf.get("spark.sql.ansi.enabled") == "false"
    assert numbers.rows("n") == [(1, 1)]
    assert numbers.rows("x") == []
    assert numbers.rows("g") == [(1, 1, 2)]
    assert numbers.rows("c") == []
    # What the user computes follows the user's mode.
    numbers.sql("UPDATE n SET id = 2147483647 + id")
    assert numbers.rows("n") == [(-(2**31), 1)]


def test_a_refused_value_is_shown_with_its_column(numbers: Water) -> None:
    with pytest.raises(
        InvalidDataError, match=r"does not fit column 'st\.a' of type integer: 5000"
    ):
        numbers.lake.append("x", numbers.frame("SELECT struct(5000000000 a) st"))


def test_a_condition_with_a_variable_of_spark_skips_no_file(water: Water) -> None:
    water.lake.sql("CREATE TABLE t (id INT, s STRING)")
    water.lake.sql("INSERT INTO t VALUES (1, 'a')")
    water.lake.sql("INSERT INTO t VALUES (2, 'b')")
    water.spark.conf.set("wanted.text", "b")
    assert water.sql("SELECT id FROM t WHERE s = '${wanted.text}'") == [(2,)]
    water.sql("DELETE FROM t WHERE s = '${wanted.text}'")
    assert water.rows() == [(1, "a")]


# Checked settings


def test_every_setting_has_a_value_in_these_tests_that_it_must_not_have() -> None:
    assert {item.key for item in SETTINGS if item.use is Use.CHECKED} == {*REFUSED}
    assert {item.key for item in SETTINGS if item.use is Use.HELD_WHILE_WRITING} == {*HELD}


@pytest.mark.parametrize("key", REFUSED)
def test_a_setting_that_changes_results_is_refused_by_the_next_statement(
    water: Water, key: str
) -> None:
    water.make("t", "id int")
    frame = water.frame("SELECT 1 id")
    before = water.spark.conf.get(key)
    water.spark.conf.set(key, REFUSED[key])
    statements: list[Callable[[], Any]] = [
        lambda: water.lake.read("t"),
        lambda: water.lake.read("t", where="id = 1"),
        lambda: water.lake.append("t", frame),
        lambda: water.lake.overwrite("t", frame),
        lambda: water.lake.create("u", frame),
        lambda: water.lake.delete("t"),
        lambda: water.lake.update("t", {"id": "2"}),
        lambda: water.lake.merge("t", frame, "false", [Clause(When.NOT_MATCHED, Do.INSERT)]),
        lambda: water.lake.sql("SELECT * FROM t"),
        lambda: water.lake.sql("INSERT INTO t VALUES (1)"),
    ]
    for statement in statements:
        with pytest.raises(InvalidArgumentError, match=key):
            statement()
    assert water.session.table("t").version == 0
    water.lake.sql(f"SET {key} = {before}; INSERT INTO t VALUES (1)")


# Holding


def test_settings_are_held_until_the_last_thread_lets_go(water: Water) -> None:
    spark, key = water.spark, "spark.sql.parquet.outputTimestampType"
    spark.conf.set(key, "INT96")
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with sessions.writing_files(spark):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with sessions.writing_files(spark):
        thread.start()
        assert entered.wait(30)
        assert spark.conf.get(key) == "TIMESTAMP_MICROS"
    assert spark.conf.get(key) == "TIMESTAMP_MICROS"
    leave.set()
    thread.join()
    assert spark.conf.get(key) == "INT96"


def test_a_setting_that_the_user_changes_while_it_is_held_stays(water: Water) -> None:
    spark, key = water.spark, "spark.sql.parquet.outputTimestampType"
    spark.conf.set(key, "INT96")
    with sessions.writing_files(spark):
        spark.conf.set(key, "TIMESTAMP_MILLIS")
    assert spark.conf.get(key) == "TIMESTAMP_MILLIS"
    spark.conf.unset(key)
    with sessions.writing_files(spark):
        pass
    assert key not in dict(spark.conf.getAll)


# A file of another engine, read under settings of another time


def test_files_of_other_engines_are_read_the_same_under_changed_settings(
    water: Water, tmp_path: Path
) -> None:
    water.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    frame = water.frame("SELECT timestamp'2020-03-29 01:30:00.123456Z' ts, 'x' s, X'FF' b")
    frame.coalesce(1).write.parquet(str(tmp_path / "there"))
    table = water.make("t", "ts timestamp, s string, b binary")
    water.lake.append("t", frame)
    [file] = water.files()
    [written] = (tmp_path / "there").glob("*.parquet")
    (local(table) / file.path).write_bytes(written.read_bytes())
    before = dict(water.spark.conf.getAll)
    expected = [(1585445400123456, "x", "FF")]
    for changed in every_setting():
        change(water, changed)
        assert rows(water.lake.read("t").selectExpr("unix_micros(ts)", "s", "hex(b)")) == expected
        restore(water, before, changed)
