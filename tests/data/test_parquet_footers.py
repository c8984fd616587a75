"""Footers give the statistics that rows give, or fewer; and never a bound that does not hold."""

import datetime as dt
import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.data.arrow_types import arrow_schema, delta_schema, file_schema
from headgate.data.parquet_footers import footer_statistics
from headgate.data.statistics_builder import StatisticsBuilder, indexed_columns
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.column_mapping import leaf_columns
from headgate.protocol.schema.types import (
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from tests.client.plain_tables import tables
from tests.data.test_statistics_builder import comparable, is_as_wide, leaves, within
from tests.table.test_delta_spark_tables import TABLES

ARROW = f"parquet-cpp-arrow version {pa.__version__}"
SPARK = "parquet-mr version 1.17.0"
Tree = dict[str, Any]


def written(rows: pa.Table, by: str = ARROW, **options: Any) -> bytes:
    """Write a file whose footer names another writer."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return changed(sink.getvalue(), ARROW.encode(), by.ljust(len(ARROW)).encode())


def changed(content: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert old in content
    return content.replace(old, new)


def footer(content: bytes, schema: StructType, *, tight: bool = False, **named: str) -> Tree:
    properties = {f"delta.{key}": value for key, value in named.items()}
    chosen = indexed_columns(schema, [], properties)
    metadata = pq.read_metadata(io.BytesIO(content))
    return parsed(footer_statistics(metadata, chosen, properties, tight=tight))


def parsed(text: str) -> Tree:
    found: Tree = json.loads(text, parse_float=Decimal)
    return found


def by_rows(rows: pa.Table, schema: StructType) -> Tree:
    statistics = StatisticsBuilder(indexed_columns(schema, [], {}), {})
    for batch in rows.cast(arrow_schema(schema)).to_batches():
        statistics.add(batch)
    return parsed(statistics.to_json())


def given_rows(columns: str, *rows: dict[str, Any]) -> tuple[pa.Table, StructType]:
    schema = parse_schema(columns)
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(schema)), schema


def bounds_of(kind: str, values: pa.Array, by: str = SPARK, **options: Any) -> tuple[Any, Any, Any]:
    """Give both bounds and the nulls of a column of some type."""
    return told_of(kind, written(pa.table({"x": values}), by, **options))


def told_of(kind: str, content: bytes) -> tuple[Any, Any, Any]:
    found = footer(content, parse_schema(f"x {kind}"))
    return found["minValues"].get("x"), found["maxValues"].get("x"), found["nullCount"].get("x")


# Beside the rows


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw ways to write a file."""
    return {
        "row_group_size": draw(st.integers(1, 6)),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "store_decimal_as_integer": draw(st.booleans()),
        "use_deprecated_int96_timestamps": draw(st.booleans()),
        "coerce_timestamps": draw(st.sampled_from([None, "ms", "us"])),
        "allow_truncated_timestamps": True,
        "store_schema": draw(st.booleans()),
    }


def without_nan(value: Any) -> Any:
    match value:
        case float() if isnan(value):
            return 0.5
        case dict():
            return {key: without_nan(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(without_nan(inner) for inner in value)
        case _:
            return value


@pytest.mark.slow
@settings(deadline=None)
@given(tables(), options(), st.sampled_from([ARROW, SPARK]))
def test_a_footer_gives_what_its_rows_give_and_leaves_out_what_it_cannot_tell(
    drawn: tuple[StructType, list[Tree]], chosen: dict[str, Any], by: str
) -> None:
    schema, rows = drawn
    if by == SPARK:  # it would have shown NaN, and Arrow, who writes here, does not
        rows = without_nan(rows)
    table = pa.Table.from_pylist(rows, schema=arrow_schema(schema))
    content = written(table, by, **chosen)
    ours = footer(content, schema)
    stored = pq.ParquetFile(io.BytesIO(content), coerce_int96_timestamp_unit="us").read()
    theirs = by_rows(stored, schema)

    hidden: set[DataType] = {FLOAT, DOUBLE} if by == ARROW else set()
    uncounted: set[DataType] = set()
    if chosen["use_deprecated_int96_timestamps"] and rows:
        uncounted = {TIMESTAMP, TIMESTAMP_NTZ}
    assert ours["numRecords"] == theirs["numRecords"]
    for leaf in leaf_columns(schema):
        is_nested = isinstance(leaf.type, ArrayType | MapType)
        for which in ("minValues", "maxValues"):
            bound = within(ours[which], leaf.path)
            is_hidden = leaf.type in hidden | uncounted or is_nested
            assert bound == (None if is_hidden else within(theirs[which], leaf.path))
        count = within(ours["nullCount"], leaf.path)
        is_uncounted = is_nested or leaf.type in uncounted
        assert count == (None if is_uncounted else within(theirs["nullCount"], leaf.path))


@pytest.mark.slow
@settings(deadline=None)
@given(tables(), options(), st.sampled_from([ARROW, SPARK]))
def test_every_value_lies_within_the_bounds_of_the_footer(
    drawn: tuple[StructType, list[Tree]], chosen: dict[str, Any], by: str
) -> None:
    schema, rows = drawn
    rows = without_nan(rows) if by == SPARK else rows
    table = pa.Table.from_pylist(rows, schema=arrow_schema(schema))
    content = written(table, by, **chosen)
    found = footer(content, schema)
    stored = pq.ParquetFile(io.BytesIO(content), coerce_int96_timestamp_unit="us").read()
    for item in schema.fields:
        low, high = (found[which].get(item.name) for which in ("minValues", "maxValues"))
        is_float = item.type in (FLOAT, DOUBLE)
        if isinstance(item.type, StructType):
            continue
        for value in stored.column(item.name).to_pylist():
            if value is not None and low is not None:
                assert comparable(low, is_float) <= comparable(value, is_float)
            if value is not None and high is not None:
                assert comparable(value, is_float) <= comparable(high, is_float)


def test_statistics_are_of_the_same_form_as_those_of_rows() -> None:
    columns = "a long, b string, c double, d date, e decimal(38,2), s struct<f: timestamp>, g byte"
    rows, schema = given_rows(
        columns,
        {"a": 1, "b": "x" * 40, "c": 0.0, "d": dt.date(2024, 2, 29), "e": Decimal("1.20"),
         "s": {"f": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)}, "g": None},
        {"a": None, "b": "y" * 40, "c": -0.0, "d": None, "e": Decimal("-" + "9" * 36 + ".99"),
         "s": None, "g": None},
    )  # fmt: skip
    leaves = indexed_columns(schema, [], {})
    statistics = StatisticsBuilder(leaves, {}, tight=True)
    for batch in rows.to_batches():
        statistics.add(batch)
    metadata = pq.read_metadata(io.BytesIO(written(rows, SPARK, row_group_size=1)))
    assert footer_statistics(metadata, leaves, {}, tight=True) == statistics.to_json()


def test_properties_choose_the_columns_and_the_length_of_texts() -> None:
    rows, schema = given_rows("a string, b string", {"a": "abcdef", "b": "b"})
    found = footer(
        written(rows),
        schema,
        dataSkippingNumIndexedCols="1",
        dataSkippingStringPrefixLength="3",
    )
    assert found == {
        "numRecords": 1,
        "minValues": {"a": "abc"},
        "maxValues": {"a": "abc\x7f"},
        "nullCount": {"a": 0},
    }


# Types


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("byte", pa.array([3, None, -128], pa.int8()), (-128, 3, 1)),
        ("short", pa.array([3, -4], pa.int16()), (-4, 3, 0)),
        ("long", pa.array([2**63 - 1, -(2**63)]), (-(2**63), 2**63 - 1, 0)),
        ("long", pa.array([5], pa.int32()), (5, 5, 0)),
        ("short", pa.array([1, 255], pa.uint8()), (1, 255, 0)),
        ("integer", pa.array([1, 65535], pa.uint16()), (1, 65535, 0)),
        ("long", pa.array([1, 2**32 - 1], pa.uint32()), (1, 2**32 - 1, 0)),
        ("integer", pa.array([1, 2**32 - 1], pa.uint32()), (None, None, 0)),
        ("long", pa.array([1, 2**64 - 1], pa.uint64()), (None, None, 0)),
        ("double", pa.array([0.5], pa.float32()), (Decimal("0.5"), Decimal("0.5"), 0)),
        ("float", pa.array([0.5], pa.float64()), (None, None, 0)),
        ("float", pa.array([0.5], pa.float16()), (None, None, 0)),
        ("double", pa.array([-inf, 1.5]), (None, Decimal("1.5"), 0)),
        ("double", pa.array([5], pa.int32()), (None, None, 0)),
        ("double", pa.array([5], pa.int8()), (None, None, 0)),
        ("long", pa.array([0.5]), (None, None, 0)),
        ("boolean", pa.array([True, None]), (None, None, 1)),
        ("binary", pa.array([b"a"]), (None, None, 0)),
        ("binary", pa.array(["a"]), (None, None, 0)),
        ("string", pa.array([b"a"]), (None, None, 0)),
        ("string", pa.array(["b", "é", ""]), ("", "é", 0)),
        ("string", pa.array(["a", "b"]).dictionary_encode(), ("a", "b", 0)),
        ("date", pa.array([19782], pa.int32()).cast(pa.date32()), ("2024-02-29",) * 2 + (0,)),
        ("date", pa.array([0, 2_932_897]).cast(pa.int32()).cast(pa.date32()),
         ("1970-01-01", None, 0)),
        ("date", pa.array([1], pa.int32()), (None, None, 0)),
        ("integer", pa.array([1], pa.int32()).cast(pa.date32()), (None, None, 0)),
        ("timestamp_ntz", pa.array([1], pa.int32()).cast(pa.date32()), (None, None, 0)),
        ("long", pa.array([1], pa.timestamp("us")), (None, None, 0)),
        ("timestamp", pa.array([1]), (None, None, 0)),
        ("decimal(9,2)", pa.array([1]), (None, None, 0)),
        ("long", pa.array([Decimal("1.5")], pa.decimal128(18, 2)), (None, None, 0)),
        ("long", pa.array([None, None], pa.int64()), (None, None, 2)),
        ("long", pa.nulls(2), (None, None, None)),
    ],
)  # fmt: skip
def test_bounds_of_each_type_as_it_is_stored(
    kind: str, values: pa.Array, expected: tuple[Any, Any, Any]
) -> None:
    assert bounds_of(kind, values, store_decimal_as_integer=True) == expected


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(("kind", "zone"), [("timestamp", "UTC"), ("timestamp_ntz", None)])
def test_timestamps_of_each_unit(unit: str, kind: str, zone: str | None) -> None:
    of = pa.timestamp(unit, zone)
    other = pa.timestamp(unit, None if zone else "UTC")
    steps = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    values = pa.array([-1000 * steps - 1, None, 5 * steps], pa.int64())
    end = "Z" if zone else ""
    low = "1969-12-31T23:59:58.999" + end
    assert bounds_of(kind, values.cast(of)) == (low, "1970-01-01T00:00:00.005" + end, 1)
    assert bounds_of(kind, values.cast(other)) == (None, None, 1)


