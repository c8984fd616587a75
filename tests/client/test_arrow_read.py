"""Tables of other writers and files of any kind are read by the schema of the table."""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb_extensions import import_extension
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headgate.client.arrow_io import to_arrow, to_batches
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    MalformedError,
    UnavailableError,
    UnsupportedFeatureError,
)
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import AddFile, DeletionVector
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.predicates import And, Compare, In, IsNull, Not, Operator, Or
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.types import StructField, StructType
from headgate.storage.local import LocalStore
from headgate.storage.locations import mount
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore, encode
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load_path
from tests.client.plain_tables import (
    PRIMITIVES,
    TEXTS,
    Plain,
    as_bag,
    rows_of,
    table,
    tables,
    written,
)
from tests.kit.builders import inline_vector
from tests.kit.faulty_stores import Call, WrappedStore

SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(root: Path, *arguments: Any, **options: Any) -> pa.Table:
    found = to_arrow(load_path(str(root)), *arguments, **options)
    found.validate(full=True)
    return found


def holding(
    root: Path,
    plain: Plain,
    *files: pa.Table,
    vector: DeletionVector | None = None,
    store: ObjectStore | None = None,
    **options: Any,
) -> Path:
    """Create a table of files that are not converted to its schema."""
    store = store or LocalStore(root)
    adds = []
    for number, rows in enumerate(files):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, **options)
        content = sink.getvalue().to_pybytes()
        store.put(f"file {number}.parquet", content)
        adds.append(
            AddFile(
                path=encode(f"file {number}.parquet"),
                partition_values={},
                size=len(content),
                modification_time=1,
                data_change=True,
                deletion_vector=vector,
            )
        )
    store.put(f"_delta_log/{0:020d}.json", plain.commit(adds))
    return root


# Written by others


