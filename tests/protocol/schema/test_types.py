import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidSchemaError, MalformedError, UnsupportedFeatureError
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema import checks, column_mapping, type_widening
from headgate.protocol.schema import types as schema
from headgate.protocol.schema.types import (
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    PRIMITIVES,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Primitive,
    StructField,
    StructType,
)

relaxed = settings(deadline=None)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    metadata = st.dictionaries(st.text(max_size=6), json_values, max_size=2)
    field = st.builds(StructField, st.text(max_size=6), inner, st.booleans(), metadata)
    return st.builds(StructType, st.lists(field, max_size=4).map(tuple))


types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(list(PRIMITIVES.values())) | decimals,
    lambda inner: (
        structs(inner)
        | st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(structs(types))
@relaxed
def test_a_schema_comes_back_from_json_with_all_its_metadata(table: StructType) -> None:
    assert schema.from_json(schema.to_json(table)) == table


def test_a_schema_of_another_writer_comes_back_byte_for_byte() -> None:
    text = (
        '{"type":"struct","fields":['
        '{"name":"e","type":{"type":"array","elementType":{"type":"struct","fields":['
        '{"name":"d","type":"integer","nullable":false,"metadata":{"delta.columnMapping.id":5,'
        '"delta.columnMapping.physicalName":"col-a7f4159c"}}]},"containsNull":true},'
        '"nullable":true,"metadata":{"delta.columnMapping.id":4,'
        '"delta.columnMapping.physicalName":"col-5f422f40"}},'
        '{"name":"w","type":"long","nullable":true,"metadata":{"delta.typeChanges":'
        '[{"fromType":"short","toType":"integer"},{"fromType":"integer","toType":"long"}]}},'
        '{"name":"v","type":"string","nullable":true,'
        '"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(10)","comment":"Größe"}},'
        '{"name":"g","type":"date","nullable":true,'
        '"metadata":{"delta.generationExpression":"CAST(t AS DATE)"}},'
        '{"name":"i","type":"long","nullable":true,"metadata":{"delta.identity.start":1,'
        '"delta.identity.step":1,"delta.identity.allowExplicitInsert":false}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":"decimal(10,2)",'
        '"valueContainsNull":false},"nullable":true,"metadata":{"future":{"a":[1,null]}}}]}'
    )
    assert schema.to_json(schema.from_json(text)) == text


@pytest.mark.parametrize("name", ["interval day", "geometry(4326)", "point", "decimal(10,-2)", ""])
def test_a_type_nobody_knows_is_refused_by_its_name(name: str) -> None:
    text = json.dumps({"type": "struct", "fields": [{"name": "x", "type": name}]})
    with pytest.raises(UnsupportedFeatureError, match="'x'") as refused:
        schema.from_json(text)
    assert repr(name) in str(refused.value)


def test_a_nested_shape_nobody_knows_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'udt'"):
        schema.from_json('{"type":"struct","fields":[{"name":"x","type":{"type":"udt"}}]}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"long"',
        '{"type":"struct"}',
        '{"type":"struct","fields":[1]}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"x"}]}',
        '{"type":"struct","fields":[{"name":"x","type":"long","nullable":"no"}]}',
        '{"type":"struct","fields":[{"name":"x","type":"long","metadata":[]}]}',
        '{"type":"struct","fields":[{"name":"x","type":"decimal(39,0)"}]}',
        '{"type":"struct","fields":[{"name":"x","type":"decimal(2,3)"}]}',
        '{"type":"struct","fields":[{"name":"x","type":{"type":"array"}}]}',
        '{"fields":[]}',
        "[" * 100_000,
        '{"type":"struct","fields":[{"name":"x","type":'
        + '{"type":"array","elementType":' * 200
        + '"long"'
        + "}" * 200
        + "}]}",
    ],
)
def test_what_is_no_schema_is_malformed(text: str) -> None:
    with pytest.raises(MalformedError):
        schema.from_json(text)


def test_bytes_that_are_not_utf8_are_malformed() -> None:
    with pytest.raises(MalformedError):
        schema.from_json(b'{"type":"struct","fields":[],"x":"\xff"}')