def test_nanoseconds_are_rounded_outward() -> None:
    values = pa.array([-1, 1], pa.timestamp("ns"))
    expected = ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.001", 0)
    assert bounds_of("timestamp_ntz", values) == expected


def test_int96_timestamps_have_no_bounds() -> None:
    values = pa.array([1, 2], pa.timestamp("us", "UTC"))
    assert bounds_of("timestamp", values, use_deprecated_int96_timestamps=True) == (None,) * 3


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize(("digits", "physical"), [(9, "INT32"), (18, "INT64"), (38, "FIXED")])
def test_decimals_are_exact_however_they_are_stored(
    digits: int, physical: str, as_integer: bool
) -> None:
    greatest = Decimal("9" * (digits - 2) + ".99")
    least = greatest.copy_negate()
    values = pa.array([greatest, least], pa.decimal128(digits, 2))
    content = written(pa.table({"x": values}), store_decimal_as_integer=as_integer)
    stored = pq.read_metadata(io.BytesIO(content)).schema.column(0).physical_type
    assert stored.startswith(physical if as_integer else "FIXED")
    assert told_of(f"decimal({digits},2)", content) == (least, greatest, 0)


def test_decimals_in_bytes_of_no_fixed_length_are_exact() -> None:
    least, greatest = Decimal("-" + "9" * 36 + ".99"), Decimal("1.00")
    content = written(pa.table({"x": pa.array([greatest, least], pa.decimal128(38, 2))}))
    # Of the schema's element and of the column: fixed length bytes, which Arrow writes, to bytes.
    content = changed(content, b"\x15\x0e\x15\x20", b"\x15\x0c\x15\x20")
    content = changed(content, b"\x15\x0e\x19", b"\x15\x0c\x19")
    assert pq.read_metadata(io.BytesIO(content)).schema.column(0).physical_type == "BYTE_ARRAY"
    assert told_of("decimal(38,2)", content) == (least, greatest, 0)


