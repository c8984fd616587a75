"""The units of the PostgreSQL store: each query and statement is one round trip."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, TypeAlias

import psycopg
from psycopg import errors

from headgate.catalog.stores import postgres_batch
from headgate.catalog.stores.postgres_batch import is_storable, refuse_unless_storable
from headgate.catalog.stores.reader import ReadUnit, Row, Statement
from headgate.catalog.stores.rows import (
    Batch,
    CatalogClock,
    Epoch,
    RolledBackError,
    StoreConstraintError,
)
from headgate.catalog.stores.writer import WriteUnit, consistent
from headgate.errors import DamagedError, HeadgateError, RefusedError, UnavailableError

RESTORE: Final = (
    "Restore the database from a backup: stop every process that uses it, run `pg_restore`, start "
    "again, then run `headgate fsck --repair`. If a newer Headgate has migrated the database, use "
    "that one instead."
)

Connection: TypeAlias = psycopg.Connection[Row]


class PostgresReadUnit(ReadUnit):
    """Reads on one connection, in a transaction that begins with its first query, or in none."""

    epoch_query = "SELECT sequence, changes FROM clock"
    texts = "unnest($1::text[]) AS texts (value)"
    among = "= ANY ($1::text[])"

    def __init__(
        self, connection: Connection, begin: str, renew: Callable[[Connection], Connection]
    ) -> None:
        self.connection = connection
        self._begin: list[Statement] = [(begin, ())] if begin else []
        self._renew = renew
        self._has_begun = False

    def _fetch(self, sql: str, *values: object) -> list[Row]:
        return self._fetch_each((sql, values))[0]

    def _texts(self, values: Collection[str]) -> list[str]:
        return [value for value in values if is_storable(value)]

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        for _, values in statements:
            refuse_unless_storable(values)
        with translating():
            if self._has_begun:
                return _fetched(self.connection, statements)
            self._has_begun = True
            statements = (*self._begin, *statements)
            try:
                fetched = _fetched(self.connection, statements)
            except psycopg.OperationalError:
                if not self.connection.closed:
                    raise
                # The connection broke while it was idle, and nothing has been read yet.
                self.connection = self._renew(self.connection)
                fetched = _fetched(self.connection, statements)
            return fetched[len(self._begin) :]


class PostgresWriteUnit(PostgresReadUnit, WriteUnit):
    """A unit that has locked the clock's row, so nothing else changes the catalog meanwhile."""

    tick = (
        "WITH inserted AS (INSERT INTO sequences VALUES ($1, $2, $3)) "
        "UPDATE clock SET sequence = $1, clock_ms = $2"
    )
    count_change = "UPDATE clock SET changes = changes + 1"

    def __init__(self, connection: Connection, began: Epoch, clock: CatalogClock) -> None:
        WriteUnit.__init__(self)
        self.connection = connection
        self._began = began
        self._clock = clock  # when it began
        self._lost: HeadgateError | None = None

    def epoch(self) -> Epoch:
        stored = self._stored_epoch()
        return Epoch(stored.sequence, stored.changes + self._is_counted())

    def clock(self) -> CatalogClock:
        return self._clock if self.sequence is None else super().clock()

    def _stored_epoch(self) -> Epoch:
        return (
            self._began if self.sequence is None else self._began._replace(sequence=self.sequence)
        )

    def lost(self) -> HeadgateError | None:
        return self._lost

    def write_batch(self, batch: Batch) -> None:
        rest = batch._replace(undecided=())
        if any(rest):
            sql, values = postgres_batch.statement(self._stored_epoch(), rest, is_counted=False)
            with consistent():
                self._change(sql, *values)
        for clock, _ in batch.clocks:
            self.sequence = clock.sequence

    def _run(self, sql: str, *values: object) -> tuple[int, list[Row]]:
        with self._watched((sql, values)):
            try:
                cursor = _execute(self.connection, (sql, values))
            except psycopg.IntegrityError as error:
                raise StoreConstraintError(first_line(error)) from error
            return cursor.rowcount, cursor.fetchall() if cursor.description else []

    def _fetch_each(self, *statements: Statement) -> list[list[Row]]:
        # The last query is sent by itself: the message that ends a pipeline would stop the
        # server's timer for idle transactions.
        with self._watched(*statements):
            earlier = _fetched(self.connection, statements[:-1])
            return [*earlier, *_fetched(self.connection, statements[-1:])]

    @contextmanager
    def _watched(self, *statements: Statement) -> Iterator[None]:
        """Check statements before they run; remember an error that ended the transaction."""
        self.refuse_if_lost()
        for _, values in statements:
            refuse_unless_storable(values)
        try:
            with translating():
                yield
        except HeadgateError as error:
            self._lost = error
            raise


def _fetched(connection: Connection, statements: Collection[Statement]) -> list[list[Row]]:
    """Execute all statements in one round trip; return the rows of each."""
    with nullcontext() if len(statements) <= 1 else connection.pipeline():
        cursors = [_execute(connection, statement) for statement in statements]
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _execute(connection: Connection, statement: Statement) -> psycopg.Cursor[Row]:
    sql, values = statement
    # A statement without values is not worth preparing.
    return connection.execute(sql.encode(), values, prepare=None if values else False, binary=True)


# Errors


def first_line(error: BaseException) -> str:
    """Return the first line of an error, which says what happened."""
    return str(error).partition("\n")[0]


def translated(error: psycopg.Error) -> HeadgateError:
    """Translate an error of PostgreSQL."""
    reason = first_line(error)
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return RolledBackError(f"Other writers hold locks in the catalog's database: {reason}.")
        case errors.QueryCanceled() | errors.TooManyConnections():
            return UnavailableError(f"The catalog's database is overloaded: {reason}.")
        case errors.DiskFull():
            return UnavailableError(
                f"The disk of the catalog's database is full: {reason}.",
                remedy="Free space, then try again.",
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return DamagedError(f"The catalog's database is damaged: {reason}.", remedy=RESTORE)
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            # The statements are those of this schema, so something else changed the database.
            return DamagedError(f"The catalog's database is damaged: {reason}.", remedy=RESTORE)
        case errors.InsufficientPrivilege():
            return RefusedError(
                f"The database user lacks a privilege: {reason}.",
                remedy="Let the user own the schema, or create one in the database.",
            )
        case errors.ReadOnlySqlTransaction():
            return UnavailableError(
                f"The catalog's database is read-only: {reason}.",
                remedy="Connect to the primary server.",
            )
        case _:
            return UnavailableError(f"The catalog's database cannot be used: {reason}.")


@contextmanager
def translating() -> Iterator[None]:
    """Translate errors of PostgreSQL."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error
