"""fsck of a filesystem catalog: tables compared with their own logs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.api.messages import Finding, Severity
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.errors import NotFoundError
from headgate.names import TableName
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.storage import locations
from headgate.storage.object_store import ObjectStore
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import (
    START_MS,
    ManualClock,
    add,
    file_content,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A catalog without a database, with a table of four versions."""
    made = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = made.create()
    for version in (1, 2, 3):
        made.clock.ms += 1
        made.propose(table.table_id, version, add(f"{version}.parquet"))
    return made


def files(house: House) -> ObjectStore:
    return locations.store_for(house.catalog.resolve(TableName.parse("t")).location)


def found(house: House, table_id: TableId | None = None, *, repair: bool = False) -> list[Finding]:
    """Return what is found wrong with logs: these commits name no real data files."""
    assert isinstance(house.catalog, FilesystemCatalog)
    return [f for f in house.catalog.fsck(table_id, repair=repair) if f.rule != "data-file"]


def path(version: int) -> str:
    return PublishedCommit(Version(version)).path


def test_a_sound_catalog_has_no_findings(house: House) -> None:
    house.create("other")
    house.restart()
    assert found(house) == []


@shows("S1")
def test_a_version_that_is_missing_before_others_is_named(house: House) -> None:
    store = files(house)
    table_id = house.catalog.resolve(TableName.parse("t")).table_id
    gone = store.get(path(2))
    store.delete(path(2))
    house.restart()
    for of in (None, table_id):
        [finding] = found(house, of)
        assert (finding.rule, finding.version, finding.path) == ("S1", 2, path(2))
        assert finding.severity is Severity.ERROR
        assert "backup" in finding.remedy
    store.put(path(2), gone)
    house.restart()
    assert found(house) == []


@shows("S1", "FI2")
def test_a_version_far_above_is_found_as_fast_as_another(house: House) -> None:
    files(house).put(path(2**63 - 1), b"{}\n")
    assert [(f.rule, f.version) for f in found(house)] == [("S1", 4), ("S20", 2**63 - 1)]


LATER = START_MS + 10**6


@shows("S3", "S19", "S20", "FI3", "FI4")
@pytest.mark.parametrize(
    ("rule", "content"),
    [
        ("S20", b'{"commitInfo":'),
        ("S20", b'{"commitInfo":{"operation":"WRITE"}}\n'),
        ("S20", file_content(protocol(), txn_id=new_txn_id(), timestamp_ms=LATER)[:-1]),
        ("S20", b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'),
        ("S19", file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS)),
        (
            "S25",
            file_content(metadata(new_table_id()), txn_id=new_txn_id(), timestamp_ms=LATER),
        ),
    ],
    ids=["torn", "no txnId", "no end", "plain", "earlier", "another table's"],
)
def test_a_version_that_cannot_stand_where_it_is_is_named(
    house: House, rule: str, content: bytes
) -> None:
    files(house).put(path(4), content)
    assert rule in {f.rule for f in found(house) if f.version == 4}
    assert {f.version for f in found(house)} <= {4, None}


@shows("S3")
def test_a_transaction_that_stands_in_two_versions_is_named(house: House) -> None:
    first = json.loads(files(house).get(path(1)).splitlines()[0])["commitInfo"]["txnId"]
    files(house).put(path(4), file_content(add("x"), txn_id=first, timestamp_ms=LATER))
    [finding] = found(house)
    assert (finding.rule, finding.version) == ("S3", 4)
    assert "version 1" in finding.says


@shows("S14")
def test_a_checkpoint_of_a_version_that_is_not_there_and_strays_are_named(house: House) -> None:
    files(house).put(f"{LOG}/{9:020d}.checkpoint.parquet", b"PAR1")
    files(house).put(f"{LOG}/notes.txt", b"")
    assert {(f.rule, f.severity) for f in found(house)} == {
        ("S14", Severity.WARNING),
        ("stray", Severity.NOTE),
    }


@req("CM-40")
def test_a_dropped_table_is_noted_and_a_purge_cut_short_is_ended(house: House) -> None:
    table_id = house.catalog.resolve(TableName.parse("t")).table_id
    store = files(house)
    house.catalog.drop_table(table_id)
    for repair in (False, True):
        [finding] = found(house, repair=repair)
        assert (finding.rule, finding.severity) == ("CM-40", Severity.NOTE)
        assert "purge" in finding.remedy
    store.delete(path(0))  # as after a purge that was killed
    [finding] = found(house)
    assert (finding.severity, finding.repaired) == (Severity.WARNING, False)
    [finding] = found(house, repair=True)
    assert finding.repaired
    assert list(store.list("", recursive=True)) == []
    assert found(house) == []
    with pytest.raises(NotFoundError):
        house.catalog.purge_table(table_id)


def test_a_purge_removes_a_link_in_the_place_of_the_table_and_nothing_behind_it(
    house: House,
) -> None:
    table_id = house.catalog.resolve(TableName.parse("t")).table_id
    house.catalog.drop_table(table_id)
    folder = house.root / "main" / "default" / "t"
    mine = folder.with_name("mine")
    mine.mkdir()
    (mine / "x").write_bytes(b"mine")
    folder.rename(folder.with_name("aside"))
    folder.symlink_to("mine")
    assert house.catalog.purge_table(table_id) == 0
    assert not folder.is_symlink()
    assert (mine / "x").read_bytes() == b"mine"
    with pytest.raises(NotFoundError):
        house.catalog.purge_table(table_id)


def test_a_tombstone_that_names_nothing_is_told_and_breaks_nothing_else(house: House) -> None:
    house.create("other")
    (house.root / "main" / "default" / "t.dropped").write_bytes(b"{")
    [finding] = found(house)
    assert (finding.severity, finding.path) == (Severity.ERROR, "main/default/t.dropped")
    assert [entry.name for entry in house.catalog.tables()] == ["main.default.other"]


def test_a_directory_that_is_no_table_is_told(house: House) -> None:
    stray = house.root / "main" / "default" / "stray"
    stray.mkdir()
    assert found(house) == []
    (stray / "part.parquet").write_bytes(b"rows")
    [finding] = found(house)
    assert (finding.rule, finding.table) == ("LC-01", "main.default.stray")


def test_data_files_that_went_or_changed_are_named_and_logs_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    address = f"file://{tmp_path}/lake?catalog=filesystem"
    with headgate.connect(address) as session:
        table = session.create_table("t", "id long")
        for value in range(3):
            table.append(pa.table({"id": pa.array([value], pa.int64())}))
        assert session.fsck() == ()
        place = Path(table.location.removeprefix("file://"))
        first, second, _ = sorted(place.glob("*.parquet"))
        first.unlink()
        second.write_bytes(b"PAR1")
        assert {(f.rule, f.path) for f in session.fsck("t")} == {
            ("data-file", first.name),
            ("data-file", second.name),
        }
        (place / path(2)).write_bytes(b"{\n")
        assert {f.rule for f in session.fsck()} == {"S20", "RD-06"}
