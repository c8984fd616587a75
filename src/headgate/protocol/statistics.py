"""What `add.stats` says of a file: read in whole, or only as far as a commit is judged by it.

Statistics that cannot be read are none: any row may then be in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import msgspec

from headgate.errors import MalformedError
from headgate.protocol.actions import AddFile

NOT_GIVEN = msgspec.Raw()
# What reading statistics may end in.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation)

Values = Mapping[str, object]  # bounds or counts as JSON has them, nested like the schema


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `add.stats` says of a file. Numbers with a point are kept to their last digit."""

    num_records: int | None = None
    tight_bounds: bool | None = None
    min_values: dict[str, object] | None = None
    max_values: dict[str, object] | None = None
    null_count: dict[str, object] | None = None


class Bounds(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of a file's statistics, what a commit is judged and remembered by; values undecoded."""

    num_records: int | None = None
    min_values: msgspec.Raw = NOT_GIVEN
    max_values: msgspec.Raw = NOT_GIVEN


NO_BOUNDS = Bounds()

decode_bounds = msgspec.json.Decoder(Bounds, strict=False).decode  # or raises one of UNREADABLE
# Decimals would lose digits as floats.
_statistics = msgspec.json.Decoder(Statistics, float_hook=Decimal, strict=False)
_values = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


def parse_statistics(text: str | None) -> Statistics:
    """Read `add.stats`; statistics that cannot be read are none."""
    if not text:
        return Statistics()
    try:
        return _statistics.decode(text)
    except UNREADABLE:
        return Statistics()


def bounds_of(file: AddFile) -> Bounds:
    """Read a file's bounds; those nobody can read are none, so any row may be in the file."""
    try:
        return NO_BOUNDS if file.stats is None else decode_bounds(file.stats)
    except UNREADABLE:
        return NO_BOUNDS


def parse_values(raw: msgspec.Raw | bytes | None) -> Values | None:
    """Read `minValues` or `maxValues` alone; None if they cannot be read."""
    if raw is None:
        return None
    try:
        return _values.decode(bytes(raw))
    except UNREADABLE:
        return None


def with_loose_bounds(text: str) -> str:
    """Say of a file's statistics that rows at the bounds may be gone; all else stays as spelled."""
    try:
        members = _members.decode(text)
    except UNREADABLE:
        return text
    members["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(members).decode()


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def num_records(add: AddFile) -> int | None:
    """Give the number of rows in a file as its statistics tell it, deleted ones included."""
    if add.stats is None:
        return None
    try:
        found = json.loads(add.stats).get("numRecords")
    except (ValueError, AttributeError) as error:
        raise MalformedError(f"The statistics of {add.path} cannot be read: {error}.") from error
    return found if isinstance(found, int) else None
