"""The SQLite store: the contract, and its own files and locks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from headgate import failpoints
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import Batch, CatalogClock, InDoubtError, StoreConstraintError
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.stores.sqlite_units import SQLiteReadUnit
from headgate.clock import SystemClock
from headgate.errors import (
    AlreadyExistsError,
    DamagedError,
    HeadgateError,
    InvalidArgumentError,
    RefusedError,
    Retry,
    UnavailableError,
)
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.table_states import TableKind
from tests.catalog.store_contract import StoreContract
from tests.catalog.store_contract.batches import (
    epoch,
    prepared,
    ratifying,
    rejection,
    versions,
)
from tests.catalog.store_contract.rows import (
    commit_row,
    found,
    insert,
    insert_commits,
    table_id,
    table_row,
)
from tests.kit import req, shows
from tests.kit.builders import ManualClock


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[Callable[[str], CatalogStore]]:
        opened: list[SQLiteStore] = []

        def open_store(name: str) -> CatalogStore:
            opened.append(SQLiteStore(str(tmp_path / f"{name}.db"), SystemClock()))
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headgate.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(str(path), SystemClock())
    yield made
    made.close()


def pragma(connection: apsw.Connection, name: str) -> object:
    [[value]] = connection.execute(f"PRAGMA {name}")
    return value


def connection_of(unit: ReadUnit) -> apsw.Connection:
    assert isinstance(unit, SQLiteReadUnit)
    return unit._connection


@req("CM-12")
def test_every_connection_uses_wal_and_full_sync(store: SQLiteStore) -> None:
    ready = threading.Barrier(4)
    connections = {store._writer}

    def read(_: int) -> None:
        with store.read() as unit:
            connections.add(connection_of(unit))
            ready.wait(10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    insert(store, 1)
    assert len(connections) == 5  # the writer's, and as many as ever read at once
    assert {store._writer, *store._pool._idle} == connections
    for connection in connections:
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2  # FULL
        assert pragma(connection, "foreign_keys") == 1


def test_ended_threads_leave_no_connections(store: SQLiteStore) -> None:
    insert(store, 1)
    for _ in range(20):
        thread = threading.Thread(target=found, args=(store,))
        thread.start()
        thread.join()
    assert len(store._pool._idle) == 1


@pytest.mark.slow
def test_many_threads_read_while_one_writes_and_each_sees_whole_units(store: SQLiteStore) -> None:
    [row] = insert(store, 1)
    is_done = threading.Event()

    def read() -> int:
        reads = 0
        while not is_done.is_set():
            with store.read() as unit:
                table = unit.table(row.id)
                assert table is not None
                commits = unit.commits(row.key, Version(0), Version(10**6), content=False)
                assert [commit.version for commit in commits] == list(range(table.head + 1))
            reads += 1
        return reads

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read) for _ in range(4)]
        try:
            for version in range(100):
                row = insert_commits(store, row, commit_row(version))
        finally:
            is_done.set()
        assert all(one.result() for one in reading)


def test_opening_again_migrates_nothing_and_keeps_all_rows(store: SQLiteStore, path: Path) -> None:
    insert(store, 1)
    store.close()
    before = path.read_bytes()
    again = SQLiteStore(str(path), SystemClock())
    assert found(again).id == table_id(1)
    again.close()
    assert path.read_bytes() == before


@shows("FS8")
def test_stores_opened_at_once_on_a_new_file_create_one_schema(path: Path) -> None:
    start = threading.Barrier(8)

    def open_store(_: int) -> SQLiteStore:
        start.wait(10)
        return SQLiteStore(str(path), SystemClock())

    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_store, range(8)))
    insert(stores[0], 1)
    for one in stores:
        assert found(one).id == table_id(1)
        one.close()


def test_a_newer_schema_is_refused_and_not_changed(store: SQLiteStore, path: Path) -> None:
    insert(store, 1)
    store._writer.execute("PRAGMA user_version = 9999")
    store.close()
    with pytest.raises(RefusedError, match=r"schema 9999.*Use a newer Headgate") as refused:
        SQLiteStore(str(path), SystemClock())
    assert str(path) in refused.value.message
    connection = apsw.Connection(str(path))
    assert pragma(connection, "user_version") == 9999
    connection.close()


@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_another_program_is_refused_and_not_changed(
    path: Path, version: int
) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"CREATE TABLE songs (title); PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RefusedError, match="another program") as refused:
        SQLiteStore(str(path), SystemClock())
    assert "Name" in refused.value.remedy
    assert path.read_bytes() == before


SCRIPTS = resources.files("headgate.catalog.stores.migrations") / "sqlite"


@pytest.fixture
def first_schema(path: Path) -> Path:
    """A database as the first release wrote it: a table renamed once, with two commits."""
    table = table_id(1)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute((SCRIPTS / "0001.sql").read_text("utf-8"))
    connection.execute(
        "INSERT INTO tables VALUES (NULL, ?, 'active', 'file:///x', 1, 5, 0, 0, x'01', x'02', 0, "
        "x'03', NULL, 1, 2, NULL, NULL, 0, 7, NULL, NULL)",
        (table,),
    )
    connection.execute(
        "INSERT INTO sequences VALUES (1, 10, 'txn-0'), (2, 11, 'txn-1'), (3, 12, NULL)"
    )
    connection.execute("UPDATE clock SET sequence = 3, clock_ms = 12")
    for version in (0, 1):
        row = commit_row(version)
        connection.execute(
            f"INSERT INTO commits VALUES (1{', ?' * 15})", (*row[:4], row.way.value, *row[5:])
        )
    names = "INSERT INTO names VALUES ('main', 'default', ?, 'main', 'default', ?, ?, ?, ?)"
    connection.execute(names, ("t", "t", table, 1, 3))
    connection.execute(names, ("u", "U", table, 3, None))
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    return path


@shows("FS8")
def test_a_database_of_the_first_release_is_migrated_with_all_its_rows(
    first_schema: Path,
) -> None:
    store = SQLiteStore(str(first_schema), SystemClock())
    expected = table_row(
        1,
        key=1,
        location="file:///x",
        head=Version(1),
        timestamp_ms=5,
        published=Version(0),
        protocol=b"\1",
        metadata=b"\2",
        metadata_version=Version(0),
        domains=b"\3",
        num_files=1,
        size_bytes=2,
        created_ms=7,
    )
    assert found(store) == expected
    assert expected.kind is TableKind.MANAGED
    with store.read() as unit:
        assert unit.commits(1, Version(0), Version(9), content=True, summary=True) == [
            commit_row(0),
            commit_row(1),
        ]
        events = unit.events(Sequence(0), 9)
        assert unit.clock() == CatalogClock(Sequence(3), 12)
        assert unit.epoch() == (3, 0)
        assert unit.clock_at(11) == CatalogClock(Sequence(2), 11)
        assert unit.unpublished_tables() == [expected]
    assert [(event.txn_id, len(event.commits)) for event in events] == [
        (TxnId("txn-0"), 1),
        (TxnId("txn-1"), 1),
        (None, 0),
    ]
    assert [(len(event.names_assigned), len(event.names_released)) for event in events] == [
        (1, 0),
        (0, 0),
        (1, 1),
    ]
    with store.write() as unit:
        unit.update_table(expected._replace(kind=TableKind.EXTERNAL))
    assert found(store).kind is TableKind.EXTERNAL
    assert store.describe().endswith(f"at {first_schema}, schema 5")
    store.close()


@shows("FS8")
def test_an_interrupted_migration_keeps_the_old_schema_and_the_next_one_completes(
    first_schema: Path,
) -> None:
    failpoints.arm("store.migrate_before_commit:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            SQLiteStore(str(first_schema), SystemClock())
    finally:
        failpoints.arm("")
    connection = apsw.Connection(str(first_schema))
    assert pragma(connection, "user_version") == 1
    assert list(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tokens'")) == []
    connection.close()
    store = SQLiteStore(str(first_schema), SystemClock())
    assert found(store).head == 1
    store.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    folder = SCRIPTS
    numbers = sorted(int(script.name[:4]) for script in folder.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_not_a_database_is_refused_with_a_remedy(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"damaged.*Restore it from a backup") as damaged:
        SQLiteStore(str(path), SystemClock())
    assert damaged.value.retry is Retry.NEVER
    assert path.read_bytes() == content


def test_damage_within_the_file_is_reported_when_it_is_read(store: SQLiteStore, path: Path) -> None:
    [row] = insert(store, 1)
    insert_commits(store, row, *(commit_row(v, content=b"x" * 3000) for v in range(200)))
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * (size - 4096 * 3))

    def read_all() -> None:
        with SQLiteStore(str(path), SystemClock()).read() as unit:
            unit.commits(row.key, Version(0), Version(10**6), content=True)

    with pytest.raises(DamagedError, match=r"damaged.*Restore it from a backup"):
        read_all()


@pytest.mark.parametrize("place", ["missing/headgate.db", "."])
def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path, place: str) -> None:
    with pytest.raises(UnavailableError, match="cannot be read or written"):
        SQLiteStore(str(tmp_path / place), SystemClock())


class ReadOnlyDisk(apsw.VFS):
    """A disk that opens all files read-only, as in a folder without write permission."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")

    def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        requested = flags[0]
        writing = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if requested & apsw.SQLITE_OPEN_MAIN_DB:
            flags[0] = requested & ~writing | apsw.SQLITE_OPEN_READONLY
        elif requested & apsw.SQLITE_OPEN_CREATE:
            raise apsw.CantOpenError
        return apsw.VFSFile("", name, flags)


