"""A snapshot of a table that the catalog described: its log is read late, once, or never."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.client.maintenance import checksum_of
from headgate.errors import (
    InvariantError,
    MalformedError,
    UnavailableError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.protocol.actions import DomainMetadata, SetTransaction, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.storage.memory import MemoryStore
from headgate.table.snapshot import Snapshot
from headgate.table.snapshot_cache import SnapshotCache
from headgate.table.snapshot_loader import follow, load
from tests.kit import req, shows
from tests.kit.fake_catalog import ID, FakeCatalog
from tests.kit.faulty_stores import Call, WrappedStore
from tests.table.snapshot_cases import (
    FIRST,
    MANAGED,
    add,
    appended,
    counted,
    f,
    metadata,
    paths,
    remove,
)


def describing(count: int, way: Way = Way.INLINE) -> FakeCatalog:
    """A catalog that says what its table is, with so many appends."""
    catalog = appended(count, way)
    catalog.describes = True
    return catalog


@req("CM-22")
def test_what_the_table_is_needs_no_look_at_its_log_and_no_second_call() -> None:
    catalog = describing(200)
    catalog.ratify(DomainMetadata(domain="d", configuration="1", removed=False))
    catalog.publish()
    store = counted(catalog)
    snapshot = catalog.load()
    assert (snapshot.version, snapshot.timestamp_ms) == (201, 202_000)
    assert (snapshot.protocol, snapshot.metadata) == (MANAGED, metadata())
    assert [field.name for field in snapshot.schema.fields] == ["id", "day"]
    assert snapshot.properties == metadata().configuration
    assert snapshot.partition_columns == ("day",)
    assert (snapshot.num_files, snapshot.size_in_bytes) == (200, sum(range(201)))
    assert snapshot.domains["d"].configuration == "1"
    assert not snapshot.is_read
    assert (catalog.calls, len(store.calls)) == (["resolve"], 0)
    assert paths(snapshot) == f(*range(1, 201))
    assert snapshot.is_read


@req("CM-22")
@pytest.mark.parametrize(
    "ask",
    [
        lambda snapshot: snapshot.files(),
        lambda snapshot: snapshot.file_columns(),
        lambda snapshot: snapshot.file_columns(stats=True),
        lambda snapshot: snapshot.set_transactions,
        lambda snapshot: snapshot.state,
    ],
    ids=["files", "columns", "statistics", "transactions", "state"],
)
def test_what_the_catalog_does_not_tell_is_read_on_first_need_and_once(
    ask: Callable[[Snapshot], object],
) -> None:
    catalog = describing(5)
    catalog.ratify(SetTransaction(app_id="app", version=7))
    catalog.publish()
    store = counted(catalog)
    snapshot = catalog.load()
    ask(snapshot)
    assert store.count("get", prefix=LOG) == 7
    for again in (ask, Snapshot.files, Snapshot.file_columns):
        again(snapshot)
    assert store.count("get", prefix=LOG) == 7
    assert snapshot.set_transactions["app"].version == 7
    assert catalog.calls == ["resolve"]


def test_counts_the_catalog_is_not_certain_of_are_counted_here() -> None:
    catalog = describing(5)
    resolve = catalog.resolve
    catalog.resolve = lambda ref, at=None: replaced(resolve(ref, at), checksum=None)  # type: ignore[method-assign]
    catalog.ratify(DomainMetadata(domain="d", configuration="1", removed=False))
    for ask in (
        lambda snapshot: snapshot.num_files == 5,
        lambda snapshot: snapshot.size_in_bytes == 15,
        lambda snapshot: snapshot.domains.keys() == {"d"},
    ):
        snapshot = catalog.load()
        assert not snapshot.is_read
        assert ask(snapshot)
        assert snapshot.is_read


def test_many_threads_that_need_the_log_at_once_read_it_once() -> None:
    catalog = describing(50)
    catalog.publish()
    store = counted(catalog)
    snapshot = catalog.load()
    together = threading.Barrier(8)

    def read(_: int) -> list[str]:
        together.wait()
        return sorted(file.path for file in snapshot.files())

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(read, range(8)))
    assert answers == [f(*range(1, 51))] * 8
    assert store.count("get", prefix=LOG) == 51


@req("CM-22")
@shows("FR6")
@pytest.mark.parametrize("forgets", [True, False])
def test_a_late_read_is_at_the_version_that_was_answered(forgets: bool) -> None:
    catalog = describing(4)
    snapshot = catalog.load()
    changed = replaced(metadata(), schema_string='{"type":"struct","fields":[]}')
    unknown = replaced(MANAGED, reader_features=["timeMachine"])
    catalog.ratify(changed, unknown, remove("f1"), add("f5"))
    catalog.publish(forget=forgets)
    assert (snapshot.version, paths(snapshot)) == (4, f(1, 2, 3, 4))
    assert (snapshot.metadata, snapshot.protocol) == (metadata(), MANAGED)
    assert (snapshot.state.metadata, snapshot.state.protocol) == (metadata(), MANAGED)


def cleaned(catalog: FakeCatalog, below: int) -> None:
    """Do what a cleanup does: what lies before a checkpoint goes out of the log."""
    for version in range(below):
        catalog.store.delete(PublishedCommit(Version(version)).path)


@req("RD-06")
def test_a_late_read_after_a_cleanup_goes_by_the_checkpoint_that_serves_its_version() -> None:
    catalog = describing(6)
    catalog.publish(5)
    snapshot = catalog.load()  # of the time before the checkpoint, which the answer lacks
    catalog.checkpoint = catalog.checkpoint_at(5)
    catalog.ratify(add("f7"))
    catalog.publish()
    cleaned(catalog, 5)
    assert paths(snapshot) == f(*range(1, 7))


@shows("FR5")
@pytest.mark.parametrize("seen", ["unread", "read before"])
@pytest.mark.parametrize("commits_in_hand", [0, 1, 3])
def test_what_a_cleanup_has_passed_is_gone_and_no_other_answer(
    commits_in_hand: int, seen: str
) -> None:
    catalog = describing(6)
    catalog.publish(6 - commits_in_hand)
    snapshot = catalog.load()
    if seen == "read before":
        assert paths(snapshot) == f(*range(1, 7))
    for number in range(7, 11):
        catalog.ratify(add(f"f{number}"))
    catalog.publish()
    catalog.checkpoint = catalog.checkpoint_at(9)
    cleaned(catalog, 9)
    if seen == "read before":
        assert paths(snapshot) == f(*range(1, 7))
    else:
        for _ in range(2):
            with pytest.raises(VersionGoneError, match="version 6"):
                snapshot.files()
    assert (snapshot.version, snapshot.num_files) == (6, 6)  # as described
    with pytest.raises(VersionGoneError, match="version 6"):
        catalog.load(version=Version(6))
    assert paths(catalog.load()) == f(*range(1, 11))


def test_a_latest_version_that_cannot_be_read_is_an_alarm_and_not_gone() -> None:
    catalog = describing(6)
    catalog.publish()
    snapshot = catalog.load()
    cleaned(catalog, 3)
    with pytest.raises(InvariantError, match="neither the catalog nor the log"):
        snapshot.files()


class DownForAWhile(WrappedStore):
    """Storage that cannot be reached until a test restores it."""

    is_down = True

    def around(self, call: Call, effect: Callable[[], object]) -> object:  # type: ignore[override]
        if self.is_down:
            raise UnavailableError("Storage is down.")
        return effect()


def test_a_read_that_failed_is_tried_again() -> None:
    catalog = describing(4)
    catalog.publish()
    store = DownForAWhile(catalog.store)
    snapshot = catalog.load(store=store)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            snapshot.files()
    store.is_down = False
    assert paths(snapshot) == f(1, 2, 3, 4)


def test_a_commit_that_cannot_be_decoded_is_named_when_it_is_read() -> None:
    catalog = appended(3)
    catalog.protocol, catalog.metadata = MANAGED, metadata()
    catalog.ratify(raw=b'{"add":')
    snapshot = catalog.load()
    assert (snapshot.version, snapshot.metadata) == (4, metadata())
    with pytest.raises(MalformedError, match="version 4"):
        snapshot.files()


@req("CM-22")
@pytest.mark.parametrize("what", ["metaData", "protocol", "order"])
def test_a_snapshot_is_held_against_what_the_catalog_told(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = appended(3)
    catalog.protocol, catalog.metadata = MANAGED, metadata()
    features = MANAGED.writer_features or []
    if what == "metaData":
        catalog.metadata = metadata(other="1")
    elif what == "protocol":
        catalog.protocol = replaced(MANAGED, writer_features=[*features, "appendOnly"])
    else:
        catalog.protocol = replaced(MANAGED, writer_features=features[::-1])
    with caplog.at_level(logging.ERROR):
        assert len(catalog.load().files()) == 3
    assert ("fsck" in caplog.text) == (f"another {what}" in caplog.text) == (what != "order")


def test_what_the_catalog_counted_wrong_is_told_and_what_was_read_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = describing(3)
    wrong = catalog.resolve(ID).checksum
    assert wrong is not None
    catalog.checksum = replaced(wrong, num_files=9)
    snapshot = catalog.load()
    assert snapshot.num_files == 9
    assert checksum_of(catalog.load()).num_files == 3  # what is written down is counted here
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        assert len(snapshot.files()) == 3
    assert "its checksum declares 9" in caplog.text
    assert snapshot.num_files == 3


def test_a_table_that_cannot_be_read_or_is_another_is_refused_before_its_log_is() -> None:
    catalog = appended(3)
    catalog.protocol, catalog.metadata = MANAGED, metadata()
    catalog.protocol = replaced(MANAGED, reader_features=["timeMachine"])
    store = counted(catalog)
    with pytest.raises(UnsupportedFeatureError, match="timeMachine"):
        catalog.load()
    another = {**metadata().configuration, "io.unitycatalog.tableId": "another"}
    catalog.protocol = MANAGED
    catalog.metadata = replaced(metadata(), configuration=another)
    with pytest.raises(InvariantError, match="another"):
        catalog.load()
    assert not store.calls


# The next one


@req("CM-22")
def test_a_refresh_stays_unread_where_nothing_was_read_and_reads_only_what_is_new_elsewhere() -> (
    None
):
    catalog = describing(100)
    catalog.publish()
    unread, read = catalog.load(), catalog.load()
    assert len(paths(read)) == 100
    for number in range(101, 104):
        catalog.ratify(add(f"f{number}", number))
        catalog.publish()
        store = counted(catalog)
        unread, read = catalog.load(base=unread), catalog.load(base=read)
        assert (unread.num_files, read.num_files) == (number, number)
        assert not unread.is_read
        assert not store.calls
        assert paths(read) == f(*range(1, number + 1))
        assert store.count("get", prefix=LOG) == len(store.calls) == 1
    assert paths(unread) == f(*range(1, 104))


def test_a_refresh_goes_on_from_the_last_version_that_was_read() -> None:
    catalog = describing(100)
    catalog.publish()
    first = catalog.load()
    assert len(first.files()) == 100
    snapshot = first
    for number in range(101, 111):  # only the last of these is read
        catalog.ratify(add(f"f{number}", number), remove(f"f{number - 100}"))
        catalog.publish()
        snapshot = catalog.load(base=snapshot)
    store = counted(catalog)
    assert paths(snapshot) == f(*range(11, 111))
    assert store.count("get", prefix=LOG) == len(store.calls) == 10
    assert paths(first) == f(*range(1, 101))


@pytest.mark.parametrize("was_read", [True, False])
@pytest.mark.parametrize("holds", ["all", "all it describes", "nothing"])
def test_commits_that_follow_one_another_unread_are_read_whole_in_the_end(
    holds: str, was_read: bool
) -> None:
    """More of them than are kept in hand; what is not comes from the catalog or the log."""
    catalog = describing(3)
    catalog.held_from = 0 if holds == "all" else None
    if holds == "nothing":
        catalog.publish()
    snapshot = catalog.load()
    if was_read:
        assert len(snapshot.files()) == 3
    if holds == "all it describes":  # and gives again, without naming the first version
        catalog.held_from = 0
    for number in range(4, 204):
        version = catalog.ratify(add(f"f{number}", number))
        if holds == "nothing":
            catalog.publish()
        snapshot = follow(
            catalog,
            snapshot,
            [catalog.commits[version]],
            protocol=MANAGED,
            metadata=metadata(),
            checksum=None,
        )
        assert snapshot.answer is not None
        assert len(snapshot.unread_commits) <= 32
        assert not snapshot.is_read
    assert (snapshot.version, snapshot.timestamp_ms) == (203, 204_000)
    assert paths(snapshot) == f(*range(1, 204))


def test_an_earlier_version_is_read_from_what_is_in_hand_below_it() -> None:
    catalog = describing(10)
    catalog.publish()
    first = catalog.load()
    assert len(first.files()) == 10
    for number in range(11, 21):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish()
    latest = catalog.load(base=first)
    store = counted(catalog)
    assert paths(catalog.load(version=Version(15), base=first)) == f(*range(1, 16))
    assert store.count("get", prefix=LOG) == 5
    assert paths(catalog.load(version=Version(20), base=latest)) == f(*range(1, 21))


def test_a_cache_counts_what_is_read_and_reads_nothing_for_it() -> None:
    catalog = describing(30)
    cache = SnapshotCache(max_files=40)
    store = counted(catalog)
    first = catalog.load(cache=cache)
    assert not store.calls
    assert not first.is_read
    assert catalog.load(cache=cache) is first
    assert len(first.files()) == 30
    catalog.ratify(add("f31"))
    second = catalog.load(cache=cache)
    assert not second.is_read
    assert len(second.files()) == 31
    catalog.ratify(add("f32"))
    third = catalog.load(cache=cache)
    assert cache.newest(ID, first.version) is None  # 61 files were too many
    assert cache.newest(ID, second.version) is second
    assert cache.newest(ID, third.version) is third


def test_a_cache_keeps_no_more_than_one_snapshot_that_nobody_read() -> None:
    catalog = describing(5)
    cache = SnapshotCache()
    read = catalog.load(cache=cache)
    assert read.num_files == len(read.files()) == 5
    for number in range(6, 10):
        catalog.ratify(add(f"f{number}"))
        latest = catalog.load(cache=cache)
    assert cache.newest(ID, latest.version) is latest
    assert cache.newest(ID, Version(latest.version - 1)) is read
    assert (latest.is_read, latest.state_in_memory) == (False, read.state)


def test_a_snapshot_that_is_read_lets_go_of_the_commits_it_was_told_of() -> None:
    catalog = FakeCatalog(MemoryStore())
    catalog.ratify(*FIRST)
    catalog.ratify(add("f1"))
    catalog.describes = True
    snapshot = load(catalog, ID, store_for=lambda _: catalog.store)
    assert snapshot.answer is not None
    assert len(snapshot.unread_commits) == 2
    assert len(snapshot.files()) == 1
    assert snapshot.unread_commits == ()
