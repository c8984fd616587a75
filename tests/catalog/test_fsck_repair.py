"""fsck --repair: published files are restored, and foreign files set aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from headgate import failpoints
from headgate.api.messages import (
    Ratified,
    Severity,
)
from headgate.errors import LogDivergedError
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.paths import (
    LOG,
    STAGED,
    ClassicCheckpoint,
    PublishedCommit,
)
from tests.catalog.conftest import House
from tests.catalog.fsck_steps import INTRUDER, path_on_disk, problems
from tests.kit import req, shows
from tests.kit.builders import (
    add,
)


def set_aside(house: House, table_id: TableId) -> dict[str, bytes]:
    """Return what a repair set aside in a table's log."""
    store = house.log(table_id).store
    return {
        item.path: store.get(item.path)
        for item in store.list(LOG)
        if item.path.startswith(f"{LOG}/_set_aside")
    }


@req("PB-02")
def test_publishing_goes_on_once_the_log_is_right_again(lake: House) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    lake.propose(table.table_id, 1, add())
    stray = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    stray.write_bytes(INTRUDER)
    with pytest.raises(Exception, match="log-diverged"):
        lake.catalog.publish(table.table_id)
    stray.unlink()
    with pytest.raises(Exception, match="log-diverged"):  # it is for a repair to say so
        lake.catalog.publish(table.table_id)
    assert [f.repaired for f in problems(lake, repair=True) if f.rule == "PB-02"] == [True]
    assert lake.catalog.publish(table.table_id) == 1
    assert set_aside(lake, table.table_id) == {}
    assert problems(lake) == []


@req("PB-02")
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_diverged_table_is_repaired_and_the_intruders_file_kept(lake: House, taken: int) -> None:
    table = lake.create()
    if taken > 0:
        lake.catalog.publish(table.table_id)
    for version in (1, 2):
        lake.propose(table.table_id, version, add())
    stray = path_on_disk(lake, table.table_id, PublishedCommit(Version(taken)).path)
    stray.parent.mkdir(exist_ok=True, parents=True)
    stray.write_bytes(INTRUDER)
    with pytest.raises(LogDivergedError):
        lake.catalog.publish(table.table_id)
    assert {f.severity for f in problems(lake)} == {Severity.ERROR}
    repaired = problems(lake, repair=True)
    assert {(f.rule, f.version, f.repaired) for f in repaired} == {
        ("S10", taken, True),
        ("PB-02", None, True),
    }
    [(path, kept)] = set_aside(lake, table.table_id).items()
    assert kept == INTRUDER
    assert [path in f.says for f in repaired if f.rule == "S10"] == [True]
    assert lake.log(table.table_id).is_published(Version(2))  # without waiting for a publisher
    assert lake.catalog.publish(table.table_id) == 2
    assert problems(lake) == []
    assert isinstance(lake.propose(table.table_id, 3, add()), Ratified)
    assert lake.catalog.publish(table.table_id) == 3


def replace_by_bytes(path: Path) -> None:
    path.write_bytes(INTRUDER)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"kept")


def replace_by_link(path: Path) -> None:
    path.unlink()
    (path.parents[3] / "outside").write_bytes(INTRUDER)
    path.symlink_to(path.parents[3] / "outside")


def replace_by_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def replace_by_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


HARMS = [
    replace_by_bytes,
    cut_short,
    replace_by_folder,
    replace_by_link,
    replace_by_dangling_link,
    replace_by_link_to_itself,
]


@shows("S10")
@pytest.mark.parametrize("harm", HARMS)
def test_a_published_commit_that_was_altered_is_put_back_and_what_was_there_kept(
    lake: House, harm: Callable[[Path], None]
) -> None:
    table = lake.create()
    for version in (1, 2):
        lake.propose(table.table_id, version, add())
    lake.catalog.publish(table.table_id)
    path = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    content = path.read_bytes()
    harm(path)
    assert Severity.ERROR in {f.severity for f in problems(lake)}
    [finding] = problems(lake, repair=True)
    assert (finding.rule, finding.version, finding.repaired) == ("S10", 1, True)
    assert path.read_bytes() == content
    assert not path.is_symlink()
    aside = finding.says.rpartition(" ")[2]
    assert (
        path.with_name(aside.rpartition("/")[2]).is_symlink()
        or path.with_name(aside.rpartition("/")[2]).exists()
    )
    assert problems(lake) == []


@shows("FP4")
@pytest.mark.parametrize("harm", HARMS[2:])
def test_what_is_no_file_and_stands_where_a_commit_is_to_be_published_is_set_aside(
    lake: House, harm: Callable[[Path], None]
) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    lake.propose(table.table_id, 1, add())
    path = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    path.touch()
    harm(path)
    problems(lake, repair=True)
    assert lake.log(table.table_id).is_published(Version(1))
    assert problems(lake) == []


