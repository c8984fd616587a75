"""The PostgreSQL store, for many servers on one database.

Readers see one instant (REPEATABLE READ) and never wait. Writers first lock the clock's row: the
server queues them across processes, and everything read under the lock is current. Constraints
prevent two winners besides. All tables are in one schema of the database, by default `headgate`.

A writer that dies during its COMMIT needs no recovery: the server applies or rolls back the unit
and releases the lock. A client without an answer learns the outcome by its txnId.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from headgate.catalog.stores import migrations, postgres_batch
from headgate.catalog.stores.pool import Pool
from headgate.catalog.stores.postgres_batch import Array
from headgate.catalog.stores.postgres_units import (
    RESTORE,
    Connection,
    PostgresReadUnit,
    PostgresWriteUnit,
    first_line,
    translated,
    translating,
)
from headgate.catalog.stores.reader import ReadUnit, Row, no_clock
from headgate.catalog.stores.rows import (
    Batch,
    CatalogClock,
    Epoch,
    InDoubtError,
    StoreConstraintError,
)
from headgate.catalog.stores.writer import WriteUnit, consistent
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

_PATIENCE: Final = 30.0  # seconds until a writer gives up waiting for the clock's lock
_LOCK_TIMEOUT: Final = 5.0  # seconds of one attempt to lock; several fit into the patience
_PAUSE: Final = 10.0  # seconds until the server ends an idle write transaction
_READERS_PAUSE: Final = 300.0  # until it ends an idle read transaction, which blocks no other
_READERS: Final = 32  # connections for concurrent readers; further readers wait for one
_MAX_IDLE_READERS: Final = 16  # connections that stay open while unused
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_LOCK: Final = f"{_WRITE}; SELECT sequence, changes, clock_ms FROM clock FOR UPDATE"
# Releases the lock after a unit that wrote nothing: a COMMIT by itself would sync, and after a
# ROLLBACK psycopg prepares all statements again.
_RELEASE: Final = "SET LOCAL synchronous_commit = off; COMMIT"
# Unless the address says otherwise: dead peers are detected, and no wait is unlimited.
_CONNECT_OPTIONS: Final = {
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
# synchronous_commit: a unit is synced before it is acknowledged; a stricter setting is kept.
# idle_in_transaction_session_timeout: a process that stops within a unit would block all others.
# enable_seqscan: a plan made and kept while a table is empty would scan it when it is full.
# plan_cache_mode: planning a batch for its very values takes longer than executing it.
# jit: the penalty on a scan that no index can avoid would make compiling it look worthwhile.
_SET_ALL: Final = (
    "SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false), "
    "set_config('search_path', $1, false), set_config('lock_timeout', $2, false), "
    "set_config('plan_cache_mode', $4, false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('default_transaction_read_only', 'off', false), "
    "set_config('statement_timeout', '60s', false), "
    "set_config('idle_in_transaction_session_timeout', $3, false), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)"
)
_RETRYABLE: Final = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.QueryCanceled,
    errors.TooManyConnections,
)
_log = logging.getLogger(__name__)

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
        self._pool = Pool[Connection](_MAX_IDLE_READERS)
        self._turn = threading.Lock()  # to write
        self._writer: Connection | None = None
        self._version = 0
        self._committed = 0  # the newest sequence that this process wrote
        self._damage: DamagedError | None = None
        try:
            with self._turn, self._noticing_damage():
                writer = self._writing_connection()
                self._check_server(writer)
                self._migrate(writer)
        except BaseException:
            self.close()
            raise

    def read(self) -> AbstractContextManager[ReadUnit]:
        return self._reading(_READ)

    def read_latest(self) -> AbstractContextManager[ReadUnit]:
        return self._reading("")

    @contextmanager
    def _reading(self, begin: str) -> Iterator[ReadUnit]:
        self._pool.refuse_if_closed()
        with self._noticing_damage(), self._permit():
            unit = PostgresReadUnit(self._reader(), begin, self._replace)
            try:
                yield unit
            finally:
                self._release(unit.connection)

    @contextmanager
    def _permit(self) -> Iterator[None]:
        """Wait until a further connection for reading may be used."""
        if not self._free.acquire(timeout=self._patience):
            raise UnavailableError(
                f"All {self._readers} connections for reading the catalog's database were in use "
                f"for {self._patience:g} s."
            )
        try:
            yield
        finally:
            self._free.release()

    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        with self._turn, self._noticing_damage():
            self._pool.refuse_if_closed()
            connection, epoch, clock = self._begin()
            unit = PostgresWriteUnit(connection, epoch, clock)
            try:
                yield unit
                unit.finish()
            except BaseException:
                if unit.lost() is not None:
                    # Which statements an aborted pipeline has prepared is unknown.
                    connection.close()
                self._roll_back(connection)
                raise
            if unit.has_written:
                self._commit(connection)
                self._committed = unit.sequence or self._committed
            else:
                self._roll_back(connection, _RELEASE)

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        if not any(batch[:-1]):
            return expected
        sql, values = postgres_batch.statement(expected, batch)
        doubts: list[InDoubtError] = []

        def apply() -> list[Row]:
            while True:
                connection = self._writing_connection()
                try:
                    with _committing(connection):
                        cursor = connection.execute(sql.encode(), values, prepare=True, binary=True)
                        return cursor.fetchall()
                except psycopg.IntegrityError as error:
                    raise StoreConstraintError(first_line(error)) from error
                except InDoubtError as doubt:
                    if doubts or not connection.closed:
                        raise
                    # If it was applied already, the epoch is another now: it is not applied twice.
                    doubts.append(doubt)

        with self._turn, self._noticing_damage():
            self._pool.refuse_if_closed()
            try:
                with consistent():
                    rows = self._retry(apply)
            except HeadgateError as error:
                if doubts:
                    raise doubts[0] from error
                raise
            if not rows:  # others wrote meanwhile, or the database is another one now
                with self.read_latest() as unit:
                    self._refuse_if_older(unit.epoch().sequence)
                return None
            epoch = Epoch(*rows[0])
            self._committed = epoch.sequence
            return epoch

    def check_integrity(self) -> list[str]:
        return []  # PostgreSQL checks its own pages as it reads them

    def describe(self) -> str:
        return f"PostgreSQL {self._server}, schema {self._version}"

    def local_file(self) -> Path | None:
        return None

    def backup(self, target: Path) -> None:
        # PostgreSQL has better tools of its own.
        raise UnsupportedByCatalogError(
            "Headgate does not back up catalogs on PostgreSQL.",
            remedy=f"Use pg_dump --schema={self._schema}, or PostgreSQL's continuous archiving.",
        )

    def close(self) -> None:
        self._pool.close()
        if self._writer is not None and self._pool.is_of_this_process:
            self._writer.close()
        self._writer = None

    @contextmanager
    def _noticing_damage(self) -> Iterator[None]:
        """Refuse all use after damage was found: what was written since is not certain."""
        if self._damage is not None:
            raise DamagedError(self._damage.message, remedy=self._damage.remedy)
        try:
            yield
        except DamagedError as error:
            self._damage = self._damage or error
            raise

    def _refuse_if_older(self, sequence: int) -> None:
        """Raise if a commit of this process is missing, as when an older dump was restored."""
        if sequence < self._committed:
            raise DamagedError(
                "The catalog's database is an older copy, and nothing is committed to it: its last "
                f"sequence is {sequence}, but {self._committed} was committed.",
                remedy=RESTORE,
            )

    # Connections

    def _connect(self, pause: float, plans: str) -> Connection:
        try:
            connection = psycopg.connect(
                "",
                autocommit=True,  # transactions begin and end explicitly
                cursor_factory=psycopg.RawCursor[Row],
                **{**_CONNECT_OPTIONS, **self._parameters},  # type: ignore[arg-type]
            )
        except psycopg.Error as error:
            raise translated(error) from error
        try:
            # One type for all numbers, so that a statement is prepared once and not for each size.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            connection.adapters.register_dumper(Array, _ArrayDumper)
            waits = (min(_LOCK_TIMEOUT, self._patience), pause)
            limits = (f"{wait * 1000:.0f}ms" for wait in waits)
            session = (_quoted(self._schema), *limits, plans)
            connection.execute(_SET_ALL, session)
            return connection
        except psycopg.Error as error:
            connection.close()
            raise translated(error) from error

    def _reader(self) -> Connection:
        return self._pool.take() or self._new_reader()

    def _new_reader(self) -> Connection:
        return self._connect(_READERS_PAUSE, "auto")

    def _replace(self, broken: Connection) -> Connection:
        """Open a connection in place of one that broke; the idle ones broke with it."""
        broken.close()
        self._pool.clear()
        return self._new_reader()

    def _release(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            if _status(connection) is TransactionStatus.INTRANS:
                connection.execute("COMMIT", prepare=False)
        is_usable = _status(connection) is TransactionStatus.IDLE
        self._pool.give_back(connection, is_usable=is_usable)

    # Write units

    def _writing_connection(self) -> Connection:
        if self._writer is None or self._writer.closed:
            writer = self._writer = self._connect(self._pause, "force_generic_plan")
            try:
                self._pool.refuse_if_closed()  # meanwhile, before the writer was there to close
            except UnavailableError:
                writer.close()
                raise
            return writer
        return self._writer

    def _begin(self) -> tuple[Connection, Epoch, CatalogClock]:
        """Begin a write transaction and lock the clock's row."""
        has_reconnected = False

        def begin() -> tuple[Connection, Epoch, CatalogClock]:
            nonlocal has_reconnected
            while True:
                connection = self._writing_connection()
                try:
                    cursor = connection.execute(_LOCK, prepare=False)
                    cursor.nextset()
                    rows = cursor.fetchall()
                    if not rows:
                        self._roll_back(connection)
                        raise no_clock()
                    [[sequence, changes, clock_ms]] = rows
                    if sequence < self._committed:
                        self._roll_back(connection)
                        self._refuse_if_older(sequence)
                    return connection, Epoch(sequence, changes), CatalogClock(sequence, clock_ms)
                except psycopg.Error:
                    if not connection.closed or has_reconnected:
                        self._roll_back(connection)
                        raise
                    has_reconnected = True  # it broke while it was idle

        return self._retry(begin)

    def _retry(self, work: Callable[[], Result]) -> Result:
        """Repeat work that a lock timeout or a deadlock rolled back, until patience runs out."""
        deadline = self._clock.monotonic() + self._patience
        while True:
            try:
                return work()
            except _RETRYABLE as error:
                if self._clock.monotonic() >= deadline:
                    raise UnavailableError(
                        f"Other writers locked the catalog's clock for {self._patience:g} s: "
                        f"{first_line(error)}."
                    ) from error
            except psycopg.Error as error:
                raise translated(error) from error

    def _commit(self, connection: Connection) -> None:
        try:
            with _committing(connection):
                result = connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            self._roll_back(connection)
            raise translated(error) from error
        if result.statusmessage != "COMMIT":  # ROLLBACK: a statement before it had failed
            raise UnavailableError("PostgreSQL rolled back the whole unit of work.")

    def _roll_back(self, connection: Connection, how: str = "ROLLBACK") -> None:
        try:
            if not connection.closed:
                connection.execute(how.encode(), prepare=False)
        except psycopg.Error:
            connection.close()
        if _status(connection) is not TransactionStatus.IDLE:
            connection.close()

    # The schema

    def _check_server(self, connection: Connection) -> None:
        """Check the server's encoding; warn if its settings risk losing commits."""
        try:
            self._server = str(connection.info.parameter_status("server_version")).split()[0]
            [[encoding, fsync, pages]] = connection.execute(
                "SELECT current_setting('server_encoding'), current_setting('fsync'), "
                "current_setting('full_page_writes')"
            ).fetchall()
        except psycopg.Error as error:
            raise translated(error) from error
        if encoding != "UTF8":
            raise RefusedError(
                f"The database's encoding is {encoding}, which cannot store every name.",
                remedy="Create a database with ENCODING 'UTF8'.",
            )
        if fsync != "on" or pages != "on":
            _log.warning(
                "PostgreSQL runs with fsync=%s and full_page_writes=%s: "
                "acknowledged commits may not survive a crash of its machine",
                fsync,
                pages,
            )

    def _migrate(self, connection: Connection) -> None:
        """Update the schema to the newest version in one transaction."""
        scripts = migrations.scripts("postgres")
        newest = self._version = max(scripts)

        def migrate() -> None:
            connection.execute(_WRITE, prepare=False)
            try:
                # If two processes start at once, one migrates and the other finds it done.
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || $1, 0))",
                    (self._schema,),
                )
                version = self._schema_version(connection)
                if version > newest:
                    raise RefusedError(
                        f"The schema {self._schema} has version {version}; this Headgate supports "
                        f"up to {newest}.",
                        remedy="Use a newer Headgate.",
                    )
                connection.execute(
                    sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema))
                )
                for number in sorted(scripts):
                    if number > version:
                        connection.execute(scripts[number].encode())
                connection.execute("UPDATE schema_version SET version = $1", (newest,))
                fail_point("store.migrate_before_commit")
            except BaseException:
                self._roll_back(connection)
                raise
            connection.execute("COMMIT", prepare=False)

        def migrate_if_old() -> None:
            if self._schema_version(connection) != newest:
                migrate()

        self._retry(migrate_if_old)

    def _schema_version(self, connection: Connection) -> int:
        """Return the version, 0 if there is no schema; raise if it is another program's."""
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
                f"The schema {self._schema} of this database belongs to another program.",
                remedy="Name another database, or another schema.",
            )
        rows = connection.execute("SELECT version FROM schema_version").fetchall()
        if not rows:
            raise DamagedError(
                f"The schema {self._schema} of this database has no version: it may be half "
                "restored.",
                remedy=RESTORE,
            )
        return int(rows[0][0])


