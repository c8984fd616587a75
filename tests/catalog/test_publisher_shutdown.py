"""Two publishers on one lake, and publishers that close."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.catalog.tails import lease_of
from headgate.errors import (
    UnavailableError,
)
from headgate.protocol.actions import Version
from tests.catalog.publisher_lake import (
    NEVER,
    PATIENCE,
    Storage,
    break_for,
    commit,
    in_log,
    is_publishing,
    mounted_storage,
    never,
    opened,
    recorded,
)
from tests.kit import shows
from tests.kit.conditions import eventually
from tests.kit.faulty_stores import Call


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return mounted_storage(tmp_path / "lake")


# Two publishers


@shows("FP3")
def test_a_table_another_publisher_works_on_is_left_to_it_until_its_lease_lapses(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        lease, now_ms = f"publish:{table.table_id}", house.clock.ms

        def take() -> bool:
            with house.database._store.write() as unit:
                return unit.acquire_lease(
                    lease, "another", now_ms, now_ms + house.settings.lease_ms
                )

        eventually(take)  # once our own publisher has given it back
        commit(house, table.table_id)
        never(lambda: recorded(house, table.table_id) == 1)
        house.clock.ms += house.settings.lease_ms - 1
        never(lambda: recorded(house, table.table_id) == 1)
        house.clock.ms += 1
        eventually(lambda: recorded(house, table.table_id) == 1)


@shows("FP3")
def test_whoever_asks_for_publishing_waits_for_the_other_publisher_and_is_then_done(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.catalog.tails._STALLED_S", NEVER)
    with (
        opened(tmp_path, publisher=False, lease_ms=NEVER) as one,
        opened(tmp_path, publisher=False, lease_ms=NEVER) as two,
    ):
        table = one.create()
        commit(one, table.table_id, 3)
        is_putting, may_put = threading.Event(), threading.Event()

        def hold(call: Call) -> None:
            if is_publishing(call):
                storage.before = lambda call: None
                is_putting.set()
                assert may_put.wait(PATIENCE)

        storage.before = hold
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(one.catalog.publish, table.table_id)
            assert is_putting.wait(PATIENCE)
            second = pool.submit(two.catalog.publish, table.table_id)
            never(second.done)
            may_put.set()
            assert first.result(PATIENCE) == second.result(PATIENCE) == 3
        assert storage.versions(table.table_id) == [[0, 1, 2, 3]]  # nothing was put twice


def test_the_lease_of_a_publisher_that_died_is_passed_over_when_nothing_moves(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, publisher=False, lease_ms=NEVER) as house:
        table = house.create()
        commit(house, table.table_id, 3)
        clock = house.clock
        take = house.database._ratifier.submit(
            "lease",
            lambda unit: unit.acquire_lease(
                lease_of(table.table_id), "died", clock.now_ms(), clock.now_ms() + NEVER
            ),
        )
        assert take.result()
        before = clock.monotonic()
        assert house.catalog.publish(table.table_id) == 3
        assert 2 < clock.monotonic() - before < 10


@shows("FP3")
def test_a_publisher_so_slow_that_its_lease_lapsed_does_no_harm(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False) as one, opened(tmp_path, publisher=False) as two:
        table = one.create()
        commit(one, table.table_id, 3)
        contents = [c.content for c in one.catalog.ratified_commits(table.table_id).commits]
        is_putting, may_put = threading.Event(), threading.Event()

        def hold(call: Call) -> None:
            if is_publishing(call):
                storage.before = lambda call: None
                is_putting.set()
                assert may_put.wait(PATIENCE)

        storage.before = hold
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(one.catalog.publish, table.table_id)
            assert is_putting.wait(PATIENCE)
            two.clock.ms += two.settings.lease_ms
            assert two.catalog.publish(table.table_id) == 3
            commit(two, table.table_id)
            assert two.catalog.publish(table.table_id) == 4
            may_put.set()
            assert slow.result(PATIENCE) == 4
        assert recorded(one, table.table_id) == 4  # what was recorded later is not taken back
        log = one.log(table.table_id)
        assert [log.read_published(Version(v)) for v in range(4)] == contents


@shows("FP3", "L2")
def test_two_processes_with_publishers_share_their_tables(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        tables = [one.create("t").table_id, two.create("u").table_id]
        for house, table_id in itertools.product((one, two), tables):
            commit(house, table_id, 5)
        for table_id in tables:
            eventually(lambda table_id=table_id: recorded(one, table_id) == 10)  # type: ignore[misc]
            assert in_log(tmp_path, table_id) == list(range(11))


# Closing


def test_closing_publishes_the_tails_of_ones_own_tables_and_of_no_others(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False) as other:
        theirs = other.create("theirs")
    with opened(tmp_path, publish_every_ms=NEVER) as house:
        ours = house.create("ours")
        eventually(lambda: recorded(house, ours.table_id) == 0)
        is_failing = threading.Event()

        def fail() -> Exception:
            is_failing.set()
            return UnavailableError("The bucket cannot be reached.")

        break_for(storage, ours.table_id, fail)
        commit(house, ours.table_id, 2)
        assert is_failing.wait(PATIENCE)
        storage.before = lambda call: None
    assert in_log(tmp_path, ours.table_id) == [0, 1, 2]
    assert in_log(tmp_path, theirs.table_id) == []


@pytest.mark.parametrize("when", ["before", "during"])
def test_closing_takes_no_longer_than_it_may_however_long_the_tail(
    tmp_path: Path, storage: Storage, when: str
) -> None:
    """The thread may be in the middle of a long tail, or about to begin it."""
    is_putting, may_put = threading.Event(), threading.Event()
    with opened(tmp_path, publisher=False) as writer:
        table = writer.create()
        commit(writer, table.table_id, 40)
    every = 1 if when == "during" else NEVER
    with opened(tmp_path, publish_batch=1, publish_every_ms=every) as house:

        def slow(call: Call) -> None:
            if is_publishing(call):
                is_putting.set()
                assert may_put.wait(PATIENCE)
                house.clock.sleep(0.9)

        storage.before = slow
        if when == "during":
            assert is_putting.wait(PATIENCE)
        else:
            house.database._publisher._touched.add(table.table_id)
        closing = threading.Thread(target=house.close)
        closing.start()
        eventually(lambda: house.database._publisher._is_stopping)
        may_put.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
    # Two seconds, and the put that was under way when they had passed.
    assert 1 <= len(in_log(tmp_path, table.table_id)) <= 4


def test_closing_with_no_time_given_publishes_nothing_and_loses_nothing(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publish_every_ms=NEVER, publish_on_close_ms=0) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        break_for(storage, table.table_id, lambda: UnavailableError("Gone."))
        commit(house, table.table_id, 2)
    storage.before = lambda call: None
    assert in_log(tmp_path, table.table_id) == [0]
    with opened(tmp_path) as house:
        eventually(lambda: recorded(house, table.table_id) == 2)


def test_closing_while_storage_fails_ends_and_closing_again_is_fine(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, publish_every_ms=NEVER) as house:
        table = house.create()
        break_for(storage, table.table_id, lambda: RuntimeError("a library stumbled"))
        commit(house, table.table_id)
        house.close()
        caplog.clear()
        house.close()
        assert caplog.text == ""
    storage.before = lambda call: None


@shows("L1")
@pytest.mark.slow
def test_closing_does_not_wait_for_storage_that_hangs_and_what_it_put_is_found_later(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    is_hanging, may_go_on = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        if is_publishing(call):
            is_hanging.set()
            assert may_go_on.wait(PATIENCE)

    with opened(tmp_path, publish_on_close_ms=10) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        storage.before = hang
        commit(house, table.table_id, 2)
        assert is_hanging.wait(PATIENCE)
        [thread] = house.database._publisher._workers._threads
        closing = threading.Thread(target=house.close)
        closing.start()
        closing.join(PATIENCE / 2)
        assert not closing.is_alive()
        assert "does not answer" in caplog.text
    storage.before = lambda call: None
    may_go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with opened(tmp_path) as house:
        house.clock.ms += house.settings.lease_ms  # the lease was never released
        eventually(lambda: recorded(house, table.table_id) == 2)


def test_closing_publishes_the_tails_of_other_tables_while_one_hangs(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    is_hanging, may_go_on = threading.Event(), threading.Event()
    with opened(tmp_path, publish_every_ms=NEVER, publish_on_close_ms=100) as house:
        stuck, free = house.create("stuck").table_id, house.create("free").table_id
        eventually(lambda: recorded(house, stuck) == recorded(house, free) == 0)
        break_for(storage, free, lambda: UnavailableError("Gone for now."))
        commit(house, free)
        eventually(lambda: house.database._publisher.failure(free) is not None)

        def hang(call: Call) -> None:
            if is_publishing(call, stuck):
                is_hanging.set()
                assert may_go_on.wait(PATIENCE)

        storage.before = hang
        commit(house, stuck)
        assert is_hanging.wait(PATIENCE)
        [thread] = house.database._publisher._workers._threads
        house.close()
        assert "does not answer" in caplog.text
        assert in_log(tmp_path, free) == [0, 1]
        assert in_log(tmp_path, stuck) == [0]
    storage.before = lambda call: None
    may_go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_forked_child_closes_at_once_and_leaves_the_publishing_to_its_parent(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publish_every_ms=NEVER) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        child = os.fork()
        if child == 0:
            house.database._publisher.close()
            os._exit(len(house.database._publisher._failing))  # nothing was tried
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        commit(house, table.table_id)
        eventually(lambda: recorded(house, table.table_id) == 1)
