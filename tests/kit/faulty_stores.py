"""Storage that misbehaves on request: a disk that forgets what was not synced, and stores that
shuffle, count, lag, tear and fail.

With nothing requested each behaves like any other and passes the same contract suite.
"""

from __future__ import annotations

import enum
import errno
import os
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headgate.errors import UnavailableError
from headgate.storage.cached_files import CachedFile
from headgate.storage.disk import Disk, Entry, Stat
from headgate.storage.object_store import ObjectMeta, ObjectStore, PutUnknownError, check_path

_T = TypeVar("_T")
SECTOR: Final = 512


class PowerLossError(BaseException):
    """The machine went off. Not an `Exception`: nothing in it goes on."""


@dataclass(eq=False, slots=True)
class _File:
    modified_ms: int
    written: bytearray = field(default_factory=bytearray)  # what programs read
    synced: bytes = b""  # what is on the platter
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    names: int = 1


_Change = dict[str, "_File | _Folder | None"]  # names given and taken by one call, together


@dataclass(eq=False, slots=True)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    unsynced: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        _apply(self.names, change)
        self.unsynced.append(change)


class ForgetfulDisk(Disk):
    """A disk in memory that keeps apart what is written and what is synced.

    `crash` leaves what was synced and, of the rest, what chance chooses: any part of the unsynced
    writes of a file, torn at sectors, the last of them garbage; of the unsynced changes to a
    folder the first few, in order, as journaling file systems do.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()  # system calls by name
        self.calls = 0
        self.crash_at: int | None = None  # the call before which the power goes
        self.room: int | None = None  # bytes until the disk is full
        self.fail_sync_at: int | None = None  # the sync, from 1, that says EIO and forgets
        self.shuffle: random.Random | None = None  # the order of listings, else by name
        self.fail_whole_sync_at: int | None = None
        self.has_syncfs = False  # whether many files are synced together by one call
        self.before: Callable[[str, str], None] | None = (
            None  # called with the name and path of each call
        )
        self._now_ms = now_ms
        self._root = _Folder()
        self._open: dict[int, _File | _Folder] = {}
        self._is_off = False
        self._lock = threading.RLock()

    def crash(self, chance: random.Random) -> None:
        """Switch the machine off and on again."""
        keeps: Callable[[], float]
        match chance.randrange(3):
            case 0:
                keeps = float
            case 1:
                keeps = lambda: 1.0  # noqa: E731
            case _:
                keeps = chance.random
        with self._lock:
            self._restart(self._root, keeps, chance, set())
            self._open.clear()
            self._is_off, self.crash_at = False, None
            self.failed, self.durable = None, {"/"}  # a new process knows nothing

    def shuffle_times(self, chance: random.Random) -> None:
        """Give every file another time, as a restore from a backup does."""
        with self._lock:
            for file in self._files(self._root):
                file.modified_ms = chance.randrange(10**13)

    # The system calls

    def create(self, path: str) -> int:
        with self._call("create", path):
            folder, name = self._parent(path)
            if name in folder.names:
                raise _error(errno.EEXIST, path)
            folder.change({name: (file := _File(self._now_ms()))})
            return self._descriptor(file)

    def open(self, path: str) -> int:
        with self._call("open", path):
            return self._descriptor(self._find(path))

    def close(self, fd: int) -> None:
        with self._call("close"):
            del self._open[fd]

    def write(self, fd: int, content: memoryview) -> int:
        with self._call("write"):
            file = self._file(fd)
            if self.room == 0:
                raise _error(errno.ENOSPC)
            content = content if self.room is None else content[: self.room]
            file.unsynced.append((len(file.written), bytes(content)))
            file.written += content
            self._give_room(-len(content))
            return len(content)

    def read(self, fd: int, start: int, length: int) -> bytes:
        with self._call("read"):
            return bytes(self._file(fd).written[start : start + length])

    def sync(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self.sync_one(fd)

    def sync_one(self, fd: int) -> None:
        with self._call("sync"):
            self._settle([self._open[fd]], self.counts["sync"] == self.fail_sync_at)

    def learn(self, fd: int) -> None:
        pass

    def device_synced_whole(self, fd: int) -> int | None:
        return 1 if self.has_syncfs else None

    def device(self, path: str) -> int | None:
        return 1

    def sync_whole(self, fd: int) -> None:
        with self._call("sync_whole"):
            everything = [*self._everything(self._root)]
            self._settle(everything, self.counts["sync_whole"] == self.fail_whole_sync_at)

    def move(self, source: str, target: str) -> None:
        with self._call("move", target):
            folder, name = self._parent(target)
            if name in folder.names:
                raise _error(errno.EEXIST, target)
            self._rename(source, target)

    def replace(self, source: str, target: str) -> None:
        with self._call("replace", target):
            folder, name = self._parent(target)
            there = folder.names.get(name)
            if isinstance(there, _Folder):
                raise _error(errno.EISDIR, target)
            self._rename(source, target)
            self._unname(there)

    def unlink(self, path: str) -> None:
        with self._call("unlink", path):
            found = self._find(path)
            if isinstance(found, _Folder):
                raise _error(errno.EISDIR, path)
            folder, name = self._parent(path)
            folder.change({name: None})
            self._unname(found)

    def make_folder(self, path: str) -> None:
        with self._call("make_folder", path):
            folder, name = self._parent(path)
            if name in folder.names:
                raise _error(errno.EEXIST, path)
            folder.change({name: _Folder()})

    def remove_folder(self, path: str) -> None:
        with self._call("remove_folder", path):
            found = self._find(path)
            if isinstance(found, _File):
                raise _error(errno.ENOTDIR, path)
            if found.names:
                raise _error(errno.ENOTEMPTY, path)
            folder, name = self._parent(path)
            folder.change({name: None})

    def entries(self, folder: str) -> Iterator[Entry]:
        with self._call("entries", folder):
            found = self._find(folder)
            if isinstance(found, _File):
                raise _error(errno.ENOTDIR, folder)
            listed = [Entry(n, isinstance(f, _Folder)) for n, f in sorted(found.names.items())]
            if self.shuffle is not None:
                self.shuffle.shuffle(listed)
        return iter(listed)

    def stat(self, path: str) -> Stat:
        with self._call("stat", path):
            return _stat(self._find(path))

    def stat_open(self, fd: int) -> Stat:
        with self._call("stat_open"):
            return _stat(self._open[fd])

    def resolve(self, path: str) -> str:
        return os.path.normpath(path)

    # How it is done

    @contextmanager
    def _call(self, name: str, path: str = "") -> Iterator[None]:
        if self.before is not None:
            self.before(name, path)
        with self._lock:
            if self._is_off or self.calls == self.crash_at:
                self._is_off = True
                raise PowerLossError
            self.calls += 1
            self.counts[name] += 1
            yield

    def _find(self, path: str) -> _File | _Folder:
        found: _File | _Folder = self._root
        for name in filter(None, path.split("/")):
            if isinstance(found, _File):
                raise _error(errno.ENOTDIR, path)
            if len(name.encode()) > 255:
                raise _error(errno.ENAMETOOLONG, path)
            if name not in found.names:
                raise _error(errno.ENOENT, path)
            found = found.names[name]
        return found

    def _parent(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._find(above)
        if isinstance(folder, _File):
            raise _error(errno.ENOTDIR, path)
        if len(name.encode()) > 255:
            raise _error(errno.ENAMETOOLONG, path)
        return folder, name

    def _rename(self, source: str, target: str) -> None:
        file = self._find(source)
        folder, name = self._parent(target)
        old_folder, old_name = self._parent(source)
        assert old_folder is folder, "only what happens in one folder happens at once"
        folder.change({old_name: None, name: file})

    def _file(self, fd: int) -> _File:
        found = self._open[fd]
        if isinstance(found, _Folder):
            raise _error(errno.EISDIR)
        return found

    def _descriptor(self, found: _File | _Folder) -> int:
        fd = next(number for number in range(3, 10**6) if number not in self._open)
        self._open[fd] = found
        return fd

    def _unname(self, file: _File | _Folder | None) -> None:
        if isinstance(file, _File):
            file.names -= 1
            if file.names == 0:
                self._give_room(len(file.written))

    def _give_room(self, size: int) -> None:
        if self.room is not None:
            self.room += size

    def _files(self, folder: _Folder) -> Iterator[_File]:
        for found in folder.names.values():
            if isinstance(found, _File):
                yield found
            else:
                yield from self._files(found)

    def _settle(self, all_found: Sequence[_File | _Folder], fails: bool) -> None:
        for found in all_found:
            if not fails and isinstance(found, _File):
                found.synced = bytes(_written(found.synced, found.unsynced))
            elif not fails and isinstance(found, _Folder):
                for change in found.unsynced:
                    _apply(found.synced, change)
            found.unsynced.clear()  # also if it failed: the next sync finds nothing left to do
        if fails:
            raise _error(errno.EIO)

    def _everything(self, folder: _Folder) -> Iterator[_File | _Folder]:
        yield folder
        for found in folder.names.values():
            if isinstance(found, _File):
                yield found
            else:
                yield from self._everything(found)

    def _restart(
        self,
        folder: _Folder,
        keeps: Callable[[], float],
        chance: random.Random,
        done: set[int],
    ) -> None:
        for change in folder.unsynced[: round(keeps() * len(folder.unsynced))]:
            _apply(folder.synced, change)
        folder.names = dict(folder.synced)
        folder.unsynced = []
        for found in folder.names.values():
            if isinstance(found, _Folder):
                self._restart(found, keeps, chance, done)
            elif id(found) not in done:  # it may have two names
                done.add(id(found))
                found.synced = _remembered(found, keeps, chance)
                found.written = bytearray(found.synced)
                found.unsynced = []


def _remembered(file: _File, keeps: Callable[[], float], chance: random.Random) -> bytes:
    """Say what is left of a file: what was synced, and sectors of what was not."""
    content = bytearray(file.synced)
    for start, written in file.unsynced:
        for offset in range(0, len(written), SECTOR):
            if chance.random() < keeps():
                sector = written[offset : offset + SECTOR]
                if keeps() < 0.1:
                    sector = chance.randbytes(len(sector))
                content = _written(bytes(content), [(start + offset, sector)])
    return bytes(content)


def _written(content: bytes, writes: Sequence[tuple[int, bytes]]) -> bytearray:
    result = bytearray(content)
    for start, written in writes:
        result.extend(bytes(max(0, start + len(written) - len(result))))
        result[start : start + len(written)] = written
    return result


def _apply(names: dict[str, _File | _Folder], change: _Change) -> None:
    for name, found in change.items():
        if found is None:
            names.pop(name, None)
        else:
            names[name] = found


def _stat(found: _File | _Folder) -> Stat:
    if isinstance(found, _File):
        return Stat(len(found.written), found.modified_ms, is_file=True, is_link=False)
    return Stat(0, 0, is_file=False, is_link=False)


def _error(code: int, path: str = "") -> OSError:
    return OSError(code, os.strerror(code), path)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a store: which method, on which paths."""

    method: str
    paths: tuple[str, ...]

    @property
    def is_write(self) -> bool:
        return self.method in ("put", "put_if_absent", "put_many_if_absent", "delete")


