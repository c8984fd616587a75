"""What every catalog store does, whichever database it uses: one contract, by subject."""

from __future__ import annotations

import pytest

from headgate.catalog.stores.port import CatalogStore
from tests.catalog.store_contract.batches import BatchContract
from tests.catalog.store_contract.commits import CommitContract
from tests.catalog.store_contract.events import EventContract
from tests.catalog.store_contract.model import ModelContract
from tests.catalog.store_contract.rows import OpenStore
from tests.catalog.store_contract.server import ServerContract
from tests.catalog.store_contract.tables import TableContract
from tests.catalog.store_contract.units import UnitContract


class StoreContract(
    UnitContract,
    TableContract,
    CommitContract,
    BatchContract,
    EventContract,
    ServerContract,
    ModelContract,
):
    """Subclasses give a fixture `open_store`: the same name opens the same rows, at first none."""

    @pytest.fixture
    def store(self, open_store: OpenStore) -> CatalogStore:
        return open_store("one")
