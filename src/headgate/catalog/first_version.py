"""Version 0 of a table: check its content, or compose it from inline actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.errors import InvalidCommitError
from headgate.names import TableName
from headgate.protocol import features
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit import admission, inline_content
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.log import timestamps

# Compares content with what its client declared about it.
Judge = Callable[[Examined], Iterable[Violation]]


def nothing_more(examined: Examined) -> Iterable[Violation]:
    """Return no violations: the client declared nothing about the content."""
    return ()


def refuse_violations(
    examined: Examined,
    name: TableName,
    table_id: TableId,
    now_ms: int,
    txn_id: TxnId | None = None,
    judge: Judge = nothing_more,
) -> None:
    """Raise InvalidCommitError if the content cannot be version 0 of a table."""
    violations = [
        *examined.violations,
        *judge(examined),
        *admission.judge_first(examined, table_id, now_ms=now_ms, txn_id=txn_id),
    ]
    if violations:
        raise InvalidCommitError(str(name), violations)


def compose(
    examined: Examined,
    name: TableName,
    table_id: TableId,
    txn_id: TxnId,
    now_ms: int,
    clock_ms: int,
) -> bytes:
    """Check inline actions, and return the content of the commit that they become."""
    refuse_violations(examined, name, table_id, now_ms, txn_id)
    assert examined.protocol is not None  # else it would be a violation
    is_tracked = features.is_supported(examined.protocol, "rowTracking")
    content, _ = inline_content.compose(
        examined,
        txn_id=txn_id,
        timestamp_ms=timestamps.next_timestamp(now_ms, clock_ms, ()),
        version=Version(0),
        row_id_high_water=-1 if is_tracked else None,
    )
    return content
