"""Request and response bodies of the native API.

Most of what travels are the messages of `api.port` themselves; here is the rest, and
the one door through which bytes become bodies. Names are the spec's, in camel case; bytes are
base64.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

from headgate.api.events import Event
from headgate.api.messages import (
    Finding,
    Part,
    Proposal,
    RatifiedCommit,
    Resolved,
    TableEntry,
    TimelineEntry,
)
from headgate.api.status import ListenerEntry, LocationEntry
from headgate.errors import MalformedError
from headgate.protocol.actions import Sequence, TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Isolation, Scan
from headgate.protocol.commit.content import Inline, Staged
from headgate.protocol.encoding import to_json

Body = TypeVar("Body")

JSON = "application/json"
PROBLEM = "application/problem+json"
KEY_HEADER = "idempotency-key"
REQUEST_HEADER = "x-request-id"
_DIGITS = len(str(-(1 << 63)))
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class OnePart(_Body, frozen=True, kw_only=True):
    """A proposal for one table, which the path names."""

    txn_id: TxnId
    version: Version
    content: Inline | Staged
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE

    def proposal(self, table_id: TableId) -> Proposal:
        """Say it as a proposal over many tables: this is the case of one."""
        part = Part(table_id=table_id, version=self.version, content=self.content)
        return Proposal(
            txn_id=self.txn_id, parts=(part,), scans=self.scans, isolation=self.isolation
        )


class NewNamespace(_Body, frozen=True, kw_only=True):
    """A namespace to create, `schema` or `catalog.schema`, and where its tables are stored."""

    name: str
    storage_root: str | None = None


class NewStagingTable(_Body, frozen=True, kw_only=True):
    """A request for an id and a location; without a location the catalog chooses.

    It chooses the storage root of the namespace, if that has one.
    """

    location: str | None = None
    namespace: str | None = None


class External(_Body, frozen=True, kw_only=True):
    """A table the catalog names and does not manage."""

    location: str
    format: str = "delta"
    schema_string: str | None = None  # declared columns, as Delta writes a schema


class NewTable(_Body, frozen=True, kw_only=True):
    """A table to be registered.

    A staging table by its id; with `txnId` and `first`, made and named in one call; with
    `external`, one that lies somewhere already.
    """

    name: str
    table_id: TableId | None = None
    txn_id: TxnId | None = None
    first: Inline | None = None
    external: External | None = None


class Wanted(enum.Enum):
    """States a table can be asked to be in."""

    ACTIVE = "active"


class TableChange(_Body, frozen=True, kw_only=True):
    """Another name; with the state `active`, a dropped table comes back."""

    name: str | None = None
    state: Wanted | None = None


class UpTo(_Body, frozen=True, kw_only=True):
    """A version and all before it; none: the latest."""

    upto: Version | None = None


class Published(_Body, frozen=True, kw_only=True):
    """The last published version."""

    published: Version


class Check(_Body, frozen=True, kw_only=True):
    """What to hold against the log: one table, or all."""

    table_id: TableId | None = None
    repair: bool = False


class Purged(_Body, frozen=True, kw_only=True):
    """How many files went."""

    files: int


class NewName(_Body, frozen=True, kw_only=True):
    """Another name for a namespace within its catalog, or for a catalog: one part."""

    name: str


class Namespaces(_Body, frozen=True, kw_only=True):
    """The namespaces, as `catalog.schema`."""

    namespaces: tuple[str, ...]


class Tables(_Body, frozen=True, kw_only=True):
    """A page of tables; `next` asks for the one after it."""

    tables: tuple[TableEntry, ...]
    next: str | None = None


class ResolvedTables(_Body, frozen=True, kw_only=True):
    """Several tables as of one sequence, in the order they were asked for."""

    tables: tuple[Resolved, ...]


class CommitPage(_Body, frozen=True, kw_only=True):
    """Ratified commits still held, ascending and contiguous; `next` is the first of the others."""

    latest: Version
    commits: tuple[RatifiedCommit, ...] = ()
    next: Version | None = None


class Timeline(_Body, frozen=True, kw_only=True):
    """The life of each commit of a range; `next` is the first of the others."""

    entries: tuple[TimelineEntry, ...]
    next: Version | None = None


class AtSequence(_Body, frozen=True, kw_only=True):
    """A cut."""

    sequence: Sequence


class Findings(_Body, frozen=True, kw_only=True):
    """What a check found."""

    findings: tuple[Finding, ...]


class Locations(_Body, frozen=True, kw_only=True):
    """The registered locations."""

    locations: tuple[LocationEntry, ...]


class EventPage(_Body, frozen=True, kw_only=True):
    """Events in order and without a gap; none: nothing happened while it was waited for."""

    events: tuple[Event, ...]


class NewListener(_Body, frozen=True, kw_only=True):
    """Where to post events; from now on, unless `after` names a sequence."""

    url: str
    after: Sequence | None = None


class ListenerList(_Body, frozen=True, kw_only=True):
    """Who is told, and how far each one is."""

    listeners: tuple[ListenerEntry, ...]


class Config(_Body, frozen=True, kw_only=True):
    """What this server speaks, and its limits."""

    version: str
    api: str
    inline_limit_bytes: int
    transaction_limit_bytes: int
    commit_limit_bytes: int
    transaction_tables: int
    request_limit_bytes: int
    longest_wait_s: int


class Health(_Body, frozen=True, kw_only=True):
    """Alive, and able to reach the store."""

    status: str
    version: str


def encode(value: object) -> bytes:
    """Write a body."""
    return to_json(value)


def decode(raw: bytes, kind: type[Body]) -> Body:
    """Read a body; what is not one is malformed, and the place is named."""
    try:
        if not raw.isascii():
            raw.decode()  # what the decoder skips it does not look at, and it must be UTF-8 too
        decoder: msgspec.json.Decoder[Body] = _decoder(kind)  # type: ignore[arg-type]  # types hash
        decoded = decoder.decode(raw)
        if _LONG_NUMBER.search(raw):  # in content and in names, too, so the numbers are looked at
            json.loads(raw, parse_int=_integer)
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(
            f"The body is not a {kind.__name__}: {error}.",
            remedy="Write the body as /openapi.json says.",
        ) from error


def _integer(text: str) -> int:
    """Read an integer; refuse one that no database holds, as the decoder does not."""
    if len(text) > _DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
        raise MalformedError(
            f"The body has the integer {text[:40]}, which does not fit into 64 bits.",
            remedy="Write integers from -2^63 to 2^63 - 1.",
        )
    return int(text)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def schemas(kinds: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Describe bodies as JSON Schema: one reference each, and what they refer to."""
    references, components = msgspec.json.schema_components(
        list(kinds),
        ref_template="#/components/schemas/{name}",
        schema_hook=lambda _: {"description": "Whatever JSON can say."},
    )
    return list(references), components
