"""Spark sessions: build a suitable one, and depend on as few settings of any other as possible.

`SETTINGS` lists every setting that Headgate depends on, and how: checked before each statement,
or held at a value while Spark writes files. What is not in the list must not change results.
"""

import enum
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headgate.arguments import checked
from headgate.errors import InvalidArgumentError, UnavailableError
from headgate.spark.failures import log_queries

_OLDEST_JAVA: Final = 17
_INSTALL: Final = (
    "Install one and set JAVA_HOME if it is not found: `apt install openjdk-17-jre-headless`,"
    " `dnf install java-17-openjdk-headless` or `brew install openjdk@17`."
)


class Use(enum.Enum):
    """How Headgate deals with a setting that has another value than it needs."""

    CHECKED = "checked"  # a statement is refused: nothing in a plan can override the setting
    HELD_WHILE_WRITING = "held while writing"  # set for the time Spark writes files
    SPEED = "speed"  # results are the same, slower: a warning


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Spark, the value it must have, and what happens otherwise."""

    key: str
    value: str
    otherwise: str
    use: Use = Use.CHECKED


# Nothing else affects our plans: casts to a table's columns are `try_cast` with a check
# (`store_assignment.assigned`), each read passes its own options (`file_names.OPTIONS`), and
# partition values are written and read as text that does not depend on the time zone.
_ROWS: Final = {
    Use.CHECKED: {
        # Names
        "spark.sql.caseSensitive=false": "columns are not found by names that differ in case",
        # How a text is cut into tokens: conditions are read here too, to skip files.
        "spark.sql.ansi.doubleQuotedIdentifiers=false": (
            'a string in double quotes, "x", is read as a column name'
        ),
        "spark.sql.parser.escapedStringLiterals=false": (
            "backslashes in strings are read as themselves"
        ),
        "spark.sql.legacy.consecutiveStringLiterals.enabled=false": (
            "'it''s' is read as two strings"
        ),
        # How literals are compared with columns
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled=false": (
            "dates and timestamps are compared with strings as strings"
        ),
        # What is read from Parquet files
        "spark.sql.parquet.int96TimestampConversion=false": (
            "timestamps that other engines wrote are shifted by the session's time zone"
        ),
        "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing=false": (
            "structs without any of the requested fields are read as NULL"
        ),
    },
    # What is written to Parquet files
    Use.HELD_WHILE_WRITING: {
        "spark.sql.variant.writeShredding.enabled=false": (
            "variants are written in a form that readers of the table do not expect"
        ),
        "spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED": (
            "dates before 1582 are refused, or written in another calendar"
        ),
        "spark.sql.parquet.int96RebaseModeInWrite=CORRECTED": (
            "files are marked as written in another calendar"
        ),
        "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS": (
            "timestamps are written without statistics, or without microseconds"
        ),
        "spark.sql.parquet.fieldId.write.enabled=true": (
            "files of tables with column mapping lack the ids that other engines read them by"
        ),
        "spark.sql.parquet.writeLegacyFormat=false": (
            "lists and decimals are written in a form that some engines do not read"
        ),
    },
    Use.SPEED: {
        "spark.sql.sources.parallelPartitionDiscovery.threshold=1000000000": (
            "every file of a local table costs a task before it is read"
        ),
    },
}
SETTINGS: Final = tuple(
    Setting(key, value, otherwise, use)
    for use, rows in _ROWS.items()
    for assignment, otherwise in rows.items()
    for key, value in [assignment.split("=")]
)

_ANSI: Final = "spark.sql.ansi.enabled"
_ANSI_MODE: Final = Setting(
    _ANSI, "true", "numbers that do not fit are cut in the user's expressions"
)

# Settings of the driver, which have an effect only before it starts.
_LOG_LEVEL: Final = "spark.log.level"
_AT_START: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Errors are raised; their Java stack traces are logged only for those who ask for it.
    _LOG_LEVEL: "FATAL",
}


@checked
def session(
    name: str = "headgate",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session with suitable settings, or return the one that is running.

    `remote` is the address of a Spark Connect server, `sc://host:15002`. Spark logs nothing but
    fatal errors; ask for more with `config={"spark.log.level": "WARN"}`.
    """
    # Spark starts its workers with the first python3 on the path, which may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log_queries((config or {}).get(_LOG_LEVEL, "FATAL").upper() not in ("FATAL", "OFF"))
    if remote is not None:
        started: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        for key, value in (config or {}).items():
            started.conf.set(key, value)
    else:
        refuse_without_java()
        started = _builder(name, master, config or {}).getOrCreate()
    # Only those that are wrong: Spark warns about some of them whenever they are set.
    for setting in _wrong(started, [_ANSI_MODE, *SETTINGS]):
        if setting.key not in (config or {}):
            started.conf.set(setting.key, setting.value)
    return started


