"""`<v>.crc`: a version is compared with its checksum, and no reader is stopped by it."""

from __future__ import annotations

import pytest

from headgate.client.maintenance import checksum_of
from headgate.errors import UnavailableError
from headgate.protocol.actions import Protocol, Version
from headgate.protocol.encoding import replaced, to_json
from headgate.protocol.log.checksums import VersionChecksum
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import Checksum, PublishedCommit
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import write_checksum
from headgate.table.snapshot import Snapshot
from tests.kit import req
from tests.kit.fake_catalog import FakeCatalog
from tests.kit.faulty_stores import CountingStore, FailingStore
from tests.table.snapshot_cases import (
    add,
    appended,
    by_path,
    counted,
    f,
    metadata,
    paths,
    plain_appended,
)

OTHER = Protocol(min_reader_version=1, min_writer_version=7, writer_features=["rowTracking"])
SPOILED = {
    "files": ({"num_files": 7}, "5 files, not 7"),
    "bytes": ({"table_size_bytes": 1}, "15 bytes, not 1"),
    "metadata": ({"metadata": metadata(team="another")}, "another metaData"),
    "protocol": ({"protocol": OTHER}, "another protocol"),
}


def summed(store: ObjectStore, snapshot: Snapshot, **spoiled: object) -> None:
    """Put the checksum of a version, or one that is off."""
    checksum = replaced(checksum_of(snapshot), **spoiled)  # type: ignore[arg-type]
    store.put(Checksum(snapshot.version).path, to_json(checksum))


def sums_read(store: CountingStore) -> list[str]:
    read = (path for call in store.calls if call.method == "get" for path in call.paths)
    return [path.rpartition("/")[2] for path in read if path.endswith(".crc")]


# Plain tables


def test_a_version_is_held_against_its_own_checksum(caplog: pytest.LogCaptureFixture) -> None:
    store = CountingStore(plain_appended(5))
    for version in range(6):
        summed(store, by_path(store, version=Version(version)))
    for version in range(6):
        store.calls.clear()
        assert paths(by_path(store, version=Version(version))) == f(*range(1, version + 1))
        assert sums_read(store) == [f"{version:020d}.crc"]
    assert caplog.messages == []


