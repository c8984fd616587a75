"""Tables written by delta-spark are read with the rows Spark itself read."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.client.arrow_io import to_arrow, to_batches
from headgate.data.arrow_types import arrow_schema
from headgate.protocol.actions import Version
from headgate.protocol.expressions.predicates import Compare, IsNull, Not, Operator
from headgate.table.snapshot_loader import load_path
from tests.table.variant_values import decoded

Located = Callable[[str], str]
TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Kept:
    """Rows of one version of one table, as Spark read them."""

    case: str
    version: int
    sort_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.case}-v{self.version}"

    @property
    def rows(self) -> pa.Table:
        return pq.read_table(TABLES / self.case / "expected" / f"v{self.version}.parquet")


@cache
def about(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TABLES / case / "case.json").read_text())
    return found


def cases() -> list[str]:
    return sorted(path.parent.name for path in TABLES.glob("*/case.json"))


def all_kept() -> Iterator[Kept]:
    for case in cases():
        case_file = about(case)
        old = {v["version"]: v["sort_by"] for v in case_file.get("versions_of_old_schema", [])}
        for version in case_file["versions"]:
            if version not in old:
                yield Kept(case, version, tuple(case_file["sort_by"]))
        for version, sort_by in old.items():
            yield Kept(case, version, tuple(sort_by))


@pytest.fixture(scope="module")
def located(tmp_path_factory: pytest.TempPathFactory) -> Located:
    @cache
    def locate(case: str) -> str:
        table = TABLES / case / "table"
        placeholder = about(case).get("substitute")
        if placeholder is None:
            return str(table)
        copy = tmp_path_factory.mktemp(case) / "table"
        shutil.copytree(table, copy)
        for file in [*copy.glob("_delta_log/*.json"), *copy.glob("_delta_log/*.crc")]:
            file.write_text(file.read_text().replace(placeholder, str(copy).lstrip("/")))
        return str(copy)

    return locate


def in_order(rows: pa.Table, sort_by: tuple[str, ...]) -> pa.Table:
    keys = rows.select(list(sort_by)).to_pylist()
    marked = [[(value is not None, value) for value in key.values()] for key in keys]
    order = sorted(range(rows.num_rows), key=marked.__getitem__)
    return rows.take(pa.array(order, pa.int64()))


def lines_of(rows: pa.Table) -> list[str]:
    # NaN is not equal to itself, and -0.0 is equal to 0.0; their texts are neither.
    return [str(row) for row in rows.to_pylist()]


def plain(of: pa.DataType) -> pa.DataType:
    """Return a type without nullability, which readers give differently."""
    if pa.types.is_struct(of):
        return pa.struct([(f.name, plain(f.type)) for f in of.fields])
    if pa.types.is_map(of):
        return pa.map_(plain(of.key_type), plain(of.item_type))
    if pa.types.is_list(of):
        return pa.list_(plain(of.value_type))
    return of


def as_spark_kept_them(rows: pa.Table, case: str) -> pa.Table:
    """Variants were kept as JSON, which Arrow has no type for."""
    if "variant_as_json" not in about(case):
        return rows
    listed = rows.to_pylist()
    for row in listed:
        for holder in (row, row["s"]):
            if holder is not None and holder["v"] is not None:
                holder["v"] = text_of(decoded(holder["v"]["metadata"], holder["v"]["value"]))
    return pa.Table.from_pylist(listed)


def text_of(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def expected_rows(kept: Kept) -> pa.Table:
    if "variant_as_json" not in about(kept.case):
        return kept.rows
    listed = kept.rows.to_pylist()
    for row in listed:
        for holder in (row, row["s"]):
            if holder is not None and holder["v"] is not None:
                holder["v"] = text_of(json.loads(holder["v"]))
    return pa.Table.from_pylist(listed)


def each_kept() -> list[Any]:
    # A hundred thousand rows take Python a while to compare.
    slow = {"dv_containers": [pytest.mark.slow]}
    return [pytest.param(k, id=str(k), marks=slow.get(k.case, [])) for k in all_kept()]


def each_case() -> list[Any]:
    slow = {"dv_containers": [pytest.mark.slow], "types": [pytest.mark.slow]}
    return [pytest.param(case, marks=slow.get(case, [])) for case in cases()]


@pytest.mark.parametrize("kept", each_kept())
def test_rows_are_those_that_spark_read(kept: Kept, located: Located) -> None:
    snapshot = load_path(located(kept.case), version=Version(kept.version))
    read = to_arrow(snapshot)
    read.validate(full=True)
    assert read.schema == arrow_schema(snapshot.schema)
    found, wanted = in_order(as_spark_kept_them(read, kept.case), kept.sort_by), expected_rows(kept)
    assert found.schema.names == wanted.schema.names
    assert [plain(t) for t in found.schema.types] == [plain(t) for t in wanted.schema.types]
    assert lines_of(found) == lines_of(wanted)


@pytest.mark.parametrize("case", each_case())
def test_each_column_alone_is_the_same_as_among_all(case: str, located: Located) -> None:
    snapshot = load_path(located(case))
    whole = to_arrow(snapshot)
    for name in whole.schema.names:
        assert lines_of(to_arrow(snapshot, [name.upper()])) == lines_of(whole.select([name]))


@pytest.mark.parametrize("case", each_case())
def test_a_filter_gives_the_rows_it_names_and_no_others(case: str, located: Located) -> None:
    snapshot = load_path(located(case))
    whole = to_arrow(snapshot)
    for name in whole.schema.names:
        is_null = IsNull((name,))
        values = whole.column(name)
        assert to_arrow(snapshot, where=is_null).num_rows == values.null_count
        there = to_arrow(snapshot, where=Not(is_null))
        assert there.num_rows == whole.num_rows - values.null_count
        if pa.types.is_integer(values.type) and there.num_rows:
            middle = sorted(there.column(name).to_pylist())[there.num_rows // 2]
            below = to_arrow(snapshot, where=Compare((name,), Operator.LT, middle))
            assert lines_of(below) == lines_of(whole.filter(pc.less(values, middle)))


@pytest.mark.parametrize("case", ["dv_relative", "types", "empty", "multipart"])
def test_batches_hold_the_same_rows_as_the_table(case: str, located: Located) -> None:
    snapshot = load_path(located(case))
    whole = to_arrow(snapshot)
    batches = list(to_batches(snapshot))
    assert lines_of(pa.Table.from_batches(batches, whole.schema)) == lines_of(whole)
    for limit in (0, 1, whole.num_rows, whole.num_rows + 1):
        assert lines_of(to_arrow(snapshot, limit=limit)) == lines_of(whole.slice(0, limit))
