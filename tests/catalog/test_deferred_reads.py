"""Read long after asking: at the version that was answered, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.client import maintenance
from headgate.errors import NotFoundError, VersionGoneError
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import PublishedCommit
from headgate.settings import Settings
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_loader import load
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import CountedIds, ManualClock, add, remove


@pytest.fixture(params=[Way.INLINE, Way.STAGED], ids=lambda way: way.value)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A catalog that lists no published commit but the latest."""
    settings = Settings(verify_staged=0, listed_ms=0)
    made = House(tmp_path / "lake", request.param, ManualClock(), settings)
    yield made
    made.close()


def commit(house: House, table_id: TableId, first: int, last: int) -> None:
    """Commit versions that each add a file and take the one before away, and publish them."""
    for version in range(first, last + 1):
        gone = [remove(add(f"f{version - 1}"))] if version > 1 else []
        house.propose(table_id, version, add(f"f{version}"), add(f"g{version}"), *gone)
    house.catalog.publish(table_id)
    house.clock.ms += 1


def at(version: int) -> set[str]:
    """The files of a version."""
    return {f"f{version}", *(f"g{number}" for number in range(1, version + 1))}


def paths(snapshot: Snapshot) -> set[str]:
    return {file.path for file in snapshot.files()}


def checkpoint(house: House, table_id: TableId, version: int) -> None:
    """Write a checkpoint and register it; the catalog forgets what it covers."""
    snapshot = load(house.catalog, table_id, version=Version(version))
    maintenance.checkpoint(
        house.catalog, table_id, snapshot, None, house.clock, CountedIds(version)
    )


def clean_below(house: House, table_id: TableId, version: int) -> None:
    """Take away what a cleanup takes away: published commits, and staged ones with them."""
    store = house.log(table_id).store
    for number in range(version):
        store.delete(PublishedCommit(Version(number)).path)
    for item in list(store.list("_delta_log/_staged_commits")):
        if int(item.path.rpartition("/")[2][:20]) < version:
            store.delete(item.path)


@req("RD-06")
@shows("FR5")
@pytest.mark.parametrize("pinned_at", [1, 4, 6])
def test_a_pinned_version_that_was_forgotten_and_cleaned_away_is_gone(
    house: House, pinned_at: int
) -> None:
    table_id = house.create().table_id
    commit(house, table_id, 1, pinned_at)
    pinned, read = load(house.catalog, table_id), load(house.catalog, table_id)
    assert paths(read) == at(pinned_at)
    commit(house, table_id, pinned_at + 1, 9)
    checkpoint(house, table_id, 8)
    clean_below(house, table_id, 8)
    for _ in range(2):
        with pytest.raises(VersionGoneError, match=f"version {pinned_at} "):
            pinned.files()
    with pytest.raises(VersionGoneError, match=f"version {pinned_at} "):
        load(house.catalog, table_id, version=Version(pinned_at)).files()
    assert pinned.version == pinned_at
    assert pinned.num_files == len(at(pinned_at))  # as answered before
    assert paths(read) == at(pinned_at)  # and so is what was read in time
    for version in (8, 9):
        assert paths(load(house.catalog, table_id, version=Version(version))) == at(version)


@req("RD-06")
@pytest.mark.parametrize("cleaned", [True, False])
def test_a_pinned_version_that_was_forgotten_is_read_from_log_and_checkpoint(
    house: House, cleaned: bool
) -> None:
    table_id = house.create().table_id
    commit(house, table_id, 1, 6)
    pinned = load(house.catalog, table_id)
    commit(house, table_id, 7, 9)
    checkpoint(house, table_id, 5)
    checkpoint(house, table_id, 9)
    assert house.catalog.ratified_commits(table_id).commits == ()
    if cleaned:
        clean_below(house, table_id, 5)
    assert paths(pinned) == at(6)


@req("RD-06")
def test_a_pinned_version_of_a_table_that_is_dropped_is_read_and_of_one_purged_is_not(
    house: House,
) -> None:
    table_id = house.create().table_id
    commit(house, table_id, 1, 6)
    early, late = load(house.catalog, table_id), load(house.catalog, table_id)
    house.catalog.drop_table(table_id)
    assert paths(early) == at(6)
    house.catalog.purge_table(table_id)
    with pytest.raises(NotFoundError):
        late.files()
