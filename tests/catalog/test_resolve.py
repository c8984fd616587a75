"""resolve: ratified commits and everything else of a table, as of one instant."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.api.messages import (
    Part,
    Proposal,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    Resolved,
)
from headgate.errors import InTheFutureError, NotFoundError
from headgate.names import TableName
from headgate.protocol.actions import AddFile, RemoveFile, Sequence, TableId, Version
from headgate.protocol.commit.content import Inline, Way
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import LOG, STAGED
from headgate.settings import Settings
from tests.catalog.conftest import House
from tests.kit import req, shows
from tests.kit.builders import (
    ManualClock,
    add,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
    remove,
)

T = TableName.parse("t")


def commit(house: House, table_id: TableId, way: Way = Way.INLINE) -> RatifiedCommit:
    house.way = way
    version = house.catalog.resolve(table_id).latest + 1
    answer = house.propose(table_id, version, add())
    assert isinstance(answer, Ratified)
    return answer.commits[table_id]


def forget(house: House, table_id: TableId, upto: int) -> None:
    """Let a checkpoint cover the past, so that its content is forgotten."""
    path = f"{LOG}/{upto:020d}.checkpoint.parquet"
    house.log(table_id).store.put_if_absent(path, b"PAR1")
    house.database.add_file(
        table_id,
        KnownFile(kind=FileKind.CHECKPOINT, first=Version(upto), last=Version(upto), paths=(path,)),
    )


@contextmanager
def new_house() -> Iterator[House]:
    with TemporaryDirectory() as folder:
        house = House(Path(folder) / "lake", Way.INLINE, ManualClock())
        try:
            yield house
        finally:
            house.close()


# Ratified commits


@dataclass
class History:
    """The history of a table, and the commits an answer must therefore list."""

    commits: list[RatifiedCommit] = field(default_factory=list)
    published: int = -1
    held_from: int = 0

    @property
    def latest(self) -> int:
        return len(self.commits) - 1

    def listed(self, first: int | None, last: int | None) -> list[int]:
        """Return the versions held of a range; without one, all that are held."""
        start = self.held_from if first is None else max(first, self.held_from)
        end = self.latest if last is None else min(last, self.latest)
        return list(range(start, end + 1))


STEPS = st.one_of(
    st.just("inline"), st.just("staged"), st.just("publish"), st.integers(0, 8), st.just("restart")
)
EDGES = st.none() | st.integers(-2, 12)


@req("CM-20", "CM-26")
@shows("S1", "FX3")
@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=10), ranges=st.lists(st.tuples(EDGES, EDGES), max_size=6))
@example(["inline", "staged", "publish", 1, "inline"], [(None, None), (0, 9), (2, 2), (3, 1)])
def test_ratified_commits_are_the_suffix_that_is_held_of_any_range_in_any_history(
    steps: list[str | int], ranges: list[tuple[int | None, int | None]]
) -> None:
    with new_house() as house:
        table_id = house.create().table_id
        history = History(list(house.catalog.ratified_commits(table_id).commits))
        for step in steps:
            match step:
                case "inline" | "staged":
                    history.commits.append(commit(house, table_id, Way(step)))
                case "publish":
                    history.published = house.catalog.publish(table_id)
                case "restart":
                    house.restart()
                case int(upto) if upto <= history.published:
                    forget(house, table_id, upto)
                    history.held_from = max(history.held_from, upto + 1)
            for first, last in [(None, None), *ranges]:
                answer = house.catalog.ratified_commits(
                    table_id, as_version(first), as_version(last)
                )
                check(house, history, answer, history.listed(first, last))


def as_version(number: int | None) -> Version | None:
    return None if number is None else Version(number)


def check(house: House, history: History, answer: RatifiedCommits, versions: list[int]) -> None:
    assert answer.latest == history.latest  # always
    assert [one.version for one in answer.commits] == versions
    for one in answer.commits:
        was = history.commits[one.version]
        is_published = one.version <= history.published
        assert (one.published_ms is not None) is is_published
        # As it was answered, but for its having been published meanwhile.
        assert (one.txn_id, one.sequence, one.timestamp_ms, one.way, one.sha256) == (
            was.txn_id,
            was.sequence,
            was.timestamp_ms,
            was.way,
            was.sha256,
        )
        content = content_of(house, one)
        assert len(content) == one.size
        assert hashlib.sha256(content).hexdigest() == one.sha256


def content_of(house: House, one: RatifiedCommit) -> bytes:
    """Return a commit's content, from the answer or from its staged file."""
    [entry] = house.catalog.tables()
    staged = None
    if one.way is Way.STAGED:
        staged = house.log(entry.table_id).read(f"{STAGED}/{one.file_name}")
        assert one.content in (None, staged)
    content = one.content if staged is None else staged
    assert content is not None
    return content


