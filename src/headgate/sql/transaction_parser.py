"""Parse the statements of transactions, which are unknown to Spark."""

from __future__ import annotations

from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.encoding import replaced
from headgate.sql.cursor import Cursor
from headgate.sql.statements import (
    Begin,
    CommitTransaction,
    Piece,
    ReleaseSavepoint,
    Rollback,
    Savepoint,
    TransactionOptions,
)

_WORDS = ("TXN", "TRANSACTION", "WORK")
_OPTIONS = ("ISOLATION", "READ", "AS", "RETRY")


def begin(cursor: Cursor, whole: Piece) -> Begin:
    """Parse BEGIN or START TRANSACTION."""
    if cursor.took("START"):
        cursor.expect("TRANSACTION")
    else:
        cursor.expect("BEGIN")
        cursor.took_any(*_WORDS)
    found = options(cursor)
    if found.retry is not None:
        raise cursor.refused("RETRY is for BEGIN ATOMIC only", "Write BEGIN ATOMIC … END.")
    if not cursor.is_at_end:
        raise cursor.refused(
            "BEGIN opens a transaction, and a `;` must follow",
            "Write `BEGIN;`, or BEGIN ATOMIC … END to run a block as one.",
        )
    return Begin(whole, found)


def commit(cursor: Cursor, whole: Piece) -> CommitTransaction:
    """Parse COMMIT, or END with TRANSACTION or TXN."""
    if cursor.took("END"):
        if not cursor.took_any(*_WORDS):
            raise cursor.unexpected("TXN, TRANSACTION or WORK")
    else:
        cursor.expect("COMMIT")
        cursor.took_any(*_WORDS)
    return CommitTransaction(whole)


def rollback(cursor: Cursor, whole: Piece) -> Rollback:
    """Parse ROLLBACK or ABORT."""
    if cursor.took("ABORT"):
        return Rollback(whole)
    cursor.expect("ROLLBACK")
    cursor.took_any(*_WORDS)
    if not cursor.took("TO"):
        return Rollback(whole)
    return Rollback(whole, _savepoint(cursor))


def savepoint(cursor: Cursor, whole: Piece) -> Savepoint:
    """Parse SAVEPOINT."""
    cursor.expect("SAVEPOINT")
    return Savepoint(whole, cursor.identifier("the name of the savepoint"))


def release(cursor: Cursor, whole: Piece) -> ReleaseSavepoint:
    """Parse RELEASE SAVEPOINT."""
    cursor.expect("RELEASE")
    return ReleaseSavepoint(whole, _savepoint(cursor))


def _savepoint(cursor: Cursor) -> str:
    cursor.took_before_name("SAVEPOINT")
    return cursor.identifier("the name of the savepoint")


def options(cursor: Cursor) -> TransactionOptions:
    """Parse the options of a transaction, each at most once."""
    found = TransactionOptions()
    seen: set[str] = set()
    while cursor.sees_any(*_OPTIONS):
        if cursor.peek().key in seen:
            raise cursor.refused(f"{cursor.peek().key} is repeated")
        seen.add(cursor.peek().key)
        if cursor.took("ISOLATION"):
            cursor.expect("LEVEL")
            found = replaced(found, isolation=_isolation(cursor))
        elif cursor.took("READ"):
            if cursor.sees("WRITE"):
                cursor.take()
                continue
            cursor.expect("ONLY")
            found = replaced(found, read_only=True)
        elif cursor.took("RETRY"):
            found = replaced(found, retry=cursor.integer())
        else:
            cursor.expect("AS", "OF")
            if cursor.took("SEQUENCE"):
                found = replaced(found, as_of_sequence=cursor.integer(), read_only=True)
            else:
                cursor.expect("TIMESTAMP")
                moment = cursor.expression(*_OPTIONS, is_operand=True)
                found = replaced(found, as_of_timestamp=moment, read_only=True)
    return found


def _isolation(cursor: Cursor) -> Isolation:
    for words, isolation in _LEVELS.items():
        if cursor.took(*words):
            return isolation
    named = " ".join(token.text for token in (cursor.peek(), cursor.peek(1)) if token.is_name)
    raise cursor.refused(
        f"`{named}` is not an isolation level",
        "Choose SNAPSHOT, WRITE SERIALIZABLE or SERIALIZABLE.",
    )


_LEVELS = {
    ("SNAPSHOT",): Isolation.SNAPSHOT,
    ("WRITE", "SERIALIZABLE"): Isolation.WRITE_SERIALIZABLE,
    ("WRITE_SERIALIZABLE",): Isolation.WRITE_SERIALIZABLE,
    ("SERIALIZABLE",): Isolation.SERIALIZABLE,
}
