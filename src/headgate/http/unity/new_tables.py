"""New managed tables: requirements, staging, and registration."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from headgate.api.messages import StagingTable, TableInfo
from headgate.catalog.service import Catalog
from headgate.errors import NotFoundError
from headgate.http.unity import bodies, declarations, table_views
from headgate.http.unity.problems import Case, DialectError, exists_as, invalid
from headgate.names import TableName
from headgate.protocol import features
from headgate.protocol.actions import Metadata, Protocol, TableId, TxnId, encode, join
from headgate.protocol.commit.admission import TIMESTAMPS_PROPERTY
from headgate.protocol.commit.content import Inline
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.schema import types as schemas
from headgate.protocol.schema.types import StructType
from headgate.settings import Settings

# Properties whose values an engine generates when it creates a table with a feature.
_GENERATED: Final = {
    "columnMapping": ("delta.columnMapping.maxColumnId",),
    "rowTracking": (
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
    ),
}


# Requirements


def required_protocol(settings: Settings) -> Protocol:
    """Return the protocol that a new table must have at least."""
    return features.protocol_of_version0(
        [features.CATALOG_MANAGED, *features.named(settings.required_features)]
    )


def suggested_protocol(settings: Settings) -> Protocol:
    """Return the features that a new table should have besides the required ones."""
    required = features.effective(required_protocol(settings))
    wanted = features.with_requirements(features.named(settings.suggested_features))
    protocol = features.protocol_of_version0([*required, *wanted])
    return Protocol(
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        reader_features=[f for f in protocol.reader_features or () if f not in required],
        writer_features=[f for f in protocol.writer_features or () if f not in required],
    )


def required_properties(settings: Settings, table_id: TableId) -> dict[str, str]:
    """Return the properties that a new table must have, with their values."""
    own = {TIMESTAMPS_PROPERTY: "true", TABLE_ID_PROPERTY: table_id}
    return {**_activating(features.effective(required_protocol(settings))), **own}


def suggested_properties(settings: Settings) -> dict[str, str | None]:
    """Return the properties suggested for a new table; None: the engine generates the value."""
    names = suggested_protocol(settings).writer_features or ()
    generated = [key for name in names for key in _GENERATED.get(name, ())]
    entries = (entry.split("=") for entry in settings.suggested_properties.split(",") if entry)
    return {
        **_activating(names),
        **dict.fromkeys(generated),
        **{key.strip(): value.strip() for key, value in entries},
    }


def _activating(names: Iterable[str]) -> dict[str, str]:
    """Return the properties that make features active."""
    return {condition.key: condition.values[0] for condition in _conditions(names)}


def _conditions(names: Iterable[str]) -> list[features.Property]:
    rows = [features.FEATURES[name] for name in sorted(names) if name in features.FEATURES]
    return [row.active_when for row in rows if isinstance(row.active_when, features.Property)]


def violations(
    settings: Settings,
    examined: Examined,
    properties: Mapping[str, str | None],
    updates: Iterable[bodies.Update],
) -> Iterator[Violation]:
    """List what version 0 lacks, and where it differs from the properties and updates declared."""
    yield from _lacks_required(settings, examined, properties)
    if examined.metadata is not None:
        # A property that the log lacks is accepted, as by the stock server, and not stored.
        logged = examined.metadata.configuration
        present = {key: value for key, value in properties.items() if key in logged}
        updates = (*updates, bodies.SetProperties(updates=present))
    yield from declarations.contradictions(updates, examined)


def _lacks_required(
    settings: Settings, examined: Examined, declared: Mapping[str, str | None]
) -> Iterator[Violation]:
    """List the required features and properties that version 0 lacks."""
    # A property that only the request declares is enough: kernel-rs cannot write
    # `delta.checkpointPolicy` to the log, and the stock server checks the request alone.
    wanted = required_protocol(settings)
    if examined.protocol is None or examined.metadata is None:
        return  # a violation by itself
    for has, needs, whose in (
        (examined.protocol.reader_features, wanted.reader_features, "readers"),
        (examined.protocol.writer_features, wanted.writer_features, "writers"),
    ):
        for name in sorted(set(needs or ()) - set(has or ())):
            says = f"new tables must have the feature {name}, for {whose}"
            yield Violation(rule="required-feature", says=says)
    for condition in _conditions(features.effective(wanted)):
        logged = examined.metadata.configuration.get(condition.key)
        found = (logged or declared.get(condition.key) or "").strip().lower()
        if found not in condition.values:
            says = f"new tables must have the property {condition.key}={condition.values[0]}"
            yield Violation(rule="required-property", says=says)


# Staging and registration


def stage(catalog: Catalog, name: TableName) -> StagingTable:
    """Create a staging table for a name that must not be in use."""
    table_views.require_schema(catalog, name.namespace)
    try:
        catalog.describe(name)
    except NotFoundError:
        staged = catalog.stage_table(namespace=name.namespace)
        # Some clients list the folder before they write to it.
        if staged.location.startswith("file:"):
            table_views.folder(staged.location).mkdir(parents=True, exist_ok=True)
        return staged
    raise DialectError(Case.TABLE_THERE, f"Table {name} already exists.")


def register(
    catalog: Catalog,
    name: TableName,
    location: str,
    judge: Callable[[Examined], Iterable[Violation]],
) -> TableInfo:
    """Register the staging table at a location; a repeated request gets the same answer."""
    table_views.require_schema(catalog, name.namespace)
    table_id = _staged_at(catalog, location)
    with exists_as(Case.TABLE_THERE):
        catalog.register_table(name, table_id, judge=judge)
    return catalog.describe_in_files(table_id)


def create(
    catalog: Catalog, name: TableName, location: str, first: Callable[[TableId], Inline]
) -> TableInfo:
    """Commit version 0 of a staging table whose engine does not write it."""
    table_id = _staged_at(catalog, location)
    # Derived from the table, so that a repeated request is recognized.
    txn_id = TxnId(str(uuid.uuid5(uuid.UUID(table_id), "version 0")))
    with exists_as(Case.TABLE_THERE):
        catalog.create_table(name, table_id, txn_id, first(table_id))
    return catalog.describe_in_files(table_id)


def _staged_at(catalog: Catalog, location: str) -> TableId:
    found = catalog.table_at(location)
    if found is None:
        raise NotFoundError(
            f"No table was staged at {location[:500]}.",
            remedy="Create a staging table first, and use its location.",
        )
    return found


def version_0(
    settings: Settings,
    table_id: TableId,
    schema: StructType,
    partition_columns: list[str],
    properties: Mapping[str, str | None],
    comment: str | None,
) -> Inline:
    """Return the content of version 0 of a table with these columns and properties."""
    given = {key: value for key, value in properties.items() if value is not None}
    if declarations.has_uniform(given):
        declarations.refuse_uniform(given)
    required = required_properties(settings, table_id)
    for key, value in required.items():
        if given.get(key, value) != value:
            raise invalid(f"Property {key} is declared as {given[key]!r}; it must be {value!r}.")
    kept = {key: value for key, value in given.items() if not key.startswith(declarations.DERIVED)}
    asked = features.features_for(given, schema)
    protocol = features.protocol_of_version0(
        [*features.effective(required_protocol(settings)), *asked]
    )
    metadata = Metadata(
        id=table_id,
        description=comment,
        schema_string=schemas.to_json(schema),
        partition_columns=partition_columns,
        configuration={**kept, **required},
    )
    return Inline(
        commit_info={"operation": "CREATE TABLE"},
        actions=join([encode(protocol), encode(metadata)]),
    )
