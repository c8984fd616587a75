"""Named places where a test may kill, raise, leave or wait; and nothing in normal runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from headgate import failpoints
from headgate.failpoints import FailPointError, arm, fail_point

HERE, THERE = "publisher.before_put", "publisher.after_put"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def test_nothing_happens_anywhere_in_a_normal_run() -> None:
    arm("")
    for point in failpoints.POINTS:
        fail_point(point)


def test_an_armed_place_raises_once_and_the_others_do_nothing() -> None:
    arm(f"{HERE}:raise")
    fail_point(THERE)
    with pytest.raises(FailPointError, match=HERE):
        fail_point(HERE)
    fail_point(HERE)


def test_the_nth_crossing_counts() -> None:
    arm(f"{HERE}:raise@3")
    fail_point(HERE)
    fail_point(HERE)
    with pytest.raises(FailPointError):
        fail_point(HERE)
    fail_point(HERE)


def test_several_places_are_armed_at_once_and_arming_again_begins_anew() -> None:
    arm(f"{HERE}:raise@2,,{THERE}:raise")
    fail_point(HERE)
    with pytest.raises(FailPointError, match=THERE):
        fail_point(THERE)
    arm(f"{HERE}:raise@2")
    fail_point(HERE)
    fail_point(THERE)
    with pytest.raises(FailPointError, match=HERE):
        fail_point(HERE)
    arm("")
    fail_point(HERE)


def test_a_place_can_make_its_thread_wait() -> None:
    arm(f"{HERE}:sleep:30")
    before = time.monotonic()
    fail_point(HERE)
    assert time.monotonic() - before >= 0.029


def test_no_code_that_catches_errors_catches_a_fail_point() -> None:
    assert not issubclass(FailPointError, Exception)


@pytest.mark.parametrize(
    "text",
    [
        "nowhere:kill",
        "publisher.before_put",
        "publisher.before_put:",
        "publisher.before_put:explode",
        "publisher.before_put:kill:9",
        "publisher.before_put:sleep",
        "publisher.before_put:sleep:",
        "publisher.before_put:sleep:long",
        "publisher.before_put:sleep:-1",
        "publisher.before_put:raise@0",
        "publisher.before_put:raise@-1",
        "publisher.before_put:raise@x",
        " publisher.before_put:raise",
        "publisher.after_put:raise,nowhere:raise",
    ],
)
def test_what_cannot_be_armed_is_refused_and_changes_nothing(text: str) -> None:
    arm(f"{HERE}:raise")
    with pytest.raises(ValueError, match=r"fail point|invalid literal"):
        arm(text)
    fail_point(THERE)
    with pytest.raises(FailPointError):
        fail_point(HERE)


def test_a_place_that_is_not_in_the_registry_cannot_be_crossed_by_a_test() -> None:
    arm(f"{HERE}:raise")
    with pytest.raises(AssertionError, match="nowhere"):
        fail_point("nowhere")


@pytest.mark.parametrize(
    ("action", "code"), [("kill", -signal.SIGKILL), ("exit", 70), ("raise", 1), ("sleep:1", 0)]
)
def test_a_process_is_armed_by_its_environment(action: str, code: int) -> None:
    program = f"from headgate.failpoints import fail_point; fail_point({HERE!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HEADGATE_FAIL": f"{HERE}:{action}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert ("FailPointError" in done.stderr) is (action == "raise")


def test_an_environment_that_cannot_be_understood_stops_the_process_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import headgate.failpoints"],
        env={**os.environ, "HEADGATE_FAIL": "nowhere:kill"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no fail point 'nowhere'" in done.stderr
