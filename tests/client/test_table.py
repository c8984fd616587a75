"""Reads of any version, writes, history and maintenance of a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from headgate.api.messages import Resolved
from headgate.api.port import Ref
from headgate.arguments import When, milliseconds
from headgate.client.plain_table import PlainTable
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Change, OperationInfo
from headgate.errors import (
    ConflictError,
    InTheFutureError,
    InvalidArgumentError,
    InvalidDataError,
    InvariantError,
    NotFoundError,
    NotPublishedError,
    PathAccessError,
    RefusedError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.protocol.actions import Action, RemoveFile, Sequence, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import replaced
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import LOG, Checksum, PublishedCommit
from headgate.storage.object_store import ObjectStore
from headgate.table import snapshot_loader
from tests.client.conftest import World, filesystem_world, ids_in, rows
from tests.kit import req, shows
from tests.kit.faulty_catalogs import LosingCatalog
from tests.kit.faulty_stores import Call, WrappedStore

Effect = TypeVar("Effect")


class TestReading:
    @req("CM-21")
    def test_from_a_name_to_a_snapshot_it_is_one_call(self, world: World) -> None:
        world.make().append(rows(1))
        catalog = world.losing()
        table = world.session(catalog).table("orders")
        assert (table.version, table.schema.fields[0].name) == (1, "id")
        assert catalog.calls == {"resolve": 1}

    @req("CM-21", "RD-04", "RD-08")
    def test_an_inline_tail_is_read_in_one_call_and_without_a_look_at_the_log(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        for number in range(4):
            table.append(rows(number))
        table.publish(upto=2)
        store = full_world.store_for(table.location)
        store.calls.clear()
        catalog = full_world.losing()
        reader = full_world.session(catalog).table("orders")
        catalog.calls.clear()
        assert ids_in(reader.to_arrow()) == [0, 1, 2, 3]
        assert catalog.calls == {"resolve": 1}
        assert store.count(prefix=LOG) == 0
        table.publish()
        table.checkpoint()  # from now on the content of these commits is in the log alone
        store.calls.clear()
        assert ids_in(full_world.session().table("orders").to_arrow()) == [0, 1, 2, 3]
        assert store.count(prefix=LOG) > 0

    @req("CM-21")
    def test_resolving_a_name_says_whether_the_table_is_catalog_managed(
        self, near_world: World
    ) -> None:
        table = near_world.make()
        session = near_world.session()
        elsewhere = f"{table.location.rpartition('/tables/')[0]}/plain"
        session.register_external("plain", elsewhere)
        assert session.resolve("orders").catalog_managed
        external = session.resolve("plain")
        assert (external.catalog_managed, external.location) == (False, elsewhere)
        assert external.commits == ()
        with pytest.raises(InvalidArgumentError, match="external"):
            session.table("plain")

    @req("RD-01")
    def test_the_name_is_resolved_before_anything_of_the_table_is_read(self, world: World) -> None:
        world.make().append(rows(1))
        session, happened = witnessed(world)
        session.table("orders").to_arrow()
        assert happened[0] == "resolve"
        assert "store" in happened

    @req("RD-01")
    @pytest.mark.parametrize("has_read_before", [False, True])
    @pytest.mark.parametrize("moment", ["now", "a version", "a time"])
    def test_the_catalog_is_asked_before_storage_for_every_moment_and_every_time(
        self, world: World, moment: str, has_read_before: bool
    ) -> None:
        """What a handle knows from an earlier read may be old."""
        made = world.make()
        for number in range(3):
            made.append(rows(number))
        when: dict[str, int] = {
            "now": {},
            "a version": {"version": 2},
            "a time": {"as_of": made.history()[1].timestamp_ms or 0},
        }[moment]
        session, happened = witnessed(world)
        table = session.table("orders")
        if has_read_before:
            table.to_arrow(**when)
            made.append(rows(3))
            happened.clear()
        found = ids_in(table.to_arrow(**when))
        assert found == ([0, 1] if when else [0, 1, 2, 3][: 3 + has_read_before])
        assert happened[0] == "resolve"
        assert "store" in happened

    @req("RD-01")
    @pytest.mark.parametrize("what", ["append", "overwrite", "alter"])
    def test_the_catalog_is_asked_before_a_table_is_written(self, world: World, what: str) -> None:
        made = world.make()
        made.append(rows(1))
        session, happened = witnessed(world)
        table = session.table("orders")
        match what:
            case "append":
                table.append(rows(2))
            case "overwrite":
                table.overwrite(rows(2))
            case _:
                table.set_properties({"number": "1"})
        assert happened[0] == "resolve"
        assert made.snapshot().version == 2

    @req("RD-01")
    @shows("FX1")
    def test_a_publish_between_asking_and_reading_hides_no_version(self, world: World) -> None:
        table = world.make()
        for n in range(3):
            table.append(rows(n))

        class Slow(LosingCatalog):
            def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
                answer = super().resolve(ref, at)
                world.publish(table)  # and no longer listed by the minimal catalog
                return answer

        reader = world.session(Slow(world.catalog)).table("orders")
        assert (reader.version, ids_in(reader.to_arrow())) == (3, [0, 1, 2])

    def test_a_read_sees_what_others_committed_meanwhile(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        other.append(rows(1))
        assert ids_in(table.to_arrow()) == [1]
        assert table.version == 1

    @shows("FX2")
    def test_after_a_quiet_time_with_nothing_unpublished_a_new_tail_is_seen(
        self, world: World
    ) -> None:
        table = world.make()
        table.append(rows(1))
        world.publish(table)
        assert ids_in(table.to_arrow()) == [1]
        world.staging_session().table("orders").append(rows(2))
        assert ids_in(table.to_arrow()) == [1, 2]

    @shows("S18")
    def test_a_catalog_that_answers_less_than_was_seen_is_not_believed(self, world: World) -> None:
        table = world.make()
        old = world.catalog.resolve(table.id)
        table.append(rows(1))

        class Stale(LosingCatalog):
            def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
                newest = super().resolve(ref, at)
                return old if self.calls["resolve"] > 1 else newest

        reader = world.session(Stale(world.catalog)).table("orders")
        assert reader.version == 1
        with pytest.raises(InvariantError, match="went back from version 1 to 0"):
            reader.to_arrow()
        assert reader.version == 1

    @shows("S18")
    def test_a_catalog_that_lost_an_own_commit_is_not_believed(self, full_world: World) -> None:
        """The handle knows the version of its commit, though not the commits before it."""
        table = full_world.make()
        others = full_world.session().table("orders")

        class Restored(LosingCatalog):
            old: Resolved | None = None

            def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
                return self.old or super().resolve(ref, at)

        catalog = Restored(full_world.catalog)
        writer = full_world.session(catalog).table("orders")
        others.append(rows(1))
        catalog.old = full_world.catalog.resolve(table.id)  # at version 1, as of a backup
        others.append(rows(2))
        assert writer.append(rows(3)).version == 3  # rebased past commits it has not seen
        with pytest.raises(InvariantError, match="went back from version 3 to 1"):
            writer.to_arrow()

    @shows("S18")
    def test_an_answer_overtaken_by_a_commit_of_the_same_handle_is_no_step_back(
        self, world: World
    ) -> None:
        world.make()

        class Overtaken(LosingCatalog):
            def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
                answer = super().resolve(ref, at)
                if self.calls["resolve"] == 2:
                    table.append(rows(1))
                return answer

        table = world.session(Overtaken(world.catalog)).table("orders")
        assert table.snapshot().version == 1

    def test_columns_are_chosen_by_name(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        assert table.to_arrow(columns=["id"]).column_names == ["id"]

    def test_every_version_reads_as_it_was(self, world: World) -> None:
        table = world.make()
        for n in range(1, 4):
            table.append(rows(n))
        world.publish(table)
        table.append(rows(4))
        for version in range(5):
            assert ids_in(table.to_arrow(version=version)) == list(range(1, version + 1))

    def test_a_future_version_is_refused(self, world: World) -> None:
        table = world.make()
        with pytest.raises(InTheFutureError):
            table.snapshot(version=1)
        with pytest.raises(NotFoundError):
            table.snapshot(version=-1)

    def test_a_time_selects_the_last_version_that_is_not_later(self, world: World) -> None:
        table = world.make()
        stamps = [table.append(rows(n)).timestamp_ms for n in (1, 2)]
        assert ids_in(table.to_arrow(as_of=stamps[0])) == [1]
        assert ids_in(table.to_arrow(as_of=stamps[1] - 1)) == [1]
        when = datetime.fromtimestamp(stamps[1] / 1000, UTC)
        assert ids_in(table.to_arrow(as_of=when)) == [1, 2]
        assert ids_in(table.to_arrow(as_of=when.isoformat())) == [1, 2]

    def test_a_sequence_selects_the_version_of_that_sequence(self, full_world: World) -> None:
        table = full_world.make()
        first = table.append(rows(1)).sequence
        table.append(rows(2))
        assert ids_in(table.to_arrow(sequence=first)) == [1]

    def test_only_one_of_version_time_and_sequence_is_accepted(self, minimal_world: World) -> None:
        with pytest.raises(InvalidArgumentError, match="more than one of"):
            minimal_world.make().to_arrow(version=0, as_of=0)


class Telling(WrappedStore):
    """Tells of every touch, also of files that are read behind its back."""

    def __init__(self, inner: ObjectStore, happened: list[str]) -> None:
        super().__init__(inner)
        self._happened = happened

    def around(self, call: Call, effect: Callable[[], Effect]) -> Effect:
        self._happened.append("store")
        return effect()

    def local_path(self, path: str) -> str | None:
        self._happened.append("store")
        return super().local_path(path)


def witnessed(world: World) -> tuple[Session, list[str]]:
    """Connect a client that notes when the catalog is asked, and storage touched."""
    happened: list[str] = []

    class Witness(LosingCatalog):
        def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
            happened.append("resolve")
            return super().resolve(ref, at)

    for location, store in world.stores.items():
        world.stores[location] = Telling(store, happened)  # type: ignore[assignment]
    return world.session(Witness(world.catalog)), happened


@pytest.mark.parametrize(
    ("when", "ms"),
    [
        ("1970-01-01T00:00:01.234Z", 1234),
        ("1970-01-01T01:00:00+01:00", 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(2026, 3, 1, 0, 0, 0, 999_999, UTC), 1772323200999),
        (17, 17),
        ("2026-03-01", 1772323200000),
        (date(2026, 3, 1), 1772323200000),
        (date(1969, 12, 31), -86_400_000),
    ],
)
def test_times_are_read_to_the_millisecond_and_days_begin_in_utc(when: When, ms: int) -> None:
    assert milliseconds(when) == ms


@pytest.mark.parametrize("when", ["2026-03-01T12:00", "yesterday", datetime(2026, 3, 1)])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(when: When) -> None:
    with pytest.raises(InvalidArgumentError):
        milliseconds(when)


class TestWriting:
    def test_rows_that_do_not_fit_are_refused_and_nothing_is_committed(self, world: World) -> None:
        table = world.make()
        with pytest.raises(InvalidDataError):
            table.append(pa.table({"id": ["x"], "day": pa.nulls(1, pa.date32())}))
        assert table.snapshot().version == 0

    def test_a_stream_of_batches_is_appended(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        other.set_properties({"delta.enableChangeDataFeed": "false"})
        batches = rows(1, 2, 3).to_batches(max_chunksize=1)
        table.append(pa.RecordBatchReader.from_batches(rows().schema, batches))
        assert ids_in(table.to_arrow()) == [1, 2, 3]

    def test_an_overwrite_replaces_all_that_is_there_when_it_is_called(self, world: World) -> None:
        table, other = world.make(), world.session().table("orders")
        other.append(rows(1))
        table.overwrite(rows(2))
        assert ids_in(other.to_arrow()) == [2]
        assert ids_in(other.to_arrow(version=1)) == [1]

    def test_whole_files_are_removed_by_path(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        table.append(rows(2))
        [first] = table.snapshot(version=1).files()
        table.remove([first.path])
        assert ids_in(table.to_arrow()) == [2]
        assert ids_in(table.to_arrow(version=2)) == [1, 2]

    @pytest.mark.parametrize("paths", [["nowhere.parquet"], []])
    def test_a_file_that_is_not_in_the_table_cannot_be_removed(
        self, world: World, paths: list[str]
    ) -> None:
        table = world.make()
        table.append(rows(1))
        with pytest.raises(InvalidArgumentError):
            table.remove(paths)
        assert table.snapshot().version == 1

    def test_an_append_only_table_loses_no_row(self, world: World) -> None:
        table = world.make(properties={"delta.appendOnly": "true"}, features=["appendOnly"])
        table.append(rows(1))
        for change in (
            lambda: table.overwrite(rows(2)),
            lambda: table.remove([file.path for file in table.snapshot().files()]),
        ):
            with pytest.raises(RefusedError, match="append-only"):
                change()
        assert ids_in(table.to_arrow()) == [1]


class TestProperties:
    def test_properties_and_the_comment_are_set_and_taken_away(self, world: World) -> None:
        table = world.make()
        table.set_properties({"a": 1, "b": True, "delta.logRetentionDuration": "interval 9 days"})
        table.unset_properties(["a"])
        table.comment("about orders")
        assert {"b": "true", "delta.logRetentionDuration": "interval 9 days"}.items() <= (
            table.properties.items()
        )
        assert "a" not in table.properties
        assert table.snapshot().metadata.description == "about orders"
        table.comment(None)
        assert world.session().table("orders").snapshot().metadata.description is None
        assert table.version == 4

    def test_a_property_that_needs_a_feature_brings_it(self, world: World) -> None:
        table = world.make()
        table.set_properties({"delta.enableDeletionVectors": True})
        protocol = table.snapshot().protocol
        assert "deletionVectors" in (protocol.reader_features or [])
        assert "deletionVectors" in (protocol.writer_features or [])
        table.append(rows(1))
        assert ids_in(table.to_arrow()) == [1]

    @req("CM-09")
    def test_unknown_fields_of_another_writer_are_kept(self, world: World) -> None:
        mine = world.make()
        base = mine.snapshot()
        strange: tuple[Action, ...] = (  # as a writer that knows the fields
            replaced(base.metadata, unknown={"owner": {"name": "ops"}}),
            replaced(base.protocol, unknown={"minVacuumVersion": 9}),
        )
        mine._commit(Change(mine.id, base, mine._ways, strange, OperationInfo("UPGRADE PROTOCOL")))
        for table in (mine, world.session().table("orders")):
            table.set_properties({"a": 1})
            table.set_properties({"delta.enableDeletionVectors": True})
            table.comment("about orders")
            table.unset_properties(["a"])
            world.publish(table)
            after = table.snapshot()
            assert (after.metadata.unknown, after.protocol.unknown) == (
                {"owner": {"name": "ops"}},
                {"minVacuumVersion": 9},
            )
            content = after.store.get(PublishedCommit(after.version).path)
            assert b'"owner":{"name":"ops"}' in content

    @pytest.mark.parametrize(
        "key",
        [
            "io.unitycatalog.tableId",
            "delta.enableInCommitTimestamps",
            "delta.feature.catalogManaged",
            "delta.constraints.positive",
            "delta.columnMapping.mode",
            "delta.minReaderVersion",
        ],
    )
    def test_what_makes_the_table_the_catalogs_is_not_changed_by_hand(
        self, world: World, key: str
    ) -> None:
        world.make()
        catalog = world.losing()
        table = world.session(catalog).table("orders")
        with pytest.raises(InvalidArgumentError, match=key):
            table.set_properties({key: "x"})
        with pytest.raises(InvalidArgumentError, match=key):
            table.unset_properties([key])
        assert catalog.calls["propose"] == 0

    def test_a_value_that_no_engine_could_read_is_refused(self, world: World) -> None:
        world.make()
        catalog = world.losing()
        with pytest.raises(InvalidArgumentError, match=r"maybe.*true or false"):
            world.session(catalog).table("orders").set_properties(
                {"delta.enableDeletionVectors": "maybe"}
            )
        assert catalog.calls["propose"] == 0

    def test_a_feature_that_concerns_rows_already_there_is_refused_by_name(
        self, world: World
    ) -> None:
        with pytest.raises(UnsupportedFeatureError, match="rowTracking"):
            world.make().set_properties({"delta.enableRowTracking": "true"})

    def test_a_property_that_is_not_there_cannot_be_taken_away(self, world: World) -> None:
        with pytest.raises(NotFoundError, match="nothing"):
            world.make().unset_properties(["nothing"])

    def test_a_change_of_metadata_asks_for_nothing_beforehand(self, world: World) -> None:
        world.make()
        catalog = world.losing()
        table = world.session(catalog).table("orders")
        asked = catalog.calls["resolve"]
        table.set_properties({"a": "1"})
        table.comment("about orders")
        table.unset_properties(["a"])
        assert catalog.calls["resolve"] == asked
        assert catalog.calls["propose"] == 3
        assert "a" not in world.session().table("orders").properties

    def test_a_handle_that_was_idle_undoes_no_change_of_another(self, world: World) -> None:
        table, idle = world.make(), world.session().table("orders")
        table.set_properties({"a": "1", "b": "1"})
        table.comment("about orders")
        idle.set_properties({"b": "2"})
        assert {"a": "1", "b": "2"}.items() <= table.snapshot().properties.items()
        assert table.snapshot().metadata.description == "about orders"

    def test_a_handle_that_was_idle_passes_what_others_appended(self, world: World) -> None:
        table, idle = world.make(), world.session().table("orders")
        table.append(rows(1))
        table.append(rows(2))
        idle.comment("about orders")
        assert idle.version == 3
        assert ids_in(idle.to_arrow()) == [1, 2]

    def test_what_is_there_to_be_taken_away_is_what_is_there_now(self, world: World) -> None:
        table, idle = world.make(properties={"old": "1"}), world.session().table("orders")
        table.set_properties({"new": "1"})
        idle.unset_properties(["new"])
        late = world.session().table("orders")
        table.unset_properties(["old"])
        with pytest.raises(NotFoundError, match="old"):
            late.unset_properties(["old"])
        assert table.snapshot().version == 3

    def test_a_feature_that_was_added_concurrently_is_not_added_again(self, world: World) -> None:
        table, idle = world.make(), world.session().table("orders")
        table.set_properties({"delta.enableDeletionVectors": True})
        idle.set_properties({"delta.enableTypeWidening": True})
        features = table.snapshot().protocol.writer_features or []
        assert {"deletionVectors", "typeWidening"} <= set(features)

    def test_a_second_conflict_is_raised(self, world: World) -> None:
        table = world.make()
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: table.comment("one"), lambda: table.comment("two")]
        with pytest.raises(ConflictError):
            late.set_properties({"a": "1"})
        assert table.snapshot().metadata.description == "two"
        assert "a" not in table.properties


class TestCleanedLogs:
    """A handle that is older than commits that were cleaned up."""

    def cleaned(self, world: World) -> tuple[Table, Table]:
        table, old = world.make(), world.session().table("orders")
        old.to_arrow()
        for n in range(5):
            table.append(rows(n))
        world.publish(table)
        table.checkpoint()
        for version in range(table.version):
            table.snapshot().store.delete(PublishedCommit(Version(version)).path)
        return table, old

    def test_it_reads_on_from_a_checkpoint(self, full_world: World) -> None:
        _, old = self.cleaned(full_world)
        assert ids_in(old.to_arrow()) == [0, 1, 2, 3, 4]

    def test_a_version_that_was_cleaned_up_is_reported_as_gone(self, full_world: World) -> None:
        table, _ = self.cleaned(full_world)
        for version in range(table.version):
            with pytest.raises(VersionGoneError):
                full_world.session().table("orders").to_arrow(version=version)

    def test_its_changes_are_built_again_on_the_latest_version(self, full_world: World) -> None:
        _, old = self.cleaned(full_world)
        assert old.set_properties({"a": 1}).version == 6
        assert old.properties["a"] == "1"

    def test_its_rows_are_appended_to_what_is_there(self, full_world: World) -> None:
        _, old = self.cleaned(full_world)
        old.append(rows(9))
        assert ids_in(old.to_arrow()) == [0, 1, 2, 3, 4, 9]


class TestHistory:
    def test_every_commit_says_what_it_was_published_or_not(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        world.publish(table)
        table.overwrite(rows(2))
        committed = world.staging_session().table("orders").append(rows(3))
        history = table.history()
        assert [entry.version for entry in history] == [3, 2, 1, 0]
        assert [entry.operation for entry in history][:3] == ["WRITE", "WRITE", "WRITE"]
        assert [entry.parameters.get("mode") for entry in history][:3] == [
            "Append",
            "Overwrite",
            "Append",
        ]
        assert [entry.is_blind_append for entry in history][:3] == [True, False, True]
        assert history[0].txn_id == committed.txn_id
        assert history[0].timestamp_ms == committed.timestamp_ms
        assert [entry.version for entry in table.history(limit=2)] == [3, 2]

    def test_the_log_lists_the_way_and_the_state_of_each_commit(self, full_world: World) -> None:
        table = full_world.make()
        table.append(rows(1))
        full_world.staging_session().table("orders").append(rows(2))
        table.publish(upto=1)
        entries = table.log()
        assert [(e.commit.version, e.commit.way, e.commit.is_published) for e in entries] == [
            (0, Way.INLINE, True),
            (1, Way.INLINE, True),
            (2, Way.STAGED, False),
        ]
        assert [e.commit.version for e in table.log(first=1, last=1)] == [1]


class TestUpkeep:
    @req("CM-27")
    @pytest.mark.parametrize("kind", ["classic", "v2", "v2-json"])
    def test_a_checkpoint_needs_its_version_in_the_log(self, full_world: World, kind: str) -> None:
        table = full_world.make(properties={"delta.checkpointPolicy": "v2"})
        table.append(rows(1))
        with pytest.raises(NotPublishedError, match="publish"):
            table.checkpoint(kind=kind)
        assert not _checkpoints(full_world, table.location)
        table.publish()
        assert table.checkpoint(kind=kind) == 1
        assert _checkpoints(full_world, table.location)
        table.append(rows(2))
        reader = full_world.session().table("orders")
        assert ids_in(reader.to_arrow()) == [1, 2]

    @req("RD-04")
    def test_the_catalog_returns_a_reported_checkpoint_so_that_no_reader_lists(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        table.append(rows(1))
        table.publish()
        table.checkpoint()
        checkpoint = full_world.catalog.resolve(table.id).checkpoint
        assert checkpoint is not None
        assert checkpoint.last == 1
        assert [p.endswith(".checkpoint.parquet") for p in checkpoint.paths] == [True]
        store = full_world.store_for(table.location)
        store.calls.clear()
        assert ids_in(full_world.session().table("orders").to_arrow()) == [1]
        assert store.count("list", "folders") == 0

    @req("RD-04", "CM-29")
    def test_the_catalog_returns_a_reported_checksum_where_it_has_none_of_its_own(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        table.append(rows(1))
        [file] = table.snapshot().files()
        # Without its size: from now on the catalog does not know the size of the table.
        vague = RemoveFile(path=file.path, deletion_timestamp=1, data_change=True)
        table.commit(table.snapshot(), [vague], OperationInfo("DELETE"))
        assert full_world.catalog.resolve(table.id).checksum is None
        assert table.write_checksum() == 2
        assert full_world.catalog.resolve(table.id).checksum_file == KnownFile(
            kind=FileKind.CHECKSUM,
            first=Version(2),
            last=Version(2),
            paths=(Checksum(Version(2)).path,),
        )
        store = full_world.store_for(table.location)
        store.calls.clear()
        assert full_world.session().table("orders").snapshot().files() == []
        assert store.count("list", "folders") == 0
        assert store.count("get", prefix=Checksum(Version(2)).path) == 1

    @req("CM-22", "RD-03", "RD-04")
    def test_a_filesystem_catalog_leaves_the_description_of_its_tables_to_the_log(
        self, tmp_path: Path
    ) -> None:
        world = filesystem_world(tmp_path)
        table = world.make()
        table.append(rows(1))
        table.checkpoint()
        table.write_checksum()
        found = world.catalog.resolve(table.id)
        assert (found.protocol, found.metadata) == (None, None)
        assert (found.checksum, found.checksum_file, found.checkpoint) == (None, None, None)
        store = world.store_for(table.location)
        store.calls.clear()
        assert ids_in(world.session().table("orders").to_arrow()) == [1]
        assert store.count(prefix=LOG) > 0

    @req("CM-27")
    def test_an_intruders_file_is_no_published_version(self, minimal_world: World) -> None:
        table = minimal_world.make()
        table.append(rows(1))
        store = minimal_world.store_for(table.location)
        store.put(PublishedCommit(Version(1)).path, b'{"commitInfo":{}}\n')
        with pytest.raises(NotPublishedError):
            table.checkpoint()

    def test_there_is_no_checkpoint_of_an_unknown_kind(self, world: World) -> None:
        with pytest.raises(InvalidArgumentError, match="classic"):
            world.make().checkpoint(kind="sparse")

    @req("CM-29")
    def test_a_checksum_may_be_written_before_its_version_is_published(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        assert table.write_checksum() == 1
        store = world.store_for(table.location)
        checksum = json.loads(store.get(Checksum(Version(1)).path))
        [file] = table.snapshot().files()
        assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (1, file.size)
        assert checksum["metadata"]["id"] == table.id
        table.write_checksum()  # again is fine
        assert ids_in(world.session().table("orders").to_arrow()) == [1]


@shows("S18")
def test_threads_that_share_a_handle_lose_nothing_and_never_go_back(full_world: World) -> None:
    table = full_world.make()

    def work(thread: int) -> list[int]:
        seen = []
        for n in range(8):
            table.append(rows(100 * thread + n))
            seen.append(table.snapshot().version)
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(work, range(4)))
    assert all(versions == sorted(versions) for versions in seen)
    assert ids_in(table.to_arrow()) == sorted(100 * t + n for t in range(4) for n in range(8))


class TestByPath:
    @req("RD-02")
    def test_a_managed_table_opened_by_path_is_refused_and_named(self, world: World) -> None:
        table = world.make()
        world.publish(table)
        store = world.store_for(table.location)
        before = list(store.calls)
        with pytest.raises(PathAccessError) as refused:
            opened(world, table)
        assert table.id in str(refused.value)
        assert "connect" in refused.value.remedy
        assert not [call for call in list(store.calls)[len(before) :] if call.is_write]

    @req("RD-02")
    def test_inside_a_lake_the_refusal_names_the_lake(self, near_world: World) -> None:
        table = near_world.make()
        near_world.publish(table)
        with pytest.raises(PathAccessError, match="lake'"):
            opened(near_world, table)

    def test_a_plain_table_is_read_by_path(self, minimal_world: World) -> None:
        table = plain(minimal_world)
        assert (table.version, ids_in(table.to_arrow())) == (1, [1])
        assert [field.name for field in table.schema.fields] == ["id", "day"]
        assert [entry.operation for entry in table.history()] == ["WRITE", None]
        older = opened(minimal_world, table, Version(0))
        assert (older.version, ids_in(older.to_arrow())) == (0, [])


def opened(world: World, table: Table | PlainTable, version: Version | None = None) -> PlainTable:
    return PlainTable(
        snapshot_loader.load_path(table.location, version=version, store_for=world.store_for)
    )


def plain(world: World) -> PlainTable:
    """A copy of a managed table's log with the catalog's features taken out of it."""
    table = world.make()
    table.append(rows(1))
    world.publish(table)
    store = world.store_for(table.location)
    for version in (0, 1):
        path = PublishedCommit(Version(version)).path
        content = store.get(path)
        for feature in (
            b'"catalogManaged", ',
            b'"vacuumProtocolCheck", ',
            b'"vacuumProtocolCheck"',
        ):
            content = content.replace(feature, b"")
        store.put(path, content)
    return opened(world, table)


def _checkpoints(world: World, location: str) -> list[str]:
    return [
        meta.path
        for meta in world.store_for(location).list("_delta_log")
        if ".checkpoint." in meta.path
    ]
