import itertools

import pytest

from headgate.errors import InvalidArgumentError, InvariantError
from headgate.protocol.table_states import (
    LIFECYCLE,
    TableStatus,
    TableTransition,
    parse_table_id,
    step,
)


def test_every_status_and_transition_is_in_the_table() -> None:
    assert set(LIFECYCLE) == set(TableStatus)
    assert {move for moves in LIFECYCLE.values() for move in moves} == set(TableTransition)


def test_each_listed_transition_is_made() -> None:
    for status, moves in LIFECYCLE.items():
        for move, after in moves.items():
            assert step(status, move) is after


def test_each_unlisted_transition_raises() -> None:
    for status, move in itertools.product(TableStatus, TableTransition):
        if move not in LIFECYCLE[status]:
            with pytest.raises(InvariantError, match=f"{status.value}.*cannot {move.value}"):
                step(status, move)


def test_every_status_can_be_reached_from_staging() -> None:
    reached = {TableStatus.STAGING}
    waiting = list(reached)
    while waiting:
        new = set(LIFECYCLE[waiting.pop()].values()) - reached
        reached |= new
        waiting.extend(new)
    assert reached == set(TableStatus)


def test_a_table_id_is_a_uuid_in_its_usual_spelling() -> None:
    usual = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
    assert parse_table_id(usual) == usual


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
        parse_table_id(text)
