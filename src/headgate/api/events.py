"""Events: one for each sequence, with everything that changed at it.

An event is derived from the rows that a ratification wrote, so every ratification has exactly one.
It names what changed but has no content: read the tables as of its sequence. Spec: EV-01.
"""

from typing import Protocol

from headgate.api.messages import Message
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way


class TableCommit(Message, frozen=True, kw_only=True):
    """One table's part of a ratification."""

    table_id: TableId
    name: str | None = None  # at that sequence
    version: Version
    way: Way
    size: int  # of the commit, in bytes
    timestamp_ms: int  # the in-commit timestamp


class NameChange(Message, frozen=True, kw_only=True):
    """A change of a table's name.

    Without `before` the table was created, registered or undropped; without `after` it was dropped;
    with both it was renamed.
    """

    table_id: TableId
    before: str | None = None
    after: str | None = None


class Event(Message, frozen=True, kw_only=True):
    """Everything that changed at one sequence. One with the same sequence is a repetition."""

    sequence: Sequence
    timestamp_ms: int  # the catalog's clock: it never goes back
    txn_id: TxnId | None = None  # None if only names changed
    commits: tuple[TableCommit, ...] = ()  # one for each table of the transaction
    names: tuple[NameChange, ...] = ()


class Listener(Protocol):
    """Receives events: any callable that takes one.

    It is called in order and at least once for each event. If it raises, it is called with the same
    event again after a pause. Commits never wait for a listener. Spec: EV-01, EV-02.
    """

    def __call__(self, event: Event, /) -> None: ...
