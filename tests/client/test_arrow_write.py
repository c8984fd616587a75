"""Rows written by us are read by others as they were; rows that do not fit are refused whole."""

import datetime as dt
import json
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.client.arrow_io import to_arrow
from headgate.data import file_writer
from headgate.errors import (
    InvalidDataError,
    InvalidSchemaError,
    UnavailableError,
    UnsupportedFeatureError,
)
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.column_mapping import with_mapping
from headgate.protocol.schema.types import DecimalType, StructField, StructType
from headgate.storage.memory import MemoryStore
from headgate.table.snapshot_loader import load_path
from tests.client.plain_tables import (
    PRIMITIVES,
    Plain,
    as_bag,
    read_by_deltalake,
    read_by_duckdb,
    rows_of,
    table,
    tables,
    values_of,
    write,
    written,
)

ALL = table(
    "id long not null, s string, c int, d short, e byte, f float, g double, h boolean, i binary,"
    " j date, k timestamp, l timestamp_ntz, m decimal(38,10), o decimal(9,2), q decimal(18,4),"
    " n array<struct<x: int, y: map<string, array<decimal(5,2)>>>>,"
    " p struct<z: string, w: struct<v: date>>"
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "s": "naïve 日本 \0 \n", "c": -(2**31), "d": -(2**15), "e": -128, "f": 0.1,
        "g": float("nan"), "h": True, "i": b"\0\xff", "j": dt.date(1, 1, 1),
        "k": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        "l": dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        "m": Decimal("-1234567890123456789012345678.0123456789"), "o": Decimal("-1.25"),
        "q": Decimal("0.0001"), "n": [{"x": 1, "y": [("k", [Decimal("1.25"), None])]}, None],
        "p": {"z": "", "w": {"v": None}},
    },
    {"id": 2, "n": [], "p": {"z": None, "w": None}},
    {"id": 3, "s": "", "g": float("-inf"), "f": -0.0, "n": [{"x": None, "y": []}]},
]  # fmt: skip


SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# Read by others


def test_every_type_is_read_back_by_us_and_by_others(tmp_path: Path) -> None:
    rows = rows_of(ALL, ROWS)
    written(ALL, rows, tmp_path)
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == as_bag(rows)
    assert as_bag(read_by_deltalake(tmp_path)) == as_bag(rows)
    assert as_bag(read_by_duckdb(tmp_path)) == as_bag(rows)


def test_polars_reads_what_we_write(tmp_path: Path) -> None:
    plain = table("id long, s string, day date, at timestamp, n decimal(10,2)", "day")
    rows = rows_of(plain, [
        {"id": 1, "s": "a", "day": dt.date(2024, 2, 29), "n": Decimal("1.50")},
        {"id": 2, "s": None, "day": None, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)},
    ])  # fmt: skip
    written(plain, rows, tmp_path)
    found = polars.read_delta(str(tmp_path)).select(rows.schema.names).to_arrow()
    assert as_bag(found.cast(rows.schema)) == as_bag(rows)


SPECIAL = [
    "plain", "two words", " edges ", "50%", "%20", "%25", "a/b", "a:b", "a=b", "a?b#c", "[x]{y}(z)",
    "quote ' and \"", "back\\slash", "naïve 日本語 😀", "e\u0301", "a+b&c", "tab\tline\n",
    "dot.", "..", ".",
    "*<>|^~`", "", None, "__HIVE_DEFAULT_PARTITION__", "x" * 300, "日" * 100, "~", "-",
    "\x7f", "@!$,;",
]  # fmt: skip


def test_awkward_partition_values_are_read_back_by_us_and_by_others(tmp_path: Path) -> None:
    plain = table("id int, part string, other int", "part", "other")
    rows = rows_of(plain, [{"id": i, "part": p, "other": i % 2} for i, p in enumerate(SPECIAL)])
    adds = written(plain, rows, tmp_path)
    empty_is_null = [
        {**row, "part": row["part"] or None} for row in rows.to_pylist()
    ]  # as the protocol defines for partition values
    expected = as_bag(rows_of(plain, empty_is_null))
    assert len(adds) == len(SPECIAL)
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == expected
    assert as_bag(read_by_deltalake(tmp_path)) == expected
    assert as_bag(read_by_duckdb(tmp_path)) == expected


