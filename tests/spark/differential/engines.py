"""The same operations on three engines: the lake, delta-spark on a plain table, and DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import headgate
from headgate.client.table import Table
from headgate.errors import ConflictError, HeadgateError, RefusedError
from headgate.spark import scan
from headgate.spark.dml import Outcome
from tests.spark.conftest import Water
from tests.spark.differential import delta_spark
from tests.spark.differential.delta_spark import Answer, DeltaSpark
from tests.spark.differential.operations import SOURCE, Operation
from tests.spark.differential.row_comparison import difference
from tests.spark.differential.tables import Table as Wanted
from tests.spark.differential.values import name_of

NAME = "t"
# Metrics of rows, whatever files these are in.
OF_ROWS = (
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
    "numDeletedRows",
    "numUpdatedRows",
)


@dataclass(frozen=True)
class Then:
    """A table as it was once, in both."""

    ours: int
    theirs: int
    rows: pa.Table


class Duck:
    """DuckDB, on a table of its own."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")

    def run(self, text: str) -> tuple[Any, ...] | None:
        """Run a statement, and give what it counted."""
        return self._connection.execute(text).fetchone()

    def put(self, name: str, rows: pa.Table) -> None:
        self._connection.register(name, rows)

    def become(self, rows: pa.Table, table: Wanted) -> None:
        """Take another engine's word, where DuckDB could not say what was done."""
        self.run("DROP TABLE t")
        self.run(table.created().duck or "")
        self.put("others", rows)
        names = ", ".join(name_of(name).duck or "" for name in rows.column_names)
        self.run(f"INSERT INTO t ({names}) SELECT * FROM others")

    def complete(self, table: Wanted) -> None:
        """Compute the generated columns, which are none to DuckDB."""
        for column in table.columns:
            if column.generated is not None:
                self.run(f"UPDATE t SET {column.quoted.duck} = {column.generated.duck}")

    def rows(self) -> pa.Table:
        return self._connection.execute("SELECT * FROM t").to_arrow_table()

    def close(self) -> None:
        self._connection.close()


