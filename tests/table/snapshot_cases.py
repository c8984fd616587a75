"""A small table behind a fake catalog, and ways to look at its snapshots."""

from uuid import UUID

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
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import PublishedCommit
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import CheckpointForm, write_checkpoint
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load_path
from tests.kit.fake_catalog import ID, LOCATION, FakeCatalog
from tests.kit.faulty_stores import (
    CountingStore,
    NoStagedListing,
)

SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
)
MANAGED = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=["catalogManaged", "vacuumProtocolCheck", "v2Checkpoint"],
    writer_features=["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp", "v2Checkpoint"],
)
PLAIN = Protocol(min_reader_version=1, min_writer_version=2)


def metadata(**properties: str) -> Metadata:
    return Metadata(
        id=ID,
        schema_string=SCHEMA,
        partition_columns=["day"],
        configuration={
            "delta.enableInCommitTimestamps": "true",
            "io.unitycatalog.tableId": ID,
            **{name.replace("__", "."): value for name, value in properties.items()},
        },
    )


def add(path: str, size: int = 1, day: str | None = "mon", stats: str | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"day": day},
        size=size,
        modification_time=0,
        data_change=True,
        stats=stats,
    )


def remove(path: str, at_ms: int = 0) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=at_ms)


FIRST: tuple[Action, ...] = (MANAGED, metadata())


def catalog_of(*commits: tuple[Action, ...], way: Way = Way.INLINE) -> FakeCatalog:
    catalog = FakeCatalog(CountingStore(NoStagedListing(MemoryStore(LOCATION))))
    for actions in (FIRST, *commits):
        catalog.ratify(*actions, way=way)
    return catalog


def appended(count: int, way: Way = Way.INLINE) -> FakeCatalog:
    return catalog_of(*((add(f"f{n}", n),) for n in range(1, count + 1)), way=way)


def counted(catalog: FakeCatalog) -> CountingStore:
    assert isinstance(catalog.store, CountingStore)
    catalog.store.calls.clear()
    catalog.calls.clear()
    return catalog.store


def paths(snapshot: Snapshot) -> list[str]:
    named: list[str] = snapshot.file_columns()["path"].to_pylist()
    assert sorted(named) == sorted(file.path for file in snapshot.files())
    assert len(named) == snapshot.num_files
    assert sum(snapshot.file_columns()["size"].to_pylist()) == snapshot.size_in_bytes
    return sorted(named)


def f(*numbers: int) -> list[str]:
    return sorted(f"f{number}" for number in numbers)


def copy_of(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore(LOCATION)
    while isinstance(store, CountingStore | NoStagedListing):
        store = store.inner
    for item in store.list("", recursive=True):
        copy.put(item.path, store.get(item.path))
    return copy


def plain_store(*commits: tuple[Action, ...], protocol: Protocol = PLAIN) -> MemoryStore:
    store = MemoryStore(LOCATION)
    first = (protocol, Metadata(id=ID, schema_string=SCHEMA, partition_columns=["day"]))
    for version, actions in enumerate((first, *commits)):
        store.put(PublishedCommit(Version(version)).path, join(map(encode, actions)))
    return store


def by_path(store: ObjectStore, **how: object) -> Snapshot:
    return load_path(LOCATION, store_for=lambda _: store, **how)  # type: ignore[arg-type]


def plain_appended(count: int) -> MemoryStore:
    return plain_store(*((add(f"f{n}", n),) for n in range(1, count + 1)))


def checkpointed(
    store: ObjectStore, version: int, form: CheckpointForm = CheckpointForm.CLASSIC
) -> None:
    state = by_path(store, version=Version(version)).state
    uuids = iter(UUID(int=version * 1000 + n + 1) for n in range(100))
    write_checkpoint(store, state, table="t", now_ms=0, new_uuid=lambda: next(uuids), form=form)
