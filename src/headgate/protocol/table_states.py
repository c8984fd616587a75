"""A table's identity and its life, from staging to purged."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

from headgate.errors import InvalidArgumentError, InvariantError
from headgate.protocol.actions import TableId


class TableKind(enum.Enum):
    """Whose a table is."""

    MANAGED = "managed"  # every commit passes through the catalog
    EXTERNAL = "external"  # a name for a place; the catalog knows no version of it


class TableStatus(enum.Enum):
    """Where a table stands."""

    STAGING = "staging"
    ACTIVE = "active"
    DROPPED = "dropped"
    PURGED = "purged"


class TableTransition(enum.Enum):
    """What can happen to a table."""

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
    """Make a move of the lifecycle; one that is not in the table cannot happen."""
    try:
        return LIFECYCLE[state][event]
    except KeyError:
        raise InvariantError(f"A {state.value} table cannot {event.value}.") from None


def allows(state: TableStatus, event: TableTransition) -> bool:
    """Say whether a move is in the table."""
    return event in LIFECYCLE[state]


@lru_cache(10_000)
def parse_table_id(text: str) -> TableId:
    """Read a table id: a UUID in its usual spelling."""
    try:
        if str(UUID(text)) == text:
            return TableId(text)
    except ValueError:
        pass
    raise InvalidArgumentError(f"{text!r} is not a table id.", remedy="A table id is a UUID.")