def test_the_older_word_for_void_is_understood() -> None:
    parsed = schema.from_json('{"type":"struct","fields":[{"name":"x","type":"null"}]}')
    assert parsed == StructType((StructField("x", VOID),))


# The short spelling


def test_columns_are_read_as_people_write_them() -> None:
    assert parse_schema(
        "id long not null, day DATE, amount decimal(10,2), tags array<string>,"
        " m map<string,int>, s struct<a: int, b: string>"
    ) == StructType(
        (
            StructField("id", LONG, nullable=False),
            StructField("day", DATE),
            StructField("amount", DecimalType(10, 2)),
            StructField("tags", ArrayType(STRING)),
            StructField("m", MapType(STRING, INTEGER)),
            StructField("s", StructType((StructField("a", INTEGER), StructField("b", STRING)))),
        )
    )


def test_names_in_backticks_and_comments_may_hold_anything() -> None:
    assert parse_schema(
        "`a b``c,` bigint COMMENT 'it''s, \\'so\\'' NOT NULL,\n größe double comment \"x\""
    ) == StructType(
        (
            StructField("a b`c,", LONG, nullable=False, metadata={"comment": "it's, 'so'"}),
            StructField("größe", DOUBLE, metadata={"comment": "x"}),
        )
    )


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("int", "integer"),
        ("bigint", "long"),
        ("smallint", "short"),
        ("tinyint", "byte"),
        ("real", "float"),
        ("bool", "boolean"),
        ("timestamp_ltz", "timestamp"),
        *((name, name) for name in PRIMITIVES),
    ],
)
def test_a_type_has_the_names_people_know(spelled: str, meant: str) -> None:
    assert parse_schema(f"x {spelled.upper()}").fields[0].type == Primitive(meant)


def test_nested_types_close_without_spaces() -> None:
    assert parse_schema("x array<map<string,array<int>>>").fields[0].type == ArrayType(
        MapType(STRING, ArrayType(INTEGER))
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "no columns"),
        ("id", "character 3"),
        ("id lang", "character 4"),
        ("id long,", "character 9"),
        ("id long day date", "character 9"),
        ("id long not", "character 12"),
        ("id long comment x", "character 17"),
        ("x decimal(39)", "character 3"),
        ("x decimal(5,6)", "character 3"),
        ("x decimal(a)", "character 11"),
        ("x array<int", "character 12"),
        ("x array<>", "character 8"),
        ("x map<string>", "character 13"),
        ("x varchar(10)", "use string"),
        ("x ; drop", "character 3"),
        ("x struct<a int,>", "character 16"),
        ("x " + "array<" * 200, "deeper"),
    ],
)
def test_a_mistake_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(InvalidSchemaError, match=place):
        parse_schema(text)


@given(st.text(alphabet="ab `',:<>()1\n\\é" + '"', max_size=30) | st.text(max_size=20))
@relaxed
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidSchemaError):
        parse_schema(text)


# What a new schema may say


def test_a_good_schema_has_no_problems() -> None:
    table = parse_schema("id long, day date, s struct<a: int, A_: int>")
    assert checks.problems(table, ["day"]) == []
    checks.check(table, ["day"])


@pytest.mark.parametrize(
    ("table", "partitions", "problem"),
    [
        ("ID long, id long", [], "twice"),
        ("s struct<a: int, A: int>", [], "'s.A' is given twice"),
        ("x array<struct<a: int, A: int>>", [], "'x.element.A' is given twice"),
        ("x map<string, array<struct<`b c`: int>>>", [], "'x.value.element.b c' contains ' '"),
        ("`a=b` long", [], "contains '='"),
        ("`` long", [], "empty name"),
        ("id long, s struct<>", [], "has no fields"),
        ("id long", ["day"], "no column 'day'"),
        ("id long", ["ID"], "no column 'ID'"),
        ("id long, a array<int>", ["a"], "cannot be partitioned by"),
        ("id long, v variant", ["v"], "cannot be partitioned by"),
        ("id long, day date", ["day", "day"], "named twice"),
        ("id long, day date", ["id", "day"], "every column"),
    ],
)
def test_a_schema_no_table_can_have_is_refused(
    table: str, partitions: list[str], problem: str
) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        checks.check(parse_schema(table), partitions)


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="no columns"):
        checks.check(StructType())


