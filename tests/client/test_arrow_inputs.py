"""CSV, JSON lines and Parquet are read as rows, or refused with the place of the fault."""

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.data.arrow_types import arrow_schema
from headgate.data.import_files import read_input
from headgate.errors import (
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    UnsupportedFeatureError,
)
from headgate.protocol.expressions.schema_text import parse_schema

COLUMNS = "id long, s string, d date, at timestamp, l timestamp_ntz, n dec(10,2), f double, ok bool"
NESTED = f"{COLUMNS}, b binary, a array<int>, m map<string, date>, r struct<x: int, y: string>"
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
EXPECTED: dict[str, Any] = {
    "id": 1, "s": "a", "d": dt.date(2024, 2, 29), "at": NOON, "l": NOON.replace(tzinfo=None),
    "n": Decimal("1.50"), "f": 0.25, "ok": True,
}  # fmt: skip


def read(tmp_path: Path, format: str, text: str, columns: str = COLUMNS) -> list[dict[str, Any]]:
    file = tmp_path / f"rows.{format}"
    file.write_text(text, newline="")
    schema = parse_schema(columns)
    found = read_input(file, format, schema).read_all()
    assert found.schema == arrow_schema(schema)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


# CSV


def test_csv_is_read_as_the_columns_say(tmp_path: Path) -> None:
    text = (
        "ID,s,d,at,l,n,f,ok\n1,a,2024-02-29,2024-02-29T12:00:00Z,2024-02-29 12:00:00,1.5,.25,true\n"
    )
    assert read(tmp_path, "csv", text) == [EXPECTED]


@pytest.mark.parametrize(
    "spelled",
    ["2024-02-29 12:00:00", "2024-02-29T12:00:00.000", "2024-02-29 13:00:00+01:00",
     "2024-02-29T12:00:00Z", "2024-02-29 12:00:00+0000"],
)  # fmt: skip
def test_times_in_csv_are_utc_unless_they_say_otherwise(spelled: str, tmp_path: Path) -> None:
    assert read(tmp_path, "csv", f"at\n{spelled}\n", "at timestamp") == [{"at": NOON}]


def test_nothing_in_csv_is_null_and_an_empty_text_is_quoted(tmp_path: Path) -> None:
    text = 'id,s\n1,\n,""\n3,NULL\n'
    rows = read(tmp_path, "csv", text, "id long, s string")
    assert [(r["id"], r["s"]) for r in rows] == [(1, None), (None, ""), (3, "NULL")]


def test_quotes_in_csv_contain_commas_and_line_breaks(tmp_path: Path) -> None:
    text = '\ufeffs,id\r\n"a, ""b""\nc",1\r\n'
    assert read(tmp_path, "csv", text, "id long, s string") == [{"id": 1, "s": 'a, "b"\nc'}]


def test_texts_in_csv_that_look_like_numbers_stay_texts(tmp_path: Path) -> None:
    rows = read(tmp_path, "csv", "s\n007\ntrue\n", "id long, s string")
    assert rows == [{"id": None, "s": "007"}, {"id": None, "s": "true"}]


def test_a_heading_without_rows_is_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path, "csv", "id,at\n", "id long, at timestamp") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id\n1\nx\n", r"row 3 \(the heading is row 1\) column 'id': .*invalid value 'x'"),
        ("id\n99999999999999999999\n", r"row 2 .* column 'id'"),
        ("n\n1.234\n", r"row 2 .*column 'n'"),
        ("d\n29.2.2024\n", r"row 2 .*column 'd'"),
        ("at\nyesterday\n", r"column 'at'.*yesterday"),
        ("ok\nperhaps\n", r"row 2 .*column 'ok'"),
        ("id,s\n1\n", r"row 2 .*Expected 2 columns, got 1"),
        ("other\n1\n", r"has a column 'other', and the table has id, s"),
        ("", r"Empty CSV file"),
    ],
)
def test_csv_that_does_not_fit_is_refused_at_its_row_and_column(
    text: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidDataError, match=rf"rows\.csv.*{expected}"):
        read(tmp_path, "csv", text)


def test_nested_columns_are_not_for_csv(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="'a' is array<integer>, which CSV"):
        read(tmp_path, "csv", "a\n1\n", NESTED)


# JSON lines


