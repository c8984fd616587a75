"""Delta Log Entries: what is published is a Delta log like any other. Readers we did not write,
kept out by nothing any more, find in it the rows that our own reader finds through the catalog."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate
from headgate.data.arrow_types import arrow_schema
from headgate.protocol.commit.content import Way
from headgate.protocol.expressions.schema_text import parse_schema
from tests.conformance.conftest import PARTS, Lake, Story, ours, published, rows_of
from tests.kit import req
from tests.kit.other_readers import (
    Rows,
    deltalake_reads,
    duckdb_reads,
    duckdb_scans,
    plain_copy,
    polars_reads,
)

Reader = Callable[..., Rows]
NOON = datetime(2024, 2, 28, 12, tzinfo=UTC).replace(tzinfo=None)
READERS: dict[str, Reader] = {
    "deltalake": deltalake_reads,
    "polars": polars_reads,
    "DuckDB": duckdb_scans,
}
WITHOUT_POLARS = {"deltalake": deltalake_reads, "DuckDB": duckdb_scans}

TYPES = (
    "a string, b long, c int, d short, e byte, f float, g double, h boolean, i binary, j date,"
    " k timestamp, m decimal(38,10), n array<struct<x: int, y: map<string, array<decimal(5,2)>>>>,"
    " o struct<z: string, deep: struct<w: long>>, p map<string, long>, q decimal(9,2)"
)
VALUES: list[dict[str, Any]] = [
    {
        "a": "plain",
        "b": 2**63 - 1,
        "c": -(2**31),
        "d": 2**15 - 1,
        "e": -128,
        "f": 1.5,
        "g": 1e300,
        "h": True,
        "i": b"\x00\xff\n",
        "j": date(1999, 12, 31),
        "k": datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        "m": Decimal("1234567890123456789012345678.0123456789"),
        "n": [{"x": 1, "y": [("k", [Decimal("1.25"), None])]}, None, {"x": None, "y": []}],
        "o": {"z": "in", "deep": {"w": 7}},
        "p": [("b", 1), ("a", None)],
        "q": Decimal("-1234567.89"),
    },
    {
        "a": "ü€😀" * 40,  # beyond what statistics hold
        "b": -(2**63),
        "c": 0,
        "d": 0,
        "e": 127,
        "f": float("inf"),
        "g": float("nan"),
        "h": False,
        "i": b"",
        "j": date(1, 1, 1),
        "k": datetime(1901, 1, 1, tzinfo=UTC),
        "m": Decimal("-0.0000000001"),
        "n": [],
        "o": {"z": None, "deep": None},
        "p": [],
        "q": Decimal("0.01"),
    },
    {"a": "", "b": 5, "g": -0.0, "j": date(9999, 12, 31), "o": {"z": "", "deep": {"w": None}}},
    {},
]


def typed(schema: str, values: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(values, schema=arrow_schema(parse_schema(schema)))


def all_agree(
    lake: Lake, table: headgate.Table, tmp_path: Path, readers: dict[str, Reader], **how: Any
) -> Rows:
    """See that strangers read of a copy what we read through the catalog."""
    wanted = ours(lake.table(table.name))
    assert wanted.values
    copy = plain_copy(table.location, tmp_path / f"copy-{table.name}", **how)
    assert {name: read(copy) for name, read in readers.items()} == dict.fromkeys(readers, wanted)
    return wanted


@req("CM-09", "CM-24")
@pytest.mark.slow
def test_every_version_of_a_published_log_is_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path
) -> None:
    story = lake.story()
    story.write()
    story.publish()
    copy = plain_copy(story.location, tmp_path / "copy")
    for version in range(story.latest + 1):
        for read in READERS.values():
            assert read(copy, version) == story.rows_at(version)


@req("CM-09")
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED], ids=lambda way: way.value)
def test_rows_of_every_type_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path, way: Way
) -> None:
    table = lake.sessions[way].create_table("every", TYPES)
    for value in VALUES:
        table.append(typed(TYPES, [value]))
    table.append(typed(TYPES, VALUES))
    assert duckdb_reads(lake.resolve("every"), lake.scratch) == ours(table)
    table.publish()
    wanted = all_agree(lake, table, tmp_path, READERS)
    assert len(wanted.values) == 2 * len(VALUES)


@req("CM-09")
def test_times_without_a_zone_are_read_the_same_by_strangers(lake: Lake, tmp_path: Path) -> None:
    schema = "id long, at timestamp_ntz"
    table = lake.sessions[Way.INLINE].create_table("local", schema)
    moments = [NOON, NOON.replace(year=1901, microsecond=4), None]
    table.append(typed(schema, [{"id": n, "at": at} for n, at in enumerate(moments)]))
    table.publish()
    all_agree(lake, table, tmp_path, READERS)


@req("CM-09")
@pytest.mark.slow
def test_strangers_that_skip_files_by_our_statistics_miss_no_row(
    lake: Lake, tmp_path: Path
) -> None:
    table = lake.sessions[Way.INLINE].create_table("every", TYPES)
    for value in VALUES:
        table.append(typed(TYPES, [value]))
    table.publish()
    table.checkpoint()
    copy = plain_copy(table.location, tmp_path / "copy", only_after=len(VALUES))
    for column in "abcdefghijkmq":
        known = [value[column] for value in VALUES if value.get(column) is not None]
        for value in known:
            if value != value:
                continue  # DuckDB finds NaN equal to itself; so it is counted below
            found = duckdb_scans(copy, where=f"{column} = ?", given=[value])
            assert len(found.values) == known.count(value), (column, value)
        nothing = duckdb_scans(copy, where=f"{column} IS NULL")
        assert len(nothing.values) == len(VALUES) - len(known), column
    assert len(duckdb_scans(copy, where="isnan(g)").values) == 1
    long = VALUES[1]["a"]
    assert len(duckdb_scans(copy, where="a >= ?", given=[long]).values) == 1


PARTITION_VALUES: dict[str, list[Any]] = {
    "string": [part for part in PARTS if part is not None] + ["a/b=c&d?e#f", "%20", " lead", "😀"],
    "long": [-(2**63), 0, 2**63 - 1],
    "byte": [-128, 127],
    "boolean": [True, False],
    "date": [date(1970, 1, 1), date(1582, 10, 15), date(2024, 2, 29)],
    "decimal(10,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")],
    "timestamp": [
        datetime(2024, 2, 29, 23, 59, 59, 123_456, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
}


@req("CM-09")
@pytest.mark.parametrize("kind", PARTITION_VALUES)
def test_partition_values_of_every_type_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path, kind: str
) -> None:
    schema = f"id long, key {kind}"
    table = lake.sessions[Way.STAGED].create_table("parted", schema, partition_by=["key"])
    values = [*PARTITION_VALUES[kind], None]
    table.append(typed(schema, [{"id": n, "key": value} for n, value in enumerate(values)]))
    table.append(typed(schema, [{"id": n, "key": value} for n, value in enumerate(values)]))
    table.publish()
    all_agree(lake, table, tmp_path, READERS)


# Checkpoints


@req("CM-09")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "v2", "v2-json"])
@pytest.mark.parametrize("at", [4, 9])
def test_strangers_read_the_same_from_our_checkpoints(
    lake: Lake, tmp_path: Path, kind: str, at: int
) -> None:
    policy = {} if kind == "classic" else {"delta.checkpointPolicy": "v2"}
    story = lake.story(properties=policy)
    story.write()
    story.publish()
    story.checkpoint(at, kind)
    copy = plain_copy(story.location, tmp_path / "copy", only_after=at - 1)
    assert not published(f"file://{copy}", at - 1).exists()
    readers = READERS if kind == "classic" else WITHOUT_POLARS  # it knows no V2 checkpoints
    for version in range(at, story.latest + 1):
        for read in readers.values():
            assert read(copy, version) == story.rows_at(version)


@req("CM-09")
@pytest.mark.slow
def test_strangers_read_every_type_from_our_checkpoint(lake: Lake, tmp_path: Path) -> None:
    table = lake.sessions[Way.STAGED].create_table("every", TYPES)
    table.append(typed(TYPES, VALUES))
    table.append(typed(TYPES, VALUES[:1]))
    table.publish()
    table.checkpoint()
    table.append(typed(TYPES, VALUES[:2]))
    table.publish()
    all_agree(lake, table, tmp_path, READERS, only_after=1)


# Features


def of_features(lake: Lake, name: str, properties: dict[str, str], **how: Any) -> Story:
    story = lake.story(name, properties=properties, **how)
    story.append(0, 1, 2, 3)
    story.append(4, 5, 6, way=Way.STAGED)
    story.remove(1)
    story.append(7, way=Way.STAGED)
    story.publish()
    return story


@req("CM-09")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_under_mapping_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path, mode: str
) -> None:
    # polars refuses the feature; DuckDB gives null for every partition value under it, whichever
    # engine wrote the table.
    mapped = {"delta.columnMapping.mode": mode}
    table = of_features(lake, "mapped", mapped).handles[Way.INLINE]
    all_agree(lake, table, tmp_path, {"deltalake": deltalake_reads})
    flat = of_features(lake, "flat", mapped, partition_by=()).handles[Way.INLINE]
    all_agree(lake, flat, tmp_path, WITHOUT_POLARS)


@req("CM-09")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["name", "id"])
def test_names_that_only_mapping_allows_and_nested_fields_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path, mode: str
) -> None:
    schema = "`an id, of;sorts` long, place struct<`x y`: int, list: array<struct<`a=b`: string>>>"
    table = lake.sessions[Way.INLINE].create_table(
        "mapped", schema, properties={"delta.columnMapping.mode": mode}
    )
    values = [
        {"an id, of;sorts": 1, "place": {"x y": 2, "list": [{"a=b": "c"}, None]}},
        {"an id, of;sorts": None, "place": None},
    ]
    table.append(typed(schema, values))
    table.publish()
    table.checkpoint()
    table.append(typed(schema, values))
    table.publish()
    all_agree(lake, table, tmp_path, WITHOUT_POLARS, only_after=0)


FEATURES: dict[str, dict[str, str]] = {
    "row tracking": {"delta.enableRowTracking": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "change data feed": {"delta.enableChangeDataFeed": "true"},
    "in-commit timestamps alone": {},
    "a feature asked for by name": {"delta.feature.domainMetadata": "supported"},
}


@req("CM-09")
@pytest.mark.parametrize("feature", FEATURES)
def test_tables_with_more_features_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path, feature: str
) -> None:
    story = of_features(lake, "featured", FEATURES[feature])
    wanted = all_agree(lake, story.handles[Way.INLINE], tmp_path, READERS)
    assert wanted == story.rows_at(story.latest)


@req("CM-09")
def test_properties_and_comments_set_later_are_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path
) -> None:
    story = lake.story("changed")
    story.append(0, 1, 2)
    table = story.handles[Way.INLINE]
    table.set_properties({"delta.enableDeletionVectors": "true", "of mine": "ü"})
    table.comment("what it is for")
    table.append(rows_of([3, 4]))
    table.unset_properties(["of mine"])
    table.set_properties({"delta.appendOnly": "true"})
    table.append(rows_of([5]))
    table.publish()
    wanted = all_agree(lake, table, tmp_path, READERS)
    assert [row[0] for row in wanted.values] == [0, 1, 2, 3, 4, 5]


@req("CM-09")
def test_a_table_made_from_an_arrow_schema_is_read_the_same_by_strangers(
    lake: Lake, tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.uint32(), nullable=False),
            pa.field("word", pa.dictionary(pa.int32(), pa.string())),
            pa.field("list", pa.large_list(pa.int16())),
        ]
    )
    table = lake.sessions[Way.STAGED].create_table("arrow", schema, comment="made from Arrow")
    written = [{"id": 2**32 - 1, "word": "w", "list": [1, None]}, {"id": 0}]
    table.append(pa.Table.from_pylist(written, schema=schema))
    table.publish()
    all_agree(lake, table, tmp_path, READERS)
