"""What once went wrong, each as the story of how."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.api.messages import Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.catalog.stores.reader import ReadUnit
from headgate.errors import HeadgateError, NotEmptyError, UnavailableError
from headgate.names import TableName
from headgate.protocol.actions import Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Staged, Way
from headgate.protocol.commit.facts import ExaminedProposal, Gathered
from headgate.protocol.commit.row_ids import domain_for
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import LOG, STAGED, PublishedCommit
from headgate.storage import locations
from headgate.storage.object_store import PutUnknownError
from tests.catalog.conftest import House
from tests.catalog.fsck_steps import older_copy, problems
from tests.kit import shows
from tests.kit.builders import (
    START_MS,
    ManualClock,
    add,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
    remove,
)


def test_a_place_with_anything_in_it_cannot_be_staged(inline_lake: House, tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "letter.txt").write_text("dear")
    for place in (documents, inline_lake.root, inline_lake.root.parent):
        with pytest.raises(HeadgateError):
            inline_lake.database.stage_table(str(place))
    inline_lake.database.expire_staging(0)
    assert (documents / "letter.txt").read_text() == "dear"
    assert (inline_lake.root / "headgate.db").exists()


def test_a_place_whose_version_0_was_cleaned_away_is_not_free(
    inline_lake: House, tmp_path: Path
) -> None:
    store = locations.store_for(locations.normalize(str(tmp_path / "cleaned")))
    store.put(PublishedCommit(Version(7)).path, b"{}\n")
    with pytest.raises(NotEmptyError):
        inline_lake.database.stage_table(str(tmp_path / "cleaned"))


def test_metadata_of_a_batch_that_was_not_written_is_judged_by_no_more(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = inline_lake
    table = house.create()
    only_adds = metadata(table.table_id, properties={"delta.appendOnly": "true"})

    def fail(*_: object) -> None:
        raise UnavailableError("The catalog's disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(house.database._store, "write_batch", fail)
        with pytest.raises(UnavailableError, match="disk is full"):
            house.propose(table.table_id, 1, protocol("appendOnly"), only_adds)
    house.propose(table.table_id, 1, metadata(table.table_id, properties={"headgate.x": "1"}))
    assert isinstance(house.propose(table.table_id, 2, remove(add())), Ratified)


def test_a_purge_cut_short_after_a_checkpoint_at_the_head_is_still_found(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create()
    house.catalog.publish(table.table_id)
    path = f"{LOG}/{0:020d}.checkpoint.parquet"
    store = locations.store_for(table.location)
    store.put(path, b"PAR1")
    house.database.add_file(
        table.table_id,
        KnownFile(kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=(path,)),
    )
    house.catalog.drop_table(table.table_id)
    with house.database._store.write() as unit:  # the first step of a purge, and then a crash
        row = unit.table(table.table_id)
        assert row is not None
        unit.update_table(row._replace(state=type(row.state).PURGED))
    assert house.catalog.purge_table(table.table_id) > 0
    assert list(store.list("", recursive=True)) == []


@shows("FS3")
def test_a_forgotten_version_that_partitioned_anew_is_not_taken_for_an_intruders(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create(schema="id long, day date")
    older_copy(house, table.table_id, commits=0)
    changed = metadata(table.table_id, "id long, day date", partition_by=["day"])
    content = file_content(changed, txn_id=new_txn_id(), timestamp_ms=START_MS + 600_000)
    house.log(table.table_id).store.put_if_absent(PublishedCommit(Version(1)).path, content)
    house.catalog.publish(table.table_id)
    house.restart()
    with pytest.raises(HeadgateError, match="log-ahead"):
        house.propose(table.table_id, 1, add())
    problems(house, repair=True)
    resolved = house.catalog.resolve(table.table_id)
    assert resolved.latest == 1
    assert resolved.metadata is not None
    assert resolved.metadata.partition_columns == ["day"]


@shows("S9", "S12")
def test_a_repair_never_calls_published_what_it_did_not_see(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    for version in (1, 2):
        house.propose(table.table_id, version, add())
    content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 50)
    house.log(table.table_id).store.put_if_absent(PublishedCommit(Version(3)).path, content)
    problems(house, repair=True)
    log = house.log(table.table_id)
    [entry] = house.catalog.tables()
    assert entry.published is not None
    assert all(log.is_published(Version(v)) for v in range(entry.published + 1))


def test_a_transaction_ratified_before_that_lies_ahead_again_is_an_intruders(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create()
    answer = house.propose(table.table_id, 1, add())
    house.catalog.publish(table.table_id)
    content = file_content(add(), txn_id=answer.txn_id, timestamp_ms=START_MS + 50)
    house.log(table.table_id).store.put_if_absent(PublishedCommit(Version(2)).path, content)
    found = problems(house, repair=True)
    assert {finding.rule for finding in found} == {"AU-01"}
    assert house.catalog.resolve(table.table_id).latest == 1


@shows("S3")
def test_row_ids_go_on_after_those_of_version_0_and_their_mark_never_goes_back(
    inline_lake: House,
) -> None:
    house = inline_lake
    table_id = new_table_id()
    tracked = protocol("rowTracking", "domainMetadata")
    first = inline(tracked, metadata(table_id), add(records=10))
    house.catalog.create_table(TableName.parse("t"), table_id, new_txn_id(), first)
    answer = house.propose(table_id, 1, add(records=5))
    assert isinstance(answer, Ratified)
    content = answer.commits[table_id].content
    assert content is not None
    assert b'"baseRowId":10' in content
    house.way = Way.STAGED
    back = house.propose(table_id, 2, domain_for(3))
    assert isinstance(back, Rejected)
    assert {violation.rule for violation in back.violations} == {"row-id-high-water"}


@shows("S5", "FM8")
def test_a_staged_file_that_was_not_there_does_not_become_a_version_when_it_comes(
    lake: House,
) -> None:
    table = lake.create()
    txn_id = new_txn_id()
    content = file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + 5)
    name = f"{1:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    part = Part(
        table_id=table.table_id,
        version=Version(1),
        content=Staged(file_name=name, size=len(content)),
    )
    refused = lake.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))
    assert isinstance(refused, Rejected)
    locations.store_for(table.location).put_if_absent(f"{STAGED}/{name}", content)
    assert lake.catalog.propose(Proposal(txn_id=txn_id, parts=(part,))) == refused
    assert lake.catalog.resolve(table.table_id).latest == 0


def test_a_metadata_commit_is_answered_again_after_its_table_was_dropped(lake: House) -> None:
    table = lake.create()
    changed = metadata(table.table_id, properties={"headgate.x": "1"})
    proposal = lake.proposal(table.table_id, 1, changed)
    first = lake.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    lake.catalog.drop_table(table.table_id)
    lake.restart()
    again = lake.catalog.propose(proposal)
    assert isinstance(again, Ratified)
    assert again.sequence == first.sequence


def test_a_put_that_may_have_happened_is_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = house.create()
    proposal = house.proposal(table.table_id, 1, add())
    store = locations.store_for(table.location)
    put = type(store).put_if_absent

    def lose(self: object, path: str, content: bytes) -> bool:
        put(self, path, content)  # type: ignore[arg-type]
        raise PutUnknownError("The answer was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "put_if_absent", lose)
        with pytest.raises(HeadgateError) as unknown:
            house.catalog.propose(proposal)
    assert unknown.value.code == "outcome-unknown"
    assert isinstance(house.catalog.propose(proposal), Ratified)
    assert house.catalog.resolve(table.table_id).latest == 1


def test_a_commit_put_while_another_is_on_its_way_is_a_lost_race_and_no_fault(
    tmp_path: Path,
) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    table = house.create()
    slow = house.proposal(table.table_id, 1, add())
    fast = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    examine = house.catalog._violations  # type: ignore[union-attr]

    def overtaken(*arguments: object) -> object:
        fast.propose(table.table_id, 1, add())
        return examine(*arguments)  # type: ignore[arg-type]

    house.catalog._violations = overtaken  # type: ignore[union-attr, method-assign, assignment]
    assert isinstance(house.catalog.propose(slow), VersionTaken)


@shows("S25", "FI8")
def test_a_tombstone_of_a_table_that_is_gone_hides_no_other(tmp_path: Path) -> None:
    house = House(tmp_path / "lake", Way.PUT_IF_ABSENT, ManualClock())
    old = house.create().table_id
    house.catalog.drop_table(old)
    house.catalog.purge_table(old)
    new = house.create().table_id
    tombstone = house.root / "main/default/t.dropped"
    tombstone.write_text(f'{{"tableId": "{old}"}}')  # a drop that was long on its way
    assert house.catalog.resolve(TableName.parse("t")).table_id == new
    house.catalog.purge_table(old)
    assert house.catalog.resolve(TableName.parse("t")).latest == 0


@shows("FP4")
def test_nothing_is_published_above_an_intruders_file(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    house.catalog.publish(table.table_id)
    for version in (1, 2, 3):
        house.propose(table.table_id, version, add())
    log = house.log(table.table_id)
    log.store.put_if_absent(PublishedCommit(Version(1)).path, b'{"commitInfo":{}}\n')
    with pytest.raises(HeadgateError, match="log-diverged"):
        house.catalog.publish(table.table_id)
    assert not log.is_published(Version(2))


def test_resolving_costs_no_more_for_many_checksums(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    with house.database._store.write() as unit:
        row = unit.table(table.table_id)
        assert row is not None
        for version in range(500):
            unit.insert_file(
                row.key,
                KnownFile(
                    kind=FileKind.CHECKSUM,
                    first=Version(version),
                    last=Version(version),
                    paths=("x",),
                ),
            )
        assert unit.files(row.key, Version(10**6)) == []


def test_a_forked_child_is_told_to_connect_again(inline_lake: House) -> None:
    table = inline_lake.create()
    proposal = inline_lake.proposal(table.table_id, 1, add())
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: inline_lake.catalog.propose(proposal),
            lambda: inline_lake.catalog.resolve(table.table_id),
        ):
            try:
                call()
            except UnavailableError:
                refused += 1
        os._exit(0 if refused == 2 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert isinstance(inline_lake.catalog.propose(proposal), Ratified)


def test_what_the_catalog_does_not_know_it_does_not_move(inline_lake: House) -> None:
    table = inline_lake.create()
    inline_lake.propose(table.table_id, 1, add())
    odd = inline(add()).actions + b'{"fromTheFuture":{}}\n'
    content = type(inline())(commit_info={}, actions=odd)
    part = Part(table_id=table.table_id, version=Version(1), content=content)
    answer = inline_lake.catalog.propose(Proposal(txn_id=new_txn_id(), parts=(part,)))
    assert isinstance(answer, VersionTaken)


@pytest.mark.parametrize("winners", [60, 70])
@pytest.mark.parametrize("conflicts", [True, False])
def test_many_winners_in_a_table_that_was_only_read_are_looked_at_outside_the_lock(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch, winners: int, conflicts: bool
) -> None:
    house = inline_lake
    read, written = house.create("r").table_id, house.create("w").table_id
    for version in range(1, winners + 1):
        house.propose(read, version, add())
    if conflicts:
        house.propose(read, winners + 1, metadata(read, "id long, more long"))
    looked: list[ExaminedProposal] = []
    compare = house.database._ratifier._decider.compare

    def noting(unit: ReadUnit, proposal: ExaminedProposal, gathered: Gathered) -> Gathered:
        looked.append(proposal)
        return compare(unit, proposal, gathered)

    monkeypatch.setattr(house.database._ratifier._decider, "compare", noting)
    scan = Scan(table_id=read, version=Version(0))
    answer = house.propose(written, 1, add(), scans=(scan,))
    assert isinstance(answer, Rejected if conflicts else Ratified)
    assert len(looked) == (winners > 64)
    looked.clear()
    # A late append is compared with nothing, unless protocol or metadata changed.
    assert isinstance(house.propose(read, 1, add()), Rejected if conflicts else Ratified)
    assert len(looked) == (winners > 64 and conflicts)


def test_thousands_of_winners_in_conflict_are_told_in_part(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    files = [add() for _ in range(150)]
    house.propose(table.table_id, 1, *files)
    slow = house.proposal(table.table_id, 2, *map(remove, files))
    for version, file in enumerate(files, start=2):
        house.propose(table.table_id, version, remove(file))
    answer = house.catalog.propose(slow)
    assert isinstance(answer, Rejected)
    assert len(answer.conflicts) == 100
