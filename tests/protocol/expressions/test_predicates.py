# ruff: noqa: DTZ001 (a timestamp without a zone is a type of its own)
import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidDataError, MalformedError
from headgate.protocol.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    columns,
)
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.partition_values import format_partition_value, parse_partition_value
from headgate.protocol.schema.column_mapping import MAPPING_NAME
from headgate.protocol.schema.types import STRING, DataType, DecimalType, StructField, StructType
from headgate.protocol.statistics import Statistics, parse_statistics, parse_values
from tests.kit.predicates import matches, may_match

relaxed = settings(deadline=None)

TYPES = {
    "i": "integer",
    "l": "long",
    "f": "float",
    "d": "double",
    "n": "decimal(20,3)",
    "k": "decimal(6,2)",
    "s": "string",
    "b": "boolean",
    "y": "date",
    "t": "timestamp",
    "z": "timestamp_ntz",
}
SCHEMA = parse_schema(", ".join(f"{name} {kind}" for name, kind in TYPES.items()))
TYPE = {item.name: item.type for item in SCHEMA.fields}


def single(value: float) -> float:
    """Round to what a float column can hold."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


moments = st.datetimes(dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 2))
close_moments = st.builds(
    lambda micros: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros),
    st.integers(-3_000, 3_000),
)
# Few values, close together, so that rows, bounds and literals meet often.
VALUES: dict[str, st.SearchStrategy[object]] = {
    "i": st.integers(-3, 3),
    "l": st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63)]),
    "f": st.sampled_from([0.1, 0.2, -0.1, math.nan, math.inf]).map(single) | st.floats(width=32),
    "d": st.sampled_from([0.1, single(0.1), -0.0, 0.0, math.nan, -math.inf]) | st.floats(),
    "n": st.sampled_from(
        [Decimal(f"12345678901234567.{digits}") for digits in ("123", "124", "125")]
    )
    | st.decimals(-3, 3, places=3),
    "k": st.decimals(0, 1, places=2),
    "s": st.text("ab\ufffd\U0001f600", max_size=3) | st.text(max_size=3),
    "b": st.booleans(),
    "y": st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 4)),
    "t": (close_moments | moments).map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    "z": close_moments | moments,
}


def spelled(value: object) -> Literal:
    """Give a value as a predicate's literal."""
    match value:
        case Decimal():
            return str(value)
        case dt.datetime():
            naive = value.replace(tzinfo=None).isoformat()
            return f"{naive}Z" if value.tzinfo else naive
        case dt.date():
            return value.isoformat()
        case bool() | int() | float() | str():
            return value
        case _:
            raise AssertionError(value)


def comparisons(names: Sequence[str]) -> st.SearchStrategy[Predicate]:
    @st.composite
    def one(draw: st.DrawFn) -> Predicate:
        name = draw(st.sampled_from(names))
        literals = VALUES[name].map(spelled)
        match draw(st.integers(0, 5)):
            case 0:
                return IsNull((name,))
            case 1:
                return In((name,), tuple(draw(st.lists(literals, max_size=3))))
            case _:
                return Compare((name,), draw(st.sampled_from(Operator)), draw(literals))

    return one()


def predicates_over(names: Sequence[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        comparisons(names),
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(And, st.lists(inner, max_size=3).map(tuple))
            | st.builds(Or, st.lists(inner, max_size=3).map(tuple))
        ),
        max_leaves=3,
    )


Row = dict[str, object]


def cases(most_rows: int) -> st.SearchStrategy[tuple[Predicate, list[Row]]]:
    """Give predicates with the rows of a file, over the same one or two columns."""
    groups = [*((name,) for name in TYPES), ("i", "s"), ("d", "y"), ("t", "b")]
    return st.one_of(
        st.tuples(
            predicates_over(names),
            st.lists(
                st.fixed_dictionaries({name: st.none() | VALUES[name] for name in names}),
                min_size=1,
                max_size=most_rows,
            ),
        )
        for names in groups
    )


def written(value: object, name: str, *, upper: bool, prefix: int, plain: bool) -> object:
    """Give a bound as writers put it into JSON: cut, rounded, spelled in one way or another."""
    match value:
        case str() if len(value) > prefix:
            # Some writers break ties, some merely cut.
            return value[:prefix] + ("" if plain or not upper else "\U0010ffff")
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(sep="T", timespec="milliseconds")
            return text + ("Z" if value.tzinfo else "")
        case dt.date():
            return value.isoformat()
        case float():
            # A float is written with the fewest digits that distinguish it from other floats.
            return float(f"{value:.8g}") if name == "f" else value
        case Decimal():
            return float(value) if plain else value
        case _:
            return value


