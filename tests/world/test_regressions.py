"""What the machine of this folder found, each kept as the short story that it came down to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headgate.api.messages import Part, Proposal, Ratified, Rejected
from headgate.catalog.tails import lease_of
from headgate.client import maintenance
from headgate.errors import LogDivergedError
from headgate.names import TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Put, Staged, Way
from headgate.protocol.paths import StagedCommit
from headgate.table.log_files import DeltaLog
from tests.kit import req, shows
from tests.kit.builders import add, file_content, inline, metadata, protocol
from tests.kit.world import MemoryPlace, World, name_of, quiet_deaths
from tests.world import invariants

HOUR = 3_600_000


class Story:
    """A world with tables, and proposals in a line."""

    def __init__(self, folder: Path, *, has_database: bool = True) -> None:
        self.world = World(partial(MemoryPlace, folder), has_database=has_database)
        self.catalog = self.world.line

    def create(self, name: str) -> TableId:
        table_id = TableId(str(self.world.ids.random()))
        txn_id = TxnId(str(self.world.ids.ordered()))
        first = inline(protocol(), metadata(table_id))
        self.catalog.create_table(TableName.parse(name), table_id, txn_id, first)
        return table_id

    def proposal(self, *wanted: tuple[TableId, Way]) -> Proposal:
        """Propose the next version of each table, as a client with the same clock would."""
        txn_id = TxnId(str(self.world.ids.ordered()))
        truths = self.world.tables()
        newest = [truths[table_id].rows[-1].timestamp_ms for table_id, _ in wanted]
        stamp = max(self.world.clock.ms, *(ms + 1 for ms in newest))
        parts = []
        for table_id, way in wanted:
            version = Version(truths[table_id].head + 1)
            whole = file_content(add(), txn_id=txn_id, timestamp_ms=stamp)
            content: object = inline(add())
            if way is Way.PUT_IF_ABSENT:
                content = Put(content=whole)
            elif way is Way.STAGED:
                staged = StagedCommit(version, self.world.ids.random())
                self.log(table_id).stage(staged, whole)
                content = Staged(file_name=staged.name, size=len(whole))
            parts.append(Part(table_id=table_id, version=version, content=content))  # type: ignore[arg-type]
        return Proposal(txn_id=txn_id, parts=tuple(parts))

    def log(self, table_id: TableId) -> DeltaLog:
        return DeltaLog(self.world.bare_store_for(self.world.tables()[table_id].location))


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with quiet_deaths():
        made = Story(tmp_path)
        yield made
        invariants.hold(made.world)
        made.world.leave()


WAYS = [Way.INLINE, Way.STAGED]


@req("CM-42")
@shows("FC5")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.value)
@pytest.mark.parametrize("is_purged", [False, True], ids=["dropped", "purged"])
def test_a_winner_is_told_so_after_its_table_is_gone_and_the_catalog_restarted(
    story: Story, way: Way, is_purged: bool
) -> None:
    table_id = story.create("t")
    proposal = story.proposal((table_id, way))
    first = story.world.propose(proposal)
    story.catalog.drop_table(table_id)
    story.world.observe()
    if is_purged:
        story.world.model.purged.add(table_id)
        story.catalog.purge_table(table_id)
    story.world.crash()
    again = story.world.propose(proposal)
    assert isinstance(first, Ratified)
    assert isinstance(again, Ratified)
    assert again.commits[table_id].sha256 == first.commits[table_id].sha256


@req("CM-42")
@shows("FC4")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.value)
def test_a_winner_is_told_so_while_a_file_in_the_log_makes_the_catalog_look_old(
    story: Story, way: Way
) -> None:
    table_id = story.create("t")
    proposal = story.proposal((table_id, way))
    assert isinstance(story.world.propose(proposal), Ratified)
    stamp = story.world.tables()[table_id].rows[-1].timestamp_ms + 1
    intruder = file_content(add(), txn_id=TxnId("intruder"), timestamp_ms=stamp)
    story.log(table_id).store.put_if_absent(name_of(2), intruder)
    story.world.model.intruders.add((table_id, 2))
    story.world.crash()
    assert isinstance(story.world.propose(proposal), Ratified)


@req("CM-42", "MT-01")
@shows("FC8")
def test_a_winner_over_two_tables_is_told_so_after_one_of_its_staged_files_was_cleaned_up(
    story: Story,
) -> None:
    a, b = story.create("a"), story.create("b")
    proposal = story.proposal((a, Way.INLINE), (b, Way.STAGED))
    first = story.world.propose(proposal)
    story.catalog.publish(b)
    staged = proposal.parts[1].content
    assert isinstance(staged, Staged)
    story.log(b).store.delete(f"_delta_log/_staged_commits/{staged.file_name}")
    again = story.world.propose(proposal)
    assert isinstance(first, Ratified)
    assert isinstance(again, Ratified)
    assert (again.sequence, again.commits.keys()) == (first.sequence, first.commits.keys())


def test_a_dead_publishers_lease_does_not_last_an_hour_because_the_clock_was_set_back(
    story: Story,
) -> None:
    table_id = story.create("t")
    story.world.propose(story.proposal((table_id, Way.INLINE)))
    store, now_ms = story.world._store, story.world.clock.ms
    assert store is not None
    with store.write() as unit:  # as a publisher does that dies before it gives it back
        until_ms = now_ms + story.world.settings.lease_ms
        assert unit.acquire_lease(lease_of(table_id), "the dead one", now_ms, until_ms)
    story.world.clock.ms -= HOUR
    publisher = story.world.catalog._publisher  # type: ignore[union-attr]
    patience = 8 * story.world.settings.lease_ms / 1000
    deadline = story.world.clock.monotonic() + patience
    assert publisher.publish(table_id, deadline=deadline) == 1


@req("CM-36")
@shows("FT1", "S19")
@pytest.mark.parametrize("back_ms", [HOUR, 365 * 24 * HOUR])
def test_staged_commits_go_on_while_the_clock_is_set_back(story: Story, back_ms: int) -> None:
    a, b = story.create("a"), story.create("b")
    story.world.clock.ms += 10
    story.world.propose(story.proposal((a, Way.STAGED)))
    story.world.clock.ms -= back_ms
    for wanted in ([(a, Way.STAGED)], [(b, Way.STAGED)], [(b, Way.STAGED), (a, Way.STAGED)]):
        assert isinstance(story.world.propose(story.proposal(*wanted)), Ratified)
        invariants.hold(story.world)


@req("CM-36")
@shows("FT1", "S19")
def test_puts_go_on_while_the_clock_is_set_back(tmp_path: Path) -> None:
    story = Story(tmp_path, has_database=False)
    table_id = story.create("t")
    story.world.clock.ms -= HOUR
    for _ in range(2):
        proposal = story.proposal((table_id, Way.PUT_IF_ABSENT))
        assert isinstance(story.world.propose(proposal), Ratified)
    invariants.hold(story.world)


@req("CM-42")
@pytest.mark.parametrize("what", ["renamed", "dropped"])
def test_a_creation_sent_again_is_told_so_after_the_table_was_renamed_or_dropped(
    story: Story, what: str
) -> None:
    table_id = TableId(str(story.world.ids.random()))
    txn_id = TxnId(str(story.world.ids.ordered()))
    first = inline(protocol(), metadata(table_id))
    name = TableName.parse("t")
    story.catalog.create_table(name, table_id, txn_id, first)
    if what == "renamed":
        story.catalog.rename_table(table_id, TableName.parse("other"))
    else:
        story.catalog.drop_table(table_id)
    assert story.catalog.create_table(name, table_id, txn_id, first).table_id == table_id


@req("CM-47")
@shows("FM6", "FM8", "S5")
def test_a_proposal_refused_because_its_table_was_dropped_stays_refused_when_it_is_back(
    story: Story,
) -> None:
    table_id = story.create("t")
    proposal = story.proposal((table_id, Way.INLINE))
    story.catalog.drop_table(table_id)
    refused = story.world.propose(proposal)  # and its client gives up and deletes its files
    assert isinstance(refused, Rejected)
    story.catalog.undrop_table(table_id)
    assert story.world.propose(proposal) == refused  # a duplicate that was under way


@req("PB-02")
def test_nothing_is_published_behind_a_version_that_an_intruder_put(story: Story) -> None:
    table_id = story.create("t")
    for _ in range(3):
        story.world.propose(story.proposal((table_id, Way.INLINE)))
    story.catalog.publish(table_id, Version(0))
    story.log(table_id).store.put_if_absent(name_of(2), b"{}\n")
    story.world.model.intruders.add((table_id, 2))
    with pytest.raises(LogDivergedError):
        story.catalog.publish(table_id)
    assert story.world.tables()[table_id].published_versions == [0, 1, 2]


@req("CM-42", "CM-13")
def test_a_winner_in_a_filesystem_catalog_is_told_so_after_its_table_was_dropped(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, has_database=False)
    table_id = story.create("t")
    proposal = story.proposal((table_id, Way.PUT_IF_ABSENT))
    first = story.world.propose(proposal)
    story.catalog.drop_table(table_id)
    assert isinstance(first, Ratified)
    assert isinstance(story.world.propose(proposal), Ratified)


@shows("FC13")
def test_a_proposal_older_than_what_the_log_still_has_gets_an_answer(story: Story) -> None:
    table_id = story.create("t")
    part = Part(table_id=table_id, version=Version(1), content=inline(add()))
    scan = Scan(table_id=table_id, version=Version(0))
    old = Proposal(txn_id=TxnId(str(story.world.ids.ordered())), parts=(part,), scans=(scan,))
    for _ in range(3):
        story.world.propose(story.proposal((table_id, Way.INLINE)))
    story.catalog.publish(table_id)
    snapshot = invariants.load(story.world, table_id)
    clock, ids = story.world.clock, story.world.ids
    maintenance.checkpoint(story.catalog, table_id, snapshot, None, clock, ids)
    story.world.observe()
    story.world.model.cut[table_id] = 2
    for version in range(3):  # as cleaning up by age does, below the checkpoint
        story.log(table_id).store.delete(name_of(version))
    assert isinstance(story.catalog.propose(old), Ratified | Rejected)
