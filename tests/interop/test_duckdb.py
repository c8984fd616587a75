"""DuckDB with its Unity Catalog extension, unmodified, on a table that our own clients use too."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate
from headgate.client.session import Session
from tests.interop.conftest import (
    ROOT,
    DuckDB,
    RefusedByEngine,
    append,
    documented,
    is_whole,
    local,
    ours,
)
from tests.kit import req, shows
from tests.kit.proxy import Fault, HttpProxy, Request
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop
ROWS = "SELECT * FROM lake.default.t ORDER BY ALL"
MANAGED = re.compile("catalog.?managed", re.IGNORECASE)


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/tables/t")


def test_the_page_is_run_as_it_stands(server: RunningServer, session: Session) -> None:
    session.create_table("orders", "id long, item string")
    with DuckDB(server.address) as duckdb:
        first, second, _ = documented("DuckDB")
        whole = (first + second).replace("http://127.0.0.1:8750", server.address)
        duckdb.ask(python=whole.replace("print(", "("))
        assert duckdb.sql("SELECT * FROM lake.default.orders") == [(1, "chair")]
    assert ours(session, "orders") == [(1, "chair")]


def test_the_page_installs_what_is_tested() -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    [line] = re.findall(r"pip install (duckdb==.*)", page)
    pinned = (Path(__file__).parent / "duckdb.txt").read_text().splitlines()
    assert line.split() == [row for row in pinned if not row.startswith("#")]


def test_both_write_in_turns_and_read_each_others_rows(
    server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    with DuckDB(server.address) as duckdb:
        rows: list[tuple[Any, ...]] = []
        for turn in range(4):
            append(session, (turn * 10, "us"))
            rows.append((turn * 10, "us"))
            duckdb.look_again()
            assert duckdb.sql(ROWS) == rows
            duckdb.sql(f"INSERT INTO lake.default.t VALUES ({turn * 10 + 1}, 'duck')")
            rows.append((turn * 10 + 1, "duck"))
            assert ours(session) == rows
            assert duckdb.sql(ROWS) == rows
    assert session.table("t").version == 8
    assert is_whole(server)


def test_a_partitioned_table_is_read_and_written(server: RunningServer, session: Session) -> None:
    session.create_table("t", "id long, day date", partition_by=["day"])
    with DuckDB(server.address) as duckdb:
        duckdb.sql("INSERT INTO lake.default.t VALUES (1, DATE '2026-03-01')")
        assert duckdb.sql("SELECT id FROM lake.default.t") == [(1,)]
        duckdb.sql("INSERT INTO lake.default.t VALUES (2, NULL)")
        session.table("t").append(
            pa.table({"id": [3], "day": pa.array(["2026-03-02"]).cast(pa.date32())})
        )
        duckdb.look_again()
        found = duckdb.sql("SELECT id, CAST(day AS VARCHAR) FROM lake.default.t ORDER BY id")
    assert found == [(1, "2026-03-01"), (2, None), (3, "2026-03-02")]
    read = session.table("t").to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], str(row["day"])) for row in read] == [
        (1, "2026-03-01"),
        (2, "None"),
        (3, "2026-03-02"),
    ]


def test_a_table_with_mapped_columns_is_read(server: RunningServer, session: Session) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    session.create_table("t", "id long, who string", properties=mapped)
    append(session, (1, "us"), (2, "us"))
    with DuckDB(server.address) as duckdb:
        assert duckdb.sql(ROWS) == [(1, "us"), (2, "us")]


def test_the_one_that_comes_second_is_told_so_and_nothing_of_it_stays(
    server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    with DuckDB(server.address) as duckdb:
        duckdb.sql("BEGIN")
        duckdb.sql("INSERT INTO lake.default.t VALUES (1, 'late')")
        append(session, (2, "us"))
        with pytest.raises(RefusedByEngine, match=r"CommitVersionConflict|is taken"):
            duckdb.sql("COMMIT")
    with DuckDB(server.address) as duckdb:
        assert duckdb.sql(ROWS) == [(2, "us")]
        duckdb.sql("INSERT INTO lake.default.t VALUES (1, 'again')")
        assert duckdb.sql(ROWS) == [(1, "again"), (2, "us")]
    assert ours(session) == [(1, "again"), (2, "us")]
    assert is_whole(server)


def test_a_commit_that_breaks_a_rule_fails_at_once(server: RunningServer, session: Session) -> None:
    session.create_table("t", "id long, who string")
    staged = local(session, "t") / "_delta_log" / "_staged_commits"

    def take_the_id_away(request: Request) -> Fault:
        if is_commit(request):
            [file] = staged.iterdir()
            file.write_bytes(file.read_bytes().replace(b'"txnId"', b'"other"'))
        return Fault.PASS

    with HttpProxy(("127.0.0.1", server.port), take_the_id_away) as proxy:
        with DuckDB(proxy.address) as duckdb, pytest.raises(RefusedByEngine, match="txnId"):
            duckdb.sql("INSERT INTO lake.default.t VALUES (1, 'duck')")
        assert proxy.statuses("POST", "/tables/t") == [400]  # one final answer
    assert (session.table("t").version, ours(session)) == (0, [])
    with DuckDB(server.address) as duckdb:
        duckdb.sql("INSERT INTO lake.default.t VALUES (2, 'duck')")
    assert ours(session) == [(2, "duck")]
    assert is_whole(server)


def test_a_commit_to_a_table_that_was_dropped_fails_at_once(
    server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    with HttpProxy(("127.0.0.1", server.port)) as proxy:
        with DuckDB(proxy.address) as duckdb:
            assert duckdb.sql(ROWS) == []
            duckdb.sql("BEGIN")
            duckdb.sql("INSERT INTO lake.default.t VALUES (1, 'late')")
            session.drop("t")
            with pytest.raises(RefusedByEngine, match="NoSuchTableException"):
                duckdb.sql("COMMIT")
        assert proxy.statuses("POST", "/tables/t") == [404]
    session.undrop(session.tables(dropped=True)[0].table_id)
    assert ours(session) == []
    assert is_whole(server)


@req("CA-04")
@shows("FC4", "FC7")
@pytest.mark.parametrize(
    "fault",
    [
        Fault.DROP_BEFORE,
        Fault.DROP_AFTER,
        Fault.CUT_BODY,
        Fault.CUT_ANSWER,
        Fault.DOUBLE,
        Fault.ANSWER_500,
    ],
)
def test_a_commit_whose_request_or_answer_is_lost_leaves_the_table_whole(
    server: RunningServer, session: Session, fault: Fault
) -> None:
    session.create_table("t", "id long, who string")
    append(session, (0, "us"))
    hit: list[str] = []

    def once(request: Request) -> Fault:
        if is_commit(request) and not hit:
            hit.append(request.path)
            return fault
        return Fault.PASS

    expected = [(0, "us"), (1, "duck")]
    with HttpProxy(("127.0.0.1", server.port), once) as proxy, DuckDB(proxy.address) as duckdb:
        try:
            duckdb.sql("INSERT INTO lake.default.t VALUES (1, 'duck')")
        except RefusedByEngine:
            # It sends again what it may: then it is for us to know it again.
            assert fault not in (Fault.DROP_AFTER, Fault.CUT_ANSWER, Fault.DOUBLE, Fault.ANSWER_500)
            expected = [(0, "us")]
    assert hit
    assert ours(session) == expected
    with DuckDB(server.address) as duckdb:
        assert duckdb.sql(ROWS) == expected
    assert is_whole(server)


@pytest.mark.slow
def test_writers_of_both_kinds_at_once_lose_no_row_that_was_acknowledged(
    server: RunningServer, session: Session
) -> None:
    session.create_table("t", "id long, who string")
    acknowledged: set[tuple[int, str]] = set()
    lost = [0]

    def duck(number: int) -> None:
        for turn in range(6):
            row = (number * 100 + turn, "duck")
            for _ in range(60):
                with DuckDB(server.address) as engine:
                    try:
                        engine.sql(f"INSERT INTO lake.default.t VALUES ({row[0]}, 'duck')")
                    except RefusedByEngine:
                        lost[0] += 1
                        continue
                acknowledged.add(row)
                break

    def us(number: int) -> None:
        with headgate.connect(server.address) as own:
            for turn in range(30):
                row = (number * 100 + turn, "us")
                append(own, row)
                acknowledged.add(row)

    threads = [threading.Thread(target=duck, args=(n,)) for n in (1, 2)]
    threads += [threading.Thread(target=us, args=(n,)) for n in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(acknowledged) == 2 * 6 + 2 * 30
    assert ours(session) == sorted(acknowledged)
    with DuckDB(server.address) as duckdb:
        assert sorted(duckdb.sql(ROWS)) == sorted(acknowledged)
    assert is_whole(server)


def test_by_its_path_it_refuses_the_table(server: RunningServer, session: Session) -> None:
    session.create_table("t", "id long, who string")
    append(session, (1, "us"))
    session.table("t").publish()
    location = session.table("t").location
    with DuckDB(server.address) as duckdb, pytest.raises(RefusedByEngine, match=MANAGED):
        duckdb.sql(f"SELECT * FROM delta_scan('{location}')")