def test_nulls_in_one_partition_column_keep_the_values_of_the_others_apart(tmp_path: Path) -> None:
    plain = table("id int, p string, q int, r date", "p", "q", "r")
    values = [(p, q) for p in ("a", None) for q in (1, 2, None)]
    rows = rows_of(plain, [{"id": i, "p": p, "q": q} for i, (p, q) in enumerate(values * 3)])
    assert len(written(plain, rows, tmp_path)) == len(values)
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == as_bag(rows)


def test_paths_are_folders_escaped_once_and_urls_escaped_again(tmp_path: Path) -> None:
    plain = table("id int, part string", "part")
    [add] = written(plain, rows_of(plain, [{"id": 1, "part": "a b/50%"}]), tmp_path)
    assert add.path.startswith("part=a%20b%252F50%2525/part-00000-")
    assert (tmp_path / unquote(add.path)).parent.name == "part=a b%2F50%25"
    assert add.partition_values == {"part": "a b/50%"}


PARTITION_TYPES = [
    ("date", dt.date(2024, 2, 29), "2024-02-29"),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), "2024-02-29T01:02:03.000004Z"),
    ("timestamp_ntz", dt.datetime.fromisoformat("2024-02-29T01:02:03"), "2024-02-29 01:02:03"),
    ("byte", -128, "-128"),
    ("long", 2**63 - 1, "9223372036854775807"),
    ("decimal(10,4)", Decimal("-1.25"), "-1.2500"),
    ("boolean", True, "true"),
    ("float", 0.5, "0.5"),
    ("double", 1e-300, "1e-300"),
    ("binary", b"ab\0", "ab\0"),
]


@pytest.mark.parametrize(("kind", "value", "text"), PARTITION_TYPES)
def test_partition_columns_of_each_type(kind: str, value: Any, text: str, tmp_path: Path) -> None:
    plain = table(f"id int, part {kind}", "part")
    rows = rows_of(plain, [{"id": 1, "part": value}, {"id": 2, "part": None}])
    first, _ = written(plain, rows, tmp_path)
    assert first.partition_values == {"part": text}
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == as_bag(rows)
    # deltalake returns binary in its own form, and fails on its own negative decimals.
    if not kind.startswith(("binary", "decimal")):
        assert as_bag(read_by_deltalake(tmp_path)) == as_bag(rows)
    assert as_bag(read_by_duckdb(tmp_path)) == as_bag(rows)