@pytest.mark.parametrize(("scale", "expected"), [(2, "1.5"), (1, "1.5"), (0, None)])
def test_a_decimal_of_more_digits_than_the_column_has_no_bounds(
    scale: int, expected: str | None
) -> None:
    bound = None if expected is None else Decimal(expected)
    values = pa.array([Decimal("1.5")], pa.decimal128(9, 1))
    assert bounds_of(f"decimal(9,{scale})", values) == (bound, bound, 0)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_is_bounded_by_both_its_signs(zero: float) -> None:
    assert [str(bound) for bound in bounds_of("double", pa.array([zero]))[:2]] == ["-0.0", "0.0"]


# NaN


@pytest.mark.parametrize(
    ("by", "is_bounded"),
    [
        ("parquet-mr version 1.9.9", False),
        ("parquet-mr version 1.10.0", True),
        ("parquet-mr version 1.12.3-dbx", True),
        ("parquet-mr version 1.17.1", True),
        ("parquet-mr version 1.18.0", False),
        ("parquet-mr version 2.0.0", False),
        ("parquet-mr compatible Photon", False),
        ("parquet-rs version 55.0.0", False),
        (ARROW, False),
        ("", False),
    ],
)
@pytest.mark.parametrize("kind", ["double", "float"])
def test_floats_are_bounded_where_the_writer_would_have_shown_nan(
    kind: str, by: str, is_bounded: bool
) -> None:
    values = pa.array([1.5, 2.5], pa.float64() if kind == "double" else pa.float32())
    bounds = (Decimal("1.5"), Decimal("2.5"), 0) if is_bounded else (None, None, 0)
    assert bounds_of(kind, values, by) == bounds


