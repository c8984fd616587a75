"""Tables on one disk are published together, in rounds of a limited size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.catalog import tails
from headgate.protocol.actions import TableId
from headgate.table.publish_round import PartResult, TailPart
from tests.catalog.conftest import House
from tests.catalog.publisher_lake import commit, in_log, opened, recorded
from tests.kit import req
from tests.kit.conditions import eventually

Sizes = list[dict[TableId, int]]


def watch_rounds(house: House, monkeypatch: pytest.MonkeyPatch) -> Sizes:
    """Record how many commits of each table every round publishes."""
    publisher, rounds = house.database._publisher, Sizes()
    put = publisher._put

    def watched(parts: Sequence[TailPart], deadline: float | None) -> Sequence[PartResult]:
        rounds.append({part.table_id: len(part.commits) for part in parts})
        return put(parts, deadline)

    monkeypatch.setattr(publisher, "_put", watched)
    return rounds


def tables_on_one_disk(house: House, count: int) -> list[TableId]:
    """Create tables that were published once, each by itself: their disk is known then."""
    table_ids = [house.create(f"t{number}").table_id for number in range(count)]
    for table_id in table_ids:
        house.catalog.publish(table_id)
    return table_ids


def test_tables_of_a_disk_are_published_in_one_round_and_two_changes_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table_ids = tables_on_one_disk(house, 3)
        publisher, ratifier = house.database._publisher, house.database._ratifier
        assert len({publisher._lane(table_id) for table_id in table_ids}) == 1
        for table_id in table_ids:
            commit(house, table_id, 2)
        rounds = watch_rounds(house, monkeypatch)
        submit, changes = ratifier.submit, []
        monkeypatch.setattr(
            ratifier, "submit", lambda *a, **k: changes.append(a) or submit(*a, **k)
        )
        [lane] = publisher._enter(table_ids)
        publisher._work(lane)
        assert rounds == [dict.fromkeys(table_ids, 2)]
        assert len(changes) == 2  # leases, and all that was published
        assert [recorded(house, table_id) for table_id in table_ids] == [2, 2, 2]


@req("CM-23")
@pytest.mark.parametrize(
    ("limit", "rounds"),
    [
        ({}, [[4, 4, 4]]),
        ({"ROUND_COMMITS": 5}, [[4, 1], [4, 1], [2]]),
        ({"ROUND_COMMITS": 1}, [[1]] * 12),
        ({"ROUND_BYTES": 1}, [[1]] * 12),
    ],
)
def test_a_round_has_a_limited_size_and_the_next_begins_with_what_was_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: dict[str, int],
    rounds: list[list[int]],
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table_ids = tables_on_one_disk(house, 3)
        for table_id in table_ids:
            commit(house, table_id, 4)
        for name, value in limit.items():
            monkeypatch.setattr(tails, name, value)
        seen = watch_rounds(house, monkeypatch)
        publisher = house.database._publisher
        [lane] = publisher._enter(table_ids)
        publisher._work(lane)
        assert [[*sizes.values()] for sizes in seen] == rounds
        for table_id in table_ids:
            assert recorded(house, table_id) == 4
            assert in_log(tmp_path, table_id) == list(range(5))


def test_a_long_tail_is_continued_although_its_disk_is_known_only_after_its_first_round(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, publisher=False) as other:
        table_id = other.create().table_id
        commit(other, table_id, 9)
    with opened(tmp_path, publish_batch=2) as house:
        eventually(lambda: recorded(house, table_id) == 9)
        assert in_log(tmp_path, table_id) == list(range(10))


def test_one_table_that_cannot_be_published_keeps_no_other_of_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, publisher=False) as house:
        table_ids = tables_on_one_disk(house, 3)
        for table_id in table_ids:
            commit(house, table_id)
        log = tmp_path / "lake" / "tables" / table_ids[1] / "_delta_log"
        (log / f"{1:020d}.json").write_bytes(b"{}\n")
        rounds = watch_rounds(house, monkeypatch)
        publisher = house.database._publisher
        publisher._try(*table_ids)
        assert rounds == [dict.fromkeys(table_ids, 1)]
        assert [recorded(house, table_id) for table_id in table_ids] == [1, 0, 1]
        [trouble] = house.database.status().troubles
        assert (trouble.table_id, trouble.is_stopped) == (table_ids[1], True)
