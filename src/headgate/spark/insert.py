"""Rows into a table: added, or in the place of others, all in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.client.table_definition import added_metrics, removed_metrics
from headgate.client.transaction import Operation, as_text
from headgate.errors import InvalidArgumentError
from headgate.names import fold
from headgate.protocol.actions import Action, AddFile
from headgate.protocol.expressions.predicates import And, Compare, IsNull, Operator, Or, Predicate
from headgate.protocol.partition_values import parse_partition_value
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.schema.types import VOID, StructField, StructType
from headgate.spark import dml
from headgate.spark.conditions import Condition
from headgate.spark.dml import Outcome
from headgate.spark.failures import refusal, translated
from headgate.spark.schema_evolution import evolved, grown
from headgate.spark.statement import Statement
from headgate.spark.types import from_spark, quoted
from headgate.spark.write import Target, conformed_to

_SHOWN: Final = 300  # characters of a row that does not belong
_MOST_PARTITIONS: Final = 256  # that are told apart when conflicts are looked for
_TAKEN: Final = ("numRemovedFiles", "numRemovedBytes", "numDeletedRows", "numCopiedRows")


@dataclass(frozen=True)
class Insertion:
    """What new rows do to those that are there, and to the columns."""

    replaces: bool = False  # all rows, unless the next two say which
    where: Condition | None = None  # the rows that match; new rows must match too
    dynamic: bool = False  # the rows of partitions that get new ones
    merges_schema: bool = False  # columns the table does not have are added, types widened


def insert(statement: Statement, rows: DataFrame, how: Insertion) -> Outcome:
    """Write rows, and commit them with what goes."""
    if how.where is not None and how.dynamic:
        raise InvalidArgumentError("An overwrite is of matching rows or of partitions: of one.")
    if how.replaces:
        statement.refuse_changes()
    base = statement.base
    changed, target = _evolved(statement, rows, how)
    parameters: dict[str, object] = {
        "mode": "Overwrite" if how.replaces else "Append",
        "partitionBy": as_text(base.partition_columns),
    }
    gone: list[Action] = []
    taken: dict[str, int] = {}
    if how.where is not None:
        parameters["predicate"] = how.where.shown
        gone, taken = dml.deletion(statement, how.where)
        # What is stored must match: what is given may be cut to fit, or lack what is computed.
        stored = conformed_to(rows, target or statement.target())
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
    operation = Operation("WRITE", parameters, {**counted, **kept})
    committed = statement.commit([*changed, *gone, *added], operation)
    return Outcome(committed, {"num_affected_rows": number, "num_inserted_rows": number})


def overwriting(partition_columns: Sequence[str], counted: Mapping[str, int]) -> Operation:
    """Tell of a write that replaces all there was."""
    parameters = {"mode": "Overwrite", "partitionBy": as_text(partition_columns)}
    return Operation("WRITE", parameters, counted)


def _evolved(
    statement: Statement, rows: DataFrame, how: Insertion
) -> tuple[list[Action], Target | None]:
    """Give what a write changes in the schema: nothing, unless it may and there is something."""
    if not how.merges_schema:
        return [], None
    before = statement.base.schema
    after = grown(statement, from_spark(rows.schema))
    return ([], None) if after == before else evolved(statement, after)


def _touched(statement: Statement, added: Sequence[AddFile]) -> list[AddFile]:
    """Choose the files of partitions that get new ones, and record that no others were read."""
    by = statement.target().partitioned
    touched = {_partition(by, file): file for file in added}
    files = [file for file in statement.base.files() if _partition(by, file) in touched]
    predicates = [_predicate(by, file) for file in touched.values()]
    found = [predicate for predicate in predicates if predicate is not None]
    is_said = 0 < len(found) == len(predicates) <= _MOST_PARTITIONS
    statement.record(Or(tuple(found)) if is_said else None, files)
    return files


def _predicate(by: Sequence[StructField], file: AddFile) -> Predicate | None:
    """Give what is true of a partition's rows and of no others; None if it cannot be said."""
    said: list[Predicate] = []
    for item, value in zip(by, _values(by, file), strict=True):
        column = (item.name,)
        match value:
            case None:
                said.append(IsNull(column))
            case bool() | int() | str():
                said.append(Compare(column, Operator.EQ, value))
            case date() if not isinstance(value, datetime):
                said.append(Compare(column, Operator.EQ, value.isoformat()))
            case _:
                return None
    return And(tuple(said))


def _partition(by: Sequence[StructField], file: AddFile) -> tuple[object, ...]:
    # Not a number is equal to nothing, itself included.
    return tuple(repr(v) if isinstance(v, float) else v for v in _values(by, file))


def _values(by: Sequence[StructField], file: AddFile) -> list[object]:
    """Give the values themselves: another writer may have spelled them otherwise."""
    spelled = {fold(name): text for name, text in file.partition_values.items()}
    return [parse_partition_value(spelled.get(fold(physical_name(item))), item.type) for item in by]


def _all_matching(rows: DataFrame, condition: Condition, schema: StructType) -> DataFrame:
    """Refuse rows that an overwrite by a condition must not bring."""
    # In a column that is written: one without a type is in no file.
    voids = {fold(item.name) for item in schema.fields if item.type == VOID}
    first = next((name for name in rows.columns if fold(name) not in voids), rows.columns[0])
    whole = F.struct(*[F.col(quoted(name)) for name in rows.columns])
    said = F.lit(f"A row does not match {condition.shown}: ")
    message = refusal(said, F.substring(F.to_json(whole), 1, _SHOWN))
    guarded = F.when(condition.holds(), F.col(quoted(first)))
    named = rows if condition.alias is None else rows.alias(condition.alias)
    return named.withColumn(first, guarded.otherwise(F.raise_error(message)))
