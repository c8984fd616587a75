import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidNameError
from headgate.names import SchemaName, TableName, fold
from tests.kit import shows

relaxed = settings(deadline=None)

letters = st.characters(categories=["L", "N"]) | st.sampled_from("_@-")
parts = st.text(letters, min_size=1, max_size=12).filter(
    lambda part: len(unicodedata.normalize("NFC", part)) <= 255
)


def test_missing_parts_are_given() -> None:
    assert TableName.parse("orders") == TableName("main", "default", "orders")
    assert TableName.parse("sales.orders") == TableName("main", "sales", "orders")
    assert TableName.parse("c.sales.orders") == TableName("c", "sales", "orders")
    assert TableName.parse("orders", "c", "s") == TableName("c", "s", "orders")
    assert SchemaName.parse("sales") == SchemaName("main", "sales")
    assert SchemaName.parse("c.sales") == SchemaName("c", "sales")


def test_a_table_lies_in_its_namespace() -> None:
    assert TableName.parse("c.sales.orders").namespace == SchemaName("c", "sales")


@given(parts, parts, parts)
@relaxed
def test_a_name_comes_back_from_its_spelling(catalog: str, schema: str, table: str) -> None:
    name = TableName.parse(f"{catalog}.{schema}.{table}")
    assert TableName.parse(str(name)) == name
    assert TableName.parse(".".join(f"`{part}`" for part in str(name).split("."))) == name
    assert SchemaName.parse(str(name.namespace)) == name.namespace


@shows("FI9")
@given(parts)
@relaxed
def test_names_that_differ_in_case_only_are_one(part: str) -> None:
    name = TableName.parse(part)
    assert fold(fold(part)) == fold(part)
    for spelled in (part.upper(), part.lower()):
        if fold(spelled) == fold(part):  # a few letters have no way back
            assert TableName.parse(spelled).key == name.key


@shows("FI9")
def test_names_differing_in_case_or_composition_have_one_key() -> None:
    assert TableName.parse("Sales.ORDERS").key == TableName.parse("sales.Orders").key
    composed, apart = "caf\u00e9", "cafe\u0301"
    assert TableName.parse(composed) == TableName.parse(apart)
    assert TableName.parse("straße").key == TableName.parse("STRASSE").key


@shows("FI9")
@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "../x",
        "a.",
        ".a",
        "a..b",
        "a.b.c.d",
        "a/b",
        "a\\b",
        "/a",
        "a%2fb",
        "%2e%2e",
        "a b",
        "a\tb",
        "a\n",
        "a\x00b",
        "a`b",
        "`a.b`",
        "``",
        "```",
        "a'b",
        'a"b',
        "a;b",
        "a=b",
        "a:b",
        "a*",
        "~",
        "😀",
        "a😀",
        "\u200b",
        "a\u202eb",
        "\ufeffa",
        "\ud800",
        "x" * 256,
        "é" * 256,
        "s." + "x" * 256,
    ],
)
def test_a_name_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        TableName.parse(text)


@shows("FI9")
def test_a_name_of_255_letters_is_one_and_of_256_is_none() -> None:
    assert TableName.parse("x" * 255).table == "x" * 255
    with pytest.raises(InvalidNameError, match="255"):
        TableName.parse("x" * 256)


@shows("FI9")
@given(st.text(max_size=20) | st.text("ab./%`\\~é😀\x00 ", max_size=10))
@relaxed
def test_any_text_is_a_name_or_refused_and_never_a_path(text: str) -> None:
    for parse in (TableName.parse, SchemaName.parse):
        try:
            name = parse(text)
        except InvalidNameError:
            continue
        spelled = [name.catalog, name.schema]
        if isinstance(name, TableName):
            spelled.append(name.table)
        for part in spelled:
            assert not set(part) & set("/\\.%`\x00 \n~:*")


def test_a_namespace_of_three_parts_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        SchemaName.parse("a.b.c")


def test_given_parts_are_judged_too() -> None:
    with pytest.raises(InvalidNameError):
        TableName.parse("orders", catalog="../..")
    with pytest.raises(InvalidNameError):
        TableName.parse("orders", schema="a/b")
    with pytest.raises(InvalidNameError):
        SchemaName.parse("sales", catalog="")