def test_binary_that_is_no_text_cannot_be_partitioned_by() -> None:
    plain = table("id int, part binary", "part")
    with pytest.raises(InvalidDataError, match="partition"):
        write(plain, rows_of(plain, [{"id": 1, "part": b"\xff"}]), MemoryStore())


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=tables())
def test_any_table_is_read_back_by_us_and_by_others(
    drawn: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema, rows = drawn
    root = tmp_path_factory.mktemp("any")
    plain = Plain(schema)
    given = rows_of(plain, rows)
    written(plain, given, root)
    assert as_bag(to_arrow(load_path(str(root)))) == as_bag(given)
    assert as_bag(read_by_deltalake(root)) == as_bag(given)
    assert as_bag(read_by_duckdb(root)) == as_bag(given)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    drawn=st.sampled_from([t for t in PRIMITIVES if t != delta.BINARY]).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind) | st.none(), max_size=5))
    )
)
def test_any_partition_values_are_read_back(
    drawn: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, values = drawn
    root = tmp_path_factory.mktemp("any")
    plain = Plain(StructType((StructField("id", delta.LONG), StructField("p", kind))), ["p"])
    given = rows_of(plain, [{"id": i, "p": v if v != "" else None} for i, v in enumerate(values)])
    written(plain, given, root)
    assert as_bag(to_arrow(load_path(str(root)))) == as_bag(given)
    if not isinstance(kind, DecimalType):  # deltalake stumbles over negative ones
        assert as_bag(read_by_deltalake(root)) == as_bag(given)


# Column mapping


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_stored_under_physical_names_with_ids(mode: str, tmp_path: Path) -> None:
    names = iter(f"col-{i}" for i in range(20))
    schema, last = with_mapping(
        parse_schema("`a b` int, s struct<x: int, y: array<struct<z: string>>>, p string"),
        names.__next__,
    )
    properties = {
        "delta.columnMapping.mode": mode,
        "delta.columnMapping.maxColumnId": str(last),
    }
    plain = Plain(schema, ["p"], properties)
    rows = rows_of(
        plain, [{"a b": 1, "s": {"x": 2, "y": [{"z": "q"}, None]}, "p": "a/b"}, {"a b": 2}]
    )
    adds = written(plain, rows, tmp_path)
    assert all(re.fullmatch(r"[0-9a-f]{2}/part-.*", add.path) for add in adds)
    physical = [f.metadata["delta.columnMapping.physicalName"] for f in schema.fields]
    assert {add.partition_values[physical[2]] for add in adds} == {"a/b", None}
    file = pq.read_schema(tmp_path / unquote(adds[0].path))
    assert file.names == physical[:2]
    assert [field.metadata[b"PARQUET:field_id"] for field in file] == [b"1", b"2"]
    assert set(json.loads(adds[0].stats or "")["nullCount"]) == set(physical[:2])
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == as_bag(rows)
    # DuckDB returns null for partition columns under column mapping, also in Spark's tables.
    stored = ["a b", "s"]
    assert as_bag(read_by_duckdb(tmp_path).select(stored)) == as_bag(rows.select(stored))


def test_a_random_prefix_of_the_length_asked_for(tmp_path: Path) -> None:
    options = {"delta__randomizeFilePrefixes": "true", "delta__randomPrefixLength": "4"}
    plain = table("id int", **options)
    [add] = written(plain, rows_of(plain, [{"id": 1}]), tmp_path)
    assert re.fullmatch(r"[0-9a-f]{4}/part-.*", add.path)


def test_void_columns_are_not_stored_and_read_as_null(tmp_path: Path) -> None:
    plain = table("id int, v void, s struct<a: int, v: void>")
    rows = rows_of(plain, [{"id": 1, "s": {"a": 2}}])
    [add] = written(plain, rows, tmp_path)
    assert pq.read_schema(tmp_path / add.path).names == ["id", "s"]
    assert to_arrow(load_path(str(tmp_path))).to_pylist() == rows.to_pylist()
    with pytest.raises(InvalidSchemaError, match="void"):
        write(table("v void"), pa.table({"v": pa.nulls(1)}), MemoryStore())


# Rows that fit after all


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("long", pa.array([1, None], pa.uint8())),
        ("byte", pa.array([127, -128], pa.int64())),
        ("double", pa.array([1, 2], pa.int32())),
        ("double", pa.array([0.5], pa.float32())),
        ("decimal(10,2)", pa.array([7], pa.int64())),
        ("decimal(10,2)", pa.array([Decimal("1.5")], pa.decimal128(3, 1))),
        ("string", pa.array(["a", None]).dictionary_encode()),
        ("string", pa.array(["a"], pa.large_string())),
        ("string", pa.array(["a"], pa.string_view())),
        ("binary", pa.array([b"ab"], pa.binary(2))),
        ("date", pa.array([dt.date(2024, 1, 1)], pa.date64())),
        ("timestamp", pa.array([0], pa.timestamp("ns", "Europe/Berlin"))),
        ("timestamp_ntz", pa.array([0], pa.timestamp("s"))),
        ("array<long>", pa.array([[1], None], pa.large_list(pa.int8()))),
        ("array<long>", pa.array([[1, 2]], pa.list_(pa.int32(), 2))),
        ("struct<a: long, b: string>", pa.array([{"B": "b", "a": 1}, None])),
        ("map<string, long>", pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int8()))),
        ("string", pa.nulls(2)),
        ("long", pa.chunked_array([[1], [2, 3]])),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.type),
)
def test_rows_of_another_form_fit_if_every_value_does(
    kind: str, given: Any, tmp_path: Path
) -> None:
    plain = table(f"X {kind}")
    written(plain, pa.table({"x": given}), tmp_path)
    found = to_arrow(load_path(str(tmp_path))).column("X").to_pylist()
    expected = given.to_pylist()
    if kind.startswith("struct"):
        expected = [row and {"a": row["a"], "b": row["B"]} for row in expected]
    assert [str(v) for v in found] == [str(v).replace("+01:00", "+00:00") for v in expected] or (
        found == expected
    )


