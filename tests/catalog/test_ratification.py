"""Who wins a version, and what everybody is answered; on every kind of catalog."""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest

from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.catalog.filesystem import FilesystemCatalog
from headgate.catalog.service import Catalog
from headgate.errors import (
    InvalidCommitError,
    NotFoundError,
    OutcomeUnknownError,
    TransactionExpiredError,
    TxnIdReusedError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import DomainMetadata, TxnId, Version
from headgate.protocol.commit.content import Put, Staged, Way
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import STAGED, PublishedCommit
from headgate.settings import Settings
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import START_MS, add, file_content, new_txn_id, remove


def rules(answer: object) -> set[str]:
    assert isinstance(answer, Rejected), answer
    return {violation.rule for violation in answer.violations} | {
        conflict.rule for conflict in answer.conflicts
    }


@req("CM-10")
@shows("S1", "FI6")
def test_version_2_is_refused_while_1_is_not_ratified(house: House) -> None:
    table = house.create()
    assert rules(house.propose(table.table_id, 2, add())) == {"version-gap"}
    assert isinstance(house.propose(table.table_id, 1, add()), Ratified)
    assert isinstance(house.propose(table.table_id, 2, add()), Ratified)
    assert house.catalog.resolve(table.table_id).latest == 2


@req("CM-10")
@shows("S1", "FI6")
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_transaction_is_refused_where_one_of_its_tables_would_skip_a_version(
    lake: House, ahead: int
) -> None:
    ids = [lake.create(name).table_id for name in ("one", "other")]
    txn_id, stamp = new_txn_id(), lake.clock.ms + 9
    parts = [
        lake.part(table_id, 1 + (n == ahead), add(), txn_id=txn_id, timestamp_ms=stamp)
        for n, table_id in enumerate(ids)
    ]
    answer = lake.catalog.propose(Proposal(txn_id=txn_id, parts=tuple(parts)))
    assert rules(answer) == {"version-gap"}
    assert [lake.catalog.resolve(table_id).latest for table_id in ids] == [0, 0]


@req("CM-11", "CM-14")
@shows("S2", "FI6")
def test_of_two_that_remove_one_file_the_first_wins_and_the_other_is_told_by_whom(
    house: House,
) -> None:
    table = house.create()
    file = add()
    house.propose(table.table_id, 1, file)
    first = house.propose(table.table_id, 2, remove(file))
    second = house.propose(table.table_id, 2, remove(file))
    assert isinstance(first, Ratified)
    assert isinstance(second, Rejected | VersionTaken)
    [winner] = second.winners[table.table_id]
    assert winner.version == 2
    assert winner.txn_id == first.txn_id
    assert house.catalog.resolve(table.table_id).latest == 2


@req("CM-14")
def test_a_rejection_that_is_repeated_leaves_the_winners_to_be_asked_for(lake: House) -> None:
    lake.way = Way.INLINE
    table_id, file = lake.create().table_id, add()
    lake.propose(table_id, 1, file)
    late = lake.proposal(table_id, 2, remove(file))
    assert isinstance(lake.propose(table_id, 2, remove(file)), Ratified)
    first, again = (lake.catalog.propose(late) for _ in range(2))
    assert isinstance(first, Rejected)
    assert first.conflicts
    assert first.winners == {table_id: lake.catalog.ratified_commits(table_id, Version(2)).commits}
    assert again == replaced(first, winners={})


@req("CM-14")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
def test_a_transaction_that_lost_in_several_tables_is_given_the_winners_of_each(
    lake: House,
) -> None:
    ids = [lake.create(name).table_id for name in ("one", "other")]
    txn_id, stamp = new_txn_id(), lake.clock.ms + 9
    parts = [lake.part(t, 1, add(), txn_id=txn_id, timestamp_ms=stamp) for t in ids]
    for table_id, last in zip(ids, (3, 1), strict=True):
        for version in range(1, last + 1):
            assert isinstance(lake.propose(table_id, version, add()), Ratified)
    answer = lake.catalog.propose(Proposal(txn_id=txn_id, parts=tuple(parts)))
    assert isinstance(answer, VersionTaken)
    assert answer.latest == dict(zip(ids, (3, 1), strict=True))
    for table_id in ids:
        held = lake.catalog.ratified_commits(table_id, Version(1)).commits
        assert answer.winners[table_id] == held


@req("CM-10", "CM-11")
@shows("S1", "S2", "S3")
def test_every_interleaving_of_three_writers_gives_contiguous_versions_with_one_winner_each(
    house: House,
) -> None:
    table = house.create()
    latest = 0
    for order in itertools.permutations(range(3)):
        # Each was built on the same version; they come in every order, twice over.
        attempts = [house.proposal(table.table_id, latest + 1, remove(add())) for _ in order]
        answers = [house.catalog.propose(attempts[i]) for i in order for _ in range(2)]
        won = [answer for answer in answers if isinstance(answer, Ratified)]
        versions = {answer.commits[table.table_id].version for answer in won}
        assert versions == set(range(latest + 1, latest + 1 + len(versions)))
        assert len({answer.txn_id for answer in won}) == len(versions)
        latest += len(versions)
        assert house.catalog.resolve(table.table_id).latest == latest


@req("CM-42")
@shows("FC4", "S3", "S6", "L3")
def test_the_same_proposal_again_gets_the_first_answer_at_once_and_after_a_restart(
    house: House,
) -> None:
    table = house.create()
    proposal = house.proposal(table.table_id, 1, add())
    first = house.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    assert house.catalog.propose(proposal) == first
    house.propose(table.table_id, 2, add())
    assert house.catalog.propose(proposal) == first
    house.restart()
    assert house.catalog.propose(proposal) == first
    assert house.catalog.resolve(table.table_id).latest == 2


@req("CM-42", "CM-26")
@shows("FC5")
def test_the_first_answer_is_given_after_publishing_and_after_the_content_was_forgotten(
    lake: House,
) -> None:
    table = lake.create()
    proposal = lake.proposal(table.table_id, 1, add())
    first = lake.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    lake.catalog.publish(table.table_id)
    with lake.database._store.write() as unit:
        row = unit.table(table.table_id)
        assert row is not None
        unit.delete_content(row.key, row.head)
    lake.restart()
    again = lake.catalog.propose(proposal)
    assert isinstance(again, Ratified)
    assert again.commits[table.table_id].version == 1
    assert again.sequence == first.sequence
    assert lake.catalog.resolve(table.table_id).latest == 1


@req("CM-42")
@shows("FC5")
def test_the_first_answer_is_given_years_later(house: House) -> None:
    table_id = house.create().table_id
    proposal = house.proposal(table_id, 1, add(), txn_id=new_txn_id(now_ms=house.clock.ms))
    first = house.catalog.propose(proposal)
    assert isinstance(first, Ratified)
    if isinstance(house.catalog, Catalog):
        house.catalog.publish(table_id)
    house.clock.ms += 3 * 365 * 86_400_000  # rejections are kept for 30 days
    if isinstance(house.catalog, Catalog):
        house.catalog.keep_house()
    house.restart()
    again = house.catalog.propose(proposal)
    assert isinstance(again, Ratified)
    assert (again.sequence, again.timestamp_ms) == (first.sequence, first.timestamp_ms)
    one, other = again.commits[table_id], first.commits[table_id]
    assert (one.version, one.sha256, one.size) == (other.version, other.sha256, other.size)
    assert house.catalog.resolve(table_id).latest == 1


@req("CM-42")
@shows("FC6")
def test_a_ratified_transaction_proposed_again_at_a_higher_version_gets_its_first_answer(
    house: House,
) -> None:
    table = house.create()
    file, txn_id = add(), new_txn_id()
    first = house.propose(table.table_id, 1, file, txn_id=txn_id)
    house.propose(table.table_id, 2, add())
    again = house.propose(table.table_id, 3, file, txn_id=txn_id)
    assert again == first
    assert house.catalog.resolve(table.table_id).latest == 2


@req("CM-42", "CM-04")
def test_a_txn_id_with_another_intent_is_refused_and_changes_nothing(house: House) -> None:
    table = house.create()
    txn_id = new_txn_id()
    house.propose(table.table_id, 1, add(), txn_id=txn_id)
    with pytest.raises(TxnIdReusedError):
        house.propose(table.table_id, 1, add(), txn_id=txn_id)
    assert house.catalog.resolve(table.table_id).latest == 1


@req("CM-42")
@shows("FC7")
def test_copies_of_one_request_at_the_same_time_give_one_version_and_equal_answers(
    house: House,
) -> None:
    table = house.create()
    proposal = house.proposal(table.table_id, 1, add())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: house.catalog.propose(proposal), range(16)))
    assert len({repr(answer) for answer in answers}) == 1
    assert isinstance(answers[0], Ratified)
    assert house.catalog.resolve(table.table_id).latest == 1


