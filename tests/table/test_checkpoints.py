"""Checkpoints: every form comes out alike, and only a published version gets one."""

import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from duckdb_extensions import import_extension

from headgate import failpoints
from headgate.errors import (
    MalformedError,
    NotPublishedError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.failpoints import FailPointError
from headgate.protocol.actions import (
    Action,
    AddFile,
    Metadata,
    Protocol,
    RemoveFile,
    Version,
    encode,
    join,
)
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind
from headgate.protocol.log.segment import CheckpointFiles, newest_checkpoint
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    LOG,
    SIDECARS,
    Checksum,
    ClassicCheckpoint,
    PublishedCommit,
)
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from headgate.table import checkpoints, file_columns
from headgate.table.checkpoint_writer import (
    CheckpointForm,
    form_for,
    write_checkpoint,
    write_checksum,
)
from headgate.table.log_files import DeltaLog, log_files
from tests.kit import req, shows
from tests.kit.faulty_stores import CountingStore
from tests.table.checkpoint_cases import (
    COMMITS,
    INLINE,
    METADATA,
    NEW_UUID,
    PROTOCOL,
    VECTOR,
    WEEK,
    by_path,
    everything,
    table_of,
    tombstones,
    without_commits,
    written,
)
from tests.table.snapshot_cases import add, appended, f, paths, remove

FILE_ACTIONS = ("add", "remove")

# Written and read back


@pytest.mark.parametrize("form", CheckpointForm)
def test_a_checkpoint_holds_the_whole_state(form: CheckpointForm) -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    file = written(store, snapshot, form)
    assert (file.kind, file.first, file.last) == (FileKind.CHECKPOINT, 3, 3)
    assert [path for path in file.paths if store.head(path) is None] == []
    without_commits(store)
    again = by_path(store)
    assert again.state.ground is not None
    assert everything(again) == everything(snapshot)
    assert set(again.domains) == {"mine"}
    assert again.set_transactions["stream"].version == 8


@pytest.mark.parametrize("form", CheckpointForm)
def test_tombstones_are_kept_for_as_long_as_the_table_says(form: CheckpointForm) -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    written(store, snapshot, form, now_ms=WEEK + 1_000)
    without_commits(store)
    assert tombstones(by_path(store)) == ["b%20c.parquet", "day=mon/a.parquet"]
    store = MemoryStore()
    written(store, table_of(store), form, now_ms=2 * WEEK + 1_000)
    without_commits(store)
    assert tombstones(by_path(store)) == ["b%20c.parquet"]


@pytest.mark.parametrize(
    ("now_ms", "kept"),
    [
        (WEEK + 1_000, ["b%20c.parquet", "day=mon/a.parquet"]),
        (2 * WEEK, ["b%20c.parquet"]),
        (2 * WEEK + 1_000, ["b%20c.parquet"]),
    ],
)
@pytest.mark.parametrize("form", CheckpointForm)
def test_a_checkpoint_on_a_checkpoint_carries_on_what_is_not_too_old(
    form: CheckpointForm, now_ms: int, kept: list[str]
) -> None:
    store = MemoryStore()
    written(store, table_of(store, COMMITS[:3]), form, now_ms=WEEK)
    snapshot = table_of(store)
    assert snapshot.state.ground is not None
    assert tombstones(snapshot) == ["day=mon/a.parquet"]
    written(store, snapshot, form, now_ms=now_ms)
    without_commits(store)
    again = by_path(store)
    assert everything(again) == everything(table_of(MemoryStore()))
    assert tombstones(again) == kept


def test_an_empty_table_has_a_checkpoint_too() -> None:
    for form in CheckpointForm:
        store = MemoryStore()
        written(store, table_of(store, COMMITS[:1]), form)
        without_commits(store)
        assert by_path(store).num_files == 0


