"""One suite, every kind of catalog and every way to commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pytest

from headgate._connect import embedded_catalog
from headgate.api.messages import Answer, Part, Proposal, Resolved, StagingTable
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.catalog.service import Catalog
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.postgres import PostgresStore
from headgate.clock import Clock, Ids, SystemClock
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Action, TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Inline, Put, Staged, Way
from headgate.protocol.paths import PublishedCommit, StagedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table.log_files import DeltaLog
from tests.catalog.postgres_stores import Opened
from tests.kit import postgres
from tests.kit.builders import (
    CountedIds,
    ManualClock,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)


@dataclass
class House:
    """A catalog under test, and the way its clients commit."""

    root: Path
    way: Way
    clock: ManualClock
    # Most of these commits name files that are nowhere.
    settings: Settings = field(default_factory=lambda: Settings(verify_staged=0))
    has_publisher: bool = False
    open_store: Callable[[], CatalogStore] | None = None  # the lake's own file, unless given
    catalog: Catalog | FilesystemCatalog = field(init=False)

    SCHEMA: ClassVar = SchemaName("main", "default")

    def __post_init__(self) -> None:
        self.catalog = self._open()

    def _open(self) -> Catalog | FilesystemCatalog:
        if self.way is Way.PUT_IF_ABSENT:
            return FilesystemCatalog(
                locations.normalize(str(self.root)),
                store_for=locations.store_for,
                clock=self.clock,
                ids=CountedIds(),
            )
        if self.open_store is not None:
            return catalog_on(
                self.open_store(),
                self.root,
                settings=self.settings,
                publisher=self.has_publisher,
                clock=self.clock,
                ids=CountedIds(),
            )
        return embedded_catalog(
            str(self.root),
            settings=self.settings,
            publisher=self.has_publisher,
            clock=self.clock,
            ids=CountedIds(),
            any_location=True,
        )

    @property
    def database(self) -> Catalog:
        """The catalog, where the test needs one with a database."""
        assert isinstance(self.catalog, Catalog)
        return self.catalog

    def restart(self) -> None:
        """Close the catalog and open it again, as a new process would."""
        self.close()
        self.catalog = self._open()

    def close(self) -> None:
        if isinstance(self.catalog, Catalog):
            self.catalog.close()

    def create(
        self,
        name: str = "t",
        *,
        schema: str = "id long",
        features: tuple[str, ...] = (),
        partition_by: tuple[str, ...] = (),
        properties: dict[str, str] | None = None,
    ) -> Resolved:
        """Make a table in one call."""
        table_id = new_table_id()
        return self.catalog.create_table(
            TableName.parse(name),
            table_id,
            new_txn_id(),
            inline(
                protocol(*features),
                metadata(table_id, schema, partition_by, properties),
                operation="CREATE TABLE",
            ),
        )

    def part(
        self,
        table_id: TableId,
        version: int,
        *actions: Action,
        txn_id: TxnId,
        timestamp_ms: int | None = None,
    ) -> Part:
        """Make content ready in this catalog's way: staged content is put into its file."""
        content: Inline | Staged | Put
        stamp = timestamp_ms or max(self.clock.ms, self.stamp_of(table_id) + 1)
        whole = file_content(*actions, txn_id=txn_id, timestamp_ms=stamp)
        match self.way:
            case Way.INLINE:
                content = inline(*actions)
            case Way.STAGED:
                staged = StagedCommit(Version(version), uuid4())
                self.log(table_id).stage(staged, whole)
                content = Staged(file_name=staged.name, size=len(whole))
            case Way.PUT_IF_ABSENT:
                content = Put(content=whole)
        return Part(table_id=table_id, version=Version(version), content=content)

    def proposal(
        self,
        table_id: TableId,
        version: int,
        *actions: Action,
        txn_id: TxnId | None = None,
        scans: tuple[Scan, ...] = (),
        timestamp_ms: int | None = None,
    ) -> Proposal:
        txn_id = txn_id or new_txn_id()
        part = self.part(table_id, version, *actions, txn_id=txn_id, timestamp_ms=timestamp_ms)
        return Proposal(txn_id=txn_id, parts=(part,), scans=scans)

    def propose(
        self,
        table_id: TableId,
        version: int,
        *actions: Action,
        txn_id: TxnId | None = None,
        scans: tuple[Scan, ...] = (),
        timestamp_ms: int | None = None,
    ) -> Answer:
        return self.catalog.propose(
            self.proposal(
                table_id, version, *actions, txn_id=txn_id, scans=scans, timestamp_ms=timestamp_ms
            )
        )

    def stamp_of(self, table_id: TableId) -> int:
        """The timestamp of the table's latest commit."""
        return self.catalog.resolve(table_id).timestamp_ms

    def log(self, table_id: TableId) -> DeltaLog:
        return DeltaLog(locations.store_for(self.catalog.resolve(table_id).location))


