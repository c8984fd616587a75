"""Definitions of tables, and the actions that create or replace a table by one.

A replaced table keeps its id, location, history and the properties of the catalog. Its files are
removed, and its protocol is only upgraded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeAlias

from headgate import errors
from headgate.arguments import shown
from headgate.client import arrow_io
from headgate.client.transaction import OperationInfo, as_text
from headgate.clock import Ids
from headgate.protocol import clustering, features
from headgate.protocol import properties as known_properties
from headgate.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    TableId,
    removals,
)
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.encoding import replaced
from headgate.protocol.expressions.schema_text import parse_schema, parse_type
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as delta
from headgate.protocol.schema.checks import check
from headgate.protocol.schema.column_mapping import MAX_COLUMN_ID, MODE, without_mapping
from headgate.protocol.schema.evolution import with_schema
from headgate.protocol.statistics import num_records
from headgate.storage.object_store import ObjectStore
from headgate.table.snapshot import Snapshot

# pyarrow is imported only by `client.arrow_io`, and has no type annotations.
ArrowSchema: TypeAlias = Any
AnySchema: TypeAlias = str | delta.StructType | Mapping[str, Any] | ArrowSchema  # or Spark's
AnyType: TypeAlias = str | delta.DataType | Any  # Any: a type of Arrow or Spark

ROW_TRACKING_PREFIX = "delta.rowTracking."
_ROW_ID_COLUMN = f"{ROW_TRACKING_PREFIX}materializedRowIdColumnName"
_ROW_VERSION_COLUMN = f"{ROW_TRACKING_PREFIX}materializedRowCommitVersionColumnName"
_MANAGED = (features.CATALOG_MANAGED, "vacuumProtocolCheck", features.IN_COMMIT_TIMESTAMP)
_GIVEN = frozenset({TABLE_ID_PROPERTY, "delta.enableInCommitTimestamps", MAX_COLUMN_ID})
# Properties that a table keeps when it is replaced.
_KEPT = _GIVEN | {
    MODE,
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.requireCheckpointProtectionBeforeVersion",
}
# Properties that cannot be set or removed later. Spec: EN-01.
_PROTECTED = _KEPT | {"delta.minReaderVersion", "delta.minWriterVersion"}
_PROTECTED_PREFIXES = (features.ASKING, delta.CONSTRAINTS, ROW_TRACKING_PREFIX)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The columns, partitioning, properties and comment of a table to create."""

    schema: delta.StructType
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def parse(
        cls,
        schema: AnySchema,
        partition_by: Iterable[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
    ) -> TableDefinition:
        """Parse the arguments of a caller."""
        texts = property_texts(properties or {})
        return cls(columns_of(schema), tuple(partition_by), texts, comment)

    @classmethod
    def like(
        cls, base: Snapshot, schema: AnySchema, partition_by: Iterable[str] = ()
    ) -> TableDefinition:
        """Return the definition of a table with other columns."""
        properties = {k: v for k, v in base.properties.items() if not _is_kept(k)}
        columns = columns_of(schema)
        return cls(columns, tuple(partition_by), properties, base.metadata.description)


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A table that is being created and has no name yet."""

    location: str
    store: ObjectStore
    protocol: Protocol
    metadata: Metadata


# Writes data files into a pending table, and returns the actions that add them to version 0.
Fill: TypeAlias = Callable[[PendingTable], Sequence[AddFile]]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The actions that replace a table; new files are added in the same commit."""

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]  # protocol and metadata among them
    removed: tuple[AddFile, ...]
    scans: tuple[Scan, ...]  # a file added meanwhile would stay, with the columns of before


def version_zero(
    definition: TableDefinition, table_id: TableId, created_ms: int, ids: Ids
) -> tuple[Protocol, Metadata]:
    """Return the protocol and metadata of version 0, with only the features it needs."""
    kept = {"delta.enableInCommitTimestamps": "true", TABLE_ID_PROPERTY: table_id}
    empty = Metadata(id=table_id, created_time=created_ms, schema_string="")
    metadata, asked = _described(definition, empty, kept, ids)
    protocol = features.protocol_of_version0([*_MANAGED, *asked])
    _refuse_unwritable(protocol, metadata)
    return protocol, metadata


