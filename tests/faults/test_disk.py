"""Disks that forget, fill up and fail to sync: nothing acknowledged is lost, nothing half is seen.

The database lies on a VFS and the tables on a disk that both keep apart what is written and what
is synced. Power goes at any write or sync; what comes back is what was synced and any part of the
rest. Failures are drawn from seeds that are part of each test's name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from headgate.api.messages import Part, Proposal, Ratified
from headgate.catalog.stores.sqlite import SQLiteStore
from headgate.client import maintenance
from headgate.clock import Clock
from headgate.errors import (
    HeadgateError,
    NotPublishedError,
    OutcomeUnknownError,
    UnavailableError,
)
from headgate.names import TableName
from headgate.protocol.actions import TableId, TxnId, Version
from headgate.protocol.commit.content import Staged
from headgate.protocol.paths import StagedCommit
from headgate.settings import Settings
from headgate.storage.local import LocalStore
from headgate.storage.object_store import ObjectStore, PutUnknownError
from headgate.table.log_files import DeltaLog
from tests.kit import req, shows
from tests.kit.builders import add, file_content, inline, metadata, protocol
from tests.kit.faulty_stores import ForgetfulDisk, PowerLossError
from tests.kit.lossy_sqlite import ForgetfulVFS
from tests.kit.world import CrashError, Fate, World, quiet_deaths
from tests.world import invariants

_READS = frozenset({"open", "close", "read", "entries", "stat", "stat_open"})


class Machine:
    """A machine whose power can go at any write or sync, of database and tables alike."""

    root = "file:///lake"

    def __init__(self, folder: Path, clock: Clock, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.disk = ForgetfulDisk(clock.now_ms)
        self.left: int | None = None  # calls until the power goes
        self.calls = 0
        self.lies = False
        self.is_off = False
        self._folder = folder
        self._starts = 0
        self.vfs = ForgetfulVFS(self._next_folder())
        self._watch()

    def store_for(self, location: str) -> ObjectStore:
        return LocalStore(location.removeprefix("file://"), self.disk)

    def bare(self) -> ObjectStore:
        return self.store_for(self.root)

    def open_store(self, clock: Clock) -> SQLiteStore:
        return SQLiteStore(self._database, clock, vfs=self.vfs.name)

    def rows(self) -> apsw.Connection:
        return apsw.Connection(self._database, vfs=self.vfs.name)

    def restart(self) -> None:
        """Come back: after a power loss with what is left, else with all that was written."""
        if self.is_off:
            self.vfs = self.vfs.restart(self._next_folder(), self.chance)
            self.disk.before = None
            self.disk.crash(self.chance)
        else:
            self.vfs = self.vfs.die(self._next_folder())
            self.disk.failed, self.disk.durable = None, {"/"}
        self.is_off, self.left = False, None
        self.vfs.ignores_syncs = self.lies
        self._watch()

    @property
    def _database(self) -> str:
        return str(self.vfs.folder / "headgate.db")

    def _next_folder(self) -> Path:
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        return folder

    def _watch(self) -> None:
        self.vfs.before = self.disk.before = self._cross

    def _cross(self, what: str, path: str) -> None:
        if what in _READS and not self.is_off:
            return
        self.calls += 1
        if self.is_off or self.left == 0:
            self.is_off = True
            raise PowerLossError
        if self.left is not None:
            self.left -= 1


class Lake:
    """A world on such a machine, and what its clients do."""

    def __init__(self, folder: Path, seed: int = 0, **settings: int) -> None:
        self.machine: Machine
        self.world = World(
            lambda clock: self._machine(folder, clock, seed),
            settings=Settings(verify_staged=0, **settings),
        )
        self.model = self.world.model
        self.chance = self.machine.chance
        self.names = 0

    def _machine(self, folder: Path, clock: Clock, seed: int) -> Machine:
        self.machine = Machine(folder, clock, seed)
        return self.machine

    def power_loss(self) -> None:
        self.machine.is_off = True
        self.world.crash()

    def create(self) -> None:
        self.names += 1
        table_id = TableId(str(self.world.ids.random()))
        first = inline(protocol(), metadata(table_id))
        txn_id = TxnId(str(self.world.ids.ordered()))
        name = TableName.parse(f"t{self.names}")
        self.world.line.create_table(name, table_id, txn_id, first)
        self.model.created.add(table_id)

    def proposal(self, count: int = 1, *, staged: bool = False) -> Proposal:
        truths = list(self.world.tables().values())[:count]
        txn_id = TxnId(str(self.world.ids.ordered()))
        stamp = max([self.world.clock.ms, *(t.rows[-1].timestamp_ms + 1 for t in truths)])
        parts = []
        for truth in truths:
            version = Version(truth.head + 1)
            file = add(f"{self.world.ids.random()}.parquet")
            if not staged:
                parts.append(Part(table_id=truth.table_id, version=version, content=inline(file)))
                continue
            content = file_content(file, txn_id=txn_id, timestamp_ms=stamp)
            place = StagedCommit(version, self.world.ids.random())
            log = DeltaLog(self.machine.store_for(truth.location))
            self.world.do(lambda log=log, place=place, content=content: log.stage(place, content))
            staged_content = Staged(file_name=place.name, size=len(content))
            parts.append(Part(table_id=truth.table_id, version=version, content=staged_content))
        return Proposal(txn_id=txn_id, parts=tuple(parts))

    def propose(self, count: int = 1, *, staged: bool = False) -> object:
        return self.world.propose(self.proposal(count, staged=staged))

    def publish(self) -> None:
        for table_id in self.world.tables():
            self.world.line.publish(table_id)

    def checkpoint(self) -> None:
        for table_id, truth in self.world.tables().items():
            snapshot = invariants.load(self.world, table_id, version=max(0, truth.published))
            self.world.do(
                lambda table_id=table_id, snapshot=snapshot: maintenance.checkpoint(
                    self.world.catalog, table_id, snapshot, None, self.world.clock, self.world.ids
                )
            )

    def steps(self) -> list[Callable[[], object]]:
        return [
            self.create,
            self.propose,
            lambda: self.propose(2),
            lambda: self.propose(staged=True),
            lambda: self.propose(3, staged=True),
            lambda: self.world.propose_together([self.proposal(1 + n % 2) for n in range(3)]),
            self.publish,
            self.checkpoint,
        ]

    def close(self) -> None:
        self.world.leave()
        self.machine.vfs.unregister()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quiet_deaths():
        made = Lake(tmp_path)
        for _ in range(3):
            made.create()
        yield made
        made.close()


def scenario(lake: Lake) -> None:
    """Make tables and commit to them, one and several at once."""
    for _ in range(2):
        lake.create()
    for number in range(4):
        lake.propose(1 + number % 2)
        lake.world.propose_together([lake.proposal(1 + n % 2) for n in range(3)])


def power_goes_in_a_scenario(folder: Path, point: int, seed: int, *, lies: bool = False) -> bool:
    """Return True if the power went; what was acknowledged must be there then."""
    lake = Lake(folder, seed)
    lake.machine.lies = lake.machine.vfs.ignores_syncs = lies
    lake.machine.left = point
    with suppress(CrashError, OutcomeUnknownError, UnavailableError):
        scenario(lake)
    went = lake.world.crashes > 0
    lake.machine.left = None
    if not went:  # it ran to its end: then let the power go now
        lake.power_loss()
    try:
        invariants.hold(lake.world)
        assert not lies or lake.model.history or not lake.model.created
        invariants.settle(lake.world)
        invariants.hold(lake.world)
    finally:
        lake.close()
    return went


@req("CM-12")
@shows("FC9", "FC10", "FM1", "S1", "S2", "S3", "S4", "S6", "S7", "L3")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_power_lost_at_any_write_or_sync_loses_nothing_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    with quiet_deaths():
        chance = random.Random(seed)
        points = sorted(chance.sample(range(160), 10))
        went = 0
        for point in points:
            folder = tmp_path / str(point)
            folder.mkdir()
            went += power_goes_in_a_scenario(folder, point, seed * 1000 + point)
        assert went >= 5, "the points lie within the scenario"


@shows("S4")
def test_a_disk_that_only_says_it_synced_is_found_out(tmp_path: Path) -> None:
    """The tests above can fail: without syncs acknowledged commits are lost."""
    losses = 0
    with quiet_deaths():
        for seed in range(6):
            folder = tmp_path / str(seed)
            folder.mkdir()
            try:
                power_goes_in_a_scenario(folder, 10**6, seed, lies=True)
            except (AssertionError, HeadgateError, apsw.Error, PowerLossError):
                losses += 1
    assert losses >= 2


@req("CM-42")
@shows("FC10", "S4")
@pytest.mark.parametrize("seed", range(4))
def test_a_commit_found_after_a_crash_outlives_a_power_loss_once_it_was_acknowledged(
    lake: Lake, seed: int
) -> None:
    """A process dies between writing and syncing; the next one finds the commit, and says so."""
    proposal = lake.proposal()

    def die_at_sync(what: str, path: str) -> None:
        if what == "sync":
            raise PowerLossError

    lake.machine.vfs.before = die_at_sync
    lake.world.propose(proposal)
    assert lake.world.crashes == 1
    assert not lake.machine.is_off
    answer = lake.world.propose(proposal)
    assert isinstance(answer, Ratified)
    lake.machine.chance.seed(seed)
    lake.power_loss()
    invariants.hold(lake.world)


@req("CM-12")
@shows("FC11", "S4", "S6")
@pytest.mark.parametrize("room", [0, 1, 31, 32, 500, 4_096, 4_119, 4_121, 9_000, 20_000])
@pytest.mark.parametrize("count", [1, 3])
def test_a_full_disk_refuses_a_commit_cleanly_and_goes_on_when_there_is_room(
    lake: Lake, room: int, count: int
) -> None:
    proposal = lake.proposal(count)
    lake.machine.vfs.room = room
    heard = lake.world.propose(proposal)
    lake.machine.vfs.room = None
    invariants.hold(lake.world)
    if not isinstance(heard, Ratified):
        assert type(heard) is UnavailableError
        assert "full" in heard.message
        assert {truth.head for truth in lake.world.tables().values()} == {0}
    lake.power_loss()
    invariants.hold(lake.world)
    assert isinstance(lake.world.propose(proposal), Ratified)
    assert isinstance(lake.propose(count), Ratified)
    assert lake.world.crashes == 1
    invariants.hold(lake.world)


@shows("FC11")
def test_a_full_disk_in_mid_batch_undoes_the_batch_and_the_next_one_is_decided(lake: Lake) -> None:
    """Pages that spill before the commit meet the full disk inside of a proposal's own work."""
    store = lake.world._store
    assert store is not None
    store._writer.execute("PRAGMA cache_size = 5")
    proposals = [lake.proposal(1 + number % 3) for number in range(6)]
    lake.machine.vfs.room = 30_000
    lake.world.propose_together(proposals)
    lake.machine.vfs.room = None
    assert lake.world.crashes == 0
    invariants.hold(lake.world)
    for proposal in proposals:
        lake.world.propose(proposal)
    assert lake.model.wishes[proposals[0].txn_id].fate is Fate.ACKED
    lake.power_loss()
    invariants.hold(lake.world)


