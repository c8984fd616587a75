"""Statistics hold of every value, say as much as they can, and are read by others."""

import datetime as dt
import itertools
import json
import re
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.data.arrow_types import arrow_schema, delta_schema, file_schema
from headgate.data.row_conversion import conform
from headgate.data.statistics_builder import (
    StatisticsBuilder,
    indexed_columns,
    truncated_max,
    truncated_min,
)
from headgate.errors import InvalidArgumentError
from headgate.protocol.expressions.predicates import Compare, IsNull, Operator, Predicate
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.partition_values import format_partition_value
from headgate.protocol.schema.types import DOUBLE, FLOAT, StructField, StructType
from headgate.protocol.statistics import num_records
from headgate.storage.memory import MemoryStore
from tests.client.plain_tables import PRIMITIVES, Plain, rows_of, table, tables, write
from tests.kit.predicates import may_match

TABLES = Path(__file__).parents[1] / "table" / "tables"


def gathered(columns: str, *batches: list[dict[str, Any]], **properties: str) -> dict[str, Any]:
    return of(parse_schema(columns), *batches, **properties)


def of(schema: StructType, *batches: list[dict[str, Any]], **properties: str) -> dict[str, Any]:
    named = {f"delta.{key}": value for key, value in properties.items()}
    statistics = StatisticsBuilder(indexed_columns(schema, [], named), named)
    for rows in batches:
        statistics.add(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)))
    found: dict[str, Any] = json.loads(statistics.to_json(), parse_float=Decimal)
    return found


def column(*values: Any) -> list[dict[str, Any]]:
    return [{"x": value} for value in values]


def bounds(kind: str, *values: Any) -> tuple[Any, Any]:
    found = gathered(f"x {kind}", column(*values))
    return found["minValues"].get("x"), found["maxValues"].get("x")


# Bounds


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("long", [3, None, -9223372036854775808], (-9223372036854775808, 3)),
        ("byte", [None, None], (None, None)),
        ("decimal(38,10)", [Decimal("1.5"), Decimal("-1234567890123456789012345678.0123456789")],
         (Decimal("-1234567890123456789012345678.0123456789"), Decimal("1.5"))),
        ("double", [1.5, -2.25], (Decimal("-2.25"), Decimal("1.5"))),
        ("double", [1.5, nan], (None, None)),
        ("double", [1.5, float("inf")], (Decimal("1.5"), None)),
        ("float", [float("-inf"), 0.5], (None, Decimal("0.5"))),
        ("string", ["b", "", "é"], ("", "é")),
        ("date", [dt.date(2024, 2, 29), dt.date(1, 1, 1)], ("0001-01-01", "2024-02-29")),
        ("boolean", [True, False], (None, None)),
        ("binary", [b"x"], (None, None)),
        ("array<int>", [[1]], (None, None)),
    ],
)  # fmt: skip
def test_bounds_of_each_type(kind: str, values: list[Any], expected: tuple[Any, Any]) -> None:
    assert bounds(kind, *values) == expected


@pytest.mark.parametrize(("kind", "zone"), [("timestamp", "Z"), ("timestamp_ntz", "")])
def test_a_timestamps_lower_bound_is_rounded_down_and_its_upper_bound_up(
    kind: str, zone: str
) -> None:
    tz = dt.UTC if zone else None
    first = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=tz)
    last = dt.datetime(2024, 2, 29, 1, 2, 3, 4_001, tzinfo=tz)
    low, high = f"1969-12-31T23:59:59.999{zone}", f"2024-02-29T01:02:03.005{zone}"
    assert bounds(kind, last, first) == (low, high)


def test_whole_milliseconds_are_not_rounded() -> None:
    moment = dt.datetime(1950, 1, 1, 0, 0, 0, 7_000, tzinfo=dt.UTC)
    assert bounds("timestamp", moment) == ("1950-01-01T00:00:00.007Z",) * 2


