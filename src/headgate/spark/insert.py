"""Append rows to a table, or replace rows by them, in one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.client.table_definition import added_metrics, removed_metrics
from headgate.client.transaction import OperationInfo, as_text
from headgate.data.file_reader import partition_value
from headgate.errors import InvalidArgumentError
from headgate.names import fold
from headgate.protocol.actions import Action, AddFile
from headgate.protocol.expressions.predicates import And, Compare, IsNull, Operator, Or, Predicate
from headgate.protocol.schema.types import VOID, StructField, StructType
from headgate.spark import dml, scan
from headgate.spark.conditions import Condition, named
from headgate.spark.dml import Outcome
from headgate.spark.failures import refusal, translated
from headgate.spark.schema_conversion import from_spark, quoted
from headgate.spark.schema_evolution import evolved
from headgate.spark.statement import Statement
from headgate.spark.write import conformed_to

_SHOWN: Final = 300  # characters of a row that does not match
_MOST_PARTITIONS: Final = (
    256  # named in the predicate that conflicts are checked by; above it, the whole table
)
_TAKEN: Final = ("numRemovedFiles", "numRemovedBytes", "numDeletedRows", "numCopiedRows")


@dataclass(frozen=True)
class Insertion:
    """Which rows the new ones replace, and whether they may change the columns."""

    replaces: bool = False  # all rows, unless one of the next two selects some
    where: Condition | None = None  # the rows to replace; new rows must match it too
    dynamic: bool = False  # replace the rows of partitions that get new ones
    merges_schema: bool = False  # add columns that the table lacks, and widen types


def insert(statement: Statement, rows: DataFrame, how: Insertion) -> Outcome:
    """Write rows, and commit them together with the removals."""
    if how.where is not None and how.dynamic:
        raise InvalidArgumentError("Pass only one of `where` and `dynamic`.")
    if how.replaces:
        statement.refuse_changes()
    base = statement.base
    changed, target = list[Action](), statement.target()
    if how.merges_schema:
        changed, target = evolved(statement, from_spark(rows.schema))
    parameters: dict[str, object] = {
        "mode": "Overwrite" if how.replaces else "Append",
        "partitionBy": as_text(base.partition_columns),
    }
    gone: list[Action] = []
    taken: dict[str, int] = {}
    if how.where is not None:
        parameters["predicate"] = how.where.shown
        gone, taken = dml.deletion(statement, how.where)
        # Check the rows as stored: values may be cut to fit, and generated columns missing here.
        stored = conformed_to(rows, target)
        with translated():
            rows = _all_matching(stored, how.where, base.schema)
        added = statement.stage_conformed(rows, target)
    else:
        added = statement.stage(rows, target)
    if how.replaces and how.where is None:
        if how.dynamic:
            parameters["partitionOverwriteMode"] = "dynamic"
        files = _touched(statement, added) if how.dynamic else statement.plan()
        gone = statement.removed(files)
        taken = removed_metrics(files)
    counted = added_metrics(added)
    number = counted["numOutputRows"]
    kept = {key: count for key, count in taken.items() if key in _TAKEN}
    operation = OperationInfo("WRITE", parameters, {**counted, **kept})
    committed = statement.commit([*changed, *gone, *added], operation)
    return Outcome(committed, {"num_affected_rows": number, "num_inserted_rows": number})


def _touched(statement: Statement, added: Sequence[AddFile]) -> list[AddFile]:
    """Return the files of partitions that get new rows, and record that no others were read."""
    touched = scan.by_partition(statement.base, added)
    groups = scan.by_partition(statement.base, statement.base.files())
    files = [file for values, group in groups.items() if values in touched for file in group]
    by = statement.target().partitioned
    label = statement.base.label
    predicates = [_predicate(label, by, group[0]) for group in touched.values()]
    found = [predicate for predicate in predicates if predicate is not None]
    is_exact = 0 < len(found) == len(predicates) <= _MOST_PARTITIONS
    statement.record(Or(tuple(found)) if is_exact else None, files)
    return files


def _predicate(label: str, by: Sequence[StructField], file: AddFile) -> Predicate | None:
    """Return a predicate that only rows of this partition match; None if none can be built."""
    terms: list[Predicate] = []
    for item in by:
        column = (item.name,)
        match partition_value(label, file, item):
            case None:
                terms.append(IsNull(column))
            case bool() | int() | str() as value:
                terms.append(Compare(column, Operator.EQ, value))
            case date() as value if not isinstance(value, datetime):
                terms.append(Compare(column, Operator.EQ, value.isoformat()))
            case _:
                return None
    return And(tuple(terms))


def _all_matching(rows: DataFrame, condition: Condition, schema: StructType) -> DataFrame:
    """Add a check that every row matches the condition of an overwrite."""
    # Attach the check to a column that is written; columns of type VOID are in no file.
    voids = {fold(item.name) for item in schema.fields if item.type == VOID}
    first = next((name for name in rows.columns if fold(name) not in voids), rows.columns[0])
    whole = F.struct(*[F.col(quoted(name)) for name in rows.columns])
    prefix = F.lit(f"A row does not match {condition.shown}: ")
    message = refusal(prefix, F.substring(F.to_json(whole), 1, _SHOWN))
    guarded = F.when(condition.holds(), F.col(quoted(first))).otherwise(F.raise_error(message))
    return named(rows, condition.alias).withColumn(first, guarded)