@pytest.mark.slow
@SOME
@given(drawn=tables())
def test_any_table_that_deltalake_wrote(
    drawn: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema, rows = drawn
    # Within others it forgets the feature this type needs.
    ntz = delta.TIMESTAMP_NTZ
    assume(all(f.type == ntz or not delta.contains(f.type, ntz) for f in schema.fields))
    root = tmp_path_factory.mktemp("any")
    given = rows_of(Plain(schema), rows)
    deltalake.write_deltalake(root, given)
    assert as_bag(read(root)) == as_bag(given)
    assert load_path(str(root)).schema == schema


@pytest.mark.slow
@SOME
@given(parts=st.lists(st.none() | TEXTS.filter(lambda text: "\0" not in text), max_size=6))
def test_any_partition_values_that_deltalake_wrote(
    parts: list[str | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("any")
    plain = table("id long, p string", "p")
    rows = [{"id": i, "p": part or None} for i, part in enumerate(parts)]
    deltalake.write_deltalake(root, rows_of(plain, rows), partition_by=["p"])
    assert as_bag(read(root)) == as_bag(rows_of(plain, rows))


@pytest.mark.slow
@SOME
@given(
    drawn=tables(
        st.sampled_from([t for t in PRIMITIVES if str(t) in ("string", "long", "date", "double")])
    )
)
def test_any_table_that_polars_wrote(drawn: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    schema, rows = drawn
    root = tmp_path_factory.mktemp("any")
    given = rows_of(Plain(schema), rows)
    polars.from_arrow(given).write_delta(str(root))  # type: ignore[union-attr]
    assert as_bag(read(root)) == as_bag(given)


def test_a_table_that_polars_wrote_with_every_type_it_has(tmp_path: Path) -> None:
    frame = polars.DataFrame(
        {
            "a": [1, None],
            "b": ["x", None],
            "c": [dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), None],
            "d": [dt.datetime.fromisoformat("2024-02-29T01:02:03.000004"), None],
            "e": [[1, None], None],
            "f": [{"g": 1.5, "h": [b"x"]}, None],
            "i": [Decimal("1.25"), None],
            "j": [True, None],
        }
    )
    frame.write_delta(str(tmp_path))
    assert as_bag(read(tmp_path)) == as_bag(frame.to_arrow())


def test_rows_that_duckdb_inserted(tmp_path: Path) -> None:
    plain = table(
        "id long, s string, d date, at timestamp, n decimal(10,2), f float, l array<int>,"
        " r struct<x: int, y: string>, p int",
        "p",
    )
    rows = rows_of(plain, [{"id": 1, "s": "ours", "p": 1}])
    written(plain, rows, tmp_path)
    with duckdb.connect() as connection:
        import_extension("delta", con=connection)
        connection.execute("LOAD delta; SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{tmp_path}' AS t (TYPE delta)")
        connection.execute(
            "INSERT INTO t VALUES (2, 'theirs', DATE '2024-02-29',"
            " TIMESTAMPTZ '2024-02-29 01:02:03.000004+00', -1.25, 0.1, [1, NULL],"
            " {'x': 1, 'y': NULL}, 2)"
        )
        # Into two partitions at once, or into some columns, it cannot.
        nothing = ", ".join(["NULL"] * 8)
        connection.execute(f"INSERT INTO t VALUES (3, {nothing})")
        expected = connection.execute("FROM t").to_arrow_table()
    assert as_bag(read(tmp_path)) == as_bag(expected)
    assert expected.num_rows == 3


# Files with other types than the table


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        ("long", pa.array([1], pa.int8()), 1),
        ("integer", pa.array([-1], pa.int16()), -1),
        ("double", pa.array([0.1], pa.float32()), 0.10000000149011612),
        ("double", pa.array([2**31 - 1], pa.int32()), 2147483647.0),
        ("decimal(20,10)", pa.array([Decimal("1.25")]), Decimal("1.2500000000")),
        ("decimal(10,0)", pa.array([-128], pa.int8()), Decimal(-128)),
        ("decimal(22,2)", pa.array([2**63 - 1], pa.int64()), Decimal("9223372036854775807.00")),
        ("timestamp_ntz", pa.array([dt.date(1, 1, 1)]), dt.datetime.fromisoformat("0001-01-01")),
        ("timestamp", pa.array([1_001], pa.timestamp("ns", "UTC")), "1970-01-01 00:00:00.000001"),
        ("timestamp", pa.array([1], pa.timestamp("ms")), "1970-01-01 00:00:00.001000"),
        ("timestamp", pa.array([0], pa.timestamp("us", "Asia/Tokyo")), "1970-01-01 00:00:00"),
        ("string", pa.array(["x"]).dictionary_encode(), "x"),
        ("string", pa.array(["x"], pa.large_string()), "x"),
        ("string", pa.array([b"x"]), "x"),
        ("binary", pa.array([b"xy"], pa.binary(2)), b"xy"),
        ("short", pa.array([7], pa.uint8()), 7),
        ("array<long>", pa.array([[1, None]], pa.list_(pa.int8())), [1, None]),
        ("map<long, double>", pa.array([[(1, 0.5)]], pa.map_(pa.int8(), pa.float32())), [(1, 0.5)]),
        ("struct<a: long>", pa.array([{"a": 1}], pa.struct([("a", pa.int8())])), {"a": 1}),
        ("array<int>", pa.array([[7]], pa.large_list(pa.int32())), [7]),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:40],
)  # fmt: skip
def test_a_file_of_a_narrower_type_is_widened(
    kind: str, stored: pa.Array, expected: Any, tmp_path: Path
) -> None:
    padded = pa.concat_arrays([pa.nulls(1, stored.type), stored])
    holding(tmp_path, table(f"x {kind}"), pa.table({"x": padded}))
    [nothing, found] = read(tmp_path).column("x").to_pylist()
    assert nothing is None
    if isinstance(expected, str) and isinstance(found, dt.datetime):
        assert found == dt.datetime.fromisoformat(expected).replace(tzinfo=dt.UTC)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("integer", pa.array(["1"])),
        ("string", pa.array([1])),
        ("date", pa.array([0], pa.timestamp("us"))),
        ("float", pa.array([0.1])),
        ("integer", pa.array([2**40])),
        ("timestamp", pa.array([dt.date(2024, 1, 1)])),
        ("decimal(5,2)", pa.array([Decimal("1.255")])),
        ("array<int>", pa.array([1])),
        ("struct<a: int>", pa.array([[1]])),
        ("map<string,int>", pa.array([[1]])),
        ("boolean", pa.array([1])),
    ],
    ids=str,
)
def test_a_file_of_another_type_is_refused_with_file_and_column(
    kind: str, stored: pa.Array, tmp_path: Path
) -> None:
    holding(tmp_path, table(f"x {kind}"), pa.table({"x": stored}))
    with pytest.raises(MalformedError, match=r"Column x of the data file file%200\.parquet"):
        read(tmp_path)


