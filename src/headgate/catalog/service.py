"""The catalog on a store of its own: it builds its parts, and they are its methods.

It runs in a client's process or in a server's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.api.status import Status
from headgate.arguments import checked_texts
from headgate.catalog.allowed_locations import AllowedLocations
from headgate.catalog.commit_reports import CommitReportSums
from headgate.catalog.component import Component, Shared
from headgate.catalog.decider import Decider
from headgate.catalog.descriptions import Descriptions
from headgate.catalog.event_feed import EventFeed
from headgate.catalog.fsck.inspector import Inspector
from headgate.catalog.housekeeping import Housekeeper
from headgate.catalog.integrity_watch import IntegrityWatch
from headgate.catalog.lease_holders import name_of_this_process
from headgate.catalog.listeners import ListenerService
from headgate.catalog.namespaces import NamespaceService
from headgate.catalog.part_reader import PartReader
from headgate.catalog.proposer import Proposer
from headgate.catalog.publisher import Publisher
from headgate.catalog.purge import Purger
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.resolver import Reader
from headgate.catalog.status import gather
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.tables import TableService
from headgate.catalog.tokens import TokenService
from headgate.clock import Clock, Ids
from headgate.errors import UnavailableError
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.settings import Settings
from headgate.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from headgate.table.snapshot import Snapshot

_READINESS = "readiness"
_READY_S = 5.0  # for one change of the store


@checked_texts
class Catalog(Component):
    """A catalog; it has every capability of `api.port`, and those that a server needs.

    Calls go straight to the part that does the work: `catalog.propose` is `Proposer.propose`.
    """

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
        publisher_process: bool = False,
        housekeeping: bool = False,
        proposers: int | None = None,
        any_location: bool = False,
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Open a catalog, and start its threads.

        With `any_location` clients may choose any location for tables, without it only those under
        the root and under registered locations. With `publisher_process` publishing to local disks
        is done by a process of its own.

        `proposers` is the number of threads that propose, if it is bounded: then no table gets more
        than half of them, and no more than an eighth waits for its publisher. `on_stopped` is
        called with the reason when the catalog can change nothing any more, unless it was closed.
        """
        settings = settings or Settings()
        decider = Decider(clock, settings if publisher else _without_throttling(settings))
        ratifier = Ratifier(store, decider, clock, settings, on_stopped)
        holder = name_of_this_process(ids.random())
        shared = Shared(store, ratifier, root, store_for, clock, ids, settings, holder)
        super().__init__(shared)
        self._publisher = Publisher(shared, in_process=publisher_process)
        self._feed = EventFeed(shared)
        self._listeners = ListenerService(shared, self._feed)
        purger = Purger(shared)
        self._housekeeper = Housekeeper(shared, purger)
        self._integrity = IntegrityWatch(shared)
        allowed = AllowedLocations(shared, any_location=any_location)
        reader = Reader(shared)
        parts = PartReader(shared, self._snapshot)

        self._offer_reads(reader)
        self._offer_commits(
            Proposer(shared, decider, parts, self._publisher, self._feed, proposers)
        )
        self._offer_namespaces(NamespaceService(shared, allowed), allowed)
        self._offer_tables(
            TableService(shared, allowed, reader, self._publisher, self._feed), purger
        )
        self._offer_descriptions(Descriptions(shared, allowed, self._publisher))
        self._offer_events()
        self._offer_administration(TokenService(shared))
        self.fsck = Inspector(
            shared,
            decider,
            self._publisher,
            purger,
            self._housekeeper,
            snapshot_of=self._snapshot,
            look_again=parts.look_again,
        ).inspect
        if publisher:
            self._publisher.start()
        if housekeeping:
            self._housekeeper.start()
            self._integrity.start()

    # The methods of each part are methods of the catalog

    def _offer_reads(self, reader: Reader) -> None:
        self.resolve = reader.resolve
        self.resolve_many = reader.resolve_many
        self.sequence_at = reader.sequence_at
        self.ratified_commits = reader.ratified_commits
        self.ratified_page = reader.ratified_page
        self.outcome = reader.outcome
        self.timeline = reader.timeline
        self.timeline_page = reader.timeline_page

    def _offer_commits(self, proposer: Proposer) -> None:
        self.propose = proposer.propose
        self.enqueue = proposer.enqueue
        self.decide = proposer.decide
        self.table_after = proposer.table_after
        self.hold_back = proposer.hold_back
        self.publish = self._publisher.publish
        self.confirm_published = self._publisher.confirm
        self.confirm_published_later = self._publisher.confirm_later
        self.add_file = self._publisher.add_file
        reports = CommitReportSums(self._shared)
        self.report_commit = reports.add
        self.commit_reports = reports.total

    def _offer_namespaces(self, namespaces: NamespaceService, allowed: AllowedLocations) -> None:
        self.locations = allowed.entries
        self.add_location = allowed.add
        self.remove_location = allowed.remove
        self.check_location = allowed.check
        self.namespaces = namespaces.names
        self.namespace_creation_times = namespaces.creation_times
        self.details = namespaces.details
        self.change_details = namespaces.change_details
        self.create_namespace = namespaces.create
        self.rename_namespace = namespaces.rename_schema
        self.rename_catalog = namespaces.rename_catalog
        self.drop_namespace = namespaces.drop

    def _offer_tables(self, tables: TableService, purger: Purger) -> None:
        self.tables = tables.entries
        self.table_page = tables.page
        self.table_at = tables.table_at
        self.stage_table = tables.stage
        self.register_table = tables.register
        self.register_external = tables.register_external
        self.declare_external = tables.declare_external
        self.change_external = tables.change_external
        self.create_table = tables.create
        self.rename_table = tables.rename
        self.was_renamed = tables.was_renamed
        self.drop_table = tables.drop
        self.undrop_table = tables.undrop
        self.purge_table = purger.purge
        self.expire_staging = purger.expire_staging

    def _offer_descriptions(self, descriptions: Descriptions) -> None:
        self.kept_description = descriptions.kept
        self.describe = descriptions.describe
        self.describe_briefly = descriptions.describe_briefly
        self.describe_in_files = descriptions.describe_in_files
        self.describe_after = descriptions.describe_after
        self.describe_next = descriptions.describe_next
        self.describe_page = descriptions.page
        self.file_of = descriptions.file_of
        self.location_of = descriptions.location_of
        self.open_path = descriptions.open_path

    def _offer_events(self) -> None:
        self.events = self._feed.read
        self.events_soon = self._feed.wait_for_page
        self.listen = self._listeners.listen
        self.deliver = self._listeners.deliver
        self.listeners = self._listeners.entries
        self.put_listener = self._listeners.put
        self.delete_listener = self._listeners.delete

    def _offer_administration(self, tokens: TokenService) -> None:
        self.principal_of = tokens.principal_of
        self.create_token = tokens.create
        self.tokens = tokens.entries
        self.revoke_token = tokens.revoke
        self.keep_house = self._housekeeper.run

    def close(self) -> None:
        """Deliver and publish what this process committed, for a limited time; close the store."""
        self._listeners.close()
        self._feed.close()
        self._housekeeper.close()
        self._integrity.close()
        self._publisher.close()
        self._ratifier.close()
        self._store.close()

    def ping(self) -> None:
        """Raise if the store cannot be read, or the catalog has stopped."""
        self._ratifier.refuse_if_stopped()
        with self._store.read() as unit:
            unit.clock()

    def check_ready(self) -> None:
        """Raise if the store cannot be changed as a commit would change it."""
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
                remedy="Find out what locks it or slows it down.",
            ) from None

    def status(self) -> Status:
        return gather(self._store, self._root, self._publisher.failure, self._clock.now_ms())

    def backup(self, target: str) -> None:
        self._store.backup(Path(target))

    def _snapshot(
        self, table_id: TableId, version: Version | None = None, at: Sequence | None = None
    ) -> Snapshot:
        # Imported late: it needs pyarrow, whose import takes as long as starting a server.
        from headgate.table import snapshot_loader

        return snapshot_loader.load(
            self, table_id, version=version, sequence=at, store_for=self._store_for
        )


def _without_throttling(settings: Settings) -> Settings:
    """Let writers go on where no publisher runs that they could wait for."""
    return replace(settings, unpublished_soft=settings.unpublished_hard)
