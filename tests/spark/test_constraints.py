"""NOT NULL, CHECK, generated and default columns: enforced on every write, with errors by row."""

from dataclasses import replace

import pytest

from headgate.client.table import Table
from headgate.client.transaction import OperationInfo
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    UnsupportedFeatureError,
)
from headgate.protocol import features
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.types import DEFAULT, GENERATION, StructField, StructType, to_json
from tests.spark.conftest import Water, listed, rows


def ruled(water: Water) -> Table:
    schema = parse_schema(
        "id long not null, v string, s struct<a: int not null, b: int>, n int, twice long, day date"
    )
    metadata: dict[str, dict[str, object]] = {
        "n": {DEFAULT: "40 + 2"},
        "twice": {GENERATION: "id * 2"},
        "day": {GENERATION: "CAST(date_add(DATE'2020-01-01', CAST(id AS INT)) AS DATE)"},
    }
    fields = tuple(replace(f, metadata=metadata.get(f.name, {})) for f in schema.fields)
    table = water.session.create_table("t", StructType(fields))
    table.add_constraint("small", "id < 100")
    table.add_constraint("known", "v IN ('a', 'b', 'c')")
    return table


def test_values_left_out_are_those_of_the_table(water: Water) -> None:
    ruled(water)
    water.lake.append("t", water.frame("SELECT 1 id, 'a' v, named_struct('a', 1) s"))
    water.lake.append("t", water.frame("SELECT 2 id, 'b' v, int(null) n, 4L twice"))
    shown = water.lake.read("t").selectExpr("id", "v", "s.a", "s.b", "n", "twice", "string(day)")
    assert rows(shown) == [
        (1, "a", 1, None, 42, 2, "2020-01-02"),
        (2, "b", None, None, None, 4, "2020-01-03"),
    ]


BREAKS = {
    "SELECT bigint(null) id, 'a' v": r"NULL in column id",
    "SELECT 'a' v": r"'id' is missing",
    "SELECT 1 id, 'a' v, named_struct('a', int(null), 'b', 7) s": r'NULL in column s\.a.*"b":7',
    "SELECT 1 id, 'a' v, named_struct('b', 1) s": r"NULL in column s\.a",
    "SELECT id, 'a' v FROM range(99, 102)": r'constraint small \(id < 100\).*"id":10[01]',
    "SELECT 1 id, 'z' v": r'constraint known.*"v":"z"',
    "SELECT 1 id": r"constraint known",  # NULL is not true
    "SELECT 1 id, 'a' v, 3L twice": r'another twice than is generated \(id \* 2\).*"twice":3',
}


@pytest.mark.parametrize("query", BREAKS)
def test_a_row_that_breaks_a_rule_is_told_and_nothing_stays(water: Water, query: str) -> None:
    table = ruled(water)
    version = water.session.table("t").version
    for write in (water.lake.append, water.lake.overwrite):
        with pytest.raises(InvalidDataError, match=BREAKS[query]):
            write("t", water.frame(query))
    assert listed(table) == []
    assert water.session.table("t").version == version


@pytest.mark.parametrize("mode", ["copy-on-write", "deletion-vectors"])
def test_rules_hold_for_rows_that_are_changed_and_only_for_those(water: Water, mode: str) -> None:
    table = ruled(water)
    table.set_properties({"delta.enableDeletionVectors": True, "headgate.dml": mode})
    water.lake.append(
        "t", water.frame("SELECT id, 'a' v, named_struct('a', 1) s FROM range(0, 6, 1, 1)")
    )
    kept, version = listed(table), water.session.table("t").version
    merge = "MERGE INTO t USING (SELECT 1L id, 'z' w) s ON t.id = s.id WHEN "
    for attempt, says in {
        "UPDATE t SET id = 100 WHERE id = 1": "constraint small",
        "UPDATE t SET v = 'z' WHERE id = 1": "constraint known",
        "UPDATE t SET id = null WHERE id = 1": "NULL in column id",
        "UPDATE t SET s.a = null WHERE id = 1": r"NULL in column s\.a",
        f"{merge} MATCHED THEN UPDATE SET v = s.w": "constraint known",
        f"{merge} NOT MATCHED BY SOURCE THEN UPDATE SET id = 200": "constraint small",
        f"{merge.replace('1L', '77L')} NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.w)": "known",
        "INSERT INTO t (id, v) VALUES (5, 'q')": "constraint known",
        "INSERT INTO t (v) VALUES ('a')": "'id' is missing",
    }.items():
        with pytest.raises(InvalidDataError, match=says):
            water.lake.sql(attempt)
    for attempt in (
        "UPDATE t SET twice = 7 WHERE id = 1",
        f"{merge} MATCHED THEN UPDATE SET twice = 7",
    ):
        with pytest.raises(InvalidArgumentError, match="generated"):
            water.lake.sql(attempt)
    assert listed(table) == kept
    assert water.session.table("t").version == version
    # Generated columns follow what they are made from.
    water.lake.sql("UPDATE t SET id = 50, n = DEFAULT WHERE id = 2")
    water.lake.sql("MERGE INTO t USING (SELECT 3L id) s ON t.id = s.id "
                   "WHEN MATCHED THEN UPDATE SET id = 60, v = 'c'")  # fmt: skip
    water.lake.sql("MERGE INTO t USING (SELECT 70L id, 'b' v) s ON t.id = s.id "
                   "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)")  # fmt: skip
    shown = water.lake.read("t").selectExpr("id", "v", "n", "twice", "string(day)")
    assert rows(shown.where("id >= 50")) == [
        (50, "a", 42, 100, "2020-02-20"),
        (60, "c", 42, 120, "2020-03-01"),
        (70, "b", 42, 140, "2020-03-11"),
    ]
    assert len(water.rows()) == 7


