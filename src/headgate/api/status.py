"""What an operator asks a catalog for: how it stands, who is told, who may come in."""

from __future__ import annotations

import msgspec

from headgate.protocol.actions import Sequence, TableId


class ListenerEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A registered listener, and how far it is."""

    name: str
    kind: str  # webhook, or callable: in the process that brought it
    target: str  # where it is told
    position: Sequence  # it has heard of everything up to here
    behind: int = 0  # how many events are still to be told
    created_ms: int
    failing: str | None = None  # why it could not be told more


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A token, without its secret."""

    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class LocationEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A registered location outside of the lake's root, under which clients may have tables."""

    url: str
    created_ms: int


class FileSizes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many files of which sizes a table has, as a writer counted them."""

    sorted_bin_boundaries: tuple[int, ...] = ()
    file_counts: tuple[int, ...] = ()
    total_bytes: tuple[int, ...] = ()
    commit_version: int | None = None


class Reported(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What writers told of their commits to a table, added up. Nobody checks it."""

    commits: int = 0
    files_added: int = 0
    bytes_added: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    rows_inserted: int = 0
    rows_removed: int = 0
    rows_updated: int = 0
    file_sizes: FileSizes | None = None  # of the newest version that was told of
    last_ms: int | None = None  # when the last of them told


class Remarks(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is stored of a catalog or a schema beyond its name."""

    comment: str | None = None
    properties: dict[str, str] = {}
    changed_ms: int | None = None
    id: str | None = None  # kept when it is renamed
    former_name: str | None = None  # before it was renamed last
    storage_root: str | None = None  # new tables are stored under it
    storage_location: str | None = None  # the folder under the storage root that is its own


class CatalogRemarks(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was said of a catalog, and of its namespaces by what is unique in their names."""

    catalog: Remarks = Remarks()
    schemas: dict[str, Remarks] = {}


class Tail(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A table's commits that are ratified and not yet published."""

    table_id: TableId
    name: str | None = None
    unpublished: int


class Trouble(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A table that is not published, and why.

    Stopped: until somebody mends it. Otherwise it is tried again and again.
    """

    table_id: TableId
    name: str | None = None
    reason: str
    is_stopped: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How a catalog stands, from one instant."""

    version: str  # of Headgate
    store: str  # what the rows lie in, and their schema
    root: str  # where tables are put
    sequence: Sequence
    clock_ms: int
    tables: dict[str, int]  # how many are in each state
    external: int = 0  # of the active ones
    unpublished: int = 0
    tails: tuple[Tail, ...] = ()  # the longest first
    open_transactions: int = 0  # begun with the catalog, and not decided
    publisher_lag_ms: int = 0  # how long the oldest unpublished commit has been waiting
    troubles: tuple[Trouble, ...] = ()
    listeners: tuple[ListenerEntry, ...] = ()
    tokens: int = 0  # that are not revoked
