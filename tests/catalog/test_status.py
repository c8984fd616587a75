"""How a catalog stands, in one answer."""

from __future__ import annotations

import pytest

from headgate.api.status import Tail
from headgate.errors import LogDivergedError
from headgate.protocol.actions import Version
from headgate.protocol.paths import PublishedCommit
from headgate.storage import locations
from tests.catalog.conftest import House
from tests.kit import shows
from tests.kit.builders import START_MS, add


def test_an_empty_lake_has_nothing_to_tell(inline_lake: House) -> None:
    status = inline_lake.database.status()
    assert (status.sequence, status.tables, status.unpublished) == (0, {}, 0)
    assert (status.tails, status.troubles, status.listeners) == ((), (), ())
    assert status.publisher_lag_ms == 0
    assert status.root == locations.normalize(str(inline_lake.root))
    assert "SQLite" in status.store
    assert "schema" in status.store


def test_tails_lag_states_listeners_and_tokens_are_told(inline_lake: House) -> None:
    one, two, three = (inline_lake.create(name) for name in ("one", "two", "three"))
    for table in (one, two, three):
        inline_lake.catalog.publish(table.table_id)
    inline_lake.clock.ms = START_MS + 1_000
    inline_lake.propose(one.table_id, 1, add())
    inline_lake.clock.ms = START_MS + 2_000
    for version in (1, 2):
        inline_lake.propose(two.table_id, version, add())
    inline_lake.database.drop_table(three.table_id)
    inline_lake.database.put_listener("hook", "https://example.com/x", after=None)
    inline_lake.propose(two.table_id, 3, add())
    inline_lake.database.create_token("a")
    inline_lake.clock.ms = START_MS + 5_000
    status = inline_lake.database.status()
    assert status.tables == {"active": 2, "dropped": 1}
    assert status.unpublished == 4
    assert status.tails == (
        Tail(table_id=two.table_id, name="main.default.two", unpublished=3),
        Tail(table_id=one.table_id, name="main.default.one", unpublished=1),
    )
    assert status.publisher_lag_ms == 4_000
    assert status.sequence == 8
    [listener] = status.listeners
    assert (listener.position, listener.behind) == (7, 1)
    assert status.tokens == 1
    inline_lake.catalog.publish(one.table_id)
    assert inline_lake.database.status().publisher_lag_ms == 3_000


@shows("FP4")
def test_a_table_that_is_not_published_any_more_is_named_with_the_reason(
    inline_lake: House,
) -> None:
    table = inline_lake.create()
    inline_lake.catalog.publish(table.table_id)
    inline_lake.propose(table.table_id, 1, add())
    store = locations.store_for(table.location)
    store.put(PublishedCommit(Version(1)).path, b'{"commitInfo":{"operation":"HACK"}}\n')
    with pytest.raises(LogDivergedError):
        inline_lake.catalog.publish(table.table_id)
    [trouble] = inline_lake.database.status().troubles
    assert (trouble.table_id, trouble.name) == (table.table_id, "main.default.t")
    assert trouble.is_stopped
    assert "does not hold the rati" in trouble.reason
    assert PublishedCommit(Version(1)).path in trouble.reason
