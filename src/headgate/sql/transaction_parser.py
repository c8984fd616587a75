"""Parse the statements that begin and end transactions, and those on savepoints."""

from headgate.protocol.commit.conflicts import Isolation
from headgate.sql import statements
from headgate.sql.cursor import Cursor
from headgate.sql.keywords import NOT_AN_ALIAS

_NOUNS = ("TXN", "TRANSACTION", "WORK")
# As users of other databases write them; these are refused by name.
_OTHER_LEVELS = (("READ", "COMMITTED"), ("READ", "UNCOMMITTED"), ("REPEATABLE", "READ"))


def begin(cursor: Cursor) -> statements.BeginTransaction:
    """Parse BEGIN and START TRANSACTION."""
    if cursor.took("START"):
        if not cursor.took_any("TRANSACTION", "TXN"):
            raise cursor.unexpected("TRANSACTION")
    else:
        cursor.expect("BEGIN")
        cursor.took_any(*_NOUNS)
    isolation, read_only, as_of = None, False, None
    while not cursor.is_at_end:
        if cursor.took("ISOLATION", "LEVEL"):
            isolation = _level(cursor)
        elif cursor.took("READ", "ONLY"):
            read_only = True
        elif cursor.sees("AS", "OF"):
            as_of = _moment(cursor)
        else:
            raise cursor.refused(
                "BEGIN takes ISOLATION LEVEL, READ ONLY and AS OF",
                "Write BEGIN TXN, and the statements after a `;`.",
            )
    return statements.BeginTransaction(cursor.whole, isolation, read_only, as_of)


def atomic_options(cursor: Cursor) -> tuple[Isolation | None, int | None]:
    """Parse the options of BEGIN ATOMIC: its level, and how often it may be run again."""
    cursor.expect("BEGIN", "ATOMIC")
    isolation, retries = None, None
    while True:
        if cursor.took("ISOLATION", "LEVEL"):
            isolation = _level(cursor)
        elif cursor.took("RETRY"):
            retries = cursor.integer()
        else:
            return isolation, retries


def _level(cursor: Cursor) -> Isolation:
    if cursor.took("SNAPSHOT"):
        return Isolation.SNAPSHOT
    if cursor.took("WRITE_SERIALIZABLE") or cursor.took("WRITE", "SERIALIZABLE"):
        return Isolation.WRITE_SERIALIZABLE
    if cursor.took("SERIALIZABLE"):
        return Isolation.SERIALIZABLE
    for level in _OTHER_LEVELS:
        if cursor.sees(*level):
            raise cursor.refused(
                f"{' '.join(level)} is not a level of this catalog",
                "Write SNAPSHOT, WRITE SERIALIZABLE or SERIALIZABLE.",
            )
    raise cursor.unexpected("SNAPSHOT, WRITE SERIALIZABLE or SERIALIZABLE")


def _moment(cursor: Cursor) -> int | statements.Piece:
    cursor.expect("AS", "OF")
    if cursor.took("SEQUENCE"):
        return cursor.integer()
    cursor.expect("TIMESTAMP")
    return cursor.expression(*NOT_AN_ALIAS, is_operand=True)


def commit(cursor: Cursor) -> statements.EndTransaction:
    """Parse COMMIT, and END with its noun."""
    if cursor.took("END"):
        if not cursor.took_any(*_NOUNS):
            raise cursor.unexpected("TXN, TRANSACTION or WORK")
    else:
        cursor.expect("COMMIT")
        cursor.took_any(*_NOUNS)
    return statements.EndTransaction(cursor.whole, commits=True)


def rollback(cursor: Cursor) -> statements.EndTransaction | statements.OnSavepoint:
    """Parse ROLLBACK, ABORT, and ROLLBACK TO a savepoint."""
    is_rollback = cursor.take().key == "ROLLBACK"
    cursor.took_any(*_NOUNS)
    if is_rollback and cursor.took("TO"):
        cursor.took_before_name("SAVEPOINT")
        return _named(cursor, statements.SavepointAction.ROLL_BACK_TO)
    return statements.EndTransaction(cursor.whole, commits=False)


def savepoint(cursor: Cursor) -> statements.OnSavepoint:
    """Parse SAVEPOINT."""
    cursor.expect("SAVEPOINT")
    return _named(cursor, statements.SavepointAction.SET)


def release(cursor: Cursor) -> statements.OnSavepoint:
    """Parse RELEASE, with or without SAVEPOINT."""
    cursor.expect("RELEASE")
    cursor.took_before_name("SAVEPOINT")
    return _named(cursor, statements.SavepointAction.RELEASE)


def _named(cursor: Cursor, action: statements.SavepointAction) -> statements.OnSavepoint:
    return statements.OnSavepoint(cursor.whole, action, cursor.identifier("the savepoint's name"))
