"""Tables, their names and their locations."""

from __future__ import annotations

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import NamedTableRow, StoreConstraintError
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.table_states import TableKind, TableStatus
from headgate.storage import locations
from tests.catalog.store_contract.rows import (
    SCHEMA,
    OpenStore,
    commit_row,
    found,
    insert,
    insert_commits,
    name,
    table_id,
    table_row,
)
from tests.kit.builders import START_MS


class TableContract:
    @pytest.mark.parametrize(
        ("taken", "other"),
        [("t", "t"), ("t", "T"), ("straße", "STRASSE"), ("Ünal", "U\u0308NAL"), ("σς", "ΣΣ")],
    )
    def test_a_current_name_is_unique_in_any_case(
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

    def test_table_ids_and_locations_are_unique(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        for taken in (table_row(2, location=one.location), table_row(1, location="file:///x")):
            with pytest.raises(StoreConstraintError), store.write() as unit:
                unit.insert_table(taken)
        with store.write() as unit:
            unit.insert_table(table_row(2))

    def test_a_location_can_be_used_again_once_its_table_is_purged_and_its_files_are_deleted(
        self, store: CatalogStore
    ) -> None:
        [one] = insert(store, 1)
        again = table_row(2, location=one.location)
        purged = one._replace(state=TableStatus.PURGED)
        with store.write() as unit:
            unit.update_table(purged)
        with store.read() as unit:  # its files may still exist
            assert unit.overlapping_table(one.location) == purged
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_table(again)
        with store.write() as unit:
            unit.update_table(purged._replace(purged_ms=7))  # the last step of a purge
            assert unit.overlapping_table(one.location) is None
            unit.insert_table(again)
        assert found(store, 2).location == one.location

    def test_a_namespace_is_unique_in_any_case(self, store: CatalogStore) -> None:
        with store.write() as unit:
            unit.insert_namespace(SchemaName("Main", "Sales"), 1)
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_namespace(SchemaName("main", "SALES"), 1)
        with store.write() as unit:
            assert unit.namespaces() == [SchemaName("Main", "Sales")]
            assert unit.namespace_creation_times() == {SchemaName("Main", "Sales"): 1}
            unit.delete_namespace(SchemaName("MAIN", "sales"))
            assert unit.namespaces() == []

    def test_names_are_resolved_as_of_every_sequence(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        t, u = name("t"), name("u")
        with store.write() as unit:
            unit.assign_name(t, one.id, Sequence(2))
            unit.release_name(one.id, Sequence(4))  # renamed
            unit.assign_name(u, one.id, Sequence(4))
            unit.assign_name(t, two.id, Sequence(6))  # created again by another table
            unit.release_name(one.id, Sequence(7))  # dropped
        with store.read() as unit:
            ids = [
                (unit.table_id_of(t, Sequence(at)), unit.table_id_of(u, Sequence(at)))
                for at in range(9)
            ]
            names = [unit.name_of(one.id, Sequence(at)) for at in range(9)]
            assert unit.table_id_of(t) == two.id
            assert unit.table_id_of(u) is None
            assert unit.name_of(one.id) is None
            assert unit.last_name_of(one.id) == u
            assert unit.name_of(two.id) == unit.last_name_of(two.id) == t
            assert unit.last_name_of(table_id(3)) is None
            assert unit.names_of(one.id) == [t, u]
            assert unit.names_by_id([one.id, two.id, table_id(3)]) == {two.id: t}
            assert unit.names_by_id([]) == {}
            assert unit.names_of(table_id(3)) == []
        a, b = one.id, two.id
        assert [of_t for of_t, _ in ids] == [None, None, a, a, None, None, b, b, b]
        assert [of_u for _, of_u in ids] == [None, None, None, None, a, a, a, None, None]
        assert names == [None, None, t, t, u, u, u, None, None]

    def test_releasing_a_released_name_changes_nothing(self, store: CatalogStore) -> None:
        [one] = insert(store, 1)
        with store.write() as unit:
            unit.assign_name(name("t"), one.id, Sequence(1))
            unit.release_name(one.id, Sequence(3))
            unit.release_name(one.id, Sequence(9))
            assert unit.table_id_of(name("t"), Sequence(2)) == one.id
            assert unit.table_id_of(name("t"), Sequence(3)) is None

    def test_names_differ_by_namespace_and_are_listed_in_order(self, store: CatalogStore) -> None:
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

    def test_a_named_table_is_found_by_name_and_by_id(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        one = one._replace(head=Version(2), metadata_version=Version(1))
        with store.write() as unit:
            unit.assign_name(name("t"), one.id, Sequence(1))
            for version in range(3):
                unit.insert_commit(one.key, commit_row(version))
            unit.update_table(one)
            expected = NamedTableRow(one, name("t"), START_MS + 1)
            assert (
                unit.named_table(name("T")) == unit.named_table(one.id) == expected
            )  # what is under way too
        with store.read() as unit:
            assert unit.named_table(name("T")) == unit.named_table(one.id) == expected
            assert unit.tables(None) == [expected]
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

    def test_every_field_of_a_table_is_stored_unchanged(self, store: CatalogStore) -> None:
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

    def test_unpublished_tables_are_the_active_ones_with_a_tail(self, store: CatalogStore) -> None:
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

    def test_an_external_table_has_a_name_and_a_location_and_nothing_to_publish(
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
            ("file:///a", True),  # contains it
            ("file:///", True),
            ("file:///a/b-c", False),  # beside it, with a common prefix
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
            ("file:///q/b", False),  # a prefix of others, but contains none of them
            ("file:///q", True),
        ],
    )
    def test_overlapping_locations_are_found(
        self, store: CatalogStore, location: str, overlaps: bool
    ) -> None:
        with store.write() as unit:
            unit.insert_table(table_row(1, location="file:///a/b"))
            unit.insert_table(table_row(2, location="s3://bucket/x/y"))
            unit.insert_table(table_row(3, location=locations.normalize("file:///p/a%20b")))
            for number, ending in enumerate("-./0b~é".replace("/", "_")):
                beside = locations.normalize(f"file:///q/b{ending}c")
                unit.insert_table(table_row(4 + number, location=beside))
            other = unit.overlapping_table(locations.normalize(location))
        assert (other is not None) is overlaps

    def test_a_table_at_the_root_of_a_disk_overlaps_everything_on_it(
        self, store: CatalogStore
    ) -> None:
        with store.write() as unit:
            row = unit.insert_table(table_row(1, location=locations.normalize("/")))
            assert unit.overlapping_table(locations.normalize("/a/b")) == row
            assert unit.overlapping_table("s3://bucket/a") is None
