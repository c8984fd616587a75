"""Objects as files of a real disk: several processes, links, leftovers and things in the way."""

import ctypes
import errno
import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from headgate.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from headgate.storage import disk
from headgate.storage.disk import Disk
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectMeta
from tests.kit import shows
from tests.storage.object_store_contract import ObjectStoreContract, put_all


class TestLocalStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        return LocalStore(tmp_path / "not there yet" / "root")


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, None])
class TestLocalStoreWithoutExclusiveRenames(ObjectStoreContract):
    """A file system, or a C library, that can only link."""

    @pytest.fixture
    def store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
    ) -> LocalStore:
        def refuse(*_: object) -> int:
            ctypes.set_errno(code or 0)
            return -1

        monkeypatch.setattr(disk, "_renameat2", None if code is None else refuse)
        return LocalStore(tmp_path / "root")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def names_in(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir())


def _race(root: Path, writer: int, start: Barrier, names: list[str]) -> None:
    store = LocalStore(root)
    start.wait()
    mine = str(writer).encode() * 1000
    half = len(names) // 2
    won = [store.put_if_absent(name, mine) for name in names[:half]]
    won += put_all(store, [(name, mine) for name in names[half:]])
    claimed = "\n".join(name for name, was_put in zip(names, won, strict=True) if was_put)
    LocalStore(root.parent / "claims").put(str(writer), claimed.encode())


