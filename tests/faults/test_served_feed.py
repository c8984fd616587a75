"""A real server: webhooks over kill -9, tokens, followers while it stops."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

import headgate
from headgate.client.session import Session
from headgate.errors import NotAuthenticatedError
from tests.kit import req
from tests.kit.conditions import eventually
from tests.kit.server import RunningServer
from tests.kit.webhook_receiver import running_receiver

pytestmark = pytest.mark.faults

ENVIRONMENT = {
    "HEADGATE_LEASE_MS": "300",  # what a killed server held lapses soon
    "HEADGATE_LISTENER_NETWORKS": "127.0.0.0/8",
}


def commit(session: Session, name: str = "a") -> None:
    table = session.table(name)
    table.set_properties({"test.turn": str(table.version)})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with headgate.connect(tmp_path / "lake") as session:
        session.create_table("a", "id long")
    return tmp_path / "lake"


@req("EV-01")
@pytest.mark.parametrize(
    "fail",
    ["listener.before_tell:kill@2", "listener.after_tell:kill@2", "listener.after_record:kill"],
)
def test_a_webhook_hears_of_everything_in_order_though_its_server_was_killed(
    lake: Path, fail: str
) -> None:
    with (
        running_receiver() as receiver,
        RunningServer(str(lake), environment=ENVIRONMENT) as server,
    ):
        with headgate.connect(server.address) as session:
            session.put_listener("hook", receiver.url)
        server.stop()
        with headgate.connect(lake) as session:
            for _ in range(5):
                commit(session)
        server.start({"HEADGATE_FAIL": fail})
        first = server.workers
        eventually(lambda: server.workers != first)  # it was killed
        server.kill()
        server.start()
        receiver.wait_for(lambda: 6 in receiver.sequences)
        with headgate.connect(server.address) as session:
            eventually(lambda: session.listeners()[0].position == 6)
            assert [event.sequence for event in session.events(after=1)] == [2, 3, 4, 5, 6]
    sequences = receiver.sequences
    assert sequences[0] == 2
    assert sorted(set(sequences)) == [2, 3, 4, 5, 6]
    assert all(after <= before + 1 for before, after in pairwise(sequences))
    if fail.startswith("listener.after_tell"):
        assert len(sequences) > 5  # delivered, not recorded, and delivered again


def test_a_token_opens_a_server_until_it_is_revoked(lake: Path) -> None:
    with headgate.connect(lake) as store:
        secret = store.create_token("nightly")
        with RunningServer(str(lake), "--auth") as server:
            with headgate.connect(server.address, token=secret) as session:
                assert session.status().tables == {"active": 1}
            with (
                headgate.connect(server.address, token=f"{secret}x") as session,
                pytest.raises(NotAuthenticatedError),
            ):
                session.status()
            store.revoke_token("nightly")
            # The server caches for a second that a token is valid.
            with headgate.connect(server.address, token=secret) as session:
                eventually(lambda: is_refused(session))


def is_refused(session: Session) -> bool:
    try:
        session.status()
    except NotAuthenticatedError:
        return True
    return False


@req("EV-02")
def test_a_follower_hears_through_a_server_what_others_commit_to_its_store(lake: Path) -> None:
    with RunningServer(str(lake)) as server:
        heard: list[int] = []

        def follow() -> None:
            with headgate.connect(server.address) as session:
                for event in session.events(after=1, follow=True):
                    heard.append(event.sequence)
                    if len(heard) == 3:
                        return

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        with headgate.connect(server.address) as far, headgate.connect(lake) as near:
            commit(far)
            commit(near)
            commit(far)
        thread.join(20)
        assert heard == [2, 3, 4]


def test_a_server_that_is_told_to_stop_answers_who_waits_first(lake: Path) -> None:
    with RunningServer(str(lake)) as server, ThreadPoolExecutor() as pool:
        asked = f"{server.address}/v1/events?after=1&wait=60"
        waiting = pool.submit(httpx.get, asked, timeout=90)
        time.sleep(0.5)
        assert server.stop(within_s=30) == 0
        assert waiting.result().json() == {"events": []}
