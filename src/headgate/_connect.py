"""Opening a catalog: `connect`, `init` and `open`.

The module is not called `connect` because importing it would replace the function
`headgate.connect` by the module.

| address | catalog |
|---|---|
| a directory, or `sqlite:///...` | embedded: the catalog runs in this process on SQLite |
| `postgresql://...` | the catalog runs in this process on a shared database |
| `http://...`, `https://...` | a catalog server |
| `file:///...?catalog=filesystem`, `s3://...?catalog=filesystem` | filesystem catalog |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, urlsplit

from headgate import errors
from headgate.api.port import ManagingCatalog
from headgate.arguments import When, checked, milliseconds, refuse_several
from headgate.catalog.service import Catalog
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.stores.sqlite_file import make_private_folder
from headgate.clock import Clock, Ids, RandomIds, SystemClock
from headgate.names import DEFAULT_CATALOG, DEFAULT_SCHEMA, SchemaName
from headgate.settings import Settings
from headgate.storage import locations

if TYPE_CHECKING:
    from headgate.client.plain_table import PlainTable
    from headgate.client.session import Session

DATABASE = "headgate.db"
_ROOT = "root"
_ADDRESSES = (
    "Use a directory, sqlite:///FILE, postgresql://…, http://…, "
    "file:///DIRECTORY?catalog=filesystem or s3://BUCKET/PREFIX?catalog=filesystem."
)


@checked
def connect(
    address: str | os.PathLike[str] = "lake",
    *,
    settings: Settings | None = None,
    publisher: bool = True,
    token: str | None = None,
    certificates: str | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Session:
    """Open the catalog at an address. A missing or empty directory becomes a lake.

    With `publisher=False` this process publishes only when `table.publish()` is called. `token` is
    for servers that require one; its default is HEADGATE_TOKEN. `certificates` is a file with the
    certificate authorities to trust instead of those of the system.
    """
    # The client is imported late: it imports pyarrow, which a server does not need.
    from headgate.client.session import Session
    from headgate.client.transaction import Patience

    clock = clock or SystemClock()
    ids = ids or RandomIds(clock)
    settings = settings or Settings.from_environment(os.environ)
    text = os.fspath(address)
    catalog: ManagingCatalog
    on_close: Callable[[], None] | None = None
    match _kind(text):
        case "server":
            from headgate.client.remote import RemoteCatalog

            token = token or os.environ.get("HEADGATE_TOKEN")
            remote = RemoteCatalog(
                text, clock=clock, ids=ids, token=token, certificates=certificates
            )
            catalog, on_close = remote, remote.close
        case "filesystem":
            from headgate.catalog.filesystem import FilesystemCatalog

            catalog = FilesystemCatalog(
                _filesystem_root(text), store_for=locations.store_for, clock=clock, ids=ids
            )
        case "database":
            embedded = embedded_catalog(
                text,
                settings=settings,
                publisher=publisher,
                clock=clock,
                ids=ids,
                housekeeping=publisher,
                any_location=True,
            )
            catalog, on_close = embedded, embedded.close
    return Session(
        catalog,
        clock=clock,
        ids=ids,
        store_for=locations.store_for,
        patience=Patience(inline_bytes=settings.inline_limit_bytes),
        on_close=on_close,
    )


@checked
def init(address: str | os.PathLike[str], root: str | None = None) -> str:
    """Create a lake and return the root of its tables, or raise `AlreadyExistsError`."""
    text = os.fspath(address)
    match _kind(text):
        case "server":
            raise errors.InvalidArgumentError(
                f"{locations.shown(text)!r} is a server.",
                remedy="Run `headgate init` on the server's machine with the address of its store.",
            )
        case "filesystem":
            if root is not None:
                raise errors.InvalidArgumentError(
                    f"A filesystem catalog stores its tables at its own address, "
                    f"{locations.shown(text)!r}, not at {root!r}.",
                    remedy="Omit the root.",
                )
            return _filesystem_root(text)  # the first table creates a filesystem catalog
    root = None if root is None else locations.normalize(root)
    if root is not None and root.startswith("memory:"):
        raise errors.InvalidArgumentError(
            f"Tables under {root} would be lost when this process ends.",
            remedy="Use a directory or a file://, s3://, gs://, az:// or abfss:// URL.",
        )
    database = database_file(text)
    if database is not None and _ready(database).exists():
        raise errors.AlreadyExistsError(f"There is already a lake at {text}.", remedy="Use it.")
    clock = SystemClock()
    with closing(_store(text, clock, Settings())) as store:
        with store.read() as unit:
            if unit.setting(_ROOT) is not None:
                raise errors.AlreadyExistsError(
                    "This database already contains a lake.", remedy="Use it."
                )
        return _root_of(store, root or _default_root(text), clock)


@checked
def open(
    path: str | os.PathLike[str], *, version: int | None = None, as_of: When | None = None
) -> PlainTable:
    """Open a plain Delta table by its path for reading, at the latest or an earlier version."""
    from headgate.client.plain_table import PlainTable
    from headgate.protocol.actions import Version
    from headgate.table import snapshot_loader

    refuse_several(version=version, as_of=as_of)
    snapshot = snapshot_loader.load_path(
        os.fspath(path),
        version=None if version is None else Version(version),
        as_of_ms=None if as_of is None else milliseconds(as_of),
    )
    return PlainTable(snapshot)


def embedded_catalog(
    address: str,
    *,
    settings: Settings,
    publisher: bool,
    clock: Clock,
    ids: Ids,
    publisher_process: bool = False,
    housekeeping: bool = False,
    proposers: int | None = None,
    any_location: bool = False,
    on_stopped: Callable[[str], None] = lambda why: None,
) -> Catalog:
    """Open the catalog of a lake in this process, on SQLite or PostgreSQL.

    With `any_location` clients may choose any location for tables. A server allows only locations
    that its administrator registered.
    """
    store, root = open_store(address, clock, settings)
    if isinstance(store, SQLiteStore) and store.is_read_only:
        publisher = housekeeping = False  # both need to write
    return Catalog(
        store,
        root,
        store_for=locations.store_for,
        clock=clock,
        ids=ids,
        settings=settings,
        publisher=publisher,
        publisher_process=publisher_process,
        housekeeping=housekeeping,
        proposers=proposers,
        any_location=any_location,
        on_stopped=on_stopped,
    )


def open_store(
    address: str, clock: Clock, settings: Settings | None = None
) -> tuple[CatalogStore, str]:
    """Open the store of a lake; return it and the root of the lake's tables."""
    settings = settings or Settings()
    if _kind(address) != "database":
        raise errors.InvalidArgumentError(
            f"{locations.shown(address)!r} is not the address of a store.",
            remedy="Use a directory, sqlite:///FILE or postgresql://….",
        )
    store = _store(address, clock, settings)
    try:
        return store, _root_of(store, _default_root(address), clock)
    except BaseException:
        store.close()
        raise


