"""The PostgreSQL store: locks that block, connections that break, servers that stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from headgate.catalog.decider import Decider
from headgate.catalog.ratifier import Ratifier
from headgate.catalog.stores import postgres
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.postgres_units import Connection, PostgresReadUnit
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.rows import Epoch, InDoubtError, RolledBackError
from headgate.catalog.stores.writer import WriteUnit
from headgate.clock import SystemClock
from headgate.errors import (
    UnavailableError,
)
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.settings import Settings
from tests.catalog.postgres_stores import Opened, altered, at_once, end_backends
from tests.catalog.store_contract.batches import epoch, prepared, ratifying, versions
from tests.catalog.store_contract.rows import (
    commit_row,
    found,
    insert,
    insert_commits,
    table_id,
    table_row,
)
from tests.kit import req, shows
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres
from tests.kit.postgres import start as start_postgres
from tests.kit.proxy import ByteProxy, Cut


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server of this test's own, to be killed."""
    made = start_postgres()
    yield made
    made.close()


@pytest.fixture
def store(open_postgres: Opened) -> PostgresStore:
    return open_postgres()


# Locks and waiting


@shows("FS4")
def test_a_writer_gives_up_when_the_clock_stays_locked(
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
def test_a_writer_retries_after_a_lock_timeout(
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
def test_a_lock_of_another_program_rolls_back_the_unit_and_the_next_one_works(
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
def test_a_deadlock_rolls_back_the_unit_and_it_can_be_run_again(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    with postgres_server.connect() as other:
        # Its deadlock timeout is longer than the unit's, so the unit is the victim.
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
def test_work_rolled_back_by_a_deadlock_is_retried(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    clock, settings = SystemClock(), Settings()
    ratifier = Ratifier(store, Decider(clock, settings), clock, settings)
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


def test_readers_above_the_limit_wait_for_a_connection(
    postgres_server: Postgres, open_postgres: Opened
) -> None:
    store = open_postgres(readers=2)
    together = threading.Barrier(2)
    active: list[int] = []
    most: list[int] = []

    def read(number: int) -> None:
        with store.read() as unit:
            active.append(number)
            unit.clock()
            together.wait(20)  # they come in pairs, and never in threes
            most.append(len(active))
            active.remove(number)

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


def test_idle_connections_that_broke_are_replaced(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    insert(store, 1)
    with store.read() as one, store.read() as two:
        assert one.clock() == two.clock()
    assert len(store._pool._idle) == 2
    end_backends(postgres_server, *store._pool._idle, store._writer)
    assert found(store).id == table_id(1)
    insert(store, 2)
    assert found(store, 2).id == table_id(2)
    assert len(store._pool._idle) == 1


def test_a_reader_whose_connection_breaks_fails_and_the_next_one_reads(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    insert(store, 1)
    with store.read() as unit:
        unit.clock()
        end_backends(postgres_server, connection_of(unit))
        with pytest.raises(UnavailableError, match="cannot be used"):
            unit.clock()
    assert found(store).id == table_id(1)


def test_few_connections_are_kept_for_later_readers(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(store, 1)
    for _ in range(5):
        found(store)
    assert len(store._pool._idle) == 1
    monkeypatch.setattr(store._pool, "_most", 2)
    used = at_once(5, lambda _: read_slowly(store))
    assert len(store._pool._idle) == 2
    assert {one for one in used if not one.closed} == {*store._pool._idle}


def connection_of(unit: ReadUnit) -> Connection:
    assert isinstance(unit, PostgresReadUnit)
    return unit.connection


def read_slowly(store: PostgresStore) -> Connection:
    with store.read() as unit:
        unit.clock()
        time.sleep(0.1)
        return connection_of(unit)


def test_a_closed_store_refuses_use_and_lets_a_reader_finish(store: PostgresStore) -> None:
    [row] = insert(store, 1)
    with store.read() as unit:
        unit.clock()
        store.close()
        assert unit.table(row.id) == row
    batch = ratifying(row, 0, 1)
    for use in (
        lambda: found(store),
        lambda: insert(store, 2),
        lambda: store.write_batch(Epoch(Sequence(0), 1), batch),
    ):
        with pytest.raises(UnavailableError, match=r"is closed.*Connect again"):
            use()
    assert connection_of(unit).closed
    assert store._pool._idle == []
    store.close()


@req("CM-43")
@shows("FS7")
def test_a_connection_lost_before_the_commit_writes_nothing(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    with pytest.raises(UnavailableError, match="cannot be used"), store.write() as unit:  # noqa: PT012
        unit.insert_commit(row.key, commit_row(0))
        end_backends(postgres_server, store._writer)
        with pytest.raises(UnavailableError), unit.savepoint():
            unit.commits(row.key, Version(0), Version(9), content=False)
        # The unit accepts no further statement, even after its first error was caught.
        with pytest.raises(UnavailableError), unit.savepoint():
            unit.insert_commit(row.key, commit_row(1))
    with store.read() as reading:
        assert reading.commits(row.key, Version(0), Version(9), content=False) == []
    insert_commits(store, row, commit_row(0))


@req("CM-43")
@shows("FS7")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_connection_lost_during_the_commit_is_in_doubt_until_the_rows_are_read(
    postgres_server: Postgres, open_postgres: Opened, is_committed: bool
) -> None:
    [row] = insert(open_postgres(), 1)
    with ByteProxy(("127.0.0.1", postgres_server.port)) as proxy:
        address = postgres_server.address().replace(str(postgres_server.port), str(proxy.port))
        store = open_postgres(address=address)
        proxy.cut = Cut(b"COMMIT\0", is_passed_on=is_committed, waits_for_answer=True)
        with pytest.raises(InDoubtError) as doubt:
            insert_commits(store, row, commit_row(0, txn="x"))
        assert doubt.value.is_store_usable
        assert proxy.cut.done == 1
        with store.write() as unit:  # by a new connection, and after the other's end
            settled = unit.transaction_commits(TxnId("x"))
        assert len(settled) == (is_committed)
        if not settled:
            insert_commits(store, row, commit_row(0, txn="x"))
        insert_commits(store, row, commit_row(1))
        store.close()


@req("CM-43")
@shows("FS7")
@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_batch_whose_connection_is_lost_is_sent_again_once_and_never_applied_twice(
    postgres_server: Postgres, open_postgres: Opened, is_applied: bool, times: int
) -> None:
    row = prepared(open_postgres())
    with ByteProxy(("127.0.0.1", postgres_server.port)) as proxy:
        address = postgres_server.address().replace(str(postgres_server.port), str(proxy.port))
        store = open_postgres(address=address)
        before = epoch(store)
        proxy.cut = Cut(
            b"\x05txn-2", is_passed_on=is_applied, waits_for_answer=is_applied, times=times
        )
        batch = ratifying(row, 2, 3)
        if times == 2:
            with pytest.raises(InDoubtError) as doubt:
                store.write_batch(before, batch)
            assert doubt.value.is_store_usable
        else:
            after = store.write_batch(before, batch)
            assert after == (None if is_applied else (3, before.changes))
        assert proxy.cut.done == times
        is_written = is_applied or times == 1
        assert versions(store, row) == [0, 1, 2][: 2 + is_written]
        with store.read() as unit:
            assert unit.decided(batch.undecided) == ({"txn-2"} if is_written else set())
        if not is_written:
            assert store.write_batch(before, batch) is not None
        assert store.write_batch(epoch(store), ratifying(row, 3, 4)) == (4, before.changes)
        store.close()


def test_a_batch_whose_connection_broke_while_idle_is_written(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    row = prepared(store)
    for version in (2, 3):
        end_backends(postgres_server, store._writer)
        batch = ratifying(row, version, version + 1)
        assert store.write_batch(epoch(store), batch) == epoch(store)
    assert versions(store, row) == [0, 1, 2, 3]


def test_a_batch_is_in_doubt_while_its_server_stays_away(
    own_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(own_server.address(), SystemClock())
    row = prepared(store)
    before = epoch(store)
    own_server.kill()
    with pytest.raises(InDoubtError) as doubt:  # it was sent, for all the client knows
        store.write_batch(before, ratifying(row, 2, 3))
    assert doubt.value.is_store_usable
    with pytest.raises(UnavailableError):  # nothing was sent
        store.write_batch(before, ratifying(row, 2, 3))
    own_server.start()
    assert store.write_batch(before, ratifying(row, 2, 3)) is not None
    assert versions(store, row) == [0, 1, 2]
    store.close()


@shows("FS4")
def test_a_batch_waits_for_the_clock_and_gives_up_when_it_stays_locked(
    store: PostgresStore, open_postgres: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", 0.1)
    row = prepared(store)
    before = epoch(store)
    impatient, patient = open_postgres(patience=0.3), open_postgres()
    with ThreadPoolExecutor(1) as pool:
        with store.write() as unit:
            unit.acquire_lease("a", "me", 1, 2)
            with pytest.raises(UnavailableError, match="Other writers locked"):
                impatient.write_batch(before, ratifying(row, 2, 3))
            waiting = pool.submit(patient.write_batch, before, ratifying(row, 2, 3))
            time.sleep(0.4)
            assert not waiting.done()
        assert waiting.result() == (3, before.changes)
        with store.write() as unit:
            unit.set_diverged(row.key, "why")
            waiting = pool.submit(patient.write_batch, epoch(patient), ratifying(row, 3, 4))
            time.sleep(0.2)
            assert not waiting.done()
        assert waiting.result() is None  # it saw what it had waited for
    assert versions(store, row) == [0, 1, 2]


@shows("FS4")
def test_a_batch_rolled_back_by_a_deadlock_is_sent_again(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    row = prepared(store)
    before = epoch(store)
    with postgres_server.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '30s'")  # so the batch is the victim
        other.execute("BEGIN")
        other.execute(f"LOCK TABLE {store._schema}.rejections IN ROW SHARE MODE".encode())
        other.execute(f"SELECT * FROM {store._schema}.tables FOR UPDATE".encode())
        writing = pool.submit(store.write_batch, before, ratifying(row, 2, 3))
        eventually(lambda: is_waiting(postgres_server, store))
        other.execute(f"SELECT * FROM {store._schema}.clock FOR UPDATE".encode())
        other.execute("ROLLBACK")
        assert writing.result() == (3, before.changes)
    assert versions(store, row) == [0, 1, 2]


def is_waiting(server: Postgres, store: PostgresStore) -> bool:
    """Return whether the store's writer waits for a lock."""
    assert store._writer is not None
    with server.connect() as admin:
        rows = admin.execute(
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
            (store._writer.info.backend_pid,),
        )
        return bool(rows.fetchall())


def test_a_batch_that_its_administrator_cancels_is_sent_again(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    row = prepared(store)
    before = epoch(store)
    writer = store._writer
    assert writer is not None
    with postgres_server.connect() as other, ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN")
        other.execute(f"SELECT * FROM {store._schema}.clock FOR UPDATE".encode())
        writing = pool.submit(store.write_batch, before, ratifying(row, 2, 3))
        eventually(lambda: is_waiting(postgres_server, store))
        other.execute("SELECT pg_cancel_backend(%s)", (writer.info.backend_pid,))
        other.execute("ROLLBACK")
        assert writing.result() == (3, before.changes)
    assert store._writer is writer  # which is not in doubt
    assert versions(store, row) == [0, 1, 2]


def test_a_commit_that_the_server_rejects_writes_nothing(store: PostgresStore) -> None:
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


def test_a_batch_that_the_server_rejects_at_its_commit_writes_nothing(
    store: PostgresStore,
) -> None:
    row = prepared(store)
    before = epoch(store)
    assert store._writer is not None
    store._writer.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'at the very end'; END $$"
    )
    store._writer.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON commits "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(UnavailableError, match="at the very end"):
        store.write_batch(before, ratifying(row, 2, 3))
    store._writer.execute("DROP TRIGGER late ON commits")
    assert epoch(store) == before
    assert store.write_batch(before, ratifying(row, 2, 3)) == (3, before.changes)


def test_a_unit_that_the_server_rolled_back_is_not_acknowledged(store: PostgresStore) -> None:
    assert store._writer is not None
    with pytest.raises(UnavailableError, match="rolled back the whole unit"):  # noqa: SIM117, PT012
        with store.write() as unit:
            unit.set_setting("key", "value")
            with pytest.raises(psycopg.Error):
                store._writer.execute("SELECT 1 / 0")
    with store.read() as reading:
        assert reading.setting("key") is None
    insert(store, 1)


@pytest.mark.slow
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_commit_that_a_standby_may_not_have_is_in_doubt(
    postgres_server: Postgres, store: PostgresStore, is_batch: bool
) -> None:
    row = prepared(store)
    before = epoch(store)
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
        altered(postgres_server, "synchronous_standby_names", "no_such_standby"),
    ):
        cancelling = pool.submit(cancel_when_it_waits)
        with pytest.raises(InDoubtError, match="synchronous replication") as doubt:  # noqa: PT012
            if is_batch:
                store.write_batch(before, ratifying(row, 2, 3))
            else:
                insert(store, 2)
        cancelling.result()
    assert doubt.value.is_store_usable
    assert epoch(store) != before  # it is committed on the primary
    insert(store, 3)


@pytest.mark.slow
@req("CM-12")
def test_acknowledged_commits_survive_killing_the_server(
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
                if version % 2:
                    batch = ratifying(now, version, version + 1)
                    assert store.write_batch(epoch(store), batch) is not None
                    now = found(store)
                else:
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
