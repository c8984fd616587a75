"""A lock beside a SQLite database: one server at a time serves it.

The lock belongs to the server's parent process and ends with it, also when that is killed. Embedded
sessions do not take it: any number of processes may use the database beside the server.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.errors import AlreadyExistsError, UnavailableError

_SUFFIX: Final = "-served"
_MOST_READ: Final = 1_000


@contextmanager
def held(database: Path, address: str) -> Iterator[None]:
    """Hold the lock of a database; refuse if another server does, and name its process."""
    path = database.with_name(database.name + _SUFFIX)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror}.",
            remedy="Give this process the right to write to that folder.",
        ) from error
    try:
        try:
            # A lock of this process alone: forked workers that outlive it do not keep it.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, _MOST_READ, 0).decode(errors="replace").strip()
            raise AlreadyExistsError(
                f"{database} is already served by {holder or 'another process'}.",
                remedy="Connect to that server, or stop it first.",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} at {address}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
