"""Files that others wrote without a sync, on every path that records something as durable.

Each test writes a file as a careless client does, has the catalog record it, and switches the
machine off. What the catalog believes to be in the log must still be there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.catalog.service import Catalog
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.clock import SystemClock
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Put, Staged
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import LOG, PublishedCommit, StagedCommit
from headgate.settings import Settings
from headgate.storage.local import LocalStore
from headgate.table.log_files import DeltaLog
from tests.kit import req, shows
from tests.kit.builders import (
    START_MS,
    CountedIds,
    ManualClock,
    add,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)
from tests.kit.faulty_stores import ForgetfulDisk, PowerLossError

SEEDS = pytest.mark.parametrize("seed", range(6))
T = TableName.parse("t")


class Lake:
    """A catalog whose tables are on a disk that forgets what was not synced."""

    def __init__(self, database: Path, disk: ForgetfulDisk, settings: Settings) -> None:
        self.disk = disk
        self._store = SQLiteStore(str(database), SystemClock())
        with self._store.write() as unit, suppress(Exception), unit.savepoint():
            unit.insert_namespace(SchemaName("main", "default"), 0)
        self.catalog = Catalog(
            self._store,
            "file:///lake",
            store_for=lambda location: LocalStore(location.removeprefix("file://"), disk),
            clock=ManualClock(),
            ids=CountedIds(),
            settings=settings,
            publisher=False,
        )

    def create(self) -> TableId:
        table_id = new_table_id()
        first = inline(protocol(), metadata(table_id))
        self.catalog.create_table(T, table_id, new_txn_id(), first)
        return table_id

    def append(self, table_id: TableId, version: int) -> bytes:
        part = Part(table_id=table_id, version=Version(version), content=inline(add()))
        answer = self.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
        assert isinstance(answer, Ratified)
        content = answer.commits[table_id].content
        assert content is not None
        return content

    def content(self, table_id: TableId, version: int) -> bytes:
        [found] = self.catalog.ratified_commits(
            table_id, Version(version), Version(version)
        ).commits
        assert found.content is not None
        return found.content

    def write(self, table_id: TableId, path: str, content: bytes) -> None:
        """Write a file of a table without syncing anything of it, its folder neither."""
        folder = f"/lake/tables/{table_id}"
        for name in ["", *path.split("/")[:-1]]:
            folder = f"{folder}/{name}" if name else folder
            with suppress(FileExistsError):
                self._make(folder)
        written = self.disk.create(f"/lake/tables/{table_id}/{path}")
        self.disk.write(written, memoryview(content))
        self.disk.close(written)

    def _make(self, folder: str) -> None:
        above = folder.rpartition("/")[0]
        if above:
            with suppress(FileExistsError):
                self._make(above)
        self.disk.make_folder(folder)

    def read(self, table_id: TableId, path: str) -> bytes:
        return LocalStore(f"/lake/tables/{table_id}", self.disk).get(path)


@contextmanager
def opened(folder: Path, disk: ForgetfulDisk, inline_limit_bytes: int = 1 << 20) -> Iterator[Lake]:
    settings = Settings(verify_staged=0, inline_limit_bytes=inline_limit_bytes)
    lake = Lake(folder / "headgate.db", disk, settings)
    yield lake
    lake.catalog.close()


@pytest.fixture
def disk() -> ForgetfulDisk:
    return ForgetfulDisk()


def published(version: int) -> str:
    return PublishedCommit(Version(version)).path


@req("CM-12")
@shows("FC10", "S12")
@SEEDS
def test_version_0_of_a_registered_table_outlives_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.catalog.stage_table().table_id
        first = file_content(protocol(), metadata(table_id), txn_id=new_txn_id())
        lake.write(table_id, published(0), first)
        lake.catalog.register_table(T, table_id)
        disk.crash(random.Random(seed))
        assert lake.read(table_id, published(0)) == first


@req("CM-12", "CM-46")
@shows("FC10", "S12")
@SEEDS
@pytest.mark.parametrize("limit", [1 << 20, 10], ids=["kept by the catalog", "synced"])
def test_a_ratified_staged_commit_can_be_published_after_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int, limit: int
) -> None:
    with opened(tmp_path, disk) as creator:
        table_id = creator.create()
    with opened(tmp_path, disk, inline_limit_bytes=limit) as lake:
        txn_id = new_txn_id()
        content = file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + 1_000)
        staged = StagedCommit(Version(1), uuid4())
        lake.write(table_id, staged.path, content)
        answer = propose_staged(lake, table_id, staged, len(content), txn_id)
        assert isinstance(answer, Ratified)
        disk.crash(random.Random(seed))
        assert lake.catalog.publish(table_id) == 1
        assert lake.read(table_id, published(1)) == content
        assert lake.read(table_id, staged.path) == content


def propose_staged(
    lake: Lake, table_id: TableId, staged: StagedCommit, size: int, txn_id: TxnId
) -> object:
    content = Staged(file_name=staged.name, size=size)
    part = Part(table_id=table_id, version=staged.version, content=content)
    return lake.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))


@req("PB-01", "PB-02", "CM-24")
@shows("FC10", "S12", "FP1")
@SEEDS
def test_a_version_that_the_publisher_found_in_the_log_outlives_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.create()
        contents = [lake.content(table_id, 0), lake.append(table_id, 1)]
        lake.write(table_id, published(0), contents[0])
        assert lake.catalog.publish(table_id) == 1
        disk.crash(random.Random(seed))
        assert [lake.read(table_id, published(v)) for v in (0, 1)] == contents


@req("PB-02", "CM-24")
@shows("FC10", "S12", "FP3")
@SEEDS
def test_a_version_that_another_wrote_just_before_the_publisher_outlives_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.create()
        contents = [lake.content(table_id, 0), lake.append(table_id, 1)]
        disk.before = once(
            lambda call, path: call == "move",
            lambda: lake.write(table_id, published(0), contents[0]),
        )
        assert lake.catalog.publish(table_id) == 1
        disk.crash(random.Random(seed))
        assert [lake.read(table_id, published(v)) for v in (0, 1)] == contents


@req("CM-23", "CM-24")
@shows("FP1", "S10")
@SEEDS
def test_power_lost_at_any_call_of_publishing_leaves_a_log_without_a_gap(
    tmp_path: Path, seed: int
) -> None:
    left: set[int] = set()
    for call in itertools.count(1):
        disk, folder = ForgetfulDisk(), tmp_path / str(call)
        folder.mkdir()
        with opened(folder, disk) as lake:
            table_id = lake.create()
            contents = [lake.content(table_id, 0), *(lake.append(table_id, v) for v in (1, 2, 3))]
            disk.crash_at = disk.calls + call
            with suppress(PowerLossError):
                lake.catalog.publish(table_id)
                break
            disk.crash(random.Random(seed))
            log = DeltaLog(LocalStore(f"/lake/tables/{table_id}", disk))
            there = [log.read_published(Version(version)) for version in range(4)]
            left.add(4 - there.count(None))
            assert there == [*contents[: 4 - there.count(None)], *[None] * there.count(None)]
            assert lake.catalog.publish(table_id) == 3
            assert [lake.read(table_id, published(v)) for v in range(4)] == contents
    assert {0, 4} <= left


def once(fits: Callable[[str, str], bool], act: Callable[[], None]) -> Callable[[str, str], None]:
    """Act just before the first call of the disk that fits."""
    left = [act]

    def before(call: str, path: str) -> None:
        if left and fits(call, path):
            left.pop()()

    return before


@req("CM-12")
@shows("FC10", "FS3", "S12")
@SEEDS
def test_a_version_that_fsck_adopted_outlives_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.create()
        lake.catalog.publish(table_id)
        ahead = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 1_000)
        lake.write(table_id, published(1), ahead)
        lake.catalog.fsck(table_id, repair=True)
        assert lake.catalog.resolve(table_id).latest == 1
        disk.crash(random.Random(seed))
        assert lake.read(table_id, published(1)) == ahead


class FilesystemLake:
    """A filesystem catalog with one table, on a disk that loses what was not synced."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self.disk = disk
        self.catalog = self.open()
        self.table_id = new_table_id()
        first = inline(protocol(), metadata(self.table_id))
        resolved = self.catalog.create_table(T, self.table_id, new_txn_id(), first)
        self.log = DeltaLog(self._store_for(resolved.location))

    def _store_for(self, location: str) -> LocalStore:
        return LocalStore(location.removeprefix("file://"), self.disk)

    def open(self) -> FilesystemCatalog:
        return FilesystemCatalog(
            "file:///lake", store_for=self._store_for, clock=ManualClock(), ids=CountedIds()
        )

    def write(self, version: int, content: bytes) -> None:
        """Write a commit without syncing it."""
        path = self._store_for(self.log.store.url).local_path(published(version))
        assert path is not None
        written = self.disk.create(path)
        self.disk.write(written, memoryview(content))
        self.disk.close(written)

    def propose(self, version: int, content: bytes, txn_id: TxnId) -> object:
        part = Part(table_id=self.table_id, version=Version(version), content=Put(content=content))
        return self.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))


