import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import MalformedError, VersionGoneError
from headgate.protocol.actions import Version
from headgate.protocol.log import timestamps
from headgate.protocol.log.timestamps import Enablement, next_clock, next_timestamp, version_at
from tests.kit import shows

relaxed = settings(deadline=None)
times = st.integers(0, 10_000)


def kept(*timestamps_ms: int, first: int = 0) -> list[tuple[Version, int]]:
    return [(Version(first + n), timestamp_ms) for n, timestamp_ms in enumerate(timestamps_ms)]


@given(times, times, st.lists(times))
@relaxed
def test_a_timestamp_is_after_every_tables_newest_and_never_behind(
    now_ms: int, clock_ms: int, newest: list[int]
) -> None:
    chosen = next_timestamp(now_ms, clock_ms, newest)
    assert all(chosen > timestamp_ms for timestamp_ms in newest)
    assert chosen >= max(now_ms, clock_ms)
    assert chosen in {now_ms, clock_ms, *(timestamp_ms + 1 for timestamp_ms in newest)}


def test_a_clock_set_back_an_hour_gives_previous_plus_one() -> None:
    assert next_timestamp(now_ms=10_000_000, clock_ms=13_600_000, newest=[13_600_000]) == 13_600_001


@given(times, st.lists(st.tuples(times, st.integers(0, 3_000)), min_size=1))
@relaxed
def test_the_clock_never_goes_back_and_never_runs_far_ahead(
    clock_ms: int, steps: list[tuple[int, int]]
) -> None:
    for now_ms, ahead_ms in steps:
        after_ms = next_clock(clock_ms, now_ms + ahead_ms, now_ms)
        assert after_ms >= clock_ms
        assert after_ms <= max(clock_ms, now_ms + timestamps.DRIFT_MS)
        clock_ms = after_ms


def test_the_clock_stands_where_the_timestamp_does_when_nothing_runs_ahead() -> None:
    assert next_clock(clock_ms=5, timestamp_ms=900, now_ms=900) == 900


# Time travel


@shows("FT3")
@pytest.mark.parametrize(
    ("timestamp_ms", "version"),
    [(100, 4), (101, 4), (199, 4), (200, 5), (300, 6), (301, 6), (1_000, 6)],
)
def test_a_time_belongs_to_the_last_commit_not_after_it(timestamp_ms: int, version: int) -> None:
    commits = kept(100, 200, 300, first=4)
    assert version_at(commits, timestamp_ms) == version


@shows("FT3")
def test_a_time_before_the_first_kept_commit_is_gone() -> None:
    with pytest.raises(VersionGoneError, match="version 4"):
        version_at(kept(100, 200, first=4), 99)


def test_nothing_kept_is_gone() -> None:
    with pytest.raises(VersionGoneError):
        version_at([], 5)


@given(st.lists(times, min_size=1, unique=True).map(sorted), times)
@relaxed
def test_time_travel_agrees_with_looking_at_every_commit(
    timestamps_ms: list[int], wanted_ms: int
) -> None:
    commits = kept(*timestamps_ms)
    at_or_before = [version for version, at_ms in commits if at_ms <= wanted_ms]
    if at_or_before:
        assert version_at(commits, wanted_ms) == at_or_before[-1]
    else:
        with pytest.raises(VersionGoneError):
            version_at(commits, wanted_ms)


# Tables whose first commits had no timestamps of their own

ENABLED = Enablement(Version(2), 1_000)


def test_the_enablement_is_read_from_properties() -> None:
    properties = {
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": "1000",
    }
    assert timestamps.enablement(properties) == ENABLED
    assert timestamps.enablement({}) is None


def test_an_enablement_that_is_no_number_is_malformed() -> None:
    properties = {
        "delta.inCommitTimestampEnablementVersion": "two",
        "delta.inCommitTimestampEnablementTimestamp": "1000",
    }
    with pytest.raises(MalformedError, match="two"):
        timestamps.enablement(properties)


@given(st.lists(times))
@relaxed
def test_disturbed_file_times_are_pushed_up_until_they_rise(timestamps_ms: list[int]) -> None:
    risen = timestamps.rising(kept(*timestamps_ms))
    assert [version for version, _ in risen] == list(range(len(timestamps_ms)))
    assert all(early < late for (_, early), (_, late) in itertools.pairwise(risen))
    assert all(at >= before for (_, at), before in zip(risen, timestamps_ms, strict=True))


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_794_856_589_501, "2026-11-16T19:16:29.501Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (10**20, "100000000000000000000 ms since 1970"),
    ],
)
def test_a_moment_is_written_as_people_read_it(timestamp_ms: int, text: str) -> None:
    assert timestamps.moment(timestamp_ms) == text
