"""What every object store does, whatever holds the bytes."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.errors import InvalidArgumentError, NotFoundError
from headgate.storage.cached_files import CachedFile
from headgate.storage.object_store import ObjectStore

BAD_PATHS = [
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "a\0b",
    "\ud800", "a/.hg-1", ".hg-1/a",
]  # fmt: skip

SEGMENTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=12
).filter(lambda s: s not in (".", "..") and not s.startswith(".hg-"))
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


def paths(store: ObjectStore, *args: object, **options: object) -> set[str]:
    return {meta.path for meta in store.list(*args, **options)}


def put_all(store: ObjectStore, items: Sequence[tuple[str, bytes]]) -> list[bool]:
    """Put a batch past every object that is there already."""
    won: list[bool] = []
    while len(won) < len(items):
        won += store.put_many_if_absent(items[len(won) :])
    return won


class ObjectStoreContract:
    """Subclasses give a fixture `store`: a store that is empty."""

    examples = 40

    def test_what_was_put_is_read_back(self, store: ObjectStore) -> None:
        assert store.put_if_absent("a/b.json", b"one\n")
        assert store.get("a/b.json") == b"one\n"

    @pytest.mark.parametrize("content", [b"", b"\0\xff" * 3, b"x" * 70_001])
    def test_any_bytes_are_kept_as_they_are(self, store: ObjectStore, content: bytes) -> None:
        store.put_if_absent("new", content)
        store.put("replaced", b"before")
        store.put("replaced", content)
        assert store.get("new") == store.get("replaced") == content

    def test_the_second_put_if_absent_changes_nothing(self, store: ObjectStore) -> None:
        assert store.put_if_absent("a", b"first") is True
        assert store.put_if_absent("a", b"second") is False
        assert store.put_if_absent("a", b"first") is False
        assert store.get("a") == b"first"

    def test_a_put_replaces_what_is_there(self, store: ObjectStore) -> None:
        store.put("a", b"first")
        store.put("a", b"2nd")
        assert store.get("a") == b"2nd"
        assert store.put_if_absent("a", b"third") is False

    def test_a_batch_ends_at_one_that_is_there(self, store: ObjectStore) -> None:
        store.put("log/1", b"there")
        batch = [(f"log/{number}", str(number).encode()) for number in range(4)]
        assert store.put_many_if_absent(batch) == [True, False]
        assert paths(store, "log", recursive=True) == {"log/0", "log/1"}
        assert put_all(store, batch[2:]) == [True, True]
        assert [store.get(f"log/{number}") for number in range(4)] == [b"0", b"there", b"2", b"3"]

    def test_the_first_of_two_equal_names_in_a_batch_wins(self, store: ObjectStore) -> None:
        assert store.put_many_if_absent([("a", b"1"), ("a", b"2")]) == [True, False]
        assert store.get("a") == b"1"

    def test_an_empty_batch_is_nothing(self, store: ObjectStore) -> None:
        assert store.put_many_if_absent([]) == []

    def test_a_batch_over_two_folders_is_refused_whole(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidArgumentError):
            store.put_many_if_absent([("a/1", b""), ("b/2", b"")])
        assert paths(store, "", recursive=True) == set()

    def test_what_is_absent_is_not_found(self, store: ObjectStore) -> None:
        store.put("a/b", b"")
        for absent in ("b", "a", "a/c", "a/b.json", "A/b"):
            assert store.head(absent) is None
            with pytest.raises(NotFoundError):
                store.get(absent)
            with pytest.raises(NotFoundError):
                store.get_range(absent, 0, 1)

    def test_ranges_end_where_the_object_ends(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        ranges = [(0, 4), (6, 4), (6, 100), (9, 1), (10, 5), (50, 5), (3, 0)]
        assert [store.get_range("a", *r) for r in ranges] == [
            b"0123", b"6789", b"6789", b"9", b"", b"", b"",
        ]  # fmt: skip

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
    def test_ranges_before_the_object_are_refused(
        self, store: ObjectStore, start: int, length: int
    ) -> None:
        store.put("a", b"0")
        with pytest.raises(InvalidArgumentError):
            store.get_range("a", start, length)

    def test_head_tells_size_and_path(self, store: ObjectStore) -> None:
        store.put("a/b", b"123")
        meta = store.head("a/b")
        assert meta is not None
        assert (meta.path, meta.size) == ("a/b", 3)
        assert [meta] == list(store.list("a"))

    @pytest.mark.parametrize("content", [b"", b"123", b"x" * 70_001])
    def test_a_peek_returns_what_head_and_get_do_or_nothing(
        self, store: ObjectStore, content: bytes
    ) -> None:
        for turn in range(2):
            store.put("a/b", content + b"%d" % turn if content else b"")
            whole, meta = store.get("a/b"), store.head("a/b")
            assert meta is not None
            expected = CachedFile(meta.size, meta.modified_ms)
            assert store.peek("a/b") in (None, expected)
            for most in (1, meta.size, meta.size + 1):
                seen = store.peek("a/b", most)
                assert seen in (None, expected._replace(content=whole))
                assert seen is None or meta.size <= most

    @pytest.mark.parametrize("most", [0, 100])
    def test_nothing_is_peeked_where_there_is_no_object(
        self, store: ObjectStore, most: int
    ) -> None:
        store.put("a/b", b"1")
        store.put("gone", b"2")
        assert (store.get("a/b"), store.get("gone")) == (b"1", b"2")
        store.delete("gone")
        for absent in ("b", "a", "a/c", "a/b/c", "A/b", "gone", "none/there"):
            assert store.peek(absent, most) is None

    def test_a_listing_stays_in_its_folder(self, store: ObjectStore) -> None:
        everything = {"t", "log/1", "log/2", "log/staged/3", "log/staged/deep/4", "logs/5", "log.6"}
        for path in everything:
            store.put(path, b"")
        assert paths(store, "log") == paths(store, "log/") == {"log/1", "log/2"}
        assert paths(store, "log/staged") == {"log/staged/3"}
        assert paths(store, "") == {"t", "log.6"}
        assert paths(store, "", recursive=True) == everything
        assert paths(store, "log", recursive=True) == {p for p in everything if p[:4] == "log/"}
        assert paths(store, "nothing") == paths(store, "log/1") == set()

    def test_a_listing_begins_after_a_path(self, store: ObjectStore) -> None:
        for path in ("log/1", "log/2", "log/3", "log/_staged/1", "log/a", "log/é"):
            store.put(path, b"")
        assert paths(store, "log", start_after="log/2") == {"log/3", "log/a", "log/é"}
        assert paths(store, "log", start_after="log/2", recursive=True) == {
            "log/3", "log/_staged/1", "log/a", "log/é",
        }  # fmt: skip
        assert paths(store, "log", start_after="log/25") == {"log/3", "log/a", "log/é"}
        assert paths(store, "log", start_after="log/a") == {"log/é"}
        assert paths(store, "log", start_after="z") == set()

    def test_folders_are_found_one_level_at_a_time(self, store: ObjectStore) -> None:
        for path in ("main/sales/orders/0", "main/sales/x", "main/hr/staff/0", "other/a", "top"):
            store.put(path, b"")
        assert sorted(store.folders("")) == ["main", "other"]
        assert sorted(store.folders("main")) == ["main/hr", "main/sales"]
        assert sorted(store.folders("main/sales/")) == ["main/sales/orders"]
        assert sorted(store.folders("main/sales/orders")) == []
        assert sorted(store.folders("nothing")) == []

    def test_deleting_is_safe_to_repeat(self, store: ObjectStore) -> None:
        store.put("a/b", b"")
        for _ in range(2):
            store.delete("a/b")
            store.delete("never/there")
            assert store.head("a/b") is None
            assert paths(store, "a") == set()
        assert store.put_if_absent("a/b", b"again")

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_paths_that_could_lead_elsewhere_are_refused(
        self, store: ObjectStore, path: str
    ) -> None:
        calls: Sequence[Callable[[], object]] = [
            lambda: store.get(path),
            lambda: store.get_range(path, 0, 1),
            lambda: store.head(path),
            lambda: store.peek(path),
            lambda: store.put(path, b""),
            lambda: store.put_if_absent(path, b""),
            lambda: store.put_many_if_absent([(path, b"")]),
            lambda: store.delete(path),
            lambda: store.sync([path]),
            lambda: store.local_path(path),
        ]
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
        if path not in ("", "/", "a/"):
            with pytest.raises(InvalidArgumentError):
                list(store.list(path))
            with pytest.raises(InvalidArgumentError):
                list(store.folders(path))
        assert paths(store, "", recursive=True) == set()

    def test_any_name_is_kept_as_it_is(self, store: ObjectStore) -> None:
        roots = itertools.count()

        @settings(
            max_examples=self.examples,
            deadline=None,
            suppress_health_check=[HealthCheck.differing_executors],
        )
        @given(PATHS)
        @example("p=a%20b/x y.parquet")
        @example("p=%2e%2e/..x")
        @example("a\\b/#?*+&=;:@~|{}[]^`\"'<>")
        @example("é/e\u0301/\U0001f600")
        def kept(path: str) -> None:
            root = str(next(roots))
            path = f"{root}/{path}"
            store.put(path, path.encode())
            assert store.get(path) == path.encode()
            seen = store.peek(path, 10_000)
            assert seen is None or seen.content == path.encode()
            assert paths(store, root, recursive=True) == {path}
            assert paths(store, path.rpartition("/")[0]) == {path}
            store.delete(path)
            assert paths(store, root, recursive=True) == set()

        kept()

    def test_one_of_many_threads_wins_each_name(self, store: ObjectStore) -> None:
        writers, names = 8, [f"log/{number}" for number in range(5)]
        start = threading.Barrier(writers)

        def race(writer: int) -> list[bool]:
            start.wait()
            mine = str(writer).encode()
            if writer % 2:
                return put_all(store, [(name, mine) for name in names])
            return [store.put_if_absent(name, mine) for name in names]

        with ThreadPoolExecutor(writers) as pool:
            answers = list(pool.map(race, range(writers)))
        for number, name in enumerate(names):
            winners = [writer for writer in range(writers) if answers[writer][number]]
            assert [store.get(name)] == [str(winner).encode() for winner in winners]

    def test_a_reader_sees_the_old_or_the_new(self, store: ObjectStore) -> None:
        contents = [bytes([65 + n]) * (10_000 + n) for n in range(2)]
        store.put("a", contents[0])
        done = threading.Event()

        def replace() -> None:
            for turn in range(20):
                store.put("a", contents[turn % 2])
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(replace)
            while not done.is_set() and not writing.done():
                assert store.get("a") in contents
            writing.result()

    def test_what_is_set_aside_is_kept_under_its_new_name(self, store: ObjectStore) -> None:
        store.put("log/1", b"one")
        assert store.set_aside("log/1", "log/aside-1")
        assert store.head("log/1") is None
        assert store.get("log/aside-1") == b"one"
        assert not store.set_aside("log/1", "log/aside-2")
        store.put("log/1", b"two")
        with pytest.raises(InvalidArgumentError, match="exists already"):
            store.set_aside("log/1", "log/aside-1")
        assert (store.get("log/1"), store.get("log/aside-1")) == (b"two", b"one")

    def test_syncing_changes_nothing_that_is_seen(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        store.sync(["a/b", "a/gone", "nowhere/c"])
        store.sync([])
        assert paths(store, "", recursive=True) == {"a/b"}

    def test_sweeping_leaves_what_was_put(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        assert store.sweep(10**15) == store.sweep(10**15, "a") == 0
        assert store.get("a/b") == b"1"

    def test_folders_go_with_the_last_object_and_can_be_used_again(
        self, store: ObjectStore
    ) -> None:
        for path in ("a/b/c", "a/d", "e/f"):
            store.put(path, b"1")
        store.delete("a/b/c")
        store.delete("e/f")
        store.remove_folders()
        assert paths(store, "", recursive=True) == {"a/d"}
        assert store.put_if_absent("a/b/c", b"2")
        store.delete("a/d")
        store.delete("a/b/c")
        store.remove_folders()
        store.remove_folders()
        assert paths(store, "", recursive=True) == set()
        assert list(store.folders("")) == []
        store.put("a/b/c", b"3")
        assert store.get("a/b/c") == b"3"

    def test_a_local_path_names_the_bytes_if_there_is_one(self, store: ObjectStore) -> None:
        store.put("a/b c", b"1")
        local = store.local_path("a/b c")
        if local is not None:
            assert self.read_local(local) == b"1"

    def read_local(self, local: str) -> bytes:
        with open(local, "rb") as file:  # noqa: PTH123
            return file.read()
