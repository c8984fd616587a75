"""The time in a transaction's id: a UUID of version 7 begins with it."""

from uuid import UUID


def begun_ms(txn_id: str) -> int | None:
    """Return when a transaction began by the clock of its client; None if its id has no time."""
    try:
        parsed = UUID(txn_id)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 else None
