"""The catalog: one method per question or order; satisfies `protocol.catalog_port`.

It reads and judges what it ratifies, knows every table's latest version, and answers each
question from one instant of its store. It runs wherever it is put: in a client's process or in a
server's.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
import zlib
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Many
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.catalog import describing, remarks, reporting
from headgate.catalog.crowding import Crowd
from headgate.catalog.decision import (
    Attempt,
    BacklogError,
    Decider,
    FarBehindError,
    FilesToSeeError,
    Pending,
    as_commit,
    keys_of,
    ratified_answer,
)
from headgate.catalog.describing import Described
from headgate.catalog.feed import LARGEST_PAGE, Feed
from headgate.catalog.fsck import Checker, counts, data_files, left_behind, never_registered
from headgate.catalog.holders import name_of_this_process
from headgate.catalog.housekeeping import Housekeeper
from headgate.catalog.keys import RequestKey
from headgate.catalog.listeners import Listeners
from headgate.catalog.publisher import Publisher
from headgate.catalog.ratifier import Ratifier, Waiter
from headgate.catalog.registry import (
    ExternalTable,
    Judge,
    Registry,
    is_unfinished,
    nothing_more,
)
from headgate.catalog.status import gather
from headgate.catalog.stores.port import CatalogStore, Reading, TableRow, Writing
from headgate.catalog.sweeping import Sweeper
from headgate.catalog.tokens import TokenKeeper
from headgate.clock import Clock, Ids
from headgate.errors import (
    BusyError,
    HeadgateError,
    InTheFutureError,
    InvalidArgumentError,
    InvalidCommitError,
    LogAheadError,
    LogDivergedError,
    NotFoundError,
    OutcomeUnknownError,
    TooLargeError,
    TxnIdReusedError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.log.files import DeltaLog
from headgate.names import SchemaName, TableName
from headgate.protocol import examination, paths
from headgate.protocol.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Sequence,
    TableId,
    TxnId,
    Version,
)
from headgate.protocol.catalog_port import (
    Answer,
    FileKind,
    Finding,
    KnownFile,
    Progress,
    Ratified,
    RatifiedCommits,
    Ref,
    Rejected,
    Resolved,
    Severity,
    StagingTable,
    TableEntry,
    TimelineEntry,
    VersionTaken,
)
from headgate.protocol.checksums import VersionChecksum
from headgate.protocol.commits import Inline, Part, Proposal, Put, RatifiedCommit, Staged, Way
from headgate.protocol.encoding import from_json, replaced
from headgate.protocol.events import Event, Listener
from headgate.protocol.examination import Violation
from headgate.protocol.overview import (
    CatalogRemarks,
    ListenerEntry,
    Remarks,
    Reported,
    Status,
    TokenEntry,
)
from headgate.protocol.tables import Kind, State
from headgate.protocol.timestamps import moment
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.objects import ObjectStore

if TYPE_CHECKING:
    from headgate.log.snapshots import Snapshot

_LEFTOVERS_KEPT_MS = 24 * 3600 * 1000  # of writers that died
_DOUBT_PAUSE_S = 0.1
_STAGED_FILE_MISSING = "staged-file-missing"
_LISTED = 32  # published commits still listed, at the most
_FEW = 16  # commits that are read without asking for their sizes first
_PAGE = 10_000  # commits of one page

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
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Begin.

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
        self._decider = Decider(clock, settings)
        self._ratifier = Ratifier(store, clock, self._settings, on_stopped)
        holder = name_of_this_process(ids.random())
        self._publisher = Publisher(
            store, self._ratifier, self._log_of, clock, self._settings, holder
        )
        self._registry = Registry(
            store, self._ratifier, root, self._log_of, clock, ids, self._settings
        )
        self._checker = Checker(store, self._ratifier, self._decider, clock)
        self._housekeeper = Housekeeper(
            store,
            self._ratifier,
            self._registry,
            Sweeper(store, self._ratifier, self._log_of, clock, self._settings),
            clock,
            self._settings,
            holder,
        )
        self._feed = Feed(store, clock)
        self._listeners = Listeners(
            store, self._ratifier, self._feed, clock, self._settings, holder
        )
        self._tokens = TokenKeeper(store, self._ratifier, clock, ids)
        self._root = root
        self._looked_ahead: set[TableId] = set()
        self._proposing = Crowd(None if proposers is None else max(1, proposers // 2))
        self._held_back = Crowd(None if proposers is None else max(1, proposers // 8))
        self._noted: set[TableId] = set()  # with a commit that nobody was woken for yet
        if publisher:
            self._publisher.start()
        if housekeeping:
            self._housekeeper.start()

    def close(self) -> None:
        """Tell and publish what this process committed, for a moment; let go of the store."""
        self._listeners.close()
        self._feed.close()
        self._housekeeper.close()
        self._publisher.close()
        self._ratifier.close()
        self._store.close()

    def ping(self) -> None:
        """Reach the store, and see that it can still be changed, or raise."""
        self._ratifier.refuse_if_stopped()
        with self._store.read() as unit:
            unit.clock()

    # Reading

    def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
        """Tell all of one table that a client needs, in one call. Spec: CM-21."""
        with self._store.read() as unit:
            return self._resolve(unit, ref, at)

    def resolve_many(self, refs: Many[Ref], at: Sequence | None = None) -> tuple[Resolved, ...]:
        """Resolve several tables as of one sequence. Spec: MT-02."""
        found: list[Resolved] = []
        room = self._settings.answer_limit_bytes
        with self._store.read() as unit:
            for ref in refs:
                found.append(self._resolve(unit, ref, at, room))
                room -= sum(len(commit.content or b"") for commit in found[-1].commits)
        return tuple(found)

    def sequence_at(self, timestamp_ms: int) -> Sequence:
        """Give the newest sequence not later than a time."""
        with self._store.read() as unit:
            latest = unit.clock()
            if timestamp_ms > max(latest.clock_ms, self._clock.now_ms()):
                raise InTheFutureError(
                    f"The catalog's clock has not come to {moment(timestamp_ms)} yet."
                )
            found = unit.clock_at(timestamp_ms)
        return Sequence(0) if found is None else found.sequence

    def ratified_commits(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> RatifiedCommits:
        """Give the ratified commits still held, and the latest version, always. Spec: CM-20."""
        with self._store.read() as unit:
            row, start, end = _held(unit, table_id, first, last)
            commits = unit.ratified(row.key, start, end)
        return RatifiedCommits(latest=row.head, commits=commits)

    def ratified_page(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[RatifiedCommits, Version | None]:
        """Give the first of them, as many as one answer may hold, and where the rest begins."""
        with self._store.read() as unit:
            row, start, end = _held(unit, table_id, first, last)
            stop = Version(min(end, start + _PAGE - 1))
            if stop - start >= _FEW:
                stop = unit.fitting(row.key, start, stop, self._settings.answer_limit_bytes)
            commits = unit.ratified(row.key, start, stop)
        following = Version(stop + 1) if stop < end else None
        return RatifiedCommits(latest=row.head, commits=commits), following

    def outcome(self, txn_id: TxnId) -> Ratified | Rejected | None:
        """Tell what became of a transaction; None if it was never decided."""
        with self._store.read() as unit:
            ratified = ratified_answer(unit, txn_id)
            if ratified is not None:
                return ratified[0]
            rejection = unit.rejection(txn_id)
        return None if rejection is None else from_json(rejection.answer, Rejected)

    def timeline(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[TimelineEntry, ...]:
        """Give every commit of a range, ascending, without content."""
        return self._timeline(table_id, first, last, None)[0]

    def timeline_page(
        self, table_id: TableId, first: Version | None = None, last: Version | None = None
    ) -> tuple[tuple[TimelineEntry, ...], Version | None]:
        """Give the first of them, and the version at which the rest begins."""
        return self._timeline(table_id, first, last, _PAGE)

    def _timeline(
        self, table_id: TableId, first: Version | None, last: Version | None, most: int | None
    ) -> tuple[tuple[TimelineEntry, ...], Version | None]:
        with self._store.read() as unit:
            row = _require(unit, table_id)
            start = Version(0) if first is None else first
            end = stop = row.head if last is None else Version(min(last, row.head))
            if most is not None:
                stop = Version(min(end, start + most - 1))
            commits = unit.commits(row.key, start, stop, content=False)
        entries = tuple(
            TimelineEntry(
                commit=as_commit(commit),
                proposed_ms=commit.proposed_ms,
                ratified_ms=commit.ratified_ms,
            )
            for commit in commits
        )
        return entries, Version(stop + 1) if stop < end else None

    def describe(self, ref: Ref, first: Version | None = None) -> Described:
        """Tell all that is known of a table, and of its commits from a version on."""
        now_ms = self._clock.now_ms()
        with self._store.read() as unit:
            row, name = _named_row(unit, ref)
            return describing.describe(unit, self._decider, row, name, first, now_ms)

    def describe_briefly(self, ref: Ref) -> Described:
        """Tell of a table without its commits, which cost most of describing it."""
        with self._store.read() as unit:
            row, name = _named_row(unit, ref)
            return describing.describe_briefly(unit, self._decider, row, name)

    def describe_in_files(self, ref: Ref, first: Version | None = None) -> Described:
        """Describe a table for who reads files alone: what came inline is published first.

        Many who ask at once wait for one that publishes. A log that diverged is not told of: its
        readers would take the other bytes. Spec: CA-04.
        """
        described = self.describe(ref, first)
        row, upto = described.row, described.last_inline
        if row.diverged is not None:
            raise LogDivergedError(row.diverged)
        if upto is None:
            return described
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        if self._publisher.publish(row.id, upto, deadline) < upto:
            raise UnavailableError(f"Version {upto} of {described.name} could not be published.")
        return described

    def file_of(self, table_id: TableId, version: Version) -> str | None:
        """Name the staged file that became a version; None if none did."""
        with self._store.read() as unit:
            row = _require(unit, table_id)
            found = unit.commits(row.key, version, version, content=False)
        return found[0].file_name if found else None

    def describe_page(
        self, namespace: SchemaName, after: TableName | None, limit: int
    ) -> tuple[Described, ...]:
        """Tell of some tables, by name, from the one after a name on, without their commits."""
        with self._store.read() as unit:
            return tuple(
                describing.describe_briefly(unit, self._decider, row, name)
                for row, name in unit.tables(namespace, after, limit)
            )

    # Committing

    def propose(self, proposal: Proposal) -> Answer:
        """Decide a proposal; the same one again gets the first answer. Spec: CM-42.

        What it needs of storage is read before it waits for its turn, outside of any lock.
        """
        self._refuse_if_too_large(proposal)
        with self._proposing.at(part.table_id for part in proposal.parts):
            return self._propose(proposal)

    def _propose(self, proposal: Proposal) -> Answer:
        proposed_ms = self._clock.now_ms()
        try:
            attempts = tuple(self._attempt(part) for part in proposal.parts)
            for part in proposal.parts:
                self._look_ahead(part.table_id)
            for attempt in attempts:
                self._look_for_files(attempt, proposal.txn_id)
        except _FileError as missing:
            return self._lost_long_ago(proposal, missing) or self._refused(proposal, missing)
        except HeadgateError:
            # What was ratified is answered, also when its staged file or its table is gone
            # meanwhile, or an intruder's file lies ahead.
            replayed = self._replayed(proposal)
            if replayed is None:
                raise
            return replayed
        answer = self._decide(Pending(proposal, attempts, proposed_ms, replaced=None))
        self._wake(answer)
        return answer

    def propose_soon(
        self, proposal: Proposal, waiter: Waiter[Answer], afterwards: Callable[[], None]
    ) -> bool:
        """Put a proposal into the queue without waiting for anything; say no if it needs to.

        What comes inline and adds no file that must be looked for needs nothing but its turn. The
        waiter may be told a `NotYetError`: then `propose` does what has to be done first. It is
        told in the ratifier's thread; `afterwards` is done once for all told in the same moment.
        """
        if not self._looked_ahead.issuperset(part.table_id for part in proposal.parts):
            return False
        if not all(isinstance(part.content, Inline) for part in proposal.parts):
            return False
        proposed_ms = self._clock.now_ms()
        self._refuse_if_too_large(proposal)
        attempts = tuple(self._attempt(part) for part in proposal.parts)
        if any(self._wanted_files(attempt, proposal.txn_id) for attempt in attempts):
            return False
        pending = Pending(proposal, attempts, proposed_ms, replaced=None)
        self._ratifier.submit_for(
            waiter,
            proposal.txn_id,
            partial(self._decide_and_note, pending=pending),
            txn_ids=keys_of(proposal),
            table_ids=_concerned(proposal),
            afterwards=(afterwards, self._wake_noted),
        )
        return True

    def _decide_and_note(self, unit: Writing, pending: Pending) -> Answer:
        answer = self._decider.decide(unit, pending)
        if isinstance(answer, Ratified):
            self._noted.update(answer.commits)
        return answer

    def _wake_noted(self) -> None:
        """Wake who follows on commits, after everybody who waits for one was told."""
        if self._noted:
            noted, self._noted = self._noted, set()
            for table_id in noted:
                self._publisher.wake(table_id)
            self._feed.tell()

    def _lost_long_ago(self, proposal: Proposal, missing: _FileError) -> VersionTaken | None:
        """Tell who comes so late that its staged file was swept that its version is taken."""
        with self._store.read() as unit:
            if unit.ratified_under(proposal.txn_id) or unit.rejection(proposal.txn_id) is not None:
                return None  # there is an answer already
            rows = {part.table_id: unit.table(part.table_id) for part in proposal.parts}
        latest = {
            table_id: row.head
            for table_id, row in rows.items()
            if row is not None and row.state is State.ACTIVE
        }
        is_lost = missing.violation.rule == _STAGED_FILE_MISSING and any(
            isinstance(part.content, Staged) and part.version <= latest.get(part.table_id, -1)
            for part in proposal.parts
        )
        if not is_lost or latest.keys() != rows.keys():
            return None
        return VersionTaken(txn_id=proposal.txn_id, latest=latest)

    def _refused(self, proposal: Proposal, missing: _FileError) -> Answer:
        # For good: who is told so may delete its files, and a copy of the request that comes when
        # the file is there at last must find the same answer.
        return self._ratifier.submit(
            proposal.txn_id,
            partial(self._decider.refuse, proposal=proposal, violation=missing.violation),
        ).result()

    def _wake(self, answer: Answer) -> None:
        if isinstance(answer, Ratified):
            for table_id in answer.commits:
                self._publisher.wake(table_id)
            self._feed.tell()

    def propose_staged(
        self,
        table_id: TableId,
        version: Version,
        staged: Staged,
        judge: Judge = nothing_more,
    ) -> Answer:
        """Propose a staged file by its name; its txnId is the one that stands in it.

        For clients that look for conflicts themselves: a version that another took is
        `VersionTaken`, whatever the two do. The same file at the same version gets the first
        answer, for ever. `judge` holds what the client said of the file against what is in it.
        """
        with self._proposing.at((table_id,)):
            return self._propose_staged(table_id, version, staged, judge)

    def _propose_staged(
        self, table_id: TableId, version: Version, staged: Staged, judge: Judge
    ) -> Answer:
        proposed_ms = self._clock.now_ms()
        with self._store.read() as unit:
            row = _managed(_active(unit, table_id))
            if 0 < version <= row.head:
                [taken] = unit.commits(row.key, version, version, content=False)
                if taken.file_name == staged.file_name:
                    ratified = ratified_answer(unit, taken.txn_id)
                    assert ratified is not None  # there is its commit
                    return ratified[0]
        part = Part(table_id=table_id, version=version, content=staged)
        try:
            attempt = self._attempt(part)
        except _FileError as missing:
            if version <= row.head:
                return VersionTaken(txn_id=TxnId(""), latest={table_id: row.head})
            raise InvalidCommitError(table_id, [missing.violation]) from None
        examined = attempt.examined
        if found := [*(examined.violations if examined.txn_id is None else ()), *judge(examined)]:
            raise InvalidCommitError(table_id, found)
        assert examined.txn_id is not None  # else it would be a violation
        proposal = Proposal(txn_id=examined.txn_id, parts=(part,))
        self._refuse_if_too_large(proposal)
        self._look_ahead(table_id)
        try:
            self._look_for_files(attempt, proposal.txn_id)
        except _FileError as missing:
            return self._refused(proposal, missing)
        pending = Pending(proposal, (attempt,), proposed_ms, replaced=None, by_version_alone=True)
        answer = self._decide_surely(pending)
        if isinstance(answer, Ratified):
            won = answer.commits[table_id]
            if won.version != version:
                raise TxnIdReusedError(
                    f"Transaction {proposal.txn_id} is already committed as version {won.version} "
                    f"of table {table_id}."
                )
            if won.file_name != staged.file_name:
                return VersionTaken(txn_id=proposal.txn_id, latest={table_id: won.version})
        self._wake(answer)
        return answer

    # Publishing

    def publish(self, table_id: TableId, upto: Version | None = None) -> Version:
        """Publish in order up to a version, by default the latest; give the last published."""
        return self._publisher.publish(table_id, upto)

    def confirm_published(self, table_id: TableId, upto: Version) -> Version:
        """Look at what a client says it published, then believe it. Spec: PB-01."""
        return self._publisher.confirm(table_id, upto)

    def hear_published(self, table_id: TableId, upto: Version) -> None:
        """Hear in passing what a client says it published, and look at it before believing it."""
        self._publisher.hear(table_id, upto)

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        """Take note of a checkpoint, compaction or checksum. Spec: RD-04, CM-27, CM-28."""
        with self._store.read() as unit:
            row = _managed(_active(unit, table_id))
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

        def add(unit: Writing) -> None:
            unit.insert_file(row.key, file)
            if file.kind is FileKind.CHECKPOINT:
                # What a checkpoint covers is read from it, and its commits stand in the log.
                unit.forget_content(row.key, file.last)

        self._ratifier.submit(table_id, add).result()

    def report_commit(self, table_id: TableId, report: Reported) -> None:
        """Add what a writer tells of a commit to what was told before."""

        def add(unit: Writing) -> None:
            _active(unit, table_id)
            told = reporting.read(unit, table_id)
            reporting.write(unit, table_id, reporting.added(told, report, self._clock.now_ms()))

        self._ratifier.submit(table_id, add).result()

    def reported(self, table_id: TableId) -> Reported:
        """Give what writers told of their commits, added up; nobody checks it."""
        with self._store.read() as unit:
            _require(unit, table_id)
            return reporting.read(unit, table_id)

    # Names and tables

    def create_namespace(
        self,
        name: SchemaName,
        *,
        key: RequestKey | None = None,
        said: Remarks | None = None,
        of_catalog: Remarks | None = None,
    ) -> None:
        """Make a namespace, and keep what is said of it, and of a catalog it is the first in."""
        self._registry.create_namespace(name, key, said, of_catalog)

    def remarks(self, catalog: str) -> CatalogRemarks:
        """Give what was said of a catalog and of its namespaces."""
        with self._store.read() as unit:
            return remarks.read(unit, catalog)

    def change_remarks(self, of: SchemaName | str, change: Callable[[Remarks], Remarks]) -> None:
        """Say something else of a namespace, or of a catalog."""
        self._registry.change_remarks(of, change)

    def drop_namespace(self, name: SchemaName, *, key: RequestKey | None = None) -> None:
        """Remove an empty namespace."""
        self._registry.drop_namespace(name, key)

    def namespaces(self) -> tuple[SchemaName, ...]:
        """List all namespaces."""
        with self._store.read() as unit:
            return tuple(unit.namespaces())

    def namespaces_made_ms(self) -> dict[SchemaName, int]:
        """Say of every namespace when it was made."""
        with self._store.read() as unit:
            return unit.namespaces_made_ms()

    def tables(
        self, namespace: SchemaName | None = None, *, dropped: bool = False
    ) -> tuple[TableEntry, ...]:
        """List tables, the dropped ones too if asked."""
        return tuple(self._registry.entries(namespace, dropped=dropped))

    def table_page(
        self, namespace: SchemaName | None, after: TableName | None, limit: int
    ) -> tuple[TableEntry, ...]:
        """List some tables, by name, from the one after a name on."""
        return tuple(self._registry.page(namespace, after, limit))

    def table_at(self, location: str) -> TableId | None:
        """Give the table that lies at a place, staged or named; None if none does."""
        return self._registry.lying_at(location)

    def place_of(self, table_id: TableId) -> str:
        """Say where a table lies that is staged or has a name."""
        with self._store.read() as unit:
            row = _require(unit, table_id)
        if row.state not in (State.STAGING, State.ACTIVE):
            raise NotFoundError(f"Table {table_id} is {row.state.value}.")
        return row.location

    def stage_table(
        self, location: str | None = None, *, key: RequestKey | None = None
    ) -> StagingTable:
        """Give a place and an id for a table nobody can name yet. Spec: CM-39."""
        return self._registry.stage(location, key)

    def register_table(
        self,
        name: TableName,
        table_id: TableId,
        *,
        key: RequestKey | None = None,
        judge: Judge = nothing_more,
    ) -> Resolved:
        """Judge version 0 of a staging table and give the table its name. Spec: LC-02."""
        return self._registry.register(name, table_id, self._resolve, key, judge)

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
        return self._registry.register_external(name, wanted, self._resolve, key)

    def change_external(
        self, table_id: TableId, change: Callable[[TableRow, Metadata], Metadata]
    ) -> None:
        """Declare something else of a table that is not managed; `change` may refuse."""
        self._registry.change_external(table_id, change)

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        """Make and name a table in one call; version 0 comes inline. Spec: LC-01."""
        self._registry.create(name, table_id, txn_id, first)
        self._publisher.wake(table_id)
        self._feed.tell()
        with self._store.read() as unit:  # told again, it may be dropped by now, and was made
            return self._resolve(unit, table_id, unit.clock().sequence)

    def rename_table(
        self, table_id: TableId, name: TableName, *, key: RequestKey | None = None
    ) -> None:
        """Give the table another name; id, place and history stay. Spec: LC-04."""
        self._registry.rename(table_id, name, key)

    def was_renamed(self, old: TableName, new: TableName) -> bool:
        """Say whether a table has a name, and had another just before it."""
        return self._registry.was_renamed(old, new)

    def drop_table(self, table_id: TableId, *, key: RequestKey | None = None) -> None:
        """Take the name away; nothing is committed and nothing deleted. Spec: CM-40."""
        self._registry.drop(table_id, key)

    def undrop_table(
        self,
        table_id: TableId,
        name: TableName | None = None,
        *,
        key: RequestKey | None = None,
    ) -> None:
        """Bring a dropped table back, under its old name or another. Spec: LC-03."""
        self._registry.undrop(table_id, name, key)
        self._publisher.wake(table_id)

    def purge_table(
        self,
        table_id: TableId,
        *,
        key: RequestKey | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete a dropped table's files, resumably; give how many went. Spec: CM-40."""
        return self._registry.purge(table_id, key, progress)

    def expire_staging(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Give up places that were staged and never registered."""
        return tuple(self._registry.expire_staging(older_than_ms))

    def keep_house(self) -> int:
        """Give up what nobody came back for, now; say how much it was."""
        return self._housekeeper.keep()

    # Checking

    def fsck(
        self,
        table_id: TableId | None = None,
        *,
        repair: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Finding, ...]:
        """Hold one table or all against their logs; mend what can be mended if asked."""
        with self._store.read() as unit:
            if table_id is None:
                tables = [(row, str(name)) for row, name in unit.tables(None)]
                # By their ids: the name may be another's by now.
                tables += [(row, row.id) for row in unit.nameless(State.DROPPED)]
                tables = [(row, name) for row, name in tables if row.kind is Kind.MANAGED]
            else:
                row = _managed(_active(unit, table_id))
                tables = [(row, str(unit.name_of(table_id)))]
            purged = unit.nameless(State.PURGED) if table_id is None else []
            purging = [row for row in purged if is_unfinished(row)]
            # Where another table lies by now, what is there is that table's.
            free = [
                row
                for row in purged
                if row.kind is Kind.MANAGED
                and not is_unfinished(row)
                and unit.overlapping(row.location) is None
            ]
        found = self._stale(repair=repair) if table_id is None else []
        for row in free:
            found += left_behind(row, self._store_for(row.location))
        for row in purging:
            if repair:
                self._registry.purge(row.id)
            found.append(
                Finding(
                    rule="CM-40",
                    severity=Severity.WARNING,
                    table=row.id,
                    says="is purged, and some of its files are still there",
                    remedy="Run `headgate purge` with its id, or `headgate fsck --repair`.",
                    repaired=repair,
                )
            )
        for done, (row, name) in enumerate(tables, start=1):
            if repair and row.published < row.head and row.diverged is None:
                with suppress(HeadgateError):  # what stands in the way is found below
                    self._publisher.publish(row.id)
            found += self._checker.check(row, name, self._log_of(row.location), repair=repair)
            found += self._data_findings(row.id, name, repair=repair)
            self._looked_ahead.discard(row.id)
            if progress is not None:
                progress(done, len(tables))
        found += self._checker.torn({row.id: name for row, name in tables})
        return tuple(found)

    def _stale(self, *, repair: bool) -> list[Finding]:
        """Look for places that were staged and never registered; keep house if asked to mend."""
        before_ms = self._clock.now_ms() - self._settings.staging_kept_ms
        stale = self._registry.stale_staging(before_ms)
        if repair:
            with suppress(HeadgateError):  # what is left is told
                self._housekeeper.keep_anyway()
        left = {row.id for row in self._registry.stale_staging(before_ms)}
        return [never_registered(row, repaired=row.id not in left) for row in stale]

    def _data_findings(self, table_id: TableId, name: str, *, repair: bool) -> list[Finding]:
        """Look at the data of the latest version, and at what was counted of it."""
        with self._store.read() as unit:
            row = _require(unit, table_id)
            # A dropped one is looked at as of now: without a sequence nobody is told of it.
            at = unit.clock().sequence if row.state is State.DROPPED else None
        store = self._store_for(row.location)
        try:
            snapshot = self._snapshot(table_id, row.head, at)
            state = snapshot.state  # read now: what the catalog counted is what is looked at
        except HeadgateError as error:
            return [
                Finding(
                    rule="RD-06",
                    severity=Severity.ERROR,
                    table=name,
                    version=row.head,
                    says=f"cannot be read: {error.message}",
                    remedy=error.remedy,
                )
            ]
        if repair:
            store.sweep(self._clock.now_ms() - _LEFTOVERS_KEPT_MS)
        listed = {item.path: item.size for item in store.list("", recursive=True)}
        found = [*data_files(name, snapshot, listed), *counts(name, snapshot, row)]
        if repair and any(finding.rule == "RD-03" for finding in found):

            def recount(unit: Writing) -> None:
                now = _require(unit, table_id)
                if now.head == snapshot.version:
                    unit.update_table(
                        now._replace(num_files=state.num_files, size_bytes=state.size_in_bytes)
                    )

            self._ratifier.submit(table_id, recount).result()
            found = [replaced(f, repaired=f.rule == "RD-03") for f in found]
        return found

    # Events and who is told

    def events(
        self, after: Sequence, limit: int = LARGEST_PAGE, wait_s: float = 0.0
    ) -> tuple[Event, ...]:
        """Give what happened after a sequence; wait for the next if there is nothing."""
        if wait_s <= 0:
            return self._feed.read(after, limit)
        return self._feed.soon(after, limit, wait_s).result()

    def events_soon(self, after: Sequence, limit: int, wait_s: float) -> Future[tuple[Event, ...]]:
        """Give a future of the next events; it ends with none when the time is over."""
        return self._feed.soon(after, limit, wait_s)

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

    # How a table is told

    def _resolve(
        self, unit: Reading, ref: Ref, at: Sequence | None = None, room: int | None = None
    ) -> Resolved:
        clock = unit.clock()
        if at is not None and at > clock.sequence:
            raise InTheFutureError(f"The catalog has not come to sequence {at} yet.")
        if isinstance(ref, TableName):
            table_id = unit.named(ref, at)
            if table_id is None:
                raise NotFoundError(f"There is no table {ref}.")
        else:
            table_id = ref
        row = unit.table(table_id) if at is not None else _active(unit, table_id)
        if row is None:
            raise NotFoundError(f"There is no table {table_id}.")
        if row.state is State.PURGED:
            raise NotFoundError(f"Table {table_id} is purged.")
        if row.kind is Kind.EXTERNAL:
            return self._external(unit, row, at)
        latest = row.head if at is None else unit.version_at(row.key, at)
        if latest is None:
            raise NotFoundError(f"Table {table_id} did not exist at sequence {at}.")
        room = self._settings.answer_limit_bytes if room is None else room
        listed = self._listed(unit, row, latest, room)
        name = unit.name_of(table_id, at)
        known = unit.files(row.key, latest)
        checkpoint = max(
            (file for file in known if file.kind is FileKind.CHECKPOINT),
            key=lambda file: file.last,
            default=None,
        )
        above = -1 if checkpoint is None else checkpoint.last
        is_current = row.metadata_version <= latest
        protocol, metadata = (
            self._decider.protocol_and_metadata(row) if is_current else (None, None)
        )
        checksum = self._checksum(unit, row) if latest == row.head else None
        checksum_file = next((file for file in known if file.kind is FileKind.CHECKSUM), None)
        return Resolved(
            table_id=row.id,
            location=row.location,
            name=None if name is None else str(name),
            ways=(Way.INLINE, Way.STAGED),
            latest=latest,
            timestamp_ms=listed[-1].timestamp_ms,
            sequence=clock.sequence if at is None else at,
            clock_ms=max(clock.clock_ms, self._clock.now_ms()),
            commits=listed if room > 0 else (),
            held_from=row.held_from,
            protocol=protocol,
            metadata=metadata,
            checkpoint=checkpoint,
            compactions=tuple(
                sorted(
                    (f for f in known if f.kind is FileKind.COMPACTION and f.first > above),
                    key=lambda file: file.first,
                )
            ),
            checksum=checksum,
            checksum_file=checksum_file if checksum is None else None,
        )

    def _external(self, unit: Reading, row: TableRow, at: Sequence | None) -> Resolved:
        """Tell of a table that is not managed: where it lies, and what was declared of it."""
        name, clock = unit.name_of(row.id, at), unit.clock()
        metadata = from_json(row.metadata, Metadata)
        return Resolved(
            table_id=row.id,
            location=row.location,
            name=None if name is None else str(name),
            catalog_managed=False,
            format=metadata.format.provider,
            latest=row.head,
            timestamp_ms=0,
            sequence=clock.sequence if at is None else at,
            clock_ms=max(clock.clock_ms, self._clock.now_ms()),
            metadata=metadata if _says_something(metadata) else None,
        )

    def _listed(
        self, unit: Reading, row: TableRow, latest: Version, room: int
    ) -> tuple[RatifiedCommit, ...]:
        """Give the commits to list: the unpublished, and those published a moment ago.

        The newest of them that there is room for: `ratified_commits` gives the others.
        """
        first = Version(max(0, min(row.published, latest) - _LISTED + 1))
        if latest - first > 2 * _LISTED:
            first = unit.fitting(row.key, latest, first, room)
        rows = unit.ratified(row.key, first, latest)
        since_ms = self._clock.now_ms() - self._settings.listed_ms
        start = len(rows) - 1
        room -= len(rows[start].content or b"")
        while start > 0 and _is_listed(rows[start - 1], since_ms):
            room -= len(rows[start - 1].content or b"")
            if room < 0:
                break
            start -= 1
        return rows[start:]

    def _checksum(self, unit: Reading, row: TableRow) -> VersionChecksum | None:
        if row.num_files is None or row.size_bytes is None:
            return None
        [head] = unit.commits(row.key, row.head, row.head, content=False)
        protocol, metadata = self._decider.protocol_and_metadata(row)
        return VersionChecksum(
            table_size_bytes=row.size_bytes,
            num_files=row.num_files,
            metadata=metadata,
            protocol=protocol,
            txn_id=head.txn_id,
            in_commit_timestamp_opt=row.timestamp_ms,
            domain_metadata=tuple(from_json(row.domains, list[DomainMetadata])),
        )

    # How a proposal is made ready

    def _refuse_if_too_large(self, proposal: Proposal) -> None:
        settings = self._settings
        if not proposal.parts:
            raise InvalidArgumentError(f"Transaction {proposal.txn_id} proposes nothing.")
        if not proposal.txn_id or len(proposal.txn_id) > 255:
            raise InvalidArgumentError("A txnId has 1 to 255 characters.")
        if len(proposal.parts) > settings.transaction_tables:
            raise TooLargeError(
                f"Transaction {proposal.txn_id} writes {len(proposal.parts)} tables; "
                f"{settings.transaction_tables} are the limit."
            )
        if len({part.table_id for part in proposal.parts}) < len(proposal.parts):
            raise InvalidArgumentError(
                f"Transaction {proposal.txn_id} has two parts for one table.",
                remedy="Fold them into one commit.",
            )
        sizes = [
            len(part.content.actions) for part in proposal.parts if isinstance(part.content, Inline)
        ]
        if max(sizes, default=0) > settings.inline_limit_bytes:
            raise TooLargeError(
                f"An inline commit of {max(sizes)} bytes; {settings.inline_limit_bytes} are the "
                "limit."
            )
        if sum(sizes) > settings.transaction_limit_bytes:
            raise TooLargeError(
                f"{sum(sizes)} bytes of inline commits; {settings.transaction_limit_bytes} are "
                "the limit for a transaction."
            )

    def _attempt(self, part: Part) -> Attempt:
        if part.version < 1:
            raise _invalid(part, "version", f"{part.version} is no version to propose")
        match part.content:
            case Inline() as inline:
                return Attempt(part, examination.examine(inline))
            case Staged() as staged:
                return self._staged_attempt(part, staged)
            case Put():
                raise UnsupportedByCatalogError("This catalog does not commit by put-if-absent.")

    def _staged_attempt(self, part: Part, staged: Staged) -> Attempt:
        """Read a staged file and judge it, not the client's word for it. Spec: AU-02, CM-02."""
        commit = staged.commit
        if commit is None:
            raise _invalid(part, "staged-name", f"{staged.file_name!r} is no staged commit's name")
        if commit.version != part.version:
            raise _invalid(
                part,
                "staged-version",
                f"{staged.file_name} can only become version {commit.version}, not {part.version}",
            )
        if staged.size > self._settings.commit_limit_bytes:
            raise TooLargeError(f"{staged.file_name} has {staged.size} bytes.")
        with self._store.read() as unit:
            row = _managed(_require(unit, part.table_id))
        store = self._log_of(row.location).store
        meta = store.head(commit.path)
        if meta is None:
            raise _FileError(_STAGED_FILE_MISSING, f"{commit.path} is not there")
        if meta.size != staged.size:
            raise _FileError(
                "staged-size",
                f"{commit.path} has {meta.size} bytes, not the {staged.size} declared",
            )
        # Seen is not yet safe: whoever wrote the file may not have synced it.
        store.sync([commit.path])
        content = store.get(commit.path)
        return Attempt(
            part,
            examination.examine_file(content, staged.size),
            size=len(content),
            sha256=hashlib.sha256(content).digest(),
            modified_ms=meta.modified_ms,
        )

    def _wanted_files(self, attempt: Attempt, txn_id: TxnId) -> dict[str, AddFile]:
        """Choose some of the files a commit adds: those that would hurt most if missing."""
        settings, adds = self._settings, attempt.examined.adds
        count = 0
        if isinstance(attempt.part.content, Staged):
            count = settings.verify_staged
        elif settings.verify_every and zlib.crc32(txn_id.encode()) % settings.verify_every == 0:
            count = 1
        largest = heapq.nlargest(count, adds, key=lambda add: add.size) if count else []
        wanted = {add.path: add for add in largest}
        wanted |= {add.path: add for add in adds if add.size >= settings.verify_above_bytes}
        return wanted

    def _look_for_files(self, attempt: Attempt, txn_id: TxnId) -> None:
        """Look for the files a commit adds, as far as the settings say. Spec: AU-02."""
        wanted = self._wanted_files(attempt, txn_id)
        if not wanted:
            return
        with self._store.read() as unit:
            row = _require(unit, attempt.part.table_id)
        store = self._store_for(row.location)
        for path, add in wanted.items():
            data = locations.data_path(path)
            if data.kind is not locations.PathKind.RELATIVE or attempt.examined.violations:
                continue  # refused for what it is, and not for what is there
            meta = store.head(data.value)
            if meta is None:
                raise _FileError("file-missing", f"{path} is not there")
            if meta.size != add.size:
                raise _FileError(
                    "file-size", f"{path} has {meta.size} bytes, not the {add.size} declared"
                )

    def _replayed(self, proposal: Proposal) -> Ratified | None:
        with self._store.read() as unit:
            ratified = ratified_answer(unit, proposal.txn_id)
        if ratified is None:
            return None
        answer, intents = ratified
        # A staged file is known by its transaction; what came inline is there to be compared.
        wanted = {
            part.table_id: bytes.fromhex(examination.examine(part.content).intent)
            if isinstance(part.content, Inline)
            else intents.get(part.table_id)
            for part in proposal.parts
        }
        return answer if wanted == intents else None

    def _decide(self, pending: Pending) -> Answer:
        while True:
            try:
                return self._submit(pending).result()
            except BacklogError as backlog:
                pending = pending._replace(is_held_back=self._hold_back(backlog.row))
            except FarBehindError:
                pending = self._checked(pending)
            except FilesToSeeError:
                pending = pending._replace(replaced=self._replaced(pending.attempts))

    def _decide_surely(self, pending: Pending) -> Answer:
        """Decide, and find out what became of it where the database did not say.

        Who is told of a doubt a few times may take it for a failure, and delete its files.
        """
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        doubt: OutcomeUnknownError | None = None
        while True:
            try:
                return self._decide(pending)
            except OutcomeUnknownError as error:
                doubt = error
            except UnavailableError:
                if doubt is None:  # nothing happened
                    raise
            if self._clock.monotonic() > deadline:
                raise doubt
            self._clock.sleep(_DOUBT_PAUSE_S)

    def _submit(self, pending: Pending) -> Future[Answer]:
        proposal = pending.proposal
        return self._ratifier.submit(
            proposal.txn_id,
            partial(self._decider.decide, pending=pending),
            txn_ids=keys_of(proposal),
            table_ids=_concerned(proposal),
        )

    def _checked(self, pending: Pending) -> Pending:
        """Look for conflicts outside of any lock, up to where the tables are now."""
        with self._store.read() as unit:
            rows = self._decider.rows(unit, pending)
            found = self._decider.conflicts_of(unit, pending, rows)
        checked = {table_id: row.head for table_id, row in rows.items()}
        return pending._replace(checked=checked, found=tuple(found))

    def _hold_back(self, row: TableRow) -> bool:
        """Slow a writer down to what the publisher can do; say whether that is in vain.

        While storage cannot be written, or the table's log diverged, commits go on up to the hard
        limit: a publisher in trouble is no reason to lose writes. Spec: CM-25.
        """
        wanted = Version(row.head - self._settings.unpublished_soft // 2)
        deadline = self._clock.monotonic() + self._settings.unpublished_wait_ms / 1000
        with self._held_back.at((row.id,)):
            try:
                published = self._publisher.publish(row.id, wanted, deadline)
            except HeadgateError:
                return True
        if published < wanted:
            raise BusyError(f"Table {row.id} has {row.head - published} unpublished commits.")
        return False

    def _look_ahead(self, table_id: TableId) -> None:
        """Look once whether the log is ahead of the catalog, as after restoring an old copy.

        A file that could be the next version means the catalog forgot; anything else there was
        put by an intruder, and the publisher will stop at it.
        """
        if table_id in self._looked_ahead:
            return
        while True:
            with self._store.read() as unit:
                row = _managed(_require(unit, table_id))
            if row.state is not State.ACTIVE:
                return  # the decider will say so
            content = self._log_of(row.location).read_published(Version(row.head + 1))
            if content is None:
                break
            with self._store.read() as unit:
                moved = _require(unit, table_id).head != row.head
            if moved:
                continue  # another process committed and published meanwhile: look again
            if self._checker.is_next(row, content):
                raise LogAheadError(
                    f"The log of table {table_id} has version {row.head + 1}, the catalog only "
                    f"{row.head}: the catalog is an older copy."
                )
            _log.error("table %s: version %d in the log is an intruder's", row.id, row.head + 1)
            break
        self._looked_ahead.add(table_id)

    def _replaced(self, attempts: Iterable[Attempt]) -> frozenset[TableId]:
        """Name the tables whose partitioning changes while every old file goes. Spec: FI5."""
        replaced: set[TableId] = set()
        for attempt in attempts:
            table_id = attempt.part.table_id
            if attempt.examined.metadata is None:
                continue
            with self._store.read() as unit:
                row = _require(unit, table_id)
            if row.state is not State.ACTIVE:
                continue
            snapshot = self._snapshot(table_id)
            gone = {file.key for file in attempt.examined.removes}
            if all(file.key in gone for file in snapshot.files()):
                replaced.add(table_id)
        return frozenset(replaced)

    def _snapshot(
        self, table_id: TableId, version: Version | None = None, at: Sequence | None = None
    ) -> Snapshot:
        # Snapshots stand on pyarrow, which takes as long to load as a server takes to start.
        from headgate.log import snapshots

        return snapshots.load(
            self, table_id, version=version, sequence=at, store_for=self._store_for
        )

    def _log_of(self, location: str) -> DeltaLog:
        return DeltaLog(self._store_for(location))


class _FileError(Exception):
    """A file that a proposal names is not there, or not as it was declared."""

    def __init__(self, rule: str, says: str) -> None:
        super().__init__(says)
        self.violation = Violation(rule=rule, says=says)


def _held(
    unit: Reading, table_id: TableId, first: Version | None, last: Version | None
) -> tuple[TableRow, Version, Version]:
    """Give a table and the range of its commits that is held, of the one asked for."""
    row = unit.table(table_id)
    if row is None or row.state not in (State.ACTIVE, State.DROPPED):
        raise NotFoundError(f"There is no table {table_id}.")
    # All that is held, when nothing was asked for; else what is held of the range.
    start = row.held_from if first is None else max(first, row.held_from)
    end = row.head if last is None else min(last, row.head)
    return row, Version(start), Version(end)


def _concerned(proposal: Proposal) -> set[TableId]:
    """Name the tables that a proposal writes or read."""
    written = {part.table_id for part in proposal.parts}
    return written.union([scan.table_id for scan in proposal.scans]) if proposal.scans else written


def _require(unit: Reading, table_id: TableId) -> TableRow:
    row = unit.table(table_id)
    if row is None:
        raise NotFoundError(f"There is no table {table_id}.")
    return row


def _named_row(unit: Reading, ref: Ref) -> tuple[TableRow, TableName]:
    table_id = unit.named(ref) if isinstance(ref, TableName) else ref
    if table_id is None:
        raise NotFoundError(f"There is no table {ref}.")
    row = _active(unit, table_id)
    name = unit.name_of(table_id)
    assert name is not None  # it is active
    return row, name


def _active(unit: Reading, table_id: TableId) -> TableRow:
    row = _require(unit, table_id)
    if row.state is not State.ACTIVE:
        raise NotFoundError(
            f"Table {table_id} is {row.state.value}.",
            remedy="Undrop it while it is dropped: session.undrop().",
        )
    return row


def _managed(row: TableRow) -> TableRow:
    if row.kind is Kind.EXTERNAL:
        raise InvalidArgumentError(
            f"Table {row.id} is external: this catalog knows its place and nothing more.",
            remedy="Use it with the tool that writes it.",
        )
    return row


def _says_something(metadata: Metadata) -> bool:
    return bool(metadata.schema_string or metadata.configuration or metadata.description)


def _is_listed(commit: RatifiedCommit, since_ms: int) -> bool:
    return commit.published_ms is None or commit.published_ms >= since_ms


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


def _invalid(part: Part, rule: str, says: str) -> InvalidCommitError:
    return InvalidCommitError(part.table_id, [Violation(rule=rule, says=says)])
