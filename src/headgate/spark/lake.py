"""A lake: the tables of a session as DataFrames, in and out, and in SQL.

Reads are bound to a version when they are asked for. Every write is a transaction of its own that
either becomes one commit or leaves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from headgate.arguments import When, checked
from headgate.client.making import Wanted
from headgate.client.session import Session
from headgate.errors import InvalidArgumentError
from headgate.spark import dml, script, tables
from headgate.spark.conditions import Expressions
from headgate.spark.dml import Outcome
from headgate.spark.engine import Engine
from headgate.spark.inserting import Insertion, insert
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.statement import Statement
from headgate.spark.types import all_nullable, from_spark, parts_of


@checked
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
        self.spark = spark
        self.session = session
        self._engine = Engine(spark, session, sync_data=sync_data, options=options)

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
        is_past = (version, as_of, sequence) != (None, None, None)
        snapshot = table.snapshot(version, as_of, sequence)
        return self._engine.read(snapshot, where, is_past=is_past)

    def append(self, name: str, rows: DataFrame, *, merge_schema: bool = False) -> Outcome:
        """Add rows; with `merge_schema` also the columns the table does not have yet."""
        with self._engine.statement(name) as statement:
            statement.add_scans(self._engine.scans_of(rows))
            return insert(statement, rows, Insertion(merges_schema=merge_schema))

    def overwrite(
        self,
        name: str,
        rows: DataFrame,
        *,
        where: str | None = None,
        dynamic: bool = False,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
    ) -> Outcome:
        """Put rows in place of all that are there, of those that match, or partition by partition.

        With `where` every new row must match it too; with `dynamic` only partitions that get new
        rows lose their old ones. With `overwrite_schema` the table gets the rows' columns too, and
        may be partitioned anew.
        """
        if overwrite_schema and (where is not None or dynamic or merge_schema):
            raise InvalidArgumentError("Another schema goes with all rows, and with nothing else.")
        if partition_by is not None and not overwrite_schema:
            raise InvalidArgumentError("Partitioning anew goes with overwrite_schema=True.")
        with self._engine.statement(name) as statement:
            statement.add_scans(self._engine.scans_of(rows))
            if overwrite_schema:
                kept = statement.base.partition_columns if partition_by is None else partition_by
                wanted = Wanted.like(statement.base, all_nullable(from_spark(rows.schema)), kept)
                return tables.replace(statement, wanted, rows)
            condition = None if where is None else self._engine.condition(where, statement.base)
            how = Insertion(
                replaces=True, where=condition, dynamic=dynamic, merges_schema=merge_schema
            )
            return insert(statement, rows, how)

    def create(
        self,
        name: str,
        rows: DataFrame,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
    ) -> None:
        """Make a table with these rows and their columns: its name and they come together."""
        schema = all_nullable(from_spark(rows.schema))
        wanted = Wanted.given(schema, partition_by, properties, comment)
        tables.create_filled(self._engine, name, wanted, rows, "CREATE TABLE AS SELECT")

    def delete(self, name: str, where: str | None = None) -> Outcome:
        """Delete the rows that match, or all."""

        def run(statement: Statement) -> Outcome:
            condition = None if where is None else self._engine.condition(where, statement.base)
            return dml.delete(statement, condition)

        return self._engine.redo(name, run)

    def update(self, name: str, values: Mapping[str, str], where: str | None = None) -> Outcome:
        """Give columns of matching rows new values, each an expression in SQL.

        `s.a` is a field of the column `s`; a name with a dot in it stands in backquotes.
        """
        columns = [_path(key) for key in values]

        def run(statement: Statement) -> Outcome:
            condition = self._engine.condition(where or "true", statement.base)
            return dml.update(statement, columns, Expressions(tuple(values.values())), condition)

        return self._engine.redo(name, run)

    def merge(
        self,
        name: str,
        source: DataFrame,
        on: str,
        clauses: Sequence[Clause],
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        merge_schema: bool = False,
    ) -> Outcome:
        """Change, add and delete rows by a source that is matched with the table."""
        with self._engine.statement(name) as statement:
            statement.add_scans(self._engine.scans_of(source))
            merging = Merge(
                statement.aside(source),
                on,
                clauses,
                target_alias=target_alias,
                source_alias=source_alias,
                evolves=merge_schema,
            )
            return merge(statement, merging)

    def sql(self, text: str) -> DataFrame:
        """Run statements of SQL, and give what the last one has to tell."""
        return script.run(self._engine, text)


def _path(key: str) -> tuple[str, ...]:
    """Read the name of a column, or of a field within one."""
    if (parts := parts_of(key)) is not None:
        return parts
    raise InvalidArgumentError(
        f"{key!r} is no name of a column.", remedy="Put odd names in backquotes: `a.b`."
    )
