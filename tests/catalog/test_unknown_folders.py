"""Folders that belong to no table of the catalog are found, and left alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import headgate
from headgate.api.messages import Finding, Severity
from headgate.names import SchemaName
from headgate.protocol.actions import TableId
from headgate.protocol.commit.content import Way
from headgate.storage import locations
from tests.catalog.conftest import House
from tests.kit.builders import START_MS, ManualClock, new_table_id

HOUR_MS = 3_600_000


def unknown(house: House, *, repair: bool = False) -> list[Finding]:
    return [f for f in house.catalog.fsck(repair=repair) if f.rule == "unknown-folder"]


def age(folder: Path, ms: int = 2 * HOUR_MS) -> None:
    """Make all files below a folder as old as given, by the clock of the tests."""
    at = (START_MS - ms) / 1000
    for path in folder.rglob("*"):
        os.utime(path, (at, at))


def folder_of(house: House, table_id: TableId) -> Path:
    found = locations.store_for(house.catalog.resolve(table_id).location).local_path("x")
    assert found is not None
    return Path(found).parent


def test_a_folder_of_no_table_is_reported_once_it_is_not_fresh_and_never_deleted(
    lake: House,
) -> None:
    table_id = lake.create().table_id
    lake.catalog.publish(table_id)
    folder = folder_of(lake, table_id).with_name(new_table_id())
    shutil.copytree(folder_of(lake, table_id), folder)
    age(folder, HOUR_MS // 2)
    assert unknown(lake) == []  # its table may still be being created
    age(folder)
    for repair in (False, True):
        [finding] = unknown(lake, repair=repair)
        assert (finding.severity, finding.table, finding.repaired) == (
            Severity.WARNING,
            locations.normalize(str(folder)),
            False,
        )
        assert "Move it" in finding.remedy
    assert list(folder.rglob("*.json"))


def test_folders_of_staged_dropped_and_purged_tables_are_known(lake: House) -> None:
    dropped, purged = lake.create("dropped").table_id, lake.create("purged").table_id
    folders = [folder_of(lake, table_id) for table_id in (dropped, purged)]
    for table_id in (dropped, purged):
        lake.catalog.publish(table_id)
        lake.catalog.drop_table(table_id)
    lake.catalog.purge_table(purged)
    staged = lake.database.stage_table()
    late = [folders[1], folders[0].with_name(staged.table_id)]
    for folder in late:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "late.parquet").write_bytes(b"late")
    age(lake.root)
    assert unknown(lake) == []


def test_an_empty_folder_and_a_file_among_the_tables_are_no_finding(inline_lake: House) -> None:
    inline_lake.create()
    tables = inline_lake.root / "tables"
    (tables / "empty" / "deep").mkdir(parents=True)
    (tables / "notes.txt").write_text("mine")
    age(tables)
    assert unknown(inline_lake) == []


def test_the_locations_of_schemas_are_searched_too(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        session.create_namespace("sales", storage_root=str(tmp_path / "lake" / "sales"))
        table = session.create_table("sales.orders", "id long")
        table.publish()
        folder = Path(table.location.removeprefix("file://"))
        shutil.copytree(folder, folder.with_name("copy of it"))
        for path in (tmp_path / "lake").rglob("*.json"):
            os.utime(path, (0, 0))
        [finding] = session.fsck()
    assert finding.rule == "unknown-folder"
    assert finding.table == f"{table.location.rpartition('/')[0]}/copy%20of%20it"


def test_a_location_that_cannot_be_listed_is_reported_and_the_others_are_searched(
    tmp_path: Path,
) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        session.create_namespace("sales", storage_root=str(tmp_path / "lake" / "sales"))
        own = Path(session.create_table("sales.orders", "id long").location[len("file://") :])
        (tmp_path / "elsewhere").mkdir()
        own.parent.mkdir(parents=True, exist_ok=True)
        own.parent.rename(tmp_path / "aside")
        own.parent.symlink_to(tmp_path / "elsewhere")
        stranger = tmp_path / "lake" / "tables" / "stranger"
        stranger.mkdir(parents=True)
        (stranger / "x").write_bytes(b"")
        os.utime(stranger / "x", (0, 0))
        found = [finding for finding in session.fsck() if finding.rule == "unknown-folder"]
    assert {(finding.table, "cannot be listed" in finding.says) for finding in found} == {
        (locations.normalize(str(own.parent)), True),
        (locations.normalize(str(stranger)), False),
    }


def test_folders_are_searched_for_when_the_whole_catalog_is_checked(lake: House) -> None:
    table_id = lake.create().table_id
    lake.catalog.publish(table_id)
    folder = folder_of(lake, table_id).with_name(new_table_id())
    shutil.copytree(folder_of(lake, table_id), folder)
    age(folder)
    assert [f for f in lake.database.fsck(table_id) if f.rule == "unknown-folder"] == []
    assert len(unknown(lake)) == 1


def test_a_table_in_a_folder_that_is_no_namespace_is_reported_by_a_filesystem_catalog(
    tmp_path: Path,
) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    house.catalog.create_namespace(SchemaName("main", "sales"))
    house.create("sales.orders")
    age(house.root)
    assert unknown(house) == []
    [marker] = (house.root / "main" / "sales").glob("*.json")
    marker.unlink()
    [finding] = unknown(house, repair=True)
    assert finding.table.endswith("/main/sales/orders")
    assert finding.severity is Severity.WARNING
    assert "create-namespace main.sales" in finding.remedy
    assert list((house.root / "main" / "sales").rglob("*.json"))
