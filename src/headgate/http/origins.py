"""Which requests a browser may have sent on behalf of a foreign web page.

A page can make a browser send requests to a server on its user's machine: directly, with the
page's `Origin`, or to a name of its own that it lets resolve to that machine (DNS rebinding),
with that name as `Host`. Neither is served. Other clients send no `Origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from headgate.errors import PermissionDeniedError

ANY = "*"
_ALWAYS = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEMBERED = 1_000


class Origins:
    """Checks the `Host` and the `Origin` of requests.

    `bound` is the address that a server without authentication listens on. None: clients
    authenticate, which a foreign page cannot do, and `allowed` alone restricts the hosts.
    """

    def __init__(self, bound: str | None, allowed: Collection[str]) -> None:
        names = {_name(host) for host in allowed} - {""}
        self._allowed = names
        self._is_any_host = ANY in names or (bound is None and not allowed)
        self._hosts = names | _ALWAYS | ({bound.lower()} if bound is not None else set())
        self._known: set[bytes] = set()  # those that were checked, as they were written

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Refuse a request that a foreign page may have sent."""
        if host is not None and host not in self._known and not self._is_any_host:
            self._check_host(host)
        if origin is not None:
            self._check_origin(origin.decode("latin-1"), (host or b"").decode("latin-1"))

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1")
        name = _name(text)
        if name not in self._hosts and not _is_loopback(name):
            raise PermissionDeniedError(
                f"This server is not known as {text[:80]!r}.",
                remedy="Use the address that it listens on, or name the host in "
                "HEADGATE_ALLOWED_HOSTS where the server runs.",
            )
        if len(self._known) < _REMEMBERED:
            self._known.add(host)

    def _check_origin(self, origin: str, host: str) -> None:
        scheme, _, place = origin.partition("://")
        is_own = scheme in ("http", "https") and place.lower() == host.lower()
        if not is_own and _name(place) not in self._allowed:
            raise PermissionDeniedError(
                f"Requests of the web page {origin[:80]!r} are not served.",
                remedy="Open the page from this server, or name its host in "
                "HEADGATE_ALLOWED_HOSTS where the server runs.",
            )


def _name(host: str) -> str:
    """Return the name or the address in `host[:port]`, in lower case; empty if there is none."""
    if host.count(":") > 1 and "[" not in host:  # a bare IPv6 address
        host = f"[{host.strip()}]"
    try:
        return (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
