"""The suite of the client, on every kind of catalog.

`world` is one catalog with a table in it. Tests that need more than the smallest
port of a catalog use `full_world`, which excludes the minimal catalogs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from headgate import _connect
from headgate._connect import embedded_catalog
from headgate.api.port import ManagingCatalog
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.client import arrow_io
from headgate.client.remote import RemoteCatalog
from headgate.client.session import Session
from headgate.client.table import Table
from headgate.client.transaction import Change, OperationInfo, Patience
from headgate.clock import Clock, Ids, RandomIds, SystemClock
from headgate.names import TableName
from headgate.protocol.actions import TableId
from headgate.protocol.commit.content import Way
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.types import to_json
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectStore
from tests.http.conftest import serving
from tests.kit import req
from tests.kit.builders import CountedIds, ManualClock
from tests.kit.faulty_catalogs import LosingCatalog
from tests.kit.faulty_stores import CountingStore
from tests.kit.minimal_catalog import MinimalCatalog
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer

SCHEMA = "id long, day date"


@dataclass
class World:
    """A catalog, its stores, and sessions on it."""

    kind: str
    catalog: ManagingCatalog
    clock: Clock
    ids: Ids
    open_store: Callable[[str], ObjectStore]
    stores: dict[str, CountingStore] = field(default_factory=dict)

    @property
    def is_minimal(self) -> bool:
        return self.kind.startswith("minimal")

    @property
    def only_puts(self) -> bool:
        """Whether put-if-absent is the only way to commit."""
        return self.kind in ("minimal-put", "filesystem")

    def store_for(self, location: str) -> CountingStore:
        if location not in self.stores:
            self.stores[location] = CountingStore(self.open_store(location))
        return self.stores[location]

    def session(self, catalog: ManagingCatalog | None = None, **patience: float) -> Session:
        """Connect another client, by default to the catalog of this world."""
        return Session(
            catalog or self.catalog,
            clock=self.clock,
            ids=self.ids,
            store_for=self.store_for,
            patience=Patience(**patience),  # type: ignore[arg-type]
        )

    def staging_session(self, catalog: ManagingCatalog | None = None) -> Session:
        """Connect a client that stages every commit."""
        return self.session(catalog, inline_bytes=0)

    def make(
        self,
        name: str = "orders",
        schema: str = SCHEMA,
        *,
        partition_by: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        features: Iterable[str] = (),
    ) -> Table:
        """Create a table in any kind of catalog."""
        if not isinstance(self.catalog, MinimalCatalog):
            asked = {f"delta.feature.{feature}": "supported" for feature in features}
            return self.session().create_table(
                name, schema, partition_by, {**asked, **(properties or {})}
            )
        table_id = TableId(str(self.ids.random()))
        self.catalog.make(
            TableName.parse(name),
            table_id,
            f"memory://minimal/{table_id}",
            schema_string=to_json(parse_schema(schema)),
            partition_columns=partition_by,
            properties=properties,
            features=features,
        )
        return self.session().table(name)

    def losing(self, **how: int) -> LosingCatalog:
        return LosingCatalog(self.catalog, **how)  # type: ignore[arg-type]

    def publish(self, table: Table) -> None:
        """Publish all commits; the minimal catalog no longer lists them then."""
        if isinstance(self.catalog, MinimalCatalog):
            self.catalog.publish_and_forget(table.id)
        else:
            table.publish()


# One suite for all: these clauses require that small catalogs and full ones pass it.
KINDS = [
    *(pytest.param(kind, marks=req("CA-02")) for kind in ("minimal", "minimal-put")),
    *(pytest.param(kind, marks=req("CA-01")) for kind in ("embedded", "filesystem", "server")),
]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds(request.param, tmp_path)


@pytest.fixture
def minimal_world(tmp_path: Path) -> Iterator[World]:
    """A world with a manual clock."""
    yield from worlds("minimal", tmp_path)


SOCKET = "postgresql over a socket"


@pytest.fixture(
    params=[
        "embedded",
        "server",
        pytest.param(SOCKET, marks=[pytest.mark.slow, pytest.mark.faults]),
    ]
)
def full_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world whose catalog has every capability, in process and behind a server."""
    if request.param == SOCKET:
        yield from distant_worlds(request.getfixturevalue("distant_server"))
        return
    yield from worlds(request.param, tmp_path)