def test_a_schema_that_nests_too_deep_is_refused() -> None:
    deep: DataType = LONG
    for _ in range(schema.DEEPEST + 1):
        deep = ArrayType(deep)
    with pytest.raises(InvalidSchemaError, match="deeper"):
        checks.check(StructType((StructField("x", deep),)))


def test_column_mapping_allows_any_character_in_a_name() -> None:
    assert checks.problems(parse_schema("`a, b = {c}` long"), column_mapping=True) == []


def test_void_where_rows_could_not_be_written_is_named() -> None:
    table = parse_schema("a array<void>, s struct<x: void>, m map<string, struct<y: void>>")
    assert checks.void_problems(table) == [
        "column 'a' has void within an array or map",
        "column 'm' has void within an array or map",
        "every field of struct 's' is void",
    ]
    assert checks.void_problems(parse_schema("x void")) == ["every column is void"]
    assert checks.void_problems(parse_schema("x void, y long")) == []


# What a schema says

MAPPED = StructType(
    (
        StructField(
            "a",
            StructType(
                (
                    StructField(
                        "b",
                        LONG,
                        nullable=False,
                        metadata={
                            column_mapping.MAPPING_ID: 2,
                            column_mapping.MAPPING_NAME: "col-2",
                        },
                    ),
                )
            ),
            metadata={column_mapping.MAPPING_ID: 1, column_mapping.MAPPING_NAME: "col-1"},
        ),
        StructField("c", STRING),
    )
)


def test_leaves_have_logical_and_physical_paths() -> None:
    assert list(column_mapping.leaf_columns(MAPPED)) == [
        column_mapping.Leaf(("a", "b"), ("col-1", "col-2"), LONG, nullable=True),
        column_mapping.Leaf(("c",), ("c",), STRING, nullable=True),
    ]


def test_an_array_or_map_is_one_leaf() -> None:
    table = parse_schema("x array<struct<a: int>> not null, m map<string, int>")
    assert [(leaf.path, leaf.nullable) for leaf in column_mapping.leaf_columns(table)] == [
        (("x",), False),
        (("m",), True),
    ]


def test_a_field_has_a_physical_name_and_an_id_under_column_mapping() -> None:
    mapped, plain = MAPPED.fields
    assert (column_mapping.physical_name(mapped), column_mapping.field_id(mapped)) == ("col-1", 1)
    assert (column_mapping.physical_name(plain), column_mapping.field_id(plain)) == ("c", None)


def test_a_field_is_found_by_its_path_and_in_any_case_if_no_other_has_the_name() -> None:
    table = parse_schema("Id long, id2 struct<X: int, x: long>, l array<struct<y: date>>")
    assert schema.find(table, ("ID",)) == StructField("Id", LONG)
    assert schema.find(table, ("id2", "x")) == StructField("x", LONG)
    assert schema.find(table, ("l", "element", "y")) == StructField("y", DATE)
    for path in [(), ("nobody",), ("Id", "x"), ("l", "element"), ("l", "key", "y")]:
        assert schema.find(table, path) is None


def test_a_path_is_translated_for_statistics() -> None:
    assert column_mapping.physical_path(MAPPED, ("a", "b")) == ("col-1", "col-2")
    assert column_mapping.physical_path(MAPPED, ("a", "x")) is None


def test_without_mapping_names_are_themselves_again() -> None:
    plain = column_mapping.without_mapping(MAPPED)
    assert plain == parse_schema("a struct<b: long not null>, c string")


@pytest.mark.slow
@given(structs(types))
@relaxed
def test_mapping_gives_every_field_an_id_and_a_name_of_its_own(table: StructType) -> None:
    counter = iter(range(10_000))
    mapped, last = column_mapping.with_mapping(table, lambda: f"col-{next(counter)}", last_id=7)
    fields = [item for _, item in schema.all_fields(mapped)]
    ids = [column_mapping.field_id(item) for item in fields]
    assert sorted(ids) == list(range(8, 8 + len(fields)))  # type: ignore[type-var]
    assert last == 7 + len(fields)
    assert len({column_mapping.physical_name(item) for item in fields}) == len(fields)
    assert column_mapping.without_mapping(mapped) == table