def test_a_file_that_becomes_read_only_is_unavailable_with_the_reason(path: Path) -> None:
    SQLiteStore(str(path), SystemClock()).close()
    disk = ReadOnlyDisk("read-only")
    try:
        with pytest.raises(UnavailableError, match="cannot be read or written"):
            insert(SQLiteStore(str(path), SystemClock(), vfs="read-only"), 1)
    finally:
        disk.unregister()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UnavailableError, match="cannot be read or written"):
            SQLiteStore(str(tmp_path / "headgate.db"), SystemClock())
    finally:
        tmp_path.chmod(0o700)


def test_a_closed_store_refuses_use_and_may_be_closed_again(store: SQLiteStore) -> None:
    insert(store, 1)
    found(store)
    store.close()
    with pytest.raises(UnavailableError, match=r"is closed.*Connect again"):
        found(store)
    with pytest.raises(UnavailableError, match=r"is closed.*Connect again"):
        insert(store, 2)
    store.close()


def test_closing_a_store_lets_an_active_reader_finish(store: SQLiteStore) -> None:
    [row] = insert(store, 1)
    with store.read() as unit:
        store.close()
        assert unit.table(row.id) == row
    with pytest.raises(UnavailableError, match="is closed"):
        found(store)
    for connection in (connection_of(unit), store._writer):
        with pytest.raises(apsw.ConnectionClosedError):
            connection.execute("SELECT 1")
    assert store._pool._idle == []


