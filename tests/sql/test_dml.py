"""INSERT, UPDATE, DELETE, MERGE: what is read out of them, in the user's own words."""

import pytest

from headgate.errors import SyntaxRefusedError
from headgate.sql.script import parse
from headgate.sql.statements import (
    Assignment,
    Delete,
    Do,
    Insert,
    MergeClause,
    MergeInto,
    Name,
    PartitionValue,
    Piece,
    TableReference,
    Update,
    Values,
    When,
)


def at(script: str, text: str, nth: int = 0) -> Piece:
    """Give a part of a script as a piece of it."""
    start = -1
    for _ in range(nth + 1):
        start = script.index(text, start + 1)
    return Piece(text, start)


def name(script: str, text: str, nth: int = 0) -> Name:
    return Name(tuple(part.strip("`") for part in text.split(".")), at(script, text, nth))


def insert(text: str) -> Insert:
    (statement,) = parse(text)
    assert isinstance(statement, Insert)
    return statement


@pytest.mark.parametrize("keyword", ["VALUES", "VALUE", "values"])
def test_rows_written_out_are_read_cell_by_cell(keyword: str) -> None:
    text = f"INSERT INTO sales.t {keyword} (1, 'a,b'), (f(2, 3), DEFAULT)"
    found = insert(text)
    assert found.target == name(text, "sales.t")
    assert (found.overwrites, found.replace_where) == (False, None)
    assert found.source == Values(
        at(text, "(1, 'a,b'), (f(2, 3), DEFAULT)"),
        ((at(text, "1"), at(text, "'a,b'")), (at(text, "f(2, 3)"), at(text, "DEFAULT"))),
    )


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("INSERT INTO t VALUES 1, 2", [["1"], ["2"]]),
        ("INSERT INTO t VALUES (-1), (NULL)", [["-1"], ["NULL"]]),
        ("INSERT INTO t VALUES ((SELECT max(a) FROM u), CASE WHEN b THEN 1 END)", None),
        ("INSERT INTO t VALUES (array(1, 2)[0], x -> y)", [["array(1, 2)[0]", "x -> y"]]),
    ],
)
def test_a_cell_is_any_expression(text: str, rows: list[list[str]] | None) -> None:
    source = insert(text).source
    assert isinstance(source, Values)
    if rows is None:
        rows = [["(SELECT max(a) FROM u)", "CASE WHEN b THEN 1 END"]]
    assert [[cell.text for cell in row] for row in source.rows] == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM u",
        "(SELECT * FROM u)",
        "WITH c AS (SELECT 1) SELECT * FROM c",
        "FROM u SELECT a",
        "TABLE u",
        "VALUES (1) AS v(a)",
        "VALUES (1) UNION VALUES (2)",
        "VALUES struct(1, 2)",
    ],
)
def test_what_is_more_than_rows_is_a_query(query: str) -> None:
    text = f"INSERT INTO TABLE t {query}"
    assert insert(text).source == at(text, query)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT OVERWRITE t SELECT 1", {"overwrites": True}),
        ("INSERT OVERWRITE TABLE t SELECT 1", {"overwrites": True}),
        ("INSERT INTO t (a, `b c`) SELECT 1, 2", {"columns": ("a", "b c")}),
        ("INSERT INTO t BY NAME SELECT 1 AS a", {"by_name": True}),
        ("INSERT WITH SCHEMA EVOLUTION INTO t SELECT 1", {"evolves_schema": True}),
        ("INSERT INTO t WITH SCHEMA EVOLUTION SELECT 1", {"evolves_schema": True}),
        (
            "INSERT OVERWRITE t PARTITION (d = '2026-01-01', h) SELECT 1",
            {
                "overwrites": True,
                "partition": (PartitionValue("d", Piece("'2026-01-01'", 34)),),
            },
        ),
        (
            "INSERT INTO t REPLACE WHERE d = 5 AND x IN (1, 2) SELECT * FROM u",
            {"overwrites": False, "replace_where": Piece("d = 5 AND x IN (1, 2)", 28)},
        ),
    ],
)
def test_an_insert_says_how_rows_go_in(text: str, expected: dict[str, object]) -> None:
    found = insert(text)
    assert {key: getattr(found, key) for key in expected} == expected


def test_an_update_keeps_its_expressions_as_text() -> None:
    text = "UPDATE a.t AS x SET x.a = b + 1, s.c = 'O''Brien' WHERE id IN (SELECT id FROM u)"
    assert parse(text) == (
        Update(
            name(text, "a.t"),
            "x",
            (
                Assignment(name(text, "x.a"), at(text, "b + 1")),
                Assignment(name(text, "s.c"), at(text, "'O''Brien'")),
            ),
            at(text, "id IN (SELECT id FROM u)"),
        ),
    )


def test_columns_named_like_keywords_do_not_end_an_expression() -> None:
    text = "UPDATE t SET where = where + 1, t.when = t.where WHERE where > 1"
    (found,) = parse(text)
    assert isinstance(found, Update)
    assert [a.value.text for a in found.assignments] == ["where + 1", "t.where"]
    assert found.condition == at(text, "where > 1")


@pytest.mark.parametrize(
    ("text", "alias", "condition"),
    [
        ("DELETE FROM t", None, None),
        ("DELETE FROM t x", "x", None),
        ("DELETE FROM t WHERE a = 1 -- the end", None, "a = 1"),
        ("DELETE FROM t AS `w h` WHERE NOT (a <=> b)", "w h", "NOT (a <=> b)"),
        ("TRUNCATE TABLE t", None, None),
    ],
)
def test_a_delete_has_a_condition_or_none(
    text: str, alias: str | None, condition: str | None
) -> None:
    (found,) = parse(text)
    assert isinstance(found, Delete)
    assert str(found.target) == "t"
    assert found.alias == alias
    assert found.condition == (None if condition is None else at(text, condition))


