"""What a catalog stores, and the units of work that read and change it.

A `CatalogStore` gives two kinds of unit: `read()` sees everything as of one instant, and
`write()` is applied as a whole or not at all. `write_batch()` writes what was decided on rows read
before, unless anything changed since: the epoch says so. The store's own constraints prevent two
winners; code above it need not. Rows are named tuples, since one request may load thousands of
them; the bytes in them are JSON that this layer does not parse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headgate.api.messages import RatifiedCommit
from headgate.api.port import Ref
from headgate.errors import UnavailableError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.table_states import TableKind, TableStatus

# What a decision changes of a table
DECIDED_COLUMNS: Final = (
    "head",
    "timestamp_ms",
    "protocol",
    "metadata",
    "metadata_version",
    "domains",
    "row_id_high_water",
    "num_files",
    "size_bytes",
    "ticket",
    "ticket_until_ms",
)


# Errors


class StoreConstraintError(Exception):
    """A constraint rejected a row: its version, txnId, name or location is already in use.

    The savepoint that it happened in, or else the unit, accepts no further statement.
    """


class InDoubtError(Exception):
    """The store's COMMIT failed, and may or may not have been applied.

    `is_store_usable` is true if later units can still be committed and acknowledged.
    """

    def __init__(self, why: str, *, is_store_usable: bool = False) -> None:
        super().__init__(why)
        self.is_store_usable = is_store_usable


class RolledBackError(UnavailableError):
    """Other writers made the store roll back the whole unit: run it again."""


# Rows


class CatalogClock(NamedTuple):
    """The catalog's last sequence, and its own time, which never goes back."""

    sequence: Sequence
    clock_ms: int


class Epoch(NamedTuple):
    """A count of every change that deciding a proposal, or describing a table, depends on."""

    sequence: Sequence  # counts ratifications, and names assigned and released
    changes: int  # counts all other changes


class TableRow(NamedTuple):
    """A table. `head` is -1 until version 0 is ratified.

    The `head` of an external table stays -1: `metadata` is what was declared for it,
    `metadata_version` counts its changes, and `timestamp_ms` is the time of the last one.
    """

    key: int
    id: TableId
    state: TableStatus
    location: str
    head: Version
    timestamp_ms: int
    published: Version  # the last version that the catalog saw in the log; -1 for none
    held_from: Version  # the content of earlier commits is only in the log
    protocol: bytes
    metadata: bytes
    metadata_version: Version  # the last version that changed protocol or metadata
    domains: bytes
    row_id_high_water: int | None
    num_files: int | None  # None: no longer certain
    size_bytes: int | None
    diverged: str | None  # why publishing stopped
    ticket: TxnId | None  # the transaction that is next; others wait until the time below
    ticket_until_ms: int
    created_ms: int
    dropped_ms: int | None
    purged_ms: int | None = None  # when the last of its files was deleted
    kind: TableKind = TableKind.MANAGED


class NamedTableRow(NamedTuple):
    """A table that has a name now."""

    row: TableRow
    name: TableName
    changed_ms: int | None  # the timestamp of its metadata version; None if it has no commits


class CommitRow(NamedTuple):
    """A ratified commit.

    Only `content` is ever deleted: late proposals are compared with summaries, and the log may no
    longer have the commit.
    """

    version: Version
    sequence: Sequence
    timestamp_ms: int
    txn_id: TxnId
    way: Way
    file_name: str | None
    size: int
    sha256: bytes
    modified_ms: int | None
    intent: bytes
    proposed_ms: int
    ratified_ms: int
    published_ms: int | None
    summary: bytes | None
    content: bytes | None


class Publication(NamedTuple):
    """Versions of a table that are in its log now."""

    key: int
    first: Version
    last: Version
    now_ms: int


class RejectionRow(NamedTuple):
    """The answer to a rejected transaction, kept for a while."""

    txn_id: TxnId
    intent: bytes
    answer: bytes
    decided_ms: int


class Batch(NamedTuple):
    """Rows that decisions produced, written as a whole.

    Of a table in `tables`, what only decisions change is written: `DECIDED_COLUMNS`. Of these,
    `protocol` and `metadata`, which may be large, are written if a commit of the batch has the
    table's `metadata_version`. What is in `published` was ratified before.
    """

    clocks: Collection[tuple[CatalogClock, TxnId]] = ()  # one for each ratification, in order
    commits: Collection[tuple[int, CommitRow]] = ()  # each with its table's key
    tables: Collection[TableRow] = ()  # as the batch leaves them, each once
    rejections: Collection[RejectionRow] = ()
    published: Collection[Publication] = ()
    undecided: Collection[TxnId] = ()  # keys that must have neither a commit nor a rejection yet


