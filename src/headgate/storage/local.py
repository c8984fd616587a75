"""Objects as files of a local disk, atomic and durable.

A put writes a temporary file beside its target, syncs it, renames it (exclusively, or replacing the
target), then syncs the folder: a name never has a partial file, and an acknowledged put survives a
power loss. Links to places outside of the store are refused. Nothing is deleted through a link, not
even one in the place of the store's own folder: the link itself is deleted.
"""

import errno
import os
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from headgate.failpoints import fail_point
from headgate.storage.cached_files import CachedFile
from headgate.storage.disk import Disk, Stat
from headgate.storage.object_store import (
    RESERVED,
    ObjectMeta,
    PutUnknownError,
    check_batch,
    check_folder,
    check_path,
    check_range,
    encode,
    missing,
    upto_false,
)

_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_MISPLACED: Final = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
_LATEST_MS: Final = 2**63
_MAX_OPEN: Final = 128  # files of a batch that are open together, well below usual limits

# One for the process: a disk that failed one store has failed all.
DISK: Final = Disk()


class LocalStore:
    """The files below one folder. Safe for many threads and many processes."""

    def __init__(self, root: str | Path, disk: Disk = DISK) -> None:
        root = os.path.abspath(root)  # noqa: PTH100 - links are followed later, not in the URL
        self.url = f"file://{encode(root)}"
        self._disk = disk
        self._is_learned = False  # whether `peek` can be used where the store is
        # Links above the store are the administrator's. The store's own folder is checked by each
        # call: it may become a link at any time, and nothing is deleted through that.
        above, _, name = root.rpartition("/")
        self._root = f"{disk.resolve(above or '/').rstrip('/')}/{name}".rstrip("/")

    def make_root(self) -> None:
        """Create the store's own folder, durably."""
        self._disk.refuse_if_failed()
        root = self._root or "/"
        try:
            self._disk.stat(root)
        except FileNotFoundError:
            self._disk.durable = {"/"}  # folders that were synced may have been removed since
        self._make_folder(root)

    def get(self, path: str) -> bytes:
        with self._reading(path) as (fd, size):
            return self._read(fd, 0, size)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._reading(path) as (fd, size):
            return self._read(fd, start, max(0, min(length, size - start)))

    def head(self, path: str) -> ObjectMeta | None:
        with self._errors(path):
            found = self._stat(self._locate(path))
        return ObjectMeta(path, found.size, found.modified_ms) if found else None

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        return self._disk.peek(self._root, check_path(path), most)

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        for path, full in self._walk(check_folder(prefix), recursive):
            if _is_temporary(full) or (start_after is not None and path <= start_after):
                continue
            with self._errors(path), suppress(InvalidArgumentError):  # a link to outside
                if found := self._stat(full):
                    yield ObjectMeta(path, found.size, found.modified_ms)

    def folders(self, prefix: str) -> Iterator[str]:
        for path, _, is_folder in self._entries(check_folder(prefix)):
            if is_folder:
                yield path

    def put_if_absent(self, path: str, content: bytes) -> bool:
        return self.put_many_if_absent([(path, content)])[0]

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        [done] = put_together([(self, items)])
        if isinstance(done, Exception):
            raise done
        return done

    def put(self, path: str, content: bytes) -> None:
        self._disk.refuse_if_failed()
        with self._errors(path, writing=True):
            target = self._locate(path)
            batch = _Batch(self, [(path, content)])
            try:
                _write_synced([batch])
                if batch.error is not None:
                    raise batch.error
                self._disk.replace(batch.temporaries[0], target)
                batch.temporaries.popleft()
            finally:
                batch.remove_temporaries()
            self._sync(_parent(target))

    def delete(self, path: str) -> None:
        full = self._own(check_path(path))
        with self._errors(path, writing=True):
            try:
                self._disk.unlink(full)
            except OSError as error:
                if error.errno not in (*_ABSENT, errno.EISDIR):  # a folder is not an object
                    raise
                if self._is_behind_link(full):
                    raise InvalidArgumentError(
                        f"{full} is behind a link: nothing is deleted through it.",
                        remedy="Remove the link, and its target if that is no longer needed.",
                    ) from None

    def set_aside(self, path: str, target: str) -> bool:
        self._disk.refuse_if_failed()
        with self._errors(path, writing=True):
            source, full = self._locate(path), self._locate(target)
            try:
                self._disk.stat(source)
            except OSError as error:
                if error.errno in _ABSENT:
                    return False
                raise
            try:
                self._disk.move(source, full)
            except FileExistsError:
                raise InvalidArgumentError(f"{target} in {self.url} exists already.") from None
            self._sync(_parent(source))
        return True

    def sync(self, paths: Sequence[str]) -> None:
        self._disk.refuse_if_failed()
        targets = [self._locate(path) for path in paths]
        folders = list(dict.fromkeys(_parent(target) for target in targets))
        self._sync(*targets)
        for folder in folders:
            with self._errors(folder, writing=True), suppress(FileNotFoundError):
                self._disk.stat(folder)  # one that was removed has no name to sync
                self._settle(folder)
        self._sync(*folders)

    def device(self) -> int | None:
        """Return the device that the store is on; None if its folder does not exist."""
        return self._disk.device(self._root or "/")

    def local_path(self, path: str) -> str | None:
        with self._errors(path):
            return self._follow(self._locate(path))

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        swept = 0
        for path, full in self._walk(check_folder(prefix), recursive=True):
            with (
                self._errors(path, writing=True),
                suppress(FileNotFoundError, NotADirectoryError),
            ):
                if _is_temporary(full) and self._disk.stat(full).modified_ms < before_ms:
                    self._disk.unlink(self._own(path))
                    swept += 1
        return swept

    def remove_link(self, folder: str = "") -> bool:
        full = self._own(check_folder(folder)).rstrip("/")
        with self._errors(folder, writing=True):
            try:
                if not self._disk.stat(full or "/").is_link:
                    return False
                self._disk.unlink(full)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                return False
            self._disk.durable = {"/"}
        return True

    def remove_folders(self) -> None:
        self.sweep(_LATEST_MS)
        folders, pending = [self._root], [""]
        while pending:
            for path, full, is_folder in self._entries(pending.pop()):
                if is_folder:
                    folders.append(self._own(path))
                    pending.append(path)
                    continue
                with suppress(OSError):
                    if self._disk.stat(full).is_link:  # its target is outside, or missing
                        self._disk.unlink(self._own(path))
        self._disk.durable = {"/"}  # a folder that is created again has a new name to sync
        for folder in reversed(folders):  # inner ones first
            with suppress(OSError):  # one that is still in use is kept
                self._disk.remove_folder(folder)

    # Paths

    def _own(self, path: str) -> str:
        """Return the absolute path of an object to delete: no link on it is followed."""
        return f"{self._root}/{path}"

    def _locate(self, path: str) -> str:
        """Return the absolute path of an object, with links among its folders followed."""
        at = self._real_root()
        *folders, name = check_path(path).split("/")
        for folder in folders:
            at = self._follow(f"{at}/{folder}")
        return f"{at}/{name}"

    def _follow(self, full: str) -> str:
        """Follow a link to a place in the store; refuse one to a place outside or to itself."""
        try:
            if not self._disk.stat(full).is_link:
                return full
        except OSError:
            return full  # opening it raises the error
        resolved = self._disk.resolve(full)
        if not f"{resolved}/".startswith(f"{self._disk.resolve(self._root or '/').rstrip('/')}/"):
            raise InvalidArgumentError(f"The link {full} leads out of {self._root}.")
        with suppress(OSError):  # its target may be missing
            if self._disk.stat(resolved).is_link:
                raise InvalidArgumentError(f"The link {full} leads to itself.")
        return resolved

    def _real_root(self) -> str:
        """Return the store's own folder, followed if it is a link: for reads and writes only."""
        try:
            is_link = self._disk.stat(self._root or "/").is_link
        except OSError:
            return self._root
        return self._disk.resolve(self._root).rstrip("/") if is_link else self._root

    def _is_behind_link(self, full: str) -> bool:
        """Return True if the store's own folder, or one below it on the path, is a link."""
        at = self._root
        try:
            for folder in ["", *full[len(self._root) + 1 :].split("/")[:-1]]:
                at = f"{at}/{folder}" if folder else at
                if self._disk.stat(at or "/").is_link:
                    return True
        except OSError:
            pass  # a missing folder is not a link
        return False

    def _stat(self, full: str) -> Stat | None:
        try:
            found = self._disk.stat(full)
            if found.is_link:
                found = self._disk.stat(self._follow(full))
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return found if found.is_file else None

    def _walk(self, folder: str, recursive: bool) -> Iterator[tuple[str, str]]:
        pending = [folder]
        while pending:
            for path, full, is_folder in self._entries(pending.pop()):
                if not is_folder:
                    yield path, full
                elif recursive:
                    pending.append(path)

    def _entries(self, folder: str) -> Iterator[tuple[str, str, bool]]:
        with self._errors(folder):
            full = self._follow(self._locate(folder)) if folder else self._real_root() or "/"
            try:
                for entry in self._disk.entries(full):
                    if _is_text(entry.name):  # otherwise no path can name it
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        yield path, f"{full}/{entry.name}", entry.is_folder
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise

    # Reading

    def _open(self, full: str) -> int:
        try:
            return self._disk.open(full)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return self._disk.open(self._follow(full))

    @contextmanager
    def _reading(self, path: str) -> Iterator[tuple[int, int]]:
        with self._errors(path):
            fd = self._open(self._locate(path))
            try:
                found = self._disk.stat_open(fd)
                if not found.is_file:
                    raise missing(self.url, path)
                if not self._is_learned:
                    self._disk.learn(fd)
                    self._is_learned = True
                yield fd, found.size
            finally:
                self._disk.close(fd)

    def _read(self, fd: int, start: int, length: int) -> bytes:
        content = b""
        while len(content) < length:
            more = self._disk.read(fd, start + len(content), length - len(content))
            if not more:
                break
            content += more
        return content

    # Writing

    def _create(self, name: str) -> int:
        try:
            return self._disk.create(name)
        except FileNotFoundError:  # the folder was removed since we created it
            self._disk.durable = {"/"}
            self._make_folder(_parent(name))
            return self._disk.create(name)

    def _make_folder(self, folder: str) -> str:
        """Create a folder durably."""
        try:
            self._make_missing(folder)
        except (FileNotFoundError, NotADirectoryError):
            self._disk.durable = {"/"}  # a folder was removed or replaced since it was synced
            self._make_missing(folder)
        return folder

    def _make_missing(self, folder: str) -> None:
        if folder not in self._disk.durable:
            self._make_missing(_parent(folder))
            with suppress(FileExistsError):
                self._disk.make_folder(folder)
            self._settle(folder)

    def _settle(self, folder: str) -> None:
        """Sync the names of a folder and those above it, once: others may have created them."""
        if folder in self._disk.durable:
            return
        self._settle(_parent(folder))
        try:
            fd = self._disk.open(_parent(folder))
        except PermissionError:
            pass  # execute permission only: another user's folder, which we need not sync
        else:
            try:
                self._sync_open([fd], _parent(folder))
            finally:
                self._disk.close(fd)
        self._disk.durable.add(folder)

    # Syncing

    def _sync(self, *fulls: str) -> None:
        _sync_visible([(self, full) for full in fulls])

    def _sync_open(self, fds: Sequence[int], full: str) -> None:
        try:
            self._disk.sync_together(fds)
        except OSError as error:
            if error.errno not in _FULL:
                which = full if len(fds) == 1 else f"one of {len(fds)} files with {full}"
                self._disk.fail(f"{which} could not be synced: {error.strerror}")
            raise

    def _unknown(self, full: str) -> PutUnknownError:
        return PutUnknownError(
            f"It is not known whether {full} would survive a power loss.",
            remedy="Check the disk, restart this process, then send the same again.",
        )

    @contextmanager
    def _errors(self, path: str, writing: bool = False) -> Iterator[None]:
        """Convert the system's errors to ours."""
        try:
            yield
        except OSError as error:
            what = f"{path} in {self.url}: {error.strerror}."
            match error.errno:
                case code if code in _ABSENT and not writing:
                    raise missing(self.url, path) from error
                case code if code in _FULL:
                    raise UnavailableError(
                        f"The disk is full; nothing was put at {what}", remedy="Free some space."
                    ) from error
                case code if code in _FORBIDDEN:
                    raise PermissionDeniedError(
                        f"The system denies access to {what}",
                        remedy="Give this process permission for the folder.",
                    ) from error
                case code if code in _MISPLACED:
                    raise InvalidArgumentError(f"There can be no object {what}") from error
                case _:
                    raise UnavailableError(f"The disk failed at {what}") from error


