"""Reading Catalog-managed Tables: the catalog first, its commits before the published ones,
nothing beyond its latest version. DuckDB, given the same tail, reads the same rows."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

import headgate
from headgate.errors import HeadgateError, LogDivergedError
from headgate.protocol.actions import Version, decode
from headgate.protocol.commit.content import Way
from headgate.protocol.log import replay
from headgate.storage import locations
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectStore
from headgate.table.checkpoint_writer import write_checkpoint
from tests.conformance.conftest import (
    Intruder,
    Lake,
    Meanwhile,
    Story,
    TerseCatalog,
    directory,
    log_of,
    ours,
    published,
)
from tests.kit import req, shows
from tests.kit.faulty_stores import Call, CountingStore, ShufflingStore, StaleListStore
from tests.kit.other_readers import duckdb_reads, duckdb_reads_tail, tail_of


def both_read(lake: Lake, story: Story, version: int | None = None) -> None:
    """See that we and DuckDB read what the model says."""
    wanted = story.rows_at(story.latest if version is None else version)
    assert ours(lake.table(story.name), version) == wanted
    assert duckdb_reads(lake.resolve(story.name), lake.scratch, version) == wanted


# The tail


@req("CM-15")
@shows("FX13")
@pytest.mark.slow
def test_a_tail_of_any_length_is_read_as_duckdb_reads_it(lake: Lake) -> None:
    story = lake.story()
    story.write()
    for upto in range(story.latest):
        story.publish(upto)
        lake.forget()
        resolved = lake.resolve()
        assert [commit.version for commit in resolved.commits] == [*range(upto + 1, 10)]
        assert len(tail_of(resolved, lake.scratch)) == story.latest - upto
        both_read(lake, story)


@req("CM-15")
@shows("FX13", "S16")
@pytest.mark.slow
@pytest.mark.parametrize("upto", [0, 4, 8])
def test_every_version_is_read_as_duckdb_reads_it_while_a_tail_is_unpublished(
    lake: Lake, upto: int
) -> None:
    story = lake.story()
    story.write()
    story.publish(upto)
    lake.forget()
    for version in range(story.latest + 1):
        both_read(lake, story, version)


@req("CM-15", "CM-16")
@pytest.mark.slow
def test_a_checkpoint_below_the_tail_changes_nothing(lake: Lake) -> None:
    story = lake.story()
    story.write()
    story.publish(7)
    story.checkpoint(5)
    lake.forget()
    for version in range(5):
        published(story.location, version).unlink()
    for version in range(5, story.latest + 1):
        both_read(lake, story, version)


# What others put into the log


@req("CM-17")
@shows("FP4", "FX13")
@pytest.mark.parametrize("terse", [False, True], ids=["full description", "least description"])
def test_where_an_intruder_put_other_bytes_the_catalogs_commit_is_read(
    lake: Lake, terse: bool
) -> None:
    story = lake.story()
    story.write()
    story.publish(4)
    lake.forget()
    for version in range(5, story.latest + 1):  # staged and inline, unpublished all of them
        Intruder(story.location).put(version)
    catalog = TerseCatalog(lake.catalog) if terse else lake.catalog
    table = lake.through(catalog).table("orders")
    resolved = catalog.resolve(table.id)
    for version in range(5, story.latest + 1):
        assert ours(table, version) == story.rows_at(version)
        assert duckdb_reads(resolved, lake.scratch, version) == story.rows_at(version)
    fooled = duckdb_reads_tail(story.location, [], 5)  # without its tail it is not
    assert Intruder.MARK in {row[0] for row in fooled.values}


@req("CM-17")
@shows("FP4")
def test_a_published_file_that_was_replaced_is_ignored_while_the_catalog_lists_its_commit(
    lake: Lake,
) -> None:
    story = lake.story()
    story.write()
    story.publish(7)
    for version in range(1, 8):
        Intruder(story.location).put(version)
    assert [commit.version for commit in lake.resolve().commits] == [*range(10)]
    both_read(lake, story)
    Intruder(story.location).put(8)
    with pytest.raises(LogDivergedError):  # publishing compares, and goes no further
        story.publish(8)
    both_read(lake, story)


def put_beyond(story: Story, lake: Lake) -> list[Path]:
    """Put files of every kind beyond the latest version, each with a row of an intruder's."""
    beyond, log = Version(story.latest + 1), log_of(story.location)
    intruding = Intruder(story.location).put(beyond)
    snapshot = lake.table(story.name).snapshot()
    state = replay.apply(snapshot.state, beyond, decode(intruding))
    write_checkpoint(snapshot.store, state, table="beyond", now_ms=0, new_uuid=uuid4)
    Intruder(story.location).put(beyond + 1)
    compacted = log / f"{beyond - 2:020d}.{beyond:020d}.compacted.json"
    compacted.write_bytes(intruding)
    checksum = log / f"{beyond:020d}.crc"
    checksum.write_text(json.dumps({"tableSizeBytes": 1, "numFiles": 1}))
    made = [*log.glob(f"{beyond:020d}*"), *log.glob(f"{beyond + 1:020d}*")]
    made += [compacted, log / "_last_checkpoint"]
    assert len(set(made)) == 6
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == beyond
    return made


