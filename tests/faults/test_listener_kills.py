"""`kill -9` while events are delivered: each listener gets all, in order, at least once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import headgate
from tests.faults.harness import check_lake, run
from tests.kit import req

pytestmark = pytest.mark.faults


@req("EV-01")
@pytest.mark.parametrize(
    "fail",
    [
        "listener.before_tell:kill@1",
        "listener.before_tell:kill@4",
        "listener.after_tell:kill@1",
        "listener.after_tell:kill@4",
        "listener.after_record:kill@1",
        "listener.after_record:kill@2",
        "ratifier.before_commit:kill@5",
        "ratifier.after_commit:kill@5",
    ],
)
def test_a_listener_hears_of_everything_in_order_wherever_its_teller_was_killed(
    tmp_path: Path, fail: str
) -> None:
    lake = tmp_path / "lake"
    killed = run("listens", lake, 1, fail=fail)
    assert killed.was_killed, killed
    output = run("listens", lake, 2)
    assert output.code == 0, output
    [last] = [line for line in output.lines if "latest" in line]
    assert last["position"] == last["latest"], output
    with headgate.connect(lake, publisher=False) as session:
        check_lake(session)
        ratified = [event.sequence for event in session.events()]
        recorded = [(c.table_id, c.version) for e in session.events() for c in e.commits]
        one = session.table("one")
        assert recorded == [(one.id, version) for version in range(one.version + 1)]
    heard = [
        tuple(map(int, line.split())) for line in (tmp_path / "heard").read_text().splitlines()
    ]
    sequences = [sequence for _, sequence in heard]
    assert sorted(set(sequences)) == ratified
    # Never past an undelivered event; back only to deliver again what was not recorded.
    assert sequences[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(sequences))
    for number in (1, 2):
        of_one = [sequence for who, sequence in heard if who == number]
        assert of_one == sorted(set(of_one))
    if fail.startswith("listener.after_tell"):
        assert len(sequences) > len(ratified)  # it was heard and not recorded: heard again
    if fail.startswith("listener.before_tell:kill@1"):
        assert len(sequences) == len(ratified)
