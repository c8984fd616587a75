"""Connections to one server: kept open, lent to one request at a time, given up when broken.

HTTP/1.1 on a socket, and of it what a catalog's client needs: a request goes out in one piece, an
answer is read to its end. The standard library's client takes three times as long for both, and
one client's commit over HTTP is mostly that. There are no redirects, no cookies and no proxies.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from headgate.errors import InvalidArgumentError, UnavailableError
from headgate.storage.locations import shown

_LONGEST_LINE: Final = 1 << 16
_MOST_HEADERS: Final = 256
_PORTS: Final = {"http": 80, "https": 443}


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
            self._host, port = parts.hostname or "", parts.port
        except ValueError:  # which may say a password, taken for a port
            raise _no_address(address) from None
        if not self._host or parts.query or parts.fragment or "@" in parts.netloc:
            raise _no_address(address)
        self._port = port or _PORTS.get(parts.scheme, 80)
        self._prefix = parts.path.rstrip("/")
        self._always = f" HTTP/1.1\r\nhost: {parts.netloc}\r\naccept-encoding: identity\r\n"
        self._context = _trusted(certificates) if parts.scheme == "https" else None
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send one request once: `UnavailableError` if it never left, `LostError` if it did."""
        request = self._request(method, path, headers, content)
        connection = self._borrowed() or self._opened()
        try:
            reply, is_kept = connection.ask(request)
        except (OSError, ValueError) as error:  # broken off, or no HTTP
            connection.close()
            raise LostError(str(error) or type(error).__name__) from error
        except BaseException:
            connection.close()  # whatever comes next on it is the answer to this
            raise
        if is_kept:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()
        return reply

    def close(self) -> None:
        """Let go of every connection that nobody uses; again is fine."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> bytes:
        told = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if told.count("\r") + told.count("\n") > 2 * len(headers):
            raise InvalidArgumentError("A header has a line break in it.")
        if content is not None or method != "GET":
            told += f"content-length: {len(content or b'')}\r\n"
        try:
            head = f"{method} {self._prefix}{path}{self._always}{told}\r\n".encode("latin-1")
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"A header cannot be written: {error}.") from None
        return head + content if content else head

    def _borrowed(self) -> _Connection | None:
        while True:
            with self._lock:
                if os.getpid() != self._process:  # those of the parent are the parent's
                    self._idle, self._process = [], os.getpid()
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.is_fresh:
                return connection
            connection.close()

    def _opened(self) -> _Connection:
        try:
            line = socket.create_connection((self._host, self._port), self._connect_s)
            try:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    line = self._context.wrap_socket(line, server_hostname=self._host)
                line.settimeout(self._answer_s)
            except BaseException:
                line.close()
                raise
        except OSError as error:
            raise UnavailableError(
                f"No server answers at {self._address}: {error}.",
                remedy="Check the address, and that `headgate serve` runs there.",
            ) from error
        return _Connection(line)


class _Connection:
    """One line to the server."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._answers = line.makefile("rb")
        self._ready = select.poll()  # `select` knows no file number above 1,023
        self._ready.register(line, select.POLLIN)

    @property
    def is_fresh(self) -> bool:
        """Whether the server still listens: there is nothing to read but an end."""
        return not self._ready.poll(0)

    def ask(self, request: bytes) -> tuple[Reply, bool]:
        """Send a request and read its answer; say whether the line can be used again."""
        self._line.sendall(request)
        while True:
            version, status = self._first_line()
            headers = self._headers()
            if status >= 200:  # before it a server may say that it goes on
                break
        content, is_whole = self._content(status, headers)
        is_over = version == b"HTTP/1.0" or headers.get("connection", "").lower() == "close"
        return Reply(status, content, headers.get("retry-after")), is_whole and not is_over

    def close(self) -> None:
        self._answers.close()
        self._line.close()

    def _first_line(self) -> tuple[bytes, int]:
        line = self._read_line()
        version, _, rest = line.partition(b" ")
        status = rest[:3]
        if version not in (b"HTTP/1.1", b"HTTP/1.0") or not status.isdigit():
            raise ValueError(f"this is no HTTP: {line[:40]!r}")
        return version, int(status)

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._read_line()
            if not line:
                return headers
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        raise ValueError("the answer has too many headers")

    def _content(self, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        """Read the body, and say whether its end is known from itself."""
        if status in (204, 304):
            return b"", True
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                raise ValueError(f"the answer is {headers['transfer-encoding'][:40]}")
            return self._chunks(), True
        length = headers.get("content-length")
        if length is None:
            return self._answers.read(), False
        return self._read(int(length)), True

    def _chunks(self) -> bytes:
        chunks: list[bytes] = []
        while size := int(self._read_line().partition(b";")[0], 16):
            chunks.append(self._read(size))
            self._read_line()
        self._headers()
        return b"".join(chunks)

    def _read_line(self) -> bytes:
        line = self._answers.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ValueError("the answer was cut off" if line else "the server hung up")
        return line.rstrip(b"\r\n")

    def _read(self, size: int) -> bytes:
        content = self._answers.read(size) if size >= 0 else b""
        if len(content) != size:
            raise ValueError("the answer was cut off")
        return content


def _no_address(address: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{shown(address)!r} is no address of a server.", remedy="Write http://HOST:PORT."
    )


def _trusted(certificates: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(f"{certificates} holds no certificates: {error}.") from error
