"""What a catalog gives up by itself, and that one of several does it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate
from headgate import failpoints
from headgate.api.messages import Answer, Proposal, Ratified, Rejected, StagingTable, VersionTaken
from headgate.catalog import housekeeping, staged_file_cleanup
from headgate.catalog.purge import Purger
from headgate.catalog.service import Catalog
from headgate.catalog.staged_file_cleanup import StagedFileCleaner
from headgate.catalog.stores.rows import AnswerRow, RejectionRow, TableRow
from headgate.catalog.tails import lease_of
from headgate.clock import SystemClock
from headgate.errors import RefusedError, VersionGoneError
from headgate.names import TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.paths import STAGED, PublishedCommit, StagedCommit
from headgate.protocol.table_states import TableStatus
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from tests.catalog.conftest import ON_DATABASES, House, first, lay, opened
from tests.catalog.fsck_steps import older_copy, problems
from tests.kit import req, shows
from tests.kit.builders import ManualClock, add, file_content, new_txn_id

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(params=[kind for kind in ON_DATABASES if kind.way is Way.STAGED], ids=str)
def staged_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A catalog on each database, whose clients stage their commits."""
    yield from opened(request, tmp_path / "lake")


def folder(house: House, table_id: TableId) -> Path:
    found = locations.store_for(house.catalog.resolve(table_id).location).local_path(STAGED)
    assert found is not None
    return Path(found)


def there(house: House, table_id: TableId) -> set[str]:
    """Name the staged files of a table that are there."""
    return {path.name for path in folder(house, table_id).iterdir()}


def of_age(house: House, table_id: TableId, ms: int, *names: str) -> None:
    """Give staged files an age, all of them unless some are named."""
    at = (house.clock.ms - ms) / 1000
    for path in folder(house, table_id).iterdir():
        if not names or path.name in names:
            os.utime(path, (at, at))


def name_of(proposal: Proposal) -> str:
    content = proposal.parts[0].content
    assert isinstance(content, Staged)
    return content.file_name


def rules(answer: Answer) -> list[str]:
    assert isinstance(answer, Rejected)
    return [violation.rule for violation in answer.violations]


@req("MN-02")
def test_places_that_were_staged_and_never_registered_are_given_up(inline_lake: House) -> None:
    catalog = inline_lake.database
    staged = catalog.stage_table()
    inline_lake.clock.ms += DAY_MS - 1
    assert catalog.keep_house() == 0
    inline_lake.clock.ms += 3600 * 1000  # the lease for keeping house has lapsed as well
    fresh = catalog.stage_table()
    assert catalog.keep_house() == 1
    with catalog._store.read() as unit:
        states = {id: unit.table(id).state.value for id in (staged.table_id, fresh.table_id)}
    assert states == {staged.table_id: "purged", fresh.table_id: "staging"}


def test_rejections_and_answers_past_their_retention_are_deleted(inline_lake: House) -> None:
    catalog, clock = inline_lake.database, inline_lake.clock
    with catalog._store.write() as unit:
        unit.insert_rejection(RejectionRow(TxnId("old"), b"", b"{}", clock.ms))
        unit.insert_answer(AnswerRow("old", b"", b"", clock.ms))
        unit.insert_rejection(RejectionRow(TxnId("new"), b"", b"{}", clock.ms + DAY_MS))
        unit.insert_answer(AnswerRow("new", b"", b"", clock.ms + DAY_MS))
    clock.ms += catalog._settings.rejections_kept_ms + 1
    catalog.keep_house()
    with catalog._store.read() as unit:
        assert (unit.rejection(TxnId("old")), unit.answer("old")) == (None, None)
        assert unit.rejection(TxnId("new")) is not None
        assert unit.answer("new") is not None


@pytest.fixture(params=[kind for kind in ON_DATABASES if kind.way is Way.INLINE], ids=str)
def old_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """A catalog on each database with one table, one commit a day, at sequence 5."""
    for house in opened(request, tmp_path / "lake"):
        house.settings = replace(house.settings, events_kept_ms=10 * DAY_MS)
        house.restart()
        table = house.create()
        for version in range(1, 5):
            house.clock.ms += DAY_MS
            house.propose(table.table_id, version, add())
        yield house


