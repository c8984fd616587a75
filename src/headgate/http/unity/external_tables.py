"""Tables whose log is not ours: what clients declare of them, and how that changes.

No content tells what such a table is, so what is declared is kept as it is, and told again: whoever
reads a CSV file by its name needs its options. What clients read off a managed table's log, as
`delta.feature.*`, stands among the properties here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.catalog.tables import ExternalTable
from headgate.errors import InvalidArgumentError
from headgate.http.unity import bodies, columns, table_views
from headgate.protocol import clustering, features
from headgate.protocol.actions import Metadata
from headgate.protocol.commit import row_ids
from headgate.protocol.encoding import replaced, to_json
from headgate.protocol.schema import types as schemas

_READER: Final = "delta.minReaderVersion"
_WRITER: Final = "delta.minWriterVersion"
_CLUSTERING: Final = "clusteringColumns"
_VERSION: Final = "delta.lastUpdateVersion"
_TIMESTAMP: Final = "delta.lastCommitTimestamp"
_MANAGED: Final = f"{features.ASKING}{features.CATALOG_MANAGED}"
# As the contract has them applied: what comes later may name what came before.
_ORDER: Final = (
    bodies.AddCommit,
    bodies.SetPublished,
    bodies.SetColumns,
    bodies.SetPartitionColumns,
    bodies.SetProtocol,
    bodies.SetProperties,
    bodies.RemoveProperties,
    bodies.SetDomainMetadata,
    bodies.RemoveDomainMetadata,
    bodies.SetTableComment,
    bodies.SetSnapshotVersion,
)


def wanted(body: bodies.OlderNewTable) -> ExternalTable:
    """Read what is declared of a new table."""
    given = body.columns or ()
    schema = columns.declared(given)
    return ExternalTable(
        location=body.storage_location,
        format=body.data_source_format.lower(),
        schema_string=schemas.to_json(schema) if schema.fields else None,
        comment=body.comment,
        partition_columns=tuple(columns.partitions(given)),
        properties=_unmanaged(_said(body.properties or {})),
    )


def changed(metadata: Metadata, updates: Iterable[bodies.Update]) -> Metadata:
    """Give what is declared of a table after some updates, at most one of a kind."""
    for update in sorted(updates, key=lambda update: _ORDER.index(type(update))):
        metadata = _after(metadata, update)
    _unmanaged(metadata.configuration)
    return metadata


def _after(metadata: Metadata, update: bodies.Update) -> Metadata:
    properties = metadata.configuration
    match update:
        case bodies.AddCommit() | bodies.SetPublished():
            raise InvalidArgumentError(
                "The table is not managed: nothing is committed to it here.",
                remedy="Write its log where it lies.",
            )
        case bodies.SetColumns(columns=new_columns):
            schema_string = schemas.to_json(columns.from_kebab(new_columns))
            names = _names(schema_string)
            kept = [name for name in metadata.partition_columns if name in names]
            return replaced(metadata, schema_string=schema_string, partition_columns=kept)
        case bodies.SetPartitionColumns(partition_columns=wanted_names):
            if not _names(metadata.schema_string).issuperset(wanted_names):
                raise InvalidArgumentError("A partition column is no column.", remedy="")
            return replaced(metadata, partition_columns=list(dict.fromkeys(wanted_names)))
        case bodies.SetProtocol(protocol=protocol):
            properties = _with_protocol(properties, protocol)
        case bodies.SetProperties(updates=new_properties):
            properties = {**properties, **_said(new_properties)}
        case bodies.RemoveProperties(removals=gone):
            properties = {key: value for key, value in properties.items() if key not in gone}
        case bodies.SetDomainMetadata(updates=domains):
            properties = {**properties, **_of_domains(domains)}
        case bodies.RemoveDomainMetadata(domains=gone):
            table_views.refuse_unknown_domains(gone)
            if clustering.DOMAIN in gone:
                properties = {key: properties[key] for key in properties if key != _CLUSTERING}
        case bodies.SetTableComment(comment=comment):
            return replaced(metadata, description=comment)
        case bodies.SetSnapshotVersion():
            properties = {**properties, **_of_snapshot(update)}
    return replaced(metadata, configuration=properties)


def last_commit(metadata: Metadata) -> tuple[int | None, int | None]:
    """Give the version and the time that a client said last; None where none did."""
    version, timestamp = (_number(metadata, key) for key in (_VERSION, _TIMESTAMP))
    return version, timestamp


def _number(metadata: Metadata, key: str) -> int | None:
    text = metadata.configuration.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _said(properties: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if value is not None}


def _unmanaged(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse what would have clients ask here for the commits of a table that has none here."""
    if _MANAGED in properties:
        raise InvalidArgumentError(
            f"An external table does not support {features.CATALOG_MANAGED}.",
            remedy="Read and write it through the catalog that manages it.",
        )
    return properties


def _names(schema_string: str) -> set[str]:
    fields = schemas.from_json(schema_string).fields if schema_string else ()
    return {field.name for field in fields}


def _with_protocol(properties: Mapping[str, str], protocol: bodies.DeltaProtocol) -> dict[str, str]:
    left = {key: text for key, text in properties.items() if not key.startswith(features.ASKING)}
    names = sorted({*protocol.reader_features, *protocol.writer_features})
    return {
        **left,
        _READER: str(protocol.min_reader_version),
        _WRITER: str(protocol.min_writer_version),
        **{f"{features.ASKING}{name}": "supported" for name in names},
    }


def _of_domains(domains: Mapping[str, Any]) -> dict[str, str]:
    table_views.refuse_unknown_domains(domains)
    told: dict[str, str] = {}
    for name, configuration in domains.items():
        match name, configuration:
            case clustering.DOMAIN, {"clusteringColumns": list(paths)}:
                told[_CLUSTERING] = to_json(paths).decode()
            case row_ids.DOMAIN, {"rowIdHighWaterMark": int(mark)} if not isinstance(mark, bool):
                pass  # the log has it; every commit moves it, so it is no property
            case _:
                raise InvalidArgumentError(f"The domain {name} is not of its form.", remedy="")
    return told


def _of_snapshot(snapshot: bodies.SetSnapshotVersion) -> dict[str, str]:
    told = {
        _VERSION: snapshot.last_commit_version,
        _TIMESTAMP: snapshot.last_commit_timestamp_ms,
    }
    for key, number in told.items():
        if not 0 <= number < 1 << 63:
            raise InvalidArgumentError(f"{key} is {number}.", remedy="")
    return {key: str(number) for key, number in told.items()}
