"""The Java that Spark runs on: tests without it are skipped, and fail where it must be."""

from __future__ import annotations

import os

import pytest

from headgate.errors import UnavailableError
from headgate.spark.sessions import refuse_without_java

MISSING = "Install Debian's package openjdk-17-jre-headless (`make test` does)."


def require() -> None:
    """Skip the test where there is no Java fit for Spark, and fail it where there must be one."""
    try:
        refuse_without_java()
    except UnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"{error.message} {MISSING}")
        pytest.skip(f"{error.message} {MISSING}")
