"""Publishing Commits: files get other times when they are published, copied or restored; time
travel goes by what the commits say and stays where it was."""

import os
import random

import pytest

from headgate.errors import HeadgateError, InTheFutureError
from headgate.protocol.commit.content import Way
from tests.conformance.conftest import (
    Lake,
    Story,
    TerseCatalog,
    content,
    directory,
    ours,
    published,
)
from tests.kit import req, shows
from tests.kit.other_readers import duckdb_reads, rows


def shuffle_times(story: Story, seed: int) -> None:
    """Give every file of the table another time, as a restore from a backup does."""
    chance = random.Random(seed)
    for path in directory(story.location).rglob("*"):
        moment = chance.randrange(2 * 10**9)
        os.utime(path, (moment, moment))


def versions_by_time(lake: Lake, story: Story, *, terse: bool) -> dict[int, int | str]:
    """Ask for the version at every commit's time, just before and just after it."""
    catalog = TerseCatalog(lake.catalog) if terse else lake.catalog
    found: dict[int, int | str] = {}
    for moment in sorted({t + d for t in story.times_ms for d in (-1, 0, 1, 500)}):
        table = lake.through(catalog).table("orders")
        try:
            found[moment] = table.snapshot(as_of=moment).version
        except HeadgateError as error:
            found[moment] = error.code
    return found


def by_the_model(story: Story, moment: int) -> int | str:
    before = [version for version, time in enumerate(story.times_ms) if time <= moment]
    return before[-1] if before else "version-gone"


@req("CM-38")
@shows("FT4", "FT3", "S19")
@pytest.mark.slow
@pytest.mark.parametrize("terse", [False, True], ids=["full description", "least description"])
def test_time_travel_goes_by_the_commits_whatever_the_file_times_say(
    lake: Lake, terse: bool
) -> None:
    story = lake.story()
    story.write()
    story.publish(6)
    story.checkpoint(3)
    lake.forget()
    wanted = {
        moment: by_the_model(story, moment) for moment in versions_by_time(lake, story, terse=terse)
    }
    assert set(wanted.values()) == {*range(story.latest + 1), "version-gone"}
    for seed in range(3):
        shuffle_times(story, seed)
        assert versions_by_time(lake, story, terse=terse) == wanted


@req("CM-38")
@shows("FT4")
@pytest.mark.slow
def test_rows_at_a_time_are_the_same_before_and_after_publishing(lake: Lake) -> None:
    story = lake.story()
    story.write()
    for step in (None, 4, story.latest):
        if step is not None:
            story.publish(step)
            shuffle_times(story, step)
            lake.forget()
        for version, moment in enumerate(story.times_ms):
            assert rows(lake.table().to_arrow(as_of=moment)) == story.rows_at(version)


@shows("S19")
def test_times_of_commits_rise_though_the_clock_stands_still_or_goes_back(lake: Lake) -> None:
    story = lake.story()
    for step, way in enumerate((Way.INLINE, Way.STAGED) * 4):
        story.append(step, way=way)
        lake.clock.ms -= 1500
    assert story.times_ms == sorted(set(story.times_ms))
    for version, moment in enumerate(story.times_ms[:-1]):
        assert lake.table().snapshot(as_of=moment).version == version


@req("CM-38")
@shows("FT3")
def test_a_time_after_the_last_commit_is_the_latest_version_and_one_to_come_is_refused(
    lake: Lake,
) -> None:
    story = lake.story()
    story.write()
    lake.clock.ms += 60_000
    assert lake.table().snapshot(as_of=lake.clock.ms).version == story.latest
    with pytest.raises(InTheFutureError):  # another commit may still come before it
        lake.table().snapshot(as_of=lake.clock.ms + 3_600_000)


@req("CM-24")
@shows("S10", "S11")
def test_published_is_what_was_ratified_byte_for_byte_staged_and_inline(lake: Lake) -> None:
    story = lake.story()
    story.write()
    ratified = [content(lake, story.id, version) for version in range(story.latest + 1)]
    for upto in range(story.latest + 1):
        story.publish(upto)
        for version in range(story.latest + 1):
            path = published(story.location, version)
            assert path.exists() is (version <= upto)
            if version <= upto:
                assert path.read_bytes() == ratified[version]


@req("CM-26")
def test_the_latest_version_is_known_after_all_is_published_and_forgotten(lake: Lake) -> None:
    story = lake.story()
    story.write()
    story.publish()
    story.checkpoint(story.latest)
    lake.forget()
    for path in (directory(story.location) / "_delta_log" / "_staged_commits").iterdir():
        path.unlink()
    assert lake.connect().table("orders").version == story.latest
    assert ours(lake.table()) == story.rows_at(story.latest)
    assert duckdb_reads(lake.resolve(), lake.scratch) == story.rows_at(story.latest)
