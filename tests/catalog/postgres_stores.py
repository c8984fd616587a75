"""Helpers for tests of the store on a real PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

from headgate.catalog.stores.postgres import PostgresStore
from tests.kit.postgres import Postgres

Opened = Callable[..., PostgresStore]
Result = TypeVar("Result")


def end_backends(server: Postgres, *connections: object) -> None:
    """Have the server end connections, as an administrator would."""
    pids = [connection.info.backend_pid for connection in connections]  # type: ignore[attr-defined]
    with server.connect() as admin:
        for pid in pids:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def at_once(count: int, do: Callable[[int], Result]) -> list[Result]:
    start = threading.Barrier(count)

    def wait_and_do(number: int) -> Result:
        start.wait(10)
        return do(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_do, range(count)))


@contextmanager
def altered(server: Postgres, name: str, value: str) -> Iterator[None]:
    """Set the whole server to something else for a while."""

    def alter(sql: str, is_so: Callable[[str], bool]) -> None:
        with server.connect() as admin:
            admin.execute(sql.encode())
            admin.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with server.connect() as admin:
                [[current]] = admin.execute(f"SHOW {name}".encode()).fetchall()
            if is_so(str(current)):
                return
            time.sleep(0.01)
        pytest.fail(f"{name} did not change")

    alter(f"ALTER SYSTEM SET {name} = '{value}'", lambda current: current == value)
    try:
        yield
    finally:
        alter(f"ALTER SYSTEM RESET {name}", lambda current: current != value)
