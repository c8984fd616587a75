"""The ports between a Delta client and a catalog.

A catalog that manages tables has at least the methods of `ManagingCatalog`. Every other port is a
capability of its own. A client that needs one calls `require`, which names the missing capability.
Spec: CA-02, CA-05.
"""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Many
from typing import Protocol, TypeVar, runtime_checkable

from headgate.api import messages
from headgate.api.events import Event, Listener
from headgate.api.status import ListenerEntry, LocationEntry, Status, TokenEntry
from headgate.errors import UnsupportedByCatalogError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Inline
from headgate.protocol.log.known_files import KnownFile

Ref = TableName | TableId
Capability = TypeVar("Capability")
Progress = Callable[[int, int], None]  # called with how much is done, and of how much

# Commits


class ManagingCatalog(Protocol):
    """Catalogs that manage tables."""

    def resolve(self, ref: Ref, at: Sequence | None = None) -> messages.Resolved:
        """Return everything that a client needs of a table, in one call. Spec: CM-21."""

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> messages.RatifiedCommits:
        """Return the commits that the catalog holds, and always the latest version. Spec: CM-20."""

    def propose(self, proposal: messages.Proposal) -> messages.Answer:
        """Decide a proposal; the same one again gets the first answer. Spec: CM-42."""


@runtime_checkable
class Cuts(Protocol):
    """Catalogs with one sequence over all tables."""

    def resolve_many(
        self, refs: Many[Ref], at: Sequence | None = None
    ) -> tuple[messages.Resolved, ...]:
        """Resolve several tables as of one sequence. Spec: MT-02."""

    def sequence_at(self, timestamp_ms: int | None = None) -> Sequence:
        """Return the newest sequence, up to a time if one is given, or 0.

        Raises `VersionGoneError` if the sequence is no longer known.
        """


@runtime_checkable
class Outcomes(Protocol):
    """Catalogs that record the outcome of transactions."""

    def outcome(self, txn_id: TxnId) -> messages.Ratified | messages.Rejected | None:
        """Return the answer that a transaction got; None if it was never decided."""


@runtime_checkable
class Timelines(Protocol):
    """Catalogs that record when each commit was proposed, ratified and published."""

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[messages.TimelineEntry, ...]:
        """Return every commit of a range, ascending, without content."""


@runtime_checkable
class Publishing(Protocol):
    """Catalogs that publish commits, or record that others published them."""

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Publish in order up to a version, by default the latest; return the last published."""

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        """Verify what a client reports as published, then record it. Spec: PB-01."""

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Verify and record a checkpoint, compaction or checksum. Spec: RD-04, CM-27, CM-28."""


# Tables


@runtime_checkable
class Registry(Protocol):
    """Catalogs that keep tables by name, in namespaces."""

    def namespaces(self) -> tuple[SchemaName, ...]:
        """List all namespaces."""

    def create_namespace(self, name: SchemaName, *, storage_root: str | None = None) -> None:
        """Create a namespace; its new tables are stored under its storage root, if given."""

    def drop_namespace(self, name: SchemaName) -> None:
        """Drop an empty namespace."""

    def rename_namespace(self, name: SchemaName, new_name: str) -> None:
        """Rename a schema within its catalog; its tables keep their ids, data and history."""

    def rename_catalog(self, name: str, new_name: str) -> None:
        """Rename a catalog with all its schemas and tables."""

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[messages.TableEntry, ...]:
        """List tables, including dropped ones if asked."""

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> messages.Resolved:
        """Create and name a table in one call; version 0 is inline. Spec: LC-01."""

    def rename_table(self, table_id: TableId, name: TableName) -> None:
        """Rename a table; its id, location and history stay. Spec: LC-04."""

    def drop_table(self, table_id: TableId) -> None:
        """Drop a table: release its name. Nothing is committed or deleted. Spec: CM-40."""

    def undrop_table(self, table_id: TableId, name: TableName | None = None) -> None:
        """Undrop a table, under its old name or a new one. Spec: LC-03."""

    def purge_table(self, table_id: TableId, *, progress: Progress | None = None) -> int:
        """Delete a dropped table's files, or the rest of them; return how many. Spec: CM-40."""

    def stage_table(
        self, location: str | None = None, *, namespace: SchemaName | None = None
    ) -> messages.StagingTable:
        """Return an id and a location for a table that has no name yet. Spec: CM-39.

        Without a location it is under the storage root of the namespace, or of the lake.
        """

    def register_table(self, name: TableName, table_id: TableId) -> messages.Resolved:
        """Check version 0 of a staging table and give the table its name. Spec: LC-02."""


