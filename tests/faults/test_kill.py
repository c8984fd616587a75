"""`kill -9` at every fail point: nothing acknowledged is lost, nothing half done is seen."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import headgate
from headgate.client.session import Session
from headgate.protocol.actions import Version
from headgate.protocol.paths import StagedCommit
from headgate.settings import Settings
from tests.faults.harness import Output, check_lake, check_values, go_on, run, values_in
from tests.kit import plain_replay, req, shows

pytestmark = pytest.mark.faults

COMMITS = [
    f"{point}:kill@{nth}"
    for point in (
        "ratifier.before_begin",
        "ratifier.after_decide",
        "ratifier.before_commit",
        "ratifier.after_commit",
        "ratifier.before_answer",
        "client.before_propose",
        "client.after_propose",
    )
    for nth in (1, 4)
]
CREATION = [
    "registry.before_version_zero:kill",
    "registry.after_version_zero:kill",
    "registry.before_register:kill@1",
    "registry.before_register:kill@2",
    "registry.after_register:kill@1",
    "registry.after_register:kill@2",
    "store.migrate_before_commit:kill",
]


@req("CM-12", "CM-39", "LC-01")
@shows("FC1", "FC9", "FC4", "FS8", "S1", "S2", "S3", "S4", "S5", "S6", "S16")
@pytest.mark.parametrize("fail", COMMITS + CREATION)
def test_a_writer_killed_anywhere_loses_nothing_it_was_told(tmp_path: Path, fail: str) -> None:
    lake = tmp_path / "lake"
    output = run("appends", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        for table in ("one", "three"):
            check_values(session, output, table)
        names = {str(entry.name).rpartition(".")[2] for entry in session.tables()}
        assert output.words("ok") <= names <= output.words("attempt")
        if "one" not in names:
            session.create_table("one", "value long")
    go_on(lake, "one")


BEFORE = ("ratifier.before_begin", "ratifier.after_decide", "ratifier.before_commit")
AFTER = ("ratifier.after_commit", "ratifier.before_answer")


@req("CM-12", "MT-01")
@shows("FC9", "FM1", "S4", "S7")
@pytest.mark.parametrize("nth", [1, 2, 4])  # inline, staged, and staged after others
@pytest.mark.parametrize("point", BEFORE + AFTER)
def test_a_transaction_over_two_tables_killed_anywhere_is_in_both_or_in_neither(
    tmp_path: Path, point: str, nth: int
) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake, publisher=False) as session:
        for table in ("one", "two"):
            session.create_table(table, "value long")
    output = run("pairs", lake, fail=f"{point}:kill@{nth}")
    assert output.was_killed, output
    assert output.values("ok", "one") == output.values("ok", "two") == list(range(nth - 1))
    assert output.values("attempt", "two")[-1] == nth - 1, "it died in another transaction"
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        _check_pairs(session, output)
        # The database decides: what it had committed is there, though unacknowledged.
        found = set(range(nth if point in AFTER else nth - 1))
        assert set(values_in(session, "one")) == found
    again = run("pairs", lake, 100)
    assert again.values("ok", "one") == again.values("ok", "two") == list(range(100, 104))
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        _check_pairs(session, Output(0, output.lines + again.lines, again.stderr))


def _check_pairs(session: Session, output: Output) -> None:
    """Each transaction is in both tables, at one sequence and one time, as acknowledged."""
    for table in ("one", "two"):
        check_values(session, output, table)
    assert values_in(session, "one") == values_in(session, "two")
    lives = [
        {
            entry.commit.txn_id: (entry.commit.sequence, entry.commit.timestamp_ms)
            for entry in session.table(table).log(first=1)
        }
        for table in ("one", "two")
    ]
    assert lives[0] == lives[1]
    acknowledged = [(line["sequence"], line["stamp"]) for line in output.lines if "ok" in line]
    assert set(acknowledged) <= set(lives[0].values())


@req("CM-05", "CM-12")
@shows("FC2", "FC3", "FC9", "S13")
@pytest.mark.parametrize(
    "fail",
    [
        f"{point}:kill@{nth}"
        for point in (
            "client.before_stage",
            "client.after_stage",
            "client.before_propose",
            "client.after_propose",
            "ratifier.before_commit",
            "ratifier.after_commit",
        )
        for nth in (1, 3)
    ],
)
def test_a_writer_of_staged_commits_killed_anywhere_leaves_files_that_mean_nothing(
    tmp_path: Path, fail: str
) -> None:
    lake = tmp_path / "lake"
    output = run("staged", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        check_values(session, output, "one")
        if "one" not in output.words("ok"):
            return  # the table itself may not have come to be
    go_on(lake, "one")


@req("CM-23", "CM-24", "PB-02")
@shows("FP1", "FP2", "S9", "S10", "S11", "S12")
@pytest.mark.parametrize(
    "fail",
    [
        f"{point}:kill@{nth}"
        for point in (
            "publisher.before_put",
            "publisher.after_put",
            "publisher.before_record",
            "publisher.after_record",
        )
        for nth in (1, 2, 4)
    ],
)
def test_a_publisher_killed_anywhere_is_followed_by_one_that_finishes(
    tmp_path: Path, fail: str
) -> None:
    lake = tmp_path / "lake"
    output = run("publish", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        check_values(session, output, "one")
        table = session.table("one")
        assert table.publish() == 10
        check_lake(session)
        assert len(values_in(session, "one")) == 10


@shows("S14", "FP15")
@pytest.mark.parametrize(
    "fail",
    [
        f"{point}:kill@{nth}"
        for point in (
            "checkpoint.before_put",
            "checkpoint.after_put",
            "checkpoint.before_hint",
        )
        for nth in (1, 2)
    ]
    + ["checkpoint.after_part:kill"],
)
def test_a_checkpoint_cut_short_harms_no_reader(tmp_path: Path, fail: str) -> None:
    lake = tmp_path / "lake"
    output = run("checkpoints", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        check_values(session, output, "one")
        table = session.table("one")
        assert table.checkpoint() == table.version
        check_values(session, output, "one")
    go_on(lake, "one")


@req("CM-40")
@shows("S25")
@pytest.mark.parametrize(
    "fail",
    [
        "registry.after_drop:kill",
        "registry.purge_between_files:kill@1",
        "registry.purge_between_files:kill@3",
        "registry.before_forget_purged:kill",
    ],
)
def test_a_drop_or_purge_killed_anywhere_can_be_gone_on_with_and_harms_no_neighbour(
    tmp_path: Path, fail: str
) -> None:
    lake = tmp_path / "lake"
    output = run("drops", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        check_values(session, output, "one")
        for entry in session.tables(dropped=True):
            if str(entry.name).endswith(".gone"):
                session.purge(entry.table_id)
        left = [path for path in (lake / "tables").rglob("*") if path.is_file()]
        kept = session.table("one").location
        assert all(str(path.parent).startswith(kept.removeprefix("file://")) for path in left)
    go_on(lake, "one")


@req("CM-13", "CM-12", "LC-01")
@shows("FC4", "S4")
@pytest.mark.parametrize(
    "fail",
    [
        f"{point}:kill@{nth}"
        for point in ("filesystem.before_put", "filesystem.after_put")
        for nth in (1, 3, 6)
    ]
    + [
        "registry.after_drop:kill",
        "registry.purge_between_files:kill@2",
        "registry.before_forget_purged:kill",
    ],
)
def test_a_filesystem_catalog_killed_anywhere_loses_nothing(tmp_path: Path, fail: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    output = run("filesystem", lake, fail=fail)
    assert output.was_killed, output
    with headgate.connect(f"file://{lake}?catalog=filesystem") as session:
        for entry in session.tables():
            plain_replay.hold(session, entry.table_id)
        check_values(session, output, "one")
        if "drop" not in output.words("attempt"):
            check_values(session, output, "gone")
        elif "drop" in output.words("ok") and values_in(session, "gone"):
            pytest.fail("a dropped table is read")
        if "one" not in output.words("ok"):
            return
        table = session.table("one")
        before = table.version
        table.append(pa.table({"value": pa.array([77], pa.int64())}))
        assert table.version == before + 1


@shows("FS3")
@pytest.mark.parametrize("fail", ["fsck.before_adopt:kill@2", "fsck.after_adopt:kill@2"])
def test_a_repair_killed_anywhere_can_be_gone_on_with(tmp_path: Path, fail: str) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake, publisher=False) as session:
        session.create_table("one", "value long").publish()
    shutil.copy(lake / "headgate.db", tmp_path / "older.db")
    with headgate.connect(lake, publisher=False) as session:
        table = session.table("one")
        for value in range(4):
            table.append(pa.table({"value": pa.array([value], pa.int64())}))
        table.publish()
    for suffix in ("", "-wal", "-shm"):
        (lake / f"headgate.db{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older.db", lake / "headgate.db")
    assert run("repair", lake, fail=fail).was_killed
    assert run("repair", lake).words("ok") == {"repair"}
    with headgate.connect(lake, publisher=False) as session:
        assert sorted(values_in(session, "one")) == [0, 1, 2, 3]
    go_on(lake, "one")


@shows("S10")
@pytest.mark.parametrize("point", ["fsck.before_set_aside", "fsck.after_set_aside"])
def test_a_repair_of_an_altered_commit_goes_on_after_a_kill(tmp_path: Path, point: str) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake, publisher=False) as session:
        table = session.create_table("one", "value long")
        table.append(pa.table({"value": pa.array([0], pa.int64())}))
        table.publish()
    [published] = lake.glob("tables/*/_delta_log/00000000000000000001.json")
    ratified = published.read_bytes()
    published.write_bytes(b"{}\n")
    assert run("repair", lake, fail=f"{point}:kill").was_killed
    assert run("repair", lake).words("ok") == {"repair"}
    assert published.read_bytes() == ratified
    assert [path.read_bytes() for path in published.parent.glob("_set_aside*")] == [b"{}\n"]
    go_on(lake, "one")


@req("MN-02")
@shows("FC3")
@pytest.mark.parametrize(
    "fail",
    [
        "housekeeping.before_give_up:kill",
        "housekeeping.after_give_up:kill",
        "housekeeping.between_files:kill",
        "housekeeping.between_files:kill@3",
    ],
)
def test_a_sweep_killed_anywhere_takes_nothing_that_counts_and_is_gone_on_with(
    tmp_path: Path, fail: str
) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(
        lake, publisher=False, settings=Settings(inline_limit_bytes=0)
    ) as session:
        table = session.create_table("one", "value long")
        for value in range(3):
            table.append(pa.table({"value": pa.array([value], pa.int64())}))
    [folder] = lake.glob("tables/*/_delta_log/_staged_commits")
    named = {path.name for path in folder.iterdir()}
    assert len(named) == 3
    for path in list(folder.iterdir())[:2]:
        left = folder / StagedCommit(Version(4), uuid4()).name
        left.write_bytes(path.read_bytes())
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    assert run("repair", lake, fail=fail).was_killed
    assert named <= {path.name for path in folder.iterdir()}
    with headgate.connect(lake, publisher=False) as session:
        assert sorted(values_in(session, "one")) == [0, 1, 2]
    assert run("repair", lake).words("ok") == {"repair"}
    assert {path.name for path in folder.iterdir()} == named
    go_on(lake, "one")
