"""Snapshots: the catalog decides what the table is, wherever its commits are stored."""

import dataclasses
import json
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.errors import (
    HeadgateError,
    InvariantError,
    LogDivergedError,
    MalformedError,
    UnavailableError,
    UnsupportedFeatureError,
)
from headgate.protocol.actions import (
    AddFile,
    Protocol,
    RemoveFile,
    SetTransaction,
    TableId,
    Version,
    encode,
    join,
)
from headgate.protocol.commit.content import Way
from headgate.protocol.expressions.predicates import And, Compare, IsNull, Operator
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    LOG,
    STAGED,
    Checksum,
    ClassicCheckpoint,
    Compaction,
    PublishedCommit,
)
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.table.checkpoint_writer import CheckpointForm
from headgate.table.snapshot_cache import SnapshotCache
from tests.kit import req, shows
from tests.kit.fake_catalog import ID, LOCATION, FakeCatalog, content
from tests.kit.faulty_stores import (
    CountingStore,
    FailingStore,
    NoStagedListing,
    ShufflingStore,
    StaleListStore,
)
from tests.table.snapshot_cases import (
    FIRST,
    MANAGED,
    add,
    appended,
    catalog_of,
    copy_of,
    counted,
    f,
    metadata,
    paths,
    remove,
)

# What the catalog holds


@req("CM-15", "RD-01")
@shows("FX13")
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
def test_a_table_with_an_unpublished_tail_reads_whole(way: Way) -> None:
    catalog = appended(3, way)
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (3, f(1, 2, 3))
    assert catalog.calls[0] == "resolve"


@req("RD-04", "RD-08", "CM-21")
def test_inline_commits_are_read_without_touching_storage_and_in_one_call() -> None:
    catalog = appended(5)
    store = counted(catalog)
    assert paths(catalog.load()) == f(1, 2, 3, 4, 5)
    assert (len(store.calls), catalog.calls) == (0, ["resolve"])


@req("RD-04")
def test_published_commits_whose_content_the_catalog_keeps_are_not_read_from_the_log() -> None:
    catalog = appended(20)
    catalog.publish()
    catalog.held_from = 0
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 21))
    assert (len(store.calls), catalog.calls) == (0, ["resolve", "ratified_commits"])


@req("CM-16")
def test_what_the_catalog_no_longer_holds_is_read_by_name_and_nothing_is_listed() -> None:
    catalog = appended(6)
    catalog.publish(4)
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 7))
    assert store.count("list") == 0
    assert store.count("get", prefix=LOG) == 5


@req("CM-16")
def test_a_catalog_that_holds_nothing_of_a_long_past_makes_the_reader_list_once() -> None:
    catalog = appended(100)
    catalog.publish()
    catalog.checkpoint_at(90)
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 101))
    assert store.count("list", prefix=LOG) == 1
    assert store.count("get", prefix=f"{LOG}/0") < 15


@req("RD-04")
def test_the_checkpoint_the_catalog_knows_is_used_without_a_listing() -> None:
    catalog = appended(100)
    catalog.publish(98)
    catalog.checkpoint = catalog.checkpoint_at(95)
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 101))
    assert store.count("list") == 0
    read = {path for call in store.calls if call.method == "get" for path in call.paths}
    assert read == {
        ClassicCheckpoint(Version(95)).path,
        *(PublishedCommit(Version(version)).path for version in (96, 97, 98)),
    }


@req("CM-17")
def test_a_published_file_with_other_bytes_is_ignored_where_the_catalog_holds_the_commit() -> None:
    for way in (Way.INLINE, Way.STAGED):
        catalog = appended(2, way)
        catalog.store.put(PublishedCommit(Version(2)).path, content(2, add("intruder")))
        assert paths(catalog.load()) == f(1, 2)


@req("CM-18", "RD-05")
@shows("FR3")
def test_everything_beyond_the_catalogs_latest_version_is_ignored() -> None:
    catalog = appended(4)
    catalog.publish()
    ahead = appended(4)
    for number in (5, 6):
        ahead.ratify(add(f"beyond {number}"))
    ahead.publish()
    ahead.checkpoint_at(6)
    for version in (5, 6):
        path = PublishedCommit(Version(version)).path
        catalog.store.put(path, ahead.store.get(path))
    for path in (ClassicCheckpoint(Version(6)).path, LAST_CHECKPOINT):
        catalog.store.put(path, ahead.store.get(path))
    catalog.store.put(Compaction(Version(0), Version(6)).path, b"".join(ahead.contents))
    catalog.store.put(Checksum(Version(5)).path, b"{}")
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (4, f(1, 2, 3, 4))
    # Also when the reader has to list.
    catalog.store.delete(PublishedCommit(Version(0)).path)
    with pytest.raises(InvariantError):
        catalog.load()


