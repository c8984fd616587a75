"""Objects in memory, alone and as a folder of another store."""

import pytest

from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import Folder, ObjectMeta
from tests.storage.object_store_contract import ObjectStoreContract


class TestMemoryStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestFolderOfAStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> Folder:
        outer = MemoryStore("memory://outer")
        outer.put("elsewhere", b"")
        outer.put("tables/71/not ours", b"")
        return Folder(outer, "tables/7", "memory://outer/tables/7")


def test_objects_bear_the_time_the_clock_told() -> None:
    times = iter([5, 9])
    store = MemoryStore(now_ms=lambda: next(times))
    store.put("a", b"12")
    assert store.head("a") == ObjectMeta("a", 2, modified_ms=5)
    store.put("a", b"1")
    assert store.head("a") == ObjectMeta("a", 1, modified_ms=9)


def test_a_folder_writes_below_its_prefix() -> None:
    outer = MemoryStore("memory://outer")
    Folder(outer, "tables/7", "memory://outer/tables/7").put("log/0", b"zero")
    assert outer.get("tables/7/log/0") == b"zero"
