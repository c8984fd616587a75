"""A round publishes the commits of many tables: each in order, byte for byte, whatever happens."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from headgate import failpoints
from headgate.errors import InvariantError, LogDivergedError, UnavailableError
from headgate.failpoints import FailPointError
from headgate.protocol.actions import TableId, Version
from headgate.protocol.paths import LOG, STAGED, PublishedCommit, StagedCommit
from headgate.storage import disk as disk_module
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore, PutUnknownError
from headgate.table.log_files import UnfinishedError
from headgate.table.publish_round import TailPart, UnpublishedCommit, publish_round
from tests.kit import req, shows
from tests.kit.faulty_stores import ForgetfulDisk, PowerLossError

TABLES = [TableId(f"t{number}") for number in range(3)]
VERSIONS = range(4)
POINTS = [
    "publisher.before_put",
    "storage.before_sync",
    "storage.after_sync",
    "storage.after_name",
    "storage.before_sync_folders",
    "publisher.after_put",
]


def content_of(table_id: str, version: int) -> bytes:
    return f'{{"commitInfo":{{"table":"{table_id}","version":{version}}}}}\n'.encode() * 20


def commit(table_id: str, version: int, *, staged: bool = False, kept: bool = True):  # type: ignore[no-untyped-def]
    content = content_of(table_id, version)
    name = StagedCommit(Version(version), UUID(int=version)).path.rpartition("/")[2]
    return UnpublishedCommit(
        Version(version),
        hashlib.sha256(content).digest(),
        name if staged else None,
        content if kept else None,
    )


def part(table_id: str, *commits: UnpublishedCommit) -> TailPart:
    chosen = commits or tuple(commit(table_id, version) for version in VERSIONS)
    return TailPart(TableId(table_id), f"file:///lake/{table_id}", chosen)


class Lake:
    """Three tables on one disk or in memory."""

    def __init__(self, store_for: Callable[[str], ObjectStore]) -> None:
        self.stores = {table_id: store_for(table_id) for table_id in TABLES}

    def publish(self, *parts: TailPart) -> dict[str, Exception | None]:
        chosen = parts or tuple(part(table_id) for table_id in TABLES)
        results = publish_round(chosen, lambda url: self.stores[TableId(url.rpartition("/")[2])])
        return {one.table_id: result.error for one, result in zip(chosen, results, strict=True)}

    def log(self, table_id: str) -> dict[int, bytes]:
        """What the log of a table holds, by version."""
        store = self.stores[TableId(table_id)]
        names = [meta.path for meta in store.list(LOG)]
        found = {int(Path(name).stem): store.get(name) for name in names if name.endswith(".json")}
        return dict(sorted(found.items()))

    def put(self, table_id: str, version: int, content: bytes) -> None:
        self.stores[TableId(table_id)].put(PublishedCommit(Version(version)).path, content)


def ratified(table_id: str, versions: range = VERSIONS) -> dict[int, bytes]:
    return {version: content_of(table_id, version) for version in versions}


def on(disk: ForgetfulDisk) -> Lake:
    return Lake(lambda table_id: LocalStore(f"/lake/{table_id}", disk))


def new_disk(*, has_syncfs: bool = True) -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.has_syncfs = has_syncfs
    return disk


@pytest.fixture(params=["memory", "disk", "one by one", "real"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    match request.param:
        case "memory":
            return Lake(lambda table_id: MemoryStore())
        case "real":
            return Lake(lambda table_id: LocalStore(tmp_path / table_id))
        case kind:
            return on(new_disk(has_syncfs=kind == "disk"))


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@req("CM-23", "CM-24")
@shows("S10", "S11")
def test_a_round_publishes_all_commits_of_all_tables_byte_for_byte(lake: Lake) -> None:
    for _ in range(2):  # again is nothing
        assert lake.publish() == dict.fromkeys(TABLES)
        for table_id in TABLES:
            assert lake.log(table_id) == ratified(table_id)


@req("CM-24", "MT-07")
@pytest.mark.parametrize("has_syncfs", [True, False])
def test_no_file_is_named_before_all_are_synced_and_no_version_before_the_one_below(
    has_syncfs: bool,
) -> None:
    disk = new_disk(has_syncfs=has_syncfs)
    calls: list[tuple[str, str]] = []
    disk.before = lambda call, path: calls.append((call, path))
    on(disk).publish()
    kinds = [call for call, _ in calls]
    last_written = max(place for place, kind in enumerate(kinds) if kind == "write")
    first_named = kinds.index("move")
    assert {"sync", "sync_whole"} & set(kinds[last_written:first_named])
    assert {"sync", "sync_whole"} & set(kinds[len(kinds) - kinds[::-1].index("move") :])
    for table_id in TABLES:
        named = [path for call, path in calls if call == "move" and f"/{table_id}/" in path]
        assert named == sorted(named)
        assert len(named) == len(VERSIONS)


def test_the_files_of_a_round_are_synced_by_one_call_and_each_folder_once() -> None:
    counts = {}
    for has_syncfs in (True, False):
        disk = new_disk(has_syncfs=has_syncfs)
        lake = on(disk)
        lake.publish(*(part(table_id, commit(table_id, 0)) for table_id in TABLES))
        disk.counts.clear()
        lake.publish()
        counts[has_syncfs] = disk.counts["sync"], disk.counts["sync_whole"]
    files, folders = len(TABLES) * (len(VERSIONS) - 1), len(TABLES)
    existing = len(TABLES)  # and their folders: others may have put them
    assert counts == {True: (folders + 2 * existing, 1), False: (files + folders + 2 * existing, 0)}


def test_a_slow_sync_of_all_is_avoided_for_a_while() -> None:
    disk = new_disk()
    now, took = 0.0, disk_module._SLOW_S * 2
    sync_whole = disk.sync_whole

    def slow(fd: int) -> None:
        nonlocal now
        now += took
        sync_whole(fd)

    disk.monotonic = lambda: now
    disk.sync_whole = slow  # type: ignore[method-assign]
    lake = on(disk)

    def whole_syncs(first: int) -> int:
        before = disk.counts["sync_whole"]
        versions = range(first, first + 4)
        for table_id in TABLES:
            few = part(table_id, *(commit(table_id, version) for version in versions))
            assert lake.publish(few) == {table_id: None}  # by itself: too few files
        parts = [part(t, *(commit(t, v + 4) for v in versions)) for t in TABLES]
        assert lake.publish(*parts) == dict.fromkeys(TABLES)
        return disk.counts["sync_whole"] - before

    assert whole_syncs(0) == 1
    assert whole_syncs(8) == 0
    now += took * disk_module._AVOIDED
    assert whole_syncs(16) == 1
    now, took = now + took * disk_module._AVOIDED, disk_module._SLOW_S / 2
    assert [whole_syncs(24), whole_syncs(32)] == [1, 1]
    for table_id in TABLES:
        assert lake.log(table_id) == ratified(table_id, range(40))


@pytest.mark.parametrize("count", [1, disk_module._MANY])
def test_one_file_that_cannot_be_synced_fails_the_call_also_in_threads(count: int) -> None:
    closed = os.open(os.devnull, os.O_RDONLY)
    os.close(closed)
    with pytest.raises(OSError, match="descriptor"):
        disk_module.Disk().sync([closed] * count)


def test_a_real_file_system_is_synced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    disk = disk_module.Disk()
    fd = disk.create(str(tmp_path / "file"))
    try:
        if disk.device_synced_whole(fd) is None:
            pytest.skip("not ext4 or XFS")
        assert disk.device_synced_whole(fd) == disk.device(str(tmp_path))
        disk.sync_whole(fd)
        with pytest.raises(OSError, match="descriptor"):
            disk.sync_whole(10**6)
    finally:
        disk.close(fd)
    if Path("/proc/self/stat").exists():
        fd = disk.open("/proc/self/stat")
        assert disk.device_synced_whole(fd) is None
        disk.close(fd)


# What is in the way


@req("CM-24", "PB-02", "MT-07")
@shows("FP4", "S16")
@pytest.mark.parametrize(
    ("existing", "error"),
    [
        (b"{}\n", LogDivergedError),
        (content_of("t1", 2) + b"\n", LogDivergedError),
        (content_of("t1", 2)[:30], UnfinishedError),
        (b"", UnfinishedError),
    ],
)
def test_a_file_with_other_bytes_stops_its_table_and_no_other(
    lake: Lake, existing: bytes, error: type[Exception]
) -> None:
    lake.put("t1", 2, existing)
    failed = lake.publish()
    assert type(failed.pop("t1")) is error
    assert set(failed.values()) == {None}
    assert lake.log("t1") == ratified("t1", range(2)) | {2: existing}
    for table_id in failed:
        assert lake.log(table_id) == ratified(table_id)


@req("CM-24")
@shows("FP1", "FP3")
@pytest.mark.parametrize("existing", [range(1), range(3), range(1, 2), range(1, 4), VERSIONS])
def test_files_that_others_published_are_kept(lake: Lake, existing: range) -> None:
    for version in existing:
        lake.put("t1", version, content_of("t1", version))
    assert lake.publish() == dict.fromkeys(TABLES)
    for table_id in TABLES:
        assert lake.log(table_id) == ratified(table_id)


@req("CM-46")
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("harm", ["gone", "altered"])
def test_a_staged_file_that_was_lost_is_restored_or_stops_its_table_alone(
    lake: Lake, harm: str, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = lake.stores[TABLES[1]]
    staged = [commit("t1", version, staged=True, kept=is_kept) for version in VERSIONS]
    for one in staged:
        store.put(f"{STAGED}/{one.file_name}", content_of("t1", one.version))
    path = f"{STAGED}/{staged[2].file_name}"
    store.delete(path) if harm == "gone" else store.put(path, b"{}\n")
    failed = lake.publish(part("t0"), part("t1", *staged), part("t2"))
    error = failed.pop("t1")
    assert set(failed.values()) == {None}
    if is_kept:
        assert error is None
        assert lake.log("t1") == ratified("t1")
        assert store.get(path) == content_of("t1", 2)
        assert "was lost or altered" in caplog.text
    else:
        assert type(error) is (InvariantError if harm == "gone" else LogDivergedError)
        assert lake.log("t1") == {}
    assert lake.log("t0") == ratified("t0")


@req("CM-24")
@pytest.mark.parametrize("obstacle", ["link out", "dead link", "folder", "pipe"])
def test_what_is_no_file_is_set_aside(tmp_path: Path, obstacle: str) -> None:
    lake = Lake(lambda table_id: LocalStore(tmp_path / table_id))
    (tmp_path / "outside").write_bytes(b"theirs")
    path = tmp_path / "t1" / PublishedCommit(Version(2)).path
    path.parent.mkdir(parents=True)
    match obstacle:
        case "link out":
            path.symlink_to(tmp_path / "outside")
        case "dead link":
            path.symlink_to(path.with_name("nothing"))
        case "folder":
            path.mkdir()
        case _:
            os.mkfifo(path)
    assert lake.publish() == dict.fromkeys(TABLES)
    for table_id in TABLES:
        assert lake.log(table_id) == ratified(table_id)
    assert len([*path.parent.glob("_set_aside-*")]) == 1
    assert (tmp_path / "outside").read_bytes() == b"theirs"


@shows("FC11", "FP2")
@pytest.mark.parametrize("call", ["create", "make_folder", "move"])
def test_a_table_whose_files_the_system_refuses_stops_no_other(call: str) -> None:
    disk = new_disk()
    lake = on(disk)

    def refuse(name: str, path: str) -> None:
        if name == call and "/t1/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.before = refuse
    failed = lake.publish()
    disk.before = None
    assert isinstance(failed.pop("t1"), UnavailableError)
    assert set(failed.values()) == {None}
    assert lake.log("t1") == {}
    assert lake.publish() == dict.fromkeys(TABLES)
    for table_id in TABLES:
        assert lake.log(table_id) == ratified(table_id)
        left = [entry.name for entry in disk.entries(f"/lake/{table_id}/_delta_log")]
        assert not [name for name in left if name.startswith(".hg-")]


# Crashes


def check_right(lake: Lake) -> None:
    """Each log is a beginning of what was ratified, byte for byte."""
    for table_id in TABLES:
        found = lake.log(table_id)
        assert found == ratified(table_id, range(len(found)))


@req("CM-23")
@shows("FP1")
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_round_that_ends_at_any_step_leaves_every_log_right(
    tmp_path: Path, point: str, nth: int
) -> None:
    lake = Lake(lambda table_id: LocalStore(tmp_path / table_id))
    failpoints.arm(f"{point}:raise@{nth}")
    with suppress(FailPointError):
        for last in VERSIONS:
            lake.publish(*(part(t, *(commit(t, v) for v in range(last + 1))) for t in TABLES))
        pytest.fail("the point was never crossed")
    failpoints.arm("")
    check_right(lake)
    assert lake.publish() == dict.fromkeys(TABLES)
    assert all(lake.log(table_id) == ratified(table_id) for table_id in TABLES)


@shows("FP1", "FC10")
@pytest.mark.parametrize("has_syncfs", [True, False])
def test_a_power_failure_at_any_step_leaves_every_log_right(has_syncfs: bool) -> None:
    benign = new_disk(has_syncfs=has_syncfs)
    on(benign).publish()
    for crash_at in range(benign.calls + 1):
        for seed in range(3):
            disk = new_disk(has_syncfs=has_syncfs)
            disk.crash_at = crash_at
            published: dict[str, Exception | None] = {}
            with suppress(PowerLossError):
                published = on(disk).publish()
            disk.crash(random.Random(seed))
            lake = on(disk)
            check_right(lake)
            for table_id, error in published.items():
                assert error is None
                assert lake.log(table_id) == ratified(table_id)
            assert lake.publish() == dict.fromkeys(TABLES)


@shows("FC12")
@pytest.mark.parametrize("has_syncfs", [True, False])
def test_a_sync_that_fails_publishes_nothing_and_nothing_is_written_after_it(
    has_syncfs: bool,
) -> None:
    benign = new_disk(has_syncfs=has_syncfs)
    on(benign).publish()
    count = benign.counts["sync_whole" if has_syncfs else "sync"]
    assert count >= 1
    for nth in range(1, count + 1):
        disk = new_disk(has_syncfs=has_syncfs)
        if has_syncfs:
            disk.fail_whole_sync_at = nth
        else:
            disk.fail_sync_at = nth
        lake = on(disk)
        failed = lake.publish()
        assert all(isinstance(e, UnavailableError | PutUnknownError) for e in failed.values())
        check_right(lake)
        writes = disk.counts["write"]
        assert None not in lake.publish().values()
        assert disk.counts["write"] == writes
        disk.crash(random.Random(nth))
        check_right(on(disk))
        assert on(disk).publish() == dict.fromkeys(TABLES)
