"""Row tracking's high-water mark: the last row id given out, kept in a metadata domain."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headgate.protocol.actions import DomainMetadata

DOMAIN = "delta.rowTracking"
GREATEST = 2**63 - 1  # other readers use signed numbers


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    row_id_high_water_mark: int


_mark = msgspec.json.Decoder(_Mark)


def mark_in(domain: DomainMetadata) -> int | None:
    """Read the mark; None if this domain holds none, or nothing that can be read."""
    if domain.domain != DOMAIN or domain.removed:
        return None
    try:
        mark = _mark.decode(domain.configuration).row_id_high_water_mark
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return mark if mark <= GREATEST else None


def newest_mark(before: int | None, domains: Iterable[DomainMetadata]) -> int | None:
    """Give the mark after a commit that wrote these domains."""
    marks = [mark for mark in (before, *map(mark_in, domains)) if mark is not None]
    return max(marks, default=None)


def domain_for(mark: int) -> DomainMetadata:
    """Write the mark."""
    configuration = msgspec.json.encode(_Mark(mark)).decode()
    return DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)
