"""The SQLite store, the embedded default: one file, safe and fair for several processes.

Readers see one instant and never wait (WAL). Writers take turns: SQLite's own busy handler
starves some of them, so a writer polls for the lock at short, even intervals and releases it
after each unit. A unit is synced before it is acknowledged (`synchronous=FULL`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from headgate.catalog.stores import migrations
from headgate.catalog.stores.pool import Pool
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import Batch, Epoch, InDoubtError
from headgate.catalog.stores.sqlite_file import DatabaseFiles, make_private
from headgate.catalog.stores.sqlite_units import SQLiteReadUnit, SQLiteWriteUnit, translated
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import Clock
from headgate.errors import (
    AlreadyExistsError,
    DamagedError,
    HeadgateError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.protocol.actions import Sequence

_POLL_S: Final = 0.0005  # between two attempts to take the write lock
_PATIENCE: Final = 30.0  # seconds until a writer gives up waiting for the lock
_MAX_PROBLEMS: Final = 20  # that an integrity check reports before it stops


class SQLiteStore:
    """A catalog's store in one SQLite file."""

    def __init__(
        self, path: str, clock: Clock, *, vfs: str | None = None, patience: float = _PATIENCE
    ) -> None:
        self._files = DatabaseFiles(path)
        self._path = self._files.path
        self.is_read_only = self._files.is_read_only
        self._vfs = vfs
        self._clock = clock
        self._patience = patience
        self._pool = Pool[apsw.Connection](sys.maxsize)
        self._turn = threading.Lock()  # to write
        self._committed = Sequence(0)  # the newest sequence that this process wrote
        with self._translated():
            self._writer = self._open(creates=not self.is_read_only)
        try:
            with self._translated():
                # A process may have died between writing its commit and syncing it. That commit
                # is visible here, so it is made durable before anything is read.
                if not self.is_read_only:
                    self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._writer.set_busy_timeout(0)  # `_begin` polls instead
            self._migrate()
            self._files.remember()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[ReadUnit]:
        with self._reading() as connection:
            connection.execute("BEGIN")
            yield SQLiteReadUnit(connection)

    @contextmanager
    def read_latest(self) -> Iterator[ReadUnit]:
        with self._reading() as connection:
            yield SQLiteReadUnit(connection)

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._translated():
            connection = self._reader()
            try:
                self._check_files()
                yield connection
            finally:
                self._release(connection)

    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        with self._writing() as unit:
            yield unit

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        if not any(batch[:-1]):
            return expected
        with self._writing() as unit:
            if unit.epoch() != expected or (batch.undecided and unit.decided(batch.undecided)):
                return None  # a COMMIT after nothing was written writes nothing, too
            unit.write_batch(batch)
            if unit.sequence is not None:
                return Epoch(unit.sequence, expected.changes)
            return unit.epoch()

    @contextmanager
    def _writing(self) -> Iterator[SQLiteWriteUnit]:
        with self._turn, self._translated():
            self._pool.refuse_if_closed()
            self._refuse_if_read_only()
            self._begin()
            try:
                self._check_files()
                unit = SQLiteWriteUnit(self._writer)
                yield unit
                unit.finish()
                if unit.damage is not None:
                    raise self._files.record_damage(unit.damage)
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            self._commit()
            try:
                self._check_files()
            except HeadgateError as error:  # the commit may be in a file that was deleted
                raise InDoubtError(error.message, is_store_usable=True) from error
            self._committed = unit.sequence or self._committed

    def check_integrity(self) -> list[str]:
        # On a connection of its own, which has no page in memory. Also checks that no commit of
        # this process is missing, as when an older copy was written over the file.
        self._pool.refuse_if_closed()
        try:
            self._files.check()
            return self._find_problems()
        except DamagedError as error:
            return [error.message]

    def _find_problems(self) -> list[str]:
        committed = self._committed
        with self._translated():
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(10_000)
                connection.execute("BEGIN")
                problems = _problems(connection)
                if not problems:
                    newest = SQLiteReadUnit(connection).clock().sequence
                    if newest < committed:
                        problems = [f"its last sequence is {newest}, but {committed} was committed"]
            finally:
                connection.close()
        if problems:
            self._files.record_damage(problems[0])
        return problems

    def _check_files(self) -> None:
        if not self._files.check() and (problems := self._find_problems()):
            raise self._files.record_damage(problems[0])

    def describe(self) -> str:
        return f"SQLite {apsw.sqlite_lib_version()} at {self._path}, schema {self._schema}"

    def local_file(self) -> Path | None:
        return Path(self._path)

    def backup(self, target: Path) -> None:
        if target.exists():
            raise AlreadyExistsError(f"{target} already exists.", remedy="Name a new file.")
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
        try:
            unfinished.touch(0o600)
            with self._reading() as source:
                self._copy(source, unfinished)
            _sync(unfinished)
            unfinished.rename(target)
            _sync(target.parent)
        except OSError as error:
            raise UnavailableError(
                f"{target} cannot be written: {error}.", remedy="Name a file that can be written."
            ) from error
        finally:
            unfinished.unlink(missing_ok=True)

    def _copy(self, source: apsw.Connection, target: Path) -> None:
        copy = apsw.Connection(str(target))
        try:
            # In one step, which is one read transaction: with several, each write by another
            # process would restart the copy.
            with copy.backup("main", source, "main") as copying:
                copying.step()
            # A copy of a damaged database must not pass for a backup.
            if problems := _problems(copy):
                raise self._files.record_damage(problems[0])
        finally:
            copy.close()

    def close(self) -> None:
        self._pool.close()
        if self._pool.is_of_this_process:
            self._writer.close()

    def _open(self, *, creates: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        if creates:
            flags |= apsw.SQLITE_OPEN_CREATE
            if self._vfs is None:
                make_private(self._path)
        connection = self._connect(flags)
        try:
            connection.set_busy_timeout(10_000)  # two processes may create the file at once
            self._refuse_if_foreign(connection)
            if not self.is_read_only:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -16000")
            # Keep plans: otherwise SQLite plans again for every value, to look it up in
            # statistics that are never gathered here, and planning takes longer than the query.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, flags: int) -> apsw.Connection:
        """Open the database with these flags, or read-only if it cannot be written."""
        if not self.is_read_only:
            return apsw.Connection(self._path, flags=flags, vfs=self._vfs)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(self._files.read_only_uri(), flags=flags, vfs=self._vfs)

    def _reader(self) -> apsw.Connection:
        connection = self._pool.take()
        if connection is not None:
            return connection
        self._files.check()  # a new connection opens whatever file has the name now
        return self._open()

    def _release(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")
        self._pool.give_back(connection)

    def _refuse_if_foreign(self, connection: apsw.Connection) -> None:
        names = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master")}
        if names and "names_current" not in names:
            raise RefusedError(
                f"{self._path} is the database of another program.",
                remedy="Name a directory, or a file that does not exist yet.",
            )

    def _begin(self) -> None:
        """Take the write lock, polling at even intervals so that no process starves."""
        deadline: float | None = None
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except apsw.BusyError:
                now = self._clock.monotonic()
                deadline = now + self._patience if deadline is None else deadline
                if now > deadline:
                    raise UnavailableError(
                        f"Other processes locked {self._path} for {self._patience:g} s.",
                        remedy="Try again; if this persists, find the process that locks it.",
                    ) from None
                self._clock.sleep(_POLL_S)

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except apsw.Error as error:
            with suppress(apsw.Error):
                self._writer.execute("ROLLBACK")
            if isinstance(error, apsw.FullError):
                raise  # nothing was written, and the rollback undid the unit
            # After a failed sync, what reached the disk is unknown.
            raise InDoubtError(str(error)) from error

    def _refuse_if_read_only(self) -> None:
        if self.is_read_only:
            raise PermissionDeniedError(
                f"The catalog's database {self._path} is on read-only storage.",
                remedy="Make the lake's directory writable, or copy the lake to one that is.",
            )

    def _migrate(self) -> None:
        """Update the schema to the newest version in one transaction."""
        scripts = migrations.scripts("sqlite")
        newest = self._schema = max(scripts)
        with self._turn, self._translated():
            if self._schema_version() == newest:
                return
            self._refuse_if_read_only()
            self._begin()
            try:
                version = self._schema_version()
                if version > newest:
                    raise RefusedError(
                        f"{self._path} has schema {version}; this Headgate supports up to "
                        f"{newest}.",
                        remedy="Use a newer Headgate.",
                    )
                for number in sorted(scripts):
                    if number > version:
                        self._writer.execute(scripts[number])
                self._writer.execute(f"PRAGMA user_version = {newest}")
                fail_point("store.migrate_before_commit")
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of SQLite; after one about damage, the store refuses all use."""
        try:
            yield
        except apsw.Error as error:
            translation = translated(error)
            if isinstance(translation, DamagedError):
                raise self._files.record_damage(str(error)) from error
            if translation is not None:
                raise translation from error
            raise

    def _schema_version(self) -> int:
        [[version]] = self._writer.execute("PRAGMA user_version")
        return int(str(version))


def _problems(connection: apsw.Connection) -> list[str]:
    check = f"PRAGMA integrity_check({_MAX_PROBLEMS})"
    results = [str(row[0]) for row in connection.execute(check)]
    return [] if results == ["ok"] else results


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