@req("CM-12", "CM-13")
@shows("FC10", "S12")
@SEEDS
@pytest.mark.parametrize("is_known", [False, True], ids=["first use", "seen before"])
def test_a_filesystem_catalog_syncs_the_versions_that_it_builds_on(
    disk: ForgetfulDisk, seed: int, is_known: bool
) -> None:
    lake = FilesystemLake(disk)
    contents = []
    for version in (1, 2, 3):
        txn_id = new_txn_id()
        contents.append(file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + version))
        if version < 3:
            lake.write(version, contents[-1])
    if not is_known:
        lake.catalog = lake.open()
    assert isinstance(lake.propose(3, contents[-1], txn_id), Ratified)
    disk.crash(random.Random(seed))
    assert [lake.log.read_published(Version(v)) for v in (1, 2, 3)] == contents


def test_a_filesystem_catalog_syncs_what_others_put_and_once(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(LocalStore, "sync", lambda _, paths: synced.extend(paths))
    lake = FilesystemLake(disk)
    lake.catalog = lake.open()
    for version in range(1, 5):
        txn_id = new_txn_id()
        content = file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + version)
        if version == 3:
            lake.write(version, content)
        else:
            assert isinstance(lake.propose(version, content, txn_id), Ratified)
    assert synced == [published(0), published(3)]


