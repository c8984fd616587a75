"""Schemas, rows and filters in every supported form."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

import headgate
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvalidDataError,
    InvalidSchemaError,
    VersionGoneError,
)
from headgate.protocol.expressions.schema_text import parse_schema

COLUMNS = "id long, day date, price decimal(10,2), s struct<a: int, b: string>"
DAY = dt.date(2026, 11, 18)
ROWS = [
    {"id": 1, "day": DAY, "price": Decimal("1.50"), "s": {"a": 1, "b": "x"}},
    {"id": 2, "day": None, "price": None, "s": None},
    {"id": 3, "day": DAY + dt.timedelta(1), "price": Decimal("3.00"), "s": {"a": 3, "b": None}},
]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with headgate.connect(tmp_path / "lake", publisher=False) as opened:
        yield opened


@pytest.fixture
def table(session: Session) -> Table:
    table = session.create_table("t", COLUMNS)
    for row in ROWS:  # a file for each, so that files can be skipped
        table.append([row])
    return table


SPARK = spark_types.StructType(
    [
        spark_types.StructField("id", spark_types.LongType()),
        spark_types.StructField("day", spark_types.DateType()),
        spark_types.StructField("price", spark_types.DecimalType(10, 2)),
        spark_types.StructField(
            "s",
            spark_types.StructType(
                [
                    spark_types.StructField("a", spark_types.IntegerType()),
                    spark_types.StructField("b", spark_types.StringType()),
                ]
            ),
        ),
    ]
)
INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
ARROW = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("price", pa.decimal128(10, 2)), ("s", INNER)]
)
DICT = {"id": "long", "day": pa.date32(), "price": spark_types.DecimalType(10, 2), "s": INNER}


@pytest.mark.parametrize("schema", [COLUMNS, parse_schema(COLUMNS), SPARK, ARROW, DICT], ids=type)
def test_a_table_is_created_from_a_schema_in_any_form(session: Session, schema: Any) -> None:
    assert session.create_table("t", schema, "day").schema == parse_schema(COLUMNS)
    assert session.table("t").partition_columns == ("day",)


@pytest.mark.parametrize(
    ("schema", "error", "text"),
    [
        (None, InvalidArgumentError, "cannot be given as None"),
        (["id"], InvalidArgumentError, "cannot be given as list"),
        (pa.table({"id": [1]}), InvalidArgumentError, "cannot be given as Table"),
        ({"id": int}, InvalidArgumentError, "Column 'id': A type cannot be given as type"),
        ({"id": "lnog"}, InvalidSchemaError, "Column 'id'.*'lnog' is not a type"),
        ({5: "long"}, InvalidArgumentError, "5 is not a valid name of a column"),
        (spark_types.LongType(), InvalidArgumentError, "cannot be given as LongType"),
        (
            spark_types.StructType(
                [spark_types.StructField("i", spark_types.DayTimeIntervalType())]
            ),
            InvalidSchemaError,
            "interval",
        ),
    ],
    ids=str,
)
def test_what_is_no_schema_is_refused(
    session: Session, schema: Any, error: type[HeadgateError], text: str
) -> None:
    with pytest.raises(error, match=text):
        session.create_table("t", schema)


def test_columns_are_added_in_any_form(table: Table) -> None:
    table.add_columns({"one": "long"})
    table.add_columns(pa.schema([("two", pa.string())]))
    table.add_columns(spark_types.StructType([spark_types.StructField("three", SPARK)]))
    assert [item.name for item in table.schema.fields][4:] == ["one", "two", "three"]


FRAME = pa.Table.from_pylist(ROWS, ARROW)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        FRAME,
        FRAME.to_reader(),
        polars.from_arrow(FRAME),
        pandas.DataFrame(ROWS, index=[7, 8, 9]),
        pandas.DataFrame(ROWS).set_index("id"),
    ],
    ids=["list", "arrow", "stream", "polars", "pandas", "pandas with an index"],
)
def test_rows_in_any_form_are_appended_and_overwrite(session: Session, rows: Any) -> None:
    table = session.create_table("t", COLUMNS)
    if isinstance(rows, pa.RecordBatchReader):  # which can be read once
        table.append(rows)
    else:
        table.append(rows)
        table.overwrite(rows)
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == ROWS


def test_categories_of_polars_are_strings(session: Session) -> None:
    table = session.create_table("t", "v string")
    table.append(polars.DataFrame({"v": ["a", "b", "a"]}, {"v": polars.Categorical}))
    assert table.to_arrow()["v"].to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (None, InvalidArgumentError, "cannot be given as None"),
        ([(1, 2)], InvalidArgumentError, "cannot be given as list"),
        (polars.DataFrame({"id": [1]}).lazy(), InvalidArgumentError, "as LazyFrame"),
        ([{"id": "x"}], InvalidDataError, "Column 'id'"),
        ([{"id": 2**64}], InvalidDataError, "Column 'id'"),
        ([{5: 1}], InvalidDataError, "names of columns"),
        ([{"id": 1, "more": 2}], InvalidDataError, "no column 'more'"),
        (pandas.DataFrame({"id": [1, "x"]}), InvalidDataError, "cannot be converted to Arrow"),
        (pandas.DataFrame({"id": [1]}).rename_axis("more"), InvalidDataError, "no column 'more'"),
    ],
    ids=str,
)
def test_what_are_no_rows_of_the_table_is_refused(
    table: Table, rows: Any, error: type[HeadgateError], text: str
) -> None:
    for write in (table.append, table.overwrite):
        with pytest.raises(error, match=text):
            write(rows)
    assert table.version == 3


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id = 1", [1]),
        ("ID >= 2 AND NOT day IS NULL", [3]),
        ("day = '2026-11-18'", [1]),
        ("day > DATE'2026-11-18' OR s.a = 1", [1, 3]),
        ("price * 2 = 3.00", [1]),
        ("s.b IS NULL", [2, 3]),
        ("id % 2 = 0", [2]),
        ("id IN (1, 3) AND length(s.b) = 1", [1]),
        ("true", [1, 2, 3]),
        ("NULL = 1", []),
    ],
)
def test_a_filter_in_sql_chooses_rows(table: Table, where: str, ids: list[int]) -> None:
    found = table.to_arrow(["id"], where=where)
    assert found.schema.names == ["id"]
    assert sorted(found["id"].to_pylist()) == ids


def test_a_filter_in_sql_chooses_rows_of_a_table_opened_by_its_path(tmp_path: Path) -> None:
    polars.from_arrow(FRAME).select("id").write_delta(tmp_path / "plain")
    found = headgate.open(tmp_path / "plain").to_arrow(where="id > 1")
    assert sorted(found["id"].to_pylist()) == [2, 3]


def test_a_filter_in_sql_keeps_files_from_being_read(table: Table) -> None:
    for file in table.snapshot().files():
        if file.stats is not None and '"minValues":{"id":1' not in file.stats:
            (Path(table.location.removeprefix("file://")) / file.path).unlink()
    assert table.to_arrow(["id"], where="id = 1")["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("idd = 1", r"at character 1: there is no column idd\. Did you mean 'id'\?"),
        ("id = 1 AND s.c = 2", "at character 14: there is no column s.c"),
        ("id = ", "at character 5: it ends too early"),
        ("id === 1", "at character 6: '=' is not understood"),
        ("id = 1 ; drop", "at character 8: ';' is not understood"),
        ("soundex(s.b) = 'x'", "the function soundex"),
        ("id", "its type is int64, not boolean"),
        ("", "it ends too early"),
    ],
)
def test_a_filter_that_cannot_be_evaluated_says_where(table: Table, where: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        table.to_arrow(where=where)


@pytest.mark.parametrize(
    "text",
    [
        "id" + " + 1" * 5_000 + " > 1",
        "id = 1" * 500,
        "id = 1" + " IS NULL" * 5_000,
        "NOT " * 400 + "id = 1",
        "(" * 5_000 + "id = 1" + ")" * 5_000,
    ],
)
def test_a_condition_with_too_many_levels_is_refused(table: Table, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="nested too deeply"):
        table.to_arrow(where=text)
    with pytest.raises(HeadgateError, match="nested too deeply"):
        table.add_constraint("deep", text)


def test_a_condition_may_be_long(table: Table) -> None:
    assert table.to_arrow(where=" OR ".join(["id = 1"] * 5_000)).num_rows == 1
    assert table.to_arrow(where="id" + " + 1" * 150 + " = 151").num_rows == 1


@pytest.mark.parametrize("version", ["1", 1.0, True])
def test_a_version_is_a_whole_number_everywhere(table: Table, version: Any) -> None:
    for read in (table.snapshot, table.to_arrow, table.checkpoint, table.write_checksum):
        with pytest.raises(InvalidArgumentError, match="version must be a whole number"):
            read(version=version)


@pytest.mark.parametrize("when", [dt.date(2001, 11, 18), "2001-11-18"])
def test_a_day_stands_for_its_start_in_utc(table: Table, when: Any) -> None:
    for read in (table.snapshot, table.to_arrow):
        with pytest.raises(VersionGoneError, match=r"as old as 2001-11-18T00:00:00.000Z"):
            read(as_of=when)
