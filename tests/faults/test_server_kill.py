"""`kill -9` of servers and clients at every step: nothing acknowledged is lost, all is settled."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

import headgate
from headgate import _connect
from headgate.api.messages import Part, Proposal, Ratified, VersionTaken
from headgate.catalog.service import Catalog
from headgate.catalog.tails import lease_of
from headgate.client.session import Session
from headgate.errors import OutcomeUnknownError, UnavailableError
from headgate.protocol.actions import TableId, TxnId, Version
from tests.faults.harness import check_lake, check_values, run
from tests.faults.server_harness import (
    CLOCK,
    Writer,
    append_to_all,
    appending,
    check_rows,
    hold,
    remote,
    rows,
    serving,
    session_at,
    session_on,
    values_in,
)
from tests.kit import req, shows
from tests.kit.builders import inline
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
READY_S = 30.0  # a bound for a loaded machine; an idle one needs a second or two


def at(point: str, *crossings: int) -> list[str]:
    """Kill at some of a point's crossings; at all of them in a long run."""
    chosen = range(1, max(crossings) + 1) if IS_LONG else crossings
    return [f"{point}:kill@{nth}" for nth in chosen]


# A life with everything in it that a server does.


class Life:
    """One client's calls, in order, each recorded when tried and when acknowledged."""

    def __init__(self) -> None:
        self.tried: list[object] = []
        self.acknowledged: list[object] = []

    def live(self, session: Session, staging: Session) -> None:
        one = self._do("one", lambda: session.create_table("one", "value long"))
        two = self._do("two", lambda: session.create_table("two", "value long", three_phase=True))
        for value in range(3):
            self._do(value, lambda v=value: one.append(rows(v)))
        staged = staging.table("one")
        for value in range(3, 5):
            self._do(value, lambda v=value: staged.append(rows(v)))
        for value in range(100, 103):
            self._do(value, lambda v=value: append_to_all(session, [one, two], v))
        self._do("publish", lambda: one.publish())
        self._do("rename", lambda: session.rename("two", "second"))
        gone = self._do("gone", lambda: session.create_table("gone", "value long"))
        gone.append(rows(1))
        self._do("drop", lambda: session.drop("gone"))
        self._do("purge", lambda: session.purge(gone.id))
        self._do(5, lambda: one.append(rows(5)))

    def _do(self, what, do):  # type: ignore[no-untyped-def]  # what it gives differs
        self.tried.append(what)
        result = do()
        self.acknowledged.append(what)
        return result

    def check(self, lake: str | Path) -> None:
        """Compare what is stored with what was recorded."""
        numbers = {value for value in self.tried if isinstance(value, int)}
        sure = {value for value in self.acknowledged if isinstance(value, int)}
        with headgate.connect(lake, publisher=False) as session:
            check_lake(session)
            names = {str(entry.name).rpartition(".")[2] for entry in session.tables()}
            one = values_in(session.table("one")) if "one" in names else Counter()
            second = {"two", "second"} & names
            pairs = values_in(session.table(second.pop())) if second else Counter()
        assert sure <= set(one) <= numbers
        assert set(one.values()) <= {1}
        assert pairs == {value: 1 for value in one if value >= 100}  # in both, or in neither
        assert {"one", "gone"} & set(self.acknowledged) - {"gone"} <= names
        if "drop" in self.acknowledged:
            assert "gone" not in names


SERVER_POINTS = [
    *at("ratifier.before_begin", 4),
    *at("ratifier.after_decide", 3, 9),
    *at("ratifier.before_commit", 6),
    *at("ratifier.after_commit", 2, 7),
    *at("ratifier.before_answer", 5),
    *at("server.before_answer", 2, 12),
    *at("publisher.before_record", 2),
    *at("publisher.after_record", 2),
    *at("registry.before_register", 1, 2),
    *at("registry.after_register", 1, 2),
    *at("registry.after_drop", 1),
    *at("registry.purge_between_files", 1),
    *at("registry.before_forget_purged", 1),
]


@req("CM-12", "CM-42")
@shows("FC9", "FC4", "FM1", "FP1", "S4", "S6", "S7", "L1", "L3", "L8")
@pytest.mark.parametrize("fail", SERVER_POINTS)
def test_a_server_killed_anywhere_loses_nothing_and_its_clients_go_on_by_themselves(
    tmp_path: Path, fail: str
) -> None:
    live_through(tmp_path / "lake", fail)


# The points between a unit of the database and what follows it; the others know of no database.
DATABASE_POINTS = [
    *at("ratifier.before_commit", 6),
    *at("ratifier.after_commit", 2),
    *at("server.before_answer", 12),
    *at("publisher.before_record", 2),
]


