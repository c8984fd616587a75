"""PostgreSQL, for many servers on one database.

Readers see one instant (REPEATABLE READ) and never wait. Writers take turns at the row of the
clock, which they lock first: the server queues them, whichever process they come from, and
whatever is read under the lock is current. Constraints still make two winners impossible. All
lies in one schema of the database, by default `headgate`.

A writer that dies in the middle of its COMMIT needs no care: the server completes it or undoes it,
and lets go of the lock. Who was not answered finds out by asking under the same txnId.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from headgate.catalog.stores.port import (
    CatalogClock,
    InDoubtError,
    ReadUnit,
    RolledBackError,
    StoreConstraintError,
    WriteUnit,
)
from headgate.catalog.stores.postgres_reader import PostgresReadUnit
from headgate.catalog.stores.postgres_writer import PostgresWriteUnit
from headgate.catalog.stores.reader import Row, Statement, Values
from headgate.clock import Clock
from headgate.errors import (
    DamagedError,
    HeadgateError,
    InvalidArgumentError,
    RefusedError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.failpoints import fail_point

_PATIENCE: Final = 30.0  # seconds until a writer is told that others hold the clock
_ONE_WAIT: Final = 5.0  # seconds of one wait for a lock; more of them fit into the patience
_PAUSE: Final = 10.0  # seconds until the server ends a unit in which nothing happens
_READERS_PAUSE: Final = 300.0  # and a reading in which nothing is asked, which holds up nobody
_READERS: Final = 32  # who read at once, each on a connection; others wait for one of them
_KEPT: Final = 16  # readers' connections that are kept while nobody reads
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_LOCK: Final = f"{_WRITE}; SELECT sequence, clock_ms FROM clock FOR UPDATE"
# Whatever else the address says: a peer that is gone is found out, and none is waited for forever.
_CONNECTING: Final = {
    "application_name": "headgate",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_HOSTS: Final = r"(?:\[[^\]@/]*\]|[^:@/?,\[\]]*)(?::[0-9]*)?"
_ADDRESS: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/]*@)?{_HOSTS}(?:,{_HOSTS})*(?:/[^?@]*)?(?:\?.*)?", re.DOTALL
)
_PORTS: Final = re.compile(r"[0-9,]*")
# What is acknowledged was synced; a server may be set to promise more than that, and not less. A
# process that stops in mid-unit would hold the clock against all others.
# Plans are kept: one made while a table is empty would read all of it when it is full, until
# statistics are gathered. Where there is no index, a forbidden scan looks dear enough to compile.
_SET_ALL: Final = (
    "SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false), "
    "set_config('search_path', $1, false), set_config('lock_timeout', $2, false), "
    "set_config('statement_timeout', '60s', false), "
    "set_config('idle_in_transaction_session_timeout', $3, false), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)"
)
_NOT_APPLIED: Final = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.QueryCanceled,
    errors.TooManyConnections,
)
_log = logging.getLogger(__name__)

Connection = psycopg.Connection[Row]
Result = TypeVar("Result")


class PostgresStore:
    """A catalog's store in one schema of a PostgreSQL database."""

    def __init__(
        self,
        dsn: str,
        clock: Clock,
        *,
        schema: str = "headgate",
        patience: float = _PATIENCE,
        pause: float = _PAUSE,
        readers: int = _READERS,
    ) -> None:
        self._parameters = _parsed(dsn)
        self._schema = schema
        self._clock = clock
        self._patience = patience
        self._pause = pause
        self._readers = readers
        self._free = threading.BoundedSemaphore(readers)
        self._idle: list[Connection] = []  # of readers that are done
        self._lent: list[Connection] = []  # to readers that are not
        self._registering = threading.Lock()
        self._writing = threading.Lock()
        self._writer: Connection | None = None
        self._process = os.getpid()
        self._is_closed = False
        self._version = 0
        try:
            with self._writing:
                writer = self._writing_connection()
                self._refuse_unless_fit(writer)
                self._migrate(writer)
        except BaseException:
            self.close()
            raise

    def read(self) -> AbstractContextManager[ReadUnit]:
        """One read transaction: everything in it is from one instant."""
        return self._reading([(_READ, ())])

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        """Questions that are each from an instant of their own."""
        return self._reading([])

    @contextmanager
    def _reading(self, begin: list[Statement]) -> Iterator[ReadUnit]:
        self._refuse_if_closed()
        if not self._free.acquire(timeout=self._patience):
            raise UnavailableError(
                f"All {self._readers} connections for reading the catalog's database were in use "
                f"for {self._patience:g} s."
            )
        try:
            line = _ReadingLine(self._reader(), begin, self._fresh_reader)
            try:
                yield PostgresReadUnit(line)
            finally:
                self._give_back(line.connection)
        finally:
            self._free.release()

    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        """One write transaction; durable once the block is left without an error."""
        with self._writing:
            self._refuse_if_closed()
            connection, clock = self._begin()
            unit = PostgresWriteUnit(_Line(connection), clock)
            try:
                yield unit
                unit.finish()
            except BaseException:
                if unit.is_lost:
                    # Which statements a pipeline that broke off has prepared is not known.
                    connection.close()
                self._roll_back(connection)
                raise
            if unit.has_written:
                self._commit(connection)
            else:
                self._roll_back(connection)  # the lock alone would cost a sync to let go of

    def check_integrity(self) -> list[str]:
        """Return nothing: PostgreSQL checks its own pages as it reads them."""
        return []

    def describe(self) -> str:
        """Say what the rows lie in."""
        return f"PostgreSQL {self._server}, schema {self._version}"

    def local_file(self) -> Path | None:
        return None

    def backup(self, target: Path) -> None:
        """Refuse: PostgreSQL has better means of its own."""
        raise UnsupportedByCatalogError(
            "A catalog on PostgreSQL is not copied by Headgate.",
            remedy=f"Use pg_dump --schema={self._schema}, or PostgreSQL's continuous archiving.",
        )

    def close(self) -> None:
        """Let go of every connection; one that is read from goes when its reader is done."""
        with self._registering:
            self._is_closed = True
            if os.getpid() == self._process:  # else the sockets are the parent's
                for connection in self._idle:
                    connection.close()
                if self._writer is not None:
                    self._writer.close()
            self._idle.clear()
            self._writer = None

    # Connections

    def _connect(self, pause: float) -> Connection:
        try:
            connection = psycopg.connect(
                "",
                autocommit=True,  # transactions are begun and ended by hand
                cursor_factory=psycopg.RawCursor[Row],
                **{**_CONNECTING, **self._parameters},  # type: ignore[arg-type]
            )
        except psycopg.Error as error:
            raise _said(error) from error
        try:
            # One type for all numbers, so that a statement is prepared once and not once per size.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            waits = (min(_ONE_WAIT, self._patience), pause)
            session = (_quoted(self._schema), *(f"{wait * 1000:.0f}ms" for wait in waits))
            connection.execute(_SET_ALL, session)
            return connection
        except psycopg.Error as error:
            connection.close()
            raise _said(error) from error

    def _reader(self) -> Connection:
        with self._registering:
            connection = self._idle.pop() if self._idle else None
            if connection is not None:
                self._lent.append(connection)
                return connection
        return self._fresh_reader(None)

    def _fresh_reader(self, broken: Connection | None) -> Connection:
        """Open a connection in place of one that broke; its neighbours did so, too."""
        with self._registering:
            if broken is not None:
                self._lent.remove(broken)
                for connection in (broken, *self._idle):
                    connection.close()
                self._idle.clear()
        connection = self._connect(_READERS_PAUSE)
        with self._registering:
            self._lent.append(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            if _status(connection) is TransactionStatus.INTRANS:
                connection.execute("COMMIT", prepare=False)
        with self._registering:
            if connection not in self._lent:
                return
            self._lent.remove(connection)
            is_whole = _status(connection) is TransactionStatus.IDLE  # one in error may not be
            if is_whole and not self._is_closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                connection.close()

    def _refuse_if_closed(self) -> None:
        if os.getpid() != self._process:  # a socket must not cross a fork
            raise UnavailableError(
                "This process was forked from one that had the catalog open.",
                remedy="Connect again in the new process.",
            )
        if self._is_closed:
            raise UnavailableError("This catalog is closed.", remedy="Connect again.")

    # A unit of change

    def _writing_connection(self) -> Connection:
        if self._writer is None or self._writer.closed:
            writer = self._connect(self._pause)
            with self._registering:
                if self._is_closed:
                    writer.close()
                    self._refuse_if_closed()
                self._writer = writer
        return self._writer

    def _begin(self) -> tuple[Connection, CatalogClock]:
        """Lock the clock's row, waiting for whoever has it; nothing is done yet."""
        has_reconnected = False

        def begin() -> tuple[Connection, CatalogClock]:
            nonlocal has_reconnected
            while True:
                connection = self._writing_connection()
                try:
                    found = connection.execute(_LOCK, prepare=False)
                    found.nextset()
                    [[sequence, clock_ms]] = found.fetchall()
                    return connection, CatalogClock(sequence, clock_ms)
                except psycopg.Error:
                    if not connection.closed or has_reconnected:
                        self._roll_back(connection)
                        raise
                    has_reconnected = True  # it broke while nobody used it

        return self._patiently(begin)

    def _patiently(self, do: Callable[[], Result]) -> Result:
        """Do what is undone by a lock held too long or a deadlock again, for a while."""
        deadline = self._clock.monotonic() + self._patience
        while True:
            try:
                return do()
            except _NOT_APPLIED as error:
                if self._clock.monotonic() >= deadline:
                    raise UnavailableError(
                        f"Others held the catalog's clock for {self._patience:g} s: "
                        f"{_first_line(error)}."
                    ) from error
            except psycopg.Error as error:
                raise _said(error) from error

    def _commit(self, connection: Connection) -> None:
        warnings: list[str] = []

        def hear(said: psycopg.errors.Diagnostic) -> None:
            if said.severity_nonlocalized == "WARNING":
                warnings.append(str(said.message_primary))

        connection.add_notice_handler(hear)
        try:
            done = connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if _is_in_doubt(connection, error):
                connection.close()
                raise InDoubtError(_first_line(error), is_store_usable=True) from error
            self._roll_back(connection)
            raise _said(error) from error
        except BaseException:
            connection.close()
            raise
        finally:
            connection.remove_notice_handler(hear)
        if done.statusmessage != "COMMIT":  # a server says so of what it had undone before
            raise UnavailableError("PostgreSQL took the whole transaction back.")
        if warnings:  # it is here, and whether a standby that was to have it has it is not known
            raise InDoubtError("; ".join(warnings), is_store_usable=True)

    def _roll_back(self, connection: Connection) -> None:
        try:
            if not connection.closed:
                connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            connection.close()
        if _status(connection) is not TransactionStatus.IDLE:
            connection.close()

    # The schema

    def _refuse_unless_fit(self, connection: Connection) -> None:
        """Look at what the server is and promises."""
        try:
            self._server = str(connection.info.parameter_status("server_version")).split()[0]
            [[encoding, fsync, pages]] = connection.execute(
                "SELECT current_setting('server_encoding'), current_setting('fsync'), "
                "current_setting('full_page_writes')"
            ).fetchall()
        except psycopg.Error as error:
            raise _said(error) from error
        if encoding != "UTF8":
            raise RefusedError(
                f"The database's encoding is {encoding}: it cannot hold every name.",
                remedy="Make a database with ENCODING 'UTF8'.",
            )
        if fsync != "on" or pages != "on":
            _log.warning(
                "this PostgreSQL runs with fsync=%s and full_page_writes=%s: "
                "commits that were acknowledged may not survive a crash of its machine",
                fsync,
                pages,
            )

    def _migrate(self, connection: Connection) -> None:
        """Bring the schema up to date: the old one or the new one, never between."""
        folder = resources.files("headgate.catalog.stores.migrations") / "postgres"
        scripts = {int(script.name[:4]): script for script in folder.iterdir()}
        newest = self._version = max(scripts)

        def migrate() -> None:
            connection.execute(_WRITE, prepare=False)
            try:
                # Two that start at once: one migrates, the other finds it done.
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || $1, 0))",
                    (self._schema,),
                )
                found = self._schema_version(connection)
                if found > newest:
                    raise RefusedError(
                        f"The schema {self._schema} has version {found}; this Headgate knows up "
                        f"to {newest}.",
                        remedy="Use a newer Headgate.",
                    )
                connection.execute(
                    sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema))
                )
                for number in sorted(scripts):
                    if number > found:
                        connection.execute(scripts[number].read_text("utf-8").encode())
                connection.execute("UPDATE schema_version SET version = $1", (newest,))
                fail_point("store.migrate_before_commit")
            except BaseException:
                self._roll_back(connection)
                raise
            connection.execute("COMMIT", prepare=False)

        def migrate_if_old() -> None:
            if self._schema_version(connection) != newest:
                migrate()

        self._patiently(migrate_if_old)

    def _schema_version(self, connection: Connection) -> int:
        """Give what is there: 0 for nothing; refuse a schema that is somebody else's."""
        names = {
            str(row[0])
            for row in connection.execute(
                "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE nspname = $1",
                (self._schema,),
            )
        }
        if not names:
            return 0
        if not {"schema_version", "names_current"} <= names:
            raise RefusedError(
                f"The schema {self._schema} of this database is another program's.",
                remedy="Name another database, or another schema.",
            )
        [[version]] = connection.execute("SELECT version FROM schema_version").fetchall()
        return int(version)


