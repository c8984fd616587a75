"""The status of a catalog, read from one instant of its store."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from headgate.api.status import Status, Tail, Trouble
from headgate.catalog.listeners import entry
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import TableRow
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
        stuck = [(row, why) for row in behind if (why := row.diverged or failure(row.id))]
        names = unit.names_by_id({row.id for row in (*longest, *(row for row, _ in stuck))})
        listeners = tuple(entry(row, clock.sequence) for row in unit.listeners())

    def name_of(row: TableRow) -> str | None:
        return str(names[row.id]) if row.id in names else None

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
        tails=tuple(
            Tail(table_id=row.id, name=name_of(row), unpublished=row.head - row.published)
            for row in longest
        ),
        publisher_lag_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        troubles=tuple(
            Trouble(
                table_id=row.id,
                name=name_of(row),
                reason=why,
                is_stopped=row.diverged is not None,
            )
            for row, why in stuck
        ),
        listeners=listeners,
        tokens=counts.tokens,
    )