@req("CM-05", "CM-17", "CM-18", "CM-19")
def test_the_worked_example_of_the_rfc_reads_as_version_9() -> None:
    catalog = appended(6)
    for version in (7, 8):
        catalog.ratify(add(f"f{version}"), way=Way.STAGED)
    catalog.ratify(add("f9"))
    names = {7: "016ae953-37a9-438e-8683-9a9a4a79a395", 8: "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032"}
    for version, uuid in names.items():
        name = f"{version:020d}.{uuid}.json"
        catalog.store.put(f"{STAGED}/{name}", catalog.contents[version])
        catalog.commits[version] = msgspec.structs.replace(catalog.commits[version], file_name=name)
    catalog.publish(7, forget=False)
    catalog.listed_from = 7
    catalog.checkpoint_at(2)
    catalog.store.put(
        Compaction(Version(3), Version(5)).path,
        join(encode(add(f"f{version}", version)) for version in (3, 4, 5)),
    )
    for version, uuid, other in [
        (8, "b91807ba-fe18-488c-a15e-c4807dbd2174", content(8, add("rejected"))),
        (10, "0f707846-cd18-4e01-b40e-84ee0ae987b0", content(10, add("not yet"))),
        (10, "7a980438-cb67-4b89-82d2-86f73239b6d6", content(10, add("partial"))[:40]),
    ]:
        catalog.store.put(f"{STAGED}/{version:020d}.{uuid}.json", other)
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (9, f(*range(1, 10)))
    # The same when every version the catalog does not hold must be found by listing.
    catalog.store.delete(PublishedCommit(Version(0)).path)
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (9, f(*range(1, 10)))
    assert counted(catalog).count("list", prefix=STAGED) == 0


@req("RD-04")
def test_compactions_the_catalog_knows_are_read_instead_of_their_commits() -> None:
    catalog = appended(8)
    catalog.publish()
    compacted = join(map(encode, (*FIRST, *(add(f"f{n}", n) for n in range(1, 7)))))
    compaction = Compaction(Version(0), Version(6))
    catalog.store.put(compaction.path, compacted)
    catalog.compactions = (
        KnownFile(
            kind=FileKind.COMPACTION, first=Version(0), last=Version(6), paths=(compaction.path,)
        ),
    )
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 9))
    assert (store.count("get", prefix=LOG), store.count("list")) == (3, 0)


@pytest.mark.parametrize("compacted", [None, b"{"])
def test_a_compaction_that_is_gone_or_broken_is_replaced_by_its_commits(
    compacted: bytes | None,
) -> None:
    catalog = appended(4)
    catalog.publish()
    path = Compaction(Version(1), Version(3)).path
    if compacted is not None:
        catalog.store.put(path, compacted)
    catalog.compactions = (
        KnownFile(kind=FileKind.COMPACTION, first=Version(1), last=Version(3), paths=(path,)),
    )
    assert paths(catalog.load()) == f(1, 2, 3, 4)


# What went missing


@req("RD-06")
@shows("FR4")
def test_a_staged_file_that_went_is_replaced_by_its_published_twin() -> None:
    catalog = appended(3, Way.STAGED)
    catalog.publish(forget=False)
    catalog.store.delete(f"{STAGED}/{catalog.commits[2].file_name}")
    assert paths(catalog.load()) == f(1, 2, 3)


@req("RD-06", "CM-46")
@shows("FR4")
@pytest.mark.parametrize("twin", [None, "other bytes"])
@pytest.mark.parametrize("staged", [None, "altered", "truncated"])
def test_without_the_ratified_bytes_the_read_fails(twin: str | None, staged: str | None) -> None:
    catalog = appended(3, Way.STAGED)
    path = f"{STAGED}/{catalog.commits[2].file_name}"
    good = catalog.contents[2]
    match staged:
        case None:
            catalog.store.delete(path)
        case "altered":
            catalog.store.put(path, good.replace(b"f2", b"g2"))
        case "truncated":
            catalog.store.put(path, good[: good.rindex(b'{"add"')])
    if twin is not None:
        catalog.store.put(PublishedCommit(Version(2)).path, content(2, add("intruder")))
    with pytest.raises(InvariantError, match="version 2"):
        catalog.load()


