"""A lake whose tables lie in a bucket, and a catalog that is nothing but a bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.connecting import init
from headgate.errors import AlreadyExistsError, PathAccessError
from headgate.protocol.catalog_port import Severity
from headgate.settings import Settings
from tests.kit import req


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
