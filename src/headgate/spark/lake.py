"""A lake: read and write the tables of a session as DataFrames and with SQL.

A read is bound to a version when it is requested. Every write is a transaction of its own that
either becomes one commit or leaves nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from headgate.arguments import When, checked
from headgate.client import arrow_io
from headgate.client.session import Session
from headgate.client.table_definition import TableDefinition
from headgate.data.arrow_types import delta_schema
from headgate.errors import InvalidArgumentError
from headgate.protocol.schema.types import StructType
from headgate.spark import ddl, dml, sql_runner
from headgate.spark.conditions import Expression, Expressions
from headgate.spark.dml import Outcome
from headgate.spark.engine import Engine
from headgate.spark.failures import translated
from headgate.spark.insert import Insertion, insert
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.schema_conversion import all_nullable, from_spark, path_of, spark_schema
from headgate.spark.statement import Statement

# pandas, polars and pyarrow bring no types that could be named here.
AnyRows: TypeAlias = DataFrame | Any


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
        where: Expression | None = None,
    ) -> DataFrame:
        """Return a table's rows, now or at a past version or time; `where` skips files."""
        is_past = (version, as_of, sequence) != (None, None, None)
        snapshot = self.session.snapshot(name, version, as_of, sequence)
        return self._engine.read(snapshot, where, is_past=is_past)

    def append(self, name: str, rows: AnyRows, *, merge_schema: bool = False) -> Outcome:
        """Add rows; with `merge_schema` also the columns the table does not have yet.

        Here and elsewhere rows are a DataFrame of Spark, pandas or polars, an Arrow table, or a
        list of dicts.
        """
        with self._engine.statement(name) as statement:
            frame = self._source(statement, rows, statement.base.schema)
            return insert(statement, frame, Insertion(merges_schema=merge_schema))

    def overwrite(
        self,
        name: str,
        rows: AnyRows,
        *,
        where: Expression | None = None,
        dynamic: bool = False,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
    ) -> Outcome:
        """Replace all rows, those that match, or those of some partitions.

        With `where` every new row must match it too; with `dynamic` only partitions that get new
        rows lose their old ones. With `overwrite_schema` the table gets the rows' columns too, and
        may be partitioned differently.
        """
        if overwrite_schema and (where is not None or dynamic or merge_schema):
            raise InvalidArgumentError(
                "`overwrite_schema` cannot be combined with `where`, `dynamic` or `merge_schema`."
            )
        if partition_by is not None and not overwrite_schema:
            raise InvalidArgumentError("`partition_by` needs `overwrite_schema=True`.")
        with self._engine.statement(name) as statement:
            columns = StructType(()) if overwrite_schema else statement.base.schema
            frame = self._source(statement, rows, columns)
            if overwrite_schema:
                kept = statement.base.partition_columns if partition_by is None else partition_by
                definition = TableDefinition.like(
                    statement.base, all_nullable(from_spark(frame.schema)), kept
                )
                return ddl.replace(statement, definition, frame)
            condition = None if where is None else self._engine.condition(where, statement.base)
            how = Insertion(
                replaces=True, where=condition, dynamic=dynamic, merges_schema=merge_schema
            )
            return insert(statement, frame, how)

    def create(
        self,
        name: str,
        rows: AnyRows,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
    ) -> None:
        """Create a table with these rows and their columns, in one step."""
        frame = self._frame(rows, StructType(()))
        schema = all_nullable(from_spark(frame.schema))
        definition = TableDefinition.parse(schema, partition_by, properties, comment)
        ddl.create_filled(self._engine, name, definition, frame, "CREATE TABLE AS SELECT")

    def delete(self, name: str, where: Expression | None = None) -> Outcome:
        """Delete the rows that match, or all."""

        def run(statement: Statement) -> Outcome:
            condition = None if where is None else self._engine.condition(where, statement.base)
            return dml.delete(statement, condition)

        return self._engine.redo(name, run)

    def update(
        self, name: str, values: Mapping[str, Expression], where: Expression | None = None
    ) -> Outcome:
        """Set columns of matching rows; each value is a SQL expression or a Column.

        `s.a` is a field of the column `s`; put a name that contains a dot in backquotes.
        """
        columns = [path_of(key) for key in values]

        def run(statement: Statement) -> Outcome:
            condition = self._engine.condition("true" if where is None else where, statement.base)
            return dml.update(statement, columns, Expressions(tuple(values.values())), condition)

        return self._engine.redo(name, run)

    def merge(
        self,
        name: str,
        source: AnyRows,
        on: Expression,
        clauses: Sequence[Clause],
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        merge_schema: bool = False,
    ) -> Outcome:
        """Update, insert and delete rows by matching a source with the table."""
        with self._engine.statement(name) as statement:
            frame = self._source(statement, source, statement.base.schema)
            with translated():
                kept = statement.aside(frame)
            merging = Merge(kept, on, clauses, target_alias, source_alias, evolves=merge_schema)
            return merge(statement, merging)

    def sql(self, text: str) -> DataFrame:
        """Run SQL statements, and return the result of the last one."""
        return sql_runner.run(self._engine, text)

    def _source(self, statement: Statement, rows: AnyRows, schema: StructType) -> DataFrame:
        """Convert rows that a statement writes, and record which tables they are read from."""
        frame = self._frame(rows, schema)
        statement.add_scans(self._engine.scans_of(frame))
        return frame

    def _frame(self, rows: AnyRows, schema: StructType) -> DataFrame:
        """Convert rows for a table of a schema to a DataFrame of Spark."""
        if isinstance(rows, DataFrame):
            return rows
        table = arrow_io.as_table(rows, schema)
        # Spark alone would take local timestamps for instants in the session's time zone.
        types = spark_schema(delta_schema(table.schema))
        with translated():
            frame: DataFrame = self.spark.createDataFrame(table, types)
        return frame
