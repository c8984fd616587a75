"""Publishing in batches, and puts whose outcome is unknown."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from headgate import failpoints
from headgate.catalog.service import Catalog
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.clock import SystemClock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    NotFoundError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Version
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import PublishedCommit
from headgate.storage.local import LocalStore
from headgate.storage.object_store import PutUnknownError
from headgate.table.log_files import DeltaLog
from tests.catalog.publisher_lake import (
    NEVER,
    Storage,
    break_for,
    commit,
    in_log,
    is_publishing,
    mounted_storage,
    opened,
    recorded,
)
from tests.kit import req, shows
from tests.kit.builders import (
    CountedIds,
    ManualClock,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)
from tests.kit.conditions import eventually
from tests.kit.faulty_stores import Call, ForgetfulDisk


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return mounted_storage(tmp_path / "lake")


# Puts of unknown outcome


@shows("S12", "FC12")
@pytest.mark.parametrize("was_put", [True, False])
def test_a_put_without_an_answer_is_not_recorded_and_is_looked_at_again(
    tmp_path: Path, storage: Storage, was_put: bool
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        commit(house, table.table_id, 2)

        def lose(call: Call) -> None:
            if is_publishing(call):
                raise PutUnknownError("The answer was lost.")

        if was_put:
            storage.after = lose
        else:
            storage.before = lose
        with pytest.raises(PutUnknownError):
            house.catalog.publish(table.table_id)
        assert recorded(house, table.table_id) == -1
        assert in_log(tmp_path, table.table_id) == ([0, 1, 2] if was_put else [])
        storage.before = storage.after = lambda call: None
        assert house.catalog.publish(table.table_id) == 2
        assert recorded(house, table.table_id) == 2


@req("CM-25")
@shows("S6")
def test_a_put_without_an_answer_is_no_answer_to_a_writer_who_was_held_back(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(
        tmp_path, publish_every_ms=NEVER, publish_on_close_ms=0, unpublished_soft=3
    ) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        break_for(storage, table.table_id, lambda: PutUnknownError("The answer was lost."))
        commit(house, table.table_id, 8)
        storage.before = lambda call: None
        assert house.catalog.resolve(table.table_id).latest == 8


def catalog_on(disk: ForgetfulDisk, database: Path) -> Catalog:
    """A catalog whose tables lie on a disk that forgets what was not synced."""
    store = SQLiteStore(str(database), SystemClock())
    with store.write() as unit, suppress(Exception), unit.savepoint():
        unit.insert_namespace(SchemaName("main", "default"), 0)
    return Catalog(
        store,
        "file:///lake",
        store_for=lambda location: LocalStore(location.removeprefix("file://"), disk),
        clock=ManualClock(),
        ids=CountedIds(),
        publisher=False,
    )


def table_on(catalog: Catalog) -> DeltaLog:
    table_id = new_table_id()
    made = catalog.create_table(
        TableName.parse("t"), table_id, new_txn_id(), inline(protocol(), metadata(table_id))
    )
    return catalog._log_of(made.location)


@shows("FC12", "S12")
def test_a_disk_that_did_not_sync_is_never_believed_to_have_published(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    catalog = catalog_on(disk, tmp_path / "headgate.db")
    table_on(catalog)
    [entry] = catalog.tables()
    disk.fail_sync_at = disk.counts["sync"] + 1
    with pytest.raises(HeadgateError):
        catalog.publish(entry.table_id)
    for _ in range(2):  # a second sync proves nothing
        with pytest.raises(HeadgateError):
            catalog.publish(entry.table_id)
    [entry] = catalog.tables()
    assert entry.published is None
    catalog.close()


@req("PB-01")
@shows("S12", "FC10")
@pytest.mark.parametrize("seed", range(5))
def test_a_claim_is_believed_only_once_the_file_outlives_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    disk = ForgetfulDisk()
    catalog = catalog_on(disk, tmp_path / "headgate.db")
    log = table_on(catalog)
    [entry] = catalog.tables()
    [first] = catalog.ratified_commits(entry.table_id).commits
    assert first.content is not None
    # A client that does not sync: it writes the file and says so.
    log.store.put_if_absent("_delta_log/other", b"")
    path = f"/lake/tables/{entry.table_id}/{PublishedCommit(Version(0)).path}"
    written = disk.create(path)
    disk.write(written, memoryview(first.content))
    disk.close(written)
    assert catalog.confirm_published(entry.table_id, Version(0)) == 0
    disk.crash(random.Random(seed))
    assert log.read_published(Version(0)) == first.content
    catalog.close()


# Batches


@req("CM-23")
@pytest.mark.parametrize(
    ("commits", "upto", "batches"),
    [
        (2, None, [[0, 1, 2]]),
        (3, None, [[0, 1, 2], [3]]),
        (5, None, [[0, 1, 2], [3, 4, 5]]),
        (6, None, [[0, 1, 2], [3, 4, 5], [6]]),
        (6, 0, [[0]]),
        (6, 2, [[0, 1, 2]]),
        (6, 3, [[0, 1, 2], [3]]),
        (6, -1, []),
    ],
)
def test_a_tail_is_published_in_batches_up_to_the_version_asked_for(
    tmp_path: Path, storage: Storage, commits: int, upto: int | None, batches: list[list[int]]
) -> None:
    with opened(tmp_path, publisher=False, publish_batch=3) as house:
        table = house.create()
        commit(house, table.table_id, commits)
        wanted = None if upto is None else Version(upto)
        published = house.catalog.publish(table.table_id, wanted)
        assert published == (commits if upto is None else upto)
        assert storage.versions(table.table_id) == batches
        assert house.catalog.publish(table.table_id, wanted) == published  # again is nothing
        assert storage.versions(table.table_id) == batches


@shows("FP1")
def test_a_crash_between_two_batches_loses_neither(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False, publish_batch=2) as house:
        table = house.create()
        commit(house, table.table_id, 5)
        failpoints.arm("publisher.after_put:raise@2")
        try:
            with pytest.raises(failpoints.FailPointError):
                house.catalog.publish(table.table_id)
        finally:
            failpoints.arm("")
        assert recorded(house, table.table_id) == 1
        assert in_log(tmp_path, table.table_id) == [0, 1, 2, 3]
        assert house.catalog.publish(table.table_id) == 5
        assert in_log(tmp_path, table.table_id) == [0, 1, 2, 3, 4, 5]


def test_a_version_that_is_not_there_cannot_be_published(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        with pytest.raises(NotFoundError, match="no version 1"):
            house.catalog.publish(table.table_id, Version(1))
        with pytest.raises(NotFoundError):
            house.catalog.publish(new_table_id())
        assert storage.puts == []


def test_a_checkpoint_without_a_file_is_not_taken_note_of(tmp_path: Path) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        house.catalog.publish(table.table_id)
        nothing = KnownFile(kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=())
        with pytest.raises(InvalidArgumentError, match="no file"):
            house.database.add_file(table.table_id, nothing)
        assert house.catalog.ratified_commits(table.table_id).commits[0].content is not None
