"""A table with every kind of action, checkpoints of it, and what is compared of them."""

from collections.abc import Callable
from itertools import count
from uuid import UUID

from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Version,
    encode,
    join,
)
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import CheckpointForm, write_checkpoint
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load_path

WEEK = 604_800_000
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=["deletionVectors", "v2Checkpoint"],
    writer_features=["deletionVectors", "v2Checkpoint", "domainMetadata", "rowTracking"],
)
METADATA = Metadata(
    id="9d3c1b62-6d6b-4a0f-8f2d-0d8a5a4c7b11",
    name="orders",
    description="what was ordered",
    schema_string=(
        '{"type":"struct","fields":['
        '{"name":"id","type":"long","nullable":true,"metadata":{}},'
        '{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
    ),
    partition_columns=["day"],
    configuration={"delta.appendOnly": "false", "owner": "some one"},
    created_time=1_700_000_000_000,
)
VECTOR = DeletionVector(
    storage_type="u",
    path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
    offset=4,
    size_in_bytes=40,
    cardinality=6,
)
INLINE = DeletionVector(
    storage_type="i",
    path_or_inline_dv="wi5b=000010000siXQKl0rr91000f",
    size_in_bytes=40,
    cardinality=1,
)
COMMITS: list[list[Action]] = [
    [PROTOCOL, METADATA],
    [
        AddFile(
            path="day=mon/a.parquet",
            partition_values={"day": "mon"},
            size=10,
            modification_time=1,
            data_change=True,
            stats='{"numRecords":3}',
            tags={"INSERTION_TIME": "7", "empty": None},
            base_row_id=0,
            default_row_commit_version=1,
            clustering_provider="liquid",
        ),
        AddFile(
            path="b%20c.parquet",
            partition_values={"day": None},
            size=20,
            modification_time=2,
            data_change=True,
        ),
        SetTransaction(app_id="stream", version=7, last_updated=123),
        SetTransaction(app_id="other", version=1),
    ],
    [
        RemoveFile(path="day=mon/a.parquet", data_change=True, deletion_timestamp=WEEK),
        AddFile(
            path="day=mon/a.parquet",
            partition_values={"day": "mon"},
            size=10,
            modification_time=1,
            data_change=True,
            stats='{"numRecords":3,"tightBounds":false}',
            deletion_vector=VECTOR,
        ),
        AddFile(
            path="d.parquet",
            partition_values={"day": "tue"},
            size=30,
            modification_time=3,
            data_change=True,
            deletion_vector=INLINE,
        ),
        DomainMetadata(domain="mine", configuration='{"a":1}', removed=False),
        DomainMetadata(domain="gone", configuration="{}", removed=False),
    ],
    [
        RemoveFile(
            path="b%20c.parquet",
            data_change=True,
            deletion_timestamp=2 * WEEK,
            extended_file_metadata=True,
            partition_values={"day": None},
            size=20,
        ),
        RemoveFile(path="long ago.parquet", data_change=True, deletion_timestamp=1),
        RemoveFile(path="never added.parquet", data_change=True),
        DomainMetadata(domain="gone", configuration="{}", removed=True),
        SetTransaction(app_id="stream", version=8),
    ],
]


NEW_UUID: Callable[[], UUID] = map(UUID, (f"{n:032x}" for n in count(1))).__next__


def table_of(store: ObjectStore, commits: list[list[Action]] = COMMITS) -> Snapshot:
    for version, actions in enumerate(commits):
        store.put(PublishedCommit(Version(version)).path, join(map(encode, actions)))
    return by_path(store)


def by_path(store: ObjectStore, **how: object) -> Snapshot:
    return load_path(store.url, store_for=lambda _: store, **how)  # type: ignore[arg-type]


def written(
    store: ObjectStore,
    snapshot: Snapshot,
    form: CheckpointForm | None = None,
    now_ms: int = 2 * WEEK,
) -> KnownFile:
    return write_checkpoint(
        store,
        snapshot.state,
        table="orders",
        now_ms=now_ms,
        new_uuid=NEW_UUID,
        form=form,
        files_per_sidecar=2,
    )


def without_commits(store: ObjectStore) -> None:
    """Leave a reader only the checkpoint."""
    for item in list(store.list(LOG)):
        if item.path.endswith(".json") and ".checkpoint." not in item.path:
            store.delete(item.path)


def everything(snapshot: Snapshot) -> object:
    files = {file.key: without_data_change(file) for file in snapshot.files()}
    return (
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        files,
        snapshot.set_transactions,
        snapshot.domains,
        snapshot.num_files,
        snapshot.size_in_bytes,
    )


def without_data_change(file: AddFile) -> bytes:
    # A checkpoint changes no data, so only `dataChange` may differ.
    return encode(file).replace(b'"dataChange":true', b'"dataChange":false')


def tombstones(snapshot: Snapshot) -> list[str]:
    ground = snapshot.state.ground
    assert ground is not None
    return sorted(ground.tombstones()["path"].to_pylist())  # type: ignore[attr-defined]