@req("CM-47")
@shows("FM8", "S5")
def test_what_was_rejected_stays_rejected_after_the_reason_went_away(inline_lake: House) -> None:
    house = inline_lake
    table = house.create()
    ahead = house.proposal(table.table_id, 2, add())
    rejected = house.catalog.propose(ahead)
    assert rules(rejected) == {"version-gap"}
    house.propose(table.table_id, 1, add())
    assert house.catalog.propose(ahead) == rejected
    house.restart()
    assert house.catalog.propose(ahead) == rejected
    assert house.catalog.outcome(ahead.txn_id) == rejected
    assert house.catalog.resolve(table.table_id).latest == 1


@req("CM-47")
@shows("FM8", "S5")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
@pytest.mark.parametrize("what", ["staged file", "data file"])
def test_what_was_rejected_for_a_missing_file_stays_rejected_when_the_file_is_there(
    lake: House, what: str
) -> None:
    """A client with that answer may have deleted the other files."""
    lake.settings = Settings(verify_staged=1)
    lake.restart()
    table_id = lake.create().table_id
    store = lake.log(table_id).store
    store.put("data.parquet", b"rows")
    proposal = lake.proposal(table_id, 1, add("data.parquet", size=4))
    [part] = proposal.parts
    assert isinstance(part.content, Staged)
    path = f"{STAGED}/{part.content.file_name}" if what == "staged file" else "data.parquet"
    kept = store.get(path)
    store.delete(path)
    rejected = lake.catalog.propose(proposal)
    assert rules(rejected) == {"staged-file-missing" if what == "staged file" else "file-missing"}
    store.put(path, kept)
    assert lake.catalog.propose(proposal) == rejected
    lake.restart()
    assert lake.catalog.propose(proposal) == rejected
    assert lake.catalog.resolve(table_id).latest == 0


