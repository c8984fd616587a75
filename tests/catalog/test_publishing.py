"""Ratified commits become published ones, in order, byte for byte, and only when seen."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from uuid import uuid4

import pytest

from headgate import failpoints
from headgate.api.messages import Proposal, Ratified, Severity
from headgate.errors import (
    BusyError,
    HeadgateError,
    LogDivergedError,
    NotFoundError,
    NotPublishedError,
    PermissionDeniedError,
    UnavailableError,
)
from headgate.protocol.actions import TableId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.settings import Settings
from headgate.storage import locations
from headgate.storage.local import LocalStore
from headgate.table.ratified_content import ratified_content
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import ManualClock, add, new_txn_id


def published(house: House, table_id: TableId) -> list[int]:
    listed = house.log(table_id).list()
    return sorted(item.file.version for item in listed if isinstance(item.file, PublishedCommit))


@req("CM-23", "CM-24")
@shows("FP5", "S10", "S11")
def test_what_is_published_is_what_was_ratified_byte_for_byte_and_without_a_gap(
    lake: House,
) -> None:
    table = lake.create()
    for version in range(1, 6):
        lake.propose(table.table_id, version, add())
    contents = {}
    for commit in lake.catalog.ratified_commits(table.table_id).commits:
        contents[commit.version] = (
            commit.content
            if commit.content is not None
            else lake.log(table.table_id).read(f"{STAGED}/{commit.file_name}")
        )
    assert published(lake, table.table_id) == []
    assert lake.catalog.publish(table.table_id, Version(3)) == 3
    assert published(lake, table.table_id) == [0, 1, 2, 3]
    assert lake.catalog.publish(table.table_id) == 5
    for version, content in contents.items():
        assert lake.log(table.table_id).read_published(version) == content


@req("CM-24")
@shows("FP3")
def test_publishing_what_another_published_already_is_fine(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    for commit in lake.catalog.ratified_commits(table.table_id).commits:
        content = commit.content or lake.log(table.table_id).read(f"{STAGED}/{commit.file_name}")
        lake.log(table.table_id).publish_many([(commit.version, content)])
    assert lake.catalog.publish(table.table_id) == 1
    timeline = lake.database.timeline(table.table_id)
    assert len(timeline) == 2
    assert all(entry.commit.is_published for entry in timeline)


@req("PB-02", "CM-23")
@shows("FP1")
@pytest.mark.parametrize(
    "crash", ["publisher.before_put", "publisher.after_put", "publisher.before_record"]
)
def test_a_publisher_that_dies_at_any_step_is_followed_by_one_that_finishes(
    lake: House, crash: str
) -> None:
    table = lake.create()
    for version in range(1, 4):
        lake.propose(table.table_id, version, add())
    failpoints.arm(f"{crash}:raise")
    try:
        with pytest.raises(failpoints.FailPointError):
            lake.catalog.publish(table.table_id)
    finally:
        failpoints.arm("")
    lake.clock.ms += lake.settings.lease_ms + 1  # its lease lapses
    lake.restart()
    assert lake.catalog.publish(table.table_id) == 3
    assert published(lake, table.table_id) == [0, 1, 2, 3]


@req("PB-02", "AU-01", "CM-17")
@shows("FP4", "S16")
def test_an_intruders_file_stops_publishing_and_the_catalogs_commit_stays_the_truth(
    lake: House,
) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    store = lake.log(table.table_id).store
    store.put_if_absent(PublishedCommit(Version(1)).path, b'{"commitInfo":{}}\n')
    with pytest.raises(LogDivergedError, match="log-diverged"):
        lake.catalog.publish(table.table_id)
    with pytest.raises(LogDivergedError):  # and stays so
        lake.catalog.publish(table.table_id)
    resolved = lake.catalog.resolve(table.table_id)
    assert resolved.latest == 1
    assert resolved.commits[-1].sha256 == answer.commits[table.table_id].sha256
    # Writers and readers go on: the catalog's commit is the truth.
    assert isinstance(lake.propose(table.table_id, 2, add()), Ratified)


@req("PB-02")
def test_a_file_that_another_is_still_writing_is_waited_for_and_a_torn_one_is_not_believed(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create()
    lake.catalog.publish(table.table_id)
    for version in (1, 2):
        assert isinstance(lake.propose(table.table_id, version, add()), Ratified)
    log, sleep = lake.log(table.table_id), lake.clock.sleep
    held = lake.catalog.ratified_commits(table.table_id, Version(1), Version(2)).commits
    first, second = [ratified_content(log, commit) or b"" for commit in held]

    def finish(seconds: float) -> None:
        sleep(seconds)
        log.store.put(PublishedCommit(Version(1)).path, first)

    log.store.put(PublishedCommit(Version(1)).path, first[:100])
    monkeypatch.setattr(lake.clock, "sleep", finish)
    assert lake.catalog.publish(table.table_id, Version(1)) == 1
    monkeypatch.undo()
    log.store.put(PublishedCommit(Version(2)).path, second[:100])
    with pytest.raises(LogDivergedError):
        lake.catalog.publish(table.table_id)


@req("CM-46")
@pytest.mark.parametrize("harm", ["altered", "gone"])
def test_a_staged_file_altered_after_it_was_ratified_is_not_published_and_put_back(
    lake: House, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.way = Way.STAGED
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    path = f"{STAGED}/{answer.commits[table.table_id].file_name}"
    store = lake.log(table.table_id).store
    ratified = store.get(path)
    if harm == "altered":
        store.put(path, ratified.replace(b"WRITE", b"WROTE"))
    else:
        store.delete(path)
    lake.catalog.publish(table.table_id)
    assert store.get(PublishedCommit(Version(1)).path) == store.get(path) == ratified
    [alarm] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert path.rpartition("/")[2] in alarm.getMessage()


@req("CM-46")
def test_a_large_staged_file_altered_after_it_was_ratified_is_not_published(lake: House) -> None:
    lake.way = Way.STAGED
    object.__setattr__(lake.database._settings, "inline_limit_bytes", 0)
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    path = f"{STAGED}/{answer.commits[table.table_id].file_name}"
    store = lake.log(table.table_id).store
    store.put(path, store.get(path).replace(b"WRITE", b"WROTE"))
    with pytest.raises(LogDivergedError, match="not those that were ratified"):
        lake.catalog.publish(table.table_id)
    assert published(lake, table.table_id) == []


@req("CM-46")
@shows("S9", "L2")
@pytest.mark.parametrize("harm", ["a link out of the table", "a folder", "a file", "nothing"])
def test_a_large_staged_file_that_was_replaced_is_published_once_it_is_put_back(
    inline_lake: House, tmp_path: Path, harm: str
) -> None:
    """The catalog has no copy of it, and says which bytes it needs."""
    lake = inline_lake
    lake.way = Way.STAGED
    object.__setattr__(lake.database._settings, "inline_limit_bytes", 0)
    table_id = lake.create().table_id
    answer = lake.propose(table_id, 1, add())
    lake.propose(table_id, 2, add())
    assert isinstance(answer, Ratified)
    store = lake.log(table_id).store
    file = Path(store.local_path(f"{STAGED}/{answer.commits[table_id].file_name}") or "")
    ratified = file.read_bytes()
    spoil(file, harm, tmp_path / "outside")
    with pytest.raises(HeadgateError, match="ersion 1 of table"):
        lake.catalog.publish(table_id)
    assert published(lake, table_id) == []
    [finding] = [found for found in lake.database.fsck() if found.rule == "S9"]
    assert (finding.version, finding.severity) == (1, Severity.ERROR)
    digest = hashlib.sha256(ratified).hexdigest()
    assert f"{len(ratified)} bytes, SHA-256 {digest}" in finding.says
    assert "Restore the file" in finding.remedy
    if file.is_symlink() or file.is_dir():
        file.rename(tmp_path / "what it was")
    file.write_bytes(ratified)
    lake.database.fsck(repair=True)
    assert lake.catalog.publish(table_id) == 2
    assert not [
        found for found in lake.database.fsck() if found.rule in {"S9", "S10", "S11", "PB-02"}
    ]


@req("CM-46", "CM-24")
@pytest.mark.parametrize("limit", [1 << 20, 0], ids=["kept", "large"])
def test_a_staged_file_altered_after_its_twin_was_published_is_told_and_stops_nothing(
    inline_lake: House, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    object.__setattr__(lake.database._settings, "inline_limit_bytes", limit)
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    file_name = answer.commits[table.table_id].file_name
    store, path = lake.log(table.table_id).store, f"{STAGED}/{file_name}"
    ratified = store.get(path)
    # As if a publisher had died between the put and its record.
    store.put(PublishedCommit(Version(1)).path, ratified)
    store.put(path, ratified.replace(b"WRITE", b"WROTE"))
    assert lake.catalog.publish(table.table_id) == 1
    assert lake.log(table.table_id).read_published(Version(1)) == ratified
    [alarm] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert str(file_name) in alarm.getMessage()


@req("CM-46", "PB-02")
@pytest.mark.parametrize("limit", [1 << 20, 0], ids=["kept", "large"])
def test_a_staged_file_and_its_twin_that_were_both_altered_stop_publishing(
    inline_lake: House, limit: int
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    object.__setattr__(lake.database._settings, "inline_limit_bytes", limit)
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    store = lake.log(table.table_id).store
    path = f"{STAGED}/{answer.commits[table.table_id].file_name}"
    altered = store.get(path).replace(b"WRITE", b"WROTE")
    store.put(path, altered)
    store.put(PublishedCommit(Version(1)).path, altered)
    with pytest.raises(LogDivergedError, match="ratified"):
        lake.catalog.publish(table.table_id)


@req("PB-01")
@shows("FP7", "FX6", "S12")
def test_a_claim_of_having_published_is_looked_at_before_it_is_believed(lake: House) -> None:
    table = lake.create()
    for version in range(1, 4):
        lake.propose(table.table_id, version, add())
    with pytest.raises(NotPublishedError):
        lake.database.confirm_published(table.table_id, Version(2))
    with pytest.raises(NotFoundError):
        lake.database.confirm_published(table.table_id, Version(9))
    served = lake.catalog.ratified_commits(table.table_id).commits
    assert [commit.version for commit in served] == [0, 1, 2, 3]
    for commit in served[:3]:
        content = commit.content or lake.log(table.table_id).read(f"{STAGED}/{commit.file_name}")
        lake.log(table.table_id).publish_many([(commit.version, content)])
    assert lake.database.confirm_published(table.table_id, Version(2)) == 2
    [entry] = lake.database.tables(lake.SCHEMA)
    assert entry.published == 2


@req("PB-01", "CM-23")
@shows("FP7", "S10")
def test_a_claim_is_refused_while_a_version_below_it_is_not_in_the_log(lake: House) -> None:
    table_id = lake.create().table_id
    for version in (1, 2):
        lake.propose(table_id, version, add())
    lake.catalog.publish(table_id, Version(0))
    log = lake.log(table_id)
    held = lake.catalog.ratified_commits(table_id, Version(1)).commits
    contents = [ratified_content(log, commit) or b"" for commit in held]
    log.store.put(PublishedCommit(Version(2)).path, contents[1])
    with pytest.raises(NotPublishedError):
        lake.database.confirm_published(table_id, Version(2))
    [entry] = lake.database.tables(lake.SCHEMA)
    assert entry.published == 0
    assert lake.catalog.ratified_commits(table_id, Version(1)).commits == held
    log.store.put(PublishedCommit(Version(1)).path, contents[0])
    assert lake.database.confirm_published(table_id, Version(2)) == 2


@req("PB-01")
def test_a_claim_about_a_file_with_other_bytes_raises_the_alarm(lake: House) -> None:
    table = lake.create()
    store = lake.log(table.table_id).store
    store.put_if_absent(PublishedCommit(Version(0)).path, b'{"commitInfo":{}}\n')
    with pytest.raises(LogDivergedError):
        lake.database.confirm_published(table.table_id, Version(0))
    [entry] = lake.database.tables(lake.SCHEMA)
    assert entry.published is None


@req("CM-26")
def test_the_latest_version_is_known_when_all_is_published_and_forgotten(lake: House) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id)
    with lake.database._store.write() as unit:
        row = unit.table(table.table_id)
        assert row is not None
        unit.delete_content(row.key, row.head)
    lake.restart()
    assert lake.catalog.ratified_commits(table.table_id).latest == 1
    assert lake.catalog.ratified_commits(table.table_id).commits == ()
    assert lake.catalog.resolve(table.table_id).latest == 1


@req("CM-27", "CM-28", "CM-29", "RD-04", "PB-01")
@shows("FP9", "S14")
def test_a_checkpoint_or_compaction_of_an_unpublished_version_is_not_taken_note_of(
    lake: House,
) -> None:
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    store = lake.log(table.table_id).store
    stem = f"{LOG}/{1:020d}.checkpoint"
    checkpoints = [
        KnownFile(kind=FileKind.CHECKPOINT, first=Version(1), last=Version(1), paths=paths)
        for paths in (
            (f"{stem}.parquet",),
            tuple(f"{stem}.{number:010d}.{2:010d}.parquet" for number in (1, 2)),
            (f"{stem}.{uuid4()}.parquet",),
            (f"{stem}.{uuid4()}.json",),
        )
    ]
    for path in (path for file in checkpoints for path in file.paths):
        store.put_if_absent(path, b"PAR1")
    compacted = f"{LOG}/{0:020d}.{1:020d}.compacted.json"
    store.put_if_absent(compacted, b"{}")
    compaction = KnownFile(
        kind=FileKind.COMPACTION, first=Version(0), last=Version(1), paths=(compacted,)
    )
    for file in (*checkpoints, compaction):
        with pytest.raises(NotPublishedError):
            lake.database.add_file(table.table_id, file)
    held = lake.catalog.ratified_commits(table.table_id).commits
    assert [commit.version for commit in held] == [0, 1]
    crc = f"{LOG}/{1:020d}.crc"
    store.put_if_absent(crc, b"{}")
    lake.database.add_file(
        table.table_id,
        KnownFile(kind=FileKind.CHECKSUM, first=Version(1), last=Version(1), paths=(crc,)),
    )
    lake.catalog.publish(table.table_id)
    lake.database.add_file(table.table_id, compaction)
    for checkpoint in checkpoints:
        lake.database.add_file(table.table_id, checkpoint)
        assert lake.catalog.resolve(table.table_id).checkpoint == checkpoint


@req("CM-28")
def test_a_compaction_is_accepted_once_every_version_of_its_range_is_in_the_log(
    lake: House,
) -> None:
    table_id = lake.create().table_id
    for version in range(1, 4):
        lake.propose(table_id, version, add())
    path = f"{LOG}/{1:020d}.{3:020d}.compacted.json"
    lake.log(table_id).store.put_if_absent(path, b"{}")
    compaction = KnownFile(
        kind=FileKind.COMPACTION, first=Version(1), last=Version(3), paths=(path,)
    )
    for published in range(3):  # none of the range, its first version, all but its last
        lake.catalog.publish(table_id, Version(published))
        with pytest.raises(NotPublishedError):
            lake.database.add_file(table_id, compaction)
        assert lake.catalog.resolve(table_id).compactions == ()
    lake.catalog.publish(table_id)
    lake.database.add_file(table_id, compaction)
    assert lake.catalog.resolve(table_id).compactions == (compaction,)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("../elsewhere.parquet", FileKind.CHECKPOINT),
        (f"{LOG}/{2:020d}.checkpoint.parquet", FileKind.CHECKPOINT),
        (f"{LOG}/{0:020d}.json", FileKind.CHECKPOINT),
        (f"{LOG}/{0:020d}.crc", FileKind.COMPACTION),
        (f"{LOG}/{0:020d}.checkpoint.{1:010d}.{2:010d}.parquet", FileKind.CHECKPOINT),
    ],
)
def test_a_file_that_is_not_what_it_is_called_is_refused(
    inline_lake: House, path: str, kind: FileKind
) -> None:
    table = inline_lake.create()
    inline_lake.catalog.publish(table.table_id)
    file = KnownFile(kind=kind, first=Version(0), last=Version(0), paths=(path,))
    with pytest.raises(Exception, match="invalid-argument"):
        inline_lake.database.add_file(table.table_id, file)
    assert inline_lake.catalog.resolve(table.table_id).checkpoint is None


def _seized(house: House, table_id: TableId) -> bool:
    now_ms = house.clock.now_ms()
    with house.database._store.write() as unit:
        return unit.acquire_lease(f"publish:{table_id}", "another", now_ms, now_ms + 10**9)


def _append_many(house: House, table_id: TableId) -> None:
    for version in range(1, 20):
        house.propose(table_id, version, add())


def crowded(tmp_path: Path, **limits: int) -> House:
    """A lake whose publisher runs, with little room before it."""
    return House(
        tmp_path / "lake", Way.INLINE, ManualClock(), Settings(**limits), has_publisher=True
    )


@req("CM-25")
@shows("FX5", "L5", "L2")
def test_a_backlog_slows_writers_down_and_fails_none_of_them(tmp_path: Path) -> None:
    house = crowded(tmp_path, unpublished_soft=10, publish_every_ms=3_600_000)
    try:
        table = house.create()
        for version in range(1, 200):
            assert isinstance(house.propose(table.table_id, version, add()), Ratified)
            [entry] = house.database.tables(house.SCHEMA)
            assert entry.latest is not None
            assert entry.latest - (-1 if entry.published is None else entry.published) <= 11
    finally:
        house.close()


def test_while_storage_cannot_be_written_commits_go_on_up_to_the_hard_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = crowded(tmp_path, unpublished_soft=5, unpublished_hard=20, publish_every_ms=3_600_000)
    try:
        table, neighbour = house.create(), house.create("other")
        for created in (neighbour, table):
            house.catalog.publish(created.table_id)
        store = locations.store_for(table.location)

        def fail(_: object) -> None:
            raise UnavailableError("The disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr(type(store), "put_many_if_absent", lambda self, items: fail(items))
            for version in range(1, 21):
                assert isinstance(house.propose(table.table_id, version, add()), Ratified)
            with pytest.raises(UnavailableError, match="unpublished commits"):
                house.propose(table.table_id, 21, add())
            txn_id = new_txn_id()
            both = [
                house.part(of.table_id, version, add(), txn_id=txn_id)
                for of, version in ((neighbour, 1), (table, 21))
            ]
            with pytest.raises(UnavailableError, match=f"{table.table_id} has 20 unpublished"):
                house.catalog.propose(Proposal(txn_id=txn_id, parts=tuple(both)))
        # Space returns: all is published in order, and writers go on.
        assert house.catalog.publish(table.table_id) == 20
        assert isinstance(house.propose(table.table_id, 21, add()), Ratified)
        assert published(house, table.table_id)[:21] == list(range(21))
    finally:
        house.close()


def test_a_writer_held_back_too_long_is_told_to_come_again(tmp_path: Path) -> None:
    house = crowded(
        tmp_path,
        unpublished_soft=4,
        unpublished_wait_ms=20,
        publish_every_ms=3_600_000,
        publish_linger_ms=0,
    )
    try:
        table = house.create()
        while not _seized(
            house, table.table_id
        ):  # by another process, which never stops publishing
            pass
        with pytest.raises(BusyError):
            _append_many(house, table.table_id)
    finally:
        house.close()


# What else may have the name of a commit


def spoil(path: Path, harm: str, outside: Path) -> None:
    """Put something else in the place of a file, or of a folder."""
    outside.mkdir(exist_ok=True)
    (outside / "file").write_bytes(b"theirs")
    if path.is_dir():
        path.rename(outside / "moved")
    else:
        path.unlink(missing_ok=True)
    match harm:
        case "a link out of the table":
            path.symlink_to(outside / "file")
        case "a link to a folder":
            path.symlink_to(outside)
        case "a link to nothing":
            path.symlink_to(path.with_name("nothing"))
        case "a link to itself":
            path.symlink_to(path.name)
        case "a link to another file":
            path.with_name("other").write_bytes(b"theirs")
            path.symlink_to("other")
        case "an empty folder":
            path.mkdir()
        case "a folder":
            path.mkdir()
            (path / "kept").write_bytes(b"theirs")
        case "a pipe":
            os.mkfifo(path)
        case "a truncated file":
            path.write_bytes(b'{"commitInfo')
        case "a file":
            path.write_bytes(b"theirs")


LINKS = (
    "a link out of the table",
    "a link to a folder",
    "a link to nothing",
    "a link to itself",
)
FOLDERS = ("an empty folder", "a folder", "a pipe")


@req("CM-46")
@pytest.mark.parametrize(
    "harm", [*LINKS, *FOLDERS, "a link to another file", "a truncated file", "a file", "nothing"]
)
def test_whatever_takes_the_place_of_a_staged_file_the_ratified_bytes_are_put_back(
    inline_lake: House, tmp_path: Path, harm: str
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    store = lake.log(table.table_id).store
    path = f"{STAGED}/{answer.commits[table.table_id].file_name}"
    ratified = store.get(path)
    file = Path(store.local_path(path) or "")
    spoil(file, harm, tmp_path / "outside")
    assert lake.catalog.publish(table.table_id) == 1
    assert lake.log(table.table_id).read_published(Version(1)) == ratified
    assert file.read_bytes() == ratified
    assert not file.is_symlink()
    assert (tmp_path / "outside" / "file").read_bytes() == b"theirs"
    if harm == "a folder":
        [aside] = file.parent.glob("_set_aside-*")
        assert (aside / "kept").read_bytes() == b"theirs"


@req("CM-46")
@pytest.mark.parametrize("harm", ["a link to a folder", "a link to itself", "a file", "nothing"])
def test_whatever_takes_the_place_of_the_folder_of_staged_files_they_are_put_back(
    inline_lake: House, tmp_path: Path, harm: str
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    table = lake.create()
    answers = [lake.propose(table.table_id, version, add()) for version in (1, 2)]
    store = lake.log(table.table_id).store
    folder = Path(store.local_path(STAGED) or "")
    ratified = {file.name: file.read_bytes() for file in folder.iterdir()}
    spoil(folder, harm, tmp_path / "outside")
    assert lake.catalog.publish(table.table_id) == len(answers)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == ratified
    assert not folder.is_symlink()


def test_a_commit_is_published_although_its_staged_file_cannot_be_put_back(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = inline_lake
    lake.way = Way.STAGED
    table = lake.create()
    assert isinstance(lake.propose(table.table_id, 1, add()), Ratified)
    readable, put = LocalStore.get, LocalStore.put

    def denied(store: LocalStore, path: str, *content: bytes) -> None:
        if path.startswith(STAGED):
            raise PermissionDeniedError(f"{path} is not ours.")
        return put(store, path, *content) if content else readable(store, path)

    monkeypatch.setattr(LocalStore, "get", denied)
    monkeypatch.setattr(LocalStore, "put", denied)
    assert lake.catalog.publish(table.table_id) == 1


@req("CM-24")
@pytest.mark.parametrize("harm", [*LINKS, *FOLDERS])
def test_what_has_the_name_of_a_version_and_is_no_commit_is_set_aside(
    inline_lake: House, tmp_path: Path, harm: str
) -> None:
    lake = inline_lake
    table = lake.create()
    for version in (1, 2):
        lake.propose(table.table_id, version, add())
    lake.catalog.publish(table.table_id, Version(0))
    log = lake.log(table.table_id)
    file = Path(log.store.local_path(PublishedCommit(Version(1)).path) or "")
    spoil(file, harm, tmp_path / "outside")
    assert lake.catalog.publish(table.table_id) == 2
    ratified = lake.catalog.ratified_commits(table.table_id).commits
    assert file.read_bytes() == next(c.content for c in ratified if c.version == 1)
    assert not file.is_symlink()
    [aside] = file.parent.glob("_set_aside-*")
    assert not log.strays() or aside.name in log.strays()[0]
    assert (tmp_path / "outside" / "file").read_bytes() == b"theirs"


def test_a_link_to_a_file_with_other_bytes_stops_publishing_as_the_file_would(
    inline_lake: House, tmp_path: Path
) -> None:
    lake = inline_lake
    table = lake.create()
    lake.propose(table.table_id, 1, add())
    lake.catalog.publish(table.table_id, Version(0))
    file = Path(lake.log(table.table_id).store.local_path(PublishedCommit(Version(1)).path) or "")
    spoil(file, "a link to another file", tmp_path / "outside")
    with pytest.raises(LogDivergedError):
        lake.catalog.publish(table.table_id)