def put_together(
    batches: Sequence[tuple[LocalStore, Sequence[tuple[str, bytes]]]],
) -> Sequence[Sequence[bool] | HeadgateError]:
    """Put a batch into each of several stores as `put_many_if_absent` does, synced together.

    Returns for each store what that call would return, or the error that it would raise. The
    stores must be on the same `Disk`.
    """
    parts = [_Batch(store, items) for store, items in batches]
    try:
        _write_synced(parts)
        fail_point("storage.after_sync")
        for part in parts:
            part.name_files()
    finally:
        for part in parts:
            part.remove_temporaries()
    fail_point("storage.before_sync_folders")
    named = [part for part in parts if part.error is None and part.won]
    try:
        _sync_visible([(part.store, _parent(part.targets[0])) for part in named])
    except PutUnknownError as error:
        for part in named:
            part.error = error
    return [part.won if part.error is None else part.error for part in parts]


class _Batch:
    """New files of one store while they are put together with those of others."""

    def __init__(self, store: LocalStore, items: Sequence[tuple[str, bytes]]) -> None:
        self.store = store
        self.items = items
        self.targets: Sequence[str] = ()
        self.temporaries: deque[str] = deque()  # those that have no other name yet
        self.won: Sequence[bool] = ()
        self.error: HeadgateError | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keep the error of a step, after which no other one is done."""
        try:
            with self.store._errors(self.items[0][0] if self.items else "", writing=True):
                yield
        except HeadgateError as error:
            self.error = error

    def prepare(self) -> Iterator[tuple[str, bytes]]:
        """Create the folder; return the name and the content of each temporary file."""
        self.store._disk.refuse_if_failed()
        check_batch(self.items)
        if not self.items:
            return iter(())
        # All are in one folder, which is checked once.
        folder = self.store._make_folder(_parent(self.store._locate(self.items[0][0])))
        self.targets = [f"{folder}/{path.rpartition('/')[2]}" for path, _ in self.items]
        own = f"{folder}/{RESERVED}{secrets.token_hex(8)}"
        return ((f"{own}-{number}", content) for number, (_, content) in enumerate(self.items))

    def name_files(self) -> None:
        """Name the files in order, up to a name that exists."""
        if self.error is not None:
            return
        with self.step():
            self.won = upto_false(self._name(target) for target in self.targets)
            # The process that put an existing file may not have synced it yet.
            self.store._sync(*self.targets[self.won.count(True) : len(self.won)])

    def _name(self, target: str) -> bool:
        try:
            self.store._disk.move(self.temporaries[0], target)
        except FileExistsError:
            with suppress(FileNotFoundError):
                found = self.store._disk.stat(target)
                if not (found.is_file or found.is_link):
                    raise InvalidArgumentError(f"{target} exists and is not a file.") from None
            return False
        self.temporaries.popleft()
        fail_point("storage.after_name")
        return True

    def remove_temporaries(self) -> None:
        for name in self.temporaries:
            with suppress(OSError):
                self.store._disk.unlink(name)


def _write_synced(batches: Sequence[_Batch]) -> None:
    """Write and sync the temporary files of all batches, a limited number at a time."""
    store = batches[0].store
    opened: list[int] = []
    name = ""
    failure: OSError | None = None

    def sync() -> None:
        nonlocal failure
        try:
            store._sync_open(opened, name)
        except OSError as error:
            failure = error
        finally:
            close()

    def close() -> None:
        while opened:
            store._disk.close(opened.pop())

    try:
        for batch in batches:
            with batch.step():
                for name, content in batch.prepare():
                    opened.append(batch.store._create(name))
                    batch.temporaries.append(name)
                    rest = memoryview(content)
                    while rest:
                        rest = rest[store._disk.write(opened[-1], rest) :]
                    if len(opened) == _MAX_OPEN:
                        sync()
                    if failure is not None:
                        break
            if failure is not None:
                break
        fail_point("storage.before_sync")
        if opened:
            sync()
    finally:
        close()
    if failure is not None:  # which file it was is not known
        for batch in batches:
            with batch.step():
                raise failure


def _sync_visible(files: Sequence[tuple[LocalStore, str]]) -> None:
    """Sync what is visible to others already: an error leaves the outcome unknown."""
    for first in range(0, len(files), _MAX_OPEN):
        fds: list[int] = []
        store, name = files[first]
        try:
            for owner, full in files[first : first + _MAX_OPEN]:
                with suppress(FileNotFoundError):  # removed meanwhile
                    fds.append(owner._open(full))
            store._sync_open(fds, name)
        except OSError as error:
            raise store._unknown(name) from error
        finally:
            for fd in fds:
                store._disk.close(fd)
        if store._disk.failed is not None:  # only one thread gets the system's error
            raise store._unknown(name)


def _parent(full: str) -> str:
    return full.rpartition("/")[0] or "/"


def _is_temporary(full: str) -> bool:
    return full.rpartition("/")[2].startswith(RESERVED)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)
