"""Which queries ask for nothing but the number of a table's rows."""

import pytest

from headgate.sql.queries import find_count
from headgate.sql.statements import Piece


@pytest.mark.parametrize(
    ("text", "table", "column"),
    [
        ("SELECT count(*) FROM t", "t", "count(1)"),
        ("select Count ( 1 ) n from a.b.`c d` as x", "a.b.c d", "n"),
        ("SELECT count(*) AS `from` FROM t VERSION AS OF 3", "t", "from"),
        ("SELECT count(*) FROM t TIMESTAMP AS OF '2026-01-01' x -- all", "t", "count(1)"),
    ],
)
def test_a_count_of_all_rows_is_found(text: str, table: str, column: str) -> None:
    found = find_count(text, Piece(text, 0))
    assert found is not None
    reference, named = found
    assert (".".join(reference.name.parts), named) == (table, column)
    assert (reference.as_of is not None) == ("AS OF" in text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(id) FROM t",
        "SELECT count(DISTINCT *) FROM t",
        "SELECT count(*), 1 FROM t",
        "SELECT count(*) + 1 FROM t",
        "SELECT count(*) FILTER (WHERE id > 1) FROM t",
        "SELECT count(*) OVER () FROM t",
        "SELECT DISTINCT count(*) FROM t",
        "SELECT count(*) FROM t WHERE id > 1",
        "SELECT count(*) FROM t, u",
        "SELECT count(*) FROM t JOIN u",
        "SELECT count(*) FROM t GROUP BY id",
        "SELECT count(*) FROM t HAVING count(*) > 1",
        "SELECT count(*) FROM t LIMIT 0",
        "SELECT count(*) FROM t TABLESAMPLE (1 ROWS)",
        "SELECT count(*) FROM t UNION ALL SELECT 1",
        "SELECT count(*) FROM (SELECT 1)",
        "SELECT count(*) FROM range(3)",
        "SELECT count(*) FROM t |> WHERE true",
        "SELECT count(*) FROM t LATERAL VIEW explode(a) x",
        "SELECT count(*) FROM IDENTIFIER('t')",
        "SELECT count(*)",
        "WITH t AS (SELECT 1) SELECT count(*) FROM t",
        "SELECT `count`(*) FROM t",
    ],
)
def test_every_other_query_is_sparks(text: str) -> None:
    assert find_count(text, Piece(text, 0)) is None