@req("CM-20", "CM-21")
@shows("FX3", "S16")
@pytest.mark.slow
def test_every_answer_is_one_instant_while_another_commits_and_a_publisher_forgets() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        is_done = threading.Event()

        def publish_and_forget() -> None:
            while not is_done.is_set():
                forget(house, table_id, house.catalog.publish(table_id))

        def ask(question: Callable[[], None]) -> int:
            for asked in itertools.count():
                if is_done.is_set():
                    return asked
                question()
            raise AssertionError

        with ThreadPoolExecutor(4) as pool:
            publishing = pool.submit(publish_and_forget)
            asking = [
                pool.submit(ask, lambda: check_range(house, table_id)),
                pool.submit(ask, lambda: check_resolved(house.catalog.resolve(table_id))),
                pool.submit(ask, lambda: check_cut(house, table_id)),
            ]
            try:
                for _ in range(60):
                    commit(house, table_id)
            finally:
                is_done.set()
            publishing.result()
            assert all(one.result() for one in asking)


def check_range(house: House, table_id: TableId) -> None:
    whole = house.catalog.ratified_commits(table_id)
    versions = [one.version for one in whole.commits]
    assert versions == list(range(whole.latest + 1 - len(versions), whole.latest + 1))
    assert all(one.content is not None for one in whole.commits)
    part = house.catalog.ratified_commits(table_id, Version(2), Version(10**6))
    versions = [one.version for one in part.commits]
    assert versions == list(range(part.latest + 1 - len(versions), part.latest + 1))
    assert all(version >= 2 for version in versions)


def check_resolved(resolved: Resolved) -> None:
    """What one commit a version, each adding a file, makes of every field."""
    assert resolved.commits[-1].version == resolved.latest
    versions = [one.version for one in resolved.commits]
    assert versions == list(range(versions[0], resolved.latest + 1))
    assert resolved.timestamp_ms == resolved.commits[-1].timestamp_ms
    assert resolved.held_from is not None
    for one in resolved.commits:
        assert (one.content is not None) is (one.version >= resolved.held_from)
    assert resolved.checkpoint is None or resolved.checkpoint.last == resolved.held_from - 1
    assert resolved.checksum is not None
    assert resolved.checksum.num_files == resolved.latest
    assert resolved.checksum.txn_id == resolved.commits[-1].txn_id


def check_cut(house: House, table_id: TableId) -> None:
    one, two = house.database.resolve_many([table_id, T])
    assert one == two


# Resolving


@req("CM-21", "CM-26", "RD-08")
def test_the_tail_lists_the_unpublished_and_for_a_while_the_published() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        for _ in range(3):
            commit(house, table_id)
        assert listed(house, table_id) == [0, 1, 2, 3]
        house.catalog.publish(table_id, Version(2))
        assert listed(house, table_id) == [0, 1, 2, 3]
        house.clock.ms += house.settings.listed_ms
        assert listed(house, table_id) == [0, 1, 2, 3]
        house.clock.ms += 1
        assert listed(house, table_id) == [3]
        house.catalog.publish(table_id)
        house.clock.ms += house.settings.listed_ms + 1
        assert listed(house, table_id) == [3]  # the latest, always
        assert all(one.content is not None for one in house.catalog.resolve(table_id).commits)


def listed(house: House, table_id: TableId, at: int | None = None) -> list[int]:
    sequence = None if at is None else Sequence(at)
    return [one.version for one in house.catalog.resolve(table_id, sequence).commits]


