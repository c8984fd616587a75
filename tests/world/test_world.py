"""The whole system at random, in memory, on disk, without a database and behind HTTP.

Each run prints its seed; `HEADGATE_SEED` repeats it, `HEADGATE_LONG` makes it long.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.kit import req, shows
from tests.kit.world import (
    quiet_deaths,
)
from tests.world.machines import (
    DatabaseMachine,
    FilesystemMachine,
    LocalFilesystemMachine,
    LocalMachine,
    Machine,
    ServedMachine,
)

IS_LONG = bool(os.environ.get("HEADGATE_LONG"))


@pytest.fixture
def run() -> Iterator[Callable[[type[Machine], int, int], None]]:
    number = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HEADGATE_SEED={number}")

    def run(machine: type[Machine], examples: int, steps: int) -> None:
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=5 * examples if IS_LONG else examples,
                stateful_step_count=3 * steps if IS_LONG else steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )

    with quiet_deaths():
        yield run


@req("CM-10", "CM-12", "CM-42", "CM-47", "MT-01", "MT-02")
@shows(
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14",
    "S15", "S16", "S17", "S18", "S19", "L2", "L3", "FC3", "FC4", "FC5", "FC8", "FC9", "FC13",
    "FM5", "FP1", "FP4", "FP5", "FP7", "FR3", "FT1", "FT3",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_world_in_memory_keeps_every_invariant_whatever_happens(run) -> None:
    run(DatabaseMachine, 80, 30)


@shows("S14", "S16")
def test_checkpoints_of_every_form_come_about_in_these_worlds() -> None:
    machine = DatabaseMachine()
    try:
        machine.begin()
        found: dict[int, Counter[str]] = {}
        for which in range(2):
            machine.written.clear()
            for kind in (None, "classic", "v2", "v2-json"):
                machine.propose_one_after_the_other(which, [0, 1, 3], 0)
                machine.publish(which, 0)
                machine.everything_holds()
                machine.checkpoint(which, kind, 0)
                machine.everything_holds()
            found[which] = machine.written.copy()
        assert found == {
            0: {"ClassicCheckpoint": 2},
            1: {"ClassicCheckpoint": 1, "UuidCheckpoint": 3},
        }
    finally:
        machine.teardown()


@shows("S1", "S2", "S4", "S9", "S10", "S11", "S16")
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_world_on_a_real_disk_keeps_every_invariant_whatever_happens(run) -> None:
    run(LocalMachine, 12, 30)


@req("CM-13")
@shows("S1", "S2", "S3", "S4", "S5", "S8", "S16", "S18", "S19", "FC4")
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_filesystem_catalog_keeps_every_invariant_whatever_happens(run) -> None:
    run(FilesystemMachine, 40, 30)


@req("CM-13")
@shows("S1", "S2", "S4", "S16")
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_filesystem_catalog_on_a_real_disk_keeps_every_invariant(run) -> None:
    run(LocalFilesystemMachine, 12, 30)


@req("CM-42", "CM-43")
@shows("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S16", "S17", "S18", "FC4", "FC8", "L3")
@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_world_behind_http_keeps_every_invariant_whatever_happens(run) -> None:
    run(ServedMachine, 40, 30)
