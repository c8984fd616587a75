"""The server of Unity Catalog OSS, where somebody runs one: its address comes by a variable."""

from __future__ import annotations

import os
import uuid

from bench.watch import descendants, process_cpu

REQUIRES = "a Unity Catalog OSS server 0.6.0, named by HEADGATE_UC_SERVER_URL"
CATALOG = "unity"

_ADDRESS = "HEADGATE_UC_SERVER_URL"
_PROCESS = "HEADGATE_UC_SERVER_PID"


def address() -> str:
    """Give where it listens."""
    return os.environ[_ADDRESS].rstrip("/")


def lacking() -> list[str]:
    """Say what is missing."""
    if os.environ.get(_ADDRESS):
        return []
    return [f"Unity Catalog OSS: not run, {_ADDRESS} names no server"]


def new_name() -> str:
    """Give a table's name that nobody used."""
    return f"bench_{uuid.uuid4().hex}"


def cpu() -> float:
    """Processor time it took so far, in seconds, where its process is told."""
    told = os.environ.get(_PROCESS)
    if told is None:
        return 0.0
    return sum(map(process_cpu, [int(told), *descendants(int(told))]))
