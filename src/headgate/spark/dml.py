"""DELETE and UPDATE: find the matching rows first, then change only their files.

Files are chosen by statistics; which rows of a rewritten file stay is decided row by row on the
whole file, so no row is lost with a part of the file that was skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.client.table_definition import removed_metrics
from headgate.client.transaction import Committed, OperationInfo, as_text
from headgate.errors import InvalidArgumentError, InvariantError
from headgate.names import did_you_mean, fold
from headgate.protocol.actions import Action, AddFile
from headgate.protocol.schema.types import (
    GENERATION,
    IDENTITY,
    DataType,
    Path,
    StructField,
    StructType,
)
from headgate.protocol.statistics import num_records
from headgate.spark import scan
from headgate.spark.conditions import Condition, Expressions, named
from headgate.spark.failures import quietly, translated
from headgate.spark.hits import Hit, Split, find_hits, split, vectors
from headgate.spark.scan import FILE, ROW, Files
from headgate.spark.schema_conversion import from_spark, helper_column, quoted
from headgate.spark.sessions import resolved
from headgate.spark.statement import Statement
from headgate.spark.store_assignment import assigned, checked, with_generated, with_lengths
from headgate.spark.write import Target

_HIT: Final = helper_column("hit")


@dataclass(frozen=True)
class Outcome:
    """What a statement did: the commit, if rows changed, and how many of each kind."""

    committed: Committed | None
    counts: Mapping[str, int]


def delete(statement: Statement, condition: Condition | None) -> Outcome:
    """Delete the rows that match; all rows where there is no condition."""
    statement.refuse_changes(makes_rows=False)
    actions, counted = deletion(statement, condition)
    deleted = counted.get("numDeletedRows")
    counts = {} if deleted is None else {"num_affected_rows": deleted}
    if not actions:
        return Outcome(None, counts)
    predicate = as_text([] if condition is None else [f"({condition.shown})"])
    committed = statement.commit(
        actions, OperationInfo("DELETE", {"predicate": predicate}, counted)
    )
    return Outcome(committed, counts)


def deletion(
    statement: Statement, condition: Condition | None
) -> tuple[list[Action], dict[str, int]]:
    """Build the actions that remove matching rows."""
    files = statement.plan(None if condition is None else condition.predicate)
    if condition is None:
        return _without_files(statement, files)
    if (gone := _whole_files(statement, condition, files)) is not None:
        return _without_files(statement, gone)
    parts = split(statement.base, _hits(statement, condition, files))
    kept: list[DataFrame] = []
    if rewritten := [hit.file for hit in parts.rewritten]:
        with translated():
            kept.append(
                condition.others(statement.frame(rewritten))
                if condition.is_repeatable
                else statement.frame(rewritten, without=parts.rewritten)
            )
    written = rewrite(statement, parts, kept, statement.target())
    counts = {"numDeletedRows": parts.num_rows, "numCopiedRows": written.num_rows}
    return written.actions, {**written.metrics, **counts}


def update(
    statement: Statement, columns: Sequence[Path], values: Expressions, condition: Condition
) -> Outcome:
    """Set columns of matching rows to new values."""
    statement.refuse_changes()
    updating = _Updating(statement, columns, values, condition)
    hits = _hits(statement, condition, statement.plan(condition.predicate))
    if not hits:
        with translated():  # a wrong value is refused all the same
            resolved(updating.changed(statement.frame([])))
        return Outcome(None, {"num_affected_rows": 0})
    parts = split(statement.base, hits)
    new: list[DataFrame] = []
    with translated():
        if parts.rewritten:
            new.append(updating.all_rows(parts.rewritten))
        if changed := [*parts.whole, *parts.vectored]:
            new.append(updating.hit_rows(changed))
    written = rewrite(statement, parts, new, statement.target(), parts.num_rows)
    counted = {
        **written.metrics,
        "numUpdatedRows": parts.num_rows,
        "numCopiedRows": written.num_rows - parts.num_rows,
    }
    operation = OperationInfo("UPDATE", {"predicate": as_text([f"({condition.shown})"])}, counted)
    committed = statement.commit(written.actions, operation)
    return Outcome(committed, {"num_affected_rows": parts.num_rows})


def _hits(statement: Statement, condition: Condition, files: Sequence[AddFile]) -> list[Hit]:
    """Find the matching rows of files."""
    with translated():
        found = condition.matching(statement.frame(files, located=True)).select(FILE, ROW)
    return find_hits(found, Files(statement.base, files))


class _Updating:
    """Adds columns with the new values to the old rows."""

    def __init__(
        self,
        statement: Statement,
        columns: Sequence[Path],
        values: Expressions,
        condition: Condition,
    ) -> None:
        self._statement = statement
        self._condition = condition
        self._schema = statement.target().schema
        self._columns = columns
        self._values = values
        tops = [fold(path[0]) for path in columns]
        for path in columns:
            field = field_of(self._schema, path[0], statement.base.label)
            refuse_generated(field)
            if len(path) == 1 and tops.count(fold(path[0])) > 1:
                raise InvalidArgumentError(f"Column {field.name!r} is set twice.")

    def all_rows(self, hits: Sequence[Hit]) -> DataFrame:
        """Return all rows of files, matching rows with their new values."""
        files = [hit.file for hit in hits]
        if not self._condition.is_repeatable:
            return self.hit_rows(hits).union(self._statement.frame(files, without=hits))
        rows = named(self._statement.frame(files), self._condition.alias)
        return self.changed(rows, self._condition.holds())

    def hit_rows(self, hits: Sequence[Hit]) -> DataFrame:
        """Return the matching rows of files, with their new values."""
        if not self._condition.is_repeatable:
            return self.changed(self._statement.rows_of(hits))
        rows = self._statement.frame([hit.file for hit in hits])
        return self.changed(self._condition.matching(rows))

    def changed(self, rows: DataFrame, is_hit: Column | None = None) -> DataFrame:
        """Give rows their new values, or those that match; refuse values of a wrong type."""
        marked = rows.withColumn(_HIT, F.lit(True) if is_hit is None else is_hit)
        wide, names = self._values.beside(marked)
        types = {item.name: item.type for item in from_spark(wide.select(*names).schema).fields}
        changed: dict[str, Column] = {}
        for path, name in zip(self._columns, names, strict=True):
            top = field_of(self._schema, path[0], self._statement.base.label)
            before = changed.get(top.name, F.col(quoted(top.name)))
            changed[top.name] = within(F.col(name), types[name], before, top, path)
        columns = [
            F.when(F.col(_HIT), changed[name]).otherwise(F.col(quoted(name))).alias(name)
            if (name := field.name) in changed
            else F.col(quoted(name))
            for field in self._schema.fields
        ]
        new = with_lengths(wide.select(*columns, F.col(_HIT)), self._schema, only=F.col(_HIT))
        new = with_generated(new, self._schema, only=F.col(_HIT))
        properties = self._statement.base.metadata.configuration
        return checked(new, self._schema, properties, only=F.col(_HIT)).drop(_HIT)


def within(
    value: Column, found: DataType, before: Column, top: StructField, path: Sequence[str]
) -> Column:
    """Put a value into a column, or into a field of a struct column."""
    field = top
    for name in path[1:]:
        if not isinstance(field.type, StructType):
            raise InvalidArgumentError(
                f"{'.'.join(path)} is not a field: {field.name} is not a struct."
            )
        field = field_of(field.type, name, top.name)
    typed = assigned(value, found, field.type, tuple(path))
    return _placed(typed, before, top.type, path[1:])


def _placed(value: Column, before: Column, type_: DataType, path: Sequence[str]) -> Column:
    """Return a struct with one value replaced; a NULL struct becomes a struct."""
    if not path:
        return value
    assert isinstance(type_, StructType)
    fields = []
    for field in type_.fields:
        kept = before.getField(field.name)
        is_meant = fold(field.name) == fold(path[0])
        new = _placed(value, kept, field.type, path[1:]) if is_meant else kept
        fields.append(new.alias(field.name))
    return F.struct(*fields)


def refuse_generated(field: StructField) -> None:
    """Refuse to assign to a generated or identity column."""
    if GENERATION in field.metadata or any(key.startswith(IDENTITY) for key in field.metadata):
        raise InvalidArgumentError(
            f"Column {field.name!r} is generated.", remedy="Set the columns it is made from."
        )


def field_of(schema: StructType, name: str, where: str) -> StructField:
    """Find a column; names are not case-sensitive."""
    for field in schema.fields:
        if fold(field.name) == fold(name):
            return field
    names = [field.name for field in schema.fields]
    raise InvalidArgumentError(
        f"{where} has no column {name!r}.{did_you_mean(name, names)}",
        remedy=f"Name one of its columns: {', '.join(names)}.",
    )


# Files


def _whole_files(
    statement: Statement, condition: Condition, files: Sequence[AddFile]
) -> list[AddFile] | None:
    """Choose files by a condition on partition values; None if it uses other columns."""
    # Spark evaluates it once for each combination of values, without reading rows.
    if condition.has_subqueries or not statement.base.partition_columns or not files:
        return None
    try:
        with quietly():
            chosen = resolved(
                condition.matching(scan.partitions(statement.spark, statement.base, files))
            )
    except AnalysisException:
        return None
    with translated():
        numbers = {row[scan.FILE] for row in chosen.select(scan.FILE).collect()}
    groups = scan.by_partition(statement.base, files)
    return [file for n, group in enumerate(groups.values()) if n in numbers for file in group]


def _without_files(
    statement: Statement, files: Sequence[AddFile]
) -> tuple[list[Action], dict[str, int]]:
    counted = {**removed_metrics(files), "numAddedFiles": 0}
    records = [num_records(file) for file in files]
    if all(count is not None for count in records):
        gone = [file.deletion_vector.cardinality for file in files if file.deletion_vector]
        counted["numDeletedRows"] = sum(count or 0 for count in records) - sum(gone)
    return statement.removed(files), counted


@dataclass(frozen=True)
class Rewritten:
    """What was written in the place of rows, and the actions and metrics of their change."""

    num_rows: int
    actions: list[Action]
    metrics: dict[str, int]  # of files, under Delta's names


def rewrite(
    statement: Statement,
    parts: Split,
    frames: Sequence[DataFrame],
    target: Target,
    num_new: int = 0,
    *,
    at_least: bool = False,
) -> Rewritten:
    """Write the rows of all frames in the place of those in `parts`.

    Raises `InvariantError` unless `num_new` of them, or `at_least` as many, are new.
    """
    added = statement.stage_conformed(reduce(DataFrame.union, frames), target) if frames else []
    gone = [hit.file for hit in (*parts.whole, *parts.rewritten)]
    num_rows = sum(num_records(file) or 0 for file in added)
    read = [*added, *(hit.file for hit in parts.rewritten)]
    wanted = num_new + sum(hit.live - len(hit.rows) for hit in parts.rewritten)
    is_wrong = num_rows < wanted if at_least else num_rows != wanted
    if is_wrong and all(num_records(file) is not None for file in read):
        raise InvariantError(
            f"{num_rows} rows were written in the place of {wanted}: what the statement reads gave"
            " other rows the second time. Nothing was committed."
        )
    metrics = {
        **removed_metrics(gone),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(file.size for file in added),
    }
    if parts.vectored:
        again = sum(1 for hit in parts.vectored if hit.file.deletion_vector is not None)
        metrics["numDeletionVectorsAdded"] = len(parts.vectored)
        metrics |= {"numDeletionVectorsRemoved": again, "numDeletionVectorsUpdated": again}
    marked = statement.with_vectors(vectors(statement.base, parts.vectored))
    return Rewritten(num_rows, [*statement.removed(gone), *marked, *added], metrics)