@req("CM-46")
def test_an_altered_staged_file_is_not_read_where_the_published_twin_is_right() -> None:
    catalog = appended(3, Way.STAGED)
    catalog.publish(forget=False)
    path = f"{STAGED}/{catalog.commits[2].file_name}"
    catalog.store.put(path, catalog.contents[2].replace(b"f2", b"g2"))
    assert paths(catalog.load()) == f(1, 2, 3)


@req("CM-02")
@pytest.mark.parametrize(
    "name",
    [
        f"{2:020d}.{UUID(int=3)}.json",  # of another version
        f"../{1:020d}.json",
        f"{1:020d}.json",
        "",
        None,
    ],
)
def test_a_staged_commit_is_read_only_from_a_name_that_fits_its_version(name: str | None) -> None:
    catalog = appended(3, Way.STAGED)
    catalog.commits[1] = msgspec.structs.replace(catalog.commits[1], file_name=name)
    catalog.publish(forget=False)
    with pytest.raises(InvariantError, match="version 1"):
        catalog.load()


def test_a_published_file_that_is_not_what_the_catalog_lists_is_refused() -> None:
    catalog = appended(3)
    catalog.publish(forget=False)
    catalog.commits[2] = msgspec.structs.replace(catalog.commits[2], content=None)
    assert paths(catalog.load()) == f(1, 2, 3)
    catalog.store.put(PublishedCommit(Version(2)).path, content(2, add("intruder")))
    with pytest.raises(LogDivergedError, match="version 2"):
        catalog.load()


def test_versions_below_those_that_the_catalog_holds_are_not_requested_from_it() -> None:
    catalog = appended(9)
    catalog.publish()
    catalog.held_from = 7
    assert paths(catalog.load(version=Version(6))) == f(*range(1, 7))
    assert catalog.calls == ["resolve"]
    catalog.calls.clear()
    assert paths(catalog.load(version=Version(8))) == f(*range(1, 9))
    assert catalog.calls == ["resolve", "ratified_commits"]


@req("RD-06")
@pytest.mark.parametrize("held_from", [None, 0, 3])
def test_removing_files_one_by_one_gives_right_rows_or_an_error(held_from: int | None) -> None:
    catalog = appended(4)
    catalog.ratify(add("f5"), way=Way.STAGED)
    catalog.publish(forget=False)
    catalog.listed_from = 4
    catalog.held_from = held_from
    catalog.checkpoint_at(2)
    catalog.store.put(
        Compaction(Version(3), Version(4)).path,
        join(encode(add(f"f{version}", version)) for version in (3, 4)),
    )
    whole = f(*range(1, 6))
    assert paths(catalog.load()) == whole
    everything = copy_of(catalog.store)
    files = [item.path for item in everything.list("", recursive=True)]
    assert len(files) >= 9
    outcomes = set()

    def outcome() -> str:
        try:
            assert paths(catalog.load()) == whole
        except HeadgateError:
            return "refused"
        return "whole"

    for path in files:  # each alone
        catalog.store.delete(path)
        outcomes.add(outcome())
        catalog.store.put(path, everything.get(path))
    for path in files:  # and one after the other
        catalog.store.delete(path)
        outcomes.add(outcome())
    assert outcomes == {"whole", "refused"}


@req("RD-06")
def test_a_version_that_nobody_has_is_named() -> None:
    catalog = appended(4)
    catalog.publish()
    catalog.store.delete(PublishedCommit(Version(2)).path)
    with pytest.raises(InvariantError, match="content of version 2"):
        catalog.load()


@shows("FR1")
def test_storage_that_fails_makes_the_read_fail_and_never_older() -> None:
    catalog = appended(4, Way.STAGED)
    older = catalog.load(version=Version(2))
    failing = FailingStore(catalog.store)
    failing.fail(lambda call: call.method == "get", times=100)
    for base in (None, older):
        with pytest.raises(UnavailableError):
            catalog.load(store=failing, base=base)


def test_a_commit_that_cannot_be_decoded_is_named() -> None:
    catalog = appended(2)
    catalog.ratify(raw=b'{"add": {"path": 3}}\n')
    catalog.ratify(add("f4"))
    with pytest.raises(MalformedError, match="version 3"):
        catalog.load()


# The order of steps


