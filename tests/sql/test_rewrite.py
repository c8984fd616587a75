"""Tables in a query: found where SQL says they are, and spliced without touching anything else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import SyntaxRefusedError
from headgate.names import TableName
from headgate.sql.queries import find_references
from headgate.sql.rewrite import STAND_IN_WIDTH, Spliced, quoted, splice
from headgate.sql.statements import Name, Piece


def ours(name: Name) -> TableName | None:
    """Take every name but those that begin with `x`, in the schema `db` of the catalog `main`."""
    if name.parts[-1].lower().startswith("x") or len(name.parts) > 3:
        return None
    return TableName(*("main", "db", "")[: 3 - len(name.parts)], *name.parts)


def spliced(text: str) -> str:
    return splice(text, resolve=ours).text


def names(text: str) -> list[str]:
    return [str(reference.table.name) for reference in find_references(text)]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM a", ["a"]),
        ("select * from `A b`.c, d.e.`f.g`", ["A b.c", "d.e.f.g"]),
        ("SELECT * FROM a x JOIN b AS y ON x.i = y.i LEFT OUTER JOIN c USING (i)", ["a", "b", "c"]),
        ("SELECT * FROM a NATURAL FULL JOIN b CROSS JOIN c", ["a", "b", "c"]),
        ("SELECT * FROM a LEFT SEMI JOIN b ON p ANTI JOIN c ON q", ["a", "b", "c"]),
        ("SELECT * FROM (a JOIN (b) ON p) JOIN (SELECT * FROM c) ON q", ["a", "b", "c"]),
        ("SELECT (SELECT max(i) FROM a) FROM b WHERE EXISTS (SELECT 1 FROM c)", ["a", "b", "c"]),
        ("SELECT * FROM a WHERE i IN (SELECT i FROM b WHERE j = ANY (SELECT j FROM c))", None),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT (SELECT * FROM c)", ["a", "b", "c"]),
        ("(SELECT * FROM a) INTERSECT (TABLE b ORDER BY 1) LIMIT 5", ["a", "b"]),
        ("SELECT * FROM ((SELECT * FROM a) UNION SELECT * FROM b) x", ["a", "b"]),
        ("SELECT f((SELECT 1 FROM a) + 1, ((SELECT 2 FROM b))) FROM c", ["a", "b", "c"]),
        ("FROM a SELECT i WHERE i > 1", ["a"]),
        ("FROM a JOIN b ON p SELECT i", ["a", "b"]),
        ("TABLE a", ["a"]),
        ("VALUES (1), ((SELECT 1 FROM a))", ["a"]),
        ("SELECT * FROM VALUES (1), (2) AS v(i), a", ["a"]),
        ("SELECT * FROM VALUES 1, 2 v, a", ["a"]),
        ("SELECT * FROM range(10) r, explode(array(1)), a", ["a"]),
        ("SELECT * FROM f(TABLE(a), i => TABLE b, (SELECT 1 FROM c))", ["a", "b", "c"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.i = a.i) l", ["a", "b"]),
        ("SELECT * FROM a LATERAL VIEW OUTER explode(p) v AS q, r WHERE q = 1", ["a"]),
        ("SELECT * FROM a PIVOT (sum(i) FOR j IN (1, 2)) JOIN b", ["a", "b"]),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT) REPEATABLE (5) s JOIN b", ["a", "b"]),
        ("SELECT extract(year FROM i), trim(BOTH 'x' FROM j) FROM a", ["a"]),
        ("SELECT substring(i FROM 2), overlay(i PLACING 'x' FROM 3) FROM a", ["a"]),
        ("SELECT i IS NOT DISTINCT FROM j FROM a", ["a"]),
        ("SELECT * EXCEPT (i, j) FROM a", ["a"]),
        ("SELECT a.from, `from` FROM a WHERE a.join = a.where", ["a"]),
        ("SELECT * FROM a WHERE offset > 1 AND limit < 2 GROUP BY offset", ["a"]),
        ("SELECT i limit, j AS offset FROM a order JOIN b window", ["a", "b"]),
        ("SELECT * FROM stream WHERE i = 1", ["stream"]),
        ("SELECT window.start FROM a GROUP BY window(ts, '1 day')", ["a"]),
        ("SELECT sum(i) FILTER (WHERE j) OVER (PARTITION BY k ORDER BY l) FROM a", ["a"]),
        ("SELECT transform(p, x -> x + 1), p[0].q, m['k'], i::int, :n, ? FROM a", ["a"]),
        ("SELECT 'FROM b', \"FROM c\", `FROM d` FROM a -- FROM e\n/* FROM f */", ["a"]),
        ("SELECT CASE WHEN i THEN j END FROM a QUALIFY row_number() OVER (ORDER BY i) = 1", ["a"]),
        ("FROM a |> WHERE i > 1 |> JOIN b ON a.i = b.i |> UNION ALL (SELECT * FROM c)", None),
        ("SELECT * FROM parquet.`/x/y.z`", ["parquet./x/y.z"]),
        ("i = 1 AND j IN (SELECT j FROM a) OR (SELECT max(k) FROM b) > 1", ["a", "b"]),
        ("SELECT * FROM ?", []),
    ],
)
def test_tables_are_found_wherever_rows_are_read(query: str, tables: list[str] | None) -> None:
    assert names(query) == (["a", "b", "c"] if tables is None else tables)


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a", ["b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM A", ["a"]),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a JOIN c) SELECT * FROM b", ["c"]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM a", ["a"]),
        ("WITH a (i, j) AS (SELECT 1, 2) SELECT * FROM a WHERE i IN (SELECT i FROM a)", []),
        ("WITH a AS (SELECT 1) SELECT * FROM s.a", ["s.a"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r, a) SELECT * FROM r", ["a"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x JOIN a", ["a"]),
        ("SELECT * FROM a WHERE i IN (WITH b AS (SELECT * FROM c) SELECT i FROM b)", ["a", "c"]),
        ("WITH `A` AS (SELECT 1) SELECT * FROM a UNION SELECT * FROM b", ["b"]),
    ],
)
def test_a_named_query_hides_a_table_in_its_own_scope_only(query: str, tables: list[str]) -> None:
    assert names(query) == tables


@pytest.mark.parametrize(
    ("query", "as_of", "alias"),
    [
        ("SELECT * FROM a VERSION AS OF 3", 3, None),
        ("SELECT * FROM a FOR SYSTEM_VERSION AS OF '3' v", 3, "v"),
        (
            "SELECT * FROM a TIMESTAMP AS OF '2026-01-01' WHERE i = 1",
            Piece("'2026-01-01'", 32),
            None,
        ),
        (
            "SELECT * FROM a FOR TIMESTAMP AS OF now() - INTERVAL 1 DAY v JOIN b",
            Piece("now() - INTERVAL 1 DAY", 36),
            "v",
        ),
        (
            "SELECT * FROM a TIMESTAMP AS OF date_sub(current_date(), 1) AS v",
            Piece("date_sub(current_date(), 1)", 32),
            "v",
        ),
        ("SELECT * FROM a version", None, "version"),
    ],
)
def test_a_table_of_the_past_says_which(query: str, as_of: object, alias: str | None) -> None:
    reference = find_references(query)[0]
    assert reference.table.as_of == as_of
    assert reference.alias == alias


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM a", "SELECT * FROM {t0} AS `a`"),
        ("SELECT * FROM db.a z", "SELECT * FROM {t0} z"),
        (
            "SELECT a.i FROM `A` JOIN xs JOIN b.c",
            "SELECT a.i FROM {t0} AS `A` JOIN xs JOIN {t1} AS `c`",
        ),
        ("SELECT '{i}', `{` FROM a -- }", "SELECT '{{i}}', `{{` FROM {t0} AS `a` -- }}"),
        ("SELECT * FROM `a{b}`", "SELECT * FROM {t0} AS `a{{b}}`"),
        ("SELECT * FROM a VERSION AS OF 3 WHERE i", "SELECT * FROM {t0} AS `a` WHERE i"),
        ("SELECT * FROM xs VERSION AS OF 3", "SELECT * FROM xs VERSION AS OF 3"),
        (
            "SELECT * FROM a TABLESAMPLE (5 ROWS) JOIN b",
            "SELECT * FROM {t0} TABLESAMPLE (5 ROWS) AS `a` JOIN {t1} AS `b`",
        ),
        ("TABLE a", "TABLE {t0}"),
        ("SELECT * FROM f(TABLE(a))", "SELECT * FROM f(TABLE({t0}))"),
        ("SELECT * FROM a, a", "SELECT * FROM {t0} AS `a`, {t1} AS `a`"),
        ("i IN (SELECT i FROM a)", "i IN (SELECT i FROM {t0} AS `a`)"),
    ],
)
def test_a_stand_in_takes_the_place_of_a_name_and_keeps_its_label(
    query: str, expected: str
) -> None:
    assert spliced(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT s.a.i, s.a.* FROM s.a", "SELECT `a`.i, `a`.* FROM {t0} AS `a`"),
        ("SELECT MAIN.S.a.i FROM s.a", "SELECT `a`.i FROM {t0} AS `a`"),
        ("SELECT db.a.i FROM a", "SELECT `a`.i FROM {t0} AS `a`"),
        ("SELECT s.a.i FROM s.a z", "SELECT s.a.i FROM {t0} z"),
        ("SELECT s.a(i) FROM s.a", "SELECT s.a(i) FROM {t0} AS `a`"),
        (
            "SELECT * FROM s.a WHERE i IN (SELECT i FROM s.b WHERE s.b.i = s.a.i)",
            "SELECT * FROM {t0} AS `a` WHERE i IN (SELECT i FROM {t1} AS `b` WHERE `b`.i = `a`.i)",
        ),
        (
            "SELECT s.a.i, r.a.i FROM s.a JOIN r.a",
            "SELECT `main.s.a`.i, `main.r.a`.i FROM {t0} AS `main.s.a` JOIN {t1} AS `main.r.a`",
        ),
        (
            "SELECT s.a.i FROM (SELECT * FROM s.a) z",
            "SELECT s.a.i FROM (SELECT * FROM {t0} AS `a`) z",
        ),
    ],
)
def test_columns_qualified_with_the_full_name_follow_the_label(query: str, expected: str) -> None:
    assert spliced(query) == expected


def test_columns_of_a_target_are_shortened_in_its_expressions() -> None:
    script = "DELETE FROM s.a WHERE s.a.i IN (SELECT i FROM b) AND main.s.a.j = 1"
    condition = Piece(script[22:], 22)
    found = splice(script, condition, resolve=ours, targets=[TableName("main", "s", "a")], first=3)
    assert found.text == "`a`.i IN (SELECT i FROM {t3} AS `b`) AND `a`.j = 1"


def test_only_the_query_inside_a_statement_is_searched() -> None:
    script = "CREATE TEMP VIEW a AS SELECT * FROM a"
    found = splice(script, resolve=ours, within=Piece("SELECT * FROM a", 22))
    assert found.text == "CREATE TEMP VIEW a AS SELECT * FROM {t0} AS `a`"


def test_functions_that_tell_the_time_become_literals_of_one_moment() -> None:
    moment = {
        **dict.fromkeys(["NOW", "CURRENT_TIMESTAMP"], "TIMESTAMP'x'"),
        **dict.fromkeys(["CURDATE", "CURRENT_DATE"], "DATE'y'"),
        "LOCALTIMESTAMP": "TIMESTAMP_NTZ'z'",
        "UNIX_TIMESTAMP": "7L",
    }
    text = (
        "SELECT now(), current_date, curdate() AS current_date, t.now, unix_timestamp(), "
        "unix_timestamp(i), 'now()', localtimestamp(), i current_timestamp FROM a "
        "WHERE i < current_timestamp"
    )
    assert splice(text, resolve=lambda name: None, moment=moment).text == (
        "SELECT TIMESTAMP'x', DATE'y', DATE'y' AS current_date, t.now, 7L, "
        "unix_timestamp(i), 'now()', TIMESTAMP_NTZ'z', i current_timestamp FROM a "
        "WHERE i < TIMESTAMP'x'"
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM a@v3", "VERSION AS OF"),
        ("SELECT * FROM a@20260101000000000", "VERSION AS OF"),
        ("SELECT * FROM IDENTIFIER('a')", "hides a name"),
        ("SELECT * FROM STREAM a", "cannot read a stream"),
        ("SELECT * FROM my-table", "backquotes"),
        ("SELECT * FROM (SELECT 1", "`)` was expected, not the end"),
        ("SELECT f(1", "the `(` is never closed"),
        ("SELECT * FROM a JOIN b USING i", "`(` was expected"),
        ("SELECT 1)", "the end was expected, not `)`"),
        ("SELECT " + "(" * 5000 + ")" * 5000, "nested too deeply"),
    ],
)
def test_what_hides_a_table_is_refused(query: str, says: str) -> None:
    with pytest.raises(SyntaxRefusedError) as caught:
        spliced(query)
    assert says.lower() in str(caught.value).lower()


def test_an_error_inside_a_piece_points_into_the_script() -> None:
    script = "SELECT 1;\nDELETE FROM t WHERE i IN (SELECT i FROM a@v3)"
    with pytest.raises(SyntaxRefusedError) as caught:
        splice(script, Piece(script[30:], 30), resolve=ours)
    assert (caught.value.line, caught.value.column) == (2, 42)


# Whatever the names are, and whatever stands between them

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8
)
GAPS = st.lists(
    st.sampled_from([" ", "\n", "/* {FROM x} */", "-- 'FROM `x\n", "/* /* ; */ */"]), min_size=1
).map(lambda gaps: " " + "".join(gaps) + " ")
STRINGS = st.sampled_from(["'{'", "'FROM t'", '"}{"', "r'\\{t0}'", "'it''s'", "'\\''", "${x}"])


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, list[tuple[str, ...]]]:
    """A query, and the tables in it."""
    tables = draw(st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=4))
    text = "SELECT" + draw(GAPS) + draw(STRINGS) + draw(GAPS) + "FROM"
    for number, parts in enumerate(tables):
        if number:
            text += draw(st.sampled_from([",", " JOIN", " LEFT ANTI JOIN", " NATURAL JOIN"]))
        text += draw(GAPS) + ".".join(quoted(part) for part in parts) + draw(GAPS)
    return text + "WHERE" + draw(GAPS) + draw(STRINGS), [tuple(parts) for parts in tables]


def restored(found: Spliced, text: str) -> str:
    """Undo a splice: single braces, names where the stand-ins are, edits of nothing taken out."""
    for edit in found.edits:  # what stands before an edit is the user's again: places agree
        spelled = ("" if edit.stand_in is None else f"{{{edit.stand_in}}}") + edit.text
        end = edit.start + len(spelled)
        assert text[edit.start : end] == spelled
        text = text[: edit.start] + found.piece.text[edit.start : edit.end] + text[end:]
    return text


@pytest.mark.slow
@given(queries())
def test_whatever_tables_are_called_they_are_found_and_unsplicing_gives_the_text_back(
    query: tuple[str, list[tuple[str, ...]]],
) -> None:
    text, tables = query
    found = splice(text, resolve=lambda name: TableName("c", "s", name.parts[-1]))
    assert [s.reference.table.name.parts for s in found.stand_ins] == tables
    # Doubled braces become single ones, as `str.format` does it; stand-ins stay what they are.
    single = found.text.format(**{s.name: f"{{{s.name}}}" for s in found.stand_ins})
    assert restored(found, single) == text


@pytest.mark.slow
@given(queries())
def test_every_place_in_what_spark_parses_is_traced_to_the_users_text(
    query: tuple[str, list[tuple[str, ...]]],
) -> None:
    text, _ = query
    found = splice(text, resolve=lambda name: TableName("c", "s", name.parts[-1]))
    relation = "r" * STAND_IN_WIDTH
    seen = found.text.format(**{s.name: relation for s in found.stand_ins})
    replaced = [(edit.start, edit.end) for edit in found.edits]
    for offset, character in enumerate(seen):
        origin = found.origin(offset)
        is_replaced = any(start <= origin <= end for start, end in replaced)
        assert is_replaced or text[origin] == character
    assert [found.origin(m.start()) for m in re.finditer(relation, seen)] == [
        s.reference.table.piece.start for s in found.stand_ins
    ]
    assert found.origin(len(seen)) == len(text)