class WrappedStore:
    """A store around another: `around` sees every call, before and after its effect."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def around(self, call: Call, effect: Callable[[], _T]) -> _T:
        return effect()

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, path: str) -> bytes:
        return self.around(Call("get", (path,)), lambda: self.inner.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.around(
            Call("get_range", (path,)), lambda: self.inner.get_range(path, start, length)
        )

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        check_path(path)
        return None  # what fails is what may wait

    def head(self, path: str) -> ObjectMeta | None:
        return self.around(Call("head", (path,)), lambda: self.inner.head(path))

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        # Drained inside, so that a listing happens when it is called for and can fail as a whole.
        return iter(
            self.around(
                Call("list", (prefix,)), lambda: [*self.inner.list(prefix, start_after, recursive)]
            )
        )

    def folders(self, prefix: str) -> Iterator[str]:
        return iter(self.around(Call("folders", (prefix,)), lambda: [*self.inner.folders(prefix)]))

    def put_if_absent(self, path: str, content: bytes) -> bool:
        return self.around(
            Call("put_if_absent", (path,)), lambda: self.inner.put_if_absent(path, content)
        )

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        return self.around(
            Call("put_many_if_absent", tuple(path for path, _ in items)),
            lambda: self.inner.put_many_if_absent(items),
        )

    def put(self, path: str, content: bytes) -> None:
        self.around(Call("put", (path,)), lambda: self.inner.put(path, content))

    def delete(self, path: str) -> None:
        self.around(Call("delete", (path,)), lambda: self.inner.delete(path))

    def set_aside(self, path: str, target: str) -> bool:
        return self.around(
            Call("set_aside", (path, target)), lambda: self.inner.set_aside(path, target)
        )

    def sync(self, paths: Sequence[str]) -> None:
        self.around(Call("sync", tuple(paths)), lambda: self.inner.sync(paths))

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        return self.around(Call("sweep", (prefix,)), lambda: self.inner.sweep(before_ms, prefix))

    def remove_link(self, folder: str = "") -> bool:
        return self.around(Call("remove_link", (folder,)), lambda: self.inner.remove_link(folder))

    def remove_folders(self) -> None:
        self.around(Call("remove_folders", ()), self.inner.remove_folders)

    def local_path(self, path: str) -> str | None:
        return self.inner.local_path(path)


class CountingStore(WrappedStore):
    """Records every call."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: deque[Call] = deque()

    def around(self, call: Call, effect: Callable[[], _T]) -> _T:
        self.calls.append(call)
        return effect()

    def count(self, *methods: str, prefix: str = "") -> int:
        """Count calls of these methods (all, if none is named) on paths that begin so."""
        return sum(
            (not methods or call.method in methods)
            and (not prefix or any(path.startswith(prefix) for path in call.paths))
            for call in tuple(self.calls)
        )


