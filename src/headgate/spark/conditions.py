"""Conditions on the rows of a table, as SQL has them, kept apart from how Spark is asked.

A row matches where a condition is true; the others are those where it is not true, which is more
than where it is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.log.snapshots import Snapshot
from headgate.protocol.predicates import Predicate
from headgate.spark.types import quoted

_ROWS: Final = "headgate_rows"


@dataclass(frozen=True)
class Condition:
    """A condition in the user's own text."""

    text: str  # where it has subqueries: `{t0}` for a table, every other brace doubled
    shown: str  # as the user wrote it
    alias: str | None = None  # what the table is called in it
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    has_subqueries: bool = False
    predicate: Predicate | None = None  # what it says of files; None: any may match
    is_exact: bool = False  # the predicate says all that the condition says

    def matching(self, rows: DataFrame) -> DataFrame:
        """Give the rows where it is true."""
        if self.has_subqueries:
            return self._filtered(rows, f"({self.text})")
        return self._named(rows).where(F.expr(self.text))

    def others(self, rows: DataFrame) -> DataFrame:
        """Give the rows where it is not true."""
        if self.has_subqueries:
            return self._filtered(rows, f"NOT (({self.text}) <=> true)")
        return self._named(rows).where(~self.holds())

    def holds(self) -> Column:
        """Say of each row whether it matches; only where there are no subqueries."""
        return F.expr(self.text).eqNullSafe(True)

    def _named(self, rows: DataFrame) -> DataFrame:
        return rows if self.alias is None else rows.alias(self.alias)

    def _filtered(self, rows: DataFrame, where: str) -> DataFrame:
        alias = "" if self.alias is None else f" AS {quoted(self.alias)}"
        text = f"SELECT * FROM {{{_ROWS}}}{alias} WHERE {where}"
        frames: dict[str, Any] = {_ROWS: rows, **self.frames}
        return rows.sparkSession.sql(text, **frames)


def condition_of(text: str, snapshot: Snapshot) -> Condition:
    """Read a condition on one table, without subqueries."""
    return Condition(text=text, shown=text)
