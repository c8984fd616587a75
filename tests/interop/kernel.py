"""Delta's Java kernel and delta-storage's catalog clients, driven from Python.

They run in the JVM of a Spark session, which resolved them, and are reached through its gateway: no
code of ours runs there.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

CLIENTS = "org.apache.spark.sql.delta.coordinatedcommits.UCTokenBasedRestClientFactory$"


class Kernel:
    """The kernel's client for catalog-managed tables, on one server."""

    def __init__(self, spark: SparkSession, address: str, *, older: bool = False) -> None:
        self.spark = spark
        self.java: Any = spark.sparkContext._jvm
        self.delta = self.java.io.delta.kernel
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        self.engine = self.delta.defaults.engine.DefaultEngine.create(hadoop)
        options = self.java.java.util.HashMap()
        options.put("uri", address)
        options.put("token", "none")
        if older:
            options.put("deltaRestApi.enabled", "false")
        self.client = self.scala_object(CLIENTS).createUCClient(options)
        self.tables = self.delta.unitycatalog.UCCatalogManagedClient(self.client)

    def scala_object(self, name: str) -> Any:
        """Return the one object of a Scala class that has one."""
        loader = self.java.java.lang.Thread.currentThread().getContextClassLoader()
        found = self.java.java.lang.Class.forName(name, True, loader)
        return found.getField("MODULE$").get(None)

    def optional(self, value: int | None) -> Any:
        if value is None:
            return self.java.java.util.Optional.empty()
        # A number given to the gateway would come out there as an Integer.
        return self.java.java.util.stream.LongStream.of(value).boxed().findFirst()

    def identifier(self, name: str) -> Any:
        return self.delta.unitycatalog.UCTableIdentifier("main", "default", name)

    def load(
        self,
        table: Any,
        name: str = "t",
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Load a snapshot: the latest, of a version, or of a time."""
        return self.tables.loadSnapshot(
            self.engine,
            table.id,
            table.location,
            self.identifier(name),
            self.optional(version),
            self.optional(timestamp_ms),
        )

    # Reading

    def rows(self, snapshot: Any) -> list[tuple[Any, ...]]:
        """Read all rows of a snapshot, as an engine on the kernel does."""
        scan = snapshot.getScanBuilder().build()
        state = scan.getScanState(self.engine)
        physical = self.delta.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
        found: list[tuple[Any, ...]] = []
        for batch in each(scan.getScanFiles(self.engine)):
            for file in each(batch.getRows()):
                found += self._rows_of(state, file, physical)
        return sorted(found)

    def _rows_of(self, state: Any, file: Any, physical: Any) -> list[tuple[Any, ...]]:
        utils = self.delta.internal.util.Utils
        status = self.delta.internal.InternalScanFileUtils.getAddFileStatus(file)
        read = self.engine.getParquetHandler().readParquetFiles(
            utils.singletonCloseableIterator(status), physical, self.optional(None)
        )
        batches = self.java.java.util.ArrayList()
        for result in each(read):
            batches.add(result.getData())
        data = utils.toCloseableIterator(batches.iterator())
        logical = self.delta.Scan.transformPhysicalData(self.engine, state, file, data)
        return [self._row(row) for batch in each(logical) for row in each(batch.getRows())]

    def _row(self, row: Any) -> tuple[Any, ...]:
        values: list[Any] = []
        for place, field in enumerate(row.getSchema().fields()):
            kind = field.getDataType().toString()
            values.append(None if row.isNullAt(place) else READERS[kind](row, place))
        return tuple(values)

    # Writing

    def append(self, snapshot: Any, folder: Path, *rows: dict[str, Any]) -> Any:
        """Append rows; return the result of the commit."""
        builder = snapshot.buildUpdateTableTransaction("tests", self.delta.Operation.WRITE)
        return self.write(builder.build(self.engine), folder, *rows)

    def write(self, transaction: Any, folder: Path, *rows: dict[str, Any]) -> Any:
        """Write rows as Parquet files, and commit them."""
        utils = self.delta.internal.util.Utils
        state = transaction.getTransactionState(self.engine)
        nothing = self.java.java.util.HashMap()
        schema = transaction.getSchema(self.engine)
        logical = utils.toCloseableIterator(self._batches(schema, folder, rows).iterator())
        physical = self.delta.Transaction.transformLogicalData(self.engine, state, logical, nothing)
        context = self.delta.Transaction.getWriteContext(self.engine, state, nothing)
        files = self.engine.getParquetHandler().writeParquetFiles(
            context.getTargetDirectory(), physical, context.getStatisticsColumns()
        )
        added = self.delta.Transaction.generateAppendActions(self.engine, state, files, context)
        actions = self.delta.utils.CloseableIterable.inMemoryIterable(added)
        return transaction.commit(self.engine, actions)

    def create(self, name: str, table_id: str, location: str, schema: Any) -> Any:
        """Make version 0 of a table at a place that was given for it, and have it named."""
        transaction = self.tables.buildCreateTableTransaction(
            table_id, location, schema, "tests", self.identifier(name)
        ).build(self.engine)
        nothing = self.delta.utils.CloseableIterable.emptyIterable()
        return transaction.commit(self.engine, nothing)

    def _batches(self, schema: Any, folder: Path, rows: tuple[dict[str, Any], ...]) -> Any:
        """Return rows to the JVM by way of a file, which the kernel reads itself."""
        file = folder / f"{uuid.uuid4()}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        status = self.delta.utils.FileStatus.of(str(file), file.stat().st_size, 0)
        utils = self.delta.internal.util.Utils
        read = self.engine.getJsonHandler().readJsonFiles(
            utils.singletonCloseableIterator(status), schema, self.optional(None)
        )
        batches = self.java.java.util.ArrayList()
        for batch in each(read):
            batches.add(self.delta.data.FilteredColumnarBatch(batch, self.optional(None)))
        return batches


READERS = {
    "long": lambda row, place: row.getLong(place),
    "integer": lambda row, place: row.getInt(place),
    "string": lambda row, place: row.getString(place),
    "double": lambda row, place: row.getDouble(place),
    "boolean": lambda row, place: row.getBoolean(place),
}


def each(iterator: Any) -> Any:
    """Walk through an iterator of the kernel's, and close it."""
    try:
        while iterator.hasNext():
            yield iterator.next()
    finally:
        iterator.close()
