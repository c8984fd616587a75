"""Read files that Linux has in memory, without ever waiting for a disk.

For the event loop, which a disk that hangs must not stop. Everything else is None: what is not in
memory, is behind a link, or is on a file system where opening a file may ask a server.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Final, NamedTuple

# File systems whose files are opened without waiting, once their names are in memory: ext4, XFS,
# Btrfs, tmpfs.
_LOCAL: Final = (0xEF53, 0x58465342, 0x9123683E, 0x01021994)
_OPENAT2: Final = 437  # the same number on every architecture
_STATX: Final = {"x86_64": 332, "aarch64": 291}.get(os.uname().machine)
_AT_FDCWD: Final = -100
_CACHED: Final = 0x20  # fail where a name is not in memory
_WITHIN: Final = _CACHED | 0x08 | 0x04 | 0x01  # below the folder, without a link or a mount
_EMPTY_PATH: Final = 0x1000
_DONT_SYNC: Final = 0x4000
_DEVICE: Final = slice(136, 144)  # of `struct statx`: major and minor number
_FOLDER: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_WAITING: Final = getattr(os, "RWF_NOWAIT", 0)

# Calls keep the interpreter: they take a microsecond.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall if sys.platform == "linux" else None
_fstatfs = ctypes.CDLL(None).fstatfs if sys.platform == "linux" else None


class CachedFile(NamedTuple):
    """A regular file, and its content if it was asked for."""

    size: int
    modified_ms: int
    content: bytes = b""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_ROOT: Final = _How(_FOLDER, 0, _CACHED)
_HOW_READ: Final = _How(_FILE, 0, _WITHIN)
_HOW_LOOK: Final = _How(getattr(os, "O_PATH", 0) | os.O_CLOEXEC, 0, _WITHIN)
_SIZE: Final = ctypes.sizeof(_How)


class CachedFiles:
    """Files on those devices that are known to be on this machine."""

    def __init__(self) -> None:
        self._devices: dict[bytes, bool] = {}

    def learn(self, fd: int) -> None:
        """Learn about the device of an open file; this may wait."""
        device = _device(fd)
        if device is not None and device not in self._devices:
            assert _fstatfs is not None  # as for `_device`
            found = (
                ctypes.c_long * 32
            )()  # `struct statfs`, which is shorter, begins with the type
            self._devices[device] = not _fstatfs(fd, found) and found[0] in _LOCAL

    def read(self, root: str, path: str, most: int) -> CachedFile | None:
        """Return a file below a folder; with its content if that has at most so many bytes."""
        if not self._devices:
            return None
        folder = file = None
        try:
            folder = _open(_AT_FDCWD, root or "/", _HOW_ROOT)
            if not self._devices.get(_device(folder) or b""):
                return None
            file = _open(folder, path, _HOW_READ if most else _HOW_LOOK)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return None
            content = b""
            if most:
                content = _content(file, found.st_size) if found.st_size <= most else b""
                if len(content) < found.st_size:
                    return None
            return CachedFile(found.st_size, found.st_mtime_ns // 1_000_000, content)
        except OSError:
            return None
        finally:
            for opened in (file, folder):
                if opened is not None:
                    os.close(opened)


def _content(fd: int, size: int) -> bytes:
    content = bytearray(size)
    read = os.preadv(fd, [content], 0, _NOT_WAITING)
    return bytes(content[:read])


def _open(at: int, path: str, how: _How) -> int:
    if _syscall is None:
        raise OSError(errno.ENOSYS, "")
    fd: int = _syscall(_OPENAT2, at, os.fsencode(path), ctypes.byref(how), _SIZE)
    if fd < 0:
        raise OSError(ctypes.get_errno(), path)
    return fd


def _device(fd: int) -> bytes | None:
    """Return the numbers of an open file's device, as far as they can be had without waiting."""
    if _syscall is None or _STATX is None or not _NOT_WAITING:
        return None
    found = ctypes.create_string_buffer(256)
    if _syscall(_STATX, fd, b"", _EMPTY_PATH | _DONT_SYNC, 0, found):
        return None
    return found.raw[_DEVICE]
