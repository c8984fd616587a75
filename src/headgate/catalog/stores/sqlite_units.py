"""The units of the SQLite store, and batches in few statements.

Every statement on SQLite releases the GIL and must acquire it again, so one statement for each row
of a batch would cost many times the row itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

import apsw

from headgate.catalog.stores.reader import ReadUnit, Row, Statement
from headgate.catalog.stores.rows import DECIDED_COLUMNS, Batch, StoreConstraintError
from headgate.catalog.stores.writer import WriteUnit, commit_values, consistent, decided_values
from headgate.errors import DamagedError, HeadgateError, InvalidArgumentError, UnavailableError
from headgate.failpoints import fail_point

_UNSTORABLE: Final = (OverflowError, UnicodeError)  # of a value that a statement is run with
# Rows of one statement; fewer are sent in powers of two, so that there are few distinct texts.
_MAX_ROWS: Final = 64
_KEPT_IF_NULL: Final = frozenset({"protocol", "metadata"})

_MISSING: Final = re.compile(r"no such (table|column): |table \w+ has (no column|\d+ columns)")

_LOST_BYTES: Final = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)

_INSERT_COMMITS: Final = "INSERT INTO commits VALUES {}"
_INSERT_SEQUENCES: Final = "INSERT INTO sequences VALUES {}"
_INSERT_REJECTIONS: Final = "INSERT INTO rejections VALUES {}"
_UPDATE_TABLES: Final = (
    f"WITH new (key, {', '.join(DECIDED_COLUMNS)}) AS (VALUES {{}}) UPDATE tables SET "
    + ", ".join(
        f"{column} = coalesce(new.{column}, tables.{column})"
        if column in _KEPT_IF_NULL
        else f"{column} = new.{column}"
        for column in DECIDED_COLUMNS
    )
    + " FROM new WHERE tables.key = new.key"
)


class SQLiteReadUnit(ReadUnit):
    """Reads on one connection, within its transaction if it has begun one."""

    # Triggers keep the keys of unpublished tables in a table of their own: an index over versions
    # would be written with every commit.
    unpublished_source = "behind CROSS JOIN tables ON key = behind.table_key"
    epoch_query = "SELECT coalesce((SELECT max(sequence) FROM sequences), 0), changes FROM epoch"
    texts = "json_each($1)"
    among = "IN (SELECT value FROM json_each($1))"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except _UNSTORABLE as error:
            raise _unstorable(error) from error

    def _texts(self, values: Collection[str]) -> str:
        return json.dumps([*values])

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        return [self._fetch(sql, *values) for sql, values in statements]


class SQLiteWriteUnit(SQLiteReadUnit, WriteUnit):
    """A unit that has the write lock: what it read stays valid until it changes it itself."""

    tick = "INSERT INTO sequences VALUES ($1, $2, $3)"
    count_change = "UPDATE epoch SET changes = changes + 1"

    def __init__(self, connection: apsw.Connection) -> None:
        SQLiteReadUnit.__init__(self, connection)
        WriteUnit.__init__(self)
        self.damage: str | None = None  # found within a savepoint, and raised from it

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        try:
            with super().savepoint():
                yield
        except apsw.Error as error:
            translation = translated(error)
            if isinstance(translation, DamagedError):
                self.damage = str(error)
            raise (translation or error) from error

    def lost(self) -> HeadgateError | None:
        if self._connection.in_transaction:
            return None
        return UnavailableError(  # as SQLite does on a full disk
            "The catalog's disk is full or failed: SQLite rolled back the whole unit of work.",
            remedy="Free space, then try again.",
        )

    def write_batch(self, batch: Batch) -> None:
        with consistent():
            self._write_many(_INSERT_COMMITS, (commit_values(*row) for row in batch.commits))
            self._write_many(_UPDATE_TABLES, decided_values(batch))
            self._write_many(_INSERT_REJECTIONS, batch.rejections)
            self._write_many(_INSERT_SEQUENCES, ((*clock, txn) for clock, txn in batch.clocks))
            for publication in batch.published:
                self.record_published(*publication)
        for clock, _ in batch.clocks:
            self.sequence = clock.sequence

    def _write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        waiting = list(rows)
        while waiting:
            count = min(_MAX_ROWS, 1 << (len(waiting).bit_length() - 1))
            sent, waiting = waiting[:count], waiting[count:]
            text = _text(statement, count, len(sent[0]))
            self._change(text, *[value for row in sent for value in row])
            fail_point("store.between_rows")

    def _run(self, sql: str, *values: object) -> tuple[int, list[Row]]:
        self.refuse_if_lost()  # outside of a transaction each statement would commit by itself
        try:
            rows = self._connection.execute(sql, values).fetchall()
            return self._connection.changes(), rows
        except apsw.ConstraintError as error:
            raise StoreConstraintError(str(error)) from error
        except _UNSTORABLE as error:
            raise _unstorable(error) from error


@cache
def _text(statement: str, count: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * count))


def translated(error: BaseException) -> HeadgateError | None:
    """Translate an error of SQLite; None if the statement itself was wrong."""
    match error:
        case apsw.FullError():
            return UnavailableError(
                f"The catalog's disk is full: {error}.", remedy="Free space, then try again."
            )
        case apsw.BusyError():
            return UnavailableError(f"The catalog's file is locked by another process: {error}.")
        case apsw.IOError() if getattr(error, "extendedresult", None) in _LOST_BYTES:
            return DamagedError(f"The catalog's file is damaged: {error}.")
        case apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.AuthError():
            return UnavailableError(f"The catalog's file cannot be read or written: {error}.")
        case apsw.CorruptError() | apsw.NotADBError():
            return DamagedError(f"The catalog's file is damaged: {error}.")
        case apsw.SQLError() if _MISSING.match(str(error)):
            # The statements are those of this schema, so another program changed the file.
            return DamagedError(f"The catalog's file is damaged: {error}.")
        case _:
            return None


def _unstorable(error: Exception) -> InvalidArgumentError:
    """Describe a value that SQLite can neither store nor look up."""
    return InvalidArgumentError(
        f"SQLite cannot store a value: {error}.",
        remedy="Remove lone surrogates, and keep numbers within 64 bits.",
    )
