"""Peeking at files of a real disk: only at what is in memory, and never through a link."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from headgate.storage import cached_files
from headgate.storage.cached_files import CachedFile, CachedFiles
from headgate.storage.disk import Disk
from headgate.storage.local import LocalStore
from headgate.storage.object_store import Folder

PEEKED = {"ef53", "58465342", "9123683e"}  # types of file systems, as `stat` prints them
MEMORY = Path("/dev/shm")


def type_of(folder: Path) -> str:
    found = subprocess.run(
        ["stat", "-f", "-c", "%t", str(folder)],
        capture_output=True,
        check=True,
        text=True,
    )
    return found.stdout.strip()


@pytest.fixture(autouse=True)
def _on_a_file_system_that_is_peeked_at(tmp_path: Path) -> None:
    if sys.platform != "linux" or type_of(tmp_path) not in PEEKED:
        pytest.skip("the folder for tests is not on ext4, XFS or Btrfs")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store that has read a file, so that it knows where it is."""
    store = LocalStore(tmp_path / "root", Disk())
    store.put("known", b"1")
    assert store.get("known") == b"1"
    return store


def place(store: LocalStore, path: str) -> Path:
    local = store.local_path(path)
    assert local is not None
    return Path(local)


def evict(file: Path) -> None:
    """Remove a file's content from memory, as if it was read long ago."""
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.mark.parametrize("path", ["a", "deep/er/b", "p=a%20b/x y", "é/e\u0301/\U0001f600", "%"])
@pytest.mark.parametrize("size", [1, 4_096, 65_536])
def test_a_file_in_memory_is_read_up_to_a_size(store: LocalStore, path: str, size: int) -> None:
    content = os.urandom(size)
    store.put(path, content)
    meta = store.head(path)
    assert meta is not None
    assert store.peek(path, size) == CachedFile(size, meta.modified_ms, content)
    assert store.peek(path, size - 1) == (None if size > 1 else CachedFile(1, meta.modified_ms))
    assert store.peek(path) == CachedFile(size, meta.modified_ms)


def test_an_empty_file_is_seen_with_and_without_content(store: LocalStore) -> None:
    store.put("a", b"")
    for most in (0, 10):
        seen = store.peek("a", most)
        assert seen is not None
        assert (seen.size, seen.content) == (0, b"")


def test_times_are_those_of_head(store: LocalStore) -> None:
    store.put("a", b"1")
    for nanoseconds in (1, 999_999, 1_700_000_000_123_999_999, -1_000_000):
        os.utime(place(store, "a"), ns=(nanoseconds, nanoseconds))
        meta, seen = store.head("a"), store.peek("a")
        assert meta is not None
        assert seen is not None
        assert seen.modified_ms == meta.modified_ms


def test_a_file_that_is_replaced_is_seen_as_it_is_now(store: LocalStore) -> None:
    for turn in range(5):
        store.put("a", b"%d" % turn * (turn + 1))
        seen = store.peek("a", 100)
        assert seen is not None
        assert seen.content == store.get("a") == b"%d" % turn * (turn + 1)
    store.delete("a")
    assert store.peek("a", 100) is None


def test_content_that_left_memory_is_not_read_but_by_get(store: LocalStore) -> None:
    content = os.urandom(20_000)
    store.put("a", content)
    evict(place(store, "a"))
    assert store.peek("a", 1 << 20) is None
    assert store.peek("a") is not None  # its size is still there
    assert store.get("a") == content
    seen = store.peek("a", 1 << 20)
    assert seen is not None
    assert seen.content == content


