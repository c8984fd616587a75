"""Writes, merges and wrong results once more with adaptive execution on, as users have it.

The other tests run without: of so few rows it costs more than it saves.
"""

import pytest
from pyspark.sql import SparkSession

from tests.spark import test_merge, test_writing, test_wrong_results
from tests.spark.conftest import Water

for module in (test_merge, test_writing, test_wrong_results):
    for name, test in vars(module).items():
        if name.startswith("test_") and "refused" not in name:  # before anything is planned
            globals()[name] = test


@pytest.fixture(autouse=True)
def adaptive(unchanged_settings: None, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")


@pytest.fixture
def any_water(water: Water) -> Water:
    """One catalog is enough here: how Spark plans is not its business."""
    return water
