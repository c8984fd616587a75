"""Only what cannot be had is skipped: whatever else keeps an engine from starting is a failure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.interop.conftest import CONNECTOR, RELEASED, is_unresolved, overheard

pytestmark = pytest.mark.interop
# As Spark says it when it resolves packages.
NOT_FOUND = """
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t:: io.unitycatalog#unitycatalog-spark_4.2_2.13;0.6.0: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: \
io.unitycatalog#unitycatalog-spark_4.2_2.13;0.6.0: not found]
"""


def test_a_package_that_is_not_found_is_told_from_all_else() -> None:
    assert is_unresolved(CONNECTOR, NOT_FOUND)
    assert not is_unresolved(RELEASED, NOT_FOUND)
    for other in (
        "Error: Could not find or load main class org.apache.spark.deploy.SparkSubmit",
        "There is insufficient memory for the Java Runtime Environment to continue.",
        "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
    ):
        assert not is_unresolved(CONNECTOR, other)


def test_what_a_process_says_while_it_starts_is_heard() -> None:
    with overheard() as output:
        os.write(2, b"here ")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'there')"], check=True)
        assert output() == "here there"
