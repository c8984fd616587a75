"""The PostgreSQL store: the contract, and its own schema, limits and round trips."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from headgate import failpoints
from headgate.catalog.stores import reader
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.rows import Batch, CatalogClock, Publication
from headgate.clock import SystemClock
from headgate.errors import (
    InvalidArgumentError,
    RefusedError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.table_states import TableStatus
from tests.catalog.postgres_stores import Opened, altered, at_once, end_backends
from tests.catalog.store_contract import StoreContract
from tests.catalog.store_contract.batches import epoch, prepared, ratifying, rejection
from tests.catalog.store_contract.rows import (
    commit_row,
    found,
    insert,
    table_id,
)
from tests.kit import req, shows
from tests.kit.postgres import Postgres


@pytest.fixture
def schema(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.schema() as name:
        yield name


@pytest.fixture
def store(open_postgres: Opened) -> PostgresStore:
    return open_postgres()


class TestPostgresStore(StoreContract):
    examples = 15

    @pytest.fixture
    def open_store(self, open_postgres: Opened) -> Callable[[str], CatalogStore]:
        return open_postgres


# Durability


@req("CM-12")
@pytest.mark.parametrize(
    ("set_to", "used"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply",) * 2]
)
def test_commits_are_synced_whatever_the_database_is_set_to(
    postgres_server: Postgres, set_to: str, used: str
) -> None:
    address = postgres_server.new_database()
    name = address.rpartition("/")[2]
    with postgres_server.connect() as admin:
        admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = {set_to}".encode())
    store = PostgresStore(address, SystemClock())
    for _ in range(2):
        assert store._writer is not None
        [[used_now]] = store._writer.execute("SHOW synchronous_commit").fetchall()
        assert used_now == used
        end_backends(postgres_server, store._writer)
        insert(store, 1 + _)  # by a new connection
    store.close()


def test_batches_are_written_whatever_transactions_the_database_begins_by_default(
    postgres_server: Postgres,
) -> None:
    address = postgres_server.new_database()
    name = address.rpartition("/")[2]
    with postgres_server.connect() as admin:
        for setting in ("read_only = on", "isolation = serializable"):
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_{setting}".encode())
    store = PostgresStore(address, SystemClock())
    row = prepared(store)
    assert store.write_batch(epoch(store), ratifying(row, 2, 3)) == epoch(store)
    assert store._writer is not None
    [[level]] = store._writer.execute("SHOW transaction_isolation").fetchall()
    assert level == "read committed"
    store.close()


def test_opening_warns_of_a_server_that_does_not_sync(
    postgres_server: Postgres, open_postgres: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        open_postgres()
    assert caplog.messages == []
    with altered(postgres_server, "fsync", "off"), caplog.at_level(logging.WARNING):
        open_postgres()
    assert "fsync=off" in caplog.text


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


def test_an_existing_empty_schema_is_used(postgres_server: Postgres) -> None:
    with postgres_server.connect() as admin:
        admin.execute('CREATE SCHEMA "strange ""name"')
    store = PostgresStore(postgres_server.address(), SystemClock(), schema='strange "name')
    [row] = insert(store, 1)
    with store.read() as unit:
        assert unit.table(row.id) == row
    store.close()


def test_a_schema_of_another_program_is_refused_and_not_changed(
    postgres_server: Postgres, schema: str
) -> None:
    with postgres_server.connect() as admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        admin.execute(f"CREATE TABLE {schema}.songs (title TEXT)".encode())
        with pytest.raises(RefusedError, match=r"another program.*Name another"):
            PostgresStore(postgres_server.address(), SystemClock(), schema=schema)
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        assert tables.fetchall() == [("songs",)]


def test_a_newer_schema_is_refused_and_not_changed(
    store: PostgresStore, open_postgres: Opened
) -> None:
    assert store._writer is not None
    store._writer.execute("UPDATE schema_version SET version = 9999")
    with pytest.raises(RefusedError, match=r"version 9999.*Use a newer Headgate"):
        open_postgres()
    assert store._writer.execute("SELECT version FROM schema_version").fetchall() == [(9999,)]


def test_a_database_that_cannot_store_every_name_is_refused(postgres_server: Postgres) -> None:
    options = "ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0 LOCALE_PROVIDER 'libc'"
    address = postgres_server.new_database(options)
    with pytest.raises(RefusedError, match=r"SQL_ASCII.*ENCODING 'UTF8'"):
        PostgresStore(address, SystemClock())


def test_migrations_are_numbered_without_a_gap() -> None:
    folder = resources.files("headgate.catalog.stores.migrations") / "postgres"
    numbers = sorted(int(script.name[:4]) for script in folder.iterdir())
    assert numbers == list(range(1, len(numbers) + 1))


@shows("FS8")
def test_stores_opened_at_once_on_a_new_database_create_one_schema(
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
def test_a_schema_from_before_epochs_is_migrated_with_its_rows(
    postgres_server: Postgres, schema: str
) -> None:
    folder = resources.files("headgate.catalog.stores.migrations") / "postgres"
    with postgres_server.connect() as admin:
        admin.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}".encode())
        for number in (1, 2):
            admin.execute((folder / f"{number:04}.sql").read_text("utf-8").encode())
        admin.execute("INSERT INTO sequences VALUES (7, 70, NULL)")
        admin.execute("UPDATE clock SET sequence = 7, clock_ms = 70")
        admin.execute("UPDATE schema_version SET version = 2")
    store = PostgresStore(postgres_server.address(), SystemClock(), schema=schema)
    with store.read() as unit:
        assert unit.epoch() == (7, 0)
    [row] = insert(store, 1)
    assert epoch(store) == (7, 1)
    assert store.write_batch(epoch(store), ratifying(row, 0, 8)) == epoch(store) == (8, 1)
    store.close()


@shows("FS8")
def test_an_interrupted_migration_changes_nothing_and_the_next_one_completes(
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


def test_a_user_without_privileges_gets_an_error_that_says_so(postgres_server: Postgres) -> None:
    address = postgres_server.new_database()
    with postgres_server.connect() as admin:
        admin.execute("CREATE ROLE stranger LOGIN")
    with pytest.raises(RefusedError, match="permission denied"):
        PostgresStore(address.replace("headgate@", "stranger@"), SystemClock())


# Description and addresses


def test_the_description_contains_no_password(postgres_server: Postgres) -> None:
    address = postgres_server.new_database().replace("headgate@", "headgate:s3cret@")
    store = PostgresStore(address, SystemClock())
    with postgres_server.connect() as admin:
        [[version]] = admin.execute("SHOW server_version").fetchall()
    assert store.describe() == f"PostgreSQL {str(version).split()[0]}, schema 3"
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
def test_an_invalid_address_is_refused_without_showing_its_password(address: str) -> None:
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
def test_text_that_postgresql_cannot_store_is_refused_by_itself(
    store: PostgresStore, text: str
) -> None:
    [row] = insert(store, 1)
    bad = TxnId(text)
    with store.write() as unit:
        assert unit.decided([bad, TxnId("good")]) == set()
        assert unit.tables_by_id([TableId(text), row.id]) == [row]
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


def test_a_number_that_postgresql_cannot_store_is_refused_by_itself(store: PostgresStore) -> None:
    [row] = insert(store, 1)
    with store.write() as unit:
        for size in (2**63, -(2**63) - 1):
            with pytest.raises(InvalidArgumentError, match="64 bits"), unit.savepoint():
                unit.update_table(row._replace(size_bytes=size))
        unit.update_table(row._replace(size_bytes=2**63 - 1))
    assert found(store).size_bytes == 2**63 - 1


@pytest.mark.parametrize(
    "changed", [{"txn": "a\0b"}, {"txn": "\ud800"}, {"size": 2**63}, {"modified_ms": -(2**63) - 1}]
)
def test_a_batch_with_a_value_that_postgresql_cannot_store_writes_nothing(
    store: PostgresStore, changed: dict[str, Any]
) -> None:
    row = prepared(store)
    before = epoch(store)
    batch = ratifying(row, 2, 3, **changed)
    with pytest.raises(InvalidArgumentError, match="cannot store"):
        store.write_batch(before, batch._replace(rejections=[rejection("no")]))
    assert epoch(store) == before
    assert store.write_batch(before, ratifying(row, 2, 3)) is not None


# One round trip


def test_a_batch_costs_one_round_trip(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = insert(store, 1, 2, 3)
    assert store._writer is not None
    sent: list[object] = []
    execute = store._writer.execute

    def counting(*arguments: Any, **options: Any) -> object:
        sent.append(arguments)
        return execute(*arguments, **options)

    monkeypatch.setattr(store._writer, "execute", counting)
    before = epoch(store)
    batch = Batch(
        clocks=[(CatalogClock(Sequence(1), 5), TxnId("x"))],
        commits=[(row.key, commit_row(0, 1, "x")) for row in rows],
        tables=[row._replace(head=Version(0)) for row in rows],
        rejections=[rejection("no")],
        undecided=[TxnId("x"), TxnId("no")],
    )
    assert store.write_batch(before, batch) == (1, before.changes)
    assert len(sent) == 1
    assert store.write_batch(before, batch) is None
    assert len(sent) == 2


STRANGE = ["NULL", "", " ", '"', "\\", '\\"', "{}", "{a,b}", "a,b", "'", "\n\t", "é😀", "$1", "%s"]


@pytest.mark.parametrize("length", [0, 7, 1 << 19])
def test_rows_of_a_batch_are_stored_unchanged(store: PostgresStore, length: int) -> None:
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
    last = commits[-1]
    batch = Batch(
        clocks=[
            (CatalogClock(commit.sequence, commit.version), commit.txn_id) for commit in commits
        ],
        commits=[(row.key, commit) for commit in commits],
        tables=[row._replace(head=last.version, ticket=last.txn_id, domains=content)],
        undecided=[commit.txn_id for commit in commits],
    )
    assert store.write_batch(epoch(store), batch) == epoch(store)
    assert (found(store).ticket, found(store).domains) == (last.txn_id, content)
    with store.read() as reading:
        kept = reading.commits(row.key, Version(0), Version(99), content=True, summary=True)
        assert kept == commits
        events = reading.events(Sequence(0), 99)
        assert [event.txn_id for event in events] == [commit.txn_id for commit in commits]


def test_large_columns_that_a_batch_does_not_change_are_not_written_again(
    store: PostgresStore,
) -> None:
    [row] = insert(store, 1)
    large = {name: os.urandom(50_000) for name in ("protocol", "metadata", "domains")}
    row = row._replace(**large)
    with store.write() as unit:
        unit.update_table(row)
    assert store._writer is not None
    [[toast]] = store._writer.execute(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'tables'::regclass"
    ).fetchall()

    def places() -> set[int]:
        assert store._writer is not None
        rows = store._writer.execute(f"SELECT chunk_id FROM {toast}".encode()).fetchall()
        return {place for [place] in rows}

    before = places()
    assert len(before) == 3
    assert store.write_batch(epoch(store), ratifying(row, 0, 1)) is not None
    assert found(store).head == 0
    assert places() == before
    row = row._replace(domains=os.urandom(50_000), metadata_version=Version(1))
    assert store.write_batch(epoch(store), ratifying(row, 1, 2)) is not None
    assert found(store).domains == row.domains
    assert not places() & before


def test_tables_with_changes_in_different_columns_are_all_updated(store: PostgresStore) -> None:
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


def test_a_batch_that_the_rows_contradict_writes_nothing(
    postgres_server: Postgres, store: PostgresStore
) -> None:
    [row] = insert(store, 1)
    before = epoch(store)
    with postgres_server.connect() as intruder:  # by hand, and without a change of the epoch
        intruder.execute(
            f"INSERT INTO {store._schema}.commits VALUES "
            f"({row.key}, 0, 1, 1, 'y', 'inline', NULL, 1, '', NULL, '', 1, 1)".encode()
        )
    with pytest.raises(
        UnavailableError, match=r"inconsistent \(duplicate key.*nothing was written"
    ):
        store.write_batch(before, ratifying(row, 0, 1)._replace(rejections=[rejection("no")]))
    assert epoch(store) == before
    with store.read() as reading:
        assert reading.rejection(TxnId("no")) is None
        assert reading.transaction_commits(TxnId("txn-0")) == []


def kept_plan(store: PostgresStore, like: str) -> tuple[str, int, int]:
    """Return the plan that the writing connection keeps, and how often it and others were used."""
    assert store._writer is not None
    [[name, count, generic, custom]] = store._writer.execute(
        "SELECT name, cardinality(parameter_types), generic_plans, custom_plans "
        "FROM pg_prepared_statements WHERE statement LIKE $1",
        (like,),
    ).fetchall()
    values = ", ".join(["NULL"] * count)
    plan = store._writer.execute(f'EXPLAIN EXECUTE "{name}" ({values})'.encode())
    return "\n".join(str(line[0]) for line in plan), generic, custom


def test_the_plan_of_a_batch_made_on_an_empty_database_does_not_scan_a_full_one(
    store: PostgresStore,
) -> None:
    [row] = insert(store, 1)
    published = [Publication(row.key, Version(0), Version(0), 5)]
    for number in range(3):
        batch = ratifying(row, number, number + 1)._replace(
            rejections=[rejection(f"no {number}")], published=published
        )
        assert store.write_batch(epoch(store), batch) is not None
    text, generic, custom = kept_plan(store, "WITH moved%")
    assert (generic, custom) == (3, 0)
    for index in ("commits_txn_id_table_key_key", "commits_table_key_version_key", "tables_pkey"):
        assert index in text
    assert "Seq Scan on clock" in text or "clock_pkey" in text
    assert not re.search("Seq Scan on (commits|tables|rejections)", text)


def test_plans_for_what_a_batch_depends_on_made_on_an_empty_database_do_not_scan_a_full_one(
    store: PostgresStore,
) -> None:
    with store.write() as unit:
        for _ in range(10):  # it is prepared when it was executed a few times
            assert unit.decided([TxnId("a"), TxnId("b")]) == set()
            assert unit.tables_by_id([table_id(1)]) == []
    for like, indexes in {
        "%FROM tables WHERE id%": ["tables_id_key"],
        "SELECT txn_id FROM commits%": ["commits_txn_id_table_key_key", "rejections_pkey"],
    }.items():
        text, _, custom = kept_plan(store, like)
        assert custom == 0
        assert "SubPlan" not in text
        for index in indexes:
            assert re.search(rf"Index.* {index}.*\n +Index Cond: ", text)


def test_events_and_counts_do_not_scan_all_commits(
    store: PostgresStore,
) -> None:
    assert store._writer is not None
    for sql in (reader.EVENT_COMMITS, reader.UNPUBLISHED_TAILS.format(source="tables")):
        sql = sql.replace("$1", "0").replace("$2", "9")
        plan = store._writer.execute(f"EXPLAIN {sql}".encode()).fetchall()
        text = "\n".join(str(row[0]) for row in plan)
        assert "Seq Scan on commits" not in text
        assert "on commits" in text