@req("CM-42", "CM-47")
def test_a_rejection_is_the_answer_for_30_days_and_nothing_is_ratified_under_its_id_after(
    lake: House,
) -> None:
    days_ms = 30 * 24 * 3600 * 1000
    table_id = lake.create().table_id
    txn_id = new_txn_id(7, now_ms=lake.clock.ms)
    ahead = lake.proposal(table_id, 2, add(), txn_id=txn_id)
    rejected = lake.catalog.propose(ahead)
    assert rules(rejected) == {"version-gap"}
    assert isinstance(lake.propose(table_id, 1, add()), Ratified)
    for passed_ms in (days_ms, days_ms + 1):
        lake.clock.ms = START_MS + passed_ms
        young = new_txn_id(now_ms=lake.clock.ms)
        assert rules(lake.propose(table_id, 9, add(), txn_id=young)) == {"version-gap"}
        lake.database.keep_house()
        lake.restart()
        if passed_ms == days_ms:
            assert lake.catalog.propose(ahead) == rejected
    with pytest.raises(TransactionExpiredError):
        lake.catalog.propose(ahead)
    assert lake.catalog.resolve(table_id).latest == 1


@req("CM-47")
def test_a_rejection_under_an_id_without_a_time_is_forgotten_after_30_days(
    inline_lake: House,
) -> None:
    """Only a UUID of version 7 says when its transaction began."""
    lake, txn_id = inline_lake, TxnId(str(uuid.uuid4()))
    table_id = lake.create().table_id
    ahead = lake.proposal(table_id, 2, add(), txn_id=txn_id)
    assert rules(lake.catalog.propose(ahead)) == {"version-gap"}
    assert isinstance(lake.propose(table_id, 1, add()), Ratified)
    lake.clock.ms += lake.settings.rejections_kept_ms
    lake.database.keep_house()
    assert rules(lake.catalog.propose(ahead)) == {"version-gap"}
    lake.clock.ms += 1
    lake.database.keep_house()
    assert isinstance(lake.catalog.propose(ahead), Ratified)