@pytest.fixture(params=["embedded", "server"])
def near_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A full world in this process, on a directory."""
    yield from worlds(request.param, tmp_path)


@pytest.fixture(scope="session")
def distant_server(
    postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server in its own processes, on PostgreSQL, that does not publish by itself."""
    address = postgres_server.new_database()
    _connect.init(address, root=str(tmp_path_factory.mktemp("distant") / "lake"))
    never = "3600000"
    quiet = {"HEADGATE_PUBLISH_EVERY_MS": never, "HEADGATE_PUBLISH_LINGER_MS": never}
    with RunningServer(address, environment=quiet) as server:
        yield server


def distant_worlds(server: RunningServer) -> Iterator[World]:
    """Yield a world on a server that other tests use before and after."""
    clock = SystemClock()
    remote = RemoteCatalog(server.address, clock=clock, ids=RandomIds(clock))
    yield World(SOCKET, remote, clock, RandomIds(clock), locations.store_for)
    for entry in remote.tables(dropped=True):
        if entry.state is TableStatus.ACTIVE:
            remote.drop_table(entry.table_id)
        remote.purge_table(entry.table_id)
    for namespace in remote.namespaces():
        if str(namespace) != "main.default":
            remote.drop_namespace(namespace)
    remote.close()


def worlds(kind: str, tmp_path: Path) -> Iterator[World]:
    if kind == "embedded":
        yield from embedded_worlds(tmp_path)
        return
    if kind == "server":
        for served in serving(tmp_path / "lake", Settings()):
            remote = served.remote()
            yield World("server", remote, SystemClock(), RandomIds(), locations.store_for)
            remote.close()
        return
    if kind == "filesystem":
        yield filesystem_world(tmp_path)
        return
    clock = ManualClock(sleep_moves_date=True)
    ways = (Way.PUT_IF_ABSENT,) if kind == "minimal-put" else (Way.INLINE, Way.STAGED)
    world: World
    catalog = MinimalCatalog(lambda location: world.store_for(location), clock.now_ms, ways)
    world = World(kind, catalog, clock, CountedIds(clock=clock), lambda url: MemoryStore(url))
    yield world


def embedded_worlds(tmp_path: Path) -> Iterator[World]:
    clock = SystemClock()
    ids = RandomIds(clock)
    catalog = embedded_catalog(
        str(tmp_path / "lake"), settings=Settings(), publisher=False, clock=clock, ids=ids
    )
    yield World("embedded", catalog, clock, ids, locations.store_for)
    catalog.close()


def filesystem_world(tmp_path: Path) -> World:
    clock = SystemClock()
    ids = RandomIds(clock)
    root = locations.normalize(str(tmp_path / "root"))
    catalog = FilesystemCatalog(root, store_for=locations.store_for, clock=clock, ids=ids)
    return World("filesystem", catalog, clock, ids, locations.store_for)


def rows(*ids: int) -> pa.Table:
    """Return rows for tables that `World.make` creates."""
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.nulls(len(ids), pa.date32())})


def ids_in(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def appending(table: Table, number: int, copies: int = 1) -> Change:
    """Write data files and return the change that appends them."""
    base = table.snapshot()
    adds = [
        add
        for _ in range(copies)
        for add in arrow_io.write_files(
            base, rows(number), store=base.store, new_id=uuid.uuid4, now_ms=0
        )
    ]
    return Change(table.id, base, (Way.INLINE, Way.STAGED), tuple(adds), OperationInfo("WRITE"))
