"""Connections to one server: kept open, each used by one request at a time, closed when broken.

The part of HTTP/1.1 that a client of a catalog needs, without redirects, cookies and proxies. Not
`http.client`: a commit takes longer with it, and it accepts an answer whose headers are cut off.
Decision 019 has the measurements.
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
    """A request was sent and no answer came: the server may have acted on it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a server."""

    status: int
    content: bytes
    retry_after: str | None = None


class Sender(Protocol):
    """Sends requests to a server."""

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        """Send once; raise `UnavailableError` if it was not sent, `LostError` without answer."""

    def close(self) -> None:
        """Close idle connections. Closing twice is allowed."""


class Connections:
    """A sender over HTTP or HTTPS."""

    def __init__(
        self, address: str, *, connect_s: float, answer_s: float, certificates: str | None = None
    ) -> None:
        self._address = address
        try:
            parts = urlsplit(address)
            self._host, port = parts.hostname or "", parts.port
        except ValueError:  # its text may have a password in it that was taken for a port
            raise _invalid_address(address) from None
        if not self._host or parts.query or parts.fragment or "@" in parts.netloc:
            raise _invalid_address(address)
        self._port = port or _PORTS.get(parts.scheme, 80)
        self._prefix = parts.path.rstrip("/")
        self._common_headers = f" HTTP/1.1\r\nhost: {parts.netloc}\r\naccept-encoding: identity\r\n"
        self._context = _trusted(certificates) if parts.scheme == "https" else None
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> Reply:
        request = self._request(method, path, headers, content)
        connection = self._idle_connection() or self._new_connection()
        try:
            reply, is_reusable = connection.exchange(request)
        except (OSError, ValueError) as error:  # the connection broke, or the answer is not HTTP
            connection.close()
            raise LostError(str(error) or type(error).__name__) from error
        except BaseException:
            connection.close()  # what comes next on it is the answer to this request
            raise
        if is_reusable:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()
        return reply

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\r") + lines.count("\n") > 2 * len(headers):
            raise InvalidArgumentError("A header has a line break in it.")
        if content is not None or method != "GET":
            lines += f"content-length: {len(content or b'')}\r\n"
        head = f"{method} {self._prefix}{path}{self._common_headers}{lines}\r\n"
        try:
            encoded = head.encode("latin-1")
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"A header cannot be encoded: {error}.") from None
        return encoded + content if content else encoded

    def _idle_connection(self) -> _Connection | None:
        while True:
            with self._lock:
                if os.getpid() != self._process:  # a fork must not use its parent's connections
                    self._idle, self._process = [], os.getpid()
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.is_open:
                return connection
            connection.close()

    def _new_connection(self) -> _Connection:
        try:
            opened = socket.create_connection((self._host, self._port), self._connect_s)
            try:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    opened = self._context.wrap_socket(opened, server_hostname=self._host)
                opened.settimeout(self._answer_s)
            except BaseException:
                opened.close()
                raise
        except OSError as error:
            raise UnavailableError(
                f"No server answers at {self._address}: {error}.",
                remedy="Check the address, and that `headgate serve` runs there.",
            ) from error
        return _Connection(opened)


class _Connection:
    """One connection to the server."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._answers = opened.makefile("rb")
        self._ready = select.poll()  # `select.select` takes no file number above 1,023
        self._ready.register(opened, select.POLLIN)

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed the idle connection: there is nothing to read."""
        return not self._ready.poll(0)

    def exchange(self, request: bytes) -> tuple[Reply, bool]:
        """Send a request and read its answer; return also whether the connection is reusable."""
        self._socket.sendall(request)
        while True:
            version, status = self._status_line()
            headers = self._headers()
            if status >= 200:  # others are interim answers, such as 100 Continue
                break
        content, has_end = self._content(status, headers)
        is_last = version == b"HTTP/1.0" or headers.get("connection", "").lower() == "close"
        return Reply(status, content, headers.get("retry-after")), has_end and not is_last

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _status_line(self) -> tuple[bytes, int]:
        line = self._read_line()
        version, _, rest = line.partition(b" ")
        status = rest[:3]
        if version not in (b"HTTP/1.1", b"HTTP/1.0") or not status.isdigit():
            raise ValueError(f"the answer is not HTTP: {line[:40]!r}")
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
        """Read the body; return also whether it ends before the connection does."""
        if status in (204, 304):
            return b"", True
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                encoding = headers["transfer-encoding"][:40]
                raise ValueError(f"the answer has the transfer encoding {encoding}")
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
            raise ValueError(
                "the answer was cut off" if line else "the server closed the connection"
            )
        return line.rstrip(b"\r\n")

    def _read(self, size: int) -> bytes:
        content = self._answers.read(size) if size >= 0 else b""
        if len(content) != size:
            raise ValueError("the answer was cut off")
        return content


def _invalid_address(address: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{shown(address)!r} is not a valid address of a server.", remedy="Write http://HOST:PORT."
    )


def _trusted(certificates: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(f"{certificates} has no certificates: {error}.") from error
