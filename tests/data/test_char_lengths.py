"""Rows of Arrow in columns of a declared length come out as Spark would write them."""

import pyarrow as pa
import pytest

from headgate.data.row_conversion import conform
from headgate.errors import InvalidDataError
from headgate.protocol.expressions.char_lengths import DECLARED
from headgate.protocol.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)


def column(data_type: DataType, spelled: str) -> StructType:
    return StructType((StructField("v", data_type, metadata={DECLARED: spelled}),))


def fitted(values: object, schema: StructType) -> list[object]:
    found: list[object] = conform(pa.record_batch({"v": values}), schema)["v"].to_pylist()
    return found


def test_spaces_are_cut_from_varchar_and_put_to_char() -> None:
    texts = ["ab", "äöü   ", None, "abc", ""]
    assert fitted(texts, column(STRING, "varchar(3)")) == ["ab", "äöü", None, "abc", ""]
    assert fitted(texts, column(STRING, "char(4)")) == ["ab  ", "äöü ", None, "abc ", "    "]


@pytest.mark.parametrize("spelled", ["varchar(3)", "char(3)"])
def test_a_text_that_is_too_long_is_refused(spelled: str) -> None:
    with pytest.raises(InvalidDataError) as refused:
        fitted(["ab", "abcd", None, "  äöü"], column(STRING, spelled))
    assert refused.value.message == (
        f"Column 'v' is {spelled}, and 2 of 4 texts are longer, such as 'abcd'."
    )


NESTED = {
    "array<varchar(2)>": (ArrayType(STRING), [["ab", "a  "], None], [["ab", "a "], None]),
    "map<char(2),varchar(1)>": (
        MapType(STRING, STRING),
        pa.array([[("a", "x ")]], pa.map_(pa.string(), pa.string())),
        [[("a ", "x")]],
    ),
    "struct<N:bigint,T:array<char(3)>>": (
        StructType((StructField("n", LONG), StructField("t", ArrayType(STRING)))),
        [{"n": 1, "t": ["ab"]}, None],
        [{"n": 1, "t": ["ab "]}, None],
    ),
}


@pytest.mark.parametrize("spelled", NESTED)
def test_texts_within_other_types_are_fitted_too(spelled: str) -> None:
    data_type, values, wanted = NESTED[spelled]
    assert fitted(values, column(data_type, spelled)) == wanted


def test_a_text_that_is_too_long_within_another_type_is_named_by_its_place() -> None:
    data_type, *_ = NESTED["struct<N:bigint,T:array<char(3)>>"]
    schema = column(data_type, "struct<N:bigint,T:array<char(3)>>")
    with pytest.raises(InvalidDataError, match=r"'v\.t\.element' is char\(3\)"):
        fitted([{"n": 1, "t": ["abcd"]}], schema)


def test_what_was_declared_of_another_type_bounds_nothing() -> None:
    assert fitted([["abc"]], column(ArrayType(STRING), "string")) == [["abc"]]