class _Line:
    """A connection inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(self, told: list[Statement], asked: list[Statement]) -> list[list[Row]]:
        with _translated():
            if len(told) + len(asked) <= 1 or not asked:
                return _execute(self.connection, told, asked)
            # The last question goes alone: what follows a pipeline on the wire stops the clock by
            # which the server ends a unit in which nothing happens any more.
            before = _execute(self.connection, told, asked[:-1])
            return [*before, *_execute(self.connection, [], asked[-1:])]

    def attempt(self, sql: str, values: Values, savepoint: str) -> list[Row]:
        with _translated():
            try:
                return _execute(self.connection, [], [(sql, values)])[0]
            except psycopg.IntegrityError as error:
                self.take_back(savepoint)
                raise StoreConstraintError(_first_line(error)) from error

    def take_back(self, savepoint: str) -> None:
        undo = f"ROLLBACK TO SAVEPOINT {savepoint}; RELEASE SAVEPOINT {savepoint}"
        with _translated():
            self.connection.execute(undo.encode(), prepare=False)


class _ReadingLine(_Line):
    """A connection whose transaction, if there is to be one, begins with the first question."""

    def __init__(
        self,
        connection: Connection,
        begin: list[Statement],
        renew: Callable[[Connection], Connection],
    ) -> None:
        super().__init__(connection)
        self._begin = begin
        self._renew = renew
        self._has_begun = False

    def ask(self, told: list[Statement], asked: list[Statement]) -> list[list[Row]]:
        if self._has_begun:
            with _translated():
                return _execute(self.connection, told, asked)
        self._has_begun = True
        with _translated():
            try:
                return _execute(self.connection, self._begin, asked)
            except psycopg.OperationalError:
                if not self.connection.closed:
                    raise
                # It broke while nobody used it, and nothing was read yet: this is the first.
                self.connection = self._renew(self.connection)
                return _execute(self.connection, self._begin, asked)


def _execute(
    connection: Connection, told: list[Statement], asked: list[Statement]
) -> list[list[Row]]:
    """Execute all of it in one round trip."""
    is_small = len(told) + len(asked) <= 1
    with nullcontext() if is_small else connection.pipeline():
        for text, values in told:
            # What needs no values is not worth preparing.
            connection.execute(text.encode(), values, prepare=None if values else False)
        cursors = [connection.execute(text.encode(), values, binary=True) for text, values in asked]
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _parsed(dsn: str) -> dict[str, object]:
    """Parse an address.

    One whose password has special characters as they are could be taken apart otherwise than it
    is meant, and the errors of the library would show pieces of the password as a host or a port.
    """
    try:
        parsed: dict[str, object] = dict(psycopg.conninfo.conninfo_to_dict(dsn))
        if _ADDRESS.fullmatch(dsn) and _PORTS.fullmatch(str(parsed.get("port", ""))):
            return parsed
    except psycopg.Error:
        pass  # its text repeats the address
    raise InvalidArgumentError(
        "The address of the PostgreSQL database cannot be understood.",
        remedy="Write postgresql://USER@HOST:PORT/DATABASE, and special characters of the user and "
        "the password as %XX: @ is %40, / is %2F.",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _status(connection: Connection) -> TransactionStatus:
    return connection.info.transaction_status


def _is_in_doubt(connection: Connection, error: psycopg.Error) -> bool:
    """Say whether a COMMIT that failed may have happened: unless the server said it did not."""
    if connection.closed or error.sqlstate is None:
        return True
    # The connection, or the server, goes: what was on its way is done, or not.
    return error.sqlstate[:2] in ("08", "57") or error.sqlstate == "40003"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _said(error: psycopg.Error) -> HeadgateError:
    """Say in our words what PostgreSQL cannot do."""
    said = _first_line(error)
    match error:
        case errors.LockNotAvailable() | errors.DeadlockDetected() | errors.SerializationFailure():
            return RolledBackError(f"The catalog's database is held by others: {said}.")
        case errors.QueryCanceled() | errors.TooManyConnections():
            return UnavailableError(f"The catalog's database has too much to do: {said}.")
        case errors.DiskFull():
            return UnavailableError(
                f"The disk of the catalog's database is full: {said}.",
                remedy="Free space, then try again.",
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return DamagedError(f"The catalog's database is damaged: {said}.")
        case errors.InsufficientPrivilege():
            return RefusedError(
                f"The database user may not do it: {said}.",
                remedy="Let the user own the schema, or create one in the database.",
            )
        case errors.ReadOnlySqlTransaction():
            return UnavailableError(
                f"The catalog's database can only be read: {said}.",
                remedy="Name the primary server.",
            )
        case _:
            return UnavailableError(f"The catalog's database cannot be used: {said}.")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise _said(error) from error
