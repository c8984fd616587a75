import enum
import itertools
from collections.abc import Callable, Mapping

import pytest

from headgate.api import messages, table_states
from headgate.api.messages import RatifiedCommit, Way
from headgate.errors import InvalidArgumentError, InvariantError
from headgate.protocol.actions import Sequence, TxnId, Version

Table = Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]
Step = Callable[[enum.Enum, enum.Enum], enum.Enum]

LIFECYCLES = {
    "commit": (
        messages.LIFECYCLE,
        messages.step,
        messages.State,
        messages.Event,
        {messages.State.PROPOSED},
    ),
    "table": (
        table_states.LIFECYCLE,
        table_states.step,
        table_states.State,
        table_states.Event,
        {table_states.State.STAGING},
    ),
}


@pytest.fixture(params=LIFECYCLES)
def lifecycle(
    request: pytest.FixtureRequest,
) -> tuple[Table, Step, type[enum.Enum], type[enum.Enum], set[enum.Enum]]:
    return LIFECYCLES[request.param]  # type: ignore[return-value]  # two tables of one shape


Lifecycle = tuple[Table, Step, type[enum.Enum], type[enum.Enum], set[enum.Enum]]


def test_every_state_and_event_is_in_the_table(lifecycle: Lifecycle) -> None:
    table, _, states, events, _ = lifecycle
    assert set(table) == set(states)
    assert {event for moves in table.values() for event in moves} == set(events)


def test_each_listed_move_is_made(lifecycle: Lifecycle) -> None:
    table, step, _, _, _ = lifecycle
    for state, moves in table.items():
        for event, after in moves.items():
            assert step(state, event) is after


def test_each_unlisted_move_raises_and_changes_nothing(lifecycle: Lifecycle) -> None:
    table, step, states, events, _ = lifecycle
    before = {state: dict(moves) for state, moves in table.items()}
    for state, event in itertools.product(states, events):
        if event not in table[state]:
            with pytest.raises(InvariantError, match=f"{state.value}.*cannot {event.value}"):
                step(state, event)
    assert {state: dict(moves) for state, moves in table.items()} == before


def test_every_state_can_be_reached(lifecycle: Lifecycle) -> None:
    table, _, states, _, reached = lifecycle
    waiting = list(reached)
    while waiting:
        new = set(table[waiting.pop()].values()) - reached
        reached = reached | new
        waiting.extend(new)
    assert reached == set(states)


def test_a_commit_that_was_decided_is_never_decided_again() -> None:
    for state in (messages.State.RATIFIED, messages.State.PUBLISHED, messages.State.REJECTED):
        assert not {messages.Event.RATIFY, messages.Event.REJECT} & messages.LIFECYCLE[state].keys()


def test_publishing_twice_is_fine() -> None:
    published = messages.step(messages.State.RATIFIED, messages.Event.PUBLISH)
    assert messages.step(published, messages.Event.PUBLISH) is published


def test_a_table_allows_what_its_state_lists() -> None:
    for state, event in itertools.product(table_states.State, table_states.Event):
        assert table_states.allows(state, event) is (event in table_states.LIFECYCLE[state])


def test_a_ratified_commit_is_published_once_the_catalog_saw_it_in_the_log() -> None:
    commit = RatifiedCommit(
        version=Version(1),
        way=Way.STAGED,
        txn_id=TxnId("t"),
        sequence=Sequence(1),
        timestamp_ms=1,
        size=1,
        sha256="",
    )
    assert commit.state is messages.State.RATIFIED
    seen = RatifiedCommit(
        version=Version(1),
        way=Way.STAGED,
        txn_id=TxnId("t"),
        sequence=Sequence(1),
        timestamp_ms=1,
        size=1,
        sha256="",
        published_ms=5,
    )
    assert seen.state is messages.State.PUBLISHED


def test_a_table_id_is_a_uuid_in_its_usual_spelling() -> None:
    usual = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
    assert table_states.parse_table_id(usual) == usual


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "../..",
        "d2c639aa8816431aaaf6d3fe2512ff61",
        "D2C639AA-8816-431A-AAF6-D3FE2512FF61",
        "{d2c639aa-8816-431a-aaf6-d3fe2512ff61}",
        "d2c639aa-8816-431a-aaf6-d3fe2512ff61\n",
    ],
)
def test_any_other_spelling_is_no_table_id(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        table_states.parse_table_id(text)
