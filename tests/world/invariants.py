"""The invariants of a lake, each a function over rows, files and the model of a world.

None of them asks the catalog's own checker. Tables that were purged are gone, and what an intruder
put into a log is known to be the intruder's: both are left out where they would have to be.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator

from headgate.protocol import paths
from headgate.protocol.actions import TableId, TxnId
from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.commit.content import Inline
from headgate.protocol.paths import STAGED
from headgate.table import snapshot_loader
from headgate.table.snapshot import Snapshot
from tests.kit.world import Fate, Seen, Truth, Wish, World

Tables = dict[TableId, Truth]


def kept(world: World, tables: Tables) -> Iterator[Truth]:
    """Yield tables that have a history and were not purged."""
    for table_id, truth in tables.items():
        if table_id not in world.model.purged and truth.state in ("active", "dropped"):
            yield truth


def digest(content: bytes | None) -> bytes | None:
    return None if content is None else hashlib.sha256(content).digest()


def s1(world: World, tables: Tables) -> None:
    """Versions are 0..n without a gap."""
    for truth in kept(world, tables):
        assert [row.version for row in truth.rows] == list(range(truth.head + 1)), "S1"


def s2(world: World, tables: Tables) -> None:
    """One commit per version, and it never changes once it was there."""
    for truth in kept(world, tables):
        for seen, row in zip(world.model.history[truth.table_id], truth.rows, strict=True):
            assert (seen.txn_id, seen.sha256) == (row.txn_id, row.sha256), "S2"


def s3(world: World, tables: Tables) -> None:
    """A txnId occurs at most once in a table."""
    for table_id, history in world.model.history.items():
        count = Counter(seen.txn_id for seen in history)
        assert all(times == 1 for times in count.values()), f"S3: {table_id} {count}"


def s4(world: World, tables: Tables) -> None:
    """What was acknowledged is there, at the acknowledged version."""
    for txn_id, wish in world.model.wishes.items():
        if wish.fate is Fate.ACKED:
            for table_id, version in wish.versions.items():
                history = world.model.history.get(table_id, [])
                assert version < len(history), f"S4: {txn_id} is lost"
                assert history[version].txn_id == txn_id, f"S4: {txn_id} is not at {version}"
    for table_id in world.model.created - world.model.purged:
        assert table_id in tables, f"S4: table {table_id} is lost"


def s5(world: World, tables: Tables) -> None:
    """What was refused is nowhere."""
    refused = {txn for txn, wish in world.model.wishes.items() if wish.fate is Fate.REFUSED}
    for history in world.model.history.values():
        assert not refused & {seen.txn_id for seen in history}, "S5"


def s6(world: World, tables: Tables) -> None:
    """Nothing is ratified that was not proposed; version 0 belongs to creation."""
    for table_id, history in world.model.history.items():
        for seen in history[1:]:
            wish = world.model.wishes.get(seen.txn_id)
            assert wish is not None, f"S6: {seen.txn_id} was never proposed"
            assert table_id in wish.tables, f"S6: {seen.txn_id} was not for {table_id}"


def s7(world: World, tables: Tables) -> None:
    """A transaction is in all of its tables or in none."""
    for txn_id, wish in world.model.wishes.items():
        inside = {
            table_id
            for table_id in wish.tables
            if any(seen.txn_id == txn_id for seen in world.model.history[table_id])
        }
        assert inside in (set(), wish.tables), f"S7: {txn_id} is in {inside} of {wish.tables}"


def s8(world: World, tables: Tables) -> None:
    """A commit was built on what is before it, or commutes with what came between."""
    for table_id, history in world.model.history.items():
        live: set[str] = set()
        for seen in history:
            for action in seen.actions("remove"):
                assert action["path"] in live, f"S8: {seen.txn_id} removes what is not there"
                live.remove(action["path"])
            for action in seen.actions("add"):
                assert action["path"] not in live, f"S8: {seen.txn_id} adds a file twice"
                live.add(action["path"])
            wish = world.model.wishes.get(seen.txn_id)
            if wish is not None:
                _held_against_winners(wish, table_id, seen, history)


def _held_against_winners(wish: Wish, table_id: TableId, seen: Seen, history: list[Seen]) -> None:
    [part] = [part for part in wish.proposal.parts if part.table_id == table_id]
    if not isinstance(part.content, Inline):
        assert (table_id, seen.version) in wish.tried, f"S8: {seen.txn_id} was moved, being staged"
        return  # its client moved it, and proposed it at this very version
    reads = [scan.version for scan in wish.proposal.scans if scan.table_id == table_id]
    between = history[min([part.version, *(v + 1 for v in reads)]) : seen.version]
    for winner in between:
        assert not winner.actions("protocol"), "S8: moved past a change of protocol"
        removed = {action["path"] for action in winner.actions("remove")}
        ours = {action["path"] for action in seen.actions("remove")}
        assert not removed & ours, "S8: both removed one file"
        is_blind = not removed and not winner.actions("metaData")
        if reads and wish.proposal.isolation is not Isolation.SNAPSHOT:
            assert is_blind or not removed, f"S8: {seen.txn_id} read what {winner.txn_id} removed"
            if wish.proposal.isolation is Isolation.SERIALIZABLE:
                assert not winner.actions("add"), "S8: a serializable read missed an add"


def s9(world: World, tables: Tables) -> None:
    """Every version is tracked, or published, or cleaned away."""
    for truth in kept(world, tables):
        cut = world.model.cut.get(truth.table_id, -1)
        for row in truth.rows[cut + 1 :]:
            found = (truth.tracked_bytes(row), truth.published_bytes(row.version))
            assert row.sha256 in map(digest, found), f"S9: version {row.version} is nowhere"


def s10(world: World, tables: Tables) -> None:
    """What is published was ratified, byte for byte."""
    for truth in kept(world, tables):
        for version in truth.published_versions:
            if (truth.table_id, version) in world.model.intruders:
                continue
            assert version <= truth.head, f"S10: version {version} is published, not ratified"
            found = digest(truth.published_bytes(version))
            assert found == truth.rows[version].sha256, f"S10: other bytes in version {version}"


def s11(world: World, tables: Tables) -> None:
    """Published in order, without a gap above what was cleaned away."""
    for truth in kept(world, tables):
        cut = world.model.cut.get(truth.table_id, -1)
        ours = {
            version
            for version in truth.published_versions
            if version > cut and (truth.table_id, version) not in world.model.intruders
        }
        assert ours == set(range(cut + 1, cut + 1 + len(ours))), f"S11: {sorted(ours)}"


def s12(world: World, tables: Tables) -> None:
    """The catalog lets go of content, or calls it published, only once it is in the log."""
    for truth in kept(world, tables):
        cut = world.model.cut.get(truth.table_id, -1)
        for row in truth.rows[cut + 1 :]:
            is_given_up = row.content is None and row.file_name is None
            if row.is_published or row.version <= truth.published or is_given_up:
                found = digest(truth.published_bytes(row.version))
                assert found == row.sha256, f"S12: version {row.version} was given up too early"


def s13(world: World, tables: Tables) -> None:
    """A staged file that the catalog does not name is in no snapshot."""
    for truth in kept(world, tables):
        named = {row.file_name for row in truth.rows}
        live = set(world.model.live(truth.table_id))
        for path, content in truth.files.items():
            if path.startswith(f"{STAGED}/") and path.removeprefix(f"{STAGED}/") not in named:
                try:
                    staged = Seen(0, _txn_id(content), b"", 0, 0, content)
                    added = {action["path"] for action in staged.actions("add")}
                except ValueError:
                    continue  # not even a commit
                mine = {
                    action["path"]
                    for seen in world.model.history[truth.table_id]
                    if seen.txn_id == staged.txn_id  # moved, and ratified from another file
                    for action in seen.actions("add")
                }
                assert not (added - mine) & live, f"S13: {path} is read"


def _txn_id(content: bytes) -> TxnId:
    [info] = Seen(0, TxnId(""), b"", 0, 0, content).actions("commitInfo")
    return TxnId(info["txnId"])


def s14(world: World, tables: Tables) -> None:
    """Checkpoints and compactions stand for published versions alone."""
    for truth in kept(world, tables):
        cut = world.model.cut.get(truth.table_id, -1)
        for path in truth.files:
            match paths.parse(path):
                case (
                    paths.ClassicCheckpoint(version)
                    | paths.MultipartCheckpoint(version)
                    | paths.UuidCheckpoint(version)
                    | paths.Compaction(_, version)
                ):
                    there = digest(truth.published_bytes(version))
                    assert version <= truth.head, f"S14: {path}"
                    assert version <= cut or there == truth.rows[version].sha256, f"S14: {path}"


def s15(world: World, tables: Tables) -> None:
    """Files that were cleaned away change no snapshot when they come back: S16 reads with them."""
    for table_id, cut in world.model.cut.items():
        if table_id in tables and table_id not in world.model.purged:
            assert cut <= tables[table_id].published, "S15"


def s16(world: World, tables: Tables) -> None:
    """A read of the latest version is the replay of all that was ratified."""
    for truth in kept(world, tables):
        if truth.state == "active":
            snapshot = load(world, truth.table_id)
            assert snapshot.version == truth.head, f"S16: read {snapshot.version}"
            same(world, snapshot)


def s17(world: World, tables: Tables) -> None:
    """A cut over all tables shows each of them at one sequence."""
    active = [t.table_id for t in kept(world, tables) if t.state == "active"]
    if not world.has_database or not active:
        return
    resolved = world.catalog.resolve_many(active)  # type: ignore[union-attr]
    assert len({found.sequence for found in resolved}) == 1, "S17"
    for found in resolved:
        expected = world.model.at_sequence(found.table_id, found.sequence or 0)
        assert found.latest == expected, f"S17: {found.table_id} at {found.latest}"


def s18(world: World, tables: Tables) -> None:
    """The catalog's sequence never goes back; clients' reads are held to it as they happen."""
    newest = max((row.sequence for t in tables.values() for row in t.rows), default=0)
    assert newest >= world.model.sequence, "S18"
    world.model.sequence = newest


def s19(world: World, tables: Tables) -> None:
    """Timestamps and sequences rise strictly, and the content says the same time."""
    for table_id, history in world.model.history.items():
        for before, after in itertools.pairwise(history):
            assert before.timestamp_ms < after.timestamp_ms, f"S19: {table_id} {after.version}"
            assert not world.has_database or before.sequence < after.sequence, "S19"
        for seen in history:
            [info] = seen.actions("commitInfo")
            assert info["inCommitTimestamp"] == seen.timestamp_ms, f"S19: {seen.version}"
            assert info["txnId"] == seen.txn_id, f"S19: {seen.version}"


ALL = (s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19)


def hold(world: World) -> None:
    """Hold every invariant against the world as it is."""
    tables = world.observe()
    wishes = [(wish.fate, wish.versions) for wish in world.model.wishes.values()]
    state = repr([(t.state, t.head, t.published, t.held_from, t.files) for t in tables.values()])
    seal = hashlib.sha256(f"{state} {wishes} {world.model.cut}".encode()).digest()
    if seal == world.seal:
        return  # nothing happened
    with world.calm():
        for invariant in ALL:
            invariant(world, tables)
    world.seal = seal


def load(world: World, table_id: TableId, **asked: int) -> Snapshot:
    """Read past the line, with a storage that does not fail."""
    with world.calm():
        return snapshot_loader.load(
            world.catalog,
            table_id,
            store_for=world.bare_store_for,
            **asked,  # type: ignore[arg-type]
        )


def same(world: World, snapshot: Snapshot) -> None:
    """Hold a snapshot against plain replay."""
    assert snapshot.table_id is not None
    version = snapshot.version
    files = sorted(file.path for file in snapshot.files())
    assert files == sorted(world.model.live(snapshot.table_id, version)), f"S16: {version}"
    expected = world.model.configuration(snapshot.table_id, version)
    assert dict(snapshot.properties) == expected, f"S16: properties of {version}"
    assert snapshot.timestamp_ms == world.model.history[snapshot.table_id][version].timestamp_ms


def settle(world: World) -> None:
    """Liveness: a resend settles what is unknown (L3), and all that is ratified is published (L2).

    Faults are over: nothing is armed, storage works, and intruders' files were taken away.
    """
    for wish in world.model.unsettled():
        for _ in range(3):
            heard = world.propose(wish.proposal)
            if heard is not None:
                break
        assert heard is not None, f"L3: {wish.proposal.txn_id} hears nothing"
        world.observe()
        if wish.fate is Fate.OPEN:  # its version is taken, or its table is gone: it is not in
            is_gone = not world.has_database and wish.tables & world.model.purged
            for table_id in () if is_gone else wish.tables:  # which nothing remembers
                inside = {seen.txn_id for seen in world.model.history[table_id]}
                assert wish.proposal.txn_id not in inside, f"L3: {heard} to a winner"
    for truth in list(kept(world, world.tables())):
        if truth.state == "active":
            assert world.catalog.publish(truth.table_id) == truth.head, "L2"
    for truth in kept(world, world.tables()):
        if truth.state == "active":
            cut = world.model.cut.get(truth.table_id, -1)
            assert set(range(cut + 1, truth.head + 1)) <= set(truth.published_versions), "L2"
