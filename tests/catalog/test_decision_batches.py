"""Proposals are decided on heads kept in memory, and written only if nothing changed since."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from headgate import failpoints
from headgate.api.messages import Answer, Ratified, Rejected, VersionTaken
from headgate.catalog.decider import ABANDONED, Decided, file_key
from headgate.catalog.ratifier import _UnitWork
from headgate.catalog.stores.rows import Batch, Epoch, InDoubtError, RejectionRow
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import (
    InvalidArgumentError,
    OutcomeUnknownError,
    TxnIdReusedError,
    UnavailableError,
)
from headgate.protocol.actions import TableId, TxnId
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.table_states import TableStatus
from tests.catalog.conftest import House, KindOfHouse
from tests.kit import req, shows
from tests.kit.builders import add, metadata, new_txn_id, remove
from tests.kit.conditions import eventually

PATIENCE = 20  # seconds until a test fails for a call that hangs
INLINE = [KindOfHouse(Way.INLINE), KindOfHouse(Way.INLINE, is_on_postgres=True)]
STAGED = [KindOfHouse(Way.STAGED), KindOfHouse(Way.STAGED, is_on_postgres=True)]
POINTS = sorted(point for point in failpoints.POINTS if point.startswith("ratifier."))


class WatchedStore:
    """A store that records what a ratifier asks of it, and can be disturbed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.before_batch: Callable[[], None] = lambda: None
        self.after_batch: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._inner, name)

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        self.calls.append("write_batch")
        self.before_batch()
        written: Epoch | None = self._inner.write_batch(expected, batch)
        self.after_batch()
        return written


def watch(lake: House) -> WatchedStore:
    ratifier = lake.database._ratifier
    watched = WatchedStore(ratifier._store)
    ratifier._store = watched  # type: ignore[assignment]
    return watched


@contextmanager
def held(lake: House) -> Iterator[None]:
    """Hold the ratifier up, so that what is proposed meanwhile is decided together."""
    reached, opened = threading.Event(), threading.Event()

    class Holding(Future[None]):
        def set_result(self, result: None, /) -> None:
            reached.set()
            assert opened.wait(PATIENCE)
            super().set_result(result)

    holding = Holding()
    lake.database._ratifier._put(_UnitWork("hold", lambda unit: None, holding))
    assert reached.wait(PATIENCE)
    try:
        yield
    finally:
        opened.set()
        holding.result(PATIENCE)


@pytest.fixture
def other(lake: House) -> Iterator[House]:
    """Another process on the same catalog."""
    made = House(lake.root, lake.way, lake.clock, open_store=lake.open_store)
    yield made
    made.close()


def versions(lake: House, table_id: Any) -> list[int]:
    return [commit.version for commit in lake.catalog.ratified_commits(table_id).commits]


# What is read and written


@pytest.mark.parametrize("lake", INLINE, indirect=True, ids=str)
def test_commits_one_after_another_read_nothing(lake: House) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add()), Ratified)
    proposals = [lake.proposal(table_id, version, add(f"f{version}")) for version in range(2, 7)]
    watched = watch(lake)
    for proposal in proposals:
        assert isinstance(lake.catalog.propose(proposal), Ratified)
    assert watched.calls == ["write_batch"] * 5


def test_a_conflict_with_commits_of_this_process_reads_only_the_winners_it_sends(
    inline_lake: House,
) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    for version in range(2, 5):
        assert isinstance(lake.propose(table_id, version, add(f"f{version}")), Ratified)
    assert isinstance(lake.propose(table_id, 5, remove(add("a"))), Ratified)
    watched = watch(lake)
    answer = lake.propose(table_id, 5, remove(add("a")))
    assert isinstance(answer, Rejected)
    assert [winner.version for winner in answer.winners[table_id]] == [5]
    assert watched.calls == ["write_batch", "read_latest"]