def statistics(file: Sequence[Row], *, prefix: int, plain: bool) -> tuple[Row, Row, Row]:
    low: Row = {}
    high: Row = {}
    nulls: Row = {}
    for name in file[0]:
        values = [row[name] for row in file]
        nulls[name] = sum(value is None for value in values)
        present = [v for v in values if v is not None]
        numbers = [v for v in present if not (isinstance(v, float) and math.isnan(v))]
        if numbers:
            least, most = min(numbers), max(numbers)  # type: ignore[type-var]
            low[name] = written(least, name, upper=False, prefix=prefix, plain=plain)
            high[name] = written(most, name, upper=True, prefix=prefix, plain=plain)
    return low, high, nulls


@pytest.mark.slow
@given(cases(3), st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=1000)
def test_a_file_with_a_matching_row_is_never_skipped(
    case: tuple[Predicate, list[Row]], prefix: int, plain: bool, bounded: bool, counted: bool
) -> None:
    predicate, file = case
    low, high, nulls = statistics(file, prefix=prefix, plain=plain)
    can_match = may_match(
        predicate,
        SCHEMA,
        {},
        low if bounded or plain else None,
        high if bounded or not plain else None,
        nulls if counted else None,
        len(file),
    )
    assert can_match or not any(matches(predicate, row) for row in file)


@given(cases(1))
@relaxed
def test_a_partition_with_a_matching_row_is_never_skipped(
    case: tuple[Predicate, list[Row]],
) -> None:
    predicate, (row,) = case
    values = {name: format_partition_value(value, TYPE[name]) for name, value in row.items()}
    stored = {name: parse_partition_value(text, TYPE[name]) for name, text in values.items()}
    assert may_match(predicate, SCHEMA, values) or not matches(predicate, stored)


@given(cases(1))
@relaxed
def test_a_predicate_and_its_negation_never_both_match(
    case: tuple[Predicate, list[Row]],
) -> None:
    predicate, (row,) = case
    assert not (matches(predicate, row) and matches(Not(predicate), row))


# That anything is skipped at all


def skips(predicate: Predicate, low: object, high: object, name: str, nulls: int = 0) -> bool:
    return not may_match(predicate, SCHEMA, {}, {name: low}, {name: high}, {name: nulls}, 10)


def over(name: str, operator: str, value: Literal) -> Compare:
    return Compare((name,), Operator(operator), value)


@pytest.mark.parametrize(
    ("predicate", "low", "high"),
    [
        (over("i", "=", 5), 1, 4),
        (over("i", "<", 1), 1, 4),
        (over("i", ">", 4), 1, 4),
        (over("i", "!=", 3), 3, 3),
        (Not(over("i", "=", 3)), 3, 3),
        (Not(In(("i",), (3, 4))), 3, 3),
        (In(("i",), (0, 5)), 1, 4),
        (In(("i",), ()), 1, 4),
        (over("i", "<", 0.5), 1, 4),
        (over("l", "=", 2**53 + 1), 2**53 + 2, 2**53 + 2),
        (over("d", "<", 1.0), 1.5, 2.5),
        (over("d", "=", 3.0), 1.5, 2.5),
        (over("n", ">", "2.500"), Decimal("1.5"), Decimal("2.4")),
        (over("k", ">=", "0.51"), 0.1, 0.5),
        (over("s", "=", "c"), "a", "b"),
        (over("s", "<", "a"), "a", "b"),
        (over("b", "=", True), False, False),
        (over("y", ">", "2024-01-31"), "2024-01-01", "2024-01-31"),
        (over("t", ">", "2024-01-02T00:00:00Z"), *["2024-01-01T00:00:00.000Z"] * 2),
        (over("t", "<", "2024-01-01 00:00:00"), *["2024-01-01T00:00:00.005+00:00"] * 2),
        (over("t", "<", "2024-01-01T00:00:00Z"), *["2024-01-01T00:00:00.000-08:00"] * 2),
        (over("z", ">", "2024-01-02 00:00:00"), *["2024-01-01T23:59:59.998"] * 2),
        (over("y", "=", "12024-01-01"), "2024-01-01", "2024-01-01"),
        (over("y", "<", "1582-10-15"), "1582-10-15", "1582-10-15"),
        (over("y", "=", "0102-01-01"), "0100-01-01", "0100-01-01"),
    ],
)
def test_a_file_whose_bounds_rule_it_out_is_skipped(
    predicate: Predicate, low: object, high: object
) -> None:
    (name,) = next(iter(columns(predicate)))
    assert skips(predicate, low, high, name)
    assert not skips(Not(IsNull((name,))), low, high, name)


