"""A table as it is asked for, and what makes it one: new at version 0, or anew in its own place.

A table that is replaced keeps its id, its location and its history. Its protocol only grows, its
files go, and the catalog's own properties stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from headgate.arguments import shown
from headgate.client import arrow_io
from headgate.client.transaction import Operation, as_text
from headgate.clock import Ids
from headgate.errors import (
    InvalidArgumentError,
    InvalidSchemaError,
    MalformedError,
    RefusedError,
    UnsupportedFeatureError,
)
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
from headgate.protocol.schema.checks import check
from headgate.protocol.schema.column_mapping import (
    MAX_COLUMN_ID,
    MODE,
    with_mapping,
    without_mapping,
)
from headgate.protocol.schema.types import (
    DEFAULT,
    GENERATION,
    IDENTITY,
    DataType,
    StructField,
    StructType,
    all_fields,
    columns_with,
    find,
    to_json,
    type_from_object,
)
from headgate.protocol.statistics import num_records
from headgate.storage.port import ObjectStore
from headgate.table.snapshot import Snapshot

# pyarrow has its home in `client.arrow_io` and brings no types of its own.
ArrowSchema: TypeAlias = Any
AnySchema: TypeAlias = str | StructType | Mapping[str, Any] | ArrowSchema  # or Spark's
AnyType: TypeAlias = str | DataType | Any  # Any: a type of Arrow or Spark

ROW_TRACKING_PREFIX = "delta.rowTracking."
_ROW_ID_COLUMN = f"{ROW_TRACKING_PREFIX}materializedRowIdColumnName"
_ROW_VERSION_COLUMN = f"{ROW_TRACKING_PREFIX}materializedRowCommitVersionColumnName"
_MANAGED = (features.CATALOG_MANAGED, "vacuumProtocolCheck", features.IN_COMMIT_TIMESTAMP)
_GIVEN = frozenset({TABLE_ID_PROPERTY, "delta.enableInCommitTimestamps", MAX_COLUMN_ID})
# What a table keeps when it is replaced, whatever it is then.
_KEPT = _GIVEN | {
    MODE,
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.requireCheckpointProtectionBeforeVersion",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table to be made, as it was asked for."""

    schema: StructType
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def given(
        cls,
        schema: AnySchema,
        partition_by: Iterable[str] = (),
        properties: Mapping[str, str | int | bool] | None = None,
        comment: str | None = None,
    ) -> Wanted:
        """Read what a caller passed."""
        told = property_texts(properties or {})
        return cls(columns_of(schema), tuple(partition_by), told, comment)

    @classmethod
    def like(cls, base: Snapshot, schema: AnySchema, partition_by: Iterable[str] = ()) -> Wanted:
        """Ask for other columns, and for all else as the table has it."""
        properties = {k: v for k, v in base.properties.items() if not _is_kept(k)}
        columns = columns_of(schema)
        return cls(columns, tuple(partition_by), properties, base.metadata.description)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table on its way: where it will lie and what it will be, while nobody can name it."""

    location: str
    store: ObjectStore
    protocol: Protocol
    metadata: Metadata


# Writes data files into a new table, and gives the actions that add them to version 0.
Fill: TypeAlias = Callable[[NewTable], Sequence[AddFile]]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What makes another table of one that is there; new files go into the same commit."""

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]  # protocol and metadata among them
    removed: tuple[AddFile, ...]
    scans: tuple[Scan, ...]  # a file that came meanwhile would stay, with columns of before


def first(
    wanted: Wanted, table_id: TableId, created_ms: int, ids: Ids
) -> tuple[Protocol, Metadata]:
    """Give protocol and metadata of version 0; nothing but what is needed is added."""
    kept = {"delta.enableInCommitTimestamps": "true", TABLE_ID_PROPERTY: table_id}
    empty = Metadata(id=table_id, created_time=created_ms, schema_string="")
    metadata, asked = _described(wanted, empty, kept, ids)
    protocol = features.protocol_of_version0([*_MANAGED, *asked])
    _refuse_unwritable(protocol, metadata)
    return protocol, metadata


