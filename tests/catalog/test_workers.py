"""A few threads for many tables: one per table at a time, more only while some hang."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from headgate.catalog.workers import FEW, MOST, Workers
from headgate.protocol.actions import TableId
from tests.kit.conditions import eventually

PATIENCE = 20  # seconds until a test says that something never happens


def names(count: int, prefix: str = "t") -> list[TableId]:
    return [TableId(f"{prefix}{number}") for number in range(count)]


class Hanging:
    """Work that does not end before it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun: Counter[TableId] = Counter()
        self.on: set[TableId] = set()
        self.overlaps = 0
        self.most = 0

    def __call__(self, table_id: TableId) -> None:
        self.overlaps += table_id in self.on
        self.on.add(table_id)
        self.most = max(self.most, len(self.on))
        self.begun[table_id] += 1
        if table_id.startswith("t"):
            assert self.may_end.wait(PATIENCE)
        self.on.discard(table_id)


@pytest.fixture
def work() -> Hanging:
    return Hanging()


def test_a_table_that_comes_during_its_turn_has_one_more_and_never_two_at_once(
    work: Hanging,
) -> None:
    workers = Workers(work)
    workers.give(names(1))
    eventually(lambda: work.begun["t0"] == 1)
    for turn in range(1, 4):
        workers.give([*names(1), *names(1, "free")])
        workers.look()
        eventually(lambda turn=turn: work.begun["free0"] == turn)  # type: ignore[misc]
    assert work.begun["t0"] == 1
    work.may_end.set()
    eventually(lambda: work.begun["t0"] == 2)
    assert workers.close((), PATIENCE)
    assert (work.begun["t0"], work.overlaps) == (2, 0)


def test_only_a_few_tables_are_worked_on_at_once_while_none_hangs(work: Hanging) -> None:
    workers = Workers(work)
    workers.give(names(3 * FEW))
    eventually(lambda: len(work.on) == FEW)
    workers.look()  # one look is nothing: they may just have begun
    time.sleep(0.01)
    assert len(work.on) == FEW
    work.may_end.set()
    eventually(lambda: len(work.begun) == 3 * FEW)
    assert workers.close((), PATIENCE)
    assert work.most == FEW


def test_tables_that_hang_do_not_count_up_to_the_bound(work: Hanging) -> None:
    workers = Workers(work)
    workers.give(names(2 * MOST))

    def all_are_taken() -> bool:
        workers.look()
        return len(work.on) >= MOST

    eventually(all_are_taken)
    for _ in range(3):
        workers.look()
    time.sleep(0.01)
    assert len(work.on) == len(workers._threads) == MOST
    work.may_end.set()
    eventually(lambda: len(work.begun) == 2 * MOST)
    assert workers.close((), PATIENCE)


def test_threads_end_when_there_is_nothing_to_do_and_come_again(work: Hanging) -> None:
    workers = Workers(work)
    for turn in range(1, 4):
        workers.give(names(2, "free"))
        eventually(lambda: not workers._threads)
        assert work.begun == Counter({TableId("free0"): turn, TableId("free1"): turn})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_breaks_its_thread_takes_no_place_from_others() -> None:
    done: list[TableId] = []
    broken: list[threading.Thread] = []

    def break_off(table_id: TableId) -> None:
        if table_id.startswith("t"):
            broken.append(threading.current_thread())
            raise SystemExit  # ends a thread without a word
        done.append(table_id)

    workers = Workers(break_off)
    workers.give([*names(3 * FEW), *names(1, "free")])

    def is_done() -> bool:
        workers.look()
        return bool(done)

    eventually(is_done)
    assert workers.close((), PATIENCE)
    for thread in broken:  # what a thread says as it ends must not be heard in another test
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_closing_gives_the_last_turns_also_beside_what_hangs_and_ends_in_time(
    work: Hanging,
) -> None:
    workers = Workers(work)
    workers.give(names(2 * FEW))
    eventually(lambda: len(work.on) == FEW)
    begun = time.monotonic()
    assert not workers.close(names(1, "free"), 0.4)
    assert 0.4 <= time.monotonic() - begun < PATIENCE / 2
    assert work.begun["free0"] == 1
    assert len(work.begun) == FEW + 1  # what waited and is not among the last is left
    workers.give(names(1, "late"))
    work.may_end.set()
    eventually(lambda: not workers._threads)
    assert "late0" not in work.begun
    assert workers.close((), 0)