@req("CM-12")
@shows("FC12", "S4", "S6", "L3")
@pytest.mark.parametrize("after", ["death", "power loss"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_failed_sync_leaves_the_outcome_unknown_and_nothing_is_acknowledged_after_it(
    lake: Lake, count: int, after: str
) -> None:
    catalog = lake.world.catalog
    before, proposal, later = lake.proposal(count), lake.proposal(count), lake.proposal()
    for one in (before, proposal, later):
        lake.model.wish(one)
    lake.model.record(catalog.propose(before))
    proposal = lake.proposal(count)
    lake.model.wish(proposal)
    lake.machine.vfs.fail_sync_at = lake.machine.vfs.counts["sync"] + 1
    with pytest.raises(OutcomeUnknownError) as caught:
        catalog.propose(proposal)
    assert caught.value.txn_id == proposal.txn_id
    for _ in range(2):
        with pytest.raises(UnavailableError):  # although this sync would succeed
            catalog.propose(later)
    lake.machine.is_off = after == "power loss"
    lake.world.crash()
    invariants.hold(lake.world)
    assert isinstance(lake.world.propose(proposal), Ratified)
    invariants.settle(lake.world)
    invariants.hold(lake.world)


STEPS = {
    "staging": lambda lake: lake.propose(2, staged=True),
    "publishing": lambda lake: lake.publish(),
    "checkpointing": lambda lake: lake.checkpoint(),
}


@req("CM-24", "CM-27")
@shows("FC2", "FC11", "FP2", "S9", "S10", "S11", "S14")
@pytest.mark.parametrize("room", [0, 1, 100, 600, 1_500, 5_000])
@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_fills_up_leaves_nothing_partial_and_work_goes_on_when_there_is_room(
    lake: Lake, step: str, room: int
) -> None:
    for _ in range(3):
        lake.propose(3, staged=True)
    if step == "checkpointing":
        lake.publish()
    invariants.hold(lake.world)
    lake.machine.disk.room = room
    try:
        STEPS[step](lake)
    except UnavailableError as error:
        assert "full" in error.message  # noqa: PT017 - it may also just fit
    lake.machine.disk.room = None
    invariants.hold(lake.world)
    STEPS[step](lake)
    invariants.hold(lake.world)
    lake.power_loss()
    invariants.hold(lake.world)
    assert isinstance(lake.propose(3), Ratified)


@req("CM-24")
@shows("FC12", "FP2", "S9", "S10", "S11", "S12")
@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("step", STEPS)
def test_a_file_that_cannot_be_synced_is_not_believed_until_a_new_process_looks(
    lake: Lake, step: str, nth: int
) -> None:
    for _ in range(3):
        lake.propose(3, staged=True)
    if step == "checkpointing":
        lake.publish()
    published = [truth.published for truth in lake.world.tables().values()]
    disk = lake.machine.disk
    disk.fail_sync_at = disk.counts["sync"] + nth
    try:
        STEPS[step](lake)
    except (UnavailableError, PutUnknownError):
        assert disk.failed is not None
        after = [truth.published for truth in lake.world.tables().values()]
        assert step != "publishing" or after[-1] == published[-1]
        with pytest.raises(UnavailableError):
            lake.machine.bare().put("anything", b"at all")
    disk.fail_sync_at = None
    lake.machine.is_off = nth % 2 == 0
    lake.world.crash()
    invariants.hold(lake.world)
    STEPS[step](lake)
    invariants.settle(lake.world)
    invariants.hold(lake.world)


@req("CM-12", "CM-24", "MT-01")
@shows("FC10", "FM1", "FP1", "FP2", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10",
       "S11", "S12", "S13", "S14", "S16", "L2", "L3")  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_whole_lake_loses_power_again_and_again_and_keeps_every_invariant(
    tmp_path: Path, seed: int
) -> None:
    with quiet_deaths():
        lake = Lake(tmp_path, seed, publish_batch=2)
        chance = lake.chance
        lake.create()
        for _ in range(4):
            if chance.random() < 0.9:
                lake.machine.left = chance.randrange(1, 150)
            for _ in range(8):
                try:
                    chance.choice(lake.steps())()
                except (CrashError, NotPublishedError):
                    pass
                except HeadgateError:
                    assert lake.world.crashes
            if lake.machine.left is not None:
                lake.power_loss()
            invariants.hold(lake.world)
        invariants.settle(lake.world)
        invariants.hold(lake.world)
        assert lake.world.crashes >= 2
        lake.close()