def database_file(address: str) -> Path | None:
    """Return the SQLite file of a store's address; None for another address."""
    if _kind(address) != "database" or is_postgres(address):
        return None
    if address.startswith("sqlite:"):
        path = address.removeprefix("sqlite://")
        if not path.startswith("/") or path == "/":
            raise errors.InvalidArgumentError(
                f"{locations.shown(address)!r} does not contain the path of a file.",
                remedy="Write sqlite:///path/to/file.db.",
            )
        return Path(path)
    if not address:
        raise errors.InvalidArgumentError("The address is empty.", remedy="Use a directory.")
    return Path(address) / DATABASE


def is_postgres(address: str) -> bool:
    """Return True for the address of a PostgreSQL database."""
    return address.startswith(("postgresql://", "postgres://"))


def _kind(address: str) -> Literal["database", "server", "filesystem"]:
    if "://" not in address or address.startswith("sqlite:") or is_postgres(address):
        return "database"
    return "server" if address.startswith(("http://", "https://")) else "filesystem"


def _store(address: str, clock: Clock, settings: Settings) -> CatalogStore:
    patience = settings.store_patience_ms / 1000
    database = database_file(address)
    if database is not None:
        return SQLiteStore(str(_ready(database)), clock, patience=patience)
    from headgate.catalog.stores.postgres import PostgresStore  # slow to load

    return PostgresStore(address, clock, patience=patience, readers=settings.store_readers)


def _default_root(address: str) -> str | None:
    database = database_file(address)
    return None if database is None else locations.normalize(str(database.parent.resolve()))


def _ready(database: Path) -> Path:
    """Create the directory of a lake if needed; raise if it contains other files."""
    directory = database.parent
    try:
        if directory.exists() and not directory.is_dir():
            raise errors.InvalidArgumentError(
                f"{directory} is not a directory.", remedy="Use a directory."
            )
        if not database.exists():  # synced, since a lost directory would lose ratified commits
            make_private_folder(directory)
        # In this order: a database that another process creates meanwhile makes it a lake.
        is_used = any(directory.iterdir())
        is_foreign = is_used and not database.exists()
        # A new lake has an empty database for a moment, but no tables yet. Again in this order:
        # another process may create both meanwhile.
        is_lost = (directory / "tables").is_dir() and _is_empty(database)
    except NotADirectoryError as error:
        raise errors.InvalidArgumentError(
            f"{str(directory)!r} cannot be used: {error}.", remedy="Use a directory."
        ) from error
    except OSError as error:
        raise errors.UnavailableError(
            f"{str(directory)!r} cannot be used: {error}.",
            remedy="Use a directory that can be read and written.",
        ) from error
    if is_foreign:
        raise errors.NotEmptyError(
            f"{directory} is not empty and is not a lake.",
            remedy="Use a new or empty directory, or an existing lake.",
        )
    if is_lost:
        raise errors.DamagedError(
            f"The catalog's database {database} is empty, but there are tables beside it.",
            remedy="Move it away and restore a backup: `headgate restore`.",
        )
    return database


def _is_empty(database: Path) -> bool:
    for file in (database, database.with_name(f"{database.name}-wal")):
        with suppress(FileNotFoundError):  # the last process to close deletes the log
            if file.stat().st_size:
                return False
    return True


def _root_of(store: CatalogStore, root: str | None, clock: Clock) -> str:
    with store.read() as unit:
        known = unit.setting(_ROOT)
    if known is not None:
        return known
    if root is None:
        raise errors.InvalidArgumentError(
            "The database contains no lake, and no storage root is configured.",
            remedy="Create a lake: `headgate init ADDRESS --root URL`.",
        )
    with store.write() as unit:
        known = unit.setting(_ROOT)  # another process may have created it meanwhile
        if known is not None:
            return known
        unit.set_setting(_ROOT, root)
        unit.insert_namespace(SchemaName(DEFAULT_CATALOG, DEFAULT_SCHEMA), clock.now_ms())
        return root


def _filesystem_root(address: str) -> str:
    parts = urlsplit(address)
    if parse_qs(parts.query).get("catalog") != ["filesystem"]:
        raise errors.InvalidArgumentError(
            f"{locations.shown(address)!r} is not the address of a catalog.", remedy=_ADDRESSES
        )
    try:
        return locations.normalize(address.partition("?")[0])
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(error.message, remedy=_ADDRESSES) from None