def test_slices_keep_to_their_rows(tmp_path: Path) -> None:
    rows = rows_of(ALL, ROWS)
    batch = rows.combine_chunks().to_batches()[0].slice(1, 1)
    written(ALL, batch, tmp_path)
    assert to_arrow(load_path(str(tmp_path))).to_pylist() == [batch.to_pylist()[0]]


def test_a_column_that_may_be_null_may_be_left_out(tmp_path: Path) -> None:
    plain = table("id int, s struct<a: int, b: int>, part string", "part")
    written(plain, pa.table({"S": [{"B": 1}]}), tmp_path)
    found = to_arrow(load_path(str(tmp_path))).to_pylist()
    assert found == [{"id": None, "s": {"a": None, "b": 1}, "part": None}]


def test_no_rows_are_no_files() -> None:
    assert write(ALL, rows_of(ALL, []), MemoryStore()) == []


# Rows that do not


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ("a int", {"b": [1]}, "no column 'b'; it has a"),
        ("s struct<a: int>", {"s": [{"b": 1}]}, "no column 's.b'"),
        ("a int", {"a": ["1"]}, "'a' is integer, and the rows have string"),
        ("a int", {"a": [2**31]}, "'a' is integer"),
        ("a long", {"a": pa.array([2**63], pa.uint64())}, "'a' is long"),
        ("a int", {"a": [1.0]}, "'a' is integer, and the rows have double"),
        ("a float", {"a": [0.1]}, "'a' is float, and the rows have double"),
        ("a double", {"a": [2**60 + 1]}, "'a' is double"),
        ("a decimal(3,1)", {"a": [Decimal("1.25")]}, "'a' is decimal"),
        ("a decimal(3,1)", {"a": [Decimal("123.5")]}, "'a' is decimal"),
        ("a string", {"a": [1]}, "'a' is string, and the rows have int64"),
        ("a string", {"a": [b"x"]}, "'a' is string, and the rows have binary"),
        ("a boolean", {"a": [1]}, "'a' is boolean"),
        ("a date", {"a": pa.array([0], pa.timestamp("us"))}, "'a' is date"),
        ("a timestamp", {"a": pa.array([0], pa.timestamp("us"))}, "'a' is timestamp"),
        ("a timestamp_ntz", {"a": pa.array([0], pa.timestamp("us", "UTC"))}, "'a' is timesta"),
        ("a timestamp", {"a": pa.array([1], pa.timestamp("ns", "UTC"))}, "'a' is timestamp"),
        ("a array<int>", {"a": [[2**40]]}, "'a.element' is integer"),
        ("a array<int>", {"a": [{"x": 1}]}, "'a' is array<integer>"),
        ("a map<string,int>", {"a": [{"x": 1}]}, "'a' is map<string,integer>"),
        ("a int not null", {"a": [1, None]}, "'a' may not be null, and 1 of 2"),
        ("a int not null, b int", {"b": [1]}, "'a' is missing"),
        ("s struct<a: int not null>", {"s": [{"a": None}]}, "'s.a' may not be null"),
        ("s struct<a: int not null>", {"s": [None, {"a": 1}]}, "'s.a' may not be null"),
        ("s array<struct<a: int not null>>", {"s": [[{"a": None}]]}, "'s.element.a' may not be"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_with_column_expected_and_found(
    columns: str, given: dict[str, Any], message: str
) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidDataError, match=re.escape(message)):
        write(table(columns), pa.table(given), store)
    assert list(store.list("", recursive=True)) == []


