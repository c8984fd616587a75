"""The port for object storage: bytes under names.

A path is relative to the root of its store, `/`-separated and already decoded: no leading `/`, no
empty, `.` or `..` segment, no NUL. Every store calls `check_path` first. Names that begin with
`.hg-` are reserved for the stores.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from headgate.errors import HeadgateError, InvalidArgumentError, NotFoundError, Retry
from headgate.storage.cached_files import CachedFile

RESERVED: Final = ".hg-"
_UNENCODED: Final = "/!$&'()*+,;=:@~"  # allowed in a path, besides letters, digits and `-._`


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Path, size and time of an object."""

    path: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Bytes under names. A put is atomic, and durable once it returns.

    Of several conditional puts to one name exactly one succeeds. An `UnavailableError` means that a
    single put did not happen, a `PutUnknownError` that it may have; an object is complete in either
    case. A listing may be in any order and out of date.
    """

    @property
    def url(self) -> str:
        """The location of the root, in the normal form of `headgate.storage.locations`."""

    def get(self, path: str) -> bytes:
        """Read an object, or raise `NotFoundError`."""

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`, fewer if the object ends before that."""

    def head(self, path: str) -> ObjectMeta | None:
        """Return size and time of an object; None if it does not exist."""

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        """Return an object, with content of at most so many bytes, only if nothing has to wait."""

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        """Yield the objects of a folder whose path sorts after `start_after`, in any order."""

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the paths of the folders directly in a folder; some may be empty."""

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Put an object unless one exists; return False if one does. Durable either way."""

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        """Put objects of one folder in order, cheaper than one by one.

        Stops at an object that exists already: the result ends with False for it. After a crash or
        an error some of the first objects may exist, each complete, never a later one without the
        earlier ones; the call may be repeated.
        """

    def put(self, path: str, content: bytes) -> None:
        """Put an object, replacing an existing one: readers see the old or the new content."""

    def delete(self, path: str) -> None:
        """Delete an object if it exists. Durable only after `sync`."""

    def set_aside(self, path: str, target: str) -> bool:
        """Rename whatever is at a path to a free name in its folder; return False if nothing is.

        On a disk that includes a link, which is not followed, and a folder with its content.
        """

    def sync(self, paths: Sequence[str]) -> None:
        """Make durable what other processes wrote or deleted at these paths."""

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        """Delete temporary files of crashed writers, older than a time; return their number."""

    def remove_link(self, folder: str = "") -> bool:
        """Delete a link that is in the place of a folder, by default the root, but not its target.

        Returns False if it is not a link; only a disk has links.
        """

    def remove_folders(self) -> None:
        """Delete empty folders once all objects are deleted: their names may reveal data.

        Temporary files of crashed writers and links are deleted too, but not the targets of links.
        A folder with anything else in it is kept.
        """

    def local_path(self, path: str) -> str | None:
        """Return the path of the file on this machine that holds the object, if there is one."""


class PutUnknownError(HeadgateError):
    """A put may have happened: the disk did not sync it, or the bucket's answer was lost.

    On a disk a second sync may succeed although the first one lost the bytes, so it proves
    nothing: the store stops writing, and a new process decides by what it finds.
    """

    code = "put-unknown"
    retry = Retry.SAME_AGAIN
    remedy = "Send the same again: if it happened, it will be found."


def check_path(path: str) -> str:
    """Return `path` if it is a valid path of an object; refuse it otherwise."""
    if "\0" in path:
        raise InvalidArgumentError(f"The path {path!r} contains NUL.")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidArgumentError(f"The path {path!r} has a segment {segment!r}.")
        if segment.startswith(RESERVED):
            raise InvalidArgumentError(f"The path {path!r} has a name that stores reserve.")
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"The path {path!r} is not valid Unicode.") from None
    return path


def check_folder(prefix: str) -> str:
    """Return the folder `prefix` without a trailing `/`; the root is empty."""
    prefix = prefix.removesuffix("/")
    return check_path(prefix) if prefix else ""