class _ArrayDumper(Dumper):
    """Passes on arrays that are in binary format already."""

    format = Format.BINARY

    def __init__(self, cls: type[Array], context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = cls.oid

    def dump(self, obj: bytes) -> bytes:
        return obj


def _parsed(dsn: str) -> dict[str, object]:
    """Parse an address.

    Special characters that are not escaped could make the parser take a part of the password for
    a host or a port, and the library's errors would then show it.
    """
    try:
        parsed: dict[str, object] = dict(psycopg.conninfo.conninfo_to_dict(dsn))
        if _ADDRESS.fullmatch(dsn) and _PORTS.fullmatch(str(parsed.get("port", ""))):
            return parsed
    except psycopg.Error:
        pass  # its text repeats the address
    raise InvalidArgumentError(
        "The address of the PostgreSQL database is not valid.",
        remedy="Write postgresql://USER@HOST:PORT/DATABASE, and special characters of the user and "
        "the password as %XX: @ is %40, / is %2F.",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _status(connection: Connection) -> TransactionStatus:
    return connection.info.transaction_status


@contextmanager
def _committing(connection: Connection) -> Iterator[None]:
    """Raise `InDoubtError` if a statement that commits may have been applied in spite of an error.

    The connection is closed unless it can be used further.
    """
    warnings: list[str] = []

    def collect(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(str(notice.message_primary))

    connection.add_notice_handler(collect)
    try:
        yield
    except psycopg.Error as error:
        if _is_in_doubt(connection, error):
            connection.close()
            raise InDoubtError(first_line(error), is_store_usable=True) from error
        raise
    except BaseException:
        connection.close()
        raise
    finally:
        connection.remove_notice_handler(collect)
    if warnings:  # committed here, but perhaps not on a synchronous standby
        raise InDoubtError("; ".join(warnings), is_store_usable=True)


def _is_in_doubt(connection: Connection, error: psycopg.Error) -> bool:
    """Return whether what a failed statement was to commit may have been applied."""
    if connection.closed or error.sqlstate is None:
        return True
    # The connection or the server is going down, with the statement under way.
    return error.sqlstate.startswith(("08", "57P", "40003"))


def database_id(dsn: str) -> str:
    """Return what distinguishes a database from one that is created in its place."""
    parameters = {**_CONNECT_OPTIONS, **_parsed(dsn)}
    query = "SELECT oid FROM pg_database WHERE datname = current_database()"
    with translating(), psycopg.connect("", **parameters) as connection:  # type: ignore[arg-type]
        [[oid]] = connection.execute(query).fetchall()
    return str(oid)
