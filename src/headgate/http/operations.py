"""Operations of the server, as rows of data.

Each function that carries out an operation is declared with a decorator of an `Operations`. Routes,
metrics and the OpenAPI document are made from these rows, so they cannot disagree: an operation has
the name of its function and the first line of its docstring as summary; its parameter `body` and
its result are its bodies.
"""

from __future__ import annotations

import enum
import functools
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from headgate.api.port import Ref
from headgate.api.problems import Problem
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.service import Catalog
from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.http.async_answers import PendingAnswer
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.protocol.table_states import parse_table_id
from headgate.settings import Settings

_LARGEST = (1 << 63) - 1

Handler = TypeVar("Handler", bound=Callable[..., object])
Finish = Callable[[Any], object]


class NeedsMemoryError(Exception):
    """The memory for a response must be reserved before the response is made."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    description: str
    kind: Literal["string", "integer", "boolean"] = "integer"
    is_repeated: bool = False


class Pool(enum.Enum):
    """Thread pools, separate so that slow operations do not delay fast ones."""

    READS = "reads"
    CHANGES = "changes"  # may read and write storage
    PROPOSALS = "proposals"  # those that cannot be queued for the ratifier directly


@dataclass(slots=True)  # not frozen: that would make it slow to create, for every request
class Call:
    """A decoded request."""

    catalog: Catalog
    settings: Settings
    path: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: Any = None
    raw: bytes = b""  # the body before it is decoded
    key: RequestKey | None = None
    request_id: str = ""
    agent: str = ""  # the client's User-Agent
    reserved: int = 0  # bytes of the store that the response may be made from

    def reserve(self, size: int) -> None:
        """Return if this much memory is reserved for the response.

        Raises `NeedsMemoryError` otherwise; the operation is then repeated with more.
        """
        if size > self.reserved:
            # Doubled: a size that is discovered in small steps must not cause a repetition each.
            raise NeedsMemoryError(max(size, 2 * self.reserved))

    @property
    def table_id(self) -> TableId:
        return parse_table_id(self.path["tableId"])

    def text(self, name: str) -> str | None:
        values = self.query.get(name)
        return values[-1] if values else None

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        # The length is checked first: converting thousands of digits would be slow.
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
        if not is_number or int(text) > _LARGEST:
            raise InvalidArgumentError(
                f"The parameter {name} is {text[:40]!r}.", remedy="Write a whole number."
            )
        return int(text)

    def truth(self, name: str) -> bool:
        text = self.text(name)
        if text not in (None, "true", "false"):
            raise InvalidArgumentError(
                f"The parameter {name} is {text[:40]!r}.", remedy="Write true or false."
            )
        return text == "true"

    def version(self, name: str) -> Version | None:
        number = self.number(name)
        return None if number is None else Version(number)

    def sequence(self, name: str) -> Sequence | None:
        number = self.number(name)
        return None if number is None else Sequence(number)

    def refs(self) -> list[Ref]:
        """Return the tables that the query names: first those by name, then those by id."""
        return [
            *map(TableName.parse, self.query.get("name", ())),
            *map(parse_table_id, self.query.get("tableId", ())),
        ]

    def namespace(self) -> SchemaName | None:
        text = self.text("namespace")
        return None if text is None else SchemaName.parse(text)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the server."""

    method: str
    path: str
    name: str
    summary: str
    do: Callable[..., object]
    answer: Any  # None: 204, without a body
    body: Any  # None: without a body
    pool: Pool
    query: tuple[Parameter, ...] = ()
    problems: tuple[str, ...] = ()  # codes besides those that every operation may answer
    # Queues the request for another thread, which gives the answer; returns how that becomes a
    # body, or None if the request must be carried out in the pool instead.
    enqueue: Callable[[Call, PendingAnswer], Finish | None] | None = None
    # In the pool, if the outcome of a queued request is unknown or there is no body for it.
    asks_again: bool = False
    # Encodes an error as a status and a body; None: as a problem document.
    encode_error: Callable[[HeadgateError], tuple[int, bytes]] | None = None
    reads_body: bool = False  # although it is a GET

    @property
    def is_changing(self) -> bool:
        return self.method not in ("GET", "HEAD")

    def carry_out(self, call: Call) -> object:
        """Return the answer to a decoded request."""
        return self.do(call) if self.body is None else self.do(call, call.body)


class Operations:
    """The operations of one API, in the order of their declarations."""

    def __init__(self, prefix: str = "", name_prefix: str = "", **defaults: Any) -> None:
        self._prefix = prefix
        self._name_prefix = name_prefix
        self._defaults = defaults
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def add(self, method: str, path: str, **more: Any) -> Callable[[Handler], Handler]:
        """Declare the decorated function as an operation; `more` are fields of `Operation`."""

        def declare(do: Handler) -> Handler:
            hints = typing.get_type_hints(do)
            fields = {
                "answer": _answer(hints["return"]),
                "body": hints.get("body"),
                "pool": Pool.READS if method == "GET" else Pool.CHANGES,
                **self._defaults,
                **more,
            }
            name = f"{self._name_prefix}{do.__name__}"
            summary = (do.__doc__ or "").partition("\n")[0]
            operation = Operation(method, f"{self._prefix}{path}", name, summary, do, **fields)
            self._operations.append(operation)
            return do

        return declare


def _answer(result: Any) -> Any:
    """Return the body that a result of a function is sent as, unless it is a problem."""
    kinds = [kind for kind in typing.get_args(result) or (result,) if kind is not Problem]
    answer = functools.reduce(operator.or_, kinds)
    return None if answer is type(None) else answer
