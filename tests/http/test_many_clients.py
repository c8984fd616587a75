"""Many real clients of one server at once: every write is there once, and every name has one table.

Each client has a connection of its own, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx
import pyarrow as pa
import pytest

import headgate
from headgate import _connect
from headgate.errors import AlreadyExistsError
from tests.http.unity.conftest import IN_DEFAULT, stage
from tests.kit.other_readers import duckdb_reads_tail, rows
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer

pytestmark = pytest.mark.slow
WRITERS, BATCHES, ROWS = 60, 5, 10
COLUMNS = ("writer", "batch", "row")
CREATORS = 50

Result = TypeVar("Result")


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningServer]:
    store = str(tmp_path / "lake")
    if request.param == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres_server")
        store = postgres.new_database()
        _connect.init(store, root=f"file://{tmp_path}/lake")
    with RunningServer(store) as running:
        yield running


def at_once(clients: int, do: Callable[[int], Result]) -> list[Result]:
    """Run a function for each client, all begun at the same moment."""
    start = threading.Barrier(clients)

    def run(number: int) -> Result:
        start.wait(60)
        return do(number)

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(run, range(clients)))


def test_sixty_writers_of_small_batches_to_one_table_lose_and_repeat_nothing(
    server: RunningServer,
) -> None:
    with headgate.connect(server.address) as session:
        table = session.create_table("t", "writer long, batch long, row long")

        def write(writer: int) -> None:
            with headgate.connect(server.address) as own:
                mine = own.table("t")
                for batch in range(BATCHES):
                    values = [(writer, batch, row) for row in range(ROWS)]
                    mine.append([dict(zip(COLUMNS, each, strict=True)) for each in values])

        at_once(WRITERS, write)
        table = session.table("t")
        assert table.version == WRITERS * BATCHES
        table.publish()
        found = duckdb_reads_tail(table.location, [], table.version)
    written = itertools.product(range(WRITERS), range(BATCHES), range(ROWS))
    assert found == rows(
        pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in written])
    )


def test_of_fifty_clients_that_create_one_name_exactly_one_does(server: RunningServer) -> None:
    with headgate.connect(server.address) as session:

        def create(number: int) -> bool:
            with headgate.connect(server.address) as own:
                try:
                    own.create_table("t", f"c{number} long")
                except AlreadyExistsError:
                    return False
                return True

        created = at_once(CREATORS, create)
        assert created.count(True) == 1
        [column] = session.table("t").schema.fields
        assert column.name == f"c{created.index(True)}"
        assert [str(entry.name) for entry in session.tables()] == ["main.default.t"]


def test_of_fifty_stock_clients_that_create_one_name_exactly_one_gets_200(
    server: RunningServer,
) -> None:
    with httpx.Client(base_url=server.address, timeout=60) as http:
        staged = [stage(http, "t") for _ in range(CREATORS)]

        def create(number: int) -> int:
            with httpx.Client(base_url=server.address, timeout=60) as own:
                return own.post(f"{IN_DEFAULT}/tables", json=staged[number].create).status_code

        answers = at_once(CREATORS, create)
        assert Counter(answers) == {200: 1, 409: CREATORS - 1}
        loaded = http.get(f"{IN_DEFAULT}/tables/t").json()
        assert loaded["metadata"]["table-uuid"] == staged[answers.index(200)].table_id
