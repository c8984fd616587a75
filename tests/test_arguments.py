"""Arguments of public functions: what is accepted, and what a refusal says."""

from __future__ import annotations

import datetime as dt
import enum
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NewType, Protocol

import pytest

from headgate.arguments import When, checked
from headgate.errors import InvalidArgumentError

Number = NewType("Number", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Ticking(Protocol):
    def tick(self) -> int: ...


class Clock:
    def tick(self) -> int:
        return 1


@checked
def text(value: str, other: str | None = None) -> object:
    return value


@checked
def whole(value: Number) -> object:
    return value


@checked
def names(value: Iterable[str]) -> object:
    return value


@checked
def moment(value: When | None) -> object:
    return value


@checked
def mixed(
    *,
    flag: bool = False,
    seconds: float = 0.0,
    path: str | os.PathLike[str] = "",
    by_name: Mapping[str, str | int] | None = None,
    callback: Callable[[int], None] | None = None,
    colour: Colour = Colour.RED,
    ticking: Ticking | None = None,
) -> dict[str, Any]:
    return {"flag": flag, "seconds": seconds, "path": path, "by_name": by_name}


class Index:
    """An integer that is not an int, like those of numpy."""

    def __index__(self) -> int:
        return 7


def test_whole_numbers_of_other_libraries_are_accepted() -> None:
    assert whole(Index()) == 7  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63, -(2**63)])
def test_what_is_not_a_whole_number_of_64_bits_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a whole number"):
        whole(value)


def test_one_name_stands_for_a_list_of_one() -> None:
    assert names("id") == ("id",)
    assert names(name for name in ["id", "day"]) == ("id", "day")


@pytest.mark.parametrize("value", [5, b"id", {"id": 1}, ["id", 5], [None]])
def test_names_that_are_no_strings_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a list whose every item is a string"):
        names(value)


@pytest.mark.parametrize("value", ["\0", "\ud800"])
def test_a_string_that_cannot_be_stored_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be a string (without NUL|of valid)"):
        text(value)


def test_a_refusal_names_the_function_the_parameter_and_the_value() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        text("a", 5)  # type: ignore[arg-type]  # on purpose
    assert refused.value.message == "text(): other must be a string or None, not int 5."
    assert refused.value.remedy == "Pass a string or None."


def test_a_long_value_is_cut_in_a_refusal() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        whole("x" * 1000)  # type: ignore[arg-type]  # on purpose
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", ["2026-11-18", dt.date(2026, 11, 18), 5, None])
def test_every_form_of_a_moment_is_accepted(value: When | None) -> None:
    assert moment(value) == value


@pytest.mark.parametrize("value", [1.5, True, dt.timedelta(1), ["2026-11-18"]])
def test_what_is_no_moment_is_refused(value: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match="a string, a datetime, a date, a whole number or None"
    ):
        moment(value)


def test_values_that_fit_are_passed_on() -> None:
    given = {"flag": True, "seconds": 2, "path": "x", "by_name": {"a": 1, "b": "2"}}
    assert mixed(**given, callback=print, ticking=Clock()) == given  # type: ignore[arg-type]
    assert mixed(path=Path("x"))["path"] == "x"


@pytest.mark.parametrize(
    "given",
    [
        {"flag": 1},
        {"seconds": "2"},
        {"seconds": float("nan")},
        {"seconds": 10**400},
        {"path": b"x"},
        {"path": "x" * 256},
        {"path": "/x" * 2048},
        {"by_name": [("a", 1)]},
        {"by_name": {1: "a"}},
        {"by_name": {"a": None}},
        {"callback": "print"},
        {"colour": "red"},
        {"ticking": "clock"},
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"mixed\(\): {next(iter(given))} must be"):
        mixed(**given)


def test_methods_of_a_class_are_checked_and_private_ones_are_not() -> None:
    @checked
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        def buy(self, count: int) -> int:
            return self._pay(count)

        def _pay(self, count: Any) -> int:
            return int(count)

    with pytest.raises(InvalidArgumentError, match=r"^Shop\(\): name must be"):
        Shop(5)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidArgumentError, match=r"^Shop\.buy\(\): count must be"):
        Shop("corner").buy("1")  # type: ignore[arg-type]  # on purpose
    assert Shop("corner").buy(1) == 1


def test_a_missing_argument_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        text()  # type: ignore[call-arg]  # on purpose