@req("CM-47")
@pytest.mark.parametrize("house", [Way.STAGED, Way.PUT_IF_ABSENT], indirect=True)
def test_a_transaction_whose_version_was_taken_is_not_rejected(house: House) -> None:
    table_id = house.create().table_id
    file, txn_id = add(), new_txn_id()
    late = house.proposal(table_id, 1, file, txn_id=txn_id, timestamp_ms=house.clock.ms + 1)
    assert isinstance(house.propose(table_id, 1, add()), Ratified)
    assert isinstance(house.catalog.propose(late), VersionTaken)
    house.restart()
    if isinstance(house.catalog, Catalog):
        assert house.catalog.outcome(txn_id) is None
    ratified = house.propose(table_id, 2, file, txn_id=txn_id)
    assert isinstance(ratified, Ratified)
    assert house.catalog.propose(late) == ratified


@req("CM-42", "CM-47")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
def test_a_filesystem_catalog_decides_anew_what_it_rejected(house: House) -> None:
    table_id = house.create().table_id
    ahead = house.proposal(table_id, 2, add(), timestamp_ms=START_MS + 1_000)
    assert rules(house.catalog.propose(ahead)) == {"version-gap"}
    assert isinstance(house.propose(table_id, 1, add()), Ratified)
    assert isinstance(house.catalog.propose(ahead), Ratified)


MARGIN_MS = 300_000  # how far clocks may differ


@req("CM-42")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
@pytest.mark.parametrize(
    ("new_id", "set_back_ms"),
    [
        pytest.param(new_txn_id, 0, id="time"),
        pytest.param(new_txn_id, MARGIN_MS - 10, id="clock behind that of the id"),
        pytest.param(lambda: TxnId(str(new_txn_id()).upper()), 0, id="time in upper case"),
        pytest.param(lambda: TxnId(str(uuid.uuid4())), 0, id="no time"),
        pytest.param(lambda: TxnId("load 17"), 0, id="no UUID"),
        pytest.param(lambda: new_txn_id(now_ms=START_MS + 3_600_000), 0, id="time in the future"),
    ],
)
def test_a_filesystem_catalog_finds_a_transaction_below_the_version_it_is_proposed_at(
    house: House, new_id: Callable[[], TxnId], set_back_ms: int
) -> None:
    """Also after a restart, when it does not know at which versions it was proposed before."""
    stamps = itertools.count(START_MS - set_back_ms)
    house.clock.ms = next(stamps)
    table_id, file, txn_id = house.create().table_id, add(), new_id()
    first = house.propose(table_id, 1, file, txn_id=txn_id, timestamp_ms=next(stamps))
    for version in range(2, 30):
        answer = house.propose(table_id, version, add(), timestamp_ms=next(stamps))
        assert isinstance(answer, Ratified)
    house.clock.ms = START_MS + 60_000
    for version in (30, 31, 3):
        house.restart()
        assert house.propose(table_id, version, file, txn_id=txn_id) == first
        with pytest.raises(TxnIdReusedError):
            house.propose(table_id, version, add(), txn_id=txn_id)
    assert house.catalog.resolve(table_id).latest == 29


@req("CM-42")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
def test_a_filesystem_catalog_knows_where_its_process_proposed_whatever_its_clock_shows(
    house: House,
) -> None:
    began_ms = START_MS + 24 * 3_600_000
    table_id, file, txn_id = house.create().table_id, add(), new_txn_id(now_ms=began_ms)
    first = house.propose(table_id, 1, file, txn_id=txn_id)  # the clock was set back by a day
    for version in range(2, 10):
        assert isinstance(house.propose(table_id, version, add()), Ratified)
    house.clock.ms = began_ms
    assert house.propose(table_id, 10, file, txn_id=txn_id) == first


