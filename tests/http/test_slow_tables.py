"""A table whose storage hangs holds up its own writers and no others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from headgate.http.server import PROPOSERS
from headgate.protocol.actions import TxnId, Version
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore
from tests.http.conftest import Served, serving
from tests.http.test_native_api import IDS, commit, content, key, make, propose
from tests.kit import req, shows
from tests.kit.builders import add, file_content
from tests.kit.conditions import eventually
from tests.kit.faulty_stores import Call, WrappedStore

WRITERS = 80  # more than there are threads for them
SOON_S = 15.0  # half of what a writer is held back for
Result = TypeVar("Result")


class HangingStore(WrappedStore):
    """A store some of whose calls do not come back until they are let go."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.methods: frozenset[str] = frozenset()
        self.hanging = 0
        self._go_on = threading.Event()

    def around(self, call: Call, effect: Callable[[], Result]) -> Result:
        if call.method in self.methods:
            self.hanging += 1
            self._go_on.wait(120)
        return effect()

    def let_go(self) -> None:
        self.methods = frozenset()
        self._go_on.set()


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Served]:
    few = Settings(verify_staged=0, unpublished_soft=3, publish_on_close_ms=100)
    yield from serving(tmp_path / "lake", few, publisher=True)


def hang(table: dict[str, Any], *methods: str) -> HangingStore:
    """Have calls to the storage of one table hang."""
    store = HangingStore(locations.store_for(table["location"]))
    locations.mount(table["location"], store)
    store.methods = frozenset(methods)
    return store


@contextmanager
def letting_go(store: HangingStore) -> Iterator[None]:
    """Release every waiting call at the end, whatever happens."""
    try:
        yield
    finally:
        store.let_go()


def staged(served: Served, table: dict[str, Any], version: int) -> dict[str, Any]:
    """Stage a commit, and give the body that proposes it."""
    name = StagedCommit(Version(version), IDS.random()).name
    txn_id = TxnId(key())
    raw = file_content(add(), txn_id=txn_id, timestamp_ms=served.server.clock.now_ms())
    locations.store_for(table["location"]).put_if_absent(f"{STAGED}/{name}", raw)
    staged = {"way": "staged", "fileName": name, "size": len(raw)}
    return {"txnId": txn_id, "version": version, "content": staged}


def write_all(
    served: Served, table_id: str, bodies: list[dict[str, Any]], pool: ThreadPoolExecutor
) -> list[httpx.Response]:
    """Have everybody propose at once; come back when each is under way or answered."""
    answers: list[httpx.Response] = []
    for body in bodies:
        pool.submit(lambda b=body: answers.append(propose(served, table_id, b)))
    eventually(lambda: served.server.metrics.under_way + len(answers) >= len(bodies))
    return answers


def others_commit(served: Served, other: dict[str, Any], fresh: dict[str, Any]) -> None:
    """Commit what needs a thread: staged, large, and the first to a table since the start."""
    large = content(*(add(f"{number}.parquet") for number in range(1_000)))
    bodies = [
        (other, staged(served, other, 1)),
        (other, {"txnId": key(), "version": 2, "content": large}),
        (fresh, commit(1)),
    ]
    with ThreadPoolExecutor(1) as pool:
        for table, body in bodies:
            answer = pool.submit(propose, served, table["tableId"], body).result(SOON_S)
            assert answer.status_code == 200, answer.text


@req("CM-25")
@shows("FP8", "L5")
def test_writers_held_back_at_a_table_that_is_not_published_leave_threads_for_others(
    crowded: Served,
) -> None:
    slow, other, fresh = (make(crowded, name) for name in ("slow", "other", "fresh"))
    crowded.catalog.publish(slow["tableId"])
    store = hang(slow, "put_many_if_absent")
    with ThreadPoolExecutor(WRITERS) as pool, letting_go(store):
        for version in range(1, 4):
            assert propose(crowded, slow["tableId"], commit(version)).status_code == 200
        bodies = [commit(4, path=f"{number}.parquet") for number in range(WRITERS)]
        answers = write_all(crowded, slow["tableId"], bodies, pool)
        others_commit(crowded, other, fresh)
        assert not answers  # one thread waits for all of them
    assert [answer.status_code for answer in answers] == [200] * WRITERS
    assert (
        len({answer.json()["commits"][slow["tableId"]]["version"] for answer in answers}) == WRITERS
    )


@req("CM-25")
@shows("FP8", "L5")
def test_writers_held_back_who_need_a_thread_are_few(crowded: Served) -> None:
    slow, other, fresh = (make(crowded, name) for name in ("slow", "other", "fresh"))
    crowded.catalog.publish(slow["tableId"])
    store = hang(slow, "put_many_if_absent")
    with ThreadPoolExecutor(WRITERS) as pool, letting_go(store):
        for version in range(1, 4):
            assert propose(crowded, slow["tableId"], commit(version)).status_code == 200
        bodies = [staged(crowded, slow, 4) for _ in range(WRITERS)]
        answers = write_all(crowded, slow["tableId"], bodies, pool)
        others_commit(crowded, other, fresh)
        # As many as may be are held, and the others know at once.
        eventually(lambda: len(answers) == WRITERS - PROPOSERS // 8)
        assert {answer.status_code for answer in answers} == {429}
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert {crowded.problem(answer)["code"] for answer in answers} == {"busy"}
    assert Counter(answer.status_code for answer in answers)[200] == 1


@shows("L1")
def test_staged_commits_to_storage_that_hangs_leave_threads_for_others(crowded: Served) -> None:
    slow, other, fresh = (make(crowded, name) for name in ("slow", "other", "fresh"))
    crowded.catalog.publish(slow["tableId"])
    bodies = [staged(crowded, slow, 1) for _ in range(WRITERS)]
    store = hang(slow, "head")
    with ThreadPoolExecutor(WRITERS) as pool, letting_go(store):
        answers = write_all(crowded, slow["tableId"], bodies, pool)
        others_commit(crowded, other, fresh)
        eventually(lambda: len(answers) == WRITERS - PROPOSERS // 2)
        assert {answer.status_code for answer in answers} == {429}
    assert Counter(answer.status_code for answer in answers)[200] == 1