class ShufflingStore(WrappedStore):
    """Lists in an order of chance."""

    def __init__(self, inner: ObjectStore, seed: int = 0) -> None:
        super().__init__(inner)
        self._chance = random.Random(seed)

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        listed = [*super().list(prefix, start_after, recursive)]
        self._chance.shuffle(listed)
        return iter(listed)

    def folders(self, prefix: str) -> Iterator[str]:
        listed = [*super().folders(prefix)]
        self._chance.shuffle(listed)
        return iter(listed)


class StaleListStore(WrappedStore):
    """Lists nothing of what the last `lag` puts made."""

    def __init__(self, inner: ObjectStore, lag: int = 0) -> None:
        super().__init__(inner)
        self._unlisted: deque[str] = deque(maxlen=lag)

    def settle(self) -> None:
        """Let listings show everything again."""
        self._unlisted.clear()

    def around(self, call: Call, effect: Callable[[], _T]) -> _T:
        is_put = call.is_write and call.method != "delete"
        new = [p for p in call.paths if self.inner.head(p) is None] if is_put else []
        result = effect()
        self._unlisted.extend(new)
        return result

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        listed = super().list(prefix, start_after, recursive)
        return iter([meta for meta in listed if meta.path not in self._unlisted])

    def folders(self, prefix: str) -> Iterator[str]:
        return iter(
            [folder for folder in super().folders(prefix) if any(self.list(folder, None, True))]
        )


