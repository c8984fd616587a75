"""Units of work: isolation and savepoints."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import CatalogClock, StoreConstraintError, TokenRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import InvalidArgumentError
from headgate.protocol.actions import Sequence, TxnId, Version
from tests.catalog.store_contract.rows import (
    OpenStore,
    UndoneError,
    commit_row,
    found,
    insert,
    name,
    table_id,
    table_row,
)
from tests.kit import req, shows


class UnitContract:
    @pytest.mark.parametrize(("number", "text"), [(2**63, "a"), (-(2**63) - 1, "a"), (5, "\ud800")])
    def test_a_value_that_cannot_be_stored_is_refused_and_the_store_goes_on(
        self, store: CatalogStore, number: int, text: str
    ) -> None:
        def write(timestamp_ms: int, txn_id: str) -> None:
            with store.write() as unit:
                unit.advance_clock(CatalogClock(Sequence(1), timestamp_ms), TxnId(txn_id))

        with pytest.raises(InvalidArgumentError, match="cannot store"):
            write(number, text)
        with store.read() as unit:
            assert unit.clock() == (0, 0)
        write(2**63 - 1, "a")
        with store.read() as unit:
            assert unit.clock() == (1, 2**63 - 1)

    @shows("S17")
    def test_a_read_is_one_instant_while_another_writes(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        [row] = insert(store, 1)
        other = open_store("one")
        with store.read() as unit:
            assert unit.clock() == (0, 0)
            with other.write() as writing:
                writing.advance_clock(CatalogClock(Sequence(1), 5), None)
                writing.insert_commit(row.key, commit_row(0))
                writing.update_table(row._replace(head=Version(0)))
                writing.assign_name(name("t"), row.id, Sequence(1))
            assert unit.clock() == (0, 0)
            assert unit.table(row.id) == row
            assert unit.commits(row.key, Version(0), Version(9), content=True) == []
            assert unit.table_id_of(name("t")) is None
        with store.read() as unit:
            assert unit.clock() == (1, 5)
            assert unit.table(row.id) == row._replace(head=Version(0))
            assert unit.table_id_of(name("t")) == row.id

    def test_a_unit_reads_what_it_wrote_and_others_do_not_until_it_ends(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        other = open_store("one")
        with store.write() as unit:
            row = unit.insert_table(table_row())
            assert unit.table(row.id) == row
            with other.read() as reading:
                assert reading.table(row.id) is None
        assert found(other) == row

    @req("MT-01")
    @shows("S7")
    def test_a_unit_that_fails_writes_nothing_and_the_next_one_works(
        self, store: CatalogStore
    ) -> None:
        with pytest.raises(UndoneError), store.write() as unit:  # noqa: PT012
            row = unit.insert_table(table_row())
            unit.insert_commit(row.key, commit_row(0))
            unit.assign_name(name("t"), row.id, Sequence(1))
            unit.advance_clock(CatalogClock(Sequence(1), 5), None)
            unit.set_setting("key", "value")
            raise UndoneError
        with store.read() as unit:
            assert unit.clock() == (0, 0)
            assert unit.table(table_id(1)) is None
            assert unit.table_id_of(name("t")) is None
            assert unit.setting("key") is None
            assert unit.clock_at(10) is None
        insert(store, 1)
        assert found(store).id == table_id(1)

    def test_a_keyboard_interrupt_rolls_back_the_unit(self, store: CatalogStore) -> None:
        with pytest.raises(KeyboardInterrupt), store.write() as unit:  # noqa: PT012
            unit.insert_table(table_row())
            raise KeyboardInterrupt
        with store.read() as unit:
            assert unit.table(table_id(1)) is None
        insert(store, 1)

    def test_a_failed_savepoint_rolls_back_only_itself(self, store: CatalogStore) -> None:
        with store.write() as unit:
            with unit.savepoint():
                unit.insert_table(table_row(1))
            with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                unit.insert_table(table_row(2))
                raise UndoneError
            with unit.savepoint():
                unit.insert_table(table_row(3))
                with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                    unit.insert_table(table_row(4))
                    raise UndoneError
                unit.insert_table(table_row(5))
        with store.read() as unit:
            inserted = [n for n in range(1, 6) if unit.table(table_id(n)) is not None]
        assert inserted == [1, 3, 5]

    def test_a_constraint_violation_in_a_savepoint_keeps_the_rest_of_the_unit(
        self, store: CatalogStore
    ) -> None:
        with store.write() as unit:
            row = unit.insert_table(table_row())
            unit.insert_commit(row.key, commit_row(0))
            with pytest.raises(StoreConstraintError), unit.savepoint():  # noqa: PT012
                unit.set_setting("key", "value")
                unit.insert_commit(row.key, commit_row(0, txn="another"))
            unit.insert_commit(row.key, commit_row(1))
        with store.read() as unit:
            commits = unit.commits(row.key, Version(0), Version(9), content=True, summary=True)
            assert unit.setting("key") is None
        assert commits == [commit_row(0), commit_row(1)]

    @pytest.mark.parametrize("is_read", [True, False])
    def test_a_failed_savepoint_rolls_back_only_itself_after_any_reads(
        self, store: CatalogStore, is_read: bool
    ) -> None:
        [row] = insert(store, 1)
        a, b = TxnId("a"), TxnId("b")

        def ratify(unit: WriteUnit, version: int, txn_id: TxnId) -> None:
            sequence = Sequence(version + 1)
            unit.insert_commit(row.key, commit_row(version, sequence, txn_id))
            unit.update_table(row._replace(head=Version(version)))
            unit.advance_clock(CatalogClock(sequence, version), txn_id)

        with store.write() as unit:
            ratify(unit, 0, a)
            unit.set_setting("outer", "kept")
            with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                ratify(unit, 1, b)
                unit.set_setting("inner", "kept")
                if is_read:  # a query sees everything that was written
                    kept = unit.commits(row.key, Version(0), Version(9), content=False)
                    assert [commit.txn_id for commit in kept] == [a, b]
                    with unit.savepoint():
                        unit.insert_token(TokenRow("a", b"1", 1))
                    assert unit.setting("outer") == unit.setting("inner") == "kept"
                raise UndoneError
            assert unit.clock() == (1, 0)
            assert unit.table(row.id) == row._replace(head=Version(0))
            assert unit.transaction_commits(b) == []
            if is_read:
                assert unit.tokens() == []
            ratify(unit, 1, b)
            with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                unit.set_setting("outer", "changed")
                if is_read:
                    assert unit.setting("outer") == "changed"
                raise UndoneError
        with store.read() as reading:
            kept = reading.commits(row.key, Version(0), Version(9), content=False)
            assert [commit.txn_id for commit in kept] == [a, b]
            assert reading.clock() == (2, 1)
            assert reading.table(row.id) == row._replace(head=Version(1))
            assert (reading.setting("outer"), reading.setting("inner")) == ("kept", None)
            assert [event.txn_id for event in reading.events(Sequence(0), 9)] == [a, b]

    def test_a_closed_store_can_be_opened_again_with_its_rows(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        insert(store, 1)
        store.close()
        assert found(open_store("one")).id == table_id(1)

    def test_units_of_many_threads_and_two_stores_are_serialized(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        stores = [store, open_store("one")]

        def count(number: int) -> None:
            for _ in range(10):
                with stores[number % 2].write() as unit:
                    before = unit.clock()
                    unit.advance_clock(CatalogClock(Sequence(before.sequence + 1), 0), None)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(count, range(6)))
        with store.read() as unit:
            assert unit.clock() == (60, 0)

    def test_a_read_within_a_read_sees_another_instant(self, store: CatalogStore) -> None:
        with store.read() as outer:
            assert outer.setting("key") is None
            with store.write() as unit:
                unit.set_setting("key", "value")
            with store.read() as inner:
                assert inner.setting("key") == "value"
            assert outer.setting("key") is None

    def test_read_latest_sees_later_commits_and_answers_like_read(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        [row] = insert(store, 1)
        other = open_store("one")
        with store.read_latest() as latest:
            assert (latest.clock(), latest.table(row.id)) == ((0, 0), row)
            with other.write() as writing:
                writing.advance_clock(CatalogClock(Sequence(1), 5), None)
                writing.assign_name(name("t"), row.id, Sequence(1))
            assert (latest.clock(), latest.table_id_of(name("t"))) == ((1, 5), row.id)
            with store.read_latest() as inner, store.read() as unit:
                assert inner.events(Sequence(0), 9) == unit.events(Sequence(0), 9) != []
                assert latest.counts() == unit.counts()
