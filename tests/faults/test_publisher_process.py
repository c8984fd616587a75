"""The publisher process of a server is killed and stopped, and its clients do not notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.client.session import Session
from tests.faults.server_harness import (
    Writer,
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
from tests.kit.conditions import eventually
from tests.kit.server import RunningServer

pytestmark = [pytest.mark.faults, pytest.mark.slow]

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))
KILLS = [
    f"{point}:kill@{nth}"
    for point, nths in {
        "publisher.before_put": (2, 3),
        "storage.before_sync": (2,),
        "storage.after_sync": (2,),
        "storage.after_name": (2, 3, 5),
        "storage.before_sync_folders": (2,),
        "publisher.after_put": (2, 3),
    }.items()
    for nth in nths
]


def publisher_of(server: RunningServer, other_than: int | None = None) -> int:
    """Wait for the publisher process, or for another one than was there."""
    eventually(lambda: any(pid != other_than for pid in server.publishers))
    return next(pid for pid in server.publishers if pid != other_than)


def all_is_published(session: Session) -> bool:
    status = session.status()
    return status.unpublished == 0 and not status.troubles


@contextmanager
def writing(server: RunningServer, tables: int = 3) -> Iterator[list[Writer]]:
    """Write to several tables from as many clients, and check what is left in the end."""
    names = [f"t{number}" for number in range(tables)]
    with session_at(server.address) as session:
        for name in names:
            session.create_table(name, "value long")
    writers = [
        appending(server.address, name, number * 1_000_000, staged=number % 2 == 1)
        for number, name in enumerate(names)
    ]
    for writer in writers:
        writer.wait_for(2)
    try:
        yield writers
    finally:
        for writer in writers:
            writer.end()
    with session_at(server.address) as session:
        eventually(lambda: all_is_published(session))
        for name, writer in zip(names, writers, strict=True):
            check_rows(values_in(session.table(name)), [writer])


@req("CM-23", "CM-24")
@shows("FP1", "S10", "S11", "L2")
def test_a_publisher_process_killed_again_and_again_is_replaced_and_loses_nothing(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with writing(server) as writers:
            [worker] = server.workers
            pid = None
            for _ in range(20 if IS_LONG else 5):
                pid = publisher_of(server, pid)
                for writer in writers:
                    writer.wait_for(len(writer.acknowledged) + 3)
                os.kill(pid, signal.SIGKILL)
        assert server.workers == [worker]
        assert "the publisher process ended with code -9" in server.log()
        assert server.stop() == 0
    hold(lake)


@req("CM-23", "PB-02")
@shows("FP1", "S10", "S11", "L2")
@pytest.mark.parametrize("fail", KILLS)
def test_a_publisher_process_that_dies_at_any_step_is_followed_by_one_that_goes_on(
    tmp_path: Path, fail: str
) -> None:
    """Each process dies there, and each has got a little further than the one before."""
    lake = tmp_path / "lake"
    with serving(lake, fail=fail) as server:
        with session_at(server.address) as session:
            tables = [session.create_table(f"t{number}", "value long") for number in range(3)]
            for value in range(4):
                for table in tables:
                    table.append(rows(value))
            eventually(lambda: "the publisher process ended with code -9" in server.log())
            for table in tables:
                assert values_in(table) == dict.fromkeys(range(4), 1)
        server.kill()
        server.start()
        with session_at(server.address) as session:
            eventually(lambda: all_is_published(session))
        server.kill()
    hold(lake)


def test_an_idle_publisher_process_is_replaced_when_it_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as server, session_at(server.address) as session:
        table = session.create_table("t", "value long")
        eventually(lambda: all_is_published(session))
        pid = publisher_of(server)
        os.kill(pid, signal.SIGKILL)
        assert publisher_of(server, pid) != pid
        table.append(rows(1))
        eventually(lambda: all_is_published(session))


@shows("L8")
@pytest.mark.parametrize("how", ["worker", "server", "stop"])
def test_a_publisher_process_ends_with_its_server_also_while_it_is_stopped(
    tmp_path: Path, how: str
) -> None:
    with serving(tmp_path / "lake") as server, session_at(server.address) as session:
        session.create_table("t", "value long")
        pid = publisher_of(server)
        eventually(lambda: all_is_published(session))
        os.kill(pid, signal.SIGSTOP)
        match how:
            case "worker":
                server.kill_worker()
            case "server":
                server.kill()
            case _:
                assert server.stop() == 0
        eventually(lambda: not Path(f"/proc/{pid}/exe").exists(), 10)
        server.kill()


# In a process of its own, which does not share an interpreter with writers.
ASKING = """
import json, socket, sys, time
port, count = int(sys.argv[1]), int(sys.argv[2])
request = f"GET /health HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode()
took = []
with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
    for _ in range(count):
        began = time.monotonic()
        connection.sendall(request)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        took.append(time.monotonic() - began)
        time.sleep(0.01)
print(json.dumps(sorted(took)))
"""


def check_health_is_answered(server: RunningServer, count: int) -> None:
    """Ask for the health of a server for some seconds: 99 % of the answers take below 50 ms.

    At one of a few times, since other programs may use the machine; a server that hangs fails all.
    """
    asking = [sys.executable, "-c", ASKING, str(server.port), str(count)]
    slowest = []
    for _ in range(5):
        took = json.loads(subprocess.run(asking, check=True, capture_output=True).stdout)
        slowest.append(took[int(count * 0.99) - 1])
        if slowest[-1] < 0.05:
            return
    pytest.fail(f"99 % took up to {slowest} s")


@shows("L1", "L2", "FP8")
def test_commits_and_health_go_on_while_the_publisher_process_is_stopped(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        with writing(server) as writers:
            pid = publisher_of(server)
            os.kill(pid, signal.SIGSTOP)
            try:
                before = [len(writer.acknowledged) for writer in writers]
                check_health_is_answered(server, 400)
                for writer, count in zip(writers, before, strict=True):
                    writer.wait_for(count + 20)
                with session_at(server.address) as session:
                    assert session.status().unpublished >= 60
            finally:
                os.kill(pid, signal.SIGCONT)
        assert server.publishers == [pid], "it was not replaced, it caught up"
        server.kill()
    hold(lake)


@req("CM-25")
@shows("FP8", "L2", "L5")
def test_a_backlog_while_the_publisher_process_is_stopped_throttles_writers_and_loses_nothing(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    limits = {"HEADGATE_UNPUBLISHED_SOFT": "5", "HEADGATE_UNPUBLISHED_WAIT_MS": "200"}
    with serving(lake, environment=limits) as server:
        catalog = remote(server.address)
        with session_on(catalog) as session:
            table = session.create_table("t", "value long")
            table.publish()
            pid = publisher_of(server)
            os.kill(pid, signal.SIGSTOP)

            def write(writer: Writer) -> None:
                for value in range(12):
                    table.append(rows(value))
                    writer.acknowledged.append(value)

            writer = Writer(write)
            try:
                eventually(lambda: any(status == 429 for status, _ in catalog.heard))
                check_health_is_answered(server, 200)
                assert len(writer.acknowledged) < 12
            finally:
                os.kill(pid, signal.SIGCONT)
            writer.wait_for(12)
            writer.end()
            assert values_in(table) == dict.fromkeys(range(12), 1)
            eventually(lambda: all_is_published(session))
        server.kill()
    hold(lake)
