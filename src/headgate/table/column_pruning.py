"""Files in columns against a predicate: which of them may hold a matching row.

Partition values are judged once for each combination. Bounds of whole numbers are compared in
columns, which leaves out most of many files cheaply; what remains is judged file by file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from headgate.protocol.actions import AddFile
from headgate.protocol.expressions.file_pruning import Pruner
from headgate.protocol.expressions.predicates import (
    And,
    Column,
    Compare,
    In,
    Literal,
    Operator,
    Predicate,
)
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.schema.types import StructType, find_all, is_whole
from headgate.protocol.statistics import parse_statistics
from headgate.table.parallel import in_parallel
from headgate.table.statistics_columns import read_columns

_JUDGED: Final = 64 * 1024  # statistics turned into objects at a time
_MANY: Final = 1000  # fewer files are as soon judged one by one
_LITERALS: Final = 16  # more of them are as soon looked up file by file
_GREATEST: Final = 2**63 - 1


def by_partitions(files: pa.Table, names: Sequence[str], pruner: Pruner) -> pa.Table:
    """Leave out files by their partition values, judging each combination of values once."""
    if not names or not files.num_rows:
        return files
    columns = [_partition_column(files["partition_values"], name) for name in names]
    values = pa.table(columns, list(names))
    distinct = values.group_by(list(names)).aggregate([])
    kept = [combination for combination in distinct.to_pylist() if pruner.may_match(combination)]
    if len(kept) == distinct.num_rows:
        return files
    return files.filter(_is_among(values, kept))


def _partition_column(maps: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    chunks = [_mapped(chunk, name) for chunk in maps.chunks]
    return pa.chunked_array(chunks, pa.string())


def _mapped(maps: pa.MapArray, name: str) -> pa.Array:
    """Look a key up in every map; nearly always all have the same keys in the same order."""
    width = len(maps[0]) if len(maps) and maps[0].is_valid else 0
    start, stop = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    if width and not maps.null_count and stop - start == width * len(maps):
        keys = pa.FixedSizeListArray.from_arrays(maps.keys.slice(start, stop - start), width)
        place = next((i for i, key in enumerate(keys[0].as_py()) if key == name), None)
        if place is not None and pc.all(pc.equal(pc.list_element(keys, place), name)).as_py():
            items = pa.FixedSizeListArray.from_arrays(maps.items.slice(start, stop - start), width)
            return pc.list_element(items, place)
    return pc.map_lookup(maps, name, "first")


def _is_among(values: pa.Table, kept: Sequence[Mapping[str, str | None]]) -> pa.ChunkedArray:
    # Lengths before values and a mark for null: two combinations never come to one text.
    def spelled(value: str | None) -> str:
        return "-" if value is None else f"{len(value.encode())}:{value}"

    texts = [
        pc.if_else(
            pc.is_null(column),
            "-",
            pc.binary_join_element_wise(pc.binary_length(column).cast(pa.string()), column, ":"),
        )
        for column in values.columns
    ]
    wanted = ["".join(map(spelled, combination.values())) for combination in kept]
    joined = pc.binary_join_element_wise(*texts, "")
    return pc.is_in(joined, value_set=pa.array(wanted, pa.string()))


def by_whole_numbers(
    files: pa.Table, where: Predicate, schema: StructType, partitions: Collection[str]
) -> pa.Table:
    """Leave out files by bounds of whole numbers: never one that `by_statistics` would keep."""
    tests = [test for test in _tests(where, schema) if test.name not in partitions]
    if not tests or files.num_rows < _MANY:
        return files
    kept = in_parallel(partial(_may_pass, tests), files["stats"].chunks)
    return files.filter(pa.chunked_array(kept, pa.bool_()))


@dataclass(frozen=True, slots=True)
class _Test:
    """A whole number against literals, by the name that statistics give it."""

    name: str
    operator: Operator
    literals: tuple[int, ...]

    def may_pass(self, low: pa.Array, high: pa.Array) -> pa.Array:
        """Say for each file whether a number between its bounds may pass; null if not known."""
        first = self.literals[0]
        match self.operator:
            case Operator.EQ:
                within = [
                    pc.and_(pc.less_equal(low, literal), pc.greater_equal(high, literal))
                    for literal in self.literals
                ]
                return reduce(pc.or_, within)
            case Operator.NE:
                return pc.or_(pc.not_equal(low, first), pc.not_equal(high, first))
            case Operator.LT:
                return pc.less(low, first)
            case Operator.LE:
                return pc.less_equal(low, first)
            case Operator.GT:
                return pc.greater(high, first)
            case Operator.GE:
                return pc.greater_equal(high, first)
            case _:
                assert_never(self.operator)


def _tests(where: Predicate, schema: StructType) -> Iterator[_Test]:
    """Find comparisons of whole numbers that every matching row must pass."""
    waiting = [where]
    while waiting:
        match waiting.pop():
            case And(items=items):
                waiting.extend(items)
            case Compare(column=column, operator=operator, value=value):
                yield from _test(column, operator, (value,), schema)
            case In(column=column, values=values):
                yield from _test(column, Operator.EQ, values, schema)


def _test(
    column: Column, operator: Operator, values: Sequence[Literal], schema: StructType
) -> Iterator[_Test]:
    literals = tuple(n for n in values if type(n) is int and abs(n) <= _GREATEST)
    if len(column) != 1 or not 0 < len(literals) == len(values) <= _LITERALS:
        return
    fields = find_all(schema, column)
    if fields and is_whole(fields[0].type):
        yield _Test(physical_name(fields[0]), operator, literals)


def _may_pass(tests: Sequence[_Test], stats: pa.Array) -> pa.Array:
    everything = pa.repeat(pa.scalar(True), len(stats))
    bounds = _bounds(stats, {test.name for test in tests})
    if bounds is None:
        return everything
    low, high = bounds
    passed = everything
    for test in tests:
        least, greatest = pc.struct_field(low, test.name), pc.struct_field(high, test.name)
        # Bounds the wrong way round are somebody's mistake: nothing is concluded from them.
        may = pc.or_(test.may_pass(least, greatest), pc.greater(least, greatest))
        passed = pc.and_(passed, pc.fill_null(may, True))
    return passed


def _bounds(
    stats: pa.Array, names: Collection[str]
) -> tuple[pa.StructArray, pa.StructArray] | None:
    """Read bounds of whole numbers, those of each file in its row; None if that goes wrong.

    It does where one text is not the JSON expected, or a bound is no number of 64 bits.
    """
    whole = pa.struct([(name, pa.int64()) for name in sorted(names)])
    # All of the schema is checked, so that what cannot be read elsewhere is not read here.
    found = read_columns(
        stats,
        [
            ("numRecords", pa.int64()),
            ("tightBounds", pa.bool_()),
            ("nullCount", pa.struct([])),
            ("minValues", whole),
            ("maxValues", whole),
        ],
    )
    if found is None:
        return None
    return found["minValues"].combine_chunks(), found["maxValues"].combine_chunks()


def by_statistics(files: pa.Table, pruner: Pruner, *, with_partitions: bool) -> pa.Table:
    """Leave out files by their statistics, some at a time."""
    kept: list[int] = []
    for at in range(0, files.num_rows, _JUDGED):
        some = files.slice(at, _JUDGED)
        texts = some["stats"].to_pylist()
        maps = some["partition_values"].to_pylist() if with_partitions else [()] * len(texts)
        kept.extend(
            at + row
            for row, (values, text) in enumerate(zip(maps, texts, strict=True))
            if _may_match_file(pruner, dict(values or ()), text)
        )
    return files if len(kept) == files.num_rows else files.take(pa.array(kept, pa.int64()))


def may_match(pruner: Pruner, add: AddFile) -> bool:
    """Say whether one file may hold a matching row."""
    return _may_match_file(pruner, add.partition_values, add.stats)


def _may_match_file(
    pruner: Pruner, partition_values: Mapping[str, str | None], stats: str | None
) -> bool:
    found = parse_statistics(stats)
    return pruner.may_match(
        partition_values, found.min_values, found.max_values, found.null_count, found.num_records
    )
