"""A PostgreSQL database that is damaged or replaced under a process that uses it is noticed."""

from __future__ import annotations

import psycopg
import pytest

from headgate.catalog.stores.postgres import PostgresStore, database_id
from headgate.catalog.stores.rows import CatalogClock
from headgate.clock import SystemClock
from headgate.errors import DamagedError
from headgate.protocol.actions import Sequence, TxnId
from tests.catalog.store_contract.batches import epoch, ratifying
from tests.catalog.store_contract.rows import found, insert
from tests.kit.postgres import Postgres


@pytest.fixture
def address(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.fixture
def store(address: str) -> PostgresStore:
    made = PostgresStore(address, SystemClock())
    insert(made, 1)
    return made


def commit(store: PostgresStore, sequence: int) -> None:
    with store.write() as unit:
        unit.advance_clock(CatalogClock(Sequence(sequence), sequence), TxnId(f"txn {sequence}"))


def change(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SET search_path TO headgate")
        for statement in statements:
            other.execute(statement.encode())


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE tables CASCADE",
        "ALTER TABLE tables RENAME COLUMN head TO x",
        "DROP SCHEMA headgate CASCADE",
        "DELETE FROM clock",
    ],
)
def test_after_the_schema_was_changed_all_use_is_refused(
    store: PostgresStore, address: str, damage: str
) -> None:
    row = found(store)
    before = epoch(store)
    change(address, damage)
    with pytest.raises(DamagedError, match="damaged"):
        store.write_batch(before, ratifying(row, 0, 1))
    with pytest.raises(DamagedError, match="damaged"):
        commit(store, 5)
    with pytest.raises(DamagedError):
        found(store)
    store.close()


def test_an_older_copy_accepts_no_further_change(store: PostgresStore, address: str) -> None:
    commit(store, 7)
    change(address, "UPDATE clock SET sequence = 3, changes = changes + 1")
    with pytest.raises(DamagedError, match="last sequence is 3, but 7 was committed"):
        commit(store, 4)
    with pytest.raises(DamagedError, match="older copy"):
        found(store)
    store.close()


def test_an_older_copy_is_noticed_by_the_next_batch(store: PostgresStore, address: str) -> None:
    row = found(store)
    assert store.write_batch(epoch(store), ratifying(row, 0, 1)) is not None
    before = epoch(store)
    change(address, "UPDATE clock SET sequence = 0, changes = changes + 1")
    with pytest.raises(DamagedError, match="older copy"):
        store.write_batch(before, ratifying(row, 1, 2))
    store.close()


def test_a_half_restored_database_is_damaged(store: PostgresStore, address: str) -> None:
    store.close()
    change(address, "DELETE FROM schema_version")
    with pytest.raises(DamagedError, match="half restored"):
        PostgresStore(address, SystemClock())


def test_a_database_created_in_place_of_another_has_another_id(
    postgres_server: Postgres, address: str
) -> None:
    before, name = database_id(address), address.rpartition("/")[2]
    assert database_id(address) == before
    with postgres_server.connect() as admin:
        admin.execute(f"DROP DATABASE {name}".encode())
        admin.execute(f"CREATE DATABASE {name}".encode())
    assert database_id(address) != before