@pytest.mark.parametrize(
    ("predicate", "low", "high"),
    [
        (over("t", "=", "2024-01-01T00:00:00.000999Z"), *["2024-01-01T00:00:00.000Z"] * 2),
        (over("s", "=", "abcd"), "ab", "abc"),
        (over("s", ">", "abc\ufffd"), "ab", "abc\ufffd"),
        (over("s", "=", "abc\U0001f600"), "ab", "abc\ufffd"),
        (over("d", ">", 9.0), 1.5, 2.5),  # NaN may hide, and lies above every number
        (over("f", "=", single(0.1)), 0.1, 0.1),
        (over("t", "=", "2024-01-01T08:00:00Z"), *["2024-01-01 00:00:00"] * 2),
        (over("n", "=", "12345678901234567.123"), *[12345678901234568.0] * 2),
        (over("i", "=", 5), "NaN", None),
        (over("i", "=", 5), 9, 1),  # bounds in the wrong order
        (over("i", "=", "five"), 1, 1),
        (over("i", "=", True), 0, 0),
        (over("y", "=", "2024-01-01"), "-0044-03-15", "12024-01-01"),
        (over("d", "=", math.nan), 1.0, 1.0),
        # The same days in the Julian calendar, in which Spark 2 wrote dates before 1582-10-15.
        (over("y", "=", "0099-12-30"), "0100-01-01", "0100-01-01"),
        (over("y", "=", "1582-10-14"), "1582-10-04", "1582-10-04"),
        (over("t", "=", "0099-12-30T01:02:03Z"), *["0100-01-01T01:02:03.000Z"] * 2),
        (over("z", "=", "1500-01-10 00:00:00"), *["1500-01-01T00:00:00.000"] * 2),
    ],
)
def test_a_bound_that_is_cut_rounded_or_strange_rules_nothing_out(
    predicate: Predicate, low: object, high: object
) -> None:
    (name,) = next(iter(columns(predicate)))
    assert not skips(predicate, low, high, name)


def test_a_file_of_nulls_matches_only_what_asks_for_null() -> None:
    assert not skips(IsNull(("i",)), None, None, "i", nulls=10)
    assert skips(over("i", "=", 1), None, None, "i", nulls=10)
    assert skips(Not(over("i", "=", 1)), None, None, "i", nulls=10)
    assert skips(Not(IsNull(("i",))), None, None, "i", nulls=10)


def test_a_file_without_nulls_is_skipped_by_who_asks_for_null() -> None:
    assert skips(IsNull(("i",)), 1, 2, "i", nulls=0)
    assert not skips(IsNull(("i",)), 1, 2, "i", nulls=3)


def test_a_comparison_with_null_is_neither_true_nor_false() -> None:
    row: dict[str, object] = {"i": None, "l": 1}
    unknown = over("i", "=", 1)
    assert not matches(unknown, row)
    assert not matches(Not(unknown), row)
    assert matches(Or((unknown, over("l", "=", 1))), row)
    assert not matches(And((unknown, over("l", "=", 1))), row)
    assert matches(Not(And((unknown, over("l", "=", 2)))), row)


def test_nothing_is_concluded_without_statistics() -> None:
    for predicate in (over("i", "=", 1), IsNull(("i",)), Not(IsNull(("i",)))):
        assert may_match(predicate, SCHEMA, {})


def test_nothing_is_concluded_about_a_column_that_is_not_there() -> None:
    assert may_match(over("nobody", "=", 1), SCHEMA, {}, {"nobody": 5}, {"nobody": 5})


def test_binary_and_nested_columns_have_no_bounds() -> None:
    table = parse_schema("x binary, a array<int>, v variant")
    for name in ("x", "a", "v"):
        assert may_match(over(name, "=", "q"), table, {}, {name: "a"}, {name: "b"}, {name: 0}, 5)
        assert not may_match(over(name, "=", "q"), table, {}, {}, {}, {name: 5}, 5)