class TokenRow(NamedTuple):
    """An access token of a server. Only its bearer has the secret itself."""

    name: str
    secret_sha256: bytes
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class AnswerRow(NamedTuple):
    """The answer to a request, kept for a while under the request's idempotency key."""

    key: str
    request: bytes  # a hash of the whole request
    answer: bytes
    decided_ms: int


class ListenerRow(NamedTuple):
    """A listener, and the last sequence that was delivered to it."""

    name: str
    kind: str
    target: str
    position: Sequence
    created_ms: int
    failing: str | None = None  # why delivery stopped


class LocationRow(NamedTuple):
    """A location outside of the lake's root where clients may create tables."""

    url: str
    created_ms: int


class EventRow(NamedTuple):
    """Everything that took one sequence: commits, and names assigned and released."""

    sequence: Sequence
    clock_ms: int
    txn_id: TxnId | None
    commits: tuple[tuple[TableId, CommitRow], ...]  # without content and summary
    names_assigned: tuple[tuple[TableName, TableId], ...]
    names_released: tuple[tuple[TableName, TableId], ...]


class Counts(NamedTuple):
    """Numbers of rows, for monitoring."""

    tables: Mapping[TableStatus, int]  # of either kind
    external: int  # active ones
    unpublished: int  # commits of active tables
    longest_tail: tuple[TableId, int] | None  # the most unpublished commits of one table
    oldest_unpublished_ms: int | None  # when the first unpublished commit was ratified
    rejections: int
    listeners: int
    tokens: int  # not revoked


# What can be read, by subject


class EventReads(Protocol):
    """The clock and the event feed."""

    def clock(self) -> CatalogClock:
        """Return the catalog's clock."""
        ...

    def clock_at(self, timestamp_ms: int) -> CatalogClock | None:
        """Return the clock at the last event not later than a time; None before the first."""
        ...

    def epoch(self) -> Epoch:
        """Return the epoch as of this unit, which a unit that changed something ends with."""
        ...

    def oldest_event(self) -> CatalogClock | None:
        """Return the clock at the first event that is kept; None if there are none."""
        ...

    def events(self, after: Sequence, limit: int) -> list[EventRow]:
        """Return the events from sequence `after` + 1 on, in order and without a gap.

        Starts at the oldest event that is kept, if that one is later. Commits are found by the
        txnId that took their sequence.
        """
        ...


class NameReads(Protocol):
    """Namespaces, and the names of tables over time."""

    def namespaces(self) -> list[SchemaName]:
        """Return all namespaces, in order."""
        ...

    def namespace_creation_times(self) -> dict[SchemaName, int]:
        """Return when each namespace was created."""
        ...

    def table_id_of(self, name: TableName, at: Sequence | None = None) -> TableId | None:
        """Return the table that has a name, now or as of a sequence."""
        ...

    def name_of(self, table_id: TableId, at: Sequence | None = None) -> TableName | None:
        """Return the name of a table, now or as of a sequence."""
        ...

    def last_name_of(self, table_id: TableId) -> TableName | None:
        """Return the name that a table has, or had last."""
        ...

    def names_of(self, table_id: TableId) -> list[TableName]:
        """Return all names that a table ever had, in order."""
        ...


class TableReads(Protocol):
    """Tables."""

    def table(self, table_id: TableId) -> TableRow | None:
        """Return a table in whatever state."""
        ...

    def tables_by_id(self, table_ids: Collection[TableId]) -> list[TableRow]:
        """Return those of some tables that exist, in whatever state."""
        ...

    def names_by_id(self, table_ids: Collection[TableId]) -> dict[TableId, TableName]:
        """Return the names of those of some tables that have one now."""
        ...

    def named_table(self, ref: Ref) -> NamedTableRow | None:
        """Return a table that has a name now, in one query."""
        ...

    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[NamedTableRow]:
        """Return the tables that have a name now, of one namespace or all, in order of names."""
        ...

    def tables_in_state(self, state: TableStatus) -> list[TableRow]:
        """Return the tables in a state, named or not."""
        ...

    def unpublished_tables(self) -> list[TableRow]:
        """Return the active tables that have unpublished commits."""
        ...

    def overlapping_table(self, location: str) -> TableRow | None:
        """Return a table whose location is, contains or is inside a location."""
        ...


