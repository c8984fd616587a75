"""Clustering columns, which a metadata domain lists by their physical names."""

from collections.abc import Mapping

import msgspec

from headgate.protocol.actions import DomainMetadata
from headgate.protocol.schema.column_mapping import physical_name
from headgate.protocol.schema.types import Path, StructField, StructType

DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, frozen=True, rename="camel"):
    clustering_columns: list[list[str]]


def clustering_columns(domains: Mapping[str, DomainMetadata], schema: StructType) -> list[Path]:
    """Return the clustering columns by their logical names."""
    return [_named(schema, path) for path in stored_columns(domains) or ()]


def stored_columns(domains: Mapping[str, DomainMetadata]) -> list[list[str]] | None:
    """Return the clustering columns by their physical names; None if the table has none."""
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return None
    try:
        return msgspec.json.decode(domain.configuration, type=_Clustering).clustering_columns
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _named(schema: StructType, physical: list[str]) -> Path:
    names: list[str] = []
    fields: tuple[StructField, ...] = schema.fields
    for name in physical:
        item = next((item for item in fields if physical_name(item) == name), None)
        names.append(name if item is None else item.name)
        inner = None if item is None else item.type
        fields = inner.fields if isinstance(inner, StructType) else ()
    return tuple(names)