def test_of_the_published_only_the_newest_are_listed_and_of_the_unpublished_all() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        for _ in range(50):
            commit(house, table_id)
        assert listed(house, table_id) == list(range(51))
        house.catalog.publish(table_id, Version(45))
        assert listed(house, table_id) == list(range(14, 51))  # 32 of them, and 5 more
        house.catalog.publish(table_id)
        assert listed(house, table_id) == list(range(19, 51))
        assert listed(house, table_id, at=11) == list(range(11))  # versions 0 to 10


@req("RD-08")
def test_what_is_held_begins_where_the_newest_checkpoint_ended() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        for _ in range(5):
            commit(house, table_id)
        assert house.catalog.resolve(table_id).held_from == 0
        house.catalog.publish(table_id)
        assert house.catalog.resolve(table_id).held_from == 0
        forget(house, table_id, 3)
        assert house.catalog.resolve(table_id).held_from == 4
        forget(house, table_id, 1)  # an older one takes nothing back
        resolved = house.catalog.resolve(table_id)
        assert resolved.held_from == 4
        assert resolved.checkpoint is not None
        assert resolved.checkpoint.last == 3
        # What lies below is listed for its hash and time, and without content.
        for one in resolved.commits:
            assert (one.content is not None) is (one.version >= 4)


@req("CM-22")
def test_protocol_and_metadata_are_those_of_the_version_or_absent() -> None:
    with new_house() as house:
        table_id = house.create(properties={"a": "0"}).table_id
        commit(house, table_id)
        changed = metadata(table_id, properties={"a": "2"})
        assert isinstance(house.propose(table_id, 2, changed), Ratified)
        commit(house, table_id)
        wider = protocol("deletionVectors")
        assert isinstance(house.propose(table_id, 4, wider), Ratified)
        commit(house, table_id)
        sequences = [one.sequence for one in house.catalog.ratified_commits(table_id).commits]
        for version, sequence in enumerate(sequences):
            resolved = house.catalog.resolve(table_id, sequence)
            assert resolved.latest == version
            if version < 4:
                assert (resolved.protocol, resolved.metadata) == (None, None)
                continue
            assert resolved.protocol == wider
            assert resolved.metadata is not None
            assert resolved.metadata.configuration["a"] == "2"
        now = house.catalog.resolve(table_id)
        assert (now.protocol, now.metadata) == (wider, changed)


@req("RD-04")
def test_checkpoint_and_compactions_are_those_that_serve_the_version() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        for _ in range(9):
            commit(house, table_id)
        house.catalog.publish(table_id)
        sequences = [one.sequence for one in house.catalog.ratified_commits(table_id).commits]
        compactions = {
            pair: compaction(house, table_id, *pair) for pair in [(6, 8), (1, 2), (4, 5)]
        }
        forget(house, table_id, 3)

        def known(version: int) -> tuple[int | None, list[KnownFile]]:
            resolved = house.catalog.resolve(table_id, sequences[version])
            checkpoint = resolved.checkpoint
            return None if checkpoint is None else checkpoint.last, list(resolved.compactions)

        assert known(1) == (None, [])
        assert known(2) == (None, [compactions[1, 2]])
        assert known(3) == (3, [])  # what a checkpoint covers needs no compaction
        assert known(5) == (3, [compactions[4, 5]])
        assert known(7) == (3, [compactions[4, 5]])
        assert known(9) == (3, [compactions[4, 5], compactions[6, 8]])  # in order
        forget(house, table_id, 6)
        assert known(9) == (6, [])  # the one that begins at the checkpoint's version is of no use
        assert known(5) == (3, [compactions[4, 5]])


def compaction(house: House, table_id: TableId, first: int, last: int) -> KnownFile:
    path = f"{LOG}/{first:020d}.{last:020d}.compacted.json"
    house.log(table_id).store.put_if_absent(path, b"{}")
    file = KnownFile(
        kind=FileKind.COMPACTION, first=Version(first), last=Version(last), paths=(path,)
    )
    house.database.add_file(table_id, file)
    return file