def test_arrow_hides_nan_which_is_why_its_bounds_are_not_taken() -> None:
    content = written(pa.table({"x": [1.5, nan]}))
    found = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0).statistics
    assert (found.has_min_max, found.max_raw) == (True, 1.5)
    assert told_of("double", content) == (None, None, 0)


@pytest.mark.parametrize("which", [1234.5, -1234.5])
def test_nan_in_either_bound_takes_both_away(which: float) -> None:
    table = pa.table({"x": [1234.5, -1234.5, 7.5, 8.5]})
    content = written(table, SPARK, row_group_size=2, use_dictionary=False)
    shown = changed(content, struct.pack("<d", which), struct.pack("<d", nan))
    assert told_of("double", content) == (Decimal("-1234.5"), Decimal("1234.5"), 0)
    assert told_of("double", shown) == (None, None, 0)


# Texts, and what else is ordered by bytes


@pytest.mark.parametrize(
    ("by", "is_bounded"),
    [
        ("parquet-mr version 1.10.0", True),
        ("parquet-mr version 1.18.0", True),
        ("parquet-mr version 2.0.0", True),
        (ARROW, True),
        ("parquet-mr version 1.8.3", False),
        ("parquet-mr version 1.9.0", False),
        ("parquet-cpp version 1.5.1", False),
        ("parquet-cpp-velox version 1.0", False),
        ("another writer", False),
        ("", False),
    ],
)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", pa.array(["a", "é"])),
        ("decimal(9,2)", pa.array([Decimal("-1.00"), Decimal("2.00")], pa.decimal128(9, 2))),
        ("long", pa.array([1, 2], pa.uint32())),
    ],
)
def test_bytes_are_bounded_where_the_writer_orders_them_rightly(
    kind: str, values: pa.Array, by: str, is_bounded: bool
) -> None:
    bounds = bounds_of(kind, values, by)[:2]
    assert bounds == (tuple(values.to_pylist()) if is_bounded else (None, None))


