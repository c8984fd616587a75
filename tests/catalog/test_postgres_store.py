"""The PostgreSQL store: the contract, and what is PostgreSQL's own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from headgate import failpoints
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores import postgres, reader
from headgate.catalog.stores import postgres_writer as writing
from headgate.catalog.stores.port import (
    CatalogClock,
    CatalogStore,
    InDoubtError,
    RolledBackError,
    WriteUnit,
)
from headgate.catalog.stores.postgres import PostgresStore
from headgate.clock import SystemClock
from headgate.errors import (
    InvalidArgumentError,
    RefusedError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from tests.catalog.store_contract import (
    StoreContract,
    commit_row,
    found,
    insert,
    insert_commits,
    table_id,
    table_row,
)
from tests.kit import req, shows
from tests.kit.cutting import Cut, CuttingProxy
from tests.kit.postgres import Postgres
from tests.kit.postgres import start as start_postgres

Opened = Callable[..., PostgresStore]
Result = TypeVar("Result")


@pytest.fixture
def schema(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.schema() as name:
        yield name


@pytest.fixture
def open_postgres(postgres_server: Postgres) -> Iterator[Opened]:
    """Opens stores in a schema of this test's own for each name, and closes them."""
    with ExitStack() as opened:
        schemas: dict[str, str] = {}

        def open_postgres(
            name: str = "one", address: str | None = None, **more: float
        ) -> PostgresStore:
            if name not in schemas:
                schemas[name] = opened.enter_context(postgres_server.schema())
            store = PostgresStore(
                address or postgres_server.address(), SystemClock(), schema=schemas[name], **more
            )
            opened.callback(store.close)
            return store

        yield open_postgres


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server beside the others', to be killed."""
    made = start_postgres()
    yield made
    made.close()


@pytest.fixture
def store(open_postgres: Opened) -> PostgresStore:
    return open_postgres()


class TestPostgresStore(StoreContract):
    examples = 15

    @pytest.fixture
    def open_store(self, open_postgres: Opened) -> Callable[[str], CatalogStore]:
        return open_postgres


def end_backends(server: Postgres, *connections: object) -> None:
    """Have the server end connections, as an administrator would."""
    pids = [connection.info.backend_pid for connection in connections]  # type: ignore[attr-defined]
    with server.connect() as admin:
        for pid in pids:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def at_once(count: int, do: Callable[[int], Result]) -> list[Result]:
    start = threading.Barrier(count)

    def wait_and_do(number: int) -> Result:
        start.wait(10)
        return do(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_do, range(count)))


# What the server promises


