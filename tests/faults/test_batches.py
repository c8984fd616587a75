"""Batches of several processes on one database, and of processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.postgres import PostgresStore
from headgate.catalog.stores.rows import Epoch
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.table_states import TableStatus
from tests.catalog.store_contract.batches import epoch
from tests.catalog.store_contract.rows import insert
from tests.faults.batch_worker import attempt, opened
from tests.kit import req, shows
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres

pytestmark = pytest.mark.faults

TABLES = 3
KINDS = ["sqlite", "postgres"]


class Site:
    """A database with a few tables, and processes that write to it."""

    def __init__(self, address: str, schema: str, closing: ExitStack) -> None:
        self._place = (address, schema)
        self._closing = closing
        self.store = self.open()
        insert(self.store, *range(1, TABLES + 1))

    def open(self) -> CatalogStore:
        store = opened(*self._place)
        self._closing.callback(store.close)
        return store

    def start(self, name: str, attempts: int, fail: str = "") -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.faults.batch_worker"),
                *(*self._place, name, str(TABLES), str(attempts)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HEADGATE_FAIL": fail},
        )
        self._closing.callback(end, worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        return worker

    def whole_batches(self) -> set[str]:
        """Return the names of all batches that are stored; each is whole, and they are in order."""
        with self.store.read() as unit:
            events = unit.events(Sequence(0), 10**6)
            names = [str(event.txn_id) for event in events]
            assert [event.sequence for event in events] == list(range(1, len(names) + 1))
            assert all(len(event.commits) == TABLES for event in events)
            assert unit.epoch() == Epoch(Sequence(len(names)), 1)  # 1 for the tables themselves
            assert unit.decided([TxnId(f"{name} no") for name in names]) == {
                f"{name} no" for name in names
            }
            assert unit.counts().rejections == len(names)
            for row in unit.tables_in_state(TableStatus.ACTIVE):
                commits = unit.commits(row.key, Version(0), Version(10**6), content=False)
                assert [commit.txn_id for commit in commits] == names
                assert row.head == len(names) - 1
        return set(names)


def begin(*workers: subprocess.Popen[str]) -> None:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()


def heard(*workers: subprocess.Popen[str]) -> list[list[str]]:
    """Return the attempts of processes that have ended or will."""
    lines: list[str] = []
    for worker in workers:
        assert worker.stdout is not None
        lines += worker.stdout.read().split("\n")[:-1]  # of one that was killed the last may be cut
        worker.wait()
    return [line.split() for line in lines]


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        pipe.close()


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as closing:
        if request.param == "sqlite":
            yield Site(str(tmp_path / "headgate.db"), "", closing)
        else:
            server: Postgres = request.getfixturevalue("postgres_server")
            yield Site(server.address(), closing.enter_context(server.schema()), closing)


@req("CM-11")
@shows("S2")
def test_of_batches_decided_on_one_epoch_by_several_processes_exactly_one_is_written(
    site: Site,
) -> None:
    workers = [site.start(name, 40) for name in ("a", "b", "c")]
    begin(*workers)
    attempts = heard(*workers)
    assert len(attempts) == 120
    written = [name for name, _, outcome in attempts if outcome == "written"]
    assert site.whole_batches() == set(written)
    won = [on for _, on, outcome in attempts if outcome == "written"]
    lost = {on for _, on, outcome in attempts if outcome == "stale"}
    assert len(set(won)) == len(won)
    assert lost  # they did meet
    assert lost <= set(won)


@req("CM-12")
@shows("FC1", "FC9")
@pytest.mark.parametrize("seen", [1, 2, 13])
def test_a_process_killed_at_any_moment_leaves_whole_batches_and_all_it_acknowledged(
    site: Site, seen: int
) -> None:
    worker = site.start("a", 10**6)
    begin(worker)
    assert worker.stdout is not None
    acknowledged = [worker.stdout.readline().split() for _ in range(seen)]
    worker.kill()
    acknowledged += heard(worker)
    assert {outcome for *_, outcome in acknowledged} == {"written"}
    names = {name for name, *_ in acknowledged}
    stored = site.whole_batches()
    assert names <= stored
    assert len(stored - names) <= 1
    assert attempt(site.open(), "later", TABLES).endswith("written")
    assert site.whole_batches() == {*stored, "later"}


@req("CM-12")
@shows("FC1", "FC9")
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 7])
def test_a_process_killed_between_the_rows_of_a_batch_writes_none_of_them(
    site: Site, nth: int
) -> None:
    worker = site.start("a", 9, f"store.between_rows:kill@{nth}")
    begin(worker)
    acknowledged = {name for name, *_ in heard(worker)}
    assert len(acknowledged) == (nth - 1) // 4  # four statements for each batch
    assert site.whole_batches() == acknowledged
    assert attempt(site.open(), "later", TABLES).endswith("written")
    assert site.whole_batches() == {*acknowledged, "later"}


@req("CM-12")
@shows("FS7")
@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_a_batch_whose_process_is_killed_while_it_waits_is_applied_whole_or_not_at_all(
    site: Site, postgres_server: Postgres
) -> None:
    before = epoch(site.store)
    assert isinstance(site.store, PostgresStore)

    def waiting() -> list[object]:
        with postgres_server.connect() as admin:
            return admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE query LIKE 'WITH moved%' "
                "AND state = 'active'"
            ).fetchall()

    with site.store.write() as unit:
        assert unit.epoch() == before
        worker = site.start("a", 1)
        begin(worker)
        eventually(lambda: bool(waiting()))
        end(worker)
        assert waiting()
    eventually(lambda: not waiting())
    stored = site.whole_batches()
    assert stored <= {"a-0"}
    assert attempt(site.open(), "later", TABLES).endswith("written")
    assert site.whole_batches() == {*stored, "later"}
