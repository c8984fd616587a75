"""The check of histories finds each anomaly, and none in a history that has none."""

from __future__ import annotations

import pytest

from tests.histories.history import Add, Level, Outcome, Read, Recorded, Rows, Value, check

A: Rows = ("a", 1)
B: Rows = ("b", 1)


def txn(
    name: str,
    begun: int,
    sequence: int | None,
    *steps: Read | Add,
    level: Level = Level.SERIALIZABLE,
    outcome: Outcome = Outcome.OK,
) -> Recorded:
    return Recorded(name, level, begun, list(steps), outcome, sequence)


def read(of: Rows, *values: Value, fed: bool = True) -> Read:
    return Read(of, frozenset(values), fed)


def kinds(*history: Recorded, final: dict[Rows, list[Value]]) -> set[str]:
    return {anomaly.kind for anomaly in check(history, final)}


def test_a_serial_history_has_no_anomaly() -> None:
    one = txn("one", 0, 1, read(A), Add(A, 1), read(A, 1), Add(B, 2))
    two = txn("two", 1, 2, read(A, 1), read(B, 2), Add(A, 3))
    gone = txn("gone", 2, None, read(A, 1, 3), Add(A, 4), outcome=Outcome.FAIL)
    assert kinds(one, two, gone, final={A: [1, 3], B: [2]}) == set()


def test_an_unknown_one_is_there_whole_or_not_at_all() -> None:
    unknown = txn("unknown", 0, 1, Add(A, 1), Add(B, 2), outcome=Outcome.INFO)
    assert kinds(unknown, final={A: [1], B: [2]}) == set()
    assert kinds(unknown, final={A: [], B: []}) == set()
    assert "torn" in kinds(unknown, final={A: [1], B: []})


@pytest.mark.parametrize(
    ("final", "kind"),
    [({A: []}, "lost"), ({A: [1, 1]}, "doubled"), ({A: [1, 9]}, "aborted read")],
)
def test_what_is_there_in_the_end_is_what_was_committed(
    final: dict[Rows, list[Value]], kind: str
) -> None:
    assert kind in kinds(txn("one", 0, 1, Add(A, 1)), final=final)


def test_a_read_that_is_not_of_its_cut_is_found() -> None:
    one = txn("one", 0, 1, Add(A, 1), Add(B, 2))
    half = txn("half", 0, None, read(A), read(B, 2))
    late = txn("late", 1, None, read(A, 1), read(B))
    assert kinds(one, half, final={A: [1], B: [2]}) == {"fractured read"}
    assert kinds(one, late, final={A: [1], B: [2]}) == {"fractured read"}


def test_own_writes_that_are_not_seen_are_found() -> None:
    assert kinds(txn("one", 0, 1, Add(A, 1), read(A)), final={A: [1]}) == {"own writes"}


def skew(level: Level, *, fed: bool = True) -> set[str]:
    one = txn("one", 0, 1, read(B, fed=fed), Add(A, 1), level=level)
    two = txn("two", 0, 2, read(A, fed=fed), Add(B, 2), level=level)
    return kinds(one, two, final={A: [1], B: [2]})


def test_write_skew_is_an_anomaly_above_snapshot() -> None:
    assert skew(Level.SERIALIZABLE) == skew(Level.WRITE_SERIALIZABLE) == {"cycle"}
    assert skew(Level.SNAPSHOT) == skew(Level.WRITE_SERIALIZABLE, fed=False) == set()
    assert skew(Level.SERIALIZABLE, fed=False) == {"cycle"}


@pytest.mark.parametrize("level", Level)
def test_a_blind_append_may_go_before_a_reader_that_missed_it_unless_serializable(
    level: Level,
) -> None:
    # The reader missed the blind append, which the third one saw, which missed the reader.
    blind = txn("blind", 0, 1, Add(A, 1), level=level)
    third = txn("third", 1, 2, read(A, 1), read(B), Add(("c", 1), 3), level=level)
    reader = txn("reader", 0, 3, read(A), Add(B, 2), level=level)
    found = kinds(blind, third, reader, final={A: [1], B: [2], ("c", 1): [3]})
    assert found == ({"cycle"} if level is Level.SERIALIZABLE else set())
