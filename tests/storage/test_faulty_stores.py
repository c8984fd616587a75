"""Faulty stores behave like any other until a fault is requested, and then as requested."""

import pytest

from headgate.errors import UnavailableError
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore, PutUnknownError
from tests.kit import shows
from tests.kit.faulty_stores import (
    CountingStore,
    FailingStore,
    NoStagedListing,
    ShufflingStore,
    StaleListStore,
    TornStore,
    When,
)
from tests.storage.object_store_contract import ObjectStoreContract, put_all


class TestCountingStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CountingStore(MemoryStore())


class TestShufflingStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return ShufflingStore(MemoryStore())


class TestStaleListStoreWithoutLag(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return StaleListStore(MemoryStore())


class TestFailingStoreThatDoesNot(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FailingStore(MemoryStore())


class TestTornStoreThatKeepsAll(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return TornStore(MemoryStore())


class TestNoStagedListing(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return NoStagedListing(MemoryStore())


BATCH = [(f"log/{number}", b"%d" % number) for number in range(4)]


def listed(store: ObjectStore) -> list[str]:
    return [meta.path for meta in store.list("log")]


def test_calls_are_counted_by_method_and_prefix() -> None:
    store = CountingStore(MemoryStore())
    store.put("log/1", b"")
    store.put_many_if_absent(BATCH)
    store.head("data/x")
    list(store.list("log"))
    assert store.count() == 4
    assert store.count("put", "put_many_if_absent", prefix="log/") == 2
    assert store.count("head", prefix="log/") == 0
    assert store.count("list") == 1
    assert [call.method for call in store.calls] == ["put", "put_many_if_absent", "head", "list"]


def test_listings_come_in_an_order_of_chance() -> None:
    store = ShufflingStore(MemoryStore(), seed=3)
    store.put_many_if_absent(BATCH)
    orders = {tuple(listed(store)) for _ in range(20)}
    assert len(orders) > 1
    assert {frozenset(order) for order in orders} == {frozenset(path for path, _ in BATCH)}


@shows("FP17")
def test_what_a_listing_does_not_show_yet_is_there_all_the_same() -> None:
    store = StaleListStore(MemoryStore(), lag=2)
    store.put_many_if_absent(BATCH)
    assert listed(store) == ["log/0", "log/1"]
    assert store.get("log/3") == b"3"
    assert store.head("log/3") is not None
    assert store.put_if_absent("log/3", b"other") is False
    store.put("log/4", b"")
    assert listed(store) == ["log/0", "log/1", "log/2"]
    store.settle()
    assert len(listed(store)) == 5


def test_the_nth_call_that_fits_fails_before_its_effect() -> None:
    store = FailingStore(MemoryStore())
    store.fail(lambda call: call.method == "put_if_absent", nth=2, times=2)
    store.put("log/x", b"")
    assert store.put_if_absent("log/1", b"")
    for _ in range(2):
        with pytest.raises(UnavailableError):
            store.put_if_absent("log/2", b"")
    assert store.head("log/2") is None
    assert store.put_if_absent("log/2", b"")


def test_a_lost_answer_comes_after_its_effect() -> None:
    store = FailingStore(MemoryStore())
    store.fail(when=When.AFTER)
    with pytest.raises(PutUnknownError):
        store.put_if_absent("log/1", b"ours")
    assert store.put_if_absent("log/1", b"ours") is False
    assert store.get("log/1") == b"ours"


def test_a_batch_fails_in_its_middle() -> None:
    store = FailingStore(MemoryStore())
    store.fail(when=When.MIDDLE)
    with pytest.raises(PutUnknownError):
        store.put_many_if_absent(BATCH)
    assert listed(store) == ["log/0", "log/1"]
    assert put_all(store, BATCH) == [False, False, True, True]


def test_a_torn_put_leaves_a_beginning() -> None:
    store = TornStore(MemoryStore())
    store.keep = 3
    with pytest.raises(PutUnknownError):
        store.put_if_absent("log/1", b"whole")
    assert store.get("log/1") == b"who"


@pytest.mark.parametrize(
    ("prefix", "recursive"), [("log/_staged_commits", False), ("log", True), ("", True)]
)
def test_listing_staged_commits_fails_the_test(prefix: str, recursive: bool) -> None:
    store = NoStagedListing(MemoryStore())
    store.put("log/_staged_commits/7.json", b"")
    store.put("log/7.json", b"")
    assert listed(store) == ["log/7.json"]
    with pytest.raises(AssertionError, match="was listed"):
        list(store.list(prefix, recursive=recursive))