def test_a_bound_beyond_the_year_9999_is_left_out() -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    assert bounds("timestamp", last) == ("9999-12-31T23:59:59.999Z", None)
    beyond = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    statistics = StatisticsBuilder(indexed_columns(parse_schema("x date"), [], {}), {})
    statistics.add(pa.RecordBatch.from_arrays([beyond], ["x"]))
    assert json.loads(statistics.to_json())["maxValues"] == {}


@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_is_bounded_by_both_its_signs(zeros: list[float]) -> None:
    assert [str(bound) for bound in bounds("double", *zeros)] == ["-0.0", "0.0"]


def test_bounds_are_those_of_all_batches() -> None:
    found = gathered("x int", column(5, 9), column(1, 2), column(4))
    assert (found["minValues"], found["maxValues"]) == ({"x": 1}, {"x": 9})


def test_nan_in_one_batch_takes_the_bounds_of_all_away() -> None:
    assert gathered("x double", column(1.0), column(nan), column(2.0))["minValues"] == {}


def test_nulls_are_counted_where_a_struct_is_null_too() -> None:
    columns = "s struct<a: int, t: struct<b: string>>, x map<string, int>"
    rows = [{"s": None, "x": None}, {"s": {"a": None, "t": None}, "x": []}]
    rows.append({"s": {"a": 1, "t": {"b": "b"}}, "x": [("k", None)]})
    assert gathered(columns, rows) == {
        "numRecords": 3,
        "minValues": {"s": {"a": 1, "t": {"b": "b"}}},
        "maxValues": {"s": {"a": 1, "t": {"b": "b"}}},
        "nullCount": {"s": {"a": 2, "t": {"b": 2}}, "x": 1},
    }


@pytest.mark.slow
@settings(deadline=None)
@given(tables(st.sampled_from(PRIMITIVES)))
def test_every_value_lies_within_the_bounds(drawn: Any) -> None:
    schema, rows = drawn
    found = of(schema, rows[:5], rows[5:])
    assert found["numRecords"] == len(rows)
    for item in schema.fields:
        values = [row[item.name] for row in rows]
        assert found["nullCount"][item.name] == values.count(None)
        is_float = item.type in (FLOAT, DOUBLE)
        low, high = (found[which].get(item.name) for which in ("minValues", "maxValues"))
        for value in values:
            if value is not None:
                given = comparable(value, is_float)
                assert low is None or comparable(low, is_float) <= given
                assert high is None or given <= comparable(high, is_float)


@pytest.mark.slow
@settings(deadline=None)
@given(tables(st.sampled_from(PRIMITIVES)))
def test_no_row_is_skipped_by_a_search_for_its_own_values(drawn: Any) -> None:
    schema, rows = drawn
    found = of(schema, rows)
    bounds = (found["minValues"], found["maxValues"], found["nullCount"], found["numRecords"])
    for item, row in itertools.product(schema.fields, rows):
        value = row[item.name]
        if value is None:
            where: Predicate = IsNull((item.name,))
        elif isinstance(value, bool | int | float | str):
            where = Compare((item.name,), Operator.EQ, value)
        elif isinstance(value, bytes):
            continue  # no literal is one
        else:
            where = Compare(
                (item.name,), Operator.EQ, str(format_partition_value(value, item.type))
            )
        assert may_match(where, schema, {}, *bounds)


def comparable(value: Any, is_float: bool = False) -> Any:
    match value:
        case float() | Decimal() | int():
            return float(value) if is_float else Decimal(value)
        case dt.datetime():
            return value.replace(tzinfo=None)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return dt.date.fromisoformat(value)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z?", value):
            return dt.datetime.fromisoformat(value.removesuffix("Z"))
        case str():
            return value.encode()
        case _:
            return value


# Cutting texts short

AWKWARD = st.text(st.sampled_from("az~\x7f\x80é￿\U00010000\U0010ffff"), max_size=12)


