"""The high-water mark of row tracking: the last row id assigned, kept in a metadata domain."""

from collections.abc import Iterable

import msgspec

from headgate.protocol.actions import DomainMetadata

DOMAIN = "delta.rowTracking"
GREATEST = 2**63 - 1  # other readers use signed numbers


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    row_id_high_water_mark: int


_mark = msgspec.json.Decoder(_Mark)


def mark_in(domain: DomainMetadata) -> int | None:
    """Parse the mark; None if this is another domain, removed or malformed."""
    if domain.domain != DOMAIN or domain.removed:
        return None
    try:
        mark = _mark.decode(domain.configuration).row_id_high_water_mark
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return mark if mark <= GREATEST else None


def newest_mark(before: int | None, domains: Iterable[DomainMetadata]) -> int | None:
    """Return the mark after a commit that wrote these domains."""
    marks = [mark for mark in (before, *map(mark_in, domains)) if mark is not None]
    return max(marks, default=None)


def domain_for(mark: int) -> DomainMetadata:
    """Return the domain for a mark."""
    configuration = msgspec.json.encode(_Mark(mark)).decode()
    return DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)
