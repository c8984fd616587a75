"""The catalog as an open transaction sees it: one cut of the past, and on top its own writes.

To everything that reads and writes tables a transaction is a catalog. It resolves every table as of
the sequence of its beginning, and takes each statement as a commit above that: numbered, held in
memory, and visible to nothing else. When the transaction is committed, the statements on each table
become one commit of the real catalog. Spec: MT-03, MT-12.
"""

import hashlib
import threading
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Any, Final

from headgate import errors
from headgate.api.messages import (
    Answer,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Resolved,
    VersionTaken,
)
from headgate.api.port import Cuts, ManagingCatalog, Ref, require
from headgate.client.transaction import OperationInfo
from headgate.clock import Clock
from headgate.names import TableName
from headgate.protocol.actions import (
    Action,
    AddFile,
    Metadata,
    Protocol,
    RemoveFile,
    Sequence,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit import examination, inline_content
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.data_paths import normal_path
from headgate.protocol.encoding import replaced
from headgate.protocol.transactions import MOVES, State

_MOST_STATEMENTS: Final = 10_000
_MOST_TABLES: Final = 1_000


@dataclass(frozen=True, slots=True)
class OwnStatement:
    """What one statement did to one table."""

    commit: RatifiedCommit
    actions: tuple[Action, ...]
    operation: OperationInfo


@dataclass(slots=True)
class OwnTable:
    """A table that a transaction has seen, and what it did to it."""

    base: Resolved  # as of the beginning
    statements: list[OwnStatement] = field(default_factory=list)

    @property
    def head(self) -> Version:
        return Version(self.base.latest + len(self.statements))

    @property
    def own_paths(self) -> set[str]:
        """The files that statements added, or gave another deletion vector, in normal form."""
        removed = {
            normal_path(action.path)
            for statement in self.statements
            for action in statement.actions
            if isinstance(action, RemoveFile)
        }
        return {
            path
            for statement in self.statements
            for action in statement.actions
            if isinstance(action, AddFile) and (path := normal_path(action.path)) not in removed
        }

    def described(self, sequence: Sequence | None) -> Resolved:
        """Return the table as the transaction sees it."""
        seen = replaced(self.base, ways=(Way.INLINE,), sequence=sequence)
        if not self.statements:
            return seen
        commits = tuple(statement.commit for statement in self.statements)
        protocol, metadata = self.base.protocol, self.base.metadata
        for statement in self.statements:
            for action in statement.actions:
                if isinstance(action, Protocol):
                    protocol = action
                elif isinstance(action, Metadata):
                    metadata = action
        first = commits[0].version
        return replaced(
            seen,
            latest=commits[-1].version,
            timestamp_ms=commits[-1].timestamp_ms,
            commits=(*self.base.commits, *commits),
            held_from=first if self.base.held_from is None else self.base.held_from,
            protocol=protocol,
            metadata=metadata,
            checksum=None,
            checksum_file=None,
        )


@dataclass(frozen=True, slots=True)
class Savepoint:
    """How much a transaction had done at some moment."""

    statements: dict[TableId, int]
    scans: int


class OwnWrites:
    """A catalog for one transaction. Safe for many threads; statements run one at a time."""

    def __init__(
        self, catalog: ManagingCatalog, clock: Clock, begun: Sequence | None, *, read_only: bool
    ) -> None:
        """Begin as of a sequence; without one each table is as of its first use."""
        self.state = State.OPEN
        self.tables: dict[TableId, OwnTable] = {}
        self.scans: list[Scan] = []
        self.num_statements = 0
        self._catalog = catalog
        self._clock = clock
        self.begun = begun
        self._is_read_only = read_only
        self._names: dict[tuple[str, str, str], tuple[TableName, TableId]] = {}
        self._last_ms = 0
        self._lock = threading.RLock()

    # As a catalog

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        self.refuse_ended()
        if at is not None and at != self.begun:
            return self._catalog.resolve(ref, at)  # a read of the past
        with self._lock:
            table = self._seen(ref)
            return table.base if not table.base.catalog_managed else table.described(self.begun)

    def resolve_many(self, refs: Many[Ref], at: Sequence | None = None) -> tuple[Resolved, ...]:
        return tuple(self.resolve(ref, at) for ref in refs)

    def sequence_at(self, timestamp_ms: int | None = None) -> Sequence:
        cuts = require(self._catalog, Cuts)
        if timestamp_ms is None and self.begun is not None:
            return self.begun
        return cuts.sequence_at(timestamp_ms)

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        with self._lock:
            table = self._seen(table_id)
            head, latest = table.head, table.base.latest
            own = [statement.commit for statement in table.statements]
        before: tuple[RatifiedCommit, ...] = ()
        if first is None or first <= latest:
            until = latest if last is None else min(last, latest)
            before = self._catalog.ratified_commits(table_id, first, until).commits
        found = [
            commit
            for commit in own
            if (first is None or commit.version >= first)
            and (last is None or commit.version <= last)
        ]
        return RatifiedCommits(latest=head, commits=(*before, *found))

    def propose(self, proposal: Proposal) -> Answer:
        """Take a statement: it changes the tables of this transaction and nothing else."""
        with self._lock:
            self.refuse_ended()
            self._refuse_write(proposal)
            taken = {
                part.table_id: self._seen(part.table_id).head
                for part in proposal.parts
                if part.version != self._seen(part.table_id).head + 1
            }
            if taken:
                return VersionTaken(txn_id=proposal.txn_id, latest=taken)
            # Times rise and are not used again, also where a version is after a rollback.
            now_ms = max(
                self._clock.now_ms(),
                self._last_ms + 1,
                *(1 + self.tables[part.table_id].base.timestamp_ms for part in proposal.parts),
            )
            made = {
                part.table_id: self._statement(part.table_id, part.content, proposal.txn_id, now_ms)
                for part in proposal.parts
                if isinstance(part.content, Inline)
            }
            for table_id, statement in made.items():
                self.tables[table_id].statements.append(statement)
            self._last_ms = now_ms
            self.num_statements += 1
            for scan in proposal.scans:
                self.record(scan)
            return Ratified(
                txn_id=proposal.txn_id,
                sequence=self.begun,
                timestamp_ms=now_ms,
                commits={table_id: statement.commit for table_id, statement in made.items()},
            )

    # The transaction

    @property
    def written(self) -> dict[TableId, OwnTable]:
        """The tables that statements have changed."""
        return {key: table for key, table in self.tables.items() if table.statements}

    def base_version(self, table_id: TableId) -> Version:
        """Return the version of a table as of the beginning."""
        with self._lock:
            return self._seen(table_id).base.latest

    @property
    def names_used(self) -> dict[str, TableId]:
        """The names by which statements reached tables that they changed or read."""
        used = self.written.keys() | {scan.table_id for scan in self.scans if scan.fed}
        return {str(name): key for name, key in self._names.values() if key in used}

    def record(self, scan: Scan) -> None:
        """Record what was read: of a table as of the beginning, without own files."""
        with self._lock:
            table = self._seen(scan.table_id)
            if scan.version < table.base.latest:
                self.scans.append(scan)  # of rows that were read before the transaction began
                return
            files = scan.files
            if files is not None and table.statements:
                own = table.own_paths
                files = tuple(path for path in files if normal_path(path) not in own)
            self.scans.append(replaced(scan, version=table.base.latest, files=files))

    def savepoint(self) -> Savepoint:
        with self._lock:
            counts = {key: len(table.statements) for key, table in self.tables.items()}
            return Savepoint(counts, len(self.scans))

    def roll_back_to(self, savepoint: Savepoint) -> None:
        """Undo what came after a savepoint."""
        with self._lock:
            self.refuse_ended()
            for key, table in self.tables.items():
                del table.statements[savepoint.statements.get(key, 0) :]
            del self.scans[savepoint.scans :]

    def move(self, state: State) -> None:
        """Enter another state."""
        with self._lock:
            if state not in MOVES[self.state]:
                raise errors.InvariantError(f"A transaction moved from {self.state} to {state}.")
            self.state = state

    def refuse_ended(self) -> None:
        """Refuse to go on with a transaction that has ended."""
        if self.state.is_ended:
            raise errors.TransactionEndedError(
                f"This transaction has ended: it is {self.state.value}.",
                remedy="Begin another transaction.",
            )

    # Internals

    def _seen(self, ref: Ref) -> OwnTable:
        """Return a table, which is resolved when it is first used."""
        known = self._names.get(ref.key) if isinstance(ref, TableName) else (None, ref)
        table_id = None if known is None else known[1]
        if table_id is None or table_id not in self.tables:
            found = self._resolved(ref)
            table_id = found.table_id
            self.tables.setdefault(table_id, OwnTable(found))
            if isinstance(ref, TableName):
                self._names[ref.key] = ref, table_id
        return self.tables[table_id]

    def _resolved(self, ref: Ref) -> Resolved:
        return self._catalog.resolve(ref, self.begun)

    def _refuse_write(self, proposal: Proposal) -> None:
        if self._is_read_only:
            raise errors.RefusedError(
                "This transaction is read-only.", remedy="Begin one without READ ONLY or AS OF."
            )
        if self.num_statements >= _MOST_STATEMENTS:
            raise errors.TooLargeError(
                f"A transaction has at most {_MOST_STATEMENTS:,} statements.",
                remedy="Commit, and go on in another transaction.",
            )
        tables = self.written.keys() | {part.table_id for part in proposal.parts}
        if len(tables) > _MOST_TABLES:
            raise errors.TooLargeError(
                f"A transaction changes at most {_MOST_TABLES:,} tables.",
                remedy="Commit, and go on in another transaction.",
            )
        if self.begun is None and len(tables) > 1:
            raise errors.UnsupportedByCatalogError(
                "A transaction of this catalog can change only one table.",
                remedy="Use a catalog on SQLite or PostgreSQL, or a server.",
            )

    def _statement(
        self, table_id: TableId, content: Inline, txn_id: TxnId, now_ms: int
    ) -> OwnStatement:
        table = self.tables[table_id]
        examined = examination.examine(content)
        if examined.violations:
            raise errors.InvalidCommitError(table.base.name or table_id, examined.violations)
        version = Version(table.head + 1)
        composed, _ = inline_content.compose(
            examined,
            txn_id=txn_id,
            timestamp_ms=now_ms,
            version=version,
            row_id_high_water=None,  # the catalog assigns row ids when the whole is ratified
        )
        commit = RatifiedCommit(
            version=version,
            way=Way.INLINE,
            txn_id=txn_id,
            timestamp_ms=now_ms,
            size=len(composed),
            sha256=hashlib.sha256(composed).hexdigest(),
            content=composed,
        )
        actions: list[Action] = [
            line.action for line in examined.lines if isinstance(line.action, Action)
        ]
        return OwnStatement(commit, tuple(actions), _operation(content.commit_info))


def _operation(info: Mapping[str, Any]) -> OperationInfo:
    metrics = {name: int(value) for name, value in info["operationMetrics"].items()}
    return OperationInfo(info["operation"], info["operationParameters"], metrics)