def test_a_merge_keeps_its_clauses_in_order() -> None:
    text = """MERGE WITH SCHEMA EVOLUTION INTO a.t AS x USING ( SELECT * FROM s ) y
        ON x.id = y.id AND CASE WHEN x.b THEN true END
        WHEN MATCHED AND x.v = CASE WHEN y.v THEN 2 END THEN UPDATE SET v = y.v, x.w = 1 + 1
        WHEN MATCHED AND y.gone THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED AND y.v > 0 THEN INSERT (id, v) VALUES (y.id, f(y.v, 2))
        WHEN NOT MATCHED BY TARGET THEN INSERT *
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 0"""
    assert parse(text) == (
        MergeInto(
            name(text, "a.t"),
            "x",
            at(text, "SELECT * FROM s"),
            "y",
            at(text, "x.id = y.id AND CASE WHEN x.b THEN true END"),
            (
                MergeClause(
                    When.MATCHED,
                    at(text, "x.v = CASE WHEN y.v THEN 2 END"),
                    Do.UPDATE,
                    (Name(("v",), Piece("v", text.index("v = y.v,"))), name(text, "x.w")),
                    (Piece("y.v", text.index("y.v, x.w")), at(text, "1 + 1")),
                ),
                MergeClause(When.MATCHED, at(text, "y.gone"), Do.DELETE),
                MergeClause(When.MATCHED, None, Do.UPDATE),
                MergeClause(
                    When.NOT_MATCHED,
                    at(text, "y.v > 0"),
                    Do.INSERT,
                    (
                        Name(("id",), Piece("id", text.index("(id,") + 1)),
                        Name(("v",), Piece("v", text.index(", v)") + 2)),
                    ),
                    (at(text, "y.id", 1), at(text, "f(y.v, 2)")),
                ),
                MergeClause(When.NOT_MATCHED, None, Do.INSERT),
                MergeClause(
                    When.NOT_MATCHED_BY_SOURCE,
                    None,
                    Do.UPDATE,
                    (Name(("v",), Piece("v", text.index("v = 0"))),),
                    (Piece("0", len(text) - 1),),
                ),
            ),
            evolves_schema=True,
        ),
    )


def test_the_source_of_a_merge_may_be_a_table_of_the_past() -> None:
    text = "MERGE INTO t USING s VERSION AS OF 3 z ON t.id = z.id WHEN MATCHED THEN DELETE"
    (found,) = parse(text)
    assert isinstance(found, MergeInto)
    assert found.source == TableReference(name(text, "s"), 3, at(text, "s VERSION AS OF 3"))
    assert (found.target_alias, found.source_alias) == (None, "z")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("INSERT t VALUES (1)", "`INTO` was expected"),
        ("INSERT INTO t", "a query or VALUES was expected, not the end"),
        ("INSERT INTO t VALUES", "a row was expected, not the end"),
        ("INSERT INTO t VALUE (1) AS x", "rows in parentheses"),
        ("INSERT INTO t VALUES (1", "`)` was expected"),
        ("INSERT INTO t REPLACE ON (a = b) SELECT 1", "REPLACE ON is not supported"),
        ("INSERT INTO t REPLACE USING (a) SELECT 1", "REPLACE USING is not supported"),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", "DIRECTORY is not supported"),
        ("INSERT INTO t@v3 VALUES (1)", "VERSION AS OF"),
        ("INSERT INTO my-table VALUES (1)", "backquotes"),
        ("INSERT INTO IDENTIFIER('t') VALUES (1)", "hides a name"),
        ("UPDATE t SET a = 1, WHERE b", "`=` was expected"),
        ("UPDATE t SET a =", "an expression was expected, not the end"),
        ("UPDATE t WHERE a = 1", "`SET` was expected"),
        ("UPDATE t SET a = 1 WHERE b = 2, c = 3", "a condition was expected, not `,`"),
        ("DELETE t WHERE a = 1", "`FROM` was expected"),
        ("DELETE FROM t WHERE", "an expression was expected, not the end"),
        ("DELETE FROM t LIMIT", "the end of the statement was expected, not `LIMIT`"),
        ("DELETE FROM t ORDER", "the end of the statement was expected, not `ORDER`"),
        ("DELETE FROM t WHERE (a = 1", "the `(` is never closed"),
        ("DELETE FROM t WHERE a = 1)", "the end of the statement"),
        ("TRUNCATE TABLE t PARTITION (a = 1)", "truncate of a partition"),
        ("MERGE INTO t USING s ON a = b", "`WHEN` was expected"),
        ("MERGE INTO t USING s ON a = b WHEN MATCHED THEN INSERT *", "`UPDATE` or `DELETE`"),
        ("MERGE INTO t USING s ON a = b WHEN NOT MATCHED THEN DELETE", "`INSERT` was expected"),
        (
            "MERGE INTO t USING s ON a = b WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
            "2 columns are named, 1 values are given",
        ),
        (
            "MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE",
            "takes every row",
        ),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            "a column was expected",
        ),
        ("MERGE INTO t USING () s ON a WHEN MATCHED THEN DELETE", "a query was expected"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(SyntaxRefusedError) as caught:
        parse(text)
    assert says.lower() in str(caught.value).lower()