@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
def test_a_filesystem_catalog_reads_no_commits_older_than_a_transaction(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_id = house.create().table_id
    for version in range(1, 30):
        house.propose(table_id, version, add(), timestamp_ms=START_MS + version)
    house.clock.ms = START_MS + 3_600_000
    house.restart()
    read: list[int] = []
    commit = FilesystemCatalog._commit

    def counted(catalog: FilesystemCatalog, place: Any, version: Version, **how: bool) -> Any:
        read.append(version)
        return commit(catalog, place, version, **how)

    monkeypatch.setattr(FilesystemCatalog, "_commit", counted)
    for version in (30, 31, 32):
        txn_id = new_txn_id(now_ms=house.clock.ms)
        content = file_content(add(), txn_id=txn_id, timestamp_ms=house.clock.ms + version)
        part = Part(table_id=table_id, version=Version(version), content=Put(content=content))
        read.clear()
        answer = house.catalog.propose(Proposal(txn_id=txn_id, parts=(part,)))
        assert isinstance(answer, Ratified)
        assert set(read) == {version - 1, version}  # the base, and what was put, for the answer


@req("CM-42")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
def test_a_transaction_whose_commit_was_cleaned_up_has_an_unknown_outcome_in_its_process(
    house: House,
) -> None:
    table_id, file, txn_id = house.create().table_id, add(), new_txn_id()
    house.propose(table_id, 1, file, txn_id=txn_id)
    house.propose(table_id, 2, add())
    house.propose(table_id, 3, add())
    house.log(table_id).store.delete(PublishedCommit(Version(1)).path)
    with pytest.raises(OutcomeUnknownError, match="no longer in the log"):
        house.propose(table_id, 4, file, txn_id=txn_id)


@req("CM-47")
@pytest.mark.parametrize("spelled", ["{}", "{{{}}}", "urn:uuid:{}"])
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_a_txn_id_older_than_rejections_are_kept_is_refused_however_it_is_spelled(
    inline_lake: House, spelled: str, case: Callable[[str], str]
) -> None:
    table = inline_lake.create()
    kept_ms = inline_lake.settings.rejections_kept_ms
    since_ms = inline_lake.clock.ms - kept_ms
    old, young = (
        TxnId(spelled.format(case(new_txn_id(7, now_ms=made_ms))))
        for made_ms in (since_ms - 1, since_ms)
    )
    with pytest.raises(TransactionExpiredError):
        inline_lake.propose(table.table_id, 1, add(), txn_id=old)
    assert inline_lake.catalog.resolve(table.table_id).latest == 0
    assert isinstance(inline_lake.propose(table.table_id, 1, add(), txn_id=young), Ratified)


@req("CM-48", "CM-20")
def test_the_answer_names_version_kind_place_size_and_time_as_ratified_commits_does(
    lake: House,
) -> None:
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add())
    assert isinstance(answer, Ratified)
    answered = answer.commits[table.table_id]
    [held] = lake.catalog.ratified_commits(table.table_id, Version(1)).commits
    # The client that staged a file has its bytes; the others get them in the answer.
    assert answered == (held if lake.way is Way.INLINE else replaced(held, content=None))
    assert (answered.version, answered.way) == (1, lake.way)
    assert (answered.file_name is None) == (lake.way is Way.INLINE)
    assert answered.size > 0
    assert answered.timestamp_ms == answer.timestamp_ms


@req("CM-48")
@pytest.mark.parametrize("lake", [Way.INLINE, Way.STAGED], indirect=True)
def test_the_answer_for_a_transaction_describes_the_commit_of_each_table(lake: House) -> None:
    ids = [lake.create(name).table_id for name in ("one", "other")]
    assert isinstance(lake.propose(ids[1], 1, add()), Ratified)
    txn_id = new_txn_id()
    parts = [
        lake.part(table_id, version, add(), txn_id=txn_id, timestamp_ms=lake.clock.ms + 9)
        for table_id, version in zip(ids, (1, 2), strict=True)
    ]
    answer = lake.catalog.propose(Proposal(txn_id=txn_id, parts=tuple(parts)))
    assert isinstance(answer, Ratified)
    assert list(answer.commits) == ids
    for table_id, version in zip(ids, (1, 2), strict=True):
        [held] = lake.catalog.ratified_commits(table_id, Version(version)).commits
        answered = answer.commits[table_id]
        assert answered == (held if lake.way is Way.INLINE else replaced(held, content=None))
        assert (answered.version, answered.way, answered.txn_id) == (version, lake.way, txn_id)
        content = held.content or b""
        assert (answered.size, answered.sha256) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )


@req("CM-48")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
def test_the_answer_to_a_put_names_version_kind_size_and_time(house: House) -> None:
    table_id = house.create().table_id
    answer = house.propose(table_id, 1, add())
    assert isinstance(answer, Ratified)
    answered = answer.commits[table_id]
    [entry] = house.catalog.timeline(table_id, Version(1))
    assert replaced(answered, content=None) == entry.commit
    content = house.log(table_id).read_published(Version(1))
    assert content is not None
    assert (answered.version, answered.way, answered.size) == (1, Way.PUT_IF_ABSENT, len(content))
    assert answered.timestamp_ms == answer.timestamp_ms == house.stamp_of(table_id)


