"""A running server of Unity Catalog OSS, described by environment variables.

`HEADGATE_UC_SERVER_URL` is its address, `HEADGATE_UC_SERVER_STORE` the database of its tables, and
`HEADGATE_UC_SERVER_PID` its process id, without which its processor time is not measured.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from bench.watch import descendants, process_cpu

NAME = "Unity Catalog OSS"
REQUIRES = "a Unity Catalog OSS server 0.6.0, named by HEADGATE_UC_SERVER_URL"
CATALOG = "unity"

_ADDRESS = "HEADGATE_UC_SERVER_URL"
_PROCESS = "HEADGATE_UC_SERVER_PID"
_STORE = "HEADGATE_UC_SERVER_STORE"
_H2, _POSTGRESQL = "h2", "postgresql"


def address() -> str:
    """Return its address."""
    return os.environ[_ADDRESS].rstrip("/")


def lacking() -> list[str]:
    """Return the reason if there is none."""
    if os.environ.get(_ADDRESS):
        return []
    return [f"{NAME}: not run, {_ADDRESS} names no server"]


def unmeasured() -> list[str]:
    """Return the reason if there is a server without a known processor time."""
    if lacking() or cpu() is not None:
        return []
    return [f"{NAME}, server CPU: not measured, {_PROCESS} names no process"]


def is_durable() -> bool:
    """Return True if acknowledged commits survive a crash: H2, its default, syncs late."""
    return _store() == _POSTGRESQL


def describe() -> str:
    """Return name, version and database, for the list of versions."""
    return "none" if lacking() else f"{REQUIRES}, on {_store()}"


def new_name() -> str:
    """Return a new name for a table."""
    return f"bench_{uuid.uuid4().hex}"


def cpu() -> float | None:
    """Processor time it took so far, in seconds; None if its process is not known, or gone."""
    process_id = os.environ.get(_PROCESS)
    if not process_id or not Path("/proc", process_id).exists():
        return None
    return sum(map(process_cpu, [int(process_id), *descendants(int(process_id))]))


def _store() -> str:
    store = os.environ.get(_STORE) or _H2
    if store not in (_H2, _POSTGRESQL):
        raise ValueError(f"{_STORE} is {store!r}; valid values are {_H2} and {_POSTGRESQL}")
    return store