def test_columns_are_left_out_while_no_file_has_a_value_for_them() -> None:
    def columns(files: list[Action]) -> dict[str, set[str]]:
        store = MemoryStore()
        [path] = written(store, table_of(store, [[PROTOCOL, METADATA], files])).paths
        schema = pq.read_schema(pa.BufferReader(store.get(path)))
        without_commits(store)
        assert by_path(store).num_files == 1
        return {name: {field.name for field in schema.field(name).type} for name in FILE_ACTIONS}

    always = {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats"}
    gone = {"path", "deletionTimestamp", "dataChange"}
    plain, tagged = add("a"), msgspec.structs.replace(add("a"), tags={"some": "tag"})
    vector = msgspec.structs.replace(remove("b", 2 * WEEK), deletion_vector=VECTOR)
    assert columns([plain]) == {"add": always, "remove": gone}
    assert columns([tagged]) == {"add": always | {"tags"}, "remove": gone}
    assert columns([plain, vector]) == {"add": always, "remove": gone | {"deletionVector"}}


def test_files_lie_in_sidecars_of_bounded_size() -> None:
    store = MemoryStore()
    first: list[Action] = [PROTOCOL, METADATA]
    snapshot = table_of(store, [first, [add(f"f{n}") for n in range(5)]])
    written(store, snapshot, CheckpointForm.V2)
    sidecars = list(store.list(SIDECARS))
    assert len(sidecars) == 3
    assert paths(by_path(store)) == f(*range(5))


def test_statistics_of_a_sidecar_that_was_replaced_meanwhile_are_refused() -> None:
    store = MemoryStore()
    written(store, table_of(store), CheckpointForm.V2)
    without_commits(store)
    for is_longest in (True, False):
        snapshot = by_path(store)
        sidecars = {
            item.path: pq.read_table(io.BytesIO(store.get(item.path)))["add"].drop_null()
            for item in store.list(SIDECARS)
        }
        by_length = sorted(sidecars, key=lambda path: len(sidecars[path]))
        kept = {path: store.get(path) for path in sidecars}
        for path in sidecars:
            store.put(path, kept[by_length[-1 if is_longest else 0]])
        with pytest.raises(MalformedError, match="it changed while it was read"):
            snapshot.files()
        for path, content in kept.items():
            store.put(path, content)


def test_a_sidecar_may_be_named_with_its_path_and_encoded() -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    head = written(store, snapshot, CheckpointForm.V2_JSON).paths[0]
    without_commits(store)
    first = min(item.path for item in store.list(SIDECARS))
    name = first.rpartition("/")[2]
    store.put(f"{SIDECARS}/a b.parquet", store.get(first))
    store.delete(first)
    for spelled in ("a%20b.parquet", f"memory://elsewhere/{SIDECARS}/a%20b.parquet"):
        store.put(head, store.get(head).replace(name.encode(), spelled.encode()))
        assert everything(by_path(store)) == everything(snapshot)
        name = spelled


def test_the_form_follows_the_tables_policy() -> None:
    v2 = Metadata(id="t", schema_string="", configuration={"delta.checkpointPolicy": "v2"})
    assert form_for(PROTOCOL, METADATA) is CheckpointForm.CLASSIC
    assert form_for(PROTOCOL, v2) is CheckpointForm.V2
    plain = Protocol(min_reader_version=1, min_writer_version=2)
    assert form_for(plain, v2) is CheckpointForm.CLASSIC
    store = MemoryStore()
    snapshot = table_of(store, [[plain, METADATA]])
    with pytest.raises(UnsupportedFeatureError, match="v2Checkpoint"):
        written(store, snapshot, CheckpointForm.V2)
    assert newest(store) is None


def newest(store: ObjectStore) -> CheckpointFiles | None:
    return newest_checkpoint(Version(2**60), listed=log_files(DeltaLog(store).list()))


# Who gets one


@req("CM-27")
@shows("FX7")
@pytest.mark.parametrize("form", CheckpointForm)
def test_an_unpublished_version_gets_no_checkpoint_of_any_kind(form: CheckpointForm) -> None:
    catalog = appended(3)
    catalog.publish(2)
    snapshot = catalog.load()
    before = {item.path for item in catalog.store.list(LOG)}
    with pytest.raises(NotPublishedError, match="version 3"):
        written(catalog.store, snapshot, form)
    assert {item.path for item in catalog.store.list(LOG)} == before
    assert not list(catalog.store.list(SIDECARS))
    catalog.publish()
    catalog.checkpoint = written(catalog.store, snapshot, form)
    assert paths(catalog.load()) == f(1, 2, 3)


@shows("FP13")
@pytest.mark.parametrize("form", CheckpointForm)
def test_a_version_whose_protocol_has_a_feature_unknown_here_gets_no_checkpoint(
    form: CheckpointForm,
) -> None:
    # Readers need not know it, so the version can be read; what its own actions say cannot be kept.
    known = PROTOCOL.writer_features or []
    tomorrow = msgspec.structs.replace(PROTOCOL, writer_features=[*known, "timeMachine"])
    store = MemoryStore()
    table_of(store, [[PROTOCOL, METADATA], [tomorrow, *COMMITS[1]], [PROTOCOL]])
    before = {item.path for item in store.list("", recursive=True)}
    with pytest.raises(UnsupportedFeatureError, match=r"version 1 .*timeMachine"):
        written(store, by_path(store, version=Version(1)), form)
    assert {item.path for item in store.list("", recursive=True)} == before
    for version in (0, 2):
        assert written(store, by_path(store, version=Version(version)), form).last == version


@req("CM-29")
def test_a_version_checksum_may_precede_publishing_and_is_never_replaced() -> None:
    catalog = appended(3)
    snapshot = catalog.load()
    checksum = VersionChecksum(
        table_size_bytes=snapshot.size_in_bytes,
        num_files=snapshot.num_files,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        in_commit_timestamp_opt=snapshot.timestamp_ms,
    )
    assert not DeltaLog(catalog.store).is_published(Version(3))
    assert write_checksum(catalog.store, Version(3), checksum)
    stored = json.loads(catalog.store.get(Checksum(Version(3)).path))
    assert (stored["numFiles"], stored["tableSizeBytes"]) == (3, 6)
    assert (stored["numMetadata"], stored["numProtocol"]) == (1, 1)
    assert stored["inCommitTimestampOpt"] == 4_000
    assert not write_checksum(catalog.store, Version(3), checksum)
    catalog.checksum = checksum
    assert catalog.load().num_files == 3


# The hint


def test_the_hint_names_the_newest_checkpoint_and_never_goes_back() -> None:
    store = MemoryStore()
    written(store, table_of(store, COMMITS[:3]))
    snapshot = table_of(store)
    written(store, snapshot, CheckpointForm.V2)
    assert DeltaLog(store).last_checkpoint() == Version(3)
    hint = json.loads(store.get(LAST_CHECKPOINT))
    assert (hint["version"], hint["numOfAddFiles"]) == (3, 2)
    assert hint["v2Checkpoint"]["path"].startswith("00000000000000000003.checkpoint.")
    written(store, by_path(store, version=Version(1)))
    assert DeltaLog(store).last_checkpoint() == Version(3)
    store.put(LAST_CHECKPOINT, b'{"version":3}')
    written(store, snapshot, CheckpointForm.V2)
    assert json.loads(store.get(LAST_CHECKPOINT)).keys() == hint.keys()


POINTS = [
    "checkpoint.before_put",
    "checkpoint.after_part",
    "checkpoint.after_put",
    "checkpoint.before_hint",
]


@pytest.mark.parametrize(
    ("point", "form"),
    [
        (point, form)
        for point in POINTS
        for form in CheckpointForm
        if point != "checkpoint.after_part" or form is not CheckpointForm.CLASSIC  # it has no parts
    ],
)
def test_whoever_dies_while_writing_leaves_a_table_that_reads_the_same(
    point: str, form: CheckpointForm
) -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    failpoints.arm(f"{point}:raise")
    try:
        with pytest.raises(FailPointError):
            written(store, snapshot, form)
    finally:
        failpoints.arm("")
    assert everything(by_path(store)) == everything(snapshot)
    write_checkpoint(
        store,
        snapshot.state,
        table="orders",
        now_ms=2 * WEEK,
        new_uuid=NEW_UUID,
        form=form,
    )
    without_commits(store)
    assert everything(by_path(store)) == everything(snapshot)


def test_a_checkpoint_that_is_there_is_left_alone_and_a_broken_one_replaced() -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    path = ClassicCheckpoint(Version(3)).path
    written(store, snapshot)
    first = store.get(path)
    written(store, snapshot, now_ms=100 * WEEK)
    assert store.get(path) == first
    store.put(path, first[:100])
    written(store, snapshot, now_ms=100 * WEEK)
    without_commits(store)
    assert everything(by_path(store)) == everything(snapshot)


# What is read later


def test_statistics_of_a_checkpoint_that_went_meanwhile_are_gone_and_never_guessed() -> None:
    for change in ("deleted", "rewritten"):
        store = MemoryStore(now_ms=iter(range(10_000)).__next__)
        written(store, table_of(store))
        without_commits(store)
        snapshot = by_path(store)
        path = ClassicCheckpoint(Version(3)).path
        if change == "deleted":
            store.delete(path)
        else:
            store.put(path, store.get(path))
        assert snapshot.file_columns().num_rows == 2
        with pytest.raises(VersionGoneError):
            snapshot.files()


def test_of_a_large_checkpoint_only_the_columns_in_use_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(1)
    adds = [
        add(f"f{n}", stats=json.dumps({"numRecords": 1, "noise": chance.randbytes(5_000).hex()}))
        for n in range(200)
    ]
    commits: list[list[Action]] = [[PROTOCOL, METADATA], [*adds]]
    store = CountingStore(MemoryStore())
    snapshot = table_of(store, commits)
    written(store, snapshot)
    without_commits(store)
    size = len(store.get(ClassicCheckpoint(Version(1)).path))
    monkeypatch.setattr(checkpoints, "_WHOLE", 0)
    fetched = [0]
    inner = store.inner

    class Measured(CountingStore):
        def get_range(self, path: str, start: int, length: int) -> bytes:
            found = super().get_range(path, start, length)
            fetched[0] += len(found)
            return found

    measured = Measured(inner)
    again = by_path(measured)
    assert again.file_columns().num_rows == 200
    assert measured.count("get", prefix=f"{LOG}/0") == 0
    assert 0 < fetched[0] < size / 5
    assert everything(again) == everything(snapshot)
    assert fetched[0] > size / 5


@pytest.mark.parametrize("scans", [0, 1000])
def test_files_are_found_among_all_by_scan_and_by_index_alike(
    scans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_columns, "_SCANS_BEFORE_INDEX", scans)
    monkeypatch.setattr(file_columns, "hash", lambda text: len(text) % 2, raising=False)
    store = MemoryStore()
    written(store, table_of(store))
    without_commits(store)
    files = by_path(store).state.ground
    assert files is not None
    wanted = [
        ("day=mon/a.parquet", None),
        ("day=mon/a.parquet", VECTOR.unique_id),
        ("d.parquet", INLINE.unique_id),
        ("nowhere", None),
    ]
    assert files.sizes(wanted) == {wanted[1]: 10, wanted[2]: 30}
    assert files.sizes([]) == {}


def with_struct_stats(store: ObjectStore) -> None:
    """Write a checkpoint whose statistics are structs only, as `writeStatsAsJson=false` asks."""
    path = ClassicCheckpoint(Version(1)).path
    table = pq.read_table(pa.BufferReader(store.get(path)))
    rows = table.to_pylist()
    for row in rows:
        if row["add"] is not None:
            stats = json.loads(row["add"].pop("stats"))
            row["add"]["stats_parsed"] = stats
    kind = table.schema.field("add").type
    values = pa.struct([("id", pa.int64())])
    fields = [field for field in kind if field.name != "stats"]
    fields.append(
        pa.field(
            "stats_parsed",
            pa.struct([("numRecords", pa.int64()), ("minValues", values), ("maxValues", values)]),
        )
    )
    schema = table.schema.set(
        table.schema.get_field_index("add"), pa.field("add", pa.struct(fields))
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    store.put(path, sink.getvalue().to_pybytes())


def test_structured_statistics_stand_in_for_json() -> None:
    stats = '{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":9}}'
    store = MemoryStore()
    written(
        store,
        table_of(store, [[PROTOCOL, METADATA], [add("a", stats=stats), add("b", stats=stats)]]),
    )
    with_struct_stats(store)
    without_commits(store)
    found = [json.loads(file.stats or "") for file in by_path(store).files()]
    assert found == [json.loads(stats)] * 2


# Strangers read ours


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        import_extension("delta", con=connection)
        connection.load_extension("delta")
        yield connection


def plain_table(root: Path, *, v2: bool) -> LocalStore:
    """Write a plain table of twenty rows in twenty files, some removed again."""
    store = LocalStore(root)
    protocol = (
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["v2Checkpoint"],
            writer_features=["v2Checkpoint"],
        )
        if v2
        else Protocol(min_reader_version=1, min_writer_version=2)
    )
    commits: list[list[Action]] = [[protocol, METADATA]]
    for number in range(20):
        day = "mon" if number % 2 else "t&e/ %"
        name = f"f{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), root / name)
        stats = {"numRecords": 1, "minValues": {"id": number}, "maxValues": {"id": number}}
        commits.append([add(name, (root / name).stat().st_size, day, json.dumps(stats))])
    commits.append([remove(f"f{number}.parquet", WEEK * 3000) for number in range(5)])
    table_of(store, commits)
    return store


@pytest.mark.slow
@pytest.mark.parametrize("form", CheckpointForm)
def test_deltalake_and_duckdb_read_our_checkpoint(
    form: CheckpointForm, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    store = plain_table(tmp_path, v2=form is not CheckpointForm.CLASSIC)
    snapshot = by_path(store)
    written(store, snapshot, form, now_ms=WEEK * 3000)
    without_commits(store)
    shutil.copy(tmp_path / "f7.parquet", tmp_path / "f20.parquet")
    size = (tmp_path / "f20.parquet").stat().st_size
    store.put(PublishedCommit(Version(22)).path, join([encode(add("f20.parquet", size, "mon"))]))
    snapshot = by_path(store)
    assert (snapshot.version, snapshot.num_files) == (22, 16)
    ids = [7, *range(5, 20)]
    table = DeltaTable(tmp_path)
    assert table.version() == 22
    assert len(table.file_uris()) == 16
    if (
        form is CheckpointForm.CLASSIC
    ):  # it loads V2 checkpoints, but refuses to scan under their feature
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == sorted(ids)
    found = duck.execute(f"SELECT id, day FROM delta_scan('{tmp_path}') ORDER BY id").fetchall()
    assert [number for number, _ in found] == sorted(ids)
    assert {day for number, day in found if number % 2 == 0} == {"t&e/ %"}


# Files that are spelled in several ways


def spelled_add(path: str) -> AddFile:
    return AddFile(
        path=path, partition_values={"day": None}, size=1, modification_time=1, data_change=True
    )


@pytest.mark.parametrize("form", list(CheckpointForm))
def test_a_file_of_a_checkpoint_is_removed_however_the_remove_spells_it(
    form: CheckpointForm,
) -> None:
    store = MemoryStore()
    spelled = ["/a%20b/x", "s3a://bucket/x", "p=1%3A2/x", "plain"]
    removed = ["file:/a b/x", "s3://bucket//x", "p=1:2/x", "plain"]
    snapshot = table_of(store, [*COMMITS, [spelled_add(path) for path in spelled]])
    written(store, snapshot, form)
    without_commits(store)
    assert {file.path for file in by_path(store).files()} >= set(spelled)
    version = Version(snapshot.version + 1)
    removes = [
        RemoveFile(path=path, data_change=True, size=1, deletion_timestamp=2 * WEEK)
        for path in removed
    ]
    store.put(PublishedCommit(version).path, join(map(encode, removes)))
    after = by_path(store)
    left = {file.path for file in snapshot.files()} - set(spelled)
    assert {file.path for file in after.files()} == left
    assert after.num_files == len(left)
    kept = {tombstone.path for tombstone in after.state.removed()}
    assert kept == set(removed)  # as they were written


@pytest.mark.parametrize("form", list(CheckpointForm))
def test_a_tombstone_goes_when_its_file_is_added_again_however_that_spells_it(
    form: CheckpointForm,
) -> None:
    store = MemoryStore()
    gone = RemoveFile(path="/a%20b/x", data_change=True, deletion_timestamp=2 * WEEK)
    snapshot = table_of(store, [*COMMITS, [gone]])
    written(store, snapshot, form)
    without_commits(store)
    version = Version(snapshot.version + 1)
    store.put(PublishedCommit(version).path, join([encode(spelled_add("file:/a%20b/x"))]))
    after = by_path(store)
    written(store, after, form)
    assert "/a%20b/x" not in tombstones(by_path(store))
    assert "file:/a%20b/x" in {file.path for file in by_path(store).files()}
