"""Snapshots of an older version, time or sequence."""

import pytest

from headgate.api.messages import Resolved
from headgate.api.port import Ref
from headgate.errors import (
    InTheFutureError,
    InvariantError,
    NotFoundError,
    UnsupportedByCatalogError,
    VersionGoneError,
)
from headgate.protocol.actions import (
    Metadata,
    Sequence,
    Version,
    encode,
    join,
)
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import (
    Compaction,
    PublishedCommit,
)
from headgate.storage.memory import MemoryStore
from tests.kit import req, shows
from tests.kit.fake_catalog import ID, LOCATION, FakeCatalog
from tests.table.snapshot_cases import (
    FIRST,
    MANAGED,
    PLAIN,
    SCHEMA,
    add,
    appended,
    f,
    metadata,
    paths,
)


def test_any_version_can_be_asked_for() -> None:
    catalog = appended(6)
    catalog.publish(3)
    for version in range(7):
        assert paths(catalog.load(version=Version(version))) == f(*range(1, version + 1))


def test_a_version_that_is_not_there_is_refused() -> None:
    catalog = appended(2)
    with pytest.raises(InTheFutureError, match="latest is 2"):
        catalog.load(version=Version(3))
    with pytest.raises(NotFoundError):
        catalog.load(version=Version(-1))


@shows("FR5")
def test_a_version_that_was_cleaned_away_is_gone() -> None:
    catalog = appended(6)
    catalog.publish()
    catalog.checkpoint_at(4)
    for version in range(4):
        catalog.store.delete(PublishedCommit(Version(version)).path)
    assert paths(catalog.load(version=Version(4))) == f(1, 2, 3, 4)
    assert paths(catalog.load()) == f(*range(1, 7))
    for version in range(4):
        with pytest.raises(VersionGoneError, match=f"version {version}"):
            catalog.load(version=Version(version))


@shows("FR5", "S15")
def test_a_cleaned_version_is_gone_though_an_older_commit_was_put_back() -> None:
    catalog = appended(6)
    catalog.publish()
    first = catalog.store.get(PublishedCommit(Version(0)).path)
    catalog.checkpoint_at(4)
    for version in range(4):
        catalog.store.delete(PublishedCommit(Version(version)).path)
    catalog.store.put_if_absent(PublishedCommit(Version(0)).path, first)
    assert paths(catalog.load()) == f(*range(1, 7))
    for version in range(1, 4):
        with pytest.raises(VersionGoneError, match=f"version {version}"):
            catalog.load(version=Version(version))


def test_a_hole_that_no_checkpoint_covers_is_damage() -> None:
    catalog = appended(6)
    catalog.publish()
    catalog.store.delete(PublishedCommit(Version(2)).path)
    with pytest.raises(InvariantError):
        catalog.load(version=Version(4))


def test_a_sequence_is_passed_to_the_catalog() -> None:
    snapshot = appended(5).load(sequence=Sequence(3))
    assert (snapshot.version, paths(snapshot)) == (2, f(1, 2))


@pytest.mark.parametrize("answered", [None, 2, 4])
def test_the_answer_for_another_sequence_is_refused(answered: int | None) -> None:
    class Deaf(FakeCatalog):
        def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
            return super().resolve(ref, None if answered is None else Sequence(answered))

    catalog = Deaf(MemoryStore(LOCATION))
    catalog.ratify(*FIRST)
    for number in range(1, 5):
        catalog.ratify(add(f"f{number}", number))
    with pytest.raises(UnsupportedByCatalogError):
        catalog.load(sequence=Sequence(3))


@req("CM-38")
@pytest.mark.parametrize("held_from", [None, 0, 4])
@pytest.mark.parametrize("is_described", [True, False])
def test_time_travel_goes_by_in_commit_timestamps_whatever_the_file_times_say(
    held_from: int | None, is_described: bool
) -> None:
    times = iter(range(10_000_000, 0, -1_000))
    catalog = FakeCatalog(MemoryStore(LOCATION, now_ms=lambda: next(times)))
    catalog.ratify(*FIRST)
    for number in range(1, 8):
        catalog.ratify(add(f"f{number}", number))
    catalog.publish(5)
    catalog.held_from = held_from
    catalog.metadata = metadata() if is_described else None
    for at_ms, version in [(1_000, 0), (1_999, 0), (3_000, 2), (6_500, 5), (8_000, 7), (10**9, 7)]:
        assert catalog.load(as_of_ms=at_ms).version == version
    with pytest.raises(VersionGoneError):
        catalog.load(as_of_ms=999)


def test_time_travel_to_what_was_cleaned_away_is_refused() -> None:
    catalog = appended(6)
    catalog.publish()
    catalog.checkpoint_at(4)
    for version in range(4):
        catalog.store.delete(PublishedCommit(Version(version)).path)
    assert catalog.load(as_of_ms=5_500).version == 4
    with pytest.raises(VersionGoneError):
        catalog.load(as_of_ms=3_500)
    # A checkpoint still has version 4, but not the time of its commit.
    catalog.store.delete(PublishedCommit(Version(4)).path)
    assert catalog.load(as_of_ms=6_500).version == 5
    for at_ms in (3_500, 5_500):
        with pytest.raises(VersionGoneError):
            catalog.load(as_of_ms=at_ms)


@req("CM-38")
def test_before_in_commit_timestamps_were_enabled_file_times_count() -> None:
    now = [0]
    catalog = FakeCatalog(MemoryStore(LOCATION, now_ms=lambda: now[0]))
    # 60 and 65 count as 71 and 72: times must rise. A restore gave version 4 a later time.
    file_times = [50, 70, 60, 65, 6_500, 10**9, 3]
    plain = Metadata(id=ID, schema_string=SCHEMA, partition_columns=["day"])
    catalog.ratify(raw=join(map(encode, (PLAIN, plain))))
    for number in (1, 2, 3, 4):
        catalog.ratify(raw=join([encode(add(f"f{number}", number))]))
    enabled = metadata(
        delta__inCommitTimestampEnablementVersion="5",
        delta__inCommitTimestampEnablementTimestamp="6000",
    )
    catalog.ratify(MANAGED, enabled)
    catalog.ratify(add("f6", 6))
    for version, at_ms in enumerate(file_times):
        now[0] = at_ms
        catalog.publish(version)
    for at_ms, version in [(50, 0), (69, 0), (70, 1), (71, 2), (72, 3), (5_999, 3), (6_000, 5)]:
        assert catalog.load(as_of_ms=at_ms).version == version
    assert catalog.load(as_of_ms=7_000).version == 6


def test_a_snapshot_knows_when_it_was_committed() -> None:
    catalog = appended(5)
    catalog.publish()
    assert catalog.load().timestamp_ms == 6_000
    assert catalog.load(version=Version(2)).timestamp_ms == 3_000
    catalog.checkpoint = catalog.checkpoint_at(3)
    assert catalog.load(version=Version(3)).timestamp_ms == 4_000


def test_a_compaction_gives_its_last_version_no_other_commits_time() -> None:
    catalog = appended(5)
    catalog.publish()
    path = Compaction(Version(2), Version(3)).path
    catalog.store.put(path, join(encode(add(f"f{version}", version)) for version in (2, 3)))
    catalog.compactions = (
        KnownFile(kind=FileKind.COMPACTION, first=Version(2), last=Version(3), paths=(path,)),
    )
    snapshot = catalog.load(version=Version(3))
    assert (paths(snapshot), snapshot.timestamp_ms) == (f(1, 2, 3), 4_000)
