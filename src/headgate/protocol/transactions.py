"""The life of a transaction, and what its statements amount to: one net commit for each table."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.protocol.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)


class State(enum.Enum):
    """The states of a transaction. Spec: MT-04."""

    OPEN = "open"
    RATIFIED = "ratified"
    REJECTED = "rejected"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"  # no answer came; asking again under the same id settles it

    @property
    def is_ended(self) -> bool:
        return self is not State.OPEN


MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.OPEN: frozenset({State.RATIFIED, State.REJECTED, State.ABANDONED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.RATIFIED, State.REJECTED}),
    State.RATIFIED: frozenset(),
    State.REJECTED: frozenset(),
    State.ABANDONED: frozenset(),
}


@dataclass
class _Net:
    """What the actions so far amount to."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    txns: dict[str, SetTransaction] = field(default_factory=dict)
    removed: dict[FileKey, RemoveFile] = field(default_factory=dict)
    added: dict[FileKey, AddFile] = field(default_factory=dict)
    cdcs: list[AddCdcFile] = field(default_factory=list)

    def apply(self, actions: Iterable[Action]) -> None:
        """Apply the actions of one statement: its removals come before its additions."""
        adds = []
        for action in actions:
            match action:
                case RemoveFile():
                    # A file of an earlier statement was never in the table: no trace is left.
                    if self.added.pop(action.key, None) is None:
                        self.removed[action.key] = action
                case AddFile():
                    adds.append(action)
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case DomainMetadata():
                    self.domains[action.domain] = action
                case SetTransaction():
                    self.txns[action.app_id] = action
                case AddCdcFile():
                    self.cdcs.append(action)
                case CommitInfo():
                    pass  # there is one for the whole commit
                case _:
                    raise AssertionError(f"{type(action).__name__} is not an action of a commit.")
        for add in adds:
            self.removed.pop(add.key, None)  # of the same file as it is: it stays
            self.added[add.key] = add


def net(
    statements: Iterable[Iterable[Action]],
    *,
    protocol: Protocol,
    metadata: Metadata,
    domains: Mapping[str, DomainMetadata],
) -> tuple[Action, ...]:
    """Fold the statements of a transaction on one table into the actions of one commit.

    The table before them has this protocol, metadata and these domains. Empty if nothing is left.
    Applying the result gives the same table as applying one statement after the other. Spec: MT-07.
    """
    whole = _Net()
    for statement in statements:
        whole.apply(statement)
    actions: list[Action] = []
    if whole.protocol is not None and whole.protocol != protocol:
        actions.append(whole.protocol)
    if whole.metadata is not None and whole.metadata != metadata:
        actions.append(whole.metadata)
    actions += whole.txns.values()
    actions += [
        domain
        for domain in whole.domains.values()
        if (domain.removed and domain.domain in domains)
        or (not domain.removed and domains.get(domain.domain) != domain)
    ]
    actions += whole.removed.values()
    actions += whole.added.values()
    actions += whole.cdcs
    return tuple(actions)