def test_a_null_element_needs_no_fields() -> None:
    plain = table("s array<struct<a: int not null>>")
    assert len(write(plain, pa.table({"s": [[None, {"a": 1}], None, []]}), MemoryStore())) == 1


def test_a_column_given_twice_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="twice"):
        write(table("a int"), pa.table([[1], [2]], names=["a", "A"]), MemoryStore())


def test_an_empty_text_cannot_be_a_partition_that_may_not_be_null() -> None:
    plain = table("id int, p string not null", "p")
    with pytest.raises(InvalidDataError, match="'p' may not be null"):
        write(plain, pa.table({"id": pa.array([1], pa.int32()), "p": [""]}), MemoryStore())


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        ({"delta.generationExpression": "1"}, "generatedColumns"),
        ({"delta.identity.start": 1}, "identityColumns"),
        ({"CURRENT_DEFAULT": "1"}, "allowColumnDefaults"),
    ],
)
def test_columns_that_would_have_to_be_computed_are_refused_by_feature(
    metadata: dict[str, Any], feature: str
) -> None:
    plain = Plain(StructType((StructField("a", delta.LONG, True, metadata),)), features=[feature])
    with pytest.raises(UnsupportedFeatureError, match=feature):
        write(plain, pa.table({"a": [1]}), MemoryStore())


# Constraints

CHECKED = (
    "a int, b int, l long, d double, n decimal(5,2), t string, day date, at timestamp, ok boolean,"
    " s struct<x: int, `the y`: string>, raw binary, f float"
)
ROW: dict[str, Any] = {
    "a": 3, "b": -2, "l": 2**40, "d": 0.5, "n": Decimal("1.25"), "t": "Word",
    "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "ok": True,
    "s": {"x": 7, "the y": "why"}, "raw": b"\xff", "f": 0.1,
}  # fmt: skip


def check(expression: str, *rows: dict[str, Any]) -> None:
    plain = table(CHECKED, delta__constraints__rule=expression)
    write(plain, rows_of(plain, rows), MemoryStore())


HOLDING = r"""
a > 2
a >= 3 AND b < 0
A = 3
`a` == 3
a != b
a <> b
not a = 4
! (a = 4)
a IN (1, 2, 3)
a NOT IN (4, 5)
a between 1 and 3
a not between 4 and 9
b is not null
t IS NOT NULL and ok
ok
ok = true
ok is true
ok is not false
a + b = 1
a - b = 5
a * b = -6
a / 2 = 1.5
a % 2 = 1
b % 3 = -2
-a < 0
l > 1099511627775
d = 0.5
d < 1
n = 1.25
n > 1
n * 2 = 2.5
n + 1 = 2.25
a < 3.5
f < 0.2
f > 0.1
l = 1099511627776L
d = 5e-1
d = 0.5D
t = 'Word'
t = "Word"
t > 'Wo'
t like 'W%d'
t not like '_'
length(t) = 4
upper(t) = 'WORD'
lower(t) = 'word'
trim(t) = t
t || '!' = 'Word!'
abs(b) = 2
char_length(t) > 1
length(raw) = 1
raw = X'ff'
coalesce(b, 0) < 0
isnotnull(a)
day > '1900-01-01'
day = DATE'2024-02-29'
at > '2000-01-01'
at < '2024-03-01 00:00:00'
at = TIMESTAMP'2024-02-29T12:00:00Z'
s.x = 7
S.`the y` = 'why'
`s`.x <=> 7
a > 2 or b > 100
a > 100 or b < 0
(a > 100 or b < 0) and d > 0
a = 3 and b = -2 or false
a <=> 3
not (a <=> null)
1 = 1
t in ('Word', 'Other')
"""


