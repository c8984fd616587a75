"""A proxy between a client and a server that cuts a connection at a word."""

from __future__ import annotations

import enum
import select
import socket
import threading
from contextlib import suppress


class Cut(enum.Enum):
    """Where a connection ends."""

    BEFORE = "before"  # the word does not reach the server
    AFTER = "after"  # the server has answered it, and the answer does not come through


class CuttingProxy:
    """Passes bytes through both ways; use it in a `with`, which closes it."""

    def __init__(self, port: int, word: bytes) -> None:
        self._target = port
        self._word = word
        self._armed: Cut | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> CuttingProxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            _close(one)
        for thread in self._threads:
            thread.join()

    def cut_next(self, where: Cut) -> None:
        """Cut the next connection that says the word."""
        self._armed = where

    @property
    def has_cut(self) -> bool:
        return self._armed is None

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                self._threads.append(threading.Thread(target=self._pass, args=(client, server)))
                self._threads[-1].start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, ValueError):  # a closed socket has no number to wait for
            while True:
                for one in select.select([client, server], [], [])[0]:
                    said = one.recv(1 << 16)
                    if self._armed is not None and one is client and self._word in said:
                        if self._armed is Cut.AFTER:
                            server.sendall(said)
                            server.recv(1 << 16)
                        self._armed = None
                        said = b""
                    if not said:
                        _close(client)
                        _close(server)
                    (server if one is client else client).sendall(said)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
