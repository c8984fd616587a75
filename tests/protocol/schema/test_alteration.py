"""What depends on a column, and what a changed type leaves in the schema."""

from __future__ import annotations

import pytest

from headgate.protocol.actions import DomainMetadata, Metadata
from headgate.protocol.clustering import DOMAIN, clustering_columns
from headgate.protocol.expressions.dependents import dependents
from headgate.protocol.expressions.schema_text import parse_schema, parse_type
from headgate.protocol.schema.alteration import First as AtTheHead
from headgate.protocol.schema.alteration import dotted, moved, retyped
from headgate.protocol.schema.column_mapping import MAPPING_NAME
from headgate.protocol.schema.type_widening import TYPE_CHANGES
from headgate.protocol.schema.types import (
    GENERATION,
    INTEGER,
    INVARIANTS,
    LONG,
    SHORT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    Path,
    StructField,
    StructType,
    to_json,
)


def metadata(schema: StructType, **constraints: str) -> Metadata:
    configuration = {f"delta.constraints.{name}": text for name, text in constraints.items()}
    return Metadata(id="t", schema_string=to_json(schema), configuration=configuration)


@pytest.mark.parametrize(
    ("path", "text", "is_used"),
    [
        (("a",), "A > 0", True),
        (("a",), "abs(`a`) > 0", True),
        (("a",), "ab > 0 and b.c = 1", False),
        (("a",), "b = 'a'", False),
        (("a",), "b = 'it''s' and c like '\\'' or a is null", True),
        (("b",), "b.c > 0", True),
        (("b", "c"), "b.c > 0", True),
        (("b", "c"), "c > 0", False),
        (("x y",), "`x y` > 0", True),
        (("x`y",), "`x``y` > 0", True),
        (("x y",), "x > y", False),
    ],
)
def test_a_text_uses_a_column_by_its_words(path: Path, text: str, is_used: bool) -> None:
    found = dependents(metadata(parse_schema("a long"), rule=text), path)
    assert found == (["constraint rule"] if is_used else [])


def test_generated_columns_invariants_and_statistics_go_by_names() -> None:
    invariant = '{"expression": {"expression": "a > 0"}}'
    schema = StructType(
        (
            StructField("a", LONG),
            StructField("g", LONG, metadata={GENERATION: "a + 1"}),
            StructField("i", LONG, metadata={INVARIANTS: invariant}),
        )
    )
    described = Metadata(
        id="t",
        schema_string=to_json(schema),
        configuration={"delta.dataSkippingStatsColumns": "g,a"},
    )
    assert dependents(described, ("a",)) == [
        "invariant of i",
        "generated column g",
        "property delta.dataSkippingStatsColumns",
    ]
    assert dependents(described, ("i",)) == []


@pytest.mark.parametrize(
    ("before", "wanted", "after", "records"),
    [
        (INTEGER, LONG, LONG, [("integer", "long", None)]),
        (LONG, LONG, LONG, []),
        (VOID, LONG, LONG, []),
        (
            MapType(SHORT, ArrayType(SHORT, contains_null=False), value_contains_null=False),
            parse_type("map<int, array<long>>"),
            MapType(INTEGER, ArrayType(LONG, contains_null=False), value_contains_null=False),
            [("short", "integer", "key"), ("short", "long", "value.element")],
        ),
    ],
)
def test_a_wider_type_is_recorded_and_all_else_stays(
    before: DataType,
    wanted: DataType,
    after: DataType,
    records: list[tuple[str, str, str | None]],
) -> None:
    item = StructField("n", before, nullable=False, metadata={"comment": "why"})
    found = retyped(item, wanted, ("n",))
    assert (found.type, found.nullable, found.metadata["comment"]) == (after, False, "why")
    expected = [
        {"fromType": one, "toType": other} | ({} if where is None else {"fieldPath": where})
        for one, other, where in records
    ]
    assert found.metadata.get(TYPE_CHANGES, []) == expected


def test_changes_of_a_type_are_recorded_in_their_order() -> None:
    item = StructField("n", SHORT)
    for wanted in (INTEGER, LONG):
        item = retyped(item, wanted, ("n",))
    assert item.metadata[TYPE_CHANGES] == [
        {"fromType": "short", "toType": "integer"},
        {"fromType": "integer", "toType": "long"},
    ]


def test_a_column_moves_and_its_twin_within_a_struct_does_not() -> None:
    schema = parse_schema("a long, s struct<a: long, b: long>, b long")
    assert str(moved(schema, ("b",), AtTheHead())) == (
        "struct<b:long,a:long,s:struct<a:long,b:long>>"
    )


def test_paths_are_spelled_with_quotes_where_a_dot_would_mislead() -> None:
    assert dotted(("a.b", "c", "d`e")) == "`a.b`.c.`d``e`"


@pytest.mark.parametrize(
    ("configuration", "columns"),
    [
        ('{"clusteringColumns":[["p1","p2"],["b"]]}', [("a", "x"), ("b",)]),
        ('{"clusteringColumns":[["gone"]]}', [("gone",)]),
        ("strange", []),
    ],
)
def test_clustering_columns_are_told_by_the_names_users_know(
    configuration: str, columns: list[Path]
) -> None:
    inner = StructType((StructField("x", LONG, metadata={MAPPING_NAME: "p2"}),))
    schema = StructType(
        (StructField("a", inner, metadata={MAPPING_NAME: "p1"}), StructField("b", LONG))
    )
    domain = DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)
    assert clustering_columns({DOMAIN: domain}, schema) == columns
    assert clustering_columns({}, schema) == []
