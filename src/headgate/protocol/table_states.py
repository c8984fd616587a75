"""The id and the states of a table."""

import enum
from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

from headgate.errors import InvalidArgumentError, InvariantError
from headgate.protocol.actions import TableId


class TableKind(enum.Enum):
    """Who manages a table."""

    MANAGED = "managed"  # the catalog
    EXTERNAL = "external"  # its writers; the catalog only has its name and location


class TableStatus(enum.Enum):
    """The state of a table."""

    STAGING = "staging"
    ACTIVE = "active"
    DROPPED = "dropped"
    PURGED = "purged"


class TableTransition(enum.Enum):
    """A change of a table's state."""

    REGISTER = "register"
    DROP = "drop"
    UNDROP = "undrop"
    PURGE = "purge"
    EXPIRE = "expire"


LIFECYCLE: Mapping[TableStatus, Mapping[TableTransition, TableStatus]] = {
    TableStatus.STAGING: {
        TableTransition.REGISTER: TableStatus.ACTIVE,
        TableTransition.EXPIRE: TableStatus.PURGED,
    },
    TableStatus.ACTIVE: {TableTransition.DROP: TableStatus.DROPPED},
    TableStatus.DROPPED: {
        TableTransition.UNDROP: TableStatus.ACTIVE,
        TableTransition.PURGE: TableStatus.PURGED,
    },
    TableStatus.PURGED: {},
}


def step(state: TableStatus, event: TableTransition) -> TableStatus:
    """Return the state after a transition, which must be allowed."""
    try:
        return LIFECYCLE[state][event]
    except KeyError:
        raise InvariantError(f"A {state.value} table cannot {event.value}.") from None


def allows(state: TableStatus, event: TableTransition) -> bool:
    """Return True if a transition is allowed."""
    return event in LIFECYCLE[state]


@lru_cache(10_000)
def parse_table_id(text: str) -> TableId:
    """Parse a table id: a UUID in lower case."""
    try:
        if str(UUID(text)) == text:
            return TableId(text)
    except ValueError:
        pass
    raise InvalidArgumentError(f"{text!r} is not a table id.", remedy="A table id is a UUID.")
