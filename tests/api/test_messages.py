"""What the description of a table says about its commits."""

from __future__ import annotations

import pytest

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.names import TableName
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.table_states import TableKind
from tests.kit.builders import metadata

ID = TableId("t")


def commit(version: int, way: Way = Way.INLINE, *, is_published: bool = False) -> RatifiedCommit:
    return RatifiedCommit(
        version=Version(version),
        way=way,
        txn_id=TxnId(f"x{version}"),
        sequence=Sequence(10 + version),
        timestamp_ms=version,
        size=1,
        sha256="",
        published_ms=1 if is_published else None,
    )


def table(*commits: RatifiedCommit, latest: int = 3, unseen: int = 0) -> TableInfo:
    return TableInfo(
        table_id=ID,
        name=TableName.parse("t"),
        kind=TableKind.MANAGED,
        location="memory://t",
        created_ms=0,
        metadata=metadata(ID),
        metadata_version=Version(0),
        changed_ms=0,
        latest=Version(latest),
        published=Version(0),
        unseen=unseen,
        commits=commits,
    )


@pytest.mark.parametrize(("version", "is_listed"), [(1, False), (2, True), (3, True), (4, False)])
def test_a_listed_commit_is_found_by_its_version(version: int, is_listed: bool) -> None:
    found = table(commit(2), commit(3)).commit_at(Version(version))
    assert (found and found.version) == (version if is_listed else None)


def test_the_last_commit_without_a_file_is_the_last_inline_one_that_is_not_published() -> None:
    published = commit(3, is_published=True)
    assert table(commit(1), commit(2), published).last_without_file == 2
    assert table(commit(2), commit(3, Way.STAGED)).last_without_file == 2
    assert table(published).last_without_file is None


def test_a_staged_file_that_may_not_be_synced_does_not_count_as_a_file() -> None:
    staged = commit(2, Way.STAGED), commit(3, Way.STAGED)
    assert table(*staged, unseen=11).last_without_file is None
    assert table(*staged, unseen=12).last_without_file == 2
    assert table(*staged, unseen=13).last_without_file == 3
