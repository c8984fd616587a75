"""Names, tables created and dropped, cuts over several tables, and limits of small catalogs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.api.messages import Resolved
from headgate.api.port import Cuts, Outcomes, Publishing, Registry, Timelines
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    InvalidSchemaError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UnsupportedByCatalogError,
    UnsupportedFeatureError,
)
from headgate.failpoints import FailPointError, arm
from headgate.names import TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.paths import PublishedCommit
from tests.client.conftest import World, filesystem_world, ids_in, rows
from tests.kit import req
from tests.kit.minimal_catalog import MinimalCatalog


class TestTheSmallestCatalog:
    @req("CA-02", "CA-05")
    def test_it_has_three_methods_and_none_of_the_capabilities(self, minimal_world: World) -> None:
        for capability in (Registry, Cuts, Outcomes, Timelines, Publishing):
            assert not isinstance(minimal_world.catalog, capability)

    @req("CA-02", "CA-05")
    def test_it_serves_a_table_whole(self, minimal_world: World) -> None:
        table = minimal_world.make()
        table.append(rows(1))
        minimal_world.staging_session().table("orders").append(rows(2))
        table.set_properties({"a": "b"})
        assert ids_in(table.to_arrow()) == [1, 2]
        assert ids_in(table.to_arrow(version=1)) == [1]
        assert [entry.version for entry in table.history()] == [3, 2, 1, 0]

    @req("CA-05")
    @pytest.mark.parametrize(
        ("ask", "missing"),
        [
            (lambda session, table: session.create_namespace("x"), "registry"),
            (lambda session, table: session.drop_namespace("x"), "registry"),
            (lambda session, table: session.rename_namespace("x", "y"), "registry"),
            (lambda session, table: session.rename_catalog("x", "y"), "registry"),
            (lambda session, table: session.namespaces(), "registry"),
            (lambda session, table: session.tables(), "registry"),
            (lambda session, table: session.create_table("x", "id long"), "registry"),
            (lambda session, table: session.rename("orders", "x"), "registry"),
            (lambda session, table: session.drop("orders"), "registry"),
            (lambda session, table: session.undrop("orders"), "registry"),
            (lambda session, table: session.purge("orders"), "registry"),
            (lambda session, table: session.read_cut(["orders"]), "cuts"),
            (lambda session, table: table.to_arrow(sequence=1), "sequences"),
            (lambda session, table: session.outcome("x"), "outcomes"),
            (lambda session, table: session.register_external("x", "/x"), "externals"),
            (lambda session, table: list(session.events()), "events"),
            (lambda session, table: session.listen("x", print), "callables"),
            (lambda session, table: session.listeners(), "listeners"),
            (lambda session, table: session.fsck(), "checks"),
            (lambda session, table: session.status(), "statuses"),
            (lambda session, table: session.backup("x"), "administration"),
            (lambda session, table: session.create_token("x"), "administration"),
            (lambda session, table: session.locations(), "locations"),
            (lambda session, table: session.add_location("x"), "administration"),
            (lambda session, table: table.log(), "timelines"),
            (lambda session, table: table.publish(), "publishing"),
        ],
    )
    def test_what_it_lacks_is_refused_by_name(
        self, minimal_world: World, ask: Callable[[Session, Table], object], missing: str
    ) -> None:
        table = minimal_world.make()
        with pytest.raises(UnsupportedByCatalogError, match=f"no {missing}"):
            ask(minimal_world.session(), table)

    @req("CA-01")
    def test_the_put_if_absent_catalog_refuses_what_it_cannot_rather_than_half_do_it(
        self, world: World
    ) -> None:
        if world.kind != "filesystem":
            pytest.skip("of the filesystem catalog")
        table = world.make()
        session = world.session()
        for ask in (
            lambda: session.rename("orders", "x"),
            lambda: session.rename_namespace("default", "x"),
            lambda: session.rename_catalog("main", "x"),
            lambda: session.create_table("x", "id long", three_phase=True),
            lambda: session.read_cut(["orders"]),
            lambda: table.to_arrow(sequence=1),
            lambda: session.outcome("x"),
            lambda: session.register_external("x", "/x"),
            lambda: list(session.events()),
            lambda: session.listen("x", print),
            lambda: session.put_listener("x", "https://example.com/"),
            lambda: session.status(),
            lambda: session.backup("x"),
            lambda: session.create_token("x"),
            lambda: session.locations(),
            lambda: session.add_location("/x"),
        ):
            with pytest.raises(UnsupportedByCatalogError):
                ask()
        session.drop("orders")
        with pytest.raises(UnsupportedByCatalogError):
            session.undrop("orders")


class TestNames:
    def test_missing_parts_of_a_name_are_those_of_the_session(self, full_world: World) -> None:
        session = full_world.session()
        session.create_namespace("sales")
        session.create_table("sales.orders", "id long, day date").append(rows(1))
        assert ids_in(session.table("main.sales.orders").to_arrow()) == [1]
        assert session.table("SALES.Orders").name == "main.sales.orders"
        assert [str(n) for n in session.namespaces()] == ["main.default", "main.sales"]
        assert [entry.name for entry in session.tables("sales")] == ["main.sales.orders"]
        session.drop("sales.orders")
        session.drop_namespace("sales")
        assert [str(n) for n in session.namespaces()] == ["main.default"]

    def test_what_exists_is_left_as_it_is_if_asked(self, full_world: World) -> None:
        session = full_world.session()
        for _ in range(2):
            session.create_namespace("sales", if_not_exists=True)
            table = session.create_table("sales.orders", "id long, day date", if_not_exists=True)
            table.append(rows(1))
        assert ids_in(session.table("sales.orders").to_arrow()) == [1, 1]
        other = session.create_table("sales.orders", "other string", if_not_exists=True)
        assert other.id == table.id
        for create in (
            lambda: session.create_namespace("sales"),
            lambda: session.create_table("sales.orders", "id long"),
        ):
            with pytest.raises(AlreadyExistsError):
                create()

    def test_names_without_a_namespace_follow_it_when_the_session_renames_it(
        self, full_world: World
    ) -> None:
        session = full_world.session()
        session.create_namespace("other.sales")
        session.use("other.sales")
        session.create_table("orders", "id long, day date").append(rows(1))
        session.rename_namespace("sales", "archive")
        session.rename_catalog("other", "old")
        assert ids_in(session.table("orders").to_arrow()) == [1]
        assert session.table("orders").name == "old.archive.orders"
        with pytest.raises(InvalidArgumentError, match="another catalog"):
            session.rename_namespace("old.archive", "main.archive")

    def test_a_name_that_means_nothing_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFoundError):
            world.session().table("nothing")

    def test_a_name_that_is_misspelled_is_not_found_and_the_right_one_is_named(
        self, full_world: World
    ) -> None:
        full_world.make()
        session = full_world.session()
        for ask in (session.table, session.resolve, session.drop, session.open_external):
            with pytest.raises(NotFoundError, match=r"Did you mean 'orders'\?"):
                ask("Ordres")
        with pytest.raises(NotFoundError, match=r"no namespace main.defualt\. .* 'default'\?"):
            session.use("defualt")

    def test_a_property_that_delta_does_not_have_is_refused(self, full_world: World) -> None:
        table = full_world.make()
        session = full_world.session()
        wrong = {"delta.appendOnyl": True}
        for ask in (
            lambda: session.create_table("x", "id long", properties=wrong),
            lambda: session.replace_table("orders", "id long", properties=wrong),
            lambda: table.set_properties(wrong),
        ):
            with pytest.raises(InvalidArgumentError, match=r"Did you mean 'delta.appendOnly'\?"):
                ask()

    def test_columns_that_are_misspelled_are_refused_and_the_right_ones_are_named(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        session = full_world.session()
        for ask in (
            lambda: table.to_arrow(["dya"]),
            lambda: table.to_arrow(where="dya IS NULL"),
            lambda: table.append([{"dya": None}]),
            lambda: table.alter_column("dya", comment="x"),
            lambda: session.create_table("x", "id long, day date", "dya"),
        ):
            with pytest.raises(RefusedError, match=r"Did you mean 'day'\?"):
                ask()

    @req("LC-04")
    def test_a_handle_goes_by_id_through_a_rename_and_meets_no_namesake(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        session = full_world.session()
        session.rename("orders", "old")
        table.append(rows(1))
        assert ids_in(session.table("old").to_arrow()) == [1]
        table.snapshot()
        assert table.name == "main.default.old"

        session.drop("old")
        again = session.create_table("old", "id long, day date")
        assert again.id != table.id
        for use in (lambda: table.append(rows(2)), table.to_arrow):
            with pytest.raises(NotFoundError, match=table.id):
                use()
        assert ids_in(again.to_arrow()) == []

    @req("LC-04")
    def test_a_table_made_again_in_the_same_folder_is_another_one(self, tmp_path: Path) -> None:
        table = filesystem_world(tmp_path).make()
        table.append(rows(1))
        session = filesystem_world(tmp_path).session()  # another process
        session.drop("orders")
        session.purge("orders")
        again = session.create_table("orders", "id long, day date")
        assert again.location == table.location
        again.append(rows(2))
        for use in (lambda: table.append(rows(3)), table.to_arrow, table.snapshot):
            with pytest.raises(NotFoundError, match=table.id):
                use()
        assert (again.version, ids_in(again.to_arrow())) == (1, [2])

    def test_a_table_is_found_by_its_id(self, full_world: World) -> None:
        table = full_world.make()
        assert full_world.session().table_by_id(table.id).name == table.name
        with pytest.raises(InvalidArgumentError):
            full_world.session().table_by_id("orders")


class TestCreation:
    @req("LC-01")
    def test_name_and_version_0_appear_in_one_call(self, full_world: World) -> None:
        table = full_world.make()
        [commit] = full_world.catalog.ratified_commits(table.id).commits
        assert (commit.version, commit.way) == (0, Way.INLINE)

    @req("CM-36", "EN-02")
    def test_version_0_says_what_a_managed_table_needs_and_no_more(self, full_world: World) -> None:
        table = full_world.session().create_table(
            "orders", "id long not null, day date", ["DAY"], {"a": "b"}, comment="about orders"
        )
        snapshot = table.snapshot()
        assert snapshot.protocol.min_reader_version == 3
        assert snapshot.protocol.min_writer_version == 7
        assert set(snapshot.protocol.reader_features or ()) == {
            "catalogManaged",
            "vacuumProtocolCheck",
        }
        assert set(snapshot.protocol.writer_features or ()) == {
            "catalogManaged",
            "vacuumProtocolCheck",
            "inCommitTimestamp",
            "invariants",  # for the column that may not be null
        }
        assert snapshot.metadata.configuration == {
            "a": "b",
            "delta.enableInCommitTimestamps": "true",
            "io.unitycatalog.tableId": table.id,
        }
        assert snapshot.metadata.id == table.id
        assert snapshot.metadata.description == "about orders"
        assert table.partition_columns == ("day",)
        assert [entry.operation for entry in table.history()] == ["CREATE TABLE"]

    @pytest.mark.parametrize(
        ("schema", "properties", "features"),
        [
            ("t timestamp_ntz", {}, {"timestampNtz"}),
            ("v variant, id long", {}, {"variantType"}),
            ("id long", {"delta.enableDeletionVectors": "true"}, {"deletionVectors"}),
            ("id long", {"delta.enableRowTracking": "true"}, {"rowTracking", "domainMetadata"}),
            ("id long", {"delta.appendOnly": True}, {"appendOnly"}),
            ("id long", {"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
            ("id long", {"delta.constraints.c": "id > 0"}, {"checkConstraints"}),
            ("id long", {"delta.columnMapping.mode": "name"}, {"columnMapping"}),
            ("id long", {"delta.feature.domainMetadata": "supported"}, {"domainMetadata"}),
        ],
    )
    def test_what_schema_and_properties_need_is_supported_from_the_start(
        self,
        full_world: World,
        schema: str,
        properties: dict[str, str | int | bool],
        features: set[str],
    ) -> None:
        table = full_world.session().create_table("t", schema, properties=properties)
        managed = {"catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"}
        assert set(table.snapshot().protocol.writer_features or ()) == managed | features
        assert not [key for key in table.properties if key.startswith("delta.feature.")]

    def test_under_column_mapping_every_field_has_an_id_and_a_name_of_its_own(
        self, full_world: World
    ) -> None:
        table = full_world.session().create_table(
            "t", "id long, `a b` struct<x: int>", properties={"delta.columnMapping.mode": "name"}
        )
        assert table.properties["delta.columnMapping.maxColumnId"] == "3"
        names = [str(f.metadata["delta.columnMapping.physicalName"]) for f in table.schema.fields]
        assert all(name.startswith("col-") for name in names)
        table.append(
            pa.table({"id": [1], "a b": pa.array([{"x": 2}], pa.struct({"x": pa.int32()}))})
        )
        assert table.to_arrow().to_pylist() == [{"id": 1, "a b": {"x": 2}}]

    @pytest.mark.parametrize(
        "schema",
        [
            "id long, day date",
            parse_schema("id long, day date"),
            pa.schema({"id": pa.int64(), "day": pa.date32()}),
        ],
    )
    def test_a_schema_is_text_or_a_schema_of_delta_or_arrow(
        self, full_world: World, schema: object
    ) -> None:
        table = full_world.session().create_table("t", schema)
        table.append(rows(1))
        assert ids_in(table.to_arrow()) == [1]

    @pytest.mark.parametrize(
        ("schema", "partition_by", "properties", "error"),
        [
            ("id long, ID int", [], {}, InvalidSchemaError),
            ("id long", ["day"], {}, InvalidSchemaError),
            ("`a b` long", [], {}, InvalidSchemaError),
            ("id long", [], {"io.unitycatalog.tableId": "x"}, InvalidArgumentError),
            ("id long", [], {"delta.enableInCommitTimestamps": "false"}, InvalidArgumentError),
            ("id long", [], {"delta.feature.sparkling": "supported"}, UnsupportedFeatureError),
            ("id long", [], {"delta.columnMapping.mode": "weird"}, InvalidArgumentError),
            ("id long", [], {"owner": None}, InvalidArgumentError),
        ],
    )
    def test_what_cannot_be_made_is_refused_before_the_catalog_is_asked(
        self,
        full_world: World,
        schema: str,
        partition_by: Iterable[str],
        properties: dict[str, str],
        error: type[Exception],
    ) -> None:
        with pytest.raises(error):
            full_world.session().create_table("t", schema, partition_by, properties)
        assert full_world.session().tables() == ()

    @req("LC-01")
    def test_of_two_creators_of_one_name_one_wins(self, full_world: World) -> None:
        table = full_world.make()
        for three_phase in (False, True):
            with pytest.raises(AlreadyExistsError):
                full_world.session().create_table("orders", "id long", three_phase=three_phase)
        table.append(rows(1))
        assert ids_in(full_world.session().table("orders").to_arrow()) == [1]

    @req("CM-39", "CM-37")
    def test_in_three_phases_the_creator_puts_version_0_and_then_names_it(
        self, full_world: World
    ) -> None:
        session = full_world.session()
        table = session.create_table("orders", "id long, day date", three_phase=True)
        put = [
            path
            for call in full_world.store_for(table.location).calls
            if call.is_write
            for path in call.paths
        ]
        assert put == [PublishedCommit(Version(0)).path]
        content = full_world.store_for(table.location).get(put[0])
        info = json.loads(content.split(b"\n")[0])["commitInfo"]
        assert info["txnId"]
        assert info["inCommitTimestamp"] == table.snapshot().timestamp_ms
        table.append(rows(1))
        assert ids_in(session.table("orders").to_arrow()) == [1]

    @req("CM-39")
    @pytest.mark.parametrize(
        "point",
        [
            "registry.before_version_zero",
            "registry.after_version_zero",
            "registry.before_register",
        ],
    )
    def test_a_crash_before_the_third_phase_leaves_no_named_table(
        self, near_world: World, point: str
    ) -> None:
        session = near_world.session()
        arm(f"{point}:raise")
        try:
            with pytest.raises(FailPointError):
                session.create_table("orders", "id long", three_phase=True)
        finally:
            arm("")
        assert session.tables() == ()
        with pytest.raises(NotFoundError):
            session.table("orders")
        session.create_table("orders", "id long, day date", three_phase=True).append(rows(1))

    @req("LC-01", "LC-02", "CM-43")
    @pytest.mark.parametrize("three_phase", [False, True], ids=["one call", "three phases"])
    def test_a_creation_whose_answer_was_lost_is_asked_again_and_is_one_table(
        self, full_world: World, three_phase: bool
    ) -> None:
        catalog: Any = Deaf(full_world.catalog, times=3)
        table = full_world.session(catalog).create_table(
            "orders", "id long, day date", three_phase=three_phase
        )
        assert catalog.asked == 4
        assert [entry.table_id for entry in full_world.session().tables()] == [table.id]

    def test_a_creation_that_is_never_answered_is_unknown(self, full_world: World) -> None:
        catalog: Any = Deaf(full_world.catalog, times=1_000_000)
        with pytest.raises(OutcomeUnknownError):
            full_world.session(catalog, unknown_wait_s=0.05).create_table("orders", "id long")


class Behind:
    """Another catalog with all it can do, but for what a subclass does otherwise."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in dir(inner):
            if not name.startswith("_") and not hasattr(type(self), name):
                setattr(self, name, getattr(inner, name))


