"""Replay: the newest action of every file wins, and going on costs what is new."""

from collections.abc import Collection, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Version,
    Wrapped,
    decode,
    encode,
    join,
)
from headgate.protocol.encoding import replaced
from headgate.protocol.log.replay import (
    EMPTY,
    Layered,
    TableState,
    apply,
    on_ground,
    tombstones_kept_ms,
)

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="t", schema_string='{"type":"struct","fields":[]}')


def add(path: str, size: int = 1, vector: str | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={},
        size=size,
        modification_time=0,
        data_change=True,
        deletion_vector=None if vector is None else dv(vector),
    )


def remove(path: str, vector: str | None = None) -> RemoveFile:
    return RemoveFile(
        path=path, data_change=True, deletion_vector=None if vector is None else dv(vector)
    )


def dv(name: str) -> DeletionVector:
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=1
    )


def lines(*actions: Action) -> list[Wrapped]:
    return decode(join(map(encode, actions)))


def replayed(*commits: list[Action], state: TableState = EMPTY) -> TableState:
    for actions in commits:
        state = apply(state, Version(state.version + 1), lines(*actions))
    return state


def live(state: TableState) -> dict[FileKey, int]:
    return {file.key: file.size for file in state.added()}


class Shelf:
    """Ground made of a dictionary."""

    def __init__(self, files: Mapping[FileKey, int]) -> None:
        self.files = files
        self.asked: list[FileKey] = []

    @property
    def num_files(self) -> int:
        return len(self.files)

    @property
    def size_in_bytes(self) -> int:
        return sum(self.files.values())

    def sizes(self, keys: Collection[FileKey]) -> Mapping[FileKey, int]:
        self.asked += keys
        return {key: self.files[key] for key in keys if key in self.files}


def test_the_newest_action_of_a_file_wins() -> None:
    state = replayed([add("a"), add("b")], [remove("a")], [add("a", 7)], [remove("b")])
    assert live(state) == {("a", None): 7}
    assert [file.path for file in state.removed()] == ["b"]
    assert (state.num_files, state.size_in_bytes) == (1, 7)


def test_a_file_is_known_by_its_path_and_its_deletion_vector() -> None:
    state = replayed([add("a", 5)], [remove("a"), add("a", 5, "one")])
    assert live(state) == {("a", "uone@1"): 5}
    assert state.num_files == 1
    state = replayed([remove("a", "one"), add("a", 5, "two")], state=state)
    assert live(state) == {("a", "utwo@1"): 5}


def test_an_add_that_repeats_a_live_file_is_counted_once_and_a_remove_may_miss() -> None:
    state = replayed([add("a", 5)], [add("a", 6)], [remove("never there")], [remove("never there")])
    assert (state.num_files, state.size_in_bytes) == (1, 6)


def test_files_that_only_change_places_are_replayed_as_others_are() -> None:
    compacted = [
        replaced(one, data_change=False) for one in (remove("a"), remove("b"), add("c", 7))
    ]
    state = replayed([add("a"), add("b")], compacted)
    assert live(state) == {("c", None): 7}
    assert sorted(file.path for file in state.removed()) == ["a", "b"]


def test_the_latest_protocol_and_metadata_count() -> None:
    other = Metadata(
        id="t", schema_string='{"type":"struct","fields":[]}', configuration={"a": "b"}
    )
    later = Protocol(min_reader_version=3, min_writer_version=7)
    state = replayed([PROTOCOL, METADATA], [], [other], [later])
    assert (state.protocol, state.metadata) == (later, other)


def test_transactions_are_kept_by_application_and_domains_by_name() -> None:
    def domain(name: str, removed: bool = False) -> DomainMetadata:
        return DomainMetadata(domain=name, configuration="{}", removed=removed)

    state = replayed(
        [SetTransaction(app_id="a", version=1), domain("x"), domain("y")],
        [SetTransaction(app_id="b", version=5), SetTransaction(app_id="a", version=2)],
        [domain("x", removed=True)],
    )
    assert {k: t.version for k, t in state.transactions.merged().items()} == {"a": 2, "b": 5}
    assert list(state.domains) == ["y"]


def test_the_timestamp_is_that_of_the_commit_itself() -> None:
    state = replayed([CommitInfo(in_commit_timestamp=5)])
    assert state.timestamp_ms == 5
    assert replayed([add("a")], state=state).timestamp_ms is None


def test_a_state_is_a_value_that_later_ones_leave_alone() -> None:
    first = replayed([PROTOCOL, METADATA, add("a"), SetTransaction(app_id="x", version=1)])
    before = (live(first), first.num_files, dict(first.transactions.merged()))
    replayed([remove("a"), add("b"), SetTransaction(app_id="x", version=2)], state=first)
    assert (live(first), first.num_files, dict(first.transactions.merged())) == before


