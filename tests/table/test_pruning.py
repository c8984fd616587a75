"""Pruning in columns leaves out nothing that pruning file by file would keep."""

import json
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.protocol.actions import AddFile, RemoveFile, Version, Wrapped
from headgate.protocol.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
)
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.log.replay import EMPTY, apply
from headgate.protocol.schema.types import StructType, from_json, to_json
from headgate.protocol.statistics import parse_statistics
from headgate.table import file_columns, pruning
from headgate.table.file_columns import file_table
from tests.kit.predicates import matches

SCHEMA: StructType = from_json(
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"Part","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"name","type":"string","nullable":true,"metadata":{}}]}'
)
NUMBERS = st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**63, 10**30])
COMPARISONS: st.SearchStrategy[Predicate] = st.builds(
    Compare,
    st.sampled_from([("id",), ("ID",), ("Part",), ("name",), ("no",)]),
    st.sampled_from(Operator),
    NUMBERS | st.sampled_from([0.5, True, "a"]),
) | st.builds(In, st.sampled_from([("id",), ("Part",)]), st.lists(NUMBERS, max_size=20).map(tuple))
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    COMPARISONS,
    lambda some: (
        st.builds(And, st.lists(some, max_size=3).map(tuple))
        | st.builds(Or, st.lists(some, max_size=3).map(tuple))
        | st.builds(Not, some)
    ),
    max_leaves=4,
)
VALUES = st.dictionaries(st.sampled_from(["id", "Part", "name"]), st.integers(-3, 3) | st.none())
ODD = VALUES | st.fixed_dictionaries({"id": st.sampled_from([1.0, "1", True, [1], {}, 2**63, 1e3])})
STATISTICS = st.fixed_dictionaries(
    {},
    optional={
        "numRecords": st.integers(0, 3),
        "minValues": VALUES,
        "maxValues": VALUES,
        "nullCount": VALUES,
        "else": st.none(),
    },
).map(json.dumps)
MISFITS = st.sampled_from(
    [
        None,
        "",
        " ",
        "{",
        "{}{}",
        "{}\n{}",
        '{"minValues":{"id":9}} ',
        '{"minValues":{"id":9},"minValues":{"id":0}}',
        '{"numRecords":"x","minValues":{"id":9},"maxValues":{"id":9}}',
        '{"minValues":\n{"id":9},\n"maxValues":{"id":9}}',
    ]
) | ODD.map(lambda values: json.dumps({"minValues": values, "maxValues": values}))


def files_of(stats: list[str | None]) -> pa.Table:
    adds = [
        AddFile(
            path=f"f{place}",
            partition_values={},
            size=1,
            modification_time=0,
            data_change=True,
            stats=text,
        )
        for place, text in enumerate(stats)
    ]
    return file_table(adds, stats=True)


@settings(deadline=None)
@given(
    st.lists(STATISTICS, max_size=8),
    st.lists(STATISTICS | MISFITS, max_size=4),
    PREDICATES,
)
def test_columns_and_files_one_by_one_come_to_the_same(
    plain: list[str | None], mixed: list[str | None], where: Predicate
) -> None:
    files = pa.concat_tables([files_of(plain), files_of(mixed)])
    pruner = Pruner(where, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "_MIN_FILES", 0)
        coarse = pruning.by_whole_numbers(files, where, SCHEMA, ())
    fine = pruning.by_statistics(coarse, pruner, with_partitions=False)
    assert fine.equals(pruning.by_statistics(files, pruner, with_partitions=False))


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (Compare(("id",), Operator.EQ, 15), [1]),
        (Compare(("id",), Operator.NE, 40), [0, 1, 2, 3]),
        (Compare(("id",), Operator.LT, 10), [0]),
        (Compare(("id",), Operator.LE, 10), [0, 1]),
        (Compare(("id",), Operator.GT, 29), [3, 4]),
        (Compare(("id",), Operator.GE, 29), [2, 3, 4]),
        (In(("id",), (5, 39, 99)), [0, 3]),
        (And((Compare(("id",), Operator.GE, 10), Compare(("id",), Operator.LE, 19))), [1]),
    ],
)
def test_of_many_files_those_whose_bounds_rule_them_out_are_left_out_in_columns(
    where: Predicate, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_MIN_FILES", 0)
    bounds = [(0, 9), (10, 19), (20, 29), (30, 39), (40, 40)]
    files = files_of(
        [json.dumps({"minValues": {"id": a}, "maxValues": {"id": b}}) for a, b in bounds]
    )
    found = pruning.by_whole_numbers(files, where, SCHEMA, ())
    assert found["path"].to_pylist() == [f"f{place}" for place in kept]


def test_a_column_that_the_table_is_partitioned_by_is_not_judged_by_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pruning, "_MIN_FILES", 0)
    files = files_of(['{"minValues":{"Part":9},"maxValues":{"Part":9}}'])
    where = Compare(("Part",), Operator.EQ, 1)
    assert pruning.by_whole_numbers(files, where, SCHEMA, {"Part"}).num_rows == 1


# Every optimised copy of a rule against the plain rule, over every case of a small domain

DOMAIN = [None, -1, 0, 1]
BOUNDS = [(low, high) for low in DOMAIN for high in DOMAIN]
COPIES = pruning._MIN_FILES // len(BOUNDS) + 1  # enough files that they are judged in columns
EVERY_COMPARISON: list[Predicate] = [
    *(Compare(("id",), operator, value) for operator in Operator for value in range(-2, 3)),
    *(In(("id",), values) for values in product(range(-2, 3), repeat=2)),
    In(("id",), ()),
]
EVERY_PREDICATE: list[Predicate] = [
    *EVERY_COMPARISON,
    *map(Not, EVERY_COMPARISON),
    *(And(pair) for pair in product(EVERY_COMPARISON[::3], repeat=2)),
    *(Or(pair) for pair in product(EVERY_COMPARISON[::7], repeat=2)),
]


