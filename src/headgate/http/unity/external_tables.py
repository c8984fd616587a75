"""Declarations of external tables, and their changes.

The catalog does not read the content of such a table, so it stores what clients declare and returns
it unchanged: a client that reads a CSV file by its name needs its options. What is derived from the
log of a managed table, such as `delta.feature.*`, is stored as properties here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from headgate.errors import InvalidArgumentError
from headgate.http.unity import bodies, columns
from headgate.http.unity.declarations import refuse_unknown_domains
from headgate.http.unity.problems import invalid
from headgate.protocol import clustering, features
from headgate.protocol.actions import Format, Metadata
from headgate.protocol.commit import row_ids
from headgate.protocol.encoding import replaced, to_json
from headgate.protocol.schema import types as schemas

_READER: Final = "delta.minReaderVersion"
_WRITER: Final = "delta.minWriterVersion"
_CLUSTERING: Final = "clusteringColumns"
_VERSION: Final = "delta.lastUpdateVersion"
_TIMESTAMP: Final = "delta.lastCommitTimestamp"
_MANAGED: Final = f"{features.ASKING}{features.CATALOG_MANAGED}"
_ORDER: Final = get_args(bodies.Update)


def declared(body: bodies.OlderNewTable) -> Metadata:
    """Return the declaration of a new table."""
    given = body.columns or ()
    schema = columns.declared(given)
    return Metadata(
        id="",  # the catalog chooses it
        description=body.comment,
        format=Format(provider=body.data_source_format.lower()),
        schema_string=schemas.to_json(schema) if schema.fields else "",
        partition_columns=list(columns.partitions(given)),
        configuration=_unmanaged(without_nulls(body.properties or {})),
    )


def changed(metadata: Metadata, updates: Iterable[bodies.Update]) -> Metadata:
    """Return the declaration after updates, at most one of each type."""
    for update in sorted(updates, key=lambda update: _ORDER.index(type(update))):
        metadata = _after(metadata, update)
    _unmanaged(metadata.configuration)
    return metadata


def _after(metadata: Metadata, update: bodies.Update) -> Metadata:
    properties = metadata.configuration
    match update:
        case bodies.AddCommit() | bodies.SetPublished():
            raise InvalidArgumentError(
                "The table is external: the catalog does not accept commits to it.",
                remedy="Write to its log directly.",
            )
        case bodies.SetColumns(columns=new_columns):
            schema_string = schemas.to_json(columns.from_kebab(new_columns))
            names = _names(schema_string)
            kept = [name for name in metadata.partition_columns if name in names]
            return replaced(metadata, schema_string=schema_string, partition_columns=kept)
        case bodies.SetPartitionColumns(partition_columns=new_names):
            if not _names(metadata.schema_string).issuperset(new_names):
                raise invalid("A partition column does not exist.")
            return replaced(metadata, partition_columns=list(dict.fromkeys(new_names)))
        case bodies.SetProtocol(protocol=protocol):
            properties = _with_protocol(properties, protocol)
        case bodies.SetProperties(updates=new_properties):
            properties = {**properties, **without_nulls(new_properties)}
        case bodies.RemoveProperties(removals=gone):
            properties = {key: value for key, value in properties.items() if key not in gone}
        case bodies.SetDomainMetadata(updates=domains):
            properties = {**properties, **_of_domains(domains)}
        case bodies.RemoveDomainMetadata(domains=gone):
            refuse_unknown_domains(gone)
            if clustering.DOMAIN in gone:
                properties = {key: properties[key] for key in properties if key != _CLUSTERING}
        case bodies.SetTableComment(comment=comment):
            return replaced(metadata, description=comment)
        case bodies.SetSnapshotVersion():
            properties = {**properties, **_of_snapshot(update)}
    return replaced(metadata, configuration=properties)


def last_commit(metadata: Metadata) -> tuple[int | None, int | None]:
    """Return the version and time that a client reported last, or None."""
    version, timestamp = (_number(metadata, key) for key in (_VERSION, _TIMESTAMP))
    return version, timestamp


def _number(metadata: Metadata, key: str) -> int | None:
    text = metadata.configuration.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def without_nulls(properties: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties that have a value."""
    return {key: value for key, value in properties.items() if value is not None}


def _unmanaged(properties: dict[str, str]) -> dict[str, str]:
    """Raise for the property that makes clients ask the catalog for commits."""
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
    refuse_unknown_domains(domains)
    properties: dict[str, str] = {}
    for name, configuration in domains.items():
        match name, configuration:
            case clustering.DOMAIN, {"clusteringColumns": list(paths)}:
                properties[_CLUSTERING] = to_json(paths).decode()
            case row_ids.DOMAIN, {"rowIdHighWaterMark": int(mark)} if not isinstance(mark, bool):
                pass  # not a property, since every commit changes it; the log has it
            case _:
                raise invalid(f"The domain {name} is malformed.")
    return properties


def _of_snapshot(snapshot: bodies.SetSnapshotVersion) -> dict[str, str]:
    numbers = {
        _VERSION: snapshot.last_commit_version,
        _TIMESTAMP: snapshot.last_commit_timestamp_ms,
    }
    for key, number in numbers.items():
        if not 0 <= number < 1 << 63:
            raise invalid(f"{key} is {number}.")
    return {key: str(number) for key, number in numbers.items()}
