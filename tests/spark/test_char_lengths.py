"""Texts of a declared length: `char(n)` and `varchar(n)` of tables that delta-spark made."""

from typing import Any

import pytest

from headgate.client.table import Table
from headgate.client.transaction import OperationInfo
from headgate.errors import InvalidDataError
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.char_lengths import DECLARED
from headgate.protocol.schema.types import StructField, StructType, to_json
from tests.spark.conftest import Water, listed, rows


def made(water: Water, **spelled: str) -> Table:
    """Make a table as delta-spark does: strings, and in the metadata what was declared."""
    types = {"varchar": "string", "char": "string"}
    schema = ["id long"]
    for name, text in spelled.items():
        plain = text
        for word, stands in types.items():
            for length in range(10):
                plain = plain.replace(f"{word}({length})", stands)
        schema.append(f"{name} {plain}")
    table = water.make(
        schema=", ".join(schema), delta__enableDeletionVectors="true", headgate__dml="copy-on-write"
    )
    base = table.snapshot()
    fields = tuple(
        StructField(f.name, f.type, f.nullable, {DECLARED: spelled[f.name]})
        if f.name in spelled
        else f
        for f in base.schema.fields
    )
    metadata = replaced(base.metadata, schema_string=to_json(StructType(fields)))
    table.commit(base, [metadata], OperationInfo("CREATE TABLE"))
    return table


def read(water: Water) -> list[tuple[Any, ...]]:
    return water.rows()


def test_texts_are_cut_and_filled_up_with_spaces_and_nothing_else(water: Water) -> None:
    table = made(water, v="varchar(3)", c="char(3)")
    water.lake.append("t", water.frame("SELECT 1 id, 'grü' v"))
    water.sql("INSERT INTO t VALUES (2, 'abc  ', 'x    '), (3, '', ''), (4, NULL, NULL)")
    assert read(water) == [(1, "grü", None), (2, "abc", "x  "), (3, "", "   "), (4, None, None)]
    water.lake.update("t", {"v": "concat(v, ' ')", "c": "'yy'"}, "id = 2")
    water.sql(
        "MERGE INTO t USING (SELECT 3L id UNION ALL SELECT 5L) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET c = 'z' WHEN NOT MATCHED THEN INSERT (id, c) VALUES (5, 'n')"
    )
    assert read(water)[1:] == [
        (2, "abc", "yy "), (3, "", "z  "), (4, None, None), (5, None, "n  "),
    ]  # fmt: skip
    kept, version = listed(table), water.session.table("t").version
    for attempt, says in {
        "INSERT INTO t (id, v) VALUES (8, 'ok'), (9, 'abcd')": r'v, which is varchar.*"id":9',
        "INSERT INTO t (id, c) VALUES (9, 'abcd')": r"column c, which is char\(3\)",
        # Only spaces at the end are cut.
        "INSERT INTO t (id, v) VALUES (9, '  ab')": "too long for column v",
        "INSERT INTO t (id, c) VALUES (9, '  ab ')": "too long for column c",
        "UPDATE t SET v = 'grüne' WHERE id = 2": r"too long for column v",
        "MERGE INTO t USING (SELECT 5L id) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET c = 'long'": "too long for column c",
    }.items():
        with pytest.raises(InvalidDataError, match=says):
            water.lake.sql(attempt)
    assert (listed(table), water.session.table("t").version) == (kept, version)


def test_texts_within_structs_arrays_and_maps_are_kept_to_their_lengths(water: Water) -> None:
    made(
        water, s="struct<a: varchar(2), b: int>", xs="array<char(2)>", m="map<char(1), varchar(2)>"
    )
    water.lake.append(
        "t",
        water.frame(
            "SELECT 1 id, named_struct('a', 'ab ', 'b', 1) s, array('x', NULL) xs, map('k ', 'v') m"
            " UNION ALL SELECT 2, NULL, NULL, NULL"
        ),
    )
    shown = water.lake.read("t").selectExpr("id", "s.a", "s.b", "xs", "m['k']")
    assert rows(shown) == [(1, "ab", 1, ["x ", None], "v"), (2, None, None, None, None)]
    for given, what in {
        "named_struct('a', 'abc', 'b', 1) s": r"column s\.a, which is varchar\(2\)",
        "array('x', 'xyz') xs": r"column xs\.element",
        "map('kk', 'v') m": r"column m\.key",
        "map('k', 'abc') m": r"column m\.value",
    }.items():
        with pytest.raises(InvalidDataError, match=what):
            water.lake.append("t", water.frame(f"SELECT 3 id, {given}"))