@req("CM-18")
@shows("FR3", "FX13")
@pytest.mark.parametrize("terse", [False, True], ids=["full description", "least description"])
def test_files_beyond_the_latest_version_are_ignored(lake: Lake, terse: bool) -> None:
    story = lake.story()
    story.write()
    story.publish(6)
    lake.forget()
    put_beyond(story, lake)
    catalog = TerseCatalog(lake.catalog) if terse else lake.catalog
    table = lake.through(catalog).table("orders")
    assert table.version == story.latest
    assert ours(table) == story.rows_at(story.latest)
    resolved = catalog.resolve(table.id)
    assert duckdb_reads(resolved, lake.scratch) == story.rows_at(story.latest)


@req("CM-18", "RD-05")
@shows("FR3")
@pytest.mark.parametrize("upto", [7, 9], ids=["with a tail", "with nothing unpublished"])
def test_files_beyond_the_latest_version_are_ignored_where_the_log_has_to_be_listed(
    lake: Lake, upto: int
) -> None:
    story = lake.story()
    story.write()
    listing_needed(lake, story, upto)
    put_beyond(story, lake)
    counted = counting(story)
    catalog = TerseCatalog(lake.catalog)
    table = lake.through(catalog).table("orders")
    assert table.version == story.latest
    assert ours(table) == story.rows_at(story.latest)
    assert counted.count("list") > 0
    resolved = catalog.resolve(table.id)
    assert duckdb_reads(resolved, lake.scratch) == story.rows_at(story.latest)


@req("CM-17")
@shows("FP4")
def test_the_catalogs_commits_are_read_also_where_the_log_has_to_be_listed(lake: Lake) -> None:
    story = lake.story()
    story.write()
    listing_needed(lake, story, 7)
    for version in (8, 9):
        Intruder(story.location).put(version)
    log = log_of(story.location)
    (log / f"{8:020d}.{9:020d}.compacted.json").write_bytes(Intruder(story.location).commit(9))
    counted = counting(story)
    catalog = TerseCatalog(lake.catalog)
    table = lake.through(catalog).table("orders")
    assert ours(table) == story.rows_at(9)
    assert ours(table, 8) == story.rows_at(8)
    assert counted.count("list") > 0
    assert duckdb_reads(catalog.resolve(table.id), lake.scratch) == story.rows_at(9)


@req("CM-16")
def test_checkpoints_and_compactions_beyond_the_version_asked_for_are_not_used(lake: Lake) -> None:
    story = lake.story()
    story.write()
    listing_needed(lake, story, 8)
    story.checkpoint(8)
    net = b"".join(published(story.location, version).read_bytes() for version in (6, 7, 8))
    (log_of(story.location) / f"{6:020d}.{8:020d}.compacted.json").write_bytes(net)
    session = lake.through(TerseCatalog(lake.catalog))
    for version in range(5, story.latest + 1):
        assert ours(session.table("orders"), version) == story.rows_at(version)


def listing_needed(lake: Lake, story: Story, upto: int) -> None:
    """Publish, and clean so much away that only a listing shows where to begin."""
    story.publish(upto)
    story.checkpoint(5)
    lake.forget()
    for version in range(5):
        published(story.location, version).unlink()


# The order and the freshness of listings


def counting(
    story: Story, how: Callable[[ObjectStore], ObjectStore] = lambda store: store
) -> CountingStore:
    """Serve the table's location by a store that counts, and may misbehave."""
    store = CountingStore(how(LocalStore(directory(story.location))))
    locations.mount(story.location, store)
    return store


def long_story(lake: Lake) -> Story:
    """Tell so long a history that its published part is not read by names alone."""
    story = lake.story()
    story.write()
    for number in range(80):
        story.set_property(str(number))
    story.append(100, 101, 102)
    story.publish(20)
    story.checkpoint(7)
    story.checkpoint(20)
    story.publish(story.latest - 3)
    lake.forget()
    return story


@req("RD-05")
@shows("FP17")
@pytest.mark.slow
def test_the_order_of_a_listing_and_what_it_lags_behind_change_no_snapshot(lake: Lake) -> None:
    story = long_story(lake)
    (log_of(story.location) / "_last_checkpoint").unlink()
    asked = [3, 7, 8, 20, 21, 50, story.latest - 1, story.latest]

    def unfresh(store: ObjectStore, seed: int) -> ObjectStore:
        """Have the listing lack some of what is there."""
        hidden = random.Random(seed).sample(sorted(log_of(story.location).iterdir()), 30)
        stale = StaleListStore(store, lag=30)
        for path in hidden:
            kept = path.read_bytes() if path.is_file() else None
            if kept is not None:
                path.unlink()
                stale.put(f"_delta_log/{path.name}", kept)
        return stale

    for seed in range(4):
        for way in (
            lambda store, seed=seed: ShufflingStore(store, seed),
            lambda store, seed=seed: unfresh(store, seed),
        ):
            counted = counting(story, way)
            session = lake.through(TerseCatalog(lake.catalog))
            for version in asked:
                assert ours(session.table("orders"), version) == story.rows_at(version)
            assert counted.count("list") > 0


