"""Several servers on one database decide as one, whichever of them dies or hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import headgate
from headgate import _connect
from headgate.api.messages import Part, Proposal, Ratified
from headgate.client.session import Session
from headgate.clock import RandomIds
from headgate.errors import BusyError, OutcomeUnknownError
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from tests.chaos.campaign import paused
from tests.faults.harness import check_lake, start
from tests.faults.server_harness import (
    Writer,
    append_to_all,
    appending,
    check_rows,
    hold,
    remote,
    rows,
    serving,
    session_at,
    values_in,
    values_of,
)
from tests.kit import postgres, req, shows
from tests.kit.builders import inline
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres
from tests.kit.proxy import ByteProxy, Cut
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    server = postgres.start()
    yield server
    server.close()


@pytest.fixture
def store(database: Postgres, tmp_path: Path) -> str:
    """The address of a lake on PostgreSQL."""
    address = database.new_database()
    _connect.init(address, root=str(tmp_path / "lake"))
    return address


def writing(addresses: list[str], first: int) -> Writer:
    """Write to two tables through any server with each request, reading now and then."""

    def work(writer: Writer) -> None:
        with session_at(*addresses) as session:
            hot = session.table("hot")
            pair = [session.table(name) for name in ("a", "b")]
            value = first
            while not writer.is_stopping.is_set():
                writer.tried.append(value)
                if value % 3:
                    hot.append(rows(value))
                else:
                    append_to_all(session, pair, value)
                writer.acknowledged.append(value)
                if value % 5 == 0:  # a handle that went back would raise
                    seen = values_in(hot)
                    assert {v for v in writer.acknowledged if v % 3} <= set(seen)
                    cut = session.read_cut(["a", "b"])
                    assert values_of(cut["a"]) == values_of(cut["b"])
                value += 1

    return Writer(work)


def make_tables(session: Session) -> None:
    for name in ("hot", "a", "b"):
        session.create_table(name, "value long")


def check_all(session: Session, writers: list[Writer]) -> None:
    found = values_in(session.table("hot")) + values_in(session.table("a"))
    check_rows(found, writers)
    assert values_in(session.table("a")) == values_in(session.table("b"))


@req("CA-03")
@shows("FS1", "FS2", "FM3", "S2", "S3", "S4", "S17", "S18")
def test_two_servers_decide_as_one_while_each_in_turn_is_killed_and_stands_still(
    store: str,
) -> None:
    with serving(store) as one, serving(store) as other:
        addresses = [one.address, other.address]
        with session_at(*addresses) as session:
            make_tables(session)
        writers = [writing(addresses, number * 1_000_000) for number in (1, 2, 3)]
        for victim in (one, other):
            for writer in writers:
                writer.wait_for(len(writer.acknowledged) + 5)
            with paused(victim.workers):  # stale by the time it goes on
                time.sleep(1)
            victim.kill()
            for writer in writers:
                writer.wait_for(len(writer.acknowledged) + 2)  # the other one serves them
            victim.start()
        for writer in writers:
            writer.wait_for(len(writer.acknowledged) + 5)
            writer.end()
        with session_at(one.address) as here, session_at(other.address) as there:
            check_all(here, writers)
            assert here.table("hot").version == there.table("hot").version
        assert one.stop() == 0
        assert other.stop() == 0
    hold(store)


@req("CA-03")
@shows("FS1", "S4")
def test_the_workers_of_one_server_decide_as_one_and_go_on_when_one_of_them_dies(
    store: str,
) -> None:
    with serving(store, "--workers", "2") as server:
        eventually(lambda: len(server.workers) == 2)
        with session_at(server.address) as session:
            make_tables(session)
        writers = [writing([server.address], number * 1_000_000) for number in (1, 2, 3)]
        for writer in writers:
            writer.wait_for(5)
        os.kill(server.workers[0], signal.SIGKILL)
        for writer in writers:
            writer.wait_for(len(writer.acknowledged) + 5)
            writer.end()
        with session_at(server.address) as session:
            check_all(session, writers)
        assert server.stop() == 0
    hold(store)


@req("CA-03")
@shows("FS2", "S18")
def test_a_server_does_not_answer_from_before_what_its_client_has_seen(store: str) -> None:
    with serving(store) as server, session_at(server.address) as session:
        make_tables(session)
        seen = session.catalog.resolve(session.table("hot").id).sequence
        assert seen is not None
        with httpx.Client(base_url=server.address) as http:
            path = "/v1/names/hot?minSequence="
            assert http.get(f"{path}{seen}").status_code == 200
            behind = http.get(f"{path}{seen + 1}")
            assert behind.status_code == 429
            assert behind.headers["retry-after"]
        catalog = remote(server.address)
        catalog._patience = type(catalog._patience)(busy_s=0.2)
        catalog._note_sequence(Sequence(seen + 1))  # as reported by another server
        with pytest.raises(BusyError):
            catalog.resolve(session.table("hot").id)
        catalog.close()


@req("CM-43")
@shows("FS7", "S6", "L3")
@pytest.mark.parametrize("is_passed_on", [False, True], ids=["before", "after"])
def test_a_database_connection_lost_in_the_middle_of_commit_is_unknown_and_a_resend_settles_it(
    database: Postgres, store: str, is_passed_on: bool
) -> None:
    with ByteProxy(("127.0.0.1", database.port)) as line:
        served = store.replace(f":{database.port}/", f":{line.port}/")
        with serving(served) as server, session_at(server.address) as session:
            make_tables(session)
            hot = session.table("hot")
            hot.publish()
            [worker] = server.workers
            proposals, unknown = cut_some(line, server, hot.id, is_passed_on)
            for proposal in unknown:
                if is_passed_on:  # soon: the database has it, and works on it
                    eventually(lambda p=proposal: session.outcome(p.txn_id) is not None)
                else:
                    assert session.outcome(proposal.txn_id) is None
            settled = [session.catalog.propose(proposal) for proposal in proposals]
            assert all(isinstance(answer, Ratified) for answer in settled)
            times = [entry.commit.txn_id for entry in hot.log()]
            assert {times.count(proposal.txn_id) for proposal in proposals} == {1}
            hot.append(rows(1))  # and goes on, the same process, without a restart
            assert server.workers == [worker]
    hold(store)


def cut_some(
    line: ByteProxy, server: RunningServer, table_id: TableId, is_passed_on: bool
) -> tuple[list[Proposal], list[Proposal]]:
    """Cut the connection that writes a batch, and the one that sends it again; give proposals.

    The second list has those whose outcome is unknown to their clients.
    """
    proposals = [nothing(table_id) for _ in range(4)]
    line.cut = Cut(proposals[0].txn_id.encode(), is_passed_on=is_passed_on, times=2)
    heard = together(server.address, proposals)
    unknown = [p for p, answer in zip(proposals, heard, strict=True) if answer is None]
    assert proposals[0] in unknown
    assert line.cut.done == 2
    return proposals, unknown


def nothing(table_id: TableId) -> Proposal:
    """Propose a commit that changes nothing, which can be moved to any version."""
    part = Part(table_id=table_id, version=Version(1), content=inline(operation="NOTHING"))
    return Proposal(txn_id=TxnId(str(RandomIds().ordered())), parts=(part,))


def together(address: str, proposals: list[Proposal]) -> list[Ratified | None]:
    """Send all at the same time, each once; None where the outcome is unknown."""
    heard: dict[int, Ratified | None] = {}
    ready = threading.Barrier(len(proposals))

    def send(number: int) -> None:
        client = remote(address)
        ready.wait()
        try:
            answer = client.propose(proposals[number])
            assert isinstance(answer, Ratified)
            heard[number] = answer
        except OutcomeUnknownError:
            heard[number] = None
        client.close()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(proposals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [heard[number] for number in range(len(proposals))]


@shows("FS4")
def test_a_lock_that_another_holds_is_waited_for_and_nobody_is_told_of_it(
    database: Postgres, store: str
) -> None:
    with serving(store) as server, session_at(server.address) as session:
        make_tables(session)
        hot = session.table("hot")
        with database.connect(store) as other:
            other.execute("BEGIN")
            other.execute("SELECT sequence FROM headgate.clock FOR UPDATE")
            writer = appending(server.address, "hot", 1)
            time.sleep(6)  # longer than one wait for a lock
            assert not writer.acknowledged
            assert writer.is_alive()
            other.execute("ROLLBACK")
        writer.wait_for(3)
        writer.end()
        check_rows(values_in(hot), [writer])


@req("CA-03")
@shows("FS1", "FC7", "S2", "S3", "S4")
def test_a_server_and_embedded_processes_on_one_sqlite_file_decide_as_one(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with session_at(server.address) as session:
            session.create_table("hot", "value long")
        embedded = [start("many", lake, number) for number in (1, 2)]
        writers = [appending(server.address, "hot", number * 10_000_000) for number in (5, 6)]
        outputs = [one.wait() for one in embedded]
        assert [one.code for one in outputs] == [0, 0], [one.stderr for one in outputs]
        for writer in writers:
            writer.wait_for(3)
            writer.end()
        assert server.stop() == 0
    with headgate.connect(lake, publisher=False) as session:
        found = values_in(session.table("hot"))
        for one in outputs:
            values = one.values("ok", "hot")
            assert len(values) == 40
            assert all(found.pop(value) == 1 for value in values)
        check_rows(found, writers)
        check_lake(session)