class Deaf(Behind):
    """A catalog whose answers to the first creations are lost."""

    def __init__(self, inner: Any, times: int) -> None:
        super().__init__(inner)
        self._times = times
        self.asked = 0

    def create_table(
        self, name: TableName, table_id: TableId, txn_id: TxnId, first: Inline
    ) -> Resolved:
        return self._lost(self.inner.create_table(name, table_id, txn_id, first))

    def register_table(self, name: TableName, table_id: TableId) -> Resolved:
        return self._lost(self.inner.register_table(name, table_id))

    def _lost(self, answer: Resolved) -> Resolved:
        self.asked += 1
        if self.asked <= self._times:
            raise UnavailableError("The line went dead.")
        return answer


class TestTheEndOfATable:
    @req("LC-03")
    def test_a_dropped_table_can_be_restored_until_it_is_purged(self, full_world: World) -> None:
        table = full_world.make()
        table.append(rows(1))
        session = full_world.session()
        assert session.drop("orders") == table.id
        with pytest.raises(NotFoundError):
            session.table("orders")
        with pytest.raises(NotFoundError):
            table.append(rows(2))
        session.create_table("orders", "id long, day date")
        with pytest.raises(AlreadyExistsError):
            session.undrop(table.id)
        back = session.undrop("orders", to="orders_again")
        assert (back.id, ids_in(back.to_arrow())) == (table.id, [1])
        session.drop("orders_again")
        assert session.purge("orders_again") > 0
        with pytest.raises(NotFoundError):
            session.undrop("orders_again")

    def test_of_dropped_tables_with_one_name_the_last_is_restored_and_none_purged(
        self, full_world: World
    ) -> None:
        session = full_world.session()
        first, second = (
            (session.create_table("orders", "id long"), session.drop("orders"))[0] for _ in range(2)
        )
        with pytest.raises(InvalidArgumentError, match=first.id):
            session.purge("orders")
        assert session.undrop("orders").id == second.id
        session.purge(first.id)
        assert [entry.table_id for entry in session.tables(dropped=True)] == [second.id]

    def test_what_was_never_dropped_can_be_neither_undropped_nor_purged(
        self, full_world: World
    ) -> None:
        full_world.make()
        for ask in (full_world.session().undrop, full_world.session().purge):
            with pytest.raises(NotFoundError):
                ask("orders")


