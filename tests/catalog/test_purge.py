"""Purged tables: their files go, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate import failpoints
from headgate.api.messages import Proposal, Rejected
from headgate.errors import (
    NotFoundError,
    RefusedError,
    UnsupportedByCatalogError,
)
from headgate.names import TableName
from headgate.protocol.actions import (
    Version,
)
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import PublishedCommit
from headgate.storage import locations
from tests.catalog.conftest import House, first, lay
from tests.kit import req
from tests.kit.builders import (
    add,
    new_txn_id,
)

T = TableName.parse("t")


@req("CM-40", "LC-04")
def test_a_purge_told_again_after_a_lost_answer_is_answered_and_touches_nothing(
    lake: House, tmp_path: Path
) -> None:
    place = locations.normalize(str(tmp_path / "elsewhere"))
    staging = lake.database.stage_table(place)
    lay(staging, first(staging.table_id))
    lake.database.register_table(T, staging.table_id)
    lake.catalog.drop_table(staging.table_id)
    assert lake.catalog.purge_table(staging.table_id) == 1
    assert lake.catalog.purge_table(staging.table_id) == 0
    # The place is free again, and what lies there now is another table's.
    again = lake.database.stage_table(place)
    lay(again, first(again.table_id))
    lake.database.register_table(T, again.table_id)
    assert lake.catalog.purge_table(staging.table_id) == 0
    assert lake.log(again.table_id).read_published(Version(0)) is not None
    with pytest.raises(NotFoundError, match="purged"):
        lake.catalog.resolve(staging.table_id)
    staged_for_it = lake.part(again.table_id, 1, add(), txn_id=(txn_id := new_txn_id()))
    late = replaced(staged_for_it, table_id=staging.table_id)
    refused = lake.catalog.propose(Proposal(txn_id=txn_id, parts=(late,)))
    assert isinstance(refused, Rejected)
    assert {(c.rule, c.table_id) for c in refused.conflicts} == {("R9", staging.table_id)}
    assert lake.catalog.resolve(T).latest == 0
    with pytest.raises(RefusedError, match="cannot undrop"):
        lake.catalog.undrop_table(staging.table_id)


@req("CM-40")
def test_purging_removes_the_table_and_only_the_table(house: House, tmp_path: Path) -> None:
    table, neighbour = house.create("t"), house.create("t2")  # its name begins the same
    for made in (table, neighbour):
        house.propose(made.table_id, 1, add())
        house.catalog.publish(made.table_id)
        locations.store_for(made.location).put("data.parquet", b"rows")
    with pytest.raises(RefusedError):
        house.catalog.purge_table(table.table_id)
    kept = [
        (item.path, item.size)
        for item in locations.store_for(neighbour.location).list("", recursive=True)
    ]
    house.catalog.drop_table(table.table_id)
    assert house.catalog.purge_table(table.table_id) >= 3
    assert list(locations.store_for(table.location).list("", recursive=True)) == []
    assert [
        (item.path, item.size)
        for item in locations.store_for(neighbour.location).list("", recursive=True)
    ] == kept
    with pytest.raises((RefusedError, UnsupportedByCatalogError)):
        house.catalog.undrop_table(table.table_id)


@req("CM-40")
@pytest.mark.parametrize(
    "crash", ["registry.purge_between_files:raise@2", "registry.before_forget_purged:raise"]
)
def test_a_purge_cut_short_goes_on_when_it_is_called_again(house: House, crash: str) -> None:
    table = house.create()
    house.propose(table.table_id, 1, add())
    house.catalog.publish(table.table_id)
    store = locations.store_for(table.location)
    for number in range(3):
        store.put(f"part-{number}.parquet", b"rows")
    house.catalog.drop_table(table.table_id)
    failpoints.arm(crash)
    try:
        with pytest.raises(failpoints.FailPointError):
            house.catalog.purge_table(table.table_id)
    finally:
        failpoints.arm("")
    if "between" in crash:  # what is left is recognized as a table: data goes before the log
        left = [item.path for item in store.list("", recursive=True)]
        assert sum(path.startswith("part-") for path in left) == 2
        assert PublishedCommit(Version(0)).path in left
    house.restart()
    house.catalog.purge_table(table.table_id)
    assert list(store.list("", recursive=True)) == []


@req("CM-40")
def test_a_purge_of_an_external_table_deletes_none_of_its_files(inline_lake: House) -> None:
    house = inline_lake
    location = f"file://{house.root}/theirs"
    store = locations.store_for(location)
    store.put("rows.parquet", b"of its owner")
    table_id = house.database.register_external(T, location, "parquet").table_id
    house.database.drop_table(table_id)
    assert house.database.purge_table(table_id) == 0
    assert store.get("rows.parquet") == b"of its owner"
    with pytest.raises(NotFoundError):
        house.database.resolve(T)