@req("RD-05")
@shows("FP17")
@pytest.mark.slow
def test_a_store_that_lists_nothing_at_all_makes_no_version_older(lake: Lake) -> None:
    story = long_story(lake)

    class Blind(CountingStore):
        def list(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            self.around(Call("list", ("",)), lambda: None)
            return iter(())

    locations.mount(story.location, blind := Blind(LocalStore(directory(story.location))))
    table = lake.through(TerseCatalog(lake.catalog)).table("orders")
    assert table.version == story.latest
    assert ours(table) == story.rows_at(story.latest)
    assert blind.count("list") > 0


# What goes missing


def log_files(story: Story) -> list[Path]:
    return sorted(path for path in log_of(story.location).rglob("*") if path.is_file())


def right_or_refused(session: headgate.Session, story: Story) -> list[bool]:
    """Read every version: the right rows, or an error. Say which it was."""
    answers = []
    for version in range(story.latest + 1):
        try:
            found = ours(session.table("orders"), version)
        except HeadgateError:
            answers.append(False)
        else:
            assert found == story.rows_at(version)
            answers.append(True)
    return answers


@req("RD-06")
@shows("FR4")
@pytest.mark.slow
@pytest.mark.parametrize("terse", [False, True], ids=["full description", "least description"])
def test_files_that_go_missing_one_by_one_never_make_a_version_smaller(
    lake: Lake, terse: bool
) -> None:
    story = lake.story()
    story.write()
    story.publish(6)
    story.checkpoint(4)
    lake.forget()
    session = lake.through(TerseCatalog(lake.catalog) if terse else lake.catalog)
    assert all(right_or_refused(session, story))
    answers = []
    for path in log_files(story):
        kept = path.read_bytes()
        path.unlink()
        answers += right_or_refused(session, story)
        path.write_bytes(kept)
    assert any(answers)
    assert not all(answers)


@req("RD-06")
@pytest.mark.slow
def test_any_files_that_go_missing_together_never_make_a_version_smaller(lake: Lake) -> None:
    story = lake.story()
    story.write()
    story.publish(6)
    story.checkpoint(2)
    story.checkpoint(4)
    lake.forget()
    sessions = [lake.through(c) for c in (lake.catalog, TerseCatalog(lake.catalog))]
    chance = random.Random(5)
    for _ in range(12):
        gone = {path: path.read_bytes() for path in log_files(story) if chance.random() < 0.3}
        for path in gone:
            path.unlink()
        for session in sessions:
            right_or_refused(session, story)
        for path, kept in gone.items():
            path.write_bytes(kept)


@req("RD-06")
@shows("FR4")
def test_a_staged_file_that_went_is_replaced_by_its_published_twin_and_by_nothing_else(
    lake: Lake,
) -> None:
    story = lake.story()
    story.write()
    story.publish(5)  # listed still: the catalog goes on naming the staged files
    for path in (log_of(story.location) / "_staged_commits").iterdir():
        if int(path.name[:20]) <= 5:
            path.unlink()
    assert ours(lake.table()) == story.rows_at(story.latest)
    Intruder(story.location).put(5)
    table = lake.table()  # the catalog describes it
    with pytest.raises(HeadgateError, match="version 5 was ratified"):
        table.to_arrow()


# What happens between asking and reading


@req("RD-01")
@shows("FX1", "FR2", "S16")
@pytest.mark.slow
@pytest.mark.parametrize("terse", [False, True], ids=["full description", "least description"])
@pytest.mark.parametrize("asked", [0, 4, 9])
def test_what_is_published_forgotten_and_cleaned_between_asking_and_reading_hides_nothing(
    lake: Lake, terse: bool, asked: int
) -> None:
    story = lake.story()
    story.write()
    story.publish(2)
    lake.forget()
    wanted = story.rows
    further = itertools.count(1000)

    def publish_all() -> None:
        story.append(next(further), way=Way.STAGED)
        story.publish()
        story.checkpoint(story.latest)
        lake.forget()
        for path in (log_of(story.location) / "_staged_commits").iterdir():
            path.unlink()

    catalog = TerseCatalog(lake.catalog) if terse else lake.catalog
    table = lake.through(Meanwhile(catalog, publish_all)).table("orders")
    assert table.version == 9  # as it was answered
    assert ours(table, asked) == wanted[asked]
    assert ours(lake.table()) == story.rows_at(story.latest)