def kept_events(house: House) -> list[int]:
    return [event.sequence for event in house.database.events()]


def test_events_past_their_retention_are_deleted_except_for_the_newest(old_lake: House) -> None:
    catalog, clock = old_lake.database, old_lake.clock
    clock.ms += 8 * DAY_MS  # the third is 10 days old
    catalog.keep_house()
    assert kept_events(old_lake) == [4, 5]
    clock.ms += 1000 * DAY_MS
    catalog.keep_house()
    assert kept_events(old_lake) == [5]
    old_lake.restart()
    assert kept_events(old_lake) == [5]
    old_lake.create("next")
    assert kept_events(old_lake) == [5, 6]
    assert problems(old_lake) == []


def test_deleted_events_are_refused_with_the_sequence_to_go_on_from(old_lake: House) -> None:
    catalog = old_lake.database
    old_lake.clock.ms += 8 * DAY_MS
    catalog.keep_house()
    for after in (0, 2):
        with pytest.raises(VersionGoneError, match=r"before sequence 4 .*\s.*Read events after 3"):
            catalog.events(Sequence(after))
        with pytest.raises(VersionGoneError, match="after 3"):
            catalog.events(Sequence(after), wait_s=60)
        with pytest.raises(VersionGoneError, match="after 3"):
            catalog.put_listener("late", "https://example.com/", Sequence(after))
    assert [event.sequence for event in catalog.events(Sequence(3))] == [4, 5]
    assert [event.sequence for event in catalog.events(wait_s=60)] == [4, 5]
    assert catalog.put_listener("late", "https://example.com/", Sequence(3)).behind == 2


def test_a_time_before_the_oldest_event_has_no_sequence_any_more(old_lake: House) -> None:
    catalog = old_lake.database
    times = [event.timestamp_ms for event in catalog.events()]
    assert catalog.sequence_at(times[0] - 1) == 0
    old_lake.clock.ms += 8 * DAY_MS
    catalog.keep_house()
    assert [catalog.sequence_at(ms) for ms in times[3:]] == [4, 5]
    for ms in (0, times[0], times[3] - 1):
        with pytest.raises(VersionGoneError, match="is no longer known"):
            catalog.sequence_at(ms)


@req("CM-42")
def test_cuts_and_answers_of_commits_outlive_their_events(old_lake: House) -> None:
    catalog = old_lake.database
    [first, *_] = catalog.events()
    [commit] = first.commits
    assert first.txn_id is not None
    before = (catalog.outcome(first.txn_id), catalog.timeline(commit.table_id))
    old_lake.clock.ms += 1000 * DAY_MS
    catalog.keep_house()
    assert kept_events(old_lake) == [5]
    assert (catalog.outcome(first.txn_id), catalog.timeline(commit.table_id)) == before
    for sequence in range(1, 6):
        assert catalog.resolve(commit.table_id, Sequence(sequence)).latest == sequence - 1


def test_events_that_a_listener_has_not_received_are_kept_twice_as_long(old_lake: House) -> None:
    catalog, clock = old_lake.database, old_lake.clock
    catalog.put_listener("down", "https://example.com/", Sequence(2))
    clock.ms += 15 * DAY_MS
    catalog.keep_house()
    assert kept_events(old_lake) == [3, 4, 5]
    clock.ms += 3 * DAY_MS  # the third is 20 days old
    catalog.keep_house()
    assert kept_events(old_lake) == [4, 5]


def test_events_are_kept_for_ever_with_a_retention_of_zero(old_lake: House) -> None:
    old_lake.settings = replace(old_lake.settings, events_kept_ms=0)
    old_lake.restart()
    old_lake.clock.ms += 10_000 * DAY_MS
    old_lake.database.keep_house()
    assert kept_events(old_lake) == [1, 2, 3, 4, 5]


