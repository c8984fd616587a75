"""Transactions over several tables: all parts are ratified, or none."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.client import arrow_io
from headgate.client.table import Table
from headgate.client.transaction import Change, Committer, OperationInfo, Patience
from headgate.errors import (
    ConflictError,
)
from headgate.protocol.actions import RemoveFile
from headgate.protocol.commit.conflicts import Conflict
from headgate.protocol.commit.content import Way
from headgate.table.snapshot import Snapshot
from tests.client.conftest import World, appending, ids_in, rows
from tests.kit import req, shows


class TestSeveralTables:
    @req("MT-01", "MT-16")
    def test_tables_change_together_under_one_id_whatever_way_each_part_goes(
        self, full_world: World
    ) -> None:
        small, large = full_world.make("small"), full_world.make("large")
        committer = Committer(
            full_world.catalog, full_world.clock, full_world.ids, Patience(inline_bytes=2_000)
        )
        committed = committer.commit([appending(small, 1), appending(large, 2, copies=20)])
        assert {c.way for c in committed.commits.values()} == {Way.INLINE, Way.STAGED}
        assert {c.txn_id for c in committed.commits.values()} == {committed.txn_id}
        assert {c.timestamp_ms for c in committed.commits.values()} == {committed.timestamp_ms}
        assert committed.versions == {small.id: 1, large.id: 1}
        assert set(committed.snapshots) == {small.id, large.id}

    @req("MT-01", "MT-04")
    def test_a_conflict_in_one_leaves_all_as_they_were(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        a.append(rows(1))
        changes = [appending(b, 2), removing(a)]
        a.overwrite(rows(3))
        committer = Committer(full_world.catalog, full_world.clock, full_world.ids)
        with pytest.raises(ConflictError, match="R6") as refused:
            committer.commit(changes)
        conflicts = [one for one in refused.value.conflicts if isinstance(one, Conflict)]
        assert [(one.table_id, one.version) for one in conflicts] == [(a.id, 2)]
        assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([3], [])

    def test_all_staged_parts_are_staged_again_when_one_loses_its_version(
        self, full_world: World
    ) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        changes = [appending(a, 1), appending(b, 2)]
        a.append(rows(10))
        catalog = full_world.losing()
        committer = Committer(catalog, full_world.clock, full_world.ids, Patience(inline_bytes=0))
        assert committer.commit(changes).versions == {a.id: 2, b.id: 1}
        assert len(catalog.proposals) == 2
        assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([1, 10], [2])

    @req("MT-06")
    @shows("FC4")
    def test_a_transaction_whose_answer_was_lost_is_ratified_once_in_every_table(
        self, full_world: World
    ) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        catalog = full_world.losing(lost_answers=2)
        committer = Committer(catalog, full_world.clock, full_world.ids, Patience(inline_bytes=0))
        committed = committer.commit([appending(a, 1), appending(b, 2)])
        assert committed.versions == {a.id: 1, b.id: 1}
        assert len(catalog.answers) == 3
        assert catalog.answers[0] == catalog.answers[1] == catalog.answers[2]
        assert (ids_in(a.to_arrow()), ids_in(b.to_arrow())) == ([1], [2])

    @req("MT-02")
    @shows("FM5")
    @pytest.mark.slow
    def test_no_cut_shows_half_of_a_transfer_while_transfers_run(self, full_world: World) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        session = full_world.session()

        def transfer() -> None:
            for number in range(1, 21):
                way = Patience(inline_bytes=1 << 20 if number % 2 else 0)
                committer = Committer(full_world.catalog, full_world.clock, full_world.ids, way)
                committer.commit([appending(a, number), appending(b, -number)])

        with ThreadPoolExecutor(1) as pool:
            transfers = pool.submit(transfer)
            balances = []
            while not transfers.done():
                balances.append(balance(session.read_cut(["a", "b"])))
            transfers.result()
        assert set(balances) == {0}
        cut = session.read_cut(["a", "b"])
        assert balance(cut) == 0
        assert [(s.version, s.num_files) for s in cut.values()] == [(20, 20), (20, 20)]

    @req("MT-16")
    def test_the_sum_of_transfers_is_right_at_every_time_that_was_recorded(
        self, full_world: World
    ) -> None:
        a, b = full_world.make("a"), full_world.make("b")
        session = full_world.session()
        stamps = []
        for number in range(1, 9):
            way = Patience(inline_bytes=1 << 20 if number % 2 else 0)
            committer = Committer(full_world.catalog, full_world.clock, full_world.ids, way)
            changes = [appending(a, number), appending(b, -number)]
            stamps.append(committer.commit(changes).timestamp_ms)
            if number % 3 == 0:  # one table gets more commits
                a.set_properties({"n": number})
        for at in (moment for stamp in stamps for moment in (stamp - 1, stamp)):
            cut = session.read_cut(["a", "b"], as_of=at)
            assert balance(cut) == 0
            assert balance({table.name: table.snapshot(as_of=at) for table in (a, b)}) == 0
        cut = session.read_cut(["a", "b"], as_of=stamps[-1])
        assert {snapshot.num_files for snapshot in cut.values()} == {8}


def balance(cut: Mapping[str, Snapshot]) -> int:
    """Sum the rows of the tables of a cut."""
    return sum(sum(ids_in(arrow_io.to_arrow(snapshot))) for snapshot in cut.values())


def removing(table: Table) -> Change:
    base = table.snapshot()
    removes = tuple(RemoveFile(path=file.path, data_change=True) for file in base.files())
    return Change(table.id, base, (Way.INLINE, Way.STAGED), removes, OperationInfo("DELETE"))
