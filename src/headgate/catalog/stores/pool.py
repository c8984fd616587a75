"""The connections to a store's database that no reader uses at the moment."""

from __future__ import annotations

import os
import threading
from typing import Generic, Protocol, TypeVar

from headgate.errors import UnavailableError


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it."""


Connection = TypeVar("Connection", bound=Closable)


class Pool(Generic[Connection]):
    """Idle connections; threads cannot keep their own, since they end without closing them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False

    def take(self) -> Connection | None:
        """Take a connection; None if there is none."""
        with self._lock:
            self.refuse_if_closed()
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: Connection, *, is_usable: bool = True) -> None:
        """Keep a connection for other readers, or close it."""
        with self._lock:
            if is_usable and not self._is_closed and len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def clear(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def close(self) -> None:
        """Refuse all use from now on; the connections of active readers are closed after it."""
        self._is_closed = True
        if self.is_of_this_process:
            self.clear()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process opened the connections: their handles must not cross a fork."""
        return os.getpid() == self._process

    def refuse_if_closed(self) -> None:
        """Raise if the store was closed, or opened by the parent of this process."""
        if not self.is_of_this_process:
            raise UnavailableError(
                "This process was forked from one that had the catalog open.",
                remedy="Connect again in the new process.",
            )
        if self._is_closed:
            raise UnavailableError("This catalog is closed.", remedy="Connect again.")
