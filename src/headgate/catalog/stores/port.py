"""What a catalog keeps, and the unit of work in which it is read and changed.

A `CatalogStore` gives two kinds of unit: `read()`, one instant of everything, and `write()`, the
only door to change, whole or not at all. Constraints of the store make two winners impossible;
no code above it has to. Rows are named tuples, since a load makes thousands of them; bytes in
them are JSON that this layer does not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from headgate.api.messages import RatifiedCommit
from headgate.api.port import Ref
from headgate.api.table_states import TableKind, TableStatus
from headgate.errors import UnavailableError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import KnownFile


class StoreConstraintError(Exception):
    """A constraint of the store spoke: the version, the txnId, the name or the place is taken."""


class InDoubtError(Exception):
    """The commit failed in a way that leaves it open whether it happened.

    A store that can go on says so: what it will acknowledge next is not touched by the doubt.
    """

    def __init__(self, why: str, *, is_store_usable: bool = False) -> None:
        super().__init__(why)
        self.is_store_usable = is_store_usable


class RolledBackError(UnavailableError):
    """Others stood in the way, and the store took the whole unit back: it can be run again."""


class CatalogClock(NamedTuple):
    """The catalog's own time: its last sequence, and a time that never goes back."""

    sequence: Sequence
    clock_ms: int


class TableRow(NamedTuple):
    """A table as the catalog knows it. `head` is -1 until version 0 is ratified.

    An external table's stays there; its `metadata` is what was declared of it, its
    `metadata_version` counts how often that changed, and its `timestamp_ms` says when.
    """

    key: int
    id: TableId
    state: TableStatus
    location: str
    head: Version
    timestamp_ms: int
    published: Version  # the last version the catalog saw in the log; -1 for none
    held_from: Version  # commits below it can only be had from the log
    protocol: bytes
    metadata: bytes
    metadata_version: Version  # where protocol or metadata last changed
    domains: bytes
    row_id_high_water: int | None
    num_files: int | None  # None: no longer certain
    size_bytes: int | None
    diverged: str | None  # why publishing stopped
    ticket: TxnId | None  # who goes next; others wait until the time below
    ticket_until_ms: int
    created_ms: int
    dropped_ms: int | None
    purged_ms: int | None = None  # when the last of its files was gone
    kind: TableKind = TableKind.MANAGED


class NamedTableRow(NamedTuple):
    """A table that has a name now."""

    row: TableRow
    name: TableName
    changed_ms: int | None  # the timestamp of its metadata version; None if it has no commits


class CommitRow(NamedTuple):
    """A ratified commit. All but content is kept.

    Whoever comes late is held against summaries, and the log may not be there to ask.
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


class CommitHeader(NamedTuple):
    """What who reads files is told of a commit: there may be many in one answer."""

    version: Version
    way: Way
    sequence: Sequence
    timestamp_ms: int
    size: int
    file_name: str | None
    modified_ms: int | None
    published_ms: int | None


class RejectionRow(NamedTuple):
    """What a rejected transaction was answered, kept for a while."""

    txn_id: TxnId
    intent: bytes
    answer: bytes
    decided_ms: int


class TokenRow(NamedTuple):
    """What opens a server. The secret itself is known to its bearer alone."""

    name: str
    secret_sha256: bytes
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class AnswerRow(NamedTuple):
    """What a request was answered, kept for a while under the request's own key."""

    key: str
    request: bytes  # hash of all that was asked
    answer: bytes
    decided_ms: int


class ListenerRow(NamedTuple):
    """Who is told after a commit, and up to which sequence it was."""

    name: str
    kind: str
    target: str
    position: Sequence
    created_ms: int
    failing: str | None = None  # why it could not be told more


class LocationRow(NamedTuple):
    """A place outside of the lake's root under which clients may have tables."""

    url: str
    created_ms: int


class EventRow(NamedTuple):
    """All that took one sequence: commits, names that began and names that ended."""

    sequence: Sequence
    clock_ms: int
    txn_id: TxnId | None
    commits: tuple[tuple[TableId, CommitRow], ...]  # without content and summary
    names_assigned: tuple[tuple[TableName, TableId], ...]
    names_released: tuple[tuple[TableName, TableId], ...]


class Counts(NamedTuple):
    """How much there is of everything, for whoever watches a catalog."""

    tables: Mapping[TableStatus, int]  # of either kind
    external: int  # active ones
    unpublished: int  # commits of active tables
    longest_tail: tuple[TableId, int] | None  # the most of them in one table
    oldest_unpublished_ms: int | None  # when the first of them was ratified
    rejections: int
    listeners: int
    tokens: int  # not revoked