@req("RD-03")
def test_the_checksum_counts_the_files_of_the_latest_version_also_unpublished() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        one, two, three = add(size=10), add(size=200), add(size=3_000)
        house.propose(table_id, 1, one, two)
        house.propose(table_id, 2, remove(one), three)
        answer = house.propose(table_id, 3, remove(two))
        assert isinstance(answer, Ratified)
        resolved = house.catalog.resolve(table_id)
        checksum = resolved.checksum
        assert checksum is not None
        assert (checksum.num_files, checksum.table_size_bytes) == (1, 3_000)
        assert checksum.txn_id == answer.txn_id
        assert checksum.in_commit_timestamp_opt == resolved.timestamp_ms
        assert (checksum.protocol, checksum.metadata) == (resolved.protocol, resolved.metadata)
        # Of an earlier version the catalog keeps none.
        assert house.catalog.resolve(table_id, Sequence(resolved.sequence or 0)).checksum
        before = Sequence((resolved.sequence or 0) - 1)
        assert house.catalog.resolve(table_id, before).checksum is None


@req("RD-03")
def test_a_checksum_that_is_no_longer_certain_is_absent_and_stays_so() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        file: AddFile = add()
        house.propose(table_id, 1, file)
        vague = RemoveFile(path=file.path, deletion_timestamp=1, data_change=True)
        assert isinstance(house.propose(table_id, 2, vague), Ratified)
        assert house.catalog.resolve(table_id).checksum is None
        commit(house, table_id)
        assert house.catalog.resolve(table_id).checksum is None


@req("RD-04")
def test_a_checksum_the_catalog_was_told_of_is_served_where_it_has_none_of_its_own() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        file: AddFile = add()
        house.propose(table_id, 1, file)
        crc = told_checksum(house, table_id, 1)
        resolved = house.catalog.resolve(table_id)
        assert (resolved.checksum is not None, resolved.checksum_file) == (True, None)
        vague = RemoveFile(path=file.path, deletion_timestamp=1, data_change=True)
        assert isinstance(house.propose(table_id, 2, vague), Ratified)
        assert house.catalog.resolve(table_id).checksum_file is None  # there is none of version 2
        second = told_checksum(house, table_id, 2)
        resolved = house.catalog.resolve(table_id)
        assert (resolved.checksum, resolved.checksum_file) == (None, second)
        before = Sequence((resolved.sequence or 0) - 1)
        assert house.catalog.resolve(table_id, before).checksum_file == crc


def told_checksum(house: House, table_id: TableId, version: int) -> KnownFile:
    path = f"{LOG}/{version:020d}.crc"
    house.log(table_id).store.put_if_absent(path, b"{}")
    file = KnownFile(
        kind=FileKind.CHECKSUM, first=Version(version), last=Version(version), paths=(path,)
    )
    house.database.add_file(table_id, file)
    return file


@shows("S17")
def test_every_sequence_gives_the_versions_and_names_of_then() -> None:
    with new_house() as house:
        tables = [house.create("t").table_id, house.create("u").table_id]
        expected: dict[int, list[tuple[str | None, int]]] = {}
        expected[2] = [("main.default.t", 0), ("main.default.u", 0)]
        commit(house, tables[0])
        expected[3] = [("main.default.t", 1), ("main.default.u", 0)]
        house.database.rename_table(tables[1], TableName.parse("v"))
        expected[4] = [("main.default.t", 1), ("main.default.v", 0)]
        both = Proposal(
            txn_id=new_txn_id(),
            parts=tuple(
                Part(table_id=of, version=Version(version), content=inline(add()))
                for of, version in zip(tables, (2, 1), strict=True)
            ),
        )
        assert isinstance(house.catalog.propose(both), Ratified)
        expected[5] = [("main.default.t", 2), ("main.default.v", 1)]
        for sequence, then in expected.items():
            cut = house.database.resolve_many(tables, Sequence(sequence))
            assert [(one.name, one.latest) for one in cut] == then
            assert {one.sequence for one in cut} == {sequence}
        now = house.database.resolve_many(tables)
        assert {one.sequence for one in now} == {5}
        # And the names of then lead there.
        by_name = house.catalog.resolve(TableName.parse("u"), Sequence(3))
        assert (by_name.table_id, by_name.latest) == (tables[1], 0)
        with pytest.raises(NotFoundError):
            house.catalog.resolve(TableName.parse("u"), Sequence(4))


