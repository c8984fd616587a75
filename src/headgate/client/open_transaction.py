"""Transactions over many statements and many tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeAlias

from headgate import errors
from headgate.api.messages import Resolved
from headgate.arguments import When, checked
from headgate.client import arrow_io
from headgate.client.own_writes import OwnTable, OwnWrites, Savepoint
from headgate.client.table import Table
from headgate.client.transaction import Change, Committed, Committer, OperationInfo
from headgate.names import DEFAULT_CATALOG, TableName
from headgate.protocol.actions import AddFile, TableId, TxnId, Version
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.commit.conflicts import MOST_FILES, Isolation, Scan
from headgate.protocol.expressions.predicates import Predicate
from headgate.protocol.transactions import State, net
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_cache import SnapshotCache

ArrowTable: TypeAlias = Any


@checked
class Transaction:
    """Statements on tables that become visible together, or not at all. Spec: MT-03, MT-12.

    All tables are read as of the moment it was begun, and every statement sees the earlier ones.
    Use it in a `with` statement: leaving the block commits, an exception rolls back.
    """

    def __init__(
        self,
        txn_id: TxnId,
        writes: OwnWrites,
        open_table: Callable[[str], Table],
        committer: Committer,
        load: Callable[[Resolved], Snapshot],
        isolation: Isolation,
    ) -> None:
        """Begin a transaction; `writes` is the catalog as it sees it."""
        self.id = txn_id
        self.writes = writes
        self.isolation = isolation
        self.begun = writes.begun  # the sequence as of which tables are read
        self.committed: Committed | None = None
        self._open_table = open_table
        self._committer = committer
        self._load = load

    def __enter__(self) -> Self:
        self.writes.refuse_ended()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self.state is not State.OPEN:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        return f"Transaction({self.id}, {self.state.value})"

    @property
    def state(self) -> State:
        return self.writes.state

    @property
    def num_statements(self) -> int:
        """How many statements it ran that changed a table."""
        return self.writes.num_statements

    @property
    def sequence(self) -> SequenceNumber | None:
        """The sequence at which it was ratified; None if it is open or changed nothing."""
        return None if self.committed is None else self.committed.sequence

    @property
    def timestamp_ms(self) -> int | None:
        """When it was ratified, the same in all of its tables."""
        return None if self.committed is None else self.committed.timestamp_ms

    @property
    def versions(self) -> dict[str, Version]:
        """The version that each changed table got."""
        if self.committed is None:
            return {}
        names = {key: _shown(table.base) for key, table in self.writes.tables.items()}
        return {names[key]: version for key, version in self.committed.versions.items()}

    def table(self, name: str) -> Table:
        """Open a table as the transaction sees it; what is written to it is part of it."""
        return self._open_table(name)

    def record(self, scan: Scan) -> None:
        """Record what the program read, which is checked as the isolation level says."""
        self.writes.record(scan)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the statements of a block if it raises; the exception goes on."""
        before = self.mark()
        try:
            yield
        except BaseException:
            if self.state is State.OPEN:
                self.roll_back_to(before)
            raise

    def mark(self) -> Savepoint:
        """Return a savepoint to which `roll_back_to` can return."""
        self.writes.refuse_ended()
        return self.writes.savepoint()

    def roll_back_to(self, savepoint: Savepoint) -> None:
        """Undo the statements after a savepoint."""
        self.writes.roll_back_to(savepoint)

    def commit(self) -> None:
        """Make all statements visible, as one commit for each table that they changed.

        Raises `ConflictError` if another transaction made this impossible: run it again. After an
        `OutcomeUnknownError`, call this again to get the outcome. Spec: MT-01, MT-04, MT-10.
        """
        writes = self.writes
        if self.state is not State.UNKNOWN:
            writes.refuse_ended()
        changes = self._changes()
        if not changes:
            writes.move(State.RATIFIED)  # what it read was true as of its beginning
            return
        try:
            self.committed = self._committer.commit(
                changes, self.isolation, txn_id=self.id, names=writes.names_used
            )
        except errors.OutcomeUnknownError:
            if self.state is State.OPEN:
                writes.move(State.UNKNOWN)
            raise
        except errors.HeadgateError as error:
            if error.retry is not errors.Retry.SAME_AGAIN:
                writes.move(State.REJECTED)
            raise
        writes.move(State.RATIFIED)

    def rollback(self) -> None:
        """End the transaction without any effect."""
        if self.state in (State.ABANDONED, State.REJECTED):
            return
        self.writes.refuse_ended()
        self.writes.move(State.ABANDONED)

    def _changes(self) -> list[Change]:
        written = self.writes.written
        built = {key: self._change(table) for key, table in written.items()}
        changes = {key: change for key, change in built.items() if change.actions}
        if not changes:
            return []
        first = next(iter(changes))
        scans: dict[object, list[Scan]] = {key: [] for key in changes}
        for scan in self.writes.scans:
            scans[scan.table_id if scan.table_id in scans else first].append(scan)
        return [replace(change, scans=tuple(scans[key])) for key, change in changes.items()]

    def _change(self, table: OwnTable) -> Change:
        base = self._load(table.base)
        actions = net(
            [statement.actions for statement in table.statements],
            protocol=base.protocol,
            metadata=base.metadata,
            domains=base.domains,
        )
        return Change(table.base.table_id, base, table.base.ways, actions, self._operation(table))

    def _operation(self, table: OwnTable) -> OperationInfo:
        done = [statement.operation for statement in table.statements]
        if len(done) == 1:
            return done[0]
        metrics: dict[str, int] = {}
        for operation in done:
            for name, value in operation.metrics.items():
                metrics[name] = metrics.get(name, 0) + value
        return OperationInfo("TRANSACTION", {"statements": [o.name for o in done]}, metrics)