@req("RD-01")
@shows("FX1", "FR2")
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
@pytest.mark.parametrize("held_from", [None, 0])
def test_publishing_and_forgetting_between_the_two_steps_hides_nothing(
    way: Way, held_from: int | None
) -> None:
    catalog = appended(4, way)
    catalog.publish(2)
    catalog.held_from = held_from

    store = counted(catalog)

    def publisher_runs() -> None:
        assert not store.calls  # nothing of the table was looked at before the catalog was asked
        catalog.publish()
        catalog.held_from = None
        for commit in catalog.commits:
            if commit.file_name is not None:
                catalog.store.delete(f"{STAGED}/{commit.file_name}")

    catalog.after_resolve = publisher_runs
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (4, f(1, 2, 3, 4))


@shows("FR6")
def test_a_schema_that_changes_between_answer_and_read_does_not_show() -> None:
    catalog = appended(4)
    catalog.publish(2)
    changed = msgspec.structs.replace(metadata(), schema_string='{"type":"struct","fields":[]}')
    unknown = msgspec.structs.replace(MANAGED, reader_features=["timeMachine"])

    def another_commits() -> None:
        catalog.after_resolve = lambda: None
        catalog.ratify(changed, unknown, remove("f1"))
        catalog.publish()

    catalog.after_resolve = another_commits
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (4, f(1, 2, 3, 4))
    assert (snapshot.metadata, snapshot.protocol) == (metadata(), MANAGED)


@shows("FR7")
def test_with_the_catalog_down_snapshots_in_hand_go_on_and_new_reads_fail_at_once() -> None:
    catalog = appended(4)
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(3)
    pinned = catalog.load()

    def down() -> None:
        raise UnavailableError("The catalog is down.")

    catalog.after_resolve = down
    store = counted(catalog)
    for ask in (catalog.load, lambda: catalog.load(base=pinned)):
        with pytest.raises(UnavailableError):
            ask()
    assert not store.calls  # no fallback to the log
    assert paths(pinned) == f(1, 2, 3, 4)


def test_what_is_committed_meanwhile_belongs_to_the_next_snapshot() -> None:
    catalog = appended(4)
    catalog.held_from = 0
    catalog.listed_from = 3
    catalog.after_resolve = lambda: (catalog.ratify(add("later")), None)[1]
    snapshot = catalog.load()
    assert (snapshot.version, paths(snapshot)) == (4, f(1, 2, 3, 4))


@req("RD-05")
@shows("FP17")
@pytest.mark.parametrize("seed", range(5))
def test_no_result_depends_on_the_order_of_a_listing(seed: int) -> None:
    catalog = appended(80)
    catalog.publish()
    catalog.checkpoint_at(30)
    catalog.checkpoint_at(70, CheckpointForm.V2)
    shuffling = ShufflingStore(catalog.store, seed)
    assert paths(catalog.load(store=shuffling)) == f(*range(1, 81))


@req("RD-05")
@shows("FP17")
@pytest.mark.parametrize("lag", [1, 10, 1000])
def test_no_result_depends_on_the_freshness_of_a_listing(lag: int) -> None:
    stale = StaleListStore(MemoryStore(LOCATION), lag)
    catalog = FakeCatalog(stale)
    catalog.ratify(*FIRST)
    for number in range(1, 81):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish()
    assert paths(catalog.load()) == f(*range(1, 81))


@pytest.mark.slow
@req("CM-03")
@shows("FX16")
def test_thousands_of_stale_staged_files_are_never_seen(tmp_path: Path) -> None:
    catalog = FakeCatalog(CountingStore(NoStagedListing(LocalStore(tmp_path))))
    catalog.ratify(*FIRST)
    for number in range(1, 71):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish()
    staged = tmp_path / STAGED
    staged.mkdir(parents=True)
    for number in range(10_000):
        (staged / f"{number % 90:020d}.{UUID(int=number)}.json").touch()
    store = counted(catalog)
    assert paths(catalog.load()) == f(*range(1, 71))
    assert store.count("list") == 1
    assert store.count(prefix=STAGED) == 0


# What a snapshot is compared with


