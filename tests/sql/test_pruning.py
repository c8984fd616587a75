"""Which conditions may skip files, and that skipping by them never changes an answer."""

import datetime as dt
import itertools
from collections.abc import Mapping
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.names import TableName
from headgate.protocol.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
)
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.types import StructField
from headgate.sql.condition_analysis import condition_predicate, contents, table_predicate
from headgate.sql.rewrite import splice
from headgate.sql.statements import Name
from tests.kit.predicates import matches

SCHEMA = parse_schema(
    "i int, n long, s string, d date, ts timestamp, ntz timestamp_ntz, b boolean,"
    " dec decimal(10,2), f float, x double, st struct<a: int, s: string>, arr array<int>,"
    " bin binary, `date` date"
)


def predicate(condition: str, **options: object) -> Predicate | None:
    return condition_predicate(condition, SCHEMA, **options)  # type: ignore[arg-type]


def eq(column: str, value: bool | int | float | str) -> Compare:
    return Compare(tuple(column.split(".")), Operator.EQ, value)


ONE, TWO = eq("i", 1), eq("i", 2)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i = 1", ONE),
        ("I == 1", ONE),
        ("`i` = 1L", ONE),
        ("1 = i", ONE),
        ("i = -1", eq("i", -1)),
        ("i < 1", Compare(("i",), Operator.LT, 1)),
        ("1 < i", Compare(("i",), Operator.GT, 1)),
        ("1 >= i", Compare(("i",), Operator.LE, 1)),
        ("i <> 1", Compare(("i",), Operator.NE, 1)),
        ("i != 1", Compare(("i",), Operator.NE, 1)),
        ("s = 'a'", eq("s", "a")),
        ("s > r'a'", Compare(("s",), Operator.GT, "a")),
        ("st.a = 1", eq("st.a", 1)),
        ("ST.A = 1", eq("st.a", 1)),
        ("d = '2026-03-01'", eq("d", "2026-03-01")),
        ("d = DATE'2026-03-01'", eq("d", "2026-03-01")),
        ("date >= DATE '2026-03-01'", Compare(("date",), Operator.GE, "2026-03-01")),
        ("ts = '2026-03-01 10:00:00Z'", eq("ts", "2026-03-01 10:00:00Z")),
        ("ts = TIMESTAMP'2026-03-01T10:00:00+02:00'", eq("ts", "2026-03-01T10:00:00+02:00")),
        ("ntz = '2026-03-01 10:00:00.5'", eq("ntz", "2026-03-01 10:00:00.5")),
        ("b", eq("b", True)),
        ("NOT b", Not(eq("b", True))),
        ("b = false", eq("b", False)),
        ("dec = 1.5", eq("dec", "1.5")),
        ("dec < 2", Compare(("dec",), Operator.LT, "2")),
        ("x = 0.1", eq("x", 0.1)),
        ("x = 1e3", eq("x", 1000.0)),
        ("f = 3", eq("f", 3)),
        ("i IN (1, 2)", In(("i",), (1, 2))),
        ("s NOT IN ('a', 'b')", Not(In(("s",), ("a", "b")))),
        ("i IS NULL", IsNull(("i",))),
        ("arr IS NOT NULL", Not(IsNull(("arr",)))),
        ("i <=> NULL", IsNull(("i",))),
        ("i <=> 1", And((ONE, Not(IsNull(("i",)))))),
        (
            "i BETWEEN 1 AND 2",
            And((Compare(("i",), Operator.GE, 1), Compare(("i",), Operator.LE, 2))),
        ),
        (
            "i NOT BETWEEN 1 AND 2 AND i = 1",
            And(
                (
                    Or(
                        (
                            Not(Compare(("i",), Operator.GE, 1)),
                            Not(Compare(("i",), Operator.LE, 2)),
                        )
                    ),
                    ONE,
                )
            ),
        ),
        ("i = 1 AND i = 2", And((ONE, TWO))),
        ("i = 1 OR i = 2", Or((ONE, TWO))),
        ("(i = 1) AND ((i = 2))", And((ONE, TWO))),
        ("NOT (i = 1 OR i = 2)", And((Not(ONE), Not(TWO)))),
        ("! (i = 1 AND i = 2)", Or((Not(ONE), Not(TWO)))),
        ("NOT i = 1 AND i = 2", And((Not(ONE), TWO))),
        # What is not understood is left out, wherever the rest still holds without it.
        ("i = 1 AND f(s) > 2", ONE),
        ("rand() < 0.5 AND i = 1", ONE),
        ("i = 1 AND s IN (SELECT s FROM u WHERE n = 1)", ONE),
        ("CASE WHEN i = 2 AND b THEN true END AND i = 1", ONE),
        ("NOT (i = 1 OR f(s))", Not(ONE)),
        ("(i = 1 AND f(s)) OR (i = 2 AND g(s))", Or((ONE, TWO))),
        ("n BETWEEN i AND 5 AND i = 1", ONE),
        ("i = 1 OR f(s)", None),
        ("NOT (i = 1 AND f(s))", None),
    ],
)
def test_a_plain_comparison_says_something(condition: str, expected: Predicate | None) -> None:
    assert predicate(condition) == expected


