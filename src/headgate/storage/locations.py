"""Normalize locations, open the store that serves one, and parse the paths in log actions.

A location is an absolute URL whose path is percent-encoded exactly once and ends without `/`:
`file:///data/a%20b`, `s3://bucket/tables/7`. A string without a scheme is a local path and not
decoded; one with a scheme is a URL and decoded once.
"""

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from headgate.errors import InvalidArgumentError
from headgate.protocol.data_paths import SCHEME_ALIASES, is_absolute, without_empty_segments
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import Folder, ObjectStore, check_path, encode

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_CLOUD: Final = frozenset({"s3", "gs", "az", "abfss"})
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_CONTAINER: Final = re.compile(r"[A-Za-z0-9._-]+(@[A-Za-z0-9._-]+)?")  # abfss://container@account
_HOST: Final = re.compile(r"(?:\[.*\]|[^:]*)(?::[0-9]*)?", re.DOTALL)
# Parameters of an address that are not secret.
_HARMLESS: Final = re.compile(
    "(?:user|host|hostaddr|dbname|sslmode|sslrootcert|application_name|catalog)=[^@]*"
    "|(?:port|connect_timeout)=[0-9,]*"
)


def normalize(location: str) -> str:
    """Return the normal form of a location: two spellings of one place become equal."""
    match = _URL.fullmatch(location)
    if match is None:
        if "\0" in location or not location:
            raise InvalidArgumentError(f"{location!r} is not a local path.")
        path = os.path.abspath(location)  # noqa: PTH100 - `resolve` would follow links
        return _spell("file", "", path.strip("/"))
    scheme, host, path = match[1].lower(), match[2] or "", match[3]
    # For errors: the location may be wrong because it has a password.
    named = repr(shown(location))
    if "?" in path or "#" in path:
        raise InvalidArgumentError(f"The location {named} has a query or a fragment.")
    path = decode(path)
    scheme = SCHEME_ALIASES.get(scheme, scheme)
    if scheme == "file":
        if host not in ("", "localhost"):
            raise InvalidArgumentError(f"The location {named} is on another machine.")
        if not path.startswith("/"):
            raise InvalidArgumentError(f"The location {named} is not absolute.")
        return _spell("file", "", re.sub("/+", "/", path).strip("/"))
    if scheme != "memory" and scheme not in _CLOUD:
        raise InvalidArgumentError(f"Storage at {scheme}:// is not supported ({named}).")
    if not host:
        raise InvalidArgumentError(f"The location {named} names no bucket.")
    if not (_CONTAINER if scheme == "abfss" else _BUCKET).fullmatch(host):
        raise InvalidArgumentError(
            f"The location {named} does not name a bucket: expected {scheme}://BUCKET/PATH.",
            remedy="Leave out a user, a password and a port: credentials come from the environment "
            "of the process that opens the location.",
        )
    return _spell(scheme, host, path.removeprefix("/").removesuffix("/"))


def contains(outer: str, inner: str) -> bool:
    """Return True if `inner` is `outer` or a location below it."""
    return f"{normalize(inner)}/".startswith(f"{normalize(outer).removesuffix('/')}/")


def without_links(location: str) -> str:
    """Return a location with all symbolic links resolved, if it is on this machine."""
    url = normalize(location)
    scheme, _, path = url.partition("://")
    return normalize(os.path.realpath(decode(path))) if scheme == "file" else url


def join(location: str, relative: str) -> str:
    """Return the location of a decoded path below another location."""
    return f"{normalize(location).removesuffix('/')}/{encode(check_path(relative))}"


def parents(location: str) -> Iterator[str]:
    """Yield the locations above a location, the nearest first, without the root of a disk."""
    url = normalize(location).rpartition("/")[0]
    while not url.endswith("/"):
        yield url
        url = url.rpartition("/")[0]


def path_within(outer: str, inner: str) -> str | None:
    """Return the decoded path of one location below another; None if it is not below."""
    base, full = normalize(outer).removesuffix("/"), normalize(inner)
    return decode(full[len(base) + 1 :]) if full.startswith(f"{base}/") else None


def decode(text: str) -> str:
    """Percent-decode once; a `%` that encodes nothing is kept."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        raise InvalidArgumentError(f"The path {text!r} does not decode to UTF-8.") from None


def shown(address: str) -> str:
    """Return an address for messages without any password; only its scheme if that is uncertain."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    head, at, place = rest.rpartition("@")
    hosts = re.split("[/?]", place)[0].split(",")
    is_clear = "@" not in head and not ("?" in head and "=" in head)
    if not is_clear or not all(map(_HOST.fullmatch, hosts)):
        return f"{scheme}://…"
    user = re.split("[:/?]", head)[0]
    place, mark, query = place.partition("?")
    kept = [one for one in query.split("&") if _HARMLESS.fullmatch(unquote(one))]
    return f"{scheme}://{user}{at}{place}{mark if kept else ''}{'&'.join(kept)}"


@dataclass(frozen=True, slots=True)
class DataPath:
    """A path from a log action: below the table and decoded, or a location."""

    value: str
    is_relative: bool


def data_path(raw: str) -> DataPath:
    """Parse the `path` of an action: a URI, relative to the table or absolute."""
    if not is_absolute(raw):
        return DataPath(check_path(without_empty_segments(decode(raw))), is_relative=True)
    url = f"file://{raw}" if raw.startswith("/") else raw
    scheme, separator, rest = url.partition("://")
    location = normalize(f"{scheme}{separator}{without_empty_segments(rest)}")
    return DataPath(location, is_relative=False)


def store_for(location: str) -> ObjectStore:
    """Return the store whose root is this location; the same object for the same place."""
    known = _stores.get(location)  # most callers pass the normal form
    if known is not None:
        return known
    url = normalize(location)
    with _lock:
        store = _stores.get(url)
        if store is None:
            store = _stores[url] = _open(url)
        return store


def mount(location: str, store: ObjectStore) -> None:
    """Use a store for a location and everything below it, in this process."""
    url = normalize(location)
    with _lock:
        _mounts[url] = store
        for known in [known for known in _stores if contains(url, known)]:
            del _stores[known]


_lock = threading.RLock()
_stores: dict[str, ObjectStore] = {}
_mounts: dict[str, ObjectStore] = {}


def _open(url: str) -> ObjectStore:
    for base in sorted(_mounts, key=len, reverse=True):
        if base == url:
            return _mounts[base]
        if path := path_within(base, url):
            return Folder(_mounts[base], path, url)
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return LocalStore(decode(rest))
    root = f"{scheme}://{rest.partition('/')[0]}"
    if scheme == "memory":
        _mounts[root] = MemoryStore(root)
    else:
        # obstore is slow to import, and local lakes never need it.
        from headgate.storage.cloud import CloudStore

        _mounts[root] = CloudStore.from_url(root)
    return _open(url)


def _spell(scheme: str, host: str, path: str) -> str:
    if path:
        check_path(path)
        return f"{scheme}://{host}/{encode(path)}"
    return f"{scheme}://{host}/" if scheme == "file" else f"{scheme}://{host}"
