"""Connections to one server: kept open, lent to one request at a time, given up when broken.

On the standard library's HTTP client: it costs a fifth of the processor time of the larger ones,
and a commit over HTTP is mostly that. What it cannot do (redirects, cookies) a catalog never asks
for.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from headgate.errors import InvalidArgumentError, UnavailableError


class LostError(Exception):
    """Sent, and no answer: nobody knows what became of it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    content: bytes
    retry_after: str | None = None


class Sender(Protocol):
    """Carries requests to a server."""

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send one request once: `UnavailableError` if it never left, `LostError` if it did."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Connections:
    """A sender over HTTP or HTTPS."""

    def __init__(
        self, address: str, *, connect_s: float, answer_s: float, certificates: str | None = None
    ) -> None:
        self._address = address
        try:
            parts = urlsplit(address)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise InvalidArgumentError(f"{address!r} is no address: {error}.") from None
        if not self._host or parts.query or parts.fragment or parts.username:
            raise InvalidArgumentError(
                f"{address!r} is no address of a server.", remedy="Write http://HOST:PORT."
            )
        self._prefix = parts.path.rstrip("/")
        self._context = _trusted(certificates) if parts.scheme == "https" else None
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send one request once: `UnavailableError` if it never left, `LostError` if it did."""
        connection = self._borrowed() or self._opened()
        try:
            connection.request(method, self._prefix + path, content, dict(headers))
            response = connection.getresponse()
            reply = Reply(response.status, response.read(), response.headers.get("retry-after"))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise LostError(str(error) or type(error).__name__) from error
        except BaseException:
            connection.close()  # whatever comes next on it is the answer to this
            raise
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return reply

    def close(self) -> None:
        """Let go of every connection that nobody uses; again is fine."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _borrowed(self) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                if os.getpid() != self._process:  # those of the parent are the parent's
                    self._idle, self._process = [], os.getpid()
                connection = self._idle.pop() if self._idle else None
            if connection is None or _is_fresh(connection):
                return connection
            connection.close()

    def _opened(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._connect_s)
        else:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._connect_s, context=self._context
            )
        try:
            connection.connect()
        except OSError as error:
            raise UnavailableError(
                f"No server answers at {self._address}: {error}.",
                remedy="Check the address, and that `headgate serve` runs there.",
            ) from error
        connection.sock.settimeout(self._answer_s)
        return connection


def _is_fresh(connection: http.client.HTTPConnection) -> bool:
    """Say whether the server still listens: there is nothing to read but an end."""
    if connection.sock is None:
        return False
    ready = select.poll()  # `select` knows no file number above 1,023
    ready.register(connection.sock, select.POLLIN)
    return not ready.poll(0)


def _trusted(certificates: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(f"{certificates} holds no certificates: {error}.") from error