def replacement(base: Snapshot, wanted: Wanted, ids: Ids, now_ms: int) -> Replacement:
    """Give what replaces a table by the one that is wanted, without rows."""
    assert base.table_id is not None
    refuse_removals(base)
    kept = {key: value for key, value in base.properties.items() if _is_kept(key)}
    mode = _mode(kept)
    told = _mode({**kept, **wanted.properties})
    if mode != told and (mode, told) != ("none", "name"):
        raise InvalidArgumentError(
            f"Column mapping of {base.label} cannot go from {mode} to {told}.",
            remedy=f"Leave {MODE} out, or make a new table.",
        )
    # Files of before go by the names and ids of before: no new column gets one of them.
    anew = replace(wanted, schema=without_mapping(wanted.schema))
    metadata, asked = _described(anew, base.metadata, kept, ids)
    if "rowTracking" in asked and not features.is_supported(base.protocol, "rowTracking"):
        raise UnsupportedFeatureError(
            f"rowTracking cannot be switched on for {base.label}, which is there already.",
            remedy="Make a new table with it.",
        )
    protocol = base.protocol
    for feature in asked:
        protocol = features.upgraded(protocol, feature)
    _refuse_unwritable(protocol, metadata)
    files = tuple(base.files())
    if files and features.is_active(protocol, metadata, "appendOnly"):
        raise RefusedError(
            f"{base.label} has rows, and none can go from a table that is append-only.",
            remedy="Set delta.appendOnly after the table is replaced.",
        )
    actions: list[Action] = [metadata]
    if protocol != base.protocol:
        actions.insert(0, protocol)
    if clustering.DOMAIN in base.domains:
        gone = base.domains[clustering.DOMAIN]
        actions.append(
            DomainMetadata(domain=gone.domain, configuration=gone.configuration, removed=True)
        )
    actions.extend(removals(files, now_ms))
    scan = Scan(table_id=base.table_id, version=base.version)
    return Replacement(protocol, metadata, tuple(actions), files, (scan,))


