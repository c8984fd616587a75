"""Random steps on a world: commit, crash, publish, read, drop; S1 to S19 hold after every step."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headgate.api.messages import Part, Proposal
from headgate.catalog.service import Catalog
from headgate.client import maintenance
from headgate.client.transaction import Change, Committer, OperationInfo, Patience
from headgate.errors import (
    ConflictError,
    InTheFutureError,
    InvalidCommitError,
    LogAheadError,
    LogDivergedError,
    NotFoundError,
    NotPublishedError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedFeatureError,
    VersionGoneError,
)
from headgate.failpoints import FailPointError, arm
from headgate.names import TableName
from headgate.protocol import paths
from headgate.protocol.actions import Action, AddFile, TableId, TxnId, Version
from headgate.protocol.actions import Sequence as SequenceNumber
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.commit.content import Put, Staged, Way
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.settings import Settings
from headgate.storage.object_store import PutUnknownError
from headgate.table import snapshot_loader
from headgate.table.log_files import DeltaLog
from headgate.table.snapshot import Snapshot
from tests.kit.builders import add, file_content, inline, metadata, protocol, remove
from tests.kit.faulty_stores import Call, FailingStore, When
from tests.kit.world import (
    CrashError,
    Fate,
    LocalPlace,
    MemoryPlace,
    Truth,
    World,
    name_of,
)
from tests.world import invariants
from tests.world.http_world import ServedWorld

MEMORY = Path("/dev/shm")
COMMITTING = (
    "ratifier.before_begin",
    "ratifier.after_decide",
    "ratifier.before_commit",
    "ratifier.after_commit",
    "client.before_stage",
    "client.after_stage",
    "client.before_propose",
    "client.after_propose",
)
POINTS = (
    *COMMITTING,
    "publisher.before_put",
    "publisher.after_put",
    "publisher.before_record",
    "publisher.after_record",
    "registry.before_register",
    "registry.after_register",
    "registry.after_drop",
    "registry.purge_between_files",
    "registry.before_forget_purged",
    "checkpoint.before_put",
    "checkpoint.after_put",
    "checkpoint.before_hint",
    "fsck.before_adopt",
    "fsck.after_adopt",
    "housekeeping.before_give_up",
    "housekeeping.after_give_up",
    "housekeeping.between_files",
)
some = st.integers(0, 5)
few = st.integers(1, 3)
V2 = {"delta.checkpointPolicy": "v2"}


class Machine(RuleBasedStateMachine):
    """The rules that every kind of catalog has."""

    place: type[MemoryPlace] = MemoryPlace
    ways: tuple[Way, ...] = (Way.INLINE, Way.STAGED)
    has_database = True
    kind: type[World] = World

    def __init__(self) -> None:
        super().__init__()
        base = MEMORY if MEMORY.is_dir() and self.place is MemoryPlace else None
        self.folder = Path(tempfile.mkdtemp(prefix="hg-world-", dir=base))
        self.world = self.kind(
            partial(self.place, self.folder),
            settings=Settings(
                publish_batch=3,
                ticket_after=2,
                listed_ms=1_000,
                verify_staged=0,
                lost_kept_ms=0,
                unproposed_kept_ms=1_000,
            ),
            has_database=self.has_database,
        )
        self.model = self.world.model
        self.line = self.world.line
        self.files: dict[str, AddFile] = {}
        self.names = 0
        self.held: dict[tuple[int, TableId], Snapshot] = {}
        self.written: Counter[str] = Counter()  # checkpoints, by their kind

    def teardown(self) -> None:
        try:
            self.quiet()
            self.mend_all()
            invariants.settle(self.world)
            invariants.hold(self.world)
        finally:
            self.world.leave()
            shutil.rmtree(self.folder)

    # Faults that wait for the next step

    @rule(point=st.sampled_from(POINTS), nth=st.sampled_from((1, 1, 1, 2)))
    def arm_a_crash(self, point: str, nth: int) -> None:
        arm(f"{point}:raise@{nth}")

    @rule(point=st.sampled_from(COMMITTING), what=some, way=some)
    def crash_in_a_commit(self, point: str, what: int, way: int) -> None:
        arm(f"{point}:raise")
        self.propose(what, what, 0, way, 1)
        self.commit_as_a_client(way, what, 0, bool(way % 2))

    @rule(requests=st.booleans())
    def lose_the_next_call(self, requests: bool) -> None:
        self.line.lost_requests = int(requests)
        self.line.lost_answers = int(not requests)

    @rule()
    def double_the_next_call(self) -> None:
        self.line.doubled = 1

    @rule(nth=st.integers(1, 4), when=st.sampled_from(When), only_writes=st.booleans())
    def let_storage_fail(self, nth: int, when: When, only_writes: bool) -> None:
        def fits(call: Call) -> bool:
            return call.is_write or not only_writes

        self.storage.fail(fits, nth=nth, when=when)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(ms=st.sampled_from((-3_600_000, -1_000, -1, 1, 30_000, 3_600_000)))
    def set_the_clock(self, ms: int) -> None:
        self.world.clock.ms += ms

    # Tables

    @initialize()
    def begin(self) -> None:
        for is_v2 in (False, True):
            self.create(is_v2=is_v2)
            self.world.observe()

    @precondition(lambda self: len(self.model.history) < 5)
    @rule(repeat=st.booleans(), is_v2=st.booleans())
    def create(self, repeat: bool = False, is_v2: bool = False) -> None:
        """Make a table, one that has V2 checkpoints or one that cannot have them."""
        self.names += 1
        name = TableName.parse(f"t{self.names}")
        table_id = TableId(str(self.world.ids.random()))
        txn_id = TxnId(str(self.world.ids.ordered()))
        allowed = protocol(*(["v2Checkpoint"] if is_v2 else []))
        wanted = metadata(table_id, properties=V2 if is_v2 else None)
        first = inline(allowed, wanted, operation="CREATE TABLE")
        for _ in range(1 + repeat):
            if self.hears(self.line.create_table, name, table_id, txn_id, first):
                self.model.created.add(table_id)

    @rule(which=some)
    def drop(self, which: int) -> None:
        tables = self.active()
        if len(tables) > 1:
            table_id = tables[which % len(tables)].table_id
            try:
                self.hears(self.line.drop_table, table_id)
            except NotFoundError:
                assert not self.has_database  # it came twice

    @rule(which=some)
    def purge(self, which: int) -> None:
        dropped = [t for t in self.world.tables().values() if t.state == "dropped"]
        if dropped:
            table_id = dropped[which % len(dropped)].table_id
            self.model.purged.add(table_id)
            self.hears(self.line.purge_table, table_id)

    # Committing

    @rule(which=some, what=some, back=st.sampled_from((0, 0, 0, 1, 2)), way=some, reads=some)
    def propose(self, which: int, what: int, back: int, way: int, reads: int) -> None:
        tables = self.active()
        if tables:
            self.propose_to([tables[which % len(tables)]], what, back, way, reads)

    @rule(which=some, whats=st.lists(some, min_size=2, max_size=5), way=some)
    def propose_one_after_the_other(self, which: int, whats: list[int], way: int) -> None:
        for number, what in enumerate(whats):
            for truth in self.picked(which):
                self.propose_to([truth], what, 0, way + number, 1)
                self.world.observe()

    def propose_to(
        self, tables: list[Truth], what: int, back: int, way: int, reads: int
    ) -> Proposal | None:
        proposal = self.wish_for(tables, what, back, way, reads)
        if proposal is not None:
            self.world.propose(proposal)
        return proposal

    def wish_for(
        self, tables: list[Truth], what: int, back: int, way: int, reads: int
    ) -> Proposal | None:
        txn_id = TxnId(str(self.world.ids.ordered()))
        bases = [max(0, truth.head - back) for truth in tables]
        stamps = [truth.rows[base].timestamp_ms for truth, base in zip(tables, bases, strict=True)]
        stamp = max(self.world.clock.ms, *(ms + 1 for ms in stamps))
        parts, scans = [], []
        for number, (truth, base) in enumerate(zip(tables, bases, strict=True)):
            actions = self.actions(truth.table_id, base, what + number)
            if any(not isinstance(action, AddFile) for action in actions) or reads == 0:
                scans.append(Scan(table_id=truth.table_id, version=Version(base)))
            part = self.part(
                truth, base + 1, self.ways[(way + number) % len(self.ways)], actions, txn_id, stamp
            )
            if part is None:
                return None
            parts.append(part)
        level = (Isolation.WRITE_SERIALIZABLE, Isolation.SERIALIZABLE, Isolation.SNAPSHOT)
        return Proposal(
            txn_id=txn_id, parts=tuple(parts), scans=tuple(scans), isolation=level[reads % 3]
        )

    def actions(self, table_id: TableId, base: int, what: int) -> list[Action]:
        path = f"{self.world.ids.random()}.parquet"
        fresh = self.files[path] = add(path)
        live = [self.files[known] for known in self.model.live(table_id, base)]
        match what:
            case 3 if live:
                return [remove(live[0])]
            case 4 if live:
                return [*map(remove, live), fresh]
            case 5:
                note = {"headgate.note" if len(live) % 2 else "note": path}
                before = self.model.configuration(table_id, base)
                kept = {key: value for key, value in before.items() if key in V2}
                return [metadata(table_id, properties={**note, **kept})]
            case _:
                return [fresh]

    def part(
        self, truth: Truth, version: int, way: Way, actions: list[Action], txn: TxnId, stamp: int
    ) -> Part | None:
        content = file_content(*actions, txn_id=txn, timestamp_ms=stamp)
        made: Put | Staged
        match way:
            case Way.INLINE:
                return Part(
                    table_id=truth.table_id, version=Version(version), content=inline(*actions)
                )
            case Way.STAGED:
                staged = StagedCommit(Version(version), self.world.ids.random())
                made = Staged(file_name=staged.name, size=len(content))
                try:
                    DeltaLog(self.world.place.store_for(truth.location)).stage(staged, content)
                except (UnavailableError, PutUnknownError):
                    return None  # nothing was proposed, whatever lies there
            case Way.PUT_IF_ABSENT:
                made = Put(content=content)
        return Part(table_id=truth.table_id, version=Version(version), content=made)

    @rule(which=some)
    def resend(self, which: int) -> None:
        """Send any proposal of the past again, whatever became of it."""
        wishes = list(self.model.wishes.values())
        if wishes:
            wish = wishes[-1 - which % len(wishes)]
            fate, versions = wish.fate, dict(wish.versions)
            self.world.propose(wish.proposal)
            if fate is not Fate.OPEN:
                assert (wish.fate, wish.versions) == (fate, versions)

    @rule(which=some, what=some, who=some, is_staged=st.booleans())
    def commit_as_a_client(self, which: int, what: int, who: int, is_staged: bool) -> None:
        """Commit with the client's own code: it moves past winners and settles lost answers."""
        tables = self.active()
        if not tables:
            return
        truth = tables[which % len(tables)]
        base = self.held.get((who, truth.table_id)) or self.read_as(who, truth.table_id)
        if base is None:
            return
        actions = self.actions(truth.table_id, base.version, what)
        reads = any(not isinstance(action, AddFile) for action in actions)
        scan = Scan(table_id=truth.table_id, version=base.version)
        change = Change(
            table_id=truth.table_id,
            base=base,
            ways=self.ways,
            actions=tuple(actions),
            operation=OperationInfo("WRITE"),
            scans=(scan,) if reads else (),
        )
        patience = Patience(inline_bytes=0 if is_staged else 1 << 20, tries=5)
        committer = Committer(self.line, self.world.clock, self.world.ids, patience)
        before = set(self.model.wishes)
        try:
            done = committer.commit([change])
        except (ConflictError, InvalidCommitError):
            for txn_id in self.model.wishes.keys() - before:
                self.model.refuse(txn_id)
        except FailPointError:
            self.world.crash()  # catalog and client are one process
        except CrashError:
            pass
        except (UnavailableError, OutcomeUnknownError, PutUnknownError, NotFoundError):
            pass
        except LogAheadError:
            assert self.has_intruder(truth)
        else:
            self.model.reach(f"client {who}", truth.table_id, done.version)
            for table_id, snapshot in done.snapshots.items():
                self.world.observe()
                invariants.same(self.world, snapshot)
                self.held[who, table_id] = snapshot

    # Reading

    @rule(which=some, who=some)
    def read_as_a_client(self, which: int, who: int) -> None:
        tables = self.active()
        if tables:
            self.read_as(who, tables[which % len(tables)].table_id)

    def read_as(self, who: int, table_id: TableId) -> Snapshot | None:
        self.world.observe()
        before = self.model.head(table_id)
        try:
            snapshot = snapshot_loader.load(
                self.line,
                table_id,
                base=self.held.get((who, table_id)),
                store_for=self.world.place.store_for,
            )
            snapshot.state  # noqa: B018 - the log is read when it is first asked for
        except (UnavailableError, CrashError):
            return None
        assert snapshot.version >= before, "S16: a fresh read is older than its start"
        invariants.same(self.world, snapshot)
        self.model.reach(f"client {who}", table_id, snapshot.version)
        self.held[who, table_id] = snapshot
        return snapshot

    @rule(which=some, back=some)
    def read_a_version(self, which: int, back: int) -> None:
        for truth in self.picked(which):
            version = max(0, truth.head - back)
            try:
                snapshot = invariants.load(self.world, truth.table_id, version=version)
            except VersionGoneError:
                assert version <= self.model.cut.get(truth.table_id, -1)
            else:
                assert snapshot.version == version
                invariants.same(self.world, snapshot)
            with pytest.raises(InTheFutureError):
                invariants.load(self.world, truth.table_id, version=truth.head + 1)

    @rule(which=some, back=some, off=st.sampled_from((-1, 0, 1)))
    def read_a_time(self, which: int, back: int, off: int) -> None:
        for truth in self.picked(which):
            at_ms = truth.rows[max(0, truth.head - back)].timestamp_ms + off
            expected = self.model.at_time(truth.table_id, at_ms)
            cut = self.model.cut.get(truth.table_id, -1)
            try:
                snapshot = invariants.load(self.world, truth.table_id, as_of_ms=at_ms)
            except VersionGoneError:
                assert expected <= cut, "S19"
            except InTheFutureError:
                assert at_ms > max(truth.rows[-1].timestamp_ms, self.world.clock.ms)
            else:
                assert snapshot.version == expected, "S19"
                invariants.same(self.world, snapshot)

    # How things are

    @invariant()
    def everything_holds(self) -> None:
        try:
            invariants.hold(self.world)
        except BaseException:
            print(self.world.dump())
            raise

    @property
    def storage(self) -> FailingStore:
        return self.world.place.failing  # type: ignore[attr-defined]

    def picked(self, which: int) -> list[Truth]:
        tables = self.active()
        return [tables[which % len(tables)]] if tables else []

    def active(self) -> list[Truth]:
        return [truth for truth in self.world.tables().values() if truth.state == "active"]

    def hears(self, call: Callable[..., object], *values: object) -> bool:
        """Make a call; return True if it was acknowledged."""
        try:
            call(*values)
        except (CrashError, UnavailableError, OutcomeUnknownError, PutUnknownError):
            return False
        return True

    def has_intruder(self, truth: Truth) -> bool:
        return any(table_id == truth.table_id for table_id, _ in self.model.intruders)

    def quiet(self) -> None:
        """End all faults."""
        arm("")
        self.line.lost_requests = self.line.lost_answers = self.line.doubled = 0
        self.storage.times = 0

    def mend_all(self) -> None:
        """Take away what intruders left."""