@shows("FS4")
def test_a_writer_gives_up_when_the_file_stays_locked(store: SQLiteStore, path: Path) -> None:
    clock = ManualClock()
    other = SQLiteStore(str(path), clock)
    with store.write() as unit:
        unit.insert_table(table_row())
        with pytest.raises(UnavailableError, match="Other processes locked"), other.write():
            pass
        assert 30 <= clock.waited_s < 31
        with other.read() as reading:  # readers are not held up
            assert reading.table(table_id(1)) is None
    insert(other, 2)
    other.close()


def test_a_writer_polls_for_the_lock_at_short_even_intervals(
    store: SQLiteStore, path: Path
) -> None:
    class Waiting(ManualClock):
        def __init__(self) -> None:
            super().__init__()
            self.steps: list[float] = []

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.steps.append(seconds)
            if len(self.steps) == 5:
                holding.__exit__(None, None, None)

    clock = Waiting()
    other = SQLiteStore(str(path), clock)
    holding = store.write()
    holding.__enter__()
    insert(other, 1)
    assert clock.steps == [0.0005] * 5
    other.close()


@shows("FC11")
def test_a_full_disk_rolls_back_the_unit_and_the_next_one_works(store: SQLiteStore) -> None:
    [row] = insert(store, 1)
    pages = pragma(store._writer, "page_count")
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    large = commit_row(1, content=b"x" * 1_000_000)
    with pytest.raises(UnavailableError, match=r"disk is full.*Free space"):  # noqa: SIM117, PT012
        with store.write() as unit:
            unit.insert_commit(row.key, commit_row(0))
            with pytest.raises(HeadgateError, match="disk is full"), unit.savepoint():
                unit.insert_commit(row.key, large)
            # SQLite rolled back the whole unit, so it accepts no further statement.
            with pytest.raises(UnavailableError), unit.savepoint():
                unit.insert_commit(row.key, commit_row(2))
    store._writer.execute("PRAGMA max_page_count = 1000000")
    with store.read() as unit:
        assert unit.commits(row.key, Version(0), Version(9), content=False) == []
    insert_commits(store, row, commit_row(0), large)


