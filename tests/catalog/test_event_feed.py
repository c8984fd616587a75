"""The feed: every ratification in order, once, and soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from headgate._connect import embedded_catalog
from headgate.api.events import Event, NameChange, TableCommit
from headgate.api.messages import Proposal, Ratified, Rejected
from headgate.catalog import event_feed
from headgate.catalog.service import Catalog
from headgate.catalog.stores.reader import ReadUnit
from headgate.errors import InTheFutureError, InvalidArgumentError
from headgate.names import TableName
from headgate.protocol.actions import Sequence
from headgate.protocol.commit.content import Way
from headgate.settings import Settings
from tests.catalog.conftest import House
from tests.kit import req
from tests.kit.builders import CountedIds, ManualClock, add, new_txn_id


def every(catalog: Catalog, after: int = 0) -> tuple[Event, ...]:
    return catalog.events(Sequence(after))


class PassingClock(ManualClock):
    """Waiting takes real time; the date stays where the test put it."""

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[House]:
    """A lake on which time passes."""
    house = House(tmp_path / "lake", Way.INLINE, PassingClock())
    yield house
    house.close()


@req("EV-01")
def test_every_ratification_leaves_one_event_in_its_order(lake: House) -> None:
    one, two = lake.create("one"), lake.create("two")
    answers = [
        lake.propose(table.table_id, version, add()) for version in (1, 2) for table in (one, two)
    ]
    found = every(lake.database)
    assert [event.sequence for event in found] == [1, 2, 3, 4, 5, 6]
    for event, answer in zip(found[2:], answers, strict=True):
        assert isinstance(answer, Ratified)
        assert (event.sequence, event.txn_id) == (answer.sequence, answer.txn_id)
        [[table_id, commit]] = answer.commits.items()
        assert event.commits == (
            TableCommit(
                table_id=table_id,
                name="main.default.one" if table_id == one.table_id else "main.default.two",
                version=commit.version,
                way=lake.way,
                size=commit.size,
                timestamp_ms=commit.timestamp_ms,
            ),
        )
        assert event.names == ()


@req("EV-01")
def test_a_transaction_over_many_tables_is_one_event(lake: House) -> None:
    tables = [lake.create(name).table_id for name in ("a", "b", "c")]
    txn_id = new_txn_id()
    answer = lake.catalog.propose(
        Proposal(
            txn_id=txn_id,
            parts=tuple(lake.part(table, 1, add(), txn_id=txn_id) for table in tables),
        )
    )
    assert isinstance(answer, Ratified)
    [event] = every(lake.database, after=3)
    assert (event.sequence, event.txn_id) == (answer.sequence, txn_id)
    assert {commit.table_id for commit in event.commits} == set(tables)
    assert {commit.version for commit in event.commits} == {1}


def test_what_was_refused_or_asked_again_leaves_no_event(lake: House) -> None:
    table = lake.create()
    proposal = lake.proposal(table.table_id, 1, add())
    assert isinstance(lake.catalog.propose(proposal), Ratified)
    assert isinstance(lake.catalog.propose(proposal), Ratified)  # its answer was lost
    before = every(lake.database)
    assert isinstance(lake.propose(table.table_id, 9, add()), Rejected)  # a gap
    assert every(lake.database) == before


def test_names_that_begin_move_and_end_are_told(inline_lake: House) -> None:
    table = inline_lake.create("old").table_id
    inline_lake.propose(table, 1, add())
    inline_lake.database.rename_table(table, TableName.parse("new"))
    inline_lake.propose(table, 2, add())
    inline_lake.database.drop_table(table)
    inline_lake.database.undrop_table(table)
    old, new = "main.default.old", "main.default.new"
    found = every(inline_lake.database)
    assert [event.names for event in found] == [
        (NameChange(table_id=table, after=old),),
        (),
        (NameChange(table_id=table, before=old, after=new),),
        (),
        (NameChange(table_id=table, before=new),),
        (NameChange(table_id=table, after=new),),
    ]
    # An event has the name the table had at its commit, wherever reading began.
    for after in range(4):
        names = [c.name for event in every(inline_lake.database, after) for c in event.commits]
        assert names == [old, old, new][sum(after >= s for s in (1, 2)) :]


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_read_in_pieces_it_is_the_same(inline_lake: House, limit: int) -> None:
    table = inline_lake.create()
    for version in range(1, 6):
        inline_lake.propose(table.table_id, version, add())
    whole, pieces = every(inline_lake.database), ()
    while page := inline_lake.database.events(Sequence(len(pieces)), limit):
        assert len(page) <= limit
        pieces += page
    assert pieces == whole


def test_who_was_further_than_the_catalog_is_told_so(inline_lake: House) -> None:
    inline_lake.create()
    assert every(inline_lake.database, after=1) == ()
    with pytest.raises(InTheFutureError, match="older copy"):
        every(inline_lake.database, after=2)
    with pytest.raises(InTheFutureError):
        inline_lake.database.events(Sequence(2), wait_s=5)


@pytest.mark.parametrize(("after", "limit"), [(-1, 1), (0, 0), (0, 1001)])
def test_a_page_that_cannot_be_is_refused(inline_lake: House, after: int, limit: int) -> None:
    with pytest.raises(InvalidArgumentError):
        inline_lake.database.events(Sequence(after), limit)
    with pytest.raises(InvalidArgumentError):
        inline_lake.database.events_soon(Sequence(after), limit, 1)


# Waiting


def test_a_ratification_of_this_process_wakes_who_waits(
    real: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "_POLL_S", 3600.0)  # polling finds nothing
    table = real.create()
    waiting = [real.database.events_soon(Sequence(1), 10, 3600) for _ in range(20)]
    assert not any(one.done() for one in waiting)
    real.propose(table.table_id, 1, add())
    for one in waiting:
        assert [event.sequence for event in one.result(10)] == [2]


def test_those_who_wait_for_the_same_are_answered_by_one_look(
    real: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Sequence] = []
    page = event_feed.page

    def counted(unit: ReadUnit, after: Sequence, limit: int) -> event_feed.Events:
        pages.append(after)
        return page(unit, after, limit)

    monkeypatch.setattr(event_feed, "page", counted)
    table = real.create()
    waiting = [real.database.events_soon(Sequence(1), 10, 60) for _ in range(50)]
    real.propose(table.table_id, 1, add())
    assert all(one.result(10) for one in waiting)
    assert pages == [1]


def test_a_ratification_of_another_process_is_found_by_looking(real: House) -> None:
    table = real.create()
    other = embedded_catalog(
        str(real.root), settings=Settings(), publisher=False, clock=real.clock, ids=CountedIds(1)
    )
    try:
        waiting = other.events_soon(Sequence(1), 10, 60)
        real.propose(table.table_id, 1, add())
        assert [event.sequence for event in waiting.result(10)] == [2]
    finally:
        other.close()


def test_what_is_there_already_is_not_waited_for(real: House) -> None:
    real.create()
    assert len(real.database.events(Sequence(0), wait_s=3600)) == 1


def test_who_waits_in_vain_is_answered_when_the_time_is_over(real: House) -> None:
    real.create()
    assert real.database.events(Sequence(1), wait_s=0.05) == ()


def test_who_gave_up_is_no_bother_and_closing_sends_everybody_away(real: House) -> None:
    table = real.create()
    gone, stays = (real.database.events_soon(Sequence(n), 10, 3600) for n in (1, 2))
    with pytest.raises(InTheFutureError):
        stays.result(10)
    assert gone.cancel()
    real.propose(table.table_id, 1, add())
    waiting: Future[tuple[Event, ...]] = real.database.events_soon(Sequence(2), 10, 3600)
    real.close()
    assert waiting.result(10) == ()


def test_while_nobody_waits_there_is_no_thread(real: House) -> None:
    table = real.create()
    real.propose(table.table_id, 1, add())
    assert every(real.database)
    assert real.database._feed._thread is None
