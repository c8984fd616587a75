"""The ports between a Delta client and a catalog.

`ManagingCatalog` is all a table needs to be served: any catalog that has these three methods will
do. Everything else is a capability of its own; a client that wants one the catalog lacks refuses
by its name. Spec: CA-02, CA-05.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Sequence as Many
from typing import Protocol, TypeVar, runtime_checkable

from headgate.api.events import Event, Listener
from headgate.api.messages import (
    Answer,
    Finding,
    Proposal,
    Ratified,
    RatifiedCommits,
    Rejected,
    Resolved,
    StagingTable,
    TableEntry,
    TimelineEntry,
)
from headgate.api.status import ListenerEntry, LocationEntry, Status, TokenEntry
from headgate.errors import UnsupportedByCatalogError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline
from headgate.protocol.log.known_files import KnownFile

Ref = TableName | TableId
Capability = TypeVar("Capability")


# How much of a long work is done, and of how much: told to whoever waits for it.
Progress = Callable[[int, int], None]


class ManagingCatalog(Protocol):
    """The least a catalog must do to manage a table."""

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        """Tell all of one table that a client needs, in one call."""
        ...

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        """Give the ratified commits still held, and the latest version, always."""
        ...

    def propose(self, proposal: Proposal) -> Answer:
        """Decide a proposal; the same one again gets the first answer."""
        ...


@runtime_checkable
class Cuts(Protocol):
    """Catalogs with one sequence over all tables."""

    def resolve_many(self, refs: Many[Ref], at: Sequence | None = None) -> tuple[Resolved, ...]:
        """Resolve several tables as of one sequence."""
        ...

    def sequence_at(self, timestamp_ms: int) -> Sequence:
        """Give the newest sequence not later than a time.

        Raises `VersionGoneError` if the events of that time are deleted.
        """
        ...


@runtime_checkable
class Outcomes(Protocol):
    """Catalogs that remember what became of a transaction."""

    def outcome(self, txn_id: TxnId) -> Ratified | Rejected | None:
        """Tell what became of it; None if it was never decided."""
        ...


@runtime_checkable
class Timelines(Protocol):
    """Catalogs that remember when each commit was proposed, ratified and published."""

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        """Give every commit of a range, ascending, without content."""
        ...


@runtime_checkable
class Publishing(Protocol):
    """Catalogs that publish, and are told what others published."""

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Publish in order up to a version, by default the latest; give the last published."""
        ...

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        """Look at what a client says it published, then believe it. Spec: PB-01."""
        ...

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Take note of a checkpoint, compaction or checksum. Spec: RD-04."""
        ...


@runtime_checkable
class Registry(Protocol):
    """Catalogs that make, name and unmake tables."""

    def create_namespace(self, name: SchemaName, *, storage_root: str | None = None) -> None:
        """Create a namespace; its new tables are stored under its storage root, if given."""
        ...

    def drop_namespace(self, name: SchemaName) -> None:
        """Remove an empty namespace."""
        ...

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        """Rename a schema within its catalog; its tables keep their ids, data and history."""
        ...

    def rename_catalog(self, name: str, new_name: str) -> None:
        """Rename a catalog with all its schemas and tables."""
        ...

    def namespaces(self) -> tuple[SchemaName, ...]:
        """List all namespaces."""
        ...

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        """List tables, the dropped ones too if asked."""
        ...

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> StagingTable:
        """Return an id and a location for a table that has no name yet.

        Without a location it is under the storage root of the namespace, or of the lake.
        """
        ...

    def register_table(self, name: TableName, table_id: TableId) -> Resolved:
        """Judge version 0 of a staging table and give the table its name. Spec: LC-02."""
        ...

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        """Make and name a table in one call; version 0 comes inline. Spec: LC-01."""
        ...

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        """Give the table another name; id, place and history stay. Spec: LC-04."""
        ...

    def drop_table(self, table_id: TableId) -> None:
        """Take the name away; nothing is committed and nothing deleted. Spec: CM-40."""
        ...

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        """Bring a dropped table back, under its old name or another. Spec: LC-03."""
        ...

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        """Delete a dropped table's files, resumably; give how many went. Spec: CM-40."""
        ...


@runtime_checkable
class Externals(Protocol):
    """Catalogs that also name tables they do not manage."""

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
    ) -> Resolved:
        """Give a name to a table that lies somewhere and is not managed."""
        ...


@runtime_checkable
class Checks(Protocol):
    """Catalogs that can be held against the logs of their tables."""

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Check one table or all; mend what can be mended if asked."""
        ...


@runtime_checkable
class Events(Protocol):
    """Catalogs that tell of every ratification, by sequence."""

    def events(
        self, after: Sequence | None = None, limit: int = 1_000, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        """Give what happened after a sequence; wait for the next if there is nothing.

        Without a sequence, begin at the oldest event that is kept. Raises `VersionGoneError` if
        events after the sequence are deleted.
        """
        ...


@runtime_checkable
class Listeners(Protocol):
    """Catalogs that tell others of events, wherever they are."""

    def listeners(self) -> tuple[ListenerEntry, ...]:
        """List who is told, and how far each one is."""
        ...

    def put_listener(self, name: str, target: str, after: Sequence | None = None) -> ListenerEntry:
        """Have a URL told of every event, from now on or from after a sequence."""
        ...

    def delete_listener(self, name: str) -> None:
        """Tell a listener no more, and forget how far it was."""
        ...


@runtime_checkable
class Callables(Protocol):
    """Catalogs that run in this process, and so can call what is here."""

    def listen(
        self,
        name: str,
        listener: Listener,
        *,
        tables: Collection[TableName] | None = None,
        together: bool = False,
        after: Sequence | None = None,
    ) -> None:
        """Call a listener with every event, or with those of some tables."""
        ...


@runtime_checkable
class Tokens(Protocol):
    """Catalogs that know who may come in: those that run on their store."""

    def create_token(self, name: str, expires_ms: int | None = None) -> str:
        """Make a token and give its secret, which nobody can give again."""
        ...

    def tokens(self) -> tuple[TokenEntry, ...]:
        """List the tokens."""
        ...

    def revoke_token(self, name: str) -> None:
        """Have a token open nothing from now on."""
        ...


@runtime_checkable
class Locations(Protocol):
    """Catalogs that know where clients may have tables."""

    def locations(self) -> tuple[LocationEntry, ...]:
        """List the registered locations."""
        ...


@runtime_checkable
class LocationChanges(Protocol):
    """Catalogs that register locations: those that run on their store."""

    def add_location(self, location: str) -> LocationEntry:
        """Register a location under which clients may have tables."""
        ...

    def remove_location(self, location: str) -> None:
        """Remove a registered location; tables that are there already stay."""
        ...


@runtime_checkable
class Statuses(Protocol):
    """Catalogs that say how they stand."""

    def status(self) -> Status:
        """Say how everything stands."""
        ...


@runtime_checkable
class Backups(Protocol):
    """Catalogs that can be copied: those that run on their store."""

    def backup(self, target: str) -> None:
        """Write one instant of the catalog to a new file, while others go on."""
        ...


def require(catalog: object, capability: type[Capability]) -> Capability:
    """Give the catalog as one that has the capability, or refuse by its name. Spec: CA-05."""
    if isinstance(catalog, capability):
        return catalog
    raise UnsupportedByCatalogError(f"This catalog has no {capability.__name__.lower()}.")