class TestCuts:
    @req("MT-02", "MT-16")
    def test_several_tables_are_read_as_of_one_sequence(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        session = full_world.session()
        a.append(rows(1))
        at = b.append(rows(2)).sequence
        stamp = b.snapshot().timestamp_ms
        a.append(rows(3))
        assert {n: s.version for n, s in session.read_cut(["a", "main.default.b"]).items()} == {
            "a": 2,
            "main.default.b": 1,
        }
        for cut in (
            session.read_cut(["a", "b"], sequence=at),
            session.read_cut(["a", "b"], as_of=stamp),
        ):
            assert {name: snapshot.version for name, snapshot in cut.items()} == {"a": 1, "b": 1}
        with pytest.raises(InvalidArgumentError):
            session.read_cut(["a"], sequence=1, as_of=1)

    def test_a_cut_is_one_call(self, full_world: World) -> None:
        full_world.make("a")
        full_world.make("b")
        asked: list[object] = []

        class Counted(Behind):
            def resolve_many(self, *refs: object) -> object:
                asked.append(refs)
                return self.inner.resolve_many(*refs)

            def resolve(self, *ref: object) -> object:
                raise AssertionError("a table was resolved by itself")

        catalog: Any = Counted(full_world.catalog)
        full_world.session(catalog).read_cut(["a", "b", "a"])
        assert len(asked) == 1


def test_a_session_lets_go_of_its_catalog_once(minimal_world: World) -> None:
    closed: list[str] = []
    catalog = minimal_world.catalog
    assert isinstance(catalog, MinimalCatalog)
    with Session(
        catalog,
        clock=minimal_world.clock,
        ids=minimal_world.ids,
        store_for=minimal_world.store_for,
        on_close=lambda: closed.append("closed"),
    ) as session:
        table = minimal_world.make()
        assert session.table("orders").id == table.id
        open_table = session.table("orders")
        session.close()
        with pytest.raises(UnavailableError, match="closed"):
            open_table.append(rows(1))
    assert closed == ["closed"]
    assert minimal_world.clock.monotonic() == 0  # it did not wait
