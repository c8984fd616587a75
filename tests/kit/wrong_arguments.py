"""Calls public functions with every kind of value for every parameter.

Nothing here names a method: what is public is found by looking, so a new method is swept as soon as
it exists. Required parameters that are not the one under test get a value that fits, chosen by
their name or else by their annotation.
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headgate.errors import HeadgateError, UnavailableError


class Stranger:
    """An object of a class that no code knows."""

    def __repr__(self) -> str:
        return "Stranger()"


WRONG: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    math.nan,
    decimal.Decimal(1),
    "",
    "t",
    "no such thing",
    "\0",
    "\ud800",
    "t long COMMENT '\ud800'",
    ["\ud800"],
    {"t": "\ud800"},
    {"\ud800": "long"},
    "a.b.c.d.e",
    "x" * 5000,
    b"t",
    [],
    [None],
    ["t", 5],
    {},
    {"t": object()},
    {5: "x"},
    (),
    {"t"},
    dt.date(2026, 11, 18),
    dt.datetime(2026, 11, 18),  # noqa: DTZ001 - on purpose: it has no time zone
    dt.timedelta(1),
    Path("t"),
    object(),
    Stranger(),
    Stranger,
    print,
    int,
)


def public_methods(owner: type) -> list[str]:
    """List the constructor and the public methods of a class that take arguments."""
    return [
        name
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if (name[0] != "_" or name == "__init__") and len(inspect.signature(member).parameters) > 1
    ]


def unexpected(call: Callable[..., object], samples: Mapping[str, object]) -> list[str]:
    """Call a function with every value for each parameter; list results that are not allowed.

    Allowed is any result, and any error of ours but `unavailable`.
    """
    parameters = inspect.signature(call).parameters
    required = [p for p in parameters.values() if p.default is p.empty]
    found = []
    for name, parameter in parameters.items():
        others = {p.name: _sample(p, samples) for p in required if p.name != name}
        for value in WRONG:
            if callable(value) and _takes_function(parameter):
                continue  # what a function does when it is called is its author's business
            try:
                call(**others, **{name: value})
            except HeadgateError as error:
                # An error of Python's own that was only wrapped says nothing to a user.
                if isinstance(error, UnavailableError) or _PYTHON.search(error.message):
                    found.append(f"{name}={value!r}: {error!r}")
            except Exception as error:
                found.append(f"{name}={value!r}: {error!r}")
    return found


_PYTHON = re.compile(r"object has no attribute|NoneType|not subscriptable|unsupported operand")


def _takes_function(parameter: inspect.Parameter) -> bool:
    return bool(re.search("Callable|Fill|Progress|RowCheck|Listener", str(parameter.annotation)))


def _sample(parameter: inspect.Parameter, samples: Mapping[str, object]) -> object:
    if parameter.name in samples:
        return samples[parameter.name]
    # A string in modules that defer their annotations.
    hint = getattr(parameter.annotation, "__name__", parameter.annotation)
    by_annotation: dict[str, Any] = {"str": "t", "int": 1, "bool": False}
    assert hint in by_annotation, f"give a value for {parameter} in the test's samples"
    return by_annotation[hint]