@given(st.text() | AWKWARD, st.integers(0, 6))
def test_cut_bounds_lie_on_both_sides_of_the_text(text: str, length: int) -> None:
    low, high = truncated_min(text, length), truncated_max(text, length)
    assert low.encode(errors="surrogatepass") <= text.encode(errors="surrogatepass")
    assert len(low) <= length
    if high is not None:
        assert high.encode(errors="surrogatepass") >= text.encode(errors="surrogatepass")
        assert len(high) <= 2 * length + 1


@given(AWKWARD, AWKWARD, st.integers(1, 4))
def test_the_cut_upper_bound_is_above_all_that_sorts_below_the_greatest(
    one: str, other: str, length: int
) -> None:
    high = truncated_max(max(one, other), length)
    assert high is None or high >= one
    assert high is None or high >= other


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcd", "abcd"),
        ("abcde", "abcd\x7f"),
        ("abcd\x7f", "abcd\U0010ffff"),
        ("abcdé", "abcd\U0010ffff"),
        ("abcd\U0010ffffe", "abcd\U0010ffff\x7f"),
        ("abcd\U0010ffff", "abcd\U0010ffff"),
        ("abcd" + "\U0010ffff" * 9, None),
    ],
)
def test_the_upper_bound_is_cut_as_delta_cuts_it(text: str, expected: str | None) -> None:
    assert truncated_max(text, 4) == expected


def spark_files() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for log in sorted(TABLES.glob("*/table/_delta_log/*.json")):
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
        case = log.parts[-4]
        adds = [line["add"] for line in lines if line.get("add")]
        if "mapping" not in case and "names" not in case and ".compacted." not in log.name:
            found += [(case, add) for add in adds if add.get("stats")]
    return found


@pytest.mark.slow
def test_statistics_are_those_of_delta_spark_but_never_narrower() -> None:
    compared = 0
    for case, add in spark_files():
        file = TABLES / case / "table" / unquote(add["path"])
        theirs = json.loads(add["stats"], parse_float=Decimal)
        if not file.is_file() or not theirs.get("nullCount"):
            continue
        rows = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
        schema = delta_schema(rows.schema)
        if contains_any(schema, {"metadata", "value"}):  # variants, which have no bounds
            continue
        statistics = StatisticsBuilder(indexed_columns(schema, [], {}), {})
        for batch in rows.to_batches():
            statistics.add(conform(batch, schema))
        ours = json.loads(statistics.to_json(), parse_float=Decimal)
        assert ours["numRecords"] == theirs["numRecords"]
        for path, count in leaves(theirs["nullCount"]):
            found = within(ours["nullCount"], path)
            assert found == count or (found is None and count == ours["numRecords"])
        for which in ("minValues", "maxValues"):
            for path, bound in leaves(theirs.get(which, {})):
                compared += is_as_wide(within(ours[which], path), bound, which)
    assert compared > 500


def is_as_wide(ours: Any, theirs: Any, which: str) -> bool:
    if ours is None:  # Spark writes NaN and infinities as texts; we leave such bounds out
        return theirs in ("NaN", "Infinity", "-Infinity") or which == "maxValues"
    one, other = comparable(ours), comparable(theirs)
    if isinstance(one, dt.datetime) and which == "maxValues":
        assert one - other in (dt.timedelta(0), dt.timedelta(milliseconds=1))
    elif isinstance(one, Decimal):  # a float has fewer digits there
        assert float(one) == pytest.approx(float(other), rel=1e-7)
    elif isinstance(one, bytes) and not str(theirs).isascii() and which == "maxValues":
        assert one >= other.removesuffix("\U0010ffff".encode())  # we count no surrogates
    else:
        assert one == other
    return True


def contains_any(schema: StructType, names: set[str]) -> bool:
    return any(names <= {inner.name for inner in all_structs(item)} for item in schema.fields)


def all_structs(item: StructField) -> tuple[StructField, ...]:
    return item.type.fields if isinstance(item.type, StructType) else ()


