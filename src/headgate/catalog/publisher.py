"""Publishing: copy ratified commits to the log, in order and byte for byte.

A lease per table avoids that two publishers do the same work; it would do no harm. A commit is put
and synced, then recorded as published, and only then its content may be deleted. After a crash
between the first two, the next publisher compares the file and records it. In the background one
thread schedules tables without reading storage, and `workers` publish them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from headgate.catalog import lease_holders, lookup
from headgate.catalog.component import Component, Shared
from headgate.catalog.stores.port import CommitRow, Publication, TableRow, WriteUnit
from headgate.catalog.workers import Workers
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    InvariantError,
    LogDivergedError,
    NotFoundError,
    NotPublishedError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.protocol import paths
from headgate.protocol.actions import TableId, Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import STAGED, PublishedCommit, parse_staged_name
from headgate.protocol.table_states import TableStatus
from headgate.table.log_files import DeltaLog, UnfinishedError
from headgate.table.ratified_content import find_content, is_ratified

_log = logging.getLogger(__name__)
_STALLED_S = 2.0  # without progress, until a lease of another publisher is ignored
_GRACE = 1.0  # seconds for a put that has begun
_UNFINISHED = 1.0  # seconds until an incomplete file counts as damaged
_LOOK_AGAIN = 0.05  # seconds between checks while another thread publishes
_NAP = 0.01  # seconds, while all scheduled tables rest
_REST = 4.0  # times the duration of a turn
_LONGEST_REST = 1.0  # seconds
_SHARE = 4  # between two turns at most this fraction of `unpublished_soft` is gathered


class Publisher(Component):
    """Copies ratified commits into the log, on demand and in the background."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._wakeups = threading.Condition()
        self._woken: set[TableId] = set()
        self._touched: set[TableId] = set()
        # Why publishing fails, and the version that it has not got past since.
        self._failing: dict[TableId, tuple[str, Version]] = {}
        # Since when another holder has a lease without progress, and the published version then.
        self._refused: dict[str, tuple[float, Version]] = {}
        self._rests_until: dict[TableId, float] = {}
        self._stood_at: dict[TableId, Version] = {}  # published after the last turn
        self._at_table: dict[TableId, threading.RLock] = {}
        self._is_stopping = False
        self._deadline: float | None = None  # of publishing in the background
        self._process = os.getpid()
        self._workers = Workers(self._try)
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
        if thread is None or os.getpid() != self._process:  # threads do not cross a fork
            return
        with self._wakeups:
            self._is_stopping = True
            self._deadline = deadline
            touched = set(self._touched)
            self._wakeups.notify()
        # Do not wait for storage that hangs: the next publisher finds what it still puts.
        thread.join(seconds + _GRACE)
        left = deadline + _GRACE - self._clock.monotonic()
        if not self._workers.close(touched, left):
            _log.warning("storage does not answer: closing without waiting for it")

    def failure(self, table_id: TableId) -> str | None:
        """Return why the last attempt to publish this table failed; None if it did not."""
        found = self._failing.get(table_id)
        return None if found is None else found[0]

    def publish(
        self,
        table_id: TableId,
        upto: Version | None = None,
        deadline: float | None = None,
        *,
        wait: bool = True,
    ) -> Version:
        """Publish in order up to a version, by default the latest. Spec: CM-23, CM-24.

        While another publisher works on the table, wait for it, or leave it to that one.
        """
        row = self._row(table_id)
        # Later commits are published by another call: this one must end on a busy table.
        target = row.head if upto is None else upto
        if target > row.head:
            raise NotFoundError(
                f"Table {table_id} has no version {target}.", remedy=f"Its latest is {row.head}."
            )
        while True:
            limit = deadline if wait else self._deadline
            is_late = limit is not None and self._clock.monotonic() > limit
            if row.published >= target or is_late:
                return row.published
            if row.diverged is not None:
                raise LogDivergedError(row.diverged)
            with self._alone(table_id, wait=wait) as is_alone:
                if is_alone:
                    if wait:  # another may have published it meanwhile
                        row = self._row(table_id)
                        if row.published >= target or row.diverged is not None:
                            continue
                    held = self._take(row)
                    if held is not None:
                        row = self._publish_some(held, target)
                        continue
                    if wait:
                        self._clock.sleep(0.005)
            if not wait:
                return row.published
            row = self._row(table_id)

    @contextmanager
    def exclusive(self, table_id: TableId) -> Iterator[TableRow]:
        """Lock a table against publishing and yield its row; wait for a publisher at work."""
        lease = lease_of(table_id)
        while True:
            with self._alone(table_id, wait=True) as is_alone:
                held = self._take(self._row(table_id)) if is_alone else None
                if held is not None:
                    try:
                        yield held
                    finally:
                        self._ratifier.submit(
                            lease, lambda unit: unit.release_lease(lease, self._holder)
                        ).result()
                    return
            self._clock.sleep(0.005)

    @contextmanager
    def _alone(self, table_id: TableId, *, wait: bool) -> Iterator[bool]:
        """Let one thread of this process publish a table; the others wait for it here.

        Many writers may be throttled at once, and acquiring the lease is a write to the store.
        """
        lock = self._at_table.setdefault(table_id, threading.RLock())
        is_alone = lock.acquire(timeout=_LOOK_AGAIN) if wait else lock.acquire(blocking=False)
        try:
            yield is_alone
        finally:
            if is_alone:
                lock.release()

    def _publish_some(self, row: TableRow, target: Version) -> TableRow:
        """Publish a batch under a lease, and release it; return the table afterwards.

        `row` was read under the lease: another publisher may have published the batch before.
        """
        lease = lease_of(row.id)
        try:
            _refuse_if_purged(row)
            is_due = row.published < target and row.diverged is None
            last = self._put_batch(row, target) if is_due else row.published
        except BaseException:
            self._ratifier.submit(lease, lambda unit: unit.release_lease(lease, self._holder))
            raise
        return self._record(row, Version(row.published + 1), last, lease)

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
                self._refuse_altered(row, commit)
        if claimed:
            # Their writer may not have synced them.
            log.store.sync([PublishedCommit(commit.version).path for commit in claimed])
            self._record(row, claimed[0].version, upto)
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

    def _put_batch(self, row: TableRow, target: Version) -> Version:
        """Write a batch of unpublished commits to the log, durably; return the last version."""
        first = Version(row.published + 1)
        last = Version(min(target, row.published + self._settings.publish_batch))
        log = self._log_of(row.location)
        with self._store.read_latest() as unit:
            commits = unit.commits(row.key, first, last, content=True)
        items = [(commit.version, self._content(row, log, commit)) for commit in commits]
        fail_point("publisher.before_put")
        unfinished_until = self._clock.monotonic() + _UNFINISHED
        while True:
            try:
                log.publish_many(items)
                break
            except LogDivergedError as error:
                is_late = self._clock.monotonic() > unfinished_until
                if is_late or not isinstance(error, UnfinishedError):
                    self._diverge(row, error.message)
                    raise
            self._clock.sleep(_LOOK_AGAIN)
        fail_point("publisher.after_put")
        return last

    def _content(self, row: TableRow, log: DeltaLog, commit: CommitRow) -> bytes:
        if commit.content is not None and commit.file_name is not None:
            _restore(row, log, commit.file_name, commit.content)
        found = find_content(log, commit)
        if found.content is not None:
            if found.altered:
                _log.error(
                    "table %s: %s was altered after it was ratified as version %d; "
                    "what is published is right",
                    row.id,
                    commit.file_name,
                    commit.version,
                )
            return found.content
        if found.altered:
            self._refuse_altered(row, commit)
        raise InvariantError(
            f"Version {commit.version} of table {row.id} is ratified, and its content "
            f"({commit.file_name}) is gone."
        )

    def _refuse_altered(self, row: TableRow, commit: CommitRow) -> None:
        path = PublishedCommit(commit.version).path
        message = (
            f"Version {commit.version} of table {row.id}: the bytes found for {path} "
            "are not those that were ratified."
        )
        self._diverge(row, message)
        raise LogDivergedError(message)

    def _record(
        self, row: TableRow, first: Version, last: Version, lease: str | None = None
    ) -> TableRow:
        fail_point("publisher.before_record")
        if first <= last:
            publication = Publication(row.key, first, last, self._clock.now_ms())
            self._ratifier.record(row.id, publication).result()
        if lease is not None:
            self._ratifier.submit(
                lease, lambda unit: unit.release_lease(lease, self._holder)
            ).result()
        fail_point("publisher.after_record")
        return row._replace(published=max(row.published, last))

    def _diverge(self, row: TableRow, message: str) -> None:
        """Stop publishing a table; readers still get the catalog's commits. Spec: PB-02."""
        _log.error("publishing of table %s stopped: %s", row.id, message)
        self._ratifier.submit(row.id, lambda unit: unit.set_diverged(row.key, message)).result()

    def _take(self, row: TableRow) -> TableRow | None:
        """Acquire a table's lease, or ignore one without progress; return the table as of then.

        Its holder may have died, and may have had a clock that was ahead.
        """
        lease, published = lease_of(row.id), row.published
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._settings.lease_ms

        def take(unit: WriteUnit, over: str | None = None) -> tuple[bool, TableRow]:
            if over is not None:
                unit.release_lease(lease, over)
            is_taken = unit.acquire_lease(lease, self._holder, now_ms, until_ms)
            return is_taken, lookup.known(unit, row.id)

        is_taken, held = self._ratifier.submit(lease, take).result()
        if not is_taken and (gone := self._gone_holder(lease)) is not None:
            is_taken, held = self._ratifier.submit(lease, partial(take, over=gone)).result()
        if is_taken:
            self._refused.pop(lease, None)
            return held
        now = self._clock.monotonic()
        since, stood_at = self._refused.setdefault(lease, (now, published))
        if stood_at != published:
            self._refused[lease] = (now, published)
            return None
        return held if now - since > _STALLED_S else None

    def _gone_holder(self, lease: str) -> str | None:
        """Return the holder of a lease if its process has ended."""
        with self._store.read_latest() as unit:
            holder = unit.lease_holder(lease)
        return holder if holder is not None and lease_holders.is_gone(holder) else None

    def _row(self, table_id: TableId) -> TableRow:
        with self._store.read_latest() as unit:
            row = lookup.known(unit, table_id)
        _refuse_if_purged(row)
        return row

    def _published(self, table_id: TableId) -> Version:
        """Return the last published version; -1 if it cannot be read."""
        try:
            return self._row(table_id).published
        except HeadgateError:
            return Version(-1)

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
                self._workers.give(ready)
                if woken and not ready:
                    self._clock.sleep(_NAP)
                # Also if tables are woken all the time: others may have unpublished commits.
                if not woken or self._clock.monotonic() >= looked + every:
                    looked = self._clock.monotonic()
                    at_work = self._workers.look()
                    self._workers.give(self._left_behind() - at_work)
            except HeadgateError as error:
                _log.warning("looking for unpublished commits failed: %s", error)
            except Exception:  # the thread must survive
                _log.exception("looking for unpublished commits failed")

    def _rested(self) -> list[TableId]:
        """Take the scheduled tables whose pause is over.

        A turn is expensive, each commit in it is cheap: the longer turns take, the longer the pause
        after them, but never so long that writers have to wait.
        """
        now = self._clock.monotonic()
        with self._wakeups:
            ready = [id for id in self._woken if self._rests_until.get(id, 0.0) <= now]
            self._woken.difference_update(ready)
        for table_id in ready:
            self._rests_until.pop(table_id, None)
        return ready

    def _left_behind(self) -> set[TableId]:
        """Return the tables with unpublished commits that are not scheduled yet."""
        with self._store.read() as unit:
            found = {row.id for row in unit.unpublished_tables() if row.diverged is None}
        with self._wakeups:
            return found - self._woken

    def _try(self, table_id: TableId) -> None:
        began = self._clock.monotonic()
        if self._deadline is not None and began >= self._deadline:
            return
        published: Version | None = None
        try:
            published = self.publish(table_id, wait=False)
            # Without progress, another publisher may have had the lease.
            if table_id in self._failing and published > self._failing[table_id][1]:
                del self._failing[table_id]
        except (LogDivergedError, NotFoundError):
            self._failing.pop(table_id, None)  # logged before, or dropped meanwhile
        except HeadgateError as error:
            if table_id not in self._failing or not isinstance(error, UnavailableError):
                _log.warning("publishing table %s failed: %s", table_id, error)
            self._failing[table_id] = error.message, self._published(table_id)
        except Exception as error:  # the thread must survive
            _log.exception("publishing table %s failed", table_id)
            self._failing[table_id] = repr(error), self._published(table_id)
        ended = self._clock.monotonic()
        waiting = max(1, len(self._woken))  # tables share the machine
        rest = min(_REST * (ended - began) * waiting, _LONGEST_REST)
        if published is not None:
            gathered = published - self._stood_at.get(table_id, published)
            allowed = self._settings.unpublished_soft / _SHARE
            rest *= min(1.0, allowed / max(gathered, 1))
            self._stood_at[table_id] = published
        self._rests_until[table_id] = ended + rest


def lease_of(table_id: TableId) -> str:
    """Return the name of the lease for publishing a table."""
    return f"publish:{table_id}"


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


def _refuse_if_purged(row: TableRow) -> None:
    if row.state is TableStatus.PURGED:
        raise NotFoundError(f"Table {row.id} is purged.")


def _restore(row: TableRow, log: DeltaLog, file_name: str, content: bytes) -> None:
    """Check that a staged file has the ratified content, and restore it if not. Spec: CM-46.

    Engines read it by its name. A power loss may have deleted it, since its writer need not have
    synced it, or others may have replaced it. If it cannot be restored, the commit is published
    all the same.
    """
    with suppress(NotFoundError, InvalidArgumentError, PermissionDeniedError):
        if log.read(f"{STAGED}/{file_name}") == content:
            return
    _log.error("table %s: %s was lost or altered after it was ratified", row.id, file_name)
    staged = parse_staged_name(file_name)
    assert staged is not None  # else it would not have been ratified
    try:
        log.put_back(staged, content)
    except RefusedError as error:
        _log.error("table %s: %s cannot be restored: %s", row.id, file_name, error)