def making(name: str, metadata: Metadata, metrics: Mapping[str, int] | None = None) -> Operation:
    """Tell of a commit that makes a table: `CREATE TABLE`, `REPLACE TABLE` and their kin."""
    return Operation(
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
    """Count what a write brought, in Delta's words."""
    return {
        "numFiles": len(files),
        "numOutputRows": sum(num_records(file) or 0 for file in files),
        "numOutputBytes": sum(file.size for file in files),
    }


def columns_of(schema: AnySchema) -> StructType:
    """Convert a schema in any form that is accepted: SQL text, dict, Arrow, Spark or Delta."""
    if isinstance(schema, str):
        return parse_schema(schema)
    if isinstance(schema, StructType):
        return schema
    if arrow_io.is_schema(schema):
        return arrow_io.delta_schema(schema)
    if _is_of_spark(schema):
        found = _from_spark(schema)
        if isinstance(found, StructType):
            return found
    if isinstance(schema, Mapping):
        return StructType(tuple(_column_of(name, given) for name, given in schema.items()))
    raise InvalidArgumentError(
        f"A schema cannot be given as {shown(schema)}.",
        remedy='Pass text such as "id long, day date", a dict such as {"id": "long"}, a pyarrow '
        "Schema or a Spark StructType.",
    )


def type_of(data_type: AnyType) -> DataType:
    """Convert a type in any form that is accepted: SQL text, Arrow, Spark or Delta."""
    if isinstance(data_type, str):
        return parse_type(data_type)
    if isinstance(data_type, DataType):
        return data_type
    if arrow_io.is_type(data_type):
        return arrow_io.delta_type(data_type)
    if _is_of_spark(data_type):
        return _from_spark(data_type)
    raise InvalidArgumentError(
        f"A type cannot be given as {shown(data_type)}.",
        remedy="Name it as in SQL, such as long, string or decimal(10,2).",
    )


def _is_of_spark(value: object) -> bool:
    return type(value).__module__ == "pyspark.sql.types" and hasattr(value, "jsonValue")


def _from_spark(data_type: Any) -> DataType:
    try:
        return type_from_object(data_type.jsonValue())
    except (MalformedError, UnsupportedFeatureError) as error:
        raise InvalidSchemaError(error.message, remedy="Use types that Delta has.") from error


def _column_of(name: object, data_type: AnyType) -> StructField:
    if not isinstance(name, str):
        raise InvalidArgumentError(
            f"A column cannot be named {name!r}.", remedy="Use strings as the keys of a schema."
        )
    try:
        return StructField(name, type_of(data_type))
    except RefusedError as error:
        raise type(error)(f"Column {name!r}: {error.message}", remedy=error.remedy) from None


def property_texts(properties: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Spell properties as Delta does; refuse values that nobody could read."""
    told = {}
    for key, value in properties.items():
        if not isinstance(value, str | int):  # what callers without types may pass
            raise InvalidArgumentError(f"The property {key} is {value!r}: no text, number or bool.")
        told[key] = property_text(value)
    if found := known_properties.unknown(told):
        raise InvalidArgumentError(
            " ".join(found), remedy="Begin the names of your own properties with another word."
        )
    if found := known_properties.problems(told):
        raise InvalidArgumentError(f"{'; '.join(found)}.", remedy="Give it one of these values.")
    return told


def property_text(value: str | int | bool) -> str:
    """Spell a property's value as Delta does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_removals(base: Snapshot) -> None:
    """Refuse to take rows out of a table that does not allow it, or that we cannot write."""
    if found := features.unwritable(base.protocol, base.metadata, rows=False):
        raise UnsupportedFeatureError(f"{base.label} cannot be written: {', '.join(found)}.")
    if features.is_active(base.protocol, base.metadata, "appendOnly"):
        raise RefusedError(
            f"{base.label} is append-only: rows come, and none go.",
            remedy="Append instead, or unset delta.appendOnly.",
        )


def _described(
    wanted: Wanted, before: Metadata, kept: Mapping[str, str], ids: Ids
) -> tuple[Metadata, list[str]]:
    """Give the metadata that is wanted, and the features that it needs or asks for."""
    properties = wanted.properties
    if given := sorted(_GIVEN.intersection(properties)):
        raise InvalidArgumentError(
            f"The property {given[0]} is not for you to set.", remedy="Leave it out."
        )
    _refuse_values(wanted.schema)
    configuration = features.without_asking(properties) | dict(kept)
    if MODE in properties:
        configuration[MODE] = properties[MODE]
    is_mapped = _mode(configuration) != "none"
    partition_by = [_spelled(wanted.schema, name) for name in wanted.partition_by]
    check(wanted.schema, partition_by, column_mapping=is_mapped)
    schema = wanted.schema
    if is_mapped:
        last = configuration.get(MAX_COLUMN_ID, "0")
        schema, highest = with_mapping(
            schema, lambda: f"col-{ids.random()}", int(last) if last.isdigit() else 0
        )
        configuration[MAX_COLUMN_ID] = str(highest)
    asked = features.features_for({**configuration, **properties}, schema)
    if "rowTracking" in asked:
        configuration.setdefault(_ROW_ID_COLUMN, f"_row-id-col-{ids.random()}")
        configuration.setdefault(_ROW_VERSION_COLUMN, f"_row-commit-version-col-{ids.random()}")
    metadata = replaced(
        before,
        description=wanted.comment,
        schema_string=to_json(schema),
        partition_columns=partition_by,
        configuration=configuration,
    )
    return metadata, asked


def _refuse_values(schema: StructType) -> None:
    """Refuse columns whose values nobody here could give."""
    if identity := columns_with(schema, IDENTITY):
        raise UnsupportedFeatureError(
            f"Column {'.'.join(identity[0])} is an identity column (identityColumns).",
            remedy="Leave the identity out and bring the values, or generate them.",
        )
    for path, item in all_fields(schema):
        name = ".".join(path)
        for key, what in ((DEFAULT, "DEFAULT"), (GENERATION, "expression")):
            text = item.metadata.get(key)
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise InvalidArgumentError(f"The {what} of column {name} is no SQL: {text!r}.")
            if text is not None and len(path) > 1:
                raise InvalidArgumentError(
                    f"Column {name} lies within another and has a {what}; only whole columns do."
                )
        if DEFAULT in item.metadata and GENERATION in item.metadata:
            raise InvalidArgumentError(f"Column {name} is generated and has a DEFAULT, too.")


def _refuse_unwritable(protocol: Protocol, metadata: Metadata) -> None:
    if unknown := features.unwritable(protocol, metadata, rows=False):
        raise UnsupportedFeatureError(f"No table can be made with {', '.join(unknown)}.")


def _mode(properties: Mapping[str, str]) -> str:
    return properties.get(MODE, "none").strip().lower()


def _is_kept(key: str) -> bool:
    return key in _KEPT or key.startswith(ROW_TRACKING_PREFIX)


def _spelled(schema: StructType, name: str) -> str:
    # As the schema has it; one that is not there is `check`'s to refuse.
    found = find(schema, [name])
    return name if found is None else found.name
