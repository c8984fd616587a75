"""Transactions over many statements: one cut, own writes, all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.api.port import Cuts, require
from headgate.client.open_transaction import Transaction
from headgate.client.table import Table
from headgate.errors import (
    ConflictError,
    InvalidArgumentError,
    OutcomeUnknownError,
    RefusedError,
    TransactionEndedError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import Version
from headgate.protocol.paths import PublishedCommit
from headgate.protocol.transactions import State
from tests.client.conftest import World, filesystem_world, ids_in, rows
from tests.kit import req
from tests.kit.faulty_catalogs import LosingCuts


def append_and_fail(table: Table, number: int) -> None:
    before = ids_in(table.to_arrow())
    table.append(rows(number))
    assert ids_in(table.to_arrow()) == [*before, number]
    raise ZeroDivisionError


def published(table: Table, version: int) -> dict[str, list[dict[str, Any]]]:
    """Read the actions of a published commit, by kind."""
    content = table.snapshot().store.get(PublishedCommit(Version(version)).path)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in content.splitlines():
        for kind, body in json.loads(line).items():
            found.setdefault(kind, []).append(body)
    return found


class TestOneTable:
    @req("MT-03", "MT-10")
    def test_statements_see_the_earlier_ones_and_become_one_commit(self, world: World) -> None:
        orders = world.make("orders")
        session = world.session()
        with session.transaction() as txn:
            inside = txn.table("orders")
            inside.append(rows(1, 2))
            assert ids_in(inside.to_arrow()) == [1, 2]
            inside.append(rows(3))
            assert ids_in(inside.to_arrow()) == [1, 2, 3]
            assert ids_in(orders.to_arrow()) == []
        assert ids_in(orders.to_arrow()) == [1, 2, 3]
        assert orders.version == 1
        assert txn.versions in ({"default.orders": 1}, {"orders": 1})
        assert txn.state is State.RATIFIED

    @req("MT-10")
    def test_files_that_come_and_go_leave_no_trace(self, world: World) -> None:
        orders = world.make("orders")
        orders.append(rows(1))
        with world.session().transaction() as txn:
            inside = txn.table("orders")
            inside.append(rows(2))
            inside.overwrite(rows(3))
            inside.append(rows(4))
            inside.overwrite(rows(5))
        snapshot = orders.snapshot()
        assert ids_in(orders.to_arrow()) == [5]
        assert snapshot.version == 2
        world.publish(orders)
        actions = published(orders, 2)
        assert [len(actions[kind]) for kind in ("add", "remove")] == [1, 1]
        assert actions["add"][0]["path"] != actions["remove"][0]["path"]
        [commit] = [entry for entry in orders.history() if entry.version == 2]
        assert commit.operation == "TRANSACTION"

    @req("MT-11")
    def test_an_exception_leaves_everything_as_it_was(self, world: World) -> None:
        orders = world.make("orders")
        txn = world.session().transaction()
        with pytest.raises(ZeroDivisionError), txn:
            append_and_fail(txn.table("orders"), 1)
        assert (orders.snapshot().version, ids_in(orders.to_arrow())) == (0, [])
        assert txn.state is State.ABANDONED

    @req("MT-11")
    def test_a_savepoint_undoes_what_failed_in_it_and_nothing_else(self, world: World) -> None:
        orders = world.make("orders")
        with world.session().transaction() as txn:
            inside = txn.table("orders")
            inside.append(rows(1))
            with pytest.raises(ZeroDivisionError), txn.savepoint():
                append_and_fail(inside, 2)
            assert ids_in(inside.to_arrow()) == [1]
            inside.append(rows(3))
            assert ids_in(inside.to_arrow()) == [1, 3]
        assert ids_in(orders.to_arrow()) == [1, 3]

    def test_an_ended_transaction_refuses_everything(self, world: World) -> None:
        world.make("orders")
        txn = world.session().transaction()
        inside = txn.table("orders")
        txn.rollback()
        txn.rollback()
        for run in (
            lambda: inside.append(rows(1)),
            lambda: inside.to_arrow(),
            lambda: txn.table("orders"),
            txn.commit,
            txn.__enter__,
        ):
            with pytest.raises(TransactionEndedError):
                run()

    def test_blind_appends_of_two_transactions_both_pass(self, world: World) -> None:
        orders = world.make("orders")
        one, two = world.session().transaction(), world.session().transaction()
        one.table("orders").append(rows(1))
        two.table("orders").append(rows(2))
        one.commit()
        two.commit()
        assert ids_in(orders.to_arrow()) == [1, 2]
        assert orders.snapshot().version == 2

    def test_what_another_one_removed_is_a_conflict(self, world: World) -> None:
        orders = world.make("orders")
        orders.append(rows(1))
        txn = world.session().transaction()
        txn.table("orders").overwrite(rows(2))
        orders.overwrite(rows(3))
        with pytest.raises(ConflictError, match="R6"):
            txn.commit()
        assert txn.state is State.REJECTED
        assert ids_in(orders.to_arrow()) == [3]
        txn.rollback()

    def test_a_read_only_transaction_writes_nothing(self, world: World) -> None:
        world.make("orders").append(rows(1))
        with world.session().transaction(read_only=True) as txn:
            assert ids_in(txn.table("orders").to_arrow()) == [1]
            with pytest.raises(RefusedError, match="read-only"):
                txn.table("orders").append(rows(2))
        assert txn.state is State.RATIFIED
        assert txn.sequence is None

    def test_metadata_and_rows_change_together(self, world: World) -> None:
        orders = world.make("orders")
        orders.append(rows(1))
        with world.session().transaction() as txn:
            inside = txn.table("orders")
            inside.add_columns("note string")
            inside.append([{"id": 2, "day": None, "note": "new"}])
        after = orders.to_arrow()
        assert after.column_names == ["id", "day", "note"]
        assert sorted(after["note"].to_pylist(), key=str) == [None, "new"]
        assert orders.version == 2

    def test_an_unknown_level_is_refused_by_name(self, world: World) -> None:
        with pytest.raises(InvalidArgumentError, match="read committed"):
            world.session().transaction(isolation="read committed")


class TestSeveralTables:
    @req("MT-01", "MT-16")
    def test_tables_change_together(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        with full_world.session().transaction() as txn:
            txn.table("a").append(rows(1))
            txn.table("b").append(rows(2))
        assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([1], [2])
        assert txn.versions == {"default.a": 1, "default.b": 1}
        commits = [table.log(1, 1)[0].commit for table in (a, b)]
        assert {commit.txn_id for commit in commits} == {txn.id}
        assert {commit.sequence for commit in commits} == {txn.sequence}
        assert {commit.timestamp_ms for commit in commits} == {txn.timestamp_ms}

    @req("MT-05")
    def test_each_commit_names_all_tables_of_its_transaction(self, full_world: World) -> None:
        a, b, alone = (full_world.make(name) for name in ("a", "b", "alone"))
        with full_world.session().transaction() as txn:
            txn.table("a").append(rows(1))
            txn.table("b").append(rows(2))
            txn.table("alone").to_arrow()
        with full_world.session().transaction() as single:
            single.table("alone").append(rows(3))
        for table in (a, b, alone):
            table.publish()
        for table in (a, b):
            [info] = published(table, 1)["commitInfo"]
            assert info["txnId"] == txn.id
            assert info["headgate"]["tables"] == [a.id, b.id]
            assert info["tags"]["delta.multiTableTransaction.transactionId"] == txn.id
        [info] = published(alone, 1)["commitInfo"]
        assert info["txnId"] == single.id
        assert not info.keys() & {"headgate", "tags"}

    @req("MT-12")
    def test_all_tables_are_read_as_of_the_beginning(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        a.append(rows(1))
        b.append(rows(1))
        with full_world.session().transaction() as txn:
            assert ids_in(txn.table("a").to_arrow()) == [1]
            a.append(rows(2))
            b.append(rows(2))
            assert ids_in(txn.table("b").to_arrow()) == [1]
            assert ids_in(txn.table("a").to_arrow()) == [1]

    def test_write_skew_is_rejected_unless_snapshots_are_enough(self, full_world: World) -> None:
        for level in ("snapshot", "write_serializable", "serializable"):
            day, night = full_world.make(f"day_{level}"), full_world.make(f"night_{level}")
            day.append(rows(1))
            night.append(rows(1))
            session = full_world.session()
            one = session.transaction(isolation=level)
            two = session.transaction(isolation=level)
            for txn, read, written in ((one, night, day), (two, day, night)):
                assert ids_in(txn.table(_plain(read.name)).to_arrow()) == [1]
                txn.table(_plain(written.name)).overwrite(rows(2))
            one.commit()
            if level == "snapshot":
                two.commit()
                assert two.state is State.RATIFIED
                continue
            with pytest.raises(ConflictError, match="R5"):
                two.commit()
            assert ids_in(night.to_arrow()) == [1]

    def test_a_table_that_lost_its_name_is_a_conflict(self, full_world: World) -> None:
        full_world.make("orders")
        session = full_world.session()
        by_name, by_id = session.transaction(), session.transaction()
        by_name.table("orders").append(rows(1))
        session.inside(by_id).table_by_id(session.table("orders").id).append(rows(2))
        session.rename("orders", "orders_old")
        full_world.make("orders")
        with pytest.raises(ConflictError, match=r"R8.*no longer called main\.default\.orders"):
            by_name.commit()
        assert by_name.state is State.REJECTED
        assert ids_in(session.table("orders_old").to_arrow()) == []
        by_id.commit()
        assert ids_in(session.table("orders_old").to_arrow()) == [2]
        assert ids_in(session.table("orders").to_arrow()) == []

    @req("MT-06")
    def test_after_an_unknown_outcome_commit_returns_the_first_answer(
        self, full_world: World
    ) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        losing = LosingCuts(full_world.catalog, lost_answers=3)
        session = full_world.session(losing, unknown_wait_s=0.01)
        txn = session.transaction()
        txn.table("a").append(rows(1))
        txn.table("b").append(rows(2))
        with pytest.raises(OutcomeUnknownError):
            txn.commit()
        assert txn.state is State.UNKNOWN
        with pytest.raises(TransactionEndedError):
            txn.table("a")
        losing.lost_answers = 0
        txn.commit()
        assert txn.state is State.RATIFIED
        assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([1], [2])
        assert txn.versions == {"default.a": 1, "default.b": 1}


@req("MT-01")
def test_a_catalog_without_sequences_refuses_the_second_table(tmp_path: Path) -> None:
    world = filesystem_world(tmp_path)
    a, b = world.make("a"), world.make("b")
    with world.session().transaction() as txn:
        txn.table("a").append(rows(1))
        with pytest.raises(UnsupportedByCatalogError, match="only one table"):
            txn.table("b").append(rows(2))
    assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([1], [])


def _plain(name: str) -> str:
    return name.rpartition(".")[2]


def test_a_function_is_run_again_after_a_conflict(world: World) -> None:
    orders = world.make("orders")
    orders.append(rows(1))
    runs: list[str] = []

    def replace(txn: Transaction) -> int:
        runs.append(txn.id)
        inside = txn.table("orders")
        inside.overwrite(rows(len(inside.to_arrow()) + 10))
        if len(runs) < 3:
            orders.overwrite(rows(*range(len(runs) + 1)))
        return len(runs)

    assert world.session().transact(replace) == 3
    assert len(set(runs)) == 3
    assert ids_in(orders.to_arrow()) == [13]
    runs.clear()
    with pytest.raises(ConflictError):
        world.session().transact(replace, tries=2)
    assert len(runs) == 2
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        world.session().transact(replace, tries=0)


def test_a_transaction_starts_from_what_its_session_has_read(near_world: World) -> None:
    orders = near_world.make("orders")
    orders.append(rows(1))
    session = near_world.session()
    assert ids_in(session.table("orders").to_arrow()) == [1]
    near_world.publish(orders)
    store = near_world.store_for(orders.location)
    with session.transaction() as txn:
        before = store.count("get")
        assert ids_in(txn.table("orders").to_arrow(columns=["id"], where="id < 0")) == []
        assert store.count("get") == before
        # Versions of others are not those of the transaction, whatever their numbers.
        orders.append(rows(2))
        assert ids_in(session.table("orders").to_arrow()) == [1, 2]
        txn.table("orders").append(rows(3))
        assert ids_in(txn.table("orders").to_arrow()) == [1, 3]
    assert ids_in(session.table("orders").to_arrow()) == [1, 2, 3]


def test_the_latest_sequence_is_answered_without_a_time(full_world: World) -> None:
    orders = full_world.make("orders")
    cuts = require(full_world.catalog, Cuts)
    before = cuts.sequence_at()
    orders.append(rows(1))
    assert cuts.sequence_at() == orders.snapshot().sequence == before + 1
