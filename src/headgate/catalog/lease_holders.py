"""Names of lease holders, by which processes on the same machine see whether a holder still runs.

A killed process releases nothing: without this, others wait until its leases expire. A holder on
another machine or in another container is assumed to run.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from uuid import UUID

_DEAD = ("Z", "X")  # a zombie does nothing any more


def name_of_this_process(own: UUID) -> str:
    """Return a name for a holder in this process, with an id of its own."""
    pid = os.getpid()
    return f"{own}@{_here()}:{pid}:{_began(pid)}"


def is_gone(holder: str) -> bool:
    """Return True if the process of a holder has certainly ended."""
    where, _, process = holder.rpartition("@")[2].rpartition(":")[0].rpartition(":")
    if not where or where != _here() or not process.isdecimal():
        return False
    return _began(int(process)) != holder.rpartition(":")[2]


@cache
def _here() -> str:
    """Identify the machine's boot and the container, in which pids are unique; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return the start time of a process, to recognise reused pids; empty if it ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("latin-1")
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()  # the process name may contain anything
    return "" if state in _DEAD else fields[18]