def test_whole_numbers_are_bounded_whoever_wrote_them() -> None:
    assert bounds_of("long", pa.array([1, 2]), "another writer") == (1, 2, 0)
    values = pa.array([Decimal("1.00")], pa.decimal128(9, 2))
    found = bounds_of("decimal(9,2)", values, "another writer", store_decimal_as_integer=True)
    assert found == (Decimal("1.00"), Decimal("1.00"), 0)


def test_a_text_cut_within_a_character_is_no_bound() -> None:
    content = written(pa.table({"x": ["a", "zzé"]}), use_dictionary=False)
    assert told_of("string", changed(content, "zzé".encode(), b"zzz\xc3")) == (None, None, 0)


def test_a_text_too_long_for_the_footer_has_no_bound() -> None:
    assert bounds_of("string", pa.array(["a", "x" * 5000])) == (None, None, 0)


# Dates and timestamps in the calendar of before 1582


@pytest.mark.parametrize(
    ("key", "value", "is_bounded"),
    [
        ("org.apache.spark.legacyDateTime", "", False),
        ("org.apache.spark.version", "2.4.8", False),
        ("org.apache.spark.version", "3.0.0", True),
        ("org.apache.spark.version", "4.2.0", True),
    ],
)
@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("integer", pa.int32()),
    ],
)
def test_bounds_that_readers_would_have_to_move_are_left_out(
    kind: str, of: pa.DataType, key: str, value: str, is_bounded: bool
) -> None:
    table = pa.table({"x": pa.array([1], pa.int32()).cast(of) if kind in ("date", "integer")
                      else pa.array([1], of)})  # fmt: skip
    low, high, nulls = told_of(kind, written(table.replace_schema_metadata({key: value})))
    assert (low is not None, high is not None) == (is_bounded or kind == "integer",) * 2
    assert nulls == 0


# Row groups


def test_row_groups_are_merged() -> None:
    values = pa.array([5, 9, None, None, 1, None])
    assert bounds_of("long", values, row_group_size=2) == (1, 9, 3)


def test_a_row_group_without_bounds_takes_those_of_all_away_unless_it_is_all_null() -> None:
    values = pa.array(["a", "b", "x" * 5000, "c", None, None])
    assert bounds_of("string", values, row_group_size=2) == (None, None, 2)
    assert bounds_of("string", values.slice(3), row_group_size=1) == ("c", "c", 2)


def test_without_statistics_there_is_only_the_number_of_records() -> None:
    rows, schema = given_rows("a int, s struct<b: int>", {"a": 1, "s": None})
    empty: Tree = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    assert footer(written(rows, write_statistics=False), schema) == {"numRecords": 1} | empty


def test_a_row_group_without_a_count_takes_that_of_all_away() -> None:
    with_counts = written(pa.table({"x": [1, None]}))
    without = written(pa.table({"x": [2, None]}), write_statistics=False)
    metadata = pq.read_metadata(io.BytesIO(with_counts))
    assert joined(metadata, without)["nullCount"] == {}
    metadata = pq.read_metadata(io.BytesIO(without))
    assert joined(metadata, with_counts)["nullCount"] == {}


def test_bounds_do_not_need_a_count() -> None:
    content = written(pa.table({"x": [1, None, None, None, None, None, None, None, 2]}))
    # Seven nulls become seven distinct values: the field's number is the distance to the last.
    assert told_of("long", changed(content, b"\x16\x0e\x28", b"\x26\x0e\x18")) == (1, 2, None)


def joined(metadata: pq.FileMetaData, other: bytes) -> Tree:
    metadata.append_row_groups(pq.read_metadata(io.BytesIO(other)))
    schema = parse_schema("x long")
    found = parsed(footer_statistics(metadata, list(leaf_columns(schema)), {}))
    assert (found["numRecords"], found["minValues"]) == (4, {})
    return found


def test_an_empty_file_has_no_nulls() -> None:
    rows, schema = given_rows("a int, b string")
    assert footer(written(rows), schema) == {
        "numRecords": 0,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"a": 0, "b": 0},
    }


# Which column


def test_a_column_is_found_by_its_place_in_the_schema_not_by_a_text_with_dots() -> None:
    columns = "`a.b` int, a struct<b: int, `c.d`: int, c: struct<d: int>>"
    row = {"a.b": 1, "a": {"b": 2, "c.d": 3, "c": {"d": 4}}}
    rows, schema = given_rows(columns, row)
    found = footer(written(rows), schema)
    assert found["minValues"] == row
    assert found["maxValues"] == row


