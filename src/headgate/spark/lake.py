"""A lake: read and write the tables of a session as DataFrames and with SQL.

A read is bound to a version when it is requested. Every write is a transaction of its own that
either becomes one commit or leaves nothing.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from pyspark.sql import DataFrame, SparkSession

from headgate.arguments import When, checked
from headgate.client import arrow_io
from headgate.client.open_transaction import Transaction
from headgate.client.session import Session
from headgate.client.table_definition import TableDefinition
from headgate.data.arrow_types import delta_schema
from headgate.errors import InvalidArgumentError
from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.schema.types import StructType
from headgate.spark import ddl, dml, sql_runner
from headgate.spark.conditions import Expression, Expressions
from headgate.spark.dml import Outcome
from headgate.spark.engine import Engine
from headgate.spark.failures import translated
from headgate.spark.insert import Insertion, insert
from headgate.spark.merge import Clause, Merge, merge
from headgate.spark.schema_conversion import all_nullable, from_spark, path_of, spark_schema
from headgate.spark.sql_runner import Connection
from headgate.spark.statement import Statement

# pandas, polars and pyarrow bring no types that could be named here.
AnyRows: TypeAlias = DataFrame | Any
Result = TypeVar("Result")


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
        self._lock = threading.Lock()
        self._engines: dict[Transaction, Engine] = {}
        self._threads = threading.local()  # the transactions that each is in

    @contextmanager
    def transaction(
        self,
        *,
        isolation: Isolation | str = Isolation.WRITE_SERIALIZABLE,
        read_only: bool = False,
        sequence: int | None = None,
        as_of: When | None = None,
    ) -> Iterator[Transaction]:
        """Make the statements of a block one transaction over any number of tables.

        Inside the block all methods of this lake read tables as of its beginning, with the writes
        of its earlier statements. Leaving it commits, and an exception rolls back. Other threads
        pass the transaction as `txn`.
        """
        self._refuse_second()
        with (
            self.session.transaction(
                isolation=isolation, read_only=read_only, sequence=sequence, as_of=as_of
            ) as transaction,
            self._in(transaction),
        ):
            yield transaction

    def transact(
        self,
        run: Callable[[Transaction], Result],
        *,
        tries: int = 5,
        isolation: Isolation | str = Isolation.WRITE_SERIALIZABLE,
    ) -> Result:
        """Call a function in a transaction, and again after a conflict, at most `tries` times.

        Each call begins with the latest tables. What the last one returned is returned.
        """
        self._refuse_second()

        def inside(transaction: Transaction) -> Result:
            with self._in(transaction):
                return run(transaction)

        return self.session.transact(inside, tries=tries, isolation=isolation)

    def read(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
        where: Expression | None = None,
        txn: Transaction | None = None,
    ) -> DataFrame:
        """Return a table's rows, now or at a past version or time; `where` skips files."""
        engine = self._engine_for(txn)
        is_past = (version, as_of, sequence) != (None, None, None)
        snapshot = engine.session.snapshot(name, version, as_of, sequence)
        return engine.read(snapshot, where, is_past=is_past)

    def append(
        self,
        name: str,
        rows: AnyRows,
        *,
        merge_schema: bool = False,
        txn: Transaction | None = None,
    ) -> Outcome:
        """Add rows; with `merge_schema` also the columns the table does not have yet.

        Here and elsewhere rows are a DataFrame of Spark, pandas or polars, an Arrow table, or a
        list of dicts.
        """
        engine = self._engine_for(txn)
        with engine.statement(name) as statement:
            frame = self._source(engine, statement, rows, statement.base.schema)
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
        txn: Transaction | None = None,
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
        engine = self._engine_for(txn)
        with engine.statement(name) as statement:
            columns = StructType(()) if overwrite_schema else statement.base.schema
            frame = self._source(engine, statement, rows, columns)
            if overwrite_schema:
                kept = statement.base.partition_columns if partition_by is None else partition_by
                definition = TableDefinition.like(
                    statement.base, all_nullable(from_spark(frame.schema)), kept
                )
                return ddl.replace(statement, definition, frame)
            condition = None if where is None else engine.condition(where, statement.base)
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
        ddl.create_filled(self._engine_for(None), name, definition, frame, "CREATE TABLE AS SELECT")

    def delete(
        self, name: str, where: Expression | None = None, *, txn: Transaction | None = None
    ) -> Outcome:
        """Delete the rows that match, or all."""
        engine = self._engine_for(txn)

        def run(statement: Statement) -> Outcome:
            condition = None if where is None else engine.condition(where, statement.base)
            return dml.delete(statement, condition)

        return engine.redo(name, run)

    def update(
        self,
        name: str,
        values: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        txn: Transaction | None = None,
    ) -> Outcome:
        """Set columns of matching rows; each value is a SQL expression or a Column.

        `s.a` is a field of the column `s`; put a name that contains a dot in backquotes.
        """
        engine = self._engine_for(txn)
        columns = [path_of(key) for key in values]

        def run(statement: Statement) -> Outcome:
            condition = engine.condition("true" if where is None else where, statement.base)
            return dml.update(statement, columns, Expressions(tuple(values.values())), condition)

        return engine.redo(name, run)

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
        txn: Transaction | None = None,
    ) -> Outcome:
        """Update, insert and delete rows by matching a source with the table."""
        engine = self._engine_for(txn)
        with engine.statement(name) as statement:
            frame = self._source(engine, statement, source, statement.base.schema)
            with translated():
                kept = statement.aside(frame)
            merging = Merge(kept, on, clauses, target_alias, source_alias, evolves=merge_schema)
            return merge(statement, merging)

    def sql(self, text: str, *, txn: Transaction | None = None) -> DataFrame:
        """Run SQL statements, and return the result of the last one."""
        return sql_runner.run(self._engine_for(txn), text)

    @contextmanager
    def _in(self, transaction: Transaction) -> Iterator[None]:
        """Make the statements of this thread part of a transaction."""
        self._threads.current = transaction
        try:
            yield
        finally:
            self._threads.current = None

    def _refuse_second(self) -> None:
        if getattr(self._threads, "current", None) is not None:
            raise InvalidArgumentError(
                "A transaction is open in this thread already.",
                remedy="End it first, or use transaction.savepoint() for a part of it.",
            )

    def _engine_for(self, txn: Transaction | None) -> Engine:
        """Return the engine for a statement: of a transaction, or outside."""
        transaction = txn or getattr(self._threads, "current", None)
        return self._engine if transaction is None else self._within(transaction)

    def _within(self, transaction: Transaction) -> Engine:
        with self._lock:
            if transaction not in self._engines:
                is_open = [known for known in self._engines if not known.state.is_ended]
                self._engines = {known: self._engines[known] for known in is_open}
                self._engines[transaction] = self._engine.within(transaction)
            return self._engines[transaction]

    def connection(self) -> Connection:
        """Return a connection for SQL whose transactions may extend over several texts."""
        return Connection(self._engine)

    def _source(
        self, engine: Engine, statement: Statement, rows: AnyRows, schema: StructType
    ) -> DataFrame:
        """Convert rows that a statement writes, and record which tables they are read from."""
        frame = self._frame(rows, schema)
        statement.add_scans(engine.scans_of(frame))
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
