"""Several processes on one lake: all get their turn, and the database decides as one."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import headgate
from tests.faults.harness import Output, check_lake, check_values, run, start, values_in
from tests.kit import req, shows

pytestmark = pytest.mark.faults


@shows("FC7", "S2", "S3", "S4", "S18", "L1", "L4")
def test_writers_in_several_processes_on_one_hot_table_lose_nothing_and_none_fails(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake) as session:
        session.create_table("hot", "value long")
    running = [start("many", lake, number) for number in range(1, 5)]
    outputs = [one.wait() for one in running]
    assert [one.code for one in outputs] == [0] * 4, [one.stderr for one in outputs]
    together = Output(0, [line for one in outputs for line in one.lines], "")
    with headgate.connect(lake, publisher=False) as session:
        check_values(session, together, "hot")
        assert sum(values_in(session, "hot").values()) == 160
        check_lake(session)


@req("CM-12", "CM-44")
@shows("FC9", "FP1", "FP3", "S1", "S2", "S3", "S4", "L2")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_processes_killed_at_random_while_others_go_on_lose_nothing(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lake = tmp_path / "lake"
    with headgate.connect(lake) as session:
        session.create_table("hot", "value long")
    outputs: list[Output] = []
    running = []
    for number in range(1, 7):
        running.append(start("many", lake, number))
        if len(running) == 3:
            victim = running.pop(chance.randrange(3))
            threading.Event().wait(chance.uniform(0.6, 1.6))
            victim.kill()
            outputs.append(victim.wait())
    outputs += [one.wait() for one in running]
    together = Output(0, [line for one in outputs for line in one.lines], "")
    with headgate.connect(lake, publisher=False) as session:
        check_values(session, together, "hot")
        check_lake(session)
        table = session.table("hot")
        assert table.publish() == table.version
        check_lake(session)


@shows("FS8")
def test_processes_that_make_one_lake_at_once_make_one_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    outputs = [one.wait() for one in [start("repair", lake) for _ in range(4)]]
    assert [one.code for one in outputs] == [0] * 4, [one.stderr for one in outputs]
    with headgate.connect(lake) as session:
        session.create_table("t", "value long")
        check_lake(session)


@shows("L1")
@pytest.mark.slow
def test_eight_processes_flat_out_all_get_their_turn(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake) as session:
        for number in range(8):
            session.create_table(f"t{number}", "value long")
    running = [start("flat_out", lake, number) for number in range(8)]
    for one in running:
        assert one.process.stdin is not None
        one.process.stdin.write("\n")
        one.process.stdin.flush()
    outputs = [one.wait() for one in running]
    assert [one.code for one in outputs] == [0] * 8, [one.stderr for one in outputs]
    done = [int(str(line["done"])) for one in outputs for line in one.lines if "done" in line]
    assert len(done) == 8
    assert min(done) * 3 >= max(done), done


@shows("FS8")
def test_a_migration_killed_half_way_leaves_the_old_schema_or_the_new(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert run("appends", lake, fail="store.migrate_before_commit:kill").was_killed
    assert run("appends", lake).code == 0
