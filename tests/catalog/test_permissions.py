"""Who may read the files that a catalog makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate._connect import init
from headgate.catalog import restoration
from headgate.clock import SystemClock

BESIDE = ("headgate.db", "headgate.db-wal", "headgate.db-shm")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Let everybody read what is made, as most systems do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_the_database_is_its_owners_alone(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "new" / "lake") as session:
        session.create_table("t", "id long")
        assert {mode(tmp_path / "new" / "lake" / name) for name in BESIDE} == {"0o600"}
        assert mode(tmp_path / "new" / "lake") == "0o700"
        assert mode(tmp_path / "new") == "0o755"


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir(mode=0o755)
    init(tmp_path / "lake")
    assert mode(tmp_path / "lake") == "0o755"
    assert mode(tmp_path / "lake" / "headgate.db") == "0o600"


def test_tables_outside_of_the_private_folder_can_be_reached_by_everyone(tmp_path: Path) -> None:
    init(tmp_path / "lake", root=str(tmp_path / "shared" / "tables"))
    with headgate.connect(tmp_path / "lake") as session:
        table = session.create_table("t", "id long")
        table.append(pa.table({"id": [1]}))
        table.publish()
    assert mode(tmp_path / "lake") == "0o700"
    shared = [tmp_path / "shared", *(tmp_path / "shared").rglob("*")]
    assert {mode(path) for path in shared if path.is_dir()} == {"0o755"}
    assert {mode(path) for path in shared if path.is_file()} == {"0o644"}
    assert len([path for path in shared if path.suffix == ".parquet"]) == 1


def test_a_database_under_a_name_of_its_own_is_its_owners_alone(tmp_path: Path) -> None:
    init(f"sqlite://{tmp_path}/folder/catalog.db")
    assert mode(tmp_path / "folder") == "0o700"
    assert mode(tmp_path / "folder" / "catalog.db") == "0o600"


def test_a_backup_and_what_is_restored_from_it_are_their_owners_alone(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake") as session:
        session.backup(tmp_path / "backup.db")
    assert mode(tmp_path / "backup.db") == "0o600"
    (tmp_path / "backup.db").chmod(0o644)
    restored = tmp_path / "restored" / "headgate.db"
    restoration.restore(tmp_path / "backup.db", restored, SystemClock())
    assert mode(restored) == "0o600"
    assert mode(restored.parent) == "0o700"


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750)]
)
def test_files_of_tables_follow_the_umask(
    tmp_path: Path, umask: int, file: int, folder: int
) -> None:
    os.umask(umask)
    with headgate.connect(tmp_path / "lake") as session:
        table = session.create_table("t", "id long")
        table.append(pa.table({"id": [1]}))
        table.publish()
    found = list((tmp_path / "lake" / "tables").rglob("*"))
    assert {mode(path) for path in found if path.is_file()} == {oct(file)}
    assert {mode(path) for path in found if path.is_dir()} == {oct(folder)}
    assert {path.suffix for path in found if path.is_file()} >= {".json", ".parquet"}