@pytest.mark.parametrize(
    "expression",
    HOLDING.strip().splitlines(),
)
def test_a_constraint_that_holds_lets_rows_in(expression: str) -> None:
    check(expression, ROW)


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("a > 3", {}),
        ("a > 2 and b > 0", {}),
        ("a > 2", {"a": None}),  # NULL is not TRUE
        ("not (a > 2)", {"a": None}),
        ("a > 2 and b < 0", {"b": None}),
        ("a in (1, 2)", {}),
        ("a not in (1, null)", {}),
        ("a <=> null", {}),
        ("d < 1", {"d": float("nan")}),  # NaN is greater than all else
        ("a / 0 > 0", {}),
        ("a % 0 = 0", {}),
        ("a between 4 and 9", {}),
        ("t like 'w%'", {}),
        ("length(t) > 4", {}),
        ("s.x > 7", {}),
        ("s.x > 1", {"s": None}),
        ("day < '2024-02-29'", {}),
        ("false", {}),
        ("null = null", {}),
        ("2 + 2 * 2 = 8", {}),
        ("f = 0.1", {}),  # a float is not the decimal it was written from
    ],
)
def test_a_constraint_that_does_not_hold_keeps_rows_out(
    expression: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(InvalidDataError, match=re.escape(f"the constraint rule ({expression})")):
        check(expression, ROW | changed)


@pytest.mark.parametrize(
    "expression",
    ["not (a > 100 and b > 0)", "a > 2 or b > 0", "b is null or b > 0", "coalesce(b, 1) = 1"],
)
def test_what_is_unknown_matters_only_where_it_decides(expression: str) -> None:
    check(expression, ROW | {"b": None})


@pytest.mark.parametrize(
    "expression",
    ["d = d", "d >= 1e308", "not (d < 1)", "d > 5", "1 < d", "not (1 > d)", "isnan(d)", "d <=> d"],
)
def test_nan_equals_itself_and_is_the_greatest(expression: str) -> None:
    check(expression, ROW | {"d": float("nan")})


def test_a_violation_shows_the_first_five_rows_that_break_it() -> None:
    with pytest.raises(InvalidDataError) as caught:
        check("a + b > 0", *(ROW | {"a": i, "b": -5} for i in range(20)))
    assert caught.value.message == (
        "6 rows of 20 break the constraint rule (a + b > 0), such as a = 0, b = -5;"
        " a = 1, b = -5; a = 2, b = -5; a = 3, b = -5; a = 4, b = -5."
    )


UNKNOWN = r"""
regexp_like(t, 'x')
a = '3'
t = 3
cast(a as string) = '3'
a IN (SELECT 1)
case when a > 1 then true end
missing > 1
s.missing > 1
a
a +
(a > 1
a > 1)
day = '29.2.2024'
day = at
a > 'x' 'y'
t rlike 'x'
n / 2 > 0
n % 2 = 1
t like '\\%'
ok > t
s = s
rand() > 0.5
current_date() > day
a & 1 = 1
day + 1 > day
t = 'a\u0041'
a div 2 = 1
array(1)[0] = 1
a > 1; drop table x
max(a) > 1
"""


@pytest.mark.parametrize(
    "expression",
    UNKNOWN.strip().splitlines(),
)
def test_an_expression_that_cannot_be_evaluated_exactly_is_refused(expression: str) -> None:
    plain = table(CHECKED, delta__constraints__rule=expression)
    store = MemoryStore()
    with pytest.raises(UnsupportedFeatureError, match="rule"):
        write(plain, rows_of(plain, [ROW]), store)
    assert list(store.list("", recursive=True)) == []


def test_an_overflow_keeps_rows_out() -> None:
    with pytest.raises(InvalidDataError, match=r"rule .* cannot be computed"):
        check("a + 1 > 0", ROW | {"a": 2**31 - 1})


def test_letters_beyond_ascii_have_no_case_here() -> None:
    with pytest.raises(UnsupportedFeatureError, match="ASCII"):
        check("upper(t) = 'É'", ROW | {"t": "é"})


def test_an_invariant_on_a_column_is_a_constraint() -> None:
    rule = json.dumps({"expression": {"expression": "x > 3"}})
    field = StructField("x", delta.INTEGER, True, {"delta.invariants": rule})
    plain = Plain(StructType((field,)), features=["invariants"])
    write(plain, rows_of(plain, [{"x": 4}]), MemoryStore())
    for bad in (3, None):
        with pytest.raises(InvalidDataError, match="on column x"):
            write(plain, rows_of(plain, [{"x": bad}]), MemoryStore())


# Files


def test_files_are_closed_at_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "_ROW_GROUP_BYTES", 1 << 16)
    monkeypatch.setattr(file_writer, "TARGET_FILE_SIZE", 1 << 17)
    plain = table("id long, noise string")
    rows = pa.table({"id": range(20_000), "noise": [f"{i * 2654435761:x}" for i in range(20_000)]})
    adds = written(plain, rows, tmp_path)
    assert len(adds) > 1
    assert all(add.size == (tmp_path / add.path).stat().st_size for add in adds)
    assert sum(json.loads(add.stats or "")["numRecords"] for add in adds) == 20_000
    assert as_bag(to_arrow(load_path(str(tmp_path)))) == as_bag(rows)


