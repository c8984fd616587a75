"""The publisher in the background goes on whatever fails, and publishes nothing but the truth."""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from headgate import failpoints
from headgate._connect import embedded_catalog
from headgate.api.messages import Answer, Part, Proposal, Ratified
from headgate.catalog.publisher import lease_of
from headgate.catalog.service import Catalog
from headgate.catalog.stores.port import ReadUnit
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.catalog.workers import FEW
from headgate.clock import SystemClock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    LogDivergedError,
    NotFoundError,
    UnavailableError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import PublishedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.local import LocalStore
from headgate.storage.object_store import PutUnknownError
from headgate.table.log_files import DeltaLog
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import (
    CountedIds,
    ManualClock,
    add,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)
from tests.kit.conditions import eventually
from tests.kit.faulty_stores import Call, ForgetfulDisk, WrappedStore

T = TypeVar("T")
PATIENCE = 20  # seconds until a test says that something never happens
NEVER = 3_600_000


class Storage(WrappedStore):
    """Storage that a test can look into, slow down and break."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.puts: list[tuple[str, ...]] = []
        self.before: Callable[[Call], None] = lambda call: None
        self.after: Callable[[Call], None] = lambda call: None

    def around(self, call: Call, effect: Callable[[], T]) -> T:
        self.before(call)
        result = effect()
        if call.method == "put_many_if_absent":
            self.puts.append(call.paths)
        self.after(call)
        return result

    def versions(self, table_id: TableId) -> list[list[int]]:
        """The versions of each batch that was put."""
        return [
            [int(path.rpartition("/")[2].removesuffix(".json")) for path in paths]
            for paths in self.puts
            if f"/{table_id}/" in paths[0]
        ]


def is_publishing(call: Call, table_id: TableId | None = None) -> bool:
    return call.method == "put_many_if_absent" and f"/{table_id or ''}" in call.paths[0]


def break_for(storage: Storage, table_id: TableId, error: Callable[[], Exception]) -> None:
    """Let every try to publish one table fail."""

    def before(call: Call) -> None:
        if is_publishing(call, table_id):
            raise error()

    storage.before = before


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = Storage(tmp_path / "lake")
    locations.mount(str(tmp_path / "lake"), made)
    return made


class Lake(House):
    """A lake in a process of its own, as far as ids tell."""

    salts = itertools.count(1)

    def _open(self) -> Catalog:
        return embedded_catalog(
            str(self.root),
            settings=self.settings,
            publisher=self.has_publisher,
            clock=self.clock,
            ids=CountedIds(next(self.salts)),
        )


@contextmanager
def opened(tmp_path: Path, *, publisher: bool = True, **changed: int) -> Iterator[House]:
    """A lake with a publisher that looks round often, or never if so told."""
    chosen: dict[str, int] = {"publish_every_ms": 5, "publish_linger_ms": 0, **changed}
    house = Lake(
        tmp_path / "lake",
        Way.INLINE,
        ManualClock(),
        Settings(**{"verify_staged": 0, **chosen}),  # type: ignore[arg-type]
        has_publisher=publisher,
    )
    try:
        yield house
    finally:
        house.close()


def commit(house: House, table_id: TableId, times: int = 1) -> None:
    for _ in range(times):
        version = house.catalog.resolve(table_id).latest + 1
        assert isinstance(house.propose(table_id, version, add()), Ratified)


def recorded(house: House, table_id: TableId) -> int:
    """The last version the catalog knows for published; -1 for none."""
    with house.database._store.read() as unit:
        row = unit.table(table_id)
    assert row is not None
    return row.published


def in_log(root: Path, table_id: TableId) -> list[int]:
    log = root / "lake" / "tables" / table_id / "_delta_log"
    return sorted(int(path.stem) for path in log.glob("*.json"))


def never(happens: Callable[[], bool], seconds: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert not happens()
        time.sleep(0.005)


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
        answer = Future[Answer]()
        match road, proposal.parts[0].content:
            case "inline, at once", _:
                assert house.database.propose_soon(proposal, answer, lambda: None)
            case "staged", _:
                answer.set_result(house.catalog.propose(proposal))
            case _, Staged() as staged:
                before = house.database.describe(table_id, Version(2))
                decided = house.database.propose_staged(before, Version(2), staged)
                answer.set_result(decided.answer)
        assert isinstance(answer.result(PATIENCE), Ratified)
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
            another.setattr(publisher, "_take", lambda row: None)  # it has the lease
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
        assert table.table_id in caplog.text  # said aloud
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


def test_a_turn_looks_at_the_store_twice(
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
            patch.setattr(SQLiteStore, "read", None)
            patch.setattr(SQLiteStore, "read_latest", counted)
            assert house.database._publisher.publish(table.table_id, wait=False) == 3
        assert looks == 2  # for how far it is, and for the commits
        assert recorded(house, table.table_id) == 3


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
    monkeypatch.setattr("headgate.catalog.publisher._STALLED_S", NEVER)
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
        house.clock.ms += house.settings.lease_ms  # nobody gave the lease back
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


# A put nobody can vouch for


@shows("S12", "FC12")
@pytest.mark.parametrize("was_put", [True, False])
def test_a_put_without_an_answer_is_not_recorded_and_is_looked_at_again(
    tmp_path: Path, storage: Storage, was_put: bool
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        commit(house, table.table_id, 2)

        def lose(call: Call) -> None:
            if is_publishing(call):
                raise PutUnknownError("The answer was lost.")

        if was_put:
            storage.after = lose
        else:
            storage.before = lose
        with pytest.raises(PutUnknownError):
            house.catalog.publish(table.table_id)
        assert recorded(house, table.table_id) == -1
        assert in_log(tmp_path, table.table_id) == ([0, 1, 2] if was_put else [])
        storage.before = storage.after = lambda call: None
        assert house.catalog.publish(table.table_id) == 2
        assert recorded(house, table.table_id) == 2


@req("CM-25")
@shows("S6")
def test_a_put_without_an_answer_is_no_answer_to_a_writer_who_was_held_back(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(
        tmp_path, publish_every_ms=NEVER, publish_on_close_ms=0, unpublished_soft=3
    ) as house:
        table = house.create()
        eventually(lambda: recorded(house, table.table_id) == 0)
        break_for(storage, table.table_id, lambda: PutUnknownError("The answer was lost."))
        commit(house, table.table_id, 8)
        storage.before = lambda call: None
        assert house.catalog.resolve(table.table_id).latest == 8


def catalog_on(disk: ForgetfulDisk, database: Path) -> Catalog:
    """A catalog whose tables lie on a disk that forgets what was not synced."""
    store = SQLiteStore(str(database), SystemClock())
    with store.write() as unit, suppress(Exception), unit.savepoint():
        unit.insert_namespace(SchemaName("main", "default"), 0)
    return Catalog(
        store,
        "file:///lake",
        store_for=lambda location: LocalStore(location.removeprefix("file://"), disk),
        clock=ManualClock(),
        ids=CountedIds(),
        publisher=False,
    )


def table_on(catalog: Catalog) -> DeltaLog:
    table_id = new_table_id()
    made = catalog.create_table(
        TableName.parse("t"), table_id, new_txn_id(), inline(protocol(), metadata(table_id))
    )
    return catalog._log_of(made.location)


@shows("FC12", "S12")
def test_a_disk_that_did_not_sync_is_never_believed_to_have_published(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    catalog = catalog_on(disk, tmp_path / "headgate.db")
    table_on(catalog)
    [entry] = catalog.tables()
    disk.fail_sync_at = disk.counts["sync"] + 1
    with pytest.raises(HeadgateError):
        catalog.publish(entry.table_id)
    for _ in range(2):  # a second sync proves nothing
        with pytest.raises(HeadgateError):
            catalog.publish(entry.table_id)
    [entry] = catalog.tables()
    assert entry.published is None
    catalog.close()


@req("PB-01")
@shows("S12", "FC10")
@pytest.mark.parametrize("seed", range(5))
def test_a_claim_is_believed_only_once_the_file_outlives_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    disk = ForgetfulDisk()
    catalog = catalog_on(disk, tmp_path / "headgate.db")
    log = table_on(catalog)
    [entry] = catalog.tables()
    [first] = catalog.ratified_commits(entry.table_id).commits
    assert first.content is not None
    # A client that does not sync: it writes the file and says so.
    log.store.put_if_absent("_delta_log/other", b"")
    path = f"/lake/tables/{entry.table_id}/{PublishedCommit(Version(0)).path}"
    written = disk.create(path)
    disk.write(written, memoryview(first.content))
    disk.close(written)
    assert catalog.confirm_published(entry.table_id, Version(0)) == 0
    disk.crash(random.Random(seed))
    assert log.read_published(Version(0)) == first.content
    catalog.close()


# Batches


@req("CM-23")
@pytest.mark.parametrize(
    ("commits", "upto", "batches"),
    [
        (2, None, [[0, 1, 2]]),
        (3, None, [[0, 1, 2], [3]]),
        (5, None, [[0, 1, 2], [3, 4, 5]]),
        (6, None, [[0, 1, 2], [3, 4, 5], [6]]),
        (6, 0, [[0]]),
        (6, 2, [[0, 1, 2]]),
        (6, 3, [[0, 1, 2], [3]]),
        (6, -1, []),
    ],
)
def test_a_tail_is_published_in_batches_up_to_the_version_asked_for(
    tmp_path: Path, storage: Storage, commits: int, upto: int | None, batches: list[list[int]]
) -> None:
    with opened(tmp_path, publisher=False, publish_batch=3) as house:
        table = house.create()
        commit(house, table.table_id, commits)
        wanted = None if upto is None else Version(upto)
        published = house.catalog.publish(table.table_id, wanted)
        assert published == (commits if upto is None else upto)
        assert storage.versions(table.table_id) == batches
        assert house.catalog.publish(table.table_id, wanted) == published  # again is nothing
        assert storage.versions(table.table_id) == batches


@shows("FP1")
def test_a_crash_between_two_batches_loses_neither(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False, publish_batch=2) as house:
        table = house.create()
        commit(house, table.table_id, 5)
        failpoints.arm("publisher.after_put:raise@2")
        try:
            with pytest.raises(failpoints.FailPointError):
                house.catalog.publish(table.table_id)
        finally:
            failpoints.arm("")
        assert recorded(house, table.table_id) == 1
        assert in_log(tmp_path, table.table_id) == [0, 1, 2, 3]
        assert house.catalog.publish(table.table_id) == 5
        assert in_log(tmp_path, table.table_id) == [0, 1, 2, 3, 4, 5]


def test_a_version_that_is_not_there_cannot_be_published(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        with pytest.raises(NotFoundError, match="no version 1"):
            house.catalog.publish(table.table_id, Version(1))
        with pytest.raises(NotFoundError):
            house.catalog.publish(new_table_id())
        assert storage.puts == []


def test_a_checkpoint_without_a_file_is_not_taken_note_of(tmp_path: Path) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        house.catalog.publish(table.table_id)
        nothing = KnownFile(kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=())
        with pytest.raises(InvalidArgumentError, match="no file"):
            house.database.add_file(table.table_id, nothing)
        assert house.catalog.ratified_commits(table.table_id).commits[0].content is not None


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


def test_a_diverged_table_says_so_to_whoever_asks(tmp_path: Path, storage: Storage) -> None:
    with opened(tmp_path, publisher=False) as house:
        table = house.create()
        path = f"tables/{table.table_id}/{PublishedCommit(Version(0)).path}"
        storage.inner.put_if_absent(path, b'{"commitInfo":{}}\n')
        for _ in range(2):
            with pytest.raises(LogDivergedError, match="headgate fsck"):
                house.catalog.publish(table.table_id)
        assert storage.versions(table.table_id) == []  # nothing is put beside it
