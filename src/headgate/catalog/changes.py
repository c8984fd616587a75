"""Changes of a catalog other than commits: idempotent, each in the ratifier's unit of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headgate.catalog.idempotency import RequestKey, once
from headgate.catalog.ratifier import Later, Ratifier
from headgate.catalog.stores.port import CatalogClock, WriteUnit
from headgate.clock import Clock
from headgate.protocol.actions import Sequence, TxnId
from headgate.protocol.log import timestamps
from headgate.settings import Settings

Result = TypeVar("Result")


class CatalogChanges:
    """Submits changes to the ratifier and waits for their results."""

    def __init__(self, ratifier: Ratifier, clock: Clock, settings: Settings) -> None:
        self._ratifier = ratifier
        self._clock = clock
        self._settings = settings

    def submit(
        self, name: str, work: Callable[[WriteUnit], Result | Later], key: RequestKey | None = None
    ) -> Result:
        """Run `work` in a unit of work and return its result; with a key, run it only once.

        `name` appears in the error if the outcome is unknown.
        """
        if key is not None:
            work = once(key, work, self._clock.now_ms(), self._settings.rejections_kept_ms)
        return self._ratifier.submit(name, work).result()

    def next_sequence(
        self, unit: WriteUnit, txn_id: TxnId | None = None, timestamp_ms: int = 0
    ) -> Sequence:
        """Advance the catalog's clock and return the new sequence."""
        before = unit.clock()
        now_ms = self._clock.now_ms()
        clock_ms = timestamps.next_clock(before.clock_ms, max(timestamp_ms, now_ms), now_ms)
        sequence = Sequence(before.sequence + 1)
        unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        return sequence
