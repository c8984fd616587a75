"""The root for library users: an address becomes a `Session`, for every kind of catalog.

Not called `connect`, since a module of that name would stand before the function.

| address | catalog |
|---|---|
| a directory, or `sqlite:///...` | embedded: the catalog runs in this process on SQLite |
| `file:///...?catalog=filesystem`, `s3://...?catalog=filesystem` | no database: put-if-absent |
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from headgate.catalog.filesystem import FilesystemCatalog
from headgate.catalog.service import Catalog
from headgate.catalog.stores.port import Writing
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.client.session import Session
from headgate.client.table import PlainTable, open_path
from headgate.client.transaction import Patience
from headgate.clock import Clock, Ids, RandomIds, SystemClock
from headgate.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotEmptyError,
    UnavailableError,
)
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, SchemaName
from headgate.settings import Settings
from headgate.storage import locations

DATABASE = "headgate.db"
_ROOT = "root"
_ADDRESSES = "Name a directory, sqlite:///FILE, or file:///DIRECTORY?catalog=filesystem."


def connect(
    address: str | os.PathLike[str] = "lake",
    *,
    settings: Settings | None = None,
    publisher: bool = True,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Session:
    """Open the catalog at an address; a missing or empty directory becomes a lake.

    `publisher=False` leaves publishing to others, or to `table.publish()`.
    """
    clock = clock or SystemClock()
    ids = ids or RandomIds(clock)
    settings = settings or Settings.from_environment(os.environ)
    patience = Patience(inline_bytes=settings.inline_limit_bytes)
    text = os.fspath(address)
    if "://" in text and not text.startswith("sqlite:"):
        root = _filesystem_root(text)
        catalog = FilesystemCatalog(
            root, store_for=locations.store_for, clock=clock, ids=ids, settings=settings
        )
        return Session(
            catalog, clock=clock, ids=ids, store_for=locations.store_for, patience=patience
        )
    embedded = embedded_catalog(text, settings=settings, publisher=publisher, clock=clock, ids=ids)
    return Session(
        embedded,
        clock=clock,
        ids=ids,
        store_for=locations.store_for,
        patience=patience,
        on_close=embedded.close,
    )


def init(address: str | os.PathLike[str], root: str | None = None) -> str:
    """Make a lake and say where its tables will lie; refuse one that is there."""
    text = os.fspath(address)
    if "://" in text and not text.startswith("sqlite:"):
        if root is not None:
            raise InvalidArgumentError(
                f"The tables of {text!r} lie where it says, not at {root!r}.",
                remedy="Leave the root away.",
            )
        return _filesystem_root(text)  # a filesystem catalog is made by its first table
    database = _database(text)
    root = None if root is None else locations.normalize(root)
    if _ready(database).exists():
        raise AlreadyExistsError(f"{text} is a lake already.", remedy="Use it as it is.")
    store = SQLiteStore(str(database), SystemClock())
    try:
        return _root_of(store, database, root, SystemClock())
    finally:
        store.close()


def open(path: str | os.PathLike[str], *, version: int | None = None) -> PlainTable:
    """Open a plain Delta table by its path, to read it."""
    return open_path(os.fspath(path), version=version)


def embedded_catalog(
    address: str, *, settings: Settings, publisher: bool, clock: Clock, ids: Ids
) -> Catalog:
    """Run the catalog of a lake in this process."""
    database = _database(address)
    store = SQLiteStore(str(_ready(database)), clock)
    try:
        root = _root_of(store, database, None, clock)
    except BaseException:
        store.close()
        raise
    return Catalog(
        store,
        root,
        store_for=locations.store_for,
        clock=clock,
        ids=ids,
        settings=settings,
        publisher=publisher,
    )


def _database(address: str) -> Path:
    if address.startswith("sqlite:"):
        path = address.removeprefix("sqlite://")
        if not path.startswith("/") or path == "/":
            raise InvalidArgumentError(
                f"{address!r} names no file.", remedy="Write sqlite:///path/to/file.db."
            )
        return Path(path)
    if not address:
        raise InvalidArgumentError("An address cannot be empty.", remedy="Name a directory.")
    return Path(address) / DATABASE


def _ready(database: Path) -> Path:
    """Make the lake's directory; refuse one that is somebody else's."""
    directory = database.parent
    try:
        if directory.exists() and not directory.is_dir():
            raise InvalidArgumentError(
                f"{directory} is not a directory.", remedy="Name a directory."
            )
        directory.mkdir(parents=True, exist_ok=True)
        # In this order: what another process makes meanwhile is a lake, not somebody else's.
        is_used = any(directory.iterdir())
        is_foreign = is_used and not database.exists()
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"{str(directory)!r} cannot be used: {error}.",
            remedy="Name a directory that can be read and written.",
        ) from error
    if is_foreign:
        raise NotEmptyError(
            f"{directory} is not empty and holds no lake.",
            remedy="Name an empty or a new directory, or a lake.",
        )
    return database


def _root_of(store: SQLiteStore, database: Path, root: str | None, clock: Clock) -> str:
    with store.read() as unit:
        known = unit.setting(_ROOT)
    if known is not None:
        return known
    wanted = locations.normalize(root or str(database.parent.resolve()))

    def begin(unit: Writing) -> str:
        known = unit.setting(_ROOT)  # another process may have been faster
        if known is not None:
            return known
        unit.set_setting(_ROOT, wanted)
        unit.insert_namespace(SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA), clock.now_ms())
        return wanted

    with store.write() as unit:
        return begin(unit)


def _filesystem_root(address: str) -> str:
    parts = urlsplit(address)
    if parse_qs(parts.query).get("catalog") != ["filesystem"]:
        raise InvalidArgumentError(f"{address!r} names no catalog.", remedy=_ADDRESSES)
    try:
        return locations.normalize(address.partition("?")[0])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, remedy=_ADDRESSES) from None
