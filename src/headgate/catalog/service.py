"""The catalog: one method per question or order; satisfies `api.port`.

It reads and judges what it ratifies, knows every table's latest version, and answers each
question from one instant of its store. It runs wherever it is put: in a client's process or in a
server's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from collections.abc import Sequence as Many
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.api.events import Event, Listener
from headgate.api.messages import (
    Answer,
    Finding,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Rejected,
    Resolved,
    StagingTable,
    TableEntry,
    TableInfo,
    TimelineEntry,
)
from headgate.api.port import Progress, Ref
from headgate.api.status import (
    CatalogDetails,
    CommitReports,
    ListenerEntry,
    LocationEntry,
    NamespaceDetails,
    Status,
    TokenEntry,
)
from headgate.catalog import commit_reports, descriptions, lookup, namespace_details, resolver
from headgate.catalog.allowed_locations import AllowedLocations
from headgate.catalog.changes import CatalogChanges
from headgate.catalog.decider import Decider
from headgate.catalog.event_feed import MAX_PAGE, EventFeed
from headgate.catalog.fsck.inspector import Inspector
from headgate.catalog.fsck.table_check import TableChecker
from headgate.catalog.housekeeping import Housekeeper
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.integrity_watch import IntegrityWatch
from headgate.catalog.lease_holders import name_of_this_process
from headgate.catalog.listeners import ListenerService
from headgate.catalog.namespaces import NamespaceService
from headgate.catalog.proposer import Decided, Proposer
from headgate.catalog.publisher import Publisher
from headgate.catalog.purge import Purger
from headgate.catalog.ratifier import Ratifier, Waiter
from headgate.catalog.resolver import Reader, Reserve, unbounded
from headgate.catalog.staged_file_cleanup import StagedFileCleaner
from headgate.catalog.status import gather
from headgate.catalog.stores.port import CatalogStore, WriteUnit
from headgate.catalog.tables import ExternalTable, Judge, TableService, nothing_more
from headgate.catalog.tokens import TokenService
from headgate.clock import Clock, Ids
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    LogDivergedError,
    NotFoundError,
    UnavailableError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol import paths
from headgate.protocol.actions import (
    Metadata,
    Sequence,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.commit.admission import Head
from headgate.protocol.commit.content import Inline, Staged
from headgate.protocol.commit.decide import Need
from headgate.protocol.encoding import replaced
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_READINESS = "readiness"
_READY_S = 5.0  # for one change of the store; commits that take longer are not taken

_log = logging.getLogger(__name__)


class Catalog:
    """A catalog on a store of its own, managing tables under one root."""

    def __init__(
        self,
        store: CatalogStore,
        root: str,
        *,
        store_for: Callable[[str], ObjectStore],
        clock: Clock,
        ids: Ids,
        settings: Settings | None = None,
        publisher: bool = True,
        housekeeping: bool = False,
        proposers: int | None = None,
        any_location: bool = False,
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Begin.

        With `any_location` callers may put tables wherever this process can write; without it only
        under the root and under registered locations.

        Whoever has a bounded number of threads to propose with says how many: then no table gets
        more than half of them, and no more than an eighth waits for its publisher. `on_stopped`
        is told when nothing can be decided any more, unless it was closed.
        """
        self._store = store
        self._store_for = store_for
        self._clock = clock
        self._settings = settings = settings or Settings()
        if not publisher:  # nobody will publish, so there is nobody to wait for
            settings = replace(settings, unpublished_soft=settings.unpublished_hard)
        with store.read() as unit:
            self._unseen = unit.clock().sequence
        self._decider = Decider(clock, settings)
        self._ratifier = Ratifier(store, clock, self._settings, on_stopped)
        holder = self._holder = name_of_this_process(ids.random())
        self._publisher = Publisher(
            store, self._ratifier, self._log_of, clock, self._settings, holder
        )
        self._allowed = AllowedLocations(
            store, self._ratifier, root, store_for, clock, any_location=any_location
        )
        changes = CatalogChanges(self._ratifier, clock, self._settings)
        self._namespaces = NamespaceService(changes, self._allowed, clock, ids)
        self._tables = TableService(
            store, changes, root, self._allowed, self._log_of, clock, ids, self._settings
        )
        self._purger = Purger(store, changes, root, self._log_of, clock, self._settings)
        checker = TableChecker(store)
        self._housekeeper = Housekeeper(
            store,
            self._ratifier,
            self._purger,
            StagedFileCleaner(store, self._ratifier, self._log_of, clock, self._settings),
            clock,
            self._settings,
            holder,
        )
        self._feed = EventFeed(store, clock)
        self._listeners = ListenerService(
            store, self._ratifier, self._feed, clock, self._settings, holder
        )
        self._tokens = TokenService(store, self._ratifier, clock, ids)
        self._root = root
        self._reader = Reader(store, clock, self._settings)
        self._proposer = Proposer(
            store,
            self._ratifier,
            self._decider,
            self._publisher,
            self._feed,
            checker,
            store_for=store_for,
            snapshot_of=self._snapshot,
            clock=clock,
            settings=self._settings,
            proposers=proposers,
        )
        self._inspector = Inspector(
            store,
            self._ratifier,
            self._decider,
            checker,
            self._publisher,
            self._purger,
            self._housekeeper,
            root,
            store_for=store_for,
            snapshot_of=self._snapshot,
            look_again=self._proposer.look_again,
            clock=clock,
            settings=self._settings,
        )
        self._is_publishing = publisher
        if publisher:
            self._publisher.start()
        self._integrity = IntegrityWatch(store, clock, self._settings)
        if housekeeping:
            self._housekeeper.start()
            self._integrity.start()

    def close(self) -> None:
        """Tell and publish what this process committed, for a moment; let go of the store."""
        self._listeners.close()
        self._feed.close()
        self._housekeeper.close()
        self._integrity.close()
        self._publisher.close()
        self._ratifier.close()
        self._store.close()

    def ping(self) -> None:
        """Reach the store, and see that it can still be changed, or raise."""
        self._ratifier.refuse_if_stopped()
        with self._store.read() as unit:
            unit.clock()

    def check_ready(self) -> None:
        """Change the store, as a commit would, or raise."""
        self.ping()
        now_ms = self._clock.now_ms()
        changed = self._ratifier.submit(
            _READINESS, lambda unit: unit.acquire_lease(_READINESS, self._holder, now_ms, now_ms)
        )
        try:
            changed.result(_READY_S)
        except TimeoutError:
            raise UnavailableError(
                f"The catalog's database could not be changed within {_READY_S:g} s.",
                remedy="Find out what holds it, or slows it down.",
            ) from None

    # ReadUnit

    def resolve(
        self, ref: Ref, at: Sequence | None = None, *, reserve: Reserve = unbounded
    ) -> Resolved:
        """Tell all of one table that a client needs, in one call. Spec: CM-21."""
        return self._reader.resolve(ref, at, reserve)

    def resolve_many(
        self, refs: Many[Ref], at: Sequence | None = None, *, reserve: Reserve = unbounded
    ) -> tuple[Resolved, ...]:
        """Resolve several tables as of one sequence. Spec: MT-02."""
        return self._reader.resolve_many(refs, at, reserve)

    def sequence_at(self, timestamp_ms: int) -> Sequence:
        """Give the newest sequence not later than a time."""
        return self._reader.sequence_at(timestamp_ms)

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        """Give the ratified commits still held, and the latest version, always. Spec: CM-20."""
        return self._reader.ratified_commits(table_id, first, last)

    def ratified_page(
        self,
        table_id: TableId,
        first: Version | None = None,
        last: Version | None = None,
        *,
        reserve: Reserve = unbounded,
    ) -> tuple[RatifiedCommits, Version | None]:
        """Give the first of them, as many as one answer may hold, and where the rest begins."""
        return self._reader.ratified_page(table_id, first, last, reserve)

    def outcome(self, txn_id: TxnId) -> Ratified | Rejected | None:
        """Tell what became of a transaction; None if it was never decided."""
        return self._reader.outcome(txn_id)

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        """Give every commit of a range, ascending, without content."""
        return self._reader.timeline(table_id, first, last)

    def timeline_page(
        self,
        table_id: TableId,
        first: Version | None = None,
        last: Version | None = None,
        *,
        reserve: Reserve = unbounded,
    ) -> tuple[tuple[TimelineEntry, ...], Version | None]:
        """Give the first of them, and the version at which the rest begins."""
        return self._reader.timeline_page(table_id, first, last, reserve)

    def describe(self, ref: Ref, since: Version | None = None) -> TableInfo:
        """Describe a table with all commits that are not published and some that are.

        Commits from `since` on are listed if they were published not long ago.
        """
        now_ms = self._clock.now_ms()
        with self._store.read_latest() as unit:
            named = lookup.active_by(unit, ref)
            if since is not None:
                since = Version(max(since, named.row.published - descriptions.LISTED + 1))
            return descriptions.describe_with_commits(unit, named, since, now_ms, self._unseen)

    def describe_briefly(self, ref: Ref, *, published: bool = False) -> TableInfo:
        """Describe a table without its commits, which cost most of describing it.

        With `published`, everything that is in no file is published first: a client that learns
        where a table is and finds no log there, or a shorter one, may begin a log of its own.
        Raises `LogDivergedError` as `describe_in_files` does.
        """
        with self._store.read_latest() as unit:
            info = descriptions.describe(lookup.active_by(unit, ref))
        if not published or (info.published == info.latest and info.diverged is None):
            return info
        return self.describe_in_files(ref)

    def describe_in_files(
        self, ref: Ref, first: Version | None = None, *, deadline: float | None = None
    ) -> TableInfo:
        """Describe a table for a client that reads files alone.

        Commits from `first` on are listed; what is in no file is published first, and many clients
        that ask at once wait for one that publishes. A log that diverged is not described: its
        readers would take the other bytes. Spec: CA-04.
        """
        if deadline is None:
            deadline = self._publishing_deadline()
        now_ms = self._clock.now_ms()
        with self._store.read_latest() as unit:
            named = lookup.active_by(unit, ref)
            info = descriptions.describe_with_commits(unit, named, first, now_ms, self._unseen)
        upto = info.last_without_file
        if info.diverged is not None:
            raise LogDivergedError(info.diverged)
        if upto is not None and self._publisher.publish(info.table_id, upto, deadline) < upto:
            raise UnavailableError(f"Version {upto} of {info.name} could not be published.")
        return info

    def describe_after(
        self, before: TableInfo, after: TableInfo, commit: RatifiedCommit
    ) -> TableInfo:
        """Describe a table for a client that reads files alone, as its own commit left it.

        Nothing is read if the commit is the one after the table was described before.
        """
        if before.latest + 1 == commit.version == after.latest and after.diverged is None:
            info = descriptions.with_commit(before, after, commit)
            if info.last_without_file is None:
                return info
        return self.describe_in_files(after.table_id, commit.version)

    def _publishing_deadline(self) -> float:
        return self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000

    def file_of(self, table_id: TableId, version: Version) -> str | None:
        """Name the staged file that became a version; None if none did."""
        with self._store.read_latest() as unit:
            row = lookup.known(unit, table_id)
            found = unit.commits(row.key, version, version, content=False)
        return found[0].file_name if found else None

    def describe_page(
        self,
        namespace: SchemaName,
        after: TableName | None,
        limit: int,
        *,
        reserve: Reserve = unbounded,
    ) -> tuple[tuple[TableInfo, ...], TableName | None]:
        """Describe some tables, by name, and return the name after which the others come.

        There are fewer than the limit if their schemas are long. What is in no file is published
        first. A table for which that
        fails is left out: the others are listed, and whoever asks for it by name gets the error.
        """
        with self._store.read() as unit:
            found, following = descriptions.page_of_tables(
                unit, namespace, after, limit, resolver.RESPONSE_CONTENT_BYTES
            )
        reserve(sum(map(descriptions.size_of, found)))
        deadline = self._publishing_deadline()
        page = []
        for named in found:
            row = named.row
            try:
                if row.published < row.head or row.diverged is not None:
                    self.describe_in_files(row.id, deadline=deadline)
                page.append(descriptions.describe(named))
            except NotFoundError:
                pass  # dropped in the meantime
            except HeadgateError as error:
                _log.warning("table %s is left out of a listing: %s", named.name, error)
        return tuple(page), following

    # Committing

    def propose(self, proposal: Proposal) -> Answer:
        """Decide a proposal; the same one again gets the first answer. Spec: CM-42.

        What it needs of storage is read before it waits for its turn, outside of any lock.
        """
        return self._proposer.propose(proposal)

    def propose_soon(
        self, proposal: Proposal, waiter: Waiter[Answer | Need], afterwards: Callable[[], None]
    ) -> bool:
        """Put a proposal into the queue without waiting for anything; say no if it needs to.

        What comes inline and adds no file that must be looked for needs nothing but its turn. The
        waiter may get a `Need`: then `propose` does what has to be done first. It is
        told in the ratifier's thread; `afterwards` is done once for all told in the same moment.
        """
        return self._proposer.propose_soon(proposal, waiter, afterwards)

    def hold_back(self, head: Head) -> bool:
        """Wait until enough of a table is published for its writers to go on, and help with it.

        Says whether that is in vain: `propose` lets them go on then, within limits.
        """
        return self._proposer.hold_back(head)

    def propose_staged(
        self, before: TableInfo, version: Version, staged: Staged, judge: Judge = nothing_more
    ) -> Decided:
        """Propose a staged file by its name; its txnId is the one that stands in it.

        `before` is the table as it was described just now; that it moved on since does no harm.

        For clients that look for conflicts themselves: a version that another took is
        `VersionTaken`, whatever the two do. The same file at the same version gets the first
        answer, for ever. `judge` holds what the client said of the file against what is in it.
        """
        return self._proposer.propose_staged(before, version, staged, judge)

    # Publishing

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Publish in order up to a version, by default the latest; give the last published."""
        return self._publisher.publish(table_id, upto)

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        """Look at what a client says it published, then believe it. Spec: PB-01."""
        return self._publisher.confirm(table_id, upto)

    def hear_published(self, table_id: TableId, upto: Version) -> None:
        """Hear in passing what a client says it published, and look at it before believing it."""
        self._publisher.confirm_later(table_id, upto)

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Take note of a checkpoint, compaction or checksum. Spec: RD-04, CM-27, CM-28."""
        with self._store.read() as unit:
            row = lookup.managed(lookup.active(unit, table_id))
        if file.last > row.head:
            raise NotFoundError(f"Table {table_id} has no version {file.last}.")
        if file.kind is not FileKind.CHECKSUM and file.last > row.published:
            self._publisher.confirm(table_id, file.last)  # it may be there, and not recorded yet
        if not file.paths:
            raise InvalidArgumentError(f"A {file.kind.value} of version {file.last} has no file.")
        log = self._log_of(row.location)
        for path in file.paths:
            if not _is_named_rightly(file, path):
                raise InvalidArgumentError(
                    f"{path} is no {file.kind.value} of version {file.last}."
                )
            if log.store.head(path) is None:
                raise NotFoundError(f"{path} is not there.", remedy="Write it, then tell of it.")

        log.store.sync(file.paths)

        def add(unit: WriteUnit) -> None:
            unit.insert_file(row.key, file)
            if file.kind is FileKind.CHECKPOINT:
                # What a checkpoint covers is read from it, and its commits stand in the log.
                unit.delete_content(row.key, file.last)

        self._ratifier.submit(table_id, add).result()

    def report_commit(self, table_id: TableId, report: CommitReports) -> None:
        """Add a writer's report of a commit to the table's reports."""

        def add(unit: WriteUnit) -> None:
            lookup.active(unit, table_id)
            before = commit_reports.read(unit, table_id)
            commit_reports.write(
                unit, table_id, commit_reports.total(before, report, self._clock.now_ms())
            )

        self._ratifier.submit(table_id, add).result()

    def commit_reports(self, table_id: TableId) -> CommitReports:
        """Return the sum of the writers' reports of their commits, which are not verified."""
        with self._store.read() as unit:
            lookup.known(unit, table_id)
            return commit_reports.read(unit, table_id)

    # Names and tables

    def create_namespace(
        self,
        name: SchemaName,
        *,
        key: RequestKey | None = None,
        storage_root: str | None = None,
        details: NamespaceDetails | None = None,
        catalog_details: NamespaceDetails | None = None,
    ) -> None:
        """Create a schema; `catalog_details` are stored if it is the first of its catalog."""
        if storage_root is not None:
            details = replaced(details or NamespaceDetails(), storage_root=storage_root)
        self._namespaces.create(name, key, details, catalog_details)

    def details(self, catalog: str) -> CatalogDetails:
        """Return the details of a catalog and of its schemas."""
        with self._store.read() as unit:
            return namespace_details.read(unit, catalog)

    def change_details(
        self,
        namespace: SchemaName | str,
        change: Callable[[NamespaceDetails], NamespaceDetails],
        new_name: str | None = None,
    ) -> None:
        """Change the details of a schema, or of a catalog, and rename it if asked."""
        self._namespaces.change_details(namespace, change, new_name)

    def rename_namespace(
        self, name: SchemaName, new_name: str, *, key: RequestKey | None = None
    ) -> None:
        """Rename a schema within its catalog; its tables keep their ids, data and history."""
        self._namespaces.rename_schema(name, new_name, key)

    def rename_catalog(self, name: str, new_name: str, *, key: RequestKey | None = None) -> None:
        """Rename a catalog with all its schemas and tables."""
        self._namespaces.rename_catalog(name, new_name, key)

    def drop_namespace(self, name: SchemaName, *, key: RequestKey | None = None) -> None:
        """Remove an empty namespace."""
        self._namespaces.drop(name, key)

    def namespaces(self) -> tuple[SchemaName, ...]:
        """List all namespaces."""
        with self._store.read() as unit:
            return tuple(unit.namespaces())

    def namespaces_made_ms(self) -> dict[SchemaName, int]:
        """Say of every namespace when it was made."""
        with self._store.read() as unit:
            return unit.namespace_creation_times()

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        """List tables, the dropped ones too if asked."""
        return tuple(self._tables.entries(namespace, dropped=dropped))

    def table_page(
        self, namespace: SchemaName | None, after: TableName | None, limit: int
    ) -> tuple[TableEntry, ...]:
        """List some tables, by name, from the one after a name on."""
        return tuple(self._tables.page(namespace, after, limit))

    def table_at(self, location: str) -> TableId | None:
        """Give the table that lies at a place, staged or named; None if none does."""
        return self._tables.table_at(location)

    def place_of(self, table_id: TableId) -> str:
        """Return the location of a table that is staged or has a name.

        Of one that has a name everything that is in no file is published first.
        """
        with self._store.read() as unit:
            row = lookup.known(unit, table_id)
        if row.state not in (TableStatus.STAGING, TableStatus.ACTIVE):
            raise NotFoundError(f"Table {table_id} is {row.state.value}.")
        if row.state is TableStatus.ACTIVE:
            self.describe_briefly(table_id, published=True)
        return row.location

    def open_path(self, location: str) -> str:
        """Return a location that clients may use by its path, in its one spelling.

        Of a table there everything that is in no file is published first.
        """
        self._allowed.refuse_unless_allowed(location)
        url = locations.normalize(location)
        with self._store.read() as unit:
            row = unit.overlapping_table(url)
        if row is not None and row.state is TableStatus.ACTIVE:
            self.describe_briefly(row.id, published=True)
        return url

    def stage_table(
        self,
        location: str | None = None,
        *,
        namespace: SchemaName | None = None,
        key: RequestKey | None = None,
    ) -> StagingTable:
        """Return an id and a location for a table that has no name yet. Spec: CM-39."""
        return self._tables.stage(location, namespace, key)

    def register_table(
        self,
        name: TableName,
        table_id: TableId,
        *,
        key: RequestKey | None = None,
        judge: Judge = nothing_more,
    ) -> Resolved:
        """Judge version 0 of a staging table and give the table its name. Spec: LC-02."""
        return self._tables.register(name, table_id, self._reader.resolve_in, key, judge)

    def register_external(
        self,
        name: TableName,
        location: str,
        format: str = "delta",
        schema_string: str | None = None,
        *,
        key: RequestKey | None = None,
    ) -> Resolved:
        """Give a name to a table that lies somewhere and is not managed."""
        wanted = ExternalTable(location=location, format=format, schema_string=schema_string)
        return self.declare_external(name, wanted, key=key)

    def declare_external(
        self, name: TableName, wanted: ExternalTable, *, key: RequestKey | None = None
    ) -> Resolved:
        """Name a table that is not managed, and keep all that is declared of it."""
        return self._tables.register_external(name, wanted, self._reader.resolve_in, key)

    def change_external(
        self, table_id: TableId, change: Callable[[Version, Metadata], Metadata]
    ) -> None:
        """Declare something else of a table that is not managed; `change` may refuse."""
        self._tables.change_external(table_id, change)

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        """Make and name a table in one call; version 0 comes inline. Spec: LC-01.

        Where this catalog publishes, version 0 is in the log before the caller learns where the
        table is; if that fails, the table is made all the same and published later.
        """
        self._tables.create(name, table_id, txn_id, first)
        if self._is_publishing:
            deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
            try:
                self._publisher.publish(table_id, Version(0), deadline)
            except HeadgateError as error:
                _log.warning("version 0 of %s is not published yet: %s", name, error)
        self._publisher.wake(table_id)
        self._feed.notify()
        with self._store.read() as unit:  # told again, it may be dropped by now, and was made
            return self._reader.resolve_in(unit, table_id, unit.clock().sequence)

    def rename_table(
        self, table_id: TableId, name: TableName, *, key: RequestKey | None = None
    ) -> None:
        """Give the table another name; id, place and history stay. Spec: LC-04."""
        self._tables.rename(table_id, name, key)

    def was_renamed(self, old: TableName, new: TableName) -> bool:
        """Say whether a table has a name, and had another just before it."""
        return self._tables.was_renamed(old, new)

    def drop_table(self, table_id: TableId, *, key: RequestKey | None = None) -> None:
        """Take the name away; nothing is committed and nothing deleted. Spec: CM-40."""
        self._tables.drop(table_id, key)

    def undrop_table(
        self,
        table_id: TableId,
        name: TableName | None = None,
        *,
        key: RequestKey | None = None,
    ) -> None:
        """Bring a dropped table back, under its old name or another. Spec: LC-03."""
        self._tables.undrop(table_id, name, key)
        self._publisher.wake(table_id)

    def purge_table(
        self,
        table_id: TableId,
        *,
        key: RequestKey | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete a dropped table's files, resumably; give how many went. Spec: CM-40."""
        return self._purger.purge(table_id, key, progress)

    def expire_staging(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Give up places that were staged and never registered."""
        return tuple(self._purger.expire_staging(older_than_ms))

    def keep_house(self) -> int:
        """Give up what nobody came back for, now; say how much it was."""
        return self._housekeeper.run()

    # Checking

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Hold one table or all against their logs; mend what can be mended if asked."""
        return self._inspector.inspect(table_id, repair=repair, progress=progress)

    # Events and who is told

    def events(
        self, after: Sequence | None = None, limit: int = MAX_PAGE, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        """Give what happened after a sequence; wait for the next if there is nothing.

        Without a sequence, begin at the oldest event that is kept.
        """
        if wait_s <= 0:
            return self._feed.read(after, limit)
        return self._feed.wait_for_page(after, limit, wait_s).result()

    def events_soon(
        self, after: Sequence | None, limit: int, wait_s: float
    ) -> Future[tuple[Event, ...]]:
        """Give a future of the next events; it ends with none when the time is over."""
        return self._feed.wait_for_page(after, limit, wait_s)

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

        How far it is is kept under its name; a new one begins now, or after a sequence. With
        `together` it is called once all of its tables have changed since it was called last.
        """
        self._listeners.listen(name, listener, tables=tables, together=together, after=after)

    def deliver(self, kind: str, make: Callable[[str], Listener]) -> None:
        """Tell registered listeners of a kind from this process; `make` makes one of a target."""
        self._listeners.deliver(kind, make)

    def listeners(self) -> tuple[ListenerEntry, ...]:
        """List who is told, and how far each one is."""
        return self._listeners.entries()

    def put_listener(
        self,
        name: str,
        target: str,
        after: Sequence | None = None,
        *,
        key: RequestKey | None = None,
    ) -> ListenerEntry:
        """Have a URL told of every event, from now on or from after a sequence."""
        return self._listeners.put(name, target, after, key)

    def delete_listener(self, name: str, *, key: RequestKey | None = None) -> None:
        """Tell a listener no more, and forget how far it was."""
        self._listeners.delete(name, key)

    # Operations

    def status(self) -> Status:
        """Say how everything stands."""
        return gather(self._store, self._root, self._publisher.failure, self._clock.now_ms())

    def backup(self, target: str) -> None:
        """Write one instant of the catalog to a new file, while others go on."""
        self._store.backup(Path(target))

    def locations(self) -> tuple[LocationEntry, ...]:
        """List the registered locations, under which clients may have tables."""
        return self._allowed.entries()

    def add_location(self, location: str) -> LocationEntry:
        """Register a location under which clients may have tables."""
        return self._allowed.add(location)

    def remove_location(self, location: str) -> None:
        """Remove a registered location; tables that are there already stay."""
        self._allowed.remove(location)

    def check_location(self, location: str) -> str:
        """Return a location that a client chose in its one spelling, or refuse it.

        Refused is what is not under the root or a registered location, and what holds files of the
        catalog. Whether another table is there is checked when a table takes the location.
        """
        return self._allowed.check(location)

    def principal_of(self, secret: str) -> str | None:
        """Say whose secret it is; None if nobody's, or not any more."""
        return self._tokens.principal_of(secret)

    def create_token(self, name: str, expires_ms: int | None = None) -> str:
        """Make a token and give its secret, which nobody can give again."""
        return self._tokens.create(name, expires_ms)

    def tokens(self) -> tuple[TokenEntry, ...]:
        """List the tokens."""
        return self._tokens.entries()

    def revoke_token(self, name: str) -> None:
        """Have a token open nothing from now on."""
        self._tokens.revoke(name)

    def _snapshot(
        self, table_id: TableId, version: Version | None = None, at: Sequence | None = None
    ) -> Snapshot:
        # Snapshots stand on pyarrow, which takes as long to load as a server takes to start.
        from headgate.table import snapshot_loader

        return snapshot_loader.load(
            self, table_id, version=version, sequence=at, store_for=self._store_for
        )

    def _log_of(self, location: str) -> DeltaLog:
        return DeltaLog(self._store_for(location))


def _is_named_rightly(file: KnownFile, path: str) -> bool:
    match paths.parse(path):
        case paths.ClassicCheckpoint(version) | paths.UuidCheckpoint(version):
            return file.kind is FileKind.CHECKPOINT and version == file.last
        case paths.MultipartCheckpoint(version, _, parts):
            is_whole = len(set(file.paths)) == parts
            return file.kind is FileKind.CHECKPOINT and version == file.last and is_whole
        case paths.Compaction(first, last):
            return file.kind is FileKind.COMPACTION and (first, last) == (file.first, file.last)
        case paths.Checksum(version):
            return file.kind is FileKind.CHECKSUM and version == file.last
        case _:
            return False