def test_a_change_of_type_that_is_no_widening_is_refused(tmp_path: Path) -> None:
    changes = [{"fromType": "string", "toType": "long"}]
    field = StructField("x", delta.LONG, True, {"delta.typeChanges": changes})
    plain = Plain(StructType((field,)), features=["typeWidening"])
    holding(tmp_path, plain, pa.table({"x": [1]}))
    with pytest.raises(UnsupportedFeatureError, match="from string to long"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"fromType": "geometry", "toType": "long"}, UnsupportedFeatureError, "'geometry'"),
        ({"fromType": "int"}, MalformedError, "toType"),
    ],
)
def test_a_change_of_type_that_cannot_be_read_is_named_with_table_and_version(
    change: dict[str, str], error: type[HeadgateError], message: str, tmp_path: Path
) -> None:
    field = StructField("x", delta.LONG, True, {"delta.typeChanges": [change]})
    holding(tmp_path, Plain(StructType((field,)), features=["typeWidening"]), pa.table({"x": [1]}))
    with pytest.raises(error, match=f"{tmp_path} version 0: .*{message}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("before", "stored", "after"),
    [
        ("byte", pa.int8(), "decimal(4,1)"),
        ("short", pa.int16(), "decimal(6,1)"),
        ("integer", pa.int32(), "decimal(11,1)"),
        ("long", pa.int64(), "decimal(21,1)"),
    ],
)
def test_whole_numbers_widened_to_decimals_of_just_enough_digits_are_read(
    before: str, stored: pa.DataType, after: str, tmp_path: Path
) -> None:
    """The preview of type widening allowed it."""
    changes = [{"fromType": before, "toType": after, "tableVersion": 2}]
    kind = parse_schema(f"x {after}").fields[0].type
    field = StructField("x", kind, True, {"delta.typeChanges": changes})
    least = -(2 ** (stored.bit_width - 1))
    plain = Plain(StructType((field,)), features=["typeWidening-preview"])
    holding(tmp_path, plain, pa.table({"x": pa.array([least], stored)}))
    assert read(tmp_path)["x"].to_pylist() == [Decimal(least)]


def test_int96_timestamps_are_utc(tmp_path: Path) -> None:
    moments = pa.table({"x": pa.array([0, -(10**15)], pa.timestamp("us", "UTC"))})
    holding(tmp_path, table("x timestamp"), moments, use_deprecated_int96_timestamps=True)
    assert read(tmp_path) == moments


# Files with other columns than the table


def test_columns_are_found_by_name_in_any_order_and_case_and_strangers_ignored(
    tmp_path: Path,
) -> None:
    plain = table("id long, Name string, s struct<a: long, B: long>, fresh struct<x: int>")
    file = pa.table(
        {"NAME": ["n"], "stranger": [1], "s": [{"b": 2, "other": 0, "A": 1}], "id": [7]}
    )
    holding(tmp_path, plain, file)
    assert read(tmp_path).to_pylist() == [
        {"id": 7, "Name": "n", "s": {"a": 1, "B": 2}, "fresh": None}
    ]


def test_an_exact_name_is_preferred_to_one_in_another_case(tmp_path: Path) -> None:
    holding(tmp_path, table("a long"), pa.table([[1], [2]], names=["A", "a"]))
    assert read(tmp_path).to_pylist() == [{"a": 2}]


def test_columns_missing_at_any_depth_are_null(tmp_path: Path) -> None:
    plain = table(
        "l array<struct<a: long, n: string>>, m map<string, struct<a: long, n: date>>,"
        " s struct<t: struct<a: long, n: array<int>>>"
    )
    file = pa.table(
        {
            "l": [[{"a": 1}, None], None, []],
            "m": pa.array(
                [[("k", {"a": 1}), ("l", None)], None, []],
                pa.map_(pa.string(), pa.struct([("a", pa.int64())])),
            ),
            "s": [{"t": {"a": 1}}, {"t": None}, None],
        }
    )
    holding(tmp_path, plain, file)
    assert read(tmp_path).to_pylist() == [
        {
            "l": [{"a": 1, "n": None}, None],
            "m": [("k", {"a": 1, "n": None}), ("l", None)],
            "s": {"t": {"a": 1, "n": None}},
        },
        {"l": None, "m": None, "s": {"t": None}},
        {"l": [], "m": [], "s": None},
    ]


