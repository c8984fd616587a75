"""The campaign's own checks find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.api.messages import Part, Proposal, RatifiedCommit, TimelineEntry
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.content import Way
from tests.chaos import checks
from tests.chaos.history import History, Recorder, load
from tests.kit.builders import inline

IDS = {TableId("id-a"): "a", TableId("id-b"): "b"}


def entry(version: int, txn_id: str, sequence: int, timestamp_ms: int = 0) -> TimelineEntry:
    commit = RatifiedCommit(
        version=Version(version),
        way=Way.INLINE,
        txn_id=TxnId(txn_id),
        sequence=Sequence(sequence),
        timestamp_ms=timestamp_ms or sequence,
        size=1,
        sha256="",
    )
    return TimelineEntry(commit=commit, proposed_ms=0, ratified_ms=0)


def proposal(txn_id: str, *tables: str) -> Proposal:
    parts = [
        Part(table_id=TableId(f"id-{table}"), version=Version(1), content=inline())
        for table in tables
    ]
    return Proposal(txn_id=TxnId(txn_id), parts=tuple(parts))


def sound() -> tuple[checks.Timelines, History]:
    """Two tables, one commit to the first and one to both, all of it acknowledged."""
    timelines: checks.Timelines = {
        "a": (entry(0, "make-a", 1), entry(1, "x", 3), entry(2, "both", 4)),
        "b": (entry(0, "make-b", 2), entry(1, "both", 4)),
    }
    history = History(
        proposals={
            TxnId("x"): [proposal("x", "a")],
            TxnId("both"): [proposal("both", "a", "b")],
            TxnId("no"): [proposal("no", "b")],
        },
        ratified={
            TxnId("x"): {TableId("id-a"): 1},
            TxnId("both"): {TableId("id-a"): 2, TableId("id-b"): 1},
        },
        rejected={TxnId("no"): "conflict"},
    )
    return timelines, history


def check(timelines: checks.Timelines, history: History) -> None:
    checks.versions_are_contiguous_and_times_rise(timelines)
    checks.what_was_told_is_so(timelines, IDS, history)
    checks.transactions_are_whole(timelines, IDS, history)


def test_what_is_sound_passes() -> None:
    check(*sound())


@pytest.mark.parametrize(
    "b",
    [
        pytest.param((entry(0, "make-b", 2),), id="half of a transaction"),
        pytest.param((entry(0, "make-b", 2), entry(1, "both", 5)), id="at another sequence"),
        pytest.param((entry(0, "make-b", 2), entry(2, "both", 4)), id="a gap"),
        pytest.param(
            (entry(0, "make-b", 2), entry(1, "both", 4), entry(2, "both", 5)), id="twice there"
        ),
        pytest.param(
            (entry(0, "make-b", 2), entry(1, "both", 4), entry(2, "no", 5)), id="refused and there"
        ),
        pytest.param(
            (entry(0, "make-b", 2), entry(1, "both", 4), entry(2, "who", 5)), id="nobody's"
        ),
        pytest.param((entry(0, "make-b", 2, 9), entry(1, "both", 4, 9)), id="time stands still"),
    ],
)
def test_what_is_not_is_found(b: tuple[TimelineEntry, ...]) -> None:
    timelines, history = sound()
    with pytest.raises(AssertionError):
        check({**timelines, "b": b}, history)


def test_a_commit_that_was_acknowledged_and_is_not_there_is_found() -> None:
    timelines, history = sound()
    history.ratified[TxnId("lost")] = {TableId("id-a"): 3}
    history.proposals[TxnId("lost")] = [proposal("lost", "a")]
    with pytest.raises(AssertionError, match="is lost"):
        check(timelines, history)


def test_a_commit_that_is_there_and_whose_writer_was_never_told_is_found() -> None:
    timelines, history = sound()
    del history.ratified[TxnId("x")]
    with pytest.raises(AssertionError, match="never acknowledged"):
        check(timelines, history)


def test_a_history_outlives_a_writer_that_died_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    recorder = Recorder(path)
    recorder.sent(proposal("x", "a"))
    recorder.sent(proposal("y", "a", "b"))
    recorder.write(ratified="x", versions={"id-a": 1})
    recorder.close()
    with path.open("ab") as file:
        file.write(b'{"ratified": "y", "vers')
    found = load([path])
    assert found.proposals[TxnId("y")] == [proposal("y", "a", "b")]
    assert found.ratified == {"x": {"id-a": 1}}
    assert found.unsettled == ["y"]
