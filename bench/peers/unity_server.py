"""The server of Unity Catalog OSS, where somebody runs one: variables tell of it.

`HEADGATE_UC_SERVER_URL` says where it listens, `HEADGATE_UC_SERVER_STORE` what it keeps its tables
in, and `HEADGATE_UC_SERVER_PID` which process it is, without which nobody knows its processor time.
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
    """Give where it listens."""
    return os.environ[_ADDRESS].rstrip("/")


def lacking() -> list[str]:
    """Say that there is none, if there is none."""
    if os.environ.get(_ADDRESS):
        return []
    return [f"{NAME}: not run, {_ADDRESS} names no server"]


def untold() -> list[str]:
    """Say that nobody knows its processor time, if there is one and nobody does."""
    if lacking() or cpu() is not None:
        return []
    return [f"{NAME}, server CPU: not told, {_PROCESS} names no process"]


def is_durable() -> bool:
    """Say whether what it answered outlives a crash: H2, its default, syncs late."""
    return _store() == _POSTGRESQL


def describe() -> str:
    """Tell what runs, for the list of versions."""
    return "none" if lacking() else f"{REQUIRES}, on {_store()}"


def new_name() -> str:
    """Give a table's name that nobody used."""
    return f"bench_{uuid.uuid4().hex}"


def cpu() -> float | None:
    """Processor time it took so far, in seconds; None if its process is not told, or gone."""
    told = os.environ.get(_PROCESS)
    if not told or not Path("/proc", told).exists():
        return None
    return sum(map(process_cpu, [int(told), *descendants(int(told))]))


def _store() -> str:
    told = os.environ.get(_STORE) or _H2
    if told not in (_H2, _POSTGRESQL):
        raise ValueError(f"{_STORE} is {told!r}: it is {_H2} or {_POSTGRESQL}")
    return told