def test_a_collated_column_has_no_bounds() -> None:
    collated = StructField("x", STRING, metadata={"__COLLATIONS": {"x": "UTF8_LCASE"}})
    assert may_match(over("x", "=", "B"), StructType((collated,)), {}, {"x": "a"}, {"x": "b"})


def test_statistics_of_structs_are_found_by_their_path() -> None:
    table = parse_schema("s struct<a: struct<b: int>>")
    deep = Compare(("s", "a", "b"), Operator.EQ, 5)
    low, high = {"s": {"a": {"b": 1}}}, {"s": {"a": {"b": 3}}}
    assert not may_match(deep, table, {}, low, high)
    assert may_match(deep, table, {}, {"s": {"a": 7}}, {"s": None})


def test_statistics_and_partition_values_go_by_physical_names() -> None:
    table = StructType(
        (
            StructField("p", STRING, metadata={MAPPING_NAME: "col-1"}),
            StructField("x", parse_schema("x int").fields[0].type, metadata={MAPPING_NAME: "p"}),
        )
    )
    assert not may_match(over("p", "=", "b"), table, {"col-1": "a"})
    assert may_match(over("p", "=", "a"), table, {"col-1": "a"})
    assert not may_match(over("x", "=", 5), table, {"col-1": "a"}, {"p": 1}, {"p": 2})


def test_an_empty_partition_value_is_null() -> None:
    for text in (None, ""):
        assert may_match(IsNull(("s",)), SCHEMA, {"s": text})
        assert not may_match(over("s", "=", ""), SCHEMA, {"s": text})


def test_a_partition_value_that_cannot_be_read_rules_nothing_out() -> None:
    assert may_match(over("i", "=", 5), SCHEMA, {"i": "many"})


def test_a_predicate_nested_beyond_reason_is_judged_without_harm() -> None:
    predicate: Predicate = over("i", "=", 5)
    for _ in range(400):
        predicate = Not(predicate)
    assert may_match(predicate, SCHEMA, {}, {"i": 1}, {"i": 2})
    assert columns(predicate) == {("i",)}


def test_columns_are_gathered_from_every_part() -> None:
    predicate = Or((And((over("i", "=", 1), Not(IsNull(("s",))))), In(("l",), (1,))))
    assert columns(predicate) == {("i",), ("s",), ("l",)}


@given(predicates_over(sorted(TYPES)))
@relaxed
def test_a_predicate_travels_as_json(predicate: Predicate) -> None:
    if "nan" in repr(predicate) or "inf" in repr(predicate):
        return  # JSON has no such numbers
    raw = msgspec.json.encode(predicate)
    again: Predicate = msgspec.json.decode(raw, type=Predicate)  # type: ignore[arg-type]
    assert msgspec.json.encode(again) == raw


# Statistics as text


def test_decimals_keep_their_digits() -> None:
    found = parse_statistics('{"numRecords":3,"minValues":{"n":12345678901234567.123}}')
    assert found.num_records == 3
    assert found.min_values == {"n": Decimal("12345678901234567.123")}


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"minValues":5}', "[" * 100_000])
def test_statistics_that_cannot_be_read_are_none(text: str | None) -> None:
    found = parse_statistics(text)
    assert found.num_records is None
    assert found.min_values is None


def test_bounds_alone_are_read() -> None:
    assert parse_values(b'{"a":1.50}') == {"a": Decimal("1.50")}
    assert parse_values(msgspec.Raw(b'{"a":1}')) == {"a": 1}
    assert parse_values(b"5") is None
    assert parse_values(None) is None


def test_one_pruner_serves_many_files() -> None:
    pruner = Pruner(over("i", "=", 5), SCHEMA)
    files = [Statistics(min_values={"i": n}, max_values={"i": n + 1}) for n in range(10)]
    kept = [n for n, file in enumerate(files) if pruner.may_match({}, file)]
    assert kept == [4, 5]


# Partition values


@given(st.sampled_from(sorted(TYPES)).flatmap(lambda n: st.tuples(st.just(n), VALUES[n])))
@example(("t", dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))))
@relaxed
def test_a_partition_value_comes_back(case: tuple[str, object]) -> None:
    name, value = case
    text = format_partition_value(value, TYPE[name])
    again = parse_partition_value(text, TYPE[name])
    if value == "":
        assert again is None
    elif isinstance(value, float) and math.isnan(value):
        assert isinstance(again, float)
        assert math.isnan(again)
    else:
        assert again == value
        assert type(again) is type(value)