def test_a_dot_in_a_name_is_no_path(tmp_path: Path) -> None:
    plain = table("`s.a` long, s struct<a: long, b: long>")
    holding(tmp_path, plain, pa.table({"s": [{"a": 1, "b": 2}], "s.a": [3]}))
    assert read(tmp_path, ["s.a"]).to_pylist() == [{"s.a": 3}]
    assert read(tmp_path).to_pylist() == [{"s.a": 3, "s": {"a": 1, "b": 2}}]


def test_only_missing_and_partition_columns_are_read_with_the_number_of_rows(
    tmp_path: Path,
) -> None:
    holding(tmp_path, table("gone int, x long"), pa.table({"x": range(100_000)}))
    assert read(tmp_path, ["gone"]).num_rows == 100_000


def mapped(mode: str, **ids: tuple[int, str]) -> Plain:
    fields = tuple(
        StructField(
            name,
            delta.LONG,
            True,
            {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical},
        )
        for name, (number, physical) in ids.items()
    )
    return Plain(StructType(fields), properties={"delta.columnMapping.mode": mode})


def with_ids(**columns: tuple[int, int]) -> pa.Table:
    fields = [
        pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(number)})
        for name, (number, _) in columns.items()
    ]
    return pa.table([[value] for _, value in columns.values()], schema=pa.schema(fields))


def test_ids_find_columns_whatever_they_are_called(tmp_path: Path) -> None:
    plain = mapped("id", a=(1, "p"), b=(2, "q"), c=(3, "r"))
    holding(tmp_path, plain, with_ids(b=(1, 10), p=(2, 20), c=(9, 90)))
    assert read(tmp_path).to_pylist() == [{"a": 10, "b": 20, "c": None}]


def test_physical_names_find_columns_although_ids_say_otherwise(tmp_path: Path) -> None:
    plain = mapped("name", a=(1, "b"), b=(2, "a"))
    holding(tmp_path, plain, with_ids(a=(1, 10), b=(2, 20)))
    assert read(tmp_path).to_pylist() == [{"a": 20, "b": 10}]


def test_names_that_were_swapped_within_a_struct_are_distinguished(tmp_path: Path) -> None:
    inner = mapped("name", a=(1, "b"), b=(2, "a")).schema
    metadata = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "s"}
    schema = StructType((StructField("s", inner, True, metadata),))
    plain = Plain(schema, properties={"delta.columnMapping.mode": "name"})
    holding(tmp_path, plain, pa.table({"s": [{"a": 1, "b": 2}]}))
    assert read(tmp_path).to_pylist() == [{"s": {"a": 2, "b": 1}}]


def test_a_file_without_ids_is_refused_where_columns_go_by_id(tmp_path: Path) -> None:
    holding(tmp_path, mapped("id", a=(1, "a")), pa.table({"a": [1]}))
    with pytest.raises(MalformedError, match="no field ids"):
        read(tmp_path)


def test_mapping_left_in_the_schema_counts_for_nothing_in_mode_none(tmp_path: Path) -> None:
    schema = mapped("none", a=(1, "p")).schema
    holding(tmp_path, Plain(schema), pa.table({"a": [1], "p": [2]}))
    assert read(tmp_path).to_pylist() == [{"a": 1}]


def test_a_shredded_variant_is_refused(tmp_path: Path) -> None:
    plain = Plain(parse_schema("v variant"), features=["variantType"])
    file = pa.table({"v": [{"metadata": b"", "value": b"", "typed_value": 1}]})
    holding(tmp_path, plain, file)
    with pytest.raises(UnsupportedFeatureError, match="variantShredding"):
        read(tmp_path)


# Deleted rows

DELETED = [0, 7, 8, 65_535, 65_536, 99_999]


def test_deleted_rows_are_left_out_by_position(tmp_path: Path) -> None:
    plain = Plain(parse_schema("x long"), features=["deletionVectors"])
    file = pa.table({"x": range(100_000)})
    vector = inline_vector(DELETED)
    holding(tmp_path, plain, file, vector=vector, row_group_size=1000)
    found = read(tmp_path).column("x").to_pylist()
    assert found == [x for x in range(100_000) if x not in DELETED]
    rows = read(tmp_path, where=Compare(("x",), Operator.LE, 9)).column("x").to_pylist()
    assert rows == [1, 2, 3, 4, 5, 6, 9]


