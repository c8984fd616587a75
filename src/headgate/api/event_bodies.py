"""Bodies of the feed: pages of events, and who is told."""

from __future__ import annotations

import msgspec

from headgate.api.events import Event
from headgate.api.status import ListenerEntry
from headgate.protocol.actions import Sequence


class EventPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Events in order and without a gap; none: nothing happened while it was waited for."""

    events: tuple[Event, ...]


class NewListener(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where to post events; from now on, unless `after` names a sequence."""

    url: str
    after: Sequence | None = None


class ListenerList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who is told, and how far each one is."""

    listeners: tuple[ListenerEntry, ...]
