"""Columns that we put beside a table's own for a while: no name of a user's column meets them."""

from __future__ import annotations

import pytest

from headgate.errors import UnsupportedFeatureError
from headgate.spark.merge import Clause, Do, When
from headgate.spark.schema_conversion import helper_column
from tests.spark.conftest import Water

# Names that stand for something to Spark, or look like ours.
NAMES = [
    "_metadata",
    "_METADATA",
    "__metadata",
    "file_path",
    "row_index",
    "__headgate_file",
    "__HEADGATE_ROW",
    "__headgate_hit",
    "__headgate_value_0",
    "__headgate_clause",
    "__headgate_in_source",
    "headgate_rows",
    "bucket",
    "bits",
    "matches",
]


@pytest.mark.parametrize("mode", ["copy-on-write", "deletion-vectors"])
def test_columns_of_any_name_are_changed_and_read(water: Water, mode: str) -> None:
    taken, names = set(), []
    for name in NAMES:  # a table has no two names that differ in case alone
        if name.lower() not in taken:
            taken.add(name.lower())
            names.append(name)
    columns = ", ".join(f"{name} string" for name in names)
    water.make(
        "t",
        f"id long, {columns}",
        ["file_path"],
        delta__enableDeletionVectors="true",
        headgate__dml=mode,
    )
    values = ", ".join(f"'{name}' {name}" for name in names)
    water.lake.append("t", water.frame(f"SELECT id, {values} FROM range(6)").coalesce(1))
    row = tuple(names)
    water.sql("DELETE FROM t WHERE id = 0 AND _metadata = '_metadata'")
    water.sql("UPDATE t SET _metadata = concat(__headgate_file, '!') WHERE id = 1")
    water.sql("UPDATE t SET bits = (SELECT max(bits) || '?' FROM t) WHERE id = 2")
    water.lake.merge(
        "t",
        water.frame(f"SELECT id, {values} FROM VALUES (3L), (9L) v(id)"),
        "target.id = source.id",
        [Clause(When.MATCHED, Do.DELETE), Clause(When.NOT_MATCHED, Do.INSERT)],
    )
    at = {name: n for n, name in enumerate(names)}
    changed = {1: ("_metadata", "__headgate_file!"), 2: ("bits", "bits?")}
    expected = []
    for id_ in (1, 2, 4, 5, 9):
        cells = list(row)
        if id_ in changed:
            name, value = changed[id_]
            cells[at[name]] = value
        expected.append((id_, *cells))
    assert water.rows() == expected
    assert water.sql("SELECT _metadata FROM t WHERE id = 1") == [("__headgate_file!",)]


@pytest.mark.parametrize("name", ["_METADATA", "_metadata"])
def test_rows_with_vectors_are_found_beside_a_column_named_metadata(
    water: Water, name: str
) -> None:
    water.make(
        "t",
        f"id long, {name} string",
        delta__enableDeletionVectors="true",
        headgate__dml="deletion-vectors",
    )
    water.lake.append("t", water.frame(f"SELECT id, 'x' {name} FROM range(5)").coalesce(1))
    water.lake.delete("t", "id < 2")
    water.lake.update("t", {name: "'y'"}, "id = 2")
    assert water.rows() == [(2, "y"), (3, "x"), (4, "x")]


def test_a_column_by_which_spark_counts_rows_is_not_read_as_the_count(water: Water) -> None:
    """Spark would give the position of each row instead of what is stored."""
    table = water.make("t", "id long, _tmp_metadata_row_index long")
    water.lake.append("t", water.frame("SELECT id, 7L _tmp_metadata_row_index FROM range(3)"))
    with pytest.raises(UnsupportedFeatureError, match="to_arrow"):
        water.lake.read("t")
    assert table.to_arrow().column(1).to_pylist() == [7, 7, 7]


def test_a_column_with_a_reserved_name_is_refused(water: Water) -> None:
    water.make("t", "id long")
    name = helper_column("FILE")
    rows = water.frame(f"SELECT 1L id, 2 `{name}`")
    with pytest.raises(UnsupportedFeatureError, match="reserved"):
        water.lake.append("t", rows, merge_schema=True)
    with pytest.raises(UnsupportedFeatureError, match="reserved"):
        water.lake.merge("t", rows, "false", [Clause(When.NOT_MATCHED, Do.INSERT)])
    assert water.rows() == []