def test_a_vector_beyond_the_end_of_its_file_is_refused(tmp_path: Path) -> None:
    plain = Plain(parse_schema("x long"), features=["deletionVectors"])
    vector = inline_vector([3])
    holding(tmp_path, plain, pa.table({"x": range(3)}), vector=vector)
    with pytest.raises(MalformedError, match="marks row 3, and the file has 3"):
        read(tmp_path)


def test_a_vector_that_is_missing_is_an_error_and_never_more_rows(tmp_path: Path) -> None:
    plain = Plain(parse_schema("x long"), features=["deletionVectors"])
    [vector] = deletion_vectors.vector_file([[1]], UUID(int=1)).descriptors
    holding(tmp_path, plain, pa.table({"x": range(3)}), vector=vector)
    with pytest.raises(InvariantError, match=r"deletion vector .* is missing"):
        read(tmp_path)


# Files that are not as they should be


def missing(file: Path) -> None:
    file.unlink()


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def garbage_within(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4:60] = b"\xff" * 56
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (missing, InvariantError, r"version 0: the data file file%201\.parquet is missing"),
        (torn, MalformedError, r"version 0: the data file file%201\.parquet cannot be read"),
        (empty, MalformedError, r"version 0: the data file file%201\.parquet cannot be read"),
        (garbage_within, MalformedError, r"version 0: the data file file%201\.parquet cannot be"),
    ],
)
def test_a_harmed_file_is_an_error_and_never_fewer_rows(
    harm: Callable[[Path], None], error: type[HeadgateError], message: str, tmp_path: Path
) -> None:
    file = pa.table({"x": range(50)})
    holding(tmp_path, table("x long"), file, file, file)
    harm(tmp_path / "file 1.parquet")
    with pytest.raises(error, match=message):
        read(tmp_path)
    with pytest.raises(error, match=message):
        list(to_batches(load_path(str(tmp_path))))


def described(folder: Path, names: list[str]) -> None:
    """Write a table with other partition columns in its metadata than in its schema."""
    plain = table("id long, p int", "p")
    [add] = written(plain, rows_of(plain, [{"id": 1, "p": 1}]), folder)
    lines = [json.loads(line) for line in plain.commit([add]).splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["partitionColumns"] = names
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    LocalStore(folder).put(f"_delta_log/{0:020d}.json", content)


def test_a_table_partitioned_by_a_column_that_is_not_in_its_schema_is_refused(
    tmp_path: Path,
) -> None:
    """The values of the column are in no file: they would all be read as null."""
    described(tmp_path, ["q"])
    message = (
        rf"{tmp_path} version 0: the schema in _delta_log/{0:020d}\.json has no column 'q', by"
        " which the table is partitioned"
    )
    with pytest.raises(MalformedError, match=message):
        read(tmp_path)


def test_a_partition_column_in_another_case_than_in_the_schema_is_the_column(
    tmp_path: Path,
) -> None:
    described(tmp_path, ["P"])
    assert read(tmp_path).to_pylist() == [{"id": 1, "p": 1}]


def test_a_partition_value_that_is_none_of_its_type_is_refused(tmp_path: Path) -> None:
    plain = table("id long, p int", "p")
    [add] = written(plain, rows_of(plain, [{"id": 1, "p": 1}]), tmp_path)
    bad = AddFile(
        path=add.path, partition_values={"p": "one"}, size=add.size, modification_time=1,
        data_change=True,
    )  # fmt: skip
    LocalStore(tmp_path).put(f"_delta_log/{0:020d}.json", plain.commit([bad]))
    message = rf"{tmp_path} version 0: column 'p' of the data file {add.path}: .*'one'"
    with pytest.raises(MalformedError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (inline_vector([1, 2]), "2 rows, not 1"),
        (DeletionVector(storage_type="i", path_or_inline_dv="\u00e4", size_in_bytes=4,
                        cardinality=1), "not Z85"),
        (DeletionVector(storage_type="p", path_or_inline_dv="file:x", size_in_bytes=4,
                        cardinality=1), "not absolute"),
        (DeletionVector(storage_type="?", path_or_inline_dv="x", size_in_bytes=4,
                        cardinality=1), "storage type"),
    ],
)  # fmt: skip
def test_a_damaged_vector_is_named_with_table_version_and_file(
    vector: DeletionVector, message: str, tmp_path: Path
) -> None:
    plain = Plain(parse_schema("x long"), features=["deletionVectors"])
    holding(tmp_path, plain, pa.table({"x": range(3)}), vector=replaced(vector, cardinality=1))
    named = rf"{tmp_path} version 0: the deletion vector .* of the data file file%200.parquet"
    with pytest.raises(MalformedError, match=f"{named} is damaged: .*{message}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("kind", "text", "since_1970"),
    [
        ("date", "0000-02-29", -719_469),
        ("date", "-0001-12-31", -719_529),
        ("date", "-290307-12-31", -106_751_617),
        ("date", "10000-01-01", 2_932_897),
        ("date", "+10000-01-01", 2_932_897),
        ("date", "0001-01-01", -719_162),
        ("timestamp", "0000-12-31 23:59:59.999999", -62_135_596_800_000_001),
        ("timestamp", "-9999-12-31 23:59:59.999999Z", -377_673_580_800_000_001),
        ("timestamp", "0001-01-01T00:00:00+05:00", -62_135_614_800_000_000),
        ("timestamp", "10000-01-01 00:00:00", 253_402_300_800_000_000),
        ("timestamp_ntz", "-9999-12-31 23:59:59.999999", -377_673_580_800_000_001),
        ("timestamp_ntz", "9999-12-31 23:59:59.999999", 253_402_300_799_999_999),
    ],
)
def test_partition_values_of_any_year_are_read(
    kind: str, text: str, since_1970: int, tmp_path: Path
) -> None:
    plain = table(f"x long, p {kind}", "p")
    store = LocalStore(tmp_path)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    store.put("f", sink.getvalue().to_pybytes())
    add = AddFile(
        path="f", partition_values={"p": text}, size=1, modification_time=1, data_change=True
    )
    store.put(f"_delta_log/{0:020d}.json", plain.commit([add]))
    column = read(tmp_path)["p"]
    assert column.cast(pa.int32() if kind == "date" else pa.int64()).to_pylist() == [since_1970]
    for operator, is_kept in ((Operator.EQ, True), (Operator.LT, False), (Operator.NE, False)):
        found = read(tmp_path, where=Compare(("p",), operator, text))
        assert found.num_rows == is_kept


