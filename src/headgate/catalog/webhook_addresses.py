"""Which addresses events may be posted to.

Whoever may register a listener chooses where the server sends requests. So these go to public
addresses only: services on the server's machine, in its network or of its cloud trust requests
that come from there. The setting `listener_networks` allows more.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import Final

from headgate.errors import InvalidArgumentError, PermissionDeniedError, UnavailableError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ANY: Final = "*"
_LOCAL_NAME: Final = "localhost"
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 behind NAT64
# What `is_global` takes for public, at least in some versions of Python.
_NOT_PUBLIC: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # of the host of a machine in Azure
            "192.0.0.0/24",  # protocol assignments; clouds have metadata services there
            "::/96",  # IPv4-compatible, deprecated
            "::ffff:0:0:0/96",  # IPv4-translated
            "64:ff9b:1::/48",  # NAT64 into local networks
            "3fff::/20",  # documentation
            "fec0::/10",  # site-local, deprecated
        ),
    )
)
_log = logging.getLogger(__name__)
_REMEDY: Final = (
    "Use a public address, or allow its network in HEADGATE_LISTENER_NETWORKS, where the server "
    "runs."
)


class WebhookAddresses:
    """Checks addresses against the networks that are allowed beside public ones."""

    def __init__(self, allowed: str) -> None:
        names = [name.strip() for name in allowed.split(",") if name.strip()]
        self._is_any = ANY in names
        self._networks = [_network(name) for name in names if name != ANY]

    def check_host(self, host: str) -> None:
        """Refuse a host that is known without a name service to be at an address not allowed."""
        name = host.lower().removesuffix(".")  # a dot at the end only says that it is complete
        if name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}"):
            self._check("127.0.0.1", host)
            return
        try:  # also reads `127.1`, `0x7f000001` and `2130706433`, as connecting does
            found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return  # a name
        for entry in found:
            self._check(str(entry[4][0]), host)

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host to connect to; raise if one of them is not allowed."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            if self._is_any:
                raise UnavailableError(f"The host {host} cannot be resolved.") from error
            # No other answer than for a private address: a client that registers a listener must
            # not learn from it which names there are in the server's network.
            _log.info("the host %s cannot be resolved: %s", host, error)
            raise _not_public(host) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            self._check(address, host)
        return addresses

    def _check(self, address: str, host: str) -> None:
        if not self._is_any and not self._is_allowed(_unwrapped(address)):
            raise _not_public(host)

    def _is_allowed(self, address: _Address) -> bool:
        is_special = any(address in network for network in _NOT_PUBLIC)
        if address.is_global and not address.is_multicast and not is_special:
            return True
        return any(address in network for network in self._networks)


def _not_public(host: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"Events are not posted to {host[:200]}: its address is not public.", remedy=_REMEDY
    )


def _unwrapped(text: str) -> _Address:
    """Return the IPv4 address inside of an IPv6 address, if there is one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidArgumentError(
            f"The setting listener_networks names {text!r}, which is not a network.",
            remedy="Write networks as 10.0.0.0/8 or fd00::/8, separated by commas; or `*`.",
        ) from None