class ReadUnit(Protocol):
    """One instant of the catalog."""

    def clock(self) -> CatalogClock: ...
    def clock_at(self, timestamp_ms: int) -> CatalogClock | None: ...
    def oldest_event(self) -> CatalogClock | None:
        """Return the first sequence whose event is kept, and its time; None if there are none."""
        ...

    def setting(self, key: str) -> str | None: ...

    def namespaces(self) -> list[SchemaName]: ...
    def namespace_creation_times(self) -> dict[SchemaName, int]: ...
    def table_id_of(self, name: TableName, at: Sequence | None = None) -> TableId | None: ...
    def named_table(self, ref: Ref) -> NamedTableRow | None:
        """Give a table that has a name now, by that or by its id: one question for what is one."""
        ...

    def name_of(self, table_id: TableId, at: Sequence | None = None) -> TableName | None: ...
    def last_name_of(self, table_id: TableId) -> TableName | None: ...
    def names_of(self, table_id: TableId) -> list[TableName]: ...

    def table(self, table_id: TableId) -> TableRow | None: ...
    def tables(
        self, namespace: SchemaName | None, after: TableName | None = None, limit: int | None = None
    ) -> list[NamedTableRow]: ...
    def tables_in_state(self, state: TableStatus) -> list[TableRow]: ...
    def unpublished_tables(self) -> list[TableRow]: ...
    def overlapping_table(self, location: str) -> TableRow | None: ...

    def commits(
        self, key: int, first: Version, last: Version, *, content: bool, summary: bool = False
    ) -> list[CommitRow]: ...
    def ratified_commits(
        self, key: int, first: Version, last: Version
    ) -> tuple[RatifiedCommit, ...]: ...
    def commit_headers(self, key: int, first: Version, last: Version) -> list[CommitHeader]: ...
    def last_version_within(
        self, key: int, first: Version, last: Version, most_bytes: int
    ) -> Version:
        """Give the last version up to which contents are no more than so many bytes.

        At least the first. With `first` above `last`, down from there: the lowest such version.
        """
        ...

    def version_at(self, key: int, at: Sequence) -> Version | None: ...
    def transaction_commits(self, txn_id: TxnId) -> list[tuple[TableId, CommitRow]]: ...
    def inconsistent_transactions(self) -> list[TxnId]:
        """Give the transactions whose commits differ in sequence or timestamp: there are none."""
        ...

    def rejection(self, txn_id: TxnId) -> RejectionRow | None: ...
    def files(self, key: int, last: Version) -> list[KnownFile]:
        """Return the files that help to read a version: the newest checkpoint and what follows."""
        ...

    def all_files(self, key: int) -> list[KnownFile]: ...

    def events(self, after: Sequence, limit: int) -> list[EventRow]:
        """Give what took the sequences from `after` + 1 on, in order and without a gap.

        Where those are deleted, the first row is the oldest that is kept.
        Commits are found by the txnId that took their sequence.
        """
        ...

    def lease_holder(self, lease: str) -> str | None: ...
    def token(self, secret_sha256: bytes) -> TokenRow | None: ...
    def tokens(self) -> list[TokenRow]: ...
    def answer(self, key: str) -> AnswerRow | None: ...
    def listeners(self) -> list[ListenerRow]: ...
    def locations(self) -> list[LocationRow]: ...
    def counts(self) -> Counts: ...


class WriteUnit(ReadUnit, Protocol):
    """A unit of change. Everything in it happens, or nothing."""

    def savepoint(self) -> AbstractContextManager[None]: ...

    def prefetch(self, txn_ids: Collection[TxnId], table_ids: Collection[TableId]) -> None:
        """Hear what will be asked for; a store that is far away asks for all of it at once."""
        ...

    def advance_clock(self, clock: CatalogClock, txn_id: TxnId | None) -> None: ...
    def delete_events(self, last: Sequence) -> None:
        """Delete events up to a sequence, except for the newest of all."""
        ...

    def set_setting(self, key: str, value: str) -> None: ...

    def insert_namespace(self, name: SchemaName, now_ms: int) -> None: ...
    def delete_namespace(self, name: SchemaName) -> None: ...
    def assign_name(self, name: TableName, table_id: TableId, since: Sequence) -> None: ...
    def release_name(self, table_id: TableId, until: Sequence) -> None: ...

    def insert_table(self, row: TableRow) -> TableRow: ...
    def update_table(self, row: TableRow) -> None: ...

    def insert_commit(self, key: int, row: CommitRow) -> None: ...
    def insert_rejection(self, row: RejectionRow) -> None: ...
    def delete_rejections(self, before_ms: int) -> None: ...
    def record_published(self, key: int, first: Version, last: Version, now_ms: int) -> None: ...
    def set_diverged(self, key: int, message: str | None) -> None: ...
    def delete_content(self, key: int, upto: Version) -> None: ...
    def insert_file(self, key: int, file: KnownFile) -> None: ...
    def delete_file(self, key: int, file: KnownFile) -> None:
        """Forget a file, unless another one was recorded in its place."""
        ...

    def acquire_lease(self, name: str, holder: str, now_ms: int, until_ms: int) -> bool: ...
    def release_lease(self, name: str, holder: str) -> None: ...

    def insert_token(self, row: TokenRow) -> None: ...
    def revoke_token(self, name: str, now_ms: int) -> None: ...
    def insert_answer(self, row: AnswerRow) -> None: ...
    def delete_answers(self, before_ms: int) -> None: ...
    def put_listener(self, row: ListenerRow) -> None: ...
    def delete_listener(self, name: str) -> None: ...
    def advance_listener(self, name: str, position: Sequence, failing: str | None) -> None: ...
    def insert_location(self, row: LocationRow) -> None: ...
    def delete_location(self, url: str) -> None: ...


class CatalogStore(Protocol):
    """Where a catalog keeps what it knows."""

    def read(self) -> AbstractContextManager[ReadUnit]:
        """One read transaction: everything in it is from one instant."""
        ...

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        """Questions that are each from an instant of their own, which costs less than one for all.

        For a single one, or for what stays as it is once it is there.
        """
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """One write transaction; durable once the block is left without an error."""
        ...

    def check_integrity(self) -> list[str]:
        """Check the whole database for damage; return what is wrong with it.

        Once something is, the store refuses all reads and writes with `DamagedError`.
        """
        ...

    def describe(self) -> str:
        """Say what the rows lie in, without a secret."""
        ...

    def local_file(self) -> Path | None:
        """Return the database's own file on this machine; None if a server keeps the rows.

        Whatever else begins with its name belongs to the database, too.
        """
        ...

    def backup(self, target: Path) -> None:
        """Write one instant of everything to a new file, while others go on."""
        ...

    def close(self) -> None:
        """Let go of every connection."""
        ...