def test_bytes_that_are_nowhere_any_more_leave_the_other_file_where_it_is(lake: House) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    lake.catalog.publish(table.table_id)
    content = lake.log(table.table_id).read_published(Version(1))
    assert content is not None
    name = answer.commits[table.table_id].file_name
    staged = path_on_disk(lake, table.table_id, f"{STAGED}/{name}")
    staged.unlink()
    path = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    path.write_bytes(INTRUDER)
    [finding] = problems(lake, repair=True)
    assert (finding.rule, finding.severity, finding.repaired) == ("S10", Severity.ERROR, False)
    assert path.read_bytes() == INTRUDER
    # Found by their hash, under whatever name.
    path.with_name("saved-by-hand").write_bytes(content)
    [finding] = problems(lake, repair=True)
    assert finding.repaired
    assert path.read_bytes() == content


@req("PB-02")
def test_a_diverged_table_stays_diverged_while_a_version_cannot_be_restored(lake: House) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    lake.catalog.publish(table.table_id)
    lake.propose(table.table_id, 2, add())
    published = path_on_disk(lake, table.table_id, PublishedCommit(Version(1)).path)
    content = published.read_bytes()
    name = answer.commits[table.table_id].file_name
    path_on_disk(lake, table.table_id, f"{STAGED}/{name}").unlink()
    published.unlink()
    path_on_disk(lake, table.table_id, PublishedCommit(Version(2)).path).write_bytes(INTRUDER)
    with pytest.raises(LogDivergedError):
        lake.catalog.publish(table.table_id)
    repaired = {(f.rule, f.version): f.repaired for f in problems(lake, repair=True)}
    assert repaired == {("S10", 2): True, ("S11", 1): False, ("PB-02", None): False}
    published.write_bytes(content)
    problems(lake, repair=True)
    assert problems(lake) == []
    assert lake.catalog.publish(table.table_id) == 2


def test_intruders_files_above_the_latest_version_are_set_aside(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    store = lake.log(table.table_id).store
    for version in (2, 3, 9):
        store.put(PublishedCommit(Version(version)).path, b'{"commitInfo":{"v":%d}}\n' % version)
    found = problems(lake, repair=True)
    assert [(f.rule, f.version, f.repaired) for f in found] == [
        ("AU-01", 2, True),
        ("AU-01", 3, True),
        ("AU-01", 9, True),
    ]
    assert len(set_aside(lake, table.table_id)) == 3
    assert problems(lake) == []
    assert isinstance(lake.propose(table.table_id, 2, add()), Ratified)
    assert lake.catalog.publish(table.table_id) == 2


def test_a_repair_does_not_bring_back_what_was_cleaned_away(lake: House) -> None:
    table = lake.create()
    for version in range(1, 6):
        lake.propose(table.table_id, version, add())
    lake.catalog.publish(table.table_id)
    published = [
        path_on_disk(lake, table.table_id, PublishedCommit(Version(version)).path)
        for version in range(6)
    ]
    lake.log(table.table_id).store.put(ClassicCheckpoint(Version(3)).path, b"stands for them")
    for path in published[:3]:
        path.unlink()
    published[4].write_bytes(INTRUDER)
    [finding] = [f for f in problems(lake, repair=True) if f.rule != "damaged-file"]
    assert (finding.rule, finding.version, finding.repaired) == ("S10", 4, True)
    assert [path.exists() for path in published] == [False] * 3 + [True] * 3


def test_a_repair_waits_for_the_publisher_that_works_on_the_table(inline_lake: House) -> None:
    table = inline_lake.create()
    inline_lake.propose(table.table_id, 1, add())
    inline_lake.catalog.publish(table.table_id)
    path = path_on_disk(inline_lake, table.table_id, PublishedCommit(Version(1)).path)
    content = path.read_bytes()
    path.write_bytes(INTRUDER)
    repair = Thread(target=lambda: inline_lake.database.fsck(repair=True))
    with inline_lake.database._publisher.exclusive(table.table_id):
        repair.start()
        repair.join(0.5)
        assert repair.is_alive()
        assert path.read_bytes() == INTRUDER
    repair.join(30)
    assert path.read_bytes() == content


@shows("S10")
@pytest.mark.parametrize("crash", ["fsck.before_set_aside", "fsck.after_set_aside"])
def test_setting_a_file_aside_cut_short_goes_on_when_it_is_called_again(
    inline_lake: House, crash: str
) -> None:
    table = inline_lake.create()
    for version in (1, 2):
        inline_lake.propose(table.table_id, version, add())
    inline_lake.catalog.publish(table.table_id)
    path = path_on_disk(inline_lake, table.table_id, PublishedCommit(Version(1)).path)
    content = path.read_bytes()
    path.write_bytes(INTRUDER)
    failpoints.arm(f"{crash}:raise@1")
    try:
        with pytest.raises(failpoints.FailPointError):
            problems(inline_lake, repair=True)
    finally:
        failpoints.arm("")
    inline_lake.restart()
    problems(inline_lake, repair=True)
    assert path.read_bytes() == content
    assert list(set_aside(inline_lake, table.table_id).values()) == [INTRUDER]
    assert problems(inline_lake) == []