@shows("L1")
def test_what_waits_is_one_batch_and_every_answer_comes_before_the_steps(
    inline_lake: House,
) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())  # from now on proposals are queued at once
    order: list[object] = []
    is_over = threading.Event()

    class Waiter:
        def set_result(self, result: Decided, /) -> None:
            assert isinstance(result.answer, Ratified)
            order.append(int(result.answer.commits[table_id].version))

        def set_exception(self, error: BaseException, /) -> None:
            order.append(type(error))

    def step() -> None:
        order.append("step")
        is_over.set()
        raise ZeroDivisionError  # the thread survives it

    watched = watch(lake)
    with held(lake):
        for number in range(40):
            proposal = lake.proposal(table_id, 2, add(f"f{number}"))
            assert lake.database.enqueue(proposal, Waiter(), step)
    assert is_over.wait(PATIENCE)
    assert order == [*range(2, 42), "step"]
    assert watched.calls.count("write_batch") == 1
    assert isinstance(lake.propose(table_id, 42, add()), Ratified)


def test_the_same_transaction_twice_in_one_batch_is_ratified_once(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())
    proposal = lake.proposal(table_id, 2, add("f"))
    answers = [Future[Any]() for _ in range(3)]
    with held(lake):
        for answer in answers:
            assert lake.database.enqueue(proposal, answer, lambda: None)
    first, *others = [answer.result(PATIENCE).answer for answer in answers]
    assert isinstance(first, Ratified)
    assert others == [first, first]
    assert versions(lake, table_id) == [0, 1, 2]


def test_a_refused_proposal_leaves_the_others_of_its_batch_alone(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())
    used = lake.proposal(table_id, 2, add("f"))
    assert isinstance(lake.catalog.propose(used), Ratified)
    reused = lake.proposal(table_id, 2, add("other"), txn_id=used.txn_id)
    proposals = [
        lake.proposal(table_id, 3, add("g")),
        reused,
        lake.proposal(table_id, 99, add("h")),
        lake.proposal(table_id, 3, add("i")),
    ]
    answers = [Future[Any]() for _ in proposals]
    with held(lake):
        for proposal, answer in zip(proposals, answers, strict=True):
            assert lake.database.enqueue(proposal, answer, lambda: None)
    assert isinstance(answers[0].result(PATIENCE).answer, Ratified)
    assert isinstance(answers[1].exception(PATIENCE), TxnIdReusedError)
    gap = answers[2].result(PATIENCE).answer
    assert [violation.rule for violation in gap.violations] == ["version-gap"]
    assert answers[3].result(PATIENCE).answer.commits[table_id].version == 4


@pytest.mark.parametrize("lake", INLINE[1:], indirect=True, ids=str)
def test_a_value_that_cannot_be_stored_is_refused_alone(lake: House) -> None:
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())
    txn_ids = [new_txn_id(), TxnId("a\x00"), new_txn_id()]
    proposals = [
        lake.proposal(table_id, 2, add(f"f{number}"), txn_id=txn_id)
        for number, txn_id in enumerate(txn_ids)
    ]
    answers = [Future[Any]() for _ in proposals]
    with held(lake):
        for proposal, answer in zip(proposals, answers, strict=True):
            assert lake.database.enqueue(proposal, answer, lambda: None)
    assert answers[0].result(PATIENCE).answer.commits[table_id].version == 2
    assert isinstance(answers[1].exception(PATIENCE), InvalidArgumentError)
    assert answers[2].result(PATIENCE).answer.commits[table_id].version == 3


# Proposals that wait for the turn of another transaction


def give_turn(lake: House, table_id: TableId, txn_id: TxnId) -> None:
    """Let the others wait for a transaction, as if it had lost often."""

    def give(unit: WriteUnit) -> None:
        row = unit.table(table_id)
        assert row is not None
        until_ms = lake.clock.ms + lake.settings.ticket_ms
        unit.update_table(row._replace(ticket=txn_id, ticket_until_ms=until_ms))

    lake.database._ratifier.submit("turn", give).result(PATIENCE)


def waiting(lake: House, table_id: TableId, version: int) -> Future[Any]:
    """Propose to a table on which another transaction has the turn."""
    answer = Future[Any]()
    proposal = lake.proposal(table_id, version, add("waiting"))
    assert lake.database.enqueue(proposal, answer, lambda: None)
    return answer


