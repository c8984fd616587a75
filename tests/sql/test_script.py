"""Scripts in, statements out: where they are cut, and what is refused."""

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import SyntaxRefusedError
from headgate.names import TableName
from headgate.sql.condition_analysis import contents
from headgate.sql.rewrite import splice
from headgate.sql.script import parse, split
from headgate.sql.statements import (
    Foreign,
    Piece,
    Query,
    Statement,
    Unsupported,
)


def only(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def texts(script: str) -> list[str]:
    return [piece.text for piece in split(script)]


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        (" ; ;; -- nothing\n ; /* at all */", []),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' ; SELECT \";\"", ["SELECT ';'", 'SELECT ";"']),
        ("SELECT `a;b` FROM `;`; SELECT 1", ["SELECT `a;b` FROM `;`", "SELECT 1"]),
        ("SELECT 'it''s; \\';' ; SELECT 1", ["SELECT 'it''s; \\';'", "SELECT 1"]),
        ("SELECT r'\\'; SELECT 1", ["SELECT r'\\'", "SELECT 1"]),
        ("SELECT $$a;b$$, $x$;$$;$x$; SELECT 1", ["SELECT $$a;b$$, $x$;$$;$x$", "SELECT 1"]),
        ("SELECT 1 -- one; two\n; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1 -- one \\\n ; still\n, 2", ["SELECT 1 -- one \\\n ; still\n, 2"]),
        ("SELECT /* a; /* b; */ c; */ 1; SELECT 2", ["SELECT /* a; /* b; */ c; */ 1", "SELECT 2"]),
        ("SELECT /*+ BROADCAST(t) ; */ 1", ["SELECT /*+ BROADCAST(t) ; */ 1"]),
        ("SHOW TABLES LIKE 'a;b'; SELECT 1", ["SHOW TABLES LIKE 'a;b'", "SELECT 1"]),
        ("BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3", None),
    ],
)
def test_a_script_is_cut_only_where_a_statement_ends(
    script: str, statements: list[str] | None
) -> None:
    if statements is None:
        statements = ["BEGIN ATOMIC SELECT 1; SELECT 2; END", "SELECT 3"]
    assert texts(script) == statements


PARTS = st.sampled_from(
    [
        *("SELECT", "1", "a", ".", ",", "(", ")", "=", "<=>", "{", "}", "$", "@", "\\", "é", "😀"),
        *("'x;y'", "'it''s'", "'\\''", '"a;b"', "`a;``b`", "r'\\'", "$$;$$", "/* ; /* */ */"),
        *("-- ;\n", "-- \\\n;\n", "\n", "\t", " ", ";", "1.5e3", "END", "BEGIN", "\u2003"),
    ]
)


@pytest.mark.slow
@given(st.lists(PARTS, max_size=30).map(" ".join))
@example("a ;; b")
def test_what_is_cut_out_is_the_users_own_text_and_only_marks_lie_between(script: str) -> None:
    pieces = split(script)
    at = 0
    between = ""
    for piece in pieces:
        assert script[piece.start : piece.end] == piece.text
        assert piece.start >= at
        between += script[at : piece.start]
        at = piece.end
    assert split(between + script[at:]) == ()


@pytest.mark.slow
@given(st.lists(PARTS, max_size=30).map(" ".join))
def test_pieces_cut_out_and_joined_again_are_cut_the_same(script: str) -> None:
    pieces = texts(script)
    assert texts("\n;\n".join(pieces)) == pieces


