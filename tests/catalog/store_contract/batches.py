"""Batches: written as a whole if nothing changed since they were decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import (
    DECIDED_COLUMNS,
    AnswerRow,
    Batch,
    CatalogClock,
    Epoch,
    ListenerRow,
    LocationRow,
    Publication,
    RejectionRow,
    TableRow,
    TokenRow,
)
from headgate.catalog.stores.writer import WriteUnit
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.table_states import TableStatus
from tests.catalog.store_contract.rows import (
    SCHEMA,
    OpenStore,
    UndoneError,
    commit_row,
    found,
    insert,
    insert_commits,
    name,
    table_id,
    table_row,
)
from tests.kit import req, shows
from tests.kit.builders import START_MS

Change = Callable[[WriteUnit, TableRow], object]

FILE = KnownFile(kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=("c",))

# By name: what a unit of another process does, to a table with two commits
COUNTED: dict[str, Change] = {
    "ratification": lambda unit, row: ratify(unit, row, 2, 9),
    "sequence": lambda unit, _: unit.advance_clock(CatalogClock(Sequence(9), 9), None),
    "namespace": lambda unit, _: unit.insert_namespace(SCHEMA, 1),
    "name": lambda unit, row: unit.assign_name(name("t"), row.id, Sequence(2)),
    "new table": lambda unit, _: unit.insert_table(table_row(9)),
    "state": lambda unit, row: unit.update_table(row._replace(state=TableStatus.DROPPED)),
    "diverged": lambda unit, row: unit.set_diverged(row.key, "why"),
    "file": lambda unit, row: unit.insert_file(row.key, FILE),
    "publication": lambda unit, row: unit.record_published(row.key, Version(0), Version(0), 5),
    "deleted content": lambda unit, row: unit.delete_content(row.key, Version(0)),
    "rejection": lambda unit, _: unit.insert_rejection(rejection("other")),
    "location": lambda unit, _: unit.insert_location(LocationRow("s3://b", 1)),
    "batch with a ratification": lambda unit, row: unit.write_batch(ratifying(row, 2, 9)),
    "batch without": lambda unit, _: unit.write_batch(Batch(rejections=[rejection("other")])),
}
UNCOUNTED: dict[str, Change] = {
    "nothing": lambda *_: None,
    "lease": lambda unit, _: unit.acquire_lease("a", "me", 1, 2),
    "released lease": lambda unit, _: unit.release_lease("held", "me"),
    "token": lambda unit, _: unit.insert_token(TokenRow("a", b"1", 1)),
    "answer": lambda unit, _: unit.insert_answer(AnswerRow("a", b"", b"", 1)),
    "listener": lambda unit, _: unit.put_listener(ListenerRow("a", "", "", Sequence(0), 1)),
    "setting": lambda unit, _: unit.set_setting("key", "value"),
    "old events": lambda unit, _: unit.delete_events(Sequence(1)),
    "old rejections": lambda unit, _: unit.delete_rejections(10**15),
    "a change of no row": lambda unit, _: unit.release_name(table_id(7), Sequence(9)),
    "a publication known": lambda unit, row: unit.record_published(
        row.key, Version(-1), Version(-1), 5
    ),
    "an empty batch": lambda unit, _: unit.write_batch(Batch()),
}


def ratify(unit: WriteUnit, row: TableRow, version: int, sequence: int) -> None:
    unit.insert_commit(row.key, commit_row(version, sequence, "other"))
    unit.update_table(row._replace(head=Version(version)))
    unit.advance_clock(CatalogClock(Sequence(sequence), 5), TxnId("other"))


def ratifying(row: TableRow, version: int, sequence: int, **changed: Any) -> Batch:
    """Return a batch with one commit, whose txnId has its number."""
    commit = commit_row(version, sequence, **changed)
    return Batch(
        clocks=[(CatalogClock(Sequence(sequence), START_MS), commit.txn_id)],
        commits=[(row.key, commit)],
        tables=[row._replace(head=Version(version), timestamp_ms=commit.timestamp_ms)],
        undecided=[commit.txn_id],
    )


def rejection(txn: str) -> RejectionRow:
    return RejectionRow(TxnId(txn), b"intent", b"answer", START_MS)


def epoch(store: CatalogStore) -> Epoch:
    with store.read() as unit:
        return unit.epoch()


def versions(store: CatalogStore, row: TableRow) -> list[int]:
    with store.read() as unit:
        kept = unit.commits(row.key, Version(0), Version(10**6), content=False)
    return [commit.version for commit in kept]


def prepared(store: CatalogStore) -> TableRow:
    """Insert a table with two commits, an old rejection and a lease."""
    [row] = insert(store, 1)
    row = insert_commits(store, row, commit_row(0), commit_row(1))
    with store.write() as unit:
        for version in (0, 1):
            clock = CatalogClock(Sequence(version + 1), version)
            unit.advance_clock(clock, TxnId(f"txn-{version}"))
        unit.insert_rejection(rejection("old"))
        unit.acquire_lease("held", "me", 1, 10**15)
    return row


class BatchContract:
    def test_every_row_of_a_batch_is_stored(self, store: CatalogStore) -> None:
        one, two, three = insert(store, 1, 2, 3)
        three = insert_commits(
            store, three, *(commit_row(v, 1, f"3-{v}") for v in range(3)), published=0
        )
        staged = commit_row(
            1, 3, "y", way=Way.STAGED, file_name="é", modified_ms=-5, summary=None, size=2**63 - 1
        )
        one_after = one._replace(
            head=Version(1),
            timestamp_ms=7,
            protocol=b"\0\xff",
            metadata=b"m" * 10_000,
            metadata_version=Version(0),
            domains=b"[1]",
            row_id_high_water=8,
            num_files=9,
            size_bytes=10,
            ticket=TxnId("it's"),
            ticket_until_ms=11,
        )
        two_after = two._replace(head=Version(0), num_files=None, size_bytes=0)
        batch = Batch(
            clocks=[
                (CatalogClock(Sequence(2), 5), TxnId("x")),
                (CatalogClock(Sequence(3), 6), TxnId("y")),
            ],
            commits=[
                (one.key, commit_row(0, 2, "x", content=b"")),
                (two.key, commit_row(0, 2, "x", content=bytes(range(256)) * 99)),
                (one.key, staged),
            ],
            tables=[one_after, two_after],
            rejections=[rejection('"\\{},NULL'), rejection("")],
            published=[Publication(three.key, Version(0), Version(1), 77)],
            undecided=[TxnId(txn) for txn in ("x", "y", '"\\{},NULL', "")],
        )
        before = epoch(store)
        after = store.write_batch(before, batch)
        assert after == Epoch(Sequence(3), before.changes) == epoch(store)
        with store.read() as unit:
            assert unit.clock() == (3, 6)
            found_rows = unit.tables_by_id([one.id, two.id, table_id(8)])
            assert sorted(found_rows) == [one_after, two_after]
            commits = unit.commits(one.key, Version(0), Version(9), content=True, summary=True)
            assert commits == [commit_row(0, 2, "x", content=b""), staged]
            assert dict(unit.transaction_commits(TxnId("x")))[two.id] == batch.commits[1][1]  # type: ignore[index]
            assert unit.rejection(TxnId("")) == rejection("")
            assert unit.rejection(TxnId('"\\{},NULL')) == rejection('"\\{},NULL')
            assert unit.decided([TxnId(txn) for txn in ("x", "z", "")]) == {"x", ""}
            published = unit.commits(three.key, Version(0), Version(9), content=False)
            assert [commit.published_ms for commit in published] == [77, 77, None]
            assert [event.txn_id for event in unit.events(Sequence(0), 9)] == ["x", "y"]
        assert found(store, 3) == three._replace(published=Version(1))

    @pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
    def test_a_batch_may_have_any_number_of_rows(self, store: CatalogStore, count: int) -> None:
        rows = insert(store, *range(1, 18))
        heads = {row.key: -1 for row in rows}
        batch = Batch([], [], [], [], [], [])
        for number in range(count):
            row = rows[number % len(rows)]
            heads[row.key] += 1
            commit = commit_row(heads[row.key], number + 1, f"txn {number}")
            batch.clocks.append((CatalogClock(Sequence(number + 1), number), commit.txn_id))  # type: ignore[attr-defined]
            batch.commits.append((row.key, commit))  # type: ignore[attr-defined]
            batch.rejections.append(rejection(f"no {number}"))  # type: ignore[attr-defined]
            batch.undecided.extend([commit.txn_id, TxnId(f"no {number}")])  # type: ignore[attr-defined]
        after = [row._replace(head=Version(heads[row.key])) for row in rows]
        batch.tables.extend(row for row in after if row.head >= 0)  # type: ignore[attr-defined]
        assert store.write_batch(epoch(store), batch) == epoch(store) == (count, 1)
        with store.read() as unit:
            assert len(unit.decided(batch.undecided)) == 2 * count
            assert [event.txn_id for event in unit.events(Sequence(0), 999)] == [
                f"txn {number}" for number in range(count)
            ]
            assert sorted(unit.tables_by_id([row.id for row in rows])) == after

    def test_an_empty_batch_is_written_without_a_look_at_the_epoch(
        self, store: CatalogStore
    ) -> None:
        never = Epoch(Sequence(99), 99)
        assert store.write_batch(never, Batch(undecided=[TxnId("x")])) == never
        assert epoch(store) == (0, 0)

    @req("CM-11")
    @shows("S2")
    @pytest.mark.parametrize("change", COUNTED.values(), ids=COUNTED)
    def test_a_batch_is_stale_after_a_change_by_another_process(
        self, store: CatalogStore, open_store: OpenStore, change: Change
    ) -> None:
        row = prepared(store)
        expected = epoch(store)
        with open_store("one").write() as unit:
            change(unit, row)
            changed = unit.epoch()
        assert changed == epoch(store) != expected
        batch = ratifying(row, 7, 20)._replace(rejections=[rejection("no")])
        assert store.write_batch(expected, batch) is None
        with store.read() as unit:
            assert unit.epoch() == changed
            assert unit.rejection(TxnId("no")) is None
            assert unit.clock().sequence < 20
        assert 7 not in versions(store, row)
        assert store.write_batch(changed, batch) == Epoch(Sequence(20), changed.changes)
        assert 7 in versions(store, row)

    @pytest.mark.parametrize("change", UNCOUNTED.values(), ids=UNCOUNTED)
    def test_a_batch_is_not_stale_after_what_no_decision_depends_on(
        self, store: CatalogStore, open_store: OpenStore, change: Change
    ) -> None:
        row = prepared(store)
        expected = epoch(store)
        with open_store("one").write() as unit:
            change(unit, row)
        assert epoch(store) == expected
        assert store.write_batch(expected, ratifying(row, 2, 3)) == (3, expected.changes)

    @pytest.mark.parametrize(
        "undone", [COUNTED["diverged"], COUNTED["sequence"], COUNTED["ratification"]]
    )
    def test_a_unit_does_not_count_what_it_undid(self, store: CatalogStore, undone: Change) -> None:
        row = prepared(store)
        before = epoch(store)
        for is_changed in (False, True):
            with store.write() as unit:
                assert unit.epoch() == before
                with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                    undone(unit, row)
                    assert unit.epoch() != before
                    raise UndoneError
                assert unit.epoch() == before
                if is_changed:
                    unit.set_diverged(row.key, "why")
            assert epoch(store) == Epoch(before.sequence, before.changes + is_changed)

    def test_a_unit_counts_once_and_only_if_it_is_kept(self, store: CatalogStore) -> None:
        row = prepared(store)
        before = epoch(store)
        with store.write() as unit:
            for why in ("a", "b"):
                unit.set_diverged(row.key, why)
                unit.insert_rejection(rejection(why))
        assert epoch(store) == Epoch(before.sequence, before.changes + 1)
        with pytest.raises(UndoneError), store.write() as unit:  # noqa: PT012
            unit.set_diverged(row.key, "no")
            raise UndoneError
        assert epoch(store) == Epoch(before.sequence, before.changes + 1)

    @req("CM-42", "CM-47")
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_a_batch_with_a_key_that_is_decided_writes_nothing(
        self, store: CatalogStore, is_commit: bool
    ) -> None:
        row = prepared(store)
        taken = "txn-0" if is_commit else "old"
        batch = ratifying(row, 2, 3)._replace(
            rejections=[rejection("no")], undecided=[TxnId("txn-2"), TxnId(taken), TxnId("no")]
        )
        before = epoch(store)
        assert store.write_batch(before, batch) is None
        assert epoch(store) == before
        assert versions(store, row) == [0, 1]
        with store.read() as unit:
            assert unit.decided(batch.undecided) == {taken}
        undecided = [TxnId("txn-2"), TxnId("no")]
        assert store.write_batch(before, batch._replace(undecided=undecided)) == epoch(store)
        assert versions(store, row) == [0, 1, 2]

    def test_batches_without_a_ratification_count_as_a_change(self, store: CatalogStore) -> None:
        row = prepared(store)
        now = epoch(store)
        batches = [
            Batch(rejections=[rejection("a")], undecided=[TxnId("a")]),
            Batch(tables=[row._replace(ticket=TxnId("b"), ticket_until_ms=9)]),
            Batch(published=[Publication(row.key, Version(0), Version(1), 5)]),
        ]
        for batch in batches:
            after = store.write_batch(now, batch)
            assert after == epoch(store) == Epoch(now.sequence, now.changes + 1)
            assert store.write_batch(now, batch._replace(undecided=())) is None
            now = after
        again = Batch(published=[Publication(row.key, Version(0), Version(1), 6)])
        assert store.write_batch(now, again) == epoch(store) == now
        assert found(store).published == 1

    def test_a_batch_changes_of_a_table_only_what_is_decided(self, store: CatalogStore) -> None:
        row = prepared(store)
        changed = row._replace(
            published=Version(1),
            diverged="why",
            held_from=Version(1),
            state=TableStatus.DROPPED,
            dropped_ms=5,
        )
        with store.write() as unit:
            unit.update_table(changed)
        # Decided on the row as it was
        after = row._replace(head=Version(2), timestamp_ms=1, domains=b"[2]", ticket_until_ms=3)
        batch = ratifying(row, 2, 3)._replace(tables=[after])
        assert store.write_batch(epoch(store), batch) is not None
        decided = {column: getattr(after, column) for column in DECIDED_COLUMNS}
        assert found(store) == changed._replace(**decided)

    def test_protocol_and_metadata_change_with_the_commit_that_says_so(
        self, store: CatalogStore
    ) -> None:
        row = prepared(store)._replace(protocol=b"p", metadata=b"m")
        batch = ratifying(row, 2, 3)
        assert store.write_batch(epoch(store), batch) is not None
        assert (found(store).protocol, found(store).metadata) == (b"{}", b"{}")
        batch = ratifying(row._replace(metadata_version=Version(3)), 3, 4)
        assert store.write_batch(epoch(store), batch) is not None
        kept = found(store)
        assert (kept.protocol, kept.metadata, kept.metadata_version) == (b"p", b"m", 3)

    def test_a_publication_only_moves_forward_and_deletes_staged_content(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        staged = [commit_row(v, txn=f"s{v}", way=Way.STAGED, file_name="f") for v in range(3)]
        one = insert_commits(store, one, *staged)
        two = insert_commits(store, two, *(commit_row(v) for v in range(3)))
        for last, now_ms, reached in ((1, 5, 1), (0, 6, 1), (2, 7, 2), (1, 8, 2)):
            published = [
                Publication(row.key, Version(0), Version(last), now_ms) for row in (one, two)
            ]
            # One of the tables is decided, too.
            batch = Batch(published=published, tables=[two._replace(timestamp_ms=now_ms)])
            assert store.write_batch(epoch(store), batch) == epoch(store)
            assert [found(store, number).published for number in (1, 2)] == [reached, reached]
            assert [found(store, number).timestamp_ms for number in (1, 2)] == [
                one.timestamp_ms,
                now_ms,
            ]
        with store.read() as unit:
            for row in (one, two):
                kept = unit.commits(row.key, Version(0), Version(9), content=True)
                assert [commit.published_ms for commit in kept] == [5, 5, 7]
                assert {commit.content is None for commit in kept} == {row is one}
            assert unit.unpublished_tables() == []

    def test_a_batch_publishes_what_it_ratifies_and_is_read_in_its_unit(
        self, store: CatalogStore
    ) -> None:
        row = prepared(store)
        batch = ratifying(row, 2, 3)
        with store.write() as unit:
            unit.set_diverged(row.key, "why")
            unit.write_batch(batch)
            assert unit.clock() == (3, START_MS)
            assert [c.version for c in unit.commits(row.key, Version(2), Version(9), content=False)]
            assert unit.decided(batch.undecided) == {"txn-2"}
            with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                unit.write_batch(ratifying(row, 3, 4))
                assert unit.clock().sequence == 4
                raise UndoneError
            assert unit.clock().sequence == unit.epoch().sequence == 3
        assert versions(store, row) == [0, 1, 2]
        assert found(store) == row._replace(
            head=Version(2), timestamp_ms=START_MS + 2, diverged="why"
        )

    def test_many_are_read_at_once(self, store: CatalogStore) -> None:
        rows = insert(store, *range(1, 6))
        ids = [row.id for row in rows]
        with store.read() as unit:
            assert sorted(unit.tables_by_id([*ids[1:3], table_id(9)])) == rows[1:3]
            assert unit.tables_by_id([]) == []
            assert unit.decided([]) == set()
