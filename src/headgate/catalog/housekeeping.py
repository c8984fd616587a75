"""Housekeeping: delete at intervals what was abandoned or is past its retention.

Every process with a publisher does it, also one with an embedded lake: otherwise a lake without a
server would keep the files of killed writers. The first run comes after a minute, so that short
commands do not pay for it; `fsck` with `repair` runs it at once. A lease lets one process at a time
do it. Everything here can safely be repeated or interrupted.
"""

from __future__ import annotations

import logging
import os
import threading

from headgate.catalog.component import Component, Shared
from headgate.catalog.purge import Purger
from headgate.catalog.staged_file_cleanup import StagedFileCleaner
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import HeadgateError
from headgate.protocol.actions import Sequence

_log = logging.getLogger(__name__)
_LEASE = "housekeeping"
_FIRST_RUN_MS = 60_000  # until the first run
_EVENTS_PER_BATCH = 1_000  # deleted in one transaction of the database, so that commits do not wait


class Housekeeper(Component):
    """Expires staging tables, finishes interrupted purges and deletes old rows and files."""

    def __init__(self, shared: Shared, purger: Purger) -> None:
        super().__init__(shared)
        self._purger = purger
        self._staged_files = StagedFileCleaner(shared)
        self._refused_since: float | None = None
        self._stopping = threading.Event()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(
            target=self._loop, name="headgate-housekeeping", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait a limited time for the present run."""
        if self._thread is not None and os.getpid() == self._process:  # no thread crosses a fork
            self._stopping.set()
            self._thread.join(self._settings.publish_on_close_ms / 1000)

    def run(self) -> int:
        """Run once unless another process does; return how many tables and files were deleted."""
        return self.run_now() if self._acquire_turn() else 0

    def run_now(self) -> int:
        """Run once, even if another process does; return how many tables and files went."""
        done = len(self._purger.expire_staging(self._settings.staging_kept_ms))
        unfinished = self._purger.unfinished()
        for table_id in unfinished:
            self._purger.purge_or_log(table_id)
        self._delete_answers()
        self._delete_events()
        return done + len(unfinished) + self._staged_files.clean(self._stopping.is_set)

    def _delete_answers(self) -> None:
        """Delete rejections and answers under idempotency keys that are past their retention.

        Each new one also deletes the old ones; this is for catalogs without new ones.
        """
        before_ms = self._clock.now_ms() - self._settings.rejections_kept_ms

        def forget(unit: WriteUnit) -> None:
            unit.delete_rejections(before_ms)
            unit.delete_answers(before_ms)

        self._change(_LEASE, forget)

    def _delete_events(self) -> None:
        """Delete events past their retention, in bounded transactions.

        What a listener has not received yet is kept for twice as long.
        """
        kept_ms = self._settings.events_kept_ms
        if kept_ms == 0:
            return
        now_ms = self._clock.now_ms()
        with self._store.read() as unit:
            old, given_up = (unit.clock_at(now_ms - times * kept_ms) for times in (1, 2))
        if old is None:
            return
        old_last = old.sequence
        given_up_last = Sequence(0) if given_up is None else given_up.sequence

        def forget(unit: WriteUnit) -> bool:
            oldest, newest = unit.oldest_event(), unit.clock().sequence
            received = (row.position for row in unit.listeners())
            due = min(max(min((old_last, *received)), given_up_last), newest - 1)
            if oldest is None or due < oldest.sequence:
                return False
            unit.delete_events(Sequence(min(due, oldest.sequence + _EVENTS_PER_BATCH - 1)))
            return True

        while not self._stopping.is_set() and self._change(_LEASE, forget):
            pass

    def _acquire_turn(self) -> bool:
        """Acquire the lease, which is never released: until it expires there is no other run.

        A lease that lasts too long was acquired by a clock that was ahead, and is ignored.
        """
        now_ms, lasts_ms = self._clock.now_ms(), self._settings.housekeeping_ms // 2
        is_ours = self._change(
            _LEASE,
            lambda unit: unit.acquire_lease(_LEASE, self._holder, now_ms, now_ms + lasts_ms),
        )
        now = self._clock.monotonic()
        if is_ours or self._refused_since is None:
            self._refused_since = None if is_ours else now
            return is_ours
        if now - self._refused_since <= 2 * lasts_ms / 1000:
            return False
        self._refused_since = now
        return True

    def _loop(self) -> None:
        wait_ms = min(_FIRST_RUN_MS, self._settings.housekeeping_ms)
        while not self._stopping.wait(wait_ms / 1000):
            wait_ms = self._settings.housekeeping_ms
            try:
                done = self.run()
                if done:
                    _log.info("housekeeping deleted %d abandoned tables and files", done)
            except HeadgateError as error:
                if not self._stopping.is_set():  # otherwise the catalog was closed meanwhile
                    _log.warning("housekeeping failed: %s", error)
            except Exception:  # the thread must survive
                if not self._stopping.is_set():
                    _log.exception("housekeeping failed")
