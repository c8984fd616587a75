"""One write statement on one table: what it read, what it wrote, and its commit.

A statement outside a transaction is a transaction of one. Its files are in a folder of its own
inside the table, named by the transaction's id. The folder is deleted when the commit is rejected,
and kept when the outcome is unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from headgate import errors
from headgate.api.messages import Resolved
from headgate.api.port import Cuts, require
from headgate.client.open_transaction import scan_of
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Committed, OperationInfo
from headgate.names import TableName
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import Action, AddFile, DeletionVector, Metadata, Protocol, removals
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.features import is_active, unwritable
from headgate.protocol.statistics import with_loose_bounds
from headgate.spark import scan
from headgate.spark.hits import Hit
from headgate.spark.write import HANDLED, Staging, Target, conformed_to, stage_conformed, take_away
from headgate.table.snapshot import Snapshot

_VECTORS_PER_FILE: Final = 1_000
_Key = tuple[str, str, str]
_TIMED: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


def refuse_followed(base: Snapshot) -> None:
    """Refuse to change rows while the change data feed or row tracking is active."""
    for feature in ("changeDataFeed", "rowTracking"):
        if is_active(base.protocol, base.metadata, feature):
            raise errors.UnsupportedFeatureError(
                f"Rows of {base.label} cannot be changed while {feature} is active.",
                remedy="Change them with an engine that keeps it, or switch it off.",
            )


class Cut:
    """Tables as of the sequence of the first one, each resolved and loaded once."""

    def __init__(self, session: Session, first: Resolved | None = None) -> None:
        """Begin with a table that is resolved already, or with none."""
        self._session = session
        self._sequence = None if first is None else first.sequence
        self._resolved: dict[_Key, Resolved | None] = {}
        self._snapshots: dict[_Key, Snapshot] = {}
        if first is not None and first.name is not None:
            self._resolved[TableName.parse(first.name).key] = first

    def find(self, name: TableName) -> Resolved | None:
        """Resolve a table; return None if no table has the name."""
        if name.key not in self._resolved:
            found = self._session.find(str(name), self._sequence)
            self._resolved[name.key] = found
            if found is not None and self._sequence is None:
                self._sequence = found.sequence
        return self._resolved[name.key]

    def resolved(self, name: TableName) -> Resolved:
        """Return a table that was found."""
        found = self.find(name)
        assert found is not None
        return found

    def snapshot(self, name: TableName) -> Snapshot:
        """Load a table that was found, at its latest version in the cut."""
        if name.key not in self._snapshots:
            self._snapshots[name.key] = self._session.load(self.resolved(name))
        return self._snapshots[name.key]

    def require_sequence(self) -> None:
        """Refuse a catalog whose tables cannot be read as of one moment."""
        if self._sequence is None:
            require(self._session.catalog, Cuts)


class Statement:
    """A statement that writes to one table, built on the version it was opened at."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        staging: Callable[[str, int], Staging],
        sources: Cut,
    ) -> None:
        """Begin a statement on the version of `table`; `sources` are as of the same sequence."""
        self.spark = spark
        self.table = table
        self.base = table.newest_seen
        self.sources = sources
        self._committer = table.committer
        self._staging = staging
        self._txn_id = self._committer.new_txn_id()
        self._scans: list[Scan] = []
        self._parts = itertools.count()
        self._asides: list[str] = []
        self._is_kept = False
        self.reads_views = False  # whose rows are from the moment the view was created
        self._began_ms = self.now_ms
        self._rewriting_since_ms: int | None = None

    def __enter__(self) -> Statement:
        return self

    def __exit__(self, *exception: object) -> None:
        for folder in self._asides:
            take_away(self.base.store, folder)
        if not self._is_kept:
            take_away(self.base.store, self.folder)

    @property
    def folder(self) -> str:
        """The folder of its files, inside the table."""
        return str(self._txn_id)

    @property
    def now_ms(self) -> int:
        return self._committer.clock.now_ms()

    # Reading

    def plan(self, where: Predicate | None = None) -> list[AddFile]:
        """Return the files that may contain matching rows, and record the scan."""
        files = self.base.files(where)
        self.record(where, files)
        return files

    def record(self, where: Predicate | None, files: Sequence[AddFile]) -> None:
        """Record a scan of the table, which conflicts are checked against."""
        self._scans.append(scan_of(self.base, where, files))

    def add_scans(self, scans: Iterable[Scan]) -> None:
        """Record scans of other tables whose rows this statement writes."""
        self._scans.extend(scans)

    def frame(
        self, files: Sequence[AddFile], *, located: bool = False, without: Sequence[Hit] = ()
    ) -> DataFrame:
        """Read some of the table's files, without the rows in `without`."""
        left_out = {hit.file.path: hit.rows for hit in without}
        return scan.dataframe(self.spark, self.base, files, located=located, without=left_out)

    def rows_of(self, hits: Sequence[Hit]) -> DataFrame:
        """Read only the matching rows, each with its position."""
        only = {hit.file.path: hit.rows for hit in hits}
        files = [hit.file for hit in hits]
        return scan.dataframe(self.spark, self.base, files, located=True, only=only)

    # Writing

    def target(self, metadata: Metadata | None = None, protocol: Protocol | None = None) -> Target:
        """Return the table to write to, as it is or as this commit changes it."""
        return Target(
            label=self.base.label,
            location=self.base.location,
            store=self.base.store,
            protocol=protocol or self.base.protocol,
            metadata=metadata or self.base.metadata,
        )

    def stage(self, rows: DataFrame, target: Target) -> list[AddFile]:
        """Convert a caller's rows to the table's columns, and write them."""
        return self.stage_conformed(conformed_to(rows, target), target)

    def stage_conformed(self, rows: DataFrame, target: Target) -> list[AddFile]:
        """Write rows that are already converted to the table's columns and checked."""
        if self._rewriting_since_ms is None:
            self._rewriting_since_ms = self.now_ms
        staging = self._staging(f"{self.folder}/{next(self._parts)}", self.now_ms)
        return stage_conformed(rows, target, staging)

    def aside(self, frame: DataFrame) -> DataFrame:
        """Write rows to a temporary folder, to read them repeatedly; deleted with the statement."""
        folder = f"{self.folder}/source-{next(self._parts)}"
        self._asides.append(folder)
        return scan.written_down(frame, self.base.location, folder)

    def removed(self, files: Iterable[AddFile]) -> list[Action]:
        """Return actions that remove whole files."""
        return list(removals(files, self.now_ms))

    def with_vectors(self, rows: Sequence[tuple[AddFile, Iterable[int]]]) -> list[Action]:
        """Return actions that mark rows as deleted: a removal and an addition for each file."""
        vectors: list[DeletionVector] = []
        for at in range(0, len(rows), _VECTORS_PER_FILE):
            some = [deleted for _, deleted in rows[at : at + _VECTORS_PER_FILE]]
            uuid = self._committer.ids.random()
            # A prefix has no `/`: within a transaction it is the folder of all its statements.
            written = deletion_vectors.vector_file(some, uuid, self.folder.partition("/")[0])
            self.base.store.put(written.path, written.content)
            vectors.extend(written.descriptors)
        actions = self.removed(file for file, _ in rows)
        for (file, _), vector in zip(rows, vectors, strict=True):
            stats = None if file.stats is None else with_loose_bounds(file.stats)
            again = replaced(file, deletion_vector=vector, data_change=True, stats=stats)
            actions.append(again)
        return actions

    def refuse_changes(self, *, makes_rows: bool = True) -> None:
        """Refuse to change or remove rows where the table does not allow it, or we cannot.

        A statement that only deletes rows may do so in a table with identity columns.
        """
        protocol, metadata, label = self.base.protocol, self.base.metadata, self.base.label
        handled = HANDLED if makes_rows else HANDLED | {"identityColumns"}
        if found := unwritable(protocol, metadata, handled=handled):
            raise errors.UnsupportedFeatureError(f"{label} cannot be written: {', '.join(found)}.")
        if is_active(protocol, metadata, "appendOnly"):
            raise errors.RefusedError(
                f"{label} is append-only: its rows cannot be changed or removed.",
                remedy="Append instead, or unset delta.appendOnly.",
            )
        refuse_followed(self.base)

    def commit(self, actions: Sequence[Action], operation: OperationInfo) -> Committed:
        """Propose the commit."""
        self._is_kept = True  # until the answer shows that nothing was ratified
        timed = self._timed(operation)
        try:
            return self.table.commit(self.base, actions, timed, self._scans, txn_id=self._txn_id)
        except errors.OutcomeUnknownError:  # it may have been ratified: every file stays
            raise
        except errors.HeadgateError:
            self._is_kept = False
            raise

    # Inside

    def _timed(self, operation: OperationInfo) -> OperationInfo:
        """Add how long searching and writing took, for operations where Delta records it."""
        if operation.name not in _TIMED:
            return operation
        now_ms = self.now_ms
        since_ms = now_ms if self._rewriting_since_ms is None else self._rewriting_since_ms
        times = {
            "executionTimeMs": now_ms - self._began_ms,
            "scanTimeMs": since_ms - self._began_ms,
            "rewriteTimeMs": now_ms - since_ms,
        }
        return replace(operation, metrics={**operation.metrics, **times})