@req("RD-03")
def test_a_snapshot_is_held_against_the_catalogs_checksum(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = catalog_of((add("a", 10),), (add("b", 5),), (remove("a"),))
    right = VersionChecksum(table_size_bytes=5, num_files=1, metadata=metadata(), protocol=MANAGED)
    catalog.checksum = right
    assert paths(catalog.load()) == ["b"]
    assert caplog.messages == []
    for wrong in ({"num_files": 2}, {"table_size_bytes": 6}):
        catalog.checksum = msgspec.structs.replace(right, **wrong)
        # The rows are those of the commits, whose bytes are hashed: the sum is off, and reported.
        assert paths(catalog.load()) == ["b"]
        assert "checksum declares" in caplog.messages[-1]
        caplog.clear()
        assert catalog.load(version=Version(2)).num_files == 2
        assert caplog.messages == []


def test_a_log_that_belongs_to_another_table_is_refused() -> None:
    catalog = FakeCatalog(MemoryStore(LOCATION))
    catalog.ratify(MANAGED, metadata(io__unitycatalog__tableId="another"))
    with pytest.raises(InvariantError, match="another"):
        catalog.load()


def test_a_reader_feature_nobody_here_knows_is_refused_by_name_at_its_own_version() -> None:
    unknown = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=["catalogManaged", "timeMachine"],
        writer_features=["catalogManaged", "inCommitTimestamp", "timeMachine"],
    )
    catalog = catalog_of((add("a"),), (unknown,))
    with pytest.raises(UnsupportedFeatureError, match="timeMachine"):
        catalog.load()
    assert paths(catalog.load(version=Version(1))) == ["a"]


def test_a_log_without_protocol_or_metadata_is_refused() -> None:
    catalog = FakeCatalog(MemoryStore(LOCATION))
    catalog.ratify(MANAGED)
    with pytest.raises(MalformedError):
        catalog.load()


# Snapshots in hand


def test_a_base_makes_the_next_snapshot_and_a_wrong_one_is_not_used() -> None:
    catalog = appended(5)
    base = catalog.load(version=Version(3))
    assert paths(catalog.load(base=base)) == f(*range(1, 6))
    assert paths(catalog.load(base=base, version=Version(2))) == f(1, 2)
    assert catalog.load(base=base, version=Version(3)) is base
    stranger = dataclasses.replace(base, table_id=TableId("other"))
    assert catalog.load(base=stranger, version=Version(3)) is not stranger


def test_a_cache_gives_the_same_snapshot_again_and_forgets_the_oldest() -> None:
    catalog = appended(5)
    cache = SnapshotCache(max_snapshots=2)
    first = catalog.load(version=Version(1), cache=cache)
    assert catalog.load(version=Version(1), cache=cache) is first
    assert cache.newest(ID, Version(4)) is first
    catalog.load(version=Version(2), cache=cache)
    latest = catalog.load(cache=cache)
    assert cache.newest(ID, Version(1)) is None
    assert cache.newest(ID, Version(5)) is latest
    assert catalog.load(version=Version(1), cache=cache) is not first
    assert paths(catalog.load(version=Version(4), cache=cache)) == f(1, 2, 3, 4)


def test_a_cache_is_bounded_by_files() -> None:
    catalog = appended(5)
    cache = SnapshotCache(max_files=5)
    for version in range(6):
        catalog.load(version=Version(version), cache=cache)
    assert [v for v in range(6) if cache.newest(ID, Version(v)) is not None] == [5]


# Files for a filter


def stats(low: int, high: int) -> str:
    return json.dumps(
        {
            "numRecords": 2,
            "minValues": {"id": low},
            "maxValues": {"id": high},
            "nullCount": {"id": 0},
        }
    )


@pytest.mark.parametrize(
    "checkpoint", [None, CheckpointForm.CLASSIC, CheckpointForm.V2, CheckpointForm.V2_JSON]
)
def test_files_are_pruned_by_partition_values_and_statistics(
    checkpoint: CheckpointForm | None,
) -> None:
    catalog = catalog_of(
        (add("a", day="mon", stats=stats(1, 5)), add("b", day="mon", stats=stats(6, 9))),
        (add("c", day="tue", stats=stats(1, 5)), add("d", day=None, stats=stats(1, 5))),
        (add("e", day="tue"), remove("never there")),
    )
    catalog.publish()
    if checkpoint is not None:
        catalog.checkpoint = catalog.checkpoint_at(2, checkpoint)
    snapshot = catalog.load()

    def kept(where: object) -> list[str]:
        return sorted(file.path for file in snapshot.files(where))  # type: ignore[arg-type]

    monday = Compare(("day",), Operator.EQ, "mon")
    low = Compare(("id",), Operator.LT, 4)
    assert kept(None) == ["a", "b", "c", "d", "e"]
    assert kept(monday) == ["a", "b"]
    assert kept(low) == ["a", "c", "d", "e"]
    assert kept(And((monday, low))) == ["a"]
    assert kept(IsNull(("day",))) == ["d"]
    assert kept(Compare(("day",), Operator.NE, "mon")) == ["c", "e"]
    assert kept(And((Compare(("DAY",), Operator.EQ, "mon"), low))) == ["a"]
    assert kept(Compare(("nobody",), Operator.EQ, "mon")) == ["a", "b", "c", "d", "e"]
    assert {file.path: file.stats for file in snapshot.files(low)}["a"] == stats(1, 5)


