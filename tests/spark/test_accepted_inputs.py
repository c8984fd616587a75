"""Rows, conditions and values in every form that users of Spark have them in."""

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import HeadgateError, InvalidArgumentError, InvalidDataError
from headgate.spark import Clause, Do, Lake, When, session
from tests.kit.wrong_arguments import public_methods, unexpected
from tests.spark.conftest import Water

DAY = dt.date(2026, 11, 18)
COLUMNS = "id long, day date, price decimal(10,2), v string"
ROWS = [
    {"id": 1, "day": DAY, "price": Decimal("1.50"), "v": "a"},
    {"id": 2, "day": None, "price": None, "v": None},
]
FOUND = [tuple(row.values()) for row in ROWS]
ARROW = pa.Table.from_pylist(
    ROWS,
    pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("v", pa.dictionary(pa.int8(), pa.string())),
        ]
    ),
)
FORMS = {
    "list": ROWS,
    "arrow": ARROW,
    "batch": ARROW.to_batches()[0],
    "polars": polars.from_arrow(ARROW),
    "pandas": pandas.DataFrame(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form_are_written(water: Water, form: str) -> None:
    water.make(schema=COLUMNS)
    water.lake.append("t", FORMS[form])
    assert water.rows() == FOUND
    water.lake.overwrite("t", FORMS[form], where="id < 5")
    assert water.rows() == FOUND
    matched = [Clause(When.MATCHED, Do.UPDATE, values={"v": "upper(source.v)"})]
    water.lake.merge("t", FORMS[form], "target.id = source.id", matched)
    assert [row[-1] for row in water.rows()] == ["A", None]


def test_a_table_is_created_from_rows_in_any_form(water: Water) -> None:
    water.lake.create("t", polars.from_arrow(ARROW), partition_by="id")
    assert water.session.table("t").partition_columns == ("id",)
    assert water.rows() == FOUND
    water.lake.overwrite("t", pandas.DataFrame({"n": [1]}), overwrite_schema=True, partition_by=())
    assert water.rows() == [(1,)]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ([(1,)], InvalidArgumentError, "cannot be given as list"),
        (None, InvalidArgumentError, "cannot be given as None"),
        ([{"id": 1, "more": 2}], InvalidDataError, "no column 'more'"),
        (pa.table({"id": pa.array([2**64 - 1], pa.uint64())}), HeadgateError, "uint64"),
        (pandas.DataFrame({"id": [1, "x"]}), InvalidDataError, "converted to Arrow"),
    ],
    ids=["tuples", "none", "column", "uint64", "mixed"],
)
def test_what_are_no_rows_is_refused(
    water: Water, rows: Any, error: type[HeadgateError], text: str
) -> None:
    water.make(schema=COLUMNS)
    with pytest.raises(error, match=text):
        water.lake.append("t", rows)
    assert water.session.table("t").version == 0


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_columns_are_conditions_and_values(water: Water, vectors: str) -> None:
    water.make(delta__enableDeletionVectors=vectors)
    water.lake.append("t", [{"id": n, "v": "a"} for n in range(5)])
    assert water.rows(where=F.col("id") > 3) == [(4, "a")]
    water.lake.delete("t", F.col("id") == 0)
    water.lake.update("t", {"v": F.concat("v", F.lit("b"))}, F.col("id").isin(1, 2))
    water.lake.update("t", {"v": F.lit("z"), "id": "id + 10"}, where="id = 4")
    assert water.rows() == [(1, "ab"), (2, "ab"), (3, "a"), (14, "z")]
    water.lake.overwrite("t", [{"id": 14, "v": "y"}], where=F.col("id") > 3)
    assert water.rows()[-1] == (14, "y")
    history = water.session.table("t").history()
    assert re.search(r"\(.*id.*0.*\)", str(history[-3].parameters["predicate"]))


def test_columns_are_conditions_and_values_of_a_merge(water: Water) -> None:
    water.make()
    water.lake.append("t", [{"id": n, "v": "a"} for n in range(4)])
    clauses = [
        Clause(When.MATCHED, Do.DELETE, F.col("source.id") == 1),
        Clause(When.MATCHED, Do.UPDATE, values={"v": F.upper("target.v")}),
        Clause(When.NOT_MATCHED, Do.INSERT, values={"id": F.col("source.id"), "v": "'new'"}),
        Clause(When.NOT_MATCHED_BY_SOURCE, Do.UPDATE, values={("v",): F.lit("alone")}),
    ]
    on = F.col("target.id") == F.col("source.id")
    water.lake.merge("t", [{"id": n} for n in (0, 1, 9)], on, clauses)
    assert water.rows() == [(0, "A"), (2, "alone"), (3, "alone"), (9, "new")]


def test_a_column_with_another_value_each_time_is_refused(water: Water) -> None:
    water.make()
    for change in (
        lambda: water.lake.delete("t", F.rand() < 0.5),
        lambda: water.lake.merge(
            "t", [{"id": 1}], F.rand() < 0.5, [Clause(When.MATCHED, Do.DELETE)]
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=r"rand\(\)"):
            change()


SAMPLES: Mapping[str, object] = {
    "run": lambda transaction: None,
    "rows": [{"id": 1, "v": "a"}],
    "source": [{"id": 1}],
    "values": {"v": "'x'"},
    "on": "target.id = source.id",
    "clauses": [Clause(When.MATCHED, Do.DELETE)],
    "text": "SELECT 1",
    "when": When.MATCHED,
    "do": Do.DELETE,
}


@pytest.mark.parametrize("method", public_methods(Lake))
def test_no_wrong_argument_breaks_a_method_of_a_lake(water: Water, method: str) -> None:
    water.make().append([{"id": 1, "v": "a"}])
    call = Lake if method == "__init__" else getattr(water.lake, method)
    samples = {**SAMPLES, "spark": water.spark, "session": water.session}
    assert unexpected(call, samples) == []


def test_no_wrong_argument_breaks_a_clause() -> None:
    assert unexpected(Clause, SAMPLES) == []


@pytest.mark.parametrize("name", ["master", "remote", "config", "name"])
@pytest.mark.parametrize("value", [5, b"x", ["x"]])
def test_a_spark_session_is_not_started_with_wrong_arguments(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"session.*: {name} must be"):
        session(**{name: value})
