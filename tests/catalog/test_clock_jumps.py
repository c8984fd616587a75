"""Clocks jump, stand still and run ahead; timestamps rise all the same."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headgate.api.messages import Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.errors import InTheFutureError, NotFoundError
from headgate.protocol.actions import Sequence, Version
from headgate.protocol.commit.content import Put, Staged, Way
from headgate.protocol.paths import StagedCommit
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import START_MS, add, file_content, new_txn_id

HOUR = 3_600_000


@req("CM-36")
@shows("FT1", "S19")
def test_timestamps_rise_by_one_while_the_clock_is_set_back_an_hour(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    house.propose(table.table_id, 1, add())
    house.clock.ms -= HOUR
    for version in range(2, 6):
        house.propose(table.table_id, version, add())
    stamps = [c.timestamp_ms for c in house.catalog.ratified_commits(table.table_id).commits]
    assert stamps == [START_MS + i for i in range(6)]


@req("CM-36")
@shows("FT1", "FT2", "FX15")
@pytest.mark.parametrize(
    ("offset", "is_taken"),
    [(-HOUR, False), (0, False), (1, True), (299_000, True), (300_001, False), (HOUR, False)],
)
def test_a_staged_timestamp_must_rise_and_not_run_far_ahead(
    lake: House, offset: int, is_taken: bool
) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    stamp = lake.stamp_of(table.table_id) + offset
    proposal = lake.proposal(table.table_id, 1, add(), timestamp_ms=stamp)
    answer = lake.catalog.propose(proposal)
    assert isinstance(answer, Ratified if is_taken else Rejected)
    assert lake.catalog.resolve(table.table_id).latest == (1 if is_taken else 0)
    if is_taken:
        # Commits after it stay above it, though the clock is behind.
        lake.way = Way.INLINE
        later = lake.propose(table.table_id, 2, add())
        assert isinstance(later, Ratified)
        assert later.timestamp_ms > stamp


@req("CM-36")
@shows("FT1", "FT2")
@pytest.mark.parametrize(
    ("stamp", "rule"),
    [
        ({"inCommitTimestamp": None}, "no-timestamp"),
        ({"inCommitTimestamp": START_MS - HOUR}, "timestamp-not-rising"),
        ({"inCommitTimestamp": START_MS}, "timestamp-not-rising"),
        ({"inCommitTimestamp": START_MS + HOUR}, "timestamp-ahead"),
        # Other times in the commit do not count.
        ({"inCommitTimestamp": START_MS, "timestamp": START_MS + 1}, "timestamp-not-rising"),
        ({"inCommitTimestamp": START_MS + 1, "timestamp": START_MS - HOUR}, None),
    ],
)
@pytest.mark.parametrize("house", [Way.STAGED, Way.PUT_IF_ABSENT], indirect=True)
def test_the_timestamp_in_a_commit_that_its_writer_stamped_is_what_is_judged(
    house: House, stamp: dict[str, int | None], rule: str | None
) -> None:
    table_id = house.create().table_id
    assert house.stamp_of(table_id) == START_MS
    txn_id = new_txn_id()
    content = file_content(add(), txn_id=txn_id, **stamp)  # type: ignore[arg-type]
    way: Staged | Put = Put(content=content)
    if house.way is Way.STAGED:
        staged = StagedCommit(Version(1), uuid4())
        house.log(table_id).stage(staged, content)
        way = Staged(file_name=staged.name, size=len(content))
    part = Part(table_id=table_id, version=Version(1), content=way)
    answer = house.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))
    if rule is None:
        assert isinstance(answer, Ratified)
        assert answer.timestamp_ms == START_MS + 1
    else:
        assert isinstance(answer, Rejected)
        assert [violation.rule for violation in answer.violations] == [rule]
    assert house.catalog.resolve(table_id).latest == (0 if rule else 1)


@shows("FT5")
def test_more_commits_than_milliseconds_run_ahead_and_cuts_stay_exact(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    sequences = [house.propose(table.table_id, v, add()).sequence for v in range(1, 50)]  # type: ignore[union-attr]
    stamps = [c.timestamp_ms for c in house.catalog.ratified_commits(table.table_id).commits]
    assert stamps == sorted(set(stamps))
    for version, sequence in enumerate(sequences, start=1):
        assert house.catalog.resolve(table.table_id, sequence).latest == version


@req("MT-16")
def test_a_time_gives_the_sequence_of_a_consistent_cut(inline_lake: House) -> None:
    house = inline_lake
    a, b = (house.create(name).table_id for name in "ab")
    moments = []
    for version in range(1, 6):
        house.clock.ms += 10
        txn_id = new_txn_id()
        answer = house.catalog.propose(
            Proposal(
                txn_id=txn_id,
                parts=(
                    house.part(a, version, add(), txn_id=txn_id),
                    house.part(b, version, add(), txn_id=txn_id),
                ),
            )
        )
        assert isinstance(answer, Ratified)
        moments.append(answer.timestamp_ms)
    house.clock.ms += 10
    for version, moment in enumerate(moments, start=1):
        for at in (moment, moment + 9):
            sequence = house.database.sequence_at(at)
            cut = house.database.resolve_many([a, b], sequence)
            assert [resolved.latest for resolved in cut] == [version, version]
    with pytest.raises(InTheFutureError):
        house.database.sequence_at(house.clock.ms + HOUR)
    with pytest.raises(InTheFutureError):
        house.catalog.resolve(a, Sequence(1000))
    with pytest.raises(NotFoundError):
        house.catalog.resolve(a, Sequence(0))


@shows("S18")
def test_the_catalogs_clock_never_goes_back_over_a_restart(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    before = house.propose(table.table_id, 1, add())
    house.clock.ms -= HOUR
    house.restart()
    after = house.propose(table.table_id, 2, add())
    assert isinstance(before, Ratified)
    assert isinstance(after, Ratified)
    assert after.timestamp_ms > before.timestamp_ms
    assert house.catalog.ratified_commits(table.table_id, Version(2)).latest == 2


@req("MT-16")
@shows("S19")
def test_an_inline_part_never_gets_a_staged_timestamp_its_own_table_is_past(
    inline_lake: House,
) -> None:
    house = inline_lake
    slow, fast = (house.create(name).table_id for name in "ab")
    for version in range(1, 6):
        house.propose(fast, version, add())
    txn_id = new_txn_id()
    stamp = house.stamp_of(slow) + 1
    assert stamp <= house.stamp_of(fast)
    inline_part = house.part(fast, 6, add(), txn_id=txn_id)
    house.way = Way.STAGED
    staged = house.part(slow, 1, add(), txn_id=txn_id, timestamp_ms=stamp)
    early = house.catalog.propose(Proposal(txn_id=txn_id, parts=(staged, inline_part)))
    assert isinstance(early, VersionTaken)
    assert house.catalog.resolve(fast).latest == 5
    later = house.part(slow, 1, add(), txn_id=txn_id, timestamp_ms=house.stamp_of(fast) + 1)
    answer = house.catalog.propose(Proposal(txn_id=txn_id, parts=(later, inline_part)))
    assert isinstance(answer, Ratified)
    assert {commit.timestamp_ms for commit in answer.commits.values()} == {answer.timestamp_ms}