def test_a_proposal_that_waits_lets_others_go_first_and_the_ratifier_rests(
    inline_lake: House,
) -> None:
    lake = inline_lake
    hot, other = lake.create("hot").table_id, lake.create("other").table_id
    for table_id in (hot, other):
        lake.propose(table_id, 1, add())  # from now on proposals are queued at once
    next_one = lake.proposal(hot, 2, add("next"))
    give_turn(lake, hot, next_one.txn_id)
    answer = waiting(lake, hot, 2)
    assert isinstance(lake.propose(other, 2, add()), Ratified)
    waited_s = lake.clock.waited_s
    eventually(lambda: lake.clock.waited_s >= waited_s + 0.005)
    assert not answer.done()
    assert lake.catalog.propose(next_one).commits[hot].version == 2
    assert answer.result(PATIENCE).answer.commits[hot].version == 3


@shows("FC11", "S5")
def test_a_proposal_that_waits_is_refused_with_its_batch_and_not_decided_later(
    inline_lake: House,
) -> None:
    lake = inline_lake
    hot, other = lake.create("hot").table_id, lake.create("other").table_id
    for table_id in (hot, other):
        lake.propose(table_id, 1, add())
    give_turn(lake, hot, TxnId("another"))
    watched = watch(lake)

    def full() -> None:
        watched.before_batch = lambda: None
        raise UnavailableError("The catalog's disk is full.")

    watched.before_batch = full
    beside = Future[Any]()
    with held(lake):
        answer = waiting(lake, hot, 2)
        proposal = lake.proposal(other, 2, add("beside"))
        assert lake.database.enqueue(proposal, beside, lambda: None)
    for refused in (answer, beside):
        assert isinstance(refused.exception(PATIENCE), UnavailableError)
    lake.clock.ms += lake.settings.ticket_ms  # the turn is over
    assert isinstance(lake.propose(hot, 2, add("later")), Ratified)
    assert versions(lake, hot) == [0, 1, 2]


@shows("L1")
def test_closing_does_not_wait_for_a_proposal_that_waits(inline_lake: House) -> None:
    lake = inline_lake
    hot = lake.create().table_id
    lake.propose(hot, 1, add())
    give_turn(lake, hot, TxnId("another"))
    answer = waiting(lake, hot, 2)
    eventually(lambda: lake.clock.waited_s > 0)
    lake.close()
    refused = answer.exception(PATIENCE)
    assert isinstance(refused, UnavailableError)
    assert "it was closed" in refused.message
    lake.restart()
    assert versions(lake, hot) == [0, 1]


# Other processes


@req("CM-10")
@shows("FX1", "S2")
def test_a_commit_of_another_process_is_noticed(lake: House, other: House) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    assert isinstance(other.propose(table_id, 2, add("b")), Ratified)
    late = lake.propose(table_id, 2, add("c"))
    if lake.way is Way.INLINE:
        assert isinstance(late, Ratified)
        assert late.commits[table_id].version == 3
    else:
        assert isinstance(late, VersionTaken)
        assert late.latest == {table_id: 2}
    following = len(versions(lake, table_id))
    assert isinstance(lake.propose(table_id, following, add("d")), Ratified)


def test_a_version_after_those_of_another_process_is_no_gap(lake: House, other: House) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    for version in range(2, 5):
        assert isinstance(other.propose(table_id, version, add(f"f{version}")), Ratified)
    assert isinstance(lake.propose(table_id, 5, add("b")), Ratified)


