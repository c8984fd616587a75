"""Checks of arguments of public functions against their annotations.

`checked` decorates a function, or a class with all its public methods. A value that does not match
its annotation raises `InvalidArgumentError` before the function runs, so that other code can trust
annotations. A string is accepted for a list of strings: `partition_by="id"`.
"""

import collections.abc as abc
import enum
import functools
import inspect
import math
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import PurePath
from typing import Any, Final, TypeVar

from headgate.errors import InvalidArgumentError

Checked = TypeVar("Checked", bound=Callable[..., Any])

# ISO 8601 with a time zone, a datetime with one, a date (which begins in UTC), or milliseconds
# since 1970.
When = str | datetime | date | int

_GREATEST: Final = 2**63 - 1
_SHOWN: Final = 40  # characters of a value in an error message
_DAY_MS: Final = 86_400_000
_LONGEST_PATH: Final = 4096  # the limit of common file systems
_LONGEST_PART: Final = 255


class _Mismatch(Exception):  # noqa: N818 - never leaves this module
    """A value does not match its annotation; the text says what was expected."""


# Checks a value and returns it in the form that the function expects.
_Check = Callable[[Any], Any]


def checked(target: Checked) -> Checked:
    """Check the arguments of a function, or of the constructor and public methods of a class."""
    return _wrapped(target, _checked_function)


def checked_texts(target: Checked) -> Checked:
    """Check only that texts are valid Unicode, for classes whose callers checked the rest."""
    return _wrapped(target, _refusing_invalid_texts)


def _wrapped(target: Checked, wrap: Callable[..., Callable[..., Any]]) -> Checked:
    if not isinstance(target, type):
        return typing.cast("Checked", wrap(target))
    for name, member in list(vars(target).items()):
        if isinstance(member, types.FunctionType) and (name == "__init__" or name[0] != "_"):
            setattr(target, name, wrap(member, target))
    return target


def milliseconds(when: When) -> int:
    """Convert a moment to milliseconds since 1970."""
    if isinstance(when, int):
        return when
    if isinstance(when, str):
        when = _parse_moment(when)
    if not isinstance(when, datetime):
        return (when - date(1970, 1, 1)).days * _DAY_MS
    if when.tzinfo is None:
        raise InvalidArgumentError(
            f"{when.isoformat()} has no time zone.", remedy="Write it like 2026-03-01T00:00:00Z."
        )
    # With integers: a float of seconds loses the milliseconds.
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * _DAY_MS + since.seconds * 1000 + since.microseconds // 1000


def refuse_several(**values: object) -> None:
    """Raise if more than one of these arguments was passed."""
    if sum(value is not None for value in values.values()) > 1:
        names = ", ".join(f"`{name}`" for name in values)
        raise InvalidArgumentError(
            f"The call has more than one of {names}.", remedy="Pass only one of them."
        )


def _parse_moment(text: str) -> datetime | date:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(text)
        except ValueError:
            continue
    raise InvalidArgumentError(
        f"{text!r} is not a date or time.",
        remedy="Write it like 2026-03-01T00:00:00Z, or 2026-03-01 for the start of the day in UTC.",
    )


def shown(value: object) -> str:
    """Describe a value for an error message: its type, and the value if it is short."""
    name = type(value).__name__
    if isinstance(value, str | int | float | bool | date):
        text = repr(value)
        return f"{name} {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'}"
    return "None" if value is None else name


# Functions


def _checked_function(
    function: types.FunctionType, owner: type | None = None
) -> Callable[..., Any]:
    signature = inspect.signature(function)
    names = list(signature.parameters)
    label = _label(function, owner)

    @functools.cache  # lazily: annotations may refer to names defined later in the module
    def checks() -> dict[str, _Check]:
        return {name: _check_of(hint) for name, hint in _hints(function, names).items()}

    def check(name: str, value: Any) -> Any:
        check_value = checks().get(name)
        if check_value is None or value is signature.parameters[name].default:
            return value
        try:
            return check_value(value)
        except _Mismatch as mismatch:
            raise InvalidArgumentError(
                f"{label}(): {name} must be {mismatch}, not {shown(value)}.",
                remedy=f"Pass {mismatch}.",
            ) from None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        positional = [check(name, value) for name, value in zip(names, args, strict=False)]
        named = {
            name: check(name, value) if name in signature.parameters else value
            for name, value in kwargs.items()
        }
        # Not another wrapper: warnings count the frames between them and the caller.
        try:
            return function(*positional, *args[len(positional) :], **named)
        except UnicodeEncodeError as error:
            raise _invalid_text(error, label) from None

    return call