@pytest.mark.parametrize(
    "condition",
    [
        "i = '5'",  # Spark finds '05' = 5 true
        "s = 5",
        "i = 1.5",
        "i = 1e3",
        "n = 1D",
        "CAST(i AS string) = '1'",
        "i::string = '1'",
        "i + 1 = 2",
        "i = 1 + 1",
        "-i = 1",
        "i = n",
        "i = NULL",
        "i = :one",
        "i = ?",
        "i IN (1, NULL)",
        "i IN (1, '2')",
        "i IN (SELECT 1)",
        "ts IN ('2026-03-01 10:00:00Z')",
        "EXISTS (SELECT 1 FROM u)",
        "(SELECT max(b) FROM u WHERE n = 1 AND i = 2)",
        "CASE -i AND i = 1 WHEN true THEN true END",
        "upper(s) = 'A'",
        "s LIKE 'a%'",
        "s = 'a' 'b'",
        "s = 'O''Brien'",
        "s = 'a\\n'",
        's = "a"',
        "s = $$a$$",
        "s COLLATE unicode = 'a'",
        "d = '2026-3-1'",
        "d = '2026-02-30'",
        "d = TIMESTAMP'2026-03-01 00:00:00'",
        "ts = DATE'2026-03-01'",
        "ts = '2026-03-01 10:00:00'",
        "ntz = '2026-03-01 10:00:00Z'",
        "ntz = TIMESTAMP'2026-03-01 10:00:00'",
        "f = 0.1",
        "f = 16777217",
        "n = 1 = true",
        "x = 9007199254740993",
        "dec = 0.1234567890123456789012345678901",
        "dec = 1e1",
        "b = 1",
        "bin = 'a'",
        "arr = 1",
        "arr[0] = 1",
        "arr.element = 1",
        "unknown = 1",
        "st = 1",
        "i",
        "i IS TRUE",
        "true",
        "",
        "i =",
        "AND",
        "i = 1)",
        "(i = 1",
    ],
)
def test_what_is_in_doubt_says_nothing(condition: str) -> None:
    assert predicate(condition) is None


def test_moments_without_a_zone_say_something_where_the_session_is_utc() -> None:
    assert predicate("ts < '2026-03-01'", is_utc=True) == Compare(
        ("ts",), Operator.LT, "2026-03-01"
    )
    assert predicate("ts < '2026-03-01'") is None


def test_columns_padded_with_blanks_say_nothing() -> None:
    (column, *_) = parse_schema("c string").fields
    padded = StructField("c", column.type, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    assert condition_predicate("c = 'a'", type(SCHEMA)((padded,))) is None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t.i = 1", ONE),
        ("T.st.a = 1", eq("st.a", 1)),
        ("db.t.i = 1", ONE),
        ("u.i = 1", None),
        ("st.a = 1", None),  # another table goes by that name
        ("i = 1", ONE),
    ],
)
def test_a_qualified_column_is_the_tables_own_or_another_ones(
    condition: str, expected: Predicate | None
) -> None:
    found = predicate(condition, labels=[("t",), ("db", "t")], others={"u", "st"})
    assert found == expected


def test_nesting_beyond_reason_says_nothing_and_breaks_nothing() -> None:
    assert predicate("NOT " * 1000 + "b") is None
    assert predicate("(" * 1000 + "b" + ")" * 1000) is None


@pytest.mark.parametrize(
    ("text", "nondeterministic", "has_subquery"),
    [
        ("i = 1", (), False),
        ("rand() > 0.5 AND Uuid() = s", ("rand", "Uuid"), False),
        ("i = rand AND t.uuid = 1", (), False),
        ("ts > now() OR d = current_date", (), False),
        ("i IN (SELECT i FROM t)", (), True),
        ("i = (WITH a AS (SELECT 1) SELECT * FROM a)", (), True),
        ("f(values) = 'SELECT (SELECT 1)' -- rand() (SELECT 1)", (), False),
    ],
)
def test_a_condition_says_what_it_is_made_of(
    text: str, nondeterministic: tuple[str, ...], has_subquery: bool
) -> None:
    found = contents(text)
    assert found.nondeterministic == nondeterministic
    assert found.has_subquery is has_subquery