def replacement(base: Snapshot, definition: TableDefinition, ids: Ids, now_ms: int) -> Replacement:
    """Return the actions that replace a table by an empty one."""
    assert base.table_id is not None
    refuse_removals(base)
    kept = {key: value for key, value in base.properties.items() if _is_kept(key)}
    mode = _mode(kept)
    new_mode = _mode({**kept, **definition.properties})
    if mode != new_mode and (mode, new_mode) != ("none", "name"):
        raise errors.InvalidArgumentError(
            f"Column mapping of {base.label} cannot change from {mode} to {new_mode}.",
            remedy=f"Leave {MODE} out, or create a new table.",
        )
    # No new column may get a name or id that a column in an older file has.
    unmapped = replace(definition, schema=without_mapping(definition.schema))
    metadata, asked = _described(unmapped, base.metadata, kept, ids)
    if "rowTracking" in asked and not features.is_supported(base.protocol, "rowTracking"):
        raise errors.UnsupportedFeatureError(
            f"rowTracking cannot be activated for the existing table {base.label}.",
            remedy="Create a new table with it.",
        )
    protocol = reduce(features.upgraded, asked, base.protocol)
    _refuse_unwritable(protocol, metadata)
    files = tuple(base.files())
    if files and features.is_active(protocol, metadata, "appendOnly"):
        raise errors.RefusedError(
            f"{base.label} has rows, which cannot be removed from an append-only table.",
            remedy="Set delta.appendOnly after the table is replaced.",
        )
    actions: list[Action] = [metadata]
    if protocol != base.protocol:
        actions.insert(0, protocol)
    if clustering.DOMAIN in base.domains:
        before = base.domains[clustering.DOMAIN]
        actions.append(
            DomainMetadata(domain=before.domain, configuration=before.configuration, removed=True)
        )
    actions.extend(removals(files, now_ms))
    scan = Scan(table_id=base.table_id, version=base.version)
    return Replacement(protocol, metadata, tuple(actions), files, (scan,))


def table_operation(
    name: str, metadata: Metadata, metrics: Mapping[str, int] | None = None
) -> OperationInfo:
    """Return the operation of a commit such as `CREATE TABLE` or `REPLACE TABLE`."""
    return OperationInfo(
        name,
        {
            "isManaged": "true",
            "description": metadata.description,
            "partitionBy": as_text(metadata.partition_columns),
            "clusterBy": "[]",
            "properties": as_text(metadata.configuration),
        },
        metrics or {},
    )


def added_metrics(files: Sequence[AddFile]) -> dict[str, int]:
    """Return Delta's metrics of added files."""
    return {
        "numFiles": len(files),
        "numOutputRows": sum(num_records(file) or 0 for file in files),
        "numOutputBytes": sum(file.size for file in files),
    }


def removed_metrics(files: Sequence[AddFile]) -> dict[str, int]:
    """Return Delta's metrics of removed files."""
    return {"numRemovedFiles": len(files), "numRemovedBytes": sum(file.size for file in files)}


def columns_of(schema: AnySchema) -> delta.StructType:
    """Convert a schema given as SQL text, dict, or schema of Arrow, Spark or Delta."""
    if isinstance(schema, str):
        return parse_schema(schema)
    if isinstance(schema, delta.StructType):
        return schema
    if (columns := arrow_io.schema_of(schema)) is not None:
        return columns
    if _is_of_spark(schema):
        found = _from_spark(schema)
        if isinstance(found, delta.StructType):
            return found
    if isinstance(schema, Mapping):
        return delta.StructType(tuple(_column_of(name, given) for name, given in schema.items()))
    raise errors.InvalidArgumentError(
        f"A schema cannot be given as {shown(schema)}.",
        remedy='Pass text such as "id long, day date", a dict such as {"id": "long"}, a pyarrow '
        "Schema or a Spark StructType.",
    )


def type_of(data_type: AnyType) -> delta.DataType:
    """Convert a type given as SQL text, or type of Arrow, Spark or Delta."""
    if isinstance(data_type, str):
        return parse_type(data_type)
    if isinstance(data_type, delta.DataType):
        return data_type
    if (converted := arrow_io.type_of(data_type)) is not None:
        return converted
    if _is_of_spark(data_type):
        return _from_spark(data_type)
    raise errors.InvalidArgumentError(
        f"A type cannot be given as {shown(data_type)}.",
        remedy="Name it as in SQL, such as long, string or decimal(10,2).",
    )


def _is_of_spark(value: object) -> bool:
    return type(value).__module__ == "pyspark.sql.types" and hasattr(value, "jsonValue")


def _from_spark(data_type: Any) -> delta.DataType:
    try:
        return delta.type_from_object(data_type.jsonValue())
    except (errors.MalformedError, errors.UnsupportedFeatureError) as error:
        raise errors.InvalidSchemaError(
            error.message, remedy="Use types that Delta has."
        ) from error


def _column_of(name: object, data_type: AnyType) -> delta.StructField:
    if not isinstance(name, str):
        raise errors.InvalidArgumentError(
            f"{name!r} is not a valid name of a column.",
            remedy="Use strings as the keys of a schema.",
        )
    try:
        return delta.StructField(name, type_of(data_type))
    except errors.RefusedError as error:
        raise type(error)(f"Column {name!r}: {error.message}", remedy=error.remedy) from None


