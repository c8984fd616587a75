"""A lake: the tables of a session as DataFrames, in and out.

Reads are bound to a version when they are asked for. Every write is a transaction of its own that
either becomes one commit or leaves nothing; what was read to make it is part of the proposal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark calls it

from headgate.client.session import Session
from headgate.client.table import Table, When
from headgate.client.transaction import Committed, Operation, as_text
from headgate.errors import ConflictError, InvalidArgumentError
from headgate.log.snapshots import Snapshot
from headgate.log.statistics import num_records
from headgate.protocol.actions import Action, AddFile, TableId, Version
from headgate.protocol.conflicts import Scan
from headgate.protocol.schema_evolution import merged
from headgate.spark import dml, scan, sessions
from headgate.spark.conditions import Condition, condition_of
from headgate.spark.dml import Assignment, Outcome
from headgate.spark.evolving import evolved
from headgate.spark.failures import refusal, translated
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.paths import url_of
from headgate.spark.statement import Statement, Writing
from headgate.spark.types import from_spark, quoted
from headgate.spark.write import Target
from headgate.storage import locations

Result = TypeVar("Result")

_TRIES: Final = 3  # of a statement whose sources are ours to read again
_REMEMBERED: Final = 256  # reads that a later write may turn out to be made from


class Lake:
    """Tables as DataFrames. Safe for many threads, as far as Spark is."""

    def __init__(
        self,
        spark: SparkSession,
        session: Session,
        *,
        sync_data: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Check the Spark session, and take `options` for every write of Parquet files.

        `sync_data=False` leaves it to the file system when data files reach the disk.
        """
        sessions.check(spark)
        self.spark = spark
        self.session = session
        self._writing = Writing(sync_data=sync_data, options=options)
        self._reads: OrderedDict[tuple[TableId, Version], tuple[Table, Snapshot]] = OrderedDict()

    # Reading

    def read(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Give a table's rows, of now or as they were; `where` keeps files from being read."""
        table = self.session.table(name)
        snapshot = table.snapshot(version, as_of, sequence)
        return self.read_snapshot(table, snapshot, where)

    def read_snapshot(
        self, table: Table, snapshot: Snapshot, where: str | None = None
    ) -> DataFrame:
        """Give the rows of a snapshot."""
        self._remember(table, snapshot)
        if where is None:
            return scan.dataframe(self.spark, snapshot, snapshot.files())
        condition = condition_of(where, snapshot)
        frame = scan.dataframe(self.spark, snapshot, snapshot.files(condition.predicate))
        with translated():
            return condition.matching(frame)

    # Writing

    def append(self, name: str, rows: DataFrame, *, merge_schema: bool = False) -> Committed:
        """Add rows; with `merge_schema` also the columns the table does not have yet."""
        with self._statement(name) as statement:
            statement.add_scans(self._scans_of(rows))
            changes, target = _evolved(statement, rows, merge_schema=merge_schema)
            added = statement.stage(rows, target)
            operation = Operation("WRITE", _mode("Append", statement.base), written(added))
            return statement.commit([*changes, *added], operation)

    def overwrite(
        self,
        name: str,
        rows: DataFrame,
        *,
        where: str | None = None,
        dynamic: bool = False,
        merge_schema: bool = False,
    ) -> Committed:
        """Put rows in place of all that are there, of those that match, or partition by partition.

        With `where` every new row must match it too; with `dynamic` only partitions that get new
        rows lose their old ones.
        """
        if where is not None and dynamic:
            raise InvalidArgumentError("An overwrite is of matching rows or of partitions: of one.")
        with self._statement(name) as statement:
            statement.refuse_changes()
            statement.add_scans(self._scans_of(rows))
            changes, target = _evolved(statement, rows, merge_schema=merge_schema)
            parameters = _mode("Overwrite", statement.base)
            gone: list[Action]
            if where is not None:
                condition = condition_of(where, statement.base)
                gone, _ = dml.deletion(statement, condition)
                rows = _all_matching(rows, condition)
                parameters["predicate"] = where
                added = statement.stage(rows, target)
            else:
                added = statement.stage(rows, target)
                files = statement.plan()
                if dynamic:
                    touched = {_partition(file) for file in added}
                    files = [file for file in files if _partition(file) in touched]
                    parameters["partitionOverwriteMode"] = "dynamic"
                gone = statement.removed(files)
            operation = Operation("WRITE", parameters, written(added))
            return statement.commit([*changes, *gone, *added], operation)

    def delete(self, name: str, where: str | None = None) -> Outcome:
        """Delete the rows that match, or all."""

        def run(statement: Statement) -> Outcome:
            condition = None if where is None else condition_of(where, statement.base)
            return dml.delete(statement, condition)

        return self.redo(name, run)

    def update(self, name: str, values: Mapping[str, str], where: str | None = None) -> Outcome:
        """Give columns of matching rows new values, each an expression in SQL."""
        assignments = [Assignment(tuple(key.split(".")), value) for key, value in values.items()]

        def run(statement: Statement) -> Outcome:
            return dml.update(statement, assignments, condition_of(where or "true", statement.base))

        return self.redo(name, run)

    def merge(
        self,
        name: str,
        source: DataFrame,
        on: str,
        clauses: Sequence[Clause],
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        evolves: bool = False,
    ) -> Outcome:
        """Change, add and delete rows by a source that is matched with the table."""
        with self._statement(name) as statement:
            statement.add_scans(self._scans_of(source))
            merging = Merge(
                statement.aside(source),
                on,
                clauses,
                target_alias=target_alias,
                source_alias=source_alias,
                evolves=evolves,
            )
            return merge(statement, merging)

    # Inside

    def redo(self, name: str, run: Callable[[Statement], Result]) -> Result:
        """Run a statement, and again on the newest version where others came in between.

        Only for one whose every source is read anew each time.
        """
        for _ in range(_TRIES - 1):
            try:
                with self._statement(name) as statement:
                    return run(statement)
            except ConflictError:
                continue
        with self._statement(name) as statement:
            return run(statement)

    def _statement(self, name: str) -> Statement:
        return Statement(self.spark, self.session.table(name), self._writing)

    def _remember(self, table: Table, snapshot: Snapshot) -> None:
        self._reads[table.id, snapshot.version] = (table, snapshot)
        while len(self._reads) > _REMEMBERED:
            self._reads.popitem(last=False)

    def _scans_of(self, rows: DataFrame) -> list[Scan]:
        """Find which of our tables rows are made from, and at which version they were read."""
        if not self._reads:
            return []
        with translated():
            files = scan.input_files(rows)
        scans: dict[TableId, Scan] = {}
        reads = sorted(self._reads.items(), key=lambda read: read[0][1])
        for _, (table, snapshot) in reads:
            inside = {url for url in files if locations.contains(snapshot.location, url)}
            if not inside or table.id in scans:
                continue
            # The oldest version that has all of them: what came later may have been missed.
            if inside <= {url_of(snapshot.location, file) for file in snapshot.files()}:
                scans[table.id] = Scan(table_id=table.id, version=snapshot.version)
        return list(scans.values())


def written(added: Sequence[AddFile]) -> dict[str, int]:
    """Count what a write brought, in Delta's words."""
    return {
        "numFiles": len(added),
        "numOutputRows": sum(num_records(file) or 0 for file in added),
        "numOutputBytes": sum(file.size for file in added),
    }


def _evolved(
    statement: Statement, rows: DataFrame, *, merge_schema: bool
) -> tuple[list[Action], Target | None]:
    """Give what a write changes in the schema: nothing, unless it may and there is something."""
    if not merge_schema:
        return [], None
    before = statement.base.schema
    after = merged(before, from_spark(rows.schema))
    return ([], None) if after == before else evolved(statement, after)


def _mode(mode: str, base: Snapshot) -> dict[str, object]:
    return {"mode": mode, "partitionBy": as_text(base.partition_columns)}


def _partition(file: AddFile) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(file.partition_values.items()))


def _all_matching(rows: DataFrame, condition: Condition) -> DataFrame:
    """Refuse rows that an overwrite by a condition must not bring."""
    first = rows.columns[0]
    said = F.lit(f"A row does not match {condition.shown}: ")
    row = F.substring(F.to_json(F.struct(*[F.col(quoted(name)) for name in rows.columns])), 1, 300)
    guarded = F.when(condition.holds(), F.col(quoted(first)))
    return rows.withColumn(first, guarded.otherwise(F.raise_error(refusal(said, row))))