@pytest.mark.slow
@pytest.mark.faults
def test_one_of_many_processes_wins_each_name(tmp_path: Path, store: LocalStore) -> None:
    names = [f"log/{number:03}" for number in range(40)]
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    processes = [
        context.Process(target=_race, args=(tmp_path / "root", writer, start, names))
        for writer in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    claims = LocalStore(tmp_path / "claims")
    claimed = {w: claims.get(str(w)).decode().split() for w in range(4)}
    assert sorted(name for won in claimed.values() for name in won) == names
    for writer, won in claimed.items():
        assert {store.get(name) for name in won} <= {str(writer).encode() * 1000}


def test_a_put_leaves_nothing_else_behind(tmp_path: Path, store: LocalStore) -> None:
    store.put_if_absent("log/0", b"0")
    store.put_if_absent("log/0", b"again")
    store.put_many_if_absent([("log/0", b""), ("log/1", b"1")])
    store.put("log/1", b"one")
    assert names_in(tmp_path / "root" / "log") == ["0", "1"]


def test_a_batch_may_hold_more_files_than_a_process_may_open(store: LocalStore) -> None:
    batch = [(f"log/{number}", b"%d" % number) for number in range(300)]
    assert all(store.put_many_if_absent(batch))
    assert [store.get(path) for path, _ in batch] == [content for _, content in batch]


@shows("FP2", "FC2")
def test_leftovers_of_dead_writers_are_not_seen_and_are_swept(
    tmp_path: Path, store: LocalStore
) -> None:
    store.put("log/0", b"0")
    for number, leftover in enumerate(("log/.hg-dead", "log/.hg-alive")):
        (tmp_path / "root" / leftover).write_bytes(b"hal")
        os.utime(tmp_path / "root" / leftover, (number, number))
    assert [meta.path for meta in store.list("", recursive=True)] == ["log/0"]
    assert store.sweep(before_ms=1000) == 1
    assert names_in(tmp_path / "root" / "log") == [".hg-alive", "0"]
    assert store.sweep(before_ms=1001) == 1
    assert store.sweep(before_ms=10**15) == 0
    assert store.get("log/0") == b"0"


def test_of_a_place_given_up_no_name_is_left_but_of_what_is_still_in_use(
    tmp_path: Path, store: LocalStore
) -> None:
    for path in ("customer=Ann/a", "customer=Bea/b", "log/0"):
        store.put(path, b"1")
        store.delete(path)
    (tmp_path / "root" / "log" / ".hg-dead").write_bytes(b"half")
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "customer=Bea" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    os.mkfifo(tmp_path / "root" / "customer=Bea" / "pipe")
    store.remove_folders()
    assert names_in(tmp_path / "root" / "customer=Bea") == ["pipe"]
    (tmp_path / "root" / "customer=Bea" / "pipe").unlink()
    store.remove_folders()
    assert names_in(tmp_path) == ["outside"]
    assert names_in(tmp_path / "outside") == ["secret"]


@shows("FI1")
@pytest.mark.parametrize(
    "target", ["../outside/secret", "/etc/passwd", "../root/../outside/secret"]
)
def test_a_link_out_of_the_store_is_refused(tmp_path: Path, store: LocalStore, target: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    store.put("log/0", b"0")
    (tmp_path / "root" / "log" / "1").symlink_to(
        tmp_path / "root" / target if target[0] == "." else target
    )
    for call in (store.get, store.head, store.local_path, lambda p: store.get_range(p, 0, 1)):
        with pytest.raises(InvalidArgumentError):
            call("log/1")
    assert [meta.path for meta in store.list("log")] == ["log/0"]
    store.put("log/1", b"ours")  # the link goes, not what it led to
    assert store.get("log/1") == b"ours"
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"


@shows("FI1")
@pytest.mark.parametrize("place", ["outside", "root-2", "roo"])
def test_a_folder_that_links_out_of_the_store_is_refused(
    tmp_path: Path, store: LocalStore, place: str
) -> None:
    (tmp_path / place).mkdir()
    (tmp_path / place / "secret").write_bytes(b"secret")
    store.put("log/0", b"0")
    (tmp_path / "root" / "linked").symlink_to(tmp_path / place)
    calls = [
        lambda: store.get("linked/secret"),
        lambda: store.put("linked/new", b""),
        lambda: store.put_if_absent("linked/new", b""),
        lambda: store.put_many_if_absent([("linked/new", b"")]),
        lambda: store.delete("linked/secret"),
        lambda: store.head("linked/secret"),
        lambda: store.sync(["linked/secret"]),
        lambda: store.local_path("linked/secret"),
        lambda: list(store.list("linked")),
        lambda: list(store.folders("linked")),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError):
            call()
    assert [meta.path for meta in store.list("", recursive=True)] == ["log/0"]
    assert names_in(tmp_path / place) == ["secret"]


@pytest.mark.parametrize("target", ["1", "2"])
def test_a_link_that_leads_to_itself_is_refused(
    tmp_path: Path, store: LocalStore, target: str
) -> None:
    store.put("log/0", b"0")
    (tmp_path / "root" / "log" / "1").symlink_to(target)
    (tmp_path / "root" / "log" / "2").symlink_to("1")
    for call in (store.get, store.head, store.local_path, lambda p: store.put(f"{p}/a", b"")):
        with pytest.raises(InvalidArgumentError, match="leads to itself"):
            call("log/1")
    assert [meta.path for meta in store.list("log")] == ["log/0"]
    store.put("log/1", b"ours")  # the link goes
    assert store.get("log/1") == b"ours"
    store.delete("log/2")
    assert names_in(tmp_path / "root" / "log") == ["0", "1"]


def test_links_that_stay_in_the_store_are_followed(tmp_path: Path, store: LocalStore) -> None:
    store.put("real/a", b"a")
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "root" / "real")
    (tmp_path / "root" / "real" / "b").symlink_to("a")
    (tmp_path / "root" / "real" / "broken").symlink_to("nothing")
    assert store.get("linked/a") == store.get("real/b") == b"a"
    assert store.put_if_absent("linked/c", b"c")
    assert store.put_if_absent("real/b", b"b") is False
    assert {meta.path for meta in store.list("linked")} == {"linked/a", "linked/b", "linked/c"}
    assert {meta.path for meta in store.list("", recursive=True)} == {"real/a", "real/b", "real/c"}


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    store = LocalStore(tmp_path / "root")
    assert store.put_if_absent("a/b", b"1")
    assert (tmp_path / "real" / "a" / "b").read_bytes() == b"1"
    assert store.url == f"file://{tmp_path}/root"


def test_nothing_is_deleted_through_a_link_within_the_store(
    tmp_path: Path, store: LocalStore
) -> None:
    store.put("real/a", b"a")
    store.put("real/.keep", b"")
    (tmp_path / "root" / "real" / ".hg-dead").write_bytes(b"half")
    (tmp_path / "root" / "linked").symlink_to("real")
    with pytest.raises(InvalidArgumentError, match="behind a link"):
        store.delete("linked/a")
    assert store.sweep(2**63, "linked") == 0
    assert names_in(tmp_path / "root" / "real") == [".hg-dead", ".keep", "a"]


def test_a_link_to_an_object_is_deleted_and_not_the_object(
    tmp_path: Path, store: LocalStore
) -> None:
    store.put("a", b"a")
    (tmp_path / "root" / "b").symlink_to("a")
    store.delete("b")
    assert names_in(tmp_path / "root") == ["a"]


@pytest.mark.parametrize("is_open_before", [True, False])
def test_nothing_is_deleted_through_a_link_in_the_place_of_the_store(
    tmp_path: Path, is_open_before: bool
) -> None:
    (tmp_path / "victim" / "folder").mkdir(parents=True)
    (tmp_path / "victim" / "secret").write_bytes(b"secret")
    (tmp_path / "victim" / ".hg-dead").write_bytes(b"half")
    store = LocalStore(tmp_path / "root")
    if is_open_before:
        store.put("a", b"a")
        (tmp_path / "root").rename(tmp_path / "moved")
    (tmp_path / "root").symlink_to("victim")
    store = store if is_open_before else LocalStore(tmp_path / "root")
    with pytest.raises(InvalidArgumentError, match="behind a link"):
        store.delete("secret")
    assert store.sweep(2**63) == 0
    store.remove_folders()
    assert names_in(tmp_path / "victim") == [".hg-dead", "folder", "secret"]
    assert store.remove_link()
    assert not store.remove_link()
    assert not (tmp_path / "root").is_symlink()
    assert names_in(tmp_path / "victim") == [".hg-dead", "folder", "secret"]
    store.put("a", b"new")
    assert (tmp_path / "root" / "a").read_bytes() == b"new"


def test_a_folder_swapped_for_a_link_while_it_is_deleted_from_is_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "a").write_bytes(b"secret")

    class Swapping(Disk):
        def unlink(self, path: str) -> None:
            (tmp_path / "root" / "folder").rename(tmp_path / "root" / "aside")
            (tmp_path / "root" / "folder").symlink_to(tmp_path / "victim")
            super().unlink(path)

    store = LocalStore(tmp_path / "root", Swapping())
    store.put("folder/a", b"a")
    with pytest.raises(InvalidArgumentError, match="behind a link"):
        store.delete("folder/a")
    assert names_in(tmp_path / "victim") == ["a"]


