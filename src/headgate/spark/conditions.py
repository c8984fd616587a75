"""Conditions on the rows of a table, with the semantics of SQL.

A row matches where a condition is true; the others are those where it is not true, which is more
than where it is false.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.errors import InvalidArgumentError
from headgate.protocol.expressions.predicates import Predicate
from headgate.spark.schema_conversion import helper_column, quoted
from headgate.spark.sessions import is_remote
from headgate.sql.condition_analysis import Contents, condition_predicate, contents
from headgate.sql.keywords import NONDETERMINISTIC
from headgate.sql.rewrite import Moment, splice
from headgate.table.snapshot import Snapshot

# An expression in SQL, or one built with Spark's functions.
Expression: TypeAlias = str | Column

_ROWS: Final = "headgate_rows"
_SHOWN: Final = re.compile(r"Column<'(.*)'>", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition in the user's own text."""

    text: Expression  # where it has subqueries: `{t0}` for a table, every other brace doubled
    shown: str  # as the user wrote it
    alias: str | None = None  # what the table is called in it
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    has_subqueries: bool = False
    predicate: Predicate | None = None  # what it says of files; None: any may match
    # Whether it surely says the same of a row each time. Subqueries and functions of the session
    # may not, and what is asked twice would then lose rows, or have them twice.
    is_repeatable: bool = False

    def matching(self, rows: DataFrame) -> DataFrame:
        """Return the rows where it is true."""
        if self.has_subqueries:
            return self._filtered(rows, f"({self.text})")
        return named(rows, self.alias).where(column_of(self.text))

    def others(self, rows: DataFrame) -> DataFrame:
        """Return the rows where it is false or NULL."""
        if self.has_subqueries:
            return self._filtered(rows, f"NOT (({self.text}) <=> true)")
        return named(rows, self.alias).where(~self.holds())

    def holds(self) -> Column:
        """Say of each row whether it matches; only where there are no subqueries."""
        return column_of(self.text).eqNullSafe(True)

    def _filtered(self, rows: DataFrame, where: str) -> DataFrame:
        return select(rows, self.alias, "*", where, self.frames)


def named(rows: DataFrame, alias: str | None) -> DataFrame:
    """Return rows whose columns can be qualified with an alias."""
    return rows if alias is None else rows.alias(alias)


def select(
    rows: DataFrame, alias: str | None, what: str, where: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Select by SQL text, which may have subqueries over the other frames."""
    as_alias = "" if alias is None else f" AS {quoted(alias)}"
    arguments: dict[str, Any] = {_ROWS: rows, **frames}
    text = f"SELECT {what} FROM {{{_ROWS}}}{as_alias} WHERE {where}"
    return rows.sparkSession.sql(text, **arguments)


@dataclass(frozen=True)
class Expressions:
    """Values in the user's own text, computed beside the columns of a table."""

    texts: tuple[Expression, ...]
    alias: str | None = None
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    has_subqueries: bool = False

    def beside(self, rows: DataFrame) -> tuple[DataFrame, list[str]]:
        """Return the rows with one more column for each value, and the names of these columns."""
        names = [helper_column(f"value_{n}") for n in range(len(self.texts))]
        if not self.has_subqueries:
            values = [column_of(t).alias(n) for t, n in zip(self.texts, names, strict=True)]
            return named(rows, self.alias).select("*", *values), names
        computed = ", ".join(
            f"({t}) AS {quoted(n)}" for t, n in zip(self.texts, names, strict=True)
        )
        return select(rows, self.alias, f"*, {computed}", "true", self.frames), names


def column_of(expression: Expression) -> Column:
    """Convert an expression to a column."""
    return F.expr(expression) if isinstance(expression, str) else expression


def shown(expression: Expression) -> str:
    """Return the text of an expression, for messages and for a table's history."""
    if isinstance(expression, str):
        return expression
    text = repr(expression)
    found = _SHOWN.fullmatch(text)
    return text if found is None else found[1]


def condition_of(
    spark: SparkSession, text: Expression, snapshot: Snapshot, moment: Moment
) -> Condition:
    """Read a condition on the rows of one table: an expression of SQL without subqueries.

    Spark may evaluate it more than once, so functions of the current time return `moment`. A
    condition that was built with Spark's functions skips no files.
    """
    alias = snapshot.label.rpartition(".")[2] or None
    if not isinstance(text, str):
        refuse_unrepeatable(text)
        return Condition(text=text, shown=shown(text), alias=alias)
    made_of = contents(text)
    if made_of.has_subquery:
        raise InvalidArgumentError(
            f"The condition {text!r} has a subquery.", remedy="Write the statement in SQL."
        )
    refuse_nondeterministic(made_of)
    labels = [] if alias is None else [(alias,)]
    fixed = splice(text, resolve=lambda _: None, moment=moment).expression
    return Condition(
        text=fixed,
        shown=text,
        alias=alias,
        is_repeatable=made_of.is_rowwise,
        predicate=condition_predicate(text, snapshot.schema, labels=labels, is_utc=is_utc(spark)),
    )


def moment_of(now_ms: int) -> Moment:
    """Return literals for a time; date and local time are those of Spark's time zone."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    text = at.strftime("%Y-%m-%d %H:%M:%S.") + f"{now_ms % 1000:03d}"
    timestamp = f"TIMESTAMP_LTZ'{text}Z'"
    date = f"CAST({timestamp} AS DATE)"
    return {
        "CURRENT_TIMESTAMP": timestamp,
        "NOW": timestamp,
        "CURRENT_DATE": date,
        "CURDATE": date,
        "LOCALTIMESTAMP": f"CAST({timestamp} AS TIMESTAMP_NTZ)",
        "UNIX_TIMESTAMP": f"{now_ms // 1000}L",
    }


def refuse_nondeterministic(made_of: Contents) -> None:
    """Refuse a condition whose value may differ each time it is evaluated."""
    if made_of.nondeterministic:
        raise InvalidArgumentError(
            f"{made_of.nondeterministic[0]}() gives another answer each time.",
            remedy="Write the rows it chooses to a table first, and choose by that.",
        )


def refuse_unrepeatable(expression: Expression) -> None:
    """Refuse an expression whose value differs each time it is computed."""
    if isinstance(expression, str):
        refuse_nondeterministic(contents(expression))
        return
    for name in re.findall(r"(\w+)\(", shown(expression)):
        if name.upper() in NONDETERMINISTIC:
            refuse_nondeterministic(Contents((name,), False, False, False))


def is_utc(spark: SparkSession) -> bool:
    """Return True if moments without a zone mean UTC, now and whenever a plan is resolved."""
    # Spark Connect resolves a plan when rows are asked for, and the zone may be another by then.
    if is_remote(spark):
        return False
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or ""
    return zone.upper() in {"UTC", "ETC/UTC", "GMT", "Z", "+00:00"}