def _refusing_invalid_texts(
    function: types.FunctionType, owner: type | None = None
) -> Callable[..., Any]:
    """Refuse a text that cannot be encoded, wherever it is in the arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UnicodeEncodeError as error:
            raise _invalid_text(error, _label(function, owner)) from None

    return call


def _invalid_text(error: UnicodeEncodeError, label: str) -> Exception:
    if error.reason != "surrogates not allowed":
        return error
    return InvalidArgumentError(
        f"{label}(): {shown(error.object)} is not valid Unicode.", remedy="Remove lone surrogates."
    )


def _label(function: types.FunctionType, owner: type | None) -> str:
    if owner is None:
        return function.__name__
    is_constructor = function.__name__ == "__init__"
    return owner.__name__ if is_constructor else f"{owner.__name__}.{function.__name__}"


def _hints(function: types.FunctionType, names: Iterable[str]) -> dict[str, Any]:
    """Evaluate the annotations of parameters only; that of the result may not be importable."""
    annotations = function.__annotations__
    selected = {name: annotations[name] for name in names if name in annotations}
    holder = types.SimpleNamespace(__annotations__=selected)
    return typing.get_type_hints(holder, function.__globals__)


# Annotations


def _check_of(hint: Any) -> _Check:
    if isinstance(hint, typing.NewType):
        return _check_of(hint.__supertype__)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if any(typing.get_origin(member) is os.PathLike for member in arguments):
            return _path
        return _any_of([_check_of(member) for member in arguments])
    if origin is abc.Callable:
        return _require(callable, "a function")
    if origin is abc.Mapping:
        return _mapping(*map(_check_of, arguments))
    if origin in (abc.Iterable, abc.Sequence, abc.Collection, tuple):
        return _items(_check_of(arguments[0]), one_is_many=arguments[0] is str)
    if isinstance(hint, type):
        return _instance(hint)
    raise TypeError(f"cannot check arguments annotated with {hint!r}")


def _any_of(members: Sequence[_Check]) -> _Check:
    def check(value: Any) -> Any:
        expected: list[str] = []
        for member in members:
            try:
                return member(value)
            except _Mismatch as mismatch:
                expected.append(str(mismatch))
        # None goes last in the message; sentinels are left out.
        expected.sort(key="None".__eq__)
        raise _Mismatch(_either(filter(None, dict.fromkeys(expected))))

    return check


def _mapping(key: _Check, item: _Check) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _Mismatch("a dict")
        try:
            return {key(name): item(element) for name, element in value.items()}
        except _Mismatch as mismatch:
            raise _Mismatch(f"a dict whose every key or value is {mismatch}") from None

    return check


def _items(item: _Check, *, one_is_many: bool) -> _Check:
    def check(value: Any) -> Any:
        if isinstance(value, str) and one_is_many:
            return (item(value),)
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise _Mismatch(_listed(item))
        try:
            return tuple(map(item, value))
        except _Mismatch as mismatch:
            raise _Mismatch(_list_of(mismatch)) from None

    return check


def _listed(item: _Check) -> str:
    try:
        item(_NOTHING)
    except _Mismatch as mismatch:
        return _list_of(mismatch)
    return "a list"


def _list_of(mismatch: _Mismatch) -> str:
    return f"a list whose every item is {mismatch}"


def _instance(kind: type) -> _Check:
    if getattr(kind, "_is_protocol", False):
        members = [name for name in vars(kind) if name[0] != "_" or name == "__call__"]
        expected = "a function" if members == ["__call__"] else f"a {kind.__name__}"
        return _require(lambda value: all(hasattr(value, name) for name in members), expected)
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    expected = f"{article} {kind.__name__}"
    if issubclass(kind, enum.Enum):
        is_sentinel = len(kind) == 1
        expected = (
            "" if is_sentinel else _either(f"{kind.__name__}.{member.name}" for member in kind)
        )
    return _require(
        lambda value: isinstance(value, kind) or _is_connect_class(value, kind), expected
    )


def _is_connect_class(value: Any, kind: type) -> bool:
    """Return True for a PySpark class of the same name: Spark Connect has its own classes."""
    packages = {cls.__module__.partition(".")[0] for cls in (type(value), kind)}
    return type(value).__name__ == kind.__name__ and packages == {"pyspark"}


def _require(holds: Callable[[Any], bool], expected: str) -> _Check:
    def check(value: Any) -> Any:
        if not holds(value):
            raise _Mismatch(expected)
        return value

    return check


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _Mismatch("a string")
    if "\0" in value:  # invalid in paths and in texts of PostgreSQL
        raise _Mismatch("a string without NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Mismatch("a string of valid Unicode") from None
    return value


def _whole(value: Any) -> int:
    try:
        number = operator.index(value)  # accepts integers of numpy, too
    except TypeError:
        raise _Mismatch("a whole number") from None
    if isinstance(value, bool):
        raise _Mismatch("a whole number")
    if abs(number) > _GREATEST:
        raise _Mismatch("a whole number of at most 64 bits")
    return number


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Mismatch("a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Mismatch("a finite number")
    return number


def _path(value: Any) -> str:
    """Check a path or an address."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise _Mismatch("a string or a path")
    text = _string(text)
    parts = () if "://" in text else PurePath(text).parts
    if len(text) >= _LONGEST_PATH or any(len(os.fsencode(part)) > _LONGEST_PART for part in parts):
        raise _Mismatch(f"a path whose every part has at most {_LONGEST_PART} bytes")
    return text


def _either(expected: Iterable[str]) -> str:
    *most, last = expected
    return f"{', '.join(most)} or {last}" if most else last


_NOTHING: Final = object()
_SIMPLE: Final[Mapping[Any, _Check]] = {
    Any: _require(lambda value: True, "anything"),
    object: _require(lambda value: True, "anything"),
    str: _string,
    int: _whole,
    float: _number,
    bool: _require(lambda value: isinstance(value, bool), "True or False"),
    type(None): _require(lambda value: value is None, "None"),
    datetime: _require(lambda value: isinstance(value, datetime), "a datetime"),
    date: _require(lambda value: isinstance(value, date), "a date"),
}
