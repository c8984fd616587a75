"""Partition values: of every type, in any time zone, of any characters, spelled as the log does."""

import re

import pyarrow as pa
import pytest

from headgate.data.file_writer import NULL_FOLDER
from headgate.errors import (
    ConflictError,
    InvalidDataError,
    SyntaxRefusedError,
    UnavailableError,
)
from headgate.protocol.encoding import replaced
from headgate.spark import scan, write
from headgate.spark.insert import Insertion, insert
from headgate.spark.statement import Statement
from headgate.storage import locations
from tests.spark.conftest import Water, commit, listed, put_file, rows

TYPES = {
    "boolean": ("true", "true"),
    "byte": ("-128Y", "-128"),
    "short": ("32767S", "32767"),
    "int": ("-7", "-7"),
    "long": ("9223372036854775807L", "9223372036854775807"),
    "float": ("float(1.5)", "1.5"),
    "double": ("-1e-300D", "-1e-300"),
    "decimal(20,3)": ("12345678901234567.125BD", "12345678901234567.125"),
    "date": ("DATE'0001-01-01'", "0001-01-01"),
    "timestamp": (
        "TIMESTAMP'2026-07-01 10:11:12.000013 America/New_York'",
        "2026-07-01T14:11:12.000013Z",
    ),
    "timestamp_ntz": ("TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'", "1969-12-31 23:59:59.999999"),
    "string": ("'a/b=c%d e'", "a/b=c%d e"),
    "binary": ("X'61622f63'", "ab/c"),
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_values_of_every_type_come_back_whatever_the_time_zone(water: Water, zone: str) -> None:
    """All types in one write; a second row has null in each."""
    columns = [f"p{n}" for n in range(len(TYPES))]
    schema = ", ".join(f"{c} {t}" for c, t in zip(columns, TYPES, strict=True))
    table = water.make(schema=f"id long, {schema}", by=columns)
    water.spark.conf.set("spark.sql.session.timeZone", zone)
    given = ", ".join(f"{v[0]} {c}" for c, v in zip(columns, TYPES.values(), strict=True))
    water.lake.append("t", water.frame(f"SELECT 1 id, {given}"))
    water.lake.append("t", water.frame("SELECT 2 id"))
    first, second = sorted(water.files(), key=lambda f: f.partition_values["p0"] is None)
    assert first.partition_values == dict(zip(columns, [v[1] for v in TYPES.values()], strict=True))
    assert set(second.partition_values.values()) == {None}
    same = " AND ".join(f"{c} = {v[0]}" for c, v in zip(columns, TYPES.values(), strict=True))
    null = " AND ".join(f"{c} IS NULL" for c in columns)
    # Spark decides on values that were read; with where= files are chosen by them, too.
    read = water.lake.read("t")
    assert rows(read.where(same).select("id")) == [(1,)]
    assert rows(read.where(null).select("id")) == [(2,)]
    assert rows(water.lake.read("t", where=same).select("id")) == [(1,)]
    assert rows(water.lake.read("t", where=null).select("id")) == [(2,)]
    # Whoever reads without Spark reads the same.
    arrow = table.to_arrow()
    by_spark = read.toArrow()
    for name in columns:
        assert sorted(arrow[name].to_pylist(), key=str) == sorted(
            by_spark[name].to_pylist(), key=str
        )


TEXTS = [
    "", "plain", " lead and trail ", "a/b", "a\\b", "a=b", "100%", "%41", "a:b", "a?b", "a#b",
    "[x]{y}*", "quote'\"", "tab\tline\nreturn\r", "\x01\x1f\x7f", "grün", "漢字", "😀", "a+b",
    ".", "..", "~^`|<>", "null", "__HIVE", "é", "e\u0301",
]  # fmt: skip


def test_texts_of_any_characters_come_back_and_the_empty_one_is_null(water: Water) -> None:
    table = water.make(schema="id int, p string", by=["p"])
    frame = water.spark.createDataFrame(list(enumerate(TEXTS)), "id int, p string")
    water.lake.append("t", frame)
    wanted = [(n, text or None) for n, text in enumerate(TEXTS)]
    assert {file.partition_values["p"] for file in water.files()} == {t or None for t in TEXTS}
    assert sorted(tuple(row) for row in water.lake.read("t").collect()) == wanted
    assert listed(table) == sorted(locations.decode(file.path) for file in water.files())
    # Rewritten and deleted as whole partitions, each stays itself.
    water.lake.delete("t", "p IN ('a/b', '100%') OR p IS NULL")
    gone = {"a/b", "100%", ""}
    assert [row[0] for row in water.rows()] == [n for n, t in enumerate(TEXTS) if t not in gone]
    water.lake.update("t", {"id": "id + 100"}, "id % 2 = 0")
    moved = [(n + 100 if n % 2 == 0 else n, t) for n, t in enumerate(TEXTS) if t not in gone]
    assert sorted(tuple(row) for row in water.lake.read("t").collect()) == sorted(moved)


def test_a_name_that_java_could_not_spell_is_told_and_never_taken_for_a_value(
    water: Water,
) -> None:
    """Under a locale of ASCII alone it writes question marks, whatever the value was."""
    table = water.make(schema="id int, p string", by=["p"])
    target = water.lake._engine.statement("t").target()
    rows = water.frame("SELECT 1 id, 'x' p")
    writing = write._Writing(rows, target, write.Staging("folder", 0))
    with pytest.raises(UnavailableError, match="LC_ALL"):
        writing._partition_values("folder/p=gr?n/part-0.parquet")
    assert writing._partition_values("folder/p=gr%3Fn/part-0.parquet") == {"p": "gr?n"}
    assert listed(table) == []


def test_the_name_that_stands_for_null_is_refused_as_a_value(water: Water) -> None:
    table = water.make(schema="id int, p string", by=["p"])
    with pytest.raises(InvalidDataError, match=NULL_FOLDER):
        water.lake.append("t", water.frame(f"SELECT 1 id, '{NULL_FOLDER}' p"))
    assert listed(table) == []
    assert water.session.table("t").version == 0


def test_an_empty_text_is_null_and_refused_where_null_may_not_be(water: Water) -> None:
    table = water.make(schema="id int, p string not null", by=["p"])
    for query in ("SELECT 1 id, '' p", "SELECT 1 id, string(null) p"):
        with pytest.raises(InvalidDataError, match="may not be null"):
            water.lake.append("t", water.frame(query))
    assert listed(table) == []


def test_partition_columns_may_stand_anywhere_and_be_renamed(water: Water) -> None:
    table = water.make(
        schema="p string, id int, `q r` int, v string",
        by=["q r", "p"],
        delta__columnMapping__mode="name",
    )
    water.lake.append("t", water.frame("SELECT 1 id, 'x y' p, 2 `q r`, 'v' v"))
    [file] = water.files()
    assert sorted(str(v) for v in file.partition_values.values()) == ["2", "x y"]
    assert all(name.startswith("col-") for name in file.partition_values)
    table.rename_column("p", "new name")
    water.lake.append("t", water.frame("SELECT 2 id, 'z' `new name`, 2 `q r`, 'v' v"))
    assert water.rows() == [("x y", 1, 2, "v"), ("z", 2, 2, "v")]
    assert water.rows(where="`new name` = 'z'") == [("z", 2, 2, "v")]
    water.lake.overwrite("t", water.frame("SELECT 9 id, 'z' `new name`, 2 `q r`"), dynamic=True)
    assert water.rows() == [("x y", 1, 2, "v"), ("z", 9, 2, None)]
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("name", ["id", "ID"])
def test_a_partition_column_may_have_the_name_that_another_has_in_files(
    water: Water, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an engine gave a table with files column mapping, and columns were renamed."""
    schema = f"q long, {name} string, v string"
    table = water.make("t", schema, [name], delta__columnMapping__mode="name")
    base, names = table.snapshot(), iter(["id", "p", "v"])
    renamed = re.sub('"col-[^"]*"', lambda _: f'"{next(names)}"', base.metadata.schema_string)
    commit(table, replaced(base.metadata, schema_string=renamed))
    for text in ("a", "b"):
        content = pa.table({"id": pa.array([1], pa.int64()), "v": ["x"]})
        commit(table, put_file(table, f"{name}={text}/{text}.parquet", content, {"p": text}))
    with monkeypatch.context() as patch:  # as if there were more partitions
        patch.setattr(scan, "_MOST_GROUPS", 1)
        assert water.rows() == [(1, "a", "x"), (1, "b", "x")]
    water.lake.delete("t")
    water.lake.append("t", water.frame(f"SELECT id q, string(id % 9) {name}, 'x' v FROM range(20)"))
    water.lake.update("t", {"v": "'y'"}, f"q = 3 AND {name} = '3'")
    water.lake.overwrite("t", water.frame(f"SELECT 30 q, '8' {name}, 'z' v"), dynamic=True)
    wanted = [(n, str(n % 9), "y" if n == 3 else "x") for n in range(20) if n % 9 != 8]
    assert water.rows() == [*wanted, (30, "8", "z")]
    assert table.to_arrow().num_rows == len(water.rows())


@pytest.mark.parametrize("value", ["float('NaN')", "double('Infinity')", "double('-Infinity')"])
def test_numbers_that_are_none_come_back(water: Water, value: str) -> None:
    water.make(schema="id int, p double", by=["p"])
    water.lake.append("t", water.frame(f"SELECT 1 id, double({value}) p"))
    assert rows(water.lake.read("t").where(f"p = {value}").select("id")) == [(1,)]
    assert rows(water.lake.read("t", where=f"p = {value}").select("id")) == [(1,)]


def test_a_value_longer_than_a_folders_name_is_told_as_what_it_is(water: Water) -> None:
    table = water.make(schema="id int, p string", by=["p"])
    with pytest.raises(InvalidDataError, match="too long"):
        water.lake.append("t", water.frame("SELECT 1 id, repeat('x', 300) p"))
    assert listed(table) == []


def test_of_partitions_named_in_part_only_those_that_get_rows_go(water: Water) -> None:
    water.make("t", "id long, d string, h int", ["d", "h"])
    water.sql("INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1)")
    water.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    water.sql("INSERT OVERWRITE t PARTITION (d = 'x', h) SELECT 9, 1")
    assert water.rows() == [(2, "x", 2), (3, "y", 1), (9, "x", 1)]
    water.sql("INSERT OVERWRITE t PARTITION (d = 'x', h = 2) SELECT 8")
    assert water.rows() == [(3, "y", 1), (8, "x", 2), (9, "x", 1)]
    water.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    water.sql("INSERT OVERWRITE t PARTITION (d = 'x', h) SELECT 7, 5")
    assert water.rows() == [(3, "y", 1), (7, "x", 5)]


def test_a_partition_is_not_asked_for_before_it_is_replaced(water: Water) -> None:
    water.make("t", "id long, p int", ["p"])
    water.sql("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(SyntaxRefusedError, match="IF NOT EXISTS"):
        water.lake.sql("INSERT OVERWRITE t PARTITION (p = 1) IF NOT EXISTS SELECT 2")
    assert water.rows() == [(1, 1)]


def test_values_of_named_partitions_are_of_the_columns_type(water: Water) -> None:
    water.make("t", "id long, day date, at timestamp, n int", ["day"])
    water.sql("INSERT INTO t PARTITION (day = '2026-01-02') SELECT 1, '2026-01-02 03:04:05', 3")
    water.sql("UPDATE t SET day = '2026-02-03' WHERE id = 1")
    assert water.sql("SELECT id, string(day), string(at), n FROM t") == [
        (1, "2026-02-03", "2026-01-02 03:04:05", 3)
    ]
    for text in (
        "INSERT INTO t PARTITION (day = 'no day') SELECT 1, NULL, 3",
        "UPDATE t SET at = 'no time'",
        "INSERT INTO t PARTITION (day = '2026-01-02') SELECT 1, NULL, '3'",
    ):
        with pytest.raises(InvalidDataError):
            water.lake.sql(text)
    assert len(water.rows()) == 1


def test_two_who_replace_partitions_of_their_own_do_not_disturb_each_other(water: Water) -> None:
    water.make("t", "id long, p int, day date", ["p", "day"])
    water.session.table("t").set_properties({"delta.isolationLevel": "Serializable"})
    water.sql("INSERT INTO t VALUES (1, 1, DATE'2026-01-01'), (2, 2, NULL)")

    def replacing(statement: Statement, query: str) -> None:
        insert(statement, water.frame(query), Insertion(replaces=True, dynamic=True))

    with water.lake._engine.statement("t") as mine:
        water.other().append("t", water.frame("SELECT 3L id, 3 p, DATE'2026-01-01' day"))
        with water.other()._engine.statement("t") as theirs:
            replacing(theirs, "SELECT 20L id, 2 p, CAST(NULL AS DATE) day")
        replacing(mine, "SELECT 10L id, 1 p, DATE'2026-01-01' day")
    assert [row[0] for row in water.rows()] == [3, 10, 20]
    with water.lake._engine.statement("t") as mine:
        water.other().append("t", water.frame("SELECT 11L id, 1 p, DATE'2026-01-01' day"))
        with pytest.raises(ConflictError):
            replacing(mine, "SELECT 12L id, 1 p, DATE'2026-01-01' day")
    assert [row[0] for row in water.rows()] == [3, 10, 11, 20]


def test_a_partition_is_known_by_its_value_however_it_is_spelled(water: Water) -> None:
    table = water.make("t", "id long, p double", ["p"])
    for number, text in enumerate(("1.50", "NaN", "-0.5")):
        content = pa.table({"id": pa.array([number], pa.int64())})
        commit(table, put_file(table, f"{number}.parquet", content, {"p": text}))
    water.lake.append("t", water.frame("SELECT 3L id, double('NaN') p"))
    new = "VALUES (7L, 1.5D), (8L, double('NaN')) AS t(id, p)"
    water.lake.overwrite("t", water.frame(f"SELECT * FROM {new}"), dynamic=True)
    assert [row[0] for row in water.rows()] == [2, 7, 8]


def test_who_replaces_partitions_that_no_predicate_names_has_read_all(water: Water) -> None:
    table = water.make("t", "id long, p double", ["p"])
    table.set_properties({"delta.isolationLevel": "Serializable"})
    water.sql("INSERT INTO t VALUES (1, 1.5), (2, NULL)")
    new = water.frame("SELECT * FROM VALUES (10L, 1.5D), (20L, NULL) AS t(id, p)")
    with water.lake._engine.statement("t") as mine:
        water.other().append("t", water.frame("SELECT 3L id, 1.5D p"))
        with pytest.raises(ConflictError):
            insert(mine, new, Insertion(replaces=True, dynamic=True))
    assert [row[0] for row in water.rows()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("type_", "value", "another"),
    [
        ("int", "1", "NULL"),
        ("int", "NULL", "1"),
        ("string", "'a'", "NULL"),
        ("string", "NULL", "'a'"),
        ("date", "DATE'2026-01-01'", "DATE'2026-01-02'"),
        ("boolean", "true", "false"),
    ],
)
def test_who_replaces_a_partition_conflicts_with_rows_added_to_it_and_to_no_other(
    water: Water, type_: str, value: str, another: str
) -> None:
    table = water.make("t", f"id long, p {type_}", ["p"])
    table.set_properties({"delta.isolationLevel": "Serializable"})
    water.sql(f"INSERT INTO t VALUES (1, {value}), (2, {another})")

    def replace_while_adding(id_: int, to: str) -> None:
        with water.lake._engine.statement("t") as mine:
            water.other().append("t", water.frame(f"SELECT {id_}L id, CAST({to} AS {type_}) p"))
            new = water.frame(f"SELECT 9L id, CAST({value} AS {type_}) p")
            insert(mine, new, Insertion(replaces=True, dynamic=True))

    with pytest.raises(ConflictError):
        replace_while_adding(3, value)
    assert [row[0] for row in water.rows()] == [1, 2, 3]
    replace_while_adding(4, another)
    assert [row[0] for row in water.rows()] == [2, 4, 9]


def test_rows_that_replace_others_are_judged_as_they_are_stored(water: Water) -> None:
    water.lake.sql(
        "CREATE TABLE t (id BIGINT, n INT, twice BIGINT GENERATED ALWAYS AS (id * 2),"
        " p STRING) PARTITIONED BY (p)"
    )
    water.sql("INSERT INTO t (id, n, p) VALUES (1, 1, 'a'), (2, 2, 'b')")
    water.lake.overwrite("t", water.frame("SELECT 4L id, 4 n, 'a' p"), where="twice = 8 OR id = 1")
    assert [row[0] for row in water.rows()] == [2, 4]
    water.sql("INSERT INTO t REPLACE WHERE t.p = 'b' BY NAME SELECT 5L id, 5 n, 'b' p")
    assert [row[0] for row in water.rows()] == [4, 5]
    with pytest.raises(InvalidDataError, match="n > 1"):
        water.lake.overwrite("t", water.frame("SELECT 6L id, 1.4D n, 'a' p"), where="n > 1")
    with pytest.raises(InvalidDataError, match="twice = 8"):
        water.lake.overwrite("t", water.frame("SELECT 5L id, 4 n, 'a' p"), where="twice = 8")
    assert [row[0] for row in water.rows()] == [4, 5]


def test_history_tells_what_an_overwrite_took_away(water: Water) -> None:
    water.make("t", "id long, p string", ["p"])
    water.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    size = sum(file.size for file in water.files() if file.partition_values["p"] == "a")

    def metrics() -> dict[str, str]:
        return {k: str(v) for k, v in water.session.table("t").history(1)[0].metrics.items()}

    water.lake.overwrite("t", water.frame("SELECT 4L id, 'a' p"), dynamic=True)
    assert (metrics()["numRemovedFiles"], metrics()["numRemovedBytes"]) == ("1", str(size))
    water.lake.overwrite("t", water.frame("SELECT 5L id, 'b' p"), where="p = 'b'")
    assert (metrics()["numRemovedFiles"], metrics()["numDeletedRows"]) == ("1", "1")
    water.lake.overwrite("t", water.frame("SELECT 6L id, 'z' p"))
    assert (metrics()["numRemovedFiles"], metrics()["numOutputRows"]) == ("3", "1")
