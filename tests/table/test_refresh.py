"""Refreshing: the next snapshot is made from the one before and costs what is new."""

import pytest

from headgate.protocol.actions import Version, join
from headgate.protocol.actions import encode as encoded
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.storage.memory import MemoryStore
from headgate.table.checkpoint_writer import CheckpointForm
from headgate.table.snapshot_loader import load
from tests.kit import req, shows
from tests.kit.fake_catalog import ID, FakeCatalog
from tests.table.snapshot_cases import (
    FIRST,
    add,
    appended,
    counted,
    f,
    paths,
    remove,
)


def test_nothing_new_gives_the_very_same_snapshot() -> None:
    catalog = appended(3)
    snapshot = catalog.load()
    store = counted(catalog)
    assert catalog.load(base=snapshot) is snapshot
    assert (catalog.calls, len(store.calls)) == (["resolve"], 0)


@pytest.mark.parametrize("way", [Way.INLINE, Way.STAGED])
def test_new_commits_are_put_over_the_snapshot_in_hand(way: Way) -> None:
    catalog = appended(3)
    first = catalog.load()
    catalog.ratify(add("f4", 4), remove("f1"), way=way)
    catalog.ratify(add("f5", 5), way=way)
    second = catalog.load(base=first)
    assert (second.version, paths(second)) == (5, f(2, 3, 4, 5))
    assert (first.version, paths(first)) == (3, f(1, 2, 3))
    assert second.timestamp_ms == 6_000


@req("CM-15")
@shows("FX2")
def test_a_new_staged_tail_is_seen_after_a_quiet_time_with_nothing_unpublished() -> None:
    catalog = appended(3)
    catalog.publish()
    snapshot = catalog.load()
    for _ in range(3):
        snapshot = catalog.load(base=snapshot)
    catalog.ratify(add("f4", 4), way=Way.STAGED)
    assert paths(catalog.load(base=snapshot)) == f(1, 2, 3, 4)


def test_commits_published_and_forgotten_meanwhile_are_read_by_name() -> None:
    catalog = appended(3)
    snapshot = catalog.load()
    for number in range(4, 9):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish(7)
    store = counted(catalog)
    assert paths(catalog.load(base=snapshot)) == f(*range(1, 9))
    assert store.count("list") == 0
    assert store.count("get", prefix=LOG) == 4


@req("RD-04")
def test_a_refresh_reads_the_new_commits_and_nothing_else() -> None:
    catalog = appended(200)
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(150)
    snapshot = catalog.load()
    catalog.ratify(add("f201", 201), way=Way.STAGED)
    store = counted(catalog)
    refreshed = catalog.load(base=snapshot)
    assert refreshed.num_files == 201
    assert [call.paths[0].rpartition("/")[0] for call in store.calls] == [STAGED]
    assert catalog.calls == ["resolve"]


def test_a_checkpoint_made_meanwhile_is_not_read_where_few_commits_will_do() -> None:
    catalog = appended(5)
    snapshot = catalog.load()
    catalog.ratify(add("f6", 6))
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(6)
    store = counted(catalog)
    assert paths(catalog.load(base=snapshot)) == f(*range(1, 7))
    assert {path for call in store.calls for path in call.paths} == {
        PublishedCommit(Version(6)).path
    }


def test_a_snapshot_left_far_behind_goes_on_from_a_checkpoint() -> None:
    catalog = appended(2)
    snapshot = catalog.load()
    for number in range(3, 151):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(140)
    for version in range(140):
        catalog.store.delete(PublishedCommit(Version(version)).path)
    assert paths(catalog.load(base=snapshot)) == f(*range(1, 151))


@pytest.mark.parametrize("form", CheckpointForm)
def test_files_of_a_checkpoint_are_removed_and_repeated_by_later_commits(
    form: CheckpointForm,
) -> None:
    catalog = appended(30)
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(30, form)
    snapshot = catalog.load()
    live = {f"f{number}": number for number in range(1, 31)}
    for number in range(1, 31):  # more often than the scans that come before an index
        catalog.ratify(remove(f"f{number}"), add(f"g{number}", number), add("f30", number))
        del live[f"f{number}"]
        live |= {f"g{number}": number, "f30": number}
        snapshot = catalog.load(base=snapshot)
        assert (snapshot.num_files, snapshot.size_in_bytes) == (len(live), sum(live.values()))
    assert paths(snapshot) == sorted(live)
    assert paths(catalog.load()) == sorted(live)


def test_a_snapshot_ahead_of_the_catalog_is_not_a_base() -> None:
    catalog = appended(3)
    snapshot = catalog.load()
    del catalog.commits[2:]
    again = catalog.load(base=snapshot)
    assert (again.version, paths(again)) == (1, f(1))


@req("CM-18")
def test_a_refresh_ignores_what_lies_beyond_the_catalogs_latest() -> None:
    catalog = appended(3)
    catalog.publish()
    snapshot = catalog.load()
    catalog.store.put(PublishedCommit(Version(4)).path, join([encoded(add("intruder"))]))
    assert catalog.load(base=snapshot) is snapshot


def test_a_refresh_shares_the_files_in_hand_instead_of_copying_them() -> None:
    catalog = appended(2_000)
    snapshot = catalog.load()
    big = snapshot.state.layers.layers[0]
    for number in range(300):
        catalog.ratify(add(f"new {number}"))
        snapshot = catalog.load(base=snapshot)
        assert snapshot.state.layers.layers[0] is big
    assert snapshot.num_files == 2_300


def test_a_table_is_refreshed_by_its_id_so_a_rename_does_not_matter() -> None:
    catalog = FakeCatalog(MemoryStore())
    catalog.ratify(*FIRST)
    seen: list[object] = []
    resolve = catalog.resolve
    catalog.resolve = lambda ref, at=None: (seen.append(ref), resolve(ref, at))[1]  # type: ignore[method-assign]
    snapshot = load(catalog, ID, store_for=lambda _: catalog.store)
    catalog.ratify(add("a"))
    assert catalog.load(base=snapshot).version == 1
    assert seen == [ID, ID]
