"""delta-spark for the run, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.kit import java
from tests.spark.differential.delta_spark import DeltaSpark


@pytest.fixture(scope="session")
def delta_process(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[DeltaSpark]:
    java.require()
    process = DeltaSpark(tmp_path_factory.mktemp("delta-spark"))
    request.getfixturevalue("spark")  # both start at once: each takes seconds
    yield process
    process.close()


@pytest.fixture
def delta(delta_process: DeltaSpark, spark: SparkSession) -> DeltaSpark:
    delta_process.require()
    return delta_process