@req("CM-12", "CM-13", "CM-42")
@shows("FC10", "S12")
@SEEDS
def test_a_filesystem_catalog_syncs_a_commit_that_it_finds_before_it_answers(
    disk: ForgetfulDisk, seed: int
) -> None:
    """Its client was killed after the put and before the sync."""
    lake = FilesystemLake(disk)
    txn_id = new_txn_id()
    content = file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + 1)
    lake.write(1, content)
    assert isinstance(lake.propose(1, content, txn_id), Ratified)
    disk.crash(random.Random(seed))
    assert lake.log.read_published(Version(1)) == content


@shows("FC10", "S12")
@SEEDS
def test_a_checkpoint_that_the_catalog_was_told_of_outlives_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.create()
        lake.catalog.publish(table_id)
        path = f"{LOG}/{0:020d}.checkpoint.parquet"
        lake.write(table_id, path, b"a checkpoint" * 100)
        file = KnownFile(kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=(path,))
        lake.catalog.add_file(table_id, file)
        disk.crash(random.Random(seed))
        assert lake.read(table_id, path) == b"a checkpoint" * 100


@req("PB-01")
@shows("FC10", "FP7", "S12")
@SEEDS
def test_versions_that_a_client_says_it_published_outlive_a_power_loss(
    tmp_path: Path, disk: ForgetfulDisk, seed: int
) -> None:
    with opened(tmp_path, disk) as lake:
        table_id = lake.create()
        contents = [lake.content(table_id, 0), lake.append(table_id, 1)]
        for version, content in enumerate(contents):
            lake.write(table_id, published(version), content)
        assert lake.catalog.confirm_published(table_id, Version(1)) == 1
        disk.crash(random.Random(seed))
        assert [lake.read(table_id, published(v)) for v in (0, 1)] == contents
