"""Spark sessions fit for Headgate: made right, or checked and told what to change.

Every setting that matters is a row with what it does. In a session of the user's own a setting
that would change results is refused, one that only costs time is warned about.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.arguments import checked
from headgate.errors import InvalidArgumentError, UnavailableError

_OLDEST_JAVA: Final = 17
_INSTALL: Final = (
    "Install one and set JAVA_HOME if it is not found: `apt install openjdk-17-jre-headless`,"
    " `dnf install java-17-openjdk-headless` or `brew install openjdk@17`."
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Spark, what it must be, and what happens otherwise."""

    key: str
    value: str
    otherwise: str
    changes_results: bool
    # Values that change results, where others do not, and what they do.
    worse: Mapping[str, str] = field(default_factory=dict)

    def harm(self, found: str) -> str | None:
        """Say what a value does to results; None where it does nothing to them."""
        return self.otherwise if self.changes_results else self.worse.get(found.upper())


SETTINGS: Final = (
    Setting(
        "spark.sql.ansi.enabled",
        "true",
        "numbers that do not fit are cut instead of refused",
        changes_results=True,
    ),
    Setting(
        "spark.sql.caseSensitive",
        "false",
        "columns are not found by names that differ in case",
        changes_results=True,
    ),
    Setting(
        "spark.sql.parquet.binaryAsString",
        "false",
        "binary columns are read as texts",
        changes_results=True,
    ),
    Setting(
        "spark.sql.variant.writeShredding.enabled",
        "false",
        "variants are written in a form that readers of the table do not expect",
        changes_results=True,
    ),
    Setting(
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "CORRECTED",
        "days before 1582 are refused, or written as others",
        changes_results=True,
    ),
    Setting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "timestamps are written without statistics",
        changes_results=False,
        worse={"TIMESTAMP_MILLIS": "microseconds of timestamps are cut"},
    ),
    Setting(
        "spark.sql.parquet.fieldId.write.enabled",
        "true",
        "files of tables with column mapping lack the ids that others read them by",
        changes_results=True,
    ),
    Setting(
        "spark.sql.sources.parallelPartitionDiscovery.threshold",
        "1000000000",
        "every file of a local table costs a task before it is read",
        changes_results=False,
    ),
)

# What the driver alone can be told, before it starts.
_AT_START: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


@checked
def session(
    name: str = "headgate",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session with all settings right, or give the one that runs already.

    `remote` is the address of a Spark Connect server, `sc://host:15002`.
    """
    # Spark starts its workers with the python3 it finds, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {setting.key: setting.value for setting in SETTINGS}
    if remote is not None:
        connected: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        for key, value in {**wanted, **(config or {})}.items():
            connected.conf.set(key, value)
        return connected
    refuse_without_java()
    parallelism = str(min(8, max(2, os.cpu_count() or 2)))
    settings = {"spark.sql.shuffle.partitions": parallelism, **_AT_START, **wanted}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check(spark: SparkSession) -> None:
    """Refuse a session whose settings would change results; warn of those that cost time."""
    found = [(item, _value(spark, item)) for item in SETTINGS]
    wrong = [(item, value) for item, value in found if value.upper() != item.value.upper()]
    if harmful := [(item, harm) for item, value in wrong if (harm := item.harm(value))]:
        raise InvalidArgumentError(
            "This Spark session would give other results: "
            + "; ".join(f"{item.key} is not {item.value} ({harm})" for item, harm in harmful)
            + ".",
            remedy="Set them with spark.conf.set, or start it with headgate.spark.session().",
        )
    for setting, _ in wrong:
        warnings.warn(
            f"{setting.key} is not {setting.value}: {setting.otherwise}."
            f" Set it with spark.conf.set({setting.key!r}, {setting.value!r}).",
            stacklevel=3,
        )


def _value(spark: SparkSession, setting: Setting) -> str:
    """Give what a session goes by: what it was told, or what this version of Spark does."""
    try:
        return spark.conf.get(setting.key) or ""
    except PySparkException as error:
        if error.getCondition() != "SQL_CONF_NOT_FOUND":
            raise
        return setting.value  # of what it has not nothing can be wrong


def is_remote(spark: SparkSession) -> bool:
    """Whether a session speaks to a server of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def resolved(frame: DataFrame) -> DataFrame:
    """Have Spark say now what is wrong: over Spark Connect it would say it when asked for rows."""
    if is_remote(frame.sparkSession):
        _ = frame.schema
    return frame


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Let a setting of a session be another for a while."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def refuse_without_java() -> None:
    """Say what to install when no Java is there, or one too old for Spark."""
    found = _java()
    if found is None:
        raise UnavailableError(
            f"Spark needs Java {_OLDEST_JAVA} or later, and none is here.", remedy=_INSTALL
        )
    version = _java_version(found)
    if version is not None and version < _OLDEST_JAVA:
        raise UnavailableError(
            f"Spark needs Java {_OLDEST_JAVA} or later, and {found} is Java {version}.",
            remedy=_INSTALL,
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.is_file() else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "1.8.0_292" of old, "17.0.15" since.
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None
