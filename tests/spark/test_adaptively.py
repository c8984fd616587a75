"""Writes, merges and wrong results once more with adaptive execution on, as users have it.

The other tests run without: of so few rows it costs more than it saves.
"""

import pytest
from pyspark.sql import SparkSession

from tests.spark import test_merge, test_writing, test_wrong_results

for module in (test_merge, test_writing, test_wrong_results):
    globals().update(
        {name: test for name, test in vars(module).items() if name.startswith("test_")}
    )


@pytest.fixture(autouse=True)
def adaptive(unchanged_settings: None, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
