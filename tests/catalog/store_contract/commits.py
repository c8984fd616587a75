"""Commits, rejections, and the files of a table."""

from __future__ import annotations

import pytest

from headgate.catalog.decider import as_commit
from headgate.catalog.stores.port import CatalogStore
from headgate.catalog.stores.rows import RejectionRow, StoreConstraintError
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.commit.content import Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from tests.catalog.store_contract.rows import (
    commit_row,
    found,
    insert,
    insert_commits,
)
from tests.kit import req, shows
from tests.kit.builders import START_MS


class CommitContract:
    @req("CM-11")
    @shows("S2", "FX11")
    def test_a_version_is_unique_in_its_table(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        insert_commits(store, one, commit_row(0))
        insert_commits(store, two, commit_row(0))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_commit(one.key, commit_row(0, sequence=2, txn="another"))
        with store.read() as unit:
            [kept] = unit.commits(one.key, Version(0), Version(9), content=True)
        assert kept.txn_id == "txn-0"

    @shows("S3")
    def test_a_txn_id_is_unique_in_each_table(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        insert_commits(store, one, commit_row(0, txn="x"))
        insert_commits(store, two, commit_row(0, txn="x"))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_commit(one.key, commit_row(1, txn="x"))

    def test_a_version_above_the_head_cannot_be_published(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        row = insert_commits(store, row, commit_row(0))
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.record_published(row.key, Version(0), Version(1), START_MS)
        assert found(store).published == -1

    def test_staged_content_is_deleted_when_published_and_inline_content_is_kept(
        self, store: CatalogStore
    ) -> None:
        [row] = insert(store, 1)
        with store.write() as unit:
            for version, way in enumerate((Way.INLINE, Way.STAGED, Way.STAGED)):
                name = None if way is Way.INLINE else f"{version}.json"
                commit = commit_row(version, way=way, file_name=name, content=b"held")
                unit.insert_commit(row.key, commit)
            unit.update_table(row._replace(head=Version(2)))
            unit.record_published(row.key, Version(0), Version(1), START_MS)
        with store.read() as unit:
            commits = unit.commits(row.key, Version(0), Version(2), content=True)
            bare = unit.ratified_commits(row.key, Version(0), Version(2), with_content=False)
        assert [commit.content for commit in commits] == [b"held", None, b"held"]
        assert [commit.published_ms for commit in commits] == [START_MS, START_MS, None]
        assert list(bare) == [as_commit(commit._replace(content=None)) for commit in commits]

    def test_every_field_of_a_commit_is_stored_unchanged(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        staged = commit_row(
            1,
            way=Way.STAGED,
            file_name="1.json",
            modified_ms=START_MS,
            published_ms=START_MS,
            size=2**40,
            sha256=bytes(range(32)),
            summary=None,
            content=None,
        )
        put = commit_row(2, way=Way.PUT_IF_ABSENT, content=b"\xff\x00")
        insert_commits(store, row, commit_row(0), staged, put)
        with store.read() as unit:
            kept = unit.commits(row.key, Version(0), Version(2), content=True, summary=True)
            ratified = unit.ratified_commits(row.key, Version(0), Version(2))
        assert kept == [commit_row(0), staged, put]
        assert ratified == tuple(as_commit(commit) for commit in kept)

    @pytest.mark.parametrize("content", [True, False])
    @pytest.mark.parametrize("summary", [True, False])
    def test_a_range_of_commits_is_inclusive_and_has_only_the_requested_columns(
        self, store: CatalogStore, content: bool, summary: bool
    ) -> None:
        one, two = insert(store, 1, 2)
        rows = [commit_row(version) for version in range(5)]
        insert_commits(store, one, *rows)
        insert_commits(store, two, commit_row(0, txn="other"))
        expected = [
            row._replace(
                content=row.content if content else None, summary=row.summary if summary else None
            )
            for row in rows
        ]
        with store.read() as unit:
            for first in range(-1, 7):
                for last in range(-1, 7):
                    kept = unit.commits(
                        one.key, Version(first), Version(last), content=content, summary=summary
                    )
                    assert kept == expected[max(first, 0) : last + 1]
                    ratified = unit.ratified_commits(one.key, Version(first), Version(last))
                    assert list(ratified) == [
                        as_commit(row) for row in rows[max(first, 0) : last + 1]
                    ]

    def test_the_version_at_every_sequence_is_the_last_one_not_later(
        self, store: CatalogStore
    ) -> None:
        one, _ = insert(store, 1, 2)
        sequences = [3, 4, 8, 9, 10, 15, 40]
        insert_commits(store, one, *(commit_row(v, sequence=n) for v, n in enumerate(sequences)))
        with store.read() as unit:
            for at in range(45):
                expected = sum(sequence <= at for sequence in sequences) - 1
                version = unit.version_at(one.key, Sequence(at))
                assert version == (None if expected < 0 else expected), at
            assert unit.version_at(one.key + 1, Sequence(10)) is None

    def test_the_last_version_within_a_size_is_found_by_adding_up_contents(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        contents = [b"x" * 3, None, b"", b"x" * 5, b"x" * 2, None, b"x" * 9]
        insert_commits(store, one, *(commit_row(v, content=c) for v, c in enumerate(contents)))
        insert_commits(store, two, commit_row(0, txn="other", content=b"x" * 30))

        def last_within(first: int, last: int, max_bytes: int) -> int:
            step = 1 if first <= last else -1
            reached, total = first, 0
            for version in range(first, last + step, step):
                if version < len(contents):
                    total += len(contents[version] or b"")
                    reached = version if total <= max_bytes else reached
            return reached

        with store.read() as unit:
            for first in range(9):
                for last in range(9):
                    for max_bytes in (-1, 0, 1, 3, 7, 8, 10, 18, 19, 30):
                        version = unit.last_version_within(
                            one.key, Version(first), Version(last), max_bytes
                        )
                        assert version == last_within(first, last, max_bytes), (
                            first,
                            last,
                            max_bytes,
                        )

    def test_commits_of_a_transaction_are_found_after_their_content_is_deleted(
        self, store: CatalogStore
    ) -> None:
        one, two, three = insert(store, 1, 2, 3)
        for row in (one, two):
            insert_commits(store, row, commit_row(0, txn="x"), commit_row(1, txn=f"y{row.key}"))
        insert_commits(store, three, commit_row(0, txn="z"))
        with store.write() as unit:
            assert dict(unit.transaction_commits(TxnId("x"))) == {
                row.id: commit_row(0, txn="x") for row in (one, two)
            }
            unit.record_published(one.key, Version(0), Version(1), START_MS)
            published = commit_row(0, txn="x", published_ms=START_MS)
            assert dict(unit.transaction_commits(TxnId("x")))[one.id] == published
            unit.delete_content(one.key, Version(1))
            assert dict(unit.transaction_commits(TxnId("x")))[one.id].content is None
        with store.read() as unit:
            ratified = dict(unit.transaction_commits(TxnId("x")))
            assert ratified == {
                one.id: commit_row(0, txn="x", content=None, published_ms=START_MS),
                two.id: commit_row(0, txn="x"),
            }
            assert unit.transaction_commits(TxnId("unknown")) == []

    @shows("S7")
    @pytest.mark.parametrize("other", [{}, {"sequence": 9}, {"timestamp_ms": START_MS + 9}])
    def test_a_transaction_with_different_sequences_or_timestamps_is_found(
        self, store: CatalogStore, other: dict[str, int]
    ) -> None:
        one, two, three = insert(store, 1, 2, 3)
        insert_commits(store, one, commit_row(0, txn="x"), commit_row(1, txn="y"))
        insert_commits(store, two, commit_row(0, txn="x")._replace(**other))  # type: ignore[arg-type]
        insert_commits(store, three, commit_row(0, txn="z"))
        with store.read() as unit:
            assert unit.inconsistent_transactions() == (["x"] if other else [])

    @req("CM-47")
    def test_a_rejection_is_kept_until_it_is_old_and_is_not_replaced(
        self, store: CatalogStore
    ) -> None:
        old = RejectionRow(TxnId("old"), b"intent", b"answer", START_MS)
        new = RejectionRow(TxnId("new"), b"", b"\x00", START_MS + 1)
        with store.write() as unit:
            unit.insert_rejection(old)
            unit.insert_rejection(new)
            unit.delete_rejections(START_MS)
            assert unit.rejection(old.txn_id) == old
        with pytest.raises(StoreConstraintError), store.write() as unit:
            unit.insert_rejection(old._replace(answer=b"another"))
        with store.write() as unit:
            unit.delete_rejections(START_MS + 1)
            assert unit.rejection(old.txn_id) is None
            assert unit.rejection(new.txn_id) == new

    def test_the_published_version_only_grows(self, store: CatalogStore) -> None:
        [row] = insert(store, 1)
        insert_commits(store, row, *(commit_row(version) for version in range(5)))
        with store.write() as unit:
            unit.record_published(row.key, Version(0), Version(3), START_MS)
            unit.record_published(row.key, Version(0), Version(1), START_MS + 9)
        with store.read() as unit:
            kept = unit.commits(row.key, Version(0), Version(9), content=True)
        assert [commit.published_ms for commit in kept] == [START_MS] * 4 + [None]
        assert all(commit.content is not None for commit in kept)
        assert found(store).published == 3

    @req("CM-26")
    def test_deleted_content_stays_deleted_and_nothing_else_is(self, store: CatalogStore) -> None:
        one, two = insert(store, 1, 2)
        for row in (one, two):
            insert_commits(store, row, *(commit_row(version) for version in range(5)))
        with store.write() as unit:
            unit.delete_content(one.key, Version(2))
            unit.delete_content(one.key, Version(0))
        assert found(store).held_from == 3
        with store.read() as unit:
            kept = unit.commits(one.key, Version(0), Version(9), content=True, summary=True)
            others = unit.commits(two.key, Version(0), Version(9), content=True, summary=True)
        without_content = [commit_row(v, content=None) for v in range(3)]
        assert kept == [*without_content, commit_row(3), commit_row(4)]
        assert others == [commit_row(version) for version in range(5)]
        assert found(store, 2).held_from == 0

    def test_deleting_content_and_publishing_do_not_affect_later_commits(
        self, store: CatalogStore
    ) -> None:
        [row] = insert(store, 1)
        with store.write() as unit:
            unit.insert_commit(row.key, commit_row(0))
            unit.update_table(row._replace(head=Version(5)))
            unit.delete_content(row.key, Version(9))
            unit.record_published(row.key, Version(0), Version(5), START_MS)
            unit.insert_commit(row.key, commit_row(6))
            unit.insert_commit(row.key, commit_row(3, txn="late"))
        with store.read() as reading:
            kept = reading.commits(row.key, Version(0), Version(9), content=True, summary=True)
        first = commit_row(0, content=None, published_ms=START_MS)
        assert kept == [first, commit_row(3, txn="late"), commit_row(6)]

    def test_files_are_listed_up_to_a_version_and_replaced_when_recorded_again(
        self, store: CatalogStore
    ) -> None:
        one, two = insert(store, 1, 2)
        checkpoint = KnownFile(
            kind=FileKind.CHECKPOINT, first=Version(4), last=Version(4), paths=("c/1", "c/2")
        )
        first = KnownFile(
            kind=FileKind.COMPACTION, first=Version(1), last=Version(3), paths=("é %20",)
        )
        second = KnownFile(
            kind=FileKind.COMPACTION, first=Version(2), last=Version(3), paths=("y",)
        )
        crc = KnownFile(kind=FileKind.CHECKSUM, first=Version(5), last=Version(5), paths=("z",))
        above = KnownFile(kind=FileKind.COMPACTION, first=Version(5), last=Version(8), paths=("w",))
        with store.write() as unit:
            for file in (checkpoint, first, second, crc, above):
                unit.insert_file(one.key, file)

        def known(last: int, key: int = one.key) -> list[KnownFile]:
            with store.read() as unit:
                files = unit.files(key, Version(last))
            return sorted(files, key=lambda file: (file.last, file.first))

        # Files that a checkpoint covers are not needed, nor checksums of other versions.
        assert known(9) == [checkpoint, above]
        assert known(5) == [checkpoint, crc]
        assert known(4) == [checkpoint]
        assert known(3) == [first, second]
        assert known(2) == []
        assert known(9, two.key) == []
        again = KnownFile(kind=FileKind.CHECKPOINT, first=Version(4), last=Version(4), paths=("d",))
        with store.write() as unit:
            unit.insert_file(one.key, again)
        assert known(4) == [again]
        with store.write() as unit:
            unit.delete_file(one.key, checkpoint)  # another one is recorded in its place
            unit.delete_file(one.key, crc)
            unit.delete_file(two.key, above)
        with store.read() as unit:
            assert unit.all_files(one.key) == [again, first, second, above]
            assert unit.all_files(two.key) == []
