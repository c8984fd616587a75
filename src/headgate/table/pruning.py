"""File pruning over Arrow columns: drop the files that cannot hold a row matching a predicate.

Partition values are evaluated once for each combination. Bounds of integers are compared as whole
columns, which drops most of many files cheaply; the rest is evaluated file by file.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.protocol.actions import AddFile
from headgate.protocol.expressions.predicates import (
    And,
    Column,
    Compare,
    In,
    Literal,
    Operator,
    Predicate,
)
from headgate.protocol.expressions.pruner import Pruner
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.schema.types import StructType, find_all, is_whole
from headgate.protocol.statistics import parse_statistics
from headgate.table.parallel import in_parallel
from headgate.table.statistics_columns import read_columns

_BATCH: Final = 64 * 1024  # files whose statistics are Python objects at one time
_MIN_FILES: Final = 1000  # with fewer files, comparing columns saves nothing
_MAX_LITERALS: Final = 16  # with more literals, comparing columns saves nothing
_GREATEST: Final = 2**63 - 1
_ROW: Final = "\0row"  # not the name of a column


def by_partitions(files: pa.Table, names: Sequence[str], pruner: Pruner) -> pa.Table:
    """Drop files by their partition values, evaluating each combination of values once."""
    if not names or not files.num_rows:
        return files
    maps = files["partition_values"].chunks
    columns = [pa.chunked_array([_lookup(m, name) for m in maps], pa.string()) for name in names]
    rows = pa.array(range(files.num_rows))
    groups = (
        pa.table([*columns, rows], [*names, _ROW])
        .group_by(list(names), use_threads=False)
        .aggregate([(_ROW, "list")])
    )
    combinations = groups.select(list(names)).to_pylist()
    kept = [pruner.may_match(combination) for combination in combinations]
    if all(kept):
        return files
    kept_rows = groups[f"{_ROW}_list"].filter(pa.array(kept)).combine_chunks().flatten()
    return files.filter(pc.is_in(rows, value_set=kept_rows))


def _lookup(maps: pa.MapArray, name: str) -> pa.Array:
    """Look up a key in every map; fast if all maps have the same keys in the same order."""
    width = len(maps[0]) if len(maps) and maps[0].is_valid else 0
    start, stop = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    if width and not maps.null_count and stop - start == width * len(maps):
        keys = pa.FixedSizeListArray.from_arrays(maps.keys.slice(start, stop - start), width)
        place = next((i for i, key in enumerate(keys[0].as_py()) if key == name), None)
        if place is not None and pc.all(pc.equal(pc.list_element(keys, place), name)).as_py():
            items = pa.FixedSizeListArray.from_arrays(maps.items.slice(start, stop - start), width)
            return pc.list_element(items, place)
    return pc.map_lookup(maps, name, "first")


def by_whole_numbers(
    files: pa.Table, where: Predicate, schema: StructType, partitions: Collection[str]
) -> pa.Table:
    """Drop files by the bounds of integer columns: never one that `by_statistics` would keep."""
    tests = [test for test in _tests(where, schema) if test.name not in partitions]
    if not tests or files.num_rows < _MIN_FILES:
        return files
    kept = in_parallel(partial(_may_pass, tests), files["stats"].chunks)
    return files.filter(pa.chunked_array(kept, pa.bool_()))


@dataclass(frozen=True, slots=True)
class _Test:
    """A comparison of an integer column, by its name in statistics, with literals."""

    name: str
    operator: Operator
    literals: tuple[int, ...]

    def may_pass(self, low: pa.Array, high: pa.Array) -> pa.Array:
        """Return for each file whether a number between its bounds may pass; null if unknown."""
        may_pass = _MAY_PASS[self.operator]
        return reduce(pc.or_, (may_pass(low, high, literal) for literal in self.literals))


_MAY_PASS: Final[Mapping[Operator, Callable[[pa.Array, pa.Array, int], pa.Array]]] = {
    Operator.EQ: lambda low, high, n: pc.and_(pc.less_equal(low, n), pc.greater_equal(high, n)),
    Operator.NE: lambda low, high, n: pc.or_(pc.not_equal(low, n), pc.not_equal(high, n)),
    Operator.LT: lambda low, high, n: pc.less(low, n),
    Operator.LE: lambda low, high, n: pc.less_equal(low, n),
    Operator.GT: lambda low, high, n: pc.greater(high, n),
    Operator.GE: lambda low, high, n: pc.greater_equal(high, n),
}


def _tests(where: Predicate, schema: StructType) -> Iterator[_Test]:
    """Find the comparisons of integers that every matching row must pass."""
    pending = [where]
    while pending:
        match pending.pop():
            case And(items=items):
                pending.extend(items)
            case Compare(column=column, operator=operator, value=value):
                yield from _test(column, operator, (value,), schema)
            case In(column=column, values=values):
                yield from _test(column, Operator.EQ, values, schema)


def _test(
    column: Column, operator: Operator, values: Sequence[Literal], schema: StructType
) -> Iterator[_Test]:
    literals = tuple(n for n in values if type(n) is int and abs(n) <= _GREATEST)
    if len(column) != 1 or not 0 < len(literals) == len(values) <= _MAX_LITERALS:
        return
    fields = find_all(schema, column)
    if fields and is_whole(fields[0].type):
        yield _Test(physical_name(fields[0]), operator, literals)


def _may_pass(tests: Sequence[_Test], stats: pa.Array) -> pa.Array:
    """Return for each file whether it may have a row that passes all tests."""
    integers = pa.struct([(name, pa.int64()) for name in sorted({test.name for test in tests})])
    # The schema has every field, so that statistics `parse_statistics` rejects are rejected here.
    parsed = read_columns(
        stats,
        [
            ("numRecords", pa.int64()),
            ("nullCount", pa.struct([])),
            ("minValues", integers),
            ("maxValues", integers),
        ],
    )
    passed = pa.repeat(pa.scalar(True), len(stats))
    if parsed is None:
        return passed
    low, high = parsed["minValues"].combine_chunks(), parsed["maxValues"].combine_chunks()
    for test in tests:
        least, greatest = pc.struct_field(low, test.name), pc.struct_field(high, test.name)
        # Bounds in the wrong order are a writer's mistake: such a file is kept.
        may = pc.or_(test.may_pass(least, greatest), pc.greater(least, greatest))
        passed = pc.and_(passed, pc.fill_null(may, True))
    return passed


def by_statistics(files: pa.Table, pruner: Pruner, *, with_partitions: bool) -> pa.Table:
    """Drop files by their statistics, one batch at a time."""
    kept: list[int] = []
    for at in range(0, files.num_rows, _BATCH):
        batch = files.slice(at, _BATCH)
        texts = batch["stats"].to_pylist()
        maps = batch["partition_values"].to_pylist() if with_partitions else [()] * len(texts)
        kept.extend(
            at + row
            for row, (values, text) in enumerate(zip(maps, texts, strict=True))
            if pruner.may_match(dict(values or ()), parse_statistics(text))
        )
    return files if len(kept) == files.num_rows else files.take(pa.array(kept, pa.int64()))


def may_match(pruner: Pruner, add: AddFile) -> bool:
    """Return True if a file may hold a matching row."""
    return pruner.may_match(add.partition_values, parse_statistics(add.stats))