def kind(name: str) -> DataType:
    return parse_schema(f"x {name}").fields[0].type


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        ("a/b=c%20 é", "string", "a/b=c%20 é"),
        (None, "string", None),
        ("", "string", None),
        (-5, "byte", "-5"),
        (Decimal("1.5"), "decimal(10,2)", "1.50"),
        (7, "decimal(10,2)", "7.00"),
        (True, "boolean", "true"),
        (1.5, "double", "1.5"),
        (math.inf, "double", "Infinity"),
        (-math.inf, "float", "-Infinity"),
        (math.nan, "float", "NaN"),
        (dt.date(1970, 1, 1), "date", "1970-01-01"),
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "timestamp", "1970-01-01T00:00:00.000000Z"),
        (dt.datetime(1970, 1, 1), "timestamp_ntz", "1970-01-01 00:00:00"),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 5), "timestamp_ntz", "1970-01-01 00:00:00.000005"),
        (b"\x01\x02\x03", "binary", "\x01\x02\x03"),
    ],
)
def test_a_partition_value_is_spelled_as_the_protocol_says(
    value: object, name: str, text: str | None
) -> None:
    assert format_partition_value(value, kind(name)) == text


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("1970-01-01 00:00:00", "timestamp", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("1970-01-01 00:00:00.1", "timestamp_ntz", dt.datetime(1970, 1, 1, 0, 0, 0, 100_000)),
        (
            "1970-01-01T02:00:00.123456+02:00",
            "timestamp",
            dt.datetime(1970, 1, 1, 0, 0, 0, 123_456, tzinfo=dt.UTC),
        ),
        ("TRUE", "boolean", True),
        ("1.0E10", "double", 1e10),
        ("1.5", "decimal(10,2)", Decimal("1.50")),
        ("\\u0001\\u00ff", "binary", b"\x01\xff"),
        ("", "long", None),
    ],
)
def test_other_writers_spellings_are_understood(text: str, name: str, value: object) -> None:
    assert parse_partition_value(text, kind(name)) == value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "long"),
        ("1_000", "long"),
        ("1.5", "integer"),
        ("300", "byte"),
        ("9" * 5000, "long"),
        ("yes", "boolean"),
        ("2024-13-01", "date"),
        ("20240101", "date"),
        ("2024-01-01 25:00:00", "timestamp"),
        ("-300000-01-01 00:00:00", "timestamp"),  # beyond 64 bits of microseconds
        ("300000-01-01 00:00:00", "timestamp_ntz"),
        ("1.234", "decimal(10,2)"),
        ("123456789", "decimal(10,2)"),
        ("NaN", "decimal(10,2)"),
        ("1e999", "decimal(10,2)"),
        ("many", "double"),
        ("5", "array<int>"),
        ("5", "variant"),
    ],
)
def test_a_partition_value_of_another_type_is_malformed(text: str, name: str) -> None:
    with pytest.raises(MalformedError, match="partition value"):
        parse_partition_value(text, kind(name))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("5", "long"),
        (True, "long"),
        (2**31, "integer"),
        (Decimal("1.234"), "decimal(10,2)"),
        (Decimal("NaN"), "decimal(10,2)"),
        (dt.datetime(2024, 1, 1), "date"),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "timestamp_ntz"),
        (b"\xff\xfe", "binary"),
        ([1], "array<int>"),
    ],
)
def test_a_value_of_another_type_is_refused_as_partition_value(value: object, name: str) -> None:
    with pytest.raises(InvalidDataError):
        format_partition_value(value, kind(name))


@given(st.text(max_size=30), st.sampled_from([*TYPES.values(), "binary", "byte", "decimal(38,38)"]))
@relaxed
def test_any_text_is_a_partition_value_or_malformed(text: str, name: str) -> None:
    try:
        value = parse_partition_value(text, kind(name))
    except MalformedError:
        return
    assert (value is None) == (text == "")


def test_a_decimal_of_every_width_fits() -> None:
    assert parse_partition_value("0." + "9" * 38, DecimalType(38, 38)) == Decimal("0." + "9" * 38)
