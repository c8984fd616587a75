"""What one process keeps in memory of the tables it decides about, as of one epoch.

Correctness never depends on it: what was decided on it is written only if the epoch is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from cachetools import LRUCache

from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import CatalogClock, CommitRow, Epoch, TableRow
from headgate.names import TableName
from headgate.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    Sequence,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.conflicts import Changes, Winner
from headgate.protocol.commit.facts import Closed, Head, Turn
from headgate.protocol.encoding import from_json
from headgate.protocol.log.checksums import FileTotals
from headgate.protocol.table_states import TableKind, TableStatus

_TABLES: Final = 1_000
_WINNERS: Final = 64  # of each table
_WINNER_BYTES: Final = 1 << 16  # a larger one is read again when it is needed
_DECIDED: Final = 100_000


class KnownTable(NamedTuple):
    """A table's row, what deciding sees of it, and its name."""

    row: TableRow
    head: Head | Closed
    name: TableName | None

    def after(self, row: TableRow, head: Head | Closed | None = None) -> KnownTable:
        """Return the table after a change of its row."""
        return KnownTable(row, head or head_of(row), self.name)


class Premise(NamedTuple):
    """What a proposal was made for: a table of this name, with metadata of this version.

    Its log must not have diverged.
    """

    table_id: TableId
    name: TableName
    metadata_version: Version


class Heads:
    """The latest versions of active tables, the catalog's clock, and recent outcomes."""

    def __init__(self) -> None:
        self.epoch: Epoch | None = None  # None: nothing is known
        self.clock = CatalogClock(Sequence(0), 0)
        # Keys that probably have an outcome, found without asking the store. They are kept when
        # the epoch moves, since outcomes do not change.
        self.decided: LRUCache[TxnId, None] = LRUCache(_DECIDED)
        self._tables: dict[TableId, KnownTable] = {}
        self._winners: dict[TableId, list[Winner]] = {}  # up to the head, without a gap

    def forget(self) -> None:
        """Forget everything that may have changed."""
        self.epoch = None
        self._tables.clear()
        self._winners.clear()

    def missing(self, table_ids: Collection[TableId]) -> list[TableId]:
        """Return those of some tables that are not known."""
        return [table_id for table_id in table_ids if table_id not in self._tables]

    def load(self, unit: ReadUnit, table_ids: Collection[TableId]) -> None:
        """Read those of some tables that are not known; forget others that may have changed."""
        epoch = unit.epoch()
        if epoch != self.epoch or len(self._tables) > _TABLES:
            self.forget()
            self.epoch, self.clock = epoch, unit.clock()
        if missing := self.missing(table_ids):
            names = unit.names_by_id(missing)
            for row in unit.tables_by_id(missing):
                self._tables[row.id] = KnownTable(row, head_of(row), names.get(row.id))

    def table(self, table_id: TableId) -> KnownTable | None:
        return self._tables.get(table_id)

    def winners(self, table_id: TableId, after: Version) -> list[Winner] | None:
        """Return the commits after a version; None if not all of them are known."""
        kept = self._winners.get(table_id)
        if not kept or kept[0].version > after + 1:
            return None
        return [winner for winner in kept if winner.version > after]

    def advance(
        self,
        epoch: Epoch,
        clock: CatalogClock,
        tables: Mapping[TableId, KnownTable],
        commits: Mapping[TableId, list[tuple[CommitRow, Changes]]],
    ) -> None:
        """Take over what a batch changed, which is the only change since the epoch before."""
        self.epoch, self.clock = epoch, clock
        for table_id, table in tables.items():
            if table_id in self._tables:
                self._tables[table_id] = table
        for table_id, rows in commits.items():
            kept = self._winners.setdefault(table_id, [])
            for row, changes in rows:
                if len(row.summary or b"") > _WINNER_BYTES:
                    kept.clear()
                else:
                    kept.append(as_winner(row, changes))
            del kept[:-_WINNERS]
        if len(self._winners) > _TABLES:
            self._winners.clear()


# Rows as facts


@lru_cache(1_000)
def _parsed(protocol: bytes, metadata: bytes) -> tuple[Protocol, Metadata]:
    """Parse a table's protocol and metadata, which seldom change."""
    return from_json(protocol, Protocol), from_json(metadata, Metadata)


def protocol_and_metadata(row: TableRow) -> tuple[Protocol, Metadata]:
    """Return a table's protocol and metadata."""
    return _parsed(row.protocol, row.metadata)


def domains_of(row: TableRow) -> tuple[DomainMetadata, ...]:
    """Return a table's metadata domains."""
    return from_json(row.domains, tuple[DomainMetadata, ...])


def head_of(row: TableRow) -> Head | Closed:
    """Return a table's row as deciding sees it."""
    if row.state is not TableStatus.ACTIVE or row.kind is TableKind.EXTERNAL:
        return Closed(row.id, row.kind, row.state, row.head)
    protocol, metadata = protocol_and_metadata(row)
    files = None
    if row.num_files is not None and row.size_bytes is not None:
        files = FileTotals(row.num_files, row.size_bytes)
    return Head(
        table_id=row.id,
        version=row.head,
        timestamp_ms=row.timestamp_ms,
        published=row.published,
        protocol=protocol,
        metadata=metadata,
        metadata_version=row.metadata_version,
        domains=domains_of(row),
        row_id_high_water=row.row_id_high_water,
        files=files,
        turn=None if row.ticket is None else Turn(row.ticket, row.ticket_until_ms),
    )


def as_winner(row: CommitRow, changes: Changes | None = None) -> Winner:
    """Return a commit's row as what later proposals are compared with."""
    if changes is None:
        changes = from_json(row.summary or b"{}", Changes)
    return Winner(row.version, changes, row.txn_id, row.sequence)


def load_winners(unit: ReadUnit, row: TableRow, after: Version) -> list[Winner]:
    """Read what the commits of a table after a version changed."""
    first = Version(after + 1)
    found = unit.commits(row.key, first, row.head, content=False, summary=True)
    return [as_winner(commit) for commit in found]
