"""What a server does by itself now and then: give up what nobody came back for.

A lease lets one of several servers do it. Everything here is safe to do twice, and to be cut short.
"""

from __future__ import annotations

import logging
import threading

from headgate.catalog.ratifier import Ratifier
from headgate.catalog.registry import Registry, is_unfinished
from headgate.catalog.stores.port import CatalogStore
from headgate.clock import Clock
from headgate.errors import HeadgateError
from headgate.protocol.tables import State
from headgate.settings import Settings

_log = logging.getLogger(__name__)
_LEASE = "housekeeping"


class Housekeeper:
    """Expires staging tables and ends purges that were cut short."""

    def __init__(
        self,
        store: CatalogStore,
        ratifier: Ratifier,
        registry: Registry,
        clock: Clock,
        settings: Settings,
        holder: str,
    ) -> None:
        self._store = store
        self._ratifier = ratifier
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._holder = holder
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Keep house from now on, at even intervals."""
        self._thread = threading.Thread(target=self._run, name="headgate-housekeeping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after what is under way, for a moment."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._settings.publish_on_close_ms / 1000)

    def keep(self) -> int:
        """Do it once, now; say how much there was to do."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._settings.housekeeping_ms // 2
        is_ours = self._ratifier.submit(
            _LEASE, lambda unit: unit.take_lease(_LEASE, self._holder, now_ms, until_ms)
        ).result()
        if not is_ours:
            return 0
        done = len(self._registry.expire_staging(self._settings.staging_kept_ms))
        with self._store.read() as unit:
            unfinished = [row.id for row in unit.nameless(State.PURGED) if is_unfinished(row)]
        for table_id in unfinished:
            self._registry.purge(table_id)
        return done + len(unfinished)

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.housekeeping_ms / 1000):
            try:
                done = self.keep()
                if done:
                    _log.info("gave up %d places that nobody came back for", done)
            except HeadgateError as error:
                _log.warning("housekeeping failed: %s", error)
            except Exception:  # a thread that dies keeps no house any more
                _log.exception("housekeeping failed")
