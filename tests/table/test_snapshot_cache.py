"""Snapshots kept by table id and version: less is read, and never another history."""

from __future__ import annotations

import dataclasses

import pytest

from headgate.errors import VersionGoneError
from headgate.protocol.actions import CommitInfo, Sequence, Version, encode, join
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import LOG, ClassicCheckpoint, PublishedCommit
from headgate.table.snapshot_cache import SnapshotCache
from headgate.table.snapshot_loader import load
from tests.kit import req
from tests.kit.fake_catalog import ID, FakeCatalog
from tests.table.snapshot_cases import add, appended, counted, f, paths


@pytest.fixture(params=[True, False], ids=["described", "not described"])
def catalog(request: pytest.FixtureRequest) -> FakeCatalog:
    """A catalog with nine appends, all published and forgotten."""
    catalog = appended(9)
    catalog.publish()
    catalog.describes = request.param
    return catalog


def history_after_a_restore(catalog: FakeCatalog, version: int) -> None:
    """Lose what came after a version, and let others have those versions, later."""
    lost = catalog.latest
    del catalog.commits[version + 1 :], catalog.contents[version + 1 :]
    for number in range(version + 1, lost + 1):
        info = CommitInfo(in_commit_timestamp=100_000 + number, txn_id=f"other {number}")
        catalog.ratify(raw=join(map(encode, (info, add(f"other {number}")))))
        commit = replaced(catalog.commits[-1], timestamp_ms=100_000 + number)
        catalog.commits[-1] = commit
        catalog.store.put(PublishedCommit(Version(number)).path, catalog.contents[-1])


def test_the_same_version_again_reads_nothing_of_the_log(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    first = catalog.load(cache=cache)
    assert paths(first) == f(*range(1, 10))
    store = counted(catalog)
    assert catalog.load(cache=cache) is first
    assert (catalog.calls, len(store.calls)) == (["resolve"], 0)


def test_an_earlier_version_again_costs_one_look_at_its_commit(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    first = catalog.load(version=Version(5), cache=cache)
    store = counted(catalog)
    assert catalog.load(version=Version(5), cache=cache) is first
    assert [call.paths for call in store.calls] == [(PublishedCommit(Version(5)).path,)]


def test_a_commit_that_is_listed_needs_no_look(catalog: FakeCatalog) -> None:
    catalog.listed_from = 5
    cache = SnapshotCache()
    first = catalog.load(version=Version(5), cache=cache)
    store = counted(catalog)
    assert catalog.load(version=Version(5), cache=cache) is first
    assert (catalog.calls, len(store.calls)) == (["resolve"], 0)


def test_a_later_version_goes_on_from_the_newest_one_below_it(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    for version in (2, 5):
        catalog.load(version=Version(version), cache=cache)
    store = counted(catalog)
    assert paths(catalog.load(version=Version(7), cache=cache)) == f(*range(1, 8))
    assert {path for call in store.calls for path in call.paths} == {
        PublishedCommit(Version(version)).path for version in (5, 6, 7)
    }


@req("RD-05")
def test_a_catalog_that_was_restored_is_read_anew(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    for version in (*range(10), None):
        at = None if version is None else Version(version)
        assert catalog.load(version=at, cache=cache).num_files == (9 if at is None else at)
    history_after_a_restore(catalog, 4)
    others = [f"other {number}" for number in range(5, 10)]
    assert paths(catalog.load(cache=cache)) == sorted([*f(1, 2, 3, 4), *others])
    for version in range(5, 10):
        found = catalog.load(version=Version(version), cache=cache)
        assert paths(found) == sorted([*f(1, 2, 3, 4), *others[: version - 4]])
    # And what the backup had is the same as ever.
    store = counted(catalog)
    assert paths(catalog.load(version=Version(4), cache=cache)) == f(1, 2, 3, 4)
    assert store.count("get", prefix=LOG) == 1


def test_what_was_cleaned_away_is_gone_also_for_who_has_seen_it(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    for version in (2, 9):
        catalog.load(version=Version(version), cache=cache)
    catalog.checkpoint_at(6)
    for version in range(6):
        catalog.store.delete(PublishedCommit(Version(version)).path)
    with pytest.raises(VersionGoneError):
        catalog.load(version=Version(2), cache=cache)
    assert paths(catalog.load(version=Version(8), cache=cache)) == f(*range(1, 9))
    assert paths(catalog.load(cache=cache)) == f(*range(1, 10))


def test_a_renamed_table_is_told_under_its_new_name(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    old = catalog.load(cache=cache)
    assert paths(old) == f(*range(1, 10))
    catalog.name = "main.default.renamed"
    store = counted(catalog)
    new = catalog.load(cache=cache)
    assert (old.name, new.name) == ("main.default.t", "main.default.renamed")
    assert paths(new) == f(*range(1, 10))
    assert len(store.calls) == 0


def test_an_old_snapshot_is_passed_over_where_a_checkpoint_is_nearer() -> None:
    catalog = appended(200)
    cache = SnapshotCache()
    catalog.load(version=Version(3), cache=cache)
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(198)
    store = counted(catalog)
    assert paths(catalog.load(cache=cache)) == f(*range(1, 201))
    assert {path for call in store.calls for path in call.paths} == {
        ClassicCheckpoint(Version(198)).path,
        *(PublishedCommit(Version(version)).path for version in (199, 200)),
    }


def test_a_cut_is_served_from_what_is_in_hand(catalog: FakeCatalog) -> None:
    cache = SnapshotCache()
    first = catalog.load(sequence=Sequence(6), cache=cache)
    assert (first.version, paths(first)) == (5, f(*range(1, 6)))
    store = counted(catalog)
    assert catalog.load(sequence=Sequence(6), cache=cache) is first
    assert not store.calls


def test_a_snapshot_seen_at_a_later_sequence_is_another_object_with_the_same_state() -> None:
    catalog, cache = appended(3), SnapshotCache()
    first, later = (
        load(
            catalog,  # type: ignore[arg-type]
            replaced(catalog.resolve(ID), sequence=Sequence(number)),
            cache=cache,
            store_for=lambda _: catalog.store,
        )
        for number in (40, 41)
    )
    assert (first.sequence, later.sequence) == (40, 41)
    assert later.state is first.state
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.sequence = Sequence(7)  # type: ignore[misc]


def test_the_newest_snapshot_is_kept_however_large_it_is(catalog: FakeCatalog) -> None:
    cache = SnapshotCache(max_files=1)
    for version in (4, 9):
        assert catalog.load(version=Version(version), cache=cache).state.num_files == version
    newest = catalog.load(cache=cache)
    assert cache.newest(ID, Version(9)) is newest
    assert cache.newest(ID, Version(8)) is None