def test_mapping_keeps_what_is_already_mapped() -> None:
    mapped, last = column_mapping.with_mapping(MAPPED, lambda: "col-new")
    assert mapped.fields[0] == MAPPED.fields[0]
    assert column_mapping.field_id(mapped.fields[1]) == last == 3


def test_check_constraints_come_from_properties() -> None:
    properties = {"delta.constraints.positive": "x > 0", "delta.appendOnly": "true"}
    assert schema.check_constraints(properties) == {"positive": "x > 0"}


def test_invariants_come_from_column_metadata() -> None:
    invariant = '{"expression": { "expression": "x > 3"} }'
    table = StructType((StructField("x", LONG, metadata={schema.INVARIANTS: invariant}),))
    assert schema.invariants(table) == {("x",): "x > 3"}


@pytest.mark.parametrize("invariant", ["x > 3", '{"expression": 5}', 5, None])
def test_an_invariant_that_cannot_be_read_is_malformed(invariant: object) -> None:
    table = StructType((StructField("x", LONG, metadata={schema.INVARIANTS: invariant}),))
    with pytest.raises(MalformedError, match="'x'"):
        schema.invariants(table)


def test_columns_are_found_by_the_metadata_they_carry() -> None:
    table = StructType(
        (
            StructField("a", LONG, metadata={"delta.identity.start": 1}),
            StructField("b", LONG, metadata={schema.GENERATION: "a + 1"}),
        )
    )
    assert schema.columns_with(table, schema.IDENTITY) == [("a",)]
    assert schema.columns_with(table, schema.GENERATION) == [("b",)]


def test_a_type_is_found_at_any_depth() -> None:
    table = parse_schema("x array<map<string, struct<t: timestamp_ntz>>>")
    assert schema.contains(table, TIMESTAMP_NTZ)
    assert not schema.contains(table, VARIANT)


def test_changes_of_type_are_read_with_their_place() -> None:
    text = (
        '{"type":"struct","fields":[{"name":"e","type":{"type":"map","keyType":"double",'
        '"valueType":"integer","valueContainsNull":true},"nullable":true,"metadata":'
        '{"delta.typeChanges":[{"fromType":"float","toType":"double","fieldPath":"key"}]}}]}'
    )
    (change,) = type_widening.type_changes(schema.from_json(text))
    assert change == type_widening.TypeChange(("e",), Primitive("float"), DOUBLE, "key")


def test_changes_of_type_that_cannot_be_read_are_malformed() -> None:
    table = StructType(
        (StructField("x", LONG, metadata={type_widening.TYPE_CHANGES: [{"to": 1}]}),)
    )
    with pytest.raises(MalformedError, match="'x'"):
        type_widening.type_changes(table)


WIDENINGS = {
    "byte": {"short", "integer", "long", "double", "decimal(10,0)", "decimal(20,0)"},
    "short": {"integer", "long", "double", "decimal(10,0)", "decimal(20,0)"},
    "integer": {"long", "double", "decimal(10,0)", "decimal(20,0)"},
    "long": {"decimal(20,0)"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
    "decimal(10,0)": {"decimal(20,0)"},
}


def test_only_the_protocols_widenings_are_widenings() -> None:
    names = [*PRIMITIVES, "decimal(10,0)", "decimal(20,0)", "decimal(9,0)"]
    table = {name: parse_schema(f"x {name}").fields[0].type for name in names}
    for before, old in table.items():
        found = {after for after, new in table.items() if type_widening.is_widening(old, new)}
        assert found == WIDENINGS.get(before, set()) | (
            {before} if before.startswith("decimal") else set()
        ) | ({"decimal(10,0)", "decimal(20,0)"} if before == "decimal(9,0)" else set())
    assert not type_widening.is_widening(DecimalType(10, 2), DecimalType(11, 4))
    assert not type_widening.is_widening(TIMESTAMP, DATE)
