"""A session keeps what it has read of a table: another handle of it, or its past, costs little."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import headgate
from headgate.catalog.restoration import restore
from headgate.clock import SystemClock
from headgate.errors import NotFoundError
from headgate.protocol.actions import Version
from headgate.protocol.paths import LOG, PublishedCommit
from headgate.table.snapshot import Snapshot
from tests.client.conftest import World, ids_in, rows


def log_reads(world: World, location: str) -> int:
    return world.store_for(location).count("get", "list", prefix=LOG)


def filled(world: World, commits: int = 12) -> str:
    """Create a table with so many commits that the catalog no longer holds; return its location."""
    table = world.make()
    for number in range(commits):
        table.append(rows(number))
    world.publish(table)
    return table.location


def test_a_second_handle_goes_on_from_what_the_first_one_read(world: World) -> None:
    location = filled(world)
    session = world.session()
    held = session.table("orders").snapshot()
    assert len(held.files()) == 12
    world.store_for(location).calls.clear()
    again = session.table("orders").snapshot()
    assert again is held
    assert log_reads(world, location) == 0  # by the client; a filesystem catalog has its own store


def test_the_past_is_read_once(full_world: World) -> None:
    location = filled(full_world)
    session = full_world.session()
    assert ids_in(session.table("orders").to_arrow(version=7)) == list(range(7))
    full_world.store_for(location).calls.clear()
    assert ids_in(session.table("orders").to_arrow(version=7)) == list(range(7))
    assert full_world.store_for(location).count("list") == 0
    assert log_reads(full_world, location) <= 1
    assert session.table("orders").snapshot(version=7) is session.table("orders").snapshot(7)


def test_cuts_share_what_handles_have_read(full_world: World) -> None:
    location = filled(full_world)
    session = full_world.session()
    held = session.table("orders").snapshot()
    assert len(held.files()) == 12
    full_world.store_for(location).calls.clear()
    assert session.read_cut(["orders"])["orders"] is held
    assert log_reads(full_world, location) == 0


def test_sessions_share_nothing(full_world: World) -> None:
    filled(full_world)
    one, other = full_world.session(), full_world.session()
    held: Snapshot = one.table("orders").snapshot()
    assert other.table("orders").snapshot() is not held


def test_a_table_made_again_under_the_same_name_is_another(full_world: World) -> None:
    filled(full_world)
    session = full_world.session()
    assert ids_in(session.table("orders").to_arrow()) == list(range(12))
    session.drop("orders")
    with pytest.raises(NotFoundError):
        session.table("orders")
    session.purge("orders")
    session.create_table("orders", "id long, day date").append(rows(99))
    assert ids_in(session.table("orders").to_arrow()) == [99]
    assert ids_in(session.table("orders").to_arrow(version=0)) == []


def test_an_undropped_table_is_the_one_that_was_read(full_world: World) -> None:
    location = filled(full_world)
    session = full_world.session()
    held = session.table("orders").snapshot()
    assert len(held.files()) == 12
    session.drop("orders")
    full_world.store_for(location).calls.clear()
    assert session.undrop("orders").snapshot().lazy_state is held.lazy_state
    assert log_reads(full_world, location) == 0


def test_a_renamed_table_has_its_new_name_in_every_handle(full_world: World) -> None:
    filled(full_world)
    session = full_world.session()
    assert session.table("orders").snapshot().num_files == 12
    session.rename("orders", "sold")
    assert session.table("sold").snapshot().label == "main.default.sold"
    assert session.table("sold").detail().name == "main.default.sold"


def test_commits_through_one_handle_are_seen_by_the_next(world: World) -> None:
    world.make()
    session = world.session()
    for number in range(5):
        session.table("orders").append(rows(number))
        assert ids_in(session.table("orders").to_arrow()) == list(range(number + 1))
        assert ids_in(session.table("orders").to_arrow(version=number)) == list(range(number))


def test_threads_may_share_a_session(full_world: World) -> None:
    filled(full_world)
    session = full_world.session()

    def read(number: int) -> list[int]:
        return ids_in(session.table("orders").to_arrow(version=number % 13))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(52)))
    assert found == [list(range(number % 13)) for number in range(52)]


def test_after_a_restore_of_a_backup_no_lost_commit_is_read(tmp_path: Path) -> None:
    lake, kept = tmp_path / "lake", tmp_path / "kept.db"
    with headgate.connect(lake) as session:
        session.create_table("t", "id long").append(pa.table({"id": [1]}))
        session.backup(kept)
        for number in (2, 3):
            session.table("t").append(pa.table({"id": [number]}))
            assert session.table("t").to_arrow().num_rows == number
        location, cache = session.table("t").location, session._cache
    for path in lake.glob("headgate.db*"):
        path.unlink()
    for version in (2, 3):  # not published before it happened: nothing knows of them any more
        (Path(location.removeprefix("file://")) / PublishedCommit(Version(version)).path).unlink()
    restore(kept, lake / "headgate.db", SystemClock())
    with headgate.connect(lake) as session:
        session._cache = cache
        for number in (20, 30):
            session.table("t").append(pa.table({"id": [number]}))
        for _ in range(2):
            assert ids_in(session.table("t").to_arrow()) == [1, 20, 30]
            assert ids_in(session.table("t").to_arrow(version=2)) == [1, 20]
            assert ids_in(session.table("t").to_arrow(version=1)) == [1]
