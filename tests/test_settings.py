"""Settings: their defaults, the environment, and numbers that would stop everything."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InvalidArgumentError
from headgate.protocol.log.timestamps import DRIFT_MS, MAX_AHEAD_MS
from headgate.settings import TRANSACTION_LIMIT_BYTES, TRANSACTION_TABLES, Settings

FIELDS = dataclasses.fields(Settings)
NAMES = [field.name for field in FIELDS if isinstance(field.default, int)]
FEATURES = ["required_features", "suggested_features"]


def test_an_environment_that_says_nothing_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"PATH": "/bin", "HEADGATE_LAKE": "lake"}) == Settings()


def test_the_defaults_are_those_that_were_decided() -> None:
    chosen = Settings()
    assert (chosen.ticket_after, chosen.ticket_ms) == (3, 2_000)
    assert (chosen.inline_limit_bytes, TRANSACTION_LIMIT_BYTES) == (1 << 20, 8 << 20)
    assert (MAX_AHEAD_MS, DRIFT_MS) == (300_000, 1_000)
    assert (chosen.unpublished_soft, chosen.unpublished_hard) == (1_000, 100_000)
    assert (chosen.lease_ms, chosen.publish_on_close_ms) == (10_000, 2_000)
    assert (chosen.unpublished_wait_ms, TRANSACTION_TABLES) == (30_000, 1_000)
    assert chosen.rejections_kept_ms == 30 * 24 * 3600 * 1000


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_its_variable(name: str) -> None:
    chosen = Settings.from_environment({f"HEADGATE_{name.upper()}": "0012"})
    assert chosen == dataclasses.replace(Settings(), **{name: 12})


@pytest.mark.parametrize(
    "text",
    ["", " ", "x", "-1", "+1", "1.5", "1e3", "1_000", " 1", "1 ", "0x10", "٣", "²", "9" * 5000],
)
def test_a_bad_number_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="HEADGATE_LEASE_MS") as refused:
        Settings.from_environment({"HEADGATE_LEASE_MS": text})
    assert refused.value.remedy == "Set it to a whole number."


@given(st.text(max_size=20))
def test_whatever_the_environment_says_is_a_number_or_refused(text: str) -> None:
    try:
        chosen = Settings.from_environment({"HEADGATE_VERIFY_STAGED": text})
    except InvalidArgumentError:
        assert not text.isdigit() or not text.isascii() or len(text) > 18
    else:
        assert chosen.verify_staged == int(text)


@pytest.mark.parametrize(
    "name",
    ["publish_batch", "publish_every_ms", "unpublished_soft", "unpublished_hard", "lease_ms"],
)
def test_a_zero_that_would_stop_everything_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"{name} is 0.*1 or more"):
        Settings(**{name: 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=name):
        Settings.from_environment({f"HEADGATE_{name.upper()}": "0"})
    assert getattr(Settings(**{name: 1}), name) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_less_than_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is -1"):
        Settings(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["inline_limit_bytes", "publish_linger_ms", "listed_ms"])
def test_a_zero_that_means_something_is_taken(name: str) -> None:
    assert getattr(Settings(**{name: 0}), name) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_named_with_commas_between(name: str) -> None:
    chosen = Settings.from_environment({f"HEADGATE_{name.upper()}": "rowTracking, clustering"})
    assert getattr(chosen, name) == "rowTracking, clustering"
    assert getattr(Settings.from_environment({f"HEADGATE_{name.upper()}": ""}), name) == ""
    with pytest.raises(InvalidArgumentError, match=f"{name} is 'no features'"):
        Settings.from_environment({f"HEADGATE_{name.upper()}": "no features"})


def test_suggested_properties_are_pairs_with_commas_between() -> None:
    variable = "HEADGATE_SUGGESTED_PROPERTIES"
    pairs = "delta.a=true, my-key = two words"
    assert Settings.from_environment({variable: pairs}).suggested_properties == pairs
    assert Settings.from_environment({variable: ""}).suggested_properties == ""
    for wrong in ("delta.a", "=x", "delta.a=", "a=b=c", "a=b,", "delta a=b"):
        with pytest.raises(InvalidArgumentError, match="key=value"):
            Settings.from_environment({variable: wrong})
