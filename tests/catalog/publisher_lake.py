"""A lake whose publisher and storage a test controls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from headgate._connect import embedded_catalog
from headgate.api.messages import Ratified
from headgate.catalog.service import Catalog
from headgate.protocol.actions import TableId
from headgate.protocol.commit.content import Way
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.local import LocalStore
from tests.catalog.conftest import House
from tests.kit.builders import (
    CountedIds,
    ManualClock,
    add,
)
from tests.kit.faulty_stores import Call, WrappedStore

T = TypeVar("T")
PATIENCE = 20  # seconds until a test says that something never happens
NEVER = 3_600_000


class Storage(WrappedStore):
    """Storage that a test can look into, slow down and break."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.puts: list[tuple[str, ...]] = []
        self.before: Callable[[Call], None] = lambda call: None
        self.after: Callable[[Call], None] = lambda call: None

    def around(self, call: Call, effect: Callable[[], T]) -> T:
        self.before(call)
        result = effect()
        if call.method == "put_many_if_absent":
            self.puts.append(call.paths)
        self.after(call)
        return result

    def versions(self, table_id: TableId) -> list[list[int]]:
        """The versions of each batch that was put."""
        return [
            [int(path.rpartition("/")[2].removesuffix(".json")) for path in paths]
            for paths in self.puts
            if f"/{table_id}/" in paths[0]
        ]


def is_publishing(call: Call, table_id: TableId | None = None) -> bool:
    return call.method == "put_many_if_absent" and f"/{table_id or ''}" in call.paths[0]


def break_for(storage: Storage, table_id: TableId, error: Callable[[], Exception]) -> None:
    """Let every try to publish one table fail."""

    def before(call: Call) -> None:
        if is_publishing(call, table_id):
            raise error()

    storage.before = before


def mounted_storage(root: Path) -> Storage:
    storage = Storage(root)
    locations.mount(str(root), storage)
    return storage


class Lake(House):
    """A lake whose ids are those of another process."""

    salts = itertools.count(1)

    def _open(self) -> Catalog:
        return embedded_catalog(
            str(self.root),
            settings=self.settings,
            publisher=self.has_publisher,
            clock=self.clock,
            ids=CountedIds(next(self.salts)),
        )


@contextmanager
def opened(tmp_path: Path, *, publisher: bool = True, **changed: int) -> Iterator[House]:
    """A lake whose publisher runs often, or not at all."""
    chosen: dict[str, int] = {"publish_every_ms": 5, "publish_linger_ms": 0, **changed}
    house = Lake(
        tmp_path / "lake",
        Way.INLINE,
        ManualClock(),
        Settings(**{"verify_staged": 0, **chosen}),  # type: ignore[arg-type]
        has_publisher=publisher,
    )
    try:
        yield house
    finally:
        house.close()


def commit(house: House, table_id: TableId, times: int = 1) -> None:
    for _ in range(times):
        version = house.catalog.resolve(table_id).latest + 1
        assert isinstance(house.propose(table_id, version, add()), Ratified)


def recorded(house: House, table_id: TableId) -> int:
    """The last version the catalog knows for published; -1 for none."""
    with house.database._store.read() as unit:
        row = unit.table(table_id)
    assert row is not None
    return row.published


def in_log(root: Path, table_id: TableId) -> list[int]:
    log = root / "lake" / "tables" / table_id / "_delta_log"
    return sorted(int(path.stem) for path in log.glob("*.json"))


def never(happens: Callable[[], bool], seconds: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert not happens()
        time.sleep(0.005)