def test_events_are_deleted_in_bounded_transactions(
    old_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_EVENTS_PER_BATCH", 2)
    catalog = old_lake.database
    submitted: list[str] = []
    submit = catalog._ratifier.submit

    def counting(label: str, work: Any) -> Any:
        submitted.append(label)
        return submit(label, work)

    monkeypatch.setattr(catalog._ratifier, "submit", counting)
    catalog._housekeeper.run_now()
    without = len(submitted)
    submitted.clear()
    old_lake.clock.ms += 1000 * DAY_MS
    catalog._housekeeper.run_now()
    assert len(submitted) - without == 3  # two with two events, and one that finds no more
    assert kept_events(old_lake) == [5]


@req("MN-02")
@pytest.mark.parametrize(
    ("path", "is_still"),
    [("part-1.parquet", False), (PublishedCommit(Version(1)).path, True)],
    ids=["data", "a second version"],
)
@pytest.mark.parametrize("age_ms", [DAY_MS // 2, 2 * DAY_MS])
def test_a_place_somebody_still_writes_to_or_that_was_registered_is_not_given_up(
    inline_lake: House, path: str, is_still: bool, age_ms: int
) -> None:
    catalog = inline_lake.database
    staged = catalog.stage_table()
    inline_lake.clock.ms += 2 * DAY_MS
    _lay(inline_lake, staged, path, age_ms)
    is_left = age_ms > DAY_MS and not is_still
    assert catalog.keep_house() == int(is_left)
    assert [f.repaired for f in problems(inline_lake, repair=True)] == [False] * (not is_left)


@req("MN-02")
def test_a_place_that_is_registered_while_the_sweep_looks_at_it_is_kept(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, name = inline_lake.database, TableName.parse("t")
    staged = catalog.stage_table()
    lay(staged, first(staged.table_id))
    log = DeltaLog(locations.store_for(staged.location))
    path = log.store.local_path(PublishedCommit(Version(0)).path)
    os.utime(path or "", (inline_lake.clock.ms / 1000,) * 2)
    inline_lake.clock.ms += 2 * DAY_MS
    is_abandoned, seen = Purger._is_abandoned, []

    def overtaken(self: Purger, row: TableRow, before_ms: int) -> bool:
        seen.append(is_abandoned(self, row, before_ms))
        catalog.register_table(name, row.id)
        return seen[-1]

    monkeypatch.setattr(Purger, "_is_abandoned", overtaken)
    assert catalog.keep_house() == 0
    assert seen == [True]
    assert catalog.resolve(name).latest == 0
    assert log.is_published(Version(0))
    assert isinstance(inline_lake.propose(staged.table_id, 1, add()), Ratified)


def _lay(house: House, staged: StagingTable, path: str, age_ms: int) -> None:
    store = locations.store_for(staged.location)
    store.put(path, b"rows")
    at = (house.clock.ms - age_ms) / 1000
    os.utime(store.local_path(path) or "", (at, at))


def test_another_that_keeps_house_already_is_not_helped(inline_lake: House) -> None:
    catalog = inline_lake.database
    catalog.stage_table()
    inline_lake.clock.ms += 2 * DAY_MS
    now_ms = inline_lake.clock.ms
    taken = catalog._ratifier.submit(
        "lease", lambda unit: unit.acquire_lease("housekeeping", "another", now_ms, now_ms + 1000)
    )
    assert taken.result()
    assert catalog.keep_house() == 0
    inline_lake.clock.ms += 1000
    assert catalog.keep_house() == 1


@shows("FT1")
def test_a_lease_taken_by_a_clock_that_was_ahead_stops_nobody_for_long(inline_lake: House) -> None:
    catalog, clock = inline_lake.database, inline_lake.clock
    catalog.stage_table()
    clock.ms += 2 * DAY_MS
    ahead_ms = clock.ms + 365 * DAY_MS
    catalog._ratifier.submit(
        "lease", lambda unit: unit.acquire_lease("housekeeping", "another", clock.ms, ahead_ms)
    ).result()
    assert catalog.keep_house() == 0
    clock.waited_s += HOUR_MS / 1000
    assert catalog.keep_house() == 0
    clock.waited_s += 1
    assert catalog.keep_house() == 1


# Staged files


@req("MN-02", "CM-08")
@shows("FX19")
def test_files_that_lost_are_reclaimed_and_the_table_reads_as_what_won(staged_lake: House) -> None:
    house = staged_lake
    table_id = house.create().table_id
    winners, losers = [], []
    for version in (1, 2):
        winners.append(house.proposal(table_id, version, add(f"{version}.parquet")))
        losers.append(house.proposal(table_id, version, add("lost.parquet")))
        assert isinstance(house.catalog.propose(winners[-1]), Ratified)
        assert isinstance(house.catalog.propose(losers[-1]), VersionTaken)
    house.catalog.publish(table_id, Version(1))  # of the winners one is published, one is not
    (folder(house, table_id) / f".{name_of(losers[0])}.crc").write_bytes(b"Hadoop's")
    of_age(house, table_id, 30 * DAY_MS)
    house.clock.ms += HOUR_MS
    assert house.database.keep_house() == 0  # they lost an hour ago: their writers may look at them
    house.clock.ms += 1
    assert house.database.keep_house() == 2
    assert there(house, table_id) == {name_of(won) for won in winners}
    read = snapshot_loader.load(house.catalog, table_id, store_for=locations.store_for)
    assert sorted(file.path for file in read.files()) == ["1.parquet", "2.parquet"]
    assert problems(house) == []
    assert house.catalog.publish(table_id) == 2
    # A proposal as late as that gets the answer it would have got before.
    for lost in losers:
        answer = house.catalog.propose(lost)
        assert isinstance(answer, VersionTaken)
        assert answer.latest == {table_id: 2}
    for won in winners:
        assert isinstance(house.catalog.propose(won), Ratified)


@req("MN-02")
@shows("FC3")
def test_a_file_nobody_proposed_goes_after_a_day_and_is_refused_from_then_on(
    staged_lake: House,
) -> None:
    house = staged_lake
    table_id = house.create().table_id
    left = house.proposal(table_id, 1, add())
    house.clock.ms += 10 * DAY_MS
    of_age(house, table_id, DAY_MS)
    assert house.database.keep_house() == 0
    house.clock.ms += 1
    assert house.database.keep_house() == 1
    assert there(house, table_id) == set()
    for _ in range(2):
        assert rules(house.catalog.propose(left)) == ["staged-file-missing"]
    assert isinstance(house.propose(table_id, 1, add()), Ratified)


def _at(step: str, propose: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Propose right after a step of the sweep, or before its last one."""
    method = getattr(StagedFileCleaner, step)

    def crowded(*asked: object) -> object:
        if step == "_delete":
            propose()
        done = method(*asked)
        if isinstance(done, Iterator):
            done = iter(list(done))
        propose()
        return done

    patch.setattr(StagedFileCleaner, step, crowded)


@req("MN-02")
@pytest.mark.parametrize("step", ["_old", "_classified", "_given_up", "_delete"])
def test_a_file_proposed_while_the_sweep_looks_at_it_is_kept_or_refused_and_never_lost(
    staged_lake: House, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    house = staged_lake
    table_id = house.create().table_id
    late = house.proposal(table_id, 1, add())
    of_age(house, table_id, 2 * DAY_MS)
    answers: list[Answer] = []
    with monkeypatch.context() as patch:
        _at(step, lambda: answers.append(house.catalog.propose(late)), patch)
        swept = house.database.keep_house()
    assert house.catalog.propose(late) == answers[0]  # and its answer stays
    if step in ("_old", "_classified"):
        assert isinstance(answers[0], Ratified)
        assert swept == 0
        assert there(house, table_id) == {name_of(late)}
        assert house.catalog.publish(table_id) == 1
    else:
        assert rules(answers[0]) == ["staged-given-up"]
        assert swept == 1
        assert there(house, table_id) == set()
        assert isinstance(house.propose(table_id, 1, add()), Ratified)
    assert problems(house) == []


@req("MN-02")
@pytest.mark.parametrize(
    "crash",
    ["housekeeping.before_give_up", "housekeeping.after_give_up", "housekeeping.between_files@3"],
)
def test_a_sweep_cut_short_loses_nothing_and_the_next_one_ends_it(
    staged_lake: House, crash: str
) -> None:
    house = staged_lake
    table_id = house.create().table_id
    won = house.propose(table_id, 1, add())
    house.propose(table_id, 1, add())
    left = [house.proposal(table_id, 2, add()) for _ in range(2)]
    house.clock.ms += 2 * DAY_MS
    of_age(house, table_id, 2 * DAY_MS)
    point, _, nth = crash.partition("@")
    failpoints.arm(f"{point}:raise@{nth or 1}")
    try:
        with pytest.raises(failpoints.FailPointError):
            house.database.keep_house()
    finally:
        failpoints.arm("")
    house.restart()
    answer = house.catalog.propose(left[0])
    if crash == "housekeeping.before_give_up":
        assert isinstance(answer, Ratified)  # nothing has happened yet
    else:
        assert rules(answer)[0] in ("staged-given-up", "staged-file-missing")
    house.clock.ms += 2 * DAY_MS
    house.database.keep_house()
    assert isinstance(won, Ratified)
    kept = {won.commits[table_id].file_name}
    if isinstance(answer, Ratified):
        kept.add(answer.commits[table_id].file_name)
    else:
        assert rules(house.catalog.propose(left[1])) == ["staged-file-missing"]
    assert there(house, table_id) == kept
    assert problems(house) == []


@shows("FS3")
def test_a_catalog_that_is_an_older_copy_gives_up_nothing_of_what_it_forgot(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.STAGED, ManualClock())
    table_id = house.create().table_id
    house.propose(table_id, 1, add())
    older_copy(house, table_id, commits=2)
    of_age(house, table_id, 30 * DAY_MS)
    before = there(house, table_id)
    assert house.database.keep_house() == 0
    assert there(house, table_id) == before
    house.close()


KINDS = st.sampled_from(["lost", "won", "ahead", "far ahead", "no commit"])
AGES_MS = st.sampled_from(
    [-DAY_MS, 0, HOUR_MS - 1000, HOUR_MS + 1000, DAY_MS - 1000, DAY_MS + 1000]
)


@req("MN-02")
@shows("S9", "S13")
@pytest.mark.slow
@given(st.lists(st.tuples(KINDS, AGES_MS), max_size=12), st.integers(1, 4), st.sampled_from([0, 1]))
@settings(max_examples=40, deadline=None)
def test_what_goes_is_what_no_commit_names_and_is_old_whatever_lies_there(
    files: list[tuple[str, int]], deletions: int, set_back: int
) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_file_cleanup, "_DELETED", deletions)
        house = House(Path(root) / "lake", Way.STAGED, ManualClock())
        table_id = house.create().table_id
        house.clock.ms += 10 * DAY_MS
        winners = max(1, sum(kind == "won" for kind, _ in files))
        won = []
        for number in range(winners):
            won.append(house.proposal(table_id, number + 1, add()))
            assert isinstance(house.catalog.propose(won[-1]), Ratified)
        house.clock.ms += 2 * DAY_MS
        ages = dict(zip(map(name_of, won), [2 * DAY_MS] * winners, strict=True))
        kept = set(ages)
        names = iter(map(name_of, won))
        for number, (kind, age_ms) in enumerate(files):
            version = {"lost": number % winners + 1, "ahead": winners + 1}.get(kind, 10**12)
            name = StagedCommit(Version(version), uuid4()).name
            if kind == "won":
                name = next(names)
            elif kind == "no commit":
                name = f"{number}.json.tmp"
            (folder(house, table_id) / name).touch()
            ages[name] = age_ms
            limit_ms = {"lost": HOUR_MS, "ahead": DAY_MS, "far ahead": DAY_MS}.get(kind)
            if limit_ms is None or age_ms <= limit_ms or set_back:
                kept.add(name)
        for name, age_ms in ages.items():
            of_age(house, table_id, age_ms, name)
        house.clock.ms -= set_back * 40 * DAY_MS
        turns = [house.database.keep_house() for _ in range(20)]
        assert max(turns) <= deletions
        assert sum(turns) == len(ages) - len(kept)
        assert there(house, table_id) == kept
        house.close()


def test_a_turn_does_so_much_and_the_next_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_file_cleanup, "_TABLES", 2)
    monkeypatch.setattr(staged_file_cleanup, "_FILES", 3)
    house = House(tmp_path / "lake", Way.STAGED, ManualClock())
    tables = [house.create(f"t{number}").table_id for number in range(5)]
    for table_id in tables:
        house.propose(table_id, 1, add())
        for _ in range(3):
            house.propose(table_id, 1, add())
    house.clock.ms += 2 * DAY_MS
    for table_id in tables:
        of_age(house, table_id, 2 * DAY_MS)
    went = []
    for _ in range(12):
        went.append(house.database.keep_house())
        house.restart()  # the next process knows where it stopped
    assert max(went) <= 3
    assert [len(there(house, table_id)) for table_id in tables] == [1] * 5
    house.close()


def test_a_table_whose_storage_cannot_be_read_does_not_keep_the_others_from_their_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(tmp_path / "lake", Way.STAGED, ManualClock())
    broken, sound = house.create("a").table_id, house.create("b").table_id
    for table_id in (broken, sound):
        house.propose(table_id, 1, add())
        house.propose(table_id, 1, add())
    house.clock.ms += 2 * DAY_MS
    of_age(house, sound, 2 * DAY_MS)
    staged = folder(house, broken)
    staged.rename(tmp_path / "elsewhere")
    staged.symlink_to(tmp_path / "elsewhere")
    assert house.database.keep_house() == 1
    assert "cannot clean up" in caplog.text
    assert len(there(house, sound)) == 1
    house.close()


def test_two_that_sweep_at_once_do_no_harm(staged_lake: House) -> None:
    house = staged_lake
    table_id = house.create().table_id
    house.propose(table_id, 1, add())
    house.propose(table_id, 1, add())
    house.proposal(table_id, 2, add())
    house.clock.ms += 2 * DAY_MS
    of_age(house, table_id, 2 * DAY_MS)
    first, other = house.database, house._open()
    assert isinstance(other, Catalog)
    method = StagedFileCleaner._delete

    def meanwhile(*asked: object) -> None:
        StagedFileCleaner._delete = method  # type: ignore[method-assign]
        assert other._housekeeper.run_now() == 2
        method(*asked)  # type: ignore[arg-type]

    try:
        StagedFileCleaner._delete = meanwhile  # type: ignore[method-assign,assignment]
        assert first.keep_house() == 2
    finally:
        StagedFileCleaner._delete = method  # type: ignore[method-assign]
        other.close()
    assert len(there(house, table_id)) == 1
    assert problems(house) == []


# In a lake without a server


@req("MN-02")
@shows("FC1")
def test_an_embedded_lake_keeps_house_while_it_is_open(tmp_path: Path) -> None:
    soon = Settings(housekeeping_ms=20, staging_kept_ms=1)
    with headgate.connect(tmp_path / "lake", publisher=False, settings=soon) as session:
        left = session.catalog.stage_table()  # type: ignore[attr-defined]
        store = locations.store_for(left.location)
        content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=1)
        store.put(PublishedCommit(Version(0)).path, content)
        store.put("part-1.parquet", b"rows")
        clock = SystemClock()
        clock.sleep(0.1)
        assert len(list(store.list("", recursive=True))) == 2  # nothing runs in the background here
    with headgate.connect(tmp_path / "lake", settings=soon):
        until = clock.monotonic() + 20
        while list(store.list("", recursive=True)) and clock.monotonic() < until:
            clock.sleep(0.01)
    assert list(store.list("", recursive=True)) == []


def test_a_short_command_passes_by_without_keeping_house(tmp_path: Path) -> None:
    kept = Settings(staging_kept_ms=0)
    with headgate.connect(tmp_path / "lake", settings=kept) as session:
        left = session.catalog.stage_table()  # type: ignore[attr-defined]
        locations.store_for(left.location).put("part-1.parquet", b"rows")
    with headgate.connect(tmp_path / "lake", settings=kept) as session:
        [found] = session.fsck()
        assert (found.rule, found.table) == ("MN-02", left.table_id)
        assert "fsck --repair" in found.remedy
        assert left.location in found.says
        [found] = session.fsck(repair=True)
        assert found.repaired
        assert session.fsck() == ()
    with suppress(FileNotFoundError):
        assert list(locations.store_for(left.location).list("", recursive=True)) == []


# Links


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder that no table has anything to do with."""
    folder = tmp_path.resolve() / "victim"
    (folder / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (folder / "secret.parquet").write_bytes(b"secret")
    (folder / "_delta_log" / f"{0:020d}.json").write_bytes(b"{}")
    return folder


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def swap(folder: Path, target: Path) -> None:
    """Put a link in the place of a folder."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-aside"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)


@req("CM-40")
def test_a_purge_waits_for_the_process_that_publishes_the_table(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, store = inline_lake, inline_lake.database._store
    table_id = house.create().table_id
    house.database.publish(table_id)
    house.database.drop_table(table_id)
    with store.write() as unit:
        now_ms = house.clock.ms
        assert unit.acquire_lease(lease_of(table_id), "another", now_ms, now_ms + 60_000)
    states: list[TableStatus] = []

    def sleep(seconds: float) -> None:
        [entry] = house.database.tables(dropped=True)
        states.append(entry.state)  # a file that is being published now would be left behind
        if len(states) == 3:
            with store.write() as unit:
                unit.release_lease(lease_of(table_id), "another")

    monkeypatch.setattr(house.clock, "sleep", sleep)
    assert house.database.purge_table(table_id) > 0
    assert states == [TableStatus.DROPPED] * 3


def test_a_purge_removes_a_link_in_the_tables_place_and_nothing_behind_it(
    inline_lake: House, victim: Path
) -> None:
    table = inline_lake.create()
    inline_lake.database.publish(table.table_id)
    before = tree(victim)
    inline_lake.database.drop_table(table.table_id)
    swap(local(table.location), victim)
    assert inline_lake.database.purge_table(table.table_id) == 0
    assert not local(table.location).is_symlink()
    assert tree(victim) == before


@pytest.mark.parametrize("inside", ["linked", "_delta_log/linked", "_delta_log/_staged_commits"])
def test_a_purge_removes_links_within_the_table_and_nothing_behind_them(
    inline_lake: House, victim: Path, inside: str
) -> None:
    table = inline_lake.create()
    inline_lake.database.publish(table.table_id)
    before = tree(victim)
    inline_lake.database.drop_table(table.table_id)
    swap(local(table.location) / inside, victim)
    assert inline_lake.database.purge_table(table.table_id) == 1
    assert not local(table.location).exists()
    assert tree(victim) == before


def test_a_purge_is_refused_where_a_folder_above_the_table_became_a_link(
    inline_lake: House, victim: Path, tmp_path: Path
) -> None:
    catalog = inline_lake.database
    place = tmp_path.resolve() / "landing" / "deep" / "t"
    staged = catalog.stage_table(str(place))
    other = catalog.stage_table()
    (victim / "t").mkdir()
    (victim / "t" / "secret").write_bytes(b"secret")
    before = tree(victim)
    swap(place.parent, victim)
    inline_lake.clock.ms += 400 * DAY_MS
    assert set(catalog.expire_staging(DAY_MS)) == {staged.table_id, other.table_id}
    assert tree(victim) == before
    with pytest.raises(RefusedError, match="link"):
        catalog.purge_table(staged.table_id)
    with catalog._store.read() as unit:  # the other one did not have to wait for it
        [left] = [row for row in unit.tables_in_state(TableStatus.PURGED) if row.purged_ms is None]
    assert left.id == staged.table_id
    place.parent.unlink()
    assert catalog.purge_table(staged.table_id) == 0


@pytest.mark.parametrize("target", ["victim", "lake"], ids=["out of the table", "within it"])
def test_staged_files_behind_a_link_are_not_swept(
    inline_lake: House, victim: Path, target: str
) -> None:
    catalog = inline_lake.database
    table = inline_lake.create()
    catalog.publish(table.table_id)
    staged = local(table.location) / "_delta_log" / "_staged_commits"
    elsewhere = victim if target == "victim" else local(table.location) / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    file = elsewhere / f"{1:020d}.{uuid4()}.json"
    file.write_bytes(b"{}")
    os.utime(file, (0, 0))
    swap(staged, elsewhere)
    inline_lake.clock.ms += 400 * DAY_MS
    catalog.keep_house()
    assert file.exists()