@req("CM-12", "CM-42")
@shows("FC9", "FC4", "FM1", "FP1", "S4", "S6", "S7", "L1", "L3", "L8")
@pytest.mark.parametrize("fail", DATABASE_POINTS)
def test_a_server_on_postgresql_killed_anywhere_loses_nothing_either(
    postgres_server: Postgres, tmp_path: Path, fail: str
) -> None:
    store = postgres_server.new_database()
    _connect.init(store, root=str(tmp_path / "lake"))
    live_through(store, fail)


def live_through(store: str | Path, fail: str) -> None:
    """Have a server die in the middle of a client's life, and the client live on."""
    life = Life()
    with serving(store, fail=fail) as server:
        [first] = server.workers

        def work(_: Writer) -> None:
            with (
                session_at(server.address) as session,
                session_at(server.address, staged=True) as staging,
            ):
                life.live(session, staging)

        writer = Writer(work)
        eventually(lambda: first not in server.workers or not writer.is_alive())
        assert first not in server.workers, "the point was never crossed"
        server.kill()
        server.start()  # within the patience of the client, which knows nothing of all this
        writer.end()
        assert life.tried == life.acknowledged
        server.kill()
    life.check(store)
    hold(store)


@shows("FS8", "L8")
def test_a_server_killed_while_it_migrates_its_store_starts_the_next_time(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    server = RunningServer(str(lake))
    try:
        with pytest.raises(AssertionError, match="did not start"):
            server.start({"HEADGATE_FAIL": "store.migrate_before_commit:kill"})
        server.start()
        with session_at(server.address) as session:
            session.create_table("t", "value long").append(rows(1))
    finally:
        server.__exit__()
    hold(lake)


@req("CM-12")
@shows("FC9", "S4", "L8")
def test_a_server_killed_again_and_again_right_after_it_answered_loses_nothing(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with session_at(server.address) as session:
            for name in ("a", "b"):
                session.create_table(name, "value long")
        writers = [
            appending(server.address, "a", 1_000_000),
            appending(server.address, "a", 2_000_000, staged=True),
            appending(server.address, "b", 3_000_000),
        ]
        for turn in range(40 if IS_LONG else 6):
            for writer in writers:
                writer.wait_for(len(writer.acknowledged) + 3)
            if turn == 0:
                server.kill_worker()  # its parent starts another
                eventually(server.is_ready, READY_S)
            else:  # a parent whose workers die one after the other gives up, so all of it
                server.kill()
                server.start()
        for writer in writers:
            writer.wait_for(len(writer.acknowledged) + 3)  # they go on
            writer.end()
        with session_at(server.address) as session:
            check_rows(values_in(session.table("a")), writers[:2])
            check_rows(values_in(session.table("b")), writers[2:])
        server.kill()
    hold(lake)


@shows("L8", "S4")
def test_when_the_parent_is_killed_its_worker_leaves_and_another_server_takes_the_place(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with session_at(server.address) as session:
            session.create_table("t", "value long")
        writer = appending(server.address, "t", 1)
        writer.wait_for(3)
        [worker] = server.workers
        server.kill_parent()
        eventually(lambda: not Path(f"/proc/{worker}").exists(), READY_S)
        server.start()
        writer.wait_for(len(writer.acknowledged) + 3)
        writer.end()
        with session_at(server.address) as session:
            check_rows(values_in(session.table("t")), [writer])
        server.kill()
    hold(lake)


@shows("FS6", "L1", "S4")
def test_a_server_told_to_stop_under_load_answers_every_request_or_did_not_carry_it_out(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with session_at(server.address) as session:
            ids = [session.create_table(f"t{n}", "value long").id for n in range(4)]
        answers: list[tuple[TxnId, str]] = []  # each proposal is sent once, and once alone

        def propose(writer: Writer, number: int) -> None:
            client, version = remote(server.address), 0
            while not writer.is_stopping.is_set():
                version += 1
                txn_id = TxnId(str(client._ids.ordered()))
                part = Part(
                    table_id=ids[number % 4],
                    version=Version(version),
                    content=inline(operation="NOTHING"),
                )
                try:
                    answer = client.propose(Proposal(txn_id=txn_id, parts=(part,)))
                except OutcomeUnknownError:
                    answers.append((txn_id, "unknown"))
                except UnavailableError:
                    answers.append((txn_id, "unavailable"))
                    break
                else:
                    assert isinstance(answer, Ratified | VersionTaken)
                    if isinstance(answer, Ratified):
                        writer.acknowledged.append(version)
                        answers.append((txn_id, "ratified"))
                        version = answer.commits[ids[number % 4]].version
            client.close()

        writers = [Writer(lambda writer, n=n: propose(writer, n)) for n in range(8)]
        for writer in writers:
            writer.wait_for(5)
        assert server.stop() == 0
        for writer in writers:
            writer.end()
    with headgate.connect(lake, publisher=False) as session:
        applied = {entry.commit.txn_id for n in range(4) for entry in session.table(f"t{n}").log()}
    outcomes = dict(answers)
    assert {txn for txn, outcome in outcomes.items() if outcome == "ratified"} <= applied
    unanswered = {txn for txn, outcome in outcomes.items() if outcome != "ratified"}
    assert not unanswered & applied, "carried out, and never acknowledged"
    hold(lake)


@shows("FX24", "L1")
def test_a_request_on_a_connection_that_was_idle_is_answered_or_its_connection_ends(
    tmp_path: Path,
) -> None:
    pauses = [5, 15, 60] if IS_LONG else [5, 15]
    with serving(tmp_path / "lake") as server, session_at(server.address) as session:
        table = session.create_table("t", "value long")
        plain = httpx.Client(base_url=server.address, timeout=20)
        for count, pause in enumerate(pauses, 1):
            for _ in range(5):
                assert plain.get("/v1/names/t").status_code == 200
            table.append(rows(2 * count))
            time.sleep(pause)
            try:
                assert plain.get("/v1/names/t").status_code == 200
            except httpx.RemoteProtocolError:  # ended, and another one is opened
                assert plain.get("/v1/names/t").status_code == 200
            table.append(rows(2 * count + 1))
        plain.close()
        assert values_in(table) == dict.fromkeys(range(2, 2 * len(pauses) + 2), 1)


CLIENT_POINTS = [
    *at("client.before_propose", 3),
    *at("client.after_propose", 4),
    *at("remote.after_answer", 2),
    *at("registry.before_version_zero", 1),
    *at("registry.after_version_zero", 1),
]


@req("CM-12", "CM-39")
@shows("FC1", "FC4", "S4", "S5", "S6")
def test_a_client_killed_anywhere_loses_nothing_it_was_told_and_harms_nobody(
    tmp_path: Path,
) -> None:
    points = [*CLIENT_POINTS, *at("client.before_stage", 2), *at("client.after_stage", 2)]
    with serving(tmp_path / "lake") as server:
        for number, fail in enumerate(points):
            scenario = "staged" if "stage:" in fail else "appends"
            output = run(scenario, server.address, fail=fail)
            assert output.was_killed, output
            with session_at(server.address) as session:
                for table in ("one", "three"):
                    check_values(session, output, table)
                for entry in session.tables():
                    session.table_by_id(entry.table_id).append(rows(9_999))
                    name = str(entry.name).rpartition(".")[2]
                    session.rename(str(entry.name), f"{name}_{number}")  # room for the next one
        server.kill()
    hold(tmp_path / "lake")


@req("CM-25")
@shows("FP8", "L2", "L5")
def test_a_publisher_that_is_slow_slows_its_writers_and_nothing_is_refused_or_lost(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    limits = {"HEADGATE_UNPUBLISHED_SOFT": "5", "HEADGATE_UNPUBLISHED_WAIT_MS": "300"}
    with serving(lake, environment=limits) as server:
        catalog = remote(server.address)
        with session_on(catalog) as session:
            table = session.create_table("t", "value long")
            table.publish()
            be_a_slow_publisher(lake, table.id, 4_000)
            for value in range(12):
                table.append(rows(value))
            assert values_in(table) == dict.fromkeys(range(12), 1)
            eventually(lambda: table.log()[-1].commit.published_ms is not None)
            assert None not in [entry.commit.published_ms for entry in table.log()]
        held_back = [retry_after for status, retry_after in catalog.heard if status == 429]
        assert held_back
        assert all(held_back)
        server.kill()
    hold(lake)


def be_a_slow_publisher(lake: Path, table_id: TableId, ms: int) -> None:
    """Hold the publisher's lease of a table, in another process, for a while."""
    lease, now_ms = lease_of(table_id), CLOCK.now_ms()
    with headgate.connect(lake, publisher=False) as session:
        assert isinstance(session.catalog, Catalog)
        taken = session.catalog._ratifier.submit(
            lease, lambda unit: unit.acquire_lease(lease, "slow", now_ms, now_ms + ms)
        )
        assert taken.result()
