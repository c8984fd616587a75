"""The disk that forgets is honest, and `LocalStore` survives it: at every step, full, failing."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import UnavailableError
from headgate.storage.disk import Disk
from headgate.storage.local import LocalStore
from headgate.storage.object_store import PutUnknownError
from tests.kit import shows
from tests.kit.faulty_stores import SECTOR, ForgetfulDisk, PowerLossError
from tests.storage.object_store_contract import ObjectStoreContract, put_all

ROOT = "/lake/t7"
SEEDS = range(9)  # three of each: nothing unsynced survives, everything, any part


class TestLocalStoreOnAForgetfulDisk(ObjectStoreContract):
    @pytest.fixture
    def disk(self) -> ForgetfulDisk:
        return ForgetfulDisk()

    @pytest.fixture
    def store(self, disk: ForgetfulDisk) -> Iterator[LocalStore]:
        self._disk = disk
        return LocalStore(ROOT, disk)

    def read_local(self, local: str) -> bytes:
        fd = self._disk.open(local)
        return self._disk.read(fd, 0, 10**6)


# The disk itself


def write(disk: ForgetfulDisk, path: str, content: bytes, *, sync: bool) -> None:
    fd = disk.create(path)
    disk.write(fd, memoryview(content))
    if sync:
        disk.sync([fd])
    disk.close(fd)


def sync_folder(disk: ForgetfulDisk, path: str = "/") -> None:
    fd = disk.open(path)
    disk.sync([fd])
    disk.close(fd)


def names(disk: ForgetfulDisk, folder: str = "/") -> list[str]:
    return [entry.name for entry in disk.entries(folder)]


def content_of(disk: ForgetfulDisk, path: str) -> bytes:
    return disk.read(disk.open(path), 0, 10**6)


def after_crashes(
    do: Callable[[ForgetfulDisk], None], seen: Callable[[ForgetfulDisk], object]
) -> set[object]:
    """Everything that can be seen after a crash, over many of them."""
    found = set()
    for seed in range(200):
        disk = ForgetfulDisk()
        do(disk)
        disk.crash(random.Random(seed))
        found.add(seen(disk))
    return found


def test_the_disk_may_lose_what_was_not_synced() -> None:
    def unsynced(disk: ForgetfulDisk) -> None:
        write(disk, "/a", b"x" * 3 * SECTOR, sync=False)
        sync_folder(disk)

    left = after_crashes(unsynced, lambda disk: content_of(disk, "/a"))
    assert {b"", b"x" * SECTOR, b"x" * 3 * SECTOR} <= left
    assert bytes(SECTOR) + b"x" * SECTOR in left  # a sector missing in the middle
    assert any(isinstance(c, bytes) and set(c) - {0, ord("x")} for c in left)  # and garbage


def test_the_disk_may_lose_the_name_of_a_synced_file() -> None:
    left = after_crashes(
        lambda disk: write(disk, "/a", b"1", sync=True), lambda disk: tuple(names(disk))
    )
    assert left == {(), ("a",)}


def test_the_disk_keeps_what_was_synced() -> None:
    def synced(disk: ForgetfulDisk) -> None:
        write(disk, "/a", b"1", sync=True)
        sync_folder(disk)

    assert after_crashes(synced, lambda disk: content_of(disk, "/a")) == {b"1"}


def test_the_disk_loses_names_of_one_folder_from_the_last_backwards() -> None:
    def moved(disk: ForgetfulDisk) -> None:
        for name in "123":
            write(disk, f"/{name}", b"", sync=True)
        sync_folder(disk)
        for old, new in zip("123", "abc", strict=True):
            disk.move(f"/{old}", f"/{new}")
        disk.unlink("/a")

    left = after_crashes(moved, lambda disk: "".join(names(disk)))
    assert left == {"123", "23a", "3ab", "abc", "bc"}


def test_the_disk_replaces_a_name_at_once_or_not_at_all() -> None:
    def replaced(disk: ForgetfulDisk) -> None:
        write(disk, "/a", b"old", sync=True)
        write(disk, "/t", b"new", sync=True)
        sync_folder(disk)
        disk.replace("/t", "/a")

    left = after_crashes(replaced, lambda disk: (tuple(names(disk)), content_of(disk, "/a")))
    assert left == {(("a", "t"), b"old"), (("a",), b"new")}


def test_the_disk_may_lose_a_folder_with_all_that_is_in_it() -> None:
    def nested(disk: ForgetfulDisk) -> None:
        disk.make_folder("/f")
        write(disk, "/f/a", b"1", sync=True)
        sync_folder(disk, "/f")

    assert after_crashes(nested, lambda disk: tuple(names(disk))) == {(), ("f",)}


@shows("FC12")
def test_a_second_sync_that_succeeds_proves_nothing() -> None:
    disk = ForgetfulDisk()
    disk.fail_sync_at = 1
    fd = disk.create("/a")
    disk.write(fd, memoryview(b"1"))
    with pytest.raises(OSError, match="Input/output"):
        disk.sync([fd])
    disk.sync([fd])
    sync_folder(disk)
    disk.crash(random.Random(0))
    assert content_of(disk, "/a") == b""


# LocalStore on it

CONTENTS = {f"log/{number:020}.json": bytes([65 + number]) * (SECTOR + 9) for number in range(4)}
FIRST, SECOND = list(CONTENTS)[:2]


def put_one(store: LocalStore) -> list[str]:
    store.put_if_absent(FIRST, CONTENTS[FIRST])
    return [FIRST]


def put_where_one_is(store: LocalStore) -> list[str]:
    put_one(store)
    store.put_if_absent(FIRST, b"another's")
    return [FIRST]


def put_over(store: LocalStore) -> list[str]:
    store.put(FIRST, CONTENTS[FIRST])
    return [FIRST]


def put_over_twice(store: LocalStore) -> list[str]:
    put_over(store)
    return put_over(store)


def put_many(store: LocalStore) -> list[str]:
    put_all(store, list(CONTENTS.items()))
    return list(CONTENTS)


def put_many_after_one(store: LocalStore) -> list[str]:
    store.put_if_absent(SECOND, CONTENTS[SECOND])
    put_all(store, list(CONTENTS.items()))
    return list(CONTENTS)


Operation = Callable[[LocalStore], list[str]]
OPERATIONS = [put_one, put_where_one_is, put_over_twice, put_many, put_many_after_one]


def length(operation: Operation) -> int:
    disk = ForgetfulDisk()
    operation(LocalStore(ROOT, disk))
    return disk.calls


def left_after_crash(disk: ForgetfulDisk, operation: Operation, crash_at: int, seed: int) -> None:
    """Run until the power goes before a call, then look at what is there."""
    disk.crash_at = crash_at
    acknowledged: list[str] = []
    with suppress(PowerLossError):
        acknowledged = operation(LocalStore(ROOT, disk))
    disk.crash(random.Random(seed))
    store = LocalStore(ROOT, disk)
    there = {meta.path: store.get(meta.path) for meta in store.list("", recursive=True)}
    assert there.items() <= CONTENTS.items(), "whole or not at all"
    assert set(acknowledged) <= there.keys(), "what was acknowledged stays"
    if operation is put_many:
        assert sorted(there) == list(CONTENTS)[: len(there)], "none without the earlier"
    again = operation(store)  # finds or does what is missing
    disk.crash(random.Random(seed + 1))
    store = LocalStore(ROOT, disk)
    kept = {path: store.get(path) for path in {*acknowledged, *again} if store.head(path)}
    assert kept == {path: CONTENTS[path] for path in {*acknowledged, *again}}, "and stays"


@shows("FC2", "FC10", "FP2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_before_any_system_call_leaves_whole_objects(operation: Operation) -> None:
    for crash_at in range(length(operation) + 1):
        for seed in SEEDS:
            left_after_crash(ForgetfulDisk(), operation, crash_at, seed)


class DiskThatSkips(ForgetfulDisk):
    """Stands for a store that leaves a system call out."""

    def __init__(self, skips: str) -> None:
        super().__init__()
        self._skips = skips

    def sync_one(self, fd: int) -> None:
        is_file = self.stat_open(fd).is_file
        if self._skips != ("file" if is_file else "folder"):
            super().sync_one(fd)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("skips", ["file", "folder"])
def test_a_store_that_leaves_out_a_sync_is_found_out(skips: str, operation: Operation) -> None:
    with pytest.raises(AssertionError):  # noqa: PT012
        for crash_at in range(length(operation) + 1):
            for seed in SEEDS:
                left_after_crash(DiskThatSkips(skips), operation, crash_at, seed)


@shows("FC10")
@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_told_that_it_is_there_may_rely_on_it(seed: int) -> None:
    """Another writer has given the file its name and not yet synced it when we find it taken."""
    disk = ForgetfulDisk()
    LocalStore(ROOT, disk).put("log/before", b"")
    answers: list[bool] = []

    def meddle(call: str, path: str) -> None:
        if call == "open":  # the other's file has its name, and the folder is not synced
            disk.before = None
            answers.append(LocalStore(ROOT, disk).put_if_absent(FIRST, b"ours"))
            disk.crash_at = disk.calls

    disk.before = meddle
    with pytest.raises(PowerLossError):
        put_one(LocalStore(ROOT, disk))
    disk.crash(random.Random(seed))
    assert answers == [False]
    assert LocalStore(ROOT, disk).get(FIRST) == CONTENTS[FIRST]


@shows("FC10")
def test_a_foreign_file_is_synced_before_we_say_that_it_is_there() -> None:
    for seed in SEEDS:
        disk = ForgetfulDisk()
        store = LocalStore(ROOT, disk)
        store.put("log/before", b"")
        write(disk, f"{ROOT}/{FIRST}", b"foreign" * 100, sync=False)
        assert store.put_if_absent(FIRST, b"ours") is False
        disk.crash(random.Random(seed))
        assert LocalStore(ROOT, disk).get(FIRST) == b"foreign" * 100


@shows("FC10")
def test_data_files_of_others_are_durable_once_synced_by_path() -> None:
    for seed in SEEDS:
        disk = ForgetfulDisk()
        for folder in ("/lake", ROOT, f"{ROOT}/p=1", f"{ROOT}/p=2"):
            disk.make_folder(folder)
        files = [f"p={part}/{number}" for part in (1, 2) for number in (1, 2)]
        for file in files:
            write(disk, f"{ROOT}/{file}", b"x" * 2000, sync=False)
        disk.counts.clear()
        LocalStore(ROOT, disk).sync(files)
        assert disk.counts["sync"] == len(files) + len(["/", "/lake", ROOT, "p=1", "p=2"]) + 1
        disk.crash(random.Random(seed))
        assert {LocalStore(ROOT, disk).get(file) for file in files} == {b"x" * 2000}


def test_syncing_a_folder_that_is_not_there_does_not_make_it_pass_for_durable() -> None:
    for seed in SEEDS:
        disk = ForgetfulDisk()
        store = LocalStore(ROOT, disk)
        store.put("before", b"")
        store.sync(["log/0"])
        disk.make_folder(f"{ROOT}/log")
        put_one(store)
        disk.crash(random.Random(seed))
        assert LocalStore(ROOT, disk).get(FIRST) == CONTENTS[FIRST]


def test_a_deletion_is_durable_once_synced() -> None:
    for seed in SEEDS:
        disk = ForgetfulDisk()
        store = LocalStore(ROOT, disk)
        put_many(store)
        store.delete(FIRST)
        store.sync([FIRST])
        disk.crash(random.Random(seed))
        assert LocalStore(ROOT, disk).head(FIRST) is None


def test_what_a_put_costs() -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    store.put("log/before", b"")

    disk.counts.clear()
    put_one(store)
    assert (disk.counts["sync"], disk.counts["create"], disk.counts["entries"]) == (2, 1, 0)

    disk.counts.clear()
    store.put_many_if_absent(list(CONTENTS.items())[1:])
    assert (disk.counts["sync"], disk.counts["create"], disk.counts["entries"]) == (3 + 1, 3, 0)

    disk.counts.clear()
    store.get(FIRST)
    assert (disk.counts["open"], disk.counts["entries"], disk.counts["sync"]) == (1, 0, 0)


# Disk full


@shows("FC11", "FP2")
@pytest.mark.parametrize("operation", [put_one, put_over, put_many])
def test_a_full_disk_refuses_and_shows_nothing(operation: Operation) -> None:
    size = sum(len(content) for content in CONTENTS.values())
    for room in range(0, size, 37):
        disk = ForgetfulDisk()
        store = LocalStore(ROOT, disk)
        store.put("log/before", b"")
        disk.room = room
        with suppress(UnavailableError):
            for path in operation(store):
                assert store.get(path) == CONTENTS[path]
            continue
        assert disk.room == room, "what was begun is gone"
        assert names(disk, f"{ROOT}/log") == ["before"]
        disk.room = size
        assert operation(store)


@shows("FC11")
def test_a_full_folder_leaves_a_beginning_of_the_batch() -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    moves = 0

    def no_room_for_names(call: str, path: str) -> None:
        nonlocal moves
        moves += call == "move"
        if call == "move" and moves == 3:
            raise OSError(28, "No space left on device")

    disk.before = no_room_for_names
    with pytest.raises(UnavailableError):
        put_many(store)
    disk.before = None
    assert names(disk, f"{ROOT}/log") == [path.removeprefix("log/") for path in list(CONTENTS)[:2]]
    assert put_all(store, list(CONTENTS.items())) == [False, False, True, True]


# A sync that fails


@shows("FC12")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_failed_sync_nothing_is_acknowledged_any_more(operation: Operation) -> None:
    benign = ForgetfulDisk()
    operation(LocalStore(ROOT, benign))
    for nth in range(1, benign.counts["sync"] + 1):
        disk = ForgetfulDisk()
        disk.fail_sync_at = nth
        store = LocalStore(ROOT, disk)
        with pytest.raises((UnavailableError, PutUnknownError)) as caught:
            operation(store)
        visible = {meta.path: store.get(meta.path) for meta in store.list("", recursive=True)}
        if caught.type is UnavailableError and operation in (put_one, put_many):
            assert not visible
        assert visible.items() <= CONTENTS.items()
        synced = disk.counts["sync"]
        for other in (store, LocalStore("/lake/t8", disk)):
            for again in OPERATIONS:
                with pytest.raises(UnavailableError):
                    again(other)
            with pytest.raises(UnavailableError):
                other.sync([FIRST])
        assert disk.counts["sync"] == synced, "it is not synced again and believed"
        disk.crash(random.Random(nth))
        reopened = LocalStore(ROOT, disk)
        found = {meta.path: reopened.get(meta.path) for meta in reopened.list("", recursive=True)}
        assert found.items() <= CONTENTS.items()
        operation(reopened)


@shows("FC12")
def test_a_thread_whose_sync_succeeds_beside_a_failed_one_does_not_believe_it() -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    store.put("log/before", b"")
    syncs = 0

    def the_other_fails(call: str, path: str) -> None:
        nonlocal syncs
        syncs += call == "sync"
        if syncs == 2:
            disk.failed = "another file could not be synced"

    disk.before = the_other_fails
    with pytest.raises(PutUnknownError):
        put_one(store)


@shows("FC12")
def test_a_folder_that_cannot_be_opened_after_the_link_leaves_the_outcome_unknown() -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    store.put("log/before", b"")

    def too_many_open_files(call: str, path: str) -> None:
        if call == "open":
            raise OSError(24, "Too many open files")

    disk.before = too_many_open_files
    with pytest.raises(PutUnknownError):
        put_one(store)
    disk.before = None
    assert store.put_if_absent(FIRST, CONTENTS[FIRST]) is False


# Anything, in any order


PATHS = st.sampled_from(["log/0", "log/1", "log/staged/2", "p=1/x"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "absent", "many", "delete", "crash"]), PATHS),
    min_size=1,
    max_size=12,
)


@shows("FC10")
@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 60), st.randoms(use_true_random=False))
def test_acknowledged_puts_outlive_any_crash(
    steps: list[tuple[str, str]], until_crash: int, chance: random.Random
) -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    may_be: dict[str, set[bytes | None]] = {}  # what each name may hold after a crash
    disk.crash_at = until_crash
    for number, (step, path) in enumerate(steps):
        content = bytes([number]) * (SECTOR + 1)
        before = may_be.get(path, {None})
        try:
            match step:
                case "put":
                    may_be[path] = before | {content}
                    store.put(path, content)
                    may_be[path] = {content}
                case "absent":
                    may_be[path] = before | {content}
                    won = store.put_if_absent(path, content)
                    may_be[path] = {content} if won else {store.get(path)}
                case "many":
                    may_be[path] = before | {content}
                    won, again = put_all(store, [(path, content), (path, b"never")])
                    assert not again
                    may_be[path] = {content} if won else {store.get(path)}
                case "delete":
                    may_be[path] = before | {None}
                    store.delete(path)
                case _:
                    disk.crash_at = disk.calls
                    store.head(path)
        except PowerLossError:
            disk.crash(chance)
            store = LocalStore(ROOT, disk)
            disk.crash_at = disk.calls + until_crash + 1000
            for name, contents in may_be.items():
                found = store.get(name) if store.head(name) else None
                assert found in contents
                may_be[name] = {found}


def test_a_disk_is_what_a_local_store_asks_for() -> None:
    disk: Disk = ForgetfulDisk()
    assert disk.failed is None


def test_times_shuffled_by_a_restore_change_no_content() -> None:
    disk = ForgetfulDisk(now_ms=lambda: 7)
    store = LocalStore(ROOT, disk)
    put_many(store)
    assert {meta.modified_ms for meta in store.list("log")} == {7}
    disk.shuffle_times(random.Random(0))
    assert len({meta.modified_ms for meta in store.list("log")}) == len(CONTENTS)
    assert {meta.path: store.get(meta.path) for meta in store.list("log")} == CONTENTS


@shows("FP17")
def test_no_put_depends_on_a_listing_and_none_on_its_order() -> None:
    disk = ForgetfulDisk()
    store = LocalStore(ROOT, disk)
    put_many(store)
    listings = set()
    for seed in range(20):
        disk.shuffle = random.Random(seed)
        listed = [meta.path for meta in store.list("log", start_after=FIRST)]
        assert sorted(listed) == list(CONTENTS)[1:]
        listings.add(tuple(listed))
    assert len(listings) > 1
    disk.counts.clear()
    for operation in OPERATIONS:
        operation(store)
    assert disk.counts["entries"] == 0


@shows("FC12")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stores_own_folder_is_there_after_a_power_loss(seed: int) -> None:
    disk = ForgetfulDisk()
    LocalStore("/deep/er/lake", disk).make_root()
    disk.crash(random.Random(seed))
    assert (names(disk), names(disk, "/deep"), names(disk, "/deep/er")) == (
        ["deep"],
        ["er"],
        ["lake"],
    )
    LocalStore("/deep/er/lake", disk).make_root()  # again is fine
