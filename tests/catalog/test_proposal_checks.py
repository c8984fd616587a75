"""Guards of the commit path, each shown by itself.

Where two guards refuse the same thing, one of them could be lost and no test would notice. Here the
other one is switched off, or the case is one that only the guard in question can see.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headgate.api.messages import Answer, Part, Proposal, Ratified, Rejected, VersionTaken
from headgate.catalog.decider import Decided
from headgate.catalog.proposer import StagedProposal
from headgate.errors import LogAheadError, TxnIdReusedError
from headgate.protocol.actions import Action, AddFile, TableId, TxnId, Version
from headgate.protocol.commit import examination, row_ids
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.commit.content import Put, Staged, Way
from headgate.protocol.commit.decide import Need
from headgate.protocol.commit.examination import Examined
from headgate.protocol.commit.strict_json import read
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import STAGED, PublishedCommit, StagedCommit
from headgate.settings import Settings
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectMeta
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import START_MS, ManualClock, add, file_content, inline, new_txn_id, remove

STAGED_ONLY = pytest.mark.parametrize("lake", [Way.STAGED], indirect=True)
BOTH_WAYS = pytest.mark.parametrize("lake", [Way.INLINE, Way.STAGED], indirect=True)


def rules(answer: Answer) -> set[str]:
    assert isinstance(answer, Rejected), answer
    return {violation.rule for violation in answer.violations} | {
        conflict.rule for conflict in answer.conflicts
    }


def won(answer: Answer) -> Ratified:
    assert isinstance(answer, Ratified), answer
    return answer


def part(table_id: TableId, version: int, *actions: Action) -> Part:
    return Part(table_id=table_id, version=Version(version), content=inline(*actions))


def transaction(*parts: Part, scans: tuple[Scan, ...] = (), **how: Any) -> Proposal:
    return Proposal(txn_id=how.pop("txn_id", None) or new_txn_id(), parts=parts, scans=scans, **how)


# What was read


@shows("FM4")
def test_a_table_that_asks_for_serializable_is_given_it_whatever_the_transaction_asks_for(
    inline_lake: House,
) -> None:
    table_id = inline_lake.create(properties={"delta.isolationLevel": "Serializable"}).table_id
    reads = Scan(table_id=table_id, version=Version(0), files=())
    late = transaction(part(table_id, 1, add()), scans=(reads,), isolation=Isolation.SNAPSHOT)
    won(inline_lake.propose(table_id, 1, add()))
    assert rules(inline_lake.catalog.propose(late)) == {"R7"}


@shows("FC13")
def test_a_scan_older_than_the_version_that_is_built_on_counts_winners_from_there(
    inline_lake: House,
) -> None:
    """The write itself is not late at all."""
    table_id = inline_lake.create().table_id
    read = add()
    won(inline_lake.propose(table_id, 1, read))
    won(inline_lake.propose(table_id, 2, remove(read)))
    older = Scan(table_id=table_id, version=Version(1), files=(read.path,))
    answer = inline_lake.catalog.propose(transaction(part(table_id, 3, add()), scans=(older,)))
    assert rules(answer) == {"R5"}


@shows("FM4")
@pytest.mark.parametrize("more", ["nothing", "a read", "a read that fed nothing", "a removal"])
def test_an_append_in_a_transaction_that_does_more_is_not_recorded_as_blind(
    inline_lake: House, more: str
) -> None:
    """Its writer does not say `isBlindAppend`, so only the transaction as a whole shows it."""
    lake = inline_lake
    table_id, other = lake.create("one").table_id, lake.create("other").table_id
    file = add()
    won(lake.propose(other, 1, file))
    late = transaction(
        part(table_id, 1, add()), scans=(Scan(table_id=table_id, version=Version(0)),)
    )
    scan = Scan(table_id=other, version=Version(1), fed=more == "a read")
    parts = [part(table_id, 1, add()), part(other, 2, remove(file))]
    won(
        lake.catalog.propose(
            transaction(
                *(parts if more == "a removal" else parts[:1]),
                scans=(scan,) if "read" in more else (),
            )
        )
    )
    answer = lake.catalog.propose(late)
    if more in ("a read", "a removal"):
        assert rules(answer) == {"R7"}
    else:
        won(answer)


# What a txnId was used for


@req("CM-04", "CM-42", "MT-06")
@BOTH_WAYS
def test_a_txn_id_ratified_for_one_table_is_refused_for_another_or_for_more(lake: House) -> None:
    one, other = lake.create("one").table_id, lake.create("other").table_id
    txn_id, file = new_txn_id(), add()
    won(lake.propose(one, 1, file, txn_id=txn_id))
    with pytest.raises(TxnIdReusedError, match="other tables"):
        lake.propose(other, 1, file, txn_id=txn_id)
    parts = [lake.part(table_id, 1, file, txn_id=txn_id) for table_id in (one, other)]
    with pytest.raises(TxnIdReusedError, match="other tables"):
        lake.catalog.propose(transaction(*parts, txn_id=txn_id))
    assert lake.catalog.resolve(other).latest == 0


@req("CM-04", "CM-47")
@BOTH_WAYS
def test_a_rejected_txn_id_is_refused_for_other_content(lake: House) -> None:
    table_id, txn_id = lake.create().table_id, new_txn_id()
    assert rules(lake.propose(table_id, 5, add(), txn_id=txn_id)) == {"version-gap"}
    with pytest.raises(TxnIdReusedError, match="rejected with other content"):
        lake.propose(table_id, 1, add(), txn_id=txn_id)
    assert lake.catalog.resolve(table_id).latest == 0


@req("CM-42")
@STAGED_ONLY
def test_the_same_intent_staged_again_in_another_file_gets_the_first_answer(lake: House) -> None:
    table_id, txn_id, file = lake.create().table_id, new_txn_id(), add()
    first = won(lake.propose(table_id, 1, file, txn_id=txn_id))
    assert lake.propose(table_id, 1, file, txn_id=txn_id) == first
    assert lake.propose(table_id, 2, file, txn_id=txn_id) == first
    assert lake.catalog.resolve(table_id).latest == 1


@req("CM-04")
@STAGED_ONLY
@pytest.mark.parametrize(
    ("info", "rule"),
    [({"txnId": None}, "no-txn-id"), ({"txnId": "another"}, "txn-id-mismatch")],
)
def test_a_staged_commit_without_its_transactions_id_is_refused(
    lake: House, info: dict[str, object], rule: str
) -> None:
    table_id, txn_id = lake.create().table_id, new_txn_id()
    content = file_content(add(), **{"txn_id": txn_id, "timestamp_ms": START_MS + 9, **info})  # type: ignore[arg-type]
    assert rules(lake.catalog.propose(staged(lake, table_id, content, txn_id))) == {rule}
    assert lake.catalog.resolve(table_id).latest == 0


@req("CM-04")
def test_an_inline_commit_with_the_id_of_another_transaction_is_refused(inline_lake: House) -> None:
    table_id = inline_lake.create().table_id
    for version in (1, 2):  # the second time, the catalog decides by what it remembers
        named = inline(add(), txnId=new_txn_id())
        named_part = Part(table_id=table_id, version=Version(version), content=named)
        assert rules(inline_lake.catalog.propose(transaction(named_part))) == {"txn-id-mismatch"}
        assert inline_lake.catalog.resolve(table_id).latest == version - 1
        won(inline_lake.propose(table_id, version, add()))


@req("CM-04")
@pytest.mark.parametrize("house", [Way.PUT_IF_ABSENT], indirect=True)
@pytest.mark.parametrize(
    ("info", "rule"),
    [({"txnId": None}, "no-txn-id"), ({"txnId": "another"}, "txn-id-mismatch")],
)
def test_a_put_without_its_transactions_id_is_refused(
    house: House, info: dict[str, object], rule: str
) -> None:
    table_id, txn_id = house.create().table_id, new_txn_id()
    content = file_content(add(), **{"txn_id": txn_id, "timestamp_ms": START_MS + 9, **info})  # type: ignore[arg-type]
    put = Part(table_id=table_id, version=Version(1), content=Put(content=content))
    assert rules(house.catalog.propose(transaction(put, txn_id=txn_id))) == {rule}
    assert house.catalog.resolve(table_id).latest == 0


def staged(
    lake: House, table_id: TableId, content: bytes, txn_id: TxnId, size: int | None = None
) -> Proposal:
    commit = StagedCommit(Version(1), uuid4())
    lake.log(table_id).stage(commit, content)
    named = Staged(file_name=commit.name, size=len(content) if size is None else size)
    return transaction(Part(table_id=table_id, version=Version(1), content=named), txn_id=txn_id)


# What a ratified transaction is answered when it comes again


@req("CM-42")
@shows("FC8")
@STAGED_ONLY
@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_ratified_staged_commit_whose_file_went_gets_its_first_answer(
    lake: House, is_overtaken: bool
) -> None:
    table_id = lake.create().table_id
    proposal = lake.proposal(table_id, 1, add())
    first = won(lake.catalog.propose(proposal))
    if is_overtaken:
        won(lake.propose(table_id, 2, add()))
    [content] = [p.content for p in proposal.parts]
    assert isinstance(content, Staged)
    lake.log(table_id).store.delete(f"{STAGED}/{content.file_name}")
    assert lake.catalog.propose(proposal) == first


@req("CM-47")
@STAGED_ONLY
def test_a_rejected_staged_commit_whose_file_went_stays_rejected(lake: House) -> None:
    table_id = lake.create().table_id
    content = file_content(add(), txn_id=new_txn_id(), timestamp_ms=1)
    txn_id = new_txn_id()
    proposal = staged(lake, table_id, content, txn_id)
    rejected = lake.catalog.propose(proposal)
    assert "txn-id-mismatch" in rules(rejected)
    won(lake.propose(table_id, 1, add()))
    [file] = [p.content for p in proposal.parts]
    assert isinstance(file, Staged)
    lake.log(table_id).store.delete(f"{STAGED}/{file.file_name}")
    assert lake.catalog.propose(proposal) == rejected


@req("CM-42")
@shows("FC5", "FS3")
@BOTH_WAYS
def test_a_ratified_transaction_is_answered_though_the_log_is_ahead_of_the_catalog(
    lake: House,
) -> None:
    table_id, txn_id, file = lake.create().table_id, new_txn_id(), add()
    first = won(lake.propose(table_id, 1, file, txn_id=txn_id))
    lake.catalog.publish(table_id)
    again = lake.proposal(table_id, 1, file, txn_id=txn_id)
    other = transaction(part(table_id, 2, add()))
    reused = transaction(part(table_id, 1, add()), txn_id=txn_id)
    put_ahead(lake, table_id)
    with pytest.raises(LogAheadError):
        lake.catalog.propose(other)
    assert won(lake.catalog.propose(again)).sequence == first.sequence
    with pytest.raises((LogAheadError, TxnIdReusedError)):
        lake.catalog.propose(reused)


def put_ahead(lake: House, table_id: TableId) -> None:
    """Put what could be the next version into the log, and have the catalog look at it again."""
    stamp = lake.stamp_of(table_id) + 1
    ahead = file_content(add(), txn_id=new_txn_id(), timestamp_ms=stamp)
    path = PublishedCommit(Version(lake.catalog.resolve(table_id).latest + 1)).path
    lake.log(table_id).store.put(path, ahead)
    lake.restart()


# What the queue takes at once


@shows("FS3")
def test_what_must_be_checked_on_storage_first_is_not_taken_at_once(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    won(lake.propose(table_id, 1, add()))
    lake.catalog.publish(table_id)
    put_ahead(lake, table_id)
    late = transaction(part(table_id, 2, add()))
    assert not lake.database.enqueue(late, Future(), lambda: None)
    with pytest.raises(LogAheadError):
        lake.catalog.propose(late)


@req("AU-02")
@shows("FI11")
def test_a_commit_whose_file_is_to_be_looked_for_is_not_taken_at_once(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create().table_id
    won(lake.propose(table_id, 1, add()))
    missing = transaction(part(table_id, 2, add("missing.parquet", size=64 << 20)))
    nothing_to_see = transaction(part(table_id, 2, remove(add())))
    assert rules(lake.catalog.propose(missing)) == {"file-missing"}
    assert not lake.database.enqueue(missing, Future(), lambda: None)
    assert lake.database.enqueue(nothing_to_see, Future(), lambda: None)


@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_a_staged_commit_is_taken_at_once_if_its_file_is_in_memory_and_will_be_kept(
    tmp_path: Path, limit: int
) -> None:
    settings = Settings(verify_staged=0, inline_limit_bytes=limit)
    lake = House(tmp_path / "lake", Way.STAGED, ManualClock(), settings=settings)
    table_id = lake.create().table_id
    won(lake.propose(table_id, 1, add()))
    answer = Future[Decided | Need]()
    is_taken = lake.database.enqueue(lake.proposal(table_id, 2, add()), answer, lambda: None)
    assert is_taken is (limit > 100)  # a file that is not kept must be synced first
    if is_taken:
        assert isinstance(decided := answer.result(), Decided)
        assert won(decided.answer).commits[table_id].version == 2
    lake.close()


@STAGED_ONLY
def test_a_staged_commit_that_only_a_disk_can_answer_is_not_taken_at_once(lake: House) -> None:
    table_id = lake.create().table_id
    won(lake.propose(table_id, 1, add()))
    proposal = lake.proposal(table_id, 2, add())
    staged = proposal.parts[0].content
    assert isinstance(staged, Staged)
    other = replaced(proposal.parts[0], content=replaced(staged, size=staged.size + 1))
    for wrong in (other, replaced(other, version=Version(3))):
        late = replaced(proposal, parts=(wrong,))
        assert not lake.database.enqueue(late, Future(), lambda: None)
    file = lake.log(table_id).store.local_path(f"{STAGED}/{staged.file_name}")
    assert file is not None
    with Path(file).open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not lake.database.enqueue(proposal, Future(), lambda: None)
    won(lake.catalog.propose(proposal))


# Two guards for one thing


@req("AU-02")
@shows("FC2")
@STAGED_ONLY
def test_a_staged_file_of_another_size_is_refused_before_it_is_read(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the comparison of what was read switched off."""
    examine = examination.examine_file

    def trusting(content: bytes, declared_size: int | None = None, **how: Any) -> Examined:
        return examine(content, len(content), **how)

    table_id, txn_id = lake.create().table_id, new_txn_id()
    content = file_content(add(), txn_id=txn_id, timestamp_ms=START_MS + 9)
    proposal = staged(lake, table_id, content, txn_id, size=len(content) - 1)
    monkeypatch.setattr(examination, "examine_file", trusting)
    assert rules(lake.catalog.propose(proposal)) == {"staged-size"}


