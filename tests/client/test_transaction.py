"""How a change is committed: inline or staged, rebased past winners, after lost answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

import pytest

from headgate.api.messages import Answer, Proposal, Ratified, Rejected, Resolved, VersionTaken
from headgate.api.port import Ref
from headgate.client.transaction import Change, Committer, OperationInfo, Patience
from headgate.errors import (
    BusyError,
    ConflictError,
    InvalidCommitError,
    InvariantError,
    OutcomeUnknownError,
    TooLargeError,
    UnavailableError,
    UnsupportedByCatalogError,
)
from headgate.protocol.actions import Sequence, TxnId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Inline, Staged, Way
from headgate.protocol.commit.examination import Violation
from headgate.protocol.commit.strict_json import read
from headgate.protocol.encoding import replaced
from headgate.protocol.paths import PublishedCommit, StagedCommit, parse_staged_name
from headgate.storage.local import LocalStore
from headgate.storage.memory import MemoryStore
from headgate.storage.object_store import ObjectMeta
from headgate.table.log_files import DeltaLog
from tests.client.conftest import World, appending, ids_in, rows
from tests.kit import req
from tests.kit.builders import ManualClock
from tests.kit.faulty_catalogs import LosingCatalog, unavailable, unknown
from tests.kit.minimal_catalog import MinimalCatalog

LOG = "_delta_log"


def data_files(world: World) -> list[str]:
    """Every data file that was written, by the store's own record."""
    return [
        path
        for store in world.stores.values()
        for call in store.calls
        if call.is_write and call.method != "delete"
        for path in call.paths
        if path.endswith(".parquet") and not path.startswith(LOG)
    ]


def log_files(world: World) -> list[str]:
    """Every file that was put into a log, by the store's own record."""
    return [
        path
        for store in world.stores.values()
        for call in store.calls
        if call.is_write
        for path in call.paths
        if path.startswith(LOG)
    ]


def commit_info(world: World, name: str = "orders") -> dict[str, object]:
    table = world.session().table(name)
    [commit] = world.catalog.ratified_commits(table.id, table.version, table.version).commits
    assert commit.content is not None
    info = json.loads(commit.content.split(b"\n")[0])["commitInfo"]
    assert isinstance(info, dict)
    return info


class TestHowContentTravels:
    @req("IN-01")
    def test_a_small_commit_goes_inline_and_no_log_file_is_written_before_it_is_ratified(
        self, world: World
    ) -> None:
        if world.only_puts:
            pytest.skip("this catalog takes no inline commits")
        table = world.make()
        before = log_files(world)
        committed = table.append(rows(1))
        assert committed.commits[table.id].way is Way.INLINE
        assert log_files(world) == before

    @req("IN-01")
    def test_a_table_with_commits_of_every_size_reads_as_one_with_all_staged(
        self, world: World
    ) -> None:
        mixed, staged = world.make("mixed"), world.make("staged")
        always = world.staging_session().table("staged")
        for n in range(6):
            (mixed if n % 2 else world.staging_session().table("mixed")).append(rows(n))
            always.append(rows(n))
        if not world.only_puts:
            held = world.catalog.ratified_commits(mixed.id, Version(1), None).commits
            assert [c.way for c in held] == [Way.STAGED, Way.INLINE] * 3
        assert ids_in(mixed.to_arrow()) == ids_in(staged.to_arrow()) == list(range(6))

    @req("IN-01")
    def test_what_the_catalog_finds_too_large_for_inline_is_staged(
        self, minimal_world: World
    ) -> None:
        class Strict(LosingCatalog):
            def propose(self, proposal: Proposal) -> Ratified | Rejected | VersionTaken:
                if isinstance(proposal.parts[0].content, Inline):
                    self.proposals.append(proposal)
                    raise TooLargeError("Not inline.")
                return super().propose(proposal)

        minimal_world.make()
        catalog = Strict(minimal_world.catalog)
        committed = minimal_world.session(catalog).table("orders").append(rows(1))
        assert [type(p.parts[0].content) for p in catalog.proposals] == [Inline, Staged]
        assert {p.txn_id for p in catalog.proposals} == {committed.txn_id}

    def test_a_catalog_that_takes_no_commits_is_refused(self, minimal_world: World) -> None:
        catalog = MinimalCatalog(minimal_world.store_for, minimal_world.clock.now_ms, ways=())
        minimal_world.catalog = catalog
        table = minimal_world.make()
        with pytest.raises(UnsupportedByCatalogError):
            table.append(rows(1))

    @req("CM-37")
    def test_no_client_puts_a_version_into_the_log_before_it_is_ratified(
        self, world: World
    ) -> None:
        if world.only_puts:
            pytest.skip("there the put is the ratification")
        table = world.make()
        before = log_files(world)
        table.append(rows(1))
        world.staging_session().table("orders").append(rows(2))
        table.overwrite(rows(3))
        table.set_properties({"delta.logRetentionDuration": "interval 9 days"})
        table.comment("about orders")
        table.remove([file.path for file in table.snapshot().files()])
        table.unset_properties(["delta.logRetentionDuration"])
        table.add_columns("more string")
        table.alter_column("more", comment="and more")
        table.add_constraint("positive", "id > 0")
        table.drop_constraint("positive")
        table.commit(table.snapshot(), [], OperationInfo("WRITE"))
        world.staging_session().replace_table("orders", "id long")
        table.write_checksum()
        put = [path for path in log_files(world) if path not in before]
        assert put
        assert [path for path in put if not _may_precede_ratification(path)] == []


