"""What `add.stats` says of a file: read in whole, or only as far as a commit is judged by it.

Statistics that cannot be read are none: any row may then be in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

import msgspec

Values = Mapping[str, object]  # bounds or counts as JSON has them, nested like the schema


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `add.stats` says of a file. Numbers with a point are kept to their last digit."""

    num_records: int | None = None
    tight_bounds: bool | None = None
    min_values: dict[str, object] | None = None
    max_values: dict[str, object] | None = None
    null_count: dict[str, object] | None = None


# Decimals would lose digits as floats.
_statistics = msgspec.json.Decoder(Statistics, float_hook=Decimal, strict=False)
_values = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


def parse_statistics(text: str | None) -> Statistics:
    """Read `add.stats`; statistics that cannot be read are none."""
    if not text:
        return Statistics()
    try:
        return _statistics.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation):
        return Statistics()


def parse_values(raw: msgspec.Raw | bytes | None) -> Values | None:
    """Read `minValues` or `maxValues` alone; None if they cannot be read."""
    if raw is None:
        return None
    try:
        return _values.decode(bytes(raw))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidOperation):
        return None
