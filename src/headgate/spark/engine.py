"""Shared by all statements on a lake: read tables, and run writes, again after a conflict.

Remembers which tables were read, so that a write of their rows records it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from cachetools import FIFOCache
from pyspark.sql import DataFrame, SparkSession

from headgate.api.messages import Resolved
from headgate.client.open_transaction import Transaction, scan_of
from headgate.client.session import Session
from headgate.errors import ConflictError
from headgate.protocol.actions import AddFile, TableId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.expressions.predicates import Predicate
from headgate.spark import scan, sessions
from headgate.spark.conditions import Condition, Expression, condition_of, moment_of
from headgate.spark.failures import translated
from headgate.spark.file_names import urls_of
from headgate.spark.sessions import resolved
from headgate.spark.statement import Cut, Statement
from headgate.spark.write import Staging
from headgate.sql.rewrite import Moment
from headgate.storage import locations
from headgate.table.snapshot import Snapshot

Result = TypeVar("Result")

_TRIES: Final = 3  # of a statement whose sources are ours to read again
_REMEMBERED: Final = 256  # reads that a later write may turn out to be made from


class Engine:
    """Spark and a session, put to work on tables. Safe for many threads, as far as Spark is."""

    def __init__(
        self,
        spark: SparkSession,
        session: Session,
        *,
        sync_data: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        sessions.check(spark)
        sessions.warn_of_slow_settings(spark)
        self.spark = spark
        self.session = session
        self.transaction: Transaction | None = None  # that all statements are part of
        self._staging = partial(Staging, sync=sync_data, options=options or {})
        self._lock = threading.Lock()
        self._reads: FIFOCache[tuple[TableId, Version], Snapshot] = FIFOCache(_REMEMBERED)
        self._outside: Engine | None = None
        self._is_fed = True

    def within(self, transaction: Transaction, *, feeds: bool = True) -> Engine:
        """Return an engine whose statements are part of a transaction.

        With `feeds` a program gets the rows of queries and may use them in what it writes.
        """
        inner = copy.copy(self)
        inner.session = self.session.inside(transaction)
        inner.transaction = transaction
        inner._reads = FIFOCache(_REMEMBERED)  # its versions are not those of other readers
        inner._outside = self
        inner._is_fed = feeds
        return inner

    def read(
        self, snapshot: Snapshot, where: Expression | None = None, *, is_past: bool = False
    ) -> DataFrame:
        """Return the matching rows of a snapshot. Reads of the past are not remembered."""
        sessions.check(self.spark)
        condition = None if where is None else self.condition(where, snapshot)
        predicate = None if condition is None else condition.predicate
        files = snapshot.files(predicate)
        if not is_past:
            self.remember(snapshot, predicate, files)
        frame = scan.dataframe(self.spark, snapshot, files)
        if condition is None:
            return frame
        with translated(writes=False):
            return resolved(condition.matching(frame))

    def condition(
        self, where: Expression, snapshot: Snapshot, moment: Moment | None = None
    ) -> Condition:
        """Parse a condition on the rows of one table; its current time is `moment`, or now."""
        moment = moment or moment_of(self.session.clock.now_ms())
        return condition_of(self.spark, where, snapshot, moment)

    def statement(self, name: str, resolved: Resolved | None = None) -> Statement:
        """Begin a statement that writes to a table, on its latest version or as resolved."""
        sessions.check(self.spark)
        resolved = resolved or self.session.resolve(name)
        table = self.session.open(resolved)
        return Statement(self.spark, table, self._staging, Cut(self.session, resolved))

    def staging(self) -> Staging:
        """Return the folder for files of a table that is being created."""
        return self._staging(str(self.session.ids.ordered()), self.session.clock.now_ms())

    def redo(
        self, name: str, run: Callable[[Statement], Result], resolved: Resolved | None = None
    ) -> Result:
        """Run a statement; after a conflict, run it again on the latest version.

        Every source must be read again each time. The first run uses `resolved`, if given.
        """
        for _ in range(_TRIES - 1):
            try:
                with self.statement(name, resolved) as statement:
                    return run(statement)
            except ConflictError:
                if statement.reads_views:  # they stay as they were, and so would the conflict
                    raise
            resolved = None
        with self.statement(name) as statement:
            return run(statement)

    def remember(
        self, snapshot: Snapshot, where: Predicate | None, files: Sequence[AddFile]
    ) -> None:
        """Remember a read of these files: a later write, or the transaction, may use its rows."""
        if snapshot.table_id is None:
            return
        with self._lock:
            self._reads[snapshot.table_id, snapshot.version] = snapshot
        if self.transaction is not None:
            self.transaction.record(scan_of(snapshot, where, files, fed=self._is_fed))

    def scans_of(self, rows: DataFrame) -> list[Scan]:
        """Find which of our tables rows are made from, and at which version they were read."""
        outside = [] if self._outside is None else self._outside.scans_of(rows)
        with self._lock:
            reads = sorted(self._reads.items(), key=lambda read: read[0][1])
        if not reads:
            return outside
        with translated():
            files = frozenset(map(locations.normalize, rows.inputFiles()))
        scans: dict[TableId, Scan] = {}
        for (table_id, version), snapshot in reads:
            inside = {url for url in files if locations.contains(snapshot.location, url)}
            if not inside or table_id in scans:
                continue
            # The oldest version that has all of them: what came later may have been missed.
            if inside.issubset(urls_of(snapshot.location, snapshot.files())):
                scans[table_id] = Scan(table_id=table_id, version=version)
        return [*outside, *scans.values()]