def test_files_come_as_columns_with_statistics_if_asked() -> None:
    catalog = catalog_of((add("a", 3, stats=stats(1, 2)),), (add("b", 4),))
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(1)
    snapshot = catalog.load()
    table = snapshot.file_columns(stats=True)
    assert dict(zip(table["path"].to_pylist(), table["stats"].to_pylist(), strict=True)) == {
        "a": stats(1, 2),
        "b": None,
    }
    assert "stats" not in snapshot.file_columns().column_names
    assert dict(table["partition_values"].to_pylist()[0]) == {"day": "mon"}


def test_a_snapshot_tells_what_the_table_is() -> None:
    catalog = catalog_of((SetTransaction(app_id="stream", version=4),))
    snapshot = catalog.load()
    assert (snapshot.table_id, snapshot.name, snapshot.location) == (ID, "main.default.t", LOCATION)
    assert (snapshot.protocol, snapshot.metadata) == (MANAGED, metadata())
    assert [field.name for field in snapshot.schema.fields] == ["id", "day"]
    assert snapshot.partition_columns == ("day",)
    assert snapshot.properties["delta.enableInCommitTimestamps"] == "true"
    assert snapshot.set_transactions["stream"].version == 4
    assert snapshot.domains == {}


# All of it at random


@st.composite
def histories(draw: st.DrawFn) -> list[list[AddFile | RemoveFile]]:
    names = st.sampled_from([f"f{n}" for n in range(8)])
    action = st.one_of(st.builds(add, names, st.integers(1, 9)), st.builds(remove, names))
    return draw(st.lists(st.lists(action, max_size=4, unique_by=lambda a: a.path), max_size=14))


def net(actions: list[AddFile | RemoveFile]) -> bytes:
    newest = {action.path: action for action in actions}
    return join(map(encode, newest.values()))


@pytest.mark.slow
@req("RD-06", "CM-16", "CM-17")
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(histories(), st.data())
def test_every_version_of_a_random_log_equals_replay_by_hand(
    history: list[list[AddFile | RemoveFile]], data: st.DataObject
) -> None:
    catalog = FakeCatalog(ShufflingStore(MemoryStore(LOCATION), data.draw(st.integers(0, 9))))
    expected: list[dict[str, int]] = [{}]
    catalog.ratify(*FIRST)
    for actions in history:
        way = data.draw(st.sampled_from([Way.INLINE, Way.STAGED]))
        catalog.ratify(*actions, way=way)
        state = dict(expected[-1])
        for action in actions:
            state.pop(action.path, None)
            if isinstance(action, AddFile):
                state[action.path] = action.size
        expected.append(state)
    published = data.draw(st.integers(-1, catalog.latest))
    if published >= 0:
        catalog.publish(published)
        for version in data.draw(st.sets(st.integers(0, published), max_size=3)):
            file = catalog.checkpoint_at(version, data.draw(st.sampled_from(CheckpointForm)))
            if data.draw(st.booleans()):
                catalog.checkpoint = file
        for first in data.draw(st.sets(st.integers(1, max(1, published)), max_size=2)):
            last = data.draw(st.integers(first, max(first, published)))
            if first < last <= published:
                actions = [action for commit in history[first - 1 : last] for action in commit]
                catalog.store.put(Compaction(Version(first), Version(last)).path, net(actions))
        if data.draw(st.booleans()):
            catalog.held_from = data.draw(st.integers(0, published + 1))
        for version in data.draw(st.sets(st.integers(0, published), max_size=3)):
            if catalog.held_from is not None and version >= catalog.held_from:
                catalog.store.delete(PublishedCommit(Version(version)).path)
    base = None
    for version, files in enumerate(expected):
        snapshot = catalog.load(version=Version(version), base=base)
        found = snapshot.file_columns()
        rows = zip(found["path"].to_pylist(), found["size"].to_pylist(), strict=True)
        assert dict(rows) == files
        assert (snapshot.num_files, snapshot.size_in_bytes) == (len(files), sum(files.values()))
        base = snapshot if data.draw(st.booleans()) else None
