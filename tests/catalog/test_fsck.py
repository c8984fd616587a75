"""Compare a catalog with the logs of its tables: damage is found and named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import apsw
import pyarrow as pa
import pytest

import headgate
from headgate import failpoints
from headgate.api.messages import (
    Answer,
    Proposal,
    Ratified,
    Resolved,
    Severity,
    VersionTaken,
)
from headgate.catalog.proposer import StagedProposal
from headgate.catalog.publisher import Publisher
from headgate.errors import LogAheadError, UnavailableError
from headgate.protocol.actions import Version
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import (
    LOG,
    STAGED,
    PublishedCommit,
    StagedCommit,
)
from headgate.settings import Settings
from headgate.storage import locations
from headgate.table.log_files import DeltaLog
from tests.catalog.conftest import House
from tests.catalog.fsck_steps import older_copy, path_on_disk, problems
from tests.kit import req, shows
from tests.kit.builders import (
    START_MS,
    add,
    file_content,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
    remove,
)


def test_a_sound_lake_has_no_findings(lake: House) -> None:
    table = lake.create()
    for version in range(1, 6):
        lake.propose(table.table_id, version, add())
    assert problems(lake) == []
    lake.catalog.publish(table.table_id, Version(3))
    assert problems(lake) == []


# An older copy of a database is made by copying its file.
@shows("FS3")
@pytest.mark.parametrize("lake", [Way.INLINE, Way.STAGED], indirect=True)
def test_an_older_copy_of_the_database_is_noticed_before_it_ratifies_and_mended(
    lake: House,
) -> None:
    table, other = lake.create(), lake.create("other")
    lake.propose(table.table_id, 1, add())
    older_copy(lake, table.table_id, commits=3)
    contents = [lake.log(table.table_id).read_published(Version(version)) for version in range(5)]
    assert lake.catalog.resolve(table.table_id).latest == 1
    with pytest.raises(LogAheadError, match="fsck"):
        lake.propose(table.table_id, 2, add())
    assert isinstance(lake.propose(other.table_id, 1, add()), Ratified)  # others go on
    # None of them is called an intruder's: who takes such a file out of the log loses a commit.
    assert [(f.rule, f.version) for f in problems(lake)] == [("FS3", 2), ("FS3", 3), ("FS3", 4)]
    assert {f.remedy for f in problems(lake) if "--repair" not in f.remedy} == set()
    repaired = problems(lake, repair=True)
    assert [(f.rule, f.version, f.repaired) for f in repaired] == [
        ("FS3", 2, True),
        ("FS3", 3, True),
        ("FS3", 4, True),
    ]
    assert problems(lake) == []
    assert lake.catalog.resolve(table.table_id).latest == 4
    assert [
        lake.log(table.table_id).read_published(Version(version)) for version in range(5)
    ] == contents
    assert isinstance(lake.propose(table.table_id, 5, add()), Ratified)
    assert lake.catalog.publish(table.table_id) == 5


@shows("FS3")
@pytest.mark.parametrize("difference", ["time", "required feature", "partition columns"])
def test_what_was_allowed_when_it_was_ratified_is_ratified_again(
    inline_lake: House, difference: str
) -> None:
    """It would be refused now: by the clock, by a setting, or without a look at old files."""
    lake = inline_lake
    on = {"delta.enableDeletionVectors": "true"}
    schema = "id long, day date"
    table_id = lake.create(schema=schema, features=("deletionVectors",), properties=on).table_id
    lake.catalog.publish(table_id)
    off = metadata(table_id, schema, properties={"delta.enableDeletionVectors": "false"})
    action, ahead_ms = {
        "time": (add(), 10**6),
        "required feature": (off, 1),
        "partition columns": (metadata(table_id, schema, ["day"], on), 1),
    }[difference]
    txn_id = new_txn_id()
    content = file_content(action, txn_id=txn_id, timestamp_ms=lake.stamp_of(table_id) + ahead_ms)
    lake.log(table_id).store.put(PublishedCommit(Version(1)).path, content)
    lake.settings = Settings(verify_staged=0, required_features="deletionVectors")
    lake.restart()
    assert [(f.rule, f.repaired) for f in problems(lake, repair=True)] == [("FS3", True)]
    assert isinstance(lake.database.outcome(txn_id), Ratified)
    assert lake.catalog.resolve(table_id).latest == 1


def test_of_what_lies_above_an_older_copy_only_what_follows_on_is_the_catalogs(
    inline_lake: House,
) -> None:
    table = inline_lake.create()
    older_copy(inline_lake, table.table_id, commits=2)
    store = locations.store_for(table.location)
    for version, timestamp_ms in ((3, START_MS), (4, START_MS + 10**6), (9, START_MS + 10**6)):
        content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=timestamp_ms)
        store.put(PublishedCommit(Version(version)).path, content)
    assert [(f.rule, f.version) for f in problems(inline_lake)] == [
        ("FS3", 1),
        ("FS3", 2),
        ("AU-01", 3),  # earlier than the version before it
        ("AU-01", 4),
        ("AU-01", 9),
    ]


def test_what_follows_on_a_commit_that_cannot_be_ratified_is_not_said_to_be_wrong(
    inline_lake: House,
) -> None:
    table = inline_lake.create()
    inline_lake.catalog.publish(table.table_id)
    store = locations.store_for(table.location)
    handed_over = replaced(protocol(), reader_features=(), writer_features=("inCommitTimestamp",))
    for version, action in ((1, handed_over), (2, add())):
        content = file_content(action, txn_id=new_txn_id(), timestamp_ms=START_MS + 10**4 * version)
        store.put(PublishedCommit(Version(version)).path, content)
    found = problems(inline_lake, repair=True)
    assert ("AU-01", 1) in {(f.rule, f.version) for f in found}
    assert {f.rule for f in found if f.version == 2} == {"FS3"}
    assert inline_lake.catalog.resolve(table.table_id).latest == 0


@shows("FS3")
def test_an_older_copy_with_a_tail_it_cannot_publish_is_told_so_and_loses_nothing(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = inline_lake.create()
    inline_lake.propose(table.table_id, 1, add())  # ratified in the copy, and not yet published
    older_copy(inline_lake, table.table_id, commits=2)

    def fail(*_: object) -> Version:
        raise UnavailableError("The storage cannot be written.")

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", fail)
        found = problems(inline_lake, repair=True)
    assert {f.version for f in found} == {2, 3}
    assert all("Move" not in f.remedy and not f.repaired for f in found)
    assert [(f.version, f.repaired) for f in problems(inline_lake, repair=True)] == [
        (2, True),
        (3, True),
    ]
    assert problems(inline_lake) == []


@shows("FS3")
@pytest.mark.parametrize("unread", ["never", "during the repair", "after the repair"])
def test_a_file_proposed_by_name_gets_its_answer_after_an_older_copy_was_repaired(
    inline_lake: House, unread: str
) -> None:
    """It is answered by its name where the repair could read the file, else by its bytes."""
    lake = inline_lake
    table_id = lake.create().table_id
    lake.close()
    copy = lake.root.parent / "copy.db"
    shutil.copy(lake.root / "headgate.db", copy)
    lake.catalog = lake._open()

    def stage() -> tuple[StagedCommit, Staged]:
        content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 10**4)
        commit = StagedCommit(Version(1), uuid4())
        lake.log(table_id).stage(commit, content)
        return commit, Staged(file_name=commit.name, size=len(content))

    def propose(staged: Staged) -> Answer:
        before = lake.database.describe(table_id, Version(1))
        return lake.database.decide(StagedProposal(before, Version(1), staged)).answer

    commit, staged = stage()
    for number in range(9):  # other attempts at the version, of the same size
        rival = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 10**4)
        assert len(rival) == staged.size
        lake.log(table_id).stage(StagedCommit(Version(1), UUID(int=number)), rival)
    first = propose(staged)
    assert isinstance(first, Ratified)
    lake.catalog.publish(table_id)
    lake.close()
    for suffix in ("", "-wal", "-shm"):
        (lake.root / f"headgate.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, lake.root / "headgate.db")
    lake.catalog = lake._open()
    path = path_on_disk(lake, table_id, commit.path)
    away = path.rename(path.with_name("away")) if unread == "during the repair" else None
    problems(lake, repair=True)
    if away is not None:
        away.rename(path)
    if unread == "after the repair":
        path.unlink()
    again = propose(staged)
    assert isinstance(again, Ratified)
    assert again.commits[table_id].file_name == (commit.name if away is None else None)
    assert again.commits[table_id].sha256 == first.commits[table_id].sha256
    _, other = stage()
    assert isinstance(propose(other), VersionTaken)


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("moment", ["list", "read_published"])
def test_what_others_commit_and_publish_meanwhile_is_no_finding(
    lake: House, monkeypatch: pytest.MonkeyPatch, moment: str, *, repair: bool
) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    look, turns = getattr(DeltaLog, moment), iter(range(20))
    is_theirs = False

    def commit() -> None:
        latest = lake.catalog.resolve(table.table_id).latest
        lake.propose(table.table_id, latest + 1, add())
        lake.catalog.publish(table.table_id)

    def crowded(*asked: object) -> object:
        """Look between two commits of another client, a few times."""
        nonlocal is_theirs
        if is_theirs or next(turns, None) is None:
            return look(*asked)
        is_theirs = True
        commit()
        seen = look(*asked)
        commit()
        is_theirs = False
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, moment, crowded)
        assert problems(lake, repair=repair) == []
    assert lake.catalog.resolve(table.table_id).latest > 1


@shows("FS3")
@pytest.mark.parametrize("crash", ["fsck.before_adopt", "fsck.after_adopt"])
def test_a_repair_cut_short_goes_on_when_it_is_called_again(inline_lake: House, crash: str) -> None:
    table = inline_lake.create()
    older_copy(inline_lake, table.table_id, commits=3)
    failpoints.arm(f"{crash}:raise@2")
    try:
        with pytest.raises(failpoints.FailPointError):
            problems(inline_lake, repair=True)
    finally:
        failpoints.arm("")
    inline_lake.restart()
    problems(inline_lake, repair=True)
    assert inline_lake.catalog.resolve(table.table_id).latest == 3
    assert problems(inline_lake) == []


@req("AU-01")
@shows("S10", "FP4")
@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_an_intruders_file_at_below_and_above_the_latest_version_is_named(
    lake: House, version: int
) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    lake.propose(table.table_id, 2, add())
    store = locations.store_for(table.location)
    store.put(PublishedCommit(Version(version)).path, b'{"commitInfo":{"operation":"HACK"}}\n')
    found = problems(lake)
    assert {(f.version, f.path) for f in found} >= {
        (version, PublishedCommit(Version(version)).path)
    }
    assert all(finding.remedy for finding in found)
    lake.restart()
    if version != 2:
        assert isinstance(lake.propose(table.table_id, 3, add()), Ratified)


@req("AU-01")
def test_a_file_that_could_be_the_next_commit_is_reported_and_is_none_until_it_is_repaired(
    lake: House,
) -> None:
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())
    lake.catalog.publish(table_id)
    before = lake.catalog.resolve(table_id).commits
    content = file_content(add("x.parquet"), txn_id=new_txn_id(), timestamp_ms=START_MS + 50)
    lake.log(table_id).store.put(PublishedCommit(Version(2)).path, content)
    for _ in range(2):
        assert [(f.rule, f.version, f.severity) for f in problems(lake)] == [
            ("FS3", 2, Severity.ERROR)
        ]
        with pytest.raises(LogAheadError, match="version 2, the catalog only 1"):
            lake.propose(table_id, 2, add())
        assert lake.catalog.publish(table_id) == 1
        assert lake.catalog.resolve(table_id).commits == before
        lake.restart()


@req("AU-01")
def test_a_file_that_would_make_it_another_table_is_not_the_next_commit(lake: House) -> None:
    table_id = lake.create().table_id
    lake.propose(table_id, 1, add())
    lake.catalog.publish(table_id)
    store = lake.log(table_id).store
    for of, rule in ((new_table_id(), "AU-01"), (table_id, "FS3")):
        content = file_content(metadata(of), txn_id=new_txn_id(), timestamp_ms=START_MS + 50)
        store.put(PublishedCommit(Version(2)).path, content)
        assert {(f.rule, f.version) for f in problems(lake)} == {(rule, 2)}


@shows("S9", "FR4", "FC8")
@pytest.mark.parametrize(
    ("limit", "severity"), [(1 << 20, Severity.WARNING), (0, Severity.ERROR)], ids=["kept", "large"]
)
def test_a_ratified_staged_file_that_went_or_was_altered_is_named(
    lake: House, limit: int, severity: Severity
) -> None:
    lake.way = Way.STAGED
    object.__setattr__(lake.database._settings, "inline_limit_bytes", limit)
    table = lake.create()
    answers = [lake.propose(table.table_id, version, add()) for version in (1, 2)]
    names = [answer.commits[table.table_id].file_name for answer in answers]  # type: ignore[union-attr]
    path_on_disk(lake, table.table_id, f"{STAGED}/{names[0]}").unlink()
    altered = path_on_disk(lake, table.table_id, f"{STAGED}/{names[1]}")
    staged = altered.read_bytes()
    altered.write_bytes(staged[:-2])
    named = {(f.rule, f.version, f.severity) for f in problems(lake)}
    assert named == {("S9", 1, severity), ("S9", 2, severity)}
    if severity is Severity.WARNING:
        lake.catalog.publish(table.table_id)
        assert problems(lake) == []
        assert altered.read_bytes() == staged


@shows("S11", "S12")
def test_a_published_file_that_went_is_named(lake: House) -> None:
    table = lake.create()
    for version in range(1, 4):
        lake.propose(table.table_id, version, add())
    lake.catalog.publish(table.table_id)
    gone = path_on_disk(lake, table.table_id, PublishedCommit(Version(2)).path)
    content = gone.read_bytes()
    gone.unlink()
    [finding] = problems(lake)
    assert (finding.rule, finding.version) == ("S11", 2)
    [finding] = problems(lake, repair=True)
    # What came inline is still held, and what was staged still lies there.
    assert finding.repaired
    assert gone.read_bytes() == content
    assert problems(lake) == []


@shows("S11", "S12")
@pytest.mark.parametrize("harm", [Path.unlink, lambda twin: twin.write_bytes(b"{}\n")])
def test_a_published_file_that_went_with_its_staged_twin_cannot_be_put_back(
    lake: House, harm: Callable[[Path], object]
) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    lake.catalog.publish(table.table_id)
    gone = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    gone.unlink()
    file_name = answer.commits[table.table_id].file_name
    harm(path_on_disk(lake, table.table_id, f"{STAGED}/{file_name}"))
    [finding] = [found for found in problems(lake, repair=True) if found.rule == "S11"]
    assert (finding.version, finding.repaired) == (1, False)
    assert "backup" in finding.remedy
    assert not gone.exists()


def test_a_lake_whose_tables_are_gone_is_not_called_sound(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    shutil.rmtree(lake.root / "tables")
    assert {(f.rule, f.version) for f in problems(lake)} >= {("S11", 0), ("S11", 1)}


def test_data_files_that_went_or_changed_are_named(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "id long")
        for value in range(3):
            table.append(pa.table({"id": pa.array([value], pa.int64())}))
        assert session.fsck() == ()
        first, second, _ = sorted(Path(table.location.removeprefix("file://")).glob("*.parquet"))
        first.unlink()
        second.write_bytes(b"PAR1")
        found = {(f.rule, f.path, f.says) for f in session.fsck()}
        assert {(rule, path) for rule, path, _ in found} == {
            ("data-file", first.name),
            ("data-file", second.name),
        }
        assert {says.partition(" ")[0] for _, _, says in found} == {"is", "has"}


@req("RD-03")
def test_a_count_that_is_off_is_found_and_counted_anew(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.propose(table.table_id, 2, remove(add("never-there.parquet")))
    off = lake.catalog.resolve(table.table_id).checksum
    assert off is not None
    assert off.num_files == 0
    assert "RD-03" in {f.rule for f in problems(lake)}
    assert [f.repaired for f in problems(lake, repair=True) if f.rule == "RD-03"] == [True]
    right = lake.catalog.resolve(table.table_id).checksum
    assert right is not None
    assert (right.num_files, right.table_size_bytes) == (1, 100)
    assert problems(lake) == []


@shows("S14", "FX7")
@pytest.mark.parametrize(
    "name",
    [
        f"{1:020d}.checkpoint.parquet",
        f"{1:020d}.checkpoint.{1:010d}.{1:010d}.parquet",
        f"{1:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        f"{0:020d}.{1:020d}.compacted.json",
    ],
)
def test_a_checkpoint_of_what_is_not_published_is_named(lake: House, name: str) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    lake.propose(table.table_id, 1, add())
    locations.store_for(table.location).put(f"{LOG}/{name}", b"{}")
    assert {(f.rule, f.version) for f in problems(lake)} == {("S14", 1)}


@req("CM-05")
def test_every_staged_file_is_said_to_be_what_it_is(lake: House) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    won = lake.propose(table.table_id, 1, add())
    lost = lake.proposal(table.table_id, 1, add())
    lake.catalog.propose(lost)
    lake.propose(table.table_id, 2, add())
    lake.catalog.publish(table.table_id, Version(1))
    ahead = lake.proposal(table.table_id, 3, add())
    assert isinstance(won, Ratified)
    store = locations.store_for(table.location)
    store.put(f"{STAGED}/partial.json.tmp", b"{")
    notes = {
        (finding.path or "").removeprefix(f"{STAGED}/"): finding.says
        for finding in lake.database.fsck()
        if finding.severity is Severity.NOTE
    }
    assert notes[won.commits[table.table_id].file_name or ""] == "is ratified and published"
    assert notes["partial.json.tmp"] == "is not a commit"
    texts = [notes[p.parts[0].content.file_name] for p in (lost, ahead)]  # type: ignore[union-attr]
    assert texts == [
        "was not ratified: another commit has its version",
        "is not ratified yet",
    ]


@req("CM-40")
def test_what_is_put_where_a_purged_table_was_is_named_and_left(lake: House) -> None:
    table = lake.create()
    store = locations.store_for(table.location)
    lake.catalog.publish(table.table_id)
    lake.catalog.drop_table(table.table_id)
    lake.catalog.purge_table(table.table_id)
    assert problems(lake) == []
    store.put("late.parquet", b"rows")
    store.put("much/later.parquet", b"rows")
    for repair in (False, True):
        [found] = problems(lake, repair=repair)
        assert (found.rule, found.severity, found.path) == (
            "CM-40",
            Severity.WARNING,
            "late.parquet",
        )
        assert "2 files of 8 bytes" in found.says
        assert table.location in found.remedy
    assert store.get("late.parquet") == b"rows"


@req("CM-40")
def test_a_purge_that_was_interrupted_is_reported_and_finished(lake: House) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    lake.catalog.drop_table(table.table_id)
    failpoints.arm("registry.purge_between_files:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            lake.catalog.purge_table(table.table_id)
    finally:
        failpoints.arm("")
    for repair in (False, True):
        [found] = problems(lake, repair=repair)
        assert (found.rule, found.table, found.repaired) == ("CM-40", table.table_id, repair)
        assert "not deleted yet" in found.says
    assert problems(lake) == []
    assert list(locations.store_for(table.location).list("", recursive=True)) == []


@req("CM-40")
def test_what_lies_where_a_purged_table_was_may_be_another_tables(
    lake: House, tmp_path: Path
) -> None:
    place = locations.normalize(str(tmp_path / "elsewhere"))
    gone = lake.database.stage_table(place)
    lake.clock.ms += 1
    lake.database.expire_staging(0)
    staged = lake.database.stage_table(place)
    assert staged.table_id != gone.table_id
    locations.store_for(place).put("early.parquet", b"rows")
    assert problems(lake) == []


# Tables that have no name


@shows("S9", "S10", "S11")
def test_a_dropped_table_that_may_come_back_is_checked_too(lake: House) -> None:
    table, other = lake.create(), lake.create("other")
    for version in (1, 2):
        lake.propose(table.table_id, version, add())
    lake.catalog.publish(table.table_id, Version(1))
    gone = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    content = gone.read_bytes()
    lake.catalog.drop_table(table.table_id)
    assert problems(lake) == []
    gone.unlink()
    [finding] = problems(lake)
    assert (finding.rule, finding.table, finding.version) == ("S11", table.table_id, 1)
    gone.write_bytes(b"{}\n")
    assert {(f.rule, f.table) for f in problems(lake)} == {("S10", table.table_id)}
    gone.unlink()
    assert [f.repaired for f in problems(lake, repair=True)] == [True]
    assert gone.read_bytes() == content
    assert problems(lake) == []
    lake.catalog.undrop_table(table.table_id)
    assert lake.catalog.resolve(table.table_id).latest == 2
    assert isinstance(lake.propose(other.table_id, 1, add()), Ratified)


def test_the_data_of_a_dropped_table_is_looked_for(tmp_path: Path) -> None:
    with headgate.connect(tmp_path / "lake", publisher=False) as session:
        table = session.create_table("t", "id long")
        table.append(pa.table({"id": pa.array([1], pa.int64())}))
        [data] = Path(table.location.removeprefix("file://")).glob("*.parquet")
        session.drop("t")
        assert session.fsck() == ()
        data.unlink()
        [found] = session.fsck()
        assert (found.rule, found.table, found.path) == ("data-file", table.id, data.name)


@shows("FS3")
def test_a_dropped_table_whose_log_is_ahead_is_undropped_first(inline_lake: House) -> None:
    table = inline_lake.create()
    older_copy(inline_lake, table.table_id, commits=1)
    inline_lake.catalog.drop_table(table.table_id)
    [found] = problems(inline_lake, repair=True)
    assert (found.rule, found.version, found.repaired) == ("FS3", 1, False)
    assert "Undrop" in found.remedy
    inline_lake.catalog.undrop_table(table.table_id)
    assert [f.repaired for f in problems(inline_lake, repair=True)] == [True]
    assert inline_lake.catalog.resolve(table.table_id).latest == 1


# Transactions over several tables


def _both(house: House) -> tuple[Resolved, Resolved]:
    """Commit to two tables in one transaction."""
    one, two = house.create("one"), house.create("two")
    txn_id = new_txn_id()
    answer = house.catalog.propose(
        Proposal(
            txn_id=txn_id,
            parts=tuple(house.part(t.table_id, 1, add(), txn_id=txn_id) for t in (one, two)),
        )
    )
    assert isinstance(answer, Ratified)
    return one, two


@shows("S7")
@pytest.mark.parametrize("column", ["sequence", "timestamp_ms"])
def test_a_transaction_whose_tables_do_not_agree_on_when_it_was_is_named(
    inline_lake: House, column: str
) -> None:
    one, two = _both(inline_lake)
    assert problems(inline_lake) == []
    inline_lake.close()
    with closing(apsw.Connection(str(inline_lake.root / "headgate.db"))) as rows:
        rows.execute(
            f"UPDATE commits SET {column} = {column} + 1 WHERE version = 1 AND table_key = "
            "(SELECT key FROM tables WHERE id = ?)",
            (two.table_id,),
        )
    inline_lake.catalog = inline_lake._open()
    found = problems(inline_lake)
    assert {(f.rule, f.severity, f.version) for f in found} == {("S7", Severity.ERROR, 1)}
    assert {f.table for f in found} == {"main.default.one", "main.default.two"}
    [alone] = [f for f in inline_lake.database.fsck(one.table_id) if f.rule == "S7"]
    assert alone.table == "main.default.one"


@shows("S7", "FS3")
def test_a_transaction_is_ratified_again_as_a_whole_and_gets_its_answer(
    inline_lake: House,
) -> None:
    copy = inline_lake.root.parent / "copy.db"
    one, two = inline_lake.create("one"), inline_lake.create("two")
    inline_lake.close()
    shutil.copy(inline_lake.root / "headgate.db", copy)
    inline_lake.catalog = inline_lake._open()
    txn_id = new_txn_id()
    parts = tuple(inline_lake.part(t.table_id, 1, add(), txn_id=txn_id) for t in (one, two))
    assert isinstance(inline_lake.catalog.propose(Proposal(txn_id=txn_id, parts=parts)), Ratified)
    for table in (one, two):
        inline_lake.catalog.publish(table.table_id)
    inline_lake.close()
    for suffix in ("", "-wal", "-shm"):
        (inline_lake.root / f"headgate.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, inline_lake.root / "headgate.db")
    inline_lake.catalog = inline_lake._open()
    # Of one table alone, too: the transaction is ratified with all its parts, or not at all.
    inline_lake.database.fsck(one.table_id, repair=True)
    assert [f for f in inline_lake.database.fsck() if f.rule == "S7"] == []
    again = inline_lake.catalog.propose(Proposal(txn_id=txn_id, parts=parts))
    assert isinstance(again, Ratified)
    assert {id: c.version for id, c in again.commits.items()} == {
        one.table_id: 1,
        two.table_id: 1,
    }


@shows("S7", "FS3")
def test_all_that_a_table_was_committed_together_with_is_ratified_again_with_it(
    inline_lake: House,
) -> None:
    copy = inline_lake.root.parent / "copy.db"
    tables = {name: inline_lake.create(name).table_id for name in ("a", "b", "m", "z", "alone")}
    inline_lake.close()
    shutil.copy(inline_lake.root / "headgate.db", copy)
    inline_lake.catalog = inline_lake._open()
    # Of `m` there is the last one alone. It needs `z`, which needs `a`, which needs `b`.
    proposals = []
    for versions in ({"a": 1, "b": 1}, {"z": 1, "a": 2}, {"m": 1, "z": 2}, {"alone": 1}):
        txn_id = new_txn_id()
        parts = tuple(
            inline_lake.part(tables[name], version, add(), txn_id=txn_id)
            for name, version in versions.items()
        )
        proposals.append(Proposal(txn_id=txn_id, parts=parts))
        assert isinstance(inline_lake.catalog.propose(proposals[-1]), Ratified)
    for table_id in tables.values():
        inline_lake.catalog.publish(table_id)
    inline_lake.close()
    for suffix in ("", "-wal", "-shm"):
        (inline_lake.root / f"headgate.db{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, inline_lake.root / "headgate.db")
    inline_lake.catalog = inline_lake._open()
    repaired = inline_lake.database.fsck(tables["m"], repair=True)
    assert [(f.table.rpartition(".")[2], f.version) for f in repaired if f.repaired] == [
        *(("a", 1), ("b", 1)),
        *(("a", 2), ("z", 1)),
        *(("m", 1), ("z", 2)),
    ]
    assert {f.rule for f in problems(inline_lake)} == {"FS3"}  # of the table that is alone
    assert inline_lake.catalog.resolve(tables["alone"]).latest == 0
    for proposal in proposals[:3]:
        again = inline_lake.catalog.propose(proposal)
        assert isinstance(again, Ratified)
        assert {part.table_id: part.version for part in proposal.parts} == {
            table_id: commit.version for table_id, commit in again.commits.items()
        }


# What does not belong into a log


def test_what_is_no_file_of_a_log_is_noted_and_nothing_else(lake: House) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    store = locations.store_for(table.location)
    strange = [f"{LOG}/notes.txt", f"{LOG}/{7:019d}.json", f"{LOG}/_commits/{1:020d}.json"]
    for path in strange:
        store.put(path, b"{}")
    store.put(f"{LOG}/_last_checkpoint", b"{}")
    store.put(f"{LOG}/_sidecars/{new_table_id()}.parquet", b"PAR1")
    store.put(f"{LOG}/{0:020d}.crc", b"{}")
    found = [f for f in lake.database.fsck() if f.rule == "stray"]
    assert sorted(f.path or "" for f in found) == sorted(strange)
    assert {f.severity for f in found} == {Severity.NOTE}
    assert problems(lake) == []


def test_many_strays_are_counted(inline_lake: House) -> None:
    table = inline_lake.create()
    store = locations.store_for(table.location)
    for number in range(30):
        store.put(f"{LOG}/.{number:020d}.json.crc", b"crc")
    found = [f for f in inline_lake.database.fsck() if f.rule == "stray"]
    assert len(found) == 21
    assert "30 files" in found[-1].says


@pytest.mark.parametrize(
    ("folder", "target"),
    [
        ("_delta_log", "outside"),
        ("_delta_log", "itself"),
        ("_delta_log/_staged_commits", "outside"),
        ("_delta_log/_staged_commits", "itself"),
        ("", "itself"),
    ],
)
def test_a_table_whose_log_became_a_link_keeps_no_other_from_being_checked_and_repaired(
    inline_lake: House, tmp_path: Path, folder: str, target: str
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    tables = {name: lake.create(name) for name in ("a", "b")}
    for table in tables.values():
        lake.propose(table.table_id, 1, add())
        lake.catalog.publish(table.table_id)
    linked = Path(tables["a"].location.removeprefix("file://")) / folder
    linked.rename(tmp_path / "moved")
    (tmp_path / "outside").mkdir()
    linked.symlink_to(tmp_path / "outside" if target == "outside" else linked.name)
    store = locations.store_for(tables["b"].location)
    content = store.get(PublishedCommit(Version(1)).path)
    store.put(PublishedCommit(Version(1)).path, b"{}")
    found = {(f.table, f.rule): f for f in problems(lake)}
    assert found.keys() >= {("main.default.a", "storage"), ("main.default.b", "S10")}
    assert str(linked).rstrip("/") in found["main.default.a", "storage"].says
    assert ("main.default.b", "S10", True) in {
        (f.table, f.rule, f.repaired) for f in problems(lake, repair=True)
    }
    assert store.get(PublishedCommit(Version(1)).path) == content
    assert list((tmp_path / "outside").iterdir()) == []
