"""What every catalog store does, whatever holds the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog.decider import as_commit
from headgate.catalog.stores.port import (
    AnswerRow,
    CatalogClock,
    CatalogStore,
    CommitHeader,
    CommitRow,
    EventRow,
    ListenerRow,
    LocationRow,
    NamedTableRow,
    ReadUnit,
    RejectionRow,
    StoreConstraintError,
    TableRow,
    TokenRow,
    WriteUnit,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.storage import locations
from tests.kit import req, shows
from tests.kit.builders import START_MS

OpenStore = Callable[[str], CatalogStore]  # the same name, the same rows
SCHEMA = SchemaName("main", "default")


class UndoneError(Exception):
    """Raised to have a unit or a savepoint undone."""


def table_id(number: int) -> TableId:
    return TableId(str(UUID(int=number)))


def table_row(number: int = 1, **changed: Any) -> TableRow:
    """A table at version -1; `key` is the store's to give."""
    row = TableRow(
        key=0,
        id=table_id(number),
        state=TableStatus.ACTIVE,
        location=f"file:///lake/tables/{number}",
        head=Version(-1),
        timestamp_ms=0,
        published=Version(-1),
        held_from=Version(0),
        protocol=b"{}",
        metadata=b"{}",
        metadata_version=Version(-1),
        domains=b"[]",
        row_id_high_water=None,
        num_files=None,
        size_bytes=None,
        diverged=None,
        ticket=None,
        ticket_until_ms=0,
        created_ms=START_MS,
        dropped_ms=None,
    )
    return row._replace(**changed)


def commit_row(version: int, sequence: int = 0, txn: str = "", **changed: Any) -> CommitRow:
    row = CommitRow(
        version=Version(version),
        sequence=Sequence(sequence or version + 1),
        timestamp_ms=START_MS + version,
        txn_id=TxnId(txn or f"txn-{version}"),
        way=Way.INLINE,
        file_name=None,
        size=7,
        sha256=bytes(32),
        modified_ms=None,
        intent=b"intent",
        proposed_ms=START_MS + version,
        ratified_ms=START_MS + version + 1,
        published_ms=None,
        summary=b"summary %d" % version,
        content=b"content %d" % version,
    )
    return row._replace(**changed)


def name(text: str) -> TableName:
    return TableName.parse(text)


def insert(store: CatalogStore, *numbers: int) -> list[TableRow]:
    with store.write() as unit:
        return [unit.insert_table(table_row(number)) for number in numbers]


def insert_commits(
    store: CatalogStore, row: TableRow, *commits: CommitRow, published: int = -1
) -> TableRow:
    """Record commits, and the head and the clock as they then are."""
    with store.write() as unit:
        for commit in commits:
            unit.insert_commit(row.key, commit)
        last = commits[-1]
        row = row._replace(
            head=last.version, timestamp_ms=last.timestamp_ms, published=Version(published)
        )
        unit.update_table(row)
    return row


def found(store: CatalogStore, number: int = 1) -> TableRow:
    with store.read() as unit:
        row = unit.table(table_id(number))
    assert row is not None
    return row