@dataclass
class Rivals:
    """A table in each engine."""

    water: Water
    delta: DeltaSpark
    folder: Path
    seed: int
    duck: Duck = field(default_factory=Duck)
    done: list[str] = field(default_factory=list)
    then: list[Then] = field(default_factory=list)
    refused: int = 0

    @property
    def path(self) -> Path:
        """Where delta-spark's table lies."""
        return self.folder / "theirs"

    @property
    def table(self) -> Table:
        return self.water.session.table(NAME)

    def create(self, wanted: Wanted) -> None:
        made = wanted.created()
        checks = [
            f"ALTER TABLE {{t}} ADD CONSTRAINT {check.name} CHECK ({check.condition.spark})"
            for check in wanted.checks
        ]
        self.done += [made.spark, *checks]
        statements = [self._theirs(statement) for statement in (made.spark, *checks)]
        self.delta.begin(*map(delta_spark.sql, statements))
        for statement in (made.spark, *checks):
            self.water.lake.sql(statement.replace("{t}", NAME))
        answer = self.delta.end()
        self.expect(answer.error is None, f"delta-spark made no table: {answer.error}")
        self.duck.run(made.duck or "")
        self._remember()

    def run(self, operation: Operation) -> bool:
        """Do the same in each, and compare; return True if it was done, not refused."""
        self.done.append(str(operation))
        source = self._source(operation)
        self.delta.begin(*self._steps(operation))
        error: HeadgateError | None = None
        counts: dict[str, int] = {}
        try:
            counts = self._ours(operation, source)
        except (RefusedError, ConflictError) as refusal:
            error = refusal
        answer = self.delta.end()
        self._compare_refusals(operation, error, answer)
        if error is None:
            self._compare_counts(operation, counts, answer)
        before = self.then[-1]
        self._remember()
        if error is not None:
            self.refused += 1
            return False
        now = self.then[-1]
        if now.ours > before.ours and now.theirs > before.theirs:
            self._compare_metrics()
        self._duck(operation, self.then[-1].rows)
        return True

    def expect(self, holds: bool, message: str) -> None:
        """Say what is wrong, and how it came about."""
        if holds:
            return
        steps = "\n".join(f"{n}. {text}" for n, text in enumerate(self.done))
        raise AssertionError(f"seed {self.seed}: {message}\n{steps}")

    def _remember(self) -> None:
        """Compare the table as it is now, and keep it for later."""
        read = self.delta.new_file()
        self.delta.begin(delta_spark.read(self.path, read), {"do": "table", "path": str(self.path)})
        found = self.water.lake.read(NAME).toArrow()
        answer = self.delta.end()
        self.expect(answer.error is None, f"delta-spark cannot read its table: {answer.error}")
        theirs = pq.read_table(read)
        self._same(found, theirs, "delta-spark")
        self.then.append(Then(self.table.version, answer.done[1], theirs))

    # Each engine

    def _ours(self, operation: Operation, source: DataFrame | None) -> dict[str, int]:
        lake = self.water.lake
        if operation.written is not None:
            assert source is not None
            how = operation.written
            if how.mode == "append":
                return dict(lake.append(NAME, source, merge_schema=how.merges_schema).counts)
            outcome = lake.overwrite(
                NAME,
                source,
                where=how.where,
                dynamic=how.dynamic,
                merge_schema=how.merges_schema,
            )
            return dict(outcome.counts)
        if operation.called is not None:
            return dict(self._called(operation, source).counts)
        assert operation.sql is not None
        metrics = lake.sql(operation.sql.replace("{t}", NAME)).collect()
        return metrics[0].asDict() if metrics else {}

    def _called(self, operation: Operation, source: DataFrame | None) -> Outcome:
        lake, how = self.water.lake, operation.called
        assert how is not None
        if how.on is not None:
            assert source is not None
            return lake.merge(
                NAME,
                source,
                how.on,
                how.clauses,
                target_alias="t",
                source_alias="s",
                merge_schema=how.evolves,
            )
        if how.values is not None:
            return lake.update(NAME, dict(how.values), how.where)
        return lake.delete(NAME, how.where)

    def _steps(self, operation: Operation) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        if operation.source is not None:
            steps.append({"do": "view", "name": SOURCE, "path": str(self.folder / "source")})
        if operation.written is not None:
            written = operation.written
            steps.append(
                {
                    "do": "write",
                    "path": str(self.path),
                    "view": SOURCE,
                    "mode": written.mode,
                    "options": written.options,
                }
            )
        else:
            assert operation.sql is not None
            steps.append(delta_spark.sql(self._theirs(operation.sql)))
        return steps

    def _theirs(self, statement: str) -> str:
        return statement.replace("{t}", f"delta.`{self.path}`")

    def _source(self, operation: Operation) -> DataFrame | None:
        """Put an operation's rows where all engines find them."""
        if operation.source is None:
            return None
        self.duck.put(SOURCE, operation.source)
        path = self.folder / "source"
        pq.write_table(operation.source, path)
        frame = self.water.spark.read.parquet(str(path))
        frame.createOrReplaceTempView(SOURCE)  # where SQL finds it
        return frame

    def _duck(self, operation: Operation, theirs: pa.Table) -> None:
        if operation.duck is None:
            self.duck.become(theirs, operation.after)
            return
        try:
            for statement in operation.duck:
                self.duck.run(statement)
        except duckdb.OutOfRangeException:  # it computes values of rows that no clause is about
            self.duck.become(theirs, operation.after)
            return
        self.duck.complete(operation.after)
        self._same(theirs, self.duck.rows().select(theirs.column_names), "DuckDB")

    # Comparing

    def _compare_refusals(
        self, operation: Operation, error: HeadgateError | None, answer: Answer
    ) -> None:
        if error is None and answer.error is None:
            return
        self.done.append(f"   ours: {error}\n   theirs: {answer.error}")
        self.expect(answer.error is not None, f"we refused, delta-spark did not: {error}")
        self.expect(error is not None, f"delta-spark refused, we did not: {answer.error}")
        self.expect(operation.may_be_refused, "both refused what should be done")

    def _compare_counts(self, operation: Operation, counts: dict[str, int], answer: Answer) -> None:
        theirs = answer.done[-1]
        if theirs and operation.sql is not None and not operation.sql.startswith("INSERT"):
            self.expect(theirs == [counts], f"counts: ours {counts}, delta-spark's {theirs}")
        elif operation.written is not None:
            assert operation.source is not None
            number = operation.source.num_rows
            self.expect(counts.get("num_affected_rows") == number, f"counts: {counts}")

    def _compare_metrics(self) -> None:
        """Compare the row metrics of both histories."""
        ours, theirs = (
            {name: int(str(entry.metrics[name])) for name in OF_ROWS if name in entry.metrics}
            for entry in (self.table.history(1)[0], headgate.open(str(self.path)).history(1)[0])
        )
        # Of whole files that go delta-spark does not always know how many rows they had.
        ours = {name: count for name, count in ours.items() if name in theirs}
        self.expect(ours == theirs, f"metrics: ours {ours}, delta-spark's {theirs}")

    def _same(self, ours: pa.Table, theirs: pa.Table, whose: str) -> None:
        found = difference(ours, theirs)
        self.expect(found is None, f"{whose} differs in {found}")

    # What there is in the end

    def compare_earlier(self, then: Then) -> None:
        """See that both still know an earlier version."""
        found = self.water.lake.read(NAME, version=then.ours).toArrow()
        self._same(found, then.rows, f"our version {then.ours}")
        self._same(self.delta.read(self.path, then.theirs), then.rows, "their version")

    def compare_with(self, whose: str, found: pa.Table) -> None:
        """See that a further reader finds the rows of now."""
        self._same(found, self.then[-1].rows, whose)

    def read_plain(self, path: Path) -> dict[str, pa.Table]:
        """Read a plain table with both of our readers."""
        snapshot = headgate.open(str(path)).snapshot()
        return {
            "our scan": scan.dataframe(self.water.spark, snapshot, snapshot.files()).toArrow(),
            "our Arrow reader": headgate.open(str(path)).to_arrow(),
        }
