"""The log as files: listed without the staged ones, published once, hinted at with care."""

import json
from collections.abc import Sequence
from uuid import UUID

import pytest

from headgate.errors import InvariantError, LogDivergedError
from headgate.protocol.actions import Version
from headgate.protocol.paths import (
    LAST_CHECKPOINT,
    LOG,
    STAGED,
    Checksum,
    ClassicCheckpoint,
    Compaction,
    LastCheckpoint,
    PublishedCommit,
    StagedCommit,
)
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from headgate.table.log_files import DeltaLog, log_files
from tests.kit import req, shows
from tests.kit.faulty_stores import (
    CountingStore,
    NoStagedListing,
    ShufflingStore,
    WrappedStore,
)

STAGED_ONE = StagedCommit(Version(1), UUID(int=1))


def log_with(*names: str, content: bytes = b"x") -> DeltaLog:
    store = MemoryStore()
    for name in names:
        store.put(f"{LOG}/{name}", content)
    return DeltaLog(store)


def name(version: int, ending: str = "json") -> str:
    return f"{version:020d}.{ending}"


def test_a_listing_gives_every_kind_of_file_and_passes_over_strays() -> None:
    log = log_with(
        name(0),
        name(1),
        name(1, "checkpoint.parquet"),
        name(1, "crc"),
        f"{name(0, name(1))[:-5]}.compacted.json",
        "_last_checkpoint",
        "readme.txt",
        "00000000000000000001.json.tmp",
    )
    assert {item.file for item in log.list()} == {
        PublishedCommit(Version(0)),
        PublishedCommit(Version(1)),
        ClassicCheckpoint(Version(1)),
        Checksum(Version(1)),
        Compaction(Version(0), Version(1)),
        LastCheckpoint(),
    }


def test_a_listing_can_begin_at_a_version() -> None:
    log = log_with(*map(name, range(12)), name(7, "checkpoint.parquet"), name(6, "crc"))
    found = {item.file for item in log.list(Version(7))}
    assert found == {
        *(PublishedCommit(Version(v)) for v in range(7, 12)),
        ClassicCheckpoint(Version(7)),
    }


@req("CM-03")
def test_staged_commits_are_never_listed() -> None:
    log = log_with(name(0))
    log.stage(STAGED_ONE, b"content")
    counting = CountingStore(NoStagedListing(log.store))
    assert [item.file for item in DeltaLog(counting).list()] == [PublishedCommit(Version(0))]
    assert counting.count("list", prefix=STAGED) == 0


def test_empty_files_count_for_nothing() -> None:
    log = log_with(name(0))
    log.store.put(f"{LOG}/{name(1, 'checkpoint.parquet')}", b"")
    assert log_files(log.list()) == [PublishedCommit(Version(0))]


@req("CM-02")
def test_a_staged_file_is_written_once_and_serves_one_attempt() -> None:
    log = log_with()
    log.stage(STAGED_ONE, b"content")
    assert log.read(f"{STAGED}/{1:020d}.{UUID(int=1)}.json") == b"content"
    with pytest.raises(InvariantError):
        log.stage(STAGED_ONE, b"another attempt")
    assert log.read(STAGED_ONE.path) == b"content"


@req("CM-24")
def test_publishing_again_is_fine_and_publishing_other_bytes_is_not() -> None:
    log = log_with()
    log.publish_many([(Version(0), b"zero"), (Version(1), b"one")])
    log.publish_many([(Version(0), b"zero"), (Version(1), b"one"), (Version(2), b"two")])
    assert [log.read_published(Version(v)) for v in range(4)] == [b"zero", b"one", b"two", None]
    assert (log.is_published(Version(2)), log.is_published(Version(3))) == (True, False)
    with pytest.raises(LogDivergedError, match=name(1)):
        log.publish_many([(Version(1), b"another one"), (Version(2), b"two")])
    assert log.read_published(Version(1)) == b"one"


class Overtaken(WrappedStore):
    """A store where another process puts a file between a look at it and the next put."""

    def __init__(self, inner: ObjectStore, path: str, content: bytes) -> None:
        super().__init__(inner)
        self._path, self._content = path, content

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        self.inner.put_if_absent(self._path, self._content)
        return super().put_many_if_absent(items)


@req("CM-24")
@pytest.mark.parametrize(("taken", "last"), [(1, 1), (1, 3)])
def test_a_file_that_another_process_put_in_the_same_moment_is_compared(
    taken: int, last: int
) -> None:
    commits = [(Version(v), b"%d" % v) for v in range(taken, last + 1)]
    path = PublishedCommit(Version(taken)).path
    log = log_with()
    DeltaLog(Overtaken(log.store, path, b"%d" % taken)).publish_many(commits)
    assert [log.read_published(version) for version, _ in commits] == [c for _, c in commits]
    log = log_with()
    with pytest.raises(LogDivergedError, match=name(taken)):
        DeltaLog(Overtaken(log.store, path, b"another")).publish_many(commits)
    assert log.read_published(Version(taken)) == b"another"


def test_the_hint_tells_where_the_newest_checkpoint_is() -> None:
    log = log_with()
    assert log.last_checkpoint() is None
    log.store.put(LAST_CHECKPOINT, json.dumps({"version": 7, "size": 3, "parts": 2}).encode())
    assert log.last_checkpoint() == Version(7)


@shows("FP14")
@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b"{}",
        b'{"version": "7"}',
        b'{"version": -1}',
        b'{"version": true}',
        b'{"version": 1e3}',
        b'{"version": 99999999999999999999999}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_a_hint_that_cannot_be_read_is_none(hint: bytes) -> None:
    log = log_with()
    log.store.put(LAST_CHECKPOINT, hint)
    assert log.last_checkpoint() is None


def test_a_listing_in_another_order_holds_the_same_files() -> None:
    log = log_with(*map(name, range(30)))
    shuffled = DeltaLog(ShufflingStore(log.store))
    assert {item.file for item in shuffled.list()} == {item.file for item in log.list()}