class When(enum.Enum):
    """When a call fails: before it does anything, in the middle of a batch, or after all of it."""

    BEFORE = "before"
    MIDDLE = "middle"
    AFTER = "after"


class FailingStore(WrappedStore):
    """Fails the nth call that fits, and as many more as requested."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.fails: Callable[[Call], bool] = lambda call: False
        self.when = When.BEFORE
        self.left = 0  # calls that fit and still pass
        self.times = 0  # failures to come

    def fail(
        self,
        fits: Callable[[Call], bool] = lambda call: True,
        *,
        nth: int = 1,
        times: int = 1,
        when: When = When.BEFORE,
    ) -> None:
        """Let calls fail from the nth that fits; after the effect its answer is lost."""
        self.fails, self.left, self.times, self.when = fits, nth - 1, times, when

    def around(self, call: Call, effect: Callable[[], _T]) -> _T:
        if not (self.times and self.fails(call)):
            return effect()
        if self.left:
            self.left -= 1
            return effect()
        self.times -= 1
        if self.when is When.AFTER:
            effect()
        if self.when is not When.BEFORE and call.is_write:
            raise PutUnknownError(f"The answer to {call} was lost.")
        raise UnavailableError(f"{call} was made to fail.")

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        call = Call("put_many_if_absent", tuple(path for path, _ in items))
        if self.when is When.MIDDLE and self.times and not self.left and self.fails(call):
            self.inner.put_many_if_absent(items[: len(items) // 2])
        return super().put_many_if_absent(items)


class TornStore(WrappedStore):
    """Keeps only the beginning of what is put while `keep` is set, as a writer that died would."""

    keep: int | None = None

    def put_if_absent(self, path: str, content: bytes) -> bool:
        won = super().put_if_absent(path, content[: self.keep])
        self._die(path)
        return won

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        won = super().put_many_if_absent([(path, content[: self.keep]) for path, content in items])
        for path, _ in items:
            self._die(path)
        return won

    def put(self, path: str, content: bytes) -> None:
        super().put(path, content[: self.keep])
        self._die(path)

    def _die(self, path: str) -> None:
        if self.keep is not None:
            raise PutUnknownError(f"The writer of {path} died.")


class NoStagedListing(WrappedStore):
    """Fails a test that lists staged commits: which of them count only the catalog knows."""

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        listed = [*super().list(prefix, start_after, recursive)]
        for path in (prefix, *(meta.path for meta in listed)):
            assert "_staged_commits" not in path.split("/"), f"{path} was listed"
        return iter(listed)
