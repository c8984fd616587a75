"""Publishing: copy ratified commits to the log, in order and byte for byte.

It works in rounds over many tables. A lease per table avoids that two publishers do the same work;
it would do no harm. The commits of a round are put and synced, then recorded as published together,
and only then their content may be deleted. After a crash between the first two, the next publisher
compares the files and records them. In the background one thread schedules tables without reading
storage, and `workers` publish them: the tables of one disk together, others each by itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from headgate.catalog import lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.publisher_process import PublisherProcess
from headgate.catalog.stores.rows import TableRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.catalog.tails import RoundOutcome, Tails
from headgate.catalog.workers import Workers
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    LogDivergedError,
    NotFoundError,
    NotPublishedError,
    UnavailableError,
)
from headgate.protocol import paths
from headgate.protocol.actions import TableId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.table_states import TableStatus
from headgate.storage.local import LocalStore
from headgate.table.log_files import UnfinishedError
from headgate.table.publish_round import PartResult, TailPart, altered, publish_round
from headgate.table.ratified_content import is_ratified

_log = logging.getLogger(__name__)
_GRACE = 1.0  # seconds for a put that has begun
_UNFINISHED = 1.0  # seconds until an incomplete file counts as damaged
_LOOK_AGAIN = 0.05  # seconds between checks while another thread publishes
_NAP = 0.01  # seconds, while all scheduled tables rest
_REST = 4.0  # times the duration of a round
_LONGEST_REST = 1.0  # seconds
_SHARE = 4  # between two rounds at most this fraction of `unpublished_soft` is gathered
_ROUND_TABLES = 256


class Publisher(Component):
    """Copies ratified commits into the log, on demand and in the background."""

    def __init__(self, shared: Shared, *, in_process: bool = False) -> None:
        super().__init__(shared)
        self._tails = Tails(shared)
        self._child = PublisherProcess(shared.clock) if in_process else None
        self._wakeups = threading.Condition()
        self._woken: set[TableId] = set()
        self._touched: set[TableId] = set()
        self._due: dict[str, dict[TableId, None]] = {}  # by lane
        self._lanes: dict[TableId, str] = {}  # of tables on local disks; others have their own
        # Why publishing fails, and the version that it has not got past since.
        self._failing: dict[TableId, tuple[str, Version]] = {}
        # Since when the next file is incomplete, and the published version then.
        self._unfinished: dict[TableId, tuple[float, Version]] = {}
        self._rests_until: dict[str, float] = {}  # by lane
        self._stood_at: dict[TableId, Version] = {}  # published after the last round
        self._at_table: dict[TableId, threading.RLock] = {}
        self._is_stopping = False
        self._deadline: float | None = None  # of publishing in the background
        self._pid = os.getpid()
        self._workers = Workers(self._work)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headgate-publisher", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def wake(self, table_id: TableId) -> None:
        """Schedule a table for publishing; cheap, since every ratification calls it."""
        if table_id in self._woken:  # its next turn will publish this too
            return
        with self._wakeups:
            self._touched.add(table_id)
            self._woken.add(table_id)
            self._wakeups.notify()

    def close(self) -> None:
        """Publish what this process committed, for a limited time, and stop."""
        seconds = self._settings.publish_on_close_ms / 1000
        deadline = self._clock.monotonic() + seconds
        thread, self._thread = self._thread, None
        if thread is None or os.getpid() != self._pid:  # threads do not cross a fork
            return
        with self._wakeups:
            self._is_stopping = True
            self._deadline = deadline
            self._due.clear()
            self._wakeups.notify()
        # Do not wait for storage that hangs: the next publisher finds what it still puts.
        thread.join(seconds + _GRACE)
        left = deadline + _GRACE - self._clock.monotonic()
        if not self._workers.close(self._enter(self._touched), left):
            _log.warning("storage does not answer: closing without waiting for it")
        if self._child is not None:
            self._child.close()

    def failure(self, table_id: TableId) -> str | None:
        """Return why the last attempt to publish this table failed; None if it did not."""
        found = self._failing.get(table_id)
        return None if found is None else found[0]

    def publish(
        self, table_id: TableId, upto: Version | None = None, deadline: float | None = None
    ) -> Version:
        """Publish in order up to a version, by default the latest. Spec: CM-23, CM-24.

        Waits for another publisher that works on the table.
        """
        row = self._row(table_id)
        # Later commits are published by another call: this one must end on a busy table.
        target = row.head if upto is None else upto
        if target > row.head:
            raise NotFoundError(
                f"Table {table_id} has no version {target}.", remedy=f"Its latest is {row.head}."
            )
        while True:
            is_late = deadline is not None and self._clock.monotonic() > deadline
            if row.published >= target or is_late:
                return row.published
            if row.diverged is not None:
                raise LogDivergedError(row.diverged)
            with self._alone((table_id,), wait=True) as own:
                if not own:
                    row = self._row(table_id)
                    continue
                try:
                    outcomes, _ = self._round({table_id: target}, deadline)
                except TimeoutError:
                    continue
            outcome = outcomes[table_id]
            if isinstance(outcome, UnfinishedError):
                self._clock.sleep(_LOOK_AGAIN)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                if outcome.published == row.published:  # another publisher has the lease
                    self._clock.sleep(0.005)
                row = outcome

    @contextmanager
    def exclusive(self, table_id: TableId) -> Iterator[TableRow]:
        """Lock a table against publishing and yield its row; wait for a publisher at work."""
        while True:
            with self._alone((table_id,), wait=True) as own:
                self._row(table_id)  # raises if it is gone
                held, _ = self._tails.take(own) if own else ({}, {})
                if held:
                    try:
                        yield held[table_id]
                    finally:
                        self._tails.release(held).result()
                    return
            self._clock.sleep(0.005)

    def confirm(self, table_id: TableId, upto: Version) -> Version:
        row = self._row(table_id)
        if not 0 <= upto <= row.head:
            raise NotFoundError(f"Table {table_id} has no version {upto} that could be published.")
        log = self._log_of(row.location)
        with self._store.read_latest() as unit:
            claimed = unit.commits(row.key, Version(row.published + 1), upto, content=False)
        for commit in claimed:
            content = log.read_published(commit.version)
            if content is None:
                raise NotPublishedError(table_id, commit.version)
            if not is_ratified(content, commit):
                error = altered(table_id, commit.version)
                self._tails.record([self._stopped(row, error.message)], release=False)
                raise error
        if claimed:
            # Their writer may not have synced them.
            log.store.sync([PublishedCommit(commit.version).path for commit in claimed])
            self._tails.record([RoundOutcome(row, upto)], release=False)
        return max(row.published, upto)

    def confirm_later(self, table_id: TableId, upto: Version) -> None:
        """Accept a client's report of what it published without making the client wait.

        A running publisher finds the files in the log at its next turn. Spec: PB-01.
        """
        if self._thread is not None:
            self.wake(table_id)
            return
        with suppress(HeadgateError):  # the client reports it again with its next commit
            self.confirm(table_id, upto)

    def add_file(self, table_id: TableId, file: KnownFile) -> None:
        with self._store.read() as unit:
            row = lookup.managed(lookup.active(unit, table_id))
        if file.last > row.head:
            raise NotFoundError(f"Table {table_id} has no version {file.last}.")
        if file.kind is not FileKind.CHECKSUM and file.last > row.published:
            self.confirm(table_id, file.last)  # it may be in the log, and not recorded yet
        if not file.paths:
            raise InvalidArgumentError(f"A {file.kind.value} of version {file.last} has no file.")
        log = self._log_of(row.location)
        for path in file.paths:
            if not _is_named_rightly(file, path):
                raise InvalidArgumentError(
                    f"{path} is not a {file.kind.value} of version {file.last}."
                )
            if log.store.head(path) is None:
                raise NotFoundError(f"{path} is missing.", remedy="Write it, then report it.")
        log.store.sync(file.paths)

        def add(unit: WriteUnit) -> None:
            unit.insert_file(row.key, file)
            if file.kind is FileKind.CHECKPOINT:
                # Readers use the checkpoint and the commits in the log from now on.
                unit.delete_content(row.key, file.last)

        self._change(table_id, add)

    # Rounds

    @contextmanager
    def _alone(self, table_ids: Iterable[TableId], *, wait: bool) -> Iterator[Sequence[TableId]]:
        """Let one thread of this process publish a table; others wait for it here, for a moment.

        Yields the tables that are free. Many writers may be throttled at once, and acquiring the
        lease is a write to the store.
        """
        own: list[TableId] = []
        try:
            for table_id in table_ids:
                lock = self._at_table.setdefault(table_id, threading.RLock())
                if lock.acquire(wait, _LOOK_AGAIN if wait else -1):
                    own.append(table_id)
            yield own
        finally:
            for table_id in own:
                self._at_table[table_id].release()

    def _round(
        self, upto: Mapping[TableId, Version | None], deadline: float | None = None
    ) -> tuple[dict[TableId, TableRow | Exception], Sequence[TableId]]:
        """Publish some commits of tables under leases, each up to a version or its latest.

        Returns each table afterwards or its error, and the tables of which a part was left out.
        Raises `TimeoutError` if storage hangs.
        """
        held, others = self._tails.take(upto)
        outcomes, due = _sorted_out(upto, held, others)
        if not due:
            self._tails.release(held)
            return outcomes, ()
        try:
            parts, cut = self._tails.parts(due, upto)
            results = self._put(parts, deadline)
        except TimeoutError:  # the leases expire, should it never end
            raise
        except BaseException:
            self._tails.release(held)
            raise
        ended = {table_id: RoundOutcome(row, row.published) for table_id, row in held.items()}
        for part, result in zip(parts, results, strict=True):
            row, error = held[part.table_id], result.error
            if result.device is not None:
                self._lanes[row.id] = f"disk {result.device}"
            if isinstance(error, UnfinishedError) and self._is_too_late(row):
                error = LogDivergedError(error.message)
            if error is None:
                ended[row.id] = RoundOutcome(row, part.commits[-1].version)
                self._unfinished.pop(row.id, None)
                continue
            if isinstance(error, LogDivergedError) and not isinstance(error, UnfinishedError):
                ended[row.id] = self._stopped(row, error.message)
            outcomes[row.id] = error
        return self._tails.record([*ended.values()], release=True) | outcomes, cut

    def _put(self, parts: Sequence[TailPart], deadline: float | None) -> Sequence[PartResult]:
        """Do the storage part of a round, in the publisher process if there is one."""
        stores = [self._store_for(part.location) for part in parts]
        if self._child is None or not all(isinstance(store, LocalStore) for store in stores):
            return publish_round(parts, self._store_for)
        left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
        return self._child.publish_round(parts, left)

    def _is_too_late(self, row: TableRow) -> bool:
        """Return True if the next file of a table has been incomplete for too long."""
        now = self._clock.monotonic()
        since, published = self._unfinished.setdefault(row.id, (now, row.published))
        if published != row.published:
            self._unfinished[row.id] = since, _ = now, row.published
        return now - since > _UNFINISHED

    def _stopped(self, row: TableRow, message: str) -> RoundOutcome:
        """Stop publishing a table; readers still get the catalog's commits. Spec: PB-02."""
        _log.error("publishing of table %s stopped: %s", row.id, message)
        return RoundOutcome(row, row.published, message)

    def _row(self, table_id: TableId) -> TableRow:
        with self._store.read_latest() as unit:
            row = lookup.known(unit, table_id)
        if row.state is TableStatus.PURGED:
            raise _purged(table_id)
        return row

    def _published(self, table_id: TableId) -> Version:
        """Return the last published version; -1 if it cannot be read."""
        try:
            return self._row(table_id).published
        except HeadgateError:
            return Version(-1)

    # In the background

    def _run(self) -> None:
        every = self._settings.publish_every_ms / 1000
        looked = self._clock.monotonic()
        while True:
            with self._wakeups:
                if not self._woken and not self._is_stopping:
                    self._wakeups.wait(every)
                if self._is_stopping:
                    return
                woken = bool(self._woken)
            if woken:
                self._clock.sleep(self._settings.publish_linger_ms / 1000)
            try:
                ready = self._rested()
                self._workers.give(self._enter(ready))
                if woken and not ready:
                    self._clock.sleep(_NAP)
                # Also if tables are woken all the time: others may have unpublished commits.
                if not woken or self._clock.monotonic() >= looked + every:
                    looked = self._clock.monotonic()
                    self._workers.look()
                    self._workers.give(self._enter(self._left_behind()))
            except HeadgateError as error:
                _log.warning("looking for unpublished commits failed: %s", error)
            except Exception:  # the thread must survive
                _log.exception("looking for unpublished commits failed")

    def _rested(self) -> list[TableId]:
        """Take the scheduled tables whose pause is over.

        A round is expensive, each commit in it is cheap: the longer rounds take, the longer the
        pause after them, but never so long that writers have to wait.
        """
        now = self._clock.monotonic()
        with self._wakeups:
            ready = [
                table_id
                for table_id in self._woken
                if self._rests_until.get(self._lane(table_id), 0.0) <= now
            ]
            self._woken.difference_update(ready)
        for table_id in ready:
            self._rests_until.pop(self._lane(table_id), None)
        return ready

    def _left_behind(self) -> set[TableId]:
        """Return the tables with unpublished commits that are not scheduled yet."""
        found = self._tails.unpublished()
        with self._wakeups:
            return found - self._woken

    def _lane(self, table_id: TableId) -> str:
        """Return with which tables one is published: those of its disk, or none if unknown."""
        return self._lanes.get(table_id, table_id)

    def _enter(self, table_ids: Iterable[TableId]) -> set[str]:
        """Add tables to the next rounds of their lanes; return the lanes."""
        lanes: set[str] = set()
        with self._wakeups:
            for table_id in table_ids:
                lanes.add(lane := self._lane(table_id))
                self._due.setdefault(lane, {})[table_id] = None
        return lanes

    def _work(self, lane: str) -> None:
        """Publish in rounds until no table of a lane is due."""
        while True:
            with self._wakeups:
                due = self._due.pop(lane, {})
                some = [*due][:_ROUND_TABLES]
                if rest := [*due][_ROUND_TABLES:]:
                    self._due[lane] = dict.fromkeys(rest)
            if not some:
                return
            # The disk of a table is known after its first round, which it has by itself.
            self._workers.give(self._enter(self._try(*some)) - {lane})

    def _try(self, *table_ids: TableId) -> Sequence[TableId]:
        """Publish a round; return the tables of which a part was left out."""
        began = self._clock.monotonic()
        if self._deadline is not None and began >= self._deadline:
            return ()
        own: Sequence[TableId] = table_ids
        cut: Sequence[TableId] = ()
        outcomes: Mapping[TableId, TableRow | Exception]
        try:
            with self._alone(table_ids, wait=False) as own:
                outcomes, cut = self._round(dict.fromkeys(own)) if own else ({}, ())
        except Exception as error:
            outcomes = dict.fromkeys(own, error)
        ended = self._clock.monotonic()
        with self._wakeups:  # lanes share the machine
            waiting = max(1, len({self._lane(table_id) for table_id in self._woken}))
        rest = min(_REST * (ended - began) * waiting, _LONGEST_REST)
        gathered = 0
        for table_id, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                self._note_failure(table_id, outcome)
                continue
            # Without progress, another publisher may have had the lease.
            if table_id in self._failing and outcome.published > self._failing[table_id][1]:
                del self._failing[table_id]
            stood_at = self._stood_at.get(table_id, outcome.published)
            gathered = max(gathered, outcome.published - stood_at)
            self._stood_at[table_id] = outcome.published
        rest *= min(1.0, self._settings.unpublished_soft / _SHARE / max(gathered, 1))
        if unfinished := [key for key, one in outcomes.items() if isinstance(one, UnfinishedError)]:
            rest = max(rest, _LOOK_AGAIN)
        self._rests_until[self._lane(table_ids[0])] = ended + rest
        for table_id in unfinished:
            self.wake(table_id)
        return cut

    def _note_failure(self, table_id: TableId, error: Exception) -> None:
        match error:
            case UnfinishedError():
                return
            case LogDivergedError() | NotFoundError():  # logged before, or dropped meanwhile
                self._failing.pop(table_id, None)
                return
            case HeadgateError():
                reason = error.message
                if table_id not in self._failing or not isinstance(error, UnavailableError):
                    _log.warning("publishing table %s failed: %s", table_id, error)
            case _:
                reason = repr(error)
                _log.error("publishing table %s failed", table_id, exc_info=error)
        self._failing[table_id] = reason, self._published(table_id)


def _sorted_out(
    upto: Mapping[TableId, Version | None],
    held: Mapping[TableId, TableRow],
    others: Mapping[TableId, TableRow],
) -> tuple[dict[TableId, TableRow | Exception], list[TableRow]]:
    """Return the tables with nothing to publish here, or why they cannot be; and the rest."""
    outcomes: dict[TableId, TableRow | Exception] = {**others}
    due: list[TableRow] = []
    for table_id, version in upto.items():
        row = held.get(table_id)
        if row is None:
            outcomes.setdefault(table_id, NotFoundError(f"There is no table {table_id}."))
        elif row.state is TableStatus.PURGED:
            outcomes[table_id] = _purged(table_id)
        elif row.published >= (row.head if version is None else version):
            outcomes[table_id] = row
        elif row.diverged is not None:
            outcomes[table_id] = LogDivergedError(row.diverged)
        else:
            due.append(row)
    return outcomes, due


def _purged(table_id: TableId) -> NotFoundError:
    return NotFoundError(f"Table {table_id} is purged.")


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