@shows("FC11")
def test_a_full_disk_refuses_a_batch_and_the_next_one_is_written(store: SQLiteStore) -> None:
    row = prepared(store)
    before = epoch(store)
    pages = pragma(store._writer, "page_count")
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    batch = ratifying(row, 2, 3, content=b"x" * 1_000_000)
    with pytest.raises(UnavailableError, match=r"disk is full.*Free space"):
        store.write_batch(before, batch)
    store._writer.execute("PRAGMA max_page_count = 1000000")
    assert epoch(store) == before
    assert store.write_batch(before, batch) == (3, before.changes)
    assert versions(store, row) == [0, 1, 2]


class FailingDisk(apsw.VFS):
    """A disk whose syncs fail while `is_failing`."""

    is_failing = False

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")

    def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: object, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        if self._disk.is_failing and self.is_log:
            raise apsw.IOError("EIO")
        super().xSync(flags)


@pytest.mark.slow
def test_a_backup_is_consistent_while_another_process_writes(
    store: SQLiteStore, path: Path, tmp_path: Path
) -> None:
    [row] = insert(store, 1)
    other, is_done = SQLiteStore(str(path), SystemClock()), threading.Event()

    def write() -> int:
        version, now = 0, row
        while not is_done.is_set():
            now = insert_commits(other, now, commit_row(version, content=b"x" * 10_000))
            version += 1
        return version

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        targets = [tmp_path / f"{number}.db" for number in range(3)]
        try:
            for target in targets:
                store.backup(target)
        finally:
            is_done.set()
        assert writing.result() > 0
    other.close()
    for target in targets:
        copy = SQLiteStore(str(target), SystemClock())
        table = found(copy)
        with copy.read() as unit:
            kept = unit.commits(row.key, Version(0), Version(10**6), content=True)
        assert [commit.version for commit in kept] == list(range(table.head + 1))
        insert(copy, 2)  # a lake's database like any other
        copy.close()
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


