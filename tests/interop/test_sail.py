"""Sail, unmodified, through the older dialect; and all engines on one table."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.client.session import Session
from tests.http.unity.conftest import BASE, CLOCK, file_bytes, older_error
from tests.interop.conftest import (
    ROOT,
    DuckDB,
    RefusedByEngine,
    Sail,
    append,
    documented,
    is_whole,
    local,
    ours,
)
from tests.kit import req
from tests.kit.builders import add
from tests.kit.proxy import Fault, HttpProxy, Request
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop
ROWS = "SELECT * FROM default.t ORDER BY id"
COMMITS = f"{BASE}/delta/preview/commits"


def test_the_page_is_run_as_it_stands(server: RunningServer, session: Session) -> None:
    session.create_table("orders", "id long, item string")
    with Sail(server.address) as sail:
        sail.ask(python=documented("Sail")[1].replace(".show()", ".collect()"))
    assert ours(session, "orders") == [(1, "chair")]


def test_the_page_installs_what_is_tested() -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    [line] = re.findall(r"pip install (pysail==.*)", page)
    pinned = (Path(__file__).parent / "sail.txt").read_text().splitlines()
    assert line.replace('"', "").split() == [row for row in pinned if not row.startswith("#")]


def test_a_table_is_made_written_and_changed(server: RunningServer, session: Session) -> None:
    with Sail(server.address) as sail:
        sail.sql("CREATE TABLE default.t (id BIGINT, who STRING) USING delta")
        sail.sql("INSERT INTO default.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        sail.sql("DELETE FROM default.t WHERE id = 1")
        sail.sql("UPDATE default.t SET who = 'B' WHERE id = 2")
        sail.sql(
            "MERGE INTO default.t AS old USING (SELECT CAST(3 AS BIGINT) AS id, 'C' AS who "
            "UNION ALL SELECT CAST(4 AS BIGINT), 'd') AS new ON old.id = new.id "
            "WHEN MATCHED THEN UPDATE SET who = new.who WHEN NOT MATCHED THEN INSERT *"
        )
        rows = [(2, "B"), (3, "C"), (4, "d")]
        assert sail.sql(ROWS) == rows
        assert ours(session) == rows
        append(session, (5, "us"))
        assert sail.sql(ROWS) == [*rows, (5, "us")]
    assert session.table("t").version == 5
    assert is_whole(server)


def test_a_partitioned_table_is_as_it_should_be_whatever_sail_says(
    server: RunningServer, session: Session
) -> None:
    with Sail(server.address) as sail:
        with pytest.raises(RefusedByEngine, match="already exists"):
            sail.sql(
                "CREATE TABLE default.t (id BIGINT, day STRING) USING delta PARTITIONED BY (day)"
            )
        sail.sql("INSERT INTO default.t VALUES (1, 'a'), (2, 'b')")
        append(session, (3, "c"))
        assert sail.sql(ROWS) == [(1, "a"), (2, "b"), (3, "c")]
    assert ours(session) == [(1, "a"), (2, "b"), (3, "c")]
    assert is_whole(server)


def test_staged_files_that_lost_do_not_disturb_it(server: RunningServer, session: Session) -> None:
    table = session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    (local(session, "t") / "lost.parquet").write_bytes(bytes(100))
    stamp = CLOCK.now_ms() + 60_000
    lost = file_bytes(add("lost.parquet", size=100), timestamp_ms=stamp)
    folder = local(session, "t") / "_delta_log" / "_staged_commits"
    folder.mkdir(parents=True, exist_ok=True)
    for version in (1, 2):
        name = f"{version:020d}.{uuid.uuid4()}.json"
        (folder / name).write_bytes(lost)
    append(session, (2, "us"))
    with httpx.Client(base_url=server.address) as http:
        commit = {
            "version": 2,
            "timestamp": stamp,
            "file_name": name,
            "file_size": len(lost),
            "file_modification_timestamp": 1,
        }
        body = {"table_id": table.id, "table_uri": table.location, "commit_info": commit}
        # Nothing is wrong with it but that another came first.
        assert older_error(http.post(COMMITS, json=body)) == (409, "COMMIT_VERSION_CONFLICT")
    with Sail(server.address) as sail:
        assert sail.sql(ROWS) == [(1, "us"), (2, "us")]
        sail.sql("INSERT INTO default.t VALUES (3, 'sail')")
        assert sail.sql(ROWS) == [(1, "us"), (2, "us"), (3, "sail")]
    assert ours(session) == [(1, "us"), (2, "us"), (3, "sail")]


@req("CA-04")
@pytest.mark.parametrize("fault", [Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.DOUBLE])
def test_a_commit_whose_request_or_answer_is_lost_leaves_the_table_whole(
    server: RunningServer, session: Session, fault: Fault
) -> None:
    session.create_table("t", "id long, who string")
    hit: list[str] = []

    def once(request: Request) -> Fault:
        if request.method == "POST" and request.path == COMMITS and not hit:
            hit.append(request.path)
            return fault
        return Fault.PASS

    with HttpProxy(("127.0.0.1", server.port), once) as proxy, Sail(proxy.address) as sail:
        try:
            sail.sql("INSERT INTO default.t VALUES (1, 'sail')")
            possible = [[(1, "sail")]]
        except RefusedByEngine:
            possible = [[], [(1, "sail")]]  # it does not know, and neither did anybody lose rows
    assert hit
    found = ours(session)
    assert found in possible
    with Sail(server.address) as sail:
        assert sail.sql(ROWS) == found
    assert is_whole(server)


def test_all_engines_write_one_table_and_all_read_the_same_rows(
    server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    rows: list[tuple[Any, ...]] = []
    with Sail(server.address) as sail, DuckDB(server.address) as duckdb:
        for turn in range(3):
            append(session, (turn * 10, "us"))
            sail.sql(f"INSERT INTO default.t VALUES ({turn * 10 + 1}, 'sail')")
            duckdb.look_again()
            duckdb.sql(f"INSERT INTO lake.default.t VALUES ({turn * 10 + 2}, 'duck')")
            rows += [(turn * 10, "us"), (turn * 10 + 1, "sail"), (turn * 10 + 2, "duck")]
            assert ours(session) == rows
            assert sail.sql(ROWS) == rows
            duckdb.look_again()
            assert duckdb.sql("SELECT * FROM lake.default.t ORDER BY id") == rows
    assert session.table("t").version == 9
    assert is_whole(server)
