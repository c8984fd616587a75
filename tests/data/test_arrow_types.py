"""Delta schemas and Arrow schemas, both ways."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from headgate.data.arrow_types import FIELD_ID, arrow_schema, delta_schema, file_schema
from headgate.errors import HeadgateError, InvalidSchemaError, UnsupportedFeatureError
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.column_mapping import with_mapping
from headgate.protocol.schema.types import StructField, StructType
from tests.client.plain_tables import types

ALL = (
    "a string, b long not null, c int, d short, e byte, f float, g double, h boolean, i binary,"
    " j date, k timestamp, l timestamp_ntz, m decimal(38,10),"
    " n array<struct<x: int, y: map<string, array<decimal(5,2)>>>>, o struct<z: string>"
)


def test_every_type_survives_a_round_trip() -> None:
    schema = parse_schema(ALL)
    assert delta_schema(arrow_schema(schema)) == schema


@given(types())
def test_any_nesting_survives_a_round_trip(kind: Any) -> None:
    schema = StructType((StructField("x", kind, nullable=False),))
    assert delta_schema(arrow_schema(schema)) == schema


def test_nullability_is_kept_at_each_level() -> None:
    inner = pa.field("value", pa.int64(), nullable=False)
    element = pa.field("element", pa.map_(pa.string(), inner), nullable=False)
    rows = pa.schema([pa.field("x", pa.list_(element), nullable=False)])
    assert arrow_schema(delta_schema(rows)) == rows


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "long"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "binary"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.date64(), "date"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal256(38, 38), "decimal(38,38)"),
        (pa.large_list(pa.int8()), "array<byte>"),
        (pa.list_(pa.int8(), 3), "array<byte>"),
        (pa.list_view(pa.int8()), "array<byte>"),
        (pa.json_(), "string"),
    ],
    ids=str,
)
def test_an_arrow_type_without_a_twin_takes_the_next_that_holds_it(
    given: pa.DataType, expected: str
) -> None:
    assert str(delta_schema(pa.schema([("x", given)])).fields[0].type) == expected


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (pa.uint64(), InvalidSchemaError),
        (pa.null(), InvalidSchemaError),
        (pa.decimal256(39, 0), InvalidSchemaError),
        (pa.decimal128(5, -2), InvalidSchemaError),
        (pa.time32("s"), UnsupportedFeatureError),
        (pa.time64("us"), UnsupportedFeatureError),
        (pa.duration("s"), UnsupportedFeatureError),
        (pa.month_day_nano_interval(), UnsupportedFeatureError),
        (pa.dense_union([pa.field("a", pa.int8())]), UnsupportedFeatureError),
        (pa.uuid(), UnsupportedFeatureError),
    ],
    ids=str,
)
def test_a_type_delta_cannot_hold_is_refused_with_its_column(
    given: pa.DataType, error: type[HeadgateError]
) -> None:
    rows = pa.schema([("outer", pa.struct([("x", given)]))])
    with pytest.raises(error, match=r"'outer\.x'"):
        delta_schema(rows)


def test_a_variant_is_its_two_binaries() -> None:
    [field] = arrow_schema(parse_schema("v variant"))
    assert [(f.name, f.type) for f in field.type.fields] == [
        ("metadata", pa.binary()),
        ("value", pa.binary()),
    ]


def test_files_have_physical_names_and_ids_and_no_void() -> None:
    names = iter(f"col-{i}" for i in range(9))
    schema, _ = with_mapping(
        parse_schema("p int, s struct<a: int, v: void>, v void, l array<struct<b: int>>"),
        names.__next__,
    )
    found = file_schema(schema, frozenset({"p"}))
    physical = {f.name: f.metadata["delta.columnMapping.physicalName"] for f in schema.fields}
    assert found.names == [physical["s"], physical["l"]]
    assert all(field.metadata[FIELD_ID] for field in found)
    [struct, listed] = found
    assert struct.type.num_fields == 1
    assert struct.type.field(0).metadata[FIELD_ID]
    assert listed.type.value_type.field(0).metadata[FIELD_ID]
