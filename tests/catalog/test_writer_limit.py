"""A staged attempt that lost its version too often goes next, and no writer waits long."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.clock import SystemClock
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import START_MS, ManualClock, add, new_txn_id, remove

PATIENCE = 20  # seconds until a test fails for a call that hangs
A_MOMENT = 0.15  # long enough for a writer to go first that should not


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "lake", Way.STAGED, ManualClock())
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


@dataclass
class Loser:
    """A staged commit that comes too late again and again."""

    house: House
    table_id: TableId
    txn_id: TxnId = field(default_factory=new_txn_id)

    def come(self, version: int) -> Answer:
        return self.house.propose(self.table_id, version, add("late.parquet"), txn_id=self.txn_id)

    def lose(self, times: int) -> None:
        """Come for a version that has just been taken, some times in a row."""
        for _ in range(times):
            version = self.house.catalog.resolve(self.table_id).latest + 1
            staged = self.house.proposal(
                self.table_id, version, add("late.parquet"), txn_id=self.txn_id
            )
            assert isinstance(append(self.house, self.table_id), Ratified)
            assert isinstance(self.house.catalog.propose(staged), VersionTaken)

    def win(self) -> Answer:
        return self.come(self.house.catalog.resolve(self.table_id).latest + 1)


def append(house: House, table_id: TableId) -> Answer:
    """Commit inline, as another client."""
    latest = house.catalog.resolve(table_id).latest
    other = House.__new__(House)  # the same catalog, another way
    other.__dict__.update(house.__dict__, way=Way.INLINE)
    return other.propose(table_id, latest + 1, add())


def ticket(house: House, table_id: TableId) -> TxnId | None:
    with house.database._store.read() as unit:
        row = unit.table(table_id)
    assert row is not None
    return row.ticket if row.ticket_until_ms > house.clock.ms else None


def is_waiting(answer: Future[Answer]) -> bool:
    with pytest.raises(TimeoutError):
        answer.result(A_MOMENT)
    return True


@shows("L4")
def test_who_lost_three_times_in_a_row_is_waited_for_and_wins(
    house: House, pool: ThreadPoolExecutor
) -> None:
    table = house.create()
    loser = Loser(house, table.table_id)
    loser.lose(2)
    assert ticket(house, table.table_id) is None
    loser.lose(1)
    assert ticket(house, table.table_id) == loser.txn_id
    others = [pool.submit(append, house, table.table_id) for _ in range(3)]
    assert all(is_waiting(other) for other in others)
    won = loser.win()
    assert isinstance(won, Ratified)
    assert won.commits[table.table_id].version == 4
    assert ticket(house, table.table_id) is None
    versions = []
    for other in others:
        answer = other.result(PATIENCE)
        assert isinstance(answer, Ratified)
        versions.append(answer.commits[table.table_id].version)
    assert sorted(versions) == [5, 6, 7]


def test_losses_that_are_not_in_a_row_give_no_ticket(house: House) -> None:
    table = house.create()
    for _ in range(3):  # each another commit, that wins in the end
        loser = Loser(house, table.table_id)
        loser.lose(2)
        assert isinstance(loser.win(), Ratified)
    assert ticket(house, table.table_id) is None


def test_other_tables_are_not_held_up(house: House) -> None:
    table, neighbour = house.create("t"), house.create("u")
    Loser(house, table.table_id).lose(3)
    assert isinstance(append(house, neighbour.table_id), Ratified)
    assert isinstance(house.propose(neighbour.table_id, 2, add()), Ratified)


def test_a_transaction_over_it_and_another_table_waits_whole(
    house: House, pool: ThreadPoolExecutor
) -> None:
    table, neighbour = house.create("t"), house.create("u")
    loser = Loser(house, table.table_id)
    loser.lose(3)
    both = Proposal(
        txn_id=(txn_id := new_txn_id()),
        parts=(
            house.part(neighbour.table_id, 1, add(), txn_id=txn_id),
            house.part(table.table_id, 4, add(), txn_id=txn_id),
        ),
    )
    answer = pool.submit(house.catalog.propose, both)
    assert is_waiting(answer)
    assert isinstance(loser.win(), Ratified)
    taken = answer.result(PATIENCE)
    assert isinstance(taken, VersionTaken)
    assert house.catalog.resolve(neighbour.table_id).latest == 0


def test_a_ticket_lapses_and_the_others_go_on(house: House, pool: ThreadPoolExecutor) -> None:
    table = house.create()
    Loser(house, table.table_id).lose(3)
    other = pool.submit(append, house, table.table_id)
    assert is_waiting(other)
    house.clock.ms += house.settings.ticket_ms - 1
    assert is_waiting(other)
    house.clock.ms += 1
    assert isinstance(other.result(PATIENCE), Ratified)


def test_a_clock_set_back_makes_nobody_wait_longer(house: House) -> None:
    table = house.create()
    Loser(house, table.table_id).lose(3)
    house.clock.ms -= 3_600_000
    assert isinstance(append(house, table.table_id), Ratified)


def test_a_ticket_ends_with_the_commit_that_held_it_also_when_it_is_rejected(
    house: House,
) -> None:
    table = house.create()
    file = add("contested.parquet")
    assert isinstance(house.propose(table.table_id, 1, file), Ratified)
    txn_id = new_txn_id()
    for _ in range(3):
        version = house.catalog.resolve(table.table_id).latest + 1
        late = house.proposal(table.table_id, version, remove(file), txn_id=txn_id)
        append(house, table.table_id)
        assert isinstance(house.catalog.propose(late), VersionTaken)
    assert ticket(house, table.table_id) == txn_id
    latest = house.catalog.resolve(table.table_id).latest
    gap = house.propose(table.table_id, latest + 2, remove(file), txn_id=txn_id)
    assert isinstance(gap, Rejected)
    assert ticket(house, table.table_id) is None
    assert isinstance(append(house, table.table_id), Ratified)


def test_one_ticket_at_a_time_and_the_next_loser_gets_it_after_the_first(
    house: House, pool: ThreadPoolExecutor
) -> None:
    table = house.create()
    one, two = Loser(house, table.table_id), Loser(house, table.table_id)
    two.lose(2)
    version = house.catalog.resolve(table.table_id).latest + 1
    one.lose(3)
    second = pool.submit(two.come, version)  # its third loss, if it were its turn
    assert is_waiting(second)
    assert ticket(house, table.table_id) == one.txn_id
    assert isinstance(one.win(), Ratified)
    assert isinstance(second.result(PATIENCE), VersionTaken)
    assert ticket(house, table.table_id) == two.txn_id
    assert isinstance(two.win(), Ratified)
    assert ticket(house, table.table_id) is None


def test_a_ticket_for_several_tables_is_held_and_given_back_in_all_of_them(
    house: House, pool: ThreadPoolExecutor
) -> None:
    tables = [house.create("t").table_id, house.create("u").table_id]
    txn_id = new_txn_id()

    def come(version: int) -> Answer:
        stamp = max(house.stamp_of(table_id) for table_id in tables) + 1
        parts: list[Part] = [
            house.part(table_id, version, add(), txn_id=txn_id, timestamp_ms=stamp)
            for table_id in tables
        ]
        return house.catalog.propose(Proposal(txn_id=txn_id, parts=tuple(parts)))

    for table_id in tables:
        append(house, table_id)
    for version in (1, 1, 1):
        assert isinstance(come(version), VersionTaken)
    assert [ticket(house, table_id) for table_id in tables] == [txn_id] * 2
    others = [pool.submit(append, house, table_id) for table_id in tables]
    assert all(is_waiting(other) for other in others)
    assert isinstance(come(2), Ratified)
    assert [ticket(house, table_id) for table_id in tables] == [None] * 2
    assert all(isinstance(other.result(PATIENCE), Ratified) for other in others)


@req("CM-25")
@shows("L5")
def test_a_ticket_never_delays_publishing(house: House, pool: ThreadPoolExecutor) -> None:
    table = house.create()
    loser = Loser(house, table.table_id)
    loser.lose(3)
    other = pool.submit(append, house, table.table_id)
    assert is_waiting(other)
    assert pool.submit(house.catalog.publish, table.table_id).result(PATIENCE) == 3
    assert not other.done()
    assert ticket(house, table.table_id) == loser.txn_id  # and publishing does not take it away
    assert isinstance(loser.win(), Ratified)
    assert isinstance(other.result(PATIENCE), Ratified)


def test_names_and_readers_are_not_held_up_by_a_ticket(house: House) -> None:
    table = house.create()
    Loser(house, table.table_id).lose(3)
    house.create("another")
    assert house.catalog.resolve(table.table_id).latest == 3
    house.database.drop_table(table.table_id)
    assert ticket(house, table.table_id) is not None  # no writer waits for it


def test_a_table_dropped_while_others_wait_for_a_ticket_tells_them_so(
    house: House, pool: ThreadPoolExecutor
) -> None:
    table = house.create()
    Loser(house, table.table_id).lose(3)
    other = pool.submit(append, house, table.table_id)
    assert is_waiting(other)
    house.database.drop_table(table.table_id)
    answer = other.result(PATIENCE)
    assert isinstance(answer, Rejected)
    assert [conflict.rule for conflict in answer.conflicts] == ["R9"]


def test_another_process_waits_for_the_ticket_as_well(
    house: House, pool: ThreadPoolExecutor
) -> None:
    table = house.create()
    loser = Loser(house, table.table_id)
    loser.lose(3)
    neighbour = House(house.root, Way.INLINE, house.clock)
    try:
        other = pool.submit(append, neighbour, table.table_id)
        assert is_waiting(other)
        assert isinstance(loser.win(), Ratified)
        assert isinstance(other.result(PATIENCE), Ratified)
    finally:
        neighbour.close()


@shows("L4", "L1")
@pytest.mark.slow
def test_a_staged_writer_among_flat_out_inline_writers_gets_its_turn(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.STAGED, TickingClock())
    table = house.create()
    is_done = threading.Event()

    def flat_out() -> int:
        for count in itertools.count():
            if is_done.is_set():
                return count
            assert isinstance(append(house, table.table_id), Ratified)
        raise AssertionError

    tries: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(flat_out) for _ in range(4)]
        try:
            tries += [until_ratified(house, table.table_id) for _ in range(5)]
        finally:
            is_done.set()
        counts = [one.result(PATIENCE) for one in running]
    house.close()
    assert all(counts), counts
    # The third loss gives the ticket; with it the next try wins.
    assert max(tries) <= house.settings.ticket_after + 1, tries


class TickingClock(ManualClock):
    """Time that passes by itself."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self._begun = self._machine.monotonic()
        super().__init__()

    @property
    def ms(self) -> int:  # type: ignore[override]
        return START_MS + int(1000 * self.monotonic())

    @ms.setter
    def ms(self, _: int) -> None:
        """It cannot be set."""

    def monotonic(self) -> float:
        return self._machine.monotonic() - self._begun

    def sleep(self, seconds: float) -> None:
        self._machine.sleep(seconds)


def until_ratified(house: House, table_id: TableId) -> int:
    """Come again until it wins, and say how often that was."""
    txn_id = new_txn_id()
    version = Version(house.catalog.resolve(table_id).latest + 1)
    for count in range(1, 100):
        answer = house.propose(table_id, version, add(), txn_id=txn_id)
        if isinstance(answer, Ratified):
            return count
        assert isinstance(answer, VersionTaken), answer
        version = Version(answer.latest[table_id] + 1)
    raise AssertionError("starved")
