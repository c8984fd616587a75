"""Clustering columns: kept in a metadata domain, under the names that files have for columns."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.protocol.actions import DomainMetadata
from headgate.protocol.column_mapping import physical_name
from headgate.protocol.schema import Path, StructField, StructType

DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, frozen=True, rename="camel"):
    clustering_columns: list[list[str]]


def clustering_columns(domains: Mapping[str, DomainMetadata], schema: StructType) -> list[Path]:
    """Give the columns rows are clustered by, under the names users know."""
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return []
    try:
        told = msgspec.json.decode(domain.configuration, type=_Clustering)
    except (msgspec.MsgspecError, UnicodeError):
        return []
    return [_named(schema, path) for path in told.clustering_columns]


def _named(schema: StructType, physical: list[str]) -> Path:
    names: list[str] = []
    fields: tuple[StructField, ...] = schema.fields
    for name in physical:
        item = next((item for item in fields if physical_name(item) == name), None)
        names.append(name if item is None else item.name)
        inner = None if item is None else item.type
        fields = inner.fields if isinstance(inner, StructType) else ()
    return tuple(names)
