"""The system calls that a `LocalStore` makes, as one small object that a test can replace."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

# In one call what else takes two, a link and the removal of the first name; Python has no name for
# it. Some file systems, those over a network among them, cannot do it.
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
_HERE: Final = -100  # AT_FDCWD: paths are absolute anyway
_NOREPLACE: Final = 1
# Without O_PATH a folder that may be passed through but not listed could not be opened.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; a link is no folder, wherever it leads."""

    name: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Stat:
    """What lies under a name: a plain file, a link, or anything else."""

    size: int
    modified_ms: int
    is_file: bool
    is_link: bool


class Disk(Protocol):
    """Paths are absolute; errors are `OSError`s with their `errno`; links are not followed."""

    failed: str | None
    """Which sync failed. From then on nothing is written: what the disk holds is not known."""

    durable: set[str]
    """The folders whose own names this process has seen synced."""

    def create(self, path: str) -> int:
        """Open a new file for writing; refuse if the name is taken."""
        ...

    def open(self, path: str) -> int:
        """Open a file or a folder, to read or to sync it."""
        ...

    def close(self, fd: int) -> None: ...

    def write(self, fd: int, content: memoryview) -> int: ...

    def read(self, fd: int, start: int, length: int) -> bytes: ...

    def sync(self, fds: Sequence[int]) -> None:
        """Wait until bytes of files and names of folders are on the disk; many are cheaper."""
        ...

    def move(self, source: str, target: str) -> None:
        """Give a file another name; refuse if that name is taken."""
        ...

    def replace(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None:
        """Remove a name; if a folder on its way is a link, raise `ENOTDIR` instead."""
        ...

    def make_folder(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder; refuse if something is in it. Links count as by `unlink`."""
        ...

    def entries(self, folder: str) -> Iterator[Entry]: ...

    def stat(self, path: str) -> Stat: ...

    def stat_open(self, fd: int) -> Stat: ...

    def resolve(self, path: str) -> str:
        """Follow every link in `path`."""
        ...


class OsDisk:
    """The machine's own disk."""

    def __init__(self) -> None:
        self._failed: str | None = None
        self.durable = {"/"}
        self.on_failed: Callable[[str], None] = lambda why: None

    @property
    def failed(self) -> str | None:
        return self._failed

    @failed.setter
    def failed(self, why: str | None) -> None:
        self._failed = why
        if why is not None:
            self.on_failed(why)

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open(self, path: str) -> int:
        # Without O_NONBLOCK a pipe under the name of a file would hold its reader for ever.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, content: memoryview) -> int:
        return os.write(fd, content)

    def read(self, fd: int, start: int, length: int) -> bytes:
        return os.pread(fd, length, start)

    def sync(self, fds: Sequence[int]) -> None:
        # Linux begins to write dirty pages out when told that nobody needs them. Blocks of many
        # files are then allocated before the first sync, whose journal commit serves them all.
        if len(fds) > 1 and hasattr(os, "posix_fadvise"):
            for fd in fds:
                with suppress(OSError):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for fd in fds:
            os.fsync(fd)

    def move(self, source: str, target: str) -> None:
        if _renameat2 is not None:
            names = (_HERE, os.fsencode(source), _HERE, os.fsencode(target))
            if _renameat2(*names, _NOREPLACE) == 0:
                return
            code = ctypes.get_errno()
            if code not in _UNSUPPORTED:
                raise OSError(code, os.strerror(code), target)
        os.link(source, target, follow_symlinks=False)
        with suppress(OSError):  # it has its new name; the other is swept away some day
            os.unlink(source)  # noqa: PTH108

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)  # noqa: PTH105

    def unlink(self, path: str) -> None:
        with _opened_parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)

    def make_folder(self, path: str) -> None:
        os.mkdir(path)  # noqa: PTH102

    def remove_folder(self, path: str) -> None:
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
        return os.path.realpath(path)


@contextmanager
def _opened_parent(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an absolute path without following a link, and give it with the name.

    Folder by folder, so that a link put in the place of one meanwhile is not followed either.
    """
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


def _stat(found: os.stat_result) -> Stat:
    return Stat(
        size=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        is_file=stat.S_ISREG(found.st_mode),
        is_link=stat.S_ISLNK(found.st_mode),
    )
