"""Logs that contradict themselves, lack something or are damaged: read soundly, or refused clearly.

An error names the table, the version and the file.
"""

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import HeadgateError, MalformedError, PathAccessError, VersionGoneError
from headgate.protocol.actions import (
    Action,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Version,
    Wrapped,
    decode,
    encode,
    join,
)
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.log.replay import contradiction
from headgate.protocol.paths import ClassicCheckpoint, Compaction, PublishedCommit
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import CheckpointForm
from tests.kit import req
from tests.kit.fake_catalog import ID, LOCATION
from tests.table.snapshot_cases import (
    FIRST,
    MANAGED,
    PLAIN,
    SCHEMA,
    add,
    by_path,
    catalog_of,
    checkpointed,
    metadata,
    paths,
    plain_appended,
    plain_store,
    remove,
)

COMMIT = PublishedCommit(Version(0)).path


def commit(version: int) -> str:
    return PublishedCommit(Version(version)).path


def put_compaction(store: ObjectStore, first: int, last: int, *actions: Action) -> str:
    path = Compaction(Version(first), Version(last)).path
    store.put(path, join(map(encode, actions)))
    return path


# Compactions


def contradictory() -> tuple[MemoryStore, str]:
    """A file was added, then removed; its compaction has the two in the wrong order."""
    store = plain_store((add("f1"),), (remove("f1"),), (add("f2"),))
    return store, put_compaction(store, 1, 3, remove("f1"), add("f1"), add("f2"))


def test_a_contradictory_compaction_is_replaced_by_its_commits() -> None:
    store, _ = contradictory()
    assert paths(by_path(store)) == ["f2"]


@req("RD-06")
def test_a_contradictory_compaction_whose_commits_are_gone_is_refused_by_name() -> None:
    store, path = contradictory()
    for version in (1, 2):
        store.delete(commit(version))
    with pytest.raises(MalformedError, match=rf"{LOCATION}.* version 3 .*{path} cannot be used"):
        by_path(store)


def test_a_contradictory_compaction_of_the_catalog_is_replaced_by_its_commits() -> None:
    catalog = catalog_of((add("f1"),), (remove("f1"),), (add("f2"),))
    catalog.publish()
    path = put_compaction(catalog.store, 1, 3, remove("f1"), add("f1"), add("f2"))
    known = KnownFile(kind=FileKind.COMPACTION, first=Version(1), last=Version(3), paths=(path,))
    catalog.compactions = (known,)
    assert paths(catalog.load()) == ["f2"]


def txn(version: int) -> SetTransaction:
    return SetTransaction(app_id="a", version=version)


def domain(text: str) -> DomainMetadata:
    return DomainMetadata(domain="d", configuration=text, removed=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (remove("f"), add("f")),
        (add("f"), remove("f")),
        (add("f", 1), add("f", 2)),
        (add("/a%20b"), remove("file:/a b")),
        (txn(1), txn(2)),
        (domain("1"), domain("2")),
        (metadata(), metadata(x="1")),
        (PLAIN, MANAGED),
    ],
)
def test_what_a_compaction_states_in_two_ways_is_a_contradiction(
    one: Action, other: Action
) -> None:
    def wrapped(*actions: Action) -> list[Wrapped]:
        return decode(join(map(encode, actions)))

    assert contradiction(wrapped(one, other)) is not None
    assert contradiction(wrapped(other, one)) is not None
    assert contradiction(wrapped(one, one)) is None
    assert contradiction(wrapped(one)) is None


# Metadata without a schema


def schemaless(**fields: object) -> bytes:
    return json.dumps({"metaData": {"id": ID, "partitionColumns": ["day"], **fields}}).encode()


@pytest.mark.parametrize("fields", [{}, {"schemaString": None, "configuration": None}])
def test_metadata_without_a_schema_does_no_harm_where_a_later_version_supplies_it(
    fields: Mapping[str, object],
) -> None:
    store = plain_store((Metadata(id=ID, schema_string=SCHEMA),), (add("f1"),))
    store.put(COMMIT, join([encode(PLAIN), schemaless(**fields)]))
    assert paths(by_path(store)) == ["f1"]
    assert [item.name for item in by_path(store, version=Version(1)).schema.fields] == ["id", "day"]
    with pytest.raises(MalformedError, match=rf"{LOCATION} version 0: .*{COMMIT} has no schemaSt"):
        by_path(store, version=Version(0))