RICH = [
    "INSERT OVERWRITE t PARTITION ( d = 1 , e ) ( a , b ) VALUES ( 1 , DEFAULT )",
    "INSERT INTO t REPLACE WHERE a = 1 AND b IN ( 1 , 2 ) SELECT * FROM u VERSION AS OF 3 x",
    "UPDATE t x SET x . a = CASE WHEN b THEN 1 END , c = ( SELECT max ( d ) FROM u ) WHERE e",
    "MERGE INTO t USING ( SELECT * FROM s ) y ON a = b WHEN MATCHED AND c THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT ( a ) VALUES ( 1 ) WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "CREATE TABLE t ( a array < int > NOT NULL DEFAULT 1 , b date GENERATED ALWAYS AS ( f ( a ) )"
    " , CONSTRAINT c CHECK ( a ) ) USING delta PARTITIONED BY ( b ) TBLPROPERTIES ( a . b = 'c' )",
    "ALTER TABLE t ADD COLUMNS ( a . b int COMMENT 'x' AFTER c , d string FIRST )",
    "BEGIN ATOMIC ISOLATION LEVEL SNAPSHOT RETRY 3 DELETE FROM t WHERE a ; SELECT 1 ; END ; COMMIT",
    "WITH a AS ( SELECT 1 ) SELECT * , b [ 0 ] FROM a LEFT JOIN ( b JOIN c USING ( d ) ) ON e , "
    "LATERAL ( TABLE g ) h LATERAL VIEW explode ( i ) j AS k WHERE l UNION VALUES ( 1 ) , ( 2 )",
    "FROM a PIVOT ( sum ( b ) FOR c IN ( 1 ) ) |> JOIN d ON e |> WHERE f GROUP BY g LIMIT 5",
    "DESCRIBE HISTORY t LIMIT 5 ; SHOW TABLES IN a LIKE 'b' ; RESTORE t TO TIMESTAMP AS OF 'x'",
]
STRAY = st.sampled_from(
    [
        *"()[]<>,.;=*@{}?",
        "SELECT",
        "FROM",
        "AS",
        "CASE",
        "END",
        "INTERVAL",
        "1",
        "'s'",
        "`x`",
        "WITH",
    ]
)


@st.composite
def mistakes(draw: st.DrawFn) -> str:
    """A statement with words lost, doubled and come from nowhere."""
    words = draw(st.sampled_from(RICH)).split()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words)))
        words[at : at + draw(st.integers(0, 3))] = draw(st.lists(STRAY, max_size=2))
    return " ".join(words)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(mistakes())
def test_whatever_is_written_is_read_or_refused_at_a_place(script: str) -> None:
    with contextlib.suppress(SyntaxRefusedError):
        parse(script)
        for piece in split(script):
            assert script[piece.start : piece.end] == piece.text
            contents(piece.text)
            splice(script, piece, resolve=lambda name: TableName("c", "s", "t"))


@pytest.mark.parametrize("script", RICH)
def test_what_the_mistakes_are_made_from_has_none(script: str) -> None:
    assert parse(script)


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("OPTIMIZE t WHERE d = 1 ZORDER BY (a, s.b)", "OPTIMIZE"),
        ("VACUUM t RETAIN 0.5 HOURS DRY RUN", "VACUUM"),
        ("RESTORE TABLE t TO VERSION AS OF 3", "RESTORE"),
        ("CREATE TABLE t (a int) CLUSTER BY (a)", "CLUSTER BY"),
        ("ALTER TABLE t CLUSTER BY NONE", "CLUSTER BY"),
        ("ALTER TABLE t DROP FEATURE 'x' TRUNCATE HISTORY", "DROP FEATURE"),
    ],
)
def test_a_statement_that_nothing_runs_is_one_statement_of_its_name(text: str, verb: str) -> None:
    assert parse(f"{text}; SELECT 1") == (
        Unsupported(verb),
        Query(Piece("SELECT 1", len(text) + 2)),
    )