def test_files_of_the_ground_are_hidden_by_the_layers_and_counted_exactly() -> None:
    shelf = Shelf({("a", None): 10, ("b", None): 20, ("c", "uone@1"): 30})
    state = on_ground(Version(7), shelf)
    assert (state.version, state.num_files, state.size_in_bytes) == (7, 3, 60)
    state = replayed([remove("a"), remove("c"), add("d", 1)], state=state)
    assert (state.num_files, state.size_in_bytes) == (3, 51)
    state = replayed([remove("c", "one"), add("b", 25), remove("a")], state=state)
    assert (state.num_files, state.size_in_bytes) == (2, 26)
    state = replayed([add("a", 10), remove("b")], state=state)
    assert (state.num_files, state.size_in_bytes) == (2, 11)
    assert set(state.overlaid()) >= {("a", None), ("b", None), ("c", "uone@1")}


def test_going_on_asks_the_ground_only_about_files_that_are_new_to_the_layers() -> None:
    shelf = Shelf({("a", None): 10})
    state = on_ground(Version(0), shelf)
    state = replayed([remove("a")], state=state)
    shelf.asked.clear()
    replayed([add("a", 10), add("b")], state=state)
    assert shelf.asked == [("b", None)]


def test_going_on_shares_the_big_layers_and_copies_none_of_them() -> None:
    state = apply(EMPTY, Version(0), lines(*(add(f"old {n}") for n in range(1000))))
    big = state.layers.layers[0]
    for version in range(1, 200):
        state = apply(state, Version(version), lines(add(f"new {version}")))
        assert state.layers.layers[0] is big
        assert len(state.layers.layers) < 12
    assert state.num_files == 1199


@given(st.lists(st.dictionaries(st.integers(0, 30), st.integers(), max_size=8)))
def test_a_layered_mapping_is_the_dictionary_it_stands_for(updates: list[dict[int, int]]) -> None:
    layered: Layered[int, int] = Layered()
    expected: dict[int, int] = {}
    seen = []
    for update in updates:
        layered = layered.over(dict(update))
        expected = expected | update
        seen.append((layered, expected))
    for then, merged in seen:
        assert then.merged() == merged
        assert all(then.get(key) == merged.get(key) for key in range(31))
        sizes = [len(layer) for layer in then.layers]
        assert all(older > 2 * newer for older, newer in pairwise(sizes))


FILES = st.sampled_from(["a", "b", "c", "d"])
VECTORS = st.sampled_from([None, "one", "two"])
ACTIONS = st.one_of(
    st.builds(add, FILES, st.integers(0, 9), VECTORS), st.builds(remove, FILES, VECTORS)
)


@given(
    st.dictionaries(st.tuples(FILES, st.none()), st.integers(0, 9)),
    st.lists(st.lists(ACTIONS, max_size=5), max_size=12),
    st.data(),
)
def test_replay_in_any_portions_equals_replay_by_hand(
    ground: dict[FileKey, int], commits: list[list[AddFile | RemoveFile]], data: st.DataObject
) -> None:
    expected = dict(ground)
    for action in (action for commit in commits for action in commit):
        expected.pop(action.key, None)
        if isinstance(action, AddFile):
            expected[action.key] = action.size
    state = on_ground(Version(0), Shelf(ground)) if ground else EMPTY
    at = 0
    while at < len(commits):
        stop = data.draw(st.integers(at + 1, len(commits)))
        portion = [action for commit in commits[at:stop] for action in commit]
        state = apply(state, Version(stop), lines(*portion))
        at = stop
    overlaid = set(state.overlaid())
    found = {key: size for key, size in ground.items() if key not in overlaid} | live(state)
    assert found == expected
    assert (state.num_files, state.size_in_bytes) == (len(expected), sum(expected.values()))


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (None, 604_800_000),
        ("interval 1 week", 604_800_000),
        ("interval 3 days", 259_200_000),
        ("interval 1 day 12 hours", 129_600_000),
        ("INTERVAL 0 HOURS", 0),
        ("10 minutes", 600_000),
        ("no interval", 604_800_000),
        ("interval -1 days", 604_800_000),
        ("interval", 604_800_000),
    ],
)
def test_tombstones_are_kept_as_long_as_the_table_says(
    retention: str | None, expected: int
) -> None:
    properties = {} if retention is None else {"delta.deletedFileRetentionDuration": retention}
    assert tombstones_kept_ms(properties) == expected