# Whatever is left out, the predicate is true wherever the condition is

ROW = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-2, 2),
        "s": st.none() | st.sampled_from(["", "a", "b", "'"]),
        "b": st.none() | st.booleans(),
        "d": st.none() | st.sampled_from([dt.date(2026, 3, 1), dt.date(2026, 3, 2)]),
        "dec": st.none() | st.sampled_from([Decimal("1.50"), Decimal("-2.00")]),
    }
)
ATOMS = st.sampled_from(
    [
        *(f"i {op} {n}" for op in ("=", "<", ">=", "<>", "<=>") for n in (-1, 0, 2)),
        *("i IS NULL", "s IS NOT NULL", "s = 'a'", "'a' < s", "s = ''", "b", "NOT b", "b = false"),
        *("i IN (0, 1)", "s NOT IN ('a', 'b')", "i BETWEEN -1 AND 1", "i NOT BETWEEN 0 AND 1"),
        *("d = DATE'2026-03-01'", "d > '2026-03-01'", "dec < 1.5", "dec = -2", "i <=> NULL"),
        *("i + 1 = 2", "s || 'a' = 'aa'", "i = '1'", "CASE WHEN b AND i = 1 THEN true END"),
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map(lambda c: f"NOT ({c})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({' '.join(p)})"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(CONDITIONS, ROW)
def test_a_predicate_matches_every_row_that_meets_the_condition(
    condition: str, row: Mapping[str, object]
) -> None:
    found = predicate(condition)
    if found is None:
        return
    plain = condition.replace("<=>", "IS NOT DISTINCT FROM")
    query = (
        "SELECT 1 FROM (SELECT ?::int AS i, ?::varchar AS s, ?::boolean AS b, ?::date AS d,"
        f" ?::decimal(10,2) AS dec) WHERE {plain}"
    )
    meets = duckdb.execute(query, [row[name] for name in ("i", "s", "b", "d", "dec")]).fetchall()
    assert matches(found, row) or not meets


# Joins

LEFT = [(None, 1), (1, 1), (1, 2), (2, None), (3, 3), (None, None)]
RIGHT = [(None, None), (1, 1), (2, 2), (3, None), (4, 1), (None, 3)]
JOINS = [
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"),
    *("CROSS JOIN", "NATURAL JOIN", "NATURAL LEFT JOIN", "NATURAL RIGHT JOIN"),
]
PARTS = [
    *("l.v = 1", "r.v = 1", "l.v IS NULL", "r.v IS NULL", "NOT (r.v = 1)", "r.v <> 1", "r.k > 1"),
    *("l.k = r.k", "l.v = r.v", "l.k IS NULL", "r.k IS NULL OR l.k = 1", "l.k < 3"),
]


def resolve(name: Name) -> TableName:
    return TableName("main", "db", name.parts[-1])


def answer(text: str, *, prunes: bool) -> list[str]:
    """Run a query; with pruning, on the rows alone that the predicates leave."""
    schema = parse_schema("k int, v int")
    found = splice(text, resolve=resolve)
    relations = {}
    for stand_in in found.stand_ins:
        predicate = table_predicate(stand_in, schema) if prunes else None
        rows = LEFT if stand_in.table.table == "l" else RIGHT
        kept = [
            row
            for row in rows
            if predicate is None or matches(predicate, dict(zip(("k", "v"), row, strict=True)))
        ]
        values = ", ".join(str(row).replace("None", "NULL") for row in kept)
        relations[stand_in.name] = (
            f"(SELECT * FROM (VALUES {values}) q(k, v))"
            if kept
            else "(SELECT NULL::int AS k, NULL::int AS v WHERE false)"
        )
    rows = duckdb.execute(found.text.format(**relations).replace("`", '"')).fetchall()
    return sorted(map(str, rows))


def queries_with_joins() -> list[str]:
    found = []
    for join, on, where in itertools.product(JOINS, PARTS, [None, *PARTS]):
        has_on = not join.startswith(("CROSS", "NATURAL"))
        on_clause = f" ON l.k = r.k AND ({on})" if has_on else ""
        if join in ("SEMI JOIN", "ANTI JOIN") and where is not None and "r." in where:
            continue
        where_clause = "" if where is None else f" WHERE {where}"
        found.append(f"SELECT * FROM l {join} r{on_clause}{where_clause}")
    return sorted(set(found))


@pytest.mark.slow
def test_pruning_changes_no_answer_whatever_the_join() -> None:
    for query in queries_with_joins():
        assert answer(query, prunes=True) == answer(query, prunes=False), query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM l LEFT JOIN r USING (k) WHERE k = 1",
        "SELECT * FROM l RIGHT JOIN r USING (k) WHERE k = 4",
        "SELECT * FROM l JOIN r USING (k) WHERE l.v = 1",
        "SELECT * FROM l ANTI JOIN r USING (k) WHERE v = 3",
        "SELECT * FROM l LEFT JOIN (r JOIN l AS m ON r.k = m.k AND m.v = 1) ON l.k = r.k",
        "SELECT * FROM l LEFT JOIN r ON l.k = r.k JOIN l m ON m.k = l.k AND r.v IS NULL",
        "SELECT * FROM (l JOIN r ON l.k = r.k AND r.v = 1) RIGHT JOIN l m ON m.k = l.k",
        "SELECT * FROM l, r WHERE l.k = r.k AND r.v = 1 AND l.v IN (1, 2)",
        "SELECT * FROM l WHERE k IN (SELECT k FROM r WHERE v = 1) AND v = 1",
        "SELECT * FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND v = 1)",
        "SELECT * FROM l WHERE v = (SELECT max(v) FROM r WHERE v < 3)",
        "WITH c AS (SELECT * FROM l WHERE v = 1) SELECT * FROM c LEFT JOIN r ON c.k = r.k",
        "SELECT * FROM (SELECT * FROM l WHERE v = 1) l LEFT JOIN r ON l.v = r.v WHERE l.k = 1",
        "SELECT * FROM l x LEFT JOIN l y ON x.k = y.k AND y.v = 1 WHERE x.v = 2",
        "SELECT * FROM l AS q(v, k) WHERE v = 1",
        "SELECT v, count(*) FROM l WHERE k = 1 GROUP BY v HAVING v = 1",
        "SELECT * FROM l WHERE v = 1 UNION ALL SELECT * FROM r WHERE v = 3",
        "FROM l SELECT * WHERE v = 1",
    ],
)
def test_pruning_changes_no_answer_of_a_query(query: str) -> None:
    assert answer(query, prunes=True) == answer(query, prunes=False)


@pytest.mark.parametrize(
    ("query", "is_pruned"),
    [
        ("SELECT * FROM l WHERE v = 1", {"l": True}),
        ("SELECT * FROM db.l WHERE main.db.l.v = 1", {"l": True}),
        ("SELECT * FROM l x WHERE l.v = 1", {"l": False}),
        ("SELECT * FROM l TABLESAMPLE (5 ROWS) WHERE v = 1", {"l": False}),
        ("SELECT * FROM l PIVOT (sum(k) FOR k IN (1)) WHERE v = 1", {"l": False}),
        ("SELECT * FROM (l JOIN r ON l.k = r.k) x WHERE v = 1", {"l": False, "r": False}),
        ("FROM l SELECT k WHERE v = 1 SELECT v WHERE k = 1", {"l": False}),
        ("FROM l |> LIMIT 1 |> WHERE v = 1", {"l": False}),
        ("SELECT * FROM (SELECT * FROM l) WHERE v = 1", {"l": False}),
        ("SELECT * FROM l LEFT JOIN r ON r.v = 1 AND l.v = 1", {"l": False, "r": True}),
        ("SELECT * FROM l RIGHT JOIN r ON r.v = 1 AND l.v = 1", {"l": True, "r": False}),
        ("SELECT * FROM l FULL JOIN r ON r.v = 1 AND l.v = 1", {"l": False, "r": False}),
        ("SELECT * FROM l LEFT JOIN r ON l.k = r.k WHERE l.v = 1", {"l": True, "r": False}),
        ("SELECT * FROM l ANTI JOIN r ON l.v = 1 AND r.v = 1", {"l": False, "r": True}),
        ("SELECT * FROM l SEMI JOIN r ON l.v = 1 AND r.v = 1", {"l": True, "r": True}),
        ("SELECT * FROM l HAVING v = 1", {"l": False}),
    ],
)
def test_a_table_is_pruned_where_the_condition_is_about_its_own_rows(
    query: str, is_pruned: dict[str, bool]
) -> None:
    schema = parse_schema("k int, v int")
    found = splice(query, resolve=resolve)
    assert {
        s.table.table: table_predicate(s, schema) is not None for s in found.stand_ins
    } == is_pruned
