"""A statement of SQL resolves each of its tables once."""

from __future__ import annotations

import pytest

from tests.kit.resolve_count import count_resolves
from tests.spark.conftest import Water

T, S, U = "main.default.t", "main.default.s", "main.default.u"


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("INSERT INTO t VALUES (9, 'x')", [T]),
        ("INSERT INTO t SELECT id + 10, v FROM s", [T, S]),
        ("INSERT OVERWRITE t SELECT s.id, u.v FROM s JOIN u ON s.id = u.id", [T, S, U]),
        ("INSERT INTO t SELECT id + 10, v FROM t", [T]),
        ("UPDATE t SET v = 'x' WHERE id IN (SELECT id FROM s)", [T, S]),
        ("UPDATE t SET v = (SELECT max(v) FROM s) WHERE id < (SELECT max(id) FROM s)", [T, S]),
        ("DELETE FROM t WHERE id = 1", [T]),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *", [T, S]),
        (
            "MERGE INTO t USING (SELECT s.id, u.v FROM s JOIN u ON s.id = u.id) AS n"
            " ON t.id = n.id WHEN NOT MATCHED THEN INSERT *",
            [T, S, U],
        ),
        ("SELECT s.v, u.v FROM s JOIN u ON s.id = u.id", [S, U]),
        ("SELECT a.v FROM s a JOIN s b ON a.id = b.id", [S]),
        ("SELECT count(*) FROM s", [S]),
        ("SELECT id FROM s VERSION AS OF 1", [S]),
        ("CREATE OR REPLACE TABLE t (id long)", [T]),
        ("CREATE OR REPLACE TABLE t AS SELECT * FROM s", [T, S]),
        ("ALTER TABLE t SET TBLPROPERTIES ('team' = 'sales')", [T]),
        ("ALTER TABLE t ADD COLUMNS (w long)", [T]),
        ("COMMENT ON TABLE t IS 'what was sold'", [T]),
        ("DROP TABLE t", [T]),
        ("DESCRIBE TABLE EXTENDED t", [T]),
        ("DESCRIBE DETAIL t", [T]),
        ("DESCRIBE HISTORY t", [T]),
        ("SHOW CREATE TABLE t", [T]),
    ],
)
def test_a_statement_resolves_each_table_once(
    text: str, tables: list[str], water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "s", "u"):
        water.make(name)
        water.lake.append(name, water.frame("VALUES (1L, 'a'), (2L, 'b') AS t(id, v)"))
    resolved = count_resolves(monkeypatch, water.catalog)
    water.sql(text)
    assert sorted(resolved) == sorted(tables)


def test_a_read_and_an_append_of_a_lake_resolve_the_table_once(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    water.make()
    resolved = count_resolves(monkeypatch, water.catalog)
    water.lake.append("t", water.frame("VALUES (1L, 'a') AS t(id, v)"))
    assert resolved == [T]
    resolved.clear()
    assert water.rows() == [(1, "a")]
    assert resolved == [T]
