"""The clock, the event feed and counts."""

from __future__ import annotations

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import (
    CatalogClock,
    CommitRow,
    EventRow,
    ListenerRow,
    RejectionRow,
    StoreConstraintError,
    TokenRow,
)
from headgate.protocol.actions import Sequence, TxnId
from headgate.protocol.table_states import TableStatus
from tests.catalog.store_contract.rows import (
    commit_row,
    insert,
    insert_commits,
    name,
)
from tests.kit.builders import START_MS


class EventContract:
    def test_a_sequence_is_unique(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 5), None)
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 6), None)
        with store.read() as unit:
            assert unit.clock() == (1, 5)

    def test_the_clock_at_a_time_is_the_last_not_later(self, store: CatalogStore) -> None:
        ticks = [(1, 10), (2, 10), (3, 12), (4, 12), (5, 12), (6, 20)]
        with store.write() as unit:
            for sequence, clock_ms in ticks:
                unit.advance_clock(CatalogClock(Sequence(sequence), clock_ms), TxnId(str(sequence)))
        with store.read() as unit:
            clocks = {ms: unit.clock_at(ms) for ms in (0, 9, 10, 11, 12, 13, 19, 20, 10**15)}
        assert clocks == {
            0: None,
            9: None,
            10: (2, 10),
            11: (2, 10),
            12: (5, 12),
            13: (5, 12),
            19: (5, 12),
            20: (6, 20),
            10**15: (6, 20),
        }

    def test_events_list_all_changes_in_order_and_can_be_read_in_pages(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        t, u = name("t"), name("U")
        creating, moving = TxnId("creating"), TxnId("moving")
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 10), creating)
            unit.insert_commit(one.key, commit_row(0, 1, creating))
            unit.assign_name(t, one.id, Sequence(1))
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(2), 20), moving)
            unit.insert_commit(one.key, commit_row(1, 2, moving))
            unit.insert_commit(two.key, commit_row(0, 2, moving))
            unit.advance_clock(CatalogClock(Sequence(3), 20), None)  # a rename
            unit.release_name(one.id, Sequence(3))
            unit.assign_name(u, one.id, Sequence(3))
            unit.advance_clock(CatalogClock(Sequence(4), 30), None)  # a drop
            unit.release_name(one.id, Sequence(4))
            # Repaired from a log, a transaction's second part has a sequence of its own.
            unit.advance_clock(CatalogClock(Sequence(5), 31), creating)
            unit.insert_commit(two.key, commit_row(1, 5, creating))
            unit.advance_clock(CatalogClock(Sequence(6), 32), TxnId("of nothing"))

        def listed(version: int, sequence: int, txn: str) -> CommitRow:
            return commit_row(version, sequence, txn, content=None, summary=None)

        expected = [
            EventRow(
                Sequence(1), 10, creating, ((one.id, listed(0, 1, creating)),), ((t, one.id),), ()
            ),
            EventRow(
                Sequence(2),
                20,
                moving,
                ((one.id, listed(1, 2, moving)), (two.id, listed(0, 2, moving))),
                (),
                (),
            ),
            EventRow(Sequence(3), 20, None, (), ((u, one.id),), ((t, one.id),)),
            EventRow(Sequence(4), 30, None, (), (), ((u, one.id),)),
            EventRow(Sequence(5), 31, creating, ((two.id, listed(1, 5, creating)),), (), ()),
            EventRow(Sequence(6), 32, TxnId("of nothing"), (), (), ()),
        ]
        with store.read() as unit:
            for after in range(8):
                for limit in range(8):
                    assert unit.events(Sequence(after), limit) == expected[after : after + limit]

    def test_old_events_are_deleted_and_the_newest_is_kept(self, store: CatalogStore) -> None:
        with store.write() as unit:
            assert unit.oldest_event() is None
            unit.delete_events(Sequence(5))
            for sequence in range(1, 6):
                txn_id = TxnId(f"txn {sequence}")
                unit.advance_clock(CatalogClock(Sequence(sequence), 10 * sequence), txn_id)
        for last, oldest in ((0, 1), (2, 3), (1, 3), (9, 5)):
            with store.write() as unit:
                unit.delete_events(Sequence(last))
            with store.read() as unit:
                assert unit.oldest_event() == CatalogClock(Sequence(oldest), 10 * oldest)
                assert unit.clock() == CatalogClock(Sequence(5), 50)
                kept = [event.sequence for event in unit.events(Sequence(0), 9)]
                assert kept == list(range(oldest, 6))
                assert unit.clock_at(10 * oldest - 1) is None
                assert unit.clock_at(59) == CatalogClock(Sequence(5), 50)

    def test_a_unit_that_deletes_events_keeps_its_own(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 10), TxnId("a"))
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(2), 20), TxnId("b"))
            unit.delete_events(Sequence(2))
            assert unit.oldest_event() == unit.clock() == CatalogClock(Sequence(2), 20)
            unit.advance_clock(CatalogClock(Sequence(3), 30), TxnId("c"))
        with store.read() as unit:
            assert [event.txn_id for event in unit.events(Sequence(1), 9)] == ["b", "c"]

    def test_counts_are_the_numbers_of_rows(self, store: CatalogStore) -> None:
        with store.read() as unit:
            assert unit.counts() == ({}, 0, 0, None, None, 0, 0, 0)
        one, two, three, _ = insert(store, 1, 2, 3, 4)
        insert_commits(store, one, *map(commit_row, range(5)), published=3)
        insert_commits(store, two, *map(commit_row, range(7)), published=4)
        dropped = insert_commits(store, three, commit_row(0))
        with store.write() as unit:
            unit.update_table(dropped._replace(state=TableStatus.DROPPED))
            unit.insert_rejection(RejectionRow(TxnId("x"), b"", b"", START_MS))
            unit.put_listener(ListenerRow("a", "webhook", "", Sequence(0), START_MS))
            unit.insert_token(TokenRow("a", b"1", 1))
            unit.insert_token(TokenRow("b", b"2", 1, revoked_ms=1))
        with store.read() as unit:
            counts = unit.counts()
        assert counts == (
            {TableStatus.ACTIVE: 3, TableStatus.DROPPED: 1},
            0,
            3,
            (two.id, 2),
            commit_row(4).ratified_ms,
            1,
            1,
            1,
        )
