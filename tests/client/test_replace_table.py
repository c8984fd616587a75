"""Another table in a table's place: same id, versions that go on, nothing of before in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.client import arrow_io
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.table_definition import (
    PendingTable,
    TableDefinition,
    replacement,
    table_operation,
)
from headgate.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    InvalidCommitError,
    InvalidDataError,
    InvalidSchemaError,
    NotFoundError,
    RefusedError,
    UnsupportedFeatureError,
)
from headgate.protocol.actions import AddFile, DomainMetadata, Metadata, Protocol
from headgate.protocol.clustering import DOMAIN
from headgate.protocol.features import effective, is_supported
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema.column_mapping import MAX_COLUMN_ID, MODE, field_id
from headgate.protocol.schema.types import (
    COMMENT,
    DEFAULT,
    GENERATION,
    LONG,
    StructField,
    StructType,
    all_fields,
    from_json,
)
from tests.client.conftest import World, ids_in, rows
from tests.kit.other_readers import deltalake_reads, duckdb_scans, plain_copy
from tests.kit.other_readers import rows as witnessed

MAPPED = {MODE: "name"}


def last_said(table: Table) -> tuple[str | None, dict[str, object]]:
    [entry] = table.history(limit=1)
    return entry.operation, dict(entry.parameters)


def written(world: World, place: PendingTable, given: pa.Table) -> list[AddFile]:
    """Write files as an engine does: for a table that is not yet what it will be."""
    shape = Shape(from_json(place.metadata.schema_string), place.metadata, place.protocol)
    return arrow_io.write_files(
        shape, given, store=place.store, new_id=world.ids.random, now_ms=world.clock.now_ms()
    )


@dataclass(frozen=True)
class Shape:
    schema: StructType
    metadata: Metadata
    protocol: Protocol


class TestReplacingATable:
    def test_columns_partitions_properties_and_comment_are_those_asked_for(
        self, world: World
    ) -> None:
        table = world.make(partition_by=["day"], properties={"mine": "1"})
        table.append(rows(1))
        before = table.snapshot()
        found = world.session().replace_table(
            "orders", "part string, n int", ["PART"], {"b": True}, "another"
        )
        after = table.snapshot()
        assert (found.id, table.id, after.version) == (table.id, table.id, 2)
        assert [item.name for item in after.schema.fields] == ["part", "n"]
        assert after.partition_columns == ("part",)
        assert after.metadata.description == "another"
        assert dict(after.properties) == {
            TABLE_ID_PROPERTY: table.id,
            "delta.enableInCommitTimestamps": "true",
            "b": "true",
        }
        assert after.metadata.created_time == before.metadata.created_time
        assert after.files() == []
        table.append(pa.table({"part": ["x"], "n": pa.array([5], pa.int32())}))
        assert table.to_arrow().to_pylist() == [{"part": "x", "n": 5}]
        assert ids_in(table.to_arrow(version=1)) == [1]

    def test_the_commit_says_what_delta_says(self, world: World) -> None:
        table = world.make()
        session = world.session()
        session.replace_table("orders", "n int", comment="another")
        operation, parameters = last_said(table)
        assert operation == "REPLACE TABLE"
        assert parameters == {
            "isManaged": "true",
            "description": "another",
            "partitionBy": "[]",
            "clusterBy": "[]",
            "properties": parameters["properties"],
        }
        assert json.loads(str(parameters["properties"])) == table.snapshot().properties
        session.replace_table("orders", "m int", or_create=True)
        assert last_said(table)[0] == "CREATE OR REPLACE TABLE"

    def test_others_read_it_as_we_do(self, full_world: World, tmp_path: Path) -> None:
        table = full_world.make(partition_by=["day"])
        table.append(rows(1, 2))
        full_world.session().replace_table("orders", "id string, n int")
        table.append(pa.table({"id": ["x"], "n": pa.array([5], pa.int32())}))
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        ours = witnessed(table.to_arrow())
        assert ours.values == (("x", 5),)
        assert deltalake_reads(copy) == ours
        assert duckdb_scans(copy) == ours

    def test_a_table_that_does_not_exist_is_refused_or_created(self, full_world: World) -> None:
        session = full_world.session()
        with pytest.raises(NotFoundError):
            session.replace_table("nowhere", "n int")
        assert session.tables() == ()
        table = session.replace_table("nowhere", "n int", or_create=True)
        assert (table.version, last_said(table)[0]) == (0, "CREATE OR REPLACE TABLE")

    def test_a_table_that_is_created_concurrently_is_replaced(self, full_world: World) -> None:
        class Slow(Session):
            def _open(self, ref):  # type: ignore[no-untyped-def]
                try:
                    return super()._open(ref)
                except NotFoundError:
                    full_world.make()
                    raise

        slow = Slow(
            full_world.catalog,
            clock=full_world.clock,
            ids=full_world.ids,
            store_for=full_world.store_for,
        )
        table = slow.replace_table("orders", "n int", or_create=True)
        assert (table.version, table.schema.fields[0].name) == (1, "n")

    def test_the_protocol_only_grows(self, full_world: World) -> None:
        table = full_world.make(properties={"delta.enableDeletionVectors": "true"})
        before = effective(table.snapshot().protocol)
        full_world.session().replace_table("orders", "t timestamp_ntz")
        after = effective(table.snapshot().protocol)
        assert after == before | {"timestampNtz"}
        assert "delta.enableDeletionVectors" not in table.properties

    def test_no_column_gets_the_id_of_one_of_before(self, full_world: World) -> None:
        table = full_world.make(schema="id long, s struct<x: int>", properties=MAPPED)
        table.append(pa.table({"id": [1]}))
        before = table.snapshot()
        used = {field_id(item) for _, item in all_fields(before.schema)}
        # Even where a caller hands in the very columns of before.
        full_world.session().replace_table("orders", before.schema)
        after = table.snapshot()
        given = {field_id(item) for _, item in all_fields(after.schema)}
        assert given == {4, 5, 6}
        assert used.isdisjoint(given)
        assert (after.properties[MODE], after.properties[MAX_COLUMN_ID]) == ("name", "6")
        table.append(pa.table({"id": [2]}))
        assert ids_in(table.to_arrow()) == [2]
        assert ids_in(table.to_arrow(version=1)) == [1]

    def test_partition_folders_of_a_new_column_have_another_name(self, full_world: World) -> None:
        table = full_world.make(partition_by=["day"], properties=MAPPED)
        table.append(rows(1))
        full_world.session().replace_table("orders", "id long, day date", ["day"])
        table.append(rows(2))
        assert (table.version, ids_in(table.to_arrow())) == (3, [2])
        assert ids_in(table.to_arrow(version=1)) == [1]

    def test_column_mapping_can_be_added_and_not_removed(self, full_world: World) -> None:
        table, session = full_world.make(), full_world.session()
        session.replace_table("orders", "`a b` long", properties=MAPPED)
        for mode in ("none", "id"):
            with pytest.raises(InvalidArgumentError, match="from name to"):
                session.replace_table("orders", "n int", properties={MODE: mode})
        assert table.snapshot().version == 1

    @pytest.mark.parametrize(
        ("schema", "partition_by", "properties", "error"),
        [
            ("a long, A int", (), {}, InvalidSchemaError),
            ("a long", ("b",), {}, InvalidSchemaError),
            ("a long", (), {TABLE_ID_PROPERTY: "x"}, InvalidArgumentError),
            ("a long", (), {"delta.enableRowTracking": "true"}, UnsupportedFeatureError),
            ("a long", (), {"delta.enableIcebergCompatV2": "true", **MAPPED}, RefusedError),
            ("a long", (), {"delta.appendOnly": "true"}, RefusedError),
        ],
    )
    def test_what_no_table_can_be_is_refused_and_nothing_changes(
        self,
        world: World,
        schema: str,
        partition_by: tuple[str, ...],
        properties: dict[str, str],
        error: type[Exception],
    ) -> None:
        table = world.make()
        table.append(rows(1))
        with pytest.raises(error):
            world.session().replace_table("orders", schema, partition_by, properties)
        assert table.snapshot().version == 1
        assert ids_in(table.to_arrow()) == [1]

    def test_a_table_that_is_append_only_loses_no_row(self, world: World) -> None:
        table = world.make(properties={"delta.appendOnly": "true"}, features=["appendOnly"])
        table.append(rows(1))
        with pytest.raises(RefusedError, match="append-only"):
            world.session().replace_table("orders", "n int")
        assert table.snapshot().version == 1

    def test_a_file_that_is_added_concurrently_is_removed_too(self, world: World) -> None:
        table, catalog = world.make(), world.losing()
        table.append(rows(1))
        catalog.overtakers = [lambda: table.append(rows(2))]
        world.session(catalog).replace_table("orders", "n int")
        after = table.snapshot()
        assert (after.version, after.files()) == (3, [])

    def test_clustering_goes_with_the_columns(self, full_world: World) -> None:
        table = full_world.make(features=["clustering"])
        domain = DomainMetadata(
            domain=DOMAIN, configuration='{"clusteringColumns":[["id"]]}', removed=False
        )
        made = table_operation("CLUSTER BY", table.snapshot().metadata)
        table.commit(table.snapshot(), [domain], made)
        assert table.detail().clustering_columns == ("id",)
        full_world.session().replace_table("orders", "n int")
        assert table.detail().clustering_columns == ()


class TestForAnEngine:
    def test_files_go_into_the_same_commit(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        base = table.snapshot()
        made = replacement(
            base, TableDefinition.like(base, "key long"), world.ids, table.committer.clock.now_ms()
        )
        place = PendingTable(base.location, base.store, made.protocol, made.metadata)
        added = written(world, place, pa.table({"key": [7]}))
        operation = table_operation("CREATE OR REPLACE TABLE AS SELECT", made.metadata)
        committed = table.commit(base, [*made.actions, *added], operation, made.scans)
        assert committed.version == 2
        assert world.session().table("orders").to_arrow().to_pylist() == [{"key": 7}]

    def test_a_new_table_appears_with_its_rows(self, full_world: World, tmp_path: Path) -> None:
        session = full_world.session()
        definition = TableDefinition.parse(
            "id long, day date", ["day"], {"delta.enableRowTracking": True}
        )
        seen: list[object] = []

        def fill(place: PendingTable) -> list[AddFile]:
            seen.extend(session.tables())
            return written(full_world, place, rows(1, 2))

        table = session.create_filled("orders", definition, fill)
        assert (seen, table.version, ids_in(table.to_arrow())) == ([], 0, [1, 2])
        [entry] = table.history()
        assert entry.operation == "CREATE TABLE AS SELECT"
        assert entry.metrics["numOutputRows"] == "2"
        [file] = table.snapshot().files()
        assert (file.base_row_id, file.default_row_commit_version) == (0, 0)
        table.append(rows(3))
        assert sorted(file.base_row_id or 0 for file in table.snapshot().files()) == [0, 2]
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        assert deltalake_reads(copy) == witnessed(table.to_arrow())

    def test_a_name_that_is_taken_meanwhile_stays_with_whose_it_is(self, full_world: World) -> None:
        session = full_world.session()

        def fill(place: PendingTable) -> list[AddFile]:
            full_world.make().append(rows(1))
            return written(full_world, place, rows(2))

        with pytest.raises(AlreadyExistsError):
            session.create_filled("orders", TableDefinition.parse("id long, day date"), fill)
        assert ids_in(session.table("orders").to_arrow()) == [1]

    def test_rows_that_cannot_be_made_make_no_table(self, full_world: World) -> None:
        session = full_world.session()

        def fill(place: PendingTable) -> list[AddFile]:
            raise InvalidDataError("No rows.")

        with pytest.raises(InvalidDataError):
            session.create_filled("orders", TableDefinition.parse("id long"), fill)
        assert session.tables() == ()

    def test_an_append_meanwhile_is_a_conflict(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        base = table.snapshot()
        made = replacement(base, TableDefinition.like(base, "key long"), world.ids, 1)
        other.append(rows(1))
        with pytest.raises(ConflictError, match="R7"):
            table.commit(base, made.actions, table_operation("X", made.metadata), made.scans)

    def test_partitions_change_only_while_every_file_goes(self, world: World) -> None:
        if world.is_minimal:
            pytest.skip("it judges no content")
        table = world.make()
        table.append(rows(1))
        table.append(rows(2))
        base = table.snapshot()
        made = replacement(base, TableDefinition.like(base, base.schema, ["day"]), world.ids, 1)
        operation = table_operation("X", made.metadata)
        with pytest.raises(InvalidCommitError, match="partition columns change"):
            table.commit(base, made.actions[:-1], operation, made.scans)
        assert table.snapshot().version == 2
        table.commit(base, made.actions, operation, made.scans)
        assert table.partition_columns == ("day",)

    def test_other_columns_alone_leave_all_else(self, full_world: World) -> None:
        table = full_world.session().create_table(
            "orders", "id long", (), {"mine": "1", **MAPPED}, "about"
        )
        base = table.snapshot()
        made = replacement(
            base, TableDefinition.like(base, "a long, p int", ["p"]), full_world.ids, 1
        )
        assert made.metadata.description == "about"
        assert made.metadata.partition_columns == ["p"]
        assert made.metadata.configuration == {**base.properties, MAX_COLUMN_ID: "3"}


class TestColumnsWithValuesOfTheirOwn:
    def test_comments_defaults_and_generated_columns_add_their_features(
        self, full_world: World
    ) -> None:
        schema = StructType(
            (
                StructField("id", LONG, metadata={COMMENT: "the key"}),
                StructField("n", LONG, metadata={DEFAULT: "1 + 1"}),
                StructField("g", LONG, metadata={GENERATION: "id * 2"}),
            )
        )
        table = full_world.session().create_table("orders", schema)
        snapshot = full_world.session().table("orders").snapshot()
        assert snapshot.schema == schema
        for feature in ("allowColumnDefaults", "generatedColumns"):
            assert is_supported(snapshot.protocol, feature)
            with pytest.raises(UnsupportedFeatureError, match=feature):
                table.append(pa.table({"id": [1]}))
        assert table.snapshot().version == 0

    @pytest.mark.parametrize(
        ("metadata", "error", "words"),
        [
            ({"delta.identity.start": 1}, UnsupportedFeatureError, "identityColumns"),
            ({DEFAULT: "1", GENERATION: "2"}, InvalidArgumentError, "generated and has"),
            ({DEFAULT: ""}, InvalidArgumentError, "not SQL"),
            ({GENERATION: 7}, InvalidArgumentError, "not SQL"),
        ],
    )
    def test_columns_whose_values_cannot_be_computed_are_refused(
        self,
        full_world: World,
        metadata: dict[str, object],
        error: type[Exception],
        words: str,
    ) -> None:
        session = full_world.session()
        with pytest.raises(error, match=words):
            session.create_table("orders", StructType((StructField("n", LONG, metadata=metadata),)))
        assert session.tables() == ()

    def test_only_whole_columns_have_a_default(self, full_world: World) -> None:
        inner = StructType((StructField("n", LONG, metadata={DEFAULT: "1"}),))
        with pytest.raises(InvalidArgumentError, match="only a whole column"):
            full_world.session().create_table("orders", StructType((StructField("s", inner),)))
