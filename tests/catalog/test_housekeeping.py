"""What a catalog gives up by itself, and that one of several does it."""

from __future__ import annotations

from tests.catalog.conftest import House

DAY_MS = 24 * 3600 * 1000


def test_places_that_were_staged_and_never_registered_are_given_up(inline_lake: House) -> None:
    catalog = inline_lake.database
    staged = catalog.stage_table()
    inline_lake.clock.ms += DAY_MS - 1
    assert catalog.keep_house() == 0
    inline_lake.clock.ms += 3600 * 1000  # the lease for keeping house has lapsed as well
    fresh = catalog.stage_table()
    assert catalog.keep_house() == 1
    with catalog._store.read() as unit:
        states = {id: unit.table(id).state.value for id in (staged.table_id, fresh.table_id)}
    assert states == {staged.table_id: "purged", fresh.table_id: "staging"}


def test_another_that_keeps_house_already_is_not_helped(inline_lake: House) -> None:
    catalog = inline_lake.database
    catalog.stage_table()
    inline_lake.clock.ms += 2 * DAY_MS
    now_ms = inline_lake.clock.ms
    taken = catalog._ratifier.submit(
        "lease", lambda unit: unit.take_lease("housekeeping", "another", now_ms, now_ms + 1000)
    )
    assert taken.result()
    assert catalog.keep_house() == 0
    inline_lake.clock.ms += 1000
    assert catalog.keep_house() == 1