def test_a_column_that_the_file_lacks_has_no_statistics() -> None:
    content = written(pa.table({"a.b": [1]}))
    found = footer(content, parse_schema("a struct<b: long>, c long"))
    assert (found["minValues"], found["nullCount"]) == ({}, {})


def test_arrays_and_maps_have_no_statistics_and_the_columns_behind_them_have_their_own() -> None:
    columns = (
        "a array<struct<x: int, y: int>>, m map<string, struct<x: int, y: array<int>>>,"
        " s struct<a: array<int>, z: int>, `a.list.element.x` int, last int"
    )
    row = {"a": [{"x": 1, "y": 2}], "m": [("k", {"x": 3, "y": [4]})], "s": {"a": [5], "z": 6}}
    rows, schema = given_rows(columns, row | {"a.list.element.x": 7, "last": 8}, {})
    found = footer(written(rows), schema)
    assert found["minValues"] == {"s": {"z": 6}, "a.list.element.x": 7, "last": 8}
    assert found["nullCount"] == {"s": {"z": 1}, "a.list.element.x": 1, "last": 1}


class Pair(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.struct([("one", pa.int32()), ("two", pa.int32())]), "headgate.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "Pair":
        return cls()


@contextmanager
def known(of: pa.ExtensionType) -> Iterator[None]:
    pa.register_extension_type(of)
    try:
        yield
    finally:
        pa.unregister_extension_type(of.extension_name)


def test_a_type_of_ones_own_is_what_it_is_stored_as() -> None:
    pairs = pa.ExtensionArray.from_storage(
        Pair(), pa.array([{"one": 1, "two": 2}], Pair().storage_type)
    )
    lists = pa.ListArray.from_arrays([0, 1], pairs)
    content = written(pa.table({"l": lists, "p": pairs, "x": [3]}))
    schema = parse_schema("x long, p struct<one: int, two: int>")
    with known(Pair()):
        assert footer(content, schema)["minValues"] == {"x": 3, "p": {"one": 1, "two": 2}}


def test_statistics_go_by_physical_names() -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    [item] = parse_schema("x int").fields
    schema = StructType((StructField(item.name, item.type, metadata=mapped),))
    rows = pa.Table.from_pylist([{"col-1": 5}], schema=file_schema(schema))
    assert footer(written(rows), schema)["minValues"] == {"col-1": 5}


# Beside Spark


def spark_files() -> Iterator[tuple[pq.FileMetaData, Tree]]:
    for log in sorted(TABLES.glob("*/table/_delta_log/*.json")):
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
        for add in (line["add"] for line in lines if line.get("add")):
            file = log.parents[1] / unquote(add["path"])
            if add.get("stats") and ".compacted." not in log.name and file.is_file():
                yield pq.read_metadata(file), json.loads(add["stats"], parse_float=Decimal)


@pytest.mark.slow
def test_footers_of_spark_give_the_statistics_that_spark_itself_wrote() -> None:
    bounds, counts = 0, 0
    for metadata, theirs in spark_files():
        schema = delta_schema(metadata.schema.to_arrow_schema())
        ours = parsed(footer_statistics(metadata, list(leaf_columns(schema)), {}))
        stored = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        unordered = {column.path for column in stored if column.physical_type == "INT96"}
        assert ours["numRecords"] == theirs["numRecords"]
        for path, count in leaves(theirs.get("nullCount", {})):
            found = within(ours["nullCount"], path)
            if isinstance(found, int):  # else an array, a map or a variant
                assert found == count
                counts += 1
        for which in ("minValues", "maxValues"):
            for path, bound in leaves(theirs.get(which, {})):
                found = within(ours[which], path)
                if found is not None:
                    bounds += is_as_wide(found, bound, which)
                else:
                    has_nan = within(theirs["maxValues"], path) == "NaN"
                    # The last of these lies before the value it was cut from.
                    is_extreme = bound in ("Infinity", "-Infinity", "9999-12-31T23:59:59.999")
                    assert has_nan or is_extreme or ".".join(path) in unordered
    assert bounds > 500
    assert counts > 500