def test_a_failed_backup_replaces_nothing_and_leaves_no_file(
    store: SQLiteStore, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(AlreadyExistsError, match=r"already exists.*Name a new file"):
        store.backup(taken)
    assert taken.read_text() == "mine"
    with pytest.raises(UnavailableError, match=r"cannot be written.*Name a file"):
        store.backup(tmp_path / "missing" / "copy.db")
    store.close()
    with pytest.raises(UnavailableError, match="closed"):
        store.backup(tmp_path / "copy.db")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["headgate.db", "taken"]


def test_events_and_counts_do_not_scan_all_commits(
    store: SQLiteStore,
) -> None:
    asked: list[str] = []

    def explain(cursor: apsw.Cursor, sql: str, values: tuple[int, ...] | None) -> bool:
        if sql.startswith("SELECT"):
            plan = cursor.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values or ())
            asked.extend(str(step[3]) for step in plan)
        return True

    with store.read() as unit:
        connection = connection_of(unit)
        unit.events(Sequence(0), 1)
    with store.write() as unit:
        unit.advance_clock(CatalogClock(Sequence(1), 1), None)
    with store.read() as unit:
        assert connection is connection_of(unit)
        connection.exec_trace = explain
        try:
            assert len(unit.events(Sequence(0), 9)) == 1
            events, asked[:] = list(asked), []
            unit.counts()
        finally:
            connection.exec_trace = None
    assert events
    assert [step for step in events if step.startswith("SCAN")] == []
    assert [step for step in asked if step.startswith("SCAN commits")] == []
    assert any(step.startswith("SEARCH commits") for step in asked)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@shows("FC12")
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_failed_sync_leaves_the_commit_in_doubt(path: Path, is_batch: bool) -> None:
    disk = FailingDisk("failing")
    try:
        store = SQLiteStore(str(path), SystemClock(), vfs="failing")
        row = prepared(store)
        before = epoch(store)
        disk.is_failing = True
        with pytest.raises(InDoubtError) as doubt:  # noqa: PT012
            if is_batch:
                store.write_batch(before, ratifying(row, 2, 3))
            else:
                insert(store, 2)
        assert not doubt.value.is_store_usable
        disk.is_failing = False
        store.close()
    finally:
        disk.unregister()


def test_a_commit_writes_no_more_pages_than_it_has_rows_and_unique_keys(
    store: SQLiteStore,
) -> None:
    [row] = insert(store, 1)
    row = insert_commits(store, row, commit_row(0, 1))
    store._writer.wal_checkpoint()  # the WAL starts over from here
    batch = Batch(
        clocks=[(CatalogClock(Sequence(2), 2), TxnId("txn-1"))],
        commits=[(row.key, commit_row(1, 2))],
        tables=[row._replace(head=Version(1))],
        undecided=[TxnId("txn-1")],
    )
    assert store.write_batch(epoch(store), batch) is not None
    pages, _ = store._writer.wal_checkpoint()
    assert pages == 5  # of sequences, tables, and commits with their two keys


