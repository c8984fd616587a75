"""What all parts of a catalog share, and how they change its store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headgate.catalog.idempotency import RequestKey, once
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import CatalogClock
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import Clock, Ids
from headgate.protocol.actions import Sequence, TxnId
from headgate.protocol.log import timestamps
from headgate.settings import Settings
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Shared:
    """What a catalog gives to each of its parts."""

    store: CatalogStore
    ratifier: Ratifier
    root: str  # new tables are stored under it
    store_for: Callable[[str], ObjectStore]
    clock: Clock
    ids: Ids
    settings: Settings
    holder: str  # the name under which this process holds leases


class Component:
    """A part of a catalog."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._store = shared.store
        self._ratifier = shared.ratifier
        self._root = shared.root
        self._store_for = shared.store_for
        self._clock = shared.clock
        self._ids = shared.ids
        self._settings = shared.settings
        self._holder = shared.holder

    def _log_of(self, location: str) -> DeltaLog:
        return DeltaLog(self._store_for(location))

    def _change(
        self, name: str, work: Callable[[WriteUnit], Result], key: RequestKey | None = None
    ) -> Result:
        """Run `work` in a unit of work and return its result; with a key, run it only once.

        `name` appears in the error if the outcome is unknown.
        """
        if key is not None:
            work = once(key, work, self._clock.now_ms(), self._settings.rejections_kept_ms)
        return self._ratifier.submit(name, work).result()

    def _next_sequence(
        self, unit: WriteUnit, txn_id: TxnId | None = None, timestamp_ms: int = 0
    ) -> Sequence:
        """Advance the catalog's clock and return the new sequence."""
        before = unit.clock()
        now_ms = self._clock.now_ms()
        clock_ms = timestamps.next_clock(before.clock_ms, max(timestamp_ms, now_ms), now_ms)
        sequence = Sequence(before.sequence + 1)
        unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        return sequence