class FilesystemMachine(Machine):
    """A catalog without a database: commits by put-if-absent, and nothing that needs a state."""

    ways = (Way.PUT_IF_ABSENT,)
    has_database = False


class LocalFilesystemMachine(FilesystemMachine):
    """The same on a real disk."""

    place = LocalPlace


class DatabaseMachine(Machine):
    """What only a catalog with a database has."""

    @rule()
    def create_in_three_phases(self) -> None:
        self.names += 1
        name = TableName.parse(f"t{self.names}")
        try:
            staging = self.world.do(lambda: self.world.catalog.stage_table())
        except (CrashError, UnavailableError, OutcomeUnknownError):
            return
        self.model.history.setdefault(staging.table_id, [])
        content = file_content(
            protocol(),
            metadata(staging.table_id),
            txn_id=TxnId(str(self.world.ids.ordered())),
            timestamp_ms=self.world.clock.ms,
        )
        self.world.bare_store_for(staging.location).put_if_absent(name_of(0), content)
        if self.hears(self.line.register_table, name, staging.table_id):
            self.model.created.add(staging.table_id)

    @rule(count=st.integers(2, 3), what=some, back=st.sampled_from((0, 0, 1)), way=some, reads=some)
    def propose_to_several(self, count: int, what: int, back: int, way: int, reads: int) -> None:
        tables = self.active()[:count]
        if len(tables) > 1:
            self.propose_to(tables, what, back, way, reads)

    @rule(whats=st.lists(some, min_size=2, max_size=4), way=some, doubled=st.booleans())
    def propose_at_once(self, whats: list[int], way: int, doubled: bool) -> None:
        """Several proposals, some twice, decided in one batch that may be cut short."""
        tables = self.active()
        if not tables:
            return
        wishes = [
            self.wish_for(tables[: 1 + number % len(tables)], what, 0, way + number, what)
            for number, what in enumerate(whats)
        ]
        proposals = [wish for wish in wishes if wish is not None]
        self.world.propose_together([*proposals, *proposals[: int(doubled)]])

    @rule(which=some)
    def stage_and_die(self, which: int) -> None:
        """Leave an unproposed staged file behind, whole or torn."""
        for truth in self.picked(which):
            txn_id = TxnId(str(self.world.ids.ordered()))
            content = file_content(add(), txn_id=txn_id, timestamp_ms=self.world.clock.ms)
            staged = StagedCommit(Version(truth.head + 1), self.world.ids.random())
            store = self.world.bare_store_for(truth.location)
            store.put_if_absent(staged.path, content[: len(content) // (1 + which % 2)])

    @rule(which=some)
    def clean_up_a_staged_file(self, which: int) -> None:
        """Remove the staged twin of a published commit: the log has it."""
        for truth in self.picked(which):
            for row in truth.rows:
                if row.is_published and row.file_name:
                    self.world.bare_store_for(truth.location).delete(f"{STAGED}/{row.file_name}")

    # Publishing

    @rule(which=some, back=st.integers(0, 2))
    def publish(self, which: int, back: int) -> None:
        for truth in self.picked(which):
            upto = Version(max(0, truth.head - back))
            try:
                self.hears(self.line.publish, truth.table_id, upto)
            except LogDivergedError:
                assert self.has_intruder(truth)

    @rule(which=some, count=few)
    def publish_as_a_client(self, which: int, count: int) -> None:
        """Put the next unpublished commits, in order, without reporting it."""
        for truth in self.picked(which):
            store = self.world.bare_store_for(truth.location)
            there = {self.model.cut.get(truth.table_id, -1), *truth.published_versions}
            first = next(v for v in itertools.count(min(there) + 1) if v not in there)
            for seen in self.model.history[truth.table_id][first : first + count]:
                is_next = (truth.table_id, seen.version - 1) not in self.model.intruders
                if not is_next or not store.put_if_absent(name_of(seen.version), seen.content):
                    break  # an intruder's file is in the way

    @rule(which=some, off=st.integers(-2, 1))
    def claim_to_have_published(self, which: int, off: int) -> None:
        for truth in self.picked(which):
            upto = max(0, truth.head + off)
            missing = [
                v for v in range(truth.published + 1, upto + 1) if not truth.published_bytes(v)
            ]
            try:
                self.hears(self.line.confirm_published, truth.table_id, Version(upto))
            except NotFoundError:
                assert upto > truth.head
            except NotPublishedError:
                assert missing
            except LogDivergedError:
                assert self.has_intruder(truth)
            else:
                return
            after = self.world.tables()[truth.table_id]
            assert after.published == truth.published, "a false claim was believed"

    @rule(
        which=some,
        kind=st.sampled_from((None, "classic", "v2", "v2-json")),
        back=st.integers(0, 1),
    )
    def checkpoint(self, which: int, kind: str | None, back: int) -> None:
        for truth in self.picked(which):
            version = max(0, truth.head - back)
            if version <= self.model.cut.get(truth.table_id, -1):
                continue
            snapshot = snapshot_loader.load(
                self.world.catalog,
                truth.table_id,
                version=Version(version),
                store_for=self.world.bare_store_for,
            )
            has_v2 = "v2Checkpoint" in (snapshot.protocol.writer_features or ())
            try:
                made = maintenance.checkpoint(
                    self.line, truth.table_id, snapshot, kind, self.world.clock, self.world.ids
                )
            except NotPublishedError:
                assert version > truth.published
            except UnsupportedFeatureError:
                assert kind in ("v2", "v2-json")
                assert not has_v2
            except FailPointError:
                self.world.crash()
            except (CrashError, UnavailableError, OutcomeUnknownError, PutUnknownError):
                pass
            else:
                [head] = map(paths.parse, made.paths)
                self.written[type(head).__name__] += 1
                assert has_v2 or isinstance(head, paths.ClassicCheckpoint)

    @rule(which=some, whats=st.lists(some, min_size=1, max_size=4), publishes=st.booleans())
    def grow_and_checkpoint(self, which: int, whats: list[int], publishes: bool) -> None:
        """Go on for a while, so that there is something to publish, to cover and to clean up."""
        self.propose_one_after_the_other(which, whats, 0)
        if publishes:
            self.publish(which, 0)
        self.world.observe()
        self.checkpoint(which, None, len(whats) % 2)

    @rule(which=some)
    def clean_up_the_log(self, which: int) -> None:
        """Remove commit files that a checkpoint known to the catalog covers, the old way."""
        for truth in self.picked(which):
            cut = min(truth.held_from, truth.published + 1) - 2
            if cut > self.model.cut.get(truth.table_id, -1):
                self.model.cut[truth.table_id] = cut
                store = self.world.bare_store_for(truth.location)
                for version in range(cut + 1):
                    store.delete(name_of(version))

    @rule(which=some)
    def put_back_what_was_cleaned_up(self, which: int) -> None:
        """A slow publisher puts an old commit back: no snapshot changes."""
        for truth in self.picked(which):
            cut = self.model.cut.get(truth.table_id, -1)
            if cut >= 0:
                seen = self.model.history[truth.table_id][cut]
                store = self.world.bare_store_for(truth.location)
                store.put_if_absent(name_of(cut), seen.content)

    @rule()
    def keep_house(self) -> None:
        """Delete staged files that no row names; a proposal of one of them is refused."""
        catalog = self.world.catalog
        assert isinstance(catalog, Catalog)
        self.hears(lambda: self.world.do(catalog.keep_house))

    # Intruders

    @rule(which=some, off=st.integers(1, 2), is_plausible=st.booleans())
    def intrude(self, which: int, off: int, is_plausible: bool) -> None:
        """Put a file into the log behind the catalog's back."""
        for truth in self.picked(which):
            version = truth.head + off
            txn_id = TxnId(str(self.world.ids.ordered()))
            stamp = truth.rows[-1].timestamp_ms + 1
            content = file_content(add(), txn_id=txn_id, timestamp_ms=stamp)
            store = self.world.bare_store_for(truth.location)
            if store.put_if_absent(name_of(version), content if is_plausible else b"{}\n"):
                self.model.intruders.add((truth.table_id, version))

    @rule()
    def repair(self) -> None:
        self.quiet()
        self.mend_all()

    def mend_all(self) -> None:
        for table_id, version in sorted(self.model.intruders):
            truth = self.world.tables()[table_id]
            self.world.bare_store_for(truth.location).delete(name_of(version))
        self.model.intruders.clear()
        self.world.do(lambda: self.world.catalog.fsck(repair=True))

    # Names

    @rule(which=some)
    def rename(self, which: int) -> None:
        for truth in self.picked(which):
            self.names += 1
            name = TableName.parse(f"t{self.names}")
            self.hears(self.line.rename_table, truth.table_id, name)

    @rule(which=some)
    def undrop(self, which: int) -> None:
        dropped = [t for t in self.world.tables().values() if t.state == "dropped"]
        if dropped:
            self.hears(self.line.undrop_table, dropped[which % len(dropped)].table_id)

    # Cuts

    @rule(back=some)
    def read_a_cut(self, back: int) -> None:
        """Read all tables at one sequence: each transaction is in all of its tables or in none."""
        ids = [truth.table_id for truth in self.active()]
        at = SequenceNumber(max(0, self.model.sequence - back))
        ids = [table_id for table_id in ids if self.model.at_sequence(table_id, at) >= 0]
        if not ids:
            return
        for found in self.world.catalog.resolve_many(ids, at):
            expected = self.model.at_sequence(found.table_id, at)
            assert found.latest == expected, "S17"
            if expected > self.model.cut.get(found.table_id, -1):
                snapshot = snapshot_loader.load(
                    self.world.catalog, found, store_for=self.world.bare_store_for
                )
                invariants.same(self.world, snapshot)
        for txn_id, wish in self.model.wishes.items():
            inside = {
                table_id
                for table_id in wish.tables & set(ids)
                for seen in self.model.history[table_id][: self.model.at_sequence(table_id, at) + 1]
                if seen.txn_id == txn_id
            }
            assert inside in (set(), wish.tables & set(ids)), "S17"


class LocalMachine(DatabaseMachine):
    """The same on a real disk."""

    place = LocalPlace


class ServedMachine(DatabaseMachine):
    """The same with HTTP between clients and catalog."""

    kind = ServedWorld
