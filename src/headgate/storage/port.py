"""The port through which everything reads and writes bytes under names.

A path is relative to the root of its store, `/`-separated and already decoded: no leading `/`, no
empty, `.` or `..` segment, no NUL. `check_path` is the one place that says so; every store calls
it first. Names beginning with `.hg-` are a store's own and no caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from headgate.errors import HeadgateError, InvalidArgumentError, NotFoundError, Retry

RESERVED: Final = ".hg-"
_UNENCODED: Final = "/!$&'()*+,;=:@~"  # with letters, digits and `-._` what may stand in a path


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store says about one object."""

    path: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Bytes under names: whole, durable once a call returned, put by exactly one of many.

    Whatever a call that writes answers, what lies under the name afterwards is whole. An
    `UnavailableError` means that a single put did not happen; a `PutUnknownError` that it may
    have. Nothing is promised about the order or the freshness of a listing.
    """

    @property
    def url(self) -> str:
        """Where the root lies, in the one spelling of `headgate.storage.locations`."""
        ...

    def get(self, path: str) -> bytes:
        """Read an object whole, or raise `NotFoundError`."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`, fewer where the object ends before."""
        ...

    def head(self, path: str) -> ObjectMeta | None:
        """Say what is there, or that nothing is."""
        ...

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        """Yield the objects of a folder whose path sorts after `start_after`, in any order."""
        ...

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the paths of the folders directly in a folder; some may turn out to be empty."""
        ...

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Put an object where none is, and say whether it was this call that did.

        Either answer is durable: what is there will be there after a power loss.
        """
        ...

    def put_many_if_absent(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        """Put objects of one folder in their order, cheaper than one by one.

        After a crash a beginning of them is there, never a later one without the earlier. At one
        that is there already it stops and answers False for it: the answers end there. After an
        error a beginning of them may be there, each whole; the same again is safe.
        """
        ...

    def put(self, path: str, content: bytes) -> None:
        """Put an object, in place of the one that may be there: readers see the old or the new."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; fine if there is none. Durable only after `sync`."""
        ...

    def set_aside(self, path: str, target: str) -> bool:
        """Move whatever has a name to a free name in its folder; return False if nothing has it.

        On a disk that includes a link, which is not followed, and a folder with all it holds.
        """
        ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make durable what others wrote or removed under these paths."""
        ...

    def sweep(self, before_ms: int, prefix: str = "") -> int:
        """Remove what writers that died left unfinished before a time; say how much it was."""
        ...

    def remove_link(self, folder: str = "") -> bool:
        """Remove a link in the place of a folder, by default of the root, and nothing behind it.

        Returns False if it is no link; only a disk has any.
        """
        ...

    def remove_folders(self) -> None:
        """Remove what is left where no object is any more: folders, whose names may tell of data.

        What writers that died left unfinished goes too, and so do links, but not what they lead to.
        A folder that holds something else stays.
        """
        ...

    def local_path(self, path: str) -> str | None:
        """Name the file on this machine that holds the object, where there is one."""
        ...


class PutUnknownError(HeadgateError):
    """A put may have happened: the disk did not sync it, or the bucket's answer was lost.

    On a disk a second sync may succeed although the first one lost the bytes, so it proves
    nothing: that store writes no more, and what a new process finds decides.
    """

    code = "put-unknown"
    retry = Retry.SAME_AGAIN
    remedy = "Send the same again: if it happened, it will be found."


def check_path(path: str) -> str:
    """Return `path` if it may name an object of a store; refuse it otherwise."""
    if "\0" in path:
        raise InvalidArgumentError(f"The path {path!r} contains NUL.")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidArgumentError(f"The path {path!r} has a segment {segment!r}.")
        if segment.startswith(RESERVED):
            raise InvalidArgumentError(f"The path {path!r} has a name kept for unfinished writes.")
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"The path {path!r} is not valid Unicode.") from None
    return path


def check_folder(prefix: str) -> str:
    """Return the folder `prefix` without a closing `/`; the root is empty."""
    prefix = prefix.removesuffix("/")
    return check_path(prefix) if prefix else ""


def check_batch(items: Sequence[tuple[str, bytes]]) -> None:
    """Refuse a batch that is not all in one folder: only there is the order of puts kept."""
    if len({check_path(path).rpartition("/")[0] for path, _ in items}) > 1:
        raise InvalidArgumentError("The objects of one batch lie in more than one folder.")


def check_range(start: int, length: int) -> None:
    """Refuse a range that begins before the object or ends before it begins."""
    if start < 0 or length < 0:
        raise InvalidArgumentError(f"There is no range of {length} bytes from {start}.")


def upto_false(answers: Iterable[bool]) -> Sequence[bool]:
    """Take answers one by one until one is False, that one included."""
    taken: list[bool] = []
    for answer in answers:
        taken.append(answer)
        if not answer:
            break
    return taken


def encode(path: str) -> str:
    """Percent-encode a path the way every URL of ours spells it."""
    return quote(path, _UNENCODED)


def missing(url: str, path: str) -> NotFoundError:
    """Build the error for an object that is not there."""
    return NotFoundError(
        f"There is no object {path} in {url}.",
        remedy="Check the path; `headgate fsck` says what a table's log misses.",
    )


def copy_and_delete(store: ObjectStore, path: str, target: str) -> bool:
    """Set an object aside in a store that cannot rename."""
    if store.head(path) is None:
        return False
    if not store.put_if_absent(target, store.get(path)):
        raise InvalidArgumentError(f"{target} in {store.url} is taken.")
    store.delete(path)
    return True


class Folder:
    """A folder of another store, seen as a store of its own."""

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
        pass  # only stores without real folders are seen in parts: on a disk each has its own root

    def local_path(self, path: str) -> str | None:
        return self._store.local_path(self._outer(path))

    def _outer(self, path: str) -> str:
        return f"{self._prefix}/{check_path(path)}"

    def _outer_folder(self, prefix: str) -> str:
        folder = check_folder(prefix)
        return f"{self._prefix}/{folder}" if folder else self._prefix

    def _inner(self, path: str) -> str:
        return path[len(self._prefix) + 1 :]
