"""Pruning in columns leaves out nothing that pruning file by file would keep."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.log import pruning
from headgate.log.file_columns import file_table
from headgate.protocol.actions import AddFile
from headgate.protocol.predicates import And, Compare, In, Not, Operator, Or, Predicate
from headgate.protocol.pruning import Pruner
from headgate.protocol.schema import StructType, from_json

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
        patch.setattr(pruning, "_MANY", 0)
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
    monkeypatch.setattr(pruning, "_MANY", 0)
    bounds = [(0, 9), (10, 19), (20, 29), (30, 39), (40, 40)]
    files = files_of(
        [json.dumps({"minValues": {"id": a}, "maxValues": {"id": b}}) for a, b in bounds]
    )
    found = pruning.by_whole_numbers(files, where, SCHEMA, ())
    assert found["path"].to_pylist() == [f"f{place}" for place in kept]


def test_a_column_that_the_table_is_partitioned_by_is_not_judged_by_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pruning, "_MANY", 0)
    files = files_of(['{"minValues":{"Part":9},"maxValues":{"Part":9}}'])
    where = Compare(("Part",), Operator.EQ, 1)
    assert pruning.by_whole_numbers(files, where, SCHEMA, {"Part"}).num_rows == 1