def test_a_file_that_another_process_removed_is_not_removed_again(
    lake: House, other: House
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    assert isinstance(other.propose(table_id, 2, remove(add("a"))), Ratified)
    late = lake.propose(table_id, 2, remove(add("a")))
    assert isinstance(late, Rejected | VersionTaken)
    assert versions(lake, table_id) == [0, 1, 2]


@shows("FC4", "S3", "S6")
def test_a_transaction_that_another_process_ratified_gets_its_first_answer(
    lake: House, other: House
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    proposal = lake.proposal(table_id, 2, add("b"))
    first = other.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    assert lake.catalog.propose(proposal) == first
    assert versions(lake, table_id) == [0, 1, 2]


@shows("FC4", "S3", "S6")
def test_a_transaction_ratified_before_these_heads_were_read_gets_its_first_answer(
    lake: House,
) -> None:
    table_id = lake.create().table_id
    proposal = lake.proposal(table_id, 1, add("a"))
    first = lake.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    lake.restart()
    assert isinstance(lake.propose(table_id, 2, add("b")), Ratified)  # reads the heads
    assert lake.catalog.propose(proposal) == first
    assert versions(lake, table_id) == [0, 1, 2]


def test_a_table_that_another_process_dropped_and_undropped_is_decided_as_it_is(
    lake: House, other: House
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    prepared = [lake.proposal(table_id, 2, add(name)) for name in ("b", "c")]
    other.catalog.drop_table(table_id)
    dropped = lake.catalog.propose(prepared[0])
    assert isinstance(dropped, Rejected)
    assert [conflict.rule for conflict in dropped.conflicts] == ["R9"]
    other.database.undrop_table(table_id)
    assert isinstance(lake.catalog.propose(prepared[1]), Ratified)


def test_a_table_that_another_process_made_is_known_at_once(lake: House, other: House) -> None:
    known = lake.create("t").table_id
    assert isinstance(lake.propose(known, 1, add("a")), Ratified)
    made = other.create("u").table_id
    assert isinstance(lake.propose(made, 1, add("b")), Ratified)


def test_metadata_that_another_process_changed_is_what_a_commit_is_judged_by(
    lake: House, other: House
) -> None:
    table_id = lake.create(features=("appendOnly",)).table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    only_adds = metadata(table_id, properties={"delta.appendOnly": "true"})
    assert isinstance(other.propose(table_id, 2, only_adds), Ratified)
    answer = lake.propose(table_id, 3, remove(add("a")))
    assert isinstance(answer, Rejected)
    assert answer.violations


@pytest.mark.parametrize("lake", STAGED, indirect=True, ids=str)
def test_a_staged_file_that_another_process_gave_up_is_not_ratified(
    lake: House, other: House
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    proposal = lake.proposal(table_id, 2, add("b"))
    content = proposal.parts[0].content
    assert isinstance(content, Staged)
    key = file_key(table_id, content.file_name)
    with other.database._store.write() as unit:  # as cleaning up does before it deletes the file
        unit.insert_rejection(RejectionRow(key, ABANDONED, b"{}", lake.clock.ms))
    answer = lake.catalog.propose(proposal)
    assert isinstance(answer, Rejected)
    assert [violation.rule for violation in answer.violations] == ["staged-given-up"]


def test_two_processes_that_commit_in_turn_lose_nothing(lake: House, other: House) -> None:
    table_id = lake.create().table_id
    for version in range(1, 21):
        house = (lake, other)[version % 2]
        assert isinstance(house.propose(table_id, version, add(f"f{version}")), Ratified)
    assert versions(other, table_id) == list(range(21))


def fall_behind(lake: House, other: House, table_id: TableId) -> None:
    """Decide under the lock from now on, since another process commits as well."""
    assert isinstance(lake.propose(table_id, 1, add()), Ratified)
    assert isinstance(other.propose(table_id, 2, add()), Ratified)
    assert isinstance(lake.propose(table_id, 3, add()), Ratified)


@pytest.mark.parametrize("lake", INLINE, indirect=True, ids=str)
def test_what_arrives_while_another_process_has_the_lock_is_decided_with_one_batch(
    lake: House, other: House
) -> None:
    table_id = lake.create().table_id
    fall_behind(lake, other, table_id)
    watched = watch(lake)
    answers = [Future[Any]() for _ in range(5)]
    with other.database._store.write():
        for answer in answers:
            proposal = lake.proposal(table_id, 4, add(str(id(answer))))
            assert lake.database.enqueue(proposal, answer, lambda: None)
            eventually(lambda: "write" in watched.calls)  # it waits for the lock
    ratified = [answer.result(PATIENCE).answer.commits[table_id].version for answer in answers]
    assert ratified == [4, 5, 6, 7, 8]
    assert watched.calls == ["write"]


@pytest.mark.parametrize("lake", INLINE, indirect=True, ids=str)
def test_while_another_process_commits_changes_and_proposals_share_a_unit(
    lake: House, other: House
) -> None:
    table_id, dropped = lake.create("kept").table_id, lake.create("dropped").table_id
    lake.propose(dropped, 1, add())
    fall_behind(lake, other, table_id)

    def drop(unit: WriteUnit) -> None:
        row = unit.table(dropped)
        assert row is not None
        unit.update_table(row._replace(state=TableStatus.DROPPED))

    def fail(unit: WriteUnit) -> None:
        unit.set_setting("failed", "kept")
        raise ZeroDivisionError

    watched = watch(lake)
    ratifier = lake.database._ratifier
    answers = [Future[Any]() for _ in range(3)]
    with held(lake):
        watched.calls.clear()
        failing = ratifier.submit("fail", fail)
        for each, answer in zip((table_id, dropped, table_id), answers, strict=True):
            proposal = lake.proposal(each, 4 if each == table_id else 2, add(f"f{id(answer)}"))
            assert lake.database.enqueue(proposal, answer, lambda: None)
        dropping = ratifier.submit("drop", drop)
    assert isinstance(failing.exception(PATIENCE), ZeroDivisionError)
    assert dropping.result(PATIENCE) is None
    assert answers[0].result(PATIENCE).answer.commits[table_id].version == 4
    refused = answers[1].result(PATIENCE).answer
    assert isinstance(refused, Rejected)
    assert "dropped" in refused.conflicts[0].says
    assert answers[2].result(PATIENCE).answer.commits[table_id].version == 5
    assert watched.calls == ["write"]
    with lake.database._store.read() as unit:
        assert unit.setting("failed") is None
    assert isinstance(lake.propose(table_id, 6, add()), Ratified)


@pytest.mark.parametrize("lake", INLINE, indirect=True, ids=str)
def test_a_process_that_is_alone_again_decides_on_heads_again(lake: House, other: House) -> None:
    table_id = lake.create().table_id
    fall_behind(lake, other, table_id)
    watched = watch(lake)
    for version in range(4, 24):
        assert isinstance(lake.propose(table_id, version, add(f"f{version}")), Ratified)
    assert watched.calls == ["write"] * 16 + ["write_batch"] * 4


# Faults


@req("CM-43")
@shows("FS7", "S6")
@pytest.mark.parametrize("is_written", [False, True])
def test_a_batch_in_doubt_is_unknown_and_its_repetition_settles_it(
    lake: House, is_written: bool
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    watched = watch(lake)

    def doubt() -> None:
        watched.before_batch = watched.after_batch = lambda: None
        raise InDoubtError("the connection was lost", is_store_usable=True)

    if is_written:
        watched.after_batch = doubt
    else:
        watched.before_batch = doubt
    proposal = lake.proposal(table_id, 2, add("b"))
    with pytest.raises(OutcomeUnknownError):
        lake.catalog.propose(proposal)
    again = lake.catalog.propose(proposal)
    assert isinstance(again, Ratified)
    assert again.commits[table_id].version == 2
    assert versions(lake, table_id) == [0, 1, 2]


@shows("FC11", "S5")
def test_a_batch_that_was_not_written_changes_nothing_and_the_next_one_works(lake: House) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    watched = watch(lake)

    def full() -> None:
        watched.before_batch = lambda: None
        raise UnavailableError("The catalog's disk is full.")

    watched.before_batch = full
    lost = lake.proposal(table_id, 2, add("b"))
    with pytest.raises(UnavailableError, match="disk is full"):
        lake.catalog.propose(lost)
    assert isinstance(lake.propose(table_id, 2, add("c")), Ratified)
    assert lake.catalog.outcome(lost.txn_id) is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@req("CM-43")
@shows("FC9", "S3", "S6", "L1")
@pytest.mark.parametrize("is_behind", [False, True], ids=["on heads", "in a unit"])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_while_it_decides_loses_and_doubles_nothing(
    lake: House, other: House, point: str, is_behind: bool
) -> None:
    table_id = lake.create().table_id
    assert isinstance(lake.propose(table_id, 1, add("a")), Ratified)
    if is_behind:
        assert isinstance(other.propose(table_id, 2, add("c")), Ratified)
    proposal = lake.proposal(table_id, 2 + is_behind, add("b"))
    answer: Answer | None = None
    failpoints.arm(f"{point}:raise")
    try:
        with suppress(UnavailableError, OutcomeUnknownError):
            answer = lake.catalog.propose(proposal)
    finally:
        failpoints.arm("")
    assert answer is None
    lake.restart()
    settled = lake.catalog.propose(proposal)
    assert isinstance(settled, Ratified)
    assert versions(lake, table_id) == list(range(3 + is_behind))
    assert other.catalog.propose(proposal) == settled