def test_memory_is_bounded_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "_HELD_BYTES", 10_000)
    plain = table("id long, p long", "p")
    batches = [pa.record_batch({"id": range(100), "p": [i % 50 for i in range(100)]})] * 20
    rows = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    adds = written(plain, rows, tmp_path)
    assert len(adds) > 50
    assert to_arrow(load_path(str(tmp_path))).num_rows == 2000


def test_files_of_a_write_that_is_refused_later_are_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_writer, "_HELD_BYTES", 1)
    store = MemoryStore()
    seen: list[int] = []

    def batches() -> Any:
        yield pa.record_batch({"a": [1, 2]})
        yield pa.record_batch({"a": [3]})
        deadline = time.monotonic() + 20  # files are written while the next rows are produced
        while not seen and time.monotonic() < deadline:
            seen.extend(1 for _ in store.list("", recursive=True))
        yield pa.record_batch({"a": pa.array([None], pa.int64())})

    rows = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    with pytest.raises(InvalidDataError, match="may not be null"):
        write(table("a long not null"), rows, store)
    assert seen
    assert list(store.list("", recursive=True)) == []


def test_a_store_that_fails_leaves_no_files_behind() -> None:
    class Full(MemoryStore):
        def put(self, path: str, content: bytes) -> None:
            if "p=3" in path:
                raise UnavailableError("The disk is full.")
            super().put(path, content)

    store = Full()
    rows = pa.table({"id": range(10), "p": [i % 5 for i in range(10)]})
    with pytest.raises(UnavailableError):
        write(table("id long, p long", "p"), rows, store)
    assert list(store.list("", recursive=True)) == []


def test_timestamps_are_stored_as_microseconds_and_say_whether_they_are_utc(
    tmp_path: Path,
) -> None:
    plain = table("k timestamp, l timestamp_ntz")
    [add] = written(plain, rows_of(plain, [{"k": ROW["at"]}]), tmp_path)
    columns = pq.ParquetFile(tmp_path / add.path).schema
    assert [str(columns.column(i).logical_type) for i in range(2)] == [
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, is_from_converted_type=false,"
        " force_set_converted_type=false)",
        "Timestamp(isAdjustedToUTC=false, timeUnit=microseconds, is_from_converted_type=false,"
        " force_set_converted_type=false)",
    ]
    assert {columns.column(i).physical_type for i in range(2)} == {"INT64"}