def catalog_on(
    store: CatalogStore,
    root: Path,
    *,
    clock: Clock,
    ids: Ids,
    settings: Settings | None = None,
    publisher: bool = False,
) -> Catalog:
    """Run a catalog on a store, which becomes a lake's if it is empty."""
    with store.write() as unit:
        if not unit.namespaces():
            unit.insert_namespace(House.SCHEMA, clock.now_ms())
    return Catalog(
        store,
        locations.normalize(str(root)),
        store_for=locations.store_for,
        clock=clock,
        ids=ids,
        settings=settings,
        publisher=publisher,
        any_location=True,
    )


@dataclass(frozen=True)
class KindOfHouse:
    """A way to commit, and where the catalog keeps what it knows."""

    way: Way
    is_on_postgres: bool = False

    def __str__(self) -> str:
        return f"{self.way.value}{'-postgresql' * self.is_on_postgres}"

    def open(self, request: pytest.FixtureRequest, root: Path) -> Iterator[House]:
        clock = ManualClock()
        if not self.is_on_postgres:
            made = House(root, self.way, clock)
            yield made
            made.close()
            return
        server: postgres.Postgres = request.getfixturevalue("postgres_server")
        with server.schema() as schema:
            made = House(
                root,
                self.way,
                clock,
                open_store=lambda: PostgresStore(server.address(), clock, schema=schema),
            )
            yield made
            made.close()


ON_DATABASES = [
    KindOfHouse(way, is_on_postgres)
    for is_on_postgres in (False, True)
    for way in (Way.INLINE, Way.STAGED)
]


def opened(request: pytest.FixtureRequest, root: Path) -> Iterator[House]:
    # A test that names its ways itself means those of the kinds that need nothing else.
    kind = request.param
    return (KindOfHouse(kind) if isinstance(kind, Way) else kind).open(request, root)


@pytest.fixture(params=[*ON_DATABASES, KindOfHouse(Way.PUT_IF_ABSENT)], ids=str)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A catalog of each kind."""
    yield from opened(request, tmp_path / "lake")


@pytest.fixture(params=ON_DATABASES, ids=str)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A catalog with a database: what a filesystem catalog refuses is shown on this one."""
    yield from opened(request, tmp_path / "lake")


@pytest.fixture
def inline_lake(tmp_path: Path) -> Iterator[House]:
    """A catalog with a database, whose clients send their commits inline."""
    made = House(tmp_path / "lake", Way.INLINE, ManualClock())
    yield made
    made.close()


@pytest.fixture
def open_postgres(postgres_server: postgres.Postgres) -> Iterator[Opened]:
    """Open stores on PostgreSQL, each name in a schema of its own, and close them."""
    with ExitStack() as opened:
        schemas: dict[str, str] = {}

        def open_postgres(
            name: str = "one", address: str | None = None, **more: float
        ) -> PostgresStore:
            if name not in schemas:
                schemas[name] = opened.enter_context(postgres_server.schema())
            store = PostgresStore(
                address or postgres_server.address(), SystemClock(), schema=schemas[name], **more
            )
            opened.callback(store.close)
            return store

        yield open_postgres


def lay(staging: StagingTable, content: bytes) -> None:
    """Put version 0 of a staging table, as its creator does."""
    store = locations.store_for(staging.location)
    assert store.put_if_absent(PublishedCommit(Version(0)).path, content)


def first(table_id: TableId, **info: object) -> bytes:
    """Return the content of a valid version 0."""
    return file_content(protocol(), metadata(table_id), txn_id=new_txn_id(), **info)
