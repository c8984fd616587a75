"""A disk under SQLite that forgets what was not synced.

A VFS over the machine's own, whose real files hold what programs read. Beside them it keeps, per
file, what was synced and every write since. `restart` writes what is left after a power loss into a
new folder: what was synced and, of the rest, any sectors that chance chooses, some of them garbage.
A name is kept once its folder was synced, which SQLite does with the first sync of a new journal.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from tests.kit.faulty_stores import SECTOR

_BASE = "unix"
_numbers = itertools.count(1)
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


@dataclass
class _Write:
    start: int
    content: bytes


@dataclass
class _Truncation:
    size: int


@dataclass
class _Content:
    """A file as the platter has it, and what happened to it since."""

    synced: bytes = b""
    unsynced: list[_Write | _Truncation] = field(default_factory=list)
    is_named: bool = False  # its name outlives a power loss
    is_gone: bool = False  # unlinked, and that may not outlive one

    def left(self, keeps: Callable[[], float], chance: random.Random) -> bytes:
        content = bytearray(self.synced)
        for change in self.unsynced:
            if isinstance(change, _Truncation):
                if chance.random() < keeps():
                    _resize(content, change.size)
                continue
            for offset in range(0, len(change.content), SECTOR):
                if chance.random() < keeps():
                    sector = change.content[offset : offset + SECTOR]
                    if keeps() < 0.1:
                        sector = chance.randbytes(len(sector))
                    _put(content, change.start + offset, sector)
        return bytes(content)

    def sync(self) -> None:
        content = bytearray(self.synced)
        for change in self.unsynced:
            if isinstance(change, _Truncation):
                _resize(content, change.size)
            else:
                _put(content, change.start, change.content)
        self.synced = bytes(content)
        self.unsynced.clear()


class ForgetfulVFS(apsw.VFS):
    """SQLite's way to a disk that forgets, fills up and fails to sync."""

    def __init__(self, folder: Path) -> None:
        self.name = f"forgetful-{next(_numbers)}"
        self.folder = folder
        self.counts: Counter[str] = Counter()  # writes, truncations, syncs, deletions
        self.before: Callable[[str, str], None] | None = None  # called with each call and its file
        self.room: int | None = None  # bytes until the disk is full
        self.fail_sync_at: int | None = None  # the sync, from 1, that says EIO and forgets
        self.ignores_syncs = False  # a disk that lies
        self._lock = threading.RLock()
        self._is_over = False  # what connections of the past still do changes nothing
        self._files = {
            str(path): _Content(path.read_bytes(), is_named=True)
            for path in folder.iterdir()
            if path.is_file()
        }
        super().__init__(self.name, _BASE)

    def die(self, folder: Path) -> ForgetfulVFS:
        """Kill the process: what it wrote is in another folder, synced or still not."""
        with self._lock:
            self._is_over = True
            after = ForgetfulVFS(folder)
            for path, content in self._files.items():
                if not content.is_gone and not path.endswith("-shm"):
                    target = folder / Path(path).name
                    target.write_bytes(Path(path).read_bytes())
                    after._files[str(target)] = content
        return after

    def restart(self, folder: Path, chance: random.Random) -> ForgetfulVFS:
        """Switch the machine off and on; what is left lies in another folder."""
        match chance.randrange(3):
            case 0:
                keeps: Callable[[], float] = float
            case 1:
                keeps = lambda: 1.0  # noqa: E731
            case _:
                keeps = chance.random
        with self._lock:
            self._is_over = True
            for path, content in self._files.items():
                is_there = content.is_named or chance.random() < keeps()
                if content.is_gone and chance.random() < keeps():
                    is_there = False
                if is_there and not path.endswith("-shm"):
                    (folder / Path(path).name).write_bytes(content.left(keeps, chance))
        return ForgetfulVFS(folder)

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self._lock:
            self.cross("delete", filename)
            super().xDelete(filename, syncdir)
            if not self._is_over:
                if syncdir and not self.ignores_syncs:
                    self._sync_names()
                    self._files.pop(filename, None)
                elif filename in self._files:
                    self._files[filename].is_gone = True

    # Called by the files

    def cross(self, what: str, path: str, size: int = 0) -> None:
        """Count a call, and let it fail if requested."""
        if self._is_over:
            return
        if self.before is not None:
            self.before(what, path)
        self.counts[what] += 1
        if self.room is not None and size:
            if size > self.room:
                raise apsw.FullError(f"no room for {size} bytes")
            self.room -= size

    def open(self, path: str) -> None:
        with self._lock:
            if self._is_over:
                return
            found = self._files.setdefault(path, _Content())
            if found.is_gone:
                self._files[path] = _Content()

    def write(self, path: str, start: int, content: bytes) -> None:
        if not self._is_over:
            self._files[path].unsynced.append(_Write(start, content))

    def truncate(self, path: str, size: int) -> None:
        if not self._is_over:
            self._files[path].unsynced.append(_Truncation(size))

    def sync(self, path: str, *, with_folder: bool) -> None:
        if self._is_over or self.ignores_syncs:
            return
        if self.counts["sync"] == self.fail_sync_at:
            self._files[path].unsynced.clear()  # the next sync finds nothing left to do
            raise apsw.IOError("the disk could not sync")
        self._files[path].sync()
        if with_folder:
            self._sync_names()

    @property
    def lock(self) -> threading.RLock:
        return self._lock

    def _sync_names(self) -> None:
        for path, content in list(self._files.items()):
            content.is_named = True
            if content.is_gone:
                del self._files[path]


class _File(apsw.VFSFile):
    def __init__(
        self, disk: ForgetfulVFS, name: str | apsw.URIFilename | None, flags: Sequence[int]
    ) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "")
        if self._path:
            disk.open(self._path)
        self._is_new_journal = bool(flags[0] & _JOURNALS) and not Path(self._path).exists()
        super().__init__(_BASE, name, list(flags))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.lock:
            if self._path:
                self._disk.cross("write", self._path, len(data))
            super().xWrite(data, offset)
            if self._path:
                self._disk.write(self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._disk.lock:
            if self._path:
                self._disk.cross("truncate", self._path)
            super().xTruncate(newsize)
            if self._path:
                self._disk.truncate(self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # Not passed on: the machine's own disk is not the one under test.
        with self._disk.lock:
            if self._path:
                self._disk.cross("sync", self._path)
                self._disk.sync(self._path, with_folder=self._is_new_journal)
                self._is_new_journal = False


def _put(content: bytearray, start: int, written: bytes) -> None:
    if len(content) < start + len(written):
        _resize(content, start + len(written))
    content[start : start + len(written)] = written


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
