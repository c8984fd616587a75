"""Objects in memory, for tests and for lakes that live only as long as their process."""

import threading
from collections.abc import Callable, Iterator, Sequence

from headgate.storage import object_store


class MemoryStore(object_store.FlatStore):
    """Objects in this process. Safe for many threads."""

    def __init__(self, url: str = "memory://store", now_ms: Callable[[], int] = lambda: 0) -> None:
        self.url = url
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    def get(self, path: str) -> bytes:
        found = self._objects.get(object_store.check_path(path))
        if found is None:
            raise object_store.missing(self.url, path)
        return found[0]

    def get_range(self, path: str, start: int, length: int) -> bytes:
        object_store.check_range(start, length)
        return self.get(path)[start : start + length]

    def head(self, path: str) -> object_store.ObjectMeta | None:
        found = self._objects.get(object_store.check_path(path))
        return found and object_store.ObjectMeta(path, len(found[0]), found[1])

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[object_store.ObjectMeta]:
        for path, (content, modified_ms) in self._within(prefix):
            nested = "/" in path[len(prefix.removesuffix("/")) :].removeprefix("/")
            if (recursive or not nested) and (start_after is None or path > start_after):
                yield object_store.ObjectMeta(path, len(content), modified_ms)

    def folders(self, prefix: str) -> Iterator[str]:
        depth = object_store.check_folder(prefix).count("/") + 1 if prefix.removesuffix("/") else 0
        paths = (path.split("/") for path, _ in self._within(prefix))
        yield from sorted({"/".join(p[: depth + 1]) for p in paths if len(p) > depth + 1})

    def put_if_absent(self, path: str, content: bytes) -> bool:
        stored = (bytes(content), self._now_ms())
        with self._lock:
            return self._objects.setdefault(object_store.check_path(path), stored) is stored

    def put(self, path: str, content: bytes) -> None:
        with self._lock:
            self._objects[object_store.check_path(path)] = (bytes(content), self._now_ms())

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(object_store.check_path(path), None)

    def _within(self, prefix: str) -> Sequence[tuple[str, tuple[bytes, int]]]:
        folder = object_store.check_folder(prefix)
        with self._lock:
            held = list(self._objects.items())
        return [item for item in held if not folder or item[0].startswith(folder + "/")]