def check_batch(items: Sequence[tuple[str, bytes]]) -> None:
    """Refuse a batch in more than one folder: the order of puts is kept only within one."""
    if len({check_path(path).rpartition("/")[0] for path, _ in items}) > 1:
        raise InvalidArgumentError("The objects of one batch are in more than one folder.")


def check_range(start: int, length: int) -> None:
    """Refuse a negative start or length."""
    if start < 0 or length < 0:
        raise InvalidArgumentError(f"The range of {length} bytes from {start} is not valid.")


def upto_false(results: Iterable[bool]) -> Sequence[bool]:
    """Take results one by one up to the first False, that one included."""
    taken: list[bool] = []
    for result in results:
        taken.append(result)
        if not result:
            break
    return taken


def encode(path: str) -> str:
    """Percent-encode a path as in a normalized location."""
    return quote(path, _UNENCODED)


def missing(url: str, path: str) -> NotFoundError:
    """Return the error for an object that does not exist."""
    return NotFoundError(
        f"There is no object {path} in {url}.",
        remedy="Check the path; `headgate fsck` lists files that a table's log misses.",
    )


class FlatStore:
    """A store without folders, links and partial objects, whose puts are durable at once."""

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        check_path(path)
        return None

    def put_many_if_absent(self: ObjectStore, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        check_batch(items)
        return upto_false(self.put_if_absent(path, content) for path, content in items)

    def set_aside(self: ObjectStore, path: str, target: str) -> bool:
        if self.head(path) is None:
            return False
        if not self.put_if_absent(target, self.get(path)):
            raise InvalidArgumentError(f"{target} in {self.url} exists already.")
        self.delete(path)
        return True

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_path(path)

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        check_folder(prefix)
        return 0

    def remove_link(self, folder: str = "") -> bool:
        check_folder(folder)
        return False

    def remove_folders(self) -> None:
        pass

    def local_path(self, path: str) -> str | None:
        check_path(path)
        return None


class Folder:
    """A folder of another store, as a store."""

    def __init__(self, store: ObjectStore, prefix: str, url: str) -> None:
        self.url = url
        self._store = store
        self._prefix = check_folder(prefix)

    def get(self, path: str) -> bytes:
        return self._store.get(self._outer(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._store.get_range(self._outer(path), start, length)

    def head(self, path: str) -> ObjectMeta | None:
        found = self._store.head(self._outer(path))
        return found and ObjectMeta(path, found.size, found.modified_ms)

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        return self._store.peek(self._outer(path), most)

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        after = None if start_after is None else f"{self._prefix}/{start_after}"
        for found in self._store.list(self._outer_folder(prefix), after, recursive):
            yield ObjectMeta(self._inner(found.path), found.size, found.modified_ms)

    def folders(self, prefix: str) -> Iterator[str]:
        for path in self._store.folders(self._outer_folder(prefix)):
            yield self._inner(path)

    def put_if_absent(self, path: str, content: bytes) -> bool:
        return self._store.put_if_absent(self._outer(path), content)

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        return self._store.put_many_if_absent([(self._outer(p), content) for p, content in items])

    def put(self, path: str, content: bytes) -> None:
        self._store.put(self._outer(path), content)

    def delete(self, path: str) -> None:
        self._store.delete(self._outer(path))

    def set_aside(self, path: str, target: str) -> bool:
        return self._store.set_aside(self._outer(path), self._outer(target))

    def sync(self, paths: Sequence[str]) -> None:
        self._store.sync([self._outer(path) for path in paths])

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        return self._store.sweep(before_ms, self._outer_folder(prefix))

    def remove_link(self, folder: str = "") -> bool:
        return self._store.remove_link(self._outer_folder(folder))

    def remove_folders(self) -> None:
        pass  # used only over stores without real folders: on a disk each root has its own store

    def local_path(self, path: str) -> str | None:
        return self._store.local_path(self._outer(path))

    def _outer(self, path: str) -> str:
        return f"{self._prefix}/{check_path(path)}"

    def _outer_folder(self, prefix: str) -> str:
        folder = check_folder(prefix)
        return f"{self._prefix}/{folder}" if folder else self._prefix

    def _inner(self, path: str) -> str:
        return path[len(self._prefix) + 1 :]