@runtime_checkable
class Externals(Protocol):
    """Catalogs that also register tables that they do not manage."""

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
    ) -> messages.Resolved:
        """Give a name to an external table, which is not read; repeated, give the first answer."""


# Events


@runtime_checkable
class Events(Protocol):
    """Catalogs with an event for every ratification, in order of sequences."""

    def events(
        self, after: Sequence | None = None, limit: int = 1_000, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        """Return the events after a sequence, in order and without a gap.

        Without a sequence, begin at the oldest event that is kept. If there are none yet, wait for
        the next. Raises `VersionGoneError` if events after the sequence are deleted.
        """


@runtime_checkable
class Listeners(Protocol):
    """Catalogs that post events to registered webhooks."""

    def listeners(self) -> tuple[ListenerEntry, ...]:
        """List all listeners with their positions."""

    def put_listener(self, name: str, target: str, after: Sequence | None = None) -> ListenerEntry:
        """Register a webhook; an existing one gets the new target and keeps its position.

        It gets all later events, or those after a sequence.
        """

    def delete_listener(self, name: str) -> None:
        """Remove a listener and its position."""


@runtime_checkable
class Callables(Protocol):
    """Catalogs in this process, which can call functions of it."""

    def listen(
        self,
        name: str,
        listener: Listener,
        *,
        tables: Collection[TableName] | None = None,
        together: bool = False,
        after: Sequence | None = None,
    ) -> None:
        """Call a listener with every event, or with those of some tables. Spec: EV-02.

        Its position is recorded under its name; a new one begins now, or after a sequence. With
        `together` it is called once all of its tables have changed since the last call.
        """


# Maintenance


@runtime_checkable
class Checks(Protocol):
    """Catalogs that can be compared with the logs of their tables."""

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[messages.Finding, ...]:
        """Check one table or all; repair what can be repaired if asked."""


@runtime_checkable
class Statuses(Protocol):
    """Catalogs that report their status."""

    def status(self) -> Status:
        """Return the status."""


# Administration


@runtime_checkable
class Locations(Protocol):
    """Catalogs with registered locations for tables."""

    def locations(self) -> tuple[LocationEntry, ...]:
        """List the registered locations."""


@runtime_checkable
class Administration(Protocol):
    """Catalogs in this process, on their own store."""

    def create_token(self, name: str, expires_ms: int | None = None) -> str:
        """Create a token and return its secret, which cannot be shown again."""

    def tokens(self) -> tuple[TokenEntry, ...]:
        """List all tokens, including expired and revoked ones."""

    def revoke_token(self, name: str) -> None:
        """Revoke a token; revoking it again has no effect."""

    def add_location(self, location: str) -> LocationEntry:
        """Register a location; one that is registered already stays as it is."""

    def remove_location(self, location: str) -> None:
        """Remove a registered location; tables that are there already stay."""

    def backup(self, target: str) -> None:
        """Write the catalog as of one instant to a new file, while others go on."""


def require(catalog: object, capability: type[Capability]) -> Capability:
    """Return the catalog as one that has the capability, or refuse by its name. Spec: CA-05."""
    if isinstance(catalog, capability):
        return catalog
    raise UnsupportedByCatalogError(f"This catalog has no {capability.__name__.lower()}.")
