"""Parse and encode `add.stats`; statistics that cannot be parsed count as missing."""

import json
from decimal import Decimal, InvalidOperation

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.actions import AddFile

NOT_GIVEN = msgspec.Raw()
# Raised for statistics that cannot be parsed.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation)


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of `add.stats`, nested like the schema. Numbers with a point are exact."""

    num_records: int | None = None
    min_values: dict[str, object] | None = None
    max_values: dict[str, object] | None = None
    null_count: dict[str, object] | None = None


NO_STATISTICS = Statistics()


class Bounds(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The part of a file's statistics that conflict checks need; values are not decoded."""

    num_records: int | None = None
    min_values: msgspec.Raw = NOT_GIVEN
    max_values: msgspec.Raw = NOT_GIVEN


NO_BOUNDS = Bounds()

decode_bounds = msgspec.json.Decoder(Bounds, strict=False).decode  # or raises one of UNREADABLE
# Decimals would lose digits as floats.
_statistics = msgspec.json.Decoder(Statistics, float_hook=Decimal, strict=False)
_values = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


def parse_statistics(text: str | None) -> Statistics:
    """Parse `add.stats`; return empty statistics if that fails."""
    if not text:
        return NO_STATISTICS
    try:
        return _statistics.decode(text)
    except UNREADABLE:
        return NO_STATISTICS


def statistics_text(values: object) -> str:
    """Encode the content of `add.stats`; decimals are numbers with all their digits."""
    return _exact.encode(values).decode()


_exact = msgspec.json.Encoder(decimal_format="number")


def bounds_of(file: AddFile) -> Bounds:
    """Parse a file's bounds; return empty ones if that fails."""
    try:
        return NO_BOUNDS if file.stats is None else decode_bounds(file.stats)
    except UNREADABLE:
        return NO_BOUNDS


def parse_values(raw: msgspec.Raw | bytes | None) -> dict[str, object] | None:
    """Parse `minValues` or `maxValues`; return None if that fails."""
    if raw is None:
        return None
    try:
        return _values.decode(bytes(raw))
    except UNREADABLE:
        return None


def with_loose_bounds(text: str) -> str:
    """Set `tightBounds` to false in a file's statistics; everything else is kept as written."""
    try:
        members = _members.decode(text)
    except UNREADABLE:
        return text
    members["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(members).decode()


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def num_records(add: AddFile) -> int | None:
    """Return the number of rows in a file by its statistics, deleted rows included."""
    if add.stats is None:
        return None
    try:
        count = json.loads(add.stats).get("numRecords")
    except (ValueError, AttributeError) as error:
        raise MalformedError(f"The statistics of {add.path} cannot be read: {error}.") from error
    return count if isinstance(count, int) else None
