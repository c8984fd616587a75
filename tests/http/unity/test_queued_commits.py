"""Commits of both dialects that are queued from the event loop, and use no thread."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate import _connect
from headgate.http.operations import Pool
from headgate.http.server import Server
from headgate.names import TableName
from headgate.protocol.actions import TableId
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.cached_files import CachedFile
from tests.catalog.test_staged_by_name import DoubtfulStore
from tests.http.conftest import Served, serving
from tests.http.test_slow_tables import SOON_S, HangingStore, letting_go
from tests.http.unity.conftest import BASE, CLOCK, IN_DEFAULT, Stock, add_commit, claim, make
from tests.http.unity.test_either_dialect import Send, by_preview, by_v1
from tests.http.unity.test_preview import COMMITS, body_of
from tests.http.unity.v1_requests import native
from tests.kit import shows
from tests.kit.builders import add, metadata
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres

SETTINGS = Settings(verify_staged=0)


@pytest.fixture(params=[by_v1, by_preview], ids=["v1", "preview"])
def send(request: pytest.FixtureRequest) -> Send:
    chosen: Send = request.param
    return chosen


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """The pools whose threads were used for requests."""
    used: list[Pool] = []
    run = Server.run

    async def counted(server: Server, pool: Pool, do: Callable[..., Any], *given: Any) -> Any:
        used.append(pool)
        return await run(server, pool, do, *given)

    monkeypatch.setattr(Server, "run", counted)
    return used


class PeekedStore(HangingStore):
    """A store that hangs, but for what is in memory."""

    def peek(self, path: str, most: int = 0) -> CachedFile | None:
        return self.inner.peek(path, most)


def hang(stock: Stock, kind: type[HangingStore], *methods: str) -> HangingStore:
    """Have calls to the storage of a table hang."""
    store = kind(locations.store_for(stock.location))
    locations.mount(stock.location, store)
    store.methods = frozenset(methods)
    return store


def rename(served: Served, stock: Stock, name: str) -> None:
    served.catalog.rename_table(TableId(stock.table_id), TableName.parse(name))


# Without threads


def test_a_commit_after_the_first_one_uses_no_thread(
    served: Served, send: Send, threads: list[Pool]
) -> None:
    stock = make(served.http)
    assert send(stock, stock.put(1)).status_code == 200
    assert threads
    threads.clear()
    for version in (2, 3, 4):
        assert send(stock, stock.put(version)).status_code == 200
        assert send(stock, stock.put(version)).status_code == 409
    assert threads == []
    assert stock.load()["latest-table-version"] == 4


@pytest.mark.parametrize("reads", ["loading", "listing"])
def test_reads_between_commits_change_nothing(
    served: Served, threads: list[Pool], reads: str
) -> None:
    stock = make(served.http)
    assert stock.commit(1).status_code == 200
    if reads == "loading":
        stock.load()
    else:
        served.http.get(f"{IN_DEFAULT}/tables")
    put = stock.put(2)
    threads.clear()
    assert by_v1(stock, put).status_code == 200
    assert threads == []


# The same answers


def metadata_of(stock: Stock, **properties: str) -> Any:
    return metadata(TableId(stock.table_id), properties=properties)


def exchanges(served: Served) -> Iterator[httpx.Response]:
    """Commit to a table in every way that an answer depends on."""
    stock = make(served.http)
    first_etag = stock.load()["metadata"]["etag"]
    yield stock.commit(1)
    second = stock.put(2)
    yield by_v1(stock, second)
    yield by_v1(stock, second)  # again
    yield stock.commit(2)  # taken
    yield stock.commit(1)
    yield stock.commit(9)
    yield stock.commit(3, metadata_of(stock, owner="me"))
    yield stock.send(stock.change(add_commit(stock.put(4)), etag=first_etag))
    yield stock.send(stock.change(add_commit(stock.put(4)), etag=stock.load()["metadata"]["etag"]))
    wrong = {"type": "assert-table-uuid", "uuid": "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"}
    yield stock.send({"requirements": [wrong], "updates": [add_commit(stock.put(5))]})
    yield stock.send(stock.change(add_commit(stock.put(5)), {"action": "set-protocol"}))
    yield stock.send(stock.change(add_commit(stock.put(5)), claim(9)))
    undeclared = {"action": "set-properties", "updates": {"owner": "you"}}
    yield stock.send(stock.change(add_commit(stock.put(5)), undeclared))
    declared = {"action": "set-properties", "updates": {"owner": "you"}}
    changed = add_commit(stock.put(5, metadata_of(stock, owner="you")))
    yield stock.send(stock.change(changed, declared))
    yield stock.commit(6)
    stock.publish(5)
    yield stock.send(stock.change(add_commit(stock.put(7)), claim(5)))
    yield by_v1(stock, {**stock.put(8), "file-size": 7})
    yield by_v1(stock, {**stock.put(8), "file-modification-timestamp": 0})
    yield by_v1(stock, stock.put_bytes(8, b"hello\n"))
    yield by_v1(stock, stock.put_bytes(8, b""))
    txn_id = "11111111-1111-4111-8111-111111111111"
    yield stock.commit(8, txn_id=txn_id)
    yield stock.commit(9, txn_id=txn_id)
    yield stock.commit(9, add("f", values={"nothing": "1"}))  # a violation
    yield by_preview(stock, stock.put(9))
    yield by_preview(stock, stock.put(9))
    where = {"table_uri": "file:///somewhere/else"}
    yield stock.http.post(COMMITS, json={**body_of(stock, stock.put(10)), **where})
    native(served, stock.table_id, 10)
    stock.timestamp_ms = CLOCK.now_ms() + 1_000
    for version in (10, 11, 12):
        yield by_v1(stock, stock.put(version))
    served.catalog.publish(TableId(stock.table_id))
    third = stock.put(13)
    yield by_v1(stock, third)
    yield by_v1(stock, stock.put(14))
    rename(served, stock, "u")
    yield by_v1(stock, stock.put(15))
    yield by_preview(stock, stock.put(15))
    yield by_preview(stock, stock.put(16))
    stock.name = "u"
    yield by_v1(stock, stock.put(17))
    yield by_v1(stock, third)  # long after
    other = make(served.http)
    other.timestamp_ms = stock.timestamp_ms
    yield by_v1(other, other.put(1))
    rename(served, other, "away")
    rename(served, stock, "t")
    stock.name = "t"
    yield by_v1(other, other.put(2))  # of another table under its name
    yield by_v1(stock, stock.put(18))
    served.catalog.drop_table(TableId(stock.table_id))
    yield by_v1(stock, stock.put(19))
    yield by_preview(stock, stock.put(19))


def without_chance(answer: httpx.Response) -> tuple[int, str]:
    """Return an answer without the ids, times and places of a run."""
    text = answer.text
    for found, mark in (
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
        (r"\b1[789]\d{11}\b", "<ms>"),
        (r"/[^\" ]*/(queued|pooled)/", "<root>/"),
    ):
        text = re.sub(found, mark, text)
    return answer.status_code, text


def test_answers_are_those_of_the_pool(tmp_path: Path, threads: list[Pool]) -> None:
    found: dict[str, list[tuple[int, str]]] = {}
    used: dict[str, int] = {}
    for name in ("queued", "pooled"):
        for served in serving(tmp_path / name, SETTINGS):
            if name == "pooled":
                served.catalog.kept_description = lambda ref: None  # type: ignore[method-assign]
            threads.clear()
            found[name] = list(map(without_chance, exchanges(served)))
            used[name] = threads.count(Pool.PROPOSALS)
    for number, (queued, pooled) in enumerate(zip(*found.values(), strict=True)):
        assert queued == pooled, number
    assert {status for status, _ in found["queued"]} == {200, 400, 404, 409}
    assert used["queued"] < used["pooled"] - 10


def two_servers(tmp_path: Path, server: Postgres, closing: ExitStack) -> list[Served]:
    address = server.new_database()
    _connect.init(address, root=str(tmp_path / "lake"))
    opened = contextmanager(serving)
    return [closing.enter_context(opened(address, SETTINGS)) for _ in range(2)]


def at(served: Served, stock: Stock) -> Stock:
    """Return a table as a client of another server sees it."""
    return Stock(served.http, stock.name, stock.table_id, stock.location, stock.timestamp_ms, {})


@shows("FC4")
def test_a_commit_repeated_at_another_server_gets_the_whole_answer(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    with ExitStack() as closing:
        one, two = two_servers(tmp_path, postgres_server, closing)
        stock = make(one.http)
        there = at(two, stock)
        assert stock.commit(1).status_code == there.commit(2).status_code == 200
        stock.timestamp_ms = there.timestamp_ms
        put = stock.put(3)
        assert stock.commit(9).status_code == 400  # so that it describes the table again
        assert by_v1(there, put).status_code == 200
        assert by_v1(there, there.put(4)).status_code == 200
        again = by_v1(stock, put)
        assert again.status_code == 200
        assert again.json()["latest-table-version"] == 4


def test_names_given_by_one_server_hold_at_once_on_another(
    tmp_path: Path, postgres_server: Postgres, send: Send
) -> None:
    with ExitStack() as closing:
        one, two = two_servers(tmp_path, postgres_server, closing)
        stock = make(one.http)
        there = at(two, stock)
        for version in (1, 2):
            assert send(there, there.put(version)).status_code == 200
        for turn in range(3):
            version = 3 + 2 * turn
            rename(one, stock, f"u{turn}")
            assert by_v1(there, there.put(version)).status_code == 404
            there.name = f"u{turn}"
            assert send(there, there.put(version)).status_code == 200
            assert send(there, there.put(version + 1)).status_code == 200
        one.catalog.drop_table(TableId(stock.table_id))
        assert send(there, there.put(9)).status_code == 404


# Outcomes and backlogs


@pytest.mark.parametrize("happens", [True, False])
def test_an_unknown_outcome_is_settled_in_the_pool(
    served: Served,
    send: Send,
    threads: list[Pool],
    monkeypatch: pytest.MonkeyPatch,
    happens: bool,
) -> None:
    stock = make(served.http)
    assert send(stock, stock.put(1)).status_code == 200
    ratifier = served.catalog._ratifier
    doubtful = DoubtfulStore(ratifier._store, happens=happens)
    monkeypatch.setattr(ratifier, "_store", doubtful)
    put = stock.put(2)
    threads.clear()
    assert send(stock, put).status_code == 200
    assert (doubtful.doubts, threads) == (0, [Pool.PROPOSALS])
    assert send(stock, stock.put(2)).status_code == 409
    assert send(stock, stock.put(3)).status_code == 200
    listed = served.catalog.describe(TableId(stock.table_id)).commits
    assert [one.version for one in listed] == [0, 1, 2, 3]
    assert listed[2].file_name == put["file-name"]


def test_writers_at_a_backlog_that_stays_are_429_and_may_come_again(
    tmp_path: Path, send: Send, threads: list[Pool]
) -> None:
    few = Settings(
        verify_staged=0, unpublished_soft=3, unpublished_wait_ms=300, publish_on_close_ms=100
    )
    for served in serving(tmp_path / "lake", few, publisher=True):
        stock = make(served.http)
        lease, now_ms = f"publish:{stock.table_id}", CLOCK.now_ms()
        with served.catalog._store.write() as unit:
            assert unit.acquire_lease(lease, "another", now_ms, now_ms + 600_000)
        for version in (1, 2, 3):
            assert send(stock, stock.put(version)).status_code == 200
        put = stock.put(4)
        threads.clear()
        refused = send(stock, put)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert threads == []  # one thread waits for all writers
        info = served.catalog.describe(TableId(stock.table_id))
        assert (info.latest, info.published) == (3, 0)
        with served.catalog._store.write() as unit:
            unit.release_lease(lease, "another")
        assert send(stock, put).status_code == 200
        assert served.catalog.describe(TableId(stock.table_id)).published >= 2


# Many clients


@pytest.mark.slow
@shows("FC7")
def test_sixteen_clients_of_one_table_take_every_version_once(
    served: Served, threads: list[Pool]
) -> None:
    stock = make(served.http)
    assert stock.commit(1).status_code == 200
    taken: dict[int, bytes] = {}
    writing = threading.Lock()

    def write(number: int) -> None:
        mine = at(served, stock)
        version, won = 2, 0
        while won < 5:
            mine.timestamp_ms += 100
            put = mine.put(version, add(f"{number}-{won}.parquet"))
            answer = by_v1(mine, put)
            if answer.status_code == 200:
                file = mine.log / "_staged_commits" / put["file-name"]
                with writing:
                    assert version not in taken
                    taken[version] = file.read_bytes()
                won += 1
                version = answer.json()["latest-table-version"] + 1
            else:
                assert answer.status_code in (400, 409), answer.text
                version = mine.load()["latest-table-version"] + 1

    with ThreadPoolExecutor(16) as pool:
        for writer in [pool.submit(write, number) for number in range(16)]:
            writer.result(100)
    assert sorted(taken) == list(range(2, 82))
    served.catalog.publish(TableId(stock.table_id))
    log = [stock.log / f"{version:020d}.json" for version in range(2, 82)]
    assert [file.read_bytes() for file in log] == [taken[version] for version in range(2, 82)]


# Storage that hangs


READS = ("get", "get_range", "head", "sync", "list")


def test_commits_to_storage_that_hangs_do_not_stop_the_event_loop(
    served: Served, send: Send
) -> None:
    slow, other = make(served.http, "slow"), make(served.http, "other")
    for stock in (slow, other):
        assert send(stock, stock.put(1)).status_code == 200
    puts = [slow.put(2) for _ in range(8)]
    store = hang(slow, HangingStore, *READS)
    with ThreadPoolExecutor(9) as pool, letting_go(store):
        answers = [pool.submit(send, slow, put) for put in puts]
        eventually(lambda: store.hanging >= 8)
        for version in (2, 3):
            for path in ("/health", f"{BASE}/catalogs"):
                assert pool.submit(served.http.get, path).result(SOON_S).status_code == 200
            assert pool.submit(send, other, other.put(version)).result(SOON_S).is_success
        assert not any(answer.done() for answer in answers)
    assert sorted(answer.result().status_code for answer in answers) == [200] + [409] * 7


def test_a_file_in_memory_is_committed_although_storage_hangs(served: Served, send: Send) -> None:
    stock = make(served.http)
    assert send(stock, stock.put(1)).status_code == 200
    put = stock.put(2)
    store = hang(stock, PeekedStore, *READS)
    with ThreadPoolExecutor(1) as pool, letting_go(store):
        assert pool.submit(send, stock, put).result(SOON_S).status_code == 200
        assert store.hanging == 0
