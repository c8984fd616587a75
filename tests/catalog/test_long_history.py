"""Sizes the documents name: ten thousand commits, ten thousand stale staged files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from headgate.api.messages import Ratified
from headgate.client import maintenance
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit import examination
from headgate.protocol.commit.content import Way
from headgate.protocol.commit.facts import ExaminedPart, ExaminedProposal
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.storage.local import LocalStore
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import CountedIds, add, inline, new_txn_id
from tests.kit.deciding import decide_in
from tests.kit.faulty_stores import CountingStore, NoStagedListing

MANY = 10_000


def commit_many(house: House, table_id: TableId, count: int) -> None:
    """Have commits decided as the catalog decides them, in one unit of work."""
    proposals: list[ExaminedProposal] = []
    for version in range(1, count + 1):
        examined = examination.examine(inline(add(f"f{version}", size=version)))
        part = ExaminedPart(table_id, Version(version), Way.INLINE, examined)
        proposals.append(ExaminedProposal(new_txn_id(version), (part,), house.clock.ms))
    with house.database._store.write() as unit:
        decided = decide_in(unit, house.database._ratifier._decider, proposals)
    assert all(isinstance(one.answer, Ratified) for one in decided)


def publish_many(house: House, table_id: TableId) -> None:
    """Put every commit into the log, without waiting for the disk each time."""
    folder = directory(house, table_id) / LOG
    folder.mkdir(parents=True, exist_ok=True)
    commits = house.catalog.ratified_commits(table_id).commits
    for commit in commits:
        assert commit.content is not None
        path = folder.parent / PublishedCommit(commit.version).path
        path.write_bytes(commit.content)
    with house.database._store.write() as unit:
        row = unit.table(table_id)
        assert row is not None
        unit.record_published(row.key, Version(0), row.head, house.clock.ms)


def directory(house: House, table_id: TableId) -> Path:
    return Path(house.catalog.resolve(table_id).location.removeprefix("file://"))


def cold(house: House, table_id: TableId) -> tuple[Snapshot, CountingStore]:
    """A snapshot of a client with empty caches; staged commits cannot be listed."""
    store = CountingStore(NoStagedListing(LocalStore(directory(house, table_id))))
    return load(house.catalog, table_id, store_for=lambda _: store), store


@req("RD-04")
@pytest.mark.slow
def test_a_cold_read_of_ten_thousand_commits_lists_nothing(inline_lake: House) -> None:
    house = inline_lake
    table_id = house.create().table_id
    commit_many(house, table_id, MANY)
    expected = {f"f{number}" for number in range(1, MANY + 1)}

    snapshot, store = cold(house, table_id)
    assert (snapshot.version, snapshot.num_files) == (MANY, MANY)
    assert not store.calls
    assert set(snapshot.file_columns()["path"].to_pylist()) == expected
    assert not store.calls  # unpublished, all of it is the catalog's

    publish_many(house, table_id)
    house.clock.ms += house.settings.listed_ms + 1
    snapshot, store = cold(house, table_id)
    assert len(house.catalog.resolve(table_id).commits) == 1
    assert set(snapshot.file_columns()["path"].to_pylist()) == expected
    assert not store.calls  # published, and still held

    published = load(house.catalog, table_id, version=Version(MANY - 10))
    maintenance.checkpoint(house.catalog, table_id, published, None, house.clock, CountedIds(9))
    assert house.catalog.ratified_commits(table_id, Version(0), Version(9)).commits == ()
    snapshot, store = cold(house, table_id)
    assert set(snapshot.file_columns()["path"].to_pylist()) == expected
    assert store.count("list", "folders") == 0
    assert store.count(prefix=f"{LOG}/0") == len(store.calls) > 0  # the checkpoint
    assert len({path for call in store.calls for path in call.paths}) == 1


@req("CM-03")
@shows("FX16")
@pytest.mark.slow
@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
def test_ten_thousand_stale_staged_files_change_no_read(inline_lake: House, way: Way) -> None:
    house = inline_lake
    house.way = way
    table_id = house.create().table_id
    for version in range(1, 41):
        house.propose(table_id, version, add(f"f{version}"))
    house.catalog.publish(table_id, Version(20))
    before, calls = cold(house, table_id)
    expected = sorted(file.path for file in before.files())
    staged = directory(house, table_id) / STAGED
    staged.mkdir(parents=True, exist_ok=True)
    for number in range(MANY):
        (staged / f"{number % 60:020d}.{UUID(int=number)}.json").touch()
    snapshot, store = cold(house, table_id)
    assert sorted(file.path for file in snapshot.files()) == expected
    assert list(store.calls) == list(calls.calls)
    assert store.count("list", "folders") == 0
    # Nor a commit, nor its publishing.
    assert isinstance(house.propose(table_id, 41, add("f41")), Ratified)
    assert house.catalog.publish(table_id) == 41
    assert len(cold(house, table_id)[0].files()) == 41


@req("CM-25", "CM-08")
@shows("FP8")
@pytest.mark.slow
def test_thousands_that_nobody_published_for_days_are_read_whole_and_then_published_in_order(
    inline_lake: House,
) -> None:
    house, backlog = inline_lake, 3_000
    table_id = house.create().table_id
    commit_many(house, table_id, backlog)
    house.clock.ms += 5 * 86_400_000
    house.restart()
    unpublished, _ = cold(house, table_id)
    assert len(unpublished.files()) == unpublished.version == backlog
    ratified = house.catalog.ratified_commits(table_id).commits

    for upto in (0, 1_000, 2_999, backlog):  # a beginning at a time: nowhere is there a gap
        assert house.catalog.publish(table_id, Version(upto)) == upto
        files = (directory(house, table_id) / LOG).glob("*.json")
        assert sorted(int(file.stem) for file in files) == list(range(upto + 1))
    log = house.log(table_id)
    assert all(log.read_published(commit.version) == commit.content for commit in ratified)
    published, _ = cold(house, table_id)
    assert sorted(published.files(), key=str) == sorted(unpublished.files(), key=str)
    assert isinstance(house.propose(table_id, backlog + 1, add("next")), Ratified)
