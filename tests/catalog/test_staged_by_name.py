"""Staged files proposed by name alone, and descriptions for clients that read only files.

The `lake` here commits staged or inline; files are put beside its own way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from uuid import uuid4

import pytest

from headgate.api.messages import Answer, Ratified, VersionTaken
from headgate.api.status import CommitReports
from headgate.catalog.proposer import StagedProposal
from headgate.catalog.stores.rows import Batch, Epoch, InDoubtError
from headgate.catalog.stores.sqlite_units import SQLiteWriteUnit
from headgate.catalog.stores.writer import WriteUnit
from headgate.errors import (
    DamagedError,
    InvalidCommitError,
    LogDivergedError,
    NotFoundError,
    OutcomeUnknownError,
    TxnIdReusedError,
    UnavailableError,
)
from headgate.http.unity.table_views import in_staged_files
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Action, TableId, TxnId, Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.commit.examination import Violation
from headgate.protocol.paths import STAGED, PublishedCommit, StagedCommit
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import add, file_content, metadata, new_txn_id, remove


def put(
    lake: House, table_id: TableId, version: int, *actions: Action, txn_id: TxnId | None = None
) -> Staged:
    stamp = max(lake.clock.ms, lake.stamp_of(table_id) + 1)
    content = file_content(
        *(actions or (add(),)), txn_id=txn_id or new_txn_id(), timestamp_ms=stamp
    )
    commit = StagedCommit(Version(version), uuid4())
    lake.log(table_id).stage(commit, content)
    return Staged(file_name=commit.name, size=len(content))


def propose(lake: House, table_id: TableId, version: int, staged: Staged) -> Answer:
    before = lake.database.describe(table_id, Version(version))
    return lake.database.decide(StagedProposal(before, Version(version), staged)).answer


def test_a_file_is_ratified_by_its_name_and_again_gets_the_first_answer(lake: House) -> None:
    table_id = lake.create().table_id
    staged = put(lake, table_id, 1)
    first = propose(lake, table_id, 1, staged)
    assert isinstance(first, Ratified)
    assert lake.database.file_of(table_id, Version(1)) == staged.file_name
    lake.database.publish(table_id)
    lake.log(table_id).store.delete(f"_delta_log/_staged_commits/{staged.file_name}")
    again = propose(lake, table_id, 1, staged)
    assert isinstance(again, Ratified)
    assert again.sequence == first.sequence


def test_a_taken_version_is_no_conflict_whatever_the_two_do(lake: House) -> None:
    table_id = lake.create().table_id
    file = add("a.parquet")
    propose(lake, table_id, 1, put(lake, table_id, 1, file))
    txn_id = new_txn_id()
    lost = put(lake, table_id, 2, remove(file), txn_id=txn_id)
    propose(lake, table_id, 2, put(lake, table_id, 2, remove(file)))
    answer = propose(lake, table_id, 2, lost)
    assert isinstance(answer, VersionTaken)
    assert answer.latest == {table_id: 2}
    # Nothing was recorded: the loser proposes again under the same txnId, with other content.
    again = propose(lake, table_id, 3, put(lake, table_id, 3, txn_id=txn_id))
    assert isinstance(again, Ratified)


def test_far_behind_it_is_still_only_the_version_that_decides(inline_lake: House) -> None:
    table_id = inline_lake.create().table_id
    file = add("a.parquet")
    inline_lake.propose(table_id, 1, file)
    late = put(inline_lake, table_id, 2, remove(file))
    for version in range(2, 80):
        inline_lake.propose(table_id, version, add())
    assert isinstance(propose(inline_lake, table_id, 2, late), VersionTaken)


def test_who_comes_late_is_told_so_without_a_turn(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = lake.create().table_id
    late = put(lake, table_id, 1)
    propose(lake, table_id, 1, put(lake, table_id, 1))
    monkeypatch.setattr(lake.database._ratifier, "submit", None)
    assert isinstance(propose(lake, table_id, 1, late), VersionTaken)


@shows("FC6")
def test_a_transaction_is_not_ratified_at_a_second_version(lake: House) -> None:
    table_id = lake.create().table_id
    txn_id = new_txn_id()
    propose(lake, table_id, 1, put(lake, table_id, 1, txn_id=txn_id))
    other = put(lake, table_id, 1, txn_id=txn_id)
    assert isinstance(propose(lake, table_id, 1, other), VersionTaken)
    with pytest.raises(TxnIdReusedError, match="already committed as version 1"):
        propose(lake, table_id, 2, put(lake, table_id, 2, txn_id=txn_id))
    assert lake.catalog.resolve(table_id).latest == 1


def test_who_lost_often_goes_first(lake: House) -> None:
    table_id = lake.create().table_id
    txn_id = new_txn_id()
    for version in (1, 2, 3):
        propose(lake, table_id, version, put(lake, table_id, version))
        lost = put(lake, table_id, version, txn_id=txn_id)
        assert isinstance(propose(lake, table_id, version, lost), VersionTaken)
    with lake.database._store.read() as unit:
        row = unit.table(table_id)
    assert row is not None
    assert row.ticket == txn_id


def test_a_file_that_is_not_there_is_refused_unless_its_version_is_taken(lake: House) -> None:
    table_id = lake.create().table_id
    missing = Staged(file_name=StagedCommit(Version(1), uuid4()).name, size=7)
    with pytest.raises(InvalidCommitError, match="is not there"):
        propose(lake, table_id, 1, missing)
    propose(lake, table_id, 1, put(lake, table_id, 1))
    assert isinstance(propose(lake, table_id, 1, missing), VersionTaken)
    with pytest.raises(NotFoundError):
        propose(lake, TableId(str(uuid4())), 1, missing)


@req("AU-02")
def test_what_the_sender_said_of_a_file_is_held_against_it(lake: House) -> None:
    table_id = lake.create().table_id
    staged = put(lake, table_id, 1)
    says = Violation(rule="not-as-declared", says="it has a file")
    with pytest.raises(InvalidCommitError, match="it has a file"):
        lake.database.decide(
            StagedProposal(
                lake.database.describe(table_id, Version(1)),
                Version(1),
                staged,
                lambda found: [says] if found.adds else [],
            )
        )
    assert lake.catalog.resolve(table_id).latest == 0
    assert isinstance(propose(lake, table_id, 1, staged), Ratified)


def test_what_a_commit_left_is_told_without_a_question(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = lake.create().table_id
    lake.database.publish(table_id)
    file = add("a.parquet")
    configured = metadata(table_id, properties={"a": "b"})
    for version, actions in enumerate([(file,), (configured,), (remove(file),)], 1):
        before = lake.database.describe(table_id, Version(version))
        staged = put(lake, table_id, version, *actions)
        decided = lake.database.decide(StagedProposal(before, Version(version), staged))
        answer, described = decided.answer, lake.database.table_after(before, decided)
        assert isinstance(answer, Ratified)
        with monkeypatch.context() as patch:
            patch.setattr(lake.database._store, "read", None)
            after = lake.database.describe_after(before, described, answer.commits[table_id])
        assert after == lake.database.describe_in_files(table_id, Version(version))
        assert (after.latest, after.commits[-1].file_name) == (version, staged.file_name)


def test_what_a_commit_left_is_looked_up_where_it_was_not_told_before(inline_lake: House) -> None:
    table_id = inline_lake.create().table_id
    inline_lake.propose(table_id, 1, add())  # in no file, so that it is published first
    before = inline_lake.database.describe(table_id, Version(2))
    staged = put(inline_lake, table_id, 2)
    decided = inline_lake.database.decide(StagedProposal(before, Version(2), staged))
    answer, described = decided.answer, inline_lake.database.table_after(before, decided)
    assert isinstance(answer, Ratified)
    inline_lake.propose(table_id, 3, add())
    newer = inline_lake.database.describe(table_id, Version(2))
    decided = inline_lake.database.decide(StagedProposal(newer, Version(2), staged))
    again, later = decided.answer, inline_lake.database.table_after(newer, decided)
    assert isinstance(again, Ratified)
    assert (
        inline_lake.database.describe_after(before, described, answer.commits[table_id]).latest == 3
    )
    assert inline_lake.database.describe_after(before, later, again.commits[table_id]).latest == 3
    assert inline_lake.database.describe_briefly(table_id).published == 3


@req("CA-04")
def test_who_reads_files_alone_finds_every_inline_commit_published(inline_lake: House) -> None:
    table = inline_lake.create()
    inline_lake.propose(table.table_id, 1, add())
    propose(inline_lake, table.table_id, 2, put(inline_lake, table.table_id, 2))
    described = inline_lake.database.describe_in_files(TableName.parse("t"))
    assert (described.latest, described.last_without_file) == (2, 1)
    log = inline_lake.log(table.table_id)
    assert [log.is_published(Version(v)) for v in range(3)] == [True, True, False]
    assert [commit.version for commit in described.commits] == [0, 1, 2]
    assert inline_lake.database.describe(table.table_id).last_without_file is None


@shows("S9")
def test_engines_are_told_of_no_staged_file_that_a_power_loss_may_have_taken(lake: House) -> None:
    table_id = lake.create().table_id
    for version in (1, 2):
        propose(lake, table_id, version, put(lake, table_id, version))
    described = lake.database.describe_in_files(table_id)
    assert described.last_without_file == 0  # which came inline; the others were seen just now
    assert [one.version for one in in_staged_files(described)] == [2, 1]
    log = lake.log(table_id)
    staged = [f"{STAGED}/{one.file_name}" for one in in_staged_files(described)]
    ratified = [log.read(path) for path in staged]
    for path in staged:
        log.store.delete(path)
    lake.restart()
    log = lake.log(table_id)
    described = lake.database.describe_in_files(table_id)
    assert (described.latest, described.last_without_file) == (2, 2)
    assert in_staged_files(described) == []
    assert [log.read_published(Version(v)) for v in (2, 1)] == ratified
    assert [log.read(path) for path in staged] == ratified  # as answered before
    propose(lake, table_id, 3, put(lake, table_id, 3))
    assert [one.version for one in in_staged_files(lake.database.describe(table_id))] == [3]


def test_a_log_that_diverged_is_not_told_to_who_reads_files(inline_lake: House) -> None:
    table = inline_lake.create()
    inline_lake.propose(table.table_id, 1, add())
    inline_lake.log(table.table_id).store.put(PublishedCommit(Version(1)).path, b"{}\n")
    for _ in range(2):
        with pytest.raises(LogDivergedError):
            inline_lake.database.describe_in_files(table.table_id)
    assert inline_lake.database.describe(table.table_id).latest == 1


@req("CA-04")
def test_what_cannot_be_published_in_time_is_not_told(inline_lake: House) -> None:
    table = inline_lake.create()
    with inline_lake.database._store.write() as unit:
        unit.acquire_lease(
            f"publish:{table.table_id}",
            "another",
            inline_lake.clock.ms,
            inline_lake.clock.ms + 9999,
        )
    object.__setattr__(inline_lake.database._settings, "unpublished_wait_ms", 100)
    with pytest.raises(UnavailableError, match="could not be published"):
        inline_lake.database.describe_in_files(table.table_id)


def test_tables_are_described_in_pages_and_found_by_their_place(lake: House) -> None:
    tables = [lake.create(name) for name in ("a", "b", "c")]
    page, following = lake.database.describe_page(SchemaName("main", "default"), None, 2)
    assert [described.name.table for described in page] == ["a", "b"]
    [last], end = lake.database.describe_page(SchemaName("main", "default"), following, 2)
    assert end is None
    assert last.table_id == tables[2].table_id
    assert lake.database.table_at(f"{tables[0].location}/") == tables[0].table_id
    assert lake.database.table_at(f"{tables[0].location}/deeper") is None
    staged = lake.database.stage_table()
    assert lake.database.table_at(staged.location) == staged.table_id
    assert lake.database.location_of(staged.table_id) == staged.location
    lake.database.drop_table(tables[0].table_id)
    with pytest.raises(NotFoundError):
        lake.database.location_of(tables[0].table_id)


def test_reports_are_added_up(lake: House) -> None:
    table_id = lake.create().table_id
    assert lake.database.commit_reports(table_id) == CommitReports()
    for _ in range(2):
        lake.database.report_commit(
            table_id, CommitReports(commits=1, files_added=3, bytes_added=9)
        )
    assert lake.database.commit_reports(table_id) == CommitReports(
        commits=2, files_added=6, bytes_added=18, last_ms=lake.clock.ms
    )
    with pytest.raises(NotFoundError):
        lake.database.report_commit(TableId(str(uuid4())), CommitReports(commits=1))


class DoubtfulStore:
    """A store whose commits now and then leave it open whether they happened."""

    def __init__(self, inner: Any, *, happens: bool) -> None:
        self._inner = inner
        self._happens = happens
        self.doubts = 1
        self.is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self) -> AbstractContextManager[WriteUnit]:
        self._refuse_if_over()
        return self._inner.write()  # type: ignore[no-any-return]

    def _refuse_if_over(self) -> None:
        if not self.doubts and self.is_over:
            raise UnavailableError("The database is away.")

    def write_batch(self, expected: Epoch, batch: Batch) -> Epoch | None:
        self._refuse_if_over()
        written: Epoch | None = None
        if self._happens or not self.doubts:
            written = self._inner.write_batch(expected, batch)
        if self.doubts:
            self.doubts -= 1
            raise InDoubtError("the connection was lost", is_store_usable=True)
        return written


@pytest.mark.parametrize("happens", [True, False])
def test_where_the_database_did_not_say_it_is_found_out(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch, happens: bool
) -> None:
    table_id = inline_lake.create().table_id
    staged = put(inline_lake, table_id, 1)
    ratifier = inline_lake.database._ratifier
    doubtful = DoubtfulStore(ratifier._store, happens=happens)
    monkeypatch.setattr(ratifier, "_store", doubtful)
    answer = propose(inline_lake, table_id, 1, staged)
    assert isinstance(answer, Ratified)
    assert doubtful.doubts == 0
    assert inline_lake.catalog.resolve(table_id).latest == 1


def test_a_doubt_that_does_not_end_is_told(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = inline_lake.create().table_id
    staged = put(inline_lake, table_id, 1)
    ratifier = inline_lake.database._ratifier
    doubtful = DoubtfulStore(ratifier._store, happens=True)
    doubtful.is_over = True
    monkeypatch.setattr(ratifier, "_store", doubtful)
    with pytest.raises(OutcomeUnknownError):
        propose(inline_lake, table_id, 1, staged)
    assert inline_lake.clock.waited_s > 20
    doubtful.is_over = False
    assert isinstance(propose(inline_lake, table_id, 1, staged), Ratified)


@pytest.mark.parametrize("damage", ["headgate.db", "headgate.db-wal"])
def test_a_doubt_followed_by_a_refusal_stays_a_doubt(
    inline_lake: House, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    table_id = inline_lake.create().table_id
    staged = put(inline_lake, table_id, 1)
    write = SQLiteWriteUnit.write_batch

    def write_and_damage(unit: SQLiteWriteUnit, batch: Batch) -> None:
        write(unit, batch)
        (inline_lake.root / damage).unlink()

    monkeypatch.setattr(SQLiteWriteUnit, "write_batch", write_and_damage)
    with pytest.raises(OutcomeUnknownError):
        propose(inline_lake, table_id, 1, staged)
    with pytest.raises(DamagedError):
        propose(inline_lake, table_id, 1, staged)
