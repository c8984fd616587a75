"""Snapshots of plain tables, read by path."""

from pathlib import Path

import pytest

from headgate.api.messages import Resolved
from headgate.errors import (
    InTheFutureError,
    MalformedError,
    NotFoundError,
    PathAccessError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.protocol.actions import (
    Protocol,
    Version,
)
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    PublishedCommit,
)
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from tests.kit import req, shows
from tests.kit.fake_catalog import ID, LOCATION, FakeCatalog, content
from tests.kit.faulty_stores import (
    ShufflingStore,
    StaleListStore,
)
from tests.table.snapshot_cases import (
    FIRST,
    add,
    by_path,
    checkpointed,
    f,
    paths,
    plain_appended,
    plain_store,
)


def test_a_plain_table_is_read_by_its_path() -> None:
    store = plain_appended(5)
    snapshot = by_path(store)
    assert (snapshot.version, paths(snapshot), snapshot.table_id) == (5, f(*range(1, 6)), None)
    assert paths(by_path(store, version=Version(2))) == f(1, 2)
    with pytest.raises(InTheFutureError):
        by_path(store, version=Version(6))
    with pytest.raises(NotFoundError, match="no Delta table"):
        by_path(MemoryStore(LOCATION))


@req("RD-05")
@shows("FP17")
def test_a_plain_table_is_read_the_same_however_its_log_is_listed() -> None:
    store = plain_appended(30)
    checkpointed(store, 12)
    assert paths(by_path(ShufflingStore(store, 3))) == f(*range(1, 31))
    stale = StaleListStore(MemoryStore(LOCATION), 3)
    for version in range(31):
        path = PublishedCommit(Version(version)).path
        stale.put_if_absent(path, store.get(path))
    assert by_path(stale).version == 30
    assert paths(by_path(stale)) == f(*range(1, 31))


@req("RD-06")
def test_a_gap_in_a_plain_log_is_an_error() -> None:
    store = plain_appended(5)
    store.delete(PublishedCommit(Version(3)).path)
    with pytest.raises(MalformedError, match="gap"):
        by_path(store)


@shows("FP14")
@pytest.mark.parametrize(
    "hint",
    [
        b"not JSON",
        b'{"version": 3, "size": 1}',  # stale
        b'{"version": 5, "size": 1}',  # no checkpoint there
        b'{"version": 99, "size": 1}',  # beyond the log
        b'{"version": 6, "size": 1, "parts": 4}',  # another form
        None,
    ],
)
def test_whatever_the_hint_says_the_table_is_read_whole(hint: bytes | None) -> None:
    store = plain_appended(8)
    checkpointed(store, 3)
    checkpointed(store, 6)
    if hint is None:
        store.delete(LAST_CHECKPOINT)
    else:
        store.put(LAST_CHECKPOINT, hint)
    assert paths(by_path(store)) == f(*range(1, 9))
    assert paths(by_path(store, version=Version(4))) == f(1, 2, 3, 4)


@req("RD-02")
def test_a_catalog_managed_table_is_refused_by_path_and_named(tmp_path: Path) -> None:
    catalog = FakeCatalog(LocalStore(tmp_path / "lake" / "tables" / ID))
    catalog.ratify(*FIRST)
    catalog.ratify(add("a"))
    catalog.publish()
    with pytest.raises(PathAccessError, match=ID) as outside:
        by_path(catalog.store)
    assert "ADDRESS" in outside.value.remedy
    (tmp_path / "lake" / "headgate.db").touch()
    with pytest.raises(PathAccessError, match=ID) as inside:
        by_path(catalog.store)
    assert str(tmp_path / "lake") in str(inside.value)
    with pytest.raises(PathAccessError):
        by_path(catalog.store, version=Version(0))


def test_a_plain_version_before_a_feature_nobody_knows_can_still_be_read() -> None:
    unknown = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=["timeMachine"],
        writer_features=["timeMachine"],
    )
    store = plain_store((add("a"),), (unknown,))
    with pytest.raises(UnsupportedFeatureError, match="timeMachine"):
        by_path(store)
    assert paths(by_path(store, version=Version(1))) == ["a"]


def test_an_external_table_of_a_catalog_is_read_from_its_log() -> None:
    store = plain_appended(3)
    resolved = Resolved(
        table_id=ID, location=LOCATION, catalog_managed=False, latest=Version(0), timestamp_ms=0
    )
    catalog = FakeCatalog(store)
    catalog.resolve = lambda ref, at=None: resolved  # type: ignore[method-assign]
    assert paths(catalog.load()) == f(1, 2, 3)
    store.put(PublishedCommit(Version(4)).path, content(4, *FIRST))
    with pytest.raises(PathAccessError):
        catalog.load()


@req("CM-38")
def test_plain_tables_travel_in_time_by_file_times() -> None:
    now = [0]
    store = MemoryStore(LOCATION, now_ms=lambda: now[0])
    source = plain_appended(3)
    for version, at_ms in enumerate([100, 300, 200, 400]):
        now[0] = at_ms
        path = PublishedCommit(Version(version)).path
        store.put(path, source.get(path))
    for at_ms, version in [(100, 0), (299, 0), (300, 1), (301, 2), (399, 2), (400, 3), (999, 3)]:
        assert by_path(store, as_of_ms=at_ms).version == version
    with pytest.raises(VersionGoneError):
        by_path(store, as_of_ms=99)
    assert by_path(store, version=Version(1)).timestamp_ms == 300