def leaves(tree: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            found += leaves(value, (*path, name))
        else:
            found.append(((*path, name), value))
    return found


def within(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name, {})
    return None if tree == {} else tree


# Which columns


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ["a", "S.b", "S.t.c", "d.e"]),
        ({"dataSkippingNumIndexedCols": "2"}, ["a", "S.b"]),
        ({"dataSkippingNumIndexedCols": "0"}, []),
        ({"dataSkippingNumIndexedCols": "-1"}, ["a", "S.b", "S.t.c", "d.e"]),
        ({"dataSkippingStatsColumns": "s, `D.e`"}, ["S.b", "S.t.c", "d.e"]),
        ({"dataSkippingStatsColumns": "s.T.c"}, ["S.t.c"]),
        ({"dataSkippingStatsColumns": ""}, []),
    ],
)
def test_properties_choose_the_columns(properties: dict[str, str], expected: list[str]) -> None:
    schema = parse_schema("a int, S struct<b: int, t: struct<c: int>>, p int, v void, `d.e` int")
    named = {f"delta.{key}": value for key, value in properties.items()}
    found = indexed_columns(schema, ["p"], named)
    assert [".".join(leaf.path) for leaf in found] == expected


def test_only_the_first_32_leaves_have_statistics() -> None:
    schema = parse_schema(", ".join(f"c{i} int" for i in range(40)))
    assert [leaf.path[0] for leaf in indexed_columns(schema, [], {})] == [
        f"c{i}" for i in range(32)
    ]


def test_a_property_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="dataSkippingNumIndexedCols"):
        indexed_columns(parse_schema("a int"), [], {"delta.dataSkippingNumIndexedCols": "many"})


def test_the_length_of_texts_is_a_property() -> None:
    found = gathered("x string", column("abcdef"), dataSkippingStringPrefixLength="3")
    assert (found["minValues"], found["maxValues"]) == ({"x": "abc"}, {"x": "abc\x7f"})


def test_statistics_go_by_physical_names() -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    schema = StructType(
        tuple(
            type(item)(item.name, item.type, item.nullable, mapped)
            for item in parse_schema("x int").fields
        )
    )
    statistics = StatisticsBuilder(indexed_columns(schema, [], {}), {})
    statistics.add(pa.RecordBatch.from_pylist([{"col-1": 5}], schema=file_schema(schema)))
    assert json.loads(statistics.to_json())["minValues"] == {"col-1": 5}


def test_bounds_are_said_to_be_tight_where_deletion_vectors_are_supported() -> None:
    rows = rows_of(table("x int"), column(1))
    plain = Plain(parse_schema("x int"), features=["deletionVectors"])
    [add] = write(plain, rows, MemoryStore())
    assert add.stats is not None
    assert json.loads(add.stats)["tightBounds"] is True
    [add] = write(table("x int"), rows, MemoryStore())
    assert "tightBounds" not in (add.stats or "")


def test_the_number_of_records_is_read_back() -> None:
    [add] = write(table("x int"), rows_of(table("x int"), column(1, 2)), MemoryStore())
    assert num_records(add) == 2


# Beside another writer


def test_statistics_equal_those_of_deltalake(tmp_path: Path) -> None:
    columns = "a long, b string, c double, d date, e decimal(10,2), s struct<f: int>"
    schema = parse_schema(columns)
    rows = [
        {"a": 1, "b": "x", "c": 0.5, "d": dt.date(2024, 1, 1), "e": Decimal("1.25"),
         "s": {"f": 7}},
        {"a": None, "b": "y", "c": -0.5, "d": None, "e": Decimal("-9.75"), "s": None},
    ]  # fmt: skip
    deltalake.write_deltalake(tmp_path, pa.Table.from_pylist(rows, schema=arrow_schema(schema)))
    log = (tmp_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    [theirs] = [json.loads(line)["add"]["stats"] for line in log if '"add"' in line]
    assert of(schema, rows) == json.loads(theirs, parse_float=Decimal)