@pytest.mark.parametrize(
    ("text", "verb", "query"),
    [
        ("SET x.y = 'a'", "SET", None),
        ("RESET", "RESET", None),
        ("UNCACHE TABLE t", "UNCACHE", None),
        ("EXPLAIN FORMATTED SELECT * FROM t", "EXPLAIN", "SELECT * FROM t"),
        ("CACHE LAZY TABLE c AS SELECT * FROM t", "CACHE", "SELECT * FROM t"),
        ("CACHE TABLE c OPTIONS ('a' = 'b') SELECT 1", "CACHE", "SELECT 1"),
        ("CREATE TEMP VIEW v (a) AS SELECT 1", "CREATE TEMPORARY VIEW", "SELECT 1"),
        (
            "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v AS (SELECT 1)",
            "CREATE TEMPORARY VIEW",
            "(SELECT 1)",
        ),
        ("CREATE TEMPORARY FUNCTION f AS 'x.Y'", "CREATE FUNCTION", None),
        ("DROP VIEW IF EXISTS v", "DROP", None),
        ("SET VAR x = (SELECT max(a) FROM t)", "SET", "VAR x = (SELECT max(a) FROM t)"),
        ("DECLARE x INT DEFAULT 5", "DECLARE", "x INT DEFAULT 5"),
        ("SHOW FUNCTIONS", "SHOW", None),
        ("DESCRIBE FUNCTION abs", "DESCRIBE", None),
        ("DESCRIBE QUERY SELECT 1", "DESCRIBE", "SELECT 1"),
    ],
)
def test_what_is_sparks_own_is_left_to_spark(text: str, verb: str, query: str | None) -> None:
    found = only(text)
    assert isinstance(found, Foreign)
    assert found.verb == verb
    assert (None if found.query is None else found.query.text) == query


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "(SELECT 1) UNION (SELECT 2)",
        "FROM t SELECT a",
        "TABLE t",
        "VALUES (1), (2)",
    ],
)
def test_a_query_is_kept_as_it_is(text: str) -> None:
    assert only(f"  {text} ;") == Query(Piece(text, 2))


@pytest.mark.parametrize(
    ("script", "line", "column", "says"),
    [
        ("SELECT 'abc", 1, 8, "string never ends"),
        ("SELECT `abc", 1, 8, "quoted name never ends"),
        ("SELECT 1;\n  SELECT /* /* */", 2, 10, "comment never ends"),
        ("SELEC 1", 1, 1, "`SELEC` does not begin"),
        ("GRANT SELECT ON t TO x", 1, 1, "GRANT is not supported"),
        ("BEGIN ATOMIC SELECT 1;", 1, 1, "has no END"),
        ("BEGIN ATOMIC SELECT 1; END SELECT 2", 1, 28, "`;` was expected"),
        ("USE CATALOG a now", 1, 15, "the end of the statement was expected"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", 1, 22, "WITH before INSERT"),
        ("FROM t INSERT INTO a SELECT x INSERT INTO b SELECT y", 1, 8, "several INSERTs"),
        ("CREATE VIEW v AS SELECT 1", 1, 8, "CREATE TEMPORARY VIEW"),
        ("EXPLAIN DELETE FROM t", 1, 9, "EXPLAIN takes a query"),
        ("\n\n\tDELETE\tFROM 5", 3, 14, "a table was expected, not `5`"),
    ],
)
def test_a_refusal_points_at_the_place(script: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SyntaxRefusedError) as caught:
        parse(script)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert says.lower() in str(caught.value).lower()


def test_the_line_is_shown_with_a_caret_under_the_place() -> None:
    with pytest.raises(SyntaxRefusedError) as caught:
        parse("SELECT 1;\nUPDATE t\n\tSET a + 1;\nSELECT 2")
    assert str(caught.value) == (
        "`=` was expected, not `+`, at line 3, column 8:\n"
        "  \tSET a + 1;\n"
        "  \t      ^\n"
        " Correct the statement at this position. [syntax]"
    )


def test_a_long_line_is_cut_around_the_place() -> None:
    with pytest.raises(SyntaxRefusedError) as caught:
        parse("UPDATE t SET " + "a = 1, " * 1000 + "b + 1")
    assert max(len(line) for line in str(caught.value).splitlines()) < 130
    assert "b + 1" in str(caught.value)