@req("CM-21", "LC-04")
def test_a_name_in_any_case_and_an_id_lead_to_the_same() -> None:
    with new_house() as house:
        made = house.create("Orders")
        by_id = house.catalog.resolve(made.table_id)
        assert by_id.name == "main.default.Orders"
        assert by_id.catalog_managed
        for spelled in ("orders", "ORDERS", "default.orders", "Main.Default.Orders", "`orders`"):
            assert house.catalog.resolve(TableName.parse(spelled)) == by_id


def test_what_is_not_there_is_refused_by_its_name_and_spoils_the_whole_cut() -> None:
    with new_house() as house:
        made = house.create("t")
        with pytest.raises(NotFoundError, match=r"no table main\.default\.u"):
            house.catalog.resolve(TableName.parse("u"))
        with pytest.raises(NotFoundError, match=r"no table other\.default\.t"):
            house.catalog.resolve(TableName.parse("other.default.t"))
        stranger = new_table_id()
        for ask in (house.catalog.resolve, house.catalog.ratified_commits):
            with pytest.raises(NotFoundError, match=stranger):
                ask(stranger)  # type: ignore[operator]
        with pytest.raises(NotFoundError, match=stranger):
            house.catalog.resolve(stranger, Sequence(1))
        with pytest.raises(NotFoundError, match=stranger):
            house.database.resolve_many([made.table_id, stranger])
        assert house.database.resolve_many([]) == ()


def test_before_a_table_was_made_and_after_the_latest_sequence_there_is_none() -> None:
    with new_house() as house:
        first = house.create("first")
        second = house.create("second")
        with pytest.raises(NotFoundError, match="did not exist at sequence 1"):
            house.catalog.resolve(second.table_id, Sequence(1))
        with pytest.raises(NotFoundError):
            house.catalog.resolve(TableName.parse("second"), Sequence(1))
        with pytest.raises(NotFoundError):
            house.catalog.resolve(first.table_id, Sequence(0))
        with pytest.raises(InTheFutureError, match="sequence 3"):
            house.catalog.resolve(first.table_id, Sequence(3))


@req("LC-03", "CM-40")
def test_a_dropped_table_is_known_at_the_sequences_before_and_a_purged_one_is_gone() -> None:
    with new_house() as house:
        table_id = house.create("t").table_id
        commit(house, table_id)
        house.database.drop_table(table_id)
        for ask in (lambda: house.catalog.resolve(T), lambda: house.catalog.resolve(table_id)):
            with pytest.raises(NotFoundError):
                ask()
        # A cut of the past is read whole, commits and all, until the table is purged.
        assert house.catalog.ratified_commits(table_id).latest == 1
        assert house.catalog.resolve(T, Sequence(2)).latest == 1
        house.database.purge_table(table_id)
        with pytest.raises(NotFoundError, match="purged"):
            house.catalog.resolve(T, Sequence(2))
        with pytest.raises(NotFoundError, match="purged"):
            house.catalog.resolve(table_id, Sequence(2))


@req("CM-39")
def test_a_staging_table_is_nobodys_to_resolve() -> None:
    with new_house() as house:
        house.create("t")
        staged = house.database.stage_table()
        with pytest.raises(NotFoundError, match="staging"):
            house.catalog.resolve(staged.table_id)
        with pytest.raises(NotFoundError):
            house.catalog.resolve(staged.table_id, Sequence(1))
        with pytest.raises(NotFoundError):
            house.catalog.ratified_commits(staged.table_id)


@req("CM-20")
def test_the_latest_version_is_told_for_a_range_that_holds_nothing() -> None:
    with new_house() as house:
        table_id = house.create().table_id
        commit(house, table_id)
        for first, last in [(2, None), (5, 9), (1, 0), (None, -1)]:
            answer = house.catalog.ratified_commits(table_id, as_version(first), as_version(last))
            assert answer == RatifiedCommits(latest=Version(1))


def test_listing_can_be_switched_off_and_the_latest_is_listed_all_the_same(
    tmp_path: Path,
) -> None:
    house = House(tmp_path / "lake", Way.INLINE, ManualClock(), Settings(listed_ms=0))
    table_id = house.create().table_id
    commit(house, table_id)
    house.catalog.publish(table_id)
    house.clock.ms += 1
    assert listed(house, table_id) == [1]
    assert isinstance(house.part(table_id, 2, txn_id=new_txn_id()).content, Inline)
    house.close()