def _builder(name: str, master: str, config: Mapping[str, str]) -> SparkSession.Builder:
    parallelism = str(min(8, max(2, os.cpu_count() or 2)))
    # Set at the start, so that `spark.newSession()` has them too.
    written = {item.key: item.value for item in SETTINGS if item.use is not Use.CHECKED}
    settings = {"spark.sql.shuffle.partitions": parallelism, **_AT_START, **written, **config}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def check(spark: SparkSession) -> None:
    """Refuse a session whose settings would change results."""
    # Settings change between statements, so every statement calls this first.
    checked = [setting for setting in SETTINGS if setting.use is Use.CHECKED]
    if wrong := _wrong(spark, checked):
        raise InvalidArgumentError(
            "This Spark session would give other results: "
            + "; ".join(f"{item.key} is not {item.value} ({item.otherwise})" for item in wrong)
            + ".",
            remedy="Set them with spark.conf.set, or start it with headgate.spark.session().",
        )


def warn_of_slow_settings(spark: SparkSession) -> None:
    """Warn of settings that cost time."""
    for setting in _wrong(spark, [item for item in SETTINGS if item.use is Use.SPEED]):
        warnings.warn(
            f"{setting.key} is not {setting.value}: {setting.otherwise}."
            f" Set it with spark.conf.set({setting.key!r}, {setting.value!r}).",
            stacklevel=5,  # the caller that creates the Lake
        )


def _wrong(spark: SparkSession, settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that have another value, of the session or by default."""
    # Over Spark Connect every question is a round trip: ask once for all that was set.
    known: Mapping[str, str] = dict(spark.conf.getAll) if is_remote(spark) else {}
    found = [(item, known.get(item.key) or _value(spark, item.key)) for item in settings]
    # A setting that this version of Spark does not have cannot be wrong.
    known_values = [(item, value) for item, value in found if value is not None]
    return [item for item, value in known_values if value.upper() != item.value.upper()]


def _value(spark: SparkSession, key: str) -> str | None:
    try:
        return spark.conf.get(key)
    except PySparkException as error:
        if error.getCondition() != "SQL_CONF_NOT_FOUND":
            raise
        return None


def is_remote(spark: SparkSession) -> bool:
    """Whether a session speaks to a server of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def resolved(frame: DataFrame) -> DataFrame:
    """Make Spark report errors now: over Spark Connect it does so only when rows are requested."""
    if is_remote(frame.sparkSession):
        _ = frame.schema
    return frame


# Holding settings


def writing_files(spark: SparkSession) -> AbstractContextManager[None]:
    """Hold what the format of written files depends on at the values Headgate needs."""
    settings = [item for item in SETTINGS if item.use is Use.HELD_WHILE_WRITING]
    return held(spark, {item.key: item.value for item in settings})


@contextmanager
def strict_expressions(spark: SparkSession, what: str) -> Iterator[None]:
    """Resolve expressions of a table in ANSI mode, in spite of the session's setting.

    They are resolved inside this context by classic Spark. Over Spark Connect they are resolved
    later, together with the caller's own expressions: a session in another mode is refused.
    """
    if not is_remote(spark):
        with held(spark, {_ANSI: "true"}):
            yield
        return
    if (_value(spark, _ANSI) or "").lower() != "true":
        raise InvalidArgumentError(
            f"{what} are computed in ANSI mode, and {_ANSI} is not true.",
            remedy=f"Set it with spark.conf.set({_ANSI!r}, 'true').",
        )
    yield


@contextmanager
def held(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Hold settings of a session at some values, also while other threads do the same."""
    # The last of them gives the session its own values back, unless they were changed meanwhile.
    key = _identity(spark)
    with _holding:
        own = _held.setdefault(key, {})
        for name, value in values.items():
            if name not in own:
                before = _value(spark, name)
                if before is None:  # this version of Spark does not have it
                    continue
                own[name] = _Held(spark.conf.get(name, None), before.upper() != value.upper())
                if own[name].is_changed:
                    spark.conf.set(name, value)
            own[name].holders += 1
    try:
        yield
    finally:
        with _holding:
            for name, value in values.items():
                if name not in own:
                    continue
                own[name].holders -= 1
                if own[name].holders:
                    continue
                last = own.pop(name)
                if not last.is_changed or spark.conf.get(name) != value:
                    continue
                if last.before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, last.before)
            if not own:
                _held.pop(key, None)


@dataclass(slots=True)
class _Held:
    """A setting that is held, and the session's own value."""

    before: str | None  # None: the default of Spark
    is_changed: bool
    holders: int = 0


_holding: Final = threading.Lock()
_held: Final[dict[object, dict[str, _Held]]] = {}


def _identity(spark: SparkSession) -> object:
    """Return the same value for every Python object of one session."""
    # PySpark has no public name for it that classic sessions and Spark Connect share.
    return getattr(spark, "session_id", None) or spark._jsparkSession.hashCode()


def refuse_without_java() -> None:
    """Raise an error that names what to install if there is no Java, or one too old for Spark."""
    found = _java()
    version = None if found is None else _java_version(found)
    if found is None or (version is not None and version < _OLDEST_JAVA):
        what = "none is here" if found is None else f"{found} is Java {version}"
        raise UnavailableError(
            f"Spark needs Java {_OLDEST_JAVA} or later, and {what}.", remedy=_INSTALL
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.is_file() else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    try:
        reported = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "1.8.0_292" of old, "17.0.15" since.
    match = re.search(r'version "(?:1\.)?(\d+)', reported.stderr + reported.stdout)
    return int(match[1]) if match else None