def without_schema(store: MemoryStore, version: int) -> str:
    """Take the schema out of a checkpoint's metadata."""
    path = ClassicCheckpoint(Version(version)).path
    table = pq.read_table(pa.BufferReader(store.get(path)))
    column = table["metaData"].combine_chunks()
    names = [field.name for field in column.type]
    values = [
        pa.nulls(len(column), pa.string()) if name == "schemaString" else column.field(name)
        for name in names
    ]
    changed = pa.StructArray.from_arrays(values, names, mask=column.is_null())
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.set_column(table.column_names.index("metaData"), "metaData", changed), sink
    )
    store.put(path, sink.getvalue().to_pybytes())
    return path


def test_a_checkpoint_without_a_schema_is_replaced_by_the_commits() -> None:
    store = plain_appended(4)
    checkpointed(store, 3)
    without_schema(store, 3)
    assert [item.name for item in by_path(store).schema.fields] == ["id", "day"]


def test_a_checkpoint_without_a_schema_does_no_harm_where_a_later_commit_supplies_it() -> None:
    store = plain_appended(3)
    checkpointed(store, 3)
    without_schema(store, 3)
    store.put(commit(4), join([encode(Metadata(id=ID, schema_string=SCHEMA))]))
    for version in range(4):
        store.delete(commit(version))
    assert paths(by_path(store)) == ["f1", "f2", "f3"]
    with pytest.raises(VersionGoneError, match="no schemaString"):
        by_path(store, version=Version(3))


def test_a_checkpoint_without_a_schema_is_named_where_nothing_else_has_it() -> None:
    store = plain_appended(3)
    checkpointed(store, 3)
    path = without_schema(store, 3)
    for version in range(4):
        store.delete(commit(version))
    with pytest.raises(MalformedError, match=rf"{LOCATION}.* version 3 .*{path} .*schemaString"):
        by_path(store)


def test_a_schema_that_cannot_be_read_is_named_with_table_version_and_file() -> None:
    store = plain_appended(2)
    store.put(commit(3), join([encode(Metadata(id=ID, schema_string='{"type":"struct"}'))]))
    store.put(commit(4), join([encode(add("f4"))]))
    snapshot = by_path(store)
    with pytest.raises(MalformedError, match=rf"{LOCATION} version 4: the schema in {commit(3)}"):
        _ = snapshot.schema
    checkpointed(store, 4)
    path = ClassicCheckpoint(Version(4)).path
    with pytest.raises(MalformedError, match=rf"{LOCATION} version 4: the schema in {path}"):
        _ = by_path(store).schema


# Damage above the version that is asked for


@req("RD-06")
@pytest.mark.parametrize("damage", ["gap", "torn"])
def test_an_old_version_is_read_whatever_the_log_above_it_is_like(damage: str) -> None:
    store = plain_appended(5)
    if damage == "gap":
        store.delete(commit(4))
    else:
        store.put(commit(4), b"{")
    assert paths(by_path(store, version=Version(3))) == ["f1", "f2", "f3"]
    assert paths(by_path(store, version=Version(1))) == ["f1"]
    for version in (None, Version(5)):
        with pytest.raises(MalformedError, match=r"version 4|00004\.json"):
            by_path(store, version=version)


def test_a_gap_below_a_checkpoint_is_not_called_log_cleanup() -> None:
    store = plain_appended(5)
    checkpointed(store, 5)
    store.delete(commit(3))
    with pytest.raises(VersionGoneError, match=r"version 4 .*: the log no longer has version 3\."):
        by_path(store, version=Version(4))
    assert paths(by_path(store, version=Version(2))) == ["f1", "f2"]


