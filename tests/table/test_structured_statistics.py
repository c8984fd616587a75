"""Structured statistics, all that some checkpoints have, read like those that are JSON."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.protocol.actions import Metadata, SetTransaction, Version, encode, join
from headgate.protocol.expressions.predicates import Compare, Operator
from headgate.protocol.paths import ClassicCheckpoint, PublishedCommit
from headgate.protocol.scalars import moment_at
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from headgate.table.snapshot import Snapshot
from tests.table.checkpoint_cases import (
    METADATA,
    PROTOCOL,
    by_path,
    table_of,
    without_commits,
    written,
)
from tests.table.snapshot_cases import add

IN_2960 = 31_267_645_200_000_000  # microseconds since 1970
IN_12000 = 316_538_755_200_123_456
INSTANT = pa.timestamp("us", "UTC")


def at(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array([count], pa.int64()).cast(kind)


def on(day: int) -> pa.Array:
    return pa.array([day], pa.int32()).cast(pa.date32())


def with_bounds(value: pa.Array, kind: str, *, int96: bool = False) -> Snapshot:
    """Write a table of one file whose column x has one value by its structured statistics."""
    schema = {"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True}]}
    for field in schema["fields"]:
        field["metadata"] = {}  # type: ignore[index]
    metadata = Metadata(id=METADATA.id, schema_string=json.dumps(schema), partition_columns=[])
    store = MemoryStore()
    written(store, table_of(store, [[PROTOCOL, metadata], [add("a", stats='{"numRecords":1}')]]))
    replace_statistics(store, value, int96=int96)
    without_commits(store)
    return by_path(store)


def replace_statistics(store: ObjectStore, value: pa.Array, *, int96: bool) -> None:
    path = ClassicCheckpoint(Version(1)).path
    table = pq.read_table(pa.BufferReader(store.get(path)))
    adds = table["add"].combine_chunks()
    bounds = pa.StructArray.from_arrays([value], ["x"])
    counts = pa.array([1], pa.int64())
    one = pa.StructArray.from_arrays(
        [counts, bounds, bounds], ["numRecords", "minValues", "maxValues"]
    )
    fields = {item.name: adds.field(place) for place, item in enumerate(adds.type)}
    del fields["stats"]
    fields["stats_parsed"] = pa.concat_arrays([one] * len(adds))
    column = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=adds.is_null())
    place = table.schema.get_field_index("add")
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.set_column(place, "add", column), sink, use_deprecated_int96_timestamps=int96
    )
    store.put(path, sink.getvalue().to_pybytes())


def bound(snapshot: Snapshot) -> Any:
    """Return the bound of x, which must be the same at both ends, in valid JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (file,) = snapshot.files()
    assert file.stats is not None
    stats = json.loads(file.stats, parse_float=Decimal, parse_constant=refuse)
    assert stats["numRecords"] == 1
    assert stats["minValues"] == stats["maxValues"]
    return stats["minValues"]["x"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (IN_2960, "2960-10-31T01:00:00.000Z"),
        (-IN_2960, "0979-03-02T23:00:00.000Z"),
        (1_500, "1970-01-01T00:00:00.001Z"),
    ],
)
def test_a_timestamp_of_type_int96_is_an_instant_of_any_year(count: int, text: str) -> None:
    assert bound(with_bounds(at(count, pa.timestamp("us")), "timestamp", int96=True)) == text


def test_a_file_is_found_by_a_timestamp_of_type_int96() -> None:
    snapshot = with_bounds(at(IN_2960, pa.timestamp("us")), "timestamp", int96=True)
    moment = moment_at(IN_2960, is_utc=True)
    assert len(snapshot.files(Compare(("x",), Operator.EQ, moment))) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (at(IN_2960, INSTANT), "timestamp", "2960-10-31T01:00:00.000Z"),
        (at(IN_12000, INSTANT), "timestamp", "12000-09-18T00:00:00.123Z"),
        (at(-IN_12000, pa.timestamp("us")), "timestamp_ntz", "-8061-04-15T23:59:59.876"),
        (at(1_999_999_999, pa.timestamp("ns")), "timestamp_ntz", "1970-01-01T00:00:01.999"),
        (at(1_999, pa.timestamp("ms")), "timestamp_ntz", "1970-01-01T00:00:01.999"),
        (on(1), "date", "1970-01-02"),
        (on(3_663_640), "date", "12000-09-15"),
        (on(-1_000_000), "date", "-0768-02-04"),
    ],
)
def test_dates_and_timestamps_of_every_year_are_read(value: pa.Array, kind: str, text: str) -> None:
    assert bound(with_bounds(value, kind)) == text


def test_decimals_keep_all_digits() -> None:
    exact = Decimal("12345678901234567891.0123456789")
    assert bound(with_bounds(pa.array([exact], pa.decimal128(38, 10)), "decimal(38,10)")) == exact


@pytest.mark.parametrize(
    ("value", "text"),
    [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")],
)
def test_floats_that_json_lacks_are_texts(value: float, text: str) -> None:
    assert bound(with_bounds(pa.array([value], pa.float32()), "float")) == text
    assert bound(with_bounds(pa.array([value], pa.float64()), "double")) == text


def test_the_next_checkpoint_has_the_same_statistics_as_json() -> None:
    snapshot = with_bounds(at(IN_2960, pa.timestamp("us")), "timestamp", int96=True)
    store = snapshot.store
    store.put(
        PublishedCommit(Version(2)).path, join([encode(SetTransaction(app_id="app", version=1))])
    )
    written(store, by_path(store))
    path = ClassicCheckpoint(Version(2)).path
    adds = pq.read_table(pa.BufferReader(store.get(path)))["add"].drop_null().to_pylist()
    assert [set(file) & {"stats", "stats_parsed"} for file in adds] == [{"stats"}]
    without_commits(store)
    assert bound(by_path(store)) == "2960-10-31T01:00:00.000Z"