class CommitReads(Protocol):
    """Ratified commits of one table, found by its key."""

    def commits(
        self, key: int, first: Version, last: Version, *, content: bool, summary: bool = False
    ) -> list[CommitRow]:
        """Return a range of commits, with content and summary only where asked for."""
        ...

    def ratified_commits(
        self, key: int, first: Version, last: Version, *, with_content: bool = True
    ) -> tuple[RatifiedCommit, ...]:
        """Return a range of commits as clients get them."""
        ...

    def content_bytes(self, key: int, first: Version, last: Version) -> int:
        """Return the size of the content that is held of a range of commits."""
        ...

    def last_version_within(
        self, key: int, first: Version, last: Version, max_bytes: int
    ) -> Version:
        """Return the last version up to which contents add up to no more than `max_bytes`.

        At least `first`. With `first` above `last`, counts down and returns the lowest version.
        """
        ...

    def version_at(self, key: int, at: Sequence) -> Version | None:
        """Return the latest version of a table as of a sequence."""
        ...


class TransactionReads(Protocol):
    """The outcome of transactions."""

    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]:
        """Return the commits that a transaction made, one for each of its tables."""
        ...

    def rejection(self, txn_id: TxnId) -> RejectionRow | None:
        """Return the rejection of a transaction."""
        ...

    def decided(self, txn_ids: Collection[TxnId]) -> set[TxnId]:
        """Return those of some keys that have a commit or a rejection."""
        ...

    def inconsistent_transactions(self) -> list[TxnId]:
        """Return the transactions whose commits differ in sequence or timestamp: none, if whole."""
        ...


class FileReads(Protocol):
    """Checkpoints, compactions and checksums of one table, found by its key."""

    def files(self, key: int, last: Version) -> list[KnownFile]:
        """Return the files that help to read a version: the newest checkpoint and what follows."""
        ...

    def all_files(self, key: int) -> list[KnownFile]:
        """Return all checkpoints, compactions and checksums recorded of a table."""
        ...


class ServerReads(Protocol):
    """What a server stores for its clients."""

    def token(self, secret_sha256: bytes) -> TokenRow | None:
        """Return the access token with a secret."""
        ...

    def tokens(self) -> list[TokenRow]:
        """Return all access tokens, by name."""
        ...

    def answer(self, key: str) -> AnswerRow | None:
        """Return the answer to the request with an idempotency key."""
        ...

    def listeners(self) -> list[ListenerRow]:
        """Return all listeners, by name."""
        ...

    def locations(self) -> list[LocationRow]:
        """Return the locations outside of the lake's root that are allowed."""
        ...


class CatalogReads(Protocol):
    """The catalog itself."""

    def setting(self, key: str) -> str | None:
        """Return a setting of the catalog."""
        ...

    def lease_holder(self, lease: str) -> str | None:
        """Return the last holder of a lease, expired or not."""
        ...

    def counts(self) -> Counts:
        """Return the numbers of rows."""
        ...


class ReadUnit(
    EventReads,
    NameReads,
    TableReads,
    CommitReads,
    TransactionReads,
    FileReads,
    ServerReads,
    CatalogReads,
    Protocol,
):
    """A unit that reads the catalog."""


# What can be written, by subject


class EventWrites(Protocol):
    """The clock and the event feed."""

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None:
        """Take the next sequence, on behalf of a transaction if there is one."""
        ...

    def delete_events(self, last: Sequence) -> None:
        """Delete the events up to a sequence, except for the newest of all."""
        ...


class NameWrites(Protocol):
    """Namespaces, and the names of tables."""

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None:
        """Create a namespace."""
        ...

    def delete_namespace(self, name: SchemaName) -> None:
        """Delete a namespace."""
        ...

    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None:
        """Give a name to a table, from a sequence on."""
        ...

    def release_name(self, table_id: TableId, until: Sequence) -> None:
        """End the use of a table's name at a sequence."""
        ...


class TableWrites(Protocol):
    """Tables."""

    def insert_table(self, row: TableRow) -> TableRow:
        """Insert a table; return it with the key that the store gave it."""
        ...

    def update_table(self, row: TableRow) -> None:
        """Replace a table's row."""
        ...

    def set_diverged(self, key: int, message: str | None) -> None:
        """Record why publishing a table stopped, or that it may go on."""
        ...