# Locations of files


def test_files_of_an_object_store_are_read_without_a_disk() -> None:
    store = MemoryStore("memory://reads")
    mount("memory://reads", store)
    plain = table("x long")
    holding(Path(), plain, pa.table({"x": [1, 2]}), pa.table({"x": [3]}), store=store)
    assert as_bag(to_arrow(load_path("memory://reads"))) == ["{x: 1}", "{x: 2}", "{x: 3}"]


def test_files_at_absolute_places_are_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    plain = table("x long")
    holding(elsewhere, plain, pa.table({"x": [1]}))
    adds = [
        AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
        for path in (f"file://{encode(str(elsewhere))}/file%200.parquet",)
    ]
    LocalStore(tmp_path / "table").put(f"_delta_log/{0:020d}.json", plain.commit(adds))
    assert read(tmp_path / "table").to_pylist() == [{"x": 1}]


def test_an_absolute_path_into_the_table_is_read_through_its_own_store() -> None:
    store = MemoryStore("memory://own")
    plain = table("x long")
    holding(Path(), plain, pa.table({"x": [1]}), store=store)
    add = AddFile(
        path="memory://own/file%200.parquet", partition_values={}, size=1, modification_time=1,
        data_change=True,
    )  # fmt: skip
    store.put(f"_delta_log/{0:020d}.json", plain.commit([add]))
    snapshot = load_path("memory://own", store_for=lambda _: store)
    assert to_arrow(snapshot).to_pylist() == [{"x": 1}]


class Unreachable(WrappedStore):
    """A store that does not answer for some paths."""

    def __init__(self, inner: ObjectStore, part: str) -> None:
        super().__init__(inner)
        self.part = part

    def around(self, call: Call, effect: Callable[[], Any]) -> Any:
        if any(self.part in path for path in call.paths):
            raise UnavailableError("The bucket did not answer.")
        return effect()


@pytest.mark.parametrize(
    ("part", "file"),
    [
        ("parquet", "the data file file%200.parquet"),
        (".bin", "the deletion vector deletion_vector_.*bin of the data file file%200.parquet"),
    ],
)
def test_a_file_that_cannot_be_reached_is_named_with_table_and_version(
    part: str, file: str
) -> None:
    store = MemoryStore("memory://far")
    plain = Plain(parse_schema("x long"), features=["deletionVectors"])
    [vector] = deletion_vectors.vector_file([[1]], UUID(int=1)).descriptors
    holding(Path(), plain, pa.table({"x": [1, 2]}), store=store, vector=vector)
    snapshot = load_path("memory://far", store_for=lambda _: Unreachable(store, part))
    expected = f"memory://far version 0: {file} cannot be reached: The bucket did not answer"
    with pytest.raises(UnavailableError, match=expected):
        to_arrow(snapshot)


