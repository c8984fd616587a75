"""DuckDB and Sail on tables with features, beside transactions over several, and with tokens."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate._connect import init
from headgate.client.session import Session
from headgate.client.transaction import OperationInfo
from headgate.protocol import deletion_vectors
from headgate.protocol.actions import removals
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.encoding import replaced
from tests.faults.server_harness import append_to_all
from tests.interop.conftest import (
    DuckDB,
    RefusedByEngine,
    Sail,
    append,
    is_whole,
    ours,
)
from tests.kit import req, shows
from tests.kit.builders import inline_vector
from tests.kit.server import RunningServer

pytestmark = pytest.mark.interop


class Reader:
    """An engine that reads and inserts, whatever it calls things."""

    def __init__(self, engine: DuckDB | Sail) -> None:
        self.engine = engine
        self._within = "lake.default" if isinstance(engine, DuckDB) else "default"

    def rows(self, name: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.engine.sql(f"SELECT * FROM {self._within}.{name}"))

    def insert(self, values: str, name: str = "t") -> None:
        self.engine.sql(f"INSERT INTO {self._within}.{name} VALUES {values}")

    def look_again(self) -> None:
        if isinstance(self.engine, DuckDB):
            self.engine.look_again()


@pytest.fixture(params=[DuckDB, Sail], ids=["DuckDB", "Sail"])
def reader(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Reader]:
    with request.param(server.address) as engine:
        yield Reader(engine)


# Several tables at once


@shows("FM7")
def test_who_finds_a_transaction_in_one_table_finds_it_in_the_next(
    reader: Reader, server: RunningServer, session: Session
) -> None:
    """Reading the one publishes it, before any read of the other."""
    tables = [session.create_table(name, "value long") for name in ("a", "b")]
    is_over = threading.Event()
    written: list[int] = []

    def write() -> None:
        with headgate.connect(server.address) as own:
            both = [own.table_by_id(table.id) for table in tables]
            while not is_over.is_set():
                append_to_all(own, both, len(written))
                written.append(len(written))

    writer = threading.Thread(target=write)
    writer.start()
    seen: set[int] = set()
    try:
        for turn in range(500):
            first, second = ("a", "b") if turn % 2 else ("b", "a")
            known = len(written)
            reader.look_again()
            before, after = reader.rows(first), reader.rows(second)
            assert set(before) <= set(after), "half of a transaction was read"
            assert before == [(value,) for value in range(len(before))]
            assert len(before) >= known, "a read is older than its start"
            seen.add(len(before))
            if turn >= 10 and len(seen) >= 8:
                break
    finally:
        is_over.set()
        writer.join()
    assert len(seen) >= 8, "nothing was written while they read"
    reader.look_again()
    assert reader.rows("a") == reader.rows("b") == [(value,) for value in written]
    assert is_whole(server)


# Features


def delete_by_vector(session: Session, *positions: int, stored: bool) -> None:
    """Take rows out of the one file of a table, as engines with deletion vectors do."""
    table = session.table("t")
    base = table.snapshot()
    [file] = base.files()
    vector = inline_vector(positions)
    if stored:
        laid_out = deletion_vectors.vector_file([positions], uuid.uuid4())
        base.store.put_if_absent(laid_out.path, laid_out.content)
        [vector] = laid_out.descriptors
    stats = (file.stats or "").replace('"tightBounds":true', '"tightBounds":false')
    table.commit(
        base,
        [*removals([file], 0), replaced(file, deletion_vector=vector, stats=stats)],
        OperationInfo("DELETE"),
        [Scan(table_id=table.id, version=base.version)],
    )


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(True, id="in a file"),
        pytest.param(False, id="inline", marks=pytest.mark.slow),
    ],
)
def test_rows_deleted_by_a_vector_are_not_read(
    reader: Reader, server: RunningServer, session: Session, stored: bool
) -> None:
    vectors = {"delta.enableDeletionVectors": "true"}
    session.create_table("t", "id long, who string", properties=vectors)
    append(session, *((number, "us") for number in range(6)))
    delete_by_vector(session, 1, 4, stored=stored)
    rows: list[tuple[Any, ...]] = [(number, "us") for number in (0, 2, 3, 5)]
    assert ours(session) == rows
    assert reader.rows() == rows
    reader.insert("(6, 'engine')")
    rows.append((6, "engine"))
    reader.look_again()
    assert reader.rows() == ours(session) == rows
    assert is_whole(server)


@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.slow)])
def test_a_table_with_mapped_columns_is_written_rightly_or_not_at_all(
    reader: Reader, server: RunningServer, session: Session, mode: str
) -> None:
    mapped = {"delta.columnMapping.mode": mode}
    session.create_table("t", "id long, who string", properties=mapped)
    append(session, (1, "us"))
    session.table("t").rename_column("who", "name")
    rows: list[tuple[Any, ...]] = [(1, "us")]
    assert reader.rows() == rows
    if isinstance(reader.engine, DuckDB):  # its files have the table's own names in them
        with pytest.raises(RefusedByEngine, match="whose physical name is another"):
            reader.insert("(2, 'engine')")
    else:
        reader.insert("(2, 'engine')")
        rows.append((2, "engine"))
        assert reader.rows() == rows
    assert ours(session) == rows
    assert is_whole(server)


# Tokens


@req("CA-04")
def test_a_server_that_asks_for_tokens_serves_who_has_one(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    init(lake)
    with headgate.connect(lake) as session:
        secret = session.create_token("duck")
    with RunningServer(str(lake), "--auth") as server:
        with headgate.connect(server.address, token=secret) as session:
            session.create_table("t", "id long, who string")
            append(session, (1, "us"))
            with (
                pytest.raises(RefusedByEngine, match="UNAUTHENTICATED"),
                DuckDB(server.address, f"x{secret}") as duckdb,
            ):
                Reader(duckdb).rows()
            with DuckDB(server.address, secret) as duckdb:
                reader = Reader(duckdb)
                assert reader.rows() == [(1, "us")]
                reader.insert("(2, 'duck')")
                assert reader.rows() == ours(session) == [(1, "us"), (2, "duck")]
        assert secret not in server.log()
    assert is_whole(server)