class StoreContract:
    """Subclasses give a fixture `open_store`: a name becomes a store, at first an empty one."""

    examples = 30

    @pytest.fixture
    def store(self, open_store: OpenStore) -> CatalogStore:
        return open_store("one")

    # One unit of work

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

    def test_a_unit_reads_what_it_wrote_and_nobody_else_does_until_it_ends(
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
    def test_a_unit_that_fails_leaves_nothing_behind_and_the_next_one_works(
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

    def test_a_unit_undone_by_what_no_code_catches_is_undone_too(self, store: CatalogStore) -> None:
        with pytest.raises(KeyboardInterrupt), store.write() as unit:  # noqa: PT012
            unit.insert_table(table_row())
            raise KeyboardInterrupt
        with store.read() as unit:
            assert unit.table(table_id(1)) is None
        insert(store, 1)

    def test_a_savepoint_undoes_itself_alone(self, store: CatalogStore) -> None:
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
            there = [number for number in range(1, 6) if unit.table(table_id(number)) is not None]
        assert there == [1, 3, 5]

    def test_a_constraint_that_spoke_in_a_savepoint_leaves_the_rest_of_the_unit_whole(
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
    def test_a_savepoint_that_fails_takes_back_its_own_alone_whatever_it_asked_meanwhile(
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
            unit.prefetch([a, b], [row.id])
            ratify(unit, 0, a)
            unit.set_setting("outer", "kept")
            with pytest.raises(UndoneError), unit.savepoint():  # noqa: PT012
                ratify(unit, 1, b)
                unit.set_setting("inner", "kept")
                if is_read:  # whoever asks is told of everything that was written
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

    def test_what_one_opening_wrote_another_finds_after_the_first_was_closed(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        insert(store, 1)
        store.close()
        assert found(open_store("one")).id == table_id(1)

    def test_units_of_many_threads_and_two_openings_come_one_after_the_other(
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

    def test_a_read_inside_a_read_is_another_instant(self, store: CatalogStore) -> None:
        with store.read() as outer:
            assert outer.setting("key") is None
            with store.write() as unit:
                unit.set_setting("key", "value")
            with store.read() as inner:
                assert inner.setting("key") == "value"
            assert outer.setting("key") is None

    def test_a_look_is_of_now_each_time_and_asks_what_a_read_does(
        self, store: CatalogStore, open_store: OpenStore
    ) -> None:
        [row] = insert(store, 1)
        other = open_store("one")
        with store.read_latest() as look:
            assert (look.clock(), look.table(row.id)) == ((0, 0), row)
            with other.write() as writing:
                writing.advance_clock(CatalogClock(Sequence(1), 5), None)
                writing.assign_name(name("t"), row.id, Sequence(1))
            assert (look.clock(), look.table_id_of(name("t"))) == ((1, 5), row.id)
            with store.read_latest() as inner, store.read() as unit:
                assert inner.events(Sequence(0), 9) == unit.events(Sequence(0), 9) != []
                assert look.counts() == unit.counts()

    # Constraints

    @req("CM-11")
    @shows("S2", "FX11")
    def test_a_version_is_taken_once(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        insert_commits(store, one, commit_row(0))
        insert_commits(store, two, commit_row(0))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_commit(one.key, commit_row(0, sequence=2, txn="another"))
        with store.read() as unit:
            [kept] = unit.commits(one.key, Version(0), Version(9), content=True)
        assert kept.txn_id == "txn-0"

    @shows("S3")
    def test_a_txn_id_is_taken_once_in_each_table(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        insert_commits(store, one, commit_row(0, txn="x"))
        insert_commits(store, two, commit_row(0, txn="x"))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_commit(one.key, commit_row(1, txn="x"))

    @pytest.mark.parametrize(
        ("taken", "other"),
        [("t", "t"), ("t", "T"), ("straße", "STRASSE"), ("Ünal", "U\u0308NAL"), ("σς", "ΣΣ")],
    )
    def test_a_current_name_is_taken_whatever_its_case(
        self, store: CatalogStore, taken: str, other: str
    ) -> None:
        one, two = insert(store, 1, 2)
        with store.write() as unit:
            unit.assign_name(name(taken), one.id, Sequence(1))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.assign_name(name(other), two.id, Sequence(2))
        with store.read() as unit:
            assert unit.table_id_of(name(other)) == one.id
            assert unit.name_of(one.id) == name(taken)  # and keeps its case

    def test_a_table_has_one_current_name(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        with store.write() as unit:
            unit.assign_name(name("t"), one.id, Sequence(1))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.assign_name(name("u"), one.id, Sequence(2))

    def test_an_id_and_a_place_are_taken_once(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        for taken in (table_row(2, location=one.location), table_row(1, location="file:///x")):
            with pytest.raises(StoreConstraintError), store.write() as unit:
                unit.insert_table(taken)
        with store.write() as unit:
            unit.insert_table(table_row(2))

    def test_a_place_is_free_again_once_its_table_is_purged_and_its_files_are_gone(
        self, store: CatalogStore
    ) -> None:
        [one] = insert(store, 1)
        again = table_row(2, location=one.location)
        purged = one._replace(state=TableStatus.PURGED)
        with store.write() as unit:
            unit.update_table(purged)
        with store.read() as unit:  # its files may still be there
            assert unit.overlapping_table(one.location) == purged
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_table(again)
        with store.write() as unit:
            unit.update_table(purged._replace(purged_ms=7))  # the last step of a purge
            assert unit.overlapping_table(one.location) is None
            unit.insert_table(again)
        assert found(store, 2).location == one.location

    def test_a_namespace_is_taken_whatever_its_case(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.insert_namespace(SchemaName("Main", "Sales"), 1)
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_namespace(SchemaName("main", "SALES"), 1)
        with store.write() as unit:
            assert unit.namespaces() == [SchemaName("Main", "Sales")]
            assert unit.namespace_creation_times() == {SchemaName("Main", "Sales"): 1}
            unit.delete_namespace(SchemaName("MAIN", "sales"))
            assert unit.namespaces() == []

    def test_a_sequence_is_taken_once(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 5), None)
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 6), None)
        with store.read() as unit:
            assert unit.clock() == (1, 5)

    def test_more_than_the_head_cannot_be_published(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        row = insert_commits(store, row, commit_row(0))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.record_published(row.key, Version(0), Version(1), START_MS)
        assert found(store).published == -1

    # Names over sequences

    def test_a_name_means_what_it_meant_at_every_sequence(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        t, u = name("t"), name("u")
        with store.write() as unit:
            unit.assign_name(t, one.id, Sequence(2))
            unit.release_name(one.id, Sequence(4))  # renamed
            unit.assign_name(u, one.id, Sequence(4))
            unit.assign_name(t, two.id, Sequence(6))  # made anew by another
            unit.release_name(one.id, Sequence(7))  # dropped
        with store.read() as unit:
            meant = [
                (unit.table_id_of(t, Sequence(at)), unit.table_id_of(u, Sequence(at)))
                for at in range(9)
            ]
            called = [unit.name_of(one.id, Sequence(at)) for at in range(9)]
            assert unit.table_id_of(t) == two.id
            assert unit.table_id_of(u) is None
            assert unit.name_of(one.id) is None
            assert unit.last_name_of(one.id) == u
            assert unit.name_of(two.id) == unit.last_name_of(two.id) == t
            assert unit.last_name_of(table_id(3)) is None
            assert unit.names_of(one.id) == [t, u]
            assert unit.names_of(table_id(3)) == []
        a, b = one.id, two.id
        assert [of_t for of_t, _ in meant] == [None, None, a, a, None, None, b, b, b]
        assert [of_u for _, of_u in meant] == [None, None, None, None, a, a, a, None, None]
        assert called == [None, None, t, t, u, u, u, None, None]

    def test_ending_a_name_that_is_over_changes_nothing(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        with store.write() as unit:
            unit.assign_name(name("t"), one.id, Sequence(1))
            unit.release_name(one.id, Sequence(3))
            unit.release_name(one.id, Sequence(9))
            assert unit.table_id_of(name("t"), Sequence(2)) == one.id
            assert unit.table_id_of(name("t"), Sequence(3)) is None

    def test_names_in_different_namespaces_are_different_and_listings_are_in_order(
        self, store: CatalogStore
    ) -> None:
        rows = insert(store, 1, 2, 3, 4)
        names = [name("b.t"), name("a.T"), name("a.b"), name("other.a.t")]
        with store.write() as unit:
            for number, row in enumerate(rows):
                unit.assign_name(names[number], row.id, Sequence(1))
            unit.assign_name(name("gone"), unit.insert_table(table_row(5)).id, Sequence(1))
            unit.release_name(table_id(5), Sequence(2))
        with store.read() as unit:
            listed = unit.tables(None)
            assert [(row.id, str(of)) for row, of, _ in listed] == [
                (table_id(3), "main.a.b"),
                (table_id(2), "main.a.T"),
                (table_id(1), "main.b.t"),
                (table_id(4), "other.a.t"),
            ]
            in_a = [str(named.name) for named in unit.tables(SchemaName("MAIN", "A"))]
            assert in_a == ["main.a.b", "main.a.T"]
            assert unit.tables(SchemaName("main", "none")) == []

    def test_a_table_that_has_a_name_now_is_found_by_it_and_by_its_id_at_once(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        one = one._replace(head=Version(2), metadata_version=Version(1))
        with store.write() as unit:
            unit.assign_name(name("t"), one.id, Sequence(1))
            for version in range(3):
                unit.insert_commit(one.key, commit_row(version))
            unit.update_table(one)
            wanted = NamedTableRow(one, name("t"), START_MS + 1)
            assert (
                unit.named_table(name("T")) == unit.named_table(one.id) == wanted
            )  # what is under way too
        with store.read() as unit:
            assert unit.named_table(name("T")) == unit.named_table(one.id) == wanted
            assert unit.tables(None) == [wanted]
            assert unit.named_table(two.id) is None
            assert unit.named_table(name("two")) is None
        with store.write() as unit:
            unit.release_name(one.id, Sequence(3))
            unit.assign_name(name("t"), two.id, Sequence(3))
        with store.read() as unit:
            assert unit.named_table(one.id) is None
            assert unit.named_table(name("t")) == NamedTableRow(
                two, name("t"), None
            )  # without a commit

    def test_what_was_staged_is_held_until_it_is_published_and_what_came_inline_longer(
        self, store: CatalogStore
    ) -> None:
        [row] = insert(store, 1)
        with store.write() as unit:
            for version, way in enumerate((Way.INLINE, Way.STAGED, Way.STAGED)):
                name = None if way is Way.INLINE else f"{version}.json"
                commit = commit_row(version, way=way, file_name=name, content=b"held")
                unit.insert_commit(row.key, commit)
            unit.update_table(row._replace(head=Version(2)))
            unit.record_published(row.key, Version(0), Version(1), START_MS)
        with store.read() as unit:
            commits = unit.commits(row.key, Version(0), Version(2), content=True)
            told = unit.commit_headers(row.key, Version(0), Version(2))
        assert [commit.content for commit in commits] == [b"held", None, b"held"]
        assert [commit.published_ms for commit in commits] == [START_MS, START_MS, None]
        assert [tuple(one) for one in told] == [
            tuple(getattr(commit, field) for field in CommitHeader._fields) for commit in commits
        ]

    def test_settings_are_kept_and_replaced(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.set_setting("root", "here")
            unit.set_setting("root", "there")
            assert unit.setting("root") == "there"
            assert unit.setting("Root") is None

    # Tables

    def test_every_field_of_a_table_comes_back_as_it_was(self, store: CatalogStore) -> None:
        with store.write() as unit:
            row = unit.insert_table(table_row())
        assert row.key > 0
        full = row._replace(
            state=TableStatus.DROPPED,
            location="file:///lake/%25/é",
            head=Version(7),
            timestamp_ms=2**53,
            published=Version(3),
            held_from=Version(2),
            protocol=b'{"a":1}',
            metadata=b"\xff\x00",
            metadata_version=Version(4),
            domains=b"[1]",
            row_id_high_water=2**62,
            num_files=5,
            size_bytes=2**60,
            diverged="other bytes",
            ticket=TxnId("txn"),
            ticket_until_ms=START_MS,
            created_ms=1,
            dropped_ms=START_MS,
            purged_ms=START_MS + 1,
            kind=TableKind.EXTERNAL,
        )
        with store.write() as unit:
            unit.update_table(full)
            assert unit.table(row.id) == full
            unit.set_diverged(row.key, None)
        assert found(store) == full._replace(diverged=None)
        with store.read() as unit:
            assert unit.tables_in_state(TableStatus.DROPPED) == [full._replace(diverged=None)]
            assert unit.tables_in_state(TableStatus.ACTIVE) == []
            assert unit.table(table_id(2)) is None

    def test_pages_of_tables_together_are_all_tables(self, open_store: OpenStore) -> None:
        store = open_store("a")
        names = [name(text) for text in ("a", "B", "c", "ä", "d")]
        with store.write() as unit:
            unit.insert_namespace(SCHEMA, START_MS)
            for number, table in enumerate(names, 1):
                row = unit.insert_table(table_row(number))
                unit.assign_name(table, row.id, Sequence(1))
        with store.read() as unit:
            whole = [named.name for named in unit.tables(None)]
            assert sorted(map(str, whole)) == sorted(map(str, names))
            for namespace in (None, SCHEMA):
                paged: list[TableName] = []
                while page := unit.tables(namespace, paged[-1] if paged else None, 2):
                    assert len(page) <= 2
                    paged += [named.name for named in page]
                assert paged == whole

    def test_what_is_unpublished_is_the_active_tables_with_a_tail(
        self, store: CatalogStore
    ) -> None:
        one, two, three, _ = insert(store, 1, 2, 3, 4)
        insert_commits(store, one, commit_row(0), commit_row(1))
        insert_commits(store, two, commit_row(0), published=0)
        dropped = insert_commits(store, three, commit_row(0))
        with store.write() as unit:
            unit.update_table(dropped._replace(state=TableStatus.DROPPED))
        with store.write() as unit:
            assert [row.id for row in unit.unpublished_tables()] == [one.id]
            unit.record_published(one.key, Version(0), Version(0), START_MS)
            assert [row.id for row in unit.unpublished_tables()] == [one.id]
            unit.record_published(one.key, Version(1), Version(1), START_MS)
            assert unit.unpublished_tables() == []
            unit.update_table(dropped)
            assert unit.unpublished_tables() == [dropped]

    def test_an_external_table_has_a_name_and_a_place_and_nothing_to_publish(
        self, store: CatalogStore
    ) -> None:
        with store.write() as unit:
            row = unit.insert_table(table_row(kind=TableKind.EXTERNAL, metadata=b"declared"))
            unit.assign_name(name("t"), row.id, Sequence(1))
        assert row.head == -1
        with store.read() as unit:
            assert unit.tables(None) == [NamedTableRow(row, name("t"), None)]
            assert unit.unpublished_tables() == []
            assert unit.overlapping_table(f"{row.location}/inside") == row
            assert unit.counts().external == 1
        with store.write() as unit:
            unit.update_table(row._replace(state=TableStatus.DROPPED))
            assert unit.counts().external == 0

    @pytest.mark.parametrize(
        ("location", "overlaps"),
        [
            ("file:///a/b", True),  # the same
            ("file:///a/b/c", True),  # inside
            ("file:///a/b/c/d/e", True),
            ("file:///a", True),  # around it
            ("file:///", True),
            ("file:///a/b-c", False),  # beside it, with a common beginning
            ("file:///a/b0", False),
            ("file:///a/b.", False),
            ("file:///a/bc", False),
            ("file:///a/B", False),
            ("file:///a/c", False),
            ("file:///b", False),
            ("s3://a/b", False),
            ("s3://bucket", True),
            ("s3://bucket/x", True),
            ("s3://bucket/x/y/z", True),
            ("s3://bucket/x-y", False),
            ("s3://bucket-2/x", False),
            ("gs://bucket/x", False),
            ("file:///p/a b", True),  # encoded: the same as the third table's
            ("file:///p/a%20b/c", True),
            ("file:///p/a%2520b", False),  # a name with a per cent sign in it
            ("file:///p/a", False),
            ("file:///q/b", False),  # the beginning of others' names, and around none of them
            ("file:///q", True),
        ],
    )
    def test_places_of_tables_do_not_lie_in_each_other(
        self, store: CatalogStore, location: str, overlaps: bool
    ) -> None:
        with store.write() as unit:
            unit.insert_table(table_row(1, location="file:///a/b"))
            unit.insert_table(table_row(2, location="s3://bucket/x/y"))
            unit.insert_table(table_row(3, location=locations.normalize("file:///p/a%20b")))
            for number, ending in enumerate("-./0b~é".replace("/", "_")):
                place = locations.normalize(f"file:///q/b{ending}c")
                unit.insert_table(table_row(4 + number, location=place))
            there = unit.overlapping_table(locations.normalize(location))
        assert (there is not None) is overlaps

    def test_nothing_lies_beside_a_table_that_is_the_whole_disk(self, store: CatalogStore) -> None:
        with store.write() as unit:
            row = unit.insert_table(table_row(1, location=locations.normalize("/")))
            assert unit.overlapping_table(locations.normalize("/a/b")) == row
            assert unit.overlapping_table("s3://bucket/a") is None

    # Commits

    def test_every_field_of_a_commit_comes_back_as_it_was(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        staged = commit_row(
            1,
            way=Way.STAGED,
            file_name="1.json",
            modified_ms=START_MS,
            published_ms=START_MS,
            size=2**40,
            sha256=bytes(range(32)),
            summary=None,
            content=None,
        )
        put = commit_row(2, way=Way.PUT_IF_ABSENT, content=b"\xff\x00")
        insert_commits(store, row, commit_row(0), staged, put)
        with store.read() as unit:
            kept = unit.commits(row.key, Version(0), Version(2), content=True, summary=True)
            told = unit.ratified_commits(row.key, Version(0), Version(2))
        assert kept == [commit_row(0), staged, put]
        assert told == tuple(as_commit(commit) for commit in kept)

    @pytest.mark.parametrize("content", [True, False])
    @pytest.mark.parametrize("summary", [True, False])
    def test_a_range_of_commits_is_inclusive_and_brings_what_was_asked_for(
        self, store: CatalogStore, content: bool, summary: bool
    ) -> None:
        one, two = insert(store, 1, 2)
        rows = [commit_row(version) for version in range(5)]
        insert_commits(store, one, *rows)
        insert_commits(store, two, commit_row(0, txn="other"))
        expected = [
            row._replace(
                content=row.content if content else None, summary=row.summary if summary else None
            )
            for row in rows
        ]
        with store.read() as unit:
            for first in range(-1, 7):
                for last in range(-1, 7):
                    kept = unit.commits(
                        one.key, Version(first), Version(last), content=content, summary=summary
                    )
                    assert kept == expected[max(first, 0) : last + 1]
                    told = unit.ratified_commits(one.key, Version(first), Version(last))
                    assert list(told) == [as_commit(row) for row in rows[max(first, 0) : last + 1]]

    def test_the_version_at_every_sequence_is_the_last_one_not_later(
        self, store: CatalogStore
    ) -> None:
        one, _ = insert(store, 1, 2)
        sequences = [3, 4, 8, 9, 10, 15, 40]
        insert_commits(store, one, *(commit_row(v, sequence=n) for v, n in enumerate(sequences)))
        with store.read() as unit:
            for at in range(45):
                expected = sum(sequence <= at for sequence in sequences) - 1
                version = unit.version_at(one.key, Sequence(at))
                assert version == (None if expected < 0 else expected), at
            assert unit.version_at(one.key + 1, Sequence(10)) is None

    def test_the_clock_at_a_time_is_the_last_not_later(self, store: CatalogStore) -> None:
        ticks = [(1, 10), (2, 10), (3, 12), (4, 12), (5, 12), (6, 20)]
        with store.write() as unit:
            for sequence, clock_ms in ticks:
                unit.advance_clock(CatalogClock(Sequence(sequence), clock_ms), TxnId(str(sequence)))
        with store.read() as unit:
            told = {ms: unit.clock_at(ms) for ms in (0, 9, 10, 11, 12, 13, 19, 20, 10**15)}
        assert told == {
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

    @shows("FC5")
    def test_how_many_commits_fit_is_what_their_contents_add_up_to(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        contents = [b"x" * 3, None, b"", b"x" * 5, b"x" * 2, None, b"x" * 9]
        insert_commits(store, one, *(commit_row(v, content=c) for v, c in enumerate(contents)))
        insert_commits(store, two, commit_row(0, txn="other", content=b"x" * 30))

        def fitting(first: int, last: int, most: int) -> int:
            step = 1 if first <= last else -1
            reached, total = first, 0
            for version in range(first, last + step, step):
                if version < len(contents):
                    total += len(contents[version] or b"")
                    reached = version if total <= most else reached
            return reached

        with store.read() as unit:
            for first in range(9):
                for last in range(9):
                    for most in (-1, 0, 1, 3, 7, 8, 10, 18, 19, 30):
                        found = unit.last_version_within(
                            one.key, Version(first), Version(last), most
                        )
                        assert found == fitting(first, last, most), (first, last, most)

    def test_what_was_ratified_under_a_txn_id_is_known_after_its_content_was_forgotten(
        self, store: CatalogStore
    ) -> None:
        one, two, three = insert(store, 1, 2, 3)
        for row in (one, two):
            insert_commits(store, row, commit_row(0, txn="x"), commit_row(1, txn=f"y{row.key}"))
        insert_commits(store, three, commit_row(0, txn="z"))
        with store.write() as unit:
            assert dict(unit.transaction_commits(TxnId("x"))) == {
                row.id: commit_row(0, txn="x") for row in (one, two)
            }
            unit.record_published(one.key, Version(0), Version(1), START_MS)
            published = commit_row(0, txn="x", published_ms=START_MS)
            assert dict(unit.transaction_commits(TxnId("x")))[one.id] == published
            unit.delete_content(one.key, Version(1))
            assert dict(unit.transaction_commits(TxnId("x")))[one.id].content is None
        with store.read() as unit:
            ratified = dict(unit.transaction_commits(TxnId("x")))
            assert ratified == {
                one.id: commit_row(0, txn="x", content=None, published_ms=START_MS),
                two.id: commit_row(0, txn="x"),
            }
            assert unit.transaction_commits(TxnId("nobody")) == []

    @shows("S7")
    @pytest.mark.parametrize("other", [{}, {"sequence": 9}, {"timestamp_ms": START_MS + 9}])
    def test_a_transaction_that_is_not_one_moment_in_all_its_tables_is_found(
        self, store: CatalogStore, other: dict[str, int]
    ) -> None:
        one, two, three = insert(store, 1, 2, 3)
        insert_commits(store, one, commit_row(0, txn="x"), commit_row(1, txn="y"))
        insert_commits(store, two, commit_row(0, txn="x")._replace(**other))  # type: ignore[arg-type]
        insert_commits(store, three, commit_row(0, txn="z"))
        with store.read() as unit:
            assert unit.inconsistent_transactions() == (["x"] if other else [])

    @req("CM-47")
    def test_a_rejection_is_kept_until_it_is_old_and_is_not_replaced(
        self, store: CatalogStore
    ) -> None:
        old = RejectionRow(TxnId("old"), b"intent", b"answer", START_MS)
        new = RejectionRow(TxnId("new"), b"", b"\x00", START_MS + 1)
        with store.write() as unit:
            unit.insert_rejection(old)
            unit.insert_rejection(new)
            unit.delete_rejections(START_MS)
            assert unit.rejection(old.txn_id) == old
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_rejection(old._replace(answer=b"another"))
        with store.write() as unit:
            unit.delete_rejections(START_MS + 1)
            assert unit.rejection(old.txn_id) is None
            assert unit.rejection(new.txn_id) == new

    # Publishing

    def test_what_is_published_only_grows(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        insert_commits(store, row, *(commit_row(version) for version in range(5)))
        with store.write() as unit:
            unit.record_published(row.key, Version(0), Version(3), START_MS)
            unit.record_published(row.key, Version(0), Version(1), START_MS + 9)
        with store.read() as unit:
            kept = unit.commits(row.key, Version(0), Version(9), content=True)
        assert [commit.published_ms for commit in kept] == [START_MS] * 4 + [None]
        assert all(commit.content is not None for commit in kept)
        assert found(store).published == 3

    @req("CM-26")
    def test_content_once_forgotten_stays_so_and_nothing_else_goes(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        for row in (one, two):
            insert_commits(store, row, *(commit_row(version) for version in range(5)))
        with store.write() as unit:
            unit.delete_content(one.key, Version(2))
            unit.delete_content(one.key, Version(0))
        assert found(store).held_from == 3
        with store.read() as unit:
            kept = unit.commits(one.key, Version(0), Version(9), content=True, summary=True)
            others = unit.commits(two.key, Version(0), Version(9), content=True, summary=True)
        forgotten = [commit_row(v, content=None) for v in range(3)]
        assert kept == [*forgotten, commit_row(3), commit_row(4)]
        assert others == [commit_row(version) for version in range(5)]
        assert found(store, 2).held_from == 0

    def test_what_comes_after_content_was_forgotten_or_published_is_not_touched_by_it(
        self, store: CatalogStore
    ) -> None:
        [row] = insert(store, 1)
        with store.write() as unit:
            unit.prefetch([TxnId("txn-0"), TxnId("txn-6")], [row.id])
            unit.insert_commit(row.key, commit_row(0))
            unit.update_table(row._replace(head=Version(5)))
            unit.delete_content(row.key, Version(9))
            unit.record_published(row.key, Version(0), Version(5), START_MS)
            unit.insert_commit(row.key, commit_row(6))
            unit.insert_commit(row.key, commit_row(3, txn="late"))
        with store.read() as reading:
            kept = reading.commits(row.key, Version(0), Version(9), content=True, summary=True)
        first = commit_row(0, content=None, published_ms=START_MS)
        assert kept == [first, commit_row(3, txn="late"), commit_row(6)]

    def test_files_are_known_up_to_a_version_and_told_again_they_are_replaced(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        checkpoint = KnownFile(
            kind=FileKind.CHECKPOINT, first=Version(4), last=Version(4), paths=("c/1", "c/2")
        )
        first = KnownFile(
            kind=FileKind.COMPACTION, first=Version(1), last=Version(3), paths=("é %20",)
        )
        second = KnownFile(
            kind=FileKind.COMPACTION, first=Version(2), last=Version(3), paths=("y",)
        )
        crc = KnownFile(kind=FileKind.CHECKSUM, first=Version(5), last=Version(5), paths=("z",))
        above = KnownFile(kind=FileKind.COMPACTION, first=Version(5), last=Version(8), paths=("w",))
        with store.write() as unit:
            for file in (checkpoint, first, second, crc, above):
                unit.insert_file(one.key, file)

        def known(last: int, key: int = one.key) -> list[KnownFile]:
            with store.read() as unit:
                files = unit.files(key, Version(last))
            return sorted(files, key=lambda file: (file.last, file.first))

        # What a checkpoint covers nobody asks for, and of checksums only that of the version.
        assert known(9) == [checkpoint, above]
        assert known(5) == [checkpoint, crc]
        assert known(4) == [checkpoint]
        assert known(3) == [first, second]
        assert known(2) == []
        assert known(9, two.key) == []
        again = KnownFile(kind=FileKind.CHECKPOINT, first=Version(4), last=Version(4), paths=("d",))
        with store.write() as unit:
            unit.insert_file(one.key, again)
        assert known(4) == [again]
        with store.write() as unit:
            unit.delete_file(one.key, checkpoint)  # another one is recorded in its place
            unit.delete_file(one.key, crc)
            unit.delete_file(two.key, above)
        with store.read() as unit:
            assert unit.all_files(one.key) == [again, first, second, above]
            assert unit.all_files(two.key) == []

    # Leases

    @shows("FP3")
    def test_a_lease_is_its_holders_until_it_lapses_or_ends(self, store: CatalogStore) -> None:
        def take(holder: str, now_ms: int, lease: str = "a") -> bool:
            with store.write() as unit:
                return unit.acquire_lease(lease, holder, now_ms, now_ms + 10)

        def holder(lease: str) -> str | None:
            with store.read() as unit:
                return unit.lease_holder(lease)

        assert holder("a") is None
        assert take("me", 100)
        assert not take("you", 100)
        assert holder("a") == "me"
        assert not take("you", 109)
        assert take("you", 109, "b")  # another lease
        assert take("me", 105)  # renewed: until 115
        assert not take("you", 110)
        assert not take("you", 114)
        assert take("you", 115)  # lapsed
        assert not take("me", 116)
        with store.write() as unit:
            unit.release_lease("a", "me")  # not mine to end
        assert not take("me", 117)
        with store.write() as unit:
            unit.release_lease("a", "you")
            unit.release_lease("never", "you")
        assert holder("a") is None
        assert take("me", 117)

    def test_a_lease_refused_changes_nothing(self, store: CatalogStore) -> None:
        with store.write() as unit:
            assert unit.acquire_lease("a", "me", 100, 110)
            assert not unit.acquire_lease("a", "you", 105, 10**9)
            assert not unit.acquire_lease("a", "you", 109, 10**9)
            assert unit.acquire_lease("a", "you", 110, 120)

    # What a server keeps

    def test_a_token_is_found_by_the_hash_of_its_secret_until_its_end_is_told(
        self, store: CatalogStore
    ) -> None:
        one = TokenRow("b", b"1" * 32, START_MS, expires_ms=START_MS + 5)
        two = TokenRow("a", b"2" * 32, START_MS)
        with store.write() as unit:
            unit.insert_token(one)
            unit.insert_token(two)
            assert unit.token(b"1" * 32) == one
            assert unit.token(b"3" * 32) is None
            assert unit.tokens() == [two, one]
        with store.write() as unit:
            unit.revoke_token("b", 7)
            unit.revoke_token("b", 9)  # the first time counts
            unit.revoke_token("nobody", 9)
            assert unit.counts().tokens == 1
        with store.read() as unit:
            assert unit.tokens() == [two, one._replace(revoked_ms=7)]
            assert unit.token(b"1" * 32) == one._replace(revoked_ms=7)

    @pytest.mark.parametrize("taken", [TokenRow("a", b"2", 2), TokenRow("b", b"1", 2)])
    def test_a_tokens_name_and_secret_are_taken_once(
        self, store: CatalogStore, taken: TokenRow
    ) -> None:
        with store.write() as unit:
            unit.insert_token(TokenRow("a", b"1", 1))
            with pytest.raises(StoreConstraintError), unit.savepoint():
                unit.insert_token(taken)
            unit.insert_token(TokenRow("c", b"3", 3))
        with store.read() as unit:
            assert unit.tokens() == [TokenRow("a", b"1", 1), TokenRow("c", b"3", 3)]

    def test_an_answer_is_kept_until_it_is_old_and_is_not_replaced(
        self, store: CatalogStore
    ) -> None:
        old = AnswerRow("old", b"asked", b"answered", START_MS)
        new = AnswerRow("new", b"\x00", b"", START_MS + 1)
        with store.write() as unit:
            assert unit.answer("old") is None
            unit.insert_answer(old)
            assert unit.answer("old") == old
            unit.insert_answer(new)
            unit.delete_answers(START_MS)
            assert unit.answer("old") == old
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_answer(old._replace(answer=b"another"))
        with pytest.raises(StoreConstraintError), store.write() as unit:  # noqa: PT012
            assert unit.answer("old") == old
            unit.insert_answer(old._replace(answer=b"another"))
        with store.write() as unit:
            assert unit.answer("old") == old
            unit.delete_answers(START_MS + 1)
            assert unit.answer("old") is None
            assert unit.answer("new") == new
        with store.read() as unit:
            assert unit.answer("old") is None

    def test_registered_locations_are_kept_by_url(self, store: CatalogStore) -> None:
        rows = [LocationRow("file:///b", 2), LocationRow("s3://bucket/é", 1)]
        with store.write() as unit:
            for row in reversed(rows):
                unit.insert_location(row)
        with store.read() as unit:
            assert unit.locations() == rows
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_location(rows[0])
        with store.write() as unit:
            unit.delete_location("file:///b")
            unit.delete_location("file:///unknown")
            assert unit.locations() == rows[1:]

    def test_a_listener_goes_forward_only_unless_it_is_put_anew(self, store: CatalogStore) -> None:
        row = ListenerRow("b", "webhook", "https://here", Sequence(3), START_MS, "it is down")
        other = ListenerRow("a", "pointer", "", Sequence(0), START_MS)

        def told() -> ListenerRow:
            with store.read() as unit:
                [first, second] = unit.listeners()
            assert first == other
            return second

        with store.write() as unit:
            unit.put_listener(row)
            unit.put_listener(other)
        assert told() == row
        for position, failing in ((5, None), (4, "again"), (4, None)):
            with store.write() as unit:
                unit.advance_listener("b", Sequence(position), failing)
                unit.advance_listener("nobody", Sequence(9), None)
            assert told() == row._replace(position=5, failing=failing)
        anew = ListenerRow("b", "webhook", "https://there", Sequence(1), START_MS + 1)
        with store.write() as unit:
            unit.put_listener(anew)
        assert told() == anew
        with store.write() as unit:
            unit.delete_listener("b")
            unit.delete_listener("nobody")
            assert unit.listeners() == [other]

    def test_events_are_what_was_done_in_order_and_can_be_read_in_pieces(
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
            # Mended from a log, a transaction's second part has a sequence of its own.
            unit.advance_clock(CatalogClock(Sequence(5), 31), creating)
            unit.insert_commit(two.key, commit_row(1, 5, creating))
            unit.advance_clock(CatalogClock(Sequence(6), 32), TxnId("of nothing"))

        def told(version: int, sequence: int, txn: str) -> CommitRow:
            return commit_row(version, sequence, txn, content=None, summary=None)

        done = [
            EventRow(
                Sequence(1), 10, creating, ((one.id, told(0, 1, creating)),), ((t, one.id),), ()
            ),
            EventRow(
                Sequence(2),
                20,
                moving,
                ((one.id, told(1, 2, moving)), (two.id, told(0, 2, moving))),
                (),
                (),
            ),
            EventRow(Sequence(3), 20, None, (), ((u, one.id),), ((t, one.id),)),
            EventRow(Sequence(4), 30, None, (), (), ((u, one.id),)),
            EventRow(Sequence(5), 31, creating, ((two.id, told(1, 5, creating)),), (), ()),
            EventRow(Sequence(6), 32, TxnId("of nothing"), (), (), ()),
        ]
        with store.read() as unit:
            for after in range(8):
                for limit in range(8):
                    assert unit.events(Sequence(after), limit) == done[after : after + limit]

    def test_old_events_are_deleted_and_the_newest_stays(self, store: CatalogStore) -> None:
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

    def test_an_event_of_the_unit_that_deletes_the_others_stays(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 10), TxnId("a"))
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(2), 20), TxnId("b"))
            unit.delete_events(Sequence(2))
            assert unit.oldest_event() == unit.clock() == CatalogClock(Sequence(2), 20)
            unit.advance_clock(CatalogClock(Sequence(3), 30), TxnId("c"))
        with store.read() as unit:
            assert [event.txn_id for event in unit.events(Sequence(1), 9)] == ["b", "c"]

    def test_counts_tell_what_there_is(self, store: CatalogStore) -> None:
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

    def test_what_was_expected_is_told_as_it_is(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        one = insert_commits(store, one, commit_row(0, txn="x"))
        no = RejectionRow(TxnId("no"), b"", b"", START_MS)
        with store.write() as unit:
            unit.insert_rejection(no)
        with store.write() as unit:
            unit.prefetch([TxnId("x"), TxnId("no"), TxnId("new")], [one.id, table_id(2)])
            assert unit.table(one.id) == one
            assert unit.table(table_id(2)) is None
            assert unit.transaction_commits(TxnId("x")) == [(one.id, commit_row(0, txn="x"))]
            assert unit.transaction_commits(TxnId("new")) == []
            assert unit.rejection(TxnId("no")) == no
            assert unit.rejection(TxnId("new")) is None
            unit.prefetch([], [])
            unit.insert_commit(one.key, commit_row(1, txn="new"))
            unit.update_table(one._replace(head=Version(1)))
            unit.prefetch([TxnId("new")], [one.id])
            assert unit.transaction_commits(TxnId("new")) == [(one.id, commit_row(1, txn="new"))]
            assert unit.table(one.id) == one._replace(head=Version(1))

    # Anything, in any order

    @pytest.mark.slow
    def test_it_is_what_a_plain_dictionary_would_be(self, open_store: OpenStore) -> None:
        numbers = iter(range(10**6))

        @settings(
            max_examples=self.examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(st.lists(UNITS, max_size=12))
        def run(units: list[Unit]) -> None:
            store = open_store(f"model-{next(numbers)}")
            model = Model()
            for unit in units:
                apply(store, model, unit)
            store.close()

        run()


# The model: what a store is, in plain Python


@dataclass
class Model:
    """The rows of a store."""

    clock: tuple[int, int] = (0, 0)
    ticks: list[tuple[int, int, str | None]] = field(default_factory=list)
    tables: dict[int, TableRow] = field(default_factory=dict)  # by number
    commits: dict[int, list[CommitRow]] = field(default_factory=dict)
    names: list[list[Any]] = field(default_factory=list)  # name, number, from, to
    files: dict[tuple[int, int], KnownFile] = field(default_factory=dict)
    rejections: dict[str, RejectionRow] = field(default_factory=dict)
    leases: dict[str, tuple[str, int]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    answers: dict[str, AnswerRow] = field(default_factory=dict)
    listeners: dict[str, ListenerRow] = field(default_factory=dict)

    def current(self, key: tuple[str, str, str]) -> int | None:
        return next((n for of, n, _, to in self.names if to is None and of.key == key), None)

    def name_of(self, number: int) -> TableName | None:
        return next((of for of, n, _, to in self.names if to is None and n == number), None)


class Impossible(Exception):  # noqa: N818 - the model's own word for what a constraint says
    """The model refuses: so must the store."""


Step = tuple[Any, ...]
Unit = tuple[list[tuple[list[Step], bool]], bool]  # savepoints, each kept or not; the whole, too

NUMBERS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "A", "b"])
STEPS = st.one_of(
    st.tuples(st.just("tick"), st.integers(0, 5)),
    st.tuples(st.just("table"), NUMBERS),
    st.tuples(st.just("commit"), NUMBERS, st.integers(0, 1), st.integers(0, 3)),
    st.tuples(st.just("publish"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("forget"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("name"), NUMBERS, NAMES),
    st.tuples(st.just("unname"), NUMBERS),
    st.tuples(st.just("file"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("reject"), st.integers(0, 3)),
    st.tuples(st.just("pardon"), st.integers(0, 4)),
    st.tuples(st.just("expire"), st.integers(0, 6)),
    st.tuples(st.just("lease"), st.sampled_from("xy"), st.sampled_from("pq"), st.integers(0, 4)),
    st.tuples(st.just("end"), st.sampled_from("xy"), st.sampled_from("pq")),
    st.tuples(st.just("state"), NUMBERS, st.sampled_from(list(TableStatus))),
    st.tuples(st.just("set"), st.sampled_from("kl"), st.sampled_from("vw")),
    st.tuples(st.just("token"), st.sampled_from("kl"), st.integers(0, 2)),
    st.tuples(st.just("revoke"), st.sampled_from("kl"), st.integers(0, 4)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("unanswer"), st.integers(0, 4)),
    st.tuples(st.just("listener"), st.sampled_from("kl"), st.integers(0, 3)),
    st.tuples(st.just("advance"), st.sampled_from("kl"), st.integers(0, 3)),
    st.tuples(st.just("unlisten"), st.sampled_from("kl")),
)
UNITS = st.tuples(
    st.lists(st.tuples(st.lists(STEPS, max_size=4), st.booleans()), max_size=4), st.booleans()
)


def apply(store: CatalogStore, model: Model, unit: Unit) -> None:
    """Do one unit to the store and to the model, and hold them against each other."""
    savepoints, is_kept = unit
    trial = copy.deepcopy(model)
    try:
        with store.write() as writing:
            for steps, survives in savepoints:
                attempt = copy.deepcopy(trial)
                try:
                    with writing.savepoint():
                        for step in steps:
                            do(writing, attempt, step)
                        compare(writing, attempt)
                        if not survives:
                            raise UndoneError
                    trial = attempt
                except (UndoneError, StoreConstraintError):
                    compare(writing, trial)
            if not is_kept:
                raise UndoneError
        model.__dict__.update(trial.__dict__)
    except UndoneError:
        pass
    with store.read() as reading:
        compare(reading, model)


def do(unit: WriteUnit, model: Model, step: Step) -> None:
    """Do a step to both; what one refuses the other refuses."""
    step = spelled_out(model, step)
    try:
        told = think(model, step)
    except Impossible:
        with pytest.raises(StoreConstraintError):
            play(unit, step)
        raise StoreConstraintError from None
    assert play(unit, step) == told


def spelled_out(model: Model, step: Step) -> Step:
    """Give a step with nothing left to be looked up."""
    sequence, clock_ms = model.clock
    match step:
        case "tick", int(by):
            return ("tick", sequence + 1, clock_ms + by, None)
        case "commit", number, skip, txn:
            count = len(model.commits.get(number, ()))
            txn_id = str(txn) if txn else f"{number}-{count}-{skip}"
            return ("commit", number, commit_row(max(count - skip, 0), sequence + 1, txn_id))
        case "name", number, text:
            return ("name", number, name(text), sequence)
        case "unname", number:
            return ("unname", number, sequence)
        case _:
            return step


def think(model: Model, step: Step) -> object:
    """Do a step to the model; what it gives back the store must give back."""
    match step:
        case "tick", sequence, clock_ms, txn_id:
            model.clock = (sequence, clock_ms)
            model.ticks.append((sequence, clock_ms, txn_id))
        case "table", number:
            if number in model.tables:
                raise Impossible
            model.tables[number] = table_row(number)
            model.commits[number] = []
        case "commit", number, CommitRow() as commit:
            commits = model.commits.get(number)
            if commits is None or commit.version < len(commits):
                raise Impossible
            if any(other.txn_id == commit.txn_id for other in commits):
                raise Impossible
            commits.append(commit)
            model.tables[number] = model.tables[number]._replace(head=commit.version)
            think(model, ("tick", commit.sequence, model.clock[1], commit.txn_id))
        case "publish", number, upto:
            row = model.tables.get(number)
            if row is not None and upto > row.head:
                raise Impossible
            if row is not None:
                model.commits[number] = [
                    commit._replace(published_ms=commit.published_ms or 7)
                    if commit.version <= upto
                    else commit
                    for commit in model.commits[number]
                ]
                model.tables[number] = row._replace(published=Version(max(row.published, upto)))
        case "forget", number, upto:
            row = model.tables.get(number)
            if row is not None:
                model.commits[number] = [
                    commit._replace(content=None)
                    if row.held_from <= commit.version <= upto
                    else commit
                    for commit in model.commits[number]
                ]
                held_from = Version(max(row.held_from, upto + 1))
                model.tables[number] = row._replace(held_from=held_from)
        case "name", number, of, since:
            is_taken = model.current(of.key) is not None or model.name_of(number) is not None
            if number not in model.tables or is_taken:
                raise Impossible
            model.names.append([of, number, since, None])
        case "unname", number, until:
            for entry in model.names:
                if entry[1] == number and entry[3] is None:
                    entry[3] = until
        case "file", number, last:
            if number not in model.tables:
                raise Impossible
            model.files[number, last] = known_file(last)
        case "reject", number:
            if str(number) in model.rejections:
                raise Impossible
            model.rejections[str(number)] = rejection(number)
        case "expire", last:
            model.ticks = [tick for tick in model.ticks[:-1] if tick[0] > last] + model.ticks[-1:]
        case "pardon", before_ms:
            model.rejections = {
                txn: row for txn, row in model.rejections.items() if row.decided_ms >= before_ms
            }
        case "lease", lease, holder, now_ms:
            held_by, until = model.leases.get(lease, (holder, 0))
            if held_by != holder and until > now_ms:
                return False
            model.leases[lease] = (holder, now_ms + 2)
            return True
        case "end", lease, holder:
            if model.leases.get(lease, ("", 0))[0] == holder:
                del model.leases[lease]
        case "state", number, state:
            if number in model.tables:
                model.tables[number] = model.tables[number]._replace(state=state)
        case "set", key, value:
            model.settings[key] = value
        case "token", key, secret:
            row = TokenRow(key, b"%d" % secret, secret)
            if key in model.tokens or any(
                other.secret_sha256 == row.secret_sha256 for other in model.tokens.values()
            ):
                raise Impossible
            model.tokens[key] = row
        case "revoke", key, now_ms:
            if key in model.tokens and model.tokens[key].revoked_ms is None:
                model.tokens[key] = model.tokens[key]._replace(revoked_ms=now_ms)
        case "answer", number:
            if str(number) in model.answers:
                raise Impossible
            model.answers[str(number)] = kept_answer(number)
        case "unanswer", before_ms:
            model.answers = {
                key: row for key, row in model.answers.items() if row.decided_ms >= before_ms
            }
        case "listener", key, position:
            model.listeners[key] = listener(key, position)
        case "advance", key, position:
            if key in model.listeners:
                row = model.listeners[key]
                model.listeners[key] = row._replace(
                    position=Sequence(max(row.position, position)), failing=str(position)
                )
        case "unlisten", key:
            model.listeners.pop(key, None)
        case _:
            raise AssertionError(step)
    return None


def play(unit: WriteUnit, step: Step) -> object:
    """Do a step to the store."""
    match step:
        case "tick", sequence, clock_ms, txn_id:
            unit.advance_clock(CatalogClock(sequence, clock_ms), txn_id)
        case "table", number:
            unit.insert_table(table_row(number))
        case "commit", number, CommitRow() as commit:
            row = unit.table(table_id(number))
            unit.insert_commit(0 if row is None else row.key, commit)
            assert row is not None
            unit.update_table(row._replace(head=commit.version))
            unit.advance_clock(CatalogClock(commit.sequence, unit.clock().clock_ms), commit.txn_id)
        case "publish", number, upto:
            unit.record_published(key_of(unit, number), Version(0), Version(upto), 7)
        case "forget", number, upto:
            unit.delete_content(key_of(unit, number), Version(upto))
        case "name", number, of, since:
            unit.assign_name(of, table_id(number), since)
        case "unname", number, until:
            unit.release_name(table_id(number), until)
        case "file", number, last:
            unit.insert_file(key_of(unit, number), known_file(last))
        case "reject", number:
            unit.insert_rejection(rejection(number))
        case "expire", last:
            unit.delete_events(Sequence(last))
        case "pardon", before_ms:
            unit.delete_rejections(before_ms)
        case "lease", lease, holder, now_ms:
            return unit.acquire_lease(lease, holder, now_ms, now_ms + 2)
        case "end", lease, holder:
            unit.release_lease(lease, holder)
        case "state", number, state:
            row = unit.table(table_id(number))
            if row is not None:
                unit.update_table(row._replace(state=state))
        case "set", key, value:
            unit.set_setting(key, value)
        case "token", key, secret:
            unit.insert_token(TokenRow(key, b"%d" % secret, secret))
        case "revoke", key, now_ms:
            unit.revoke_token(key, now_ms)
        case "answer", number:
            unit.insert_answer(kept_answer(number))
        case "unanswer", before_ms:
            unit.delete_answers(before_ms)
        case "listener", key, position:
            unit.put_listener(listener(key, position))
        case "advance", key, position:
            unit.advance_listener(key, Sequence(position), str(position))
        case "unlisten", key:
            unit.delete_listener(key)
        case _:
            raise AssertionError(step)
    return None


def key_of(unit: ReadUnit, number: int) -> int:
    """Give a table's key; of one that is not there, a key that no table has."""
    row = unit.table(table_id(number))
    return 0 if row is None else row.key


def known_file(last: int) -> KnownFile:
    return KnownFile(
        kind=FileKind.CHECKPOINT, first=Version(last), last=Version(last), paths=(f"{last}",)
    )


def rejection(number: int) -> RejectionRow:
    return RejectionRow(TxnId(str(number)), b"intent", b"answer", number)


def kept_answer(number: int) -> AnswerRow:
    return AnswerRow(str(number), b"asked", b"answered", number)


def listener(key: str, position: int) -> ListenerRow:
    return ListenerRow(key, "webhook", f"to {position}", Sequence(position), position)


def compare(unit: ReadUnit, model: Model) -> None:
    """Hold all a store tells against the model."""
    assert unit.clock() == model.clock
    assert unit.oldest_event() == (model.ticks[0][:2] if model.ticks else None)
    for ms in range(model.clock[1] + 2):
        expected = max((tick[:2] for tick in model.ticks if tick[1] <= ms), default=None)
        assert unit.clock_at(ms) == expected
    assert unit.tokens() == sorted(model.tokens.values())
    for number in range(4):
        assert unit.answer(str(number)) == model.answers.get(str(number))
    assert unit.listeners() == sorted(model.listeners.values())
    compare_events(unit, model)
    for key in "kl":
        assert unit.setting(key) == model.settings.get(key)
    for number in range(4):
        assert unit.rejection(TxnId(str(number))) == model.rejections.get(str(number))
    for number in range(1, 4):
        compare_table(unit, model, number)
    for text in "ab":
        here = [entry for entry in model.names if entry[0].key == name(text).key]
        for at in (None, *range(model.clock[0] + 2)):
            meant = [n for _, n, since, to in here if is_current(since, to, at)]
            told = unit.table_id_of(name(text), None if at is None else Sequence(at))
            assert told == (table_id(meant[0]) if meant else None)
    tails = [row.id for row in model.tables.values() if row.published < row.head]
    active = [row.id for row in model.tables.values() if row.state is TableStatus.ACTIVE]
    assert sorted(row.id for row in unit.unpublished_tables()) == sorted(set(tails) & set(active))
    for txn_id in ("1", "2", "3"):
        under = {
            table_id(number): commit
            for number, commits in model.commits.items()
            for commit in commits
            if commit.txn_id == txn_id
        }
        assert dict(unit.transaction_commits(TxnId(txn_id))) == under


def compare_events(unit: ReadUnit, model: Model) -> None:
    events = unit.events(Sequence(0), 1000)
    assert [event[:3] for event in events] == model.ticks
    for event in events:
        commits = [
            (table_id(number), commit._replace(content=None, summary=None))
            for number, commits in model.commits.items()
            for commit in commits
            if commit.sequence == event.sequence
        ]
        assert sorted(event.commits) == sorted(commits)
        for told, end in ((event.names_assigned, 2), (event.names_released, 3)):
            names = [
                (str(entry[0]), table_id(entry[1]))
                for entry in model.names
                if entry[end] == event.sequence
            ]
            assert sorted((str(of), number) for of, number in told) == sorted(names)


def compare_table(unit: ReadUnit, model: Model, number: int) -> None:
    row, expected = unit.table(table_id(number)), model.tables.get(number)
    if expected is None:
        assert row is None
        return
    assert row is not None
    assert row == expected._replace(key=row.key)
    commits = model.commits[number]
    assert unit.commits(row.key, Version(0), Version(99), content=True, summary=True) == commits
    for at in range(model.clock[0] + 2):
        versions = [commit.version for commit in commits if commit.sequence <= at]
        assert unit.version_at(row.key, Sequence(at)) == (versions[-1] if versions else None)
    assert unit.name_of(row.id) == model.name_of(number)
    files = [file for (of, _), file in model.files.items() if of == number]
    newest = max(files, key=lambda file: file.last, default=None)
    assert unit.files(row.key, Version(99)) == ([] if newest is None else [newest])


def is_current(since: int, to: int | None, at: int | None) -> bool:
    if at is None:
        return to is None
    return since <= at and (to is None or at < to)
