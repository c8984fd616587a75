"""The system calls that a `LocalStore` makes, as one class that a test can replace."""

import ctypes
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from headgate.errors import UnavailableError
from headgate.storage.cached_files import CachedFile, CachedFiles

# An exclusive rename in one call, which Python does not offer; otherwise it takes a hard link and
# the removal of the old name. Some file systems, such as network ones, do not support it.
_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)
_AT_FDCWD: Final = -100  # paths are absolute anyway
_NOREPLACE: Final = 1
# Without O_PATH a folder with execute but no read permission could not be opened.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
# File systems (ext4, XFS) on which `syncfs` guarantees what `fsync` does. Others do not pass it on
# (FUSE), do not report errors (overlayfs), or do much more than is asked for (Btrfs).
_SYNCED_WHOLE: Final = (0xEF53, 0x58465342)
_MANY: Final = 8  # files from which on one `syncfs`, or threads, are cheaper
_THREADS: Final = 4
_SLOW_S: Final = 0.25  # of a `syncfs`: other programs write much to the same file system
_AVOIDED: Final = 100  # times the duration of a slow one: so at most 1 % of the time is lost


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder; a link is not a folder, whatever its target."""

    name: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Stat:
    """What has a name: a regular file, a link, or something else."""

    size: int
    modified_ms: int
    is_file: bool
    is_link: bool


class Disk:
    """System calls on files. Paths are absolute, errors are `OSError`s, links are not followed."""

    def __init__(self) -> None:
        # Which sync failed. Nothing is written after that: what is on the disk is not known.
        self.failed: str | None = None
        self.on_failed: Callable[[str], object] = lambda why: None
        self.durable = {"/"}  # the folders whose names this process has synced
        self.monotonic: Callable[[], float] = time.monotonic
        self._cached_files = CachedFiles()
        self._synced_whole: dict[int, bool] = {}  # devices, and whether `syncfs` can be used
        self._avoided_until: dict[int, float] = {}

    def fail(self, why: str) -> None:
        """Record that a sync failed."""
        self.failed = why
        self.on_failed(why)

    def refuse_if_failed(self) -> None:
        """Raise if a sync failed."""
        if self.failed is not None:
            raise UnavailableError(
                f"This process has stopped writing: {self.failed}.",
                remedy="Check the disk, then restart this process.",
            )

    def create(self, path: str) -> int:
        """Open a new file for writing; fail if the name exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open(self, path: str) -> int:
        """Open a file or a folder for reading or syncing."""
        # Without O_NONBLOCK opening a pipe under the name of a file would block.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, content: memoryview) -> int:
        return os.write(fd, content)

    def read(self, fd: int, start: int, length: int) -> bytes:
        return os.pread(fd, length, start)

    def learn(self, fd: int) -> None:
        """Learn from an open file whether those of its device can be read without waiting."""
        self._cached_files.learn(fd)

    def peek(self, root: str, path: str, most: int) -> CachedFile | None:
        """Return a file below a folder if it is in memory; its content if it is small enough."""
        return self._cached_files.read(root, path, most)

    def sync(self, fds: Sequence[int]) -> None:
        """Wait until files and folders are on the disk; several at once are cheaper."""
        # DONTNEED makes Linux begin to write out dirty pages. The blocks of many files are then
        # allocated before the first sync, whose journal commit covers them all.
        if len(fds) > 1 and hasattr(os, "posix_fadvise"):
            for fd in fds:
                with suppress(OSError):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if len(fds) < _MANY:
            _sync_each(fds)
            return
        with ThreadPoolExecutor(_THREADS) as pool:  # the disk serves their requests together
            list(pool.map(_sync_each, [fds[first::_THREADS] for first in range(_THREADS)]))

    def sync_together(self, fds: Sequence[int]) -> None:
        """Sync files or folders, in the order in which they were opened, as cheaply as possible.

        Many on one file system are synced by one call. It also waits for other programs' data, so
        it is avoided for a while after it was slow.
        """
        devices: dict[int | None, list[int]] = {}
        for fd in fds:
            devices.setdefault(self.device_synced_whole(fd), []).append(fd)
        for device, some in devices.items():
            began = self.monotonic()
            is_avoided = device is None or began < self._avoided_until.get(device, began)
            if is_avoided or len(some) < _MANY:
                self.sync(some)
                continue
            assert device is not None
            # Reports errors since the first was opened, so also those of the others.
            self.sync_whole(some[0])
            took = self.monotonic() - began
            if took > _SLOW_S:
                self._avoided_until[device] = began + took * (1 + _AVOIDED)

    def device_synced_whole(self, fd: int) -> int | None:
        """Return the device of an open file if `sync_whole` can be used for it."""
        device = os.fstat(fd).st_dev
        if device not in self._synced_whole:
            self._synced_whole[device] = _file_system(fd) in _SYNCED_WHOLE
        return device if self._synced_whole[device] else None

    def sync_whole(self, fd: int) -> None:
        """Wait until the file system of an open file is on the disk."""
        if _libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def device(self, path: str) -> int | None:
        """Return the device of a file or folder; None if there is none."""
        try:
            return os.stat(path).st_dev  # noqa: PTH116
        except OSError:
            return None

    def move(self, source: str, target: str) -> None:
        """Rename a file; fail if the new name exists."""
        if _renameat2 is not None:
            names = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
            if _renameat2(*names, _NOREPLACE) == 0:
                return
            code = ctypes.get_errno()
            if code not in _UNSUPPORTED:
                raise OSError(code, os.strerror(code), target)
        os.link(source, target, follow_symlinks=False)
        with suppress(OSError):  # the new name exists; `sweep` removes the old one later
            os.unlink(source)  # noqa: PTH108

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)  # noqa: PTH105

    def unlink(self, path: str) -> None:
        """Remove a name; raise `ENOTDIR` if a folder on its path is a link."""
        with _opened_parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def make_folder(self, path: str) -> None:
        os.mkdir(path)  # noqa: PTH102

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; links on its path are treated as in `unlink`."""
        with _opened_parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def entries(self, folder: str) -> Iterator[Entry]:
        with os.scandir(folder) as found:
            for entry in found:
                yield Entry(entry.name, entry.is_dir(follow_symlinks=False))

    def stat(self, path: str) -> Stat:
        return _stat(os.lstat(path))

    def stat_open(self, fd: int) -> Stat:
        return _stat(os.fstat(fd))

    def resolve(self, path: str) -> str:
        """Follow every link in a path."""
        return os.path.realpath(path)


@contextmanager
def _opened_parent(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an absolute path without following a link; yield it with the name."""
    # Opens folder by folder, so that a link that replaces one meanwhile is not followed either.
    *folders, name = path.split("/")[1:]
    fd = os.open("/", _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd, name
    finally:
        os.close(fd)


def _sync_each(fds: Sequence[int]) -> None:
    for fd in fds:
        os.fsync(fd)


def _file_system(fd: int) -> int | None:
    """Return the type of a file system; None if `syncfs` does not exist or reports no errors."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or not hasattr(_libc, "syncfs"):
        return None
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (5, 8):
        return None
    found = (ctypes.c_long * 32)()  # `struct statfs`, which is shorter, begins with the type
    return None if _libc.fstatfs(fd, found) else found[0]


def _stat(found: os.stat_result) -> Stat:
    return Stat(
        size=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        is_file=stat.S_ISREG(found.st_mode),
        is_link=stat.S_ISLNK(found.st_mode),
    )
