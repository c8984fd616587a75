"""What a server can be asked, as rows of data.

An `Operation` names its path, its bodies and the function that carries it out. Routes, limits,
metrics and the OpenAPI document are made from the same rows, so they cannot disagree.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headgate.api.port import Ref
from headgate.catalog.idempotency import RequestKey
from headgate.catalog.service import Catalog
from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.http.async_answers import Coming
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import Sequence, TableId, Version
from headgate.protocol.table_states import parse_table_id

_LARGEST = (1 << 63) - 1


class NeedsMemoryError(Exception):
    """A response has to be made whose size is not yet reserved."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Kind(enum.Enum):
    """How a parameter is written."""

    TEXT = "string"
    NUMBER = "integer"
    TRUTH = "boolean"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query."""

    name: str
    says: str
    kind: Kind = Kind.NUMBER
    is_repeated: bool = False


class Pool(enum.Enum):
    """Who carries an operation out, so that slow ones do not hold up quick ones."""

    READS = "reads"
    CHANGES = "changes"  # they may read and write storage
    PROPOSALS = "proposals"  # those that cannot go straight into the ratifier's queue


@dataclass(slots=True)  # not frozen: one is made for each request, and that would cost the most
class Call:
    """One request, understood."""

    catalog: Catalog
    path: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: Any = None
    raw: bytes = b""  # the body as it came
    key: RequestKey | None = None
    principal: str | None = None
    request_id: str = ""
    agent: str = ""  # what the client calls itself
    reserved: int = 0  # bytes of the store that the response may be made of

    def reserve(self, size: int) -> None:
        """Go on if so many bytes are reserved for the response; else raise, to come again."""
        if size > self.reserved:
            # Where the size is found out bit by bit, it must not come again for each bit.
            raise NeedsMemoryError(max(size, 2 * self.reserved))

    @property
    def table_id(self) -> TableId:
        return parse_table_id(self.path["tableId"])

    def text(self, name: str) -> str | None:
        values = self.query.get(name)
        return values[-1] if values else None

    def texts(self, name: str) -> list[str]:
        return self.query.get(name, [])

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        # Not longer than the largest: a number of thousands of digits is not even converted.
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
        """Give the tables that the query names, by name or by id, in their order."""
        return [
            *(TableName.parse(name) for name in self.texts("name")),
            *(parse_table_id(table_id) for table_id in self.texts("tableId")),
        ]

    def namespace(self) -> SchemaName | None:
        text = self.text("namespace")
        return None if text is None else SchemaName.parse(text)


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked, and how it is answered."""

    method: str
    path: str
    name: str  # as the OpenAPI document and the metrics call it
    says: str
    do: Callable[[Call], object | Future[Any]]
    answer: Any = None  # None: 204, nothing to say
    body: Any = None
    query: tuple[Parameter, ...] = ()
    pool: Pool = Pool.READS
    # Straight into the queue, with the answer to come; no if it has to wait for something.
    soon: Callable[[Call, Coming], bool] | None = None
    then: Callable[[Call, Any], object] | None = None  # makes a body of what came
    problems: tuple[str, ...] = field(default=())  # codes beyond those anything can answer
    # How a dialect says an error, as a status and a body; None: as a problem document.
    refused: Callable[[HeadgateError], tuple[int, bytes]] | None = None
    reads_body: bool = False  # although it is a GET

    @property
    def is_changing(self) -> bool:
        return self.method not in ("GET", "HEAD")