@checked
class TransactionTable(Table):
    """A table in a transaction: reads are recorded, and a rollback takes versions back."""

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
        where: Predicate | str | None = None,
    ) -> ArrowTable:
        snapshot = self.snapshot(version, as_of, sequence)
        if version is None and as_of is None and sequence is None:
            predicate = arrow_io.skipping_predicate(snapshot, where)
            self._writes.record(scan_of(snapshot, predicate, snapshot.files(predicate)))
        return arrow_io.to_arrow(snapshot, columns, where)

    @property
    def _writes(self) -> OwnWrites:
        writes = self.committer.catalog
        assert isinstance(writes, OwnWrites)
        return writes

    def append(self, rows: ArrowTable) -> Committed:
        self._refreshed()
        return super().append(rows)

    def _refreshed(self) -> Snapshot:
        with self._lock:
            self._latest = self._load(self._catalog.resolve(self._id))
            self._reached = self._latest.version
            return self._latest

    def _keep_newest(self, snapshot: Snapshot) -> Snapshot:
        return self._refreshed()

    def _known(self) -> Snapshot:
        return self._refreshed()


class TransactionCache(SnapshotCache):
    """Snapshots as a transaction sees them, beside those of its session.

    Versions above its beginning mean other commits in the session than in the transaction.
    """

    def __init__(self, outside: SnapshotCache, writes: OwnWrites) -> None:
        super().__init__()
        self._outside = outside
        self._writes = writes

    def newest(self, table_id: TableId, version: Version) -> Snapshot | None:
        own = super().newest(table_id, version)
        if own is not None:
            return own
        return self._outside.newest(table_id, min(version, self._writes.base_version(table_id)))


def scan_of(
    snapshot: Snapshot, where: Predicate | None, files: Sequence[AddFile], *, fed: bool = True
) -> Scan:
    """Describe a read of the files of a managed table that may have matching rows."""
    assert snapshot.table_id is not None
    return Scan(
        table_id=snapshot.table_id,
        version=snapshot.version,
        predicate=where,
        files=tuple(file.path for file in files) if len(files) <= MOST_FILES else None,
        fed=fed,
    )


def _shown(table: Resolved) -> str:
    if table.name is None:
        return table.table_id
    name = TableName.parse(table.name)
    return f"{name.schema}.{name.table}" if name.catalog == DEFAULT_CATALOG else table.name