def test_json_is_read_as_the_columns_say(tmp_path: Path) -> None:
    row = {
        "id": 1, "S": "a", "d": "2024-02-29", "at": "2024-02-29T13:00:00+01:00",
        "l": "2024-02-29 12:00:00", "n": 1.5, "f": 0.25, "ok": True, "b": "AP8=", "a": [1, None],
        "m": {"k": "2024-02-29", "l": None}, "r": {"y": "why"},
    }  # fmt: skip
    text = f"{json.dumps(row)}\n\n{{}}\n"
    [first, second] = read(tmp_path, "json", text, NESTED)
    assert first == EXPECTED | {
        "b": b"\0\xff", "a": [1, None], "m": [("k", dt.date(2024, 2, 29)), ("l", None)],
        "r": {"x": None, "y": "why"},
    }  # fmt: skip
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("columns", "value", "expected"),
    [
        ("n decimal(38,10)", "1234567890123456789012345678.0123456789", None),
        ("n decimal(5,2)", "1e2", Decimal("100.00")),
        ("n decimal(5,2)", '"1.25"', Decimal("1.25")),
        ("n long", "9223372036854775807", 2**63 - 1),
        ("n double", "1", 1.0),
        ("n double", '"NaN"', "nan"),
        ("n float", "0.5", 0.5),
        ("n map<int, boolean>", '{"7": true}', [(7, True)]),
        ("n string", '"\\u0000é"', "\0é"),
    ],
)
def test_values_of_json_keep_every_digit(
    columns: str, value: str, expected: Any, tmp_path: Path
) -> None:
    [row] = read(tmp_path, "json", f'{{"n": {value}}}', columns)
    wanted = Decimal(value) if expected is None else expected
    assert str(row["n"]) == str(wanted)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1]", "line 2: an object"),
        ("{", "line 2: Expecting"),
        ('{"id": "x"}', r"line 2 column 'id': 'x' is not of type long"),
        ('{"id": 1.5}', "line 2 column 'id'"),
        ('{"id": true}', "line 2 column 'id': true is not of type long"),
        ('{"id": 9223372036854775808}', "line 2 column 'id'"),
        ('{"s": 1}', "line 2 column 's': 1 is not of type string"),
        ('{"ok": "true"}', "line 2 column 'ok'"),
        ('{"d": "2024-13-01"}', "line 2 column 'd'"),
        ('{"n": 1.234}', "line 2 column 'n'"),
        ('{"b": "?"}', "line 2 column 'b': .* base64"),
        ('{"a": 1}', "line 2 column 'a': 1 is not of type array<integer>"),
        ('{"a": [1, "x"]}', r"line 2 column 'a\.element'"),
        ('{"r": {"z": 1}}', r"line 2 column 'r\.z': the table has no such column"),
        ('{"m": {"k": 5}}', r"line 2 column 'm\.value'"),
        ('{"other": 1}', "line 2 column 'other': the table has no such column"),
        ('{"id": 1, "id": 2}', "line 2: 'id' is given twice"),
        ('{"id": 1, "ID": 2}', "line 2 column 'ID': it is given twice, ignoring case"),
        ('{"r": {"x": 1, "x": 1}}', "line 2: 'x' is given twice"),
        ('{"m": {"k": true, "k": false}}', "line 2: 'k' is given twice"),
    ],
)
def test_invalid_json_is_refused_with_its_line_and_column(
    line: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidDataError, match=rf"rows\.json {expected}"):
        read(tmp_path, "json", f'{{"id": 1}}\n{line}\n', NESTED)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("double", "1e400", r"1\.000000e\+400"),
        ("double", "-1e400", r"-1\.000000e\+400"),
        ("double", "1" + "0" * 400, r"1\.000000e\+400"),
        ("float", "1e300", r"1\.000000e\+300"),
    ],
)
def test_a_number_too_great_for_its_column_does_not_become_infinite(
    kind: str, value: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(
        InvalidDataError, match=f"line 1 column 'x': {expected} is too great for {kind}"
    ):
        read(tmp_path, "json", f'{{"x": {value}}}', f"x {kind}")


# Parquet


def test_parquet_is_read_whatever_its_layout(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    given = pa.table({"AT": pa.array([NOON]), "id": pa.array([1], pa.int8())})
    schema = parse_schema("id long, at timestamp, s string")
    for old in (False, True):
        pq.write_table(given, file, use_deprecated_int96_timestamps=old)
        found = read_input(str(file), "parquet", schema).read_all()
        assert found.to_pylist() == [{"id": 1, "at": NOON, "s": None}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"id": ["x"]}, "'id' is long, and the rows have string"), ({"x": [1]}, "no column 'x'")],
)
def test_parquet_that_does_not_fit_is_refused(
    given: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table(given), tmp_path / "rows.parquet")
    with pytest.raises(InvalidDataError, match=rf"rows\.parquet: .*{re.escape(expected)}"):
        read_input(tmp_path / "rows.parquet", "parquet", parse_schema("id long")).read_all()


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("no")
    with pytest.raises(InvalidDataError, match=r"rows\.parquet"):
        read_input(tmp_path / "rows.parquet", "parquet", parse_schema("id long")).read_all()


# Neither


def test_an_unknown_format_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="'xml'"):
        read_input(tmp_path / "x", "xml", parse_schema("id long"))
    with pytest.raises(NotFoundError, match="no file"):
        read_input(tmp_path / "x", "csv", parse_schema("id long"))
