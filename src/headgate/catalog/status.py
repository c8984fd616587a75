"""The status of a catalog, read from one instant of its store."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from headgate.api.status import Status, Tail, Trouble
from headgate.catalog.listeners import entry
from headgate.catalog.stores.port import CatalogStore, ReadUnit
from headgate.protocol.actions import TableId
from headgate.release import version

_TAILS_LISTED: Final = 10


def gather(
    store: CatalogStore, root: str, failure: Callable[[TableId], str | None], now_ms: int
) -> Status:
    """Return the status; `failure` returns why publishing a table failed in this process."""
    with store.read() as unit:
        clock, counts, behind = unit.clock(), unit.counts(), unit.unpublished_tables()
        longest = heapq.nlargest(_TAILS_LISTED, behind, key=lambda row: row.head - row.published)
        tails = tuple(
            Tail(
                table_id=row.id,
                name=_name(unit, row.id),
                unpublished=row.head - row.published,
            )
            for row in longest
        )
        troubles = tuple(
            Trouble(
                table_id=row.id,
                name=_name(unit, row.id),
                reason=reason,
                is_stopped=row.diverged is not None,
            )
            for row in behind
            if (reason := row.diverged or failure(row.id)) is not None
        )
        listeners = tuple(entry(row, clock.sequence) for row in unit.listeners())
    oldest_ms = counts.oldest_unpublished_ms
    return Status(
        version=version(),
        store=store.describe(),
        root=root,
        sequence=clock.sequence,
        clock_ms=max(clock.clock_ms, now_ms),
        tables={state.value: count for state, count in counts.tables.items()},
        external=counts.external,
        unpublished=counts.unpublished,
        tails=tails,
        publisher_lag_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        troubles=troubles,
        listeners=listeners,
        tokens=counts.tokens,
    )


def _name(unit: ReadUnit, table_id: TableId) -> str | None:
    name = unit.name_of(table_id)
    return None if name is None else str(name)