def test_content_of_which_only_a_part_is_in_memory_is_not_read(store: LocalStore) -> None:
    store.put("a", os.urandom(1 << 20))
    file = place(store, "a")
    evict(file)
    fd = os.open(file, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.pread(fd, 4_096, 0)
    os.close(fd)
    assert store.peek("a", 1 << 20) is None


def test_nothing_is_seen_before_the_store_has_read_a_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root", Disk())
    store.put("a", b"1")
    assert store.head("a") is not None
    assert store.peek("a", 10) is None
    store.get_range("a", 0, 1)
    assert store.peek("a", 10) is not None


def test_a_folder_of_a_store_is_peeked_at_below_itself(store: LocalStore) -> None:
    store.put("log/known", b"22")
    seen = Folder(store, "log", f"{store.url}/log").peek("known", 10)
    assert seen is not None
    assert seen.content == b"22"


# Links and other things under the name


def link_file(root: Path) -> None:
    (root / "log" / "a").rename(root / "log" / "b")
    (root / "log" / "a").symlink_to("b")


def link_folder(root: Path) -> None:
    (root / "log").rename(root / "real")
    (root / "log").symlink_to("real")


def link_root(root: Path) -> None:
    root.rename(root.parent / "moved")
    root.symlink_to("moved")


def link_above(root: Path) -> None:
    root.parent.rename(root.parent.parent / "moved")
    root.parent.symlink_to("moved")


@pytest.mark.parametrize("link", [link_file, link_folder, link_root, link_above])
def test_nothing_is_seen_through_a_link(tmp_path: Path, link: Callable[[Path], None]) -> None:
    root = tmp_path / "above" / "root"
    store = LocalStore(root, Disk())
    store.put("log/a", b"1")
    assert store.get("log/a") == b"1"
    assert store.peek("log/a", 10) is not None
    link(root)
    assert store.get("log/a") == b"1"
    for most in (0, 10):
        assert store.peek("log/a", most) is None


def test_a_link_above_the_store_is_the_administrators(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = LocalStore(tmp_path / "link" / "root", Disk())
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert store.peek("a", 10) is not None


@pytest.mark.parametrize("most", [0, 100])
def test_what_is_not_a_regular_file_is_not_seen_and_not_waited_for(
    store: LocalStore, most: int
) -> None:
    root = place(store, "known").parent
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        assert store.peek(name, most) is None


# File systems


@pytest.fixture
def in_memory() -> Iterator[tuple[CachedFiles, Path]]:
    """A file on a file system of another type, whose device is learned."""
    if not MEMORY.is_mount():
        pytest.skip(f"{MEMORY} is not a file system of its own")
    files = CachedFiles()
    with NamedTemporaryFile(dir=MEMORY) as file:
        file.write(b"1")
        file.flush()
        files.learn(file.fileno())
        yield files, Path(file.name)


@pytest.mark.parametrize("most", [0, 100])
def test_files_on_another_type_of_file_system_are_not_seen(
    in_memory: tuple[CachedFiles, Path], most: int
) -> None:
    files, file = in_memory
    fd = os.open(sys.executable, os.O_RDONLY)
    files.learn(fd)  # there is a device that is peeked at, beside the other
    os.close(fd)
    assert files.read(str(MEMORY), file.name, most) is None
    files._are_local = dict.fromkeys(files._are_local, True)
    assert (files.read(str(MEMORY), file.name, 0) or CachedFile(0, 0)).size == 1  # but for its type


def test_a_mount_below_the_store_is_not_entered(in_memory: tuple[CachedFiles, Path]) -> None:
    files, file = in_memory
    fd = os.open("/dev", os.O_RDONLY)
    files.learn(fd)
    os.close(fd)
    files._are_local = dict.fromkeys(files._are_local, True)
    assert files.read("/dev/shm", file.name, 0) is not None
    assert files.read("/dev", f"shm/{file.name}", 0) is None


def test_what_this_system_cannot_do_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_files, "_NOT_WAITING", 0)
    store = LocalStore(tmp_path / "root", Disk())
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert store.peek("a", 10) is None


def test_no_file_stays_open(store: LocalStore) -> None:
    store.put("empty", b"")
    store.put("large", b"x" * 10_000)
    os.mkfifo(place(store, "known").parent / "pipe")
    (place(store, "known").parent / "link").symlink_to("known")
    names = ["known", "empty", "large", "pipe", "link", "missing", "no/folder", "known/below"]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as fast as possible
    for turn in range(1_000):
        store.peek(names[turn % len(names)], 100 * (turn % 2))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
