"""Our changes against the winners': conflicts, or none and then the attempt may be rebased.

Everything is compared as values: `Changes` sums up a commit, `Scan` says what a transaction read.
"""

from __future__ import annotations

import enum

import msgspec

from headgate.protocol.actions import FileKey, Sequence, TableId, TxnId, Version
from headgate.protocol.predicates import Predicate


class Isolation(enum.Enum):
    """Which reads are checked when a transaction is decided."""

    SNAPSHOT = "snapshot"
    WRITE_SERIALIZABLE = "write_serializable"
    SERIALIZABLE = "serializable"


class Scan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a statement read of one table. No predicate means all of it."""

    table_id: TableId
    version: Version
    predicate: Predicate | None = None
    files: tuple[str, ...] | None = None  # paths kept after pruning; None: derive by the predicate
    fed: bool = True  # the read fed a write
    validating: bool = False  # it checked existing rows for a new constraint


class FileSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An added file as far as a predicate can judge it."""

    path: str
    partition_values: dict[str, str | None] = {}
    min_values: msgspec.Raw | None = None
    max_values: msgspec.Raw | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a commit did, as far as others can collide with it."""

    protocol: bool = False
    metadata: bool = False
    app_ids: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    added: tuple[FileSummary, ...] | None = ()  # None: too many to keep, so any may match
    removed: tuple[FileKey, ...] | None = ()
    data_change: bool = False
    blind: bool = False


class Conflict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A rule, and the winner that broke it."""

    rule: str
    table_id: TableId
    version: Version
    says: str
    txn_id: TxnId | None = None
    sequence: Sequence | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: version {self.version} {self.says}"
