"""A store that others hold: waited for, then 503, never 409, 429 or 500; nothing was applied."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw
import pytest

from headgate import _connect
from headgate.settings import Settings
from tests.http.conftest import Served, serving
from tests.http.test_native_api import commit, make, propose
from tests.kit import shows

Held = Callable[[], AbstractContextManager[None]]
SETTINGS = Settings(verify_staged=0, store_patience_ms=400)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Served, Held]]:
    """A server, and a way to lock its store."""
    lake = tmp_path / "lake"
    if request.param == "sqlite":
        for served in serving(lake, SETTINGS):

            @contextmanager
            def held() -> Iterator[None]:
                other = apsw.Connection(str(lake / _connect.DATABASE))
                other.execute("BEGIN IMMEDIATE")
                yield
                other.close()

            yield served, held
        return
    server = request.getfixturevalue("postgres_server")
    address = server.new_database()
    _connect.init(address, root=str(lake))
    for served in serving(address, SETTINGS):

        @contextmanager
        def held_clock() -> Iterator[None]:
            with server.connect(address) as other, other.transaction():
                other.execute("SELECT * FROM headgate.clock FOR UPDATE")
                yield

        yield served, held_clock


@shows("FS4", "S5", "L1")
def test_a_store_held_by_others_is_503_at_the_deadline_and_the_same_again_succeeds(
    shared: tuple[Served, Held],
) -> None:
    served, held = shared
    table_id = make(served)["tableId"]
    body = commit(1)
    with held():
        for ask in (
            lambda: propose(served, table_id, body),
            lambda: served.http.post("/v1/namespaces", json={"name": "new"}),
        ):
            began = time.monotonic()
            answer = ask()
            assert 0.3 < time.monotonic() - began < 10
            assert answer.status_code == 503
            problem = served.problem(answer)
            assert (problem["code"], problem["retry"]) == ("unavailable", "same-again")
            assert answer.headers["retry-after"]
        # Readers are not held up, and see that nothing happened.
        assert served.http.get(f"/v1/tables/{table_id}").json()["latest"] == 0
    assert served.http.get(f"/v1/transactions/{body['txnId']}").status_code == 404
    assert propose(served, table_id, body).status_code == 200
    assert "main.new" not in served.http.get("/v1/namespaces").json()["namespaces"]


@shows("FS4", "L1")
def test_a_store_that_is_held_for_a_moment_is_waited_for(shared: tuple[Served, Held]) -> None:
    served, held = shared
    table_id = make(served)["tableId"]
    holding = held()
    holding.__enter__()
    letting_go = threading.Timer(0.15, holding.__exit__, (None, None, None))
    letting_go.start()
    assert propose(served, table_id, commit(1)).status_code == 200
    letting_go.join()


@shows("L1")
def test_a_server_that_can_take_no_commits_is_healthy_and_not_ready(
    shared: tuple[Served, Held],
) -> None:
    served, held = shared
    assert served.http.get("/health/ready").json()["status"] == "ready"
    with held():
        assert served.http.get("/health").status_code == 200
        answer = served.http.get("/health/ready")
        assert answer.status_code == 503
        assert served.problem(answer)["code"] == "unavailable"
    assert served.http.get("/health/ready").status_code == 200
