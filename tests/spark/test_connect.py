"""The lake over Spark Connect: what is shown of Spark in this process holds there too."""

import os
from pathlib import Path

import pytest

from tests.kit import java
from tests.spark.remote_spark import begin_tests, connect_server

TESTS = ["remote/test_over_connect.py"]
ALL_TESTS = [
    *TESTS,
    "test_delete_and_update.py",
    "test_merge.py",
    "test_constraints.py",
    "test_sql.py",
    "test_wrong_results.py",
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_lake_is_the_same_over_spark_connect(tmp_path: Path) -> None:
    java.require()
    with connect_server(tmp_path / "server") as address:
        tests = begin_tests(
            address, tmp_path, ALL_TESTS if os.environ.get("HEADGATE_LONG") else TESTS
        )
        assert tests.must_pass() >= 13
