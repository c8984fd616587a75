"""What a listener is told: one event for everything that took one sequence.

An event is derived from what was recorded with the ratification itself, so there is one for every
ratification and none without. It names what changed and carries no content: whoever wants rows
reads the tables as of its sequence. Spec: EV-01.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way


class TableCommit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One table's part of a ratification."""

    table_id: TableId
    name: str | None = None  # as the table was called at that sequence
    version: Version
    way: Way
    size: int  # of the commit, in bytes
    timestamp_ms: int  # the in-commit timestamp


class NameChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A name that began, ended or moved.

    Without `before` the table was made, registered or undropped; without `after` it was dropped;
    with both it was renamed.
    """

    table_id: TableId
    before: str | None = None
    after: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All that happened at one sequence. A sequence seen before is a repetition."""

    sequence: Sequence
    timestamp_ms: int  # the catalog's clock: it never goes back
    txn_id: TxnId | None = None  # of what changed tables; a mere change of name has none
    commits: tuple[TableCommit, ...] = ()  # one for each table of the transaction
    names: tuple[NameChange, ...] = ()


class Listener(Protocol):
    """Who is told of events: any callable that takes one.

    It is told in order and at least once. To return means to have heard; whoever raises is told
    the same event again after a pause. No commit ever waits for a listener. Spec: EV-01, EV-02.
    """

    def __call__(self, event: Event, /) -> None:
        """Hear of one event."""
        ...