def test_a_batch_is_written_with_few_statements(store: SQLiteStore) -> None:
    rows = insert(store, *range(1, 17))
    commits = [commit_row(n // 16, n + 1, f"txn {n}") for n in range(64)]
    batch = Batch(
        clocks=[(CatalogClock(commit.sequence, 5), commit.txn_id) for commit in commits],
        commits=[(rows[n % 16].key, commit) for n, commit in enumerate(commits)],
        tables=[row._replace(head=Version(3)) for row in rows],
        rejections=[rejection(f"no {n}") for n in range(64)],
        undecided=[commit.txn_id for commit in commits],
    )
    before = epoch(store)
    asked: list[str] = []
    store._writer.exec_trace = lambda _, sql, __: not asked.append(sql)  # type: ignore[func-returns-value]
    assert store.write_batch(before, batch) == (64, before.changes)
    assert [sql.split()[0] for sql in asked] == [
        *("BEGIN", "SELECT", "SELECT", "INSERT", "WITH", "INSERT", "INSERT", "COMMIT")
    ]
    asked.clear()
    assert store.write_batch(before, batch) is None
    assert [sql.split()[0] for sql in asked] == ["BEGIN", "SELECT", "COMMIT"]
    store._writer.exec_trace = None


@shows("FS4")
def test_a_batch_waits_for_the_lock_and_gives_up_when_the_file_stays_locked(
    store: SQLiteStore, path: Path
) -> None:
    row = prepared(store)
    before = epoch(store)
    clock = ManualClock()
    other = SQLiteStore(str(path), clock)
    with store.write(), pytest.raises(UnavailableError, match="Other processes locked"):
        other.write_batch(before, ratifying(row, 2, 3))
    assert 30 <= clock.waited_s < 31
    assert other.write_batch(before, ratifying(row, 2, 3)) == (3, before.changes)
    other.close()
    with pytest.raises(UnavailableError, match="closed"):
        other.write_batch(before, ratifying(row, 3, 4))


@pytest.mark.parametrize("changed", [{"txn": "\ud800"}, {"size": 2**63}])
def test_a_batch_with_a_value_that_sqlite_cannot_store_writes_nothing(
    store: SQLiteStore, changed: dict[str, Any]
) -> None:
    row = prepared(store)
    before = epoch(store)
    batch = ratifying(row, 2, 3, **changed)
    with pytest.raises(InvalidArgumentError, match="cannot store"):
        store.write_batch(before, batch._replace(rejections=[rejection("no")]))
    assert epoch(store) == before
    assert versions(store, row) == [0, 1]


def test_a_batch_that_the_rows_contradict_writes_nothing(store: SQLiteStore, path: Path) -> None:
    [row] = insert(store, 1)
    before = epoch(store)
    intruder = apsw.Connection(str(path))  # by hand, and without a change of the epoch
    values = (row.key, *commit_row(0, txn="y")[:4], "inline", *commit_row(0)[5:])
    intruder.execute(f"INSERT INTO commits VALUES ({', '.join('?' * 16)})", values)
    intruder.close()
    with pytest.raises(UnavailableError, match=r"inconsistent.*nothing was written"):
        store.write_batch(before, ratifying(row, 0, 1)._replace(rejections=[rejection("no")]))
    assert epoch(store) == before
    with store.read() as reading:
        assert reading.rejection(TxnId("no")) is None
        assert reading.transaction_commits(TxnId("txn-0")) == []


# What the next unit sees


def seen_by_next(store: SQLiteStore, number: int = 1) -> tuple[CatalogClock, int, Version]:
    """Return what the next write unit reads of a table."""
    with store.write() as unit:
        row = unit.table(table_id(number))
        assert row is not None
        return unit.clock(), row.timestamp_ms, row.published


@req("CM-11")
@shows("S2")
def test_a_unit_sees_what_another_process_wrote(path: Path, store: SQLiteStore) -> None:
    [row] = insert(store, 1)
    row = insert_commits(store, row, commit_row(0, 1))
    other = SQLiteStore(str(path), SystemClock())
    for version in range(1, 4):
        one, two = (store, other) if version % 2 else (other, store)
        before = seen_by_next(two)
        row = insert_commits(one, row, commit_row(version, version + 1))
        assert seen_by_next(two) == seen_by_next(one) != before
        # The version that it took stays taken.
        with two.write() as unit, pytest.raises(StoreConstraintError), unit.savepoint():
            unit.insert_commit(row.key, commit_row(version, txn="late"))
    other.close()


def test_the_next_unit_sees_nothing_of_one_that_was_rolled_back(store: SQLiteStore) -> None:
    [row] = insert(store, 1)
    before = seen_by_next(store)
    with pytest.raises(ZeroDivisionError), store.write() as unit:  # noqa: PT012
        unit.update_table(row._replace(timestamp_ms=99))
        unit.clock()
        unit.advance_clock(CatalogClock(Sequence(1), 1), TxnId("x"))
        raise ZeroDivisionError
    assert seen_by_next(store) == before


def test_the_next_unit_sees_what_was_published(store: SQLiteStore) -> None:
    [row, _] = insert(store, 1, 2)
    row = insert_commits(store, row, commit_row(0, 1))
    assert seen_by_next(store)[2] == -1
    with store.write() as unit:
        unit.record_published(row.key, Version(0), Version(0), 5)
    assert seen_by_next(store)[2] == 0