def may_hold(low: int | None, high: int | None, where: Predicate) -> bool:
    """Ask every row that a file with these bounds may have."""
    first = -3 if low is None else low
    last = 3 if high is None else high
    rows = range(first, last + 1) if first <= last else range(-3, 4)  # a mistake says nothing
    return any(matches(where, {"id": value}) for value in rows)


def stats_of(low: int | None, high: int | None) -> str:
    return json.dumps(
        {
            "numRecords": 7,
            "minValues": {} if low is None else {"id": low},
            "maxValues": {} if high is None else {"id": high},
        }
    )


@pytest.mark.slow
def test_no_file_of_a_thousand_that_may_hold_a_matching_row_is_left_out_in_columns() -> None:
    files = files_of([stats_of(*bounds) for _ in range(COPIES) for bounds in BOUNDS])
    assert files.num_rows >= pruning._MIN_FILES
    for where in EVERY_PREDICATE:
        pruner = Pruner(where, SCHEMA)
        needed = {place for place, bounds in enumerate(BOUNDS) if may_hold(*bounds, where)}
        plain = {
            place
            for place, bounds in enumerate(BOUNDS)
            if pruner.may_match({}, parse_statistics(stats_of(*bounds)))
        }
        assert needed <= plain, where
        kept = pruning.by_whole_numbers(files, where, SCHEMA, ())["path"].to_pylist()
        places = {int(path[1:]) % len(BOUNDS) for path in kept}
        assert plain <= places, where
        assert len(kept) == COPIES * len(places), where


@pytest.mark.parametrize("operator", Operator)
def test_of_a_thousand_files_those_that_cannot_hold_the_value_are_left_out(
    operator: Operator,
) -> None:
    """The copy in columns must be of use, too: with both bounds known it is exact."""
    known = [(low, high) for low, high in BOUNDS if low is not None and high is not None]
    files = files_of([stats_of(*bounds) for _ in range(pruning._MIN_FILES) for bounds in known])
    for value in range(-2, 3):
        where = Compare(("id",), operator, value)
        kept = pruning.by_whole_numbers(files, where, SCHEMA, ())["path"].to_pylist()
        places = {int(path[1:]) % len(known) for path in kept}
        assert places == {place for place, bounds in enumerate(known) if may_hold(*bounds, where)}


def test_whole_numbers_are_judged_as_decimals_would_be() -> None:
    for where in EVERY_PREDICATE:
        whole = Pruner(where, SCHEMA)
        decimal = Pruner(where, from_json(to_json(SCHEMA).replace('"long"', '"decimal(10,0)"')))
        for low, high in BOUNDS:
            stats = parse_statistics(stats_of(low, high))
            assert whole.may_match({}, stats) == decimal.may_match({}, stats), (where, low, high)


PARTITIONS: list[dict[str, str | None]] = [
    {},
    *({"Part": value} for value in (None, "", "-1", "0", "1", "+1", "01", "x")),
    *({"name": "a", "Part": value} for value in (None, "0", "1")),
    *({"Part": value, "name": "b"} for value in (None, "0", "1")),
    {"Part": "0", "name": None},
]


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [True, False])
def test_partitions_judged_once_for_each_combination_come_to_the_same(mixed: bool) -> None:
    def files(values: list[dict[str, str | None]]) -> pa.Table:
        adds = [
            AddFile(
                path=f"f{place}",
                partition_values=one,
                size=1,
                modification_time=0,
                data_change=True,
            )
            for place, one in enumerate(values)
        ]
        return file_table(adds, stats=True)

    kinds = [[*PARTITIONS, *PARTITIONS]] if mixed else [[one] * 3 for one in PARTITIONS]
    columns = ["Part", "name"]
    wheres: list[Predicate] = [
        *(Compare(("Part",), operator, value) for operator in Operator for value in (-1, 0, 1)),
        *(Compare(("name",), operator, "a") for operator in Operator),
        IsNull(("Part",)),
        Not(IsNull(("name",))),
        Or((Compare(("Part",), Operator.EQ, 1), Compare(("name",), Operator.EQ, "a"))),
    ]
    for values in kinds:
        table = files(values)
        for where in wheres:
            pruner = Pruner(where, SCHEMA)
            kept = pruning.by_partitions(table, columns, pruner)["path"].to_pylist()
            # A value that the log does not give is null.
            plain = [{name: one.get(name) for name in columns} for one in values]
            assert kept == [f"f{n}" for n, one in enumerate(plain) if pruner.may_match(one)]


@pytest.mark.parametrize("at_most", [0, 2, 1000])
def test_files_overlaid_by_newer_actions_are_cut_out_or_filtered_alike(
    at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_columns, "_MAX_SLICES", at_most)
    table = files_of([None] * 5)
    for gone in product([False, True], repeat=5):
        removed = [
            Wrapped(remove=RemoveFile(path=f"f{place}", data_change=True))
            for place, is_gone in enumerate(gone)
            if is_gone
        ]
        state = apply(EMPTY, Version(0), removed)
        left = file_columns.without_overlaid(table, file_columns.key_column(table), state)
        assert left["path"].to_pylist() == [
            f"f{n}" for n, is_gone in enumerate(gone) if not is_gone
        ]
