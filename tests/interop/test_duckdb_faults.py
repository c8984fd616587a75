"""A commit of DuckDB's whose answer is lost, and what may happen before it sends it again.

It sends again within half a second, four times in all, and then deletes its data files: so each
of these has to be answered as the first time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import headgate
from headgate.client.session import Session
from tests.http.unity.conftest import IN_DEFAULT, error
from tests.interop.conftest import DuckDB, append, is_whole, local, ours
from tests.kit import shows
from tests.kit.proxy import Fault, HttpProxy, Request
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop
INSERT = "INSERT INTO lake.default.t VALUES (1, 'duck')"
ROWS = "SELECT * FROM lake.default.t ORDER BY ALL"
BOTH = [(0, "us"), (1, "duck")]


class Between:
    """Loses the answer to the first commit, and does something before the next one is passed on."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do = do
        self.commits: list[Request] = []

    def __call__(self, request: Request) -> Fault:
        if request.method != "POST" or not request.path.endswith("/tables/t"):
            return Fault.PASS
        self.commits.append(request)
        if len(self.commits) == 1:
            return Fault.DROP_AFTER
        if len(self.commits) == 2:
            self._do()
        return Fault.PASS


def body_of(request: Request) -> dict[str, Any]:
    return dict(json.loads(request.raw[request.head :]))


def staged_files(session: Session) -> list[Path]:
    return list((local(session, "t") / "_delta_log" / "_staged_commits").iterdir())


def check(server: RunningServer, session: Session) -> None:
    """Both rows are there, once, for everybody."""
    assert ours(session) == BOTH
    with DuckDB(server.address) as duckdb:
        assert duckdb.sql(ROWS) == BOTH
    assert session.table("t").version == 2
    assert is_whole(server)


@pytest.fixture
def table(session: Session) -> None:
    session.create_table("t", "id long, who string")
    append(session, (0, "us"))


@shows("FC4", "FC5", "FX4")
@pytest.mark.usefixtures("table")
def test_published_and_forgotten_before_it_comes_again(
    server: RunningServer, session: Session
) -> None:
    def publish_and_forget() -> None:
        table = session.table("t")
        assert table.publish() == 2
        table.checkpoint()  # what it covers is forgotten
        assert session.catalog.ratified_commits(table.id).commits == ()

    plan = Between(publish_and_forget)
    with HttpProxy(("127.0.0.1", server.port), plan) as proxy, DuckDB(proxy.address) as duckdb:
        duckdb.sql(INSERT)
        assert proxy.statuses("POST", "/tables/t") == [200, 200]
    check(server, session)


@shows("FC8", "FX4")
@pytest.mark.usefixtures("table")
def test_its_staged_file_is_removed_before_it_comes_again(
    server: RunningServer, session: Session
) -> None:
    def clean_up() -> None:
        assert session.table("t").publish() == 2
        [file] = staged_files(session)
        file.unlink()

    plan = Between(clean_up)
    with HttpProxy(("127.0.0.1", server.port), plan) as proxy, DuckDB(proxy.address) as duckdb:
        duckdb.sql(INSERT)
        assert proxy.statuses("POST", "/tables/t") == [200, 200]
    assert ours(session) == BOTH
    # A commit published just now is still listed by its staged file, unless it is below others.
    append(session, (2, "us"))
    with DuckDB(server.address) as duckdb:
        assert duckdb.sql(ROWS) == [*BOTH, (2, "us")]
    assert is_whole(server)


@shows("FC4")
@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_others_went_on_before_it_comes_again(server: RunningServer, session: Session) -> None:
    plan = Between(lambda: append(session, (2, "us"), (3, "us")))
    with HttpProxy(("127.0.0.1", server.port), plan) as proxy, DuckDB(proxy.address) as duckdb:
        duckdb.sql(INSERT)
        assert proxy.statuses("POST", "/tables/t") == [200, 200]
    assert ours(session) == [*BOTH, (2, "us"), (3, "us")]
    assert session.table("t").version == 3
    assert is_whole(server)


@shows("FC6")
@pytest.mark.usefixtures("table")
def test_the_same_transaction_above_itself_is_refused_by_its_name(
    server: RunningServer, session: Session
) -> None:
    plan = Between(lambda: None)
    with HttpProxy(("127.0.0.1", server.port), plan) as proxy, DuckDB(proxy.address) as duckdb:
        duckdb.sql(INSERT)
    # DuckDB does not rebase; this is its very commit, as one that does would send it.
    body = body_of(plan.commits[0])
    [update] = [item for item in body["updates"] if item["action"] == "add-commit"]
    [file] = staged_files(session)
    name = f"{3:020d}.{uuid.uuid4()}.json"
    (file.parent / name).write_bytes(file.read_bytes())
    update["commit"] |= {"version": 3, "file-name": name}
    with httpx.Client(base_url=server.address) as http:
        answer = http.post(f"{IN_DEFAULT}/tables/t", json=body)
    assert error(answer)[0] == 400
    assert "already committed as version 2" in answer.text
    check(server, session)


@shows("FC9", "FX4")
@pytest.mark.slow
@pytest.mark.parametrize("place", ["ratifier.after_commit", "server.before_answer"])
def test_the_server_is_killed_between_ratifying_and_answering(tmp_path: Path, place: str) -> None:
    ratified: list[int] = []
    with RunningServer(str(tmp_path / "lake")) as server:
        first: list[int] = []

        def kill_and_heal(request: Request) -> Fault:
            if request.method != "POST" or not request.path.endswith("/tables/t"):
                return Fault.PASS
            if not first:
                server.kill()
                server.start({"HEADGATE_FAIL": f"{place}:kill"})
                first.extend(server.workers)
            elif not ratified and server.workers != first:  # else it never came through
                server.kill()
                with headgate.connect(server.store, publisher=False) as session:
                    ratified.append(session.table("t").version)
                server.start()
            return Fault.PASS

        with headgate.connect(server.address) as session:
            session.create_table("t", "id long, who string")
            append(session, (0, "us"))
        with (
            HttpProxy(("127.0.0.1", server.port), kill_and_heal) as proxy,
            DuckDB(proxy.address) as duckdb,
        ):
            duckdb.sql(INSERT)
        assert ratified == [2]  # before the one that answered was there
        with headgate.connect(server.address) as session:
            check(server, session)