@req("CM-06", "CM-07")
def test_content_is_kept_until_it_is_safe_elsewhere_and_of_a_staged_commit_its_place_for_ever(
    lake: House,
) -> None:
    table = lake.create()
    answer = lake.propose(table.table_id, 1, add("kept.parquet"))
    assert isinstance(answer, Ratified)
    with lake.database._store.read() as unit:
        row = unit.table(table.table_id)
        assert row is not None
        [commit] = unit.commits(row.key, Version(1), Version(1), content=True)
    assert commit.content is not None
    assert b"kept.parquet" in commit.content
    assert (commit.file_name is not None) == (lake.way is Way.STAGED)
    lake.catalog.publish(table.table_id)
    with lake.database._store.read() as unit:
        [commit] = unit.commits(row.key, Version(1), Version(1), content=True)
    # An inline commit is held until a checkpoint covers it; a staged one is in two files by now.
    assert (commit.content is None) == (lake.way is Way.STAGED)


@req("CM-06")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
def test_a_large_staged_commit_is_synced_and_not_kept(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create()
    store = lake.log(table.table_id).store
    synced: list[str] = []
    sync = type(store).sync

    def noting(self: object, paths: list[str]) -> None:
        synced.extend(paths)
        sync(self, paths)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store), "sync", noting)
    for version, limit in ((1, 1 << 20), (2, 10)):
        object.__setattr__(lake.database._settings, "inline_limit_bytes", limit)
        answer = lake.propose(table.table_id, version, add())
        assert isinstance(answer, Ratified)
    file_name = answer.commits[table.table_id].file_name
    assert synced == [f"{STAGED}/{file_name}"]
    with lake.database._store.read() as unit:
        row = unit.table(table.table_id)
        assert row is not None
        commits = unit.commits(row.key, Version(1), Version(2), content=True)
    assert [commit.content is None for commit in commits] == [False, True]
    assert commits[1].file_name == file_name


@req("CM-08")
def test_ratified_commits_are_served_until_published_also_after_a_restart(lake: House) -> None:
    table = lake.create()
    for version in range(1, 101):
        lake.propose(table.table_id, version, add())
    lake.restart()
    served = lake.catalog.ratified_commits(table.table_id)
    assert served.latest == 100
    assert [commit.version for commit in served.commits] == list(range(101))
    resolved = lake.catalog.resolve(table.table_id)
    assert [commit.version for commit in resolved.commits] == list(range(101))


