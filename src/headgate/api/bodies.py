"""Bodies of the native API, beside `api.messages`: names in camel case, bytes as base64."""

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from headgate.api import messages
from headgate.api.events import Event
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


class OnePart(messages.Message, frozen=True, kw_only=True):
    """A proposal for one table, whose id is in the path."""

    txn_id: TxnId
    version: Version
    content: Inline | Staged
    scans: tuple[Scan, ...] = ()
    isolation: Isolation = Isolation.WRITE_SERIALIZABLE
    names: dict[str, TableId] = msgspec.field(default_factory=dict)

    def proposal(self, table_id: TableId) -> messages.Proposal:
        part = messages.Part(table_id=table_id, version=self.version, content=self.content)
        return messages.Proposal(
            txn_id=self.txn_id,
            parts=(part,),
            scans=self.scans,
            isolation=self.isolation,
            names=self.names,
        )


class NewNamespace(messages.Message, frozen=True, kw_only=True):
    """A namespace to create, `schema` or `catalog.schema`, and where its tables are stored."""

    name: str
    storage_root: str | None = None


class NewStagingTable(messages.Message, frozen=True, kw_only=True):
    """A request for a staging table, by default under the root of its namespace or of the lake."""

    location: str | None = None
    namespace: str | None = None


class External(messages.Message, frozen=True, kw_only=True):
    """An external table: the catalog has its name but does not manage it."""

    location: str
    format: str = "delta"
    schema_string: str | None = None  # declared columns, as Delta writes a schema


class NewTable(messages.Message, frozen=True, kw_only=True):
    """A table to register.

    With `tableId`, a staging table; with `txnId` and `first` as well, one that is created and named
    in one call; with `external`, an external table.
    """

    name: str
    table_id: TableId | None = None
    txn_id: TxnId | None = None
    first: Inline | None = None
    external: External | None = None


class TableChange(messages.Message, frozen=True, kw_only=True):
    """A new name; with the state `active`, a dropped table is undropped."""

    name: str | None = None
    state: Literal["active"] | None = None


class UpTo(messages.Message, frozen=True, kw_only=True):
    """All versions up to this one; by default, up to the latest."""

    upto: Version | None = None


class Published(messages.Message, frozen=True, kw_only=True):
    """The last published version."""

    published: Version


class Check(messages.Message, frozen=True, kw_only=True):
    """A request to check one table, or all."""

    table_id: TableId | None = None
    repair: bool = False


class Purged(messages.Message, frozen=True, kw_only=True):
    """The number of deleted files."""

    files: int


class NewName(messages.Message, frozen=True, kw_only=True):
    """A new name for a namespace within its catalog, or for a catalog: one part."""

    name: str


class Namespaces(messages.Message, frozen=True, kw_only=True):
    """The namespaces, as `catalog.schema`."""

    namespaces: tuple[str, ...]


class Tables(messages.Message, frozen=True, kw_only=True):
    """A page of tables; `next` is the parameter `after` of the next page."""

    tables: tuple[messages.TableEntry, ...]
    next: str | None = None


class ResolvedTables(messages.Message, frozen=True, kw_only=True):
    """Several tables as of one sequence: those requested by name, then those by id."""

    tables: tuple[messages.Resolved, ...]


class CommitPage(messages.Message, frozen=True, kw_only=True):
    """Ratified commits that the catalog holds, ascending; `next` begins the next page."""

    latest: Version
    commits: tuple[messages.RatifiedCommit, ...] = ()
    next: Version | None = None


class Timeline(messages.Message, frozen=True, kw_only=True):
    """The timeline of a range of commits; `next` begins the next page."""

    entries: tuple[messages.TimelineEntry, ...]
    next: Version | None = None


class AtSequence(messages.Message, frozen=True, kw_only=True):
    """A sequence."""

    sequence: Sequence


class Findings(messages.Message, frozen=True, kw_only=True):
    """The findings of a check."""

    findings: tuple[messages.Finding, ...]


class LocationList(messages.Message, frozen=True, kw_only=True):
    """The registered locations."""

    locations: tuple[LocationEntry, ...]


class EventPage(messages.Message, frozen=True, kw_only=True):
    """Events in order and without a gap; none if the time to wait is over."""

    events: tuple[Event, ...]


class NewListener(messages.Message, frozen=True, kw_only=True):
    """Where to post events; from now on, or after a sequence."""

    url: str
    after: Sequence | None = None


class ListenerList(messages.Message, frozen=True, kw_only=True):
    """All listeners with their positions."""

    listeners: tuple[ListenerEntry, ...]


class Config(messages.Message, frozen=True, kw_only=True):
    """The versions and limits of this server."""

    version: str
    api: str
    inline_limit_bytes: int
    transaction_limit_bytes: int
    commit_limit_bytes: int
    transaction_tables: int
    request_limit_bytes: int
    longest_wait_s: int


class Health(messages.Message, frozen=True, kw_only=True):
    """The server runs and can reach its store."""

    status: str
    version: str


def encode(value: object) -> bytes:
    """Encode a body."""
    return to_json(value)


def decode(raw: bytes, kind: type[Body]) -> Body:
    """Decode a body; raise MalformedError with the place of the first error."""
    try:
        if not raw.isascii():
            raw.decode()  # the decoder does not check the encoding of what it skips
        decoder: msgspec.json.Decoder[Body] = _decoder(kind)  # type: ignore[arg-type]  # types hash
        decoded = decoder.decode(raw)
        if _LONG_NUMBER.search(raw):  # maybe of an integer
            json.loads(raw, parse_int=_integer)
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(
            f"The body is not a {kind.__name__}: {error}.",
            remedy="Write the body as /openapi.json describes it.",
        ) from error


def _integer(text: str) -> int:
    """Parse an integer; refuse one of more than 64 bits, which the decoder accepts."""
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
    """Return a reference to the JSON Schema of each body, and the schemas referred to."""
    references, components = msgspec.json.schema_components(
        list(kinds),
        ref_template="#/components/schemas/{name}",
        schema_hook=lambda _: {"description": "Any JSON value."},
    )
    return list(references), components
