"""Rows of a catalog's store, and its errors.

Rows are named tuples, since one request may load thousands of them; the bytes in them are JSON
that this layer does not parse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from headgate.errors import UnavailableError
from headgate.names import TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
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
