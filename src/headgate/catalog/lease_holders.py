"""Who holds a lease, by a name that tells others on the same machine whether it still lives.

A process that was killed ends nothing: without this, whoever comes after it waits until its leases
lapse. Where nothing can be told, on another machine or in another container, a holder lives.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from uuid import UUID

_DEAD = ("Z", "X")  # a zombie does nothing any more


def name_of_this_process(own: UUID) -> str:
    """Name a holder in this process, by an id of its own."""
    pid = os.getpid()
    return f"{own}@{_here()}:{pid}:{_began(pid)}"


def is_gone(holder: str) -> bool:
    """Say whether the process of a holder has ended for sure."""
    where, _, process = holder.rpartition("@")[2].rpartition(":")[0].rpartition(":")
    if not where or where != _here() or not process.isdecimal():
        return False
    return _began(int(process)) != holder.rpartition(":")[2]


@cache
def _here() -> str:
    """Name what numbers processes: one run of a machine, one container; empty if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Say when a process began, which another of its number did not; empty if there is none."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text("latin-1")
    except OSError:
        return ""
    state, *fields = told.rpartition(")")[2].split()  # its name may have anything in it
    return "" if state in _DEAD else fields[18]