@req("RD-06")
@pytest.mark.parametrize("damage", ["gap", "torn"])
@pytest.mark.parametrize("cleaned", [0, 2])
def test_a_time_before_damage_is_read_and_one_that_damage_may_concern_is_not(
    damage: str, cleaned: int
) -> None:
    appended, now = plain_appended(6), [0]
    store = MemoryStore(LOCATION, lambda: now[0])
    for version in range(7):
        now[0] = 1_000 * version
        store.put(commit(version), appended.get(commit(version)))
    if cleaned:
        checkpointed(store, cleaned, CheckpointForm.CLASSIC)
    for version in range(cleaned):
        store.delete(commit(version))
    if damage == "gap":
        store.delete(commit(5))
    else:
        now[0] = 5_000
        store.put(commit(5), b"{")
    for version in (2, 3):
        assert by_path(store, as_of_ms=1_000 * version + 999).version == version
    for at_ms in (4_000, 6_000):
        with pytest.raises(MalformedError, match=r"version 5|00005\.json"):
            by_path(store, as_of_ms=at_ms)


@pytest.mark.parametrize("kept", [(3,), ()])
def test_an_empty_checkpoint_is_named_where_it_is_missed(kept: tuple[int, ...]) -> None:
    store = plain_appended(3)
    checkpoint = ClassicCheckpoint(Version(2)).path
    store.put(checkpoint, b"")
    for version in {0, 1, 2, 3} - {*kept}:
        store.delete(commit(version))
    with pytest.raises(HeadgateError, match=rf"{checkpoint} cannot be used: it is empty"):
        by_path(store)


@req("RD-02")
@pytest.mark.parametrize("damaged", [4, 6])
def test_a_table_that_became_managed_is_refused_by_path_though_its_log_is_damaged(
    damaged: int,
) -> None:
    store = plain_appended(4)
    store.put(commit(5), join(map(encode, FIRST)))
    store.put(commit(6), join([encode(add("f6"))]))
    store.put(commit(damaged), b"{")
    with pytest.raises(PathAccessError, match=ID):
        by_path(store, version=Version(2))


# Damaged checkpoints


@pytest.mark.parametrize(
    "form", [CheckpointForm.CLASSIC, CheckpointForm.V2, CheckpointForm.V2_JSON]
)
def test_a_damaged_checkpoint_is_named_with_table_version_and_file(form: CheckpointForm) -> None:
    v2 = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=["v2Checkpoint"],
        writer_features=["v2Checkpoint"],
    )
    store = plain_store(*((add(f"f{n}", n),) for n in range(1, 6)), protocol=v2)
    checkpointed(store, 4, form)
    for version in range(4):
        store.delete(commit(version))
    for item in list(store.list("_delta_log", recursive=True)):
        is_head = ".checkpoint." in item.path and form is CheckpointForm.CLASSIC
        if is_head or "_sidecars/" in item.path:
            damaged = item.path
            store.put(damaged, store.get(damaged)[:-20])
    with pytest.raises(MalformedError, match=rf"{LOCATION}.* version 5 .*{damaged} cannot be used"):
        by_path(store)


def wrong_types() -> list[pa.Table]:
    return [
        pa.table({"protocol": ["1"], "metaData": ["x"]}),
        pa.table({"protocol": [{"minReaderVersion": "1", "minWriterVersion": "2"}]}),
        pa.table({"protocol": [{"minReaderVersion": 1}]}),
        pa.table({"add": [1]}),
        pa.table({"add": [{"path": 1.5}]}),
    ]


@pytest.mark.parametrize("index", range(len(wrong_types())))
def test_a_checkpoint_of_other_types_is_passed_over_for_the_commits(index: int) -> None:
    store = plain_appended(3)
    checkpointed(store, 3)
    path = ClassicCheckpoint(Version(3)).path
    sound = pq.read_table(pa.BufferReader(store.get(path)))
    wrong = wrong_types()[index]
    kept = sound.drop_columns(wrong.column_names).slice(0, 1)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table([*kept.columns, *wrong.columns], [*kept.column_names, *wrong.column_names]), sink
    )
    store.put(path, sink.getvalue().to_pybytes())
    snapshot = by_path(store)
    assert snapshot.state.ground is None
    assert paths(snapshot) == ["f1", "f2", "f3"]
