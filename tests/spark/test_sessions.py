"""Spark sessions: correct ones, errors for wrong ones, and a missing Java."""

import sys
import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import InvalidArgumentError, UnavailableError
from headgate.spark import Lake, sessions
from headgate.spark.sessions import SETTINGS, Use, refuse_without_java
from tests.spark.conftest import Water

SPEED = [setting for setting in SETTINGS if setting.use is Use.SPEED]


def test_a_session_is_made_with_every_setting_right(spark: SparkSession) -> None:
    assert {setting.use for setting in SETTINGS} == {*Use}
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    for setting in SETTINGS:
        assert spark.conf.get(setting.key) == setting.value
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.pythonExec == sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sessions.check(spark)
        sessions.warn_of_slow_settings(spark)


def test_a_setting_that_changes_results_is_refused(water: Water) -> None:
    water.spark.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(InvalidArgumentError, match=r"spark\.sql\.caseSensitive is not false"):
        Lake(water.spark, water.session)


@pytest.mark.parametrize("setting", SPEED, ids=lambda s: s.key)
def test_a_setting_that_costs_time_is_warned_about(water: Water, setting: sessions.Setting) -> None:
    water.spark.conf.set(setting.key, "32")
    with pytest.warns(UserWarning, match=f"{setting.key} is not {setting.value}") as raised:
        Lake(water.spark, water.session)
    assert len(raised) == 1
    assert raised[0].filename == __file__


def test_values_are_right_whatever_their_case(water: Water) -> None:
    water.spark.conf.set("spark.sql.caseSensitive", "FALSE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Lake(water.spark, water.session)


def test_a_session_with_the_defaults_of_spark_is_taken(water: Water) -> None:
    for setting in SETTINGS:
        if setting.use is not Use.SPEED:
            water.spark.conf.unset(setting.key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Lake(water.spark, water.session)


def test_a_setting_that_this_spark_does_not_have_is_no_fault(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = sessions.Setting("spark.sql.no.such.setting", "true", "nothing")
    held = sessions.Setting("spark.sql.no.other", "true", "nothing", Use.HELD_WHILE_WRITING)
    monkeypatch.setattr(sessions, "SETTINGS", (*SETTINGS, checked, held))
    lake = Lake(water.spark, water.session)
    lake.create("t", water.frame("SELECT 1 id"))
    assert "spark.sql.no.other" not in dict(water.spark.conf.getAll)


def test_the_session_that_runs_is_given_again(spark: SparkSession) -> None:
    assert sessions.session() is spark


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ('openjdk version "1.8.0_292"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('java version "16" 2021-03-16', 16),
    ],
)
def test_a_java_too_old_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    with pytest.raises(UnavailableError, match=f"is Java {number}") as raised:
        refuse_without_java()
    for way in ("apt install", "dnf install", "brew install"):
        assert way in raised.value.remedy


@pytest.mark.parametrize(
    "version",
    ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21-ea"', "no version at all"],
)
def test_a_java_new_enough_or_unknown_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    refuse_without_java()


def test_no_java_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(UnavailableError, match="none is here") as raised:
        refuse_without_java()
    assert "openjdk-17-jre-headless" in raised.value.remedy
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="none is here"):
        refuse_without_java()
