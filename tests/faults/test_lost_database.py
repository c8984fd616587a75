"""A server whose database is lost or damaged, or whose store is down, says so and stays up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import headgate
from headgate import _connect
from headgate.catalog import server_lock
from headgate.errors import DamagedError, HeadgateError
from tests.faults.server_harness import rows, serving, session_at, values_in
from tests.kit import postgres
from tests.kit.conditions import eventually
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer, free_port

pytestmark = [pytest.mark.faults, pytest.mark.slow]
OFTEN = {"HEADGATE_INTEGRITY_CHECK_MS": "200"}


def delete(database: Path, _: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def rename_over(database: Path, backup: Path) -> None:
    shutil.copy(backup, database.with_suffix(".copy"))
    database.with_suffix(".copy").rename(database)


def copy_over(database: Path, backup: Path) -> None:
    database.write_bytes(backup.read_bytes())


def truncate(database: Path, _: Path) -> None:
    os.truncate(database, 4096 * 2)


def overwrite_pages(database: Path, _: Path) -> None:
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (database.stat().st_size - 4096))


def health(server: RunningServer) -> httpx.Response:
    return httpx.get(f"{server.address}/health", timeout=10)


def is_refusing(server: RunningServer) -> bool:
    try:
        return health(server).status_code >= 500
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("damage", [delete, rename_over, copy_over, truncate, overwrite_pages])
def test_a_server_whose_database_is_lost_acknowledges_nothing_and_says_so(
    tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    lake, backup = tmp_path / "lake", tmp_path / "backup.db"
    with headgate.connect(lake) as session:
        table = session.create_table("t", "value long")
        session.backup(backup)
        for value in range(20):
            table.append(rows(value))
    with (
        serving(lake, environment=OFTEN) as server,
        session_at(server.address, lost_s=1, unknown_s=1) as session,
    ):
        table = session.table("t")
        table.append(rows(20))
        damage(lake / "headgate.db", backup)
        if damage in (delete, rename_over):  # known before any commit is acknowledged
            with pytest.raises(HeadgateError):
                table.append(rows(21))
        eventually(lambda: is_refusing(server))
        assert "damaged" in health(server).text
        assert health(server).status_code == 500
        with pytest.raises(DamagedError, match="restore"):
            table.append(rows(22))
        if damage is copy_over:
            return  # to a new worker the file is the same, and a sound database
        # A new worker does not take another file for the lost one.
        server.kill_worker()
        eventually(lambda: is_refusing(server) and "not ready" in health(server).text)
        if damage in (delete, rename_over):
            assert "deleted or replaced while it was served" in health(server).text
        with pytest.raises(HeadgateError):
            table.append(rows(23))
        assert server.process is not None
        assert server.process.poll() is None


def test_a_second_server_on_one_database_is_refused_and_told_who_serves_it(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with serving(lake) as server:
        assert server.process is not None
        for port in (server.port, free_port()):
            second = subprocess.run(
                [
                    *(sys.executable, "-m", "headgate.cli.main", "serve"),
                    *("--store", str(lake), "--port", str(port)),
                ],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert second.returncode == 1
            assert f"process {server.process.pid} at {server.address}" in second.stderr
        assert health(server).status_code == 200
        [worker] = server.workers
        os.kill(worker, signal.SIGSTOP)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        # Its lock ends with it, also where its worker lives on for a while.
        with server_lock.held(lake / "headgate.db", "elsewhere"):
            os.kill(worker, signal.SIGCONT)
            holder = (lake / "headgate.db-served").read_text()
            assert holder == f"process {os.getpid()} at elsewhere\n"
        eventually(lambda: not server.is_ready())
    with serving(lake) as server:
        assert health(server).status_code == 200


@pytest.fixture
def database() -> Iterator[Postgres]:
    started = postgres.start()  # its own: it is stopped and started
    yield started
    started.close()


def test_a_server_outlives_its_workers_while_postgresql_is_down(
    tmp_path: Path, database: Postgres
) -> None:
    address = database.new_database()
    _connect.init(address, str(tmp_path / "tables"))
    with serving(address) as server, session_at(server.address) as session:
        table = session.create_table("t", "value long")
        table.append(rows(1))
        database.kill()
        try:
            server.kill_worker()
            eventually(lambda: is_refusing(server))
            assert "not ready" in health(server).text
        finally:
            database.start()
        eventually(server.is_ready)
        table.append(rows(2))
        assert set(values_in(table)) == {1, 2}


def test_a_server_refuses_a_database_that_was_created_in_place_of_its_own(
    tmp_path: Path, database: Postgres
) -> None:
    address = database.new_database()
    name = address.rpartition("/")[2]
    _connect.init(address, str(tmp_path / "tables"))
    with serving(address) as server, session_at(server.address, lost_s=1, unknown_s=1) as session:
        table = session.create_table("t", "value long")
        table.append(rows(1))
        with database.connect() as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            admin.execute(f"CREATE DATABASE {name}".encode())
        eventually(lambda: is_refusing(server) and "damaged" in health(server).text)
        with pytest.raises(HeadgateError):
            table.append(rows(2))
        server.kill_worker()
        eventually(lambda: "not ready" in health(server).text)
        assert "deleted or replaced while it was served" in health(server).text
        with database.connect(address) as other:  # nothing is in the way of a restore
            schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'headgate'"
            assert other.execute(schemas.encode()).fetchall() == [(0,)]
