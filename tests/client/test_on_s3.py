"""A lake with tables in a bucket, and a catalog that is only a bucket."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate._connect import init
from headgate.api.messages import Ratified, Severity
from headgate.clock import SystemClock
from headgate.errors import AlreadyExistsError, PathAccessError
from headgate.protocol.actions import TxnId
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import STAGED
from headgate.settings import Settings
from headgate.storage import locations
from tests.catalog.conftest import House
from tests.kit import req
from tests.kit.builders import ManualClock, add


def rows(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64()), "day": [f"d {v % 3}/%" for v in values]})


def ids(table: headgate.Table, **at: int) -> list[int]:
    return sorted(table.to_arrow(**at).column("id").to_pylist())


@pytest.mark.parametrize("inline_limit", [0, 1 << 20], ids=["staged", "inline"])
def test_a_lake_with_its_root_in_a_bucket(tmp_path: Path, bucket: str, inline_limit: int) -> None:
    lake = tmp_path / "lake"
    init(lake, root=f"{bucket}/warehouse")
    settings = Settings(inline_limit_bytes=inline_limit)
    with headgate.connect(lake, publisher=False, settings=settings) as session:
        table = session.create_table("t", "id long, day string", partition_by=["day"])
        assert table.location.startswith(f"{bucket}/warehouse/tables/")
        table.append(rows(1, 2, 3))
        table.append(rows(4))
        table.publish()
        table.checkpoint()
        table.overwrite(rows(9))
    with headgate.connect(lake, publisher=False) as session:
        table = session.table("t")
        assert ids(table) == [9]
        assert ids(table, version=2) == [1, 2, 3, 4]
        found = session.fsck()
        assert {finding.severity for finding in found} <= {Severity.NOTE}
        published = "is ratified and published"
        staged = ["is ratified", published, published] if inline_limit == 0 else []
        assert sorted(finding.says for finding in found) == staged
        with pytest.raises(PathAccessError, match=table.id):
            headgate.open(table.location)
        session.drop("t")
        assert session.purge("t") > 0


@req("MN-02")
def test_staged_files_that_lost_or_were_left_go_from_a_bucket(tmp_path: Path, bucket: str) -> None:
    init(tmp_path / "lake", root=f"{bucket}/warehouse")
    house = House(tmp_path / "lake", Way.STAGED, ManualClock(SystemClock().now_ms()))
    table_id = house.create().table_id
    won = house.propose(table_id, 1, add(), txn_id=TxnId("won"))
    house.propose(table_id, 1, add(), txn_id=TxnId("lost"))
    house.proposal(table_id, 2, add(), txn_id=TxnId("left"))
    house.clock.ms += 2 * 24 * 3600 * 1000
    assert house.database.keep_house() == 2
    assert isinstance(won, Ratified)
    assert [item.path for item in house.log(table_id).store.list(STAGED)] == [
        f"{STAGED}/{won.commits[table_id].file_name}"
    ]
    assert house.catalog.publish(table_id) == 1
    house.close()


def test_a_purge_in_a_bucket_deletes_no_object_of_another_prefix(
    tmp_path: Path, bucket: str
) -> None:
    init(tmp_path / "lake", root=f"{bucket}/warehouse")
    house = House(tmp_path / "lake", Way.INLINE, ManualClock(SystemClock().now_ms()))
    beside = locations.store_for(f"{bucket}/warehouse")
    table = house.create()
    house.catalog.publish(table.table_id)
    folder = table.location.rpartition("/")[2]
    others = [f"tables/{folder}-2/x", f"tables/{folder}.bak", f"tables/{folder[:-1]}/x", "x"]
    for path in others:
        beside.put(path, b"kept")
    beside.put(f"tables/{folder}/_delta_log/more/x", b"deleted")
    house.catalog.drop_table(table.table_id)
    assert house.catalog.purge_table(table.table_id) > 0
    assert sorted(item.path for item in beside.list("", recursive=True)) == sorted(others)
    house.close()


@req("CM-13")
def test_a_bucket_is_a_catalog_where_the_first_put_wins(bucket: str) -> None:
    address = f"{bucket}/lake?catalog=filesystem"
    with headgate.connect(address) as session:
        table = session.create_table("t", "id long, day string")
        with pytest.raises(AlreadyExistsError):
            session.create_table("t", "id long, day string")

        def append(value: int) -> None:
            with headgate.connect(address) as mine:
                mine.table("t").append(rows(value))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(12)))
        assert ids(table) == list(range(12))
        assert table.version == 12
        session.create_namespace("sales")
        for opened in (table, session.create_table("sales.t", "id long")):
            with pytest.raises(PathAccessError, match=f"{re.escape(address)}.*{opened.name}"):
                headgate.open(opened.location)
