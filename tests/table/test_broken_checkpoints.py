"""Checkpoints that are missing, cut off or not readable: readers use an older one."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.protocol.actions import Version
from headgate.protocol.log.known_files import KnownFile
from headgate.protocol.log.segment import CheckpointFiles
from headgate.protocol.paths import LOG, SIDECARS, ClassicCheckpoint, PublishedCommit
from headgate.storage.memory import MemoryStore
from headgate.table.checkpoint_writer import CheckpointForm
from headgate.table.checkpoints import UnusableError, read_checkpoint
from tests.kit import shows
from tests.kit.fake_catalog import FakeCatalog
from tests.table.checkpoint_cases import (
    METADATA,
    by_path,
    everything,
    table_of,
    without_commits,
    written,
)
from tests.table.snapshot_cases import MANAGED, add, f, paths


def broken(form: CheckpointForm, how: str, store: MemoryStore, file: KnownFile) -> None:
    path = file.paths[0]
    good = store.get(path)
    match how:
        case "gone":
            store.delete(path)
        case "empty":
            store.put(path, b"")
        case "truncated":
            store.put(path, good[: len(good) // 2])
        case "garbage":
            store.put(path, b"PAR1" + b"\0" * 200 + b"PAR1")
        case "other":
            table = pa.table({"add": [1], "x": ["y"]})
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            store.put(path, sink.getvalue().to_pybytes())
        case "sidecar gone" | "sidecar torn":
            sidecar = next(iter(store.list(SIDECARS))).path
            if how == "sidecar gone":
                store.delete(sidecar)
            else:
                store.put(sidecar, store.get(sidecar)[:-20])


BREAKS = ["gone", "empty", "truncated", "garbage", "other"]


@shows("FP15")
@pytest.mark.parametrize(
    ("form", "how"),
    [(form, how) for form in CheckpointForm for how in BREAKS]
    + [
        (form, how)
        for form in (CheckpointForm.V2, CheckpointForm.V2_JSON)
        for how in ("sidecar gone", "sidecar torn")
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_broken_checkpoint_is_passed_over_for_an_older_one(
    form: CheckpointForm, how: str, is_known: bool
) -> None:
    inner = MemoryStore()
    catalog = FakeCatalog(inner)
    catalog.ratify(MANAGED, METADATA)
    for number in range(1, 81):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish()
    older = catalog.checkpoint_at(40)
    file = catalog.checkpoint_at(75, form)
    for version in range(40):  # so that the older one is needed
        inner.delete(PublishedCommit(Version(version)).path)
    if is_known:
        catalog.checkpoint = file
    broken(form, how, inner, file)
    snapshot = catalog.load()
    assert paths(snapshot) == f(*range(1, 81))
    ground = snapshot.state.ground
    assert ground is not None
    assert ground.num_files == 40
    assert older.paths == (ClassicCheckpoint(Version(40)).path,)


@shows("FP15")
def test_a_multi_part_checkpoint_is_read_with_all_its_parts_and_not_without() -> None:
    store = MemoryStore()
    snapshot = table_of(store)
    written(store, snapshot, CheckpointForm.CLASSIC)
    single = store.get(ClassicCheckpoint(Version(3)).path)
    table = pq.read_table(pa.BufferReader(single))
    store.delete(ClassicCheckpoint(Version(3)).path)
    names = [f"{LOG}/{3:020d}.checkpoint.{part:010d}.{3:010d}.parquet" for part in (1, 2, 3)]
    for part, name in enumerate(names):
        sink = pa.BufferOutputStream()
        pq.write_table(table.slice(part * 3, 3 if part < 2 else None), sink)
        store.put(name, sink.getvalue().to_pybytes())
    commits = {
        item.path: store.get(item.path) for item in store.list(LOG) if item.path.endswith(".json")
    }
    without_commits(store)
    assert everything(by_path(store)) == everything(snapshot)
    for name in names:
        held = store.get(name)
        store.delete(name)
        for path, content in commits.items():
            store.put(path, content)
        again = by_path(store)
        assert again.state.ground is None
        assert everything(again) == everything(snapshot)
        store.put(name, held)


def test_a_checkpoint_without_protocol_or_metadata_is_unusable() -> None:
    store = MemoryStore()
    written(store, table_of(store))
    path = ClassicCheckpoint(Version(3)).path
    table = pq.read_table(pa.BufferReader(store.get(path)))
    for column in ("protocol", "metaData"):
        sink = pa.BufferOutputStream()
        pq.write_table(table.drop_columns([column]), sink)
        store.put(path, sink.getvalue().to_pybytes())
        with pytest.raises(UnusableError):
            read_checkpoint(store, CheckpointFiles(Version(3), (ClassicCheckpoint(Version(3)),)))