@req("IN-02")
@shows("L4")
def test_sixteen_blind_appends_built_on_one_version_all_win_with_one_call_each(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create()
    attempts = [house.proposal(table.table_id, 1, add()) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(house.catalog.propose, attempts))
    assert all(isinstance(answer, Ratified) for answer in answers)
    commits = house.catalog.ratified_commits(table.table_id, Version(1)).commits
    assert [commit.version for commit in commits] == list(range(1, 17))
    stamps = [commit.timestamp_ms for commit in commits]
    assert stamps == sorted(set(stamps))


@req("CM-41")
def test_row_ids_of_racing_appends_are_disjoint_and_follow_the_high_water_mark(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create(features=("rowTracking", "domainMetadata"))
    attempts = [house.proposal(table.table_id, 1, add(records=10)) for _ in range(8)]
    for attempt in attempts:
        assert isinstance(house.catalog.propose(attempt), Ratified)
    first_ids = []
    for commit in house.catalog.ratified_commits(table.table_id, Version(1)).commits:
        assert commit.content is not None
        first_ids.append(int(commit.content.split(b'"baseRowId":')[1].split(b",")[0].rstrip(b"}")))
    assert first_ids == [10 * i for i in range(8)]


@req("CM-41")
def test_the_high_water_mark_is_known_after_a_commit_that_sets_another_domain(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create(features=("rowTracking", "domainMetadata"))
    own = DomainMetadata(domain="of.the.user", configuration="{}", removed=False)
    assert isinstance(house.propose(table.table_id, 1, add(records=10), own), Ratified)
    resolved = house.catalog.resolve(table.table_id)
    assert resolved.checksum is not None
    marks = {d.domain: d.configuration for d in resolved.checksum.domain_metadata}
    assert json.loads(marks["delta.rowTracking"]) == {"rowIdHighWaterMark": 9}
    assert marks["of.the.user"] == "{}"


@req("CM-02")
@shows("FI2")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
@pytest.mark.parametrize("named", [1, 3])
def test_a_staged_file_can_only_become_the_version_in_its_name(lake: House, named: int) -> None:
    table = lake.create()
    proposal = lake.proposal(table.table_id, named, add(), timestamp_ms=START_MS + 1_000)
    assert isinstance(lake.propose(table.table_id, 1, add()), Ratified)
    [part] = proposal.parts
    moved = type(part)(table_id=part.table_id, version=Version(2), content=part.content)
    with pytest.raises(InvalidCommitError, match=f"can only become version {named}"):
        lake.catalog.propose(Proposal(txn_id=proposal.txn_id, parts=(moved,)))
    assert lake.catalog.resolve(table.table_id).latest == 1


@req("CM-02", "IN-02")
@shows("FI2")
@pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
def test_a_staged_file_that_lost_its_version_is_moved_to_no_other(lake: House) -> None:
    table_id = lake.create().table_id
    late = lake.proposal(table_id, 1, add(), timestamp_ms=START_MS + 1_000)
    assert isinstance(lake.propose(table_id, 1, add()), Ratified)
    for _ in range(2):
        assert isinstance(lake.catalog.propose(late), VersionTaken)
    assert lake.catalog.resolve(table_id).latest == 1


@shows("FC13", "S8")
def test_a_client_that_slept_through_a_thousand_commits_is_told_or_let_through(
    inline_lake: House,
) -> None:
    house = inline_lake
    table = house.create()
    kept, gone = add(), add()
    house.propose(table.table_id, 1, kept, gone)
    slow_removal = house.proposal(table.table_id, 2, remove(kept))
    slow_loser = house.proposal(table.table_id, 2, remove(gone))
    house.propose(table.table_id, 2, remove(gone))
    for version in range(3, 1003):
        house.propose(table.table_id, version, add())
    assert isinstance(house.catalog.propose(slow_removal), Ratified)
    assert rules(house.catalog.propose(slow_loser)) == {"R6"}
    assert house.catalog.resolve(table.table_id).latest == 1003


def test_a_table_nobody_knows_is_refused(house: House) -> None:
    table = house.create()
    proposal = house.proposal(table.table_id, 1, add())
    [part] = proposal.parts
    stranger = type(part)(table_id=new_txn_id(), version=part.version, content=part.content)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        house.catalog.propose(Proposal(txn_id=proposal.txn_id, parts=(stranger,)))


@req("CA-01")
def test_a_way_the_catalog_does_not_go_is_refused_by_name(house: House) -> None:
    table = house.create()
    others = {
        Way.INLINE: Way.PUT_IF_ABSENT,
        Way.STAGED: Way.PUT_IF_ABSENT,
        Way.PUT_IF_ABSENT: Way.INLINE,
    }
    house.way = others[house.way]
    with pytest.raises(UnsupportedByCatalogError):
        house.propose(table.table_id, 1, add())
    assert house.catalog.resolve(table.table_id).latest == 0


@shows("FX12")
def test_sixty_four_writers_on_tables_of_their_own_never_stand_in_each_others_way(
    inline_lake: House,
) -> None:
    house = inline_lake
    tables = [house.create(f"t{number}").table_id for number in range(64)]

    def write(number: int) -> list[object]:
        return [house.propose(tables[number], version, remove(add())) for version in range(1, 6)]

    with ThreadPoolExecutor(64) as pool:
        answers = [answer for mine in pool.map(write, range(64)) for answer in mine]
    # A commit with a remove is not moved past another, so one that had to come again would show.
    assert all(isinstance(answer, Ratified) for answer in answers)
    sequences = [answer.sequence for answer in answers if isinstance(answer, Ratified)]
    assert sorted(sequences) == list(range(65, 65 + 320))  # type: ignore[type-var]


@shows("FX14")
def test_every_answer_is_one_of_three_kinds_and_each_has_its_way_on(lake: House) -> None:
    table = lake.create()
    file = add()
    lake.propose(table.table_id, 1, file)
    ratified = lake.propose(table.table_id, 2, remove(file))
    rejected = lake.propose(table.table_id, 2, remove(file))
    lake.way = Way.STAGED
    added, txn_id = add(), new_txn_id()
    taken = lake.propose(table.table_id, 2, added, txn_id=txn_id)
    kinds = {type(answer) for answer in (ratified, rejected, taken)}
    assert kinds == set(get_args(Answer))
    assert isinstance(taken, VersionTaken)
    # VersionTaken is not final: the same transaction is proposed again at a higher version.
    higher = taken.latest[table.table_id] + 1
    again = lake.propose(table.table_id, higher, added, txn_id=txn_id)
    assert isinstance(again, Ratified)