def test_rows_that_were_there_before_a_rule_are_carried_along_unchecked(water: Water) -> None:
    """Only new and changed rows are checked; others were checked when written."""
    table = water.make()
    water.lake.append("t", water.frame("SELECT id, 'a' v FROM range(0, 4, 1, 1)"))
    # A rule that old rows break, brought in by a commit that looks at none.
    base = table.snapshot()
    ruled = replaced(
        base.metadata,
        configuration={**base.metadata.configuration, "delta.constraints.late": "id > 1"},
    )
    protocol = features.upgraded(base.protocol, "checkConstraints")
    table.commit(base, [protocol, ruled], OperationInfo("ADD CONSTRAINT"))
    water.lake.update("t", {"v": "'b'"}, "id = 3")
    assert water.rows() == [(0, "a"), (1, "a"), (2, "a"), (3, "b")]
    with pytest.raises(InvalidDataError, match="late"):
        water.lake.update("t", {"v": "'b'"}, "id <= 3")
    water.lake.delete("t", "id = 2")
    assert water.rows() == [(0, "a"), (1, "a"), (3, "b")]


def test_what_may_not_be_null_is_none_within_arrays_and_maps_either(water: Water) -> None:
    table = water.make(
        schema="id long, xs array<struct<a: int not null, b: array<struct<c: int not null>>>>,"
        " m map<string, struct<d: int not null>>, k map<struct<e: int not null>, int>"
    )
    good = (
        "SELECT 1 id, array(named_struct('a', 1, 'b', array(named_struct('c', 2), NULL)), NULL) xs,"
        " map('x', named_struct('d', 1), 'y', NULL) m, map(named_struct('e', 1), 2) k"
    )
    water.lake.append("t", water.frame(f"{good} UNION ALL SELECT 2, NULL, NULL, NULL"))
    for broken, where in {
        "array(named_struct('a', int(null))) xs": r"xs\.element\.a",
        "array(named_struct('b', array())) xs": r"xs\.element\.a",
        "array(named_struct('a', 1, 'b', array(named_struct('c', int(null))))) xs": (
            r"xs\.element\.b\.element\.c"
        ),
        "map('x', named_struct('d', 1), 'y', named_struct('d', int(null))) m": r"m\.value\.d",
        "map(named_struct('e', int(null)), 2) k": r"k\.key\.e",
    }.items():
        with pytest.raises(InvalidDataError, match=rf'NULL in column {where}.*"id":3'):
            water.lake.append("t", water.frame(f"SELECT 3 id, {broken}"))
    assert len(water.rows()) == 2
    assert listed(table) == sorted(file.path for file in water.files())


def test_a_table_with_an_identity_column_takes_no_rows_and_loses_some(water: Water) -> None:
    table = water.make()
    water.lake.append("t", water.frame("SELECT id, 'a' v FROM range(0, 4, 1, 1)"))
    kept = listed(table)
    base = table.snapshot()
    identity = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": True,
    }
    fields = (
        *base.schema.fields,
        StructField("number", base.schema.fields[0].type, True, identity),
    )
    metadata = replaced(base.metadata, schema_string=to_json(StructType(fields)))
    protocol = features.upgraded(base.protocol, "identityColumns")
    table.commit(base, [protocol, metadata], OperationInfo("ADD COLUMNS"))
    for query in ("SELECT 1 id, 'a' v", "SELECT 1 id, 'a' v, 1L number"):
        with pytest.raises(UnsupportedFeatureError, match="identityColumns"):
            water.lake.append("t", water.frame(query))
        with pytest.raises(UnsupportedFeatureError, match="identityColumns"):
            water.lake.overwrite("t", water.frame(query))
    for text in (
        "INSERT INTO t (id, v) VALUES (1, 'a')",
        "UPDATE t SET v = 'b'",
        "MERGE INTO t USING (SELECT 1 id) s ON t.id = s.id WHEN NOT MATCHED THEN"
        " INSERT (id) VALUES (s.id)",
    ):
        with pytest.raises(UnsupportedFeatureError, match="identityColumns"):
            water.lake.sql(text)
    assert listed(table) == kept
    assert water.session.table("t").version == 2
    water.lake.delete("t", "id = 1")
    water.sql("DELETE FROM t WHERE id IN (SELECT 2L)")
    assert water.rows() == [(0, "a", None), (3, "a", None)]


def test_rules_hold_where_the_first_column_is_in_no_file(water: Water) -> None:
    table = water.make(schema="nothing void, id long not null")
    for query in ("SELECT bigint(null) id", "SELECT null nothing, bigint(null) id"):
        with pytest.raises(InvalidDataError, match="NULL in column id"):
            water.lake.append("t", water.frame(query))
    with pytest.raises(InvalidDataError, match="does not match"):
        water.lake.overwrite("t", water.frame("SELECT null nothing, 2L id"), where="id = 1")
    water.lake.append("t", water.frame("SELECT 1L id"))
    assert water.rows() == [(None, 1)]
    assert len(listed(table)) == 1


def test_a_rule_that_spark_cannot_read_is_told_and_nothing_stays(water: Water) -> None:
    table = water.make()
    base = table.snapshot()
    odd = {**base.metadata.configuration, "delta.constraints.odd": "no_such_function(id) > 1"}
    protocol = features.upgraded(base.protocol, "checkConstraints")
    table.commit(
        base,
        [protocol, replaced(base.metadata, configuration=odd)],
        OperationInfo("ADD CONSTRAINT"),
    )
    with pytest.raises(HeadgateError, match="no_such_function"):
        water.lake.append("t", water.frame("SELECT 1 id"))
    assert listed(table) == []
