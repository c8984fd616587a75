"""The Java that Spark runs on, and how it is started for tests.

Tests are skipped where there is no Java, and fail where `CI` says that there must be one.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

import pytest

from headgate.errors import UnavailableError

# A Java of a test runs for seconds: the second compiler and parallel collectors only cost it time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
MISSING = "Install Debian's package openjdk-17-jre-headless (`make test` does)."


def start_quickly(environment: MutableMapping[str, str]) -> None:
    """Have every Java that Spark's scripts start from this environment start quickly."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        environment.setdefault(name, QUICK_START)


def require() -> None:
    """Skip the test where there is no Java fit for Spark, or fail it in continuous integration."""
    from headgate.spark.sessions import refuse_without_java  # PySpark takes a second to import

    try:
        refuse_without_java()
    except UnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"{error.message} {MISSING}")
        pytest.skip(f"{error.message} {MISSING}")
