"""The background publisher survives every failure and publishes only ratified commits."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.decider import Decided
from headgate.catalog.proposer import StagedProposal
from headgate.catalog.stores.reader import ReadUnit
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.workers import FEW
from headgate.errors import (
    LogDivergedError,
    NotFoundError,
    UnavailableError,
)
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.paths import PublishedCommit
from headgate.storage.object_store import PutUnknownError
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
from tests.kit import req, shows
from tests.kit.builders import (
    add,
    inline,
    new_txn_id,
)
from tests.kit.conditions import eventually
from tests.kit.faulty_stores import Call


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return mounted_storage(tmp_path / "lake")


# In the background


@req("CM-25")
@shows("L2")
def test_what_is_committed_is_published_soon_without_anybody_asking(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publish_every_ms=NEVER) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        commit(house, table.table_id, 3)
        eventually(lambda: recorded(house, table.table_id) == 3)
        assert in_log(tmp_path, table.table_id) == [0, 1, 2, 3]
        timeline = house.database.timeline(table.table_id)
        assert all(entry.commit.is_published for entry in timeline)


@req("CM-25")
@shows("L2")
@pytest.mark.parametrize("road", ["inline, at once", "staged", "staged, by its name"])
def test_what_is_committed_is_published_soon_whatever_road_it_came(
    tmp_path: Path, storage: Storage, road: str
) -> None:
    with opened(tmp_path, publish_every_ms=NEVER) as house:
        table_id = house.create().table_id
        commit(house, table_id)  # from here on the queue takes proposals at once
        eventually(lambda: recorded(house, table_id) == 1)
        house.way = Way.INLINE if road == "inline, at once" else Way.STAGED
        proposal = house.proposal(table_id, 2, add())
        answer = Future[Any]()
        match road, proposal.parts[0].content:
            case "inline, at once", _:
                assert house.database.enqueue(proposal, answer, lambda: None)
            case "staged", _:
                answer.set_result(house.catalog.propose(proposal))
            case _, Staged() as staged:
                before = house.database.describe(table_id, Version(2))
                decided = house.database.decide(StagedProposal(before, Version(2), staged))
                answer.set_result(decided.answer)
        found = answer.result(PATIENCE)
        assert isinstance(found.answer if isinstance(found, Decided) else found, Ratified)
        eventually(lambda: recorded(house, table_id) == 2)


@shows("L2")
def test_the_tails_of_processes_that_are_gone_are_published_by_others(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False) as gone:
        table = gone.create()
        commit(gone, table.table_id, 3)
    assert in_log(tmp_path, table.table_id) == []
    with opened(tmp_path) as house:
        eventually(lambda: recorded(house, table.table_id) == 3)


@shows("L2")
def test_the_tails_of_others_are_published_also_by_a_process_that_is_always_busy(
    tmp_path: Path, storage: Storage
) -> None:
    with (
        opened(tmp_path, publisher=False) as other,
        opened(tmp_path, publish_linger_ms=1) as house,
    ):
        busy = house.create("busy")
        is_done = threading.Event()

        def wake() -> None:
            while not is_done.is_set():
                house.database._publisher.wake(busy.table_id)

        waking = threading.Thread(target=wake)
        waking.start()
        try:
            eventually(lambda: recorded(house, busy.table_id) == 0)
            left = other.create("left")
            eventually(lambda: recorded(house, left.table_id) == 0)
        finally:
            is_done.set()
            waking.join()


def test_a_table_that_gathers_much_rests_less_so_that_its_writers_need_not_wait(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False, unpublished_soft=40) as house:
        publisher, table = house.database._publisher, house.create()

        def turn() -> float:
            publisher._try(table.table_id)
            return publisher._rests_until[table.table_id] - house.clock.waited_s

        storage.after = lambda call: house.clock.sleep(is_publishing(call))  # a slow disk
        turn()
        commit(house, table.table_id, 10)
        longest = turn()
        commit(house, table.table_id, 20)
        assert turn() == longest / 2
        commit(house, table.table_id, 1)
        assert turn() == longest


def test_a_table_that_rests_is_waited_for_and_then_published(
    tmp_path: Path, storage: Storage
) -> None:
    storage.after = lambda call: house.clock.sleep(is_publishing(call))
    with opened(tmp_path, publish_every_ms=10_000) as house:
        table = house.create()
        for version in range(3):
            eventually(lambda version=version: recorded(house, table.table_id) == version)  # type: ignore[misc]
            commit(house, table.table_id)


def test_a_look_round_ends_the_rest_of_nobody_and_finds_the_tails_of_others(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False) as other, opened(tmp_path, publisher=False) as house:
        publisher, own = house.database._publisher, house.create("own")
        storage.after = lambda call: house.clock.sleep(is_publishing(call))
        publisher._try(own.table_id)
        commit(house, own.table_id)
        left = other.create("left")
        assert publisher._rested() == []
        assert publisher._left_behind() == {left.table_id}
        house.clock.sleep(10)
        assert publisher._rested() == [own.table_id]


def test_a_failure_stays_reported_while_another_publisher_has_the_turn(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        publisher = house.database._publisher
        publisher.publish(table.table_id)
        break_for(storage, table.table_id, lambda: UnavailableError("The bucket is read-only."))
        commit(house, table.table_id, 1)
        publisher._try(table.table_id)
        assert publisher.failure(table.table_id) is not None
        with monkeypatch.context() as another:
            row = publisher._row(table.table_id)
            another.setattr(publisher._tails, "take", lambda ids: ({}, {row.id: row}))
            publisher._try(table.table_id)
        assert publisher.failure(table.table_id) is not None
        [trouble] = house.database.status().troubles
        assert trouble.reason == "The bucket is read-only."
        storage.before = lambda call: None
        publisher._try(table.table_id)
        assert publisher.failure(table.table_id) is None


@shows("L2")
@pytest.mark.parametrize(
    "error",
    [
        lambda: UnavailableError("The bucket cannot be reached."),
        lambda: PutUnknownError("The answer was lost."),
        lambda: RuntimeError("a library stumbled"),
        lambda: OSError(5, "EIO"),
    ],
    ids=["unavailable", "unknown", "a stranger's", "the system's"],
)
def test_storage_that_fails_is_tried_again_and_does_not_end_the_thread(
    tmp_path: Path,
    storage: Storage,
    error: Callable[[], Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = itertools.count(1)
    with opened(tmp_path) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        reached = 0

        def fail() -> Exception:
            nonlocal reached
            reached = next(tries)
            return error()

        break_for(storage, table.table_id, fail)
        with caplog.at_level(logging.WARNING):
            commit(house, table.table_id, 2)
            eventually(lambda: reached >= 5)
        assert table.table_id in caplog.text  # and logged
        assert recorded(house, table.table_id) == 0
        assert house.database._publisher.failure(table.table_id) is not None
        storage.before = lambda call: None
        eventually(lambda: recorded(house, table.table_id) == 2)
        eventually(lambda: house.database._publisher.failure(table.table_id) is None)


def test_storage_that_stays_away_is_complained_of_once(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    def fail() -> Exception:
        nonlocal tries
        tries += 1
        return UnavailableError("The bucket cannot be reached.")

    with opened(tmp_path, publish_on_close_ms=0) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        break_for(storage, table.table_id, fail)
        with caplog.at_level(logging.WARNING):
            commit(house, table.table_id)
            eventually(lambda: tries >= 5)
        assert len([r for r in caplog.records if table.table_id in r.getMessage()]) == 1
        storage.before = lambda call: None


@req("MT-07")
@shows("FP4", "L2")
@pytest.mark.parametrize("trouble", ["failing", "diverged"])
def test_a_table_that_cannot_be_published_holds_up_no_other_and_the_cut_shows_both(
    tmp_path: Path, storage: Storage, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, publish_on_close_ms=0) as house:
        stuck, free = house.create("stuck").table_id, house.create("free").table_id
        eventually(lambda: recorded(house, stuck) == recorded(house, free) == 0)
        if trouble == "failing":
            break_for(storage, stuck, lambda: UnavailableError("Its bucket is gone."))
        else:
            path = f"tables/{stuck}/{PublishedCommit(Version(1)).path}"
            storage.inner.put_if_absent(path, b'{"commitInfo":{}}\n')
        with caplog.at_level(logging.WARNING):
            for version in range(1, 4):
                txn_id = new_txn_id()
                both = Proposal(
                    txn_id=txn_id,
                    parts=tuple(
                        Part(table_id=table_id, version=Version(version), content=inline(add()))
                        for table_id in (stuck, free)
                    ),
                )
                assert isinstance(house.catalog.propose(both), Ratified)
            eventually(lambda: recorded(house, free) == 3)
            eventually(lambda: stuck in caplog.text)
        assert recorded(house, stuck) == 0
        cut = house.database.resolve_many([stuck, free])
        assert [resolved.latest for resolved in cut] == [3, 3]
        assert [commit.version for commit in cut[0].commits] == [0, 1, 2, 3]
        storage.before = lambda call: None


def test_a_table_whose_storage_hangs_holds_up_no_other(tmp_path: Path, storage: Storage) -> None:
    is_hanging, may_go_on = threading.Event(), threading.Event()
    with opened(tmp_path, publish_on_close_ms=0) as house:
        stuck, free = house.create("stuck").table_id, house.create("free").table_id
        eventually(lambda: recorded(house, stuck) == recorded(house, free) == 0)

        def hang(call: Call) -> None:
            if is_publishing(call, stuck):
                is_hanging.set()
                assert may_go_on.wait(PATIENCE)

        storage.before = hang
        try:
            commit(house, stuck)
            assert is_hanging.wait(PATIENCE)
            commit(house, free)
            assert house.catalog.resolve(free).latest == 1
            eventually(lambda: recorded(house, free) == 1, within_s=PATIENCE / 2)
            assert recorded(house, stuck) == 0
        finally:
            storage.before = lambda call: None
            may_go_on.set()


def test_more_tables_that_hang_than_there_are_threads_hold_up_no_other(
    tmp_path: Path, storage: Storage
) -> None:
    are_hanging: set[str] = set()
    may_go_on = threading.Event()
    with opened(tmp_path, publish_on_close_ms=0) as house:
        stuck = [house.create(f"stuck{number}").table_id for number in range(2 * FEW)]
        free = house.create("free").table_id
        eventually(lambda: all(recorded(house, table_id) == 0 for table_id in (*stuck, free)))

        def hang(call: Call) -> None:
            if is_publishing(call) and not is_publishing(call, free):
                are_hanging.add(call.paths[0])
                assert may_go_on.wait(PATIENCE)

        storage.before = hang
        try:
            for table_id in stuck:
                commit(house, table_id)
            eventually(lambda: len(are_hanging) == len(stuck))
            commit(house, free)
            eventually(lambda: recorded(house, free) == 1, within_s=PATIENCE / 2)
        finally:
            storage.before = lambda call: None
            may_go_on.set()
        eventually(lambda: all(recorded(house, table_id) == 1 for table_id in stuck))


@req("MT-07")
def test_a_table_whose_storage_hangs_holds_up_nobody_who_asks_for_another(
    tmp_path: Path, storage: Storage
) -> None:
    is_hanging, may_go_on = threading.Event(), threading.Event()
    with opened(tmp_path, publish_on_close_ms=0) as house:
        stuck, free = house.create("stuck").table_id, house.create("free").table_id
        eventually(lambda: recorded(house, stuck) == recorded(house, free) == 0)

        def hang(call: Call) -> None:
            if is_publishing(call, stuck):
                is_hanging.set()
                assert may_go_on.wait(PATIENCE)

        storage.before = hang
        try:
            commit(house, stuck)
            assert is_hanging.wait(PATIENCE)
            commit(house, stuck)  # writers of the table itself go on as well
            commit(house, free, 2)
            assert house.catalog.publish(free) == 2
            assert recorded(house, stuck) == 0
        finally:
            storage.before = lambda call: None
            may_go_on.set()
        eventually(lambda: recorded(house, stuck) == 2)


@req("PB-02")
@shows("FP4")
def test_a_table_that_diverged_is_not_tried_again_and_its_alarm_is_an_error(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, publish_on_close_ms=0) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        path = f"tables/{table.table_id}/{PublishedCommit(Version(1)).path}"
        storage.inner.put_if_absent(path, b'{"commitInfo":{}}\n')
        with caplog.at_level(logging.ERROR):
            commit(house, table.table_id)
            eventually(lambda: "stopped" in caplog.text)
        before = len(storage.puts)
        commit(house, table.table_id)
        never(lambda: len(storage.puts) > before)
        alarms = [one for one in caplog.records if one.name == "headgate.catalog.publisher"]
        assert [one.levelname for one in alarms] == ["ERROR"]
        assert recorded(house, table.table_id) == 0


@req("CM-23", "CM-24")
@shows("S10", "S11")
@pytest.mark.slow
def test_publishing_while_many_commit_leaves_no_gap_and_no_other_byte(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publish_batch=7) as house:
        tables = [house.create(f"t{number}").table_id for number in range(2)]

        def append(number: int) -> None:
            for _ in range(20):
                house.propose(tables[number % 2], 1, add())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(4)))
        for table_id in tables:
            eventually(lambda table_id=table_id: recorded(house, table_id) == 40)  # type: ignore[misc]
            assert in_log(tmp_path, table_id) == list(range(41))
            for one in house.catalog.ratified_commits(table_id).commits:
                assert house.log(table_id).read_published(one.version) == one.content
            batches = storage.versions(table_id)
            assert all(batch == sorted(batch) and len(batch) <= 7 for batch in batches)


def test_a_round_reads_the_store_twice(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        commit(house, table.table_id, 3)
        look, looks = SQLiteStore.read_latest, 0

        def counted(store: SQLiteStore) -> AbstractContextManager[ReadUnit]:
            nonlocal looks
            looks += 1
            return look(store)

        with monkeypatch.context() as patch:
            patch.setattr(SQLiteStore, "read_latest", counted)
            house.database._publisher._try(table.table_id)
        assert looks == 2  # for the commits, and for the table afterwards
        assert recorded(house, table.table_id) == 3


# Tables that are gone


def test_a_dropped_table_is_left_alone_until_somebody_asks_or_undrops_it(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        break_for(storage, table.table_id, lambda: UnavailableError("Gone for now."))
        commit(house, table.table_id, 2)
        eventually(lambda: house.database._publisher.failure(table.table_id) is not None)
        house.database.drop_table(table.table_id)
        time.sleep(0.05)  # the try that was under way ends
        storage.before = lambda call: None
        never(lambda: recorded(house, table.table_id) != 0)
        house.database.undrop_table(table.table_id)
        eventually(lambda: recorded(house, table.table_id) == 2)
        assert in_log(tmp_path, table.table_id) == [0, 1, 2]


@req("CM-40")
def test_a_purged_table_is_not_published_and_leaves_no_file(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        commit(house, table.table_id, 2)
        house.database.drop_table(table.table_id)
        house.database.purge_table(table.table_id)
        with pytest.raises(NotFoundError, match="purged"):
            house.catalog.publish(table.table_id)
        with pytest.raises(NotFoundError, match="purged"):
            house.database.confirm_published(table.table_id, Version(0))
        house.database._publisher._try(table.table_id)  # as the thread would
        assert caplog.text == ""
        assert in_log(tmp_path, table.table_id) == []


@req("CM-40")
def test_a_purge_waits_for_the_publisher_that_is_at_work_on_the_table(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path, publisher=False, publish_batch=1, lease_ms=NEVER) as house:
        table = house.create()
        commit(house, table.table_id, 3)
        is_putting, may_put = threading.Event(), threading.Event()

        def hold(call: Call) -> None:
            if is_publishing(call):
                is_putting.set()
                assert may_put.wait(PATIENCE)

        storage.before = hold
        with ThreadPoolExecutor(2) as pool:
            publishing = pool.submit(house.catalog.publish, table.table_id)
            assert is_putting.wait(PATIENCE)
            house.database.drop_table(table.table_id)
            purging = pool.submit(house.database.purge_table, table.table_id)
            never(purging.done)
            may_put.set()
            assert purging.result(PATIENCE) >= 1
            with suppress(NotFoundError):  # it may have been done before the purge began
                publishing.result(PATIENCE)
        assert in_log(tmp_path, table.table_id) == []


def test_a_purge_does_not_wait_for_ever_for_a_publisher_that_died(tmp_path: Path) -> None:
    with opened(tmp_path, publisher=False, lease_ms=50) as house:
        table = house.create()
        house.database.drop_table(table.table_id)
        with house.database._store.write() as unit:
            now_ms = house.clock.ms
            unit.acquire_lease(f"publish:{table.table_id}", "another", now_ms, now_ms + 50)
        house.database.purge_table(table.table_id)
        with pytest.raises(NotFoundError, match="purged"):
            house.catalog.publish(table.table_id)


@req("PB-02")
def test_a_diverged_table_says_so_to_whoever_asks(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        path = f"tables/{table.table_id}/{PublishedCommit(Version(0)).path}"
        storage.inner.put_if_absent(path, b'{"commitInfo":{}}\n')
        for _ in range(2):
            with pytest.raises(LogDivergedError, match="headgate fsck"):
                house.catalog.publish(table.table_id)
        assert storage.versions(table.table_id) == []  # nothing is put beside it
