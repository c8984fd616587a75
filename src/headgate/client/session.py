"""Sessions, which use any catalog through `api.port`; here text is parsed into names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Self, TypeVar

from headgate import errors
from headgate.api import port
from headgate.api.events import Event, Listener
from headgate.api.messages import Finding, Ratified, Rejected, Resolved, TableEntry
from headgate.api.status import ListenerEntry, LocationEntry, Status, TokenEntry
from headgate.arguments import When, checked, milliseconds, refuse_several
from headgate.client import event_stream
from headgate.client.open_transaction import Transaction, TransactionCache, TransactionTable
from headgate.client.own_writes import OwnWrites
from headgate.client.plain_table import PlainTable
from headgate.client.table import Table
from headgate.client.table_creation import create_in_one, create_in_three
from headgate.client.table_definition import AnySchema, Fill, TableDefinition, columns_of
from headgate.client.transaction import Committer, Patience, isolation_level
from headgate.clock import Clock, Ids
from headgate.names import (
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    SchemaName,
    TableName,
    did_you_mean,
    fold,
    plain_name,
)
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.schema.types import to_json
from headgate.protocol.table_states import TableStatus, parse_table_id
from headgate.storage.object_store import ObjectStore
from headgate.table import snapshot_loader
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_cache import SnapshotCache

Result = TypeVar("Result")

_CREATE = "CREATE TABLE"
_REPLACE = "REPLACE TABLE"
_CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"


@checked
class Session:
    """A connection to a catalog. Close it with `close`, or use it in a `with` statement."""

    def __init__(
        self,
        catalog: port.ManagingCatalog,
        *,
        clock: Clock,
        ids: Ids,
        store_for: Callable[[str], ObjectStore],
        patience: Patience | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.catalog = catalog
        self._namespace = SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA)
        self.clock = clock
        self.ids = ids
        self._store_for = store_for
        self._cache = SnapshotCache()
        self._committer = Committer(catalog, clock, ids, patience)
        self._on_close = on_close
        self._table_type = Table

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalog. Closing twice is allowed."""
        self._committer.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    # Namespaces

    def create_namespace(
        self, name: str, *, storage_root: str | None = None, if_not_exists: bool = False
    ) -> None:
        """Create a namespace, `schema` or `catalog.schema`.

        With `if_not_exists` an existing namespace stays as it is.

        With a storage root, its tables are stored there instead of under the lake's root. On a
        server it must be a location that an administrator registered.
        """
        namespace = self.schema_name(name)
        try:
            self._registry().create_namespace(namespace, storage_root=storage_root)
        except errors.AlreadyExistsError:
            known = self.namespaces() if if_not_exists else ()
            if all(other.key != namespace.key for other in known):
                raise

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace."""
        self._registry().drop_namespace(self.schema_name(name))

    def rename_namespace(self, name: str, to: str) -> None:
        """Rename a namespace within its catalog; its tables keep their ids, data and history."""
        old = self.schema_name(name)
        new = SchemaName.parse(to, catalog=old.catalog)
        if fold(new.catalog) != fold(old.catalog):
            raise errors.InvalidArgumentError(
                f"A namespace cannot be moved to another catalog: {old} to {new}.",
                remedy="Rename its tables instead: session.rename().",
            )
        self._registry().rename_namespace(old, new.schema)
        if self._namespace.key == old.key:
            self._namespace = SchemaName(self._namespace.catalog, new.schema)

    def rename_catalog(self, name: str, to: str) -> None:
        """Rename a catalog with all its namespaces and tables."""
        old, new = plain_name(name), plain_name(to)
        self._registry().rename_catalog(old, new)
        if fold(self._namespace.catalog) == fold(old):
            self._namespace = SchemaName(new, self._namespace.schema)

    def namespaces(self) -> tuple[SchemaName, ...]:
        return self._registry().namespaces()

    def table_name(self, name: str) -> TableName:
        """Return the full name of a table, whether it exists or not."""
        return TableName.parse(name, self._namespace.catalog, self._namespace.schema)

    def schema_name(self, name: str | None = None) -> SchemaName:
        """Return the full name of a namespace, by default of the current one."""
        if name is None:
            return self._namespace
        return SchemaName.parse(name, self._namespace.catalog)

    def use(self, name: str) -> None:
        """Make another namespace the current one: the one of names without a namespace."""
        namespace = self.schema_name(name)
        known = {found.key: found for found in self.namespaces()}
        if namespace.key not in known:
            hint = did_you_mean(namespace.schema, [found.schema for found in known.values()])
            raise errors.NotFoundError(
                f"There is no namespace {namespace}.{hint}",
                remedy="See session.namespaces(), or `headgate show`.",
            )
        self._namespace = known[namespace.key]

    # Tables

    def table(self, name: str) -> Table:
        """Open the managed table of this name. Spec: CM-21, RD-01."""
        return self._open(self.table_name(name))

    def snapshot(
        self,
        name: str,
        version: int | None = None,
        as_of: When | None = None,
        sequence: int | None = None,
    ) -> Snapshot:
        """Load a version of a managed table, resolving it only once. Spec: RD-01, CM-38."""
        refuse_several(version=version, as_of=as_of, sequence=sequence)
        resolved = self._resolved(self.table_name(name), sequence)
        _refuse_external(resolved)
        return self.load(resolved, version, as_of)

    def load(
        self, resolved: Resolved, version: int | None = None, as_of: When | None = None
    ) -> Snapshot:
        """Load a table that is resolved already, managed or external. Spec: RD-01, RD-02."""
        refuse_several(version=version, as_of=as_of)
        if resolved.format.lower() != "delta":
            raise errors.UnsupportedFeatureError(
                f"{resolved.name} is a {resolved.format} table at {resolved.location}.",
                remedy="Read it with a tool for that format.",
            )
        return snapshot_loader.load(
            self.catalog,
            resolved,
            version=None if version is None else Version(version),
            as_of_ms=None if as_of is None else milliseconds(as_of),
            cache=self._cache,
            store_for=self._store_for,
        )

    def resolve(self, name: str) -> Resolved:
        """Return everything a client needs to know about a table. Spec: CM-21."""
        return self._resolved(self.table_name(name))

    def find(self, name: str, sequence: int | None = None) -> Resolved | None:
        """Resolve a name, now or as of a sequence; return None if no table has it."""
        at = None if sequence is None else SequenceNumber(sequence)
        with suppress(errors.NotFoundError):
            return snapshot_loader.resolve(self.catalog, self.table_name(name), at)
        return None

    def suggestion(self, name: str) -> str:
        """Return "Did you mean …?" with the table most like a name; empty if there is none."""
        missing = self.table_name(name)
        if not isinstance(self.catalog, port.Registry):
            return ""
        entries = self.catalog.tables(missing.namespace)
        names = [TableName.parse(entry.name) for entry in entries if entry.name is not None]
        return did_you_mean(missing.table, [known.table for known in names])

    def table_by_id(self, table_id: str) -> Table:
        """Open the table that has this id, whatever its name is now."""
        return self._open(parse_table_id(table_id))

    def open(self, resolved: Resolved) -> Table:
        """Open a managed table that is resolved already."""
        _refuse_external(resolved)
        return self._table_type(self._committer, self._store_for, resolved, self._cache)

    def tables(
        self, namespace: str | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        """List tables, with `dropped` also those that are dropped and not purged."""
        within = None if namespace is None else self.schema_name(namespace)
        return self._registry().tables(within, dropped=dropped)

    def create_table(
        self,
        name: str,
        schema: AnySchema,
        partition_by: Iterable[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
        *,
        if_not_exists: bool = False,
        three_phase: bool = False,
    ) -> Table:
        """Create a table: with one request if the catalog supports it, else with three.

        With `if_not_exists` an existing table of this name is opened, whatever its columns.
        Spec: LC-01, CM-39.
        """
        definition = TableDefinition.parse(schema, partition_by, properties, comment)
        try:
            return self._create(self.table_name(name), definition, _CREATE, three_phase=three_phase)
        except errors.AlreadyExistsError:
            existing = self.find(name) if if_not_exists else None
            if existing is None or not existing.catalog_managed:
                raise
        return self.open(existing)

    def replace_table(
        self,
        name: str,
        schema: AnySchema,
        partition_by: Iterable[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
        *,
        or_create: bool = False,
    ) -> Table:
        """Replace a table by an empty one with its id and history; `or_create` allows a new one."""
        definition = TableDefinition.parse(schema, partition_by, properties, comment)
        table_name = self.table_name(name)
        operation = _CREATE_OR_REPLACE if or_create else _REPLACE
        try:
            table = self._open(table_name)
        except errors.NotFoundError:
            if not or_create:
                raise
            try:
                return self._create(table_name, definition, operation)
            except errors.AlreadyExistsError:  # another client created it meanwhile
                table = self._open(table_name)
        table.replace(definition, operation, table.newest_seen)
        return table

    def create_filled(
        self,
        name: str,
        definition: TableDefinition,
        fill: Fill,
        operation: str = "CREATE TABLE AS SELECT",
    ) -> Table:
        """Create a table with files that an engine writes: name and rows together. Spec: CM-39."""
        self._registry()
        return self.open(
            create_in_three(
                self._committer, self._store_for, self.table_name(name), definition, operation, fill
            )
        )

    def register_external(
        self, name: str, location: str, format: str = "delta", schema: AnySchema | None = None
    ) -> Resolved:
        """Register a table that is stored elsewhere and not managed; nothing of it is read."""
        externals = port.require(self.catalog, port.Externals)
        columns = None if schema is None else to_json(columns_of(schema))
        return externals.register_external(self.table_name(name), location, format, columns)

    def open_external(
        self, name: str, version: int | None = None, as_of: When | None = None
    ) -> PlainTable:
        """Open an external Delta table for reading; a managed table is refused."""
        resolved = self._resolved(self.table_name(name))
        if resolved.catalog_managed:
            raise errors.InvalidArgumentError(
                f"{name} is managed by this catalog.", remedy="Open it with session.table()."
            )
        return PlainTable(self.load(resolved, version, as_of))

    def rename(self, name: str, to: str) -> None:
        """Rename a table; open tables stay valid. Spec: LC-04."""
        self._registry().rename_table(self.resolve(name).table_id, self.table_name(to))

    def drop(self, name: str) -> TableId:
        """Drop a table; its data stays until it is purged. Spec: CM-40."""
        registry = self._registry()
        table_id = self.resolve(name).table_id
        registry.drop_table(table_id)
        return table_id

    def undrop(self, table: str, to: str | None = None) -> Table:
        """Restore a dropped table, by its id or its name: of several the one dropped last."""
        registry = self._registry()
        gone = self._gone(registry, table, TableStatus.DROPPED)
        found = max(gone, key=lambda entry: entry.dropped_ms or 0)
        registry.undrop_table(found.table_id, None if to is None else self.table_name(to))
        return self._open(found.table_id)

    def purge(self, table: str, progress: port.Progress | None = None) -> int:
        """Delete the files of a dropped table; return their number. Spec: CM-40."""
        registry = self._registry()
        # A purge that was interrupted continues: the table is purged already.
        found = self._gone(registry, table, TableStatus.DROPPED, TableStatus.PURGED)
        if len(found) > 1:
            ids = ", ".join(entry.table_id for entry in found)
            raise errors.InvalidArgumentError(
                f"{len(found)} dropped tables had the name {table}: {ids}.",
                remedy="Pass the id of the one to purge.",
            )
        return registry.purge_table(found[0].table_id, progress=progress)

    # Several tables, and transactions

    def read_cut(
        self, names: Iterable[str], sequence: int | None = None, as_of: When | None = None
    ) -> dict[str, Snapshot]:
        """Load several tables as of one sequence; return them by name. Spec: MT-02."""
        cuts = port.require(self.catalog, port.Cuts)
        refuse_several(sequence=sequence, as_of=as_of)
        at = None if sequence is None else SequenceNumber(sequence)
        if as_of is not None:
            at = cuts.sequence_at(milliseconds(as_of))
        unique = list(dict.fromkeys(names))
        resolved = cuts.resolve_many([self.table_name(name) for name in unique], at)
        return {name: self.load(found) for name, found in zip(unique, resolved, strict=True)}

    def transaction(
        self,
        *,
        isolation: Isolation | str = Isolation.WRITE_SERIALIZABLE,
        read_only: bool = False,
        sequence: int | None = None,
        as_of: When | None = None,
    ) -> Transaction:
        """Begin a transaction over many statements and many tables.

        It reads all tables as of now, or of an earlier sequence or time, which makes it read-only.
        In a catalog without sequences each table is read as of its first use. Spec: MT-12, MT-13.
        """
        refuse_several(sequence=sequence, as_of=as_of)
        is_past = (sequence, as_of) != (None, None)
        writes = OwnWrites(
            self.catalog,
            self.clock,
            self._sequence(sequence, as_of),
            read_only=read_only or is_past,
        )
        txn_id = self._committer.new_txn_id()
        inner = self._seeing(writes, txn_id)
        level = isolation_level(isolation)
        return Transaction(txn_id, writes, inner.table, self._committer, self.load, level)

    def inside(self, transaction: Transaction) -> Session:
        """Return a session that sees the tables as a transaction does, and writes to it."""
        return self._seeing(transaction.writes, transaction.id)

    def _seeing(self, writes: OwnWrites, txn_id: TxnId) -> Session:
        inner = Session(writes, clock=self.clock, ids=self.ids, store_for=self._store_for)
        inner._committer = Committer(writes, self.clock, self.ids, within=txn_id)
        inner._namespace = self._namespace
        inner._cache = TransactionCache(self._cache, writes)
        inner._table_type = TransactionTable
        return inner

    def transact(
        self,
        run: Callable[[Transaction], Result],
        *,
        tries: int = 5,
        isolation: Isolation | str = Isolation.WRITE_SERIALIZABLE,
    ) -> Result:
        """Call a function in a transaction, and again after a conflict, at most `tries` times.

        Each call begins with the latest tables. What the last one returned is returned.
        """
        if tries < 1:
            raise errors.InvalidArgumentError(f"`tries` is {tries}; it must be at least 1.")
        lost = 0
        while True:
            try:
                with self.transaction(isolation=isolation) as transaction:
                    return run(transaction)
            except errors.ConflictError:
                lost += 1
                if lost == tries:
                    raise
                self._committer.pause(lost)

    def _sequence(self, sequence: int | None, as_of: When | None) -> SequenceNumber | None:
        if sequence is not None:
            return SequenceNumber(sequence)
        if as_of is None and not isinstance(self.catalog, port.Cuts):
            return None
        cuts = port.require(self.catalog, port.Cuts)
        return cuts.sequence_at(None if as_of is None else milliseconds(as_of))

    def outcome(self, txn_id: str) -> Ratified | Rejected | None:
        """Return the outcome of a transaction; None if it was never decided. Spec: CM-43."""
        outcomes = port.require(self.catalog, port.Outcomes)
        return outcomes.outcome(TxnId(txn_id))

    def fsck(
        self,
        name: str | None = None,
        *,
        repair: bool = False,
        progress: port.Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Compare one table or all with their logs; with `repair` repair what can be repaired."""
        checks = port.require(self.catalog, port.Checks)
        table_id = None if name is None else self.table(name).id
        return checks.fsck(table_id, repair=repair, progress=progress)

    # Events and listeners

    def events(
        self,
        after: int | None = None,
        *,
        tables: Iterable[str] = (),
        follow: bool = False,
        wait_s: float = 0.0,
    ) -> Iterator[Event]:
        """Yield every event after a sequence, in order, or those of some tables.

        Without a sequence, begin at the oldest event that is kept; raises `VersionGoneError` if
        events after the sequence are deleted. Ends when no event came for `wait_s` seconds; with
        `follow` it does not end. Spec: EV-02.
        """
        return event_stream.read(
            port.require(self.catalog, port.Events),
            None if after is None else SequenceNumber(after),
            [self.table_name(name) for name in tables],
            self.clock,
            follow=follow,
            wait_s=wait_s,
        )

    def listen(
        self,
        name: str,
        listener: Listener,
        *,
        tables: Iterable[str] | None = None,
        together: bool = False,
        after: int | None = None,
    ) -> None:
        """Call a listener in this process with every event, or with those of some tables.

        It is called in order, at least once, in its own thread, while the session is open. Its
        position is stored under its name; a new name begins now, or after a sequence. With
        `together` it is called when all of its tables have changed since the last call.
        Spec: EV-02.
        """
        callables = port.require(self.catalog, port.Callables)
        callables.listen(
            name,
            listener,
            tables=None if tables is None else [self.table_name(name) for name in tables],
            together=together,
            after=None if after is None else SequenceNumber(after),
        )

    def listeners(self) -> tuple[ListenerEntry, ...]:
        """List the listeners and their positions."""
        return port.require(self.catalog, port.Listeners).listeners()

    def put_listener(self, name: str, url: str, after: int | None = None) -> ListenerEntry:
        """Make the server post every event to a URL, from now on or after a sequence.

        An existing listener gets the new URL; it keeps its position unless `after` is passed.
        """
        begin = None if after is None else SequenceNumber(after)
        return port.require(self.catalog, port.Listeners).put_listener(name, url, begin)

    def delete_listener(self, name: str) -> None:
        """Delete a listener and its position."""
        port.require(self.catalog, port.Listeners).delete_listener(name)

    # Operations

    def status(self) -> Status:
        """Return the state of the catalog: tables, unpublished commits, listeners, store."""
        return port.require(self.catalog, port.Statuses).status()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a consistent copy of the catalog to a new file, while it is in use."""
        self._administration().backup(os.fspath(target))

    def create_token(self, name: str, expires: When | None = None) -> str:
        """Create an access token for servers on this store; return its secret, shown once."""
        expires_ms = None if expires is None else milliseconds(expires)
        return self._administration().create_token(name, expires_ms)

    def tokens(self) -> tuple[TokenEntry, ...]:
        """List the access tokens, also expired and revoked ones."""
        return self._administration().tokens()

    def revoke_token(self, name: str) -> None:
        self._administration().revoke_token(name)

    def locations(self) -> tuple[LocationEntry, ...]:
        """List the locations besides the root where clients of a server may put tables."""
        return port.require(self.catalog, port.Locations).locations()

    def add_location(self, location: str | os.PathLike[str]) -> LocationEntry:
        """Allow clients of a server on this store to create tables under a location.

        This needs the catalog's own store: clients of a server cannot extend their own rights. A
        location that is registered already stays as it is.
        """
        return self._administration().add_location(os.fspath(location))

    def remove_location(self, location: str | os.PathLike[str]) -> None:
        """Remove a registered location; tables that are stored there stay."""
        self._administration().remove_location(os.fspath(location))

    # Internals

    def _administration(self) -> port.Administration:
        try:
            return port.require(self.catalog, port.Administration)
        except errors.UnsupportedByCatalogError as error:
            from headgate.client.remote import RemoteCatalog  # slow to import, and rarely needed

            message = error.message
            if isinstance(self.catalog, RemoteCatalog):
                message = "Tokens, locations and backups cannot be managed through a server."
            raise errors.UnsupportedByCatalogError(
                message,
                remedy="Run this where the server runs, and name the address of the catalog's own "
                "store: a directory, sqlite:///FILE or postgresql://….",
            ) from None

    def _registry(self) -> port.Registry:
        if isinstance(self.catalog, OwnWrites):
            raise errors.UnsupportedByCatalogError(
                "Tables and namespaces cannot be listed, created, renamed or dropped inside a "
                "transaction.",
                remedy="End the transaction first.",
            )
        return port.require(self.catalog, port.Registry)

    def _resolved(self, ref: port.Ref, sequence: int | None = None) -> Resolved:
        try:
            at = None if sequence is None else SequenceNumber(sequence)
            return snapshot_loader.resolve(self.catalog, ref, at)
        except errors.NotFoundError as error:
            hint = self.suggestion(str(ref)) if isinstance(ref, TableName) else ""
            if not hint:
                raise
            raise errors.NotFoundError(f"{error.message}{hint}") from None

    def _open(self, ref: port.Ref) -> Table:
        return self.open(self._resolved(ref))

    def _gone(self, registry: port.Registry, table: str, *states: TableStatus) -> list[TableEntry]:
        entries = [e for e in registry.tables(dropped=True) if e.state in states]
        found = [entry for entry in entries if entry.table_id == table]
        if not found:
            key = self.table_name(table).key
            found = [e for e in entries if e.name and TableName.parse(e.name).key == key]
        if not found:
            raise errors.NotFoundError(
                f"There is no dropped table {table}.",
                remedy="See session.tables(dropped=True), or `headgate show --dropped`.",
            )
        return found

    def _create(
        self,
        name: TableName,
        definition: TableDefinition,
        operation: str,
        *,
        three_phase: bool = False,
    ) -> Table:
        self._registry()
        if not three_phase:
            # Refused by catalogs that need version 0 in the log.
            with suppress(errors.UnsupportedByCatalogError):
                return self.open(create_in_one(self._committer, name, definition, operation))
        return self.open(
            create_in_three(self._committer, self._store_for, name, definition, operation)
        )


def _refuse_external(resolved: Resolved) -> None:
    if not resolved.catalog_managed:
        label = resolved.name or resolved.table_id
        raise errors.InvalidArgumentError(
            f"{label} is an external {resolved.format} table at {resolved.location}.",
            remedy="Read it with session.open_external(), or by its location.",
        )
