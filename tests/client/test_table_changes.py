"""Columns and constraints of a table that is there: each change one commit, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.client.table import Table
from headgate.client.transaction import OperationInfo
from headgate.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    InvalidDataError,
    InvalidSchemaError,
    NotFoundError,
    RefusedError,
    UnsupportedFeatureError,
)
from headgate.protocol.actions import DomainMetadata
from headgate.protocol.clustering import DOMAIN
from headgate.protocol.features import is_supported
from headgate.protocol.schema.alteration import AddedColumn, After, First
from headgate.protocol.schema.column_mapping import MAX_COLUMN_ID, field_id, physical_name
from headgate.protocol.schema.type_widening import type_changes
from headgate.protocol.schema.types import (
    DEFAULT,
    GENERATION,
    INTEGER,
    LONG,
    STRING,
    StructField,
    StructType,
    all_fields,
    comment_of,
    find,
)
from headgate.table.snapshot import Snapshot
from tests.client.conftest import World, ids_in, rows
from tests.kit.other_readers import deltalake_reads, duckdb_scans, plain_copy
from tests.kit.other_readers import rows as witnessed

MAPPED = {"delta.columnMapping.mode": "name"}
NESTED = "id long, at struct<x: int, many: array<struct<y: int>>>"
WIDENING = {"delta.enableTypeWidening": "true"}


def names(table: Table) -> list[str]:
    return [".".join(path) for path, _ in all_fields(table.snapshot().schema)]


def field(table: Table, *path: str) -> StructField:
    found = find(table.snapshot().schema, path)
    assert found is not None
    return found


def last_operation(table: Table) -> tuple[str | None, dict[str, object]]:
    """Return the operation of the last commit."""
    [entry] = table.history(limit=1)
    return entry.operation, dict(entry.parameters)


def refused(table: Table, change: Callable[[], object], error: type[Exception], words: str) -> None:
    """See a change refused for the reason given, and nothing committed."""
    before = table.snapshot().version
    with pytest.raises(error, match=words):
        change()
    assert table.snapshot().version == before


class TestAddingColumns:
    def test_rows_that_are_there_have_nulls_in_a_new_column(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        assert table.add_columns("note string comment 'why'").version == 2
        table.append(pa.table({"id": [2], "note": ["new"]}))
        found = world.session().table("orders").to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["note"]) for row in found] == [(1, None), (2, "new")]
        assert comment_of(field(table, "note")) == "why"
        assert "note" not in table.to_arrow(version=1).column_names

    def test_each_stands_where_it_is_to_stand_and_the_commit_says_so(self, world: World) -> None:
        table = world.make(schema=NESTED)
        table.add_columns(
            [
                AddedColumn(
                    StructField("z", STRING, metadata={"comment": "why"}), ("at",), First()
                ),
                AddedColumn(
                    StructField("s", StructType((StructField("i", LONG),))), (), After("ID")
                ),
                AddedColumn(StructField("w", LONG), ("at", "many", "element")),
                AddedColumn(StructField("t", LONG), (), After("s")),
            ]
        )
        assert names(table) == [
            "id",
            "s",
            "s.i",
            "t",
            "at",
            "at.z",
            "at.x",
            "at.many",
            "at.many.element.y",
            "at.many.element.w",
        ]
        operation, parameters = last_operation(table)
        assert operation == "ADD COLUMNS"
        columns = json.loads(str(parameters["columns"]))
        assert columns[0] == {
            "column": {
                "name": "at.z",
                "type": "string",
                "nullable": True,
                "metadata": {"comment": "why"},
            },
            "position": "FIRST",
        }
        assert [item["column"]["type"] for item in columns] == ["string", "struct", "long", "long"]
        assert columns[1]["position"] == "AFTER ID"
        assert "position" not in columns[2]

    def test_under_column_mapping_it_gets_an_id_and_a_name_in_files(
        self, full_world: World
    ) -> None:
        table = full_world.make(schema=NESTED, properties=MAPPED)
        used = {field_id(item) for _, item in all_fields(table.schema)}
        table.add_columns("more struct<a: long>")
        added = [field(table, "more"), field(table, "more", "a")]
        assert used.isdisjoint(field_id(item) for item in added)
        assert all(physical_name(item).startswith("col-") for item in added)
        highest = max(field_id(item) or 0 for item in added)
        assert table.properties[MAX_COLUMN_ID] == str(highest)
        table.append(pa.table({"id": [1], "more": [{"a": 7}]}))
        assert table.to_arrow(columns=["more"]).to_pylist() == [{"more": {"a": 7}}]

    def test_names_that_files_of_another_table_have_are_not_taken_over(
        self, full_world: World
    ) -> None:
        other = full_world.make("other", properties=MAPPED)
        table = full_world.make(properties=MAPPED)
        table.add_columns(
            [AddedColumn(StructField("d", LONG, metadata=field(other, "id").metadata))]
        )
        assert physical_name(field(table, "d")) != physical_name(field(other, "id"))

    @pytest.mark.parametrize(
        ("column", "feature"), [("t timestamp_ntz", "timestampNtz"), ("v variant", "variantType")]
    )
    def test_a_type_brings_the_feature_it_needs(
        self, world: World, column: str, feature: str
    ) -> None:
        table = world.make()
        assert not is_supported(table.snapshot().protocol, feature)
        table.add_columns(f"s struct<{column.replace(' ', ': ')}>")
        protocol = world.session().table("orders").snapshot().protocol
        assert feature in (protocol.reader_features or [])
        assert feature in (protocol.writer_features or [])

    def test_a_table_with_the_preview_of_a_feature_does_not_get_the_feature(
        self, full_world: World
    ) -> None:
        table = full_world.make(features=["variantType-preview"])
        table.add_columns("v variant")
        assert not is_supported(table.snapshot().protocol, "variantType")

    @pytest.mark.parametrize(
        ("column", "error", "words"),
        [
            (StructField("n", LONG, nullable=False), InvalidArgumentError, "NOT NULL"),
            (
                StructField("n", StructType((StructField("i", LONG, nullable=False),))),
                InvalidArgumentError,
                "n.i is NOT NULL",
            ),
            (StructField("n", LONG, metadata={DEFAULT: "1"}), RefusedError, "allowColumnDefaults"),
            (StructField("n", LONG, metadata={GENERATION: "1"}), RefusedError, "generatedColumns"),
            (
                StructField("n", LONG, metadata={"delta.identity.start": 1}),
                RefusedError,
                "identityColumns",
            ),
            (StructField("ID", LONG), AlreadyExistsError, "ID exists already"),
            (StructField("a b", LONG), InvalidSchemaError, "needs column mapping"),
        ],
    )
    def test_a_column_that_rows_which_are_there_cannot_have_is_refused(
        self, world: World, column: StructField, error: type[Exception], words: str
    ) -> None:
        table = world.make()
        refused(table, lambda: table.add_columns(StructType((column,))), error, words)

    def test_a_place_that_is_not_there_is_refused(self, world: World) -> None:
        table, new = world.make(schema=NESTED), StructField("n", LONG)
        for column, error in (
            (AddedColumn(new, (), After("nowhere")), NotFoundError),
            (AddedColumn(new, ("nowhere",)), NotFoundError),
            (AddedColumn(new, ("id",)), InvalidArgumentError),
            (AddedColumn(new, ("at", "many")), InvalidArgumentError),
        ):
            refused(table, lambda c=column: table.add_columns([c]), error, "olumn")  # type: ignore[misc]
        refused(table, lambda: table.add_columns([]), InvalidArgumentError, "No column")

    def test_two_columns_that_are_added_concurrently_are_both_there(self, world: World) -> None:
        table, idle = world.make(), world.session().table("orders")
        table.add_columns("a long")
        idle.add_columns("b long")
        assert names(table) == ["id", "day", "a", "b"]
        late = world.session().table("orders")
        table.add_columns("c long")
        refused(table, lambda: late.add_columns("c string"), AlreadyExistsError, "c exists already")

    def test_an_append_of_before_does_not_pass_into_the_new_schema(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        base = other.snapshot()
        change = other._writing(base, rows(1))
        table.add_columns("a long")
        with pytest.raises(ConflictError):
            other._commit(change)

    def test_others_read_the_table_as_we_do(self, full_world: World, tmp_path: Path) -> None:
        table = full_world.make()
        table.append(rows(1))
        table.add_columns([AddedColumn(StructField("note", STRING), (), First())])
        table.append(pa.table({"id": [2], "note": ["new"]}))
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        ours = witnessed(table.to_arrow())
        assert ours.columns == ("note", "id", "day")
        assert deltalake_reads(copy) == ours
        assert duckdb_scans(copy) == ours


class TestAlteringAColumn:
    def test_a_comment_is_set_and_removed_and_nothing_else_changes(self, world: World) -> None:
        table = world.make(schema=NESTED)
        table.alter_column("id", comment="the key")
        table.alter_column(["at", "x"], comment="where")
        assert comment_of(field(table, "id")) == "the key"
        assert comment_of(field(table, "at", "x")) == "where"
        operation, parameters = last_operation(table)
        assert operation == "CHANGE COLUMN"
        assert json.loads(str(parameters["column"])) == {
            "name": "at.x",
            "type": "integer",
            "nullable": True,
            "metadata": {"comment": "where"},
        }
        table.alter_column("id", comment=None)
        assert field(table, "id") == StructField("id", LONG)

    def test_a_column_that_may_become_null_takes_nulls(self, world: World) -> None:
        table = world.make(schema="id long not null, day date")
        refused(
            table, lambda: table.append(pa.table({"id": pa.nulls(1)})), InvalidDataError, "null"
        )
        table.alter_column("id", nullable=True)
        table.append(pa.table({"id": pa.nulls(1)}))
        assert table.to_arrow(columns=["id"]).to_pylist() == [{"id": None}]

    def test_not_null_is_set_where_no_row_has_a_null(self, world: World) -> None:
        table = world.make(schema="id long, at struct<x: int>, part string", partition_by=["part"])
        table.append(pa.table({"id": [1], "at": [{"x": None}], "part": ["a"]}))
        table.append(pa.table({"id": [2], "at": [{"x": 1}], "part": pa.nulls(1, pa.string())}))
        for column in ("part", ("at", "x")):
            refused(
                table,
                lambda c=column: table.alter_column(c, nullable=False),  # type: ignore[misc]
                InvalidDataError,
                "may not be null",
            )
        table.alter_column("id", nullable=False)
        refused(table, lambda: table.append(pa.table({"part": ["a"]})), InvalidDataError, "id")
        assert not field(table, "id").nullable

    def test_a_row_that_is_added_during_the_check_is_checked(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        null = pa.table({"id": pa.nulls(1, pa.int64())})
        seen: list[int] = []

        def check(snapshot: Snapshot) -> None:
            seen.append(snapshot.version)
            if len(seen) == 1:
                other.append(null)
            elif any(value is None for value in table.to_arrow().column("id").to_pylist()):
                raise InvalidDataError("There is a null.")

        with pytest.raises(InvalidDataError, match="There is a null"):
            table.alter_column("id", nullable=False, check=check)
        assert seen == [0, 1]
        assert (table.snapshot().version, field(table, "id").nullable) == (1, True)

    def test_a_column_moves_among_its_siblings(self, world: World) -> None:
        table = world.make(schema="a long, b long, c struct<x: int, y: int>")
        table.append(pa.table({"a": [1], "b": [2]}))
        table.alter_column("c", position=First())
        table.alter_column("b", position=After("c"))
        table.alter_column(("c", "y"), position=First(), comment="moved")
        assert names(table) == ["c", "c.y", "c.x", "b", "a"]
        assert last_operation(table)[1]["position"] == "FIRST"
        assert table.to_arrow().to_pylist() == [{"c": None, "b": 2, "a": 1}]
        refused(
            table, lambda: table.alter_column("a", position=After("a")), NotFoundError, "column a"
        )

    def test_a_default_is_set_with_its_feature_and_removed(self, world: World) -> None:
        table = world.make(schema=NESTED)
        table.alter_column("id", default="7 + 1")
        assert field(table, "id").metadata == {DEFAULT: "7 + 1"}
        assert is_supported(table.snapshot().protocol, "allowColumnDefaults")
        refused(
            table, lambda: table.append(rows(1)), UnsupportedFeatureError, "allowColumnDefaults"
        )
        for path, text in ((("at", "x"), "1"), (("id",), " ")):
            refused(
                table,
                lambda p=path, t=text: table.alter_column(p, default=t),  # type: ignore[misc]
                InvalidArgumentError,
                "DEFAULT",
            )
        table.alter_column("id", default=None)
        assert field(table, "id").metadata == {}

    def test_a_type_becomes_wider_and_older_files_are_read(
        self, full_world: World, tmp_path: Path
    ) -> None:
        table = full_world.make(schema="n int, many array<short>", properties=WIDENING)
        table.append(pa.table({"n": pa.array([1], pa.int32()), "many": [[1]]}))
        table.alter_column("n", type="long")
        table.alter_column("many", type="array<int>")
        table.append(pa.table({"n": [1 << 40], "many": [[1 << 20]]}))
        found = table.to_arrow().sort_by("n").to_pylist()
        assert found == [{"n": 1, "many": [1]}, {"n": 1 << 40, "many": [1 << 20]}]
        assert [
            (change.path, str(change.before), str(change.after), change.within)
            for change in type_changes(table.schema)
        ] == [(("n",), "integer", "long", None), (("many",), "short", "integer", "element")]
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        assert duckdb_scans(copy) == witnessed(table.to_arrow())

    def test_a_type_that_is_not_wider_is_refused(self, full_world: World) -> None:
        plain = full_world.make("plain", "n int")
        refused(
            plain, lambda: plain.alter_column("n", type="long"), UnsupportedFeatureError, "typeWid"
        )
        table = full_world.make(
            schema="n int, p int, s struct<x: int>",
            partition_by=["p"],
            properties={**WIDENING, "delta.constraints.c": "N > 0"},
        )
        for column, wanted, error, words in (
            ("p", "long", UnsupportedFeatureError, "partitioned by"),
            ("s", "struct<x: long>", UnsupportedFeatureError, "not a widening"),
            (("s", "x"), "short", UnsupportedFeatureError, "not a widening"),
            (("s", "x"), "string", UnsupportedFeatureError, "s.x is integer"),
            ("n", "long", InvalidArgumentError, "constraint c"),
            (("s", "x"), "strange", InvalidSchemaError, "not a type"),
        ):
            refused(
                table,
                lambda c=column, w=wanted: table.alter_column(c, type=w),  # type: ignore[misc]
                error,
                words,
            )
        table.alter_column(("s", "x"), type=LONG)
        assert field(table, "s", "x").type == LONG

    def test_a_generated_column_keeps_its_type(self, full_world: World) -> None:
        schema = StructType(
            (StructField("id", LONG), StructField("g", INTEGER, metadata={GENERATION: "1"}))
        )
        table = full_world.session().create_table("orders", schema, (), WIDENING)
        refused(
            table, lambda: table.alter_column("g", type=LONG), UnsupportedFeatureError, "generated"
        )

    def test_a_column_that_is_not_there_and_no_change_at_all_are_refused(
        self, world: World
    ) -> None:
        table = world.make()
        refused(table, lambda: table.alter_column("no", comment="x"), NotFoundError, "column no")
        refused(
            table, lambda: table.alter_column("id"), InvalidArgumentError, "No change of column id"
        )
        refused(
            table, lambda: table.alter_column([], comment="x"), InvalidArgumentError, "No column"
        )


class TestRenamingAndDropping:
    def test_a_name_changes_and_files_stay_as_they_are(
        self, full_world: World, tmp_path: Path
    ) -> None:
        table = full_world.make(
            schema="id long, part string, s struct<x: int>",
            partition_by=["part"],
            properties=MAPPED,
        )
        table.append(pa.table({"id": [1], "part": ["a"], "s": [{"x": 5}]}))
        table.rename_column("part", "section")
        table.rename_column(("s", "x"), "y")
        assert last_operation(table) == (
            "RENAME COLUMN",
            {"oldColumnPath": "s.x", "newColumnPath": "s.y"},
        )
        table.append(pa.table({"id": [2], "section": ["b"], "s": [{"y": 6}]}))
        found = table.to_arrow().sort_by("id").to_pylist()
        assert [(row["section"], row["s"]) for row in found] == [("a", {"y": 5}), ("b", {"y": 6})]
        assert table.partition_columns == ("section",)
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        # DuckDB finds no partition value under column mapping, renamed or not.
        assert deltalake_reads(copy) == witnessed(table.to_arrow())

    def test_a_new_column_with_the_name_of_a_dropped_one_is_empty(
        self, full_world: World, tmp_path: Path
    ) -> None:
        table = full_world.make(
            schema="id long, a long, s struct<x: int, y: int>", properties=MAPPED
        )
        table.append(pa.table({"id": [1], "a": [2], "s": [{"x": 3, "y": 4}]}))
        table.drop_columns(["a", ("s", "x")])
        assert last_operation(table) == ("DROP COLUMNS", {"columns": '["a","s.x"]'})
        assert table.to_arrow().to_pylist() == [{"id": 1, "s": {"y": 4}}]
        table.add_columns("a long")
        assert table.to_arrow().to_pylist() == [{"id": 1, "s": {"y": 4}, "a": None}]
        assert table.to_arrow(version=1).to_pylist()[0]["a"] == 2
        table.publish()
        copy = plain_copy(table.location, tmp_path / "copy")
        assert duckdb_scans(copy) == witnessed(table.to_arrow())

    def test_what_may_be_missing_is_passed_over(self, full_world: World) -> None:
        table = full_world.make(properties=MAPPED)
        assert table.drop_columns(["no", "nowhere"], if_exists=True) is None
        assert table.snapshot().version == 0
        table.drop_columns(["no", "day"], if_exists=True)
        assert names(table) == ["id"]

    def test_without_column_mapping_it_is_refused_by_name(self, world: World) -> None:
        table = world.make()
        for change in (
            lambda: table.rename_column("id", "key"),
            lambda: table.drop_columns(["day"]),
        ):
            refused(table, change, UnsupportedFeatureError, "columnMapping")

    def test_what_others_go_by_keeps_its_name(self, full_world: World) -> None:
        table = full_world.session().create_table(
            "orders",
            StructType(
                (
                    StructField("id", LONG),
                    StructField("two words", LONG),
                    StructField("double", LONG, metadata={GENERATION: "`two words` * 2"}),
                    StructField("part", STRING),
                    StructField("free", STRING),
                )
            ),
            ["part"],
            {**MAPPED, "delta.constraints.c": "ID > 0 and part <> 'free'"},
        )
        for column, who in (("id", "constraint c"), ("two words", "generated column double")):
            for change in (
                lambda c=column: table.rename_column(c, "other"),
                lambda c=column: table.drop_columns([c]),
            ):
                refused(table, change, InvalidArgumentError, who)
        refused(table, lambda: table.drop_columns(["part"]), InvalidArgumentError, "partitioned by")
        refused(table, lambda: table.rename_column("free", "ID"), InvalidSchemaError, "twice")
        refused(table, lambda: table.drop_columns(["no"]), NotFoundError, "no")
        refused(table, lambda: table.drop_columns([]), InvalidArgumentError, "No column")
        table.drop_columns(["free"])
        assert names(table) == ["id", "two words", "double", "part"]

    def test_a_column_that_rows_are_clustered_by_stays(self, full_world: World) -> None:
        table = full_world.make(
            schema="id long, s struct<x: int>", properties=MAPPED, features=["clustering"]
        )
        physical = [physical_name(field(table, "s")), physical_name(field(table, "s", "x"))]
        domain = DomainMetadata(
            domain=DOMAIN,
            configuration=json.dumps({"clusteringColumns": [physical]}),
            removed=False,
        )
        table.commit(table.snapshot(), [domain], OperationInfo("CLUSTER BY"))
        assert table.detail().clustering_columns == ("s.x",)
        for path in (("S",), ("s", "x")):
            refused(
                table,
                lambda p=path: table.drop_columns([p]),  # type: ignore[misc]
                InvalidArgumentError,
                "clustered by",
            )
        table.rename_column("s", "t")
        assert table.detail().clustering_columns == ("t.x",)


class TestConstraints:
    def test_from_then_on_no_row_breaks_it(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        table.add_constraint("Positive", "id > 0")
        assert last_operation(table) == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id > 0"})
        assert is_supported(table.snapshot().protocol, "checkConstraints")
        assert table.properties["delta.constraints.positive"] == "id > 0"
        refused(table, lambda: table.append(rows(0)), InvalidDataError, "positive")
        other = world.session().table("orders")
        other.drop_constraint("POSITIVE")
        assert last_operation(table) == (
            "DROP CONSTRAINT",
            {"name": "POSITIVE", "expr": "id > 0", "existed": "true"},
        )
        table.append(rows(0))
        assert ids_in(table.to_arrow()) == [0, 1]

    def test_rows_that_are_there_must_satisfy_it(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        table.append(rows(-1, 2))
        for condition in ("id > 0", "day is not null", "false"):
            refused(
                table,
                lambda c=condition: table.add_constraint("c", c),  # type: ignore[misc]
                InvalidDataError,
                "constraint c",
            )
        table.add_constraint("c", "id > -2 and true")

    @pytest.mark.parametrize("condition", ["sin(id) > 0", "nowhere > 0", "id", "id >"])
    def test_what_cannot_be_evaluated_is_refused(self, world: World, condition: str) -> None:
        table = world.make()
        refused(
            table, lambda: table.add_constraint("c", condition), UnsupportedFeatureError, "cannot"
        )

    def test_an_engine_looks_at_the_rows_itself(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        seen: list[int] = []
        table.add_constraint("c", "sin(id) > 0", check=lambda base: seen.append(base.version))
        assert seen == [1]

        def no(base: Snapshot) -> None:
            raise InvalidDataError("A row breaks it.")

        refused(table, lambda: table.add_constraint("d", "x", check=no), InvalidDataError, "A row")

    def test_a_row_that_is_added_during_the_check_and_breaks_it_stops_it(
        self, world: World
    ) -> None:
        table, other = world.make(), world.session().table("orders")
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: other.append(rows(-1))]
        with pytest.raises(InvalidDataError, match="constraint c"):
            late.add_constraint("c", "id > 0")
        assert "delta.constraints.c" not in table.snapshot().properties
        assert ids_in(table.to_arrow()) == [-1]

    def test_a_row_that_is_added_during_the_check_and_satisfies_it_does_not(
        self, world: World
    ) -> None:
        world.make()
        other, catalog = world.session().table("orders"), world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: other.append(rows(1))]
        assert late.add_constraint("c", "id > 0").version == 2

    def test_a_name_is_there_once_and_can_be_missing(self, world: World) -> None:
        table = world.make()
        table.add_constraint("c", "id > 0")
        refused(table, lambda: table.add_constraint("C", "id > 1"), AlreadyExistsError, " c ")
        refused(table, lambda: table.drop_constraint("d"), NotFoundError, "constraint d")
        refused(table, lambda: table.add_constraint(" ", "id > 1"), InvalidArgumentError, "name")
        refused(table, lambda: table.add_constraint("d", ""), InvalidArgumentError, "condition")
        assert table.drop_constraint("d", if_exists=True) is None
        assert table.snapshot().version == 1
        assert table.drop_constraint("c", if_exists=True) is not None

    def test_columns_are_found_by_the_names_users_know(self, full_world: World) -> None:
        table = full_world.make(schema="`a b` long", properties=MAPPED)
        table.append(pa.table({"a b": [1]}))
        refused(table, lambda: table.add_constraint("c", "`a b` > 1"), InvalidDataError, "a b = 1")
        table.add_constraint("c", "`a b` > 0")


class TestDetail:
    def test_it_describes_the_table(self, full_world: World) -> None:
        session = full_world.session()
        table = session.create_table(
            "orders", "id long, day date", ["day"], {"a": "b"}, "about orders"
        )
        table.append(rows(1))
        committed = table.append(rows(2))
        detail, snapshot = table.detail(), table.snapshot()
        assert (detail.format, detail.id, detail.location) == ("delta", table.id, table.location)
        assert (detail.name, detail.description) == ("main.default.orders", "about orders")
        assert detail.created_ms == snapshot.metadata.created_time
        assert detail.last_modified_ms == committed.timestamp_ms
        assert (detail.partition_columns, detail.clustering_columns) == (("day",), ())
        sizes = [file.size for file in snapshot.files()]
        assert (detail.num_files, detail.size_in_bytes) == (2, sum(sizes))
        assert detail.properties["a"] == "b"
        assert (detail.min_reader_version, detail.min_writer_version) == (3, 7)
        assert detail.table_features == (
            "catalogManaged",
            "inCommitTimestamp",
            "vacuumProtocolCheck",
        )

    def test_a_table_with_another_name_goes_by_it(self, full_world: World) -> None:
        table = full_world.make()
        full_world.session().rename("orders", "sales")
        assert table.detail().name == "main.default.sales"


def test_a_property_that_may_be_missing_is_taken_away_if_it_is_there(world: World) -> None:
    table = world.make(properties={"a": "1"})
    table.unset_properties(["a", "b"], if_exists=True)
    assert "a" not in table.properties
    assert last_operation(table)[1] == {"properties": '["a","b"]', "ifExists": "true"}
