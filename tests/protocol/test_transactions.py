"""What the statements of a transaction amount to, and the states of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from headgate.protocol.encoding import replaced
from headgate.protocol.transactions import MOVES, State, net
from tests.kit import req
from tests.kit.builders import add, metadata, new_table_id, protocol, remove

TABLE = new_table_id()
PROTOCOL, METADATA = protocol(), metadata(TABLE)
OTHER = metadata(TABLE, properties={"a": "1"})


def vector(name: str) -> DeletionVector:
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, size_in_bytes=40, cardinality=1, offset=1
    )


def with_vector(file: AddFile, name: str) -> AddFile:
    return replaced(file, deletion_vector=vector(name))


def netted(*statements: Sequence[Action], domains: Iterable[DomainMetadata] = ()) -> list[Action]:
    known = {domain.domain: domain for domain in domains}
    return list(net(statements, protocol=PROTOCOL, metadata=METADATA, domains=known))


class TestRows:
    """Each line of the table of the design."""

    def test_a_file_that_is_added_and_removed_leaves_nothing(self) -> None:
        file = add("new")
        assert netted([file], [remove(file)]) == []

    def test_a_new_file_that_gets_a_vector_is_added_with_it(self) -> None:
        file = add("new")
        marked = with_vector(file, "one")
        assert netted([file], [remove(file), marked]) == [marked]

    def test_the_last_of_several_vectors_replaces_the_first_state_of_the_file(self) -> None:
        file = add("old")
        one, two = with_vector(file, "one"), with_vector(file, "two")
        first = remove(file)
        assert netted([first, one], [remove(one), two]) == [first, two]

    def test_the_last_metadata_protocol_and_domain_win(self) -> None:
        one, two = OTHER, metadata(TABLE, properties={"a": "2"})
        newer = protocol("deletionVectors")
        old, new = (DomainMetadata(domain="d", configuration=c, removed=False) for c in "xy")
        assert netted([one, old], [newer, two, new]) == [newer, two, new]

    def test_what_is_set_back_to_the_base_is_left_out(self) -> None:
        domain = DomainMetadata(domain="d", configuration="x", removed=False)
        gone = replaced(domain, removed=True)
        assert netted([OTHER, domain], [METADATA, gone]) == []
        assert netted([gone], domains=[domain]) == [gone]
        assert netted([gone], [domain], domains=[domain]) == []


@dataclass
class Model:
    """A table, changed by one list of actions after the other."""

    metadata: Metadata = METADATA
    protocol: Protocol = PROTOCOL
    files: dict[FileKey, AddFile] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        actions = list(actions)
        for action in actions:
            match action:
                case RemoveFile():
                    del self.files[action.key]  # fails for a file that is not there
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case DomainMetadata(domain=domain, removed=True):
                    self.domains.pop(domain, None)
                case DomainMetadata(domain=domain, configuration=configuration):
                    self.domains[domain] = configuration
                case SetTransaction(app_id=app_id, version=version):
                    self.txns[app_id] = version
        for action in actions:
            if isinstance(action, AddFile):
                assert all(path != action.key[0] for path, _ in self.files)
                self.files[action.key] = action


@req("MT-10")
@given(st.data())
def test_the_net_actions_give_the_same_table_as_the_statements_one_by_one(
    data: st.DataObject,
) -> None:
    names = map(str, itertools.count())
    base = [add(f"base-{next(names)}") for _ in range(data.draw(st.integers(0, 3)))]
    known = {"kept": DomainMetadata(domain="kept", configuration="0", removed=False)}
    one_by_one, at_once = Model(), Model()
    for model in (one_by_one, at_once):
        model.apply([*base, *known.values()])
    statements = []
    for _ in range(data.draw(st.integers(0, 5))):
        live = sorted(one_by_one.files.values(), key=lambda file: file.path)
        statement: list[Action] = []
        for file in data.draw(st.lists(st.sampled_from(live), unique_by=id)) if live else []:
            statement.append(remove(file))
            if data.draw(st.booleans()):
                statement.append(with_vector(file, next(names)))
        statement += [add(f"new-{next(names)}") for _ in range(data.draw(st.integers(0, 2)))]
        if data.draw(st.booleans()):
            statement.append(data.draw(st.sampled_from([METADATA, OTHER])))
        for name in data.draw(st.lists(st.sampled_from(["kept", "new"]), unique=True)):
            removed, value = data.draw(st.booleans()), data.draw(st.sampled_from("01"))
            statement.append(DomainMetadata(domain=name, configuration=value, removed=removed))
        if data.draw(st.booleans()):
            statement.append(SetTransaction(app_id="app", version=len(statements)))
        one_by_one.apply(statement)
        statements.append(statement)
    found = net(statements, protocol=PROTOCOL, metadata=METADATA, domains=known)
    at_once.apply(found)
    assert at_once == one_by_one
    kept = {file.key for file in base} & one_by_one.files.keys()
    assert not any(isinstance(a, AddFile | RemoveFile) and a.key in kept for a in found)


@pytest.mark.parametrize("state", State)
def test_only_open_and_unknown_transactions_can_still_change(state: State) -> None:
    assert bool(MOVES[state]) is (state in (State.OPEN, State.UNKNOWN))
    assert State.OPEN not in MOVES[state]
    assert State.ABANDONED not in MOVES[State.UNKNOWN]
