"""The lake on a cluster: a master, two workers, and executors that know nothing of a catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import java
from tests.spark.conftest import WHERE
from tests.spark.remote_spark import begin_tests, cluster

EXECUTOR = "CoarseGrainedExecutorBackend"
TESTS = ["remote/test_on_executors.py"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_executors_need_the_storage_and_nothing_of_ours(tmp_path: Path) -> None:
    java.require()
    environments: dict[str, str] = {}
    with cluster(tmp_path, workers=2) as address:
        # No Python is to be had there: whatever needs ours, or anybody's, fails.
        tests = begin_tests(address, tmp_path, TESTS, PYSPARK_PYTHON=str(tmp_path / "no-python"))
        while tests.are_running:
            environments.update(executors(str(tmp_path)))
            time.sleep(0.2)
        assert tests.must_pass() > 3
    assert len(environments) == 2
    for environment in environments.values():
        assert "SPARK_HOME" in environment
        assert "HEADGATE" not in environment.upper()  # in the driver there is one: `WHERE`
    assert WHERE.startswith("HEADGATE")


def executors(folder: str) -> Iterator[tuple[str, str]]:
    """Find executors by where they work inside a folder, and the options of each."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            place = str((process / "cwd").readlink())
            if EXECUTOR in command and place.startswith(folder):
                yield place, (process / "environ").read_bytes().decode(errors="replace")
        except OSError:  # it has just ended
            continue