@req("AU-02")
@shows("FC2")
@STAGED_ONLY
def test_a_staged_file_that_changed_after_its_size_was_seen_is_refused(
    lake: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the comparison before reading deceived."""
    table_id, txn_id = lake.create().table_id, new_txn_id()
    content = file_content(add(), add(), txn_id=txn_id, timestamp_ms=START_MS + 9)
    cut = content[: content.rstrip(b"\n").rindex(b"\n") + 1]  # whole lines
    proposal = staged(lake, table_id, cut, txn_id, size=len(content))
    monkeypatch.setattr(
        LocalStore, "head", lambda self, path: ObjectMeta(path, len(content), START_MS)
    )
    assert rules(lake.catalog.propose(proposal)) == {"size-differs"}


@req("MT-16", "CM-36")
@STAGED_ONLY
def test_staged_parts_with_two_timestamps_are_refused(lake: House) -> None:
    txn_id = new_txn_id()
    parts = [
        lake.part(lake.create(name).table_id, 1, add(), txn_id=txn_id, timestamp_ms=stamp)
        for name, stamp in (("one", START_MS + 1_000), ("other", START_MS + 1_001))
    ]
    answer = lake.catalog.propose(transaction(*parts, txn_id=txn_id))
    assert rules(answer) == {"timestamps-differ"}


@req("MT-16", "CM-36")
def test_the_timestamp_of_a_transaction_is_after_those_of_all_its_tables(
    inline_lake: House,
) -> None:
    lake = inline_lake
    one, other = lake.create("one").table_id, lake.create("other").table_id
    lake.way, txn_id = Way.STAGED, new_txn_id()
    ahead = lake.part(other, 1, add(), txn_id=txn_id, timestamp_ms=START_MS + 200_000)
    won(lake.catalog.propose(transaction(ahead, txn_id=txn_id)))
    answer = won(lake.catalog.propose(transaction(part(one, 1, add()), part(other, 2, add()))))
    assert answer.timestamp_ms == START_MS + 200_001


@req("MT-16", "CM-36")
@pytest.mark.parametrize("behind_ms", [0, 1])
def test_the_timestamp_of_a_staged_part_must_fit_the_tables_of_inline_parts(
    inline_lake: House, behind_ms: int
) -> None:
    lake = inline_lake
    one, other = lake.create("one").table_id, lake.create("other").table_id
    before, txn_id = new_txn_id(), new_txn_id()
    stamp = START_MS + 200_000
    lake.way = Way.STAGED
    ahead = lake.part(other, 1, add(), txn_id=before, timestamp_ms=stamp - behind_ms)
    won(lake.catalog.propose(transaction(ahead, txn_id=before)))
    brings_stamp = lake.part(one, 1, add(), txn_id=txn_id, timestamp_ms=stamp)
    answer = lake.catalog.propose(transaction(brings_stamp, part(other, 2, add()), txn_id=txn_id))
    assert isinstance(answer, Ratified if behind_ms else VersionTaken)


# Row ids


@req("CM-41", "RD-03")
def test_row_ids_given_by_the_catalog_continue_those_of_staged_commits(inline_lake: House) -> None:
    lake = inline_lake
    table_id = lake.create(features=("rowTracking", "domainMetadata")).table_id
    lake.way = Way.STAGED
    file = replaced(add(records=7), base_row_id=0, default_row_commit_version=1)
    won(lake.propose(table_id, 1, file, row_ids.domain_for(6)))
    lake.way = Way.INLINE
    content = won(lake.propose(table_id, 2, add(records=3))).commits[table_id].content
    assert content is not None
    [added] = [line.action for line in read(content) if isinstance(line.action, AddFile)]
    assert added.base_row_id == 7
    checksum = lake.catalog.resolve(table_id).checksum
    assert checksum is not None
    [domain] = checksum.domain_metadata or ()
    assert row_ids.mark_in(domain) == 9


# Staged commits by name


@req("CM-42")
@shows("FC4")
def test_an_engine_that_lost_its_answer_is_not_told_of_another_engines_commit(
    inline_lake: House,
) -> None:
    """Two files for one version: only the one that was ratified is answered so."""
    lake = inline_lake
    table_id = lake.create().table_id
    contents = [
        file_content(add(), txn_id=new_txn_id(), timestamp_ms=START_MS + 9 + n) for n in range(2)
    ]
    files = []
    for content in contents:
        commit = StagedCommit(Version(1), uuid4())
        lake.log(table_id).stage(commit, content)
        files.append(Staged(file_name=commit.name, size=len(content)))

    def propose(file: Staged) -> Answer:
        before = lake.database.describe(table_id, Version(1))
        return lake.database.decide(StagedProposal(before, Version(1), file)).answer

    first = won(propose(files[0]))
    assert isinstance(propose(files[1]), VersionTaken)
    assert propose(files[0]) == first
    # The same transaction in another file: the answer may say so, and never that this file won.
    again = StagedCommit(Version(1), uuid4())
    lake.log(table_id).stage(again, contents[0])
    answer = propose(Staged(file_name=again.name, size=len(contents[0])))
    assert isinstance(answer, VersionTaken)