def watch_listings(
    monkeypatch: pytest.MonkeyPatch, kind: type[LocalStore | MemoryStore], listed: list[str]
) -> None:
    """Note what stores of a kind are asked to list, and what they answer."""
    list_files = kind.list

    def watched(
        self: LocalStore, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[ObjectMeta]:
        found = [*list_files(self, prefix, start_after, recursive)]  # type: ignore[arg-type]
        listed.extend([prefix, *(item.path for item in found)])
        return iter(found)

    monkeypatch.setattr(kind, "list", watched)


def _may_precede_ratification(path: str) -> bool:
    return path.startswith(f"{LOG}/_staged_commits/") or path.endswith(".crc")


class TestWhatACommitSays:
    def test_an_append_says_what_it_did_in_deltas_words(self, minimal_world: World) -> None:
        minimal_world.make(partition_by=["day"])
        minimal_world.session().table("orders").append(rows(1, 2))
        info = commit_info(minimal_world)
        assert info["operation"] == "WRITE"
        assert info["operationParameters"] == {"mode": "Append", "partitionBy": '["day"]'}
        assert info["isBlindAppend"] is True
        assert info["readVersion"] == 0
        assert str(info["engineInfo"]).startswith("Headgate/")
        metrics = info["operationMetrics"]
        assert isinstance(metrics, dict)
        assert (metrics["numFiles"], metrics["numOutputRows"]) == ("1", "2")

    def test_an_overwrite_is_not_blind_and_counts_what_went(self, minimal_world: World) -> None:
        table = minimal_world.make()
        table.append(rows(1))
        table.append(rows(2))
        table.overwrite(rows(3))
        info = commit_info(minimal_world)
        assert info["isBlindAppend"] is False
        metrics = info["operationMetrics"]
        assert isinstance(metrics, dict)
        assert (metrics["numFiles"], metrics["numRemovedFiles"]) == ("1", "2")

    @req("CM-04")
    def test_every_commit_carries_a_txn_id_that_no_other_has(self, world: World) -> None:
        table = world.make()
        staging = world.staging_session().table("orders")
        committed = [
            table.append(rows(1)),
            staging.append(rows(2)),
            table.overwrite(rows(3)),
        ]
        table.set_properties({"delta.logRetentionDuration": "interval 9 days"})
        staging.comment("about orders")
        world.publish(table)
        log = DeltaLog(world.store_for(table.location))
        txn_ids = []
        for version in range(6):
            content = log.read_published(Version(version))
            assert content is not None
            txn_ids.append(json.loads(content.split(b"\n")[0])["commitInfo"]["txnId"])
        assert txn_ids[1:4] == [commit.txn_id for commit in committed]
        assert len(set(txn_ids)) == 6
        assert all(isinstance(txn_id, str) and txn_id for txn_id in txn_ids)

    @req("CM-04")
    def test_the_commits_of_one_transaction_carry_its_id_in_every_table(
        self, full_world: World
    ) -> None:
        small, large = full_world.make("small"), full_world.make("large")
        committer = Committer(
            full_world.catalog, full_world.clock, full_world.ids, Patience(inline_bytes=2_000)
        )
        committed = committer.commit([appending(small, 1), appending(large, 2, copies=20)])
        for table in (small, large):
            table.publish()
            content = DeltaLog(full_world.store_for(table.location)).read_published(Version(1))
            assert content is not None
            info = json.loads(content.split(b"\n")[0])["commitInfo"]
            assert info["txnId"] == committed.txn_id

    @req("CM-36")
    def test_a_staged_commits_timestamp_rises_also_when_the_clock_was_set_back(
        self, minimal_world: World
    ) -> None:
        minimal_world.make()
        table = minimal_world.staging_session().table("orders")
        first = table.append(rows(1)).timestamp_ms
        minimal_world.clock.ms -= 3_600_000  # type: ignore[attr-defined]
        assert table.append(rows(2)).timestamp_ms == first + 1
        held = minimal_world.catalog.ratified_commits(table.id, Version(2), Version(2)).commits
        content = minimal_world.store_for(table.location).get(
            f"{LOG}/_staged_commits/{held[0].file_name}"
        )
        info = json.loads(content.split(b"\n")[0])["commitInfo"]
        assert info["inCommitTimestamp"] == first + 1
        assert info["txnId"] == held[0].txn_id


class TestRaces:
    @req("CM-02")
    def test_a_commit_that_loses_two_races_stages_a_file_for_each_version(
        self, world: World
    ) -> None:
        if world.only_puts:
            pytest.skip("nothing is staged here")
        other = world.make()
        catalog = world.losing()
        table = world.staging_session(catalog).table("orders")
        catalog.overtakers = [lambda: other.append(rows(10)), lambda: other.append(rows(11))]
        table.append(rows(1))
        contents = [proposal.parts[0].content for proposal in catalog.proposals]
        assert all(isinstance(content, Staged) for content in contents)
        names = [parse_staged_name(c.file_name) for c in contents if isinstance(c, Staged)]
        assert [name and name.version for name in names] == [1, 2, 3]
        assert len({name and name.uuid for name in names}) == 3
        put = [path for path in log_files(world) if "_staged_commits" in path]
        assert sorted(put) == sorted(name.path for name in names if name)

    @req("CM-14")
    def test_a_lost_race_is_made_good_with_no_call_but_the_next_proposal(
        self, world: World
    ) -> None:
        other = world.make()
        catalog = world.losing()
        table = world.staging_session(catalog).table("orders")
        catalog.calls.clear()
        catalog.overtakers = [lambda: other.append(rows(10))]
        table.append(rows(1))
        if world.kind != "minimal-put":  # which lists nothing that is in the log, winners included
            assert catalog.calls == {"propose": 2}
        assert isinstance(catalog.answers[0], VersionTaken)
        assert ids_in(table.to_arrow()) == [1, 10]

    @req("IN-02")
    def test_a_blind_append_sent_inline_is_moved_by_the_catalog_in_one_call(
        self, full_world: World
    ) -> None:
        full_world.make()
        lines = [full_world.losing() for _ in range(16)]
        tables = [full_world.session(line).table("orders") for line in lines]
        for line in lines:
            line.calls.clear()
        committed = [table.append(rows(n)) for n, table in enumerate(tables)]
        assert [line.calls["propose"] for line in lines] == [1] * 16
        stamps = [c.timestamp_ms for c in committed]
        assert stamps == sorted(set(stamps))
        assert ids_in(tables[0].to_arrow()) == list(range(16))

    @req("CM-44")
    def test_sixteen_appenders_on_one_base_lose_no_row_and_write_each_file_once(
        self, world: World
    ) -> None:
        world.make()
        tables = [world.staging_session().table("orders") for _ in range(16)]
        for n, table in enumerate(tables):  # all but the first have lost their version
            table.append(rows(n))
        written = data_files(world)
        assert len(written) == len(set(written)) == 16
        assert ids_in(world.session().table("orders").to_arrow()) == list(range(16))

    @req("CM-44")
    @pytest.mark.parametrize("staged", [False, True])
    def test_a_change_that_lost_its_version_is_held_against_the_winners(
        self, world: World, staged: bool
    ) -> None:
        """A write is rebased if what it read did not change; else it is a conflict."""
        table, late = world.make(), world.losing()
        table.append(rows(1))
        session = world.staging_session(late) if staged else world.session(late)
        handle = session.table("orders")
        late.overtakers = [lambda: table.append(rows(2))]
        assert handle.overwrite(rows(3)).version == 3
        assert ids_in(handle.to_arrow()) == [2, 3]
        written = data_files(world)
        assert len(written) == len(set(written)) == 3
        late.overtakers = [lambda: table.overwrite(rows(4))]
        with pytest.raises(ConflictError, match="R6"):
            handle.overwrite(rows(5))
        assert ids_in(table.to_arrow()) == [4]

    @req("CM-48")
    def test_the_answer_describes_the_commit_as_the_catalog_does_afterwards(
        self, full_world: World
    ) -> None:
        table = full_world.make()
        for session in (full_world.session(), full_world.staging_session()):
            committed = session.table("orders").append(rows(1))
            answered, version = committed.commits[table.id], committed.version
            [held] = full_world.catalog.ratified_commits(table.id, version, version).commits
            assert replaced(answered, content=None) == replaced(held, content=None)
            assert answered.timestamp_ms == committed.timestamp_ms
            table.publish()
            content = DeltaLog(full_world.store_for(table.location)).read_published(version)
            assert content is not None
            assert answered.size == len(content)
            assert (answered.file_name is None) == (answered.way is Way.INLINE)

    @req("CM-14", "CM-44")
    @pytest.mark.parametrize("kept", [slice(0), slice(1), slice(-1, None)])
    def test_winners_the_answer_leaves_out_are_asked_for_and_read_from_the_log(
        self, world: World, kept: slice
    ) -> None:
        class Silent(LosingCatalog):
            def propose(self, proposal: Proposal) -> Ratified | Rejected | VersionTaken:
                answer = super().propose(proposal)
                if isinstance(answer, VersionTaken):
                    some = {of: commits[kept] for of, commits in answer.winners.items()}
                    return replaced(answer, winners=some)
                return answer

        other = world.make()
        catalog = Silent(world.catalog)
        table = world.staging_session(catalog).table("orders")
        other.append(rows(10))
        world.publish(other)
        other.append(rows(11))
        table.append(rows(1))
        assert ids_in(table.to_arrow()) == [1, 10, 11]
        assert len(data_files(world)) == 3  # it was rebased, and not written a second time

    @pytest.mark.parametrize("tries", [1, 5])
    def test_after_too_many_lost_races_nothing_is_committed(
        self, minimal_world: World, tries: int
    ) -> None:
        other = minimal_world.make()
        catalog = minimal_world.losing()
        table = minimal_world.session(catalog, tries=tries).table("orders")
        catalog.overtakers = [lambda: other.append(rows(10))] * 20
        with pytest.raises(ConflictError, match="race"):
            table.append(rows(1))
        assert 1 not in ids_in(other.to_arrow())
        assert catalog.calls["propose"] == 2 * tries  # the second round on a fresh base

    @req("CM-41")
    def test_row_ids_of_staged_appends_that_raced_are_disjoint_and_follow_the_mark(
        self, world: World
    ) -> None:
        world.make(features=["rowTracking", "domainMetadata"])
        first, second = (world.staging_session().table("orders") for _ in range(2))
        first.append(rows(1, 2, 3))
        second.append(rows(4, 5))  # built on version 0, ratified as version 2
        snapshot = second.snapshot()
        ranges = sorted((f.base_row_id, f.default_row_commit_version) for f in snapshot.files())
        assert ranges == [(0, 1), (3, 2)]
        assert json.loads(snapshot.domains["delta.rowTracking"].configuration) == {
            "rowIdHighWaterMark": 4
        }

    @req("CM-41", "CM-36")
    def test_a_staged_append_that_lost_its_version_is_stamped_after_the_winner(
        self, minimal_world: World
    ) -> None:
        """The winner's clock is ahead; at the next version the first timestamp would not rise."""
        clock = minimal_world.clock
        assert isinstance(clock, ManualClock)
        minimal_world.make()
        table, winner = (minimal_world.staging_session().table("orders") for _ in range(2))
        clock.ms += 200_000
        won = winner.append(rows(1))
        clock.ms -= 200_000
        lost = table.append(rows(2))
        assert (won.version, lost.version) == (1, 2)
        assert lost.timestamp_ms == won.timestamp_ms + 1

    @req("CM-41", "MT-16")
    def test_a_staged_transaction_is_stamped_after_all_its_tables(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        for number in range(3):
            b.append(rows(number))
        behind = ManualClock(sleep_moves_date=True)
        committer = Committer(full_world.catalog, behind, full_world.ids, Patience(inline_bytes=0))
        committed = committer.commit(
            [appending(a, 1), appending(b, 2)], txn_id=TxnId(str(full_world.ids.ordered()))
        )
        assert committed.timestamp_ms == (b.snapshot().timestamp_ms or 0)
        assert committed.versions == {a.id: 1, b.id: 4}

    @req("CM-01")
    def test_a_staged_commit_has_a_random_name_and_the_bytes_that_are_published(
        self, full_world: World
    ) -> None:
        full_world.make()
        catalog = full_world.losing()
        table = full_world.staging_session(catalog).table("orders")
        names = set()
        for version in (1, 2):
            table.append(rows(version))
            content = catalog.proposals[-1].parts[0].content
            assert isinstance(content, Staged)
            name = parse_staged_name(content.file_name)
            assert name is not None
            assert content.file_name == f"{version:020d}.{name.uuid}.json"
            assert name.uuid.version == 4  # of chance, not of time or place
            names.add(name.uuid)
            full_world.session().table("orders").publish()
            store = table.snapshot().store
            staged = store.get(f"{LOG}/_staged_commits/{content.file_name}")
            assert store.get(PublishedCommit(Version(version)).path) == staged
        assert len(names) == 2

    @req("CM-03")
    def test_neither_readers_nor_writers_nor_the_publisher_list_staged_commits(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = world.store_for(world.make().location)
        store.put(StagedCommit(Version(1), uuid.uuid4()).path, b"unknown")
        listed: list[str] = []
        watch_listings(monkeypatch, LocalStore, listed)
        watch_listings(monkeypatch, MemoryStore, listed)
        table, other = (world.staging_session().table("orders") for _ in range(2))
        other.append(rows(1))
        table.append(rows(2))  # past a winner that was staged
        world.session().table("orders").append(rows(3))
        assert ids_in(world.session().table("orders").to_arrow()) == [1, 2, 3]
        world.publish(table)
        assert ids_in(world.session().table("orders").to_arrow()) == [1, 2, 3]
        assert ids_in(world.session().table("orders").to_arrow(version=1)) == [1]
        table.append(rows(4))
        world.publish(table)
        assert DeltaLog(store).list()  # as all that must read a log
        assert [path for path in listed if "_staged_commits" in path] == []

    @req("CM-46")
    def test_a_winners_staged_file_that_was_altered_is_not_believed(self, world: World) -> None:
        if world.only_puts:
            pytest.skip("nothing is staged here")
        world.make()
        table, other = (world.staging_session().table("orders") for _ in range(2))
        other.append(rows(10))
        [winner] = world.catalog.ratified_commits(table.id, Version(1), Version(1)).commits
        store = world.store_for(table.location)
        path = f"{LOG}/_staged_commits/{winner.file_name}"
        content = store.get(path)
        store.put(path, content.replace(b"WRITE", b"WROTE"))
        if winner.content is None:  # else the catalog's answer has its bytes
            with pytest.raises(InvariantError, match="content is missing"):
                table.append(rows(1))
            assert world.catalog.ratified_commits(table.id).latest == 1
            store.put(PublishedCommit(Version(1)).path, content)  # its twin has the ratified bytes
        table.append(rows(1))
        assert table.version == 2
        assert ids_in(table.to_arrow()) == [1, 10]


class TestConflicts:
    @req("CM-44")
    def test_two_overwrites_of_one_base_collide(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: table.overwrite(rows(2))]
        with pytest.raises(ConflictError) as refused:
            late.overwrite(rows(3))
        assert "R6" in {conflict.rule for conflict in refused.value.conflicts}  # type: ignore[attr-defined]
        assert ids_in(late.to_arrow()) == [2]

    @req("CM-44")
    def test_an_overwrite_moved_past_an_append_keeps_what_was_appended(self, world: World) -> None:
        table = world.make()
        table.append(rows(1))
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: table.append(rows(2))]
        late.overwrite(rows(3))
        assert ids_in(late.to_arrow()) == [2, 3]

    def test_on_a_serializable_table_an_append_stands_in_an_overwrites_way(
        self, world: World
    ) -> None:
        table = world.make(properties={"delta.isolationLevel": "Serializable"})
        table.append(rows(1))
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: table.append(rows(2))]
        with pytest.raises(ConflictError, match="R7"):
            late.overwrite(rows(3))

    @pytest.mark.parametrize("reads", [True, False])
    def test_an_append_made_from_what_was_read_does_not_pass_for_a_blind_one(
        self, world: World, reads: bool
    ) -> None:
        """A write is rebased past a blind append even if it would have read its rows."""
        table, source = world.make(), world.make("source")
        table.append(rows(1))
        scan = Scan(table_id=source.id, version=Version(0), files=())
        appends = replace(
            appending(table, 2),
            ways=world.catalog.resolve(table.id).ways,
            scans=(scan,) if reads else (),
        )
        committer = Committer(world.catalog, world.clock, world.ids)
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [lambda: committer.commit([appends])]
        if reads:
            with pytest.raises(ConflictError, match="R7"):
                late.overwrite(rows(3))
            return
        late.overwrite(rows(3))
        assert ids_in(late.to_arrow()) == [2, 3]

    @req("CM-44")
    def test_an_append_cannot_be_moved_past_a_change_of_metadata(self, world: World) -> None:
        table = world.make()
        base = world.session().table("orders").snapshot()
        table.set_properties({"delta.enableChangeDataFeed": "false"})
        committer = Committer(world.catalog, world.clock, world.ids)
        ways = world.catalog.resolve(table.id).ways
        change = Change(table.id, base, ways, (), OperationInfo("WRITE"))
        with pytest.raises(ConflictError, match="R2"):
            committer.commit([change])
        assert table.snapshot().version == 1

    def test_a_handle_that_was_idle_while_metadata_changed_has_lost_no_race(
        self, world: World
    ) -> None:
        table, idle = world.make(), world.session().table("orders")
        table.set_properties({"delta.enableChangeDataFeed": "false"})
        idle.append(rows(1))
        assert ids_in(table.to_arrow()) == [1]

    def test_an_append_passes_a_change_that_concerns_no_row(self, world: World) -> None:
        table = world.make()
        catalog = world.losing()
        late = world.session(catalog).table("orders")
        catalog.overtakers = [
            lambda: table.set_properties({"delta.logRetentionDuration": "interval 9 days"})
        ]
        late.append(rows(1))
        assert len({proposal.txn_id for proposal in catalog.proposals}) == 1
        assert ids_in(late.to_arrow()) == [1]

    def test_what_the_catalog_finds_invalid_is_refused_with_every_violation(
        self, minimal_world: World
    ) -> None:
        class Judging(LosingCatalog):
            def propose(self, proposal: Proposal) -> Rejected:
                found = (Violation(rule="a", says="one"), Violation(rule="b", says="two"))
                return Rejected(txn_id=proposal.txn_id, violations=found)

        minimal_world.make()
        with pytest.raises(InvalidCommitError, match="one; two"):
            minimal_world.session(Judging(minimal_world.catalog)).table("orders").append(rows(1))


class TestLostAnswers:
    @req("CM-42", "CM-43")
    @pytest.mark.parametrize("error", [unavailable, unknown])
    @pytest.mark.parametrize("staged", [False, True])
    def test_the_same_is_sent_again_and_the_first_answer_counts(
        self, world: World, error: type, staged: bool
    ) -> None:
        world.make()
        catalog = world.losing(lost_requests=1, lost_answers=2, error=error)
        patience = {"inline_bytes": 0} if staged else {}
        table = world.session(catalog, **patience).table("orders")
        committed = table.append(rows(1))
        assert catalog.calls["propose"] == 4
        assert all(proposal == catalog.proposals[0] for proposal in catalog.proposals)
        assert len({answer.txn_id for answer in catalog.answers}) == 1
        assert committed.versions == {table.id: 1}
        assert ids_in(table.to_arrow()) == [1]

    @req("CM-42")
    def test_a_request_that_arrives_twice_is_ratified_once(self, world: World) -> None:
        world.make()
        table = world.session(world.losing(doubled=1)).table("orders")
        assert table.append(rows(1)).versions == {table.id: 1}
        assert ids_in(table.to_arrow()) == [1]

    @req("CM-43")
    @pytest.mark.parametrize("error", [unavailable, unknown])
    def test_a_lost_answer_is_reported_as_unknown_and_nothing_is_deleted(
        self, world: World, error: type
    ) -> None:
        world.make()
        catalog = world.losing(lost_answers=1_000_000, error=error)
        table = world.session(catalog, unknown_wait_s=0.05).table("orders")
        with pytest.raises(OutcomeUnknownError) as lost:
            table.append(rows(1))
        assert lost.value.txn_id == catalog.proposals[0].txn_id
        assert [s.count("delete") for s in world.stores.values()] == [0] * len(world.stores)
        settled = world.catalog.propose(catalog.proposals[0])
        assert isinstance(settled, Ratified)
        assert settled.txn_id == lost.value.txn_id
        assert ids_in(world.session().table("orders").to_arrow()) == [1]

    @req("CM-43")
    def test_asking_by_its_txn_id_settles_what_was_unknown(self, full_world: World) -> None:
        full_world.make()
        catalog = full_world.losing(lost_answers=1_000_000)
        table = full_world.session(catalog, unknown_wait_s=0.05).table("orders")
        with pytest.raises(OutcomeUnknownError) as lost:
            table.append(rows(1))
        outcome = full_world.session().outcome(lost.value.txn_id)
        assert isinstance(outcome, Ratified)
        assert outcome.commits[table.id].version == 1
        assert full_world.session().outcome(str(full_world.ids.ordered())) is None

    def test_it_waits_as_long_as_configured(self, minimal_world: World) -> None:
        minimal_world.make()
        catalog = minimal_world.losing(lost_answers=1_000_000)
        table = minimal_world.session(catalog).table("orders")
        with pytest.raises(OutcomeUnknownError):
            table.append(rows(1))
        assert 60 <= minimal_world.clock.monotonic() < 65

    def test_a_throttled_commit_waits_and_is_sent_again(self, minimal_world: World) -> None:
        minimal_world.make()
        catalog = minimal_world.losing(lost_requests=20, error=busy)
        table = minimal_world.session(catalog).table("orders")
        table.append(rows(1))
        assert len({proposal.txn_id for proposal in catalog.proposals}) == 1
        assert ids_in(table.to_arrow()) == [1]

    def test_a_commit_that_is_throttled_too_long_fails(self, minimal_world: World) -> None:
        minimal_world.make()
        catalog = minimal_world.losing(lost_requests=1_000_000, error=busy)
        with pytest.raises(BusyError):
            minimal_world.session(catalog).table("orders").append(rows(1))
        assert 300 <= minimal_world.clock.monotonic() < 305


def busy(txn_id: TxnId) -> Exception:
    return BusyError("Too many.")


class TestTheAnswer:
    def test_the_next_snapshot_needs_no_further_call(self, world: World) -> None:
        world.make()
        catalog = world.losing()
        for session in (world.session(catalog), world.staging_session(catalog)):
            table = session.table("orders")
            catalog.calls.clear()
            committed = table.append(rows(1))
            assert catalog.calls == {"propose": 1}
            assert table.version == committed.versions[table.id]
        assert ids_in(table.to_arrow()) == [1, 1]

    def test_what_follows_a_ratification_cannot_make_an_error_of_it(
        self, full_world: World
    ) -> None:
        class Gone(LosingCatalog):
            def resolve(self, ref: Ref, at: Sequence | None = None) -> Resolved:
                if self.calls["propose"] and not self.overtakers:
                    raise UnavailableError("The line went dead.")
                return super().resolve(ref, at)

        other = full_world.make()
        catalog = Gone(full_world.catalog)
        table = full_world.session(catalog).table("orders")
        other.append(rows(10))
        assert table.append(rows(1)).version == 2  # moved by the catalog past what was not seen
        catalog.overtakers = [list]
        assert (table.version, ids_in(table.to_arrow())) == (2, [1, 10])

    def test_storage_that_fails_after_a_ratification_cannot_make_an_error_of_it(
        self, world: World
    ) -> None:
        other = world.make()
        store = world.store_for(other.location)

        class Failing(LosingCatalog):
            def propose(self, proposal: Proposal) -> Answer:
                answer = super().propose(proposal)
                if isinstance(answer, Ratified):
                    store.around = unreachable  # type: ignore[method-assign]
                return answer

        catalog = Failing(world.catalog)
        table = world.staging_session(catalog).table("orders")
        catalog.overtakers = [lambda: other.append(rows(10))]
        assert table.append(rows(1)).version == 2
        del store.around
        assert ids_in(table.to_arrow()) == [1, 10]

    def test_a_handle_that_is_far_behind_looks_at_the_table_again(self, full_world: World) -> None:
        other = full_world.make()
        catalog = full_world.losing()
        table = full_world.session(catalog).table("orders")
        for n in range(70):
            other.append(rows(n))
        for n in range(70, 73):
            table.append(rows(n))
        bases = [proposal.parts[0].version for proposal in catalog.proposals]
        assert bases == [1, 72, 73]
        assert ids_in(table.to_arrow()) == list(range(73))

    @req("CM-04")
    def test_what_was_put_is_what_the_catalog_ratified(self, world: World) -> None:
        if not world.only_puts:
            pytest.skip("here the catalog puts")
        table = world.make()
        committed = table.append(rows(1))
        content = world.store_for(table.location).get(PublishedCommit(Version(1)).path)
        first = read(content)[0].action
        assert (first.txn_id, first.in_commit_timestamp) == (  # type: ignore[union-attr]
            committed.txn_id,
            committed.timestamp_ms,
        )


def unreachable(call: object, effect: object) -> NoReturn:
    raise UnavailableError("The line went dead.")


def test_patience_has_sane_defaults() -> None:
    assert Patience() == Patience(1 << 20, 100, 60.0, 300.0)