# Asking for less


def many(tmp_path: Path) -> Snapshot:
    plain = table("id long, word string, s struct<x: int>, d double, n decimal(5,2), p date", "p")
    rows = [
        {
            "id": i,
            "word": None if i % 5 == 0 else f"w{i}",
            "s": None if i % 7 == 0 else {"x": i},
            "d": float("nan") if i % 3 == 0 else i / 2,
            "n": Decimal(i) / 4,
            "p": dt.date(2024, 1, 1 + i % 4),
        }
        for i in range(40)
    ]
    written(plain, rows_of(plain, rows), tmp_path)
    return load_path(str(tmp_path))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Compare(("id",), Operator.LT, 3), lambda i: i < 3),
        (Compare(("ID",), Operator.NE, 3), lambda i: i != 3),
        (Compare(("p",), Operator.EQ, "2024-01-02"), lambda i: i % 4 == 1),
        (Compare(("p",), Operator.GE, "2024-01-03"), lambda i: i % 4 >= 2),
        (Compare(("s", "x"), Operator.GT, 30), lambda i: i > 30 and i % 7),
        (Compare(("n",), Operator.EQ, "1.25"), lambda i: i == 5),
        (Compare(("n",), Operator.LE, 1), lambda i: i <= 4),
        (Compare(("d",), Operator.GT, 1000), lambda i: i % 3 == 0),
        (Compare(("d",), Operator.LT, 1.5), lambda i: i < 3 and i % 3),
        (In(("word",), ("w1", "w2", "w99")), lambda i: i in (1, 2)),
        (Not(In(("word",), ("w1", "w2"))), lambda i: i not in (1, 2) and i % 5),
        (IsNull(("word",)), lambda i: i % 5 == 0),
        (IsNull(("s", "x")), lambda i: i % 7 == 0),
        (
            And((Compare(("id",), Operator.GE, 10), Not(IsNull(("word",))))),
            lambda i: i >= 10 and i % 5,
        ),
        (
            Or((Compare(("id",), Operator.EQ, 1), Compare(("word",), Operator.EQ, "w2"))),
            lambda i: i in (1, 2),
        ),
        (And(()), lambda i: True),
        (Or(()), lambda i: False),
        (Compare(("word",), Operator.EQ, ""), lambda i: False),
    ],
)
def test_a_predicate_keeps_the_rows_for_which_it_is_true(
    where: Any, expected: Callable[[int], bool], tmp_path: Path
) -> None:
    found = to_arrow(many(tmp_path), ["id"], where).column("id").to_pylist()
    assert sorted(found) == [i for i in range(40) if expected(i)]


def test_columns_are_returned_in_the_order_requested(tmp_path: Path) -> None:
    found = to_arrow(many(tmp_path), ["p", "ID"], limit=1)
    assert found.schema.names == ["p", "id"]
    assert found.num_rows == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["nothing"]}, "no column 'nothing'.*: id, word"),
        ({"columns": ["id", "ID"]}, "twice"),
        ({"limit": -1}, "limit"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        to_arrow(many(tmp_path), **options)


def test_a_filter_on_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no column 'nothing'"):
        to_arrow(many(tmp_path), where=IsNull(("nothing",)))


def test_no_columns_are_rows_all_the_same(tmp_path: Path) -> None:
    assert sum(batch.num_rows for batch in to_batches(many(tmp_path), [])) == 40


def test_reading_stops_when_the_iterator_is_closed(tmp_path: Path) -> None:
    batches = to_batches(many(tmp_path))
    assert next(iter(batches)).num_rows > 0
    batches.close()  # type: ignore[attr-defined]


def test_statistics_are_json_that_others_parse(tmp_path: Path) -> None:
    many(tmp_path)
    found = deltalake.DeltaTable(str(tmp_path)).get_add_actions(flatten=True)
    assert sum(pa.table(found).column("num_records").to_pylist()) == 40
    for line in (tmp_path / f"_delta_log/{0:020d}.json").read_text().splitlines():
        if "add" in json.loads(line):
            json.loads(json.loads(line)["add"]["stats"])
