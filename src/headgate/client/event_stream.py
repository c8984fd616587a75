"""Read the events of a catalog in order, until now or without end."""

from collections.abc import Collection, Iterator
from typing import Final

from headgate.api.events import Event
from headgate.api.port import Events
from headgate.clock import Clock
from headgate.names import TableName
from headgate.protocol.actions import Sequence

_MAX_WAIT_S: Final = 20.0  # proxies may close a connection that waits longer for an answer


def read(
    catalog: Events,
    after: Sequence | None,
    tables: Collection[TableName],
    clock: Clock,
    *,
    follow: bool,
    wait_s: float,
) -> Iterator[Event]:
    """Yield events in order; stop after the newest unless `follow` is set."""
    keys = {table.key for table in tables}
    seen, deadline = after, clock.monotonic() + wait_s
    while True:
        left_s = _MAX_WAIT_S if follow else deadline - clock.monotonic()
        page = catalog.events(seen, wait_s=min(max(left_s, 0.0), _MAX_WAIT_S))
        if not page and not follow and clock.monotonic() >= deadline:
            return
        for event in page:
            seen = event.sequence
            if not keys or any(TableName.parse(name).key in keys for name in _names(event)):
                yield event
        if page:
            deadline = clock.monotonic() + wait_s


def _names(event: Event) -> Iterator[str]:
    for commit in event.commits:
        if commit.name is not None:
            yield commit.name
    for change in event.names:
        yield from filter(None, (change.before, change.after))