@pytest.mark.timeout(10)
def test_a_pipe_is_no_object_and_holds_nobody(tmp_path: Path, store: LocalStore) -> None:
    store.put("a", b"")
    os.mkfifo(tmp_path / "root" / "pipe")
    assert store.head("pipe") is None
    with pytest.raises(NotFoundError):
        store.get("pipe")
    with pytest.raises(InvalidArgumentError):
        store.put_if_absent("pipe", b"")
    assert [meta.path for meta in store.list("")] == ["a"]


def test_a_folder_is_no_object_and_an_object_no_folder(store: LocalStore) -> None:
    store.put("a/b", b"")
    store.delete("a")
    for call in (
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.put("a/b/c", b""),
        lambda: store.put_if_absent("a/b/c", b""),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    assert store.head("a/b/c") is None
    assert [meta.path for meta in store.list("", recursive=True)] == ["a/b"]


def test_a_name_of_255_bytes_fits_and_one_of_256_is_refused(store: LocalStore) -> None:
    assert store.put_if_absent("a" * 255, b"1")
    assert store.get("a" * 255) == b"1"
    assert store.head("a" * 256) is None
    with pytest.raises(InvalidArgumentError):
        store.put_if_absent("a" * 256, b"1")


def test_a_name_that_is_no_text_is_passed_over(tmp_path: Path, store: LocalStore) -> None:
    store.put("log/0", b"")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/root/log/\xff")).touch()
    assert [meta.path for meta in store.list("log")] == ["log/0"]


def test_a_folder_removed_by_others_is_made_again(tmp_path: Path, store: LocalStore) -> None:
    store.put_if_absent("a/b/c", b"1")
    store.delete("a/b/c")
    (tmp_path / "root" / "a" / "b").rmdir()
    (tmp_path / "root" / "a").rmdir()
    assert store.put_if_absent("a/b/c", b"2")


def test_modified_is_the_files_own_time(tmp_path: Path, store: LocalStore) -> None:
    store.put("a", b"12")
    os.utime(tmp_path / "root" / "a", ns=(0, 1_234_567_890))
    assert store.head("a") == ObjectMeta("a", 2, modified_ms=1234)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_said_to_be_so(
    tmp_path: Path, store: LocalStore
) -> None:
    store.put("a/b", b"")
    (tmp_path / "root" / "a").chmod(0o500)
    with pytest.raises(PermissionDeniedError):
        store.put("a/c", b"")
    (tmp_path / "root" / "a").chmod(0o700)


def test_the_url_is_spelled_the_one_way(tmp_path: Path) -> None:
    assert LocalStore("/data/a b/../c=d%/").url == "file:///data/c=d%25"
    assert LocalStore("/").url == "file:///"
    assert LocalStore("/").get(str(Path(__file__).resolve())[1:]).startswith(b'"""Objects')


def test_a_link_or_a_folder_in_the_way_is_set_aside_as_it_is(
    tmp_path: Path, store: LocalStore
) -> None:
    store.put("log/0", b"")
    (tmp_path / "outside").write_bytes(b"theirs")
    (tmp_path / "root" / "log" / "1").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "log" / "2").mkdir()
    (tmp_path / "root" / "log" / "2" / "inner").write_bytes(b"kept")
    assert store.set_aside("log/1", "log/aside-1")
    assert store.set_aside("log/2", "log/aside-2")
    assert store.put_if_absent("log/1", b"ours")
    assert store.put_if_absent("log/2", b"ours")
    assert (tmp_path / "root" / "log" / "aside-1").is_symlink()
    assert (tmp_path / "outside").read_bytes() == b"theirs"
    assert store.get("log/aside-2/inner") == b"kept"
