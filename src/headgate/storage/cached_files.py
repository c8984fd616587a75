"""Read files that Linux has in memory, without ever waiting for a disk.

For the event loop, which a disk that hangs must not stop. Everything else is None: what is not in
memory, is behind a link, or is on a file system where opening a file may ask a server. All calls
keep the interpreter, unlike those of `os`: each takes a microsecond, and to get it back may take
milliseconds.
"""

import ctypes
import os
import stat
import struct
import sys
from typing import Any, Final, NamedTuple

# File systems whose files are opened without waiting, once their names are in memory, and read only
# if their content is: ext4, XFS, Btrfs. On tmpfs, a read cannot be told not to wait.
_LOCAL: Final = (0xEF53, 0x58465342, 0x9123683E)
_OPENAT2: Final = 437  # the same number on every architecture
_AT_FDCWD: Final = -100
_CACHED: Final = 0x20  # fail where a name is not in memory
_WITHOUT_LINKS: Final = _CACHED | 0x04
_WITHIN: Final = _WITHOUT_LINKS | 0x08 | 0x01  # below the folder, and on the same mount
_OPEN_PATH: Final = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_WITHOUT_ASKING: Final = 0x1000 | 0x4000  # of an open file, and no server is asked
_STATX: Final = struct.Struct("=28xH10xQ64xqI12xII112x")  # mode, size, time, device
_NOT_WAITING: Final = getattr(os, "RWF_NOWAIT", 0)


class CachedFile(NamedTuple):
    """A regular file, and its content if it was asked for."""

    size: int
    modified_ms: int
    content: bytes = b""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Piece(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


_FOLDER: Final = _How(_OPEN_PATH | os.O_DIRECTORY, 0, _WITHOUT_LINKS)
_FILE: Final = _How(_OPEN_PATH, 0, _WITHIN)
_CONTENT: Final = _How(os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, 0, _WITHIN)
_SIZE: Final = ctypes.sizeof(_How)

_Stat = tuple[int, int, int, int, int, int]  # mode, size, seconds, nanoseconds, device's numbers


class CachedFiles:
    """Files on those devices that are known to be on this machine."""

    def __init__(self) -> None:
        self._libc: Any = None
        if sys.platform == "linux" and _NOT_WAITING:
            libc = ctypes.PyDLL(None, use_errno=True)
            if hasattr(libc, "statx") and hasattr(libc, "preadv2"):
                self._libc = libc
        self._are_local: dict[tuple[int, ...], bool] = {}

    def learn(self, fd: int) -> None:
        """Learn about the device of an open file; this may wait."""
        if self._libc is None or (found := self._stat(fd)) is None:
            return
        if found[4:] not in self._are_local:
            about = (
                ctypes.c_long * 32
            )()  # longer than `struct statfs`, which begins with the type
            failed = ctypes.CDLL(None).fstatfs(fd, about)
            self._are_local[found[4:]] = not failed and about[0] in _LOCAL

    def read(self, root: str, path: str, most: int) -> CachedFile | None:
        """Return a file below a folder; with its content if that has 1 to `most` bytes."""
        if not self._are_local:
            return None
        folder = self._open(_AT_FDCWD, root or "/", _FOLDER)
        if folder < 0:
            return None
        file = -1
        try:
            place = self._stat(folder)
            if place is None or not self._are_local.get(place[4:]):
                return None
            file = self._open(folder, path, _CONTENT if most else _FILE)
            found = None if file < 0 else self._stat(file)
            if found is None or not stat.S_ISREG(found[0]):
                return None
            size = found[1]
            content = self._content(file, size) if 0 < size <= most else b""
            if most and len(content) < size:
                return None
            return CachedFile(size, found[2] * 1_000 + found[3] // 1_000_000, content)
        finally:
            self._libc.close(folder)
            if file >= 0:
                self._libc.close(file)

    def _open(self, at: int, path: str, how: _How) -> int:
        # Not a function of the C library, which has none.
        opened: int = self._libc.syscall(_OPENAT2, at, os.fsencode(path), ctypes.byref(how), _SIZE)
        return opened

    def _stat(self, fd: int) -> _Stat | None:
        found = ctypes.create_string_buffer(256)
        if self._libc.statx(fd, b"", _WITHOUT_ASKING, 0x7FF, found):
            return None
        mode, size, seconds, nanoseconds, major, minor = _STATX.unpack(found.raw)
        return mode, size, seconds, nanoseconds, major, minor

    def _content(self, fd: int, size: int) -> bytes:
        content = ctypes.create_string_buffer(size)
        piece = _Piece(ctypes.addressof(content), size)
        start = ctypes.c_int64(0)
        read = self._libc.preadv2(fd, ctypes.byref(piece), 1, start, _NOT_WAITING)
        return content.raw if read == size else b""