class CommitWrites(Protocol):
    """Ratified commits of one table, and rejections."""

    def insert_commit(self, key: int, row: CommitRow) -> None:
        """Insert a ratified commit."""
        ...

    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None:
        """Record that versions are published, and delete the content of staged commits."""
        ...

    def delete_content(self, key: int, upto: Version) -> None:
        """Delete the content of commits up to a version: only the log has it from then on."""
        ...

    def insert_rejection(self, row: RejectionRow) -> None:
        """Record a rejection."""
        ...

    def delete_rejections(self, before_ms: int) -> None:
        """Delete the rejections decided before a time."""
        ...


class FileWrites(Protocol):
    """Checkpoints, compactions and checksums of one table."""

    def insert_file(self, key: int, file: KnownFile) -> None:
        """Record a checkpoint, compaction or checksum, in place of one for the same versions."""
        ...

    def delete_file(self, key: int, file: KnownFile) -> None:
        """Delete the record of a file, unless another one was recorded in its place."""
        ...


class LeaseWrites(Protocol):
    """Leases."""

    def acquire_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool:
        """Take or renew a lease; return False if another holder has it."""
        ...

    def acquire_leases(
        self, names: Collection[str], holder: str, now_ms: int, until_ms: int
    ) -> set[str]:
        """Take or renew many leases; return those that no other holder has."""
        ...

    def release_lease(self, name: str, holder: str) -> None:
        """End a lease, if this holder has it."""
        ...

    def release_leases(self, names: Collection[str], holder: str) -> None:
        """End those of many leases that this holder has."""
        ...


class ServerWrites(Protocol):
    """What a server stores for its clients."""

    def insert_token(self, row: TokenRow) -> None:
        """Insert an access token."""
        ...

    def revoke_token(self, name: str, now_ms: int) -> None:
        """Revoke an access token, unless it is revoked already."""
        ...

    def insert_answer(self, row: AnswerRow) -> None:
        """Record the answer to a request."""
        ...

    def delete_answers(self, before_ms: int) -> None:
        """Delete the answers given before a time."""
        ...

    def insert_location(self, row: LocationRow) -> None:
        """Allow a location outside of the lake's root."""
        ...

    def delete_location(self, url: str) -> None:
        """Stop allowing a location."""
        ...


class ListenerWrites(Protocol):
    """Listeners."""

    def put_listener(self, row: ListenerRow) -> None:
        """Insert or replace a listener."""
        ...

    def delete_listener(self, name: str) -> None:
        """Delete a listener."""
        ...

    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None:
        """Record what was delivered to a listener, and why delivery stopped if it did."""
        ...


class WriteUnit(
    ReadUnit,
    EventWrites,
    NameWrites,
    TableWrites,
    CommitWrites,
    FileWrites,
    LeaseWrites,
    ServerWrites,
    ListenerWrites,
    Protocol,
):
    """A unit that changes the catalog: all of it is applied, or nothing.

    It increments the epoch if it changed anything but leases, tokens, answers, listeners and
    settings, or deleted old events and rejections.
    """

    def savepoint(self) -> AbstractContextManager[None]:
        """Begin a part of the unit that is undone by itself if it raises."""
        ...

    def write_batch(self, batch: Batch) -> None:
        """Write what was decided on rows that this unit read."""
        ...

    def set_setting(self, key: str, value: str) -> None:
        """Change a setting of the catalog."""
        ...


class CatalogStore(Protocol):
    """A database of one catalog."""

    def read(self) -> AbstractContextManager[ReadUnit]:
        """Begin a read transaction: everything in it is as of one instant."""
        ...

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        """Read without a transaction: each query sees the latest rows.

        Cheaper than `read`, for a single query or for rows that never change.
        """
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """Begin a write transaction, durable once the block ends without an error."""
        ...

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        """Write a batch durably if the epoch is as expected; return the epoch after it.

        Returns None, and writes nothing, if anything changed since or a key has an outcome already.
        """
        ...

    def check_integrity(self) -> list[str]:
        """Check the whole database for damage; return what was found.

        After damage was found, the store refuses all reads and writes with `DamagedError`.
        """
        ...

    def describe(self) -> str:
        """Return which database this is, without its password."""
        ...

    def local_file(self) -> Path | None:
        """Return the database's file on this machine; None if it is on a server.

        All files whose names begin with its name belong to the database, too.
        """
        ...

    def backup(self, target: Path) -> None:
        """Copy the database, as of one instant, to a new file while others go on."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