@req("CM-12")
@pytest.mark.parametrize(
    ("set_to", "used"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply",) * 2]
)
def test_what_is_acknowledged_was_synced_whatever_the_database_is_set_to(
    postgres_server: Postgres, set_to: str, used: str
) -> None:
    address = postgres_server.new_database()
    name = address.rpartition("/")[2]
    with postgres_server.connect() as admin:
        admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = {set_to}".encode())
    store = PostgresStore(address, SystemClock())
    for _ in range(2):
        assert store._writer is not None
        [[told]] = store._writer.execute("SHOW synchronous_commit").fetchall()
        assert told == used
        end_backends(postgres_server, store._writer)
        insert(store, 1 + _)  # by a new connection
    store.close()


def test_a_server_that_does_not_sync_is_warned_of(
    postgres_server: Postgres, open_postgres: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        open_postgres()
    assert caplog.messages == []
    with altered(postgres_server, "fsync", "off"), caplog.at_level(logging.WARNING):
        open_postgres()
    assert "fsync=off" in caplog.text


@contextmanager
def altered(server: Postgres, name: str, value: str) -> Iterator[None]:
    """Set the whole server to something else for a while."""

    def alter(sql: str, is_so: Callable[[str], bool]) -> None:
        with server.connect() as admin:
            admin.execute(sql.encode())
            admin.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with server.connect() as admin:
                [[told]] = admin.execute(f"SHOW {name}".encode()).fetchall()
            if is_so(str(told)):
                return
            time.sleep(0.01)
        pytest.fail(f"{name} did not change")

    alter(f"ALTER SYSTEM SET {name} = '{value}'", lambda told: told == value)
    try:
        yield
    finally:
        alter(f"ALTER SYSTEM RESET {name}", lambda told: told != value)


# The schema


def test_a_database_may_be_shared_with_others(postgres_server: Postgres) -> None:
    address = postgres_server.new_database()
    with postgres_server.connect(address) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
        store = PostgresStore(address, SystemClock())
        insert(store, 1)
        store.close()
        names = {row[0] for row in other.execute("SELECT tablename FROM pg_tables")}
        assert {"songs", "commits"} <= names
        rows = other.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'commits'")
        assert rows.fetchall() == [("headgate",)]


def test_a_schema_that_is_there_and_empty_is_used(postgres_server: Postgres) -> None:
    with postgres_server.connect() as admin:
        admin.execute('CREATE SCHEMA "strange ""name"')
    store = PostgresStore(postgres_server.address(), SystemClock(), schema='strange "name')
    [row] = insert(store, 1)
    with store.read() as unit:
        assert unit.table(row.id) == row
    store.close()


def test_a_schema_of_another_program_is_refused_and_left_as_it_is(
    postgres_server: Postgres, schema: str
) -> None:
    with postgres_server.connect() as admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        admin.execute(f"CREATE TABLE {schema}.songs (title TEXT)".encode())
        with pytest.raises(RefusedError, match=r"another program.*Name another"):
            PostgresStore(postgres_server.address(), SystemClock(), schema=schema)
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        assert tables.fetchall() == [("songs",)]


def test_a_newer_schema_is_refused_and_left_as_it_is(
    store: PostgresStore, open_postgres: Opened
) -> None:
    assert store._writer is not None
    store._writer.execute("UPDATE schema_version SET version = 9999")
    with pytest.raises(RefusedError, match=r"version 9999.*Use a newer Headgate"):
        open_postgres()
    assert store._writer.execute("SELECT version FROM schema_version").fetchall() == [(9999,)]


def test_a_database_that_cannot_hold_every_name_is_refused(postgres_server: Postgres) -> None:
    options = "ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0 LOCALE_PROVIDER 'libc'"
    address = postgres_server.new_database(options)
    with pytest.raises(RefusedError, match=r"SQL_ASCII.*ENCODING 'UTF8'"):
        PostgresStore(address, SystemClock())


def test_migrations_are_numbered_without_a_gap() -> None:
    folder = resources.files("headgate.catalog.stores.migrations") / "postgres"
    numbers = sorted(int(script.name[:4]) for script in folder.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))


@shows("FS8")
def test_stores_opened_at_once_on_a_new_database_make_one_schema(
    postgres_server: Postgres, schema: str
) -> None:
    def open_one(_: int) -> PostgresStore:
        return PostgresStore(postgres_server.address(), SystemClock(), schema=schema)

    stores = at_once(6, open_one)
    insert(stores[0], 1)
    for one in stores:
        assert found(one).id == table_id(1)
        one.close()


@shows("FS8")
def test_a_migration_cut_short_leaves_nothing_and_the_next_one_makes_it_whole(
    postgres_server: Postgres, schema: str
) -> None:
    failpoints.arm("store.migrate_before_commit:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            PostgresStore(postgres_server.address(), SystemClock(), schema=schema)
    finally:
        failpoints.arm("")
    with postgres_server.connect() as admin:
        there = admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,))
        assert there.fetchall() == []
    store = PostgresStore(postgres_server.address(), SystemClock(), schema=schema)
    insert(store, 1)
    store.close()


def test_a_user_without_rights_is_told_so(postgres_server: Postgres) -> None:
    address = postgres_server.new_database()
    with postgres_server.connect() as admin:
        admin.execute("CREATE ROLE stranger LOGIN")
    with pytest.raises(RefusedError, match="permission denied"):
        PostgresStore(address.replace("headgate@", "stranger@"), SystemClock())