@pytest.mark.parametrize(("spoiled", "message"), SPOILED.values(), ids=SPOILED)
def test_a_sum_that_is_off_is_told_and_stops_no_reader(
    spoiled: dict[str, object], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = plain_appended(5)
    whole = by_path(store)
    summed(store, whole, **spoiled)
    read = by_path(store)
    assert caplog.messages == [f"{read.label} version 5 does not agree with its .crc: {message}"]
    assert paths(read) == f(*range(1, 6))
    assert (read.protocol, read.metadata) == (whole.protocol, whole.metadata)
    caplog.clear()
    by_path(store, version=Version(4))  # of which there is none
    assert caplog.messages == []


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff", b"null"])
def test_a_checksum_that_cannot_be_read_is_as_none(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = plain_appended(5)
    store.put(Checksum(Version(5)).path, content)
    assert paths(by_path(store)) == f(*range(1, 6))
    assert caplog.messages == []


def test_a_checksum_that_cannot_be_had_is_as_none(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore(plain_appended(5))
    summed(store, by_path(store), num_files=7)
    store.fail(lambda call: call.method == "get" and call.paths[0].endswith(".crc"), times=1)
    assert paths(by_path(store)) == f(*range(1, 6))
    assert caplog.messages == []


def test_other_storage_that_fails_still_stops_the_reader() -> None:
    store = FailingStore(plain_appended(5))
    store.fail(lambda call: call.method == "get" and call.paths[0].endswith("5.json"), times=1)
    with pytest.raises(UnavailableError):
        by_path(store)


def test_each_version_is_compared_with_its_own_checksum(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = plain_appended(5)
    ahead = plain_appended(6)
    summed(store, by_path(ahead), num_files=7)
    by_path(store)
    assert caplog.messages == []
    path = PublishedCommit(Version(6)).path
    store.put(path, ahead.get(path))
    assert paths(by_path(store)) == f(*range(1, 7))
    assert ["6 files, not 7" in message for message in caplog.messages] == [True]


# Tables of a catalog


def listed(catalog: FakeCatalog) -> CountingStore:
    """Have so much in the log, and so little in the catalog, that a reader must list."""
    catalog.publish()
    return counted(catalog)


@req("CM-16")
def test_where_the_log_was_listed_the_checksum_that_was_seen_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = appended(80)
    store = listed(catalog)
    summed(store, catalog.load())
    store.calls.clear()
    assert paths(catalog.load()) == f(*range(1, 81))
    assert (store.count("list"), sums_read(store)) == (1, [f"{80:020d}.crc"])
    assert caplog.messages == []
    summed(store, catalog.load(), num_files=81)
    assert paths(catalog.load()) == f(*range(1, 81))
    assert ["80 files, not 81" in message for message in caplog.messages] == [True]


@req("RD-03")
def test_where_the_catalog_has_counted_no_checksum_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = appended(80)
    store = listed(catalog)
    summed(store, catalog.load(), num_files=81)
    catalog.describes = True
    store.calls.clear()
    assert paths(catalog.load()) == f(*range(1, 81))
    assert (store.count("list"), sums_read(store)) == (1, [])
    assert caplog.messages == []


@req("RD-03")
@pytest.mark.parametrize("checkpoint", [None, 3, 5])
def test_what_is_read_is_compared_with_the_counts_of_the_catalog(
    checkpoint: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = appended(5)
    catalog.publish()
    if checkpoint is not None:
        catalog.checkpoint = catalog.checkpoint_at(checkpoint)
    catalog.describes = True
    whole = catalog.load()
    assert paths(whole) == f(*range(1, 6))
    assert caplog.messages == []
    catalog.checksum = replaced(checksum_of(whole), num_files=7)
    assert paths(catalog.load()) == f(*range(1, 6))
    assert ["5 files" in m and "declares 7" in m for m in caplog.messages] == [True]


@req("RD-04")
def test_where_nothing_was_listed_no_checksum_is_looked_for() -> None:
    catalog = appended(20)
    store = listed(catalog)
    summed(store, catalog.load(), num_files=21)
    store.calls.clear()
    assert paths(catalog.load()) == f(*range(1, 21))
    assert (store.count("list"), sums_read(store)) == (0, [])


@req("CM-29", "RD-04")
def test_a_checksum_the_catalog_was_told_of_is_read_without_a_listing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = appended(20)  # none of it published
    store = counted(catalog)
    summed(store, catalog.load(), num_files=21)
    path = Checksum(Version(20)).path
    catalog.checksum_file = KnownFile(
        kind=FileKind.CHECKSUM, first=Version(20), last=Version(20), paths=(path,)
    )
    store.calls.clear()
    assert paths(catalog.load()) == f(*range(1, 21))
    assert (store.count("list"), sums_read(store)) == (0, [f"{20:020d}.crc"])
    assert ["20 files, not 21" in message for message in caplog.messages] == [True]
    store.delete(path)  # a missing registered checksum does no harm
    assert paths(catalog.load()) == f(*range(1, 21))


@req("CM-18")
def test_the_checksum_of_a_version_that_was_not_ratified_is_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = appended(80)
    ahead = appended(80)
    ahead.ratify(add("beyond"))
    store = listed(catalog)
    summed(store, ahead.load(), num_files=3)
    assert paths(catalog.load()) == f(*range(1, 81))
    assert sums_read(store) == []
    assert caplog.messages == []


def test_what_we_write_is_what_we_read(caplog: pytest.LogCaptureFixture) -> None:
    catalog = appended(80)
    store = listed(catalog)
    checksum = checksum_of(catalog.load())
    assert isinstance(checksum, VersionChecksum)
    assert write_checksum(store, Version(80), checksum)
    store.calls.clear()
    catalog.load()
    assert sums_read(store) == [f"{80:020d}.crc"]
    assert caplog.messages == []
