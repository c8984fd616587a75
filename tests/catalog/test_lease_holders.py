"""Leases of processes that are gone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headgate.catalog import lease_holders
from headgate.catalog.tails import lease_of
from headgate.protocol.commit.content import Way
from tests.catalog.conftest import House
from tests.kit.builders import ManualClock, add

OWN = UUID(int=7)
OTHER = f"""
from uuid import UUID
from headgate.catalog.lease_holders import name_of_this_process
print(name_of_this_process(UUID({str(OWN)!r})), flush=True)
input()
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the system has no /proc"
)


@contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and what it is called as a holder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_holder_is_gone_once_its_process_is() -> None:
    assert not lease_holders.is_gone(lease_holders.name_of_this_process(OWN))
    with another() as (process, holder):
        assert not lease_holders.is_gone(holder)
        process.kill()
        while not lease_holders.is_gone(holder):  # also before anybody asked how it ended
            pass
        process.wait()
        assert lease_holders.is_gone(holder)


def test_another_process_of_the_same_number_does_not_bring_it_back() -> None:
    mine = lease_holders.name_of_this_process(OWN)
    before, _, began = mine.rpartition(":")
    assert lease_holders.is_gone(f"{before}:{int(began) - 1}")


@pytest.mark.parametrize("holder", ["", "another", "purge", "a@b", "a@:1:2", "a@b:x:2", "@::"])
def test_nothing_is_told_of_names_of_another_kind(holder: str) -> None:
    assert not lease_holders.is_gone(holder)


def test_nothing_is_told_of_other_machines_and_containers() -> None:
    with another() as (process, holder):
        process.kill()
        process.wait()
        own, _, rest = holder.partition("@")
    boot, _, namespace = rest.partition("/")
    assert lease_holders.is_gone(f"{own}@{boot}/{namespace}")
    assert not lease_holders.is_gone(f"{own}@{boot[::-1]}/{namespace}")
    assert not lease_holders.is_gone(f"{own}@{boot}/{namespace.replace('[', '[9')}")


def test_a_dead_publishers_lease_is_taken_over_at_once(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.INLINE, ManualClock())
    try:
        table = house.create()
        house.propose(table.table_id, 1, add())
        lease, now_ms = lease_of(table.table_id), house.clock.now_ms()
        store = house.database._store

        def taken_by(holder: str) -> None:
            with store.write() as unit:
                assert unit.acquire_lease(lease, holder, now_ms, now_ms + 10**9)

        publisher = house.database._publisher
        with another() as (process, holder):
            taken_by(holder)
            publisher._try(table.table_id)
            assert publisher._published(table.table_id) < 1  # it lives
            process.kill()
            process.wait()
            publisher._try(table.table_id)
            assert publisher._published(table.table_id) == 1
        with store.read() as unit:
            assert unit.lease_holder(lease) is None
    finally:
        house.close()