# What is said of it


def test_it_says_what_it_is_and_no_secret(postgres_server: Postgres) -> None:
    address = postgres_server.new_database().replace("headgate@", "headgate:s3cret@")
    store = PostgresStore(address, SystemClock())
    with postgres_server.connect() as admin:
        [[version]] = admin.execute("SHOW server_version").fetchall()
    assert store.describe() == f"PostgreSQL {str(version).split()[0]}, schema 2"
    assert "s3cret" not in repr(store)
    store.close()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:s3cret@here:port/x",
        "postgresql://me:s3cret@[::1/x",
        "postgresql://me:s3 cret@127.0.0.1:1/x?nonsense=s3cret",
        "postgresql://me:s3cret@127.0.0.1:1/x",
        "host=127.0.0.1 port=1 password='s3cret",
    ],
)
def test_an_address_that_leads_nowhere_is_refused_without_its_password(address: str) -> None:
    with pytest.raises((InvalidArgumentError, UnavailableError)) as refused:
        PostgresStore(address, SystemClock())
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None or "s3cret" not in str(refused.value.__cause__)


def test_a_backup_is_left_to_postgresql(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedByCatalogError, match="pg_dump"):
        store.backup(tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


# Values that cannot be stored


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800"])
def test_text_that_postgresql_cannot_keep_is_refused_alone(store: PostgresStore, text: str) -> None:
    [row] = insert(store, 1)
    bad = TxnId(text)
    with store.write() as unit:
        unit.prefetch({bad, TxnId("good")}, {TableId(text), row.id})
        for ask in (
            lambda: unit.transaction_commits(bad),
            lambda: unit.rejection(bad),
            lambda: unit.table(TableId(text)),
            lambda: unit.answer(text),
            lambda: unit.overlapping_table(f"file:///{text}"),
            lambda: unit.set_setting("key", text),
            lambda: unit.advance_clock(CatalogClock(Sequence(1), 1), bad),
            lambda: unit.insert_commit(row.key, commit_row(0, txn=text)),
            lambda: unit.update_table(row._replace(diverged=text)),
            lambda: unit.acquire_lease(text, "me", 1, 2),
        ):
            with pytest.raises(InvalidArgumentError, match="cannot store"), unit.savepoint():
                ask()
        assert unit.transaction_commits(TxnId("good")) == []
        unit.insert_commit(row.key, commit_row(0, txn="good"))
    with store.read() as reading:
        assert len(reading.transaction_commits(TxnId("good"))) == 1
        with pytest.raises(InvalidArgumentError, match="cannot store"):
            reading.transaction_commits(bad)
        assert reading.clock() == (0, 0)


def test_a_number_that_postgresql_cannot_keep_is_refused_alone(store: PostgresStore) -> None:
    [row] = insert(store, 1)
    with store.write() as unit:
        for size in (2**63, -(2**63) - 1):
            with pytest.raises(InvalidArgumentError, match="64 bits"), unit.savepoint():
                unit.update_table(row._replace(size_bytes=size))
        unit.update_table(row._replace(size_bytes=2**63 - 1))
    assert found(store).size_bytes == 2**63 - 1


# Waiting for each other


@shows("FS4")
def test_a_writer_that_finds_the_clock_held_for_too_long_is_told_it_is_unavailable(
    store: PostgresStore, open_postgres: Opened
) -> None:
    other = open_postgres(patience=0.3)
    with store.write() as unit:
        unit.insert_table(table_row())
        with pytest.raises(UnavailableError, match="Other writers locked"), other.write():
            pass
        with other.read() as reading:  # readers are not held up
            assert reading.table(table_id(1)) is None
    insert(other, 2)


@shows("FS4")
def test_a_writer_tries_again_when_one_wait_was_too_short(
    store: PostgresStore, open_postgres: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", 0.1)
    other = open_postgres()
    with ThreadPoolExecutor(1) as pool, store.write():
        waiting = pool.submit(insert, other, 2)
        time.sleep(0.5)
        assert not waiting.done()
    assert found(store, 2).id == table_id(2)


@shows("FS4")
def test_a_lock_of_somebody_else_undoes_the_unit_and_the_next_one_works(
    postgres_server: Postgres, open_postgres: Opened
) -> None:
    store = open_postgres(patience=0.3)
    [row] = insert(store, 1)
    with postgres_server.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {store._schema}.commits".encode())
        with pytest.raises(RolledBackError, match="Other writers hold"):
            insert_commits(store, row, commit_row(0))
    assert found(store).head == -1
    insert_commits(store, row, commit_row(0))
    assert found(store).head == 0


@shows("FS4")
def test_a_victim_of_a_deadlock_is_undone_and_can_be_run_again(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    with postgres_server.connect() as other:
        # It looks for a deadlock later than the unit does, so the unit is the victim.
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("BEGIN")
        other.execute(f"LOCK TABLE {store._schema}.commits".encode())
        with ThreadPoolExecutor(1) as pool:

            def wait_for_the_clock() -> None:
                other.execute(f"SELECT * FROM {store._schema}.clock FOR UPDATE".encode())

            with pytest.raises(RolledBackError, match="deadlock"), store.write() as unit:  # noqa: PT012
                waiting = pool.submit(wait_for_the_clock)
                time.sleep(0.3)
                unit.insert_commit(row.key, commit_row(0))
            waiting.result()
        other.execute("ROLLBACK")
    insert_commits(store, row, commit_row(0))


@shows("FS4", "S4")
def test_work_that_was_the_victim_of_a_deadlock_is_done_all_the_same(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    ratifier = Ratifier(store, SystemClock(), Settings())
    tries = 0
    with postgres_server.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '30s'")  # so the unit is the victim
        other.execute("BEGIN")
        other.execute(f"LOCK TABLE {store._schema}.commits".encode())

        def wait_and_let_go() -> None:
            other.execute(f"SELECT * FROM {store._schema}.clock FOR UPDATE".encode())
            other.execute("ROLLBACK")

        def work(unit: WriteUnit) -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                waiting.append(pool.submit(wait_and_let_go))
                time.sleep(0.3)
            unit.insert_commit(row.key, commit_row(0))
            return "done"

        waiting: list[Future[None]] = []
        answer = ratifier.submit("1", work)
        assert answer.result(60) == "done"
        waiting[0].result()
    ratifier.close()
    assert tries == 2
    with store.read() as unit:
        assert len(unit.commits(row.key, Version(0), Version(9), content=False)) == 1


def test_no_more_connections_read_than_were_allowed_and_the_others_wait_for_them(
    postgres_server: Postgres, open_postgres: Opened
) -> None:
    store = open_postgres(readers=2)
    together = threading.Barrier(2)
    most: list[int] = []

    def read(_: int) -> None:
        with store.read() as unit:
            unit.clock()
            together.wait(20)  # they come in pairs, and never in threes
            most.append(len(store._lent))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert set(most) <= {1, 2}
    impatient = open_postgres(readers=1, patience=0.2)
    refused = pytest.raises(UnavailableError, match="All 1 connections")
    with impatient.read(), refused, impatient.read():
        pass
    with impatient.read() as unit:  # what was refused took nothing with it
        unit.clock()


# Connections that break


def test_connections_that_broke_while_nobody_used_them_are_replaced(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    insert(store, 1)
    with store.read() as one, store.read() as two:
        assert one.clock() == two.clock()
    assert len(store._idle) == 2
    end_backends(postgres_server, *store._idle, store._writer)
    assert found(store).id == table_id(1)
    insert(store, 2)
    assert found(store, 2).id == table_id(2)
    assert len(store._idle) == 1


def test_a_reader_whose_connection_breaks_is_told_and_the_next_one_reads(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    insert(store, 1)
    with store.read() as unit:
        unit.clock()
        end_backends(postgres_server, *store._lent)
        with pytest.raises(UnavailableError, match="cannot be used"):
            unit.clock()
    assert found(store).id == table_id(1)


def test_readers_that_come_and_go_leave_few_connections_behind(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store, 1)
    for _ in range(5):
        found(store)
    assert len(store._idle) == 1
    monkeypatch.setattr(postgres, "_MAX_IDLE_READERS", 2)
    at_once(5, lambda _: read_slowly(store))
    assert len(store._idle) == 2
    assert store._lent == []


def read_slowly(store: PostgresStore) -> None:
    with store.read() as unit:
        unit.clock()
        time.sleep(0.1)


def test_a_closed_store_says_so_and_lets_a_reader_finish(store: PostgresStore) -> None:
    [row] = insert(store, 1)
    with store.read() as unit:
        unit.clock()
        store.close()
        assert unit.table(row.id) == row
    for use in (lambda: found(store), lambda: insert(store, 2)):
        with pytest.raises(UnavailableError, match=r"is closed.*Connect again"):
            use()
    assert store._lent == []
    store.close()


@req("CM-43")
@shows("FS7")
def test_a_connection_lost_before_the_commit_means_that_nothing_happened(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    with pytest.raises(UnavailableError, match="cannot be used"), store.write() as unit:  # noqa: PT012
        unit.insert_commit(row.key, commit_row(0))
        end_backends(postgres_server, store._writer)
        with pytest.raises(UnavailableError), unit.savepoint():
            unit.commits(row.key, Version(0), Version(9), content=False)
        # Nothing more may be done in it, whoever caught the first error.
        with pytest.raises(UnavailableError), unit.savepoint():
            unit.insert_commit(row.key, commit_row(1))
    with store.read() as reading:
        assert reading.commits(row.key, Version(0), Version(9), content=False) == []
    insert_commits(store, row, commit_row(0))


@req("CM-43")
@shows("FS7")
@pytest.mark.parametrize("where", list(Cut), ids=lambda cut: cut.value)
def test_a_connection_lost_in_the_middle_of_the_commit_leaves_it_open_and_the_rows_settle_it(
    postgres_server: Postgres, open_postgres: Opened, where: Cut
) -> None:
    [row] = insert(open_postgres(), 1)
    with CuttingProxy(postgres_server.port, b"COMMIT\0") as proxy:
        address = postgres_server.address().replace(str(postgres_server.port), str(proxy.port))
        store = open_postgres(address=address)
        proxy.cut_next(where)
        with pytest.raises(InDoubtError) as doubt:
            insert_commits(store, row, commit_row(0, txn="x"))
        assert doubt.value.is_store_usable
        assert proxy.has_cut
        with store.write() as unit:  # by a new connection, and after the other's end
            settled = unit.transaction_commits(TxnId("x"))
        assert len(settled) == (where is Cut.AFTER)
        if not settled:
            insert_commits(store, row, commit_row(0, txn="x"))
        insert_commits(store, row, commit_row(1))
        store.close()


def test_a_commit_that_the_server_refuses_did_not_happen(store: PostgresStore) -> None:
    assert store._writer is not None
    store._writer.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'at the very end'; END $$"
    )
    store._writer.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON tables "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(UnavailableError, match="at the very end"):
        insert(store, 1)
    store._writer.execute("DROP TRIGGER late ON tables")
    insert(store, 1)


def test_a_unit_that_the_server_took_back_is_not_acknowledged(store: PostgresStore) -> None:
    assert store._writer is not None
    with pytest.raises(UnavailableError, match="rolled back the whole unit"):  # noqa: SIM117, PT012
        with store.write() as unit:
            unit.insert_table(table_row())
            with pytest.raises(psycopg.Error):
                store._writer.execute("SELECT 1 / 0")
    with store.read() as reading:
        assert reading.table(table_id(1)) is None
    insert(store, 1)


@pytest.mark.slow
def test_a_commit_that_a_standby_may_not_have_is_in_doubt(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    assert store._writer is not None
    pid = store._writer.info.backend_pid

    def cancel_when_it_waits() -> None:
        with postgres_server.connect() as admin:
            for _ in range(1000):
                waits = admin.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'",
                    (pid,),
                )
                if waits.fetchall():
                    admin.execute("SELECT pg_cancel_backend(%s)", (pid,))
                    return
                time.sleep(0.01)

    with (
        ThreadPoolExecutor(1) as pool,
        altered(postgres_server, "synchronous_standby_names", "nobody"),
    ):
        cancelling = pool.submit(cancel_when_it_waits)
        with pytest.raises(InDoubtError, match="synchronous replication") as doubt:
            insert(store, 1)
        cancelling.result()
    assert doubt.value.is_store_usable
    insert(store, 2)


@pytest.mark.slow
@req("CM-12")
def test_what_was_acknowledged_is_there_after_the_whole_server_was_killed(
    own_server: Postgres,
) -> None:
    store = PostgresStore(own_server.address(), SystemClock())
    [row] = insert(store, 1)
    acknowledged: list[int] = []
    is_killed = threading.Event()

    def write() -> None:
        version, now = 0, row
        while True:
            try:
                now = insert_commits(store, now, commit_row(version))
            except (InDoubtError, UnavailableError):
                assert is_killed.is_set()
                return
            acknowledged.append(version)
            version += 1

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while len(acknowledged) < 50:
            time.sleep(0.001)
        is_killed.set()
        own_server.kill()
        writing.result()
    with pytest.raises(UnavailableError):
        found(store)
    own_server.start()
    with store.read() as unit:  # the same store goes on
        kept = [c.version for c in unit.commits(row.key, Version(0), Version(10**6), content=True)]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1  # the one under way may have happened
    insert(store, 2)
    store.close()


# Few round trips


class Counted:
    """Counts the round trips of units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        execute = postgres._execute

        def counting(*arguments: object) -> object:
            self.count += 1
            return execute(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(postgres, "_execute", counting)


def test_a_batch_costs_as_many_round_trips_as_one_commit(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {row.id: row for row in insert(store, 1, 2, 3)}
    trips = Counted(monkeypatch)
    with store.write() as unit:
        txns = [TxnId(f"txn-{number}") for number in range(60)]
        unit.prefetch([*txns, TxnId("never")], rows.keys())
        for number, txn in enumerate(txns):
            with unit.savepoint():
                assert unit.transaction_commits(txn) == []
                assert unit.rejection(txn) is None
                row = unit.table(list(rows)[number % 3])
                assert row is not None
                sequence = unit.clock().sequence + 1
                head = Version(row.head + 1)
                unit.insert_commit(row.key, commit_row(head, sequence, txn))
                unit.update_table(row._replace(head=head))
                unit.advance_clock(CatalogClock(Sequence(sequence), number), txn)
            with pytest.raises(ZeroDivisionError), unit.savepoint():  # noqa: PT012
                unit.transaction_commits(TxnId("never"))
                unit.insert_commit(row.key, commit_row(head + 1, sequence + 1, "never"))
                unit.update_table(row._replace(head=Version(99)))
                unit.advance_clock(CatalogClock(Sequence(99), 99), TxnId("never"))
                raise ZeroDivisionError
    assert trips.count == 2  # one to ask, one to tell
    with store.read() as reading:
        assert reading.clock() == (60, 59)
        assert [found(store, number).head for number in (1, 2, 3)] == [19, 19, 19]
        events = reading.events(Sequence(0), 100)
        assert [event.txn_id for event in events] == txns
        assert all(len(event.commits) == 1 for event in events)
        assert reading.transaction_commits(TxnId("never")) == []


STRANGE = ["NULL", "", " ", '"', "\\", '\\"', "{}", "{a,b}", "a,b", "'", "\n\t", "é😀", "$1", "%s"]


@pytest.mark.parametrize("length", [0, 7, 1 << 19])
def test_rows_that_were_gathered_come_back_as_they_were(store: PostgresStore, length: int) -> None:
    [row] = insert(store, 1)
    content = bytes(range(256)) * (length // 256) + bytes(length % 256)
    commits = [
        commit_row(
            version,
            txn=f"{text} {version}",
            file_name=text if version % 2 else None,
            modified_ms=-(2**63) if version % 2 else None,
            size=2**63 - 1,
            sha256=b"",
            intent=b'\\x"{},',
            summary=None if version % 2 else content,
            content=content,
        )
        for version, text in enumerate(STRANGE[:5] if length > 9999 else STRANGE)
    ]
    with store.write() as unit:
        unit.prefetch([commit.txn_id for commit in commits], [row.id])
        for commit in commits:
            unit.insert_commit(row.key, commit)
            unit.update_table(row._replace(head=commit.version, diverged=commit.txn_id))
            unit.advance_clock(CatalogClock(commit.sequence, commit.version), commit.txn_id)
    assert found(store).diverged == commits[-1].txn_id
    with store.read() as reading:
        kept = reading.commits(row.key, Version(0), Version(99), content=True, summary=True)
        assert kept == commits
        events = reading.events(Sequence(0), 99)
        assert [event.txn_id for event in events] == [commit.txn_id for commit in commits]


def test_tables_of_which_different_things_change_are_each_changed(store: PostgresStore) -> None:
    rows = insert(store, 1, 2, 3, 4)
    changed = [
        rows[0]._replace(head=Version(3), num_files=None),
        rows[1]._replace(head=Version(4), metadata=b"\0\xff"),
        rows[2]._replace(head=Version(5)),
        rows[3]._replace(ticket=TxnId("it's me"), state=TableStatus.DROPPED, dropped_ms=1),
    ]
    with store.write() as unit:
        for row in changed:
            unit.update_table(row)
        unit.update_table(changed[2])  # as it is
    assert [found(store, number) for number in (1, 2, 3, 4)] == changed


def test_what_clashes_in_spite_of_all_undoes_the_whole_unit(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    with pytest.raises(UnavailableError, match="duplicate key"), store.write() as unit:  # noqa: PT012
        assert unit.table(row.id) == row
        assert unit.transaction_commits(TxnId("x")) == []
        with postgres_server.connect() as intruder:  # by hand, and without the lock
            intruder.execute(
                f"INSERT INTO {store._schema}.commits VALUES "
                f"({row.key}, 0, 1, 1, 'y', 'inline', NULL, 1, '', NULL, '', 1, 1)".encode()
            )
        unit.insert_commit(row.key, commit_row(0, txn="x"))
        unit.set_setting("key", "value")
    with store.read() as reading:
        assert reading.setting("key") is None
        assert reading.transaction_commits(TxnId("x")) == []


def test_what_is_asked_first_of_an_empty_lake_does_not_read_all_of_it_when_it_is_full(
    store: PostgresStore,
) -> None:
    [row] = insert(store, 1)
    for number in range(20):  # so often that the statement is prepared, and its plan kept
        with store.write() as unit:
            unit.prefetch([TxnId(f"txn-{number}")], [row.id])
    assert store._writer is not None
    [[name, kept]] = store._writer.execute(
        "SELECT name, generic_plans FROM pg_prepared_statements WHERE statement = $1",
        (writing._PREFETCH,),
    ).fetchall()
    assert kept > 0
    plan = store._writer.execute(f"EXPLAIN EXECUTE \"{name}\" ('{{a}}', '{{b}}')".encode())
    text = "\n".join(str(line[0]) for line in plan)
    assert "Seq Scan" not in text
    assert "on commits" in text


def test_what_a_feed_and_a_status_ask_costs_what_it_gives_and_not_what_there_is(
    store: PostgresStore,
) -> None:
    assert store._writer is not None
    for sql in (reader.EVENT_COMMITS, reader.UNPUBLISHED_TAILS.format(source="tables")):
        sql = sql.replace("$1", "0").replace("$2", "9")
        plan = store._writer.execute(f"EXPLAIN {sql}".encode()).fetchall()
        text = "\n".join(str(row[0]) for row in plan)
        assert "Seq Scan on commits" not in text
        assert "on commits" in text
