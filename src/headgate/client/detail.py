"""A summary of a table, as in DESCRIBE DETAIL."""

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.protocol import features
from headgate.protocol.clustering import clustering_columns
from headgate.protocol.schema.alteration import dotted
from headgate.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A table at one version. Sizes count the files of that version, not of its history."""

    format: str
    id: str
    name: str
    description: str | None
    location: str
    created_ms: int | None
    last_modified_ms: int | None
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    num_files: int
    size_in_bytes: int
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    table_features: tuple[str, ...]


def detail_of(snapshot: Snapshot, name: str) -> TableDetail:
    """Describe a snapshot of a table; `name` is its current name."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    clustered = clustering_columns(snapshot.domains, snapshot.schema)
    return TableDetail(
        format="delta",
        id=metadata.id,
        name=name,
        description=metadata.description,
        location=snapshot.location,
        created_ms=metadata.created_time,
        last_modified_ms=snapshot.timestamp_ms,
        partition_columns=snapshot.partition_columns,
        clustering_columns=tuple(dotted(path) for path in clustered),
        num_files=snapshot.num_files,
        size_in_bytes=snapshot.size_in_bytes,
        properties=dict(snapshot.properties),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        table_features=tuple(sorted(features.effective(protocol))),
    )
