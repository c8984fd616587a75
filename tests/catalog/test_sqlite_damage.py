"""A database that is deleted, replaced or damaged under a process that uses it is noticed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pyarrow as pa
import pytest

import headgate
from headgate.catalog.stores.rows import CatalogClock, InDoubtError
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.clock import SystemClock
from headgate.errors import DamagedError
from headgate.protocol.actions import Sequence, TxnId, Version
from tests.catalog.store_contract.batches import epoch, ratifying
from tests.catalog.store_contract.rows import commit_row, found, insert, insert_commits
from tests.kit import req


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake" / "headgate.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(str(path), SystemClock())
    insert(made, 1)
    yield made
    made.close()


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def delete(path: Path) -> None:
    path.unlink()


def delete_log(path: Path) -> None:
    beside(path, "-wal").unlink()


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(path, suffix).unlink()


def rename_over(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


REPLACED = [delete, delete_log, delete_all, rename_over, move_folder]


@pytest.mark.parametrize("damage", REPLACED)
def test_a_deleted_or_replaced_database_accepts_no_further_change(
    store: SQLiteStore, path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path)
    with pytest.raises(DamagedError, match=r"was (deleted|replaced).*restore"):
        insert(store, 2)
    with pytest.raises(DamagedError):
        found(store)
    assert store.check_integrity() != []


@pytest.mark.parametrize("damage", REPLACED)
def test_a_commit_to_a_deleted_file_is_in_doubt(
    store: SQLiteStore, path: Path, damage: Callable[[Path], None]
) -> None:
    def commit() -> None:
        with store.write() as unit:
            unit.advance_clock(CatalogClock(Sequence(1), 1), None)
            damage(path)

    with pytest.raises(InDoubtError) as doubt:
        commit()
    assert doubt.value.is_store_usable  # the store refuses what comes next by itself
    with pytest.raises(DamagedError):
        insert(store, 2)


@pytest.mark.parametrize("damage", REPLACED)
def test_a_batch_to_a_deleted_file_is_in_doubt_and_the_next_one_is_refused(
    store: SQLiteStore, path: Path, damage: Callable[[Path], None]
) -> None:
    row, before = found(store), epoch(store)

    def damage_before_commit(_: object, sql: str, __: object) -> bool:
        if sql == "COMMIT":
            damage(path)
        return True

    store._writer.exec_trace = damage_before_commit
    with pytest.raises(InDoubtError) as doubt:
        store.write_batch(before, ratifying(row, 0, 1))
    assert doubt.value.is_store_usable  # the store refuses what comes next by itself
    with pytest.raises(DamagedError):
        store.write_batch(before, ratifying(row, 0, 1))


def test_a_database_put_back_after_its_loss_was_noticed_is_still_refused(
    store: SQLiteStore, path: Path
) -> None:
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(DamagedError):
        insert(store, 2)
    path.with_suffix(".moved").rename(path)
    with pytest.raises(DamagedError):
        insert(store, 2)


def test_the_working_directory_may_change_under_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("headgate.db", SystemClock())
    monkeypatch.chdir(os.sep)
    insert(store, 1)
    assert store.check_integrity() == []
    store.close()


def large(store: SQLiteStore) -> None:
    [row] = insert(store, 7)
    insert_commits(store, row, *(commit_row(v, content=b"x" * 3000) for v in range(200)))
    store._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    insert(store, 8)  # the WAL starts over, so pages are read from the file


def test_a_truncated_database_accepts_no_further_change(store: SQLiteStore, path: Path) -> None:
    large(store)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedError):
        insert(store, 9)
    with pytest.raises(DamagedError):
        found(store)


def test_an_emptied_database_is_damaged_and_its_log_is_kept(store: SQLiteStore, path: Path) -> None:
    os.truncate(path, 0)
    log = beside(path, "-wal").read_bytes()
    with pytest.raises(DamagedError, match="truncated"):
        insert(store, 9)
    with pytest.raises(DamagedError):
        found(store)
    assert store.check_integrity() != []
    assert beside(path, "-wal").read_bytes() == log  # the only copy of the latest commits


@pytest.mark.parametrize(
    "change", ["DROP TABLE commits", "ALTER TABLE tables RENAME COLUMN head TO x"]
)
def test_a_schema_that_another_program_changed_is_damage(
    store: SQLiteStore, path: Path, change: str
) -> None:
    [row] = insert(store, 2)
    other = apsw.Connection(str(path))
    other.execute("PRAGMA foreign_keys = OFF")
    for [name] in other.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        other.execute(f"DROP TRIGGER {name}")
    other.execute(change)
    other.close()
    with pytest.raises(DamagedError, match="no such"):
        insert_commits(store, row, commit_row(0))
    with pytest.raises(DamagedError):
        found(store)


def test_an_emptied_log_is_damage(store: SQLiteStore, path: Path) -> None:
    os.truncate(beside(path, "-wal"), 0)
    store._pool._idle[:] = [store._connect(apsw.SQLITE_OPEN_READWRITE)]  # with no page in memory
    with pytest.raises(DamagedError):
        found(store)
    with pytest.raises(DamagedError):
        insert(store, 9)


def test_a_database_of_another_program_written_over_this_one_is_damage(
    store: SQLiteStore, path: Path
) -> None:
    foreign = path.with_suffix(".foreign")
    other = apsw.Connection(str(foreign))
    other.execute("CREATE TABLE something (x)")
    other.close()
    store._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    path.write_bytes(foreign.read_bytes())
    assert store.check_integrity() != []
    with pytest.raises(DamagedError):
        insert(store, 9)


def test_a_vacuum_by_another_program_is_not_damage(store: SQLiteStore, path: Path) -> None:
    large(store)
    other = apsw.Connection(str(path))
    other.execute("DELETE FROM commits WHERE version > 1")
    before = path.stat().st_size
    other.execute("VACUUM")
    other.wal_checkpoint()
    other.close()
    insert(store, 9)
    store._writer.wal_checkpoint()
    assert path.stat().st_size < before
    insert(store, 10)
    assert store.check_integrity() == []


def test_overwritten_pages_are_found_and_all_use_is_refused(store: SQLiteStore, path: Path) -> None:
    large(store)
    assert store.check_integrity() == []
    with path.open("r+b") as file:  # another process: its locks are not ours
        file.seek(4096 * 3)
        file.write(b"\xa5" * 4096 * 40)
    assert store.check_integrity() != []
    with pytest.raises(DamagedError, match="damaged"):
        insert(store, 9)
    with pytest.raises(DamagedError):
        found(store)


def test_an_older_copy_written_over_the_database_is_found(store: SQLiteStore, path: Path) -> None:
    copy = path.with_suffix(".copy")
    store.backup(copy)
    [row] = insert(store, 2)
    with store.write() as unit:
        unit.insert_commit(row.key, commit_row(0, 1))
        unit.update_table(row._replace(head=Version(0)))
        unit.advance_clock(CatalogClock(Sequence(5), 5), TxnId("one"))
    store._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    path.write_bytes(copy.read_bytes())
    assert store.check_integrity() != []
    with pytest.raises(DamagedError):
        insert(store, 3)


def test_damage_found_within_a_savepoint_ends_the_whole_unit(
    store: SQLiteStore, path: Path
) -> None:
    def meet_damage() -> None:
        with store.write() as unit:
            unit.set_setting("before", "1")
            with suppress(DamagedError), unit.savepoint():
                raise apsw.CorruptError("malformed")

    with pytest.raises(DamagedError):
        meet_damage()
    with pytest.raises(DamagedError):
        found(store)
    with SQLiteStore(str(path), SystemClock()).read() as other:
        assert other.setting("before") is None


def test_a_damaged_database_is_not_copied_as_a_backup(store: SQLiteStore, path: Path) -> None:
    large(store)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xa5" * 4096 * 40)
    target = path.with_suffix(".backup")
    with pytest.raises(DamagedError):
        store.backup(target)
    assert not target.exists()


@req("CM-12")
def test_an_embedded_session_acknowledges_nothing_into_a_deleted_database(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "value long")
        table.append(pa.table({"value": [1]}))
        delete_all(tmp_path / "lake" / "headgate.db")
        with pytest.raises(DamagedError, match=r"deleted.*headgate restore"):
            table.append(pa.table({"value": [2]}))
        with pytest.raises(DamagedError):
            session.tables()