def property_texts(properties: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Convert properties to text as Delta does; refuse unknown names and invalid values."""
    texts = {}
    for key, value in properties.items():
        if not isinstance(value, str | int):  # what callers without types may pass
            raise errors.InvalidArgumentError(
                f"The value of the property {key} is {value!r}, not a text, integer or bool."
            )
        texts[key] = property_text(value)
    if found := known_properties.unknown(texts):
        raise errors.InvalidArgumentError(
            " ".join(found), remedy="Begin the names of your own properties with another word."
        )
    if found := known_properties.problems(texts):
        raise errors.InvalidArgumentError(
            f"{'; '.join(found)}.", remedy="Give it one of these values."
        )
    return texts


def property_text(value: str | int | bool) -> str:
    """Convert the value of a property to text as Delta does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_removals(base: Snapshot) -> None:
    """Refuse to remove rows from a table that is append-only or that we cannot write."""
    if found := features.unwritable(base.protocol, base.metadata, rows=False):
        raise errors.UnsupportedFeatureError(f"{base.label} cannot be written: {', '.join(found)}.")
    if features.is_active(base.protocol, base.metadata, "appendOnly"):
        raise errors.RefusedError(
            f"{base.label} is append-only: its rows cannot be changed or removed.",
            remedy="Append instead, or unset delta.appendOnly.",
        )


def _described(
    definition: TableDefinition, before: Metadata, kept: Mapping[str, str], ids: Ids
) -> tuple[Metadata, list[str]]:
    """Return the metadata of a definition, and the features that it needs or names."""
    properties = definition.properties
    if given := sorted(_GIVEN.intersection(properties)):
        raise errors.InvalidArgumentError(
            f"The property {given[0]} is set by the catalog.", remedy="Leave it out."
        )
    _refuse_values(definition.schema)
    configuration = features.without_asking(properties) | dict(kept)
    if MODE in properties:
        configuration[MODE] = properties[MODE]
    asked = features.features_for({**configuration, **properties}, definition.schema)
    if "rowTracking" in asked:
        configuration.setdefault(_ROW_ID_COLUMN, f"_row-id-col-{ids.random()}")
        configuration.setdefault(_ROW_VERSION_COLUMN, f"_row-commit-version-col-{ids.random()}")
    metadata = replaced(
        before,
        description=definition.comment,
        partition_columns=[_spelled(definition.schema, name) for name in definition.partition_by],
        configuration=configuration,
    )
    mapped = _mode(configuration) != "none"
    return with_columns(metadata, definition.schema, ids, mapped=mapped), asked


def with_columns(
    metadata: Metadata, schema: delta.StructType, ids: Ids, *, mapped: bool
) -> Metadata:
    """Check a schema and put it into metadata; with column mapping new columns get names."""
    check(schema, metadata.partition_columns, column_mapping=mapped)
    return with_schema(metadata, schema, mapped=mapped, new_name=lambda: f"col-{ids.random()}")


def _refuse_values(schema: delta.StructType) -> None:
    """Refuse columns whose values cannot be computed."""
    if identity := delta.columns_with(schema, delta.IDENTITY):
        raise errors.UnsupportedFeatureError(
            f"Column {'.'.join(identity[0])} is an identity column (identityColumns).",
            remedy="Leave the identity out and write the values, or generate them.",
        )
    for path, item in delta.all_fields(schema):
        name = ".".join(path)
        for key, what in ((delta.DEFAULT, "DEFAULT"), (delta.GENERATION, "expression")):
            text = item.metadata.get(key)
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise errors.InvalidArgumentError(
                    f"The {what} of column {name} is not SQL: {text!r}."
                )
            if text is not None and len(path) > 1:
                raise errors.InvalidArgumentError(
                    f"Column {name} is a field of another column; only a whole column can have a"
                    f" {what}."
                )
        if delta.DEFAULT in item.metadata and delta.GENERATION in item.metadata:
            raise errors.InvalidArgumentError(
                f"Column {name} is generated and has a DEFAULT as well."
            )


def _refuse_unwritable(protocol: Protocol, metadata: Metadata) -> None:
    if unknown := features.unwritable(protocol, metadata, rows=False):
        raise errors.UnsupportedFeatureError(f"Tables with {', '.join(unknown)} cannot be created.")


def refuse_protected(keys: Iterable[str]) -> None:
    """Refuse to set or remove properties that make a table managed or describe its rows."""
    for key in keys:
        if key in _PROTECTED or key.startswith(_PROTECTED_PREFIXES):
            raise errors.InvalidArgumentError(
                f"The property {key} cannot be set or removed.",
                remedy="Leave it out: the catalog and its features maintain it.",
            )


def _mode(properties: Mapping[str, str]) -> str:
    return properties.get(MODE, "none").strip().lower()


def _is_kept(key: str) -> bool:
    return key in _KEPT or key.startswith(ROW_TRACKING_PREFIX)


def _spelled(schema: delta.StructType, name: str) -> str:
    # The spelling of the schema; `check` refuses a column that does not exist.
    found = delta.find(schema, [name])
    return name if found is None else found.name
